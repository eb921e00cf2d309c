#include "grammar/gram_schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/gram_dfa.h"
#include "grammar/gram_number.h"
#include "grammar/gram_scalar.h"
#include "grammar/gram_value.h"

#define SCHEMA_ARENA_MAX ((size_t)64 << 20)
#define SCHEMA_RULES_MAX 50000u
#define SCHEMA_JSON_DEPTH 256u

static uint32_t schema_value(struct gram_compile *s, struct gram_facts *f, uint32_t depth);

static uint32_t schema_blank(struct gram *g, uint32_t next)
{
    const uint32_t to[] = {gram_bytes(g, STR(" "), next), next};
    return gram_fork(g, to, 2);
}

/* --- free JSON ----------------------------------------------------------------------------- */

static uint32_t schema_free_number(struct gram *g, uint32_t ret)
{
    struct buf b;
    struct err ignored;
    struct gram_dfa *d = gram_dfa_new();
    buf_init(&b, 4096);
    gram_number_form(&b, GRAM_NUMBER_ANY);
    bool ok = d && gram_dfa_add(d, buf_view(&b), false, &ignored) &&
              gram_dfa_finish(d, (struct gram_dfa_span){0, GRAM_DFA_FAR}, &ignored);
    buf_deinit(&b);
    if (!ok) {
        gram_dfa_free(d);
        d = NULL;
    }
    return gram_pattern(g, gram_add_dfa(g, d), ret);
}

static uint32_t schema_free_object(struct gram *g, uint32_t value, uint32_t ret)
{
    const struct gram_string name = {0, GRAM_ENDLESS, GRAM_NONE, GRAM_NONE, true};
    uint32_t member = gram_text(g, &name, gram_bytes(g, STR(":"), schema_blank(g, value)));
    const struct gram_object o = {.names = GRAM_NONE, .more = member};
    return gram_members(g, &o, ret);
}

/* A rule for each depth, the deepest one without containers. */
uint32_t gram_schema_any(struct gram *g, bool is_object)
{
    const struct gram_string text = {0, GRAM_ENDLESS, GRAM_NONE, GRAM_NONE, false};
    uint32_t ret = gram_return(g), value = GRAM_NONE;
    uint32_t to[7] = {gram_bytes(g, STR("null"), ret), gram_bytes(g, STR("true"), ret),
                      gram_bytes(g, STR("false"), ret), schema_free_number(g, ret),
                      gram_text(g, &text, ret)};
    for (uint32_t i = 0; i <= GRAM_SCHEMA_FREE_DEPTH; i++) {
        uint32_t count = 5;
        if (i > 0) {
            const struct gram_array a = {.rest = value, .max = GRAM_ENDLESS};
            to[count++] = gram_items(g, &a, ret);
            to[count++] = schema_free_object(g, value, ret);
        }
        if (is_object && i == GRAM_SCHEMA_FREE_DEPTH)
            return to[count - 1];
        value = gram_fork(g, to, count);
    }
    return value;
}

static uint32_t schema_any(struct gram_compile *s)
{
    if (s->any == GRAM_NONE)
        s->any = gram_schema_any(s->g, false);
    return s->any;
}

/* --- arrays -------------------------------------------------------------------------------- */

/* The schema of the item at index in one part: absent: any; *most falls where there can be none. */
static struct json schema_item_of(struct json v, uint32_t index, uint32_t *most)
{
    struct json first = json_member(v, "prefixItems"), rest = json_member(v, "items");
    struct json none = {0};
    bool yes;
    if (json_kind(rest) == JSON_KIND_ARRAY) { /* as drafts before 2020-12 had it */
        first = rest;
        rest = json_member(v, "additionalItems");
    }
    if (index < json_count(first) && json_kind(first) == JSON_KIND_ARRAY)
        return json_at(first, index);
    if (json_bool(rest, &yes)) {
        *most = yes || *most < index ? *most : index;
        return none;
    }
    return rest;
}

