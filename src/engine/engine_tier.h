/* engine_tier - the tier of one model: its sizes, its owner's id, its directory.
 *
 * Owns:      the disk's thread and the tier of a loaded engine.
 * Not:       what goes there (sched_tier), the sizes that a configuration says (cli).
 * Invariant: a tier that cannot be opened costs nothing but itself: the model serves without, and
 *            says why. Pages are found only by the build, weights, numerics and layout that wrote
 *            them.
 *
 * Thread:    engine thread.
 * Limits:    ENGINE_TIER_BUFFERS bytes of buffers where pages lie in RAM anyway; api_load's sizes.
 */
#ifndef SHOAL_ENGINE_ENGINE_TIER_H
#define SHOAL_ENGINE_ENGINE_TIER_H

#include "engine/engine.h"
#include "kv/kv_tier.h"

#define ENGINE_TIER_BUFFERS ((uint64_t)64 << 20)

struct engine_tier {
    struct kv_tier *tier; /* NULL: none */
    struct tier_disk disk;
    bool has_disk;
    bool is_broken;        /* the directory cannot be used: an error of the disk, not a refusal */
    char build[64], model[64]; /* for the files' headers */
    char why[ERR_TEXT_MAX]; /* there is none, or no disk; "": that was asked for, or all is well */
};

struct engine_tier_options {
    const struct api_load *load;
    str build_id;
    void (*wake)(void *ctx); /* from the tier's thread: something has come back */
    void *ctx;
};

/* After engine_open. Never fails a load: t->why says what is not there. */
void engine_tier_open(struct engine_tier *t, struct engine *en,
                      const struct engine_tier_options *o);
void engine_tier_close(struct engine_tier *t); /* also after a zeroed struct */

#endif
