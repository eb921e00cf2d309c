/* jinja_eval - one run of a template: its state, scopes, calls.
 *
 * Owns:      walking nodes; what filters, tests, methods, operators and functions share.
 * Not:       values by themselves (jinja_value.h, jinja_text.h), nodes (jinja_ast.h).
 * Invariant: every function that can fail returns bool and leaves its sentence in state.e, with the
 *            line. Depth, steps, memory and output are counted at every node.
 *
 *     scopes:  caller's values <- template <- for (one per round) <- ...
 *                                    ^------- macro (where it was defined) <- ...
 *
 *            A name is looked up outwards, an assignment goes to the innermost scope.
 * Thread:    the run's.
 * Limits:    jinja.h.
 */
#ifndef SHOAL_CHAT_JINJA_EVAL_H
#define SHOAL_CHAT_JINJA_EVAL_H

#include "base/json.h"
#include "chat/jinja_ast.h"

struct jinja_binding {
    uint32_t name;
    struct jinja_value value;
};
struct jinja_callee;
struct jinja_scope {
    struct jinja_scope *parent;
    struct jinja_binding *vars;
    uint32_t count, cap;
    bool is_kept; /* a macro defined here looks names up in it: not to be used again */
};
struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_scope *scope;
};
struct jinja_loop {
    struct jinja_list *items;  /* what passed the condition so far; without one: all */
    struct jinja_list *source; /* with a condition: pulled from when asked for */
    uint32_t source_next, index0;
    const struct jinja_node *node;
    struct jinja_scope *scope; /* around the loop */
    struct jinja_value changed;
    bool has_changed;
};
enum jinja_function {
    JINJA_FUNCTION_RANGE, JINJA_FUNCTION_DICT, JINJA_FUNCTION_NAMESPACE, JINJA_FUNCTION_RAISE,
    JINJA_FUNCTION_STRFTIME, JINJA_FUNCTION_COUNT_
};
struct jinja_method {
    struct jinja_value self;
    const struct jinja_callee *callee;
};
enum jinja_flow { JINJA_FLOW_ON, JINJA_FLOW_BREAK, JINJA_FLOW_CONTINUE };

struct jinja_state {
    const struct jinja_template *t;
    struct jinja_heap *h;
    struct jinja_scope *scope;
    const struct jinja_value *globals; /* by number of the name: the caller's, functions */
    struct jinja_build *out;
    struct jinja_value input; /* of filters without a value: a block's text */
    enum jinja_flow flow;
    uint32_t depth, line;
    int64_t time_s;
    bool is_raised;
    struct err *e;
};

struct jinja_call;
/* "template line 12: ...", the line being that of the node in work. Returns false. */
bool jinja_eval_fail(struct jinja_state *s, enum err_code code, const char *format, ...)
    BASE_PRINTF(3, 4);
/* False with the sentence of a limit when one was hit. */
bool jinja_eval_ok(struct jinja_state *s);
/* What using an undefined value gives. Returns false. */
bool jinja_eval_undefined(struct jinja_state *s, struct jinja_value v);
struct jinja_value jinja_eval_hint(const char *text); /* undefined, with a sentence; a literal */

bool jinja_eval(struct jinja_state *s, const struct jinja_node *n, struct jinja_value *out);
/* obj.name and obj[index], as Jinja2's sandbox looks them up. */
bool jinja_eval_attr(struct jinja_state *s, struct jinja_value obj, str name,
                     struct jinja_value *out);
bool jinja_eval_item(struct jinja_state *s, struct jinja_value obj, struct jinja_value index,
                     struct jinja_value *out);
/* str(v) as a string; v's own if it is one. */
bool jinja_eval_str(struct jinja_state *s, struct jinja_value v, struct jinja_str *out);
/* What a for goes through: v's own list, or a new one (keys, characters, an iterator's rest). */
bool jinja_eval_items(struct jinja_state *s, struct jinja_value v, struct jinja_list **out);
/* A generator does its work, and fails, when its first item is wanted: defer makes an iterator out
 * of c, force lets later make its list. */
bool jinja_eval_defer(struct jinja_call *c, uint32_t origin,
                      bool (*later)(struct jinja_call *c, struct jinja_value *out),
                      struct jinja_value *out);
bool jinja_eval_force(struct jinja_state *s, struct jinja_list *l);
/* len(v). */
bool jinja_eval_len(struct jinja_state *s, struct jinja_value v, size_t *out);

/* Statements (jinja_exec.c). */
bool jinja_exec(struct jinja_state *s, const struct jinja_node *first);
/* One more item of a loop that has a condition; *more false at the end. */
bool jinja_exec_pull(struct jinja_state *s, struct jinja_loop *loop, bool *more);

/* Operators (jinja_op.c). */
bool jinja_op_math(struct jinja_state *s, enum jinja_op op, struct jinja_value a,
                   struct jinja_value b, struct jinja_value *out);
bool jinja_op_compare(struct jinja_state *s, enum jinja_op op, struct jinja_value a,
                      struct jinja_value b, bool *out);