/* GRAM_NONE: no value is possible there, or it failed. */
static uint32_t schema_item(struct gram_compile *s, const struct gram_facts *f, uint32_t index,
                            uint32_t *most, uint32_t depth)
{
    struct gram_facts item = {0};
    for (uint32_t i = 0; i < f->count; i++) {
        struct json v = schema_item_of(f->parts[i].v, index, most);
        if (json_kind(v) != JSON_KIND_ABSENT && !gram_facts_add(&s->r, &item, v, GRAM_FACTS_ALONE))
            return GRAM_NONE;
    }
    uint32_t rule = index < *most ? schema_value(s, &item, depth + 1) : GRAM_SCALAR_NEVER;
    return rule == GRAM_SCALAR_NEVER ? GRAM_NONE : rule;
}

static uint32_t schema_array(struct gram_compile *s, const struct gram_facts *f, uint32_t depth)
{
    struct gram_array a = {.rest = GRAM_NONE, .min = f->items_min, .max = f->items_max};
    uint32_t first = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        struct json v = json_member(f->parts[i].v, "prefixItems");
        struct json old = json_member(f->parts[i].v, "items");
        v = json_kind(old) == JSON_KIND_ARRAY ? old : v;
        uint32_t n = json_kind(v) == JSON_KIND_ARRAY ? json_count(v) : 0;
        first = n > first ? n : first;
    }
    if (first > GRAM_SCHEMA_PROPERTIES_MAX) {
        gram_scalar_fail_limit(s, "items with schemas of their own", GRAM_SCHEMA_PROPERTIES_MAX);
        return GRAM_SCALAR_NEVER;
    }
    uint32_t *rules = ARENA_ARRAY(&s->arena, uint32_t, first);
    if (!rules)
        return gram_scalar_fail_limit(s, "bytes", SCHEMA_ARENA_MAX), GRAM_SCALAR_NEVER;
    for (uint32_t i = 0; i < first && i < a.max; i++) {
        rules[i] = schema_item(s, f, i, &a.max, depth);
        if (rules[i] == GRAM_NONE)
            a.max = a.max < i ? a.max : i;
        else
            a.first_count = i + 1;
    }
    if (a.max > first) {
        a.rest = schema_item(s, f, first, &a.max, depth);
        if (a.rest == GRAM_NONE)
            a.max = a.max < first ? a.max : first;
    }
    if (s->r.has_failed || a.max < a.min)
        return GRAM_SCALAR_NEVER;
    a.first = rules;
    return gram_items(s->g, &a, s->ret);
}

/* --- objects ------------------------------------------------------------------------------- */

struct schema_property {
    str name;
    struct json *schemas; /* [parts] that must hold */
    uint32_t count, parts; /* parts: bits of those that declare it */
    bool is_required, is_banned;
};
struct schema_object {
    struct schema_property *items;
    uint32_t count, max;
    struct map by_name;
};

static struct schema_property *schema_property(struct gram_compile *s, struct schema_object *o,
                                               const struct gram_facts *f, str name)
{
    const uint64_t *known = map_find(&o->by_name, name);
    if (known)
        return &o->items[*known];
    struct schema_property *p = o->count < o->max ? &o->items[o->count] : NULL;
    struct json *schemas = ARENA_ARRAY(&s->arena, struct json, f->count);
    if (++s->properties > GRAM_SCHEMA_PROPERTIES_MAX || !p || !schemas || !name.p ||
        !map_put(&o->by_name, name, o->count)) {
        gram_scalar_fail_limit(s, "properties", GRAM_SCHEMA_PROPERTIES_MAX);
        return NULL;
    }
    if (name.len > GRAM_SCHEMA_NAME_MAX) {
        gram_scalar_fail_limit(s, "bytes in a property's name", GRAM_SCHEMA_NAME_MAX);
        return NULL;
    }
    *p = (struct schema_property){.name = name, .schemas = schemas};
    o->count++;
    return p;
}

