#include "chat/jinja_text.h"

#include <stdio.h>
#include <string.h>

#include "chat/jinja_case.h"

/* ---- Memory and steps ---- */

static void stop(struct jinja_heap *h, enum jinja_stop why)
{
    if (h->stop == JINJA_STOP_NONE)
        h->stop = why;
}

void *jinja_text_alloc(struct jinja_heap *h, size_t count, size_t size)
{
    void *p = h->stop == JINJA_STOP_NONE ? arena_alloc_array(h->arena, count, size) : NULL;
    if (p == NULL)
        stop(h, JINJA_STOP_MEMORY);
    return p;
}

void jinja_text_charge(struct jinja_heap *h, size_t steps)
{
    if (steps > h->steps_left) {
        h->steps_left = 0;
        stop(h, JINJA_STOP_STEPS);
    } else {
        h->steps_left -= steps;
    }
}

/* Reading or copying 32 bytes costs about as much as one node of the tree. */
static void charge_bytes(struct jinja_heap *h, size_t len) { jinja_text_charge(h, len / 32); }

/* ---- Building ---- */

static bool is_ascii(str s)
{
    uint64_t high = 0;
    size_t i = 0;
    for (; i + 8 <= s.len; i += 8) {
        uint64_t w;
        memcpy(&w, s.p + i, 8);
        high |= w;
    }
    for (; i < s.len; i++)
        high |= (uint64_t)(uint8_t)s.p[i] << 56;
    return (high & UINT64_C(0x8080808080808080)) == 0;
}

static bool grow(struct jinja_heap *h, struct jinja_text *t, size_t more)
{
    if (more > JINJA_TEXT_MAX - t->used) {
        stop(h, JINJA_STOP_SIZE);
        return false;
    }
    if (more <= t->cap - t->used)
        return true;
    size_t cap = base_max(64, (t->used + more) * 2);
    char *p = jinja_text_alloc(h, cap, 1);
    if (p == NULL)
        return false;
    if (t->used)
        memcpy(p, t->p, t->used);
    t->p = p;
    t->cap = (uint32_t)cap;
    return true;
}

static bool mark(struct jinja_heap *h, struct jinja_text *t, uint32_t origin)
{
    if (t->pieces_count && t->pieces[t->pieces_count - 1].origin == origin)
        return true;
    if (t->pieces_count == t->pieces_cap) {
        uint32_t cap = t->pieces_cap ? t->pieces_cap * 2 : 4;
        struct jinja_piece *pieces = jinja_text_alloc(h, cap, sizeof *pieces);
        if (pieces == NULL)
            return false;
        if (t->pieces_count)
            memcpy(pieces, t->pieces, t->pieces_count * sizeof *pieces);
        t->pieces = pieces;
        t->pieces_cap = cap;
    }
    t->pieces[t->pieces_count++] = (struct jinja_piece){t->used, origin};
    return true;
}

struct jinja_build jinja_text_begin(struct jinja_heap *h)
{
    struct jinja_text *t = jinja_text_alloc(h, 1, sizeof *t);
    if (t)
        t->is_ascii = true;
    return (struct jinja_build){h, t, 0};
}

void jinja_text_add(struct jinja_build *b, str bytes, uint32_t origin)
{
    struct jinja_text *t = b->text;
    if (bytes.len == 0 || t == NULL || !grow(b->h, t, bytes.len) || !mark(b->h, t, origin))
        return;
    charge_bytes(b->h, bytes.len);
    memcpy(t->p + t->used, bytes.p, bytes.len);
    t->is_ascii = t->is_ascii && is_ascii(bytes);
    t->used += (uint32_t)bytes.len;
    t->pieces[t->pieces_count - 1].end = t->used;
}

void jinja_text_add_str(struct jinja_build *b, struct jinja_str s)
{
    for (uint32_t at = 0, end; at < s.len; at = end) {
        uint32_t origin = jinja_text_origin(s, at, &end);
        /* The bytes may lie in the text that grows, which keeps their offset but moves them. */
        if (b->text == s.text && !grow(b->h, b->text, end - at))
            return;
        jinja_text_add(b, (str){s.text->p + s.off + at, end - at}, origin);
    }
}

static void add_code(struct jinja_build *b, uint32_t code_point, uint32_t origin)
{
    char bytes[4];
    jinja_text_add(b, (str){bytes, str_utf8_encode(bytes, code_point)}, origin);
}

