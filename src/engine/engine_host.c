#include "engine/engine_host.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/api_frame.h"
#include "base/chrono.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/log.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "engine/engine_beat.h"
#include "engine/engine_out.h"
#include "engine/engine_stats.h"
#include "engine/engine_tier.h"
#include "engine/prep_line.h"
#include "engine/sched_drop.h"
#include "engine/sched_look.h"
#include "engine/sched_trace.h"

#define HOST_READ_SIZE 65536
#define HOST_BEAT_NS (ENGINE_HOST_BEAT_MS * INT64_C(1000000))
#define HOST_LOADING_MS 100
#define HOST_DRAIN_MS 20        /* how often a draining child looks whether prep is done */
#define HOST_STATS_MAX 16384u
#define HOST_RESTORE_MS 100     /* how often a prompt that waits for the disk is looked after */
#define HOST_FLUSH_MS 4000      /* of limits.grace, 5 s by default */
#define HOST_BATCH_MAX ((size_t)64 << 20)

enum host_what {
    HOST_MESSAGE, /* from the frame thread, not decoded */
    HOST_JOB,     /* prep to engine */
    HOST_WAKE,    /* the tier has something for the engine thread */
    HOST_READY,   /* engine to prep: the model is there */
    HOST_END,     /* to prep: no more */
};

struct host_item {
    enum host_what what;
    int64_t at_ns;
    struct api_message_bytes message;
    struct job *job;
    const struct prompt_model *model;
};

struct host {
    const struct engine_host_options *o;
    struct thread_queue *to_prep, *to_engine;
    struct engine_out out;
    struct engine_beat beat;
    pthread_t prep, engine;
    /* Engine thread. */
    struct engine *model;
    struct engine_tier tier;
    _Atomic bool is_woken; /* a HOST_WAKE waits in its queue */
    struct sched sched;
    struct sched_trace trace;
    struct miss_heads misses;
    struct buf step_out;
    bool is_loaded, is_draining, is_ended;
    int64_t loading_ns, stats_ns;
    uint64_t stats_step, stats_mark; /* of the last STATS */
    /* Frame thread. */
    struct api_frame_reader reader;
    int64_t beat_ns;
};

static int64_t host_now(void) { return chrono_ns(&chrono_real); }

/* --- to the frame thread ------------------------------------------------------------------- */

/* A full queue means that the endpoint stopped reading for a very long time. */
static void host_push_out(struct host *h, struct engine_out_item *out)
{
    if (engine_out_push(&h->out, out))
        return;
    log_error("engine: %u buffers wait for an endpoint that does not read", ENGINE_OUT_QUEUE);
    _exit(1);
}

static void host_send(struct host *h, const struct api_frame *f, bool is_last, int code)
{
    struct engine_out_item out = {.is_last = is_last, .code = code};
    struct err e;
    buf_init(&out.bytes, HOST_BATCH_MAX);
    if (!api_frame_write(&out.bytes, f, &e))
        log_error("engine: %s", e.text);
    host_push_out(h, &out);
}

static void host_fault(struct host *h, const struct err *why)
{
    struct api_frame f = {.kind = API_FRAME_FAULT, .fault = *why};
    log_info("engine: %s", why->text); /* the endpoint says it where people look */
    host_send(h, &f, true, 1);
}

/* --- prep thread --------------------------------------------------------------------------- */

static void host_send_batch(void *ctx, const struct api_batch *b)
{
    struct api_frame f = {.kind = API_FRAME_BATCH, .id = b->request_id, .batch = *b};
    host_send(ctx, &f, false, 0);
}

static void host_send_error(struct host *h, uint64_t id, const struct api_error *why)
{
    struct api_event ev = {.kind = API_EVENT_ERROR, .error = *why};
    struct api_batch b = {.request_id = id, .events = &ev, .events_count = 1};
    host_send_batch(h, &b);
}

/* What waits for prep, in its message's own arena. */
struct host_waiting {
    struct prep_item item;
    struct host_item in;
    struct api_frame *f; /* of a request */
};

