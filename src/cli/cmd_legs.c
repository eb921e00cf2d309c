#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/chrono.h"
#include "base/json.h"
#include "cli/daemon.h"

#define CMD_LEGS_ASK_MS 5000
#define CMD_LEGS_WATCH_MS 1000
#define CMD_LEGS_DEPTH 32

static str cmd_legs_text(struct json row, const char *key, struct arena *a)
{
    struct json v = json_member(row, key);
    return json_kind(v) == JSON_KIND_STRING ? json_text(v, a) : STR("-");
}

static int64_t cmd_legs_number(struct json row, const char *key)
{
    int64_t n = 0;
    return json_i64(json_member(row, key), &n) ? n : 0;
}

/* "12s", "5m", "3h" from or until now; "-" where there is no such moment. */
static str cmd_legs_age(struct json row, const char *key, struct arena *a)
{
    int64_t at = cmd_legs_number(row, key);
    if (!at)
        return STR("-");
    int64_t s = chrono_unix_ms(&chrono_real) - at;
    s = (s < 0 ? -s : s) / 1000;
    return s < 120      ? arena_printf(a, "%llds", (long long)s)
           : s < 7200   ? arena_printf(a, "%lldm", (long long)(s / 60))
           : s < 172800 ? arena_printf(a, "%lldh", (long long)(s / 3600))
                        : arena_printf(a, "%lldd", (long long)(s / 86400));
}

static void cmd_legs_cell(struct buf *out, str text, size_t width)
{
    size_t before = out->len;
    buf_add_printable(out, text);
    size_t len = out->len - before;
    buf_printf(out, "%*s  ", len < width ? (int)(width - len) : 0, "");
}

/* "cut 12s ago: upstream: the reply ended..." below the leg's row. */
static void cmd_legs_error(struct buf *out, struct json row, struct arena *a)
{
    struct json e = json_member(row, "last_error");
    if (json_kind(e) != JSON_KIND_OBJECT)
        return;
    buf_printf(out, "%18slast error: %.*s, %.*s ago: ", "",
               STR_ARG(cmd_legs_text(e, "class", a)), STR_ARG(cmd_legs_age(e, "at", a)));
    buf_add_printable(out, cmd_legs_text(e, "text", a));
    buf_add_byte(out, '\n');
}

static void cmd_legs_row(struct buf *out, struct json row, struct arena *a)
{
    struct json first = json_member(row, "ttft_ms");
    cmd_legs_cell(out, cmd_legs_text(row, "name", a), 16);
    cmd_legs_cell(out, cmd_legs_text(row, "kind", a), 8);
    cmd_legs_cell(out, cmd_legs_text(row, "state", a), 13);
    cmd_legs_cell(out, cmd_legs_age(row, "since", a), 6);
    cmd_legs_cell(out, cmd_legs_age(row, "until", a), 6);
    cmd_legs_cell(out, cmd_legs_text(row, "reason", a), 12);
    cmd_legs_cell(out, arena_printf(a, "%lld/%lld ms", (long long)cmd_legs_number(first, "p50"),
                                    (long long)cmd_legs_number(first, "p95")), 16);
    buf_printf(out, "%8lld  %8lld  ", (long long)cmd_legs_number(row, "inflight"),
               (long long)cmd_legs_number(row, "openings"));
    cmd_legs_cell(out, cmd_legs_text(row, "model", a), 0);
    buf_add_byte(out, '\n');
    cmd_legs_error(out, row, a);
}

/* "model=claude-* agent=batch-*" or "everything". */
static void cmd_legs_match(struct buf *out, struct json match, struct arena *a)
{
    struct json_walk w = json_walk(match);
    bool is_any = true;
    while (json_next(&w)) {
        if (json_kind(w.value) != JSON_KIND_STRING)
            continue;
        buf_printf(out, "%s%.*s=", is_any ? "" : " ", STR_ARG(json_text(w.key, a)));
        buf_add_printable(out, json_text(w.value, a));
        is_any = false;
    }
    if (is_any)
        buf_add_z(out, "everything");
}

