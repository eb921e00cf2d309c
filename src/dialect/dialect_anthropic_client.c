/* Anthropic messages of an upstream: docs/dialects/anthropic.md, "As an upstream". */
#include <string.h>

#include "dialect/dialect_ask.h"
#include "dialect/dialect_hear.h"
#include "dialect/dialect_write.h"

#define THINK_TOKENS_MIN 1024u /* the least budget that the API takes */

enum block { BLOCK_NONE, BLOCK_TEXT, BLOCK_THINKING, BLOCK_CALL, BLOCK_OTHER };

struct state {
    struct dialect_client_state s;
    enum block open;
    str begun_input; /* arguments that came with the open call, for one without deltas */
    uint32_t prompt, cached, written, output;
};

static struct state *own(struct dialect_client_state *st) { return (struct state *)st; }

/* ---- Messages ---- */

static void put_breakpoint(struct json_writer *w, bool on)
{
    if (on)
        dialect_write_raw(w, "cache_control", STR("{\"type\":\"ephemeral\"}"));
}

static void put_text(struct json_writer *w, str text, bool is_breakpoint)
{
    if (text.len == 0) /* refused by the API */
        return;
    json_open_object(w);
    dialect_write_text(w, "type", STR("text"));
    dialect_write_text(w, "text", text);
    put_breakpoint(w, is_breakpoint);
    json_close_object(w);
}

static void put_image(struct json_writer *w, struct dialect_client_state *st,
                      const struct api_part *p)
{
    str data = dialect_ask_base64(st, p);
    if (data.len == 0)
        return;
    json_open_object(w);
    dialect_write_text(w, "type", STR("image"));
    json_key_z(w, "source");
    json_open_object(w);
    dialect_write_text(w, "type", STR("base64"));
    dialect_write_text(w, "media_type", p->media_type);
    dialect_write_text(w, "data", data);
    json_close_object(w);
    json_close_object(w);
}

static void put_use(struct json_writer *w, struct dialect_client_state *st,
                    const struct api_part *p)
{
    json_open_object(w);
    dialect_write_text(w, "type", STR("tool_use"));
    dialect_write_text(w, "id", dialect_ask_id(st, p->id));
    dialect_write_text(w, "name", dialect_ask_tool_name(st, p->name_space, p->name));
    dialect_write_raw(w, "input", p->is_open ? STR("{}") : dialect_ask_args(st, p));
    if (p->is_open) /* a word between shoals: half an object is none */
        dialect_write_text(w, "partial_json", p->text);
    json_close_object(w);
}

/* Signatures do not cross: only another shoal takes a block without one. */
static void put_thinking(struct json_writer *w, struct dialect_client_state *st,
                         const struct api_part *p)
{
    if (!dialect_ask_is_shoal(st)) {
        dialect_ask_note(st, "block_dropped", "messages");
        return;
    }
    json_open_object(w);
    dialect_write_text(w, "type", STR("thinking"));
    dialect_write_text(w, "thinking", p->text);
    dialect_write_text(w, "signature", STR(""));
    json_close_object(w);
}

static void put_result(struct json_writer *w, struct dialect_client_state *st,
                       const struct dialect_ask_turn *t, bool is_breakpoint)
{
    bool is_error = false;
    json_open_object(w);
    dialect_write_text(w, "type", STR("tool_result"));
    dialect_write_text(w, "tool_use_id", dialect_ask_id(st, t->parts[0].id));
    json_key_z(w, "content");
    json_open_array(w);
    for (uint32_t i = 0; i < t->parts_count; i++) {
        is_error = is_error || t->parts[i].is_error;
        if (t->parts[i].kind == API_PART_IMAGE)
            put_image(w, st, &t->parts[i]);
        else
            put_text(w, dialect_ask_result(&t->parts[i]), false);
    }
    json_close_array(w);
    if (is_error)
        json_put_key_bool(w, "is_error", true);
    put_breakpoint(w, is_breakpoint);
    json_close_object(w);
}

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* The API refuses a last assistant text that ends in blanks; the reply may say them again. */
static str without_blanks(struct dialect_client_state *st, str text)
{
    size_t len = text.len;
    while (len && is_blank(text.p[len - 1]))
        len--;
    st->tail_blanks = str_from(text, len);
    return str_sub(text, 0, len);
}

