#include "store/hub_net.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/list.h"
#include "wire/http_client.h"
#include "wire/loop.h"

#define HUB_NET_CONNECT_MS 20000
#define HUB_NET_RECEIVE (256u << 10)
#define HUB_NET_TEXT_MAX 512
#define HUB_NET_REDIRECT_BODY_MAX ((uint64_t)1 << 20)
#define HUB_NET_ASK_RETRIES 3
#define HUB_NET_ERROR_BODY_MAX ((size_t)64 * 1024)

struct hub_net {
    struct hub_net_options o;
    struct loop *loop;
    struct http_client *client;
    struct list calls;
};

struct hub_net_call {
    struct list link;
    struct hub_net *n;
    struct http_call *http; /* NULL between hops */
    struct hub_net_request r;
    struct hub_net_head head;
    int hops;
    bool is_told; /* on_head has run: this hop is the last one */
    uint64_t ignored; /* bytes of a redirect's body, which began to come then */
    int64_t ignored_since_ms;
    struct err why_ended; /* a hop that could not be made */
    char url[HUB_NET_URL_MAX + 1], location[HUB_NET_URL_MAX + 1];
    char content_type[HUB_NET_TEXT_MAX], etag[HUB_NET_TEXT_MAX], modified[HUB_NET_TEXT_MAX];
};

/* --- addresses --- */

/* "https://host:port" of an address; empty if it is none, or hides a user's name. */
static str hub_net_origin(str url)
{
    size_t scheme = str_starts(url, STR("https://")) ? 8 : str_starts(url, STR("http://")) ? 7 : 0;
    size_t end = scheme;
    while (end < url.len && !strchr("/?#", url.p[end]))
        end++;
    str host = str_sub(url, scheme, end - scheme);
    bool is_good = scheme && host.len && str_find_byte(host, '@') == STR_NONE &&
                   str_find_byte(host, '\\') == STR_NONE;
    for (size_t i = 0; i < url.len; i++)
        is_good = is_good && (unsigned char)url.p[i] > 0x20 && url.p[i] != 0x7f;
    return is_good ? str_sub(url, 0, end) : (str){NULL, 0};
}

static str hub_net_host(str url)
{
    str origin = hub_net_origin(url);
    return str_from(origin, str_starts(origin, STR("https://")) ? 8 : 7);
}

/* May the token go there? */
static bool hub_net_may_know(const struct hub_net *n, str url)
{
    return n->o.token.len && str_starts(url, STR("https://")) &&
           str_eq_nocase(hub_net_origin(url), hub_net_origin(n->o.endpoints[0]));
}

/* --- one hop --- */

static void hub_net_call_free(struct hub_net_call *call)
{
    list_remove(&call->link);
    free(call);
}

static void hub_net_call_end(struct hub_net_call *call, const struct err *why)
{
    struct hub_net_request r = call->r;
    struct err copy = why ? *why : (struct err){0};
    if (why)
        err_wrap(&copy, "%.*s", STR_ARG(hub_net_host(str_of(call->url))));
    hub_net_call_free(call);
    r.on_end(r.ctx, why ? &copy : NULL);
}

static void hub_net_keep(char *dst, size_t size, str value)
{
    value = str_sub(value, 0, size - 1);
    memcpy(dst, value.p, value.len);
    dst[value.len] = 0;
}

/* "bytes 0-99/1000" or ".../ *" */
static void hub_net_read_range(struct hub_net_head *h, str value)
{
    str first, last, rest = str_from(value, 6);
    if (!str_starts(value, STR("bytes ")) || !str_split(&rest, '-', &first) ||
        !str_split(&rest, '/', &last))
        return;
    h->range_size = HUB_SIZE_UNKNOWN;
    h->has_range = str_to_u64(str_trim(first), &h->range_first) &&
                   str_to_u64(last, &h->range_last) && h->range_first <= h->range_last &&
                   (str_eq_z(rest, "*") || str_to_u64(rest, &h->range_size));
}

