#include "cli/run_local.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/chrono.h"
#include "base/digest.h"
#include "base/version.h"
#include "cli/cmd.h"
#include "cli/run_remote.h"
#include "serve/engine_leg.h"

#define RUN_LOCAL_PROGRESS_AFTER_MS 400 /* shorter loads show nothing */
#define RUN_LOCAL_GRACE_MS 2000

struct run_local_turn {
    struct run_local_turn *next;
    enum api_role role;
    struct api_part part;
};

struct run_local {
    struct run_local_options o;
    struct arena arena; /* options, build id */
    struct arena talk;  /* turns */
    struct run_local_turn *first, *last;
    uint32_t turns_count;
    struct loop *loop;
    struct engine_leg *leg;    /* one of both */
    struct run_remote *remote;
    struct api_provider provider;
    struct loop_signal interrupt;
    bool is_interrupted, has_interrupt;
    bool out_is_terminal, err_is_terminal, is_dimmed, has_progress;
    int64_t opened_ms;
    /* The turn at hand. */
    uint64_t id;
    struct buf reply;
    bool is_asking, is_done, ends_line;
    struct err why; /* code NONE: it went well */
    struct api_usage usage;
    enum api_done reason;
};

/* --- the child ----------------------------------------------------------------------------- */

str run_local_build_id(struct arena *a)
{
    struct stat st = {0};
    if (stat("/proc/self/exe", &st))
        st.st_ino = 0;
    return arena_printf(a, "%s %s %llu-%lld", VERSION_TEXT, VERSION_GIT,
                        (unsigned long long)st.st_ino, (long long)st.st_mtim.tv_sec);
}

static void run_local_hide_progress(struct run_local *r)
{
    if (r->has_progress)
        fputs("\r\033[K", stderr);
    r->has_progress = false;
}

static void run_local_on_change(void *ctx)
{
    struct run_local *r = ctx;
    struct api_health h;
    r->provider.health(r->provider.self, &h);
    if (h.state != API_HEALTH_STARTING || !r->err_is_terminal || !r->is_asking) {
        run_local_hide_progress(r);
        return;
    }
    if (loop_ms() - r->opened_ms < RUN_LOCAL_PROGRESS_AFTER_MS)
        return;
    fprintf(stderr, "\rloading %3.0f %%\033[K", (double)h.progress * 100);
    fflush(stderr);
    r->has_progress = true;
}

static void run_local_on_interrupt(void *ctx)
{
    struct run_local *r = ctx;
    r->has_interrupt = true;
    r->is_interrupted = r->is_asking;
}

static bool run_local_copy(struct run_local *r, str *s, struct err *e)
{
    *s = arena_copy(&r->arena, *s);
    return s->p || err_set(e, ERR_MEMORY, "run: no memory");
}

static bool run_local_init(struct run_local *r, struct err *e)
{
    static const char *const argv[] = {"shoal", "engine", NULL};
    str *const texts[] = {&r->o.system, &r->o.load.path, &r->o.load.name, &r->o.load.level,
                          &r->o.load.backend, &r->o.load.chat_template,
                          &r->o.load.tool_format};
    for (size_t i = 0; i < countof(texts); i++)
        if (!run_local_copy(r, texts[i], e))
            return false;
    struct engine_leg_options leg = {
        .load = &r->o.load, .build_id = run_local_build_id(&r->arena), .argv = argv,
        .engine_stall_ms = r->o.engine_stall_ms, .load_stall_ms = r->o.load_stall_ms,
        .requests_max = 16, .on_change = run_local_on_change, .ctx = r};
    if (!loop_open(&r->loop, e) ||
        !loop_signal_open(&r->interrupt, r->loop, SIGINT, run_local_on_interrupt, r, e))
        return false;
    if (r->o.daemon) {
        if (!run_remote_open(&r->remote, r->loop, r->o.daemon, r->o.keep_alive, e))
            return false;
        r->provider = run_remote_provider(r->remote);
        return true;
    }
    leg.loop = r->loop;
    if (!engine_leg_open(&r->leg, &leg, e))
        return false;
    r->provider = engine_leg_provider(r->leg);
    return true;
}

