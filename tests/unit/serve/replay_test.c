/* Which turns of a history are past replies, and what they get back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "serve/replay.h"

#define HASH UINT64_C(0xabc)
#define TTL_MS 1000

struct bench {
    struct replay *r;
    struct arena a;
};

static void bench_open(struct bench *b, size_t bytes_max)
{
    struct err e;
    const struct replay_options o = {.bytes_max = bytes_max, .ttl_ms = TTL_MS};
    assert_true(replay_open(&b->r, &o, &e));
    arena_init(&b->a, (size_t)1 << 24);
}

static void bench_close(struct bench *b)
{
    replay_close(b->r);
    arena_deinit(&b->a);
}

static const struct api_part asks[] = {{.kind = API_PART_TEXT, .text = STR_INIT("Read a.txt")}};

static struct api_request request_of(const struct api_message *m, uint32_t count)
{
    struct api_request rq;
    api_request_init(&rq);
    rq.messages = m;
    rq.messages_count = count;
    rq.scope = STR("alice");
    return rq;
}

#define USER {.role = API_ROLE_USER, .parts = asks, .parts_count = 1}
static const struct api_message user[] = {USER};

static void say(struct transcript *t, struct api_event ev, int32_t id)
{
    const struct api_batch b = {.ids = &id, .ids_count = 1, .events = &ev, .events_count = 1};
    transcript_add(t, &b);
}

static void say_text(struct transcript *t, enum api_event_kind kind, const char *text, int32_t id)
{
    say(t, (struct api_event){.kind = kind, .text.text = str_of(text)}, id);
}

static void say_call(struct transcript *t, const char *id, const char *name, const char *args)
{
    struct api_call c = {.id = str_of(id), .name = str_of(name)};
    say(t, (struct api_event){.kind = API_EVENT_CALL_BEGIN, .call = c}, 10);
    c.args = str_of(args);
    say(t, (struct api_event){.kind = API_EVENT_CALL_ARGS, .call = c}, 11);
    say(t, (struct api_event){.kind = API_EVENT_CALL_END, .call = c}, 12);
}

static void begin(struct transcript *t)
{
    struct api_error e;
    assert_true(transcript_init(t, 1, (size_t)1 << 20, &e));
    say(t, (struct api_event){.kind = API_EVENT_STARTED, .started.model_hash = HASH}, 7);
}

/* "I think" hidden, a text, a call: what most turns of an agent are. */
static void keep_turn(struct bench *b, const struct api_request *rq, int64_t now_ms)
{
    struct transcript t;
    begin(&t);
    say_text(&t, API_EVENT_REASONING, "I should read it.", 8);
    say_text(&t, API_EVENT_CONTENT, "Reading.\n\n", 9);
    say_call(&t, "call_0123456789abcdefABCDEF", "read", "{\"path\": \"a.txt\", \"lines\": 3}");
    replay_keep(b->r, rq, &t, 0, now_ms);
    transcript_deinit(&t);
}

struct turn {
    const char *reasoning, *text, *id, *name, *args;
    bool is_found, has_ids;
};

static struct api_request history(struct bench *b, const struct turn *t)
{
    struct api_message *m = ARENA_ARRAY(&b->a, struct api_message, 2);
    struct api_part *p = ARENA_ARRAY(&b->a, struct api_part, 3);
    uint32_t n = 0;
    if (t->reasoning)
        p[n++] = (struct api_part){.kind = API_PART_REASONING, .text = str_of(t->reasoning)};
    if (t->text)
        p[n++] = (struct api_part){.kind = API_PART_TEXT, .text = str_of(t->text)};
    if (t->name)
        p[n++] = (struct api_part){.kind = API_PART_CALL, .text = str_of(t->args),
                                   .id = str_of(t->id), .name = str_of(t->name)};
    m[0] = (struct api_message)USER;
    m[1] = (struct api_message){.role = API_ROLE_ASSISTANT, .parts = p, .parts_count = n};
    return request_of(m, 2);
}

