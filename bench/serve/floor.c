/* floor - what a streamed event costs a process that does nothing with it.
 *
 *   floor -port PORT -model NAME [-tokens 200]
 *
 * Asks a server on 127.0.0.1 for one streamed chat and passes each piece on to a TCP connection
 * whose other end, a process of its own, only reads: epoll_wait, read, write, and nothing else. So
 * it is woken between the same steps of the same engine, with caches as cold, as the endpoint that
 * it hears. Prints its CPU time (schedstat) by event, the first 20 left out: less than that no
 * endpoint with one stream can take on this machine. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/str.h"

#define WARM_EVENTS 20

static int open_address(uint16_t port, struct sockaddr_in *a)
{
    *a = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int dial(uint16_t port)
{
    struct sockaddr_in a;
    int on = 1, fd = open_address(port, &a);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0)
        return -1;
    return fd;
}

/* A connection whose other end is read by a child. */
static int open_sink(void)
{
    static char bytes[65536];
    struct sockaddr_in a;
    socklen_t size = sizeof a;
    int fd = open_address(0, &a);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 1) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &size) < 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        int end = accept(fd, NULL, NULL);
        while (end >= 0 && read(end, bytes, sizeof bytes) > 0)
            ;
        _exit(0);
    }
    int out = child < 0 ? -1 : dial(ntohs(a.sin_port));
    close(fd);
    return out;
}

static long long cpu_ns(void)
{
    long long ns = 0;
    FILE *f = fopen("/proc/self/schedstat", "re");
    if (f && fscanf(f, "%lld", &ns) != 1)
        ns = 0;
    if (f)
        fclose(f);
    return ns;
}

static bool ask(int fd, const char *model, const char *tokens)
{
    char body[1024], request[1400];
    int len = snprintf(body, sizeof body, "{\"model\":\"%s\",\"stream\":true,\"ignore_eos\":true,"
                       "\"temperature\":0,\"max_tokens\":%s,\"messages\":[{\"role\":\"user\","
                       "\"content\":\"Count.\"}]}", model, tokens);
    int size = snprintf(request, sizeof request, "POST /v1/chat/completions HTTP/1.1\r\n"
                        "Host: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
                        len, body);
    return size > 0 && (size_t)size < sizeof request && write(fd, request, (size_t)size) == size;
}

/* Until the server ends the reply. */
static bool pass_on(int in, int out, long long *events, long long *ns)
{
    static char bytes[65536];
    struct epoll_event want = {.events = EPOLLIN}, got;
    int wait = epoll_create1(EPOLL_CLOEXEC);
    bool ok = wait >= 0 && epoll_ctl(wait, EPOLL_CTL_ADD, in, &want) == 0;
    ssize_t n = 1;
    while (ok && n > 0) {
        if (epoll_wait(wait, &got, 1, -1) != 1)
            continue;
        n = read(in, bytes, sizeof bytes);
        ok = n >= 0 && (n == 0 || write(out, bytes, (size_t)n) == n);
        if (++*events == WARM_EVENTS)
            *ns = cpu_ns();
    }
    *ns = cpu_ns() - *ns;
    return ok && *events > WARM_EVENTS;
}

int main(int argc, char **argv)
{
    const char *port = NULL, *model = NULL, *tokens = "200";
    long long events = 0, ns = 0;
    uint64_t number = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        port = strcmp(argv[i], "-port") == 0 ? argv[i + 1] : port;
        model = strcmp(argv[i], "-model") == 0 ? argv[i + 1] : model;
        tokens = strcmp(argv[i], "-tokens") == 0 ? argv[i + 1] : tokens;
    }
    if (!port || !model || !str_to_u64(str_of(port), &number) || number > UINT16_MAX) {
        fprintf(stderr, "floor -port PORT -model NAME [-tokens 200]\n");
        return 2;
    }
    int out = open_sink(), in = dial((uint16_t)number);
    if (out < 0 || in < 0 || !ask(in, model, tokens) || !pass_on(in, out, &events, &ns)) {
        perror("floor");
        return 1;
    }
    printf("%.1f us an event, %lld events\n", (double)ns / 1000.0 / (double)(events - WARM_EVENTS),
           events);
    close(out);
    wait(NULL);
    return 0;
}
