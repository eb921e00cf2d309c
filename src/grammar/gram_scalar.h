/* gram_scalar - the rules of values without values inside: texts, numbers, enumerations.
 *
 * Owns:      patterns and formats of a text, bounds of a number, the trie of an enumeration;
 *            struct gram_compile, what a schema's compilation shares.
 * Not:       arrays, objects, branches (gram_schema), what a keyword says (gram_facts).
 * Invariant: equal patterns are one automaton. An enumerated value that breaks another keyword is
 *            not in the trie.
 * Thread:    its builder's.
 * Limits:    GRAM_SCHEMA_*.
 */
#ifndef SHOAL_GRAMMAR_GRAM_SCALAR_H
#define SHOAL_GRAMMAR_GRAM_SCALAR_H

#include "grammar/gram_facts.h"
#include "grammar/gram_schema.h"

#define GRAM_SCALAR_NEVER UINT32_MAX /* no value is possible, or the reader has failed */

struct gram_compile {
    struct gram *g;
    struct gram_reader r;
    struct arena arena;
    struct map rules; /* parts of a value -> its rule, or GRAM_SCALAR_NEVER */
    struct map dfas;  /* patterns of a text -> number of the automaton */
    uint32_t ret, any, properties, enums;
    uint32_t root_types;
    struct json never; /* where a value turned out to be impossible, last */
};

/* Nodes before s->ret, or GRAM_SCALAR_NEVER. */
uint32_t gram_scalar_text(struct gram_compile *s, const struct gram_facts *f);
uint32_t gram_scalar_number(struct gram_compile *s, const struct gram_facts *f, bool is_integer);
uint32_t gram_scalar_enum(struct gram_compile *s, const struct gram_facts *f);

/* The values of f's enumerations that are valid join the trie; *count grows by them. False: one was
 * there already. */
bool gram_scalar_enum_values(struct gram_compile *s, const struct gram_facts *f, uint32_t trie,
                             uint32_t *count);
/* Whether v is valid as far as the value itself goes: of objects and arrays, the type. */
bool gram_scalar_may_be(struct gram_compile *s, const struct gram_facts *f, struct json v);
/* Whether no number keeps the bounds of both. */
bool gram_scalar_numbers_differ(struct gram_compile *s, const struct gram_facts *a,
                                const struct gram_facts *b);
/* ERR_LIMIT "schema: more than 5000 properties"; false. */
bool gram_scalar_fail_limit(struct gram_compile *s, const char *what, size_t limit);

#endif
