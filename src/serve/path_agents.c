#include "serve/path_agents.h"

#include <string.h>

#include "serve/agents.h"
#include "serve/exchange_list.h"
#include "serve/legs.h"

#define PATH_AGENTS_MAX ((size_t)16 << 20) /* bytes of an answer */

/* What stands behind `before` in the path; may hold slashes. */
static str path_agents_id(const struct http_conn *c, const char *before)
{
    str path = http_conn_request(c)->path;
    size_t at = str_find(path, str_of(before));
    return at == STR_NONE ? STR("") : str_from(path, at + strlen(before));
}

static void path_agents_none(struct server *s, struct http_conn *c, const char *what, str id)
{
    struct api_error e = {0};
    id = str_sub(id, 0, 128);
    id.len = str_utf8_valid(id);
    api_error_set(&e, ERR_NOT_FOUND, "not_found", STR("id"), "no %s %.*s", what, STR_ARG(id));
    server_refuse(s, c, &e);
}

/* Whose requests this asker sees. */
static struct exchange_which path_agents_which(const struct http_conn *c)
{
    struct server_asker asker = server_asker(c);
    return (struct exchange_which){.owner = asker.is_admin ? (str){NULL, 0} : asker.key};
}

/* --- requests ------------------------------------------------------------------------------ */

struct path_agents_rows {
    const struct legs *legs;
    struct json_writer w;
    uint32_t count;
};

static const char *path_agents_priority(enum api_priority p)
{
    switch (p) {
    case API_PRIORITY_IDLE:
        return "idle";
    case API_PRIORITY_LOW:
        return "low";
    case API_PRIORITY_NORMAL:
        return "normal";
    case API_PRIORITY_HIGH: case API_PRIORITY_COUNT_:
        break;
    }
    return "high";
}

static void path_agents_on_row(void *ctx, const struct exchange_row *r)
{
    struct path_agents_rows *rows = ctx;
    struct json_writer *w = &rows->w;
    const struct legs_leg *at = legs_leg_of(rows->legs, r->number);
    bool is_upstream = at && at->leg.kind != LEG_KIND_ENGINE;
    rows->count++;
    json_open_object(w);
    json_put_key_text(w, "id", r->id);
    json_put_key_text(w, "agent", r->agent);
    json_put_key_text(w, "session", r->session);
    json_put_key_text(w, "model", r->model);
    json_put_key_text(w, "leg", at ? str_of(at->name) : r->leg);
    json_put_key_text(w, "dialect", str_of(r->dialect));
    json_put_key_text(w, "state", str_of(is_upstream ? "upstream" : r->state));
    json_put_key_u64(w, "position", r->place);
    json_put_key_u64(w, "prompt_tokens", r->prompt_tokens);
    json_put_key_u64(w, "cached_tokens", r->cached_tokens);
    json_put_key_u64(w, "output_tokens", r->output_tokens);
    json_put_key_u64(w, "age_ms", (uint64_t)(r->age_ms > 0 ? r->age_ms : 0));
    json_put_key_text(w, "priority", str_of(path_agents_priority(r->priority)));
    json_close_object(w);
}

/* Appends what was found; how many there are. */
static uint32_t path_agents_put(struct server *s, const struct exchange_which *which,
                                struct buf *out)
{
    struct path_agents_rows rows = {.legs = server_options_of(s)->legs, .w = json_writer(out)};
    exchange_list_each(server_exchanges(s), which, path_agents_on_row, &rows);
    return rows.count;
}

void path_agents_requests(struct server *s, struct http_conn *c)
{
    struct exchange_which which = path_agents_which(c);
    struct path_agents_rows rows = {.legs = server_options_of(s)->legs};
    struct buf out;
    buf_init(&out, PATH_AGENTS_MAX);
    rows.w = json_writer(&out);
    json_open_array(&rows.w);
    exchange_list_each(server_exchanges(s), &which, path_agents_on_row, &rows);
    json_close_array(&rows.w);
    server_reply_fresh(s, c, &out);
}

