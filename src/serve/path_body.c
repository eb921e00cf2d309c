#include "serve/path_body.h"

bool path_body_wrong(struct api_error *e, const char *field, const char *what)
{
    return api_error_set(e, ERR_REQUEST, "", str_of(field), "%s: %s expected", field, what);
}

bool path_body_open(struct http_conn *c, struct json *out, struct api_error *e)
{
    const struct json_options o = {.depth_max = PATH_BODY_DEPTH};
    if (!json_parse(out, http_conn_request(c)->body, &o, http_conn_arena(c), &e->err)) {
        e->err.code = ERR_REQUEST;
        return false;
    }
    return json_kind(*out) == JSON_KIND_OBJECT || path_body_wrong(e, "body", "an object");
}

bool path_body_text(struct json v, const char *field, str *out, struct arena *a,
                    struct api_error *e)
{
    if (json_kind(v) != JSON_KIND_STRING)
        return path_body_wrong(e, field, "a string");
    *out = json_text(v, a);
    return true;
}
