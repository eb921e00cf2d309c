/* Chat completions of an upstream: docs/dialects/openai_chat.md, "As an upstream". */
#include <stdio.h>

#include "dialect/dialect_ask.h"
#include "dialect/dialect_hear.h"
#include "dialect/dialect_write.h"

/* ---- Messages ---- */

static void put_text_part(struct json_writer *w, str text)
{
    json_open_object(w);
    dialect_write_text(w, "type", STR("text"));
    dialect_write_text(w, "text", text);
    json_close_object(w);
}

static void put_image_part(struct json_writer *w, struct dialect_client_state *st,
                           const struct api_part *p)
{
    str url = dialect_ask_data_url(st, p);
    if (url.len == 0)
        return;
    json_open_object(w);
    dialect_write_text(w, "type", STR("image_url"));
    json_key_z(w, "image_url");
    json_open_object(w);
    dialect_write_text(w, "url", url);
    json_close_object(w);
    json_close_object(w);
}

static uint32_t count_of(const struct dialect_ask_turn *t, enum api_part_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->parts_count; i++)
        n += t->parts[i].kind == kind;
    return n;
}

/* One text as a string, as most servers like it best; else a list of parts. */
static void put_content(struct json_writer *w, struct dialect_client_state *st,
                        const struct dialect_ask_turn *t)
{
    enum api_part_kind kind = t->role == API_ROLE_TOOL ? API_PART_RESULT : API_PART_TEXT;
    uint32_t texts = count_of(t, kind);
    json_key_z(w, "content");
    if (texts <= 1 && !dialect_ask_has(t, API_PART_IMAGE)) {
        str text = dialect_ask_join(st, t, kind);
        if (text.p == NULL && dialect_ask_has(t, API_PART_CALL))
            json_put_null(w);
        else
            json_put_text(w, text);
        return;
    }
    json_open_array(w);
    for (uint32_t i = 0; i < t->parts_count; i++) {
        if (t->parts[i].kind == kind)
            put_text_part(w, t->parts[i].text);
        else if (t->parts[i].kind == API_PART_IMAGE)
            put_image_part(w, st, &t->parts[i]);
    }
    json_close_array(w);
}

static void put_call(struct json_writer *w, struct dialect_client_state *st,
                     const struct api_part *p)
{
    const struct api_tool *tool = dialect_ask_tool_of_call(st, p);
    bool is_custom = tool && tool->kind == API_TOOL_CUSTOM;
    json_open_object(w);
    dialect_write_text(w, "id", p->id);
    dialect_write_text(w, "type", is_custom ? STR("custom") : STR("function"));
    json_key_z(w, is_custom ? "custom" : "function");
    json_open_object(w);
    dialect_write_text(w, "name", dialect_ask_tool_name(st, p->name_space, p->name));
    dialect_write_text(w, is_custom ? "input" : "arguments",
                    is_custom ? dialect_ask_custom_input(st, p) : p->text);
    json_close_object(w);
    json_close_object(w);
}

static void put_calls(struct json_writer *w, struct dialect_client_state *st,
                      const struct dialect_ask_turn *t)
{
    if (!dialect_ask_has(t, API_PART_CALL))
        return;
    json_key_z(w, "tool_calls");
    json_open_array(w);
    for (uint32_t i = 0; i < t->parts_count; i++)
        if (t->parts[i].kind == API_PART_CALL)
            put_call(w, st, &t->parts[i]);
    json_close_array(w);
}

static void put_turn(struct json_writer *w, struct dialect_client_state *st,
                     const struct dialect_ask_turn *t)
{
    str reasoning = dialect_ask_join(st, t, API_PART_REASONING);
    bool is_system = t->role == API_ROLE_SYSTEM || t->role == API_ROLE_DEVELOPER;
    json_open_object(w);
    dialect_write_text(w, "role", is_system ? STR("system")
                               : str_of(api_request_role_name(t->role)));
    if (t->name.len)
        dialect_write_text(w, "name", t->name);
    if (t->role == API_ROLE_TOOL)
        dialect_write_text(w, "tool_call_id", t->parts[0].id);
    put_content(w, st, t);
    if (reasoning.len && dialect_ask_can(st, API_CAP_THINK))
        dialect_write_text(w, "reasoning_content", reasoning);
    else if (reasoning.len)
        dialect_ask_note(st, "block_dropped", "messages");
    put_calls(w, st, t);
    json_close_object(w);
}

