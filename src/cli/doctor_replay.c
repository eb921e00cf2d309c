#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/version.h"
#include "cli/doctor.h"
#include "cli/run_local.h"
#include "cli/serve_settings.h"
#include "cli/stub_upstream.h"
#include "serve/legs.h"
#include "wire/http_client.h"

/* An endpoint and a stub leg in this process. Each recording is sent as it was recorded, once for
 * each protocol that the leg may speak and each thing that it may say. */

#define DOCTOR_CALL_MS 10000
#define DOCTOR_WORDS 20

static const struct {
    const char *dialect;
    enum leg_continue goes_on;
} doctor_legs[] = {{"anthropic", LEG_CONTINUE_PREFILL},
                   {"openai_chat", LEG_CONTINUE_FINAL_MESSAGE},
                   {"openai_responses", LEG_CONTINUE_NONE},
                   {"ollama", LEG_CONTINUE_NONE}};
static const char *const doctor_scripts[] = {"ok", "think", "call"};

struct doctor {
    struct cmd_context *c;
    const struct doctor_report *out;
    struct loop *loop;
    struct http_client *client;
    struct stub_upstream *stub;
    struct library_options library;
    struct models_leg *models;
    struct legs *legs;
    struct server *server;
    struct buf whole, reply;
    int status;
    bool is_over;
    struct err why; /* of a broken call */
    bool is_broken;
    /* Of the client at hand. */
    uint32_t sent;
    char fault[300];
};

/* --- the endpoint -------------------------------------------------------------------------- */

static void doctor_on_stopped(void *ctx) { (void)ctx; }

static bool doctor_set_leg(struct doctor *d, size_t i, struct err *e)
{
    struct legs_row row = {
        .name = STR("stub"), .kind = LEG_KIND_UPSTREAM, .model = STR("stub"),
        .dialect = dialect_of(str_of(doctor_legs[i].dialect)), .goes_on = doctor_legs[i].goes_on,
        .url = arena_printf(d->c->arena, "http://127.0.0.1:%u", stub_upstream_port(d->stub)),
        .caps = API_CAP_CHAT | API_CAP_TOOLS | API_CAP_VISION | API_CAP_SCHEMA | API_CAP_THINK |
                API_CAP_LOGPROBS | API_CAP_N,
        .inflight_max = 16,
        .deadline = {.connect_ms = 2000, .first_ms = 5000, .gap_ms = 5000},
        .breaking = breaker_options_default};
    struct router_route route = {.shadow = -1, .entries_count = 1};
    struct legs_config config = {.rows = &row, .rows_count = 1, .routes = &route,
                                 .routes_count = 1};
    struct legs_generation *g;
    if (!legs_prepare(d->legs, &config, &g, e))
        return false;
    legs_apply(d->legs, g);
    return true;
}

static bool doctor_open_models(struct doctor *d, struct err *e)
{
    static const char *const argv[] = {"shoal", "engine", NULL};
    struct models_leg_options m = {.loop = d->loop, .build_id = run_local_build_id(d->c->arena),
                                   .argv = argv, .library = &d->library, .resident_max = 1,
                                   .waiting_max = 16};
    cmd_models_options(d->c, &d->library);
    return run_local_load(d->c->config, &m.load, e) && models_leg_open(&d->models, &m, e);
}

static bool doctor_open(struct doctor *d, struct err *e)
{
    struct server_options o = {.version = STR("{}"), .version_text = STR(VERSION_TEXT)};
    struct legs_options l = {.loop = NULL};
    buf_init(&d->whole, 1 << 20);
    buf_init(&d->reply, DOCTOR_REPLY_MAX);
    if (!loop_open(&d->loop, e) || !http_client_open(&d->client, d->loop, 4, e))
        return false;
    const struct stub_upstream_options so = {.loop = d->loop, .listen = STR("127.0.0.1:0"),
                                             .seed = 1, .words = DOCTOR_WORDS};
    if (!stub_upstream_open(&d->stub, &so, e) || !doctor_open_models(d, e))
        return false;
    stub_upstream_text(d->stub, &d->whole);
    l.loop = d->loop;
    l.models = d->models;
    if (!legs_open(&d->legs, &l, e) ||
        !serve_settings_server(&o, d->c, d->c->config, d->c->arena, e))
        return false;
    o.access = (struct limits_options){.checks_host = true}; /* no keys in here */
    o.loop = d->loop;
    o.models = d->models;
    o.legs = d->legs;
    o.on_stopped = doctor_on_stopped;
    return server_open(&d->server, &o, e) && server_listen(d->server, STR("127.0.0.1:0"), e);
}

