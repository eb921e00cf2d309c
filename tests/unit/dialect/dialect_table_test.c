/* The property that all dialects share: whatever pieces a reply comes in, its stream joined as the
 * protocol's clients join it says the same as the reply that is not streamed. A row of the dialect
 * table without a row here fails. */
#include "dialect_play.h"

#include "base/chrono.h"

enum { CALLS_MAX = 2, TEXT_MAX = 4096 };

/* What a client ends up with. */
struct joined {
    struct buf content, reasoning;
    char finish[32], usage[512], ids[CALLS_MAX][64];
    struct buf args[CALLS_MAX];
    struct buf logprobs; /* bytes of the tokens */
    uint32_t calls;
    bool is_over;
};

struct form {
    const char *dialect, *target, *body; /* body: %s = true or false */
    bool has_reasoning, has_calls, has_logprobs;
    void (*add)(struct play *p, struct joined *j, struct json event); /* of a stream */
    void (*whole)(struct play *p, struct joined *j, struct json v);
};

/* ---- Small parts ---- */

static void add_text(struct play *p, struct buf *to, struct json v)
{
    if (json_kind(v) == JSON_KIND_STRING)
        assert_true(buf_add(to, json_text(v, &p->a)));
}

static void put(struct play *p, char *to, size_t size, struct json v)
{
    str s = json_kind(v) == JSON_KIND_STRING ? json_text(v, &p->a) : json_raw(v);
    if (json_kind(v) > JSON_KIND_NULL)
        snprintf(to, size, "%.*s", STR_ARG(s));
}

static void add_logprobs(struct joined *j, struct json list)
{
    int64_t byte;
    for (struct json_walk w = json_walk(list); json_next(&w);)
        for (struct json_walk b = json_walk(json_member(w.value, "bytes")); json_next(&b);) {
            assert_true(json_i64(b.value, &byte));
            buf_add_byte(&j->logprobs, (char)byte);
        }
}

/* An object of arguments as the text that the model wrote: here they are one string member. */
static void add_call(struct play *p, struct joined *j, struct json id, struct json args)
{
    assert_true(j->calls < CALLS_MAX);
    put(p, j->ids[j->calls], sizeof j->ids[0], id);
    if (json_kind(args) == JSON_KIND_STRING)
        add_text(p, &j->args[j->calls], args);
    else
        buf_add(&j->args[j->calls], json_raw(args));
    j->calls++;
}

/* ---- OpenAI chat ---- */

static void chat_calls(struct play *p, struct joined *j, struct json calls)
{
    int64_t index;
    for (struct json_walk w = json_walk(calls); json_next(&w);) {
        struct json function = json_member(w.value, "function"), id = json_member(w.value, "id");
        if (!json_i64(json_member(w.value, "index"), &index)) {
            add_call(p, j, id, json_member(function, "arguments"));
            continue;
        }
        assert_true(index >= 0 && index < CALLS_MAX);
        if (json_kind(id) == JSON_KIND_STRING) {
            assert_int_equal(index, j->calls);
            put(p, j->ids[j->calls++], sizeof j->ids[0], id);
        }
        add_text(p, &j->args[index], json_member(function, "arguments"));
    }
}

static void chat_choice(struct play *p, struct joined *j, struct json choice, const char *member)
{
    struct json m = json_member(choice, member);
    add_text(p, &j->content, json_member(m, "content"));
    add_text(p, &j->reasoning, json_member(m, "reasoning_content"));
    chat_calls(p, j, json_member(m, "tool_calls"));
    put(p, j->finish, sizeof j->finish, json_member(choice, "finish_reason"));
    add_logprobs(j, json_member(json_member(choice, "logprobs"), "content"));
}

static void chat_add(struct play *p, struct joined *j, struct json v)
{
    put(p, j->usage, sizeof j->usage, json_member(v, "usage"));
    for (struct json_walk w = json_walk(json_member(v, "choices")); json_next(&w);)
        chat_choice(p, j, w.value, "delta");
}

static void chat_whole(struct play *p, struct joined *j, struct json v)
{
    put(p, j->usage, sizeof j->usage, json_member(v, "usage"));
    chat_choice(p, j, json_at(json_member(v, "choices"), 0), "message");
}

