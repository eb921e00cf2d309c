#include <stdio.h>

#include "cli/load.h"

#define LOAD_DIALECT_SCHEMA \
    "{\"type\":\"object\",\"properties\":{\"topic\":{\"type\":\"string\"},\"words\":" \
    "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"maxItems\":8},\"count\":" \
    "{\"type\":\"integer\"}},\"required\":[\"topic\",\"words\",\"count\"]," \
    "\"additionalProperties\":false}"

/* --- parts that several share --------------------------------------------------------------- */

static void load_dialect_put_message(struct json_writer *w, const char *role, str text)
{
    json_open_object(w);
    json_key_z(w, "role");
    json_put_text_z(w, role);
    json_key_z(w, "content");
    json_put_text(w, text);
    json_close_object(w);
}

static void load_dialect_put_messages(struct json_writer *w, const struct load_body *b,
                                      bool with_system)
{
    json_key_z(w, "messages");
    json_open_array(w);
    if (with_system && b->system.len)
        load_dialect_put_message(w, "system", b->system);
    for (uint32_t i = 0; i < b->turns_count; i++) {
        load_dialect_put_message(w, "user", b->turns[i].user);
        if (b->turns[i].reply.len)
            load_dialect_put_message(w, "assistant", b->turns[i].reply);
    }
    json_close_array(w);
}

static void load_dialect_put_model(struct json_writer *w, str model)
{
    json_key_z(w, "model");
    json_put_text(w, model);
}

static void load_dialect_read_text(struct load_call *call, struct json v)
{
    str text = json_text(v, &call->arena);
    if (text.len)
        load_call_add_text(call, text);
}

static bool load_dialect_count(struct json from, const char *key, uint64_t *out)
{
    return json_u64(json_member(from, key), out);
}

/* {"error": "..."} or {"error": {"message": "..."}} */
static bool load_dialect_read_error(struct load_call *call, struct json event)
{
    struct json error = json_member(event, "error");
    if (json_kind(error) == JSON_KIND_ABSENT || json_kind(error) == JSON_KIND_NULL)
        return false;
    struct json text = json_kind(error) == JSON_KIND_STRING ? error : json_member(error, "message");
    load_call_fail(call, "error event", json_text(text, &call->arena));
    return true;
}

/* --- OpenAI chat and completions ------------------------------------------------------------ */

/* ignore_eos: vLLM's and llama.cpp's word; replies of one length are the same work for all. */
static void load_dialect_put_openai(struct json_writer *w, const struct load_body *b)
{
    json_put_key_u64(w, "max_tokens", b->out);
    json_put_key_u64(w, "temperature", 0);
    json_put_key_bool(w, "stream", true);
    json_key_z(w, "stream_options");
    json_put_raw(w, STR("{\"include_usage\":true}"));
    if (!b->wants_json)
        json_put_key_bool(w, "ignore_eos", true);
}

static void load_dialect_put_chat(struct buf *out, const struct load_body *b)
{
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    load_dialect_put_model(&w, b->model);
    load_dialect_put_messages(&w, b, true);
    load_dialect_put_openai(&w, b);
    if (b->wants_json) {
        json_key_z(&w, "response_format");
        json_put_raw(&w, STR("{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"answer\","
                             "\"strict\":true,\"schema\":" LOAD_DIALECT_SCHEMA "}}"));
    }
    json_close_object(&w);
}

static void load_dialect_put_complete(struct buf *out, const struct load_body *b)
{
    struct buf prompt;
    struct json_writer w = json_writer(out);
    buf_init(&prompt, LOAD_TEXT_MAX);
    buf_add(&prompt, b->system);
    for (uint32_t i = 0; i < b->turns_count; i++)
        buf_printf(&prompt, "%s%.*s%.*s", i || b->system.len ? "\n\n" : "",
                   STR_ARG(b->turns[i].user), STR_ARG(b->turns[i].reply));
    json_open_object(&w);
    load_dialect_put_model(&w, b->model);
    json_key_z(&w, "prompt");
    json_put_text(&w, buf_view(&prompt));
    load_dialect_put_openai(&w, b);
    json_close_object(&w);
    out->full = out->full || prompt.full;
    buf_deinit(&prompt);
}

