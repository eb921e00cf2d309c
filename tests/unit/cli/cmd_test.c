#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cli/cmd.h"

static const struct cmd_flag flags[] = {
    {.name = "n", .value = "N", .spec = {CONFIG_TYPE_INT, NULL, 0, 100}, .standard = "7",
     .help = "a number"},
    {.name = "all", .spec = {.type = CONFIG_TYPE_BOOL}, .standard = "false", .help = "a boolean"},
    {.name = "f", .value = "FILE", .spec = {.type = CONFIG_TYPE_TEXT}, .is_repeatable = true,
     .help = "files"},
    {.name = "rate", .value = "R", .spec = {CONFIG_TYPE_REAL, NULL, 0, 1}, .help = "share"},
    {.name = "soon", .value = "X", .spec = {.type = CONFIG_TYPE_TEXT}, .is_later = true},
};

static const struct cmd command = {
    .name = "run", /* so that settings with a flag of `run` belong to it */
    .words = "MODEL [PROMPT...]",
    .words_min = 1,
    .words_max = 3,
    .summary = "Tests the parser",
    .text = "A paragraph.",
    .flags = flags,
    .flags_count = countof(flags),
    .has_json = true,
    .takes_server = true,
    .refuses_late_flags = true,
};

static struct arena arena;
static struct cmd_context context;
static struct err error;

static int begin(void **state)
{
    (void)state;
    arena_init(&arena, 1u << 20);
    return 0;
}

static int end(void **state)
{
    (void)state;
    arena_deinit(&arena);
    return 0;
}

static bool parse(const char *line)
{
    static char text[256];
    char *argv[16];
    int argc = 0;
    strcpy(text, line);
    for (char *word = text; *word;) {
        argv[argc++] = word;
        word += strcspn(word, " ");
        if (*word)
            *word++ = 0;
    }
    context = (struct cmd_context){.cmd = &command, .arena = &arena};
    return cmd_parse(&context, argc, argv, &error);
}

static void check_refused(const char *line, const char *wanted)
{
    if (parse(line))
        fail_msg("accepted: %s", line);
    assert_int_equal(error.code, ERR_USAGE);
    assert_string_equal(error.text, wanted);
}

static void test_flags_take_one_or_two_dashes_and_both_forms_of_a_value(void **state)
{
    (void)state;
    static const char *const lines[] = {"-n 5 m", "-n=5 m", "--n 5 m", "--n=5 m", "-n 9 -n 5 m"};
    for (size_t i = 0; i < countof(lines); i++) {
        assert_true(parse(lines[i]));
        assert_int_equal(cmd_number(&context, "n"), 5);
        assert_true(cmd_is_given(&context, "n"));
        assert_int_equal(context.words_count, 1);
    }
    assert_true(parse("m"));
    assert_int_equal(cmd_number(&context, "n"), 7);
    assert_false(cmd_is_given(&context, "n"));
    assert_null(cmd_text(&context, "rate").p);
    assert_true(parse("-rate 0.5 m") && cmd_real(&context, "rate") == 0.5);
}

static void test_booleans_need_no_value(void **state)
{
    (void)state;
    assert_true(parse("-all m") && cmd_bool(&context, "all"));
    assert_true(parse("-all=false m") && !cmd_bool(&context, "all"));
    assert_true(parse("-all false") && cmd_bool(&context, "all")); /* a word, not its value */
    assert_true(str_eq_z(context.words[0], "false"));
    check_refused("-all=maybe m", "run: -all: true or false expected, got \"maybe\"");
}

static void test_repeatable_flags_collect(void **state)
{
    (void)state;
    assert_true(parse("-f a -f=b -f -c m"));
    const struct config_value *v = cmd_value(&context, "f");
    assert_int_equal(v->items_count, 3);
    assert_true(str_eq_z(v->items[0], "a") && str_eq_z(v->items[2], "-c"));
    assert_true(parse("m"));
    assert_int_equal(cmd_value(&context, "f")->items_count, 0);
}

static void test_flags_end_at_the_first_word_or_at_two_dashes(void **state)
{
    (void)state;
    assert_true(parse("-n 1 m -x-y"));
    assert_int_equal(context.words_count, 2);
    assert_true(parse("-n 1 -- -n -all"));
    assert_int_equal(context.words_count, 2);
    assert_true(str_eq_z(context.words[0], "-n"));
    assert_true(parse("- m"));
    assert_true(str_eq_z(context.words[0], "-"));
    check_refused("m hello -n", "run: -n stands behind m; flags come first");
    check_refused("m -ctx=4", "run: -ctx stands behind m; flags come first");
}

