#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/version.h"
#include "cli/cmd.h"
#include "cli/drill.h"
#include "cli/load.h"
#include "cli/serve_settings.h"
#include "cli/stub_upstream.h"
#include "cli/tiny_model.h"
#include "route/deadline.h"
#include "serve/legs.h"
#include "serve/server.h"

/* The rehearsal: two upstreams that fail as they are told to and a server before them, all in this
 * process; clients of every protocol ask, once with another leg to go to and once without. */

#define CMD_DRILL_WORDS 40
#define CMD_DRILL_SAID "12"    /* words before a fault in mid-stream */
#define CMD_DRILL_WAIT_MS 300  /* first token, gap */
#define CMD_DRILL_CELL_MS 8000 /* then a cell is silence */
#define CMD_DRILL_LATE_MS 500  /* over the limit: what a loaded machine may add */
#define CMD_DRILL_RESPAWN_MS 4000 /* an engine comes back: its start, its load, a second of rest */
#define CMD_DRILL_TOKENS 1800  /* of an engine's reply: it must not end before it is struck */
#define CMD_DRILL_TRIES 3      /* one that ended before it could be struck is asked for again */
#define CMD_DRILL_DRAIN_MS 100 /* a stopped child's last words come out of pipes and sockets, */
#define CMD_DRILL_DRAIN_TURNS 10 /* ... each turn of the loop a part of the way */
#define CMD_DRILL_LOAD_MS 30000

static const struct {
    const char *dialect, *client, *word; /* a leg's, load's, the table's */
    enum leg_continue goes_on;
} cmd_drill_dialects[] = {
    {"ollama", "ollama", "ollama", LEG_CONTINUE_SHOAL},
    {"openai_chat", "chat", "chat", LEG_CONTINUE_FINAL_MESSAGE},
    {"anthropic", "anthropic", "anthropic", LEG_CONTINUE_PREFILL},
    {"openai_responses", "responses", "responses", LEG_CONTINUE_SHOAL},
};
#define CMD_DRILL_DIALECTS (sizeof cmd_drill_dialects / sizeof *cmd_drill_dialects)

/* BEHAVIOUR 9.9. status: without another leg, before a token; in_band: or the stream's error. */
static const struct cmd_drill_fault {
    const char *name, *script;
    int status, anthropic;
    bool in_band, fails_over, may_pass;
    int64_t limit_ms; /* until it is noticed */
    int signal;       /* to the child of an engine; 0: a fault of an upstream */
    uint32_t strikes; /* so many times, where there is no other leg */
} cmd_drill_faults[] = {
    {"refuse", NULL, 502, 502, false, true, false, 100, 0, 0},
    {"hang_header", "hang_header", 504, 504, false, true, false, CMD_DRILL_WAIT_MS, 0, 0},
    {"hang_body", "hang_body", 504, 504, false, true, false, CMD_DRILL_WAIT_MS, 0, 0},
    {"stall", "stall=" CMD_DRILL_SAID, 504, 504, true, true, false, CMD_DRILL_WAIT_MS, 0, 0},
    {"cut", "cut=0", 502, 502, false, true, false, 0, 0, 0},
    {"cut_late", "cut=" CMD_DRILL_SAID, 502, 502, true, true, false, 0, 0, 0},
    {"garbage", "garbage=9", 502, 502, true, true, false, 0, 0, 0},
    {"rate_limit", "status=429", 429, 429, false, true, false, 0, 0, 0},
    /* The one retry may meet the good turn. */
    {"flap", "flap=500", 502, 502, false, true, true, 0, 0, 0},
    {"auth", "status=401", 502, 502, false, false, false, 0, 0, 0},
    {"crash", NULL, 503, 529, false, true, true, 100, SIGKILL, 1}, /* alone: it comes back */
    {"crash_third", NULL, 503, 529, true, true, false, 100, SIGKILL, 3},
    {"wedge", NULL, 503, 529, false, true, true, DRILL_ENGINE_STALL_MS + 1000, SIGSTOP, 1},
};
#define CMD_DRILL_FAULTS (sizeof cmd_drill_faults / sizeof *cmd_drill_faults)

