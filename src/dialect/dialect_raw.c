#include "dialect/dialect_raw.h"

#include "dialect/dialect_anthropic_reply.h"
#include "dialect/dialect_openai_reply.h"
#include "dialect/dialect_openai_write.h"

#define RAW_ARENA(len) (8 * (len) + ((size_t)1 << 16))

/* ---- Lines ---- */

struct line {
    struct arena a;
    struct json v;
    const char *text; /* what the event says, in the line; NULL: not to be found there */
    size_t text_out;  /* ... and where that went */
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

static void write_ours(struct buf *out, struct dialect_state *st, uint32_t choice,
                       const struct api_event *ev)
{
    struct api_event plain = *ev;
    plain.raw = (str){"", 0};
    st->dialect->write_event(out, st, choice, &plain);
}

/* Our own writer says the same; only what it remembers is wanted. Its words go behind those that
 * are there, and are forgotten: a buffer for them would cost more than they do. */
static void keep_in_step(struct buf *out, struct dialect_state *st, uint32_t choice,
                         const struct api_event *ev)
{
    size_t len = out->len;
    bool was_full = out->full;
    write_ours(out, st, choice, ev);
    out->len = len;
    out->full = was_full;
    if (out->p)
        out->p[len] = 0;
}

/* Does a line of raw say what `says` looks for? */
static bool any_line(str raw, bool (*says)(struct json v))
{
    bool found = false;
    struct line l = {.text = NULL};
    str line;
    while (!found && str_split(&raw, '\n', &line))
        if (line.len && line_open(&l, line)) {
            found = says(l.v);
            arena_deinit(&l.a);
        }
    return found;
}

static void put_member(struct json_writer *w, struct line *l, const struct json_walk *at)
{
    json_key(w, json_text(at->key, &l->a));
    json_put_raw(w, json_raw(at->value));
}

static void put_ours(struct json_writer *w, const struct dialect_state *st, const char *prefix)
{
    json_key_z(w, "id");
    dialect_write_id(w, st, prefix);
    dialect_write_text(w, "model", st->model);
}

static bool is_chat_finish(struct json choice)
{
    return json_kind(json_member(choice, "finish_reason")) == JSON_KIND_STRING;
}

/* finish: what its end is called, as ours would say it; NULL: it is not the end yet. */
static void put_choices(struct json_writer *w, struct line *l, struct json choices,
                        const char *finish)
{
    json_key_z(w, "choices");
    json_open_array(w);
    for (struct json_walk c = json_walk(choices); json_next(&c);) {
        if (!is_chat_finish(c.value)) {
            str raw = json_raw(c.value);
            json_put_raw(w, raw);
            if (l->text > raw.p && l->text < raw.p + raw.len)
                l->text_out = w->out->len - raw.len + (size_t)(l->text - raw.p);
            continue;
        }
        json_open_object(w);
        for (struct json_walk m = json_walk(c.value); json_next(&m);) {
            if (!json_text_eq(m.key, STR("finish_reason")))
                put_member(w, l, &m);
            else if (finish)
                dialect_write_text_z(w, "finish_reason", finish);
            else
                dialect_write_null(w, "finish_reason");
        }
        json_close_object(w);
    }
    json_close_array(w);
}

/* v's members but id, model and shoal, which are ours. */
static void put_theirs(struct json_writer *w, struct line *l, struct json v, const char *finish)
{
    for (struct json_walk walk = json_walk(v); json_next(&walk);) {
        if (json_text_eq(walk.key, STR("choices")))
            put_choices(w, l, walk.value, finish);
        else if (!json_text_eq(walk.key, STR("id")) && !json_text_eq(walk.key, STR("model")) &&
                 !json_text_eq(walk.key, STR("shoal")))
            put_member(w, l, &walk);
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

/* Which block is open now, and how many there were: what another leg goes on from. One that the
 * upstream leaves open in front of the next, or of the end, is ended here. False: the line ends a
 * block that is ended already. */
static bool follow_block(struct buf *out, struct dialect_state *st, struct json v)
{
    struct json type = json_member(v, "type");
    struct json block = json_member(json_member(v, "content_block"), "type");
    uint64_t index = 0;
    if (json_text_eq(type, STR("content_block_stop"))) {
        bool was_open = anthropic(st)->shown > 0;
        anthropic(st)->open = ANTHROPIC_NONE;
        anthropic(st)->shown = 0;
        return was_open;
    }
    if (!json_text_eq(type, STR("content_block_start")) ||
        !json_u64(json_member(v, "index"), &index))
        return true;
    dialect_anthropic_reply_shut(out, st);
    anthropic(st)->blocks_count = (uint32_t)base_min(index, UINT32_MAX - 1) + 1;
    anthropic(st)->open = json_text_eq(block, STR("text"))       ? ANTHROPIC_TEXT
                          : json_text_eq(block, STR("thinking")) ? ANTHROPIC_THINKING
                          : json_text_eq(block, STR("tool_use")) ? ANTHROPIC_CALL
                                                                 : ANTHROPIC_OTHER;
    anthropic(st)->shown = anthropic(st)->blocks_count;
    return true;
}

static bool is_anthropic_end(struct json v)
{
    struct json reason = json_member(json_member(v, "delta"), "stop_reason");
    return json_text_eq(json_member(v, "type"), STR("message_delta")) &&
           json_kind(reason) == JSON_KIND_STRING;
}

static bool is_anthropic_stop(struct json v)
{
    return json_text_eq(json_member(v, "type"), STR("message_stop"));
}

/* As ours would say it: no call is promised that there is not, and none is kept secret. Two words
 * that ours lacks stay. */
static void put_delta(struct json_writer *w, struct line *l, struct json delta,
                      const struct dialect_state *st)
{
    json_open_object(w);
    for (struct json_walk walk = json_walk(delta); json_next(&walk);) {
        bool is_reason = json_text_eq(walk.key, STR("stop_reason")) &&
                         json_kind(walk.value) == JSON_KIND_STRING &&
                         !json_text_eq(walk.value, STR("pause_turn")) &&
                         !json_text_eq(walk.value, STR("model_context_window_exceeded"));
        if (is_reason)
            dialect_write_text_z(w, "stop_reason",
                                 dialect_anthropic_reply_reason(st, st->choices[0].reason));
        else
            put_member(w, l, &walk);
    }
    json_close_object(w);
}

static void put_message_delta(struct json_writer *w, struct line *l,
                              const struct dialect_state *st)
{
    json_open_object(w);
    for (struct json_walk walk = json_walk(l->v); json_next(&walk);) {
        if (json_text_eq(walk.key, STR("shoal")))
            continue;
        if (json_text_eq(walk.key, STR("delta"))) {
            json_key_z(w, "delta");
            put_delta(w, l, walk.value, st);
        } else {
            put_member(w, l, &walk);
        }
    }
    put_shoal(w, st);
    json_close_object(w);
}

static void anthropic_line(struct buf *out, struct dialect_state *st, str text, bool *has_begun)
{
    struct line l = {.text = NULL};
    if (!line_open(&l, text))
        return;
    struct buf json = dialect_write_piece(), name = dialect_write_piece();
    struct json_writer w = json_writer(&json);
    struct json type = json_member(l.v, "type"), message = json_member(l.v, "message");
    bool is_start = json_text_eq(type, STR("message_start"));
    buf_add(&name, json_text(type, &l.a));
    if (!follow_block(out, st, l.v)) {
        buf_clear(&json); /* a block that is closed already */
    } else if ((is_start && *has_begun) || (is_anthropic_end(l.v) && !st->is_over)) {
        buf_clear(&json); /* a ping began the stream already; more came behind this end */
    } else if (is_start) {
        json_open_object(&w);
        dialect_write_text_z(&w, "type", "message_start");
        json_key_z(&w, "message");
        json_open_object(&w);
        put_ours(&w, st, "msg_");
        put_theirs(&w, &l, message, NULL);
        json_close_object(&w);
        json_close_object(&w);
        *has_begun = true;
    } else if (json_text_eq(type, STR("message_delta"))) {
        dialect_anthropic_reply_shut(out, st);
        put_message_delta(&w, &l, st);
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
    if (ev->kind == API_EVENT_DONE && !any_line(ev->raw, is_anthropic_end)) {
        write_ours(out, st, 0, ev);
        return;
    }
    uint32_t shown = anthropic(st)->shown;
    keep_in_step(out, st, 0, ev);
    anthropic(st)->shown = shown; /* of what was dropped nothing is at the client */
    st->choices[0].content.len = 0; /* blanks that our form holds back are out */
    while (str_split(&rest, '\n', &line))
        if (line.len)
            anthropic_line(out, st, line, &has_begun);
    if (st->is_over && !any_line(ev->raw, is_anthropic_stop)) /* silence in front of it */
        buf_add_z(out, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

/* ---- Chat completions ---- */

static bool is_chat_end(struct json v)
{
    bool ends = false;
    for (struct json_walk walk = json_walk(json_member(v, "choices")); json_next(&walk);)
        ends = ends || is_chat_finish(walk.value);
    return ends;
}

static bool is_chat_usage(struct json v)
{
    return json_count(json_member(v, "choices")) == 0 &&
           json_kind(json_member(v, "usage")) == JSON_KIND_OBJECT;
}

/* A line as the last one but for its text goes out as that one. */
static bool pour_known(struct buf *out, const struct dialect_state *st, const struct api_event *ev)
{
    str text;
    if (!ev->raw_at || !dialect_mould_fits(&st->raw_in, ev->raw, &text))
        return false;
    dialect_mould_pour(&st->raw_out, text, out);
    return true;
}

/* raw is one line, whose text went to text_out, or 0; said: what it became. */
static void keep_mould(struct dialect_state *st, const struct api_event *ev, str said,
                       size_t text_out)
{
    str raw = ev->raw;
    bool is_one = str_find_byte(raw, '\n') >= raw.len - 1; /* STR_NONE: a line without its end */
    if (st->raw_in.form.size_max == 0) {
        dialect_mould_init(&st->raw_in);
        dialect_mould_init(&st->raw_out);
    }
    if (!is_one || text_out == 0 ||
        !dialect_mould_set(&st->raw_out, said, str_sub(said, text_out, ev->text.text.len)) ||
        !dialect_mould_set(&st->raw_in, raw, str_sub(raw, ev->raw_at, ev->text.text.len)))
        dialect_mould_clear(&st->raw_in);
}

/* True: the line said the end. */
static bool openai_line(struct buf *out, struct dialect_state *st, str text, const char *finish,
                        struct line *at)
{
    struct line l = {.text = at->text};
    if (str_eq(text, STR("[DONE]"))) {
        buf_add_z(out, "data: [DONE]\n\n");
        return false;
    }
    if (!line_open(&l, text))
        return false;
    bool ends = finish && is_chat_end(l.v);
    if (!is_chat_usage(l.v) || st->include_usage) {
        buf_add_z(out, "data: ");
        struct json_writer w = json_writer(out);
        json_open_object(&w);
        put_ours(&w, st, "chatcmpl-");
        put_theirs(&w, &l, l.v, finish);
        if (ends)
            put_shoal(&w, st);
        json_close_object(&w);
        buf_add_z(out, "\n\n");
    }
    at->text_out = l.text_out;
    arena_deinit(&l.a);
    return ends;
}

/* Of streamed text behind the first piece the writer remembers nothing. */
static bool is_more_text(const struct dialect_state *st, uint32_t choice,
                         const struct api_event *ev)
{
    bool is_text = ev->kind == API_EVENT_CONTENT || ev->kind == API_EVENT_REASONING;
    return is_text && st->stream && st->choices[choice].is_begun;
}

/* The end is said once, with the DONE; where it came beside text, or usage that was asked for did
 * not come, ours says it. */
void dialect_raw_openai(struct buf *out, struct dialect_state *st, uint32_t choice,
                        const struct api_event *ev)
{
    str rest = ev->raw, line;
    bool is_end = ev->kind == API_EVENT_DONE, has_done = str_ends(ev->raw, STR("[DONE]\n"));
    if (is_end && (!any_line(ev->raw, is_chat_end) ||
                   (st->include_usage && !any_line(ev->raw, is_chat_usage)))) {
        write_ours(out, st, choice, ev);
        return;
    }
    bool is_more = is_more_text(st, choice, ev);
    if (is_more && pour_known(out, st, ev))
        return;
    if (!is_more)
        keep_in_step(out, st, choice, ev);
    const char *finish =
        is_end ? dialect_openai_write_finish(st->choices[choice].reason) : NULL;
    struct line at = {.text = is_more && ev->raw_at ? ev->raw.p + ev->raw_at : NULL};
    size_t before = out->len;
    while (str_split(&rest, '\n', &line))
        if (line.len && openai_line(out, st, line, finish, &at))
            finish = NULL;
    if (is_more)
        keep_mould(st, ev, str_from(buf_view(out), before),
                   at.text_out ? at.text_out - before : 0);
    if (st->is_over && !has_done) /* some leave the marker out */
        buf_add_z(out, "data: [DONE]\n\n");
}
