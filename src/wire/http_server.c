#include "wire/http_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <http_parser.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "wire/http_out.h"
#include "wire/tls.h"

#define HTTP_SERVER_LISTENERS_MAX 16
#define HTTP_SERVER_PAUSE_MS 100      /* accepting rests so long when descriptors ran out */
#define HTTP_SERVER_PEER_DEAD_MS 30000 /* off loopback: unacknowledged bytes for so long = gone */

struct http_server_listener {
    struct http_server *server;
    struct evconnlistener *listener;
    bool is_unix, is_loopback;
    char path[sizeof ((struct sockaddr_un *)0)->sun_path]; /* unlinked at the end */
};

struct http_server {
    struct http_server_options o;
    struct list conns;
    uint32_t conn_count;
    struct http_server_listener listeners[HTTP_SERVER_LISTENERS_MAX];
    size_t listener_count;
    struct event *resume;
    struct http_out_set outs;
    int spare_fd; /* given up for a moment to accept and refuse when no other is left */
    bool is_draining;
};

struct http_server_address {
    struct sockaddr_storage sa;
    socklen_t len;
    bool is_unix, is_loopback;
};

/* ---- addresses ------------------------------------------------------------------------------ */

static bool http_server_parse_unix(struct http_server_address *a, str path)
{
    struct sockaddr_un *un = (struct sockaddr_un *)&a->sa;
    if (path.len == 0 || path.len >= sizeof un->sun_path)
        return false;
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, path.p, path.len);
    a->len = (socklen_t)sizeof *un;
    a->is_unix = a->is_loopback = true;
    return true;
}

static bool http_server_parse(struct http_server_address *a, str address)
{
    *a = (struct http_server_address){0};
    if (str_starts(address, STR("unix:")))
        return http_server_parse_unix(a, str_from(address, 5));
    size_t colon = address.len;
    while (colon > 0 && address.p[colon - 1] != ':')
        colon--;
    uint64_t port;
    char host[INET6_ADDRSTRLEN];
    str name = str_sub(address, 0, colon ? colon - 1 : 0);
    if (colon == 0 || !str_to_u64(str_from(address, colon), &port) || port > 65535)
        return false;
    if (str_starts(name, STR("[")) && str_ends(name, STR("]"))) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&a->sa;
        *in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
        snprintf(host, sizeof host, "%.*s", STR_ARG(str_sub(name, 1, name.len - 2)));
        a->len = sizeof *in6;
        bool is_valid = inet_pton(AF_INET6, host, &in6->sin6_addr) == 1;
        a->is_loopback = IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
        return is_valid;
    }
    if (name.len == 0)
        name = STR("0.0.0.0");
    if (str_eq(name, STR("localhost")))
        name = STR("127.0.0.1");
    struct sockaddr_in *in = (struct sockaddr_in *)&a->sa;
    *in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    snprintf(host, sizeof host, "%.*s", STR_ARG(name));
    a->len = sizeof *in;
    bool is_valid = inet_pton(AF_INET, host, &in->sin_addr) == 1;
    a->is_loopback = ntohl(in->sin_addr.s_addr) >> 24 == 127;
    return is_valid;
}

bool http_server_is_loopback(str address)
{
    struct http_server_address a;
    return http_server_parse(&a, address) && a.is_loopback;
}

/* ---- accepting ------------------------------------------------------------------------------ */

/* The one answer that needs neither a connection object nor a second descriptor. The socket's own
 * buffer takes the few bytes; what the client sent so far is read so that close does not reset. */
static void http_server_refuse(const struct http_server *s, int fd, const char *text)
{
    struct buf body, out;
    buf_init(&body, 2048);
    buf_init(&out, 4096);
    s->o.handlers.write_error(s->o.handlers.ctx, NULL, 503, text, &body);
    buf_add_z(&out, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n");
    if (s->o.handlers.write_headers)
        s->o.handlers.write_headers(s->o.handlers.ctx, &out);
    buf_printf(&out, "Content-Length: %zu\r\nConnection: close\r\n\r\n", body.len);
    buf_add(&out, buf_view(&body));
    evutil_make_socket_nonblocking(fd);
    char rest[4096];
    if (send(fd, out.p, out.len, MSG_NOSIGNAL) > 0 && shutdown(fd, SHUT_WR) == 0)
        while (recv(fd, rest, sizeof rest, 0) == (ssize_t)sizeof rest)
            ;
    close(fd);
    buf_deinit(&body);
    buf_deinit(&out);
}

static struct bufferevent *http_server_socket(struct http_server *s, int fd, bool is_unix)
{
    if (!s->o.tls || is_unix)
        return bufferevent_socket_new(s->o.base, fd, BEV_OPT_CLOSE_ON_FREE);
    return tls_accept(s->o.tls, s->o.base, fd);
}

static void http_server_tune(int fd, const struct http_server_listener *l, bool peer_is_local)
{
    if (l->is_unix)
        return;
    int on = 1, dead_ms = HTTP_SERVER_PEER_DEAD_MS;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if (!peer_is_local)
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead_ms, sizeof dead_ms);
}

