#include "cli/reload.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/chrono.h"
#include "base/json.h"
#include "base/list.h"
#include "base/log.h"
#include "cli/cmd.h"
#include "serve/server.h"

#define RELOAD_ARENA_MAX ((size_t)32 << 20)

/* One configuration and what the parts made of it. Requests that began under it keep it alive. */
struct reload_age {
    struct list link;
    struct arena arena;
    struct config *config;
    void *made[RELOAD_PARTS_MAX]; /* NULL: its part refused */
    uint32_t made_count;
    uint32_t refs; /* the reload's own while it is in use, and each reload_keep */
};

struct reload {
    struct reload_target t;
    const struct config *config; /* in use */
    struct reload_age *age;      /* whose it is; NULL: the start's, which lives as long as we do */
    struct list ages;
};

/* Keys whose change waits for the next start: BEHAVIOUR 3.2. */
static bool reload_needs_restart(const char *key)
{
    static const char *const fixed[] = {"listen", "store", "sources.", "tls.", "engine.",
                                        "cache.replay", "cache.miss_ring", "cache.public"};
    for (size_t i = 0; i < countof(fixed); i++)
        if (str_starts(str_of(key), str_of(fixed[i])))
            return true;
    return false;
}

/* --- ages ---------------------------------------------------------------------------------- */

static void reload_age_free(struct reload_age *age)
{
    list_remove(&age->link);
    arena_deinit(&age->arena);
    free(age);
}

void reload_keep(struct reload_age *age) { age->refs++; }

void reload_unkeep(void *age)
{
    struct reload_age *a = age;
    if (--a->refs == 0)
        reload_age_free(a);
}

/* --- one reload ---------------------------------------------------------------------------- */

static bool reload_load(const struct reload *r, struct reload_age *age, struct buf *problems,
                        struct err *e)
{
    const struct cmd_context *c = r->t.c;
    struct config_input in = {c->config_path, c->settings, c->settings_count};
    return config_load(&age->config, &in, &age->arena, problems, e);
}

/* All parts, so that one reload tells all that is wrong. */
static bool reload_read(const struct reload *r, struct reload_age *age, struct err *e)
{
    bool ok = true;
    for (const struct reload_part *p = r->t.parts; p->name; p++) {
        struct err why = {0};
        uint32_t told = config_told(age->config);
        void **made = &age->made[age->made_count++];
        must(age->made_count <= RELOAD_PARTS_MAX);
        if (p->read(made, &r->t, age->config, &age->arena, &why))
            continue;
        *made = NULL;
        ok = false;
        if (config_told(age->config) == told)
            config_tell(age->config, NULL, p->name, &why, e);
        else if (e->code == ERR_NONE)
            *e = why;
    }
    config_problems_end(age->config);
    return ok;
}

static void reload_drop(const struct reload *r, struct reload_age *age)
{
    for (uint32_t i = age->made_count; i-- > 0;)
        if (age->made[i] && r->t.parts[i].drop)
            r->t.parts[i].drop(age->made[i]);
    age->made_count = 0;
}

static void reload_report(const struct reload *r, const struct config *next, struct buf *report)
{
    struct json_writer w = json_writer(report);
    json_open_object(&w);
    for (int restart = 0; restart < 2; restart++) {
        json_key_z(&w, restart ? "needs_restart" : "changed");
        json_open_array(&w);
        for (const struct config_row *row = config_rows; row->key; row++)
            if (!config_is_same(r->config, next, row) &&
                reload_needs_restart(row->key) == (restart == 1))
                json_put_text_z(&w, row->key);
        json_close_array(&w);
    }
    json_close_object(&w);
}

static void reload_use(struct reload *r, struct reload_age *age)
{
    struct reload_age *before = r->age;
    list_push_last(&r->ages, &age->link);
    for (uint32_t i = 0; i < age->made_count; i++)
        r->t.parts[i].apply(&r->t, age->made[i], age);
    r->config = age->config;
    r->age = age;
    if (before)
        reload_unkeep(before);
}

static void reload_tell(struct reload *r, const struct err *why)
{
    struct server_config *told = server_config_of(r->t.server);
    snprintf(told->path, sizeof told->path, "%.*s", STR_ARG(config_file(r->config)));
    snprintf(told->sha256, sizeof told->sha256, "%.*s", STR_ARG(config_file_sha256(r->config)));
    snprintf(told->refusal, sizeof told->refusal, "%s", why ? why->text : "");
    told->reloads++;
    told->refusals += why != NULL;
    if (!why)
        told->loaded_s = chrono_unix_ms(&chrono_real) / 1000;
}

bool reload_run(struct reload *r, struct buf *report, struct buf *problems, struct err *e)
{
    struct reload_age *age = calloc(1, sizeof *age);
    if (!age)
        return err_set(e, ERR_MEMORY, "no memory for a configuration");
    arena_init(&age->arena, RELOAD_ARENA_MAX);
    list_init(&age->link);
    age->refs = 1;
    if (!reload_load(r, age, problems, e) || !reload_read(r, age, e)) {
        reload_drop(r, age);
        reload_tell(r, e);
        reload_unkeep(age);
        log_error("reload refused, the old configuration stays: %s", e->text);
        return false;
    }
    reload_report(r, age->config, report);
    reload_use(r, age);
    reload_tell(r, NULL);
    log_info("reloaded: %.*s", STR_ARG(buf_view(report)));
    return true;
}

/* --- open, close --------------------------------------------------------------------------- */

bool reload_open(struct reload **out, const struct reload_target *t, const struct config *config,
                 struct err *e)
{
    struct reload *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ERR_MEMORY, "no memory for the configuration");
    r->t = *t;
    r->config = config;
    list_init(&r->ages);
    reload_tell(r, NULL);
    server_config_of(t->server)->reloads = 0;
    *out = r;
    return true;
}

void reload_close(struct reload *r)
{
    if (!r)
        return;
    if (r->age)
        reload_unkeep(r->age);
    must(list_is_empty(&r->ages)); /* the server is closed, so nobody keeps one */
    free(r);
}
