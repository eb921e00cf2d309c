#include "grammar/gram_number.h"

#include <string.h>

/* --- written out --------------------------------------------------------------------------- */

/* digits: all of them, without zeros at both ends; point: how many stand before it. */
struct number_text {
    char digits[GRAM_NUMBER_BOUND_MAX * 2];
    size_t len;
    int64_t point;
    bool is_negative;
};

static bool number_too_long(struct err *e)
{
    return err_set(e, ERR_LIMIT, "a number has more than %u digits, written out",
                   GRAM_NUMBER_BOUND_MAX);
}

static bool number_read(struct number_text *t, str s, struct err *e)
{
    size_t at = 0;
    int64_t exponent = 0;
    bool in_fraction = false;
    *t = (struct number_text){.is_negative = s.len && s.p[0] == '-'};
    for (at = t->is_negative; at < s.len && s.p[at] != 'e' && s.p[at] != 'E'; at++) {
        if (s.p[at] == '.') {
            in_fraction = true;
            continue;
        }
        if (t->len == GRAM_NUMBER_BOUND_MAX)
            return number_too_long(e);
        if (t->len == 0 && s.p[at] == '0')
            t->point -= in_fraction; /* a leading zero */
        else
            t->digits[t->len++] = s.p[at];
        if (!in_fraction && t->len)
            t->point++;
    }
    if (at < s.len) {
        str text = str_from(s, at + 1);
        if (text.len && text.p[0] == '+')
            text = str_from(text, 1);
        if (!str_to_i64(text, &exponent) || exponent > 100000 || exponent < -100000)
            return number_too_long(e);
    }
    while (t->len && t->digits[t->len - 1] == '0')
        t->len--;
    t->point = t->len ? t->point + exponent : 0;
    t->is_negative = t->is_negative && t->len;
    if (t->point > (int64_t)GRAM_NUMBER_BOUND_MAX || t->point < -(int64_t)GRAM_NUMBER_BOUND_MAX)
        return number_too_long(e);
    return true;
}

/* Parts before and behind the point; the first is "0" at least, the second may be empty. */
struct number_parts {
    char whole[GRAM_NUMBER_BOUND_MAX * 2 + 2], fraction[GRAM_NUMBER_BOUND_MAX * 2 + 2];
    size_t whole_len, fraction_len;
    bool is_negative;
};

static bool number_parts(struct number_parts *p, str s, struct err *e)
{
    struct number_text t;
    if (!number_read(&t, s, e))
        return false;
    *p = (struct number_parts){.is_negative = t.is_negative};
    for (int64_t i = 0; i < t.point; i++)
        p->whole[p->whole_len++] = i < (int64_t)t.len ? t.digits[i] : '0';
    if (p->whole_len == 0)
        p->whole[p->whole_len++] = '0';
    for (int64_t i = t.point; i < 0; i++)
        p->fraction[p->fraction_len++] = '0';
    for (int64_t i = t.point > 0 ? t.point : 0; i < (int64_t)t.len; i++)
        p->fraction[p->fraction_len++] = t.digits[i];
    return true;
}

bool gram_number_plain(struct buf *out, str number, struct err *e)
{
    struct number_parts p;
    if (!number_parts(&p, number, e))
        return false;
    buf_add_z(out, p.is_negative ? "-" : "");
    buf_add_bytes(out, p.whole, p.whole_len);
    if (p.fraction_len) {
        buf_add_byte(out, '.');
        buf_add_bytes(out, p.fraction, p.fraction_len);
    }
    return true;
}

/* --- forms --------------------------------------------------------------------------------- */

void gram_number_form(struct buf *out, enum gram_number_form form)
{
    if (form == GRAM_NUMBER_INTEGER) {
        buf_printf(out, "0|-?[1-9]\\d{0,%u}", GRAM_NUMBER_DIGITS - 1);
        return;
    }
    /* So many digits before the point, at most the rest behind it. */
    buf_printf(out, "-?(?:0(?:\\.\\d{1,%u})?|[1-9](?:\\d{0,%u}", GRAM_NUMBER_DIGITS - 1,
               GRAM_NUMBER_DIGITS - 1);
    for (uint32_t i = 1; i < GRAM_NUMBER_DIGITS; i++)
        buf_printf(out, "|\\d{%u}\\.\\d{1,%u}", i - 1, GRAM_NUMBER_DIGITS - i);
    buf_add_z(out, "))");
    /* 17 digits and an exponent up to 289 stay below the largest double. */
    if (form == GRAM_NUMBER_ANY)
        buf_add_z(out, "(?:[eE](?:-\\d{1,3}|\\+?(?:\\d{1,2}|1\\d\\d|2[0-8]\\d)))?");
}