static bool put_messages(struct json_writer *w, struct dialect_client_state *st,
                         struct api_error *e)
{
    struct dialect_ask_turns turns;
    bool is_open = false;
    if (!dialect_ask_turns(st, &turns, e))
        return false;
    json_key_z(w, "messages");
    json_open_array(w);
    for (uint32_t i = 0; i < turns.count; i++) {
        put_turn(w, st, &turns.rows[i]);
        is_open = turns.rows[i].is_open;
    }
    json_close_array(w);
    if (is_open) {
        json_put_key_bool(w, "continue_final_message", true);
        json_put_key_bool(w, "add_generation_prompt", false);
    }
    return true;
}

/* ---- Tools, format ---- */

static void put_tool(struct json_writer *w, struct dialect_client_state *st,
                     const struct api_tool *t)
{
    bool is_custom = t->kind == API_TOOL_CUSTOM;
    json_open_object(w);
    dialect_write_text(w, "type", is_custom ? STR("custom") : STR("function"));
    json_key_z(w, is_custom ? "custom" : "function");
    json_open_object(w);
    dialect_write_text(w, "name", dialect_ask_tool_name(st, t->name_space, t->name));
    if (t->description.len)
        dialect_write_text(w, "description", t->description);
    if (!is_custom)
        dialect_write_raw(w, "parameters", dialect_ask_schema(st, t));
    if (t->strict && !is_custom)
        json_put_key_bool(w, "strict", true);
    json_close_object(w);
    json_close_object(w);
}

static void put_named(struct json_writer *w, struct dialect_client_state *st,
                      const struct api_tool *t)
{
    bool is_custom = t->kind == API_TOOL_CUSTOM;
    json_open_object(w);
    dialect_write_text(w, "type", is_custom ? STR("custom") : STR("function"));
    json_key_z(w, is_custom ? "custom" : "function");
    json_open_object(w);
    dialect_write_text(w, "name", dialect_ask_tool_name(st, t->name_space, t->name));
    json_close_object(w);
    json_close_object(w);
}

/* {"type":"allowed_tools","allowed_tools":{"mode":...,"tools":[...]}} */
static void put_allowed(struct json_writer *w, struct dialect_client_state *st)
{
    const struct api_request *rq = st->rq;
    json_open_object(w);
    dialect_write_text(w, "type", STR("allowed_tools"));
    json_key_z(w, "allowed_tools");
    json_open_object(w);
    dialect_write_text(w, "mode", rq->tool_choice == API_TOOL_CHOICE_REQUIRED ? STR("required")
                                                                           : STR("auto"));
    json_key_z(w, "tools");
    json_open_array(w);
    for (uint32_t i = 0; i < rq->tools_count; i++)
        if (rq->tools[i].allowed && rq->tools[i].kind != API_TOOL_HOSTED)
            put_named(w, st, &rq->tools[i]);
    json_close_array(w);
    json_close_object(w);
    json_close_object(w);
}

static void put_choice(struct json_writer *w, struct dialect_client_state *st)
{
    const struct api_request *rq = st->rq;
    const struct api_tool *named = dialect_ask_allowed(rq);
    bool is_listed = dialect_ask_is_listed(rq);
    if (rq->tool_choice == API_TOOL_CHOICE_AUTO && !is_listed)
        return;
    json_key_z(w, "tool_choice");
    if (rq->tool_choice == API_TOOL_CHOICE_NONE)
        json_put_text_z(w, "none");
    else if (rq->tool_choice == API_TOOL_CHOICE_NAMED && named)
        put_named(w, st, named);
    else if (is_listed)
        put_allowed(w, st);
    else
        json_put_text_z(w, "required");
}

static void put_tools(struct json_writer *w, struct dialect_client_state *st)
{
    const struct api_request *rq = st->rq;
    if (dialect_ask_tools(st, false) == 0)
        return;
    json_key_z(w, "tools");
    json_open_array(w);
    for (uint32_t i = 0; i < rq->tools_count; i++)
        if (rq->tools[i].kind != API_TOOL_HOSTED)
            put_tool(w, st, &rq->tools[i]);
    json_close_array(w);
    put_choice(w, st);
    if (!rq->parallel_tool_calls)
        json_put_key_bool(w, "parallel_tool_calls", false);
}

