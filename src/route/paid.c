#include "route/paid.h"

uint32_t paid_count(const struct paid *p, int64_t now_ms)
{
    uint32_t kept = p->count < PAID_PER_HOUR_MAX ? p->count : PAID_PER_HOUR_MAX, count = 0;
    for (uint32_t i = 0; i < kept; i++)
        count += now_ms - p->sent_ms[i] < PAID_HOUR_MS;
    return count;
}

void paid_add(struct paid *p, int64_t now_ms)
{
    p->sent_ms[p->count++ % PAID_PER_HOUR_MAX] = now_ms;
}

bool paid_may(const struct paid *p, const struct paid_view *v, const struct leg *l, int64_t now_ms)
{
    must(v->per_hour <= PAID_PER_HOUR_MAX);
    bool is_busy = v->asked_ms && now_ms - v->asked_ms < PAID_BUSY_MS;
    bool is_quiet = l->inflight == 0 && now_ms - l->health.used_ms >= PAID_QUIET_MS;
    return is_busy && is_quiet && l->kind == LEG_KIND_UPSTREAM && !l->is_passthrough &&
           breaker_is_trial(&l->breaker, now_ms) && breaker_allows(&l->breaker, now_ms) &&
           paid_count(p, now_ms) < v->per_hour;
}
