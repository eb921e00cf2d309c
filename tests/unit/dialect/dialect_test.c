/* Whatever a model says in whatever order, a stream keeps its protocol's order: the rules below are
 * the protocols' own, written down once more and apart from the writers. */
#include "dialect_play.h"

#include "base/chrono.h"

#define ROUNDS 400

/* What a checker remembers of a stream. */
struct checker {
    struct play *p;
    char open[24];          /* type of the open block or item, "" = none */
    int64_t index;          /* of the last block or item that began */
    int64_t sequence;       /* Responses */
    bool has_part, has_text_done; /* Responses: inside the open item */
    bool is_begun, has_delta_after, is_over, has_error;
    struct buf items;       /* Responses: raw items as they ended */
    struct buf args;        /* of the open call */
    uint32_t calls, chunks;
    char id[80];
};

static void expect(bool ok, const struct checker *c, const char *what, str event)
{
    if (!ok)
        fail_msg("%s in %.*s\n of:\n%.*s", what, STR_ARG(event), STR_ARG(buf_view(&c->p->out)));
}

static str text_at(struct checker *c, struct json v, const char *member)
{
    struct json m = json_member(v, member);
    return json_kind(m) == JSON_KIND_STRING ? json_text(m, &c->p->a) : (str){"", 0};
}

static int64_t number_at(struct json v, const char *member)
{
    int64_t n = -1;
    json_i64(json_member(v, member), &n);
    return n;
}

/* ---- Anthropic: message_start (start delta* stop)* message_delta message_stop ---- */

static void anthropic_block(struct checker *c, str name, struct json v, str raw)
{
    expect(number_at(v, "index") == c->index + (str_eq_z(name, "content_block_start") ? 1 : 0), c,
           "index", raw);
    if (str_eq_z(name, "content_block_start")) {
        expect(c->open[0] == 0, c, "two blocks are open", raw);
        snprintf(c->open, sizeof c->open, "%.*s",
                 STR_ARG(text_at(c, json_member(v, "content_block"), "type")));
        c->index++;
        c->args.len = 0;
        return;
    }
    expect(c->open[0] != 0, c, "no block is open", raw);
    if (str_eq_z(name, "content_block_stop")) {
        if (strcmp(c->open, "tool_use") == 0 && c->args.len && !c->has_error)
            c->calls++;
        c->open[0] = 0;
        return;
    }
    struct json delta = json_member(v, "delta");
    str type = text_at(c, delta, "type");
    const char *fits = strcmp(c->open, "thinking") == 0 ? "thinking_delta"
                       : strcmp(c->open, "text") == 0   ? "text_delta" : "input_json_delta";
    bool is_signature = strcmp(c->open, "thinking") == 0 && str_eq_z(type, "signature_delta");
    expect(str_eq_z(type, fits) || is_signature, c, "a delta of another block", raw);
    buf_add(&c->args, text_at(c, delta, "partial_json"));
}

static void anthropic_event(struct checker *c, str name, struct json v, str raw)
{
    expect(!c->is_over, c, "an event after the end", raw);
    expect(c->is_begun || str_eq_z(name, "message_start") || str_eq_z(name, "error"), c,
           "an event before message_start", raw);
    if (str_eq_z(name, "message_start")) {
        struct json usage = json_member(json_member(v, "message"), "usage");
        expect(!c->is_begun && number_at(usage, "input_tokens") >= 0, c, "A06", raw);
        c->is_begun = true;
    } else if (str_eq_z(name, "message_delta")) {
        expect(c->open[0] == 0 && !c->has_delta_after, c, "a block is open", raw);
        c->has_delta_after = true;
    } else if (str_eq_z(name, "message_stop")) {
        expect(c->has_delta_after, c, "no message_delta", raw);
        c->is_over = true;
    } else if (str_eq_z(name, "error")) {
        c->is_over = c->has_error = true;
    } else {
        anthropic_block(c, name, v, raw);
    }
}

/* ---- Responses: created in_progress (item.added ... item.done)* completed ---- */

static void responses_inside(struct checker *c, str name, struct json v, str raw)
{
    expect(c->open[0] != 0, c, "no item is open", raw);
    expect(number_at(v, "output_index") == c->index, c, "output_index", raw);
    expect(str_eq_z(text_at(c, v, "item_id"), c->id), c, "item_id", raw);
    bool is_call = strstr(c->open, "call") != NULL;
    if (str_ends(name, STR("part.added"))) {
        expect(!is_call && !c->has_part, c, "part.added", raw);
        c->has_part = true;
    } else if (str_ends(name, STR("part.done"))) {
        expect(c->has_part && c->has_text_done, c, "part.done", raw);
        c->has_part = false;
    } else if (str_ends(name, STR(".delta"))) {
        expect((is_call || c->has_part) && !c->has_text_done, c, "delta", raw);
        buf_add(&c->args, text_at(c, v, "delta"));
    } else {
        const char *member = str_find(name, STR("arguments")) != STR_NONE ? "arguments"
                             : str_find(name, STR("input")) != STR_NONE   ? "input" : "text";
        expect(str_ends(name, STR(".done")) && !c->has_text_done, c, "an unknown event", raw);
        expect(str_eq(text_at(c, v, member), buf_view(&c->args)), c, "done is not the deltas", raw);
        c->has_text_done = true;
    }
}

