/* gram_schema - a JSON Schema as rules of a gram.
 *
 * Owns:      which texts a schema allows: the subset of docs/BEHAVIOUR.md 6.7.
 * Not:       what a keyword says (gram_facts), walking (gram_walk), prompts.
 * Invariant: a text that the rule accepts is valid under the schema, supported formats included,
 *            and of its valid texts the canonical ones are accepted: members in declared order,
 *            further ones last, no blanks, numbers of at most 17 digits (with bounds: no
 *            exponent), enumerated values as written. What is not supported is an error (strict)
 *            or left out and noted. Equal subschemas are one rule, so recursion costs nothing.
 *
 *     {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
 *     MEMBERS {"a": number pattern, required}
 *
 * Thread:    prep thread; the gram's builder.
 * Limits:    GRAM_SCHEMA_*, those of the gram.
 */
#ifndef SHOAL_GRAMMAR_GRAM_SCHEMA_H
#define SHOAL_GRAMMAR_GRAM_SCHEMA_H

#include "grammar/gram.h"

#define GRAM_SCHEMA_BYTES_MAX ((size_t)256 << 10)
#define GRAM_SCHEMA_DEPTH_MAX 64u
#define GRAM_SCHEMA_PROPERTIES_MAX 5000u
#define GRAM_SCHEMA_ENUMS_MAX 10000u
#define GRAM_SCHEMA_NAME_MAX 1024u    /* bytes of a property's name */
#define GRAM_SCHEMA_BRANCHES_MAX 64u  /* of anyOf, oneOf; enumerations count as one */
#define GRAM_SCHEMA_FREE_DEPTH 16u    /* how deep free JSON nests */

struct gram_schema_options {
    bool is_strict;      /* false: keywords that are not supported are left out */
    bool is_object;      /* the value is an object, whatever the schema says */
    struct buf *dropped; /* gets "#/a: not\n" for each keyword left out; may be NULL */
};

/* Adds the rule of a value; *rule ends in a return. ERR_REQUEST names pointer and keyword:
 * "schema: #/properties/a: 'not' is not supported"; ERR_FORMAT: no JSON; ERR_LIMIT. */
BASE_USE_RESULT bool gram_schema(struct gram *g, str schema, const struct gram_schema_options *o,
                                 uint32_t *rule, struct err *e);

/* Any JSON value, or any object. */
uint32_t gram_schema_any(struct gram *g, bool is_object);

#endif
