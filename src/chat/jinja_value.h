/* jinja_value - the values of a template run, with Python's meaning.
 *
 * Owns:      kinds, lists and dicts; equality, order and truth of them.
 * Not:       strings (jinja_text), printing (jinja_print), JSON (jinja_json), operators and calls
 *            (jinja_eval).
 * Invariant: plain data in the run's heap. Lists, dicts and namespaces are shared by reference and
 *            may be changed by a template (append, pop, namespace); all other values never change.
 *            A container made from the request has its origin, which the punctuation of its printed
 *            form takes. Keys of a dict are hashable: no lists, no dicts, nothing that holds one.
 * Thread:    one run at a time.
 * Limits:    the heap's; walking into containers stops at JINJA_VALUE_DEPTH_MAX levels (a list that
 *            holds itself is refused there).
 */
#ifndef SHOAL_CHAT_JINJA_VALUE_H
#define SHOAL_CHAT_JINJA_VALUE_H

#include "base/err.h"
#include "chat/jinja_text.h"

#define JINJA_VALUE_DEPTH_MAX 128

enum jinja_kind {
    JINJA_UNDEFINED, JINJA_NONE, JINJA_BOOL, JINJA_INT,
    JINJA_BIG,       /* an integer beyond 64 bits: printed and compared, never computed with */
    JINJA_FLOAT, JINJA_STRING, JINJA_LIST, JINJA_DICT, JINJA_NAMESPACE, JINJA_MACRO, JINJA_LOOP,
    JINJA_FUNCTION, JINJA_METHOD
};

/* What Python type a JINJA_LIST stands for: they differ in printing, len(), [] and truth. */
enum jinja_list_type {
    JINJA_LIST_LIST, JINJA_LIST_TUPLE, JINJA_LIST_RANGE, JINJA_LIST_KEYS, JINJA_LIST_VALUES,
    JINJA_LIST_ITEMS,
    JINJA_LIST_ITERATOR /* what select, map, reverse, ... give: to be read once, no len() */
};

/* Why a value is undefined: the sentence is made when it is used. */
enum jinja_missing {
    JINJA_MISSING_NAME,    /* 'x' is undefined */
    JINJA_MISSING_MEMBER,  /* 'dict object' has no attribute 'x' */
    JINJA_MISSING_HINT     /* a sentence of its own */
};

struct jinja_list;
struct jinja_dict;
struct jinja_macro;
struct jinja_loop;
struct jinja_method;

struct jinja_value {
    uint8_t kind;
    uint8_t flavour; /* LIST: jinja_list_type; UNDEFINED: jinja_missing; FUNCTION: which */
    uint8_t owner;   /* UNDEFINED, MEMBER: jinja_kind of what lacks it */
    uint32_t origin; /* BOOL, INT, BIG, FLOAT, NONE: of its digits when printed */
    union {
        bool b;
        int64_t i;
        double f;
        struct jinja_str s; /* STRING, BIG */
        struct jinja_list *list;
        struct jinja_dict *dict; /* DICT, NAMESPACE */
        const struct jinja_macro *macro;
        struct jinja_loop *loop;
        const struct jinja_method *method;
        const str *missing; /* UNDEFINED: the name; NULL: of no name */
        const char *hint;   /* UNDEFINED, HINT: the sentence */
    } u;
};

struct jinja_list {
    struct jinja_value *items;
    uint32_t count, cap;
    uint32_t next;   /* ITERATOR: first item not read yet */
    struct jinja_call *later; /* ITERATOR: what makes the items when the first is wanted, or NULL */
    uint32_t origin;
    int64_t start, stop, step; /* RANGE, for printing */
};
struct jinja_entry {
    struct jinja_value key, value;
    uint64_t hash;
};
struct jinja_dict {
    struct jinja_entry *entries; /* in order of insertion */
    uint32_t count, cap;
    uint32_t *slots; /* entry + 1, or 0; NULL while the dict is small */
    uint32_t slots_count;
    uint32_t origin;
};

struct jinja_value jinja_value_none(void);
struct jinja_value jinja_value_bool(bool b);
struct jinja_value jinja_value_int(int64_t i);
struct jinja_value jinja_value_float(double f);
struct jinja_value jinja_value_str(struct jinja_str s);
/* bytes must outlive the run. */
struct jinja_value jinja_value_text(struct jinja_heap *h, str bytes, uint32_t origin);
struct jinja_value jinja_value_list(struct jinja_heap *h, enum jinja_list_type type,
                                    uint32_t origin);
struct jinja_value jinja_value_dict(struct jinja_heap *h, uint32_t origin);
/* A failed allocation shows in h->stop. */
void jinja_value_push(struct jinja_heap *h, struct jinja_value list, struct jinja_value item);
/* Adds or replaces; the key must be hashable. */
void jinja_value_put(struct jinja_heap *h, struct jinja_value dict, struct jinja_value key,
                     struct jinja_value value);
void jinja_value_put_z(struct jinja_heap *h, struct jinja_value dict, const char *key,
                       struct jinja_value value);

bool jinja_value_is_hashable(struct jinja_value key);
struct jinja_value *jinja_value_find(struct jinja_dict *d, struct jinja_value key);
struct jinja_value *jinja_value_find_name(struct jinja_dict *d, str name);
bool jinja_value_remove(struct jinja_dict *d, struct jinja_value key, struct jinja_value *out);
/* Shallow copy of the items of a LIST (an ITERATOR: of what is left, which is used up then). */
struct jinja_value jinja_value_copy(struct jinja_heap *h, struct jinja_value list,
                                    enum jinja_list_type type);

/* bool(v); v == w, false where the walk goes too deep. */
bool jinja_value_truth(struct jinja_value v);
bool jinja_value_eq(struct jinja_value a, struct jinja_value b);
/* -1, 0, 1 of two values that Python can order; false if it cannot. */
bool jinja_value_order(struct jinja_value a, struct jinja_value b, int *out);

/* "str", "NoneType", "dict", ...: the name of v's Python type. */
const char *jinja_value_type(struct jinja_value v);

#endif
