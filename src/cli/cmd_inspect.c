#include <stdio.h>

#include "cli/inspect.h"

struct inspect_view {
    const char *name;
    bool (*show)(struct inspect *in, struct err *e); /* NULL: not built */
    const char *flags; /* of the command's own that belong to it */
    uint32_t words_max;
    bool needs_no_model;
};

static const struct inspect_view cmd_inspect_views[] = {
    {"file", inspect_file, "", 2, false},
    {"plan", inspect_plan, "", 2, false},
    {"tokens", inspect_tokens, "f special", 3, false},
    {"prompt", inspect_prompt, "f ids", 2, false},
    {"cache", inspect_cache, "misses", 1, true},
    {"output", inspect_output, "format tools split", 2, true},
};

static const struct cmd_flag cmd_inspect_flags[] = {
    {.name = "f",
     .value = "FILE",
     .spec = {.type = CONFIG_TYPE_PATH},
     .help = "prompt: the request; tokens: the text"},
    {.name = "special",
     .spec = {.type = CONFIG_TYPE_BOOL},
     .standard = "false",
     .help = "tokens: control tokens in the text count as such"},
    {.name = "ids",
     .spec = {.type = CONFIG_TYPE_BOOL},
     .standard = "false",
     .help = "prompt: its token ids too"},
    {.name = "dialect", .value = "D", .spec = {.type = CONFIG_TYPE_TEXT}, .is_later = true},
    {.name = "misses",
     .spec = {.type = CONFIG_TYPE_BOOL},
     .standard = "false",
     .help = "cache: why prompts were read again"},
    {.name = "format",
     .value = "F",
     .spec = {.type = CONFIG_TYPE_TEXT},
     .help = "output: hermes, hermes+think, ... instead of a model's own"},
    {.name = "tools",
     .value = "FILE",
     .spec = {.type = CONFIG_TYPE_PATH},
     .help = "output: the tools of the request, as JSON"},
    {.name = "split",
     .value = "N",
     .spec = {.type = CONFIG_TYPE_INT, .max = 1 << 30},
     .standard = "0",
     .help = "output: in pieces of N bytes; 0: whole"},
};

static const struct inspect_view *cmd_inspect_find(str name, struct err *e)
{
    for (size_t i = 0; i < countof(cmd_inspect_views); i++) {
        const struct inspect_view *v = &cmd_inspect_views[i];
        if (!str_eq_z(name, v->name))
            continue;
        if (v->show)
            return v;
        err_set(e, ERR_USAGE, "inspect %s is not built yet", v->name);
        return NULL;
    }
    err_set(e, ERR_USAGE, "inspect: unknown view \"%.*s\"; see `shoal help inspect`",
            STR_ARG(str_sub(name, 0, 40)));
    return NULL;
}

static bool cmd_inspect_check(const struct cmd_context *c, const struct inspect_view *v,
                              struct err *e)
{
    if (c->words_count < 2 && !v->needs_no_model)
        return err_set(e, ERR_USAGE, "inspect %s: MODEL missing; see `shoal help inspect`",
                       v->name);
    if (c->words_count > v->words_max)
        return err_set(e, ERR_USAGE, "inspect %s: unexpected argument \"%.*s\"", v->name,
                       STR_ARG(str_sub(c->words[v->words_max], 0, 40)));
    for (size_t i = 0; i < countof(cmd_inspect_flags); i++) {
        const char *name = cmd_inspect_flags[i].name;
        str rest = str_of(v->flags), word;
        bool belongs = false;
        while (str_split(&rest, ' ', &word))
            belongs = belongs || str_eq_z(word, name);
        if (cmd_is_given(c, name) && !belongs)
            return err_set(e, ERR_USAGE, "inspect %s: -%s has no meaning here", v->name, name);
    }
    return true;
}

static bool cmd_inspect_run(struct cmd_context *c, struct err *e)
{
    struct inspect in = {.c = c, .as_json = cmd_bool(c, "json")};
    const struct inspect_view *v = cmd_inspect_find(c->words[0], e);
    if (!v || !cmd_inspect_check(c, v, e) ||
        (c->words_count > 1 && !cmd_models_find(c, c->words[1], &in.model, e)))
        return false;
    buf_init(&in.out, INSPECT_OUT_MAX);
    bool ok = v->show(&in, e);
    if (ok && in.out.full)
        ok = err_set(e, ERR_LIMIT, "inspect: more than %zu bytes", INSPECT_OUT_MAX);
    if (ok)
        fwrite(in.out.p, 1, in.out.len, stdout);
    buf_deinit(&in.out);
    return ok;
}

const struct cmd cmd_inspect = {
    .name = "inspect",
    .words = "VIEW MODEL [TEXT]",
    .words_min = 1,
    .words_max = 3,
    .summary = "What is inside a model file, its plan, its prompts and tokens",
    .text = "inspect file MODEL                    metadata, tensors, can it be loaded\n"
            "inspect plan MODEL                    the ops that compute it, its weights\n"
            "inspect prompt MODEL -f REQUEST.json  an OpenAI chat request as the model reads it\n"
            "inspect tokens MODEL TEXT | -f FILE   ids, pieces and kinds of a text\n"
            "inspect cache [-misses]               a running server's prefix cache\n"
            "inspect output MODEL | -format F      text on stdin as the events of a reply",
    .flags = cmd_inspect_flags,
    .flags_count = countof(cmd_inspect_flags),
    .has_json = true,
    .flags_anywhere = true,
    .takes_server = true,
    .run = cmd_inspect_run,
};