/* Makes a request's tokens; what can be answered at once is. The arena goes with it. */
static void host_prepare(struct host *h, const struct prompt_model *m, struct host_waiting *w)
{
    struct api_message_bytes *msg = &w->in.message;
    struct api_error why = {0};
    struct job *j = NULL;
    int64_t at_ns = w->in.at_ns;
    if (!m)
        api_error_set(&why, ERR_ENGINE, NULL, STR(""), "engine: no model is loaded");
    else if ((j = prompt_job(&msg->arena, &w->f->submit)) == NULL)
        api_error_set(&why, ERR_LIMIT, NULL, STR(""), "request: out of its memory");
    if (!j) {
        struct arena a = msg->arena; /* which w lies in */
        host_send_error(h, msg->id, &why);
        arena_deinit(&a);
        return;
    }
    j->arrived_ns = at_ns;
    bool ok = prompt_make(m, j, &why);
    if (ok && !prompt_is_answer(j)) {
        struct host_item out = {.what = HOST_JOB, .job = j};
        if (thread_queue_push(h->to_engine, &out))
            return;
        ok = api_error_set(&why, ERR_OVERLOADED, NULL, STR(""), "engine: %u requests wait",
                           ENGINE_HOST_QUEUE);
    } else if (ok) {
        ok = prompt_answer(m, j, (struct api_sink){host_send_batch, h}, &why);
    }
    if (!ok)
        host_send_error(h, j->rq.id, &why);
    prompt_job_free(j);
}

static uint64_t host_agent(const struct api_request *rq)
{
    return digest_xxh3(rq->agent, digest_xxh3(rq->owner, 0));
}

/* Decodes a request, so that its agent is known. NULL: it was refused, or there is no memory. */
static struct host_waiting *host_read_request(struct host *h, struct host_item *in)
{
    struct api_message_bytes *msg = &in->message;
    struct host_waiting *w = ARENA_NEW(&msg->arena, struct host_waiting);
    struct api_frame *f = ARENA_NEW(&msg->arena, struct api_frame);
    struct api_error why = {0};
    bool ok = w && f && !msg->is_dropped;
    if (!ok)
        api_error_set(&why, ERR_MEMORY, NULL, STR(""), "engine: no memory for the request");
    else if (!(ok = api_frame_read(f, msg, &why.err)))
        why.code = STR("");
    if (!ok) {
        host_send_error(h, msg->id, &why);
        arena_deinit(&msg->arena);
        engine_beat_prep_remove(&h->beat);
        return NULL;
    }
    w->f = f;
    w->item = (struct prep_item){.id = msg->id, .agent = host_agent(&f->submit),
                                 .is_request = true};
    w->in = *in;
    return w;
}

/* A cancelled request that waits, and what was said of it. */
static void host_drop_waiting(struct host *h, struct prep_line *l, uint64_t id)
{
    struct prep_item *item;
    while ((item = prep_line_take(l, id))) {
        struct host_waiting *w = list_item(item, struct host_waiting, item);
        struct arena a = w->in.message.arena; /* which w lies in */
        if (item->is_request)
            engine_beat_prep_remove(&h->beat);
        arena_deinit(&a);
    }
}

/* A word about a request follows it; without memory for it the request does without. A CANCEL of
 * one that is prepared goes on to the engine, whose copy may have come before the request. */
static void host_line_up(struct host *h, struct prep_line *l, struct host_item *in)
{
    struct host_waiting *w;
    if (in->message.kind == API_FRAME_SUBMIT) {
        w = host_read_request(h, in);
        if (w)
            prep_line_add(l, &w->item);
        return;
    }
    if (in->message.kind == API_FRAME_CANCEL && prep_line_has(l, in->message.id)) {
        host_drop_waiting(h, l, in->message.id);
        arena_deinit(&in->message.arena);
        return;
    }
    w = ARENA_NEW(&in->message.arena, struct host_waiting);
    if (!w) {
        arena_deinit(&in->message.arena);
        return;
    }
    w->item = (struct prep_item){.id = in->message.id};
    w->in = *in;
    prep_line_add(l, &w->item);
}

