#include "text/unicode.h"

#include <string.h>
#include <utf8proc.h>

#define UNICODE_REPLACEMENT "\xef\xbf\xbd"

/* ---- UTF-8 ---- */

size_t unicode_sequence(str s, bool *is_whole, bool *is_dead)
{
    const uint8_t *p = (const uint8_t *)s.p;
    uint8_t c = p[0], low = 0x80, high = 0xbf;
    *is_whole = c < 0x80;
    *is_dead = c >= 0x80 && (c < 0xc2 || c > 0xf4);
    if (*is_whole || *is_dead)
        return 1;
    size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    /* The second byte alone decides about overlong forms, surrogates and the end of the range. */
    if (c == 0xe0)
        low = 0xa0;
    else if (c == 0xed)
        high = 0x9f;
    else if (c == 0xf0)
        low = 0x90;
    else if (c == 0xf4)
        high = 0x8f;
    size_t n = 1;
    while (n < need && n < s.len && p[n] >= low && p[n] <= high) {
        low = 0x80;
        high = 0xbf;
        n++;
    }
    *is_whole = n == need;
    *is_dead = n < need && n < s.len;
    return n;
}

bool unicode_is_valid(str s)
{
    for (size_t at = 0; at < s.len;) {
        uint64_t eight;
        if (s.len - at >= sizeof eight) { /* most text is ASCII */
            memcpy(&eight, s.p + at, sizeof eight);
            if (!(eight & 0x8080808080808080ull)) {
                at += sizeof eight;
                continue;
            }
        }
        bool is_whole, is_dead;
        at += unicode_sequence(str_from(s, at), &is_whole, &is_dead);
        if (!is_whole)
            return false;
    }
    return true;
}

bool unicode_repair(str s, struct buf *out)
{
    size_t kept = 0, at = 0;
    while (at < s.len) {
        bool is_whole, is_dead;
        size_t n = unicode_sequence(str_from(s, at), &is_whole, &is_dead);
        if (!is_whole) {
            if (!buf_add(out, str_sub(s, kept, at - kept)) || !buf_add_z(out, UNICODE_REPLACEMENT))
                return false;
            kept = at + n;
        }
        at += n;
    }
    return buf_add(out, str_from(s, kept));
}

/* ---- normal form C ----
 *
 * utf8proc decomposes one character and composes a whole buffer, both in linear time; its sorting
 * of combining marks is quadratic, so that step is ours: runs of marks are sorted by combining
 * class, stably, short ones by insertion, long ones by counting. */

#define UNICODE_SHORT_RUN 24u /* insertion sort stays below the cost of clearing 256 counters */

bool unicode_is_plain(str s)
{
    uint8_t above = 0;
    for (size_t i = 0; i < s.len; i++)
        above |= (uint8_t)((uint8_t)s.p[i] >= 0xcc); /* the first byte of U+0300 */
    return !above;
}

static uint8_t unicode_combining(int32_t c)
{
    return c < 0x300 ? 0 : (uint8_t)utf8proc_get_property(c)->combining_class;
}

static void unicode_sort_short(int32_t *run, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        int32_t c = run[i];
        uint8_t cc = unicode_combining(c);
        size_t j = i;
        for (; j > 0 && unicode_combining(run[j - 1]) > cc; j--)
            run[j] = run[j - 1];
        run[j] = c;
    }
}

static void unicode_sort_long(int32_t *run, size_t count, int32_t *tmp)
{
    size_t starts[257] = {0};
    for (size_t i = 0; i < count; i++)
        starts[unicode_combining(run[i]) + 1]++;
    for (size_t i = 1; i < countof(starts); i++)
        starts[i] += starts[i - 1];
    for (size_t i = 0; i < count; i++)
        tmp[starts[unicode_combining(run[i])]++] = run[i];
    memcpy(run, tmp, count * sizeof *run);
}

/* Puts the marks behind each base character into canonical order. */
static bool unicode_sort_marks(struct buf *points)
{
    size_t count = points->len / sizeof(int32_t);
    for (size_t from = 0, to; from < count; from = to) {
        int32_t *c = (int32_t *)(void *)points->p;
        bool sorted = true;
        uint8_t last = 0;
        for (to = from; to < count; to++) {
            uint8_t cc = unicode_combining(c[to]);
            if (cc == 0)
                break;
            sorted = sorted && cc >= last;
            last = cc;
        }
        if (sorted) {
            to += to == from;
        } else if (to - from <= UNICODE_SHORT_RUN) {
            unicode_sort_short(c + from, to - from);
        } else {
            if (!buf_reserve(points, (to - from) * sizeof *c))
                return false;
            c = (int32_t *)(void *)points->p;
            unicode_sort_long(c + from, to - from, c + count);
        }
    }
    return true;
}

