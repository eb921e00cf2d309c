/* Expressions: tokens to nodes, with the precedence of Jinja2: if-else, or, and, not, comparison,
 * + -, ~, * / // %, **, unary, then postfix, filters and tests. */
#include <string.h>

#include "chat/jinja_ast.h"
#include "chat/jinja_eval.h"

static struct jinja_node *unary(struct jinja_parser *p, bool with_filters);

static bool is_word(const struct jinja_parser *p, const char *word)
{
    return jinja_parse_is(p, JINJA_TOKEN_NAME, word);
}

/* ---- Primaries ---- */

static bool integer_value(struct jinja_parser *p, str digits, struct jinja_value *out)
{
    static const char *const hex = "0123456789abcdef";
    unsigned base = digits.len > 2 && digits.p[0] == '0'
                        ? (digits.p[1] | 32) == 'x' ? 16 : (digits.p[1] | 32) == 'o' ? 8
                          : (digits.p[1] | 32) == 'b' ? 2 : 10 : 10;
    uint64_t n = 0;
    for (size_t i = base == 10 ? 0 : 2; i < digits.len; i++) {
        if (digits.p[i] == '_')
            continue;
        uint64_t digit = (uint64_t)(strchr(hex, digits.p[i] | (digits.p[i] > '9' ? 32 : 0)) - hex);
        if (__builtin_mul_overflow(n, base, &n) || __builtin_add_overflow(n, digit, &n) ||
            n > INT64_MAX)
            return jinja_parse_fail(p, ERR_UNSUPPORTED, "an integer beyond 64 bits");
    }
    *out = jinja_value_int((int64_t)n);
    return true;
}

static bool float_value(struct jinja_parser *p, str digits, struct jinja_value *out)
{
    char text[128];
    size_t n = 0;
    double f;
    for (size_t i = 0; i < digits.len && n < sizeof text; i++)
        if (digits.p[i] != '_')
            text[n++] = digits.p[i];
    if (n == sizeof text || !str_to_double((str){text, n}, &f))
        return jinja_parse_fail(p, ERR_FORMAT, "a number is out of range");
    *out = jinja_value_float(f);
    return true;
}

static struct jinja_node *constant(struct jinja_parser *p, struct jinja_value v)
{
    struct jinja_node *n = jinja_parse_node(p, JINJA_NODE_CONST, p->now.line);
    if (n)
        n->value = v;
    return n;
}

static struct jinja_node *name_or_word(struct jinja_parser *p)
{
    static const struct {
        const char *word;
        enum jinja_kind kind;
        bool b;
    } words[] = {{"true", JINJA_BOOL, true}, {"True", JINJA_BOOL, true},
                 {"false", JINJA_BOOL, false}, {"False", JINJA_BOOL, false},
                 {"none", JINJA_NONE, false}, {"None", JINJA_NONE, false}};
    struct jinja_node *n = NULL;
    for (size_t i = 0; i < countof(words) && !n; i++)
        if (is_word(p, words[i].word)) {
            n = constant(p, words[i].kind == JINJA_NONE ? jinja_value_none()
                                                        : jinja_value_bool(words[i].b));
            return n && jinja_parse_next(p) ? n : NULL;
        }
    n = jinja_parse_node(p, JINJA_NODE_NAME, p->now.line);
    if (n == NULL)
        return NULL;
    n->text = p->now.text;
    n->name = jinja_parse_read(p, n->text);
    return n->name != JINJA_NAME_NONE && jinja_parse_next(p) ? n : NULL;
}

/* Strings side by side are one. */
static struct jinja_node *strings(struct jinja_parser *p)
{
    str s = p->now.text;
    struct jinja_node *n = constant(p, jinja_value_none());
    if (n == NULL || !jinja_parse_next(p))
        return NULL;
    while (p->now.kind == JINJA_TOKEN_STRING) {
        s = arena_printf(p->arena, "%.*s%.*s", STR_ARG(s), STR_ARG(p->now.text));
        if (s.p == NULL || !jinja_parse_next(p))
            return NULL;
    }
    n->value = jinja_value_text(&p->heap, s, 0);
    return jinja_parse_mention(p, s) ? n : NULL;
}

