#include "serve/contexts.h"

#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "base/list.h"

struct context {
    struct list link;   /* not linked: deleted */
    struct arena names; /* scope, id, model, content */
    struct arena arena; /* text's, once saved */
    struct contexts_text text;
    str scope, id, model, content;
    uint32_t holds, readers; /* prefills for it; requests that it stands before */
    uint32_t tokens, cached_tokens;
    int64_t ttl_ms, created_ms, used_ms, expires_ms;
    bool is_saved;
};

struct contexts {
    struct list all; /* by age */
    uint32_t count;
    size_t size;
};

bool contexts_open(struct contexts **out, struct err *e)
{
    struct contexts *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "contexts: no memory");
    list_init(&s->all);
    *out = s;
    return true;
}

static void contexts_free(struct contexts *s, struct context *c)
{
    s->count--;
    s->size -= c->content.len;
    list_remove(&c->link);
    arena_deinit(&c->arena);
    arena_deinit(&c->names);
    free(c);
}

void contexts_close(struct contexts *s)
{
    struct list *first;
    if (!s)
        return;
    while ((first = list_first(&s->all))) {
        struct context *c = list_item(first, struct context, link);
        must(c->holds == 0 && c->readers == 0);
        contexts_free(s, c);
    }
    must(s->count == 0);
    free(s);
}

/* What nobody needs any more: not being saved, not saved or not to be found, not read. */
static void contexts_sweep_one(struct contexts *s, struct context *c)
{
    bool is_found = c->is_saved && !list_is_empty(&c->link);
    if (c->holds == 0 && c->readers == 0 && !is_found)
        contexts_free(s, c);
}

