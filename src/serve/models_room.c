#include "serve/models_room.h"

#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "base/log.h"
#include "base/machine.h"

#define MODELS_ROOM_RETRY_MS 5000 /* BEHAVIOUR 8.8: a load error is remembered */
#define MODELS_ROOM_GRACE_MS 2000 /* for a child to end by itself; it holds nothing worth waiting */
#define MODELS_ROOM_TEXT_MAX 65536u
#define MODELS_ROOM_KEEP ((uint64_t)1 << 30) /* BEHAVIOUR 4.7: bytes left to the machine */
#define MODELS_ROOM_MORE ((uint64_t)64 << 20) /* of a process beside weights and pool */
#define MODELS_ROOM_ROUNDS_MAX 8 /* an action may allow the next; the rest comes next turn */

/* Soon, from the loop: decide, act, give, answer. */
static void models_room_touch(struct models_room *r)
{
    if (r->is_closing)
        return;
    r->is_touched = true;
    loop_timer_set(&r->turn, 0);
}

static bool models_room_is_text(const struct models_ask *a)
{
    return a->rq->kind < API_KIND_LIST;
}

/* --- requests ------------------------------------------------------------------------------ */

struct models_ask *models_room_ask(struct models_room *r, const struct api_request *rq,
                                   struct api_sink sink)
{
    struct models_ask *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    if (rq->id && !map_put_number(&r->by_id, rq->id, map_of_pointer(a))) {
        free(a);
        return NULL;
    }
    list_init(&a->link);
    a->room = r;
    a->rq = rq;
    a->sink = sink;
    a->came_ms = loop_ms();
    a->dones_left = rq->resume ? rq->resume->partials_count : api_request_choices(rq);
    return a;
}

struct models_ask *models_room_find(const struct models_room *r, uint64_t id)
{
    return map_to_pointer(map_value_number(&r->by_id, id, 0));
}

/* A request's own keep-alive governs the time after it; one that names none gives the server's
 * back. */
static void models_room_count_off(struct models_room_model *m, const struct models_ask *a)
{
    m->asks_count--;
    m->begun -= a->has_begun;
    m->idle_ms = loop_ms();
    if (a->rq->kind == API_KIND_UNLOAD)
        return;
    m->keep_ms = api_request_is_given(a->rq, API_FIELD_KEEP_ALIVE) ? a->rq->keep_alive_ms
                                                                    : m->setting.keep_alive_ms;
}

void models_room_forget(struct models_room *r, struct models_ask *a)
{
    if (a->rq->id)
        map_delete_number(&r->by_id, a->rq->id);
    list_remove(&a->link);
    if (a->model)
        models_room_count_off(a->model, a);
    free(a);
    models_room_touch(r);
}

static void models_room_end(struct models_room *r, struct models_ask *a,
                            const struct api_event *events, uint32_t count)
{
    struct api_batch b = {.request_id = a->rq->id, .events = events, .events_count = count};
    struct api_sink sink = a->sink;
    models_room_forget(r, a);
    if (sink.on_batch)
        sink.on_batch(sink.ctx, &b);
}

void models_room_fail(struct models_room *r, struct models_ask *a, const struct api_error *why)
{
    struct api_event ev = {.kind = API_EVENT_ERROR, .error = *why};
    models_room_end(r, a, &ev, 1);
}

void models_room_answer(struct models_room *r, struct models_ask *a, const struct api_model *rows,
                        uint32_t rows_count)
{
    struct api_event ev[2] = {{.kind = API_EVENT_MODELS, .models = {rows, rows_count}},
                              {.kind = API_EVENT_DONE, .done = {.reason = API_DONE_EOS}}};
    models_room_end(r, a, ev, 2);
}

static bool models_room_is_last(struct models_ask *a, const struct api_batch *b)
{
    for (uint32_t i = 0; i < b->events_count; i++) {
        if (b->events[i].kind == API_EVENT_DONE)
            a->dones_left--;
        if (b->events[i].kind == API_EVENT_ERROR)
            return true;
    }
    return a->dones_left == 0;
}

/* A batch of the child on its way. Work that was begun is not taken back, also a prompt's. */
static void models_room_on_batch(void *ctx, const struct api_batch *b)
{
    struct models_ask *a = ctx;
    struct models_room_model *m = a->model;
    struct api_sink sink = a->sink;
    for (uint32_t i = 0; i < b->events_count && !a->has_begun; i++) {
        enum api_event_kind kind = b->events[i].kind;
        a->has_begun = kind == API_EVENT_STARTED || kind == API_EVENT_PROGRESS;
        m->begun += a->has_begun;
    }
    if (b->ids_count)
        m->token_ms = loop_ms();
    bool is_last = models_room_is_last(a, b);
    m->has_served = m->has_served || a->has_begun || is_last;
    if (is_last)
        models_room_forget(a->room, a);
    sink.on_batch(sink.ctx, b);
}

