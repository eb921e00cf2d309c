#include <signal.h>
#include <stdio.h>

#include "base/file.h"
#include "cli/cmd.h"
#include "cli/stub_upstream.h"

static void cmd_stub_on_signal(void *ctx) { loop_stop(ctx); }

static bool cmd_stub_serve(struct loop *l, const struct stub_upstream_options *o, str fault,
                           struct err *e)
{
    struct loop_signal on_int = {.event = NULL}, on_term = {.event = NULL};
    struct stub_upstream *s = NULL;
    bool ok = loop_signal_open(&on_int, l, SIGINT, cmd_stub_on_signal, l, e) &&
              loop_signal_open(&on_term, l, SIGTERM, cmd_stub_on_signal, l, e) &&
              stub_upstream_open(&s, o, e) && stub_upstream_set(s, fault, e);
    if (ok) {
        printf("stub on http://127.0.0.1:%u\n", stub_upstream_port(s));
        fflush(stdout);
        ok = loop_run(l, e);
    }
    stub_upstream_close(s);
    loop_signal_close(&on_int);
    loop_signal_close(&on_term);
    return ok;
}

static bool cmd_stub_run(struct cmd_context *c, struct err *e)
{
    struct loop *l = NULL;
    char listen[32];
    if (!loop_open(&l, e))
        return false;
    signal(SIGPIPE, SIG_IGN);
    snprintf(listen, sizeof listen, "127.0.0.1:%u", (unsigned)cmd_number(c, "port"));
    struct stub_upstream_options o = {
        .loop = l, .listen = str_of(listen), .seed = (uint64_t)cmd_number(c, "seed"),
        .words = (uint32_t)cmd_number(c, "words"), .gap_ms = (uint32_t)cmd_number(c, "gap")};
    str path = cmd_text(c, "text");
    bool ok = (!path.len || file_read(&o.text, path.p, STUB_UPSTREAM_TEXT_MAX, c->arena, e)) &&
              cmd_stub_serve(l, &o, cmd_text(c, "fault"), e);
    loop_close(l);
    return ok;
}

static const struct cmd_flag cmd_stub_flags[] = {
    {.name = "port", .value = "N", .spec = {.type = CONFIG_TYPE_INT, .max = 65535},
     .standard = "0", .help = "port on loopback; 0: any, printed"},
    {.name = "seed", .value = "N", .spec = {.type = CONFIG_TYPE_INT, .max = 1 << 30},
     .standard = "1", .help = "decides the text"},
    {.name = "words", .value = "N", .spec = {.type = CONFIG_TYPE_INT, .min = 1, .max = 100000},
     .standard = "40", .help = "of a whole reply"},
    {.name = "text", .value = "PATH", .spec = {.type = CONFIG_TYPE_TEXT}, .standard = "",
     .help = "a file that is said instead of numbered words"},
    {.name = "gap", .value = "MS", .spec = {.type = CONFIG_TYPE_INT, .max = 60000},
     .standard = "0", .help = "between two words"},
    {.name = "fault", .value = "FAULT", .spec = {.type = CONFIG_TYPE_TEXT}, .standard = "",
     .help = "of every request: stall=12, status=503, ..."},
};

const struct cmd cmd_stub = {
    .name = "stub",
    .summary = "An upstream that fails as it is told to, for rehearsals and tests",
    .flags = cmd_stub_flags,
    .flags_count = countof(cmd_stub_flags),
    .is_hidden = true,
    .run = cmd_stub_run,
};
