/* constrain: the grammar of each format reads back what its row says a call is, nothing else. */
#include "engine/constrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine_vocab.h"

struct place {
    struct vocab *vocab;
    struct constrain *constrain;
    struct arena arena;
    struct gram_mask *masks;
    struct gram_state at;
};

static void open_place(struct place *p)
{
    *p = (struct place){.vocab = engine_vocab_bytes()};
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
    const struct api_tool *tool; /* instead of all */
    bool is_off;
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
    rq.tools = o->tool ? o->tool : tools;
    rq.tools_count = o->tool ? 1 : countof(tools);
    rq.tool_choice = o->choice;
    rq.format.kind = o->format;
    assert_true(output_tools_make(&made, &rq, &p->arena, &why));
    struct constrain_ask ask = {.rq = &rq, .begin = o->begin, .one_call = o->one_call,
                                .is_off = o->is_off,
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
    } else if (row->shape == OUTPUT_SHAPE_LITERAL) {
        buf_add_z(b, is_weather ? (is_good ? "{city:<|\"|>Oslo {<|\"|>,days:3}" : "{days:3}")
                                : (is_good ? "{on:true}" : "{on:1}"));
    } else if (is_weather) {
        buf_add_z(b, is_good ? "{\"city\":\"Oslo\",\"days\":3}" : "{\"days\":3}");
    } else {
        buf_add_z(b, is_good ? "{\"on\": true}" : "{\"on\": 1}");
    }
    buf_add(b, row->args_close);
    buf_add(b, row->call_close);
}

/* Where a reply begins that holds nothing but calls. */
static enum output_begin at_calls(const struct output_row *row)
{
    return row->shape == OUTPUT_SHAPE_CHANNEL ? OUTPUT_BEGIN_FRESH : OUTPUT_BEGIN_ANSWER;
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
                            .begin = at_calls(row)};
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
                                      .begin = at_calls(row), .one_call = one};
            if (!row->section_open.len && !row->call_open.len)
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
        if (mark.len == 0)
            continue; /* a call without opener: below */
        assert_true(begin(&p, &o, &e));
        buf_clear(&b);
        buf_add_z(&b, "Let me see <");
        str first = output_table_begin(row, row->section_open.len ? 0 : 1);
        buf_add(&b, str_sub(first, 0, first.len / 2));
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

#define WEATHER "\"name\": \"get_weather\", \"arguments\": {\"city\":\"Oslo\"}"
#define GET(on) "{\"name\": \"get\", \"arguments\": {\"on\":" on "}}"

static const struct {
    const char *text;
    bool lets;
} bare_rows[] = {
    {"{" WEATHER "}", true},
    {"\n{ \"type\" : \"function\", \n" WEATHER "\n}", true},
    {"```json\n{\n  " WEATHER "\n}\n```", true},
    {"```\n" GET("true") "```\n```json\n" GET("false") "\n```\nSo.", true},
    {GET("true") "\n" GET("false") "; " GET("true"), true},
    {GET("true") "\n\nDone <b>. {\"name\": \"get\", no", true},
    {GET("1"), false},
    {"\t" GET("\"true\""), false},
    {"```json\n" GET("1"), false},
    {"{\"type\":\"function\"," "\"name\": \"get\", \"x\"", false},
    {"{\"name\": \"get\", \"arguments\": null", false},
    {"{\"name\": \"get\", \"parameters\": {\"on\":true}}", true},
    {"{\"name\": \"get\"}", false},
    {GET("true") "\n" GET("1"), false},
    {"```\n" GET("true") "\n```\n" GET("1"), false},
    {"```\n" GET("true") "\n```\n```json\n" GET("1"), false},
    {"```\n" GET("true") ", " GET("1"), false},
    {GET("true") "\n```json\n" GET("1"), false},
    /* Answers. */
    {"", true},
    {"`x`", true},
    {"``", true},
    {"```python\nx = {}\n```", true},
    {"```js\nlet x = {\"name\": \"get\"}\n```", true},
    {"{}", true},
    {"{\"name\": \"Anna\", \"age\": 3}", true},
    {"{\"name\": \"secret\", \"arguments\": 1}", true}, /* not allowed: text */
    {"{\"name\": \"gets\"}", true},
    {"{\"name\": \"ge\"}", true},
    {"{\"name\": 5}", true},
    {"{\"nam\": \"get\"}", true},
    {"{\"type\": \"person\", \"name\": \"get\"}", true},
    {"See {\"name\": \"get\", no", true},
    /* A marked call where text could still be one that is not. */
    {"{<tool_call>nonsense", false},
    {"{\"<tool_call>nonsense", false},
    {"{\"name\": \"<tool_call>nonsense", false},
    {"``<tool_call>nonsense", false},
    {"```json\n<tool_call>nonsense", false},
    {"<<tool_call>nonsense", false},
    {" <tool_call>nonsense", false},
    {"<tool_call>\n" GET("true"), true},
};

