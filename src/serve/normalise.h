/* normalise - values that change with every request and mean nothing to the model's work.
 *
 * Owns:      the times of day in system texts (cache.normalise.clock).
 * Not:       Claude Code's checksum (dialect/dialect_anthropic: it is in one protocol only), dates,
 *            what templates write themselves.
 * Invariant: only digits of a time of day and the word AM or PM behind it change; length and
 *            everything else of a text stay. Texts of users, replies and tools are never touched.
 *
 *     It is 2026-11-30 14:41:07, a Monday.  -->  It is 2026-11-30 00:00:00, a Monday.
 *
 * Thread:    any.
 * Limits:    linear in the texts.
 */
#ifndef SHOAL_SERVE_NORMALISE_H
#define SHOAL_SERVE_NORMALISE_H

#include "api/api_request.h"

/* Rounds the times of day in rq's system and developer turns down to the day; what changes is
 * copied into a. Returns how many there were. A full a leaves the rest as it is. */
uint32_t normalise_clock(struct api_request *rq, struct arena *a);

#endif
