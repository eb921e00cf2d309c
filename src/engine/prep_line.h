/* prep_line - which request is prepared next?
 *
 * Owns:      the order of what the frame thread has sent and prep has not begun, and how much of
 *            prep's time each agent has had lately.
 * Not:       preparing (prompt), the memory of the items (engine_host), who runs (sched_policy).
 * Invariant: of several agents the one that had least is next, an agent's own in order. What is
 *            said of a request (HOLD) comes after it; what is cancelled while it waits is never
 *            prepared. So whoever sends what is dear to prepare holds up others by one of them.
 *
 *     SUBMIT a1, a2, a3 (0.5 s each), b1  -->  a1 b1 a2 a3
 *
 * Thread:    its caller's (prep).
 * Limits:    PREP_LINE_AGENTS remembered; the one that is idle longest gives way. A step looks at
 *            all that wait: the endpoint's queue bounds them.
 */
#ifndef SHOAL_ENGINE_PREP_LINE_H
#define SHOAL_ENGINE_PREP_LINE_H

#include "base/list.h"

#define PREP_LINE_AGENTS 256
#define PREP_LINE_HALF_NS 1000000000 /* half of what an agent had is forgotten after so long */

/* Embedded in what waits. */
struct prep_item {
    struct list link;
    uint64_t id, agent; /* agent: of a request */
    bool is_request;
};

struct prep_agent {
    uint64_t agent;
    int64_t spent_ns, at_ns; /* as of at_ns */
};

struct prep_line {
    struct list waiting;
    struct prep_agent agents[PREP_LINE_AGENTS];
    uint32_t agents_count;
};

void prep_line_init(struct prep_line *l);
void prep_line_add(struct prep_line *l, struct prep_item *item);
/* Whether the request itself waits; words about one that has left the line may. */
bool prep_line_has(const struct prep_line *l, uint64_t id);
/* Off the line; NULL: empty. */
struct prep_item *prep_line_next(struct prep_line *l, int64_t now_ns);
/* Its owner took so long to prepare. */
void prep_line_spent(struct prep_line *l, uint64_t agent, int64_t ns, int64_t now_ns);
/* What waits of that id goes: first the request, then each word about it; NULL: no more. */
struct prep_item *prep_line_take(struct prep_line *l, uint64_t id);

#endif
