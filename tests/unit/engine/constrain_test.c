/* constrain: the grammar of each format reads back what its row says a call is, nothing else. */
#include "engine/constrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct place {
    struct vocab *vocab;
    struct constrain *constrain;
    struct arena arena;
    struct gram_mask *masks;
    struct gram_state at;
};

static void open_place(struct place *p)
{
    static char texts[256][8];
    static str tokens[257];
    static int32_t types[257];
    struct vocab_source s = vocab_source_empty;
    struct err e;
    for (int i = 0; i < 256; i++) {
        snprintf(texts[i], sizeof texts[i], "<0x%02X>", i);
        tokens[i] = str_of(texts[i]);
        types[i] = VOCAB_TYPE_BYTE;
    }
    tokens[256] = STR("</s>");
    types[256] = VOCAB_TYPE_CONTROL;
    s.model = STR("llama");
    s.tokens = tokens;
    s.types = types;
    s.count = 257;
    s.roles[VOCAB_ROLE_EOS] = 256;
    *p = (struct place){.vocab = NULL};
    assert_true(vocab_new(&p->vocab, &s, &e));
    p->constrain = constrain_new(p->vocab);
    arena_init(&p->arena, 1 << 24);
}

static void close_place(struct place *p)
{
    gram_mask_free(p->masks);
    constrain_free(p->constrain);
    vocab_free(p->vocab);
    arena_deinit(&p->arena);
}

static const struct api_tool tools[] = {
    {.kind = API_TOOL_FUNCTION, .name = STR_INIT("get_weather"), .allowed = true,
     .schema = STR_INIT("{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},"
                        "\"days\":{\"type\":\"integer\"}},\"required\":[\"city\"]}")},
    {.kind = API_TOOL_FUNCTION, .name = STR_INIT("get"), .allowed = true,
     .schema = STR_INIT("{\"type\":\"object\",\"properties\":{\"on\":{\"type\":\"boolean\"}},"
                        "\"required\":[\"on\"]}")},
    {.kind = API_TOOL_FUNCTION, .name = STR_INIT("secret"), .allowed = false,
     .schema = STR_INIT("{\"type\":\"object\"}")},
};

struct setting {
    const struct output_row *row;
    enum api_tool_choice choice;
    enum output_begin begin;
    bool one_call;
    enum api_format_kind format;
};

/* Starts a reply; false: no grammar, or (why) refused. */
static bool begin(struct place *p, const struct setting *o, struct api_error *e)
{
    static const struct gram_mask_options none = {.homes_max = 4, .masks_bytes = 1 << 20};
    struct api_request rq;
    struct output_tools made;
    struct constraint k;
    struct err why;
    api_request_init(&rq);
    rq.tools = tools;
    rq.tools_count = countof(tools);
    rq.tool_choice = o->choice;
    rq.format.kind = o->format;
    assert_true(output_tools_make(&made, &rq, &p->arena, &why));
    struct constrain_ask ask = {.rq = &rq, .begin = o->begin, .one_call = o->one_call,
                                .tools = o->choice == API_TOOL_CHOICE_NONE ? NULL : &made,
                                .format = {.calls = o->row}};
    if (o->begin != OUTPUT_BEGIN_ANSWER)
        for (uint32_t i = 0; i < output_table_thinks_count; i++)
            if (str_eq(output_table_thinks[i].name, STR("think")))
                ask.format.think = &output_table_thinks[i];
    if (!constrain_make(p->constrain, &ask, &p->arena, &k, e) || !k.gram)
        return false;
    if (!p->masks) {
        struct gram_mask_options m = none;
        m.index = k.index;
        p->masks = gram_mask_new(&m);
    }
    assert_true(gram_mask_open(p->masks, k.gram, &p->at, &why));
    constrain_drop(&k);
    return true;
}

/* Whether the whole text is let through; *ends: whether the reply may end behind it. */
static bool lets(struct place *p, str text, bool *ends)
{
    struct gram_state at = p->at, next;
    for (size_t i = 0; i < text.len; i++) {
        if (!gram_mask_try_bytes(p->masks, &at, str_sub(text, i, 1), &next))
            return false;
        at = next;
    }
    *ends = gram_mask_can_end(p->masks, &at);
    return true;
}

