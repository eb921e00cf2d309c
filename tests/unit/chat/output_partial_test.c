#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "chat/output_partial.h"
#include "output_run.h"

/* "R:a\nT:b\nC:name:args\nE" as parts. */
static void parts_of(struct api_message *m, struct api_part *parts, str lines)
{
    str line;
    m->parts = parts;
    m->parts_count = 0;
    while (str_split(&lines, '\n', &line)) {
        struct api_part *p = &parts[m->parts_count];
        if (str_eq_z(line, "E"))
            continue;
        *p = (struct api_part){.kind = line.p[0] == 'R' ? API_PART_REASONING
                                       : line.p[0] == 'T' ? API_PART_TEXT : API_PART_CALL};
        str rest = str_from(line, 2);
        if (p->kind == API_PART_CALL)
            (void)str_split(&rest, ':', &p->name);
        p->text = rest;
        m->parts_count++;
    }
}

struct written {
    struct buf text, marks;
};

static bool write_parts(const char *format, const char *think, enum output_begin begin,
                        const char *lines, struct written *to, struct err *e)
{
    struct api_part parts[8];
    struct api_message m = {.role = API_ROLE_ASSISTANT};
    struct output_tools tools;
    struct arena a;
    arena_init(&a, 1 << 20);
    output_run_tools_make(&tools, NULL, &a);
    struct output_options o = {.begin = begin, .tools = &tools,
                               .format.calls = output_table_find(str_of(format))};
    for (uint32_t i = 0; i < output_table_thinks_count; i++)
        if (str_eq_z(output_table_thinks[i].name, think))
            o.format.think = &output_table_thinks[i];
    parts_of(&m, parts, str_of(lines));
    bool ok = output_partial_write(&o, &m, &to->text, &to->marks, e);
    arena_deinit(&a);
    return ok;
}

static const char *const replies[] = {
    "T:Let me see",
    "T:Hm.\nC:get_weather:{\"city\": \"Bern\", \"days\": 3}\nE",
    "C:get_weather:{\"city\": \"Be",
    ("C:search:{\"filters\": [{\"k\": \"x\", \"v\": 1.5}, []], \"mix\": \"y\", \"q\": "
     "\"a\\n\\\"b\\\""),
    "C:noargs:{}\nE",
    "C:noargs:{}\nE\nC:get_weather:{\"city\": \"",
};

static void test_every_format_reads_back_what_it_wrote(void **state)
{
    (void)state;
    struct written w;
    struct err e;
    buf_init(&w.text, 1 << 16);
    buf_init(&w.marks, 1 << 16);
    for (uint32_t f = 0; f < output_table_count; f++)
        for (size_t i = 0; i < countof(replies); i++) {
            char format[32];
            const struct output_row *row = &output_table_rows[f];
            const struct output_run r = {.format = format, .is_cut = true, .is_forced = true};
            snprintf(format, sizeof format, "%.*s", STR_ARG(row->name));
            buf_clear(&w.text);
            buf_clear(&w.marks);
            if (row->is_bare && i != 2 && i != 3)
                continue; /* a bare call is a whole reply */
            if (!write_parts(format, "", OUTPUT_BEGIN_FRESH, replies[i], &w, &e))
                fail_msg("%s: %s: %s", format, replies[i], e.text);
            buf_add_byte(&w.text, 0);
            output_run_check(&r, w.text.p, replies[i]);
        }
    buf_deinit(&w.text);
    buf_deinit(&w.marks);
}

