/* Any bytes as a document. What is accepted: all texts fit 4 x body + 1 MiB, what the writer makes
 * of it is read back to the same, every raw part is a document itself, and paths end. */
#include <stdlib.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DEPTH = 64 };

static void check(bool ok)
{
    if (!ok)
        abort();
}

/* Depth is limited by the parser. */
static void dump(struct json_writer *w, struct json v, struct arena *a)
{
    struct json_walk walk = json_walk(v);
    double d;
    int64_t i;
    switch (json_kind(v)) {
    case JSON_KIND_ABSENT:
        abort();
    case JSON_KIND_STRING: {
        str text = json_text(v, a);
        check(text.p && json_text_eq(v, text) && str_utf8_valid(text) == text.len);
        json_put_text(w, text);
        break;
    }
    case JSON_KIND_NUMBER:
        if (json_i64(v, &i))
            check(json_double(v, &d));
        json_put_raw(w, json_raw(v));
        break;
    case JSON_KIND_NULL:
    case JSON_KIND_BOOL:
        json_put_raw(w, json_raw(v));
        break;
    case JSON_KIND_ARRAY:
        json_open_array(w);
        while (json_next(&walk))
            dump(w, walk.value, a);
        json_close_array(w);
        break;
    case JSON_KIND_OBJECT:
        json_open_object(w);
        while (json_next(&walk)) {
            json_key(w, json_text(walk.key, a));
            dump(w, walk.value, a);
        }
        json_close_object(w);
        break;
    }
}

static void check_parts(struct json v, const struct json_options *o)
{
    struct buf path;
    buf_init(&path, 1u << 20);
    for (struct json_walk w = json_walk(v); json_next(&w);) {
        struct arena a;
        struct json part;
        struct err e;
        str raw = json_raw(w.value);
        arena_init(&a, 4 * raw.len + (1u << 20));
        check(json_parse(&part, raw, o, &a, &e) && json_kind(part) == json_kind(w.value));
        check(str_eq(json_raw(part), raw) && json_add_path(&path, w.value));
        arena_deinit(&a);
    }
    buf_deinit(&path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_options o = {.depth_max = DEPTH, .refuse_duplicates = size && data[0] & 1};
    str body = str_view(data + (size > 0), size - (size > 0));
    struct arena a, b;
    struct buf once, twice;
    struct json v;
    struct err e;
    arena_init(&a, 4 * body.len + (1u << 20));
    arena_init(&b, 64 * body.len + (1u << 20));
    buf_init(&once, 16 * body.len + 16);
    buf_init(&twice, 16 * body.len + 16);
    if (json_parse(&v, body, &o, &a, &e)) {
        struct json_writer w = json_writer(&once);
        dump(&w, v, &a);
        check_parts(v, &o);
        check(!once.full && json_parse(&v, buf_view(&once), &o, &b, &e));
        w = json_writer(&twice);
        dump(&w, v, &b);
        check(str_eq(buf_view(&once), buf_view(&twice)));
    } else {
        check(e.code == ERR_FORMAT || e.code == ERR_LIMIT);
    }
    buf_deinit(&once);
    buf_deinit(&twice);
    arena_deinit(&a);
    arena_deinit(&b);
    return 0;
}
