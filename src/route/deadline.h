/* deadline - how long may an attempt be silent: connect, first visible token, gap, total.
 *
 * Owns:      the arithmetic of BEHAVIOUR 8.5 and 9.4: `auto` from a leg's own history or from the
 *            prompt's size, local legs from their progress; what is late at a moment, and when
 *            to look next.
 * Not:       timers (serve/attempt), history (health), what follows (breaker, router).
 * Invariant: pure. A remote leg is late by the clock; a local one only when its progress stands
 *            still. Pings, comments and empty pieces move nothing. 0 = there is no such limit.
 *
 *     begun --connect--> connected --> header --> token -- gap --> token -- gap --> end
 *       |------------------- first -----------------'                                |
 *       '---------------------------------- total -----------------------------------'
 *
 * Thread:    any.
 */
#ifndef SHOAL_ROUTE_DEADLINE_H
#define SHOAL_ROUTE_DEADLINE_H

#include "route/health.h"

#define DEADLINE_AUTO (-1) /* of deadline_input.asked.first_ms */

struct deadline_input {
    struct api_deadlines asked; /* configured for the leg; first_ms may be DEADLINE_AUTO */
    bool is_local;
    bool is_silent_thinker; /* can think, and was not seen to stream it */
    bool is_trial;          /* half the first-token deadline */
    uint32_t prompt_tokens; /* counted or estimated */
    enum api_effort effort;
    uint32_t think_tokens_max; /* a budget the request gave; API_THINK_ENDLESS: by the effort */
    const struct health_samples *samples; /* of the bucket; NULL: none */
    uint64_t tokens_ahead;  /* local: uncached, of requests before this one, own not counted */
    float prefill_tokens_per_s; /* local; 0: not measured */
    int64_t load_ms;        /* local: estimated rest of a load */
};
/* connect_ms, first_ms, gap_ms, total_ms in force. Local legs have neither connect nor gap: their
 * first_ms is an estimate that moves with progress, 0 where nothing is measured. */
struct api_deadlines deadline_make(const struct deadline_input *in);

/* What has happened; times in ms of one clock, 0 = not yet. */
struct deadline_clock {
    int64_t begun_ms;     /* the attempt */
    int64_t connected_ms; /* somebody took the connection */
    int64_t header_ms;    /* the answer's header came */
    int64_t token_ms;     /* the last token-bearing event */
    int64_t progress_ms;  /* local: the last time anything moved */
    int64_t held_ms;      /* the reader stalls since then: a gap is not the leg's fault */
    int64_t arrived_ms;   /* the request; total counts from here */
};
enum deadline_kind {
    DEADLINE_NONE, DEADLINE_CONNECT, DEADLINE_HEADER, DEADLINE_FIRST, DEADLINE_GAP, DEADLINE_TOTAL,
};
enum deadline_kind deadline_late(const struct api_deadlines *d, const struct deadline_clock *c,
                                 int64_t now_ms);
/* The moment at which deadline_late would first say something; INT64_MAX: never. */
int64_t deadline_next_ms(const struct api_deadlines *d, const struct deadline_clock *c);
/* The class of an attempt that ends by this. NONE is our mistake. */
enum health_class deadline_class(enum deadline_kind k);

#endif
