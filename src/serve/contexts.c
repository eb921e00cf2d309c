#include "serve/contexts.h"

#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "base/log.h"
#include "serve/contexts_disk.h"
#include "serve/contexts_state.h"
#include "serve/exchange.h"
#include "serve/models_leg.h"

#define CONTEXTS_TICK_MS 500

static void contexts_on_tick(void *ctx);
static void contexts_load(struct contexts *s);

bool contexts_open(struct contexts **out, const struct contexts_options *o, struct err *e)
{
    struct contexts *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "contexts: no memory");
    s->o = *o;
    list_init(&s->all);
    pins_init(&s->pins, o->models);
    s->has_tick = o->loop && loop_timer_open(&s->tick, o->loop, contexts_on_tick, s, e);
    if (o->loop && !s->has_tick) {
        free(s);
        return false;
    }
    struct err why;
    if (o->dir && contexts_disk_open(&s->disk, o->loop, o->dir, &why))
        contexts_load(s);
    else if (o->dir)
        log_warn("contexts do not survive a restart: %s", why.text);
    *out = s;
    return true;
}

bool contexts_none(str id, struct api_error *e)
{
    id = str_sub(id, 0, 80);
    id.len = str_utf8_valid(id);
    return api_error_set(e, ERR_NOT_FOUND, "not_found", STR("id"), "no context %.*s", STR_ARG(id));
}

/* Told once: while a prefill of the pin is under way it may come after this, and is told of again
 * when that has ended. */
static void contexts_unpin(struct context *c)
{
    if (!pins_is_on(&c->pin) && !c->was_pinned)
        return;
    pins_off(&c->pin);
    c->was_pinned = c->holds > 0;
}

static void contexts_free(struct contexts *s, struct context *c)
{
    s->count--;
    s->size -= c->size;
    list_remove(&c->link);
    contexts_unpin(c);
    arena_deinit(&c->arena);
    arena_deinit(&c->names);
    free(c);
}

void contexts_close(struct contexts *s)
{
    struct list *first;
    if (!s)
        return;
    contexts_disk_close(s->disk); /* first: what it writes are views */
    s->disk = NULL;
    while ((first = list_first(&s->all))) {
        struct context *c = list_item(first, struct context, link);
        must(c->holds == 0 && c->readers == 0 && c->writes == 0);
        contexts_free(s, c);
    }
    must(s->count == 0);
    if (s->has_tick)
        loop_timer_close(&s->tick);
    free(s);
}

/* What nobody needs any more: not being saved, not saved or not to be found, not read, not being
 * written. */
static void contexts_sweep_one(struct contexts *s, struct context *c)
{
    bool is_found = c->is_saved && !list_is_empty(&c->link);
    if (c->holds == 0 && c->readers == 0 && c->writes == 0 && !is_found)
        contexts_free(s, c);
}

/* Its pages are the readers' now, and the cache's. */
static void contexts_hide(struct contexts *s, struct context *c)
{
    contexts_unpin(c);
    list_remove(&c->link);
    if (s->disk)
        contexts_disk_remove(s->disk, c->scope, c->id);
    contexts_sweep_one(s, c);
}

/* Late is as good as in time: every call from outside comes by here first. */
static void contexts_sweep(struct contexts *s, int64_t now_ms)
{
    list_each (at, &s->all) {
        struct context *c = list_item(at, struct context, link);
        if (c->is_saved && c->holds == 0 && now_ms >= c->expires_ms)
            contexts_hide(s, c);
    }
}

static void contexts_on_tick(void *ctx)
{
    struct contexts *s = ctx;
    contexts_sweep(s, loop_ms());
    pins_turn(&s->pins, loop_ms());
    if (!pins_is_idle(&s->pins))
        loop_timer_set(&s->tick, CONTEXTS_TICK_MS);
}

static struct context *contexts_find(struct contexts *s, str scope, str id, bool any_scope)
{
    list_each (at, &s->all) {
        struct context *c = list_item(at, struct context, link);
        if (str_eq(c->id, id) && (any_scope || str_eq(c->scope, scope)))
            return c;
    }
    return NULL;
}