/* Expressions up to close, which is taken; a comma may stand before it. */
static bool items_until(struct jinja_parser *p, struct jinja_node *n, const char *close)
{
    while (!jinja_parse_is_op(p, close)) {
        if (n->first && !jinja_parse_expect(p, JINJA_TOKEN_OPERATOR, ","))
            return false;
        if (jinja_parse_is_op(p, close))
            break;
        if (!jinja_parse_append(p, n, jinja_expr_full(p)))
            return false;
        if (n->kind == JINJA_NODE_DICT && (!jinja_parse_expect(p, JINJA_TOKEN_OPERATOR, ":") ||
                                           !jinja_parse_append(p, n, jinja_expr_full(p))))
            return false;
    }
    return jinja_parse_next(p);
}

static struct jinja_node *bracketed(struct jinja_parser *p)
{
    uint32_t line = p->now.line;
    char open = p->now.text.p[0];
    struct jinja_node *n = NULL;
    if (!jinja_parse_enter(p) || !jinja_parse_next(p))
        return NULL;
    if (open != '(') {
        n = jinja_parse_node(p, open == '[' ? JINJA_NODE_LIST : JINJA_NODE_DICT, line);
        if (n && !items_until(p, n, open == '[' ? "]" : "}"))
            n = NULL;
    } else {
        if (jinja_parse_is_op(p, ")"))
            n = jinja_parse_node(p, JINJA_NODE_TUPLE, line);
        else
            n = jinja_expr_tuple(p, JINJA_TUPLE_FULL);
        if (n && !jinja_parse_expect(p, JINJA_TOKEN_OPERATOR, ")"))
            n = NULL;
    }
    p->nesting--;
    return n;
}

static struct jinja_node *primary(struct jinja_parser *p)
{
    struct jinja_node *n = NULL;
    struct jinja_value v;
    switch (p->now.kind) {
    case JINJA_TOKEN_NAME:
        return name_or_word(p);
    case JINJA_TOKEN_STRING:
        return strings(p);
    case JINJA_TOKEN_INTEGER: case JINJA_TOKEN_FLOAT:
        if (p->now.kind == JINJA_TOKEN_INTEGER ? integer_value(p, p->now.text, &v)
                                               : float_value(p, p->now.text, &v))
            n = constant(p, v);
        return n && jinja_parse_next(p) ? n : NULL;
    case JINJA_TOKEN_OPERATOR:
        if (strchr("([{", p->now.text.p[0]))
            return bracketed(p);
        break;
    case JINJA_TOKEN_END: case JINJA_TOKEN_DATA: case JINJA_TOKEN_BLOCK_BEGIN:
    case JINJA_TOKEN_BLOCK_END: case JINJA_TOKEN_PRINT_BEGIN: case JINJA_TOKEN_PRINT_END:
        break;
    }
    jinja_parse_unexpected(p, "an expression");
    return NULL;
}

/* ---- Postfix, filters, tests ---- */

