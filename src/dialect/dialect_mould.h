/* dialect_mould - lines of a stream that differ in one text: the next of the same form is known
 * without being parsed.
 *
 * Owns:      the bytes that stood in front of and behind the text of the last such line.
 * Not:       what a line means, and whether anything but its text counts a second time: the caller
 *            sets a mould only from a line that said nothing else, and clears it with any other.
 * Invariant: a line fits when the bytes around are the same and the text is the inside of a JSON
 *            string in which nothing is escaped: then it is the same JSON, but for that string.
 *
 *     {"choices":[{"delta":{"content":"  Hello  "},"finish_reason":null}]}
 *     '-------------- head ----------'         '------- tail -----------'
 *
 * Thread:    its owner's.
 * Limits:    DIALECT_MOULD_MAX bytes around the text; a longer line is parsed each time.
 */
#ifndef SHOAL_DIALECT_DIALECT_MOULD_H
#define SHOAL_DIALECT_DIALECT_MOULD_H

#include "base/buf.h"

#define DIALECT_MOULD_MAX ((size_t)4096)

struct dialect_mould {
    struct buf form; /* head and tail */
    size_t head;     /* bytes; 0: nothing fits */
};

void dialect_mould_init(struct dialect_mould *m);
void dialect_mould_deinit(struct dialect_mould *m); /* also after a zeroed struct */
void dialect_mould_clear(struct dialect_mould *m);
/* text: the view of a string's inside in line. False: it is none, or the line is too long; nothing
 * fits then. */
bool dialect_mould_set(struct dialect_mould *m, str line, str text);
/* *text: a view into line. */
bool dialect_mould_fits(const struct dialect_mould *m, str line, str *text);
/* What stood around the text, with this one between. */
void dialect_mould_pour(const struct dialect_mould *m, str text, struct buf *out);

#endif
