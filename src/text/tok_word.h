/* tok_word - what the merging tokenizers share: cutting, merging one word, remembering words.
 *
 * Owns:      the merge loop, the cache of short words, the table of byte pairs that tokens hold.
 * Not:       which pairs merge and how well (the find function of tok_bpe, tok_spm).
 * Invariant: merges happen by lowest rank, of equal ones the leftmost first, until none is left.
 *            Short words do it by looking at all pairs, long ones with a heap: the same result.
 *            An entry of the heap says that the pair at left had that rank once; it counts only
 *            if the pair there has it still.
 *
 *     symbols   H e l l o             prev <- -> next, one per character or byte
 *     heap      rank 32 | left 32     best pair on top, four children per node
 *
 * Thread:    the owner's of the tokenizer.
 * Limits:    TOK_WORD_MAX symbols in one word.
 */
#ifndef SHOAL_TEXT_TOK_WORD_H
#define SHOAL_TEXT_TOK_WORD_H

#include <string.h>

#include "text/tok.h"

#define TOK_WORD_NONE UINT32_MAX
/* Up to here looking at all pairs is faster than a heap. */
#define TOK_WORD_SHORT 32u
/* Scratch above this is given back after the word. */
#define TOK_WORD_KEEP ((size_t)4 << 20)

struct tok_symbol {
    uint32_t at, len; /* bytes of the word */
    int32_t id;       /* token, or what the kind put there */
    int32_t merged;   /* long words: what it and the next one become, and how well */
    uint32_t rank, prev, next;
};

struct tok_word {
    struct buf symbols; /* struct tok_symbol[] */
    struct buf heap;    /* uint64_t[] */
};

/* Whether left and right (neighbours) merge: how well, and into which id. */
struct tok_merger {
    bool (*find)(const void *self, const struct tok_symbol *left, const struct tok_symbol *right,
                 uint32_t *rank, int32_t *id);
    const void *self;
};

static inline void tok_word_init(struct tok_word *w)
{
    buf_init(&w->symbols, TOK_WORD_MAX * sizeof(struct tok_symbol));
    buf_init(&w->heap, TOK_WORD_MAX * 2 * sizeof(uint64_t));
}

static inline void tok_word_deinit(struct tok_word *w)
{
    buf_deinit(&w->symbols);
    buf_deinit(&w->heap);
}

/* Makes room for a new word of up to count symbols: they are the caller's to fill. */
static inline struct tok_symbol *tok_word_begin(struct tok_word *w, size_t count)
{
    buf_clear(&w->symbols);
    buf_clear(&w->heap);
    if (count > TOK_WORD_MAX || !buf_reserve(&w->symbols, count * sizeof(struct tok_symbol)))
        return NULL;
    return (struct tok_symbol *)(void *)w->symbols.p;
}

static inline void tok_word_end(struct tok_word *w)
{
    if (w->symbols.size + w->heap.size <= TOK_WORD_KEEP)
        return;
    tok_word_deinit(w);
    tok_word_init(w);
}

/* Why a word could not be added to out. */
static inline bool tok_word_failed(str word, const struct tok_ids *out, struct err *e)
{
    if (word.len > TOK_WORD_MAX)
        return err_set(e, ERR_LIMIT, "tokenizer: a stretch of %zu bytes without a place to cut is "
                       "over %zu", word.len, TOK_WORD_MAX);
    return err_set(e, ERR_LIMIT, "tokenizer: more than %zu tokens, or no memory",
                   tok_ids_count(out));
}

/* ---- short words ---- */

__attribute__((always_inline)) static inline size_t
tok_word_merge_short(struct tok_symbol *s, size_t count, struct tok_merger m)
{
    uint32_t ranks[TOK_WORD_SHORT];
    int32_t ids[TOK_WORD_SHORT];
    for (size_t i = 0; i + 1 < count; i++)
        if (!m.find(m.self, &s[i], &s[i + 1], &ranks[i], &ids[i]))
            ranks[i] = UINT32_MAX;
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (ranks[i] < ranks[best])
                best = i;
        if (ranks[best] == UINT32_MAX)
            break;
        s[best].len += s[best + 1].len;
        s[best].id = ids[best];
        count--;
        for (size_t i = best + 1; i < count; i++)
            s[i] = s[i + 1];
        for (size_t i = best; i + 1 < count; i++) {
            ranks[i] = ranks[i + 1];
            ids[i] = ids[i + 1];
        }
        if (best + 1 < count && !m.find(m.self, &s[best], &s[best + 1], &ranks[best], &ids[best]))
            ranks[best] = UINT32_MAX;
        if (best > 0 && !m.find(m.self, &s[best - 1], &s[best], &ranks[best - 1], &ids[best - 1]))
            ranks[best - 1] = UINT32_MAX;
    }
    return count;
}