static void host_do_next(struct host *h, struct prep_line *l, const struct prompt_model *m)
{
    int64_t begun_ns = host_now();
    struct prep_item *item = prep_line_next(l, begun_ns);
    struct host_waiting *w = item ? list_item(item, struct host_waiting, item) : NULL;
    if (!w)
        return;
    if (item->is_request) {
        uint64_t agent = item->agent;
        host_prepare(h, m, w);
        engine_beat_prep_remove(&h->beat);
        int64_t now_ns = host_now();
        prep_line_spent(l, agent, now_ns - begun_ns, now_ns);
        return;
    }
    struct host_item in = w->in;
    if (!thread_queue_push(h->to_engine, &in))
        arena_deinit(&in.message.arena);
}

static void *host_run_prep(void *ctx)
{
    struct host *h = ctx;
    const struct prompt_model *m = NULL;
    struct host_item in;
    struct prep_line line;
    bool is_ended = false;
    prep_line_init(&line);
    while (!is_ended || !list_is_empty(&line.waiting)) {
        if (list_is_empty(&line.waiting))
            thread_queue_wait(h->to_prep, -1);
        while (thread_queue_pop(h->to_prep, &in)) {
            if (in.what == HOST_END)
                is_ended = true;
            else if (in.what == HOST_READY)
                m = in.model;
            else
                host_line_up(h, &line, &in);
        }
        host_do_next(h, &line, m);
    }
    return NULL;
}

/* --- engine thread ------------------------------------------------------------------------- */

/* Batches of a step gather in one buffer. */
static void host_gather(void *ctx, const struct api_batch *b)
{
    struct host *h = ctx;
    struct api_frame f = {.kind = API_FRAME_BATCH, .id = b->request_id, .batch = *b};
    struct err e;
    if (api_frame_write(&h->step_out, &f, &e))
        return;
    log_error("engine: %s", e.text); /* the endpoint would wait forever for this batch */
    _exit(1);
}

static void host_flush(struct host *h)
{
    if (!h->step_out.len || engine_out_is_full(&h->out))
        return;
    struct engine_out_item out = {.bytes = h->step_out};
    host_push_out(h, &out);
    engine_out_spare(&h->out, &h->step_out, ENGINE_HOST_OUT_MAX);
}

/* Before a step: there is work, so standing still from here on is a stall. */
static void host_set_phase(struct host *h, bool is_idle)
{
    engine_beat_set_phase(&h->beat, is_idle                         ? API_PHASE_IDLE
                                    : h->sched.stats.is_prefilling ? API_PHASE_PREFILL
                                                                   : API_PHASE_DECODE);
}

static bool host_on_bytes(void *ctx, uint64_t done, uint64_t total)
{
    struct host *h = ctx;
    int64_t now = host_now();
    engine_beat_piece(&h->beat);
    if (done < total && now - h->loading_ns < HOST_LOADING_MS * INT64_C(1000000))
        return true;
    struct api_frame f = {.kind = API_FRAME_LOADING, .loading = {done, total}};
    h->loading_ns = now;
    host_send(h, &f, false, 0);
    return true;
}

static bool host_open_misses(struct host *h, const struct api_load *l, struct err *e)
{
    const struct engine *m = h->model;
    const struct output_think *think = render_format(m->render)->think;
    const struct miss_heads_options o = {
        .vocab = m->prompt.vocab, .bytes_max = MISS_HEADS_BYTES, .excerpt = l->miss_excerpt,
        .think_open = think ? think->open : STR(""),
        .think_close = think ? think->close : STR("")};
    return miss_heads_init(&h->misses, &o, &h->model->mem, e);
}

/* Tier thread. One that waits already is enough; a full queue wakes, too. */
static void host_wake(void *ctx)
{
    struct host *h = ctx;
    struct host_item wake = {.what = HOST_WAKE};
    if (!atomic_exchange_explicit(&h->is_woken, true, memory_order_acq_rel) &&
        !thread_queue_push(h->to_engine, &wake))
        atomic_store_explicit(&h->is_woken, false, memory_order_release);
}

static void host_open_tier(struct host *h, const struct api_load *l)
{
    struct engine_tier_options o = {.load = l, .build_id = h->o->build_id, .wake = host_wake,
                                    .ctx = h};
    engine_tier_open(&h->tier, h->model, &o);
}

