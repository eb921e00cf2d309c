#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/version.h"
#include "cli/cmd.h"
#include "cli/config_legs.h"
#include "cli/daemon.h"
#include "cli/reload.h"
#include "cli/run_local.h"
#include "cli/serve_banner.h"
#include "cli/serve_settings.h"
#include "cli/spill.h"
#include "serve/models_leg.h"
#include "serve/public.h"
#include "serve/run_state.h"
#include "serve/server.h"
#include "wire/tls.h"

#define CMD_SERVE_ADDRESSES_MAX SERVER_ADDRESSES_MAX
#define CMD_SERVE_PRELOAD_MAX 16
#define CMD_SERVE_CHILD_GRACE_MS 2000
#define CMD_SERVE_QUEUE_MAX 65536u /* the most that limits.queue may be; exchange holds to it */
#define CMD_SERVE_RUNNING_MAX 4096 /* more sequences than any model runs at once */
#define CMD_SERVE_REPORT_MAX 65536
#define CMD_SERVE_BANNER_MAX ((size_t)4 << 20) /* legs and routes of a file of 1 MiB */

struct cmd_serve {
    const struct cmd_context *c;
    str addresses[CMD_SERVE_ADDRESSES_MAX];
    uint32_t addresses_count;
    bool addresses_are_default;
    struct server_options options;
    struct public_prefixes prefixes;
    struct models_leg_next settings;
    struct legs_config legs_config;
    struct library_entry preload[CMD_SERVE_PRELOAD_MAX];
    uint32_t preload_count;
    struct library_options library;
    struct loop *loop;
    struct models_leg *models;
    struct legs *legs;
    struct run_state *state;
    struct server *server;
    struct reload *reload;
    struct loop_signal on_int, on_term, on_hup;
    int signals;
};

/* --- settings ------------------------------------------------------------------------------ */

static uint32_t cmd_serve_number(const struct cmd_serve *s, const char *key)
{
    return (uint32_t)config_number(s->c->config, key);
}

static uint32_t cmd_serve_auto(const struct cmd_serve *s, const char *key)
{
    return config_is(s->c->config, key, "auto") ? 0 : cmd_serve_number(s, key);
}

static bool cmd_serve_load(const struct cmd_serve *s, struct api_load *l, struct err *e)
{
    const struct config *config = s->c->config;
    *l = (struct api_load){
        .slots = cmd_serve_number(s, "engine.slots"),
        .batch = cmd_serve_number(s, "engine.batch"),
        .step_target_ms = cmd_serve_auto(s, "engine.step_target"),
        .miss_excerpt = (uint32_t)config_number(config, "cache.miss_excerpt"),
        .idle_permille = serve_settings_permille(config, "shadow.share"),
        .no_prefix = !config_is(config, "cache.prefix", "auto"),
        .pin_permille = serve_settings_permille(config, "cache.pin_quota"),
    };
    spill_load(config, s->c->arena, l);
    return run_local_load(config, l, e);
}

/* All that a reload reads too, before anything is opened. */
static bool cmd_serve_check(struct cmd_serve *s, struct err *e)
{
    const struct config_value *shared = config_value(s->c->config, "cache.public");
    /* The sections of the file first, all of them, so that one start tells all that is wrong. */
    bool ok = serve_settings_server(&s->options, s->c, s->c->config, s->c->arena, e);
    ok = serve_settings_models(&s->settings, s->c->config, s->c->arena, e) && ok;
    ok = config_legs_load(&s->legs_config, s->c->config, s->c->arena, e) && ok;
    config_problems_end(s->c->config);
    ok = ok && public_read(&s->prefixes, shared->items, shared->items_count, &s->options.dialect,
                           s->c->arena, e);
    s->options.public_ids = s->prefixes.ids;
    s->options.public_ids_count = s->prefixes.ids_count;
    return ok &&
           serve_settings_tls(&s->options.tls, s->c->config, e);
}

