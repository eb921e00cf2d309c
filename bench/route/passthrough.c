/* passthrough - what a server adds to the pieces of streams that it passes on.
 *
 *   passthrough -upstream PORT [-target PORT] [-streams 200] [-rate 50] [-seconds 10] [-model m]
 *
 * An upstream that speaks chat completions, and its clients, in one process. Each piece says when
 * it left (`T=` and nanoseconds); the client takes the difference when it has read it. The clients
 * ask 127.0.0.1:TARGET, whose upstream is 127.0.0.1:PORT; without -target they ask the upstream,
 * which tells what the instrument adds. One line of JSON on stdout; exit 1 when a stream breaks. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/chrono.h"
#include "base/str.h"

#define STREAMS_MAX 1000u
#define SOCKETS_MAX (STREAMS_MAX + 64u)
#define REQUEST_MAX 16384u
#define CARRY_MAX 256u
#define WARM_NS INT64_C(2000000000) /* connections and first reads are not measured */
#define LATE_NS INT64_C(20000000000)

enum socket_state { SOCKET_FREE, SOCKET_READS, SOCKET_STREAMS };
struct served {
    enum socket_state state;
    int64_t next_ns;
    uint32_t left; /* pieces */
    uint32_t len;
    char request[REQUEST_MAX];
};
struct client {
    bool is_over, is_whole;
    uint32_t len;
    char carry[CARRY_MAX + 65536 + 1];
};
static struct bench {
    uint32_t streams, rate, seconds;
    uint16_t upstream, target;
    const char *model;
    int listener;
    atomic_bool is_over;
    int64_t begun_ns;
    struct pollfd up[SOCKETS_MAX + 1], down[STREAMS_MAX];
    struct served served[SOCKETS_MAX];
    struct client clients[STREAMS_MAX];
    double *added_ms;
    size_t added_count, added_max, pieces;
} b;

