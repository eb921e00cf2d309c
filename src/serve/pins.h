/* pins - keeps prefixes pinned in whichever child serves their model at the moment.
 *
 * Owns:      the names of pins, which child has which, asking a new child for them again, taking
 *            them off.
 * Not:       who may pin what and for how long (contexts), how much may be pinned (the child's
 *            sched_pins), the first prefill (a request like any other).
 * Invariant: what is on is asked for in each child of its model once, at IDLE; a child that refuses
 *            is asked again after PINS_RETRY_MS. What is off is told to the child there is, also
 *            when nobody knows whether it has it.
 *
 *     off --put--> held by child 17 --17 is gone, 23 is ready: turn--> asked --> held by 23
 *
 * Thread:    the loop's.
 * Limits:    none of its own; a pin lies in its owner's memory.
 */
#ifndef SHOAL_SERVE_PINS_H
#define SHOAL_SERVE_PINS_H

#include "api/api_provider.h"
#include "base/list.h"

#define PINS_RETRY_MS 30000

struct models_leg;
struct pins {
    struct models_leg *models; /* NULL: there are no children */
    struct list all;
    uint64_t last;
};
void pins_init(struct pins *p, struct models_leg *models);

struct pin {
    struct list link;     /* linked: on */
    struct pins *set;
    char name[24];        /* for the child: a number */
    str model;            /* its own name; a view that outlives the pin */
    struct api_request rq;
    int pid;              /* of the child that has it; 0: none that there is */
    int64_t retry_ms;
    bool is_asking;
};
/* Off; named. */
void pins_init_pin(struct pins *p, struct pin *pin, str model);
bool pins_is_on(const struct pin *pin);
/* rq, whose views outlive the pin, was prefilled under its name a moment ago. */
void pins_put(struct pin *pin, const struct api_request *rq);
/* Off, and the child is told. Off already: the child is told all the same. */
void pins_off(struct pin *pin);
/* The child at hand has it. */
bool pins_is_there(const struct pin *pin);

/* Asks children for what they do not have. To be called twice a second while anything is on. */
void pins_turn(struct pins *p, int64_t now_ms);
static inline bool pins_is_idle(const struct pins *p) { return list_is_empty(&p->all); }
/* Tokens that the children there are may pin, all together. */
uint64_t pins_limit_tokens(const struct pins *p);

#endif
