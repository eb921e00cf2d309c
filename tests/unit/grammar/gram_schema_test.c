/* gram_schema: what each keyword lets through, and what is refused, by pointer and keyword. */
#include "grammar/gram_schema.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/chrono.h"
#include "grammar/gram_dfa.h"
#include "grammar/gram_walk.h"

struct made {
    struct gram *gram;
    struct gram_dfa_table *tables[64];
};

static bool make(struct made *m, str schema, bool is_strict, struct buf *dropped, struct err *e)
{
    const struct gram_limits l = {.bytes_max = (size_t)64 << 20,
                                  .deadline_ns = chrono_ns(&chrono_real) + 1000000000};
    const struct gram_schema_options o = {.is_strict = is_strict, .dropped = dropped};
    uint32_t rule;
    m->gram = gram_new(&l);
    bool ok = gram_schema(m->gram, schema, &o, &rule, e) &&
              gram_finish(m->gram, gram_call(m->gram, rule, gram_end(m->gram)), e);
    for (uint32_t i = 0; ok && i < gram_dfa_count(m->gram) && i < countof(m->tables); i++)
        m->tables[i] = gram_dfa_whole(gram_dfa_at(m->gram, i));
    if (!ok) {
        gram_unref(m->gram);
        m->gram = NULL;
    }
    return ok;
}

/* Byte by byte with frames that never go away. */
static bool accepts(const struct made *m, str text)
{
    static struct gram_frame frames[4096];
    static struct gram_key keys[4096];
    struct gram_thread now[GRAM_THREADS_MAX], then[GRAM_THREADS_MAX];
    struct gram_walk w = {.g = m->gram, .tables = m->tables, .frames = frames,
                          .frames_max = countof(frames), .keys = keys,
                          .keys_max = countof(keys)};
    struct gram_state s;
    uint32_t count = 1;
    gram_start(m->gram, &s);
    now[0] = s.threads[0];
    for (size_t i = 0; i < text.len; i++) {
        struct gram_threads out = {.items = then, .max = countof(then)};
        for (uint32_t k = 0; k < count; k++)
            gram_walk_step(&w, &now[k], (uint8_t)text.p[i], &out);
        count = out.count;
        memcpy(now, then, count * sizeof *now);
    }
    for (uint32_t k = 0; k < count; k++)
        if (gram_walk_can_end(&w, &now[k]))
            return true;
    return false;
}

