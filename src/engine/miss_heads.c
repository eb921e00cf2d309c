#include "engine/miss_heads.h"

#include <string.h>

#include "base/digest.h"
#include "base/json.h"
#include "engine/prompt_replay.h"

#define EXPECTED_MIN 32u /* BEHAVIOUR 8.11: less than this is never read again */
#define RELATED_MIN 32u  /* tokens at an end that make two prompts one conversation */
#define RECORD_MAX 32768u

bool miss_heads_init(struct miss_heads *m, const struct miss_heads_options *o, struct mem *mem,
                     struct err *e)
{
    *m = (struct miss_heads){.o = *o};
    buf_init(&m->was, MISS_WINDOW * 2);
    buf_init(&m->now, MISS_WINDOW * 2);
    m->heads = mem_new_array(mem, "last prompts", MISS_HEADS_MAX, sizeof *m->heads, e);
    return m->heads != NULL;
}

static void drop(struct miss_heads *m, struct miss_head *h)
{
    m->bytes -= h->ids.len + h->messages.len;
    buf_deinit(&h->ids);
    buf_deinit(&h->messages);
    h->used = 0;
}

void miss_heads_deinit(struct miss_heads *m)
{
    for (uint32_t i = 0; m->heads && i < MISS_HEADS_MAX; i++)
        if (m->heads[i].used)
            drop(m, &m->heads[i]);
    buf_deinit(&m->was);
    buf_deinit(&m->now);
}

/* --- hashes -------------------------------------------------------------------------------- */

static uint64_t add_number(uint64_t h, uint64_t n)
{
    return digest_xxh3(str_view(&n, sizeof n), h);
}

/* With its length, so that "ab", "c" and "a", "bc" differ. */
static uint64_t add_text(uint64_t h, str s) { return digest_xxh3(s, add_number(h, s.len)); }

static uint64_t hash_message(const struct api_message *msg)
{
    uint64_t h = add_text(msg->role, msg->name);
    for (uint32_t i = 0; i < msg->parts_count; i++) {
        const struct api_part *p = &msg->parts[i];
        h = add_text(add_text(add_text(add_number(h, p->kind), p->text), p->id), p->name);
    }
    return h;
}

static uint64_t hash_tools(const struct api_request *rq)
{
    uint64_t h = rq->tools_count;
    for (uint32_t i = 0; i < rq->tools_count; i++) {
        const struct api_tool *t = &rq->tools[i];
        h = add_text(add_text(add_text(h, t->name), t->description), t->schema);
    }
    return h;
}

static bool has_session(const struct job *j) { return j->rq.session.len > 0; }

static uint64_t hash_who(const struct job *j)
{
    return add_text(has_session(j) ? 1 : 2, has_session(j) ? j->rq.session : j->rq.agent);
}

static uint64_t hash_scope(const struct job *j) { return add_text(3, j->rq.scope); }

static const int32_t *head_ids(const struct miss_head *h)
{
    return (const int32_t *)(const void *)h->ids.p;
}
static uint32_t head_count(const struct miss_head *h)
{
    return (uint32_t)(h->ids.len / sizeof(int32_t));
}

/* --- finding the past ---------------------------------------------------------------------- */

static uint32_t common_of(const struct miss_head *h, const struct prompt *p)
{
    uint32_t n = 0, most = (uint32_t)base_min(head_count(h), p->count);
    while (n < most && head_ids(h)[n] == p->ids[n])
        n++;
    return n;
}

static uint32_t common_end(const struct miss_head *h, const struct prompt *p)
{
    uint32_t n = 0, most = (uint32_t)base_min(head_count(h), p->count);
    while (n < most && n < RELATED_MIN &&
           head_ids(h)[head_count(h) - 1 - n] == p->ids[p->count - 1 - n])
        n++;
    return n;
}

/* First message that is not the one of before; MISS_NO_MESSAGE: those of both are equal. */
static uint32_t changed_message(const struct miss_head *h, const struct api_request *rq)
{
    const uint64_t *hashes = (const uint64_t *)(const void *)h->messages.p;
    uint32_t count = (uint32_t)(h->messages.len / sizeof *hashes);
    for (uint32_t i = 0; i < count && i < rq->messages_count; i++)
        if (hashes[i] != hash_message(&rq->messages[i]))
            return i;
    return count > rq->messages_count ? rq->messages_count : MISS_NO_MESSAGE;
}