static bool schema_required(struct gram_compile *s, const struct gram_facts *f,
                            struct schema_object *o)
{
    for (uint32_t i = 0; i < f->count; i++) {
        struct json v = json_member(f->parts[i].v, "required");
        struct json_walk w = json_walk(v);
        bool is_right = json_kind(v) <= JSON_KIND_NULL || json_kind(v) == JSON_KIND_ARRAY;
        while (is_right && json_next(&w))
            is_right = json_kind(w.value) == JSON_KIND_STRING;
        if (!is_right && !gram_facts_wrong(&s->r, f->parts[i].v, "required",
                                           "required: array of names expected"))
            return false;
        w = json_walk(v);
        while (is_right && json_next(&w)) {
            struct schema_property *p = schema_property(s, o, f, json_text(w.value, &s->arena));
            if (!p)
                return false;
            p->is_required = true;
        }
    }
    return true;
}

/* Declared ones in the order of the parts, then what is only required. */
static bool schema_declared(struct gram_compile *s, const struct gram_facts *f,
                            struct schema_object *o)
{
    for (uint32_t i = 0; i < f->count; i++) {
        struct json v = json_member(f->parts[i].v, "properties");
        struct json_walk w = json_walk(v);
        bool is_wrong = json_kind(v) > JSON_KIND_NULL && json_kind(v) != JSON_KIND_OBJECT;
        if (is_wrong && !gram_facts_wrong(&s->r, f->parts[i].v, "properties",
                                          "properties: object expected"))
            return false;
        while (!is_wrong && json_next(&w)) {
            struct schema_property *p = schema_property(s, o, f, json_text(w.key, &s->arena));
            if (!p)
                return false;
            if (!(p->parts >> i & 1))
                p->count++;
            p->schemas[p->count - 1] = w.value; /* the last of equal names */
            p->parts |= 1u << i;
        }
    }
    return schema_required(s, f, o);
}

/* What the parts that do not declare a property say about it. */
static void schema_undeclared(const struct gram_facts *f, struct schema_object *o)
{
    for (uint32_t i = 0; i < f->count; i++) {
        struct json more = json_member(f->parts[i].v, "additionalProperties");
        bool yes = true, is_bool = json_bool(more, &yes);
        for (uint32_t k = 0; json_kind(more) > JSON_KIND_NULL && k < o->count; k++) {
            struct schema_property *p = &o->items[k];
            if (p->parts >> i & 1)
                continue;
            p->is_banned = p->is_banned || (is_bool && !yes);
            if (!is_bool)
                p->schemas[p->count++] = more;
        }
    }
}

static uint32_t schema_rule_of(struct gram_compile *s, const struct json *schemas, uint32_t count,
                               uint32_t depth)
{
    struct gram_facts f = {0};
    for (uint32_t i = 0; i < count; i++)
        if (!gram_facts_add(&s->r, &f, schemas[i], GRAM_FACTS_ALONE))
            return GRAM_SCALAR_NEVER;
    return schema_value(s, &f, depth + 1);
}

