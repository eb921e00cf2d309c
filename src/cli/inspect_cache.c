#include <string.h>

#include "base/json.h"
#include "cli/daemon.h"
#include "cli/inspect.h"

#define INSPECT_CACHE_MS 5000
#define INSPECT_CACHE_DEPTH 32
#define INSPECT_CACHE_MAX ((size_t)256 << 20)

static void put_member(struct buf *out, struct json row, const char *key, struct arena *a)
{
    struct json v = json_member(row, key);
    if (json_kind(v) == JSON_KIND_STRING)
        buf_add_printable(out, json_text(v, a));
    else
        buf_add(out, json_kind(v) == JSON_KIND_ABSENT ? STR("-") : json_raw(v));
}

/* "key value  key value ...", the members named. */
static void put_members(struct buf *out, struct json row, const char *keys, struct arena *a)
{
    str rest = str_of(keys), key;
    char name[40];
    for (bool is_first = true; str_split(&rest, ' ', &key); is_first = false) {
        must(key.len < sizeof name);
        memcpy(name, key.p, key.len);
        name[key.len] = 0;
        buf_printf(out, "%s%s ", is_first ? "" : "  ", name);
        put_member(out, row, name, a);
    }
    buf_add_byte(out, '\n');
}

static void put_figures(struct buf *out, struct json body, struct arena *a)
{
    struct json_walk models = json_walk(json_member(body, "models"));
    while (json_next(&models)) {
        put_member(out, models.value, "model", a);
        buf_add_z(out, "\n  pages   ");
        put_members(out, json_member(models.value, "pages"), "total free used cached pinned", a);
        buf_add_z(out, "  trie    ");
        put_members(out, models.value, "page_tokens nodes hits misses evictions", a);
        buf_add_z(out, "  tokens  ");
        put_members(out, models.value,
                    "tokens_cached tokens_computed recomputed_tokens preemptions", a);
    }
    buf_add_z(out, "replay    ");
    put_members(out, json_member(body, "replay"), "entries bytes hits", a);
}

static void put_diff(struct buf *out, struct json diff, struct arena *a)
{
    if (json_kind(diff) != JSON_KIND_OBJECT)
        return;
    buf_add_z(out, "  first difference: ");
    put_members(out, diff, "role message part byte token", a);
    buf_add_z(out, "    was  ");
    put_member(out, diff, "was", a);
    buf_add_z(out, "\n    now  ");
    put_member(out, diff, "now", a);
    buf_add_byte(out, '\n');
}

static void put_misses(struct buf *out, struct json body, struct arena *a)
{
    struct json_walk rows = json_walk(body);
    bool is_any = false;
    while (json_next(&rows)) {
        is_any = true;
        put_members(out, rows.value, "request_id reason hint", a);
        buf_add_z(out, "  ");
        put_members(out, rows.value, "model agent session previous_id", a);
        buf_add_z(out, "  ");
        put_members(out, rows.value, "prompt_tokens cached_tokens expected_tokens", a);
        put_diff(out, json_member(rows.value, "first_diff"), a);
    }
    if (!is_any)
        buf_add_z(out, "no prompt was read again that need not have been\n");
}

static bool ask(struct inspect *in, const struct daemon *d, const char *path,
                struct daemon_answer *answer, struct err *e)
{
    struct daemon_question q = {.method = "GET", .path = path, .timeout_ms = INSPECT_CACHE_MS};
    if (!daemon_ask_server(d, &q, answer, e))
        return false;
    if (answer->status != 200)
        return daemon_refused(answer, e);
    if (in->as_json) {
        buf_add(&in->out, buf_view(&answer->body));
        buf_add_byte(&in->out, '\n');
    }
    return true;
}

bool inspect_cache(struct inspect *in, struct err *e)
{
    const struct json_options o = {.depth_max = INSPECT_CACHE_DEPTH};
    bool misses = cmd_bool(in->c, "misses");
    struct daemon_answer answer = {0};
    struct daemon d;
    struct arena a;
    struct json body;
    if (!daemon_find(in->c, &d, e))
        return false;
    arena_init(&a, INSPECT_CACHE_MAX);
    bool ok = ask(in, &d, misses ? "/v1/cache/misses" : "/v1/cache", &answer, e);
    if (ok && !in->as_json) {
        ok = json_parse(&body, buf_view(&answer.body), &o, &a, e) ||
             err_wrap(e, "inspect cache: the server's answer");
        if (ok && misses)
            put_misses(&in->out, body, &a);
        else if (ok)
            put_figures(&in->out, body, &a);
    }
    buf_deinit(&answer.body);
    arena_deinit(&a);
    return ok;
}
