/* Tools and the choice among them, the same on every dialect; errors in the client's own words. */
#include "unit/dialect/dialect_play.h"

#define CHAT "POST /v1/chat/completions"
#define MESSAGES "POST /v1/messages"
#define RESPONSES "POST /v1/responses"
#define OLLAMA "POST /api/chat"

/* A body of each dialect with these tools and this choice; "" leaves a member out. */
struct form {
    const char *target, *head, *tool, *choice;
};
static const struct form forms[] = {
    {CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]",
     "{\"type\":\"function\",\"function\":{\"name\":\"%s\",\"parameters\":{\"type\":\"object\"}}}",
     "{\"type\":\"function\",\"function\":{\"name\":\"%s\"}}"},
    {MESSAGES, "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\","
               "\"content\":\"x\"}]",
     "{\"name\":\"%s\",\"input_schema\":{\"type\":\"object\"}}",
     "{\"type\":\"tool\",\"name\":\"%s\"}"},
    {RESPONSES, "{\"model\":\"m\",\"input\":\"x\"",
     "{\"type\":\"function\",\"name\":\"%s\",\"parameters\":{\"type\":\"object\"}}",
     "{\"type\":\"function\",\"name\":\"%s\"}"},
    {OLLAMA, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]",
     "{\"type\":\"function\",\"function\":{\"name\":\"%s\",\"parameters\":{\"type\":\"object\"}}}",
     NULL},
};

/* pattern with name in the place of its %s. */
static size_t fill(char *out, size_t size, const char *pattern, const char *name)
{
    const char *hole = strstr(pattern, "%s");
    return (size_t)snprintf(out, size, "%.*s%s%s", (int)(hole - pattern), pattern, name, hole + 2);
}

/* names: of the declared tools, JSON strings without quotes, separated by spaces. */
static char *make_body(const struct form *f, const char *names, const char *choice)
{
    static char out[1 << 18];
    char list[1 << 17];
    size_t n = (size_t)snprintf(out, sizeof out, "%s,\"tools\":[", f->head);
    snprintf(list, sizeof list, "%s", names);
    str rest = str_of(list), name;
    for (bool is_first = true; str_split(&rest, ' ', &name); is_first = false) {
        char text[300];
        snprintf(text, sizeof text, "%.*s", STR_ARG(name));
        n += (size_t)snprintf(out + n, sizeof out - n, "%s", is_first ? "" : ",");
        n += fill(out + n, sizeof out - n, f->tool, text);
    }
    n += (size_t)snprintf(out + n, sizeof out - n, "]");
    if (choice) {
        n += (size_t)snprintf(out + n, sizeof out - n, ",\"tool_choice\":");
        n += fill(out + n, sizeof out - n, f->choice, choice);
    }
    snprintf(out + n, sizeof out - n, "}");
    return out;
}

static void test_every_dialect_declares_tools_in_their_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(forms); i++) {
        struct play p = {0};
        play_ok(&p, forms[i].target, make_body(&forms[i], "get_weather read", NULL));
        assert_int_equal(p.rq.tools_count, 2);
        assert_true(str_eq_z(p.rq.tools[0].name, "get_weather"));
        assert_true(str_eq_z(p.rq.tools[1].name, "read"));
        assert_true(str_eq_z(p.rq.tools[1].schema, "{\"type\":\"object\"}"));
        assert_true(p.rq.tools[0].allowed && p.rq.tools[1].allowed);
        assert_int_equal(p.rq.tool_choice, API_TOOL_CHOICE_AUTO);
        play_end(&p);
    }
}