/* ---- Completions ---- */

static void complete_add(struct play *p, struct joined *j, struct json v)
{
    struct json choice = json_at(json_member(v, "choices"), 0);
    struct json offsets = json_member(json_member(choice, "logprobs"), "text_offset");
    put(p, j->usage, sizeof j->usage, json_member(v, "usage"));
    add_text(p, &j->content, json_member(choice, "text"));
    put(p, j->finish, sizeof j->finish, json_member(choice, "finish_reason"));
    for (struct json_walk w = json_walk(offsets); json_next(&w);)
        buf_printf(&j->logprobs, "%.*s ", STR_ARG(json_raw(w.value)));
}

/* ---- Ollama ---- */

static void ollama_add(struct play *p, struct joined *j, struct json v)
{
    static const char *const counts[] = {"total_duration", "load_duration", "prompt_eval_count",
                                         "prompt_eval_duration", "eval_count", "eval_duration"};
    struct json m = json_member(v, "message");
    size_t n = 0;
    if (json_kind(m) != JSON_KIND_OBJECT)
        m = v;
    add_text(p, &j->content, json_member(m, "content"));
    add_text(p, &j->content, json_member(m, "response"));
    add_text(p, &j->reasoning, json_member(m, "thinking"));
    for (struct json_walk w = json_walk(json_member(m, "tool_calls")); json_next(&w);)
        add_call(p, j, json_member(w.value, "id"),
                 json_member(json_member(w.value, "function"), "arguments"));
    put(p, j->finish, sizeof j->finish, json_member(v, "done_reason"));
    add_logprobs(j, json_member(v, "logprobs"));
    for (size_t i = 0; i < countof(counts); i++) {
        struct json count = json_member(v, counts[i]);
        if (json_kind(count) == JSON_KIND_NUMBER)
            n += (size_t)snprintf(j->usage + n, sizeof j->usage - n, "%.*s ",
                                  STR_ARG(json_raw(count)));
    }
}

/* ---- Anthropic: also the rules of blocks (A07) ---- */

static void anthropic_block(struct play *p, struct joined *j, struct json block)
{
    struct json type = json_member(block, "type");
    if (json_text_eq(type, STR("text")))
        add_text(p, &j->content, json_member(block, "text"));
    else if (json_text_eq(type, STR("thinking")))
        add_text(p, &j->reasoning, json_member(block, "thinking"));
    else
        add_call(p, j, json_member(block, "id"), json_member(block, "input"));
}

static void anthropic_end(struct play *p, struct joined *j, struct json from, struct json v)
{
    put(p, j->finish, sizeof j->finish, json_member(from, "stop_reason"));
    put(p, j->usage, sizeof j->usage, json_member(v, "usage"));
}

static void anthropic_add(struct play *p, struct joined *j, struct json v)
{
    static int64_t open, count; /* of the stream that is being joined */
    struct json type = json_member(v, "type"), delta = json_member(v, "delta");
    int64_t index = -1;
    (void)json_i64(json_member(v, "index"), &index);
    if (json_text_eq(type, STR("message_start"))) {
        open = -1;
        count = 0;
    } else if (json_text_eq(type, STR("content_block_start"))) {
        struct json block = json_member(v, "content_block");
        assert_true(open == -1 && index == count);
        open = count++;
        if (json_text_eq(json_member(block, "type"), STR("tool_use")))
            put(p, j->ids[j->calls++], sizeof j->ids[0], json_member(block, "id"));
    } else if (json_text_eq(type, STR("content_block_delta"))) {
        assert_true(index == open);
        add_text(p, &j->content, json_member(delta, "text"));
        add_text(p, &j->reasoning, json_member(delta, "thinking"));
        if (j->calls)
            add_text(p, &j->args[j->calls - 1], json_member(delta, "partial_json"));
    } else if (json_text_eq(type, STR("content_block_stop"))) {
        assert_true(index == open && open >= 0);
        open = -1;
    } else if (json_text_eq(type, STR("message_delta"))) {
        assert_int_equal(open, -1);
        anthropic_end(p, j, delta, v);
    } else {
        assert_true(json_text_eq(type, STR("message_stop")));
        j->is_over = true;
    }
}

