/* POST /v1/chat/completions: BEHAVIOUR 5.7. */
#include <stdio.h>
#include <string.h>

#include "dialect/dialect_client.h"
#include "dialect/dialect_field.h"
#include "dialect/dialect_openai_reply.h"
#include "dialect/dialect_tool.h"

/* What the reader learns in one field and needs in another. */
struct reading {
    bool logprobs, has_top, has_completion_tokens, continues, has_generation_prompt;
    bool generation_prompt;
    uint32_t top_logprobs;
    struct json top_value, best_of, tool_choice;
    bool has_best_of;
};

static struct reading *reading(struct dialect_read *r) { return r->own; }

/* ---- Messages ---- */

struct message_reading {
    struct api_message *m;
    struct api_part *parts;
    struct json content, calls;
    str call_id, name, reasoning;
    bool has_content, has_calls;
};

static void add_part(struct message_reading *mr, struct api_part p)
{
    mr->parts[mr->m->parts_count++] = p;
}

static void add_text(struct message_reading *mr, str text)
{
    bool is_result = mr->m->role == API_ROLE_TOOL;
    add_part(mr, (struct api_part){.kind = is_result ? API_PART_RESULT : API_PART_TEXT,
                                   .text = text, .id = is_result ? mr->call_id : (str){NULL, 0},
                                   .name = is_result ? mr->name : (str){NULL, 0}});
}

/* "data:image/png;base64,...": the type; "" for an address. */
static str media_type(str url)
{
    size_t semicolon = str_find_byte(url, ';');
    if (!str_starts(url, STR("data:")) || semicolon == STR_NONE)
        return STR("image/*");
    return str_sub(url, strlen("data:"), semicolon - strlen("data:"));
}

static bool read_image(struct dialect_read *r, struct message_reading *mr, struct json v)
{
    struct json image = json_member(v, "image_url"), url = json_member(image, "url");
    str text;
    if (json_kind(image) != JSON_KIND_OBJECT)
        return dialect_read_member(r, v, "image_url", "object expected");
    if (!dialect_read_text(r, url, &text))
        return false;
    add_part(mr, (struct api_part){.kind = API_PART_IMAGE, .media_type = media_type(text),
                                   .id = mr->m->role == API_ROLE_TOOL ? mr->call_id
                                                                      : (str){NULL, 0}});
    return true;
}

static bool read_part(struct dialect_read *r, struct message_reading *mr, struct json v)
{
    static const char *const types[] = {"text", "refusal", "image_url", "input_audio", "file"};
    size_t type;
    str text;
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    if (json_kind(json_member(v, "type")) == JSON_KIND_ABSENT)
        return dialect_read_member(r, v, "type", "required");
    if (!dialect_read_choice(r, json_member(v, "type"), types, countof(types), &type))
        return false;
    if (type == 2)
        return read_image(r, mr, v);
    if (type > 2) {
        dialect_read_note_path(r, "file_omitted", v);
        add_text(mr, type == 3 ? STR("[audio was omitted]") : STR("[a file was omitted]"));
        return true;
    }
    struct json content = json_member(v, types[type]);
    if (json_kind(content) == JSON_KIND_ABSENT)
        return dialect_read_member(r, v, types[type], "required");
    if (!dialect_read_text(r, content, &text))
        return false;
    add_text(mr, text);
    return true;
}

static bool read_content(struct dialect_read *r, struct message_reading *mr)
{
    str text;
    if (!mr->has_content)
        return true;
    if (json_kind(mr->content) == JSON_KIND_STRING) {
        if (!dialect_read_text(r, mr->content, &text))
            return false;
        if (text.len || !mr->has_calls)
            add_text(mr, text);
        return true;
    }
    if (json_kind(mr->content) != JSON_KIND_ARRAY)
        return dialect_read_wrong(r, mr->content, "string or array");
    for (struct json_walk w = json_walk(mr->content); json_next(&w);)
        if (!read_part(r, mr, w.value))
            return false;
    return true;
}