static bool call_args(struct jinja_parser *p, struct jinja_node *n)
{
    bool has_keyword = false, is_first = true;
    if (!jinja_parse_enter(p) || !jinja_parse_next(p))
        return false;
    for (; !jinja_parse_is_op(p, ")"); is_first = false) {
        if (!is_first && !jinja_parse_expect(p, JINJA_TOKEN_OPERATOR, ","))
            return false;
        if (jinja_parse_is_op(p, ")"))
            break;
        if (jinja_parse_is_op(p, "*") || jinja_parse_is_op(p, "**"))
            return jinja_parse_fail(p, ERR_UNSUPPORTED, "'%s' in a call is not supported",
                                    p->now.text.len == 1 ? "*" : "**");
        if (!jinja_parse_peek(p))
            return false;
        struct jinja_node *arg;
        if (p->now.kind == JINJA_TOKEN_NAME && p->ahead.kind == JINJA_TOKEN_OPERATOR &&
            str_eq_z(p->ahead.text, "=")) {
            arg = jinja_parse_node(p, JINJA_NODE_KEYWORD, p->now.line);
            if (arg == NULL)
                return false;
            arg->text = p->now.text;
            has_keyword = true;
            if (!jinja_parse_next(p) || !jinja_parse_next(p) ||
                !jinja_parse_adopt(p, arg, arg->a = jinja_expr_full(p)))
                return false;
        } else if (has_keyword) {
            return jinja_parse_fail(p, ERR_FORMAT, "a plain argument follows one with a name");
        } else {
            arg = jinja_expr_full(p);
        }
        if (!jinja_parse_append(p, n, arg))
            return false;
    }
    p->nesting--;
    return jinja_parse_next(p);
}

static struct jinja_node *call(struct jinja_parser *p, struct jinja_node *callee)
{
    struct jinja_node *n = jinja_parse_node(p, JINJA_NODE_CALL, p->now.line);
    if (n == NULL)
        return NULL;
    n->a = callee;
    return jinja_parse_adopt(p, n, callee) && call_args(p, n) ? n : NULL;
}

static bool is_slice_end(const struct jinja_parser *p)
{
    return jinja_parse_is_op(p, "]") || jinja_parse_is_op(p, ":") || jinja_parse_is_op(p, ",");
}

/* What stands in [ ]: an expression or a slice. */
static struct jinja_node *subscript(struct jinja_parser *p)
{
    struct jinja_node *n = NULL, *parts[3] = {NULL};
    uint32_t line = p->now.line;
    int i = 0;
    if (!jinja_parse_is_op(p, ":")) {
        parts[0] = jinja_expr_full(p);
        if (parts[0] == NULL || !jinja_parse_is_op(p, ":"))
            return parts[0];
    }
    n = jinja_parse_node(p, JINJA_NODE_SLICE, line);
    while (n && jinja_parse_is_op(p, ":") && ++i < 3) {
        if (!jinja_parse_next(p))
            return NULL;
        if (!is_slice_end(p) && (parts[i] = jinja_expr_full(p)) == NULL)
            return NULL;
    }
    if (n == NULL)
        return NULL;
    n->a = parts[0];
    n->b = parts[1];
    n->c = parts[2];
    for (i = 0; i < 3; i++)
        if (parts[i] && !jinja_parse_adopt(p, n, parts[i]))
            return NULL;
    return n;
}

static struct jinja_node *item(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *n = jinja_parse_node(p, JINJA_NODE_ITEM, p->now.line);
    if (n == NULL || !jinja_parse_enter(p) || !jinja_parse_next(p))
        return NULL;
    n->a = of;
    n->b = subscript(p);
    if (!jinja_parse_adopt(p, n, n->a) || !jinja_parse_adopt(p, n, n->b))
        return NULL;
    if (jinja_parse_is_op(p, ",")) {
        jinja_parse_fail(p, ERR_UNSUPPORTED, "several subscripts in one [] are not supported");
        return NULL;
    }
    p->nesting--;
    return jinja_parse_expect(p, JINJA_TOKEN_OPERATOR, "]") ? n : NULL;
}