static void test_a_turn_that_says_the_same_gets_its_ids_and_its_reasoning_back(void **state)
{
    static const char id[] = "call_0123456789abcdefABCDEF";
    static const char args[] = "{\"path\":\"a.txt\",\"lines\":3}";
    static const struct turn rows[] = {
        {"I should read it.", "Reading.", id, "read", args, true, true},
        {NULL, "Reading.", id, "read", args, true, true},       /* A27 */
        {"", "Reading.", id, "read", args, true, true},         /* display: omitted */
        {" I should read it.\n", "Reading.", id, "read", args, true, true},
        {NULL, "Reading.\n\n", "toolu_0123456789abcdefABCDEF", "read", args, true, true},
        {NULL, "Reading.", "", "read", args, true, true},       /* ids dropped: by what it says */
        {NULL, "Reading.", "call_other", "read", args, true, true},
        {NULL, "Reading.", id, "read", "{\"lines\": 3.0, \"path\": \"a\\u002etxt\"}", true, true},
        {"Something else.", "Reading.", id, "read", args, true, false}, /* what it sends wins */
        {NULL, "Reading it.", id, "read", args, false, false},
        {NULL, "Reading.", id, "write", args, false, false},
        {NULL, "Reading.", id, "read", "{\"path\":\"b.txt\",\"lines\":3}", false, false},
        {NULL, "Reading.", id, "read", "{\"path\":\"a.txt\",\"lines\":\"3\"}", false, false},
        {NULL, "Reading.", id, "read", "{\"path\":\"a.txt\"}", false, false},
        {NULL, "Reading.", NULL, NULL, NULL, false, false},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct bench b;
        bench_open(&b, (size_t)1 << 20);
        struct api_request first = request_of(user, 1);
        keep_turn(&b, &first, 0);
        struct api_request rq = history(&b, &rows[i]);
        uint32_t found = replay_match(b.r, &rq, &b.a, 1);
        const struct api_message *m = &rq.messages[1];
        if (found != rows[i].is_found || (m->ids_count > 0) != rows[i].has_ids)
            fail_msg("row %zu: found %u, %u ids", i, found, m->ids_count);
        if (rows[i].has_ids) {
            static const int32_t ids[] = {7, 8, 9, 10, 11, 12};
            assert_int_equal(m->ids_count, countof(ids));
            assert_memory_equal(m->ids, ids, sizeof ids);
            assert_int_equal(rq.ids_hash, HASH);
            assert_int_equal(m->parts[0].kind, API_PART_REASONING);
        }
        bench_close(&b);
    }
}

static void test_scopes_models_and_the_switch_keep_replies_apart(void **state)
{
    static const struct turn same = {NULL, "Reading.", "call_0123456789abcdefABCDEF", "read",
                                     "{\"path\":\"a.txt\",\"lines\":3}", true, true};
    struct bench b;
    (void)state;
    bench_open(&b, (size_t)1 << 20);
    struct api_request first = request_of(user, 1);
    keep_turn(&b, &first, 0);
    struct api_request rq = history(&b, &same);
    rq.scope = STR("bob");
    assert_int_equal(replay_match(b.r, &rq, &b.a, 1), 0);
    rq = history(&b, &same);
    rq.replay = false;
    assert_int_equal(replay_match(b.r, &rq, &b.a, 1), 0);
    rq = history(&b, &same);
    rq.continue_last = true; /* the turn goes on: it is no whole reply */
    assert_int_equal(replay_match(b.r, &rq, &b.a, 1), 0);
    rq = history(&b, &same);
    assert_int_equal(replay_match(b.r, &rq, &b.a, 1), 1);
    assert_int_equal(replay_stats(b.r).hits, 1);
    bench_close(&b);
}

static void test_the_same_words_after_another_question_are_another_reply(void **state)
{
    static const struct api_part others[] = {{.kind = API_PART_TEXT, .text = STR_INIT("Stop.")}};
    static const struct api_part done[] = {{.kind = API_PART_TEXT, .text = STR_INIT("Done.")}};
    static const struct api_message two[] = {
        USER, {.role = API_ROLE_ASSISTANT, .parts = done, .parts_count = 1},
        {.role = API_ROLE_USER, .parts = others, .parts_count = 1},
        {.role = API_ROLE_ASSISTANT, .parts = done, .parts_count = 1}, USER};
    struct bench b;
    (void)state;
    bench_open(&b, (size_t)1 << 20);
    for (uint32_t count = 1; count <= 3; count += 2) {
        struct transcript t;
        struct api_request rq = request_of(two, count);
        begin(&t);
        say_text(&t, API_EVENT_REASONING, count == 1 ? "I read it." : "I stop.", 8);
        say_text(&t, API_EVENT_CONTENT, "Done.", (int32_t)(100 + count));
        replay_keep(b.r, &rq, &t, 0, 0);
        transcript_deinit(&t);
    }
    struct api_request rq = request_of(two, countof(two));
    assert_int_equal(replay_match(b.r, &rq, &b.a, 1), 2);
    assert_true(str_eq_z(rq.messages[1].parts[0].text, "I read it."));
    assert_true(str_eq_z(rq.messages[3].parts[0].text, "I stop."));
    assert_int_equal(rq.messages[1].ids[2], 101);
    assert_int_equal(rq.messages[3].ids[2], 103);
    bench_close(&b);
}

