#include "serve/engine_leg_state.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define ENGINE_LEG_TICK_MS 250
#define ENGINE_LEG_END_MS 500 /* of a child whose pipe is closed, and of nothing else */
#define ENGINE_LEG_HEALTHY_MS 10000 /* of progress: crashes before it are forgotten */
#define ENGINE_LEG_RETRY_MS 60000   /* after a crash loop */
#define ENGINE_LEG_OOM_SCORE 500    /* a child goes first */
#define ENGINE_LEG_QUEUE_MAX ((size_t)1 << 30)
#define ENGINE_LEG_STATS_MAX 65536u
#define ENGINE_LEG_CREDIT 65536u /* credit_step by default: few of what a child may be ahead */
#define ENGINE_LEG_KEPT ((size_t)1 << 20) /* of the last frame's memory */

static void engine_leg_spawn(void *ctx);

static void engine_leg_changed(struct engine_leg *l)
{
    if (l->o.on_change)
        l->o.on_change(l->o.ctx);
}

static bool engine_leg_is_any(const struct engine_leg_request *r) { return r != NULL; }
static bool engine_leg_has_started(const struct engine_leg_request *r) { return r->is_started; }
static bool engine_leg_is_lent(const struct engine_leg_request *r) { return r->rq->hands_back; }
static bool engine_leg_has_lost(const struct engine_leg_request *r)
{
    return r->respawns > ENGINE_LEG_RESPAWNS_MAX;
}

/* --- to the child -------------------------------------------------------------------------- */

static bool engine_leg_send(struct engine_leg *l, enum pipe_class class, const struct api_frame *f,
                            struct err *e)
{
    buf_clear(&l->out);
    if (!l->pipe)
        return err_set(e, ERR_ENGINE, "engine: no child");
    if (!api_frame_write(&l->out, f, e))
        return false;
    for (str rest = buf_view(&l->out); rest.len;) {
        size_t n = api_frame_first(rest);
        if (!pipe_send(l->pipe, class, str_sub(rest, 0, n)))
            return err_set(e, ERR_ENGINE, "engine: the child does not take its frames");
        rest = str_from(rest, n);
    }
    buf_shrink(&l->out, ENGINE_LEG_KEPT);
    return true;
}

/* Its partial replies as ids; only choices that have not ended. */
static bool engine_leg_resume(const struct engine_leg *l, const struct engine_leg_request *r,
                              struct arena *a, struct api_request *rq, struct err *e)
{
    struct api_resume *resume = ARENA_NEW(a, struct api_resume);
    struct api_partial *p = ARENA_ARRAY(a, struct api_partial, r->choices_count);
    if (!resume || !p)
        return err_set(e, ERR_MEMORY, "engine: no memory to resume a request");
    resume->model_hash = l->model_hash;
    resume->partials = p;
    for (uint32_t i = 0; i < r->choices_count; i++) {
        const struct buf *ids = &r->choices[i].ids;
        uint32_t count = (uint32_t)(ids->len / sizeof(int32_t));
        if (r->choices[i].is_done)
            continue;
        p[resume->partials_count++] = (struct api_partial){
            .choice = i, .tokens_used = count,
            .message = {.role = API_ROLE_ASSISTANT,
                        .ids = count ? (const int32_t *)(const void *)ids->p : NULL,
                        .ids_count = count}};
    }
    rq->resume = resume;
    return true;
}

static bool engine_leg_submit_to_child(struct engine_leg *l, struct engine_leg_request *r,
                                       struct err *e)
{
    struct api_frame f = {.kind = API_FRAME_SUBMIT, .id = r->rq->id, .submit = *r->rq};
    struct arena a;
    arena_init(&a, 1u << 20);
    bool ok = l->pipe || err_set(e, ERR_ENGINE, "engine: no child");
    ok = ok && (!r->is_started || engine_leg_resume(l, r, &a, &f.submit, e)) &&
         engine_submit_send(&r->sending, l->pipe, &f, ENGINE_LEG_QUEUE_MAX, e);
    arena_deinit(&a);
    if (!ok)
        return false;
    r->is_submitted = true;
    r->credit = 0; /* this child begins with all of it */
    r->is_resumed = r->is_started;
    struct api_frame hold = {.kind = API_FRAME_HOLD, .id = r->rq->id, .hold = {true}};
    return !r->is_held || engine_leg_send(l, PIPE_DATA, &hold, e);
}

