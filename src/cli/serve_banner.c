#include "cli/serve_banner.h"

#include "base/version.h"
#include "dialect/dialect.h"

/* "models     ", and blanks on the lines that go on. */
static void banner_head(struct buf *out, const char *what, uint32_t line)
{
    buf_printf(out, "%-11s", line ? "" : what);
}

static bool banner_models(struct buf *out, const struct serve_banner *b, struct err *e)
{
    for (uint32_t i = 0; i < b->models_count; i++) {
        banner_head(out, "models", i);
        buf_add_printable(out, b->models[i].name);
        if (b->is_dry) {
            buf_add_z(out, ": ");
            if (!cmd_plan_add_choice(out, b->c, &b->models[i], e))
                return false;
        }
        buf_add_byte(out, '\n');
    }
    return true;
}

static void banner_legs(struct buf *out, const struct legs_config *l)
{
    for (uint32_t i = 0; i < l->rows_count; i++) {
        const struct legs_row *row = &l->rows[i];
        banner_head(out, "legs", i);
        buf_add_printable(out, row->name);
        if (row->kind == LEG_KIND_UPSTREAM) {
            buf_printf(out, ": %s ", row->dialect->name);
            buf_add_printable(out, row->url);
        } else {
            buf_add_z(out, ": engine");
        }
        if (row->model.len) {
            buf_add_byte(out, ' ');
            buf_add_printable(out, row->model);
        }
        buf_add_byte(out, '\n');
    }
}

/* "claude, [desk, box2]": equal legs in brackets. */
static void banner_entries(struct buf *out, const struct legs_config *l,
                           const struct router_route *r)
{
    for (uint32_t i = 0; i < r->entries_count; i++) {
        const struct router_entry *at = &r->entries[i];
        bool goes_on = i && at[-1].rank == at->rank;
        bool has_next = i + 1 < r->entries_count && at[1].rank == at->rank;
        buf_printf(out, "%s%s", i ? ", " : "", has_next && !goes_on ? "[" : "");
        buf_add_printable(out, l->rows[at->leg].name);
        buf_add_z(out, goes_on && !has_next ? "]" : "");
    }
    if (r->shadow >= 0) {
        buf_add_z(out, "; shadow ");
        buf_add_printable(out, l->rows[r->shadow].name);
    }
}

static void banner_routes(struct buf *out, const struct legs_config *l)
{
    for (uint32_t i = 0; i < l->routes_count; i++) {
        const struct router_match *m = &l->routes[i].match;
        const struct { const char *key; str glob; } by[] = {
            {"model", m->model}, {"agent", m->agent}, {"dialect", m->dialect}, {"key", m->key}};
        banner_head(out, "routes", i);
        for (size_t k = 0; k < countof(by); k++)
            if (by[k].glob.len) {
                buf_printf(out, "%s ", by[k].key);
                buf_add_printable(out, by[k].glob);
                buf_add_byte(out, ' ');
            }
        buf_add_z(out, "to ");
        banner_entries(out, l, &l->routes[i]);
        buf_add_byte(out, '\n');
    }
}

static void banner_cache(struct buf *out, const struct api_load *l)
{
    banner_head(out, "cache", 0);
    if (!l->spill.len) {
        buf_add_z(out, l->no_prefix ? "off\n" : "in memory, nothing on disk\n");
        return;
    }
    buf_add_printable(out, l->spill);
    buf_add_z(out, ", at most ");
    buf_add_size(out, l->spill_bytes);
    buf_add_byte(out, '\n');
}

static void banner_addresses(struct buf *out, const struct serve_banner *b, const char *scheme)
{
    for (uint32_t i = 0; i < b->addresses_count; i++) {
        bool is_unix = str_starts(b->addresses[i], STR("unix:"));
        banner_head(out, b->is_dry ? "would serve" : "listening", i);
        buf_printf(out, "%s%s%.*s\n", b->is_dry ? " " : "", is_unix ? "" : scheme,
                   STR_ARG(b->addresses[i]));
    }
    bool is_url = !str_starts(b->addresses[0], STR("unix:"));
    for (uint32_t i = 0; i < dialect_table_count; i++) {
        const struct dialect_path *first = &dialect_table[i]->paths[0];
        str host = is_url ? b->addresses[0] : STR("");
        banner_head(out, "dialects", i);
        buf_printf(out, "%s %s%.*s%s\n", first->method, is_url ? scheme : "", STR_ARG(host),
                   first->path);
    }
}

bool serve_banner_add(struct buf *out, const struct serve_banner *b, struct err *e)
{
    buf_printf(out, "shoal %s\n", VERSION_TEXT);
    if (!banner_models(out, b, e))
        return false;
    banner_legs(out, b->legs);
    banner_routes(out, b->legs);
    banner_cache(out, b->load);
    banner_addresses(out, b, b->has_tls ? "https://" : "http://");
    return true;
}
