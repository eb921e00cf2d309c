#include "route/health.h"

#include <stdlib.h>
#include <string.h>

#define HEALTH_PROBE_OPEN_MS 30000 /* BEHAVIOUR 9.3 */
#define HEALTH_PROBE_IDLE_MS 60000

/* --- classes ------------------------------------------------------------------------------- */

static const struct {
    const char *text;
    uint32_t points;
    bool fails_over;
} health_rows[HEALTH_CLASS_COUNT_] = {
#define X(name, text, points, fails_over) {text, points, fails_over},
    HEALTH_CLASSES(X)
#undef X
};

const char *health_class_name(enum health_class c)
{
    must((unsigned)c < HEALTH_CLASS_COUNT_);
    return health_rows[c].text;
}

bool health_class_parse(str name, enum health_class *out)
{
    for (unsigned i = 0; i < HEALTH_CLASS_COUNT_; i++)
        if (str_eq_z(name, health_rows[i].text)) {
            *out = (enum health_class)i;
            return true;
        }
    return false;
}

uint32_t health_class_points(enum health_class c)
{
    must((unsigned)c < HEALTH_CLASS_COUNT_);
    return health_rows[c].points;
}

bool health_class_fails_over(enum health_class c)
{
    must((unsigned)c < HEALTH_CLASS_COUNT_);
    return health_rows[c].fails_over;
}

static enum health_class health_class_of_fault(enum api_fault fault)
{
    switch (fault) {
    case API_FAULT_CONNECT:
        return HEALTH_CLASS_CONNECT;
    case API_FAULT_TLS:
        return HEALTH_CLASS_TLS;
    case API_FAULT_HANG_HEADER:
        return HEALTH_CLASS_HANG_HEADER;
    case API_FAULT_HANG_FIRST:
        return HEALTH_CLASS_HANG_FIRST;
    case API_FAULT_STALL:
        return HEALTH_CLASS_STALL;
    case API_FAULT_CUT:
        return HEALTH_CLASS_CUT;
    case API_FAULT_GARBAGE:
        return HEALTH_CLASS_GARBAGE;
    case API_FAULT_HTTP_5XX:
        return HEALTH_CLASS_HTTP_5XX;
    case API_FAULT_RATE_LIMIT:
        return HEALTH_CLASS_RATE_LIMIT;
    case API_FAULT_AUTH:
        return HEALTH_CLASS_AUTH;
    case API_FAULT_REQUEST:
        return HEALTH_CLASS_REQUEST;
    case API_FAULT_ENGINE_CRASH:
        return HEALTH_CLASS_ENGINE_CRASH;
    case API_FAULT_ENGINE_WEDGED:
        return HEALTH_CLASS_ENGINE_WEDGED;
    case API_FAULT_LOAD_FAILED:
        return HEALTH_CLASS_LOAD_FAILED;
    case API_FAULT_CLIENT_GONE:
        return HEALTH_CLASS_CLIENT_GONE;
    case API_FAULT_DEADLINE:
        return HEALTH_CLASS_DEADLINE;
    case API_FAULT_NONE: case API_FAULT_COUNT_:
        break;
    }
    return HEALTH_CLASS_OK;
}

/* A leg that said its fault is believed; the rest are local legs, whose codes say it. */
enum health_class health_class_of(const struct api_error *e)
{
    if (e->fault != API_FAULT_NONE)
        return health_class_of_fault(e->fault);
    if (str_eq_z(e->code, "load_failed"))
        return HEALTH_CLASS_LOAD_FAILED;
    switch (e->err.code) {
    case ERR_NONE:
        return HEALTH_CLASS_OK;
    case ERR_CONNECT:
        return HEALTH_CLASS_CONNECT;
    case ERR_UPSTREAM: case ERR_IO:
        return HEALTH_CLASS_CUT;
    case ERR_FORMAT:
        return HEALTH_CLASS_GARBAGE;
    case ERR_OVERLOADED:
        return HEALTH_CLASS_BUSY;
    case ERR_CONTEXT:
        return HEALTH_CLASS_CONTEXT;
    case ERR_UNSUPPORTED:
        return HEALTH_CLASS_CAPABILITY;
    case ERR_ENGINE: case ERR_DEVICE: case ERR_INTERNAL:
        return HEALTH_CLASS_ENGINE_CRASH;
    case ERR_NOT_FOUND: case ERR_MEMORY: /* of a model that the configuration names */
        return HEALTH_CLASS_LOAD_FAILED;
    case ERR_DEADLINE:
        return HEALTH_CLASS_DEADLINE;
    case ERR_CANCELLED:
        return HEALTH_CLASS_CLIENT_GONE;
    case ERR_USAGE: case ERR_CONFIG: case ERR_REQUEST: case ERR_LIMIT: case ERR_AUTH:
        break;
    }
    return HEALTH_CLASS_REQUEST;
}

