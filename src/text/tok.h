/* tok - text to ids and back, by the rules of one model's vocabulary.
 *
 * Owns:      the vocabulary, the algorithm of its kind (byte-level BPE, SentencePiece BPE,
 *            WordPiece, unigram), splitting at special tokens, bos and eos, incremental decoding.
 * Not:       what the text is (chat/render marks the trusted spans), stop strings (chat/output).
 * Invariant: ids equal the reference tokenizer's for the whole text, wherever spans begin and end.
 *            A control token comes only from inside a trusted span; user-defined tokens match
 *            anywhere. Text is UTF-8; broken bytes count as U+FFFD, one for each longest broken
 *            part, as Python's errors="replace" has it. Encoding is near-linear in the text.
 *
 *     text     |<|im_start|>user\n|  what is <|im_end|>?  |<|im_end|>\n|
 *     trusted  |##################|                       |############|
 *     ids      | 1 | user | \n ...   as plain text ...    | 2 | \n     |
 *
 * Thread:    tok_encode keeps scratch and a cache: one thread at a time (prep). Decoding and
 *            tok_vocab: any thread.
 * Limits:    TOK_TEXT_MAX bytes of text, TOK_WORD_MAX in one stretch that cannot be split, ids as
 *            tok_ids was told. Past one: ERR_LIMIT with both numbers.
 * Source:    docs/models/tokenizers.md.
 */
#ifndef SHOAL_TEXT_TOK_H
#define SHOAL_TEXT_TOK_H

#include "base/buf.h"
#include "text/vocab.h"

#define TOK_TEXT_MAX ((size_t)256 << 20)
#define TOK_WORD_MAX ((size_t)8 << 20)

struct tok;

/* Reads vocabulary and merges of f. Errors as vocab_source_read and vocab_new. The file may be
 * closed afterwards. */
BASE_USE_RESULT bool tok_open(struct tok **t, const struct model_file *f, struct err *e);
/* The same from any other source. */
BASE_USE_RESULT bool tok_new(struct tok **t, const struct vocab_source *s, struct err *e);
void tok_close(struct tok *t); /* NULL is fine */
const struct vocab *tok_vocab(const struct tok *t);

/* ---- ids ---- */
struct tok_ids {
    struct buf bytes; /* int32_t[] */
};
void tok_ids_init(struct tok_ids *ids, size_t count_max);
void tok_ids_deinit(struct tok_ids *ids); /* also after a zeroed struct */
void tok_ids_clear(struct tok_ids *ids);  /* keeps the memory */
static inline size_t tok_ids_count(const struct tok_ids *ids)
{
    return ids->bytes.len / sizeof(int32_t);
}
static inline const int32_t *tok_ids_data(const struct tok_ids *ids)
{
    return (const int32_t *)(const void *)ids->bytes.p;
}
/* False when count_max would be passed. */
static inline bool tok_ids_add(struct tok_ids *ids, int32_t id)
{
    return buf_add_bytes(&ids->bytes, &id, sizeof id);
}

/* ---- encode ---- */
/* Bytes from .. to - 1 of the text were written by us: control tokens may be parsed in them. */
struct tok_span {
    size_t from, to;
};

struct tok_text {
    str text;
    const struct tok_span *trusted; /* ascending, not overlapping, inside the text */
    size_t trusted_count;
    bool add_special; /* bos, eos as the vocabulary says; bos not where the text begins with it */
};

/* Appends the ids of in to out. On failure out is as it was. ERR_LIMIT: text, word or ids. */
BASE_USE_RESULT bool tok_encode(struct tok *t, const struct tok_text *in, struct tok_ids *out,
                                struct err *e);
/* All of it trusted (parse_special) or none. */
BASE_USE_RESULT bool tok_encode_str(struct tok *t, str text, bool parse_special, bool add_special,
                                    struct tok_ids *out, struct err *e);

/* ---- decode ---- */
enum tok_decode_flags {
    TOK_DECODE_CONTROL = 1, /* write the text of control tokens too */
    TOK_DECODE_START = 2,   /* the first id begins the text: drop the blank that add_space_prefix
                               put there */
};

/* Plain data; starts anew with tok_decoder_init, needs no end if the rest is not wanted. */
struct tok_decoder {
    const struct vocab *vocab;
    unsigned flags;
    uint8_t held_len;
    char held[4]; /* begun but unfinished character */
};
void tok_decoder_init(struct tok_decoder *d, const struct vocab *v, unsigned flags);
/* Appends what can be shown now: whole characters only, broken bytes as U+FFFD. ERR_REQUEST: no
 * such id; ERR_LIMIT: out is full. */
BASE_USE_RESULT bool tok_decoder_add(struct tok_decoder *d, int32_t id, struct buf *out,
                                     struct err *e);
/* An unfinished character becomes one U+FFFD. */
BASE_USE_RESULT bool tok_decoder_end(struct tok_decoder *d, struct buf *out, struct err *e);
/* All at once. */
BASE_USE_RESULT bool tok_decode(const struct vocab *v, const int32_t *ids, size_t count,
                                unsigned flags, struct buf *out, struct err *e);

/* ---- kinds (tok_table.c lists them, tok_NAME.c holds one each) ---- */

/* Text between special tokens: valid UTF-8, not empty. */
struct tok_fragment {
    str text;
    bool after_special; /* first in the text, or directly behind a special token */
};

struct tok_kind {
    const char *model; /* tokenizer.ggml.model */
    const char *pre;   /* not NULL: stands in for tokenizer.ggml.pre */
    enum vocab_form form; /* without uses_pre; else the split row's */
    bool uses_pre;     /* words are cut by a row of split_table.c */
    bool add_bos, add_eos, add_sep, add_space_prefix; /* where the file says nothing */
    bool needs_bos;    /* known to be wrong in files that say no */
    /* *self is the kind's own data; s lives only during the call, v until close. */
    bool (*open)(void **self, const struct vocab *v, const struct vocab_source *s, struct err *e);
    void (*close)(void *self);
    bool (*encode)(void *self, const struct tok_fragment *f, struct tok_ids *out, struct err *e);
};
/* NULL if no kind has that name. */
const struct tok_kind *tok_kind_find(str model);

#endif
