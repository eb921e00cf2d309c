/* gram_number - numbers between bounds as patterns over their digits.
 *
 * Owns:      what a JSON number may look like, and patterns for "at least", "at most" a decimal.
 * Not:       reading patterns (gram_dfa), which bounds a schema has (gram_facts).
 * Invariant: a bound compares digits as they stand, so it is exact for decimals of any length.
 *            Numbers have at most GRAM_NUMBER_DIGITS digits; with bounds, no exponent.
 *
 *     minimum 12.5:  3 and more digits | 2 digits, first or second larger | 12.5 and more
 *
 * Thread:    any.
 * Limits:    bounds of GRAM_NUMBER_BOUND_MAX digits, exponents written out.
 */
#ifndef SHOAL_GRAMMAR_GRAM_NUMBER_H
#define SHOAL_GRAMMAR_GRAM_NUMBER_H

#include "base/buf.h"
#include "base/err.h"

#define GRAM_NUMBER_DIGITS 17u
#define GRAM_NUMBER_BOUND_MAX 320u

enum gram_number_form {
    GRAM_NUMBER_INTEGER, /* 0 | -?[1-9]... */
    GRAM_NUMBER_DECIMAL, /* with a fraction, no exponent */
    GRAM_NUMBER_ANY,     /* with fraction and exponent; never too large for a double */
};
/* Pattern of the whole number. */
void gram_number_form(struct buf *out, enum gram_number_form form);

struct gram_number_bound {
    str value;         /* as JSON writes it */
    bool is_lower;     /* at least, else at most */
    bool is_exclusive; /* the bound itself is not allowed */
};
/* Pattern of all decimals within the bound. False: ERR_LIMIT, a bound too long. */
BASE_USE_RESULT bool gram_number_bound(struct buf *out, const struct gram_number_bound *b,
                                       struct err *e);

/* The number written out without exponent, no needless zeros: "-2.5", "1000"; -0 is "0". For
 * comparing. False: ERR_LIMIT. */
BASE_USE_RESULT bool gram_number_plain(struct buf *out, str number, struct err *e);

#endif
