/* api_event - what answers a request, in plain data.
 *
 * Owns:      event kinds, batches, reasons of the end, usage, rows about models; their printing and
 *            the check of a whole stream's order (struct api_order).
 * Not:       the wire form of any protocol (dialect), bytes on the socketpair (api_frame).
 * Invariant: events come in batches, and a batch is applied whole or not at all, so text and ids
 *            agree after any crash. Per choice, in order:
 *
 *     QUEUED PROGRESS* NOTE*   before the first token (choice 0 stands for the whole request)
 *     STARTED                  once per request, in the batch of the first token
 *     REASONING CONTENT CALL_BEGIN CALL_ARGS CALL_END   in any number, CALL_* by index
 *     DONE                     once per choice; the last one is preceded by USAGE
 *     ERROR                    once per request, instead of what is still missing
 *     PARKED                   at any time: it made way for others, or goes on; so does any other
 *
 *            PREFILL yields only USAGE and DONE; EMBED, COUNT, ENCODE, DECODE their answer before
 *            these two; from LIST on MODELS, then DONE.
 * Thread:    plain data; views are valid until on_batch returns.
 * Limits:    a batch that goes through a frame is at most API_FRAME_BATCH_MAX bytes.
 */
#ifndef SHOAL_API_API_EVENT_H
#define SHOAL_API_API_EVENT_H

#include "api/api_request.h"

#define API_EVENTS(X)                                                                     \
    X(QUEUED, "queued") X(PROGRESS, "progress") X(STARTED, "started") X(NOTE, "note")     \
    X(REASONING, "reasoning") X(CONTENT, "content") X(CALL_BEGIN, "call_begin")           \
    X(CALL_ARGS, "call_args") X(CALL_END, "call_end") X(EMBEDDING, "embedding")           \
    X(TOKENS, "tokens") X(MODELS, "models") X(USAGE, "usage") X(DONE, "done")             \
    X(ERROR, "error") X(PARKED, "parked")

enum api_event_kind {
#define X(name, text) API_EVENT_##name,
    API_EVENTS(X)
#undef X
    API_EVENT_COUNT_
};

/* The names are BEHAVIOUR 5.3's `finish`. */
#define API_DONES(X)                                                                      \
    X(EOS, "eos") X(STOP_STRING, "stop_string") X(SCHEMA_END, "schema_end")               \
    X(CALLS, "tool_calls") X(TOOL_LIMIT, "tool_limit") X(MAX_TOKENS, "max_tokens")        \
    X(MAX_GEN, "max_gen") X(CONTEXT_FULL, "context_full") X(DEADLINE, "deadline")         \
    X(LOOP, "loop") X(REFUSAL, "refusal") X(CANCELLED, "cancelled")

enum api_done {
#define X(name, text) API_DONE_##name,
    API_DONES(X)
#undef X
    API_DONE_COUNT_
};

struct api_queued {
    uint32_t place;               /* requests before this one; 0 = next */
    uint64_t tokens_ahead;        /* of prompts under way, that are computed before it for sure */
    uint32_t prompt_tokens, cached_tokens;
    uint32_t cut_messages, cut_tokens, kept_tokens, first_kept; /* truncate: rounds */
};

struct api_progress {
    uint32_t tokens_done, tokens_total; /* of the prompt */
    float tokens_per_s;                 /* 0 = not known yet */
};

struct api_parked {
    bool on; /* a choice waits for room to go on; false: none does any more */
};

struct api_started {
    str leg, model; /* filled by the provider's owner where the child does not know */
    uint64_t model_hash;
    uint32_t prompt_tokens, cached_tokens;
    int child; /* process that answers; 0: an upstream. Filled by engine_leg, never framed */
};

/* Raw distribution, before bias, mask, penalties, temperature. */
struct api_top {
    int32_t id;
    float logprob;
    str bytes; /* of the token; any bytes */
};
struct api_logprob {
    struct api_top token;
    const struct api_top *top; /* falls by logprob, then rises by id */
    uint32_t top_count;
};

struct api_text {
    str text; /* valid UTF-8, never half a character */
    const struct api_logprob *logprobs; /* of the tokens whose text this is; joined bytes = text */
    uint32_t logprobs_count;
};

struct api_call {
    uint32_t index; /* 0, 1, ... in a choice */
    enum api_tool_kind tool_kind; /* CALL_BEGIN: these four */
    str id, name, name_space;
    str args; /* CALL_ARGS: a piece of the JSON arguments (CUSTOM: of the text) */
};

struct api_embedding {
    uint32_t index; /* of the input */
    const float *floats;
    uint32_t floats_count;
    bool is_truncated;
};

struct api_tokens {
    uint32_t index; /* of the input */
    uint32_t tokens_count;
    const int32_t *ids; /* ENCODE: tokens_count of them; else NULL */
    str text;           /* DECODE: the text; ENCODE: "" */
    const str *pieces;  /* ENCODE: bytes of each token, or NULL */
};

