#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/chrono.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/daemon.h"
#include "wire/http_server.h"

#define CMD_DAEMON_ASK_MS 5000
#define CMD_DAEMON_STOP_MS 10000
#define CMD_DAEMON_LOOK_MS 100

/* --- ps ------------------------------------------------------------------------------------ */

static int64_t cmd_daemon_number(struct json row, const char *key)
{
    int64_t v = 0;
    return json_i64(json_member(row, key), &v) ? v : 0;
}

static void cmd_daemon_until(struct buf *out, struct json row, struct arena *a)
{
    str state = json_text(json_member(row, "state"), a);
    int64_t expires = cmd_daemon_number(row, "expires_at");
    int64_t left = expires - chrono_unix_ms(&chrono_real) / 1000;
    double progress = 0;
    json_double(json_member(row, "progress"), &progress);
    if (str_eq_z(state, "loading"))
        buf_printf(out, "loading %.0f %%", progress * 100);
    else if (!str_eq_z(state, "loaded"))
        buf_add(out, state);
    else if (expires <= 0)
        buf_add_z(out, "no expiry");
    else if (left <= 0)
        buf_add_z(out, "expiring");
    else if (left >= 120)
        buf_printf(out, "%lld minutes", (long long)(left / 60));
    else
        buf_printf(out, "%lld seconds", (long long)left);
}

static void cmd_daemon_row(struct buf *out, struct json row, struct arena *a)
{
    struct buf size, until;
    buf_init(&size, 64);
    buf_init(&until, 256);
    uint64_t device = (uint64_t)cmd_daemon_number(row, "size_vram");
    buf_add_size(&size, device ? device : (uint64_t)cmd_daemon_number(row, "size"));
    bool is_there = cmd_daemon_number(row, "context") > 0; /* else nobody knows yet where it goes */
    cmd_daemon_until(&until, row, a);
    str name = json_text(json_member(row, "name"), a);
    buf_add_printable(out, name);
    buf_printf(out, "%*s  %-9s  %-6s  %7lld  %7lld  %6lld  %s\n",
               name.len < 32 ? (int)(32 - name.len) : 0, "", size.p,
               device ? "gpu" : is_there ? "cpu" : "-",
               (long long)cmd_daemon_number(row, "context"),
               (long long)cmd_daemon_number(row, "running"),
               (long long)cmd_daemon_number(row, "queued"), until.p);
    buf_deinit(&size);
    buf_deinit(&until);
}

static void cmd_daemon_table(struct json models, struct arena *a)
{
    struct buf out;
    if (json_count(models) == 0) {
        puts("no model loaded");
        return;
    }
    buf_init(&out, 1 << 20);
    buf_printf(&out, "%-32s  %-9s  %-6s  %7s  %7s  %6s  %s\n", "NAME", "SIZE", "DEVICE",
               "CONTEXT", "RUNNING", "QUEUED", "UNTIL");
    struct json_walk w = json_walk(models);
    while (json_next(&w))
        cmd_daemon_row(&out, w.value, a);
    fwrite(out.p, 1, out.len, stdout);
    buf_deinit(&out);
}

static bool cmd_daemon_show(const struct cmd_context *c, const struct daemon_answer *a,
                            struct err *e)
{
    const struct json_options o = {.depth_max = 32};
    struct json body;
    if (a->status != 200)
        return daemon_refused(a, e);
    if (!json_parse(&body, buf_view(&a->body), &o, c->arena, e))
        return err_wrap(e, "ps: the server's answer");
    struct json models = json_member(body, "models");
    if (cmd_bool(c, "json"))
        printf("{\"models\":%.*s}\n", STR_ARG(json_raw(models)));
    else
        cmd_daemon_table(models, c->arena);
    return true;
}

static bool cmd_daemon_run(struct cmd_context *c, struct err *e)
{
    struct daemon_question q = {.method = "GET", .path = "/v1/status",
                                .timeout_ms = CMD_DAEMON_ASK_MS};
    struct daemon_answer a;
    struct daemon d;
    if (!daemon_find(c, &d, e))
        return false;
    if (!daemon_ask_server(&d, &q, &a, e))
        return false;
    bool ok = cmd_daemon_show(c, &a, e);
    buf_deinit(&a.body);
    return ok;
}

const struct cmd cmd_daemon_ps = {
    .name = "ps",
    .summary = "Models that a running server holds",
    .has_json = true,
    .takes_server = true,
    .run = cmd_daemon_run,
};

/* --- stop ---------------------------------------------------------------------------------- */

