#include "dialect/dialect.h"

#include <string.h>

const struct dialect_limits dialect_limits_default = {
    .messages_max = 16384, .tools_max = 1024, .stop_max = 16, .stop_len_max = 256,
    .logit_bias_max = 1024, .n_max = 8,
};

void dialect_state_deinit(struct dialect_state *st)
{
    for (uint32_t i = 0; st->choices && i < st->choices_count; i++) {
        buf_deinit(&st->choices[i].content);
        buf_deinit(&st->choices[i].reasoning);
        buf_deinit(&st->choices[i].logprobs);
        buf_deinit(&st->choices[i].calls);
        buf_deinit(&st->choices[i].call.args);
    }
    st->choices = NULL;
    arena_deinit(&st->keep);
    dialect_mould_deinit(&st->raw_in);
    dialect_mould_deinit(&st->raw_out);
}

/* ---- Finding a dialect ---- */

const struct dialect *dialect_of(str name)
{
    for (uint32_t i = 0; i < dialect_table_count; i++)
        if (str_eq_z(name, dialect_table[i]->name))
            return dialect_table[i];
    return NULL;
}

/* "/v1/models/{}" takes one segment, which may hold escaped slashes but none as they are. */
static bool path_fits(str pattern, str path, str *segment)
{
    size_t hole = str_find(pattern, STR("{}"));
    if (hole == STR_NONE)
        return str_eq(pattern, path);
    str head = str_sub(pattern, 0, hole), tail = str_from(pattern, hole + 2);
    if (path.len <= head.len + tail.len || !str_starts(path, head) || !str_ends(path, tail))
        return false;
    *segment = str_sub(path, head.len, path.len - head.len - tail.len);
    return str_find_byte(*segment, '/') == STR_NONE;
}

bool dialect_match(str method, str path, const struct dialect **d, const struct dialect_path **p,
                   str *segment)
{
    *segment = (str){"", 0};
    if (str_starts(path, STR("/v1/v1/"))) /* A08: a base address that ends in /v1 */
        path = str_from(path, strlen("/v1"));
    for (uint32_t i = 0; i < dialect_table_count; i++)
        for (uint32_t k = 0; k < dialect_table[i]->paths_count; k++) {
            const struct dialect_path *row = &dialect_table[i]->paths[k];
            if (str_eq_z(method, row->method) && path_fits(str_of(row->path), path, segment)) {
                *d = dialect_table[i];
                *p = row;
                return true;
            }
        }
    return false;
}

/* ---- Errors: BEHAVIOUR 5.5 ---- */

#define SAME "invalid_request_error"
/* By the finer code that an error may carry. */
static const struct dialect_error_row error_codes[] = {
    {400, 400, "bad_schema", SAME, SAME},
    {400, 400, "tools_unsupported", SAME, SAME},
    {400, 400, "no_template", SAME, SAME},
    {400, 400, "template_error", SAME, SAME},
    {400, 400, "wrong_kind", SAME, SAME},
    {403, 403, "forbidden", "permission_error", "permission_error"},
    {404, 404, "not_found", SAME, "not_found_error"},
    {405, 405, "bad_method", SAME, SAME},
    {408, 408, "request_timeout", SAME, SAME},
    {409, 409, "conflict", SAME, SAME},
    {413, 413, "body_too_large", SAME, "request_too_large"},
    {415, 415, "bad_encoding", SAME, SAME},
    {429, 429, "rate_limited", "rate_limit_error", "rate_limit_error"},
    {500, 500, "load_failed", "server_error", "api_error"},
    {502, 502, "upstream_auth", "server_error", "api_error"},
    {507, 507, "insufficient_storage", "server_error", "api_error"},
};

static struct dialect_error_row row_of(enum err_code code)
{
    switch (code) {
    case ERR_REQUEST: case ERR_FORMAT: case ERR_USAGE: case ERR_CONFIG:
        return (struct dialect_error_row){400, 400, "bad_request", SAME, SAME};
    case ERR_CONTEXT:
        return (struct dialect_error_row){400, 400, "context_length_exceeded", SAME, SAME};
    case ERR_AUTH:
        return (struct dialect_error_row){401, 401, "unauthorized", "authentication_error",
                                          "authentication_error"};
    case ERR_NOT_FOUND:
        return (struct dialect_error_row){404, 404, "model_not_found", SAME, "not_found_error"};
    case ERR_LIMIT:
        return (struct dialect_error_row){413, 413, "body_too_large", SAME, "request_too_large"};
    case ERR_UNSUPPORTED:
        return (struct dialect_error_row){501, 501, "not_implemented", "server_error",
                                          "api_error"};
    case ERR_CONNECT: case ERR_UPSTREAM:
        return (struct dialect_error_row){502, 502, "upstream_error", "server_error",
                                          "api_error"};
    case ERR_OVERLOADED:
        return (struct dialect_error_row){503, 529, "overloaded", "server_busy",
                                          "overloaded_error"};
    case ERR_ENGINE: case ERR_DEVICE:
        return (struct dialect_error_row){503, 529, "engine_unavailable", "server_error",
                                          "overloaded_error"};
    case ERR_CANCELLED:
        return (struct dialect_error_row){503, 529, "cancelled", "server_error",
                                          "overloaded_error"};
    case ERR_DEADLINE:
        return (struct dialect_error_row){504, 504, "deadline_exceeded", "server_error",
                                          "timeout_error"};
    case ERR_MEMORY:
        return (struct dialect_error_row){500, 500, "load_failed", "server_error", "api_error"};
    case ERR_NONE: case ERR_IO: case ERR_INTERNAL:
        break;
    }
    return (struct dialect_error_row){500, 500, "internal", "server_error", "api_error"};
}

struct dialect_error_row dialect_error(const struct api_error *e)
{
    for (size_t i = 0; i < countof(error_codes); i++)
        if (str_eq_z(e->code, error_codes[i].code))
            return error_codes[i];
    return row_of(e->err.code);
}

uint16_t dialect_status(const struct dialect_state *st, const struct api_error *e)
{
    struct dialect_error_row row = dialect_error(e);
    bool is_ollama = st->dialect->family == DIALECT_OLLAMA;
    if (e->fault == API_FAULT_REQUEST && e->upstream_status >= 400 && e->upstream_status < 500)
        return e->upstream_status; /* the client's own mistake, as the upstream calls it */
    if (e->err.code == ERR_CONTEXT && st->overlong_status)
        return st->overlong_status;
    if (e->err.code == ERR_CONTEXT && is_ollama)
        return 413;
    return st->dialect->family == DIALECT_ANTHROPIC ? row.anthropic_status : row.status;
}
