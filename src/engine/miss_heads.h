/* miss_heads - what each agent read last, and the record of a prompt that was not read from there.
 *
 * Owns:      the last prompts as ids and hashes of their messages, by session, else by agent;
 *            finding the first difference, the message and part it lies in; the record's JSON.
 * Not:       what a difference means (miss), keeping and showing records (serve/misses).
 * Invariant: texts of a prompt are shown only beside a prompt of the same scope. A prompt of
 *            another scope is only ever compared by its ids. Memory is bounded; the prompt that was
 *            not compared for longest goes first.
 *
 *     first token --> miss_heads_judge: note "cache_miss"? --> miss_heads_put: the next one's past
 *
 *            An agent without sessions may hold several conversations: of its last
 *            MISS_HEADS_OF_AGENT prompts the closest counts, and one that has nothing in common
 *            with any of them is a new conversation, no miss.
 * Thread:    engine thread.
 * Limits:    MISS_HEADS_MAX prompts, bytes_max of ids and hashes.
 */
#ifndef SHOAL_ENGINE_MISS_HEADS_H
#define SHOAL_ENGINE_MISS_HEADS_H

#include "base/mem.h"
#include "engine/miss.h"
#include "engine/prompt.h"

#define MISS_HEADS_MAX 256u
#define MISS_HEADS_OF_AGENT 4u
#define MISS_HEADS_BYTES ((size_t)32 << 20)

struct miss_head {
    uint64_t scope, who; /* hashes; who: of session or agent */
    uint64_t id, tools, used; /* used 0: free */
    struct buf ids, messages; /* int32_t, uint64_t */
};

struct miss_heads_options {
    const struct vocab *vocab;
    str think_open, think_close; /* of the model's format, or "" */
    size_t bytes_max;
    uint32_t excerpt;            /* bytes of text in a record; 0: none */
};

struct miss_heads {
    struct miss_heads_options o;
    struct miss_head *heads; /* [MISS_HEADS_MAX] */
    size_t bytes;
    uint64_t clock;
    struct buf was, now; /* the texts around a difference */
};

BASE_USE_RESULT bool miss_heads_init(struct miss_heads *m, const struct miss_heads_options *o,
                                     struct mem *mem, struct err *e);
void miss_heads_deinit(struct miss_heads *m); /* also after a zeroed struct */

/* Whether j, of which `cached` tokens were found, missed what its past allows; then *out is the
 * note for the endpoint, "REASON ID {...}" in j's arena: ID of the request that the prompt was
 * compared with, and the members of the record (BEHAVIOUR 5.10) that a child knows. */
bool miss_heads_judge(struct miss_heads *m, struct job *j, uint32_t cached, bool is_disabled,
                      struct api_note *out);
/* j's prompt is computed: the next one of its session or agent is compared with it. */
void miss_heads_put(struct miss_heads *m, const struct job *j);

#endif