static void test_A14_a_named_tool_is_the_only_one_allowed_and_an_unknown_one_is_refused(void **s)
{
    (void)s;
    for (size_t i = 0; i < countof(forms); i++) {
        struct play p = {0};
        if (forms[i].choice == NULL)
            continue;
        play_ok(&p, forms[i].target, make_body(&forms[i], "get_weather read", "read"));
        assert_int_equal(p.rq.tool_choice, API_TOOL_CHOICE_NAMED);
        assert_true(!p.rq.tools[0].allowed && p.rq.tools[1].allowed);
        play_end(&p);
        play_ask(&p, forms[i].target, make_body(&forms[i], "get_weather read", "get_wether"));
        assert_false(p.ok);
        assert_int_equal(p.e.err.code, ERR_REQUEST);
        assert_non_null(strstr(p.e.err.text, "no tool get_wether is declared; there is "
                                             "get_weather"));
        assert_true(str_starts(p.e.param, STR("tool_choice")));
        play_end(&p);
    }
}

static void test_names_are_unique_not_empty_and_without_control_characters(void **state)
{
    static const struct {
        const char *names, *error;
    } rows[] = {{"f f", "has this name already"}, {"a\\nb", "without control characters"}};
    (void)state;
    for (size_t i = 0; i < countof(forms); i++)
        for (size_t k = 0; k < countof(rows); k++) {
            struct play p = {0};
            play_ask(&p, forms[i].target, make_body(&forms[i], rows[k].names, NULL));
            if (p.ok || strstr(p.e.err.text, rows[k].error) == NULL)
                fail_msg("%s %s: %s", forms[i].target, rows[k].names, p.e.err.text);
            assert_true(str_starts(p.e.param, STR("tools[")) && str_ends(p.e.param, STR("name")));
            play_end(&p);
        }
}

