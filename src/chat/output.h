/* output - a model's bytes, token by token, as what a client may be told: reasoning, text, calls.
 *
 * Owns:      holding back half characters and possible beginnings of markers and stop strings;
 *            splitting a reply by its format's row; finding stops; what events say.
 * Not:       tokens (text/tok), rows (output_table), which stop strings apply (dialect, model),
 *            grammars (engine/constrain), batches (engine).
 * Invariant: what is said in all, and where it stops, depends on the bytes alone, never on how they
 *            were cut; pieces of one kind join to the whole. Text is valid UTF-8 and never ends
 *            inside a character: bytes that cannot become one turn into U+FFFD as Python's
 *            errors='replace' does. The first stop string to be complete in the content ends the
 *            reply (of several at once the longest). Arguments that got their CALL_END are one JSON
 *            value. Markup of a call never shows; what looked like a call and is none shows once,
 *            as text. An object without an opener is a call only when it is whole, names a declared
 *            tool and has an object of arguments: until then nothing of it is said, else all of it
 *            is text. So it is if the tool is strict and the object is written as the grammar of
 *            calls without opener does not know it (engine/constrain_bare).
 *
 *     bytes --> UTF-8 --> | text not decided yet | --> phase: THINK, BODY, CALL ... --> events
 *                                                        content --> | held: "\nAli" of a stop |
 *
 * Thread:    its owner's (the engine thread). Buffers grow with what is held back.
 * Limits:    API_STOP_MAX stop strings of API_STOP_LEN_MAX bytes; OUTPUT_TEXT_MAX bytes undecided.
 */
#ifndef SHOAL_CHAT_OUTPUT_H
#define SHOAL_CHAT_OUTPUT_H

#include "api/api_event.h"
#include "base/digest.h"
#include "chat/output_scan.h"
#include "chat/output_table.h"
#include "chat/output_tools.h"

#define OUTPUT_TEXT_MAX ((size_t)16 << 20)
#define OUTPUT_ID_LEN   27 /* "call_" and 22 of 0-9A-Za-z */

/* Where the prompt leaves the reply. */
enum output_begin {
    OUTPUT_BEGIN_FRESH,    /* a reasoning block may come first */
    OUTPUT_BEGIN_THINKING, /* the prompt opened it */
    OUTPUT_BEGIN_ANSWER    /* it was closed, or the reply goes on in mid-text */
};

struct output_options {
    struct output_format format;      /* zero: all is content */
    const struct output_tools *tools; /* NULL: calls are not looked for */
    enum output_begin begin;
    bool one_call;  /* the reply ends after its first complete call */
    bool is_forced; /* an object without an opener is a call for sure, as a grammar says so or as
                       the reply goes on inside one: its arguments flow */
    bool has_format; /* the reply is calls or an answer in a format: what begins as neither is all
                        content, whatever stands in it */
    bool keep_stop; /* the stop string itself is shown too */
    const str *stops;
    uint32_t stops_count;
    struct digest_128 id_seed; /* of prompt, seed, choice: ids of calls come from it */
};

struct output_event {
    enum api_event_kind kind; /* REASONING CONTENT CALL_BEGIN CALL_ARGS CALL_END */
    str text;                 /* the piece; CALL_BEGIN: name as the model wrote it */
    /* CONTENT: the bytes that came in for it (a logprob belongs to the piece that shows the last
     * byte of its token). */
    uint64_t bytes_begin, bytes_end;
    uint32_t index;                  /* CALL_*: 0, 1, ... */
    const struct output_tool *tool;  /* CALL_BEGIN: NULL if no such tool was declared */
    char id[OUTPUT_ID_LEN + 1];      /* CALL_BEGIN */
    size_t from;                     /* of text, until it is read */
};

struct output_stop {
    str text;
    const uint16_t *back; /* longest border of each prefix: where to go on after a mismatch */
    uint16_t matched;     /* bytes of text that the content ends with */
};