/* common: tokens that both begin with. */
static bool is_related(const struct miss_head *h, const struct job *j, uint32_t common)
{
    const uint64_t *hashes = (const uint64_t *)(const void *)h->messages.p;
    return common >= RELATED_MIN || common_end(h, &j->prompts[0]) >= RELATED_MIN ||
           (h->messages.len && j->rq.messages_count &&
            hashes[0] == hash_message(&j->rq.messages[0]));
}

/* The session's last prompt; of an agent's the one with most in common. NULL: none. */
static struct miss_head *find(const struct miss_heads *m, const struct job *j, bool own_scope)
{
    uint64_t who = hash_who(j), scope = hash_scope(j);
    struct miss_head *best = NULL;
    uint32_t most = 0;
    for (uint32_t i = 0; i < MISS_HEADS_MAX; i++) {
        struct miss_head *h = &m->heads[i];
        if (!h->used || h->who != who || (h->scope == scope) != own_scope)
            continue;
        uint32_t common = has_session(j) && own_scope ? 0 : common_of(h, &j->prompts[0]);
        bool is_better = !best || common > most || (common == most && h->used > best->used);
        if (!is_better || (!has_session(j) && !is_related(h, j, common)))
            continue;
        best = h;
        most = common;
    }
    return best;
}

/* --- the texts ----------------------------------------------------------------------------- */

static str token(const struct miss_heads *m, int32_t id) { return vocab_bytes(m->o.vocab, id); }

/* ids[from, count) as far as there is room. */
static void add_texts(const struct miss_heads *m, struct buf *out, const int32_t *ids,
                      uint32_t from, uint32_t count)
{
    size_t begin = out->len;
    for (uint32_t i = from; i < count && out->len - begin < MISS_WINDOW; i++)
        if (!buf_add(out, token(m, ids[i])))
            return;
}

/* Returns how many bytes behind the first differing token's begin are equal. */
static size_t make_texts(struct miss_heads *m, const struct miss_head *h, const struct prompt *p,
                         uint32_t common, struct miss_texts *t)
{
    size_t size = 0;
    uint32_t from = common;
    while (from > 0 && size < MISS_WINDOW / 2)
        size += token(m, p->ids[--from]).len;
    buf_clear(&m->was);
    buf_clear(&m->now);
    add_texts(m, &m->was, p->ids, from, common);
    add_texts(m, &m->now, p->ids, from, common);
    size_t begin = m->now.len;
    add_texts(m, &m->was, head_ids(h), common, head_count(h));
    add_texts(m, &m->now, p->ids, common, p->count);
    *t = (struct miss_texts){.was = buf_view(&m->was), .now = buf_view(&m->now), .at = begin,
                             .think_open = m->o.think_open, .think_close = m->o.think_close};
    while (t->at < t->was.len && t->at < t->now.len && t->was.p[t->at] == t->now.p[t->at])
        t->at++;
    return t->at - begin;
}

/* --- where it is --------------------------------------------------------------------------- */

/* The byte of the rendered text that a token begins at. A tokenizer may have put a blank or a
 * control token there that the text has not; replayed replies stand for a known piece of it. */
static size_t text_at(const struct miss_heads *m, const struct job *j, uint32_t wanted)
{
    const struct prompt_source *s = &j->source;
    size_t at = 0;
    uint32_t r = 0;
    for (uint32_t i = 0; i < wanted;) {
        if (r < s->regions_count && at >= s->regions[r].from) {
            if (wanted - i < s->regions[r].ids_count)
                return at;
            i += s->regions[r].ids_count;
            at = s->regions[r++].to;
            continue;
        }
        int32_t id = j->prompts[0].ids[i++];
        str bytes = token(m, id), rest = str_from(s->text, at);
        if (str_starts(rest, bytes))
            at += bytes.len;
        else if (bytes.len && bytes.p[0] == ' ' && str_starts(rest, str_from(bytes, 1)))
            at += bytes.len - 1;
        else if (!vocab_is_control(m->o.vocab, id))
            at += bytes.len;
    }
    return base_min(at, s->text.len);
}

struct place {
    const char *role;
    uint32_t message, part; /* MISS_NO_MESSAGE: none */
    size_t byte;            /* of the part */
    bool has_byte;
};

