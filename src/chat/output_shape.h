/* output_shape - what output and the parser shapes share.
 *
 * Owns:      steps of the shapes; consuming undecided text; saying calls.
 * Not:       what anybody outside chat may use (output).
 * Invariant: a step decides by the undecided text alone and only when no further byte could change
 *            the decision; so cuts do not matter. It consumes, or moves the phase, or moves
 *            call.look, and returns true; or returns false: more text is needed.
 * Thread:    that of output.
 * Limits:    a name or key has at most OUTPUT_SHAPE_HEAD_MAX bytes.
 */
#ifndef SHOAL_CHAT_OUTPUT_SHAPE_H
#define SHOAL_CHAT_OUTPUT_SHAPE_H

#include "chat/output.h"

#define OUTPUT_SHAPE_HEAD_MAX 512

/* How the text ends here: more may come, the model ended it, a limit cut it. */
enum output_shape_end { OUTPUT_SHAPE_GOES_ON, OUTPUT_SHAPE_ENDS, OUTPUT_SHAPE_IS_CUT };

enum output_shape_match { OUTPUT_SHAPE_NO, OUTPUT_SHAPE_PARTLY, OUTPUT_SHAPE_YES };

/* --- output.c: text --- */
str output_shape_rest(const struct output *o);
void output_shape_drop(struct output *o, size_t count);  /* hidden */
void output_shape_show(struct output *o, size_t count);  /* as content */
void output_shape_think(struct output *o, size_t count); /* as reasoning */
/* No stop string goes on across what comes now: reasoning, or a call. */
void output_shape_border(struct output *o);
/* A new event with this text; NULL: no memory. */
struct output_event *output_shape_event(struct output *o, enum api_event_kind kind, str text);

/* Whether text begins with marker, which has no blanks at its ends. Blanks inside it, and between
 * '>' and '<', stand for any number of blanks. *len: bytes of text that it takes. An empty text is
 * PARTLY. */
enum output_shape_match output_shape_is(str text, str marker, size_t *len);
/* The first place where one of markers begins or may begin; YES: *at, *len; PARTLY: *at. */
enum output_shape_match output_shape_find(str text, const str *markers, uint32_t count, size_t *at,
                                          size_t *len);
/* Whether text begins with an object that may be a call without an opener, blanks and, where the
 * format's models write such, a code fence in front of it: *len bytes. */
enum output_shape_match output_shape_bare(const struct output_row *r, str text, size_t *len);
size_t output_shape_blanks(str text);      /* at its beginning */
size_t output_shape_blanks_last(str text); /* at its end */

/* --- output_call.c: calls --- */
str output_call_closer(str close);
/* From BODY: the undecided text begins with an opener. */
void output_call_start(struct output *o, bool is_bare);
/* The same without an opener: an object stands behind its first `look` bytes. */
void output_call_start_bare(struct output *o, size_t look);
bool output_call_step(struct output *o, enum output_shape_end end);
bool output_call_after(struct output *o, enum output_shape_end end);
/* Says CALL_BEGIN and hides the first `used` undecided bytes. False: a bare call of a tool that was
 * not declared is no call. */
bool output_call_begin(struct output *o, str name, size_t used);
void output_call_say_args(struct output *o); /* what is in o->args */
void output_call_done(struct output *o);     /* CALL_END; the phase is AFTER */
/* No call after all: not begun, its opener becomes text; begun, it stays unfinished. True: a step
 * was made. */
bool output_call_fail(struct output *o, enum output_shape_end end);
/* More text is needed; if there is none, the call is cut. What of it may be said is. */
bool output_call_wait(struct output *o, enum output_shape_end end);

/* --- shapes --- */
#define OUTPUT_JSON_ARGS 4 /* call.stage: the arguments follow */
bool output_json_step(struct output *o, enum output_shape_end end);    /* OBJECT, NAMED, CHANNEL */
bool output_xml_step(struct output *o, enum output_shape_end end);     /* TAGS */
bool output_literal_step(struct output *o, enum output_shape_end end); /* LITERAL */
bool output_channel_step(struct output *o, enum output_shape_end end); /* HEADER, MESSAGE */
bool output_think_step(struct output *o, enum output_shape_end end);   /* START, THINK */

#endif
