#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "chat/jinja.h"
#include "chat/jinja_case.h"
#include "chat/jinja_json.h"

#define MEMORY ((size_t)32 << 20)

struct outcome {
    struct arena a;
    struct jinja_result r;
    struct err e;
    bool ok;
};

/* Runs source over one variable x, a string of origin 1, and d, a dict of origin 2. */
static void run_in(struct outcome *o, const char *source, const char *x, size_t memory)
{
    struct jinja_template *t;
    *o = (struct outcome){.ok = false};
    arena_init(&o->a, memory);
    struct jinja_heap h = jinja_heap(&o->a);
    struct jinja_var vars[2] = {{STR("x"), jinja_value_text(&h, str_of(x), 1)}};
    const struct jinja_input in = {vars, 2, 1785000000};
    vars[1].name = STR("d");
    assert_true(jinja_json_value(&h, STR("{\"k\": \"v\", \"l\": [1, 2.5]}"), 2, &vars[1].value,
                                 &o->e));
    o->ok = jinja_compile(&t, str_of(source), &o->a, &o->e) && jinja_run(t, &h, &in, &o->r, &o->e);
}

static void run(struct outcome *o, const char *source, const char *x)
{
    run_in(o, source, x, MEMORY);
}

static void done(struct outcome *o) { arena_deinit(&o->a); }

/* Pieces of the output as "0:text|1:text". */
static void pieces(const struct outcome *o, struct buf *out)
{
    buf_clear(out);
    for (uint32_t at = 0, end; at < o->r.text.len; at = end) {
        uint32_t origin = jinja_text_origin(o->r.text, at, &end);
        str text = jinja_text_bytes(jinja_text_cut(o->r.text, at, end));
        buf_printf(out, "%s%u:%.*s", at ? "|" : "", origin, STR_ARG(text));
    }
}

static void test_C01_every_operation_keeps_the_origin_of_every_byte(void **state)
{
    (void)state;
    static const struct {
        const char *source, *x, *pieces;
    } rows[] = {
        {"a{{ x }}b", "X", "0:a|1:X|0:b"},
        {"{{ 'a' + x + 'b' }}", "X", "0:a|1:X|0:b"},
        {"{{ 'a' ~ x ~ 1 }}", "X", "0:a|1:X|0:1"},
        {"{{ x|trim }}", "  X ", "1:X"},
        {"{{ x|upper }}{{ x|title }}{{ x.lower() }}", "xY", "1:XYXyxy"},
        {"{{ x.replace('b', '<>') }}", "abc", "1:a|0:<>|1:c"},
        {"{{ '<>'.replace('<', x) }}", "X", "1:X|0:>"},
        {"{{ x[1:] }}{{ x[::-1] }}{{ x[0] }}", "abc", "1:bccbaa"},
        {"{{ x.split(',')|join('-') }}", "a,b", "1:a|0:-|1:b"},
        {"{{ x|list|reverse|join }}", "ab", "1:ba"},
        {"{% for c in x %}{{ c }}{% endfor %}", "ab", "1:ab"},
        {"{{ '{}!{}'.format(x, 1) }}", "X", "1:X|0:!1"},
        {"{{ x|indent(2) }}", "a\nb", "1:a\n|0:  |1:b"},
        {"{{ x|tojson }}", "a\"\n", "1:\"a\\\"\\n\""},
        {"{{ ('<' ~ x)|tojson }}", "X", "0:\"<|1:X\""},
        {"{{ d|tojson }}", "", "2:{\"k\": \"v\", \"l\": [1, 2.5]}"},
        {"{{ {'a': x}|tojson }}", "X", "0:{\"a\": |1:\"X\"|0:}"},
        {"{{ d }}", "", "2:{'k': 'v', 'l': [1, 2.5]}"},
        {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "",
         "2:k|0:=|2:v|0:;|2:l|0:=|2:[1, 2.5]|0:;"},
        {"{{ d.l[0] }}{{ d.l[0] + 1 }}", "", "2:1|0:2"},
        {"{% set y %}<{{ x }}>{% endset %}{{ y }}", "X", "0:<|1:X|0:>"},
        {"{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m(x) }}", "X", "0:[|1:X|0:]"},
        {"{% filter upper %}a{{ x }}{% endfilter %}", "b", "0:A|1:B"},
        {"{% set n = namespace(t='') %}{% for i in range(3) %}{% set n.t = n.t ~ x ~ i %}"
         "{% endfor %}{{ n.t }}", "X", "1:X|0:0|1:X|0:1|1:X|0:2"},
        {"{{ x|string|safe|default('z') }}{{ [x]|first }}{{ [x, 'z']|max }}", "X", "1:XX|0:z"},
        {"{{ x * 2 }}{{ x.strip('a') }}", "ab", "1:ababb"},
        {"{{ x|from_json }}", "{\"a\": \"<\"}", "1:{'a': '<'}"},
        {"{{ strftime_now(x) }}", "%Y!", "1:2026!"},
    };
    struct buf out;
    buf_init(&out, 4096);
    for (size_t i = 0; i < countof(rows); i++) {
        struct outcome o;
        run(&o, rows[i].source, rows[i].x);
        if (!o.ok)
            fail_msg("%s: %s", rows[i].source, o.e.text);
        pieces(&o, &out);
        if (!str_eq_z(buf_view(&out), rows[i].pieces))
            fail_msg("%s\n want %s\n got  %.*s", rows[i].source, rows[i].pieces,
                     STR_ARG(buf_view(&out)));
        done(&o);
    }
    buf_deinit(&out);
}