/* --- bounds on a magnitude ----------------------------------------------------------------- */

static void number_digits(struct buf *out, char low, char high)
{
    if (low == high)
        buf_add_byte(out, low);
    else
        buf_printf(out, "[%c-%c]", low, high);
}

/* Fractions from f on, the point included; what stands before it is equal. */
static void number_fraction_low(struct buf *out, str f, bool is_exclusive)
{
    if (f.len == 0) {
        buf_add_z(out, is_exclusive ? "\\.\\d*[1-9]\\d*" : "(?:|\\.\\d+)");
        return;
    }
    buf_add_z(out, "(?:");
    for (size_t i = 0; i < f.len; i++) { /* equal so far, then larger */
        if (f.p[i] == '9')
            continue;
        buf_printf(out, "\\.%.*s", (int)i, f.p);
        number_digits(out, (char)(f.p[i] + 1), '9');
        buf_add_z(out, "\\d*|");
    }
    buf_printf(out, "\\.%.*s%s)", STR_ARG(f), is_exclusive ? "\\d*[1-9]\\d*" : "\\d*");
}

/* ... or up to f. */
static void number_fraction_high(struct buf *out, str f, bool is_exclusive)
{
    buf_add_z(out, "(?:|\\.0+"); /* nothing, or nothing but zeros */
    for (size_t i = 0; i < f.len; i++) { /* equal so far, then smaller, or zeros only */
        if (f.p[i] > '0') {
            buf_printf(out, "|\\.%.*s", (int)i, f.p);
            number_digits(out, '0', (char)(f.p[i] - 1));
            buf_add_z(out, "\\d*");
        }
        if (i > 0)
            buf_printf(out, "|\\.%.*s0*", (int)i, f.p);
    }
    if (f.len && !is_exclusive)
        buf_printf(out, "|\\.%.*s0*", STR_ARG(f));
    buf_add_z(out, ")");
}

/* Magnitudes from w.f on, or up to it: by the number of digits, then digit by digit. */
static void number_magnitude(struct buf *out, const struct number_parts *p, bool is_lower,
                             bool is_exclusive)
{
    str w = str_view(p->whole, p->whole_len), f = str_view(p->fraction, p->fraction_len);
    buf_add_z(out, "(?:");
    if (is_lower)
        buf_printf(out, "[1-9]\\d{%zu,}(?:\\.\\d+)?|", w.len);
    else if (w.len > 1)
        buf_printf(out, "(?:0|[1-9]\\d{0,%zu})(?:\\.\\d+)?|", w.len - 2);
    for (size_t i = 0; i < w.len; i++) {
        char d = w.p[i], low = i == 0 && w.len > 1 ? '1' : '0';
        if (is_lower ? d == '9' : d <= low)
            continue;
        buf_add(out, str_sub(w, 0, i));
        number_digits(out, is_lower ? (char)(d + 1) : low, is_lower ? '9' : (char)(d - 1));
        buf_printf(out, "\\d{%zu}(?:\\.\\d+)?|", w.len - i - 1);
    }
    bool is_empty = !is_lower && is_exclusive && f.len == 0; /* nothing is below w.0 and equal */
    if (is_empty) {
        buf_add_z(out, "[^\\d]");
    } else {
        buf_add(out, w);
        if (is_lower)
            number_fraction_low(out, f, is_exclusive);
        else
            number_fraction_high(out, f, is_exclusive);
    }
    buf_add_z(out, ")");
}

bool gram_number_bound(struct buf *out, const struct gram_number_bound *b, struct err *e)
{
    struct number_parts p;
    if (!number_parts(&p, b->value, e))
        return false;
    static const char any[] = "\\d+(?:\\.\\d+)?";
    bool is_zero = p.whole_len == 1 && p.whole[0] == '0' && p.fraction_len == 0;
    if (is_zero) { /* both signs of zero are zero */
        const char *zero = b->is_exclusive ? "" : "|-?0(?:\\.0+)?";
        buf_add_z(out, b->is_lower ? "" : "-");
        number_magnitude(out, &p, true, true);
        buf_add_z(out, zero);
    } else if (b->is_lower == p.is_negative) { /* all of one sign, and some of the other */
        buf_printf(out, "%s%s|%s", b->is_lower ? "" : "-", any, b->is_lower ? "-" : "");
        number_magnitude(out, &p, false, b->is_exclusive);
        buf_add_z(out, "|-?0(?:\\.0+)?");
    } else {
        buf_add_z(out, b->is_lower ? "" : "-");
        number_magnitude(out, &p, true, b->is_exclusive);
    }
    return !out->full || err_set(e, ERR_LIMIT, "a bound makes too long a pattern");
}
