#include "serve/path_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "route/residency.h"
#include "serve/legs.h"
#include "serve/metrics.h"
#include "serve/models_leg.h"
#include "serve/path_legs.h"

#define PATH_STATE_MAX ((size_t)4 << 20) /* bytes of an answer */

/* The residents of this moment; views valid until the next look. */
struct path_state_view {
    struct models_leg_resident rows[RESIDENCY_MODELS_MAX];
    size_t count;
};

static void path_state_look(const struct server *s, struct path_state_view *v)
{
    v->count = models_leg_residents(server_options_of(s)->models, v->rows, countof(v->rows));
    v->count = base_min(v->count, countof(v->rows));
}

bool path_state_stands(const struct server *s, const struct models_leg_resident *r)
{
    return r->health.state == API_HEALTH_READY &&
           r->health.progress_age_ms > server_options_of(s)->engine_stall_ms / 2;
}

const char *path_state_name(enum api_health_state state)
{
    switch (state) {
    case API_HEALTH_STARTING:
        return "loading";
    case API_HEALTH_READY:
        return "loaded";
    case API_HEALTH_RESTARTING:
        return "restarting";
    case API_HEALTH_FAILED:
        return "failed";
    case API_HEALTH_STOPPED:
        return "idle";
    case API_HEALTH_COUNT_:
        break;
    }
    return "none";
}

static void path_state_send(struct http_conn *c, int status, const char *type, struct buf *out)
{
    http_conn_add_header(c, "Cache-Control", STR("no-store"));
    http_conn_reply(c, status, type, buf_view(out));
    buf_deinit(out);
}

static void path_state_text(struct json_writer *w, const char *key, str text)
{
    json_key_z(w, key);
    json_put_text(w, text.p ? text : STR(""));
}

/* --- health -------------------------------------------------------------------------------- */

enum path_state_health { PATH_STATE_OK, PATH_STATE_DEGRADED, PATH_STATE_FAILING };

/* A load that failed leaves the server of use for other models; a loaded model that is lost for
 * good does not. Loading and unloaded are healthy. */
static enum path_state_health path_state_judge(const struct server *s,
                                               const struct models_leg_resident *r,
                                               struct json_writer *reasons)
{
    char text[400];
    str why = r->health.reason;
    bool is_lost = r->health.state == API_HEALTH_FAILED;
    if (is_lost || r->health.state == API_HEALTH_RESTARTING) {
        snprintf(text, sizeof text, "%.*s: %s%s%.*s", STR_ARG(str_sub(r->name, 0, 80)),
                 path_state_name(r->health.state), why.len ? ": " : "", STR_ARG(why));
        json_put_text_z(reasons, text);
        return is_lost && r->model.context_max ? PATH_STATE_FAILING : PATH_STATE_DEGRADED;
    }
    if (r->beat.tier.is_broken) {
        snprintf(text, sizeof text, "%.*s: the SSD tier is off by errors; GET /v1/cache says which",
                 STR_ARG(str_sub(r->name, 0, 80)));
        json_put_text_z(reasons, text);
    }
    if (!path_state_stands(s, r))
        return r->beat.tier.is_broken ? PATH_STATE_DEGRADED : PATH_STATE_OK;
    snprintf(text, sizeof text, "%.*s: no progress for %lld ms", STR_ARG(str_sub(r->name, 0, 80)),
             (long long)r->health.progress_age_ms);
    json_put_text_z(reasons, text);
    return PATH_STATE_DEGRADED;
}

/* {"status", "reasons"} */
static enum path_state_health path_state_put_health(struct json_writer *w, struct server *s,
                                                    const struct path_state_view *v)
{
    const char *refusal = server_config_of(s)->refusal;
    static const char *const names[] = {"ok", "degraded", "failing"};
    enum path_state_health worst = PATH_STATE_OK;
    struct buf reasons;
    buf_init(&reasons, PATH_STATE_MAX);
    struct json_writer r = json_writer(&reasons);
    for (size_t i = 0; i < v->count; i++) {
        enum path_state_health one = path_state_judge(s, &v->rows[i], &r);
        worst = one > worst ? one : worst;
    }
    if (*refusal) { /* what somebody meant to change does not hold */
        char text[320];
        snprintf(text, sizeof text, "reload refused: %s", refusal);
        json_put_text_z(&r, text);
        worst = worst == PATH_STATE_OK ? PATH_STATE_DEGRADED : worst;
    }
    bool is_degraded = false;
    if (path_legs_judge(s, &r, &is_degraded))
        worst = PATH_STATE_FAILING;
    if (is_degraded && worst == PATH_STATE_OK)
        worst = PATH_STATE_DEGRADED;
    json_open_object(w);
    path_state_text(w, "status", str_of(names[worst]));
    json_key_z(w, "reasons");
    json_open_array(w);
    if (reasons.len)
        json_put_raw(w, buf_view(&reasons));
    json_close_array(w);
    json_close_object(w);
    buf_deinit(&reasons);
    return worst;
}

