#include "serve/replay.h"

#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/json.h"
#include "base/list.h"
#include "base/map.h"

#define REPLAY_JSON_DEPTH 128u

struct replay_entry {
    struct list link;     /* in the order of use, the latest last */
    uint64_t by_id, by_text; /* keys in the map; by_id 0: no call has an id */
    struct digest_128 said;
    uint64_t model_hash;  /* 0: no ids */
    uint32_t ids_count;
    size_t reasoning_len;
    int64_t used_ms;
    struct buf bytes;     /* ids, then reasoning */
};

struct replay {
    struct replay_options o;
    struct map keys; /* to entries */
    struct list used;
    uint64_t seeds[2];
    struct replay_stats stats;
};

/* --- what a turn says ---------------------------------------------------------------------- */

/* A running fingerprint of 128 bits; the seeds are drawn, so nobody can choose two equal ones. */
struct replay_hash {
    uint64_t a, b;
};

static void replay_mix(struct replay_hash *h, str bytes)
{
    h->a = digest_xxh3(bytes, h->a);
    h->b = digest_xxh3(bytes, h->b);
}

static void replay_mix_u64(struct replay_hash *h, uint64_t n)
{
    char bytes[sizeof n];
    memcpy(bytes, &n, sizeof n);
    replay_mix(h, str_view(bytes, sizeof n));
}

static bool replay_is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static str replay_trim(str s)
{
    while (s.len && replay_is_blank(s.p[0]))
        s = str_from(s, 1);
    while (s.len && replay_is_blank(s.p[s.len - 1]))
        s.len--;
    return s;
}

/* Members count in any order, numbers by value: some clients sort keys and write 1.0 as 1. */
static void replay_mix_json(struct replay_hash *h, struct json v, struct arena *a)
{
    struct replay_hash sum = {0, 0};
    int64_t whole;
    double number = 0;
    bool on = false;
    replay_mix_u64(h, (uint64_t)json_kind(v));
    switch (json_kind(v)) {
    case JSON_KIND_OBJECT:
        for (struct json_walk w = json_walk(v); json_next(&w);) {
            struct replay_hash member = *h;
            replay_mix(&member, json_text(w.key, a));
            replay_mix_json(&member, w.value, a);
            sum.a += member.a;
            sum.b += member.b;
        }
        replay_mix_u64(h, sum.a ^ sum.b << 1);
        break;
    case JSON_KIND_ARRAY:
        for (struct json_walk w = json_walk(v); json_next(&w);)
            replay_mix_json(h, w.value, a);
        replay_mix_u64(h, json_count(v));
        break;
    case JSON_KIND_STRING:
        replay_mix(h, json_text(v, a));
        break;
    case JSON_KIND_NUMBER:
        if (json_i64(v, &whole)) {
            replay_mix_u64(h, (uint64_t)whole);
        } else if (json_double(v, &number)) {
            uint64_t bits;
            memcpy(&bits, &number, sizeof bits);
            replay_mix_u64(h, bits);
        } else {
            replay_mix(h, json_raw(v));
        }
        break;
    case JSON_KIND_BOOL:
        replay_mix_u64(h, json_bool(v, &on) && on);
        break;
    case JSON_KIND_ABSENT: case JSON_KIND_NULL:
        break;
    }
}

/* What is no object is a custom tool's free text: in a history it stands as {"input": text}. */
static void replay_mix_args(struct replay_hash *h, str args)
{
    const struct json_options options = {.depth_max = REPLAY_JSON_DEPTH};
    struct arena a;
    struct json v;
    struct err ignored;
    arena_init(&a, 8 * args.len + ((size_t)1 << 16));
    if (args.len == 0)
        args = STR("{}");
    if (json_parse(&v, args, &options, &a, &ignored) && json_kind(v) == JSON_KIND_OBJECT) {
        struct json input = json_member(v, "input");
        if (json_count(v) == 1 && json_kind(input) == JSON_KIND_STRING)
            replay_mix(h, json_text(input, &a));
        else
            replay_mix_json(h, v, &a);
    } else {
        replay_mix(h, args);
    }
    arena_deinit(&a);
}