static void models_room_give(struct models_room *r, struct models_ask *a)
{
    struct models_room_model *m = a->model;
    struct api_error why = {0};
    struct api_sink sink = {models_room_on_batch, a};
    if (!m->provider.submit(m->provider.self, a->rq, sink, &why)) {
        models_room_fail(r, a, &why);
        return;
    }
    a->is_given = true;
    if (a->is_held)
        m->provider.hold(m->provider.self, a->rq->id, true);
}

/* What has not begun waits for the next child, or for this one when it is kept. */
static void models_room_take_back(struct models_room_model *m)
{
    list_each (link, &m->asks) {
        struct models_ask *a = list_item(link, struct models_ask, link);
        if (!a->is_given || a->has_begun)
            continue;
        m->provider.cancel(m->provider.self, a->rq->id);
        a->is_given = false;
    }
}

/* Ends the requests that `which` names; a callback may do anything, so the list is read anew. */
static void models_room_fail_all(struct models_room *r, struct models_room_model *m,
                                 const struct api_error *why)
{
    struct api_error copy = *why;
    for (bool again = true; again;) {
        again = false;
        list_each (link, &m->asks) {
            struct models_ask *a = list_item(link, struct models_ask, link);
            if (a->rq->kind == API_KIND_UNLOAD)
                continue;
            models_room_fail(r, a, &copy);
            again = true;
            break;
        }
    }
}

/* --- records ------------------------------------------------------------------------------- */

struct models_room_model *models_room_of_path(const struct models_room *r, str path)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (str_eq(r->models[i]->entry.path, path))
            return r->models[i];
    return NULL;
}

static struct models_leg_setting models_room_setting(const struct models_room *r, str name)
{
    const struct models_leg_setting *s =
        models_leg_setting_find(r->o->settings, r->o->settings_count, name);
    struct models_leg_setting found = s ? *s : (struct models_leg_setting){.name = name};
    if (!found.has_keep_alive)
        found.keep_alive_ms = r->o->keep_alive_ms;
    return found;
}

void models_room_change(struct models_room *r)
{
    for (uint32_t i = 0; i < r->count; i++) {
        struct models_room_model *m = r->models[i];
        int64_t before_ms = m->setting.keep_alive_ms;
        m->setting = models_room_setting(r, m->entry.name);
        if (m->keep_ms == before_ms) /* else a request's own */
            m->keep_ms = m->setting.keep_alive_ms;
        if (m->leg)
            engine_leg_set_stalls(m->leg, r->o->engine_stall_ms, r->o->load_stall_ms);
    }
    models_room_touch(r);
}

static struct models_room_model *models_room_model_new(const struct models_room *r,
                                                       const struct library_entry *entry)
{
    struct models_room_model *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    arena_init(&m->arena, MODELS_ROOM_TEXT_MAX);
    list_init(&m->asks);
    m->entry = *entry;
    str *const texts[] = {&m->entry.name, &m->entry.path, &m->entry.file_name, &m->entry.broken,
                          &m->entry.projector, &m->entry.draft, &m->entry.params,
                          &m->entry.system};
    for (size_t i = 0; i < countof(texts); i++)
        *texts[i] = arena_copy(&m->arena, *texts[i]);
    m->setting = models_room_setting(r, m->entry.name);
    m->keep_ms = m->setting.keep_alive_ms;
    m->token_ms = -1;
    if (!m->arena.is_full)
        return m;
    arena_deinit(&m->arena);
    free(m);
    return NULL;
}

static void models_room_model_free(struct models_room *r, uint32_t i)
{
    struct models_room_model *m = r->models[i];
    must(list_is_empty(&m->asks) && !m->leg);
    arena_deinit(&m->arena);
    free(m);
    r->models[i] = r->models[--r->count];
}

/* Records that hold nothing; until now_ms a failed load is remembered. */
static void models_room_sweep(struct models_room *r, int64_t now_ms)
{
    for (uint32_t i = r->count; i-- > 0;) {
        const struct models_room_model *m = r->models[i];
        bool remembers = m->retry_ms > now_ms;
        if (m->state == RESIDENCY_OUT && list_is_empty(&m->asks) && !remembers)
            models_room_model_free(r, i);
    }
}