static void doctor_close(struct doctor *d)
{
    server_close(d->server);
    legs_close(d->legs);
    models_leg_close(d->models, 0);
    http_client_close(d->client);
    stub_upstream_close(d->stub);
    loop_close(d->loop);
    buf_deinit(&d->whole);
    buf_deinit(&d->reply);
}

/* --- one request --------------------------------------------------------------------------- */

static void doctor_on_head(void *ctx, int status) { ((struct doctor *)ctx)->status = status; }

static void doctor_on_bytes(void *ctx, str bytes)
{
    struct doctor *d = ctx;
    buf_add(&d->reply, bytes);
}

static void doctor_on_end(void *ctx, const struct err *why)
{
    struct doctor *d = ctx;
    d->is_over = true;
    d->is_broken = why != NULL;
    if (why)
        d->why = *why;
}

static bool doctor_ask(struct doctor *d, str path, str body, struct err *e)
{
    static const char *const headers[] = {"Content-Type: application/json",
                                          "anthropic-version: 2023-06-01", NULL};
    struct http_call *call;
    str url = arena_printf(d->c->arena, "http://127.0.0.1:%u%.*s", server_port(d->server, 0),
                           STR_ARG(path));
    const struct http_call_options o = {
        .url = url, .headers = headers, .body = body, .total_ms = DOCTOR_CALL_MS,
        .handlers = {d, doctor_on_head, doctor_on_bytes, doctor_on_end}};
    buf_clear(&d->reply);
    d->status = 0;
    d->is_over = false;
    if (!http_client_start(d->client, &call, &o, e))
        return false;
    while (!d->is_over)
        loop_step(d->loop, 100);
    if (d->is_broken)
        return err_set(e, ERR_UPSTREAM, "%s", d->why.text);
    if (d->status == 200)
        return true;
    str said = str_sub(buf_view(&d->reply), 0, 120);
    said.len = str_utf8_valid(said);
    return err_set(e, ERR_UPSTREAM, "status %d: %.*s", d->status, STR_ARG(said));
}

/* One recording over a leg of that protocol, with that script. */
static bool doctor_try(struct doctor *d, struct json row, const char *script, struct err *e)
{
    struct json body = json_member(row, "body"), tools = json_member(body, "tools");
    const struct dialect *dialect;
    const struct dialect_path *path;
    str target = json_text(json_member(row, "path"), d->c->arena), segment;
    str plain = str_sub(target, 0, base_min(str_find_byte(target, '?'), target.len));
    struct json_walk any_tool = json_walk(tools);
    bool is_call = !strcmp(script, "call");
    if (!dialect_match(STR("POST"), plain, &dialect, &path, &segment))
        return err_set(e, ERR_FORMAT, "no dialect has POST %.*s", STR_ARG(plain));
    struct doctor_wish w = {.dialect = str_of(dialect->name), .stream = path->streams,
                            .text = !strcmp(script, "ok") ? buf_view(&d->whole) : STR("")};
    json_bool(json_member(body, "stream"), &w.stream);
    if (is_call && (json_kind(tools) != JSON_KIND_ARRAY || !json_next(&any_tool)))
        return true; /* whoever offers no tool gets no call */
    w.has_call = is_call;
    d->sent++;
    return stub_upstream_set(d->stub, str_of(script), e) &&
           doctor_ask(d, target, json_raw(body), e) &&
           doctor_rules_check(&w, buf_view(&d->reply), e);
}

