#include "serve/engine_leg_state.h"

#include <stdlib.h>

#define ENGINE_LEG_IDS_MAX ((size_t)1 << 26) /* bytes of ids of one choice */

struct engine_leg_request *engine_leg_find(const struct engine_leg *l, uint64_t id)
{
    return map_to_pointer(map_value_number(&l->by_id, id, 0));
}

void engine_leg_forget(struct engine_leg *l, struct engine_leg_request *r)
{
    map_delete_number(&l->by_id, r->rq->id);
    list_remove(&r->link);
    engine_submit_leave(r->sending);
    for (uint32_t i = 0; i < r->choices_count; i++)
        buf_deinit(&r->choices[i].ids);
    free(r->choices);
    free(r);
}

/* A reply that began elsewhere with this model's ids: the next child has to be told them too. By
 * text, its first batch brings them. Ids that do not fit are missed when the child says so. */
static void engine_leg_seed(struct engine_leg_request *r)
{
    const struct api_resume *resume = r->rq->resume;
    for (uint32_t i = 0; resume && resume->model_hash && i < resume->partials_count; i++) {
        const struct api_partial *p = &resume->partials[i];
        if (p->message.ids_count)
            buf_add_bytes(&r->choices[p->choice].ids, p->message.ids,
                          p->message.ids_count * sizeof *p->message.ids);
    }
}

struct engine_leg_request *engine_leg_remember(struct engine_leg *l,
                                                      const struct api_request *rq,
                                                      struct api_sink sink)
{
    uint32_t count = api_request_choices(rq);
    struct engine_leg_request *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->rq = rq;
    r->sink = sink;
    r->choices_count = count;
    r->choices = calloc(count, sizeof *r->choices);
    if (!r->choices || !map_put_number(&l->by_id, rq->id, map_of_pointer(r))) {
        free(r->choices);
        free(r);
        return NULL;
    }
    api_order_init(&r->order, rq);
    for (uint32_t i = 0; i < count; i++) {
        buf_init(&r->choices[i].ids, ENGINE_LEG_IDS_MAX);
        r->choices[i].is_done = !api_request_goes_on(rq, i);
    }
    engine_leg_seed(r);
    list_push_last(&l->requests, &r->link);
    return r;
}

void engine_leg_fail(struct engine_leg *l, struct engine_leg_request *r,
                            const struct err *why, enum api_fault fault)
{
    struct api_event ev = {.kind = API_EVENT_ERROR};
    struct api_batch b = {.request_id = r->rq->id, .events = &ev, .events_count = 1};
    struct api_sink sink = r->sink;
    ev.error.err = *why;
    ev.error.fault = fault;
    engine_leg_forget(l, r);
    sink.on_batch(sink.ctx, &b);
}

void engine_leg_fail_some(struct engine_leg *l, const struct err *why, enum api_fault fault,
                                 bool (*which)(const struct engine_leg_request *r))
{
    struct err copy = *why;
    for (bool again = true; again;) {
        again = false;
        list_each (link, &l->requests) {
            struct engine_leg_request *r = list_item(link, struct engine_leg_request, link);
            if (!which(r))
                continue;
            engine_leg_fail(l, r, &copy, fault);
            again = true;
            break;
        }
    }
}

static bool engine_leg_record(struct engine_leg_request *r, const struct api_batch *b)
{
    struct engine_leg_choice *c = &r->choices[b->choice];
    if (b->ids_count && !buf_add_bytes(&c->ids, b->ids, b->ids_count * sizeof *b->ids))
        return false;
    for (uint32_t i = 0; i < b->events_count; i++) {
        c->is_done = c->is_done || b->events[i].kind == API_EVENT_DONE;
        r->is_started = r->is_started || b->events[i].kind == API_EVENT_STARTED;
    }
    return true;
}

/* A resumed reply starts a second time only for the child: that STARTED, the notes beside it, and
 * what came before it are no news to the client. */
static uint32_t engine_leg_filter(const struct engine_leg *l, const struct engine_leg_request *r,
                                  const struct api_batch *b, struct api_event *out)
{
    uint32_t count = 0;
    bool starts = false;
    for (uint32_t i = 0; i < b->events_count; i++)
        starts = starts || b->events[i].kind == API_EVENT_STARTED;
    for (uint32_t i = 0; i < b->events_count; i++) {
        enum api_event_kind kind = b->events[i].kind;
        bool is_old = kind == API_EVENT_STARTED || kind == API_EVENT_QUEUED ||
                      kind == API_EVENT_PROGRESS || (kind == API_EVENT_NOTE && starts);
        if (r->is_resumed && is_old)
            continue;
        out[count] = b->events[i];
        if (kind == API_EVENT_STARTED) {
            out[count].started.model = out[count].started.leg = l->load.name;
            out[count].started.child = engine_leg_pid(l);
        }
        count++;
    }
    return count;
}

bool engine_leg_on_batch(struct engine_leg *l, const struct api_batch *from, struct arena *a,
                                struct err *e)
{
    struct engine_leg_request *r = engine_leg_find(l, from->request_id);
    if (!r)
        return true; /* cancelled while this batch was under way */
    struct api_batch b = *from;
    struct api_event *events = ARENA_ARRAY(a, struct api_event, b.events_count);
    if (!events)
        return err_set(e, ERR_MEMORY, "engine: no memory for %u events", b.events_count);
    b.events_count = engine_leg_filter(l, r, from, events);
    b.events = b.events_count ? events : NULL;
    if (!api_order_add(&r->order, &b, e))
        return false;
    if (!engine_leg_record(r, &b))
        return err_set(e, ERR_MEMORY, "engine: no memory for the ids of a reply");
    bool is_over = r->order.is_over;
    struct api_sink sink = r->sink;
    if (is_over)
        engine_leg_forget(l, r);
    sink.on_batch(sink.ctx, &b);
    return true;
}