bool contexts_is_public(const struct contexts *s, str id)
{
    bool found = false;
    for (uint32_t i = 0; i < s->o.public_ids_count && !found; i++)
        found = str_eq(s->o.public_ids[i], id);
    return found;
}

/* Nobody else can have saved one of a public id. */
static struct context *contexts_find_any(struct contexts *s, str scope, str id)
{
    struct context *c = contexts_find(s, scope, id, false);
    return !c && contexts_is_public(s, id) ? contexts_find(s, STR(""), id, false) : c;
}

/* --- one is saved -------------------------------------------------------------------------- */

static bool contexts_check_room(const struct contexts *s, const struct contexts_new *n,
                                struct api_error *e)
{
    uint32_t count = 0;
    size_t size = 0;
    list_each (at, &s->all) {
        const struct context *c = list_item(at, struct context, link);
        if (str_eq(exchange_scope_root(c->scope), exchange_scope_root(n->scope))) {
            count++; /* a salt makes no room */
            size += c->size;
        }
    }
    if (count >= CONTEXTS_SCOPE_MAX || s->count >= CONTEXTS_MAX)
        return api_error_set(e, ERR_LIMIT, "insufficient_storage", STR("id"),
                             "contexts: %u are saved here and %u in all, at most %u and %u",
                             count, s->count, CONTEXTS_SCOPE_MAX, CONTEXTS_MAX);
    if (n->content.len > CONTEXTS_SCOPE_SIZE_MAX - base_min(size, CONTEXTS_SCOPE_SIZE_MAX) ||
        n->content.len > CONTEXTS_SIZE_MAX - base_min(s->size, CONTEXTS_SIZE_MAX))
        return api_error_set(e, ERR_LIMIT, "insufficient_storage", STR("messages"),
                             "contexts: %zu bytes are saved here and %zu in all, %zu more would "
                             "pass %zu or %zu", size, s->size, n->content.len,
                             CONTEXTS_SCOPE_SIZE_MAX, CONTEXTS_SIZE_MAX);
    return true;
}

static void contexts_link(struct contexts *s, struct context *c)
{
    c->number = ++s->last;
    list_push_last(&s->all, &c->link);
}

static struct context *contexts_add(struct contexts *s, const struct contexts_new *n)
{
    struct context *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    size_t size = n->scope.len + n->id.len + n->model.len;
    arena_init(&c->names, size * 2 + 4096);
    arena_init(&c->arena, 0);
    c->scope = arena_copy(&c->names, n->scope);
    c->id = arena_copy(&c->names, n->id);
    c->model = arena_copy(&c->names, n->model);
    c->size = n->content.len;
    c->sum = digest_xxh3_128(n->content, 0);
    c->place = API_PLACE_NOWHERE;
    list_init(&c->link);
    pins_init_pin(&s->pins, &c->pin, c->model);
    if (c->names.is_full) {
        arena_deinit(&c->names);
        free(c);
        return NULL;
    }
    contexts_link(s, c);
    s->count++;
    s->size += c->size;
    return c;
}

/* Before one is saved its bytes are another request's: their sum stands for them. */
static bool contexts_is_same(const struct context *c, const struct contexts_new *n)
{
    struct digest_128 sum;
    if (c->size != n->content.len || !str_eq(c->model, n->model))
        return false;
    if (c->is_saved)
        return str_eq(c->content, n->content);
    sum = digest_xxh3_128(n->content, 0);
    return sum.low == c->sum.low && sum.high == c->sum.high;
}

bool contexts_begin(struct contexts *s, const struct contexts_new *n, int64_t now_ms,
                    struct context **out, bool *is_known, struct api_error *e)
{
    contexts_sweep(s, now_ms);
    struct context *c = contexts_find(s, n->scope, n->id, false);
    if (c && !contexts_is_same(c, n))
        return api_error_set(e, ERR_REQUEST, "conflict", STR("id"),
                             "id: %.*s is a context with other content", STR_ARG(n->id));
    *is_known = c && c->is_saved;
    if (!c && !contexts_check_room(s, n, e))
        return false;
    if (!c && !(c = contexts_add(s, n)))
        return api_error_set(e, ERR_LIMIT, "insufficient_storage", STR("messages"),
                             "contexts: no memory for %zu bytes", n->content.len);
    c->holds++;
    *out = c;
    return true;
}