/* What chat/output would take for a call fits the schema; everything else stays free. */
static void test_a_call_that_nothing_marks_is_strict_from_its_name_on(void **state)
{
    (void)state;
    struct place p;
    struct api_error e;
    bool ends;
    open_place(&p);
    const struct setting o = {.row = output_table_find(STR("hermes")),
                              .begin = OUTPUT_BEGIN_ANSWER};
    assert_true(begin(&p, &o, &e));
    for (size_t i = 0; i < countof(bare_rows); i++)
        if (lets(&p, str_of(bare_rows[i].text), &ends) != bare_rows[i].lets)
            fail_msg("%s: %s", bare_rows[i].text, bare_rows[i].lets ? "refused" : "let through");
    gram_mask_close(p.masks, &p.at);
    const struct setting llama3 = {.row = output_table_find(STR("llama3")),
                                   .begin = OUTPUT_BEGIN_ANSWER};
    assert_true(begin(&p, &llama3, &e));
    assert_true(lets(&p, STR(GET("true")), &ends) && ends);
    assert_false(lets(&p, STR(GET("true") " and"), &ends));
    assert_false(lets(&p, STR(GET("1")), &ends));
    assert_true(lets(&p, STR("```json\n{\"name\": \"get\", no"), &ends) && ends);
    gram_mask_close(p.masks, &p.at);
    close_place(&p);
}

static void test_harmony_reasons_and_then_calls(void **state)
{
    (void)state;
#define CALL "<|channel|>commentary to=functions.get <|constrain|>json<|message|>{\"on\":true}"
    static const struct {
        enum api_tool_choice choice;
        const char *text;
        bool lets, ends;
    } rows[] = {
        {API_TOOL_CHOICE_REQUIRED, CALL, true, true},
        {API_TOOL_CHOICE_REQUIRED, CALL "<|call|>", true, true},
        {API_TOOL_CHOICE_REQUIRED, "<|channel|>analysis<|message|>hm <|end|><|start|>assistant"
         CALL, true, true},
        {API_TOOL_CHOICE_REQUIRED, "<|channel|>analysis<|message|>hm <|en", true, false},
        {API_TOOL_CHOICE_REQUIRED, "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
         "<|channel|>final", false, false},
        {API_TOOL_CHOICE_REQUIRED, "<|channel|>final", false, false},
        {API_TOOL_CHOICE_REQUIRED, "Hello", false, false},
        {API_TOOL_CHOICE_AUTO, "<|channel|>final<|message|>Hello", true, true},
        {API_TOOL_CHOICE_AUTO, CALL, true, true},
        {API_TOOL_CHOICE_AUTO, "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to="
         "functions.get<|channel|>commentary json<|message|>{\"on\":true}<|call|>", true, true},
        {API_TOOL_CHOICE_AUTO, "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to="
         "functions.get<|channel|>commentary json<|message|>{\"on\":1", false, false},
        {API_TOOL_CHOICE_AUTO, "<|channel|>commentary to=functions.secret", false, false},
        {API_TOOL_CHOICE_NONE, "<|channel|>commentary to=", false, false},
        {API_TOOL_CHOICE_NONE, "<|channel|>commentary<|message|>", true, true},
    };
    struct place p;
    struct api_error e;
    open_place(&p);
    for (size_t i = 0; i < countof(rows); i++) {
        const struct setting o = {.row = output_table_find(STR("harmony")),
                                  .choice = rows[i].choice};
        bool ends = false;
        assert_true(begin(&p, &o, &e));
        bool ok = lets(&p, str_of(rows[i].text), &ends);
        if (ok != rows[i].lets || (ok && ends != rows[i].ends))
            fail_msg("%d: %s", (int)rows[i].choice, rows[i].text);
        gram_mask_close(p.masks, &p.at);
    }
    const struct setting o = {.row = output_table_find(STR("harmony")),
                              .choice = API_TOOL_CHOICE_REQUIRED,
                              .begin = OUTPUT_BEGIN_THINKING};
    bool ends = false;
    assert_true(begin(&p, &o, &e));
    assert_true(lets(&p, STR("hm<|end|><|start|>assistant" CALL), &ends) && ends);
    gram_mask_close(p.masks, &p.at);
    close_place(&p);
}

