#include "wire/http_client.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "wire/loop.h"

#define HTTP_CLIENT_VERSION_MIN 0x075700 /* 7.87: QUICK_EXIT */
#define HTTP_CLIENT_SOCKETS_KEPT 64L

/* libcurl's functions under their own names less "curl_"; none is linked, so that a machine
 * without the library runs everything that makes no outbound call. */
#define HTTP_CLIENT_FUNCTIONS(X) \
    X(global_init) X(version_info) X(easy_init) X(easy_setopt) X(easy_cleanup) X(easy_getinfo) \
    X(easy_pause) X(easy_strerror) X(multi_init) X(multi_cleanup) X(multi_setopt) \
    X(multi_add_handle) X(multi_remove_handle) X(multi_assign) X(multi_socket_action) \
    X(multi_info_read) X(multi_strerror) X(slist_append) X(slist_free_all)

/* typecheck-gcc.h makes macros of some; their types are meant here. */
#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

struct http_client_curl {
#define X(name) __typeof__(curl_##name) *name;
    HTTP_CLIENT_FUNCTIONS(X)
#undef X
};

enum http_call_state { HTTP_CALL_STATE_NEW, HTTP_CALL_STATE_RUNS, HTTP_CALL_STATE_CANCELLED };

struct http_call {
    struct list link;
    struct http_client *client;
    CURL *easy;
    struct curl_slist *headers;
    char *body;
    struct http_call_handlers handlers;
    void (*on_header)(void *ctx, str name, str value);
    void (*on_fault)(void *ctx, enum http_call_fault fault);
    struct loop_timer deadline; /* first_ms, then idle_ms */
    int64_t first_ms, idle_ms;
    enum http_call_state state;
    size_t header_size;
    bool has_head, is_late, is_header_long;
    bool is_paused, wants_pause; /* libcurl holds bytes back; the caller wants it so */
};

struct http_client_socket {
    struct list link;
    struct http_client *client;
    curl_socket_t fd;
    struct loop_watch watch;
};

struct http_client {
    struct http_client_curl curl;
    struct loop *loop;
    CURLM *multi;
    struct loop_timer timer;   /* what libcurl asked for */
    struct loop_timer errands; /* calls to add, to remove or to end, outside of libcurl */
    struct list calls, sockets;
    uint32_t calls_count, calls_max;
    bool is_inside; /* libcurl is on the stack: it may not be called except to pause */
};

/* --- the library ---------------------------------------------------------------------------- */

