#include <stdlib.h>

#include "base/digest.h"
#include "base/map.h"
#include "text/split.h"
#include "text/tok.h"
#include "text/tok_word.h"
#include "text/unicode.h"

extern const struct tok_kind tok_bpe, tok_gemma4;

/* Byte-level BPE and its form without byte mapping (gemma4).
 *
 * Pieces are numbers: ids of tokens, and behind them numbers for texts that merges name although
 * no token has them; those only matter on the way to something larger, and end as single bytes. */

struct bpe_pair {
    uint64_t key; /* left + 1 in the high half, right in the low one; 0: free */
    uint32_t rank;
    int32_t id;
};

struct bpe {
    const struct vocab *vocab;
    const struct split_row *row;
    struct split *split;
    /* Merges by pair of pieces: open addressing, at most half full. multiplier is random and odd,
     * so that a hostile vocabulary cannot make pairs collide. */
    struct bpe_pair *pairs;
    uint64_t multiplier;
    unsigned shift;
    int32_t byte_ids[256];
    struct map extra; /* bytes to piece, for texts without a token */
    struct arena extra_bytes;
    int32_t piece_count;
    struct tok_cached *cache;
    struct tok_word word;
    struct buf ends, text, points;
    struct tok_joins joins; /* VOCAB_FORM_SPACE only */
};

/* ---- merges ---- */

static uint64_t bpe_key(int32_t left, int32_t right)
{
    return ((uint64_t)(uint32_t)left + 1) << 32 | (uint32_t)right;
}

static struct bpe_pair *bpe_slot(const struct bpe *b, uint64_t key)
{
    uint64_t mask = (1ull << (64 - b->shift)) - 1;
    uint64_t at = key * b->multiplier >> b->shift;
    while (b->pairs[at].key && b->pairs[at].key != key)
        at = (at + 1) & mask;
    return &b->pairs[at];
}

static bool bpe_find(const void *self, const struct tok_symbol *l, const struct tok_symbol *r,
                     uint32_t *rank, int32_t *id)
{
    const struct bpe *b = self;
    if (l->id < 0 || r->id < 0)
        return false;
    const struct bpe_pair *p = bpe_slot(b, bpe_key(l->id, r->id));
    *rank = p->rank;
    *id = p->id;
    return p->key != 0;
}

/* The piece that stands for bytes: a token, or a number of its own. -1: no memory. */
static int32_t bpe_piece(struct bpe *b, str bytes)
{
    int32_t id = vocab_find_bytes(b->vocab, bytes);
    if (id != VOCAB_NONE)
        return id;
    uint64_t *known = map_find(&b->extra, bytes);
    if (known)
        return (int32_t)*known;
    str copy = arena_copy(&b->extra_bytes, bytes);
    if (!copy.p || !map_put(&b->extra, copy, (uint64_t)b->piece_count))
        return -1;
    return b->piece_count++;
}

static bool bpe_add_merge(struct bpe *b, str merge, uint32_t rank, struct err *e)
{
    size_t cut = str_find_byte(str_from(merge, 1), ' ');
    char bytes[2 * VOCAB_TEXT_MAX];
    if (merge.len > sizeof bytes || cut == STR_NONE || cut + 2 >= merge.len)
        return err_set(e, ERR_FORMAT, "tokenizer.ggml.merges: element %u (%zu bytes) is not two "
                       "pieces with a blank between", rank, merge.len);
    size_t left = vocab_to_bytes(b->vocab, str_sub(merge, 0, cut + 1), bytes);
    size_t right = vocab_to_bytes(b->vocab, str_from(merge, cut + 2), bytes + left);
    int32_t l = bpe_piece(b, str_view(bytes, left));
    int32_t r = bpe_piece(b, str_view(bytes + left, right));
    int32_t id = bpe_piece(b, str_view(bytes, left + right));
    if (l < 0 || r < 0 || id < 0)
        return err_set(e, ERR_MEMORY, "tokenizer: no memory for merge %u", rank);
    struct bpe_pair *p = bpe_slot(b, bpe_key(l, r));
    if (p->key == 0) /* of two equal merges the better one counts */
        *p = (struct bpe_pair){.key = bpe_key(l, r), .rank = rank, .id = id};
    if (b->row->form == VOCAB_FORM_SPACE)
        tok_joins_add(&b->joins, str_view(bytes, left + right));
    return true;
}