static bool unicode_decompose(str s, struct buf *points)
{
    for (size_t at = 0; at < s.len;) {
        uint32_t c = 0;
        size_t n = str_utf8_decode(str_from(s, at), &c);
        must(n > 0);
        at += n;
        int32_t parts[8];
        int boundary = 0;
        utf8proc_ssize_t count = 1;
        parts[0] = (int32_t)c;
        if (c >= 0xc0)
            count = utf8proc_decompose_char((int32_t)c, parts, countof(parts), UTF8PROC_DECOMPOSE,
                                            &boundary);
        must(count > 0 && count <= (utf8proc_ssize_t)countof(parts));
        if (!buf_add_bytes(points, parts, (size_t)count * sizeof parts[0]))
            return false;
    }
    return true;
}

static bool unicode_nfc_stretch(str s, struct buf *scratch, struct buf *out)
{
    buf_clear(scratch);
    if (!unicode_decompose(s, scratch) || !unicode_sort_marks(scratch))
        return false;
    size_t count = scratch->len / sizeof(int32_t);
    if (count == 0)
        return true;
    int32_t *c = (int32_t *)(void *)scratch->p;
    utf8proc_ssize_t left = utf8proc_normalize_utf32(c, (utf8proc_ssize_t)count,
                                                     UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    must(left > 0 && (size_t)left <= count);
    for (utf8proc_ssize_t i = 0; i < left; i++) {
        char text[4];
        if (!buf_add_bytes(out, text, str_utf8_encode(text, (uint32_t)c[i])))
            return false;
    }
    return true;
}

/* Characters below U+0300 are in normal form and never join what is before them; so only a stretch
 * of others, with the character before it, needs work. */
bool unicode_nfc(str s, struct buf *scratch, struct buf *out)
{
    size_t done = 0, at = 0;
    while (at < s.len) {
        if ((uint8_t)s.p[at] < 0xcc) {
            at++;
            continue;
        }
        size_t from = at; /* and the character before it */
        if (from > done)
            for (from--; from > done && ((uint8_t)s.p[from] & 0xc0u) == 0x80u;)
                from--;
        while (at < s.len && ((uint8_t)s.p[at] >= 0xcc || ((uint8_t)s.p[at] & 0xc0u) == 0x80u))
            at++;
        if (!buf_add(out, str_sub(s, done, from - done)) ||
            !unicode_nfc_stretch(str_sub(s, from, at - from), scratch, out))
            return false;
        done = at;
    }
    return buf_add(out, str_from(s, done));
}

/* ---- classes ---- */

static bool unicode_is_space(uint32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= 9 && c <= 13);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* By utf8proc's category. */
static const uint16_t unicode_classes[] = {
    [UTF8PROC_CATEGORY_CN] = UNICODE_REST,     [UTF8PROC_CATEGORY_LU] = UNICODE_UPPER,
    [UTF8PROC_CATEGORY_LL] = UNICODE_LOWER,    [UTF8PROC_CATEGORY_LT] = UNICODE_UPPER,
    [UTF8PROC_CATEGORY_LM] = UNICODE_CASELESS, [UTF8PROC_CATEGORY_LO] = UNICODE_CASELESS,
    [UTF8PROC_CATEGORY_MN] = UNICODE_MARK,     [UTF8PROC_CATEGORY_MC] = UNICODE_MARK,
    [UTF8PROC_CATEGORY_ME] = UNICODE_MARK,     [UTF8PROC_CATEGORY_ND] = UNICODE_DIGIT,
    [UTF8PROC_CATEGORY_NL] = UNICODE_NUMERAL,  [UTF8PROC_CATEGORY_NO] = UNICODE_NUMERAL,
    [UTF8PROC_CATEGORY_PC] = UNICODE_PUNCT,    [UTF8PROC_CATEGORY_PD] = UNICODE_PUNCT,
    [UTF8PROC_CATEGORY_PS] = UNICODE_PUNCT,    [UTF8PROC_CATEGORY_PE] = UNICODE_PUNCT,
    [UTF8PROC_CATEGORY_PI] = UNICODE_PUNCT,    [UTF8PROC_CATEGORY_PF] = UNICODE_PUNCT,
    [UTF8PROC_CATEGORY_PO] = UNICODE_PUNCT,    [UTF8PROC_CATEGORY_SM] = UNICODE_SYMBOL,
    [UTF8PROC_CATEGORY_SC] = UNICODE_SYMBOL,   [UTF8PROC_CATEGORY_SK] = UNICODE_SYMBOL,
    [UTF8PROC_CATEGORY_SO] = UNICODE_SYMBOL,   [UTF8PROC_CATEGORY_ZS] = UNICODE_REST,
    [UTF8PROC_CATEGORY_ZL] = UNICODE_REST,     [UTF8PROC_CATEGORY_ZP] = UNICODE_REST,
    [UTF8PROC_CATEGORY_CC] = UNICODE_REST,     [UTF8PROC_CATEGORY_CF] = UNICODE_REST,
    [UTF8PROC_CATEGORY_CS] = UNICODE_REST,     [UTF8PROC_CATEGORY_CO] = UNICODE_REST,
};

unsigned unicode_class(uint32_t c)
{
    return unicode_is_space(c) ? UNICODE_SPACE : unicode_classes[utf8proc_category((int32_t)c)];
}

static bool unicode_in_ranges(uint32_t c, const uint32_t (*ranges)[2], size_t count)
{
    for (size_t i = 0; i < count && c >= ranges[i][0]; i++)
        if (c <= ranges[i][1])
            return true;
    return false;
}

bool unicode_is_word(uint32_t c)
{
    /* Alphabetic symbols (letters in circles and squares), and the numerals of Latin-1, which
     * Oniguruma counts as word characters too. */
    static const uint32_t symbols[][2] = {
        {0xb2, 0xb3},       {0xb9, 0xb9},       {0xbc, 0xbe},      {0x24b6, 0x24e9},
        {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189},
    };
    utf8proc_category_t k = utf8proc_category((int32_t)c);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) ||
           k == UTF8PROC_CATEGORY_PC || unicode_in_ranges(c, symbols, countof(symbols));
}

