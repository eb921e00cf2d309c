/* Any bytes as the answer of an upstream of every protocol, streamed and whole: events come in
 * api_event's order, a reply ends once or is an error with its class, and texts are UTF-8. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dialect/dialect_client.h"
#include "wire/sse.h"

struct hearing {
    struct dialect_client_state *st;
    struct api_order order;
    bool has_failed;
};

static void check_text(str s)
{
    if (str_utf8_valid(s) != s.len)
        abort();
}

static void on_batch(void *ctx, const struct api_batch *b)
{
    struct hearing *h = ctx;
    struct err e;
    if (!api_order_add(&h->order, b, &e))
        abort();
    for (uint32_t i = 0; i < b->events_count; i++) {
        const struct api_event *ev = &b->events[i];
        if (ev->kind == API_EVENT_CONTENT || ev->kind == API_EVENT_REASONING)
            check_text(ev->text.text);
        if (ev->kind == API_EVENT_CALL_BEGIN || ev->kind == API_EVENT_CALL_ARGS)
            check_text(ev->kind == API_EVENT_CALL_ARGS ? ev->call.args : ev->call.name);
    }
}

static void on_event(void *ctx, str name, str data)
{
    struct hearing *h = ctx;
    struct api_error e = {0};
    if (h->has_failed || dialect_client_read(h->st, name, data, &e))
        return;
    if (e.fault == API_FAULT_NONE || e.err.code == ERR_NONE)
        abort();
    h->has_failed = e.fault != API_FAULT_GARBAGE;
}

static void hear(const struct dialect *d, const struct api_request *rq, str bytes, bool is_whole)
{
    static const struct dialect_upstream leg = {.name = STR_INIT("leg")};
    struct hearing h = {.st = calloc(1, d->client->state_size)};
    struct api_error e = {0};
    struct err ignored;
    struct sse sse;
    if (h.st == NULL)
        abort();
    api_order_init(&h.order, rq);
    dialect_client_init(h.st, d, &leg, rq, (struct api_sink){on_batch, &h});
    sse_init(&sse, d->client->is_lines ? SSE_FORM_LINES : SSE_FORM_EVENTS, 1 << 20);
    sse.on_event = on_event;
    sse.ctx = &h;
    bool fits = is_whole || sse_feed(&sse, bytes, &ignored);
    if (is_whole)
        on_event(&h, STR(""), bytes);
    if (fits && !h.has_failed && !dialect_client_end(h.st, &e) && e.fault == API_FAULT_NONE)
        abort();
    if (h.st->is_over && !h.order.is_over)
        abort();
    sse_deinit(&sse);
    dialect_client_deinit(h.st);
    free(h.st);
}

static void refuse(str body)
{
    struct dialect_client_headers none = {.count = 0};
    struct api_error e;
    struct arena a;
    arena_init(&a, 8 * body.len + ((size_t)1 << 20));
    dialect_client_read_error(&e, 429, none, body, &a);
    check_text(e.upstream_text);
    arena_deinit(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct api_tool tools[] = {
        {.kind = API_TOOL_CUSTOM, .name = STR_INIT("patch"), .allowed = true}};
    static const str stop[] = {STR_INIT("END"), STR_INIT("\n\n")};
    struct api_request rq;
    api_request_init(&rq);
    rq.n = 1 + size % 2;
    rq.tools = tools;
    rq.tools_count = countof(tools);
    for (uint32_t i = 0; i < dialect_table_count; i++)
        if (dialect_table[i]->client) {
            rq.stop = stop;
            rq.stop_count = i % 2 ? countof(stop) : 0;
            hear(dialect_table[i], &rq, str_view(data, size), false);
            hear(dialect_table[i], &rq, str_view(data, size), true);
        }
    refuse(str_view(data, size));
    return 0;
}
