/* load - the same conversations for several servers, and how each one bore them; `shoal bench
 * -against` and bench/serve.
 *
 * Owns:      the texts (seeded words), one streamed request and what it showed, the scenarios,
 *            rounds, counting.
 * Not:       HTTP (http_client), framing (sse), flags (cmd_bench), servers: they run already.
 * Invariant: in a round every target gets the same bytes at the same moments after its start; the
 *            next round has other texts, so that no target answers from the round before, and the
 *            other order of targets. Tokens are what the target says it counted, never guessed.
 *            First token: from the start of the call to the first event that carries text.
 * Thread:    main, with a loop of its own.
 * Limits:    LOAD_TARGETS_MAX, LOAD_AGENTS_MAX, LOAD_ROUNDS_MAX, LOAD_SAMPLES_MAX events;
 *            LOAD_CALL_MS for a call.
 */
#ifndef SHOAL_CLI_LOAD_H
#define SHOAL_CLI_LOAD_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/chrono.h"
#include "base/err.h"
#include "base/json.h"
#include "wire/http_client.h"
#include "wire/loop.h"
#include "wire/sse.h"

#define LOAD_TARGETS_MAX 8
#define LOAD_AGENTS_MAX 4096
#define LOAD_ROUNDS_MAX 100
#define LOAD_TURNS_MAX 4
#define LOAD_KINDS_MAX 16
#define LOAD_KIND_SIZE 24
#define LOAD_SAMPLES_MAX (1u << 24)
#define LOAD_CALL_MS 600000
#define LOAD_TEXT_MAX ((size_t)16 << 20)

/* --- one request (load_call.c, load_dialect.c) --- */

struct load_turn {
    str user, reply; /* reply is empty in the last one */
};

struct load_body {
    str model, system; /* system may be empty */
    const struct load_turn *turns;
    uint32_t turns_count, out; /* tokens of the reply */
    uint32_t context; /* tokens that prompt and reply need, for servers that must be told */
    bool wants_json;
};

struct load_call;
struct load_dialect {
    const char *name, *path, *models_path;
    const char *const *headers;
    enum sse_form form;
    void (*put)(struct buf *out, const struct load_body *b);
    /* One event of the stream: text, counts, the end, or an error. */
    void (*read)(struct load_call *call, str name, struct json event);
    /* Name of the first model in the answer of models_path; empty: none. */
    str (*model)(struct json answer, struct arena *a);
};
const struct load_dialect *load_dialect_find(str name); /* NULL: none of that name */
bool load_dialect_has_json(const struct load_dialect *d); /* a schema can be asked for */

/* One streamed request: zeroed before load_call_start, load_call_deinit after its end. */
struct load_call {
    const struct load_dialect *dialect;
    str key; /* sent as a bearer; empty: none */
    struct http_call *call;
    struct sse sse;
    struct buf text; /* of the reply, or (status not 200) its body */
    struct arena arena; /* of one event */
    int status;
    int64_t start_ns, first_ns, last_ns, end_ns; /* first_ns 0: no text came */
    uint32_t events;
    bool has_usage, has_cached, is_done;
    uint64_t prompt_tokens, cached_tokens, output_tokens; /* as the server counted */
    char kind[LOAD_KIND_SIZE]; /* "", or what went wrong: "http 503", "connect", "broken" */
    char why[ERR_TEXT_MAX];
    /* Gap between two events with text; NULL: nobody asks. */
    void (*on_gap)(void *ctx, double ms);
    void (*on_end)(void *ctx, struct load_call *call);
    void *ctx;
};
/* url: of the server, without path. */
bool load_call_start(struct load_call *call, struct http_client *client, str url,
                     const struct load_body *body, struct err *e) BASE_USE_RESULT;
void load_call_cancel(struct load_call *call); /* no on_end; nothing if it has ended */
void load_call_deinit(struct load_call *call);
#define LOAD_HEADERS_MAX 4
/* A dialect's headers and the key's; line holds the latter. */
void load_call_headers(const struct load_dialect *d, str key, struct buf *line,
                       const char *out[LOAD_HEADERS_MAX + 1]);
/* For load_dialect. */
void load_call_fail(struct load_call *call, const char *kind, str why);
void load_call_add_text(struct load_call *call, str text);

/* Words that most tokenizers know as one token each. */
void load_call_add_words(struct buf *out, struct chrono_rng *rng, uint32_t words);

/* --- scenarios (load_run.c) --- */

#define LOAD_SCENARIOS(X)                                                       \
    X(TOGETHER, "together")   /* all at once, each with a prompt of its own */  \
    X(RANDOM, "random")       /* random moments and lengths */                  \
    X(RETURNING, "returning") /* together; when all are done, all come back */  \
    X(FORKED, "forked")       /* one long prefix, then each its own question */ \
    X(TURNS, "turns")         /* conversations, each at its own pace */         \
    X(JSON, "json")           /* together, with a schema */
enum load_scenario {
#define X(name, text) LOAD_SCENARIO_##name,
    LOAD_SCENARIOS(X)
#undef X
    LOAD_SCENARIO_COUNT,
};
const char *load_run_scenario_name(enum load_scenario s);

struct load_samples {
    float *items;
    uint32_t count, size;
};

struct load_target {
    str url, model, key;
    struct load_samples first, again, gaps; /* ms; again: first tokens of turns after the first */
    double wall_s[LOAD_ROUNDS_MAX], last_start_s[LOAD_ROUNDS_MAX];
    double tokens_s[LOAD_ROUNDS_MAX], turns_min[LOAD_ROUNDS_MAX];
    uint64_t requests, failed, valid_json;
    uint64_t prompt_tokens, cached_tokens, output_tokens, events;
    bool has_usage, has_cached;
    struct {
        char name[LOAD_KIND_SIZE];
        uint64_t count;
    } kinds[LOAD_KINDS_MAX];
    uint32_t kinds_count;
    char why[ERR_TEXT_MAX]; /* of the first failure */
};

struct load_options {
    enum load_scenario scenario;
    const struct load_dialect *dialect;
    uint32_t agents, prompt_tokens, out, rounds;
    uint64_t seed; /* of all texts: one that no target has seen, or it answers from its cache */
};

struct load {
    struct load_options options;
    struct load_target targets[LOAD_TARGETS_MAX];
    uint32_t targets_count;
    double tokens_per_word; /* measured at the first target */
    double prompt_extra;    /* tokens of a prompt without words */
};

/* Finds models, measures the length of a word, runs all rounds; progress on stderr. ERR_CONNECT,
 * ERR_UPSTREAM: a target gave no first answer; ERR_CANCELLED: interrupted. Failures of later
 * requests are counted, not errors. Targets have url, and model or an empty one: it is then found
 * and lives in arena. */
bool load_run_all(struct load *l, struct arena *arena, struct err *e) BASE_USE_RESULT;
void load_run_deinit(struct load *l);
/* Share of the sorted samples: 0.5, 0.95; sorts. NAN without samples. */
double load_run_quantile(struct load_samples *s, double share);
/* The middle of rounds values. */
double load_run_median(const double *values, uint32_t count);

void load_print_text(struct buf *out, struct load *l);
void load_print_json(struct buf *out, struct load *l);

#endif