static struct jinja_node *member(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *n;
    if (!jinja_parse_next(p))
        return NULL;
    if (p->now.kind == JINJA_TOKEN_NAME) {
        n = jinja_parse_node(p, JINJA_NODE_ATTR, p->now.line);
        if (n == NULL || !jinja_parse_mention(p, p->now.text))
            return NULL;
        n->text = p->now.text;
    } else if (p->now.kind == JINJA_TOKEN_INTEGER) {
        struct jinja_value v;
        n = jinja_parse_node(p, JINJA_NODE_ITEM, p->now.line);
        if (n == NULL || !integer_value(p, p->now.text, &v) ||
            !jinja_parse_adopt(p, n, n->b = constant(p, v)))
            return NULL;
    } else {
        jinja_parse_unexpected(p, "a name or number behind '.'");
        return NULL;
    }
    n->a = of;
    return jinja_parse_adopt(p, n, of) && jinja_parse_next(p) ? n : NULL;
}

static struct jinja_node *postfix(struct jinja_parser *p, struct jinja_node *n)
{
    while (n) {
        if (jinja_parse_is_op(p, "."))
            n = member(p, n);
        else if (jinja_parse_is_op(p, "["))
            n = item(p, n);
        else if (jinja_parse_is_op(p, "("))
            n = call(p, n);
        else
            break;
    }
    return n;
}

/* A name that may hold dots. */
static bool dotted(struct jinja_parser *p, str *name, const char *wanted)
{
    if (p->now.kind != JINJA_TOKEN_NAME)
        return jinja_parse_unexpected(p, wanted);
    *name = p->now.text;
    return jinja_parse_next(p);
}

struct jinja_node *jinja_expr_filters(struct jinja_parser *p, struct jinja_node *value,
                                      bool is_inline)
{
    while (is_inline || jinja_parse_is_op(p, "|")) {
        struct jinja_node *n = jinja_parse_node(p, JINJA_NODE_FILTER, p->now.line);
        if (n == NULL || (!is_inline && !jinja_parse_next(p)) ||
            !dotted(p, &n->text, "a filter's name"))
            return NULL;
        is_inline = false;
        n->a = value;
        n->row = jinja_filter_row(n->text);
        if (value && !jinja_parse_adopt(p, n, value))
            return NULL;
        if (jinja_parse_is_op(p, "(") && !call_args(p, n))
            return NULL;
        value = n;
    }
    return value;
}

static bool test_has_arg(const struct jinja_parser *p)
{
    switch (p->now.kind) {
    case JINJA_TOKEN_STRING: case JINJA_TOKEN_INTEGER: case JINJA_TOKEN_FLOAT:
        return true;
    case JINJA_TOKEN_NAME:
        return !is_word(p, "else") && !is_word(p, "or") && !is_word(p, "and");
    case JINJA_TOKEN_OPERATOR:
        return jinja_parse_is_op(p, "[") || jinja_parse_is_op(p, "{");
    case JINJA_TOKEN_END: case JINJA_TOKEN_DATA: case JINJA_TOKEN_BLOCK_BEGIN:
    case JINJA_TOKEN_BLOCK_END: case JINJA_TOKEN_PRINT_BEGIN: case JINJA_TOKEN_PRINT_END:
        break;
    }
    return false;
}

static struct jinja_node *test(struct jinja_parser *p, struct jinja_node *value)
{
    struct jinja_node *n = jinja_parse_node(p, JINJA_NODE_TEST, p->now.line), *not_n = NULL;
    if (n == NULL || !jinja_parse_next(p))
        return NULL;
    if (is_word(p, "not")) {
        not_n = jinja_parse_node(p, JINJA_NODE_NOT, p->now.line);
        if (not_n == NULL || !jinja_parse_next(p))
            return NULL;
    }
    n->a = value;
    if (!jinja_parse_adopt(p, n, value) || !dotted(p, &n->text, "a test's name"))
        return NULL;
    n->row = jinja_check_row(n->text);
    if (jinja_parse_is_op(p, "(")) {
        if (!call_args(p, n))
            return NULL;
    } else if (test_has_arg(p)) {
        if (is_word(p, "is")) {
            jinja_parse_fail(p, ERR_FORMAT, "tests cannot be chained with 'is'");
            return NULL;
        }
        if (!jinja_parse_append(p, n, postfix(p, primary(p))))
            return NULL;
    }
    if (not_n == NULL)
        return n;
    not_n->a = n;
    return jinja_parse_adopt(p, not_n, n) ? not_n : NULL;
}