bool unicode_is_han(uint32_t c)
{
    /* Scripts.txt of Unicode 15, property Han. */
    static const uint32_t ranges[][2] = {
        {0x2e80, 0x2e99},   {0x2e9b, 0x2ef3},   {0x2f00, 0x2fd5},   {0x3005, 0x3005},
        {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303b},   {0x3400, 0x4dbf},
        {0x4e00, 0x9fff},   {0xf900, 0xfa6d},   {0xfa70, 0xfad9},   {0x16fe2, 0x16fe3},
        {0x16ff0, 0x16ff1}, {0x20000, 0x2a6df}, {0x2a700, 0x2b739}, {0x2b740, 0x2b81d},
        {0x2b820, 0x2cea1}, {0x2ceb0, 0x2ebe0}, {0x2f800, 0x2fa1d}, {0x30000, 0x3134a},
        {0x31350, 0x323af},
    };
    return c >= 0x2e80 && unicode_in_ranges(c, ranges, countof(ranges));
}

/* ---- for WordPiece ---- */

bool unicode_is_punctuation(uint32_t c)
{
    if (c < 0x80) /* BERT counts every visible ASCII character that is no letter or digit */
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
               (c >= '{' && c <= '~');
    utf8proc_category_t k = utf8proc_category((int32_t)c);
    return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool unicode_is_ideograph(uint32_t c)
{
    static const uint32_t ranges[][2] = {
        {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},   {0x20000, 0x2a6df},
        {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f},
    };
    return unicode_in_ranges(c, ranges, countof(ranges));
}

bool unicode_is_control(uint32_t c)
{
    if (c == '\t' || c == '\n' || c == '\r')
        return false;
    utf8proc_category_t k = utf8proc_category((int32_t)c);
    return (k >= UTF8PROC_CATEGORY_CC && k <= UTF8PROC_CATEGORY_CO) || k == UTF8PROC_CATEGORY_CN;
}

static bool unicode_add(uint32_t c, struct buf *out)
{
    char text[4];
    return buf_add_bytes(out, text, str_utf8_encode(text, c));
}

bool unicode_lower(uint32_t c, struct buf *out)
{
    if (c == 0x130) /* the one character whose lower case is two */
        return unicode_add('i', out) && unicode_add(0x307, out);
    return unicode_add((uint32_t)utf8proc_tolower((int32_t)c), out);
}

bool unicode_fold(uint32_t c, bool lower, struct buf *out)
{
    int32_t parts[8];
    int boundary = 0;
    utf8proc_ssize_t count = utf8proc_decompose_char((int32_t)c, parts, countof(parts),
                                                     UTF8PROC_DECOMPOSE, &boundary);
    must(count > 0 && count <= (utf8proc_ssize_t)countof(parts));
    for (utf8proc_ssize_t i = 0; i < count; i++) {
        if (utf8proc_category(parts[i]) == UTF8PROC_CATEGORY_MN)
            continue;
        uint32_t part = (uint32_t)parts[i];
        if (!(lower ? unicode_lower(part, out) : unicode_add(part, out)))
            return false;
    }
    return true;
}
