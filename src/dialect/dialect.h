/* dialect - one client protocol: its bytes to an api_request, api_events back to its bytes.
 *
 * Owns:      the interface, the readers that all protocols share (checked fields, our extensions,
 *            warnings), error statuses and codes, what a reply needs to remember.
 * Not:       HTTP (wire/http_server), who answers (serve, route), the one request type (api).
 * Invariant: a field is honoured, tolerated with a warning, or refused with its JSON path; none is
 *            ignored silently. A numeric field is range-checked once, by api_request_set.
 *            The accumulated stream equals the reply that is not streamed, field by field.
 *
 *     body --read_request--> api_request --> ... api_event --write_event--> body or stream
 *                     dialect_state: what only the form of the reply needs
 *
 * Thread:    read_request: loop or a worker; the rest: loop.
 * Limits:    struct dialect_limits, by configuration; JSON depth DIALECT_DEPTH_MAX.
 */
#ifndef SHOAL_DIALECT_DIALECT_H
#define SHOAL_DIALECT_DIALECT_H

#include "api/api_event.h"
#include "dialect/dialect_mould.h"

#define DIALECT_DEPTH_MAX 128
#define DIALECT_REPLY_MAX ((size_t)64 << 20)

struct dialect_path {
    const char *method, *path; /* "POST", "/v1/chat/completions"; "{}" stands for one segment */
    enum api_kind kind;
    bool streams; /* when the body does not say */
};

struct dialect_limits {
    uint32_t messages_max, tools_max, stop_max, stop_len_max, logit_bias_max, n_max;
    bool keeps_client_header; /* cache.normalise.client_header is off: BEHAVIOUR 8.11 */
};
extern const struct dialect_limits dialect_limits_default;

struct dialect_in {
    const struct dialect_path *path;
    str segment; /* what "{}" matched */
    str body;
    const struct api_header *headers; /* names in lower case */
    uint32_t headers_count;
    str request_id;  /* "req_..." */
    int64_t time_s;
    bool has_model;  /* the model is known: the body need not name it */
    const struct dialect_limits *limits;
};

/* The call that is open, for protocols that show whole ones. */
struct dialect_call {
    uint32_t index;
    enum api_tool_kind kind;
    str id, name, name_space;
    struct buf args;
};
/* What one choice of a reply has come to; not streamed: all of it, else what its form needs. */
struct dialect_choice {
    struct buf content, reasoning;
    struct buf logprobs, calls; /* JSON, elements of an array */
    uint32_t calls_count, content_chars; /* calls_count: whole ones */
    struct dialect_call call;
    bool is_begun, in_call, is_done; /* in_call: call is open; at the end of a reply: cut */
    enum api_done reason;
    str stop; /* reason STOP_STRING: which */
};
/* What a reply's form needs, from read_request to the last event. The caller gives state_size
 * zeroed bytes and calls dialect_state_deinit. Every dialect's own state begins with this. */
struct dialect_state {
    const struct dialect *dialect;
    str request_id, model; /* model: the name asked for; the caller may put the one that answered */
    int64_t time_s;
    uint64_t seed;         /* the one in use: the caller puts a drawn one here */
    bool stream, include_usage;
    bool is_begun;         /* bytes of the reply are out, pings too: errors are in-band */
    bool is_over;          /* the last byte is written */
    bool hides_reasoning;  /* the client wants no thinking: what comes all the same is dropped */
    uint32_t choices_count, choices_done;
    struct dialect_choice *choices;
    str leg, leg_model;
    uint64_t model_hash;
    struct api_usage usage;
    struct api_queued queued;
    struct api_note notes[API_NOTES_MAX];
    uint32_t notes_count;
    struct arena keep; /* texts of events that are needed later */
    size_t reply_max;  /* bytes kept for a reply that is not streamed; 0 = DIALECT_REPLY_MAX */
    uint64_t total_ns; /* since arrival: the caller sets it before the last DONE; 0 = not known */
    const char *prompt_name; /* what the client calls messages and inputs; NULL: the same */
    str legs_json; /* the array `legs` of the object `shoal`, or "": one leg answered */
    uint16_t overlong_status; /* limits.overlong_status: 400, 413, or 0 = the protocol's own */
    struct dialect_mould raw_in, raw_out; /* of the last raw line that was shown, and as what */
};
void dialect_state_deinit(struct dialect_state *st);

/* What a silent stream says: BEHAVIOUR 5.4. */
struct dialect_ping {
    const char *phase; /* queued loading prefill decode held failover */
    uint32_t position, done, total;
    int64_t eta_ms; /* negative: not known */
    str from, to, reason; /* phase failover: legs, a class of BEHAVIOUR 9.4; else "" */
    uint64_t sent;        /* bytes of the reply that the client has */
};

/* Whose statuses and error types a protocol has. */
enum dialect_family { DIALECT_OPENAI, DIALECT_ANTHROPIC, DIALECT_OLLAMA };

struct dialect_client;
struct dialect {
    const char *name; /* "openai_chat": docs/dialects/openai_chat.md */
    enum dialect_family family;
    const char *stream_type; /* Content-Type of a stream; NULL: nothing is streamed */
    const struct dialect_path *paths;
    uint32_t paths_count;
    size_t state_size;
    /* out is api_request_init plus this dialect's defaults and what in says; views into a and in.
     * False: ERR_REQUEST (path and expected type or range), ERR_UNSUPPORTED (a feature not built),
     * ERR_LIMIT. */
    bool (*read_request)(struct api_request *out, struct dialect_state *st,
                         const struct dialect_in *in, struct arena *a, struct api_error *e);
    /* Appends what the client shall get for this event; nothing for events it does not see. A reply
     * that is not streamed is written as a whole at the last DONE. */
    void (*write_event)(struct buf *out, struct dialect_state *st, uint32_t choice,
                        const struct api_event *ev);
    /* Before the first byte: the whole body; later: the in-band form, which ends the stream. */
    void (*write_error)(struct buf *out, struct dialect_state *st, const struct api_error *e);
    /* A sign of life in a stream, between any two events. The first one commits it: what the
     * protocol must say first comes with it. NULL where stream_type is. */
    void (*write_ping)(struct buf *out, struct dialect_state *st, const struct dialect_ping *p);
    const struct dialect_client *client; /* the protocol as an upstream's; NULL: none speaks it */
};

extern const struct dialect *const dialect_table[];
extern const uint32_t dialect_table_count;
/* NULL if no dialect has that name; the dialect and path that serve method and path, or false. */
const struct dialect *dialect_of(str name);
bool dialect_match(str method, str path, const struct dialect **d, const struct dialect_path **p,
                   str *segment);

/* BEHAVIOUR 5.5: status, code C and the two families' type of an error. */
struct dialect_error_row {
    uint16_t status, anthropic_status;
    const char *code, *openai_type, *anthropic_type;
};
struct dialect_error_row dialect_error(const struct api_error *e);
/* The HTTP status of an error before the first byte: by st's family and overlong_status. */
uint16_t dialect_status(const struct dialect_state *st, const struct api_error *e);

#endif
