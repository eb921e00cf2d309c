#include "cli/run_remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/json.h"

#define RUN_REMOTE_BODY_MAX ((size_t)512 << 20)
#define RUN_REMOTE_SEND_MS 30000
#define RUN_REMOTE_DEPTH 32

struct run_remote {
    struct loop *loop;
    struct daemon daemon;
    str keep_alive;
    int fd; /* -1: no request */
    struct loop_watch watch;
    uint64_t id;
    struct api_sink sink;
    struct buf in;
    int status; /* 0: the header is not complete yet */
    bool is_over;
};

/* --- the request --------------------------------------------------------------------------- */

static void run_remote_put_message(struct json_writer *w, const struct api_message *m)
{
    json_open_object(w);
    json_key_z(w, "role");
    json_put_text_z(w, api_request_role_name(m->role));
    json_key_z(w, "content");
    json_put_text(w, m->parts[0].text); /* run_local makes messages of one text */
    json_close_object(w);
}

static void run_remote_put_think(struct json_writer *w, const struct api_request *rq)
{
    if (!api_request_is_given(rq, API_FIELD_THINK) && !api_request_is_given(rq, API_FIELD_EFFORT))
        return;
    json_key_z(w, "think");
    if (rq->think == API_THINK_OFF)
        json_put_bool(w, false);
    else if (api_request_is_given(rq, API_FIELD_EFFORT))
        json_put_text_z(w, api_request_effort_name(rq->effort));
    else
        json_put_bool(w, true);
}

static void run_remote_put_format(struct json_writer *w, const struct api_format *f)
{
    if (f->kind == API_FORMAT_TEXT)
        return;
    json_key_z(w, "format");
    if (f->kind == API_FORMAT_JSON)
        json_put_text_z(w, "json");
    else
        json_put_raw(w, f->text);
}

static void run_remote_put_options(struct json_writer *w, const struct api_request *rq)
{
    json_key_z(w, "options");
    json_open_object(w);
    if (rq->context_max) {
        json_key_z(w, "num_ctx");
        json_put_u64(w, rq->context_max);
    }
    if (rq->tokens_max) {
        json_key_z(w, "num_predict");
        json_put_u64(w, rq->tokens_max);
    }
    if (api_request_is_given(rq, API_FIELD_TEMPERATURE)) {
        json_key_z(w, "temperature");
        json_put_float(w, rq->temperature);
    }
    if (api_request_is_given(rq, API_FIELD_SEED)) {
        json_key_z(w, "seed");
        json_put_u64(w, rq->seed);
    }
    json_close_object(w);
}

static void run_remote_put(struct run_remote *r, struct buf *out, const struct api_request *rq)
{
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    json_key_z(&w, "model");
    json_put_text(&w, rq->model);
    json_key_z(&w, "stream");
    json_put_bool(&w, true);
    json_key_z(&w, "messages");
    json_open_array(&w);
    for (uint32_t i = 0; i < rq->messages_count; i++)
        run_remote_put_message(&w, &rq->messages[i]);
    json_close_array(&w);
    run_remote_put_think(&w, rq);
    if (r->keep_alive.len) {
        json_key_z(&w, "keep_alive");
        json_put_text(&w, r->keep_alive);
    }
    run_remote_put_format(&w, &rq->format);
    run_remote_put_options(&w, rq);
    json_close_object(&w);
}

static void run_remote_end(struct run_remote *r)
{
    loop_watch_close(&r->watch);
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
    buf_clear(&r->in);
}

/* --- the reply ----------------------------------------------------------------------------- */

static void run_remote_give(struct run_remote *r, const struct api_event *events, uint32_t count)
{
    struct api_batch b = {.request_id = r->id, .events = events, .events_count = count};
    r->sink.on_batch(r->sink.ctx, &b);
}

static void run_remote_fail(struct run_remote *r, enum err_code code, str why)
{
    struct api_event ev = {.kind = API_EVENT_ERROR};
    r->is_over = true;
    err_set(&ev.error.err, code, "%.*s", STR_ARG(why));
    run_remote_end(r);
    run_remote_give(r, &ev, 1);
}

static uint64_t run_remote_number(struct json v, const char *key)
{
    uint64_t n = 0;
    return json_u64(json_member(v, key), &n) ? n : 0;
}

static enum api_done run_remote_reason(struct json line)
{
    struct json finish = json_member(json_member(line, "shoal"), "finish");
    for (int i = 0; i < API_DONE_COUNT_; i++)
        if (json_text_eq(finish, str_of(api_event_done_name((enum api_done)i))))
            return (enum api_done)i;
    return API_DONE_EOS;
}

static void run_remote_done(struct run_remote *r, struct json line)
{
    struct json cache = json_member(json_member(line, "shoal"), "cache");
    struct api_event events[2] = {
        {.kind = API_EVENT_USAGE,
         .usage = {.prompt_tokens = (uint32_t)run_remote_number(line, "prompt_eval_count"),
                   .cached_tokens = (uint32_t)run_remote_number(cache, "cached"),
                   .output_tokens = (uint32_t)run_remote_number(line, "eval_count"),
                   .prefill_ns = run_remote_number(line, "prompt_eval_duration"),
                   .decode_ns = run_remote_number(line, "eval_duration")}},
        {.kind = API_EVENT_DONE, .done = {.reason = run_remote_reason(line)}},
    };
    r->is_over = true;
    run_remote_end(r);
    run_remote_give(r, events, 2);
}

static void run_remote_text(struct run_remote *r, enum api_event_kind kind, str text)
{
    struct api_event ev = {.kind = kind, .text = {.text = text}};
    if (text.len)
        run_remote_give(r, &ev, 1);
}

