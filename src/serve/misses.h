/* misses - why prompts were read again: the records of BEHAVIOUR 5.10, newest first.
 *
 * Owns:      the ring of records, who may see which; the reasons that only the endpoint can know:
 *            another child than last time (model_reloaded), another model (cold).
 * Not:       comparing prompts (engine/miss_heads, which sends a note), counting (metrics), the
 *            path (path_cache).
 * Invariant: a record is seen by keys of the cache scope it belongs to, and by admin. Its excerpts
 *            are seen by admin and by the key that sent both prompts; other keys of the scope get
 *            null in their place. What it says about a prompt of another scope is for admin alone.
 *            Nothing here is logged.
 *
 *     child: note "cache_miss" --> exchange: with STARTED --> misses_add --> GET /v1/cache/misses
 *
 * Thread:    the loop's.
 * Limits:    rows_max records of MISSES_JSON_MAX bytes; the last prompt of MISSES_HEADS_MAX
 *            sessions and agents, ids of the last MISSES_IDS_MAX requests: newer ones take the
 *            place of older ones.
 */
#ifndef SHOAL_SERVE_MISSES_H
#define SHOAL_SERVE_MISSES_H

#include "api/api_event.h"
#include "base/buf.h"

#define MISSES_HEADS_MAX 4096u
#define MISSES_IDS_MAX 4096u
#define MISSES_JSON_MAX ((size_t)64 << 10)

struct misses;
BASE_USE_RESULT bool misses_open(struct misses **out, uint32_t rows_max, struct err *e);
void misses_close(struct misses *m); /* NULL is allowed */

/* A request whose first token is there. */
struct misses_request {
    const char *id;               /* as the client knows it */
    const struct api_request *rq;
    str key;                      /* its name, "" without keys */
    str scope;                    /* of its key, without a salt */
    str model;
    const struct api_started *started;
    str note;                     /* text of the child's note, or "" */
};
/* Remembers it; true and the reason if it is a miss, whose record is then kept. */
bool misses_add(struct misses *m, const struct misses_request *r, str *reason);

struct misses_query {
    bool is_admin;
    str key, scope; /* of whoever asks */
    str agent;      /* p NULL: any */
    uint32_t limit;
};
/* Appends a JSON array. */
void misses_write(const struct misses *m, const struct misses_query *q, struct buf *out);

#endif