/* A preamble would be text in front of the JSON; a header of another form would leave it free. */
static void test_harmony_answers_in_a_format_with_one_message(void **state)
{
    (void)state;
#define HM "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
    static const struct {
        enum api_tool_choice choice;
        const char *text;
        bool lets, ends;
    } rows[] = {
        {API_TOOL_CHOICE_AUTO, "<|channel|>final<|message|>{}", true, true},
        {API_TOOL_CHOICE_AUTO, HM "<|channel|>final<|message|>{\"a\":\"<|end|>\"}", true, true},
        {API_TOOL_CHOICE_AUTO, HM "<|channel|>final<|message|>x", false, false},
        {API_TOOL_CHOICE_AUTO, HM "<|channel|>final <|constrain|>json<|message|>", false, false},
        {API_TOOL_CHOICE_AUTO, HM "<|channel|>commentary<|message|>", false, false},
        {API_TOOL_CHOICE_AUTO, "<|channel|>commentary<|message|>", false, false},
        {API_TOOL_CHOICE_AUTO, "x", false, false},
        {API_TOOL_CHOICE_AUTO, HM CALL, true, true},
        {API_TOOL_CHOICE_NONE, HM CALL, false, false},
        {API_TOOL_CHOICE_NONE, HM "<|channel|>final<|message|>{}", true, true},
        {API_TOOL_CHOICE_NONE, "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel"
         "|>analysis", false, false},
    };
    static const struct api_tool hosted = {.kind = API_TOOL_HOSTED};
    struct place p;
    struct api_error e;
    open_place(&p);
    for (size_t i = 0; i < countof(rows); i++)
        for (int has_tools = 0; has_tools < 2; has_tools++) {
            const struct setting o = {.row = output_table_find(STR("harmony")),
                                      .choice = rows[i].choice, .format = API_FORMAT_JSON,
                                      .tool = has_tools ? NULL : &hosted};
            bool is_call = strstr(rows[i].text, "functions.get") != NULL, ends = false;
            assert_true(begin(&p, &o, &e));
            bool ok = lets(&p, str_of(rows[i].text), &ends);
            bool want = rows[i].lets && (has_tools || !is_call);
            if (ok != want || (ok && ends != rows[i].ends))
                fail_msg("%d, tools %d: %s", (int)rows[i].choice, has_tools, rows[i].text);
            gram_mask_close(p.masks, &p.at);
        }
    close_place(&p);
}

#define NOT_IN_XML(keyword) \
    "tool f: schema: #/a: '" keyword "' is not supported for a strict tool in this model's form " \
    "of calls (function-xml)"
#define DSML_A   "<\xef\xbd\x9c" "DSML\xef\xbd\x9cparameter name=\"a\" string=\"true\">"
#define DSML_END "</\xef\xbd\x9c" "DSML\xef\xbd\x9cparameter>"

