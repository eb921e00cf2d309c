/* dialect_client - a protocol from its other end: requests to an upstream, what it says as events.
 *
 * Owns:      the interface of the client direction; what its readers share: checked events in
 *            batches, usage before the end, calls with their tools, what a translation loses.
 * Not:       HTTP, keys, time (serve/remote_leg), who is asked (route), the server direction
 *            (dialect).
 * Invariant: only what the client gave is sent. What cannot be sent is a note (code of BEHAVIOUR
 *            5.13), or the request is refused by name; never silence. Events come in api_event's
 *            order: STARTED with the first visible one, one DONE per choice, USAGE before the last.
 *            Without the protocol's terminal marker there is no DONE.
 *
 *     api_request --write_request--> POST path        body as written, patched, if the client spoke
 *                                                     the same protocol; else translated
 *     events, or one whole body --read_event--> sink; terminal marker --> is_over
 *     status that is no 2xx --read_error--> api_error with its fault
 *
 * Thread:    the loop.
 * Limits:    DIALECT_CLIENT_EVENT_MAX bytes of one event; DIALECT_CLIENT_CALLS_MAX calls a choice;
 *            reading an event takes at most 8 times its bytes.
 */
#ifndef SHOAL_DIALECT_DIALECT_CLIENT_H
#define SHOAL_DIALECT_DIALECT_CLIENT_H

#include "base/json.h"
#include "dialect/dialect.h"
#include "dialect/dialect_echo.h"

#define DIALECT_CLIENT_EVENT_MAX ((size_t)4 << 20)
#define DIALECT_CLIENT_BODY_MAX ((size_t)512 << 20) /* of a request */
#define DIALECT_CLIENT_CALLS_MAX 1024u
/* A NOTE in front of the rest: the upstream began anew instead of going on, which is cut. */
#define DIALECT_CLIENT_RESTARTED "restarted"
#define DIALECT_CLIENT_PENDING 32u
#define DIALECT_CLIENT_BAD_MAX 3u /* bad events until the upstream is taken for something else */
/* An Anthropic request must have a limit; where neither client nor leg gives one, this. */
#define DIALECT_CLIENT_TOKENS_MAX 8192u

/* How an upstream goes on inside an assistant's turn: `continue` of a leg. */
enum dialect_continue {
    DIALECT_CONTINUE_NONE,
    DIALECT_CONTINUE_PREFILL,       /* a last assistant message (anthropic) */
    DIALECT_CONTINUE_FINAL_MESSAGE, /* continue_final_message (openai, by vLLM) */
    DIALECT_CONTINUE_SHOAL,         /* another shoal: also inside reasoning and arguments */
    DIALECT_CONTINUE_COUNT_
};

struct dialect_client_headers {
    const struct api_header *rows; /* names in lower case */
    uint32_t count;
    int64_t unix_ms; /* now */
};

/* What configuration says of an upstream. Outlives its calls. */
struct dialect_upstream {
    str name;            /* of the leg, as STARTED tells it */
    str model;           /* the name sent; "" = the one asked for */
    uint32_t caps;       /* API_CAP bits */
    uint32_t tokens_max; /* max_output; 0 = not known */
    enum dialect_continue how;
};

/* What one choice has said so far. */
struct dialect_client_choice {
    uint32_t calls_count;
    uint32_t args_depth; /* open braces and brackets of the open call's arguments */
    bool in_text, is_escaped; /* ... and a string that is open there */
    bool is_free;        /* the open call's arguments are text, no JSON */
    bool is_torn;        /* more came behind arguments that are cut: the reply is no whole one */
    bool in_call, has_args, has_reason;
    bool is_doubted;     /* more came behind its reason: silence or a close are no end of it */
    bool is_wrapped;     /* the open call is a custom tool's in the form of a function */
    bool is_resumed;     /* the open call began in the request: its begin may be told once more */
    enum api_done reason;
    str stop;
    struct buf args;     /* is_wrapped: until they are complete */
    str call_id;         /* as the upstream calls the last one */
    uint32_t calls_same; /* calls under an index that an earlier one had, too */
};

/* What reading an event came to. */
struct dialect_client_told {
    uint32_t choice;
    enum api_event_kind kind; /* REASONING, CONTENT */
    str text;
    uint32_t texts;
    bool is_more; /* than texts */
};

/* One call of an upstream, from write_request to its end; every protocol's own state begins with
 * this. The caller gives state_size zeroed bytes, dialect_client_init, then _deinit. */
