/* sticky - which leg a session was served by, so that its cached prefix is found again.
 *
 * Owns:      a bounded table of (route, session) to leg with an end of life each.
 * Not:       the choice (router), what a session is (router_key), keeping it over a restart
 *            (serve/run_state).
 * Invariant: no clock: time is an argument. The newest pin wins. When full, the pin that would end
 *            first among a few neighbours gives way, so a put never fails.
 * Thread:    the loop's.
 * Limits:    STICKY_ROWS pins.
 */
#ifndef SHOAL_ROUTE_STICKY_H
#define SHOAL_ROUTE_STICKY_H

#include "base/str.h"

#define STICKY_ROWS (1u << 14)
#define STICKY_NEIGHBOURS 8u
#define STICKY_LEG_MAX 64u /* bytes of a leg's name */

struct sticky_row {
    uint64_t key; /* 0: free */
    int64_t until_ms;
    char leg[STICKY_LEG_MAX];
};
struct sticky {
    struct sticky_row *rows; /* STICKY_ROWS of them, zeroed, the caller's */
};

/* The leg pinned for key, a view valid until the next put; "" when there is none at now. */
str sticky_find(const struct sticky *s, uint64_t key, int64_t now_ms);
void sticky_put(struct sticky *s, uint64_t key, str leg, int64_t until_ms, int64_t now_ms);

#endif