static bool read_call(struct dialect_read *r, struct message_reading *mr, struct json v)
{
    struct json custom = json_member(v, "custom"), function = json_member(v, "function");
    bool is_custom = json_kind(custom) == JSON_KIND_OBJECT;
    struct json id = json_member(v, "id"), inner = is_custom ? custom : function;
    struct json args = json_member(inner, is_custom ? "input" : "arguments");
    struct api_part p = {.kind = API_PART_CALL};
    if (json_kind(inner) != JSON_KIND_OBJECT)
        return dialect_read_member(r, v, "function", "object expected");
    if (json_kind(id) != JSON_KIND_ABSENT && !dialect_read_text(r, id, &p.id))
        return false;
    if (json_kind(json_member(inner, "name")) == JSON_KIND_ABSENT)
        return dialect_read_member(r, inner, "name", "required");
    if (!dialect_read_text(r, json_member(inner, "name"), &p.name))
        return false;
    if (json_kind(args) == JSON_KIND_OBJECT)
        p.text = json_raw(args);
    else if (json_kind(args) == JSON_KIND_STRING && !dialect_read_text(r, args, &p.text))
        return false;
    else if (json_kind(args) > JSON_KIND_NULL && json_kind(args) != JSON_KIND_STRING)
        return dialect_read_wrong(r, args, "string or object");
    if (is_custom && !dialect_tool_input(r, &p.text))
        return false;
    add_part(mr, p);
    return true;
}

static bool read_calls(struct dialect_read *r, struct message_reading *mr)
{
    if (!mr->has_calls)
        return true;
    for (struct json_walk w = json_walk(mr->calls); json_next(&w);)
        if (!read_call(r, mr, w.value))
            return false;
    return true;
}

static bool message_content(struct dialect_read *r, struct json v)
{
    struct message_reading *mr = r->own;
    mr->content = v;
    mr->has_content = true;
    return true;
}

static bool message_calls(struct dialect_read *r, struct json v)
{
    struct message_reading *mr = r->own;
    if (json_kind(v) != JSON_KIND_ARRAY)
        return dialect_read_wrong(r, v, "array");
    mr->calls = v;
    mr->has_calls = json_count(v) > 0;
    return true;
}

static bool message_call_id(struct dialect_read *r, struct json v)
{
    return dialect_read_text(r, v, &((struct message_reading *)r->own)->call_id);
}

static bool message_name(struct dialect_read *r, struct json v)
{
    return dialect_read_text(r, v, &((struct message_reading *)r->own)->name);
}

static bool message_reasoning(struct dialect_read *r, struct json v)
{
    return dialect_read_text(r, v, &((struct message_reading *)r->own)->reasoning);
}

static bool message_role(struct dialect_read *r, struct json v)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    struct message_reading *mr = r->own;
    size_t role;
    if (!dialect_read_choice(r, v, roles, countof(roles), &role))
        return false;
    mr->m->role = (enum api_role)role;
    return true;
}

/* What a reply carries comes back in the next request: its null fields and our own are no news. */
static const struct dialect_field message_fields[] = {
    {"role", DIALECT_KIND_READ, 0, message_role},
    {"content", DIALECT_KIND_READ, 0, message_content},
    {"name", DIALECT_KIND_READ, 0, message_name},
    {"tool_calls", DIALECT_KIND_READ, 0, message_calls},
    {"tool_call_id", DIALECT_KIND_READ, 0, message_call_id},
    {"reasoning_content", DIALECT_KIND_READ, 0, message_reasoning},
    {"reasoning", DIALECT_KIND_READ, 0, message_reasoning},
    {"refusal", DIALECT_KIND_SKIPPED, 0, NULL},
    {"annotations", DIALECT_KIND_SKIPPED, 0, NULL},
    {"audio", DIALECT_KIND_IGNORED, 0, NULL},
    {"function_call", DIALECT_KIND_REFUSED, 0, NULL},
};

static bool read_message(struct dialect_read *r, struct json v, struct api_message *m)
{
    struct message_reading mr = {.m = m};
    void *outer = r->own;
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    if (json_kind(json_member(v, "role")) <= JSON_KIND_NULL)
        return dialect_read_member(r, v, "role", "required");
    r->own = &mr;
    bool ok = dialect_read_object(r, v, message_fields, countof(message_fields));
    r->own = outer;
    if (!ok)
        return false;
    bool is_list = mr.has_content && json_kind(mr.content) == JSON_KIND_ARRAY;
    size_t count = (is_list ? json_count(mr.content) : 1) + 1 +
                   (mr.has_calls ? json_count(mr.calls) : 0);
    mr.parts = dialect_read_array(r, count, sizeof *mr.parts);
    if (mr.parts == NULL)
        return false;
    m->parts = mr.parts;
    if (m->role != API_ROLE_TOOL)
        m->name = mr.name;
    if (mr.reasoning.len && m->role == API_ROLE_ASSISTANT)
        add_part(&mr, (struct api_part){.kind = API_PART_REASONING, .text = mr.reasoning});
    return read_content(r, &mr) && read_calls(r, &mr);
}