struct jinja_str jinja_text_end(struct jinja_build *b)
{
    if (b->text == NULL || b->h->stop != JINJA_STOP_NONE)
        return (struct jinja_str){0};
    return (struct jinja_str){b->text, b->off, b->text->used - b->off};
}

struct jinja_str jinja_text_of(struct jinja_heap *h, str bytes, uint32_t origin)
{
    if (bytes.len == 0)
        return (struct jinja_str){0};
    if (bytes.len > JINJA_TEXT_MAX) {
        stop(h, JINJA_STOP_SIZE);
        return (struct jinja_str){0};
    }
    struct {
        struct jinja_text text;
        struct jinja_piece piece;
    } *own = jinja_text_alloc(h, 1, sizeof *own);
    if (own == NULL)
        return (struct jinja_str){0};
    uint32_t len = (uint32_t)bytes.len;
    own->piece = (struct jinja_piece){len, origin};
    own->text = (struct jinja_text){(char *)(uintptr_t)bytes.p, len, len, &own->piece, 1, 1,
                                    is_ascii(bytes)};
    return (struct jinja_str){&own->text, 0, len};
}

struct jinja_str jinja_text_concat(struct jinja_heap *h, struct jinja_str a, struct jinja_str b)
{
    if (a.len == 0 || b.len == 0)
        return a.len ? a : b;
    struct jinja_build out;
    if (a.text->cap > a.text->used && a.off + a.len == a.text->used) {
        out = (struct jinja_build){h, a.text, a.off};
    } else {
        out = jinja_text_begin(h);
        if (out.text && !grow(h, out.text, (size_t)a.len + b.len))
            return (struct jinja_str){0};
        jinja_text_add_str(&out, a);
    }
    jinja_text_add_str(&out, b);
    return jinja_text_end(&out);
}

/* ---- Views ---- */

uint32_t jinja_text_origin(struct jinja_str s, uint32_t at, uint32_t *end)
{
    uint32_t low = 0, high = s.text->pieces_count - 1, where = s.off + at;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (s.text->pieces[mid].end <= where)
            low = mid + 1;
        else
            high = mid;
    }
    *end = (uint32_t)base_min(s.text->pieces[low].end - s.off, s.len);
    return s.text->pieces[low].origin;
}

uint32_t jinja_text_taint(struct jinja_str s)
{
    for (uint32_t at = 0; at < s.len;) {
        uint32_t origin = jinja_text_origin(s, at, &at);
        if (origin)
            return origin;
    }
    return 0;
}

bool jinja_text_eq(struct jinja_str a, struct jinja_str b)
{
    return str_eq(jinja_text_bytes(a), jinja_text_bytes(b));
}

struct jinja_str jinja_text_cut(struct jinja_str s, size_t from, size_t to)
{
    to = base_min(to, s.len);
    if (from >= to)
        return (struct jinja_str){0};
    return (struct jinja_str){s.text, s.off + (uint32_t)from, (uint32_t)(to - from)};
}

size_t jinja_text_length(struct jinja_heap *h, struct jinja_str s)
{
    if (s.len == 0 || s.text->is_ascii)
        return s.len;
    charge_bytes(h, s.len);
    const char *p = s.text->p + s.off;
    size_t count = 0;
    for (uint32_t i = 0; i < s.len; i++)
        count += ((uint8_t)p[i] & 0xc0) != 0x80;
    return count;
}

/* Offset of code point number n, or len. */
static size_t offset_of(struct jinja_heap *h, struct jinja_str s, int64_t n)
{
    if (s.len == 0 || s.text->is_ascii)
        return base_min((size_t)n, s.len);
    charge_bytes(h, s.len);
    const char *p = s.text->p + s.off;
    for (uint32_t i = 0; i < s.len; i++)
        if (((uint8_t)p[i] & 0xc0) != 0x80 && n-- == 0)
            return i;
    return s.len;
}