struct cmd_drill_cell {
    struct load_call call;
    const struct cmd_drill_fault *fault;
    size_t dialect;
    bool has_other, is_over;
    int64_t ms; /* to the first token, or to the error; of an engine: from the strike on */
    str engine;
    uint32_t struck, turns;
    size_t len;        /* of the text when it was struck, or stopped and last looked at */
    int64_t struck_ms, still_ms;
    bool is_stopped;
    char why[200]; /* "" passed */
};

struct cmd_drill {
    struct cmd_context *c;
    struct loop *loop;
    struct http_client *client;
    struct stub_upstream *stubs[2];
    struct drill_engine engines;
    struct legs *legs;
    struct server *server;
    struct buf whole, engine_whole;
    char url[64];
    uint32_t passed, failed;
};

/* --- the server under test ----------------------------------------------------------------- */

static void cmd_drill_add_row(struct cmd_drill *d, struct legs_row *to, size_t dialect,
                              const char *letter, unsigned port)
{
    *to = (struct legs_row){
        .name = arena_printf(d->c->arena, "%s-%s", letter, cmd_drill_dialects[dialect].word),
        .kind = LEG_KIND_UPSTREAM,
        .dialect = dialect_of(str_of(cmd_drill_dialects[dialect].dialect)),
        .url = arena_printf(d->c->arena, "http://127.0.0.1:%u", port),
        .goes_on = cmd_drill_dialects[dialect].goes_on,
        .caps = API_CAP_CHAT | API_CAP_TOOLS, .inflight_max = 64,
        .deadline = {.connect_ms = 2000, .first_ms = CMD_DRILL_WAIT_MS,
                     .gap_ms = CMD_DRILL_WAIT_MS},
        .breaking = breaker_options_default};
    to->breaking.failures = 1000; /* each cell shows the fault, not what came of the last one */
    to->breaking.min_requests = 100000;
}

#define CMD_DRILL_ENGINE (3 * CMD_DRILL_DIALECTS) /* the first engine's row */

/* Each route of an engine's fault has models, and so children, of its own. */
static void cmd_drill_engine_route(struct cmd_drill *d, struct router_route *r)
{
    for (uint32_t i = 0; i < 2; i++)
        r->entries[i] = (struct router_entry){
            (uint32_t)CMD_DRILL_ENGINE + i,
            arena_printf(d->c->arena, "%c-%.*s", 'a' + (int)i, STR_ARG(r->match.model)), i};
}

