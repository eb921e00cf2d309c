/* api_request - one request in plain data, whatever protocol it came by.
 *
 * Owns:      the struct between every dialect and everything that can answer, the ranges of its
 *            numbers, its validation and its printing.
 * Not:       JSON layouts and per-dialect defaults (dialect), bytes on the socketpair (api_frame),
 *            routing (route).
 * Invariant: plain data: every pointer views memory of the request's arena, which outlives it and
 *            moves along with it. Nothing here is changed once the request is submitted.
 *            Strings are valid UTF-8 except image bytes. count 0 allows a NULL array.
 *            `given` tells a value that the client sent from a default of its dialect.
 *
 *     bytes --dialect--> api_request --exchange, router--> provider --api_event--> dialect --> ...
 *
 * Thread:    one owner at a time.
 * Limits:    the API_*_MAX below are hard; the configured ones (limits.*) are at most as large and
 *            are checked by the dialect. Numbers: API_NUMBERS.
 */
#ifndef SHOAL_API_API_REQUEST_H
#define SHOAL_API_API_REQUEST_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#define API_MESSAGES_MAX     1000000u
#define API_PARTS_MAX        1000000u /* of all messages */
#define API_INPUTS_MAX       2048u
#define API_TOOLS_MAX        65536u
#define API_STOP_MAX         128u
#define API_STOP_LEN_MAX     4096u /* bytes of one stop string */
#define API_BIAS_MAX         65536u
#define API_NOTES_MAX        16u
#define API_HEADERS_MAX      64u
#define API_N_MAX            128u
#define API_CHOICES_MAX      2048u
#define API_TOP_LOGPROBS_MAX 20u
#define API_NAME_LEN_MAX     4096u /* bytes of model, leg, agent, session, context, owner, scope */

#define API_PAGE_TOKENS      32u /* that an engine keeps together, as BEHAVIOUR counts pages */

#define API_REPEAT_ALL    UINT32_MAX /* repeat_last: the whole of prompt and reply */
#define API_THINK_ENDLESS UINT32_MAX /* think_tokens_max: no budget */

enum api_kind {
    API_KIND_CHAT,     /* messages -> text, reasoning, calls */
    API_KIND_COMPLETE, /* inputs, no template -> text */
    API_KIND_EMBED,    /* inputs -> EMBEDDING */
    API_KIND_COUNT,    /* messages or inputs -> TOKENS with the count only */
    API_KIND_ENCODE,   /* messages or inputs -> TOKENS with ids and text */
    API_KIND_DECODE,   /* inputs with ids -> TOKENS with text */
    API_KIND_PREFILL,  /* messages or inputs, nothing generated; fills the prefix cache */
    API_KIND_LIST, API_KIND_SHOW, API_KIND_PS, API_KIND_LOAD, API_KIND_UNLOAD, /* models_leg */
    API_KIND_COUNT_ /* number of kinds */
};

enum api_role {
    API_ROLE_SYSTEM, API_ROLE_DEVELOPER, API_ROLE_USER, API_ROLE_ASSISTANT, API_ROLE_TOOL,
    API_ROLE_COUNT_
};

enum api_part_kind {
    API_PART_TEXT,
    API_PART_IMAGE,     /* text: the encoded image bytes; media_type "image/png" */
    API_PART_REASONING,
    API_PART_CALL,      /* id, name, name_space; text: the raw JSON arguments */
    API_PART_RESULT,    /* id of the call, name if known; text: what the tool returned */
    API_PART_COUNT_
};

/* One piece of a message. A tool's result may be several parts with the call's id, in order: RESULT
 * for text, IMAGE for an image. */
struct api_part {
    enum api_part_kind kind;
    str text, id, name, name_space, media_type;
    bool is_error; /* RESULT */
    bool is_open;  /* CALL, the last part of an unfinished turn: its arguments go on. Not framed. */
};

struct api_message {
    enum api_role role;
    str name;
    const struct api_part *parts;
    uint32_t parts_count;
    /* A reply exactly as it was sampled (replay: the request's ids_hash; resume: its model_hash).
     * Only used on an equal model_hash; the parts always say the same in text. */
    const int32_t *ids;
    uint32_t ids_count;
};

/* One of both: text, or token ids (ids_count > 0). */
struct api_input {
    str text;
    const int32_t *ids;
    uint32_t ids_count;
};

enum api_tool_kind {
    API_TOOL_FUNCTION,
    API_TOOL_CUSTOM, /* one free text as argument */
    API_TOOL_HOSTED, /* runs at an upstream; elsewhere skipped with a NOTE */
    API_TOOL_COUNT_
};

