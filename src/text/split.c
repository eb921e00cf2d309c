#include "text/split.h"

#include <stdlib.h>
#include <string.h>

#include "text/regex.h"
#include "text/unicode.h"

struct split {
    const struct split_row *row;
    bool use_scan;
    uint32_t regex_count;
    struct regex *regex[SPLIT_PATTERNS_MAX];
    struct buf passes[2]; /* ends after one pattern, and after the next */
};

/* The name list holds pre as one whole word. */
static bool split_has_name(const char *names, str pre)
{
    str rest = str_of(names), name;
    while (str_split(&rest, ' ', &name))
        if (str_eq(name, pre))
            return true;
    return false;
}

const struct split_row *split_row_find(str pre)
{
    for (size_t i = 0; i < split_table_count; i++)
        if (split_has_name(split_table[i].names, pre))
            return &split_table[i];
    return NULL;
}

void split_free(struct split *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->regex_count; i++)
        regex_free(s->regex[i]);
    buf_deinit(&s->passes[0]);
    buf_deinit(&s->passes[1]);
    free(s);
}

bool split_new(struct split **out, const struct split_row *row, bool use_patterns, struct err *e)
{
    struct split *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "split: out of memory");
    s->row = row;
    s->use_scan = row->scan && !use_patterns;
    buf_init(&s->passes[0], UINT32_MAX);
    buf_init(&s->passes[1], UINT32_MAX);
    for (uint32_t i = 0; !s->use_scan && i < SPLIT_PATTERNS_MAX && row->patterns[i]; i++) {
        if (!regex_new(&s->regex[i], str_of(row->patterns[i]), e)) {
            split_free(s);
            return err_wrap(e, "split '%s', pattern %u", row->names, i);
        }
        s->regex_count++;
    }
    *out = s;
    return true;
}

static bool split_end(struct buf *ends, size_t at)
{
    uint32_t end = (uint32_t)at;
    return buf_add_bytes(ends, &end, sizeof end);
}

/* ---- scanning: the classes of characters, one at a time ---- */

#define SPLIT_NEWLINE 1024u /* besides UNICODE_SPACE: \r or \n */

struct split_char {
    uint32_t code, len;
    unsigned class; /* 0 behind the end */
};

static unsigned split_ascii_class(uint8_t c)
{
    if ((c >= 'a' && c <= 'z'))
        return UNICODE_LOWER;
    if (c >= 'A' && c <= 'Z')
        return UNICODE_UPPER;
    if (c >= '0' && c <= '9')
        return UNICODE_DIGIT;
    if (c == '\n' || c == '\r')
        return UNICODE_SPACE | SPLIT_NEWLINE;
    if (c == ' ' || (c >= 9 && c <= 13))
        return UNICODE_SPACE;
    return UNICODE_PUNCT; /* symbols and controls: the scans treat them alike */
}

static struct split_char split_char_at(str s, size_t at)
{
    if (at >= s.len)
        return (struct split_char){0};
    uint8_t c = (uint8_t)s.p[at];
    if (c < 0x80)
        return (struct split_char){.code = c, .len = 1, .class = split_ascii_class(c)};
    struct split_char r = {0};
    r.len = (uint32_t)str_utf8_decode(str_from(s, at), &r.code);
    must(r.len > 0);
    r.class = unicode_class(r.code);
    return r;
}

/* The end of the run of characters of these classes. */
static size_t split_run(str s, size_t at, unsigned classes)
{
    for (;;) {
        struct split_char c = split_char_at(s, at);
        if (!(c.class & classes))
            return at;
        at += c.len;
    }
}

/* ---- scanning: contractions ---- */

