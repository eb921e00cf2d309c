/* What shells and man(1) want to know, made from the table of commands: hidden commands that
 * `make install` runs. */
#include <stdio.h>
#include <string.h>

#include "base/version.h"
#include "cli/cmd.h"

#define DOCS_MAX ((size_t)1 << 20)

struct docs {
    struct buf *out;
    const struct cmd *cmd;
};

static bool docs_is_shown(const struct cmd *c) { return !c->is_hidden && !c->is_later; }

/* --- completions ----------------------------------------------------------------------------- */

static void docs_add_commands(struct buf *out, const char *separator)
{
    bool first = true;
    for (const struct cmd *const *c = cmd_table; *c; c++)
        if (docs_is_shown(*c)) {
            buf_printf(out, "%s%s", first ? "" : separator, (*c)->name);
            first = false;
        }
    buf_printf(out, "%shelp", separator);
}

static void docs_on_bash_flag(void *ctx, const struct cmd_help *f)
{
    const struct docs *d = ctx;
    buf_printf(d->out, " -%s", f->name);
}

static void docs_add_bash(struct buf *out)
{
    struct docs d = {.out = out};
    buf_add_z(out, "# bash completion of shoal\n_shoal() {\n"
                   "    local word=${COMP_WORDS[COMP_CWORD]} flags=\n"
                   "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
                   "        COMPREPLY=($(compgen -W \"");
    docs_add_commands(out, " ");
    buf_add_z(out, "\" -- \"$word\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n");
    for (const struct cmd *const *c = cmd_table; *c; c++) {
        if (!docs_is_shown(*c))
            continue;
        d.cmd = *c;
        buf_printf(out, "    %s%s%s) flags=\"", (*c)->name, (*c)->alias ? "|" : "",
                   (*c)->alias ? (*c)->alias : "");
        cmd_each_flag(*c, docs_on_bash_flag, &d);
        buf_add_z(out, "\" ;;\n");
    }
    buf_add_z(out, "    help) COMPREPLY=($(compgen -W \"");
    docs_add_commands(out, " ");
    buf_add_z(out, "\" -- \"$word\")); return ;;\n    esac\n"
                   "    case $word in\n"
                   "    -*) COMPREPLY=($(compgen -W \"$flags\" -- \"$word\")) ;;\n"
                   "    *) case ${COMP_WORDS[1]} in\n"
                   "       run|plan|rm|remove|bench|inspect|serve)\n"
                   "           COMPREPLY=($(compgen -W \"$(shoal list 2>/dev/null | awk 'NR > 1 "
                   "{print $1}')\" -- \"$word\")) ;;\n"
                   "       esac\n"
                   "       [ ${#COMPREPLY[@]} -gt 0 ] ||\n"
                   "           COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
                   "    esac\n}\ncomplete -o filenames -F _shoal shoal\n");
}

/* Text between single quotes of zsh and fish; brackets and colons mean something to zsh. */
static void docs_add_quoted(struct buf *out, const char *text, bool is_zsh)
{
    for (; *text; text++) {
        if (*text == '\'')
            buf_add_z(out, is_zsh ? "'\\''" : "\\'");
        else if (is_zsh && strchr("[]:", *text))
            buf_printf(out, "\\%c", *text);
        else
            buf_add_byte(out, *text);
    }
}

static void docs_on_zsh_flag(void *ctx, const struct cmd_help *f)
{
    const struct docs *d = ctx;
    buf_printf(d->out, " \\\n            '-%s[", f->name);
    docs_add_quoted(d->out, f->help, true);
    buf_add_byte(d->out, ']');
    if (f->value) {
        buf_add_byte(d->out, ':');
        docs_add_quoted(d->out, f->value, true);
        buf_add_z(d->out, strcmp(f->value, "PATH") ? ":" : ":_files");
    }
    buf_add_byte(d->out, '\'');
}

