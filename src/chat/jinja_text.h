/* jinja_text - strings of a template run: UTF-8 bytes, each of which knows where it came from.
 *
 * Owns:      building, slicing, searching and changing strings as Python's str does (code points,
 *            Unicode case and blanks), without ever losing the origin of a byte.
 * Not:       other values (jinja_value), what a filter or method does (jinja_filter, jinja_method).
 * Invariant: bytes are valid UTF-8 and never change once written. Origin 0 = written by the
 *            template itself (scaffold); any other number is the caller's name for a piece of the
 *            request. A byte keeps its origin through every operation, so request text can never
 *            pass for scaffold, however it is cut, joined, replaced or changed in case.
 *
 *     jinja_str  {text, off, len}: a view           "hello "   "user text"
 *     jinja_text bytes: |<|im_start|>hello user text|   used .. cap: room to grow
 *                runs:  |      0       |     7      |   (end, origin), ends rise
 *
 *            Appending to a string that ends where its text ends reuses the room, so that building
 *            up a string piece by piece is linear.
 * Thread:    one run at a time.
 * Limits:    the heap's arena and steps; one string at most JINJA_TEXT_MAX bytes. When one is
 *            exceeded the heap's stop is set, the result is an empty string, and the evaluator ends
 *            the run.
 */
#ifndef SHOAL_CHAT_JINJA_TEXT_H
#define SHOAL_CHAT_JINJA_TEXT_H

#include "base/arena.h"
#include "base/str.h"

#define JINJA_TEXT_MAX ((size_t)64 << 20)

enum jinja_stop { JINJA_STOP_NONE, JINJA_STOP_MEMORY, JINJA_STOP_STEPS, JINJA_STOP_SIZE };

/* What one run may use. The first limit hit stays in stop. */
struct jinja_heap {
    struct arena *arena;
    uint64_t steps_left;
    enum jinja_stop stop;
};
void *jinja_text_alloc(struct jinja_heap *h, size_t count, size_t size); /* zeroed; NULL: stopped */
void jinja_text_charge(struct jinja_heap *h, size_t steps);

struct jinja_piece {
    uint32_t end; /* first byte that is not in it; it begins where the one before ends */
    uint32_t origin;
};
struct jinja_text {
    char *p;
    uint32_t used, cap; /* cap == used: bytes of somebody else, never appended to */
    struct jinja_piece *pieces;
    uint32_t pieces_count, pieces_cap;
    bool is_ascii; /* of all used bytes */
};
struct jinja_str {
    struct jinja_text *text; /* NULL: empty */
    uint32_t off, len;
};

/* View of bytes that outlive the run. */
struct jinja_str jinja_text_of(struct jinja_heap *h, str bytes, uint32_t origin);
static inline str jinja_text_bytes(struct jinja_str s)
{
    return s.len ? (str){s.text->p + s.off, s.len} : (str){"", 0};
}
bool jinja_text_eq(struct jinja_str a, struct jinja_str b);
/* Origin of the byte at offset at < len; *end becomes the first offset behind its piece. */
uint32_t jinja_text_origin(struct jinja_str s, uint32_t at, uint32_t *end);
/* 0 when every byte is scaffold, else the first other origin: what is computed from s has it. */
uint32_t jinja_text_taint(struct jinja_str s);

/* Building: begin, add, end. */
struct jinja_build {
    struct jinja_heap *h;
    struct jinja_text *text;
    uint32_t off;
};
struct jinja_build jinja_text_begin(struct jinja_heap *h);
void jinja_text_add(struct jinja_build *b, str bytes, uint32_t origin);
void jinja_text_add_str(struct jinja_build *b, struct jinja_str s);
struct jinja_str jinja_text_end(struct jinja_build *b);

struct jinja_str jinja_text_concat(struct jinja_heap *h, struct jinja_str a, struct jinja_str b);
/* Bytes [from, to) of s; both on code point borders. */
struct jinja_str jinja_text_cut(struct jinja_str s, size_t from, size_t to);

/* Code points. */
size_t jinja_text_length(struct jinja_heap *h, struct jinja_str s);
/* s[from:to:step] with Python's rules for count code points: from, to already clipped. */
struct jinja_str jinja_text_slice(struct jinja_heap *h, struct jinja_str s, int64_t from,
                                  int64_t to, int64_t step);
/* Offset in bytes of the first what at or after from, or STR_NONE. */
size_t jinja_text_find(struct jinja_heap *h, struct jinja_str s, str what, size_t from);

/* As str.replace: every occurrence, or the first count of them if count >= 0; old "" stands
 * between all code points. What stays keeps its origin, what is put in has its own. */
struct jinja_str jinja_text_replace(struct jinja_heap *h, struct jinja_str s, str old,
                                    struct jinja_str with, int64_t count);
enum jinja_side { JINJA_SIDE_LEFT = 1, JINJA_SIDE_RIGHT = 2, JINJA_SIDE_BOTH = 3 };
/* Without the code points of chars at the sides; chars.p == NULL: without blanks. */
struct jinja_str jinja_text_strip(struct jinja_heap *h, struct jinja_str s, str chars,
                                  enum jinja_side side);
enum jinja_change { JINJA_CHANGE_LOWER, JINJA_CHANGE_UPPER, JINJA_CHANGE_TITLE,
                    JINJA_CHANGE_CAPITALIZE };
struct jinja_str jinja_text_change(struct jinja_heap *h, struct jinja_str s, enum jinja_change to);
/* The next line of str.splitlines: false at the end. *at starts at 0; with_end keeps its "\n". */
bool jinja_text_line(struct jinja_str s, uint32_t *at, bool with_end, struct jinja_str *line);
/* As repr(): quoted and escaped. */
void jinja_text_add_repr(struct jinja_build *b, struct jinja_str s);

#endif