/* RFC 9530: "sha-256=:BASE64:, ..."; RFC 1864: BASE64 of md5. */
static void hub_net_read_digest(struct hub_net_head *h, str value, bool is_md5)
{
    if (is_md5) {
        if (!h->digest_size && digest_unbase64(h->digest, 16, value))
            h->digest_size = 16;
        return;
    }
    size_t at = str_find(value, STR("sha-256=:"));
    str text = str_from(value, at == STR_NONE ? value.len : at + 9);
    text = str_sub(text, 0, str_find_byte(text, ':'));
    if (digest_unbase64(h->digest, 32, text))
        h->digest_size = 32;
}

static void hub_net_on_header(void *ctx, str name, str value)
{
    struct hub_net_call *call = ctx;
    struct hub_net_head *h = &call->head;
    uint64_t number;
    if (str_eq_nocase(name, STR("location")))
        hub_net_keep(call->location, sizeof call->location,
                     value.len > HUB_NET_URL_MAX ? STR("") : value);
    else if (str_eq_nocase(name, STR("content-type")))
        hub_net_keep(call->content_type, sizeof call->content_type, value);
    else if (str_eq_nocase(name, STR("etag")))
        hub_net_keep(call->etag, sizeof call->etag, value);
    else if (str_eq_nocase(name, STR("last-modified")))
        hub_net_keep(call->modified, sizeof call->modified, value);
    else if (str_eq_nocase(name, STR("content-length")) && str_to_u64(value, &number))
        h->length = number;
    else if (str_eq_nocase(name, STR("retry-after")) && str_to_u64(value, &number))
        h->retry_after_s = number > INT32_MAX ? INT32_MAX : (int64_t)number;
    else if (str_eq_nocase(name, STR("content-range")))
        hub_net_read_range(h, value);
    else if (str_eq_nocase(name, STR("content-md5")))
        hub_net_read_digest(h, value, true);
    else if (str_eq_nocase(name, STR("content-digest")))
        hub_net_read_digest(h, value, false);
}

static bool hub_net_is_redirect(const struct hub_net_call *call)
{
    int s = call->head.status;
    return call->location[0] && (s == 301 || s == 302 || s == 303 || s == 307 || s == 308);
}

static void hub_net_on_head(void *ctx, int status)
{
    struct hub_net_call *call = ctx;
    struct hub_net_head *h = &call->head;
    h->status = status;
    call->ignored_since_ms = loop_ms();
    if (hub_net_is_redirect(call))
        return;
    call->is_told = true;
    h->url = str_of(call->url);
    h->host = hub_net_host(h->url);
    h->content_type = str_of(call->content_type);
    h->etag = str_of(call->etag);
    h->modified = str_of(call->modified);
    call->r.on_head(call->r.ctx, h);
}

static void hub_net_on_bytes(void *ctx, str bytes)
{
    struct hub_net_call *call = ctx;
    if (call->is_told) {
        call->r.on_bytes(call->r.ctx, bytes);
        return;
    }
    call->ignored += bytes.len;
    if (call->ignored > HUB_NET_REDIRECT_BODY_MAX ||
        loop_ms() - call->ignored_since_ms > call->n->o.idle_ms) {
        err_set(&call->why_ended, ERR_UPSTREAM, "a redirect with a body without end");
        http_client_cancel(call->http);
        call->http = NULL;
        hub_net_call_end(call, &call->why_ended);
    }
}

static bool hub_net_hop(struct hub_net_call *call, struct err *e);