static struct jinja_node *filters_and_tests(struct jinja_parser *p, struct jinja_node *n)
{
    while (n) {
        if (jinja_parse_is_op(p, "|"))
            n = jinja_expr_filters(p, n, false);
        else if (is_word(p, "is"))
            n = test(p, n);
        else if (jinja_parse_is_op(p, "("))
            n = call(p, n);
        else
            break;
    }
    return n;
}

/* ---- Operators ---- */

static struct jinja_node *unary(struct jinja_parser *p, bool with_filters)
{
    struct jinja_node *n;
    if (jinja_parse_is_op(p, "-") || jinja_parse_is_op(p, "+")) {
        n = jinja_parse_node(p, jinja_parse_is_op(p, "-") ? JINJA_NODE_NEG : JINJA_NODE_POS,
                             p->now.line);
        if (n == NULL || !jinja_parse_enter(p) || !jinja_parse_next(p) ||
            !jinja_parse_adopt(p, n, n->a = unary(p, false)))
            return NULL;
        p->nesting--;
    } else {
        n = primary(p);
    }
    n = postfix(p, n);
    return with_filters ? filters_and_tests(p, n) : n;
}

/* One level of binary operators of equal rank: a list that is worked off from the left. */
struct level {
    enum jinja_node_kind kind;
    struct {
        const char *text;
        enum jinja_op op;
    } ops[4];
    struct jinja_node *(*operand)(struct jinja_parser *p);
};

static enum jinja_op op_at(const struct jinja_parser *p, const struct level *l)
{
    for (size_t i = 0; i < countof(l->ops) && l->ops[i].text; i++)
        if (jinja_parse_is_op(p, l->ops[i].text))
            return l->ops[i].op;
    return JINJA_OP_NONE;
}

static struct jinja_node *binary(struct jinja_parser *p, const struct level *l)
{
    uint32_t line = p->now.line;
    struct jinja_node *left = l->operand(p), *n = NULL;
    for (enum jinja_op op; left && (op = op_at(p, l)) != JINJA_OP_NONE;) {
        if (n == NULL) {
            n = jinja_parse_node(p, l->kind, line);
            if (n == NULL || !jinja_parse_append(p, n, left))
                return NULL;
        }
        if (!jinja_parse_next(p))
            return NULL;
        struct jinja_node *right = l->operand(p);
        if (!jinja_parse_append(p, n, right))
            return NULL;
        right->op = (uint8_t)op;
    }
    return n ? n : left;
}

static struct jinja_node *power_operand(struct jinja_parser *p) { return unary(p, true); }

static struct jinja_node *power(struct jinja_parser *p)
{
    static const struct level l = {JINJA_NODE_MATH, {{"**", JINJA_OP_POW}}, power_operand};
    return binary(p, &l);
}

static struct jinja_node *product(struct jinja_parser *p)
{
    static const struct level l = {JINJA_NODE_MATH,
                                   {{"*", JINJA_OP_MUL}, {"/", JINJA_OP_DIV},
                                    {"//", JINJA_OP_FLOORDIV}, {"%", JINJA_OP_MOD}}, power};
    return binary(p, &l);
}

static struct jinja_node *concat(struct jinja_parser *p)
{
    static const struct level l = {JINJA_NODE_CONCAT, {{"~", JINJA_OP_ADD}}, product};
    return binary(p, &l);
}

static struct jinja_node *sum(struct jinja_parser *p)
{
    static const struct level l = {JINJA_NODE_MATH, {{"+", JINJA_OP_ADD}, {"-", JINJA_OP_SUB}},
                                   concat};
    return binary(p, &l);
}

