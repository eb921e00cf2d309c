#include "serve/catalog.h"

#include <stdlib.h>
#include <string.h>

#include "api/api_frame.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/proc.h"
#include "base/thread.h"
#include "wire/pipe.h"

#define CATALOG_OOM_SCORE 500
#define CATALOG_QUEUE_MAX ((size_t)1 << 20)
#define CATALOG_RETRY_MS 5000 /* after a failure that was not the file's */
#define CATALOG_SHORT_MAX 4096u /* texts of a description that is kept without its long ones */

struct catalog_file {
    struct list link; /* in asked, or alone */
    char *path;       /* also the key */
    uint64_t size;
    int64_t modified_ns;
    enum catalog_about state;
    bool has_texts, wants_texts;
    int64_t failed_ms;
    struct arena arena;
    struct api_model model;
    struct err why;
};

struct catalog {
    struct catalog_options o;
    /* The picture. */
    struct library *picture, *taken; /* taken: the thread's, until it has ended */
    struct err why, taken_why;       /* code NONE: the last try went well */
    pthread_t thread;
    bool is_taking, is_outdated; /* is_outdated: what is being taken */
    int64_t taken_ms; /* when the last try ended */
    struct loop_wake wake;
    /* Descriptions. */
    struct map files; /* path -> struct catalog_file */
    struct list asked;
    size_t texts_bytes;
    struct proc proc;
    struct pipe *pipe;
    struct api_frame_reader reader;
    struct buf out;
    bool has_said_hello;
    struct catalog_file *current;
    struct loop_timer next, late;
};

/* --- the picture --------------------------------------------------------------------------- */

static void *catalog_take(void *ctx)
{
    struct catalog *c = ctx;
    c->taken_why.code = ERR_NONE;
    if (!library_open(&c->taken, c->o.library, &c->taken_why))
        c->taken = NULL;
    loop_wake_send(&c->wake);
    return NULL;
}

/* The thread has ended, or could not be started. */
static void catalog_on_taken(void *ctx)
{
    struct catalog *c = ctx;
    if (c->is_taking) {
        thread_join(c->thread);
        c->is_taking = false;
        c->why = c->taken_why;
    }
    c->taken_ms = c->is_outdated ? loop_ms() - CATALOG_FRESH_MS : loop_ms();
    c->is_outdated = false;
    if (c->taken) { /* a failed try leaves the old picture */
        library_close(c->picture);
        c->picture = c->taken;
        c->taken = NULL;
    }
    c->o.on_change(c->o.ctx);
}

bool catalog_is_fresh(const struct catalog *c)
{
    bool has_tried = c->picture || c->why.code != ERR_NONE;
    return has_tried && !c->is_taking && loop_ms() - c->taken_ms < CATALOG_FRESH_MS;
}

void catalog_refresh(struct catalog *c)
{
    if (c->is_taking || catalog_is_fresh(c))
        return;
    c->is_taking = thread_start(&c->thread, "library", catalog_take, c, &c->why);
    if (!c->is_taking) {
        c->taken_ms = loop_ms();
        loop_wake_send(&c->wake);
    }
}

void catalog_expire(struct catalog *c)
{
    c->is_outdated = c->is_taking; /* that thread may have read before the change */
    c->taken_ms = loop_ms() - CATALOG_FRESH_MS;
    catalog_refresh(c);
}

const struct library *catalog_picture(const struct catalog *c, struct err *why)
{
    if (!c->picture && c->why.code != ERR_NONE)
        *why = c->why;
    return c->picture;
}

/* --- descriptions -------------------------------------------------------------------------- */

static void catalog_forget_texts(struct catalog *c, struct catalog_file *f)
{
    c->texts_bytes -= f->arena.bytes_used;
    arena_deinit(&f->arena);
    f->model = (struct api_model){0};
}

static void catalog_file_free(struct catalog *c, struct catalog_file *f)
{
    catalog_forget_texts(c, f);
    list_remove(&f->link);
    free(f->path);
    free(f);
}

static void catalog_answer(struct catalog *c, struct catalog_file *f, enum catalog_about state)
{
    f->state = state;
    f->failed_ms = loop_ms();
    list_remove(&f->link);
    c->o.on_change(c->o.ctx);
}

static bool catalog_keep(struct catalog *c, struct catalog_file *f, const struct api_model *m,
                         bool with_texts)
{
    arena_init(&f->arena, with_texts ? API_FRAME_BATCH_MAX : CATALOG_SHORT_MAX);
    f->model = *m;
    str *const long_ones[] = {&f->model.chat_template, &f->model.license, &f->model.info};
    str *const texts[] = {&f->model.type, &f->model.family, &f->model.quant, &f->model.digest,
                          long_ones[0], long_ones[1], long_ones[2]};
    for (size_t i = 0; i < countof(long_ones) && !with_texts; i++)
        *long_ones[i] = STR("");
    f->model.name = STR("");
    for (size_t i = 0; i < countof(texts); i++)
        *texts[i] = arena_copy(&f->arena, *texts[i]);
    f->has_texts = with_texts;
    c->texts_bytes += f->arena.bytes_used;
    return !f->arena.is_full;
}

