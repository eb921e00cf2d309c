#include "cli/serve_settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/config_legs.h"
#include "cli/config_rules.h"
#include "wire/tls.h"

#define SERVE_SETTINGS_OUTPUT_HIGH ((size_t)4 << 20) /* BEHAVIOUR 8.7: then the sequence pauses */
#define SERVE_SETTINGS_PIPELINE_MAX ((size_t)256 << 10)
#define SERVE_SETTINGS_CONNECTIONS 8u /* of a download, as `shoal pull` has them */
#define SERVE_SETTINGS_IDLE_MS 75000 /* a kept connection without a request */

static uint32_t serve_settings_number(const struct config *config, const char *key)
{
    return (uint32_t)config_number(config, key);
}

/* --- the server ---------------------------------------------------------------------------- */

static void serve_settings_http(struct server_options *o, const struct config *config)
{
    o->http = (struct http_limits){
        .header_size_max = serve_settings_number(config, "limits.headers"),
        .pipeline_size_max = SERVE_SETTINGS_PIPELINE_MAX,
        .output_high = SERVE_SETTINGS_OUTPUT_HIGH, .output_low = SERVE_SETTINGS_OUTPUT_HIGH / 4,
        .header_time_ms = serve_settings_number(config, "limits.header_time"),
        .idle_time_ms = SERVE_SETTINGS_IDLE_MS,
        .upload_idle_ms = serve_settings_number(config, "limits.upload_idle"),
        .reader_idle_ms = serve_settings_number(config, "limits.reader_idle"),
    };
    o->connections_max = serve_settings_number(config, "limits.connections");
    o->body_max = (uint64_t)config_number(config, "limits.body");
    o->ingress_max = (uint64_t)config_number(config, "limits.ingress");
}

static void serve_settings_times(struct server_options *o, const struct config *config)
{
    str overlong = config_text(config, "limits.overlong_status");
    o->queue_max = serve_settings_number(config, "limits.queue");
    o->agents_max = serve_settings_number(config, "metrics.agents");
    o->ping_ms = config_number(config, "limits.ping");
    o->defer_ms = config_number(config, "limits.defer_headers");
    o->total_ms = config_number(config, "deadlines.total");
    o->wait_ms = config_number(config, "deadlines.max_wait");
    o->gen_ms = config_number(config, "deadlines.max_gen");
    o->grace_ms = config_number(config, "limits.grace");
    o->engine_stall_ms = config_number(config, "deadlines.engine_stall");
    o->overlong_status = str_eq_z(overlong, "413") ? 413 : str_eq_z(overlong, "400") ? 400 : 0;
}

static void serve_settings_dialect(struct server_options *o, const struct config *config)
{
    o->dialect = dialect_limits_default;
    o->dialect.messages_max = serve_settings_number(config, "limits.messages");
    o->dialect.tools_max = serve_settings_number(config, "limits.tools");
    o->dialect.stop_max = serve_settings_number(config, "limits.stop");
    o->dialect.n_max = serve_settings_number(config, "limits.n");
    o->dialect.keeps_client_header = !config_bool(config, "cache.normalise.client_header");
}

static bool serve_settings_version(struct server_options *o, const struct config *config,
                                   struct err *e)
{
    o->ollama_version = config_text(config, "ollama_version");
    for (size_t i = 0; i < o->ollama_version.len; i++)
        if (!strchr("0123456789.", o->ollama_version.p[i]))
            return err_set(e, ERR_CONFIG, "ollama_version: digits and points expected, got %.*s",
                           STR_ARG(str_sub(o->ollama_version, 0, 40)));
    return true;
}

/* The token's file is read only where somebody may pull. */
static bool serve_settings_pulls(struct pulls_options *o, const struct cmd_context *c,
                                 const struct config *config, struct arena *a, struct err *e)
{
    const struct config_value *allow = config_value(config, "hub.allow");
    const struct config_value *aliases = config_value(config, "aliases");
    struct cmd_context at = *c;
    at.config = config;
    at.arena = a;
    *o = (struct pulls_options){.is_on = config_bool(config, "hub.http_pull"),
                                .allow = allow->items, .allow_count = allow->items_count,
                                .aliases = aliases->items,
                                .aliases_count = aliases->items_count};
    if (!o->is_on)
        return true;
    cmd_models_options(&at, &o->library);
    o->pull = (struct pull_options){.store = config_text(config, "store"),
                                    .connections = SERVE_SETTINGS_CONNECTIONS,
                                    .piece_size = (uint64_t)config_number(config, "hub.piece"),
                                    .supports = cmd_pull_supports};
    if (!o->pull.store.len)
        return err_set(e, ERR_CONFIG,
                       "hub.http_pull: no home directory, so `store` must say where to");
    return cmd_pull_hub(&at, &o->pull.net, e);
}

