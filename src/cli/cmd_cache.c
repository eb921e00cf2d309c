/* shoal cache: what the tiers hold, and `cache clean`. */
#include <stdio.h>
#include <string.h>

#include "base/chrono.h"
#include "base/json.h"
#include "cli/cmd.h"
#include "cli/daemon.h"
#include "cli/spill.h"
#include "kv/tier_parts.h"

#define CMD_CACHE_ASK_MS 5000
#define CMD_CACHE_OUT_MAX ((size_t)16 << 20)

struct cmd_cache {
    struct buf *out;
    bool is_json;
    uint32_t parts;
    uint64_t bytes;
    str model; /* clean: of this name only */
    char names[256][TIER_PARTS_NAME_SIZE]; /* parts of the model */
    uint32_t names_count;
};

static void cmd_cache_quote(struct buf *out, str text)
{
    struct json_writer w = json_writer(out);
    json_put_text(&w, text);
}

static str cmd_cache_model(const struct tier_part *p)
{
    return p->has_header ? str_of(p->header.model) : STR("");
}

static void cmd_cache_put_part(struct cmd_cache *x, const struct tier_part *p)
{
    if (x->is_json) {
        buf_add_z(x->out, x->parts ? ",{\"model\":" : "{\"model\":");
        cmd_cache_quote(x->out, cmd_cache_model(p));
        buf_add_z(x->out, ",\"build\":");
        cmd_cache_quote(x->out, p->has_header ? str_of(p->header.build) : STR(""));
        buf_printf(x->out, ",\"owner\":\"%s\",\"bytes\":%llu,\"files\":%u,\"used_at\":%lld,"
                   "\"in_use\":%s}", p->name, (unsigned long long)p->bytes, p->files,
                   (long long)p->used_s, p->is_locked ? "true" : "false");
        return;
    }
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
    cmd_cache_put_part(x, p);
    x->parts++;
    x->bytes += p->bytes;
}

static bool cmd_cache_put_dir(struct cmd_cache *x, str dir, struct err *e)
{
    if (x->is_json) {
        buf_add_z(x->out, "{\"dir\":");
        cmd_cache_quote(x->out, dir);
        buf_add_z(x->out, ",\"parts\":[");
    } else {
        buf_add_z(x->out, "directory ");
        buf_add_printable(x->out, dir);
        buf_add_byte(x->out, '\n');
    }
    if (!tier_parts_list(dir.p, cmd_cache_on_part, x, e))
        return false;
    if (x->is_json) {
        buf_printf(x->out, "],\"bytes\":%llu", (unsigned long long)x->bytes);
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
    if (!daemon_ask(&d, &q, &answer, e)) {
        if (e->code != ERR_CONNECT)
            return false;
        buf_add_z(x->out, x->is_json ? ",\"server\":null}\n" : "");
        return true;
    }
    bool ok = answer.status == 200 || daemon_refused(&answer, e);
    if (ok) {
        buf_add_z(x->out, x->is_json ? ",\"server\":" : "server ");
        buf_add(x->out, buf_view(&answer.body));
        buf_add_z(x->out, x->is_json ? "}\n" : "\n");
    }
    buf_deinit(&answer.body);
    return ok;
}

static bool cmd_cache_show(struct cmd_context *c, struct err *e)
{
    struct buf out;
    struct cmd_cache x = {.out = &out, .is_json = cmd_bool(c, "json")};
    buf_init(&out, CMD_CACHE_OUT_MAX);
    bool ok = cmd_cache_put_dir(&x, spill_dir(c->config, c->arena), e) &&
              cmd_cache_put_server(c, &x, e);
    if (ok)
        fwrite(out.p, 1, out.len, stdout);
    fflush(stdout);
    buf_deinit(&out);
    return ok;
}

static void cmd_cache_on_model(void *ctx, const struct tier_part *p)
{
    struct cmd_cache *x = ctx;
    if (str_eq(cmd_cache_model(p), x->model) && x->names_count < countof(x->names))
        memcpy(x->names[x->names_count++], p->name, sizeof p->name);
}

static bool cmd_cache_clean(struct cmd_context *c, struct err *e)
{
    str dir = spill_dir(c->config, c->arena);
    struct cmd_cache x = {.model = cmd_text(c, "model")};
    uint64_t bytes = 0, sum = 0;
    if (x.model.len && cmd_bool(c, "all"))
        return err_set(e, ERR_USAGE, "cache clean: -model or -all, not both");
    bool ok = true;
    if (!x.model.len) {
        ok = tier_parts_clean(dir.p, "*", &sum, e);
    } else {
        ok = tier_parts_list(dir.p, cmd_cache_on_model, &x, e);
        if (ok && !x.names_count)
            return err_set(e, ERR_NOT_FOUND, "cache clean: nothing of '%.*s' in %.*s",
                           STR_ARG(x.model), STR_ARG(dir));
    }
    for (uint32_t i = 0; ok && i < x.names_count; i++) {
        ok = tier_parts_clean(dir.p, x.names[i], &bytes, e);
        sum += bytes;
    }
    if (!ok)
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
            "ends with 1\nwhile a server uses it.",
    .flags = cmd_cache_flags,
    .flags_count = countof(cmd_cache_flags),
    .has_json = true,
    .takes_server = true,
    .flags_anywhere = true,
    .run = cmd_cache_run,
};