static bool read_messages(struct dialect_read *r, struct json v)
{
    return dialect_read_messages(r, v, 1, read_message);
}

/* ---- Sampling, format ---- */

static bool read_completion_tokens(struct dialect_read *r, struct json v)
{
    int64_t n;
    reading(r)->has_completion_tokens = true;
    return dialect_read_int(r, v, 1, INT32_MAX, &n) &&
           dialect_read_number(r, v, API_FIELD_TOKENS_MAX);
}

/* max_completion_tokens wins, wherever it stands. */
static bool read_max_tokens(struct dialect_read *r, struct json v)
{
    int64_t n;
    if (!dialect_read_int(r, v, 1, INT32_MAX, &n))
        return false;
    return reading(r)->has_completion_tokens || dialect_read_number(r, v, API_FIELD_TOKENS_MAX);
}

static bool read_best_of(struct dialect_read *r, struct json v)
{
    reading(r)->best_of = v;
    reading(r)->has_best_of = true;
    return true;
}

static bool read_logprobs(struct dialect_read *r, struct json v)
{
    return dialect_read_bool(r, v, &reading(r)->logprobs);
}

static bool read_top_logprobs(struct dialect_read *r, struct json v)
{
    int64_t n;
    if (!dialect_read_int(r, v, 0, API_TOP_LOGPROBS_MAX, &n))
        return false;
    reading(r)->has_top = true;
    reading(r)->top_logprobs = (uint32_t)n;
    reading(r)->top_value = v;
    return true;
}

static bool read_format(struct dialect_read *r, struct json v)
{
    return dialect_field_format(r, v, "json_schema");
}

static bool read_think(struct dialect_read *r, struct json v)
{
    bool on;
    if (json_kind(v) == JSON_KIND_STRING)
        return dialect_read_effort(r, v);
    if (!dialect_read_bool(r, v, &on))
        return false;
    r->rq->think = on ? API_THINK_ON : API_THINK_OFF;
    r->rq->given |= API_GIVEN(THINK);
    return true;
}

/* Text of the expected reply: a string, or text parts. */
static bool read_prediction(struct dialect_read *r, struct json v)
{
    struct json content = json_member(v, "content"), text;
    str part;
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    if (json_kind(content) == JSON_KIND_STRING)
        return dialect_read_text(r, content, &r->rq->prediction);
    if (json_kind(content) != JSON_KIND_ARRAY)
        return dialect_read_member(r, v, "content", "string or array expected");
    struct buf all;
    buf_init(&all, json_raw(content).len + 1);
    bool ok = true;
    for (struct json_walk w = json_walk(content); ok && json_next(&w);) {
        text = json_member(w.value, "text");
        ok = json_kind(text) == JSON_KIND_STRING
                 ? dialect_read_text(r, text, &part) && buf_add(&all, part)
                 : dialect_read_member(r, w.value, "text", "string expected");
    }
    if (ok) {
        r->rq->prediction = arena_copy(r->a, buf_view(&all));
        ok = r->rq->prediction.p != NULL || dialect_read_array(r, SIZE_MAX, 1) != NULL;
    }
    buf_deinit(&all);
    return ok;
}

/* ---- Tools ---- */

static bool read_tool(struct dialect_read *r, struct json v, struct api_tool *out)
{
    struct json type = json_member(v, "type");
    bool is_custom = json_text_eq(type, STR("custom"));
    struct json inner = json_member(v, is_custom ? "custom" : "function");
    struct json format = json_member(json_member(inner, "format"), "type");
    if (json_kind(type) <= JSON_KIND_NULL)
        return dialect_read_member(r, v, "type", "required");
    if (!is_custom && !json_text_eq(type, STR("function")))
        return dialect_tool_hosted(r, v, type, out);
    out->kind = is_custom ? API_TOOL_CUSTOM : API_TOOL_FUNCTION;
    if (json_kind(inner) != JSON_KIND_OBJECT)
        return dialect_read_member(r, v, is_custom ? "custom" : "function", "object expected");
    if (is_custom && json_text_eq(format, STR("grammar")))
        dialect_read_note_path(r, "grammar_not_enforced", json_member(inner, "format"));
    return dialect_tool_read(r, inner, "parameters", out);
}

