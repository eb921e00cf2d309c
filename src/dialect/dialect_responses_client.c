/* OpenAI Responses of an upstream: docs/dialects/openai_responses.md, "As an upstream". */
#include <string.h>

#include "dialect/dialect_ask.h"
#include "dialect/dialect_hear.h"
#include "dialect/dialect_write.h"

struct state {
    struct dialect_client_state s;
    bool has_summary, has_reasoning; /* which form of the reasoning is told; the other repeats it */
    uint32_t summaries_count;
    bool has_delta; /* texts of the item at hand came already */
    bool is_short;  /* the end is called `incomplete` */
};

static struct state *own(struct dialect_client_state *st) { return (struct state *)st; }

/* ---- Input ---- */

static void put_text_part(struct json_writer *w, const char *type, str text)
{
    json_open_object(w);
    dialect_write_text(w, "type", str_of(type));
    dialect_write_text(w, "text", text);
    json_close_object(w);
}

static void put_parts(struct json_writer *w, struct dialect_client_state *st,
                      const struct dialect_ask_turn *t, const char *type)
{
    json_open_array(w);
    for (uint32_t i = 0; i < t->parts_count; i++) {
        const struct api_part *p = &t->parts[i];
        if (p->kind == API_PART_TEXT || p->kind == API_PART_RESULT)
            put_text_part(w, type, p->text);
        if (p->kind != API_PART_IMAGE)
            continue;
        str url = dialect_ask_data_url(st, p);
        if (url.len == 0)
            continue;
        json_open_object(w);
        dialect_write_text(w, "type", STR("input_image"));
        dialect_write_text(w, "image_url", url);
        json_close_object(w);
    }
    json_close_array(w);
}

static void put_message(struct json_writer *w, struct dialect_client_state *st,
                        const struct dialect_ask_turn *t)
{
    bool is_assistant = t->role == API_ROLE_ASSISTANT;
    if (!dialect_ask_has(t, API_PART_TEXT) && !dialect_ask_has(t, API_PART_IMAGE))
        return;
    json_open_object(w);
    dialect_write_text(w, "type", STR("message"));
    dialect_write_text(w, "role", str_of(api_request_role_name(t->role)));
    json_key_z(w, "content");
    put_parts(w, st, t, is_assistant ? "output_text" : "input_text");
    json_close_object(w);
}

/* Only another shoal takes reasoning that it did not sign. */
static void put_reasoning(struct json_writer *w, struct dialect_client_state *st,
                          const struct dialect_ask_turn *t)
{
    str text = dialect_ask_join(st, t, API_PART_REASONING);
    if (text.len == 0)
        return;
    if (!dialect_ask_is_shoal(st)) {
        dialect_ask_note(st, "block_dropped", "input");
        return;
    }
    json_open_object(w);
    dialect_write_text(w, "type", STR("reasoning"));
    json_key_z(w, "summary");
    json_open_array(w);
    put_text_part(w, "summary_text", text);
    json_close_array(w);
    json_close_object(w);
}

static bool is_custom_call(struct dialect_client_state *st, const struct api_part *p)
{
    const struct api_tool *tool = dialect_ask_tool_of_call(st, p);
    return tool && tool->kind == API_TOOL_CUSTOM;
}

static void put_call(struct json_writer *w, struct dialect_client_state *st,
                     const struct api_part *p)
{
    bool is_custom = is_custom_call(st, p);
    json_open_object(w);
    dialect_write_text(w, "type", is_custom ? STR("custom_tool_call") : STR("function_call"));
    dialect_write_text(w, "call_id", dialect_ask_id(st, p->id));
    dialect_write_text(w, "name", dialect_ask_tool_name(st, p->name_space, p->name));
    dialect_write_text(w, is_custom ? "input" : "arguments",
                    is_custom ? dialect_ask_custom_input(st, p) : p->text);
    json_close_object(w);
}

/* Whether the call with this id was one of a custom tool. */
static bool is_custom_result(struct dialect_client_state *st, const struct dialect_ask_turns *turns,
                             uint32_t before, str id)
{
    for (uint32_t i = before; i-- > 0;)
        for (uint32_t k = 0; k < turns->rows[i].parts_count; k++) {
            const struct api_part *p = &turns->rows[i].parts[k];
            if (p->kind == API_PART_CALL && str_eq(p->id, id))
                return is_custom_call(st, p);
        }
    return false;
}

