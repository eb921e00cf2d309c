/* Ollama's /api paths: BEHAVIOUR 5.6. */
#include <string.h>

#include "dialect/dialect_client.h"
#include "dialect/dialect_field.h"
#include "dialect/dialect_ollama_reply.h"
#include "dialect/dialect_tool.h"

/* What the reader learns in one field and needs in another. */
struct reading {
    struct json system_value, images;
    str prompt, system;
    bool is_generate, raw, logprobs, no_text;
    uint32_t top_logprobs;
};

static struct reading *reading(struct dialect_read *r) { return r->own; }

/* ---- Messages ---- */

struct message_reading {
    struct api_message *m;
    str reasoning, call_id, tool_name;
    struct json content, calls, images;
};

/* Their bytes wait for models that see: until then each becomes a note in the text. */
static bool read_images(struct dialect_read *r, struct json v)
{
    if (json_kind(v) != JSON_KIND_ARRAY)
        return dialect_read_wrong(r, v, "array");
    for (struct json_walk w = json_walk(v); json_next(&w);)
        if (json_kind(w.value) != JSON_KIND_STRING)
            return dialect_read_wrong(r, w.value, "string");
    return true;
}

static void add_images(struct api_part *parts, uint32_t *n, struct json images, str call_id)
{
    for (uint32_t i = json_count(images); i > 0; i--)
        parts[(*n)++] = (struct api_part){.kind = API_PART_IMAGE, .media_type = STR("image/*"),
                                          .id = call_id};
}

static bool message_role(struct dialect_read *r, struct json v)
{
    static const char *const names[] = {"system", "user", "assistant", "tool"};
    static const enum api_role roles[] = {API_ROLE_SYSTEM, API_ROLE_USER, API_ROLE_ASSISTANT,
                                          API_ROLE_TOOL};
    struct message_reading *mr = r->own;
    size_t i;
    if (!dialect_read_choice(r, v, names, countof(names), &i))
        return false;
    mr->m->role = roles[i];
    return true;
}

static bool message_content(struct dialect_read *r, struct json v)
{
    ((struct message_reading *)r->own)->content = v;
    return json_kind(v) == JSON_KIND_STRING || json_kind(v) == JSON_KIND_ARRAY ||
           dialect_read_wrong(r, v, "string or array");
}

static bool message_images(struct dialect_read *r, struct json v)
{
    ((struct message_reading *)r->own)->images = v;
    return read_images(r, v);
}

static bool message_thinking(struct dialect_read *r, struct json v)
{
    return dialect_read_text(r, v, &((struct message_reading *)r->own)->reasoning);
}

static bool message_calls(struct dialect_read *r, struct json v)
{
    ((struct message_reading *)r->own)->calls = v;
    return json_kind(v) == JSON_KIND_ARRAY || dialect_read_wrong(r, v, "array");
}

static bool message_tool_name(struct dialect_read *r, struct json v)
{
    return dialect_read_text(r, v, &((struct message_reading *)r->own)->tool_name);
}

static bool message_call_id(struct dialect_read *r, struct json v)
{
    return dialect_read_text(r, v, &((struct message_reading *)r->own)->call_id);
}

static const struct dialect_field message_fields[] = {
    {"role", DIALECT_KIND_READ, 0, message_role},
    {"content", DIALECT_KIND_READ, 0, message_content},
    {"thinking", DIALECT_KIND_READ, 0, message_thinking},
    {"images", DIALECT_KIND_READ, 0, message_images},
    {"tool_calls", DIALECT_KIND_READ, 0, message_calls},
    {"tool_name", DIALECT_KIND_READ, 0, message_tool_name},
    {"tool_call_id", DIALECT_KIND_READ, 0, message_call_id},
};

static struct api_part text_part(const struct message_reading *mr, str text)
{
    if (mr->m->role != API_ROLE_TOOL)
        return (struct api_part){.kind = API_PART_TEXT, .text = text};
    return (struct api_part){.kind = API_PART_RESULT, .text = text, .id = mr->call_id,
                             .name = mr->tool_name};
}

