/* Statements: tokens to nodes. Expressions are in jinja_expr.c. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "chat/jinja_ast.h"
#include "chat/jinja_eval.h"

/* ---- Tokens and nodes ---- */

bool jinja_parse_fail(struct jinja_parser *p, enum err_code code, const char *format, ...)
{
    char text[ERR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return err_set(p->e, code, "template line %u: %s", p->now.line, text);
}

static const char *token_name(const struct jinja_token *t)
{
    switch (t->kind) {
    case JINJA_TOKEN_END:
        return "the end of the template";
    case JINJA_TOKEN_DATA: case JINJA_TOKEN_BLOCK_BEGIN: case JINJA_TOKEN_PRINT_BEGIN:
        return "text outside of a tag";
    case JINJA_TOKEN_BLOCK_END:
        return "'%}'";
    case JINJA_TOKEN_PRINT_END:
        return "'}}'";
    case JINJA_TOKEN_STRING:
        return "a string";
    case JINJA_TOKEN_INTEGER: case JINJA_TOKEN_FLOAT:
        return "a number";
    case JINJA_TOKEN_NAME: case JINJA_TOKEN_OPERATOR:
        break;
    }
    return NULL;
}

bool jinja_parse_unexpected(struct jinja_parser *p, const char *wanted)
{
    const char *name = token_name(&p->now);
    if (name)
        return jinja_parse_fail(p, ERR_FORMAT, "%s expected, got %s", wanted, name);
    return jinja_parse_fail(p, ERR_FORMAT, "%s expected, got '%.*s'", wanted,
                            (int)base_min(p->now.text.len, 60), p->now.text.p);
}

bool jinja_parse_next(struct jinja_parser *p)
{
    if (p->has_ahead) {
        p->now = p->ahead;
        p->has_ahead = false;
        return true;
    }
    return jinja_lex_next(&p->lexer, &p->now, p->e);
}

bool jinja_parse_peek(struct jinja_parser *p)
{
    if (!p->has_ahead)
        p->has_ahead = jinja_lex_next(&p->lexer, &p->ahead, p->e);
    return p->has_ahead;
}

bool jinja_parse_expect(struct jinja_parser *p, enum jinja_token_kind kind, const char *text)
{
    char wanted[80];
    if (p->now.kind == kind && (text == NULL || str_eq_z(p->now.text, text)))
        return jinja_parse_next(p);
    if (text == NULL)
        text = kind == JINJA_TOKEN_BLOCK_END ? "%}" : "}}";
    snprintf(wanted, sizeof wanted, "'%s'", text);
    return jinja_parse_unexpected(p, wanted);
}

static bool out_of_memory(struct jinja_parser *p)
{
    return jinja_parse_fail(p, ERR_LIMIT, "out of memory for the template");
}

struct jinja_node *jinja_parse_node(struct jinja_parser *p, enum jinja_node_kind kind,
                                    uint32_t line)
{
    if (++p->nodes_count > JINJA_NODES_MAX) {
        jinja_parse_fail(p, ERR_LIMIT, "more than %u nodes", JINJA_NODES_MAX);
        return NULL;
    }
    struct jinja_node *n = ARENA_NEW(p->arena, struct jinja_node);
    if (n == NULL) {
        out_of_memory(p);
        return NULL;
    }
    n->kind = (uint8_t)kind;
    n->height = 1;
    n->line = line;
    n->name = JINJA_NAME_NONE;
    return n;
}

bool jinja_parse_adopt(struct jinja_parser *p, struct jinja_node *parent, struct jinja_node *child)
{
    if (child == NULL)
        return false;
    if (child->height >= JINJA_HEIGHT_MAX)
        return jinja_parse_fail(p, ERR_LIMIT, "an expression is built of more than %u levels",
                                JINJA_HEIGHT_MAX);
    if (parent->height <= child->height)
        parent->height = (uint16_t)(child->height + 1);
    return true;
}

bool jinja_parse_append(struct jinja_parser *p, struct jinja_node *parent,
                        struct jinja_node *child)
{
    if (!jinja_parse_adopt(p, parent, child))
        return false;
    if (parent->last)
        parent->last->next = child;
    else
        parent->first = child;
    parent->last = child;
    return true;
}

bool jinja_parse_enter(struct jinja_parser *p)
{
    if (p->nesting == JINJA_NESTING_MAX)
        return jinja_parse_fail(p, ERR_LIMIT, "statements and brackets nest deeper than %u",
                                JINJA_NESTING_MAX);
    p->nesting++;
    return true;
}

/* ---- Names ---- */

/* Room for one more element; the array lives in the arena. */
static bool room(struct jinja_parser *p, void *array, uint32_t count, uint32_t *cap, size_t size)
{
    if (count < *cap)
        return true;
    void *old, *more = arena_alloc_array(p->arena, *cap * 2 + 16, size);
    if (more == NULL)
        return out_of_memory(p);
    memcpy(&old, array, sizeof old);
    if (count)
        memcpy(more, old, count * size);
    memcpy(array, &more, sizeof more);
    *cap = *cap * 2 + 16;
    return true;
}

static uint32_t number_of(struct jinja_parser *p, str name)
{
    for (uint32_t i = 0; i < p->names_count; i++)
        if (str_eq(p->names[i].text, name))
            return i;
    if (!room(p, &p->names, p->names_count, &p->names_cap, sizeof *p->names))
        return JINJA_NAME_NONE;
    p->names[p->names_count] = (struct jinja_name){name, false};
    return p->names_count++;
}

uint32_t jinja_parse_read(struct jinja_parser *p, str name)
{
    uint32_t number = number_of(p, name);
    if (number == JINJA_NAME_NONE)
        return number;
    for (uint32_t i = p->bound_count; i-- > 0;)
        if (p->bound[i] == number)
            return number;
    p->names[number].is_read = true;
    return number;
}

uint32_t jinja_parse_bind(struct jinja_parser *p, str name)
{
    uint32_t number = number_of(p, name);
    if (number == JINJA_NAME_NONE ||
        !room(p, &p->bound, p->bound_count, &p->bound_cap, sizeof *p->bound))
        return JINJA_NAME_NONE;
    p->bound[p->bound_count++] = number;
    return number;
}

bool jinja_parse_mention(struct jinja_parser *p, str name)
{
    if (p->mentions_count && str_eq(p->mentions[p->mentions_count - 1], name))
        return true;
    if (!room(p, &p->mentions, p->mentions_count, &p->mentions_cap, sizeof *p->mentions))
        return false;
    p->mentions[p->mentions_count++] = name;
    return true;
}

/* ---- Statements ---- */

static bool statement(struct jinja_parser *p, struct jinja_node **out);

static bool is_one_of(const struct jinja_parser *p, const char *const *words)
{
    for (; p->now.kind == JINJA_TOKEN_NAME && *words; words++)
        if (str_eq_z(p->now.text, *words))
            return true;
    return false;
}

/* One piece of a body: NULL in *out for empty data. */
static bool piece(struct jinja_parser *p, struct jinja_node **out)
{
    uint32_t line = p->now.line;
    *out = NULL;
    if (p->now.kind == JINJA_TOKEN_DATA) {
        if (p->now.text.len) {
            *out = jinja_parse_node(p, JINJA_NODE_DATA, line);
            if (*out == NULL)
                return false;
            (*out)->value = jinja_value_text(&p->heap, p->now.text, 0);
        }
        return (p->heap.stop == JINJA_STOP_NONE || out_of_memory(p)) && jinja_parse_next(p);
    }
    if (p->now.kind == JINJA_TOKEN_PRINT_BEGIN) {
        *out = jinja_parse_node(p, JINJA_NODE_PRINT, line);
        return *out && jinja_parse_next(p) && ((*out)->a = jinja_expr_tuple(p, JINJA_TUPLE_FULL)) &&
               jinja_parse_adopt(p, *out, (*out)->a) &&
               jinja_parse_expect(p, JINJA_TOKEN_PRINT_END, NULL);
    }
    return statement(p, out) && jinja_parse_expect(p, JINJA_TOKEN_BLOCK_END, NULL);
}

/* The body of parent, from the end of its opening tag up to "{% WORD", WORD being the token that is
 * left. In the chain *first of next. */
static bool body_until(struct jinja_parser *p, struct jinja_node *parent, const char *const *words,
                       struct jinja_node **first)
{
    struct jinja_node **end = first;
    uint32_t line = parent->line;
    if (!jinja_parse_enter(p) || (jinja_parse_is_op(p, ":") && !jinja_parse_next(p)) ||
        !jinja_parse_expect(p, JINJA_TOKEN_BLOCK_END, NULL))
        return false;
    for (;;) {
        struct jinja_node *n;
        if (p->now.kind == JINJA_TOKEN_END) {
            p->now.line = line;
            return jinja_parse_fail(p, ERR_FORMAT, "'%s' is missing for the tag of this line",
                                    words[0]);
        }
        if (p->now.kind == JINJA_TOKEN_BLOCK_BEGIN) {
            if (!jinja_parse_next(p))
                return false;
            if (is_one_of(p, words))
                break;
        }
        if (!piece(p, &n))
            return false;
        if (n == NULL)
            continue;
        if (!jinja_parse_adopt(p, parent, n))
            return false;
        *end = n;
        end = &n->next;
    }
    p->nesting--;
    return true;
}

/* A body whose variables end with it. */
static bool scoped_body(struct jinja_parser *p, struct jinja_node *parent,
                        const char *const *words, struct jinja_node **first)
{
    uint32_t bound = p->bound_count;
    bool ok = body_until(p, parent, words, first);
    p->bound_count = bound;
    return ok;
}

static const char *const WORDS_IF[] = {"endif", "elif", "else", NULL}, *const WORDS_ENDIF[] =
    {"endif", NULL}, *const WORDS_FOR[] = {"endfor", "else", NULL}, *const WORDS_ENDFOR[] =
    {"endfor", NULL}, *const WORDS_ENDSET[] = {"endset", NULL}, *const WORDS_ENDMACRO[] =
    {"endmacro", NULL}, *const WORDS_ENDFILTER[] = {"endfilter", NULL},
    *const WORDS_ENDGENERATION[] = {"endgeneration", NULL};

static bool parse_if(struct jinja_parser *p, struct jinja_node *n)
{
    const char *const *words = WORDS_IF;
    for (;;) {
        struct jinja_node *branch = jinja_parse_node(p, JINJA_NODE_BRANCH, p->now.line);
        if (branch == NULL)
            return false;
        if (words == WORDS_IF) {
            branch->a = jinja_expr_tuple(p, JINJA_TUPLE_NO_COND);
            if (!jinja_parse_adopt(p, branch, branch->a))
                return false;
        }
        /* What only one branch sets may still come from the caller behind it. */
        if (!scoped_body(p, branch, words, &branch->body) || !jinja_parse_append(p, n, branch))
            return false;
        if (jinja_parse_is(p, JINJA_TOKEN_NAME, "endif"))
            return jinja_parse_next(p);
        if (jinja_parse_is(p, JINJA_TOKEN_NAME, "else"))
            words = WORDS_ENDIF;
        if (!jinja_parse_next(p))
            return false;
    }
}

static bool parse_for(struct jinja_parser *p, struct jinja_node *n)
{
    uint32_t bound = p->bound_count;
    n->a = jinja_expr_target(p, false);
    uint32_t bound_target = p->bound_count;
    if (!jinja_parse_adopt(p, n, n->a) || !jinja_parse_expect(p, JINJA_TOKEN_NAME, "in"))
        return false;
    p->bound_count = bound; /* the sequence does not see the targets */
    n->b = jinja_expr_tuple(p, JINJA_TUPLE_NO_COND);
    p->bound_count = bound_target;
    if (!jinja_parse_adopt(p, n, n->b))
        return false;
    if (jinja_parse_is(p, JINJA_TOKEN_NAME, "if")) {
        if (!jinja_parse_next(p) || !jinja_parse_adopt(p, n, n->c = jinja_expr_full(p)))
            return false;
    }
    if (jinja_parse_is(p, JINJA_TOKEN_NAME, "recursive"))
        return jinja_parse_fail(p, ERR_UNSUPPORTED, "a recursive 'for' is not supported");
    n->name = jinja_parse_bind(p, STR("loop"));
    p->loops++;
    bool ok = body_until(p, n, WORDS_FOR, &n->body);
    p->loops--;
    p->bound_count = bound;
    if (!ok)
        return false;
    if (jinja_parse_is(p, JINJA_TOKEN_NAME, "else"))
        ok = jinja_parse_next(p) && scoped_body(p, n, WORDS_ENDFOR, &n->c2);
    return ok && jinja_parse_next(p);
}

static bool parse_set(struct jinja_parser *p, struct jinja_node *n)
{
    uint32_t bound = p->bound_count;
    n->a = jinja_expr_target(p, true);
    if (!jinja_parse_adopt(p, n, n->a))
        return false;
    /* The value is made before the targets are: {% set x = x or 1 %} reads the caller's. */
    uint32_t bound_target = p->bound_count;
    p->bound_count = bound;
    bool ok;
    if (jinja_parse_is_op(p, "=")) {
        ok = jinja_parse_next(p) &&
             jinja_parse_adopt(p, n, n->b = jinja_expr_tuple(p, JINJA_TUPLE_FULL));
        p->bound_count = bound_target;
        return ok;
    }
    n->kind = JINJA_NODE_SET_BLOCK;
    if (jinja_parse_is_op(p, "|") &&
        !jinja_parse_adopt(p, n, n->b = jinja_expr_filters(p, NULL, false)))
        return false;
    ok = scoped_body(p, n, WORDS_ENDSET, &n->body) && jinja_parse_next(p);
    /* The names are still there: only the count went back. */
    p->bound_count = bound;
    return ok && (n->a->kind != JINJA_NODE_NAME ||
                  jinja_parse_bind(p, n->a->text) != JINJA_NAME_NONE || out_of_memory(p));
}

static bool parse_params(struct jinja_parser *p, struct jinja_node *n)
{
    bool has_default = false;
    if (!jinja_parse_expect(p, JINJA_TOKEN_OPERATOR, "("))
        return false;
    while (!jinja_parse_is_op(p, ")")) {
        if (n->first && !jinja_parse_expect(p, JINJA_TOKEN_OPERATOR, ","))
            return false;
        if (p->now.kind != JINJA_TOKEN_NAME)
            return jinja_parse_unexpected(p, "a parameter's name");
        struct jinja_node *param = jinja_parse_node(p, JINJA_NODE_PARAM, p->now.line);
        if (param == NULL)
            return false;
        param->text = p->now.text;
        param->name = jinja_parse_bind(p, param->text);
        if (param->name == JINJA_NAME_NONE || !jinja_parse_next(p))
            return false;
        if (jinja_parse_is_op(p, "=")) {
            has_default = true;
            if (!jinja_parse_next(p) || !jinja_parse_adopt(p, param, param->a = jinja_expr_full(p)))
                return false;
        } else if (has_default) {
            return jinja_parse_fail(p, ERR_FORMAT, "parameter '%.*s' without a default follows one "
                                    "with a default", STR_ARG(param->text));
        }
        if (!jinja_parse_append(p, n, param))
            return false;
    }
    return jinja_parse_next(p);
}

static bool parse_macro(struct jinja_parser *p, struct jinja_node *n)
{
    if (p->now.kind != JINJA_TOKEN_NAME)
        return jinja_parse_unexpected(p, "a macro's name");
    n->text = p->now.text;
    n->name = jinja_parse_bind(p, n->text);
    uint32_t bound = p->bound_count, loops = p->loops;
    p->loops = 0;
    bool ok = n->name != JINJA_NAME_NONE && jinja_parse_next(p) && parse_params(p, n) &&
              body_until(p, n, WORDS_ENDMACRO, &n->body) && jinja_parse_next(p);
    p->loops = loops;
    p->bound_count = bound;
    return ok;
}

static bool unknown_statement(struct jinja_parser *p, str word)
{
    static const char *const others[] = {"block", "extends", "include", "import", "from", "with",
                                         "autoescape", "call", "print", "do", "trans"};
    for (size_t i = 0; i < countof(others); i++)
        if (str_eq_z(word, others[i]))
            return jinja_parse_fail(p, ERR_UNSUPPORTED, "statement '%s' is not supported",
                                    others[i]);
    return jinja_parse_fail(p, ERR_FORMAT, "unexpected tag '%.*s'", (int)base_min(word.len, 60),
                            word.p);
}

static bool statement(struct jinja_parser *p, struct jinja_node **out)
{
    static const struct {
        const char *word;
        enum jinja_node_kind kind;
        bool (*parse)(struct jinja_parser *p, struct jinja_node *n);
    } rows[] = {{"if", JINJA_NODE_IF, parse_if}, {"for", JINJA_NODE_FOR, parse_for},
                {"set", JINJA_NODE_SET, parse_set}, {"macro", JINJA_NODE_MACRO, parse_macro},
                {"filter", JINJA_NODE_FILTER_BLOCK, NULL}, {"generation", JINJA_NODE_SCOPE, NULL},
                {"break", JINJA_NODE_BREAK, NULL}, {"continue", JINJA_NODE_CONTINUE, NULL}};
    if (p->now.kind != JINJA_TOKEN_NAME)
        return jinja_parse_unexpected(p, "a statement");
    size_t i = 0;
    while (i < countof(rows) && !str_eq_z(p->now.text, rows[i].word))
        i++;
    if (i == countof(rows))
        return unknown_statement(p, p->now.text);
    struct jinja_node *n = *out = jinja_parse_node(p, rows[i].kind, p->now.line);
    if (n == NULL || !jinja_parse_next(p))
        return false;
    if (rows[i].parse)
        return rows[i].parse(p, n);
    if (rows[i].kind == JINJA_NODE_SCOPE)
        return scoped_body(p, n, WORDS_ENDGENERATION, &n->body) && jinja_parse_next(p);
    if (rows[i].kind == JINJA_NODE_FILTER_BLOCK)
        return jinja_parse_adopt(p, n, n->b = jinja_expr_filters(p, NULL, true)) &&
               scoped_body(p, n, WORDS_ENDFILTER, &n->body) && jinja_parse_next(p);
    return p->loops > 0 ||
           jinja_parse_fail(p, ERR_FORMAT, "'%s' outside of a 'for'", rows[i].word);
}

/* A filter or test that does not exist is refused at once, except behind an 'if': a template may
 * guard a feature of another program. Height is bounded, so recursion is. */
static bool check_rows(struct jinja_parser *p, const struct jinja_node *n, bool is_guarded)
{
    for (; n; n = n->next) {
        bool guarded = is_guarded || n->kind == JINJA_NODE_IF || n->kind == JINJA_NODE_COND;
        bool is_filter = n->kind == JINJA_NODE_FILTER;
        if ((is_filter || n->kind == JINJA_NODE_TEST) && n->row < 0 && !guarded) {
            p->now.line = n->line;
            return jinja_parse_fail(p, ERR_UNSUPPORTED, "%s '%.*s' is not supported",
                                    is_filter ? "filter" : "test",
                                    (int)base_min(n->text.len, 60), n->text.p);
        }
        const struct jinja_node *parts[] = {n->a, n->b, n->c, n->c2, n->body, n->first};
        for (size_t i = 0; i < countof(parts); i++)
            if (parts[i] && !check_rows(p, parts[i], guarded))
                return false;
    }
    return true;
}

bool jinja_parse_all(struct jinja_parser *p, struct jinja_node **root)
{
    struct jinja_node **end;
    *root = jinja_parse_node(p, JINJA_NODE_SCOPE, 1);
    if (*root == NULL || !jinja_parse_next(p))
        return false;
    for (end = &(*root)->body; p->now.kind != JINJA_TOKEN_END;) {
        struct jinja_node *n;
        if (p->now.kind == JINJA_TOKEN_BLOCK_BEGIN && !jinja_parse_next(p))
            return false;
        if (!piece(p, &n))
            return false;
        if (n == NULL)
            continue;
        if (!jinja_parse_adopt(p, *root, n))
            return false;
        *end = n;
        end = &n->next;
    }
    return check_rows(p, *root, false);
}