static void test_five_hundred_tools_and_a_schema_of_a_megabyte_are_read(void **state)
{
    static char names[8000], body[(1 << 20) + 4096];
    size_t n = 0;
    (void)state;
    for (int i = 0; i < 500; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%st%d", i ? " " : "", i);
    for (size_t i = 0; i < countof(forms); i++) {
        struct play p = {0};
        play_ok(&p, forms[i].target, make_body(&forms[i], names, NULL));
        assert_int_equal(p.rq.tools_count, 500);
        assert_true(str_eq_z(p.rq.tools[499].name, "t499"));
        play_end(&p);
    }
    n = (size_t)snprintf(body, sizeof body,
                         "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                         "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                         "\"parameters\":{\"description\":\"");
    memset(body + n, 'a', 1 << 20);
    snprintf(body + n + (1 << 20), sizeof body - n - (1 << 20), "\"}}}]}");
    struct play p = {0};
    play_ok(&p, CHAT, body);
    assert_true(p.rq.tools[0].schema.len > 1 << 20);
    play_end(&p);
}

#define TOOLS ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}," \
              "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}," \
              "{\"type\":\"custom\",\"custom\":{\"name\":\"free\"}},{\"type\":\"web_search\"}]"
#define BODY(more) "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]" more "}"

static void test_A14_chat_reads_every_form_of_tool_choice_wherever_it_stands(void **state)
{
    static const struct {
        const char *body;
        enum api_tool_choice choice;
        bool allowed[3];
    } rows[] = {
        {BODY(TOOLS ",\"tool_choice\":\"auto\""), API_TOOL_CHOICE_AUTO, {1, 1, 1}},
        {BODY(TOOLS ",\"tool_choice\":\"none\""), API_TOOL_CHOICE_NONE, {1, 1, 1}},
        {BODY(TOOLS ",\"tool_choice\":\"required\""), API_TOOL_CHOICE_REQUIRED, {1, 1, 1}},
        {BODY(",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}" TOOLS),
         API_TOOL_CHOICE_NAMED, {0, 1, 0}},
        {BODY(TOOLS ",\"tool_choice\":{\"type\":\"custom\",\"custom\":{\"name\":\"free\"}}"),
         API_TOOL_CHOICE_NAMED, {0, 0, 1}},
        {BODY(TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":"
              "\"auto\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},"
              "{\"type\":\"custom\",\"custom\":{\"name\":\"free\"}},{\"type\":\"web_search\"}]}}"),
         API_TOOL_CHOICE_AUTO, {1, 0, 1}},
        {BODY(TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":"
              "\"required\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]}}"),
         API_TOOL_CHOICE_REQUIRED, {0, 1, 0}},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct play p = {0};
        play_ok(&p, CHAT, rows[i].body);
        assert_int_equal(p.rq.tool_choice, rows[i].choice);
        for (size_t k = 0; k < 3; k++)
            assert_int_equal(p.rq.tools[k].allowed, rows[i].allowed[k]);
        assert_int_equal(p.rq.tools[2].kind, API_TOOL_CUSTOM);
        assert_int_equal(p.rq.tools[3].kind, API_TOOL_HOSTED);
        assert_true(play_has_note(&p, "tool_skipped", "tools[3]"));
        play_end(&p);
    }
}

static void test_a_wrong_choice_names_its_path(void **state)
{
    static const struct play_wrong rows[] = {
        {CHAT, BODY(TOOLS ",\"tool_choice\":\"any\""),
         "tool_choice: one of auto, none, required expected, got \"any\"", ERR_REQUEST},
        {CHAT, BODY(TOOLS ",\"tool_choice\":7"),
         "tool_choice: auto, none, required or an object expected, got number", ERR_REQUEST},
        {CHAT, BODY(TOOLS ",\"tool_choice\":{}"), "tool_choice.type: required", ERR_REQUEST},
        {CHAT, BODY(TOOLS ",\"tool_choice\":{\"type\":\"function\"}"),
         "tool_choice.function: object with a name expected", ERR_REQUEST},
        {CHAT, BODY(TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{}}"),
         "tool_choice.function.name: required", ERR_REQUEST},
        {CHAT, BODY(TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\"}"),
         "tool_choice.allowed_tools: object expected", ERR_REQUEST},
        {CHAT, BODY(TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":"
                    "{\"mode\":\"auto\"}}"),
         "tool_choice.allowed_tools.tools: array expected", ERR_REQUEST},
        {CHAT, BODY(TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":"
                    "\"zzzzzzzzz\"}}"),
         "tool_choice.function.name: no tool zzzzzzzzz is among the 4 declared", ERR_REQUEST},
        {CHAT, BODY(",\"tool_choice\":\"required\",\"tools\":[]"),
         "tool_choice: a call is required, but the request declares no tool", ERR_REQUEST},
        {CHAT, BODY(TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":"
                    "{\"mode\":\"required\",\"tools\":[]}}"),
         "tool_choice: a call is required, but allowed_tools names none of the 4 declared",
         ERR_REQUEST},
        {CHAT, BODY(",\"tools\":[{\"type\":\"function\",\"function\":{}}]"),
         "tools[0].function.name: required", ERR_REQUEST},
        {CHAT, BODY(",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"\"}}]"),
         "tools[0].function.name: 1 to 256 bytes expected, got 0", ERR_REQUEST},
        {CHAT, BODY(",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                    "\"parameters\":[]}}]"),
         "tools[0].function.parameters: object expected, got array", ERR_REQUEST},
        {CHAT, BODY(",\"tools\":[7]"), "tools[0]: object expected", ERR_REQUEST},
        {CHAT, BODY(",\"functions\":[]"), "functions: this field is not supported", ERR_REQUEST},
        {CHAT, BODY(",\"function_call\":\"auto\""), "function_call: this field is not supported",
         ERR_REQUEST},
        {MESSAGES, "{\"model\":\"m\",\"max_tokens\":9,\"tools\":[{\"input_schema\":{}}],"
                   "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
         "tools[0].name: required", ERR_REQUEST},
        {RESPONSES, "{\"model\":\"m\",\"input\":\"x\",\"tools\":[{\"type\":\"namespace\","
                    "\"tools\":[]}]}",
         "tools[0].name: required", ERR_REQUEST},
        {RESPONSES, "{\"model\":\"m\",\"input\":\"x\",\"tools\":[{\"type\":\"namespace\","
                    "\"name\":\"n\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"},"
                    "{\"type\":\"function\",\"name\":\"f\"}]}]}",
         "tools[0].tools[1].name: tool 0 has this name already", ERR_REQUEST},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct play p = {0};
        play_ask(&p, rows[i].target, rows[i].body);
        if (p.ok || strncmp(p.e.err.text, rows[i].error, strlen(rows[i].error)) != 0)
            fail_msg("%s %s\n want '%s'\n got  '%s'", rows[i].target, rows[i].body, rows[i].error,
                     p.ok ? "success" : p.e.err.text);
        assert_int_equal(p.e.err.code, rows[i].code);
        play_end(&p);
    }
}