static bool bpe_build(struct bpe *b, const struct vocab_source *s, struct err *e)
{
    size_t slots = 64;
    for (b->shift = 58; slots < (size_t)s->merge_count * 2; b->shift--)
        slots *= 2;
    digest_random(&b->multiplier, sizeof b->multiplier);
    b->multiplier |= 1;
    b->pairs = calloc(slots, sizeof *b->pairs);
    b->cache = calloc(TOK_CACHE_SLOTS, sizeof *b->cache);
    if (!b->pairs || !b->cache)
        return err_set(e, ERR_MEMORY, "tokenizer: no memory for %u merges", s->merge_count);
    for (int i = 0; i < 256; i++) {
        char c = (char)i;
        b->byte_ids[i] = bpe_piece(b, str_view(&c, 1));
        if (b->byte_ids[i] < 0)
            return err_set(e, ERR_MEMORY, "tokenizer: out of memory");
    }
    if (b->row->form == VOCAB_FORM_SPACE)
        tok_joins_init(&b->joins, b->vocab);
    for (uint32_t i = 0; i < s->merge_count; i++)
        if (!bpe_add_merge(b, s->merges[i], i, e))
            return false;
    return true;
}

static void bpe_close(void *self)
{
    struct bpe *b = self;
    if (!b)
        return;
    split_free(b->split);
    map_deinit(&b->extra);
    arena_deinit(&b->extra_bytes);
    tok_word_deinit(&b->word);
    buf_deinit(&b->ends);
    buf_deinit(&b->text);
    buf_deinit(&b->points);
    free(b->pairs);
    free(b->cache);
    free(b);
}

static bool bpe_open(void **self, const struct vocab *v, const struct vocab_source *s,
                     struct err *e)
{
    struct bpe *b = calloc(1, sizeof *b);
    if (!b)
        return err_set(e, ERR_MEMORY, "tokenizer: out of memory");
    b->vocab = v;
    b->row = split_row_find(vocab_pre(v));
    must(b->row); /* vocab_new refused others */
    b->piece_count = (int32_t)vocab_count(v);
    map_init(&b->extra, 3 * VOCAB_COUNT_MAX);
    arena_init(&b->extra_bytes, VOCAB_BYTES_MAX);
    tok_word_init(&b->word);
    buf_init(&b->ends, TOK_TEXT_MAX * sizeof(uint32_t));
    buf_init(&b->text, 4 * TOK_TEXT_MAX);
    buf_init(&b->points, 8 * TOK_TEXT_MAX);
    if (s->merge_count > VOCAB_COUNT_MAX) {
        err_set(e, ERR_LIMIT, "tokenizer.ggml.merges has %u elements, at most %u are read",
                s->merge_count, VOCAB_COUNT_MAX);
        goto failed;
    }
    if (!split_new(&b->split, b->row, false, e) || !bpe_build(b, s, e))
        goto failed;
    *self = b;
    return true;
failed:
    bpe_close(b);
    return false;
}

/* ---- one word ---- */

/* Symbols of single bytes, or of characters; a character without a token is one symbol with id -1,
 * which merges with nothing. */
static size_t bpe_fill(const struct bpe *b, str word, struct tok_symbol *s)
{
    size_t count = 0;
    if (b->row->form == VOCAB_FORM_BYTES) {
        for (; count < word.len; count++)
            s[count] = (struct tok_symbol){.at = (uint32_t)count, .len = 1,
                                           .id = b->byte_ids[(uint8_t)word.p[count]]};
        return count;
    }
    for (size_t at = 0; at < word.len; count++) {
        uint32_t c;
        size_t n = str_utf8_decode(str_from(word, at), &c);
        must(n > 0);
        s[count] = (struct tok_symbol){.at = (uint32_t)at, .len = (uint32_t)n,
                                       .id = vocab_find_bytes(b->vocab, str_sub(word, at, n))};
        at += n;
    }
    return count;
}

/* A piece without a token is written byte by byte; a byte without one is left out, as both
 * references do: SmolLM2 lacks eight bytes that UTF-8 uses (vocab_corrected says how many). */
static bool bpe_add_piece(const struct bpe *b, str word, const struct tok_symbol *s,
                          struct tok_ids *out)
{
    if (s->id >= 0 && vocab_has(b->vocab, s->id))
        return tok_ids_add(out, s->id);
    for (uint32_t i = 0; i < s->len; i++) {
        int32_t id = vocab_byte(b->vocab, (uint8_t)word.p[s->at + i]);
        if (id != VOCAB_NONE && !tok_ids_add(out, id))
            return false;
    }
    return true;
}