static void die(const char *what)
{
    fprintf(stderr, "passthrough: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_ns(void) { return chrono_ns(&chrono_real); }

static struct sockaddr_in address(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

static void ready_socket(int fd)
{
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        die("fcntl");
}

/* --- the upstream -------------------------------------------------------------------------- */

static void served_end(uint32_t i)
{
    close(b.up[i].fd);
    b.up[i].fd = -1;
    b.served[i].state = SOCKET_FREE;
}

/* Pieces are far smaller than a socket's buffer: a short write is a reader that went away. */
static bool served_say(uint32_t i, const char *text, size_t len)
{
    if (write(b.up[i].fd, text, len) == (ssize_t)len)
        return true;
    served_end(i);
    return false;
}

static void served_begin(uint32_t i)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                               "Connection: close\r\n\r\n";
    static const char list[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                               "Content-Length: 27\r\n\r\n{\"object\":\"list\",\"data\":[]}";
    struct served *s = &b.served[i];
    if (!str_starts(str_view(s->request, s->len), STR("POST "))) {
        s->len = 0;
        served_say(i, list, sizeof list - 1);
        return;
    }
    s->state = SOCKET_STREAMS;
    s->left = b.rate * b.seconds;
    s->next_ns = now_ns() + 1000000000 / b.rate;
    served_say(i, head, sizeof head - 1);
}

/* A request is whole when its header and Content-Length bytes are there. */
static void served_read(uint32_t i)
{
    struct served *s = &b.served[i];
    ssize_t n = read(b.up[i].fd, s->request + s->len, REQUEST_MAX - s->len);
    if (n <= 0) {
        served_end(i);
        return;
    }
    s->len += (uint32_t)n;
    str all = str_view(s->request, s->len);
    size_t end = str_find(all, STR("\r\n\r\n")), at = 0;
    uint64_t body = 0;
    if (end == STR_NONE)
        return;
    for (; at < end; at++) {
        str line = str_from(all, at);
        if (line.len > 16 && str_eq_nocase(str_sub(line, 0, 15), STR("content-length:")))
            body = strtoull(line.p + 15, NULL, 10);
    }
    if (s->len >= end + 4 + body)
        served_begin(i);
}

static void served_piece(uint32_t i)
{
    struct served *s = &b.served[i];
    char text[512];
    static const char form[] =
        "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\","
        "\"choices\":[{\"index\":0,\"delta\":{%s},\"finish_reason\":%s}]}\n\n%s";
    char delta[96];
    bool is_last = s->left-- == 0;
    s->next_ns += 1000000000 / b.rate;
    snprintf(delta, sizeof delta, "\"content\":\"T=%lld \"", (long long)now_ns());
    int n = snprintf(text, sizeof text, form, is_last ? "" : delta, is_last ? "\"stop\"" : "null",
                     is_last ? "data: [DONE]\n\n" : "");
    if (served_say(i, text, (size_t)n) && is_last)
        served_end(i);
}

static void served_accept(void)
{
    for (uint32_t i = 0; i < SOCKETS_MAX; i++) {
        if (b.served[i].state != SOCKET_FREE)
            continue;
        int fd = accept(b.listener, NULL, NULL);
        if (fd < 0)
            return;
        ready_socket(fd);
        b.up[i] = (struct pollfd){.fd = fd, .events = POLLIN};
        b.served[i].state = SOCKET_READS;
        b.served[i].len = 0;
    }
}

static int served_wait_ms(void)
{
    int64_t next = now_ns() + 50000000;
    for (uint32_t i = 0; i < SOCKETS_MAX; i++)
        if (b.served[i].state == SOCKET_STREAMS && b.served[i].next_ns < next)
            next = b.served[i].next_ns;
    int64_t left = next - now_ns();
    return left > 0 ? (int)((left + 999999) / 1000000) : 0;
}

static void *serve(void *ctx)
{
    (void)ctx;
    b.up[SOCKETS_MAX] = (struct pollfd){.fd = b.listener, .events = POLLIN};
    while (!atomic_load(&b.is_over)) {
        if (poll(b.up, SOCKETS_MAX + 1, served_wait_ms()) < 0)
            die("poll");
        if (b.up[SOCKETS_MAX].revents)
            served_accept();
        for (uint32_t i = 0; i < SOCKETS_MAX; i++) {
            if (b.served[i].state == SOCKET_STREAMS && now_ns() >= b.served[i].next_ns)
                served_piece(i);
            else if (b.served[i].state == SOCKET_READS && b.up[i].revents)
                served_read(i);
        }
    }
    return NULL;
}

/* --- the clients --------------------------------------------------------------------------- */

static void client_ask(uint32_t i)
{
    struct sockaddr_in to = address(b.target);
    char body[256], text[640];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
        die("connect");
    ready_socket(fd);
    int n = snprintf(body, sizeof body, "{\"model\":\"%s\",\"stream\":true,\"messages\":[{\"role\":"
                     "\"user\",\"content\":\"Go on, agent %u.\"}]}", b.model, i);
    n = snprintf(text, sizeof text, "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n"
                 "Content-Type: application/json\r\nAuthorization: Bearer sk-passthrough-bench\r\n"
                 "Content-Length: %d\r\nConnection: close\r\n\r\n%s", b.target, n, body);
    if (write(fd, text, (size_t)n) != n)
        die("write");
    b.down[i] = (struct pollfd){.fd = fd, .events = POLLIN};
}

static void client_scan(struct client *c, int64_t now)
{
    str rest = str_view(c->carry, c->len);
    for (size_t at; (at = str_find(rest, STR("T="))) != STR_NONE; rest = str_from(rest, at + 2)) {
        char *end;
        long long left = strtoll(rest.p + at + 2, &end, 10);
        if (end >= rest.p + rest.len) { /* cut: the rest comes with the next read */
            rest = str_from(rest, at);
            break;
        }
        b.pieces++;
        if (left - b.begun_ns >= WARM_NS && b.added_count < b.added_max)
            b.added_ms[b.added_count++] = (double)(now - left) / 1e6;
    }
    c->is_whole = c->is_whole || str_find(str_view(c->carry, c->len), STR("[DONE]")) != STR_NONE;
    size_t keep = rest.len < 64 ? rest.len : 64;
    if (str_starts(rest, STR("T=")))
        keep = rest.len;
    memmove(c->carry, rest.p + rest.len - keep, keep);
    c->len = (uint32_t)keep;
}

static void client_read(uint32_t i)
{
    struct client *c = &b.clients[i];
    ssize_t n = read(b.down[i].fd, c->carry + c->len, 65536);
    int64_t now = now_ns();
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        c->len += (uint32_t)n;
        c->carry[c->len] = 0;
        client_scan(c, now);
    }
    if (n > 0 && !c->is_whole)
        return;
    c->is_over = true;
    close(b.down[i].fd);
    b.down[i].fd = -1;
}

static uint32_t ask_all(void)
{
    uint32_t over = 0, whole = 0;
    int64_t end = now_ns() + (int64_t)b.seconds * 1000000000 + LATE_NS;
    for (uint32_t i = 0; i < b.streams; i++)
        client_ask(i);
    while (over < b.streams && now_ns() < end) {
        if (poll(b.down, b.streams, 100) < 0)
            die("poll");
        over = whole = 0;
        for (uint32_t i = 0; i < b.streams; i++) {
            if (!b.clients[i].is_over && b.down[i].revents)
                client_read(i);
            over += b.clients[i].is_over;
            whole += b.clients[i].is_whole;
        }
    }
    return whole;
}

/* --- all of it ----------------------------------------------------------------------------- */

static int by_value(const void *x, const void *y)
{
    double l = *(const double *)x, r = *(const double *)y;
    return l < r ? -1 : l > r;
}

static double quantile(double share)
{
    return b.added_count ? b.added_ms[(size_t)(share * (double)(b.added_count - 1))] : 0;
}

static uint32_t number(const char *text, uint32_t max)
{
    uint64_t n;
    if (!text || !str_to_u64(str_of(text), &n) || n == 0 || n > max) {
        fprintf(stderr, "passthrough: a number 1..%u expected\n", max);
        exit(2);
    }
    return (uint32_t)n;
}

static void read_flags(int argc, char **argv)
{
    b.streams = 200;
    b.rate = 50;
    b.seconds = 10;
    b.model = "m";
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "-upstream"))
            b.upstream = (uint16_t)number(argv[i + 1], 65535);
        else if (!strcmp(argv[i], "-target"))
            b.target = (uint16_t)number(argv[i + 1], 65535);
        else if (!strcmp(argv[i], "-streams"))
            b.streams = number(argv[i + 1], STREAMS_MAX);
        else if (!strcmp(argv[i], "-rate"))
            b.rate = number(argv[i + 1], 1000);
        else if (!strcmp(argv[i], "-seconds"))
            b.seconds = number(argv[i + 1], 600);
        else if (!strcmp(argv[i], "-model"))
            b.model = argv[i + 1];
        else
            argc = 0;
    }
    if (argc % 2 == 0 || !b.upstream) {
        fprintf(stderr, "usage: passthrough -upstream PORT [-target PORT] [-streams N] [-rate N] "
                        "[-seconds N] [-model NAME]\n");
        exit(2);
    }
    b.target = b.target ? b.target : b.upstream;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    int one = 1;
    read_flags(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_in here = address(b.upstream);
    b.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(b.listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(b.listener, (struct sockaddr *)&here, sizeof here) < 0 || listen(b.listener, 1024) < 0)
        die("listen");
    ready_socket(b.listener);
    for (uint32_t i = 0; i < SOCKETS_MAX; i++)
        b.up[i].fd = -1;
    b.added_max = (size_t)b.streams * b.rate * b.seconds;
    b.added_ms = calloc(b.added_max, sizeof *b.added_ms);
    if (!b.added_ms)
        die("memory");
    b.begun_ns = now_ns();
    if (pthread_create(&thread, NULL, serve, NULL))
        die("thread");
    uint32_t whole = ask_all();
    atomic_store(&b.is_over, true);
    pthread_join(thread, NULL);
    qsort(b.added_ms, b.added_count, sizeof *b.added_ms, by_value);
    printf("{\"streams\":%u,\"whole\":%u,\"pieces\":%zu,\"measured\":%zu,\"p50_ms\":%.3f,"
           "\"p99_ms\":%.3f,\"max_ms\":%.3f}\n", b.streams, whole, b.pieces, b.added_count,
           quantile(0.5), quantile(0.99), quantile(1));
    free(b.added_ms);
    return whole == b.streams ? 0 : 1;
}