static void test_A09_a_namespaced_function_is_chosen_by_both_of_its_names(void **state)
{
    static const struct {
        const char *space, *name;
        bool is_found;
    } rows[] = {{"mcp", "mcp__read", true}, {"mcp", "read", true}, {"mcp_", "mcp___read", false},
                {"mcp__", "mcp__read", true}, {"mcp", "mcp_read", false}};
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        char body[512];
        struct play p = {0};
        snprintf(body, sizeof body,
                 "{\"model\":\"m\",\"input\":\"x\",\"tools\":[{\"type\":\"namespace\",\"name\":"
                 "\"%s\",\"tools\":[{\"type\":\"function\",\"name\":\"read\"}]}],"
                 "\"tool_choice\":{\"type\":\"function\",\"name\":\"%s\"}}",
                 rows[i].space, rows[i].name);
        play_ask(&p, RESPONSES, body);
        assert_int_equal(p.ok, rows[i].is_found);
        play_end(&p);
    }
}

static void test_an_error_says_what_the_client_calls_its_prompt(void **state)
{
    static const struct {
        const char *target, *body, *from, *want;
    } rows[] = {
        {"POST /v1/completions", "{\"model\":\"m\",\"prompt\":\"x\"}", "inputs", "prompt"},
        {RESPONSES, "{\"model\":\"m\",\"input\":\"x\"}", "messages", "input"},
        {"POST /api/generate", "{\"model\":\"m\",\"prompt\":\"x\",\"stream\":false}", "messages",
         "prompt"},
        {CHAT, BODY(""), "messages", "messages"},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct play p = {0};
        struct api_error e = {0};
        char want[64];
        play_ok(&p, rows[i].target, rows[i].body);
        api_error_set(&e, ERR_REQUEST, "", str_of(rows[i].from), "%s: it is empty", rows[i].from);
        p.d->write_error(&p.out, p.st, &e);
        snprintf(want, sizeof want, "\"%s: it is empty\"", rows[i].want);
        assert_true(str_find(buf_view(&p.out), str_of(want)) != STR_NONE);
        snprintf(want, sizeof want, "\"param\":\"%s\"", rows[i].want);
        assert_true(i == 2 || str_find(buf_view(&p.out), str_of(want)) != STR_NONE);
        play_end(&p);
    }
}

static void test_a_field_that_is_nearly_one_is_named(void **state)
{
    struct play p = {0};
    (void)state;
    play_ok(&p, CHAT, BODY(",\"max_token\":3,\"temprature\":1,\"zzzzzzzz\":1"));
    assert_true(play_has_note(&p, "unknown_field", "max_token; did you mean max_tokens?"));
    assert_true(play_has_note(&p, "unknown_field", "temprature; did you mean temperature?"));
    assert_true(play_has_note(&p, "unknown_field", "zzzzzzzz"));
    play_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_dialect_declares_tools_in_their_order),
        cmocka_unit_test(
            test_A14_a_named_tool_is_the_only_one_allowed_and_an_unknown_one_is_refused),
        cmocka_unit_test(test_names_are_unique_not_empty_and_without_control_characters),
        cmocka_unit_test(test_five_hundred_tools_and_a_schema_of_a_megabyte_are_read),
        cmocka_unit_test(test_A14_chat_reads_every_form_of_tool_choice_wherever_it_stands),
        cmocka_unit_test(test_a_wrong_choice_names_its_path),
        cmocka_unit_test(test_A09_a_namespaced_function_is_chosen_by_both_of_its_names),
        cmocka_unit_test(test_an_error_says_what_the_client_calls_its_prompt),
        cmocka_unit_test(test_a_field_that_is_nearly_one_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
