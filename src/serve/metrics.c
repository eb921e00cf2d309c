#include "serve/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/log.h"
#include "base/map.h"

#define METRICS_DIALECTS_MAX 16
#define METRICS_EWMA 0.25 /* share of the newest gap between completions: BEHAVIOUR 8.4 */

/* Upper bounds in seconds: from a cached first token to the longest wait. */
static const double metrics_bounds[] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                        2.5,   5,    10,    30,   60,  300};
#define METRICS_BUCKETS (sizeof metrics_bounds / sizeof *metrics_bounds)

struct metrics_histogram {
    uint64_t counts[METRICS_BUCKETS + 1], count;
    double sum;
};

struct metrics_miss {
    char reason[24];
    uint64_t count;
};

struct metrics_model {
    char name[128];
    struct metrics_miss misses[METRICS_MISSES_MAX]; /* count 0: free */
    uint32_t running;
    uint64_t computed_tokens, cached_tokens, output_tokens, completions;
    int64_t completed_ms;
    double gap_ms; /* between completions */
    struct metrics_histogram first_token, token_gap, queue;
};

/* Freed with its last request, so that made-up names leave nothing behind. */
struct metrics_asked {
    struct list link;
    uint32_t count, waiting[API_PRIORITY_COUNT_];
    size_t len;
    char name[];
};

struct metrics_agent {
    uint64_t computed_tokens, cached_tokens, output_tokens;
    size_t len;
    char name[];
};

struct metrics_code {
    char name[40];
    uint64_t count;
};

struct metrics_dialect {
    const char *name;
    uint64_t outcomes[METRICS_OUTCOME_COUNT_];
    struct metrics_histogram seconds;
};

struct metrics {
    struct metrics_model models[METRICS_MODELS_MAX];
    uint32_t models_count;
    struct metrics_dialect dialects[METRICS_DIALECTS_MAX];
    uint32_t dialects_count;
    struct list open;
    struct map agents; /* name -> struct metrics_agent */
    uint32_t agents_max;
    struct metrics_code codes[METRICS_CODES_MAX];
    uint32_t codes_count;
    uint64_t truncated, loop_stops;
};

bool metrics_open(struct metrics **out, uint32_t agents_max, struct err *e)
{
    struct metrics *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, ERR_MEMORY, "serve: no memory for the counters");
    list_init(&m->open);
    map_init(&m->agents, 1u << 20);
    m->agents_max = agents_max;
    *out = m;
    return true;
}

void metrics_close(struct metrics *m)
{
    if (!m)
        return;
    must(list_is_empty(&m->open));
    for (uint32_t i = 0; i < m->agents.count; i++)
        free(map_to_pointer(m->agents.entries[i].value));
    map_deinit(&m->agents);
    free(m);
}

void metrics_set_agents(struct metrics *m, uint32_t agents_max) { m->agents_max = agents_max; }
uint32_t metrics_agents(const struct metrics *m) { return (uint32_t)m->agents.count; }

/* --- rows ---------------------------------------------------------------------------------- */

static struct metrics_asked *metrics_find_open(const struct metrics *m, str name)
{
    list_each (link, &m->open) {
        struct metrics_asked *o = list_item(link, struct metrics_asked, link);
        if (str_eq(name, str_view(o->name, o->len)))
            return o;
    }
    return NULL;
}

static struct metrics_asked *metrics_add_open(struct metrics *m, str name)
{
    struct metrics_asked *o = metrics_find_open(m, name);
    if (!o) {
        o = calloc(1, sizeof *o + name.len + 1);
        if (!o)
            return NULL;
        if (name.len)
            memcpy(o->name, name.p, name.len);
        o->len = name.len;
        list_push_last(&m->open, &o->link);
    }
    o->count++;
    return o;
}

static const struct metrics_model *metrics_find_model(const struct metrics *m, str name)
{
    name = str_sub(name, 0, sizeof m->models[0].name - 1);
    for (uint32_t i = 0; i < m->models_count; i++)
        if (str_eq_z(name, m->models[i].name))
            return &m->models[i];
    return NULL;
}

static struct metrics_model *metrics_add_model(struct metrics *m, str name)
{
    const struct metrics_model *known = metrics_find_model(m, name);
    if (known)
        return &m->models[known - m->models];
    if (m->models_count + 1 == METRICS_MODELS_MAX)
        name = STR("other");
    if (m->models_count == METRICS_MODELS_MAX)
        return &m->models[METRICS_MODELS_MAX - 1];
    struct metrics_model *row = &m->models[m->models_count++];
    snprintf(row->name, sizeof row->name, "%.*s", STR_ARG(name));
    return row;
}