struct models_room_model *models_room_model(struct models_room *r,
                                            const struct library_entry *entry,
                                            struct api_error *e)
{
    struct models_room_model *m = models_room_of_path(r, entry->path);
    if (m)
        return m;
    if (r->count == RESIDENCY_MODELS_MAX)
        models_room_sweep(r, INT64_MAX);
    if (r->count == RESIDENCY_MODELS_MAX) {
        api_error_set(e, ERR_OVERLOADED, NULL, STR(""), "requests for %u models wait", r->count);
        return NULL;
    }
    m = models_room_model_new(r, entry);
    if (!m) {
        api_error_set(e, ERR_MEMORY, NULL, STR(""), "no memory for a request");
        return NULL;
    }
    r->models[r->count++] = m;
    return m;
}

bool models_room_add(struct models_room *r, struct models_room_model *m, struct models_ask *a,
                     struct api_error *e)
{
    bool is_unload = a->rq->kind == API_KIND_UNLOAD;
    if (!is_unload && m->asks_count >= r->o->waiting_max)
        return api_error_set(e, ERR_OVERLOADED, NULL, STR(""), "%u requests wait for %.*s",
                             m->asks_count, STR_ARG(m->entry.name));
    a->model = m;
    m->asks_count++;
    list_remove(&a->link);
    list_push_last(&m->asks, &a->link);
    if (is_unload && m->state != RESIDENCY_OUT)
        m->must_leave = true;
    models_room_touch(r);
    return true;
}

/* --- what the children tell ---------------------------------------------------------------- */

static void models_room_on_leg(void *ctx)
{
    struct models_room *r = ctx;
    models_room_touch(r);
    if (r->o->on_change)
        r->o->on_change(r->o->ctx);
}

static void models_room_is_out(struct models_room *r, struct models_room_model *m)
{
    struct engine_leg_counts past = engine_leg_counts(m->leg);
    engine_leg_counts_add(&r->counts, &past);
    engine_leg_close(m->leg, 0);
    m->leg = NULL;
    m->provider = (struct api_provider){0};
    m->state = RESIDENCY_OUT;
    m->must_leave = false;
    m->bytes = 0;
    m->token_ms = -1;
}

static void models_room_load_failed(struct models_room *r, struct models_room_model *m, str reason)
{
    log_warn("model %.*s: %.*s", STR_ARG(m->entry.name), STR_ARG(reason));
    api_error_set(&m->why, ERR_INTERNAL, "load_failed", STR("model"), "%.*s: %.*s",
                  STR_ARG(m->entry.name), STR_ARG(reason));
    m->retry_ms = loop_ms() + MODELS_ROOM_RETRY_MS;
    models_room_is_out(r, m);
    models_room_fail_all(r, m, &m->why);
}

/* The child has its pages: of the budget it keeps what it took. */
static void models_room_loaded(struct models_room_model *m)
{
    struct api_model row;
    m->state = RESIDENCY_READY;
    m->has_served = false;
    m->ready_ms = m->idle_ms = loop_ms();
    if (m->bytes && m->provider.models(m->provider.self, &row, 1))
        m->bytes = base_min(m->bytes, row.device_bytes + MODELS_ROOM_MORE);
}

static void models_room_look(struct models_room *r, struct models_room_model *m)
{
    struct api_health h;
    if (!m->leg)
        return;
    m->provider.health(m->provider.self, &h);
    if (m->state == RESIDENCY_LOADING && h.state == API_HEALTH_FAILED)
        models_room_load_failed(r, m, h.reason);
    else if (m->state == RESIDENCY_LOADING && h.state == API_HEALTH_READY)
        models_room_loaded(m);
    else if (m->state == RESIDENCY_LEAVING && h.state == API_HEALTH_STOPPED)
        models_room_is_out(r, m);
}

/* --- deciding and acting ------------------------------------------------------------------- */

static struct residency_model models_room_view(const struct models_room_model *m)
{
    struct residency_model v = {
        .state = m->state, .is_pinned = m->setting.is_pinned,
        .must_leave = m->must_leave, .has_served = m->has_served, .running = m->begun,
        .ready_ms = m->ready_ms, .idle_ms = m->idle_ms, .keep_ms = m->keep_ms,
        .left_ms = m->left_ms, .retry_ms = m->retry_ms, .bytes = m->bytes};
    list_each (link, &m->asks) {
        const struct models_ask *a = list_item(link, struct models_ask, link);
        if (a->has_begun || a->rq->kind == API_KIND_UNLOAD)
            continue;
        if (!v.waiting++)
            v.oldest_ms = a->came_ms;
    }
    if (m->state == RESIDENCY_OUT)
        v.bytes = m->entry.size + m->entry.size / 16 + MODELS_ROOM_MORE;
    return v;
}

