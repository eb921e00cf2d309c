#include "serve/shadow.h"

#include <stdlib.h>

#include "api/api_frame.h"
#include "base/log.h"

#define SHADOW_ID ((uint64_t)1 << 61) /* beside the ids of exchange, attempt, public */

struct shadow_run {
    struct list link;
    struct shadow *set;
    struct arena arena;
    struct api_request rq;
    uint64_t key;
    uint32_t done, cached; /* of its prompt, as the engine told */
};

void shadow_init(struct shadow *s, struct models_leg *models)
{
    *s = (struct shadow){.models = models, .local = models_leg_provider(models)};
    list_init(&s->runs);
}

static void shadow_free(struct shadow_run *r)
{
    struct shadow *s = r->set;
    s->tokens += r->done > r->cached ? r->done - r->cached : 0;
    s->runs_count--;
    list_remove(&r->link);
    arena_deinit(&r->arena);
    free(r);
}

static void shadow_cancel(struct shadow_run *r)
{
    struct api_provider *p = &r->set->local;
    p->cancel(p->self, r->rq.id);
    shadow_free(r);
}

void shadow_yield(struct shadow *s)
{
    list_each (link, &s->runs)
        shadow_cancel(list_item(link, struct shadow_run, link));
}

void shadow_close(struct shadow *s) { shadow_yield(s); }

/* --- may it? ------------------------------------------------------------------------------- */

/* Loaded, staying, and used by nobody but us. */
static bool shadow_is_free(struct shadow *s, str model)
{
    struct models_leg_resident rows[RESIDENCY_MODELS_MAX];
    size_t count = base_min(models_leg_residents(s->models, rows, countof(rows)), countof(rows));
    uint32_t asks = 0;
    bool is_ready = false;
    for (size_t i = 0; i < count; i++) {
        asks += rows[i].running + rows[i].waiting;
        is_ready = is_ready || (str_eq_nocase(rows[i].name, model) && rows[i].model.context_max &&
                                rows[i].health.state == API_HEALTH_READY && !rows[i].is_draining);
    }
    return is_ready && asks <= s->runs_count;
}

static bool shadow_may(struct shadow *s, const struct shadow_ask *ask)
{
    const struct api_request *rq = ask->rq;
    bool is_text = rq->kind == API_KIND_CHAT || (rq->kind == API_KIND_COMPLETE && !ask->reply);
    return is_text && rq->cache == API_CACHE_KEEP && ask->prompt_tokens >= s->min_tokens &&
           s->runs_count < SHADOW_RUNS_MAX && shadow_is_free(s, ask->model);
}

/* --- the request --------------------------------------------------------------------------- */

/* The reply as the next request will bring it: one more turn. False: there is nothing to add. */
static bool shadow_add_reply(struct shadow_run *r, const struct transcript *t)
{
    const struct transcript_choice *c = &t->choices[0];
    uint32_t count = r->rq.messages_count;
    struct api_message *all = ARENA_ARRAY(&r->arena, struct api_message, (size_t)count + 1);
    if (!all || t->is_full || t->choices_count != 1 || !c->parts_count || r->rq.continue_last)
        return false;
    for (uint32_t i = 0; i < count; i++)
        all[i] = r->rq.messages[i];
    all[count] = (struct api_message){.role = API_ROLE_ASSISTANT};
    if (!transcript_fill(c, c->parts_count, &r->arena, &all[count]))
        return false;
    r->rq.messages = all;
    r->rq.messages_count = count + 1;
    return true;
}

/* A copy that needs nothing of the exchange: through the frame's codec, which knows every field
 * that an engine gets. */
static bool shadow_copy(struct shadow_run *r)
{
    struct api_frame f = {.kind = API_FRAME_SUBMIT, .id = r->rq.id, .submit = r->rq};
    struct buf bytes;
    struct err e;
    buf_init(&bytes, SHADOW_SIZE_MAX);
    api_frame_put_body(&bytes, &f);
    str body = bytes.full ? STR("") : arena_copy(&r->arena, buf_view(&bytes));
    buf_deinit(&bytes);
    f = (struct api_frame){.kind = API_FRAME_SUBMIT, .id = r->rq.id};
    if (!body.len || !api_frame_take_body(&f, body, &r->arena, &e))
        return false;
    r->rq = f.submit;
    r->rq.id = f.id;
    return true;
}

static bool shadow_fill(struct shadow_run *r, const struct shadow_ask *ask)
{
    struct api_request *rq = &r->rq;
    *rq = *ask->rq;
    rq->id = SHADOW_ID + r->set->ids++;
    rq->kind = API_KIND_PREFILL;
    rq->priority = API_PRIORITY_IDLE;
    rq->model = ask->model;
    rq->leg = ask->leg;
    rq->agent = STR("shadow"); /* it is no agent's share of the engine */
    rq->owner = rq->session = rq->body = STR("");
    rq->headers = NULL;
    rq->headers_count = 0;
    rq->client_key = NULL;
    rq->resume = NULL;
    rq->n = 1;
    rq->logprobs = 0;
    rq->stream = false;
    rq->given |= API_GIVEN(TOKENS_MAX); /* pages of a reply are not needed */
    rq->tokens_max = 1;
    rq->deadline = (struct api_deadlines){0};
    return (!ask->reply || shadow_add_reply(r, ask->reply)) && shadow_copy(r);
}

/* --- its way ------------------------------------------------------------------------------- */

static void shadow_on_batch(void *ctx, const struct api_batch *b)
{
    struct shadow_run *r = ctx;
    struct api_provider *p = &r->set->local;
    bool is_over = false;
    p->credit(p->self, r->rq.id, (uint32_t)api_batch_weight(b));
    for (uint32_t i = 0; i < b->events_count; i++) {
        const struct api_event *ev = &b->events[i];
        if (ev->kind == API_EVENT_QUEUED)
            r->cached = ev->queued.cached_tokens;
        if (ev->kind == API_EVENT_PROGRESS)
            r->done = ev->progress.tokens_done;
        if (ev->kind == API_EVENT_USAGE) {
            r->done = ev->usage.prompt_tokens;
            r->cached = ev->usage.cached_tokens;
        }
        is_over = is_over || ev->kind == API_EVENT_DONE || ev->kind == API_EVENT_ERROR;
        if (ev->kind == API_EVENT_ERROR)
            log_debug("shadow: %s", ev->error.err.text);
    }
    if (is_over)
        shadow_free(r);
}

void shadow_follow(struct shadow *s, const struct shadow_ask *ask)
{
    struct api_error e;
    list_each (link, &s->runs) { /* what the session said before is part of what it says now */
        struct shadow_run *old = list_item(link, struct shadow_run, link);
        if (old->key == ask->key)
            shadow_cancel(old);
    }
    struct shadow_run *r = shadow_may(s, ask) ? calloc(1, sizeof *r) : NULL;
    if (!r)
        return;
    r->set = s;
    r->key = ask->key;
    arena_init(&r->arena, 4 * SHADOW_SIZE_MAX);
    list_push_last(&s->runs, &r->link);
    s->runs_count++;
    if (!shadow_fill(r, ask) ||
        !s->local.submit(s->local.self, &r->rq, (struct api_sink){shadow_on_batch, r}, &e))
        shadow_free(r);
}