static void test_errors_name_the_line_and_the_construct(void **state)
{
    (void)state;
    static const struct {
        const char *source, *error;
    } rows[] = {
        {"\n{{ nope.x }}", "template line 2: 'nope' is undefined"},
        {"{{ d.a.b }}", "template line 1: 'dict object' has no attribute 'a'"},
        {"a\n\n{{ x + 1 }}", "template line 3: unsupported operand types for +: 'str' and 'int'"},
        {"{{ x|join|abs }}", "template line 1: 'abs': a number expected, not 'str'"},
        {"{{ 5 is in 5 }}", "template line 1: argument of type 'int' is not iterable"},
        {"{{ x.zfill(3) }}", "template line 1: 'zfill' is not supported"},
        {"{{ x(1) }}", "template line 1: 'str' object is not callable"},
        {"{{ x|replace('a') }}", "template line 1: 'replace' needs at least 2 arguments"},
        {"{{ x|indent(depth=2) }}", "template line 1: 'indent' has no parameter 'depth'"},
        {"{{ x|tojson(1, 2, 3, 4, 5) }}", "template line 1: 'tojson' does not take 5 arguments"},
        {"{{ 'a' % 1 }}", "template line 1: '%' on a string is not supported"},
        {"{{ 9223372036854775807 + 1 }}", "template line 1: computing with integers beyond 64 bi"},
        {"{{ range(100001) }}", "template line 1: 'range' gives more than 100000 items"},
        {"{% set a, b = [1] %}", "template line 1: 1 values cannot be unpacked into 2 variables"},
        {"{% for x in 1 %}{% endfor %}", "template line 1: 'int' object is not iterable"},
        {"{% call f() %}{% endcall %}", "template line 1: statement 'call' is not supported"},
        {"{% for a in b recursive %}{% endfor %}", "template line 1: a recursive 'for' is not su"},
        {"\n{% if x %}", "template line 2: 'endif' is missing for the tag of this line"},
        {"{% endfor %}", "template line 1: unexpected tag 'endfor'"},
        {"{{ 'a' }", "template line 1: unexpected '}'"},
        {"{{ 'a }}", "template line 1: a string is not closed"},
        {"{# a", "template line 1: a comment is not closed by '#}'"},
        {"{{ x. }}", "template line 1: a name or number behind '.' expected, got '}}'"},
        {"{{ 'a\xff' }}", "template: no valid UTF-8 at byte 5"},
        {"{{ raise_exception('Only ' + x) }}", "template line 1: Only ..."},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct outcome o;
        run(&o, rows[i].source, "secret");
        if (o.ok || strncmp(o.e.text, rows[i].error, strlen(rows[i].error)) != 0)
            fail_msg("%s\n want %s\n got  %s", rows[i].source, rows[i].error,
                     o.ok ? "success" : o.e.text);
        assert_null(strstr(o.e.text, "secret"));
        done(&o);
    }
}