static void responses_item(struct checker *c, str name, struct json v, str raw)
{
    struct json item = json_member(v, "item");
    if (str_ends(name, STR("added"))) {
        expect(c->open[0] == 0, c, "two items are open", raw);
        snprintf(c->open, sizeof c->open, "%.*s", STR_ARG(text_at(c, item, "type")));
        snprintf(c->id, sizeof c->id, "%.*s", STR_ARG(text_at(c, item, "id")));
        c->index++;
        c->args.len = 0;
        c->has_part = c->has_text_done = false;
    } else {
        expect(c->open[0] != 0 && c->has_text_done && !c->has_part, c, "item.done", raw);
        expect(str_eq_z(text_at(c, item, "id"), c->id), c, "A11: another id", raw);
        c->calls += strcmp(c->open, "function_call") == 0 &&
                    str_eq_z(text_at(c, item, "status"), "completed");
        buf_add_z(&c->items, c->items.len ? "," : "");
        buf_add(&c->items, json_raw(item));
        c->open[0] = 0;
    }
    expect(number_at(v, "output_index") == c->index, c, "output_index", raw);
}

static void responses_event(struct checker *c, str name, struct json v, str raw)
{
    expect(!c->is_over, c, "an event after the end", raw);
    expect(number_at(v, "sequence_number") == c->sequence++, c, "sequence_number", raw);
    struct json response = json_member(v, "response");
    if (str_ends(name, STR(".created")) || str_ends(name, STR(".in_progress"))) {
        expect(c->index == -1, c, "an item before it", raw);
        c->is_begun = true;
    } else if (str_find(name, STR(".output_item.")) != STR_NONE) {
        expect(c->is_begun, c, "no created", raw);
        responses_item(c, name, v, raw);
    } else if (json_kind(response) == JSON_KIND_OBJECT) {
        char all[8192];
        expect(c->open[0] == 0, c, "an item is open", raw);
        snprintf(all, sizeof all, "[%.*s]", STR_ARG(buf_view(&c->items)));
        expect(str_eq_z(json_raw(json_member(response, "output")), all), c, "A11: other items",
               raw);
        c->is_over = true;
        c->has_error = str_ends(name, STR(".failed"));
    } else {
        responses_inside(c, name, v, raw);
    }
}

/* ---- Chat completions: role, deltas, finish ---- */

static void chat_call(struct checker *c, struct json call, str raw)
{
    int64_t index = number_at(call, "index");
    struct json function = json_member(call, "function");
    bool begins = json_kind(json_member(call, "id")) == JSON_KIND_STRING;
    expect(index == c->index + begins, c, "A12: index", raw);
    expect((json_kind(json_member(function, "name")) == JSON_KIND_STRING) == begins, c,
           "A12: name once", raw);
    expect(json_kind(json_member(function, "arguments")) == JSON_KIND_STRING, c,
           "A13: arguments are a string", raw);
    c->index = index;
}

static void chat_event(struct checker *c, str name, struct json v, str raw)
{
    (void)name;
    struct json choice = json_at(json_member(v, "choices"), 0);
    struct json delta = json_member(choice, "delta"), finish = json_member(choice, "finish_reason");
    expect(!c->is_over, c, "a chunk after the end", raw);
    if (json_kind(json_member(v, "error")) == JSON_KIND_OBJECT) {
        c->has_error = true;
        return;
    }
    str id = text_at(c, v, "id");
    expect(c->id[0] == 0 || str_eq_z(id, c->id), c, "A13: one id", raw);
    snprintf(c->id, sizeof c->id, "%.*s", STR_ARG(id));
    bool has_role = json_kind(json_member(delta, "role")) == JSON_KIND_STRING;
    expect(has_role == (c->chunks++ == 0) || c->has_error, c, "role comes first and once", raw);
    expect(json_kind(json_member(choice, "logprobs")) == JSON_KIND_NULL, c, "A31", raw);
    for (struct json_walk w = json_walk(json_member(delta, "tool_calls")); json_next(&w);)
        chat_call(c, w.value, raw);
    if (json_kind(finish) == JSON_KIND_STRING) {
        c->is_over = true;
        c->calls = str_eq_z(text_at(c, choice, "finish_reason"), "tool_calls");
    }
}