static bool host_load(struct host *h, const struct api_load *l, struct err *e)
{
    struct engine_progress progress = {host_on_bytes, h};
    if (h->is_loaded)
        return err_set(e, ERR_ENGINE, "engine: a model is loaded already");
    engine_beat_set_phase(&h->beat, API_PHASE_LOADING);
    if (!engine_open(&h->model, l, &progress, e))
        return false;
    struct engine *m = h->model;
    if (!host_open_misses(h, l, e))
        return false;
    host_open_tier(h, l);
    struct sched_options o = {
        .backend = m->backend, .device = m->device, .prepared = m->prepared, .limits = m->limits,
        .layout = &m->layout, .pool = &m->pool,
        .trie = m->has_trie ? &m->trie : NULL, .tier = h->tier.tier, .misses = &h->misses,
        .vocab = m->prompt.vocab, .mem = &m->mem,
        .logits_count = m->hparams.n_vocab,
        .clock = chrono_real, .sink = {host_gather, h}, .model = m->model.name,
        .model_hash = m->model.model_hash, .loop_tokens = l->loop_tokens,
        .step_target_ms = l->step_target_ms, .pin_permille = l->pin_permille,
        .reserve_tokens = SCHED_RESERVE_TOKENS,
        .credit = h->o->credit, .idle_permille = l->idle_permille};
    if (!sched_init(&h->sched, &o, e))
        return false;
    h->is_loaded = true;
    engine_beat_set_device(&h->beat, m->backend, m->device);
    struct host_item ready = {.what = HOST_READY, .model = &m->prompt};
    must(thread_queue_push(h->to_prep, &ready));
    struct api_frame f = {.kind = API_FRAME_LOADED, .model = m->model};
    host_send(h, &f, false, 0);
    return true;
}

static void host_describe(struct host *h, str path, struct arena *a)
{
    struct api_frame f = {.kind = API_FRAME_DESCRIBED};
    struct err why;
    if (engine_describe(path, a, &f.model, &why)) {
        host_send(h, &f, false, 0);
    } else {
        struct api_frame fault = {.kind = API_FRAME_FAULT, .fault = why};
        host_send(h, &fault, false, 0);
    }
}

/* Another number whenever the figures would be others. */
static uint64_t host_stats_mark(const struct host *h)
{
    struct kv_tier_stats t = {.writes = 0};
    if (h->tier.tier)
        kv_tier_stats(h->tier.tier, &t);
    return h->sched.stats.steps + t.reads + t.writes + t.evictions + t.refused + t.errors +
           t.bad_sums + t.bad_files;
}

static void host_stats(struct host *h)
{
    struct buf b;
    buf_init(&b, HOST_STATS_MAX);
    struct json_writer w = json_writer(&b);
    if (h->is_loaded)
        engine_stats_write(&w, &h->sched, &h->tier);
    else
        buf_add_z(&b, "{}");
    struct api_frame f = {.kind = API_FRAME_STATS, .stats = buf_view(&b)};
    host_send(h, &f, false, 0);
    buf_deinit(&b);
    h->stats_ns = host_now();
    h->stats_step = h->sched.stats.steps;
    h->stats_mark = host_stats_mark(h);
}

static void host_drop(struct host *h, const struct api_frame *f)
{
    struct api_frame answer = {.kind = API_FRAME_DROPPED, .id = f->id};
    if (h->is_loaded)
        sched_drop(&h->sched, &f->drop, &answer.dropped);
    host_send(h, &answer, false, 0);
    h->stats_ns = 0; /* the figures have changed without a step */
}

static void host_look(struct host *h, const struct api_frame *f, struct arena *a)
{
    struct api_frame answer = {.kind = API_FRAME_LOOKED, .id = f->id};
    const struct api_look *l = &f->look;
    bool is_known = h->is_loaded &&
                    sched_look(&h->sched, l->prefixes, l->prefixes_count, a, &answer.places);
    if (!is_known)
        answer.places = STR(""); /* nobody can tell */
    host_send(h, &answer, false, 0);
}

/* Unasked, as BEAT: when something was computed since, at most twice a second or before a rest. The
 * disk may write and read in that rest: then twice a second too. */