static struct place place_of(const struct job *j, size_t at)
{
    const struct prompt_source *s = &j->source;
    struct place out = {"template", MISS_NO_MESSAGE, MISS_NO_MESSAGE, 0, false};
    size_t from = 0;
    uint32_t i = 0;
    while (i < s->spans_count && s->spans[i].end <= at)
        from = s->spans[i++].end;
    if (i == s->spans_count || s->spans[i].origin == RENDER_TEMPLATE)
        return out;
    const struct render_span *found = &s->spans[i];
    bool is_message = found->origin == RENDER_CONTENT || found->origin == RENDER_NAME;
    if (is_message && found->message < j->rq.messages_count) {
        out.message = found->message;
        out.role = api_request_role_name(j->rq.messages[found->message].role);
    } else if (found->origin == RENDER_TOOLS) {
        out.role = "tools";
    }
    if (found->origin == RENDER_CONTENT || found->origin == RENDER_TOOLS)
        out.part = found->part;
    out.has_byte = true;
    out.byte = at - from;
    size_t begin = 0;
    for (uint32_t k = 0; k < i; begin = s->spans[k++].end) /* a part may lie in pieces */
        if (s->spans[k].origin == found->origin && s->spans[k].message == found->message &&
            s->spans[k].part == found->part)
            out.byte += s->spans[k].end - begin;
    return out;
}

/* --- the record ---------------------------------------------------------------------------- */

static void put_number(struct json_writer *w, const char *key, uint64_t n, bool is_there)
{
    json_key_z(w, key);
    if (is_there)
        json_put_u64(w, n);
    else
        json_put_null(w);
}

/* A third of it before the difference, whole characters. */
static void put_excerpt(const struct miss_heads *m, struct json_writer *w, const char *key,
                        str text, size_t at)
{
    size_t back = base_min(at, m->o.excerpt / 3), from = at - back;
    while (from < at && ((uint8_t)text.p[from] & 0xc0) == 0x80)
        from++;
    str part = str_sub(text, from, m->o.excerpt);
    json_key_z(w, key);
    if (m->o.excerpt)
        json_put_text(w, str_sub(part, 0, str_utf8_complete(part)));
    else
        json_put_null(w);
}

struct record {
    const struct miss_head *head;
    struct miss_case c;
    struct miss_texts texts;
    enum miss_reason reason;
    enum miss_hint hint;
    uint32_t changed; /* message */
    size_t into;      /* bytes of the first differing token that are equal */
};

/* Where the template changed its own words, the first changed message says whose they are. */
static void put_diff(const struct miss_heads *m, struct json_writer *w, const struct job *j,
                     const struct record *r)
{
    struct place p = place_of(j, text_at(m, j, r->c.common) + r->into);
    bool is_scaffold = p.message == MISS_NO_MESSAGE && p.part == MISS_NO_MESSAGE;
    if (is_scaffold && r->changed < j->rq.messages_count) {
        p.message = r->changed;
        p.role = api_request_role_name(j->rq.messages[r->changed].role);
    }
    json_open_object(w);
    put_number(w, "token", r->c.common, true);
    put_number(w, "message", p.message, p.message != MISS_NO_MESSAGE);
    json_key_z(w, "role");
    json_put_text_z(w, p.role);
    put_number(w, "part", p.part, p.part != MISS_NO_MESSAGE);
    put_number(w, "byte", p.byte, p.has_byte);
    put_excerpt(m, w, "was", r->texts.was, r->texts.at);
    put_excerpt(m, w, "now", r->texts.now, r->texts.at);
    json_close_object(w);
}

static bool has_diff(const struct record *r)
{
    return r->reason == MISS_REASON_CONTENT_CHANGED || r->reason == MISS_REASON_TEMPLATE_CHANGED;
}

static bool put_note(const struct miss_heads *m, struct job *j, const struct record *r,
                     struct api_note *out)
{
    struct buf text;
    buf_init(&text, RECORD_MAX);
    struct json_writer w = json_writer(&text);
    json_open_object(&w);
    put_number(&w, "expected_tokens", r->c.expected, true);
    json_key_z(&w, "reason");
    json_put_text_z(&w, miss_reason_name(r->reason));
    json_key_z(&w, "first_diff");
    if (has_diff(r))
        put_diff(m, &w, j, r);
    else
        json_put_null(&w);
    json_key_z(&w, "hint");
    if (r->hint == MISS_HINT_NONE)
        json_put_null(&w);
    else
        json_put_text_z(&w, miss_hint_name(r->hint));
    json_close_object(&w);
    out->code = STR("cache_miss");
    out->text = arena_printf(&j->arena, "%s %llu %.*s", miss_reason_name(r->reason),
                             (unsigned long long)r->head->id, STR_ARG(buf_view(&text)));
    bool ok = !text.full && out->text.len;
    buf_deinit(&text);
    return ok;
}

