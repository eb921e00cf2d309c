#include "serve/run_state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

#define RUN_STATE_WAIT_MS 1000
#define RUN_STATE_OLD_MS 3600000

struct run_state {
    struct legs *legs;
    struct loop_timer timer;
    char path[512];
    bool is_marked;
};

/* Moments of this boot's clock are kept as wall time; 0 stays none. */
static int64_t run_state_wall(int64_t ms)
{
    return ms ? ms - loop_ms() + chrono_unix_ms(&chrono_real) : 0;
}

static int64_t run_state_here(int64_t wall_ms)
{
    return wall_ms ? wall_ms - chrono_unix_ms(&chrono_real) + loop_ms() : 0;
}

/* --- writing ------------------------------------------------------------------------------- */

static void run_state_put_samples(struct json_writer *w, const struct health *h)
{
    json_key_z(w, "first");
    json_open_object(w);
    for (uint32_t b = 0; b < countof(h->first); b++) {
        const struct health_samples *s = &h->first[b];
        char key[16];
        if (!s->count)
            continue;
        snprintf(key, sizeof key, "%u", b);
        json_key_z(w, key);
        json_open_array(w);
        for (uint32_t i = 0; i < base_min(s->count, HEALTH_SAMPLES); i++)
            json_put_u64(w, s->ms[i]);
        json_close_array(w);
    }
    json_close_object(w);
}

static void run_state_put_leg(struct json_writer *w, const struct legs_leg *at)
{
    const struct breaker *b = &at->leg.breaker;
    json_open_object(w);
    json_key_z(w, "name");
    json_put_text_z(w, at->name);
    json_key_z(w, "url");
    json_put_text(w, legs_url(at).len ? legs_url(at) : STR(""));
    json_key_z(w, "model");
    json_put_text_z(w, at->model);
    json_key_z(w, "state");
    json_put_text_z(w, breaker_state_name(b->state));
    json_key_z(w, "why");
    json_put_text_z(w, health_class_name(b->why));
    json_put_key_i64(w, "since", run_state_wall(b->since_ms));
    json_put_key_i64(w, "until", run_state_wall(b->until_ms));
    json_put_key_i64(w, "cooling", run_state_wall(b->cooling_ms));
    json_put_key_i64(w, "failed", run_state_wall(b->failed_ms));
    json_put_key_i64(w, "points", b->points);
    json_put_key_i64(w, "openings", b->openings);
    run_state_put_samples(w, &at->leg.health);
    json_close_object(w);
}

static void run_state_put_paid(struct json_writer *w, const struct paid *p)
{
    json_key_z(w, "paid");
    json_open_array(w);
    for (uint32_t i = p->count - (uint32_t)base_min(p->count, PAID_PER_HOUR_MAX); i < p->count; i++)
        json_put_i64(w, run_state_wall(p->sent_ms[i % PAID_PER_HOUR_MAX]));
    json_close_array(w);
}

static void run_state_put(struct run_state *s, struct buf *out)
{
    struct json_writer w = json_writer(out);
    const struct sticky *sticky = legs_sticky(s->legs);
    int64_t now = loop_ms();
    json_open_object(&w);
    json_put_key_i64(&w, "version", RUN_STATE_VERSION);
    json_put_key_i64(&w, "saved_at", chrono_unix_ms(&chrono_real));
    json_key_z(&w, "legs");
    json_open_array(&w);
    for (const struct legs_leg *at = legs_first(s->legs); at; at = legs_next(s->legs, at))
        run_state_put_leg(&w, at);
    json_close_array(&w);
    run_state_put_paid(&w, legs_paid(s->legs));
    json_key_z(&w, "sessions");
    json_open_array(&w);
    for (uint32_t i = 0; i < STICKY_ROWS; i++) {
        const struct sticky_row *r = &sticky->rows[i];
        if (!r->key || r->until_ms <= now)
            continue;
        json_open_array(&w);
        json_put_u64(&w, r->key);
        json_put_text_z(&w, r->leg);
        json_put_i64(&w, run_state_wall(r->until_ms));
        json_close_array(&w);
    }
    json_close_array(&w);
    json_close_object(&w);
}

/* Without fsync: after a power cut the file may be gone, which is as good as none. */
static bool run_state_replace(const struct run_state *s, str bytes, struct err *e)
{
    char fresh[sizeof s->path + 8];
    snprintf(fresh, sizeof fresh, "%s.new", s->path);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(e, ERR_IO, "%s cannot be written", fresh);
    bool ok = file_write_all(fd, bytes, e);
    ok = close(fd) == 0 && ok;
    return ok && (rename(fresh, s->path) == 0 || err_set(e, ERR_IO, "%s: rename", s->path));
}

static void run_state_write(void *ctx)
{
    struct run_state *s = ctx;
    struct buf out;
    struct err e = {0};
    s->is_marked = false;
    buf_init(&out, RUN_STATE_SIZE_MAX);
    run_state_put(s, &out);
    if (out.full || !run_state_replace(s, buf_view(&out), &e))
        log_warn("states of legs are not kept: %s", out.full ? "too many" : e.text);
    buf_deinit(&out);
}