static void host_tell_stats(struct host *h, bool is_idle)
{
    bool has_computed = h->stats_step != h->sched.stats.steps || !h->stats_ns;
    if (!has_computed && h->stats_mark == host_stats_mark(h))
        return;
    if ((is_idle && has_computed) || host_now() - h->stats_ns >= HOST_BEAT_NS)
        host_stats(h);
}

/* A decoded message for the engine thread. False: the fault was told, the process ends. */
static bool host_obey(struct host *h, const struct api_frame *f, struct arena *a)
{
    struct err why;
    switch (f->kind) {
    case API_FRAME_LOAD:
        if (host_load(h, &f->load, &why))
            return true;
        host_fault(h, &why);
        return false;
    case API_FRAME_DESCRIBE:
        host_describe(h, f->path, a);
        return true;
    case API_FRAME_CANCEL:
        if (h->is_loaded)
            sched_cancel(&h->sched, f->id);
        return true;
    case API_FRAME_HOLD:
        if (h->is_loaded)
            sched_hold(&h->sched, f->id, f->hold.on);
        return true;
    case API_FRAME_CREDIT:
        if (h->is_loaded)
            sched_credit(&h->sched, f->id, f->credit.bytes);
        return true;
    case API_FRAME_STATS:
        host_stats(h);
        return true;
    case API_FRAME_DRAIN:
        h->is_draining = true;
        return true;
    case API_FRAME_EXIT:
        h->is_ended = true;
        return true;
    case API_FRAME_UNPIN:
        if (h->is_loaded)
            sched_unpin(&h->sched, f->context);
        return true;
    case API_FRAME_DROP:
        host_drop(h, f);
        return true;
    case API_FRAME_LOOK:
        host_look(h, f, a);
        return true;
    case API_FRAME_NONE_: case API_FRAME_SUBMIT: case API_FRAME_MORE: case API_FRAME_HELLO:
    case API_FRAME_DESCRIBED: case API_FRAME_LOADING: case API_FRAME_LOADED: case API_FRAME_BATCH:
    case API_FRAME_BEAT: case API_FRAME_FAULT: case API_FRAME_DROPPED: case API_FRAME_LOOKED:
    case API_FRAME_COUNT_:
        break;
    }
    return true;
}

static bool host_take(struct host *h, struct host_item *in)
{
    struct api_frame f;
    struct err why;
    if (in->what == HOST_JOB) {
        sched_submit(&h->sched, in->job);
        return true;
    }
    if (in->what == HOST_WAKE) {
        atomic_store_explicit(&h->is_woken, false, memory_order_release);
        return true;
    }
    bool ok = !in->message.is_dropped && api_frame_read(&f, &in->message, &why);
    if (in->message.is_dropped)
        err_set(&why, ERR_MEMORY, "engine: no memory for a frame");
    if (ok)
        ok = host_obey(h, &f, &in->message.arena);
    else
        host_fault(h, &why);
    arena_deinit(&in->message.arena);
    return ok;
}

/* quiet: prep had nothing when the queue was looked at last, so what it made has been taken. */
static bool host_is_over(const struct host *h, bool quiet)
{
    bool is_empty = !h->is_loaded || list_is_empty(&h->sched.jobs);
    return h->is_ended || (h->is_draining && quiet && is_empty);
}

static int64_t host_wait_ms(const struct host *h)
{
    if (h->step_out.len)
        return 1;
    if (h->is_draining)
        return HOST_DRAIN_MS;
    if (!h->is_loaded)
        return -1;
    /* A disk that does not answer wakes nobody. */
    int64_t rest = sched_tier_is_busy(&h->sched.tier) ? HOST_RESTORE_MS : sched_rest_ms(&h->sched);
    if (h->stats_mark == host_stats_mark(h) || (rest >= 0 && rest < ENGINE_HOST_BEAT_MS))
        return rest;
    return ENGINE_HOST_BEAT_MS;
}