/* The oldest one that a request of this key narrowed by a salt. */
static struct context *contexts_find_salted(struct contexts *s, str key_scope, str id)
{
    list_each (at, &s->all) {
        struct context *c = list_item(at, struct context, link);
        if (str_eq(c->id, id) && str_eq(exchange_scope_root(c->scope), key_scope))
            return c;
    }
    return NULL;
}

struct context *contexts_seen(struct contexts *s, const struct contexts_asker *who, str id,
                              bool is_change, int64_t now_ms)
{
    contexts_sweep(s, now_ms);
    struct context *c = is_change ? contexts_find(s, who->scope, id, false)
                                  : contexts_find_any(s, who->scope, id);
    if (!c)
        c = contexts_find_salted(s, who->scope, id);
    if (!c && who->is_admin)
        c = contexts_find(s, who->scope, id, true);
    return c && c->is_saved ? c : NULL;
}

bool contexts_recall(struct contexts *s, const struct contexts_asker *who, str id, int64_t now_ms,
                     struct api_request *rq, struct context **out)
{
    struct context *c = contexts_seen(s, who, id, true, now_ms);
    struct api_request kept;
    if (!c)
        return false;
    kept = c->rq;
    kept.id = rq->id;
    kept.agent = rq->agent;
    kept.owner = rq->owner;
    kept.time_s = rq->time_s;
    kept.deadline = rq->deadline;
    *rq = kept;
    c->holds++;
    *out = c;
    return true;
}

str contexts_pin_name(struct context *c)
{
    c->was_pinned = true;
    return str_of(c->pin.name);
}

static void contexts_row_of(const struct context *c, struct dialect_contexts_row *out)
{
    *out = (struct dialect_contexts_row){
        .id = c->id, .model = c->model, .tokens = c->tokens, .cached_tokens = c->cached_tokens,
        .readers = c->readers, .is_pinned = pins_is_on(&c->pin), .bytes = c->prefix.bytes,
        .place = pins_is_there(&c->pin) ? API_PLACE_DEVICE : c->place,
        .created_s = c->created_s, .used_s = c->used_s, .expires_s = c->expires_s};
}

void contexts_row(const struct context *c, const struct contexts_new *n,
                  struct dialect_contexts_row *out)
{
    contexts_row_of(c, out);
    if (n->tokens) { /* a moment ago */
        out->tokens = n->tokens;
        out->cached_tokens = n->cached_tokens;
        out->bytes = n->prefix.bytes;
        out->place = n->prefix.pages ? API_PLACE_DEVICE : API_PLACE_NOWHERE;
    }
    out->created_s = c->is_saved ? c->created_s : n->unix_ms / 1000;
    out->used_s = n->unix_ms / 1000;
    if (n->ttl_ms)
        out->expires_s = (n->unix_ms + n->ttl_ms) / 1000;
    if (n->has_pin)
        out->is_pinned = n->is_pinned;
    if (n->has_pin && n->is_pinned)
        out->place = API_PLACE_DEVICE;
}

/* Its views are in the context's memory; what belonged to the connection is not kept. */
static void contexts_keep(struct context *c, const struct api_request *rq)
{
    c->rq = *rq;
    c->rq.kind = API_KIND_PREFILL;
    c->rq.cache = API_CACHE_KEEP;
    c->rq.scope = c->scope;
    c->rq.model = c->model;
    c->rq.context = c->rq.session = c->rq.leg = c->rq.body = STR("");
    c->rq.headers = NULL;
    c->rq.headers_count = 0;
    c->rq.client_key = NULL;
    c->rq.notes = NULL;
    c->rq.notes_count = 0;
}

/* A deleted one is not pinned again by a prefill that began before. */
static void contexts_set_pin(struct contexts *s, struct context *c, const struct contexts_new *n)
{
    bool is_found = !list_is_empty(&c->link);
    if (!n->has_pin)
        return;
    c->was_pinned = n->is_pinned;
    if (n->is_pinned && is_found) {
        pins_put(&c->pin, &c->rq);
        if (s->has_tick)
            loop_timer_set(&s->tick, CONTEXTS_TICK_MS);
    } else {
        pins_off(&c->pin);
    }
}

