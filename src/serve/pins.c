#include "serve/pins.h"

#include <stdio.h>

#include "base/chrono.h"
#include "base/log.h"
#include "route/residency.h"
#include "serve/models_leg.h"

#define PINS_ID ((uint64_t)3 << 61) /* beside the ids of exchange, attempt, cache.public */

void pins_init(struct pins *p, struct models_leg *models)
{
    *p = (struct pins){.models = models};
    list_init(&p->all);
}

void pins_init_pin(struct pins *p, struct pin *pin, str model)
{
    *pin = (struct pin){.set = p, .model = model};
    list_init(&pin->link);
    snprintf(pin->name, sizeof pin->name, "%llu", (unsigned long long)++p->last);
}

bool pins_is_on(const struct pin *pin) { return !list_is_empty(&pin->link); }

/* The child that can be asked now; 0: none. */
static int pins_child(const struct pins *p, str model)
{
    return p->models ? models_leg_child(p->models, model) : 0;
}

bool pins_is_there(const struct pin *pin)
{
    return pins_is_on(pin) && pin->pid && pin->pid == pins_child(pin->set, pin->model);
}

/* --- on, off -------------------------------------------------------------------------------- */

/* What is asked again is what was asked, but by nobody who waits. */
void pins_put(struct pin *pin, const struct api_request *rq)
{
    struct pins *p = pin->set;
    pin->rq = *rq;
    pin->rq.id = PINS_ID + ++p->last;
    pin->rq.kind = API_KIND_PREFILL;
    pin->rq.cache = API_CACHE_PIN;
    pin->rq.context = str_of(pin->name);
    pin->rq.priority = API_PRIORITY_IDLE;
    pin->rq.model = pin->model;
    pin->rq.leg = pin->rq.session = pin->rq.body = STR("");
    pin->rq.headers_count = 0;
    pin->rq.client_key = NULL;
    pin->rq.resume = NULL;
    pin->rq.deadline = (struct api_deadlines){.total_ms = 0};
    pin->rq.notes_count = 0;
    pin->pid = pins_child(p, pin->model);
    if (!pins_is_on(pin))
        list_push_last(&p->all, &pin->link);
}

void pins_off(struct pin *pin)
{
    struct pins *p = pin->set;
    if (pin->is_asking) {
        struct api_provider local = models_leg_provider(p->models);
        local.cancel(local.self, pin->rq.id);
    }
    pin->is_asking = false;
    list_remove(&pin->link);
    if (p->models)
        models_leg_unpin(p->models, pin->model, str_of(pin->name));
}

/* --- a new child ---------------------------------------------------------------------------- */

static void pins_on_batch(void *ctx, const struct api_batch *b)
{
    struct pin *pin = ctx;
    for (uint32_t i = 0; i < b->events_count; i++) {
        if (b->events[i].kind == API_EVENT_ERROR) {
            log_warn("contexts: a pin of %.*s is lost: %s", STR_ARG(pin->model),
                     b->events[i].error.err.text);
            pin->is_asking = false;
        } else if (b->events[i].kind == API_EVENT_DONE) {
            pin->is_asking = false;
            pin->pid = pins_child(pin->set, pin->model);
        }
    }
}

void pins_turn(struct pins *p, int64_t now_ms)
{
    struct api_error why = {0};
    list_each (at, &p->all) {
        struct pin *pin = list_item(at, struct pin, link);
        int child = pins_child(p, pin->model);
        if (pin->is_asking || !child || child == pin->pid || now_ms < pin->retry_ms)
            continue;
        struct api_provider local = models_leg_provider(p->models);
        pin->pid = 0;
        pin->retry_ms = now_ms + PINS_RETRY_MS;
        pin->rq.id = PINS_ID + ++p->last;
        pin->rq.time_s = chrono_unix_ms(&chrono_real) / 1000;
        pin->is_asking = true;
        if (local.submit(local.self, &pin->rq, (struct api_sink){pins_on_batch, pin}, &why))
            continue;
        pin->is_asking = false;
        log_warn("contexts: a pin of %.*s is lost: %s", STR_ARG(pin->model), why.err.text);
    }
}

uint64_t pins_limit_tokens(const struct pins *p)
{
    struct models_leg_resident rows[RESIDENCY_MODELS_MAX];
    size_t count = p->models ? models_leg_residents(p->models, rows, countof(rows)) : 0;
    uint64_t pages = 0;
    for (size_t i = 0; i < base_min(count, countof(rows)); i++)
        pages += rows[i].beat.pages[API_PAGES_PIN_LIMIT];
    return pages * API_PAGE_TOKENS;
}
