#include <string.h>

#include "base/json_tape.h"

#define JSON_FEW_KEYS 8 /* compared pairwise; more are sorted */
#define JSON_PATH_SHOWN 96 /* bytes of a path in an error: a sentence has 240 */

struct json_frame {
    uint32_t word;  /* of the container */
    uint32_t index; /* elements begun */
    uint32_t key;   /* word of the key at hand */
};

struct json_parser {
    const char *p, *start, *end;
    struct json_tape *tape;
    struct arena *arena;
    const struct json_options *options;
    struct err *e;
    uint32_t depth;
    bool is_object; /* the innermost container */
    struct json_frame frames[JSON_DEPTH_MAX + 1];
};

static void json_add_parser_path(struct buf *out, const struct json_parser *r)
{
    for (uint32_t d = 1; d <= r->depth; d++) {
        const struct json_frame *f = &r->frames[d];
        bool is_object = json_tape_kind(json_tape_at(r->tape, f->word)) == JSON_KIND_OBJECT;
        if (is_object && f->key)
            json_tape_add_key(out, json_tape_text(r->tape, json_tape_at(r->tape, f->key)), d == 1);
        else if (!is_object && f->index)
            buf_printf(out, "[%u]", f->index - 1);
    }
}

/* Puts "json: PATH: line L, column C: " before the reason. */
static bool json_fail_code(struct json_parser *r, enum err_code code, const char *reason)
{
    struct buf path;
    size_t line = 1, column = 1;
    for (const char *p = r->start; p < r->p; p++) {
        column = *p == '\n' ? 1 : column + ((*p & 0xc0) != 0x80);
        line += *p == '\n';
    }
    buf_init(&path, 64 * 1024);
    json_add_parser_path(&path, r);
    str shown = buf_view(&path);
    const char *dots = "", *colon = shown.len ? ": " : "";
    if (shown.len > JSON_PATH_SHOWN) {
        shown = str_sub(shown, 0, JSON_PATH_SHOWN);
        shown.len = str_utf8_complete(shown);
        dots = "...";
    }
    err_set(r->e, code, "json: %.*s%s%sline %zu, column %zu: %s", STR_ARG(shown), dots, colon,
            line, column, reason);
    buf_deinit(&path);
    return false;
}

static bool json_fail(struct json_parser *r, const char *reason)
{
    return json_fail_code(r, ERR_FORMAT, reason);
}

static bool json_push(struct json_parser *r, uint64_t word)
{
    struct json_tape *t = r->tape;
    uint64_t **block = &t->blocks[t->count >> JSON_TAPE_BITS];
    if (!*block) {
        /* A value takes two bytes, only open brackets can be followed by another at once. */
        size_t words = (size_t)(r->end - r->p) / 2 + r->options->depth_max + 2;
        *block = ARENA_ARRAY(r->arena, uint64_t, base_min(words, JSON_TAPE_WORDS));
        if (!*block)
            return json_fail_code(r, ERR_MEMORY, "too large for the memory of a request");
    }
    (*block)[t->count++ & (JSON_TAPE_WORDS - 1)] = word;
    return true;
}

static inline void json_skip_blanks(struct json_parser *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t'))
        r->p++;
}

/* A high bit in each byte that ends a run of plain text: quote, backslash, control, non-ASCII.
 * Borrows can mark a byte too much, but only above one that is marked rightly. */
static inline uint64_t json_special(uint64_t v)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t quote = v ^ (ones * '"'), backslash = v ^ (ones * '\\');
    return (((v - ones * 0x20) | (quote - ones) | (backslash - ones)) & ~v & high) | (v & high);
}

static inline void json_skip_plain(struct json_parser *r)
{
    while (r->end - r->p >= 8) {
        uint64_t v;
        memcpy(&v, r->p, 8);
        uint64_t special = json_special(v);
        if (special) {
            r->p += __builtin_ctzll(special) / 8;
            return;
        }
        r->p += 8;
    }
    while (r->p < r->end && (unsigned char)*r->p < 0x80 && (unsigned char)*r->p >= 0x20 &&
           *r->p != '"' && *r->p != '\\')
        r->p++;
}