/* A child is ready: what waited, and what its predecessor left. */
static void engine_leg_submit_all(struct engine_leg *l)
{
    struct err why;
    for (bool again = true; again;) {
        again = false;
        list_each (link, &l->requests) {
            struct engine_leg_request *r = list_item(link, struct engine_leg_request, link);
            if (r->is_submitted || engine_leg_submit_to_child(l, r, &why))
                continue;
            engine_leg_fail(l, r, &why, API_FAULT_NONE);
            again = true;
            break;
        }
    }
}

/* --- the child's life ---------------------------------------------------------------------- */

static void engine_leg_dropped(struct engine_leg_drop *d, const struct api_dropped *dropped)
{
    list_remove(&d->link);
    d->on_done(d->ctx, dropped);
}

static void engine_leg_looked(struct engine_leg_look *k, str places)
{
    list_remove(&k->link);
    k->on_done(k->ctx, places);
}

static void engine_leg_drop_child(struct engine_leg *l)
{
    pipe_close(l->pipe);
    l->pipe = NULL;
    api_frame_reader_deinit(&l->reader);
    proc_close(&l->proc);
    while (!list_is_empty(&l->drops))
        engine_leg_dropped(list_item(list_first(&l->drops), struct engine_leg_drop, link), NULL);
    while (!list_is_empty(&l->looks))
        engine_leg_looked(list_item(list_first(&l->looks), struct engine_leg_look, link), STR(""));
    list_each (link, &l->requests)
        list_item(link, struct engine_leg_request, link)->is_submitted = false;
}

/* A first load that cannot succeed is not tried again; one that did before is, as after a crash:
 * what is in the way (a device that is lost, a file being replaced) may pass. */
static void engine_leg_give_up(struct engine_leg *l, const struct err *why)
{
    engine_leg_drop_child(l);
    l->state = API_HEALTH_FAILED;
    l->why = *why;
    engine_leg_changed(l);
    engine_leg_fail_some(l, why, l->fault, engine_leg_is_any);
}

static void engine_leg_again(struct engine_leg *l)
{
    static const int64_t delays_ms[] = {0, 1000, 2000, 4000, 8000};
    if (l->crashes >= ENGINE_LEG_CRASHES_MAX) {
        struct err why = l->why;
        err_wrap(&why, "%u crashes in a row", l->crashes);
        engine_leg_give_up(l, &why);
        l->crashes = 0;
        loop_timer_set(&l->start, ENGINE_LEG_RETRY_MS);
        return;
    }
    loop_timer_set(&l->start, delays_ms[l->crashes ? l->crashes - 1 : 0]);
}

/* The child is gone or was killed. Its requests stay, except those that lost too many children. */
static void engine_leg_crashed(struct engine_leg *l, const struct err *why, enum api_fault fault)
{
    bool was_loaded = l->state == API_HEALTH_READY;
    log_warn("engine %.*s: %s", STR_ARG(l->load.name), why->text);
    engine_leg_drop_child(l);
    l->fault = fault;
    if (l->was_faulted && !was_loaded && !l->model_hash) {
        l->fault = API_FAULT_NONE; /* it said itself why it cannot load */
        engine_leg_give_up(l, &l->why);
        return;
    }
    l->crashes = l->healthy_ms >= ENGINE_LEG_HEALTHY_MS ? 1 : l->crashes + 1;
    l->restarts++;
    l->wedges += fault == API_FAULT_ENGINE_WEDGED;
    l->state = API_HEALTH_RESTARTING;
    l->why = *why;
    engine_leg_again(l);
    if (l->state != API_HEALTH_RESTARTING)
        return;
    engine_leg_changed(l);
    engine_leg_fail_some(l, why, fault, engine_leg_is_lent);
    list_each (link, &l->requests)
        list_item(link, struct engine_leg_request, link)->respawns++;
    engine_leg_fail_some(l, why, fault, engine_leg_has_lost);
}