/* --- over a restart ------------------------------------------------------------------------ */

struct contexts_write {
    struct contexts *s;
    struct context *c;
};

static void contexts_on_written(void *ctx)
{
    struct contexts_write w = *(struct contexts_write *)ctx;
    free(ctx);
    must(w.c->writes > 0);
    w.c->writes--;
    contexts_sweep_one(w.s, w.c);
}

/* Its texts are lent to the thread that writes, which may take its time for them. */
static void contexts_store(struct contexts *s, struct context *c)
{
    struct contexts_write *w;
    const struct context_file f = {
        .scope = c->scope, .id = c->id, .model = c->model, .content = c->content,
        .tokens = c->tokens, .cached_tokens = c->cached_tokens,
        .created_s = c->created_s, .used_s = c->used_s, .expires_s = c->expires_s,
        .is_pinned = pins_is_on(&c->pin), .prefix = c->prefix};
    if (!s->disk || list_is_empty(&c->link))
        return;
    if (!(w = malloc(sizeof *w))) {
        log_warn("contexts: no memory to write the file of one");
        return;
    }
    *w = (struct contexts_write){s, c};
    c->writes++;
    contexts_disk_put(s->disk, &f, contexts_on_written, w);
}

/* Read as if it had just been sent. False: ERR_LIMIT, there was no memory to tell; or what was a
 * context is none for this program. */
static bool contexts_read_content(struct contexts *s, const struct context_file *f,
                                  struct arena *a, struct api_request *rq, str *content,
                                  struct api_error *e)
{
    struct dialect_contexts_state *st = calloc(1, dialect_contexts.state_size);
    const struct dialect_in in = {.path = &dialect_contexts.paths[0],
                                  .body = arena_copy(a, f->content),
                                  .request_id = STR("req_restored"), .limits = s->o.limits};
    if (!st || !in.body.p) {
        free(st);
        return api_error_set(e, ERR_LIMIT, NULL, STR(""), "no memory for its %zu bytes",
                             f->content.len);
    }
    st->s.dialect = &dialect_contexts;
    bool ok = dialect_contexts.read_request(rq, &st->s, &in, a, e);
    if (ok && s->o.models)
        models_leg_fill(s->o.models, rq, a);
    *content = st->content;
    dialect_state_deinit(&st->s);
    free(st);
    return ok;
}

/* One of scope "" that cache.public does not name is nobody's: it waits on the disk, until it is
 * named again or its time is over. */
static bool contexts_on_file(void *ctx, const struct context_file *f)
{
    struct contexts *s = ctx;
    struct api_request rq;
    struct api_error e = {0};
    struct arena a;
    int64_t now_ms = loop_ms();
    int64_t expires_ms = now_ms + f->expires_s * 1000 - chrono_unix_ms(&chrono_real);
    struct contexts_new n = {.scope = f->scope, .id = f->id, .model = f->model,
                             .tokens = f->tokens, .cached_tokens = f->cached_tokens,
                             .has_pin = true, .is_pinned = f->is_pinned};
    if (expires_ms <= now_ms || !dialect_contexts_is_id(f->id))
        return false;
    if (f->scope.len == 0 && !contexts_is_public(s, f->id)) {
        log_warn("contexts: %.*s stays on the disk: cache.public does not name it",
                 STR_ARG(f->id));
        return true;
    }
    arena_init(&a, 8 * f->content.len + ((size_t)1 << 20));
    struct context *c = NULL;
    bool is_read = contexts_read_content(s, f, &a, &rq, &n.content, &e);
    bool has_room = is_read && contexts_check_room(s, &n, &e);
    if (has_room && !(c = contexts_add(s, &n)))
        err_set(&e.err, ERR_LIMIT, "no memory for its names");
    if (!c) { /* a later start may have room */
        bool stays = is_read || e.err.code == ERR_LIMIT;
        log_warn("contexts: %.*s %s: %s", STR_ARG(f->id),
                 stays ? "stays on the disk" : "is forgotten", e.err.text);
        arena_deinit(&a);
        return stays;
    }
    c->arena = a;
    c->content = n.content;
    c->prefix = f->prefix;
    contexts_keep(c, &rq);
    c->is_saved = true;
    c->tokens = f->tokens;
    c->cached_tokens = f->cached_tokens;
    c->created_s = f->created_s;
    c->used_s = f->used_s;
    c->expires_s = f->expires_s;
    c->expires_ms = expires_ms;
    if (f->is_pinned)
        contexts_set_pin(s, c, &n);
    return true;
}

