/* stress - what many clients at once do to one server: bursts, idle connections, a soak.
 *
 *   stress burst -url URL -model NAME [-agents 500] [-hold 16] [-within 100]
 *   stress idle  -url URL -pid PID [-agents 500]
 *   stress soak  -url URL -model NAME -pid PID [-agents 100] [-seconds 120] [-kill] [-kills N]
 *                [-seed 1]
 *
 * burst: `hold` long replies fill slots and queue, then agents ask at once. Each must be answered
 * or told 503, nobody hung; of the 503 the slowest is measured against `within` ms.
 * idle:  connections that say nothing: what they cost the process PID in resident memory.
 * soak:  short requests; of ten one goes away and one reads slowly; -kill also kills PID's child
 *        with SIGKILL, 15 to 25 s apart, later while a request runs that saw two kills: a third
 *        ends it, as BEHAVIOUR 8.6 says, and on a slow machine a short request lives long. Nothing
 *        but 503 may fail. -kills: as -kill, but the soak ends 15 s after the Nth, and 503 is a
 *        failure too.
 *
 * Only 127.0.0.1 is ever a target. One line of JSON on stdout; exit 1 when a promise is broken. */
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/load.h"

#define STEP_MS 10
#define AGENTS_MAX 2000
#define SECONDS_MAX 3600
#define BURST_WAIT_MS 120000
#define KILL_APART_MS 15000
#define KILL_SPREAD_MS 10000
#define KILLS_MAX 100
#define KILLS_SEEN_MAX 2 /* by one request: its respawns */
/* A busy server hears of a kill later than of a request that came after it, and counts both. */
#define KILL_NOTICED_MS 5000

enum fate { FATE_READ, FATE_CANCEL, FATE_SLOW };

struct stress;
struct agent {
    struct stress *s;
    struct load_call call;
    struct loop_timer next; /* starts, cancels or wakes up the slow reader */
    enum fate fate;
    uint32_t kills_seen; /* while its request ran */
    bool is_running, is_paused;
};

struct stress {
    struct loop *loop;
    struct http_client *client;
    struct agent *agents;
    struct chrono_rng rng;
    str url, model;
    pid_t pid;
    uint32_t agents_count, hold, seconds, within_ms, running, kills_max;
    bool kills, is_ending;
    int64_t killed_ms; /* when kills_count grew last */
    uint64_t done, refused, failed, cancelled, slow, kills_count, events;
    double refused_ms_max;
    char why[LOAD_KIND_SIZE + ERR_TEXT_MAX];
};

static void fail(const char *text)
{
    fprintf(stderr, "stress: %s\n", text);
    exit(1);
}

/* --- what /proc tells ------------------------------------------------------------------------- */

