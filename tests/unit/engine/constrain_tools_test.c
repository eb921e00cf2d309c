/* Hostile replies: pieces of markers, JSON and prose in random order, as far as the grammar of the
 * request lets them through, then read by chat/output in several cuts. Whatever comes out: the cuts
 * say the same, a whole call of a strict tool fits its schema, nothing of a marker is text. */
#include "engine/constrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine_vocab.h"

#define ROUNDS   150
#define TEXT_MAX 220
#define TRIES    24

static uint32_t random_state;

static uint32_t pick(uint32_t below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % below;
}

static struct api_tool tools[] = {
    {.name = STR_INIT("get"), .allowed = true,
     .schema = STR_INIT("{\"type\":\"object\",\"properties\":{\"on\":{\"type\":\"boolean\"}},"
                        "\"required\":[\"on\"],\"additionalProperties\":false}")},
    {.name = STR_INIT("get_all"), .allowed = true,
     .schema = STR_INIT("{\"type\":\"object\",\"properties\":{\"on\":{\"type\":\"boolean\"}},"
                        "\"required\":[\"on\"],\"additionalProperties\":false}")},
};

/* ---- Pieces ---- */

static const char *const common[] = {
    "{", "}", "\"name\": \"get\"", "\"name\"", ": ", "\"get\"", "\"get_all\"", "\"arguments\"",
    "\"parameters\"", ", ", "\"type\": \"function\", ", "{\"on\":true}", "{\"on\": 1}", "on",
    "true",
    "false", "1", "\"on\"", "```json\n", "```", "\n", ";", "[", "]", "Hm. ", "<", ">", "\\u0067",
    "{\"name\": \"get\", \"arguments\": {\"on\":true}}",
    "{\"name\": \"get\", \"arguments\": {\"on\": 1}}",
    "{\"arguments\": {\"on\": 1}, \"name\": \"get\"}", "\xc3\xa9", "functions.get", "analysis",
    "final",
    "<|channel|>", "<|message|>", "<|end|>", "<|start|>assistant", "get", "_all"};

static str piece_of(const struct output_row *r, char *room)
{
    const str own[] = {r->section_open, r->section_close, r->between, r->call_open, r->call_close,
                       r->name_open, r->name_close, r->args_close, r->key_open, r->key_text,
                       r->key_json, r->value_close, r->also[0], r->also[1], r->also_close};
    str s = own[pick(countof(own))];
    if (pick(2) || s.len == 0)
        return str_of(common[pick(countof(common))]);
    if (pick(3) == 0)
        s = str_sub(s, 0, 1 + pick((uint32_t)s.len)); /* a beginning of it */
    memcpy(room, s.p, s.len);
    return str_view(room, s.len);
}

/* ---- Replies that the grammar lets through ---- */

struct place {
    struct vocab *vocab;
    struct constrain *constrain;
    struct gram_mask *masks;
};

static void open_place(struct place *p)
{
    *p = (struct place){.vocab = engine_vocab_bytes()};
    p->constrain = constrain_new(p->vocab);
}

static bool step(struct place *p, struct gram_state *at, struct buf *text, char byte)
{
    struct gram_state next;
    if (p->masks && at->gram) {
        if (!gram_mask_try_bytes(p->masks, at, (str){&byte, 1}, &next))
            return false;
        *at = next;
    }
    return buf_add_byte(text, byte);
}

/* Whether it may end where it does. */
static bool write_reply(struct place *p, struct gram_state *at, const struct output_row *row,
                        struct buf *text)
{
    char room[256];
    buf_clear(text);
    for (int tries = 0; text->len < TEXT_MAX && tries < TRIES;) {
        str s = piece_of(row, room);
        size_t i = 0;
        while (i < s.len && step(p, at, text, s.p[i]))
            i++;
        tries = i ? 0 : tries + 1;
        bool ends = !at->gram || gram_mask_can_end(p->masks, at);
        if (ends && pick(6) == 0)
            return true;
        for (int byte = 32; tries == TRIES / 2 && byte < 127; byte++)
            if (step(p, at, text, (char)byte)) /* only one thing may follow: it does */
                tries = 0;
    }
    return !at->gram || gram_mask_can_end(p->masks, at);
}