static void test_the_table_keeps_to_its_memory_and_forgets_what_is_old(void **state)
{
    struct bench b;
    (void)state;
    bench_open(&b, 16384);
    for (int i = 0; i < 1000; i++) {
        struct transcript t;
        char text[32];
        struct api_request rq = request_of(user, 1);
        snprintf(text, sizeof text, "reply %d", i);
        begin(&t);
        say_text(&t, API_EVENT_CONTENT, text, i);
        replay_keep(b.r, &rq, &t, 0, i);
        transcript_deinit(&t);
        assert_true(replay_stats(b.r).bytes <= 16384);
    }
    assert_true(replay_stats(b.r).entries > 10);
    const struct turn last = {.text = "reply 999"}, first = {.text = "reply 0"};
    struct api_request rq = history(&b, &first);
    assert_int_equal(replay_match(b.r, &rq, &b.a, 1000), 0);
    rq = history(&b, &last);
    assert_int_equal(replay_match(b.r, &rq, &b.a, 1000), 1);
    rq = history(&b, &last);
    assert_int_equal(replay_match(b.r, &rq, &b.a, 1000 + TTL_MS + 1), 0);
    assert_int_equal(replay_stats(b.r).entries, 0);
    assert_int_equal(replay_stats(b.r).bytes, 0);
    bench_close(&b);
}

static void test_a_reply_without_ids_is_kept_for_its_reasoning_only(void **state)
{
    const struct api_event evs[] = {{.kind = API_EVENT_STARTED},
                                    {.kind = API_EVENT_REASONING, .text.text = STR("Hm.")},
                                    {.kind = API_EVENT_CONTENT, .text.text = STR("Hello.")}};
    const struct api_batch no_ids = {.events = evs, .events_count = countof(evs)};
    struct bench b;
    struct transcript t;
    struct api_error e;
    (void)state;
    bench_open(&b, (size_t)1 << 20);
    struct api_request first = request_of(user, 1);
    assert_true(transcript_init(&t, 1, (size_t)1 << 20, &e));
    transcript_add(&t, &no_ids);
    replay_keep(b.r, &first, &t, 0, 0);
    transcript_deinit(&t);
    const struct turn turn = {.text = "Hello."};
    struct api_request rq = history(&b, &turn);
    assert_int_equal(replay_match(b.r, &rq, &b.a, 1), 1);
    assert_int_equal(rq.messages[1].ids_count, 0);
    assert_true(str_eq_z(rq.messages[1].parts[0].text, "Hm."));
    bench_close(&b);
}

static void test_a_custom_tools_free_text_comes_back_as_an_object(void **state)
{
    struct bench b;
    struct transcript t;
    (void)state;
    bench_open(&b, (size_t)1 << 20);
    struct api_request first = request_of(user, 1);
    begin(&t);
    say_call(&t, "call_x1", "apply_patch", "*** Begin Patch\n\"a\"");
    replay_keep(b.r, &first, &t, 0, 0);
    transcript_deinit(&t);
    const struct turn turn = {.id = "call_x1", .name = "apply_patch",
                              .args = "{\"input\":\"*** Begin Patch\\n\\\"a\\\"\"}"};
    struct api_request rq = history(&b, &turn);
    assert_int_equal(replay_match(b.r, &rq, &b.a, 1), 1);
    assert_int_equal(rq.messages[1].ids_count, 4);
    bench_close(&b);
}

static void test_without_memory_for_it_the_text_is_used(void **state)
{
    static const struct turn same = {NULL, "Reading.", "call_0123456789abcdefABCDEF", "read",
                                     "{\"path\":\"a.txt\",\"lines\":3}", true, true};
    struct bench b;
    struct arena small;
    (void)state;
    bench_open(&b, (size_t)1 << 20);
    struct api_request first = request_of(user, 1);
    keep_turn(&b, &first, 0);
    arena_init(&small, 0);
    struct api_request rq = history(&b, &same);
    assert_int_equal(replay_match(b.r, &rq, &small, 1), 0);
    assert_int_equal(rq.messages[1].ids_count, 0);
    arena_deinit(&small);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_turn_that_says_the_same_gets_its_ids_and_its_reasoning_back),
        cmocka_unit_test(test_scopes_models_and_the_switch_keep_replies_apart),
        cmocka_unit_test(test_the_same_words_after_another_question_are_another_reply),
        cmocka_unit_test(test_the_table_keeps_to_its_memory_and_forgets_what_is_old),
        cmocka_unit_test(test_a_reply_without_ids_is_kept_for_its_reasoning_only),
        cmocka_unit_test(test_a_custom_tools_free_text_comes_back_as_an_object),
        cmocka_unit_test(test_without_memory_for_it_the_text_is_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