/* --- reading ------------------------------------------------------------------------------- */

static int64_t run_state_get(struct json v, const char *key)
{
    int64_t n = 0;
    return json_i64(json_member(v, key), &n) ? n : 0;
}

static void run_state_read_samples(struct json first, struct health *h, struct arena *a)
{
    struct json_walk buckets = json_walk(first);
    while (json_next(&buckets)) {
        uint64_t b = 0;
        if (!str_to_u64(json_text(buckets.key, a), &b) || b >= countof(h->first))
            continue;
        struct json_walk samples = json_walk(buckets.value);
        for (uint32_t i = 0; i < HEALTH_SAMPLES && json_next(&samples); i++) {
            uint64_t ms = 0;
            if (json_u64(samples.value, &ms) && ms <= UINT32_MAX)
                health_add_first(h, (uint32_t)b, (int64_t)ms);
        }
    }
}

static void run_state_read_leg(struct run_state *s, struct json row, struct health *h,
                               struct arena *a)
{
    struct breaker b = {0};
    memset(h, 0, sizeof *h);
    if (!breaker_state_parse(json_text(json_member(row, "state"), a), &b.state) ||
        !health_class_parse(json_text(json_member(row, "why"), a), &b.why))
        return;
    b.since_ms = run_state_here(run_state_get(row, "since"));
    b.until_ms = run_state_here(run_state_get(row, "until"));
    b.cooling_ms = run_state_here(run_state_get(row, "cooling"));
    b.failed_ms = run_state_here(run_state_get(row, "failed"));
    b.points = (uint32_t)run_state_get(row, "points");
    b.openings = (uint32_t)run_state_get(row, "openings");
    run_state_read_samples(json_member(row, "first"), h, a);
    struct legs_known known = {
        .name = json_text(json_member(row, "name"), a),
        .url = json_text(json_member(row, "url"), a),
        .model = json_text(json_member(row, "model"), a), .breaker = &b, .health = h};
    legs_restore(s->legs, &known);
}

static void run_state_read(struct run_state *s, struct json root, struct arena *a)
{
    int64_t age = chrono_unix_ms(&chrono_real) - run_state_get(root, "saved_at");
    struct health *h = ARENA_NEW(a, struct health);
    if (!h || run_state_get(root, "version") != RUN_STATE_VERSION || age < 0 ||
        age > RUN_STATE_OLD_MS)
        return;
    struct json_walk rows = json_walk(json_member(root, "legs"));
    while (json_next(&rows))
        run_state_read_leg(s, rows.value, h, a);
    struct json_walk paid = json_walk(json_member(root, "paid"));
    while (json_next(&paid)) {
        int64_t at = 0;
        if (json_i64(paid.value, &at) && run_state_here(at) <= loop_ms())
            paid_add(legs_paid(s->legs), run_state_here(at));
    }
    struct json_walk sessions = json_walk(json_member(root, "sessions"));
    while (json_next(&sessions)) {
        uint64_t key = 0;
        int64_t until = 0;
        str leg = json_text(json_at(sessions.value, 1), a);
        if (json_u64(json_at(sessions.value, 0), &key) && key && leg.len &&
            json_i64(json_at(sessions.value, 2), &until))
            sticky_put(legs_sticky(s->legs), key, leg, run_state_here(until), loop_ms());
    }
}

static void run_state_load(struct run_state *s)
{
    const struct json_options o = {.depth_max = 8};
    struct arena a;
    struct err e = {0};
    struct json root;
    str text;
    arena_init(&a, 8 * RUN_STATE_SIZE_MAX);
    if (!file_read(&text, s->path, RUN_STATE_SIZE_MAX, &a, &e)) {
        if (e.code != ERR_NOT_FOUND)
            log_warn("states of legs are not read: %s", e.text);
    } else if (!json_parse(&root, text, &o, &a, &e)) {
        log_warn("%s: %s", s->path, e.text);
    } else {
        run_state_read(s, root, &a);
    }
    arena_deinit(&a);
}

/* --- life ---------------------------------------------------------------------------------- */

bool run_state_open(struct run_state **out, struct loop *l, struct legs *legs, const char *path,
                    struct err *e)
{
    struct run_state *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "serve: no memory");
    s->legs = legs;
    snprintf(s->path, sizeof s->path, "%s", path);
    if (!loop_timer_open(&s->timer, l, run_state_write, s, e)) {
        free(s);
        return false;
    }
    run_state_load(s);
    *out = s;
    return true;
}

void run_state_mark(struct run_state *s)
{
    if (!s || s->is_marked)
        return;
    s->is_marked = true;
    loop_timer_set(&s->timer, RUN_STATE_WAIT_MS);
}

void run_state_close(struct run_state *s)
{
    if (!s)
        return;
    loop_timer_close(&s->timer);
    if (s->is_marked)
        run_state_write(s);
    free(s);
}
