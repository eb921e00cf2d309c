#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/daemon.h"

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

/* Which program's own command removes a model of its store. */
static bool cmd_rm_foreign(const struct library_entry *m, struct err *e)
{
    switch (m->source) {
    case LIBRARY_SOURCE_OLLAMA:
        return err_set(e, ERR_REQUEST, "%.*s belongs to Ollama: `ollama rm %.*s`",
                       STR_ARG(m->name), STR_ARG(m->name));
    case LIBRARY_SOURCE_HF:
        return err_set(e, ERR_REQUEST, "%.*s lies in the Hugging Face cache: `hf cache rm "
                       "model/%.*s`", STR_ARG(m->name), STR_ARG(m->name));
    case LIBRARY_SOURCE_LMSTUDIO:
        return err_set(e, ERR_REQUEST, "%.*s belongs to LM Studio: delete it under My Models",
                       STR_ARG(m->name));
    case LIBRARY_SOURCE_DIR:
        return err_set(e, ERR_REQUEST, "%.*s is not in our store: `rm '%.*s'`", STR_ARG(m->name),
                       STR_ARG(m->path));
    case LIBRARY_SOURCE_SHOAL:
        break;
    }
    return true;
}

/* Does the directory of path, links followed, lie in the store? The file itself may be a link: the
 * link goes, what it points to stays. */
static bool cmd_rm_is_below(str store, str path, struct arena *a)
{
    str dir = arena_copy(a, file_dir_name(path)), z = arena_copy(a, store);
    char *real_dir = dir.p ? realpath(dir.p, NULL) : NULL;
    char *real_store = z.p ? realpath(z.p, NULL) : NULL;
    size_t len = real_store ? strlen(real_store) : 0;
    bool ok = real_dir && real_store && !strncmp(real_dir, real_store, len) &&
              (real_dir[len] == 0 || real_dir[len] == '/');
    free(real_dir);
    free(real_store);
    return ok;
}

static bool cmd_rm_files(const struct cmd_context *c, const struct library_entry *m,
                         struct err *e)
{
    str store = config_text(c->config, "store");
    const str *files;
    uint32_t count;
    bool is_link = false;
    struct file_info info;
    if (file_stat(&info, m->path.p, e))
        is_link = info.is_link;
    if (m->is_safetensors && is_link) {
        files = &m->path;
        count = 1;
    } else if (!library_files(m, c->arena, &files, &count, e)) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!cmd_rm_is_below(store, files[i], c->arena))
            return err_set(e, ERR_REQUEST, "%.*s is not below %.*s", STR_ARG(files[i]),
                           STR_ARG(store));
        if (unlink(files[i].p) != 0)
            return err_set_errno(e, errno, "%.*s", STR_ARG(files[i]));
    }
    if (m->is_safetensors && !is_link && rmdir(m->path.p) != 0)
        return err_set_errno(e, errno, "%.*s: its model is gone, the directory stays",
                             STR_ARG(m->path));
    return true;
}

static bool cmd_rm_one(const struct cmd_context *c, const struct library *l,
                       const struct cmd_rm_loaded *loaded, str name, struct err *e)
{
    const struct config_value *aliases = config_value(c->config, "aliases");
    struct library_query q = {name, aliases->items, aliases->items_count, true};
    struct library_entry m;
    if (!library_find(l, &q, c->arena, &m, e) || !cmd_rm_foreign(&m, e))
        return false;
    if (!cmd_bool(c, "force") && cmd_rm_is_loaded(loaded, m.name))
        return err_set(e, ERR_REQUEST, "%.*s is loaded by the running server; -force removes it "
                       "all the same", STR_ARG(m.name));
    if (!cmd_rm_files(c, &m, e))
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