static bool read_tools(struct dialect_read *r, struct json v)
{
    return dialect_tool_list(r, v, read_tool);
}

/* Names are looked up when the tools are known. */
static bool keep_tool_choice(struct dialect_read *r, struct json v)
{
    reading(r)->tool_choice = v;
    return true;
}

/* ---- The rest ---- */

static bool read_metadata(struct dialect_read *r, struct json v)
{
    struct json user = json_member(v, "user_id");
    dialect_read_note_path(r, "ignored_field", v);
    return json_kind(user) != JSON_KIND_STRING || r->rq->agent.len || dialect_read_agent(r, user);
}

static bool read_modalities(struct dialect_read *r, struct json v)
{
    if (json_kind(v) != JSON_KIND_ARRAY)
        return dialect_read_wrong(r, v, "array");
    for (struct json_walk w = json_walk(v); json_next(&w);)
        if (!json_text_eq(w.value, STR("text")))
            return dialect_read_fail(r, ERR_REQUEST, w.value, "only \"text\" is supported");
    return true;
}

static bool read_continue(struct dialect_read *r, struct json v)
{
    return dialect_read_bool(r, v, &reading(r)->continues);
}

static bool read_generation_prompt(struct dialect_read *r, struct json v)
{
    reading(r)->has_generation_prompt = true;
    return dialect_read_bool(r, v, &reading(r)->generation_prompt);
}

/* Scalars; the template's own name at any depth is refused (J05). */
static bool read_template_args(struct dialect_read *r, struct json v)
{
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    for (struct json_walk w = json_walk(v); json_next(&w);)
        if (json_kind(w.value) == JSON_KIND_OBJECT || json_kind(w.value) == JSON_KIND_ARRAY)
            return dialect_read_wrong(r, w.value, "string, number or boolean");
    r->rq->template_args = json_count(v) ? json_raw(v) : (str){NULL, 0};
    return true;
}

static const struct dialect_field fields[] = {
    {"model", DIALECT_KIND_TEXT, AT(model), NULL},
    {"messages", READ(read_messages)},
    {"stream", DIALECT_KIND_BOOL, AT(stream), NULL},
    {"stream_options", READ(dialect_field_stream_options)},
    {"max_completion_tokens", READ(read_completion_tokens)},
    {"max_tokens", READ(read_max_tokens)},
    {"temperature", NUMBER(TEMPERATURE)},
    {"top_p", NUMBER(TOP_P)},
    {"presence_penalty", NUMBER(PRESENCE_PENALTY)},
    {"frequency_penalty", NUMBER(FREQUENCY_PENALTY)},
    {"seed", READ(dialect_field_seed)},
    {"stop", READ(dialect_read_stop)},
    {"n", READ(dialect_field_n)},
    {"logprobs", READ(read_logprobs)},
    {"top_logprobs", READ(read_top_logprobs)},
    {"logit_bias", READ(dialect_field_bias)},
    {"response_format", READ(read_format)},
    {"tools", READ(read_tools)},
    {"tool_choice", READ(keep_tool_choice)},
    {"parallel_tool_calls", DIALECT_KIND_BOOL, AT(parallel_tool_calls), NULL},
    {"reasoning_effort", READ(dialect_read_effort)},
    {"think", READ(read_think)},
    {"prediction", READ(read_prediction)},
    {"user", READ(dialect_read_agent)},
    {"safety_identifier", READ(dialect_read_agent)},
    {"prompt_cache_key", READ(dialect_read_session)},
    {"service_tier", READ(dialect_field_service_tier)},
    {"keep_alive", READ(dialect_read_keep_alive)},
    {"session", READ(dialect_read_session)},
    {"cache", READ(dialect_read_cache)},
    {"effort", READ(dialect_read_effort)},
    {"max_context", READ(dialect_field_context_max)},
    {"shoal", DIALECT_KIND_SKIPPED, 0, NULL},
    {"metadata", READ(read_metadata)},
    {"store", IGNORED},
    {"verbosity", IGNORED},
    {"prompt_cache_retention", READ(dialect_read_retention)},
    {"web_search_options", IGNORED},
    {"modalities", READ(read_modalities)},
    {"audio", REFUSED},
    {"functions", REFUSED},
    {"function_call", REFUSED},
    {"top_k", READ(dialect_field_top_k)},
    {"min_p", NUMBER(MIN_P)},
    {"typical_p", NUMBER(TYPICAL_P)},
    {"repetition_penalty", NUMBER(REPEAT_PENALTY)},
    {"min_tokens", NUMBER(TOKENS_MIN)},
    {"ignore_eos", DIALECT_KIND_BOOL, AT(ignore_eos), NULL},
    {"stop_token_ids", READ(dialect_field_stop_ids)},
    {"include_stop_str_in_output", DIALECT_KIND_BOOL, AT(keep_stop), NULL},
    {"structured_outputs", READ(dialect_field_structured)},
    {"guided_json", READ(dialect_field_guided_json)},
    {"guided_regex", READ(dialect_field_guided_regex)},
    {"guided_choice", READ(dialect_field_guided_choice)},
    {"cache_salt", DIALECT_KIND_TEXT, AT(scope), NULL},
    {"priority", READ(dialect_field_priority)},
    {"continue_final_message", READ(read_continue)},
    {"add_generation_prompt", READ(read_generation_prompt)},
    {"chat_template_kwargs", READ(read_template_args)},
    {"chat_template", REFUSED},
    {"guided_grammar", REFUSED},
    {"best_of", READ(read_best_of)},
    {"use_beam_search", REFUSED},
    {"prompt_logprobs", REFUSED},
    {"truncate_prompt_tokens", REFUSED},
    {"skip_special_tokens", READ(dialect_field_skip_special)},
};