bool run_local_open(struct run_local **out, const struct run_local_options *o, struct err *e)
{
    struct run_local *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ERR_MEMORY, "run: no memory");
    r->o = *o;
    r->opened_ms = loop_ms();
    r->out_is_terminal = cmd_is_terminal(STDOUT_FILENO);
    r->err_is_terminal = cmd_is_terminal(STDERR_FILENO);
    arena_init(&r->arena, RUN_LOCAL_TEXT_MAX);
    arena_init(&r->talk, RUN_LOCAL_TEXT_MAX);
    buf_init(&r->reply, RUN_LOCAL_TEXT_MAX);
    if (!run_local_init(r, e)) {
        run_local_close(r);
        return false;
    }
    *out = r;
    return true;
}

void run_local_close(struct run_local *r)
{
    if (!r)
        return;
    engine_leg_close(r->leg, RUN_LOCAL_GRACE_MS);
    run_remote_close(r->remote);
    loop_signal_close(&r->interrupt);
    loop_close(r->loop);
    buf_deinit(&r->reply);
    arena_deinit(&r->talk);
    arena_deinit(&r->arena);
    free(r);
}

struct loop *run_local_loop(struct run_local *r) { return r->loop; }

bool run_local_take_interrupt(struct run_local *r)
{
    bool had = r->has_interrupt;
    r->has_interrupt = false;
    return had;
}

bool run_local_has_failed(const struct run_local *r, struct err *e)
{
    struct api_health h;
    r->provider.health(r->provider.self, &h);
    if (h.state != API_HEALTH_FAILED)
        return false;
    err_set(e, ERR_ENGINE, "%.*s", STR_ARG(h.reason));
    return true;
}

/* --- the reply ----------------------------------------------------------------------------- */

static void run_local_dim(struct run_local *r, bool on)
{
    if (r->out_is_terminal && r->is_dimmed != on)
        fputs(on ? "\033[2m" : "\033[0m\n\n", stdout);
    r->is_dimmed = on;
}

static void run_local_show(struct run_local *r, str text)
{
    if (!text.len)
        return;
    fwrite(text.p, 1, text.len, stdout);
    r->ends_line = text.p[text.len - 1] == '\n';
}

static void run_local_on_event(struct run_local *r, const struct api_event *ev)
{
    switch (ev->kind) {
    case API_EVENT_REASONING:
        run_local_dim(r, true);
        if (r->out_is_terminal)
            run_local_show(r, ev->text.text);
        break;
    case API_EVENT_CONTENT:
        run_local_dim(r, false);
        run_local_show(r, ev->text.text);
        buf_add(&r->reply, ev->text.text);
        break;
    case API_EVENT_NOTE:
        if (str_eq_z(ev->note.code, "cache_miss")) /* a server's records have it; no warning */
            break;
        fprintf(stderr, "shoal: %.*s; %.*s\n", STR_ARG(ev->note.code), STR_ARG(ev->note.text));
        break;
    case API_EVENT_USAGE:
        r->usage = ev->usage;
        break;
    case API_EVENT_DONE:
        r->reason = ev->done.reason;
        r->is_done = true;
        break;
    case API_EVENT_ERROR:
        r->why = ev->error.err;
        r->is_done = true;
        break;
    case API_EVENT_QUEUED: case API_EVENT_PROGRESS: case API_EVENT_STARTED:
    case API_EVENT_CALL_BEGIN: case API_EVENT_CALL_ARGS: case API_EVENT_CALL_END:
    case API_EVENT_EMBEDDING: case API_EVENT_TOKENS: case API_EVENT_MODELS:
    case API_EVENT_PARKED: case API_EVENT_COUNT_:
        break;
    }
}

static void run_local_on_batch(void *ctx, const struct api_batch *b)
{
    struct run_local *r = ctx;
    run_local_hide_progress(r);
    for (uint32_t i = 0; i < b->events_count; i++)
        run_local_on_event(r, &b->events[i]);
    if (fflush(stdout) != 0 && r->why.code == ERR_NONE) /* a full disk: nobody gets the rest */
        err_set_errno(&r->why, errno, "writing to stdout");
    r->provider.credit(r->provider.self, b->request_id, (uint32_t)api_batch_weight(b));
}

