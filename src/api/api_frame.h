/* api_frame - what the endpoint and an engine child say to each other, as bytes.
 *
 * Owns:      the frame header, the codec of every message (one field list for both directions),
 *            cutting long messages into MORE frames and joining them again.
 * Not:       the descriptor (wire/pipe, engine/engine_host), what a message means.
 * Invariant: both ends are one binary, little endian; HELLO carries the build id. The form is
 *            canonical: what decodes encodes to the same bytes. An unknown kind, a bad length, a
 *            wrong direction, a number out of range, a trailing byte: the reader fails for good.
 *
 *     {u32 size, u8 kind, u8 zero[3], u64 request_id}  payload[size]
 *     a long kind (LONG in API_FRAMES):
 *         {kind, u32 total | first piece} {MORE | piece} {MORE | piece} ...
 *     every piece but the last fills its frame; short kinds may stand between two pieces. An empty
 *     MORE takes the message back: the reader forgets it (api_frame_writer).
 *
 *            Never framed: what stays in the endpoint (deadline, dialect, body, headers,
 *            client_key), raw forms and what an upstream said.
 * Thread:    a reader belongs to its owner; a message and its arena move on together.
 * Limits:    API_FRAME_SIZE_MAX bytes a frame; message_max of the reader; a message decodes within
 *            6 times its size + 1 MiB.
 */
#ifndef SHOAL_API_API_FRAME_H
#define SHOAL_API_API_FRAME_H

#include "api/api_event.h"

#define API_FRAME_HEADER_SIZE 16u
#define API_FRAME_SIZE_MAX 65536u /* with the header */
#define API_FRAME_PIECE_MAX (API_FRAME_SIZE_MAX - API_FRAME_HEADER_SIZE)
#define API_FRAME_BATCH_MAX (32u << 20) /* of what a child sends; embeddings are the largest */
#define API_FRAME_SHORT_MAX 512u        /* payload of a short kind */

/* name, directions: C to the child, E to the endpoint, CE both; LONG or SHORT */
#define API_FRAMES(X)                                                                     \
    X(DESCRIBE, C, LONG) X(LOAD, C, LONG) X(DRAIN, C, SHORT) X(EXIT, C, SHORT)           \
    X(SUBMIT, C, LONG) X(CANCEL, C, SHORT) X(CREDIT, C, SHORT) X(HOLD, C, SHORT)          \
    X(UNPIN, C, LONG) X(STATS, CE, LONG) X(MORE, CE, SHORT)                              \
    X(HELLO, E, SHORT) X(DESCRIBED, E, LONG) X(LOADING, E, SHORT) X(LOADED, E, LONG)      \
    X(BATCH, E, LONG) X(BEAT, E, SHORT) X(FAULT, E, SHORT)                               \
    X(DROP, C, LONG) X(DROPPED, E, SHORT) X(LOOK, C, LONG) X(LOOKED, E, LONG)

enum api_frame_kind {
    API_FRAME_NONE_, /* 0 is no kind */
#define X(name, direction, length) API_FRAME_##name,
    API_FRAMES(X)
#undef X
    API_FRAME_COUNT_
};

enum api_frame_side { API_FRAME_TO_CHILD = 1, API_FRAME_TO_ENDPOINT = 2 };

enum api_kv { API_KV_F16, API_KV_INT8, API_KV_COUNT_ };
enum api_activations {
    API_ACTIVATIONS_AUTO, API_ACTIVATIONS_FLOAT, API_ACTIVATIONS_INT8, API_ACTIVATIONS_INT16,
    API_ACTIVATIONS_COUNT_
};

/* What binds the calls that a model makes by itself; those that tool_choice asks for are bound. */
enum api_tool_grammar {
    API_TOOL_GRAMMAR_LAZY,   /* from the opener on, by the schemas as far as supported */
    API_TOOL_GRAMMAR_STRICT, /* the same, and every tool is strict */
    API_TOOL_GRAMMAR_OFF,    /* nothing, unless one of the tools is strict */
    API_TOOL_GRAMMAR_COUNT_
};

