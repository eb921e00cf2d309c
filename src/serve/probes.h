/* probes - billed probes of half-open legs: sent, awaited, counted.
 *
 * Owns:      the one probe under way, the ledger of those sent, tokens they were billed.
 * Not:       whether one may be sent (route/paid), the request itself (remote_check), free checks
 *            (legs).
 * Invariant: a probe is its leg's trial: begun by legs_begin, ended by legs_end with the class an
 *            agent's request would have had. One at a time of all legs. It holds its generation.
 *
 *     tick --paid_may--> remote_leg_probe --on_check--> legs_end --> breaker
 *
 * Thread:    the loop's.
 * Limits:    one at once; PAID_PER_HOUR_MAX an hour.
 */
#ifndef SHOAL_SERVE_PROBES_H
#define SHOAL_SERVE_PROBES_H

#include "route/paid.h"

struct legs;
struct legs_generation;
struct legs_leg;

struct probes {
    struct legs *legs;
    struct legs_generation *g; /* of the one under way, referenced; NULL: none */
    struct legs_leg *at;
    bool is_trial;
    struct paid paid;
    uint64_t tokens; /* prompt and reply, as upstreams counted them */
};

void probes_init(struct probes *p, struct legs *l);
/* What is under way is dropped with its generation. */
void probes_close(struct probes *p);
/* Sends at most one. */
void probes_tick(struct probes *p, const struct paid_view *v, int64_t now_ms);

#endif
