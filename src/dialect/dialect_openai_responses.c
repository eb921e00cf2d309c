/* POST /v1/responses, and GET and DELETE by id, which know none: BEHAVIOUR 5.9. */
#include <string.h>

#include "dialect/dialect_client.h"
#include "dialect/dialect_field.h"
#include "dialect/dialect_responses_reply.h"
#include "dialect/dialect_tool.h"

#define NAMESPACE_MAX 256u

/* What the reader learns in one field and needs in another; messages and parts as they grow. */
struct reading {
    struct json input, tools, tool_choice;
    bool has_logprobs;
    uint32_t top_logprobs;
    struct api_message *messages;
    struct api_part *parts; /* of all messages, one after the other */
    uint32_t messages_count, parts_count;
};

static struct reading *reading(struct dialect_read *r) { return r->own; }

static struct dialect_responses_state *state_of(struct dialect_read *r)
{
    return (struct dialect_responses_state *)r->st;
}

/* The value on one line: an event of a stream may not hold line feeds. */
static bool keep_line(struct dialect_read *r, struct json v, str *out)
{
    struct buf line;
    buf_init(&line, json_raw(v).len + 1);
    bool ok = dialect_write_compact(&line, json_raw(v));
    *out = ok ? arena_copy(r->a, buf_view(&line)) : (str){NULL, 0};
    buf_deinit(&line);
    return out->p != NULL || dialect_read_array(r, SIZE_MAX, 1) != NULL;
}

/* ---- Items ---- */

static void open_message(struct dialect_read *r, enum api_role role)
{
    struct reading *own = reading(r);
    own->messages[own->messages_count++] = (struct api_message){
        .role = role, .parts = own->parts + own->parts_count};
}

static void add_part(struct dialect_read *r, struct api_part p)
{
    struct reading *own = reading(r);
    own->parts[own->parts_count++] = p;
    own->messages[own->messages_count - 1].parts_count++;
}

/* The assistant's turn that reasoning and calls belong to: the last one, or a new one. */
static void join_assistant(struct dialect_read *r)
{
    const struct reading *own = reading(r);
    if (own->messages_count == 0 ||
        own->messages[own->messages_count - 1].role != API_ROLE_ASSISTANT)
        open_message(r, API_ROLE_ASSISTANT);
}

/* A part of a content; one that no text can stand for is dropped. */
static bool part_text(struct dialect_read *r, struct json v, str *out)
{
    struct json type = json_member(v, "type"), text = json_member(v, "text");
    *out = (str){NULL, 0};
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    if (json_text_eq(type, STR("input_image"))) {
        dialect_read_note_path(r, "image_omitted", v);
        *out = STR("[an image was omitted: this model does not see images]");
        return true;
    }
    if (json_text_eq(type, STR("input_file")) || json_text_eq(type, STR("input_audio"))) {
        dialect_read_note_path(r, "file_omitted", v);
        *out = STR("[a file was omitted]");
        return true;
    }
    if (json_text_eq(type, STR("refusal")))
        return dialect_read_text_or_none(r, json_member(v, "refusal"), out);
    if (json_kind(text) > JSON_KIND_NULL)
        return dialect_read_text(r, text, out);
    dialect_read_note_path(r, "block_dropped", v);
    return true;
}

/* A string or a list of parts, each as one part like p. */
static bool read_parts(struct dialect_read *r, struct json v, struct api_part p)
{
    if (json_kind(v) == JSON_KIND_STRING) {
        if (!dialect_read_text(r, v, &p.text))
            return false;
        add_part(r, p);
        return true;
    }
    if (json_kind(v) != JSON_KIND_ARRAY)
        return dialect_read_wrong(r, v, "string or array");
    for (struct json_walk w = json_walk(v); json_next(&w);) {
        if (!part_text(r, w.value, &p.text))
            return false;
        if (p.text.p)
            add_part(r, p);
    }
    return true;
}

static bool read_message(struct dialect_read *r, struct json v)
{
    static const char *const names[] = {"system", "developer", "user", "assistant"};
    struct reading *own = reading(r);
    struct json role = json_member(v, "role");
    size_t i;
    if (json_kind(role) <= JSON_KIND_NULL)
        return dialect_read_member(r, v, "role", "required");
    if (!dialect_read_choice(r, role, names, countof(names), &i))
        return false;
    if (json_kind(json_member(v, "content")) <= JSON_KIND_NULL)
        return dialect_read_member(r, v, "content", "required");
    const struct api_message *last = own->messages_count
                                         ? &own->messages[own->messages_count - 1] : NULL;
    bool joins = i == API_ROLE_ASSISTANT && last &&
                 last->role == API_ROLE_ASSISTANT && last->parts_count &&
                 last->parts[last->parts_count - 1].kind == API_PART_REASONING;
    if (!joins)
        open_message(r, (enum api_role)i);
    return read_parts(r, json_member(v, "content"), (struct api_part){.kind = API_PART_TEXT});
}

