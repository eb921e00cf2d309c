#include "grammar/gram_facts.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "grammar/gram.h"
#include "grammar/gram_value.h"

/* --- refusals ------------------------------------------------------------------------------ */

static void facts_pointer(struct gram_reader *r, struct json v, char *out, size_t size)
{
    struct buf b;
    buf_init(&b, 4096);
    gram_value_add_pointer(&b, r->root, v);
    size_t len = b.len < size - 4 ? b.len : size - 4;
    memcpy(out, b.p ? b.p : "", len);
    memcpy(out + len, b.len > len ? "..." : "", b.len > len ? 4 : 1);
    buf_deinit(&b);
}

bool gram_facts_fail(struct gram_reader *r, struct json v, const char *format, ...)
{
    char pointer[120], text[ERR_TEXT_MAX];
    va_list args;
    if (r->has_failed)
        return false;
    r->has_failed = true;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    facts_pointer(r, v, pointer, sizeof pointer);
    return err_set(r->e, ERR_REQUEST, "schema: %s: %s", pointer, text);
}

bool gram_facts_refuse(struct gram_reader *r, struct json v, const char *keyword, const char *why)
{
    char pointer[120];
    if (r->is_strict)
        return gram_facts_fail(r, v, "'%s' %s", keyword, why);
    uint64_t key = (uint64_t)v.at << 8 | (uint8_t)(keyword[0] + keyword[strlen(keyword) - 1]);
    if (map_find_number(&r->noted, key))
        return true;
    if (!map_put_number(&r->noted, key, 1) || !r->dropped)
        return true;
    facts_pointer(r, v, pointer, sizeof pointer);
    buf_printf(r->dropped, "%s: %s\n", pointer, keyword);
    return true;
}

bool gram_facts_wrong(struct gram_reader *r, struct json v, const char *keyword, const char *why)
{
    return r->is_strict ? gram_facts_fail(r, v, "%s", why) : gram_facts_refuse(r, v, keyword, why);
}

/* --- parts --------------------------------------------------------------------------------- */

/* Whether part i needs part j, over however many others. */
static bool facts_needs(const struct gram_facts *f, uint32_t i, uint32_t j)
{
    uint32_t seen = 0, next = UINT32_C(1) << i;
    while (next & ~seen) {
        seen |= next;
        for (uint32_t k = 0; k < f->count; k++)
            next |= seen >> k & 1 ? f->parts[k].needs : 0;
    }
    return seen >> j & 1;
}

static bool facts_follow(struct gram_reader *r, struct gram_facts *f, uint32_t part)
{
    struct json v = f->parts[part].v, ref = json_member(v, "$ref");
    if (json_kind(ref) == JSON_KIND_ABSENT)
        return true;
    str text = json_text(ref, r->arena);
    if (!text.p)
        return gram_facts_wrong(r, v, "$ref", "$ref: string expected");
    uint64_t *known = map_find(&r->refs, text);
    struct json to = {r->root.tape, known ? (uint32_t)*known - 1 : 0};
    if (!known) {
        if (text.len == 0 || text.p[0] != '#')
            return gram_facts_refuse(r, v, "$ref", "to another document is not supported");
        to = gram_value_at(r->root, text, r->arena);
        if (json_kind(to) == JSON_KIND_ABSENT)
            return gram_facts_wrong(r, v, "$ref", "$ref: nothing is at that place");
        if (!map_put(&r->refs, text, (uint64_t)to.at + 1))
            return gram_facts_fail(r, v, "too many references");
    }
    return gram_facts_add(r, f, to, part);
}

/* A schema that is there already holds already, unless it is there because of `from`: then each is
 * valid because the other is, which is no proof of either. */
static bool facts_again(struct gram_reader *r, struct gram_facts *f, uint32_t part, uint32_t from)
{
    if (from == GRAM_FACTS_ALONE)
        return true;
    if (facts_needs(f, part, from)) {
        const struct gram_part *p = &f->parts[from];
        bool is_ref = json_kind(json_member(p->v, "$ref")) != JSON_KIND_ABSENT;
        const char *keyword = is_ref ? "$ref" : p->one_of ? "oneOf" : p->any_of ? "anyOf" : "allOf";
        return gram_facts_refuse(r, p->v, keyword,
                                 "leads back to itself: recursion without a way out");
    }
    f->parts[from].needs |= UINT32_C(1) << part;
    return true;
}