static bool json_skip_escape(struct json_parser *r)
{
    if (r->end - r->p < 2)
        return json_fail(r, "the string has no end");
    char c = r->p[1];
    if (c == 'u') {
        if (r->end - r->p < 6 || json_tape_hex4(r->p + 2) < 0)
            return json_fail(r, "four hex digits expected after \\u");
        r->p += 6;
        return true;
    }
    if (!c || !strchr("\"\\/bfnrt", c))
        return json_fail(r, "unknown escape in a string");
    r->p += 2;
    return true;
}

/* At the opening quote. */
static bool json_read_string(struct json_parser *r)
{
    const char *first = ++r->p;
    bool escaped = false;
    for (;;) {
        json_skip_plain(r);
        if (r->p == r->end)
            return json_fail(r, "the string has no end");
        unsigned char c = (unsigned char)*r->p;
        if (c == '"')
            break;
        if (c == '\\') {
            escaped = true;
            if (!json_skip_escape(r))
                return false;
        } else if (c < 0x20) {
            return json_fail(r, "control character in a string");
        } else {
            uint32_t code_point;
            size_t n = str_utf8_decode(str_view(r->p, (size_t)(r->end - r->p)), &code_point);
            if (n == 0)
                return json_fail(r, "invalid UTF-8");
            r->p += n;
        }
    }
    size_t where = (size_t)(first - r->start), len = (size_t)(r->p - first);
    r->p++;
    return json_push(r, json_tape_word(JSON_KIND_STRING, where, len, escaped));
}

static bool json_skip_digits(struct json_parser *r)
{
    const char *first = r->p;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9')
        r->p++;
    return r->p > first || json_fail(r, "digit expected");
}

static bool json_read_number(struct json_parser *r)
{
    const char *first = r->p;
    r->p += *r->p == '-';
    if (r->p < r->end && *r->p == '0')
        r->p++;
    else if (!json_skip_digits(r))
        return false;
    if (r->p < r->end && *r->p == '.') {
        r->p++;
        if (!json_skip_digits(r))
            return false;
    }
    if (r->p < r->end && (*r->p | 0x20) == 'e') {
        r->p++;
        if (r->p < r->end && (*r->p == '+' || *r->p == '-'))
            r->p++;
        if (!json_skip_digits(r))
            return false;
    }
    size_t where = (size_t)(first - r->start), len = (size_t)(r->p - first);
    return json_push(r, json_tape_word(JSON_KIND_NUMBER, where, len, false));
}

static bool json_read_literal(struct json_parser *r)
{
    static const struct { str text; enum json_kind kind; } literals[] = {
        {STR_INIT("true"), JSON_KIND_BOOL},
        {STR_INIT("false"), JSON_KIND_BOOL},
        {STR_INIT("null"), JSON_KIND_NULL},
    };
    str rest = str_view(r->p, (size_t)(r->end - r->p));
    for (size_t i = 0; i < countof(literals); i++)
        if (str_starts(rest, literals[i].text)) {
            size_t where = (size_t)(r->p - r->start), len = literals[i].text.len;
            r->p += len;
            return json_push(r, json_tape_word(literals[i].kind, where, len, false));
        }
    return json_fail(r, rest.len ? "a value expected" : "a value expected, but the text ends");
}

static bool json_open(struct json_parser *r)
{
    bool is_object = *r->p == '{';
    if (r->depth == r->options->depth_max)
        return json_fail_code(r, ERR_LIMIT, "nested too deeply");
    uint32_t word = r->tape->count;
    enum json_kind kind = is_object ? JSON_KIND_OBJECT : JSON_KIND_ARRAY;
    if (!json_push(r, json_tape_word(kind, (size_t)(r->p - r->start), 0, false)))
        return false;
    r->p++;
    r->frames[++r->depth] = (struct json_frame){.word = word};
    r->is_object = is_object;
    return true;
}

