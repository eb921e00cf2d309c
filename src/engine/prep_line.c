#include "engine/prep_line.h"

void prep_line_init(struct prep_line *l)
{
    *l = (struct prep_line){.agents_count = 0};
    list_init(&l->waiting);
}

void prep_line_add(struct prep_line *l, struct prep_item *item)
{
    list_push_last(&l->waiting, &item->link);
}

static void prep_line_age(struct prep_agent *a, int64_t now_ns)
{
    int64_t halves = (now_ns - a->at_ns) / PREP_LINE_HALF_NS;
    if (halves <= 0)
        return;
    a->spent_ns = halves < 63 ? a->spent_ns >> halves : 0;
    a->at_ns += halves * PREP_LINE_HALF_NS;
}

static struct prep_agent *prep_line_agent(struct prep_line *l, uint64_t agent)
{
    for (uint32_t i = 0; i < l->agents_count; i++)
        if (l->agents[i].agent == agent)
            return &l->agents[i];
    return NULL;
}

static int64_t prep_line_had(struct prep_line *l, uint64_t agent, int64_t now_ns)
{
    struct prep_agent *a = prep_line_agent(l, agent);
    if (!a)
        return 0;
    prep_line_age(a, now_ns);
    return a->spent_ns;
}

bool prep_line_has(const struct prep_line *l, uint64_t id)
{
    list_each (link, &l->waiting) {
        const struct prep_item *at = list_item(link, struct prep_item, link);
        if (at->is_request && at->id == id)
            return true;
    }
    return false;
}

struct prep_item *prep_line_next(struct prep_line *l, int64_t now_ns)
{
    struct prep_item *best = NULL;
    int64_t least = 0;
    list_each (link, &l->waiting) {
        struct prep_item *at = list_item(link, struct prep_item, link);
        if (!at->is_request && prep_line_has(l, at->id))
            continue;
        int64_t had = at->is_request ? prep_line_had(l, at->agent, now_ns) : -1;
        if (!best || had < least) {
            best = at;
            least = had;
        }
    }
    if (best)
        list_remove(&best->link);
    return best;
}

void prep_line_spent(struct prep_line *l, uint64_t agent, int64_t ns, int64_t now_ns)
{
    struct prep_agent *a = prep_line_agent(l, agent);
    if (!a) {
        a = l->agents;
        if (l->agents_count < PREP_LINE_AGENTS)
            a = &l->agents[l->agents_count++];
        else
            for (uint32_t i = 1; i < l->agents_count; i++)
                a = l->agents[i].at_ns < a->at_ns ? &l->agents[i] : a;
        *a = (struct prep_agent){.agent = agent, .at_ns = now_ns};
    }
    prep_line_age(a, now_ns);
    a->spent_ns += ns;
}

struct prep_item *prep_line_take(struct prep_line *l, uint64_t id)
{
    list_each (link, &l->waiting) {
        struct prep_item *at = list_item(link, struct prep_item, link);
        if (at->id != id)
            continue;
        list_remove(link);
        return at;
    }
    return NULL;
}