static bool http_client_load(struct http_client_curl *c, struct err *e)
{
    void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(e, ERR_UNSUPPORTED, "calls to other servers need libcurl.so.4, which is not "
                       "installed (Debian: libcurl4)");
#define X(name) \
    if (!(*(void **)&c->name = dlsym(library, "curl_" #name))) \
        return err_set(e, ERR_UNSUPPORTED, "libcurl.so.4 has no curl_" #name);
    HTTP_CLIENT_FUNCTIONS(X)
#undef X
    const curl_version_info_data *v = c->version_info(CURLVERSION_NOW);
    if (v->version_num < HTTP_CLIENT_VERSION_MIN)
        return err_set(e, ERR_UNSUPPORTED, "libcurl is %s, at least 7.87 expected", v->version);
    /* Counted by the library; it stays loaded to the end of the process. */
    if (c->global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return err_set(e, ERR_MEMORY, "libcurl cannot be initialised");
    return true;
}

/* --- ends ------------------------------------------------------------------------------------ */

static void http_call_free(struct http_call *call)
{
    struct http_client *c = call->client;
    loop_timer_close(&call->deadline);
    if (call->easy) {
        if (call->state != HTTP_CALL_STATE_NEW)
            c->curl.multi_remove_handle(c->multi, call->easy);
        c->curl.easy_cleanup(call->easy);
    }
    c->curl.slist_free_all(call->headers);
    list_remove(&call->link);
    c->calls_count--;
    free(call->body);
    free(call);
}

static bool http_call_is_tls(CURLcode code)
{
    static const CURLcode codes[] = {
        CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CERTPROBLEM,
        CURLE_SSL_CIPHER, CURLE_SSL_CACERT_BADFILE, CURLE_SSL_ISSUER_ERROR,
        CURLE_SSL_INVALIDCERTSTATUS, CURLE_USE_SSL_FAILED, CURLE_SSL_ENGINE_INITFAILED};
    for (size_t i = 0; i < countof(codes); i++)
        if (codes[i] == code)
            return true;
    return false;
}

static bool http_call_is_connected(const struct http_call *call)
{
    double connected = 0;
    call->client->curl.easy_getinfo(call->easy, CURLINFO_PRETRANSFER_TIME, &connected);
    return connected > 0;
}

static enum http_call_fault http_call_fault_of(const struct http_call *call, CURLcode code)
{
    bool is_connected = http_call_is_connected(call);
    if (call->is_header_long)
        return HTTP_CALL_FAULT_HEADER;
    if (call->is_late)
        return call->has_head ? HTTP_CALL_FAULT_LATE_IDLE : HTTP_CALL_FAULT_LATE_FIRST;
    if (code == CURLE_OPERATION_TIMEDOUT)
        return is_connected ? HTTP_CALL_FAULT_LATE_TOTAL : HTTP_CALL_FAULT_LATE_CONNECT;
    if (http_call_is_tls(code))
        return HTTP_CALL_FAULT_TLS;
    return is_connected ? HTTP_CALL_FAULT_BROKEN : HTTP_CALL_FAULT_CONNECT;
}

static void http_call_why(const struct http_call *call, CURLcode code, struct err *e)
{
    const char *text = call->client->curl.easy_strerror(code);
    bool is_connected = http_call_is_connected(call);
    if (call->is_header_long)
        err_set(e, ERR_UPSTREAM, "answer: its header is above %zu bytes",
                HTTP_CLIENT_HEADER_SIZE_MAX);
    else if (call->is_late)
        err_set(e, ERR_DEADLINE, "%s: nothing came for %lld ms",
                call->has_head ? "body" : "answer",
                (long long)(call->has_head ? call->idle_ms : call->first_ms));
    else if (code == CURLE_OPERATION_TIMEDOUT)
        err_set(e, ERR_DEADLINE, "%s: %s", is_connected ? "call" : "connect", text);
    else if (!is_connected)
        err_set(e, ERR_CONNECT, "connect: %s", text);
    else
        err_set(e, ERR_UPSTREAM, "%s: %s", call->has_head ? "body" : "answer", text);
}

static void http_call_end(struct http_call *call, CURLcode code)
{
    struct http_call_handlers h = call->handlers;
    struct err why;
    bool is_good = code == CURLE_OK && call->has_head;
    enum http_call_fault fault = HTTP_CALL_FAULT_BROKEN;
    void (*on_fault)(void *ctx, enum http_call_fault fault) = call->on_fault;
    if (!is_good) {
        code = code == CURLE_OK ? CURLE_GOT_NOTHING : code;
        fault = http_call_fault_of(call, code);
        http_call_why(call, code, &why);
    }
    http_call_free(call);
    if (!is_good && on_fault)
        on_fault(h.ctx, fault);
    h.on_end(h.ctx, is_good ? NULL : &why);
}

/* --- libcurl is run, never entered twice ------------------------------------------------------ */

static void http_client_reap(struct http_client *c)
{
    CURLMsg *m;
    int left;
    while ((m = c->curl.multi_info_read(c->multi, &left))) {
        if (m->msg != CURLMSG_DONE)
            continue;
        CURLcode code = m->data.result;
        struct http_call *call = NULL;
        c->curl.easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)(void *)&call);
        if (call->state == HTTP_CALL_STATE_CANCELLED)
            http_call_free(call);
        else
            http_call_end(call, code);
    }
}

static void http_client_act(struct http_client *c, curl_socket_t fd, int events)
{
    int running;
    c->is_inside = true;
    CURLMcode code = c->curl.multi_socket_action(c->multi, fd, events, &running);
    c->is_inside = false;
    must(code == CURLM_OK || code == CURLM_BAD_SOCKET);
    http_client_reap(c);
}

static void http_client_on_ready(void *ctx, enum loop_ready ready)
{
    struct http_client_socket *s = ctx;
    http_client_act(s->client, s->fd,
                    ready == LOOP_READY_READ ? CURL_CSELECT_IN : CURL_CSELECT_OUT);
}

static int http_client_on_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *socket)
{
    struct http_client *c = ctx;
    struct http_client_socket *s = socket;
    struct err e;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (s) {
            loop_watch_close(&s->watch);
            list_remove(&s->link);
            free(s);
        }
        return 0;
    }
    if (!s) {
        s = calloc(1, sizeof *s);
        if (!s || !loop_watch_open(&s->watch, c->loop, fd, http_client_on_ready, s, &e)) {
            free(s);
            return -1; /* libcurl ends its calls */
        }
        s->client = c;
        s->fd = fd;
        list_push_last(&c->sockets, &s->link);
        c->curl.multi_assign(c->multi, fd, s);
    }
    loop_watch_set(&s->watch, LOOP_READY_READ, what & CURL_POLL_IN);
    loop_watch_set(&s->watch, LOOP_READY_WRITE, what & CURL_POLL_OUT);
    return 0;
}

static int http_client_on_timer(CURLM *multi, long in_ms, void *ctx)
{
    struct http_client *c = ctx;
    (void)multi;
    if (in_ms < 0)
        loop_timer_stop(&c->timer);
    else
        loop_timer_set(&c->timer, in_ms);
    return 0;
}

static void http_client_on_time(void *ctx) { http_client_act(ctx, CURL_SOCKET_TIMEOUT, 0); }

static void http_call_resume(struct http_call *call)
{
    struct http_client *c = call->client;
    call->is_paused = false;
    if (call->has_head && call->idle_ms)
        loop_timer_set(&call->deadline, call->idle_ms);
    c->is_inside = true; /* it may hand over the bytes that it held back */
    c->curl.easy_pause(call->easy, CURLPAUSE_CONT);
    c->is_inside = false;
}

/* What was asked for while libcurl was on the stack, and new calls. Each round starts from the
 * list's head, because an end may change the list. */
static struct http_call *http_client_errand(const struct http_client *c)
{
    list_each (link, &c->calls) {
        struct http_call *call = list_item(link, struct http_call, link);
        if (call->state != HTTP_CALL_STATE_RUNS || (call->is_paused && !call->wants_pause))
            return call;
    }
    return NULL;
}

static void http_client_on_errands(void *ctx)
{
    struct http_client *c = ctx;
    struct http_call *call;
    while ((call = http_client_errand(c))) {
        if (call->state == HTTP_CALL_STATE_CANCELLED) {
            http_call_free(call);
        } else if (call->state == HTTP_CALL_STATE_RUNS) {
            http_call_resume(call);
        } else {
            call->state = HTTP_CALL_STATE_RUNS;
            if (c->curl.multi_add_handle(c->multi, call->easy) != CURLM_OK)
                http_call_end(call, CURLE_OUT_OF_MEMORY);
        }
    }
    http_client_reap(c);
}

/* --- what libcurl tells about a call ---------------------------------------------------------- */

static void http_call_tell_header(struct http_call *call, str line)
{
    size_t at = str_find_byte(line, ':');
    if (at != STR_NONE && call->on_header)
        call->on_header(call->handlers.ctx, str_sub(line, 0, at),
                        str_trim(str_from(line, at + 1)));
}

static size_t http_call_on_header(char *line, size_t size, size_t count, void *ctx)
{
    struct http_call *call = ctx;
    long status = 0;
    size *= count;
    if (call->state == HTTP_CALL_STATE_CANCELLED)
        return 0;
    call->header_size += size;
    if (call->header_size > HTTP_CLIENT_HEADER_SIZE_MAX) { /* only newer versions have a limit */
        call->is_header_long = true;
        return 0;
    }
    call->client->curl.easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200) /* 100, 103: the answer follows, with fields of its own */
        return size;
    bool is_end = str_trim(str_view(line, size)).len == 0; /* some leave the CR out */
    if (!is_end || call->has_head) {
        if (!call->has_head)
            http_call_tell_header(call, str_view(line, size));
        return call->state == HTTP_CALL_STATE_CANCELLED ? 0 : size;
    }
    call->has_head = true;
    loop_timer_stop(&call->deadline);
    if (call->idle_ms)
        loop_timer_set(&call->deadline, call->idle_ms);
    call->handlers.on_head(call->handlers.ctx, (int)status);
    return call->state == HTTP_CALL_STATE_CANCELLED ? 0 : size;
}