static void put_part(struct json_writer *w, struct dialect_client_state *st,
                     const struct dialect_ask_turn *t, uint32_t i, bool is_breakpoint)
{
    const struct api_part *p = &t->parts[i];
    bool is_last = i + 1 == t->parts_count;
    bool trims = t->is_open && is_last && !dialect_ask_is_shoal(st);
    switch (p->kind) {
    case API_PART_TEXT:
        put_text(w, trims ? without_blanks(st, p->text) : p->text, is_breakpoint && is_last);
        break;
    case API_PART_IMAGE:
        put_image(w, st, p);
        break;
    case API_PART_REASONING:
        put_thinking(w, st, p);
        break;
    case API_PART_CALL:
        put_use(w, st, p);
        break;
    case API_PART_RESULT: case API_PART_COUNT_:
        break; /* in turns of their own */
    }
}

static bool is_assistant(const struct dialect_ask_turn *t) { return t->role == API_ROLE_ASSISTANT; }

static bool is_system(const struct dialect_ask_turn *t)
{
    return t->role == API_ROLE_SYSTEM || t->role == API_ROLE_DEVELOPER;
}

static void put_system(struct json_writer *w, struct dialect_client_state *st,
                       const struct dialect_ask_turns *turns, uint32_t count)
{
    (void)st;
    if (count == 0)
        return;
    json_key_z(w, "system");
    json_open_array(w);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < turns->rows[i].parts_count; k++)
            put_text(w, turns->rows[i].parts[k].text,
                     i + 1 == count && k + 1 == turns->rows[i].parts_count);
    json_close_array(w);
}

/* Turns of system in the middle are the user's words where only users and assistants are known. */
static const char *role_of(const struct dialect_client_state *st, const struct dialect_ask_turn *t)
{
    if (is_system(t) && dialect_ask_is_shoal(st))
        return "system";
    return is_assistant(t) ? "assistant" : "user";
}

/* Neighbours of one role are one message: results must stand together behind their calls. */
static void put_messages(struct json_writer *w, struct dialect_client_state *st,
                         const struct dialect_ask_turns *turns, uint32_t first)
{
    uint32_t last_user = first;
    for (uint32_t i = first; i < turns->count; i++)
        if (!is_assistant(&turns->rows[i]))
            last_user = i;
    json_key_z(w, "messages");
    json_open_array(w);
    for (uint32_t i = first; i < turns->count;) {
        const char *role = role_of(st, &turns->rows[i]);
        json_open_object(w);
        dialect_write_text(w, "role", str_of(role));
        json_key_z(w, "content");
        json_open_array(w);
        for (; i < turns->count && strcmp(role_of(st, &turns->rows[i]), role) == 0; i++) {
            const struct dialect_ask_turn *t = &turns->rows[i];
            if (t->role == API_ROLE_TOOL)
                put_result(w, st, t, i == last_user);
            for (uint32_t k = 0; t->role != API_ROLE_TOOL && k < t->parts_count; k++)
                put_part(w, st, t, k, i == last_user);
        }
        json_close_array(w);
        json_close_object(w);
    }
    json_close_array(w);
}

/* ---- Tools ---- */