static void engine_leg_stopped(struct engine_leg *l)
{
    engine_leg_drop_child(l);
    l->state = API_HEALTH_STOPPED;
    engine_leg_changed(l);
}

static void engine_leg_on_end(void *ctx, const struct err *broken)
{
    struct engine_leg *l = ctx;
    if (l->is_stopping) {
        engine_leg_stopped(l);
        return;
    }
    struct proc_end end;
    struct err why;
    char text[80] = "it closed its pipe and lived on";
    (void)broken;
    /* The pipe is closed before a large memory is given back, so its end may take a moment; for
     * that it is waited anyway when the child is dropped. One that does not end is killed first. */
    bool has_ended = proc_wait(&l->proc, ENGINE_LEG_END_MS, &end);
    if (!has_ended)
        proc_signal(&l->proc, SIGKILL);
    else
        proc_end_text(end, text, sizeof text);
    err_set(&why, ERR_ENGINE, "the engine child ended: %s", text);
    if (l->was_faulted)
        why = l->why;
    engine_leg_crashed(l, &why, l->was_faulted ? API_FAULT_NONE : API_FAULT_ENGINE_CRASH);
}

static void engine_leg_kill(struct engine_leg *l, const struct err *why, enum api_fault fault)
{
    proc_signal(&l->proc, SIGKILL);
    if (l->is_stopping)
        return; /* its end will be told by the pipe */
    engine_leg_crashed(l, why, fault);
}

/* --- from the child ------------------------------------------------------------------------ */

static bool engine_leg_keep_model(struct engine_leg *l, const struct api_model *m, struct err *e)
{
    arena_reset(&l->model_arena);
    l->model = *m;
    str *const texts[] = {&l->model.name, &l->model.digest, &l->model.type,
                          &l->model.chat_template, &l->model.family, &l->model.quant,
                          &l->model.license, &l->model.info};
    for (size_t i = 0; i < countof(texts); i++) {
        *texts[i] = arena_copy(&l->model_arena, *texts[i]);
        if (!texts[i]->p)
            return err_set(e, ERR_MEMORY, "engine: no memory for the model's texts");
    }
    return true;
}

static void engine_leg_on_prefix(void *ctx, const struct api_batch *b)
{
    const struct engine_leg *l = ctx;
    for (uint32_t i = 0; i < b->events_count; i++)
        if (b->events[i].kind == API_EVENT_ERROR)
            log_warn("cache.public: %s: %s", l->load.name.p, b->events[i].error.err.text);
}

/* Before whoever waits. One that an earlier child did not finish is submitted again as it is. */
static void engine_leg_add_prefixes(struct engine_leg *l)
{
    for (uint32_t i = 0; i < l->o.prefixes_count; i++) {
        const struct api_request *rq = &l->o.prefixes[i];
        bool is_ours = rq->model.len == 0 || str_eq_nocase(rq->model, l->load.name);
        if (!is_ours || engine_leg_find(l, rq->id))
            continue;
        struct engine_leg_request *r =
            engine_leg_remember(l, rq, (struct api_sink){engine_leg_on_prefix, l});
        if (!r) {
            log_warn("cache.public: no memory for a request");
            continue;
        }
        list_remove(&r->link);
        list_push_first(&l->requests, &r->link);
    }
}