/* What only several fields together say. */
static bool read_combined(struct dialect_read *r, struct json body)
{
    struct reading *own = reading(r);
    struct api_request *rq = r->rq;
    int64_t best_of;
    if (!r->in->has_model && rq->model.len == 0)
        return dialect_read_missing(r, "model");
    if (rq->messages_count == 0)
        return dialect_read_missing(r, "messages");
    if (own->has_top && own->top_logprobs && !own->logprobs)
        return dialect_read_fail(r, ERR_REQUEST, own->top_value, "needs logprobs: true");
    if (own->logprobs && !api_request_set(rq, API_FIELD_LOGPROBS, own->top_logprobs + 1.0,
                                          STR("top_logprobs"), r->e))
        return false;
    if (own->has_best_of && (!json_i64(own->best_of, &best_of) || best_of != rq->n))
        return dialect_read_fail(r, ERR_REQUEST, own->best_of, "only the value of n is supported");
    if (own->has_generation_prompt && own->generation_prompt == own->continues)
        return dialect_read_fail(r, ERR_REQUEST, json_member(body, "add_generation_prompt"),
                                 "must be the opposite of continue_final_message");
    if (own->continues && rq->messages[rq->messages_count - 1].role != API_ROLE_ASSISTANT)
        return dialect_read_fail(r, ERR_REQUEST, json_member(body, "continue_final_message"),
                                 "the last message must be the assistant's");
    rq->continue_last = own->continues;
    dialect_read_open(r);
    return dialect_tool_choice(r, own->tool_choice, true);
}

static bool read_request(struct api_request *out, struct dialect_state *st,
                         const struct dialect_in *in, struct arena *a, struct api_error *e)
{
    struct reading own = {0};
    struct dialect_read r = {out, st, in, a, e, &own, NULL};
    struct json body;
    api_request_init(out);
    return dialect_read_body(&r, &body) &&
           dialect_read_object(&r, body, fields, countof(fields)) && read_combined(&r, body) &&
           dialect_read_extensions(&r, body) && dialect_read_finish(&r);
}

static const struct dialect_path paths[] = {
    {"POST", "/v1/chat/completions", API_KIND_CHAT, false},
};

const struct dialect dialect_openai_chat = {
    .name = "openai_chat",
    .family = DIALECT_OPENAI,
    .stream_type = "text/event-stream",
    .paths = paths,
    .paths_count = countof(paths),
    .state_size = sizeof(struct dialect_state),
    .read_request = read_request,
    .write_event = dialect_openai_reply_event,
    .write_error = dialect_openai_reply_error,
    .write_ping = dialect_write_ping,
    .client = &dialect_openai_chat_client,
};
