/* A request of protocol A, written to an upstream of protocol B and read there again, says the same
 * but for the table of BEHAVIOUR 9.1; of one protocol, the body goes as it was written. */
#include "dialect_play.h"

#include "dialect/dialect_ask.h"

static const struct {
    const char *name, *target, *upstream_target;
} protocols[] = {
    {"ollama", "POST /api/chat", "POST /api/chat"},
    {"openai_chat", "POST /v1/chat/completions", "POST /v1/chat/completions"},
    {"anthropic", "POST /v1/messages", "POST /v1/messages"},
    {"openai_responses", "POST /v1/responses", "POST /v1/responses"},
};

/* ---- Asking ---- */

struct asking {
    struct play p;
    struct dialect_client_state *st;
    struct dialect_upstream leg;
    struct buf body;
};

static void no_batch(void *ctx, const struct api_batch *b) { (void)ctx, (void)b; }

static void ask(struct asking *a, const char *target, const char *body, const char *to)
{
    const struct dialect *d = dialect_of(str_of(to));
    struct api_error e = {0};
    play_ok(&a->p, target, body);
    a->st = calloc(1, d->client->state_size);
    dialect_client_init(a->st, d, &a->leg, &a->p.rq, (struct api_sink){no_batch, NULL});
    buf_init(&a->body, DIALECT_CLIENT_BODY_MAX);
    if (!d->client->write_request(&a->body, a->st, &e))
        fail_msg("%s to %s: %s", body, to, e.err.text);
}

static void ask_end(struct asking *a)
{
    dialect_client_deinit(a->st);
    free(a->st);
    buf_deinit(&a->body);
    play_end(&a->p);
    *a = (struct asking){.st = NULL};
}

static bool has_lost(const struct asking *a, const char *code)
{
    for (uint32_t i = 0; i < a->st->notes_count; i++)
        if (str_eq_z(a->st->notes[i].code, code))
            return true;
    return false;
}

/* ---- A request in one line ---- */

static void print_part(struct buf *out, const struct api_part *p)
{
    static const char letters[] = "tirxo";
    buf_add_byte(out, letters[p->kind]);
    buf_printf(out, "(%.*s %.*s%s%.*s %.*s)", STR_ARG(p->id), STR_ARG(p->name_space),
               p->name_space.len ? "__" : "", STR_ARG(p->name), STR_ARG(p->text));
}

/* Results stand apart from their message's role; their names are told by their calls. */
static void print_messages(struct buf *out, const struct api_request *rq)
{
    for (uint32_t i = 0; i < rq->messages_count; i++) {
        const struct api_message *m = &rq->messages[i];
        for (uint32_t k = 0; k < m->parts_count; k++) {
            struct api_part p = m->parts[k];
            bool is_result = p.kind == API_PART_RESULT;
            if (p.text.len == 0 && p.kind == API_PART_TEXT)
                continue;
            if (is_result)
                p.name = STR("");
            buf_printf(out, "%s:", is_result ? "tool"
                                   : m->role == API_ROLE_DEVELOPER ? "system"
                                   : api_request_role_name(m->role));
            print_part(out, &p);
            buf_add_byte(out, ' ');
        }
    }
}

static void print_request(struct buf *out, const struct api_request *rq)
{
    print_messages(out, rq);
    for (uint32_t i = 0; i < rq->tools_count; i++)
        if (rq->tools[i].kind != API_TOOL_HOSTED && rq->tools[i].allowed)
            buf_printf(out, "tool %.*s '%.*s' %.*s; ", STR_ARG(rq->tools[i].name),
                       STR_ARG(rq->tools[i].description), STR_ARG(rq->tools[i].schema));
    buf_printf(out, "choice %d parallel %d format %d %.*s ", (int)rq->tool_choice,
               rq->parallel_tool_calls, (int)rq->format.kind, STR_ARG(rq->format.text));
    if (api_request_is_given(rq, API_FIELD_TEMPERATURE))
        buf_printf(out, "temperature %g ", (double)rq->temperature);
    if (api_request_is_given(rq, API_FIELD_TOP_P))
        buf_printf(out, "top_p %g ", (double)rq->top_p);
    if (rq->tokens_max)
        buf_printf(out, "tokens %u ", rq->tokens_max);
}