static void put_choice(struct json_writer *w, struct dialect_client_state *st)
{
    const struct api_request *rq = st->rq;
    if (rq->tool_choice == API_TOOL_CHOICE_AUTO && rq->parallel_tool_calls)
        return;
    json_key_z(w, "tool_choice");
    json_open_object(w);
    switch (rq->tool_choice) {
    case API_TOOL_CHOICE_NONE:
        dialect_write_text(w, "type", STR("none"));
        break;
    case API_TOOL_CHOICE_REQUIRED:
        dialect_write_text(w, "type", STR("any"));
        break;
    case API_TOOL_CHOICE_NAMED:
        dialect_write_text(w, "type", STR("tool"));
        for (uint32_t i = 0; i < rq->tools_count; i++)
            if (rq->tools[i].allowed && rq->tools[i].kind != API_TOOL_HOSTED) {
                dialect_write_text(w, "name", dialect_ask_tool_name(st, rq->tools[i].name_space,
                                                                 rq->tools[i].name));
                break;
            }
        break;
    case API_TOOL_CHOICE_AUTO: case API_TOOL_CHOICE_COUNT_:
        dialect_write_text(w, "type", STR("auto"));
        break;
    }
    if (!rq->parallel_tool_calls && rq->tool_choice != API_TOOL_CHOICE_NONE)
        json_put_key_bool(w, "disable_parallel_tool_use", true);
    json_close_object(w);
}

static void put_tools(struct json_writer *w, struct dialect_client_state *st)
{
    const struct api_request *rq = st->rq;
    bool is_listed = rq->tool_choice != API_TOOL_CHOICE_NAMED;
    uint32_t count = dialect_ask_tools(st, is_listed), n = 0;
    if (count == 0)
        return;
    json_key_z(w, "tools");
    json_open_array(w);
    for (uint32_t i = 0; i < rq->tools_count; i++) {
        const struct api_tool *t = &rq->tools[i];
        if (!dialect_ask_declares(st, t, is_listed))
            continue;
        json_open_object(w);
        dialect_write_text(w, "name", dialect_ask_tool_name(st, t->name_space, t->name));
        if (t->description.len)
            dialect_write_text(w, "description", t->description);
        dialect_write_raw(w, "input_schema", dialect_ask_schema(st, t));
        if (t->strict)
            json_put_key_bool(w, "strict", true);
        put_breakpoint(w, ++n == count);
        json_close_object(w);
    }
    json_close_array(w);
    put_choice(w, st);
}

/* ---- Numbers ---- */

/* The API wants the signed thinking of a turn whose calls it goes on with; ours has none. */
static bool has_bare_calls(const struct dialect_client_state *st,
                           const struct dialect_ask_turns *turns)
{
    for (uint32_t i = turns->count; i-- > 0;) {
        const struct dialect_ask_turn *t = &turns->rows[i];
        if (t->role == API_ROLE_USER)
            return false;
        if (is_assistant(t) && dialect_ask_has(t, API_PART_CALL))
            return !dialect_ask_is_shoal(st);
    }
    return false;
}

/* xhigh and max have no budget, but here there must be one. */
static uint32_t budget_of(enum api_effort effort)
{
    return (uint32_t)base_min(api_request_effort_tokens(effort),
                              api_request_effort_tokens(API_EFFORT_HIGH));
}

/* True: thinking is on. The budget is part of max_tokens, so it must stay below. */
static bool put_thinking_mode(struct json_writer *w, struct dialect_client_state *st,
                              const struct dialect_ask_turns *turns, uint32_t tokens_max)
{
    const struct api_request *rq = st->rq;
    enum api_effort effort = dialect_ask_effort(st);
    bool has_budget = api_request_is_given(rq, API_FIELD_THINK_TOKENS_MAX) &&
                      rq->think_tokens_max != API_THINK_ENDLESS && rq->think_tokens_max > 0;
    uint32_t budget = has_budget ? rq->think_tokens_max : budget_of(effort);
    bool wants = effort != API_EFFORT_DEFAULT && effort != API_EFFORT_NONE;
    bool can = dialect_ask_can(st, API_CAP_THINK) && !has_bare_calls(st, turns) &&
               tokens_max > THINK_TOKENS_MIN;
    if (!wants && effort == API_EFFORT_DEFAULT)
        return false;
    if (wants && !can)
        dialect_ask_note(st, "thinking_unsupported", "effort");
    if (!dialect_ask_can(st, API_CAP_THINK))
        return false;
    json_key_z(w, "thinking");
    json_open_object(w);
    if (wants && can) {
        uint32_t most = tokens_max - 1;
        uint32_t near = budget < THINK_TOKENS_MIN ? THINK_TOKENS_MIN : budget;
        near = near < most ? near : most;
        if (!has_budget || near != budget)
            dialect_ask_note(st, "effort_approximated", "thinking.budget_tokens");
        dialect_write_text(w, "type", STR("enabled"));
        json_put_key_u64(w, "budget_tokens", near);
    } else {
        dialect_write_text(w, "type", STR("disabled"));
    }
    json_close_object(w);
    return wants && can;
}