/* NAMESPACE__name: a protocol may give back both, or only this. */
static void replay_mix_call(struct replay_hash *h, str name_space, str name, str args)
{
    char full[600];
    size_t n = 0;
    str parts[] = {name_space, name_space.len && !str_ends(name_space, STR("_")) ? STR("__")
                                                                                 : STR(""), name};
    for (size_t i = 0; i < countof(parts); i++) {
        size_t take = base_min(parts[i].len, sizeof full - n);
        if (take)
            memcpy(full + n, parts[i].p, take);
        n += take;
    }
    replay_mix(h, str_view(full, n));
    replay_mix_args(h, args);
}

/* One part of a turn; reasoning does not count. */
static void replay_mix_part(struct replay_hash *h, const struct api_part *p)
{
    str text = replay_trim(p->text);
    switch (p->kind) {
    case API_PART_TEXT: case API_PART_RESULT:
        if (text.len)
            replay_mix(h, text);
        break;
    case API_PART_CALL:
        replay_mix_call(h, p->name_space, p->name, p->text);
        break;
    case API_PART_IMAGE: case API_PART_REASONING: case API_PART_COUNT_:
        break;
    }
}

static struct replay_hash replay_begin(const struct replay *r, const struct api_request *rq)
{
    struct replay_hash h = {r->seeds[0], r->seeds[1]};
    replay_mix(&h, rq->scope);
    return h;
}

static void replay_mix_message(struct replay_hash *h, const struct api_message *m)
{
    for (uint32_t i = 0; i < m->parts_count; i++)
        replay_mix_part(h, &m->parts[i]);
}

/* "call_abc" and "toolu_abc" are one id on two protocols. */
static uint64_t replay_key_of_id(const struct replay *r, const struct api_request *rq, str id)
{
    struct replay_hash h = replay_begin(r, rq);
    size_t line = 0;
    for (size_t i = 0; i < id.len; i++)
        line = id.p[i] == '_' ? i + 1 : line;
    if (id.len == line)
        return 0;
    replay_mix(&h, STR("id"));
    replay_mix(&h, str_from(id, line));
    return h.a | 1;
}

/* said, after what was said before it: "Done." is not told twice for the same reasons. */
static uint64_t replay_key_of_text(const struct replay *r, const struct api_request *rq,
                                   uint32_t before, struct digest_128 said)
{
    struct replay_hash h = replay_begin(r, rq);
    replay_mix(&h, STR("text"));
    if (before)
        replay_mix_message(&h, &rq->messages[before - 1]);
    replay_mix_u64(&h, said.low);
    replay_mix_u64(&h, said.high);
    return h.a | 1;
}

/* --- the table ----------------------------------------------------------------------------- */

bool replay_open(struct replay **out, const struct replay_options *o, struct err *e)
{
    struct replay *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ERR_MEMORY, "serve: no memory");
    r->o = *o;
    map_init(&r->keys, 2 * REPLAY_ENTRIES_MAX);
    list_init(&r->used);
    digest_random(r->seeds, sizeof r->seeds);
    *out = r;
    return true;
}

static size_t replay_weight(const struct replay_entry *n)
{
    return sizeof *n + n->bytes.len + 2 * sizeof(struct map_entry);
}

/* A key may lead to a later reply by now. */
static void replay_unlink(struct replay *r, uint64_t key, const struct replay_entry *n)
{
    if (key && map_value_number(&r->keys, key, 0) == (uint64_t)(uintptr_t)n)
        map_delete_number(&r->keys, key);
}

static void replay_drop(struct replay *r, struct replay_entry *n)
{
    replay_unlink(r, n->by_id, n);
    replay_unlink(r, n->by_text, n);
    list_remove(&n->link);
    r->stats.bytes -= replay_weight(n);
    r->stats.entries--;
    buf_deinit(&n->bytes);
    free(n);
}

