#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "arch/arch.h"
#include "base/chrono.h"
#include "base/file.h"
#include "cli/cmd.h"
#include "store/hub_net.h"
#include "store/pull.h"

#define PULL_ARENA_MAX ((size_t)512 << 20)
#define PULL_TOKEN_MAX 4096u
#define PULL_DRAW_MS 100    /* on a terminal */
#define PULL_LINE_MS 10000  /* elsewhere */
#define PULL_RATE_MS 5000   /* the rate is that of the last seconds */

/* --- which hub, as whom --- */

static str cmd_pull_trim_slash(str url)
{
    while (url.len && url.p[url.len - 1] == '/')
        url.len--;
    return url;
}

static str cmd_pull_endpoint(const struct cmd_context *c)
{
    const struct config_value *v = config_value(c->config, "hub.endpoint");
    str shoal = config_env("SHOAL_HUB"), hf = config_env("HF_ENDPOINT");
    if (v->source == CONFIG_SOURCE_ENV)
        return v->text;
    return shoal.len ? shoal : hf.len ? hf : v->text;
}

/* HF_TOKEN, hub.token_file, or what the hub's own tools have left; the last may be missing. */
static bool cmd_pull_token(const struct cmd_context *c, str *out, struct err *e)
{
    str path = config_text(c->config, "hub.token_file"), text;
    str home = config_home(c->arena), hf_home = config_env("HF_HOME");
    struct err why = {0};
    *out = str_trim(config_env("HF_TOKEN"));
    if (out->len)
        return true;
    if (path.len) {
        if (!file_read(&text, path.p, PULL_TOKEN_MAX, c->arena, e))
            return err_wrap(e, "hub.token_file");
        *out = str_trim(text);
        return true;
    }
    path = hf_home.len ? file_join(c->arena, hf_home, STR("token"))
                       : file_join(c->arena, home, STR(".cache/huggingface/token"));
    if (path.p && home.len && file_read(&text, path.p, PULL_TOKEN_MAX, c->arena, &why))
        *out = str_trim(text);
    return true;
}

bool cmd_pull_hub(const struct cmd_context *c, struct hub_net_options *out, struct err *e)
{
    const struct config_value *mirrors = config_value(c->config, "hub.mirrors");
    str *endpoints = ARENA_ARRAY(c->arena, str, (size_t)mirrors->items_count + 1);
    str token;
    if (!endpoints)
        return err_set(e, ERR_MEMORY, "the configuration is too large");
    if (!cmd_pull_token(c, &token, e))
        return false;
    endpoints[0] = cmd_pull_trim_slash(cmd_pull_endpoint(c));
    for (uint32_t i = 0; i < mirrors->items_count; i++)
        endpoints[i + 1] = cmd_pull_trim_slash(mirrors->items[i]);
    *out = (struct hub_net_options){
        .endpoints = endpoints,
        .endpoints_count = mirrors->items_count + 1,
        .token = token,
        .ca_file = config_text(c->config, "hub.ca_file"),
        .proxy_http = config_env("HTTP_PROXY"),
        .proxy_https = config_env("HTTPS_PROXY"),
        .no_proxy = config_env("NO_PROXY"),
        .retry_ms = config_number(c->config, "hub.retry"),
        .idle_ms = config_number(c->config, "hub.idle"),
        .calls_max = 4,
    };
    return true;
}

bool cmd_pull_supports(void *ctx, str model_type)
{
    (void)ctx, (void)model_type;
    return false; /* safetensors are listed, and refused by name when they are loaded */
}

/* --- progress --- */

struct cmd_pull_view {
    struct cmd_context *c;
    bool is_terminal, is_drawn;
    int64_t told_ms, rate_ms, rate;
    uint64_t rate_bytes;
    struct pull_progress last;
};

static volatile sig_atomic_t cmd_pull_signal; /* the number that came; a handler can do no more */

static void cmd_pull_on_signal(int number) { cmd_pull_signal = number; }

static bool cmd_pull_is_stopped(void *ctx)
{
    (void)ctx;
    return cmd_pull_signal != 0;
}

static void cmd_pull_erase(struct cmd_pull_view *v)
{
    if (v->is_drawn)
        fputs("\r\x1b[K", stderr);
    v->is_drawn = false;
}

static void cmd_pull_on_note(void *ctx, str sentence)
{
    struct cmd_pull_view *v = ctx;
    struct buf b;
    buf_init(&b, 4096);
    buf_add_printable(&b, sentence);
    cmd_pull_erase(v);
    fprintf(stderr, "shoal: %s\n", b.p ? b.p : "");
    buf_deinit(&b);
}