/* Flag or file, SHOAL_ADDR, both loopbacks. Without keys nobody else may reach us. */
static bool cmd_serve_addresses(struct cmd_serve *s, struct err *e)
{
    static const str standard[] = {STR_INIT("127.0.0.1:11500"), STR_INIT("[::1]:11500")};
    const struct config_value *v = config_value(s->c->config, "listen");
    str env = config_env("SHOAL_ADDR");
    const str *from = v->items;
    uint32_t count = v->items_count;
    if (v->source != CONFIG_SOURCE_FLAG && env.len) {
        from = &env;
        count = 1;
    }
    s->addresses_are_default = count == 0;
    if (count == 0) {
        from = standard;
        count = countof(standard);
    }
    if (count > CMD_SERVE_ADDRESSES_MAX)
        return err_set(e, ERR_CONFIG, "listen: %u addresses, at most %d", count,
                       CMD_SERVE_ADDRESSES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        s->addresses[i] = from[i];
        if (http_server_is_loopback(from[i]))
            continue;
        if (s->options.access.keys_count == 0)
            return err_set(e, ERR_CONFIG,
                           "listen %.*s: reachable from other machines, which needs keys",
                           STR_ARG(from[i]));
        if (s->options.tls)
            continue;
        log_warn("listen %.*s: keys and texts go over the network as they are; no TLS",
                 STR_ARG(from[i]));
    }
    s->addresses_count = count;
    return true;
}

static bool cmd_serve_add_preload(struct cmd_serve *s, str name, struct err *e)
{
    struct library_entry *to = &s->preload[s->preload_count];
    if (s->preload_count == CMD_SERVE_PRELOAD_MAX)
        return err_set(e, ERR_USAGE, "serve: at most %d models to load at start",
                       CMD_SERVE_PRELOAD_MAX);
    if (!cmd_models_find(s->c, name, to, e))
        return false;
    if (to->is_safetensors)
        return err_set(e, ERR_UNSUPPORTED, "%.*s: safetensors models are not built yet",
                       STR_ARG(to->name));
    s->preload_count++;
    return true;
}

static bool cmd_serve_preload(struct cmd_serve *s, struct err *e)
{
    const struct config_value *v = config_value(s->c->config, "engine.preload");
    for (uint32_t i = 0; i < s->c->words_count; i++)
        if (!cmd_serve_add_preload(s, s->c->words[i], e))
            return false;
    for (uint32_t i = 0; i < v->items_count; i++)
        if (!cmd_serve_add_preload(s, v->items[i], e))
            return false;
    return true;
}

static bool cmd_serve_log(const struct cmd_serve *s, struct err *e)
{
    struct log_options o;
    if (!serve_settings_log(&o, s->c->config, e))
        return false;
    log_init(&o);
    return true;
}

/* --- what is told at start ----------------------------------------------------------------- */

static bool cmd_serve_banner(const struct cmd_serve *s, bool is_dry, struct err *e)
{
    struct api_load load;
    struct buf out;
    if (!cmd_serve_load(s, &load, e))
        return false;
    const struct serve_banner b = {
        .c = s->c, .models = s->preload, .models_count = s->preload_count,
        .legs = &s->legs_config, .load = &load, .addresses = s->addresses,
        .addresses_count = s->addresses_count, .is_dry = is_dry, .has_tls = s->options.tls};
    buf_init(&out, CMD_SERVE_BANNER_MAX);
    bool ok = serve_banner_add(&out, &b, e);
    if (ok)
        fwrite(out.p, 1, out.len, stdout);
    fflush(stdout);
    buf_deinit(&out);
    return ok;
}

/* --- running ------------------------------------------------------------------------------- */

static void cmd_serve_on_signal(void *ctx)
{
    struct cmd_serve *s = ctx;
    if (s->signals++)
        _exit(CMD_EXIT_SIGTERM); /* the children die with us */
    server_stop(s->server);
}

/* POST /v1/admin/reload. */
static bool cmd_serve_reload(void *ctx, struct buf *report, struct buf *problems, struct err *e)
{
    struct cmd_serve *s = ctx;
    return reload_run(s->reload, report, problems, e);
}

static void cmd_serve_on_hangup(void *ctx)
{
    struct buf report, problems;
    struct err e = {0};
    buf_init(&report, CMD_SERVE_REPORT_MAX);
    buf_init(&problems, CMD_SERVE_REPORT_MAX);
    if (!cmd_serve_reload(ctx, &report, &problems, &e)) { /* the first was logged */
        str rest = buf_view(&problems), line;
        for (bool is_first = true; str_split(&rest, '\n', &line); is_first = false)
            if (!is_first && line.len)
                log_error("reload: %.*s", STR_ARG(line));
    }
    buf_deinit(&report);
    buf_deinit(&problems);
}

