/* POST /v1/messages and /v1/messages/count_tokens: BEHAVIOUR 5.8. */
#include <string.h>

#include "base/map.h"
#include "dialect/dialect_anthropic_reply.h"
#include "dialect/dialect_client.h"
#include "dialect/dialect_field.h"
#include "dialect/dialect_tool.h"

/* What the reader learns in one field and needs in another. */
struct reading {
    struct json system, messages, tools, tool_choice;
    bool no_text;
    struct map calls; /* ids of the calls read so far */
};

static struct reading *reading(struct dialect_read *r) { return r->own; }

/* ---- Blocks ---- */

/* Parts of one message, as they grow. */
struct message_reading {
    struct api_message *m;
    struct api_part *parts;
};

static void add_part(struct message_reading *mr, struct api_part p)
{
    mr->parts[mr->m->parts_count++] = p;
}

/* What of a block can be shown to a model as text; *out stays without a pointer when nothing can.
 * Any type is taken: a history holds what other servers and newer clients put there. */
static bool block_text(struct dialect_read *r, struct json v, str *out)
{
    struct json text = json_member(v, "text"), content = json_member(v, "content");
    struct json source = json_member(v, "source"), type = json_member(v, "type");
    *out = (str){NULL, 0};
    if (json_text_eq(type, STR("text")))
        return dialect_read_text(r, text, out);
    if (json_text_eq(type, STR("image"))) {
        dialect_read_note_path(r, "image_omitted", v);
        *out = STR("[an image was omitted: this model does not see images]");
        return true;
    }
    if (json_text_eq(type, STR("document"))) {
        if (json_text_eq(json_member(source, "type"), STR("text")))
            return dialect_read_text(r, json_member(source, "data"), out);
        dialect_read_note_path(r, "file_omitted", v);
        *out = STR("[a document was omitted]");
        return true;
    }
    if (json_kind(text) == JSON_KIND_STRING)
        return dialect_read_text(r, text, out);
    if (json_kind(content) == JSON_KIND_STRING)
        return dialect_read_text(r, content, out);
    dialect_read_note_path(r, "block_dropped", v);
    return true;
}

static bool read_thinking(struct dialect_read *r, struct message_reading *mr, struct json v)
{
    str text = {NULL, 0};
    if (!dialect_read_text_or_none(r, json_member(v, "thinking"), &text))
        return false;
    if (text.len)
        add_part(mr, (struct api_part){.kind = API_PART_REASONING, .text = text});
    return true;
}

static bool read_use(struct dialect_read *r, struct message_reading *mr, struct json v)
{
    struct api_part p = {.kind = API_PART_CALL, .text = STR("{}")};
    struct json name = json_member(v, "name"), input = json_member(v, "input");
    if (json_kind(name) != JSON_KIND_STRING)
        return dialect_read_member(r, v, "name", "string expected");
    if (!dialect_read_text(r, name, &p.name) ||
        !dialect_read_text_or_none(r, json_member(v, "id"), &p.id))
        return false;
    if (p.name.len == 0)
        return dialect_read_fail(r, ERR_REQUEST, name, "at least 1 byte expected");
    if (json_kind(input) > JSON_KIND_NULL)
        p.text = json_raw(input);
    if (json_kind(json_member(v, "partial_json")) > JSON_KIND_NULL && /* of another shoal */
        !dialect_read_text(r, json_member(v, "partial_json"), &p.text))
        return false;
    if (p.id.len && !map_put(&reading(r)->calls, p.id, 1))
        return dialect_read_array(r, SIZE_MAX, 1) != NULL;
    add_part(mr, p);
    return true;
}

static bool put_before(struct dialect_read *r, str head, str *text)
{
    char *both = arena_alloc_text(r->a, head.len + text->len + 1);
    if (head.p == NULL || both == NULL)
        return dialect_read_array(r, SIZE_MAX, 1) != NULL;
    memcpy(both, head.p, head.len);
    if (text->len)
        memcpy(both + head.len, text->p, text->len);
    *text = str_view(both, head.len + text->len);
    return true;
}

