/* regex - one compiled pattern of a tokenizer, searched with limits.
 *
 * Owns:      calling PCRE2 (JIT, UTF, UCP); nobody else includes its header.
 * Not:       which patterns there are (split), user patterns of grammars (grammar/gram_dfa).
 * Invariant: subjects are valid UTF-8 (the caller checked once), offsets lie at characters. A match
 *            that needs more than the limits is an error, never a crash or an endless search.
 * Thread:    one thread at a time: match data and JIT stack belong to the object.
 * Limits:    REGEX_STACK_MAX bytes of JIT stack, REGEX_STEPS_MAX steps without JIT.
 */
#ifndef SHOAL_TEXT_REGEX_H
#define SHOAL_TEXT_REGEX_H

#include "base/err.h"
#include "base/str.h"

#define REGEX_STACK_MAX ((size_t)1 << 20)
#define REGEX_STEPS_MAX 100000000u

struct regex;

/* pattern in PCRE2's syntax. ERR_FORMAT: it does not compile (position and reason); ERR_MEMORY. */
BASE_USE_RESULT bool regex_new(struct regex **r, str pattern, struct err *e);
void regex_free(struct regex *r); /* NULL is fine */

enum regex_result { REGEX_NONE, REGEX_FOUND, REGEX_FAILED };
/* First match in subject at or behind from: bytes *start .. *end - 1, which may be none. FAILED
 * sets e: ERR_LIMIT. */
enum regex_result regex_find(struct regex *r, str subject, size_t from, size_t *start, size_t *end,
                             struct err *e);

#endif