/* Rows: bad, good and refused ones of each protocol, engines. Routes: "FAULT-DIALECT-1", "-2". */
static bool cmd_drill_legs(struct cmd_drill *d, struct legs_config *out, struct err *e)
{
    struct arena *a = d->c->arena;
    struct legs_row *rows = ARENA_ARRAY(a, struct legs_row, CMD_DRILL_ENGINE + 2);
    struct router_route *routes =
        ARENA_ARRAY(a, struct router_route, 2 * CMD_DRILL_DIALECTS * CMD_DRILL_FAULTS);
    if (!rows || !routes)
        return err_set(e, ERR_MEMORY, "drill: no memory");
    *out = (struct legs_config){.rows = rows, .routes = routes, .all_open_wait_ms = 0};
    for (uint32_t i = 0; i < CMD_DRILL_DIALECTS; i++) {
        cmd_drill_add_row(d, &rows[3 * i], i, "bad", stub_upstream_port(d->stubs[0]));
        cmd_drill_add_row(d, &rows[3 * i + 1], i, "good", stub_upstream_port(d->stubs[1]));
        cmd_drill_add_row(d, &rows[3 * i + 2], i, "none", 1);
        for (uint32_t f = 0; f < 2 * CMD_DRILL_FAULTS; f++) {
            const struct cmd_drill_fault *fault = &cmd_drill_faults[f / 2];
            struct router_route *r = &routes[out->routes_count++];
            *r = (struct router_route){.shadow = -1, .entries_count = 1 + f % 2};
            r->match.model = arena_printf(a, "%s-%s-%u", fault->name, cmd_drill_dialects[i].word,
                                          1 + f % 2);
            if (fault->signal) {
                cmd_drill_engine_route(d, r);
                continue;
            }
            r->entries[0].leg = fault->script ? 3 * i : 3 * i + 2;
            r->entries[0].model = arena_printf(a, "x/%s", fault->script ? fault->script : "ok");
            /* The protocol Responses cannot go on inside an answer; chat can. */
            r->entries[1] = (struct router_entry){3 * (i == 3 ? 1 : i) + 1, STR("x/ok"), 1};
        }
    }
    for (uint32_t i = 0; i < 2; i++)
        rows[CMD_DRILL_ENGINE + i] = (struct legs_row){
            .name = i ? STR("engine-b") : STR("engine-a"), .kind = LEG_KIND_ENGINE,
            .inflight_max = 64, .breaking = breaker_options_default};
    out->rows_count = CMD_DRILL_ENGINE + 2;
    return !a->is_full || err_set(e, ERR_MEMORY, "drill: no memory");
}

static void cmd_drill_on_stopped(void *ctx) { (void)ctx; }

static bool cmd_drill_open_server(struct cmd_drill *d, struct err *e)
{
    struct server_options o = {.version = STR("{}"), .version_text = STR(VERSION_TEXT)};
    if (!serve_settings_server(&o, d->c, d->c->config, d->c->arena, e))
        return false;
    o.access = (struct limits_options){.checks_host = true}; /* the rehearsal has no keys */
    o.loop = d->loop;
    o.models = d->engines.models;
    o.legs = d->legs;
    o.on_stopped = cmd_drill_on_stopped;
    if (!server_open(&d->server, &o, e) || !server_listen(d->server, STR("127.0.0.1:0"), e))
        return false;
    snprintf(d->url, sizeof d->url, "http://127.0.0.1:%u", server_port(d->server, 0));
    return true;
}

static bool cmd_drill_open(struct cmd_drill *d, struct err *e)
{
    struct legs_config config;
    struct legs_generation *g;
    if (!loop_open(&d->loop, e) || !http_client_open(&d->client, d->loop, 256, e))
        return false;
    for (size_t i = 0; i < 2; i++) {
        const struct stub_upstream_options o = {.loop = d->loop, .listen = STR("127.0.0.1:0"),
                                                .seed = 1, .words = CMD_DRILL_WORDS};
        if (!stub_upstream_open(&d->stubs[i], &o, e))
            return false;
    }
    buf_init(&d->whole, 1 << 20);
    stub_upstream_text(d->stubs[1], &d->whole);
    buf_init(&d->engine_whole, 1 << 20);
    if (!drill_engine_open(&d->engines, d->loop, d->c, e))
        return false;
    const struct legs_options l = {.loop = d->loop, .models = d->engines.models};
    if (!legs_open(&d->legs, &l, e) || !cmd_drill_legs(d, &config, e) ||
        !legs_prepare(d->legs, &config, &g, e))
        return false;
    legs_apply(d->legs, g);
    return cmd_drill_open_server(d, e);
}

static void cmd_drill_close(struct cmd_drill *d)
{
    server_close(d->server);
    legs_close(d->legs);
    drill_engine_close(&d->engines);
    http_client_close(d->client);
    stub_upstream_close(d->stubs[0]);
    stub_upstream_close(d->stubs[1]);
    loop_close(d->loop);
    buf_deinit(&d->whole);
    buf_deinit(&d->engine_whole);
}

