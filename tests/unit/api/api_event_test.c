#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "api/api_event.h"

/* "Q P S C D ..." with the choice as a digit before; '!' marks the event that must be refused. */
struct story { enum api_kind kind; uint32_t n; const char *events; };

static enum api_event_kind kind_of(char c)
{
    switch (c) {
    case 'Q': return API_EVENT_QUEUED;
    case 'P': return API_EVENT_PROGRESS;
    case 'S': return API_EVENT_STARTED;
    case 'N': return API_EVENT_NOTE;
    case 'C': return API_EVENT_CONTENT;
    case 'R': return API_EVENT_REASONING;
    case 'T': return API_EVENT_TOKENS;
    case 'M': return API_EVENT_MODELS;
    case 'F': return API_EVENT_EMBEDDING;
    case 'U': return API_EVENT_USAGE;
    case 'D': return API_EVENT_DONE;
    default: return API_EVENT_ERROR;
    }
}

static void tell(const struct story *s)
{
    static const struct api_input input;
    struct api_request rq;
    struct api_order o;
    struct err e;
    api_request_init(&rq);
    rq.kind = s->kind;
    rq.n = s->n;
    rq.inputs = &input;
    rq.inputs_count = 1;
    api_order_init(&o, &rq);
    uint32_t choice = 0;
    for (const char *p = s->events; *p; p++) {
        if (*p >= '0' && *p <= '9') {
            choice = (uint32_t)(*p - '0');
            continue;
        }
        bool bad = *p == '!';
        p += bad;
        struct api_event ev = {.kind = kind_of(*p)};
        struct api_batch b = {.choice = choice, .events = &ev, .events_count = 1};
        if (api_order_add(&o, &b, &e) == bad)
            fail_msg("kind %d \"%s\": at %s", s->kind, s->events, p);
    }
}

static void test_a_reply_has_one_order_only(void **state)
{
    (void)state;
    static const struct story stories[] = {
        {API_KIND_CHAT, 1, "QPPNSRCCUD!C"},
        {API_KIND_CHAT, 1, "SCUD!D"},
        {API_KIND_CHAT, 1, "!C"},
        {API_KIND_CHAT, 1, "S!S"},
        {API_KIND_CHAT, 1, "S!Q"},
        {API_KIND_CHAT, 1, "SC!D"},
        {API_KIND_CHAT, 1, "SU!C"},
        {API_KIND_CHAT, 1, "QE!C"},
        {API_KIND_CHAT, 1, "SCE!D"},
        {API_KIND_CHAT, 1, "!T"},
        {API_KIND_CHAT, 2, "0S1C0C0D1CU1D"},
        {API_KIND_CHAT, 2, "0S0D!C"},
        {API_KIND_CHAT, 2, "0S!U"},
        {API_KIND_PREFILL, 1, "QPUD"},
        {API_KIND_PREFILL, 1, "!C"},
        {API_KIND_COUNT, 1, "TUD"},
        {API_KIND_EMBED, 1, "FFUD"},
        {API_KIND_LIST, 1, "MD"},
        {API_KIND_LIST, 1, "!U"},
    };
    for (size_t i = 0; i < countof(stories); i++)
        tell(&stories[i]);
}

static void test_a_choice_out_of_range_is_refused(void **state)
{
    (void)state;
    struct api_request rq;
    struct api_order o;
    struct err e;
    api_request_init(&rq);
    api_order_init(&o, &rq);
    struct api_batch b = {.choice = 1};
    assert_false(api_order_add(&o, &b, &e));
    assert_int_equal(e.code, ERR_ENGINE);
}

static void test_every_event_prints_without_its_content(void **state)
{
    (void)state;
    for (int kind = 0; kind < API_EVENT_COUNT_; kind++) {
        struct api_event ev = {.kind = (enum api_event_kind)kind};
        struct buf b;
        if (kind == API_EVENT_CONTENT || kind == API_EVENT_REASONING)
            ev.text.text = STR("SECRET");
        if (kind == API_EVENT_CALL_ARGS)
            ev.call.args = STR("SECRET");
        buf_init(&b, 4096);
        api_event_print(&b, &ev);
        assert_true(str_starts(buf_view(&b), str_of(api_event_name(ev.kind))));
        assert_null(strstr(b.p, "SECRET"));
        buf_deinit(&b);
    }
}

static void test_capabilities_print_as_words(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 4096);
    api_event_print_caps(&b, API_CAP_TOOLS | API_CAP_SCHEMA | API_CAP_CHAT);
    assert_string_equal(b.p, "tools,schema,chat");
    buf_clear(&b);
    api_event_print_caps(&b, API_CAP_ALL_);
    assert_null(strstr(b.p, "(null)"));
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_reply_has_one_order_only),
        cmocka_unit_test(test_a_choice_out_of_range_is_refused),
        cmocka_unit_test(test_every_event_prints_without_its_content),
        cmocka_unit_test(test_capabilities_print_as_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
