#include "serve/path_legs.h"

#include <stdio.h>

#include "base/chrono.h"
#include "serve/legs.h"
#include "serve/path_body.h"

#define PATH_LEGS_MAX ((size_t)4 << 20)

/* --- writing ------------------------------------------------------------------------------- */

/* A moment of the monotonic clock as milliseconds of the wall clock; none: null. */
static void path_legs_time(struct json_writer *w, const char *key, int64_t ms)
{
    json_key_z(w, key);
    if (ms > 0 && ms < INT64_MAX)
        json_put_i64(w, chrono_unix_ms(&chrono_real) + ms - loop_ms());
    else
        json_put_null(w);
}

static void path_legs_put_health(struct json_writer *w, const struct leg *l, int64_t now)
{
    struct health_window win = health_window_of(&l->health, l->breaking.window_ms, now);
    json_key_z(w, "window");
    json_open_object(w);
    json_put_key_i64(w, "requests", win.requests);
    json_put_key_i64(w, "failures", win.failures);
    json_close_object(w);
    json_key_z(w, "ttft_ms");
    json_open_object(w);
    json_put_key_i64(w, "p50", health_quantile(&l->health.recent, 50));
    json_put_key_i64(w, "p95", health_quantile(&l->health.recent, 95));
    json_close_object(w);
    json_put_key_i64(w, "inflight", l->inflight);
    path_legs_time(w, "last_ok", l->health.ok_ms);
    json_key_z(w, "last_error");
    if (l->health.error == HEALTH_CLASS_OK) {
        json_put_null(w);
        return;
    }
    json_open_object(w);
    path_legs_time(w, "at", l->health.error_ms);
    json_put_key_text(w, "class", str_of(health_class_name(l->health.error)));
    json_put_key_text(w, "text", str_of(l->health.error_text));
    json_close_object(w);
}

static void path_legs_put_leg(struct json_writer *w, const struct legs_leg *at, int64_t now)
{
    const struct leg *l = &at->leg;
    bool is_cooling = breaker_is_cooling(&l->breaker, now);
    bool has_why = l->breaker.why != HEALTH_CLASS_OK &&
                   (is_cooling || l->breaker.state != BREAKER_STATE_CLOSED);
    int64_t until = l->breaker.state == BREAKER_STATE_OPEN ? l->breaker.until_ms : 0;
    json_open_object(w);
    json_put_key_text(w, "name", str_of(at->name));
    json_put_key_text(w, "kind", l->kind == LEG_KIND_ENGINE ? STR("engine") : STR("upstream"));
    json_put_key_text(w, "dialect", l->dialect);
    json_put_key_text(w, "model", str_of(at->model));
    json_put_key_text(w, "state", str_of(legs_state_name(at, now)));
    json_put_key_text(w, "reason",
                      has_why ? str_of(health_class_name(l->breaker.why))
                      : l->health.is_misconfigured ? STR("auth") : STR(""));
    path_legs_time(w, "since", l->breaker.since_ms);
    path_legs_time(w, "until", is_cooling && l->breaker.cooling_ms > until ? l->breaker.cooling_ms
                                                                           : until);
    json_put_key_i64(w, "points", l->breaker.points);
    json_put_key_i64(w, "openings", l->breaker.openings);
    path_legs_put_health(w, l, now);
    json_close_object(w);
}

/* A configured leg whose first request is still to come has no state of its own yet. */
static void path_legs_put_unused(struct json_writer *w, const struct legs_row *r)
{
    json_open_object(w);
    json_put_key_text(w, "name", r->name);
    json_put_key_text(w, "kind", r->kind == LEG_KIND_ENGINE ? STR("engine") : STR("upstream"));
    json_put_key_text(w, "dialect", r->dialect ? str_of(r->dialect->name) : STR(""));
    json_put_key_text(w, "model", r->model);
    json_put_key_text(w, "state", STR("closed"));
    static const char *const nulls[] = {"reason", "since", "until"};
    for (size_t i = 0; i < countof(nulls); i++)
        json_put_key_text(w, nulls[i], STR(""));
    json_put_key_i64(w, "points", 0);
    json_put_key_i64(w, "openings", 0);
    json_key_z(w, "window");
    json_put_raw(w, STR("{\"requests\":0,\"failures\":0}"));
    json_key_z(w, "ttft_ms");
    json_put_raw(w, STR("{\"p50\":0,\"p95\":0}"));
    json_put_key_i64(w, "inflight", 0);
    json_put_key_text(w, "last_ok", STR(""));
    json_put_key_text(w, "last_error", STR(""));
    json_close_object(w);
}