bool gram_facts_add(struct gram_reader *r, struct gram_facts *f, struct json v, uint32_t from)
{
    bool yes;
    if (json_bool(v, &yes)) {
        f->is_never = f->is_never || !yes;
        return yes || gram_facts_refuse(r, v, "false", "as a schema is not supported");
    }
    if (json_kind(v) != JSON_KIND_OBJECT)
        return gram_facts_wrong(r, v, "schema", "a schema is an object or a boolean");
    uint32_t part = 0;
    while (part < f->count && f->parts[part].v.at != v.at)
        part++;
    if (part < f->count)
        return facts_again(r, f, part, from);
    if (f->count == GRAM_FACTS_PARTS_MAX)
        return gram_facts_fail(r, v, "more than %u schemas for one value", GRAM_FACTS_PARTS_MAX);
    f->parts[f->count++] = (struct gram_part){.v = v};
    if (from != GRAM_FACTS_ALONE)
        f->parts[from].needs |= UINT32_C(1) << part;
    if (!facts_follow(r, f, part))
        return false;
    struct json all = json_member(v, "allOf");
    struct json_walk w = json_walk(all);
    if (json_kind(all) != JSON_KIND_ABSENT && json_kind(all) != JSON_KIND_ARRAY)
        return gram_facts_wrong(r, v, "allOf", "allOf: array expected");
    while (json_next(&w))
        if (!gram_facts_add(r, f, w.value, part))
            return false;
    return true;
}

/* --- keywords ------------------------------------------------------------------------------ */

static bool facts_type_name(struct gram_reader *r, struct json schema, struct json v,
                            uint32_t *types)
{
    static const struct { const char *name; uint32_t types; } names[] = {
        {"null", GRAM_TYPE_NULL}, {"boolean", GRAM_TYPE_BOOL}, {"integer", GRAM_TYPE_INTEGER},
        {"number", GRAM_TYPE_INTEGER | GRAM_TYPE_NUMBER}, {"string", GRAM_TYPE_STRING},
        {"array", GRAM_TYPE_ARRAY}, {"object", GRAM_TYPE_OBJECT}};
    for (size_t i = 0; i < countof(names); i++)
        if (json_text_eq(v, str_of(names[i].name))) {
            *types |= names[i].types;
            return true;
        }
    *types = GRAM_TYPE_ALL; /* not strict */
    return gram_facts_wrong(r, schema, "type", "type: one of null, boolean, integer, number,"
                            " string, array, object expected");
}

static bool facts_type(struct gram_reader *r, struct gram_facts *f, struct json schema,
                       struct json v)
{
    uint32_t types = 0;
    bool nullable = false;
    struct json_walk w = json_walk(v);
    if (json_kind(v) != JSON_KIND_ARRAY && !facts_type_name(r, schema, v, &types))
        return false;
    while (json_kind(v) == JSON_KIND_ARRAY && json_next(&w))
        if (!facts_type_name(r, schema, w.value, &types))
            return false;
    if (json_bool(json_member(schema, "nullable"), &nullable) && nullable)
        types |= GRAM_TYPE_NULL;
    f->types &= types;
    return true;
}

/* Not strict, and no number: *out stays. */
static bool facts_count(struct gram_reader *r, struct json schema, struct json v, uint32_t *out)
{
    uint64_t n;
    if (!json_u64(v, &n))
        return gram_facts_wrong(r, schema, "length", "a length or count: integer from 0 expected");
    *out = n >= GRAM_ENDLESS ? GRAM_ENDLESS - 1 : (uint32_t)n;
    return true;
}

static bool facts_least(struct gram_reader *r, struct json schema, struct json v, uint32_t *least)
{
    uint32_t n = *least;
    if (!facts_count(r, schema, v, &n))
        return false;
    *least = n > *least ? n : *least;
    return true;
}

static bool facts_most(struct gram_reader *r, struct json schema, struct json v, uint32_t *most)
{
    uint32_t n = *most;
    if (!facts_count(r, schema, v, &n))
        return false;
    *most = n < *most ? n : *most;
    return true;
}

static bool facts_enum(struct gram_reader *r, struct gram_facts *f, struct json schema,
                       struct json v, bool is_const)
{
    if (!is_const && json_kind(v) != JSON_KIND_ARRAY)
        return gram_facts_wrong(r, schema, "enum", "enum: array expected");
    if (f->enums_count == GRAM_FACTS_FEW)
        return gram_facts_fail(r, schema, "more than %u enumerations", GRAM_FACTS_FEW);
    f->enum_is_const[f->enums_count] = is_const;
    f->enums[f->enums_count++] = v;
    return true;
}