struct api_tool {
    enum api_tool_kind kind;
    str name_space, name, description;
    str schema; /* FUNCTION: JSON Schema of the arguments, raw; HOSTED: the tool's own JSON */
    bool strict;
    bool allowed; /* true unless the request gave a list of allowed tools without this one */
    str path;     /* where the client wrote the schema, "tools[3].input_schema"; for errors */
};

enum api_tool_choice {
    API_TOOL_CHOICE_AUTO,
    API_TOOL_CHOICE_NONE,     /* declared, so that the prefix stays cached, but never called */
    API_TOOL_CHOICE_REQUIRED, /* some tool among the allowed */
    API_TOOL_CHOICE_NAMED,    /* exactly one tool is allowed: that one */
    API_TOOL_CHOICE_COUNT_
};

enum api_format_kind {
    API_FORMAT_TEXT,
    API_FORMAT_JSON,   /* any JSON object */
    API_FORMAT_SCHEMA, /* text: JSON Schema */
    API_FORMAT_REGEX,  /* text: the pattern, which matches the whole reply */
    API_FORMAT_CHOICE, /* text: JSON array of strings */
    API_FORMAT_COUNT_
};
struct api_format {
    enum api_format_kind kind;
    str text, name; /* name: what the client calls its schema, for upstreams */
    bool strict;
    str path; /* where the client wrote it, "response_format.json_schema.schema"; for errors */
};

enum api_think { API_THINK_DEFAULT, API_THINK_OFF, API_THINK_ON, API_THINK_COUNT_ };
enum api_effort {
    API_EFFORT_DEFAULT, API_EFFORT_NONE, API_EFFORT_MINIMAL, API_EFFORT_LOW, API_EFFORT_MEDIUM,
    API_EFFORT_HIGH, API_EFFORT_XHIGH, API_EFFORT_MAX, API_EFFORT_COUNT_
};
enum api_cache {
    API_CACHE_KEEP,
    API_CACHE_DROP, /* own pages are freed after the reply */
    API_CACHE_OFF,  /* neither read nor written */
    API_CACHE_PIN,  /* PREFILL of a saved context */
    API_CACHE_COUNT_
};
enum api_priority {
    API_PRIORITY_IDLE, API_PRIORITY_LOW, API_PRIORITY_NORMAL, API_PRIORITY_HIGH,
    API_PRIORITY_COUNT_
};
enum api_truncate { API_TRUNCATE_NONE, API_TRUNCATE_ROUNDS, API_TRUNCATE_COUNT_ };

struct api_bias {
    int32_t id;
    float bias; /* -100..100; -100 bans */
};

/* 0 = none. Lives in the endpoint; never framed to a child. */
struct api_deadlines {
    int64_t queue_ms, connect_ms, first_ms, gap_ms, generation_ms, total_ms;
};

struct api_header { str name, value; }; /* name in lower case */
struct api_secret { str text; };

/* What one unfinished choice has already given to the client. The message may end inside a part. */
struct api_partial {
    uint32_t choice;
    uint32_t tokens_used; /* output tokens already counted, also those without ids */
    struct api_message message;
};

/* Continue a reply that another leg, or this one before a crash, began. Partials with ids are only
 * valid where model_hash is the child's own; else the text counts. */
struct api_resume {
    uint64_t model_hash;
    const struct api_partial *partials; /* one per unfinished choice */
    uint32_t partials_count;
};

#define API_WEIGHT_MAX 1000u

struct api_note { str code, text; }; /* code: BEHAVIOUR 5.13 */

/* Every number with a range, once: field of struct api_request, its type, lowest, highest value.
 * A dialect reads through api_request_set, so range and sentence are the same everywhere. */
#define API_NUMBERS(X)                                              \
    X(TEMPERATURE, temperature, F32, 0, 5)                          \
    X(TOP_P, top_p, F32, 0, 1)                                      \
    X(MIN_P, min_p, F32, 0, 1)                                      \
    X(TYPICAL_P, typical_p, F32, 0, 1)                              \
    X(REPEAT_PENALTY, repeat_penalty, F32, 0.01, 10)                \
    X(PRESENCE_PENALTY, presence_penalty, F32, -2, 2)               \
    X(FREQUENCY_PENALTY, frequency_penalty, F32, -2, 2)             \
    X(TOP_K, top_k, U32, 0, 2147483647)                             \
    X(REPEAT_LAST, repeat_last, U32, 0, 4294967295)                 \
    X(TOKENS_MAX, tokens_max, U32, 0, 2147483647)                   \
    X(TOKENS_MIN, tokens_min, U32, 0, 2147483647)                   \
    X(N, n, U32, 1, API_N_MAX)                                      \
    X(LOGPROBS, logprobs, U32, 0, API_TOP_LOGPROBS_MAX + 1)         \
    X(DIMS, dims, U32, 0, 65536)                                    \
    X(THINK_TOKENS_MAX, think_tokens_max, U32, 0, 4294967295)       \
    X(CONTEXT_MAX, context_max, U32, 0, 2147483647)

