/* sessions - conversations that clients named: who had them last, how long they are remembered.
 *
 * Owns:      a bounded table of sessions with their ends of life; their listing.
 * Not:       their pages (kv), past replies (replay), which leg they stick to (route/sticky).
 * Invariant: a session belongs to one cache scope and is seen by its key alone, which reaches those
 *            that were narrowed by a salt, too, and by admin. It is
 *            there from its first answered request until ttl_ms after its last, or DELETE.
 * Thread:    the loop's.
 * Limits:    SESSIONS_MAX; the one that was not used for longest gives way.
 */
#ifndef SHOAL_SERVE_SESSIONS_H
#define SHOAL_SERVE_SESSIONS_H

#include "base/buf.h"
#include "base/err.h"

#define SESSIONS_MAX 16384u /* as many as stick to a leg */

struct sessions;
BASE_USE_RESULT bool sessions_open(struct sessions **out, int64_t ttl_ms, struct err *e);
void sessions_close(struct sessions *s); /* NULL is allowed */
void sessions_set_ttl(struct sessions *s, int64_t ttl_ms);

/* One of its requests was answered; texts are copied. */
struct sessions_turn {
    str scope, id, agent, model, leg;
    uint32_t tokens; /* prompt and reply */
};
void sessions_add(struct sessions *s, const struct sessions_turn *t, int64_t now_ms);

struct sessions_asker {
    str scope; /* of the key */
    bool is_admin; /* sees all; of one name in several scopes its own without a salt first */
};
/* Appends a JSON array, newest first. */
void sessions_write(struct sessions *s, const struct sessions_asker *who, int64_t now_ms,
                    struct buf *out);
/* False: there is none. */
bool sessions_write_one(struct sessions *s, const struct sessions_asker *who, str id,
                        int64_t now_ms, struct buf *out);
/* Its last turn, views until the next call. False: there is none. */
bool sessions_last(struct sessions *s, const struct sessions_asker *who, str id, int64_t now_ms,
                   struct sessions_turn *out);
bool sessions_delete(struct sessions *s, const struct sessions_asker *who, str id, int64_t now_ms);

#endif
