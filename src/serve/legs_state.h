/* legs_state - struct legs and its generations, for the files that act on them.
 *
 * Owns:      the structs.
 * Not:       anything that others may see (legs.h).
 * Invariant: legs_generation.c makes and frees generations; legs.c swaps them and keeps what is
 *            known of each leg.
 * Thread:    the loop's.
 */
#ifndef SHOAL_SERVE_LEGS_STATE_H
#define SHOAL_SERVE_LEGS_STATE_H

#include "serve/legs.h"

struct legs_generation {
    struct legs *set;
    uint32_t refs;
    bool is_applied;
    struct arena arena;
    struct legs_row *rows;
    struct remote_leg **remotes; /* one per row; NULL: an engine */
    uint32_t rows_count;
    struct router_route *routes;
    struct router_rules rules;
    int64_t all_open_wait_ms;
    bool probes_free, probes_paid;
    uint32_t probes_per_hour, shadow_min_tokens;
    struct list legs; /* of struct legs_leg */
    uint32_t legs_count;
};

struct legs_counted {
    char from[64], to[64];
    enum health_class reason;
    bool is_after;
    uint64_t count;
};

struct legs {
    struct legs_options o;
    struct api_provider local;
    struct http_client *client; /* NULL until there is an upstream */
    struct legs_generation *now;
    struct rehearsal *rehearsal;
    struct sticky sticky;
    struct map attempts; /* the exchange's id to struct attempt */
    struct chrono_rng rng;
    char via[17]; /* this server's name in Shoal-Via, another one at each start */
    struct loop_timer tick;
    struct legs_counted failovers[LEGS_FAILOVERS_MAX];
    uint32_t failovers_count;
    uint64_t failovers_other;
    struct probes probes;
    struct shadow shadow;
    int64_t asked_ms; /* the last request that a route was for */
};

#endif
