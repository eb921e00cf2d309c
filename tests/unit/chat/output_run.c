#include "output_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

const char output_run_tools[] =
    "[{\"name\": \"get_weather\", \"parameters\": {\"type\": \"object\", \"properties\": {"
    "\"city\": {\"type\": \"string\"}, \"unit\": {\"enum\": [\"c\", \"f\"]},"
    "\"days\": {\"type\": \"integer\"}, \"note\": {\"type\": [\"string\", \"null\"]}}}},"
    "{\"name\": \"search\", \"parameters\": {\"type\": \"object\", \"properties\": {"
    "\"q\": {\"type\": \"string\"}, \"filters\": {\"type\": \"array\"}, \"opt\": {},"
    "\"exact\": {\"type\": \"boolean\"}, \"where\": {\"$ref\": \"#/$defs/place\"},"
    "\"mix\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"number\"}]}},"
    "\"$defs\": {\"place\": {\"type\": \"string\"}}}},"
    "{\"name\": \"noargs\"}, {\"name\": \"patch\", \"custom\": true},"
    "{\"name\": \"banned\", \"banned\": true}]";

static void read_tools(struct api_request *rq, const char *text, struct arena *a)
{
    const struct json_options o = {.depth_max = 64};
    struct json v;
    struct err e;
    assert_true(json_parse(&v, str_of(text), &o, a, &e));
    struct api_tool *tools = ARENA_ARRAY(a, struct api_tool, json_count(v));
    struct json_walk w = json_walk(v);
    for (uint32_t n = 0; json_next(&w); n++) {
        tools[n].name = json_text(json_member(w.value, "name"), a);
        tools[n].schema = json_raw(json_member(w.value, "parameters"));
        tools[n].allowed = true;
        bool is_custom = false, is_banned = false, is_strict = false;
        if (json_bool(json_member(w.value, "strict"), &is_strict))
            tools[n].strict = is_strict;
        if (json_bool(json_member(w.value, "banned"), &is_banned) && is_banned)
            tools[n].allowed = false;
        if (json_bool(json_member(w.value, "custom"), &is_custom) && is_custom)
            tools[n].kind = API_TOOL_CUSTOM;
        rq->tools_count = n + 1;
    }
    rq->tools = tools;
}

void output_run_tools_make(struct output_tools *out, const char *list, struct arena *a)
{
    struct api_request *rq = ARENA_NEW(a, struct api_request);
    struct err e;
    api_request_init(rq);
    read_tools(rq, list ? list : output_run_tools, a);
    assert_true(output_tools_make(out, rq, a, &e));
}

struct state {
    struct output o;
    struct output_said *said;
    struct buf args;
    enum api_event_kind last;
    uint32_t open; /* index + 1 of the call that is open */
};

static void take_one(struct state *s, const struct output_event *ev)
{
    struct buf *out = &s->said->lines;
    bool goes_on = ev->kind == s->last && ev->kind != API_EVENT_CALL_BEGIN;
    assert_int_equal(str_utf8_valid(ev->text), ev->text.len);
    if (ev->kind == API_EVENT_CALL_ARGS || ev->kind == API_EVENT_CALL_END)
        assert_int_equal(ev->index + 1, s->open);
    if (!goes_on && ev->kind != API_EVENT_CALL_ARGS && out->len && ev->kind != API_EVENT_CALL_END)
        buf_add_byte(out, '\n');
    if (ev->kind == API_EVENT_CALL_BEGIN) {
        assert_int_equal(ev->index, s->said->calls_begun++);
        assert_int_equal(strlen(ev->id), OUTPUT_ID_LEN);
        s->open = ev->index + 1;
        buf_printf(out, "C:%.*s:", STR_ARG(ev->text));
        buf_clear(&s->args);
    } else if (ev->kind == API_EVENT_CALL_END) {
        const struct json_options opt = {.depth_max = 512};
        struct json v;
        struct arena a;
        struct err e;
        arena_init(&a, 1 << 24);
        bool is_custom = str_starts(buf_view(&s->args), STR("*** "));
        if (!is_custom && !json_parse(&v, buf_view(&s->args), &opt, &a, &e))
            fail_msg("'%.*s': %s", STR_ARG(buf_view(&s->args)), e.text);
        arena_deinit(&a);
        buf_add_z(out, "\nE");
        s->said->calls_done++;
        s->open = 0;
    } else {
        assert_true(ev->text.len > 0);
        if (ev->kind == API_EVENT_CALL_ARGS)
            buf_add(&s->args, ev->text);
        else if (!goes_on)
            buf_add_z(out, ev->kind == API_EVENT_REASONING ? "R:" : "T:");
        buf_add(out, ev->text);
    }
    s->last = ev->kind;
}

