#include "text/trie.h"

#include <string.h>

static struct trie_node *trie_writable(struct trie *t)
{
    return (struct trie_node *)(void *)t->bytes.p;
}

void trie_init(struct trie *t)
{
    *t = (struct trie){0};
    buf_init(&t->bytes, (size_t)TRIE_NODES_MAX * sizeof(struct trie_node));
}

void trie_deinit(struct trie *t)
{
    buf_deinit(&t->bytes);
    *t = (struct trie){0};
}

uint32_t trie_step(const struct trie *t, uint32_t node, uint8_t byte)
{
    const struct trie_node *n = trie_nodes(t);
    if (node == 0)
        return t->roots[byte];
    uint32_t c = n[node].child;
    while (c && n[c].byte < byte)
        c = n[c].next;
    return c && n[c].byte == byte ? c : 0;
}

/* The new node's number, or 0. The node is not linked yet. */
static uint32_t trie_new_node(struct trie *t, uint8_t byte)
{
    struct trie_node n = {.id = TRIE_NONE, .byte = byte};
    uint32_t at = (uint32_t)(t->bytes.len / sizeof n);
    if (at == 0) { /* the root, which holds nothing itself */
        struct trie_node root = {.id = TRIE_NONE};
        if (!buf_add_bytes(&t->bytes, &root, sizeof root))
            return 0;
        at = 1;
    }
    return buf_add_bytes(&t->bytes, &n, sizeof n) ? at : 0;
}

static uint32_t trie_add_child(struct trie *t, uint32_t node, uint8_t byte)
{
    uint32_t fresh = trie_new_node(t, byte);
    if (!fresh)
        return 0;
    if (node == 0) {
        t->roots[byte] = fresh;
        return fresh;
    }
    struct trie_node *n = trie_writable(t);
    uint32_t *link = &n[node].child;
    while (*link && n[*link].byte < byte)
        link = &n[*link].next;
    n[fresh].next = *link;
    *link = fresh;
    return fresh;
}

bool trie_add(struct trie *t, str s, int32_t id)
{
    must(s.len > 0 && id >= 0);
    uint32_t node = 0;
    for (size_t i = 0; i < s.len; i++) {
        uint8_t byte = (uint8_t)s.p[i];
        uint32_t child = trie_step(t, node, byte);
        if (!child)
            child = trie_add_child(t, node, byte);
        if (!child)
            return false;
        node = child;
    }
    struct trie_node *end = trie_writable(t) + node;
    if (end->id == TRIE_NONE)
        end->id = id;
    uint8_t first = (uint8_t)s.p[0];
    if (s.len == 1) {
        t->has_single[first] = true;
    } else {
        unsigned pair = first * 256u + (uint8_t)s.p[1];
        t->pairs[pair >> 6] |= 1ull << (pair & 63);
    }
    return true;
}

size_t trie_longest(const struct trie *t, str s, int32_t *id)
{
    if (s.len == 0)
        return 0;
    uint8_t first = (uint8_t)s.p[0];
    unsigned pair = first * 256u + (s.len > 1 ? (uint8_t)s.p[1] : 0u);
    bool goes_on = s.len > 1 && (t->pairs[pair >> 6] >> (pair & 63) & 1);
    if (!goes_on && !t->has_single[first])
        return 0;
    const struct trie_node *n = trie_nodes(t);
    size_t best = 0;
    uint32_t node = t->roots[first];
    for (size_t len = 1; node; len++) {
        if (n[node].id != TRIE_NONE) {
            best = len;
            *id = n[node].id;
        }
        if (len == s.len)
            break;
        node = trie_step(t, node, (uint8_t)s.p[len]);
    }
    return best;
}