/* J06: nothing but the values given is to be reached. */
static void test_J06_attribute_walks_find_nothing(void **state)
{
    (void)state;
    static const char *const walks[] = {
        "{{ ''.__class__.__mro__ }}", "{{ x.__init__.__globals__ }}", "{{ d.__class__.__base__ }}",
        "{{ d['__class__']['__mro__'] }}", "{{ namespace.__init__.__globals__ }}",
        "{{ range.__self__.x }}", "{{ raise_exception.__globals__.os }}", "{{ self.x.y }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}", "{{ config.items() }}",
        "{{ lipsum.__globals__['os'] }}", "{{ x.format.__globals__.a }}",
        "{{ '{0.__class__.__base__}'.format(x) }}", "{{ x|attr('__class__') }}",
        "{% import 'os' as os %}", "{% include '/etc/passwd' %}",
    };
    for (size_t i = 0; i < countof(walks); i++) {
        struct outcome o;
        run(&o, walks[i], "x");
        if (o.ok)
            fail_msg("%s gives '%.*s'", walks[i], STR_ARG(jinja_text_bytes(o.r.text)));
        done(&o);
    }
}

/* J05: each limit stops a template that would pass it, in time. */
static void test_J05_limits_end_a_run_in_a_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *source, *error;
    } rows[] = {
        {"{% set r = range(100000) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
         "takes more than 20000000 steps"},
        {"{% set r = range(100000) %}{% for a in r %}{{ r|length }}{{ 'x' in r }}{% endfor %}",
         "takes more than 20000000 steps"},
        {"{% set n = namespace(s='aaaaaaaa') %}{% for i in range(40) %}"
         "{% set n.s = n.s ~ n.s %}{% endfor %}", "needs more than 32 MiB"},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nest deeper than 2000"},
        {"{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", "nests deeper than 128"},
        {"{% set l = [] %}{% set _ = l.append(l) %}{{ l|tojson }}", "nests deeper than 128"},
        {"{{ ('a' * 1000000)|list|length }}", "needs more than 32 MiB"},
        {"{{ 'a'.join(range(100000)|map('string')|list * 100) }}", "needs more than 32 MiB"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct outcome o;
        run(&o, rows[i].source, "x");
        if (o.ok || strstr(o.e.text, rows[i].error) == NULL || o.e.code != ERR_LIMIT)
            fail_msg("%s\n want %s\n got  %s", rows[i].source, rows[i].error,
                     o.ok ? "success" : o.e.text);
        done(&o);
    }
}

static void test_a_text_of_more_than_64_MiB_is_refused(void **state)
{
    (void)state;
    struct outcome o;
    run_in(&o, "{% set n = namespace(s='aaaaaaaa') %}{% for i in range(40) %}"
               "{% set n.s = n.s ~ n.s %}{% endfor %}", "", (size_t)1 << 30);
    assert_false(o.ok);
    assert_string_equal(o.e.text, "template line 1: a text of the template is longer than 64 MiB");
    done(&o);
}

/* A source made by repeating pieces, so that it passes one limit of compiling. */
static void expect_long(const char *head, const char *piece, size_t count, const char *tail,
                        const char *error)
{
    struct arena a;
    struct buf source;
    struct jinja_template *t;
    struct err e = {0};
    arena_init(&a, (size_t)256 << 20);
    buf_init(&source, (size_t)4 << 20);
    buf_add_z(&source, head);
    for (size_t i = 0; i < count; i++)
        buf_add_z(&source, piece);
    buf_add_z(&source, tail);
    bool ok = jinja_compile(&t, buf_view(&source), &a, &e);
    if (ok != (error == NULL) || (error && strstr(e.text, error) == NULL))
        fail_msg("%s... x %zu: want %s, got %s", piece, count, error ? error : "success",
                 ok ? "success" : e.text);
    buf_deinit(&source);
    arena_deinit(&a);
}

static void test_limits_of_compiling(void **state)
{
    (void)state;
    expect_long("", "a", JINJA_SOURCE_MAX, "", NULL);
    expect_long("", "a", JINJA_SOURCE_MAX + 1, "", "1048577 bytes, at most 1048576");
    expect_long("", "{{1}}", 60000, "", "more than 100000 nodes");
    expect_long("{{", "(", 64, "1", "");
    expect_long("{{", "(", 65, "1", "brackets nest deeper than 64");
    expect_long("", "{% if a %}", 65, "", "statements and brackets nest deeper than 64");
    expect_long("{{ ", "not ", 65, "a }}", "nest deeper than 64");
    expect_long("{{ a", ".b", 300, "}}", "built of more than 256 levels");
    expect_long("{{ a", "|trim", 300, "}}", "built of more than 256 levels");
    expect_long("{{ 1", " + 1", 20000, "}}", NULL); /* a chain is one level */
    expect_long("{{ a", " if b else c", 64, "}}", NULL);
}

