/* exchange_list - the requests that are under way, for /v1/requests and /v1/agents.
 *
 * Owns:      what of an exchange is shown, finding those that somebody may end, ending them.
 * Not:       their legs (legs), who asks (limits), the answers' form (path_agents).
 * Invariant: a key sees and ends its own requests alone; admin all. One that is ended gets
 *            ERR_CANCELLED in its dialect's form: its real status, or in-band once it has begun.
 *            A body that a worker reads is not looked into: its request shows no agent yet.
 *
 * Thread:    the loop's.
 * Limits:    those of exchange.h.
 */
#ifndef SHOAL_SERVE_EXCHANGE_LIST_H
#define SHOAL_SERVE_EXCHANGE_LIST_H

#include "serve/exchange.h"

/* Views live until the next call from outside. */
struct exchange_row {
    str id, owner, agent, session, model, leg; /* owner: of the key; leg: that answers, or "" */
    uint64_t number;                           /* the provider's */
    const char *dialect, *state;               /* BEHAVIOUR 5.10, but for "upstream" */
    uint32_t place, prompt_tokens, cached_tokens, output_tokens;
    int64_t age_ms;
    enum api_priority priority;
    bool is_queued; /* nothing of it is computed yet */
};

/* Whose; a text that is not there (p NULL) means any. */
struct exchange_which {
    str id, agent, owner;
};

/* By arrival; on_row starts and ends none. */
void exchange_list_each(const struct exchange_set *s, const struct exchange_which *which,
                        void (*on_row)(void *ctx, const struct exchange_row *row), void *ctx);
/* Ends them; returns how many there were. */
uint32_t exchange_list_cancel(struct exchange_set *s, const struct exchange_which *which);
/* Tokens that count against an agent's limits now. */
struct quota_used exchange_list_used(const struct exchange_set *s, str agent);

#endif