static bool engine_leg_on_loaded(struct engine_leg *l, const struct api_model *m, struct err *e)
{
    bool is_other = l->model_hash && l->model_hash != m->model_hash;
    if (!engine_leg_keep_model(l, m, e))
        return false;
    l->model_hash = m->model_hash;
    l->state = API_HEALTH_READY;
    l->why.code = ERR_NONE;
    l->moved_ms = loop_ms();
    engine_leg_changed(l);
    struct err why;
    err_set(&why, ERR_ENGINE, "the model's file changed while a reply was under way");
    if (is_other)
        engine_leg_fail_some(l, &why, API_FAULT_NONE, engine_leg_has_started);
    engine_leg_add_prefixes(l);
    engine_leg_submit_all(l);
    return true;
}

static bool engine_leg_on_hello(struct engine_leg *l, const struct api_hello *h, struct err *e)
{
    if (!str_eq(h->build_id, l->o.build_id))
        return err_set(e, ERR_ENGINE, "the engine child is another build: %.*s, expected %.*s",
                       STR_ARG(h->build_id), STR_ARG(l->o.build_id));
    struct api_frame f = {.kind = API_FRAME_LOAD, .load = l->load};
    return engine_leg_send(l, PIPE_DATA, &f, e);
}

static void engine_leg_on_beat(struct engine_leg *l, const struct api_beat *b)
{
    bool is_busy = b->phase != API_PHASE_IDLE; /* held sequences alone are no work */
    if (b->progress != l->beat.progress || !is_busy) {
        int64_t now = loop_ms();
        if (b->progress != l->beat.progress)
            l->healthy_ms += now - l->moved_ms;
        l->moved_ms = now;
    }
    /* beat is zeroed with each child, whose numbers begin at 0. */
    l->counts.preemptions += b->preemptions - l->beat.preemptions;
    l->counts.recomputed_tokens += b->recomputed_tokens - l->beat.recomputed_tokens;
    l->counts.spill_read_bytes += b->tier.read_bytes - l->beat.tier.read_bytes;
    l->counts.spill_written_bytes += b->tier.written_bytes - l->beat.tier.written_bytes;
    l->counts.spill_bad_sums += b->tier.bad_sums - l->beat.tier.bad_sums;
    l->beat = *b;
}

static void engine_leg_on_dropped(struct engine_leg *l, const struct api_frame *f)
{
    list_each (link, &l->drops) {
        struct engine_leg_drop *d = list_item(link, struct engine_leg_drop, link);
        if (d->id != f->id)
            continue;
        engine_leg_dropped(d, &f->dropped);
        return;
    }
}

static void engine_leg_on_looked(struct engine_leg *l, const struct api_frame *f)
{
    list_each (link, &l->looks) {
        struct engine_leg_look *k = list_item(link, struct engine_leg_look, link);
        if (k->id != f->id)
            continue;
        engine_leg_looked(k, f->places);
        return;
    }
}

static bool engine_leg_obey(struct engine_leg *l, const struct api_frame *f, struct arena *a,
                            struct err *e)
{
    switch (f->kind) {
    case API_FRAME_HELLO:
        return engine_leg_on_hello(l, &f->hello, e);
    case API_FRAME_LOADING:
        l->moved_ms = f->loading.bytes_done != l->loading.bytes_done ? loop_ms() : l->moved_ms;
        l->loading = f->loading;
        engine_leg_changed(l);
        return true;
    case API_FRAME_LOADED:
        return engine_leg_on_loaded(l, &f->model, e);
    case API_FRAME_BATCH:
        return engine_leg_on_batch(l, &f->batch, a, e);
    case API_FRAME_BEAT:
        engine_leg_on_beat(l, &f->beat);
        return true;
    case API_FRAME_FAULT:
        l->was_faulted = true;
        l->why = f->fault;
        return true;
    case API_FRAME_STATS:
        buf_clear(&l->stats);
        buf_add(&l->stats, f->stats);
        return true;
    case API_FRAME_DROPPED:
        engine_leg_on_dropped(l, f);
        return true;
    case API_FRAME_LOOKED:
        engine_leg_on_looked(l, f);
        return true;
    case API_FRAME_DESCRIBED: case API_FRAME_NONE_: case API_FRAME_DESCRIBE:
    case API_FRAME_LOAD: case API_FRAME_DRAIN: case API_FRAME_EXIT: case API_FRAME_SUBMIT:
    case API_FRAME_CANCEL: case API_FRAME_CREDIT: case API_FRAME_HOLD: case API_FRAME_UNPIN:
    case API_FRAME_DROP: case API_FRAME_LOOK: case API_FRAME_MORE: case API_FRAME_COUNT_:
        break;
    }
    return true;
}