/* Instances divided by blanks of two: those of `yes` are accepted, those of `no` are not. */
static const struct {
    const char *schema, *yes, *no;
} vectors[] = {
    {"{\"type\":\"null\"}", "null", "0  nul  nulll"},
    {"{\"type\":\"boolean\"}", "true  false", "True  1  null"},
    {"{\"type\":\"integer\"}", "0  -1  12345678901234567", "01  -0  1.0  1e3  123456789012345678  "
     "+1"},
    {"{\"type\":\"number\"}", "0  -1.5  1e5  2E-300  0.1  1.5e+10", "01.5  .5  1.  1e400  1e  NaN"},
    {"{\"type\":[\"integer\",\"null\"]}", "3  null", "3.5  \"a\""},
    {"{\"enum\":[1,\"a\",null,{\"b\":[1,2]}]}", "1  \"a\"  null  {\"b\":[1,2]}", "2  \"b\"  {}"},
    {"{\"const\":\"x\\u00e9\\n\"}", "\"x\xc3\xa9\\n\"", "\"x\"  \"\""},
    {"{\"type\":\"integer\",\"enum\":[1,\"a\",2.0,3.5]}", "1  2.0", "\"a\"  3.5"},
    {"{\"minimum\":-5,\"maximum\":10,\"type\":\"integer\"}", "-5  -1  0  9  10", "-6  11  100"},
    {"{\"exclusiveMinimum\":0,\"exclusiveMaximum\":2.5,\"type\":\"number\"}", "0.1  1  2.49  2",
     "0  2.5  2.50  -1  0.0  3"},
    {"{\"minimum\":99.95,\"type\":\"number\"}", "99.95  99.951  100  1000.5",
     "99.9  99.94999  9  -100"},
    {"{\"maximum\":-12.5,\"type\":\"number\"}", "-12.5  -13  -100.25", "-12.4  -1  0  12.5"},
    {"{\"multipleOf\":1}", "5  \"a\"  []", "5.5"},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     "\"ab\"  \"a\xc3\xa9\xe2\x82\xac\"  \"\\n\\u00e9\""
     "  \"\\ud83d\\ude00x\"", "\"a\"  \"abcd\"  \"\\ud83d\\ude00\"  \"\\ud83dxx\"  \"\\ude00x\""},
    {"{\"type\":\"string\"}", "\"\"  \"\\/\"  \"\xf0\x9f\x98\x80\"",
     "\"\x01\"  \"\\x\"  \"\xc3\"  \"\xed\xa0\x80\""},
    {"{\"type\":\"string\",\"pattern\":\"^\\\\d+$\"}", "\"12\"", "\"\"  \"a1\"  \"\\u0031\""},
    {"{\"type\":\"string\",\"pattern\":\"b\"}", "\"abc\"  \"b\"  \"\\nb\"", "\"ac\"  \"\""},
    {"{\"type\":\"string\",\"pattern\":\"^[^a]{2}$\",\"maxLength\":4}", "\"\\u0001\\n\"  \"bc\"",
     "\"ab\"  \"b\""},
    {"{\"type\":\"string\",\"format\":\"date\"}", "\"2024-02-29\"  \"1999-12-31\"",
     "\"2023-02-29\"  \"2024-13-01\"  \"0000-01-01\"  \"2024-04-31\"  \"1900-02-29\""},
    {"{\"type\":\"string\",\"format\":\"time\"}", "\"23:59:59Z\"  \"00:00:00.5+01:30\"",
     "\"24:00:00Z\"  \"12:00:00\""},
    {"{\"type\":\"string\",\"format\":\"ipv4\"}", "\"1.2.3.4\"  \"255.0.10.99\"",
     "\"256.1.1.1\"  \"01.1.1.1\"  \"1.1.1\""},
    {"{\"type\":\"string\",\"format\":\"uuid\"}", "\"123e4567-e89b-12d3-a456-426614174000\"",
     "\"123\""},
    {"{\"type\":\"string\",\"format\":\"email\"}", "\"anything\"", "1"},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":2}",
     "[1]  [1,2]  [1, 2]",
     "[]  [1,2,3]  [\"a\"]  [1,  2]  [ 1]  [1,]"},
    {"{\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":false,\"type\":\"array\"}",
     "[]  [1]  [1,2]",
     "[2]  [1,2,3]"},
    {"{\"type\":\"array\",\"items\":[{\"const\":1}],\"additionalItems\":{\"const\":2}}",
     "[1,2,2]", "[1,1]"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},\"required\":"
     "[\"b\"]}",
     "{\"a\":1,\"b\":2}  {\"b\":2}  {\"a\": 1, \"b\": 2}", "{}  {\"a\":1}  {\"b\":2,\"a\":1}  "
     "{\"b\":2,\"c\":3}  { \"b\":2}"
     "  {\"b\" :2}  {\"b\":2,\"b\":2}"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"additionalProperties\":{\"type\":\"null\"}}",
     "{\"a\":[{\"x\":1}],\"z\":null}  {\"zz\":null}  {\"\":null}  {\"z\":null,\"zz\":null}",
     "{\"z\":1}  {\"z\":null,\"a\":1}  {\"z\":null,\"z\":null}  {\"z\":null,\"y\":null,\"z\":null}"
     "  {\"z\":null, \"\\u007a\":null}"
     "  {\"\\u0061\":null}"},
    {"{\"type\":\"object\",\"additionalProperties\":false}", "{}", "{\"a\":1}"},
    {"{\"type\":\"object\",\"required\":[\"x\"]}", "{\"x\":1}  {\"x\":[],\"y\":2}",
     "{}  {\"y\":1}"},
    {"{\"anyOf\":[{\"type\":\"string\",\"maxLength\":1},{\"const\":\"abc\"},{\"type\":\"null\"}]}",
     "\"a\"  \"abc\"  null", "\"ab\"  \"abcd\"  1"},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"x\"},\"v\":{\"const\":"
     "1}},\"required\":[\"k\"]},"
     "{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"y\"},\"w\":{\"const\":2}},"
     "\"required\":[\"k\"]}]}",
     "{\"k\":\"x\",\"v\":1}  {\"k\":\"y\",\"w\":2}  {\"k\":\"y\"}",
     "{\"k\":\"x\",\"w\":2}  {\"k\":\"z\"}"},
    {"{\"oneOf\":[{\"type\":\"integer\",\"maximum\":3},{\"type\":\"integer\",\"minimum\":4}]}",
     "3  4", "3.5"},
    {"{\"allOf\":[{\"minLength\":1},{\"maxLength\":2},{\"type\":\"string\"}]}", "\"a\"  \"ab\"",
     "\"\"  \"abc\"  1"},
    {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":"
     "[\"a\"]}],"
     "\"properties\":{\"b\":{\"const\":1},\"a\":{\"minimum\":5}}}",
     "{\"b\":1,\"a\":5}  {\"a\":6}", "{\"a\":4}  {\"b\":1}"},
    {"{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"l\":"
     "{\"$ref\":\"#/$defs/n\"},"
     "\"r\":{\"$ref\":\"#/$defs/n\"}},\"required\":[\"v\"]}},\"$ref\":\"#/$defs/n\"}",
     "{\"v\":1}  {\"v\":1,\"l\":{\"v\":2,\"r\":{\"v\":3}}}", "{}  {\"l\":{\"v\":1}}"},
    {"{\"$defs\":{\"a\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}},\"allOf\":["
     "{\"$ref\":\"#/$defs/a\"},{\"anyOf\":[{\"$ref\":\"#/$defs/a\"},{\"type\":\"integer\"}]}]}",
     "\"a\"  null", "1"},
    {"{\"type\":\"object\",\"properties\":{\"a~/b\":{\"const\":1},\"c\":{\"$ref\":"
     "\"#/properties/a~0~1b\"}}}",
     "{\"a~/b\":1,\"c\":1}", "{\"c\":2}"},
    {"{\"type\":\"string\",\"nullable\":true}", "\"a\"  null", "1"},
    {"true", "1  \"a\"  {\"a\":[[],{}]}", ""},
    {"{}", "null  [1, {\"a\": 2}]  {\"a\":{\"a\":1,\"b\":[{\"a\":1}]},\"b\":{\"a\":2}}",
     "[1,]  {\"a\":1,\"a\":2}  {\"a\":{\"b\":1},\"c\":0,\"a\":2}  [{\"a\":{\"x\":1,\"x\":1}}]"},
    {"{\"title\":\"t\",\"description\":\"d\",\"default\":1,\"examples\":[1],\"x-own\":{\"not\":1},"
     "\"type\":\"null\"}",
     "null", "1"},
};

