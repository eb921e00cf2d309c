#include <stdio.h>

#include "base/json.h"
#include "cli/daemon.h"
#include "store/library_remove.h"

#define RM_ASK_MS 2000

/* Names that a running server holds in memory, as its JSON; kind ABSENT: no server. */
struct cmd_rm_loaded {
    struct json models;
    struct arena *a;
};

static void cmd_rm_ask_loaded(const struct cmd_context *c, struct cmd_rm_loaded *out)
{
    const struct json_options o = {.depth_max = 32};
    struct daemon_question q = {.method = "GET", .path = "/v1/status", .timeout_ms = RM_ASK_MS};
    struct daemon_answer a;
    struct daemon d;
    struct json body;
    struct err e;
    *out = (struct cmd_rm_loaded){.a = c->arena};
    if (!daemon_find(c, &d, &e) || !daemon_ask(&d, &q, &a, &e))
        return; /* nobody is there who could hold it */
    str text = arena_copy(c->arena, buf_view(&a.body));
    buf_deinit(&a.body);
    if (text.p && json_parse(&body, text, &o, c->arena, &e))
        out->models = json_member(body, "models");
}

static bool cmd_rm_is_loaded(const struct cmd_rm_loaded *l, str name)
{
    if (!l->models.tape)
        return false;
    for (struct json_walk w = json_walk(l->models); json_next(&w);)
        if (str_eq_nocase(json_text(json_member(w.value, "name"), l->a), name))
            return true;
    return false;
}

static bool cmd_rm_one(const struct cmd_context *c, const struct library *l,
                       const struct cmd_rm_loaded *loaded, str name, struct err *e)
{
    const struct config_value *aliases = config_value(c->config, "aliases");
    struct library_query q = {name, aliases->items, aliases->items_count, true};
    struct library_entry m;
    if (!library_find(l, &q, c->arena, &m, e))
        return false;
    if (m.source == LIBRARY_SOURCE_SHOAL && !cmd_bool(c, "force") &&
        cmd_rm_is_loaded(loaded, m.name))
        return err_set(e, ERR_REQUEST, "%.*s is loaded by the running server; -force removes it "
                       "all the same", STR_ARG(m.name));
    if (!library_remove(&m, config_text(c->config, "store"), c->arena, e))
        return false;
    printf("removed %.*s\n", STR_ARG(m.name));
    return true;
}

static bool cmd_rm_run(struct cmd_context *c, struct err *e)
{
    struct library *l;
    struct cmd_rm_loaded loaded;
    if (!cmd_models_open(c, false, false, &l, e))
        return false;
    cmd_rm_ask_loaded(c, &loaded);
    for (uint32_t i = 0; i < c->words_count; i++) {
        struct err why = {0};
        if (cmd_rm_one(c, l, &loaded, c->words[i], &why))
            continue;
        struct buf b;
        buf_init(&b, 4096);
        buf_add_printable(&b, str_of(why.text));
        fprintf(stderr, "shoal: %s\n", b.p ? b.p : "");
        buf_deinit(&b);
        c->exit_code = CMD_EXIT_ERROR;
    }
    library_close(l);
    return true;
}

static const struct cmd_flag cmd_rm_flags[] = {
    {.name = "force",
     .spec = {.type = CONFIG_TYPE_BOOL},
     .standard = "false",
     .help = "even while a server has it loaded"},
};

const struct cmd cmd_rm = {
    .name = "rm",
    .alias = "remove",
    .words = "MODEL...",
    .words_min = 1,
    .words_max = 1000,
    .summary = "Delete models of our own store, unfinished downloads too",
    .text = "All pieces of a set, or the directory of a safetensors model. Of a link only the link "
            "goes.\nModels of other programs are theirs to delete.",
    .flags = cmd_rm_flags,
    .flags_count = countof(cmd_rm_flags),
    .takes_server = true,
    .flags_anywhere = true,
    .run = cmd_rm_run,
};
