/* Filters that make or change numbers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "chat/jinja_eval.h"

/* The text of a number as Python's int() and float() take it: no blanks around, single underscores
 * between digits left out. False if it does not fit or an underscore stands elsewhere. */
static bool number_text(struct jinja_heap *h, struct jinja_str s, char *out, size_t size, str *text)
{
    str in = jinja_text_bytes(jinja_text_strip(h, s, (str){NULL, 0}, JINJA_SIDE_BOTH));
    size_t n = 0;
    for (size_t i = 0; i < in.len; i++) {
        if (in.p[i] == '_') {
            if (i == 0 || i + 1 == in.len || in.p[i - 1] == '_' || in.p[i + 1] == '_')
                return false;
            continue;
        }
        if (n + 1 >= size)
            return false;
        out[n++] = in.p[i];
    }
    out[n] = 0;
    *text = (str){out, n};
    return n > 0;
}

static bool float_of(struct jinja_heap *h, struct jinja_str s, double *out)
{
    static const struct {
        const char *word;
        double value;
    } words[] = {{"nan", NAN}, {"inf", INFINITY}, {"infinity", INFINITY}};
    char buffer[400];
    str text;
    if (!number_text(h, s, buffer, sizeof buffer, &text))
        return false;
    bool is_negative = text.p[0] == '-';
    str digits = str_from(text, text.p[0] == '-' || text.p[0] == '+');
    for (size_t i = 0; i < countof(words); i++) {
        bool same = digits.len == strlen(words[i].word);
        for (size_t k = 0; same && k < digits.len; k++)
            same = (digits.p[k] | 32) == words[i].word[k];
        if (same) {
            *out = is_negative ? -words[i].value : words[i].value;
            return true;
        }
    }
    if (!str_to_double(digits, out))
        return false;
    *out = is_negative ? -*out : *out;
    return true;
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10
                                                                               : 99;
}

/* 1: *out is it; 0: no integer; -1: beyond 64 bits. */
static int int_of(struct jinja_heap *h, struct jinja_str s, int64_t base, int64_t *out)
{
    char buffer[400];
    str text;
    uint64_t n = 0;
    if (!number_text(h, s, buffer, sizeof buffer, &text))
        return 0;
    bool is_negative = text.p[0] == '-';
    text = str_from(text, text.p[0] == '-' || text.p[0] == '+');
    int prefix = text.len > 2 && text.p[0] == '0' ? (text.p[1] | 32) : 0;
    if ((prefix == 'x' && base == 16) || (prefix == 'o' && base == 8) ||
        (prefix == 'b' && base == 2))
        text = str_from(text, 2);
    if (text.len == 0)
        return 0;
    for (size_t i = 0; i < text.len; i++)
        if (digit_of(text.p[i]) >= base)
            return 0;
    for (size_t i = 0; i < text.len; i++)
        if (__builtin_mul_overflow(n, (uint64_t)base, &n) ||
            __builtin_add_overflow(n, (uint64_t)digit_of(text.p[i]), &n) ||
            n > (uint64_t)INT64_MAX + is_negative)
            return -1;
    *out = is_negative ? (int64_t)(0 - n) : (int64_t)n;
    return 1;
}

static bool too_big(struct jinja_call *c)
{
    return jinja_eval_fail(c->s, ERR_UNSUPPORTED, "'%s': an integer beyond 64 bits", c->name);
}

static bool truncated(struct jinja_call *c, double f, struct jinja_value *out)
{
    if (fabs(f) >= 9223372036854775808.0)
        return too_big(c);
    *out = jinja_value_int((int64_t)f);
    return true;
}

bool jinja_number_int(struct jinja_call *c, struct jinja_value *out)
{
    int64_t i = 0, base = 10;
    double f;
    if (jinja_call_has(c, 1) && (!jinja_op_int(c->arg[1], &base) || base < 2 || base > 36))
        return jinja_eval_fail(c->s, ERR_UNSUPPORTED, "'int': a base from 2 to 36 expected");
    if (c->self.kind == JINJA_UNDEFINED)
        return jinja_eval_undefined(c->s, c->self);
    *out = c->self;
    if (c->self.kind == JINJA_BIG)
        return true;
    if (c->self.kind == JINJA_FLOAT && isfinite(c->self.u.f))
        return truncated(c, c->self.u.f, out);
    if (c->self.kind == JINJA_FLOAT && isinf(c->self.u.f))
        return jinja_eval_fail(c->s, ERR_FORMAT, "'int': an infinite number has no integer");
    int found = jinja_op_int(c->self, &i) ? 1
                : c->self.kind == JINJA_STRING ? int_of(c->s->h, c->self.u.s, base, &i) : 0;
    if (found < 0)
        return too_big(c);
    *out = jinja_value_int(i);
    if (found > 0)
        return true;
    if (c->self.kind == JINJA_STRING && float_of(c->s->h, c->self.u.s, &f) && isfinite(f))
        return truncated(c, f, out);
    *out = jinja_call_has(c, 0) ? c->arg[0] : jinja_value_int(0);
    return true;
}