static void put_output(struct json_writer *w, struct dialect_client_state *st,
                       const struct dialect_ask_turns *turns, uint32_t i)
{
    const struct dialect_ask_turn *t = &turns->rows[i];
    str id = t->parts[0].id;
    json_open_object(w);
    dialect_write_text(w, "type", is_custom_result(st, turns, i, id)
                                   ? STR("custom_tool_call_output") : STR("function_call_output"));
    dialect_write_text(w, "call_id", dialect_ask_id(st, id));
    json_key_z(w, "output");
    if (t->parts_count == 1 && t->parts[0].kind == API_PART_RESULT)
        json_put_text(w, t->parts[0].text);
    else
        put_parts(w, st, t, "input_text");
    json_close_object(w);
}

static bool put_input(struct json_writer *w, struct dialect_client_state *st, struct api_error *e)
{
    struct dialect_ask_turns turns;
    uint32_t first = 0;
    if (!dialect_ask_turns(st, &turns, e))
        return false;
    if (turns.count && turns.rows[0].role == API_ROLE_SYSTEM) {
        str text = dialect_ask_join(st, &turns.rows[first++], API_PART_TEXT);
        dialect_write_text(w, "instructions", text);
    }
    json_key_z(w, "input");
    json_open_array(w);
    for (uint32_t i = first; i < turns.count; i++) {
        const struct dialect_ask_turn *t = &turns.rows[i];
        if (t->role == API_ROLE_TOOL) {
            put_output(w, st, &turns, i);
            continue;
        }
        put_reasoning(w, st, t);
        put_message(w, st, t);
        for (uint32_t k = 0; k < t->parts_count; k++)
            if (t->parts[k].kind == API_PART_CALL)
                put_call(w, st, &t->parts[k]);
    }
    json_close_array(w);
    return true;
}

/* ---- Tools ---- */

static void put_tool_id(struct json_writer *w, struct dialect_client_state *st,
                        const struct api_tool *t)
{
    json_open_object(w);
    dialect_write_text(w, "type", t->kind == API_TOOL_CUSTOM ? STR("custom") : STR("function"));
    dialect_write_text(w, "name", dialect_ask_tool_name(st, t->name_space, t->name));
}

static void put_choice(struct json_writer *w, struct dialect_client_state *st)
{
    const struct api_request *rq = st->rq;
    const struct api_tool *named = dialect_ask_allowed(rq);
    bool is_listed = dialect_ask_is_listed(rq);
    if (rq->tool_choice == API_TOOL_CHOICE_AUTO && !is_listed)
        return;
    json_key_z(w, "tool_choice");
    if (rq->tool_choice == API_TOOL_CHOICE_NONE) {
        json_put_text_z(w, "none");
    } else if (rq->tool_choice == API_TOOL_CHOICE_NAMED && named) {
        put_tool_id(w, st, named);
        json_close_object(w);
    } else if (is_listed) {
        json_open_object(w);
        dialect_write_text(w, "type", STR("allowed_tools"));
        dialect_write_text(w, "mode", rq->tool_choice == API_TOOL_CHOICE_REQUIRED ? STR("required")
                                                                               : STR("auto"));
        json_key_z(w, "tools");
        json_open_array(w);
        for (uint32_t i = 0; i < rq->tools_count; i++)
            if (rq->tools[i].allowed && rq->tools[i].kind != API_TOOL_HOSTED) {
                put_tool_id(w, st, &rq->tools[i]);
                json_close_object(w);
            }
        json_close_array(w);
        json_close_object(w);
    } else {
        json_put_text_z(w, "required");
    }
}

static void put_tools(struct json_writer *w, struct dialect_client_state *st)
{
    const struct api_request *rq = st->rq;
    if (dialect_ask_tools(st, false) == 0)
        return;
    json_key_z(w, "tools");
    json_open_array(w);
    for (uint32_t i = 0; i < rq->tools_count; i++) {
        const struct api_tool *t = &rq->tools[i];
        if (t->kind == API_TOOL_HOSTED)
            continue;
        put_tool_id(w, st, t);
        if (t->description.len)
            dialect_write_text(w, "description", t->description);
        if (t->kind == API_TOOL_FUNCTION) {
            dialect_write_raw(w, "parameters", dialect_ask_schema(st, t));
            json_put_key_bool(w, "strict", t->strict); /* its default is true */
        }
        json_close_object(w);
    }
    json_close_array(w);
    put_choice(w, st);
    if (!rq->parallel_tool_calls)
        json_put_key_bool(w, "parallel_tool_calls", false);
}