/* The next address, from Location and where we are. */
static bool hub_net_follow(struct hub_net_call *call, struct err *e)
{
    char next[HUB_NET_URL_MAX + 1];
    str from = str_of(call->url), to = str_of(call->location), origin = hub_net_origin(from);
    int len;
    if (str_starts(to, STR("//")))
        len = snprintf(next, sizeof next, "%s:%s",
                       str_starts(from, STR("https://")) ? "https" : "http", call->location);
    else if (str_starts(to, STR("/")))
        len = snprintf(next, sizeof next, "%.*s%s", STR_ARG(origin), call->location);
    else
        len = snprintf(next, sizeof next, "%s", call->location);
    if (len < 0 || (size_t)len >= sizeof next || !hub_net_origin(str_of(next)).len)
        return err_set(e, ERR_UPSTREAM, "redirects to \"%.60s\", which is no http address",
                       call->location);
    if (++call->hops >= HUB_NET_HOPS_MAX)
        return err_set(e, ERR_UPSTREAM, "more than %d redirects", HUB_NET_HOPS_MAX - 1);
    if (str_starts(from, STR("https://")) && !str_starts(str_of(next), STR("https://")))
        return err_set(e, ERR_UPSTREAM, "redirects from https to http, at %.*s",
                       STR_ARG(hub_net_host(str_of(next))));
    memcpy(call->url, next, (size_t)len + 1);
    return hub_net_hop(call, e);
}

static void hub_net_on_end(void *ctx, const struct err *why)
{
    struct hub_net_call *call = ctx;
    struct err e = {0};
    call->http = NULL;
    if (why || call->is_told)
        hub_net_call_end(call, why);
    else if (!hub_net_follow(call, &e))
        hub_net_call_end(call, &e);
}

static bool hub_net_hop(struct hub_net_call *call, struct err *e)
{
    const struct hub_net *n = call->n;
    const struct hub_net_request *r = &call->r;
    char range[64], token[4096];
    const char *headers[4] = {"Accept: */*"};
    size_t count = 1;
    str url = str_of(call->url);
    bool is_https = str_starts(url, STR("https://"));
    if (r->has_range) {
        snprintf(range, sizeof range, "Range: bytes=%llu-%llu", (unsigned long long)r->first,
                 (unsigned long long)r->last);
        headers[count++] = range;
    }
    bool may_know = hub_net_may_know(n, url);
    if (may_know) {
        int len = snprintf(token, sizeof token, "Authorization: Bearer %.*s",
                           STR_ARG(n->o.token));
        if (len < 0 || (size_t)len >= sizeof token)
            return err_set(e, ERR_CONFIG, "the hub's token is longer than %zu bytes",
                           sizeof token - 32);
        headers[count++] = token;
    }
    call->location[0] = call->content_type[0] = call->etag[0] = call->modified[0] = 0;
    call->ignored = 0;
    call->head = (struct hub_net_head){
        .length = HUB_SIZE_UNKNOWN, .retry_after_s = -1, .is_hub = call->hops == 0};
    struct http_call_options o = {
        .url = url,
        .headers = headers,
        .connect_ms = HUB_NET_CONNECT_MS,
        .first_ms = n->o.idle_ms,
        .idle_ms = n->o.idle_ms,
        .has_own_connection = r->has_own_connection,
        .receive_size = HUB_NET_RECEIVE,
        .ca_file = n->o.ca_file,
        .proxy = is_https ? n->o.proxy_https : n->o.proxy_http,
        .no_proxy = n->o.no_proxy,
        .handlers = {call, hub_net_on_head, hub_net_on_bytes, hub_net_on_end},
        .on_header = hub_net_on_header,
    };
    return http_client_start(n->client, &call->http, &o, e);
}

bool hub_net_start(struct hub_net *n, struct hub_net_call **out, const struct hub_net_request *r,
                   struct err *e)
{
    if (r->url.len > HUB_NET_URL_MAX || !hub_net_origin(r->url).len)
        return err_set(e, ERR_USAGE, "hub: \"%.*s\" is no http address",
                       STR_ARG(str_sub(r->url, 0, 80)));
    struct hub_net_call *call = calloc(1, sizeof *call);
    if (!call)
        return err_set(e, ERR_MEMORY, "hub: no memory for a call");
    call->n = n;
    call->r = *r;
    memcpy(call->url, r->url.p, r->url.len);
    list_push_last(&n->calls, &call->link);
    if (!hub_net_hop(call, e)) {
        hub_net_call_free(call);
        return false;
    }
    *out = call;
    return true;
}

void hub_net_cancel(struct hub_net_call *call)
{
    if (!call)
        return;
    if (call->http)
        http_client_cancel(call->http);
    hub_net_call_free(call);
}