/* ---- What is read ---- */

struct read {
    struct buf said, content, args;
    uint32_t calls;
    enum api_event_kind last;
    bool is_strict, has_calls;
};

static void check_args(const struct read *r, const char *what)
{
    const struct json_options opt = {.depth_max = 300};
    struct json v;
    struct arena a;
    struct err e;
    bool on;
    arena_init(&a, 1 << 20);
    if (!json_parse(&v, buf_view(&r->args), &opt, &a, &e))
        fail_msg("%s: arguments %.*s", what, STR_ARG(buf_view(&r->args)));
    bool fits = json_kind(v) == JSON_KIND_OBJECT && json_count(v) == 1 &&
                json_bool(json_member(v, "on"), &on);
    if (r->is_strict && !fits)
        fail_msg("%s: a strict tool got %.*s", what, STR_ARG(buf_view(&r->args)));
    arena_deinit(&a);
}

static void take(struct read *r, struct output *o, const char *what)
{
    uint32_t count;
    const struct output_event *ev = output_events(o, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (ev[i].kind == API_EVENT_CALL_BEGIN)
            buf_clear(&r->args);
        if (ev[i].kind == API_EVENT_CALL_ARGS)
            buf_add(&r->args, ev[i].text);
        if (ev[i].kind == API_EVENT_CALL_END) {
            r->calls++;
            check_args(r, what);
        }
        if (ev[i].kind == API_EVENT_CONTENT)
            buf_add(&r->content, ev[i].text);
        if (ev[i].kind != r->last || ev[i].kind == API_EVENT_CALL_BEGIN)
            buf_printf(&r->said, "\n%s ", api_event_name(ev[i].kind));
        r->last = ev[i].kind;
        buf_add(&r->said, ev[i].text);
    }
    output_clear(o);
}

static void read_reply(const struct output_options *opt, str text, bool is_cut, size_t piece,
                       struct read *r, const char *what)
{
    struct output o;
    struct arena a;
    struct err e;
    arena_init(&a, 1 << 20);
    buf_clear(&r->said);
    buf_clear(&r->content);
    r->calls = 0;
    r->last = API_EVENT_DONE;
    assert_true(output_init(&o, opt, &a, &e));
    for (size_t at = 0; at < text.len; at += piece) {
        assert_true(output_add(&o, str_sub(text, at, piece)));
        take(r, &o, what);
    }
    assert_true(output_end(&o, is_cut));
    take(r, &o, what);
    r->has_calls = output_has_calls(&o);
    output_deinit(&o);
    arena_deinit(&a);
}

/* ---- A round ---- */

struct setting {
    const struct output_row *row;
    enum api_tool_choice choice;
    bool is_strict, is_bound; /* is_bound: by a grammar; else anything may come */
};

static void check_leaks(const struct setting *s, const struct read *r, bool is_cut,
                        const char *what)
{
    str content = buf_view(&r->content);
    bool is_forced = s->choice >= API_TOOL_CHOICE_REQUIRED;
    if (is_forced && content.len)
        fail_msg("%s: a forced call shows '%.*s'", what, STR_ARG(content));
    if (is_forced && !is_cut && !r->has_calls)
        fail_msg("%s: nothing was called", what);
    if (s->choice == API_TOOL_CHOICE_NONE && r->calls)
        fail_msg("%s: called though none was asked for", what);
    char room[256];
    str opener = output_table_opener(s->row, room, sizeof room);
    if (s->choice != API_TOOL_CHOICE_NONE && opener.len &&
        str_find(content, opener) != STR_NONE)
        fail_msg("%s: '%.*s' shows in '%.*s'", what, STR_ARG(opener), STR_ARG(content));
}

