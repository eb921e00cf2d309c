/* metrics - what was asked and answered, in numbers: the one place that counts, for every route.
 *
 * Owns:      counters and histograms (BEHAVIOUR 5.12), how many requests are open per model, the
 *            measured rate of completions, the log line of each request.
 * Not:       what a child measures itself (api_health, api_beat), who may read it (path_table).
 * Invariant: metrics_begin and metrics_end pair up; a request counts in exactly one outcome.
 *            Nothing grows with what clients send: a name nobody has answered for leaves no series.
 * Thread:    the loop's.
 * Limits:    METRICS_MODELS_MAX series of models, agents_max of agents, METRICS_CODES_MAX of
 *            warning codes, then "other".
 */
#ifndef SHOAL_SERVE_METRICS_H
#define SHOAL_SERVE_METRICS_H

#include "api/api_provider.h"

#define METRICS_MODELS_MAX 64
#define METRICS_CODES_MAX 32
#define METRICS_MISSES_MAX 10 /* reasons; BEHAVIOUR 5.10 has nine */

enum metrics_outcome {
    METRICS_OUTCOME_CANCELLED, /* zeroed: the client went away before anything was known */
    METRICS_OUTCOME_OK,
    METRICS_OUTCOME_REFUSED,  /* 429, 503, 529 */
    METRICS_OUTCOME_REJECTED, /* other 4xx */
    METRICS_OUTCOME_FAILED,   /* 5xx, or an error in-band */
    METRICS_OUTCOME_COUNT_
};

struct metrics;
struct metrics_asked;
struct metrics_model;

/* One request's numbers, in its exchange. */
struct metrics_request {
    str id;
    const char *dialect;
    int64_t arrived_ms, started_ms, token_ms; /* loop_ms */
    uint16_t status;
    enum metrics_outcome outcome;
    enum err_code error;
    enum api_done finish;
    uint32_t prompt_tokens, cached_tokens, output_tokens;
    struct api_usage usage;
    bool is_started;
    str agent, leg; /* leg: that answers, or "" */
    enum api_priority priority;
    struct metrics_asked *open;   /* by the model it asks for */
    struct metrics_model *model; /* by the model that answers */
};

/* agents_max: agents with a series of their own. */
BASE_USE_RESULT bool metrics_open(struct metrics **out, uint32_t agents_max, struct err *e);
void metrics_set_agents(struct metrics *m, uint32_t agents_max); /* those that have one keep it */
uint32_t metrics_agents(const struct metrics *m); /* series, that of the others too */
void metrics_close(struct metrics *m); /* NULL is allowed */

/* now: loop_ms. model: the model's own name, under which it is counted as open. */
void metrics_begin(struct metrics *m, struct metrics_request *r, const struct api_request *rq,
                   str model);
void metrics_started(struct metrics *m, struct metrics_request *r, const struct api_started *s,
                     int64_t now);
/* What a reply came to, over all legs. An upstream gives no ids: what it counted is counted here,
 * at the end, beside the ids of an engine that began or ended it. */
void metrics_usage(struct metrics_request *r, const struct api_usage *u, int64_t now);
/* Its prompt was read again for no need (BEHAVIOUR 5.10). After metrics_started. */
void metrics_miss(struct metrics *m, const struct metrics_request *r, str reason);
/* Sampled tokens. */
void metrics_tokens(struct metrics_request *r, uint32_t count, int64_t now);
/* A warning (BEHAVIOUR 5.13) that a reply carried; a history that was trimmed. */
void metrics_warning(struct metrics *m, str code);
void metrics_truncated(struct metrics *m);
/* Counts and logs; also for a request that never began. */
void metrics_end(struct metrics *m, struct metrics_request *r, int64_t now);
/* A request that was refused before it was one: 401, 404, ... */
void metrics_refused(struct metrics *m, const char *dialect, int status);

enum metrics_outcome metrics_outcome_of_status(int status);

/* Requests under way that ask for that model, by its own name. */
uint32_t metrics_open_of(const struct metrics *m, str name);
/* After so long a place among `waiting` requests of the model is free, as its completions went
 * lately; 0: not measured yet. */
int64_t metrics_retry_ms(const struct metrics *m, str model, uint32_t waiting);

/* Prometheus text 0.0.4 of what is counted here. */
void metrics_write(const struct metrics *m, struct buf *out);

#endif