/* ---- long words ---- */

static inline void tok_heap_down(uint64_t *h, size_t count, size_t at)
{
    uint64_t key = h[at];
    for (size_t child; (child = 4 * at + 1) < count; at = child) {
        size_t end = base_min(child + 4, count);
        for (size_t i = child + 1; i < end; i++)
            child = h[i] < h[child] ? i : child;
        if (h[child] >= key)
            break;
        h[at] = h[child];
    }
    h[at] = key;
}

static inline void tok_heap_add(uint64_t *h, size_t at, uint64_t key)
{
    for (size_t parent; at > 0 && h[parent = (at - 1) / 4] > key; at = parent)
        h[at] = h[parent];
    h[at] = key;
}

/* Looks up the pair at s[at]; true if it merges. */
__attribute__((always_inline)) static inline bool
tok_word_look(struct tok_symbol *s, uint32_t at, struct tok_merger m)
{
    struct tok_symbol *l = &s[at];
    if (l->next != TOK_WORD_NONE && m.find(m.self, l, &s[l->next], &l->rank, &l->merged))
        return true;
    l->rank = UINT32_MAX;
    return false;
}

static inline uint64_t tok_word_key(const struct tok_symbol *s, uint32_t at)
{
    return (uint64_t)s[at].rank << 32 | at;
}

/* Merges s[count], linked here; symbols that were merged away keep len 0. False: no memory. */
__attribute__((always_inline)) static inline bool
tok_word_merge_long(struct tok_word *w, struct tok_symbol *s, size_t count, struct tok_merger m)
{
    /* Each merge removes one entry and adds at most two, so 2 * count entries are enough. */
    if (!buf_reserve(&w->heap, 2 * count * sizeof(uint64_t)))
        return false;
    uint64_t *h = (uint64_t *)(void *)w->heap.p;
    size_t entries = 0;
    for (uint32_t i = 0; i < count; i++) {
        s[i].prev = i ? i - 1 : TOK_WORD_NONE;
        s[i].next = i + 1 < count ? i + 1 : TOK_WORD_NONE;
        if (tok_word_look(s, i, m))
            h[entries++] = tok_word_key(s, i);
    }
    for (size_t i = entries / 4 + 1; i-- > 0;)
        if (i < entries)
            tok_heap_down(h, entries, i);
    while (entries) {
        uint32_t at = (uint32_t)h[0], rank = (uint32_t)(h[0] >> 32);
        h[0] = h[--entries];
        tok_heap_down(h, entries, 0);
        struct tok_symbol *left = &s[at];
        if (left->len == 0 || left->rank != rank)
            continue;
        struct tok_symbol *right = &s[left->next];
        left->len += right->len;
        left->id = left->merged;
        left->next = right->next;
        right->len = 0;
        if (left->next != TOK_WORD_NONE)
            s[left->next].prev = at;
        if (tok_word_look(s, at, m))
            tok_heap_add(h, entries++, tok_word_key(s, at));
        if (left->prev != TOK_WORD_NONE && tok_word_look(s, left->prev, m))
            tok_heap_add(h, entries++, tok_word_key(s, left->prev));
    }
    return true;
}

/* Merges the symbols of a word in place and packs what is left: *count becomes their number. */
__attribute__((always_inline)) static inline bool
tok_word_merge(struct tok_word *w, struct tok_symbol *s, size_t *count, struct tok_merger m)
{
    if (*count <= TOK_WORD_SHORT) {
        *count = tok_word_merge_short(s, *count, m);
        return true;
    }
    if (!tok_word_merge_long(w, s, *count, m))
        return false;
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++)
        if (s[i].len)
            s[kept++] = s[i];
    *count = kept;
    return true;
}

/* ---- words seen before ---- */

#define TOK_CACHE_SLOTS 32768u /* 2 MB; with 8192 a long English text misses three times as often */
#define TOK_CACHE_BYTES 22u
#define TOK_CACHE_IDS 10u

