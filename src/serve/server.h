/* server - the endpoint's outside: listeners, who may ask what, and a graceful end.
 *
 * Owns:      the HTTP server, the set of requests under way, the counters, the way from a method
 *            and path to a dialect or to a handler of path_table.
 * Not:       one request's reply (exchange), models and children (the provider), settings (cli).
 * Invariant: everything is answered in JSON, in the form of the dialect whose path was asked for.
 *            Who may not ask is told before a byte of the body is read.
 *
 *     http_server --header--> limits, paths --refusal-->
 *                 --body--> exchange (a dialect's path) | path_table (everything else)
 *
 * Thread:    the loop's.
 * Limits:    struct server_options; ingress_max bytes of bodies in memory at once.
 */
#ifndef SHOAL_SERVE_SERVER_H
#define SHOAL_SERVE_SERVER_H

#include "serve/exchange.h"
#include "serve/limits.h"
#include "serve/pulls.h"
#include "wire/http_server.h"

#define SERVER_ADDRESSES_MAX 16

struct legs;
struct models_leg;
struct proofs;
struct server;
struct tls;
struct server_options {
    struct loop *loop;
    struct models_leg *models; /* the local models; outlives the server */
    struct legs *legs;         /* the provider of everything; outlives the server */
    struct dialect_limits dialect;
    struct pulls_options pulls;
    struct limits_options access; /* listen and checks_host are the server's own */
    struct http_limits http;
    struct tls *tls; /* taken by server_open; NULL: none. A change does not touch it */
    uint32_t connections_max, queue_max;
    uint64_t body_max, ingress_max;
    size_t replay_size;    /* bytes of past replies; 0: they are only text */
    int64_t replay_ttl_ms;
    int64_t context_ttl_ms; /* cache.context_ttl */
    int64_t session_ttl_ms; /* cache.session_ttl */
    const str *public_ids;  /* contexts in cache.public; of the start, no reload changes them */
    uint32_t public_ids_count;
    const char *spill_dir;  /* of the tier, where contexts survive a restart; NULL: nowhere */
    int64_t ping_ms, defer_ms, total_ms, wait_ms, gen_ms, grace_ms;
    uint32_t agents_max;     /* metrics.agents */
    bool rounds_clock;       /* cache.normalise.clock */
    uint32_t misses_max;     /* cache.miss_ring; not touched by a change */
    int64_t engine_stall_ms; /* half of it without progress is degraded health */
    uint16_t overlong_status; /* 0: each dialect's own */
    str version;             /* JSON object: the answer of /version */
    str version_text, isa;   /* "0.1.0", "vnni" */
    str ollama_version;      /* "0.13.0": what its clients may expect */
    /* POST /v1/admin/reload: as reload_run (cli); false: problems, one a line. May be NULL. */
    bool (*reload)(void *ctx, struct buf *report, struct buf *problems, struct err *e);
    /* Stopped: every request has ended, or the grace time is over. From the loop. */
    void (*on_stopped)(void *ctx);
    void *ctx;
};

BASE_USE_RESULT bool server_open(struct server **out, const struct server_options *o,
                                 struct err *e);
/* As http_server_listen, at start; address outlives the server. ERR_CONFIG: reachable from other
 * machines, and no keys. */
BASE_USE_RESULT bool server_listen(struct server *s, str address, struct err *e);
/* Other values from the next request on: everything but loop, models, version texts, addresses and
 * callbacks. o->access: ERR_CONFIG when it has no keys and an address needs some; what it views
 * lives until on_free. prepare changes nothing; *next goes to exactly one of the others. */
struct server_next;
BASE_USE_RESULT bool server_prepare(const struct server *s, const struct server_options *o,
                                    struct server_next **next, struct err *e);
void server_change(struct server *s, struct server_next *next, void (*on_free)(void *ctx),
                   void *ctx);
void server_forget(struct server_next *next); /* NULL is allowed */
/* For connections from now on; taken. */
void server_set_tls(struct server *s, struct tls *tls);
/* A reload has ended: told by /health, /v1/status and metrics. refusal: NULL when it went well. */
struct server_config {
    char path[4096];    /* of the file; "": there is none */
    char sha256[65];    /* of its text, in hex */
    int64_t loaded_s;   /* when, Unix */
    uint64_t reloads, refusals;
    char refusal[256];  /* of the last reload; "" = it went well */
};
struct server_config *server_config_of(struct server *s);
/* Port of the n-th address as bound. */
uint16_t server_port(const struct server *s, size_t listener);
/* Accepts nothing any more; open requests have grace_ms, then they are told. */
void server_stop(struct server *s);
void server_close(struct server *s); /* NULL is allowed */

/* --- for path_table --- */

const struct server_options *server_options_of(const struct server *s);
const struct metrics *server_metrics(const struct server *s);
const struct misses *server_misses(const struct server *s);
struct agents *server_agents(const struct server *s);
struct exchange_set *server_exchanges(const struct server *s);
struct contexts *server_contexts(const struct server *s);
struct sessions *server_sessions(const struct server *s);
const struct replay *server_replay(const struct server *s); /* NULL: cache.replay is off */
struct pulls *server_pulls(const struct server *s);
struct proofs *server_proofs(struct server *s);
struct limits *server_limits(const struct server *s); /* keeps alive what the options view */
/* Called once if c's client goes away before its reply has ended; NULL: not any more. */
void server_on_leave(struct http_conn *c, void (*on_leave)(void *ctx), void *ctx);
/* Who asks: what a handler may need of the key, which a reload may have freed by then. Without
 * configured keys everybody is admin, of EXCHANGE_SCOPE_KEYLESS. */
struct server_asker {
    bool is_admin;
    str key;   /* its name, "" without keys */
    str scope; /* of the prefix cache */
};
struct server_asker server_asker(const struct http_conn *c);
uint32_t server_connections(const struct server *s);
uint32_t server_requests(const struct server *s); /* dialects' requests under way */
uint64_t server_ingress(const struct server *s);  /* bytes of bodies */
int64_t server_uptime_ms(const struct server *s);
/* A whole JSON reply with the headers that every reply has. */
void server_reply(struct http_conn *c, int status, str json);
/* 200 with JSON of this moment, which nobody may keep; frees out. What did not fit into it is no
 * JSON: ERR_LIMIT. */
void server_reply_fresh(struct server *s, struct http_conn *c, struct buf *out);
/* An error in the form of the asked path's dialect, or OpenAI's. */
void server_refuse(struct server *s, struct http_conn *c, const struct api_error *e);

#endif