/* ---- The rest ---- */

static void put_format(struct json_writer *w, const struct api_format *f)
{
    if (f->kind != API_FORMAT_JSON && f->kind != API_FORMAT_SCHEMA)
        return;
    json_key_z(w, "text");
    json_open_object(w);
    json_key_z(w, "format");
    json_open_object(w);
    dialect_write_text(w, "type", f->kind == API_FORMAT_JSON ? STR("json_object")
                                                          : STR("json_schema"));
    if (f->kind == API_FORMAT_SCHEMA) {
        dialect_write_text(w, "name", f->name.len ? f->name : STR("answer"));
        dialect_write_raw(w, "schema", f->text);
        json_put_key_bool(w, "strict", f->strict);
    }
    json_close_object(w);
    json_close_object(w);
}

static void put_effort(struct json_writer *w, struct dialect_client_state *st)
{
    enum api_effort effort;
    if (!dialect_ask_openai_effort(st, &effort))
        return;
    json_key_z(w, "reasoning");
    json_open_object(w);
    dialect_write_text(w, "effort", str_of(api_request_effort_name(effort)));
    if (effort != API_EFFORT_NONE)
        dialect_write_text(w, "summary", STR("auto"));
    json_close_object(w);
}

static void put_numbers(struct json_writer *w, struct dialect_client_state *st)
{
    const struct api_request *rq = st->rq;
    uint32_t tokens_max = dialect_ask_tokens_max(st);
    dialect_ask_note_lost(st, API_GIVEN(TEMPERATURE) | API_GIVEN(TOP_P));
    if (tokens_max)
        json_put_key_u64(w, "max_output_tokens", tokens_max);
    if (api_request_is_given(rq, API_FIELD_TEMPERATURE))
        dialect_write_float(w, "temperature", rq->temperature);
    if (api_request_is_given(rq, API_FIELD_TOP_P))
        dialect_write_float(w, "top_p", rq->top_p);
    if (rq->logprobs) {
        json_put_key_u64(w, "top_logprobs", rq->logprobs - 1);
        dialect_write_raw(w, "include", STR("[\"message.output_text.logprobs\"]"));
    }
}

static bool write_request(struct buf *out, struct dialect_client_state *st, struct api_error *e)
{
    static const char *const ours[] = {NULL};
    const struct dialect_ask_patch same = {ours, "\"stream\":true"};
    if (dialect_ask_is_same(st))
        return dialect_ask_patch_body(out, st, &same, e);
    struct json_writer w = json_writer(out);
    st->finds_stop = st->rq->stop_count > 0;
    json_open_object(&w);
    dialect_write_text(&w, "model", dialect_ask_model(st));
    if (!put_input(&w, st, e))
        return false;
    put_tools(&w, st);
    put_format(&w, &st->rq->format);
    put_effort(&w, st);
    put_numbers(&w, st);
    json_put_key_bool(&w, "store", false);
    json_put_key_bool(&w, "stream", true);
    json_close_object(&w);
    return dialect_ask_fits(out, st, e);
}

/* ---- What it says ---- */

static void hear_usage(struct dialect_client_state *st, struct json u)
{
    struct json in = json_member(u, "input_tokens_details");
    struct json out = json_member(u, "output_tokens_details");
    if (json_kind(u) != JSON_KIND_OBJECT)
        return;
    st->has_usage = true;
    st->usage.prompt_tokens = dialect_hear_u32(json_member(u, "input_tokens"));
    st->usage.output_tokens = dialect_hear_u32(json_member(u, "output_tokens"));
    st->usage.cached_tokens = dialect_hear_u32(json_member(in, "cached_tokens"));
    st->usage.cache_write_tokens = dialect_hear_u32(json_member(in, "cache_write_tokens"));
    st->usage.reasoning_tokens = dialect_hear_u32(json_member(out, "reasoning_tokens"));
}

