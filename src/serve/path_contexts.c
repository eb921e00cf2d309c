#include "serve/path_contexts.h"

#include "base/file.h"
#include "serve/contexts.h"

#define PATH_CONTEXTS_MAX ((size_t)16 << 20) /* bytes of an answer */

static struct contexts_asker path_contexts_asker(const struct http_conn *c)
{
    struct server_asker asker = server_asker(c);
    return (struct contexts_asker){asker.scope, asker.is_admin};
}

static str path_contexts_id(const struct http_conn *c)
{
    return file_base_name(http_conn_request(c)->path);
}

static void path_contexts_none(struct server *s, struct http_conn *c)
{
    struct api_error e = {0};
    contexts_none(path_contexts_id(c), &e);
    server_refuse(s, c, &e);
}

void path_contexts_list(struct server *s, struct http_conn *c)
{
    struct contexts_asker who = path_contexts_asker(c);
    struct buf out;
    buf_init(&out, PATH_CONTEXTS_MAX);
    contexts_write(server_contexts(s), &who, loop_ms(), &out);
    server_reply_fresh(s, c, &out);
}

void path_contexts_show(struct server *s, struct http_conn *c)
{
    struct contexts_asker who = path_contexts_asker(c);
    struct buf out;
    buf_init(&out, PATH_CONTEXTS_MAX);
    http_conn_add_header(c, "Cache-Control", STR("no-store"));
    if (contexts_write_one(server_contexts(s), &who, path_contexts_id(c), loop_ms(), &out))
        server_reply(c, 200, buf_view(&out));
    else
        path_contexts_none(s, c);
    buf_deinit(&out);
}

void path_contexts_delete(struct server *s, struct http_conn *c)
{
    struct contexts_asker who = path_contexts_asker(c);
    if (contexts_delete(server_contexts(s), &who, path_contexts_id(c), loop_ms()))
        http_conn_reply(c, 204, NULL, (str){NULL, 0});
    else
        path_contexts_none(s, c);
}