bool hub_net_is_file(const struct hub_net_head *h, struct err *e)
{
    str type = str_sub(h->content_type, 0, str_find_byte(h->content_type, ';'));
    if (!str_eq_nocase(str_trim(type), STR("text/html")))
        return true;
    return err_set(e, ERR_FORMAT, "%.*s answers with a web page instead of the file: a proxy or a "
                   "sign-in page?", STR_ARG(h->host));
}

void hub_net_refusal(const struct hub_net_head *h, str repo, str revision, struct err *e)
{
    if (h->status == 404)
        err_set(e, ERR_NOT_FOUND, "%.*s: no such repository, revision or file: %.*s@%.*s",
                STR_ARG(h->host), STR_ARG(str_sub(repo, 0, 80)),
                STR_ARG(str_sub(revision, 0, 60)));
    else if (h->status == 401 || h->status == 403)
        err_set(e, ERR_AUTH, "%.*s: %.*s is private, gated or misspelled (HTTP %d); HF_TOKEN or "
                "hub.token_file holds the token of an account that may read it",
                STR_ARG(h->host), STR_ARG(str_sub(repo, 0, 80)), h->status);
    else if (h->status == 429)
        err_set(e, ERR_OVERLOADED, "%.*s: too many requests (HTTP 429)", STR_ARG(h->host));
    else
        err_set(e, ERR_UPSTREAM, "%.*s: HTTP %d", STR_ARG(h->host), h->status);
}

/* --- sessions --- */

bool hub_net_open(struct hub_net **out, const struct hub_net_options *o, struct err *e)
{
    must(o->endpoints_count > 0);
    for (uint32_t i = 0; i < o->endpoints_count; i++)
        if (!hub_net_origin(o->endpoints[i]).len)
            return err_set(e, ERR_CONFIG, "hub: \"%.*s\" is no http address",
                           STR_ARG(str_sub(o->endpoints[i], 0, 80)));
    for (size_t i = 0; i < o->token.len; i++)
        if ((unsigned char)o->token.p[i] <= 0x20 || (unsigned char)o->token.p[i] >= 0x7f)
            return err_set(e, ERR_CONFIG, "the hub's token holds a character that is none");
    struct hub_net *n = calloc(1, sizeof *n);
    if (!n)
        return err_set(e, ERR_MEMORY, "hub: no memory");
    n->o = *o;
    list_init(&n->calls);
    if (!loop_open(&n->loop, e) || !http_client_open(&n->client, n->loop, o->calls_max, e)) {
        hub_net_close(n);
        return false;
    }
    *out = n;
    return true;
}

void hub_net_close(struct hub_net *n)
{
    if (!n)
        return;
    list_each (link, &n->calls)
        hub_net_cancel(list_item(link, struct hub_net_call, link));
    http_client_close(n->client);
    loop_close(n->loop);
    free(n);
}

struct loop *hub_net_loop(struct hub_net *n) { return n->loop; }

void hub_net_note(struct hub_net *n, const char *format, ...)
{
    char text[ERR_TEXT_MAX + 64];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n->o.on_note && len > 0)
        n->o.on_note(n->o.ctx, str_view(text, base_min((size_t)len, sizeof text - 1)));
}

bool hub_net_turn(struct hub_net *n, int64_t ms, struct err *e)
{
    if (n->o.is_stopped && n->o.is_stopped(n->o.ctx))
        return err_set(e, ERR_CANCELLED, "stopped");
    loop_step(n->loop, ms);
    return true;
}

/* --- whole answers --- */

struct hub_net_answer {
    struct hub_net_call *call;
    struct buf *out;
    const struct hub_net_query *q;
    struct hub_net_head head; /* its texts are copied */
    char host[256];
    bool has_ended, has_failed, is_broken; /* broken: why is final, no retry */
    uint64_t window_at; /* out->len when the window began; 0 ms: no head yet */
    int64_t window_ms;
    struct err why;
};

static void hub_net_break(struct hub_net_answer *x)
{
    x->is_broken = x->has_failed = x->has_ended = true;
    hub_net_cancel(x->call);
    x->call = NULL;
}

