#include "serve/sessions.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/chrono.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "serve/exchange.h"

struct session {
    struct list link; /* by last use, oldest first */
    uint64_t key;
    struct arena texts;
    str scope, id, agent, model, leg;
    uint32_t tokens, turns;
    int64_t used_ms;
};

struct sessions {
    struct list all;
    struct map by_key;
    int64_t ttl_ms;
};

bool sessions_open(struct sessions **out, int64_t ttl_ms, struct err *e)
{
    struct sessions *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "sessions: no memory");
    list_init(&s->all);
    map_init(&s->by_key, SESSIONS_MAX);
    s->ttl_ms = ttl_ms;
    *out = s;
    return true;
}

static void sessions_free(struct sessions *s, struct session *one)
{
    map_delete_number(&s->by_key, one->key);
    list_remove(&one->link);
    arena_deinit(&one->texts);
    free(one);
}

void sessions_close(struct sessions *s)
{
    struct list *first;
    if (!s)
        return;
    while ((first = list_first(&s->all)))
        sessions_free(s, list_item(first, struct session, link));
    map_deinit(&s->by_key);
    free(s);
}

void sessions_set_ttl(struct sessions *s, int64_t ttl_ms) { s->ttl_ms = ttl_ms; }

/* Late is as good as in time: every call comes by here first. */
static void sessions_sweep(struct sessions *s, int64_t now_ms)
{
    struct list *first;
    while ((first = list_first(&s->all))) {
        struct session *one = list_item(first, struct session, link);
        if (now_ms < one->used_ms + s->ttl_ms)
            return;
        sessions_free(s, one);
    }
}

static uint64_t sessions_key(str scope, str id)
{
    return digest_xxh3(id, digest_xxh3(scope, 1));
}

static struct session *sessions_find(const struct sessions *s, str scope, str id)
{
    struct session *one = map_to_pointer(map_value_number(&s->by_key, sessions_key(scope, id), 0));
    return one && str_eq(one->scope, scope) && str_eq(one->id, id) ? one : NULL;
}

static struct session *sessions_seen(struct sessions *s, const struct sessions_asker *who, str id,
                                     int64_t now_ms)
{
    sessions_sweep(s, now_ms);
    struct session *own = sessions_find(s, who->scope, id), *other = NULL;
    if (own)
        return own;
    list_each (at, &s->all) {
        struct session *one = list_item(at, struct session, link);
        if (str_eq(one->id, id) && str_eq(exchange_scope_root(one->scope), who->scope))
            return one;
        if (str_eq(one->id, id) && who->is_admin && !other)
            other = one;
    }
    return other;
}

/* --- turns ---------------------------------------------------------------------------------- */

static bool sessions_put(struct sessions *s, const struct sessions_turn *t, int64_t now_ms,
                         uint32_t turns)
{
    struct session *one = calloc(1, sizeof *one);
    if (!one)
        return false;
    arena_init(&one->texts, t->scope.len + t->id.len + t->agent.len + t->model.len + t->leg.len +
                            4096);
    one->key = sessions_key(t->scope, t->id);
    one->scope = arena_copy(&one->texts, t->scope);
    one->id = arena_copy(&one->texts, t->id);
    one->agent = arena_copy(&one->texts, t->agent);
    one->model = arena_copy(&one->texts, t->model);
    one->leg = arena_copy(&one->texts, t->leg);
    one->tokens = t->tokens;
    one->turns = turns;
    one->used_ms = now_ms;
    if (one->texts.is_full || !map_put_number(&s->by_key, one->key, map_of_pointer(one))) {
        arena_deinit(&one->texts);
        free(one);
        return false;
    }
    list_push_last(&s->all, &one->link);
    return true;
}

/* Without memory a session is only not listed. A key's second owner replaces the first. */
void sessions_add(struct sessions *s, const struct sessions_turn *t, int64_t now_ms)
{
    sessions_sweep(s, now_ms);
    uint64_t key = sessions_key(t->scope, t->id);
    struct session *old = map_to_pointer(map_value_number(&s->by_key, key, 0));
    uint32_t turns = old && sessions_find(s, t->scope, t->id) ? old->turns + 1 : 1;
    if (!old && s->by_key.count == SESSIONS_MAX)
        old = list_item(list_first(&s->all), struct session, link);
    if (old)
        sessions_free(s, old);
    if (!sessions_put(s, t, now_ms, turns))
        log_warn("sessions: no memory for one more");
}

/* --- for paths ------------------------------------------------------------------------------ */

static void sessions_put_one(const struct sessions *s, const struct session *one, int64_t now_ms,
                             struct json_writer *w)
{
    int64_t used_ms = chrono_unix_ms(&chrono_real) + one->used_ms - now_ms;
    json_open_object(w);
    json_put_key_text(w, "object", STR("session"));
    json_put_key_text(w, "id", one->id);
    json_put_key_text(w, "agent", one->agent);
    json_put_key_text(w, "model", one->model);
    json_put_key_i64(w, "tokens", one->tokens);
    json_put_key_text(w, "location", STR("")); /* its pages are cached as any others are */
    json_put_key_i64(w, "turns", one->turns);
    json_put_key_text(w, "leg", one->leg);
    json_put_key_i64(w, "last_used_at", used_ms / 1000);
    json_put_key_i64(w, "expires_at", (used_ms + s->ttl_ms) / 1000);
    json_close_object(w);
}

void sessions_write(struct sessions *s, const struct sessions_asker *who, int64_t now_ms,
                    struct buf *out)
{
    struct json_writer w = json_writer(out);
    sessions_sweep(s, now_ms);
    json_open_array(&w);
    for (struct list *at = s->all.prev; at != &s->all; at = at->prev) {
        const struct session *one = list_item(at, struct session, link);
        if (who->is_admin || str_eq(exchange_scope_root(one->scope), who->scope))
            sessions_put_one(s, one, now_ms, &w);
    }
    json_close_array(&w);
}

bool sessions_write_one(struct sessions *s, const struct sessions_asker *who, str id,
                        int64_t now_ms, struct buf *out)
{
    const struct session *one = sessions_seen(s, who, id, now_ms);
    struct json_writer w = json_writer(out);
    if (one)
        sessions_put_one(s, one, now_ms, &w);
    return one != NULL;
}

bool sessions_last(struct sessions *s, const struct sessions_asker *who, str id, int64_t now_ms,
                   struct sessions_turn *out)
{
    const struct session *one = sessions_seen(s, who, id, now_ms);
    if (one)
        *out = (struct sessions_turn){one->scope, one->id, one->agent, one->model, one->leg,
                                      one->tokens};
    return one != NULL;
}

bool sessions_delete(struct sessions *s, const struct sessions_asker *who, str id, int64_t now_ms)
{
    struct session *one = sessions_seen(s, who, id, now_ms);
    if (one)
        sessions_free(s, one);
    return one != NULL;
}
