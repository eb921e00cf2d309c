#include "base/json.h"

#include <math.h>
#include <string.h>

#include "base/json_tape.h"

/* --- pieces of the tape --- */

int json_tape_hex4(const char *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        int c = (unsigned char)p[i], low = c | 0x20;
        int digit = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
        if (digit < 0)
            return -1;
        v = v << 4 | digit;
    }
    return v;
}

size_t json_tape_unescape(str raw, char out[4], size_t *out_len)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    *out_len = 1;
    out[0] = raw.p[0];
    if (raw.p[0] != '\\')
        return 1;
    if (raw.p[1] != 'u') {
        out[0] = to[strchr(from, raw.p[1]) - from];
        return 2;
    }
    uint32_t c = (uint32_t)json_tape_hex4(raw.p + 2);
    size_t used = 6;
    if (c >= 0xd800 && c < 0xdc00 && raw.len >= 12 && raw.p[6] == '\\' && raw.p[7] == 'u') {
        uint32_t low = (uint32_t)json_tape_hex4(raw.p + 8);
        if (low >= 0xdc00 && low < 0xe000) {
            c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
            used = 12;
        }
    }
    if (c >= 0xd800 && c < 0xe000) /* half of a pair */
        c = 0xfffd;
    *out_len = str_utf8_encode(out, c);
    return used;
}

void json_tape_add_key(struct buf *out, str key, bool is_first)
{
    bool is_word = key.len > 0 && !(key.p[0] >= '0' && key.p[0] <= '9');
    for (size_t i = 0; i < key.len && is_word; i++) {
        char c = key.p[i];
        is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-' || c == '$';
    }
    if (is_word)
        buf_printf(out, "%s%.*s", is_first ? "" : ".", STR_ARG(key));
    else
        buf_printf(out, "[\"%.*s\"]", STR_ARG(key)); /* as written: already escaped */
}

/* --- reading values --- */

static uint64_t json_value_word(struct json v) { return v.tape ? json_tape_at(v.tape, v.at) : 0; }

enum json_kind json_kind(struct json v) { return json_tape_kind(json_value_word(v)); }

const char *json_kind_name(enum json_kind kind)
{
    static const char *const names[] = {"nothing", "null",  "boolean", "number",
                                        "string",  "array", "object"};
    must((size_t)kind < countof(names));
    return names[kind];
}

struct json_walk json_walk(struct json v)
{
    uint64_t w = json_value_word(v);
    struct json_walk walk = {.key = {v.tape, 0}, .value = {v.tape, 0}};
    if (json_tape_kind(w) >= JSON_KIND_ARRAY) {
        walk.next = v.at + 1;
        walk.end = walk.next + json_tape_size(w);
        walk.is_object = json_tape_kind(w) == JSON_KIND_OBJECT;
    }
    if (!walk.is_object)
        walk.key.tape = NULL;
    return walk;
}

bool json_next(struct json_walk *w)
{
    if (w->next >= w->end)
        return false;
    if (w->is_object)
        w->key.at = w->next++;
    w->value.at = w->next;
    w->next += json_tape_span(json_tape_at(w->value.tape, w->next));
    return true;
}

struct json json_member(struct json v, const char *key)
{
    struct json found = {NULL, 0};
    struct json_walk w = json_walk(v);
    str name = str_of(key);
    while (json_next(&w))
        if (w.is_object && json_text_eq(w.key, name))
            found = w.value;
    return found;
}

struct json json_at(struct json v, uint32_t i)
{
    struct json_walk w = json_walk(v);
    while (json_next(&w))
        if (i-- == 0)
            return w.value;
    return (struct json){NULL, 0};
}

uint32_t json_count(struct json v)
{
    uint32_t count = 0;
    for (struct json_walk w = json_walk(v); json_next(&w);)
        count++;
    return count;
}

/* --- text --- */

