#include "engine/constrain.h"

#include <string.h>

#include "base/chrono.h"
#include "base/digest.h"
#include "base/json.h"
#include "grammar/gram_dfa.h"
#include "grammar/gram_schema.h"

#define CONSTRAIN_DROPPED_MAX 65536u

struct constrain_kept {
    struct digest_128 key;
    struct gram *gram;
    struct buf dropped; /* "#/a: not\n" for each keyword left out */
    uint64_t used;
};

struct constrain {
    struct arena arena;
    const struct vocab *vocab;
    struct gram_index *index; /* made when it is needed first */
    struct constrain_kept kept[CONSTRAIN_KEPT_MAX];
    uint32_t kept_count;
    uint64_t ticks;
};

struct constrain *constrain_new(const struct vocab *v)
{
    struct arena a;
    arena_init(&a, sizeof(struct constrain) + 65536);
    struct constrain *c = ARENA_NEW(&a, struct constrain);
    if (!c) {
        arena_deinit(&a);
        return NULL;
    }
    c->arena = a;
    c->vocab = v;
    return c;
}

static void constrain_forget(struct constrain_kept *k)
{
    gram_unref(k->gram);
    buf_deinit(&k->dropped);
    *k = (struct constrain_kept){.gram = NULL};
}

void constrain_free(struct constrain *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < c->kept_count; i++)
        constrain_forget(&c->kept[i]);
    gram_index_free(c->index);
    struct arena a = c->arena;
    arena_deinit(&a);
}

void constrain_drop(struct constraint *k)
{
    gram_unref(k->gram);
    k->gram = NULL;
}

/* --- compiling ----------------------------------------------------------------------------- */

static bool constrain_regex(struct gram *g, str pattern, uint32_t *root, struct err *e)
{
    struct gram_dfa *d = gram_dfa_new();
    const struct gram_dfa_span any = {0, GRAM_DFA_FAR};
    if (!d)
        return err_set(e, ERR_MEMORY, "regex: no memory");
    if (!gram_dfa_add(d, pattern, false, e) || !gram_dfa_finish(d, any, e)) {
        gram_dfa_free(d);
        return err_wrap(e, "regex");
    }
    *root = gram_pattern(g, gram_add_dfa(g, d), gram_end(g));
    return true;
}

static bool constrain_choice(struct gram *g, str text, uint32_t *root, struct err *e)
{
    const struct json_options o = {.depth_max = 2};
    struct arena a;
    struct json v;
    uint32_t trie = gram_trie_new(g), count = 0;
    arena_init(&a, 8 * text.len + ((size_t)1 << 20));
    bool ok = json_parse(&v, text, &o, &a, e);
    if (ok && (json_kind(v) != JSON_KIND_ARRAY || json_count(v) == 0 ||
               json_count(v) > GRAM_SCHEMA_ENUMS_MAX))
        ok = err_set(e, ERR_REQUEST, "choice: array of 1 to %u texts expected",
                     GRAM_SCHEMA_ENUMS_MAX);
    struct json_walk w = json_walk(v);
    while (ok && json_next(&w)) {
        str one = json_text(w.value, &a);
        if (!one.p || one.len == 0)
            ok = err_set(e, ERR_REQUEST, "choice[%u]: a text that is not empty expected", count);
        else
            gram_trie_add(g, trie, one, 0);
        count++;
    }
    arena_deinit(&a);
    *root = gram_choice(g, trie, gram_end(g));
    return ok;
}

/* What the format asks for, up to the end of the reply; GRAM_NONE: free text. */
static bool constrain_answer(struct gram *g, const struct constrain_ask *ask, uint32_t *root,
                             struct err *e)
{
    const struct api_format *f = &ask->rq->format;
    const struct gram_schema_options o = {.is_strict = f->strict, .dropped = ask->dropped};
    uint32_t rule;
    *root = GRAM_NONE;
    switch (f->kind) {
    case API_FORMAT_TEXT:
    case API_FORMAT_COUNT_:
        return true;
    case API_FORMAT_JSON:
        *root = gram_call(g, gram_schema_any(g, true), gram_end(g));
        return true;
    case API_FORMAT_SCHEMA:
        if (!gram_schema(g, f->text, &o, &rule, e))
            return false;
        *root = gram_call(g, rule, gram_end(g));
        return true;
    case API_FORMAT_REGEX:
        return constrain_regex(g, f->text, root, e);
    case API_FORMAT_CHOICE:
        return constrain_choice(g, f->text, root, e);
    }
    return false;
}

static bool constrain_root(struct gram *g, const struct constrain_ask *ask, uint32_t *root,
                           struct err *e)
{
    if (!constrain_answer(g, ask, root, e))
        return false;
    if (constrain_tools_bind(ask) && !constrain_tools_root(g, ask, *root, root, e))
        return false;
    *root = constrain_tools_think(g, ask, *root);
    return true;
}

static struct gram *constrain_compile(const struct constrain_ask *ask, struct err *e)
{
    const struct gram_limits l = {
        .bytes_max = CONSTRAIN_BYTES_MAX,
        .deadline_ns = chrono_ns(&chrono_real) + CONSTRAIN_MS_MAX * INT64_C(1000000)};
    struct gram *g = gram_new(&l);
    uint32_t root = 0;
    if (!g) {
        err_set(e, ERR_MEMORY, "grammar: no memory");
        return NULL;
    }
    if (constrain_root(g, ask, &root, e) && gram_finish(g, root, e))
        return g;
    gram_unref(g);
    return NULL;
}