static void engine_leg_on_bytes(void *ctx, str bytes)
{
    struct engine_leg *l = ctx;
    struct pipe *pipe = l->pipe;
    struct err why = {0};
    bool ok = true;
    l->heard_ms = loop_ms();
    /* A callback may close the leg's child: then the pipe is another one. */
    while (ok && bytes.len && l->pipe == pipe) {
        struct api_message_bytes m;
        struct api_frame f;
        enum api_frame_got got = api_frame_reader_next(&l->reader, &bytes, &m, &why);
        if (got == API_FRAME_GOT_NOTHING)
            return;
        ok = got == API_FRAME_GOT_MESSAGE;
        if (!ok)
            break;
        if (m.is_dropped)
            ok = err_set(&why, ERR_MEMORY, "engine: no memory for a frame");
        else
            ok = api_frame_read(&f, &m, &why) && engine_leg_obey(l, &f, &m.arena, &why);
        arena_deinit(&m.arena);
    }
    if (!ok && l->pipe == pipe)
        engine_leg_kill(l, &why, API_FAULT_ENGINE_CRASH);
}

/* --- supervisor ---------------------------------------------------------------------------- */

static bool engine_leg_is_stalled(const struct engine_leg *l, struct err *why)
{
    int64_t now = loop_ms(), still_ms = now - l->moved_ms;
    if (l->state == API_HEALTH_STARTING && still_ms > l->o.load_stall_ms)
        return !err_set(why, ERR_ENGINE, "loading stood still for %lld s",
                        (long long)(still_ms / 1000));
    if (l->state != API_HEALTH_READY)
        return false;
    if (now - l->heard_ms > l->o.engine_stall_ms)
        return !err_set(why, ERR_ENGINE, "the engine child was silent for %lld s",
                        (long long)((now - l->heard_ms) / 1000));
    int64_t limit = l->o.engine_stall_ms, slow = (int64_t)(l->beat.op_ns_max / 1000000) * 8;
    if (still_ms <= (slow > limit ? slow : limit))
        return false;
    return !err_set(why, ERR_ENGINE, "the engine child made no progress for %lld s",
                    (long long)(still_ms / 1000));
}

static void engine_leg_tick(void *ctx)
{
    struct engine_leg *l = ctx;
    struct err why;
    if (l->is_stopping && l->pipe && loop_ms() >= l->stop_ms)
        proc_signal(&l->proc, SIGKILL);
    else if (!l->is_stopping && l->pipe && engine_leg_is_stalled(l, &why))
        engine_leg_kill(l, &why, API_FAULT_ENGINE_WEDGED);
    loop_timer_set(&l->tick, ENGINE_LEG_TICK_MS);
}

static bool engine_leg_start(struct engine_leg *l, struct err *e)
{
    struct proc_options po = {.argv = l->o.argv, .oom_score_add = ENGINE_LEG_OOM_SCORE,
                              .stderr_fd = -1};
    struct pipe_handlers h = {.ctx = l, .on_bytes = engine_leg_on_bytes,
                              .on_end = engine_leg_on_end};
    if (!proc_start(&l->proc, &po, e))
        return false;
    if (!pipe_open(&l->pipe, l->o.loop, l->proc.fd, &h, ENGINE_LEG_QUEUE_MAX, e)) {
        proc_close(&l->proc);
        return false;
    }
    api_frame_reader_init(&l->reader, API_FRAME_TO_ENDPOINT, API_FRAME_BATCH_MAX * 2);
    l->state = API_HEALTH_STARTING;
    l->loading = (struct api_loading){0};
    l->beat = (struct api_beat){0};
    l->was_faulted = false;
    l->healthy_ms = 0;
    l->moved_ms = l->heard_ms = loop_ms();
    return true;
}

