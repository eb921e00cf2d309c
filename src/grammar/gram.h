/* gram - what a reply may consist of: rules over bytes, and where in them a reply is.
 *
 * Owns:      struct gram (immutable once finished), its builder, gram_state and its step by bytes.
 * Not:       tokens and masks (gram_mask), JSON Schema (gram_schema), patterns (gram_dfa), which
 *            grammar a request needs (engine/constrain).
 * Invariant: a state is a set of readings; each reading can be completed, so a reply never comes
 *            to a place where no byte may follow. Lengths and repetitions are counters, never
 *            copies. A rule is a chain of nodes that ends in RET; who enters it pushes a frame.
 *
 *     thread {node, pos, count, dfa} -> frame {node, count} -> frame -> ... -> none
 *             "in the name of a key"      "third item of"      "property 2 of"
 *
 * Thread:    a gram is built by one thread and may be read by any; a state belongs to its sequence.
 * Limits:    gram_limits at init; GRAM_DEPTH_MAX frames in a reading, GRAM_THREADS_MAX readings
 *            and GRAM_FRAMES_MAX frames in a state. Readings past that are given up: the reply is
 *            still one of the grammar. With GRAM_KEYS_OPEN undeclared names no more may begin.
 */
#ifndef SHOAL_GRAMMAR_GRAM_H
#define SHOAL_GRAMMAR_GRAM_H

#include "base/buf.h"
#include "base/err.h"

#define GRAM_NONE UINT32_MAX
#define GRAM_ENDLESS UINT32_MAX
#define GRAM_DEPTH_MAX 96u
#define GRAM_THREADS_MAX 64u
#define GRAM_FRAMES_MAX 192u
#define GRAM_KEYS_OPEN 256u /* undeclared names in the objects that are open at once */
#define GRAM_KEYS_MAX (GRAM_KEYS_OPEN + GRAM_THREADS_MAX)

struct gram;

struct gram_thread {
    uint32_t node, pos, count;
    uint32_t dfa;    /* state of a pattern, or node of a trie */
    uint32_t parent; /* frame, or GRAM_NONE */
    uint32_t keys;   /* in an object: its last undeclared name; in such a name: its hash so far */
};
struct gram_frame {
    uint32_t node, count, parent, depth; /* depth: frames down from this one, itself counted */
    uint32_t keys;                       /* the object's last undeclared name, or GRAM_NONE */
};
struct gram_key { /* an undeclared name that its object has already: none comes twice */
    uint32_t hash, before; /* before: the one before it in its object, or GRAM_NONE */
};

/* Where a reply is. Plain data: copying it forks the reply. gram outlives it; NULL: nothing is
 * constrained. */
struct gram_state {
    const struct gram *gram;
    uint32_t home; /* of the gram_mask */
    uint32_t threads_count, frames_count, keys_count;
    struct gram_thread threads[GRAM_THREADS_MAX];
    struct gram_frame frames[GRAM_FRAMES_MAX];
    struct gram_key keys[GRAM_KEYS_MAX];
};

/* ---- building; sizes as the limits say, refused with ERR_LIMIT at gram_finish ---- */

struct gram_limits {
    size_t bytes_max;    /* of the whole automaton */
    int64_t deadline_ns; /* chrono; 0: none */
};

/* NULL: no memory. Free with gram_unref. */
struct gram *gram_new(const struct gram_limits *l);
struct gram *gram_ref(struct gram *g);
void gram_unref(struct gram *g); /* NULL is fine */

/* Each returns the new node, which goes on at `next`. Nodes may be named before they are made:
 * gram_hole gives one that gram_fill turns into a jump. */
uint32_t gram_end(struct gram *g);                        /* the reply is complete */
uint32_t gram_return(struct gram *g);                     /* end of a rule */
uint32_t gram_bytes(struct gram *g, str bytes, uint32_t next); /* not empty */
/* The same for a marker of the model's format, which control tokens may spell. */
uint32_t gram_marker(struct gram *g, str bytes, uint32_t next);
uint32_t gram_fork(struct gram *g, const uint32_t *to, uint32_t count);
uint32_t gram_call(struct gram *g, uint32_t rule, uint32_t next);
uint32_t gram_hole(struct gram *g);
void gram_fill(struct gram *g, uint32_t hole, uint32_t to);

