#include "serve/pulls.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "serve/workers.h"
#include "store/hub_ref.h"
#include "store/library_remove.h"

#define PULLS_ARENA_MAX ((size_t)512 << 20) /* as of `shoal pull`: a hub's listing */
#define PULLS_DELETE_ARENA_MAX ((size_t)16 << 20)
#define PULLS_TELL_MS 100
#define PULLS_SPARE 8u /* places of the queue that progress leaves to notes and the end */
#define PULLS_LIST_MS 1000 /* a hub that takes longer to answer is told about */

/* One download, from its first client until its thread has ended. */
struct pulls_job {
    struct list link, clients;
    struct pulls *pulls;
    struct limits *limits; /* keeps what the options view */
    struct arena arena;    /* the thread's, then the loop's */
    str reference;
    bool is_left;          /* it ends: nobody may join it */
    _Atomic bool must_stop;
    pthread_t thread;
    struct thread_queue *news;
    /* The thread's, until DONE or FAILED is in the queue. */
    struct pull_options o;
    struct pull_result result;
    struct err why;
    enum pull_phase phase;
    uint32_t file_number;
    int64_t told_ms;
    bool has_told;
};

struct pulls_deletion {
    struct list clients; /* one, or none that still listens */
    struct pulls *pulls;
    struct limits *limits;
    struct arena arena;
    struct pulls_options o;
    struct pulls_deletion_query q;
    struct api_error e; /* code NONE: it is gone */
};

struct pulls {
    struct list jobs;
    uint32_t jobs_count;
    struct loop_wake wake;
    struct workers *workers; /* for deletions */
    bool is_stopping;
    void (*on_change)(void *ctx);
    void *ctx;
};

/* --- the thread of a download --------------------------------------------------------------- */

static void pulls_send(struct pulls_job *j, const struct pulls_news *n)
{
    bool is_end = n->kind == PULLS_DONE || n->kind == PULLS_FAILED;
    uint32_t room = PULLS_NEWS_MAX - thread_queue_count(j->news);
    uint32_t spare = n->kind == PULLS_PROGRESS ? PULLS_SPARE : is_end ? 0 : 1;
    if (room <= spare)
        return;
    must(thread_queue_push(j->news, n)); /* nobody else pushes, and the end has its place */
    loop_wake_send(&j->pulls->wake);
}

static void pulls_on_progress(void *ctx, const struct pull_progress *p)
{
    struct pulls_job *j = ctx;
    int64_t now = chrono_ms(&chrono_real);
    bool is_new = p->phase != j->phase || p->file_number != j->file_number;
    bool is_whole = p->file_size && p->file_done == p->file_size;
    if (p->phase == PULL_LIST) {
        j->told_ms = now;
        return;
    }
    if (!is_new && !is_whole && j->has_told && now - j->told_ms < PULLS_TELL_MS)
        return;
    struct pulls_news n = {.kind = PULLS_PROGRESS, .phase = p->phase, .done = p->file_done,
                           .size = p->file_size};
    j->phase = p->phase;
    j->file_number = p->file_number;
    j->told_ms = now;
    j->has_told = true;
    if (p->sha256)
        digest_hex(n.digest, p->sha256, 32);
    snprintf(n.text, sizeof n.text, "%.*s", STR_ARG(str_sub(p->file, 0, sizeof n.text - 1)));
    pulls_send(j, &n);
}

static void pulls_on_note(void *ctx, str sentence)
{
    struct pulls_news n = {.kind = PULLS_NOTE};
    snprintf(n.text, sizeof n.text, "%.*s", STR_ARG(str_sub(sentence, 0, sizeof n.text - 1)));
    pulls_send(ctx, &n);
}

/* Asked all the time: also where a hub that does not answer is noticed. */
static bool pulls_is_stopped(void *ctx)
{
    struct pulls_job *j = ctx;
    if (!j->has_told && chrono_ms(&chrono_real) - j->told_ms >= PULLS_LIST_MS) {
        const struct pulls_news n = {.kind = PULLS_PROGRESS, .phase = PULL_LIST};
        j->has_told = true;
        pulls_send(j, &n);
    }
    return atomic_load_explicit(&j->must_stop, memory_order_relaxed);
}

/* At the end every file is told as whole: also those that were here, and those whose last progress
 * the queue left out. */