static void engine_leg_spawn(void *ctx)
{
    struct engine_leg *l = ctx;
    struct err why;
    if (engine_leg_start(l, &why)) {
        engine_leg_changed(l);
        return;
    }
    l->crashes++;
    l->why = why;
    l->fault = API_FAULT_NONE;
    engine_leg_again(l);
}

/* --- provider ------------------------------------------------------------------------------ */

static bool engine_leg_submit(void *self, const struct api_request *rq, struct api_sink sink,
                              struct api_error *e)
{
    struct engine_leg *l = self;
    if (l->is_stopping)
        return api_error_set(e, ERR_ENGINE, NULL, STR(""), "%.*s is being unloaded",
                             STR_ARG(l->load.name));
    if (l->state == API_HEALTH_FAILED)
        return api_error_set(e, l->why.code, NULL, STR(""), "%s", l->why.text);
    if (l->by_id.count >= l->o.requests_max)
        return api_error_set(e, ERR_OVERLOADED, NULL, STR(""), "%u requests wait for %.*s",
                             l->by_id.count, STR_ARG(l->load.name));
    must(rq->id && !engine_leg_find(l, rq->id));
    struct engine_leg_request *r = engine_leg_remember(l, rq, sink);
    if (!r)
        return api_error_set(e, ERR_MEMORY, NULL, STR(""), "no memory for a request");
    if (l->state != API_HEALTH_READY || engine_leg_submit_to_child(l, r, &e->err))
        return true;
    struct err why = e->err;
    engine_leg_forget(l, r);
    return api_error_set(e, why.code, NULL, STR(""), "%s", why.text);
}

/* Small frames to a child that is there; one that is gone needs none. */
static void engine_leg_control(struct engine_leg *l, const struct api_frame *f)
{
    struct err ignored;
    if (l->pipe && !engine_leg_send(l, PIPE_CONTROL, f, &ignored))
        log_debug("engine: %s", ignored.text);
}

static void engine_leg_cancel(void *self, uint64_t id)
{
    struct engine_leg *l = self;
    struct engine_leg_request *r = engine_leg_find(l, id);
    if (!r)
        return;
    /* Behind its SUBMIT: a control frame would overtake what is still queued. One that this child
     * has answered is no longer; of one that began with an earlier child that is not known. */
    struct api_frame f = {.kind = API_FRAME_CANCEL, .id = id};
    struct err ignored;
    if (r->is_submitted && r->is_started && !r->is_resumed)
        engine_leg_control(l, &f);
    else if (r->is_submitted && !engine_leg_send(l, PIPE_DATA, &f, &ignored))
        log_debug("engine: %s", ignored.text);
    engine_leg_forget(l, r);
}

static void engine_leg_hold(void *self, uint64_t id, bool on)
{
    struct engine_leg *l = self;
    struct engine_leg_request *r = engine_leg_find(l, id);
    if (!r || r->is_held == on)
        return;
    r->is_held = on;
    struct api_frame f = {.kind = API_FRAME_HOLD, .id = id, .hold = {on}};
    struct err ignored;
    if (r->is_submitted && !engine_leg_send(l, PIPE_DATA, &f, &ignored))
        log_debug("engine: %s", ignored.text);
}

static void engine_leg_credit(void *self, uint64_t id, uint32_t bytes)
{
    struct engine_leg *l = self;
    struct engine_leg_request *r = engine_leg_find(l, id);
    if (!r || !r->is_submitted)
        return;
    r->credit += bytes;
    if (r->credit < (l->o.credit_step ? l->o.credit_step : ENGINE_LEG_CREDIT))
        return;
    struct api_frame f = {.kind = API_FRAME_CREDIT, .id = id, .credit = {r->credit}};
    r->credit = 0;
    engine_leg_control(l, &f);
}

