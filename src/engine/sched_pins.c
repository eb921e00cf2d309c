#include "engine/sched_pins.h"

#include "base/log.h"

void sched_pins_init(struct sched_pins *p, const struct sched_pins_options *o)
{
    *p = (struct sched_pins){.trie = o->trie};
    map_init(&p->by_name, SCHED_PINS_MAX);
    if (!o->trie)
        return;
    p->most.nodes = (uint32_t)((uint64_t)o->trie->nodes_max * o->permille / 1000);
    for (uint32_t g = 0; g < o->trie->layout->groups_count; g++) {
        uint32_t all = o->trie->pool->groups[g].pages;
        uint32_t beside = all > o->whole[g] ? all - o->whole[g] : 0;
        p->most.pages[g] = (uint32_t)base_min((uint64_t)all * o->permille / 1000, beside);
    }
}

void sched_pins_deinit(struct sched_pins *p) { map_deinit(&p->by_name); }

bool sched_pins_wants(const struct job *j)
{
    return j->rq.kind == API_KIND_PREFILL && j->rq.cache == API_CACHE_PIN;
}

static bool sched_pins_fit(const struct sched_pins *p, const struct kv_trie_pins *cost)
{
    const struct kv_trie_pins *now = &p->trie->stats.pinned;
    bool ok = (uint64_t)now->nodes + p->promised.nodes + cost->nodes <= p->most.nodes;
    for (uint32_t g = 0; ok && g < p->trie->layout->groups_count; g++)
        ok = (uint64_t)now->pages[g] + p->promised.pages[g] + cost->pages[g] <= p->most.pages[g];
    return ok;
}

bool sched_pins_enter(struct sched_pins *p, struct job *j, struct api_error *e)
{
    const struct prompt *prompt = &j->prompts[0];
    struct kv_trie_pins cost;
    uint64_t name = 0;
    bool is_named = j->rq.context.len > 0;
    if ((is_named && !str_to_u64(j->rq.context, &name)) || j->prompts_count != 1)
        return api_error_set(e, ERR_REQUEST, "", STR("context"),
                             "context: a number and one prompt expected, got %u prompts",
                             j->prompts_count);
    if (!p->trie)
        return api_error_set(e, ERR_UNSUPPORTED, "", STR("pin"),
                             "pin: prefixes are not kept here (cache.prefix is off)");
    kv_trie_pin_cost(p->trie, j->rq.scope, prompt->ids, prompt->count, &cost);
    bool fits = sched_pins_fit(p, &cost) &&
                (map_find_number(&p->by_name, name) || p->by_name.count < SCHED_PINS_MAX);
    if (!fits && is_named)
        return api_error_set(e, ERR_LIMIT, "insufficient_storage", STR("pin"),
                             "pin: %u tokens need %u more pages of %u tokens; %u are pinned, at "
                             "most %u may be (cache.pin_quota, and a whole conversation fits "
                             "beside them)", prompt->count, cost.nodes, KV_PAGE_TOKENS,
                             p->trie->stats.pinned.nodes + p->promised.nodes,
                             (uint32_t)base_min(p->most.nodes, p->most.pages[0]));
    if (!fits) {
        log_warn("cache.public: %u tokens are not pinned, cache.pin_quota is used up",
                 prompt->count);
        return true;
    }
    j->promised = ARENA_NEW(&j->arena, struct kv_trie_pins);
    if (!j->promised)
        return api_error_set(e, ERR_MEMORY, "", STR("pin"), "pin: no memory");
    *j->promised = cost;
    p->promised.nodes += cost.nodes;
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++)
        p->promised.pages[g] += cost.pages[g];
    return true;
}

void sched_pins_leave(struct sched_pins *p, struct job *j)
{
    if (!j->promised)
        return;
    p->promised.nodes -= j->promised->nodes;
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++)
        p->promised.pages[g] -= j->promised->pages[g];
    j->promised = NULL;
}

/* The tree keeps a prefix as far as it has nodes: one that is cut is no pin. */
bool sched_pins_put(struct sched_pins *p, const struct job *j, uint32_t node, struct api_error *e)
{
    uint32_t levels = (j->prompts[0].count + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    uint64_t name = 0;
    if (!j->promised)
        return true;
    bool is_named = j->rq.context.len > 0 && str_to_u64(j->rq.context, &name);
    uint64_t *old = is_named ? map_find_number(&p->by_name, name) : NULL;
    bool is_whole = node != KV_NODE_NONE && p->trie->nodes[node].depth >= levels;
    if (!is_whole || (is_named && !old && !map_put_number(&p->by_name, name, node)))
        return api_error_set(e, ERR_LIMIT, "insufficient_storage", STR("pin"),
                             "pin: %u tokens were computed and could not be kept",
                             j->prompts[0].count);
    kv_trie_pin(p->trie, node);
    if (old) {
        kv_trie_unpin(p->trie, (uint32_t)*old);
        *old = node;
    }
    return true;
}

void sched_pins_drop(struct sched_pins *p, str name)
{
    uint64_t number;
    const uint64_t *node = str_to_u64(name, &number) ? map_find_number(&p->by_name, number) : NULL;
    if (!node)
        return;
    kv_trie_unpin(p->trie, (uint32_t)*node);
    map_delete_number(&p->by_name, number);
}
