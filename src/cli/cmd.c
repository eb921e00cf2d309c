#include "cli/cmd.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CMD_HELP_COLUMN 24
#define CMD_HELP_MAX ((size_t)256 * 1024)

/* Flags that many commands share. */
static const struct cmd_flag cmd_config_flag = {
    .name = "config",
    .value = "PATH",
    .spec = {.type = CONFIG_TYPE_PATH},
    .help = "configuration file (~/.shoal/config.yaml)",
};
static const struct cmd_flag cmd_json_flag = {
    .name = "json",
    .spec = {.type = CONFIG_TYPE_BOOL},
    .standard = "false",
    .help = "one JSON document",
};
static const struct cmd_flag cmd_server_flags[] = {
    {.name = "addr",
     .value = "HOST:PORT",
     .spec = {.type = CONFIG_TYPE_TEXT},
     .help = "the server (SHOAL_ADDR, else 127.0.0.1:11500)"},
    {.name = "key-file",
     .value = "PATH",
     .spec = {.type = CONFIG_TYPE_PATH},
     .help = "our key for it (else SHOAL_KEY)"},
};

const struct cmd *cmd_find(str name)
{
    for (const struct cmd *const *c = cmd_table; *c; c++)
        if (str_eq_z(name, (*c)->name) || ((*c)->alias && str_eq_z(name, (*c)->alias)))
            return *c;
    return NULL;
}

/* --- the flags of one command --- */

static void cmd_add_flag(struct cmd_context *c, const struct cmd_flag *f)
{
    must(c->values_count < CMD_FLAGS_MAX);
    struct cmd_value *v = &c->values[c->values_count++];
    *v = (struct cmd_value){.flag = f};
    struct err e = {0};
    if (f->standard)
        must(config_spec_parse(&f->spec, str_of(f->standard), c->arena, &v->value, &e));
}

static void cmd_add_flags(struct cmd_context *c)
{
    for (uint16_t i = 0; i < c->cmd->flags_count; i++)
        cmd_add_flag(c, &c->cmd->flags[i]);
    if (c->cmd->has_json)
        cmd_add_flag(c, &cmd_json_flag);
    for (size_t i = 0; c->cmd->takes_server && i < countof(cmd_server_flags); i++)
        cmd_add_flag(c, &cmd_server_flags[i]);
    cmd_add_flag(c, &cmd_config_flag);
}

static struct cmd_value *cmd_find_flag(struct cmd_context *c, str name)
{
    for (uint32_t i = 0; i < c->values_count; i++)
        if (str_eq_z(name, c->values[i].flag->name))
            return &c->values[i];
    return NULL;
}

static bool cmd_has_setting(const struct cmd *cmd, const struct config_row *r)
{
    str rest = str_of(r->commands), word;
    const char *name = cmd->settings_of ? cmd->settings_of : cmd->name;
    while (r->flag && str_split(&rest, ' ', &word))
        if (str_eq_z(word, name))
            return true;
    return false;
}

static const struct config_row *cmd_find_setting(const struct cmd *cmd, str flag)
{
    for (const struct config_row *r = config_rows; r->key; r++)
        if (r->flag && str_eq_z(flag, r->flag) && cmd_has_setting(cmd, r))
            return r;
    return NULL;
}

struct cmd_nearest {
    str name;
    const char *best;
    uint32_t limit; /* letters that may differ; less once something is found */
};

static void cmd_nearest_try(struct cmd_nearest *n, const char *known)
{
    uint32_t d = str_distance(n->name, str_of(known), n->limit);
    if (d < n->limit || (d == n->limit && !n->best)) {
        n->best = known;
        n->limit = d;
    }
}

static const char *cmd_nearest_flag(const struct cmd_context *c, str name)
{
    struct cmd_nearest n = {.name = name, .limit = 2};
    for (uint32_t i = 0; i < c->values_count; i++)
        if (!c->values[i].flag->is_later)
            cmd_nearest_try(&n, c->values[i].flag->name);
    for (const struct config_row *r = config_rows; r->key; r++)
        if (!r->is_later && cmd_has_setting(c->cmd, r))
            cmd_nearest_try(&n, r->flag);
    return n.best;
}

/* --- parsing --- */

struct cmd_word { /* "-name=value" taken apart */
    str name, value;
    bool has_value;
};

static bool cmd_is_flag(str text) { return text.len > 1 && text.p[0] == '-'; }

static struct cmd_word cmd_split(str text)
{
    struct cmd_word w = {0};
    text = str_from(text, text.len > 2 && text.p[1] == '-' ? 2 : 1);
    size_t at = str_find_byte(text, '=');
    w.name = str_sub(text, 0, at);
    w.has_value = at != STR_NONE;
    if (w.has_value)
        w.value = str_from(text, at + 1);
    return w;
}

static bool cmd_usage(struct cmd_context *c, struct err *e, const char *what, str name)
{
    return err_set(e, ERR_USAGE, "%s: %s -%.*s; see `shoal help %s`", c->cmd->name, what,
                   STR_ARG(str_sub(name, 0, 40)), c->cmd->name);
}

