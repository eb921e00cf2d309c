/* Ollama's /api/chat of an upstream: docs/dialects/ollama.md, "As an upstream". */
#include <string.h>

#include "dialect/dialect_ask.h"
#include "dialect/dialect_hear.h"
#include "dialect/dialect_write.h"

/* ---- Messages ---- */

static void put_images(struct json_writer *w, struct dialect_client_state *st,
                       const struct dialect_ask_turn *t)
{
    bool is_open = false;
    for (uint32_t i = 0; i < t->parts_count; i++) {
        if (t->parts[i].kind != API_PART_IMAGE)
            continue;
        str data = dialect_ask_base64(st, &t->parts[i]);
        if (data.len == 0)
            continue;
        if (!is_open) {
            json_key_z(w, "images");
            json_open_array(w);
        }
        is_open = true;
        json_put_text(w, data);
    }
    if (is_open)
        json_close_array(w);
}

/* Custom tools are functions of one string here, in the history too. */
static void put_call(struct json_writer *w, struct dialect_client_state *st,
                     const struct api_part *p)
{
    json_open_object(w);
    if (p->id.len)
        dialect_write_text(w, "id", p->id);
    json_key_z(w, "function");
    json_open_object(w);
    dialect_write_text(w, "name", dialect_ask_tool_name(st, p->name_space, p->name));
    dialect_write_raw(w, "arguments", dialect_ask_args(st, p));
    json_close_object(w);
    json_close_object(w);
}

/* The name of the tool whose call has this id: Ollama knows results by it. */
static str name_of_result(const struct dialect_ask_turns *turns, uint32_t before, str id)
{
    for (uint32_t i = before; i-- > 0;)
        for (uint32_t k = 0; k < turns->rows[i].parts_count; k++) {
            const struct api_part *p = &turns->rows[i].parts[k];
            if (p->kind == API_PART_CALL && str_eq(p->id, id))
                return p->name;
        }
    return (str){"", 0};
}

static void put_result_of(struct json_writer *w, const struct dialect_ask_turns *turns, uint32_t i)
{
    const struct api_part *p = &turns->rows[i].parts[0];
    str name = p->name.len ? p->name : name_of_result(turns, i, p->id);
    if (name.len)
        dialect_write_text(w, "tool_name", name);
    if (p->id.len)
        dialect_write_text(w, "tool_call_id", p->id);
}

static void put_turn(struct json_writer *w, struct dialect_client_state *st,
                     const struct dialect_ask_turns *turns, uint32_t i)
{
    const struct dialect_ask_turn *t = &turns->rows[i];
    bool is_result = t->role == API_ROLE_TOOL;
    str reasoning = dialect_ask_join(st, t, API_PART_REASONING);
    str role = t->role == API_ROLE_DEVELOPER ? STR("system")
                                             : str_of(api_request_role_name(t->role));
    json_open_object(w);
    dialect_write_text(w, "role", role);
    dialect_write_text(w, "content",
                    dialect_ask_join(st, t, is_result ? API_PART_RESULT : API_PART_TEXT));
    if (is_result)
        put_result_of(w, turns, i);
    if (reasoning.len)
        dialect_write_text(w, "thinking", reasoning);
    put_images(w, st, t);
    if (dialect_ask_has(t, API_PART_CALL)) {
        json_key_z(w, "tool_calls");
        json_open_array(w);
        for (uint32_t k = 0; k < t->parts_count; k++)
            if (t->parts[k].kind == API_PART_CALL)
                put_call(w, st, &t->parts[k]);
        json_close_array(w);
    }
    json_close_object(w);
}

static bool put_messages(struct json_writer *w, struct dialect_client_state *st,
                         struct api_error *e)
{
    struct dialect_ask_turns turns;
    if (!dialect_ask_turns(st, &turns, e))
        return false;
    json_key_z(w, "messages");
    json_open_array(w);
    for (uint32_t i = 0; i < turns.count; i++)
        put_turn(w, st, &turns, i);
    json_close_array(w);
    return true;
}

/* ---- Tools, format, numbers ---- */

