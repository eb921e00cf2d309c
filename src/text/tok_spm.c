#include <stdlib.h>

#include "text/tok.h"
#include "text/tok_word.h"

extern const struct tok_kind tok_spm;

/* SentencePiece BPE: starting from characters, the neighbours whose texts together are the token
 * with the best score become that token. What is left without a token is written in bytes. Text is
 * cut where no token reaches across, so that words can be merged and remembered one by one. */

struct spm {
    const struct vocab *vocab;
    uint32_t *ranks; /* by id: order of scores, the best lowest */
    struct tok_joins joins;
    struct tok_cached *cache;
    struct tok_word word;
    struct buf text;
};

struct spm_word {
    const struct spm *spm;
    const char *p; /* text of the word */
};

/* Scores as numbers that sort the other way round. */
static uint32_t spm_rank(float score)
{
    uint32_t u = base_bits_of(score + 0.0f); /* -0 counts as 0 */
    return ~(u & 0x80000000u ? ~u : u | 0x80000000u);
}

static bool spm_find(const void *self, const struct tok_symbol *l, const struct tok_symbol *r,
                     uint32_t *rank, int32_t *id)
{
    const struct spm_word *w = self;
    *id = vocab_find_bytes(w->spm->vocab, str_view(w->p + l->at, (size_t)l->len + r->len));
    if (*id == VOCAB_NONE)
        return false;
    *rank = w->spm->ranks[*id];
    return true;
}

static void spm_close(void *self)
{
    struct spm *s = self;
    if (!s)
        return;
    tok_word_deinit(&s->word);
    buf_deinit(&s->text);
    free(s->ranks);
    free(s->cache);
    free(s);
}

static bool spm_open(void **self, const struct vocab *v, const struct vocab_source *source,
                     struct err *e)
{
    (void)source; /* everything it says lies in v */
    struct spm *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "tokenizer: out of memory");
    s->vocab = v;
    tok_word_init(&s->word);
    buf_init(&s->text, 2 * TOK_TEXT_MAX);
    s->ranks = calloc(vocab_count(v), sizeof *s->ranks);
    s->cache = calloc(TOK_CACHE_SLOTS, sizeof *s->cache);
    if (!s->ranks || !s->cache) {
        spm_close(s);
        return err_set(e, ERR_MEMORY, "tokenizer: no memory for %u scores", vocab_count(v));
    }
    for (uint32_t i = 0; i < vocab_count(v); i++)
        s->ranks[i] = spm_rank(vocab_score(v, (int32_t)i));
    tok_joins_init(&s->joins, v);
    *self = s;
    return true;
}

/* The symbol's token; or its bytes; or the unknown token, one for a run of characters. */
static bool spm_add_piece(const struct spm *s, str bytes, struct tok_ids *out)
{
    int32_t id = vocab_find_bytes(s->vocab, bytes);
    if (id != VOCAB_NONE)
        return tok_ids_add(out, id);
    int32_t unk = vocab_role(s->vocab, VOCAB_ROLE_UNK);
    for (size_t i = 0; i < bytes.len; i++) {
        id = vocab_byte(s->vocab, (uint8_t)bytes.p[i]);
        if (id == VOCAB_NONE)
            id = unk;
        size_t count = tok_ids_count(out);
        bool repeats = id == unk && count && tok_ids_data(out)[count - 1] == unk;
        if (id != VOCAB_NONE && !repeats && !tok_ids_add(out, id))
            return false;
    }
    return true;
}

static bool spm_merge(struct spm *spm, str word, struct tok_ids *out)
{
    struct tok_symbol *s = tok_word_begin(&spm->word, word.len);
    if (!s)
        return false;
    size_t count = 0;
    for (size_t at = 0; at < word.len; count++) {
        uint32_t c;
        size_t n = str_utf8_decode(str_from(word, at), &c);
        must(n > 0);
        s[count] = (struct tok_symbol){.at = (uint32_t)at, .len = (uint32_t)n, .id = VOCAB_NONE};
        at += n;
    }
    struct spm_word self = {.spm = spm, .p = word.p};
    bool ok = tok_word_merge(&spm->word, s, &count,
                             (struct tok_merger){.find = spm_find, .self = &self});
    for (size_t i = 0; ok && i < count; i++)
        ok = s[i].id != VOCAB_NONE ? tok_ids_add(out, s[i].id)
                                   : spm_add_piece(spm, str_sub(word, s[i].at, s[i].len), out);
    tok_word_end(&spm->word);
    return ok;
}

static bool spm_word(struct spm *s, str word, struct tok_ids *out)
{
    if (word.len > TOK_CACHE_BYTES)
        return spm_merge(s, word, out);
    struct tok_cached *c = tok_cache_slot(s->cache, word);
    if (tok_cache_holds(c, word))
        return buf_add_bytes(&out->bytes, c->ids, c->count * sizeof c->ids[0]);
    size_t before = tok_ids_count(out);
    if (!spm_merge(s, word, out))
        return false;
    size_t count = tok_ids_count(out) - before;
    if (count == 0)
        return true;
    const int32_t *ids = tok_ids_data(out) + before;
    /* Whether a leading unknown token is written depends on the word before. */
    if (ids[0] != vocab_role(s->vocab, VOCAB_ROLE_UNK))
        tok_cache_keep(c, word, ids, count);
    return true;
}

static bool spm_encode(void *self, const struct tok_fragment *f, struct tok_ids *out,
                       struct err *e)
{
    struct spm *s = self;
    str text;
    bool prefix = f->after_special && vocab_add_space_prefix(s->vocab);
    if (!tok_spaces(f->text, prefix, &s->text, &text))
        return err_set(e, ERR_LIMIT, "tokenizer: no memory for %zu bytes", f->text.len);
    while (text.len) {
        str word = str_sub(text, 0, tok_joins_end(&s->joins, text));
        if (!spm_word(s, word, out))
            return tok_word_failed(word, out, e);
        text = str_from(text, word.len);
    }
    return true;
}

const struct tok_kind tok_spm = {
    .model = "llama",
    .form = VOCAB_FORM_SPACE,
    .add_bos = true,
    .add_space_prefix = true,
    .open = spm_open,
    .close = spm_close,
    .encode = spm_encode,
};
