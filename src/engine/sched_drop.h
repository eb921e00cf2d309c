/* sched_drop - gives up cached pages because somebody says so (BEHAVIOUR 5.10, /v1/cache/drop).
 *
 * Owns:      the tags of agents and sessions on the tree, what a DROP means for tree and tier.
 * Not:       who may ask (serve), what an eviction chooses (kv_trie).
 * Invariant: no reply changes: what a sequence holds it keeps, what is pinned stays, what somebody
 *            else used too stays. Of an agent or a session that is found which the tree still
 *            knows, with its copies in the tier; pages that only the tier has belong to nobody.
 * Thread:    engine thread.
 */
#ifndef SHOAL_ENGINE_SCHED_DROP_H
#define SHOAL_ENGINE_SCHED_DROP_H

#include "api/api_frame.h"
#include "engine/sched.h"

void sched_drop(struct sched *s, const struct api_drop *d, struct api_dropped *out);

#endif
