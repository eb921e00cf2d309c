#include "unit/text/small.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

void small_init(struct small *s, const char *model, const char *pre)
{
    memset(s, 0, sizeof *s);
    arena_init(&s->arena, (size_t)1 << 22);
    s->source = vocab_source_empty;
    s->source.model = str_of(model);
    s->source.pre = str_of(pre);
    s->source.tokens = s->tokens;
    s->source.types = s->types;
    s->source.scores = s->scores;
    s->source.merges = s->merges;
}

void small_deinit(struct small *s) { arena_deinit(&s->arena); }

int32_t small_add(struct small *s, const char *text, enum vocab_type type, float score)
{
    uint32_t id = s->source.count++;
    assert_true(id < SMALL_MAX);
    s->tokens[id] = arena_copy(&s->arena, str_of(text));
    s->types[id] = (int32_t)type;
    s->scores[id] = score;
    return (int32_t)id;
}

void small_add_byte_level(struct small *s)
{
    for (uint32_t b = 0, next = 0x100; b < 256; b++) {
        bool is_visible = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        char text[5] = {0};
        str_utf8_encode(text, is_visible ? b : next);
        next += !is_visible;
        small_add(s, text, VOCAB_TYPE_NORMAL, 0);
    }
}

void small_add_bytes(struct small *s)
{
    for (unsigned b = 0; b < 256; b++)
        small_add(s, arena_printf(&s->arena, "<0x%02X>", b).p, VOCAB_TYPE_BYTE, 0);
}

void small_merge(struct small *s, const char *merge)
{
    uint32_t at = s->source.merge_count++;
    assert_true(at < SMALL_MAX);
    s->merges[at] = arena_copy(&s->arena, str_of(merge));
    const char *blank = strchr(merge + 1, ' ');
    assert_non_null(blank);
    small_add(s, arena_printf(&s->arena, "%.*s%s", (int)(blank - merge), merge, blank + 1).p,
              VOCAB_TYPE_NORMAL, 0);
}

struct tok *small_open(struct small *s)
{
    struct tok *t = NULL;
    struct err e = {0};
    if (!tok_new(&t, &s->source, &e))
        fail_msg("%s", e.text);
    return t;
}

const int32_t *small_ids(struct tok *t, const char *text, bool special, bool add)
{
    static int32_t out[4096];
    struct tok_ids ids;
    struct err e = {0};
    tok_ids_init(&ids, countof(out) - 1);
    if (!tok_encode_str(t, str_of(text), special, add, &ids, &e))
        fail_msg("%s", e.text);
    size_t count = tok_ids_count(&ids);
    if (count)
        memcpy(out, tok_ids_data(&ids), count * sizeof out[0]);
    out[count] = -1;
    tok_ids_deinit(&ids);
    return out;
}

const char *small_text(struct tok *t, const char *text, bool special, bool add)
{
    static char out[16384];
    struct buf b;
    buf_init(&b, sizeof out - 1);
    for (const int32_t *id = small_ids(t, text, special, add); *id >= 0; id++) {
        assert_true(b.len == 0 || buf_add_byte(&b, '|'));
        assert_true(buf_add(&b, vocab_text(tok_vocab(t), *id)));
    }
    memcpy(out, b.len ? b.p : "", b.len + 1);
    buf_deinit(&b);
    return out;
}