static void cmd_serve_on_stopped(void *ctx)
{
    struct cmd_serve *s = ctx;
    loop_stop(s->loop);
}

/* Adds who has the port, where the system tells. */
static bool cmd_serve_name_owner(str address, struct err *e)
{
    uint64_t port;
    size_t colon = address.len;
    while (colon && address.p[colon - 1] != ':')
        colon--;
    int pid = str_to_u64(str_from(address, colon), &port) && port && port <= UINT16_MAX
                  ? daemon_port_owner((uint16_t)port) : 0;
    if (!pid || !strstr(e->text, "in use"))
        return false;
    return err_set(e, e->code, "listen %.*s: the port is in use by process %d", STR_ARG(address),
                   pid);
}

/* A port that was 0 is told as bound. */
static bool cmd_serve_listen(struct cmd_serve *s, struct err *e)
{
    for (uint32_t i = 0; i < s->addresses_count; i++) {
        if (!server_listen(s->server, s->addresses[i], e)) {
            /* A host without IPv6 serves what it has. */
            if (!s->addresses_are_default || i == 0)
                return cmd_serve_name_owner(s->addresses[i], e);
            log_info("%s", e->text);
            s->addresses_count = i;
            return true;
        }
        str host = s->addresses[i];
        if (str_ends(host, STR(":0")))
            s->addresses[i] = arena_printf(s->c->arena, "%.*s:%u",
                                           STR_ARG(str_sub(host, 0, host.len - 2)),
                                           server_port(s->server, i));
    }
    return true;
}

static void cmd_serve_raise_files(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
}

static bool cmd_serve_open_models(struct cmd_serve *s, struct server_options *o, struct err *e)
{
    static const char *const argv[] = {"shoal", "engine", NULL};
    const struct config *config = s->c->config;
    cmd_models_options(s->c, &s->library);
    struct models_leg_options m = {
        .loop = s->loop, .build_id = run_local_build_id(s->c->arena), .argv = argv,
        .library = &s->library, .aliases = s->settings.aliases,
        .aliases_count = s->settings.aliases_count, .settings = s->settings.settings,
        .settings_count = s->settings.settings_count,
        .prefixes = s->prefixes.rows, .prefixes_count = s->prefixes.count,
        .resident_max = cmd_serve_number(s, "engine.resident"),
        .waiting_max = CMD_SERVE_QUEUE_MAX + CMD_SERVE_RUNNING_MAX,
        .keep_alive_ms = config_number(config, "engine.keep_alive"),
        .min_residency_ms = config_number(config, "engine.min_residency"),
        .swap_wait_ms = config_number(config, "engine.swap_wait"),
        .engine_stall_ms = o->engine_stall_ms,
        .load_stall_ms = config_number(config, "deadlines.load_stall")};
    if (!cmd_serve_load(s, &m.load, e) || !models_leg_open(&s->models, &m, e))
        return false;
    if (m.load.spill.len)
        o->spill_dir = arena_copy(s->c->arena, m.load.spill).p;
    for (uint32_t i = 0; i < s->preload_count; i++) {
        if (!models_leg_add(s->models, &s->preload[i], e))
            return false;
        models_leg_preload(s->models, s->preload[i].name);
    }
    return true;
}

static void cmd_serve_on_leg(void *ctx)
{
    struct cmd_serve *s = ctx;
    run_state_mark(s->state);
}

/* Beside the pid file of `run`: ~/.shoal/run/PORT.state. Without legs there is nothing to keep. */
static bool cmd_serve_open_state(struct cmd_serve *s, struct err *e)
{
    struct arena *a = s->c->arena;
    str dir = file_expand_home(a, STR("~/.shoal/run"), config_home(a));
    uint16_t port = server_port(s->server, 0);
    if (!legs_rows(s->legs) || !port || !dir.p)
        return true;
    struct err why = {0};
    str path = arena_printf(a, "%.*s/%u.state", STR_ARG(dir), port);
    if (!dir.len) {
        log_warn("states of legs are not kept: there is no home directory");
        return true;
    }
    if (!path.p || !file_make_dirs(dir.p, 0700, &why)) {
        log_warn("states of legs are not kept: %s", why.text);
        return true;
    }
    return run_state_open(&s->state, s->loop, s->legs, path.p, e);
}