static void hub_net_on_ask_head(void *ctx, const struct hub_net_head *h)
{
    struct hub_net_answer *x = ctx;
    x->head = *h;
    x->window_ms = loop_ms();
    x->window_at = x->out->len;
    hub_net_keep(x->host, sizeof x->host, h->host);
    x->head.host = str_of(x->host);
    if (h->status / 100 != 2)
        return;
    bool is_part = x->q->kind == HUB_NET_FILE && x->q->size;
    if (!hub_net_is_file(h, &x->why))
        hub_net_break(x);
    else if (is_part && (h->status != 206 || !h->has_range || h->range_first != x->q->first)) {
        err_set(&x->why, ERR_FORMAT, "%.*s ignores the range that was asked for (HTTP %d)",
                STR_ARG(x->head.host), h->status);
        hub_net_break(x);
    }
}

static void hub_net_on_ask_bytes(void *ctx, str bytes)
{
    struct hub_net_answer *x = ctx;
    if (x->head.status / 100 != 2)
        return;
    if (x->out->len + bytes.len > x->q->size_max || !buf_add(x->out, bytes)) {
        err_set(&x->why, ERR_LIMIT, "%s: an answer of more than %zu bytes", x->host,
                x->q->size_max);
        hub_net_break(x);
    }
}

/* Bytes that trickle are a stall: each one would begin the time of silence anew. Of a refusal the
 * status is enough, however long its page is. */
static void hub_net_watch_answer(struct hub_net_answer *x)
{
    int64_t span = x->call->n->o.idle_ms, now = loop_ms();
    if (!x->window_ms || now - x->window_ms < span)
        return;
    if ((int64_t)(x->out->len - x->window_at) * 1000 < HUB_NET_RATE_MIN * span) {
        x->has_ended = true;
        x->has_failed = x->head.status / 100 == 2;
        err_set(&x->why, ERR_DEADLINE, "%s: hardly anything came for %lld s", x->host,
                (long long)(span / 1000));
        hub_net_cancel(x->call);
        x->call = NULL;
    }
    x->window_ms = now;
    x->window_at = x->out->len;
}

static void hub_net_on_ask_end(void *ctx, const struct err *why)
{
    struct hub_net_answer *x = ctx;
    x->call = NULL;
    x->has_ended = true;
    x->has_failed = why != NULL;
    if (why)
        x->why = *why;
}

static bool hub_net_url(struct buf *out, str endpoint, const struct hub_net_query *q)
{
    const struct hub *hub = hub_table[0];
    buf_clear(out);
    switch (q->kind) {
    case HUB_NET_LIST:
        return hub->list_url(out, endpoint, q->repo, q->revision);
    case HUB_NET_FILE:
        return hub->file_url(out, endpoint, q->repo, q->revision, q->path);
    case HUB_NET_SEARCH:
        return hub->search_url(out, endpoint, q->path);
    }
    return false;
}

bool hub_net_file_url(struct hub_net *n, struct buf *out, str endpoint,
                      const struct hub_net_query *q)
{
    (void)n;
    return hub_net_url(out, endpoint, q);
}

uint32_t hub_net_endpoints(struct hub_net *n, const struct hub_net_query *q, const str **out)
{
    *out = q->origin.len ? &q->origin : n->o.endpoints;
    return q->origin.len ? 1 : n->o.endpoints_count;
}

/* One try: true when there is an answer of some status, or a failure that no retry mends. */
static bool hub_net_try(struct hub_net *n, struct hub_net_answer *x, str url, struct err *e)
{
    const struct hub_net_query *q = x->q;
    struct hub_net_request r = {
        .url = url, .ctx = x, .on_head = hub_net_on_ask_head, .on_bytes = hub_net_on_ask_bytes,
        .on_end = hub_net_on_ask_end, .has_range = q->kind == HUB_NET_FILE && q->size,
        .first = q->first, .last = q->first + q->size - 1};
    if (!hub_net_start(n, &x->call, &r, e))
        return false;
    while (!x->has_ended) {
        if (!hub_net_turn(n, 100, e)) {
            hub_net_cancel(x->call);
            return false;
        }
        if (!x->has_ended)
            hub_net_watch_answer(x);
    }
    return true;
}