static void run_remote_line(struct run_remote *r, str text)
{
    const struct json_options o = {.depth_max = RUN_REMOTE_DEPTH};
    struct json line;
    struct arena a;
    struct err why;
    bool done = false;
    arena_init(&a, RUN_REMOTE_LINE_MAX * 6);
    if (!json_parse(&line, text, &o, &a, &why)) {
        run_remote_fail(r, ERR_UPSTREAM, STR("the server's answer is no JSON"));
        goto done;
    }
    struct json error = json_member(line, "error"), message = json_member(line, "message");
    json_bool(json_member(line, "done"), &done);
    if (json_kind(error) == JSON_KIND_STRING) {
        run_remote_fail(r, ERR_UPSTREAM, json_text(error, &a));
        goto done;
    }
    run_remote_text(r, API_EVENT_REASONING, json_text(json_member(message, "thinking"), &a));
    run_remote_text(r, API_EVENT_CONTENT, json_text(json_member(message, "content"), &a));
    if (done)
        run_remote_done(r, line);
done:
    arena_deinit(&a);
}

/* True: the header is complete and taken off. */
static bool run_remote_head(struct run_remote *r)
{
    size_t end = str_find(buf_view(&r->in), STR("\r\n\r\n"));
    uint64_t status;
    if (r->status)
        return true;
    if (end == STR_NONE)
        return false;
    if (!str_to_u64(str_sub(buf_view(&r->in), 9, 3), &status)) {
        run_remote_fail(r, ERR_UPSTREAM, STR("what answers there is no HTTP server"));
        return false;
    }
    r->status = (int)status;
    buf_drop(&r->in, end + 4);
    return true;
}

static void run_remote_take(struct run_remote *r, bool is_end)
{
    if (!run_remote_head(r)) {
        if (is_end && !r->is_over)
            run_remote_fail(r, ERR_CONNECT, STR("the server closed the connection"));
        return;
    }
    while (!r->is_over) {
        size_t at = str_find_byte(buf_view(&r->in), '\n');
        if (at == STR_NONE && !(is_end && r->in.len))
            break;
        size_t len = base_min(at, r->in.len);
        struct buf line;
        buf_init(&line, RUN_REMOTE_LINE_MAX);
        buf_add(&line, str_sub(buf_view(&r->in), 0, len));
        buf_drop(&r->in, base_min(len + 1, r->in.len));
        run_remote_line(r, buf_view(&line));
        buf_deinit(&line);
    }
    if (is_end && !r->is_over)
        run_remote_fail(r, ERR_CONNECT, STR("the server broke off in the middle of its reply"));
}

static void run_remote_on_ready(void *ctx, enum loop_ready ready)
{
    struct run_remote *r = ctx;
    char bytes[65536];
    (void)ready;
    ssize_t n = recv(r->fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0 && !buf_add_bytes(&r->in, bytes, (size_t)n)) {
        run_remote_fail(r, ERR_UPSTREAM, STR("a line of the server's answer is too long"));
        return;
    }
    run_remote_take(r, n <= 0);
}

/* --- the provider -------------------------------------------------------------------------- */

static bool run_remote_submit(void *self, const struct api_request *rq, struct api_sink sink,
                              struct api_error *e)
{
    struct run_remote *r = self;
    struct daemon_question q = {.method = "POST", .path = "/api/chat",
                                .timeout_ms = RUN_REMOTE_SEND_MS};
    struct buf body;
    must(r->fd < 0);
    buf_init(&body, RUN_REMOTE_BODY_MAX);
    run_remote_put(r, &body, rq);
    q.body = buf_view(&body);
    bool ok = daemon_send(&r->daemon, &q, &r->fd, &e->err);
    buf_deinit(&body);
    if (!ok) {
        r->fd = -1;
        return false;
    }
    r->id = rq->id;
    r->sink = sink;
    r->status = 0;
    r->is_over = false;
    if (!loop_watch_open(&r->watch, r->loop, r->fd, run_remote_on_ready, r, &e->err)) {
        run_remote_end(r);
        return false;
    }
    loop_watch_set(&r->watch, LOOP_READY_READ, true);
    return true;
}

static void run_remote_cancel(void *self, uint64_t id)
{
    struct run_remote *r = self;
    if (r->fd >= 0 && r->id == id)
        run_remote_end(r);
}

/* The socket itself holds a server back whose client does not read. */
static void run_remote_hold(void *self, uint64_t id, bool on) { (void)self, (void)id, (void)on; }
static void run_remote_credit(void *self, uint64_t id, uint32_t bytes)
{
    (void)self, (void)id, (void)bytes;
}

static size_t run_remote_models(void *self, struct api_model *out, size_t out_max)
{
    (void)self, (void)out, (void)out_max;
    return 0; /* what the server holds is told by ps */
}

static void run_remote_health(void *self, struct api_health *out)
{
    (void)self;
    *out = (struct api_health){.state = API_HEALTH_READY, .reason = STR("")};
}

struct api_provider run_remote_provider(struct run_remote *r)
{
    return (struct api_provider){r, run_remote_submit, run_remote_cancel, run_remote_hold,
                                 run_remote_credit, run_remote_models, run_remote_health};
}

bool run_remote_open(struct run_remote **out, struct loop *l, const struct daemon *d,
                     str keep_alive, struct err *e)
{
    struct run_remote *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ERR_MEMORY, "run: no memory");
    *r = (struct run_remote){.loop = l, .daemon = *d, .keep_alive = keep_alive, .fd = -1};
    buf_init(&r->in, RUN_REMOTE_LINE_MAX);
    *out = r;
    return true;
}

void run_remote_close(struct run_remote *r)
{
    if (!r)
        return;
    run_remote_end(r);
    buf_deinit(&r->in);
    free(r);
}
