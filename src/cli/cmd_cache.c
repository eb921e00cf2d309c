/* shoal cache: what the tiers hold, and `cache clean`. */
#include <stdio.h>
#include <string.h>

#include "base/chrono.h"
#include "base/json.h"
#include "cli/cmd.h"
#include "cli/daemon.h"
#include "cli/spill.h"
#include "kv/tier_parts.h"
#include "serve/contexts_disk.h"

#define CMD_CACHE_ASK_MS 5000
#define CMD_CACHE_OUT_MAX ((size_t)16 << 20)

struct cmd_cache {
    struct buf *out;
    struct json_writer json; /* into out */
    bool is_json;
    uint32_t parts;
    uint64_t bytes;
};

static str cmd_cache_model(const struct tier_part *p)
{
    return p->has_header ? str_of(p->header.model) : STR("");
}

static void cmd_cache_put_json(struct json_writer *w, const struct tier_part *p)
{
    json_open_object(w);
    json_key_z(w, "model");
    json_put_text(w, cmd_cache_model(p));
    json_key_z(w, "build");
    json_put_text(w, p->has_header ? str_of(p->header.build) : STR(""));
    json_key_z(w, "owner");
    json_put_text_z(w, p->name);
    json_key_z(w, "bytes");
    json_put_u64(w, p->bytes);
    json_key_z(w, "files");
    json_put_u64(w, p->files);
    json_key_z(w, "used_at");
    json_put_i64(w, p->used_s);
    json_key_z(w, "in_use");
    json_put_bool(w, p->is_locked);
    json_close_object(w);
}

static void cmd_cache_put_line(struct cmd_cache *x, const struct tier_part *p)
{
    if (!x->parts)
        buf_add_z(x->out, "MODEL                             SIZE  FILES  LAST USE  STATE\n");
    struct buf size;
    buf_init(&size, 64);
    buf_add_size(&size, p->bytes);
    int64_t age_s = chrono_unix_ms(&chrono_real) / 1000 - p->used_s;
    size_t before = x->out->len;
    buf_add_printable(x->out, p->has_header ? cmd_cache_model(p) : str_of(p->name));
    while (x->out->len - before < 28)
        buf_add_byte(x->out, ' ');
    buf_printf(x->out, " %9.*s %6u %7lldh  %s\n", STR_ARG(buf_view(&size)), p->files,
               (long long)(age_s / 3600), p->is_locked ? "in use" : "");
    buf_deinit(&size);
}

static void cmd_cache_on_part(void *ctx, const struct tier_part *p)
{
    struct cmd_cache *x = ctx;
    if (!p->files && !p->is_locked)
        return;
    if (x->is_json)
        cmd_cache_put_json(&x->json, p);
    else
        cmd_cache_put_line(x, p);
    x->parts++;
    x->bytes += p->bytes;
}

static bool cmd_cache_put_dir(struct cmd_cache *x, str dir, struct err *e)
{
    if (x->is_json) {
        json_key_z(&x->json, "dir");
        json_put_text(&x->json, dir);
        json_key_z(&x->json, "parts");
        json_open_array(&x->json);
    } else {
        buf_add_z(x->out, "directory ");
        buf_add_printable(x->out, dir);
        buf_add_byte(x->out, '\n');
    }
    if (!tier_parts_list(dir.p, cmd_cache_on_part, x, e))
        return false;
    if (x->is_json) {
        json_close_array(&x->json);
        json_key_z(&x->json, "bytes");
        json_put_u64(&x->json, x->bytes);
    } else if (!x->parts) {
        buf_add_z(x->out, "nothing is stored\n");
    }
    return true;
}

/* The server's own answer beside it; without a server the directory is all there is. */
static bool cmd_cache_put_server(struct cmd_context *c, struct cmd_cache *x, struct err *e)
{
    struct daemon d;
    struct daemon_question q = {.method = "GET", .path = "/v1/cache",
                                .timeout_ms = CMD_CACHE_ASK_MS};
    struct daemon_answer answer;
    if (!daemon_find(c, &d, e))
        return false;
    bool is_there = daemon_ask(&d, &q, &answer, e);
    if (!is_there && e->code != ERR_CONNECT)
        return false;
    if (x->is_json)
        json_key_z(&x->json, "server");
    if (!is_there) {
        if (x->is_json)
            json_put_null(&x->json);
        return true;
    }
    bool ok = answer.status == 200 || daemon_refused(&answer, e);
    if (ok && x->is_json)
        json_put_raw(&x->json, buf_view(&answer.body));
    else if (ok)
        buf_printf(x->out, "server %.*s\n", STR_ARG(buf_view(&answer.body)));
    buf_deinit(&answer.body);
    return ok;
}

static bool cmd_cache_dir(const struct cmd_context *c, str *dir, struct err *e)
{
    *dir = spill_dir(c->config, c->arena);
    return dir->len || err_set(e, ERR_CONFIG, "cache: no home directory, so `cache.spill` must say "
                               "where it is");
}

