/* Operators, with Python's rules for mixed kinds. */
#include <math.h>

#include "chat/jinja_eval.h"

static bool is_number(struct jinja_value v)
{
    return v.kind == JINJA_BOOL || v.kind == JINJA_INT || v.kind == JINJA_FLOAT;
}

bool jinja_op_int(struct jinja_value v, int64_t *out)
{
    if (v.kind != JINJA_BOOL && v.kind != JINJA_INT)
        return false;
    *out = v.kind == JINJA_BOOL ? v.u.b : v.u.i;
    return true;
}

static double as_float(struct jinja_value v)
{
    return v.kind == JINJA_FLOAT ? v.u.f : v.kind == JINJA_INT ? (double)v.u.i : (double)v.u.b;
}

static const char *sign_of(enum jinja_op op)
{
    static const char *const signs[] = {"", "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<",
                                        "<=", ">", ">=", "in", "not in"};
    return signs[op];
}

static bool too_big(struct jinja_state *s)
{
    return jinja_eval_fail(s, ERR_UNSUPPORTED, "computing with integers beyond 64 bits is not "
                           "supported");
}

static bool wrong_types(struct jinja_state *s, enum jinja_op op, struct jinja_value a,
                        struct jinja_value b)
{
    return jinja_eval_fail(s, ERR_FORMAT, "unsupported operand types for %s: '%s' and '%s'",
                           sign_of(op), jinja_value_type(a), jinja_value_type(b));
}

/* ---- Numbers ---- */

static bool power(struct jinja_state *s, int64_t base, int64_t exponent, struct jinja_value *out)
{
    int64_t r = 1;
    if (exponent < 0) {
        if (base == 0)
            return jinja_eval_fail(s, ERR_FORMAT, "0.0 cannot be raised to a negative power");
        *out = jinja_value_float(pow((double)base, (double)exponent));
        return true;
    }
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1 && __builtin_mul_overflow(r, base, &r))
            return too_big(s);
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base))
            return too_big(s);
    }
    *out = jinja_value_int(r);
    return true;
}

static bool integers(struct jinja_state *s, enum jinja_op op, int64_t a, int64_t b,
                     struct jinja_value *out)
{
    int64_t r = 0;
    bool overflow = false;
    bool divides = op == JINJA_OP_DIV || op == JINJA_OP_FLOORDIV || op == JINJA_OP_MOD;
    if (divides && b == 0)
        return jinja_eval_fail(s, ERR_FORMAT, "division by zero");
    if (op == JINJA_OP_POW)
        return power(s, a, b, out);
    if (op == JINJA_OP_DIV) {
        *out = jinja_value_float((double)a / (double)b);
        return true;
    }
    if (op == JINJA_OP_ADD)
        overflow = __builtin_add_overflow(a, b, &r);
    else if (op == JINJA_OP_SUB)
        overflow = __builtin_sub_overflow(a, b, &r);
    else if (op == JINJA_OP_MUL)
        overflow = __builtin_mul_overflow(a, b, &r);
    else if (a == INT64_MIN && b == -1)
        overflow = op == JINJA_OP_FLOORDIV; /* the remainder is 0 */
    else /* rounds down: the remainder has the sign of b */
        r = op == JINJA_OP_MOD ? (a % b + b) % b : a / b - (a % b != 0 && (a < 0) != (b < 0));
    if (overflow)
        return too_big(s);
    *out = jinja_value_int(r);
    return true;
}

static bool floats(struct jinja_state *s, enum jinja_op op, double a, double b,
                   struct jinja_value *out)
{
    double r = 0;
    if (b == 0 && (op == JINJA_OP_DIV || op == JINJA_OP_FLOORDIV || op == JINJA_OP_MOD))
        return jinja_eval_fail(s, ERR_FORMAT, "float division by zero");
    if (op == JINJA_OP_ADD)
        r = a + b;
    else if (op == JINJA_OP_SUB)
        r = a - b;
    else if (op == JINJA_OP_MUL)
        r = a * b;
    else if (op == JINJA_OP_DIV)
        r = a / b;
    else if (op == JINJA_OP_POW)
        r = pow(a, b);
    else {
        /* As CPython: the quotient comes from the exact remainder and is made an integer. */
        double rest = fmod(a, b), whole = (a - rest) / b;
        if (rest != 0 && (rest < 0) != (b < 0)) {
            rest += b;
            whole -= 1;
        }
        double down = floor(whole);
        r = op == JINJA_OP_MOD ? (rest == 0 ? copysign(0, b) : rest)
                               : whole == 0 ? copysign(0, a / b) : down + (whole - down > 0.5);
    }
    if (op == JINJA_OP_POW && (isnan(r) || isinf(r)) && isfinite(a) && isfinite(b))
        return jinja_eval_fail(s, ERR_FORMAT, "a power is out of range");
    *out = jinja_value_float(r);
    return true;
}

/* ---- Sequences ---- */