/* What a tool returned; a result whose call is not in the history becomes text of the user. */
static bool add_result(struct dialect_read *r, struct message_reading *mr, struct api_part p)
{
    bool is_known = map_find(&reading(r)->calls, p.id) != NULL;
    if (p.is_error && !put_before(r, STR("[tool error] "), &p.text))
        return false;
    if (!is_known) {
        str head = arena_printf(r->a, "[result of the unknown call %.*s] ", STR_ARG(p.id));
        if (!put_before(r, head, &p.text))
            return false;
        p = (struct api_part){.kind = API_PART_TEXT, .text = p.text};
    }
    add_part(mr, p);
    return true;
}

static bool read_result(struct dialect_read *r, struct message_reading *mr, struct json v)
{
    struct api_part p = {.kind = API_PART_RESULT, .text = STR("")};
    struct json content = json_member(v, "content"), failed = json_member(v, "is_error");
    uint32_t before = mr->m->parts_count;
    if (!dialect_read_text_or_none(r, json_member(v, "tool_use_id"), &p.id))
        return false;
    if (json_kind(failed) > JSON_KIND_NULL && !dialect_read_bool(r, failed, &p.is_error))
        return false;
    if (json_kind(content) == JSON_KIND_STRING)
        return dialect_read_text(r, content, &p.text) && add_result(r, mr, p);
    if (json_kind(content) > JSON_KIND_NULL && json_kind(content) != JSON_KIND_ARRAY)
        return dialect_read_wrong(r, content, "string or array");
    for (struct json_walk w = json_walk(content); json_next(&w);) {
        if (json_kind(w.value) != JSON_KIND_OBJECT)
            return dialect_read_wrong(r, w.value, "object");
        if (!block_text(r, w.value, &p.text))
            return false;
        if (p.text.p && !add_result(r, mr, p))
            return false;
        p.is_error = p.is_error && p.text.p == NULL; /* said once */
    }
    p.text = STR("");
    return mr->m->parts_count > before || add_result(r, mr, p);
}

static bool read_block(struct dialect_read *r, struct message_reading *mr, struct json v)
{
    struct json type = json_member(v, "type");
    str text;
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    if (json_text_eq(type, STR("thinking")) || json_text_eq(type, STR("redacted_thinking")))
        return read_thinking(r, mr, v);
    if (json_text_eq(type, STR("tool_use")) && mr->m->role == API_ROLE_ASSISTANT)
        return read_use(r, mr, v);
    if (json_text_eq(type, STR("tool_result")) && mr->m->role == API_ROLE_USER)
        return read_result(r, mr, v);
    if (!block_text(r, v, &text))
        return false;
    if (text.p)
        add_part(mr, (struct api_part){.kind = API_PART_TEXT, .text = text});
    return true;
}

/* Parts that a content can come to: a block is one, a result as many as its own blocks. */
static uint32_t count_parts(struct json content)
{
    uint32_t count = 1;
    if (json_kind(content) != JSON_KIND_ARRAY)
        return count;
    for (struct json_walk w = json_walk(content); json_next(&w);)
        count += 1 + json_count(json_member(w.value, "content"));
    return count;
}

/* The parts of m, or NULL with an error. */
static struct api_part *read_content(struct dialect_read *r, struct api_message *m,
                                     struct json content)
{
    struct message_reading mr = {.m = m};
    str text;
    mr.parts = dialect_read_array(r, count_parts(content), sizeof *mr.parts);
    if (mr.parts == NULL)
        return NULL;
    m->parts = mr.parts;
    if (json_kind(content) == JSON_KIND_STRING) {
        if (!dialect_read_text(r, content, &text))
            return NULL;
        add_part(&mr, (struct api_part){.kind = API_PART_TEXT, .text = text});
        return mr.parts;
    }
    if (json_kind(content) != JSON_KIND_ARRAY) {
        dialect_read_wrong(r, content, "string or array");
        return NULL;
    }
    for (struct json_walk w = json_walk(content); json_next(&w);)
        if (!read_block(r, &mr, w.value))
            return NULL;
    return mr.parts;
}