/* Counts stand in "usage"; llama.cpp tells what came from its cache in "timings" too. */
static void load_dialect_read_usage(struct load_call *call, struct json event)
{
    struct json usage = json_member(event, "usage");
    struct json details = json_member(usage, "prompt_tokens_details");
    if (load_dialect_count(usage, "prompt_tokens", &call->prompt_tokens) &&
        load_dialect_count(usage, "completion_tokens", &call->output_tokens))
        call->has_usage = true;
    if (load_dialect_count(details, "cached_tokens", &call->cached_tokens) ||
        load_dialect_count(json_member(event, "timings"), "cache_n", &call->cached_tokens))
        call->has_cached = true;
}

static void load_dialect_read_openai(struct load_call *call, str name, struct json event)
{
    (void)name;
    if (load_dialect_read_error(call, event))
        return;
    struct json choice = json_at(json_member(event, "choices"), 0);
    struct json delta = json_member(choice, "delta");
    load_dialect_read_text(call, json_member(delta, "reasoning_content"));
    load_dialect_read_text(call, json_member(delta, "content"));
    load_dialect_read_text(call, json_member(choice, "text"));
    if (json_kind(json_member(choice, "finish_reason")) == JSON_KIND_STRING)
        call->is_done = true;
    load_dialect_read_usage(call, event);
}

static str load_dialect_model_openai(struct json answer, struct arena *a)
{
    return json_text(json_member(json_at(json_member(answer, "data"), 0), "id"), a);
}

/* --- Anthropic messages --------------------------------------------------------------------- */

static void load_dialect_put_anthropic(struct buf *out, const struct load_body *b)
{
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    load_dialect_put_model(&w, b->model);
    if (b->system.len) {
        json_key_z(&w, "system");
        json_put_text(&w, b->system);
    }
    load_dialect_put_messages(&w, b, false);
    json_put_key_u64(&w, "max_tokens", b->out);
    json_put_key_u64(&w, "temperature", 0);
    json_put_key_bool(&w, "stream", true);
    json_close_object(&w);
}

/* input_tokens leaves out what the cache gave. */
static void load_dialect_read_input(struct load_call *call, struct json usage)
{
    uint64_t input = 0, made = 0;
    if (!load_dialect_count(usage, "input_tokens", &input))
        return;
    load_dialect_count(usage, "cache_creation_input_tokens", &made);
    call->has_cached = load_dialect_count(usage, "cache_read_input_tokens", &call->cached_tokens) ||
                       call->has_cached;
    call->prompt_tokens = input + made + call->cached_tokens;
}

static void load_dialect_read_anthropic(struct load_call *call, str name, struct json event)
{
    struct json delta = json_member(event, "delta"), usage = json_member(event, "usage");
    if (load_dialect_read_error(call, event))
        return;
    if (str_eq(name, STR("message_start")))
        load_dialect_read_input(call, json_member(json_member(event, "message"), "usage"));
    if (str_eq(name, STR("content_block_delta"))) {
        load_dialect_read_text(call, json_member(delta, "thinking"));
        load_dialect_read_text(call, json_member(delta, "text"));
    }
    if (str_eq(name, STR("message_delta"))) {
        load_dialect_read_input(call, usage);
        call->has_usage = load_dialect_count(usage, "output_tokens", &call->output_tokens);
    }
    if (str_eq(name, STR("message_stop")))
        call->is_done = true;
}

/* --- OpenAI Responses ----------------------------------------------------------------------- */

static void load_dialect_put_responses(struct buf *out, const struct load_body *b)
{
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    load_dialect_put_model(&w, b->model);
    if (b->system.len) {
        json_key_z(&w, "instructions");
        json_put_text(&w, b->system);
    }
    json_key_z(&w, "input");
    json_open_array(&w);
    for (uint32_t i = 0; i < b->turns_count; i++) {
        load_dialect_put_message(&w, "user", b->turns[i].user);
        if (b->turns[i].reply.len)
            load_dialect_put_message(&w, "assistant", b->turns[i].reply);
    }
    json_close_array(&w);
    json_put_key_u64(&w, "max_output_tokens", b->out);
    json_put_key_u64(&w, "temperature", 0);
    json_put_key_bool(&w, "store", false);
    json_put_key_bool(&w, "stream", true);
    if (b->wants_json) {
        json_key_z(&w, "text");
        json_put_raw(&w, STR("{\"format\":{\"type\":\"json_schema\",\"name\":\"answer\","
                             "\"strict\":true,\"schema\":" LOAD_DIALECT_SCHEMA "}}"));
    }
    json_close_object(&w);
}