static void anthropic_whole(struct play *p, struct joined *j, struct json v)
{
    for (struct json_walk w = json_walk(json_member(v, "content")); json_next(&w);)
        anthropic_block(p, j, w.value);
    anthropic_end(p, j, v, v);
}

/* ---- Responses ---- */

static void responses_whole(struct play *p, struct joined *j, struct json v)
{
    for (struct json_walk w = json_walk(json_member(v, "output")); json_next(&w);) {
        struct json part = json_at(json_member(w.value, "content"), 0);
        struct json summary = json_at(json_member(w.value, "summary"), 0);
        if (json_text_eq(json_member(w.value, "type"), STR("function_call")))
            add_call(p, j, json_member(w.value, "call_id"), json_member(w.value, "arguments"));
        add_text(p, &j->content, json_member(part, "text"));
        add_text(p, &j->reasoning, json_member(summary, "text"));
        add_logprobs(j, json_member(part, "logprobs"));
    }
    put(p, j->finish, sizeof j->finish, json_member(v, "status"));
    put(p, j->usage, sizeof j->usage, json_member(v, "usage"));
}

/* Joined from the deltas; the last event must repeat it. */
static void responses_add(struct play *p, struct joined *j, struct json v)
{
    static int64_t next;
    struct json type = json_member(v, "type"), delta = json_member(v, "delta");
    struct json item = json_member(v, "item");
    int64_t number = -1;
    assert_true(json_i64(json_member(v, "sequence_number"), &number));
    next = json_text_eq(type, STR("response.created")) ? 0 : next + 1;
    assert_int_equal(number, next);
    if (json_text_eq(type, STR("response.output_text.delta"))) {
        add_text(p, &j->content, delta);
        add_logprobs(j, json_member(v, "logprobs"));
    } else if (json_text_eq(type, STR("response.reasoning_summary_text.delta"))) {
        add_text(p, &j->reasoning, delta);
    } else if (json_text_eq(type, STR("response.function_call_arguments.delta"))) {
        add_text(p, &j->args[j->calls - 1], delta);
    } else if (json_text_eq(type, STR("response.output_item.added")) &&
               json_text_eq(json_member(item, "type"), STR("function_call"))) {
        put(p, j->ids[j->calls++], sizeof j->ids[0], json_member(item, "call_id"));
    } else if (json_text_eq(type, STR("response.completed")) ||
               json_text_eq(type, STR("response.incomplete"))) {
        struct json r = json_member(v, "response");
        put(p, j->finish, sizeof j->finish, json_member(r, "status"));
        put(p, j->usage, sizeof j->usage, json_member(r, "usage"));
        j->is_over = true;
    }
}

static const struct form forms[] = {
    {"openai_chat", "POST /v1/chat/completions",
     "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"logprobs\":true,"
     "\"stream\":%s,\"stream_options\":{\"include_usage\":true}}",
     true, true, true, chat_add, chat_whole},
    {"openai_complete", "POST /v1/completions",
     "{\"model\":\"m\",\"prompt\":\"q\",\"logprobs\":0,\"stream\":%s,\"stream_options\":{"
     "\"include_usage\":true}}",
     false, false, true, complete_add, complete_add},
    {"openai_responses", "POST /v1/responses",
     "{\"model\":\"m\",\"input\":\"q\",\"stream\":%s,\"include\":"
     "[\"message.output_text.logprobs\"]}",
     true, true, true, responses_add, responses_whole},
    {"ollama", "POST /api/chat",
     "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"logprobs\":true,"
     "\"stream\":%s}",
     true, true, true, ollama_add, ollama_add},
    {"ollama", "POST /api/generate",
     "{\"model\":\"m\",\"prompt\":\"q\",\"logprobs\":true,\"stream\":%s}", true, false, true,
     ollama_add, ollama_add},
    {"anthropic", "POST /v1/messages",
     "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"stream\":%s}", true,
     true, false, anthropic_add, anthropic_whole},
    {"openai_models", NULL, NULL, false, false, false, NULL, NULL}, /* streams nothing */
    {"contexts", NULL, NULL, false, false, false, NULL, NULL},      /* nor this */
};