void replay_close(struct replay *r)
{
    if (!r)
        return;
    while (!list_is_empty(&r->used))
        replay_drop(r, list_item(list_first(&r->used), struct replay_entry, link));
    map_deinit(&r->keys);
    free(r);
}

struct replay_stats replay_stats(const struct replay *r) { return r->stats; }

static void replay_trim_table(struct replay *r, int64_t now_ms)
{
    while (!list_is_empty(&r->used)) {
        struct replay_entry *n = list_item(list_first(&r->used), struct replay_entry, link);
        bool is_old = now_ms - n->used_ms > r->o.ttl_ms;
        if (!is_old && r->stats.bytes <= r->o.bytes_max && r->stats.entries <= REPLAY_ENTRIES_MAX)
            return;
        replay_drop(r, n);
    }
}

static void replay_add(struct replay *r, struct replay_entry *n, int64_t now_ms)
{
    n->used_ms = now_ms;
    list_push_last(&r->used, &n->link);
    r->stats.entries++;
    r->stats.bytes += replay_weight(n);
    if ((n->by_id && !map_put_number(&r->keys, n->by_id, (uint64_t)(uintptr_t)n)) ||
        !map_put_number(&r->keys, n->by_text, (uint64_t)(uintptr_t)n)) {
        replay_drop(r, n);
        return;
    }
    replay_trim_table(r, now_ms);
}

/* --- keeping ------------------------------------------------------------------------------- */

static void replay_describe(const struct replay *r, const struct api_request *rq,
                            const struct transcript_choice *c, struct replay_entry *n)
{
    struct replay_hash h = replay_begin(r, rq);
    for (uint32_t i = 0; i < c->parts_count; i++) {
        const struct transcript_part *p = &c->parts[i];
        const struct api_part part = {.kind = p->kind, .text = buf_view(&p->text), .name = p->name,
                                      .name_space = p->name_space};
        replay_mix_part(&h, &part);
        if (p->kind == API_PART_CALL && p->id.len && n->by_id == 0)
            n->by_id = replay_key_of_id(r, rq, p->id);
        if (p->kind == API_PART_REASONING) {
            buf_add(&n->bytes, buf_view(&p->text));
            n->reasoning_len += p->text.len;
        }
    }
    n->said = (struct digest_128){.low = h.a, .high = h.b};
    n->by_text = replay_key_of_text(r, rq, rq->messages_count, n->said);
}

void replay_keep(struct replay *r, const struct api_request *rq, const struct transcript *t,
                 uint32_t choice, int64_t now_ms)
{
    const struct transcript_choice *c = &t->choices[choice];
    uint32_t ids_count = (uint32_t)(c->ids.len / sizeof(int32_t));
    bool has_ids = t->model_hash && ids_count && ids_count == c->tokens_count;
    if (t->is_full || c->parts_count == 0 || rq->messages_count == 0 || rq->continue_last)
        return;
    struct replay_entry *n = calloc(1, sizeof *n);
    if (!n)
        return;
    list_init(&n->link);
    buf_init(&n->bytes, REPLAY_TURN_MAX);
    if (has_ids) {
        buf_add(&n->bytes, buf_view(&c->ids));
        n->ids_count = ids_count;
        n->model_hash = t->model_hash;
    }
    replay_describe(r, rq, c, n);
    if (n->bytes.full || n->bytes.len == 0) { /* too long, or nothing to give back */
        buf_deinit(&n->bytes);
        free(n);
        return;
    }
    replay_add(r, n, now_ms);
}

/* --- finding ------------------------------------------------------------------------------- */

static struct replay_entry *replay_at(const struct replay *r, uint64_t key, struct digest_128 said)
{
    struct replay_entry *n =
        key ? (struct replay_entry *)(uintptr_t)map_value_number(&r->keys, key, 0) : NULL;
    return n && n->said.low == said.low && n->said.high == said.high ? n : NULL;
}

static str replay_reasoning(const struct replay_entry *n)
{
    return str_from(buf_view(&n->bytes), n->ids_count * sizeof(int32_t));
}

