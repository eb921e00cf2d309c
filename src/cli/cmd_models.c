#include <stdio.h>
#include <time.h>

#include "base/chrono.h"
#include "base/json.h"
#include "base/version.h"
#include "cli/cmd.h"
#include "fmt/model_file.h"

#define LIST_OUT_MAX ((size_t)64 << 20)

/* --- the library as the configuration describes it --- */

static bool cmd_models_check(void *ctx, const struct library_entry *entry, struct err *e)
{
    (void)ctx;
    struct model_file *f;
    if (entry->is_safetensors) /* checked when they can be loaded */
        return true;
    if (!model_file_open(&f, entry->path.p, e))
        return false;
    model_file_close(f);
    return true;
}

void cmd_models_options(const struct cmd_context *c, struct library_options *out)
{
    const struct config_value *dirs = config_value(c->config, "sources.dirs");
    *out = (struct library_options){
        .own = config_text(c->config, "store"),
        .home = config_home(c->arena),
        .ollama = config_text(c->config, "sources.ollama"),
        .hf = config_text(c->config, "sources.hf"),
        .lmstudio = config_text(c->config, "sources.lmstudio"),
        .ollama_models = config_env("OLLAMA_MODELS"),
        .hf_hub_cache = config_env("HF_HUB_CACHE"),
        .hf_home = config_env("HF_HOME"),
        .dirs = dirs->items,
        .dirs_count = dirs->items_count,
        .tag = VERSION_TEXT " " VERSION_GIT,
    };
}

bool cmd_models_open(const struct cmd_context *c, bool own_only, bool checked,
                            struct library **out, struct err *e)
{
    struct library_options o;
    cmd_models_options(c, &o);
    o.own_only = own_only;
    o.check = checked ? cmd_models_check : NULL;
    return library_open(out, &o, e);
}

/* A copy that outlives the library. */
static struct library_entry cmd_models_keep(const struct library_entry *from, struct arena *a)
{
    struct library_entry to = *from;
    str *texts[] = {&to.name, &to.path, &to.file_name, &to.broken, &to.projector, &to.draft,
                    &to.params, &to.system};
    for (size_t i = 0; i < countof(texts); i++)
        if (texts[i]->p)
            *texts[i] = arena_copy(a, *texts[i]);
    return to;
}

bool cmd_models_find(const struct cmd_context *c, str name, struct library_entry *out,
                     struct err *e)
{
    const struct config_value *aliases = config_value(c->config, "aliases");
    struct library_query q = {name, aliases->items, aliases->items_count, true};
    struct library *l;
    struct library_entry found;
    if (!cmd_models_open(c, false, false, &l, e))
        return false;
    bool ok = library_find(l, &q, c->arena, &found, e);
    if (ok && found.broken.len)
        ok = err_set(e, ERR_FORMAT, "%.*s: %.*s", STR_ARG(found.name), STR_ARG(found.broken));
    if (ok)
        *out = cmd_models_keep(&found, c->arena);
    library_close(l);
    return ok && (!c->arena->is_full || err_set(e, ERR_MEMORY, "no memory for the model's path"));
}

/* --- list --- */

static void cmd_models_add_age(struct buf *out, int64_t modified_ns)
{
    static const struct { int64_t seconds; const char *unit; } units[] = {
        {86400, "day"}, {3600, "hour"}, {60, "minute"},
    };
    int64_t age = chrono_unix_ms(&chrono_real) / 1000 - modified_ns / 1000000000;
    for (size_t i = 0; i < countof(units); i++)
        if (age >= units[i].seconds) {
            long long n = age / units[i].seconds;
            buf_printf(out, "%lld %s%s ago", n, units[i].unit, n == 1 ? "" : "s");
            return;
        }
    buf_add_z(out, "just now");
}

static void cmd_models_add_source(struct buf *out, const struct library_entry *m)
{
    buf_add_z(out, library_source_name(m->source));
    if (m->is_safetensors)
        buf_add_z(out, ", safetensors");
    if (m->is_partial) {
        buf_add_z(out, ", partial");
    } else if (m->broken.len) {
        buf_add_z(out, ", broken: ");
        buf_add_printable(out, m->broken);
    }
}

void cmd_models_add_share(struct buf *out, uint64_t done, uint64_t size)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    size_t u = 0;
    double scale = 1;
    while (u + 1 < countof(units) && (double)size / scale >= 1024) {
        scale *= 1024;
        u++;
    }
    buf_printf(out, u ? "%.1f / %.1f %s" : "%.0f / %.0f %s", (double)done / scale,
               (double)size / scale, units[u]);
}

enum { LIST_COLUMNS = 3 };

/* The first columns of a row; the last, SOURCE, needs no width. */
static void cmd_models_cells(const struct library_entry *m, struct buf cells[LIST_COLUMNS])
{
    for (int i = 0; i < LIST_COLUMNS; i++)
        buf_clear(&cells[i]);
    buf_add_printable(&cells[0], m->name);
    if (m->is_partial)
        cmd_models_add_share(&cells[1], m->received, m->size);
    else
        buf_add_size(&cells[1], m->size);
    cmd_models_add_age(&cells[2], m->modified_ns);
}

static size_t cmd_models_width(str s)
{
    size_t width = 0;
    for (size_t i = 0; i < s.len; i++)
        width += (s.p[i] & 0xc0) != 0x80;
    return width;
}

