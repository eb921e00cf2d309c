#include "cli/daemon.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/chrono.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/config_keys.h"
#include "wire/tls.h"

#define DAEMON_START_MS 20000
#define DAEMON_POLL_MS 120
#define DAEMON_LOG_MAX ((uint64_t)16 << 20) /* a longer one is moved aside first */
#define DAEMON_ARGS_MAX 32
#define DAEMON_STANDARD "127.0.0.1:11500"

/* Takes the scheme off the address. */
static void daemon_find_tls(const struct cmd_context *c, struct daemon *d)
{
    const struct config_value *cert = config_value(c->config, "tls.cert");
    bool is_plain = str_starts(d->address, STR("http://"));
    bool is_https = str_starts(d->address, STR("https://"));
    size_t scheme = is_plain ? strlen("http://") : is_https ? strlen("https://") : 0;
    str rest = str_from(d->address, scheme);
    while (scheme && str_ends(rest, STR("/")))
        rest.len--;
    if (scheme)
        d->address = arena_copy(c->arena, rest);
    d->trusted = cert->is_set ? cert->text.p : NULL;
    d->is_tls = is_https || (d->trusted && !is_plain);
}

bool daemon_find(const struct cmd_context *c, struct daemon *d, struct err *e)
{
    str flag = cmd_text(c, "addr"), env = config_env("SHOAL_ADDR");
    str file = cmd_text(c, "key-file");
    d->address = arena_copy(c->arena, flag.len ? flag : env.len ? env : STR(DAEMON_STANDARD));
    d->key = config_env("SHOAL_KEY");
    if (d->address.p)
        daemon_find_tls(c, d);
    if (!d->address.p)
        return err_set(e, ERR_MEMORY, "no memory");
    return !file.len || config_keys_read(&d->key, file.p, c->arena, e);
}

/* --- connecting ---------------------------------------------------------------------------- */

static int64_t daemon_left(int64_t until_ms)
{
    int64_t left = until_ms - chrono_ms(&chrono_real);
    return left > 0 ? left : 0;
}

static bool daemon_wait(int fd, short what, int64_t until_ms, struct err *e)
{
    struct pollfd p = {.fd = fd, .events = what};
    int n;
    do
        n = poll(&p, 1, (int)daemon_left(until_ms));
    while (n < 0 && errno == EINTR && daemon_left(until_ms));
    if (n > 0)
        return true;
    return n == 0 ? err_set(e, ERR_DEADLINE, "the server does not answer in time")
                  : err_set_errno(e, errno, "waiting for the server");
}

static bool daemon_open(const struct sockaddr *sa, socklen_t len, int64_t until_ms, int *out,
                        struct err *e)
{
    int error = 0;
    socklen_t size = sizeof error;
    int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set_errno(e, errno, "a socket");
    bool ok = connect(fd, sa, len) == 0 ||
              (errno == EINPROGRESS && daemon_wait(fd, POLLOUT, until_ms, e));
    if (ok && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) {
        *out = fd;
        return true;
    }
    close(fd);
    return err_set(e, ERR_CONNECT, "%s", error ? strerror(error) : "nobody listens");
}

static bool daemon_open_unix(const char *path, int64_t until_ms, int *out, struct err *e)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof un.sun_path)
        return err_set(e, ERR_USAGE, "addr: the path of the socket is too long");
    memcpy(un.sun_path, path, strlen(path));
    return daemon_open((const struct sockaddr *)&un, sizeof un, until_ms, out, e);
}

static bool daemon_connect(const struct daemon *d, int64_t until_ms, int *out, struct err *e)
{
    struct addrinfo hint = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    char host[256], port[8];
    size_t colon = d->address.len;
    if (str_starts(d->address, STR("unix:")))
        return daemon_open_unix(d->address.p + strlen("unix:"), until_ms, out, e);
    while (colon && d->address.p[colon - 1] != ':')
        colon--;
    str name = str_sub(d->address, 0, colon ? colon - 1 : 0);
    if (str_starts(name, STR("[")) && str_ends(name, STR("]")))
        name = str_sub(name, 1, name.len - 2);
    if (!colon || name.len >= sizeof host || d->address.len - colon >= sizeof port)
        return err_set(e, ERR_USAGE, "addr %.*s: HOST:PORT, [IPV6]:PORT or unix:/path expected",
                       STR_ARG(d->address));
    snprintf(host, sizeof host, "%.*s", STR_ARG(name));
    snprintf(port, sizeof port, "%.*s", STR_ARG(str_from(d->address, colon)));
    if (getaddrinfo(host[0] ? host : "127.0.0.1", port, &hint, &found) != 0)
        return err_set(e, ERR_CONNECT, "addr %.*s: no such host", STR_ARG(d->address));
    bool ok = false;
    for (const struct addrinfo *i = found; i && !ok; i = i->ai_next)
        ok = daemon_open(i->ai_addr, i->ai_addrlen, until_ms, out, e);
    freeaddrinfo(found);
    if (ok && d->is_tls) {
        const struct tls_peer peer = {.host = host[0] ? host : "127.0.0.1", .trusted = d->trusted,
                                      .timeout_ms = daemon_left(until_ms)};
        ok = tls_connect(*out, &peer, out, e);
    }
    return ok || err_wrap(e, "%.*s", STR_ARG(d->address));
}