/* --- cells --------------------------------------------------------------------------------- */

static void cmd_drill_on_end(void *ctx, struct load_call *call)
{
    struct cmd_drill_cell *cell = ctx;
    int64_t ns = call->first_ns && !cell->fault->in_band ? call->first_ns : call->end_ns;
    if (!cell->fault->signal)
        cell->ms = (ns - call->start_ns) / 1000000;
    cell->is_over = true;
}

static bool cmd_drill_start(struct cmd_drill *d, struct cmd_drill_cell *cell, struct err *e)
{
    const char *word = cmd_drill_dialects[cell->dialect].word;
    const struct load_turn turn = {.user = STR("Go on.")};
    const struct load_body body = {
        .model = arena_printf(d->c->arena, "%s-%s-%d", cell->fault->name, word,
                              cell->has_other ? 2 : 1),
        .turns = &turn, .turns_count = 1, .out = cell->fault->signal ? CMD_DRILL_TOKENS : 1000,
        .context = TINY_MODEL_CONTEXT};
    cell->call.dialect = load_dialect_find(str_of(cmd_drill_dialects[cell->dialect].client));
    cell->call.on_end = cmd_drill_on_end;
    cell->call.ctx = cell;
    must(cell->call.dialect);
    return load_call_start(&cell->call, d->client, str_of(d->url), &body, e);
}

static bool cmd_drill_is_status(const struct cmd_drill_cell *cell)
{
    bool is_anthropic = cell->dialect == 2;
    return cell->call.status == (is_anthropic ? cell->fault->anthropic : cell->fault->status);
}

static uint32_t cmd_drill_strikes(const struct cmd_drill_cell *cell)
{
    return cell->has_other ? 1 : cell->fault->strikes;
}

/* A stopped child whose words have all come, and whose reply is not over, is in mid-reply. */
static void cmd_drill_drain(const struct cmd_drill *d, struct cmd_drill_cell *cell)
{
    int signal_number = cell->fault->signal;
    if (cell->call.text.len != cell->len) {
        cell->len = cell->call.text.len;
        cell->still_ms = loop_ms();
        cell->turns = 0;
    }
    if (cell->is_over)
        drill_engine_strike(&d->engines, cell->engine, SIGCONT);
    else if (++cell->turns < CMD_DRILL_DRAIN_TURNS ||
             loop_ms() - cell->still_ms < CMD_DRILL_DRAIN_MS)
        return;
    cell->is_stopped = false;
    if (cell->is_over)
        return;
    cell->struck++;
    cell->ms = 0;
    if (signal_number == SIGSTOP)
        return;
    cell->struck_ms = loop_ms();
    drill_engine_strike(&d->engines, cell->engine, signal_number);
}

/* The engine of this cell has said something since it was struck last: it is struck (again). */
static void cmd_drill_strike(const struct cmd_drill *d, struct cmd_drill_cell *cell)
{
    bool is_heard = cell->call.status == 200 && cell->call.text.len > cell->len;
    if (!cell->fault->signal)
        return;
    if (cell->is_stopped) {
        cmd_drill_drain(d, cell);
        return;
    }
    if (is_heard && cell->struck && !cell->ms)
        cell->ms = loop_ms() - cell->struck_ms;
    if (!is_heard || cell->is_over || cell->struck >= cmd_drill_strikes(cell))
        return;
    cell->is_stopped = drill_engine_strike(&d->engines, cell->engine, SIGSTOP);
    cell->struck_ms = cell->still_ms = loop_ms();
    cell->turns = 0;
}