static void cmd_legs_entries(struct buf *out, struct json legs, struct arena *a, int depth)
{
    struct json_walk w = json_walk(legs);
    for (bool is_first = true; json_next(&w); is_first = false) {
        buf_add_z(out, is_first ? "" : depth ? " = " : " > ");
        if (json_kind(w.value) == JSON_KIND_ARRAY && depth == 0) {
            buf_add_byte(out, '(');
            cmd_legs_entries(out, w.value, a, depth + 1);
            buf_add_byte(out, ')');
        } else {
            buf_add_printable(out, json_text(w.value, a));
        }
    }
}

static void cmd_legs_table(struct buf *out, struct json body, struct arena *a)
{
    struct json_walk legs = json_walk(json_member(body, "legs"));
    struct json_walk routes = json_walk(json_member(body, "routes"));
    buf_printf(out, "%-16s  %-8s  %-13s  %-6s  %-6s  %-12s  %-16s  %8s  %8s  %s\n", "LEG", "KIND",
               "STATE", "SINCE", "UNTIL", "REASON", "FIRST-TOKEN", "INFLIGHT", "OPENINGS", "MODEL");
    while (json_next(&legs))
        cmd_legs_row(out, legs.value, a);
    buf_add_z(out, "\nROUTE\n");
    while (json_next(&routes)) {
        cmd_legs_match(out, json_member(routes.value, "match"), a);
        buf_add_z(out, ": ");
        cmd_legs_entries(out, json_member(routes.value, "legs"), a, 0);
        buf_add_z(out, "; now ");
        buf_add_printable(out, cmd_legs_text(routes.value, "active", a));
        buf_add_byte(out, '\n');
    }
}

static bool cmd_legs_show(const struct cmd_context *c, const struct daemon *d, struct err *e)
{
    struct daemon_question q = {.method = "GET", .path = "/v1/routes",
                                .timeout_ms = CMD_LEGS_ASK_MS};
    const struct json_options o = {.depth_max = CMD_LEGS_DEPTH};
    struct daemon_answer answer;
    struct arena a;
    struct json body;
    struct buf out;
    if (!daemon_ask_server(d, &q, &answer, e))
        return false;
    arena_init(&a, (size_t)64 << 20);
    buf_init(&out, (size_t)16 << 20);
    bool ok = answer.status == 200 || daemon_refused(&answer, e);
    if (ok && cmd_bool(c, "json")) {
        buf_add(&out, buf_view(&answer.body));
        buf_add_byte(&out, '\n');
    } else if (ok) {
        ok = json_parse(&body, buf_view(&answer.body), &o, &a, e) ||
             err_wrap(e, "legs: the server's answer");
        if (ok)
            cmd_legs_table(&out, body, &a);
    }
    if (ok)
        fwrite(out.p, 1, out.len, stdout);
    fflush(stdout);
    buf_deinit(&out);
    arena_deinit(&a);
    buf_deinit(&answer.body);
    return ok;
}

static bool cmd_legs_run(struct cmd_context *c, struct err *e)
{
    struct daemon d;
    bool watches = cmd_bool(c, "watch");
    if (!daemon_find(c, &d, e))
        return false;
    if (!watches)
        return cmd_legs_show(c, &d, e);
    for (;;) { /* until the user or the server ends it */
        if (cmd_is_terminal(fileno(stdout)))
            fputs("\033[H\033[2J", stdout);
        if (!cmd_legs_show(c, &d, e))
            return false;
        poll(NULL, 0, CMD_LEGS_WATCH_MS);
    }
}

static const struct cmd_flag cmd_legs_flags[] = {
    {.name = "watch", .spec = {.type = CONFIG_TYPE_BOOL}, .standard = "false",
     .help = "again every second"},
};

const struct cmd cmd_legs = {
    .name = "legs",
    .summary = "Legs and routes of a running server: states, reasons, first tokens",
    .flags = cmd_legs_flags,
    .flags_count = countof(cmd_legs_flags),
    .has_json = true,
    .takes_server = true,
    .run = cmd_legs_run,
};
