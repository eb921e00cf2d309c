/* vocab - the tokens of a model: ids, texts, the bytes they stand for, and which ones are special.
 *
 * Owns:      copies of all token texts and bytes, types, scores, roles (bos, eos, ...), the set of
 *            ids that end a reply, the index from bytes to id, the trie of special texts.
 * Not:       turning text into ids (tok), merges (tok_bpe), chat templates (chat), which ids a
 *            grammar allows (grammar).
 * Invariant: ids are 0 .. count - 1. Two ways to see a token:
 *
 *     text   as the file writes it       "ĠHello"   "▁Hello"   "<0x0A>"   "<|im_end|>"
 *     bytes  what decoding it writes     " Hello"   " Hello"   "\n"       "<|im_end|>"
 *
 *            Control and user-defined tokens are matched by their text before any algorithm runs;
 *            the algorithms never yield a control token, whatever the text says. What ends a
 *            reply or frames an infill is a control token, whatever type the file gives it.
 * Thread:    immutable after vocab_new; any thread may read.
 * Limits:    VOCAB_COUNT_MAX tokens, VOCAB_TEXT_MAX bytes per token, VOCAB_BYTES_MAX in all.
 * Source:    docs/models/tokenizers.md.
 */
#ifndef SHOAL_TEXT_VOCAB_H
#define SHOAL_TEXT_VOCAB_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "fmt/model_file.h"
#include "text/trie.h"

#define VOCAB_COUNT_MAX (1u << 22)
#define VOCAB_TEXT_MAX 1024u
#define VOCAB_BYTES_MAX ((size_t)256 << 20)
#define VOCAB_NONE (-1) /* no such token */

/* Numbers are those of tokenizer.ggml.token_type. */
enum vocab_type {
    VOCAB_TYPE_NORMAL = 1,
    VOCAB_TYPE_UNKNOWN,
    VOCAB_TYPE_CONTROL,      /* only from trusted text; decodes to nothing unless asked for */
    VOCAB_TYPE_USER_DEFINED, /* matched in any text; decodes to its text */
    VOCAB_TYPE_UNUSED,
    VOCAB_TYPE_BYTE,         /* "<0x0A>" */
};

enum vocab_role {
    VOCAB_ROLE_BOS,
    VOCAB_ROLE_EOS,
    VOCAB_ROLE_EOT, /* end of a turn */
    VOCAB_ROLE_EOM, /* end of a message that waits for a tool */
    VOCAB_ROLE_UNK,
    VOCAB_ROLE_SEP,
    VOCAB_ROLE_PAD,
    VOCAB_ROLE_CLS,
    VOCAB_ROLE_MASK,
    VOCAB_ROLE_FIM_PREFIX,
    VOCAB_ROLE_FIM_SUFFIX,
    VOCAB_ROLE_FIM_MIDDLE,
    VOCAB_ROLE_FIM_PAD,
    VOCAB_ROLE_FIM_REPO,
    VOCAB_ROLE_FIM_FILE,
};
enum { VOCAB_ROLE_COUNT = VOCAB_ROLE_FIM_FILE + 1 };

/* How a file writes the bytes of an ordinary token. */
enum vocab_form {
    VOCAB_FORM_BYTES, /* each byte as one character of GPT-2's table: "Ġ" is a space */
    VOCAB_FORM_SPACE, /* plain UTF-8, "▁" is a space */
    VOCAB_FORM_PLAIN, /* plain UTF-8 */
    VOCAB_FORM_WORD,  /* "▁" marks the start of a word (WordPiece as GGUF writes it) */
};

/* What happens to text before it is cut, where the file or the family says so. */
enum vocab_normaliser {
    VOCAB_NORMALISER_NFC,           /* byte-level BPE; absent: the split row's */
    VOCAB_NORMALISER_LOWERCASE,     /* WordPiece; absent: on */
    VOCAB_NORMALISER_STRIP_ACCENTS, /* WordPiece; absent: as LOWERCASE */
};
enum { VOCAB_NORMALISER_COUNT = VOCAB_NORMALISER_STRIP_ACCENTS + 1 };

/* A flag of the file: absent is not the same as false. */
enum vocab_flag { VOCAB_FLAG_ABSENT, VOCAB_FLAG_FALSE, VOCAB_FLAG_TRUE };

/* Everything a format says about its tokenizer. Plain data with borrowed views: the reader of
 * another format, or a test, fills it by hand (start from vocab_source_empty). */
