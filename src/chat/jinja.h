/* jinja - chat templates: a subset of Jinja2, with the bytes that transformers would print.
 *
 * Owns:      compiling a template, running it over values.
 * Not:       which values a request becomes (render), strings and values (jinja_text, jinja_value).
 * Invariant: a template cannot reach anything but the values it is given: no host objects, no
 *            files, no clock but time_s. The same template and values give the same bytes.
 *            Meaning: Jinja2 3.1 in the sandbox, with the options and functions that transformers 5
 *            sets up (trim_blocks, lstrip_blocks, loop controls, its tojson); docs/formats/
 *            jinja.md lists what is in the subset and where we differ.
 *
 *     source --lex--> tokens --parse--> nodes (immutable) --eval + values--> text with origins
 *
 * Thread:    a template is immutable: any number of runs at once. A run belongs to its thread.
 * Limits:    JINJA_* below; a run's memory is the limit of its heap's arena. Every refusal is one
 *            sentence with the line and the construct.
 */
#ifndef SHOAL_CHAT_JINJA_H
#define SHOAL_CHAT_JINJA_H

#include "chat/jinja_value.h"

#define JINJA_SOURCE_MAX  ((size_t)1 << 20)
#define JINJA_NODES_MAX   100000u
#define JINJA_NESTING_MAX 64u        /* of statements and of brackets in an expression */
#define JINJA_HEIGHT_MAX  256u       /* of the tree: chains like a.b.c|d|e count too */
#define JINJA_CALLS_MAX   2000u      /* nodes being evaluated inside each other, macros included */
#define JINJA_STEPS_MAX   20000000u
#define JINJA_RANGE_MAX   100000u

struct jinja_template;
struct jinja_var {
    str name;
    struct jinja_value value;
};
struct jinja_input {
    const struct jinja_var *vars;
    size_t vars_count;
    int64_t time_s; /* what strftime_now prints, in UTC */
};

/* The template lives in a, as long as a; source is copied. ERR_FORMAT "template line 12: ...";
 * ERR_UNSUPPORTED for valid Jinja outside the subset; ERR_LIMIT. */
BASE_USE_RESULT bool jinja_compile(struct jinja_template **out, str source, struct arena *a,
                                   struct err *e);

/* Whether the template reads the variable from its caller (not only one it sets itself), or the
 * attribute or key as a name or constant anywhere. */
bool jinja_reads(const struct jinja_template *t, str variable);
bool jinja_mentions(const struct jinja_template *t, str name);

/* h with the limits of a run over memory a. */
struct jinja_heap jinja_heap(struct arena *a);

struct jinja_result {
    struct jinja_str text;
    bool is_raised; /* on failure: the template itself called raise_exception */
};
/* Runs t over in. False: ERR_FORMAT (raised by the
 * template: its own text without the request's bytes; or an operation that Python would refuse),
 * ERR_UNSUPPORTED, ERR_LIMIT; "template line 12: ...". */
BASE_USE_RESULT bool jinja_run(const struct jinja_template *t, struct jinja_heap *h,
                               const struct jinja_input *in, struct jinja_result *out,
                               struct err *e);

#endif