struct dialect_client_state {
    const struct dialect *dialect; /* of the upstream */
    const struct dialect_upstream *leg;
    const struct api_request *rq;
    struct api_sink sink;
    struct arena keep;    /* for the whole call */
    struct arena scratch; /* for one event */
    struct api_note notes[API_NOTES_MAX]; /* what the request lost; become NOTE events */
    uint32_t notes_count;
    struct dialect_client_choice *choices;
    uint32_t choices_count;
    str tail_blanks;      /* cut from the unfinished turn: dropped where the reply repeats them */
    struct dialect_echo echo; /* ... the turn itself: where the reply begins anew */
    struct api_usage usage;
    uint64_t text_bytes, reasoning_bytes; /* for usage that an upstream does not split */
    struct buf held;      /* text that may begin a stop string which we have to find */
    bool finds_stop;      /* the protocol has no stop strings */
    bool is_same;         /* the client speaks this protocol too: its body goes as written */
    bool keeps_raw;       /* ... and its stream comes as it came: events carry their raw form */
    bool is_started, has_usage;
    bool is_over;         /* terminal marker seen, all DONEs given */
    struct buf raw;       /* keeps_raw: events of the upstream that none of ours carried yet */
    bool is_raw;          /* ... and what is being read, which is one line, is not among them */
    bool is_shown;        /* keeps_raw: an event of ours carries what is being read */
    str reading;          /* the event that is being read */
    struct dialect_client_told told; /* ... and what was told of it so far */
    struct dialect_client_told last; /* of the event that the mould is of */
    struct dialect_mould mould; /* of the last event, where one text was all that it told */
    struct api_event pending[DIALECT_CLIENT_PENDING];
    uint32_t pending_count, pending_choice;
};

/* What a protocol cannot ask for: BEHAVIOUR 9.1. */
enum dialect_client_lack {
    DIALECT_LACKS_CHOICE = 1 << 0,   /* a call cannot be forced */
    DIALECT_LACKS_JSON = 1 << 1,     /* any JSON object */
    DIALECT_LACKS_PATTERN = 1 << 2,  /* regex, choice */
    DIALECT_LACKS_N = 1 << 3,
    DIALECT_LACKS_LOGPROBS = 1 << 4
};

struct dialect_client {
    const char *path;      /* behind the base URL: "/v1/messages" */
    const char *free_path; /* costs nothing to ask: "/v1/models" */
    bool shows_raw;        /* its server's writer passes raw events on (dialect_raw) */
    bool needs_marker;     /* reasons alone make no whole reply: its terminal event must come */
    bool has_wide_pieces;  /* a delta is no token: several of them, or a part of one */
    bool is_lines;         /* a stream is JSON by lines, not server-sent events */
    const char *key_header;  /* "authorization: Bearer ", "x-api-key: " */
    const char *const *headers; /* of each request, ends with NULL: "anthropic-version: ..." */
    const char *const *kept; /* the client's headers that a leg of its protocol gets, by name */
    size_t state_size;
    uint32_t lacks;        /* dialect_client_lack bits */
    /* The body of a CHAT. Always asks for a stream, and for usage. ERR_UNSUPPORTED: the table says
     * skip; ERR_LIMIT: longer than out holds. */
    bool (*write_request)(struct buf *out, struct dialect_client_state *st, struct api_error *e);
    /* One event of a stream (name "" where the form has none), or one whole body of a reply that
     * came unstreamed. False: e->fault GARBAGE: not this protocol, nothing was told; any other: the
     * upstream said in its stream that it failed. */
    bool (*read_event)(struct dialect_client_state *st, str name, str data, struct api_error *e);
    /* May the request's unfinished turn (continue_last, resume) go to this upstream? */
    bool (*can_continue)(const struct dialect_upstream *leg, const struct api_request *rq);
};

extern const struct dialect_client dialect_anthropic_client, dialect_ollama_client,
    dialect_openai_chat_client, dialect_responses_client;

/* rq and leg outlive the state. */
void dialect_client_init(struct dialect_client_state *st, const struct dialect *d,
                         const struct dialect_upstream *leg, const struct api_request *rq,
                         struct api_sink sink);
void dialect_client_deinit(struct dialect_client_state *st);
/* Hands to the protocol's read_event; what was not told of a bad event is dropped. */
BASE_USE_RESULT bool dialect_client_read(struct dialect_client_state *st, str name, str data,
                                         struct api_error *e);
/* The bytes ended. True: the reply is whole (all choices had their reason: DONEs are given if the
 * marker behind them was left out, where the protocol's servers leave it out). False: e->fault
 * CUT. */
BASE_USE_RESULT bool dialect_client_end(struct dialect_client_state *st, struct api_error *e);
/* Nothing more comes, but the connection is open. True: each choice had told why it ended, and the
 * DONEs are given now: a complete reply must not be gone on with. False: nothing happens. */
bool dialect_client_settle(struct dialect_client_state *st);
/* The error of an answer whose status is no 2xx: class of BEHAVIOUR 9.4, the upstream's own text,
 * Retry-After (unix_ms: now, for a date). Header names in lower case. Views into body and a. */
void dialect_client_read_error(struct api_error *out, int status, struct dialect_client_headers h,
                               str body, struct arena *a);
/* The same for a status and a text alone; retry_after_ms stays. */
void dialect_client_classify(struct api_error *out, int status, str text);
/* What the protocol cannot say of the request, as Shoal-Substituted names it ("tools", "schema",
 * "n", "logprobs", "continue"); NULL: nothing. Capabilities are the router's to compare. */
const char *dialect_client_lacks(const struct dialect *d, const struct dialect_upstream *leg,
                                 const struct api_request *rq);

#endif
