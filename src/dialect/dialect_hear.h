/* dialect_hear - what an upstream says, as events: what the readers of all protocols share.
 *
 * Owns:      parsing one event, batches, STARTED before the first visible event, calls and the
 *            tools they belong to, stop strings that a protocol lacks, usage and the end.
 * Not:       a protocol's JSON (dialect_NAME_client).
 * Invariant: as dialect_client says. Texts are views of one event; flushed before it ends.
 * Thread:    the loop.
 * Limits:    DIALECT_CLIENT_CALLS_MAX calls of a choice.
 */
#ifndef SHOAL_DIALECT_DIALECT_HEAR_H
#define SHOAL_DIALECT_DIALECT_HEAR_H

#include "dialect/dialect_client.h"

/* data as an object; false: GARBAGE. */
BASE_USE_RESULT bool dialect_hear_json(struct dialect_client_state *st, str data, struct json *out,
                                       struct api_error *e);
/* fault GARBAGE with a sentence; false. */
bool dialect_hear_garbage(struct api_error *e, const char *format, ...) BASE_PRINTF(2, 3);
/* An error that the upstream reports inside its stream; false. type, code, message: as it says. */
bool dialect_hear_failure(struct dialect_client_state *st, struct json type, struct json code,
                          struct json message, struct api_error *e);
/* What is read is a whole reply, no event of a stream: no client of a stream can be shown it as it
 * came. Before anything of it is told. */
void dialect_hear_whole(struct dialect_client_state *st);
/* Text of a string, "" for anything else. */
str dialect_hear_str(struct dialect_client_state *st, struct json v);
uint32_t dialect_hear_u32(struct json v); /* 0 for anything else */
/* index of a choice that was asked for; false: GARBAGE. */
BASE_USE_RESULT bool dialect_hear_choice(const struct dialect_client_state *st, struct json index,
                                         uint32_t *out, struct api_error *e);

/* What another shoal goes on in: its calls count, and an open one is open here too. In init. */
void dialect_hear_resume(struct dialect_client_state *st);

/* A piece of content or reasoning; nothing for an empty one without logprobs. */
void dialect_hear_text(struct dialect_client_state *st, uint32_t choice, enum api_event_kind kind,
                       const struct api_text *t);
/* OpenAI's form: [{"token", "logprob", "bytes", "top_logprobs"}]; what is none is left out. */
void dialect_hear_logprobs(struct dialect_client_state *st, struct json list,
                           struct api_text *into);
/* Ends an open call, begins one. id "": made here. is_custom: the protocol's own form of a custom
 * tool; a custom tool that was declared as a function gets its text back. False: GARBAGE. */
BASE_USE_RESULT bool dialect_hear_call(struct dialect_client_state *st, uint32_t choice, str id,
                                       str name, bool is_custom, struct api_error *e);
void dialect_hear_args(struct dialect_client_state *st, uint32_t choice, str piece);
/* Arguments that are cut leave the call open: it is none unless the reply ends at a limit. */
void dialect_hear_call_end(struct dialect_client_state *st, uint32_t choice);
/* Why a choice ended; its DONE comes with dialect_hear_end. CALLS without a call is EOS, and EOS
 * behind calls is CALLS. An end that is no limit behind cut arguments is none: CUT then. */
void dialect_hear_finish(struct dialect_client_state *st, uint32_t choice, enum api_done reason,
                         str stop);
/* The exact reason that a shoal tells in its object `shoal`; otherwise: as given. */
enum api_done dialect_hear_reason(struct json shoal, enum api_done otherwise);
/* fault CUT: the reply ended without its end; false. */
bool dialect_hear_cut(struct api_error *e);
/* USAGE and DONEs; is_over. False: CUT, a choice has no reason yet. */
BASE_USE_RESULT bool dialect_hear_end(struct dialect_client_state *st, struct api_error *e);
/* Hands what is pending to the sink. */
void dialect_hear_flush(struct dialect_client_state *st);

#endif
