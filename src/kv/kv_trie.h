/* kv_trie - which token prefixes do we already have?
 *
 * Owns:      the tree, its nodes, one reference on every page a node names.
 * Not:       pages (kv_pool), bytes on SSD (kv_tier), which request may read which scope (serve).
 * Invariant: a node is one page of each group for up to 32 tokens and never changes what it says;
 *            it may give up pages of groups with a window, or take an equal page for its own. Only
 *            the end of a path is partly filled. A child is seen by its scope and, if public, by
 *            all. In the list of all nodes a child stands before its parent, so the oldest node is
 *            always a leaf. A pinned page is held once more, so nothing that frees pages can take
 *            it: of groups with a window only what the token behind the pin sees.
 *
 *     root --"system prompt" (12 nodes)--+-- agent A turn 1 (3) -- turn 2 (1)
 *                                        +-- agent B turn 1 (4)
 *     a match may end inside a page: the sequence holds that page too and copies it when it writes
 *
 * Thread:    engine thread.
 * Limits:    nodes_max at init: insert evicts a leaf or stops, it never grows. Scopes:
 *            KV_TRIE_SCOPES_MAX; what comes under further ones is not kept.
 */
#ifndef SHOAL_KV_KV_TRIE_H
#define SHOAL_KV_KV_TRIE_H

#include "base/arena.h"
#include "base/map.h"
#include "kv/kv_pool.h"
#include "kv/kv_tier.h"

#define KV_NODE_NONE UINT32_MAX
#define KV_TRIE_SCOPES_MAX 65536u
/* What a path is worth keeping (BEHAVIOUR 8.11): where conversations part; one that waits for a
 * tool, and is back in seconds; one that named a session, and is expected; else 1. */
#define KV_TRIE_WEIGHT_FORK 4u
#define KV_TRIE_WEIGHT_TOOL 3u
#define KV_TRIE_WEIGHT_SESSION 2u
#define KV_TRIE_LOOK 16u   /* oldest leaves that an eviction chooses from */
#define KV_TRIE_WALK 1024u /* ... among so many of the oldest nodes, if there is one at all */

/* Who used a node, by hashes: 0 nobody yet, KV_TAG_SHARED several. */
#define KV_TAG_SHARED UINT64_MAX
struct kv_tags {
    uint64_t agent, session;
};

struct kv_node {
    uint32_t parent, child, next, previous; /* first child; siblings */
    uint32_t older, newer;                  /* list of all nodes, oldest first */
    uint32_t depth, count;                  /* pages from the root; tokens in this one */
    uint32_t scope, pins;
    uint32_t pinned[KV_GROUPS_MAX];         /* pins that need this node's page */
    uint32_t weight;                        /* what it is worth keeping, 1 = plain */
    uint64_t used;
    struct kv_tags tags;
    uint32_t pages[KV_GROUPS_MAX];
    int32_t tokens[KV_PAGE_TOKENS];
    struct kv_key key;                      /* in the tier, once somebody asked */
    bool has_key;
    bool is_wanted;                         /* whoever writes to the tier has noted it */
};

/* Told before an eviction drops a page: the last moment to copy it. Not for pages that make way for
 * equal ones. It must not change the tree. */
struct kv_trie_evicted {
    void (*on_page)(void *ctx, uint32_t node, uint32_t group);
    void *ctx;
};

/* Of nodes, and of their pages. */
struct kv_trie_pins {
    uint32_t nodes, pages[KV_GROUPS_MAX];
};

struct kv_trie_stats {
    uint64_t hits, misses, tokens_cached, evictions; /* evictions: pages */
    uint32_t nodes;
    struct kv_trie_pins pinned; /* of these, with the path to each pin */
};

struct kv_trie {
    struct kv_pool *pool;
    const struct kv_layout *layout;
    struct kv_node *nodes;
    uint32_t nodes_max, free; /* free: list by next */
    uint32_t *way;            /* [nodes_max] scratch: from a node up */
    uint32_t oldest, newest, root_child;
    uint64_t clock;
    struct map by_tokens; /* full nodes: hash of parent, scope, tokens -> node */
    struct map scopes;    /* name -> number */
    struct arena names;
    struct kv_trie_stats stats;
    struct kv_trie_evicted evicted; /* on_page NULL: nobody listens */
};

