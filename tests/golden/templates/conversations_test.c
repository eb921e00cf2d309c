/* render over real templates: the conversations of inputs.json as requests give the text that
 * Jinja2 gave for the same messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "chat/render.h"
#include "chat/render_builtin.h"

#define FILE_SIZE_MAX ((size_t)64 << 20)
#define PARTS_MAX 8

static const char *folder = "tests/golden/templates";

static str read_text(const char *name, const char *suffix, struct arena *a)
{
    char path[512];
    str text = {0};
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s%s", folder, name, suffix);
    if (!file_read(&text, path, FILE_SIZE_MAX, a, &e))
        fail_msg("%s", e.text);
    return text;
}

static struct json read_json(const char *name, struct arena *a)
{
    const struct json_options options = {.depth_max = 128};
    struct json v;
    struct err e = {0};
    if (!json_parse(&v, read_text(name, ".json", a), &options, a, &e))
        fail_msg("%s: %s", name, e.text);
    return v;
}

/* ---- OpenAI messages to a request, for tests: no checks, no errors ---- */

static str member_text(struct json v, const char *key, struct arena *a)
{
    struct json m = json_member(v, key);
    return json_kind(m) == JSON_KIND_STRING ? json_text(m, a) : (str){"", 0};
}

static void add_part(struct api_message *m, struct api_part p)
{
    struct api_part *parts = (struct api_part *)(uintptr_t)m->parts;
    assert_true(m->parts_count < PARTS_MAX);
    parts[m->parts_count++] = p;
}

static void read_content(struct api_message *m, struct json v, struct json message,
                         struct arena *a)
{
    bool is_tool = m->role == API_ROLE_TOOL;
    struct api_part p = {.kind = is_tool ? API_PART_RESULT : API_PART_TEXT};
    if (is_tool) {
        p.id = member_text(message, "tool_call_id", a);
        p.name = member_text(message, "name", a);
    }
    if (json_kind(v) == JSON_KIND_STRING) {
        p.text = json_text(v, a);
        if (p.text.len || json_kind(json_member(message, "tool_calls")) == JSON_KIND_ABSENT)
            add_part(m, p);
    }
    for (struct json_walk w = json_walk(v); json_next(&w);) {
        p.text = member_text(w.value, "text", a);
        add_part(m, p);
    }
}

static void read_message(struct api_message *m, struct json v, struct arena *a)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    str role = member_text(v, "role", a);
    for (size_t i = 0; i < countof(roles); i++)
        if (str_eq_z(role, roles[i]))
            m->role = (enum api_role)i;
    m->parts = arena_alloc_array(a, PARTS_MAX, sizeof *m->parts);
    str reasoning = member_text(v, "reasoning_content", a);
    if (reasoning.len)
        add_part(m, (struct api_part){.kind = API_PART_REASONING, .text = reasoning});
    read_content(m, json_member(v, "content"), v, a);
    for (struct json_walk w = json_walk(json_member(v, "tool_calls")); json_next(&w);) {
        struct json function = json_member(w.value, "function");
        struct json arguments = json_member(function, "arguments");
        bool is_text = json_kind(arguments) == JSON_KIND_STRING;
        add_part(m, (struct api_part){.kind = API_PART_CALL, .id = member_text(w.value, "id", a),
                                      .name = member_text(function, "name", a),
                                      .text = is_text ? json_text(arguments, a)
                                                      : json_raw(arguments)});
    }
}

static void read_tools(struct api_request *rq, struct json v, struct arena *a)
{
    uint32_t count = json_count(v), n = 0;
    struct api_tool *tools = arena_alloc_array(a, count + 1, sizeof *tools);
    for (struct json_walk w = json_walk(v); json_next(&w);) {
        struct json f = json_member(w.value, "function");
        tools[n++] = (struct api_tool){.name = member_text(f, "name", a),
                                       .description = member_text(f, "description", a),
                                       .schema = json_raw(json_member(f, "parameters")),
                                       .allowed = true};
    }
    rq->tools = tools;
    rq->tools_count = n;
}

