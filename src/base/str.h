/* str - a view of bytes: pointer and length, usually text, not NUL-terminated.
 *
 * Owns:      comparing, splitting, searching, checked numbers, sizes and durations as text.
 * Not:       the bytes (arena, buf or a literal own them).
 * Invariant: len 0 allows p == NULL. A str never outlives what it views.
 * Thread:    any; pure functions.
 */
#ifndef SHOAL_BASE_STR_H
#define SHOAL_BASE_STR_H

#include "base/base.h"

typedef struct str {
    const char *p;
    size_t len;
} str;

/* STR("literal"): also valid in initialisers of static tables. */
#define STR(literal) ((str){"" literal, sizeof(literal) - 1})
#define STR_INIT(literal) {"" literal, sizeof(literal) - 1}
/* printf("%.*s", STR_ARG(s)) */
#define STR_ARG(s) ((int)((s).len > 0x7fffffff ? 0x7fffffff : (s).len)), ((s).len ? (s).p : "")

static inline str str_view(const void *p, size_t len) { return (str){(const char *)p, len}; }
str str_of(const char *z); /* NULL gives the empty str */

bool str_eq(str a, str b);
bool str_eq_z(str a, const char *z);
bool str_eq_nocase(str a, str b); /* ASCII letters only */
int str_cmp(str a, str b); /* by bytes, then by length */
bool str_starts(str s, str prefix);
bool str_ends(str s, str suffix);
#define STR_NONE ((size_t)-1)
size_t str_find(str s, str what);    /* first offset, or STR_NONE */
size_t str_find_byte(str s, char c); /* first offset, or STR_NONE */

/* s[from .. from + len), cut to what there is. */
str str_sub(str s, size_t from, size_t len);
static inline str str_from(str s, size_t from) { return str_sub(s, from, (size_t)-1); }
/* Without ASCII blanks (space, tab, CR, LF) at both ends. */
str str_trim(str s);
/* Cuts *rest at the first sep: returns the head, *rest becomes the tail; without sep the head is
 * all of it and *rest empty. False when *rest was empty. */
bool str_split(str *rest, char sep, str *head);

/* '*' any run, '?' one byte; the whole of s must match. Linear in the product, no recursion. */
bool str_glob(str pattern, str s);

/* Whole string, decimal, no blanks, no sign for u64; false on overflow or anything else. */
bool str_to_u64(str s, uint64_t *out);
bool str_to_i64(str s, int64_t *out);
bool str_to_double(str s, double *out); /* finite decimal; independent of the locale */
/* "512MiB", "4G" (= GiB), bare = bytes; and "300ms", "1h30m", bare = seconds, in ms. */
bool str_to_size(str s, uint64_t *out);
bool str_to_duration_ms(str s, int64_t *out);

/* Fewest bytes to insert, delete or replace, case ignored (ASCII); limit + 1 when it is more.
 * Texts over 64 bytes are far from everything. For "did you mean". */
uint32_t str_distance(str a, str b, uint32_t limit);

/* Length in bytes of the longest valid UTF-8 prefix. */
size_t str_utf8_valid(str s);
/* Bytes of s that may be shown now: s without a begun but unfinished sequence at its end. */
size_t str_utf8_complete(str s);
/* Decodes one code point at s (not empty): its byte length, or 0 if invalid there. */
size_t str_utf8_decode(str s, uint32_t *code_point);
/* Writes 1 to 4 bytes; the code point must be valid and no surrogate. */
size_t str_utf8_encode(char out[4], uint32_t code_point);

#endif