static void contexts_load(struct contexts *s)
{
    contexts_disk_load(s->disk, CONTEXTS_MAX, contexts_on_file, s);
    if (s->count)
        log_info("contexts: %u are there again", s->count);
}

void contexts_end(struct contexts *s, struct context *c, const struct contexts_new *n,
                  const struct api_request *rq, struct arena *a, int64_t now_ms)
{
    if (!c->is_saved) {
        c->arena = *a;
        c->content = n->content;
        arena_init(a, 0);
        contexts_keep(c, rq);
        c->created_s = n->unix_ms / 1000;
        c->is_saved = true;
    }
    if (list_is_empty(&c->link) && !contexts_find(s, c->scope, c->id, false))
        contexts_link(s, c); /* deleted meanwhile: it is asked for again */
    if (n->tokens) { /* else nothing was computed */
        c->prefix = n->prefix;
        c->tokens = n->tokens;
        c->cached_tokens = n->cached_tokens;
        c->used_s = n->unix_ms / 1000;
    }
    if (n->ttl_ms) {
        c->expires_ms = now_ms + n->ttl_ms;
        c->expires_s = (n->unix_ms + n->ttl_ms) / 1000;
    }
    contexts_set_pin(s, c, n);
    contexts_store(s, c);
    contexts_drop(s, c);
}

void contexts_drop(struct contexts *s, struct context *c)
{
    must(c->holds > 0);
    c->holds--;
    if (c->holds == 0 && c->was_pinned && !pins_is_on(&c->pin))
        contexts_unpin(c); /* a prefill of its pin may have been given up at its very end */
    contexts_sweep_one(s, c);
}

/* --- one is read --------------------------------------------------------------------------- */

/* "prompt" of the context and each of the request's are one text. */
static bool contexts_put_prompt(const struct context *c, struct api_request *rq, struct arena *a,
                                struct api_error *e)
{
    str prompt = c->rq.inputs[0].text;
    struct api_input *all = ARENA_ARRAY(a, struct api_input, rq->inputs_count);
    if (rq->inputs_count == 0 || rq->messages_count)
        return api_error_set(e, ERR_REQUEST, "", STR("shoal.context"),
                             "shoal.context: a context of plain text goes before a raw prompt, "
                             "this request has none");
    for (uint32_t i = 0; all && i < rq->inputs_count; i++) {
        if (rq->inputs[i].ids_count)
            return api_error_set(e, ERR_REQUEST, "", STR("shoal.context"),
                                 "shoal.context: goes before a prompt of text, not of ids");
        all[i] = (struct api_input){.text = arena_printf(a, "%.*s%.*s", STR_ARG(prompt),
                                                         STR_ARG(rq->inputs[i].text))};
    }
    if (a->is_full)
        return api_error_set(e, ERR_LIMIT, "", STR("shoal.context"),
                             "shoal.context: %u prompts behind %zu bytes are more than a request "
                             "holds", rq->inputs_count, prompt.len);
    rq->inputs = all;
    rq->body = rq->context = STR("");
    return true;
}