static void cmd_drill_judge_engine(const struct cmd_drill *d, struct cmd_drill_cell *cell)
{
    const struct load_call *call = &cell->call;
    const struct cmd_drill_fault *f = cell->fault;
    str whole = buf_view(&d->engine_whole), text = buf_view(&call->text);
    uint32_t strikes = cmd_drill_strikes(cell);
    int64_t limit = f->limit_ms + (cell->has_other ? CMD_DRILL_LATE_MS : CMD_DRILL_RESPAWN_MS);
    if (!cell->is_over)
        snprintf(cell->why, sizeof cell->why, "silence");
    else if (cell->struck < strikes)
        snprintf(cell->why, sizeof cell->why, "struck %u times of %u: %s", cell->struck, strikes,
                 call->kind[0] ? call->kind : "the reply ended before");
    else if (!cell->has_other && !f->may_pass)
        snprintf(cell->why, sizeof cell->why, "%s",
                 strcmp(call->kind, "error event") != 0 ? call->kind[0] ? call->kind : "a clean end"
                 : str_starts(whole, text)              ? ""
                                                        : "wrong text before the error");
    else if (call->kind[0] || !str_eq(text, whole))
        snprintf(cell->why, sizeof cell->why, "%s, %zu of %zu bytes",
                 call->kind[0] ? call->kind : "wrong text", text.len, whole.len);
    else if (cell->ms > limit)
        snprintf(cell->why, sizeof cell->why, "gone on after %lld ms", (long long)cell->ms);
}

/* What must be seen: BEHAVIOUR 9.9. */
static void cmd_drill_judge(const struct cmd_drill *d, struct cmd_drill_cell *cell)
{
    const struct load_call *call = &cell->call;
    const struct cmd_drill_fault *f = cell->fault;
    str whole = buf_view(&d->whole), text = buf_view(&call->text);
    bool wants_text = cell->has_other && f->fails_over;
    bool is_whole = !call->kind[0] && str_eq(text, whole);
    if (f->signal) {
        cmd_drill_judge_engine(d, cell);
    } else if (!cell->is_over) {
        snprintf(cell->why, sizeof cell->why, "silence");
    } else if (is_whole && (wants_text || f->may_pass)) {
        int64_t limit = f->limit_ms + CMD_DRILL_LATE_MS;
        if (cell->ms > limit)
            snprintf(cell->why, sizeof cell->why, "noticed after %lld ms", (long long)cell->ms);
    } else if (wants_text) {
        snprintf(cell->why, sizeof cell->why, "%s, %zu of %zu bytes", call->kind[0] ? call->kind
                 : "wrong text", text.len, whole.len);
    } else if (call->status != 200) {
        if (!cmd_drill_is_status(cell))
            snprintf(cell->why, sizeof cell->why, "status %d", call->status);
    } else if (!f->in_band || strcmp(call->kind, "error event") != 0) {
        snprintf(cell->why, sizeof cell->why, "%s", call->kind[0] ? call->kind : "a clean end");
    } else if (!str_starts(whole, text)) {
        snprintf(cell->why, sizeof cell->why, "wrong text before the error");
    }
}

/* Until all are over, or are silence. */
static bool cmd_drill_ask(struct cmd_drill *d, struct cmd_drill_cell *cells, uint32_t count,
                          struct err *e)
{
    int64_t end = loop_ms() + CMD_DRILL_CELL_MS;
    uint32_t over = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!cells[i].is_over && !cmd_drill_start(d, &cells[i], e))
            return false;
    while (over < count && loop_ms() < end) {
        loop_step(d->loop, 20);
        over = 0;
        for (uint32_t i = 0; i < count; i++) {
            cmd_drill_strike(d, &cells[i]);
            over += cells[i].is_over;
        }
    }
    return true;
}