static bool read_message(struct dialect_read *r, struct json v, struct api_message *m)
{
    static const char *const names[] = {"user", "assistant", "system"};
    static const enum api_role roles[] = {API_ROLE_USER, API_ROLE_ASSISTANT, API_ROLE_SYSTEM};
    struct json role = json_member(v, "role"), content = json_member(v, "content");
    size_t i;
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    if (json_kind(role) <= JSON_KIND_NULL)
        return dialect_read_member(r, v, "role", "required");
    if (json_kind(content) <= JSON_KIND_NULL)
        return dialect_read_member(r, v, "content", "required");
    if (!dialect_read_choice(r, role, names, countof(names), &i))
        return false;
    m->role = roles[i];
    return read_content(r, m, content) != NULL;
}

/* Claude Code begins the system text with a line of its own whose checksum is another one in each
 * request: "x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch=fa690;"
 * (ggml-org/llama.cpp#20623). The checksum's digits become zeros, so that the rest of the prompt is
 * found in the prefix cache (A01). */
static bool zero_client_header(struct dialect_read *r, struct json v, struct api_part *parts)
{
    str rest = parts->text, line;
    if (r->in->limits->keeps_client_header ||
        !str_starts(rest, STR("x-anthropic-billing-header:")) || !str_split(&rest, '\n', &line))
        return true;
    size_t at = str_find(line, STR("cch="));
    if (at == STR_NONE)
        return true;
    char *text = arena_alloc_text(r->a, parts->text.len);
    if (text == NULL)
        return dialect_read_array(r, SIZE_MAX, 1) != NULL;
    memcpy(text, parts->text.p, parts->text.len);
    for (size_t i = at + strlen("cch="); i < line.len && text[i] != ';'; i++)
        text[i] = '0';
    parts->text.p = text;
    dialect_read_note_path(r, "normalised", v);
    return true;
}

/* The system prompt is the first turn; turns of role system stay where they are (A02). */
static bool read_messages(struct dialect_read *r)
{
    struct reading *own = reading(r);
    uint32_t count = json_count(own->messages), n = 0;
    if (json_kind(own->messages) == JSON_KIND_ABSENT)
        return dialect_read_missing(r, "messages");
    if (count == 0 || count > r->in->limits->messages_max)
        return dialect_read_fail(r, ERR_REQUEST, own->messages,
                                 "1 to %u messages expected, got %u", r->in->limits->messages_max,
                                 count);
    struct api_message *m = dialect_read_array(r, (size_t)count + 1, sizeof *m);
    if (m == NULL)
        return false;
    if (json_kind(own->system) != JSON_KIND_ABSENT) {
        m[n].role = API_ROLE_SYSTEM;
        struct api_part *parts = read_content(r, &m[n], own->system);
        if (parts == NULL || !zero_client_header(r, own->system, parts))
            return false;
        n += m[n].parts_count > 0;
    }
    for (struct json_walk w = json_walk(own->messages); json_next(&w);)
        if (!read_message(r, w.value, &m[n++]))
            return false;
    r->rq->messages = m;
    r->rq->messages_count = n;
    r->rq->continue_last = m[n - 1].role == API_ROLE_ASSISTANT;
    dialect_read_open(r);
    return true;
}

static bool keep_messages(struct dialect_read *r, struct json v)
{
    reading(r)->messages = v;
    return json_kind(v) == JSON_KIND_ARRAY || dialect_read_wrong(r, v, "array");
}

static bool keep_system(struct dialect_read *r, struct json v)
{
    reading(r)->system = v;
    return json_kind(v) == JSON_KIND_STRING || json_kind(v) == JSON_KIND_ARRAY ||
           dialect_read_wrong(r, v, "string or array");
}

/* ---- Tools ---- */

static bool read_tool(struct dialect_read *r, struct json v, struct api_tool *out)
{
    if (json_kind(json_member(v, "input_schema")) <= JSON_KIND_NULL) /* runs at Anthropic */
        return dialect_tool_hosted(r, v, json_member(v, "name"), out);
    out->kind = API_TOOL_FUNCTION;
    return dialect_tool_read(r, v, "input_schema", out);
}

