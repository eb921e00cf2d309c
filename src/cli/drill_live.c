#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/chrono.h"
#include "base/json.h"
#include "cli/daemon.h"
#include "cli/drill.h"

#define DRILL_LIVE_ASK_MS 10000
#define DRILL_LIVE_LOOK_MS 500
#define DRILL_LIVE_PATH "/v1/admin/drill"

static volatile sig_atomic_t drill_live_is_stopped;

static void drill_live_on_signal(int number)
{
    (void)number;
    drill_live_is_stopped = 1;
}

/* The report of the server; its views live in a. */
static bool drill_live_ask(const struct daemon *d, const char *method, str body, struct arena *a,
                           struct json *out, struct err *e)
{
    const struct daemon_question q = {.method = method, .path = DRILL_LIVE_PATH, .body = body,
                                      .timeout_ms = DRILL_LIVE_ASK_MS};
    const struct json_options o = {.depth_max = 8};
    struct daemon_answer answer;
    if (!daemon_ask_server(d, &q, &answer, e))
        return false;
    bool ok = answer.status / 100 == 2 || daemon_refused(&answer, e);
    if (ok)
        ok = json_parse(out, arena_copy(a, buf_view(&answer.body)), &o, a, e) ||
             err_wrap(e, "drill: the server's answer");
    buf_deinit(&answer.body);
    return ok;
}

static str drill_live_order(const struct cmd_context *c, int64_t seconds)
{
    struct buf b;
    buf_init(&b, 4096);
    struct json_writer w = json_writer(&b);
    str agents = cmd_text(c, "agents");
    json_open_object(&w);
    json_key_z(&w, "leg");
    json_put_text(&w, cmd_text(c, "live"));
    json_key_z(&w, "fault");
    json_put_text(&w, cmd_text(c, "fault"));
    json_key_z(&w, "agents");
    json_put_text(&w, agents.len ? agents : STR("*"));
    json_key_z(&w, "share");
    json_put_double(&w, cmd_real(c, "share"));
    json_key_z(&w, "seconds");
    json_put_i64(&w, seconds);
    json_close_object(&w);
    str order = arena_copy(c->arena, buf_view(&b));
    buf_deinit(&b);
    return order;
}

static uint64_t drill_live_count(struct json report, const char *key)
{
    uint64_t n = 0;
    return json_u64(json_member(report, key), &n) ? n : 0;
}

static void drill_live_print_legs(struct json report, struct arena *a)
{
    struct json_walk w = json_walk(json_member(report, "legs"));
    struct buf line;
    buf_init(&line, 65536);
    while (json_next(&w)) {
        uint64_t n = 0;
        if (!json_u64(w.value, &n))
            continue;
        buf_add_z(&line, line.len ? ", " : "  ");
        buf_add_printable(&line, json_text(w.key, a));
        buf_printf(&line, " %llu", (unsigned long long)n);
    }
    printf("finished by %.*s\n", STR_ARG(line.len ? buf_view(&line) : STR("  nobody")));
    buf_deinit(&line);
}

static void drill_live_print(const struct cmd_context *c, struct json r, struct arena *a)
{
    struct json added = json_member(r, "added_ms");
    printf("drill: %.*s on leg %.*s\n", STR_ARG(cmd_text(c, "fault")),
           STR_ARG(cmd_text(c, "live")));
    printf("requests hit  %llu\n", (unsigned long long)drill_live_count(r, "hit"));
    printf("failed over   %llu\n", (unsigned long long)drill_live_count(r, "failed_over"));
    printf("failed        %llu, with another capable leg %llu\n",
           (unsigned long long)(drill_live_count(r, "failed") +
                                drill_live_count(r, "failed_with_other")),
           (unsigned long long)drill_live_count(r, "failed_with_other"));
    if (drill_live_count(r, "cancelled") || drill_live_count(r, "running"))
        printf("clients left  %llu, still under way %llu\n",
               (unsigned long long)drill_live_count(r, "cancelled"),
               (unsigned long long)drill_live_count(r, "running"));
    printf("added latency p50 %llu ms, p95 %llu ms, most %llu ms\n",
           (unsigned long long)drill_live_count(added, "p50"),
           (unsigned long long)drill_live_count(added, "p95"),
           (unsigned long long)drill_live_count(added, "max"));
    drill_live_print_legs(r, a);
}

/* Looks until the time is over and what was struck has ended. */
static bool drill_live_wait(const struct cmd_context *c, const struct daemon *d, struct arena *a,
                            struct json *r, struct err *e)
{
    int64_t end = chrono_ms(&chrono_real) + cmd_number(c, "for") / 1000 + DRILL_AFTER_MS;
    bool is_told = false;
    for (;;) {
        arena_reset(a);
        if (drill_live_is_stopped && !is_told) {
            is_told = true;
            if (!drill_live_ask(d, "POST", drill_live_order(c, 0), a, r, e))
                return false;
        } else if (!drill_live_ask(d, "GET", STR(""), a, r, e)) {
            return false;
        }
        bool is_over = !drill_live_count(*r, "left_ms") && !drill_live_count(*r, "running");
        if (is_over || chrono_ms(&chrono_real) > end)
            return true;
        poll(NULL, 0, DRILL_LIVE_LOOK_MS);
    }
}

bool drill_live(struct cmd_context *c, struct err *e)
{
    struct daemon d;
    struct arena a;
    struct json r;
    int64_t seconds = cmd_number(c, "for") / 1000;
    if (!cmd_text(c, "fault").len)
        return err_set(e, ERR_USAGE, "drill -live LEG needs -fault NAME");
    if (seconds < 1)
        return err_set(e, ERR_USAGE, "-for: at least 1s");
    if (!daemon_find(c, &d, e))
        return false;
    arena_init(&a, (size_t)4 << 20);
    signal(SIGINT, drill_live_on_signal);
    signal(SIGTERM, drill_live_on_signal);
    bool ok = drill_live_ask(&d, "POST", drill_live_order(c, seconds), &a, &r, e) &&
              drill_live_wait(c, &d, &a, &r, e);
    if (ok && cmd_bool(c, "json"))
        printf("%.*s\n", STR_ARG(json_raw(r)));
    else if (ok)
        drill_live_print(c, r, &a);
    if (ok && !drill_live_count(r, "hit"))
        fprintf(stderr, "shoal: no request came to be hit: nothing was proved\n");
    if (ok && drill_live_count(r, "failed_with_other"))
        c->exit_code = CMD_EXIT_ERROR;
    fflush(stdout);
    arena_deinit(&a);
    return ok;
}
