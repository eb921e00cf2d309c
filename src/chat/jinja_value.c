#include "chat/jinja_value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/digest.h"

/* ---- Making values ---- */

struct jinja_value jinja_value_none(void) { return (struct jinja_value){.kind = JINJA_NONE}; }

struct jinja_value jinja_value_bool(bool b)
{
    return (struct jinja_value){.kind = JINJA_BOOL, .u.b = b};
}

struct jinja_value jinja_value_int(int64_t i)
{
    return (struct jinja_value){.kind = JINJA_INT, .u.i = i};
}

struct jinja_value jinja_value_float(double f)
{
    return (struct jinja_value){.kind = JINJA_FLOAT, .u.f = f};
}

struct jinja_value jinja_value_str(struct jinja_str s)
{
    return (struct jinja_value){.kind = JINJA_STRING, .u.s = s};
}

struct jinja_value jinja_value_text(struct jinja_heap *h, str bytes, uint32_t origin)
{
    return jinja_value_str(jinja_text_of(h, bytes, origin));
}

struct jinja_value jinja_value_list(struct jinja_heap *h, enum jinja_list_type type,
                                    uint32_t origin)
{
    struct jinja_list *list = jinja_text_alloc(h, 1, sizeof *list);
    if (list == NULL)
        return jinja_value_none();
    list->origin = origin;
    return (struct jinja_value){.kind = JINJA_LIST, .flavour = (uint8_t)type, .u.list = list};
}

struct jinja_value jinja_value_dict(struct jinja_heap *h, uint32_t origin)
{
    struct jinja_dict *dict = jinja_text_alloc(h, 1, sizeof *dict);
    if (dict == NULL)
        return jinja_value_none();
    dict->origin = origin;
    return (struct jinja_value){.kind = JINJA_DICT, .u.dict = dict};
}

/* Twice the room of an array in the heap; NULL when stopped. */
static void *grown(struct jinja_heap *h, const void *old, uint32_t count, uint32_t *cap,
                   size_t size)
{
    uint32_t cap_new = *cap ? *cap * 2 : 4;
    void *p = cap_new > *cap ? jinja_text_alloc(h, cap_new, size) : NULL;
    if (p == NULL)
        return NULL;
    if (count)
        memcpy(p, old, count * size);
    *cap = cap_new;
    return p;
}

void jinja_value_push(struct jinja_heap *h, struct jinja_value list, struct jinja_value item)
{
    if (list.kind != JINJA_LIST)
        return; /* its allocation failed: h->stop is set */
    struct jinja_list *l = list.u.list;
    if (l->count == l->cap) {
        void *items = grown(h, l->items, l->count, &l->cap, sizeof *l->items);
        if (items == NULL)
            return;
        l->items = items;
    }
    l->items[l->count++] = item;
}

struct jinja_value jinja_value_copy(struct jinja_heap *h, struct jinja_value list,
                                    enum jinja_list_type type)
{
    struct jinja_list *from = list.u.list;
    struct jinja_value out = jinja_value_list(h, type, from->origin);
    uint32_t first = list.flavour == JINJA_LIST_ITERATOR ? from->next : 0;
    for (uint32_t i = first; i < from->count && h->stop == JINJA_STOP_NONE; i++) {
        jinja_text_charge(h, 1);
        jinja_value_push(h, out, from->items[i]);
    }
    from->next = from->count;
    return out;
}

/* ---- Dicts ---- */

static bool is_hashable(struct jinja_value key, unsigned depth)
{
    if (key.kind == JINJA_DICT || depth > JINJA_VALUE_DEPTH_MAX)
        return false;
    if (key.kind != JINJA_LIST)
        return true;
    bool ok = key.flavour != JINJA_LIST_LIST && key.flavour != JINJA_LIST_KEYS &&
              key.flavour != JINJA_LIST_ITEMS;
    for (uint32_t i = 0; key.flavour == JINJA_LIST_TUPLE && ok && i < key.u.list->count; i++)
        ok = is_hashable(key.u.list->items[i], depth + 1);
    return ok;
}