static void test_reasoning_is_opened_and_closed_as_the_prompt_left_it(void **state)
{
    (void)state;
    static const struct {
        const char *format, *think, *lines, *text;
        enum output_begin begin;
    } rows[] = {
        {"hermes", "think", "R:hm", "<think>\nhm", OUTPUT_BEGIN_FRESH},
        {"hermes", "think", "R:hm\nT:Yes", "<think>\nhm\n</think>\n\nYes", OUTPUT_BEGIN_FRESH},
        {"hermes", "think", "R:hm\nT:Yes", "hm\n</think>\n\nYes", OUTPUT_BEGIN_THINKING},
        {"hermes", "think", "T:Yes", "\n</think>\n\nYes", OUTPUT_BEGIN_THINKING},
        {"hermes", "think", "T:Yes", "Yes", OUTPUT_BEGIN_ANSWER},
        {"harmony", "", "R:hm\nT:Yes", "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
         "<|channel|>final<|message|>Yes", OUTPUT_BEGIN_FRESH},
        {"harmony", "", "R:hm", "hm", OUTPUT_BEGIN_THINKING},
    };
    struct written w;
    struct err e;
    buf_init(&w.text, 1 << 16);
    buf_init(&w.marks, 1 << 16);
    for (size_t i = 0; i < countof(rows); i++) {
        buf_clear(&w.text);
        assert_true(write_parts(rows[i].format, rows[i].think, rows[i].begin, rows[i].lines, &w,
                                &e));
        if (!str_eq_z(buf_view(&w.text), rows[i].text))
            fail_msg("'%.*s', not '%s'", STR_ARG(buf_view(&w.text)), rows[i].text);
    }
    buf_deinit(&w.text);
    buf_deinit(&w.marks);
}

static void test_only_markup_may_become_control_tokens(void **state)
{
    (void)state;
    struct written w;
    struct err e;
    buf_init(&w.text, 1 << 16);
    buf_init(&w.marks, 1 << 16);
    assert_true(write_parts("hermes", "think", OUTPUT_BEGIN_FRESH,
                            "R:</think>x\nT:<tool_call>\nC:search:{\"q\": \"</tool_call>",
                            &w, &e));
    const struct output_partial_mark *m = (const void *)w.marks.p;
    for (size_t i = 0; i < w.marks.len / sizeof *m; i++) {
        str s = str_sub(buf_view(&w.text), m[i].from, m[i].to - m[i].from);
        assert_true(m[i].from < m[i].to && m[i].to <= w.text.len);
        assert_true(str_find(s, STR("x")) == STR_NONE || str_find(s, STR("search")) == STR_NONE);
        assert_false(str_eq_z(s, "<tool_call>") && m[i].from < 20);
    }
    assert_true(str_ends(buf_view(&w.text), STR("\"</tool_call>")));
    assert_true(m[w.marks.len / sizeof *m - 1].to < w.text.len - 12);
    buf_deinit(&w.text);
    buf_deinit(&w.marks);
}

static void test_where_a_format_cannot_go_on_it_says_so(void **state)
{
    (void)state;
    static const struct {
        const char *format, *lines;
        enum output_begin begin;
    } rows[] = {
        {"function-xml", "C:f:{\"a\": 1", OUTPUT_BEGIN_FRESH},   /* inside a number */
        {"function-xml", "C:f:{\"a", OUTPUT_BEGIN_FRESH},        /* inside a key */
        {"function-xml", "C:f:{\"a\": [1", OUTPUT_BEGIN_FRESH},  /* inside a list */
        {"function-xml", "C:search:{\"mix\": \"a", OUTPUT_BEGIN_FRESH}, /* perhaps a number */
        {"dsml", "C:f:{\"a\": ", OUTPUT_BEGIN_FRESH},            /* a string or not? */
        {"hermes", "C:f:", OUTPUT_BEGIN_FRESH},
        {"hermes", "C:f:{\"a\": \"\\u00", OUTPUT_BEGIN_FRESH},
        {"hermes", "C:f:{\"a\": \"x\nT:more", OUTPUT_BEGIN_FRESH},
        {"hermes", "C:f:oops", OUTPUT_BEGIN_FRESH},
        {"hermes", "R:hm", OUTPUT_BEGIN_FRESH},                  /* no thinking in the format */
    };
    struct written w;
    struct err e;
    buf_init(&w.text, 1 << 16);
    buf_init(&w.marks, 1 << 16);
    for (size_t i = 0; i < countof(rows); i++) {
        if (write_parts(rows[i].format, "", rows[i].begin, rows[i].lines, &w, &e))
            fail_msg("%s: %s", rows[i].format, rows[i].lines);
        assert_int_equal(e.code, ERR_UNSUPPORTED);
    }
    buf_deinit(&w.text);
    buf_deinit(&w.marks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_format_reads_back_what_it_wrote),
        cmocka_unit_test(test_reasoning_is_opened_and_closed_as_the_prompt_left_it),
        cmocka_unit_test(test_only_markup_may_become_control_tokens),
        cmocka_unit_test(test_where_a_format_cannot_go_on_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
