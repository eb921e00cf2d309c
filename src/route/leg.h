/* leg - one model on one provider, with all that is known of it.
 *
 * Owns:      the record; what a request needs and whether a leg has it.
 * Not:       where legs come from (serve/legs), which one is picked (router).
 * Invariant: plain data over views that outlive it. breaker and health are changed by serve/legs
 *            only, inflight by the attempts that run.
 * Thread:    the loop's.
 */
#ifndef SHOAL_ROUTE_LEG_H
#define SHOAL_ROUTE_LEG_H

#include "route/breaker.h"

enum leg_kind { LEG_KIND_ENGINE, LEG_KIND_UPSTREAM };

/* How a leg goes on inside a reply that another one began: BEHAVIOUR 9.1 `continue`. */
#define LEG_CONTINUES(X)                                                                   \
    X(NONE, "none") X(PREFILL, "prefill") X(FINAL_MESSAGE, "final_message")                \
    X(SHOAL, "shoal") X(ENGINE, "engine")
enum leg_continue {
#define X(name, text) LEG_CONTINUE_##name,
    LEG_CONTINUES(X)
#undef X
    LEG_CONTINUE_COUNT_
};
const char *leg_continue_name(enum leg_continue c);
/* Words of a configuration: not "engine". */
bool leg_continue_parse(str name, enum leg_continue *out);

struct leg {
    str name;                 /* "claude", "local:Qwen3" */
    enum leg_kind kind;
    str dialect;              /* UPSTREAM: "anthropic" ...; "" of an engine leg */
    struct api_provider provider;
    struct api_model model;   /* name it is asked for; context_max 0: unchecked; caps */
    enum leg_continue goes_on;
    bool cannot_continue;     /* seen to refuse: no longer asked to go on */
    bool has_wide_pieces;     /* a piece of its stream is several tokens, or a part of one */
    bool is_passthrough;      /* auth: a client's credentials go on, and fit one dialect */
    uint32_t output_max;      /* tokens; 0: unchecked */
    uint32_t inflight, inflight_max;
    str vectors;              /* embeddings fail over between equal ids only; "" = none */
    struct api_deadlines deadline; /* configured; first_ms DEADLINE_AUTO */
    struct breaker_options breaking;
    struct breaker breaker;
    struct health health;
    enum api_health_state state; /* ENGINE: as its provider tells */
};

/* What a request asks of a leg. */
struct leg_needs {
    enum api_kind kind;
    uint32_t caps;           /* API_CAP bits */
    uint32_t prompt_tokens;  /* counted or estimated */
    bool must_continue;      /* text was already sent */
    bool in_reasoning;       /* ... and it ends inside reasoning or a call's arguments */
    bool in_call;
    uint64_t model_hash;     /* ids of the reply are known for this model; 0: not */
    str dialect;             /* the client's */
    str vectors;             /* EMBED, second attempt: of the first leg */
    bool is_pin;             /* a prefix to be pinned: nobody else's cache is ours */
    bool has_own_key;        /* the client sent credentials that may be passed through */
};
struct leg_needs leg_needs_of(const struct api_request *rq, uint32_t prompt_tokens);
/* Prompt tokens of a request by its bytes / 3 (BEHAVIOUR 9.2), saturating. */
uint32_t leg_estimate_tokens(const struct api_request *rq);

/* What a leg lacks: "context", "tools", ... as in Shoal-Substituted, or NULL: nothing. */
const char *leg_lacks(const struct leg *l, const struct leg_needs *n);

#endif