static void each(const char *list, const struct made *m, bool expected, const char *schema)
{
    while (*list) {
        const char *end = strstr(list, "  ");
        str one = end ? str_view(list, (size_t)(end - list)) : str_of(list);
        if (accepts(m, one) != expected)
            fail_msg("%.*s under %s: %s expected", STR_ARG(one), schema,
                     expected ? "accepted" : "not accepted");
        list = end ? end + 2 : list + one.len;
    }
}

static void test_each_keyword_lets_through_what_is_valid_and_nothing_else(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(vectors); i++) {
        struct made m;
        struct err e;
        if (!make(&m, str_of(vectors[i].schema), true, NULL, &e))
            fail_msg("%s: %s", vectors[i].schema, e.text);
        each(vectors[i].yes, &m, true, vectors[i].schema);
        each(vectors[i].no, &m, false, vectors[i].schema);
        gram_unref(m.gram);
    }
}

static const struct { const char *schema, *says; } refused[] = {
    {"{\"properties\":{\"a\":{\"items\":{\"not\":{}}}}}",
     "schema: #/properties/a/items: 'not' is not supported"},
    {"{\"if\":{}}", "schema: #: 'if' is not supported"},
    {"{\"type\":\"object\",\"patternProperties\":{\"a\":{}}}",
     "schema: #: 'patternProperties' is not supported"},
    {"{\"type\":\"object\",\"minProperties\":1}", "schema: #: 'minProperties' is not supported"},
    {"{\"uniqueItems\":true}", "schema: #: 'uniqueItems' is not supported"},
    {"{\"contains\":{}}", "schema: #: 'contains' is not supported"},
    {"{\"multipleOf\":5}", "schema: #: 'multipleOf' other than 1 is not supported"},
    {"{\"$ref\":\"http://x/y\"}", "schema: #: '$ref' to another document is not supported"},
    {"{\"$ref\":\"#/nowhere\"}", "schema: #: $ref: nothing is at that place"},
    {"false", "schema: #: 'false' as a schema is not supported"},
    {"{\"$ref\":\"#\"}",
     "schema: #: '$ref' leads back to itself: recursion without a way out"},
    {"{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"anyOf\":[{\"type\":\"null\"},{\"allOf\":["
     "{\"$ref\":\"#/$defs/n\"},{\"type\":\"string\"}]}]}}}",
     "schema: #/$defs/n/anyOf/1/allOf/0: '$ref' leads back to itself: recursion without a way out"},
    {"{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}",
     "schema: #/anyOf/1: '$ref' leads back to itself: recursion without a way out"},
    {"{\"$defs\":{\"a\":{\"anyOf\":[{\"$ref\":\"#/$defs/c\"}]},\"c\":{\"anyOf\":["
     "{\"$ref\":\"#/$defs/a\"},{\"type\":\"null\"}]}},"
     "\"allOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/c\"}]}",
     "schema: #/$defs/c/anyOf/0: '$ref' leads back to itself: recursion without a way out"},
    {"{\"type\":\"string\",\"pattern\":\".{600}x\",\"maxLength\":600}",
     "schema: #: no value is possible"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"^$\","
     "\"minLength\":1}},\"required\":[\"a\"]}", "schema: #/properties/a: no value is possible"},
    {"{\"type\":\"string\",\"enum\":[\"ab\",\"b\"],\"pattern\":\"^c\"}",
     "schema: #: no value is possible"},
    {"{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}",
     "schema: #: minItems 3 is more than maxItems 2"},
    {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}",
     "schema: #: minLength 3 is more than maxLength 2"},
    {"{\"properties\":{\"x/y\":{\"type\":\"text\"}}}", "schema: #/properties/x~1y: type: one of "
     "null,"
     " boolean, integer, number, string, array, object expected"},
    {"{\"type\":\"string\",\"pattern\":\"(?=a)\"}",
     "schema: #/pattern: pattern: offset 0: look-around is not supported"},
    {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "schema: #: no value is possible"},
    {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":[\"string\",\"null\"]}]}",
     "schema: #: 'oneOf' branches 0 and 1 may both be valid"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
     "grammar: no reply can ever be complete"},
    {"{\"anyOf\":[]}", "schema: #: anyOf: array of schemas expected"},
    {"{\"enum\":1}", "schema: #: enum: array expected"}, {"{\"minLength\":-1}",
     "schema: #: a length or count: integer from 0 expected"},
    {"[]", "schema: #: a schema is an object or a boolean"},
    {"{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"enum\":[[]]}", "schema: #/enum/0: an"
     " enumerated object or array beside other keywords is not supported"},
};