static bool read_choice(struct dialect_read *r)
{
    static const char *const names[] = {"auto", "none", "any", "tool"};
    struct json v = reading(r)->tool_choice, type = json_member(v, "type");
    struct json serial = json_member(v, "disable_parallel_tool_use");
    bool is_serial = false;
    size_t i;
    if (json_kind(v) == JSON_KIND_ABSENT)
        return true;
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    if (json_kind(type) <= JSON_KIND_NULL)
        return dialect_read_member(r, v, "type", "required");
    if (!dialect_read_choice(r, type, names, countof(names), &i))
        return false;
    if (json_kind(serial) > JSON_KIND_NULL && !dialect_read_bool(r, serial, &is_serial))
        return false;
    r->rq->parallel_tool_calls = !is_serial;
    r->rq->tool_choice = (enum api_tool_choice)(API_TOOL_CHOICE_AUTO + (int)i);
    if (r->rq->tool_choice != API_TOOL_CHOICE_NAMED)
        return true;
    dialect_tool_forbid_all(r);
    return dialect_tool_allow(r, v, json_member(v, "name"));
}

static bool read_tools(struct dialect_read *r)
{
    return dialect_tool_list(r, reading(r)->tools, read_tool) && read_choice(r);
}

static bool keep_tools(struct dialect_read *r, struct json v)
{
    reading(r)->tools = v;
    return json_kind(v) == JSON_KIND_ARRAY || dialect_read_wrong(r, v, "array");
}

static bool keep_tool_choice(struct dialect_read *r, struct json v)
{
    reading(r)->tool_choice = v;
    return true;
}

/* ---- The rest ---- */

static bool read_max_tokens(struct dialect_read *r, struct json v)
{
    int64_t n;
    if (!dialect_read_int(r, v, 0, INT32_MAX, &n))
        return false;
    reading(r)->no_text = n == 0;
    return n == 0 || dialect_read_number(r, v, API_FIELD_TOKENS_MAX);
}

/* Off and on are the template's; a budget needs thinking to be told from the answer. */
static bool read_think(struct dialect_read *r, struct json v)
{
    struct dialect_anthropic_state *st = (struct dialect_anthropic_state *)r->st;
    struct json type = json_member(v, "type"), budget = json_member(v, "budget_tokens");
    int64_t n;
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    if (json_kind(type) != JSON_KIND_STRING)
        return dialect_read_member(r, v, "type", "string expected");
    st->omits_thinking = json_text_eq(json_member(v, "display"), STR("omitted"));
    if (json_text_eq(type, STR("disabled")) || json_text_eq(type, STR("enabled"))) {
        r->rq->think = json_text_eq(type, STR("enabled")) ? API_THINK_ON : API_THINK_OFF;
        r->rq->given |= API_GIVEN(THINK);
    } else if (!json_text_eq(type, STR("adaptive"))) {
        dialect_read_note_path(r, "ignored_field", type);
    }
    if (json_kind(budget) <= JSON_KIND_NULL)
        return true;
    return dialect_read_int(r, budget, 1, INT32_MAX, &n) &&
           dialect_read_number(r, budget, API_FIELD_THINK_TOKENS_MAX);
}

static bool read_format(struct dialect_read *r, struct json v)
{
    struct json schema = json_member(v, "schema");
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    if (!json_text_eq(json_member(v, "type"), STR("json_schema")))
        return dialect_read_member(r, v, "type", "\"json_schema\" expected");
    if (json_kind(schema) != JSON_KIND_OBJECT && json_kind(schema) != JSON_KIND_BOOL)
        return dialect_read_member(r, v, "schema", "object expected");
    return dialect_field_set_format(r, schema, API_FORMAT_SCHEMA, json_raw(schema));
}

static const struct dialect_field output_fields[] = {
    {"effort", DIALECT_KIND_READ, 0, dialect_read_effort},
    {"format", DIALECT_KIND_READ, 0, read_format},
};

static bool read_output(struct dialect_read *r, struct json v)
{
    return dialect_read_object(r, v, output_fields, countof(output_fields));
}

enum { UUID_LEN = 36 };

static void take_session(struct dialect_read *r, str uuid)
{
    for (size_t i = 0; i < uuid.len; i++)
        if (!((uuid.p[i] >= '0' && uuid.p[i] <= '9') || (uuid.p[i] >= 'a' && uuid.p[i] <= 'f') ||
              uuid.p[i] == '-'))
            return;
    if (uuid.len == UUID_LEN)
        r->rq->session = uuid;
}