static void cmd_models_add_table(struct buf *out, const struct library *l)
{
    static const char *const heads[LIST_COLUMNS] = {"NAME", "SIZE", "MODIFIED"};
    size_t widths[LIST_COLUMNS];
    struct buf cells[LIST_COLUMNS];
    for (int i = 0; i < LIST_COLUMNS; i++) {
        widths[i] = str_of(heads[i]).len;
        buf_init(&cells[i], 64 * 1024);
    }
    for (uint32_t n = 0; n < library_count(l); n++) {
        cmd_models_cells(library_at(l, n), cells);
        for (int i = 0; i < LIST_COLUMNS; i++)
            widths[i] = base_max(widths[i], cmd_models_width(buf_view(&cells[i])));
    }
    for (int i = 0; i < LIST_COLUMNS; i++)
        buf_printf(out, "%-*s  ", (int)widths[i], heads[i]);
    buf_add_z(out, "SOURCE\n");
    for (uint32_t n = 0; n < library_count(l); n++) {
        cmd_models_cells(library_at(l, n), cells);
        for (int i = 0; i < LIST_COLUMNS; i++) {
            buf_add(out, buf_view(&cells[i]));
            size_t pad = widths[i] - cmd_models_width(buf_view(&cells[i])) + 2;
            buf_printf(out, "%*s", (int)pad, "");
        }
        cmd_models_add_source(out, library_at(l, n));
        buf_add_byte(out, '\n');
    }
    for (int i = 0; i < LIST_COLUMNS; i++)
        buf_deinit(&cells[i]);
}

static void cmd_models_put_time(struct json_writer *w, int64_t ns)
{
    char text[32];
    struct tm t;
    time_t seconds = (time_t)(ns / 1000000000);
    size_t len = gmtime_r(&seconds, &t) ? strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &t) : 0;
    json_put_text(w, str_view(text, len));
}

static void cmd_models_put(struct json_writer *w, const struct library_entry *m)
{
    json_open_object(w);
    json_key_z(w, "name");
    json_put_text(w, m->name);
    json_key_z(w, "size");
    json_put_u64(w, m->size);
    json_key_z(w, "modified");
    cmd_models_put_time(w, m->modified_ns);
    json_key_z(w, "source");
    json_put_text_z(w, library_source_name(m->source));
    json_key_z(w, "format");
    json_put_text_z(w, m->is_safetensors ? "safetensors" : "gguf");
    json_key_z(w, "path");
    json_put_text(w, m->path);
    if (m->projector.len) {
        json_key_z(w, "projector");
        json_put_text(w, m->projector);
    }
    if (m->draft.len) {
        json_key_z(w, "draft");
        json_put_text(w, m->draft);
    }
    json_key_z(w, "partial");
    json_put_bool(w, m->is_partial);
    if (m->is_partial) {
        json_key_z(w, "received");
        json_put_u64(w, m->received);
    }
    json_key_z(w, "broken");
    if (m->broken.len && !m->is_partial)
        json_put_text(w, m->broken);
    else
        json_put_null(w);
    json_close_object(w);
}

static void cmd_models_add_json(struct buf *out, const struct library *l)
{
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    json_key_z(&w, "models");
    json_open_array(&w);
    for (uint32_t i = 0; i < library_count(l); i++)
        cmd_models_put(&w, library_at(l, i));
    json_close_array(&w);
    json_close_object(&w);
    buf_add_byte(out, '\n');
}

static void cmd_models_print_notes(const struct library *l)
{
    struct buf b;
    buf_init(&b, 64 * 1024);
    for (uint32_t i = 0; i < library_note_count(l); i++) {
        buf_add_z(&b, "shoal: left out: ");
        buf_add_printable(&b, library_note(l, i));
        buf_add_byte(&b, '\n');
    }
    if (b.len)
        fwrite(b.p, 1, b.len, stderr);
    buf_deinit(&b);
}

static bool cmd_models_run_list(struct cmd_context *c, struct err *e)
{
    struct library *l;
    struct buf out;
    if (!cmd_models_open(c, cmd_bool(c, "own"), true, &l, e))
        return false;
    buf_init(&out, LIST_OUT_MAX);
    str store = config_text(c->config, "store");
    store = store.len ? store : STR("a directory that `store` names: there is no home");
    if (cmd_bool(c, "json"))
        cmd_models_add_json(&out, l);
    else if (library_count(l))
        cmd_models_add_table(&out, l);
    else
        buf_printf(&out, "no models yet; `shoal pull owner/repo` fetches one, or put a .gguf file "
                   "into %.*s\n", STR_ARG(store));
    cmd_models_print_notes(l);
    bool ok = !out.full || err_set(e, ERR_LIMIT, "list: more than %zu bytes", LIST_OUT_MAX);
    if (ok)
        fwrite(out.p, 1, out.len, stdout);
    buf_deinit(&out);
    library_close(l);
    return ok;
}

static const struct cmd_flag cmd_models_list_flags[] = {
    {.name = "own",
     .spec = {.type = CONFIG_TYPE_BOOL},
     .standard = "false",
     .help = "our own store only"},
};

const struct cmd cmd_models_list = {
    .name = "list",
    .alias = "ls",
    .summary = "Models in our store and in those of other programs, newest first",
    .flags = cmd_models_list_flags,
    .flags_count = countof(cmd_models_list_flags),
    .has_json = true,
    .run = cmd_models_run_list,
};