static size_t http_call_on_body(char *bytes, size_t size, size_t count, void *ctx)
{
    struct http_call *call = ctx;
    size *= count;
    if (call->state == HTTP_CALL_STATE_CANCELLED)
        return 0;
    if (call->wants_pause) {
        call->is_paused = true;
        loop_timer_stop(&call->deadline);
        return CURL_WRITEFUNC_PAUSE;
    }
    if (call->idle_ms)
        loop_timer_set(&call->deadline, call->idle_ms);
    call->handlers.on_bytes(call->handlers.ctx, str_view(bytes, size));
    return call->state == HTTP_CALL_STATE_CANCELLED ? 0 : size;
}

static void http_call_on_late(void *ctx)
{
    struct http_call *call = ctx;
    call->is_late = true;
    http_call_end(call, CURLE_OPERATION_TIMEDOUT);
}

/* --- calls ------------------------------------------------------------------------------------ */

static bool http_call_put_headers(struct http_call *call, const struct http_call_options *o,
                                  struct err *e)
{
    const struct http_client_curl *curl = &call->client->curl;
    const char *const none[] = {NULL};
    const char *const *from = o->headers ? o->headers : none;
    /* Large bodies do not wait for a 100. */
    call->headers = curl->slist_append(NULL, "Expect:");
    for (size_t i = 0; call->headers && from[i]; i++) {
        if (i == HTTP_CLIENT_HEADERS_MAX || strpbrk(from[i], "\r\n"))
            return err_set(e, ERR_USAGE, "call: header %zu: at most %d headers without line feeds",
                           i + 1, HTTP_CLIENT_HEADERS_MAX);
        struct curl_slist *longer = curl->slist_append(call->headers, from[i]);
        if (!longer)
            return err_set(e, ERR_MEMORY, "call: no memory for headers");
        call->headers = longer;
    }
    return call->headers || err_set(e, ERR_MEMORY, "call: no memory for headers");
}