/* --- outcomes ------------------------------------------------------------------------------ */

/* Classes that tell nothing about the leg: what the client did, what the request was. */
static bool health_is_neutral(enum health_class c)
{
    return c != HEALTH_CLASS_OK && health_class_points(c) == 0;
}

void health_add(struct health *h, enum health_class c, str text, int64_t now_ms)
{
    must((unsigned)c < HEALTH_CLASS_COUNT_);
    h->counts[c]++;
    if (c == HEALTH_CLASS_OK) {
        h->ok_ms = now_ms;
        h->is_misconfigured = false;
    } else if (c != HEALTH_CLASS_CLIENT_GONE && c != HEALTH_CLASS_DEADLINE &&
               c != HEALTH_CLASS_REQUEST) {
        size_t len = base_min(text.len, sizeof h->error_text - 1);
        len = str_utf8_valid(str_sub(text, 0, len));
        if (len)
            memcpy(h->error_text, text.p, len);
        h->error_text[len] = 0;
        h->error = c;
        h->error_ms = now_ms;
        h->is_misconfigured = h->is_misconfigured || c == HEALTH_CLASS_AUTH;
    }
    if (health_is_neutral(c))
        return;
    h->outcomes[h->outcomes_count++ % HEALTH_OUTCOMES] =
        (struct health_outcome){now_ms, c != HEALTH_CLASS_OK};
}

struct health_window health_window_of(const struct health *h, int64_t window_ms, int64_t now_ms)
{
    struct health_window w = {0, 0};
    uint32_t count = h->outcomes_count < HEALTH_OUTCOMES ? h->outcomes_count : HEALTH_OUTCOMES;
    for (uint32_t i = 0; i < count; i++) {
        if (now_ms - h->outcomes[i].at_ms >= window_ms)
            continue;
        w.requests++;
        w.failures += h->outcomes[i].is_failure;
    }
    return w;
}

/* --- first tokens -------------------------------------------------------------------------- */

uint32_t health_bucket(uint32_t prompt_tokens, enum api_effort effort)
{
    static const uint32_t sizes[HEALTH_SIZES - 1] = {1024, 4096, 16384, 65536};
    uint32_t size = 0, level = 2; /* no effort: medium */
    while (size < HEALTH_SIZES - 1 && prompt_tokens >= sizes[size])
        size++;
    if (effort == API_EFFORT_NONE || effort == API_EFFORT_MINIMAL)
        level = 0;
    else if (effort == API_EFFORT_LOW)
        level = 1;
    else if (effort >= API_EFFORT_HIGH)
        level = 3;
    return size * HEALTH_EFFORTS + level;
}

static void health_add_sample(struct health_samples *s, int64_t ms)
{
    uint32_t value = ms < 0 ? 0 : ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
    s->ms[s->count++ % HEALTH_SAMPLES] = value;
}

void health_add_first(struct health *h, uint32_t bucket, int64_t ms)
{
    must(bucket < HEALTH_SIZES * HEALTH_EFFORTS);
    health_add_sample(&h->first[bucket], ms);
    health_add_sample(&h->recent, ms);
}

static int health_by_value(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

int64_t health_quantile(const struct health_samples *s, uint32_t percent)
{
    uint32_t sorted[HEALTH_SAMPLES], count = s->count < HEALTH_SAMPLES ? s->count : HEALTH_SAMPLES;
    if (count == 0)
        return 0;
    memcpy(sorted, s->ms, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, health_by_value);
    uint32_t at = (uint32_t)(((uint64_t)count * percent + 99) / 100); /* nearest rank */
    return sorted[at ? at - 1 : 0];
}

/* --- probes -------------------------------------------------------------------------------- */

int64_t health_probe_ms(const struct health *h, const struct health_probing *p)
{
    if (!p->is_on)
        return INT64_MAX;
    int64_t last = h->probed_ms;
    if (!p->is_closed)
        return (last > h->error_ms ? last : h->error_ms) + HEALTH_PROBE_OPEN_MS;
    return (last > h->used_ms ? last : h->used_ms) + HEALTH_PROBE_IDLE_MS;
}