static void pulls_send_items(struct pulls_job *j)
{
    for (uint32_t i = 0; i < j->result.count; i++) {
        const struct pull_item *item = &j->result.items[i];
        struct pulls_news n = {.kind = PULLS_PROGRESS, .phase = PULL_FETCH, .done = item->size,
                               .size = item->size};
        if (item->has_sha256)
            digest_hex(n.digest, item->sha256, 32);
        snprintf(n.text, sizeof n.text, "%.*s", STR_ARG(file_base_name(item->path)));
        pulls_send(j, &n);
    }
}

static void *pulls_work(void *ctx)
{
    struct pulls_job *j = ctx;
    bool ok = pull_run(&j->result, &j->o, &j->arena, &j->why);
    const struct pulls_news end = {.kind = ok ? PULLS_DONE : PULLS_FAILED};
    if (ok)
        pulls_send_items(j);
    pulls_send(j, &end);
    return NULL;
}

/* --- its end, on the loop ------------------------------------------------------------------- */

/* As an answer of ours: a hub that refuses us is not a client without a key. */
static void pulls_refuse(const struct pulls *p, const struct err *why, struct api_error *e)
{
    enum err_code code = why->code;
    const char *detail = "";
    switch (why->code) {
    case ERR_USAGE:
        code = ERR_REQUEST;
        break;
    case ERR_AUTH:
        detail = "upstream_auth";
        break;
    case ERR_IO: case ERR_LIMIT:
        detail = "insufficient_storage";
        break;
    case ERR_FORMAT: case ERR_OVERLOADED:
        code = ERR_UPSTREAM;
        break;
    case ERR_CANCELLED:
        if (p->is_stopping) {
            api_error_set(e, ERR_OVERLOADED, "", STR(""),
                          "the server is stopping; the next pull goes on where this one was");
            return;
        }
        break;
    case ERR_NONE: case ERR_CONFIG: case ERR_NOT_FOUND: case ERR_UNSUPPORTED: case ERR_REQUEST:
    case ERR_CONTEXT: case ERR_MEMORY: case ERR_DEADLINE: case ERR_CONNECT: case ERR_UPSTREAM:
    case ERR_ENGINE: case ERR_DEVICE: case ERR_INTERNAL:
        break;
    }
    api_error_set(e, code, detail, STR(""), "%s", why->text);
}

/* To all; with the end each is let go first, so that it may forget itself. */
static void pulls_tell(struct list *clients, const struct pulls_news *n)
{
    bool is_end = n->kind == PULLS_DONE || n->kind == PULLS_FAILED;
    list_each(link, clients) {
        struct pulls_client *c = list_item(link, struct pulls_client, link);
        if (is_end)
            list_remove(&c->link);
        c->on_news(c->ctx, n);
    }
}

static void pulls_free(struct pulls_job *j)
{
    list_remove(&j->link);
    j->pulls->jobs_count--;
    thread_queue_close(j->news);
    limits_close(j->limits);
    arena_deinit(&j->arena);
    free(j);
}

static void pulls_end(struct pulls_job *j, struct pulls_news *n)
{
    struct pulls *p = j->pulls;
    struct api_error e = {0};
    j->is_left = true;
    thread_join(j->thread);
    if (n->kind == PULLS_FAILED) {
        pulls_refuse(p, &j->why, &e);
        n->error = &e;
        log_info("pull %.*s: %s", STR_ARG(j->reference), j->why.text);
    } else {
        log_info("pull %.*s: %llu bytes are here", STR_ARG(j->reference),
                 (unsigned long long)j->result.size);
        p->on_change(p->ctx);
    }
    pulls_tell(&j->clients, n);
    pulls_free(j);
}

static void pulls_on_wake(void *ctx)
{
    struct pulls *p = ctx;
    list_each(link, &p->jobs) {
        struct pulls_job *j = list_item(link, struct pulls_job, link);
        struct pulls_news n;
        bool is_over = false;
        while (!is_over && thread_queue_pop(j->news, &n)) {
            is_over = n.kind == PULLS_DONE || n.kind == PULLS_FAILED;
            if (is_over)
                pulls_end(j, &n);
            else
                pulls_tell(&j->clients, &n);
        }
    }
}

/* --- begin ---------------------------------------------------------------------------------- */

bool pulls_open(struct pulls **out, struct loop *l, void (*on_change)(void *ctx), void *ctx,
                struct err *e)
{
    struct pulls *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, ERR_MEMORY, "serve: no memory for downloads");
    p->on_change = on_change;
    p->ctx = ctx;
    list_init(&p->jobs);
    if (loop_wake_open(&p->wake, l, pulls_on_wake, p, e) &&
        workers_open(&p->workers, l, 1, PULLS_DELETES_MAX, e)) {
        *out = p;
        return true;
    }
    loop_wake_close(&p->wake);
    free(p);
    return false;
}

