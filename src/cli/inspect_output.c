#include <errno.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "chat/output.h"
#include "chat/render.h"
#include "cli/inspect.h"
#include "engine/engine.h"

#define INSPECT_OUTPUT_TEXT_MAX ((size_t)64 << 20)
#define INSPECT_OUTPUT_TOOLS_MAX ((size_t)8 << 20)

/* --- what the text is read by --- */

/* "hermes", "hermes+think", "+think": rows of chat/output_table. */
static bool inspect_output_by_name(str name, struct output_options *o, struct err *e)
{
    str rest = name, calls = {NULL, 0}, think;
    (void)str_split(&rest, '+', &calls);
    think = rest;
    if (calls.len)
        o->format.calls = output_table_find(calls);
    for (uint32_t i = 0; i < output_table_thinks_count; i++)
        if (str_eq(think, output_table_thinks[i].name))
            o->format.think = &output_table_thinks[i];
    if ((calls.len && !o->format.calls) || (think.len && !o->format.think)) {
        struct buf b;
        buf_init(&b, ERR_TEXT_MAX);
        for (uint32_t i = 0; i < output_table_count; i++)
            buf_printf(&b, " %.*s", STR_ARG(output_table_rows[i].name));
        err_set(e, ERR_USAGE, "inspect output: no format '%.*s'; there are%.*s, each with +think",
                (int)base_min(name.len, 40), name.p, STR_ARG(buf_view(&b)));
        buf_deinit(&b);
        return false;
    }
    return true;
}

static bool inspect_output_ends(const struct render_result *r, str marker)
{
    return marker.len && str_ends(str_trim(r->text), str_trim(marker));
}

/* The model's own format; where its template leaves a reply is seen from a prompt of one turn. */
static bool inspect_output_by_model(const struct inspect *in, struct output_options *o,
                                    struct arena *a, struct err *e)
{
    static const struct api_part part = {.kind = API_PART_TEXT, .text = STR_INIT("x")};
    static const struct api_message turn = {.role = API_ROLE_USER, .parts = &part,
                                            .parts_count = 1};
    struct model_file *f = NULL;
    struct tok *tok = NULL;
    struct render *render = NULL;
    struct render_result r;
    struct api_request rq;
    struct api_error why;
    const struct engine_chat own = {.tool_format = STR("")};
    api_request_init(&rq);
    rq.messages = &turn;
    rq.messages_count = 1;
    bool ok = model_file_open(&f, in->model.path.p, e) && tok_open(&tok, f, e) &&
              engine_render(&render, f, tok_vocab(tok), &own, a, e);
    if (ok && !render)
        ok = err_set(e, ERR_REQUEST, "inspect output: this model has no chat template");
    if (ok) {
        o->format = *render_format(render);
        const struct output_think *think = o->format.think;
        if (think && render_request(render, &rq, a, &r, &why))
            o->begin = inspect_output_ends(&r, think->open)    ? OUTPUT_BEGIN_THINKING
                       : inspect_output_ends(&r, think->close) ? OUTPUT_BEGIN_ANSWER
                                                               : OUTPUT_BEGIN_FRESH;
    }
    tok_close(tok);
    model_file_close(f);
    return ok;
}

/* An array of tools as in an OpenAI chat request, or such a request; its texts lie in a. */
static bool inspect_output_tools(const struct inspect *in, struct api_request *rq,
                                 struct arena *a, struct err *e)
{
    const struct json_options opt = {.depth_max = 128};
    struct json v;
    str body;
    const char *path = cmd_text(in->c, "tools").p;
    if (!file_read(&body, path, INSPECT_OUTPUT_TOOLS_MAX, a, e) ||
        !json_parse(&v, body, &opt, a, e))
        return err_wrap(e, "-tools %s", path);
    if (json_kind(v) == JSON_KIND_OBJECT)
        v = json_member(v, "tools");
    if (json_kind(v) != JSON_KIND_ARRAY)
        return err_set(e, ERR_FORMAT, "-tools %s: array of tools expected, got %s", path,
                       json_kind_name(json_kind(v)));
    struct api_tool *tools = ARENA_ARRAY(a, struct api_tool, json_count(v));
    if (!tools)
        return err_set(e, ERR_MEMORY, "-tools %s: no memory", path);
    struct json_walk w = json_walk(v);
    while (json_next(&w)) {
        struct json function = json_member(w.value, "function");
        bool is_flat = json_kind(function) == JSON_KIND_ABSENT;
        struct api_tool *tool = &tools[rq->tools_count];
        tool->name = json_text(json_member(is_flat ? w.value : function, "name"), a);
        tool->schema = json_raw(json_member(is_flat ? w.value : function, "parameters"));
        tool->allowed = true;
        if (json_text_eq(json_member(w.value, "type"), STR("custom")))
            tool->kind = API_TOOL_CUSTOM;
        if (!tool->name.len)
            return err_set(e, ERR_FORMAT, "-tools %s: tools[%u]: name missing", path,
                           rq->tools_count);
        rq->tools_count++;
    }
    rq->tools = tools;
    return true;
}

