/* api_provider - anything that can answer: an engine child, a remote upstream, the model library.
 *
 * Owns:      the interface and its promises.
 * Not:       choosing between providers (route), what they are (serve/engine_leg, remote_leg,
 *            models_leg).
 * Invariant: on_batch is never called from inside submit, cancel or hold, only from the loop.
 *            After submit returned true, batches follow until the last DONE or one ERROR; after
 *            cancel none follow. Ids are the caller's and never used twice.
 * Thread:    the endpoint's loop.
 * Limits:    a provider refuses at once (ERR_OVERLOADED) what it cannot queue.
 */
#ifndef SHOAL_API_API_PROVIDER_H
#define SHOAL_API_API_PROVIDER_H

#include "api/api_event.h"

enum api_health_state {
    API_HEALTH_STARTING, /* loading */
    API_HEALTH_READY,
    API_HEALTH_RESTARTING,
    API_HEALTH_FAILED,
    API_HEALTH_STOPPED,
    API_HEALTH_COUNT_
};

struct api_health {
    enum api_health_state state;
    str reason;           /* FAILED, RESTARTING: a sentence, valid until the next call; else "" */
    float progress;       /* STARTING: 0..1 of the load */
    int64_t progress_age_ms; /* since anything moved while there was work; 0 when idle */
    uint32_t running, queued;
    uint64_t queued_tokens;
    float prefill_tokens_per_s, decode_tokens_per_s; /* recent; 0 = not measured */
    uint32_t restarts;    /* children that were replaced; wedges: those that stood still */
    uint32_t wedges;
};

struct api_provider {
    void *self;
    /* Takes the request over or refuses it with e. rq and all it views must stay valid until the
     * last batch or cancel. */
    bool (*submit)(void *self, const struct api_request *rq, struct api_sink sink,
                   struct api_error *e);
    void (*cancel)(void *self, uint64_t id); /* idempotent; nothing follows */
    /* The reader stalls: pause that request's sequences, and go on. Idempotent. */
    void (*hold)(void *self, uint64_t id, bool on);
    /* The client took so many bytes of what on_batch gave: a request may be that much ahead. */
    void (*credit)(void *self, uint64_t id, uint32_t bytes);
    /* Fills at most out_max rows, returns how many there are. Views valid until the next call. */
    size_t (*models)(void *self, struct api_model *out, size_t out_max);
    void (*health)(void *self, struct api_health *out);
};

#endif