static bool facts_bound(struct gram_reader *r, struct gram_facts *f, struct json schema,
                        struct gram_facts_bound b)
{
    if (json_kind(b.v) != JSON_KIND_NUMBER)
        return gram_facts_wrong(r, schema, "bound", "a bound: number expected");
    if (f->bounds_count == GRAM_FACTS_FEW)
        return gram_facts_fail(r, schema, "more than %u bounds", GRAM_FACTS_FEW);
    f->bounds[f->bounds_count++] = b;
    return true;
}

static bool facts_text(struct gram_reader *r, struct json schema, struct json v,
                       struct json *list, uint32_t *count)
{
    if (json_kind(v) != JSON_KIND_STRING)
        return gram_facts_wrong(r, schema, "pattern, format", "pattern, format: string expected");
    if (*count == GRAM_FACTS_FEW)
        return gram_facts_fail(r, schema, "more than %u patterns", GRAM_FACTS_FEW);
    list[(*count)++] = v;
    return true;
}

static bool facts_multiple(struct gram_reader *r, struct gram_facts *f, struct json schema,
                           struct json v)
{
    int64_t n;
    if (!json_i64(v, &n) || n != 1)
        return gram_facts_refuse(r, schema, "multipleOf", "other than 1 is not supported");
    f->is_whole = true;
    return true;
}

static void facts_choice(struct gram_facts *f, uint32_t part, bool is_one)
{
    if (f->choice < f->count || (is_one ? f->parts[part].one_of : f->parts[part].any_of))
        return;
    f->choice = part;
    f->choice_is_one = is_one;
}

enum facts_key {
    FACTS_NOTHING, FACTS_REFUSED, FACTS_TYPE, FACTS_ENUM, FACTS_CONST, FACTS_ANY_OF, FACTS_ONE_OF,
    FACTS_LENGTH_MIN, FACTS_LENGTH_MAX, FACTS_ITEMS_MIN, FACTS_ITEMS_MAX, FACTS_MIN, FACTS_MAX,
    FACTS_ABOVE, FACTS_BELOW, FACTS_MULTIPLE, FACTS_PATTERN, FACTS_FORMAT, FACTS_INSIDE
};
static const struct { const char *name; enum facts_key key; } facts_keys[] = {
    {"type", FACTS_TYPE}, {"enum", FACTS_ENUM}, {"const", FACTS_CONST}, {"anyOf", FACTS_ANY_OF},
    {"oneOf", FACTS_ONE_OF}, {"minLength", FACTS_LENGTH_MIN}, {"maxLength", FACTS_LENGTH_MAX},
    {"minItems", FACTS_ITEMS_MIN}, {"maxItems", FACTS_ITEMS_MAX}, {"minimum", FACTS_MIN},
    {"maximum", FACTS_MAX}, {"exclusiveMinimum", FACTS_ABOVE}, {"exclusiveMaximum", FACTS_BELOW},
    {"multipleOf", FACTS_MULTIPLE}, {"pattern", FACTS_PATTERN}, {"format", FACTS_FORMAT},
    {"properties", FACTS_INSIDE}, {"required", FACTS_INSIDE}, {"items", FACTS_INSIDE},
    {"additionalProperties", FACTS_INSIDE}, {"prefixItems", FACTS_INSIDE},
    {"additionalItems", FACTS_INSIDE},
    {"not", FACTS_REFUSED}, {"if", FACTS_REFUSED}, {"then", FACTS_REFUSED},
    {"else", FACTS_REFUSED}, {"dependencies", FACTS_REFUSED},
    {"dependentRequired", FACTS_REFUSED}, {"dependentSchemas", FACTS_REFUSED},
    {"patternProperties", FACTS_REFUSED}, {"propertyNames", FACTS_REFUSED},
    {"minProperties", FACTS_REFUSED}, {"maxProperties", FACTS_REFUSED},
    {"contains", FACTS_REFUSED}, {"minContains", FACTS_REFUSED}, {"maxContains", FACTS_REFUSED},
    {"uniqueItems", FACTS_REFUSED}, {"unevaluatedItems", FACTS_REFUSED},
    {"unevaluatedProperties", FACTS_REFUSED}, {"$dynamicRef", FACTS_REFUSED},
    {"$recursiveRef", FACTS_REFUSED},
};

