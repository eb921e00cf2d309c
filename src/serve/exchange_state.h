/* exchange_state - one request's record, shared by the files of exchange.
 *
 * Owns:      the structs of a request and of the set, what exchange_read and exchange call of each
 *            other.
 * Not:       behaviour: exchange_read takes a request from its body to whoever answers, exchange
 *            from there to the last byte.
 * Thread:    the loop's; while `reading` is set, rq, st and arena are a worker's.
 * Limits:    those of exchange.h.
 */
#ifndef SHOAL_SERVE_EXCHANGE_STATE_H
#define SHOAL_SERVE_EXCHANGE_STATE_H

#include "base/list.h"
#include "serve/contexts.h"
#include "serve/exchange.h"
#include "serve/metrics.h"
#include "serve/quota.h"
#include "serve/replay.h"
#include "serve/workers.h"

struct exchange_set {
    struct exchange_options o;
    struct list all, waiting; /* waiting: for their key or agent, by arrival */
    struct quota *quota;
    struct loop_later retry; /* somebody has left: who waits may go on */
    struct workers *workers;
    uint32_t count;
    uint64_t last_id;
};

/* How far a request has come, as its pings tell it. */
enum exchange_phase {
    EXCHANGE_PHASE_QUEUED,
    EXCHANGE_PHASE_PREFILL,
    EXCHANGE_PHASE_DECODE,
};

struct exchange {
    struct list link, waits;
    struct quota_ticket ticket;
    struct exchange_set *set;
    struct http_conn *conn;
    struct exchange_call *call; /* dies with the connection's request */
    const struct dialect *dialect;
    char id[EXCHANGE_ID_LEN + 1];
    struct arena arena;
    struct dialect_state *st;
    struct api_request rq;
    struct buf out;
    struct loop_timer timer;
    struct metrics_request m; /* what its end is counted by */
    struct api_error why;     /* code NONE: no error so far */
    enum exchange_phase phase;
    uint32_t place, tokens_done, tokens_total;
    str miss;         /* what the child says of its cache, until STARTED; or "" */
    str substituted;  /* Shoal-Substituted, or "" */
    struct api_secret client_key;
    int64_t wrote_ms; /* when the client got something last */
    /* A large body is read elsewhere: until then rq, st and arena are the worker's. */
    struct exchange_reading *reading; /* in arena; NULL: not, or not any more */
    struct buf body;
    int64_t wait_ms;  /* deadlines.max_wait as it was at the start */
    str model;        /* its own name, however it was spelt */
    /* had_miss: its cache was judged; is_counted: its agent is told of its end */
    bool is_submitted, is_held, had_miss, is_counted;
    bool is_parked; /* made way for others in the engine, goes on later */
    struct arena lent;       /* what replay put into rq */
    struct transcript said;  /* the reply, for replay; nothing if it is not kept */
    struct context *forks;   /* stands before its messages; NULL: none */
    struct context *saves;   /* POST, PATCH /v1/contexts: the one; NULL otherwise */
    struct api_request kept; /* saves: rq as it was read, in arena */
    bool is_saved;           /* saves: prefilled */
    int64_t saved_unix_ms;   /* then */
};

/* A large body, from the loop to a worker and back. */
struct exchange_reading {
    struct exchange *x;
    struct dialect_in in;
    struct dialect_limits limits; /* a reload may change the set's meanwhile */
    bool ok;
    struct api_error e;
    bool is_gone, must_end; /* what happened meanwhile; why it must end */
    struct api_error why;
};

/* exchange.c: the end without a further word; with an error, in the dialect's form. */
void exchange_free(struct exchange *x);
void exchange_fail(struct exchange *x, const struct api_error *why);
/* Ends those that were taken out of s->all; one whose body is read goes back there until then. */
void exchange_end_all(struct exchange_set *s, struct list *now, const struct api_error *why);
/* The timer for what is due next. */
void exchange_arm(struct exchange *x);
void exchange_on_batch(void *ctx, const struct api_batch *b);
/* Nobody has to compute anything for it: it is done. */
void exchange_done(struct exchange *x);
/* Sequences that the model runs at once; 1 while nobody knows. */
uint32_t exchange_slots(const struct exchange *x);
/* By the completions of its model, for whoever is told 503; 0: not measured. */
int64_t exchange_retry_ms(const struct exchange *x);

/* exchange_read.c: reads the body, here or on a worker, and submits the request or fails it. */
void exchange_read_body(struct exchange *x, size_t size);
/* ctx is the set: somebody has left, the first that waits and may start does. */
void exchange_read_retry(void *ctx);

#endif
