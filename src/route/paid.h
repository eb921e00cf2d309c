/* paid - may a billed probe be sent to a leg now?
 *
 * Owns:      when a probe was sent in the last hour, and the rule of BEHAVIOUR 9.3.
 * Not:       sending it (serve/probes), what its end means (breaker, health).
 * Invariant: pure: time is an argument. In no hour more than per_hour probes; none at all to a leg
 *            that is not half-open, that has a trial or traffic of its own, or while nobody asks
 *            any leg: an idle server pays nothing.
 *
 *     half-open, no attempt for PAID_QUIET_MS, a request to any leg within PAID_BUSY_MS,
 *     fewer than per_hour in the last hour --> yes
 *
 * Thread:    any; plain data. Lives as long as the server, over restarts too (run_state).
 * Limits:    PAID_PER_HOUR_MAX probes an hour.
 */
#ifndef SHOAL_ROUTE_PAID_H
#define SHOAL_ROUTE_PAID_H

#include "route/leg.h"

#define PAID_PER_HOUR_MAX 60u
#define PAID_HOUR_MS 3600000
#define PAID_QUIET_MS 3000 /* a leg asked more often than this is tried by its own requests */
#define PAID_BUSY_MS 60000 /* after its last request a fleet is idle */

struct paid {
    int64_t sent_ms[PAID_PER_HOUR_MAX]; /* a ring */
    uint32_t count;                     /* ever */
};
struct paid_view {
    uint32_t per_hour; /* 0: off; at most PAID_PER_HOUR_MAX */
    int64_t asked_ms;  /* the last request that any leg was for; 0: none yet */
};
bool paid_may(const struct paid *p, const struct paid_view *v, const struct leg *l, int64_t now_ms);
void paid_add(struct paid *p, int64_t now_ms); /* one is sent */
/* Probes of the hour before now. */
uint32_t paid_count(const struct paid *p, int64_t now_ms);

#endif