/* ---- The matrix ---- */

/* One conversation in four protocols: system, user, thinking + text + two calls, results, user. */
#define SCHEMA "{\"type\":\"object\",\"properties\":{\"q\":{\"type\":\"string\"}}}"
static const char *const conversation[] = {
    "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"be brief\"},"
    "{\"role\":\"user\",\"content\":\"find ü\"},{\"role\":\"assistant\",\"content\":\"ok\","
    "\"thinking\":\"hm\",\"tool_calls\":[{\"id\":\"c1\",\"function\":{\"name\":\"find\","
    "\"arguments\":{\"q\":\"ü\"}}},{\"id\":\"c2\",\"function\":{\"name\":\"find\",\"arguments\":"
    "{\"q\":\"b\"}}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"one\"},"
    "{\"role\":\"tool\",\"tool_call_id\":\"c2\",\"content\":\"two\"},"
    "{\"role\":\"user\",\"content\":\"go on\"}],\"tools\":[{\"type\":\"function\",\"function\":"
    "{\"name\":\"find\",\"description\":\"finds\",\"parameters\":" SCHEMA "}}],\"format\":" SCHEMA
    ",\"options\":{\"temperature\":0.5,\"top_p\":0.75,\"num_predict\":77}}",

    "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"be brief\"},"
    "{\"role\":\"user\",\"content\":\"find ü\"},{\"role\":\"assistant\",\"content\":\"ok\","
    "\"reasoning_content\":\"hm\",\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\","
    "\"function\":{\"name\":\"find\",\"arguments\":\"{\\\"q\\\":\\\"ü\\\"}\"}},{\"id\":\"c2\","
    "\"type\":\"function\",\"function\":{\"name\":\"find\",\"arguments\":\"{\\\"q\\\":\\\"b\\\"}\""
    "}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"one\"},"
    "{\"role\":\"tool\",\"tool_call_id\":\"c2\",\"content\":\"two\"},"
    "{\"role\":\"user\",\"content\":\"go on\"}],\"tools\":[{\"type\":\"function\",\"function\":"
    "{\"name\":\"find\",\"description\":\"finds\",\"parameters\":" SCHEMA "}}],\"response_format\":"
    "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":" SCHEMA "}},"
    "\"temperature\":0.5,\"top_p\":0.75,\"max_tokens\":77}",

    "{\"model\":\"m\",\"max_tokens\":77,\"system\":\"be brief\",\"messages\":["
    "{\"role\":\"user\",\"content\":\"find ü\"},{\"role\":\"assistant\",\"content\":["
    "{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"s\"},"
    "{\"type\":\"text\",\"text\":\"ok\"},"
    "{\"type\":\"tool_use\",\"id\":\"c1\",\"name\":\"find\",\"input\":{\"q\":\"ü\"}},"
    "{\"type\":\"tool_use\",\"id\":\"c2\",\"name\":\"find\",\"input\":{\"q\":\"b\"}}]},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"c1\",\"content\":"
    "\"one\"},{\"type\":\"tool_result\",\"tool_use_id\":\"c2\",\"content\":[{\"type\":\"text\","
    "\"text\":\"two\"}]},{\"type\":\"text\",\"text\":\"go on\"}]}],\"tools\":[{\"name\":\"find\","
    "\"description\":\"finds\",\"input_schema\":" SCHEMA "}],\"output_config\":{\"format\":{"
    "\"type\":\"json_schema\",\"schema\":" SCHEMA "}},\"temperature\":0.5,\"top_p\":0.75}",

    "{\"model\":\"m\",\"instructions\":\"be brief\",\"input\":[{\"role\":\"user\",\"content\":"
    "\"find ü\"},{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"hm\"}]"
    "},{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
    "\"text\":\"ok\"}]},{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"find\","
    "\"arguments\":\"{\\\"q\\\":\\\"ü\\\"}\"},{\"type\":\"function_call\",\"call_id\":\"c2\","
    "\"name\":\"find\",\"arguments\":\"{\\\"q\\\":\\\"b\\\"}\"},{\"type\":\"function_call_output\","
    "\"call_id\":\"c1\",\"output\":\"one\"},{\"type\":\"function_call_output\",\"call_id\":\"c2\","
    "\"output\":\"two\"},{\"role\":\"user\",\"content\":\"go on\"}],\"tools\":[{\"type\":"
    "\"function\",\"name\":\"find\",\"description\":\"finds\",\"parameters\":" SCHEMA "}],\"text\":"
    "{\"format\":{\"type\":\"json_schema\",\"name\":\"a\",\"schema\":" SCHEMA "}},"
    "\"temperature\":0.5,\"top_p\":0.75,\"max_output_tokens\":77}",
};