static void load_dialect_read_responses(struct load_call *call, str name, struct json event)
{
    struct json response = json_member(event, "response"), usage = json_member(response, "usage");
    (void)name; /* the same as the event's type */
    str type = json_text(json_member(event, "type"), &call->arena);
    if (load_dialect_read_error(call, event) || load_dialect_read_error(call, response))
        return;
    if (str_eq_z(type, "response.output_text.delta") ||
        str_eq_z(type, "response.reasoning_summary_text.delta"))
        load_dialect_read_text(call, json_member(event, "delta"));
    if (!str_eq_z(type, "response.completed") && !str_eq_z(type, "response.incomplete"))
        return;
    call->is_done = true;
    call->has_usage = load_dialect_count(usage, "input_tokens", &call->prompt_tokens) &&
                      load_dialect_count(usage, "output_tokens", &call->output_tokens);
    call->has_cached = load_dialect_count(json_member(usage, "input_tokens_details"),
                                          "cached_tokens", &call->cached_tokens);
}

/* --- Ollama --------------------------------------------------------------------------------- */

/* num_ctx: without it a long prompt would be cut, and the comparison would be none. */
static void load_dialect_put_ollama(struct buf *out, const struct load_body *b)
{
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    load_dialect_put_model(&w, b->model);
    load_dialect_put_messages(&w, b, true);
    json_put_key_bool(&w, "stream", true);
    if (b->wants_json) {
        json_key_z(&w, "format");
        json_put_raw(&w, STR(LOAD_DIALECT_SCHEMA));
    }
    json_key_z(&w, "options");
    json_open_object(&w);
    json_put_key_u64(&w, "num_predict", b->out);
    json_put_key_u64(&w, "num_ctx", b->context);
    json_put_key_u64(&w, "temperature", 0);
    json_close_object(&w);
    json_close_object(&w);
}

static void load_dialect_read_ollama(struct load_call *call, str name, struct json event)
{
    struct json message = json_member(event, "message");
    (void)name;
    if (load_dialect_read_error(call, event))
        return;
    load_dialect_read_text(call, json_member(message, "thinking"));
    load_dialect_read_text(call, json_member(message, "content"));
    if (!json_bool(json_member(event, "done"), &call->is_done) || !call->is_done)
        return;
    call->has_usage = load_dialect_count(event, "prompt_eval_count", &call->prompt_tokens) &&
                      load_dialect_count(event, "eval_count", &call->output_tokens);
}

static str load_dialect_model_ollama(struct json answer, struct arena *a)
{
    return json_text(json_member(json_at(json_member(answer, "models"), 0), "name"), a);
}

static const char *const load_dialect_json[] = {"Content-Type: application/json", NULL};
static const char *const load_dialect_version[] = {"Content-Type: application/json",
                                                   "anthropic-version: 2023-06-01", NULL};

static const struct load_dialect load_dialects[] = {
    {"chat", "/v1/chat/completions", "/v1/models", load_dialect_json, SSE_FORM_EVENTS,
     load_dialect_put_chat, load_dialect_read_openai, load_dialect_model_openai},
    {"completions", "/v1/completions", "/v1/models", load_dialect_json, SSE_FORM_EVENTS,
     load_dialect_put_complete, load_dialect_read_openai, load_dialect_model_openai},
    {"anthropic", "/v1/messages", "/v1/models", load_dialect_version, SSE_FORM_EVENTS,
     load_dialect_put_anthropic, load_dialect_read_anthropic, load_dialect_model_openai},
    {"responses", "/v1/responses", "/v1/models", load_dialect_json, SSE_FORM_EVENTS,
     load_dialect_put_responses, load_dialect_read_responses, load_dialect_model_openai},
    {"ollama", "/api/chat", "/api/tags", load_dialect_json, SSE_FORM_LINES,
     load_dialect_put_ollama, load_dialect_read_ollama, load_dialect_model_ollama},
};

const struct load_dialect *load_dialect_find(str name)
{
    for (size_t i = 0; i < countof(load_dialects); i++)
        if (str_eq_z(name, load_dialects[i].name))
            return &load_dialects[i];
    return NULL;
}

bool load_dialect_has_json(const struct load_dialect *d)
{
    return d->put == load_dialect_put_chat || d->put == load_dialect_put_ollama ||
           d->put == load_dialect_put_responses;
}
