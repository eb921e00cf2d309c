/* miss - why a prompt was not read from the cache: the judgement, as pure functions.
 *
 * Owns:      the reasons and hints of BEHAVIOUR 5.10, what each of them means in terms of tokens
 *            and of the two texts around the first difference.
 * Not:       remembering what was read before (miss_heads), pages (kv_trie), showing records
 *            (serve/misses). What a child cannot know (model_reloaded, cold) is judged there.
 * Invariant: pure. A hint is given only where both texts show it; anything else is MISS_HINT_NONE.
 *
 *     was:  ... The time is 10:4|1:07. You are ...      both windows are equal up to `at`
 *     now:  ... The time is 10:4|2:30. You are ...
 *
 * Thread:    any.
 * Limits:    MISS_WINDOW bytes of each text are looked at behind and before the difference.
 */
#ifndef SHOAL_ENGINE_MISS_H
#define SHOAL_ENGINE_MISS_H

#include "base/base.h"
#include "base/str.h"

#define MISS_WINDOW ((size_t)64 << 10)
#define MISS_NO_MESSAGE UINT32_MAX

#define MISS_REASONS(X)                                                                    \
    X(COLD, "cold") X(CONTENT_CHANGED, "content_changed")                                  \
    X(TEMPLATE_CHANGED, "template_changed") X(EVICTED, "evicted")                          \
    X(STATE_MISSING, "state_missing") X(SCOPE, "scope")                                    \
    X(MODEL_RELOADED, "model_reloaded") X(CORRUPT, "corrupt") X(DISABLED, "disabled")
enum miss_reason {
#define X(name, text) MISS_REASON_##name,
    MISS_REASONS(X)
#undef X
    MISS_REASON_COUNT_
};

/* CLOCK: a date or a time of day. COUNTER: one number. NONCE: one word that carries digits.
 * RESERIALISED_CALL: an object of JSON with the same bytes in another order or spacing.
 * REASONING_DROPPED: reasoning that was read is not there any more, what follows it is.
 * TOOLS_CHANGED: another list of tools. */
#define MISS_HINTS(X)                                                                      \
    X(NONE, "") X(CLOCK, "clock") X(COUNTER, "counter") X(NONCE, "nonce")                  \
    X(RESERIALISED_CALL, "reserialised_call") X(REASONING_DROPPED, "reasoning_dropped")    \
    X(TOOLS_CHANGED, "tools_changed")
enum miss_hint {
#define X(name, text) MISS_HINT_##name,
    MISS_HINTS(X)
#undef X
    MISS_HINT_COUNT_
};

/* Tokens of a prompt beside those of the one before it. */
struct miss_case {
    uint32_t expected;    /* what the prompt before allows to be read again */
    uint32_t common;      /* leading tokens that are equal */
    uint32_t cached;      /* what was found */
    bool is_disabled;     /* the request or the model does without a cache */
    bool is_other_scope;  /* the prompt before was read under another scope */
    bool has_changed;     /* a message or the list of tools is another one than before */
};
/* Whether it is a miss at all: less than 90 % of what could have been. */
bool miss_is(const struct miss_case *c);
enum miss_reason miss_reason(const struct miss_case *c);

struct miss_texts {
    str was, now;
    size_t at;                   /* of the first differing byte, in both */
    str think_open, think_close; /* of the model's format, or "" */
    bool tools_differ;
};
enum miss_hint miss_hint(const struct miss_texts *t);

const char *miss_reason_name(enum miss_reason r);
const char *miss_hint_name(enum miss_hint h);

#endif