static const struct legs_leg *path_legs_of_row(struct legs *l, uint32_t row)
{
    for (const struct legs_leg *at = legs_first(l); at; at = legs_next(l, at))
        if (at->row == row)
            return at;
    return NULL;
}

static bool path_legs_may_answer(struct legs *l, const struct router_entry *e, int64_t now)
{
    const struct legs_leg *at = path_legs_of_row(l, e->leg);
    return !at || (breaker_allows(&at->leg.breaker, now) &&
                   at->leg.state != API_HEALTH_FAILED);
}

bool path_legs_is_open(const struct server *s, const struct router_entry *e)
{
    struct legs *l = server_options_of(s)->legs;
    return legs_row_of(l, e->leg)->kind == LEG_KIND_UPSTREAM &&
           path_legs_may_answer(l, e, loop_ms());
}

/* The name of the leg that would be asked first now; "" when none may be. */
static str path_legs_active(struct legs *l, const struct router_route *r, int64_t now)
{
    for (uint32_t i = 0; i < r->entries_count; i++)
        if (path_legs_may_answer(l, &r->entries[i], now))
            return legs_row_of(l, r->entries[i].leg)->name;
    return STR("");
}

static void path_legs_put_route(struct json_writer *w, struct legs *l,
                                const struct router_route *r, int64_t now)
{
    json_open_object(w);
    json_key_z(w, "match");
    json_open_object(w);
    const struct {
        const char *key;
        str glob;
    } globs[] = {{"model", r->match.model}, {"agent", r->match.agent},
                 {"dialect", r->match.dialect}, {"key", r->match.key}};
    for (size_t i = 0; i < countof(globs); i++)
        json_put_key_text(w, globs[i].key, globs[i].glob);
    json_close_object(w);
    json_key_z(w, "legs");
    json_open_array(w);
    for (uint32_t i = 0; i < r->entries_count; i++) {
        bool opens = i == 0 || r->entries[i].rank != r->entries[i - 1].rank;
        bool closes = i + 1 == r->entries_count ||
                      r->entries[i].rank != r->entries[i + 1].rank;
        if (opens && !closes)
            json_open_array(w);
        json_put_text(w, legs_row_of(l, r->entries[i].leg)->name);
        if (closes && !opens)
            json_close_array(w);
    }
    json_close_array(w);
    json_put_key_text(w, "active", path_legs_active(l, r, now));
    json_put_key_text(w, "shadow",
                      r->shadow >= 0 ? legs_row_of(l, (uint32_t)r->shadow)->name : STR(""));
    json_close_object(w);
}

void path_legs_put(struct json_writer *w, struct server *s)
{
    struct legs *l = server_options_of(s)->legs;
    const struct router_route *routes;
    int64_t now = loop_ms();
    json_key_z(w, "legs");
    json_open_array(w);
    for (uint32_t i = 0; i < legs_rows(l); i++) {
        if (!path_legs_of_row(l, i))
            path_legs_put_unused(w, legs_row_of(l, i));
        for (const struct legs_leg *at = legs_first(l); at; at = legs_next(l, at))
            if (at->row == i)
                path_legs_put_leg(w, at, now);
    }
    json_close_array(w);
    json_key_z(w, "routes");
    json_open_array(w);
    uint32_t count = legs_routes(l, &routes);
    for (uint32_t i = 0; i < count; i++)
        path_legs_put_route(w, l, &routes[i], now);
    json_close_array(w);
}

void path_legs_routes(struct server *s, struct http_conn *c)
{
    struct buf out;
    buf_init(&out, PATH_LEGS_MAX);
    struct json_writer w = json_writer(&out);
    json_open_object(&w);
    path_legs_put(&w, s);
    json_close_object(&w);
    http_conn_add_header(c, "Cache-Control", STR("no-store"));
    server_reply(c, 200, buf_view(&out));
    buf_deinit(&out);
}

bool path_legs_judge(const struct server *s, struct json_writer *reasons, bool *is_degraded)
{
    struct legs *l = server_options_of(s)->legs;
    const struct router_route *routes;
    int64_t now = loop_ms();
    bool is_failing = false;
    char text[200];
    for (const struct legs_leg *at = legs_first(l); at; at = legs_next(l, at)) {
        str state = str_of(legs_state_name(at, now));
        if (at->leg.kind == LEG_KIND_ENGINE || str_eq_z(state, "closed") ||
            str_eq_z(state, "forced_closed") || str_eq_z(state, "half_open"))
            continue;
        *is_degraded = true;
        snprintf(text, sizeof text, "leg %s: %.*s", at->name, STR_ARG(state));
        json_put_text_z(reasons, text);
    }
    uint32_t count = legs_routes(l, &routes);
    for (uint32_t i = 0; i < count; i++) {
        if (path_legs_active(l, &routes[i], now).len)
            continue;
        is_failing = true;
        snprintf(text, sizeof text, "route %u: no leg can answer", i);
        json_put_text_z(reasons, text);
    }
    return is_failing;
}

