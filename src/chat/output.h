/* output - a model's bytes, token by token, as text that may be shown.
 *
 * Owns:      holding back half characters and possible beginnings of stop strings; finding stops.
 * Not:       tokens (text/tok), which stop strings apply (dialect, model), calls and reasoning.
 * Invariant: what is shown in all, and where it stops, depends on the bytes alone, never on how
 *            they were cut. Shown text is valid UTF-8 and never ends inside a character: bytes that
 *            cannot become one turn into U+FFFD as Python's errors='replace' does. Held back is
 *            only a begun character, and the longest tail that is a proper prefix of a stop string.
 *            The first stop string to be complete ends the reply (of several at once the longest).
 *
 *     bytes in --> UTF-8 --> | shown .................. | held: "\nAli" of stop "\nAlice:" |
 *
 * Thread:    its owner's (the engine thread). A step allocates only what the caller's buf needs.
 * Limits:    API_STOP_MAX stop strings of API_STOP_LEN_MAX bytes, checked at init.
 */
#ifndef SHOAL_CHAT_OUTPUT_H
#define SHOAL_CHAT_OUTPUT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

struct output_stop {
    str text;
    const uint16_t *back; /* longest border of each prefix: where to go on after a mismatch */
    uint16_t matched;     /* bytes of text that the clean text ends with */
};
struct output {
    struct output_stop *stops;
    uint32_t stops_count;
    bool keep_stop;  /* the stop string itself is shown too */
    bool is_stopped;
    uint32_t stop;   /* is_stopped: index of the stop string */
    char *held;      /* clean text not shown yet; at most held_max */
    uint32_t held_len, held_max;
    char begun[4];   /* bytes of a character that is not complete */
    uint8_t begun_len;
    /* Bytes that came in, and how many of them are behind what was shown (a logprob belongs to the
     * piece that shows the last byte of its token). Held text counts when it is shown. */
    uint64_t bytes_in, bytes_shown;
    uint16_t *held_raw; /* per held byte: bytes that came in for it */
};

/* Texts of stops must outlive o; tables are made in a. False: ERR_REQUEST for an empty or too long
 * stop string or for too many, ERR_LIMIT when a is full. */
BASE_USE_RESULT bool output_init(struct output *o, const str *stops, uint32_t stops_count,
                                 bool keep_stop, struct arena *a, struct err *e);

/* The bytes of one token, or any piece; appends to shown what may be shown now. After a stop
 * nothing more is taken. */
void output_add(struct output *o, str bytes, struct buf *shown);
/* End of the reply without a stop: shows what was held back. */
void output_end(struct output *o, struct buf *shown);

#endif