static struct metrics_dialect *metrics_add_dialect(struct metrics *m, const char *name)
{
    for (uint32_t i = 0; i < m->dialects_count; i++)
        if (!strcmp(name, m->dialects[i].name))
            return &m->dialects[i];
    must(m->dialects_count < METRICS_DIALECTS_MAX);
    m->dialects[m->dialects_count].name = name;
    return &m->dialects[m->dialects_count++];
}

/* NULL: no memory; then that agent is not counted. */
static struct metrics_agent *metrics_add_agent(struct metrics *m, str name)
{
    struct metrics_agent *a = map_to_pointer(map_value(&m->agents, name, 0));
    bool is_other = !a && m->agents.count >= m->agents_max;
    if (is_other) {
        name = STR("other");
        a = map_to_pointer(map_value(&m->agents, name, 0));
    }
    if (a)
        return a;
    a = calloc(1, sizeof *a + name.len + 1);
    if (!a)
        return NULL;
    if (name.len)
        memcpy(a->name, name.p, name.len);
    a->len = name.len;
    if (map_put(&m->agents, str_view(a->name, a->len), map_of_pointer(a)))
        return a;
    free(a);
    return NULL;
}

static void metrics_count_agent(struct metrics *m, const struct metrics_request *r)
{
    uint64_t prompt = r->prompt_tokens, cached = base_min(r->cached_tokens, prompt);
    struct metrics_agent *a =
        r->agent.len && r->is_started ? metrics_add_agent(m, r->agent) : NULL;
    if (!a)
        return;
    a->computed_tokens += prompt - cached;
    a->cached_tokens += cached;
    a->output_tokens += r->output_tokens;
}

static void metrics_observe(struct metrics_histogram *h, double seconds)
{
    size_t i = 0;
    while (i < METRICS_BUCKETS && seconds > metrics_bounds[i])
        i++;
    h->counts[i]++;
    h->count++;
    h->sum += seconds;
}

static void metrics_observe_ms(struct metrics_histogram *h, int64_t ms)
{
    metrics_observe(h, (double)ms / 1000);
}

/* --- a request's life ---------------------------------------------------------------------- */

void metrics_begin(struct metrics *m, struct metrics_request *r, const struct api_request *rq,
                   str model)
{
    r->open = metrics_add_open(m, model);
    r->priority = rq->priority;
    if (r->open)
        r->open->waiting[r->priority]++;
    r->agent = rq->agent;
}

void metrics_started(struct metrics *m, struct metrics_request *r, const struct api_started *s,
                     int64_t now)
{
    if (r->is_started)
        return;
    r->is_started = true;
    r->started_ms = r->token_ms = now;
    r->prompt_tokens = s->prompt_tokens;
    r->cached_tokens = s->cached_tokens;
    r->model = metrics_add_model(m, s->model);
    r->model->running++;
    if (r->open)
        r->open->waiting[r->priority]--;
    metrics_observe_ms(&r->model->first_token, now - r->arrived_ms);
}

void metrics_tokens(struct metrics_request *r, uint32_t count, int64_t now)
{
    if (count == 0 || !r->model)
        return;
    if (r->output_tokens)
        metrics_observe_ms(&r->model->token_gap, now - r->token_ms);
    r->output_tokens += count;
    r->model->output_tokens += count;
    r->token_ms = now;
}

void metrics_usage(struct metrics_request *r, const struct api_usage *u, int64_t now)
{
    r->usage = *u;
    if (!r->model)
        return;
    if (u->prompt_tokens) {
        r->prompt_tokens = u->prompt_tokens;
        r->cached_tokens = u->cached_tokens;
    }
    if (u->output_tokens > r->output_tokens) /* what an upstream said, and told only now */
        metrics_tokens(r, u->output_tokens - r->output_tokens, now);
}

void metrics_miss(struct metrics *m, const struct metrics_request *r, str reason)
{
    (void)m;
    struct metrics_miss *rows = r->model ? r->model->misses : NULL;
    for (uint32_t i = 0; rows && i < METRICS_MISSES_MAX; i++) {
        if (rows[i].count == 0)
            snprintf(rows[i].reason, sizeof rows[i].reason, "%.*s", STR_ARG(reason));
        if (!str_eq_z(reason, rows[i].reason))
            continue;
        rows[i].count++;
        return;
    }
}

