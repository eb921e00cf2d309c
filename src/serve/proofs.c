#include "serve/proofs.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"

#define PROOFS_ID ((uint64_t)1 << 60) /* beside those of exchange, attempt, public, pins, shadow */

struct proofs_run {
    struct list link, waiting;
    struct proofs *set;
    struct loop_timer late;
    struct api_request rq;
    struct api_input input;
    bool has_token;
    char model[];
};

void proofs_init(struct proofs *p, struct loop *loop, struct models_leg *models)
{
    *p = (struct proofs){.loop = loop, .models = models};
    list_init(&p->runs);
}

static void proofs_free(struct proofs_run *r)
{
    list_each (link, &r->waiting)
        list_remove(link);
    list_remove(&r->link);
    loop_timer_close(&r->late);
    free(r);
}

/* Who is told may ask again, or go: each is off the list before. */
static void proofs_end(struct proofs_run *r, bool is_proved)
{
    struct list *first;
    list_remove(&r->link);
    while ((first = list_first(&r->waiting))) {
        struct proof *who = list_item(first, struct proof, link);
        list_remove(first);
        who->on_end(who->ctx, is_proved);
    }
    proofs_free(r);
}

static void proofs_cancel(struct proofs_run *r)
{
    struct api_provider p = models_leg_provider(r->set->models);
    p.cancel(p.self, r->rq.id);
}

void proofs_close(struct proofs *p)
{
    list_each (link, &p->runs) {
        struct proofs_run *r = list_item(link, struct proofs_run, link);
        proofs_cancel(r);
        proofs_free(r);
    }
}

static void proofs_on_late(void *ctx)
{
    struct proofs_run *r = ctx;
    log_warn("ready: %s gave no token within %d ms", r->model, PROOFS_MS);
    proofs_cancel(r);
    proofs_end(r, false);
}

/* The token may be an end: then there is no text, and it counts all the same. */
static void proofs_on_batch(void *ctx, const struct api_batch *b)
{
    struct proofs_run *r = ctx;
    r->has_token = r->has_token || b->ids_count > 0;
    for (uint32_t i = 0; i < b->events_count; i++) {
        const struct api_event *ev = &b->events[i];
        if (ev->kind == API_EVENT_ERROR)
            log_warn("ready: %s: %s", r->model, ev->error.err.text);
        if (ev->kind == API_EVENT_DONE || ev->kind == API_EVENT_ERROR) {
            proofs_end(r, ev->kind == API_EVENT_DONE && r->has_token);
            return;
        }
    }
}

/* As short as a request can be; it leaves nothing in the prefix cache and finds nothing there, so
 * that the weights are read. */
static void proofs_fill(struct proofs_run *r, str model)
{
    snprintf(r->model, model.len + 1, "%.*s", STR_ARG(model));
    r->input.text = STR("a");
    api_request_init(&r->rq);
    r->rq.id = PROOFS_ID + r->set->ids++;
    r->rq.kind = API_KIND_COMPLETE;
    r->rq.model = str_of(r->model);
    r->rq.agent = STR("ready");
    r->rq.inputs = &r->input;
    r->rq.inputs_count = 1;
    r->rq.given = API_GIVEN(TOKENS_MAX) | API_GIVEN(TEMPERATURE);
    r->rq.tokens_max = 1;
    r->rq.temperature = 0;
    r->rq.cache = API_CACHE_OFF;
}

static struct proofs_run *proofs_begin(struct proofs *p, str model)
{
    struct api_provider local = models_leg_provider(p->models);
    struct api_error e = {0};
    struct proofs_run *r = calloc(1, sizeof *r + model.len + 1);
    if (!r)
        return NULL;
    r->set = p;
    list_init(&r->waiting);
    list_push_last(&p->runs, &r->link);
    proofs_fill(r, model);
    if (!loop_timer_open(&r->late, p->loop, proofs_on_late, r, &e.err) ||
        !local.submit(local.self, &r->rq, (struct api_sink){proofs_on_batch, r}, &e)) {
        log_warn("ready: %s: %s", r->model, e.err.text);
        proofs_free(r);
        return NULL;
    }
    loop_timer_set(&r->late, PROOFS_MS);
    return r;
}

bool proofs_ask(struct proofs *p, str model, struct proof *who)
{
    struct proofs_run *r = NULL;
    list_each (link, &p->runs) {
        struct proofs_run *at = list_item(link, struct proofs_run, link);
        if (str_eq_z(model, at->model))
            r = at;
    }
    r = r ? r : proofs_begin(p, model);
    if (!r)
        return false;
    list_push_last(&r->waiting, &who->link);
    return true;
}

void proofs_leave(struct proof *who) { list_remove(&who->link); }
