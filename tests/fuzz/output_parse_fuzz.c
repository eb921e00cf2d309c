/* Any text in any format: whole, byte by byte and by threes say the same; arguments of a whole call
 * are JSON; calls begin, flow and end in order.
 * Input: a byte for the format, a byte of options, then the text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "chat/output.h"

enum {
    THINKING = 1, ANSWER = 2, ONE_CALL = 4, IS_CUT = 8, NO_TOOLS = 16, STOPS = 32, THINK = 64,
    HAS_FORMAT = 128
};

struct state {
    struct buf said, args;
    uint32_t begun;
    bool is_open;
    enum api_event_kind last;
};

static void check_args(const struct state *s)
{
    const struct json_options opt = {.depth_max = 512};
    struct json v;
    struct arena a;
    struct err e;
    arena_init(&a, 16 * s->args.len + (1u << 20));
    if (!json_parse(&v, buf_view(&s->args), &opt, &a, &e))
        abort();
    arena_deinit(&a);
}

static void take_one(struct state *s, const struct output_event *ev)
{
    if (str_utf8_valid(ev->text) != ev->text.len)
        abort();
    if (ev->kind == API_EVENT_CALL_BEGIN) {
        if (ev->index != s->begun++ || strlen(ev->id) != OUTPUT_ID_LEN)
            abort();
        s->is_open = true;
        buf_clear(&s->args);
    } else if (ev->kind == API_EVENT_CALL_ARGS || ev->kind == API_EVENT_CALL_END) {
        if (!s->is_open || ev->index + 1 != s->begun)
            abort();
        buf_add(&s->args, ev->text);
        if (ev->kind == API_EVENT_CALL_END)
            check_args(s);
        s->is_open = ev->kind == API_EVENT_CALL_ARGS;
    } else if (ev->text.len == 0) {
        abort();
    }
    if (ev->kind != s->last || ev->kind == API_EVENT_CALL_BEGIN)
        buf_printf(&s->said, "\n%s:", api_event_name(ev->kind));
    buf_add(&s->said, ev->text);
    s->last = ev->kind;
}

static void take(struct state *s, struct output *o)
{
    uint32_t count;
    const struct output_event *ev = output_events(o, &count);
    for (uint32_t i = 0; i < count; i++)
        take_one(s, &ev[i]);
    output_clear(o);
}

static void run(const struct output_options *opt, bool is_cut, str text, size_t piece,
                struct buf *said)
{
    struct state s = {.said = *said, .last = API_EVENT_DONE};
    struct output o;
    struct arena a;
    struct err e;
    arena_init(&a, 1 << 20);
    buf_init(&s.args, 1 << 24);
    if (!output_init(&o, opt, &a, &e))
        abort();
    bool ok = true;
    for (size_t at = 0; at < text.len; at += piece) {
        ok = ok && output_add(&o, str_sub(text, at, piece));
        take(&s, &o);
    }
    if (!ok || !output_end(&o, is_cut))
        abort();
    take(&s, &o);
    buf_printf(&s.said, "\n%d %d", output_has_calls(&o), o.has_stop);
    if (output_has_calls(&o) && s.is_open)
        abort();
    output_deinit(&o);
    buf_deinit(&s.args);
    arena_deinit(&a);
    *said = s.said;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct api_tool list[] = {
        {.name = STR_INIT("get_weather"), .allowed = true,
         .schema = STR_INIT("{\"properties\": {\"city\": {\"type\": \"string\"}, "
                            "\"tags\": {\"type\": \"array\"}, "
                            "\"days\": {\"type\": [\"integer\", \"null\"]}}}")},
        {.name = STR_INIT("noargs"), .allowed = true}};
    static const str stops[] = {STR_INIT("stop"), STR_INIT("\n\n\n")};
    static const size_t pieces[] = {SIZE_MAX, 1, 3};
    struct output_tools tools;
    struct api_request rq;
    struct arena a;
    struct err e;
    struct buf said[countof(pieces)];
    if (size < 2 || size > 1 << 16)
        return 0;
    arena_init(&a, 1 << 20);
    api_request_init(&rq);
    rq.tools = list;
    rq.tools_count = countof(list);
    if (!output_tools_make(&tools, &rq, &a, &e))
        abort();
    uint8_t o = data[1];
    const struct output_options opt = {
        .format = {&output_table_rows[data[0] % output_table_count],
                   o & THINK ? &output_table_thinks[data[0] % output_table_thinks_count] : NULL},
        .tools = o & NO_TOOLS ? NULL : &tools, .one_call = o & ONE_CALL,
        .has_format = o & HAS_FORMAT,
        .begin = o & THINKING ? OUTPUT_BEGIN_THINKING
                 : o & ANSWER ? OUTPUT_BEGIN_ANSWER : OUTPUT_BEGIN_FRESH,
        .stops = stops, .stops_count = o & STOPS ? countof(stops) : 0};
    for (size_t i = 0; i < countof(pieces); i++) {
        buf_init(&said[i], 1 << 24);
        run(&opt, o & IS_CUT, str_view(data + 2, size - 2), base_min(pieces[i], size), &said[i]);
        if (i && !str_eq(buf_view(&said[0]), buf_view(&said[i])))
            abort();
    }
    for (size_t i = 0; i < countof(pieces); i++)
        buf_deinit(&said[i]);
    arena_deinit(&a);
    return 0;
}