static size_t code_len(uint8_t first)
{
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

struct jinja_str jinja_text_slice(struct jinja_heap *h, struct jinja_str s, int64_t from,
                                  int64_t to, int64_t step)
{
    if (step == 1)
        return from >= to ? (struct jinja_str){0}
                          : jinja_text_cut(s, offset_of(h, s, from), offset_of(h, s, to));
    struct jinja_build b = jinja_text_begin(h);
    size_t count = jinja_text_length(h, s), n = 0;
    uint32_t *offsets = jinja_text_alloc(h, count + 1, sizeof *offsets);
    if (offsets == NULL)
        return (struct jinja_str){0};
    for (size_t i = 0; i < s.len; i += code_len((uint8_t)s.text->p[s.off + i]))
        offsets[n++] = (uint32_t)i;
    offsets[n] = s.len;
    for (int64_t i = from; step > 0 ? i < to : i > to; i += step)
        jinja_text_add_str(&b, jinja_text_cut(s, offsets[i], offsets[i + 1]));
    return jinja_text_end(&b);
}

size_t jinja_text_find(struct jinja_heap *h, struct jinja_str s, str what, size_t from)
{
    if (from > s.len)
        return STR_NONE;
    size_t at = str_find(str_from(jinja_text_bytes(s), from), what);
    charge_bytes(h, (at == STR_NONE ? s.len - from : at) + what.len);
    return at == STR_NONE ? STR_NONE : from + at;
}

/* ---- Changes ---- */

struct jinja_str jinja_text_replace(struct jinja_heap *h, struct jinja_str s, str old,
                                    struct jinja_str with, int64_t count)
{
    struct jinja_build b = jinja_text_begin(h);
    size_t done = 0, at = 0;
    if (old.len && jinja_text_find(h, s, old, 0) == STR_NONE)
        return s;
    for (; count != 0 && h->stop == JINJA_STOP_NONE; count--) {
        if (old.len) {
            at = jinja_text_find(h, s, old, done);
            if (at == STR_NONE)
                break;
            jinja_text_add_str(&b, jinja_text_cut(s, done, at));
            jinja_text_add_str(&b, with);
            done = at + old.len;
        } else {
            jinja_text_charge(h, 1);
            jinja_text_add_str(&b, with);
            if (done >= s.len)
                break;
            at = done + code_len((uint8_t)s.text->p[s.off + done]);
            jinja_text_add_str(&b, jinja_text_cut(s, done, at));
            done = at;
        }
    }
    jinja_text_add_str(&b, jinja_text_cut(s, done, s.len));
    return jinja_text_end(&b);
}

static bool is_stripped(struct jinja_heap *h, uint32_t c, str chars)
{
    if (chars.p == NULL)
        return jinja_case_is_blank(c);
    charge_bytes(h, chars.len);
    uint32_t other;
    for (size_t i = 0; i < chars.len; i += str_utf8_decode(str_from(chars, i), &other))
        if (str_utf8_decode(str_from(chars, i), &other) && other == c)
            return true;
    return false;
}

/* The code point that ends at offset end > 0. */
static uint32_t code_before(str s, size_t end, size_t *start)
{
    size_t at = end - 1;
    while (at > 0 && ((uint8_t)s.p[at] & 0xc0) == 0x80)
        at--;
    uint32_t c = 0;
    str_utf8_decode(str_sub(s, at, end - at), &c);
    *start = at;
    return c;
}

struct jinja_str jinja_text_strip(struct jinja_heap *h, struct jinja_str s, str chars,
                                  enum jinja_side side)
{
    str bytes = jinja_text_bytes(s);
    size_t from = 0, to = s.len, at;
    uint32_t c;
    while ((side & JINJA_SIDE_LEFT) && from < to && h->stop == JINJA_STOP_NONE) {
        size_t len = str_utf8_decode(str_from(bytes, from), &c);
        if (len == 0 || !is_stripped(h, c, chars))
            break;
        from += len;
    }
    while ((side & JINJA_SIDE_RIGHT) && to > from && h->stop == JINJA_STOP_NONE) {
        c = code_before(bytes, to, &at);
        if (!is_stripped(h, c, chars))
            break;
        to = at;
    }
    charge_bytes(h, from + (s.len - to));
    return jinja_text_cut(s, from, to);
}

/* A capital sigma behind a cased letter, with none after it: the final form (Unicode's
 * Final_Sigma, as CPython applies it). The look-around is bounded to keep the whole linear. */
#define SIGMA_LOOK_MAX 256
static uint32_t lower_sigma(str s, size_t at)
{
    size_t start = at, end = at + 2;
    uint32_t c = 0;
    for (size_t n = 0; start > 0 && n < SIGMA_LOOK_MAX; n++) {
        c = code_before(s, start, &start);
        if (!jinja_case_is_ignorable(c))
            break;
        c = 0;
    }
    if (!jinja_case_is_cased(c))
        return 0x3c3;
    for (size_t n = 0; end < s.len && n < SIGMA_LOOK_MAX; n++) {
        end += str_utf8_decode(str_from(s, end), &c);
        if (!jinja_case_is_ignorable(c))
            return jinja_case_is_cased(c) ? 0x3c3 : 0x3c2;
    }
    return 0x3c2;
}

struct jinja_str jinja_text_change(struct jinja_heap *h, struct jinja_str s, enum jinja_change to)
{
    str bytes = jinja_text_bytes(s);
    struct jinja_build b = jinja_text_begin(h);
    bool in_word = false;
    uint32_t c, origin = 0, piece_end = 0;
    for (size_t at = 0, len; at < s.len && h->stop == JINJA_STOP_NONE; at += len) {
        if (at >= piece_end)
            origin = jinja_text_origin(s, (uint32_t)at, &piece_end);
        len = str_utf8_decode(str_from(bytes, at), &c);
        enum jinja_case_kind kind = to == JINJA_CHANGE_UPPER ? JINJA_CASE_UPPER : JINJA_CASE_LOWER;
        if (to >= JINJA_CHANGE_TITLE && !in_word)
            kind = JINJA_CASE_TITLE;
        in_word = to == JINJA_CHANGE_CAPITALIZE || jinja_case_is_cased(c);
        uint32_t out[3] = {0};
        uint32_t count = jinja_case_map(kind, c, out);
        if (c == 0x3a3 && kind == JINJA_CASE_LOWER)
            out[0] = lower_sigma(bytes, at);
        for (uint32_t i = 0; i < count; i++)
            add_code(&b, out[i], origin);
        jinja_text_charge(h, 1);
    }
    return jinja_text_end(&b);
}

/* str.splitlines knows eleven line ends, one of them of two bytes. */
static size_t line_end(str s, size_t at)
{
    uint8_t c = (uint8_t)s.p[at];
    if (c == '\r')
        return at + 1 < s.len && s.p[at + 1] == '\n' ? 2 : 1;
    if ((c >= '\n' && c <= '\f') || (c >= 0x1c && c <= 0x1e))
        return 1;
    str rest = str_from(s, at);
    if (str_starts(rest, STR("\xc2\x85")))
        return 2;
    return str_starts(rest, STR("\xe2\x80\xa8")) || str_starts(rest, STR("\xe2\x80\xa9")) ? 3 : 0;
}

bool jinja_text_line(struct jinja_str s, uint32_t *at, bool with_end, struct jinja_str *line)
{
    str bytes = jinja_text_bytes(s);
    if (*at >= s.len)
        return false;
    size_t end = *at, len = 0;
    while (end < s.len && (len = line_end(bytes, end)) == 0)
        end++;
    *line = jinja_text_cut(s, *at, with_end ? end + len : end);
    *at = (uint32_t)(end + len);
    return true;
}

static void add_escape(struct jinja_build *b, uint32_t c, uint32_t origin)
{
    char text[16];
    int len = c < 0x100     ? snprintf(text, sizeof text, "\\x%02x", c)
              : c < 0x10000 ? snprintf(text, sizeof text, "\\u%04x", c)
                            : snprintf(text, sizeof text, "\\U%08x", c);
    jinja_text_add(b, (str){text, (size_t)len}, origin);
}

void jinja_text_add_repr(struct jinja_build *b, struct jinja_str s)
{
    str bytes = jinja_text_bytes(s);
    bool has_single = str_find_byte(bytes, '\'') != STR_NONE;
    str quote = has_single && str_find_byte(bytes, '"') == STR_NONE ? STR("\"") : STR("'");
    uint32_t c, origin = 0, end = 0;
    for (size_t at = 0, len; at < s.len && b->h->stop == JINJA_STOP_NONE; at += len) {
        if (at >= end)
            origin = jinja_text_origin(s, (uint32_t)at, &end);
        if (at == 0)
            jinja_text_add(b, quote, origin);
        len = str_utf8_decode(str_from(bytes, at), &c);
        const char *special = c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t"
                              : c == '\\' ? "\\\\" : c == (uint8_t)quote.p[0] ? "\\'" : NULL;
        if (special)
            jinja_text_add(b, str_of(special), origin);
        else if (!jinja_case_is_printable(c))
            add_escape(b, c, origin);
        else
            jinja_text_add(b, str_sub(bytes, at, len), origin);
    }
    if (s.len == 0)
        jinja_text_add(b, quote, 0);
    jinja_text_add(b, quote, origin);
}
