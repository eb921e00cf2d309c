/* hub_net - calls to hubs: redirects, tokens, waiting, and answers that are not what was asked for.
 *
 * Owns:      a loop and an HTTP client for one pull or one question; who may see the token.
 * Not:       what a hub's answers mean (hub), pieces of a file and their retries (pull_file).
 * Invariant: the token goes only to the origin of the first endpoint, and only over https; it is
 *            added anew at every hop, so a redirect to another origin never carries it, and no
 *            challenge is answered. A redirect leads to http or https, never from https to http.
 *
 *     start --> 302 --> 302 --> on_head, on_bytes ... --> on_end      at most HUB_NET_HOPS_MAX
 *
 * Thread:    one at a time, all of one object on the same.
 * Limits:    calls_max at once; HUB_NET_URL_MAX bytes an address; bodies as given.
 */
#ifndef SHOAL_STORE_HUB_NET_H
#define SHOAL_STORE_HUB_NET_H

#include "store/hub.h"

#define HUB_NET_URL_MAX 8192u
#define HUB_NET_HOPS_MAX 6
#define HUB_NET_WAIT_MAX_S 60
#define HUB_NET_WAITS_MAX 5
#define HUB_NET_RATE_MIN 1024 /* bytes a second of a connection; below it is a stall */
#define HUB_NET_RETRIES 5 /* after 1, 2, 4, 8, 16 times retry_ms */

struct loop;
struct hub_net;
struct hub_net_call;

struct hub_net_options {
    const str *endpoints; /* tried in order; no slash at their ends; at least one */
    uint32_t endpoints_count;
    str token;            /* for the first endpoint; empty: none */
    str ca_file;          /* PEM roots besides the system's; empty: none */
    str proxy_http, proxy_https, no_proxy;
    int64_t retry_ms, idle_ms;
    uint32_t calls_max;
    bool (*is_stopped)(void *ctx);          /* asked all the time; may be NULL */
    void (*on_note)(void *ctx, str sentence); /* things to tell; may be NULL */
    void *ctx;
};
/* Texts stay the caller's. ERR_CONFIG: an endpoint that is no address; as http_client_open. */
bool hub_net_open(struct hub_net **out, const struct hub_net_options *o,
                  struct err *e) BASE_USE_RESULT;
void hub_net_close(struct hub_net *n); /* NULL is allowed; calls end in silence */
struct loop *hub_net_loop(struct hub_net *n);
void hub_net_note(struct hub_net *n, const char *format, ...) BASE_PRINTF(2, 3);
/* Runs what is ready, for at most ms. False: is_stopped (ERR_CANCELLED). */
bool hub_net_turn(struct hub_net *n, int64_t ms, struct err *e) BASE_USE_RESULT;

/* --- one call --- */

struct hub_net_head {
    int status;
    bool is_hub; /* the endpoint itself answered, not where it sent us */
    str host, url, content_type, etag, modified;
    uint64_t length;                    /* HUB_SIZE_UNKNOWN: not told */
    bool has_range;
    uint64_t range_first, range_last, range_size; /* size HUB_SIZE_UNKNOWN: "*" */
    int64_t retry_after_s;              /* -1: not told */
    uint32_t digest_size;               /* 0: none, 16: md5, 32: sha256, of this body */
    uint8_t digest[32];
};
struct hub_net_request {
    str url;
    bool has_range;
    uint64_t first, last;    /* bytes, last included */
    bool has_own_connection; /* a new one */
    void *ctx;
    void (*on_head)(void *ctx, const struct hub_net_head *head); /* views until on_end */
    void (*on_bytes)(void *ctx, str bytes);
    void (*on_end)(void *ctx, const struct err *why); /* NULL: complete; the call is gone */
};
/* ERR_USAGE: no address; ERR_LIMIT: calls_max run. Handlers run in hub_net_turn only. */
bool hub_net_start(struct hub_net *n, struct hub_net_call **out, const struct hub_net_request *r,
                   struct err *e) BASE_USE_RESULT;
void hub_net_cancel(struct hub_net_call *call); /* NULL is allowed; also from its handlers */

/* Is this answer a web page or the like in place of a file? False with a sentence that names the
 * host that answered. */
bool hub_net_is_file(const struct hub_net_head *head, struct err *e) BASE_USE_RESULT;

/* --- a whole answer, with patience: other endpoints, 429, and a hub that is briefly away --- */

enum hub_net_kind { HUB_NET_LIST, HUB_NET_FILE, HUB_NET_SEARCH };
struct hub_net_query {
    enum hub_net_kind kind;
    str origin; /* instead of the endpoints; empty: those */
    str repo, revision, path; /* path: of FILE; the words of SEARCH */
    uint64_t first, size;     /* FILE: size bytes from first on; size 0: all */
    size_t size_max;
};
/* Appends the body. ERR_NOT_FOUND, ERR_AUTH (private, gated or misspelled), ERR_OVERLOADED (429),
 * ERR_CONNECT, ERR_UPSTREAM, ERR_FORMAT (not what was asked for), ERR_LIMIT, ERR_CANCELLED. */
bool hub_net_ask(struct hub_net *n, const struct hub_net_query *q, struct buf *out,
                 struct err *e) BASE_USE_RESULT;
/* What a status other than 2xx means for that repository, as those errors. */
void hub_net_refusal(const struct hub_net_head *head, str repo, str revision, struct err *e);
/* An endpoint's address of a file. */
bool hub_net_file_url(struct hub_net *n, struct buf *out, str endpoint,
                      const struct hub_net_query *q);
/* The endpoints that a query may use, in order. */
uint32_t hub_net_endpoints(struct hub_net *n, const struct hub_net_query *q, const str **out);

#endif