bool jinja_value_is_hashable(struct jinja_value key) { return is_hashable(key, 0); }

/* Equal keys have equal hashes: 1, 1.0 and true are one key. A tuple's depth is bounded: it passed
 * is_hashable. */
static uint64_t hash_of(struct jinja_value key)
{
    double f = 0;
    uint64_t hash = 7;
    bool is_tuple = key.kind == JINJA_LIST && key.flavour == JINJA_LIST_TUPLE;
    for (uint32_t i = 0; is_tuple && i < key.u.list->count; i++)
        hash = hash * UINT64_C(0x9e3779b97f4a7c15) + hash_of(key.u.list->items[i]);
    if (key.kind == JINJA_STRING)
        return digest_xxh3(jinja_text_bytes(key.u.s), 1);
    if (key.kind == JINJA_BOOL)
        return key.u.b;
    if (key.kind == JINJA_INT)
        f = (double)key.u.i;
    else if (key.kind == JINJA_FLOAT)
        f = key.u.f;
    else if (key.kind != JINJA_BIG || !str_to_double(jinja_text_bytes(key.u.s), &f))
        return hash; /* none, tuples; objects, which are few */
    if (f == 0)
        return 0;
    uint64_t bits;
    memcpy(&bits, &f, sizeof bits);
    return f == 1 ? 1 : bits * UINT64_C(0x9e3779b97f4a7c15);
}

#define SLOTS_FROM 9 /* a smaller dict is searched entry by entry */

static void slot_put(struct jinja_dict *d, uint32_t entry)
{
    uint32_t mask = d->slots_count - 1, at = (uint32_t)d->entries[entry].hash & mask;
    while (d->slots[at])
        at = (at + 1) & mask;
    d->slots[at] = entry + 1;
}

/* At most half full. */
static void index_again(struct jinja_heap *h, struct jinja_dict *d)
{
    uint32_t count = 32;
    while (count < d->cap * 2)
        count *= 2;
    d->slots = jinja_text_alloc(h, count, sizeof *d->slots);
    d->slots_count = d->slots ? count : 0;
    for (uint32_t i = 0; d->slots && i < d->count; i++)
        slot_put(d, i);
}

static uint32_t entry_of(const struct jinja_dict *d, struct jinja_value key)
{
    uint64_t hash = hash_of(key);
    if (d->slots == NULL) {
        for (uint32_t i = 0; i < d->count; i++)
            if (d->entries[i].hash == hash && jinja_value_eq(d->entries[i].key, key))
                return i;
        return d->count;
    }
    uint32_t mask = d->slots_count - 1;
    for (uint32_t at = (uint32_t)hash & mask; d->slots[at]; at = (at + 1) & mask) {
        const struct jinja_entry *e = &d->entries[d->slots[at] - 1];
        if (e->hash == hash && jinja_value_eq(e->key, key))
            return d->slots[at] - 1;
    }
    return d->count;
}

struct jinja_value *jinja_value_find(struct jinja_dict *d, struct jinja_value key)
{
    uint32_t at = entry_of(d, key);
    return at < d->count ? &d->entries[at].value : NULL;
}

struct jinja_value *jinja_value_find_name(struct jinja_dict *d, str name)
{
    uint32_t len = (uint32_t)name.len;
    struct jinja_piece piece = {len, 0};
    struct jinja_text text = {(char *)(uintptr_t)name.p, len, len, &piece, 1, 1, true};
    return jinja_value_find(d, jinja_value_str((struct jinja_str){&text, 0, len}));
}

void jinja_value_put(struct jinja_heap *h, struct jinja_value dict, struct jinja_value key,
                     struct jinja_value value)
{
    if (dict.kind != JINJA_DICT && dict.kind != JINJA_NAMESPACE)
        return; /* its allocation failed: h->stop is set */
    struct jinja_dict *d = dict.u.dict;
    uint32_t at = entry_of(d, key);
    if (at < d->count) {
        d->entries[at].value = value;
        return;
    }
    bool is_full = d->count == d->cap;
    if (is_full) {
        void *entries = grown(h, d->entries, d->count, &d->cap, sizeof *d->entries);
        if (entries == NULL)
            return;
        d->entries = entries;
    }
    d->entries[d->count] = (struct jinja_entry){key, value, hash_of(key)};
    d->count++;
    if (d->count >= SLOTS_FROM && (is_full || d->slots == NULL))
        index_again(h, d);
    else if (d->slots)
        slot_put(d, d->count - 1);
}