static void models_room_load(struct models_room *r, struct models_room_model *m, uint64_t bytes)
{
    struct api_load load = r->o->load;
    struct err why;
    load.path = m->entry.path;
    load.name = m->entry.name;
    load.memory_bytes = bytes;
    models_leg_setting_apply(&m->setting, &load);
    struct engine_leg_options o = {
        .loop = r->o->loop, .load = &load, .build_id = r->o->build_id, .argv = r->o->argv,
        .engine_stall_ms = r->o->engine_stall_ms, .load_stall_ms = r->o->load_stall_ms,
        .prefixes = r->o->prefixes, .prefixes_count = r->o->prefixes_count,
        .requests_max = r->o->waiting_max + r->o->prefixes_count,
        .on_change = models_room_on_leg, .ctx = r};
    if (!engine_leg_open(&m->leg, &o, &why)) {
        models_room_load_failed(r, m, str_of(why.text));
        return;
    }
    m->provider = engine_leg_provider(m->leg);
    m->state = RESIDENCY_LOADING;
    m->bytes = bytes;
    m->retry_ms = 0;
}

static void models_room_do(struct models_room *r, struct models_room_model *m,
                           const struct residency_action *a)
{
    struct api_error why;
    switch (a->what) {
    case RESIDENCY_LOAD:
        models_room_load(r, m, a->bytes);
        return;
    case RESIDENCY_DRAIN:
        m->state = RESIDENCY_DRAINING;
        models_room_take_back(m);
        return;
    case RESIDENCY_KEEP:
        m->state = RESIDENCY_READY;
        return;
    case RESIDENCY_UNLOAD:
        r->swaps += !m->must_leave && models_room_idle_left(m) != 0;
        models_room_take_back(m);
        m->state = RESIDENCY_LEAVING;
        m->left_ms = loop_ms();
        engine_leg_stop(m->leg, MODELS_ROOM_GRACE_MS);
        return;
    case RESIDENCY_REFUSE:
        api_error_set(&why, ERR_MEMORY, "load_failed", STR("model"),
                      "%.*s: pinned models hold every place (engine.resident %u)",
                      STR_ARG(m->entry.name), (unsigned)base_max(r->o->resident_max, 1));
        models_room_fail_all(r, m, &why);
        return;
    }
}

/* True: something was done, the view is another. */
static bool models_room_decide(struct models_room *r, int64_t *wake_ms)
{
    struct residency_model models[RESIDENCY_MODELS_MAX];
    struct models_room_model *of[RESIDENCY_MODELS_MAX];
    struct residency_action actions[RESIDENCY_MODELS_MAX];
    struct residency_view v = {
        .models = models, .models_count = r->count,
        .places = (uint32_t)base_max(r->o->resident_max, 1), .bytes_max = r->bytes_max,
        .min_residency_ms = r->o->min_residency_ms, .swap_wait_ms = r->o->swap_wait_ms,
        .now_ms = loop_ms()};
    for (uint32_t i = 0; i < r->count; i++) {
        of[i] = r->models[i];
        models[i] = models_room_view(of[i]);
    }
    size_t count = residency_next(&v, actions, RESIDENCY_MODELS_MAX);
    for (size_t i = 0; i < count; i++) /* records are freed only at the end of a turn */
        models_room_do(r, of[actions[i].model], &actions[i]);
    *wake_ms = residency_wake_ms(&v);
    return count > 0;
}

/* What waits for a model that can answer; LOAD is answered by its being there. */
static void models_room_serve(struct models_room *r, struct models_room_model *m)
{
    for (bool again = true; again;) {
        again = false;
        list_each (link, &m->asks) {
            struct models_ask *a = list_item(link, struct models_ask, link);
            bool is_ready = m->state == RESIDENCY_READY;
            bool is_out = m->state == RESIDENCY_OUT;
            struct api_model row;
            again = true;
            if (is_ready && models_room_is_text(a) && !a->is_given) {
                models_room_give(r, a);
                break;
            }
            if ((is_ready && a->rq->kind == API_KIND_LOAD) ||
                (is_out && a->rq->kind == API_KIND_UNLOAD)) {
                row = models_room_row(m);
                models_room_answer(r, a, &row, 1);
                break;
            }
            if (is_out && a->rq->kind != API_KIND_UNLOAD && m->retry_ms > loop_ms()) {
                models_room_fail(r, a, &m->why);
                break;
            }
            again = false;
        }
    }
}

