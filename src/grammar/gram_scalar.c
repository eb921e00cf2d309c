#include "grammar/gram_scalar.h"

#include <string.h>

#include "base/digest.h"
#include "grammar/gram_dfa.h"
#include "grammar/gram_number.h"
#include "grammar/gram_value.h"

#define SCALAR_DFA_NEVER (GRAM_SCALAR_NEVER - 1) /* nothing matches */

bool gram_scalar_fail_limit(struct gram_compile *s, const char *what, size_t limit)
{
    if (!s->r.has_failed)
        err_set(s->r.e, ERR_LIMIT, "schema: more than %zu %s", limit, what);
    s->r.has_failed = true;
    return false;
}

/* --- patterns ------------------------------------------------------------------------------ */

#define TIME_OF_DAY \
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define FULL_DATE \
    "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)" \
    "|02-(?:0[1-9]|1\\d|2[0-8]))|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])" \
    "|(?:[02468][048]|[13579][26])00)-02-29)"
#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"

/* RFC 3339, RFC 4122, RFC 2673. The second pattern must hold, too: there is no year 0. */
static const struct { const char *name, *pattern, *also; } scalar_formats[] = {
    {"date", FULL_DATE, "\\d*[1-9]\\d*-.*"},
    {"time", TIME_OF_DAY, NULL},
    {"date-time", FULL_DATE "T" TIME_OF_DAY, "\\d*[1-9]\\d*-.*"},
    {"uuid", "[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}", NULL},
    {"ipv4", OCTET "(?:\\." OCTET "){3}", NULL},
};

/* A pattern of the automaton at hand; is_search: unanchored. */
struct scalar_pattern {
    str text;
    bool is_search;
    struct json schema; /* the keyword's value, for errors */
};

static bool scalar_pattern_failed(struct gram_compile *s, const struct gram_facts *f,
                                  const struct scalar_pattern *p, const struct err *why)
{
    struct json at = p ? p->schema : f->parts[0].v;
    const char *what = p && p->is_search ? "pattern: " : "";
    if (s->r.is_strict || !p || !p->is_search)
        return gram_facts_fail(&s->r, at, "%s%s", what, why->text);
    return gram_facts_refuse(&s->r, at, "pattern", why->text);
}

/* Of the patterns, which bounds make long, and the span. */
static struct digest_128 scalar_key(const struct scalar_pattern *p, uint32_t count,
                                    struct gram_dfa_span span)
{
    struct digest_128 hash = digest_xxh3_128(str_view(&span, sizeof span), count);
    for (uint32_t i = 0; i < count; i++) {
        const struct digest_128 one = digest_xxh3_128(p[i].text, p[i].is_search);
        const uint64_t both[] = {hash.low, hash.high, one.low, one.high};
        hash = digest_xxh3_128(str_view(both, sizeof both), 0);
    }
    return hash;
}

/* One automaton for all patterns; equal ones are shared. GRAM_NONE: none, or failed. Without
 * strictness a pattern that cannot be read is left out. *is_never: nothing matches. */
static uint32_t scalar_dfa(struct gram_compile *s, const struct gram_facts *f,
                           const struct scalar_pattern *p, uint32_t count,
                           struct gram_dfa_span span)
{
    struct err why = {0};
    const struct digest_128 hash = scalar_key(p, count, span);
    const str key = str_view(&hash, sizeof hash);
    uint64_t *known = map_find(&s->dfas, key);
    uint32_t number = known ? (uint32_t)*known : GRAM_NONE, added = 0;
    struct gram_dfa *d = known ? NULL : gram_dfa_new();
    bool ok = d != NULL;
    for (uint32_t i = 0; ok && i < count; i++) {
        if (gram_dfa_add(d, p[i].text, p[i].is_search, &why))
            added++;
        else
            ok = scalar_pattern_failed(s, f, &p[i], &why);
    }
    if (ok && added && gram_dfa_finish(d, span, &why)) {
        number = gram_add_dfa(s->g, d);
        str copy = arena_copy(&s->arena, key);
        bool is_shared = copy.p && map_put(&s->dfas, copy, number);
        (void)is_shared; /* else the next one makes its own */
        d = NULL;
    } else if (ok && added && why.code == ERR_REQUEST) {
        number = SCALAR_DFA_NEVER;
    } else if (ok && added) {
        scalar_pattern_failed(s, f, count && p[0].is_search ? &p[0] : NULL, &why);
    }
    gram_dfa_free(d);
    return number;
}