/* 0 or "" = decide at load. */
struct api_load {
    str path, name;        /* the file; the name it is served under */
    uint64_t memory_bytes; /* budget of everything: weights, pool, scratch; 0 = what is free */
    uint32_t context;      /* tokens of one conversation */
    uint32_t slots;        /* sequences at once */
    uint32_t batch;        /* rows of a step */
    uint32_t threads;
    uint32_t step_target_ms;
    uint32_t loop_tokens;  /* runaway guard; 0 = off */
    uint32_t miss_excerpt; /* bytes of text in the record of a missed prefix */
    enum api_kv kv;
    enum api_activations activations;
    str backend;           /* "cpu", "cuda"; "": the best that runs here */
    uint32_t layers;       /* of the model on the GPU, at least; 0 = all */
    str level;             /* ISA level, at most: "avx2" */
    str chat_template;     /* replaces the model's own; without '{': the name of a built-in one */
    str tool_format;       /* how it writes calls; "": found out */
    enum api_tool_grammar tool_grammar;
    bool no_prefix;        /* no prefix reuse */
    uint32_t pin_permille; /* of the pool, at most, is pinned */
    str spill;             /* directory of the SSD tier; "": none */
    uint64_t spill_bytes, spill_floor; /* most that it takes; least that stays free beside it */
    uint64_t ram_bytes;    /* of the host tier; 0: auto */
    uint32_t idle_permille; /* of the time for requests of class idle; 0: none are taken */
};

struct api_hello { str build_id, version; uint32_t pid; };
struct api_loading { uint64_t bytes_done, bytes_total; };
struct api_credit { uint32_t bytes; };
struct api_hold { bool on; };

/* Cached pages that go: of an agent, of a session, both, or all; "" = any. What somebody else used
 * too, what is pinned and what a running request holds stays. */
enum api_drop_from { API_DROP_DEVICE = 1, API_DROP_RAM = 2, API_DROP_SSD = 4, API_DROP_ALL = 7 };
struct api_drop {
    str agent, session, scope; /* scope: counts if has_scope */
    bool has_scope;
    uint32_t from;             /* API_DROP bits */
};
struct api_dropped { uint64_t pages, bytes; };

/* Where the pages of these prefixes lie. */
struct api_look {
    const struct api_prefix *prefixes;
    uint32_t prefixes_count;
};

enum api_phase {
    API_PHASE_IDLE, API_PHASE_LOADING, API_PHASE_PREFILL, API_PHASE_DECODE, API_PHASE_COUNT_
};
/* Steps since load by how long they took: bucket i holds those up to api_step_bounds_ms[i], the
 * last one the rest. */
#define API_STEP_BUCKETS 12u
extern const uint32_t api_step_bounds_ms[API_STEP_BUCKETS];
struct api_steps {
    uint64_t counts[API_STEP_BUCKETS + 1], ns; /* ns: of all together */
};
enum api_step_kind {
    API_STEP_DECODE, /* no row of a prompt in it */
    API_STEP_PREFILL,
    API_STEP_COUNT_
};
/* FREE + USED + CACHED is all there are; PINNED are some of USED, at most PIN_LIMIT. */
enum api_pages {
    API_PAGES_FREE, API_PAGES_USED, API_PAGES_CACHED, API_PAGES_PINNED, API_PAGES_PIN_LIMIT,
    API_PAGES_COUNT_
};
/* Pages that left the pool: bytes of them now; what went to the disk and came back, and how many
 * were thrown away for a wrong sum, since load. */
struct api_tier {
    uint64_t ram_bytes, ssd_bytes, read_bytes, written_bytes, bad_sums;
    bool is_broken; /* errors of the disk switched it off; STATS say which */
};

struct api_beat {
    uint64_t step;        /* steps finished since load */
    enum api_phase phase;
    uint64_t progress;    /* counts while anything is computed or read */
    uint64_t op_ns_max;   /* longest recent op, for the stall limit */
    uint32_t running, queued;
    uint64_t tokens_done, tokens_queued;
    uint64_t preemptions, recomputed_tokens;
    uint64_t pages[API_PAGES_COUNT_]; /* of the cache, by what they are */
    struct api_tier tier;
    float prefill_tokens_per_s, decode_tokens_per_s; /* 0 = not measured */
    struct api_steps steps[API_STEP_COUNT_];
};