static void play(struct place *p, const struct setting *s, uint32_t seed, struct read r[2],
                 struct buf *text)
{
    struct api_request rq;
    struct output_tools made;
    struct constraint k = {.gram = NULL};
    struct gram_state at = {.gram = NULL};
    struct arena a;
    struct api_error e;
    struct err why;
    char what[512];
    random_state = seed;
    arena_init(&a, (size_t)1 << 24);
    api_request_init(&rq);
    tools[0].strict = tools[1].strict = s->is_strict;
    rq.tools = tools;
    rq.tools_count = countof(tools);
    rq.tool_choice = s->choice;
    assert_true(output_tools_make(&made, &rq, &a, &why));
    const struct output_tools *use = s->choice == API_TOOL_CHOICE_NONE ? NULL : &made;
    const struct constrain_ask ask = {.rq = &rq, .tools = use, .format.calls = s->row};
    if (s->is_bound && !constrain_make(p->constrain, &ask, &a, &k, &e))
        fail_msg("%.*s: %s", STR_ARG(s->row->name), e.err.text);
    const struct gram_mask_options m = {.homes_max = 4, .masks_bytes = 1 << 20, .index = k.index};
    if (k.gram && !p->masks)
        p->masks = gram_mask_new(&m);
    if (k.gram)
        assert_true(gram_mask_open(p->masks, k.gram, &at, &why));
    bool is_cut = !write_reply(p, &at, s->row, text) || pick(8) == 0;
    const struct output_options opt = {.format.calls = s->row, .tools = use,
                                       .is_forced = s->choice >= API_TOOL_CHOICE_REQUIRED};
    static const size_t pieces[] = {SIZE_MAX / 2, 1, 2, 7};
    for (size_t i = 0; i < countof(pieces); i++) {
        struct read *now = &r[i > 0];
        now->is_strict = s->is_strict && s->is_bound;
        snprintf(what, sizeof what, "%.*s, choice %d, strict %d, bound %d, seed %u, '%.*s'",
                 STR_ARG(s->row->name), (int)s->choice, s->is_strict, s->is_bound, seed,
                 STR_ARG(buf_view(text)));
        read_reply(&opt, buf_view(text), is_cut, pieces[i], now, what);
        if (i && !str_eq(buf_view(&r[0].said), buf_view(&now->said)))
            fail_msg("%s: whole%.*s\nby %zu%.*s", what, STR_ARG(buf_view(&r[0].said)), pieces[i],
                     STR_ARG(buf_view(&now->said)));
    }
    if (s->is_bound)
        check_leaks(s, &r[0], is_cut, what);
    if (k.gram)
        gram_mask_close(p->masks, &at);
    constrain_drop(&k);
    arena_deinit(&a);
}

static void test_no_reply_breaks_a_schema_leaks_a_marker_or_depends_on_its_cuts(void **state)
{
    (void)state;
    struct place p;
    struct read r[2] = {{.calls = 0}, {.calls = 0}};
    struct buf text;
    uint32_t calls = 0;
    open_place(&p);
    buf_init(&text, 1 << 12);
    for (int i = 0; i < 2; i++) {
        buf_init(&r[i].said, 1 << 20);
        buf_init(&r[i].content, 1 << 20);
        buf_init(&r[i].args, 1 << 20);
    }
    for (uint32_t f = 0; f < output_table_count; f++)
        for (uint32_t n = 0; n < 10; n++) {
            const struct setting s = {
                .row = &output_table_rows[f], .is_strict = n & 1, .is_bound = n < 6,
                .choice = n < 2 || n > 7 ? API_TOOL_CHOICE_AUTO
                          : n < 4 || n > 5 ? API_TOOL_CHOICE_REQUIRED : API_TOOL_CHOICE_NONE};
            for (uint32_t round = 0; round < ROUNDS; round++) {
                play(&p, &s, f * 100000 + n * 1000 + round, r, &text);
                calls += r[0].calls;
            }
        }
    print_message("%u calls read\n", calls);
    assert_true(calls > output_table_count * ROUNDS);
    for (int i = 0; i < 2; i++) {
        buf_deinit(&r[i].said);
        buf_deinit(&r[i].content);
        buf_deinit(&r[i].args);
    }
    buf_deinit(&text);
    gram_mask_free(p.masks);
    constrain_free(p.constrain);
    vocab_free(p.vocab);
}

/* ---- An answer in a format beside tools ---- */

/* All that a row would take for a whole call, as the one text that the format allows. */
static void add_quoted_call(struct buf *b, const struct output_row *r)
{
    const str parts[] = {r->section_open, r->call_open, r->name_open, STR("get"), r->name_close,
                         r->shape == OUTPUT_SHAPE_TAGS ? STR("") : STR("{}"), r->args_close,
                         r->call_close, str_trim(r->section_close)};
    for (size_t i = 0; i < countof(parts); i++)
        buf_add(b, parts[i]);
}