static uint64_t resident_kb(pid_t pid)
{
    char line[256];
    unsigned long kb = 0;
    snprintf(line, sizeof line, "/proc/%d/status", (int)pid);
    FILE *f = fopen(line, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmRSS: %lu", &kb) == 1)
            break;
    if (f)
        fclose(f);
    return kb;
}

static pid_t child_of(pid_t pid)
{
    char path[64];
    int child = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%d", &child) != 1)
        child = 0;
    if (f)
        fclose(f);
    return child;
}

/* --- one request ------------------------------------------------------------------------------ */

static void agent_on_end(void *ctx, struct load_call *call)
{
    struct agent *a = ctx;
    struct stress *s = a->s;
    double ms = (double)(call->end_ns - call->start_ns) * 1e-6;
    a->is_running = false;
    s->running--;
    s->events += call->events;
    if (call->status == 503) {
        s->refused++;
        if (ms > s->refused_ms_max)
            s->refused_ms_max = ms;
    } else if (call->kind[0]) {
        if (!s->failed++)
            snprintf(s->why, sizeof s->why, "%s: %.200s", call->kind, call->why);
    } else {
        s->done++;
    }
    if (!s->is_ending)
        loop_timer_set(&a->next, (int64_t)chrono_rng_below(&s->rng, 200));
}

static void agent_ask(struct agent *a, uint32_t words, uint32_t out)
{
    struct stress *s = a->s;
    struct buf text;
    struct err e;
    buf_init(&text, 1u << 20);
    load_call_add_words(&text, &s->rng, words);
    struct load_turn turn = {.user = buf_view(&text)};
    struct load_body body = {.model = s->model, .turns = &turn, .turns_count = 1, .out = out,
                             .context = 1024};
    load_call_deinit(&a->call);
    a->call = (struct load_call){.dialect = load_dialect_find(STR("chat")),
                                 .on_end = agent_on_end, .ctx = a};
    if (!load_call_start(&a->call, s->client, s->url, &body, &e))
        fail(e.text);
    a->is_running = true;
    a->kills_seen = s->kills_count && loop_ms() < s->killed_ms + KILL_NOTICED_MS;
    s->running++;
    buf_deinit(&text);
}

/* --- soak ------------------------------------------------------------------------------------- */

static void agent_begin(struct agent *a)
{
    struct stress *s = a->s;
    uint64_t dice = chrono_rng_below(&s->rng, 10);
    a->fate = dice == 0 ? FATE_CANCEL : dice == 1 ? FATE_SLOW : FATE_READ;
    a->is_paused = false;
    agent_ask(a, 8 + (uint32_t)chrono_rng_below(&s->rng, 56),
              4 + (uint32_t)chrono_rng_below(&s->rng, 44));
    if (a->fate != FATE_READ)
        loop_timer_set(&a->next, (int64_t)chrono_rng_below(&s->rng, 2000));
}

/* The timer's turn: what comes next in the agent's life. */
static void agent_next(void *ctx)
{
    struct agent *a = ctx;
    struct stress *s = a->s;
    if (!a->is_running) {
        if (!s->is_ending)
            agent_begin(a);
    } else if (a->fate == FATE_CANCEL) {
        load_call_cancel(&a->call);
        a->is_running = false;
        s->running--;
        s->cancelled++;
        loop_timer_set(&a->next, 0);
    } else if (!a->is_paused) {
        http_client_pause(a->call.call, true);
        a->is_paused = true;
        s->slow++;
        loop_timer_set(&a->next, 500 + (int64_t)chrono_rng_below(&s->rng, 3000));
    } else {
        http_client_pause(a->call.call, false);
    }
}

static bool may_kill(const struct stress *s)
{
    for (uint32_t i = 0; i < s->agents_count; i++)
        if (s->agents[i].is_running && s->agents[i].kills_seen >= KILLS_SEEN_MAX)
            return false;
    return true;
}

static void soak_kill(struct stress *s, int64_t now, int64_t *kill_at)
{
    pid_t child = child_of(s->pid);
    if (child <= 1 || kill(child, SIGKILL) != 0)
        return;
    s->kills_count++;
    s->killed_ms = now;
    for (uint32_t i = 0; i < s->agents_count; i++)
        s->agents[i].kills_seen++;
    *kill_at = now + KILL_APART_MS + (int64_t)chrono_rng_below(&s->rng, KILL_SPREAD_MS);
}

static int soak(struct stress *s)
{
    int64_t start = loop_ms(), end = start + s->seconds * 1000LL, kill_at = start + KILL_APART_MS;
    uint64_t rss_early = 0;
    for (uint32_t i = 0; i < s->agents_count; i++)
        loop_timer_set(&s->agents[i].next, (int64_t)chrono_rng_below(&s->rng, 1000));
    while (loop_ms() < end && !(s->kills_max && s->kills_count == s->kills_max &&
                                loop_ms() >= kill_at)) {
        loop_step(s->loop, STEP_MS);
        int64_t now = loop_ms();
        if (!rss_early && now > start + s->seconds * 250LL)
            rss_early = resident_kb(s->pid);
        bool is_time = s->kills && now >= kill_at && now < end - 5000 &&
                       (!s->kills_max || s->kills_count < s->kills_max);
        if (is_time && may_kill(s))
            soak_kill(s, now, &kill_at);
    }
    uint64_t rss_late = resident_kb(s->pid);
    s->is_ending = true;
    for (int64_t last = loop_ms() + BURST_WAIT_MS; s->running && loop_ms() < last;)
        loop_step(s->loop, STEP_MS);
    printf("{\"done\":%llu,\"refused\":%llu,\"failed\":%llu,\"cancelled\":%llu,\"slow\":%llu,"
           "\"kills\":%llu,\"hung\":%u,\"events\":%llu,\"rss_early_kb\":%llu,\"rss_late_kb\":%llu,"
           "\"first_failure\":",
           (unsigned long long)s->done, (unsigned long long)s->refused,
           (unsigned long long)s->failed, (unsigned long long)s->cancelled,
           (unsigned long long)s->slow, (unsigned long long)s->kills_count, s->running,
           (unsigned long long)s->events, (unsigned long long)rss_early,
           (unsigned long long)rss_late);
    struct buf out;
    struct json_writer w = json_writer(&out);
    buf_init(&out, 4096);
    json_put_text_z(&w, s->why);
    printf("%s}\n", out.p);
    buf_deinit(&out);
    bool is_short = s->kills_max && (s->kills_count < s->kills_max || s->refused);
    return s->failed || s->running || !s->done || is_short;
}

/* --- plain sockets ---------------------------------------------------------------------------- */

static int dial(const struct stress *s)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    uint64_t port;
    if (!str_to_u64(str_from(s->url, sizeof "http://127.0.0.1:" - 1), &port) || port > 65535)
        fail("-url http://127.0.0.1:PORT expected");
    to.sin_port = htons((uint16_t)port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        fail("a connection was not accepted");
    return fd;
}

/* --- burst ------------------------------------------------------------------------------------ */

/* Plain sockets: what is measured is the server, not 500 handles of a library. */
struct knock {
    int64_t sent_ns;
    bool is_over;
};

static void knock_send(const struct stress *s, int fd, struct knock *k)
{
    char head[1024], body[512];
    int size = snprintf(body, sizeof body, "{\"model\":\"%.*s\",\"max_tokens\":4,\"messages\":"
                        "[{\"role\":\"user\",\"content\":\"Say hello.\"}]}",
                        STR_ARG(str_sub(s->model, 0, 300)));
    k->sent_ns = chrono_ns(&chrono_real);
    int len = snprintf(head, sizeof head, "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1"
                       "\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
                       size, body);
    if (send(fd, head, (size_t)len, MSG_NOSIGNAL) != len)
        fail("burst: a request was not taken");
}

static void knock_read(struct stress *s, int fd, struct knock *k)
{
    char head[4096];
    double ms = (double)(chrono_ns(&chrono_real) - k->sent_ns) * 1e-6;
    ssize_t n = recv(fd, head, sizeof head, MSG_DONTWAIT);
    k->is_over = true;
    s->running--;
    if (n > 12 && memcmp(head + 9, "503", 3) == 0) {
        s->refused++;
        s->refused_ms_max = ms > s->refused_ms_max ? ms : s->refused_ms_max;
    } else if (n > 12 && memcmp(head + 9, "200", 3) == 0) {
        s->done++;
    } else if (!s->failed++) {
        snprintf(s->why, sizeof s->why, "%.*s", (int)(n > 40 ? 40 : n < 0 ? 0 : n), head);
    }
}

static void knock_all(struct stress *s, uint32_t count)
{
    static struct pollfd fds[AGENTS_MAX];
    static struct knock knocks[AGENTS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        fds[i] = (struct pollfd){.fd = dial(s), .events = POLLIN};
        knock_send(s, fds[i].fd, &knocks[i]);
        s->running++;
    }
    for (int64_t last = loop_ms() + BURST_WAIT_MS; s->running && loop_ms() < last;) {
        if (poll(fds, count, 1) > 0)
            for (uint32_t i = 0; i < count; i++)
                if (fds[i].revents && !knocks[i].is_over) {
                    knock_read(s, fds[i].fd, &knocks[i]);
                    fds[i].events = 0;
                    close(fds[i].fd);
                    fds[i].fd = -1;
                }
        loop_step(s->loop, 0);
    }
}

static int burst(struct stress *s)
{
    s->is_ending = true; /* nobody asks twice */
    for (uint32_t i = 0; i < s->hold; i++)
        agent_ask(&s->agents[i], 64, 256);
    for (int64_t last = loop_ms() + 1000; loop_ms() < last;) /* they are in slots and queue now */
        loop_step(s->loop, STEP_MS);
    uint64_t early = s->refused;
    s->refused_ms_max = 0;
    knock_all(s, s->agents_count - s->hold);
    printf("{\"held\":%llu,\"done\":%llu,\"refused\":%llu,\"failed\":%llu,\"hung\":%u,"
           "\"refused_ms_max\":%.1f}\n", (unsigned long long)(s->hold - early),
           (unsigned long long)s->done, (unsigned long long)(s->refused - early),
           (unsigned long long)s->failed, s->running, s->refused_ms_max);
    if (s->failed)
        fprintf(stderr, "stress: %s\n", s->why);
    return s->failed || s->running || s->refused == early || s->refused_ms_max > s->within_ms;
}

/* --- idle ------------------------------------------------------------------------------------- */

static int idle(struct stress *s)
{
    static int fds[AGENTS_MAX];
    uint64_t before = resident_kb(s->pid);
    for (uint32_t i = 0; i < s->agents_count; i++)
        fds[i] = dial(s);
    for (int64_t last = loop_ms() + 1000; loop_ms() < last;) /* all are accepted by then */
        loop_step(s->loop, STEP_MS);
    uint64_t after = resident_kb(s->pid);
    for (uint32_t i = 0; i < s->agents_count; i++)
        close(fds[i]);
    printf("{\"connections\":%u,\"rss_before_kb\":%llu,\"rss_after_kb\":%llu}\n", s->agents_count,
           (unsigned long long)before, (unsigned long long)after);
    return 0;
}

/* --- flags ------------------------------------------------------------------------------------ */

static uint32_t number(const char *flag, const char *text, uint64_t max)
{
    uint64_t v;
    if (!text || !str_to_u64(str_of(text), &v) || v < 1 || v > max) {
        fprintf(stderr, "stress: %s: 1..%llu expected\n", flag, (unsigned long long)max);
        exit(2);
    }
    return (uint32_t)v;
}

static void parse(struct stress *s, int argc, char **argv)
{
    uint32_t seed = 1;
    for (int i = 2; i < argc; i++) {
        const char *flag = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(flag, "-kill") == 0) {
            s->kills = true;
            continue;
        }
        i++;
        if (strcmp(flag, "-url") == 0)
            s->url = str_of(value);
        else if (strcmp(flag, "-model") == 0)
            s->model = str_of(value);
        else if (strcmp(flag, "-pid") == 0)
            s->pid = (pid_t)number(flag, value, INT32_MAX);
        else if (strcmp(flag, "-agents") == 0)
            s->agents_count = number(flag, value, AGENTS_MAX);
        else if (strcmp(flag, "-seconds") == 0)
            s->seconds = number(flag, value, SECONDS_MAX);
        else if (strcmp(flag, "-kills") == 0) {
            s->kills = true;
            s->kills_max = number(flag, value, KILLS_MAX);
            s->seconds = (s->kills_max + 1) * 2 * (KILL_APART_MS + 2 * KILL_SPREAD_MS) / 1000;
        } else if (strcmp(flag, "-hold") == 0)
            s->hold = number(flag, value, AGENTS_MAX);
        else if (strcmp(flag, "-within") == 0)
            s->within_ms = number(flag, value, 60000);
        else if (strcmp(flag, "-seed") == 0)
            seed = number(flag, value, UINT32_MAX);
        else
            fail("unknown flag; bench/serve/stress.c says which there are");
    }
    if (!str_starts(s->url, STR("http://127.0.0.1:")))
        fail("-url http://127.0.0.1:PORT expected: nothing else is a target");
    chrono_rng_init(&s->rng, seed);
}