static const struct {
    const char *format, *schema, *good, *bad, *why;
} strict_rows[] = {
    {"function-xml", "{\"a\":{\"type\":\"string\",\"enum\":[\"x\",\"yy\"]}}",
     "<parameter=a>\nyy\n</parameter>\n", "<parameter=a>\nz", NULL},
    {"function-xml", "{\"a\":{\"type\":\"string\",\"pattern\":\"^x\"}}", NULL, NULL,
     "tool f: schema: #/a: 'pattern' is not supported for a strict tool in this model's form of"
     " calls (function-xml)"},
    {"function-xml", "{\"a\":{\"type\":\"integer\",\"maximum\":5}}",
     "<parameter=a>\n5\n</parameter>\n", "<parameter=a>\n6", NULL},
    {"gemma4", "{\"a\":{\"const\":\"x\"},\"b\":{\"type\":\"array\",\"items\":{\"type\":"
     "\"object\",\"properties\":{\"c\":{\"type\":\"integer\"}},\"required\":[\"c\"]}}}",
     "a:<|\"|>x<|\"|>,b:[{c:1},{c:2}]}", "a:<|\"|>x<|\"|>,b:[{}", NULL},
    {"gemma4", "{\"a\":{\"type\":\"array\",\"maxItems\":2,\"items\":{\"type\":\"null\"}}}",
     NULL, NULL, "tool f: schema: #/a: 'maxItems' is not supported for a strict tool in this "
     "model's form of calls (gemma4)"},
    {"gemma4", "{\"a\":{\"description\":\"any\"}}",
     "a:{x:[1,<|\"|>]<|\"|>,{}],y:null}}", "a:x", NULL},
    /* The reader takes one line feed off a text, not two; DSML's none. */
    {"function-xml", "{\"a\":{\"enum\":[\"x\",\"yy\"]}}", "<parameter=a>\nyy</parameter>",
     "<parameter=a>\nyy\n\n", NULL},
    {"glm", "{\"a\":{\"enum\":[\"x\"]}}", "<arg_key>a</arg_key>\n<arg_value>x\n</arg_value>",
     "<arg_key>a</arg_key>\n<arg_value>x\n\n", NULL},
    {"dsml", "{\"a\":{\"enum\":[\"x\"]}}", DSML_A "x" DSML_END, DSML_A "x\n", NULL},
    {"dsml", "{\"a\":{\"const\":\"x\\n\"}}", DSML_A "x\n" DSML_END, DSML_A "x<", NULL},
    /* Texts and names that it would read as others. */
    {"function-xml", "{\"a\":{\"enum\":[\"x\\n\"]}}", NULL, NULL, NOT_IN_XML("enum")},
    {"function-xml", "{\"a\":{\"const\":\"x</parameter>y\"}}", NULL, NULL,
     NOT_IN_XML("const")},
    {"function-xml", "{\"a\":{\"type\":[\"string\",\"null\"],\"enum\":[\"x\",\"None\"]}}",
     NULL, NULL, NOT_IN_XML("enum")},
    {"function-xml", "{\"x>y\":{\"type\":\"integer\"}}", NULL, NULL,
     "tool f: schema: #/x>y: 'properties' is not supported for a strict tool in this model's "
     "form of calls (function-xml)"},
    {"glm", "{\"a\":{\"enum\":[\"\\nx\"]}}", NULL, NULL, "tool f: schema: #/a: 'enum' is not"
     " supported for a strict tool in this model's form of calls (glm)"},
    {"gemma4", "{\"a\":{\"const\":\"<|\\\"|>\"}}", NULL, NULL, "tool f: schema: #/a: 'const' "
     "is not supported for a strict tool in this model's form of calls (gemma4)"},
    {"gemma4", "{\"a b\":{\"type\":\"integer\"}}", NULL, NULL, "tool f: schema: #: "
     "'properties' is not supported for a strict tool in this model's form of calls (gemma4)"},
};

/* What a form cannot keep to is an error for a strict tool and a note for others. */
static void test_a_strict_tool_is_kept_to_or_refused_in_every_form(void **state)
{
    (void)state;
    struct place p;
    struct api_error e;
    open_place(&p);
    for (size_t i = 0; i < countof(strict_rows); i++) {
        char schema[512], text[512];
        snprintf(schema, sizeof schema, "{\"type\":\"object\",\"properties\":%s}",
                 strict_rows[i].schema);
        struct api_tool f = {.kind = API_TOOL_FUNCTION, .name = STR("f"), .allowed = true,
                             .strict = true, .schema = str_of(schema)};
        const struct output_row *row = output_table_find(str_of(strict_rows[i].format));
        const struct setting o = {.row = row, .choice = API_TOOL_CHOICE_REQUIRED,
                                  .begin = OUTPUT_BEGIN_ANSWER, .tool = &f};
        bool ok = begin(&p, &o, &e), ends;
        if (strict_rows[i].why) {
            assert_false(ok);
            assert_string_equal(e.err.text, strict_rows[i].why);
            f.strict = false;
            assert_true(begin(&p, &o, &e));
            gram_mask_close(p.masks, &p.at);
            continue;
        }
        assert_true(ok);
        for (int good = 0; good < 2; good++) {
            snprintf(text, sizeof text, "%.*s%.*s%.*sf%.*s%s%s", STR_ARG(row->section_open),
                     STR_ARG(row->call_open), STR_ARG(row->name_open), STR_ARG(row->name_close),
                     row->shape == OUTPUT_SHAPE_LITERAL ? "{" : "",
                     good ? strict_rows[i].good : strict_rows[i].bad);
            if (lets(&p, str_of(text), &ends) != (good == 1))
                fail_msg("%s: %s", strict_rows[i].format, text);
        }
        gram_mask_close(p.masks, &p.at);
    }
    close_place(&p);
}

