/* gram_walk - how a gram lies in memory, and one byte of one reading.
 *
 * Owns:      nodes, tries, the step; for gram, gram_walk and gram_mask alone.
 * Not:       what the nodes mean to a schema (gram_schema).
 * Invariant: a thread stands before a node (pos 0) or inside it; RET is never stood before: frames
 *            are popped when a node ends. Frames of a walk are only added; whoever tries several
 *            bytes from one place sets frames_count back.
 * Thread:    one walk belongs to one thread.
 * Limits:    frames_max of the walk; past it a reading is given up.
 */
#ifndef SHOAL_GRAMMAR_GRAM_WALK_H
#define SHOAL_GRAMMAR_GRAM_WALK_H

#include "grammar/gram.h"
#include "grammar/gram_dfa.h"

#define GRAM_PATHS_MAX 2048u /* branches that may be looked at for one byte */

enum gram_kind {
    GRAM_KIND_END, GRAM_KIND_RET, GRAM_KIND_JUMP, GRAM_KIND_BYTES, GRAM_KIND_FORK, GRAM_KIND_CALL,
    GRAM_KIND_CHOICE, GRAM_KIND_PATTERN, GRAM_KIND_TEXT, GRAM_KIND_MEMBERS, GRAM_KIND_ITEMS,
    GRAM_KIND_OPEN
};

struct gram_node {
    enum gram_kind kind;
    uint32_t next;         /* CALL, MEMBERS, ITEMS: where it goes on behind the rule */
    uint32_t first, count; /* BYTES: bytes; FORK, ITEMS, OPEN, CHOICE: lists; MEMBERS: properties */
    uint32_t rule;         /* CALL; MEMBERS: more; ITEMS: rest; CHOICE: otherwise */
    uint32_t trie;         /* CHOICE, MEMBERS: names; TEXT: except; OPEN: markers */
    uint32_t dfa;          /* PATTERN, TEXT */
    uint32_t min, max;     /* TEXT, ITEMS; CHOICE: min 1, blanks in front are skipped */
    uint32_t height;       /* frames until the rule ends; GRAM_NONE: never */
    uint32_t tallest;      /* MEMBERS, ITEMS: of the values */
    uint32_t paths;        /* branches looked at for one byte */
    bool can_end;          /* OPEN, CHOICE: there is an otherwise */
    bool is_name;          /* TEXT: of a further member */
    bool is_marker;        /* BYTES, CHOICE: control tokens may spell it */
};

struct gram_member {
    uint32_t rule;
    uint32_t required; /* index of the first required property from here on, or count */
    bool is_required;
};

struct gram_leaf { /* a node of a trie */
    uint32_t child, next, parent;
    uint32_t id;        /* of the text that ends here, or GRAM_NONE */
    uint32_t low, high; /* ids below and here */
    uint8_t byte;
};

struct gram {
    struct gram_limits limits;
    uint32_t refs;
    uint32_t root;
    bool is_full;
    size_t dfa_bytes;
    struct buf nodes, bytes, lists, members, leaves, dfas;
};

static inline struct gram_node *gram_node(const struct gram *g, uint32_t i)
{
    return (struct gram_node *)(void *)g->nodes.p + i;
}
static inline uint32_t gram_node_count(const struct gram *g)
{
    return (uint32_t)(g->nodes.len / sizeof(struct gram_node));
}
static inline const uint32_t *gram_list(const struct gram *g, uint32_t first)
{
    return (const uint32_t *)(const void *)g->lists.p + first;
}
static inline struct gram_member *gram_member(const struct gram *g, uint32_t i)
{
    return (struct gram_member *)(void *)g->members.p + i;
}
static inline struct gram_leaf *gram_leaf(const struct gram *g, uint32_t i)
{
    return (struct gram_leaf *)(void *)g->leaves.p + i;
}
static inline struct gram_dfa *gram_dfa_at(const struct gram *g, uint32_t i)
{
    return ((struct gram_dfa **)(void *)g->dfas.p)[i];
}
static inline uint32_t gram_dfa_count(const struct gram *g)
{
    return (uint32_t)(g->dfas.len / sizeof(struct gram_dfa *));
}

/* ---- TEXT: where inside a string, thread.pos ---- */
enum gram_text {
    GRAM_TEXT_BEFORE, /* the opening quote */
    GRAM_TEXT_PLAIN,
    GRAM_TEXT_CONT1, GRAM_TEXT_CONT2, GRAM_TEXT_CONT3, /* bytes that must follow */
    GRAM_TEXT_E0, GRAM_TEXT_ED, GRAM_TEXT_F0, GRAM_TEXT_F4,
    GRAM_TEXT_ESCAPE, GRAM_TEXT_HEX, GRAM_TEXT_LOW_ESCAPE, GRAM_TEXT_LOW_U, GRAM_TEXT_LOW_HEX
};
#define GRAM_TEXT_MODE(pos) ((pos) & 15u)

/* ---- walking ---- */

struct gram_threads {
    struct gram_thread *items;
    uint32_t count, max;
};

struct gram_walk {
    const struct gram *g;
    struct gram_dfa_table *const *tables; /* of g's patterns */
    struct gram_frame *frames;
    uint32_t frames_count, frames_max;
    struct gram_key *keys; /* NULL: names may come twice */
    uint32_t keys_count, keys_max;
    bool is_control; /* the bytes are a control token's: only for markers and free text */
    bool is_lenient; /* strings may be longer than they may */
    bool is_unsure;  /* something was full: the answer may be too strict */
};

/* Adds to out where t may be behind the byte. */
void gram_walk_step(struct gram_walk *w, const struct gram_thread *t, uint8_t byte,
                    struct gram_threads *out);
/* Whether a control token may come there, or where the node ends. */
bool gram_walk_may_control(const struct gram_node *n);
bool gram_walk_can_end(const struct gram_walk *w, const struct gram_thread *t);
/* Anything may follow but what breaks a marker's ban, and it may end. */
bool gram_walk_is_free(const struct gram_walk *w, const struct gram_thread *t);
bool gram_walk_is_done(const struct gram_walk *w, const struct gram_thread *t);
/* The thread before node (never RET), into *out. */
void gram_walk_enter(const struct gram_walk *w, uint32_t node, uint32_t parent,
                     struct gram_thread *out);

uint32_t gram_trie_step(const struct gram *g, uint32_t leaf, uint8_t byte); /* or GRAM_NONE */

#endif