static bool repeat(struct jinja_state *s, struct jinja_value v, int64_t times,
                   struct jinja_value *out)
{
    struct jinja_build b = jinja_text_begin(s->h);
    size_t size = v.kind == JINJA_STRING ? v.u.s.len : v.u.list->count;
    if (v.kind == JINJA_LIST)
        *out = jinja_value_list(s->h, (enum jinja_list_type)v.flavour, v.u.list->origin);
    for (int64_t i = 0; i < times && size && s->h->stop == JINJA_STOP_NONE; i++) {
        jinja_text_charge(s->h, 1);
        if (v.kind == JINJA_STRING)
            jinja_text_add_str(&b, v.u.s);
        for (uint32_t k = 0; v.kind == JINJA_LIST && k < v.u.list->count; k++) {
            jinja_text_charge(s->h, 1);
            jinja_value_push(s->h, *out, v.u.list->items[k]);
        }
    }
    if (v.kind == JINJA_STRING)
        *out = jinja_value_str(jinja_text_end(&b));
    return jinja_eval_ok(s);
}

static bool is_list(struct jinja_value v)
{
    return v.kind == JINJA_LIST && v.flavour <= JINJA_LIST_TUPLE;
}

static bool joined(struct jinja_state *s, struct jinja_value a, struct jinja_value b,
                   struct jinja_value *out)
{
    *out = jinja_value_copy(s->h, a, (enum jinja_list_type)a.flavour);
    for (uint32_t i = 0; i < b.u.list->count && s->h->stop == JINJA_STOP_NONE; i++)
        jinja_value_push(s->h, *out, b.u.list->items[i]);
    jinja_text_charge(s->h, b.u.list->count);
    if (out->kind == JINJA_LIST && out->u.list->origin == 0)
        out->u.list->origin = b.u.list->origin;
    return jinja_eval_ok(s);
}

static bool sequences(struct jinja_state *s, enum jinja_op op, struct jinja_value a,
                      struct jinja_value b, struct jinja_value *out)
{
    int64_t times;
    if (op == JINJA_OP_ADD && a.kind == JINJA_STRING && b.kind == JINJA_STRING) {
        *out = jinja_value_str(jinja_text_concat(s->h, a.u.s, b.u.s));
        return true;
    }
    if (op == JINJA_OP_ADD && is_list(a) && is_list(b) && a.flavour == b.flavour)
        return joined(s, a, b, out);
    if (op == JINJA_OP_MUL && (a.kind == JINJA_STRING || is_list(a)) && jinja_op_int(b, &times))
        return repeat(s, a, times, out);
    if (op == JINJA_OP_MUL && (b.kind == JINJA_STRING || is_list(b)) && jinja_op_int(a, &times))
        return repeat(s, b, times, out);
    if (op == JINJA_OP_MOD && a.kind == JINJA_STRING)
        return jinja_eval_fail(s, ERR_UNSUPPORTED, "'%%' on a string is not supported");
    return wrong_types(s, op, a, b);
}

bool jinja_op_math(struct jinja_state *s, enum jinja_op op, struct jinja_value a,
                   struct jinja_value b, struct jinja_value *out)
{
    int64_t x, y;
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED)
        return jinja_eval_undefined(s, a.kind == JINJA_UNDEFINED ? a : b);
    if (jinja_op_int(a, &x) && jinja_op_int(b, &y))
        return integers(s, op, x, y, out);
    if (is_number(a) && is_number(b))
        return floats(s, op, as_float(a), as_float(b), out);
    if ((a.kind == JINJA_BIG || is_number(a)) && (b.kind == JINJA_BIG || is_number(b)))
        return too_big(s);
    return sequences(s, op, a, b, out);
}

bool jinja_op_negate(struct jinja_state *s, struct jinja_value v, struct jinja_value *out)
{
    if (v.kind != JINJA_FLOAT)
        return jinja_op_math(s, JINJA_OP_SUB, jinja_value_int(0), v, out);
    *out = jinja_value_float(-v.u.f);
    return true;
}

/* ---- Comparisons ---- */

