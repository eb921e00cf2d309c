/* agents - what each agent has asked for since the server's start: the rows of GET /v1/agents.
 *
 * Owns:      a bounded table of agents by key, their tokens, the legs that answered them.
 * Not:       what an agent may have (quota), requests under way (exchange_list), the metrics' own
 *            series (metrics).
 * Invariant: an agent belongs to the key that spoke for it and is seen by that key and by admin.
 *            A request counts once, at its end, with what it came to.
 *
 *     begin (there is one) --> count, count: what runs now --> write
 *        \--> end: tokens, legs
 *
 * Thread:    the loop's.
 * Limits:    AGENTS_MAX; the one that asked longest ago gives way. AGENTS_LEGS_MAX legs of one,
 *            then "other".
 */
#ifndef SHOAL_SERVE_AGENTS_H
#define SHOAL_SERVE_AGENTS_H

#include "base/err.h"
#include "base/json.h"

#define AGENTS_MAX 4096u
#define AGENTS_LEGS_MAX 8u

struct agents;
BASE_USE_RESULT bool agents_open(struct agents **out, struct err *e);
void agents_close(struct agents *a); /* NULL is allowed */

struct agents_who {
    str owner, agent; /* owner: of the key, "" without keys */
};
/* A request of that agent has begun. */
void agents_begin(struct agents *a, const struct agents_who *who, int64_t now_ms);
/* One has ended. legs: those that answered, in order, "a>b>c", or ""; said: what attempt told of
 * several, a JSON array of {"leg","output_tokens"}, or "". */
struct agents_end {
    struct agents_who who;
    uint32_t prompt_tokens, cached_tokens, output_tokens, preemptions;
    str legs, said;
};
void agents_end(struct agents *a, const struct agents_end *end, int64_t now_ms);

/* --- GET /v1/agents: count each request under way, then write --- */

void agents_forget_counts(struct agents *a);
void agents_count(struct agents *a, const struct agents_who *who, bool is_queued);
/* Appends a JSON array, who asked last first. owner p NULL: of all keys. on_limits writes the value
 * of "limits" of an agent. */
struct agents_write {
    str owner;
    int64_t now_ms;
    void (*on_limits)(void *ctx, struct json_writer *w, str agent);
    void *ctx;
};
void agents_write(struct agents *a, const struct agents_write *how, struct buf *out);

#endif