static void put_numbers(struct json_writer *w, struct dialect_client_state *st, bool thinks)
{
    const struct api_request *rq = st->rq;
    dialect_ask_note_lost(st, thinks ? 0 : API_GIVEN(TEMPERATURE) | API_GIVEN(TOP_P) |
                                               API_GIVEN(TOP_K));
    dialect_ask_put_stop(w, "stop_sequences", rq);
    if (thinks) /* the API takes no sampling beside thinking */
        return;
    if (api_request_is_given(rq, API_FIELD_TEMPERATURE)) {
        bool is_hot = rq->temperature > 1 && !dialect_ask_is_shoal(st);
        if (is_hot)
            dialect_ask_note(st, "ignored_field", "temperature above 1");
        dialect_write_float(w, "temperature", is_hot ? 1 : rq->temperature);
    }
    if (api_request_is_given(rq, API_FIELD_TOP_P))
        dialect_write_float(w, "top_p", rq->top_p);
    if (api_request_is_given(rq, API_FIELD_TOP_K) && rq->top_k)
        json_put_key_u64(w, "top_k", rq->top_k);
}

static void put_format(struct json_writer *w, const struct api_format *f)
{
    if (f->kind != API_FORMAT_SCHEMA)
        return;
    json_key_z(w, "output_config");
    json_open_object(w);
    json_key_z(w, "format");
    json_open_object(w);
    dialect_write_text(w, "type", STR("json_schema"));
    dialect_write_raw(w, "schema", f->text);
    json_close_object(w);
    json_close_object(w);
}

static bool write_request(struct buf *out, struct dialect_client_state *st, struct api_error *e)
{
    static const char *const ours[] = {NULL};
    const struct dialect_ask_patch same = {ours, "\"stream\":true"};
    struct dialect_ask_turns turns;
    uint32_t tokens_max = dialect_ask_tokens_max(st), first = 0;
    if (dialect_ask_is_same(st))
        return dialect_ask_patch_body(out, st, &same, e);
    if (!dialect_ask_turns(st, &turns, e))
        return false;
    if (tokens_max == 0)
        tokens_max = st->leg->tokens_max ? st->leg->tokens_max : DIALECT_CLIENT_TOKENS_MAX;
    while (first < turns.count && is_system(&turns.rows[first]))
        first++;
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    dialect_write_text(&w, "model", dialect_ask_model(st));
    json_put_key_u64(&w, "max_tokens", tokens_max);
    put_system(&w, st, &turns, first);
    put_messages(&w, st, &turns, first);
    put_tools(&w, st);
    put_format(&w, &st->rq->format);
    put_numbers(&w, st, put_thinking_mode(&w, st, &turns, tokens_max));
    json_put_key_bool(&w, "stream", true);
    json_close_object(&w);
    return dialect_ask_fits(out, st, e);
}

/* ---- What it says ---- */

static enum api_done reason_of(struct json v)
{
    if (json_text_eq(v, STR("max_tokens")) || json_text_eq(v, STR("pause_turn")))
        return API_DONE_MAX_TOKENS;
    if (json_text_eq(v, STR("model_context_window_exceeded")))
        return API_DONE_CONTEXT_FULL;
    if (json_text_eq(v, STR("refusal")))
        return API_DONE_REFUSAL;
    if (json_text_eq(v, STR("tool_use")))
        return API_DONE_CALLS;
    if (json_text_eq(v, STR("stop_sequence")))
        return API_DONE_STOP_STRING;
    return API_DONE_EOS;
}

