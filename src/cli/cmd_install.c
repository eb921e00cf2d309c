#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/chrono.h"
#include "base/file.h"
#include "cli/daemon.h"

#define INSTALL_WAIT_MS 20000
#define INSTALL_POLL_MS 120
#define INSTALL_UNIT_MAX ((size_t)256 * 1024)

struct install {
    struct cmd_context *c;
    bool is_system;
    str name, dir, path, user; /* NUL-ended; path: of the unit */
    struct buf line;           /* the command, as a unit writes it */
    struct buf shell;          /* and as a shell reads it */
};

/* --- other programs --- */

/* Runs argv quietly; false: it is not there, or says no. */
static bool install_call(const char *const *argv)
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int none = open("/dev/null", O_RDWR | O_CLOEXEC);
        dup2(none, STDIN_FILENO);
        dup2(none, STDOUT_FILENO);
        dup2(none, STDERR_FILENO);
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool install_systemctl(const struct install *i, const char *verb, const char *unit)
{
    const char *argv[5] = {"systemctl"};
    size_t n = 1;
    if (!i->is_system)
        argv[n++] = "--user";
    argv[n++] = verb;
    if (unit)
        argv[n++] = unit;
    return install_call(argv);
}

/* --- the unit --- */

/* One argument of ExecStart: systemd.service(5), "Command lines". */
static void install_add_unit_word(struct buf *out, str word)
{
    buf_add_z(out, out->len ? " \"" : "\"");
    for (size_t i = 0; i < word.len; i++) {
        char c = word.p[i];
        if (c == '"' || c == '\\')
            buf_add_byte(out, '\\');
        if (c == '%' || c == '$')
            buf_add_byte(out, c);
        if (c == '\n')
            buf_add_z(out, "\\n");
        else
            buf_add_byte(out, c);
    }
    buf_add_byte(out, '"');
}

static void install_add_shell_word(struct buf *out, str word)
{
    bool is_plain = word.len > 0;
    for (size_t i = 0; i < word.len; i++)
        is_plain = is_plain && !strchr(" \t\n'\"\\$`&|;<>()*?[]#~!{}", word.p[i]);
    if (out->len)
        buf_add_byte(out, ' ');
    if (is_plain) {
        buf_add(out, word);
        return;
    }
    buf_add_byte(out, '\'');
    for (size_t i = 0; i < word.len; i++)
        if (word.p[i] == '\'')
            buf_add_z(out, "'\\''");
        else
            buf_add_byte(out, word.p[i]);
    buf_add_byte(out, '\'');
}

static void install_add_word(struct install *i, str word)
{
    install_add_unit_word(&i->line, word);
    install_add_shell_word(&i->shell, word);
}

static void install_add_flag(struct install *i, const char *name, str value)
{
    str flag = arena_printf(i->c->arena, "-%s=%.*s", name, STR_ARG(value));
    if (flag.p)
        install_add_word(i, flag);
}

/* The flags as they were given: serve's parser has taken them already. */
static bool install_command(struct install *i, struct err *e)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return err_set_errno(e, errno, "install: /proc/self/exe");
    const struct config_value *keys = cmd_value(i->c, "key-file");
    buf_init(&i->line, INSTALL_UNIT_MAX);
    buf_init(&i->shell, INSTALL_UNIT_MAX);
    install_add_word(i, str_view(self, (size_t)n));
    install_add_word(i, STR("serve"));
    if (i->c->config_path)
        install_add_flag(i, "config", str_of(i->c->config_path));
    for (uint32_t k = 0; k < i->c->settings_count; k++)
        install_add_flag(i, i->c->settings[k].row->flag, i->c->settings[k].text);
    for (uint32_t k = 0; k < keys->items_count; k++)
        install_add_flag(i, "key-file", keys->items[k]);
    return !i->line.full || err_set(e, ERR_LIMIT, "install: the command line is too long");
}

/* Hardening that a user's own manager can do too; code is made writable by the regular expression
 * library (its JIT), so memory stays as it is. */