void engine_leg_unpin(struct engine_leg *l, str name)
{
    struct api_frame f = {.kind = API_FRAME_UNPIN, .context = name};
    struct err ignored; /* a child that is gone pins nothing */
    if (l->pipe && !engine_leg_send(l, PIPE_DATA, &f, &ignored))
        log_debug("engine: %s", ignored.text);
}

bool engine_leg_drop(struct engine_leg *l, const struct api_drop *what, struct engine_leg_drop *d)
{
    struct api_frame f = {.kind = API_FRAME_DROP, .id = ++l->last_ask, .drop = *what};
    struct err ignored; /* a child that is gone has nothing to give up */
    if (!l->pipe || l->state != API_HEALTH_READY ||
        !engine_leg_send(l, PIPE_DATA, &f, &ignored))
        return false;
    if (d) {
        d->id = f.id;
        list_push_last(&l->drops, &d->link);
    }
    return true;
}

bool engine_leg_look(struct engine_leg *l, const struct api_look *what, struct engine_leg_look *k)
{
    struct api_frame f = {.kind = API_FRAME_LOOK, .id = ++l->last_ask, .look = *what};
    struct err ignored; /* a child that is gone has nothing */
    if (!l->pipe || l->state != API_HEALTH_READY ||
        !engine_leg_send(l, PIPE_DATA, &f, &ignored))
        return false;
    k->id = f.id;
    list_push_last(&l->looks, &k->link);
    return true;
}

static size_t engine_leg_models(void *self, struct api_model *out, size_t out_max)
{
    struct engine_leg *l = self;
    if (!l->model.context_max)
        return 0;
    if (out_max)
        out[0] = l->model;
    return 1;
}

static void engine_leg_health(void *self, struct api_health *out)
{
    struct engine_leg *l = self;
    *out = (struct api_health){
        .state = l->state,
        .reason = l->why.code == ERR_NONE ? STR("") : str_of(l->why.text),
        .progress = l->loading.bytes_total
                        ? (float)l->loading.bytes_done / (float)l->loading.bytes_total : 0,
        .running = l->beat.running,
        .queued = l->by_id.count > l->beat.running ? l->by_id.count - l->beat.running : 0,
        .queued_tokens = l->beat.tokens_queued,
        .prefill_tokens_per_s = l->beat.prefill_tokens_per_s,
        .decode_tokens_per_s = l->beat.decode_tokens_per_s,
        .restarts = l->restarts, .wedges = l->wedges,
        .progress_age_ms = l->pipe ? loop_ms() - l->moved_ms : 0,
    };
}

struct api_provider engine_leg_provider(struct engine_leg *l)
{
    return (struct api_provider){l, engine_leg_submit, engine_leg_cancel, engine_leg_hold,
                                 engine_leg_credit, engine_leg_models, engine_leg_health};
}

void engine_leg_set_stalls(struct engine_leg *l, int64_t engine_ms, int64_t load_ms)
{
    l->o.engine_stall_ms = engine_ms;
    l->o.load_stall_ms = load_ms;
}

struct api_loading engine_leg_loading(const struct engine_leg *l) { return l->loading; }
void engine_leg_counts_add(struct engine_leg_counts *to, const struct engine_leg_counts *more)
{
    to->preemptions += more->preemptions;
    to->recomputed_tokens += more->recomputed_tokens;
    to->spill_read_bytes += more->spill_read_bytes;
    to->spill_written_bytes += more->spill_written_bytes;
    to->spill_bad_sums += more->spill_bad_sums;
}