void path_state_health(struct server *s, struct http_conn *c)
{
    struct path_state_view v;
    struct buf out;
    buf_init(&out, PATH_STATE_MAX);
    struct json_writer w = json_writer(&out);
    path_state_look(s, &v);
    bool is_failing = path_state_put_health(&w, s, &v) == PATH_STATE_FAILING;
    path_state_send(c, is_failing ? 503 : 200, "application/json", &out);
}

/* --- status -------------------------------------------------------------------------------- */

static void path_state_put_model(struct json_writer *w, const struct models_leg_resident *r)
{
    json_open_object(w);
    path_state_text(w, "name", r->name);
    path_state_text(w, "kind", r->model.type.len ? r->model.type : STR("chat"));
    path_state_text(w, "state", str_of(path_state_name(r->health.state)));
    json_key_z(w, "progress");
    json_put_float(w, r->health.state == API_HEALTH_STARTING ? r->health.progress : 1);
    json_put_key_i64(w, "size", (int64_t)r->model.bytes);
    json_put_key_i64(w, "size_vram", (int64_t)r->model.gpu_bytes);
    json_put_key_i64(w, "memory", (int64_t)r->model.device_bytes);
    json_put_key_i64(w, "context", r->model.context_max);
    json_put_key_i64(w, "slots", r->model.slots);
    json_put_key_i64(w, "running", r->running);
    json_put_key_i64(w, "queued", r->waiting);
    json_put_key_i64(w, "pages", r->model.kv_tokens / API_PAGE_TOKENS);
    json_key_z(w, "prefill_tps");
    json_put_float(w, r->health.prefill_tokens_per_s);
    json_key_z(w, "decode_tps");
    json_put_float(w, r->health.decode_tokens_per_s);
    json_put_key_i64(w, "last_progress_ms", r->health.progress_age_ms);
    json_put_key_i64(w, "restarts", r->health.restarts);
    json_put_key_i64(w, "expires_at", r->model.expires_s);
    json_put_key_i64(w, "pid", r->pid);
    json_close_object(w);
}

static void path_state_put_config(struct json_writer *w, const struct server_config *config)
{
    json_key_z(w, "config");
    json_open_object(w);
    path_state_text(w, "path", str_of(config->path));
    path_state_text(w, "sha256", str_of(config->sha256));
    json_put_key_i64(w, "loaded_at", config->loaded_s);
    json_close_object(w);
}

void path_state_status(struct server *s, struct http_conn *c)
{
    const struct server_options *o = server_options_of(s);
    struct path_state_view v;
    struct buf out;
    path_state_look(s, &v);
    buf_init(&out, PATH_STATE_MAX);
    struct json_writer w = json_writer(&out);
    json_open_object(&w);
    path_state_text(&w, "version", o->version_text);
    json_key_z(&w, "health");
    path_state_put_health(&w, s, &v);
    json_put_key_i64(&w, "uptime_s", server_uptime_ms(s) / 1000);
    path_state_put_config(&w, server_config_of(s));
    json_key_z(&w, "models");
    json_open_array(&w);
    for (size_t i = 0; i < v.count; i++)
        path_state_put_model(&w, &v.rows[i]);
    json_close_array(&w);
    path_legs_put(&w, s);
    json_put_key_i64(&w, "swaps", (int64_t)models_leg_swaps(o->models));
    json_put_key_i64(&w, "queue", o->queue_max);
    json_put_key_i64(&w, "requests", server_requests(s));
    json_put_key_i64(&w, "connections", server_connections(s));
    json_put_key_i64(&w, "ingress_bytes", (int64_t)server_ingress(s));
    json_put_key_i64(&w, "agents", metrics_agents(server_metrics(s)));
    json_close_object(&w);
    path_state_send(c, 200, "application/json", &out);
}

/* --- metrics ------------------------------------------------------------------------------- */