bool jinja_number_float(struct jinja_call *c, struct jinja_value *out)
{
    int64_t i;
    double f = 0;
    if (c->self.kind == JINJA_UNDEFINED)
        return jinja_eval_undefined(c->s, c->self);
    bool found = true;
    if (jinja_op_int(c->self, &i))
        f = (double)i;
    else if (c->self.kind == JINJA_FLOAT)
        f = c->self.u.f;
    else
        found = (c->self.kind == JINJA_STRING || c->self.kind == JINJA_BIG) &&
                float_of(c->s->h, c->self.u.s, &f);
    *out = found ? jinja_value_float(f)
                 : jinja_call_has(c, 0) ? c->arg[0] : jinja_value_float(0);
    return true;
}

/* Correctly rounded, halves to even: printing does it on the exact binary value. */
static double rounded(double f, int64_t precision)
{
    char text[512];
    double r;
    if (!isfinite(f) || precision > 17 + 308)
        return f;
    if (precision < 0) {
        double unit = pow(10, (double)-precision);
        return isinf(unit) ? 0 * f : nearbyint(f / unit) * unit;
    }
    int len = snprintf(text, sizeof text, "%.*f", (int)precision, f);
    return len > 0 && (size_t)len < sizeof text && str_to_double((str){text, (size_t)len}, &r) ? r
                                                                                               : f;
}

bool jinja_number_round(struct jinja_call *c, struct jinja_value *out)
{
    int64_t i, precision = 0;
    str method = STR("common");
    bool is_int = jinja_op_int(c->self, &i);
    if (c->self.kind == JINJA_UNDEFINED)
        return jinja_eval_undefined(c->s, c->self);
    if (!is_int && c->self.kind != JINJA_FLOAT)
        return jinja_eval_fail(c->s, ERR_FORMAT, "'round': a number expected, not '%s'",
                               jinja_value_type(c->self));
    if (jinja_call_has(c, 0) && !jinja_op_int(c->arg[0], &precision))
        return jinja_eval_fail(c->s, ERR_FORMAT, "'round': an integer expected as precision");
    if (jinja_call_has(c, 1) && c->arg[1].kind == JINJA_STRING)
        method = jinja_text_bytes(c->arg[1].u.s);
    double f = is_int ? (double)i : c->self.u.f, unit = pow(10, (double)precision);
    if (str_eq_z(method, "common") && is_int && precision >= 0)
        *out = jinja_value_int(i);
    else if (str_eq_z(method, "common") && is_int)
        return truncated(c, rounded(f, precision), out);
    else if (str_eq_z(method, "common"))
        *out = jinja_value_float(rounded(f, precision));
    else if (str_eq_z(method, "ceil"))
        *out = jinja_value_float(ceil(f * unit) / unit);
    else if (str_eq_z(method, "floor"))
        *out = jinja_value_float(floor(f * unit) / unit);
    else
        return jinja_eval_fail(c->s, ERR_FORMAT, "'round': method must be common, ceil or floor");
    return true;
}

bool jinja_number_abs(struct jinja_call *c, struct jinja_value *out)
{
    int64_t i;
    if (c->self.kind == JINJA_UNDEFINED)
        return jinja_eval_undefined(c->s, c->self);
    if (c->self.kind == JINJA_FLOAT) {
        *out = jinja_value_float(fabs(c->self.u.f));
        return true;
    }
    if (!jinja_op_int(c->self, &i))
        return jinja_eval_fail(c->s, ERR_FORMAT, "'abs': a number expected, not '%s'",
                               jinja_value_type(c->self));
    *out = jinja_value_int(i);
    return i >= 0 || jinja_op_negate(c->s, *out, out);
}