static void cmd_pull_add_time(struct buf *out, int64_t seconds)
{
    if (seconds >= 3600)
        buf_printf(out, "%lldh%02lldm", (long long)(seconds / 3600),
                   (long long)(seconds / 60 % 60));
    else if (seconds >= 60)
        buf_printf(out, "%lldm%02llds", (long long)(seconds / 60), (long long)(seconds % 60));
    else
        buf_printf(out, "%llds", (long long)seconds);
}

static void cmd_pull_measure(struct cmd_pull_view *v, const struct pull_progress *p, int64_t now)
{
    int64_t span = now - v->rate_ms;
    if (p->phase != v->last.phase || p->done < v->rate_bytes) {
        v->rate_ms = now;
        v->rate_bytes = p->done;
        v->rate = 0;
    } else if (span >= 500) {
        int64_t rate = (int64_t)(p->done - v->rate_bytes) * 1000 / span;
        v->rate = v->rate && span < PULL_RATE_MS ? (v->rate * 3 + rate) / 4 : rate;
        v->rate_ms = now;
        v->rate_bytes = p->done;
    }
}

static const char *cmd_pull_phase(enum pull_phase phase)
{
    switch (phase) {
    case PULL_LIST:
        return "asking the hub";
    case PULL_CHECK:
        return "comparing what is here";
    case PULL_WAIT:
        return "another pull";
    case PULL_FETCH:
        return "";
    case PULL_VERIFY:
        return "checking sha256";
    }
    return "";
}

static void cmd_pull_add_line(struct buf *out, const struct cmd_pull_view *v,
                              const struct pull_progress *p)
{
    const char *phase = cmd_pull_phase(p->phase);
    if (p->phase == PULL_LIST) {
        buf_add_z(out, phase);
        return;
    }
    if (p->files_count > 1)
        buf_printf(out, "[%u/%u] ", p->file_number, p->files_count);
    buf_add_printable(out, p->file);
    uint64_t done = p->phase == PULL_FETCH || p->phase == PULL_WAIT ? p->done : p->file_done;
    uint64_t size = p->phase == PULL_FETCH || p->phase == PULL_WAIT ? p->size : p->file_size;
    if (phase[0])
        buf_printf(out, "  %s", phase);
    buf_printf(out, "  %3u %%  ", size ? (unsigned)(done * 100 / size) : 100u);
    cmd_models_add_share(out, done, size);
    if (v->rate <= 0 || p->phase == PULL_CHECK || p->phase == PULL_VERIFY)
        return;
    buf_add_z(out, "  ");
    buf_add_size(out, (uint64_t)v->rate);
    buf_add_z(out, "/s  ");
    cmd_pull_add_time(out, (int64_t)(size - done) / v->rate);
}

static int64_t cmd_pull_columns(void)
{
    int64_t columns;
    return str_to_i64(config_env("COLUMNS"), &columns) && columns > 20 ? columns : 80;
}

static void cmd_pull_on_progress(void *ctx, const struct pull_progress *p)
{
    struct cmd_pull_view *v = ctx;
    int64_t now = chrono_ms(&chrono_real);
    struct buf line;
    cmd_pull_measure(v, p, now);
    bool is_new = p->phase != v->last.phase || p->file_number != v->last.file_number;
    bool is_due = now - v->told_ms >= (v->is_terminal ? PULL_DRAW_MS : PULL_LINE_MS);
    v->last = *p;
    if (!is_due && !(is_new && v->is_terminal))
        return;
    v->told_ms = now;
    buf_init(&line, 4096);
    cmd_pull_add_line(&line, v, p);
    if (v->is_terminal) {
        int64_t room = cmd_pull_columns() - 1;
        str shown = str_sub(buf_view(&line), 0, (size_t)room);
        shown.len = str_utf8_complete(shown);
        fprintf(stderr, "\r%.*s\x1b[K", STR_ARG(shown));
        fflush(stderr);
        v->is_drawn = true;
    } else {
        fprintf(stderr, "%s\n", line.p ? line.p : "");
    }
    buf_deinit(&line);
}

/* --- the command --- */

static void cmd_pull_print(const struct pull_result *r, bool is_dry)
{
    struct buf b;
    buf_init(&b, 64u << 20);
    for (uint32_t i = 0; i < r->count; i++) {
        buf_add_printable(&b, r->items[i].path);
        if (is_dry) {
            buf_add_z(&b, "  ");
            buf_add_size(&b, r->items[i].size);
            buf_add_z(&b, r->items[i].is_there ? "  there" : "  to fetch");
        }
        buf_add_byte(&b, '\n');
    }
    if (b.len)
        fwrite(b.p, 1, b.len, stdout);
    fflush(stdout);
    buf_deinit(&b);
}