/* A pid may have become another program's since it was noted. */
static bool cmd_daemon_is_shoal(pid_t pid)
{
    char path[32], line[4096] = ""; /* up to its first NUL: argv[0]. comm may be "exe" */
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    FILE *f = fopen(path, "re"); /* file_read goes by the size, which is 0 there */
    bool is_read = f && fgets(line, sizeof line, f);
    if (f)
        fclose(f);
    return is_read && str_eq_z(file_base_name(str_of(line)), "shoal");
}

/* The pid that `run` noted when it started this server; 0: none, or it is gone. */
static pid_t cmd_daemon_pid(const struct cmd_context *c, const struct daemon *d)
{
    str path = daemon_pid_path(d, c->arena), text;
    struct err ignored;
    uint64_t pid;
    if (!path.len || !file_read(&text, path.p, 64, c->arena, &ignored) ||
        !str_to_u64(str_trim(text), &pid) || pid < 2 || pid > INT32_MAX ||
        !cmd_daemon_is_shoal((pid_t)pid))
        return 0;
    return (pid_t)pid;
}

/* A descriptor of the process that listens at the address, readable once it has ended; -1: it is
 * on another machine, or another user's. Taken before the question: a server that finishes its
 * replies listens no more. */
static int cmd_daemon_process(const struct daemon *d)
{
    size_t colon = d->address.len;
    uint64_t port;
    while (colon && d->address.p[colon - 1] != ':')
        colon--;
    if (!http_server_is_loopback(d->address) || !str_to_u64(str_from(d->address, colon), &port) ||
        port > UINT16_MAX)
        return -1;
    pid_t pid = daemon_port_owner((uint16_t)port);
    return pid && cmd_daemon_is_shoal(pid) ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

static bool cmd_daemon_is_gone(const struct daemon *d, int process, int64_t wait_ms)
{
    int64_t until_ms = chrono_ms(&chrono_real) + wait_ms;
    struct pollfd end = {.fd = process, .events = POLLIN};
    if (process >= 0)
        return poll(&end, 1, (int)wait_ms) > 0;
    while (chrono_ms(&chrono_real) < until_ms) {
        if (!daemon_is_there(d))
            return true;
        poll(NULL, 0, CMD_DAEMON_LOOK_MS);
    }
    return false;
}

/* Asked nicely, then by signal. False: it refuses (no key with the scope admin), and no pid is
 * known. */
static bool cmd_daemon_ask_stop(const struct daemon *d, pid_t pid, struct err *e)
{
    struct daemon_question q = {.method = "POST", .path = "/v1/admin/stop",
                                .timeout_ms = CMD_DAEMON_ASK_MS};
    struct daemon_answer a;
    bool ok = daemon_ask(d, &q, &a, e);
    if (ok) {
        ok = a.status == 202 || daemon_refused(&a, e);
        buf_deinit(&a.body);
    }
    return ok || (pid && kill(pid, SIGTERM) == 0);
}

static bool cmd_daemon_run_stop(struct cmd_context *c, struct err *e)
{
    struct daemon d;
    if (!daemon_find(c, &d, e))
        return false;
    pid_t pid = cmd_daemon_pid(c, &d);
    if (!daemon_is_there(&d)) {
        printf("no shoal server at %.*s\n", STR_ARG(d.address));
        return true;
    }
    int process = cmd_daemon_process(&d);
    bool ok = cmd_daemon_ask_stop(&d, pid, e);
    if (ok && !cmd_daemon_is_gone(&d, process, CMD_DAEMON_STOP_MS)) {
        ok = cmd_bool(c, "force") && pid && kill(pid, SIGKILL) == 0;
        if (!ok)
            err_set(e, ERR_DEADLINE, "the server at %.*s still runs after %d s",
                    STR_ARG(d.address), CMD_DAEMON_STOP_MS / 1000);
    }
    if (process >= 0)
        close(process);
    if (!ok)
        return false;
    str path = daemon_pid_path(&d, c->arena);
    if (path.len)
        unlink(path.p);
    puts("stopped");
    return true;
}

static const struct cmd_flag cmd_daemon_stop_flags[] = {
    {.name = "force", .spec = {.type = CONFIG_TYPE_BOOL}, .standard = "false",
     .help = "kill it if it does not end"},
};

const struct cmd cmd_daemon_stop = {
    .name = "stop",
    .summary = "End a running server",
    .flags = cmd_daemon_stop_flags,
    .flags_count = countof(cmd_daemon_stop_flags),
    .takes_server = true,
    .run = cmd_daemon_run_stop,
};