static void catalog_on_described(struct catalog *c, const struct api_model *m)
{
    struct catalog_file *f = c->current;
    c->current = NULL;
    bool with_texts = f->wants_texts || c->texts_bytes < CATALOG_TEXT_MAX;
    catalog_forget_texts(c, f);
    if (catalog_keep(c, f, m, with_texts)) {
        catalog_answer(c, f, CATALOG_KNOWN);
        return;
    }
    catalog_forget_texts(c, f);
    err_set(&f->why, ERR_MEMORY, "no memory for a model's description");
    catalog_answer(c, f, CATALOG_FAILED);
}

static void catalog_on_failed(struct catalog *c, const struct err *why)
{
    struct catalog_file *f = c->current;
    c->current = NULL;
    if (!f)
        return;
    f->why = *why;
    catalog_answer(c, f, CATALOG_FAILED);
}

/* --- the child ----------------------------------------------------------------------------- */

static void catalog_end_child(struct catalog *c)
{
    if (!c->pipe)
        return;
    pipe_close(c->pipe);
    c->pipe = NULL;
    api_frame_reader_deinit(&c->reader);
    proc_close(&c->proc);
    loop_timer_stop(&c->late);
}

/* The child is of no more use; what it was at has failed for this reason. */
static void catalog_lose_child(struct catalog *c, const struct err *why)
{
    bool was_useful = c->has_said_hello;
    log_warn("engine child that describes models: %s", why->text);
    catalog_end_child(c);
    catalog_on_failed(c, why);
    while (!was_useful && !list_is_empty(&c->asked)) { /* the next one would do no better */
        c->current = list_item(list_first(&c->asked), struct catalog_file, link);
        catalog_on_failed(c, why);
    }
    loop_timer_set(&c->next, 0);
}

static bool catalog_obey(struct catalog *c, const struct api_frame *f, struct err *e)
{
    if (f->kind == API_FRAME_HELLO) {
        if (!str_eq(f->hello.build_id, c->o.build_id))
            return err_set(e, ERR_ENGINE, "the engine child is another build");
        c->has_said_hello = true;
        loop_timer_set(&c->next, 0);
        return true;
    }
    if (f->kind != API_FRAME_DESCRIBED && f->kind != API_FRAME_FAULT)
        return true;
    if (!c->current)
        return err_set(e, ERR_ENGINE, "the engine child described what nobody asked for");
    loop_timer_stop(&c->late);
    loop_timer_set(&c->next, 0);
    if (f->kind == API_FRAME_DESCRIBED)
        catalog_on_described(c, &f->model);
    else
        catalog_on_failed(c, &f->fault);
    return true;
}

static void catalog_on_bytes(void *ctx, str bytes)
{
    struct catalog *c = ctx;
    struct err why = {0};
    bool ok = true;
    while (ok && bytes.len) {
        struct api_message_bytes m;
        struct api_frame f;
        enum api_frame_got got = api_frame_reader_next(&c->reader, &bytes, &m, &why);
        if (got == API_FRAME_GOT_NOTHING)
            return;
        ok = got == API_FRAME_GOT_MESSAGE;
        if (!ok)
            break;
        ok = m.is_dropped ? err_set(&why, ERR_MEMORY, "no memory for a frame")
                          : api_frame_read(&f, &m, &why) && catalog_obey(c, &f, &why);
        arena_deinit(&m.arena);
    }
    if (!ok)
        catalog_lose_child(c, &why);
}

static void catalog_on_end(void *ctx, const struct err *broken)
{
    struct catalog *c = ctx;
    struct proc_end end;
    struct err why;
    char text[80] = "no reason known";
    (void)broken;
    if (proc_wait(&c->proc, 50, &end))
        proc_end_text(end, text, sizeof text);
    err_set(&why, ERR_FORMAT, "reading its header ended the engine child: %s", text);
    catalog_lose_child(c, &why);
}

static void catalog_on_late(void *ctx)
{
    struct catalog *c = ctx;
    struct err why;
    err_set(&why, ERR_FORMAT, "reading its header took longer than %d s",
            CATALOG_DESCRIBE_MS / 1000);
    catalog_lose_child(c, &why);
}

static bool catalog_start_child(struct catalog *c, struct err *e)
{
    struct proc_options po = {.argv = c->o.argv, .oom_score_add = CATALOG_OOM_SCORE,
                              .stderr_fd = -1};
    struct pipe_handlers h = {.ctx = c, .on_bytes = catalog_on_bytes, .on_end = catalog_on_end};
    if (!proc_start(&c->proc, &po, e))
        return false;
    if (!pipe_open(&c->pipe, c->o.loop, c->proc.fd, &h, CATALOG_QUEUE_MAX, e)) {
        proc_close(&c->proc);
        return false;
    }
    api_frame_reader_init(&c->reader, API_FRAME_TO_ENDPOINT, API_FRAME_BATCH_MAX);
    c->has_said_hello = false;
    loop_timer_set(&c->late, CATALOG_DESCRIBE_MS);
    return true;
}