static bool read_call(struct dialect_read *r, struct json v, struct api_part *out)
{
    struct json function = json_member(v, "function"), name = json_member(function, "name");
    struct json args = json_member(function, "arguments"), id = json_member(v, "id");
    *out = (struct api_part){.kind = API_PART_CALL};
    if (json_kind(function) != JSON_KIND_OBJECT)
        return dialect_read_member(r, v, "function", "object expected");
    if (json_kind(name) != JSON_KIND_STRING)
        return dialect_read_member(r, function, "name", "string expected");
    if (json_kind(id) > JSON_KIND_NULL && !dialect_read_text(r, id, &out->id))
        return false;
    if (!dialect_read_text(r, name, &out->name))
        return false;
    if (out->name.len == 0)
        return dialect_read_fail(r, ERR_REQUEST, name, "at least 1 byte expected");
    if (json_kind(args) == JSON_KIND_STRING)
        return dialect_read_text(r, args, &out->text);
    if (json_kind(args) > JSON_KIND_NULL && json_kind(args) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, args, "object or string");
    out->text = json_kind(args) == JSON_KIND_OBJECT ? json_raw(args) : STR("{}");
    return true;
}

/* One string, or text parts as newer clients of other protocols send them. */
static bool read_content(struct dialect_read *r, const struct message_reading *mr,
                         struct api_part *parts, uint32_t *n)
{
    str text;
    if (json_kind(mr->content) == JSON_KIND_STRING) {
        if (!dialect_read_text(r, mr->content, &text))
            return false;
        parts[(*n)++] = text_part(mr, text);
        return true;
    }
    for (struct json_walk w = json_walk(mr->content); json_next(&w);) {
        struct json value = json_member(w.value, "text");
        if (json_kind(value) != JSON_KIND_STRING)
            return dialect_read_member(r, w.value, "text", "string expected");
        if (!dialect_read_text(r, value, &text))
            return false;
        parts[(*n)++] = text_part(mr, text);
    }
    return true;
}

static bool read_message(struct dialect_read *r, struct json v, struct api_message *m)
{
    struct message_reading mr = {.m = m};
    void *outer = r->own;
    uint32_t n = 0;
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    if (json_kind(json_member(v, "role")) <= JSON_KIND_NULL)
        return dialect_read_member(r, v, "role", "required");
    r->own = &mr;
    bool ok = dialect_read_object(r, v, message_fields, countof(message_fields));
    r->own = outer;
    if (!ok)
        return false;
    bool is_list = json_kind(mr.content) == JSON_KIND_ARRAY;
    uint32_t count = 2 + (is_list ? json_count(mr.content) : 0) + json_count(mr.calls) +
                     json_count(mr.images);
    struct api_part *parts = dialect_read_array(r, count, sizeof *parts);
    if (parts == NULL)
        return false;
    if (mr.reasoning.len && m->role == API_ROLE_ASSISTANT)
        parts[n++] = (struct api_part){.kind = API_PART_REASONING, .text = mr.reasoning};
    if (!read_content(r, &mr, parts, &n))
        return false;
    add_images(parts, &n, mr.images, mr.call_id);
    for (struct json_walk w = json_walk(mr.calls); json_next(&w);)
        if (!read_call(r, w.value, &parts[n++]))
            return false;
    m->parts = parts;
    m->parts_count = n;
    return true;
}

static bool read_messages(struct dialect_read *r, struct json v)
{
    return dialect_read_messages(r, v, 0, read_message);
}

/* ---- Options ---- */

static bool option_seed(struct dialect_read *r, struct json v)
{
    int64_t seed;
    if (!dialect_read_int(r, v, INT64_MIN, INT64_MAX, &seed))
        return false;
    return seed == 0 || seed == -1 || dialect_field_seed(r, v); /* both: drawn */
}

static bool option_predict(struct dialect_read *r, struct json v)
{
    int64_t n;
    if (!dialect_read_int(r, v, -2, INT32_MAX, &n))
        return false;
    reading(r)->no_text = n == 0;
    return n <= 0 || dialect_read_number(r, v, API_FIELD_TOKENS_MAX);
}

static bool option_repeat_last(struct dialect_read *r, struct json v)
{
    int64_t n;
    return dialect_read_int(r, v, -1, INT32_MAX, &n) &&
           api_request_set(r->rq, API_FIELD_REPEAT_LAST, n < 0 ? (double)API_REPEAT_ALL : (double)n,
                           STR("options.repeat_last_n"), r->e);
}

static bool only(struct dialect_read *r, struct json v, double value)
{
    double n;
    if (json_kind(v) != JSON_KIND_NUMBER)
        return dialect_read_wrong(r, v, "number");
    return (json_double(v, &n) && n == value) ||
           dialect_read_fail(r, ERR_REQUEST, v, "only %g is supported", value);
}

static bool option_tfs(struct dialect_read *r, struct json v) { return only(r, v, 1); }
static bool option_mirostat(struct dialect_read *r, struct json v) { return only(r, v, 0); }

