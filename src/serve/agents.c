#include "serve/agents.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/chrono.h"
#include "base/digest.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"

#define AGENTS_SAID_MAX ((size_t)1 << 16) /* memory for reading what attempt told */

struct agents_leg {
    char name[64];
    uint64_t requests, output_tokens;
};

struct agents_row {
    struct list link; /* by last request, oldest first */
    uint64_t key;
    struct arena texts;
    str owner, agent;
    uint64_t prompt_tokens, cached_tokens, output_tokens, preemptions;
    struct agents_leg legs[AGENTS_LEGS_MAX + 1]; /* the last one: other */
    uint32_t legs_count, running, queued;
    int64_t seen_ms;
};

struct agents {
    struct list all;
    struct map by_key;
};

bool agents_open(struct agents **out, struct err *e)
{
    struct agents *a = calloc(1, sizeof *a);
    if (!a)
        return err_set(e, ERR_MEMORY, "agents: no memory");
    list_init(&a->all);
    map_init(&a->by_key, AGENTS_MAX);
    *out = a;
    return true;
}

static void agents_free(struct agents *a, struct agents_row *r)
{
    map_delete_number(&a->by_key, r->key);
    list_remove(&r->link);
    arena_deinit(&r->texts);
    free(r);
}

void agents_close(struct agents *a)
{
    struct list *first;
    if (!a)
        return;
    while ((first = list_first(&a->all)))
        agents_free(a, list_item(first, struct agents_row, link));
    map_deinit(&a->by_key);
    free(a);
}

/* --- rows ---------------------------------------------------------------------------------- */

static uint64_t agents_key(const struct agents_who *who)
{
    return digest_xxh3(who->agent, digest_xxh3(who->owner, 2));
}

static struct agents_row *agents_find(const struct agents *a, const struct agents_who *who)
{
    struct agents_row *r = map_to_pointer(map_value_number(&a->by_key, agents_key(who), 0));
    return r && str_eq(who->owner, r->owner) && str_eq(who->agent, r->agent) ? r : NULL;
}

/* Without memory an agent is only not listed. A hash's second owner replaces the first. */
static struct agents_row *agents_make(struct agents *a, const struct agents_who *who)
{
    struct agents_row *old = map_to_pointer(map_value_number(&a->by_key, agents_key(who), 0));
    if (!old && a->by_key.count == AGENTS_MAX)
        old = list_item(list_first(&a->all), struct agents_row, link);
    if (old)
        agents_free(a, old);
    struct agents_row *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    arena_init(&r->texts, who->owner.len + who->agent.len + 4096);
    r->key = agents_key(who);
    r->owner = arena_copy(&r->texts, who->owner);
    r->agent = arena_copy(&r->texts, who->agent);
    if (r->texts.is_full || !map_put_number(&a->by_key, r->key, map_of_pointer(r))) {
        log_warn("agents: no memory for one more");
        arena_deinit(&r->texts);
        free(r);
        return NULL;
    }
    list_push_last(&a->all, &r->link);
    return r;
}

static struct agents_row *agents_use(struct agents *a, const struct agents_who *who,
                                     int64_t now_ms)
{
    struct agents_row *r = agents_find(a, who);
    if (!r)
        r = agents_make(a, who);
    if (!r)
        return NULL;
    list_remove(&r->link);
    list_push_last(&a->all, &r->link);
    r->seen_ms = now_ms;
    return r;
}

void agents_begin(struct agents *a, const struct agents_who *who, int64_t now_ms)
{
    agents_use(a, who, now_ms);
}

static struct agents_leg *agents_leg(struct agents_row *r, str name)
{
    for (uint32_t i = 0; i < r->legs_count; i++)
        if (str_eq_z(name, r->legs[i].name))
            return &r->legs[i];
    if (r->legs_count == AGENTS_LEGS_MAX)
        name = STR("other");
    struct agents_leg *l = &r->legs[r->legs_count];
    r->legs_count += r->legs_count < AGENTS_LEGS_MAX;
    snprintf(l->name, sizeof l->name, "%.*s", STR_ARG(name));
    return l;
}

/* Of a reply that several legs wrote each has its part; what a leg that only failed cost is not
 * told. */
