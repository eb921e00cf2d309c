#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/miss.h"

struct pair {
    const char *was, *now;
    enum miss_hint hint;
};

static enum miss_hint hint_of(const struct pair *p, bool tools_differ)
{
    struct miss_texts t = {.was = str_of(p->was), .now = str_of(p->now),
                           .think_open = STR("<think>\n"), .think_close = STR("\n</think>\n\n"),
                           .tools_differ = tools_differ};
    while (t.at < t.was.len && t.at < t.now.len && t.was.p[t.at] == t.now.p[t.at])
        t.at++;
    return miss_hint(&t);
}

static void check(const struct pair *pairs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct pair back = {pairs[i].now, pairs[i].was, pairs[i].hint};
        if (hint_of(&pairs[i], false) != pairs[i].hint)
            fail_msg("'%s' -> '%s': %s", pairs[i].was, pairs[i].now,
                     miss_hint_name(hint_of(&pairs[i], false)));
        if (pairs[i].hint != MISS_HINT_REASONING_DROPPED && hint_of(&back, false) != back.hint)
            fail_msg("'%s' -> '%s': %s", back.was, back.now, miss_hint_name(hint_of(&back, false)));
    }
}

static void test_dates_and_times_are_a_clock(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        {"It is 10:41 now.", "It is 10:42 now.", MISS_HINT_CLOCK},
        {"It is 9:59:59.1 now.", "It is 10:00:00.7 now.", MISS_HINT_CLOCK},
        {"Date: 2026-11-30. Be brief.", "Date: 2026-12-01. Be brief.", MISS_HINT_CLOCK},
        {"Date: 30.11.2026", "Date: 01.12.2026", MISS_HINT_CLOCK},
        {"Today is Monday.", "Today is Tuesday.", MISS_HINT_CLOCK},
        {"Today is November 30, 2026.", "Today is December 1, 2026.", MISS_HINT_CLOCK},
        {"Today is 30 Nov 2026.", "Today is 29 Nov 2026.", MISS_HINT_CLOCK},
        {"t=1796000000;", "t=1796000007;", MISS_HINT_CLOCK},
        {"Maybe one", "Maybe two", MISS_HINT_NONE},
        {"Mondays are fine", "Tuesdays are fine", MISS_HINT_NONE},
    };
    check(pairs, countof(pairs));
}

static void test_one_number_is_a_counter_and_one_word_with_digits_a_nonce(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        {"request 9 of the day", "request 10 of the day", MISS_HINT_COUNTER},
        {"build-0012 of the day", "build-0013 of the day", MISS_HINT_COUNTER},
        {"cch=fa690; cc_entry", "cch=0b12c; cc_entry", MISS_HINT_NONCE},
        {"id 1f0c-9a7b-22 ok then", "id 8e21-0d4c-77 ok then", MISS_HINT_NONCE},
        {"take 9 apples", "take 10 pears", MISS_HINT_NONE},
        {"the word alpha stays", "the word gamma stays", MISS_HINT_NONE},
    };
    check(pairs, countof(pairs));
}

static void test_an_object_in_another_order_or_spacing_is_reserialised(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        {"call {\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": \"x}y\"}} end",
         "call {\"name\": \"f\", \"arguments\": {\"b\": \"x}y\", \"a\": 1}} end",
         MISS_HINT_RESERIALISED_CALL},
        {"{\"a\": 1}", "{\"a\":1}", MISS_HINT_RESERIALISED_CALL},
        {"{\"name\":\"f\",\"arguments\":{\"p\":\"q\"}}",
         "{\"arguments\":{\"p\":\"q\"},\"name\":\"f\"}", MISS_HINT_RESERIALISED_CALL},
        {"{\"a\": \"one\"} rest", "{\"a\": \"two\"} rest", MISS_HINT_NONE},
        {"{\"a\": {\"b\": tru", "{\"a\": {\"c\": tru", MISS_HINT_NONE}, /* never ends */
    };
    check(pairs, countof(pairs));
}

static void test_reasoning_that_is_gone_is_told_from_other_text_that_is_gone(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        {"assistant\n<think>\nLet me see.\n</think>\n\nThe answer is four.",
         "assistant\nThe answer is four.", MISS_HINT_REASONING_DROPPED},
        {"assistant\n<think>\nLet me see.\n</think>\n\nThe answer is four.",
         "assistant\n<think>\n\n</think>\n\nThe answer is four.", MISS_HINT_REASONING_DROPPED},
        {"user\nFirst this, please. The answer is four.", "user\nThe answer is four.",
         MISS_HINT_NONE},
    };
    check(pairs, countof(pairs));
}

static void test_another_list_of_tools_is_told_unless_it_was_only_written_otherwise(void **state)
{
    (void)state;
    static const struct pair other = {"tools: {\"name\":\"read\"}", "tools: {\"name\":\"list\"}",
                                      MISS_HINT_TOOLS_CHANGED},
                             order = {"{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}",
                                      MISS_HINT_RESERIALISED_CALL};
    assert_int_equal(hint_of(&other, true), MISS_HINT_TOOLS_CHANGED);
    assert_int_equal(hint_of(&order, true), MISS_HINT_RESERIALISED_CALL);
}

static void test_reasons_follow_what_was_common_and_what_was_found(void **state)
{
    (void)state;
    static const struct {
        struct miss_case c;
        bool is;
        enum miss_reason reason;
    } rows[] = {
        {{.expected = 100, .common = 100, .cached = 90}, false, MISS_REASON_EVICTED},
        {{.expected = 100, .common = 100, .cached = 89}, true, MISS_REASON_EVICTED},
        {{.expected = 100, .common = 50, .cached = 50, .has_changed = true}, true,
         MISS_REASON_CONTENT_CHANGED},
        {{.expected = 100, .common = 50, .cached = 50}, true, MISS_REASON_TEMPLATE_CHANGED},
        {{.expected = 100, .common = 100, .is_other_scope = true}, true, MISS_REASON_SCOPE},
        {{.expected = 100, .common = 100, .is_disabled = true}, true, MISS_REASON_DISABLED},
        {{.expected = 0}, false, MISS_REASON_EVICTED},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        assert_int_equal(miss_is(&rows[i].c), rows[i].is);
        assert_int_equal(miss_reason(&rows[i].c), rows[i].reason);
    }
}

/* Whatever the texts are and wherever they end. */
static void test_texts_that_end_at_the_difference_are_no_trouble(void **state)
{
    (void)state;
    static const char text[] = "{\"at\": \"2026-11-30 10:41\", <think>\n x 12 Mon</think>";
    for (size_t a = 0; a < sizeof text; a++)
        for (size_t b = 0; b < sizeof text; b++) {
            struct miss_texts t = {.was = str_view(text, a), .now = str_view(text, b),
                                   .at = base_min(a, b), .think_open = STR("<think>"),
                                   .think_close = STR("</think>")};
            assert_in_range(miss_hint(&t), 0, MISS_HINT_COUNT_ - 1);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dates_and_times_are_a_clock),
        cmocka_unit_test(test_one_number_is_a_counter_and_one_word_with_digits_a_nonce),
        cmocka_unit_test(test_an_object_in_another_order_or_spacing_is_reserialised),
        cmocka_unit_test(test_reasoning_that_is_gone_is_told_from_other_text_that_is_gone),
        cmocka_unit_test(test_another_list_of_tools_is_told_unless_it_was_only_written_otherwise),
        cmocka_unit_test(test_reasons_follow_what_was_common_and_what_was_found),
        cmocka_unit_test(test_texts_that_end_at_the_difference_are_no_trouble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
