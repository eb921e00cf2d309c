#include "grammar/gram_value.h"

#include "grammar/gram_number.h"

/* --- pointers ------------------------------------------------------------------------------ */

static void value_add_step(struct buf *out, str name)
{
    for (size_t i = 0; i < name.len; i++) {
        if (name.p[i] == '~')
            buf_add_z(out, "~0");
        else if (name.p[i] == '/')
            buf_add_z(out, "~1");
        else
            buf_add_byte(out, name.p[i]);
    }
}

bool gram_value_add_pointer(struct buf *out, struct json root, struct json v)
{
    struct json at = root;
    buf_add_byte(out, '#');
    while (at.at != v.at) {
        struct json_walk w = json_walk(at);
        struct json inside = at;
        uint32_t index = 0;
        struct json key = at;
        for (; json_next(&w) && w.value.at <= v.at; index++) { /* the last one before v holds it */
            inside = w.value;
            key = w.key;
        }
        if (inside.at == at.at)
            break;
        buf_add_byte(out, '/');
        str name = json_raw(key);
        if (json_kind(at) == JSON_KIND_OBJECT)
            value_add_step(out, str_sub(name, 1, name.len - 2));
        else
            buf_printf(out, "%u", index - 1);
        at = inside;
    }
    return !out->full;
}

static int value_hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One step of a pointer, unescaped: %XX first, as it is part of a URI, then ~0 and ~1. */
static str value_step(str s, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.p[i];
        if (c == '%' && i + 2 < s.len && value_hex(s.p[i + 1]) >= 0 && value_hex(s.p[i + 2]) >= 0) {
            c = (char)(value_hex(s.p[i + 1]) * 16 + value_hex(s.p[i + 2]));
            i += 2;
        }
        out[n++] = c;
    }
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        bool is_escape = out[i] == '~' && i + 1 < n && (out[i + 1] == '0' || out[i + 1] == '1');
        out[len++] = !is_escape ? out[i] : out[i + 1] == '0' ? '~' : '/';
        i += is_escape;
    }
    return str_view(out, len);
}

static struct json value_child(struct json v, str name)
{
    struct json_walk w = json_walk(v);
    struct json found = {0};
    uint64_t index;
    if (json_kind(v) == JSON_KIND_ARRAY)
        return str_to_u64(name, &index) && index < UINT32_MAX ? json_at(v, (uint32_t)index) : found;
    while (json_next(&w)) /* the last of equal names counts, as everywhere */
        if (json_text_eq(w.key, name))
            found = w.value;
    return found;
}

struct json gram_value_at(struct json root, str reference, struct arena *a)
{
    struct json none = {0}, at = root;
    if (reference.len == 0 || reference.p[0] != '#' || reference.len > GRAM_VALUE_POINTER_MAX)
        return none;
    str rest = str_from(reference, 1);
    char *step = arena_alloc_text(a, rest.len + 1);
    if (!step || (rest.len && rest.p[0] != '/'))
        return none;
    while (rest.len && json_kind(at) != JSON_KIND_ABSENT) {
        rest = str_from(rest, 1);
        size_t len = str_find_byte(rest, '/');
        str name = len == STR_NONE ? rest : str_sub(rest, 0, len);
        at = value_child(at, value_step(name, step));
        rest = str_from(rest, name.len);
    }
    return at;
}

/* --- equality ------------------------------------------------------------------------------ */

static bool value_number_eq(struct json a, struct json b)
{
    struct buf x, y;
    struct err ignored;
    buf_init(&x, 4096);
    buf_init(&y, 4096);
    bool ok = gram_number_plain(&x, json_raw(a), &ignored) &&
              gram_number_plain(&y, json_raw(b), &ignored);
    bool same = ok ? str_eq(buf_view(&x), buf_view(&y)) : str_eq(json_raw(a), json_raw(b));
    buf_deinit(&x);
    buf_deinit(&y);
    return same;
}

static bool value_container_eq(struct json a, struct json b, struct arena *scratch)
{
    struct json_walk wa = json_walk(a), wb = json_walk(b);
    if (json_count(a) != json_count(b))
        return false;
    while (json_next(&wa)) {
        struct json other;
        if (wa.is_object) {
            str name = json_text(wa.key, scratch);
            other = value_child(b, name);
        } else {
            json_next(&wb);
            other = wb.value;
        }
        if (!gram_value_eq(wa.value, other, scratch))
            return false;
    }
    return true;
}

bool gram_value_eq(struct json a, struct json b, struct arena *scratch)
{
    bool x = false, y = false;
    if (json_kind(a) != json_kind(b))
        return false;
    switch (json_kind(a)) {
    case JSON_KIND_ABSENT:
    case JSON_KIND_NULL:
        return true;
    case JSON_KIND_BOOL:
        return json_bool(a, &x) && json_bool(b, &y) && x == y;
    case JSON_KIND_NUMBER:
        return value_number_eq(a, b);
    case JSON_KIND_STRING:
        return json_text_eq(a, json_text(b, scratch));
    case JSON_KIND_ARRAY:
    case JSON_KIND_OBJECT:
        return value_container_eq(a, b, scratch);
    }
    return false;
}

/* --- the compact form ---------------------------------------------------------------------- */

static bool value_put(struct json_writer *w, struct json v, struct arena *scratch)
{
    struct json_walk walk = json_walk(v);
    switch (json_kind(v)) {
    case JSON_KIND_STRING:
        json_put_text(w, json_text(v, scratch));
        break;
    case JSON_KIND_ARRAY:
        json_open_array(w);
        while (json_next(&walk))
            value_put(w, walk.value, scratch);
        json_close_array(w);
        break;
    case JSON_KIND_OBJECT:
        json_open_object(w);
        while (json_next(&walk)) {
            json_key(w, json_text(walk.key, scratch));
            value_put(w, walk.value, scratch);
        }
        json_close_object(w);
        break;
    case JSON_KIND_ABSENT:
    case JSON_KIND_NULL:
    case JSON_KIND_BOOL:
    case JSON_KIND_NUMBER:
        json_put_raw(w, json_raw(v));
        break;
    }
    return !w->out->full && !scratch->is_full;
}

bool gram_value_write(struct buf *out, struct json v, struct arena *scratch)
{
    struct json_writer w = json_writer(out);
    return value_put(&w, v, scratch);
}