/* The rule of members that no part declares: only where one allows them, or none declares any. */
static bool schema_more(struct gram_compile *s, const struct gram_facts *f,
                        const struct schema_object *o, uint32_t *rule, uint32_t depth)
{
    struct json schemas[GRAM_FACTS_PARTS_MAX];
    uint32_t count = 0;
    bool is_explicit = false, has_properties = false, yes = true;
    *rule = GRAM_NONE;
    for (uint32_t i = 0; i < f->count; i++) {
        struct json more = json_member(f->parts[i].v, "additionalProperties");
        has_properties = has_properties ||
                         json_kind(json_member(f->parts[i].v, "properties")) > JSON_KIND_NULL;
        is_explicit = is_explicit || json_kind(more) > JSON_KIND_NULL;
        if (json_bool(more, &yes) && !yes)
            return true;
        if (json_kind(more) == JSON_KIND_OBJECT)
            schemas[count++] = more;
        else if (json_kind(more) > JSON_KIND_BOOL &&
                 !gram_facts_wrong(&s->r, f->parts[i].v, "additionalProperties",
                                   "additionalProperties: a schema expected"))
            return false;
    }
    if (!is_explicit && has_properties)
        return true;
    uint32_t value = schema_rule_of(s, schemas, count, depth);
    if (value == GRAM_SCALAR_NEVER)
        return !s->r.has_failed;
    struct gram_string name = {0, GRAM_ENDLESS, GRAM_NONE, GRAM_NONE, true};
    if (o->count)
        name.except = gram_trie_new(s->g);
    for (uint32_t i = 0; i < o->count; i++)
        gram_trie_add(s->g, name.except, o->items[i].name, i);
    uint32_t colon = gram_bytes(s->g, STR(":"), schema_blank(s->g, value));
    *rule = gram_text(s->g, &name, colon);
    return true;
}

/* Without strictness, of a member that must be there and can have no value: any value. */
static uint32_t schema_left_out(struct gram_compile *s, struct json schema)
{
    bool noted = gram_facts_refuse(&s->r, schema, "schema", "no value is possible");
    return noted ? schema_any(s) : GRAM_SCALAR_NEVER;
}

static bool schema_add_name(struct gram_compile *s, uint32_t trie, str name, uint32_t id)
{
    struct buf text;
    buf_init(&text, 8 * GRAM_SCHEMA_NAME_MAX);
    struct json_writer w = json_writer(&text);
    json_put_text(&w, name);
    gram_trie_add(s->g, trie, str_from(buf_view(&text), 1), id);
    buf_deinit(&text);
    return gram_is_fine(s->g) ||
           gram_scalar_fail_limit(s, "rules, or too much time or memory", SCHEMA_RULES_MAX);
}

static uint32_t schema_members(struct gram_compile *s, const struct gram_facts *f,
                               struct schema_object *o, uint32_t depth)
{
    struct gram_object out = {.names = GRAM_NONE};
    struct gram_property *p = ARENA_ARRAY(&s->arena, struct gram_property, o->count);
    if (!p || !schema_declared(s, f, o))
        return GRAM_SCALAR_NEVER;
    p = ARENA_ARRAY(&s->arena, struct gram_property, o->count);
    if (!p || !schema_more(s, f, o, &out.more, depth))
        return GRAM_SCALAR_NEVER;
    schema_undeclared(f, o);
    for (uint32_t i = 0; i < o->count; i++) {
        const struct schema_property *from = &o->items[i];
        uint32_t rule = from->is_banned ? GRAM_SCALAR_NEVER
                                        : schema_rule_of(s, from->schemas, from->count, depth);
        if (!s->r.has_failed && rule == GRAM_SCALAR_NEVER && from->is_required &&
            !s->r.is_strict && !from->is_banned && from->count)
            rule = schema_left_out(s, from->schemas[0]);
        if (s->r.has_failed || (rule == GRAM_SCALAR_NEVER && from->is_required))
            return GRAM_SCALAR_NEVER;
        if (rule == GRAM_SCALAR_NEVER)
            continue;
        if (out.names == GRAM_NONE)
            out.names = gram_trie_new(s->g);
        if (!schema_add_name(s, out.names, from->name, out.count))
            return GRAM_SCALAR_NEVER;
        p[out.count++] = (struct gram_property){rule, from->is_required};
    }
    out.properties = p;
    return gram_members(s->g, &out, s->ret);
}