/* --- by hash ------------------------------------------------------------------------------- */

static void constrain_key_text(struct buf *b, str s)
{
    buf_add_bytes(b, &s.len, sizeof s.len);
    buf_add(b, s);
}

/* Everything that the grammar depends on. False: no memory, or too much. */
static bool constrain_key(const struct constrain_ask *ask, struct digest_128 *key)
{
    const struct api_request *rq = ask->rq;
    const uint32_t numbers[] = {(uint32_t)rq->format.kind, rq->format.strict,
                                (uint32_t)rq->tool_choice, (uint32_t)ask->begin, ask->one_call,
                                ask->tools != NULL};
    struct buf b;
    buf_init(&b, CONSTRAIN_BYTES_MAX);
    buf_add_bytes(&b, numbers, sizeof numbers);
    constrain_key_text(&b, rq->format.text);
    constrain_key_text(&b, ask->format.calls ? ask->format.calls->name : STR(""));
    constrain_key_text(&b, ask->format.think ? ask->format.think->name : STR(""));
    for (uint32_t i = 0; ask->tools && i < ask->tools->rows_count; i++) {
        const struct output_tool *t = &ask->tools->rows[i];
        const uint8_t kinds[] = {(uint8_t)t->tool->kind, t->tool->strict, t->tool->allowed};
        buf_add_bytes(&b, kinds, sizeof kinds);
        constrain_key_text(&b, t->name);
        constrain_key_text(&b, t->tool->schema);
    }
    bool ok = !b.full;
    *key = digest_xxh3_128(buf_view(&b), 0);
    buf_deinit(&b);
    return ok;
}

static struct constrain_kept *constrain_find(struct constrain *c, struct digest_128 key)
{
    for (uint32_t i = 0; i < c->kept_count; i++)
        if (digest_128_eq(c->kept[i].key, key))
            return &c->kept[i];
    return NULL;
}

/* A place for one more: a new one, or that of the one asked for longest ago. */
static struct constrain_kept *constrain_place(struct constrain *c)
{
    if (c->kept_count < CONSTRAIN_KEPT_MAX)
        return &c->kept[c->kept_count++];
    struct constrain_kept *oldest = &c->kept[0];
    for (uint32_t i = 1; i < c->kept_count; i++)
        if (c->kept[i].used < oldest->used)
            oldest = &c->kept[i];
    constrain_forget(oldest);
    return oldest;
}

static bool constrain_notes(const struct buf *dropped, struct arena *a, struct constraint *out)
{
    str rest = buf_view(dropped), line;
    struct api_note *notes = ARENA_ARRAY(a, struct api_note, API_NOTES_MAX);
    while (notes && out->notes_count < API_NOTES_MAX && str_split(&rest, '\n', &line))
        notes[out->notes_count++] = (struct api_note){STR("schema_keyword_dropped"),
                                                      arena_copy(a, line)};
    out->notes = notes;
    return notes && !a->is_full;
}

static struct constrain_kept *constrain_new_kept(struct constrain *c,
                                                 const struct constrain_ask *given,
                                                 struct digest_128 key, struct err *e)
{
    struct constrain_kept made = {.key = key};
    struct constrain_ask ask = *given;
    buf_init(&made.dropped, CONSTRAIN_DROPPED_MAX);
    ask.dropped = &made.dropped;
    made.gram = constrain_compile(&ask, e);
    if (!made.gram) {
        buf_deinit(&made.dropped);
        return NULL;
    }
    struct constrain_kept *k = constrain_place(c);
    *k = made;
    return k;
}

static bool constrain_fail(const struct constrain_ask *ask, const struct api_tool *refused,
                           const struct err *why, struct api_error *e)
{
    bool is_ours = why->code == ERR_MEMORY || why->code == ERR_UNSUPPORTED;
    bool is_tools = str_starts(str_of(why->text), STR("tool"));
    str path = refused ? refused->path : is_tools ? STR("") : ask->rq->format.path;
    str param = path.len ? path : is_tools ? STR("tools") : STR("format");
    return api_error_set(e, is_ours ? why->code : ERR_REQUEST, is_ours ? NULL : "bad_schema", param,
                         "%s", why->text);
}

bool constrain_make(struct constrain *c, const struct constrain_ask *ask, struct arena *a,
                    struct constraint *out, struct api_error *e)
{
    struct digest_128 key;
    struct err why = {0};
    const struct api_tool *refused = NULL;
    struct constrain_ask own = *ask;
    own.refused = &refused;
    *out = (struct constraint){.gram = NULL};
    if (ask->rq->format.kind == API_FORMAT_TEXT && !constrain_tools_bind(ask))
        return true;
    if (!c->index && !(c->index = gram_index_new(c->vocab)))
        return api_error_set(e, ERR_MEMORY, NULL, STR("format"), "grammar: no memory");
    if (!constrain_key(ask, &key))
        return api_error_set(e, ERR_LIMIT, NULL, STR("tools"), "tools: more than %zu bytes",
                             CONSTRAIN_BYTES_MAX);
    struct constrain_kept *k = constrain_find(c, key);
    if (!k && !(k = constrain_new_kept(c, &own, key, &why)))
        return constrain_fail(ask, refused, &why, e);
    k->used = ++c->ticks;
    out->gram = gram_ref(k->gram);
    out->index = c->index;
    return constrain_notes(&k->dropped, a, out) ||
           api_error_set(e, ERR_LIMIT, NULL, STR("format"), "request: out of its memory");
}