/* --- judging, remembering ------------------------------------------------------------------ */

static bool is_judged(const struct job *j)
{
    bool is_kind = j->rq.kind == API_KIND_CHAT || j->rq.kind == API_KIND_COMPLETE;
    return is_kind && j->prompts_count == 1 && !j->begun;
}

bool miss_heads_judge(struct miss_heads *m, struct job *j, uint32_t cached, bool is_disabled,
                      struct api_note *out)
{
    struct record r = {.c = {.cached = cached}};
    if (!is_judged(j))
        return false;
    const struct prompt *p = &j->prompts[0];
    struct miss_head *h = find(m, j, true);
    r.c.is_disabled = is_disabled || j->rq.cache == API_CACHE_OFF;
    r.c.is_other_scope = !h;
    r.head = h ? h : find(m, j, false);
    if (!r.head)
        return false;
    r.c.common = common_of(r.head, p);
    /* Of another scope only what is really equal could have been read; the rest is none of ours. */
    uint32_t allowed = h ? head_count(h) : r.c.common;
    r.c.expected = (uint32_t)base_min(allowed, p->count - 1);
    if (r.c.expected < EXPECTED_MIN || !miss_is(&r.c))
        return false;
    r.changed = changed_message(r.head, &j->rq);
    bool tools_differ = r.head->tools != hash_tools(&j->rq);
    r.c.has_changed = !j->rq.messages_count || r.changed != MISS_NO_MESSAGE || tools_differ;
    r.reason = miss_reason(&r.c);
    if (has_diff(&r)) {
        r.into = make_texts(m, h, p, r.c.common, &r.texts);
        r.texts.tools_differ = tools_differ;
        r.hint = miss_hint(&r.texts);
    }
    return put_note(m, j, &r, out);
}

/* The one to write to: a session's own, an agent's oldest of several, a free one, the oldest. */
static struct miss_head *choose(struct miss_heads *m, const struct job *j)
{
    uint64_t who = hash_who(j), scope = hash_scope(j);
    uint32_t of_who = 0, most = has_session(j) ? 1 : MISS_HEADS_OF_AGENT;
    struct miss_head *oldest = NULL, *own = NULL, *free = NULL;
    for (uint32_t i = 0; i < MISS_HEADS_MAX; i++) {
        struct miss_head *h = &m->heads[i];
        if (!h->used) {
            free = h;
            continue;
        }
        if (!oldest || h->used < oldest->used)
            oldest = h;
        if (h->who != who || h->scope != scope)
            continue;
        of_who++;
        if (!own || h->used < own->used)
            own = h;
    }
    return of_who >= most ? own : free ? free : oldest;
}

static bool make_room(struct miss_heads *m, size_t size)
{
    while (m->bytes + size > m->o.bytes_max) {
        struct miss_head *oldest = NULL;
        for (uint32_t i = 0; i < MISS_HEADS_MAX; i++) {
            struct miss_head *h = &m->heads[i];
            if (h->used && (!oldest || h->used < oldest->used))
                oldest = h;
        }
        if (!oldest)
            return false;
        drop(m, oldest);
    }
    return true;
}

void miss_heads_put(struct miss_heads *m, const struct job *j)
{
    if (!is_judged(j) || j->rq.cache == API_CACHE_OFF || j->rq.cache == API_CACHE_DROP)
        return;
    const struct prompt *p = &j->prompts[0];
    size_t ids = p->count * sizeof *p->ids, messages = j->rq.messages_count * sizeof(uint64_t);
    struct miss_head *h = has_session(j) ? NULL : find(m, j, true);
    if (!h || common_of(h, p) < head_count(h)) /* not the same conversation, grown */
        h = choose(m, j);
    if (h->used)
        drop(m, h);
    if (!make_room(m, ids + messages))
        return;
    buf_init(&h->ids, ids);
    buf_init(&h->messages, messages);
    bool ok = buf_add_bytes(&h->ids, p->ids, ids);
    for (uint32_t i = 0; ok && i < j->rq.messages_count; i++) {
        uint64_t hash = hash_message(&j->rq.messages[i]);
        ok = buf_add_bytes(&h->messages, &hash, sizeof hash);
    }
    h->scope = hash_scope(j);
    h->who = hash_who(j);
    h->id = j->rq.id;
    h->tools = hash_tools(&j->rq);
    h->used = ++m->clock;
    m->bytes += h->ids.len + h->messages.len;
    if (!ok) /* without memory there is no past, that is all */
        drop(m, h);
}