static bool contains(struct jinja_state *s, struct jinja_value what, struct jinja_value in,
                     bool *out)
{
    struct jinja_list *items;
    *out = false;
    if (in.kind == JINJA_STRING) {
        if (what.kind != JINJA_STRING)
            return jinja_eval_fail(s, ERR_FORMAT, "'in' a string needs a string on the left, not "
                                   "'%s'", jinja_value_type(what));
        *out = jinja_text_find(s->h, in.u.s, jinja_text_bytes(what.u.s), 0) != STR_NONE;
        return true;
    }
    bool is_view = in.kind == JINJA_LIST && in.flavour == JINJA_LIST_KEYS;
    if ((in.kind == JINJA_DICT || is_view) && !jinja_value_is_hashable(what))
        return jinja_eval_fail(s, ERR_FORMAT, "unhashable type: '%s'", jinja_value_type(what));
    if (in.kind == JINJA_DICT) {
        *out = jinja_value_find(in.u.dict, what) != NULL;
        return true;
    }
    if (in.kind != JINJA_LIST && in.kind != JINJA_UNDEFINED)
        return jinja_eval_fail(s, ERR_FORMAT, "argument of type '%s' is not iterable",
                               jinja_value_type(in));
    if (in.kind == JINJA_LIST && in.flavour == JINJA_LIST_ITERATOR) { /* read up to the hit */
        struct jinja_list *l = in.u.list;
        if (!jinja_eval_force(s, l))
            return false;
        while (!*out && l->next < l->count)
            *out = jinja_value_eq(l->items[l->next++], what);
        return true;
    }
    if (!jinja_eval_items(s, in, &items))
        return false;
    for (uint32_t i = 0; i < items->count && !*out; i++)
        *out = jinja_value_eq(items->items[i], what);
    jinja_text_charge(s->h, items->count);
    return true;
}

bool jinja_op_compare(struct jinja_state *s, enum jinja_op op, struct jinja_value a,
                      struct jinja_value b, bool *out)
{
    int order = 0;
    if (op == JINJA_OP_EQ || op == JINJA_OP_NE) {
        *out = jinja_value_eq(a, b) == (op == JINJA_OP_EQ);
        jinja_text_charge(s->h, a.kind == JINJA_STRING ? a.u.s.len / 32 : 0);
        return true;
    }
    if (op == JINJA_OP_IN || op == JINJA_OP_NOT_IN) {
        bool ok = contains(s, a, b, out);
        *out = *out == (op == JINJA_OP_IN);
        return ok;
    }
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED)
        return jinja_eval_undefined(s, a.kind == JINJA_UNDEFINED ? a : b);
    if (!jinja_value_order(a, b, &order))
        return jinja_eval_fail(s, ERR_FORMAT, "'%s' not supported between '%s' and '%s'",
                               sign_of(op), jinja_value_type(a), jinja_value_type(b));
    *out = op == JINJA_OP_LT ? order == -1 : op == JINJA_OP_LE ? order == -1 || order == 0
           : op == JINJA_OP_GT ? order == 1 : order == 1 || order == 0;
    return true;
}

/* ---- Slices ---- */

/* One end of a slice, clipped to where counting may begin or stop. */
static int64_t clip(struct jinja_value v, int64_t len, bool down, int64_t otherwise)
{
    int64_t i;
    if (!jinja_op_int(v, &i))
        return otherwise;
    int64_t low = down ? -1 : 0, high = down ? len - 1 : len;
    if (i < 0)
        i = i < -len ? low : i + len;
    return i > high ? high : i < low ? low : i;
}

bool jinja_op_slice(struct jinja_state *s, struct jinja_value v, const struct jinja_value part[3],
                    struct jinja_value *out)
{
    int64_t step = 1, ignored;
    if (v.kind != JINJA_STRING && (v.kind != JINJA_LIST || v.flavour > JINJA_LIST_RANGE))
        return jinja_eval_fail(s, ERR_FORMAT, "a slice of '%s' is not possible",
                               jinja_value_type(v));
    for (int i = 0; i < 3; i++)
        if (part[i].kind != JINJA_NONE && !jinja_op_int(part[i], &ignored))
            return jinja_eval_fail(s, ERR_FORMAT, "a slice needs integers, not '%s'",
                                   jinja_value_type(part[i]));
    if (jinja_op_int(part[2], &step) && step == 0)
        return jinja_eval_fail(s, ERR_FORMAT, "the step of a slice cannot be zero");
    int64_t len = v.kind == JINJA_LIST ? v.u.list->count
                                       : (int64_t)jinja_text_length(s->h, v.u.s);
    bool down = step < 0;
    int64_t from = clip(part[0], len, down, down ? len - 1 : 0);
    int64_t to = clip(part[1], len, down, down ? -1 : len);
    /* A step beyond the end is as good as one at the end, and cannot overflow. */
    step = step > len + 1 ? len + 1 : step < -len - 1 ? -len - 1 : step;
    if (v.kind == JINJA_STRING) {
        *out = jinja_value_str(jinja_text_slice(s->h, v.u.s, from, to, step));
        return jinja_eval_ok(s);
    }
    struct jinja_list *l = v.u.list;
    *out = jinja_value_list(s->h, (enum jinja_list_type)v.flavour, l->origin);
    for (int64_t i = from; (down ? i > to : i < to) && s->h->stop == JINJA_STOP_NONE; i += step) {
        jinja_text_charge(s->h, 1);
        jinja_value_push(s->h, *out, l->items[i]);
    }
    if (v.flavour == JINJA_LIST_RANGE && out->kind == JINJA_LIST) {
        out->u.list->start = l->start + from * l->step;
        out->u.list->stop = l->start + to * l->step;
        out->u.list->step = l->step * step;
    }
    return jinja_eval_ok(s);
}
