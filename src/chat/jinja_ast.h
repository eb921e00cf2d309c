/* jinja_ast - tokens and nodes of a template, shared by the jinja_ files.
 *
 * Owns:      the node and token types; the lexer's and parser's interfaces.
 * Not:       running nodes (jinja_eval.h), what callers of templates see (jinja.h).
 * Invariant: nodes are made once, by jinja_parse and jinja_expr, in the template's arena, and never
 *            change. Children hang in a list from first by next. A tree is at most JINJA_HEIGHT_MAX
 *            high, so that walking it needs a bounded stack.
 * Thread:    compiling: its own; afterwards any.
 * Limits:    jinja.h.
 */
#ifndef SHOAL_CHAT_JINJA_AST_H
#define SHOAL_CHAT_JINJA_AST_H

#include "chat/jinja.h"

enum jinja_node_kind {
    /* Expressions. */
    JINJA_NODE_CONST,   /* value */
    JINJA_NODE_NAME,    /* name */
    JINJA_NODE_LIST, JINJA_NODE_TUPLE, /* children */
    JINJA_NODE_DICT,    /* children: key, value, key, value, ... */
    JINJA_NODE_ATTR,    /* a.text */
    JINJA_NODE_ITEM,    /* a[b] */
    JINJA_NODE_SLICE,   /* a:b:c, each may be NULL; only as b of an ITEM */
    JINJA_NODE_CALL,    /* a(children); KEYWORD children come last */
    JINJA_NODE_KEYWORD, /* text = a */
    JINJA_NODE_FILTER,  /* a | text(children); a NULL: the text of the block it stands for */
    JINJA_NODE_TEST,    /* a is text(children) */
    JINJA_NODE_NOT, JINJA_NODE_NEG, JINJA_NODE_POS, /* a */
    JINJA_NODE_AND, JINJA_NODE_OR, JINJA_NODE_CONCAT, /* children */
    JINJA_NODE_COND,    /* b if a else c; c may be NULL */
    JINJA_NODE_COMPARE, JINJA_NODE_MATH, /* children; from the second on op joins it to the left */
    /* Statements. */
    JINJA_NODE_DATA,    /* value: text as it is */
    JINJA_NODE_PRINT,   /* {{ a }} */
    JINJA_NODE_IF,      /* children: BRANCH */
    JINJA_NODE_BRANCH,  /* a: condition or NULL (else); body */
    JINJA_NODE_FOR,     /* for a in b if c: body, else: c2; name: number of "loop" */
    JINJA_NODE_SET,     /* a = b */
    JINJA_NODE_SET_BLOCK, /* a = body, through the filters b (may be NULL) */
    JINJA_NODE_MACRO,   /* macro name: children are PARAM; body */
    JINJA_NODE_PARAM,   /* name, default a (may be NULL) */
    JINJA_NODE_FILTER_BLOCK, /* body through the filters b */
    JINJA_NODE_SCOPE,   /* body in a scope of its own: generation */
    JINJA_NODE_BREAK, JINJA_NODE_CONTINUE,
    JINJA_NODE_NS_TARGET /* assignment target name.text */
};

enum jinja_op {
    JINJA_OP_NONE, JINJA_OP_ADD, JINJA_OP_SUB, JINJA_OP_MUL, JINJA_OP_DIV, JINJA_OP_FLOORDIV,
    JINJA_OP_MOD, JINJA_OP_POW,
    JINJA_OP_EQ, JINJA_OP_NE, JINJA_OP_LT, JINJA_OP_LE, JINJA_OP_GT, JINJA_OP_GE, JINJA_OP_IN,
    JINJA_OP_NOT_IN
};

#define JINJA_NAME_NONE UINT32_MAX
struct jinja_node {
    uint8_t kind, op;
    uint16_t height; /* of the tree below, itself included */
    int32_t row;     /* FILTER, TEST: row of its table; -1 = unknown, refused when run */
    uint32_t line;
    uint32_t name;   /* number of the variable */
    str text;
    struct jinja_value value;
    struct jinja_node *a, *b, *c, *c2, *body, *first, *last, *next;
};

struct jinja_name {
    str text;
    bool is_read; /* somewhere where the template has not set it: it comes from the caller */
};
struct jinja_template {
    const struct jinja_node *root; /* SCOPE */
    const struct jinja_name *names; /* by number */
    uint32_t names_count;
    const str *mentions; /* attribute names and string constants */
    uint32_t mentions_count;
};