static void test_what_a_template_reads_and_mentions(void **state)
{
    (void)state;
    static const char source[] =
        "{% if enable_thinking is defined %}{% set x = tools or y %}{% endif %}{{ x }}"
        "{% for m in messages %}{{ m.reasoning_content }}{{ loop.index }}{{ m['role'] }}"
        "{% endfor %}{% macro f(z) %}{{ z }}{{ w }}{% endmacro %}{% set own = 1 %}{{ own }}"
        "{% set kept = kept or 2 %}{% set ns = namespace(q=1) %}{{ ns.q }}";
    static const struct {
        const char *name;
        bool reads;
    } rows[] = {{"enable_thinking", true}, {"tools", true}, {"y", true}, {"messages", true},
                {"w", true}, {"kept", true}, {"x", true}, {"m", false}, {"loop", false},
                {"z", false}, {"own", false}, {"ns", false}, {"nothing", false}};
    struct arena a;
    struct jinja_template *t;
    struct err e;
    arena_init(&a, MEMORY);
    assert_true(jinja_compile(&t, str_of(source), &a, &e));
    for (size_t i = 0; i < countof(rows); i++)
        if (jinja_reads(t, str_of(rows[i].name)) != rows[i].reads)
            fail_msg("%s", rows[i].name);
    assert_true(jinja_mentions(t, STR("reasoning_content")) && jinja_mentions(t, STR("role")));
    assert_false(jinja_mentions(t, STR("messages")));
    arena_deinit(&a);
}

/* Where we go further than transformers' sandbox: lists and dicts may be changed. */
static void test_append_and_pop_change_lists_and_dicts(void **state)
{
    (void)state;
    struct outcome o;
    run(&o, "{% set l = [1] %}{% set _ = l.append(2) %}{% set k = l %}{{ l }}{{ k.pop() }}{{ l }}"
            "{{ l.pop(0) }}{{ l }}{{ d.pop('k') }}{{ d }}{{ d.pop('z', 3) }}", "");
    if (!o.ok)
        fail_msg("%s", o.e.text);
    assert_true(str_eq_z(jinja_text_bytes(o.r.text), "[1, 2]2[1]1[]v{'l': [1, 2.5]}3"));
    done(&o);
}

static void test_a_dict_of_many_keys_finds_each_and_keeps_their_order(void **state)
{
    (void)state;
    struct outcome o;
    run(&o, "{% set n = namespace(d=dict()) %}{% set pairs = [] %}"
            "{% for i in range(500) %}{% set _ = pairs.append((i|string, i)) %}{% endfor %}"
            "{% set big = dict(pairs) %}{% set _ = big.pop('250') %}"
            "{{ big|length }} {{ big['0'] }} {{ big['499'] }} {{ big['250'] is defined }} "
            "{{ (big.keys()|list)[249:251] }}", "");
    if (!o.ok)
        fail_msg("%s", o.e.text);
    assert_true(str_eq_z(jinja_text_bytes(o.r.text), "499 0 499 False ['249', '251']"));
    done(&o);
}

static void test_equal_runs_give_equal_bytes(void **state)
{
    (void)state;
    struct outcome a, b;
    static const char source[] = "{{ d|tojson }}{{ x|upper }}{{ strftime_now('%c') }}";
    run(&a, source, "x");
    run(&b, source, "x");
    assert_true(a.ok && b.ok && jinja_text_eq(a.r.text, b.r.text));
    done(&a);
    done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_C01_every_operation_keeps_the_origin_of_every_byte),
        cmocka_unit_test(test_errors_name_the_line_and_the_construct),
        cmocka_unit_test(test_J06_attribute_walks_find_nothing),
        cmocka_unit_test(test_J05_limits_end_a_run_in_a_sentence),
        cmocka_unit_test(test_a_text_of_more_than_64_MiB_is_refused),
        cmocka_unit_test(test_limits_of_compiling),
        cmocka_unit_test(test_what_a_template_reads_and_mentions),
        cmocka_unit_test(test_append_and_pop_change_lists_and_dicts),
        cmocka_unit_test(test_a_dict_of_many_keys_finds_each_and_keeps_their_order),
        cmocka_unit_test(test_equal_runs_give_equal_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