static uint32_t schema_object(struct gram_compile *s, const struct gram_facts *f, uint32_t depth)
{
    struct schema_object o = {0};
    for (uint32_t i = 0; i < f->count; i++)
        o.max += json_count(json_member(f->parts[i].v, "properties")) +
                 json_count(json_member(f->parts[i].v, "required"));
    if (o.max > 2 * GRAM_SCHEMA_PROPERTIES_MAX) {
        gram_scalar_fail_limit(s, "properties", GRAM_SCHEMA_PROPERTIES_MAX);
        return GRAM_SCALAR_NEVER;
    }
    o.items = ARENA_ARRAY(&s->arena, struct schema_property, o.max);
    map_init(&o.by_name, o.max);
    uint32_t node = o.items ? schema_members(s, f, &o, depth) : GRAM_SCALAR_NEVER;
    if (!o.items)
        gram_scalar_fail_limit(s, "bytes", SCHEMA_ARENA_MAX);
    map_deinit(&o.by_name);
    return node;
}

/* --- branches ------------------------------------------------------------------------------ */

static bool schema_differ(struct gram_compile *s, struct gram_facts *a, struct gram_facts *b,
                          uint32_t depth);

static struct json schema_choices(const struct gram_facts *f)
{
    return json_member(f->parts[f->choice].v, f->choice_is_one ? "oneOf" : "anyOf");
}

/* The parts of f with one branch of its choice. */
static bool schema_branch(struct gram_compile *s, const struct gram_facts *f, struct json branch,
                          struct gram_facts *out)
{
    *out = (struct gram_facts){.count = f->count, .is_root = f->is_root};
    memcpy(out->parts, f->parts, f->count * sizeof *f->parts);
    if (f->choice_is_one)
        out->parts[f->choice].one_of = true;
    else
        out->parts[f->choice].any_of = true;
    return gram_facts_add(&s->r, out, branch, f->choice);
}

static bool schema_all_differ(struct gram_compile *s, const struct gram_facts *a,
                              struct gram_facts *b, uint32_t depth)
{
    struct json_walk w = json_walk(schema_choices(a));
    while (json_next(&w)) {
        struct gram_facts one;
        if (!schema_branch(s, a, w.value, &one) || !schema_differ(s, &one, b, depth + 1))
            return false;
    }
    return true;
}

static bool schema_enum_differs(struct gram_compile *s, const struct gram_facts *a,
                                const struct gram_facts *b)
{
    struct json_walk w = json_walk(a->enums[0]);
    if (a->enum_is_const[0])
        return !gram_scalar_may_be(s, a, a->enums[0]) || !gram_scalar_may_be(s, b, a->enums[0]);
    while (json_next(&w))
        if (gram_scalar_may_be(s, a, w.value) && gram_scalar_may_be(s, b, w.value))
            return false;
    return true;
}

/* The schemas of a member, and whether some part forbids it. */
static bool schema_member_of(struct gram_compile *s, const struct gram_facts *f, str name,
                             struct gram_facts *out)
{
    bool is_banned = false, yes = true;
    *out = (struct gram_facts){0};
    for (uint32_t i = 0; i < f->count; i++) {
        struct json_walk w = json_walk(json_member(f->parts[i].v, "properties"));
        struct json found = {0};
        while (json_next(&w))
            if (json_text_eq(w.key, name))
                found = w.value;
        if (json_kind(found) != JSON_KIND_ABSENT)
            is_banned = !gram_facts_add(&s->r, out, found, GRAM_FACTS_ALONE) || is_banned;
        else if (json_bool(json_member(f->parts[i].v, "additionalProperties"), &yes) && !yes)
            is_banned = true;
    }
    return is_banned;
}

static bool schema_requires(const struct gram_facts *f, str name)
{
    for (uint32_t i = 0; i < f->count; i++) {
        struct json_walk w = json_walk(json_member(f->parts[i].v, "required"));
        while (json_next(&w))
            if (json_text_eq(w.value, name))
                return true;
    }
    return false;
}