/* --- events --- */

static void inspect_output_put(struct buf *out, const struct output_event *ev)
{
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    json_key_z(&w, "event");
    json_put_text_z(&w, api_event_name(ev->kind));
    if (ev->kind == API_EVENT_CONTENT || ev->kind == API_EVENT_REASONING) {
        json_key_z(&w, "text");
        json_put_text(&w, ev->text);
    } else {
        json_key_z(&w, "index");
        json_put_u64(&w, ev->index);
    }
    if (ev->kind == API_EVENT_CALL_BEGIN) {
        json_key_z(&w, "name");
        json_put_text(&w, ev->text);
        json_key_z(&w, "is_declared");
        json_put_bool(&w, ev->tool != NULL);
    }
    if (ev->kind == API_EVENT_CALL_ARGS) {
        json_key_z(&w, "args");
        json_put_text(&w, ev->text);
    }
    json_close_object(&w);
    buf_add_byte(out, '\n');
}

static void inspect_output_take(struct buf *out, struct output *o)
{
    uint32_t count;
    const struct output_event *ev = output_events(o, &count);
    for (uint32_t i = 0; i < count; i++)
        inspect_output_put(out, &ev[i]);
    output_clear(o);
}

static bool inspect_output_run(struct inspect *in, const struct output_options *opt, str text,
                               struct arena *a, struct err *e)
{
    struct output o;
    size_t split = (size_t)cmd_number(in->c, "split");
    bool ok = output_init(&o, opt, a, e), has_room = true;
    for (size_t at = 0, n; ok && has_room && at < text.len; at += n) {
        n = base_min(split ? split : text.len, text.len - at);
        has_room = output_add(&o, str_sub(text, at, n));
        inspect_output_take(&in->out, &o);
    }
    if (ok && has_room && output_end(&o, false)) {
        inspect_output_take(&in->out, &o);
        buf_printf(&in->out, "{\"event\":\"done\",\"reason\":\"%s\",\"calls\":%u}\n",
                   api_event_done_name(output_has_calls(&o) ? API_DONE_CALLS : API_DONE_EOS),
                   o.calls_done);
    } else if (ok) {
        ok = err_set(e, ERR_LIMIT, "inspect output: more than %zu bytes are undecided",
                     OUTPUT_TEXT_MAX);
    }
    output_deinit(&o);
    return ok;
}

static bool inspect_output_stdin(struct buf *b, struct err *e)
{
    char piece[4096];
    ssize_t n;
    while ((n = read(STDIN_FILENO, piece, sizeof piece)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set_errno(e, errno, "reading the text from stdin");
        if (!buf_add_bytes(b, piece, (size_t)n))
            return err_set(e, ERR_LIMIT, "inspect output: more than %zu bytes on stdin",
                           b->size_max);
    }
    return true;
}

bool inspect_output(struct inspect *in, struct err *e)
{
    struct output_options opt = {.begin = OUTPUT_BEGIN_FRESH};
    struct output_tools tools;
    struct api_request rq;
    struct arena a;
    struct buf text;
    bool by_name = cmd_is_given(in->c, "format");
    if (by_name == (in->c->words_count > 1))
        return err_set(e, ERR_USAGE, "inspect output: either MODEL or -format F");
    arena_init(&a, ENGINE_ARENA_MAX);
    buf_init(&text, INSPECT_OUTPUT_TEXT_MAX);
    api_request_init(&rq);
    bool ok = (by_name ? inspect_output_by_name(cmd_text(in->c, "format"), &opt, e)
                       : inspect_output_by_model(in, &opt, &a, e)) &&
              (!cmd_is_given(in->c, "tools") || inspect_output_tools(in, &rq, &a, e)) &&
              output_tools_make(&tools, &rq, &a, e) && inspect_output_stdin(&text, e);
    opt.tools = &tools;
    ok = ok && inspect_output_run(in, &opt, buf_view(&text), &a, e);
    buf_deinit(&text);
    arena_deinit(&a);
    return ok;
}
