/* engine_beat - what a child says of itself twice a second, whatever its engine is doing.
 *
 * Owns:      the figures of a BEAT frame between the thread that has them and the one that sends.
 * Not:       when it leaves (engine_host), its bytes (api_frame), what it means (serve/engine_leg).
 * Invariant: each figure is whole; two of them need not be of the same moment. Progress grows with
 *            each step, token, loaded piece and finished part of a running step: standing still
 *            while not idle is a stall.
 *
 * Thread:    engine_beat_read: frame thread; engine_beat_prep: frame and prep; the rest: engine.
 */
#ifndef SHOAL_ENGINE_ENGINE_BEAT_H
#define SHOAL_ENGINE_ENGINE_BEAT_H

#include <stdatomic.h>

#include "api/api_frame.h"
#include "engine/engine_tier.h"
#include "engine/sched.h"
#include "tensor/backend.h"

#define ENGINE_BEAT_RECENT_NS INT64_C(60000000000)

/* How long progress stood still and then went on: the longest op, as far as beats can see it. */
struct engine_beat_still {
    uint64_t progress;
    int64_t since_ns, seen_ns;         /* first and last beat that saw it; since 0: none */
    int64_t begun_ns;                  /* of the newer half of what counts as recent */
    uint64_t longest_ns, longest_old_ns; /* in the newer half, in the half before */
};

/* All zero is a child that has just started. */
struct engine_beat {
    _Atomic uint64_t step, tokens_done, tokens_queued, progress_base;
    _Atomic uint64_t preemptions, recomputed_tokens, pages[API_PAGES_COUNT_];
    _Atomic uint64_t ram_bytes, ssd_bytes, read_bytes, written_bytes, bad_sums; /* tier */
    _Atomic bool is_tier_broken;
    _Atomic uint32_t phase, running, queued, prefill_rate, decode_rate; /* rates: tokens/s x 16 */
    _Atomic uint32_t in_prep;
    _Atomic uint64_t step_counts[API_STEP_COUNT_][API_STEP_BUCKETS + 1], step_ns[API_STEP_COUNT_];
    _Atomic(const struct backend *) backend; /* set once the device is open */
    _Atomic(struct device *) device;
    struct engine_beat_still still; /* frame thread */
};

void engine_beat_set_phase(struct engine_beat *b, enum api_phase phase);
/* Whose progress inside a step counts. NULL: nobody's, the device is about to close. */
void engine_beat_set_device(struct engine_beat *b, const struct backend *backend,
                            struct device *device);
/* A piece of the model is loaded: progress without a step. */
void engine_beat_piece(struct engine_beat *b);
/* A request goes to the prep thread. */
void engine_beat_prep_add(struct engine_beat *b);
/* It left, and whatever it became is with the engine thread. */
void engine_beat_prep_remove(struct engine_beat *b);
uint32_t engine_beat_prep_count(const struct engine_beat *b);
/* The call of sched_step that ended took ns; one that took no step counts nothing. Before
 * engine_beat_publish, which makes the step known. */
void engine_beat_count_step(struct engine_beat *b, const struct sched_stats *s, int64_t ns);
/* The figures after a step. */
void engine_beat_publish(struct engine_beat *b, const struct sched *s, const struct engine_tier *t);

/* op_ns_max is of the last one to two ENGINE_BEAT_RECENT_NS, and not more than what it was. */
void engine_beat_read(struct engine_beat *b, int64_t now_ns, struct api_beat *out);

#endif