/* One of the texts in the trie. */
uint32_t gram_trie_new(struct gram *g);
/* False: already there (the first id stays). text is not empty. */
bool gram_trie_add(struct gram *g, uint32_t trie, str text, uint32_t id);
uint32_t gram_choice(struct gram *g, uint32_t trie, uint32_t next);

/* The same; the text with id i goes on at to[i]. None may begin another. */
uint32_t gram_switch(struct gram *g, uint32_t trie, const uint32_t *to, uint32_t count);
/* The same for texts that hold markers. */
uint32_t gram_switch_marker(struct gram *g, uint32_t trie, const uint32_t *to, uint32_t count);

/* One of the texts in the trie, none of which begins another, going on at its to[i]; or, with the
 * first byte that none of them has, at `otherwise`. The reply may end anywhere in it. skips: blanks
 * in front of it belong to it. */
struct gram_either {
    uint32_t trie;
    const uint32_t *to;
    uint32_t count, otherwise;
    bool skips;
};
uint32_t gram_either(struct gram *g, const struct gram_either *e);

struct gram_dfa;
/* The gram takes d over (NULL is an out of memory before). Returns its number. */
uint32_t gram_add_dfa(struct gram *g, struct gram_dfa *d);
const struct gram_dfa *gram_dfa_of(const struct gram *g, uint32_t number);
/* Bytes that the pattern accepts as a whole. */
uint32_t gram_pattern(struct gram *g, uint32_t dfa, uint32_t next);

/* A JSON string with its quotes. Lengths in code points; dfa reads its text, unescaped, or
 * GRAM_NONE; except: a trie of texts that it must not be, or GRAM_NONE. */
struct gram_string {
    uint32_t min, max, dfa, except;
    bool is_name; /* of a further member: none that its object has already */
};
uint32_t gram_text(struct gram *g, const struct gram_string *s, uint32_t next);

/* A JSON object: declared properties in order, then further members. The names are a trie of keys
 * as JSON writes them, closing quote included, ids are 0 .. count - 1. */
struct gram_property {
    uint32_t rule; /* of the value */
    bool is_required;
};
struct gram_object {
    const struct gram_property *properties;
    uint32_t count;
    uint32_t names; /* trie, or GRAM_NONE */
    uint32_t more;  /* rule of a further member, name and value, or GRAM_NONE */
};
uint32_t gram_members(struct gram *g, const struct gram_object *o, uint32_t next);

/* A JSON array: rules of the first items, then of all others (GRAM_NONE: no others). */
struct gram_array {
    const uint32_t *first;
    uint32_t first_count, rest, min, max;
};
uint32_t gram_items(struct gram *g, const struct gram_array *a, uint32_t next);

/* Free text up to and with one of the markers; marker i goes on at to[i]. Without markers: free
 * text to the end of the reply. can_end: the reply may also end inside it. The markers must not be
 * prefixes of each other; one that leads to a node without a way out (a fork of none) is banned. */
struct gram_free {
    const str *markers;
    const uint32_t *to;
    uint32_t count;
    bool can_end;
};
uint32_t gram_open(struct gram *g, const struct gram_free *f);

/* True while nothing of the limits was passed: a builder asks now and then. */
bool gram_is_fine(const struct gram *g);
/* Ends building. ERR_LIMIT: bytes, time, too many branches at one place; ERR_REQUEST: no reply can
 * ever be complete. */
BASE_USE_RESULT bool gram_finish(struct gram *g, uint32_t root, struct err *e);

/* The first state, before any byte (the others: gram_mask). */
void gram_start(const struct gram *g, struct gram_state *s);
static inline bool gram_is_on(const struct gram_state *s) { return s->gram != NULL; }

#endif