/* Writes to a leg of `to`, reads there, prints both. */
static void compare(size_t from, size_t to, enum dialect_continue how, bool keeps_reasoning)
{
    struct asking a = {.leg = {.name = STR("leg"), .caps = API_CAP_ALL_, .how = how}};
    struct play q = {0};
    struct buf want, got;
    buf_init(&want, 1 << 20);
    buf_init(&got, 1 << 20);
    ask(&a, protocols[from].target, conversation[from], protocols[to].name);
    play_ok(&q, protocols[to].target, a.body.p);
    print_request(&want, &a.p.rq);
    print_request(&got, &q.rq);
    size_t at = str_find(buf_view(&want), STR("assistant:r( "));
    assert_true(at != STR_NONE);
    if (!keeps_reasoning) { /* " hm) " and its head are not said */
        size_t end = at + strlen("assistant:r(  hm) ");
        struct buf cut;
        buf_init(&cut, 1 << 20);
        buf_add(&cut, str_sub(buf_view(&want), 0, at));
        buf_add(&cut, str_from(buf_view(&want), end));
        buf_deinit(&want);
        want = cut;
        assert_true(has_lost(&a, "block_dropped"));
    }
    if (!str_eq(buf_view(&want), buf_view(&got)))
        fail_msg("%s to %s\n want %s\n got  %s\n by   %s", protocols[from].name,
                 protocols[to].name, want.p, got.p, a.body.p);
    buf_deinit(&want);
    buf_deinit(&got);
    play_end(&q);
    ask_end(&a);
}

static void test_every_protocol_says_the_same_in_every_other(void **state)
{
    (void)state;
    for (size_t from = 0; from < countof(protocols); from++)
        for (size_t to = 0; to < countof(protocols); to++) {
            bool keeps = from == to || to < 2; /* Ollama, chat with thinking */
            compare(from, to, DIALECT_CONTINUE_NONE, keeps);
            compare(from, to, DIALECT_CONTINUE_SHOAL, true);
        }
}

/* An upstream of OpenAI's is asked for a level: what was another is told the client. */
static void test_a_budget_of_thinking_is_a_level_for_openai_and_the_client_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *thinking, *level, *note;
        bool can_think;
    } rows[] = {
        {"{\"type\":\"enabled\",\"budget_tokens\":4000}", "\"low\"", "effort_approximated", true},
        {"{\"type\":\"disabled\"}", "\"none\"", NULL, true},
        {"{\"type\":\"adaptive\"}", NULL, NULL, true},
        {"{\"type\":\"enabled\",\"budget_tokens\":4000}", NULL, "thinking_unsupported", false},
    };
    for (size_t i = 0; i < countof(rows); i++)
        for (size_t to = 1; to < countof(protocols); to += 2) {
            uint32_t caps = rows[i].can_think ? API_CAP_ALL_ : API_CAP_ALL_ & ~API_CAP_THINK;
            struct asking a = {.leg = {.name = STR("leg"), .caps = caps}};
            char body[256];
            snprintf(body, sizeof body, "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":"
                     "\"user\",\"content\":\"q\"}],\"thinking\":%s}", rows[i].thinking);
            ask(&a, "POST /v1/messages", body, protocols[to].name);
            bool has_level = strstr(a.body.p, "effort") != NULL;
            if (has_level != (rows[i].level != NULL) ||
                (has_level && !strstr(a.body.p, rows[i].level)) ||
                (rows[i].note ? !has_lost(&a, rows[i].note) : a.st->notes_count > 0))
                fail_msg("%s to %s: %s, %u notes", rows[i].thinking, protocols[to].name, a.body.p,
                         a.st->notes_count);
            ask_end(&a);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_protocol_says_the_same_in_every_other),
        cmocka_unit_test(
            test_a_budget_of_thinking_is_a_level_for_openai_and_the_client_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
