#include "serve/public.h"

#include "base/chrono.h"
#include "base/file.h"
#include "dialect/dialect_contexts.h"

#define PUBLIC_ID ((uint64_t)1 << 62) /* beside the ids of exchange and attempt */

static bool public_parse(struct api_request *rq, str body, const struct dialect_limits *limits,
                         struct arena *a, struct err *e)
{
    const struct dialect *d;
    const struct dialect_path *path;
    struct api_error why = {0};
    str segment;
    must(dialect_match(STR("POST"), STR("/v1/chat/completions"), &d, &path, &segment));
    struct dialect_state *st = arena_alloc(a, d->state_size);
    if (!st)
        return err_set(e, ERR_MEMORY, "no memory");
    const struct dialect_in in = {.path = path, .segment = segment, .body = body,
                                  .request_id = STR("public"), .has_model = true,
                                  .time_s = chrono_unix_ms(&chrono_real) / 1000,
                                  .limits = limits};
    st->dialect = d;
    bool ok = d->read_request(rq, st, &in, a, &why);
    dialect_state_deinit(st);
    return ok || err_set(e, ERR_CONFIG, "%s", why.err.text);
}

static bool public_read_one(struct api_request *rq, str path, const struct dialect_limits *limits,
                            struct arena *a, struct err *e)
{
    str body;
    if (!file_read(&body, path.p, PUBLIC_SIZE_MAX, a, e) ||
        !public_parse(rq, body, limits, a, e))
        return err_wrap(e, "cache.public %.*s", STR_ARG(path));
    if (rq->messages_count == 0)
        return err_set(e, ERR_CONFIG, "cache.public %.*s: no messages", STR_ARG(path));
    rq->kind = API_KIND_PREFILL;
    rq->cache = API_CACHE_PIN;
    rq->scope = rq->owner = rq->session = rq->context = rq->body = STR("");
    rq->agent = STR("public");
    rq->n = 1;
    rq->stream = false;
    return true;
}

bool public_read(struct public_prefixes *out, const str *files, uint32_t count,
                 const struct dialect_limits *limits, struct arena *a, struct err *e)
{
    if (count > PUBLIC_MAX)
        return err_set(e, ERR_CONFIG, "cache.public: %u files, at most %u", count, PUBLIC_MAX);
    struct api_request *rows = ARENA_ARRAY(a, struct api_request, count);
    str *ids = ARENA_ARRAY(a, str, count);
    *out = (struct public_prefixes){.rows = rows, .ids = ids};
    if (!rows || !ids)
        return err_set(e, ERR_MEMORY, "cache.public: no memory for %u files", count);
    for (uint32_t i = 0; i < count; i++) {
        struct api_request *row = &rows[out->count];
        if (str_starts(files[i], STR("ctx_"))) {
            if (!dialect_contexts_is_id(files[i]))
                return err_set(e, ERR_CONFIG, "cache.public %.*s: the id of a context has 1 to %u "
                               "of A-Z a-z 0-9 . _ -", STR_ARG(files[i]), DIALECT_CONTEXTS_ID_MAX);
            ids[out->ids_count++] = files[i];
            continue;
        }
        if (!public_read_one(row, files[i], limits, a, e))
            return false;
        row->id = PUBLIC_ID + out->count++;
    }
    return true;
}