static enum api_done reason_of(struct json response, bool is_short)
{
    struct json why = json_member(json_member(response, "incomplete_details"), "reason");
    if (json_text_eq(why, STR("content_filter")))
        return API_DONE_REFUSAL;
    is_short = is_short || json_text_eq(json_member(response, "status"), STR("incomplete"));
    return json_kind(why) == JSON_KIND_STRING || is_short ? API_DONE_MAX_TOKENS : API_DONE_EOS;
}

/* Not yet, or not any more: no reply that is whole. */
static bool is_unfinished(struct json response)
{
    static const char *const names[] = {"in_progress", "queued", "cancelled"};
    bool found = false;
    for (size_t i = 0; i < countof(names); i++)
        found = found || json_text_eq(json_member(response, "status"), str_of(names[i]));
    return found;
}

static bool hear_response_end(struct dialect_client_state *st, struct json r, struct api_error *e)
{
    struct json error = json_member(r, "error");
    if (json_text_eq(json_member(r, "status"), STR("failed")) ||
        json_kind(error) == JSON_KIND_OBJECT)
        return dialect_hear_failure(st, json_member(error, "type"), json_member(error, "code"),
                                    json_member(error, "message"), e);
    if (is_unfinished(r))
        return dialect_hear_cut(e);
    hear_usage(st, json_member(r, "usage"));
    enum api_done reason = reason_of(r, own(st)->is_short);
    dialect_hear_finish(st, 0, dialect_hear_reason(json_member(r, "shoal"), reason),
                        (str){"", 0});
    return dialect_hear_end(st, e);
}

static bool hear_item_begin(struct dialect_client_state *st, struct json item, struct api_error *e)
{
    struct json type = json_member(item, "type");
    bool is_custom = json_text_eq(type, STR("custom_tool_call"));
    str name = dialect_hear_str(st, json_member(item, "name"));
    str space = dialect_hear_str(st, json_member(item, "namespace"));
    if (!is_custom && !json_text_eq(type, STR("function_call")))
        return true;
    if (space.len)
        name = dialect_ask_tool_name(st, space, name);
    str id = dialect_hear_str(st, json_member(item, "call_id"));
    st->choices[0].call_id = arena_copy(&st->keep, id);
    return dialect_hear_call(st, 0, id, name, is_custom, e);
}

/* Arguments that came without deltas stand in the finished item. */
static void hear_item_end(struct dialect_client_state *st, struct json item)
{
    struct json type = json_member(item, "type");
    bool is_custom = json_text_eq(type, STR("custom_tool_call"));
    if (!is_custom && !json_text_eq(type, STR("function_call")))
        return;
    if (!st->choices[0].has_args)
        dialect_hear_args(st, 0, dialect_hear_str(st, json_member(item, is_custom ? "input"
                                                                                  : "arguments")));
    dialect_hear_call_end(st, 0);
}

static void hear_reasoning(struct dialect_client_state *st, str text, bool is_summary)
{
    bool *told = is_summary ? &own(st)->has_summary : &own(st)->has_reasoning;
    if (is_summary ? own(st)->has_reasoning : own(st)->has_summary)
        return;
    *told = true;
    own(st)->has_delta = true;
    dialect_hear_text(st, 0, API_EVENT_REASONING, &(struct api_text){.text = text});
}

static void hear_content(struct dialect_client_state *st, struct json text, struct json logprobs)
{
    struct api_text t = {.text = dialect_hear_str(st, text)};
    dialect_hear_logprobs(st, logprobs, &t);
    own(st)->has_delta = true;
    dialect_hear_text(st, 0, API_EVENT_CONTENT, &t);
}

/* The texts of a finished item. */
static void hear_item_texts(struct dialect_client_state *st, struct json item)
{
    bool is_reasoning = json_text_eq(json_member(item, "type"), STR("reasoning"));
    for (struct json_walk p = json_walk(json_member(item, "summary")); json_next(&p);)
        hear_reasoning(st, dialect_hear_str(st, json_member(p.value, "text")), true);
    for (struct json_walk p = json_walk(json_member(item, "content")); json_next(&p);) {
        struct json text = json_member(p.value, "text");
        if (is_reasoning)
            hear_reasoning(st, dialect_hear_str(st, text), false);
        else
            hear_content(st, json_kind(text) == JSON_KIND_STRING
                                 ? text : json_member(p.value, "refusal"),
                         json_member(p.value, "logprobs"));
    }
}

