#include "engine/sched_policy.h"

#include "kv/kv_trie.h"

/* --- the waiting line ---------------------------------------------------------------------- */

static int sched_policy_class(const struct sched_waiting *w)
{
    int64_t lifted = (int64_t)w->priority + w->waited_ms / SCHED_POLICY_LIFT_MS;
    return (int)(lifted < API_PRIORITY_HIGH ? lifted : API_PRIORITY_HIGH);
}

bool sched_policy_before(const struct sched_waiting *a, const struct sched_waiting *b)
{
    int class_a = sched_policy_class(a), class_b = sched_policy_class(b);
    if (class_a != class_b)
        return class_a > class_b;
    if (a->was_preempted != b->was_preempted)
        return a->was_preempted;
    if (a->key_service < b->key_service || a->key_service > b->key_service)
        return a->key_service < b->key_service;
    if (a->service < b->service || a->service > b->service)
        return a->service < b->service;
    return a->order < b->order;
}

bool sched_policy_may_pass(uint32_t bypassed, int64_t blocked_ms)
{
    return bypassed < SCHED_POLICY_BYPASS_MAX && blocked_ms < SCHED_POLICY_BYPASS_MS;
}

/* --- a step -------------------------------------------------------------------------------- */

uint32_t sched_policy_chunk(const struct sched_pace *p, uint32_t decoders)
{
    if (decoders == 0 || p->decode_ms <= 0 || p->row_ms <= 0)
        return p->batch;
    double target = p->target_ms > 0 ? p->target_ms : 2.5 * p->decode_ms;
    double rows = (target - p->decode_ms) / p->row_ms;
    if (rows >= p->batch)
        return p->batch;
    uint32_t least = p->batch < SCHED_POLICY_ROWS_MIN ? p->batch : SCHED_POLICY_ROWS_MIN;
    return rows > least ? (uint32_t)rows : least;
}

static bool sched_policy_is_prompt(const struct sched_runner *r)
{
    return !r->is_decoder && !r->is_held && r->rows_left > 0;
}

/* First admitted prompt that has got no rows yet; count: none. */
static uint32_t sched_policy_first(const struct sched_runner *r, uint32_t count,
                                   const uint32_t *rows)
{
    uint32_t first = count;
    for (uint32_t i = 0; i < count; i++)
        if (sched_policy_is_prompt(&r[i]) && rows[i] == 0 &&
            (first == count || r[i].admitted < r[first].admitted))
            first = i;
    return first;
}

/* The shortest prompt that may go ahead of the first one. */
static uint32_t sched_policy_short(const struct sched_runner *r, uint32_t count, uint32_t first)
{
    uint32_t best = count;
    for (uint32_t i = 0; i < count; i++)
        if (i != first && sched_policy_is_prompt(&r[i]) &&
            sched_policy_is_short(r[i].rows_left, r[first].rows_left) &&
            (best == count || r[i].rows_left < r[best].rows_left ||
             (r[i].rows_left == r[best].rows_left && r[i].admitted < r[best].admitted)))
            best = i;
    return best;
}

uint32_t sched_policy_rows(const struct sched_runner *r, uint32_t count, uint32_t chunk,
                           uint32_t rows_max, uint32_t *rows)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        rows[i] = r[i].is_decoder && !r[i].is_held && r[i].rows_left && sum < rows_max;
        sum += rows[i];
    }
    uint32_t left = (uint32_t)base_min(chunk, rows_max - sum);
    uint32_t first = sched_policy_first(r, count, rows);
    if (first < count) {
        uint32_t ahead = sched_policy_short(r, count, first);
        if (ahead < count) {
            rows[ahead] = (uint32_t)base_min(r[ahead].rows_left, (left + 1) / 2);
            left -= rows[ahead];
            sum += rows[ahead];
        }
    }
    for (; left && first < count; first = sched_policy_first(r, count, rows)) {
        rows[first] = (uint32_t)base_min(r[first].rows_left, left);
        left -= rows[first];
        sum += rows[first];
    }
    return sum;
}

/* --- work that nobody waits for ------------------------------------------------------------ */

uint32_t sched_policy_idle_rows(const struct sched_pace *p)
{
    double rows = p->row_ms > 0 ? SCHED_POLICY_IDLE_MS / p->row_ms : SCHED_POLICY_IDLE_ROWS;
    if (rows >= p->batch)
        return p->batch;
    uint32_t least = (uint32_t)base_min(p->batch, SCHED_POLICY_IDLE_ROWS);
    return rows > least ? (uint32_t)rows : least;
}

int64_t sched_policy_idle_rest(int64_t step_ns, uint32_t permille)
{
    must(permille >= 1 && permille <= 1000);
    return step_ns / permille * (1000 - permille);
}

/* --- a full pool --------------------------------------------------------------------------- */

static bool sched_policy_loses_less(const struct sched_victim *a, const struct sched_victim *b)
{
    if (a->priority != b->priority)
        return a->priority < b->priority;
    if (a->recompute != b->recompute)
        return a->recompute < b->recompute;
    return a->admitted > b->admitted;
}

uint32_t sched_policy_victim(const struct sched_victim *v, uint32_t count, uint32_t needs)
{
    uint32_t best = count;
    if (count < 2)
        return count; /* the only runner keeps what it has */
    for (uint32_t i = 0; i < count; i++)
        if (v[i].preempted_count < SCHED_POLICY_PREEMPT_MAX && v[i].priority <= v[needs].priority &&
            (best == count || sched_policy_loses_less(&v[i], &v[best])))
            best = i;
    return best;
}

/* --- a prefix in the tier ------------------------------------------------------------------ */

bool sched_policy_restores(const struct sched_restore *r)
{
    if (r->bytes_per_s <= 0 || r->tokens_per_s <= 0)
        return true;
    return r->bytes / r->bytes_per_s < r->tokens / r->tokens_per_s;
}

/* BEHAVIOUR 8.11: who waits for a tool is back in seconds, who named a session is expected. */
uint32_t sched_policy_weight(enum api_done done, bool has_session)
{
    return done == API_DONE_CALLS ? KV_TRIE_WEIGHT_TOOL
           : has_session          ? KV_TRIE_WEIGHT_SESSION
                                  : 1;
}