/* layout and pool must outlive t; nodes come from m. */
BASE_USE_RESULT bool kv_trie_init(struct kv_trie *t, struct kv_pool *pool,
                                  const struct kv_layout *layout, uint32_t nodes_max, struct mem *m,
                                  struct err *e);
void kv_trie_deinit(struct kv_trie *t); /* gives back every page */

/* Pages in position order, one array per group; KV_PAGE_NONE behind a window. */
struct kv_pages {
    uint32_t *pages[KV_GROUPS_MAX];
    uint32_t first[KV_GROUPS_MAX]; /* pages[g][first ..] are there */
};

/* How many of tokens[count] are there: pages of all groups without a window, of the others those
 * that the next token sees. Changes nothing. 0 is a valid answer. spare[groups], unless NULL: whole
 * pages of the match that only the tree holds, so taking them makes them unfit for eviction. */
uint32_t kv_trie_length(const struct kv_trie *t, str scope, const int32_t *tokens, uint32_t count,
                        uint32_t *spare);
/* First page of a group that a token at position `count` sees: 0 without a window. */
uint32_t kv_trie_first_seen(const struct kv_layout *l, uint32_t group, uint32_t count);
/* The same, and takes the pages: out->pages[g] has room for them all, each is held once more by the
 * caller. The last page may hold other tokens behind the match: it is copied before it is written
 * (kv_pool_own). Counts as a use. */
uint32_t kv_trie_match(struct kv_trie *t, str scope, const int32_t *tokens, uint32_t count,
                       struct kv_pages *out);
/* Adds tokens[count] with their pages, which stay the caller's too; what is there already stays as
 * it is. is_whole: the last page may be partly filled and is never written again. Returns the node
 * of the last token, or KV_NODE_NONE if nothing was kept. */
uint32_t kv_trie_insert(struct kv_trie *t, str scope, const int32_t *tokens, uint32_t count,
                        const struct kv_pages *pages, bool is_whole);

/* The full nodes of the longest path: nodes[i] is page i, whether or not it still has its pages of
 * groups with a window. Returns how many; nodes has room for count / 32. Changes nothing. */
uint32_t kv_trie_path(const struct kv_trie *t, str scope, const int32_t *tokens, uint32_t count,
                      uint32_t *nodes);
/* Name of a full node for the tier: of its tokens, all before them, and the scope. */
const struct kv_key *kv_trie_key(struct kv_trie *t, uint32_t node);
/* Seen by all. */
bool kv_trie_is_public(const struct kv_trie *t, uint32_t node);

/* A pinned node and the path to it are never evicted. Counted. */
void kv_trie_pin(struct kv_trie *t, uint32_t node);
/* What a pin of all of tokens[count] would add to stats.pinned. Changes nothing. */
void kv_trie_pin_cost(const struct kv_trie *t, str scope, const int32_t *tokens, uint32_t count,
                      struct kv_trie_pins *out);
void kv_trie_unpin(struct kv_trie *t, uint32_t node);
/* How hard a path is to lose, from node up to where it weighs as much already (BEHAVIOUR 8.11). A
 * path that forks weighs KV_TRIE_WEIGHT_FORK up to there by itself: the beginning of several
 * conversations, as a system prompt is. */
void kv_trie_weigh(struct kv_trie *t, uint32_t node, uint32_t weight);

/* Lets go of old pages of a group until `wanted` more are free or nothing is left that may go;
 * returns how many became free. */
uint32_t kv_trie_evict(struct kv_trie *t, uint32_t group, uint32_t wanted);
/* Drops everything that is not pinned. */
void kv_trie_clear(struct kv_trie *t);

/* Of a name; "" is a name of its own. */
uint64_t kv_trie_tag_of(str name);
/* The path to node was used by these, neither 0 nor KV_TAG_SHARED. */
void kv_trie_tag(struct kv_trie *t, uint32_t node, const struct kv_tags *tags);
/* Which nodes: used by these alone (a tag of 0: by anybody), of one scope unless any_scope. */
struct kv_trie_which {
    struct kv_tags tags;
    str scope;
    bool any_scope;
    bool is_look; /* nothing is dropped: on_node is all */
    void (*on_node)(void *ctx, uint32_t node); /* before it goes; must not change the tree */
    void *ctx;
};
/* Drops them, but for those that are pinned or have others below; how many. Their pages are free
 * once no sequence holds them. */
uint32_t kv_trie_drop(struct kv_trie *t, const struct kv_trie_which *which);

#endif
