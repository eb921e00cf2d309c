#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"

static int out_fd = -1;
static char text[LOG_LINE_MAX * LOG_RING_LINES + 1];

static void start(enum log_form form, enum log_level level)
{
    char path[] = "/tmp/shoal_log_test_XXXXXX";
    if (out_fd >= 0)
        close(out_fd);
    out_fd = mkstemp(path);
    assert_true(out_fd >= 0);
    unlink(path);
    struct log_options o = {level, form, out_fd, "test"};
    log_init(&o);
}

static const char *written(void)
{
    ssize_t n = pread(out_fd, text, sizeof text - 1, 0);
    assert_true(n >= 0);
    text[n] = 0;
    return text;
}

/* Behind the time stamp, which has a fixed width. */
static const char *after_time(const char *line)
{
    return line + strlen("2026-01-01T00:00:00.000Z ");
}

static void test_text_lines_carry_time_level_and_name(void **state)
{
    (void)state;
    start(LOG_FORM_TEXT, LOG_LEVEL_INFO);
    log_info("loaded %s in %d ms", "m", 12);
    log_debug("not shown");
    assert_string_equal(after_time(written()), "info test: loaded m in 12 ms\n");
    start(LOG_FORM_TEXT, LOG_LEVEL_DEBUG);
    log_debug("shown");
    assert_string_equal(after_time(written()), "debug test: shown\n");
}

static void test_what_could_steer_a_terminal_is_escaped(void **state)
{
    (void)state;
    start(LOG_FORM_TEXT, LOG_LEVEL_INFO);
    log_info("a\x1b[2Jb\nc\td\x7f \xc2\x9b \xff \xe2\x82\xac \"q\"");
    assert_string_equal(after_time(written()),
                        "info test: a\\u001b[2Jb\\nc\\td\\u007f \\u009b \xef\xbf\xbd \xe2\x82\xac "
                        "\"q\"\n");
}

static void test_fields_are_members_in_json_and_pairs_in_text(void **state)
{
    (void)state;
    const struct log_field f[] = {
        {"id", STR("a \"b\"\\\n"), 0}, {"tokens", {NULL, 0}, -5}, {"empty", STR(""), 0}};
    start(LOG_FORM_JSON, LOG_LEVEL_INFO);
    log_fields(LOG_LEVEL_INFO, "request", f, countof(f));
    assert_non_null(strstr(written(),
                           "\"level\":\"info\",\"from\":\"test\",\"event\":\"request\","
                           "\"id\":\"a \\\"b\\\"\\\\\\n\",\"tokens\":-5,\"empty\":\"\"}\n"));
    start(LOG_FORM_TEXT, LOG_LEVEL_INFO);
    log_fields(LOG_LEVEL_INFO, "request", f, countof(f));
    assert_string_equal(after_time(written()),
                        "info test: request id=\"a \\\"b\\\"\\\\\\n\" tokens=-5 empty=\"\"\n");
}

/* For every length around the limit the line must stay whole: quotes and brace closed. */
static void test_long_lines_are_cut_inside_their_frame(void **state)
{
    (void)state;
    static char value[2 * LOG_LINE_MAX];
    start(LOG_FORM_JSON, LOG_LEVEL_INFO);
    memset(value, 'x', sizeof value);
    for (size_t len = LOG_LINE_MAX - 200; len < LOG_LINE_MAX + 100; len++) {
        const struct log_field f[] = {{"a", str_view(value, len), 0}, {"b", STR("yy"), 0},
                                      {"c", {NULL, 0}, 1}};
        assert_int_equal(ftruncate(out_fd, 0), 0);
        assert_int_equal(lseek(out_fd, 0, SEEK_SET), 0);
        log_fields(LOG_LEVEL_INFO, "event", f, countof(f));
        const char *line = written();
        size_t n = strlen(line), quotes = 0;
        assert_in_range(n, 3, LOG_LINE_MAX);
        for (size_t i = 0; i < n; i++)
            quotes += line[i] == '"';
        assert_int_equal(quotes % 2, 0);
        assert_string_equal(line + n - 2, "}\n");
        assert_true(strchr("\"1", line[n - 3]) != NULL);
    }
    log_info("%.*s", 2000, value);
    assert_true(str_ends(str_of(written()), STR("...\"}\n")));
}

static void test_the_ring_keeps_the_last_lines_of_every_level(void **state)
{
    (void)state;
    start(LOG_FORM_TEXT, LOG_LEVEL_ERROR);
    for (int i = 0; i < 2 * LOG_RING_LINES; i++)
        log_debug("line %d", i);
    assert_string_equal(written(), "");
    log_dump(out_fd);
    str tail = str_of(written());
    assert_non_null(strstr(tail.p, "line 256\n"));
    assert_null(strstr(tail.p, "line 255\n"));
    assert_true(str_ends(tail, STR("line 511\n")));
}

static void test_a_failed_must_prints_the_ring(void **state)
{
    (void)state;
    int pipes[2], status;
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        start(LOG_FORM_TEXT, LOG_LEVEL_ERROR);
        log_debug("the line before");
        dup2(pipes[1], STDERR_FILENO);
        int zero = 0;
        must(zero == 1);
    }
    close(pipes[1]);
    size_t used = 0;
    ssize_t n;
    while ((n = read(pipes[0], text + used, sizeof text - 1 - used)) > 0)
        used += (size_t)n;
    text[used] = 0;
    close(pipes[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "must(zero == 1) failed"));
    assert_non_null(strstr(text, "the line before\n"));
}

static void *write_many(void *ctx)
{
    for (int i = 0; i < 500; i++)
        log_info("%s%s%s", (const char *)ctx, (const char *)ctx, (const char *)ctx);
    return NULL;
}

static void test_lines_of_several_threads_do_not_mix(void **state)
{
    (void)state;
    struct err e = {0};
    pthread_t t[2];
    static char a[] = "aaaaaaaaaaaaaaaaaaaaaaaa", b[] = "bbbbbbbbbbbbbbbbbbbbbbbb";
    start(LOG_FORM_TEXT, LOG_LEVEL_INFO);
    assert_true(thread_start(&t[0], "a", write_many, a, &e));
    assert_true(thread_start(&t[1], "b", write_many, b, &e));
    thread_join(t[0]);
    thread_join(t[1]);
    str rest = str_of(written()), line;
    int lines = 0;
    for (; str_split(&rest, '\n', &line); lines++) {
        line = str_from(line, line.len - 72);
        for (size_t i = 1; i < line.len; i++)
            assert_int_equal(line.p[i], line.p[0]);
    }
    assert_int_equal(lines, 1000);
}

static void test_level_names_are_parsed_back(void **state)
{
    (void)state;
    enum log_level level;
    assert_true(log_level_parse(STR("trace"), &level) && level == LOG_LEVEL_TRACE);
    assert_false(log_level_parse(STR("INFO"), &level));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_lines_carry_time_level_and_name),
        cmocka_unit_test(test_what_could_steer_a_terminal_is_escaped),
        cmocka_unit_test(test_fields_are_members_in_json_and_pairs_in_text),
        cmocka_unit_test(test_long_lines_are_cut_inside_their_frame),
        cmocka_unit_test(test_the_ring_keeps_the_last_lines_of_every_level),
        cmocka_unit_test(test_a_failed_must_prints_the_ring),
        cmocka_unit_test(test_lines_of_several_threads_do_not_mix),
        cmocka_unit_test(test_level_names_are_parsed_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