static void install_add_unit(struct buf *out, const struct install *i)
{
    buf_printf(out, "[Unit]\nDescription=shoal: local language models\n%s\n[Service]\n",
               i->is_system ? "After=network-online.target\nWants=network-online.target\n" : "");
    buf_add_z(out, "ExecStart=");
    buf_add(out, buf_view(&i->line));
    buf_add_z(out, "\nExecReload=/bin/kill -HUP $MAINPID\nRestart=always\nRestartSec=1\n"
                   "TimeoutStopSec=30\nKillMode=mixed\nLimitNOFILE=65536\n"
                   "NoNewPrivileges=yes\nLockPersonality=yes\nRestrictSUIDSGID=yes\n"
                   "SystemCallArchitectures=native\n");
    if (i->is_system)
        buf_printf(out, "User=%s\nPrivateTmp=yes\nProtectSystem=full\nProtectControlGroups=yes\n"
                        "ProtectKernelTunables=yes\nProtectKernelModules=yes\n",
                   i->user.p);
    buf_printf(out, "\n[Install]\nWantedBy=%s\n",
               i->is_system ? "multi-user.target" : "default.target");
}

/* --- where --- */

static bool install_is_name(str name)
{
    for (size_t k = 0; k < name.len; k++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", name.p[k]))
            return false;
    return name.len > 0 && name.len <= 100 && name.p[0] != '.' && name.p[0] != '-';
}

static bool install_place(struct install *i, struct err *e)
{
    struct arena *a = i->c->arena;
    str base = config_env("XDG_CONFIG_HOME"), home = config_home(a);
    str sudo = config_env("SUDO_USER"), user = config_env("USER");
    i->is_system = cmd_bool(i->c, "system");
    i->name = cmd_text(i->c, "name");
    if (!install_is_name(i->name))
        return err_set(e, ERR_USAGE, "%s: -name: letters, digits and -_. expected",
                       i->c->cmd->name);
    if (!home.len && !i->is_system)
        return err_set(e, ERR_NOT_FOUND, "%s: no home directory", i->c->cmd->name);
    if (!base.len)
        base = arena_printf(a, "%.*s/.config", STR_ARG(home));
    i->user = sudo.len ? sudo : user.len ? user : STR("root");
    i->dir = i->is_system ? STR("/etc/systemd/system")
                          : arena_printf(a, "%.*s/systemd/user", STR_ARG(base));
    i->path = arena_printf(a, "%.*s/%.*s.service", STR_ARG(i->dir), STR_ARG(i->name));
    return i->path.p || err_set(e, ERR_MEMORY, "no memory");
}

/* Where the server will answer: the first address it is given. */
static struct daemon install_daemon(const struct install *i)
{
    const struct config_value *listen = config_value(i->c->config, "listen");
    str first = listen->items_count ? listen->items[0] : STR("127.0.0.1:11500");
    if (str_starts(first, STR("0.0.0.0:")))
        first = arena_printf(i->c->arena, "127.0.0.1:%.*s", STR_ARG(str_from(first, 8)));
    else if (str_starts(first, STR("[::]:")))
        first = arena_printf(i->c->arena, "[::1]:%.*s", STR_ARG(str_from(first, 5)));
    return (struct daemon){.address = arena_copy(i->c->arena, first), .key = STR("")};
}

/* --- install --- */

static bool install_no_systemd(const struct install *i, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "no systemd%s answers here; run this instead: %s",
                   i->is_system ? "" : " of the user", i->shell.p);
}

static bool install_start(struct install *i, bool was_there, struct err *e)
{
    struct daemon d = install_daemon(i);
    if (was_there)
        (void)install_systemctl(i, "stop", i->name.p);
    if (!install_systemctl(i, "daemon-reload", NULL)) {
        if (!was_there)
            unlink(i->path.p);
        return install_no_systemd(i, e);
    }
    if (!install_systemctl(i, "enable", i->name.p) || !install_systemctl(i, "restart", i->name.p))
        return err_set(e, ERR_IO, "systemctl cannot start %s; `systemctl%s status %s` says why",
                       i->name.p, i->is_system ? "" : " --user", i->name.p);
    for (int64_t end = chrono_ms(&chrono_real) + INSTALL_WAIT_MS; !daemon_is_there(&d);) {
        if (chrono_ms(&chrono_real) > end)
            return err_set(e, ERR_DEADLINE, "the service does not answer at %.*s; `journalctl%s -u "
                           "%s` says why", STR_ARG(d.address), i->is_system ? "" : " --user",
                           i->name.p);
        (void)poll(NULL, 0, INSTALL_POLL_MS);
    }
    return true;
}