static bool cmd_serve_open_legs(struct cmd_serve *s, struct err *e)
{
    struct legs_options o = {.loop = s->loop, .models = s->models, .on_change = cmd_serve_on_leg,
                             .ctx = s};
    struct legs_generation *g;
    if (!legs_open(&s->legs, &o, e) || !legs_prepare(s->legs, &s->legs_config, &g, e))
        return false;
    legs_apply(s->legs, g);
    return true;
}

static bool cmd_serve_open(struct cmd_serve *s, struct server_options *o, struct err *e)
{
    if (!cmd_serve_open_models(s, o, e) || !cmd_serve_open_legs(s, e))
        return false;
    o->loop = s->loop;
    o->models = s->models;
    o->legs = s->legs;
    o->on_stopped = cmd_serve_on_stopped;
    o->reload = cmd_serve_reload;
    o->ctx = s;
    if (!server_open(&s->server, o, e))
        return false;
    struct reload_target t = {.c = s->c, .server = s->server, .models = s->models,
                              .parts = serve_settings_parts};
    return reload_open(&s->reload, &t, s->c->config, e) && cmd_serve_listen(s, e) &&
           cmd_serve_open_state(s, e) &&
           loop_signal_open(&s->on_int, s->loop, SIGINT, cmd_serve_on_signal, s, e) &&
           loop_signal_open(&s->on_term, s->loop, SIGTERM, cmd_serve_on_signal, s, e) &&
           loop_signal_open(&s->on_hup, s->loop, SIGHUP, cmd_serve_on_hangup, s, e);
}

static bool cmd_serve_loop(struct cmd_serve *s, struct err *e)
{
    struct server_options o = s->options;
    struct buf version;
    bool has_bf16;
    buf_init(&version, 16384);
    cmd_version_put(&version);
    o.version = buf_view(&version);
    o.version_text = STR(VERSION_TEXT);
    o.isa = str_of(machine_level_name(machine_level(&has_bf16)));
    signal(SIGPIPE, SIG_IGN);
    cmd_serve_raise_files();
    bool ok = loop_open(&s->loop, e) && cmd_serve_open(s, &o, e);
    ok = ok && cmd_serve_banner(s, false, e) && loop_run(s->loop, e);
    server_close(s->server);
    run_state_close(s->state);
    legs_close(s->legs);
    models_leg_close(s->models, CMD_SERVE_CHILD_GRACE_MS);
    reload_close(s->reload);
    loop_signal_close(&s->on_int);
    loop_signal_close(&s->on_term);
    loop_signal_close(&s->on_hup);
    loop_close(s->loop);
    buf_deinit(&version);
    return ok;
}

static bool cmd_serve_run(struct cmd_context *c, struct err *e)
{
    struct cmd_serve s = {.c = c};
    if (!cmd_serve_check(&s, e) || !cmd_serve_addresses(&s, e) || !cmd_serve_preload(&s, e))
        return false;
    if (cmd_bool(c, "dry-run")) {
        bool ok = cmd_serve_banner(&s, true, e);
        tls_close(s.options.tls);
        return ok;
    }
    return cmd_serve_log(&s, e) && cmd_serve_loop(&s, e);
}

static const struct cmd_flag cmd_serve_flags[] = {
    {.name = "dry-run", .spec = {.type = CONFIG_TYPE_BOOL}, .standard = "false",
     .help = "check everything, say what would be served, end"},
    {.name = "key-file", .value = "PATH", .spec = {.type = CONFIG_TYPE_PATH},
     .is_repeatable = true, .help = "a key for the scopes infer and read; repeatable"},
    {.name = "flex", .spec = {.type = CONFIG_TYPE_BOOL}, .standard = "false",
     .help = "no effect: pages need no division into slots"},
};

const struct cmd cmd_serve = {
    .name = "serve",
    .words = "[MODEL...]",
    .words_max = CMD_SERVE_PRELOAD_MAX,
    .summary = "Answer HTTP requests",
    .flags_anywhere = true,
    .flags = cmd_serve_flags,
    .flags_count = countof(cmd_serve_flags),
    .run = cmd_serve_run,
};
