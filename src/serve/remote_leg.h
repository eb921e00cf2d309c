/* remote_leg - one upstream as a provider: requests out by HTTP, its stream back as events.
 *
 * Owns:      calls to one base URL, their waits, what an answer's status and bytes say about the
 *            leg (api_fault), free checks and paid probes when they are asked for.
 * Not:       which leg a request goes to, breakers, when to check (route, exchange); reading keys
 *            and files of the configuration (cli); a protocol's JSON (dialect_NAME_client).
 * Invariant: a request that was taken ends with its last DONE or one ERROR whose fault is set.
 *            Without the protocol's terminal marker there is no DONE: a clean end of bytes is CUT.
 *            The key goes to the leg's own scheme, host and port only: redirects are an error. A
 *            key never stands in a log, an error or an event. Nothing is retried here.
 *
 *     submit --connect_ms--> connected --first_ms--> header, first visible token --gap_ms--> ...
 *              CONNECT TLS               HANG_HEADER HANG_FIRST                     STALL CUT
 *
 * The waits are rq->deadline's, 0 = none; they run by timers, not by reads. total_ms is the call's
 * from submit on: past it the class is that of the wait that runs. Pings, comments, role
 * and empty deltas are no progress, but comments of another shoal (`continue: shoal`) in which its
 * place in a queue or the part of a prompt that is done moves on.
 *
 *     2xx header --> QUEUED (the upstream took it) --> NOTE* STARTED text... USAGE DONE
 *
 * Thread:    the endpoint's loop.
 * Limits:    requests_max at once, then ERR_OVERLOADED; 64 KiB of header, DIALECT_CLIENT_EVENT_MAX
 *            bytes of one event, REMOTE_LEG_BODY_MAX of a reply that is not streamed, 64 KiB of an
 *            error's; two events that cannot be read are skipped, the third is GARBAGE.
 */
#ifndef SHOAL_SERVE_REMOTE_LEG_H
#define SHOAL_SERVE_REMOTE_LEG_H

#include "api/api_provider.h"
#include "dialect/dialect_client.h"
#include "wire/http_client.h"
#include "wire/loop.h"

#define REMOTE_LEG_BODY_MAX ((size_t)64 << 20)
#define REMOTE_LEG_PROBE_TOKENS 16u
#define REMOTE_LEG_HOPS_MAX 3u /* Shoal-Hop: more shoals in a row are a loop */

enum remote_leg_auth {
    REMOTE_LEG_AUTH_NONE,
    REMOTE_LEG_AUTH_KEY,         /* the leg's own */
    REMOTE_LEG_AUTH_PASSTHROUGH, /* rq->client_key; a request without one is refused */
};

/* All views are copied. */
struct remote_leg_options {
    struct loop *loop;
    struct http_client *client; /* shared by all legs; outlives them */
    str name;                   /* of the leg */
    const struct dialect *dialect; /* with a client */
    str url;                    /* base, without /v1 and without a slash at its end */
    str ca_file;                /* PEM roots besides the system's, or "" */
    enum remote_leg_auth auth;
    str key;                    /* AUTH_KEY: the secret itself */
    struct dialect_upstream upstream;
    uint32_t context_max;       /* 0 = not checked */
    uint32_t requests_max;      /* max_inflight */
    str health_path;            /* "" = the dialect's free one */
    str via;                    /* this server's random name in Shoal-Via; "" = none is told */
    int64_t check_ms;           /* at least so long between two free checks */
};

struct remote_leg;
/* ERR_CONFIG naming the leg: no http or https URL, one with user, query or fragment, a dialect that
 * no upstream speaks, `continue` that it lacks, a CA file that cannot be read. Calls nobody. */
BASE_USE_RESULT bool remote_leg_open(struct remote_leg **out, const struct remote_leg_options *o,
                                     struct err *e);
/* Requests it still has get nothing any more. Also from a callback of one of them: what that needs
 * lives until it has returned. NULL is allowed. */
void remote_leg_close(struct remote_leg *l);

/* submit refuses what the protocol or the leg cannot do: ERR_UNSUPPORTED, param naming it;
 * ERR_OVERLOADED at requests_max. models() gives one row; health() is READY, queue and rates 0:
 * what is known of an upstream is known by its outcomes (route). credit does nothing, hold stops
 * reading the upstream's socket and its waits. */
struct api_provider remote_leg_provider(struct remote_leg *l);

/* The outcome of a check or probe. fault NONE: it answered; AUTH: it did, but refuses the key. */
struct remote_leg_check {
    enum api_fault fault;
    uint16_t status; /* 0: no answer */
    int64_t took_ms;
    uint64_t tokens;        /* of a probe: prompt and reply as the upstream counts them */
    int64_t retry_after_ms; /* of a probe: as the upstream said; 0: nothing */
    str text;        /* of a failure; valid in the call */
};
/* Asks the free path once. False: one is under way, or the last began less than check_ms ago.
 * on_check runs once, from the loop, unless the leg is closed before. */
bool remote_leg_ask(struct remote_leg *l,
                    void (*on_check)(void *ctx, const struct remote_leg_check *c), void *ctx);
/* A billed request of REMOTE_LEG_PROBE_TOKENS tokens to the leg's model (model: where the leg has
 * none of its own) with these waits, whatever the breaker says; when it may be sent is the
 * caller's to know. A
 * budget that the upstream refuses as too small is no fault. False: one is under way. */
bool remote_leg_probe(struct remote_leg *l, str model, const struct api_deadlines *wait,
                      void (*on_check)(void *ctx, const struct remote_leg_check *c), void *ctx);

uint32_t remote_leg_inflight(const struct remote_leg *l);
const struct dialect_upstream *remote_leg_upstream(const struct remote_leg *l);

#endif