/* libcurl copies the text. */
static CURLcode http_call_put_text(struct http_call *call, CURLoption option, str text)
{
    char *z = strndup(text.len ? text.p : "", text.len);
    CURLcode code = z ? call->client->curl.easy_setopt(call->easy, option, z)
                      : CURLE_OUT_OF_MEMORY;
    free(z);
    return code;
}

static bool http_call_put_options(struct http_call *call, const struct http_call_options *o)
{
    const struct http_client_curl *curl = &call->client->curl;
    CURLcode bad = CURLE_OK;
#define SET(option, value) (bad |= curl->easy_setopt(call->easy, CURLOPT_##option, value))
    bad |= http_call_put_text(call, CURLOPT_URL, o->url);
    bad |= http_call_put_text(call, CURLOPT_PROXY, o->proxy);
    bad |= http_call_put_text(call, CURLOPT_NOPROXY, o->no_proxy);
    if (o->ca_file.len) /* the system's directory of roots stays */
        bad |= http_call_put_text(call, CURLOPT_CAINFO, o->ca_file);
    SET(PROTOCOLS_STR, "http,https");
    SET(NOSIGNAL, 1L);
    SET(QUICK_EXIT, 1L);
    SET(SUPPRESS_CONNECT_HEADERS, 1L);
    SET(HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(USERAGENT, "shoal");
    SET(HTTPHEADER, call->headers);
    SET(PRIVATE, call);
    SET(HEADERFUNCTION, http_call_on_header);
    SET(HEADERDATA, call);
    SET(WRITEFUNCTION, http_call_on_body);
    SET(WRITEDATA, call);
    SET(FRESH_CONNECT, (long)o->has_own_connection);
    SET(FORBID_REUSE, (long)o->has_own_connection);
    SET(CONNECTTIMEOUT_MS, (long)(o->connect_ms ? o->connect_ms : INT32_MAX));
    SET(TIMEOUT_MS, (long)o->total_ms);
    if (o->receive_size)
        SET(BUFFERSIZE, (long)o->receive_size);
    if (o->body.len) {
        SET(POST, 1L);
        SET(POSTFIELDSIZE_LARGE, (curl_off_t)o->body.len);
        SET(POSTFIELDS, call->body);
    }
    if (o->method)
        SET(CUSTOMREQUEST, o->method);
#undef SET
    return bad == CURLE_OK;
}

static bool http_call_fill(struct http_call *call, const struct http_call_options *o,
                           struct err *e)
{
    struct http_client *c = call->client;
    if (!loop_timer_open(&call->deadline, c->loop, http_call_on_late, call, e) ||
        !http_call_put_headers(call, o, e))
        return false;
    call->easy = c->curl.easy_init();
    call->body = malloc(o->body.len + 1);
    if (!call->easy || !call->body)
        return err_set(e, ERR_MEMORY, "call: no memory");
    if (o->body.len)
        memcpy(call->body, o->body.p, o->body.len);
    return http_call_put_options(call, o) || err_set(e, ERR_MEMORY, "call: no memory");
}

bool http_client_start(struct http_client *c, struct http_call **out,
                       const struct http_call_options *o, struct err *e)
{
    if (c->calls_count == c->calls_max)
        return err_set(e, ERR_LIMIT, "call: %u calls run, at most %u", c->calls_count,
                       c->calls_max);
    if (!str_starts(o->url, STR("http://")) && !str_starts(o->url, STR("https://")))
        return err_set(e, ERR_USAGE, "call: an URL with http:// or https:// expected, got \"%.*s\"",
                       STR_ARG(str_sub(o->url, 0, 80)));
    struct http_call *call = calloc(1, sizeof *call);
    if (!call)
        return err_set(e, ERR_MEMORY, "call: no memory");
    call->client = c;
    call->handlers = o->handlers;
    call->on_header = o->on_header;
    call->on_fault = o->on_fault;
    call->first_ms = o->first_ms;
    call->idle_ms = o->idle_ms;
    list_push_last(&c->calls, &call->link);
    c->calls_count++;
    if (!http_call_fill(call, o, e)) {
        http_call_free(call);
        return false;
    }
    if (o->first_ms)
        loop_timer_set(&call->deadline, o->first_ms);
    loop_timer_set(&c->errands, 0);
    *out = call;
    return true;
}

void http_client_cancel(struct http_call *call)
{
    if (!call->client->is_inside) {
        http_call_free(call);
        return;
    }
    loop_timer_stop(&call->deadline);
    call->state = HTTP_CALL_STATE_CANCELLED;
    loop_timer_set(&call->client->errands, 0);
}

void http_client_pause(struct http_call *call, bool on)
{
    call->wants_pause = on;
    if (call->is_paused && !on)
        loop_timer_set(&call->client->errands, 0);
}

/* --- clients ---------------------------------------------------------------------------------- */

bool http_client_open(struct http_client **out, struct loop *l, uint32_t calls_max, struct err *e)
{
    struct http_client *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_MEMORY, "http_client: no memory");
    *c = (struct http_client){.loop = l, .calls_max = calls_max};
    list_init(&c->calls);
    list_init(&c->sockets);
    if (!http_client_load(&c->curl, e) ||
        !loop_timer_open(&c->timer, l, http_client_on_time, c, e) ||
        !loop_timer_open(&c->errands, l, http_client_on_errands, c, e)) {
        http_client_close(c);
        return false;
    }
    c->multi = c->curl.multi_init();
    if (!c->multi) {
        http_client_close(c);
        return err_set(e, ERR_MEMORY, "http_client: no memory");
    }
    c->curl.multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, http_client_on_socket);
    c->curl.multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
    c->curl.multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, http_client_on_timer);
    c->curl.multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
    c->curl.multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, HTTP_CLIENT_SOCKETS_KEPT);
    *out = c;
    return true;
}

void http_client_close(struct http_client *c)
{
    if (!c)
        return;
    must(!c->is_inside);
    list_each (link, &c->calls)
        http_call_free(list_item(link, struct http_call, link));
    if (c->multi)
        c->curl.multi_cleanup(c->multi);
    list_each (link, &c->sockets) {
        struct http_client_socket *s = list_item(link, struct http_client_socket, link);
        loop_watch_close(&s->watch);
        free(s);
    }
    loop_timer_close(&c->timer);
    loop_timer_close(&c->errands);
    free(c);
}

uint32_t http_client_calls(const struct http_client *c) { return c->calls_count; }