/* ---- Ollama: objects, the last one done ---- */

static void ollama_event(struct checker *c, str name, struct json v, str raw)
{
    (void)name;
    bool done = false;
    struct json message = json_member(v, "message");
    expect(!c->is_over && json_bool(json_member(v, "done"), &done), c, "done", raw);
    for (struct json_walk w = json_walk(json_member(message, "tool_calls")); json_next(&w);) {
        struct json function = json_member(w.value, "function");
        expect(number_at(function, "index") == (int64_t)c->calls++, c, "A12: index", raw);
        expect(json_kind(json_member(function, "arguments")) == JSON_KIND_OBJECT, c,
               "arguments are an object", raw);
    }
    c->has_error = json_kind(json_member(v, "error")) == JSON_KIND_STRING;
    c->is_over = done;
}

/* ---- Playing ---- */

struct form {
    const char *target, *body;
    void (*check)(struct checker *c, str name, struct json v, str raw);
};
static const struct form forms[] = {
    {"POST /v1/messages", "{\"model\":\"m\",\"max_tokens\":9,\"stream\":true,\"messages\":"
                          "[{\"role\":\"user\",\"content\":\"x\"}]}", anthropic_event},
    {"POST /v1/responses", "{\"model\":\"m\",\"stream\":true,\"input\":\"x\"}", responses_event},
    {"POST /v1/chat/completions", "{\"model\":\"m\",\"stream\":true,\"messages\":[{\"role\":"
                                  "\"user\",\"content\":\"x\"}]}", chat_event},
    {"POST /api/chat", "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
     ollama_event},
};

static void check_stream(const struct form *f, struct checker *c)
{
    str rest = buf_view(&c->p->out), line, name = {"", 0};
    bool is_sse = strcmp(c->p->d->stream_type, "text/event-stream") == 0;
    while (str_split(&rest, '\n', &line)) {
        if (str_starts(line, STR("event: ")))
            name = str_from(line, strlen("event: "));
        if (line.len == 0 || (is_sse && !str_starts(line, STR("data: "))))
            continue;
        str raw = is_sse ? str_from(line, strlen("data: ")) : line;
        if (!str_eq_z(raw, "[DONE]"))
            f->check(c, name, play_json(c->p, raw), raw);
    }
    expect(c->is_over || c->has_error, c, "no end", (str){"", 0});
}

static void say_piece(struct play *p, struct chrono_rng *rng, enum api_event_kind kind)
{
    static const char *const pieces[] = {"", " ", "\n\n", "x", "ü ", " y", "\"", "</think>"};
    play_text(p, 0, kind, str_of(pieces[chrono_rng_below(rng, countof(pieces))]));
}

/* How a random reply ends: inside a call or not, with an error or a reason. */
struct ending {
    uint32_t calls; /* whole ones */
    bool is_cut, is_error;
    enum api_done reason;
};

static void open_call(struct play *p, uint32_t index)
{
    char id[32];
    snprintf(id, sizeof id, "call_%u", index);
    const struct api_call call = {.index = index, .id = str_of(id), .name = STR("f")};
    play_event(p, 0, (struct api_event){.kind = API_EVENT_CALL_BEGIN, .call = call});
    const struct api_call args = {.index = index, .args = STR("{\"a\":")};
    play_event(p, 0, (struct api_event){.kind = API_EVENT_CALL_ARGS, .call = args});
}

static struct ending play_random(struct play *p, uint64_t seed)
{
    struct chrono_rng rng;
    struct ending end = {.reason = API_DONE_EOS};
    chrono_rng_init(&rng, seed);
    play_started(p);
    for (uint64_t n = chrono_rng_below(&rng, 12); n > 0; n--) {
        uint64_t what = chrono_rng_below(&rng, 5);
        if (what == 0) {
            char id[32];
            snprintf(id, sizeof id, "call_%u", end.calls);
            play_call(p, end.calls++, id, "{\"a\": [1,\n 2]}");
        } else {
            say_piece(p, &rng, what < 3 ? API_EVENT_REASONING : API_EVENT_CONTENT);
        }
    }
    end.is_cut = chrono_rng_below(&rng, 4) == 0;
    end.is_error = chrono_rng_below(&rng, 5) == 0;
    if (end.is_cut)
        open_call(p, end.calls);
    if (end.is_error) {
        play_fail(p, ERR_ENGINE, "the engine is lost");
        return end;
    }
    end.reason = end.is_cut ? API_DONE_MAX_TOKENS : end.calls ? API_DONE_CALLS : API_DONE_EOS;
    if (chrono_rng_below(&rng, 8) == 0)
        end.reason = API_DONE_CALLS; /* also where it is a lie */
    play_usage(p);
    play_done(p, 0, end.reason);
    return end;
}