/* A member that a requires, and b forbids or requires otherwise. */
static bool schema_members_differ(struct gram_compile *s, const struct gram_facts *a,
                                  const struct gram_facts *b, uint32_t depth)
{
    for (uint32_t i = 0; i < a->count; i++) {
        struct json_walk w = json_walk(json_member(a->parts[i].v, "required"));
        while (json_next(&w)) {
            struct gram_facts x, y;
            str name = json_text(w.value, &s->arena);
            if (!name.p)
                continue;
            if (schema_member_of(s, b, name, &y))
                return !s->r.has_failed;
            if (!schema_requires(b, name) || schema_member_of(s, a, name, &x))
                continue;
            if (schema_differ(s, &x, &y, depth + 1))
                return true;
        }
    }
    return false;
}

/* Whether surely nothing is valid under both. "No" is always a safe answer. */
static bool schema_differ(struct gram_compile *s, struct gram_facts *a, struct gram_facts *b,
                          uint32_t depth)
{
    if (depth > 6 || !gram_facts_collect(&s->r, a) || !gram_facts_collect(&s->r, b))
        return false;
    if (a->is_never || b->is_never || !(a->types & b->types))
        return true;
    if (a->choice < a->count)
        return schema_all_differ(s, a, b, depth);
    if (b->choice < b->count)
        return schema_all_differ(s, b, a, depth);
    if (a->enums_count)
        return schema_enum_differs(s, a, b);
    if (b->enums_count)
        return schema_enum_differs(s, b, a);
    uint32_t both = a->types & b->types;
    if (both & (GRAM_TYPE_NULL | GRAM_TYPE_BOOL))
        return false;
    if (both & GRAM_TYPE_STRING && a->length_max >= b->length_min && b->length_max >= a->length_min)
        return false;
    if (both & GRAM_TYPE_ARRAY && a->items_max >= b->items_min && b->items_max >= a->items_min)
        return false;
    if (both & (GRAM_TYPE_INTEGER | GRAM_TYPE_NUMBER) && !gram_scalar_numbers_differ(s, a, b))
        return false;
    return !(both & GRAM_TYPE_OBJECT) || schema_members_differ(s, a, b, depth) ||
           schema_members_differ(s, b, a, depth);
}

/* oneOf is anyOf where the branches exclude each other; else it cannot be kept. */
static bool schema_check_one(struct gram_compile *s, const struct gram_facts *f)
{
    struct json all = schema_choices(f);
    uint32_t count = json_count(all);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = i + 1; k < count; k++) {
            struct gram_facts a, b;
            if (!schema_branch(s, f, json_at(all, i), &a) ||
                !schema_branch(s, f, json_at(all, k), &b))
                return false;
            bool differ = schema_differ(s, &a, &b, 0);
            if (s->r.has_failed)
                return false;
            char why[80];
            snprintf(why, sizeof why, "branches %u and %u may both be valid", i, k);
            if (!differ)
                return gram_facts_refuse(&s->r, f->parts[f->choice].v, "oneOf", why);
        }
    return true;
}

/* Branches that only enumerate become one trie. GRAM_NONE: they do not. */
static uint32_t schema_merge(struct gram_compile *s, const struct gram_facts *f)
{
    struct json_walk w = json_walk(schema_choices(f)), again = w;
    uint32_t count = 0;
    while (json_next(&w))
        if (json_kind(json_member(w.value, "const")) == JSON_KIND_ABSENT &&
            json_kind(json_member(w.value, "enum")) == JSON_KIND_ABSENT)
            return GRAM_NONE;
    uint32_t trie = gram_trie_new(s->g);
    while (json_next(&again)) {
        struct gram_facts one;
        if (!schema_branch(s, f, again.value, &one) || !gram_facts_collect(&s->r, &one))
            return GRAM_SCALAR_NEVER;
        if (one.choice < one.count)
            return GRAM_NONE;
        if (one.is_never)
            continue;
        if (!gram_scalar_enum_values(s, &one, trie, &count) && f->choice_is_one &&
            !gram_facts_refuse(&s->r, f->parts[f->choice].v, "oneOf", "branches share a value"))
            return GRAM_SCALAR_NEVER;
    }
    return count ? gram_choice(s->g, trie, s->ret) : GRAM_SCALAR_NEVER;
}

