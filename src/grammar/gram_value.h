/* gram_value - values of a schema document: where they stand, what they equal, how we write them.
 *
 * Owns:      JSON pointers both ways, equality as JSON Schema has it, the compact form.
 * Not:       reading JSON (base/json), keywords (gram_facts).
 * Invariant: the compact form has no blanks, keeps the order of members and numbers as written.
 * Thread:    any.
 * Limits:    the depth of the document; references of GRAM_VALUE_POINTER_MAX bytes.
 */
#ifndef SHOAL_GRAMMAR_GRAM_VALUE_H
#define SHOAL_GRAMMAR_GRAM_VALUE_H

#include "base/json.h"

#define GRAM_VALUE_POINTER_MAX 4096u

/* "#/properties/a~1b/items" of v inside root. */
bool gram_value_add_pointer(struct buf *out, struct json root, struct json v);
/* What "#/..." names; absent: nothing, or not a reference into this document. */
struct json gram_value_at(struct json root, str reference, struct arena *a);

/* 1 and 1.0 are equal, the order of members does not matter; true and 1 differ. */
bool gram_value_eq(struct json a, struct json b, struct arena *scratch);
/* False: no room in out or in scratch. */
bool gram_value_write(struct buf *out, struct json v, struct arena *scratch);

#endif