enum api_field {
#define X(name, field, type, low, high) API_FIELD_##name,
    API_NUMBERS(X)
#undef X
    API_FIELD_SEED, API_FIELD_STOP, API_FIELD_THINK, API_FIELD_EFFORT, API_FIELD_KEEP_ALIVE,
    API_FIELD_PRIORITY, API_FIELD_CACHE, API_FIELD_TRUNCATE, API_FIELD_REPLAY,
    API_FIELD_COUNT_
};
#define API_GIVEN(name) (UINT64_C(1) << API_FIELD_##name) /* API_GIVEN(TOP_P) */

struct api_request {
    enum api_kind kind;
    uint64_t id;    /* set by the exchange; unique in the endpoint's life, never 0 */
    uint64_t given; /* API_GIVEN bits. A field not given holds the dialect's default; the child
                       replaces it by the model's own, if the model has one. */
    str model, leg; /* as asked for; leg "" = any of the route */

    const struct api_message *messages;
    uint32_t messages_count;
    uint64_t ids_hash; /* model_hash of what sampled the messages' ids; 0: no message has ids */
    const struct api_input *inputs; /* COMPLETE: prompts, choice = input * n + i; EMBED: texts */
    uint32_t inputs_count;
    str suffix;     /* COMPLETE: fill in the middle */
    str prediction; /* expected text, a draft for speculation */

    const struct api_tool *tools;
    uint32_t tools_count;
    enum api_tool_choice tool_choice;
    struct api_format format;
    bool parallel_tool_calls;
    bool stream;
    bool echo;          /* COMPLETE: the prompt is part of the reply */
    bool replay;        /* past replies by their ids where known */
    bool parse_special; /* COMPLETE, ENCODE: text of control tokens becomes control tokens */
    bool continue_last; /* the last message is an unfinished assistant turn: go on inside it */
    bool ignore_eos;
    bool keep_stop;     /* the stop string stays in the reply */
    bool add_special;   /* ENCODE: with BOS and EOS as the model adds them */

    float temperature; /* 0: greedy */
    float top_p, min_p, typical_p;                            /* 1, 0, 1 = off */
    float repeat_penalty, presence_penalty, frequency_penalty; /* 1, 0, 0 = off */
    uint32_t top_k;       /* 0 = off */
    uint32_t repeat_last; /* window of repeat_penalty in tokens; API_REPEAT_ALL */
    uint32_t tokens_max;  /* of the reply, reasoning included; 0 = until the context is full */
    uint32_t tokens_min;  /* no end of reply before */
    uint32_t n;           /* choices per input, >= 1 */
    uint32_t logprobs;    /* 0 off, k + 1 = the token's own and the top k */
    uint32_t dims;        /* EMBED: cut to so many and renormalise; 0 = all */
    uint64_t seed;        /* drawn by the endpoint when the client gave none */
    const struct api_bias *bias;
    uint32_t bias_count;
    const str *stop;
    uint32_t stop_count;
    const int32_t *stop_ids;
    uint32_t stop_ids_count;

    enum api_think think;
    enum api_effort effort;
    uint32_t think_tokens_max; /* API_THINK_ENDLESS; 0 = reasoning is closed at once */
    str template_args;         /* JSON object of extra template variables, or "" */

    str agent, session, context;
    str owner, scope; /* of the key. scope: root of the prefix cache, "" = public */
    enum api_cache cache;
    enum api_priority priority;
    uint32_t weight;     /* of its agent among those of its key, by configuration; 0 = 1 */
    uint32_t key_weight; /* of its key among others, likewise */
    enum api_truncate truncate;
    uint32_t context_max; /* prompt + reply of this request; 0 = the model's */
    int64_t time_s;       /* Unix seconds: the clock that templates see */
    int64_t keep_alive_ms; /* negative: never unload */

    const struct api_resume *resume; /* NULL: from the start */
    const struct api_note *notes;    /* become NOTE events */
    uint32_t notes_count;

    /* The rest stays in the endpoint: never framed to a child, logged or printed. */
    struct api_deadlines deadline;
    str dialect, body; /* as received: a remote leg of that dialect patches and forwards it */
    const struct api_header *headers; /* allow-list, e.g. anthropic-beta */
    uint32_t headers_count;
    const struct api_secret *client_key; /* passthrough */
    uint32_t cache_s; /* a cloud's prompt cache is to live so long; 0: unsaid */
    bool hands_back; /* an engine that dies ends it at once: another leg may go on */
};