bool serve_settings_server(struct server_options *o, const struct cmd_context *c,
                           const struct config *config, struct arena *a, struct err *e)
{
    const struct config_value *hosts = config_value(config, "allowed_hosts");
    const struct config_value *origins = config_value(config, "allowed_origins");
    struct config_keys keys;
    struct config_agents agents;
    bool ok = config_keys_load(&keys, config, cmd_value(c, "key-file"), a, e);
    ok = config_rules_agents(&agents, config, a, e) && ok;
    if (!ok || !serve_settings_version(o, config, e) ||
        !serve_settings_pulls(&o->pulls, c, config, a, e))
        return false;
    o->access = (struct limits_options){.keys = keys.keys, .keys_count = keys.count,
                                        .hosts = hosts->items, .hosts_count = hosts->items_count,
                                        .origins = origins->items, .agents = agents.agents,
                                        .agents_count = agents.count,
                                        .origins_count = origins->items_count};
    bool replays = config_bool(config, "cache.replay");
    o->replay_size = replays ? (size_t)config_number(config, "cache.replay_size") : 0;
    o->replay_ttl_ms = config_number(config, "cache.replay_ttl");
    o->session_ttl_ms = config_number(config, "cache.session_ttl");
    o->context_ttl_ms = config_number(config, "cache.context_ttl");
    o->rounds_clock = config_bool(config, "cache.normalise.clock");
    o->misses_max = serve_settings_number(config, "cache.miss_ring");
    serve_settings_http(o, config);
    serve_settings_times(o, config);
    serve_settings_dialect(o, config);
    return true;
}

/* --- models, log --------------------------------------------------------------------------- */

uint32_t serve_settings_permille(const struct config *config, const char *key)
{
    return (uint32_t)(config_value(config, key)->real * 1000 + 0.5);
}

bool serve_settings_models(struct models_leg_next *o, const struct config *config, struct arena *a,
                           struct err *e)
{
    struct config_models models;
    if (!config_models_load(&models, config, a, e))
        return false;
    *o = (struct models_leg_next){
        .aliases = models.aliases, .aliases_count = models.aliases_count,
        .settings = models.settings, .settings_count = models.count,
        .engine_stall_ms = config_number(config, "deadlines.engine_stall"),
        .load_stall_ms = config_number(config, "deadlines.load_stall"),
        .loop_tokens = serve_settings_number(config, "limits.loop_tokens"),
        .miss_excerpt = serve_settings_number(config, "cache.miss_excerpt"),
        .idle_permille = serve_settings_permille(config, "shadow.share"),
        .no_prefix = !config_is(config, "cache.prefix", "auto"),
        .pin_permille = serve_settings_permille(config, "cache.pin_quota")};
    return true;
}

