/* Tests: value is NAME(arguments). */
#include <math.h>

#include "chat/jinja_case.h"
#include "chat/jinja_eval.h"

static bool answer(struct jinja_value *out, bool holds)
{
    *out = jinja_value_bool(holds);
    return true;
}

static bool test_defined(struct jinja_call *c, struct jinja_value *out)
{
    return answer(out, (c->self.kind != JINJA_UNDEFINED) == (c->which == 0));
}

static bool test_kind(struct jinja_call *c, struct jinja_value *out)
{
    return answer(out, c->self.kind == c->which ||
                           (c->which == JINJA_INT && c->self.kind == JINJA_BIG));
}

static bool test_bool(struct jinja_call *c, struct jinja_value *out)
{
    return answer(out, c->self.kind == JINJA_BOOL && c->self.u.b == (c->which == 1));
}

static bool test_number(struct jinja_call *c, struct jinja_value *out)
{
    return answer(out, c->self.kind == JINJA_BOOL || c->self.kind == JINJA_INT ||
                           c->self.kind == JINJA_FLOAT || c->self.kind == JINJA_BIG);
}

/* What has len() and []: dict views and iterators lack one. */
static bool test_sequence(struct jinja_call *c, struct jinja_value *out)
{
    return answer(out, c->self.kind == JINJA_STRING || c->self.kind == JINJA_DICT ||
                           c->self.kind == JINJA_UNDEFINED ||
                           (c->self.kind == JINJA_LIST && c->self.flavour <= JINJA_LIST_RANGE));
}

static bool test_iterable(struct jinja_call *c, struct jinja_value *out)
{
    return answer(out, c->self.kind == JINJA_STRING || c->self.kind == JINJA_DICT ||
                           c->self.kind == JINJA_UNDEFINED || c->self.kind == JINJA_LIST ||
                           c->self.kind == JINJA_LOOP);
}

static bool test_callable(struct jinja_call *c, struct jinja_value *out)
{
    return answer(out, c->self.kind == JINJA_MACRO || c->self.kind == JINJA_FUNCTION ||
                           c->self.kind == JINJA_METHOD || c->self.kind == JINJA_UNDEFINED);
}

static bool test_compare(struct jinja_call *c, struct jinja_value *out)
{
    bool holds;
    bool ok = jinja_op_compare(c->s, (enum jinja_op)c->which, c->self, c->arg[0], &holds);
    return ok && answer(out, holds);
}

/* which: 0 even, 1 odd, 2 divisible by the argument. */
static bool test_divisible(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_value by = c->which == 2 ? c->arg[0] : jinja_value_int(2), rest;
    if (!jinja_op_math(c->s, JINJA_OP_MOD, c->self, by, &rest))
        return false;
    return answer(out, jinja_value_eq(rest, jinja_value_int(c->which == 1)));
}

/* str(v).islower() and isupper(): some letter, and none of the other case. */
static bool test_case(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_str s;
    if (!jinja_eval_str(c->s, c->self, &s))
        return false;
    str bytes = jinja_text_bytes(s);
    bool has = false;
    uint32_t code, low[3], up[3];
    for (size_t at = 0, len; at < bytes.len; at += len) {
        len = str_utf8_decode(str_from(bytes, at), &code);
        jinja_text_charge(c->s->h, 1);
        if (!jinja_case_is_cased(code))
            continue;
        jinja_case_map(JINJA_CASE_LOWER, code, low);
        jinja_case_map(JINJA_CASE_UPPER, code, up);
        bool is_upper = low[0] != code && up[0] == code, is_lower = low[0] == code;
        if (c->which ? !is_upper : !is_lower)
            return answer(out, false);
        has = true;
    }
    return answer(out, has);
}

/* The same object: for what has no identity of its own here, equal and of one kind. */
static bool test_sameas(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_value a = c->self, b = c->arg[0];
    bool same = a.kind == b.kind && (a.kind == JINJA_LIST ? a.u.list == b.u.list
                                     : a.kind == JINJA_DICT ? a.u.dict == b.u.dict
                                                            : jinja_value_eq(a, b));
    return answer(out, same);
}

static bool test_known(struct jinja_call *c, struct jinja_value *out)
{
    if (c->self.kind != JINJA_STRING)
        return answer(out, false);
    str name = jinja_text_bytes(c->self.u.s);
    return answer(out, (c->which ? jinja_check_row(name) : jinja_filter_row(name)) >= 0);
}

static const struct jinja_callee rows[] = {
    {"defined", "", 0, test_defined, 0},
    {"undefined", "", 0, test_defined, 1},
    {"none", "", 0, test_kind, JINJA_NONE},
    {"boolean", "", 0, test_kind, JINJA_BOOL},
    {"integer", "", 0, test_kind, JINJA_INT},
    {"float", "", 0, test_kind, JINJA_FLOAT},
    {"string", "", 0, test_kind, JINJA_STRING},
    {"mapping", "", 0, test_kind, JINJA_DICT},
    {"true", "", 0, test_bool, 1},
    {"false", "", 0, test_bool, 0},
    {"number", "", 0, test_number, 0},
    {"sequence", "", 0, test_sequence, 0},
    {"iterable", "", 0, test_iterable, 0},
    {"callable", "", 0, test_callable, 0},
    {"even", "", 0, test_divisible, 0},
    {"odd", "", 0, test_divisible, 1},
    {"divisibleby", "num", 1, test_divisible, 2},
    {"lower", "", 0, test_case, 0},
    {"upper", "", 0, test_case, 1},
    {"sameas", "other", 1, test_sameas, 0},
    {"filter", "", 0, test_known, 0},
    {"test", "", 0, test_known, 1},
    {"in", "seq", 1, test_compare, JINJA_OP_IN},
    {"equalto", "other", 1, test_compare, JINJA_OP_EQ},
    {"eq", "other", 1, test_compare, JINJA_OP_EQ},
    {"==", "other", 1, test_compare, JINJA_OP_EQ},
    {"ne", "other", 1, test_compare, JINJA_OP_NE},
    {"!=", "other", 1, test_compare, JINJA_OP_NE},
    {"lt", "other", 1, test_compare, JINJA_OP_LT},
    {"<", "other", 1, test_compare, JINJA_OP_LT},
    {"lessthan", "other", 1, test_compare, JINJA_OP_LT},
    {"le", "other", 1, test_compare, JINJA_OP_LE},
    {"<=", "other", 1, test_compare, JINJA_OP_LE},
    {"gt", "other", 1, test_compare, JINJA_OP_GT},
    {">", "other", 1, test_compare, JINJA_OP_GT},
    {"greaterthan", "other", 1, test_compare, JINJA_OP_GT},
    {"ge", "other", 1, test_compare, JINJA_OP_GE},
    {">=", "other", 1, test_compare, JINJA_OP_GE},
};

int32_t jinja_check_row(str name)
{
    for (size_t i = 0; i < countof(rows); i++)
        if (str_eq_z(name, rows[i].name))
            return (int32_t)i;
    return -1;
}

bool jinja_check_run(struct jinja_state *s, int32_t row, struct jinja_value self,
                    const struct jinja_args *args, bool *out)
{
    struct jinja_value v;
    must(row >= 0 && (size_t)row < countof(rows));
    if (!jinja_eval_call(s, &rows[row], self, args, &v))
        return false;
    *out = v.u.b;
    return true;
}