/* Counts stand at the start, and again, complete, at the end; the last word on each counts. */
static void hear_usage(struct dialect_client_state *st, struct json u)
{
    struct state *o = own(st);
    struct {
        const char *name;
        uint32_t *to;
    } rows[] = {{"input_tokens", &o->prompt}, {"cache_read_input_tokens", &o->cached},
                {"cache_creation_input_tokens", &o->written}, {"output_tokens", &o->output}};
    uint64_t n;
    for (size_t i = 0; i < countof(rows); i++)
        if (json_u64(json_member(u, rows[i].name), &n)) {
            *rows[i].to = (uint32_t)base_min(n, UINT32_MAX);
            st->has_usage = true;
        }
    st->usage.prompt_tokens = o->prompt + o->cached + o->written;
    st->usage.cached_tokens = o->cached;
    st->usage.cache_write_tokens = o->written;
    st->usage.output_tokens = o->output;
}

/* Thinking is part of the output tokens; which part is told nowhere: by its share of the bytes. */
static void count_reasoning(struct dialect_client_state *st)
{
    uint64_t all = st->text_bytes + st->reasoning_bytes;
    if (st->reasoning_bytes)
        st->usage.reasoning_tokens =
            (uint32_t)((uint64_t)st->usage.output_tokens * st->reasoning_bytes / all);
}

static bool open_block(struct dialect_client_state *st, struct json b, struct api_error *e)
{
    struct json type = json_member(b, "type"), input = json_member(b, "input");
    struct api_text text = {.text = dialect_hear_str(st, json_member(b, "text"))};
    struct api_text thought = {.text = dialect_hear_str(st, json_member(b, "thinking"))};
    own(st)->open = BLOCK_OTHER;
    if (json_text_eq(type, STR("text"))) {
        own(st)->open = BLOCK_TEXT;
        dialect_hear_text(st, 0, API_EVENT_CONTENT, &text);
    } else if (json_text_eq(type, STR("thinking"))) {
        own(st)->open = BLOCK_THINKING;
        dialect_hear_text(st, 0, API_EVENT_REASONING, &thought);
    } else if (json_text_eq(type, STR("tool_use"))) {
        own(st)->open = BLOCK_CALL;
        own(st)->begun_input = (str){"", 0};
        if (json_kind(input) == JSON_KIND_OBJECT && json_count(input))
            own(st)->begun_input = arena_copy(&st->keep, json_raw(input));
        return dialect_hear_call(st, 0, dialect_hear_str(st, json_member(b, "id")),
                                 dialect_hear_str(st, json_member(b, "name")), false, e);
    } else if (json_kind(type) != JSON_KIND_STRING) {
        return dialect_hear_garbage(e, "a block without a type");
    }
    return true;
}

static void close_block(struct dialect_client_state *st)
{
    if (own(st)->open == BLOCK_CALL && !st->choices[0].has_args)
        dialect_hear_args(st, 0, own(st)->begun_input);
    if (own(st)->open == BLOCK_CALL)
        dialect_hear_call_end(st, 0);
    own(st)->open = BLOCK_NONE;
}

static bool hear_delta(struct dialect_client_state *st, struct json d, struct api_error *e)
{
    struct json type = json_member(d, "type");
    struct api_text t = {.text = dialect_hear_str(st, json_member(d, "text"))};
    if (json_text_eq(type, STR("text_delta"))) {
        dialect_hear_text(st, 0, API_EVENT_CONTENT, &t);
    } else if (json_text_eq(type, STR("thinking_delta"))) {
        t.text = dialect_hear_str(st, json_member(d, "thinking"));
        dialect_hear_text(st, 0, API_EVENT_REASONING, &t);
    } else if (json_text_eq(type, STR("input_json_delta"))) {
        if (own(st)->open == BLOCK_CALL)
            dialect_hear_args(st, 0, dialect_hear_str(st, json_member(d, "partial_json")));
    } else if (json_kind(type) != JSON_KIND_STRING) {
        return dialect_hear_garbage(e, "a delta without a type");
    }
    return true; /* signatures, citations: only this protocol shows them */
}