/* ---- A reply in pieces ---- */

#define REASONING "let me \xf0\x9f\xa4\x94 think\n"
#define CONTENT "a \"q\" \\ \xc3\xa9\xf0\x9f\x98\x80\n\n  b\t</s>\x01\xe2\x80\xa8 end \n"

struct script {
    const struct form *form;
    uint64_t cuts[2]; /* bit i: a cut before byte i of reasoning, content; ~0: everywhere */
    enum api_done reason;
    bool has_calls, has_reasoning;
};

static void play_cut(struct play *p, const struct script *s, enum api_event_kind kind, str text)
{
    uint64_t cuts = s->cuts[kind == API_EVENT_CONTENT];
    for (size_t from = 0, to = 1; from < text.len; to++) {
        if (to < text.len && (((uint8_t)text.p[to] & 0xc0) == 0x80 || !(cuts >> (to % 64) & 1)))
            continue;
        struct api_logprob one = {.token = {1, -1.0f, str_sub(text, from, to - from)}};
        bool has_logprob = kind == API_EVENT_CONTENT && s->form->has_logprobs;
        play_event(p, 0, (struct api_event){
            .kind = kind, .text = {str_sub(text, from, to - from), has_logprob ? &one : NULL,
                                   has_logprob}});
        from = to;
    }
}

static void play_script(struct play *p, const struct script *s, bool stream)
{
    char body[512];
    snprintf(body, sizeof body, "%s", s->form->body);
    char *hole = strstr(body, "%s");
    assert_non_null(hole);
    snprintf(body, sizeof body, "%.*s%s%s", (int)(strstr(s->form->body, "%s") - s->form->body),
             s->form->body, stream ? "true" : "false", strstr(s->form->body, "%s") + 2);
    play_ok(p, s->form->target, body);
    p->st->total_ns = 77;
    play_started(p);
    if (s->has_reasoning)
        play_cut(p, s, API_EVENT_REASONING, STR(REASONING));
    play_cut(p, s, API_EVENT_CONTENT, STR(CONTENT));
    for (uint32_t i = 0; s->has_calls && i < CALLS_MAX; i++)
        play_call(p, i, i ? "call_b" : "call_a", i ? "{\"k\":\"v\"}" : "{}");
    play_usage(p);
    play_done(p, 0, s->reason);
    assert_true(p->st->is_over);
}

static void open_joined(struct joined *j)
{
    memset(j, 0, sizeof *j);
    buf_init(&j->content, TEXT_MAX);
    buf_init(&j->reasoning, TEXT_MAX);
    buf_init(&j->logprobs, TEXT_MAX);
    for (int i = 0; i < CALLS_MAX; i++)
        buf_init(&j->args[i], TEXT_MAX);
}

static void close_joined(struct joined *j)
{
    buf_deinit(&j->content);
    buf_deinit(&j->reasoning);
    buf_deinit(&j->logprobs);
    for (int i = 0; i < CALLS_MAX; i++)
        buf_deinit(&j->args[i]);
}

/* SSE or lines of JSON; a name of an event is the type of its object. */
static void join(struct play *p, const struct form *f, struct joined *j)
{
    str rest = buf_view(&p->out), line, name = {NULL, 0};
    bool is_sse = strcmp(p->d->stream_type, "text/event-stream") == 0;
    while (str_split(&rest, '\n', &line)) {
        if (str_starts(line, STR("event: ")))
            name = str_from(line, strlen("event: "));
        if (line.len == 0 || !(str_starts(line, STR("data: ")) || !is_sse))
            continue;
        line = is_sse ? str_from(line, strlen("data: ")) : line;
        assert_false(str_eq_z(line, "[DONE]") && j->is_over);
        if (str_eq_z(line, "[DONE]")) {
            j->is_over = true;
            continue;
        }
        struct json v = play_json(p, line);
        if (name.len)
            assert_true(json_text_eq(json_member(v, "type"), name));
        f->add(p, j, v);
        if (!is_sse)
            assert_true(!j->is_over && json_bool(json_member(v, "done"), &j->is_over));
    }
    assert_true(j->is_over);
}