/* With NONE nothing may be called, and the protocol cannot say so: nothing is declared. */
static void put_tools(struct json_writer *w, struct dialect_client_state *st)
{
    const struct api_request *rq = st->rq;
    if (dialect_ask_tools(st, true) == 0 || rq->tool_choice == API_TOOL_CHOICE_NONE)
        return;
    json_key_z(w, "tools");
    json_open_array(w);
    for (uint32_t i = 0; i < rq->tools_count; i++) {
        const struct api_tool *t = &rq->tools[i];
        if (!dialect_ask_declares(st, t, true))
            continue;
        if (t->strict)
            dialect_ask_note(st, "ignored_field", "strict");
        json_open_object(w);
        dialect_write_text(w, "type", STR("function"));
        json_key_z(w, "function");
        json_open_object(w);
        dialect_write_text(w, "name", dialect_ask_tool_name(st, t->name_space, t->name));
        dialect_write_text(w, "description", t->description);
        dialect_write_raw(w, "parameters", dialect_ask_schema(st, t));
        json_close_object(w);
        json_close_object(w);
    }
    json_close_array(w);
    if (!rq->parallel_tool_calls)
        dialect_ask_note(st, "ignored_field", "parallel_tool_calls");
}

static void put_format(struct json_writer *w, const struct api_format *f)
{
    if (f->kind == API_FORMAT_JSON)
        dialect_write_text(w, "format", STR("json"));
    else if (f->kind == API_FORMAT_SCHEMA)
        dialect_write_raw(w, "format", f->text);
}

static void put_think(struct json_writer *w, struct dialect_client_state *st)
{
    enum api_effort effort = dialect_ask_effort(st);
    bool is_level = st->rq->effort != API_EFFORT_DEFAULT && dialect_ask_is_shoal(st);
    if (effort == API_EFFORT_DEFAULT)
        return;
    if (!dialect_ask_can(st, API_CAP_THINK)) { /* Ollama refuses `think` for other models */
        if (effort != API_EFFORT_NONE)
            dialect_ask_note(st, "thinking_unsupported", "effort");
        return;
    }
    if (is_level && effort != API_EFFORT_NONE) {
        dialect_write_text(w, "think", str_of(api_request_effort_name(effort)));
        return;
    }
    if (st->rq->effort != API_EFFORT_DEFAULT && effort != API_EFFORT_NONE)
        dialect_ask_note(st, "effort_approximated", "think");
    json_put_key_bool(w, "think", effort != API_EFFORT_NONE);
}

static void put_options(struct json_writer *w, struct dialect_client_state *st)
{
    const struct api_request *rq = st->rq;
    const struct {
        enum api_field field;
        const char *key;
        float value;
    } rows[] = {
        {API_FIELD_TEMPERATURE, "temperature", rq->temperature},
        {API_FIELD_TOP_P, "top_p", rq->top_p}, {API_FIELD_MIN_P, "min_p", rq->min_p},
        {API_FIELD_TYPICAL_P, "typical_p", rq->typical_p},
        {API_FIELD_REPEAT_PENALTY, "repeat_penalty", rq->repeat_penalty},
        {API_FIELD_PRESENCE_PENALTY, "presence_penalty", rq->presence_penalty},
        {API_FIELD_FREQUENCY_PENALTY, "frequency_penalty", rq->frequency_penalty},
    };
    uint32_t tokens_max = dialect_ask_tokens_max(st);
    dialect_ask_note_lost(st, ~(DIALECT_ASK_BIAS | DIALECT_ASK_STOP_IDS | API_GIVEN(TOKENS_MIN)));
    json_key_z(w, "options");
    json_open_object(w);
    for (size_t i = 0; i < countof(rows); i++)
        if (api_request_is_given(rq, rows[i].field))
            dialect_write_float(w, rows[i].key, rows[i].value);
    if (api_request_is_given(rq, API_FIELD_TOP_K))
        json_put_key_u64(w, "top_k", rq->top_k);
    if (api_request_is_given(rq, API_FIELD_REPEAT_LAST)) {
        json_key_z(w, "repeat_last_n");
        json_put_i64(w, rq->repeat_last == API_REPEAT_ALL ? -1 : (int64_t)rq->repeat_last);
    }
    if (api_request_is_given(rq, API_FIELD_SEED)) {
        json_key_z(w, "seed");
        json_put_i64(w, (int64_t)rq->seed);
    }
    if (tokens_max)
        json_put_key_u64(w, "num_predict", tokens_max);
    if (api_request_is_given(rq, API_FIELD_CONTEXT_MAX) && rq->context_max)
        json_put_key_u64(w, "num_ctx", rq->context_max);
    dialect_ask_put_stop(w, "stop", rq);
    json_close_object(w);
}

static bool write_request(struct buf *out, struct dialect_client_state *st, struct api_error *e)
{
    static const char *const ours[] = {"session", "cache", "effort", "max_context", NULL};
    const struct dialect_ask_patch same = {ours, "\"stream\":true"};
    const struct api_request *rq = st->rq;
    if (dialect_ask_is_same(st))
        return dialect_ask_patch_body(out, st, &same, e);
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    dialect_write_text(&w, "model", dialect_ask_model(st));
    if (!put_messages(&w, st, e))
        return false;
    put_tools(&w, st);
    put_format(&w, &rq->format);
    put_think(&w, st);
    put_options(&w, st);
    if (rq->logprobs) {
        json_put_key_bool(&w, "logprobs", true);
        json_put_key_u64(&w, "top_logprobs", rq->logprobs - 1);
    }
    json_put_key_bool(&w, "stream", true);
    json_close_object(&w);
    return dialect_ask_fits(out, st, e);
}