static void test_a_command_may_allow_flags_between_its_words(void **state)
{
    (void)state;
    struct cmd mixed = command;
    mixed.flags_anywhere = true;
    char a[] = "m", b[] = "-n", d[] = "3", f[] = "--", g[] = "-all";
    char *argv[] = {a, b, d, a, f, g};
    context = (struct cmd_context){.cmd = &mixed, .arena = &arena};
    assert_true(cmd_parse(&context, 6, argv, &error));
    assert_int_equal(context.words_count, 3);
    assert_int_equal(cmd_number(&context, "n"), 3);
    assert_true(str_eq_z(context.words[2], "-all") && !cmd_bool(&context, "all"));
}

static void test_settings_among_the_flags_are_collected_and_checked(void **state)
{
    (void)state;
    assert_true(parse("-ctx 4096 m"));
    assert_int_equal(context.settings_count, 1);
    assert_string_equal(context.settings[0].row->key, "engine.ctx");
    assert_true(str_eq_z(context.settings[0].text, "4096"));
    check_refused("-ctx many m", "run: -ctx: integer 0..16777216 expected, got \"many\"");
}

static void test_wrong_lines_are_refused_by_name(void **state)
{
    (void)state;
    check_refused("-alll m", "run: unknown flag -alll; did you mean -all?");
    check_refused("-zzzzzz m", "run: unknown flag -zzzzzz; see `shoal help run`");
    check_refused("-ctxx 1 m", "run: unknown flag -ctxx; did you mean -ctx?"); /* a setting's */
    check_refused("-n", "run: no value for -n; see `shoal help run`");
    check_refused("-n 101 m", "run: -n: integer 0..100 expected, got \"101\"");
    check_refused("-soon x m", "run: -soon is not built yet");
    check_refused("", "run: MODEL [PROMPT...] missing; see `shoal help run`");
    check_refused("a b c d", "run: unexpected argument \"d\"; see `shoal help run`");
}

static void test_help_is_made_from_the_tables(void **state)
{
    (void)state;
    struct buf b;
    static const char *const asks[] = {"-h", "--help", "-help", "-n 3 -h"};
    for (size_t i = 0; i < countof(asks); i++)
        assert_true(parse(asks[i]) && context.wants_help);
    buf_init(&b, 10000);
    cmd_add_help(&b, &command);
    assert_true(str_starts(buf_view(&b), STR("usage: shoal run [flags] MODEL [PROMPT...]\n\n"
                                             "Tests the parser.\n\n"
                                             "A paragraph.\n\n"
                                             "  -n N                  a number (7)\n"
                                             "  -all                  a boolean\n"
                                             "  -f FILE               files\n"
                                             "  -rate R               share\n")));
    /* Between them the settings with a flag of `run`, as many as there are. */
    assert_non_null(strstr(b.p, "\n  -ctx N                context in tokens; "
                                "0: the model's (0)\n"));
    assert_non_null(strstr(b.p, "\n  -json                 one JSON document\n"));
    assert_true(str_ends(buf_view(&b),
                         STR("\n  -config PATH          configuration file "
                             "(~/.shoal/config.yaml)\n")));
    buf_deinit(&b);
}

static bool flag_is_setting(const struct cmd *cmd, const char *name)
{
    for (const struct config_row *r = config_rows; r->key; r++)
        if (r->flag && !strcmp(r->flag, name) && strstr(r->commands, cmd->name))
            return true;
    return false;
}

static void test_every_command_of_the_table_is_complete(void **state)
{
    (void)state;
    for (const struct cmd *const *at = cmd_table; *at; at++) {
        const struct cmd *c = *at;
        struct buf b;
        assert_ptr_equal(cmd_find(str_of(c->name)), c); /* no name twice */
        if (c->is_later)
            continue;
        assert_non_null(c->run);
        assert_true(c->summary && c->summary[strlen(c->summary) - 1] != '.');
        assert_true(c->words_max >= c->words_min && (c->words != NULL) == (c->words_max > 0));
        for (uint16_t i = 0; i < c->flags_count; i++) {
            const struct cmd_flag *f = &c->flags[i];
            assert_true(f->is_later || f->help);
            assert_int_equal(f->value == NULL, f->spec.type == CONFIG_TYPE_BOOL);
            assert_false(flag_is_setting(c, f->name));
            for (uint16_t k = 0; k < i; k++)
                assert_string_not_equal(f->name, c->flags[k].name);
        }
        buf_init(&b, 100000);
        cmd_add_help(&b, c);
        for (str rest = buf_view(&b), line; str_split(&rest, '\n', &line);)
            assert_in_range(line.len, 0, 100);
        buf_deinit(&b);
    }
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(test_flags_take_one_or_two_dashes_and_both_forms_of_a_value),
        CASE(test_booleans_need_no_value),
        CASE(test_repeatable_flags_collect),
        CASE(test_flags_end_at_the_first_word_or_at_two_dashes),
        CASE(test_a_command_may_allow_flags_between_its_words),
        CASE(test_settings_among_the_flags_are_collected_and_checked),
        CASE(test_wrong_lines_are_refused_by_name),
        CASE(test_help_is_made_from_the_tables),
        CASE(test_every_command_of_the_table_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