static bool agents_add_said(struct agents_row *r, str said)
{
    const struct json_options o = {.depth_max = 4};
    struct arena arena;
    struct json root;
    struct err e;
    arena_init(&arena, AGENTS_SAID_MAX);
    bool ok = said.len && json_parse(&root, said, &o, &arena, &e);
    struct json_walk rows = json_walk(ok ? root : (struct json){0});
    while (ok && json_next(&rows)) {
        uint64_t tokens = 0;
        str name = json_text(json_member(rows.value, "leg"), &arena);
        if (name.len && json_u64(json_member(rows.value, "output_tokens"), &tokens))
            agents_leg(r, name)->output_tokens += tokens;
    }
    arena_deinit(&arena);
    return ok;
}

void agents_end(struct agents *a, const struct agents_end *end, int64_t now_ms)
{
    struct agents_row *r = agents_use(a, &end->who, now_ms);
    str legs = end->legs, name;
    struct agents_leg *last = NULL;
    if (!r)
        return;
    r->prompt_tokens += end->prompt_tokens;
    r->cached_tokens += base_min(end->cached_tokens, end->prompt_tokens);
    r->output_tokens += end->output_tokens;
    r->preemptions += end->preemptions;
    while (str_split(&legs, '>', &name)) {
        if (name.len == 0)
            continue;
        last = agents_leg(r, name);
        last->requests++;
    }
    if (last && !agents_add_said(r, end->said))
        last->output_tokens += end->output_tokens;
}

/* --- the answer ---------------------------------------------------------------------------- */

void agents_forget_counts(struct agents *a)
{
    list_each (at, &a->all) {
        struct agents_row *r = list_item(at, struct agents_row, link);
        r->running = r->queued = 0;
    }
}

void agents_count(struct agents *a, const struct agents_who *who, bool is_queued)
{
    struct agents_row *r = agents_find(a, who);
    if (r)
        *(is_queued ? &r->queued : &r->running) += 1;
}

static void agents_put_legs(struct json_writer *w, const struct agents_row *r)
{
    json_key_z(w, "legs");
    json_open_object(w);
    for (uint32_t i = 0; i < AGENTS_LEGS_MAX + 1; i++) {
        if (!r->legs[i].name[0])
            continue;
        json_key_z(w, r->legs[i].name);
        json_open_object(w);
        json_put_key_u64(w, "requests", r->legs[i].requests);
        json_put_key_u64(w, "output_tokens", r->legs[i].output_tokens);
        json_close_object(w);
    }
    json_close_object(w);
}

static void agents_put(struct json_writer *w, const struct agents_row *r,
                       const struct agents_write *how)
{
    uint64_t prompt = r->prompt_tokens ? r->prompt_tokens : 1;
    json_open_object(w);
    json_key_z(w, "agent");
    json_put_text(w, r->agent);
    json_put_key_u64(w, "running", r->running);
    json_put_key_u64(w, "queued", r->queued);
    json_put_key_u64(w, "prompt_tokens", r->prompt_tokens);
    json_put_key_u64(w, "cached_tokens", r->cached_tokens);
    json_put_key_u64(w, "output_tokens", r->output_tokens);
    json_key_z(w, "cached_share");
    json_put_double(w, (double)(r->cached_tokens * 10000 / prompt) / 10000);
    json_put_key_u64(w, "preempted", r->preemptions);
    agents_put_legs(w, r);
    json_key_z(w, "limits");
    how->on_limits(how->ctx, w, r->agent);
    json_key_z(w, "last_seen");
    json_put_i64(w, (chrono_unix_ms(&chrono_real) + r->seen_ms - how->now_ms) / 1000);
    json_close_object(w);
}

void agents_write(struct agents *a, const struct agents_write *how, struct buf *out)
{
    struct json_writer w = json_writer(out);
    json_open_array(&w);
    for (struct list *at = a->all.prev; at != &a->all; at = at->prev) {
        const struct agents_row *r = list_item(at, struct agents_row, link);
        if (!how->owner.p || str_eq(how->owner, r->owner))
            agents_put(&w, r, how);
    }
    json_close_array(&w);
}
