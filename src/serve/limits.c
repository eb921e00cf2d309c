#include "serve/limits.h"

#include <stdlib.h>
#include <string.h>

#include "base/digest.h"

#define LIMITS_MINUTE_MS 60000

struct limits_peer {
    uint64_t hash;
    int64_t since_ms, until_ms; /* of the minute that counts; blocked until */
    uint32_t tries;
    uint64_t good[LIMITS_KEYS_MAX / 64]; /* bits of keys that came from here: they stay welcome */
};

struct limits {
    struct limits_options o;
    uint32_t refs;
    void (*on_free)(void *ctx);
    void *ctx;
    struct limits_peer peers[LIMITS_PEERS_MAX];
};

bool limits_open(struct limits **out, const struct limits_options *o, struct err *e)
{
    if (o->keys_count > LIMITS_KEYS_MAX)
        return err_set(e, ERR_CONFIG, "keys: %u of them, at most %d", o->keys_count,
                       LIMITS_KEYS_MAX);
    struct limits *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(e, ERR_MEMORY, "serve: no memory for the limits");
    l->o = *o;
    l->refs = 1;
    *out = l;
    return true;
}

struct limits *limits_ref(struct limits *l)
{
    l->refs++;
    return l;
}

void limits_close(struct limits *l)
{
    if (!l || --l->refs)
        return;
    void (*on_free)(void *ctx) = l->on_free;
    void *ctx = l->ctx;
    free(l);
    if (on_free)
        on_free(ctx);
}

void limits_set_on_free(struct limits *l, void (*on_free)(void *ctx), void *ctx)
{
    l->on_free = on_free;
    l->ctx = ctx;
}

static void limits_set_bit(uint64_t *bits, uint32_t i) { bits[i / 64] |= UINT64_C(1) << i % 64; }
static bool limits_has_bit(const uint64_t *bits, uint32_t i) { return bits[i / 64] >> i % 64 & 1; }

void limits_follow(struct limits *l, const struct limits *before)
{
    memcpy(l->peers, before->peers, sizeof l->peers);
    for (size_t p = 0; p < LIMITS_PEERS_MAX; p++)
        memset(l->peers[p].good, 0, sizeof l->peers[p].good);
    for (uint32_t i = 0; i < l->o.keys_count; i++)
        for (uint32_t k = 0; k < before->o.keys_count; k++) {
            if (memcmp(l->o.keys[i].sha256, before->o.keys[k].sha256, 32) != 0)
                continue;
            for (size_t p = 0; p < LIMITS_PEERS_MAX; p++)
                if (limits_has_bit(before->peers[p].good, k))
                    limits_set_bit(l->peers[p].good, i);
        }
}

bool limits_digest(uint8_t out[32], str key, struct err *e)
{
    struct digest_sha256 d;
    if (key.len < LIMITS_KEY_LEN_MIN || key.len > LIMITS_KEY_LEN_MAX)
        return err_set(e, ERR_CONFIG, "a key has %d to %d characters, this one %zu",
                       LIMITS_KEY_LEN_MIN, LIMITS_KEY_LEN_MAX, key.len);
    digest_sha256_init(&d);
    digest_sha256_add(&d, key);
    return digest_sha256_end(&d, out, e);
}

/* --- Host and Origin ----------------------------------------------------------------------- */

/* "[::1]:80" and "name:80" without the port. */
static str limits_host_of(str address)
{
    if (str_starts(address, STR("[")))
        return str_sub(address, 0, str_find_byte(address, ']') + 1);
    return str_sub(address, 0, str_find_byte(address, ':'));
}

static bool limits_is_loopback(str host)
{
    return str_eq_nocase(host, STR("localhost")) || str_eq(host, STR("[::1]")) ||
           (str_starts(host, STR("127.")) && host.len <= sizeof "127.255.255.255" - 1 &&
            strspn(host.p, "0123456789.") >= host.len);
}

static bool limits_has(const str *list, uint32_t count, str text)
{
    for (uint32_t i = 0; i < count; i++)
        if (str_eq_nocase(list[i], text))
            return true;
    return false;
}

static bool limits_host_is_good(const struct limits *l, str host)
{
    str name = limits_host_of(host);
    if (limits_is_loopback(name) || limits_has(l->o.hosts, l->o.hosts_count, name) ||
        limits_has(l->o.hosts, l->o.hosts_count, host))
        return true;
    for (uint32_t i = 0; i < l->o.listen_count; i++)
        if (str_eq_nocase(limits_host_of(l->o.listen[i]), name))
            return true;
    return false;
}

/* What a message may show of a header: short, and whole characters. */
static str limits_shown(str text)
{
    text = str_sub(text, 0, 80);
    text.len = str_utf8_valid(text);
    return text;
}

/* A page of any web site may reach a loopback port through its visitor's browser: by its own name
 * that resolves to 127.0.0.1 (Host), or directly (Origin). */
bool limits_check_origin(const struct limits *l, const struct limits_asked *a, struct api_error *e)
{
    if (l->o.checks_host && a->host.p && !limits_host_is_good(l, a->host))
        return api_error_set(e, ERR_AUTH, "forbidden", STR(""),
                             "Host %.*s is not this server's; allowed_hosts names further ones",
                             STR_ARG(limits_shown(a->host)));
    if (a->origin.p && !limits_has(l->o.origins, l->o.origins_count, a->origin))
        return api_error_set(e, ERR_AUTH, "forbidden", STR(""),
                             "Origin %.*s is not in allowed_origins",
                             STR_ARG(limits_shown(a->origin)));
    return true;
}

