#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "serve/normalise.h"

/* Rounds one text of a turn; the result is in *out. */
static uint32_t rounded(enum api_role role, const char *text, str *out, struct arena *a)
{
    struct api_part part = {.kind = API_PART_TEXT, .text = str_of(text)};
    struct api_message m = {.role = role, .parts = &part, .parts_count = 1};
    struct api_request rq;
    api_request_init(&rq);
    rq.messages = &m;
    rq.messages_count = 1;
    uint32_t count = normalise_clock(&rq, a);
    *out = arena_copy(a, rq.messages[0].parts[0].text);
    assert_ptr_equal(part.text.p, text); /* what was received is not written to */
    return count;
}

static void test_times_of_day_become_midnight_and_nothing_else_changes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
        uint32_t count;
    } rows[] = {
        {"It is 14:41.", "It is 00:00.", 1},
        {"It is 9:05:59.250 PM now", "It is 0:00:00.000 AM now", 1},
        {"at 2026-11-30T14:41:07Z", "at 2026-11-30T00:00:00Z", 1},
        {"at 2026-11-30T14:41:07+01:00", "at 2026-11-30T00:00:00+00:00", 2},
        {"(9:30am to 5:45pm)", "(0:00am to 0:00am)", 2},
        {"23:59", "00:00", 1},
        {"24:00 and 12:60 and 123:45", "24:00 and 12:60 and 123:45", 0},
        {"2001:db8::10:41 and v1.10:41 and a10:41", "2001:db8::10:41 and v1.10:41 and a10:41", 0},
        {"10:41:07:99 10:41_x 10:415", "10:41:07:99 10:41_x 10:415", 0},
        {"The 30th, 12 of 14.", "The 30th, 12 of 14.", 0},
        {"", "", 0},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct arena a;
        str out;
        arena_init(&a, 1 << 16);
        uint32_t count = rounded(API_ROLE_SYSTEM, rows[i].text, &out, &a);
        if (count != rows[i].count || !str_eq_z(out, rows[i].want))
            fail_msg("'%s': %u times, '%.*s'", rows[i].text, count, STR_ARG(out));
        arena_deinit(&a);
    }
}

static void test_only_system_and_developer_turns_are_touched(void **state)
{
    (void)state;
    for (int role = 0; role < API_ROLE_COUNT_; role++) {
        struct arena a;
        str out;
        arena_init(&a, 1 << 16);
        bool is_touched = role == API_ROLE_SYSTEM || role == API_ROLE_DEVELOPER;
        assert_int_equal(rounded((enum api_role)role, "14:41", &out, &a), is_touched);
        assert_true(str_eq_z(out, is_touched ? "00:00" : "14:41"));
        arena_deinit(&a);
    }
}

static void test_without_memory_texts_stay_whole(void **state)
{
    (void)state;
    struct api_part parts[2] = {{.kind = API_PART_TEXT, .text = STR("14:41")},
                                {.kind = API_PART_TEXT, .text = STR("15:41")}};
    struct api_message m = {.role = API_ROLE_SYSTEM, .parts = parts, .parts_count = 2};
    struct api_request rq;
    struct arena a;
    api_request_init(&rq);
    rq.messages = &m;
    rq.messages_count = 1;
    arena_init(&a, 1);
    assert_int_equal(normalise_clock(&rq, &a), 0);
    assert_true(str_eq_z(rq.messages[0].parts[1].text, "15:41"));
    arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times_of_day_become_midnight_and_nothing_else_changes),
        cmocka_unit_test(test_only_system_and_developer_turns_are_touched),
        cmocka_unit_test(test_without_memory_texts_stay_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