static void docs_add_zsh(struct buf *out)
{
    struct docs d = {.out = out};
    buf_add_z(out, "#compdef shoal\n_shoal() {\n    local -a commands\n    commands=(\n");
    for (const struct cmd *const *c = cmd_table; *c; c++) {
        if (!docs_is_shown(*c))
            continue;
        buf_printf(out, "        '%s:", (*c)->name);
        docs_add_quoted(out, (*c)->summary, true);
        buf_add_z(out, "'\n");
    }
    buf_add_z(out, "        'help:Usage of a command'\n    )\n"
                   "    if (( CURRENT == 2 )); then\n"
                   "        _describe command commands\n        return\n    fi\n"
                   "    case ${words[2]} in\n");
    for (const struct cmd *const *c = cmd_table; *c; c++) {
        if (!docs_is_shown(*c))
            continue;
        buf_printf(out, "    %s%s%s) _arguments", (*c)->name, (*c)->alias ? "|" : "",
                   (*c)->alias ? (*c)->alias : "");
        cmd_each_flag(*c, docs_on_zsh_flag, &d);
        buf_add_z(out, " \\\n            '*:argument:_files' ;;\n");
    }
    buf_add_z(out, "    help) _describe command commands ;;\n    esac\n}\n_shoal \"$@\"\n");
}

static void docs_on_fish_flag(void *ctx, const struct cmd_help *f)
{
    const struct docs *d = ctx;
    buf_printf(d->out, "complete -c shoal -n '__fish_seen_subcommand_from %s' -o %s%s -d '",
               d->cmd->name, f->name, f->value ? " -r" : "");
    docs_add_quoted(d->out, f->help, false);
    buf_add_z(d->out, "'\n");
}

static void docs_add_fish(struct buf *out)
{
    struct docs d = {.out = out};
    buf_add_z(out, "# fish completion of shoal\n");
    for (const struct cmd *const *c = cmd_table; *c; c++) {
        if (!docs_is_shown(*c))
            continue;
        d.cmd = *c;
        buf_printf(out, "complete -c shoal -f -n __fish_use_subcommand -a %s -d '", (*c)->name);
        docs_add_quoted(out, (*c)->summary, false);
        buf_add_z(out, "'\n");
        cmd_each_flag(*c, docs_on_fish_flag, &d);
    }
}

/* --- man page -------------------------------------------------------------------------------- */

/* roff: a leading dot or quote is a request, a backslash an escape, a dash a hyphen. */
static void docs_add_roff(struct buf *out, const char *text)
{
    bool at_start = true;
    for (; *text; text++) {
        if (at_start && (*text == '.' || *text == '\''))
            buf_add_z(out, "\\&");
        if (*text == '\\')
            buf_add_z(out, "\\e");
        else if (*text == '-')
            buf_add_z(out, "\\-");
        else
            buf_add_byte(out, *text);
        at_start = *text == '\n';
    }
}

static void docs_on_man_flag(void *ctx, const struct cmd_help *f)
{
    const struct docs *d = ctx;
    buf_add_z(d->out, ".TP\n\\fB\\-");
    docs_add_roff(d->out, f->name);
    buf_add_z(d->out, "\\fR");
    if (f->value) {
        buf_add_z(d->out, " \\fI");
        docs_add_roff(d->out, f->value);
        buf_add_z(d->out, "\\fR");
    }
    buf_add_byte(d->out, '\n');
    docs_add_roff(d->out, f->help);
    if (f->standard && f->value) {
        buf_add_z(d->out, " (");
        docs_add_roff(d->out, f->standard);
        buf_add_byte(d->out, ')');
    }
    buf_add_byte(d->out, '\n');
}

/* Paragraphs are filled; a text with columns stays as it is. */
static void docs_add_text(struct buf *out, const char *text)
{
    bool has_columns = str_find(str_of(text), STR("  ")) != STR_NONE;
    buf_add_z(out, has_columns ? ".PP\n.nf\n" : ".PP\n");
    docs_add_roff(out, text);
    buf_add_z(out, has_columns ? "\n.fi\n" : "\n");
}

static void docs_add_section(struct buf *out, const char *title, const char *const rows[][2],
                             size_t count)
{
    buf_printf(out, ".SH %s\n", title);
    for (size_t i = 0; i < count; i++) {
        buf_add_z(out, ".TP\n\\fB");
        docs_add_roff(out, rows[i][0]);
        buf_add_z(out, "\\fR\n");
        docs_add_roff(out, rows[i][1]);
        buf_add_byte(out, '\n');
    }
}