static const struct dialect_field options[] = {
    {"temperature", NUMBER(TEMPERATURE)},
    {"top_k", NUMBER(TOP_K)},
    {"top_p", NUMBER(TOP_P)},
    {"min_p", NUMBER(MIN_P)},
    {"typical_p", NUMBER(TYPICAL_P)},
    {"repeat_penalty", NUMBER(REPEAT_PENALTY)},
    {"repeat_last_n", READ(option_repeat_last)},
    {"presence_penalty", NUMBER(PRESENCE_PENALTY)},
    {"frequency_penalty", NUMBER(FREQUENCY_PENALTY)},
    {"seed", READ(option_seed)},
    {"num_predict", READ(option_predict)},
    {"num_ctx", DIALECT_KIND_AT_LEAST_1, API_FIELD_CONTEXT_MAX, NULL},
    {"stop", READ(dialect_read_stop)},
    {"tfs_z", READ(option_tfs)},
    {"mirostat", READ(option_mirostat)},
    {"mirostat_tau", IGNORED},
    {"mirostat_eta", IGNORED},
    {"num_keep", IGNORED},
    {"num_batch", IGNORED},
    {"num_gpu", IGNORED},
    {"main_gpu", IGNORED},
    {"num_thread", IGNORED},
    {"numa", IGNORED},
    {"use_mmap", IGNORED},
    {"use_mlock", IGNORED},
    {"low_vram", IGNORED},
    {"f16_kv", IGNORED},
    {"vocab_only", IGNORED},
    {"penalize_newline", IGNORED},
};

static bool read_options(struct dialect_read *r, struct json v)
{
    return dialect_read_object(r, v, options, countof(options));
}

/* ---- The rest ---- */

/* A boolean, its name, or a level; off is neutral, the rest needs thinking to be built. */
static bool read_think(struct dialect_read *r, struct json v)
{
    bool on = false, is_flag = json_bool(v, &on);
    bool is_true = json_text_eq(v, STR("true")), is_false = json_text_eq(v, STR("false"));
    if (!is_flag && json_kind(v) != JSON_KIND_STRING)
        return dialect_read_wrong(r, v, "boolean or string");
    if (is_flag ? !on : is_false) {
        r->rq->think = API_THINK_OFF;
        r->rq->given |= API_GIVEN(THINK);
        return true;
    }
    if (!is_flag && !is_true && !dialect_read_effort(r, v))
        return false;
    if (is_flag || is_true) {
        r->rq->think = API_THINK_ON;
        r->rq->given |= API_GIVEN(THINK);
    }
    return true;
}

static bool read_format(struct dialect_read *r, struct json v)
{
    bool is_text = json_kind(v) == JSON_KIND_STRING;
    if (json_text_eq(v, STR("")))
        return true;
    if (!is_text && json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "\"json\" or a schema");
    if (is_text && !json_text_eq(v, STR("json")))
        return dialect_read_fail(r, ERR_REQUEST, v, "\"json\" or a schema expected");
    return is_text ? dialect_field_set_format(r, v, API_FORMAT_JSON, STR(""))
                   : dialect_field_set_format(r, v, API_FORMAT_SCHEMA, json_raw(v));
}

static bool read_tool(struct dialect_read *r, struct json v, struct api_tool *out)
{
    struct json function = json_member(v, "function");
    if (json_kind(function) != JSON_KIND_OBJECT)
        return dialect_read_member(r, v, "function", "object expected");
    out->kind = API_TOOL_FUNCTION;
    return dialect_tool_read(r, function, "parameters", out);
}

static bool read_tools(struct dialect_read *r, struct json v)
{
    return dialect_tool_list(r, v, read_tool);
}

static bool read_truncate(struct dialect_read *r, struct json v)
{
    bool cut;
    if (!dialect_read_bool(r, v, &cut))
        return false;
    r->rq->truncate = cut ? API_TRUNCATE_ROUNDS : API_TRUNCATE_NONE;
    r->rq->given |= API_GIVEN(TRUNCATE);
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
    reading(r)->top_logprobs = (uint32_t)n;
    return true;
}

static bool read_prompt(struct dialect_read *r, struct json v)
{
    return dialect_read_text(r, v, &reading(r)->prompt);
}

static bool read_system(struct dialect_read *r, struct json v)
{
    reading(r)->system_value = v;
    return dialect_read_text(r, v, &reading(r)->system);
}

static bool read_suffix(struct dialect_read *r, struct json v)
{
    return dialect_read_text(r, v, &r->rq->suffix);
}