str json_text(struct json v, struct arena *a)
{
    uint64_t w = json_value_word(v);
    if (json_tape_kind(w) != JSON_KIND_STRING)
        return (str){NULL, 0};
    str raw = json_tape_text(v.tape, w);
    if (!json_tape_escaped(w))
        return raw;
    /* Unescaping never makes a text longer, so its length as written is room enough. */
    char *p = arena_alloc_text(a, raw.len + 1);
    if (!p)
        return (str){NULL, 0};
    size_t len = 0;
    while (raw.len) {
        size_t plain = base_min(str_find_byte(raw, '\\'), raw.len), n = 0;
        memcpy(p + len, raw.p, plain);
        len += plain;
        raw = str_from(raw, plain);
        if (raw.len) {
            char c[4];
            raw = str_from(raw, json_tape_unescape(raw, c, &n));
            memcpy(p + len, c, n);
            len += n;
        }
    }
    p[len] = 0;
    return (str){p, len};
}

bool json_text_eq(struct json v, str text)
{
    uint64_t w = json_value_word(v);
    if (json_tape_kind(w) != JSON_KIND_STRING)
        return false;
    str raw = json_tape_text(v.tape, w);
    if (!json_tape_escaped(w))
        return str_eq(raw, text);
    while (raw.len) {
        char c[4];
        size_t n;
        raw = str_from(raw, json_tape_unescape(raw, c, &n));
        if (!str_starts(text, str_view(c, n)))
            return false;
        text = str_from(text, n);
    }
    return text.len == 0;
}

/* The end of a container: its brackets are balanced, only strings can hold others. */
static size_t json_raw_len(str s)
{
    size_t depth = 0, i = 0;
    bool in_string = false;
    for (; i < s.len; i++) {
        char c = s.p[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            depth++;
        } else if ((c == ']' || c == '}') && --depth == 0) {
            break;
        }
    }
    return i + 1;
}

str json_raw(struct json v)
{
    uint64_t w = json_value_word(v);
    if (json_tape_kind(w) == JSON_KIND_ABSENT)
        return (str){NULL, 0};
    str text = json_tape_text(v.tape, w);
    if (json_tape_kind(w) == JSON_KIND_STRING)
        return (str){text.p - 1, text.len + 2};
    if (json_tape_kind(w) < JSON_KIND_ARRAY)
        return text;
    str rest = str_from(v.tape->body, (uint32_t)w);
    return str_sub(rest, 0, json_raw_len(rest));
}

/* --- numbers --- */

bool json_bool(struct json v, bool *out)
{
    uint64_t w = json_value_word(v);
    if (json_tape_kind(w) != JSON_KIND_BOOL)
        return false;
    *out = json_tape_text(v.tape, w).p[0] == 't';
    return true;
}

bool json_double(struct json v, double *out)
{
    uint64_t w = json_value_word(v);
    return json_tape_kind(w) == JSON_KIND_NUMBER && str_to_double(json_tape_text(v.tape, w), out);
}

/* 5.0 and 5e0: whole, and small enough that every neighbour is a double too. */
static bool json_whole(struct json v, double *out)
{
    double d;
    if (!json_double(v, &d) || d != trunc(d) || fabs(d) > 0x1p53)
        return false;
    *out = d;
    return true;
}

bool json_i64(struct json v, int64_t *out)
{
    uint64_t w = json_value_word(v);
    double d;
    if (json_tape_kind(w) != JSON_KIND_NUMBER)
        return false;
    if (str_to_i64(json_tape_text(v.tape, w), out))
        return true;
    if (!json_whole(v, &d))
        return false;
    *out = (int64_t)d;
    return true;
}

bool json_u64(struct json v, uint64_t *out)
{
    uint64_t w = json_value_word(v);
    double d;
    if (json_tape_kind(w) != JSON_KIND_NUMBER)
        return false;
    if (str_to_u64(json_tape_text(v.tape, w), out))
        return true;
    if (!json_whole(v, &d) || d < 0)
        return false;
    *out = (uint64_t)d;
    return true;
}

bool json_add_path(struct buf *out, struct json v)
{
    struct json at = {v.tape, 0};
    bool is_first = true;
    while (v.tape && at.at != v.at) {
        struct json_walk w = json_walk(at);
        uint32_t index = 0;
        while (json_next(&w) && v.at >= w.next)
            index++;
        if (w.is_object)
            json_tape_add_key(out, json_tape_text(v.tape, json_value_word(w.key)), is_first);
        else
            buf_printf(out, "[%u]", index);
        is_first = false;
        at = w.value;
        if (w.is_object && w.key.at == v.at)
            break; /* v is the key itself */
    }
    return !out->full;
}
