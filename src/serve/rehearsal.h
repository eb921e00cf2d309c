/* rehearsal - a fault laid over one leg of a running server, for some agents and some time.
 *
 * Owns:      the plan, who is struck, the fault as the attempt sees it, what came of it.
 * Not:       the way to another leg (attempt), breakers (legs), the report's way out (path_legs).
 * Invariant: an upstream's state is not touched: an error of ours carries is_rehearsed, and the
 *            attempt counts it for nothing. Whom the plan does not name is served as ever. One plan
 *            at a time; past its end nobody is struck, what was struck is counted to its end.
 *
 *     attempt --submit--> rehearsal --struck--> timer --ERROR-->  (refuse, hang, cut ... : the leg
 *                             \                                    is not asked at all)
 *                              \--stall, cut_late--> leg --so many pieces--> cancel, then ERROR
 *
 * Thread:    the loop's.
 * Limits:    REHEARSAL_SECONDS_MAX; REHEARSAL_SAMPLES_MAX delays are kept, the first ones.
 */
#ifndef SHOAL_SERVE_REHEARSAL_H
#define SHOAL_SERVE_REHEARSAL_H

#include "api/api_provider.h"
#include "base/buf.h"
#include "wire/loop.h"

#define REHEARSAL_SECONDS_MAX 3600
#define REHEARSAL_SAMPLES_MAX 4096u
#define REHEARSAL_PIECES 12u /* of the reply before a late fault */

struct rehearsal;
struct rehearsal_plan {
    str leg, fault, agents; /* agents: a glob */
    int64_t seconds;        /* 0: end the one that runs */
    double share;           /* of the requests, 0 to 1 */
};

BASE_USE_RESULT bool rehearsal_open(struct rehearsal **out, struct loop *l, struct err *e);
void rehearsal_close(struct rehearsal *r); /* no call is under way; NULL is allowed */
/* Takes the plan, or refuses it: ERR_REQUEST naming what is wrong or that one still runs. That the
 * leg exists is the caller's to check. */
BASE_USE_RESULT bool rehearsal_start(struct rehearsal *r, const struct rehearsal_plan *p,
                                     uint64_t seed, struct err *e);
/* Is this request to be struck on that leg? Draws lots. */
bool rehearsal_strikes(struct rehearsal *r, str leg, str agent);
/* The leg's provider with the fault over it, for one submit; the same answer serves that request's
 * cancel, hold and credit. `inner` must outlive the request. */
struct api_provider rehearsal_provider(struct rehearsal *r, const struct api_provider *inner);
/* Has there been a drill? */
bool rehearsal_has_plan(const struct rehearsal *r);
/* Does a request go to another leg after the fault of the plan? */
bool rehearsal_fails_over(const struct rehearsal *r);

/* What became of a request that was struck. */
enum rehearsal_end {
    REHEARSAL_END_OVER,       /* another leg, or the same one asked again, finished it */
    REHEARSAL_END_FAILED,     /* there was nobody else */
    REHEARSAL_END_LOST,       /* ... though somebody else could have taken it */
    REHEARSAL_END_CANCELLED,  /* the client left */
    REHEARSAL_END_COUNT_
};
void rehearsal_hit(struct rehearsal *r);
/* The client's wait that the fault made: from its last token, or from the start, to the next. */
void rehearsal_delay(struct rehearsal *r, int64_t ms);
void rehearsal_over(struct rehearsal *r, enum rehearsal_end end, str leg);

/* The plan and the counts as a JSON object; {} before the first plan. */
void rehearsal_report(struct rehearsal *r, struct buf *out);

#endif