static bool run_local_add(struct run_local *r, enum api_role role, str text)
{
    struct run_local_turn *t = ARENA_NEW(&r->talk, struct run_local_turn);
    str copy = arena_copy(&r->talk, text);
    if (!t || !copy.p)
        return false;
    t->role = role;
    t->part = (struct api_part){.kind = API_PART_TEXT, .text = copy};
    if (r->last)
        r->last->next = t;
    else
        r->first = t;
    r->last = t;
    r->turns_count++;
    return true;
}

static bool run_local_request(struct run_local *r, str text, struct arena *a,
                              struct api_request *rq, struct err *e)
{
    struct api_message *m = ARENA_ARRAY(a, struct api_message, r->turns_count + 2);
    struct api_part *own = ARENA_ARRAY(a, struct api_part, 2);
    uint32_t count = 0;
    if (!m || !own)
        return err_set(e, ERR_MEMORY, "run: the conversation needs more than %zu bytes",
                       RUN_LOCAL_TEXT_MAX);
    own[0] = (struct api_part){.kind = API_PART_TEXT, .text = r->o.system};
    own[1] = (struct api_part){.kind = API_PART_TEXT, .text = text};
    if (r->o.system.len)
        m[count++] = (struct api_message){.role = API_ROLE_SYSTEM, .parts = &own[0],
                                          .parts_count = 1};
    for (const struct run_local_turn *t = r->first; t; t = t->next)
        m[count++] = (struct api_message){.role = t->role, .parts = &t->part, .parts_count = 1};
    m[count++] = (struct api_message){.role = API_ROLE_USER, .parts = &own[1], .parts_count = 1};
    *rq = r->o.chat;
    rq->id = ++r->id;
    rq->model = r->o.load.name;
    rq->messages = m;
    rq->messages_count = count;
    rq->stream = true;
    rq->time_s = chrono_unix_ms(&chrono_real) / 1000;
    if (!r->o.has_seed)
        digest_random(&rq->seed, sizeof rq->seed);
    return true;
}

static void run_local_wait(struct run_local *r)
{
    run_local_on_change(r);
    while (!r->is_done && !r->is_interrupted && r->why.code == ERR_NONE)
        loop_step(r->loop, 1000);
    run_local_hide_progress(r);
    if (!r->is_done)
        r->provider.cancel(r->provider.self, r->id);
}

static double run_local_rate(uint64_t tokens, uint64_t ns)
{
    return ns ? (double)tokens * 1e9 / (double)ns : 0;
}

static void run_local_timings(const struct run_local *r, FILE *to)
{
    const struct api_usage *u = &r->usage;
    uint32_t computed = u->prompt_tokens - u->cached_tokens;
    uint32_t decoded = u->output_tokens ? u->output_tokens - 1 : 0; /* the first is prefill's */
    fprintf(to, "[%u tokens in (%u cached), %u out; prefill %.1f tokens/s, decode %.1f tokens/s]\n",
            u->prompt_tokens, u->cached_tokens, u->output_tokens,
            run_local_rate(computed, u->prefill_ns), run_local_rate(decoded, u->decode_ns));
}

/* After the last word: a line end, colours back, what cut the reply. */
static void run_local_finish(struct run_local *r)
{
    bool is_cut = r->is_done && r->why.code == ERR_NONE && r->reason != API_DONE_EOS &&
                  r->reason != API_DONE_STOP_STRING;
    if (r->is_dimmed)
        run_local_dim(r, false);
    if (!r->ends_line)
        fputc('\n', stdout);
    fflush(stdout);
    if (is_cut)
        fprintf(stderr, "[ended: %s]\n", api_event_done_name(r->reason));
    if (r->o.timings && r->is_done && r->why.code == ERR_NONE)
        run_local_timings(r, stderr);
}