/* What the whole pages of a prompt are called in tree and tier; pages 0: they are not kept. */
#define API_PREFIX_KEY_SIZE 32u
struct api_prefix {
    uint8_t key[API_PREFIX_KEY_SIZE];
    uint32_t pages;
    uint64_t bytes; /* of all the pages that a request behind it reads */
};
/* Near to far. */
enum api_place { API_PLACE_DEVICE, API_PLACE_RAM, API_PLACE_SSD, API_PLACE_NOWHERE,
                 API_PLACE_COUNT_ };

struct api_usage {
    uint32_t prompt_tokens, cached_tokens, cache_write_tokens;
    uint32_t output_tokens, reasoning_tokens; /* output counts reasoning too; sum of the choices */
    uint32_t draft_accepted_tokens, draft_rejected_tokens;
    uint32_t preemptions; /* how often a choice made way and went on later */
    uint64_t load_ns, queue_ns, prefill_ns, decode_ns;
    struct api_prefix prefix; /* of a PREFILL */
};

struct api_finish {
    enum api_done reason;
    str stop; /* STOP_STRING: which */
};

/* What a model can do. */
enum api_cap {
    API_CAP_TOOLS = 1 << 0,
    API_CAP_VISION = 1 << 1,
    API_CAP_SCHEMA = 1 << 2,
    API_CAP_THINK = 1 << 3,
    API_CAP_LOGPROBS = 1 << 4,
    API_CAP_EMBED = 1 << 5,
    API_CAP_INSERT = 1 << 6,          /* fill in the middle */
    API_CAP_N = 1 << 7,
    API_CAP_CONTINUE_TEXT = 1 << 8,   /* goes on inside a partial reply given as text */
    API_CAP_CONTINUE_TOKENS = 1 << 9, /* ... given as ids of an equal model_hash */
    API_CAP_CHAT = 1 << 10,           /* has a template */
    API_CAP_ALL_ = (1 << 11) - 1
};

enum api_model_state {
    API_MODEL_IDLE, API_MODEL_LOADING, API_MODEL_LOADED, API_MODEL_RESTARTING, API_MODEL_FAILED,
    API_MODEL_STATE_COUNT_
};

/* The first four are known of every leg; the rest where a MODELS event wants them, else 0 or "". */
struct api_model {
    str name;
    uint32_t context_max;
    uint32_t caps; /* API_CAP bits */
    uint64_t model_hash; /* weights, template, numerics id; 0 = not known */
    str digest;      /* sha256 of the file, hex */
    uint64_t bytes;  /* on disk */
    str type;        /* "chat", "embedding" */
    str chat_template;
    enum api_model_state state;
    int64_t expires_s; /* Unix; 0 = not loaded, negative = never */
    str family;        /* "llama" */
    uint64_t parameters;
    str quant;         /* "Q4_K_M" */
    int64_t modified_s;
    str license;
    str info;          /* JSON object of the file's metadata */
    uint64_t device_bytes; /* weights, pages and scratch, wherever they lie */
    uint64_t gpu_bytes;    /* of them on GPUs; 0 on the CPU */
    uint32_t slots, kv_tokens; /* sequences at once; tokens the KV pool holds */
};

struct api_models {
    const struct api_model *rows;
    uint32_t rows_count;
};

struct api_event {
    enum api_event_kind kind;
    union {
        struct api_queued queued;
        struct api_progress progress;
        struct api_started started;
        struct api_parked parked;
        struct api_note note;
        struct api_text text; /* REASONING, CONTENT */
        struct api_call call; /* CALL_* */
        struct api_embedding embedding;
        struct api_tokens tokens;
        struct api_models models;
        struct api_usage usage;
        struct api_finish done;
        struct api_error error;
    };
    str raw; /* a remote leg's event as it came, for its own dialect; "" from a child */
    uint32_t raw_at; /* where text stands in raw as it is; 0: nowhere, or escaped */
};

/* ids sampled in one step, also those still held back, and what they made visible. */
struct api_batch {
    uint64_t request_id;
    uint32_t choice;
    const int32_t *ids;
    uint32_t ids_count;
    const struct api_event *events;
    uint32_t events_count;
};

struct api_sink {
    void (*on_batch)(void *ctx, const struct api_batch *b);
    void *ctx;
};

/* The order of the head comment, checked batch by batch: tests, the simulator and the endpoint (for
 * what a child says) use it. */
struct api_order {
    enum api_kind kind;
    uint32_t choices, choices_done;
    bool is_started, has_usage, is_over;
    uint8_t done[API_CHOICES_MAX / 8]; /* a bit per choice */
};
void api_order_init(struct api_order *o, const struct api_request *rq);
/* False: ERR_ENGINE naming the event that came out of order; o is then of no further use. */
BASE_USE_RESULT bool api_order_add(struct api_order *o, const struct api_batch *b, struct err *e);

/* What a batch counts against its request's credit: its text, arguments and a little per event, so
 * that child and endpoint reckon alike without looking at frames. */
size_t api_batch_weight(const struct api_batch *b);

/* One line without content: kind, lengths, numbers. */
void api_event_print(struct buf *out, const struct api_event *ev);
const char *api_event_name(enum api_event_kind kind);
const char *api_event_done_name(enum api_done reason);
/* "tools,schema,think" */
void api_event_print_caps(struct buf *out, uint32_t caps);

#endif