static void put_format(struct json_writer *w, const struct api_format *f)
{
    if (f->kind == API_FORMAT_TEXT)
        return;
    if (f->kind == API_FORMAT_REGEX || f->kind == API_FORMAT_CHOICE) { /* vLLM's words */
        json_key_z(w, "structured_outputs");
        json_open_object(w);
        if (f->kind == API_FORMAT_REGEX)
            dialect_write_text(w, "regex", f->text);
        else
            dialect_write_raw(w, "choice", f->text);
        json_close_object(w);
        return;
    }
    json_key_z(w, "response_format");
    json_open_object(w);
    dialect_write_text(w, "type", f->kind == API_FORMAT_JSON ? STR("json_object")
                                                          : STR("json_schema"));
    if (f->kind == API_FORMAT_SCHEMA) {
        json_key_z(w, "json_schema");
        json_open_object(w);
        dialect_write_text(w, "name", f->name.len ? f->name : STR("answer"));
        dialect_write_raw(w, "schema", f->text);
        json_put_key_bool(w, "strict", f->strict);
        json_close_object(w);
    }
    json_close_object(w);
}

/* ---- Numbers ---- */

static void put_float(struct json_writer *w, const struct api_request *rq, enum api_field f,
                      const char *key, float v)
{
    if (api_request_is_given(rq, f))
        dialect_write_float(w, key, v);
}

static void put_bias(struct json_writer *w, const struct api_request *rq)
{
    if (rq->bias_count == 0)
        return;
    json_key_z(w, "logit_bias");
    json_open_object(w);
    for (uint32_t i = 0; i < rq->bias_count; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", rq->bias[i].id);
        json_key_z(w, key);
        json_put_float(w, rq->bias[i].bias);
    }
    json_close_object(w);
}

/* What vLLM and shoals take; others refuse a field that they do not know. */
static void put_extras(struct json_writer *w, struct dialect_client_state *st)
{
    const struct api_request *rq = st->rq;
    if (!dialect_ask_is_shoal(st)) {
        dialect_ask_note_lost(st, API_GIVEN(TEMPERATURE) | API_GIVEN(TOP_P) |
                                  API_GIVEN(PRESENCE_PENALTY) | API_GIVEN(FREQUENCY_PENALTY) |
                                  API_GIVEN(SEED) | DIALECT_ASK_BIAS);
        return;
    }
    dialect_ask_note_lost(st, ~API_GIVEN(REPEAT_LAST));
    put_float(w, rq, API_FIELD_MIN_P, "min_p", rq->min_p);
    put_float(w, rq, API_FIELD_TYPICAL_P, "typical_p", rq->typical_p);
    put_float(w, rq, API_FIELD_REPEAT_PENALTY, "repetition_penalty", rq->repeat_penalty);
    if (api_request_is_given(rq, API_FIELD_TOP_K))
        json_put_key_u64(w, "top_k", rq->top_k);
    if (rq->tokens_min)
        json_put_key_u64(w, "min_tokens", rq->tokens_min);
    if (rq->ignore_eos)
        json_put_key_bool(w, "ignore_eos", true);
    if (rq->keep_stop)
        json_put_key_bool(w, "include_stop_str_in_output", true);
}

/* Models that think refuse max_tokens; most other servers know only that. */
static void put_numbers(struct json_writer *w, struct dialect_client_state *st)
{
    const struct api_request *rq = st->rq;
    uint32_t tokens_max = dialect_ask_tokens_max(st);
    if (tokens_max)
        json_put_key_u64(w, dialect_ask_can(st, API_CAP_THINK) ? "max_completion_tokens"
                                                                 : "max_tokens", tokens_max);
    put_float(w, rq, API_FIELD_TEMPERATURE, "temperature", rq->temperature);
    put_float(w, rq, API_FIELD_TOP_P, "top_p", rq->top_p);
    put_float(w, rq, API_FIELD_PRESENCE_PENALTY, "presence_penalty", rq->presence_penalty);
    put_float(w, rq, API_FIELD_FREQUENCY_PENALTY, "frequency_penalty", rq->frequency_penalty);
    if (api_request_is_given(rq, API_FIELD_SEED)) {
        json_key_z(w, "seed");
        json_put_i64(w, (int64_t)rq->seed);
    }
    dialect_ask_put_stop(w, "stop", rq);
    if (rq->n > 1)
        json_put_key_u64(w, "n", rq->n);
    if (rq->logprobs) {
        json_put_key_bool(w, "logprobs", true);
        json_put_key_u64(w, "top_logprobs", rq->logprobs - 1);
    }
    put_bias(w, rq);
    put_extras(w, st);
}

static void put_effort(struct json_writer *w, struct dialect_client_state *st)
{
    enum api_effort effort;
    if (dialect_ask_openai_effort(st, &effort))
        dialect_write_text(w, "reasoning_effort", str_of(api_request_effort_name(effort)));
}