/* Reasoning of the turn as the client has it: none, ours, or another one. */
static bool replay_agrees(const struct replay_entry *n, const struct api_message *m, bool *has_any)
{
    str rest = replay_trim(replay_reasoning(n));
    *has_any = false;
    for (uint32_t i = 0; i < m->parts_count; i++) {
        str text = replay_trim(m->parts[i].text);
        if (m->parts[i].kind != API_PART_REASONING || text.len == 0)
            continue;
        *has_any = true;
        if (!str_starts(rest, text))
            return false;
        rest = replay_trim(str_from(rest, text.len));
    }
    return !*has_any || rest.len == 0;
}

static struct replay_entry *replay_find(const struct replay *r, const struct api_request *rq,
                                        uint32_t message)
{
    const struct api_message *m = &rq->messages[message];
    struct replay_hash h = replay_begin(r, rq);
    struct replay_entry *n = NULL;
    replay_mix_message(&h, m);
    struct digest_128 said = {.low = h.a, .high = h.b};
    for (uint32_t i = 0; i < m->parts_count && !n; i++)
        if (m->parts[i].kind == API_PART_CALL && m->parts[i].id.len) {
            n = replay_at(r, replay_key_of_id(r, rq, m->parts[i].id), said);
            break;
        }
    return n ? n : replay_at(r, replay_key_of_text(r, rq, message, said), said);
}

/* The reasoning goes first, as it was said. */
static bool replay_put_reasoning(const struct replay_entry *n, struct api_message *m,
                                 struct arena *a)
{
    struct api_part *parts = ARENA_ARRAY(a, struct api_part, m->parts_count + 1);
    str text = arena_copy(a, replay_reasoning(n));
    if (!parts || !text.p)
        return false;
    parts[0] = (struct api_part){.kind = API_PART_REASONING, .text = text};
    memcpy(parts + 1, m->parts, m->parts_count * sizeof *parts);
    m->parts = parts;
    m->parts_count++;
    return true;
}

static bool replay_put_ids(const struct replay_entry *n, struct api_message *m, struct arena *a)
{
    int32_t *ids = ARENA_ARRAY(a, int32_t, n->ids_count);
    if (!ids)
        return false;
    memcpy(ids, n->bytes.p, n->ids_count * sizeof *ids);
    m->ids = ids;
    m->ids_count = n->ids_count;
    return true;
}

static bool replay_apply(const struct replay_entry *n, struct api_request *rq,
                         struct api_message *m, struct arena *a)
{
    bool has_reasoning;
    if (!replay_agrees(n, m, &has_reasoning))
        return true;
    if (!has_reasoning && n->reasoning_len && !replay_put_reasoning(n, m, a))
        return false;
    if (rq->ids_hash == 0)
        rq->ids_hash = n->model_hash;
    return n->model_hash == 0 || n->model_hash != rq->ids_hash || replay_put_ids(n, m, a);
}

/* From the end: the model of the latest reply is the likely one, and only its ids are of use. */
uint32_t replay_match(struct replay *r, struct api_request *rq, struct arena *a, int64_t now_ms)
{
    uint32_t found = 0, last = rq->messages_count - (rq->continue_last && rq->messages_count);
    replay_trim_table(r, now_ms);
    if (!rq->replay || r->stats.entries == 0)
        return 0;
    struct api_message *copy = ARENA_ARRAY(a, struct api_message, rq->messages_count);
    if (!copy)
        return 0;
    if (rq->messages_count)
        memcpy(copy, rq->messages, rq->messages_count * sizeof *copy);
    for (uint32_t i = last; i-- > 0;) {
        if (copy[i].role != API_ROLE_ASSISTANT || copy[i].ids_count)
            continue;
        struct replay_entry *n = replay_find(r, rq, i);
        if (!n)
            continue;
        if (!replay_apply(n, rq, &copy[i], a))
            break;
        n->used_ms = now_ms;
        list_remove(&n->link);
        list_push_last(&r->used, &n->link);
        found++;
    }
    rq->messages = copy;
    r->stats.hits += found;
    return found;
}
