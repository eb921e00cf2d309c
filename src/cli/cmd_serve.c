#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/machine.h"
#include "base/version.h"
#include "cli/cmd.h"
#include "cli/config_keys.h"
#include "cli/daemon.h"
#include "cli/run_local.h"
#include "serve/models_leg.h"
#include "serve/server.h"

#define CMD_SERVE_ADDRESSES_MAX SERVER_ADDRESSES_MAX
#define CMD_SERVE_PRELOAD_MAX 16
#define CMD_SERVE_CHILD_GRACE_MS 2000
#define CMD_SERVE_RUNNING_MAX 4096 /* more sequences than any model runs at once */
#define CMD_SERVE_OUTPUT_HIGH ((size_t)4 << 20) /* BEHAVIOUR 8.7: then the sequence pauses */
#define CMD_SERVE_PIPELINE_MAX ((size_t)256 << 10)
#define CMD_SERVE_IDLE_MS 75000 /* a kept connection without a request */

struct cmd_serve {
    const struct cmd_context *c;
    str addresses[CMD_SERVE_ADDRESSES_MAX];
    uint32_t addresses_count;
    bool addresses_are_default;
    struct config_keys keys;
    struct library_entry preload[CMD_SERVE_PRELOAD_MAX];
    uint32_t preload_count;
    struct library_options library;
    struct api_load load;
    struct loop *loop;
    struct models_leg *models;
    struct server *server;
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
        .no_prefix = !config_is(config, "cache.prefix", "auto"),
        .kv = config_is(config, "engine.kv", "int8") ? API_KV_INT8 : API_KV_F16,
    };
    return run_local_load(config, l, e);
}

static bool cmd_serve_check(const struct cmd_serve *s, struct err *e)
{
    str version = config_text(s->c->config, "ollama_version");
    for (size_t i = 0; i < version.len; i++)
        if (!strchr("0123456789.", version.p[i]))
            return err_set(e, ERR_CONFIG, "ollama_version: digits and points expected, got %.*s",
                           STR_ARG(str_sub(version, 0, 40)));
    return true;
}

static bool cmd_serve_keys(struct cmd_serve *s, struct err *e)
{
    return config_keys_load(&s->keys, s->c->config, cmd_value(s->c, "key-file"), s->c->arena, e);
}

static void cmd_serve_access(const struct cmd_serve *s, struct limits_options *o)
{
    const struct config_value *hosts = config_value(s->c->config, "allowed_hosts");
    const struct config_value *origins = config_value(s->c->config, "allowed_origins");
    *o = (struct limits_options){.keys = s->keys.keys, .keys_count = s->keys.count,
                                 .hosts = hosts->items, .hosts_count = hosts->items_count,
                                 .origins = origins->items,
                                 .origins_count = origins->items_count};
}