/* A call as the row says it, arguments in its form. */
static void add_call(struct buf *b, const struct output_row *row, const char *name, bool is_good)
{
    bool is_weather = strcmp(name, "get_weather") == 0;
    buf_add(b, row->name_open);
    buf_add_z(b, name);
    buf_add(b, row->name_close);
    if (row->shape == OUTPUT_SHAPE_TAGS) {
        buf_add(b, row->key_open);
        buf_add_z(b, is_weather ? "city" : "on");
        buf_add(b, is_weather ? row->key_text : row->key_json);
        buf_add_z(b, is_weather ? "Oslo <b>" : is_good ? "true" : "maybe");
        buf_add(b, row->value_close);
    } else if (is_weather) {
        buf_add_z(b, is_good ? "{\"city\":\"Oslo\",\"days\":3}" : "{\"days\":3}");
    } else {
        buf_add_z(b, is_good ? "{\"on\": true}" : "{\"on\": 1}");
    }
    buf_add(b, row->args_close);
    buf_add(b, row->call_close);
}

static bool is_built(const struct output_row *row)
{
    return row->shape != OUTPUT_SHAPE_CHANNEL && row->shape != OUTPUT_SHAPE_LITERAL;
}

static void check(struct place *p, const struct output_row *row, const struct buf *b, bool good,
                  bool ends)
{
    bool may_end = false;
    bool ok = lets(p, buf_view(b), &may_end);
    if (ok != good || (ok && may_end != ends))
        fail_msg("%.*s: %.*s: %s expected", STR_ARG(row->name), STR_ARG(buf_view(b)),
                 good ? "accepted" : "refused");
}

static void test_each_format_reads_back_its_own_calls(void **state)
{
    (void)state;
    struct place p;
    struct api_error e;
    struct buf b;
    open_place(&p);
    buf_init(&b, 1 << 16);
    for (uint32_t i = 0; i < output_table_count; i++) {
        const struct output_row *row = &output_table_rows[i];
        struct setting o = {.row = row, .choice = API_TOOL_CHOICE_REQUIRED,
                            .begin = OUTPUT_BEGIN_ANSWER};
        if (!is_built(row)) {
            assert_false(begin(&p, &o, &e));
            assert_int_equal(e.err.code, ERR_UNSUPPORTED);
            continue;
        }
        assert_true(begin(&p, &o, &e));
        for (int good = 0; good < 2; good++)
            for (int which = 0; which < 2; which++) {
                if (row->shape == OUTPUT_SHAPE_TAGS && which == 0 && !good)
                    continue; /* its text may be anything */
                buf_clear(&b);
                buf_add(&b, row->section_open);
                buf_add(&b, row->call_open);
                add_call(&b, row, which ? "get" : "get_weather", good);
                buf_add(&b, str_trim(row->section_close));
                check(&p, row, &b, good, true);
            }
        buf_clear(&b);
        buf_add(&b, row->section_open);
        buf_add(&b, row->call_open);
        add_call(&b, row, "secret", true);
        check(&p, row, &b, false, false);
        gram_mask_close(p.masks, &p.at);
    }
    buf_deinit(&b);
    close_place(&p);
}

static void test_two_calls_only_where_they_may_be_parallel(void **state)
{
    (void)state;
    struct place p;
    struct api_error e;
    struct buf b;
    open_place(&p);
    buf_init(&b, 1 << 16);
    for (uint32_t i = 0; i < output_table_count; i++)
        for (int one = 0; one < 2; one++) {
            const struct output_row *row = &output_table_rows[i];
            const struct setting o = {.row = row, .choice = API_TOOL_CHOICE_REQUIRED,
                                      .begin = OUTPUT_BEGIN_ANSWER, .one_call = one};
            if (!is_built(row) || (!row->section_open.len && !row->call_open.len))
                continue;
            assert_true(begin(&p, &o, &e));
            buf_clear(&b);
            buf_add(&b, row->section_open);
            buf_add(&b, row->call_open);
            add_call(&b, row, "get", true);
            buf_add(&b, row->between);
            buf_add(&b, row->call_open);
            add_call(&b, row, "get_weather", true);
            buf_add(&b, str_trim(row->section_close));
            check(&p, row, &b, !one && !row->is_call_last, true);
            gram_mask_close(p.masks, &p.at);
        }
    buf_deinit(&b);
    close_place(&p);
}

