#include "serve/misses.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "base/digest.h"
#include "base/json.h"
#include "serve/attempt.h"

#define MISSES_ID_SIZE 32
#define MISSES_PARSE_MAX (5 * MISSES_JSON_MAX + ((size_t)1 << 20)) /* as json.h says */
#define MISSES_EXPECTED_MIN 32u /* as engine/miss_heads */

struct misses_row {
    uint64_t key, scope, agent; /* hashes */
    bool is_for_admin;
    bool is_mixed;    /* it shows two keys' prompts: excerpts are for no key */
    struct buf json;  /* an object */
    struct buf plain; /* ... without excerpts */
};

/* What a session's or agent's last prompt was. */
struct misses_head {
    uint64_t who, model, model_hash;
    int child;
    uint32_t tokens;
    char id[MISSES_ID_SIZE];
};

struct misses_id {
    uint64_t number, key;
    char text[MISSES_ID_SIZE];
};

struct misses {
    struct misses_row *rows; /* [rows_max], a ring */
    uint32_t rows_max, first, count;
    struct misses_head heads[MISSES_HEADS_MAX]; /* by who */
    struct misses_id ids[MISSES_IDS_MAX];       /* by number */
};

bool misses_open(struct misses **out, uint32_t rows_max, struct err *e)
{
    struct misses *m = calloc(1, sizeof *m);
    if (m)
        m->rows = calloc(base_max(rows_max, 1u), sizeof *m->rows);
    if (!m || !m->rows) {
        free(m);
        return err_set(e, ERR_MEMORY, "cache.miss_ring: no memory for %u records", rows_max);
    }
    m->rows_max = rows_max;
    *out = m;
    return true;
}

void misses_close(struct misses *m)
{
    if (!m)
        return;
    for (uint32_t i = 0; i < m->rows_max; i++) {
        buf_deinit(&m->rows[i].json);
        buf_deinit(&m->rows[i].plain);
    }
    free(m->rows);
    free(m);
}

/* --- remembering --------------------------------------------------------------------------- */

static uint64_t misses_hash(uint64_t seed, str s)
{
    uint64_t len = s.len;
    return digest_xxh3(s, digest_xxh3(str_view(&len, sizeof len), seed));
}

static uint64_t misses_who(const struct api_request *rq)
{
    bool has_session = rq->session.len > 0;
    return misses_hash(misses_hash(has_session, rq->scope),
                       has_session ? rq->session : rq->agent);
}

static void misses_set_id(char out[MISSES_ID_SIZE], const char *id)
{
    snprintf(out, MISSES_ID_SIZE, "%s", id);
}

/* The child knows a request by its number; NULL = too long ago. */
static const struct misses_id *misses_id_of(const struct misses *m, uint64_t number)
{
    const struct misses_id *row = &m->ids[number % MISSES_IDS_MAX];
    return row->number == number ? row : NULL;
}

static void misses_remember(struct misses *m, const struct misses_request *r)
{
    uint64_t who = misses_who(r->rq);
    struct misses_head *h = &m->heads[who % MISSES_HEADS_MAX];
    struct misses_id *id = &m->ids[r->rq->id % MISSES_IDS_MAX];
    id->number = r->rq->id;
    id->key = misses_hash(0, r->key);
    misses_set_id(id->text, r->id);
    if (!r->started->child) /* an upstream's cache is none of ours */
        return;
    *h = (struct misses_head){.who = who, .model = misses_hash(0, r->model),
                              .model_hash = r->started->model_hash,
                              .child = r->started->child, .tokens = r->started->prompt_tokens};
    misses_set_id(h->id, r->id);
}

/* --- judging ------------------------------------------------------------------------------- */

struct misses_verdict {
    const char *reason, *hint; /* hint: NULL = none */
    const char *previous;
    bool is_mixed; /* the previous prompt was another key's, or nobody knows whose */
    uint32_t expected;
};

/* A child that was not there when the last prompt was read knows nothing of it. An agent without
 * sessions is only judged when its prompt did not shrink: else it is another conversation. */
static bool misses_judge(const struct misses *m, const struct misses_request *r,
                         struct misses_verdict *v)
{
    uint64_t who = misses_who(r->rq);
    const struct misses_head *h = &m->heads[who % MISSES_HEADS_MAX];
    const struct api_started *s = r->started;
    bool is_known = h->who == who && h->child && h->child != s->child && s->child;
    bool grows = s->prompt_tokens >= h->tokens;
    if (!is_known || s->prompt_tokens == 0 || (!grows && !r->rq->session.len))
        return false;
    bool same_model = h->model == misses_hash(0, r->model);
    v->reason = same_model ? "model_reloaded" : "cold";
    v->hint = same_model && h->model_hash != s->model_hash ? "other_build" : NULL;
    v->previous = h->id;
    v->expected = (uint32_t)base_min(h->tokens, s->prompt_tokens - 1);
    return v->expected >= MISSES_EXPECTED_MIN &&
           (uint64_t)s->cached_tokens * 10 < (uint64_t)v->expected * 9;
}

/* --- records ------------------------------------------------------------------------------- */

static void misses_put_head(struct json_writer *w, const struct misses_request *r,
                            const char *previous)
{
    json_key_z(w, "at");
    json_put_i64(w, chrono_unix_ms(&chrono_real) / 1000);
    json_put_key_text(w, "request_id", str_of(r->id));
    json_put_key_text(w, "previous_id", str_of(previous));
    json_put_key_text(w, "agent", r->rq->agent);
    json_put_key_text(w, "session", r->rq->session);
    json_put_key_text(w, "model", r->model);
    json_key_z(w, "prompt_tokens");
    json_put_u64(w, r->started->prompt_tokens);
    json_key_z(w, "cached_tokens");
    json_put_u64(w, r->started->cached_tokens);
}

