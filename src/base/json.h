/* json - reads JSON into an arena without copying it, and writes it as a stream.
 *
 * Owns:      the tape of a parsed document (arena), escapes, the shortest form of a float.
 * Not:       what members mean and which are allowed (dialect, fmt, store); JSON Schema (grammar).
 * Invariant: strict RFC 8259 in valid UTF-8 (a byte order mark is skipped). Nothing is lost:
 *            numbers stay as written, members keep their order, equal keys stay visible. Strings
 *            that are not valid Unicode after unescaping are repaired with U+FFFD.
 *
 *     body:  {"a": [1, "x"], "b": null}
 *     tape:  {5 | "a" | [2 | 1 | "x" | "b" | null      8 bytes a value: kind, where in the body,
 *                                                      length of a text or values inside
 *
 * Thread:    a parsed document is immutable; a writer belongs to its owner.
 * Limits:    JSON_SIZE_MAX bytes, the caller's depth; memory <= 4 x body + 1 MiB, even for `[],[],`
 *            or `1,1,` without end, the texts of all strings included.
 */
#ifndef SHOAL_BASE_JSON_H
#define SHOAL_BASE_JSON_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

#define JSON_SIZE_MAX (((size_t)1 << 28) - 1)
#define JSON_DEPTH_MAX 512
#define JSON_NUMBER_MAX 32 /* bytes that a formatted number needs, NUL included */

enum json_kind {
    JSON_KIND_ABSENT, /* no such member: reading it as anything fails */
    JSON_KIND_NULL,
    JSON_KIND_BOOL,
    JSON_KIND_NUMBER,
    JSON_KIND_STRING,
    JSON_KIND_ARRAY,
    JSON_KIND_OBJECT,
};

struct json_tape;
struct json { /* a value: passed by value, valid as long as body and arena */
    const struct json_tape *tape;
    uint32_t at;
};

struct json_options {
    uint32_t depth_max; /* 1 .. JSON_DEPTH_MAX */
    bool refuse_duplicates; /* ERR_FORMAT for two equal keys in one object */
};

/* body must outlive *out. ERR_FORMAT "json: messages[2].content: line 1, column 87: ',' or ']'
 * expected", ERR_LIMIT (size, depth), ERR_MEMORY (arena full). */
bool json_parse(struct json *out, str body, const struct json_options *o, struct arena *a,
                struct err *e) BASE_USE_RESULT;

enum json_kind json_kind(struct json v);
const char *json_kind_name(enum json_kind kind); /* "string", for messages */

/* Members and elements in order: struct json_walk w = json_walk(v); while (json_next(&w)) ... */
struct json_walk {
    struct json key, value; /* key is absent in an array */
    uint32_t next, end;
    bool is_object;
};
struct json_walk json_walk(struct json container); /* empty for anything else */
bool json_next(struct json_walk *w);

/* The last member of that name, or an absent value; also when v is no object. Linear. */
struct json json_member(struct json v, const char *key);
/* Element at i or absent; linear. */
struct json json_at(struct json v, uint32_t i);
uint32_t json_count(struct json v); /* elements, or members with equal keys counted each; linear */

/* Text of a string: a view into the body, or unescaped in the arena. p is NULL when v is no string
 * or (a->is_full) the arena is. An empty text has a pointer. */
str json_text(struct json v, struct arena *a);
bool json_text_eq(struct json v, str text); /* without memory; false for anything but strings */
str json_raw(struct json v);                /* the value as it stands in the body */

/* False for another kind or out of range; *out is untouched then. 5, 5.0 and 0.5e1 are integers. */
bool json_bool(struct json v, bool *out);
bool json_i64(struct json v, int64_t *out);
bool json_u64(struct json v, uint64_t *out);
bool json_double(struct json v, double *out); /* overflow is out of range, not infinite */

/* "messages[2].content", "" for the whole document; names that are no words as ["a b"]. */
bool json_add_path(struct buf *out, struct json v);

/* --- writing ---
 *
 * A writer puts commas and colons; whether the buf got full is seen there. Calls must be balanced
 * and keys must precede the values in objects. */
struct json_writer {
    struct buf *out;
    bool wants_comma;
};
static inline struct json_writer json_writer(struct buf *out)
{
    return (struct json_writer){.out = out};
}
void json_open_object(struct json_writer *w);
void json_close_object(struct json_writer *w);
void json_open_array(struct json_writer *w);
void json_close_array(struct json_writer *w);
void json_key(struct json_writer *w, str key);
void json_key_z(struct json_writer *w, const char *key);

void json_put_text(struct json_writer *w, str text); /* invalid UTF-8 becomes U+FFFD */
void json_put_text_z(struct json_writer *w, const char *text);
void json_put_i64(struct json_writer *w, int64_t v);
void json_put_u64(struct json_writer *w, uint64_t v);
void json_put_double(struct json_writer *w, double v); /* shortest; not finite: null */
void json_put_float(struct json_writer *w, float v);   /* shortest that a float reads back */
void json_put_bool(struct json_writer *w, bool v);
void json_put_null(struct json_writer *w);
/* A key and its value; an empty text: null. */
void json_put_key_text(struct json_writer *w, const char *key, str text);
void json_put_key_bool(struct json_writer *w, const char *key, bool v);
void json_put_key_i64(struct json_writer *w, const char *key, int64_t v);
void json_put_key_u64(struct json_writer *w, const char *key, uint64_t v);
void json_put_raw(struct json_writer *w, str json); /* a complete value, not checked */

/* Text as it stands between the quotes of a string; for strings that are written in pieces. */
bool json_add_escaped(struct buf *out, str text);
/* Shortest digits that read back as the same number, as Python prints them: 0.1, 1e-07, 5.0. */
size_t json_format_double(char out[JSON_NUMBER_MAX], double v); /* v is finite */
size_t json_format_float(char out[JSON_NUMBER_MAX], float v);

#endif