static void catalog_describe(struct catalog *c)
{
    struct err why;
    c->current = list_item(list_first(&c->asked), struct catalog_file, link);
    struct api_frame f = {.kind = API_FRAME_DESCRIBE, .path = str_of(c->current->path)};
    buf_clear(&c->out);
    bool ok = api_frame_write(&c->out, &f, &why);
    for (str rest = buf_view(&c->out); ok && rest.len;) {
        size_t n = api_frame_first(rest);
        if (!pipe_send(c->pipe, PIPE_DATA, str_sub(rest, 0, n)))
            ok = err_set(&why, ERR_ENGINE, "the engine child does not take its frames");
        rest = str_from(rest, n);
    }
    if (ok)
        loop_timer_set(&c->late, CATALOG_DESCRIBE_MS);
    else
        catalog_lose_child(c, &why);
}

/* One file at a time; with none left the child ends. */
static void catalog_next(void *ctx)
{
    struct catalog *c = ctx;
    struct err why;
    if (c->current)
        return;
    if (list_is_empty(&c->asked)) {
        catalog_end_child(c);
        return;
    }
    if (c->pipe && c->has_said_hello) {
        catalog_describe(c);
    } else if (!c->pipe && !catalog_start_child(c, &why)) {
        c->has_said_hello = false;
        catalog_lose_child(c, &why);
    }
}

static struct catalog_file *catalog_file_new(struct catalog *c, const struct library_entry *entry)
{
    struct catalog_file *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    list_init(&f->link);
    f->state = CATALOG_FAILED; /* until it is asked for */
    f->path = malloc(entry->path.len + 1);
    if (f->path) {
        memcpy(f->path, entry->path.p, entry->path.len);
        f->path[entry->path.len] = 0;
    }
    if (!f->path || !map_put(&c->files, str_of(f->path), map_of_pointer(f))) {
        free(f->path);
        free(f);
        return NULL;
    }
    return f;
}

static bool catalog_may_retry(const struct catalog_file *f)
{
    bool was_the_file = f->why.code != ERR_ENGINE && f->why.code != ERR_MEMORY;
    return f->state == CATALOG_FAILED && !was_the_file &&
           loop_ms() - f->failed_ms >= CATALOG_RETRY_MS;
}

enum catalog_about catalog_about(struct catalog *c, const struct library_entry *entry,
                                 bool with_texts, struct api_model *out, struct err *why)
{
    struct catalog_file *f = map_to_pointer(map_value(&c->files, entry->path, 0));
    bool is_new = !f;
    if (is_new && !(f = catalog_file_new(c, entry))) {
        err_set(why, ERR_MEMORY, "no memory for a model's description");
        return CATALOG_FAILED;
    }
    bool is_other = f->size != entry->size || f->modified_ns != entry->modified_ns ||
                    catalog_may_retry(f);
    bool lacks = f->state == CATALOG_KNOWN && with_texts && !f->has_texts;
    f->wants_texts = f->wants_texts || with_texts;
    if (f->state != CATALOG_ASKED && (is_new || is_other || lacks)) {
        f->size = entry->size;
        f->modified_ns = entry->modified_ns;
        f->state = CATALOG_ASKED;
        list_push_last(&c->asked, &f->link);
        loop_timer_set(&c->next, 0);
    }
    if (f->state == CATALOG_FAILED)
        *why = f->why;
    if (f->state != CATALOG_KNOWN)
        return f->state;
    *out = f->model;
    out->name = entry->name;
    out->bytes = entry->size;
    out->modified_s = entry->modified_ns / 1000000000;
    f->wants_texts = false;
    return CATALOG_KNOWN;
}

/* --- open, close --------------------------------------------------------------------------- */

bool catalog_open(struct catalog **out, const struct catalog_options *o, struct err *e)
{
    struct catalog *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_MEMORY, "no memory for the catalog of models");
    c->o = *o;
    c->proc = (struct proc){.pidfd = -1, .fd = -1};
    list_init(&c->asked);
    map_init(&c->files, LIBRARY_ENTRIES_MAX);
    buf_init(&c->out, CATALOG_QUEUE_MAX);
    if (!loop_wake_open(&c->wake, o->loop, catalog_on_taken, c, e) ||
        !loop_timer_open(&c->next, o->loop, catalog_next, c, e) ||
        !loop_timer_open(&c->late, o->loop, catalog_on_late, c, e)) {
        catalog_close(c);
        return false;
    }
    *out = c;
    return true;
}

void catalog_close(struct catalog *c)
{
    if (!c)
        return;
    if (c->is_taking)
        thread_join(c->thread);
    loop_wake_close(&c->wake);
    catalog_end_child(c);
    loop_timer_close(&c->next);
    loop_timer_close(&c->late);
    for (uint32_t i = 0; i < c->files.count; i++)
        catalog_file_free(c, map_to_pointer(c->files.entries[i].value));
    map_deinit(&c->files);
    library_close(c->picture);
    library_close(c->taken);
    buf_deinit(&c->out);
    free(c);
}
