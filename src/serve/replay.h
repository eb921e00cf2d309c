/* replay - past replies as they were sampled, found again in the history that a client sends back.
 *
 * Owns:      the table of replies (ids, reasoning), its memory and age; telling a turn of a history
 *            from another; what a client dropped and gets back.
 * Not:       putting ids into a prompt (engine/prompt_replay), what the client has of a reply that
 *            is under way (route/transcript), the prefix cache (kv).
 * Invariant: a turn is a reply if its text is the same (but for blanks at the ends of its parts)
 *            and its calls are equal as JSON; it is found by the id of its first call, else by what
 *            it says and what was said before it. Reasoning that the client sends wins: if it is
 *            another one, nothing of ours is used. Scopes of the prefix cache see only their own.
 *
 *     reply done --replay_keep--> table --replay_match--> messages with ids, reasoning put back
 *
 * Thread:    the loop's.
 * Limits:    bytes_max over all replies, REPLAY_ENTRIES_MAX of them, ttl_ms since the last use; the
 *            one that was not used for longest goes first. REPLAY_TURN_MAX bytes of one reply.
 */
#ifndef SHOAL_SERVE_REPLAY_H
#define SHOAL_SERVE_REPLAY_H

#include "api/api_request.h"
#include "route/transcript.h"

#define REPLAY_ENTRIES_MAX 65536u
#define REPLAY_TURN_MAX ((size_t)8 << 20) /* of texts and ids */
#define REPLAY_LENT_MAX ((size_t)64 << 20) /* what one request may get back */

struct replay;
struct replay_options {
    size_t bytes_max; /* cache.replay_size */
    int64_t ttl_ms;   /* cache.replay_ttl */
};
struct replay_stats {
    uint64_t entries, bytes, hits; /* hits: turns that were found */
};

BASE_USE_RESULT bool replay_open(struct replay **out, const struct replay_options *o,
                                 struct err *e);
void replay_close(struct replay *r); /* NULL is allowed */
struct replay_stats replay_stats(const struct replay *r);

/* A choice of rq's reply is whole and every token of it is in t. A reply of which the ids are not
 * known is kept for its reasoning, if it has any. */
void replay_keep(struct replay *r, const struct api_request *rq, const struct transcript *t,
                 uint32_t choice, int64_t now_ms);

/* Puts ids and dropped reasoning into the assistant's turns of rq; what changes is copied
 * into a, with what it views. Returns how many turns were found. A full a only ends it early: the
 * rest is answered from the text. */
uint32_t replay_match(struct replay *r, struct api_request *rq, struct arena *a, int64_t now_ms);

#endif