/* ---- What it says ---- */

static enum api_done reason_of(struct json v)
{
    if (json_text_eq(v, STR("length")))
        return API_DONE_MAX_TOKENS;
    if (json_text_eq(v, STR("timeout")))
        return API_DONE_DEADLINE;
    if (json_text_eq(v, STR("tool_calls")))
        return API_DONE_CALLS;
    return API_DONE_EOS;
}

static void hear_usage(struct dialect_client_state *st, struct json v)
{
    struct json cache = json_member(json_member(v, "shoal"), "cache");
    struct api_usage *u = &st->usage;
    u->prompt_tokens = dialect_hear_u32(json_member(v, "prompt_eval_count"));
    u->output_tokens = dialect_hear_u32(json_member(v, "eval_count"));
    u->cached_tokens = dialect_hear_u32(json_member(cache, "cached"));
    json_u64(json_member(v, "load_duration"), &u->load_ns);
    json_u64(json_member(v, "prompt_eval_duration"), &u->prefill_ns);
    json_u64(json_member(v, "eval_duration"), &u->decode_ns);
    st->has_usage = json_kind(json_member(v, "eval_count")) == JSON_KIND_NUMBER;
}

static bool hear_calls(struct dialect_client_state *st, struct json calls, struct api_error *e)
{
    for (struct json_walk w = json_walk(calls); json_next(&w);) {
        struct json function = json_member(w.value, "function");
        struct json args = json_member(function, "arguments");
        if (!dialect_hear_call(st, 0, dialect_hear_str(st, json_member(w.value, "id")),
                               dialect_hear_str(st, json_member(function, "name")), false, e))
            return false;
        dialect_hear_args(st, 0, json_kind(args) == JSON_KIND_OBJECT ? json_raw(args)
                                                                     : dialect_hear_str(st, args));
        dialect_hear_call_end(st, 0);
    }
    return true;
}

static bool read_event(struct dialect_client_state *st, str name, str data, struct api_error *e)
{
    struct json v, error, message, reason;
    struct api_text content = {0}, thought = {0};
    bool is_done = false;
    (void)name;
    if (!dialect_hear_json(st, data, &v, e))
        return false;
    error = json_member(v, "error");
    message = json_member(v, "message");
    reason = json_member(v, "done_reason");
    if (json_kind(error) == JSON_KIND_STRING || json_text_eq(reason, STR("error")))
        return dialect_hear_failure(st, reason, json_member(v, "code"), error, e);
    if (!json_bool(json_member(v, "done"), &is_done) && json_kind(message) != JSON_KIND_OBJECT)
        return dialect_hear_garbage(e, "a line without message and done");
    thought.text = dialect_hear_str(st, json_member(message, "thinking"));
    content.text = dialect_hear_str(st, json_member(message, "content"));
    dialect_hear_logprobs(st, json_member(v, "logprobs"), &content);
    dialect_hear_text(st, 0, API_EVENT_REASONING, &thought);
    dialect_hear_text(st, 0, API_EVENT_CONTENT, &content);
    if (!hear_calls(st, json_member(message, "tool_calls"), e))
        return false;
    if (!is_done)
        return true;
    hear_usage(st, v);
    dialect_hear_finish(st, 0, dialect_hear_reason(json_member(v, "shoal"), reason_of(reason)),
                        (str){"", 0});
    return dialect_hear_end(st, e);
}

/* A last message of the assistant is always gone on with; its calls are told whole only. */
static bool can_continue(const struct dialect_upstream *leg, const struct api_request *rq)
{
    bool is_shoal = leg->how == DIALECT_CONTINUE_SHOAL;
    return (is_shoal || rq->resume == NULL) && !dialect_ask_open_call(rq);
}

static const char *const no_headers[] = {NULL};

const struct dialect_client dialect_ollama_client = {
    .path = "/api/chat",
    .free_path = "/api/version",
    .is_lines = true,
    .key_header = "authorization: Bearer ",
    .headers = no_headers,
    .kept = no_headers,
    .state_size = sizeof(struct dialect_client_state),
    .lacks = DIALECT_LACKS_CHOICE | DIALECT_LACKS_PATTERN | DIALECT_LACKS_N,
    .write_request = write_request,
    .read_event = read_event,
    .can_continue = can_continue,
};
