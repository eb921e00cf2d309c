#include "grammar/gram_index.h"

#include <stdlib.h>
#include <string.h>

#define INDEX_BYTES_MAX ((size_t)1 << 30)

/* A token while it is sorted. */
struct index_item {
    str bytes;
    int32_t id;
    uint32_t chars;
};

static int index_compare(const void *a, const void *b)
{
    const struct index_item *x = a, *y = b;
    int c = str_cmp(x->bytes, y->bytes);
    return c ? c : (x->id > y->id) - (x->id < y->id);
}

/* Bytes of s that are whole plain characters; *chars: how many. */
static size_t index_plain(str s, uint32_t *chars)
{
    size_t at = 0;
    for (*chars = 0; at < s.len; ++*chars) {
        uint32_t code;
        size_t n = str_utf8_decode(str_from(s, at), &code);
        if (n == 0 || code < 0x20 || code == '"' || code == '\\')
            break;
        at += n;
    }
    return at;
}

static size_t index_common(str a, str b)
{
    size_t n = a.len < b.len ? a.len : b.len, i = 0;
    while (i < n && a.p[i] == b.p[i])
        i++;
    return i;
}

/* Sorted items become nodes in depth first order: each adds what it does not share with the one
 * before it. ends[d]: the open node of depth d. */
static bool index_tree(struct gram_index_tree *t, struct index_item *items, uint32_t count,
                       struct arena *a)
{
    size_t nodes = 0, len_max = 0;
    if (count)
        qsort(items, count, sizeof *items, index_compare);
    for (uint32_t i = 0; i < count; i++) {
        nodes += items[i].bytes.len - (i ? index_common(items[i - 1].bytes, items[i].bytes) : 0);
        len_max = items[i].bytes.len > len_max ? items[i].bytes.len : len_max;
    }
    t->nodes = ARENA_ARRAY(a, struct gram_index_node, nodes);
    t->tokens = ARENA_ARRAY(a, struct gram_index_token, count);
    uint32_t *open = ARENA_ARRAY(a, uint32_t, len_max + 1);
    if (!t->nodes || !t->tokens || !open)
        return false;
    size_t depth = 0;
    for (uint32_t i = 0; i < count; i++) {
        size_t common = i ? index_common(items[i - 1].bytes, items[i].bytes) : 0;
        while (depth > common)
            t->nodes[open[depth--]].end = t->nodes_count;
        while (depth < items[i].bytes.len) {
            open[++depth] = t->nodes_count;
            t->nodes[t->nodes_count++] = (struct gram_index_node){
                .byte = (uint8_t)items[i].bytes.p[depth - 1], .depth = (uint16_t)depth, .first = i};
        }
        t->nodes[open[depth]].count++;
        t->tokens[i] = (struct gram_index_token){items[i].id, items[i].chars};
    }
    while (depth > 0)
        t->nodes[open[depth--]].end = t->nodes_count;
    t->tokens_count = count;
    return true;
}

static void index_set(uint32_t *mask, int32_t id) { mask[id / 32] |= 1u << (id % 32); }

static bool index_fill(struct gram_index *x, struct index_item *items)
{
    const struct vocab *v = x->vocab;
    uint32_t *plain[GRAM_INDEX_SHORT + 2], count = 0, tails = 0;
    for (size_t i = 0; i < countof(plain); i++) {
        plain[i] = ARENA_ARRAY(&x->arena, uint32_t, x->words);
        if (!plain[i])
            return false;
    }
    for (int32_t id = 0; vocab_has(v, id); id++) {
        str bytes = vocab_bytes(v, id);
        if (!vocab_is_control(v, id) && !vocab_is_eog(v, id) && bytes.len)
            items[count++] = (struct index_item){bytes, id, 0};
    }
    if (!index_tree(&x->all, items, count, &x->arena))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        struct index_item t = items[i];
        size_t n = index_plain(t.bytes, &t.chars);
        x->len_max = t.bytes.len > x->len_max ? (uint32_t)t.bytes.len : x->len_max;
        if (n < t.bytes.len) {
            t.bytes = str_from(t.bytes, n);
            items[tails++] = t;
            continue;
        }
        index_set(plain[GRAM_INDEX_SHORT + 1], t.id);
        for (uint32_t k = t.chars; k <= GRAM_INDEX_SHORT; k++)
            index_set(plain[k], t.id);
    }
    x->plain = plain[GRAM_INDEX_SHORT + 1];
    memcpy(x->plain_short, plain, sizeof x->plain_short);
    return index_tree(&x->tails, items, tails, &x->arena);
}

struct gram_index *gram_index_new(const struct vocab *v)
{
    struct arena a, scratch;
    arena_init(&a, INDEX_BYTES_MAX);
    arena_init(&scratch, INDEX_BYTES_MAX);
    struct gram_index *x = ARENA_NEW(&a, struct gram_index);
    struct index_item *items = ARENA_ARRAY(&scratch, struct index_item, vocab_count(v));
    bool ok = x && items;
    if (ok) {
        *x = (struct gram_index){.arena = a, .vocab = v, .words = (vocab_count(v) + 31) / 32};
        ok = index_fill(x, items);
        a = x->arena;
    }
    arena_deinit(&scratch);
    if (!ok)
        arena_deinit(&a);
    return ok ? x : NULL;
}

void gram_index_free(struct gram_index *x)
{
    if (!x)
        return;
    struct arena a = x->arena;
    arena_deinit(&a);
}