/* One cache line. */
struct tok_cached {
    uint8_t len, count;
    char bytes[TOK_CACHE_BYTES];
    int32_t ids[TOK_CACHE_IDS];
};

static inline uint64_t tok_cache_load(const char *p, size_t len)
{
    uint64_t v = 0;
    memcpy(&v, p, len);
    return v;
}

/* word.len 1 .. TOK_CACHE_BYTES */
static inline struct tok_cached *tok_cache_slot(struct tok_cached *cache, str word)
{
    uint64_t a, b, c = 0;
    if (word.len >= 8) {
        a = tok_cache_load(word.p, 8);
        b = tok_cache_load(word.p + word.len - 8, 8);
        if (word.len > 16)
            c = tok_cache_load(word.p + 8, 8);
    } else if (word.len >= 4) {
        a = tok_cache_load(word.p, 4);
        b = tok_cache_load(word.p + word.len - 4, 4);
    } else {
        a = (uint8_t)word.p[0] | (uint64_t)(uint8_t)word.p[word.len / 2] << 8;
        b = (uint8_t)word.p[word.len - 1];
    }
    uint64_t x = (a ^ word.len) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 29) ^ b) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 32) ^ c) * 0x94d049bb133111ebull;
    return &cache[x >> 40 & (TOK_CACHE_SLOTS - 1)];
}

static inline bool tok_cache_holds(const struct tok_cached *c, str word)
{
    return c->len == word.len && !memcmp(c->bytes, word.p, word.len);
}

static inline void tok_cache_keep(struct tok_cached *c, str word, const int32_t *ids, size_t count)
{
    if (count > TOK_CACHE_IDS)
        return;
    c->len = (uint8_t)word.len;
    c->count = (uint8_t)count;
    memcpy(c->bytes, word.p, word.len);
    memcpy(c->ids, ids, count * sizeof *ids);
}

/* ---- cutting text without words of its own ---- */

/* Which byte pairs stand side by side in some token, the second one beginning a character. Where
 * a pair does not, no merge can cross, so the text may be cut there. */
struct tok_joins {
    uint64_t bits[1024];
};

static inline void tok_joins_add(struct tok_joins *j, str bytes)
{
    for (size_t i = 1; i < bytes.len; i++) {
        unsigned pair = (uint8_t)bytes.p[i - 1] * 256u + (uint8_t)bytes.p[i];
        j->bits[pair >> 6] |= 1ull << (pair & 63);
    }
}

/* Of all tokens that merging can make. */
static inline void tok_joins_init(struct tok_joins *j, const struct vocab *v)
{
    memset(j, 0, sizeof *j);
    for (uint32_t i = 0; i < vocab_count(v); i++) {
        enum vocab_type t = vocab_type(v, (int32_t)i);
        if (t == VOCAB_TYPE_NORMAL || t == VOCAB_TYPE_UNUSED)
            tok_joins_add(j, vocab_bytes(v, (int32_t)i));
    }
}

/* Where the first word of s ends (s is not empty). */
static inline size_t tok_joins_end(const struct tok_joins *j, str s)
{
    size_t at = 1;
    for (; at < s.len; at++) {
        unsigned pair = (uint8_t)s.p[at - 1] * 256u + (uint8_t)s.p[at];
        if (!(j->bits[pair >> 6] >> (pair & 63) & 1) && ((uint8_t)s.p[at] & 0xc0u) != 0x80u)
            break;
    }
    return at;
}

/* Replaces U+2581 by a space, as the normalisers of the form VOCAB_FORM_SPACE make them equal. The
 * result is text itself where nothing changes; else it lies in b. */
static inline bool tok_spaces(str text, bool prefix, struct buf *b, str *out)
{
    static const char mark[] = "\xe2\x96\x81";
    *out = text;
    if (!prefix && str_find(text, str_view(mark, 3)) == STR_NONE)
        return true;
    buf_clear(b);
    bool ok = !prefix || buf_add_byte(b, ' ');
    for (str rest = text; ok && rest.len;) {
        size_t at = str_find(rest, str_view(mark, 3));
        ok = buf_add(b, str_sub(rest, 0, at));
        if (ok && at != STR_NONE)
            ok = buf_add_byte(b, ' ');
        rest = at == STR_NONE ? (str){0} : str_from(rest, at + 3);
    }
    *out = buf_view(b);
    return ok;
}

#endif