/* Why an attempt at a leg ended: the classes of BEHAVIOUR 9.4. */
#define API_FAULTS(X)                                                                      \
    X(NONE, "none") X(CONNECT, "connect") X(TLS, "tls") X(HANG_HEADER, "hang_header")      \
    X(HANG_FIRST, "hang_first") X(STALL, "stall") X(CUT, "cut") X(GARBAGE, "garbage")      \
    X(HTTP_5XX, "http_5xx") X(RATE_LIMIT, "rate_limit") X(AUTH, "auth")                    \
    X(REQUEST, "request") X(ENGINE_CRASH, "engine_crash")                                  \
    X(ENGINE_WEDGED, "engine_wedged") X(LOAD_FAILED, "load_failed")                        \
    X(CLIENT_GONE, "client_gone") X(DEADLINE, "deadline")

enum api_fault {
#define X(name, text) API_FAULT_##name,
    API_FAULTS(X)
#undef X
    API_FAULT_COUNT_
};

/* An error with what a client's library wants to know. Begins with a struct err: a function of
 * another folder fills &e->err. */
struct api_error {
    struct err err; /* its code alone says whether another leg may help */
    str code;       /* finer name for the client where one code has several ("no_template"); "" =
                       the dialect's name for err.code */
    str param;      /* JSON path, "messages[2].content", or "" */
    str upstream_text; /* what an upstream said, or "" */
    int64_t retry_after_ms; /* 0 = not known */
    uint16_t upstream_status; /* REQUEST, AUTH by the client's own key: passed on as it is */
    enum api_fault fault;     /* of the leg; NONE: not a leg's */
    bool is_rehearsed; /* of a drill: it says nothing about the leg; not framed */
    uint32_t prompt_tokens, limit; /* ERR_CONTEXT */
};
const char *api_request_fault_name(enum api_fault fault); /* "hang_first" */

/* err.code, code and param at once; code and param are views that must outlive e (literals, or the
 * request's arena). Returns false. */
bool api_error_set(struct api_error *e, enum err_code code, const char *detail, str param,
                   const char *format, ...) BASE_PRINTF(5, 6);

/* A request with neutral values: CHAT, n 1, temperature 1, every filter and penalty off,
 * repeat_last 64, replay and parallel_tool_calls on, NORMAL, KEEP, no think budget. Dialects start
 * here. */
void api_request_init(struct api_request *rq);

/* Sets the number `field` (one of API_NUMBERS), marks it given. False with ERR_REQUEST, param =
 * path and "PATH: number from LOW to HIGH expected, got VALUE" when out of range, not finite, or
 * not an integer where one is needed; rq is unchanged then. path must outlive e. */
BASE_USE_RESULT bool api_request_set(struct api_request *rq, enum api_field field, double value,
                                     str path, struct api_error *e);
static inline bool api_request_is_given(const struct api_request *rq, enum api_field f)
{
    return rq->given >> f & 1u;
}

/* Whether the request makes sense by itself: enums and numbers in range, counts under the limits,
 * text UTF-8, what its kind needs is there (CHAT: messages; NAMED: exactly one allowed tool; ids
 * not negative). Not whether a model can do it. Also run on what came through a frame.
 * False: ERR_REQUEST (or ERR_LIMIT for a count) with param naming the field; param is a literal. */
BASE_USE_RESULT bool api_request_check(const struct api_request *rq, struct api_error *e);

/* Choices of the reply, each with a DONE: CHAT n, COMPLETE inputs * n, else 1. */
uint32_t api_request_choices(const struct api_request *rq);
/* Whether a model here could call one of the tools: hosted ones run elsewhere. */
bool api_request_has_tools(const struct api_request *rq);
/* Does this choice still want a reply? Not, where a resume leaves it out: it had ended before. */
bool api_request_goes_on(const struct api_request *rq, uint32_t choice);
/* Seed of one choice: the request's own for choice 0, derived from (seed, choice) after it. */
uint64_t api_request_seed(const struct api_request *rq, uint32_t choice);

/* One line for logs and `inspect`: kind, id, model, counts and every value that differs from
 * api_request_init. Lengths instead of texts: never content, keys, headers. */
void api_request_print(struct buf *out, const struct api_request *rq);

/* Names as in logs, status and templates: "chat", "assistant", "high". */
const char *api_request_kind_name(enum api_kind kind);
const char *api_request_role_name(enum api_role role);
const char *api_request_effort_name(enum api_effort effort);
/* False if no such name. */
bool api_request_effort_of(str name, enum api_effort *out);
/* Tokens of thinking that an effort stands for where nothing else says it (BEHAVIOUR 6.3);
 * API_THINK_ENDLESS: no budget. */
uint32_t api_request_effort_tokens(enum api_effort effort);

#endif
