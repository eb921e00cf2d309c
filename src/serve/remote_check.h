/* remote_check - is an upstream well, when no client asks it?
 *
 * Owns:      one free check and one paid probe at a time of one leg, and what their answers mean.
 * Not:       when they are sent (legs), the breaker that listens (route), the leg's calls
 *            (remote_leg).
 * Invariant: on_check runs once for each check that began, from the loop, unless the leg is closed
 *            before. A free check costs nothing at the upstream; a probe is a request of the leg.
 *
 *     remote_check_ask   --GET free path--> status --> fault or none
 *     remote_check_probe --submit, 16 tokens--> DONE, ERROR --> fault or none
 *
 * Thread:    the loop's. Part of its leg.
 * Limits:    one of each at once; a free check ends after 5 s, a probe by the waits it is given.
 */
#ifndef SHOAL_SERVE_REMOTE_CHECK_H
#define SHOAL_SERVE_REMOTE_CHECK_H

#include "serve/remote_leg.h"

struct remote_check {
    void (*on_check)(void *ctx, const struct remote_leg_check *c);
    void *ctx;
    struct http_call *http;
    int64_t began_ms;
    int status;
    enum http_call_fault fault;
    uint64_t tokens;        /* of a probe, as billed */
    int64_t retry_after_ms; /* of a probe that was refused */
    bool is_running, was_asked;
};
struct remote_check_set {
    const struct remote_leg_options *o; /* the leg's */
    struct api_provider leg;
    struct remote_check check, probe;
    struct api_request probe_rq; /* the probe's own request */
    struct api_message probe_message;
    struct api_part probe_part;
    char probe_model[128];
    uint64_t probe_id;
};

/* o is the leg's, and lives as long. */
void remote_check_init(struct remote_check_set *l, const struct remote_leg_options *o,
                       struct api_provider leg);
void remote_check_close(struct remote_check_set *l);
/* As remote_leg_ask and remote_leg_probe say. */
bool remote_check_ask(struct remote_check_set *l,
                      void (*on_check)(void *ctx, const struct remote_leg_check *c), void *ctx);
bool remote_check_probe(struct remote_check_set *l, str model, const struct api_deadlines *wait,
                        void (*on_check)(void *ctx, const struct remote_leg_check *c), void *ctx);

#endif
