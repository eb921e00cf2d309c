#include "text/tok.h"

#include <stdlib.h>
#include <string.h>

#include "text/unicode.h"

#define TOK_REPLACEMENT "\xef\xbf\xbd"

struct tok {
    struct vocab *vocab;
    const struct tok_kind *kind;
    void *self;
    struct buf repaired, spans; /* text and spans when bytes were broken */
};

/* ---- opening ---- */

bool tok_new(struct tok **out, const struct vocab_source *s, struct err *e)
{
    struct tok *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, ERR_MEMORY, "tokenizer: out of memory");
    buf_init(&t->repaired, 3 * TOK_TEXT_MAX);
    buf_init(&t->spans, TOK_TEXT_MAX);
    if (!vocab_new(&t->vocab, s, e))
        goto failed;
    t->kind = tok_kind_find(s->model);
    must(t->kind); /* vocab_new refused others */
    if (!t->kind->open(&t->self, t->vocab, s, e))
        goto failed;
    *out = t;
    return true;
failed:
    tok_close(t);
    return false;
}

bool tok_open(struct tok **t, const struct model_file *f, struct err *e)
{
    struct arena a;
    struct vocab_source s;
    arena_init(&a, 4 * VOCAB_BYTES_MAX);
    bool ok = vocab_source_read(&s, f, &a, e) && tok_new(t, &s, e);
    arena_deinit(&a);
    return ok || err_wrap(e, "%.*s", STR_ARG(model_file_name(f)));
}

void tok_close(struct tok *t)
{
    if (!t)
        return;
    if (t->kind && t->self)
        t->kind->close(t->self);
    vocab_free(t->vocab);
    buf_deinit(&t->repaired);
    buf_deinit(&t->spans);
    free(t);
}

const struct vocab *tok_vocab(const struct tok *t) { return t->vocab; }

/* ---- ids ---- */

void tok_ids_init(struct tok_ids *ids, size_t count_max)
{
    size_t size;
    buf_init(&ids->bytes, base_mul(&size, count_max, sizeof(int32_t)) ? size : SIZE_MAX / 2);
}
void tok_ids_deinit(struct tok_ids *ids) { buf_deinit(&ids->bytes); }
void tok_ids_clear(struct tok_ids *ids) { buf_clear(&ids->bytes); }

/* ---- encode ---- */

/* Where the next special token begins in in->text at or behind from, its length (0: there is
 * none) and id. Control tokens lie inside one trusted span; spans that touch count as one. *span
 * is the first span that ends behind from, kept by the caller as the search moves on. */
static size_t tok_next_special(const struct vocab *v, const struct tok_text *in, size_t from,
                               size_t *span, size_t *len, int32_t *id)
{
    const struct trie *user = vocab_user_defined(v), *all = vocab_specials(v);
    for (size_t at = from; at < in->text.len; at++) {
        while (*span < in->trusted_count && in->trusted[*span].to <= at)
            ++*span;
        *len = trie_longest(user, str_from(in->text, at), id);
        if (*span < in->trusted_count && in->trusted[*span].from <= at) {
            int32_t special;
            size_t to = in->trusted[*span].to;
            for (size_t i = *span + 1; i < in->trusted_count && in->trusted[i].from == to; i++)
                to = in->trusted[i].to;
            size_t n = trie_longest(all, str_sub(in->text, at, to - at), &special);
            if (n > *len) {
                *len = n;
                *id = special;
            }
        }
        if (*len)
            return at;
    }
    *len = 0;
    return in->text.len;
}

/* The text with broken parts replaced, and its spans moved along. A span that begins or ends inside
 * a character does not hold that character. */