static bool cmd_set_setting(struct cmd_context *c, const struct config_row *r, str text,
                            struct err *e)
{
    struct config_value checked = {0};
    must(c->settings_count < CMD_FLAGS_MAX);
    c->settings[c->settings_count++] = (struct config_flag){r, text};
    return config_spec_parse(&r->spec, text, c->arena, &checked, e);
}

static bool cmd_add_item(struct cmd_context *c, struct config_value *v, str text, struct err *e)
{
    str *items = ARENA_ARRAY(c->arena, str, (size_t)v->items_count + 1);
    if (!items)
        return err_set(e, ERR_MEMORY, "too many arguments");
    for (uint32_t i = 0; i < v->items_count; i++)
        items[i] = v->items[i];
    items[v->items_count++] = text;
    v->items = items;
    return true;
}

static bool cmd_set_flag(struct cmd_context *c, struct cmd_value *v, str text, struct err *e)
{
    const str *items = v->value.items;
    uint32_t items_count = v->is_given ? v->value.items_count : 0;
    v->is_given = true;
    if (!config_spec_parse(&v->flag->spec, text, c->arena, &v->value, e))
        return false;
    v->value.source = CONFIG_SOURCE_FLAG;
    if (v->flag == &cmd_config_flag)
        c->config_path = v->value.text.p;
    if (!v->flag->is_repeatable)
        return true;
    v->value.items = items;
    v->value.items_count = items_count;
    return cmd_add_item(c, &v->value, v->value.text, e);
}

/* One flag at argv[*at], and its value; *at is left behind both. */
static bool cmd_parse_flag(struct cmd_context *c, int argc, char **argv, int *at, struct err *e)
{
    struct cmd_word w = cmd_split(str_of(argv[(*at)++]));
    struct cmd_value *v = cmd_find_flag(c, w.name);
    const struct config_row *r = v ? NULL : cmd_find_setting(c->cmd, w.name);
    if (str_eq_z(w.name, "h") || str_eq_z(w.name, "help")) {
        c->wants_help = true;
        return true;
    }
    if (!v && !r) {
        const char *near = cmd_nearest_flag(c, w.name);
        if (!near)
            return cmd_usage(c, e, "unknown flag", w.name);
        return err_set(e, ERR_USAGE, "%s: unknown flag -%.*s; did you mean -%s?", c->cmd->name,
                       STR_ARG(str_sub(w.name, 0, 40)), near);
    }
    if (v ? v->flag->is_later : r->is_later)
        return err_set(e, ERR_USAGE, "%s: -%.*s is not built yet", c->cmd->name, STR_ARG(w.name));
    bool is_bool = (v ? v->flag->spec.type : r->spec.type) == CONFIG_TYPE_BOOL;
    if (!w.has_value && is_bool)
        w.value = STR("true");
    else if (!w.has_value && *at < argc)
        w.value = str_of(argv[(*at)++]);
    else if (!w.has_value)
        return cmd_usage(c, e, "no value for", w.name);
    struct err why = {0};
    if (v ? cmd_set_flag(c, v, w.value, &why) : cmd_set_setting(c, r, w.value, &why))
        return true;
    return err_set(e, ERR_USAGE, "%s: -%.*s: %s", c->cmd->name, STR_ARG(w.name), why.text);
}

static bool cmd_check_words(struct cmd_context *c, bool had_dashes, struct err *e)
{
    const struct cmd *cmd = c->cmd;
    for (uint32_t i = 1; cmd->refuses_late_flags && !had_dashes && i < c->words_count; i++) {
        if (!cmd_is_flag(c->words[i]))
            continue;
        struct cmd_word w = cmd_split(c->words[i]);
        if (cmd_find_flag(c, w.name) || cmd_find_setting(cmd, w.name))
            return err_set(e, ERR_USAGE, "%s: -%.*s stands behind %.*s; flags come first",
                           cmd->name, STR_ARG(w.name), STR_ARG(str_sub(c->words[0], 0, 60)));
    }
    if (c->words_count < cmd->words_min)
        return err_set(e, ERR_USAGE, "%s: %s missing; see `shoal help %s`", cmd->name,
                       cmd->words ? cmd->words : "argument", cmd->name);
    if (c->words_count > cmd->words_max)
        return err_set(e, ERR_USAGE, "%s: unexpected argument \"%.*s\"; see `shoal help %s`",
                       cmd->name, STR_ARG(str_sub(c->words[cmd->words_max], 0, 40)), cmd->name);
    return true;
}