int main(int argc, char **argv)
{
    static struct stress s = {.hold = 16, .seconds = 120, .within_ms = 100};
    struct rlimit files = {AGENTS_MAX + 1000, AGENTS_MAX + 1000};
    str mode = str_of(argc > 1 ? argv[1] : "");
    struct err e;
    bool is_soak = str_eq(mode, STR("soak")), is_burst = str_eq(mode, STR("burst"));
    if (!is_soak && !is_burst && !str_eq(mode, STR("idle")))
        fail("burst, idle or soak expected");
    s.agents_count = is_soak ? 100 : 500;
    parse(&s, argc, argv);
    if (!is_burst && s.pid <= 1)
        fail("-pid expected");
    setrlimit(RLIMIT_NOFILE, &files);
    s.agents_count += is_burst ? s.hold : 0;
    s.agents = calloc(s.agents_count, sizeof *s.agents);
    if (!s.agents || !loop_open(&s.loop, &e) ||
        !http_client_open(&s.client, s.loop, s.agents_count, &e))
        fail(s.agents ? e.text : "no memory");
    for (uint32_t i = 0; i < s.agents_count; i++) {
        s.agents[i].s = &s;
        if (!loop_timer_open(&s.agents[i].next, s.loop, agent_next, &s.agents[i], &e))
            fail(e.text);
    }
    int rc = is_soak ? soak(&s) : is_burst ? burst(&s) : idle(&s);
    for (uint32_t i = 0; i < s.agents_count; i++) {
        load_call_deinit(&s.agents[i].call);
        loop_timer_close(&s.agents[i].next);
    }
    http_client_close(s.client);
    loop_close(s.loop);
    free(s.agents);
    return rc;
}
