/* trie - which of many byte strings starts here, longest first?
 *
 * Owns:      its nodes; built once, then only walked.
 * Not:       the strings (not kept), what an id means (vocab).
 * Invariant: children of a node are one list in ascending order of their byte; node 0 is the root.
 *            A walk costs one list search per byte and ends at the first byte that leads nowhere;
 *            most walks end before they begin, at a bitmap of possible first two bytes.
 *
 *     root --'<'-- '|' --'i'--'m'-- ... --'>' id 151644
 *             \--- '/' -- ...
 *
 * Thread:    built by one thread; then immutable, any thread.
 * Limits:    TRIE_NODES_MAX nodes.
 */
#ifndef SHOAL_TEXT_TRIE_H
#define SHOAL_TEXT_TRIE_H

#include "base/buf.h"
#include "base/str.h"

#define TRIE_NODES_MAX (1u << 26)
#define TRIE_NONE (-1)

struct trie_node {
    uint32_t child, next; /* 0: none */
    int32_t id;           /* of the string that ends here, or TRIE_NONE */
    uint8_t byte;
};

struct trie {
    struct buf bytes;     /* struct trie_node[] */
    uint32_t roots[256];  /* the root's children by byte */
    uint64_t pairs[1024]; /* bit first * 256 + second: some string begins so */
    bool has_single[256]; /* a string of one byte */
};

void trie_init(struct trie *t);
void trie_deinit(struct trie *t); /* also after a zeroed struct */

/* Adds s (not empty). A string that is there already keeps its first id. False: limit or memory. */
bool trie_add(struct trie *t, str s, int32_t id) BASE_USE_RESULT;

/* The longest string that s begins with: its length, 0 if there is none; *id is set if found. */
size_t trie_longest(const struct trie *t, str s, int32_t *id);

/* For walkers of their own (grammars): the child of node by byte, 0 if there is none. */
uint32_t trie_step(const struct trie *t, uint32_t node, uint8_t byte);
static inline const struct trie_node *trie_nodes(const struct trie *t)
{
    return (const struct trie_node *)(const void *)t->bytes.p;
}

#endif
