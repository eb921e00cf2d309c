#include "serve/remote_headers.h"

#include <stdio.h>
#include <string.h>

#define REMOTE_HEADERS_LINE_MAX 8192u
#define REMOTE_HEADERS_VIA_MAX 200u /* of a few names; Shoal-Hop ends longer ways */

void remote_headers_init(struct remote_headers *h)
{
    h->count = 0;
    memset(h->rows, 0, sizeof h->rows);
    arena_init(&h->a, REMOTE_HEADERS_MAX * REMOTE_HEADERS_LINE_MAX);
}

void remote_headers_deinit(struct remote_headers *h) { arena_deinit(&h->a); }

void remote_headers_add(struct remote_headers *h, const char *name, str value)
{
    str line = arena_printf(&h->a, "%s%.*s", name, STR_ARG(value));
    if (line.p && h->count < REMOTE_HEADERS_MAX)
        h->rows[h->count++] = line.p;
}

static str remote_headers_find(const struct api_request *rq, const char *name)
{
    for (uint32_t i = 0; i < rq->headers_count; i++)
        if (str_eq_z(rq->headers[i].name, name))
            return rq->headers[i].value;
    return (str){NULL, 0};
}

/* The client's credentials in the form in which they came; a leg's own in its protocol's. */
void remote_headers_add_key(struct remote_headers *h, const struct remote_leg_options *o,
                                   const struct api_request *rq)
{
    const char *form = o->dialect->client->key_header;
    if (o->auth == REMOTE_LEG_AUTH_KEY)
        remote_headers_add(h, form, o->key);
    if (o->auth != REMOTE_LEG_AUTH_PASSTHROUGH || !rq || !rq->client_key)
        return;
    bool is_bearer = str_ends(remote_headers_find(rq, "authorization"), rq->client_key->text);
    remote_headers_add(h, is_bearer ? "authorization: Bearer " : form, rq->client_key->text);
}

static void remote_headers_add_kept(struct remote_headers *h, const struct remote_leg_options *o,
                                    const struct api_request *rq)
{
    const struct dialect_client *d = o->dialect->client;
    bool is_same = str_eq_z(rq->dialect, o->dialect->name);
    char name[64];
    for (size_t i = 0; is_same && d->kept[i]; i++) {
        str value = remote_headers_find(rq, d->kept[i]);
        snprintf(name, sizeof name, "%s: ", d->kept[i]);
        if (value.len)
            remote_headers_add(h, name, value);
    }
    for (size_t i = 0; d->headers[i]; i++) { /* ours, unless the client said the same field */
        const char *colon = strchr(d->headers[i], ':');
        size_t len = (size_t)(colon - d->headers[i]);
        bool is_said = false;
        for (uint32_t k = 0; k < h->count; k++)
            is_said = is_said || strncmp(h->rows[k], d->headers[i], len + 1) == 0;
        if (!is_said)
            remote_headers_add(h, d->headers[i], STR(""));
    }
}

uint64_t remote_headers_hops(const struct api_request *rq)
{
    uint64_t hops = 0;
    str value = remote_headers_find(rq, "shoal-hop");
    return value.len && str_to_u64(value, &hops) ? hops : 0;
}

bool remote_headers_is_back(str via, const struct api_request *rq)
{
    return str_find(remote_headers_find(rq, "shoal-via"), via) != STR_NONE;
}

/* Names of the servers that the request passed, oldest first, and ours. */
static void remote_headers_add_via(struct remote_headers *h, const struct remote_leg_options *o,
                                   const struct api_request *rq)
{
    str before = remote_headers_find(rq, "shoal-via");
    if (o->via.len == 0)
        return;
    before = before.len <= REMOTE_HEADERS_VIA_MAX ? before : STR("");
    str all = arena_printf(&h->a, "%.*s%s%.*s", STR_ARG(before), before.len ? ", " : "",
                           STR_ARG(o->via));
    remote_headers_add(h, "shoal-via: ", all);
}

void remote_headers_fill(struct remote_headers *h, const struct remote_leg_options *o,
                         const struct api_request *rq)
{
    char hops[24];
    snprintf(hops, sizeof hops, "%llu", (unsigned long long)remote_headers_hops(rq) + 1);
    remote_headers_add(h, "content-type: application/json", STR(""));
    remote_headers_add(h, "shoal-hop: ", str_of(hops));
    remote_headers_add_via(h, o, rq);
    remote_headers_add_key(h, o, rq);
    remote_headers_add_kept(h, o, rq);
    if (o->upstream.how == DIALECT_CONTINUE_SHOAL && rq->agent.len)
        remote_headers_add(h, "shoal-agent: ", rq->agent);
    if (o->upstream.how == DIALECT_CONTINUE_SHOAL && rq->session.len)
        remote_headers_add(h, "shoal-session: ", rq->session);
}