static void take(struct state *s)
{
    uint32_t count;
    const struct output_event *ev = output_events(&s->o, &count);
    for (uint32_t i = 0; i < count; i++)
        take_one(s, &ev[i]);
    output_clear(&s->o);
}

static const struct output_think *think_of(const char *name)
{
    for (uint32_t i = 0; name && i < output_table_thinks_count; i++)
        if (str_eq_z(output_table_thinks[i].name, name))
            return &output_table_thinks[i];
    return NULL;
}

void output_run(const struct output_run *r, str text, size_t first, size_t piece,
                struct output_said *said)
{
    struct state s = {.said = said, .last = API_EVENT_DONE};
    struct output_tools tools;
    struct arena a;
    struct err e;
    str stops[countof(r->stops)];
    uint32_t stops_count = 0;
    arena_init(&a, 1 << 22);
    output_run_tools_make(&tools, r->tools, &a);
    while (stops_count < countof(stops) && r->stops[stops_count]) {
        stops[stops_count] = str_of(r->stops[stops_count]);
        stops_count++;
    }
    const struct output_options opt = {
        .format = {r->format && *r->format ? output_table_find(str_of(r->format)) : NULL,
                   think_of(r->think)},
        .tools = r->no_tools ? NULL : &tools, .begin = r->begin, .one_call = r->one_call,
        .is_forced = r->is_forced,
        .stops = stops, .stops_count = stops_count, .id_seed = {1, 2}};
    assert_true(!r->format || !*r->format || opt.format.calls);
    buf_clear(&said->lines);
    said->calls_begun = said->calls_done = 0;
    buf_init(&s.args, 1 << 22);
    assert_true(output_init(&s.o, &opt, &a, &e));
    for (size_t at = 0, n = first; at < text.len; at += n, n = piece) {
        assert_true(output_add(&s.o, str_sub(text, at, n ? n : 1)));
        take(&s);
        if (n == 0)
            n = 1;
    }
    assert_true(output_end(&s.o, r->is_cut));
    take(&s);
    said->has_calls = output_has_calls(&s.o);
    said->is_stopped = s.o.has_stop;
    output_deinit(&s.o);
    buf_deinit(&s.args);
    arena_deinit(&a);
}

void output_run_check(const struct output_run *r, const char *text, const char *lines)
{
    struct output_said said = {.has_calls = false};
    str all = str_of(text);
    buf_init(&said.lines, 1 << 20);
    for (size_t cut = 0; cut <= all.len + 1; cut++) {
        bool by_bytes = cut == all.len + 1;
        output_run(r, all, by_bytes ? 1 : cut, by_bytes ? 1 : all.len + 1, &said);
        if (!str_eq_z(buf_view(&said.lines), lines))
            fail_msg("%s, cut at %zu of '%s':\n--- got\n%.*s\n--- expected\n%s", r->format, cut,
                     text, STR_ARG(buf_view(&said.lines)), lines);
        bool whole = said.calls_done > 0 && said.calls_done == said.calls_begun;
        assert_true(!said.has_calls || whole);
    }
    buf_deinit(&said.lines);
}
