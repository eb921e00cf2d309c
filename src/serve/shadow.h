/* shadow - the local model reads along with a conversation that another leg answers.
 *
 * Owns:      requests of kind PREFILL and class idle that it sends by itself, from their copy to
 *            their end; how many tokens they computed.
 * Not:       which route wants it (attempt), when an engine runs class idle and how much of the
 *            time (sched), what is cached (the engine).
 * Invariant: nothing is sent to a model that is not loaded, that anybody else uses, or that is
 *            leaving; all that runs is taken back before a request goes to any local model. So it
 *            neither loads nor swaps, and nobody waits for it. A session has one at a time: of its
 *            prompt, then of prompt and reply.
 *
 *     cloud leg asked --shadow_follow(prompt)--> PREFILL at IDLE --> pages in the prefix cache
 *     cloud leg done  --shadow_follow(reply)---> ...
 *     local leg asked --shadow_yield----------> cancelled; its pages stay
 *
 * Thread:    the loop's.
 * Limits:    SHADOW_RUNS_MAX at once, SHADOW_SIZE_MAX of a request; what is more is not warmed.
 */
#ifndef SHOAL_SERVE_SHADOW_H
#define SHOAL_SERVE_SHADOW_H

#include "base/list.h"
#include "route/residency.h"
#include "route/transcript.h"
#include "serve/models_leg.h"

#define SHADOW_RUNS_MAX 64u
#define SHADOW_SIZE_MAX ((size_t)16 << 20)

struct shadow {
    struct models_leg *models;
    struct api_provider local;
    struct list runs;
    uint32_t runs_count, min_tokens; /* min_tokens: of a prompt; shorter ones are fast anyway */
    uint64_t ids, tokens;            /* tokens: computed, ever */
};

/* models outlives it. */
void shadow_init(struct shadow *s, struct models_leg *models);
void shadow_close(struct shadow *s);

struct shadow_ask {
    const struct api_request *rq; /* as the client sent it */
    str leg, model;               /* of the route's shadow; a local model's name */
    uint64_t key;                 /* of the session */
    uint32_t prompt_tokens;       /* counted or estimated */
    const struct transcript *reply; /* NULL: still to come */
};
/* Copies what it needs. Where it may not or cannot it does nothing: it is a help, not a duty. */
void shadow_follow(struct shadow *s, const struct shadow_ask *ask);
/* A request goes to a local model. */
void shadow_yield(struct shadow *s);

#endif