static void models_room_turn(void *ctx)
{
    struct models_room *r = ctx;
    int64_t wake_ms = INT64_MAX;
    r->is_touched = false;
    for (uint32_t i = 0; i < r->count; i++)
        models_room_look(r, r->models[i]);
    for (uint32_t i = 0; i < r->count; i++) /* callbacks may add records, none goes here */
        models_room_serve(r, r->models[i]);
    uint32_t rounds = 0;
    while (models_room_decide(r, &wake_ms) && ++rounds < MODELS_ROOM_ROUNDS_MAX)
        for (uint32_t i = 0; i < r->count; i++)
            models_room_serve(r, r->models[i]);
    models_room_sweep(r, loop_ms());
    if (rounds == MODELS_ROOM_ROUNDS_MAX)
        models_room_touch(r);
    else if (wake_ms != INT64_MAX && !r->is_touched)
        loop_timer_set(&r->turn, wake_ms > loop_ms() ? wake_ms - loop_ms() : 0);
    if (rounds && r->o->on_change)
        r->o->on_change(r->o->ctx);
}

/* --- telling ------------------------------------------------------------------------------- */

int64_t models_room_idle_left(const struct models_room_model *m)
{
    if (m->state != RESIDENCY_READY || m->keep_ms < 0)
        return -1;
    int64_t now = loop_ms(), idle_ms = m->asks_count ? now : m->idle_ms;
    int64_t left_ms = idle_ms + m->keep_ms - now;
    return left_ms > 0 ? left_ms : 0;
}

static enum api_model_state models_room_state(const struct models_room_model *m)
{
    struct api_health h;
    if (m->state == RESIDENCY_OUT || m->state == RESIDENCY_LEAVING)
        return API_MODEL_IDLE;
    if (m->state == RESIDENCY_LOADING)
        return API_MODEL_LOADING;
    m->provider.health(m->provider.self, &h);
    if (h.state == API_HEALTH_FAILED)
        return API_MODEL_FAILED;
    return h.state == API_HEALTH_READY ? API_MODEL_LOADED : API_MODEL_RESTARTING;
}

struct api_model models_room_row(const struct models_room_model *m)
{
    struct api_model row = {.type = STR("chat")};
    if (m->leg)
        m->provider.models(m->provider.self, &row, 1);
    row.name = m->entry.name;
    row.bytes = m->entry.size;
    row.modified_s = m->entry.modified_ns / 1000000000;
    row.state = models_room_state(m);
    int64_t left_ms = models_room_idle_left(m);
    if (row.state != API_MODEL_IDLE)
        row.expires_s = m->keep_ms < 0 || left_ms < 0
                            ? -1 : (chrono_unix_ms(&chrono_real) + left_ms + 999) / 1000;
    return row;
}

/* --- open, close --------------------------------------------------------------------------- */

/* What all children may take: what is free now, before the first of them, less the machine's
 * part; on a small machine half. */
static uint64_t models_room_bytes(void)
{
    struct machine machine;
    machine_read(&machine);
    uint64_t all = machine_ram_free(&machine);
    return all > 2 * MODELS_ROOM_KEEP ? all - MODELS_ROOM_KEEP : all / 2;
}

bool models_room_open(struct models_room *r, const struct models_leg_options *o, struct err *e)
{
    *r = (struct models_room){.o = o};
    r->bytes_max = o->memory_bytes;
    if (!r->bytes_max && o->resident_max > 1) /* one child alone takes what it finds free */
        r->bytes_max = models_room_bytes();
    map_init(&r->by_id, 1u << 20);
    return loop_timer_open(&r->turn, o->loop, models_room_turn, r, e);
}

void models_room_close(struct models_room *r, int64_t grace_ms)
{
    r->is_closing = true;
    loop_timer_close(&r->turn);
    for (uint32_t i = 0; i < r->count; i++) /* all at once, then one after the other */
        if (r->models[i]->leg)
            engine_leg_stop(r->models[i]->leg, grace_ms);
    int64_t end_ms = loop_ms() + grace_ms;
    while (r->count) {
        struct models_room_model *m = r->models[r->count - 1];
        while (!list_is_empty(&m->asks))
            models_room_forget(r, list_item(list_first(&m->asks), struct models_ask, link));
        int64_t left_ms = end_ms - loop_ms();
        engine_leg_close(m->leg, left_ms > 0 ? left_ms : 0);
        m->leg = NULL;
        models_room_model_free(r, r->count - 1);
    }
    map_deinit(&r->by_id);
}