/* --- scalars ------------------------------------------------------------------------------- */

static uint32_t scalar_patterns(struct gram_compile *s, const struct gram_facts *f,
                                struct scalar_pattern *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->patterns_count; i++)
        out[n++] = (struct scalar_pattern){json_text(f->patterns[i], &s->arena), true,
                                           f->patterns[i]};
    for (uint32_t i = 0; i < f->formats_count; i++)
        for (size_t k = 0; k < countof(scalar_formats); k++) {
            if (!json_text_eq(f->formats[i], str_of(scalar_formats[k].name)))
                continue;
            out[n++] = (struct scalar_pattern){str_of(scalar_formats[k].pattern), false,
                                               f->formats[i]};
            if (scalar_formats[k].also)
                out[n++] = (struct scalar_pattern){str_of(scalar_formats[k].also), false,
                                                   f->formats[i]};
        }
    return n;
}

uint32_t gram_scalar_text(struct gram_compile *s, const struct gram_facts *f)
{
    struct scalar_pattern p[3 * GRAM_FACTS_FEW];
    struct gram_string t = {f->length_min, f->length_max, GRAM_NONE, GRAM_NONE, false};
    uint32_t count = scalar_patterns(s, f, p);
    if (count)
        t.dfa = scalar_dfa(s, f, p, count, (struct gram_dfa_span){t.min, t.max});
    if (s->r.has_failed || t.dfa == SCALAR_DFA_NEVER)
        return GRAM_SCALAR_NEVER;
    return gram_text(s->g, &t, s->ret);
}

#define SCALAR_BOUNDS_MAX ((size_t)16 << 20)

/* Bounds as patterns behind p[0 .. count); the texts, which are long, lie in a. */
static bool scalar_bounds(struct gram_compile *s, const struct gram_facts *f, struct arena *a,
                          struct scalar_pattern *p, uint32_t *count)
{
    for (uint32_t i = 0; i < f->bounds_count; i++) {
        const struct gram_facts_bound *b = &f->bounds[i];
        const struct gram_number_bound n = {json_raw(b->v), b->is_lower, b->is_exclusive};
        struct buf text;
        struct err why;
        buf_init(&text, (size_t)1 << 18);
        bool ok = gram_number_bound(&text, &n, &why);
        p[*count] = (struct scalar_pattern){arena_copy(a, buf_view(&text)), false, b->v};
        buf_deinit(&text);
        if (!ok)
            return gram_facts_fail(&s->r, b->v, "%s", why.text);
        if (!p[*count].text.p)
            return gram_scalar_fail_limit(s, "bytes", SCALAR_BOUNDS_MAX);
        ++*count;
    }
    return true;
}

uint32_t gram_scalar_number(struct gram_compile *s, const struct gram_facts *f, bool is_integer)
{
    struct scalar_pattern p[GRAM_FACTS_FEW + 1];
    struct arena a;
    struct buf form;
    uint32_t count = 1, dfa = SCALAR_DFA_NEVER;
    arena_init(&a, SCALAR_BOUNDS_MAX);
    buf_init(&form, 4096);
    gram_number_form(&form, is_integer ? GRAM_NUMBER_INTEGER
                            : f->bounds_count ? GRAM_NUMBER_DECIMAL : GRAM_NUMBER_ANY);
    p[0] = (struct scalar_pattern){buf_view(&form), false, f->parts[0].v};
    if (scalar_bounds(s, f, &a, p, &count))
        dfa = scalar_dfa(s, f, p, count, (struct gram_dfa_span){0, GRAM_DFA_FAR});
    buf_deinit(&form);
    arena_deinit(&a);
    if (s->r.has_failed || dfa == SCALAR_DFA_NEVER)
        return GRAM_SCALAR_NEVER;
    return gram_pattern(s->g, dfa, s->ret);
}