static bool http_server_name_peer(const struct sockaddr *sa, char *out, size_t size)
{
    if (sa->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)sa;
        inet_ntop(AF_INET, &in->sin_addr, out, (socklen_t)size);
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    if (sa->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;
        inet_ntop(AF_INET6, &in6->sin6_addr, out, (socklen_t)size);
        return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
    }
    snprintf(out, size, "unix");
    return true;
}

static void http_server_on_accept(struct evconnlistener *listener, evutil_socket_t fd,
                                  struct sockaddr *sa, int len, void *ctx)
{
    (void)listener, (void)len;
    struct http_server_listener *l = ctx;
    struct http_server *s = l->server;
    char peer[64];
    bool is_local = http_server_name_peer(sa, peer, sizeof peer);
    if (s->conn_count >= s->o.connections_max) {
        http_server_refuse(s, fd, "connection limit reached");
        return;
    }
    http_server_tune(fd, l, is_local);
    struct bufferevent *bev = http_server_socket(s, fd, l->is_unix);
    if (!bev) {
        http_server_refuse(s, fd, "no memory for a connection");
        return;
    }
    if (!http_conn_open(s, bev, str_of(peer), is_local))
        bufferevent_free(bev);
}

/* Descriptors ran out: answer one client by the spare one, then rest, so that the loop does not
 * spin on a listener that stays readable. */
static void http_server_on_accept_error(struct evconnlistener *listener, void *ctx)
{
    struct http_server_listener *l = ctx;
    struct http_server *s = l->server;
    int error = errno;
    if ((error == EMFILE || error == ENFILE) && s->spare_fd >= 0) {
        close(s->spare_fd);
        int fd = accept4(evconnlistener_get_fd(listener), NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            http_server_refuse(s, fd, "no file descriptor left");
        s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    for (size_t i = 0; i < s->listener_count; i++)
        evconnlistener_disable(s->listeners[i].listener);
    struct timeval tv = {.tv_usec = HTTP_SERVER_PAUSE_MS * 1000};
    event_add(s->resume, &tv);
}

static void http_server_on_resume(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what;
    struct http_server *s = ctx;
    for (size_t i = 0; i < s->listener_count && !s->is_draining; i++)
        evconnlistener_enable(s->listeners[i].listener);
}

/* ---- listeners ------------------------------------------------------------------------------ */

/* A socket file that nobody answers on is left over from a killed process. */
static bool http_server_clear_unix(const struct http_server_address *a, struct err *e)
{
    const char *path = ((const struct sockaddr_un *)&a->sa)->sun_path;
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT || err_set_errno(e, errno, "listen unix:%s", path);
    if (!S_ISSOCK(st.st_mode))
        return err_set(e, ERR_CONFIG, "listen unix:%s: the path exists and is no socket", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set_errno(e, errno, "listen unix:%s", path);
    bool is_alive = connect(fd, (const struct sockaddr *)&a->sa, a->len) == 0;
    close(fd);
    if (is_alive)
        return err_set(e, ERR_IO, "listen unix:%s: another process serves this socket", path);
    return unlink(path) == 0 || err_set_errno(e, errno, "listen unix:%s", path);
}

static int http_server_bind(const struct http_server_address *a)
{
    int fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->sa.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    mode_t old = umask(a->is_unix ? 0177 : 0077);
    int rc = bind(fd, (const struct sockaddr *)&a->sa, a->len);
    int error = errno;
    umask(old);
    if (rc == 0 && listen(fd, 1024) == 0)
        return fd;
    if (rc == 0)
        error = errno;
    close(fd);
    errno = error;
    return -1;
}

bool http_server_listen(struct http_server *s, str address, struct err *e)
{
    struct http_server_address a;
    if (!http_server_parse(&a, address))
        return err_set(e, ERR_CONFIG,
                       "listen '%.*s': expected HOST:PORT, [IPV6]:PORT or unix:/path",
                       STR_ARG(address));
    if (s->listener_count == HTTP_SERVER_LISTENERS_MAX)
        return err_set(e, ERR_CONFIG, "listen '%.*s': more than %d addresses", STR_ARG(address),
                       HTTP_SERVER_LISTENERS_MAX);
    if (a.is_unix && !http_server_clear_unix(&a, e))
        return false;
    int fd = http_server_bind(&a);
    if (fd < 0)
        return err_set_errno(e, errno, "listen %.*s", STR_ARG(address));
    struct http_server_listener *l = &s->listeners[s->listener_count];
    *l = (struct http_server_listener){
        .server = s, .is_unix = a.is_unix, .is_loopback = a.is_loopback,
        .listener = evconnlistener_new(s->o.base, http_server_on_accept, l,
                                       LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd),
    };
    if (!l->listener) {
        close(fd);
        return err_set(e, ERR_MEMORY, "listen %.*s: no memory", STR_ARG(address));
    }
    if (a.is_unix)
        snprintf(l->path, sizeof l->path, "%s", ((struct sockaddr_un *)&a.sa)->sun_path);
    evconnlistener_set_error_cb(l->listener, http_server_on_accept_error);
    s->listener_count++;
    return true;
}

uint16_t http_server_port(const struct http_server *s, size_t listener)
{
    must(listener < s->listener_count);
    struct sockaddr_storage sa = {0};
    socklen_t len = sizeof sa;
    if (getsockname(evconnlistener_get_fd(s->listeners[listener].listener),
                    (struct sockaddr *)&sa, &len) != 0)
        return 0;
    if (sa.ss_family == AF_INET)
        return ntohs(((struct sockaddr_in *)&sa)->sin_port);
    return sa.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&sa)->sin6_port) : 0;
}

/* ---- the set of connections ----------------------------------------------------------------- */

bool http_server_open(struct http_server **out, const struct http_server_options *o,
                      struct err *e)
{
    struct http_server *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "http server: no memory");
    s->o = *o;
    list_init(&s->conns);
    s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    s->resume = evtimer_new(o->base, http_server_on_resume, s);
    if (!s->resume || s->spare_fd < 0 || !http_out_set_open(&s->outs, o->base, e)) {
        http_server_close(s);
        return err_set(e, ERR_IO, "http server: no descriptor or memory to start with");
    }
    http_parser_set_max_header_size((uint32_t)o->limits.header_size_max);
    *out = s;
    return true;
}