static void test_A07_A11_A12_A13_no_reply_breaks_the_order_of_its_protocol(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(forms); i++)
        for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
            struct play p = {.ok = false};
            struct checker c = {.p = &p, .index = -1};
            buf_init(&c.items, 1 << 16);
            buf_init(&c.args, 1 << 16);
            play_ok(&p, forms[i].target, forms[i].body);
            struct ending end = play_random(&p, seed);
            bool was_begun = p.out.len > 0 && p.out.p[0] != '{';
            if (!end.is_error || was_begun) /* else the error is the whole body */
                check_stream(&forms[i], &c);
            assert_true(p.st->is_over && (c.has_error == (end.is_error && was_begun) ||
                                          strcmp(forms[i].target, "POST /api/chat") == 0));
            buf_deinit(&c.items);
            buf_deinit(&c.args);
            play_end(&p);
        }
}

/* "No call finish without a call", and half a call is never shown as one. */
static void test_B18_a_cut_call_is_no_call(void **state)
{
    static const struct {
        const char *target, *body, *finish, *call;
    } rows[] = {
        {"POST /v1/messages", "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\","
                              "\"content\":\"x\"}]}", "\"stop_reason\":\"max_tokens\"",
         "tool_use\""},
        {"POST /v1/responses", "{\"model\":\"m\",\"input\":\"x\"}", "\"status\":\"incomplete\"",
         "\"function_call\",\"status\":\"completed\""},
        {"POST /v1/chat/completions", "{\"model\":\"m\",\"messages\":[{\"role\":\"user\","
                                      "\"content\":\"x\"}]}", "\"finish_reason\":\"length\"",
         "tool_calls\""},
        {"POST /api/chat", "{\"model\":\"m\",\"stream\":false,\"messages\":[{\"role\":\"user\","
                           "\"content\":\"x\"}]}", "\"done_reason\":\"length\"", "tool_calls\""},
    };
    static const enum api_done reasons[] = {API_DONE_MAX_TOKENS, API_DONE_CALLS};
    (void)state;
    for (size_t i = 0; i < countof(rows); i++)
        for (size_t k = 0; k < countof(reasons); k++) {
            struct play p = {.ok = false};
            play_ok(&p, rows[i].target, rows[i].body);
            play_started(&p);
            play_say(&p, "Let me see.");
            open_call(&p, 0);
            play_usage(&p);
            play_done(&p, 0, reasons[k]);
            str all = buf_view(&p.out);
            play_json(&p, all);
            if (str_find(all, str_of(rows[i].finish)) == STR_NONE ||
                str_find(all, str_of(rows[i].call)) != STR_NONE)
                fail_msg("%s: %.*s", rows[i].target, STR_ARG(all));
            size_t partial = str_find(all, STR("\"partial_call\":{\"id\":"));
            assert_true(partial != STR_NONE);
            assert_true(str_find(str_from(all, partial), STR("\"arguments\":\"{\\\"a\\\":\"}")) !=
                        STR_NONE);
            play_end(&p);
        }
}

static void test_a_client_that_wants_no_thinking_gets_none(void **state)
{
    static const struct {
        const char *target, *body;
    } rows[] = {
        {"POST /v1/messages", "{\"model\":\"m\",\"max_tokens\":9,\"thinking\":{\"type\":"
                              "\"disabled\"},\"messages\":[{\"role\":\"user\",\"content\":"
                              "\"x\"}]}"},
        {"POST /v1/responses", "{\"model\":\"m\",\"input\":\"x\",\"reasoning\":{\"effort\":"
                               "\"none\"}}"},
        {"POST /v1/chat/completions", "{\"model\":\"m\",\"reasoning_effort\":\"none\","
                                      "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"},
        {"POST /api/chat", "{\"model\":\"m\",\"stream\":false,\"think\":false,\"messages\":"
                           "[{\"role\":\"user\",\"content\":\"x\"}]}"},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct play p = {0};
        play_ok(&p, rows[i].target, rows[i].body);
        play_started(&p);
        play_think(&p, "a secret");
        play_say(&p, "yes");
        play_usage(&p);
        play_done(&p, 0, API_DONE_EOS);
        str all = buf_view(&p.out);
        if (str_find(all, STR("secret")) != STR_NONE || str_find(all, STR("yes")) == STR_NONE)
            fail_msg("%s: %.*s", rows[i].target, STR_ARG(all));
        play_end(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_A07_A11_A12_A13_no_reply_breaks_the_order_of_its_protocol),
        cmocka_unit_test(test_B18_a_cut_call_is_no_call),
        cmocka_unit_test(test_a_client_that_wants_no_thinking_gets_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