static void test_H11_what_is_refused_is_named_by_pointer_and_keyword(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(refused); i++) {
        struct made m;
        struct err e;
        if (make(&m, str_of(refused[i].schema), true, NULL, &e) ||
            strcmp(e.text, refused[i].says) != 0)
            fail_msg("%s: '%s' expected, got '%s'", refused[i].schema, refused[i].says,
                     m.gram ? "a grammar" : e.text);
    }
}

static void test_H02_without_strictness_the_keyword_alone_is_left_out(void **state)
{
    (void)state;
    struct made m;
    struct err e;
    struct buf dropped;
    buf_init(&dropped, 4096);
    assert_true(make(&m, STR("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\","
                             "\"pattern\":\"(?=x)\",\"maxLength\":2},\"b\":{\"type\":\"integer\","
                             "\"not\":{}}},\"required\":[\"a\",\"b\"]}"), false, &dropped, &e));
    assert_true(accepts(&m, STR("{\"a\":\"zz\",\"b\":3}")));
    assert_false(accepts(&m, STR("{\"a\":\"zzz\",\"b\":3}")));
    assert_int_equal(dropped.len, strlen("#/properties/a/pattern: pattern\n#/properties/b: not\n"));
    buf_deinit(&dropped);
    gram_unref(m.gram);
}

