#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cmd.h"

#define MAIN_ARENA_MAX ((size_t)64 << 20)
#define MAIN_TEXT_MAX ((size_t)1 << 20)

/* Commands that must tidy up first install their own handler. */
static void main_on_signal(int number)
{
    _exit(number == SIGINT ? CMD_EXIT_SIGINT : CMD_EXIT_SIGTERM);
}

/* A closed descriptor 0..2 would be taken by the first file we open, and then written to. */
static void main_open_standard_fds(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) != fd)
            _exit(CMD_EXIT_ERROR);
}

static int main_print_help(const struct cmd *cmd, int exit_code)
{
    struct buf b;
    buf_init(&b, MAIN_TEXT_MAX);
    cmd_add_help(&b, cmd);
    fwrite(b.p, 1, b.len, stdout);
    buf_deinit(&b);
    return exit_code;
}

static int main_print_error(const struct err *e)
{
    struct buf b;
    buf_init(&b, MAIN_TEXT_MAX);
    buf_add_z(&b, "shoal: ");
    buf_add_printable(&b, str_of(e->text));
    fprintf(stderr, "%s\n", b.p ? b.p : "shoal: no memory");
    buf_deinit(&b);
    return e->code == ERR_USAGE       ? CMD_EXIT_USAGE
           : e->code == ERR_CANCELLED ? CMD_EXIT_SIGINT
                                      : CMD_EXIT_ERROR;
}

static int main_run(struct cmd_context *c, int argc, char **argv)
{
    struct err e = {0};
    struct config *config;
    struct buf problems;
    if (c->cmd->is_later) {
        err_set(&e, ERR_USAGE, "%s is not built yet", c->cmd->name);
        return main_print_error(&e);
    }
    if (!cmd_parse(c, argc, argv, &e))
        return main_print_error(&e);
    if (c->wants_help)
        return main_print_help(c->cmd, CMD_EXIT_DONE);
    buf_init(&problems, MAIN_TEXT_MAX);
    struct config_input in = {c->config_path, c->settings, c->settings_count};
    bool ok = config_load(&config, &in, c->arena, &problems, &e);
    int exit_code = CMD_EXIT_ERROR;
    if (!ok && c->cmd->judges_config) {
        c->config_problems = arena_copy(c->arena, problems.len ? buf_view(&problems)
                                                               : str_of(e.text));
        buf_clear(&problems);
        ok = config_load_text(&config, "defaults", STR(""), c->arena, &problems, &e);
    }
    if (ok) {
        c->config = config;
        ok = c->cmd->run(c, &e);
        exit_code = ok ? c->exit_code : CMD_EXIT_ERROR;
    }
    if (!ok && problems.len) /* of the file or of its sections */
        fputs(problems.p, stderr);
    else if (!ok)
        exit_code = main_print_error(&e);
    buf_deinit(&problems);
    return exit_code;
}

static int main_unknown(const char *name)
{
    struct err e = {0};
    err_set(&e, ERR_USAGE, "unknown command \"%.60s\"", name);
    int exit_code = main_print_error(&e);
    struct buf b;
    buf_init(&b, MAIN_TEXT_MAX);
    cmd_add_help(&b, NULL);
    fputs(b.p, stderr);
    buf_deinit(&b);
    return exit_code;
}

static int main_too_many(const char *word)
{
    struct err e = {0};
    err_set(&e, ERR_USAGE, "help: one command expected, got also \"%.60s\"", word);
    return main_print_error(&e);
}

static int main_command(struct arena *arena, int argc, char **argv)
{
    if (argc < 2)
        return main_print_help(NULL, CMD_EXIT_USAGE);
    const char *name = argv[1];
    bool wants_help = !strcmp(name, "help") || !strcmp(name, "-h") || !strcmp(name, "-help") ||
                      !strcmp(name, "--help");
    if (wants_help && argc == 2)
        return main_print_help(NULL, CMD_EXIT_DONE);
    if (wants_help)
        name = argv[2];
    const struct cmd *cmd = cmd_find(str_of(name));
    if (!cmd)
        return main_unknown(name);
    if (wants_help && argc > 3)
        return main_too_many(argv[3]);
    if (wants_help && !cmd->is_later)
        return main_print_help(cmd, CMD_EXIT_DONE);
    struct cmd_context c = {.cmd = cmd, .arena = arena};
    return main_run(&c, argc - 2, argv + 2);
}

int main(int argc, char **argv)
{
    struct sigaction on_signal = {.sa_handler = main_on_signal};
    main_open_standard_fds();
    sigaction(SIGINT, &on_signal, NULL);
    sigaction(SIGTERM, &on_signal, NULL);
    struct arena arena;
    arena_init(&arena, MAIN_ARENA_MAX);
    int exit_code = main_command(&arena, argc, argv);
    arena_deinit(&arena);
    bool is_lost = fflush(stdout) != 0 || ferror(stdout);
    if (is_lost && exit_code == CMD_EXIT_DONE) { /* else a sentence has been told */
        fprintf(stderr, "shoal: writing to stdout: %s\n", strerror(errno));
        exit_code = CMD_EXIT_ERROR;
    }
    return exit_code;
}