static void docs_add_ending(struct buf *out)
{
    static const char *const environment[][2] = {
        {"SHOAL_CONFIG", "the configuration file"},
        {"SHOAL_ADDR", "where to serve, and where to ask a server"},
        {"SHOAL_KEY", "our key for a server"},
        {"SHOAL_ENGINE_THREADS, SHOAL_LIMITS_QUEUE, ...", "any scalar key of the configuration, in "
         "capitals, with _ for its points"},
        {"SHOAL_HUB, HF_ENDPOINT, HF_TOKEN", "where models are pulled from, and our token there"},
        {"HTTPS_PROXY, HTTP_PROXY, NO_PROXY", "the way out"},
        {"OLLAMA_MODELS, HF_HUB_CACHE, HF_HOME", "stores of other programs, which are read"},
        {"SHOAL_DEBUG_SCHED", "1: each engine logs once a second what its steps did"},
    };
    static const char *const files[][2] = {
        {"~/.shoal/config.yaml", "settings"},
        {"~/.shoal/models", "models of our own"},
        {"~/.shoal/cache", "prompts and saved contexts that survive a restart"},
        {"~/.shoal/serve.log", "what a server that `run` started says"},
        {"~/.shoal/history", "lines typed in conversations"},
    };
    static const char *const codes[][2] = {
        {"0", "done"},
        {"1", "error; of doctor: something fails"},
        {"2", "wrong usage"},
        {"3", "of doctor: warnings"},
        {"130, 143", "ended by SIGINT, SIGTERM"},
    };
    docs_add_section(out, "ENVIRONMENT", environment, countof(environment));
    docs_add_section(out, "FILES", files, countof(files));
    docs_add_section(out, "EXIT STATUS", codes, countof(codes));
}

static void docs_add_man(struct buf *out)
{
    struct docs d = {.out = out};
    buf_add_z(out, ".TH SHOAL 1 \"\" \"shoal " VERSION_TEXT "\" \"User Commands\"\n.SH NAME\n"
                   "shoal \\- serves local language models to a fleet of agents\n.SH SYNOPSIS\n"
                   ".B shoal\n.I COMMAND\n[flags] [arguments]\n.SH COMMANDS\n");
    for (const struct cmd *const *c = cmd_table; *c; c++) {
        if (!docs_is_shown(*c))
            continue;
        d.cmd = *c;
        buf_add_z(out, ".SS ");
        docs_add_roff(out, (*c)->name);
        if ((*c)->words) {
            buf_add_byte(out, ' ');
            docs_add_roff(out, (*c)->words);
        }
        buf_add_byte(out, '\n');
        docs_add_roff(out, (*c)->summary);
        buf_add_z(out, ".\n");
        if ((*c)->alias)
            buf_printf(out, "Also called `%s`.\n", (*c)->alias);
        if ((*c)->text)
            docs_add_text(out, (*c)->text);
        cmd_each_flag(*c, docs_on_man_flag, &d);
    }
    docs_add_ending(out);
}

/* --- the commands ---------------------------------------------------------------------------- */

static bool docs_write(struct buf *out, struct err *e)
{
    bool ok = !out->full || err_set(e, ERR_LIMIT, "more than %zu bytes", DOCS_MAX);
    if (ok)
        fwrite(out->p, 1, out->len, stdout);
    buf_deinit(out);
    return ok;
}

static bool cmd_docs_run_completion(struct cmd_context *c, struct err *e)
{
    static const struct { const char *shell; void (*add)(struct buf *out); } shells[] = {
        {"bash", docs_add_bash}, {"zsh", docs_add_zsh}, {"fish", docs_add_fish},
    };
    struct buf out;
    for (size_t i = 0; i < countof(shells); i++)
        if (str_eq_z(c->words[0], shells[i].shell)) {
            buf_init(&out, DOCS_MAX);
            shells[i].add(&out);
            return docs_write(&out, e);
        }
    return err_set(e, ERR_USAGE, "completion: bash, zsh or fish expected");
}

static bool cmd_docs_run_man(struct cmd_context *c, struct err *e)
{
    struct buf out;
    (void)c;
    buf_init(&out, DOCS_MAX);
    docs_add_man(&out);
    return docs_write(&out, e);
}

const struct cmd cmd_docs_completion = {
    .name = "completion",
    .words = "bash|zsh|fish",
    .words_min = 1,
    .words_max = 1,
    .summary = "Completions for a shell, to be put where it looks for them",
    .is_hidden = true,
    .run = cmd_docs_run_completion,
};

const struct cmd cmd_docs_man = {
    .name = "man",
    .summary = "The manual page, for man(1)",
    .is_hidden = true,
    .run = cmd_docs_run_man,
};