/* One field is wrong; the others still hold. */
static const struct { const char *field, *note; } loose[] = {
    {"{\"type\":\"text\"}", "#/properties/a: type\n"},
    {"{\"$ref\":\"#/nowhere\"}", "#/properties/a: $ref\n"},
    {"{\"$ref\":\"http://x/y\"}", "#/properties/a: $ref\n"},
    {"{\"$ref\":\"#/properties/a\"}", "#/properties/a: $ref\n"},
    {"{\"enum\":3}", "#/properties/a: enum\n"},
    {"{\"minLength\":\"x\"}", "#/properties/a: length\n"},
    {"{\"minimum\":\"x\"}", "#/properties/a: bound\n"},
    {"{\"allOf\":3}", "#/properties/a: allOf\n"},
    {"{\"anyOf\":{}}", "#/properties/a: anyOf\n"},
    {"{\"pattern\":3}", "#/properties/a: pattern, format\n"},
    {"{\"prefixItems\":3}", "#/properties/a: prefixItems\n"},
    {"{\"properties\":3}", "#/properties/a: properties\n"},
    {"{\"required\":3}", "#/properties/a: required\n"},
    {"{\"required\":[3]}", "#/properties/a: required\n"},
    {"{\"additionalProperties\":3}", "#/properties/a: additionalProperties\n"},
    {"3", "#/properties/a: schema\n"},
    {"{\"type\":\"string\",\"pattern\":\"^$\",\"minLength\":1}", "#/properties/a: schema\n"},
};

static void test_H02_one_wrong_field_leaves_the_others_constrained(void **state)
{
    (void)state;
    char schema[400];
    struct buf dropped;
    buf_init(&dropped, 4096);
    for (size_t i = 0; i < countof(loose); i++) {
        struct made m;
        struct err e;
        buf_clear(&dropped);
        snprintf(schema, sizeof schema, "{\"type\":\"object\",\"properties\":{\"a\":%s,"
                 "\"b\":{\"type\":\"integer\"}},\"required\":[\"a\",\"b\"]}", loose[i].field);
        if (!make(&m, str_of(schema), false, &dropped, &e))
            fail_msg("%s: %s", schema, e.text);
        if (!accepts(&m, STR("{\"a\":\"zz\",\"b\":3}")) ||
            accepts(&m, STR("{\"a\":\"zz\",\"b\":\"x\"}")) ||
            accepts(&m, STR("{\"b\":3}")))
            fail_msg("%s: the other fields do not hold", schema);
        if (!str_eq_z(buf_view(&dropped), loose[i].note))
            fail_msg("%s: %s expected, noted %.*s", schema, loose[i].note,
                     STR_ARG(buf_view(&dropped)));
        gram_unref(m.gram);
        if (make(&m, str_of(schema), true, NULL, &e))
            fail_msg("%s: compiles although it is strict", schema);
    }
    buf_deinit(&dropped);
}

/* --- hostile ------------------------------------------------------------------------------- */

static void repeat(struct buf *b, const char *text, uint32_t times)
{
    for (uint32_t i = 0; i < times; i++)
        buf_add_z(b, text);
}