static uint32_t schema_branches(struct gram_compile *s, const struct gram_facts *f, uint32_t depth)
{
    uint32_t to[GRAM_SCHEMA_BRANCHES_MAX], count = 0;
    uint32_t merged = schema_merge(s, f);
    if (merged != GRAM_NONE || s->r.has_failed)
        return merged;
    struct json all = schema_choices(f);
    if (json_count(all) > GRAM_SCHEMA_BRANCHES_MAX) {
        gram_scalar_fail_limit(s, "branches of anyOf or oneOf", GRAM_SCHEMA_BRANCHES_MAX);
        return GRAM_SCALAR_NEVER;
    }
    if (f->choice_is_one && !schema_check_one(s, f))
        return GRAM_SCALAR_NEVER;
    struct json_walk w = json_walk(all);
    while (json_next(&w)) {
        struct gram_facts one;
        if (!schema_branch(s, f, w.value, &one))
            return GRAM_SCALAR_NEVER;
        uint32_t rule = schema_value(s, &one, depth + 1);
        if (s->r.has_failed)
            return GRAM_SCALAR_NEVER;
        if (rule != GRAM_SCALAR_NEVER)
            to[count++] = rule;
    }
    return count ? gram_fork(s->g, to, count) : GRAM_SCALAR_NEVER;
}

/* --- a value ------------------------------------------------------------------------------- */

static uint32_t schema_by_type(struct gram_compile *s, const struct gram_facts *f, uint32_t depth)
{
    uint32_t to[8], count = 0, found = 0;
    bool is_number = f->types & GRAM_TYPE_NUMBER;
    if (f->types & GRAM_TYPE_NULL)
        to[count++] = gram_bytes(s->g, STR("null"), s->ret);
    if (f->types & GRAM_TYPE_BOOL) {
        to[count++] = gram_bytes(s->g, STR("true"), s->ret);
        to[count++] = gram_bytes(s->g, STR("false"), s->ret);
    }
    if (f->types & (GRAM_TYPE_INTEGER | GRAM_TYPE_NUMBER))
        to[count++] = gram_scalar_number(s, f, !is_number);
    if (f->types & GRAM_TYPE_STRING)
        to[count++] = gram_scalar_text(s, f);
    if (f->types & GRAM_TYPE_ARRAY)
        to[count++] = schema_array(s, f, depth);
    if (f->types & GRAM_TYPE_OBJECT)
        to[count++] = schema_object(s, f, depth);
    for (uint32_t i = 0; i < count; i++)
        if (to[i] != GRAM_SCALAR_NEVER)
            to[found++] = to[i];
    return found ? gram_fork(s->g, to, found) : GRAM_SCALAR_NEVER;
}

static int schema_compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The same parts with the same branches chosen are the same rule. */
static str schema_key(struct gram_compile *s, const struct gram_facts *f)
{
    uint32_t words[GRAM_FACTS_PARTS_MAX + 1], n = 0;
    for (uint32_t i = 0; i < f->count; i++)
        words[n++] = f->parts[i].v.at << 2 | (uint32_t)f->parts[i].any_of << 1 |
                     (uint32_t)f->parts[i].one_of;
    qsort(words, n, sizeof *words, schema_compare);
    words[n++] = f->is_root && s->root_types != GRAM_TYPE_ALL;
    return arena_copy(&s->arena, str_view(words, n * sizeof *words));
}