/* --- enumerations -------------------------------------------------------------------------- */

static bool scalar_runs(struct gram_compile *s, uint32_t dfa, str text)
{
    const struct gram_dfa *d = gram_dfa_of(s->g, dfa);
    struct gram_dfa_table *t = gram_dfa_whole(d), *own = NULL;
    if (!t)
        t = own = gram_dfa_table_new(d, (size_t)4 << 20);
    uint32_t state = t ? gram_dfa_start(t) : GRAM_DFA_DEAD;
    for (size_t i = 0; i < text.len && state < GRAM_DFA_FULL; i++)
        state = gram_dfa_next(t, state, (uint8_t)text.p[i]);
    bool ok = state < GRAM_DFA_FULL && gram_dfa_accepts(t, state);
    gram_dfa_table_free(own);
    return ok;
}

static uint32_t scalar_chars(str text)
{
    uint32_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += (text.p[i] & 0xc0) != 0x80;
    return n;
}

static bool scalar_text_is_valid(struct gram_compile *s, const struct gram_facts *f, struct json v)
{
    struct scalar_pattern p[3 * GRAM_FACTS_FEW];
    str text = json_text(v, &s->arena);
    uint32_t chars = scalar_chars(text), count = scalar_patterns(s, f, p);
    if (chars < f->length_min || chars > f->length_max || !count)
        return chars >= f->length_min && chars <= f->length_max;
    uint32_t dfa = scalar_dfa(s, f, p, count, (struct gram_dfa_span){0, GRAM_DFA_FAR});
    if (dfa == GRAM_NONE)
        return !s->r.has_failed; /* all of them were left out */
    return dfa != SCALAR_DFA_NEVER && scalar_runs(s, dfa, text);
}

static bool scalar_number_is_valid(struct gram_compile *s, const struct gram_facts *f,
                                   struct json v)
{
    struct scalar_pattern p[GRAM_FACTS_FEW];
    struct arena a;
    struct buf plain;
    struct err why;
    uint32_t count = 0;
    arena_init(&a, SCALAR_BOUNDS_MAX);
    buf_init(&plain, 4096);
    bool ok = gram_number_plain(&plain, json_raw(v), &why) ||
              gram_facts_fail(&s->r, v, "%s", why.text);
    bool is_integer = ok && str_find_byte(buf_view(&plain), '.') == STR_NONE;
    ok = ok && f->types & (is_integer ? GRAM_TYPE_INTEGER : GRAM_TYPE_NUMBER);
    if (ok && f->bounds_count && scalar_bounds(s, f, &a, p, &count)) {
        uint32_t dfa = scalar_dfa(s, f, p, count, (struct gram_dfa_span){0, GRAM_DFA_FAR});
        ok = !s->r.has_failed && dfa != SCALAR_DFA_NEVER && scalar_runs(s, dfa, buf_view(&plain));
    }
    buf_deinit(&plain);
    arena_deinit(&a);
    return ok;
}

static bool scalar_is_valid(struct gram_compile *s, const struct gram_facts *f, struct json v)
{
    switch (json_kind(v)) {
    case JSON_KIND_ABSENT:
        return false;
    case JSON_KIND_NULL:
        return f->types & GRAM_TYPE_NULL;
    case JSON_KIND_BOOL:
        return f->types & GRAM_TYPE_BOOL;
    case JSON_KIND_NUMBER:
        return scalar_number_is_valid(s, f, v);
    case JSON_KIND_STRING:
        return f->types & GRAM_TYPE_STRING && scalar_text_is_valid(s, f, v);
    case JSON_KIND_ARRAY:
    case JSON_KIND_OBJECT:
        if (!(f->types & (json_kind(v) == JSON_KIND_ARRAY ? GRAM_TYPE_ARRAY : GRAM_TYPE_OBJECT)))
            return false;
        return !f->has_enum_beside ||
               gram_facts_wrong(&s->r, v, "keywords beside it", "an enumerated object or array"
                                " beside other keywords is not supported");
    }
    return false;
}