static bool cmd_pull_one(struct cmd_context *c, str reference, struct pull_options *o,
                         struct err *e)
{
    struct arena arena;
    struct pull_result result;
    struct cmd_pull_view view = {.c = c, .is_terminal = cmd_is_terminal(STDERR_FILENO)};
    view.told_ms = chrono_ms(&chrono_real);
    o->reference = reference;
    o->ctx = o->net.ctx = &view;
    arena_init(&arena, PULL_ARENA_MAX);
    bool ok = pull_run(&result, o, &arena, e);
    cmd_pull_erase(&view);
    if (ok)
        cmd_pull_print(&result, o->is_dry);
    else if (e->code == ERR_CANCELLED && view.last.size) {
        struct buf b;
        buf_init(&b, 1024);
        cmd_models_add_share(&b, view.last.done, view.last.size);
        err_set(e, ERR_CANCELLED, "stopped at %s; the same command goes on there",
                b.p ? b.p : "");
        buf_deinit(&b);
    }
    arena_deinit(&arena);
    return ok;
}

static void cmd_pull_complain(const struct err *e)
{
    struct buf b;
    buf_init(&b, 4096);
    buf_add_printable(&b, str_of(e->text));
    fprintf(stderr, "shoal: %s\n", b.p ? b.p : "");
    buf_deinit(&b);
}

static bool cmd_pull_run(struct cmd_context *c, struct err *e)
{
    struct sigaction on_signal = {.sa_handler = cmd_pull_on_signal};
    struct pull_options o = {
        .revision = cmd_text(c, "rev"),
        .file = cmd_text(c, "file"),
        .store = config_text(c->config, "store"),
        .wants_projector = cmd_bool(c, "mmproj"),
        .is_dry = cmd_bool(c, "dry-run"),
        .connections = (uint32_t)cmd_number(c, "connections"),
        .piece_size = (uint64_t)config_number(c->config, "hub.piece"),
        .supports = cmd_pull_supports,
        .on_progress = cmd_pull_on_progress,
    };
    if (!o.store.len)
        return err_set(e, ERR_CONFIG, "pull: no home directory, so `store` must say where to");
    if (!cmd_pull_hub(c, &o.net, e))
        return false;
    o.net.is_stopped = cmd_pull_is_stopped;
    o.net.on_note = cmd_pull_on_note;
    sigaction(SIGINT, &on_signal, NULL);
    sigaction(SIGTERM, &on_signal, NULL);
    for (uint32_t i = 0; i < c->words_count && !cmd_pull_signal; i++) {
        struct err why = {0};
        if (cmd_pull_one(c, c->words[i], &o, &why))
            continue;
        if (c->words_count == 1 && !cmd_pull_signal) {
            *e = why;
            return false;
        }
        cmd_pull_complain(&why); /* the others are tried all the same */
        c->exit_code = CMD_EXIT_ERROR;
    }
    if (cmd_pull_signal)
        c->exit_code = cmd_pull_signal == SIGINT ? CMD_EXIT_SIGINT : CMD_EXIT_SIGTERM;
    return true;
}

static const struct cmd_flag cmd_pull_flags[] = {
    {.name = "connections",
     .value = "N",
     .spec = {.type = CONFIG_TYPE_INT, .min = 1, .max = PULL_CONNECTIONS_MAX},
     .standard = "8",
     .help = "pieces fetched at the same time"},
    {.name = "mmproj",
     .spec = {.type = CONFIG_TYPE_BOOL},
     .standard = "false",
     .help = "also the projector, for images"},
    {.name = "rev",
     .value = "REV",
     .spec = {.type = CONFIG_TYPE_TEXT},
     .help = "branch, tag or commit (main)"},
    {.name = "file",
     .value = "NAME",
     .spec = {.type = CONFIG_TYPE_TEXT},
     .help = "this file of the repository; a piece stands for its set"},
    {.name = "dry-run",
     .spec = {.type = CONFIG_TYPE_BOOL},
     .standard = "false",
     .help = "say what would be fetched"},
};

const struct cmd cmd_pull = {
    .name = "pull",
    .words = "REF...",
    .words_min = 1,
    .words_max = 1000,
    .summary = "Fetch models from a hub into our store, going on where it stopped",
    .text = "REF is owner/repo[@REV][:QUANT], the same behind hf.co/, or the address of a file on "
            "the hub.\nWithout QUANT: Q4_K_M, else the first GGUF file. All pieces of a set come "
            "together.\nHF_TOKEN opens private and gated repositories; HF_ENDPOINT, HTTPS_PROXY, "
            "NO_PROXY are honoured.",
    .flags = cmd_pull_flags,
    .flags_count = countof(cmd_pull_flags),
    .flags_anywhere = true,
    .run = cmd_pull_run,
};