bool cmd_parse(struct cmd_context *c, int argc, char **argv, struct err *e)
{
    int at = 0;
    bool had_dashes = false;
    str *words = ARENA_ARRAY(c->arena, str, (size_t)argc + 1);
    if (!words)
        return err_set(e, ERR_MEMORY, "too many arguments");
    c->words = words;
    cmd_add_flags(c);
    while (at < argc) {
        bool may_be_flag = !had_dashes && (c->words_count == 0 || c->cmd->flags_anywhere);
        if (!may_be_flag || !cmd_is_flag(str_of(argv[at]))) {
            words[c->words_count++] = str_of(argv[at++]);
        } else if (!strcmp(argv[at], "--")) {
            had_dashes = true;
            at++;
        } else if (!cmd_parse_flag(c, argc, argv, &at, e)) {
            return false;
        }
        if (c->wants_help)
            return true;
    }
    return cmd_check_words(c, had_dashes, e);
}

/* --- values --- */

static const struct cmd_value *cmd_value_of(const struct cmd_context *c, const char *flag)
{
    uint32_t i = 0;
    while (i < c->values_count && strcmp(c->values[i].flag->name, flag) != 0)
        i++;
    must(i < c->values_count);
    return &c->values[i];
}

const struct config_value *cmd_value(const struct cmd_context *c, const char *flag)
{
    return &cmd_value_of(c, flag)->value;
}

bool cmd_is_given(const struct cmd_context *c, const char *flag)
{
    return cmd_value_of(c, flag)->is_given;
}

bool cmd_bool(const struct cmd_context *c, const char *flag) { return cmd_value(c, flag)->number; }

int64_t cmd_number(const struct cmd_context *c, const char *flag)
{
    return cmd_value(c, flag)->number;
}

double cmd_real(const struct cmd_context *c, const char *flag) { return cmd_value(c, flag)->real; }
str cmd_text(const struct cmd_context *c, const char *flag) { return cmd_value(c, flag)->text; }

/* --- help --- */

static void cmd_add_help_line(void *ctx, const struct cmd_help *f)
{
    struct buf *out = ctx;
    size_t start = out->len;
    buf_printf(out, "  -%s%s%s", f->name, f->value ? " " : "", f->value ? f->value : "");
    size_t used = out->len - start;
    int pad = used < CMD_HELP_COLUMN ? (int)(CMD_HELP_COLUMN - used) : 2;
    buf_printf(out, "%*s%s", pad, "", f->help);
    if (f->standard && f->value)
        buf_printf(out, " (%s)", f->standard);
    buf_add_byte(out, '\n');
}

static const char *cmd_setting_value(const struct config_row *r)
{
    return r->spec.type == CONFIG_TYPE_BOOL ? NULL : r->spec.type == CONFIG_TYPE_INT ? "N" : "V";
}

static void cmd_add_program_help(struct buf *out)
{
    buf_add_z(out, "usage: shoal COMMAND [flags] [arguments]\n\n");
    for (const struct cmd *const *c = cmd_table; *c; c++)
        if (!(*c)->is_hidden && !(*c)->is_later)
            buf_printf(out, "  %-12s%s\n", (*c)->name, (*c)->summary);
    buf_add_z(out, "\n`shoal help COMMAND` shows its flags.\n");
}

static void cmd_tell_flag(const struct cmd_flag *f,
                          void (*on_flag)(void *ctx, const struct cmd_help *f), void *ctx)
{
    if (!f->is_later)
        on_flag(ctx, &(struct cmd_help){f->name, f->value, f->standard, f->help});
}

void cmd_each_flag(const struct cmd *cmd, void (*on_flag)(void *ctx, const struct cmd_help *f),
                   void *ctx)
{
    for (uint16_t i = 0; i < cmd->flags_count; i++)
        cmd_tell_flag(&cmd->flags[i], on_flag, ctx);
    for (const struct config_row *r = config_rows; r->key; r++)
        if (!r->is_later && cmd_has_setting(cmd, r))
            on_flag(ctx, &(struct cmd_help){r->flag, cmd_setting_value(r), r->standard, r->help});
    if (cmd->has_json)
        cmd_tell_flag(&cmd_json_flag, on_flag, ctx);
    for (size_t i = 0; cmd->takes_server && i < countof(cmd_server_flags); i++)
        cmd_tell_flag(&cmd_server_flags[i], on_flag, ctx);
    cmd_tell_flag(&cmd_config_flag, on_flag, ctx);
}

void cmd_add_help(struct buf *out, const struct cmd *cmd)
{
    if (!cmd) {
        cmd_add_program_help(out);
        return;
    }
    buf_printf(out, "usage: shoal %s [flags]%s%s\n\n%s.\n", cmd->name, cmd->words ? " " : "",
               cmd->words ? cmd->words : "", cmd->summary);
    if (cmd->text)
        buf_printf(out, "\n%s\n", cmd->text);
    buf_add_byte(out, '\n');
    cmd_each_flag(cmd, cmd_add_help_line, out);
    if (cmd->alias)
        buf_printf(out, "\nAlso called `%s`.\n", cmd->alias);
}

bool cmd_is_terminal(int fd)
{
    str term = config_env("TERM");
    return isatty(fd) && term.len && !str_eq_z(term, "dumb");
}