static bool contexts_put_before(const struct context *c, struct api_request *rq, struct arena *a,
                                struct api_error *e)
{
    const struct api_request *t = &c->rq;
    if (t->inputs_count)
        return contexts_put_prompt(c, rq, a, e);
    if (rq->messages_count == 0)
        return api_error_set(e, ERR_REQUEST, "", STR("shoal.context"),
                             "shoal.context: goes before messages, this request has none");
    uint64_t count = (uint64_t)t->messages_count + rq->messages_count;
    struct api_message *all = count <= API_MESSAGES_MAX
                                  ? ARENA_ARRAY(a, struct api_message, (size_t)count) : NULL;
    if (!all)
        return api_error_set(e, ERR_LIMIT, "", STR("shoal.context"),
                             "shoal.context: %u messages before %u are more than a request holds",
                             t->messages_count, rq->messages_count);
    memcpy(all, t->messages, t->messages_count * sizeof *all);
    memcpy(all + t->messages_count, rq->messages, rq->messages_count * sizeof *all);
    rq->messages = all;
    rq->messages_count = (uint32_t)count;
    if (rq->tools_count == 0) {
        rq->tools = t->tools;
        rq->tools_count = t->tools_count;
    }
    rq->body = STR(""); /* what was received is not the whole prompt any more */
    rq->context = STR("");
    return true;
}

bool contexts_fork(struct contexts *s, const struct contexts_fork *f, struct context **out,
                   struct api_error *e)
{
    struct api_request *rq = f->rq;
    contexts_sweep(s, f->now_ms);
    struct context *c = contexts_find_any(s, rq->scope, rq->context);
    str id = str_sub(rq->context, 0, 80);
    if (!c || !c->is_saved)
        return api_error_set(e, ERR_NOT_FOUND, "not_found", STR("shoal.context"),
                             "shoal.context: no context %.*s", STR_ARG(id));
    if (!str_eq_nocase(c->model, f->model))
        return api_error_set(e, ERR_REQUEST, "conflict", STR("shoal.context"),
                             "shoal.context: %.*s is a context of %.*s, not of %.*s", STR_ARG(id),
                             STR_ARG(str_sub(c->model, 0, 60)), STR_ARG(str_sub(f->model, 0, 60)));
    if (!contexts_put_before(c, rq, f->arena, e))
        return false;
    c->readers++;
    c->used_s = chrono_unix_ms(&chrono_real) / 1000;
    *out = c;
    return true;
}

void contexts_leave(struct contexts *s, struct context *c)
{
    must(c->readers > 0);
    c->readers--;
    contexts_sweep_one(s, c);
}

/* --- for paths ----------------------------------------------------------------------------- */

bool contexts_is_listed(const struct context *c, const struct contexts_asker *who)
{
    bool is_seen = who->is_admin || c->scope.len == 0 ||
                   str_eq(exchange_scope_root(c->scope), who->scope);
    return c->is_saved && is_seen;
}

void contexts_write(struct contexts *s, const struct contexts_asker *who, int64_t now_ms,
                    struct buf *out)
{
    struct dialect_contexts_row row;
    struct json_writer w = json_writer(out);
    uint64_t pinned_tokens = 0;
    contexts_sweep(s, now_ms);
    json_open_object(&w);
    json_key_z(&w, "object");
    json_put_text_z(&w, "list");
    json_key_z(&w, "data");
    json_open_array(&w);
    list_each (at, &s->all) {
        const struct context *c = list_item(at, struct context, link);
        if (!contexts_is_listed(c, who))
            continue;
        contexts_row_of(c, &row);
        dialect_contexts_put(&w, &row);
        pinned_tokens += row.is_pinned ? row.tokens : 0;
    }
    json_close_array(&w);
    json_key_z(&w, "pinned_tokens");
    json_put_u64(&w, pinned_tokens);
    json_key_z(&w, "pin_limit_tokens");
    json_put_u64(&w, pins_limit_tokens(&s->pins));
    json_close_object(&w);
}

bool contexts_write_one(struct contexts *s, const struct contexts_asker *who, str id,
                        int64_t now_ms, struct buf *out)
{
    struct dialect_contexts_row row;
    const struct context *c = contexts_seen(s, who, id, false, now_ms);
    if (!c)
        return false;
    struct json_writer w = json_writer(out);
    contexts_row_of(c, &row);
    dialect_contexts_put(&w, &row);
    return true;
}

bool contexts_delete(struct contexts *s, const struct contexts_asker *who, str id, int64_t now_ms)
{
    struct context *c = contexts_seen(s, who, id, true, now_ms);
    if (c)
        contexts_hide(s, c);
    return c != NULL;
}