/* Summary and content say the same thing; our copy is used when the client kept only that. */
static bool read_reasoning(struct dialect_read *r, struct json v)
{
    struct json summary = json_member(v, "summary"), content = json_member(v, "content");
    struct json copy = json_member(v, "encrypted_content");
    const struct api_part p = {.kind = API_PART_REASONING};
    str text;
    join_assistant(r);
    if (json_kind(content) == JSON_KIND_ARRAY && json_count(content))
        return read_parts(r, content, p);
    if (json_kind(summary) == JSON_KIND_ARRAY && json_count(summary))
        return read_parts(r, summary, p);
    if (json_kind(copy) != JSON_KIND_STRING)
        return true;
    if (!dialect_read_text(r, copy, &text))
        return false;
    if (str_starts(text, STR("shoal1.")))
        add_part(r, (struct api_part){.kind = API_PART_REASONING,
                                      .text = str_from(text, strlen("shoal1."))});
    else
        dialect_read_note_path(r, "block_dropped", copy); /* another server's */
    return true;
}

static bool read_call(struct dialect_read *r, struct json v, bool is_custom)
{
    struct api_part p = {.kind = API_PART_CALL};
    struct json name = json_member(v, "name");
    if (json_kind(name) != JSON_KIND_STRING)
        return dialect_read_member(r, v, "name", "string expected");
    if (!dialect_read_text(r, name, &p.name) ||
        !dialect_read_text_or_none(r, json_member(v, "call_id"), &p.id) ||
        !dialect_read_text_or_none(r, json_member(v, "namespace"), &p.name_space) ||
        !dialect_read_text_or_none(r, json_member(v, is_custom ? "input" : "arguments"), &p.text))
        return false;
    if (p.name.len == 0)
        return dialect_read_fail(r, ERR_REQUEST, name, "at least 1 byte expected");
    if (is_custom && !dialect_tool_input(r, &p.text))
        return false;
    join_assistant(r);
    add_part(r, p);
    return true;
}

static bool read_output(struct dialect_read *r, struct json v)
{
    struct api_part p = {.kind = API_PART_RESULT, .text = STR("")};
    struct json output = json_member(v, "output");
    if (!dialect_read_text_or_none(r, json_member(v, "call_id"), &p.id))
        return false;
    open_message(r, API_ROLE_TOOL);
    if (json_kind(output) > JSON_KIND_NULL && !read_parts(r, output, p))
        return false;
    if (reading(r)->messages[reading(r)->messages_count - 1].parts_count == 0)
        add_part(r, p);
    return true;
}

static bool read_item(struct dialect_read *r, struct json v)
{
    struct json type = json_member(v, "type");
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    if (json_kind(type) <= JSON_KIND_NULL || json_text_eq(type, STR("message")))
        return read_message(r, v);
    if (json_text_eq(type, STR("reasoning")))
        return read_reasoning(r, v);
    if (json_text_eq(type, STR("function_call")))
        return read_call(r, v, false);
    if (json_text_eq(type, STR("custom_tool_call")))
        return read_call(r, v, true);
    if (json_text_eq(type, STR("function_call_output")) ||
        json_text_eq(type, STR("custom_tool_call_output")))
        return read_output(r, v);
    if (json_text_eq(type, STR("item_reference")))
        return dialect_read_fail(r, ERR_REQUEST, v, "replies are not stored: the item itself "
                                 "expected");
    dialect_read_note_path(r, "block_dropped", v);
    return true;
}

static size_t count_parts(struct json items)
{
    size_t count = 2; /* instructions, or an input that is one text */
    for (struct json_walk w = json_walk(items); json_next(&w);)
        count += (size_t)2 + json_count(json_member(w.value, "content")) +
                 json_count(json_member(w.value, "summary")) +
                 json_count(json_member(w.value, "output"));
    return count;
}