/* Length of 's 't 're 've 'm 'll 'd at at, 0 if there is none. */
static size_t split_contraction(str s, size_t at, bool fold)
{
    str rest = str_from(s, at);
    if (rest.len < 2 || rest.p[0] != '\'')
        return 0;
    if (fold && rest.len >= 3 && !memcmp(rest.p + 1, "\xc5\xbf", 2))
        return 3; /* U+017F folds to s */
    char a = rest.p[1], b = rest.len > 2 ? rest.p[2] : 0;
    if (fold) {
        a = (char)(a >= 'A' && a <= 'Z' ? a + 32 : a);
        b = (char)(b >= 'A' && b <= 'Z' ? b + 32 : b);
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
        return 3;
    return 0;
}

/* ---- scanning: words of letters ---- */

#define SPLIT_U (UNICODE_UPPER | UNICODE_CASELESS | UNICODE_MARK)
#define SPLIT_W (UNICODE_LOWER | UNICODE_CASELESS | UNICODE_MARK)

/* split_run, and with han_apart without Han. *both: behind the last character in U and W. */
static size_t split_run_letters(str s, size_t at, unsigned classes, bool han_apart, size_t *both)
{
    for (;;) {
        struct split_char c = split_char_at(s, at);
        if (!(c.class & classes) || (han_apart && c.code >= 0x2e80 && unicode_is_han(c.code)))
            return at;
        at += c.len;
        if (both && (c.class & SPLIT_U & SPLIT_W))
            *both = at;
    }
}

/* The end of U*W+ at at, as a backtracking search finds it: W+ takes what follows the longest U*,
 * or else the last character of that run which is in both. at if it does not match. */
static size_t split_upper_lower(str s, size_t at, bool han_apart)
{
    size_t both = at;
    size_t upper = split_run_letters(s, at, SPLIT_U, han_apart, &both);
    size_t lower = split_run_letters(s, upper, SPLIT_W, han_apart, NULL);
    return lower > upper ? lower : both;
}

/* prefix?U*W+ or else prefix?U+W*: the end, or at. prefix: length of the character at at if it may
 * be one. A mark may be a prefix and part of a word, so both readings are tried, in that order. */
static size_t split_cased(str s, size_t at, uint32_t prefix, bool han_apart)
{
    for (size_t from = at + prefix;; from = at) {
        size_t end = split_upper_lower(s, from, han_apart);
        if (end > from)
            return end;
        if (from == at)
            break;
    }
    for (size_t from = at + prefix;; from = at) {
        size_t upper = split_run_letters(s, from, SPLIT_U, han_apart, NULL);
        if (upper > from)
            return split_run_letters(s, upper, SPLIT_W, han_apart, NULL);
        if (from == at)
            return at;
    }
}

static size_t split_letters(const struct split_scan *k, str s, size_t at, struct split_char c)
{
    unsigned letters = UNICODE_LETTER | (k->marks_are_letters ? UNICODE_MARK : 0u);
    bool may_prefix = k->prefix == SPLIT_PREFIX_SPACE
                          ? c.code == ' '
                          : !(c.class & (UNICODE_LETTER | UNICODE_NUMBER | SPLIT_NEWLINE));
    size_t end;
    if (k->has_case) {
        end = split_cased(s, at, may_prefix ? c.len : 0, k->han_apart);
    } else {
        size_t from = at + (may_prefix && !(c.class & letters) ? c.len : 0);
        end = split_run(s, from, letters);
        end = end > from ? end : at;
    }
    if (end > at && k->contraction == SPLIT_CONTRACTION_SUFFIX)
        end += split_contraction(s, end, true);
    return end;
}

/* ---- scanning: numbers, others, blanks ---- */

static size_t split_numbers(const struct split_scan *k, str s, size_t at)
{
    if (!k->digits_max)
        return split_run(s, at, UNICODE_NUMBER);
    for (uint32_t i = 0; i < k->digits_max; i++) {
        struct split_char c = split_char_at(s, at);
        if (!(c.class & UNICODE_NUMBER))
            break;
        at += c.len;
    }
    return at;
}

static size_t split_others(const struct split_scan *k, str s, size_t at)
{
    unsigned others = UNICODE_PUNCT | UNICODE_SYMBOL | UNICODE_REST |
                      (k->marks_are_letters ? 0u : UNICODE_MARK);
    size_t end = split_run(s, at, others);
    if (end > at)
        while (end < s.len && s.p[end] && strchr(k->tail, s.p[end]))
            end++;
    return end;
}

/* at is a blank that no word took as its prefix. */
static size_t split_blanks(const struct split_scan *k, str s, size_t at)
{
    size_t end = at, last = at, newline = 0;
    for (;;) {
        struct split_char c = split_char_at(s, end);
        if (!(c.class & UNICODE_SPACE)) {
            if (newline && !k->no_newline_words)
                return newline; /* \s*[\r\n]+ */
            if (c.class == 0 || (k->digits_apart && (c.class & UNICODE_NUMBER)))
                return end; /* \s+ before the end of the piece */
            return last > at ? last : end; /* \s+(?!\S), or the one blank */
        }
        last = end;
        end += c.len;
        if (c.class & SPLIT_NEWLINE)
            newline = end;
    }
}

/* The end of the word that begins at at. */
static size_t split_word(const struct split_scan *k, str s, size_t at)
{
    struct split_char c = split_char_at(s, at);
    if (k->digits_apart && (c.class & UNICODE_NUMBER))
        return at + c.len;
    if (k->han_apart && unicode_is_han(c.code)) {
        while (at < s.len && unicode_is_han(c.code)) {
            at += c.len;
            c = split_char_at(s, at);
        }
        return at;
    }
    if (c.code == '\'' && (k->contraction == SPLIT_CONTRACTION_EXACT ||
                           k->contraction == SPLIT_CONTRACTION_FOLD)) {
        size_t len = split_contraction(s, at, k->contraction == SPLIT_CONTRACTION_FOLD);
        if (len)
            return at + len;
    }
    size_t end = split_letters(k, s, at, c);
    if (end > at)
        return end;
    size_t from = at + (c.code == ' ' ? 1 : 0);
    size_t number = k->prefix == SPLIT_PREFIX_SPACE && !k->digits_apart ? from : at;
    end = split_numbers(k, s, number);
    if (end > number)
        return end;
    end = split_others(k, s, from);
    return end > from ? end : split_blanks(k, s, at);
}

static bool split_scan_piece(const struct split_scan *k, str text, size_t from, size_t to,
                             struct buf *ends)
{
    str piece = str_sub(text, 0, to);
    while (from < to) {
        size_t end = split_word(k, piece, from);
        must(end > from && end <= to);
        if (!split_end(ends, end))
            return false;
        from = end;
    }
    return true;
}

/* ---- digits in threes from the right ---- */

/* Ends of the pieces of the numbers from..to: cut before each digit that has a multiple of three
 * digits from itself to the end of its run of digits. */
static bool split_threes(str s, size_t from, size_t to, struct buf *ends)
{
    size_t left = 0; /* digits to the end of the run */
    for (size_t at = from; at < to;) {
        struct split_char c = split_char_at(s, at);
        if (!(c.class & UNICODE_DIGIT)) {
            at += c.len;
            continue;
        }
        if (left == 0)
            for (size_t i = at, end = split_run(s, at, UNICODE_DIGIT); i < end; left++)
                i += split_char_at(s, i).len;
        if (left % 3 == 0 && at > from && !split_end(ends, at))
            return false;
        left--;
        at += c.len;
    }
    return split_end(ends, to);
}

/* The pieces of a first pass: \d{1,3}(?=(?:\d{3})*\b), or with is_whole \p{N}+ and in it
 * (?=(\d{3})+(?!\d)). The patterns look ahead to the end of a run from each of its digits, which
 * is quadratic; counting from the right once is not. */
static bool split_pieces(const struct split_scan *k, str s, struct buf *ends)
{
    const unsigned numbers = k->is_whole ? UNICODE_NUMBER : UNICODE_DIGIT;
    size_t done = 0; /* end of the last piece */
    for (size_t at = 0; at < s.len;) {
        struct split_char c = split_char_at(s, at);
        if (!(c.class & numbers)) {
            at += c.len;
            continue;
        }
        size_t run = split_run(s, at, numbers);
        struct split_char next = split_char_at(s, run);
        if (k->is_whole || !next.class || !unicode_is_word(next.code)) {
            if ((done < at && !split_end(ends, at)) || !split_threes(s, at, run, ends))
                return false;
            done = run;
        }
        at = run;
    }
    return done == s.len || split_end(ends, s.len);
}

static bool split_scan(const struct split_scan *k, str text, struct buf *pieces, struct buf *ends)
{
    if (!k->threes && !k->is_whole)
        return split_scan_piece(k, text, 0, text.len, ends);
    if (k->is_whole)
        return split_pieces(k, text, ends);
    buf_clear(pieces);
    if (!split_pieces(k, text, pieces))
        return false;
    const uint32_t *end = (const uint32_t *)(const void *)pieces->p;
    for (size_t i = 0, from = 0; i < pieces->len / sizeof *end; from = end[i], i++)
        if (!split_scan_piece(k, text, from, end[i], ends))
            return false;
    return true;
}

/* ---- patterns ---- */

/* Cuts piece, which begins at base, by one pattern: its matches and what lies between. */
static bool split_piece(struct regex *r, str piece, size_t base, struct buf *ends, struct err *e)
{
    size_t done = 0, from = 0;
    while (from < piece.len) {
        size_t start = 0, end = 0;
        enum regex_result found = regex_find(r, piece, from, &start, &end, e);
        if (found == REGEX_FAILED)
            return false;
        if (found == REGEX_NONE)
            break;
        if (start > done && !split_end(ends, base + start))
            goto full;
        if (end > start && !split_end(ends, base + end))
            goto full;
        done = end > done ? end : done;
        from = end;
        if (end == start) { /* matched between two characters: go on behind the next one */
            done = start;
            from = start + split_char_at(piece, start).len + (start == piece.len);
        }
    }
    if (done == piece.len || split_end(ends, base + piece.len))
        return true;
full:
    return err_set(e, ERR_LIMIT, "split: out of memory for words of %zu bytes", piece.len);
}

static bool split_by_patterns(struct split *s, str text, struct buf *ends, struct err *e)
{
    struct buf *in = &s->passes[0], *out = &s->passes[1];
    buf_clear(in);
    if (!split_end(in, text.len))
        return err_set(e, ERR_MEMORY, "split: out of memory");
    for (uint32_t i = 0; i < s->regex_count; i++) {
        struct buf *to = i + 1 == s->regex_count ? ends : out;
        const uint32_t *end = (const uint32_t *)(const void *)in->p;
        size_t count = in->len / sizeof *end;
        buf_clear(out);
        for (size_t j = 0, from = 0; j < count; from = end[j], j++)
            if (!split_piece(s->regex[i], str_sub(text, from, end[j] - from), from, to, e))
                return false;
        struct buf *swap = in;
        in = out;
        out = swap;
    }
    return true;
}

bool split_words(struct split *s, str text, struct buf *ends, struct err *e)
{
    must(text.len > 0 && text.len < UINT32_MAX);
    if (!s->use_scan)
        return split_by_patterns(s, text, ends, e);
    if (!split_scan(s->row->scan, text, &s->passes[0], ends))
        return err_set(e, ERR_LIMIT, "split: out of memory for words of %zu bytes", text.len);
    return true;
}