/* --- asking -------------------------------------------------------------------------------- */

static bool daemon_write(int fd, str bytes, int64_t until_ms, struct err *e)
{
    while (bytes.len) {
        if (!daemon_wait(fd, POLLOUT, until_ms, e))
            return false;
        ssize_t n = send(fd, bytes.p, bytes.len, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return err_set(e, ERR_CONNECT, "the server closed the connection");
        bytes = str_from(bytes, n > 0 ? (size_t)n : 0);
    }
    return true;
}

bool daemon_send(const struct daemon *d, const struct daemon_question *q, int *fd, struct err *e)
{
    int64_t until_ms = chrono_ms(&chrono_real) + q->timeout_ms;
    struct buf head;
    if (!daemon_connect(d, until_ms, fd, e))
        return false;
    buf_init(&head, 65536);
    buf_printf(&head, "%s %s HTTP/1.0\r\nHost: localhost\r\nContent-Length: %zu\r\n", q->method,
               q->path, q->body.len);
    if (d->key.len)
        buf_printf(&head, "Shoal-Key: %.*s\r\n", STR_ARG(d->key));
    buf_add_z(&head, "\r\n");
    bool ok = daemon_write(*fd, buf_view(&head), until_ms, e) &&
              daemon_write(*fd, q->body, until_ms, e);
    buf_deinit(&head);
    if (!ok)
        close(*fd);
    return ok;
}

static bool daemon_read(int fd, struct buf *out, int64_t until_ms, struct err *e)
{
    char bytes[65536];
    for (;;) {
        if (!daemon_wait(fd, POLLIN, until_ms, e))
            return false;
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n == 0)
            return true;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return out->len > 0 || err_set_errno(e, errno, "reading the server's answer");
        if (n > 0 && !buf_add_bytes(out, bytes, (size_t)n))
            return err_set(e, ERR_LIMIT, "the server's answer is longer than %zu bytes",
                           DAEMON_REPLY_MAX);
    }
}

/* "HTTP/1.1 200 OK", headers, an empty line, the body. */
static bool daemon_parse(struct daemon_answer *out, struct err *e)
{
    str all = buf_view(&out->body);
    size_t end = str_find(all, STR("\r\n\r\n"));
    uint64_t status;
    if (!str_starts(all, STR("HTTP/1.")) || end == STR_NONE ||
        !str_to_u64(str_sub(all, 9, 3), &status))
        return err_set(e, ERR_UPSTREAM, "what answers there is no HTTP server");
    out->status = (int)status;
    buf_drop(&out->body, end + 4);
    return true;
}

bool daemon_ask(const struct daemon *d, const struct daemon_question *q, struct daemon_answer *out,
                struct err *e)
{
    int64_t until_ms = chrono_ms(&chrono_real) + q->timeout_ms;
    int fd;
    *out = (struct daemon_answer){.status = 0};
    buf_init(&out->body, DAEMON_REPLY_MAX);
    if (!daemon_send(d, q, &fd, e))
        return false;
    bool ok = daemon_read(fd, &out->body, until_ms, e) && daemon_parse(out, e);
    close(fd);
    if (!ok)
        buf_deinit(&out->body);
    return ok;
}

bool daemon_ask_server(const struct daemon *d, const struct daemon_question *q,
                       struct daemon_answer *out, struct err *e)
{
    if (daemon_ask(d, q, out, e))
        return true;
    return e->code == ERR_CONNECT
               ? err_set(e, ERR_CONNECT, "no shoal server at %.*s", STR_ARG(d->address))
               : false;
}

bool daemon_refused(const struct daemon_answer *a, struct err *e)
{
    struct arena arena;
    struct json body;
    struct err ignored;
    const struct json_options o = {.depth_max = 16};
    arena_init(&arena, DAEMON_REPLY_MAX * 4);
    str text = {NULL, 0};
    if (json_parse(&body, buf_view(&a->body), &o, &arena, &ignored)) {
        struct json error = json_member(body, "error");
        text = json_text(json_kind(error) == JSON_KIND_OBJECT ? json_member(error, "message")
                                                              : error, &arena);
    }
    if (text.len)
        err_set(e, ERR_UPSTREAM, "%.*s", STR_ARG(text));
    else
        err_set(e, ERR_UPSTREAM, "the server answers with status %d", a->status);
    arena_deinit(&arena);
    return false;
}

bool daemon_is_there(const struct daemon *d)
{
    struct daemon_question q = {.method = "GET", .path = "/health",
                                .timeout_ms = DAEMON_HEALTH_MS};
    struct daemon_answer a;
    struct err ignored;
    if (!daemon_ask(d, &q, &a, &ignored))
        return ignored.code == ERR_UPSTREAM;
    buf_deinit(&a.body);
    return true;
}

/* --- who has a port ------------------------------------------------------------------------ */

/* Inode of the socket that listens on the port, by /proc/net/tcp; 0: none. The line is "sl
 * local:PORT remote:PORT state ... inode" in hexadecimal, but for the inode (proc(5)). */