static void hostile(struct buf *b, int which)
{
    buf_clear(b);
    switch (which) {
    case 0: /* nests 10,000 deep */
        repeat(b, "{\"properties\":{\"a\":", 10000);
        buf_add_z(b, "{}");
        repeat(b, "}}", 10000);
        break;
    case 1: /* references in a chain */
        buf_add_z(b, "{\"$ref\":\"#/$defs/r0\",\"$defs\":{");
        for (uint32_t i = 0; i < 5000; i++)
            buf_printf(b, "\"r%u\":{\"$ref\":\"#/$defs/r%u\"},", i, i + 1);
        buf_add_z(b, "\"r5000\":{\"type\":\"null\"}}}");
        break;
    case 2: /* 5,000 properties, all optional */
        buf_add_z(b, "{\"type\":\"object\",\"properties\":{\"p\":{}");
        for (uint32_t i = 1; i < 5000; i++)
            buf_printf(b, ",\"p%u\":{\"type\":\"integer\",\"minimum\":%u}", i, i % 7);
        buf_add_z(b, "}}");
        break;
    case 3: /* branches of branches */
        buf_add_z(b, "{\"$ref\":\"#/$defs/r0\",\"$defs\":{");
        for (uint32_t i = 0; i < 40; i++)
            buf_printf(b, "\"r%u\":{\"anyOf\":[{\"$ref\":\"#/$defs/r%u\"},{\"$ref\":"
            "\"#/$defs/r%u\"},"
                       "{\"type\":\"object\",\"properties\":{\"a%u\":{}}}]},", i, i + 1, i + 2, i);
        buf_add_z(b, "\"r40\":{\"type\":\"null\"},\"r41\":{\"type\":\"null\"}}}");
        break;
    case 4: /* large lengths cost nothing */
        buf_add_z(b, "{\"type\":\"array\",\"minItems\":1000000,\"maxItems\":2000000000,\"items\":"
                  "{\"type\":\"string\",\"minLength\":1000000,\"maxLength\":2000000000}}");
        break;
    case 5: /* 10,000 enumerated values */
        buf_add_z(b, "{\"enum\":[0");
        for (uint32_t i = 1; i < 10000; i++)
            buf_printf(b, ",\"value %u\"", i);
        buf_add_z(b, "]}");
        break;
    case 6: /* states without end */
        buf_add_z(b, "{\"type\":\"string\",\"pattern\":\"(a|b)*a(a|b){14}(a*)*$\",\"maxLength\":"
        "50}");
        break;
    case 7: /* all of all of all */
        repeat(b, "{\"allOf\":[{\"minLength\":1},", 60);
        buf_add_z(b, "{}");
        repeat(b, "]}", 60);
        break;
    case 8: /* patterns that must hold at once */
        buf_add_z(b, "{\"allOf\":[{\"pattern\":\"(a|b)*a(a|b){12}\"},{\"pattern\":\"(b|c)*b(a|c)"
        "{12}\"}"
                  ",{\"pattern\":\"^.{0,5000}$\"}],\"type\":\"string\"}");
        break;
    default: /* a million characters of another kind of depth */
        repeat(b, "[", 200000);
        break;
    }
}

static void test_H09_hostile_schemas_are_answered_at_once(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, (size_t)4 << 20);
    for (int i = 0; i < 10; i++) {
        struct made m;
        struct err e = {0};
        hostile(&b, i);
        int64_t begin = chrono_ns(&chrono_real);
        bool ok = make(&m, buf_view(&b), true, NULL, &e);
        double ms = (double)(chrono_ns(&chrono_real) - begin) / 1e6;
        print_message("hostile %d: %.1f ms, %s\n", i, ms, ok ? "compiles" : e.text);
        assert_true(ok || e.text[0]);
        /* An idle machine takes 0.05 s; a build with sanitizers, beside others, far more. */
        assert_true(ms < 2000);
        gram_unref(m.gram);
    }
    buf_deinit(&b);
}

