#include "engine/engine_beat.h"

#include "engine/engine_stats.h"

/* Counters are relaxed. Two pairs are not: in_prep goes down after the job is pushed, so that who
 * sees 0 finds it; the device is set before the backend that says it is there. */

static void set_u64(_Atomic uint64_t *to, uint64_t n)
{
    atomic_store_explicit(to, n, memory_order_relaxed);
}

static void set_u32(_Atomic uint32_t *to, uint32_t n)
{
    atomic_store_explicit(to, n, memory_order_relaxed);
}

static uint64_t u64(const _Atomic uint64_t *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

static uint32_t u32(const _Atomic uint32_t *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

/* ---- Engine thread ---- */

void engine_beat_set_phase(struct engine_beat *b, enum api_phase phase)
{
    set_u32(&b->phase, phase);
}

void engine_beat_set_device(struct engine_beat *b, const struct backend *backend,
                            struct device *device)
{
    if (backend)
        atomic_store_explicit(&b->device, device, memory_order_relaxed);
    atomic_store_explicit(&b->backend, backend, memory_order_release);
}

void engine_beat_piece(struct engine_beat *b)
{
    atomic_fetch_add_explicit(&b->progress_base, 1, memory_order_relaxed);
}

void engine_beat_count_step(struct engine_beat *b, const struct sched_stats *s, int64_t ns)
{
    enum api_step_kind kind = s->is_prefilling ? API_STEP_PREFILL : API_STEP_DECODE;
    uint32_t i = 0;
    if (s->steps == u64(&b->step))
        return; /* nothing to run, or everybody is held */
    while (i < API_STEP_BUCKETS && ns > (int64_t)api_step_bounds_ms[i] * 1000000)
        i++;
    atomic_fetch_add_explicit(&b->step_counts[kind][i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&b->step_ns[kind], (uint64_t)ns, memory_order_relaxed);
}

static void publish_tier(struct engine_beat *b, const struct engine_tier *t)
{
    struct api_tier tier;
    engine_stats_tier(t, &tier);
    set_u64(&b->ram_bytes, tier.ram_bytes);
    set_u64(&b->ssd_bytes, tier.ssd_bytes);
    set_u64(&b->read_bytes, tier.read_bytes);
    set_u64(&b->written_bytes, tier.written_bytes);
    set_u64(&b->bad_sums, tier.bad_sums);
    atomic_store_explicit(&b->is_tier_broken, tier.is_broken, memory_order_relaxed);
}

void engine_beat_publish(struct engine_beat *b, const struct sched *sched,
                         const struct engine_tier *t)
{
    const struct sched_stats *s = &sched->stats;
    uint64_t pages[API_PAGES_COUNT_];
    set_u64(&b->step, s->steps);
    set_u64(&b->tokens_done, s->tokens_done);
    set_u64(&b->tokens_queued, s->tokens_waiting);
    set_u64(&b->preemptions, s->preemptions);
    set_u64(&b->recomputed_tokens, s->recomputed_tokens);
    engine_stats_pages(sched, pages);
    for (int i = 0; i < API_PAGES_COUNT_; i++)
        set_u64(&b->pages[i], pages[i]);
    publish_tier(b, t);
    set_u32(&b->running, s->running);
    set_u32(&b->queued, s->waiting);
    set_u32(&b->prefill_rate, (uint32_t)(s->prefill_tokens_per_s * 16));
    set_u32(&b->decode_rate, (uint32_t)(s->decode_tokens_per_s * 16));
}

/* ---- Requests on their way to it ---- */

void engine_beat_prep_add(struct engine_beat *b)
{
    atomic_fetch_add_explicit(&b->in_prep, 1, memory_order_relaxed);
}

void engine_beat_prep_remove(struct engine_beat *b)
{
    atomic_fetch_sub_explicit(&b->in_prep, 1, memory_order_release);
}

uint32_t engine_beat_prep_count(const struct engine_beat *b)
{
    return atomic_load_explicit(&b->in_prep, memory_order_acquire);
}

/* ---- Frame thread ---- */

static uint64_t progress_of(const struct engine_beat *b, const struct api_beat *out)
{
    uint64_t progress = out->tokens_done + out->step + u64(&b->progress_base);
    const struct backend *backend = atomic_load_explicit(&b->backend, memory_order_acquire);
    if (backend && backend->progress)
        progress += backend->progress(atomic_load_explicit(&b->device, memory_order_relaxed));
    return progress;
}

/* An op that has not ended yet is none: it may be the one that hangs. Nor is standing still while
 * nothing is to be done, or while a load waits for a disk, which has a limit of its own. */
static uint64_t longest_op(struct engine_beat_still *s, const struct api_beat *now, int64_t now_ns)
{
    bool is_busy = now->phase == API_PHASE_PREFILL || now->phase == API_PHASE_DECODE;
    bool has_moved = now->progress != s->progress;
    if (now_ns - s->begun_ns >= ENGINE_BEAT_RECENT_NS) {
        s->longest_old_ns = s->longest_ns;
        s->longest_ns = 0;
        s->begun_ns = now_ns;
    }
    if (s->since_ns && has_moved)
        s->longest_ns = base_max(s->longest_ns, (uint64_t)(s->seen_ns - s->since_ns));
    if (!is_busy || has_moved || !s->since_ns)
        s->since_ns = is_busy ? now_ns : 0;
    s->progress = now->progress;
    s->seen_ns = now_ns;
    return base_max(s->longest_ns, s->longest_old_ns);
}

void engine_beat_read(struct engine_beat *b, int64_t now_ns, struct api_beat *out)
{
    *out = (struct api_beat){
        .step = u64(&b->step),
        .phase = (enum api_phase)u32(&b->phase),
        .running = u32(&b->running),
        .queued = u32(&b->queued) + u32(&b->in_prep),
        .tokens_done = u64(&b->tokens_done),
        .tokens_queued = u64(&b->tokens_queued),
        .preemptions = u64(&b->preemptions),
        .recomputed_tokens = u64(&b->recomputed_tokens),
        .tier = {.ram_bytes = u64(&b->ram_bytes),
                 .ssd_bytes = u64(&b->ssd_bytes),
                 .read_bytes = u64(&b->read_bytes),
                 .written_bytes = u64(&b->written_bytes),
                 .bad_sums = u64(&b->bad_sums),
                 .is_broken = atomic_load_explicit(&b->is_tier_broken, memory_order_relaxed)},
        .prefill_tokens_per_s = (float)u32(&b->prefill_rate) / 16,
        .decode_tokens_per_s = (float)u32(&b->decode_rate) / 16,
    };
    for (int k = 0; k < API_STEP_COUNT_; k++) {
        for (uint32_t i = 0; i <= API_STEP_BUCKETS; i++)
            out->steps[k].counts[i] = u64(&b->step_counts[k][i]);
        out->steps[k].ns = u64(&b->step_ns[k]);
    }
    for (int i = 0; i < API_PAGES_COUNT_; i++)
        out->pages[i] = u64(&b->pages[i]);
    out->progress = progress_of(b, out);
    out->op_ns_max = longest_op(&b->still, out, now_ns);
}
