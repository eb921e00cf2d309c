/* engine_stats - what GET /v1/cache shows of one model (BEHAVIOUR 5.10).
 *
 * Owns:      the names of the figures.
 * Not:       when they are told (engine_host), the figures themselves (sched, kv, the tier).
 *
 * Thread:    engine thread.
 */
#ifndef SHOAL_ENGINE_ENGINE_STATS_H
#define SHOAL_ENGINE_ENGINE_STATS_H

#include "base/json.h"
#include "engine/engine_tier.h"
#include "engine/sched.h"

void engine_stats_tier(const struct engine_tier *tier, struct api_tier *out);
/* Pages of the first group: layers without a window. */
void engine_stats_pages(const struct sched *s, uint64_t pages[API_PAGES_COUNT_]);
/* One object. */
void engine_stats_write(struct json_writer *w, const struct sched *s, const struct engine_tier *t);

#endif
