#include <stdio.h>
#include <string.h>

#include "cli/load.h"

#define LOAD_CALL_CONNECT_MS 10000
#define LOAD_CALL_IDLE_MS 120000
#define LOAD_CALL_EVENT_MAX ((size_t)1 << 20)
#define LOAD_CALL_BODY_MAX ((size_t)64 << 20)
#define LOAD_CALL_DEPTH_MAX 32

void load_call_fail(struct load_call *call, const char *kind, str why)
{
    if (call->kind[0]) /* the first reason counts */
        return;
    snprintf(call->kind, sizeof call->kind, "%s", kind);
    snprintf(call->why, sizeof call->why, "%.*s", STR_ARG(str_sub(why, 0, 200)));
}

void load_call_add_text(struct load_call *call, str text)
{
    int64_t now = chrono_ns(&chrono_real);
    if (!call->first_ns)
        call->first_ns = now;
    else if (call->on_gap)
        call->on_gap(call->ctx, (double)(now - call->last_ns) * 1e-6);
    call->last_ns = now;
    call->events++;
    buf_add(&call->text, text);
}

static void load_call_on_event(void *ctx, str name, str data)
{
    static const struct json_options options = {.depth_max = LOAD_CALL_DEPTH_MAX};
    struct load_call *call = ctx;
    struct json event;
    struct err e;
    if (str_eq(data, STR("[DONE]"))) {
        call->is_done = true;
        return;
    }
    arena_reset(&call->arena);
    if (json_parse(&event, data, &options, &call->arena, &e))
        call->dialect->read(call, name, event);
    else
        load_call_fail(call, "not JSON", str_of(e.text));
}

static void load_call_on_head(void *ctx, int status)
{
    struct load_call *call = ctx;
    call->status = status;
}

static void load_call_on_bytes(void *ctx, str bytes)
{
    struct load_call *call = ctx;
    struct err e;
    if (call->status != 200)
        buf_add(&call->text, bytes); /* what does not fit is not needed for a message */
    else if (!call->kind[0] && !sse_feed(&call->sse, bytes, &e))
        load_call_fail(call, "event too long", str_of(e.text));
}

static void load_call_judge(struct load_call *call, const struct err *why)
{
    char kind[LOAD_KIND_SIZE];
    if (why) {
        load_call_fail(call, why->code == ERR_UPSTREAM ? "broken" : err_name(why->code),
                       str_of(why->text));
    } else if (call->status != 200) {
        snprintf(kind, sizeof kind, "http %d", call->status);
        load_call_fail(call, kind, buf_view(&call->text));
    } else if (!call->is_done) {
        load_call_fail(call, "broken", STR("the stream ended without its last event"));
    } else if (!call->first_ns) {
        load_call_fail(call, "no text", STR("the reply has no text"));
    } else if (call->text.full) {
        load_call_fail(call, "too long", STR("the reply is longer than 16 MB"));
    }
}

static void load_call_on_end(void *ctx, const struct err *why)
{
    struct load_call *call = ctx;
    call->end_ns = chrono_ns(&chrono_real);
    call->call = NULL;
    load_call_judge(call, why);
    call->on_end(call->ctx, call);
}

void load_call_headers(const struct load_dialect *d, str key, struct buf *line,
                       const char *out[LOAD_HEADERS_MAX + 1])
{
    size_t count = 0;
    for (; d->headers[count]; count++) {
        must(count + 1 < LOAD_HEADERS_MAX);
        out[count] = d->headers[count];
    }
    if (key.len && buf_printf(line, "Authorization: Bearer %.*s", STR_ARG(key)))
        out[count++] = line->p;
    out[count] = NULL;
}

bool load_call_start(struct load_call *call, struct http_client *client, str url,
                     const struct load_body *body, struct err *e)
{
    struct buf bytes, full, bearer;
    const char *headers[LOAD_HEADERS_MAX + 1];
    buf_init(&bytes, LOAD_CALL_BODY_MAX);
    buf_init(&full, 2048);
    buf_init(&bearer, 2048);
    load_call_headers(call->dialect, call->key, &bearer, headers);
    buf_init(&call->text, LOAD_TEXT_MAX);
    arena_init(&call->arena, 4 * LOAD_CALL_EVENT_MAX + ((size_t)1 << 20));
    sse_init(&call->sse, call->dialect->form, LOAD_CALL_EVENT_MAX);
    call->sse.on_event = load_call_on_event;
    call->sse.ctx = call;
    buf_add(&full, url);
    buf_add_z(&full, call->dialect->path);
    call->dialect->put(&bytes, body);
    struct http_call_options o = {
        .url = buf_view(&full), .headers = headers, .body = buf_view(&bytes),
        .connect_ms = LOAD_CALL_CONNECT_MS, .idle_ms = LOAD_CALL_IDLE_MS,
        .total_ms = LOAD_CALL_MS,
        .handlers = {call, load_call_on_head, load_call_on_bytes, load_call_on_end}};
    bool ok = !bytes.full && !full.full && !bearer.full;
    if (!ok)
        err_set(e, ERR_LIMIT, "load: request above %zu bytes, or URL above %zu",
                LOAD_CALL_BODY_MAX, full.size_max);
    call->start_ns = chrono_ns(&chrono_real);
    ok = ok && http_client_start(client, &call->call, &o, e);
    buf_deinit(&bytes);
    buf_deinit(&full);
    buf_deinit(&bearer);
    return ok;
}

void load_call_cancel(struct load_call *call)
{
    if (call->call)
        http_client_cancel(call->call);
    call->call = NULL;
}

void load_call_deinit(struct load_call *call)
{
    load_call_cancel(call);
    sse_deinit(&call->sse);
    buf_deinit(&call->text);
    arena_deinit(&call->arena);
}

void load_call_add_words(struct buf *out, struct chrono_rng *rng, uint32_t words)
{
    static const char *const list[] = {
        "time", "year", "people", "way", "day", "man", "thing", "world", "life", "hand", "part",
        "place", "case", "week", "company", "system", "program", "question", "work", "number",
        "night", "point", "home", "water", "room", "mother", "area", "money", "story", "fact",
        "month", "lot", "right", "study", "book", "eye", "job", "word", "business", "issue",
        "side", "kind", "head", "house", "service", "friend", "father", "power", "hour", "game",
        "line", "end", "member", "law", "car", "city", "name", "team", "minute", "idea", "body",
        "back", "parent", "face"};
    for (uint32_t i = 0; i < words; i++)
        buf_printf(out, " %s", list[chrono_rng_below(rng, countof(list))]);
}