/* Names of models become label values: quotes and backslashes escaped, control characters out. */
static void path_state_put_value(struct buf *out, const char *name, const char *label, str model,
                                 const char *more, double value)
{
    buf_printf(out, "shoal_%s{%s=\"", name, label);
    for (size_t i = 0; i < model.len; i++) {
        char b = model.p[i];
        if (b == '"' || b == '\\')
            buf_add_byte(out, '\\');
        buf_add_byte(out, (unsigned char)b < ' ' ? ' ' : b);
    }
    buf_printf(out, "\"%s} %.15g\n", more, value);
}

static void path_state_put_gauge(struct buf *out, const char *name, str model, const char *more,
                                 double value)
{
    path_state_put_value(out, name, "model", model, more, value);
}

static void path_state_put_head(struct buf *out, const char *name, const char *type,
                                const char *help)
{
    buf_printf(out, "# HELP shoal_%s %s\n# TYPE shoal_%s %s\n", name, help, name, type);
}

static void path_state_put_pages(struct buf *out, const struct path_state_view *v)
{
    static const char *const more[API_PAGES_COUNT_] = {
        [API_PAGES_FREE] = ",state=\"free\"", [API_PAGES_USED] = ",state=\"used\"",
        [API_PAGES_CACHED] = ",state=\"cached\"", [API_PAGES_PINNED] = ",state=\"pinned\""};
    path_state_put_head(out, "kv_pages", "gauge",
                        "Pages of the cache; total is what is free, used or cached.");
    for (size_t i = 0; i < v->count; i++) {
        const struct models_leg_resident *r = &v->rows[i];
        path_state_put_gauge(out, "kv_pages", r->name, ",state=\"total\"",
                             r->model.kv_tokens / API_PAGE_TOKENS);
        for (int k = 0; k < API_PAGES_COUNT_; k++)
            if (more[k]) /* a limit is no state */
                path_state_put_gauge(out, "kv_pages", r->name, more[k],
                                     (double)r->beat.pages[k]);
    }
}

static void path_state_put_models(struct buf *out, const struct path_state_view *v)
{
    static const struct {
        const char *name, *help;
    } rows[] = {
        {"model_loaded", "Models in memory."},
        {"slots_total", "Sequences at once."},
        {"engine_progress_age_seconds", "Since an engine with work moved."},
    };
    for (size_t k = 0; k < countof(rows); k++) {
        path_state_put_head(out, rows[k].name, "gauge", rows[k].help);
        if (k == 0 && v->count == 0)
            buf_add_z(out, "shoal_model_loaded{model=\"\",kind=\"\"} 0\n");
        for (size_t i = 0; i < v->count; i++) {
            const struct models_leg_resident *r = &v->rows[i];
            const double values[] = {r->health.state == API_HEALTH_READY, r->model.slots,
                                     (double)r->health.progress_age_ms / 1000};
            const char *const more[] = {",kind=\"chat\"", "", ""};
            path_state_put_gauge(out, rows[k].name, r->name, more[k], values[k]);
        }
    }
    path_state_put_pages(out, v);
    path_state_put_head(out, "engine_restarts_total", "counter", "Children that were replaced.");
    for (size_t i = 0; i < v->count; i++) {
        const struct api_health *h = &v->rows[i].health;
        path_state_put_gauge(out, "engine_restarts_total", v->rows[i].name, ",reason=\"crash\"",
                             h->restarts - h->wedges);
        path_state_put_gauge(out, "engine_restarts_total", v->rows[i].name, ",reason=\"wedged\"",
                             h->wedges);
    }
}

static void path_state_put_steps(struct buf *out, str model, const char *phase,
                                 const struct api_steps *steps)
{
    uint64_t sum = 0;
    char more[64];
    for (uint32_t i = 0; i <= API_STEP_BUCKETS; i++) {
        sum += steps->counts[i];
        if (i < API_STEP_BUCKETS)
            snprintf(more, sizeof more, ",phase=\"%s\",le=\"%g\"", phase,
                     api_step_bounds_ms[i] / 1000.0);
        else
            snprintf(more, sizeof more, ",phase=\"%s\",le=\"+Inf\"", phase);
        path_state_put_gauge(out, "step_seconds_bucket", model, more, (double)sum);
    }
    snprintf(more, sizeof more, ",phase=\"%s\"", phase);
    path_state_put_gauge(out, "step_seconds_sum", model, more, (double)steps->ns / 1e9);
    path_state_put_gauge(out, "step_seconds_count", model, more, (double)sum);
}

