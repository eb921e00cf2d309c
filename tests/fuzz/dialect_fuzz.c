/* Any bytes as a request body of every protocol: reading ends in a request that passes its own
 * check, or in one sentence with a path; memory stays within four times the body and 1 MiB. */
#include <stdint.h>
#include <stdlib.h>

#include "dialect/dialect_client.h"

static void no_batch(void *ctx, const struct api_batch *b) { (void)ctx, (void)b; }

/* What was read can be asked of an upstream of any protocol: valid JSON, or one sentence. */
static void ask_of(const struct dialect *d, const struct api_request *rq, size_t body_size)
{
    static const struct dialect_upstream legs[] = {
        {.name = STR_INIT("a")},
        {.name = STR_INIT("b"), .caps = API_CAP_ALL_, .how = DIALECT_CONTINUE_SHOAL}};
    const struct json_options options = {.depth_max = JSON_DEPTH_MAX};
    for (size_t i = 0; i < countof(legs); i++) {
        struct dialect_client_state *st = calloc(1, d->client->state_size);
        struct api_error e = {0};
        struct arena a;
        struct json v;
        struct buf out;
        if (st == NULL)
            abort();
        arena_init(&a, 32 * body_size + ((size_t)1 << 24));
        buf_init(&out, DIALECT_CLIENT_BODY_MAX);
        dialect_client_init(st, d, &legs[i], rq, (struct api_sink){no_batch, NULL});
        if (d->client->write_request(&out, st, &e) ? !json_parse(&v, buf_view(&out), &options, &a,
                                                                 &e.err)
                                                   : e.err.code == ERR_NONE)
            abort();
        dialect_client_deinit(st);
        buf_deinit(&out);
        arena_deinit(&a);
        free(st);
    }
}

static void read_as(const struct dialect *d, const struct dialect_path *path, str body)
{
    static const struct api_header headers[] = {{STR_INIT("shoal-agent"), STR_INIT("a")}};
    struct dialect_state *st = calloc(1, d->state_size);
    struct api_request rq;
    struct api_error e = {0}, other = {0};
    struct arena a;
    if (st == NULL)
        abort();
    const struct dialect_in in = {.path = path, .body = body, .headers = headers,
                                  .headers_count = countof(headers), .request_id = STR("req_x"),
                                  .time_s = 1, .limits = &dialect_limits_default};
    st->dialect = d;
    arena_init(&a, 4 * body.len + ((size_t)1 << 20));
    if (d->read_request(&rq, st, &in, &a, &e)) {
        if (!api_request_check(&rq, &other))
            abort();
        for (uint32_t i = 0; rq.kind == API_KIND_CHAT && i < dialect_table_count; i++)
            if (dialect_table[i]->client)
                ask_of(dialect_table[i], &rq, body.len);
    } else if (e.err.code == ERR_NONE || e.param.len == 0) {
        abort();
    } else {
        struct buf out;
        buf_init(&out, 1 << 20);
        d->write_error(&out, st, &e);
        if (out.len == 0 || str_utf8_valid(buf_view(&out)) != out.len)
            abort();
        buf_deinit(&out);
    }
    dialect_state_deinit(st);
    arena_deinit(&a);
    free(st);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (uint32_t i = 0; i < dialect_table_count; i++)
        for (uint32_t k = 0; k < dialect_table[i]->paths_count; k++)
            read_as(dialect_table[i], &dialect_table[i]->paths[k], str_view(data, size));
    return 0;
}