/* Its engines: the model of the route's first leg, and of the second where there is one. */
static bool cmd_drill_start_engines(struct cmd_drill *d, struct cmd_drill_cell *cell, struct err *e)
{
    for (int i = 0; i < (cell->has_other ? 2 : 1); i++) {
        str name = arena_printf(d->c->arena, "%c-%s-%s-%d", 'a' + i, cell->fault->name,
                                cmd_drill_dialects[cell->dialect].word, cell->has_other ? 2 : 1);
        if (!drill_engine_start(&d->engines, name, e))
            return false;
        if (i == 0)
            cell->engine = name;
        for (int64_t end = loop_ms() + CMD_DRILL_LOAD_MS; !drill_engine_is_ready(&d->engines, name);
             loop_step(d->loop, 20))
            if (loop_ms() > end)
                return err_set(e, ERR_DEADLINE, "drill: an engine did not load within %d s",
                               CMD_DRILL_LOAD_MS / 1000);
    }
    return true;
}

/* What engines say when nobody disturbs them. */
static bool cmd_drill_hear_whole(struct cmd_drill *d, struct cmd_drill_cell *of, struct err *e)
{
    struct cmd_drill_cell cell = *of;
    if (d->engine_whole.len)
        return true;
    cell.struck = UINT32_MAX; /* it is let be */
    bool ok = cmd_drill_ask(d, &cell, 1, e);
    if (ok && (!cell.is_over || cell.call.kind[0]))
        ok = err_set(e, ERR_INTERNAL, "drill: an engine at rest said: %s",
                     cell.call.kind[0] ? cell.call.why : "nothing");
    if (ok)
        buf_add(&d->engine_whole, buf_view(&cell.call.text));
    load_call_cancel(&cell.call);
    load_call_deinit(&cell.call);
    return ok;
}

/* Cells whose engine was faster than the blow are asked for once more. False: there is none. */
static bool cmd_drill_renew(struct cmd_drill_cell *cells, uint32_t count)
{
    bool is_any = false;
    for (uint32_t i = 0; i < count; i++) {
        struct cmd_drill_cell *c = &cells[i];
        if (!c->fault->signal || !c->is_over || c->call.kind[0] ||
            c->struck >= cmd_drill_strikes(c))
            continue;
        load_call_deinit(&c->call);
        *c = (struct cmd_drill_cell){.fault = c->fault, .dialect = c->dialect,
                                     .has_other = c->has_other, .engine = c->engine};
        is_any = true;
    }
    return is_any;
}

static bool cmd_drill_row(struct cmd_drill *d, struct cmd_drill_cell *cells, uint32_t count,
                          struct err *e)
{
    for (uint32_t i = 0; i < count && cells[i].fault->signal; i++)
        if (!cmd_drill_start_engines(d, &cells[i], e) || !cmd_drill_hear_whole(d, &cells[i], e))
            return false;
    if (!cmd_drill_ask(d, cells, count, e))
        return false;
    for (int try = 1; try < CMD_DRILL_TRIES && cmd_drill_renew(cells, count); try++)
        if (!cmd_drill_ask(d, cells, count, e))
            return false;
    for (uint32_t i = 0; i < count; i++) {
        cmd_drill_judge(d, &cells[i]);
        *(cells[i].why[0] ? &d->failed : &d->passed) += 1;
    }
    return true;
}

/* --- what is told -------------------------------------------------------------------------- */

static bool cmd_drill_wants(const struct config_value *list, const char *name)
{
    for (uint32_t i = 0; i < list->items_count; i++) {
        str rest = list->items[i], word;
        while (str_split(&rest, ',', &word))
            if (str_eq_z(word, name))
                return true;
    }
    return list->items_count == 0;
}

static void cmd_drill_print(const struct cmd_drill_cell *cells, uint32_t count, const char *fault)
{
    printf("%-12s", fault);
    for (uint32_t i = 0; i < count; i += 2) {
        bool ok = !cells[i].why[0] && !cells[i + 1].why[0];
        if (ok)
            printf("  pass %5lld ms  ", (long long)cells[i].ms);
        else
            printf("  %-15s ", "FAIL");
    }
    putchar('\n');
    for (uint32_t i = 0; i < count; i++)
        if (cells[i].why[0])
            printf("    %s, %s another leg: %s\n", cmd_drill_dialects[cells[i].dialect].word,
                   cells[i].has_other ? "with" : "without", cells[i].why);
    fflush(stdout);
}

