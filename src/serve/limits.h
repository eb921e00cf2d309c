/* limits - who may ask: keys and their scopes, the Host and Origin of a request.
 *
 * Owns:      the digests of keys, addresses that tried wrong ones, the rules of BEHAVIOUR 10.1
 *            and 10.2.
 * Not:       where keys come from (cli), what a scope is needed for (path_table, dialects).
 * Invariant: a key is compared by its sha256 with every configured one, in a time that depends on
 *            their number alone. No key is kept, logged or told. Without keys every caller on this
 *            machine has every scope, but what a web page sent may not administrate.
 * Thread:    the loop's.
 * Limits:    LIMITS_KEYS_MAX keys; LIMITS_PEERS_MAX addresses are remembered, oldest forgotten.
 */
#ifndef SHOAL_SERVE_LIMITS_H
#define SHOAL_SERVE_LIMITS_H

#include "serve/quota.h"

#define LIMITS_KEYS_MAX 256
#define LIMITS_PEERS_MAX 256
#define LIMITS_KEY_LEN_MIN 16
#define LIMITS_KEY_LEN_MAX 512
#define LIMITS_TRIES 20 /* wrong keys a minute from one address, then 429 for a minute */

enum limits_scope { LIMITS_SCOPE_INFER = 1 << 0, LIMITS_SCOPE_READ = 1 << 1,
                    LIMITS_SCOPE_ADMIN = 1 << 2 };

struct limits_key {
    str name;
    uint8_t sha256[32];
    uint32_t scopes;         /* LIMITS_SCOPE bits */
    str agent, cache_scope;  /* "" = not fixed; the key's name */
    const str *models;       /* globs of names it may ask for; none: all */
    const str *agents;       /* globs of agents it may speak for; none: all */
    uint32_t models_count, agents_count;
    struct quota_rules rules;
};
/* Without configured keys everybody is. */
static inline bool limits_is_admin(const struct limits_key *key)
{
    return !key || (key->scopes & LIMITS_SCOPE_ADMIN);
}

struct limits_agents { str glob; struct quota_rules rules; };

struct limits;
/* Views live until on_free, without one as long as the program. */
struct limits_options {
    const struct limits_key *keys;
    uint32_t keys_count;
    const str *hosts, *origins; /* allowed_hosts, allowed_origins */
    uint32_t hosts_count, origins_count;
    const struct limits_agents *agents;
    uint32_t agents_count;
    const str *listen;          /* addresses; their names are good Hosts */
    uint32_t listen_count;
    bool checks_host;           /* every listener is on loopback */
};
BASE_USE_RESULT bool limits_open(struct limits **out, const struct limits_options *o,
                                 struct err *e);
/* A request that was let in by these keeps them, so that a reload takes nothing from it. */
struct limits *limits_ref(struct limits *l);
void limits_close(struct limits *l); /* gives one reference back; NULL is allowed */
/* Called when nobody refers to what the options viewed any more. */
void limits_set_on_free(struct limits *l, void (*on_free)(void *ctx), void *ctx);
/* Takes over who tried wrong keys lately. */
void limits_follow(struct limits *l, const struct limits *before);

struct limits_asked {
    str host, origin, authorization, x_api_key, shoal_key; /* headers; p NULL: absent */
    str peer;
    uint32_t scope; /* one LIMITS_SCOPE bit, or 0: open to all */
    int64_t now_ms;
};
/* ERR_AUTH, "forbidden" for Host and Origin. */
BASE_USE_RESULT bool limits_check_origin(const struct limits *l, const struct limits_asked *a,
                                         struct api_error *e);
/* *key: whose, NULL where none is configured or asked for. ERR_AUTH: no or a wrong key;
 * "forbidden": without the scope; "rate_limited" with retry_after_ms. */
BASE_USE_RESULT bool limits_check_key(struct limits *l, const struct limits_asked *a,
                                      const struct limits_key **key, struct api_error *e);
/* Whether it is a key of ours: never to be passed on. */
bool limits_knows(const struct limits *l, str key);
/* May it ask for this model, speak for this agent? */
bool limits_allows_model(const struct limits_key *key, str model);
bool limits_allows_agent(const struct limits_key *key, str agent);
/* The rules of the longest glob that fits, or NULL. */
const struct quota_rules *limits_rules_of(const struct limits *l, str agent);

/* sha256 of a key's text; ERR_CONFIG for a length that is not allowed. */
BASE_USE_RESULT bool limits_digest(uint8_t out[32], str key, struct err *e);

#endif