static bool read_input(struct dialect_read *r, str instructions)
{
    struct reading *own = reading(r);
    struct json v = own->input;
    uint32_t count = json_count(v);
    bool is_text = json_kind(v) == JSON_KIND_STRING;
    if (json_kind(v) == JSON_KIND_ABSENT)
        return dialect_read_missing(r, "input");
    if (!is_text && json_kind(v) != JSON_KIND_ARRAY)
        return dialect_read_wrong(r, v, "string or array");
    if (!is_text && (count == 0 || count > r->in->limits->messages_max))
        return dialect_read_fail(r, ERR_REQUEST, v, "1 to %u items expected, got %u",
                                 r->in->limits->messages_max, count);
    own->messages = dialect_read_array(r, (size_t)count + 2, sizeof *own->messages);
    own->parts = dialect_read_array(r, count_parts(v), sizeof *own->parts);
    if (own->messages == NULL || own->parts == NULL)
        return false;
    if (instructions.len) {
        open_message(r, API_ROLE_SYSTEM);
        add_part(r, (struct api_part){.kind = API_PART_TEXT, .text = instructions});
    }
    if (is_text) {
        open_message(r, API_ROLE_USER);
        if (!read_parts(r, v, (struct api_part){.kind = API_PART_TEXT}))
            return false;
    }
    for (struct json_walk w = json_walk(v); !is_text && json_next(&w);)
        if (!read_item(r, w.value))
            return false;
    r->rq->messages = own->messages;
    r->rq->messages_count = own->messages_count;
    return own->messages_count > 0 ||
           dialect_read_fail(r, ERR_REQUEST, v, "no item that a model can read");
}

static bool keep_input(struct dialect_read *r, struct json v)
{
    reading(r)->input = v;
    return true;
}

/* ---- Tools ---- */

static bool read_tool(struct dialect_read *r, struct json v, struct api_tool *out)
{
    struct json type = json_member(v, "type"), format = json_member(v, "format");
    bool is_custom = json_text_eq(type, STR("custom"));
    if (json_kind(type) <= JSON_KIND_NULL)
        return dialect_read_member(r, v, "type", "required");
    if (!is_custom && !json_text_eq(type, STR("function")))
        return dialect_tool_hosted(r, v, type, out);
    if (is_custom && json_text_eq(json_member(format, "type"), STR("grammar")))
        dialect_read_note_path(r, "grammar_not_enforced", format);
    out->kind = is_custom ? API_TOOL_CUSTOM : API_TOOL_FUNCTION;
    return dialect_tool_read(r, v, "parameters", out);
}

/* A namespace is its children under its name. */
static bool read_namespace(struct dialect_read *r, struct json v)
{
    struct json name = json_member(v, "name"), children = json_member(v, "tools");
    str space;
    if (json_kind(name) <= JSON_KIND_NULL)
        return dialect_read_member(r, v, "name", "required");
    if (!dialect_read_text(r, name, &space))
        return false;
    if (space.len < 1 || space.len > NAMESPACE_MAX)
        return dialect_read_fail(r, ERR_REQUEST, name, "1 to %u bytes expected, got %zu",
                                 NAMESPACE_MAX, space.len);
    if (json_kind(children) > JSON_KIND_NULL && json_kind(children) != JSON_KIND_ARRAY)
        return dialect_read_wrong(r, children, "array");
    for (struct json_walk w = json_walk(children); json_next(&w);)
        if (!dialect_tool_add(r, w.value, space, read_tool))
            return false;
    return true;
}

static bool read_tools(struct dialect_read *r)
{
    struct json v = reading(r)->tools;
    size_t count = json_count(v);
    if (json_kind(v) > JSON_KIND_NULL && json_kind(v) != JSON_KIND_ARRAY)
        return dialect_read_wrong(r, v, "array");
    for (struct json_walk w = json_walk(v); json_next(&w);)
        count += json_count(json_member(w.value, "tools"));
    if (!dialect_tool_room(r, v, count))
        return false;
    for (struct json_walk w = json_walk(v); json_next(&w);)
        if (!(json_text_eq(json_member(w.value, "type"), STR("namespace"))
                  ? read_namespace(r, w.value)
                  : dialect_tool_add(r, w.value, (str){NULL, 0}, read_tool)))
            return false;
    return dialect_tool_choice(r, reading(r)->tool_choice, false);
}

static bool keep_tools(struct dialect_read *r, struct json v)
{
    reading(r)->tools = v;
    return keep_line(r, v, &state_of(r)->tools);
}