/* Every script over every leg; the first fault stays. */
static void doctor_send(struct doctor *d, str text)
{
    const struct json_options o = {.depth_max = 64};
    struct json row;
    struct err e = {0};
    if (!json_parse(&row, text, &o, d->c->arena, &e) && !d->fault[0])
        snprintf(d->fault, sizeof d->fault, "%s", e.text);
    for (size_t i = 0; i < countof(doctor_legs) && !d->fault[0]; i++) {
        if (!doctor_set_leg(d, i, &e))
            snprintf(d->fault, sizeof d->fault, "%s", e.text);
        for (size_t k = 0; k < countof(doctor_scripts) && !d->fault[0]; k++)
            if (!doctor_try(d, row, doctor_scripts[k], &e))
                snprintf(d->fault, sizeof d->fault, "over a leg of %s, %s: %s",
                         doctor_legs[i].dialect, doctor_scripts[k], e.text);
    }
}

static void doctor_tell(struct doctor *d, str client)
{
    bool is_ok = !d->fault[0] && d->sent > 0;
    str name = arena_printf(d->c->arena, "client %.*s", STR_ARG(client));
    str detail = is_ok ? arena_printf(d->c->arena, "%u replies as its protocol wants them", d->sent)
                       : d->fault[0] ? arena_copy(d->c->arena, str_of(d->fault))
                                     : STR("nothing to send");
    d->out->add(d->out->ctx, is_ok ? DOCTOR_STATE_OK : DOCTOR_STATE_FAIL, name, detail);
    d->sent = 0;
    d->fault[0] = 0;
}

/* --- recordings of the user's -------------------------------------------------------------- */

static void doctor_send_file(struct doctor *d, str directory, const char *name)
{
    struct err e;
    str text, path = arena_printf(d->c->arena, "%.*s/%s", STR_ARG(directory), name);
    if (file_read(&text, path.p, DOCTOR_FILE_MAX, d->c->arena, &e))
        doctor_send(d, text);
    else
        snprintf(d->fault, sizeof d->fault, "%s", e.text);
    doctor_tell(d, str_of(name));
}

static int doctor_by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool doctor_send_directory(struct doctor *d, str directory, struct err *e)
{
    const char **names = ARENA_ARRAY(d->c->arena, const char *, DOCTOR_RECORDINGS_MAX);
    uint32_t count = 0;
    DIR *dir = opendir(directory.p);
    if (!dir || !names) {
        if (dir)
            closedir(dir);
        return err_set(e, ERR_IO, "-replay %.*s: cannot be read", STR_ARG(directory));
    }
    for (struct dirent *f; (f = readdir(dir)) && count < DOCTOR_RECORDINGS_MAX;)
        if (str_ends(str_of(f->d_name), STR(".json")))
            names[count++] = arena_copy(d->c->arena, str_of(f->d_name)).p;
    closedir(dir);
    if (!count)
        return err_set(e, ERR_IO, "-replay %.*s: no .json file in it", STR_ARG(directory));
    qsort(names, count, sizeof *names, doctor_by_name);
    for (uint32_t i = 0; i < count; i++)
        doctor_send_file(d, directory, names[i]);
    return true;
}

bool doctor_replay(struct cmd_context *c, str directory, const struct doctor_report *out,
                   struct err *e)
{
    struct doctor d = {.c = c, .out = out};
    bool ok = doctor_open(&d, e);
    for (size_t i = 0; ok && doctor_data[i].client; i++) {
        bool is_last = !doctor_data[i + 1].client ||
                       strcmp(doctor_data[i].client, doctor_data[i + 1].client) != 0;
        if (!d.fault[0])
            doctor_send(&d, str_of(doctor_data[i].text));
        if (is_last)
            doctor_tell(&d, str_of(doctor_data[i].client));
    }
    if (ok && directory.len)
        ok = doctor_send_directory(&d, directory, e);
    doctor_close(&d);
    return ok;
}