static void play_answer(struct place *p, const struct output_row *row, bool has_tools,
                        struct buf *text, struct read *r)
{
    struct api_request rq;
    struct output_tools made;
    struct constraint k = {.gram = NULL};
    struct gram_state at = {.gram = NULL};
    struct buf quoted, json, schema;
    struct arena a;
    struct api_error e;
    struct err why;
    arena_init(&a, (size_t)1 << 24);
    buf_init(&quoted, 4096);
    buf_init(&json, 8192);
    buf_init(&schema, 8192);
    add_quoted_call(&quoted, row);
    buf_add_byte(&json, '"');
    json_add_escaped(&json, buf_view(&quoted));
    buf_add_byte(&json, '"');
    buf_printf(&schema, "{\"const\":%.*s}", STR_ARG(buf_view(&json)));
    api_request_init(&rq);
    rq.tools = tools;
    rq.tools_count = has_tools ? countof(tools) : 0;
    rq.format = (struct api_format){.kind = API_FORMAT_SCHEMA, .text = buf_view(&schema),
                                    .strict = true};
    assert_true(output_tools_make(&made, &rq, &a, &why));
    const struct constrain_ask ask = {.rq = &rq, .tools = has_tools ? &made : NULL,
                                      .format.calls = row};
    if (!constrain_make(p->constrain, &ask, &a, &k, &e))
        fail_msg("%.*s: %s", STR_ARG(row->name), e.err.text);
    const struct gram_mask_options m = {.homes_max = 4, .masks_bytes = 1 << 20, .index = k.index};
    if (!p->masks)
        p->masks = gram_mask_new(&m);
    assert_true(gram_mask_open(p->masks, k.gram, &at, &why));
    str header = row->shape == OUTPUT_SHAPE_CHANNEL ? STR("<|channel|>final<|message|>") : STR("");
    str reply[] = {header, buf_view(&json)};
    buf_clear(text);
    for (size_t i = 0; i < countof(reply); i++)
        for (size_t n = 0; n < reply[i].len; n++)
            if (!step(p, &at, text, reply[i].p[n]))
                fail_msg("%.*s: refused behind %.*s", STR_ARG(row->name), STR_ARG(buf_view(text)));
    assert_true(gram_mask_is_done(p->masks, &at));
    const struct output_options opt = {.format.calls = row, .tools = ask.tools,
                                       .has_format = true};
    for (size_t piece = 1; piece <= text->len; piece = piece < 8 ? piece + 1 : 8 * piece) {
        read_reply(&opt, buf_view(text), false, piece, r, "an answer");
        if (r->calls || !str_eq(buf_view(&r->content), buf_view(&json)))
            fail_msg("%.*s, by %zu: %u calls in %.*s, said%.*s", STR_ARG(row->name), piece,
                     r->calls, STR_ARG(buf_view(text)), STR_ARG(buf_view(&r->said)));
    }
    gram_mask_close(p->masks, &at);
    constrain_drop(&k);
    buf_deinit(&quoted);
    buf_deinit(&json);
    buf_deinit(&schema);
    arena_deinit(&a);
}

static void test_an_answer_in_a_format_may_quote_a_call(void **state)
{
    (void)state;
    struct place p;
    struct read r = {.calls = 0};
    struct buf text;
    open_place(&p);
    buf_init(&text, 1 << 14);
    buf_init(&r.said, 1 << 20);
    buf_init(&r.content, 1 << 20);
    buf_init(&r.args, 1 << 20);
    for (uint32_t f = 0; f < output_table_count; f++)
        for (int has_tools = 0; has_tools < 2; has_tools++)
            play_answer(&p, &output_table_rows[f], has_tools, &text, &r);
    buf_deinit(&text);
    buf_deinit(&r.said);
    buf_deinit(&r.content);
    buf_deinit(&r.args);
    gram_mask_free(p.masks);
    constrain_free(p.constrain);
    vocab_free(p.vocab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_answer_in_a_format_may_quote_a_call),
        cmocka_unit_test(test_no_reply_breaks_a_schema_leaks_a_marker_or_depends_on_its_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