static void compare(const struct script *s, const struct joined *a, const struct joined *b)
{
    const char *name = s->form->target;
    if (!str_eq(buf_view(&a->content), buf_view(&b->content)))
        fail_msg("%s: content '%s', streamed '%s'", name, a->content.p, b->content.p);
    if (!str_eq(buf_view(&a->reasoning), buf_view(&b->reasoning)))
        fail_msg("%s: reasoning '%s', streamed '%s'", name, a->reasoning.p, b->reasoning.p);
    if (!str_eq(buf_view(&a->logprobs), buf_view(&b->logprobs)))
        fail_msg("%s: logprobs '%s', streamed '%s'", name, a->logprobs.p, b->logprobs.p);
    assert_string_equal(a->finish, b->finish);
    assert_string_equal(a->usage, b->usage);
    assert_true(a->finish[0] && a->usage[0] && a->content.len);
    assert_int_equal(a->calls, b->calls);
    assert_int_equal(a->calls, s->has_calls ? CALLS_MAX : 0);
    assert_int_equal(a->reasoning.len > 0, s->has_reasoning);
    for (uint32_t i = 0; i < a->calls; i++) {
        assert_string_equal(a->ids[i], b->ids[i]);
        assert_true(str_eq(buf_view(&a->args[i]), buf_view(&b->args[i])));
    }
}

/* The stream in these pieces, and the whole reply in one. */
static void check(const struct script *s)
{
    struct script one = *s;
    struct play whole = {.ok = false}, stream = {.ok = false};
    struct joined a, b;
    open_joined(&a);
    open_joined(&b);
    if (!s->form->has_logprobs || strcmp(s->form->dialect, "openai_complete") != 0)
        one.cuts[0] = one.cuts[1] = 0; /* offsets are those of the tokens */
    play_script(&whole, &one, false);
    play_script(&stream, s, true);
    s->form->whole(&whole, &a, play_json(&whole, buf_view(&whole.out)));
    join(&stream, s->form, &b);
    compare(s, &a, &b);
    close_joined(&a);
    close_joined(&b);
    play_end(&whole);
    play_end(&stream);
}

static struct script script_of(const struct form *f, enum api_done reason)
{
    return (struct script){.form = f, .reason = reason, .has_reasoning = f->has_reasoning,
                           .has_calls = f->has_calls && reason == API_DONE_CALLS};
}

static void test_A17_A19_a_stream_says_the_same_wherever_it_is_cut_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(forms); i++)
        for (uint32_t bit = 0; forms[i].target && bit < sizeof CONTENT; bit++) {
            struct script s = script_of(&forms[i], bit % 2 ? API_DONE_CALLS : API_DONE_EOS);
            s.cuts[0] = s.cuts[1] = UINT64_C(1) << bit;
            check(&s);
        }
}

static void test_A17_a_stream_says_the_same_in_any_pieces_and_for_any_end(void **state)
{
    (void)state;
    struct chrono_rng random;
    chrono_rng_init(&random, 7);
    for (size_t i = 0; i < countof(forms); i++)
        for (int reason = 0; forms[i].target && reason < API_DONE_CANCELLED; reason++)
            for (int n = 0; n < 20; n++) {
                struct script s = script_of(&forms[i], (enum api_done)reason);
                s.cuts[0] = n ? chrono_rng_u64(&random) : ~UINT64_C(0);
                s.cuts[1] = n ? chrono_rng_u64(&random) : ~UINT64_C(0);
                check(&s);
            }
}

static void test_every_dialect_of_the_table_is_tested_here(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < dialect_table_count; i++) {
        bool is_found = false;
        for (size_t k = 0; k < countof(forms); k++)
            is_found |= strcmp(dialect_table[i]->name, forms[k].dialect) == 0;
        if (!is_found)
            fail_msg("%s has no row in the table of forms", dialect_table[i]->name);
        assert_int_equal(dialect_table[i]->stream_type != NULL,
                         dialect_table[i]->write_ping != NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_A17_A19_a_stream_says_the_same_wherever_it_is_cut_once),
        cmocka_unit_test(test_A17_a_stream_says_the_same_in_any_pieces_and_for_any_end),
        cmocka_unit_test(test_every_dialect_of_the_table_is_tested_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
