#include "serve/path_sessions.h"

#include <string.h>

#include "route/router.h"
#include "serve/legs.h"
#include "serve/models_leg.h"
#include "serve/sessions.h"

#define PATH_SESSIONS_MAX ((size_t)16 << 20) /* bytes of an answer */

static struct sessions_asker path_sessions_asker(const struct http_conn *c)
{
    struct server_asker asker = server_asker(c);
    return (struct sessions_asker){asker.scope, asker.is_admin};
}

/* May hold slashes. */
static str path_sessions_id(const struct http_conn *c)
{
    str path = http_conn_request(c)->path;
    size_t at = str_find(path, STR("/sessions/"));
    return at == STR_NONE ? STR("") : str_from(path, at + strlen("/sessions/"));
}

static void path_sessions_none(struct server *s, struct http_conn *c)
{
    struct api_error e = {0};
    str id = str_sub(path_sessions_id(c), 0, 128);
    id.len = str_utf8_valid(id);
    api_error_set(&e, ERR_NOT_FOUND, "not_found", STR("id"), "no session %.*s", STR_ARG(id));
    server_refuse(s, c, &e);
}

void path_sessions_list(struct server *s, struct http_conn *c)
{
    struct sessions_asker who = path_sessions_asker(c);
    struct buf out;
    buf_init(&out, PATH_SESSIONS_MAX);
    buf_add_z(&out, "{\"object\":\"list\",\"data\":");
    sessions_write(server_sessions(s), &who, loop_ms(), &out);
    buf_add_z(&out, "}");
    server_reply_fresh(s, c, &out);
}

void path_sessions_show(struct server *s, struct http_conn *c)
{
    struct sessions_asker who = path_sessions_asker(c);
    struct buf out;
    buf_init(&out, PATH_SESSIONS_MAX);
    http_conn_add_header(c, "Cache-Control", STR("no-store"));
    if (sessions_write_one(server_sessions(s), &who, path_sessions_id(c), loop_ms(), &out))
        server_reply(c, 200, buf_view(&out));
    else
        path_sessions_none(s, c);
    buf_deinit(&out);
}

/* The next request of that name goes where a new one would; its pages go wherever they are. */
void path_sessions_delete(struct server *s, struct http_conn *c)
{
    struct sessions_asker who = path_sessions_asker(c);
    str id = path_sessions_id(c);
    struct sessions_turn last;
    if (!sessions_last(server_sessions(s), &who, id, loop_ms(), &last)) {
        path_sessions_none(s, c);
        return;
    }
    struct api_request rq = {.agent = last.agent};
    const struct api_drop what = {.session = last.id, .scope = last.scope, .has_scope = true,
                                  .from = API_DROP_ALL};
    models_leg_drop(server_options_of(s)->models, STR(""), &what, NULL, 0);
    sticky_put(legs_sticky(server_options_of(s)->legs), router_key(id, &rq), STR(""), loop_ms(),
               loop_ms());
    must(sessions_delete(server_sessions(s), &who, id, loop_ms()));
    http_conn_reply(c, 204, NULL, (str){NULL, 0});
}
