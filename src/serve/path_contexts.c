#include "serve/path_contexts.h"

#include "base/file.h"
#include "serve/contexts_look.h"

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

/* --- told once the children have said where the pages are ---------------------------------- */

/* In its connection's arena. */
struct path_contexts_ask {
    struct server *server;
    struct http_conn *conn;
    struct contexts_look *look;
    struct contexts_asker who;
    str id; /* "": the list */
};

static void path_contexts_tell(struct path_contexts_ask *x)
{
    struct contexts *all = server_contexts(x->server);
    struct buf out;
    bool is_there = true;
    server_on_leave(x->conn, NULL, NULL);
    buf_init(&out, PATH_CONTEXTS_MAX);
    if (x->id.len)
        is_there = contexts_write_one(all, &x->who, x->id, loop_ms(), &out);
    else
        contexts_write(all, &x->who, loop_ms(), &out);
    if (is_there) {
        server_reply_fresh(x->server, x->conn, &out);
        return;
    }
    buf_deinit(&out);
    path_contexts_none(x->server, x->conn);
}

static void path_contexts_on_done(void *ctx) { path_contexts_tell(ctx); }

static void path_contexts_on_leave(void *ctx)
{
    struct path_contexts_ask *x = ctx;
    contexts_look_end(x->look);
}

static void path_contexts_ask(struct server *s, struct http_conn *c, str id)
{
    struct arena *a = http_conn_arena(c);
    struct path_contexts_ask *x = ARENA_NEW(a, struct path_contexts_ask);
    struct contexts_asker who = path_contexts_asker(c);
    struct api_error e = {0};
    if (!x) {
        err_set(&e.err, ERR_MEMORY, "serve: no memory for the request");
        server_refuse(s, c, &e);
        return;
    }
    *x = (struct path_contexts_ask){.server = s, .conn = c, .id = arena_copy(a, id)};
    x->who = (struct contexts_asker){arena_copy(a, who.scope), who.is_admin};
    x->look = contexts_look_begin(server_contexts(s),
                                  &(struct contexts_looker){.who = x->who, .id = x->id, .a = a,
                                                            .on_done = path_contexts_on_done,
                                                            .ctx = x});
    if (x->look)
        server_on_leave(c, path_contexts_on_leave, x);
    else
        path_contexts_tell(x);
}

void path_contexts_list(struct server *s, struct http_conn *c)
{
    path_contexts_ask(s, c, STR(""));
}

void path_contexts_show(struct server *s, struct http_conn *c)
{
    path_contexts_ask(s, c, path_contexts_id(c));
}

void path_contexts_delete(struct server *s, struct http_conn *c)
{
    struct contexts_asker who = path_contexts_asker(c);
    if (contexts_delete(server_contexts(s), &who, path_contexts_id(c), loop_ms()))
        http_conn_reply(c, 204, NULL, (str){NULL, 0});
    else
        path_contexts_none(s, c);
}