struct vocab_source {
    str model, pre;           /* "gpt2", "qwen2" */
    const str *tokens;        /* tokens[count] */
    const int32_t *types;     /* types[count] or NULL: all normal */
    const float *scores;      /* scores[count] or NULL: all 0 */
    uint32_t count;
    const str *merges;        /* "left right", best first */
    uint32_t merge_count;
    int32_t roles[VOCAB_ROLE_COUNT]; /* VOCAB_NONE where the file says nothing */
    enum vocab_flag add_bos, add_eos, add_sep, add_space_prefix, remove_extra_blanks;
    enum vocab_flag normalisers[VOCAB_NORMALISER_COUNT];
    str charsmap;             /* compiled normaliser of SentencePiece, or empty */
    const int32_t *eog;       /* further ids that end a reply (generation config) */
    uint32_t eog_count;
    const int32_t *suppress;  /* ids never to be sampled */
    uint32_t suppress_count;
};
extern const struct vocab_source vocab_source_empty;

/* Fills *s from tokenizer.ggml.* keys; arrays lie in a, texts are views into f. ERR_FORMAT names
 * the key and the element; ERR_NOT_FOUND: the file has no vocabulary; ERR_LIMIT: a is full. */
BASE_USE_RESULT bool vocab_source_read(struct vocab_source *s, const struct model_file *f,
                                       struct arena *a, struct err *e);

struct vocab;

/* Copies what it needs, so *s may go afterwards. ERR_UNSUPPORTED names an unknown model or pre;
 * ERR_FORMAT a token, type or role that cannot be. tok_new calls it; on its own it serves
 * whoever only decodes. Free with vocab_free (NULL is fine). */
BASE_USE_RESULT bool vocab_new(struct vocab **v, const struct vocab_source *s, struct err *e);
void vocab_free(struct vocab *v);

uint32_t vocab_count(const struct vocab *v);
static inline bool vocab_has(const struct vocab *v, int64_t id)
{
    return id >= 0 && id < (int64_t)vocab_count(v);
}

/* ---- one token; id must be one (vocab_has) ---- */
str vocab_text(const struct vocab *v, int32_t id);
/* May be half of a UTF-8 character. A control token's bytes are its text; the printer decides. */
str vocab_bytes(const struct vocab *v, int32_t id);
enum vocab_type vocab_type(const struct vocab *v, int32_t id);
float vocab_score(const struct vocab *v, int32_t id);
static inline bool vocab_is_control(const struct vocab *v, int32_t id)
{
    enum vocab_type t = vocab_type(v, id);
    return t == VOCAB_TYPE_CONTROL || t == VOCAB_TYPE_UNKNOWN;
}
/* Ends a reply: eos, eot, eom and what the family's table adds. */
bool vocab_is_eog(const struct vocab *v, int32_t id);

/* ---- looking up ---- */
/* The token with exactly this text in the file ("<|im_end|>", "ĠHello"), or VOCAB_NONE. */
int32_t vocab_find(const struct vocab *v, str text);
/* The ordinary token (normal or unused) that stands for exactly these bytes. */
int32_t vocab_find_bytes(const struct vocab *v, str bytes);
/* The bytes of an ordinary token with this text, into out[text.len]; returns their count. */
size_t vocab_to_bytes(const struct vocab *v, str text, char *out);
/* The token of one byte: "<0x0A>" or the byte-level character; VOCAB_NONE if there is none. */
int32_t vocab_byte(const struct vocab *v, uint8_t byte);
int32_t vocab_role(const struct vocab *v, enum vocab_role role); /* VOCAB_NONE: no such */

/* ---- lists, ascending ---- */
const int32_t *vocab_eog(const struct vocab *v, uint32_t *count);
const int32_t *vocab_suppressed(const struct vocab *v, uint32_t *count);

/* ---- rules of the whole vocabulary ---- */
str vocab_model(const struct vocab *v); /* "gpt2" */
str vocab_pre(const struct vocab *v);   /* "qwen2"; "default" if the file had none */
enum vocab_form vocab_form(const struct vocab *v);
bool vocab_add_bos(const struct vocab *v); /* with add_special; true only if there is a bos */
bool vocab_add_eos(const struct vocab *v);
bool vocab_add_sep(const struct vocab *v);
bool vocab_add_space_prefix(const struct vocab *v);
bool vocab_normaliser(const struct vocab *v, enum vocab_normaliser n);
uint32_t vocab_bytes_max(const struct vocab *v); /* length of the longest token in bytes */
/* What was wrong in the file and is set right ("add_bos_token is missing, gemma4 needs it"), for a
 * warning at load; empty if nothing was. */
str vocab_corrected(const struct vocab *v);

/* Texts of the special tokens: user-defined ones, and control tokens too. */
const struct trie *vocab_user_defined(const struct vocab *v);
const struct trie *vocab_specials(const struct vocab *v);

#endif
