/* health - how a leg did: what each attempt's end means, windows of outcomes, first-token times.
 *
 * Owns:      the classes of BEHAVIOUR 9.4 (one X-macro: points, whether another leg may help), the
 *            class of an error, outcomes of the last attempts, samples of first tokens by prompt
 *            size and effort, when the free endpoint is asked.
 * Not:       what follows from it: whether a leg may be asked (breaker), what is late (deadline).
 * Invariant: no I/O, no clock: time is an argument. An attempt is classified once, at its end. What
 *            a client does (leaving, a wrong request) never counts against a leg.
 *
 *     attempt's end --health_class_of--> class --health_add--> window, counters, last error
 *     first token   --health_add_first--> samples --> p50, p95 --> deadline
 *
 * Thread:    the loop's; plain data.
 * Limits:    HEALTH_OUTCOMES outcomes, HEALTH_SAMPLES samples a bucket: older ones are forgotten.
 */
#ifndef SHOAL_ROUTE_HEALTH_H
#define SHOAL_ROUTE_HEALTH_H

#include "api/api_provider.h"

/* name, text, points, whether another leg may help. BEHAVIOUR 9.4; BUSY, CONTEXT and CAPABILITY are
 * what a local leg says of itself. */
#define HEALTH_CLASSES(X)                                                                  \
    X(OK, "ok", 0, false)                                                                  \
    X(CONNECT, "connect", 2, true)          X(TLS, "tls", 2, true)                         \
    X(HANG_HEADER, "hang_header", 3, true)  X(HANG_FIRST, "hang_first", 3, true)           \
    X(STALL, "stall", 3, true)              X(CUT, "cut", 1, true)                         \
    X(GARBAGE, "garbage", 1, true)          X(HTTP_5XX, "http_5xx", 1, true)               \
    X(RATE_LIMIT, "rate_limit", 0, true)    X(AUTH, "auth", 0, false)                      \
    X(REQUEST, "request", 0, false)         X(ENGINE_CRASH, "engine_crash", 0, true)       \
    X(ENGINE_WEDGED, "engine_wedged", 0, true)                                             \
    X(LOAD_FAILED, "load_failed", 0, true)  X(BUSY, "busy", 0, true)                       \
    X(CONTEXT, "incapable:context", 0, true)                                               \
    X(CAPABILITY, "incapable:feature", 0, true)                                            \
    X(CONTINUE, "incapable:continue", 0, true)                                             \
    X(CLIENT_GONE, "client_gone", 0, false) X(DEADLINE, "deadline", 0, false)

enum health_class {
#define X(name, text, points, fails_over) HEALTH_CLASS_##name,
    HEALTH_CLASSES(X)
#undef X
    HEALTH_CLASS_COUNT_
};
const char *health_class_name(enum health_class c);
/* False: no such class. */
bool health_class_parse(str name, enum health_class *out);
uint32_t health_class_points(enum health_class c);
bool health_class_fails_over(enum health_class c);
/* The class of a provider's ERROR, or of its refusal to take a request: by code, finer code and the
 * upstream's status alone. */
enum health_class health_class_of(const struct api_error *e);

#define HEALTH_OUTCOMES 128u
#define HEALTH_SAMPLES  64u
#define HEALTH_SIZES    5u /* prompts below 1k, 4k, 16k, 64k tokens, longer ones */
#define HEALTH_EFFORTS  4u /* none, low, medium, high and more */
#define HEALTH_TEXT_MAX 160

struct health_samples {
    uint32_t ms[HEALTH_SAMPLES];
    uint32_t count; /* ever; the last HEALTH_SAMPLES are kept */
};
struct health_outcome {
    int64_t at_ms;
    bool is_failure;
};
struct health {
    struct health_outcome outcomes[HEALTH_OUTCOMES];
    uint32_t outcomes_count; /* ever */
    uint64_t counts[HEALTH_CLASS_COUNT_];
    struct health_samples first[HEALTH_SIZES * HEALTH_EFFORTS], recent;
    int64_t ok_ms, error_ms; /* the last one; 0: none yet */
    enum health_class error;
    char error_text[HEALTH_TEXT_MAX];
    bool is_misconfigured;   /* the last answer was 401 or 403 */
    bool shows_thinking;     /* streams reasoning, or pings with progress: no silent thinker */
    int64_t used_ms, probed_ms; /* last attempt, last question to the free endpoint; 0: none */
};

/* An attempt is over. text: one sentence, cut; "" for OK. */
void health_add(struct health *h, enum health_class c, str text, int64_t now_ms);

struct health_window { uint32_t requests, failures; };
/* Attempts of the last window_ms that say something about the leg; failures have points. */
struct health_window health_window_of(const struct health *h, int64_t window_ms, int64_t now_ms);

/* Bucket of a prompt size and effort: 0 .. HEALTH_SIZES * HEALTH_EFFORTS - 1. */
uint32_t health_bucket(uint32_t prompt_tokens, enum api_effort effort);
void health_add_first(struct health *h, uint32_t bucket, int64_t ms);
/* The sample below which `percent` of the kept ones lie; 0: none. */
int64_t health_quantile(const struct health_samples *s, uint32_t percent);

struct health_probing {
    bool is_on, is_closed; /* probes.free; the breaker is closed */
};
/* When the free endpoint is asked next (BEHAVIOUR 9.3): every 30 s while not closed, every 60 s
 * while idle; INT64_MAX: never. */
int64_t health_probe_ms(const struct health *h, const struct health_probing *p);

#endif