static bool write_request(struct buf *out, struct dialect_client_state *st, struct api_error *e)
{
    static const char *const own[] = {"session", "cache", "effort", "max_context", "think",
                                      "keep_alive", NULL};
    const struct dialect_ask_patch same = {
        own, "\"stream\":true,\"stream_options\":{\"include_usage\":true}"};
    if (dialect_ask_is_same(st))
        return dialect_ask_patch_body(out, st, &same, e);
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    dialect_write_text(&w, "model", dialect_ask_model(st));
    if (!put_messages(&w, st, e))
        return false;
    put_tools(&w, st);
    put_format(&w, &st->rq->format);
    put_numbers(&w, st);
    put_effort(&w, st);
    json_put_key_bool(&w, "stream", true);
    dialect_write_raw(&w, "stream_options", STR("{\"include_usage\":true}"));
    json_close_object(&w);
    return dialect_ask_fits(out, st, e);
}

/* ---- What it says ---- */

static enum api_done reason_of(struct json v)
{
    if (json_text_eq(v, STR("length")))
        return API_DONE_MAX_TOKENS;
    if (json_text_eq(v, STR("content_filter")))
        return API_DONE_REFUSAL;
    if (json_text_eq(v, STR("tool_calls")) || json_text_eq(v, STR("function_call")))
        return API_DONE_CALLS;
    return API_DONE_EOS;
}

static void hear_usage(struct dialect_client_state *st, struct json u)
{
    struct json in = json_member(u, "prompt_tokens_details");
    struct json out = json_member(u, "completion_tokens_details");
    if (json_kind(u) != JSON_KIND_OBJECT)
        return;
    st->has_usage = true;
    st->usage.prompt_tokens = dialect_hear_u32(json_member(u, "prompt_tokens"));
    st->usage.output_tokens = dialect_hear_u32(json_member(u, "completion_tokens"));
    st->usage.cached_tokens = dialect_hear_u32(json_member(in, "cached_tokens"));
    st->usage.reasoning_tokens = dialect_hear_u32(json_member(out, "reasoning_tokens"));
    st->usage.draft_accepted_tokens =
        dialect_hear_u32(json_member(out, "accepted_prediction_tokens"));
    st->usage.draft_rejected_tokens =
        dialect_hear_u32(json_member(out, "rejected_prediction_tokens"));
}

/* Some give calls beside each other one index, each whole and with its own id. */
static bool is_other_call(const struct dialect_client_choice *c, str id, str name)
{
    return c->call_id.len && id.len && name.len && !str_eq(c->call_id, id);
}

/* A piece of a call; `index` counts the calls of a choice. */
static bool hear_call(struct dialect_client_state *st, uint32_t choice, struct json v,
                      struct api_error *e)
{
    struct dialect_client_choice *c = &st->choices[choice];
    struct json custom = json_member(v, "custom"), index = json_member(v, "index");
    bool is_custom = json_kind(custom) == JSON_KIND_OBJECT;
    struct json inner = is_custom ? custom : json_member(v, "function");
    struct json args = json_member(inner, is_custom ? "input" : "arguments");
    str name = dialect_hear_str(st, json_member(inner, "name"));
    str id = dialect_hear_str(st, json_member(v, "id"));
    uint32_t count = c->calls_count - c->calls_same;
    uint32_t at = json_kind(index) == JSON_KIND_NUMBER ? dialect_hear_u32(index) : count;
    bool is_other = is_other_call(c, id, name) && at + 1 == count;
    if (at > count || at + 1 < count || (at < count && !c->in_call && !is_other))
        return dialect_hear_garbage(e, "a piece of call %u behind call %u", at, count);
    if (at == count || is_other) {
        if (!dialect_hear_call(st, choice, id, name, is_custom, e))
            return false;
        c->calls_same += is_other;
        c->call_id = arena_copy(&st->keep, id);
    }
    dialect_hear_args(st, choice, json_kind(args) == JSON_KIND_OBJECT ? json_raw(args)
                                                                      : dialect_hear_str(st, args));
    return true;
}

static void hear_part(struct dialect_client_state *st, uint32_t choice, enum api_event_kind kind,
                      struct json text)
{
    dialect_hear_text(st, choice, kind, &(struct api_text){.text = dialect_hear_str(st, text)});
}

/* Content as a list: {"type":"text","text"} and, by Mistral's thinking models,
 * {"type":"thinking","thinking":[{"type":"text","text"}]}. */
static void hear_parts(struct dialect_client_state *st, uint32_t choice, struct json content)
{
    for (struct json_walk w = json_walk(content); json_next(&w);) {
        struct json thought = json_member(w.value, "thinking");
        hear_part(st, choice, API_EVENT_REASONING, thought);
        for (struct json_walk t = json_walk(thought); json_next(&t);)
            hear_part(st, choice, API_EVENT_REASONING, json_member(t.value, "text"));
        hear_part(st, choice, API_EVENT_CONTENT, json_member(w.value, "text"));
    }
}

