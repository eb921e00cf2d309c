#include <stdlib.h>
#include <string.h>

#include "text/tok.h"
#include "text/unicode.h"

extern const struct tok_kind tok_wpm;

/* WordPiece as BERT has it: text is cleaned (controls dropped, case and accents folded), cut into
 * words at blanks, around each punctuation character and each ideograph; a word is covered by the
 * longest tokens from the left, or becomes the unknown token as a whole. In a GGUF file the token
 * of a word's start begins with U+2581 (a space in its bytes), the others lost their "##". */

#define WPM_WORD_CHARS_MAX 100u /* longer words are unknown: max_input_chars_per_word of BERT */
#define WPM_WORD_BYTES_MAX (WPM_WORD_CHARS_MAX * 4u)

struct wpm {
    const struct vocab *vocab;
    struct buf folded; /* one character, folded */
    uint32_t chars;    /* of the word so far */
    size_t len;
    char word[1 + WPM_WORD_BYTES_MAX]; /* a space, then the word */
};

static void wpm_close(void *self)
{
    struct wpm *w = self;
    if (!w)
        return;
    buf_deinit(&w->folded);
    free(w);
}

static bool wpm_open(void **self, const struct vocab *v, const struct vocab_source *s,
                     struct err *e)
{
    (void)s; /* everything it says lies in v */
    struct wpm *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, ERR_MEMORY, "tokenizer: out of memory");
    if (vocab_role(v, VOCAB_ROLE_UNK) == VOCAB_NONE) {
        free(w);
        return err_set(e, ERR_FORMAT, "tokenizer: a bert vocabulary without unknown_token_id");
    }
    w->vocab = v;
    w->word[0] = ' ';
    buf_init(&w->folded, 64);
    *self = w;
    return true;
}

/* The tokens of the word; out is as it was when a part of it has none. */
static bool wpm_pieces(const struct wpm *w, struct tok_ids *out, bool *covered)
{
    size_t before = out->bytes.len, longest = vocab_bytes_max(w->vocab);
    *covered = false;
    for (size_t from = 0; from < 1 + w->len;) {
        size_t to = base_min(1 + w->len, from + longest);
        int32_t id = VOCAB_NONE;
        for (; to > from; to--) {
            id = vocab_find_bytes(w->vocab, str_view(w->word + from, to - from));
            if (id != VOCAB_NONE)
                break;
        }
        if (id == VOCAB_NONE || (from == 0 && to == 1)) {
            out->bytes.len = before;
            return true;
        }
        if (!tok_ids_add(out, id))
            return false;
        from = to;
    }
    *covered = true;
    return true;
}

static bool wpm_end_word(struct wpm *w, struct tok_ids *out)
{
    bool covered = false, ok = true;
    if (w->chars == 0)
        return true;
    if (w->chars <= WPM_WORD_CHARS_MAX)
        ok = wpm_pieces(w, out, &covered);
    if (ok && !covered)
        ok = tok_ids_add(out, vocab_role(w->vocab, VOCAB_ROLE_UNK));
    w->chars = 0;
    w->len = 0;
    return ok;
}

/* Adds one character to the word; of a word that is too long only the count matters. */
static void wpm_add_char(struct wpm *w, str c)
{
    if (++w->chars > WPM_WORD_CHARS_MAX)
        return;
    memcpy(w->word + 1 + w->len, c.p, c.len);
    w->len += c.len;
}

/* The character as it counts: folded, which may give several or none. */
static bool wpm_fold(struct wpm *w, str from, uint32_t c)
{
    buf_clear(&w->folded);
    bool lower = vocab_normaliser(w->vocab, VOCAB_NORMALISER_LOWERCASE);
    if (vocab_normaliser(w->vocab, VOCAB_NORMALISER_STRIP_ACCENTS))
        return unicode_fold(c, lower, &w->folded);
    return lower ? unicode_lower(c, &w->folded) : buf_add(&w->folded, from);
}

static bool wpm_char(struct wpm *w, str from, uint32_t c, struct tok_ids *out)
{
    if (c == 0 || c == 0xfffd || unicode_is_control(c))
        return true;
    if (unicode_class(c) == UNICODE_SPACE)
        return wpm_end_word(w, out);
    bool is_alone = unicode_is_ideograph(c);
    if (!wpm_fold(w, from, c) || (is_alone && !wpm_end_word(w, out)))
        return false;
    for (str rest = buf_view(&w->folded); rest.len;) {
        uint32_t part = 0;
        size_t n = str_utf8_decode(rest, &part);
        must(n > 0);
        bool is_punct = unicode_is_punctuation(part);
        if (is_punct && !wpm_end_word(w, out))
            return false;
        wpm_add_char(w, str_sub(rest, 0, n));
        if (is_punct && !wpm_end_word(w, out))
            return false;
        rest = str_from(rest, n);
    }
    return !is_alone || wpm_end_word(w, out);
}

static bool wpm_encode(void *self, const struct tok_fragment *f, struct tok_ids *out,
                       struct err *e)
{
    struct wpm *w = self;
    bool ok = true;
    w->chars = 0;
    w->len = 0;
    for (str rest = f->text; ok && rest.len;) {
        uint32_t c = 0;
        size_t n = str_utf8_decode(rest, &c);
        must(n > 0);
        ok = wpm_char(w, str_sub(rest, 0, n), c, out);
        rest = str_from(rest, n);
    }
    return (ok && wpm_end_word(w, out)) ||
           err_set(e, ERR_LIMIT, "tokenizer: more than %zu tokens", tok_ids_count(out));
}

const struct tok_kind tok_wpm = {
    .model = "bert",
    .form = VOCAB_FORM_WORD,
    .add_bos = true,
    .add_sep = true,
    .open = wpm_open,
    .close = wpm_close,
    .encode = wpm_encode,
};