bool serve_settings_log(struct log_options *o, const struct config *config, struct err *e)
{
    const struct config_value *file = config_value(config, "logging.file");
    *o = (struct log_options){.fd = STDERR_FILENO, .name = "serve"};
    must(log_level_parse(config_text(config, "logging.level"), &o->level));
    o->form = config_is(config, "logging.format", "json") ? LOG_FORM_JSON : LOG_FORM_TEXT;
    if (!file->is_set)
        return true;
    o->fd = open(file->text.p, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return o->fd >= 0 || err_set_errno(e, errno, "logging.file %.*s", STR_ARG(file->text));
}

bool serve_settings_tls(struct tls **out, const struct config *config, struct err *e)
{
    const struct config_value *cert = config_value(config, "tls.cert");
    const struct config_value *key = config_value(config, "tls.key");
    *out = NULL;
    if (!cert->is_set && !key->is_set)
        return true;
    if (!cert->is_set || !key->is_set)
        return err_set(e, ERR_CONFIG, "%s is set and %s is not: both or none",
                       cert->is_set ? "tls.cert" : "tls.key",
                       cert->is_set ? "tls.key" : "tls.cert");
    return tls_open(out, cert->text.p, key->text.p, e);
}

/* --- parts of a reload --------------------------------------------------------------------- */

static bool serve_settings_read_server(void **out, const struct reload_target *t,
                                       const struct config *config, struct arena *a,
                                       struct err *e)
{
    struct server_options o = *server_options_of(t->server);
    struct server_next *next;
    if (!serve_settings_server(&o, t->c, config, a, e) ||
        !server_prepare(t->server, &o, &next, e))
        return false;
    *out = next;
    return true;
}

static void serve_settings_apply_server(const struct reload_target *t, void *made,
                                        struct reload_age *age)
{
    reload_keep(age);
    server_change(t->server, made, reload_unkeep, age);
}

static void serve_settings_drop_server(void *made) { server_forget(made); }

static bool serve_settings_read_models(void **out, const struct reload_target *t,
                                       const struct config *config, struct arena *a,
                                       struct err *e)
{
    struct models_leg_next *next = ARENA_NEW(a, struct models_leg_next);
    (void)t;
    *out = next;
    return next ? serve_settings_models(next, config, a, e)
                : err_set(e, ERR_MEMORY, "the configuration is too large");
}

static void serve_settings_apply_models(const struct reload_target *t, void *made,
                                        struct reload_age *age)
{
    (void)age;
    models_leg_change(t->models, made);
}

static bool serve_settings_read_log(void **out, const struct reload_target *t,
                                    const struct config *config, struct arena *a, struct err *e)
{
    struct log_options *o = ARENA_NEW(a, struct log_options);
    (void)t;
    *out = o;
    return o ? serve_settings_log(o, config, e)
             : err_set(e, ERR_MEMORY, "the configuration is too large");
}

/* A file that was renamed meanwhile is left, a new one begun: what rotates logs sends SIGHUP. */
static void serve_settings_apply_log(const struct reload_target *t, void *made,
                                     struct reload_age *age)
{
    (void)t, (void)age;
    int before = log_init(made);
    if (before > STDERR_FILENO)
        close(before);
}

static void serve_settings_drop_log(void *made)
{
    const struct log_options *o = made;
    if (o->fd > STDERR_FILENO)
        close(o->fd);
}

/* The files of the start are read anew, whatever the new configuration says: a renewed certificate
 * has its old name, and other names need a restart. */
static bool serve_settings_read_tls(void **out, const struct reload_target *t,
                                    const struct config *config, struct arena *a, struct err *e)
{
    struct tls *tls;
    (void)config, (void)a;
    if (!serve_settings_tls(&tls, t->c->config, e))
        return false;
    *out = tls;
    return true;
}

static void serve_settings_apply_tls(const struct reload_target *t, void *made,
                                     struct reload_age *age)
{
    (void)age;
    server_set_tls(t->server, made);
}

static void serve_settings_drop_tls(void *made) { tls_close(made); }

static bool serve_settings_read_legs(void **out, const struct reload_target *t,
                                     const struct config *config, struct arena *a, struct err *e)
{
    struct legs_config c;
    struct legs_generation *g;
    if (!config_legs_load(&c, config, a, e) ||
        !legs_prepare(server_options_of(t->server)->legs, &c, &g, e))
        return false;
    *out = g;
    return true;
}

static void serve_settings_apply_legs(const struct reload_target *t, void *made,
                                      struct reload_age *age)
{
    (void)age; /* a generation of legs keeps what it needs itself */
    legs_apply(server_options_of(t->server)->legs, made);
}

static void serve_settings_drop_legs(void *made) { legs_drop(made); }

/* To make a part of the configuration reloadable: a row, with its two functions. */
const struct reload_part serve_settings_parts[] = {
    {"models", serve_settings_read_models, serve_settings_apply_models, NULL},
    {"legs", serve_settings_read_legs, serve_settings_apply_legs, serve_settings_drop_legs},
    {"server", serve_settings_read_server, serve_settings_apply_server,
     serve_settings_drop_server},
    {"tls", serve_settings_read_tls, serve_settings_apply_tls, serve_settings_drop_tls},
    {"log", serve_settings_read_log, serve_settings_apply_log, serve_settings_drop_log},
    {.name = NULL},
};