static void cmd_serve_limits(const struct cmd_serve *s, struct server_options *o)
{
    cmd_serve_access(s, &o->access);
    o->dialect = dialect_limits_default;
    o->dialect.messages_max = cmd_serve_number(s, "limits.messages");
    o->dialect.tools_max = cmd_serve_number(s, "limits.tools");
    o->dialect.stop_max = cmd_serve_number(s, "limits.stop");
    o->dialect.n_max = cmd_serve_number(s, "limits.n");
    o->dialect.keeps_client_header = !config_bool(s->c->config, "cache.normalise.client_header");
    o->http = (struct http_limits){
        .header_size_max = cmd_serve_number(s, "limits.headers"),
        .pipeline_size_max = CMD_SERVE_PIPELINE_MAX,
        .output_high = CMD_SERVE_OUTPUT_HIGH, .output_low = CMD_SERVE_OUTPUT_HIGH / 4,
        .header_time_ms = cmd_serve_number(s, "limits.header_time"),
        .idle_time_ms = CMD_SERVE_IDLE_MS,
        .upload_idle_ms = cmd_serve_number(s, "limits.upload_idle"),
        .reader_idle_ms = cmd_serve_number(s, "limits.reader_idle"),
    };
    o->connections_max = cmd_serve_number(s, "limits.connections");
    o->queue_max = cmd_serve_number(s, "limits.queue");
    o->body_max = (uint64_t)config_number(s->c->config, "limits.body");
    o->ingress_max = (uint64_t)config_number(s->c->config, "limits.ingress");
    bool replays = config_bool(s->c->config, "cache.replay");
    o->replay_size = replays ? (size_t)config_number(s->c->config, "cache.replay_size") : 0;
    o->replay_ttl_ms = config_number(s->c->config, "cache.replay_ttl");
    o->ping_ms = config_number(s->c->config, "limits.ping");
    o->defer_ms = config_number(s->c->config, "limits.defer_headers");
    o->total_ms = config_number(s->c->config, "deadlines.total");
    o->wait_ms = config_number(s->c->config, "deadlines.max_wait");
    o->gen_ms = config_number(s->c->config, "deadlines.max_gen");
    o->grace_ms = config_number(s->c->config, "limits.grace");
    o->engine_stall_ms = config_number(s->c->config, "deadlines.engine_stall");
    str overlong = config_text(s->c->config, "limits.overlong_status");
    o->overlong_status = str_eq_z(overlong, "413") ? 413 : str_eq_z(overlong, "400") ? 400 : 0;
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
        if (s->keys.count == 0)
            return err_set(e, ERR_CONFIG,
                           "listen %.*s: reachable from other machines, which needs keys",
                           STR_ARG(from[i]));
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
    const struct config_value *file = config_value(s->c->config, "logging.file");
    struct log_options o = {.fd = STDERR_FILENO, .name = "serve"};
    must(log_level_parse(config_text(s->c->config, "logging.level"), &o.level));
    o.form = config_is(s->c->config, "logging.format", "json") ? LOG_FORM_JSON : LOG_FORM_TEXT;
    if (file->is_set) {
        o.fd = open(file->text.p, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (o.fd < 0)
            return err_set_errno(e, errno, "logging.file %.*s", STR_ARG(file->text));
    }
    log_init(&o);
    return true;
}

/* --- what is told at start ----------------------------------------------------------------- */

static void cmd_serve_banner(const struct cmd_serve *s, bool is_dry)
{
    str first = s->addresses[0];
    printf("shoal %s\n", VERSION_TEXT);
    for (uint32_t i = 0; i < s->preload_count; i++)
        printf("%-10s %.*s\n", i ? "" : "models", STR_ARG(s->preload[i].name));
    for (uint32_t i = 0; i < s->addresses_count; i++)
        printf("%s %s%.*s\n", i ? "          " : is_dry ? "would serve" : "listening ",
               str_starts(s->addresses[i], STR("unix:")) ? "" : "http://",
               STR_ARG(s->addresses[i]));
    for (uint32_t i = 0; i < dialect_table_count; i++)
        printf("%-10s %s http://%.*s%s\n", i ? "" : "dialects", dialect_table[i]->paths[0].method,
               STR_ARG(first), dialect_table[i]->paths[0].path);
    fflush(stdout);
}

/* --- running ------------------------------------------------------------------------------- */

static void cmd_serve_on_signal(void *ctx)
{
    struct cmd_serve *s = ctx;
    if (s->signals++)
        _exit(CMD_EXIT_SIGTERM); /* the children die with us */
    server_stop(s->server);
}

/* A closed terminal must not end the server. */
static void cmd_serve_on_hangup(void *ctx)
{
    (void)ctx;
    log_warn("SIGHUP: reading the configuration again is not built yet");
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

static bool cmd_serve_open_models(struct cmd_serve *s, const struct server_options *o,
                                  struct err *e)
{
    static const char *const argv[] = {"shoal", "engine", NULL};
    const struct config *config = s->c->config;
    const struct config_value *aliases = config_value(config, "aliases");
    cmd_models_options(s->c, &s->library);
    struct models_leg_options m = {
        .loop = s->loop, .build_id = run_local_build_id(s->c->arena), .argv = argv,
        .library = &s->library, .aliases = aliases->items, .aliases_count = aliases->items_count,
        .load = &s->load, .resident_max = cmd_serve_number(s, "engine.resident"),
        .waiting_max = o->queue_max + CMD_SERVE_RUNNING_MAX,
        .keep_alive_ms = config_number(config, "engine.keep_alive"),
        .min_residency_ms = config_number(config, "engine.min_residency"),
        .swap_wait_ms = config_number(config, "engine.swap_wait"),
        .engine_stall_ms = o->engine_stall_ms,
        .load_stall_ms = config_number(config, "deadlines.load_stall")};
    if (!cmd_serve_load(s, &s->load, e) || !models_leg_open(&s->models, &m, e))
        return false;
    for (uint32_t i = 0; i < s->preload_count; i++) {
        if (!models_leg_add(s->models, &s->preload[i], e))
            return false;
        models_leg_preload(s->models, s->preload[i].name);
    }
    return true;
}

static bool cmd_serve_open(struct cmd_serve *s, struct server_options *o, struct err *e)
{
    if (!cmd_serve_open_models(s, o, e))
        return false;
    o->loop = s->loop;
    o->models = s->models;
    o->on_stopped = cmd_serve_on_stopped;
    o->ctx = s;
    return server_open(&s->server, o, e) && cmd_serve_listen(s, e) &&
           loop_signal_open(&s->on_int, s->loop, SIGINT, cmd_serve_on_signal, s, e) &&
           loop_signal_open(&s->on_term, s->loop, SIGTERM, cmd_serve_on_signal, s, e) &&
           loop_signal_open(&s->on_hup, s->loop, SIGHUP, cmd_serve_on_hangup, s, e);
}

static bool cmd_serve_loop(struct cmd_serve *s, struct err *e)
{
    struct server_options o = {.version_text = STR(VERSION_TEXT)};
    struct buf version;
    bool has_bf16;
    buf_init(&version, 16384);
    cmd_version_put(&version);
    cmd_serve_limits(s, &o);
    o.version = buf_view(&version);
    o.ollama_version = config_text(s->c->config, "ollama_version");
    o.isa = str_of(machine_level_name(machine_level(&has_bf16)));
    signal(SIGPIPE, SIG_IGN);
    cmd_serve_raise_files();
    bool ok = loop_open(&s->loop, e) && cmd_serve_open(s, &o, e);
    if (ok) {
        cmd_serve_banner(s, false);
        ok = loop_run(s->loop, e);
    }
    server_close(s->server);
    models_leg_close(s->models, CMD_SERVE_CHILD_GRACE_MS);
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
    if (!cmd_serve_check(&s, e) || !cmd_serve_keys(&s, e) ||
        !cmd_serve_addresses(&s, e) || !cmd_serve_preload(&s, e))
        return false;
    if (cmd_bool(c, "dry-run")) {
        cmd_serve_banner(&s, true);
        return true;
    }
    return cmd_serve_log(&s, e) && cmd_serve_loop(&s, e);
}

static const struct cmd_flag cmd_serve_flags[] = {
    {.name = "dry-run", .spec = {.type = CONFIG_TYPE_BOOL}, .standard = "false",
     .help = "check everything, say what would be served, end"},
    {.name = "key-file", .value = "PATH", .spec = {.type = CONFIG_TYPE_PATH},
     .is_repeatable = true, .help = "a key for the scopes infer and read; repeatable"},
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
