#include "route/sticky.h"

#include <string.h>

static struct sticky_row *sticky_row(const struct sticky *s, uint64_t key, uint32_t i)
{
    return &s->rows[(key + i) % STICKY_ROWS];
}

str sticky_find(const struct sticky *s, uint64_t key, int64_t now_ms)
{
    for (uint32_t i = 0; i < STICKY_NEIGHBOURS; i++) {
        const struct sticky_row *r = sticky_row(s, key, i);
        if (r->key == key && now_ms < r->until_ms)
            return str_of(r->leg);
    }
    return STR("");
}

void sticky_put(struct sticky *s, uint64_t key, str leg, int64_t until_ms, int64_t now_ms)
{
    struct sticky_row *best = sticky_row(s, key, 0);
    for (uint32_t i = 0; i < STICKY_NEIGHBOURS; i++) {
        struct sticky_row *r = sticky_row(s, key, i);
        if (r->key == key) {
            best = r;
            break;
        }
        bool is_free = !r->key || r->until_ms <= now_ms;
        bool best_is_free = !best->key || best->until_ms <= now_ms;
        if ((is_free && !best_is_free) ||
            (is_free == best_is_free && r->until_ms < best->until_ms))
            best = r;
    }
    best->key = key;
    best->until_ms = until_ms;
    size_t len = base_min(leg.len, sizeof best->leg - 1);
    if (len)
        memcpy(best->leg, leg.p, len);
    best->leg[len] = 0;
}