enum output_phase {
    OUTPUT_PHASE_START,  /* a think opener may follow */
    OUTPUT_PHASE_THINK,
    OUTPUT_PHASE_BODY,
    OUTPUT_PHASE_CALL,
    OUTPUT_PHASE_AFTER,  /* behind a call: closers, the next of a list */
    OUTPUT_PHASE_HEADER, /* CHANNEL: of a message */
    OUTPUT_PHASE_MESSAGE
};

/* The call being read; offsets count from the first undecided byte. */
struct output_call {
    enum output_shape shape;
    uint32_t stage;         /* the shape's */
    bool is_begun;          /* CALL_BEGIN was said: text is consumed as it is read */
    bool is_list, is_bare;
    bool is_odd, is_function; /* not as a grammar binds it; "type": "function" came */
    bool has_fence;         /* "```" stands in front of it: one behind it belongs to it */
    size_t look;            /* the next byte to look at */
    struct output_scan scan;
    uint32_t key, level;    /* OBJECT: what the value at this level is */
    size_t key_from, args_from, args_len;
    bool has_name, has_args;
    uint32_t pairs, types;  /* TAGS: parameters so far, types of this one */
    uint32_t nest;          /* LITERAL */
    uint64_t nest_is_object;
    const struct output_tool *tool;
};

struct output {
    struct output_options o;
    enum output_phase phase;
    bool is_stopped; /* by a stop string or, with one_call, by a call */
    bool has_stop;   /* by a stop string: */
    uint32_t stop;   /* its index */
    bool drops_blanks;   /* blanks that follow are not shown: behind reasoning or a call */
    bool has_shown;      /* content or a call came: no bare call any more */
    uint32_t calls_begun, calls_done;
    bool has_broken_call; /* one was begun and did not become whole */
    enum api_event_kind message; /* CHANNEL: kind of the message at hand */
    bool has_header;             /* CHANNEL: <|start|> came, a header must follow */
    struct output_call call;
    struct output_stop *stops;
    char *held;      /* content that may be the beginning of a stop string; at most held_max */
    uint64_t *held_end, held_begin; /* bytes that came in up to each of them */
    uint32_t held_len, held_max;
    char begun[4];   /* bytes of a character that is not complete */
    uint8_t begun_len;
    struct buf text;     /* characters; [at ..) is undecided */
    struct buf text_raw; /* uint16_t per byte of text: bytes that came in for it */
    size_t at;
    uint64_t bytes_in, bytes_at; /* came in; are in front of `at` */
    struct buf args;     /* JSON of the call at hand that was not said yet */
    struct buf name;     /* of the object at hand, without its escapes */
    struct buf shown;    /* texts of events */
    struct buf events;   /* struct output_event */
};

/* What o->stops, tools and format point to must outlive o; tables are made in a. False: ERR_REQUEST
 * for an empty or too long stop string or for too many, ERR_LIMIT when a is full. In either case
 * output_deinit frees o. */
BASE_USE_RESULT bool output_init(struct output *o, const struct output_options *opt,
                                 struct arena *a, struct err *e);
void output_deinit(struct output *o); /* also after a zeroed struct */

/* The bytes of one token, or any piece; what may be said now is added to the events. After a stop
 * nothing more is taken. False: no memory. */
BASE_USE_RESULT bool output_add(struct output *o, str bytes);
/* End of the reply without a stop: says what was held back. is_cut: by a limit, not by the model; a
 * call or marker that had just begun is then hidden, else it is text. */
BASE_USE_RESULT bool output_end(struct output *o, bool is_cut);

/* Since the last output_clear; views until the next call of any other function. */
const struct output_event *output_events(struct output *o, uint32_t *count);
void output_clear(struct output *o);

bool output_is_thinking(const struct output *o);
/* Calls were made and each of them is whole. */
bool output_has_calls(const struct output *o);
/* Whether text of a control token takes part in reading this format; other control tokens are
 * nothing that a client sees. */
bool output_is_marker(const struct output_format *f, str token);

#endif