static void host_close_model(struct host *h)
{
    struct engine_out_item last = {.is_last = true};
    if (h->is_loaded) {
        sched_tier_flush(&h->sched.tier, HOST_FLUSH_MS);
        sched_deinit(&h->sched);
    }
    engine_tier_close(&h->tier);
    engine_beat_set_device(&h->beat, NULL, NULL);
    host_flush(h);
    buf_init(&last.bytes, 0);
    host_push_out(h, &last);
}

static void host_trace(struct host *h)
{
    struct buf line;
    buf_init(&line, HOST_STATS_MAX);
    if (sched_trace_add(&h->trace, &h->sched.stats, host_now(), &line))
        log_info("%s", line.p ? line.p : "");
    buf_deinit(&line);
}

static void *host_run_engine(void *ctx)
{
    struct host *h = ctx;
    struct host_item in;
    struct err why;
    enum sched_result r = SCHED_RESULT_IDLE;
    buf_init(&h->step_out, ENGINE_HOST_OUT_MAX);
    for (;;) {
        if (r == SCHED_RESULT_IDLE)
            thread_queue_wait(h->to_engine, host_wait_ms(h));
        bool quiet = engine_beat_prep_count(&h->beat) == 0;
        while (!h->is_ended && thread_queue_pop(h->to_engine, &in))
            if (!host_take(h, &in))
                return NULL;
        if (host_is_over(h, quiet))
            break;
        if (!h->is_loaded)
            continue;
        host_flush(h); /* who waits is told before the step that it waits for */
        host_set_phase(h, list_is_empty(&h->sched.jobs));
        int64_t begun_ns = host_now();
        r = sched_step(&h->sched, &why);
        engine_beat_count_step(&h->beat, &h->sched.stats, host_now() - begun_ns);
        if (r == SCHED_RESULT_LOST) {
            host_fault(h, &why);
            return NULL;
        }
        host_flush(h);
        engine_beat_publish(&h->beat, &h->sched, &h->tier);
        if (h->o->traces)
            host_trace(h);
        host_tell_stats(h, r == SCHED_RESULT_IDLE || list_is_empty(&h->sched.jobs));
        if (r == SCHED_RESULT_IDLE)
            host_set_phase(h, true);
    }
    host_close_model(h);
    return NULL;
}

/* --- frame thread: in ---------------------------------------------------------------------- */

static void host_route(struct host *h, struct api_message_bytes *m)
{
    struct host_item item = {.what = HOST_MESSAGE, .message = *m, .at_ns = host_now()};
    bool is_submit = m->kind == API_FRAME_SUBMIT;
    if (is_submit)
        engine_beat_prep_add(&h->beat);
    /* A copy takes the long way: it comes after its request, whatever prep is doing. */
    bool both = m->kind == API_FRAME_CANCEL || m->kind == API_FRAME_HOLD;
    if (both) {
        struct host_item copy = item;
        arena_init(&copy.message.arena, 4096);
        copy.message.body = arena_copy(&copy.message.arena, m->body);
        if (!copy.message.body.p || !thread_queue_push(h->to_engine, &copy))
            arena_deinit(&copy.message.arena);
    }
    struct thread_queue *q = is_submit || both ? h->to_prep : h->to_engine;
    if (thread_queue_push(q, &item))
        return;
    arena_deinit(&item.message.arena);
    if (is_submit) {
        struct api_error why;
        api_error_set(&why, ERR_OVERLOADED, NULL, STR(""), "engine: %u requests wait",
                      ENGINE_HOST_QUEUE);
        host_send_error(h, m->id, &why);
        engine_beat_prep_remove(&h->beat);
    }
}

/* False: end of file or a broken peer (e set). */
static bool host_read(struct host *h, struct err *e)
{
    static char bytes[HOST_READ_SIZE];
    ssize_t n = read(h->o->fd, bytes, sizeof bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n < 0)
        return err_set_errno(e, errno, "engine: reading from the endpoint");
    if (n == 0)
        return err_set(e, ERR_CANCELLED, "engine: the endpoint is gone");
    for (str in = str_view(bytes, (size_t)n); in.len;) {
        struct api_message_bytes m;
        enum api_frame_got got = api_frame_reader_next(&h->reader, &in, &m, e);
        if (got == API_FRAME_GOT_BROKEN)
            return false;
        if (got == API_FRAME_GOT_MESSAGE)
            host_route(h, &m);
    }
    return true;
}