/* False when the input sets something that a request has no field for. */
static bool read_input(struct api_request *rq, struct json input, struct arena *a)
{
    static const char *const taken[] = {"messages", "tools", "bos_token", "eos_token",
                                        "add_generation_prompt", "enable_thinking", "thinking",
                                        "reasoning_effort"};
    struct json messages = json_member(input, "messages");
    struct api_message *m = arena_alloc_array(a, json_count(messages) + 1, sizeof *m);
    bool b = false;
    api_request_init(rq);
    for (struct json_walk w = json_walk(input); json_next(&w);) {
        size_t i = 0;
        while (i < countof(taken) && !json_text_eq(w.key, str_of(taken[i])))
            i++;
        if (i == countof(taken))
            return false;
    }
    for (struct json_walk w = json_walk(messages); json_next(&w);)
        read_message(&m[rq->messages_count++], w.value, a);
    rq->messages = m;
    if (json_count(json_member(input, "tools")))
        read_tools(rq, json_member(input, "tools"), a);
    if (json_bool(json_member(input, "enable_thinking"), &b))
        rq->think = b ? API_THINK_ON : API_THINK_OFF;
    if (json_kind(json_member(input, "reasoning_effort")) == JSON_KIND_STRING)
        assert_true(api_request_effort_of(member_text(input, "reasoning_effort", a), &rq->effort));
    rq->time_s = 1785000000;
    return true;
}

/* ---- The test ---- */

struct tally {
    unsigned same, refused, bad;
};

static bool is_one_of(str name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (str_eq_z(name, names[i]))
            return true;
    return false;
}

/* Inputs whose request says something else than the messages that Jinja2 got: no generation
 * prompt, unknown roles, content that is missing or none, an image; developer turns are system
 * turns for templates that do not know them; arguments given as text are parsed (B01); an effort
 * also switches thinking on; texts of a list are joined where the template takes strings only. */
static const char *const other_inputs[] = {
    "no_prompt", "ends_assistant", "reasoning_last", "reasoning_inline", "reasoning_tool",
    "bad_role", "no_content", "image", "empty", "tool_turn_null", "developer", "tool_string",
    "effort_high", "effort_low", "parts", "parts_all"};
/* These two show no content unless it is a list of parts, which a request's text then becomes. */
static const char *const other_templates[] = {"idefics3", "smolvlm"};

static void compare(const struct render *r, const char *template_name, struct json_walk *w,
                    struct json inputs, struct tally *tally)
{
    struct arena a;
    struct api_request rq;
    struct render_result out;
    struct api_error e = {0};
    char key[128];
    arena_init(&a, FILE_SIZE_MAX);
    str name = json_text(w->key, &a);
    snprintf(key, sizeof key, "%.*s", STR_ARG(name));
    if (!is_one_of(name, other_inputs, countof(other_inputs)) &&
        json_kind(w->value) == JSON_KIND_STRING &&
        read_input(&rq, json_member(inputs, key), &a)) {
        str want = json_text(w->value, &a);
        bool ok = render_request(r, &rq, &a, &out, &e);
        bool has_place = rq.tools_count == 0 || render_caps(r) & RENDER_CAP_TOOLS;
        if (!has_place && (ok || str_eq_z(e.code, "tools_unsupported"))) {
            tally->refused++; /* by the template: Jinja2 leaves the tools out */
        } else if (ok && str_eq(out.text, want)) {
            tally->same++;
        } else {
            tally->bad++;
            print_error("%s, %s:\n  want %.*s\n  got  %.*s\n", template_name, key, STR_ARG(want),
                        STR_ARG(ok ? out.text : str_of(e.err.text)));
        }
    }
    arena_deinit(&a);
}

static void check_template(str name, struct json inputs, struct tally *tally)
{
    struct arena a;
    struct render *r;
    struct err e = {0};
    char file[128];
    arena_init(&a, FILE_SIZE_MAX);
    snprintf(file, sizeof file, "%.*s", STR_ARG(name));
    const struct render_source src = {.chat_template = read_text(file, ".jinja", &a),
                                      .bos = STR("<s>"), .eos = STR("</s>")};
    if (!render_new(&r, &src, &a, &e))
        fail_msg("%s: %s", file, e.text);
    for (struct json_walk w = json_walk(read_json(file, &a)); json_next(&w);)
        compare(r, file, &w, inputs, tally);
    arena_deinit(&a);
}