/* A reply that came unstreamed, or a stream whose only word is its end. */
static bool hear_whole(struct dialect_client_state *st, struct json r, struct api_error *e)
{
    for (struct json_walk w = json_walk(json_member(r, "output")); json_next(&w);) {
        hear_item_texts(st, w.value);
        if (!hear_item_begin(st, w.value, e))
            return false;
        hear_item_end(st, w.value);
    }
    return hear_response_end(st, r, e);
}

/* What came without deltas, or without its begin, stands in the finished item. */
static bool hear_item_done(struct dialect_client_state *st, struct json item, struct api_error *e)
{
    const struct dialect_client_choice *c = &st->choices[0];
    bool is_new = !c->in_call && !json_text_eq(json_member(item, "call_id"), c->call_id);
    if (!own(st)->has_delta)
        hear_item_texts(st, item);
    own(st)->has_delta = false;
    if (is_new && !hear_item_begin(st, item, e))
        return false;
    hear_item_end(st, item);
    return true;
}

static bool hear_end(struct dialect_client_state *st, struct json r, struct api_error *e)
{
    bool is_silent = st->text_bytes + st->reasoning_bytes == 0 && st->choices[0].calls_count == 0;
    return is_silent ? hear_whole(st, r, e) : hear_response_end(st, r, e);
}

static bool is_type(struct json type, const char *name)
{
    return json_text_eq(type, str_of(name));
}

static bool read_event(struct dialect_client_state *st, str name, str data, struct api_error *e)
{
    struct json v, type, delta;
    (void)name; /* each event tells its type itself */
    if (!dialect_hear_json(st, data, &v, e))
        return false;
    type = json_member(v, "type");
    delta = json_member(v, "delta");
    if (json_text_eq(json_member(v, "object"), STR("response")))
        return hear_whole(st, v, e);
    if (is_type(type, "error") || json_kind(json_member(v, "error")) == JSON_KIND_OBJECT) {
        struct json error = json_member(v, "error");
        struct json at = json_kind(error) == JSON_KIND_OBJECT ? error : v;
        return dialect_hear_failure(st, json_member(at, "type"), json_member(at, "code"),
                                    json_member(at, "message"), e);
    }
    if (is_type(type, "response.output_item.added"))
        return hear_item_begin(st, json_member(v, "item"), e);
    if (is_type(type, "response.output_item.done")) {
        return hear_item_done(st, json_member(v, "item"), e);
    } else if (is_type(type, "response.output_text.delta")) {
        hear_content(st, delta, json_member(v, "logprobs"));
    } else if (is_type(type, "response.refusal.delta")) {
        hear_content(st, delta, json_member(v, "none"));
    } else if (is_type(type, "response.reasoning_summary_text.delta")) {
        hear_reasoning(st, dialect_hear_str(st, delta), true);
    } else if (is_type(type, "response.reasoning_text.delta")) {
        hear_reasoning(st, dialect_hear_str(st, delta), false);
    } else if (is_type(type, "response.reasoning_summary_part.added")) {
        if (own(st)->summaries_count++) /* parts are paragraphs */
            hear_reasoning(st, STR("\n\n"), true);
    } else if (is_type(type, "response.function_call_arguments.delta") ||
               is_type(type, "response.custom_tool_call_input.delta")) {
        dialect_hear_args(st, 0, dialect_hear_str(st, delta));
    } else if (is_type(type, "response.completed") || is_type(type, "response.incomplete") ||
               is_type(type, "response.failed")) {
        own(st)->is_short = is_type(type, "response.incomplete");
        return hear_end(st, json_member(v, "response"), e);
    } else if (json_kind(type) != JSON_KIND_STRING) {
        return dialect_hear_garbage(e, "an event without a type");
    }
    return true;
}

static bool can_continue(const struct dialect_upstream *leg, const struct api_request *rq)
{
    (void)leg, (void)rq;
    return false;
}

static const char *const no_headers[] = {NULL};
static const char *const kept[] = {"openai-organization", "openai-project", "openai-beta", NULL};

const struct dialect_client dialect_responses_client = {
    .path = "/v1/responses",
    .free_path = "/v1/models",
    .key_header = "authorization: Bearer ",
    .headers = no_headers,
    .kept = kept,
    .state_size = sizeof(struct state),
    .lacks = DIALECT_LACKS_PATTERN | DIALECT_LACKS_N,
    .write_request = write_request,
    .read_event = read_event,
    .can_continue = can_continue,
};