/* Each bound is a pattern of many kilobytes while it compiles. */
static void test_450_properties_may_have_bounds_of_many_digits(void **state)
{
    (void)state;
    const struct gram_limits l = {.bytes_max = (size_t)256 << 20};
    const struct gram_schema_options o = {.is_strict = true};
    struct gram *g = gram_new(&l);
    struct buf b;
    struct err e = {0};
    uint32_t rule;
    buf_init(&b, 1 << 20);
    for (uint32_t i = 1; i <= 450; i++)
        buf_printf(&b, "%s\"n%u\":{\"type\":\"number\",\"minimum\":-%.6f,\"maximum\":%.4f}",
                   i > 1 ? "," : "{\"type\":\"object\",\"properties\":{", i, i * 1.234567,
                   i * 98765.4321);
    buf_add_z(&b, "}}");
    if (!gram_schema(g, buf_view(&b), &o, &rule, &e))
        fail_msg("%s", e.text);
    gram_unref(g);
    const struct gram_limits small = {.bytes_max = (size_t)8 << 20};
    g = gram_new(&small);
    assert_false(gram_schema(g, buf_view(&b), &o, &rule, &e));
    assert_int_equal(e.code, ERR_LIMIT); /* and not that no value is possible */
    gram_unref(g);
    buf_deinit(&b);
}

/* Patterns of random pieces, good and bad ones: each compiles or is refused with a sentence, and
 * what compiles can be walked with any bytes. */
static void test_H05_no_pattern_brings_the_compiler_or_a_reply_down(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "a", "\\\\d", "\\\\w+", "[^\\\\s]", "(", ")", "|", "*", "+", "?", "{2,3}", "{3}", "^",
        "$", ".", "(?:", "[a-z]", "[", "]", "\\\\", "\\\\u00e9", "\xc3\xa9", "\\\\x41", "(?=",
        "\\\\1", "{,}", "-", "{0}"};
    struct buf schema, text;
    uint32_t good = 0, bad = 0;
    buf_init(&schema, 4096);
    buf_init(&text, 4096);
    for (uint32_t seed = 1; seed <= 3000; seed++) {
        struct chrono_rng r;
        struct made m;
        struct err e = {0};
        chrono_rng_init(&r, seed);
        buf_clear(&schema);
        buf_clear(&text);
        buf_add_z(&schema, "{\"type\":\"string\",\"pattern\":\"");
        for (uint64_t n = 1 + chrono_rng_below(&r, 8); n-- > 0;)
            buf_add_z(&schema, pieces[chrono_rng_below(&r, countof(pieces))]);
        buf_printf(&schema, "\",\"maxLength\":%u}", (uint32_t)chrono_rng_below(&r, 6));
        if (!make(&m, buf_view(&schema), true, NULL, &e)) {
            bad++;
            assert_true(strncmp(e.text, "schema: ", 8) == 0);
            continue;
        }
        good++;
        buf_add_byte(&text, '"');
        for (uint32_t i = 0; i < 12; i++)
            buf_add_byte(&text, (char)chrono_rng_below(&r, 256));
        (void)accepts(&m, buf_view(&text)); /* it ends, and touches nothing that is not its own */
        gram_unref(m.gram);
    }
    if (good < 300 || bad < 300)
        fail_msg("%u patterns compile, %u are refused: no mixture", good, bad);
    buf_deinit(&schema);
    buf_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_keyword_lets_through_what_is_valid_and_nothing_else),
        cmocka_unit_test(test_H11_what_is_refused_is_named_by_pointer_and_keyword),
        cmocka_unit_test(test_H02_without_strictness_the_keyword_alone_is_left_out),
        cmocka_unit_test(test_H02_one_wrong_field_leaves_the_others_constrained),
        cmocka_unit_test(test_H05_no_pattern_brings_the_compiler_or_a_reply_down),
        cmocka_unit_test(test_450_properties_may_have_bounds_of_many_digits),
        cmocka_unit_test(test_H09_hostile_schemas_are_answered_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
