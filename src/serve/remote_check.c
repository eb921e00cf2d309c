#include "serve/remote_check.h"

#include <stdio.h>

#include "serve/remote_headers.h"

#define REMOTE_CHECK_MS 5000 /* all of a free check */
#define REMOTE_CHECK_CONNECT_MS 2000 /* BEHAVIOUR 9.4 */

void remote_check_init(struct remote_check_set *l, const struct remote_leg_options *o,
                       struct api_provider leg)
{
    *l = (struct remote_check_set){.o = o, .leg = leg};
}

void remote_check_close(struct remote_check_set *l)
{
    if (l->check.http)
        http_client_cancel(l->check.http);
    l->check.http = NULL;
}

static void remote_check_tell(struct remote_check *k, enum api_fault fault, str text)
{
    const struct remote_leg_check c = {.fault = fault, .status = (uint16_t)k->status,
                                       .took_ms = loop_ms() - k->began_ms, .text = text,
                                       .tokens = k->tokens,
                                       .retry_after_ms = k->retry_after_ms};
    k->is_running = false;
    k->http = NULL;
    k->on_check(k->ctx, &c);
}

/* Only timeouts, transport and 5xx are down; any other answer is a sign of life. */
static void remote_check_on_end(void *ctx, const struct err *why)
{
    struct remote_check_set *l = ctx;
    struct remote_check *k = &l->check;
    bool is_refused = k->status == 401 || k->status == 403;
    if (why && k->status == 0)
        remote_check_tell(k, k->fault == HTTP_CALL_FAULT_TLS       ? API_FAULT_TLS
                             : k->fault == HTTP_CALL_FAULT_CONNECT ||
                                     k->fault == HTTP_CALL_FAULT_LATE_CONNECT
                                 ? API_FAULT_CONNECT
                             : k->fault == HTTP_CALL_FAULT_BROKEN  ? API_FAULT_CUT
                                                                   : API_FAULT_HANG_HEADER,
                          str_of(why->text));
    else if (is_refused && l->o->auth == REMOTE_LEG_AUTH_KEY)
        remote_check_tell(k, API_FAULT_AUTH, STR("the upstream refuses the key of this leg"));
    else if (k->status >= 500)
        remote_check_tell(k, API_FAULT_HTTP_5XX, STR("the upstream's check fails"));
    else
        remote_check_tell(k, API_FAULT_NONE, STR(""));
}

static void remote_check_on_head(void *ctx, int status)
{
    ((struct remote_check_set *)ctx)->check.status = status;
}

static void remote_check_on_bytes(void *ctx, str bytes) { (void)ctx, (void)bytes; }

static void remote_check_on_fault(void *ctx, enum http_call_fault fault)
{
    ((struct remote_check_set *)ctx)->check.fault = fault;
}

static const char *remote_check_free_path(const struct remote_check_set *l)
{
    return l->o->upstream.how == DIALECT_CONTINUE_SHOAL ? "/ready"
                                                       : l->o->dialect->client->free_path;
}

bool remote_check_ask(struct remote_check_set *l,
                      void (*on_check)(void *ctx, const struct remote_leg_check *c), void *ctx)
{
    struct remote_check *k = &l->check;
    struct remote_headers h;
    char url[2200];
    str path = l->o->health_path.len ? l->o->health_path : str_of(remote_check_free_path(l));
    struct err e;
    int64_t now = loop_ms();
    if (k->is_running || (k->was_asked && now - k->began_ms < l->o->check_ms))
        return false;
    *k = (struct remote_check){.on_check = on_check, .ctx = ctx, .began_ms = now,
                               .is_running = true, .was_asked = true};
    remote_headers_init(&h);
    remote_headers_add_key(&h, l->o, NULL);
    for (size_t i = 0; l->o->dialect->client->headers[i]; i++)
        remote_headers_add(&h, l->o->dialect->client->headers[i], STR(""));
    snprintf(url, sizeof url, "%.*s%.*s", STR_ARG(l->o->url), STR_ARG(path));
    const struct http_call_options o = {
        .url = str_of(url), .headers = h.rows, .ca_file = l->o->ca_file,
        .connect_ms = REMOTE_CHECK_CONNECT_MS, .total_ms = REMOTE_CHECK_MS,
        .handlers = {l, remote_check_on_head, remote_check_on_bytes, remote_check_on_end},
        .on_fault = remote_check_on_fault};
    k->is_running = http_client_start(l->o->client, &k->http, &o, &e);
    remote_headers_deinit(&h);
    return k->is_running;
}

static void remote_check_on_batch(void *ctx, const struct api_batch *b)
{
    struct remote_check_set *l = ctx;
    for (uint32_t i = 0; i < b->events_count; i++) {
        const struct api_event *ev = &b->events[i];
        if (ev->kind == API_EVENT_USAGE) {
            l->probe.tokens = (uint64_t)ev->usage.prompt_tokens + ev->usage.output_tokens;
        } else if (ev->kind == API_EVENT_DONE) {
            remote_check_tell(&l->probe, API_FAULT_NONE, STR(""));
        } else if (ev->kind == API_EVENT_ERROR) {
            bool is_fine = ev->error.fault == API_FAULT_REQUEST;
            l->probe.status = ev->error.upstream_status;
            l->probe.retry_after_ms = ev->error.retry_after_ms;
            remote_check_tell(&l->probe, is_fine ? API_FAULT_NONE : ev->error.fault,
                              str_of(ev->error.err.text));
        }
    }
}

bool remote_check_probe(struct remote_check_set *l, str model, const struct api_deadlines *wait,
                        void (*on_check)(void *ctx, const struct remote_leg_check *c), void *ctx)
{
    struct api_request *rq = &l->probe_rq;
    struct api_error e;
    if (l->probe.is_running || l->o->auth == REMOTE_LEG_AUTH_PASSTHROUGH)
        return false;
    l->probe_part = (struct api_part){.kind = API_PART_TEXT, .text = STR("Say: ok")};
    l->probe_message = (struct api_message){.role = API_ROLE_USER, .parts = &l->probe_part,
                                            .parts_count = 1};
    api_request_init(rq);
    rq->id = --l->probe_id; /* from the top: an exchange counts from 1 */
    snprintf(l->probe_model, sizeof l->probe_model, "%.*s", STR_ARG(model));
    rq->model = str_of(l->probe_model);
    rq->messages = &l->probe_message;
    rq->messages_count = 1;
    rq->tokens_max = REMOTE_LEG_PROBE_TOKENS;
    rq->deadline = *wait;
    l->probe = (struct remote_check){.on_check = on_check, .ctx = ctx, .began_ms = loop_ms()};
    l->probe.is_running = l->leg.submit(l->leg.self, rq,
                                         (struct api_sink){remote_check_on_batch, l}, &e);
    return l->probe.is_running;
}