static bool cmd_cache_show(struct cmd_context *c, struct err *e)
{
    struct buf out;
    struct cmd_cache x = {.out = &out, .json = json_writer(&out), .is_json = cmd_bool(c, "json")};
    buf_init(&out, CMD_CACHE_OUT_MAX);
    if (x.is_json)
        json_open_object(&x.json);
    str dir;
    bool ok = cmd_cache_dir(c, &dir, e) && cmd_cache_put_dir(&x, dir, e) &&
              cmd_cache_put_server(c, &x, e);
    if (ok && x.is_json) {
        json_close_object(&x.json);
        buf_add_byte(&out, '\n');
    }
    if (ok && out.full)
        ok = err_set(e, ERR_LIMIT, "cache: more than %zu bytes to show", CMD_CACHE_OUT_MAX);
    if (ok)
        fwrite(out.p, 1, out.len, stdout);
    fflush(stdout);
    buf_deinit(&out);
    return ok;
}

struct cmd_cache_parts { /* of one model */
    str model;
    char (*names)[TIER_PARTS_NAME_SIZE]; /* [TIER_PARTS_MAX], as many as a list tells */
    uint32_t count;
};

static void cmd_cache_on_model(void *ctx, const struct tier_part *p)
{
    struct cmd_cache_parts *x = ctx;
    if (str_eq(cmd_cache_model(p), x->model))
        memcpy(x->names[x->count++], p->name, sizeof p->name);
}

static bool cmd_cache_clean_model(struct cmd_context *c, str dir, uint64_t *sum, struct err *e)
{
    struct cmd_cache_parts x = {.model = cmd_text(c, "model")};
    x.names = arena_alloc_array(c->arena, TIER_PARTS_MAX, sizeof *x.names);
    if (!x.names)
        return err_set(e, ERR_MEMORY, "cache clean: no memory");
    if (!tier_parts_list(dir.p, cmd_cache_on_model, &x, e))
        return false;
    if (!x.count)
        return err_set(e, ERR_NOT_FOUND, "cache clean: nothing of '%.*s' in %.*s",
                       STR_ARG(x.model), STR_ARG(dir));
    for (uint32_t i = 0; i < x.count; i++) {
        uint64_t bytes = 0;
        if (!tier_parts_clean(dir.p, x.names[i], &bytes, e))
            return false;
        *sum += bytes;
    }
    return true;
}

static bool cmd_cache_clean(struct cmd_context *c, struct err *e)
{
    str dir;
    uint64_t sum = 0;
    bool is_one = cmd_text(c, "model").len != 0;
    if (is_one && cmd_bool(c, "all"))
        return err_set(e, ERR_USAGE, "cache clean: -model or -all, not both");
    if (!cmd_cache_dir(c, &dir, e))
        return false;
    if (is_one ? !cmd_cache_clean_model(c, dir, &sum, e)
               : !tier_parts_clean(dir.p, "*", &sum, e) ||
                     !contexts_disk_clean(dir.p, &sum, e))
        return false;
    struct buf size;
    buf_init(&size, 64);
    buf_add_size(&size, sum);
    printf("%.*s freed\n", STR_ARG(buf_view(&size)));
    fflush(stdout);
    buf_deinit(&size);
    return true;
}

static bool cmd_cache_run(struct cmd_context *c, struct err *e)
{
    bool cleans = c->words_count == 1 && str_eq(c->words[0], STR("clean"));
    if (c->words_count && !cleans)
        return err_set(e, ERR_USAGE, "cache: 'clean' or nothing expected, got '%.*s'",
                       STR_ARG(c->words[0]));
    if (!cleans && (cmd_is_given(c, "model") || cmd_is_given(c, "all")))
        return err_set(e, ERR_USAGE, "cache: -model and -all belong to `cache clean`");
    return cleans ? cmd_cache_clean(c, e) : cmd_cache_show(c, e);
}

static const struct cmd_flag cmd_cache_flags[] = {
    {.name = "model", .value = "M", .spec = {.type = CONFIG_TYPE_TEXT},
     .help = "clean: what was stored for this model alone"},
    {.name = "all", .spec = {.type = CONFIG_TYPE_BOOL}, .standard = "false",
     .help = "clean: everything, as without -model"},
};

const struct cmd cmd_cache = {
    .name = "cache",
    .words = "[clean]",
    .words_max = 1,
    .summary = "What the SSD tier holds; `cache clean` deletes it",
    .text = "The directory is cache.spill of the configuration, else ~/.shoal/cache. `cache clean` "
            "ends with 1\nwhile a server uses it; without -model saved contexts go, too.",
    .flags = cmd_cache_flags,
    .flags_count = countof(cmd_cache_flags),
    .has_json = true,
    .takes_server = true,
    .flags_anywhere = true,
    .run = cmd_cache_run,
};
