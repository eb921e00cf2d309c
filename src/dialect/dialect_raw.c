#include "dialect/dialect_raw.h"

#include "dialect/dialect_anthropic_reply.h"
#include "dialect/dialect_openai_reply.h"

#define RAW_ARENA(len) (8 * (len) + ((size_t)1 << 16))

/* ---- Lines ---- */

struct line {
    struct arena a;
    struct json v;
};

static bool line_open(struct line *l, str text)
{
    const struct json_options o = {.depth_max = DIALECT_DEPTH_MAX};
    struct err ignored;
    arena_init(&l->a, RAW_ARENA(text.len));
    if (json_parse(&l->v, text, &o, &l->a, &ignored))
        return true;
    arena_deinit(&l->a);
    return false;
}

/* Our own writer says the same; only what it remembers is wanted. */
static void keep_in_step(struct dialect_state *st, uint32_t choice, const struct api_event *ev)
{
    struct buf dropped = dialect_write_piece();
    struct api_event plain = *ev;
    plain.raw = (str){"", 0};
    st->dialect->write_event(&dropped, st, choice, &plain);
    buf_deinit(&dropped);
}

static void put_ours(struct json_writer *w, const struct dialect_state *st, const char *prefix)
{
    json_key_z(w, "id");
    dialect_write_id(w, st, prefix);
    dialect_write_text(w, "model", st->model);
}

/* v's members but id, model and shoal, which are ours. */
static void put_patched(struct json_writer *w, struct line *l, struct json v,
                        const struct dialect_state *st, const char *prefix)
{
    put_ours(w, st, prefix);
    for (struct json_walk walk = json_walk(v); json_next(&walk);) {
        if (json_text_eq(walk.key, STR("id")) || json_text_eq(walk.key, STR("model")) ||
            json_text_eq(walk.key, STR("shoal")))
            continue;
        json_key(w, json_text(walk.key, &l->a));
        json_put_raw(w, json_raw(walk.value));
    }
}

static void put_shoal(struct json_writer *w, const struct dialect_state *st)
{
    json_key_z(w, "shoal");
    dialect_write_shoal(w, st, st->choices[0].reason);
}

/* ---- Anthropic ---- */

static struct dialect_anthropic_state *anthropic(struct dialect_state *st)
{
    return (struct dialect_anthropic_state *)st;
}

/* Which block is open now, and how many there were: what another leg goes on from. */
static void follow_block(struct dialect_state *st, struct json v)
{
    struct json type = json_member(v, "type");
    struct json block = json_member(json_member(v, "content_block"), "type");
    uint64_t index = 0;
    if (json_text_eq(type, STR("content_block_stop")))
        anthropic(st)->open = ANTHROPIC_NONE;
    if (!json_text_eq(type, STR("content_block_start")) ||
        !json_u64(json_member(v, "index"), &index))
        return;
    anthropic(st)->blocks_count = (uint32_t)base_min(index, UINT32_MAX - 1) + 1;
    anthropic(st)->open = json_text_eq(block, STR("text"))       ? ANTHROPIC_TEXT
                          : json_text_eq(block, STR("thinking")) ? ANTHROPIC_THINKING
                          : json_text_eq(block, STR("tool_use")) ? ANTHROPIC_CALL
                                                                 : ANTHROPIC_OTHER;
}

static void anthropic_line(struct buf *out, struct dialect_state *st, str text, bool *has_begun)
{
    struct line l;
    if (!line_open(&l, text))
        return;
    struct buf json = dialect_write_piece(), name = dialect_write_piece();
    struct json_writer w = json_writer(&json);
    struct json type = json_member(l.v, "type"), message = json_member(l.v, "message");
    bool is_start = json_text_eq(type, STR("message_start"));
    buf_add(&name, json_text(type, &l.a));
    follow_block(st, l.v);
    if (is_start && *has_begun) { /* a ping began the stream already */
        buf_clear(&json);
    } else if (is_start) {
        json_open_object(&w);
        dialect_write_text_z(&w, "type", "message_start");
        json_key_z(&w, "message");
        json_open_object(&w);
        put_patched(&w, &l, message, st, "msg_");
        json_close_object(&w);
        json_close_object(&w);
        *has_begun = true;
    } else if (json_text_eq(type, STR("message_delta"))) {
        json_open_object(&w);
        for (struct json_walk walk = json_walk(l.v); json_next(&walk);) {
            if (json_text_eq(walk.key, STR("shoal")))
                continue;
            json_key(&w, json_text(walk.key, &l.a));
            json_put_raw(&w, json_raw(walk.value));
        }
        put_shoal(&w, st);
        json_close_object(&w);
    } else {
        buf_add(&json, text);
    }
    if (json.len && name.len)
        dialect_write_sse_named(out, name.p, &json);
    buf_deinit(&json);
    buf_deinit(&name);
    arena_deinit(&l.a);
}

void dialect_raw_anthropic(struct buf *out, struct dialect_state *st, const struct api_event *ev)
{
    bool has_begun = st->is_begun;
    str rest = ev->raw, line;
    bool has_stop = str_find(ev->raw, STR("message_stop")) != STR_NONE;
    keep_in_step(st, 0, ev);
    st->choices[0].content.len = 0; /* blanks that our form holds back are out */
    while (str_split(&rest, '\n', &line))
        if (line.len)
            anthropic_line(out, st, line, &has_begun);
    if (st->is_over && !has_stop) /* the upstream fell silent in front of it */
        buf_add_z(out, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

/* ---- Chat completions ---- */

static bool is_last_chunk(const struct dialect_state *st, struct json choices)
{
    bool ends = false;
    for (struct json_walk walk = json_walk(choices); json_next(&walk);)
        ends = ends || json_kind(json_member(walk.value, "finish_reason")) == JSON_KIND_STRING;
    return ends && dialect_write_is_last(st);
}

static void openai_line(struct buf *out, struct dialect_state *st, str text)
{
    struct line l;
    if (str_eq(text, STR("[DONE]"))) {
        buf_add_z(out, "data: [DONE]\n\n");
        return;
    }
    if (!line_open(&l, text))
        return;
    struct json choices = json_member(l.v, "choices"), usage = json_member(l.v, "usage");
    bool is_usage = json_count(choices) == 0 && json_kind(usage) == JSON_KIND_OBJECT;
    if (!is_usage || st->include_usage) {
        struct buf json = dialect_write_piece();
        struct json_writer w = json_writer(&json);
        json_open_object(&w);
        put_patched(&w, &l, l.v, st, "chatcmpl-");
        if (is_last_chunk(st, choices))
            put_shoal(&w, st);
        json_close_object(&w);
        dialect_write_sse(out, &json);
        buf_deinit(&json);
    }
    arena_deinit(&l.a);
}

void dialect_raw_openai(struct buf *out, struct dialect_state *st, uint32_t choice,
                        const struct api_event *ev)
{
    str rest = ev->raw, line;
    bool has_done = str_ends(ev->raw, STR("[DONE]\n"));
    keep_in_step(st, choice, ev);
    while (str_split(&rest, '\n', &line))
        if (line.len)
            openai_line(out, st, line);
    if (st->is_over && !has_done) /* some leave the marker out */
        buf_add_z(out, "data: [DONE]\n\n");
}