static void metrics_completed(struct metrics_model *row, int64_t now)
{
    double gap = (double)(now - row->completed_ms);
    if (row->completions == 1)
        row->gap_ms = gap;
    else if (row->completions > 1)
        row->gap_ms += METRICS_EWMA * (gap - row->gap_ms);
    row->completed_ms = now;
    row->completions++;
}

static void metrics_log(const struct metrics_request *r, int64_t now)
{
    const char *end = r->outcome == METRICS_OUTCOME_OK          ? api_event_done_name(r->finish)
                      : r->outcome == METRICS_OUTCOME_CANCELLED ? "cancelled"
                                                                : err_name(r->error);
    const struct log_field fields[] = {
        {.key = "id", .text = r->id},
        {.key = "agent", .text = r->agent.p ? r->agent : STR("")},
        {.key = "dialect", .text = str_of(r->dialect)},
        {.key = "model", .text = r->model ? str_of(r->model->name) : STR("")},
        {.key = "leg", .text = r->leg.p ? r->leg : STR("")},
        {.key = "status", .number = r->status},
        {.key = "in", .number = r->prompt_tokens},
        {.key = "cached", .number = r->cached_tokens},
        {.key = "out", .number = r->output_tokens},
        {.key = "first_ms", .number = r->is_started ? r->started_ms - r->arrived_ms : 0},
        {.key = "ms", .number = now - r->arrived_ms},
        {.key = "finish", .text = str_of(end)},
    };
    log_fields(LOG_LEVEL_INFO, "request", fields, countof(fields));
}

void metrics_warning(struct metrics *m, str code)
{
    struct metrics_code *c = NULL;
    code = str_sub(code, 0, sizeof c->name - 1);
    for (uint32_t i = 0; i < m->codes_count && !c; i++)
        if (str_eq_z(code, m->codes[i].name))
            c = &m->codes[i];
    if (!c && m->codes_count < METRICS_CODES_MAX) {
        c = &m->codes[m->codes_count++];
        bool is_last = m->codes_count == METRICS_CODES_MAX;
        snprintf(c->name, sizeof c->name, "%.*s", STR_ARG(is_last ? STR("other") : code));
    }
    c = c ? c : &m->codes[METRICS_CODES_MAX - 1];
    c->count++;
}

void metrics_truncated(struct metrics *m) { m->truncated++; }

void metrics_end(struct metrics *m, struct metrics_request *r, int64_t now)
{
    metrics_count_agent(m, r);
    m->loop_stops += r->outcome == METRICS_OUTCOME_OK && r->finish == API_DONE_LOOP;
    struct metrics_dialect *d = metrics_add_dialect(m, r->dialect);
    d->outcomes[r->outcome]++;
    metrics_observe_ms(&d->seconds, now - r->arrived_ms);
    metrics_log(r, now);
    if (r->model) {
        r->model->running--;
        r->model->cached_tokens += r->cached_tokens;
        r->model->computed_tokens += r->prompt_tokens - base_min(r->cached_tokens,
                                                                 r->prompt_tokens);
        if (r->outcome == METRICS_OUTCOME_OK) {
            metrics_observe_ms(&r->model->queue, (int64_t)(r->usage.queue_ns / 1000000));
            metrics_completed(r->model, now);
        }
    }
    if (!r->open)
        return;
    r->open->waiting[r->priority] -= !r->is_started;
    if (--r->open->count == 0) {
        list_remove(&r->open->link);
        free(r->open);
    }
    r->open = NULL;
}

void metrics_refused(struct metrics *m, const char *dialect, int status)
{
    metrics_add_dialect(m, dialect)->outcomes[metrics_outcome_of_status(status)]++;
}

enum metrics_outcome metrics_outcome_of_status(int status)
{
    if (status == 429 || status == 503 || status == 529)
        return METRICS_OUTCOME_REFUSED;
    return status >= 500   ? METRICS_OUTCOME_FAILED
           : status >= 400 ? METRICS_OUTCOME_REJECTED
                           : METRICS_OUTCOME_OK;
}

