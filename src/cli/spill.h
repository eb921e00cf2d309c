/* spill - where the SSD tier lies and how much it may take, as the configuration says.
 *
 * Owns:      the meaning of `auto` in cache.spill, cache.spill_size and cache.ram.
 * Not:       files (kv/tier_parts), what a load does with it (engine/engine_tier).
 * Invariant: `auto` never takes a disk that has less than SPILL_FREE_MIN free.
 * Thread:    main.
 */
#ifndef SHOAL_CLI_SPILL_H
#define SHOAL_CLI_SPILL_H

#include "api/api_frame.h"
#include "cli/config.h"

#define SPILL_FREE_MIN ((uint64_t)64 << 30)
#define SPILL_SIZE_MAX ((uint64_t)32 << 30) /* auto: a tenth of what is free */

/* The directory, whether or not it is used: the configured one, else ~/.shoal/cache. */
str spill_dir(const struct config *c, struct arena *a);
/* Fills spill, spill_bytes, spill_floor, ram_bytes. */
void spill_load(const struct config *c, struct arena *a, struct api_load *l);

#endif