static void contexts_hide(struct contexts *s, struct context *c)
{
    list_remove(&c->link);
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

static struct context *contexts_find(struct contexts *s, str scope, str id, bool any_scope)
{
    list_each (at, &s->all) {
        struct context *c = list_item(at, struct context, link);
        if (str_eq(c->id, id) && (any_scope || str_eq(c->scope, scope)))
            return c;
    }
    return NULL;
}

/* --- one is saved -------------------------------------------------------------------------- */

static bool contexts_check_room(const struct contexts *s, const struct contexts_new *n,
                                struct api_error *e)
{
    uint32_t count = 0;
    size_t size = 0;
    list_each (at, &s->all) {
        const struct context *c = list_item(at, struct context, link);
        if (str_eq(c->scope, n->scope)) {
            count++;
            size += c->content.len;
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

static struct context *contexts_add(struct contexts *s, const struct contexts_new *n)
{
    struct context *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    size_t size = n->scope.len + n->id.len + n->model.len + n->content.len;
    arena_init(&c->names, size * 2 + 4096);
    arena_init(&c->arena, 0);
    c->scope = arena_copy(&c->names, n->scope);
    c->id = arena_copy(&c->names, n->id);
    c->model = arena_copy(&c->names, n->model);
    c->content = arena_copy(&c->names, n->content);
    list_init(&c->link);
    if (c->names.is_full) {
        arena_deinit(&c->names);
        free(c);
        return NULL;
    }
    list_push_last(&s->all, &c->link);
    s->count++;
    s->size += c->content.len;
    return c;
}

bool contexts_begin(struct contexts *s, const struct contexts_new *n, int64_t now_ms,
                    struct context **out, bool *is_known, struct api_error *e)
{
    contexts_sweep(s, now_ms);
    struct context *c = contexts_find(s, n->scope, n->id, false);
    if (c && (!str_eq(c->content, n->content) || !str_eq(c->model, n->model)))
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

static int64_t contexts_unix_s(int64_t at_ms, int64_t now_ms)
{
    return (chrono_unix_ms(&chrono_real) + at_ms - now_ms) / 1000;
}

static void contexts_row_of(const struct context *c, int64_t now_ms,
                            struct dialect_contexts_row *out)
{
    *out = (struct dialect_contexts_row){
        .id = c->id, .model = c->model, .tokens = c->tokens, .cached_tokens = c->cached_tokens,
        .readers = c->readers, .created_s = contexts_unix_s(c->created_ms, now_ms),
        .used_s = contexts_unix_s(c->used_ms, now_ms),
        .expires_s = contexts_unix_s(c->expires_ms, now_ms)};
}

void contexts_row(const struct context *c, const struct contexts_new *n, int64_t now_ms,
                  struct dialect_contexts_row *out)
{
    contexts_row_of(c, now_ms, out);
    out->tokens = n->tokens;
    out->cached_tokens = n->cached_tokens;
    out->created_s = contexts_unix_s(c->is_saved ? c->created_ms : now_ms, now_ms);
    out->used_s = contexts_unix_s(now_ms, now_ms);
    out->expires_s = contexts_unix_s(now_ms + n->ttl_ms, now_ms);
}

void contexts_end(struct contexts *s, struct context *c, const struct contexts_new *n,
                  const struct contexts_text *text, struct arena *a, int64_t now_ms)
{
    if (!c->is_saved) {
        c->arena = *a;
        arena_init(a, 0);
        c->text = *text;
        c->created_ms = now_ms;
        c->is_saved = true;
    }
    if (list_is_empty(&c->link) && !contexts_find(s, c->scope, c->id, false))
        list_push_last(&s->all, &c->link); /* deleted meanwhile: it is asked for again */
    c->tokens = n->tokens;
    c->cached_tokens = n->cached_tokens;
    c->used_ms = now_ms;
    c->expires_ms = now_ms + n->ttl_ms;
    contexts_drop(s, c);
}

void contexts_drop(struct contexts *s, struct context *c)
{
    must(c->holds > 0);
    c->holds--;
    contexts_sweep_one(s, c);
}

/* --- one is read --------------------------------------------------------------------------- */

static bool contexts_put_before(const struct context *c, struct api_request *rq, struct arena *a,
                                struct api_error *e)
{
    const struct contexts_text *t = &c->text;
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
    struct context *c = contexts_find(s, rq->scope, rq->context, false);
    str id = str_sub(rq->context, 0, 80);
    if (!c || !c->is_saved)
        return api_error_set(e, ERR_NOT_FOUND, "not_found", STR("shoal.context"),
                             "shoal.context: no context %.*s", STR_ARG(id));
    if (!str_eq_nocase(c->model, f->model))
        return api_error_set(e, ERR_REQUEST, "conflict", STR("shoal.context"),
                             "shoal.context: %.*s is a context of %.*s, not of %.*s", STR_ARG(id),
                             STR_ARG(str_sub(c->model, 0, 60)), STR_ARG(str_sub(f->model, 0, 60)));
    if (rq->messages_count == 0)
        return api_error_set(e, ERR_REQUEST, "", STR("shoal.context"),
                             "shoal.context: goes before messages, this request has none");
    if (!contexts_put_before(c, rq, f->arena, e))
        return false;
    c->readers++;
    c->used_ms = f->now_ms;
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

static struct context *contexts_seen(struct contexts *s, const struct contexts_asker *who, str id,
                                     int64_t now_ms)
{
    contexts_sweep(s, now_ms);
    struct context *c = contexts_find(s, who->scope, id, false);
    if (!c && who->is_admin)
        c = contexts_find(s, who->scope, id, true);
    return c && c->is_saved ? c : NULL;
}

void contexts_write(struct contexts *s, const struct contexts_asker *who, int64_t now_ms,
                    struct buf *out)
{
    struct dialect_contexts_row row;
    struct json_writer w = json_writer(out);
    contexts_sweep(s, now_ms);
    json_open_object(&w);
    json_key_z(&w, "object");
    json_put_text_z(&w, "list");
    json_key_z(&w, "data");
    json_open_array(&w);
    list_each (at, &s->all) {
        const struct context *c = list_item(at, struct context, link);
        if (!c->is_saved || (!who->is_admin && !str_eq(c->scope, who->scope)))
            continue;
        contexts_row_of(c, now_ms, &row);
        dialect_contexts_put(&w, &row);
    }
    json_close_array(&w);
    json_close_object(&w);
}

bool contexts_write_one(struct contexts *s, const struct contexts_asker *who, str id,
                        int64_t now_ms, struct buf *out)
{
    struct dialect_contexts_row row;
    const struct context *c = contexts_seen(s, who, id, now_ms);
    if (!c)
        return false;
    struct json_writer w = json_writer(out);
    contexts_row_of(c, now_ms, &row);
    dialect_contexts_put(&w, &row);
    return true;
}

bool contexts_set_ttl(struct contexts *s, const struct contexts_asker *who, str id, int64_t ttl_ms,
                      int64_t now_ms)
{
    struct context *c = contexts_seen(s, who, id, now_ms);
    if (c)
        c->expires_ms = now_ms + ttl_ms;
    return c != NULL;
}

bool contexts_delete(struct contexts *s, const struct contexts_asker *who, str id, int64_t now_ms)
{
    struct context *c = contexts_seen(s, who, id, now_ms);
    if (c)
        contexts_hide(s, c);
    return c != NULL;
}