static const char *metrics_outcome_name(enum metrics_outcome o)
{
    switch (o) {
    case METRICS_OUTCOME_CANCELLED:
        return "cancelled";
    case METRICS_OUTCOME_OK:
        return "ok";
    case METRICS_OUTCOME_REFUSED:
        return "refused";
    case METRICS_OUTCOME_REJECTED:
        return "rejected";
    case METRICS_OUTCOME_FAILED: case METRICS_OUTCOME_COUNT_:
        break;
    }
    return "failed";
}

/* --- reading ------------------------------------------------------------------------------- */

uint32_t metrics_open_of(const struct metrics *m, str name)
{
    const struct metrics_asked *o = metrics_find_open(m, name);
    return o ? o->count : 0;
}

int64_t metrics_retry_ms(const struct metrics *m, str model, uint32_t waiting)
{
    const struct metrics_model *row = metrics_find_model(m, model);
    if (!row || row->completions < 2)
        return 0;
    return (int64_t)(row->gap_ms * (double)base_max(waiting, 1u)) + 1;
}

/* --- Prometheus text ----------------------------------------------------------------------- */

/* A label's value: the format escapes backslash, quote and line feed. */
static void metrics_put_label(struct buf *out, const char *key, const char *value)
{
    buf_printf(out, "%s=\"", key);
    for (; *value; value++) {
        if (*value == '\\' || *value == '"')
            buf_add_byte(out, '\\');
        buf_add_byte(out, *value == '\n' ? ' ' : *value);
    }
    buf_add_byte(out, '"');
}

static void metrics_put_head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP shoal_%s %s\n# TYPE shoal_%s %s\n", name, help, name, type);
}

static void metrics_put_histogram(struct buf *out, const char *name, const char *key,
                                  const char *value, const struct metrics_histogram *h)
{
    uint64_t sum = 0;
    for (size_t i = 0; i <= METRICS_BUCKETS; i++) {
        sum += h->counts[i];
        buf_printf(out, "shoal_%s_bucket{", name);
        metrics_put_label(out, key, value);
        if (i < METRICS_BUCKETS)
            buf_printf(out, ",le=\"%g\"} %llu\n", metrics_bounds[i], (unsigned long long)sum);
        else
            buf_printf(out, ",le=\"+Inf\"} %llu\n", (unsigned long long)sum);
    }
    buf_printf(out, "shoal_%s_sum{", name);
    metrics_put_label(out, key, value);
    buf_printf(out, "} %.3f\nshoal_%s_count{", h->sum, name);
    metrics_put_label(out, key, value);
    buf_printf(out, "} %llu\n", (unsigned long long)h->count);
}

static void metrics_put_value(struct buf *out, const char *name, const char *model,
                              const char *more, uint64_t value)
{
    buf_printf(out, "shoal_%s{", name);
    metrics_put_label(out, "model", model);
    buf_printf(out, "%s} %llu\n", more, (unsigned long long)value);
}

static void metrics_write_models(const struct metrics *m, struct buf *out)
{
    static const struct {
        const char *name, *help;
        size_t offset;
    } rows[] = {
        {"first_token_seconds", "From arrival to the first token.",
         offsetof(struct metrics_model, first_token)},
        {"token_gap_seconds", "Between two tokens of a reply.",
         offsetof(struct metrics_model, token_gap)},
        {"queue_seconds", "In the waiting line.", offsetof(struct metrics_model, queue)},
    };
    metrics_put_head(out, "running", "gauge", "Replies that have begun.");
    for (uint32_t i = 0; i < m->models_count; i++)
        metrics_put_value(out, "running", m->models[i].name, "", m->models[i].running);
    metrics_put_head(out, "prompt_tokens_total", "counter", "Prompt tokens by their source.");
    for (uint32_t i = 0; i < m->models_count; i++) {
        const struct metrics_model *row = &m->models[i];
        metrics_put_value(out, "prompt_tokens_total", row->name, ",source=\"computed\"",
                          row->computed_tokens);
        metrics_put_value(out, "prompt_tokens_total", row->name, ",source=\"cached\"",
                          row->cached_tokens);
    }
    metrics_put_head(out, "cache_miss_total", "counter", "Prompts read again, by the reason.");
    for (uint32_t i = 0; i < m->models_count; i++)
        for (uint32_t k = 0; k < METRICS_MISSES_MAX && m->models[i].misses[k].count; k++) {
            char more[48];
            snprintf(more, sizeof more, ",reason=\"%s\"", m->models[i].misses[k].reason);
            metrics_put_value(out, "cache_miss_total", m->models[i].name, more,
                              m->models[i].misses[k].count);
        }
    metrics_put_head(out, "eval_tokens_total", "counter", "Tokens of replies.");
    for (uint32_t i = 0; i < m->models_count; i++)
        metrics_put_value(out, "eval_tokens_total", m->models[i].name, "",
                          m->models[i].output_tokens);
    for (size_t k = 0; k < countof(rows); k++) {
        metrics_put_head(out, rows[k].name, "histogram", rows[k].help);
        for (uint32_t i = 0; i < m->models_count; i++)
            metrics_put_histogram(out, rows[k].name, "model", m->models[i].name,
                                  (const struct metrics_histogram *)(const void *)(
                                      (const char *)&m->models[i] + rows[k].offset));
    }
}