static void hear_stop(struct dialect_client_state *st, struct json v, struct json shoal)
{
    struct json reason = json_member(v, "stop_reason");
    if (json_kind(reason) == JSON_KIND_STRING)
        dialect_hear_finish(st, 0, dialect_hear_reason(shoal, reason_of(reason)),
                            dialect_hear_str(st, json_member(v, "stop_sequence")));
    count_reasoning(st);
}

/* A reply that came unstreamed. */
static bool hear_message(struct dialect_client_state *st, struct json v, struct api_error *e)
{
    dialect_hear_whole(st);
    for (struct json_walk w = json_walk(json_member(v, "content")); json_next(&w);) {
        if (!open_block(st, w.value, e))
            return false;
        close_block(st);
    }
    hear_usage(st, json_member(v, "usage"));
    hear_stop(st, v, json_member(v, "shoal"));
    return dialect_hear_end(st, e);
}

static bool read_event(struct dialect_client_state *st, str name, str data, struct api_error *e)
{
    struct json v, type, error;
    (void)name; /* each event tells its type itself */
    if (!dialect_hear_json(st, data, &v, e))
        return false;
    type = json_member(v, "type");
    error = json_member(v, "error");
    if (json_text_eq(type, STR("error")) || json_kind(error) == JSON_KIND_OBJECT)
        return dialect_hear_failure(st, json_member(error, "type"), json_member(error, "code"),
                                    json_member(error, "message"), e);
    if (json_text_eq(type, STR("message")))
        return hear_message(st, v, e);
    if (json_text_eq(type, STR("message_start"))) {
        hear_usage(st, json_member(json_member(v, "message"), "usage"));
    } else if (json_text_eq(type, STR("content_block_start"))) {
        close_block(st);
        return open_block(st, json_member(v, "content_block"), e);
    } else if (json_text_eq(type, STR("content_block_delta"))) {
        return hear_delta(st, json_member(v, "delta"), e);
    } else if (json_text_eq(type, STR("content_block_stop"))) {
        close_block(st);
    } else if (json_text_eq(type, STR("message_delta"))) {
        hear_usage(st, json_member(v, "usage"));
        hear_stop(st, json_member(v, "delta"), json_member(v, "shoal"));
    } else if (json_text_eq(type, STR("message_stop"))) {
        close_block(st);
        return dialect_hear_end(st, e);
    } else if (json_kind(type) != JSON_KIND_STRING) {
        return dialect_hear_garbage(e, "an event without a type");
    }
    return true; /* ping, and what comes with later versions */
}

static bool can_continue(const struct dialect_upstream *leg, const struct api_request *rq)
{
    return (leg->how == DIALECT_CONTINUE_PREFILL && !dialect_ask_open_call(rq)) ||
           (leg->how == DIALECT_CONTINUE_SHOAL && !dialect_ask_opens_text(rq));
}

static const char *const headers[] = {"anthropic-version: 2023-06-01", NULL};
static const char *const kept[] = {"anthropic-version", "anthropic-beta",
                                   "anthropic-dangerous-direct-browser-access", NULL};

const struct dialect_client dialect_anthropic_client = {
    .path = "/v1/messages",
    .free_path = "/v1/models",
    .shows_raw = true,
    .needs_marker = true,
    .has_wide_pieces = true,
    .key_header = "x-api-key: ",
    .headers = headers,
    .kept = kept,
    .state_size = sizeof(struct state),
    .lacks = DIALECT_LACKS_JSON | DIALECT_LACKS_PATTERN | DIALECT_LACKS_N | DIALECT_LACKS_LOGPROBS,
    .write_request = write_request,
    .read_event = read_event,
    .can_continue = can_continue,
};
