/* router - which leg next?
 *
 * Owns:      the rules: first matching route, ranks, equal legs by session, what is skipped and
 *            why, when to ask again (BEHAVIOUR 9.2).
 * Not:       states of legs (breaker, leg), attempts and their number (serve/attempt), where rules
 *            come from (cli/config_legs).
 * Invariant: pure: no I/O, time is an argument; the same query gives the same leg. What was tried
 *            is an argument. An open or cooling leg is never picked.
 *
 *     (model, agent, dialect, key) --router_find--> route --router_candidates--> ordered legs
 *                                                   --router_pick--> index, or -1 and a reason
 *
 * Thread:    any.
 * Limits:    ROUTER_LEGS_MAX legs of a route.
 */
#ifndef SHOAL_ROUTE_ROUTER_H
#define SHOAL_ROUTE_ROUTER_H

#include "route/leg.h"

#define ROUTER_LEGS_MAX 16u

struct router_entry {
    uint32_t leg;  /* index of the configuration's legs */
    str model;     /* asked of it; "" = the leg's own, else the name asked for */
    uint32_t rank; /* equal ranks are equal legs; ascending */
};
/* Globs; "" = any. */
struct router_match { str model, agent, dialect, key; };
struct router_route {
    struct router_match match;
    struct router_entry entries[ROUTER_LEGS_MAX];
    uint32_t entries_count;
    int32_t shadow; /* index of a leg, or -1 */
};
struct router_rules {
    const struct router_route *routes;
    uint32_t routes_count;
};
struct router_asked { str model, agent, dialect, key; };
/* Index of the first route that matches, or -1. */
int router_find(const struct router_rules *r, const struct router_asked *a);

/* What a session or a first part of a prompt is known by; never 0. */
uint64_t router_key(str session, const struct api_request *rq);

/* Order in which a route's entries are asked: by rank; inside a rank rendezvous hashing of key and
 * leg name, `pinned` (an entry's index, -1: none) first. order holds indices of entries. */
void router_order(const struct router_route *route, const str *names, uint64_t key, int pinned,
                  uint32_t order[ROUTER_LEGS_MAX]);

struct router_candidate {
    const struct leg *leg;
    bool is_tried;     /* by this request */
    const char *lacks; /* what its protocol cannot say of it (serve knows); NULL: nothing */
};
enum router_skip {
    ROUTER_SKIP_NONE, ROUTER_SKIP_TRIED, ROUTER_SKIP_FORCED, ROUTER_SKIP_OPEN, ROUTER_SKIP_COOLING,
    ROUTER_SKIP_TRIAL,  /* half-open, and the one trial is under way */
    ROUTER_SKIP_BUSY, ROUTER_SKIP_INCAPABLE, ROUTER_SKIP_DOWN, /* DOWN: an engine leg restarts */
};
struct router_reason {
    enum router_skip first;  /* why the route's first leg was not picked */
    const char *lacks;       /* INCAPABLE: what */
    bool all_incapable;      /* no leg of the route could ever take it */
    const char *all_lack;    /* what the first of them lacks */
    bool any_busy;
    uint32_t down;           /* an engine leg that restarts, and would queue it; UINT32_MAX: none */
    int64_t again_ms;        /* -1 picked: when a leg may be free; INT64_MAX: not known */
};
/* Index of the first candidate that may be asked now, in order, or -1. */
int router_pick(const struct router_candidate *candidates, uint32_t count,
                const struct leg_needs *needs, int64_t now_ms, struct router_reason *why);
/* "open", "cooling", "forced", "busy" or "incapable:WHAT" as in Shoal-Substituted. */
void router_print_skip(struct buf *out, enum router_skip skip, const char *lacks);

#endif