static bool pulls_may(const struct pulls *p, const struct pulls_options *o, struct api_error *e)
{
    if (!o->is_on)
        return api_error_set(e, ERR_UNSUPPORTED, "", STR(""),
                             "models are fetched and deleted over HTTP only where the "
                             "configuration says hub.http_pull: true");
    if (p->is_stopping)
        return api_error_set(e, ERR_OVERLOADED, "", STR(""), "the server is stopping");
    return true;
}

/* A glob without "://" speaks of the configured hubs: that a name there is allowed does not say
 * that we ask any host for it. */
static bool pulls_is_allowed(const struct pulls_options *o, const struct hub_ref *ref)
{
    char name[2 * HUB_REF_MAX];
    int len = snprintf(name, sizeof name, "%.*s%s%.*s", STR_ARG(ref->origin),
                       ref->origin.len ? "/" : "", STR_ARG(ref->repo));
    bool fits = len > 0 && (size_t)len < sizeof name;
    for (uint32_t i = 0; fits && i < o->allow_count; i++)
        if ((!ref->origin.len || str_find(o->allow[i], STR("://")) != STR_NONE) &&
            str_glob(o->allow[i], str_of(name)))
            return true;
    return false;
}

static bool pulls_check(const struct pulls *p, const struct pulls_options *o, str reference,
                        struct api_error *e)
{
    struct hub_ref ref;
    if (!pulls_may(p, o, e))
        return false;
    if (!hub_ref_parse(&ref, reference, &e->err)) {
        struct err why = e->err;
        return api_error_set(e, ERR_REQUEST, "", STR("model"), "model: %s", why.text);
    }
    if (!pulls_is_allowed(o, &ref))
        return api_error_set(e, ERR_AUTH, "forbidden", STR("model"),
                             "model: %.*s%s%.*s is not among the repositories of hub.allow",
                             STR_ARG(str_sub(ref.origin, 0, 80)), ref.origin.len ? "/" : "",
                             STR_ARG(str_sub(ref.repo, 0, 100)));
    return true;
}

static bool pulls_begin(struct pulls *p, const struct pulls_options *o, struct limits *limits,
                        str reference, struct pulls_job **out, struct err *e)
{
    struct pulls_job *j = calloc(1, sizeof *j);
    if (!j)
        return err_set(e, ERR_MEMORY, "serve: no memory for a download");
    arena_init(&j->arena, PULLS_ARENA_MAX);
    list_init(&j->clients);
    j->pulls = p;
    j->limits = limits_ref(limits);
    j->reference = arena_copy(&j->arena, reference);
    j->o = o->pull;
    j->o.reference = j->reference;
    j->o.on_progress = pulls_on_progress;
    j->o.net.on_note = pulls_on_note;
    j->o.net.is_stopped = pulls_is_stopped;
    j->o.ctx = j->o.net.ctx = j;
    j->told_ms = chrono_ms(&chrono_real);
    list_push_last(&p->jobs, &j->link);
    p->jobs_count++;
    *out = j;
    if (j->reference.p && thread_queue_open(&j->news, sizeof(struct pulls_news), PULLS_NEWS_MAX, e)
        && thread_start(&j->thread, "pull", pulls_work, j, e))
        return true;
    if (!j->reference.p)
        err_set(e, ERR_MEMORY, "serve: no memory for a download");
    pulls_free(j);
    return false;
}

bool pulls_start(struct pulls *p, const struct pulls_options *o, struct limits *limits,
                 str reference, struct pulls_client *client, struct api_error *e)
{
    struct pulls_job *found = NULL;
    if (!pulls_check(p, o, reference, e))
        return false;
    list_each(link, &p->jobs) {
        struct pulls_job *j = list_item(link, struct pulls_job, link);
        if (!j->is_left && str_eq(j->reference, reference))
            found = j;
    }
    if (!found && p->jobs_count >= PULLS_MAX)
        return api_error_set(e, ERR_OVERLOADED, "", STR(""), "%u downloads run already",
                             p->jobs_count);
    if (!found && !pulls_begin(p, o, limits, reference, &found, &e->err))
        return false;
    list_push_last(&found->clients, &client->link);
    return true;
}

/* --- deletion ------------------------------------------------------------------------------- */