static struct misses_row *misses_next(struct misses *m)
{
    if (m->rows_max == 0)
        return NULL;
    struct misses_row *row = &m->rows[(m->first + m->count) % m->rows_max];
    if (m->count == m->rows_max)
        m->first = (m->first + 1) % m->rows_max;
    else
        m->count++;
    buf_deinit(&row->json);
    buf_deinit(&row->plain);
    buf_init(&row->json, MISSES_JSON_MAX);
    buf_init(&row->plain, MISSES_JSON_MAX);
    return row;
}

/* Names of members are the child's and need no escapes. */
static void misses_put_key(struct json_writer *w, struct json key)
{
    str raw = json_raw(key);
    json_key(w, str_sub(raw, 1, raw.len - 2));
}

static void misses_put_diff(struct json_writer *w, struct json diff)
{
    struct json_walk in = json_walk(diff);
    json_open_object(w);
    while (json_next(&in)) {
        bool is_text = json_text_eq(in.key, STR("was")) || json_text_eq(in.key, STR("now"));
        misses_put_key(w, in.key);
        if (is_text)
            json_put_null(w);
        else
            json_put_raw(w, json_raw(in.value));
    }
    json_close_object(w);
}

/* The record without what it quotes. A record that cannot be read, as only a faulty child's, is
 * shown to no other key. */
static void misses_make_plain(struct misses_row *row)
{
    static const struct json_options o = {.depth_max = 8};
    struct json_writer w = json_writer(&row->plain);
    struct arena a;
    struct json root;
    struct err why;
    arena_init(&a, MISSES_PARSE_MAX);
    if (json_parse(&root, buf_view(&row->json), &o, &a, &why)) {
        struct json_walk in = json_walk(root);
        json_open_object(&w);
        while (json_next(&in)) {
            misses_put_key(&w, in.key);
            if (json_kind(in.value) == JSON_KIND_OBJECT)
                misses_put_diff(&w, in.value);
            else
                json_put_raw(&w, json_raw(in.value));
        }
        json_close_object(&w);
    }
    arena_deinit(&a);
    if (row->plain.full)
        buf_clear(&row->plain);
}

/* told: the members that the child wrote, "{...}", or "". */
static void misses_keep(struct misses *m, const struct misses_request *r,
                        const struct misses_verdict *v, str told)
{
    struct misses_row *row = misses_next(m);
    if (!row)
        return;
    row->key = misses_hash(0, r->key);
    row->scope = misses_hash(0, r->scope);
    row->agent = misses_hash(0, r->rq->agent);
    row->is_for_admin = !strcmp(v->reason, "scope");
    row->is_mixed = v->is_mixed;
    struct json_writer w = json_writer(&row->json);
    json_open_object(&w);
    misses_put_head(&w, r, v->previous);
    if (!told.len) {
        json_key_z(&w, "expected_tokens");
        json_put_u64(&w, v->expected);
        json_put_key_text(&w, "reason", str_of(v->reason));
        json_key_z(&w, "first_diff");
        json_put_null(&w);
        json_put_key_text(&w, "hint", str_of(v->hint));
        json_close_object(&w);
    } else {
        buf_printf(&row->json, ",%.*s", STR_ARG(str_from(told, 1)));
    }
    if (row->json.full)
        buf_clear(&row->json);
    else
        misses_make_plain(row);
}

/* Reasons are the child's words; nothing else becomes one. */
static const char *misses_reason(str word)
{
    static const char *const words[] = {"content_changed", "template_changed", "evicted",
                                        "state_missing",   "scope",            "corrupt",
                                        "disabled"};
    for (size_t i = 0; i < countof(words); i++)
        if (str_eq_z(word, words[i]))
            return words[i];
    return NULL;
}

bool misses_add(struct misses *m, const struct misses_request *r, str *reason)
{
    struct misses_verdict v = {0};
    str told = r->note, word = STR(""), number = STR("");
    uint64_t previous = 0;
    bool is_miss = false;
    if (told.len && str_split(&told, ' ', &word) && str_split(&told, ' ', &number) &&
        str_to_u64(number, &previous)) {
        v.reason = misses_reason(word);
        const struct misses_id *id = misses_id_of(m, attempt_request(previous));
        v.previous = id ? id->text : "";
        v.is_mixed = !id || id->key != misses_hash(0, r->key);
        is_miss = v.reason && str_starts(told, STR("{"));
    }
    if (!is_miss) {
        told = STR("");
        is_miss = misses_judge(m, r, &v);
    }
    if (is_miss) {
        misses_keep(m, r, &v, told);
        *reason = str_of(v.reason);
    }
    misses_remember(m, r);
    return is_miss;
}

void misses_write(const struct misses *m, const struct misses_query *q, struct buf *out)
{
    uint64_t key = misses_hash(0, q->key), scope = misses_hash(0, q->scope);
    uint64_t agent = misses_hash(0, q->agent);
    uint32_t written = 0;
    buf_add_byte(out, '[');
    for (uint32_t i = m->count; i > 0 && written < q->limit; i--) {
        const struct misses_row *row = &m->rows[(m->first + i - 1) % m->rows_max];
        bool may_see = q->is_admin || (row->scope == scope && !row->is_for_admin);
        bool may_read = q->is_admin || (row->key == key && !row->is_mixed);
        str json = buf_view(may_read ? &row->json : &row->plain);
        if (!json.len || !may_see || (q->agent.p && row->agent != agent))
            continue;
        if (written++)
            buf_add_byte(out, ',');
        buf_add(out, json);
    }
    buf_add_byte(out, ']');
}