enum jinja_token_kind {
    JINJA_TOKEN_END, JINJA_TOKEN_DATA, JINJA_TOKEN_BLOCK_BEGIN, JINJA_TOKEN_BLOCK_END,
    JINJA_TOKEN_PRINT_BEGIN, JINJA_TOKEN_PRINT_END, JINJA_TOKEN_NAME, JINJA_TOKEN_STRING,
    JINJA_TOKEN_INTEGER, JINJA_TOKEN_FLOAT, JINJA_TOKEN_OPERATOR
};
struct jinja_token {
    enum jinja_token_kind kind;
    uint32_t line;
    str text; /* NAME, numbers, OPERATOR: as written; DATA, STRING: the text itself */
};

struct jinja_lexer {
    str source; /* newlines made one kind */
    size_t pos;
    uint32_t line;
    enum jinja_token_kind inside; /* BLOCK_BEGIN, PRINT_BEGIN, or END: outside of tags */
    bool is_pending;              /* the tag behind the data just given */
    bool is_line_start;           /* the last tag ended with a newline */
    char brackets[JINJA_NESTING_MAX];
    uint32_t brackets_count;
    struct arena *arena;
};
BASE_USE_RESULT bool jinja_lex_init(struct jinja_lexer *l, str source, struct arena *a,
                                    struct err *e);
BASE_USE_RESULT bool jinja_lex_next(struct jinja_lexer *l, struct jinja_token *t, struct err *e);

struct jinja_parser {
    struct jinja_lexer lexer;
    struct jinja_token now, ahead;
    bool has_ahead;
    struct arena *arena;
    struct jinja_heap heap; /* over arena, for constants */
    uint32_t nodes_count, nesting, loops;
    struct jinja_name *names;
    uint32_t names_count, names_cap;
    uint32_t *bound; /* names bound in the scopes around, innermost last */
    uint32_t bound_count, bound_cap;
    str *mentions;
    uint32_t mentions_count, mentions_cap;
    struct err *e;
};
/* Errors go to p->e: "template line 12: ...". All return false or NULL after one. */
bool jinja_parse_next(struct jinja_parser *p);
bool jinja_parse_peek(struct jinja_parser *p); /* fills p->ahead */
bool jinja_parse_fail(struct jinja_parser *p, enum err_code code, const char *format, ...)
    BASE_PRINTF(3, 4);
bool jinja_parse_unexpected(struct jinja_parser *p, const char *wanted);
struct jinja_node *jinja_parse_node(struct jinja_parser *p, enum jinja_node_kind kind,
                                    uint32_t line);
/* Makes child a part of parent: parent's height grows with it. False past JINJA_HEIGHT_MAX, and
 * when child is NULL (its own parsing failed). */
bool jinja_parse_adopt(struct jinja_parser *p, struct jinja_node *parent, struct jinja_node *child);
/* The same, at the end of parent's list. */
bool jinja_parse_append(struct jinja_parser *p, struct jinja_node *parent,
                        struct jinja_node *child);
/* Number of a variable; JINJA_NAME_NONE without memory. A read that nothing around binds makes it
 * one of the caller's; a bound one stays so until the scope that binds it ends. */
uint32_t jinja_parse_read(struct jinja_parser *p, str name);
uint32_t jinja_parse_bind(struct jinja_parser *p, str name);
bool jinja_parse_mention(struct jinja_parser *p, str name);
/* One nesting level deeper; back with p->nesting--. */
bool jinja_parse_enter(struct jinja_parser *p);
static inline bool jinja_parse_is(const struct jinja_parser *p, enum jinja_token_kind kind,
                                  const char *text)
{
    return p->now.kind == kind && str_eq_z(p->now.text, text);
}
static inline bool jinja_parse_is_op(const struct jinja_parser *p, const char *text)
{
    return jinja_parse_is(p, JINJA_TOKEN_OPERATOR, text);
}
/* Goes on behind this token, or fails. */
bool jinja_parse_expect(struct jinja_parser *p, enum jinja_token_kind kind, const char *text);
/* The whole template: its first statement. */
BASE_USE_RESULT bool jinja_parse_all(struct jinja_parser *p, struct jinja_node **root);

enum jinja_tuple { JINJA_TUPLE_FULL, JINJA_TUPLE_NO_COND };
/* An expression, or a tuple without brackets. */
struct jinja_node *jinja_expr_tuple(struct jinja_parser *p, enum jinja_tuple how);
struct jinja_node *jinja_expr_full(struct jinja_parser *p);
/* NAME, a tuple of targets, or ns.name where is_ns is set. */
struct jinja_node *jinja_expr_target(struct jinja_parser *p, bool is_ns);
/* Filters at "|" (is_inline: the name comes at once); innermost a = value. */
struct jinja_node *jinja_expr_filters(struct jinja_parser *p, struct jinja_node *value,
                                      bool is_inline);

#endif