static void test_text_is_free_up_to_an_opener_and_strict_behind_it(void **state)
{
    (void)state;
    struct place p;
    struct api_error e;
    struct buf b;
    char opener[256];
    open_place(&p);
    buf_init(&b, 1 << 16);
    for (uint32_t i = 0; i < output_table_count; i++) {
        const struct output_row *row = &output_table_rows[i];
        const struct setting o = {.row = row, .begin = OUTPUT_BEGIN_ANSWER};
        str mark = output_table_opener(row, opener, sizeof opener);
        if (!is_built(row) || mark.len == 0) {
            assert_false(begin(&p, &o, &e));
            continue;
        }
        assert_true(begin(&p, &o, &e));
        buf_clear(&b);
        buf_add_z(&b, "Let me see <");
        buf_add(&b, str_sub(mark, 0, mark.len / 2));
        check(&p, row, &b, true, true);
        buf_clear(&b);
        buf_add_z(&b, "Let me see.");
        buf_add(&b, row->section_open);
        buf_add(&b, row->call_open);
        size_t open = b.len;
        add_call(&b, row, "get", true);
        buf_add(&b, str_trim(row->section_close));
        if (!row->is_call_last)
            buf_add_z(&b, " And so on.");
        check(&p, row, &b, true, true);
        b.len = open;
        buf_add_z(&b, "nonsense");
        check(&p, row, &b, false, false);
        gram_mask_close(p.masks, &p.at);
        const struct setting none = {.row = row, .choice = API_TOOL_CHOICE_NONE,
                                     .begin = OUTPUT_BEGIN_ANSWER};
        assert_true(begin(&p, &none, &e));
        b.len = open;
        check(&p, row, &b, false, false);
        gram_mask_close(p.masks, &p.at);
    }
    buf_deinit(&b);
    close_place(&p);
}

static void test_reasoning_comes_before_what_is_asked_for(void **state)
{
    (void)state;
    struct place p;
    struct api_error e;
    bool ends = false;
    open_place(&p);
    const struct output_row *row = output_table_find(STR("hermes"));
    struct setting o = {.row = row, .choice = API_TOOL_CHOICE_REQUIRED,
                        .begin = OUTPUT_BEGIN_THINKING};
    assert_true(begin(&p, &o, &e));
    assert_true(lets(&p, STR("hm, {x} <tool_call> no\n</think>\n\n<tool_call>\n{\"name\": \"get\""),
                     &ends));
    assert_false(lets(&p, STR("hm</think>\n\nHello"), &ends));
    assert_true(lets(&p, STR("hm"), &ends) && !ends);
    gram_mask_close(p.masks, &p.at);
    o = (struct setting){.begin = OUTPUT_BEGIN_FRESH, .format = API_FORMAT_JSON, .row = row,
                         .choice = API_TOOL_CHOICE_NONE};
    assert_true(begin(&p, &o, &e));
    assert_true(lets(&p, STR("<think>\nfree</think>\n{\"a\":1}"), &ends) && ends);
    assert_true(lets(&p, STR("{\"a\":1}"), &ends) && ends);
    assert_false(lets(&p, STR("Hello"), &ends));
    gram_mask_close(p.masks, &p.at);
    o.choice = API_TOOL_CHOICE_AUTO; /* a call or the answer */
    assert_true(begin(&p, &o, &e));
    assert_true(lets(&p, STR("{\"a\":1}"), &ends) && ends);
    assert_true(lets(&p, STR("<tool_call>\n{\"name\": \"get\", \"arguments\": {\"on\":true}}\n"
                             "</tool_call>"), &ends));
    assert_false(lets(&p, STR("Well"), &ends));
    gram_mask_close(p.masks, &p.at);
    close_place(&p);
}

static void test_equal_requests_share_one_grammar(void **state)
{
    (void)state;
    struct place p;
    struct api_error e;
    open_place(&p);
    const struct setting o = {.row = output_table_find(STR("hermes")),
                              .begin = OUTPUT_BEGIN_ANSWER};
    assert_true(begin(&p, &o, &e));
    const struct gram *first = p.at.gram;
    gram_mask_close(p.masks, &p.at);
    assert_true(begin(&p, &o, &e));
    assert_ptr_equal(p.at.gram, first);
    gram_mask_close(p.masks, &p.at);
    close_place(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_format_reads_back_its_own_calls),
        cmocka_unit_test(test_two_calls_only_where_they_may_be_parallel),
        cmocka_unit_test(test_text_is_free_up_to_an_opener_and_strict_behind_it),
        cmocka_unit_test(test_reasoning_comes_before_what_is_asked_for),
        cmocka_unit_test(test_equal_requests_share_one_grammar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