struct api_frame {
    enum api_frame_kind kind;
    uint64_t id; /* request; 0 where none is meant */
    union {
        str path;                  /* DESCRIBE */
        struct api_load load;      /* LOAD */
        struct api_request submit; /* SUBMIT; id is framed once, in the header */
        struct api_credit credit;  /* CREDIT */
        struct api_hold hold;      /* HOLD */
        str context;               /* UNPIN */
        struct api_drop drop;      /* DROP; id comes back with DROPPED */
        struct api_dropped dropped; /* DROPPED */
        struct api_look look;      /* LOOK; id comes back with LOOKED */
        str places;                /* LOOKED: a byte of enum api_place for each */
        str stats;                 /* STATS: "" asks, JSON answers */
        struct api_hello hello;    /* HELLO */
        struct api_model model;    /* DESCRIBED, LOADED */
        struct api_loading loading; /* LOADING */
        struct api_batch batch;    /* BATCH; request_id is the header's */
        struct api_beat beat;      /* BEAT */
        struct err fault;          /* FAULT */
    };
};

/* Appends the message as complete frames, MORE included. False (out is as before) when out has no
 * room: ERR_LIMIT, or the message is longer than a frame of its kind may be. */
BASE_USE_RESULT bool api_frame_write(struct buf *out, const struct api_frame *f, struct err *e);

/* Length of the first whole frame in bytes, header included; 0 if incomplete. For writers that put
 * control frames between pieces. The bytes are our own. */
size_t api_frame_first(str bytes);

/* A joined message, not decoded yet. */
struct api_message_bytes {
    enum api_frame_kind kind;
    uint64_t id;
    str body;           /* in arena */
    struct arena arena; /* the receiver's: it frees it, also after a failed decode */
    bool is_dropped;    /* there was no memory for it: body is empty, answer ERR_MEMORY */
};

/* Decodes into out; strings view body, arrays are made in m's arena. False: ERR_FORMAT (a broken
 * peer), or ERR_REQUEST of api_request_check for a SUBMIT. */
BASE_USE_RESULT bool api_frame_read(struct api_frame *out, struct api_message_bytes *m,
                                    struct err *e);

/* Joins the bytes of one direction. */
struct api_frame_reader {
    enum api_frame_side side;
    size_t message_max;
    uint8_t header[API_FRAME_HEADER_SIZE];
    uint32_t header_len;
    uint32_t piece_left; /* of the current frame's payload */
    enum api_frame_kind kind; /* of the current frame */
    uint64_t id;
    char short_body[API_FRAME_SHORT_MAX];
    uint32_t short_len;
    struct api_message_bytes long_; /* being joined; kind NONE_: none */
    size_t long_len, long_total;
    uint8_t total[4]; /* first bytes of a long message */
    uint32_t total_len;
    bool is_broken;
};

void api_frame_reader_init(struct api_frame_reader *r, enum api_frame_side side,
                           size_t message_max);
void api_frame_reader_deinit(struct api_frame_reader *r);
enum api_frame_got { API_FRAME_GOT_NOTHING, API_FRAME_GOT_MESSAGE, API_FRAME_GOT_BROKEN };
/* Takes bytes off the front of *in until a message is complete or *in is empty. MESSAGE: *out
 * is the caller's, arena included. BROKEN: e says why, the peer must be given up. */
enum api_frame_got api_frame_reader_next(struct api_frame_reader *r, str *in,
                                         struct api_message_bytes *out, struct err *e);

/* The payload alone, api_frame_body.c; for api_frame.c. */
void api_frame_put_body(struct buf *out, const struct api_frame *f);
/* The same, but texts of at least API_FRAME_LENT_MIN bytes go into lent, an array of these. */
#define API_FRAME_LENT_MIN 4096u
struct api_frame_lent {
    size_t at; /* bytes of out that stand before it */
    str text;
};
void api_frame_lend_body(struct buf *out, struct buf *lent, const struct api_frame *f);
void api_frame_put_header(char out[API_FRAME_HEADER_SIZE], size_t size, enum api_frame_kind kind,
                          uint64_t id);
BASE_USE_RESULT bool api_frame_take_body(struct api_frame *out, str body, struct arena *a,
                                         struct err *e);

const char *api_frame_name(enum api_frame_kind kind);
bool api_frame_is_long(enum api_frame_kind kind); /* has a total and may go on in MORE */

#endif