bool jinja_op_negate(struct jinja_state *s, struct jinja_value v, struct jinja_value *out);
bool jinja_op_slice(struct jinja_state *s, struct jinja_value v, const struct jinja_value part[3],
                    struct jinja_value *out);
/* As an index or count: BOOL and INT; false for other kinds. */
bool jinja_op_int(struct jinja_value v, int64_t *out);

/* Calls. */
struct jinja_named {
    str name;
    struct jinja_value value;
};
struct jinja_args {
    struct jinja_value *plain;
    struct jinja_named *named;
    uint32_t plain_count, named_count;
};
#define JINJA_PARAMS_MAX 4
/* A call of a filter, test, method or function with its arguments by parameter. */
struct jinja_call {
    struct jinja_state *s;
    const char *name;
    struct jinja_value self;
    struct jinja_value arg[JINJA_PARAMS_MAX];
    uint32_t given; /* bits */
    const struct jinja_args *args;
    uint32_t which; /* methods, functions that share an implementation */
    bool (*later)(struct jinja_call *c, struct jinja_value *out); /* put off: what makes the list */
};
static inline bool jinja_call_has(const struct jinja_call *c, uint32_t i)
{
    return c->given >> i & 1u;
}
/* params: names by space, "..." = anything goes (args as they are); the first required must be
 * given. function NULL: known, but refused by name. */
struct jinja_callee {
    const char *name, *params;
    uint32_t required;
    bool (*function)(struct jinja_call *c, struct jinja_value *out);
    uint32_t which;
};
bool jinja_eval_call(struct jinja_state *s, const struct jinja_callee *callee,
                    struct jinja_value self, const struct jinja_args *args,
                    struct jinja_value *out);

/* Rows by name, -1 if there is none. */
int32_t jinja_filter_row(str name);
int32_t jinja_check_row(str name);
bool jinja_filter_run(struct jinja_state *s, int32_t row, struct jinja_value self,
                      const struct jinja_args *args, struct jinja_value *out);
bool jinja_check_run(struct jinja_state *s, int32_t row, struct jinja_value self,
                    const struct jinja_args *args, bool *out);
/* The bound method, or false if v's type has no such one. */
bool jinja_method_bind(struct jinja_state *s, struct jinja_value v, str name,
                       struct jinja_value *out);
bool jinja_method_run(struct jinja_state *s, const struct jinja_method *m,
                      const struct jinja_args *args, struct jinja_value *out);
bool jinja_function_run(struct jinja_state *s, enum jinja_function f,
                        const struct jinja_args *args, struct jinja_value *out);
bool jinja_function_of(str name, struct jinja_value *out); /* the global of that name */
bool jinja_exec_macro(struct jinja_state *s, const struct jinja_macro *m,
                     const struct jinja_args *args, struct jinja_value *out);

/* Rows of other files for the tables of jinja_filter.c and jinja_method.c. */
/* Tuples of key and value. */
void jinja_seq_pairs(struct jinja_heap *h, const struct jinja_dict *d, enum jinja_list_type type,
                     struct jinja_value *out);
bool jinja_seq_first(struct jinja_call *c, struct jinja_value *out);
bool jinja_seq_last(struct jinja_call *c, struct jinja_value *out);
bool jinja_seq_join(struct jinja_call *c, struct jinja_value *out);
bool jinja_seq_list(struct jinja_call *c, struct jinja_value *out);
bool jinja_seq_items(struct jinja_call *c, struct jinja_value *out);
bool jinja_seq_unique(struct jinja_call *c, struct jinja_value *out);
bool jinja_seq_map(struct jinja_call *c, struct jinja_value *out);
bool jinja_seq_select(struct jinja_call *c, struct jinja_value *out);
bool jinja_seq_sort(struct jinja_call *c, struct jinja_value *out);
bool jinja_seq_dictsort(struct jinja_call *c, struct jinja_value *out);
bool jinja_seq_extreme(struct jinja_call *c, struct jinja_value *out);
bool jinja_seq_reverse(struct jinja_call *c, struct jinja_value *out);
bool jinja_seq_sum(struct jinja_call *c, struct jinja_value *out);
bool jinja_number_int(struct jinja_call *c, struct jinja_value *out);
bool jinja_number_float(struct jinja_call *c, struct jinja_value *out);
bool jinja_number_round(struct jinja_call *c, struct jinja_value *out);
bool jinja_number_abs(struct jinja_call *c, struct jinja_value *out);
bool jinja_json_dump(struct jinja_call *c, struct jinja_value *out);
bool jinja_json_load(struct jinja_call *c, struct jinja_value *out);
bool jinja_format_method(struct jinja_call *c, struct jinja_value *out);

/* Printing (jinja_print.c): str(v) and repr(v) into b. False: nested deeper than
 * JINJA_VALUE_DEPTH_MAX. repr(float): the shortest digits that read back, in Python's layout. */
BASE_USE_RESULT bool jinja_print_str(struct jinja_build *b, struct jinja_value v);
BASE_USE_RESULT bool jinja_print_repr(struct jinja_build *b, struct jinja_value v);
size_t jinja_print_float(char out[JSON_NUMBER_MAX], double f);

#endif
