/* A turn as a template prints it is what its model writes: reading it gives back the reasoning, the
 * content and the calls that it was made from, wherever the text is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "chat/output.h"

#define SIZE_MAX_ ((size_t)8 << 20)
#define CALLS_MAX 8

struct said {
    struct buf reasoning, content, names[CALLS_MAX], args[CALLS_MAX];
    uint32_t begun, done;
};

static void take(struct output *o, struct said *s)
{
    uint32_t count;
    const struct output_event *ev = output_events(o, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (ev[i].kind == API_EVENT_REASONING)
            buf_add(&s->reasoning, ev[i].text);
        else if (ev[i].kind == API_EVENT_CONTENT)
            buf_add(&s->content, ev[i].text);
        else if (ev[i].kind == API_EVENT_CALL_ARGS)
            buf_add(&s->args[ev[i].index], ev[i].text);
        else if (ev[i].kind == API_EVENT_CALL_END)
            s->done++;
        else {
            assert_true(ev[i].index == s->begun && s->begun < CALLS_MAX);
            buf_add(&s->names[s->begun++], ev[i].text);
        }
    }
    output_clear(o);
}

static void clear(struct said *s)
{
    buf_clear(&s->reasoning);
    buf_clear(&s->content);
    s->begun = s->done = 0;
    for (size_t i = 0; i < CALLS_MAX; i++) {
        buf_clear(&s->names[i]);
        buf_clear(&s->args[i]);
    }
}

static void read_reply(const struct output_options *opt, str text, size_t first, size_t piece,
                       struct said *s)
{
    struct output o;
    struct arena a;
    struct err e;
    clear(s);
    arena_init(&a, 1 << 20);
    assert_true(output_init(&o, opt, &a, &e));
    for (size_t at = 0, n = first; at < text.len; at += n, n = piece) {
        assert_true(output_add(&o, str_sub(text, at, n)));
        take(&o, s);
    }
    assert_true(output_end(&o, false));
    take(&o, s);
    output_deinit(&o);
    arena_deinit(&a);
}

/* Equal as values; members in the same order, which is that of the reply. */
static bool same(struct json a, struct json b, struct arena *arena)
{
    if (json_kind(a) != json_kind(b) || json_count(a) != json_count(b))
        return false;
    if (json_kind(a) == JSON_KIND_STRING)
        return str_eq(json_text(a, arena), json_text(b, arena));
    if (json_kind(a) != JSON_KIND_OBJECT && json_kind(a) != JSON_KIND_ARRAY)
        return str_eq(json_raw(a), json_raw(b));
    struct json_walk x = json_walk(a), y = json_walk(b);
    while (json_next(&x) && json_next(&y))
        if (!same(x.value, y.value, arena) ||
            (x.is_object && !str_eq(json_text(x.key, arena), json_text(y.key, arena))))
            return false;
    return true;
}

static bool is_right(const struct said *s, struct json want, struct arena *a)
{
    const struct json_options opt = {.depth_max = 64};
    struct json calls = json_member(want, "calls"), args;
    struct err e;
    bool ok = str_eq(buf_view(&s->reasoning), json_text(json_member(want, "reasoning"), a)) &&
              str_eq(str_trim(buf_view(&s->content)), json_text(json_member(want, "content"), a)) &&
              s->begun == json_count(calls) && s->done == s->begun;
    for (uint32_t i = 0; ok && i < s->begun; i++) {
        struct json call = json_at(calls, i);
        ok = json_text_eq(json_member(call, "name"), buf_view(&s->names[i])) &&
             json_parse(&args, buf_view(&s->args[i]), &opt, a, &e) &&
             same(args, json_member(call, "arguments"), a);
    }
    return ok;
}