/* --- keys ---------------------------------------------------------------------------------- */

/* Shoal-Key first: beside it the others are credentials for an upstream. */
static str limits_presented(const struct limits_asked *a)
{
    if (a->shoal_key.p)
        return a->shoal_key;
    str scheme = str_sub(a->authorization, 0, sizeof "Bearer " - 1);
    if (str_eq_nocase(scheme, STR("Bearer ")))
        return str_trim(str_from(a->authorization, scheme.len));
    return a->x_api_key;
}

/* All are looked at, so that time tells nothing about which one was near. */
static const struct limits_key *limits_find(const struct limits *l, str presented)
{
    const struct limits_key *found = NULL;
    uint8_t digest[32];
    struct err ignored;
    if (!limits_digest(digest, presented, &ignored))
        return NULL;
    for (uint32_t i = 0; i < l->o.keys_count; i++)
        if (digest_equal_secret(digest, l->o.keys[i].sha256, sizeof digest))
            found = &l->o.keys[i];
    return found;
}

/* The peer's row; a new one takes the place of the one that was quiet longest. */
static struct limits_peer *limits_peer_of(struct limits *l, str peer)
{
    uint64_t hash = digest_xxh3(peer, 0) | 1;
    struct limits_peer *oldest = &l->peers[0];
    for (size_t i = 0; i < LIMITS_PEERS_MAX; i++) {
        if (l->peers[i].hash == hash)
            return &l->peers[i];
        if (l->peers[i].since_ms < oldest->since_ms)
            oldest = &l->peers[i];
    }
    *oldest = (struct limits_peer){.hash = hash};
    return oldest;
}

static void limits_count_try(struct limits_peer *p, int64_t now_ms)
{
    if (p->tries == 0 || now_ms - p->since_ms > LIMITS_MINUTE_MS) {
        p->since_ms = now_ms;
        p->tries = 0;
    }
    if (++p->tries >= LIMITS_TRIES) {
        p->until_ms = now_ms + LIMITS_MINUTE_MS;
        p->tries = 0;
    }
}

static bool limits_refuse_key(struct limits *l, const struct limits_asked *a, str presented,
                              struct api_error *e)
{
    if (!presented.len)
        return api_error_set(e, ERR_AUTH, "", STR(""),
                             "a key is needed: Authorization: Bearer KEY, or x-api-key");
    limits_count_try(limits_peer_of(l, a->peer), a->now_ms);
    return api_error_set(e, ERR_AUTH, "", STR(""), "this key is not known here");
}

bool limits_check_key(struct limits *l, const struct limits_asked *a,
                      const struct limits_key **key, struct api_error *e)
{
    static const char *const names[] = {"", "infer", "read", "", "admin"};
    *key = NULL;
    if (l->o.keys_count == 0)
        return a->scope != LIMITS_SCOPE_ADMIN || !a->origin.p ||
               api_error_set(e, ERR_AUTH, "forbidden", STR(""),
                             "a web page may not administrate this server");
    if (a->scope == 0)
        return true;
    struct limits_peer *p = limits_peer_of(l, a->peer);
    str presented = limits_presented(a);
    const struct limits_key *found = limits_find(l, presented);
    /* A whole fleet may come from one address: one that tries wrong keys locks out only who has
     * not been here with a good one. A right guess looks like a wrong one meanwhile. */
    bool is_known = found && limits_has_bit(p->good, (uint32_t)(found - l->o.keys));
    if (p->until_ms > a->now_ms && !is_known) {
        api_error_set(e, ERR_OVERLOADED, "rate_limited", STR(""),
                      "%d wrong keys in a minute from this address", LIMITS_TRIES);
        e->retry_after_ms = p->until_ms - a->now_ms;
        return false;
    }
    if (!found)
        return limits_refuse_key(l, a, presented, e);
    limits_set_bit(p->good, (uint32_t)(found - l->o.keys));
    if (!(found->scopes & a->scope))
        return api_error_set(e, ERR_AUTH, "forbidden", STR(""),
                             "key %.*s does not have the scope %s", STR_ARG(found->name),
                             names[a->scope]);
    *key = found;
    return true;
}

static bool limits_fits(const str *globs, uint32_t count, str text)
{
    for (uint32_t i = 0; i < count; i++)
        if (str_glob(globs[i], text))
            return true;
    return count == 0;
}

bool limits_knows(const struct limits *l, str key)
{
    return l->o.keys_count && key.len && limits_find(l, key);
}

bool limits_allows_model(const struct limits_key *key, str model)
{
    return !key || limits_fits(key->models, key->models_count, model);
}

bool limits_allows_agent(const struct limits_key *key, str agent)
{
    return !key || limits_fits(key->agents, key->agents_count, agent);
}

const struct quota_rules *limits_rules_of(const struct limits *l, str agent)
{
    const struct limits_agents *best = NULL;
    for (uint32_t i = 0; i < l->o.agents_count; i++) {
        const struct limits_agents *a = &l->o.agents[i];
        if ((!best || a->glob.len > best->glob.len) && str_glob(a->glob, agent))
            best = a;
    }
    return best ? &best->rules : NULL;
}