struct engine_leg_counts engine_leg_counts(const struct engine_leg *l) { return l->counts; }
const struct api_beat *engine_leg_beat(const struct engine_leg *l) { return &l->beat; }
str engine_leg_stats(const struct engine_leg *l) { return buf_view(&l->stats); }
int engine_leg_pid(const struct engine_leg *l) { return (int)l->proc.pid; }

/* --- open, close --------------------------------------------------------------------------- */

static bool engine_leg_init(struct engine_leg *l, const struct engine_leg_options *o, struct err *e)
{
    l->o = *o;
    l->load = *o->load;
    l->proc = (struct proc){.pidfd = -1, .fd = -1};
    list_init(&l->requests);
    list_init(&l->drops);
    list_init(&l->looks);
    map_init(&l->by_id, o->requests_max);
    buf_init(&l->out, ENGINE_LEG_QUEUE_MAX);
    buf_init(&l->stats, ENGINE_LEG_STATS_MAX);
    arena_init(&l->arena, 1u << 24);
    arena_init(&l->model_arena, API_FRAME_BATCH_MAX * 2);
    str *const texts[] = {&l->load.path, &l->load.name, &l->load.backend, &l->load.level,
                          &l->load.chat_template, &l->load.tool_format};
    for (size_t i = 0; i < countof(texts); i++) {
        *texts[i] = arena_copy(&l->arena, *texts[i]);
        if (!texts[i]->p)
            return err_set(e, ERR_MEMORY, "engine: no memory");
    }
    return loop_timer_open(&l->tick, o->loop, engine_leg_tick, l, e) &&
           loop_timer_open(&l->start, o->loop, engine_leg_spawn, l, e) && engine_leg_start(l, e);
}

bool engine_leg_open(struct engine_leg **out, const struct engine_leg_options *o, struct err *e)
{
    struct engine_leg *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(e, ERR_MEMORY, "engine: no memory");
    if (!engine_leg_init(l, o, e)) {
        engine_leg_close(l, 0);
        return false;
    }
    loop_timer_set(&l->tick, ENGINE_LEG_TICK_MS);
    *out = l;
    return true;
}

void engine_leg_stop(struct engine_leg *l, int64_t grace_ms)
{
    struct api_frame f = {.kind = API_FRAME_EXIT};
    struct err why;
    if (l->is_stopping)
        return;
    l->is_stopping = true;
    l->stop_ms = loop_ms() + grace_ms;
    loop_timer_stop(&l->start);
    err_set(&why, ERR_ENGINE, "%.*s was unloaded", STR_ARG(l->load.name));
    engine_leg_fail_some(l, &why, API_FAULT_NONE, engine_leg_is_any);
    if (!l->pipe)
        engine_leg_stopped(l);
    else if (grace_ms <= 0 || !engine_leg_send(l, PIPE_CONTROL, &f, &why))
        proc_signal(&l->proc, SIGKILL);
}

/* EXIT goes by hand: the loop may not turn any more. */
static void engine_leg_exit(struct engine_leg *l, int64_t grace_ms)
{
    struct api_frame f = {.kind = API_FRAME_EXIT};
    struct err ignored;
    struct proc_end end;
    if (!l->pipe || grace_ms <= 0)
        return;
    if (engine_leg_send(l, PIPE_CONTROL, &f, &ignored) && pipe_flush(l->pipe, grace_ms))
        proc_wait(&l->proc, grace_ms, &end);
}

void engine_leg_close(struct engine_leg *l, int64_t grace_ms)
{
    if (!l)
        return;
    loop_timer_close(&l->tick);
    loop_timer_close(&l->start);
    engine_leg_exit(l, grace_ms);
    while (!list_is_empty(&l->requests))
        engine_leg_forget(l, list_item(list_first(&l->requests), struct engine_leg_request, link));
    engine_leg_drop_child(l);
    map_deinit(&l->by_id);
    buf_deinit(&l->out);
    buf_deinit(&l->stats);
    arena_deinit(&l->arena);
    arena_deinit(&l->model_arena);
    free(l);
}