/* A scalar, or the opening bracket of a container. */
static bool json_read_value(struct json_parser *r, bool *opened)
{
    json_skip_blanks(r);
    char c = r->p < r->end ? *r->p : 0;
    *opened = c == '{' || c == '[';
    if (r->depth && !r->is_object)
        r->frames[r->depth].index++;
    if (*opened)
        return json_open(r);
    if (c == '"')
        return json_read_string(r);
    if (c == '-' || (c >= '0' && c <= '9'))
        return json_read_number(r);
    return json_read_literal(r);
}

static bool json_read_key(struct json_parser *r)
{
    r->frames[r->depth].key = 0; /* until then an error is the object's */
    json_skip_blanks(r);
    if (r->p == r->end || *r->p != '"')
        return json_fail(r, "a name in double quotes expected");
    uint32_t word = r->tape->count;
    if (!json_read_string(r))
        return false;
    r->frames[r->depth].key = word;
    json_skip_blanks(r);
    if (r->p == r->end || *r->p != ':')
        return json_fail(r, "':' expected");
    r->p++;
    return true;
}

/* --- equal keys ---
 *
 * Keys are compared as the bytes they mean: "a" and "\u0061" are equal. */

struct json_bytes {
    str rest; /* raw */
    size_t count, at;
    char c[4]; /* the character at hand */
};

static int json_next_byte(struct json_bytes *b)
{
    if (b->at == b->count) {
        if (b->rest.len == 0)
            return -1;
        b->rest = str_from(b->rest, json_tape_unescape(b->rest, b->c, &b->count));
        b->at = 0;
    }
    return (unsigned char)b->c[b->at++];
}

static int json_compare_keys(const struct json_tape *t, uint32_t a, uint32_t b)
{
    uint64_t wa = json_tape_at(t, a), wb = json_tape_at(t, b);
    struct json_bytes x = {.rest = json_tape_text(t, wa)}, y = {.rest = json_tape_text(t, wb)};
    if (!json_tape_escaped(wa) && !json_tape_escaped(wb))
        return str_cmp(x.rest, y.rest);
    int cx, cy;
    do {
        cx = json_next_byte(&x);
        cy = json_next_byte(&y);
    } while (cx == cy && cx >= 0);
    return cx - cy;
}

/* Heap sort: in place, and n log n whatever the keys are. */
static void json_sift(const struct json_tape *t, uint32_t *keys, uint32_t i, uint32_t count)
{
    for (uint32_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && json_compare_keys(t, keys[child], keys[child + 1]) < 0)
            child++;
        if (json_compare_keys(t, keys[i], keys[child]) >= 0)
            return;
        uint32_t swap = keys[i];
        keys[i] = keys[child];
        keys[child] = swap;
    }
}

static void json_sort_keys(const struct json_tape *t, uint32_t *keys, uint32_t count)
{
    for (uint32_t i = count / 2; i-- > 0;)
        json_sift(t, keys, i, count);
    for (uint32_t i = count; i-- > 1;) {
        uint32_t swap = keys[0];
        keys[0] = keys[i];
        keys[i] = swap;
        json_sift(t, keys, 0, i);
    }
}

/* A word of the first key that equals an earlier one in sorted order, or 0. */
static uint32_t json_find_equal(const struct json_tape *t, const uint32_t *keys, uint32_t count,
                                bool is_sorted)
{
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t j = is_sorted ? i - 1 : 0; j < i; j++)
            if (json_compare_keys(t, keys[j], keys[i]) == 0)
                return keys[i];
    return 0;
}