/* In every enumeration but the one that v is from. */
static bool scalar_is_in_all(struct gram_compile *s, const struct gram_facts *f, struct json v)
{
    for (uint32_t i = 1; i < f->enums_count; i++) {
        struct json_walk w = json_walk(f->enums[i]);
        bool found = f->enum_is_const[i] && gram_value_eq(f->enums[i], v, &s->arena);
        while (!f->enum_is_const[i] && !found && json_next(&w))
            found = gram_value_eq(w.value, v, &s->arena);
        if (!found)
            return false;
    }
    return true;
}

/* Adds v to the trie if it is valid; *count grows then. False: it was there already. */
static bool scalar_enum_value(struct gram_compile *s, const struct gram_facts *f, struct json v,
                              uint32_t trie, uint32_t *count)
{
    struct buf text;
    if (++s->enums > GRAM_SCHEMA_ENUMS_MAX) {
        gram_scalar_fail_limit(s, "enumerated values", GRAM_SCHEMA_ENUMS_MAX);
        return true;
    }
    if (!scalar_is_in_all(s, f, v) || !scalar_is_valid(s, f, v))
        return true;
    buf_init(&text, GRAM_SCHEMA_BYTES_MAX);
    bool is_new = gram_value_write(&text, v, &s->arena) &&
                  gram_trie_add(s->g, trie, buf_view(&text), 0);
    buf_deinit(&text);
    *count += is_new;
    return is_new;
}

/* False: a value was there already. */
bool gram_scalar_enum_values(struct gram_compile *s, const struct gram_facts *f, uint32_t trie,
                               uint32_t *count)
{
    bool all_new = true;
    struct json_walk w = json_walk(f->enums[0]);
    if (f->enum_is_const[0])
        return scalar_enum_value(s, f, f->enums[0], trie, count);
    while (!s->r.has_failed && json_next(&w))
        all_new = scalar_enum_value(s, f, w.value, trie, count) && all_new;
    return all_new;
}

uint32_t gram_scalar_enum(struct gram_compile *s, const struct gram_facts *f)
{
    uint32_t trie = gram_trie_new(s->g), count = 0;
    gram_scalar_enum_values(s, f, trie, &count);
    return count ? gram_choice(s->g, trie, s->ret) : GRAM_SCALAR_NEVER;
}

/* --- comparing ----------------------------------------------------------------------------- */

bool gram_scalar_may_be(struct gram_compile *s, const struct gram_facts *f, struct json v)
{
    struct json_walk w = json_walk(f->enums_count ? f->enums[0] : v);
    bool found = f->enums_count == 0 ||
                 (f->enum_is_const[0] && gram_value_eq(f->enums[0], v, &s->arena));
    while (f->enums_count && !f->enum_is_const[0] && !found && json_next(&w))
        found = gram_value_eq(w.value, v, &s->arena);
    if (!found || !scalar_is_in_all(s, f, v))
        return false;
    if (json_kind(v) == JSON_KIND_ARRAY)
        return f->types & GRAM_TYPE_ARRAY;
    if (json_kind(v) == JSON_KIND_OBJECT)
        return f->types & GRAM_TYPE_OBJECT;
    return scalar_is_valid(s, f, v);
}

bool gram_scalar_numbers_differ(struct gram_compile *s, const struct gram_facts *a,
                                const struct gram_facts *b)
{
    struct gram_facts both = *a;
    if (a->bounds_count + b->bounds_count > GRAM_FACTS_FEW)
        return false;
    for (uint32_t i = 0; i < b->bounds_count; i++)
        both.bounds[both.bounds_count++] = b->bounds[i];
    bool is_integer = !(a->types & b->types & GRAM_TYPE_NUMBER);
    return gram_scalar_number(s, &both, is_integer) == GRAM_SCALAR_NEVER && !s->r.has_failed;
}