static void test_no_name_comes_twice_and_not_too_many_come(void **state)
{
    (void)state;
    static const struct { const char *text; bool ok; } texts[] = {
        {"{\"a\":1,\"b\":{\"a\":1,\"c\":[{\"a\":2},{\"a\":3}]},\"c\":0}", true},
        {"{\"a\":1,\"ab\":2,\"a\"", false}, {"{\"a\":1,\"ab\":2,\"abc\"", true},
        {"{\"a\":{\"b\":1,\"c\":2},\"b\":0,\"a\"", false},
        {"{\"x\":[{\"a\":1,\"\\u0061\"", false}, {"{\"x\":[{\"a\":1},{\"b\":1,\"a\"", true},
    };
    struct place p;
    struct buf b;
    struct api_error e;
    bool ends;
    const struct setting o = {.begin = OUTPUT_BEGIN_ANSWER, .format = API_FORMAT_JSON,
                              .choice = API_TOOL_CHOICE_NONE};
    open_place(&p);
    assert_true(begin(&p, &o, &e));
    for (size_t i = 0; i < countof(texts); i++)
        if (lets(&p, str_of(texts[i].text), &ends) != texts[i].ok)
            fail_msg("%s: %s expected", texts[i].text, texts[i].ok ? "let through" : "refused");
    buf_init(&b, 1 << 20); /* full: the object may only close */
    for (uint32_t i = 0; i < GRAM_KEYS_OPEN; i++)
        buf_printf(&b, "%s\"k%u\":%u", i ? "," : "{", i, i);
    assert_true(lets(&p, buf_view(&b), &ends));
    buf_add_z(&b, ",");
    assert_false(lets(&p, buf_view(&b), &ends));
    b.len--;
    buf_add_z(&b, "}");
    assert_true(lets(&p, buf_view(&b), &ends) && ends);
    buf_deinit(&b);
    gram_mask_close(p.masks, &p.at);
    close_place(&p);
}

/* The setting `off`: what is asked for or promised is bound all the same. */
static void test_off_frees_only_the_calls_that_nothing_asks_for(void **state)
{
    (void)state;
    static const struct api_tool strict = {
        .name = STR_INIT("get"), .allowed = true, .strict = true,
        .schema = STR_INIT("{\"type\":\"object\",\"properties\":{\"on\":{\"type\":\"boolean\"}},"
                           "\"required\":[\"on\"]}")};
    static const struct {
        enum api_tool_choice choice;
        enum api_format_kind format;
        const struct api_tool *tool;
        bool is_bound;
    } rows[] = {
        {API_TOOL_CHOICE_AUTO, API_FORMAT_TEXT, NULL, false},
        {API_TOOL_CHOICE_AUTO, API_FORMAT_TEXT, &strict, true},
        {API_TOOL_CHOICE_AUTO, API_FORMAT_JSON, NULL, true},
        {API_TOOL_CHOICE_REQUIRED, API_FORMAT_TEXT, NULL, true},
        {API_TOOL_CHOICE_NONE, API_FORMAT_TEXT, NULL, true},
    };
    struct place p;
    struct api_error e;
    bool ends;
    open_place(&p);
    for (size_t i = 0; i < countof(rows); i++) {
        const struct setting o = {.row = output_table_find(STR("hermes")), .is_off = true,
                                  .choice = rows[i].choice, .format = rows[i].format,
                                  .tool = rows[i].tool, .begin = OUTPUT_BEGIN_ANSWER};
        assert_int_equal(begin(&p, &o, &e), rows[i].is_bound);
        if (!rows[i].is_bound)
            continue;
        assert_false(lets(&p, STR("<tool_call>nonsense"), &ends));
        gram_mask_close(p.masks, &p.at);
    }
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
        cmocka_unit_test(test_a_call_that_nothing_marks_is_strict_from_its_name_on),
        cmocka_unit_test(test_harmony_reasons_and_then_calls),
        cmocka_unit_test(test_harmony_answers_in_a_format_with_one_message),
        cmocka_unit_test(test_a_strict_tool_is_kept_to_or_refused_in_every_form),
        cmocka_unit_test(test_no_name_comes_twice_and_not_too_many_come),
        cmocka_unit_test(test_off_frees_only_the_calls_that_nothing_asks_for),
        cmocka_unit_test(test_equal_requests_share_one_grammar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