/* The comparison at the position and how many tokens it has. */
static enum jinja_op compare_op(struct jinja_parser *p, int *tokens)
{
    static const struct {
        const char *text;
        enum jinja_op op;
    } rows[] = {{"==", JINJA_OP_EQ}, {"!=", JINJA_OP_NE}, {"<=", JINJA_OP_LE},
                {">=", JINJA_OP_GE}, {"<", JINJA_OP_LT}, {">", JINJA_OP_GT}};
    *tokens = 1;
    for (size_t i = 0; i < countof(rows); i++)
        if (jinja_parse_is_op(p, rows[i].text))
            return rows[i].op;
    if (is_word(p, "in"))
        return JINJA_OP_IN;
    *tokens = 2;
    if (is_word(p, "not") && jinja_parse_peek(p) && p->ahead.kind == JINJA_TOKEN_NAME &&
        str_eq_z(p->ahead.text, "in"))
        return JINJA_OP_NOT_IN;
    return JINJA_OP_NONE;
}

static struct jinja_node *compare(struct jinja_parser *p)
{
    uint32_t line = p->now.line;
    struct jinja_node *left = sum(p), *n = NULL;
    int tokens;
    for (enum jinja_op op; left && (op = compare_op(p, &tokens)) != JINJA_OP_NONE;) {
        if (n == NULL) {
            n = jinja_parse_node(p, JINJA_NODE_COMPARE, line);
            if (n == NULL || !jinja_parse_append(p, n, left))
                return NULL;
        }
        for (; tokens > 0; tokens--)
            if (!jinja_parse_next(p))
                return NULL;
        struct jinja_node *right = sum(p);
        if (!jinja_parse_append(p, n, right))
            return NULL;
        right->op = (uint8_t)op;
    }
    return n ? n : left;
}

static struct jinja_node *negation(struct jinja_parser *p)
{
    if (!is_word(p, "not"))
        return compare(p);
    struct jinja_node *n = jinja_parse_node(p, JINJA_NODE_NOT, p->now.line);
    if (n == NULL || !jinja_parse_enter(p) || !jinja_parse_next(p) ||
        !jinja_parse_adopt(p, n, n->a = negation(p)))
        return NULL;
    p->nesting--;
    return n;
}

static struct jinja_node *logic(struct jinja_parser *p, const char *word,
                                enum jinja_node_kind kind,
                                struct jinja_node *(*operand)(struct jinja_parser *p))
{
    uint32_t line = p->now.line;
    struct jinja_node *left = operand(p), *n = NULL;
    while (left && is_word(p, word)) {
        if (n == NULL) {
            n = jinja_parse_node(p, kind, line);
            if (n == NULL || !jinja_parse_append(p, n, left))
                return NULL;
        }
        if (!jinja_parse_next(p) || !jinja_parse_append(p, n, operand(p)))
            return NULL;
    }
    return n ? n : left;
}

static struct jinja_node *conjunction(struct jinja_parser *p)
{
    return logic(p, "and", JINJA_NODE_AND, negation);
}

static struct jinja_node *expr_or(struct jinja_parser *p)
{
    return logic(p, "or", JINJA_NODE_OR, conjunction);
}

struct jinja_node *jinja_expr_full(struct jinja_parser *p)
{
    struct jinja_node *value = expr_or(p);
    while (value && is_word(p, "if")) {
        struct jinja_node *n = jinja_parse_node(p, JINJA_NODE_COND, p->now.line);
        if (n == NULL || !jinja_parse_next(p))
            return NULL;
        n->a = expr_or(p);
        n->b = value;
        if (!jinja_parse_adopt(p, n, n->a) || !jinja_parse_adopt(p, n, n->b))
            return NULL;
        if (is_word(p, "else")) {
            if (!jinja_parse_enter(p) || !jinja_parse_next(p) ||
                !jinja_parse_adopt(p, n, n->c = jinja_expr_full(p)))
                return NULL;
            p->nesting--;
        }
        value = n;
    }
    return value;
}