/* --- POST /v1/legs/{name} ------------------------------------------------------------------ */

static bool path_legs_read(struct http_conn *c, enum breaker_event_kind *how, struct api_error *e)
{
    static const struct {
        const char *name;
        enum breaker_event_kind how;
    } rows[] = {{"auto", BREAKER_EVENT_AUTO}, {"open", BREAKER_EVENT_FORCE_OPEN},
                {"closed", BREAKER_EVENT_FORCE_CLOSED}};
    struct json body;
    if (!path_body_open(c, &body, e))
        return false;
    str state = json_text(json_member(body, "state"), http_conn_arena(c));
    for (size_t i = 0; i < countof(rows); i++)
        if (str_eq_z(state, rows[i].name)) {
            *how = rows[i].how;
            return true;
        }
    return api_error_set(e, ERR_REQUEST, "", STR("state"),
                         "state: \"auto\", \"open\" or \"closed\" expected");
}

void path_legs_force(struct server *s, struct http_conn *c)
{
    str path = http_conn_request(c)->path;
    enum breaker_event_kind how = BREAKER_EVENT_AUTO;
    struct api_error e = {0};
    size_t at = path.len;
    while (at && path.p[at - 1] != '/')
        at--;
    str name = str_from(path, at);
    if (path_legs_read(c, &how, &e) && legs_force(server_options_of(s)->legs, name, how)) {
        path_legs_routes(s, c);
        return;
    }
    if (e.err.code == ERR_NONE)
        api_error_set(&e, ERR_NOT_FOUND, "not_found", STR(""), "no leg %.*s",
                      (int)str_utf8_valid(str_sub(name, 0, 80)), name.len ? name.p : "");
    server_refuse(s, c, &e);
}

/* --- /v1/admin/drill ------------------------------------------------------------------------- */

void path_legs_drilled(struct server *s, struct http_conn *c)
{
    bool is_order = str_eq_z(http_conn_request(c)->method, "POST");
    struct buf out;
    buf_init(&out, PATH_LEGS_MAX);
    rehearsal_report(legs_rehearsal(server_options_of(s)->legs), &out);
    http_conn_add_header(c, "Cache-Control", STR("no-store"));
    server_reply(c, is_order ? 202 : 200, buf_view(&out));
    buf_deinit(&out);
}

static bool path_legs_read_field(struct rehearsal_plan *p, const struct json_walk *w,
                                 struct arena *a, struct api_error *e)
{
    const struct {
        const char *name;
        str *to;
    } texts[] = {{"leg", &p->leg}, {"fault", &p->fault}, {"agents", &p->agents}};
    str key = json_text(w->key, a);
    for (size_t i = 0; i < countof(texts); i++) {
        if (str_eq_z(key, texts[i].name))
            return path_body_text(w->value, texts[i].name, texts[i].to, a, e);
    }
    if (str_eq_z(key, "seconds"))
        return json_i64(w->value, &p->seconds) || path_body_wrong(e, "seconds", "a whole number");
    if (str_eq_z(key, "share"))
        return json_double(w->value, &p->share) || path_body_wrong(e, "share", "a number");
    return api_error_set(e, ERR_REQUEST, "", key, "unknown field: leg, fault, seconds, share and "
                         "agents are known");
}

static bool path_legs_read_plan(struct http_conn *c, struct rehearsal_plan *p, struct api_error *e)
{
    struct json body;
    *p = (struct rehearsal_plan){.leg = STR(""), .fault = STR(""), .agents = STR("*"),
                                 .seconds = 60, .share = 1};
    if (!path_body_open(c, &body, e))
        return false;
    struct json_walk w = json_walk(body);
    while (json_next(&w))
        if (!path_legs_read_field(p, &w, http_conn_arena(c), e))
            return false;
    return true;
}

void path_legs_drill(struct server *s, struct http_conn *c)
{
    struct api_error e = {0};
    struct rehearsal_plan p;
    if (path_legs_read_plan(c, &p, &e) &&
        legs_rehearse(server_options_of(s)->legs, &p, &e.err))
        path_legs_drilled(s, c);
    else {
        if (e.err.code == ERR_NOT_FOUND)
            e.code = STR("not_found");
        server_refuse(s, c, &e);
    }
}
