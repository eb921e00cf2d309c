/* split - cutting a fragment of text into the words that byte-level BPE works on.
 *
 * Owns:      the rules of every known tokenizer.ggml.pre (split_table.c) and their application.
 * Not:       merging (tok_bpe), special tokens (tok), regular expressions as such (regex).
 * Invariant: a row's patterns define the words: each pattern in turn splits the pieces that the
 *            earlier ones left, a match is a piece of its own, so is what lies between two. A row's
 *            scan gives the same words in one pass over the characters; a test compares the two.
 *            The words cover the text without gaps or overlaps, in order; none is empty.
 *
 *     text    Hello  world1234      (llama-bpe)
 *     words   |Hello| | world|123|4|
 *
 * Thread:    one thread at a time: matching keeps scratch.
 * Limits:    text < 4 GiB; those of regex. Time is linear in the text.
 * Source:    docs/models/tokenizers.md.
 */
#ifndef SHOAL_TEXT_SPLIT_H
#define SHOAL_TEXT_SPLIT_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "text/vocab.h"

#define SPLIT_PATTERNS_MAX 6u

/* What a scan knows; each names the part of the patterns it stands for. */
enum split_contraction {
    SPLIT_CONTRACTION_NONE,
    SPLIT_CONTRACTION_EXACT,  /* 's|'t|'re|... as a word, lower case only */
    SPLIT_CONTRACTION_FOLD,   /* the same in any case, U+017F as s */
    SPLIT_CONTRACTION_SUFFIX, /* in any case, as the end of a word of letters */
};
enum split_prefix {
    SPLIT_PREFIX_SPACE, /* " ?": one space may open a word of letters, numbers or others */
    SPLIT_PREFIX_ANY,   /* "[^\r\n\p{L}\p{N}]?" opens letters, " ?" others, nothing numbers */
};
struct split_scan {
    enum split_contraction contraction;
    enum split_prefix prefix;
    bool has_case;         /* letters: U*W+|U+W*, else one run */
    bool marks_are_letters;
    bool han_apart;        /* runs of Han are words, other letters exclude it */
    bool no_newline_words; /* no "\s*[\r\n]+" */
    bool digits_apart;     /* "\p{N}" alone as the first pattern: digits never have a prefix */
    bool threes;           /* first of all: digit runs in threes, counted from the right */
    bool is_whole;         /* superbpe: numbers apart, in threes from the right, nothing else */
    uint32_t digits_max;   /* \p{N}{1,digits_max}; 0: \p{N}+ */
    const char *tail;      /* which of "\r\n/" may follow a run of others, or "" */
};

struct split_row {
    const char *names; /* values of tokenizer.ggml.pre, separated by blanks */
    const char *patterns[SPLIT_PATTERNS_MAX]; /* PCRE2; NULL ends the list */
    const struct split_scan *scan;            /* NULL: the patterns are run */
    bool ignore_merges; /* a word that is a token is that token */
    bool add_bos;       /* where the file says nothing */
    bool add_sep;
    bool nfc;           /* the reference normalises first */
    enum vocab_form form;
};

/* NULL if no row has that name. */
const struct split_row *split_row_find(str pre);
/* Rows of split_table.c, for tests and listings. */
extern const struct split_row split_table[];
extern const size_t split_table_count;

struct split;
/* row must outlive it (rows are static). use_patterns: even where the row has a scan. */
BASE_USE_RESULT bool split_new(struct split **s, const struct split_row *row, bool use_patterns,
                               struct err *e);
void split_free(struct split *s); /* NULL is fine */

/* Appends to ends (uint32_t[]) where each word of text ends. text: valid UTF-8, not empty.
 * ERR_LIMIT: a pattern hit its limit, or ends is full. */
BASE_USE_RESULT bool split_words(struct split *s, str text, struct buf *ends, struct err *e);

#endif