static bool keep_tool_choice(struct dialect_read *r, struct json v)
{
    reading(r)->tool_choice = v;
    return keep_line(r, v, &state_of(r)->tool_choice);
}

/* ---- The rest ---- */

static bool read_instructions(struct dialect_read *r, struct json v)
{
    return json_kind(v) == JSON_KIND_STRING ? keep_line(r, v, &state_of(r)->instructions)
                                            : dialect_read_wrong(r, v, "string");
}

static bool read_max_tokens(struct dialect_read *r, struct json v)
{
    int64_t n;
    return dialect_read_int(r, v, 1, INT32_MAX, &n) &&
           dialect_read_number(r, v, API_FIELD_TOKENS_MAX) &&
           keep_line(r, v, &state_of(r)->max_output_tokens);
}

static bool read_top_logprobs(struct dialect_read *r, struct json v)
{
    int64_t n;
    if (!dialect_read_int(r, v, 0, API_TOP_LOGPROBS_MAX, &n))
        return false;
    reading(r)->top_logprobs = (uint32_t)n;
    return true;
}

static bool read_include(struct dialect_read *r, struct json v)
{
    if (json_kind(v) != JSON_KIND_ARRAY)
        return dialect_read_wrong(r, v, "array");
    for (struct json_walk w = json_walk(v); json_next(&w);) {
        if (json_text_eq(w.value, STR("reasoning.encrypted_content")))
            state_of(r)->with_encrypted = true;
        else if (json_text_eq(w.value, STR("message.output_text.logprobs")))
            reading(r)->has_logprobs = true;
        else
            dialect_read_note_path(r, "ignored_field", w.value);
    }
    return true;
}

static bool read_format(struct dialect_read *r, struct json v)
{
    return dialect_field_format(r, v, NULL);
}

static const struct dialect_field text_fields[] = {
    {"format", DIALECT_KIND_READ, 0, read_format},
    {"verbosity", DIALECT_KIND_IGNORED, 0, NULL},
};

static bool read_text(struct dialect_read *r, struct json v)
{
    return dialect_read_object(r, v, text_fields, countof(text_fields)) &&
           keep_line(r, v, &state_of(r)->text);
}

static bool reasoning_effort(struct dialect_read *r, struct json v)
{
    return dialect_read_effort(r, v) && keep_line(r, v, &state_of(r)->reasoning_effort);
}

static bool reasoning_summary(struct dialect_read *r, struct json v)
{
    return keep_line(r, v, &state_of(r)->reasoning_summary);
}

static const struct dialect_field reasoning_fields[] = {
    {"effort", DIALECT_KIND_READ, 0, reasoning_effort},
    {"summary", DIALECT_KIND_READ, 0, reasoning_summary},
    {"generate_summary", DIALECT_KIND_IGNORED, 0, NULL},
};

static bool read_reasoning_config(struct dialect_read *r, struct json v)
{
    return dialect_read_object(r, v, reasoning_fields, countof(reasoning_fields));
}

static bool read_truncation(struct dialect_read *r, struct json v)
{
    static const char *const names[] = {"disabled", "auto"};
    size_t i;
    if (!dialect_read_choice(r, v, names, countof(names), &i))
        return false;
    r->rq->truncate = (enum api_truncate)i;
    r->rq->given |= API_GIVEN(TRUNCATE);
    return keep_line(r, v, &state_of(r)->truncation);
}

static bool read_store(struct dialect_read *r, struct json v)
{
    bool store;
    if (!dialect_read_bool(r, v, &store))
        return false;
    if (store)
        dialect_read_note_path(r, "ignored_field", v);
    return true;
}

static bool read_metadata(struct dialect_read *r, struct json v)
{
    struct json user = json_member(v, "user_id");
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    return keep_line(r, v, &state_of(r)->metadata) &&
           (json_kind(user) != JSON_KIND_STRING || r->rq->agent.len ||
            dialect_read_agent(r, user));
}

static bool read_user(struct dialect_read *r, struct json v)
{
    return dialect_read_agent(r, v) && keep_line(r, v, &state_of(r)->user);
}

static bool read_background(struct dialect_read *r, struct json v)
{
    bool on;
    return dialect_read_bool(r, v, &on) &&
           (!on || dialect_read_fail(r, ERR_REQUEST, v, "replies are not stored: only false is "
                                     "supported"));
}