/* Bytes that a process holds in memory; 0: it is gone. */
static uint64_t path_state_resident(int pid)
{
    char path[40], text[80];
    unsigned long long all, resident;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(text, sizeof text, f) && sscanf(text, "%llu %llu", &all, &resident) == 2;
    if (f)
        fclose(f);
    return ok ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static void path_state_put_processes(struct buf *out, const struct path_state_view *v)
{
    path_state_put_head(out, "step_seconds", "histogram", "Steps of an engine.");
    for (size_t i = 0; i < v->count; i++) {
        const struct models_leg_resident *r = &v->rows[i];
        path_state_put_steps(out, r->name, "decode", &r->beat.steps[API_STEP_DECODE]);
        path_state_put_steps(out, r->name, "prefill", &r->beat.steps[API_STEP_PREFILL]);
    }
    path_state_put_head(out, "resident_bytes", "gauge", "Memory of our processes.");
    buf_printf(out, "shoal_resident_bytes{process=\"endpoint\"} %llu\n",
               (unsigned long long)path_state_resident((int)getpid()));
    for (size_t i = 0; i < v->count; i++)
        if (v->rows[i].pid)
            path_state_put_value(out, "resident_bytes", "process", v->rows[i].name, "",
                                 (double)path_state_resident(v->rows[i].pid));
}

static void path_state_put_number(struct buf *out, const char *name, const char *type,
                                  const char *help, uint64_t value)
{
    path_state_put_head(out, name, type, help);
    buf_printf(out, "shoal_%s %llu\n", name, (unsigned long long)value);
}

/* Pages that left the pool, of all models: the directory is one. */
static void path_state_put_tiers(struct buf *out, const struct path_state_view *v,
                                 const struct engine_leg_counts *counts)
{
    uint64_t ram = 0, ssd = 0;
    for (size_t i = 0; i < v->count; i++) {
        ram += v->rows[i].beat.tier.ram_bytes;
        ssd += v->rows[i].beat.tier.ssd_bytes;
    }
    path_state_put_head(out, "tier_bytes", "gauge", "Pages outside the pool.");
    buf_printf(out, "shoal_tier_bytes{tier=\"ram\"} %llu\nshoal_tier_bytes{tier=\"ssd\"} %llu\n",
               (unsigned long long)ram, (unsigned long long)ssd);
    path_state_put_head(out, "spill_bytes_total", "counter", "Pages to the disk and from it.");
    buf_printf(out,
               "shoal_spill_bytes_total{dir=\"read\"} %llu\n"
               "shoal_spill_bytes_total{dir=\"write\"} %llu\n",
               (unsigned long long)counts->spill_read_bytes,
               (unsigned long long)counts->spill_written_bytes);
    path_state_put_number(out, "spill_checksum_failures_total", "counter",
                          "Pages from the disk that were not what went there.",
                          counts->spill_bad_sums);
}

static void path_state_put_reloads(struct buf *out, const struct server_config *config)
{
    path_state_put_head(out, "config_reloads_total", "counter", "Reloads by how they ended.");
    buf_printf(out,
               "shoal_config_reloads_total{result=\"ok\"} %llu\n"
               "shoal_config_reloads_total{result=\"refused\"} %llu\n",
               (unsigned long long)(config->reloads - config->refusals),
               (unsigned long long)config->refusals);
}

void path_state_metrics(struct server *s, struct http_conn *c)
{
    const struct server_options *o = server_options_of(s);
    const struct engine_leg_counts counts = models_leg_counts(o->models);
    struct path_state_view v;
    struct buf out;
    path_state_look(s, &v);
    buf_init(&out, PATH_STATE_MAX);
    metrics_write(server_metrics(s), &out);
    path_state_put_models(&out, &v);
    legs_write_metrics(o->legs, &out);
    path_state_put_processes(&out, &v);
    path_state_put_head(&out, "build_info", "gauge", "This build.");
    buf_printf(&out, "shoal_build_info{version=\"%.*s\",isa=\"%.*s\"} 1\n",
               STR_ARG(o->version_text), STR_ARG(o->isa));
    path_state_put_number(&out, "swaps_total", "counter", "Loads that took another model's place.",
                          models_leg_swaps(o->models));
    path_state_put_number(&out, "preemptions_total", "counter", "Replies put back for room.",
                          counts.preemptions);
    path_state_put_number(&out, "recomputed_tokens_total", "counter",
                          "Computed again after that.", counts.recomputed_tokens);
    path_state_put_tiers(&out, &v, &counts);
    path_state_put_reloads(&out, server_config_of(s));
    path_state_put_number(&out, "connections", "gauge", "Open connections.",
                          server_connections(s));
    path_state_put_number(&out, "ingress_bytes", "gauge", "Bodies in memory.", server_ingress(s));
    path_state_send(c, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
}