void jinja_value_put_z(struct jinja_heap *h, struct jinja_value dict, const char *key,
                       struct jinja_value value)
{
    jinja_value_put(h, dict, jinja_value_text(h, str_of(key), 0), value);
}

bool jinja_value_remove(struct jinja_dict *d, struct jinja_value key, struct jinja_value *out)
{
    uint32_t at = entry_of(d, key);
    if (at == d->count)
        return false;
    *out = d->entries[at].value;
    d->count--;
    memmove(d->entries + at, d->entries + at + 1, (d->count - at) * sizeof *d->entries);
    if (d->slots) { /* the numbers of all later entries changed */
        memset(d->slots, 0, d->slots_count * sizeof *d->slots);
        for (uint32_t i = 0; i < d->count; i++)
            slot_put(d, i);
    }
    return true;
}

/* ---- Truth, equality, order ---- */

bool jinja_value_truth(struct jinja_value v)
{
    switch ((enum jinja_kind)v.kind) {
    case JINJA_UNDEFINED: case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return v.u.b;
    case JINJA_INT:
        return v.u.i != 0;
    case JINJA_FLOAT:
        return v.u.f != 0;
    case JINJA_STRING:
        return v.u.s.len != 0;
    case JINJA_LIST:
        return v.flavour == JINJA_LIST_ITERATOR || v.u.list->count != 0;
    case JINJA_DICT:
        return v.u.dict->count != 0;
    case JINJA_BIG: case JINJA_NAMESPACE: case JINJA_MACRO: case JINJA_LOOP: case JINJA_FUNCTION:
    case JINJA_METHOD:
        break;
    }
    return true;
}

static bool is_number(struct jinja_value v)
{
    return v.kind == JINJA_BOOL || v.kind == JINJA_INT || v.kind == JINJA_FLOAT ||
           v.kind == JINJA_BIG;
}

static int order_big(struct jinja_value a, struct jinja_value b)
{
    str x = jinja_text_bytes(a.u.s), y = jinja_text_bytes(b.u.s);
    bool x_neg = str_starts(x, STR("-")), y_neg = str_starts(y, STR("-"));
    if (x_neg != y_neg)
        return x_neg ? -1 : 1;
    int by_size = x.len != y.len ? (x.len < y.len ? -1 : 1) : str_cmp(x, y);
    return x_neg ? -by_size : by_size;
}

/* A long double holds every int64 and every double exactly. */
static long double wide(struct jinja_value v)
{
    double f = 0;
    if (v.kind == JINJA_BIG) {
        str digits = jinja_text_bytes(v.u.s);
        if (!str_to_double(digits, &f)) /* beyond a double */
            f = str_starts(digits, STR("-")) ? -INFINITY : INFINITY;
        return f;
    }
    return v.kind == JINJA_FLOAT ? (long double)v.u.f
           : v.kind == JINJA_INT ? (long double)v.u.i : (long double)v.u.b;
}

/* False for NaN. */
static bool order_numbers(struct jinja_value a, struct jinja_value b, int *out)
{
    if (a.kind == JINJA_BIG && b.kind == JINJA_BIG) {
        *out = order_big(a, b);
        return true;
    }
    long double x = wide(a), y = wide(b);
    *out = x < y ? -1 : x > y;
    return !isnan(x) && !isnan(y);
}

static bool equal(struct jinja_value a, struct jinja_value b, unsigned depth);

static bool lists_equal(const struct jinja_list *a, const struct jinja_list *b, unsigned depth)
{
    if (a == b)
        return true;
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!equal(a->items[i], b->items[i], depth + 1))
            return false;
    return true;
}

