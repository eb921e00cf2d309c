/* transcript - what the client has of a reply, and how another leg can go on from there.
 *
 * Owns:      the parts of each choice as they were sent (reasoning, text, calls, in order), the ids
 *            of the sampled tokens while they are known whole, counts of tokens; the choice how to
 *            resume.
 * Not:       which leg (router), writing to the client (dialect), the leg's request (attempt).
 * Invariant: a batch is added before it is written out, whole. The texts joined over all legs are
 *            exactly what the client has, byte for byte. ids are only offered for the model they
 *            were sampled with, and only if no token is missing. A leg that goes on says only what
 *            is new: that is what its `continue` means (BEHAVIOUR 9.6). Nothing is looked for in
 *            the text: a refrain cannot be told from words said again. A call that is not finished
 *            and not shown (hides_calls) goes on by its ids, else it is forgotten: the next leg
 *            makes it again from its start.
 *
 *     leg 1 --batch--> transcript_add --> client
 *       | fails
 *     transcript_resume: nothing visible yet   FRESH   (the same request)
 *                        equal model_hash      TOKENS  (ids; bit-equal rest)
 *                        can continue text     TEXT    (the parts)
 *                        otherwise             NO      (in-band error)
 *
 * Thread:    the loop's. Lives as long as its request.
 * Limits:    bytes_max of texts and ids together, given at init; past it nothing can be resumed
 *            (NO), but the reply goes on.
 */
#ifndef SHOAL_ROUTE_TRANSCRIPT_H
#define SHOAL_ROUTE_TRANSCRIPT_H

#include "route/leg.h"

struct transcript_part {
    enum api_part_kind kind; /* TEXT REASONING CALL */
    bool is_closed;          /* CALL: its arguments are complete */
    uint32_t index;          /* CALL */
    str id, name, name_space; /* in the transcript's arena */
    struct buf text;         /* CALL: arguments */
};
struct transcript_choice {
    struct transcript_part *parts;
    uint32_t parts_count, parts_max;
    struct buf ids;        /* int32 */
    uint32_t tokens_count; /* ids, or pieces of text where a leg gives none */
    uint64_t wide_bytes;   /* beside them: of a leg whose pieces are no tokens */
    bool is_done;
};
struct transcript {
    struct arena arena;
    struct transcript_choice *choices;
    uint32_t choices_count;
    uint64_t model_hash;     /* of ids; 0: no ids are known */
    size_t bytes_used, bytes_max;
    bool is_full;            /* something did not fit: no resume */
    bool is_wide;            /* the leg at hand: has_wide_pieces */
    bool is_visible;         /* something was said: reasoning, content or a call */
    bool hides_calls;        /* the client gets a call when it is whole; set after init */
};

BASE_USE_RESULT bool transcript_init(struct transcript *t, uint32_t choices, size_t bytes_max,
                                     struct api_error *e);
void transcript_deinit(struct transcript *t); /* also after a zeroed struct */

/* What the client is about to get: texts, calls, DONE and ids count. STARTED tells whose ids they
 * are: of another model than before, the old ones are forgotten. */
void transcript_add(struct transcript *t, const struct api_batch *b);

enum transcript_how { TRANSCRIPT_FRESH, TRANSCRIPT_TOKENS, TRANSCRIPT_TEXT, TRANSCRIPT_NO };
/* How this leg could go on. TOKENS, TEXT: *out has a partial per unfinished choice, views into t
 * and a, valid until the next transcript_add. */
enum transcript_how transcript_resume(const struct transcript *t, const struct leg *leg,
                                      struct arena *a, struct api_resume *out);

/* The first parts of a choice as those of m, made in a; their texts stay the transcript's. False:
 * a is full. */
bool transcript_fill(const struct transcript_choice *c, uint32_t count, struct arena *a,
                     struct api_message *m) BASE_USE_RESULT;
/* That leg goes on so. With TEXT the first batch of an engine leg brings the ids of all before. */
void transcript_begin(struct transcript *t, enum transcript_how how, const struct leg *leg);

/* Where the reply stands. */
void transcript_needs(const struct transcript *t, struct leg_needs *n);
/* Of all choices; four bytes are taken for a token where only they are known. */
uint32_t transcript_tokens(const struct transcript *t);
size_t transcript_bytes(const struct transcript *t);    /* of all texts */

#endif