static void cmd_drill_put(struct json_writer *w, const struct cmd_drill_cell *cell)
{
    json_open_object(w);
    json_key_z(w, "fault");
    json_put_text_z(w, cell->fault->name);
    json_key_z(w, "dialect");
    json_put_text_z(w, cmd_drill_dialects[cell->dialect].word);
    json_key_z(w, "legs");
    json_put_u64(w, cell->has_other ? 2 : 1);
    json_key_z(w, "passed");
    json_put_bool(w, !cell->why[0]);
    json_key_z(w, "ms");
    json_put_i64(w, cell->ms);
    json_key_z(w, "why");
    if (cell->why[0])
        json_put_text_z(w, cell->why);
    else
        json_put_null(w);
    json_close_object(w);
}

static bool cmd_drill_fault_row(struct cmd_drill *d, const struct cmd_drill_fault *f,
                                struct json_writer *w, struct err *e)
{
    struct cmd_drill_cell *cells = calloc(2 * CMD_DRILL_DIALECTS, sizeof *cells);
    uint32_t count = 0;
    if (!cells)
        return err_set(e, ERR_MEMORY, "drill: no memory");
    for (size_t i = 0; i < CMD_DRILL_DIALECTS; i++)
        for (int k = 0; k < 2; k++)
            if (cmd_drill_wants(cmd_value(d->c, "dialects"), cmd_drill_dialects[i].word))
                cells[count++] = (struct cmd_drill_cell){.fault = f, .dialect = i,
                                                         .has_other = k == 0};
    bool ok = cmd_drill_row(d, cells, count, e);
    for (uint32_t i = 0; ok && w && i < count; i++)
        cmd_drill_put(w, &cells[i]);
    if (ok && !w)
        cmd_drill_print(cells, count, f->name);
    for (uint32_t i = 0; i < count; i++)
        if (cells[i].call.dialect)
            load_call_deinit(&cells[i].call);
    free(cells);
    return ok;
}

static bool cmd_drill_all(struct cmd_drill *d, struct err *e)
{
    struct buf out;
    buf_init(&out, 1 << 20);
    struct json_writer w = json_writer(&out);
    bool is_json = cmd_bool(d->c, "json"), ok = true;
    json_open_object(&w);
    json_key_z(&w, "cells");
    json_open_array(&w);
    if (!is_json) {
        printf("%-12s", "FAULT");
        for (size_t i = 0; i < CMD_DRILL_DIALECTS; i++)
            if (cmd_drill_wants(cmd_value(d->c, "dialects"), cmd_drill_dialects[i].word))
                printf("  %-15s ", cmd_drill_dialects[i].word);
        putchar('\n');
    }
    for (size_t i = 0; ok && i < CMD_DRILL_FAULTS; i++)
        if (cmd_drill_wants(cmd_value(d->c, "faults"), cmd_drill_faults[i].name))
            ok = cmd_drill_fault_row(d, &cmd_drill_faults[i], is_json ? &w : NULL, e);
    json_close_array(&w);
    json_key_z(&w, "passed");
    json_put_u64(&w, d->passed);
    json_key_z(&w, "failed");
    json_put_u64(&w, d->failed);
    json_close_object(&w);
    if (ok && is_json)
        printf("%s\n", out.p);
    else if (ok)
        printf("%u passed, %u failed\n", d->passed, d->failed);
    buf_deinit(&out);
    return ok;
}

