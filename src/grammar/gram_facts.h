/* gram_facts - what several schemas together say about one value.
 *
 * Owns:      references, allOf, the keywords that speak of the value itself, refusals by name.
 * Not:       members and items of the value (gram_schema walks the parts again for them).
 * Invariant: parts are the schema objects that must all hold, references and allOf already
 *            followed; booleans are none. A keyword that is not supported is an error with the
 *            JSON pointer of its schema, or (not strict) noted and left out; never overlooked.
 *            Annotations and unknown names say nothing.
 *
 *     {"$ref": "#/$defs/a", "minLength": 2}  -->  parts: this object, #/$defs/a; min_length 2
 *
 * Thread:    its reader's.
 * Limits:    GRAM_FACTS_*.
 */
#ifndef SHOAL_GRAMMAR_GRAM_FACTS_H
#define SHOAL_GRAMMAR_GRAM_FACTS_H

#include "base/json.h"
#include "base/map.h"

#define GRAM_FACTS_PARTS_MAX 32u
#define GRAM_FACTS_ALONE UINT32_MAX
#define GRAM_FACTS_FEW 7u /* enumerations, bounds, patterns, formats of one value */

enum gram_type {
    GRAM_TYPE_NULL = 1, GRAM_TYPE_BOOL = 2, GRAM_TYPE_INTEGER = 4,
    GRAM_TYPE_NUMBER = 8, /* one that is no integer */
    GRAM_TYPE_STRING = 16, GRAM_TYPE_ARRAY = 32, GRAM_TYPE_OBJECT = 64, GRAM_TYPE_ALL = 127
};

struct gram_part {
    struct json v;
    bool any_of, one_of; /* a branch of these was chosen: they are parts of their own now */
    uint32_t needs;      /* bits of the parts that it refers to, or that are its chosen branches */
};

struct gram_facts_bound {
    struct json v;
    bool is_lower, is_exclusive;
};

struct gram_facts {
    struct gram_part parts[GRAM_FACTS_PARTS_MAX];
    uint32_t count;
    uint32_t types;
    bool is_root;
    bool is_never;        /* nothing can be valid */
    bool has_enum_beside; /* keywords that an enumerated object or array would have to keep */
    bool is_whole;        /* multipleOf 1 */
    uint32_t length_min, length_max, items_min, items_max; /* GRAM_ENDLESS: no greatest */
    struct json enums[GRAM_FACTS_FEW]; /* arrays of enum, values of const */
    bool enum_is_const[GRAM_FACTS_FEW];
    struct gram_facts_bound bounds[GRAM_FACTS_FEW];
    struct json patterns[GRAM_FACTS_FEW], formats[GRAM_FACTS_FEW];
    uint32_t enums_count, bounds_count, patterns_count, formats_count;
    uint32_t choice; /* the first part with anyOf or oneOf not yet chosen, or count */
    bool choice_is_one;
};

/* One document being read. */
struct gram_reader {
    struct json root;
    struct arena *arena;
    bool is_strict;
    bool has_failed;
    struct buf *dropped; /* "#/a: not\n": keywords left out; may be NULL */
    struct map refs;     /* reference -> place in the document + 1 */
    struct map noted;
    struct err *e;
};

/* Adds v (a schema) and what it refers to; `from` is the part whose branch it is, or
 * GRAM_FACTS_ALONE. A part that needs itself says nothing about the value, so it is refused like a
 * keyword. False: has_failed, or too many parts. */
BASE_USE_RESULT bool gram_facts_add(struct gram_reader *r, struct gram_facts *f, struct json v,
                                    uint32_t from);
/* Fills the rest from the parts. False: has_failed. */
BASE_USE_RESULT bool gram_facts_collect(struct gram_reader *r, struct gram_facts *f);

/* ERR_REQUEST "schema: #/a: SENTENCE"; false. */
bool gram_facts_fail(struct gram_reader *r, struct json v, const char *format, ...)
    BASE_PRINTF(3, 4);
/* A keyword of v that is not supported. Strict: fails; else notes it and returns true. */
bool gram_facts_refuse(struct gram_reader *r, struct json v, const char *keyword, const char *why);
/* A keyword of v that is malformed, or too much. Strict: fails with why; else as above. */
bool gram_facts_wrong(struct gram_reader *r, struct json v, const char *keyword, const char *why);

#endif