/* {"device_id", "account_uuid", "session_id"}: who it is does not change with the session. */
static bool read_user_object(struct dialect_read *r, struct json user, str text)
{
    const struct json_options options = {.depth_max = 4};
    struct err ignored;
    struct json v, device;
    if (!json_parse(&v, text, &options, r->a, &ignored) || json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_agent(r, user);
    device = json_member(v, "device_id");
    if (json_kind(json_member(v, "session_id")) == JSON_KIND_STRING)
        take_session(r, json_text(json_member(v, "session_id"), r->a));
    return dialect_read_agent(r, json_kind(device) == JSON_KIND_STRING ? device : user);
}

/* Claude Code names its session in the user's id: "..._session_UUID", lately as an object. */
static bool read_metadata(struct dialect_read *r, struct json v)
{
    struct json user = json_member(v, "user_id");
    str text;
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    if (json_kind(user) <= JSON_KIND_NULL)
        return true;
    if (!dialect_read_text(r, user, &text))
        return false;
    if (str_starts(text, STR("{")))
        return read_user_object(r, user, text);
    size_t at = str_find(text, STR("session_"));
    if (at != STR_NONE)
        take_session(r, str_sub(text, at + strlen("session_"), UUID_LEN));
    return dialect_read_agent(r, user);
}

static const struct dialect_field fields[] = {
    {"model", DIALECT_KIND_TEXT, AT(model), NULL},
    {"messages", READ(keep_messages)},
    {"system", READ(keep_system)},
    {"max_tokens", READ(read_max_tokens)},
    {"stream", DIALECT_KIND_BOOL, AT(stream), NULL},
    {"temperature", NUMBER(TEMPERATURE)},
    {"top_p", NUMBER(TOP_P)},
    {"top_k", NUMBER(TOP_K)},
    {"stop_sequences", READ(dialect_read_stop)},
    {"tools", READ(keep_tools)},
    {"tool_choice", READ(keep_tool_choice)},
    {"thinking", READ(read_think)},
    {"output_config", READ(read_output)},
    {"output_format", READ(read_format)},
    {"metadata", READ(read_metadata)},
    {"shoal", DIALECT_KIND_SKIPPED, 0, NULL},
    {"cache_control", IGNORED},
    {"context_management", IGNORED},
    {"container", IGNORED},
    {"mcp_servers", IGNORED},
    {"service_tier", IGNORED},
    {"inference_geo", IGNORED},
    {"speed", IGNORED},
    {"betas", IGNORED},
    {"diagnostics", IGNORED},
};

static bool read_fields(struct dialect_read *r)
{
    struct json body;
    if (!dialect_read_body(r, &body) || !dialect_read_object(r, body, fields, countof(fields)))
        return false;
    if (!r->in->has_model && r->rq->model.len == 0)
        return dialect_read_missing(r, "model");
    map_init(&reading(r)->calls, API_PARTS_MAX);
    bool ok = read_messages(r) && read_tools(r) && dialect_read_extensions(r, body);
    map_deinit(&reading(r)->calls);
    return ok;
}

static bool read_request(struct api_request *out, struct dialect_state *st,
                         const struct dialect_in *in, struct arena *a, struct api_error *e)
{
    struct dialect_anthropic_state *own = (struct dialect_anthropic_state *)st;
    struct reading what = {.no_text = false};
    struct dialect_read r = {out, st, in, a, e, &what, NULL};
    api_request_init(out);
    if (!read_fields(&r))
        return false;
    out->kind = in->path->kind == API_KIND_CHAT && what.no_text ? API_KIND_PREFILL
                                                                : in->path->kind;
    out->stream = out->stream && in->path->kind == API_KIND_CHAT;
    own->kind = out->kind;
    return dialect_read_finish(&r);
}

static const struct dialect_path paths[] = {
    {"POST", "/v1/messages", API_KIND_CHAT, false},
    {"POST", "/v1/messages/count_tokens", API_KIND_COUNT, false},
};

const struct dialect dialect_anthropic = {
    .name = "anthropic",
    .family = DIALECT_ANTHROPIC,
    .stream_type = "text/event-stream",
    .paths = paths,
    .paths_count = countof(paths),
    .state_size = sizeof(struct dialect_anthropic_state),
    .read_request = read_request,
    .write_event = dialect_anthropic_reply_event,
    .write_error = dialect_anthropic_reply_error,
    .write_ping = dialect_anthropic_reply_ping,
    .client = &dialect_anthropic_client,
};