static bool is_tuple_end(const struct jinja_parser *p)
{
    return p->now.kind == JINJA_TOKEN_PRINT_END || p->now.kind == JINJA_TOKEN_BLOCK_END ||
           jinja_parse_is_op(p, ")") || is_word(p, "in");
}

struct jinja_node *jinja_expr_tuple(struct jinja_parser *p, enum jinja_tuple how)
{
    struct jinja_node *(*part)(struct jinja_parser *) =
        how == JINJA_TUPLE_FULL ? jinja_expr_full : expr_or;
    uint32_t line = p->now.line;
    struct jinja_node *first = part(p);
    if (first == NULL || !jinja_parse_is_op(p, ","))
        return first;
    struct jinja_node *n = jinja_parse_node(p, JINJA_NODE_TUPLE, line);
    if (n == NULL || !jinja_parse_append(p, n, first))
        return NULL;
    while (jinja_parse_is_op(p, ",")) {
        if (!jinja_parse_next(p))
            return NULL;
        if (is_tuple_end(p))
            break;
        if (!jinja_parse_append(p, n, part(p)))
            return NULL;
    }
    return n;
}

/* ---- Targets ---- */

static struct jinja_node *target_name(struct jinja_parser *p, bool is_ns)
{
    static const char *const fixed[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < countof(fixed); i++)
        if (is_word(p, fixed[i])) {
            jinja_parse_fail(p, ERR_FORMAT, "cannot assign to '%s'", fixed[i]);
            return NULL;
        }
    struct jinja_node *n = jinja_parse_node(p, JINJA_NODE_NAME, p->now.line);
    if (n == NULL)
        return NULL;
    str name = n->text = p->now.text;
    if (!jinja_parse_next(p))
        return NULL;
    if (is_ns && jinja_parse_is_op(p, ".")) {
        n->kind = JINJA_NODE_NS_TARGET;
        n->name = jinja_parse_read(p, name);
        if (!jinja_parse_next(p) || p->now.kind != JINJA_TOKEN_NAME) {
            jinja_parse_unexpected(p, "a namespace's attribute");
            return NULL;
        }
        n->text = p->now.text;
        return n->name != JINJA_NAME_NONE && jinja_parse_next(p) ? n : NULL;
    }
    n->name = jinja_parse_bind(p, name);
    return n->name != JINJA_NAME_NONE ? n : NULL;
}

static struct jinja_node *target_part(struct jinja_parser *p, bool is_ns)
{
    struct jinja_node *n = NULL;
    if (p->now.kind == JINJA_TOKEN_NAME)
        return target_name(p, is_ns);
    if (!jinja_parse_is_op(p, "(")) {
        jinja_parse_unexpected(p, "a variable to assign to");
        return NULL;
    }
    if (!jinja_parse_enter(p) || !jinja_parse_next(p))
        return NULL;
    n = jinja_expr_target(p, is_ns);
    p->nesting--;
    return n && jinja_parse_expect(p, JINJA_TOKEN_OPERATOR, ")") ? n : NULL;
}

struct jinja_node *jinja_expr_target(struct jinja_parser *p, bool is_ns)
{
    uint32_t line = p->now.line;
    struct jinja_node *first = target_part(p, is_ns);
    if (first == NULL || !jinja_parse_is_op(p, ","))
        return first;
    struct jinja_node *n = jinja_parse_node(p, JINJA_NODE_TUPLE, line);
    if (n == NULL || !jinja_parse_append(p, n, first))
        return NULL;
    while (jinja_parse_is_op(p, ",")) {
        if (!jinja_parse_next(p))
            return NULL;
        if (is_tuple_end(p) || jinja_parse_is_op(p, "="))
            break;
        if (!jinja_parse_append(p, n, target_part(p, is_ns)))
            return NULL;
    }
    return n;
}
