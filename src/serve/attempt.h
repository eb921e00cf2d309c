/* attempt - one request's way over the legs of its route, as one reply.
 *
 * Owns:      which legs were tried, the transcript, the request as each leg gets it, waits while no
 *            leg may be asked, what the client is told about substitution.
 * Not:       states of legs (legs), the choice (route/router), time limits of an upstream
 *            (remote_leg, by what deadline_make says), the reply's form (dialect).
 * Invariant: the reply is one: STARTED once, each choice ends once, USAGE of all legs before the
 *            last DONE, or one ERROR. No byte of a text is given twice or left out. Each leg at
 *            most once and ATTEMPT_LEGS_MAX in all, but for the one retry of a sole leg, and an
 *            engine that comes back. After cancel nothing follows.
 *
 *     pick --submit--> leg --ERROR, fails over--> classify --> pick ... --none left--> ERROR
 *       \__ none may be asked: wait for the earliest __/
 *
 * Notes that are not warnings: code "substituted", text "from=claude; to=desk; reason=stall" when
 * the leg is not the route's first; "failover" the same in mid-stream; "legs", text a JSON array
 * [{"leg","model","reason","output_tokens"}] before the last DONE if several answered.
 *
 * Thread:    the loop's.
 * Limits:    ATTEMPT_BYTES_MAX of a reply are kept for resuming it.
 */
#ifndef SHOAL_SERVE_ATTEMPT_H
#define SHOAL_SERVE_ATTEMPT_H

#include "serve/legs.h"

#define ATTEMPT_LEGS_MAX 3u
#define ATTEMPT_BYTES_MAX ((size_t)16 << 20)

struct attempt;
/* Takes the request on route `route` of g (its reference too) or refuses it: nothing could be
 * tried, and nothing will be soon. */
BASE_USE_RESULT bool attempt_start(struct legs *l, struct legs_generation *g, uint32_t route,
                                   const struct api_request *rq, struct api_sink sink,
                                   struct api_error *e);
/* The number that the exchange gave a request of which a leg was told `id`. */
uint64_t attempt_request(uint64_t id);
/* The leg at hand, or NULL while none is asked. */
const struct legs_leg *attempt_leg_now(const struct attempt *a);
void attempt_cancel(struct attempt *a);
void attempt_hold(struct attempt *a, bool on);

#endif