static bool hear_message(struct dialect_client_state *st, uint32_t choice, struct json m,
                         struct json logprobs, struct api_error *e)
{
    struct json thought = json_member(m, "reasoning_content");
    struct api_text t = {0};
    if (json_kind(thought) != JSON_KIND_STRING)
        thought = json_member(m, "reasoning");
    dialect_hear_text(st, choice, API_EVENT_REASONING,
                      &(struct api_text){.text = dialect_hear_str(st, thought)});
    t.text = dialect_hear_str(st, json_member(m, "content"));
    dialect_hear_logprobs(st, json_member(logprobs, "content"), &t);
    dialect_hear_text(st, choice, API_EVENT_CONTENT, &t);
    hear_parts(st, choice, json_member(m, "content"));
    dialect_hear_text(st, choice, API_EVENT_CONTENT,
                      &(struct api_text){.text = dialect_hear_str(st, json_member(m, "refusal"))});
    for (struct json_walk w = json_walk(json_member(m, "tool_calls")); json_next(&w);)
        if (!hear_call(st, choice, w.value, e))
            return false;
    return true;
}

static bool hear_choice(struct dialect_client_state *st, struct json v, struct json shoal,
                        struct api_error *e)
{
    struct json delta = json_member(v, "delta"), message = json_member(v, "message");
    struct json finish = json_member(v, "finish_reason"), stop = json_member(v, "stop_reason");
    bool is_whole = json_kind(message) == JSON_KIND_OBJECT;
    uint32_t choice;
    if (is_whole)
        dialect_hear_whole(st);
    if (!dialect_hear_choice(st, json_member(v, "index"), &choice, e) ||
        !hear_message(st, choice, is_whole ? message : delta, json_member(v, "logprobs"), e))
        return false;
    if (json_kind(finish) != JSON_KIND_STRING || json_text_eq(finish, STR("")))
        return true; /* some write "" where null is meant */
    if (json_text_eq(finish, STR("error")))
        return dialect_hear_failure(st, finish, finish, finish, e);
    enum api_done reason = dialect_hear_reason(shoal, reason_of(finish));
    if (json_kind(stop) == JSON_KIND_STRING) /* vLLM tells which */
        reason = API_DONE_STOP_STRING;
    dialect_hear_finish(st, choice, reason, dialect_hear_str(st, stop));
    return true;
}

static bool read_event(struct dialect_client_state *st, str name, str data, struct api_error *e)
{
    struct json v, error, choices;
    (void)name;
    if (str_eq(str_trim(data), STR("[DONE]")))
        return dialect_hear_end(st, e);
    if (!dialect_hear_json(st, data, &v, e))
        return false;
    error = json_member(v, "error");
    choices = json_member(v, "choices");
    if (json_kind(error) == JSON_KIND_OBJECT)
        return dialect_hear_failure(st, json_member(error, "type"), json_member(error, "code"),
                                    json_member(error, "message"), e);
    if (json_kind(error) == JSON_KIND_STRING)
        return dialect_hear_failure(st, error, json_member(v, "code"), error, e);
    if (json_kind(choices) != JSON_KIND_ARRAY && json_kind(json_member(v, "usage")) !=
                                                     JSON_KIND_OBJECT)
        return dialect_hear_garbage(e, "an event without choices");
    for (struct json_walk w = json_walk(choices); json_next(&w);)
        if (!hear_choice(st, w.value, json_member(v, "shoal"), e))
            return false;
    hear_usage(st, json_member(v, "usage"));
    return true;
}

static bool can_continue(const struct dialect_upstream *leg, const struct api_request *rq)
{
    return (leg->how == DIALECT_CONTINUE_FINAL_MESSAGE && !dialect_ask_open_call(rq)) ||
           (leg->how == DIALECT_CONTINUE_SHOAL && !dialect_ask_opens_text(rq));
}

static const char *const no_headers[] = {NULL};
static const char *const kept[] = {"openai-organization", "openai-project", "openai-beta", NULL};

const struct dialect_client dialect_openai_chat_client = {
    .path = "/v1/chat/completions",
    .free_path = "/v1/models",
    .shows_raw = true,
    .key_header = "authorization: Bearer ",
    .headers = no_headers,
    .kept = kept,
    .state_size = sizeof(struct dialect_client_state),
    .write_request = write_request,
    .read_event = read_event,
    .can_continue = can_continue,
};