static bool pulls_remove(struct pulls_deletion *d, const struct library *l, struct api_error *e)
{
    struct library_query q = {d->q.name, d->o.aliases, d->o.aliases_count, false};
    struct library_entry m;
    if (!library_find(l, &q, &d->arena, &m, &e->err))
        return false;
    for (size_t i = 0; i < d->q.loaded_count && m.source == LIBRARY_SOURCE_SHOAL; i++)
        if (str_eq_nocase(d->q.loaded[i], m.name))
            return api_error_set(e, ERR_REQUEST, "conflict", STR("model"),
                                 "%.*s is loaded; unload it first (keep_alive 0)",
                                 STR_ARG(m.name));
    if (library_remove(&m, d->o.library.own, &d->arena, &e->err))
        return true;
    if (e->err.code == ERR_IO) {
        struct err why = e->err;
        api_error_set(e, ERR_IO, "insufficient_storage", STR(""), "%s", why.text);
    }
    return false;
}

static void pulls_delete_run(void *ctx)
{
    struct pulls_deletion *d = ctx;
    struct library *l;
    struct api_error e = {0};
    if (!library_open(&l, &d->o.library, &e.err)) {
        d->e = e;
        return;
    }
    if (!pulls_remove(d, l, &e))
        d->e = e;
    library_close(l);
}

static void pulls_delete_free(struct pulls_deletion *d)
{
    limits_close(d->limits);
    arena_deinit(&d->arena);
    free(d);
}

static void pulls_delete_done(void *ctx)
{
    struct pulls_deletion *d = ctx;
    bool ok = d->e.err.code == ERR_NONE;
    const struct pulls_news n = {.kind = ok ? PULLS_DONE : PULLS_FAILED, .error = &d->e};
    log_info("delete %.*s: %s", STR_ARG(d->q.name), ok ? "gone" : d->e.err.text);
    if (ok)
        d->pulls->on_change(d->pulls->ctx);
    pulls_tell(&d->clients, &n);
    pulls_delete_free(d);
}

static bool pulls_delete_fill(struct pulls_deletion *d, const struct pulls_deletion_query *q)
{
    str *rows = ARENA_ARRAY(&d->arena, str, q->loaded_count + 1);
    for (size_t i = 0; rows && i < q->loaded_count; i++)
        rows[i] = arena_copy(&d->arena, q->loaded[i]);
    d->q = (struct pulls_deletion_query){arena_copy(&d->arena, q->name), rows, q->loaded_count};
    return rows && !d->arena.is_full;
}

bool pulls_delete(struct pulls *p, const struct pulls_options *o, struct limits *limits,
                  const struct pulls_deletion_query *q, struct pulls_client *client,
                  struct api_error *e)
{
    if (!pulls_may(p, o, e))
        return false;
    struct pulls_deletion *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(&e->err, ERR_MEMORY, "serve: no memory for a deletion");
    arena_init(&d->arena, PULLS_DELETE_ARENA_MAX);
    list_init(&d->clients);
    d->pulls = p;
    d->limits = limits_ref(limits);
    d->o = *o;
    const struct workers_job job = {pulls_delete_run, pulls_delete_done, d};
    bool ok = pulls_delete_fill(d, q) ||
              err_set(&e->err, ERR_MEMORY, "serve: no memory for a deletion");
    if (ok && !workers_run(p->workers, &job))
        ok = api_error_set(e, ERR_OVERLOADED, "", STR(""), "%u deletions wait already",
                           PULLS_DELETES_MAX);
    if (ok)
        list_push_last(&d->clients, &client->link);
    else
        pulls_delete_free(d);
    return ok;
}

/* --- end ------------------------------------------------------------------------------------ */

static void pulls_drop(struct pulls_job *j)
{
    j->is_left = true;
    atomic_store_explicit(&j->must_stop, true, memory_order_relaxed);
}

void pulls_leave(struct pulls *p, struct pulls_client *client)
{
    list_remove(&client->link);
    list_each(link, &p->jobs) {
        struct pulls_job *j = list_item(link, struct pulls_job, link);
        if (list_is_empty(&j->clients))
            pulls_drop(j);
    }
}

void pulls_stop(struct pulls *p)
{
    p->is_stopping = true;
    list_each(link, &p->jobs)
        pulls_drop(list_item(link, struct pulls_job, link));
}

void pulls_close(struct pulls *p)
{
    if (!p)
        return;
    pulls_stop(p);
    workers_close(p->workers);
    list_each(link, &p->jobs) {
        struct pulls_job *j = list_item(link, struct pulls_job, link);
        thread_join(j->thread);
        pulls_free(j);
    }
    loop_wake_close(&p->wake);
    free(p);
}