/* What a refused keyword may say because it changes nothing. */
static bool facts_is_neutral(const char *name, struct json v)
{
    bool on;
    uint64_t n;
    if (strcmp(name, "uniqueItems") == 0)
        return json_bool(v, &on) && !on;
    if (strcmp(name, "minProperties") == 0)
        return json_u64(v, &n) && n == 0;
    if (strncmp(name, "unevaluated", 11) == 0)
        return json_bool(v, &on) && on;
    bool is_map = strncmp(name, "dependen", 8) == 0 || strcmp(name, "patternProperties") == 0;
    return is_map && json_kind(v) == JSON_KIND_OBJECT && json_count(v) == 0;
}

static bool facts_read(struct gram_reader *r, struct gram_facts *f, uint32_t part,
                       const char *name, enum facts_key key, struct json v)
{
    struct json schema = f->parts[part].v;
    switch (key) {
    case FACTS_NOTHING:
        return true;
    case FACTS_REFUSED:
        return facts_is_neutral(name, v) || gram_facts_refuse(r, schema, name, "is not supported");
    case FACTS_TYPE:
        return facts_type(r, f, schema, v);
    case FACTS_ENUM:
    case FACTS_CONST:
        return facts_enum(r, f, schema, v, key == FACTS_CONST);
    case FACTS_ANY_OF:
    case FACTS_ONE_OF:
        if (json_kind(v) != JSON_KIND_ARRAY || json_count(v) == 0)
            {
            char why[64];
            snprintf(why, sizeof why, "%s: array of schemas expected", name);
            return gram_facts_wrong(r, schema, name, why);
        }
        facts_choice(f, part, key == FACTS_ONE_OF);
        return true;
    case FACTS_LENGTH_MIN:
        return facts_least(r, schema, v, &f->length_min);
    case FACTS_LENGTH_MAX:
        return facts_most(r, schema, v, &f->length_max);
    case FACTS_ITEMS_MIN:
        f->has_enum_beside = true;
        return facts_least(r, schema, v, &f->items_min);
    case FACTS_ITEMS_MAX:
        f->has_enum_beside = true;
        return facts_most(r, schema, v, &f->items_max);
    case FACTS_MIN:
    case FACTS_ABOVE:
        return facts_bound(r, f, schema, (struct gram_facts_bound){v, true, key == FACTS_ABOVE});
    case FACTS_MAX:
    case FACTS_BELOW:
        return facts_bound(r, f, schema, (struct gram_facts_bound){v, false, key == FACTS_BELOW});
    case FACTS_MULTIPLE:
        return facts_multiple(r, f, schema, v);
    case FACTS_PATTERN:
        return facts_text(r, schema, v, f->patterns, &f->patterns_count);
    case FACTS_FORMAT:
        return facts_text(r, schema, v, f->formats, &f->formats_count);
    case FACTS_INSIDE:
        f->has_enum_beside = true;
        return strcmp(name, "prefixItems") != 0 || json_kind(v) == JSON_KIND_ARRAY ||
               gram_facts_wrong(r, schema, name, "prefixItems: array of schemas expected");
    }
    return true;
}

/* Lengths and counts that contradict each other in one schema are the client's mistake; where
 * several schemas meet they only make a value impossible. */
static bool facts_check(struct gram_reader *r, struct gram_facts *f)
{
    bool bad_length = f->length_min > f->length_max, bad_items = f->items_min > f->items_max;
    if (f->count == 1 && bad_length)
        return gram_facts_fail(r, f->parts[0].v, "minLength %u is more than maxLength %u",
                               f->length_min, f->length_max);
    if (f->count == 1 && bad_items)
        return gram_facts_fail(r, f->parts[0].v, "minItems %u is more than maxItems %u",
                               f->items_min, f->items_max);
    if (bad_length)
        f->types &= ~(uint32_t)GRAM_TYPE_STRING;
    if (bad_items)
        f->types &= ~(uint32_t)GRAM_TYPE_ARRAY;
    if (f->is_whole)
        f->types &= ~(uint32_t)GRAM_TYPE_NUMBER;
    f->is_never = f->is_never || f->types == 0;
    return true;
}

bool gram_facts_collect(struct gram_reader *r, struct gram_facts *f)
{
    f->types = GRAM_TYPE_ALL;
    f->length_max = f->items_max = GRAM_ENDLESS;
    f->choice = f->count;
    for (uint32_t i = 0; i < f->count; i++) {
        struct json_walk w = json_walk(f->parts[i].v);
        while (json_next(&w)) {
            str name = json_text(w.key, r->arena);
            for (size_t k = 0; k < countof(facts_keys); k++)
                if (str_eq_z(name, facts_keys[k].name) &&
                    !facts_read(r, f, i, facts_keys[k].name, facts_keys[k].key, w.value))
                    return false;
        }
    }
    return facts_check(r, f);
}