/* A name that nobody knows would pass by testing nothing. */
static bool cmd_drill_check_word(str word, bool is_dialect, struct err *e)
{
    for (size_t k = 0; k < (is_dialect ? CMD_DRILL_DIALECTS : CMD_DRILL_FAULTS); k++)
        if (str_eq_z(word, is_dialect ? cmd_drill_dialects[k].word : cmd_drill_faults[k].name))
            return true;
    return err_set(e, ERR_USAGE, "drill: no %s is called \"%.*s\"",
                   is_dialect ? "dialect" : "fault", STR_ARG(str_sub(word, 0, 40)));
}

static bool cmd_drill_check(const struct cmd_context *c, struct err *e)
{
    const struct config_value *lists[] = {cmd_value(c, "faults"), cmd_value(c, "dialects")};
    for (size_t l = 0; l < 2; l++)
        for (uint32_t i = 0; i < lists[l]->items_count; i++) {
            str rest = lists[l]->items[i], word;
            while (str_split(&rest, ',', &word))
                if (!cmd_drill_check_word(word, l == 1, e))
                    return false;
        }
    return true;
}

static bool cmd_drill_run(struct cmd_context *c, struct err *e)
{
    struct cmd_drill d = {.c = c};
    static const char *const live[] = {"fault", "for", "share", "agents"};
    if (cmd_text(c, "live").len)
        return drill_live(c, e);
    for (size_t i = 0; i < countof(live); i++)
        if (cmd_is_given(c, live[i]))
            return err_set(e, ERR_USAGE, "-%s goes with -live LEG; the rehearsal on loopback takes "
                           "-faults and -dialects", live[i]);
    if (!cmd_drill_check(c, e))
        return false;
    signal(SIGPIPE, SIG_IGN);
    bool ok = cmd_drill_open(&d, e) && cmd_drill_all(&d, e);
    cmd_drill_close(&d);
    c->exit_code = d.failed ? CMD_EXIT_ERROR : CMD_EXIT_DONE;
    return ok;
}

static const struct cmd_flag cmd_drill_flags[] = {
    {.name = "faults", .value = "LIST", .spec = {.type = CONFIG_TYPE_LIST}, .is_repeatable = true,
     .help = "which of those above; all"},
    {.name = "dialects", .value = "LIST", .spec = {.type = CONFIG_TYPE_LIST},
     .is_repeatable = true, .help = "ollama chat anthropic responses; all"},
    {.name = "live", .value = "LEG", .spec = {.type = CONFIG_TYPE_TEXT},
     .help = "lay a fault over that leg of the server at -addr (scope admin)"},
    {.name = "fault", .value = "NAME", .spec = {.type = CONFIG_TYPE_TEXT},
     .help = "-live: which one, of those of -faults"},
    {.name = "for", .value = "TIME", .spec = {.type = CONFIG_TYPE_DURATION, .min = 0},
     .standard = "60s", .help = "-live: how long, at most 1h"},
    {.name = "share", .value = "X", .spec = {.type = CONFIG_TYPE_REAL},
     .standard = "1.0", .help = "-live: of the requests, 0 to 1"},
    {.name = "agents", .value = "GLOB", .spec = {.type = CONFIG_TYPE_TEXT},
     .help = "-live: whose requests; all"},
};

const struct cmd cmd_drill = {
    .name = "drill",
    .summary = "Rehearse outages: every fault, every protocol, with and without another leg",
    .text = "Two upstreams that fail as they are told to and a server before them run in this\n"
            "process, on loopback; crash and wedge strike engines of a model of a megabyte, made\n"
            "for it. With another leg a client must get the whole text, without one\n"
            "its protocol's error, and never silence. Exit code 0: all passed.\n"
            "With -live the fault strikes requests of a running server; exit code 1: one failed\n"
            "that had another leg.\n\n"
            "Faults of upstreams: refuse hang_header hang_body stall cut cut_late garbage\n"
            "rate_limit flap auth; of an engine: crash crash_third wedge.",
    .flags = cmd_drill_flags,
    .flags_count = countof(cmd_drill_flags),
    .has_json = true,
    .takes_server = true,
    .run = cmd_drill_run,
};
