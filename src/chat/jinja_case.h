/* jinja_case - what Python's str knows about code points: case, blanks, what repr() shows.
 *
 * Owns:      tables made from Python's (tools/make_jinja_case.py), so that upper, title, strip and
 *            repr give what Jinja2 gives.
 * Not:       strings (jinja_text); splitting and normalising for tokenizers (text/unicode).
 * Invariant: pure functions of a valid code point.
 * Thread:    any.
 */
#ifndef SHOAL_CHAT_JINJA_CASE_H
#define SHOAL_CHAT_JINJA_CASE_H

#include "base/base.h"

enum jinja_case_kind { JINJA_CASE_LOWER, JINJA_CASE_UPPER, JINJA_CASE_TITLE };

/* The full mapping: 1 to 3 code points. The final sigma is the caller's business. */
uint32_t jinja_case_map(enum jinja_case_kind kind, uint32_t c, uint32_t out[3]);
bool jinja_case_is_cased(uint32_t c);
bool jinja_case_is_ignorable(uint32_t c);
bool jinja_case_is_blank(uint32_t c);     /* str.isspace() */
bool jinja_case_is_printable(uint32_t c); /* shown as it is by repr() */

/* Rows of jinja_case_data.c, sorted by code point. */
struct jinja_case_range {
    uint32_t first, last;
    int32_t delta;
    uint32_t stride;
};
struct jinja_case_long {
    uint32_t from, to[3];
};
struct jinja_case_run {
    uint32_t first, last;
};
extern const struct jinja_case_range jinja_case_data_lower[], jinja_case_data_upper[],
    jinja_case_data_title[];
extern const struct jinja_case_long jinja_case_data_lower_long[], jinja_case_data_upper_long[],
    jinja_case_data_title_long[];
extern const struct jinja_case_run jinja_case_data_cased[], jinja_case_data_ignorable[],
    jinja_case_data_hidden[];
extern const uint32_t jinja_case_data_lower_count, jinja_case_data_upper_count,
    jinja_case_data_title_count, jinja_case_data_lower_long_count, jinja_case_data_upper_long_count,
    jinja_case_data_title_long_count, jinja_case_data_cased_count, jinja_case_data_ignorable_count,
    jinja_case_data_hidden_count;

#endif