/* --- frame thread: out --------------------------------------------------------------------- */

static void host_beat(struct host *h)
{
    struct api_beat beat;
    engine_beat_read(&h->beat, host_now(), &beat);
    engine_out_beat(&h->out, &beat);
}

static bool host_loop(struct host *h, struct err *e)
{
    bool wants = false;
    while (!h->out.is_over) {
        int64_t now = host_now(), wait_ns = h->beat_ns + HOST_BEAT_NS - now;
        if (wait_ns <= 0) {
            host_beat(h);
            h->beat_ns = now;
            wait_ns = HOST_BEAT_NS;
        }
        if (!engine_out_write(&h->out, h->o->fd, &wants, e))
            return false;
        if (h->out.is_over)
            break;
        struct pollfd fds[2] = {{.fd = h->o->fd, .events = POLLIN | (wants ? POLLOUT : 0)},
                                {.fd = engine_out_fd(&h->out), .events = POLLIN}};
        /* What waits in the queue cannot be written while the socket is full. */
        int n = poll(fds, wants ? 1 : 2, (int)(wait_ns / 1000000) + 1);
        if (n < 0 && errno != EINTR)
            return err_set_errno(e, errno, "engine: poll");
        if (n > 0 && fds[0].revents & (POLLIN | POLLHUP | POLLERR) && !host_read(h, e))
            return false;
    }
    return true;
}

/* --- life ---------------------------------------------------------------------------------- */

static bool host_open(struct host *h, struct err *e)
{
    api_frame_reader_init(&h->reader, API_FRAME_TO_CHILD, ENGINE_HOST_MESSAGE_MAX);
    if (!thread_queue_open(&h->to_prep, sizeof(struct host_item), ENGINE_HOST_QUEUE, e) ||
        !thread_queue_open(&h->to_engine, sizeof(struct host_item), ENGINE_HOST_QUEUE, e) ||
        !engine_out_open(&h->out, e))
        return false;
    struct api_frame hello = {.kind = API_FRAME_HELLO,
                              .hello = {h->o->build_id, h->o->version, (uint32_t)getpid()}};
    host_send(h, &hello, false, 0);
    h->beat_ns = host_now();
    return true;
}

static void host_drop_items(struct thread_queue *q)
{
    struct host_item in;
    while (thread_queue_pop(q, &in)) {
        if (in.what == HOST_MESSAGE)
            arena_deinit(&in.message.arena);
        if (in.what == HOST_JOB)
            prompt_job_free(in.job);
    }
}

static void host_close(struct host *h)
{
    host_drop_items(h->to_prep);
    host_drop_items(h->to_engine);
    miss_heads_deinit(&h->misses);
    engine_close(h->model);
    buf_deinit(&h->step_out);
    api_frame_reader_deinit(&h->reader);
    thread_queue_close(h->to_prep);
    thread_queue_close(h->to_engine);
    engine_out_close(&h->out);
}

int engine_host_run(const struct engine_host_options *o, struct err *e)
{
    struct host *h = calloc(1, sizeof *h);
    if (!h) {
        err_set(e, ERR_MEMORY, "engine: no memory");
        return 1;
    }
    h->o = o;
    if (!host_open(h, e) || !thread_start(&h->prep, "prep", host_run_prep, h, e) ||
        !thread_start(&h->engine, "engine", host_run_engine, h, e))
        return 1; /* nothing to hand back: the process ends */
    if (!host_loop(h, e)) {
        /* The endpoint is gone or broken. The engine thread may be deep in a step that nobody
         * waits for: the kernel takes everything back faster than we could. */
        if (e->code != ERR_CANCELLED) /* it ended: no news to whoever ended it */
            log_warn("%s", e->text);
        _exit(1);
    }
    struct host_item end = {.what = HOST_END};
    must(thread_queue_push(h->to_prep, &end));
    thread_join(h->prep);
    thread_join(h->engine);
    int code = h->out.code;
    host_close(h);
    free(h);
    if (code)
        err_set(e, ERR_ENGINE, "engine: ended by a fault");
    return code;
}