static bool cmd_install_run(struct cmd_context *c, struct err *e)
{
    struct install i = {.c = c};
    struct buf unit;
    struct file_info info;
    struct err ignored;
    buf_init(&unit, 2 * INSTALL_UNIT_MAX);
    bool ok = install_place(&i, e) && install_command(&i, e);
    bool was_there = ok && file_stat(&info, i.path.p, &ignored);
    if (ok) {
        install_add_unit(&unit, &i);
        ok = file_make_dirs(i.dir.p, 0755, e) && file_write(i.path.p, buf_view(&unit), 0644, e) &&
             install_start(&i, was_there, e);
    }
    if (ok && !i.is_system) {
        const char *const linger[] = {"loginctl", "enable-linger", i.user.p, NULL};
        if (!install_call(linger))
            fprintf(stderr, "shoal: the service ends when you log out; as root: loginctl "
                    "enable-linger %s\n", i.user.p);
    }
    if (ok)
        printf("unit     %s\ncommand  %s\nlogs     journalctl%s -u %s -f\n", i.path.p, i.shell.p,
               i.is_system ? "" : " --user", i.name.p);
    buf_deinit(&unit);
    buf_deinit(&i.line);
    buf_deinit(&i.shell);
    return ok;
}

static bool cmd_uninstall_run(struct cmd_context *c, struct err *e)
{
    struct install i = {.c = c};
    struct file_info info;
    if (!install_place(&i, e))
        return false;
    if (!file_stat(&info, i.path.p, e))
        return err_set(e, ERR_NOT_FOUND, "there is no %s", i.path.p);
    bool ok = install_systemctl(&i, "disable", i.name.p);
    ok = install_systemctl(&i, "stop", i.name.p) && ok;
    if (unlink(i.path.p) != 0)
        return err_set_errno(e, errno, "%s", i.path.p);
    ok = install_systemctl(&i, "daemon-reload", NULL) && ok;
    if (!ok)
        fprintf(stderr, "shoal: systemctl did not confirm that %s has stopped\n", i.name.p);
    printf("removed %s\n", i.path.p);
    return true;
}

#define INSTALL_FLAGS                                                                              \
    {.name = "system",                                                                             \
     .spec = {.type = CONFIG_TYPE_BOOL},                                                           \
     .standard = "false",                                                                          \
     .help = "of the machine instead of the user"},                                                \
    {.name = "name",                                                                               \
     .value = "NAME",                                                                              \
     .spec = {.type = CONFIG_TYPE_TEXT},                                                           \
     .standard = "shoal",                                                                          \
     .help = "of the unit"}

static const struct cmd_flag cmd_install_flags[] = {
    INSTALL_FLAGS,
    {.name = "key-file",
     .value = "PATH",
     .spec = {.type = CONFIG_TYPE_PATH},
     .is_repeatable = true,
     .help = "a key for the scopes infer and read; repeatable"},
};
static const struct cmd_flag cmd_install_remove_flags[] = {INSTALL_FLAGS};

const struct cmd cmd_install = {
    .name = "install",
    .summary = "Run the server as a systemd service that always restarts",
    .text = "Takes serve's flags and checks them as serve does; writes a unit, starts it and\n"
            "waits until it answers.",
    .flags = cmd_install_flags,
    .flags_count = countof(cmd_install_flags),
    .settings_of = "serve",
    .run = cmd_install_run,
};

const struct cmd cmd_install_remove = {
    .name = "uninstall",
    .summary = "Stop that service and remove it",
    .flags = cmd_install_remove_flags,
    .flags_count = countof(cmd_install_remove_flags),
    .run = cmd_uninstall_run,
};