static void check(struct json want, const struct output_options *opt, str name, struct said *s)
{
    struct arena a;
    arena_init(&a, SIZE_MAX_);
    str text = json_text(json_member(want, "reply"), &a);
    for (size_t cut = 0; cut <= text.len; cut++) {
        arena_reset(&a);
        text = json_text(json_member(want, "reply"), &a);
        read_reply(opt, text, cut ? cut : 1, cut ? text.len : 1, s);
        if (!is_right(s, want, &a))
            fail_msg("%.*s, cut at %zu of\n%.*s\n--- got: %u calls, %u whole, first '%.*s' '%.*s'\n"
                     "reasoning '%.*s'\ncontent '%.*s'", STR_ARG(name), cut, STR_ARG(text),
                     s->begun, s->done, STR_ARG(buf_view(&s->names[0])),
                     STR_ARG(buf_view(&s->args[0])), STR_ARG(buf_view(&s->reasoning)),
                     STR_ARG(buf_view(&s->content)));
    }
    arena_deinit(&a);
}

static enum output_begin begin_of(struct json want)
{
    struct json begin = json_member(want, "begin");
    return json_text_eq(begin, STR("thinking")) ? OUTPUT_BEGIN_THINKING
           : json_text_eq(begin, STR("answer")) ? OUTPUT_BEGIN_ANSWER : OUTPUT_BEGIN_FRESH;
}

static void read_tools(struct api_request *rq, struct json v, struct arena *a)
{
    struct api_tool *tools = ARENA_ARRAY(a, struct api_tool, json_count(v));
    struct json_walk w = json_walk(v);
    api_request_init(rq);
    while (json_next(&w)) {
        struct api_tool *tool = &tools[rq->tools_count++];
        tool->name = json_text(json_member(w.value, "name"), a);
        tool->schema = json_raw(json_member(w.value, "parameters"));
        tool->allowed = true;
    }
    rq->tools = tools;
}

static void format_of(struct json want, struct output_format *f, struct arena *a)
{
    char path[128];
    struct err e;
    str name = json_text(json_member(want, "template"), a), templates[2] = {{NULL, 0}, {NULL, 0}};
    snprintf(path, sizeof path, "tests/golden/templates/%.*s.jinja", STR_ARG(name));
    assert_true(file_read(&templates[0], path, SIZE_MAX_, a, &e));
    assert_true(output_table_choose(f, STR(""), templates, STR(""), &e));
}

static void test_B17_what_a_template_prints_is_read_back_at_every_split(void **state)
{
    (void)state;
    const struct json_options opt = {.depth_max = 64};
    struct arena a, scratch;
    struct api_request rq;
    struct output_tools tools;
    struct json all;
    struct err e;
    str body;
    struct said s = {0};
    uint32_t read = 0, unknown = 0;
    arena_init(&a, SIZE_MAX_);
    arena_init(&scratch, SIZE_MAX_);
    buf_init(&s.reasoning, 1 << 16);
    buf_init(&s.content, 1 << 16);
    for (size_t i = 0; i < CALLS_MAX; i++) {
        buf_init(&s.names[i], 1 << 16);
        buf_init(&s.args[i], 1 << 16);
    }
    assert_true(file_read(&body, "tests/golden/outputs/outputs.json", SIZE_MAX_, &a, &e));
    assert_true(json_parse(&all, body, &opt, &a, &e));
    read_tools(&rq, json_member(all, "tools"), &a);
    assert_true(output_tools_make(&tools, &rq, &a, &e));
    struct json_walk w = json_walk(json_member(all, "cases"));
    while (json_next(&w)) {
        struct output_options o = {.tools = &tools, .begin = begin_of(w.value)};
        arena_reset(&scratch);
        format_of(w.value, &o.format, &scratch);
        if (!o.format.calls && json_count(json_member(w.value, "calls"))) {
            unknown++; /* the engine refuses tools for it */
            continue;
        }
        check(w.value, &o, json_text(json_member(w.value, "template"), &scratch), &s);
        read++;
    }
    print_message("%u replies read, %u of formats that are refused\n", read, unknown);
    assert_true(read >= 170 && unknown <= 15);
    buf_deinit(&s.reasoning);
    buf_deinit(&s.content);
    for (size_t i = 0; i < CALLS_MAX; i++) {
        buf_deinit(&s.names[i]);
        buf_deinit(&s.args[i]);
    }
    arena_deinit(&a);
    arena_deinit(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_B17_what_a_template_prints_is_read_back_at_every_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