/* Nobody waits in a backlog that will not be read: who comes now is refused at once. */
static void http_server_unlisten(struct http_server *s)
{
    for (size_t i = 0; i < s->listener_count; i++) {
        evconnlistener_free(s->listeners[i].listener);
        if (s->listeners[i].path[0])
            unlink(s->listeners[i].path);
    }
    s->listener_count = 0;
}

void http_server_drain(struct http_server *s)
{
    s->is_draining = true;
    http_server_unlisten(s);
    list_each(link, &s->conns)
        http_conn_drain((struct http_conn *)link);
}

void http_server_close(struct http_server *s)
{
    if (!s)
        return;
    while (!list_is_empty(&s->conns))
        http_conn_close((struct http_conn *)s->conns.next);
    http_server_unlisten(s);
    if (s->resume)
        event_free(s->resume);
    http_out_set_close(&s->outs);
    if (s->spare_fd >= 0)
        close(s->spare_fd);
    tls_close(s->o.tls);
    free(s);
}

void http_server_change(struct http_server *s, const struct http_limits *l,
                        uint32_t connections_max)
{
    s->o.limits = *l;
    s->o.connections_max = connections_max;
    http_parser_set_max_header_size((uint32_t)l->header_size_max);
}

void http_server_set_tls(struct http_server *s, struct tls *tls)
{
    tls_close(s->o.tls);
    s->o.tls = tls;
}

uint32_t http_server_connections(const struct http_server *s) { return s->conn_count; }
const struct http_server_options *http_server_options(const struct http_server *s) { return &s->o; }
bool http_server_is_draining(const struct http_server *s) { return s->is_draining; }
struct http_out_set *http_server_outs(struct http_server *s) { return &s->outs; }

void http_server_add(struct http_server *s, struct list *conn)
{
    list_push_last(&s->conns, conn);
    s->conn_count++;
}

void http_server_remove(struct http_server *s, struct list *conn)
{
    list_remove(conn);
    s->conn_count--;
}
