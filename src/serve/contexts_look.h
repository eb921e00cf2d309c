/* contexts_look - asks the children where the pages of saved contexts lie, before they are told.
 *
 * Owns:      one round of questions, a message to each child whose model has a context seen here.
 * Not:       the answer of a child (engine's sched_look), what is written of it (contexts).
 * Invariant: what was asked for is noted with each context before on_done; of one whose model has
 *            no child, or whose child ends meanwhile, nothing is told.
 * Thread:    the loop's.
 * Limits:    RESIDENCY_MODELS_MAX children, the contexts that there are.
 */
#ifndef SHOAL_SERVE_CONTEXTS_LOOK_H
#define SHOAL_SERVE_CONTEXTS_LOOK_H

#include "serve/contexts.h"

struct contexts_look;
struct contexts_looker {
    struct contexts_asker who;
    str id;          /* of one context; "": all that are listed */
    struct arena *a; /* outlives the round */
    void (*on_done)(void *ctx);
    void *ctx;
};
/* NULL: nobody has to be asked, or there is no memory to: on_done is not called. */
struct contexts_look *contexts_look_begin(struct contexts *s, const struct contexts_looker *k);
/* Nobody waits any more; also after on_done. NULL is allowed. */
void contexts_look_end(struct contexts_look *l);

#endif