static bool tok_repair(struct tok *t, struct tok_text *in)
{
    struct buf *out = &t->repaired;
    buf_clear(out);
    buf_clear(&t->spans);
    if (!buf_add_bytes(&t->spans, in->trusted, in->trusted_count * sizeof *in->trusted))
        return false;
    struct tok_span *spans = (struct tok_span *)(void *)t->spans.p;
    size_t border = 0; /* 2 * span, + 1 for its end */
    for (size_t at = 0, n; at < in->text.len; at += n) {
        bool is_whole, is_dead;
        n = unicode_sequence(str_from(in->text, at), &is_whole, &is_dead);
        size_t before = out->len;
        if (!(is_whole ? buf_add(out, str_sub(in->text, at, n)) : buf_add_z(out, TOK_REPLACEMENT)))
            return false;
        for (; border < 2 * in->trusted_count; border++) {
            struct tok_span *s = &spans[border / 2];
            bool is_end = border & 1;
            size_t place = is_end ? s->to : s->from;
            if (place >= at + n)
                break;
            if (is_end)
                s->to = base_max(before, s->from);
            else
                s->from = place > at ? out->len : before;
        }
    }
    for (; border < 2 * in->trusted_count; border++)
        *(border & 1 ? &spans[border / 2].to : &spans[border / 2].from) = out->len;
    in->text = buf_view(out);
    in->trusted = spans;
    return true;
}

static bool tok_add(struct tok_ids *out, int32_t id, struct err *e)
{
    return tok_ids_add(out, id) ||
           err_set(e, ERR_LIMIT, "tokenizer: more than %zu tokens", tok_ids_count(out));
}

static bool tok_encode_parts(struct tok *t, const struct tok_text *in, struct tok_ids *out,
                             struct err *e)
{
    size_t at = 0, span = 0;
    bool after_special = true;
    while (at < in->text.len) {
        size_t len;
        int32_t id = VOCAB_NONE;
        size_t special = tok_next_special(t->vocab, in, at, &span, &len, &id);
        if (special > at) {
            struct tok_fragment f = {str_sub(in->text, at, special - at), after_special};
            if (!t->kind->encode(t->self, &f, out, e))
                return false;
            after_special = false;
        }
        if (len) {
            if (!tok_add(out, id, e))
                return false;
            after_special = true;
        }
        at = special + len;
    }
    return true;
}

/* The text's first token is this special one. */
static bool tok_begins_with(const struct tok *t, const struct tok_text *in, int32_t id)
{
    size_t span = 0, len = 0;
    int32_t first = VOCAB_NONE;
    struct tok_text head = *in;
    head.text = str_sub(in->text, 0, VOCAB_TEXT_MAX);
    return tok_next_special(t->vocab, &head, 0, &span, &len, &first) == 0 && len && first == id;
}

static bool tok_encode_all(struct tok *t, struct tok_text *in, struct tok_ids *out, struct err *e)
{
    const struct vocab *v = t->vocab;
    int32_t bos = vocab_role(v, VOCAB_ROLE_BOS);
    for (size_t i = 0, done = 0; i < in->trusted_count; done = in->trusted[i++].to)
        must(in->trusted[i].from >= done && in->trusted[i].to >= in->trusted[i].from &&
             in->trusted[i].to <= in->text.len);
    if (in->text.len > TOK_TEXT_MAX)
        return err_set(e, ERR_LIMIT, "tokenizer: a text of %zu bytes is over %zu", in->text.len,
                       TOK_TEXT_MAX);
    if (!unicode_is_valid(in->text) && !tok_repair(t, in))
        return err_set(e, ERR_LIMIT, "tokenizer: no memory to repair %zu bytes", in->text.len);
    /* A template may have written it already. */
    bool add_bos = in->add_special && vocab_add_bos(v) && !tok_begins_with(t, in, bos);
    if ((add_bos && !tok_add(out, bos, e)) || !tok_encode_parts(t, in, out, e))
        return false;
    if (in->add_special && vocab_add_eos(v) && !tok_add(out, vocab_role(v, VOCAB_ROLE_EOS), e))
        return false;
    return !in->add_special || !vocab_add_sep(v) || tok_add(out, vocab_role(v, VOCAB_ROLE_SEP), e);
}

bool tok_encode(struct tok *t, const struct tok_text *in, struct tok_ids *out, struct err *e)
{
    size_t before = out->bytes.len;
    struct tok_text text = *in;
    if (tok_encode_all(t, &text, out, e))
        return true;
    out->bytes.len = before;
    out->bytes.full = false;
    return false;
}

