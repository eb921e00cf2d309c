#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "cli/doctor.h"

#define CHUNK(choice) "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1," \
                      "\"model\":\"m\",\"choices\":[" choice "]}\n\n"
#define SAY(text) CHUNK("{\"index\":0,\"delta\":{\"content\":\"" text "\"},\"finish_reason\":null}")
#define STOP CHUNK("{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}")
#define DONE "data: [DONE]\n\n"
#define EVENT(name, rest) "event: " name "\ndata: {\"type\":\"" name "\"" rest "}\n\n"
#define BEGIN EVENT("message_start", ",\"message\":{}")
#define BLOCK EVENT("content_block_start", ",\"index\":0,\"content_block\":{\"type\":\"text\"}")
#define DELTA EVENT("content_block_delta", ",\"index\":0,\"delta\":{\"type\":\"text_delta\"," \
                    "\"text\":\"hi\"}")
#define UNBLOCK EVENT("content_block_stop", ",\"index\":0")
#define END EVENT("message_delta", ",\"delta\":{\"stop_reason\":\"end_turn\"}")
#define OVER EVENT("message_stop", "")
#define FIRST EVENT("response.created", ",\"sequence_number\":0")
#define LAST(n) EVENT("response.completed", ",\"sequence_number\":" n ",\"response\":{" \
                      "\"object\":\"response\",\"status\":\"completed\",\"usage\":{}}")
#define TEXT(n) EVENT("response.output_text.delta", ",\"sequence_number\":" n ",\"delta\":\"hi\"")
#define LINE(done) "{\"model\":\"m\",\"created_at\":\"t\",\"message\":{\"role\":\"assistant\"," \
                   "\"content\":\"hi\"}," done "}\n"

/* broken: the rule that must be named; NULL: the reply is sound. */
static const struct {
    const char *dialect, *body, *text, *broken;
} rows[] = {
    {"openai_chat", SAY("h") SAY("i") STOP DONE, "hi", NULL},
    {"openai_chat", SAY("h") STOP DONE, "hi", "the text is not"},
    {"openai_chat", SAY("hi") DONE, "hi", "[DONE] without a finish_reason"},
    {"openai_chat", SAY("hi") STOP, "hi", "last event is missing"},
    {"openai_chat", SAY("hi"), "hi", "does not end"},
    {"openai_chat", STOP SAY("hi") DONE, "hi", "follows the finish_reason"},
    {"openai_chat", "data: {\"error\":{\"message\":\"x\"}}\n\n", "", "is an error"},
    {"openai_chat", "data: {\"id\n\n", "", "no JSON"},
    {"anthropic", BEGIN BLOCK DELTA UNBLOCK END OVER, "hi", NULL},
    {"anthropic", BLOCK DELTA UNBLOCK END OVER, "hi", "before message_start"},
    {"anthropic", BEGIN DELTA END OVER, "hi", "not open"},
    {"anthropic", BEGIN BLOCK DELTA END OVER, "hi", "in an open block"},
    {"anthropic", BEGIN BLOCK DELTA UNBLOCK OVER, "hi", "without a stop_reason"},
    {"anthropic", BEGIN BLOCK DELTA UNBLOCK END, "hi", "last event is missing"},
    {"anthropic", BEGIN BLOCK DELTA UNBLOCK END OVER OVER, "hi", "follows message_stop"},
    {"openai_responses", FIRST TEXT("1") LAST("2"), "hi", NULL},
    {"openai_responses", TEXT("0") LAST("1"), "hi", "before response.created"},
    {"openai_responses", FIRST TEXT("2") LAST("3"), "hi", "has a gap"},
    {"openai_responses", FIRST TEXT("1"), "hi", "does not end"},
    {"ollama", LINE("\"done\":false") LINE("\"done\":true,\"done_reason\":\"stop\""), "hihi", NULL},
    {"ollama", LINE("\"done\":false"), "hi", "does not end"},
    {"ollama", LINE("\"done\":true,\"done_reason\":\"error\""), "hi", "done_reason is error"},
    {"ollama", LINE("\"done\":true,\"done_reason\":\"stop\"") LINE("\"done\":false"), "hihi",
     "follows done"},
};

static void test_each_rule_of_each_protocol_is_named_when_it_is_broken(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct err e = {0};
        const struct doctor_wish w = {.dialect = str_of(rows[i].dialect), .stream = true,
                                      .text = str_of(rows[i].text)};
        bool ok = doctor_rules_check(&w, str_of(rows[i].body), &e);
        if (ok != !rows[i].broken || (rows[i].broken && !strstr(e.text, rows[i].broken)))
            fail_msg("row %zu: %s", i, ok ? "passes" : e.text);
    }
}

static void test_a_call_that_was_made_must_be_there(void **state)
{
    struct err e;
    const struct doctor_wish w = {.dialect = STR("ollama"), .stream = true, .text = STR(""),
                                  .has_call = true};
    (void)state;
    assert_false(doctor_rules_check(&w, STR(LINE("\"done\":true,\"done_reason\":\"stop\"")), &e));
    assert_string_equal(e.text, "the call is missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_rule_of_each_protocol_is_named_when_it_is_broken),
        cmocka_unit_test(test_a_call_that_was_made_must_be_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
