#include "route/router.h"

#include "base/digest.h"

#define ROUTER_PREFIX 4096 /* BEHAVIOUR 9.2: bytes of a prompt that know its session */

/* --- rules --------------------------------------------------------------------------------- */

static bool router_fits(str glob, str text) { return glob.len == 0 || str_glob(glob, text); }

int router_find(const struct router_rules *r, const struct router_asked *a)
{
    for (uint32_t i = 0; i < r->routes_count; i++) {
        const struct router_match *m = &r->routes[i].match;
        if (router_fits(m->model, a->model) && router_fits(m->agent, a->agent) &&
            router_fits(m->dialect, a->dialect) && router_fits(m->key, a->key))
            return (int)i;
    }
    return -1;
}

/* --- sessions ------------------------------------------------------------------------------ */

/* Text by text, so that the same prefix gives the same number however it is cut into parts. */
static uint64_t router_add(uint64_t h, str text, size_t *left)
{
    text = str_sub(text, 0, *left);
    *left -= text.len;
    return text.len ? digest_xxh3(text, h) : h;
}

uint64_t router_key(str session, const struct api_request *rq)
{
    size_t left = ROUTER_PREFIX;
    uint64_t h = digest_xxh3(rq->agent, 1);
    if (session.len)
        return digest_xxh3(session, h) | 1;
    for (uint32_t i = 0; i < rq->tools_count && left; i++)
        h = router_add(h, rq->tools[i].name, &left);
    for (uint32_t i = 0; i < rq->messages_count && left; i++)
        for (uint32_t k = 0; k < rq->messages[i].parts_count && left; k++)
            h = router_add(h, rq->messages[i].parts[k].text, &left);
    for (uint32_t i = 0; i < rq->inputs_count && left; i++)
        h = router_add(h, rq->inputs[i].text, &left);
    return h | 1;
}

/* --- order --------------------------------------------------------------------------------- */

/* Rendezvous hashing (Thaler, Ravishankar 1998): a leg that comes or goes moves only its share. */
void router_order(const struct router_route *route, const str *names, uint64_t key, int pinned,
                  uint32_t order[ROUTER_LEGS_MAX])
{
    uint64_t weights[ROUTER_LEGS_MAX];
    for (uint32_t i = 0; i < route->entries_count; i++) {
        weights[i] = digest_xxh3(names[i], key) >> 1;
        if ((int)i == pinned)
            weights[i] = UINT64_MAX;
    }
    for (uint32_t i = 0; i < route->entries_count; i++) {
        uint32_t at = i;
        for (; at; at--) { /* at most ROUTER_LEGS_MAX: insertion */
            uint32_t before = order[at - 1];
            uint32_t rank = route->entries[before].rank;
            bool stays = rank < route->entries[i].rank ||
                         (rank == route->entries[i].rank && weights[before] >= weights[i]);
            if (stays)
                break;
            order[at] = before;
        }
        order[at] = i;
    }
}

/* --- picking ------------------------------------------------------------------------------- */

static enum router_skip router_skip_engine(const struct leg *l)
{
    switch (l->state) {
    case API_HEALTH_FAILED: case API_HEALTH_RESTARTING:
        return ROUTER_SKIP_DOWN;
    case API_HEALTH_STARTING: case API_HEALTH_READY: case API_HEALTH_STOPPED:
    case API_HEALTH_COUNT_:
        break;
    }
    return ROUTER_SKIP_NONE;
}

static enum router_skip router_skip_breaker(const struct leg *l, int64_t now_ms)
{
    const struct breaker *b = &l->breaker;
    if (b->state == BREAKER_STATE_FORCED_OPEN)
        return ROUTER_SKIP_FORCED;
    if (breaker_allows(b, now_ms))
        return ROUTER_SKIP_NONE;
    if (breaker_is_cooling(b, now_ms))
        return ROUTER_SKIP_COOLING;
    return breaker_is_trial(b, now_ms) ? ROUTER_SKIP_TRIAL : ROUTER_SKIP_OPEN;
}

static enum router_skip router_skip_of(const struct router_candidate *c,
                                       const struct leg_needs *needs, int64_t now_ms,
                                       const char **lacks)
{
    *lacks = c->lacks ? c->lacks : leg_lacks(c->leg, needs);
    if (*lacks)
        return ROUTER_SKIP_INCAPABLE;
    if (c->is_tried)
        return ROUTER_SKIP_TRIED;
    enum router_skip skip = router_skip_breaker(c->leg, now_ms);
    if (skip == ROUTER_SKIP_NONE && c->leg->kind == LEG_KIND_ENGINE)
        skip = router_skip_engine(c->leg);
    if (skip == ROUTER_SKIP_NONE && c->leg->inflight_max &&
        c->leg->inflight >= c->leg->inflight_max)
        skip = ROUTER_SKIP_BUSY;
    return skip;
}

static void router_note(struct router_reason *why, const struct router_candidate *c,
                        enum router_skip skip, int64_t now_ms)
{
    why->all_incapable = why->all_incapable && skip == ROUTER_SKIP_INCAPABLE;
    why->any_busy = why->any_busy || skip == ROUTER_SKIP_BUSY || skip == ROUTER_SKIP_TRIAL;
    if (skip != ROUTER_SKIP_OPEN && skip != ROUTER_SKIP_COOLING)
        return;
    int64_t at = breaker_free_ms(&c->leg->breaker, now_ms);
    why->again_ms = at < why->again_ms ? at : why->again_ms;
}

int router_pick(const struct router_candidate *candidates, uint32_t count,
                const struct leg_needs *needs, int64_t now_ms, struct router_reason *why)
{
    *why = (struct router_reason){.all_incapable = count > 0, .again_ms = INT64_MAX,
                                  .down = UINT32_MAX};
    for (uint32_t i = 0; i < count; i++) {
        const char *lacks;
        enum router_skip skip = router_skip_of(&candidates[i], needs, now_ms, &lacks);
        if (i == 0) {
            why->first = skip;
            why->lacks = lacks;
        }
        if (lacks && !why->all_lack)
            why->all_lack = lacks;
        if (skip == ROUTER_SKIP_NONE)
            return (int)i;
        if (skip == ROUTER_SKIP_DOWN && why->down == UINT32_MAX)
            why->down = i;
        router_note(why, &candidates[i], skip, now_ms);
    }
    return -1;
}

void router_print_skip(struct buf *out, enum router_skip skip, const char *lacks)
{
    switch (skip) {
    case ROUTER_SKIP_FORCED:
        buf_add_z(out, "forced");
        break;
    case ROUTER_SKIP_COOLING:
        buf_add_z(out, "cooling");
        break;
    case ROUTER_SKIP_BUSY:
        buf_add_z(out, "busy");
        break;
    case ROUTER_SKIP_INCAPABLE:
        buf_printf(out, "incapable:%s", lacks ? lacks : "feature");
        break;
    case ROUTER_SKIP_DOWN:
        buf_add_z(out, "engine_crash");
        break;
    case ROUTER_SKIP_OPEN: case ROUTER_SKIP_TRIAL: case ROUTER_SKIP_TRIED: case ROUTER_SKIP_NONE:
        buf_add_z(out, "open");
        break;
    }
}