static bool run_local_keep(struct run_local *r, str text, struct err *e)
{
    bool is_good = r->is_done && r->why.code == ERR_NONE;
    if (!is_good && !(r->is_interrupted && r->reply.len))
        return true;
    return (run_local_add(r, API_ROLE_USER, text) &&
            run_local_add(r, API_ROLE_ASSISTANT, buf_view(&r->reply))) ||
           err_set(e, ERR_LIMIT, "run: the conversation is longer than %zu bytes",
                   RUN_LOCAL_TEXT_MAX);
}

bool run_local_ask(struct run_local *r, str text, struct err *e)
{
    struct arena a;
    struct api_request rq;
    struct api_error refused;
    struct api_sink sink = {run_local_on_batch, r};
    bool ok = false;
    arena_init(&a, RUN_LOCAL_TEXT_MAX);
    buf_clear(&r->reply);
    r->is_asking = true;
    r->is_done = r->is_interrupted = false;
    r->ends_line = true;
    r->why.code = ERR_NONE;
    if (!run_local_request(r, text, &a, &rq, e))
        goto done;
    if (!api_request_check(&rq, &refused) ||
        !r->provider.submit(r->provider.self, &rq, sink, &refused)) {
        *e = refused.err;
        goto done;
    }
    run_local_wait(r);
    run_local_finish(r);
    ok = run_local_keep(r, text, e);
    if (ok && r->is_interrupted)
        ok = err_set(e, ERR_CANCELLED, "interrupted");
    if (r->why.code != ERR_NONE) {
        *e = r->why;
        ok = false;
    }
done:
    r->is_asking = false;
    arena_deinit(&a);
    return ok;
}

void run_local_clear(struct run_local *r)
{
    arena_reset(&r->talk);
    r->first = r->last = NULL;
    r->turns_count = 0;
}

void run_local_print_stats(const struct run_local *r)
{
    struct api_model m = {0};
    struct buf b;
    buf_init(&b, 4096);
    if (r->provider.models(r->provider.self, &m, 1)) {
        buf_printf(&b, "%.*s: %.*s, %.*s, context %u, memory ", STR_ARG(m.name), STR_ARG(m.family),
                   STR_ARG(m.quant), m.context_max);
        buf_add_size(&b, m.device_bytes);
        printf("%s\n", b.p);
    }
    buf_deinit(&b);
    printf("%u messages in the conversation\n", r->turns_count);
    if (r->usage.output_tokens)
        run_local_timings(r, stdout);
}

/* Where the layers lie. */
static bool run_local_place(const struct config *c, struct api_load *l, struct err *e)
{
    bool is_auto = config_is(c, "engine.backend", "auto");
    l->backend = is_auto ? STR("") : config_text(c, "engine.backend");
    if (config_is(c, "engine.ngl", "auto"))
        return true;
    l->layers = (uint32_t)config_number(c, "engine.ngl");
    if (l->layers == 0 && config_is(c, "engine.backend", "cuda"))
        return err_set(e, ERR_CONFIG, "ngl: 0 keeps all layers on the CPU, but backend is cuda");
    if (l->layers && config_is(c, "engine.backend", "cpu"))
        return err_set(e, ERR_CONFIG, "ngl: %u layers on a GPU, but backend is cpu", l->layers);
    if (is_auto)
        l->backend = l->layers ? STR("cuda") : STR("cpu");
    return true;
}

bool run_local_load(const struct config *c, struct api_load *l, struct err *e)
{
    bool is_auto = config_is(c, "engine.threads", "auto");
    l->context = (uint32_t)config_number(c, "engine.ctx");
    l->threads = is_auto ? 0 : (uint32_t)config_number(c, "engine.threads");
    l->loop_tokens = (uint32_t)config_number(c, "limits.loop_tokens");
    l->kv = config_is(c, "engine.kv", "int8") ? API_KV_INT8 : API_KV_F16;
    if (config_is(c, "engine.activations", "float"))
        l->activations = API_ACTIVATIONS_FLOAT;
    else if (config_is(c, "engine.activations", "int8"))
        l->activations = API_ACTIVATIONS_INT8;
    else if (config_is(c, "engine.activations", "int16"))
        l->activations = API_ACTIVATIONS_INT16;
    return run_local_place(c, l, e);
}