static void test_requests_render_as_transformers_renders_their_messages(void **state)
{
    (void)state;
    struct arena a;
    struct tally t = {0};
    arena_init(&a, FILE_SIZE_MAX);
    struct json inputs = read_json("inputs", &a);
    for (struct json_walk w = json_walk(read_json("index", &a)); json_next(&w);) {
        str name = json_text(w.value, &a);
        if (!is_one_of(name, other_templates, countof(other_templates)))
            check_template(name, inputs, &t);
    }
    print_message("%u equal, %u refused: no form for tools\n", t.same, t.refused);
    assert_int_equal(t.bad, 0);
    assert_true(t.same >= 900 && t.refused <= 80);
    arena_deinit(&a);
}

/* What OpenAI's and Ollama's forms allow a client to leave out of a tool. */
static const struct api_tool sparse_tools[] = {
    {.name = STR_INIT("f"), .allowed = true},
    {.name = STR_INIT("f"), .allowed = true, .description = STR_INIT("d")},
    {.name = STR_INIT("f"), .allowed = true, .schema = STR_INIT("{}")},
    {.name = STR_INIT("f"), .allowed = true, .schema = STR_INIT("{\"type\": \"object\"}")},
    {.name = STR_INIT("f"), .allowed = true,
     .schema = STR_INIT("{\"type\": \"object\", \"properties\": {\"a\": {}}}")},
    {.name = STR_INIT("f"), .allowed = true,
     .schema = STR_INIT("{\"type\": \"object\", \"properties\": {\"a\": {\"enum\": [1]}}}")}};

static void check_sparse(str name, struct tally *tally)
{
    static const struct api_part ask[] = {{.kind = API_PART_TEXT, .text = STR_INIT("hi")}};
    static const struct api_message m = {.role = API_ROLE_USER, .parts = ask, .parts_count = 1};
    struct arena a;
    struct render *r;
    struct err why;
    char file[128];
    arena_init(&a, FILE_SIZE_MAX);
    snprintf(file, sizeof file, "%.*s", STR_ARG(name));
    const struct render_source src = {.chat_template = read_text(file, ".jinja", &a),
                                      .bos = STR("<s>"), .eos = STR("</s>")};
    assert_true(render_new(&r, &src, &a, &why));
    for (size_t i = 0; i < countof(sparse_tools) && render_caps(r) & RENDER_CAP_TOOLS; i++) {
        struct render_result out;
        struct api_request rq;
        struct api_error e = {0};
        api_request_init(&rq);
        rq.messages = &m;
        rq.tools = &sparse_tools[i];
        rq.messages_count = rq.tools_count = 1;
        if (render_request(r, &rq, &a, &out, &e)) {
            tally->same++;
        } else {
            tally->bad++;
            print_error("%s, tool %zu: %s\n", file, i, e.err.text);
        }
    }
    arena_deinit(&a);
}

static void test_a_tool_that_says_little_renders_wherever_tools_do(void **state)
{
    (void)state;
    struct arena a;
    struct tally t = {0};
    arena_init(&a, FILE_SIZE_MAX);
    for (struct json_walk w = json_walk(read_json("index", &a)); json_next(&w);)
        check_sparse(json_text(w.value, &a), &t);
    assert_int_equal(t.bad, 0);
    assert_true(t.same >= 150);
    arena_deinit(&a);
}

static void test_built_in_templates_are_the_ones_that_jinja2_was_asked_about(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, FILE_SIZE_MAX);
    for (uint32_t i = 0; i < render_builtin_count; i++) {
        char name[64];
        snprintf(name, sizeof name, "own_%s", render_builtin_rows[i].name);
        assert_true(str_eq_z(read_text(name, ".jinja", &a), render_builtin_rows[i].source));
    }
    arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_built_in_templates_are_the_ones_that_jinja2_was_asked_about),
        cmocka_unit_test(test_requests_render_as_transformers_renders_their_messages),
        cmocka_unit_test(test_a_tool_that_says_little_renders_wherever_tools_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