static void metrics_write_dialects(const struct metrics *m, struct buf *out)
{
    metrics_put_head(out, "requests_total", "counter", "Requests by how they ended.");
    for (uint32_t i = 0; i < m->dialects_count; i++)
        for (int o = 0; o < METRICS_OUTCOME_COUNT_; o++)
            buf_printf(out, "shoal_requests_total{dialect=\"%s\",outcome=\"%s\"} %llu\n",
                       m->dialects[i].name, metrics_outcome_name((enum metrics_outcome)o),
                       (unsigned long long)m->dialects[i].outcomes[o]);
    metrics_put_head(out, "request_seconds", "histogram", "From arrival to the last byte.");
    for (uint32_t i = 0; i < m->dialects_count; i++)
        metrics_put_histogram(out, "request_seconds", "dialect", m->dialects[i].name,
                              &m->dialects[i].seconds);
}

static void metrics_write_agents(const struct metrics *m, struct buf *out)
{
    metrics_put_head(out, "agent_tokens_total", "counter", "Tokens of agents by their kind.");
    for (uint32_t i = 0; i < m->agents.count; i++) {
        const struct metrics_agent *a = map_to_pointer(m->agents.entries[i].value);
        const struct { const char *kind; uint64_t count; } rows[] = {
            {"computed", a->computed_tokens}, {"cached", a->cached_tokens},
            {"output", a->output_tokens}};
        for (size_t k = 0; k < countof(rows); k++) {
            buf_add_z(out, "shoal_agent_tokens_total{");
            metrics_put_label(out, "agent", a->name);
            buf_printf(out, ",kind=\"%s\"} %llu\n", rows[k].kind,
                       (unsigned long long)rows[k].count);
        }
    }
}

static void metrics_write_stops(const struct metrics *m, struct buf *out)
{
    metrics_put_head(out, "warnings_total", "counter", "Warnings of replies by their code.");
    for (uint32_t i = 0; i < m->codes_count; i++) {
        buf_add_z(out, "shoal_warnings_total{");
        metrics_put_label(out, "code", m->codes[i].name);
        buf_printf(out, "} %llu\n", (unsigned long long)m->codes[i].count);
    }
    metrics_put_head(out, "truncated_total", "counter", "Histories that were trimmed.");
    buf_printf(out, "shoal_truncated_total %llu\n", (unsigned long long)m->truncated);
    metrics_put_head(out, "loop_stops_total", "counter", "Replies that ended as a loop.");
    buf_printf(out, "shoal_loop_stops_total %llu\n", (unsigned long long)m->loop_stops);
}

static void metrics_write_queues(const struct metrics *m, struct buf *out)
{
    static const char *const names[] = {"idle", "low", "normal", "high"};
    metrics_put_head(out, "queue_depth", "gauge", "Requests without a first token.");
    list_each (link, &m->open) {
        const struct metrics_asked *o = list_item(link, struct metrics_asked, link);
        for (int p = 0; p < API_PRIORITY_COUNT_; p++) {
            char more[40];
            snprintf(more, sizeof more, ",priority=\"%s\"", names[p]);
            if (o->waiting[p] || p == API_PRIORITY_NORMAL)
                metrics_put_value(out, "queue_depth", o->name, more, o->waiting[p]);
        }
    }
}

void metrics_write(const struct metrics *m, struct buf *out)
{
    metrics_write_models(m, out);
    metrics_write_dialects(m, out);
    metrics_write_queues(m, out);
    metrics_write_agents(m, out);
    metrics_write_stops(m, out);
}
