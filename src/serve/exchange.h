/* exchange - one inference request from the last byte of its body to the last byte of its reply.
 *
 * Owns:      the request's arena and dialect state, its waits (headers, pings, deadlines), the set
 *            of all requests under way, the order in which a reply's bytes leave.
 * Not:       who answers: one provider takes every request and finds the model by rq->model
 *            (serve/models_leg over engine_legs). HTTP (wire), keys (limits), forms (dialect).
 * Invariant: each request ends exactly once: a whole reply, an error in the dialect's form, or a
 *            client that went away, which cancels it at once. Nothing of a stream is sent before
 *            its first event, or before defer_ms: so an early failure keeps its real status.
 *
 *     READ --submit--> QUEUED --> PREFILL --STARTED--> DECODE --last DONE, ERROR--> over
 *        \__ refused     \__________\________________\__ client gone, deadline __/
 *
 * Thread:    the loop's.
 * Limits:    queue_max waiting requests beside the model's sequences; a request's memory is 4 times
 *            its body + 1 MiB; output ahead of a slow reader is http_limits.output_high.
 */
#ifndef SHOAL_SERVE_EXCHANGE_H
#define SHOAL_SERVE_EXCHANGE_H

#include "api/api_provider.h"
#include "dialect/dialect.h"
#include "wire/http_conn.h"
#include "wire/loop.h"

#define EXCHANGE_ID_LEN 26 /* "req_" and 22 letters */

struct agents;
struct exchange;
struct exchange_call;
struct contexts;
struct exchange_set;
struct sessions;
struct limits;
struct limits_key;
struct metrics;
struct misses;
struct replay;

struct exchange_options {
    struct loop *loop;
    struct api_provider provider;        /* of every kind and model */
    const struct dialect_limits *limits; /* outlives the set */
    struct metrics *metrics;             /* outlives the set; counts and logs each end */
    struct replay *replay;               /* outlives the set; NULL: past replies are only text */
    struct misses *misses;               /* outlives the set */
    struct agents *agents;               /* outlives the set */
    struct contexts *contexts;           /* outlives the set */
    struct sessions *sessions;           /* outlives the set */
    int64_t context_ttl_ms;              /* cache.context_ttl */
    uint32_t queue_max;                  /* limits.queue */
    int64_t ping_ms, defer_ms;           /* limits.ping (0: never), limits.defer_headers */
    int64_t total_ms, wait_ms, gen_ms;   /* deadlines.total, max_wait, max_gen; 0: none */
    bool rounds_clock;                   /* cache.normalise.clock */
    uint16_t overlong_status;            /* limits.overlong_status; 0: the dialect's own */
    /* A request was read: fills what its model's configuration says where the request does not.
     * The model's own name, under which the queue is counted; in a, or the request's. NULL: the
     * name asked for. */
    str (*on_read)(void *ctx, struct api_request *rq, struct arena *a);
    /* The call's request is over, before its last byte is handed on; may be NULL. */
    void (*on_end)(void *ctx, struct exchange_call *call);
    void *ctx;
};

/* Who asks, and for what; views live as long as the connection's request. */
struct exchange_call {
    const struct dialect *dialect;
    const struct dialect_path *path;
    str segment;
    str request_id;    /* EXCHANGE_ID_LEN letters */
    const struct limits_key *key; /* whose; NULL: keys are not configured */
    const struct limits *limits;  /* that let it in */
    struct exchange *exchange; /* set by exchange_start while it runs, else NULL */
};

BASE_USE_RESULT bool exchange_set_open(struct exchange_set **out, const struct exchange_options *o,
                                       struct err *e);
/* Other limits and times, for requests that start from now on. */
void exchange_set_change(struct exchange_set *s, const struct exchange_options *o);
void exchange_set_close(struct exchange_set *s); /* none is under way; NULL is allowed */
uint32_t exchange_set_count(const struct exchange_set *s);
/* Ends every request with this error, in-band where something was sent. */
void exchange_set_end(struct exchange_set *s, const struct api_error *why);

/* The request of c is complete. Replies now or later. */
void exchange_start(struct exchange_set *s, struct http_conn *c, struct exchange_call *call);
void exchange_gone(struct exchange *x);  /* http_handlers.on_gone */
void exchange_drain(struct exchange *x); /* http_handlers.on_drain */

/* What was asked while no keys are configured is not public once there are: a scope of its own,
 * which no key can have, as none holds a blank. */
#define EXCHANGE_SCOPE_KEYLESS " keyless"
/* Whose cached prefixes a key sees, without a salt; NULL: no keys are configured. Never the public
 * scope, "". */
str exchange_scope(const struct limits_key *key);
/* The same of a scope that may be narrowed by a salt. */
str exchange_scope_root(str scope);
/* "req_" and 22 random letters. */
void exchange_make_id(char out[EXCHANGE_ID_LEN + 1]);

#endif
