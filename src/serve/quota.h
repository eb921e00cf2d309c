/* quota - what a key or an agent may have at once and in an hour or a day.
 *
 * Owns:      an account per key and per agent that has limits: requests under way, tokens of its
 *            windows.
 * Not:       which rules hold for whom (limits), a request's waiting itself (exchange).
 * Invariant: a ticket that was entered is left once. Who has no numbers in its rules has no
 *            account. Rules may change between two requests: the newest ones count.
 *
 *     enter --429: too many wait, tokens used up
 *        \---> may_start? --no: wait, ask again when a ticket was left
 *                  \--yes--> start --> begun (first token) --> leave(tokens)
 *
 * Thread:    the loop's.
 * Limits:    QUOTA_ACCOUNTS_MAX accounts; past it those that hold nothing go first.
 */
#ifndef SHOAL_SERVE_QUOTA_H
#define SHOAL_SERVE_QUOTA_H

#include "api/api_request.h"

#define QUOTA_ACCOUNTS_MAX 8192u

/* BEHAVIOUR 3.3, agents.GLOB. A number of 0: no limit. */
struct quota_rules {
    uint32_t max_running, max_queued;
    uint64_t tokens_per_hour, tokens_per_day; /* computed prompt and output */
    uint32_t max_context, max_output;
    uint32_t weight; /* share among agents, or among keys; 0: not said */
    uint64_t given; /* API_GIVEN bits of the fields below */
    enum api_priority priority;
    enum api_effort effort;
    enum api_truncate truncate;
    enum api_cache cache;
    bool replay;
    bool has_max_priority;
    enum api_priority max_priority;
};

struct quota;
struct quota_account;
struct quota_ticket { /* zeroed: no account */
    struct quota_account *accounts[2];
    bool is_started, has_begun;
};

BASE_USE_RESULT bool quota_open(struct quota **out, struct err *e);
void quota_close(struct quota *q); /* every ticket was left; NULL is allowed */

/* Sets what the rules say and the request does not, and caps what they cap. NULL: no rules. */
void quota_fill(struct api_request *rq, const struct quota_rules *rules);

struct quota_who { /* rules NULL: none */
    str key, agent;
    const struct quota_rules *key_rules, *agent_rules;
};
/* Another request of that key and agent. False: ERR_OVERLOADED, "rate_limited" with the
 * number; retry_after_ms = end of the window for tokens. */
BASE_USE_RESULT bool quota_enter(struct quota *q, struct quota_ticket *t,
                                 const struct quota_who *who, int64_t now_ms,
                                 struct api_error *e);
/* Would it stay within max_running? */
bool quota_may_start(const struct quota_ticket *t);
void quota_start(struct quota_ticket *t);
void quota_begin(struct quota_ticket *t); /* its first token came */
/* Tokens that the windows of that agent hold now. */
struct quota_used { uint64_t hour, day; };
struct quota_used quota_used_of(const struct quota *q, str agent, int64_t now_ms);
void quota_leave(struct quota *q, struct quota_ticket *t, uint64_t tokens, int64_t now_ms);

#endif