static bool bpe_merge(struct bpe *b, str word, struct tok_ids *out)
{
    struct tok_symbol *s = tok_word_begin(&b->word, word.len);
    if (!s)
        return false;
    size_t count = bpe_fill(b, word, s);
    bool ok = tok_word_merge(&b->word, s, &count,
                             (struct tok_merger){.find = bpe_find, .self = b});
    for (size_t i = 0; ok && i < count; i++)
        ok = bpe_add_piece(b, word, &s[i], out);
    tok_word_end(&b->word);
    return ok;
}

static bool bpe_word(struct bpe *b, str word, bool as_token, struct tok_ids *out)
{
    if (word.len > TOK_CACHE_BYTES) {
        int32_t id = as_token ? vocab_find_bytes(b->vocab, word) : VOCAB_NONE;
        return id != VOCAB_NONE ? tok_ids_add(out, id) : bpe_merge(b, word, out);
    }
    struct tok_cached *c = tok_cache_slot(b->cache, word);
    if (tok_cache_holds(c, word))
        return buf_add_bytes(&out->bytes, c->ids, c->count * sizeof c->ids[0]);
    size_t before = tok_ids_count(out);
    int32_t id = as_token ? vocab_find_bytes(b->vocab, word) : VOCAB_NONE;
    if (id != VOCAB_NONE ? !tok_ids_add(out, id) : !bpe_merge(b, word, out))
        return false;
    if (tok_ids_count(out) > before) /* bytes without a token leave nothing */
        tok_cache_keep(c, word, tok_ids_data(out) + before, tok_ids_count(out) - before);
    return true;
}

/* ---- fragments ---- */

static bool bpe_encode(void *self, const struct tok_fragment *f, struct tok_ids *out,
                       struct err *e)
{
    struct bpe *b = self;
    str text = f->text;
    if (vocab_normaliser(b->vocab, VOCAB_NORMALISER_NFC) && !unicode_is_plain(text)) {
        buf_clear(&b->text);
        if (!unicode_nfc(text, &b->points, &b->text))
            return err_set(e, ERR_LIMIT, "tokenizer: no memory to normalise %zu bytes", text.len);
        text = buf_view(&b->text);
    }
    buf_clear(&b->ends);
    if (!split_words(b->split, text, &b->ends, e))
        return false;
    const uint32_t *ends = (const uint32_t *)(const void *)b->ends.p;
    size_t count = b->ends.len / sizeof *ends;
    for (size_t i = 0, from = 0; i < count; from = ends[i], i++) {
        str word = {text.p + from, ends[i] - from};
        if (!bpe_word(b, word, b->row->ignore_merges, out))
            return tok_word_failed(word, out, e);
    }
    return true;
}

/* gemma4: lines and runs of newlines; a run that is a token is taken whole, a line is cut where no
 * token reaches across. */
static bool bpe_encode_lines(void *self, const struct tok_fragment *f, struct tok_ids *out,
                             struct err *e)
{
    struct bpe *b = self;
    str text;
    if (b->row->form != VOCAB_FORM_SPACE)
        return bpe_encode(self, f, out, e);
    if (!tok_spaces(f->text, false, &b->text, &text))
        return err_set(e, ERR_LIMIT, "tokenizer: no memory for %zu bytes", f->text.len);
    buf_clear(&b->ends);
    if (!split_words(b->split, text, &b->ends, e))
        return false;
    const uint32_t *ends = (const uint32_t *)(const void *)b->ends.p;
    size_t count = b->ends.len / sizeof *ends;
    for (size_t i = 0, from = 0; i < count; from = ends[i], i++) {
        str line = {text.p + from, ends[i] - from};
        bool is_break = line.p[0] == '\n';
        while (line.len) {
            str word = str_sub(line, 0, is_break ? line.len : tok_joins_end(&b->joins, line));
            if (!bpe_word(b, word, is_break || b->row->ignore_merges, out))
                return tok_word_failed(word, out, e);
            line = str_from(line, word.len);
        }
    }
    return true;
}

const struct tok_kind tok_bpe = {
    .model = "gpt2",
    .form = VOCAB_FORM_BYTES,
    .uses_pre = true,
    .open = bpe_open,
    .close = bpe_close,
    .encode = bpe_encode_lines,
};

const struct tok_kind tok_gemma4 = {
    .model = "gemma4",
    .pre = "gemma4",
    .form = VOCAB_FORM_SPACE,
    .uses_pre = true,
    .add_bos = true,
    .needs_bos = true,
    .open = bpe_open,
    .close = bpe_close,
    .encode = bpe_encode_lines,
};