void path_agents_request(struct server *s, struct http_conn *c)
{
    struct exchange_which which = path_agents_which(c);
    struct buf out;
    which.id = path_agents_id(c, "/requests/");
    buf_init(&out, PATH_AGENTS_MAX);
    if (path_agents_put(s, &which, &out)) {
        server_reply_fresh(s, c, &out);
        return;
    }
    buf_deinit(&out);
    path_agents_none(s, c, "request", which.id);
}

void path_agents_cancel(struct server *s, struct http_conn *c)
{
    struct exchange_which which = path_agents_which(c);
    which.id = path_agents_id(c, "/requests/");
    if (exchange_list_cancel(server_exchanges(s), &which))
        http_conn_reply(c, 204, NULL, (str){NULL, 0});
    else
        path_agents_none(s, c, "request", which.id);
}

/* --- agents -------------------------------------------------------------------------------- */

static void path_agents_on_count(void *ctx, const struct exchange_row *r)
{
    if (r->agent.p)
        agents_count(ctx, &(struct agents_who){r->owner, r->agent}, r->is_queued);
}

static void path_agents_limit(struct json_writer *w, const char *key, uint64_t n)
{
    json_key_z(w, key);
    if (n)
        json_put_u64(w, n);
    else
        json_put_null(w);
}

/* What the configuration says of it, and what its windows hold. */
static void path_agents_on_limits(void *ctx, struct json_writer *w, str agent)
{
    struct server *s = ctx;
    static const struct quota_rules none;
    const struct quota_rules *r = limits_rules_of(server_limits(s), agent);
    struct quota_used used = exchange_list_used(server_exchanges(s), agent);
    r = r ? r : &none;
    json_open_object(w);
    path_agents_limit(w, "max_running", r->max_running);
    path_agents_limit(w, "max_queued", r->max_queued);
    path_agents_limit(w, "tokens_per_hour", r->tokens_per_hour);
    path_agents_limit(w, "tokens_per_day", r->tokens_per_day);
    json_put_key_u64(w, "tokens_this_hour", used.hour);
    json_put_key_u64(w, "tokens_this_day", used.day);
    path_agents_limit(w, "max_context", r->max_context);
    path_agents_limit(w, "max_output", r->max_output);
    path_agents_limit(w, "weight", r->weight);
    bool has_priority = r->given & API_GIVEN(PRIORITY), has_effort = r->given & API_GIVEN(EFFORT);
    json_put_key_text(w, "priority",
                      has_priority ? str_of(path_agents_priority(r->priority)) : STR(""));
    json_put_key_text(w, "max_priority", r->has_max_priority
                                             ? str_of(path_agents_priority(r->max_priority))
                                             : STR(""));
    json_put_key_text(w, "effort",
                      has_effort ? str_of(api_request_effort_name(r->effort)) : STR(""));
    json_close_object(w);
}

void path_agents_list(struct server *s, struct http_conn *c)
{
    struct exchange_which which = path_agents_which(c);
    struct agents *all = server_agents(s);
    struct buf out;
    const struct agents_write how = {.owner = which.owner, .now_ms = loop_ms(),
                                     .on_limits = path_agents_on_limits, .ctx = s};
    buf_init(&out, PATH_AGENTS_MAX);
    agents_forget_counts(all);
    exchange_list_each(server_exchanges(s), &which, path_agents_on_count, all);
    agents_write(all, &how, &out);
    server_reply_fresh(s, c, &out);
}

/* /v1/agents/{id}/requests: an agent without any has none to end, which is no mistake. */
void path_agents_cancel_all(struct server *s, struct http_conn *c)
{
    struct exchange_which which = path_agents_which(c);
    str rest = path_agents_id(c, "/agents/"), end = STR("/requests");
    struct buf out;
    if (!str_ends(rest, end) || rest.len == end.len) {
        path_agents_none(s, c, "path behind /v1/agents:", rest);
        return;
    }
    which.agent = str_sub(rest, 0, rest.len - end.len);
    buf_init(&out, 64);
    buf_printf(&out, "{\"cancelled\":%u}", exchange_list_cancel(server_exchanges(s), &which));
    server_reply_fresh(s, c, &out);
}