static unsigned long daemon_port_inode(const char *path, uint16_t port)
{
    char line[512];
    unsigned long found = 0;
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        unsigned local = 0, state = 0;
        unsigned long inode = 0;
        int n = sscanf(line,
                       " %*u: %*[0-9A-F]:%4x %*[0-9A-F]:%*x %2x %*x:%*x %*x:%*x %*x %*u %*u %lu",
                       &local, &state, &inode);
        if (n == 3 && local == port && state == 0x0a)
            found = inode;
    }
    if (f)
        fclose(f);
    return found;
}

static bool daemon_has_socket(const char *pid, unsigned long inode)
{
    char folder[300], path[600], wanted[64], target[64];
    bool found = false;
    snprintf(folder, sizeof folder, "/proc/%.20s/fd", pid);
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && !found && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%.255s", folder, e->d_name);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = 0;
        found = !strcmp(target, wanted);
    }
    if (d)
        closedir(d);
    return found;
}

int daemon_port_owner(uint16_t port)
{
    unsigned long inode = daemon_port_inode("/proc/net/tcp", port);
    uint64_t pid, found = 0;
    if (!inode)
        inode = daemon_port_inode("/proc/net/tcp6", port);
    DIR *d = inode ? opendir("/proc") : NULL;
    for (const struct dirent *e; d && !found && (e = readdir(d));)
        if (str_to_u64(str_of(e->d_name), &pid) && daemon_has_socket(e->d_name, inode))
            found = pid;
    if (d)
        closedir(d);
    return (int)found;
}

/* --- starting one -------------------------------------------------------------------------- */

str daemon_pid_path(const struct daemon *d, struct arena *a)
{
    size_t colon = d->address.len;
    str home = config_home(a);
    if (!home.len || str_starts(d->address, STR("unix:")))
        return STR("");
    while (colon && d->address.p[colon - 1] != ':')
        colon--;
    return arena_printf(a, "%.*s/.shoal/run/%.*s.pid", STR_ARG(home),
                        STR_ARG(str_from(d->address, colon)));
}

/* In the grandchild: a session of its own, output to the log, nothing else inherited. */
static void daemon_exec(int log_fd, const char *const *argv)
{
    int none = open("/dev/null", O_RDONLY | O_CLOEXEC);
    setsid();
    dup2(none, STDIN_FILENO);
    dup2(log_fd, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    execv("/proc/self/exe", (char *const *)(uintptr_t)argv);
    _exit(CMD_EXIT_ERROR);
}

static int daemon_open_log(const struct cmd_context *c, struct err *e)
{
    str home = config_home(c->arena);
    if (!home.len) {
        err_set(e, ERR_CONFIG, "no home directory for the server's log; start one with `shoal "
                "serve`");
        return -1;
    }
    str folder = arena_printf(c->arena, "%.*s/.shoal/run", STR_ARG(home));
    str path = arena_printf(c->arena, "%.*s/.shoal/serve.log", STR_ARG(home));
    struct file_info info;
    struct err ignored;
    if (!folder.p || !path.p || !file_make_dirs(folder.p, 0700, e))
        return -1;
    if (file_stat(&info, path.p, &ignored) && info.size > DAEMON_LOG_MAX) {
        str old = arena_printf(c->arena, "%s.1", path.p);
        if (old.p && rename(path.p, old.p) != 0)
            err_set_errno(&ignored, errno, "rename");
    }
    int fd = open(path.p, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        err_set_errno(e, errno, "%s", path.p);
    return fd;
}

static bool daemon_write_pid(const struct cmd_context *c, const struct daemon *d, pid_t pid,
                             struct err *e)
{
    char text[32];
    str path = daemon_pid_path(d, c->arena);
    int n = snprintf(text, sizeof text, "%d\n", (int)pid);
    return !path.len || file_write(path.p, str_view(text, (size_t)n), 0600, e);
}

bool daemon_start(const struct cmd_context *c, const struct daemon *d, const char *const *args,
                  struct err *e)
{
    const char *argv[DAEMON_ARGS_MAX] = {"shoal", "serve", "-addr", d->address.p};
    size_t n = 4;
    for (; args && *args && n + 1 < DAEMON_ARGS_MAX; args++)
        argv[n++] = *args;
    int log_fd = daemon_open_log(c, e);
    if (log_fd < 0)
        return false;
    pid_t pid = fork();
    if (pid == 0)
        daemon_exec(log_fd, argv);
    close(log_fd);
    if (pid < 0)
        return err_set_errno(e, errno, "starting a server");
    if (!daemon_write_pid(c, d, pid, e))
        return false;
    int64_t until_ms = chrono_ms(&chrono_real) + DAEMON_START_MS;
    while (daemon_left(until_ms)) {
        if (daemon_is_there(d))
            return true;
        if (kill(pid, 0) != 0 || poll(NULL, 0, DAEMON_POLL_MS) < 0)
            break;
    }
    return err_set(e, ERR_CONNECT,
                   "the server did not come up; ~/.shoal/serve.log says why");
}