static uint32_t schema_build(struct gram_compile *s, struct gram_facts *f, uint32_t depth)
{
    if (!gram_facts_collect(&s->r, f))
        return GRAM_SCALAR_NEVER;
    if (f->is_root)
        f->types &= s->root_types;
    if (f->is_never || f->types == 0)
        return GRAM_SCALAR_NEVER;
    if (f->choice < f->count)
        return schema_branches(s, f, depth);
    return f->enums_count ? gram_scalar_enum(s, f) : schema_by_type(s, f, depth);
}

static uint32_t schema_value(struct gram_compile *s, struct gram_facts *f, uint32_t depth)
{
    if (s->r.has_failed || f->is_never)
        return GRAM_SCALAR_NEVER;
    if (f->count == 0 && !f->is_root)
        return schema_any(s);
    str key = schema_key(s, f);
    const uint64_t *known = key.p ? map_find(&s->rules, key) : NULL;
    if (known)
        return (uint32_t)*known;
    if (depth > GRAM_SCHEMA_DEPTH_MAX)
        return gram_scalar_fail_limit(s, "levels", GRAM_SCHEMA_DEPTH_MAX), GRAM_SCALAR_NEVER;
    uint32_t hole = gram_hole(s->g);
    if (!key.p || !gram_is_fine(s->g) || !map_put(&s->rules, key, hole))
        return gram_scalar_fail_limit(s, "rules, or too much time or memory", SCHEMA_RULES_MAX),
               GRAM_SCALAR_NEVER;
    uint32_t node = schema_build(s, f, depth);
    if (node != GRAM_SCALAR_NEVER) {
        gram_fill(s->g, hole, node);
        return hole;
    }
    gram_fill(s->g, hole, gram_fork(s->g, NULL, 0)); /* whoever came back to it has no way out */
    *map_find(&s->rules, key) = GRAM_SCALAR_NEVER;
    if (f->count && s->never.tape == NULL)
        s->never = f->parts[f->count - 1].v;
    return GRAM_SCALAR_NEVER;
}

static bool schema_run(struct gram_compile *s, str schema, uint32_t *rule)
{
    const struct json_options o = {.depth_max = SCHEMA_JSON_DEPTH};
    struct gram_facts f = {.is_root = true};
    if (schema.len > GRAM_SCHEMA_BYTES_MAX)
        return gram_scalar_fail_limit(s, "bytes", GRAM_SCHEMA_BYTES_MAX);
    if (!json_parse(&s->r.root, schema, &o, &s->arena, s->r.e))
        return false;
    if (!gram_facts_add(&s->r, &f, s->r.root, GRAM_FACTS_ALONE))
        return false;
    *rule = schema_value(s, &f, 0);
    if (s->r.has_failed)
        return false;
    if (*rule == GRAM_SCALAR_NEVER)
        return gram_facts_fail(&s->r, s->never.tape ? s->never : s->r.root,
                               "no value is possible");
    return true;
}

bool gram_schema(struct gram *g, str schema, const struct gram_schema_options *o, uint32_t *rule,
                 struct err *e)
{
    struct gram_compile s = {
        .g = g, .any = GRAM_NONE,
        .root_types = o->is_object ? GRAM_TYPE_OBJECT : GRAM_TYPE_ALL,
        .r = {.is_strict = o->is_strict, .dropped = o->dropped, .e = e}};
    arena_init(&s.arena, SCHEMA_ARENA_MAX);
    map_init(&s.rules, SCHEMA_RULES_MAX);
    map_init(&s.dfas, SCHEMA_RULES_MAX);
    map_init(&s.r.refs, SCHEMA_RULES_MAX);
    map_init(&s.r.noted, SCHEMA_RULES_MAX);
    s.r.arena = &s.arena;
    s.ret = gram_return(g);
    bool ok = schema_run(&s, schema, rule);
    map_deinit(&s.rules);
    map_deinit(&s.dfas);
    map_deinit(&s.r.refs);
    map_deinit(&s.r.noted);
    arena_deinit(&s.arena);
    return ok;
}