bool tok_encode_str(struct tok *t, str text, bool parse_special, bool add_special,
                    struct tok_ids *out, struct err *e)
{
    struct tok_span all = {0, text.len};
    struct tok_text in = {.text = text, .trusted = &all, .trusted_count = parse_special,
                          .add_special = add_special};
    return tok_encode(t, &in, out, e);
}

/* ---- decode ---- */

void tok_decoder_init(struct tok_decoder *d, const struct vocab *v, unsigned flags)
{
    *d = (struct tok_decoder){.vocab = v, .flags = flags};
}

/* Bytes behind those held: whole characters go out, a begun one is held again. */
static bool tok_decoder_bytes(struct tok_decoder *d, str bytes, struct buf *out)
{
    /* The held bytes and the first new ones, until the character they begin is done. */
    while (d->held_len && bytes.len) {
        bool is_whole, is_dead;
        char text[4];
        size_t take = base_min(sizeof text - d->held_len, bytes.len);
        memcpy(text, d->held, d->held_len);
        memcpy(text + d->held_len, bytes.p, take);
        size_t n = unicode_sequence(str_view(text, d->held_len + take), &is_whole, &is_dead);
        if (!is_whole && !is_dead) {
            memcpy(d->held, text, n);
            d->held_len = (uint8_t)n;
            return true;
        }
        if (!(is_whole ? buf_add_bytes(out, text, n) : buf_add_z(out, TOK_REPLACEMENT)))
            return false;
        must(n >= d->held_len); /* held bytes were the begin of one character */
        bytes = str_from(bytes, n - d->held_len);
        d->held_len = 0;
    }
    while (bytes.len) {
        bool is_whole, is_dead;
        size_t n = unicode_sequence(bytes, &is_whole, &is_dead);
        if (!is_whole && !is_dead) {
            memcpy(d->held, bytes.p, n);
            d->held_len = (uint8_t)n;
            return true;
        }
        if (!(is_whole ? buf_add_bytes(out, bytes.p, n) : buf_add_z(out, TOK_REPLACEMENT)))
            return false;
        bytes = str_from(bytes, n);
    }
    return true;
}

bool tok_decoder_add(struct tok_decoder *d, int32_t id, struct buf *out, struct err *e)
{
    if (!vocab_has(d->vocab, id))
        return err_set(e, ERR_REQUEST, "token id %d: the vocabulary has 0 to %u", id,
                       vocab_count(d->vocab) - 1);
    str bytes = vocab_bytes(d->vocab, id);
    bool is_control = vocab_is_control(d->vocab, id);
    if (is_control && !(d->flags & TOK_DECODE_CONTROL))
        bytes.len = 0;
    if (!is_control) {
        bool drop = (d->flags & TOK_DECODE_START) && vocab_add_space_prefix(d->vocab);
        if (drop && bytes.len && bytes.p[0] == ' ')
            bytes = str_from(bytes, 1);
        d->flags &= ~(unsigned)TOK_DECODE_START;
    }
    return tok_decoder_bytes(d, bytes, out) ||
           err_set(e, ERR_LIMIT, "tokenizer: decoded text is over %zu bytes", out->size_max);
}

bool tok_decoder_end(struct tok_decoder *d, struct buf *out, struct err *e)
{
    bool ok = !d->held_len || buf_add_z(out, TOK_REPLACEMENT);
    d->held_len = 0;
    return ok || err_set(e, ERR_LIMIT, "tokenizer: decoded text is over %zu bytes", out->size_max);
}

bool tok_decode(const struct vocab *v, const int32_t *ids, size_t count, unsigned flags,
                struct buf *out, struct err *e)
{
    struct tok_decoder d;
    tok_decoder_init(&d, v, flags);
    for (size_t i = 0; i < count; i++)
        if (!tok_decoder_add(&d, ids[i], out, e))
            return false;
    return tok_decoder_end(&d, out, e);
}