static bool hub_net_pause(struct hub_net *n, int64_t ms, struct err *e)
{
    for (int64_t end = loop_ms() + ms, now; (now = loop_ms()) < end;)
        if (!hub_net_turn(n, end - now < 100 ? end - now : 100, e))
            return false;
    return true;
}

enum hub_net_next { HUB_NET_DONE, HUB_NET_AGAIN, HUB_NET_OTHER, HUB_NET_FAILED };

static enum hub_net_next hub_net_judge(const struct hub_net_answer *x, struct err *e)
{
    int status = x->head.status;
    if (x->has_failed) {
        *e = x->why;
        return x->is_broken ? HUB_NET_OTHER : HUB_NET_AGAIN;
    }
    if (status / 100 == 2)
        return HUB_NET_DONE;
    hub_net_refusal(&x->head, x->q->repo, x->q->revision, e);
    if (status == 401 || status == 403 || status == 404)
        return HUB_NET_FAILED;
    return status >= 500 || status == 429 || status == 408 ? HUB_NET_AGAIN : HUB_NET_OTHER;
}

/* All tries at one endpoint. */
static enum hub_net_next hub_net_ask_at(struct hub_net *n, const struct hub_net_query *q, str url,
                                        struct buf *out, struct err *e)
{
    size_t before = out->len;
    int tries = 0, waits = 0;
    for (;;) {
        struct hub_net_answer x = {.out = out, .q = q};
        out->len = before;
        if (!hub_net_try(n, &x, url, e))
            return e->code == ERR_CANCELLED ? HUB_NET_FAILED : HUB_NET_OTHER;
        enum hub_net_next next = hub_net_judge(&x, e);
        if (next != HUB_NET_AGAIN)
            return next;
        int64_t ms = n->o.retry_ms << tries;
        if (!x.has_failed && x.head.status == 429) {
            int64_t s = x.head.retry_after_s < 0 ? 1 << waits : x.head.retry_after_s;
            if (waits++ == HUB_NET_WAITS_MAX || s > HUB_NET_WAIT_MAX_S)
                return HUB_NET_OTHER;
            hub_net_note(n, "%s asks to wait %lld s (HTTP 429)", x.host, (long long)s);
            ms = s * 1000;
        } else if (tries++ == HUB_NET_ASK_RETRIES) {
            return HUB_NET_OTHER;
        }
        struct err stopped;
        if (!hub_net_pause(n, ms, &stopped)) {
            *e = stopped;
            return HUB_NET_FAILED;
        }
    }
}

bool hub_net_ask(struct hub_net *n, const struct hub_net_query *q, struct buf *out, struct err *e)
{
    const str *endpoints;
    struct buf url;
    enum hub_net_next next = HUB_NET_OTHER;
    uint32_t count = hub_net_endpoints(n, q, &endpoints);
    buf_init(&url, HUB_NET_URL_MAX);
    for (uint32_t i = 0; i < count && next == HUB_NET_OTHER; i++) {
        next = HUB_NET_FAILED;
        if (hub_net_url(&url, endpoints[i], q))
            next = hub_net_ask_at(n, q, buf_view(&url), out, e);
        else
            err_set(e, ERR_LIMIT, "hub: an address longer than %u bytes", HUB_NET_URL_MAX);
        if (next == HUB_NET_OTHER && i + 1 < count)
            hub_net_note(n, "%s; trying %.*s", e->text, STR_ARG(endpoints[i + 1]));
    }
    buf_deinit(&url);
    bool is_away = next == HUB_NET_OTHER && (e->code == ERR_CONNECT || e->code == ERR_DEADLINE);
    if (is_away && count == 1 && str_eq_z(endpoints[0], "https://huggingface.co"))
        err_set(e, e->code, "%.*s; hub.mirrors can name other hubs",
                STR_ARG(str_sub(str_of(e->text), 0, 180)));
    return next == HUB_NET_DONE;
}
