/* proofs - does a loaded model still give tokens? One token is asked of it.
 *
 * Owns:      the requests behind GET /ready?prove=1, and who waits for which.
 * Not:       what needs no proof (path_ready), loads: nothing here loads or swaps a model.
 * Invariant: a model has one such request at a time, however many ask: an open path cannot fill a
 *            queue. Each who waits is told once, PROOFS_MS after the request began at the latest.
 *
 *     ask --nobody asks yet--> COMPLETE, one token --CONTENT, DONE--> proved
 *       \__somebody does: waits beside            \__ERROR, time____> not proved
 *
 * Thread:    the loop's.
 * Limits:    one request for each of the RESIDENCY_MODELS_MAX models.
 */
#ifndef SHOAL_SERVE_PROOFS_H
#define SHOAL_SERVE_PROOFS_H

#include "base/list.h"
#include "serve/models_leg.h"

#define PROOFS_MS 5000 /* BEHAVIOUR 5.11 */

struct proofs {
    struct loop *loop;
    struct models_leg *models;
    struct list runs;
    uint64_t ids;
};

/* One who waits; the caller's memory, which stays until told or left. */
struct proof {
    struct list link;
    void (*on_end)(void *ctx, bool is_proved);
    void *ctx;
};

/* loop and models outlive it. */
void proofs_init(struct proofs *p, struct loop *loop, struct models_leg *models);
void proofs_close(struct proofs *p); /* nobody is told any more */
/* Asks the model of that very name, which is loaded. False: it takes no request now, and nobody
 * will be told. Never tells from inside. */
BASE_USE_RESULT bool proofs_ask(struct proofs *p, str model, struct proof *who);
void proofs_leave(struct proof *who); /* told already: nothing */

#endif
