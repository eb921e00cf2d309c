/* dialect_write - what the replies of all protocols share.
 *
 * Owns:      remembering what events say (leg, usage, warnings, texts of a reply that is not
 *            streamed); the object `shoal`, ids, log-probabilities, times.
 * Not:       the form of a reply (dialect_NAME.c).
 * Invariant: a text is appended to a choice whole or the state is full. Everything written is valid
 *            JSON: invalid bytes of tokens become U+FFFD.
 * Thread:    the loop.
 * Limits:    st->reply_max bytes per kind of text and choice.
 */
#ifndef SHOAL_DIALECT_DIALECT_WRITE_H
#define SHOAL_DIALECT_DIALECT_WRITE_H

#include "base/json.h"
#include "dialect/dialect.h"

/* Takes up what an event says about the whole reply (QUEUED, STARTED, NOTE, USAGE, DONE) and, when
 * the reply is not streamed, the texts of its choice. False when a text did not fit. */
bool dialect_write_remember(struct dialect_state *st, uint32_t choice, const struct api_event *ev);
static inline bool dialect_write_is_last(const struct dialect_state *st)
{
    return st->choices_done == st->choices_count;
}
/* A copy that lives as long as the state; "" when its memory is full. */
str dialect_write_keep(struct dialect_state *st, str s);
static inline bool dialect_write_is_call(const struct api_event *ev)
{
    return ev->kind == API_EVENT_CALL_BEGIN || ev->kind == API_EVENT_CALL_ARGS ||
           ev->kind == API_EVENT_CALL_END;
}
/* A CALL_* event: keeps the call of a choice from its beginning until the next one's, and whether
 * it is open. False when it did not fit. */
bool dialect_write_keep_call(struct dialect_state *st, uint32_t choice, const struct api_event *ev);
/* Text or another call comes while one is open: whoever began it failed, and it is made again. */
void dialect_write_drop_call(struct dialect_state *st, uint32_t choice);
/* What a reply may not end with is put right: a finish that promises calls, and none was whole. */
enum api_done dialect_write_reason(const struct dialect_choice *c, enum api_done reason);
/* JSON on one line: an event of a stream may not hold line feeds. */
bool dialect_write_compact(struct buf *out, str json);
/* The arguments of the kept call as a JSON object on one line; {} and a warning if not. */
void dialect_write_call_object(struct json_writer *w, struct dialect_state *st,
                               const struct dialect_call *call);
/* Appends text to one of the buffers of a choice, made at first use. False when it is full. */
bool dialect_write_append(struct dialect_state *st, struct buf *to, str text);
/* Appends what was written to json as the next element, behind a comma if one is there. */
bool dialect_write_append_json(struct dialect_state *st, struct buf *to, const struct buf *json);
/* A member of the open object. */
void dialect_write_text(struct json_writer *w, const char *key, str text);
void dialect_write_text_z(struct json_writer *w, const char *key, const char *text);
void dialect_write_raw(struct json_writer *w, const char *key, str json);
void dialect_write_float(struct json_writer *w, const char *key, float v);
void dialect_write_null(struct json_writer *w, const char *key);
/* Takes up an event by dialect_write_remember. False: it is an error, or did not fit, and
 * write_error has said so; nothing more is to be written. */
bool dialect_write_take(struct buf *out, struct dialect_state *st, uint32_t choice,
                        const struct api_event *ev,
                        void (*write_error)(struct buf *out, struct dialect_state *st,
                                            const struct api_error *e));
/* The error of a reply that did not fit. */
void dialect_write_too_long(const struct dialect_state *st, struct api_error *e);
/* "chatcmpl-" + the letters of the request's id. */
void dialect_write_id(struct json_writer *w, const struct dialect_state *st, const char *prefix);
/* {"request_id", "leg", ...}: BEHAVIOUR 5.3. */
void dialect_write_shoal(struct json_writer *w, const struct dialect_state *st,
                         enum api_done reason);
/* [{"token", "logprob", "bytes", "top_logprobs"}, ...] without the brackets. */
void dialect_write_logprobs(struct json_writer *w, const struct api_text *t);
/* An error of the engine in the protocol's own words: where it says messages or inputs, the client
 * has st->prompt_name. */
struct api_error dialect_write_named(const struct dialect_state *st, const struct api_error *e);
/* What a client reads of an error: the sentence, for ERR_CONTEXT with the sizes. */
void dialect_write_message(struct json_writer *w, const struct api_error *e);
/* A piece of a reply of one event; the caller's to deinit. */
struct buf dialect_write_piece(void);
/* The JSON of a piece as one event: "data: ...\n\n". */
void dialect_write_sse(struct buf *out, const struct buf *json);
/* The same with a name: "event: NAME\ndata: ...\n\n". */
void dialect_write_sse_named(struct buf *out, const char *name, const struct buf *json);
/* Members of an open object: the phase, and of a failover who, to whom, why, how far. */
void dialect_write_failover(struct json_writer *w, const struct dialect_ping *p);
/* A comment that SSE clients pass over: ": shoal {...}\n\n"; commits the stream. */
void dialect_write_ping(struct buf *out, struct dialect_state *st, const struct dialect_ping *p);
/* What a model can do: ["completion", "tools", ...]. */
void dialect_write_capabilities(struct json_writer *w, uint32_t caps);
/* Unix seconds as "2026-01-02T03:04:05Z". */
void dialect_write_time(struct json_writer *w, int64_t time_s);

#endif
