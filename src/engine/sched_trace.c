#include "engine/sched_trace.h"

#define TRACE_NS INT64_C(1000000000)

bool sched_trace_add(struct sched_trace *t, const struct sched_stats *now, int64_t now_ns,
                     struct buf *out)
{
    const struct sched_stats *was = &t->was;
    uint64_t steps = now->steps - was->steps;
    if (!t->since_ns || !steps) {
        t->since_ns = t->since_ns && steps ? t->since_ns : now_ns;
        return false;
    }
    if (now_ns - t->since_ns < TRACE_NS)
        return false;
    double seconds = (double)(now_ns - t->since_ns) / 1e9, ms = 1e6 * (double)steps;
    uint64_t prompt = now->prompt_tokens - was->prompt_tokens;
    uint64_t reused = now->reused_tokens - was->reused_tokens;
    double rows = (double)(now->tokens_done - was->tokens_done);
    buf_printf(out, "sched: %.1f steps/s, batch %.1f, running %u, ms a step %.2f scheduler "
               "%.2f compute %.2f sampling, admitted %llu, %llu prompt tokens, %.0f %% reused",
               (double)steps / seconds, rows / (double)steps, now->running,
               (double)(now->plan_ns - was->plan_ns) / ms,
               (double)(now->compute_ns - was->compute_ns) / ms,
               (double)(now->take_ns - was->take_ns) / ms,
               (unsigned long long)(now->admitted - was->admitted), (unsigned long long)prompt,
               prompt ? 100.0 * (double)reused / (double)prompt : 0);
    t->was = *now;
    t->since_ns = now_ns;
    return true;
}