static bool json_check_keys(struct json_parser *r, struct json object)
{
    uint32_t few[JSON_FEW_KEYS], *keys = few, count = json_count(object), i = 0;
    bool is_large = count > JSON_FEW_KEYS;
    if (is_large && !(keys = ARENA_ARRAY(r->arena, uint32_t, count)))
        return json_fail_code(r, ERR_MEMORY, "too large for the memory of a request");
    for (struct json_walk w = json_walk(object); json_next(&w);)
        keys[i++] = w.key.at;
    if (is_large)
        json_sort_keys(r->tape, keys, count);
    uint32_t equal = json_find_equal(r->tape, keys, count, is_large);
    if (!equal)
        return true;
    r->frames[r->depth].key = equal;
    r->p = json_tape_text(r->tape, json_tape_at(r->tape, equal)).p;
    return json_fail(r, "this name stands twice in its object");
}

/* --- the document --- */

static bool json_close(struct json_parser *r)
{
    struct json_tape *t = r->tape;
    uint32_t at = r->frames[r->depth].word;
    uint64_t *word = &t->blocks[at >> JSON_TAPE_BITS][at & (JSON_TAPE_WORDS - 1)];
    *word |= (uint64_t)(t->count - at - 1) << 32;
    if (r->is_object && r->options->refuse_duplicates &&
        !json_check_keys(r, (struct json){t, at}))
        return false;
    r->p++;
    r->depth--;
    if (r->depth) {
        uint64_t outer = json_tape_at(t, r->frames[r->depth].word);
        r->is_object = json_tape_kind(outer) == JSON_KIND_OBJECT;
    }
    return true;
}

/* Behind a value: closes what ends here. True with *more: another value is due. */
static bool json_read_after(struct json_parser *r, bool *more)
{
    while (r->depth) {
        json_skip_blanks(r);
        char c = r->p < r->end ? *r->p : 0;
        if (c == ',') {
            r->p++;
            *more = true;
            return !r->is_object || json_read_key(r);
        }
        if (c != (r->is_object ? '}' : ']'))
            return json_fail(r, r->is_object ? "',' or '}' expected" : "',' or ']' expected");
        if (!json_close(r))
            return false;
    }
    *more = false;
    json_skip_blanks(r);
    return r->p == r->end || json_fail(r, "text after the end of the document");
}

static bool json_run(struct json_parser *r)
{
    bool opened, more;
    do {
        if (!json_read_value(r, &opened))
            return false;
        if (opened) {
            json_skip_blanks(r);
            more = r->p == r->end || *r->p != (r->is_object ? '}' : ']');
            if (more && r->is_object && !json_read_key(r))
                return false;
            if (more)
                continue;
        }
        if (!json_read_after(r, &more))
            return false;
    } while (more);
    return true;
}

bool json_parse(struct json *out, str body, const struct json_options *o, struct arena *a,
                struct err *e)
{
    must(o->depth_max >= 1 && o->depth_max <= JSON_DEPTH_MAX);
    if (body.len > JSON_SIZE_MAX)
        return err_set(e, ERR_LIMIT, "json: has %zu bytes, at most %zu are read", body.len,
                       JSON_SIZE_MAX);
    if (str_starts(body, STR("\xef\xbb\xbf")))
        body = str_from(body, 3);
    struct json_tape *t = ARENA_NEW(a, struct json_tape);
    size_t blocks = (body.len / 2 + o->depth_max + 2) / JSON_TAPE_WORDS + 1;
    uint64_t **table = t ? ARENA_ARRAY(a, uint64_t *, blocks) : NULL;
    if (!table)
        return err_set(e, ERR_MEMORY, "json: %zu bytes do not fit the memory of a request",
                       body.len);
    *t = (struct json_tape){.body = {body.len ? body.p : "", body.len}, .blocks = table};
    struct json_parser r;
    r.p = r.start = t->body.p;
    r.end = r.start + body.len;
    r.tape = t;
    r.arena = a;
    r.options = o;
    r.e = e;
    r.depth = 0;
    r.is_object = false;
    if (!json_run(&r))
        return false;
    *out = (struct json){t, 0};
    return true;
}