static bool read_stored(struct dialect_read *r, struct json v)
{
    return dialect_read_fail(r, ERR_REQUEST, v, "replies are not stored: the whole conversation "
                             "expected in input");
}

static const struct dialect_field fields[] = {
    {"model", DIALECT_KIND_TEXT, AT(model), NULL},
    {"input", READ(keep_input)},
    {"instructions", READ(read_instructions)},
    {"stream", DIALECT_KIND_BOOL, AT(stream), NULL},
    {"temperature", NUMBER(TEMPERATURE)},
    {"top_p", NUMBER(TOP_P)},
    {"max_output_tokens", READ(read_max_tokens)},
    {"top_logprobs", READ(read_top_logprobs)},
    {"include", READ(read_include)},
    {"text", READ(read_text)},
    {"reasoning", READ(read_reasoning_config)},
    {"tools", READ(keep_tools)},
    {"tool_choice", READ(keep_tool_choice)},
    {"parallel_tool_calls", DIALECT_KIND_BOOL, AT(parallel_tool_calls), NULL},
    {"truncation", READ(read_truncation)},
    {"user", READ(read_user)},
    {"safety_identifier", READ(dialect_read_agent)},
    {"prompt_cache_key", READ(dialect_read_session)},
    {"service_tier", READ(dialect_field_service_tier)},
    {"store", READ(read_store)},
    {"metadata", READ(read_metadata)},
    {"max_tool_calls", IGNORED},
    {"client_metadata", IGNORED},
    {"stream_options", IGNORED},
    {"prompt_cache_retention", READ(dialect_read_retention)},
    {"prompt_cache_options", IGNORED},
    {"context_management", IGNORED},
    {"previous_response_id", READ(read_stored)},
    {"conversation", READ(read_stored)},
    {"prompt", READ(read_stored)},
    {"background", READ(read_background)},
    {"shoal", DIALECT_KIND_SKIPPED, 0, NULL},
};

static bool read_combined(struct dialect_read *r, struct json body)
{
    struct dialect_responses_state *st = state_of(r);
    const struct reading *own = reading(r);
    str instructions = {NULL, 0};
    bool wants_logprobs = own->has_logprobs || own->top_logprobs > 0;
    if (!r->in->has_model && r->rq->model.len == 0)
        return dialect_read_missing(r, "model");
    if (wants_logprobs && !api_request_set(r->rq, API_FIELD_LOGPROBS, own->top_logprobs + 1.0,
                                           STR("top_logprobs"), r->e))
        return false;
    if (!dialect_read_text_or_none(r, json_member(body, "instructions"), &instructions))
        return false;
    st->with_logprobs = wants_logprobs;
    st->temperature = r->rq->temperature;
    st->top_p = r->rq->top_p;
    st->parallel_tool_calls = r->rq->parallel_tool_calls;
    return read_input(r, instructions) && read_tools(r);
}

static bool read_request(struct api_request *out, struct dialect_state *st,
                         const struct dialect_in *in, struct arena *a, struct api_error *e)
{
    struct reading own = {.has_logprobs = false};
    struct dialect_read r = {out, st, in, a, e, &own, NULL};
    struct json body;
    api_request_init(out);
    st->prompt_name = "input";
    if (in->path->kind != API_KIND_CHAT)
        return api_error_set(e, ERR_NOT_FOUND, "not_found", STR("id"), "no response %.*s: replies "
                             "are not stored", (int)base_min(in->segment.len, 80),
                             in->segment.len ? in->segment.p : "");
    return dialect_read_body(&r, &body) &&
           dialect_read_object(&r, body, fields, countof(fields)) && read_combined(&r, body) &&
           dialect_read_extensions(&r, body) && dialect_read_finish(&r);
}

static const struct dialect_path paths[] = {
    {"POST", "/v1/responses", API_KIND_CHAT, false},
    {"GET", "/v1/responses/{}", API_KIND_SHOW, false},
    {"DELETE", "/v1/responses/{}", API_KIND_UNLOAD, false},
};

const struct dialect dialect_openai_responses = {
    .name = "openai_responses",
    .family = DIALECT_OPENAI,
    .stream_type = "text/event-stream",
    .paths = paths,
    .paths_count = countof(paths),
    .state_size = sizeof(struct dialect_responses_state),
    .read_request = read_request,
    .write_event = dialect_responses_reply_event,
    .write_error = dialect_responses_reply_error,
    .write_ping = dialect_responses_reply_ping,
    .client = &dialect_responses_client,
};