static bool dicts_equal(struct jinja_dict *a, struct jinja_dict *b, unsigned depth)
{
    if (a == b)
        return true;
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++) {
        struct jinja_value *other = jinja_value_find(b, a->entries[i].key);
        if (other == NULL || !equal(a->entries[i].value, *other, depth + 1))
            return false;
    }
    return true;
}

static bool equal(struct jinja_value a, struct jinja_value b, unsigned depth)
{
    int order;
    if (depth > JINJA_VALUE_DEPTH_MAX)
        return false;
    if (is_number(a) && is_number(b))
        return order_numbers(a, b, &order) && order == 0;
    if (a.kind != b.kind)
        return false;
    switch ((enum jinja_kind)a.kind) {
    case JINJA_UNDEFINED: case JINJA_NONE:
        return true;
    case JINJA_STRING:
        return jinja_text_eq(a.u.s, b.u.s);
    case JINJA_LIST:
        if (a.flavour >= JINJA_LIST_KEYS || a.flavour != b.flavour)
            return a.u.list == b.u.list;
        return lists_equal(a.u.list, b.u.list, depth);
    case JINJA_DICT:
        return dicts_equal(a.u.dict, b.u.dict, depth);
    case JINJA_NAMESPACE:
        return a.u.dict == b.u.dict;
    case JINJA_MACRO:
        return a.u.macro == b.u.macro;
    case JINJA_LOOP:
        return a.u.loop == b.u.loop;
    case JINJA_FUNCTION:
        return a.flavour == b.flavour;
    case JINJA_METHOD:
        return a.u.method == b.u.method;
    case JINJA_BOOL: case JINJA_INT: case JINJA_BIG: case JINJA_FLOAT:
        break;
    }
    return false;
}

bool jinja_value_eq(struct jinja_value a, struct jinja_value b) { return equal(a, b, 0); }

static bool order(struct jinja_value a, struct jinja_value b, unsigned depth, int *out)
{
    if (is_number(a) && is_number(b)) {
        if (!order_numbers(a, b, out))
            *out = 2; /* NaN: neither less, equal nor greater */
        return true;
    }
    if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) {
        *out = str_cmp(jinja_text_bytes(a.u.s), jinja_text_bytes(b.u.s));
        *out = *out < 0 ? -1 : *out > 0;
        return true;
    }
    bool are_lists = a.kind == JINJA_LIST && b.kind == JINJA_LIST && a.flavour == b.flavour &&
                     a.flavour <= JINJA_LIST_TUPLE;
    if (!are_lists || depth > JINJA_VALUE_DEPTH_MAX)
        return false;
    const struct jinja_list *x = a.u.list, *y = b.u.list;
    for (uint32_t i = 0; i < x->count && i < y->count; i++)
        if (!jinja_value_eq(x->items[i], y->items[i]))
            return order(x->items[i], y->items[i], depth + 1, out);
    *out = x->count < y->count ? -1 : x->count > y->count;
    return true;
}

bool jinja_value_order(struct jinja_value a, struct jinja_value b, int *out)
{
    return order(a, b, 0, out);
}

const char *jinja_value_type(struct jinja_value v)
{
    static const char *const lists[] = {"list", "tuple", "range", "dict_keys", "dict_values",
                                        "dict_items", "generator"};
    switch ((enum jinja_kind)v.kind) {
    case JINJA_UNDEFINED:
        return "Undefined";
    case JINJA_NONE:
        return "NoneType";
    case JINJA_BOOL:
        return "bool";
    case JINJA_INT: case JINJA_BIG:
        return "int";
    case JINJA_FLOAT:
        return "float";
    case JINJA_STRING:
        return "str";
    case JINJA_LIST:
        return lists[v.flavour];
    case JINJA_DICT:
        return "dict";
    case JINJA_NAMESPACE:
        return "Namespace";
    case JINJA_MACRO:
        return "Macro";
    case JINJA_LOOP:
        return "LoopContext";
    case JINJA_FUNCTION:
        return "function";
    case JINJA_METHOD:
        break;
    }
    return "builtin_function_or_method";
}