static bool read_raw(struct dialect_read *r, struct json v)
{
    return dialect_read_bool(r, v, &reading(r)->raw);
}

static bool keep_images(struct dialect_read *r, struct json v)
{
    reading(r)->images = v;
    return read_images(r, v);
}

static bool read_empty(struct dialect_read *r, struct json v)
{
    return json_text_eq(v, STR("")) ||
           (json_kind(v) == JSON_KIND_ARRAY && json_count(v) == 0) ||
           dialect_read_fail(r, ERR_REQUEST, v, "this field is not supported");
}

#define COMMON                                          \
    {"model", DIALECT_KIND_TEXT, AT(model), NULL},      \
    {"stream", DIALECT_KIND_BOOL, AT(stream), NULL},    \
    {"think", READ(read_think)},                        \
    {"format", READ(read_format)},                      \
    {"keep_alive", READ(dialect_read_keep_alive)},      \
    {"options", READ(read_options)},                    \
    {"logprobs", READ(read_logprobs)},                  \
    {"top_logprobs", READ(read_top_logprobs)},          \
    {"truncate", READ(read_truncate)},                  \
    {"shift", IGNORED},                                 \
    {"shoal", DIALECT_KIND_SKIPPED, 0, NULL}
static const struct dialect_field chat_fields[] = {
    COMMON,
    {"messages", READ(read_messages)},
    {"tools", READ(read_tools)},
    {"session", READ(dialect_read_session)},
    {"cache", READ(dialect_read_cache)},
    {"effort", READ(dialect_read_effort)},
    {"max_context", READ(dialect_field_context_max)},
};
static const struct dialect_field generate_fields[] = {
    COMMON,
    {"prompt", READ(read_prompt)},
    {"suffix", READ(read_suffix)},
    {"system", READ(read_system)},
    {"raw", READ(read_raw)},
    {"images", READ(keep_images)},
    {"template", READ(read_empty)},
    {"context", READ(read_empty)},
};
static const struct dialect_field show_fields[] = {
    {"model", DIALECT_KIND_TEXT, AT(model), NULL},
    {"name", DIALECT_KIND_TEXT, AT(model), NULL},
    {"verbose", IGNORED},
    {"system", IGNORED},
    {"template", IGNORED},
    {"options", IGNORED},
};

/* ---- Requests ---- */

/* A prompt with the model's template is a chat of one turn; raw and suffix go without. */
static bool make_prompt(struct dialect_read *r)
{
    struct reading *own = reading(r);
    struct api_request *rq = r->rq;
    uint32_t n = 0;
    if (own->prompt.len == 0 && rq->suffix.len == 0)
        return true;
    if (own->raw || rq->suffix.len) {
        struct api_input *input = dialect_read_array(r, 1, sizeof *input);
        if (own->system.len)
            return dialect_read_fail(r, ERR_REQUEST, own->system_value,
                                     "not with raw or suffix: there is no template to put it in");
        if (input == NULL)
            return false;
        input->text = own->prompt;
        rq->inputs = input;
        rq->inputs_count = 1;
        rq->kind = API_KIND_COMPLETE;
        rq->parse_special = true;
        return true;
    }
    uint32_t images = json_count(own->images), parts_count = 0;
    struct api_message *m = dialect_read_array(r, 2, sizeof *m);
    struct api_part *parts = dialect_read_array(r, (size_t)images + 2, sizeof *parts);
    if (m == NULL || parts == NULL)
        return false;
    if (own->system.len) {
        parts[images + 1] = (struct api_part){.kind = API_PART_TEXT, .text = own->system};
        m[n] = (struct api_message){.role = API_ROLE_SYSTEM, .parts = &parts[images + 1],
                                    .parts_count = 1};
        n++;
    }
    parts[parts_count++] = (struct api_part){.kind = API_PART_TEXT, .text = own->prompt};
    add_images(parts, &parts_count, own->images, (str){NULL, 0});
    m[n] = (struct api_message){.role = API_ROLE_USER, .parts = parts, .parts_count = parts_count};
    rq->messages = m;
    rq->messages_count = n + 1;
    return true;
}

/* Nothing to say: the model is loaded, or unloaded where it shall not stay; num_predict 0 only
 * fills the cache. */
static void choose_kind(struct dialect_read *r)
{
    struct api_request *rq = r->rq;
    bool is_empty = rq->messages_count == 0 && rq->inputs_count == 0;
    bool is_out = api_request_is_given(rq, API_FIELD_KEEP_ALIVE) && rq->keep_alive_ms == 0;
    if (is_empty)
        rq->kind = is_out ? API_KIND_UNLOAD : API_KIND_LOAD;
    else if (reading(r)->no_text)
        rq->kind = API_KIND_PREFILL;
    rq->continue_last = !is_empty && rq->messages_count > 0 &&
                        rq->messages[rq->messages_count - 1].role == API_ROLE_ASSISTANT;
}

static bool read_text_request(struct dialect_read *r)
{
    struct api_request *rq = r->rq;
    struct reading *own = reading(r);
    struct json body;
    rq->temperature = 0.8f;
    rq->top_k = 40;
    rq->top_p = 0.9f;
    rq->repeat_penalty = 1.1f;
    rq->stream = r->in->path->streams;
    if (!dialect_read_body(r, &body) ||
        !dialect_read_object(r, body, own->is_generate ? generate_fields : chat_fields,
                             own->is_generate ? countof(generate_fields) : countof(chat_fields)))
        return false;
    if (rq->model.len == 0 && !r->in->has_model)
        return dialect_read_missing(r, "model");
    if (own->top_logprobs && !own->logprobs)
        return dialect_read_fail(r, ERR_REQUEST, json_member(body, "top_logprobs"),
                                 "needs logprobs: true");
    if (own->logprobs && !api_request_set(rq, API_FIELD_LOGPROBS, own->top_logprobs + 1.0,
                                          STR("top_logprobs"), r->e))
        return false;
    if (own->is_generate && !make_prompt(r))
        return false;
    choose_kind(r);
    return dialect_read_extensions(r, body);
}

static bool read_show(struct dialect_read *r)
{
    struct json body;
    if (!dialect_read_body(r, &body) ||
        !dialect_read_object(r, body, show_fields, countof(show_fields)))
        return false;
    return r->rq->model.len || dialect_read_missing(r, "model");
}

static bool is_path(const struct dialect_read *r, const char *path)
{
    return strcmp(r->in->path->path, path) == 0;
}

static bool read_by_path(struct dialect_read *r)
{
    if (is_path(r, "/api/chat") || is_path(r, "/api/generate"))
        return read_text_request(r);
    if (is_path(r, "/api/show"))
        return read_show(r);
    if (is_path(r, "/api/tags") || is_path(r, "/api/ps"))
        return true;
    return api_error_set(r->e, ERR_UNSUPPORTED, "", str_of(r->in->path->path),
                         "%s %s is not built yet", r->in->path->method, r->in->path->path);
}

static bool read_request(struct api_request *out, struct dialect_state *st,
                         const struct dialect_in *in, struct arena *a, struct api_error *e)
{
    struct dialect_ollama_state *own = (struct dialect_ollama_state *)st;
    struct reading what = {.is_generate = strcmp(in->path->path, "/api/generate") == 0};
    struct dialect_read r = {out, st, in, a, e, &what, NULL};
    api_request_init(out);
    st->prompt_name = what.is_generate ? "prompt" : NULL;
    out->kind = in->path->kind;
    own->is_chat = strcmp(in->path->path, "/api/chat") == 0;
    if (!read_by_path(&r) || !dialect_read_finish(&r))
        return false;
    own->kind = out->kind;
    return true;
}

/* Of the last rows nothing is built. */
static const struct dialect_path paths[] = {
    {"POST", "/api/chat", API_KIND_CHAT, true},
    {"POST", "/api/generate", API_KIND_CHAT, true},
    {"GET", "/api/tags", API_KIND_LIST, false},
    {"GET", "/api/ps", API_KIND_PS, false},
    {"POST", "/api/show", API_KIND_SHOW, false},
    {"POST", "/api/embed", API_KIND_EMBED, false},
    {"POST", "/api/embeddings", API_KIND_EMBED, false},
    {"POST", "/api/push", API_KIND_LOAD, false},
    {"POST", "/api/create", API_KIND_LOAD, false},
    {"POST", "/api/copy", API_KIND_LOAD, false},
    {"HEAD", "/api/blobs/{}", API_KIND_SHOW, false},
    {"POST", "/api/blobs/{}", API_KIND_LOAD, false},
};

const struct dialect dialect_ollama = {
    .name = "ollama",
    .family = DIALECT_OLLAMA,
    .stream_type = "application/x-ndjson",
    .paths = paths,
    .paths_count = countof(paths),
    .state_size = sizeof(struct dialect_ollama_state),
    .read_request = read_request,
    .write_event = dialect_ollama_reply_event,
    .write_error = dialect_ollama_reply_error,
    .write_ping = dialect_ollama_reply_ping,
    .client = &dialect_ollama_client,
};
