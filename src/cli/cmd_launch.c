#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/daemon.h"

#define LAUNCH_ASK_MS 5000
#define LAUNCH_LOAD_MS ((int64_t)10 * 60 * 1000)
#define LAUNCH_ARGS_MAX 256
#define LAUNCH_MODELS_MAX 200
#define LAUNCH_VARS_MAX 32
#define LAUNCH_OUTPUT_MAX 32000 /* tokens of a reply that Claude Code asks for at most */

struct launch {
    struct cmd_context *c;
    struct daemon d;
    str model, url, key; /* NUL-ended */
    int64_t context;
    const char *argv[LAUNCH_ARGS_MAX];
    size_t argc;
    struct {
        const char *name;
        str value; /* NULL: not to be set */
    } vars[LAUNCH_VARS_MAX];
    size_t vars_count;
};

struct launch_agent {
    const char *name, *program, *title, *get; /* get: how to install it */
    /* Sets the environment and appends arguments; those of the user follow. */
    void (*prepare)(struct launch *l);
};

/* --- what each agent is told ---------------------------------------------------------------- */

static void launch_set(struct launch *l, const char *name, str value)
{
    must(l->vars_count < LAUNCH_VARS_MAX);
    l->vars[l->vars_count].name = name;
    l->vars[l->vars_count++].value = value;
}

static void launch_set_number(struct launch *l, const char *name, int64_t value)
{
    str text = arena_printf(l->c->arena, "%lld", (long long)value);
    launch_set(l, name, text);
}

static int64_t launch_output_max(const struct launch *l)
{
    int64_t quarter = l->context / 4;
    return quarter < LAUNCH_OUTPUT_MAX ? quarter : LAUNCH_OUTPUT_MAX;
}

static void launch_add(struct launch *l, const char *text)
{
    if (text && l->argc + 1 < LAUNCH_ARGS_MAX)
        l->argv[l->argc++] = text;
}

/* Every name of a model that it may ask for is ours; documented at
 * docs.anthropic.com/en/docs/claude-code/settings. */
static const char *const launch_claude_models[] = {
    "ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL",
};

static void launch_prepare_claude(struct launch *l)
{
    launch_set(l, "ANTHROPIC_BASE_URL", l->url);
    launch_set(l, "ANTHROPIC_AUTH_TOKEN", l->key);
    launch_set(l, "ANTHROPIC_API_KEY", (str){NULL, 0}); /* it would win over the token */
    for (size_t i = 0; i < countof(launch_claude_models); i++)
        launch_set(l, launch_claude_models[i], l->model);
    launch_set_number(l, "CLAUDE_CODE_AUTO_COMPACT_WINDOW", l->context);
    launch_set_number(l, "CLAUDE_CODE_MAX_CONTEXT_TOKENS", l->context);
    launch_set_number(l, "CLAUDE_CODE_MAX_OUTPUT_TOKENS", launch_output_max(l));
}

static void launch_add_setting(struct launch *l, const char *format, str value)
{
    struct buf b;
    buf_init(&b, 4096);
    json_add_escaped(&b, value); /* of TOML's basic strings the escapes are JSON's */
    str text = arena_printf(l->c->arena, format, b.p ? b.p : "");
    buf_deinit(&b);
    launch_add(l, "-c");
    launch_add(l, text.p);
}

static void launch_prepare_codex(struct launch *l)
{
    launch_set(l, "SHOAL_KEY", l->key);
    launch_add(l, "-m");
    launch_add(l, l->model.p);
    str base = arena_printf(l->c->arena, "%s/v1", l->url.p);
    struct arena *a = l->c->arena;
    launch_add_setting(l, "model_provider=\"%s\"", STR("shoal"));
    launch_add_setting(l, "model_providers.shoal.name=\"%s\"", STR("shoal"));
    launch_add_setting(l, "model_providers.shoal.base_url=\"%s\"", base);
    launch_add_setting(l, "model_providers.shoal.wire_api=\"%s\"", STR("responses"));
    launch_add_setting(l, "model_providers.shoal.env_key=\"%s\"", STR("SHOAL_KEY"));
    str context = arena_printf(a, "model_context_window=%lld", (long long)l->context);
    str compact = arena_printf(a, "model_auto_compact_token_limit=%lld",
                               (long long)(l->context * 9 / 10));
    launch_add(l, "-c");
    launch_add(l, context.p);
    launch_add(l, "-c");
    launch_add(l, compact.p);
}

static void launch_set_openai(struct launch *l)
{
    str base = arena_printf(l->c->arena, "%s/v1", l->url.p);
    launch_set(l, "OPENAI_BASE_URL", base);
    launch_set(l, "OPENAI_API_KEY", l->key);
}

static void launch_prepare_openai(struct launch *l)
{
    launch_set_openai(l);
    launch_add(l, "--model");
    launch_add(l, l->model.p);
}

static const struct launch_agent launch_agents[] = {
    {"claude", "claude", "Claude Code", "npm install -g @anthropic-ai/claude-code",
     launch_prepare_claude},
    {"codex", "codex", "Codex", "npm install -g @openai/codex", launch_prepare_codex},
    {"pi", "pi", "Pi (best effort)", "npm install -g @mariozechner/pi-coding-agent",
     launch_prepare_openai},
    {"hermes", "hermes", "Hermes (best effort)", "its own installer", launch_prepare_openai},
};

/* --- finding programs ------------------------------------------------------------------------ */

/* The first executable of that name in PATH; empty: none. */
static str launch_program(struct arena *a, const char *name)
{
    str folder, rest = config_env("PATH");
    while (str_split(&rest, ':', &folder)) {
        str path = arena_printf(a, "%.*s/%s", STR_ARG(folder.len ? folder : STR(".")), name);
        if (path.p && access(path.p, X_OK) == 0)
            return path;
    }
    return (str){NULL, 0};
}

static const struct launch_agent *launch_find_agent(str name)
{
    for (size_t i = 0; i < countof(launch_agents); i++)
        if (str_eq_z(name, launch_agents[i].name))
            return &launch_agents[i];
    return NULL;
}

/* --- menus ----------------------------------------------------------------------------------- */

static bool launch_is_interactive(void)
{
    return cmd_is_terminal(STDIN_FILENO) && cmd_is_terminal(STDERR_FILENO);
}

/* A number between 1 and count from the terminal; ERR_CANCELLED at its end. */
static bool launch_choose(uint32_t count, uint32_t *out, struct err *e)
{
    char line[64];
    uint64_t n;
    for (int tries = 0; tries < 5; tries++) {
        fprintf(stderr, "number (1-%u): ", count);
        if (!fgets(line, sizeof line, stdin))
            break;
        if (str_to_u64(str_trim(str_of(line)), &n) && n >= 1 && n <= count) {
            *out = (uint32_t)n - 1;
            return true;
        }
    }
    return err_set(e, ERR_CANCELLED, "launch: nothing was chosen");
}

static const struct launch_agent *launch_menu_agent(struct cmd_context *c, struct err *e)
{
    const struct launch_agent *there[countof(launch_agents)];
    uint32_t count = 0, chosen;
    for (size_t i = 0; i < countof(launch_agents); i++)
        if (launch_program(c->arena, launch_agents[i].program).len)
            there[count++] = &launch_agents[i];
    if (!launch_is_interactive()) {
        err_set(e, ERR_USAGE, "launch: AGENT missing: claude, codex, pi, hermes or env");
        return NULL;
    }
    if (!count) {
        err_set(e, ERR_NOT_FOUND, "launch: no agent is installed: claude, codex, pi or hermes");
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++)
        fprintf(stderr, "%3u  %s\n", i + 1, there[i]->title);
    return launch_choose(count, &chosen, e) ? there[chosen] : NULL;
}

/* --- the server ------------------------------------------------------------------------------ */

static bool launch_ask(struct launch *l, const struct daemon_question *q, struct json *out,
                       struct err *e)
{
    const struct json_options o = {.depth_max = 64};
    struct daemon_answer a;
    if (!daemon_ask(&l->d, q, &a, e))
        return false;
    bool ok = a.status == 200 || daemon_refused(&a, e);
    str text = ok ? arena_copy(l->c->arena, buf_view(&a.body)) : (str){NULL, 0};
    buf_deinit(&a.body);
    return ok && (text.p || err_set(e, ERR_MEMORY, "launch: no memory for an answer")) &&
           json_parse(out, text, &o, l->c->arena, e);
}

static bool launch_is_embedding(str name)
{
    static const char *const words[] = {"embed", "bge-", "rerank", "minilm"};
    for (size_t i = 0; i < countof(words); i++)
        for (size_t at = 0; at + strlen(words[i]) <= name.len; at++)
            if (str_eq_nocase(str_sub(name, at, strlen(words[i])), str_of(words[i])))
                return true;
    return false;
}

static uint32_t launch_list(struct launch *l, str names[LAUNCH_MODELS_MAX], struct err *e)
{
    const struct daemon_question loaded = {.method = "GET", .path = "/v1/status",
                                           .timeout_ms = LAUNCH_ASK_MS};
    const struct daemon_question all = {.method = "GET", .path = "/v1/models",
                                        .timeout_ms = LAUNCH_ASK_MS};
    struct json first, v;
    uint32_t count = 0;
    if (!launch_ask(l, &loaded, &first, e) || !launch_ask(l, &all, &v, e))
        return 0;
    struct json lists[] = {json_member(first, "models"), json_member(v, "data")};
    for (size_t k = 0; k < countof(lists); k++)
        for (struct json_walk w = json_walk(lists[k]); json_next(&w);) {
            str name = json_text(json_member(w.value, k ? "id" : "name"), l->c->arena);
            bool is_known = !name.len || launch_is_embedding(name);
            for (uint32_t i = 0; i < count && !is_known; i++)
                is_known = str_eq(names[i], name);
            if (!is_known && count < LAUNCH_MODELS_MAX)
                names[count++] = name;
        }
    if (!count)
        err_set(e, ERR_NOT_FOUND, "launch: there are no models yet; `shoal pull` fetches one");
    return count;
}

static bool launch_menu_model(struct launch *l, struct err *e)
{
    str names[LAUNCH_MODELS_MAX];
    uint32_t chosen;
    if (!launch_is_interactive())
        return err_set(e, ERR_USAGE, "launch: -model missing");
    uint32_t count = launch_list(l, names, e);
    if (!count)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        struct buf b;
        buf_init(&b, 4096);
        buf_add_printable(&b, names[i]);
        fprintf(stderr, "%3u  %s\n", i + 1, b.p ? b.p : "");
        buf_deinit(&b);
    }
    if (!launch_choose(count, &chosen, e))
        return false;
    l->model = arena_copy(l->c->arena, names[chosen]);
    return l->model.p || err_set(e, ERR_MEMORY, "launch: no memory");
}

/* The name that the server has for what the user called it: an alias, another case, ":latest". */
static bool launch_ask_name(struct launch *l, str *out, struct err *e)
{
    struct buf path;
    struct json v;
    buf_init(&path, 4096);
    buf_add_z(&path, "/v1/models/");
    for (size_t i = 0; i < l->model.len; i++)
        buf_printf(&path, "%%%02X", (unsigned)(unsigned char)l->model.p[i]);
    struct daemon_question q = {.method = "GET", .path = path.p, .timeout_ms = LAUNCH_ASK_MS};
    bool ok = !path.full ? launch_ask(l, &q, &v, e)
                         : err_set(e, ERR_USAGE, "launch: -model: %zu bytes are no name",
                                   l->model.len);
    buf_deinit(&path);
    if (ok)
        *out = json_text(json_member(v, "id"), l->c->arena);
    return ok;
}

/* Loads it, so that the first request of the agent does not wait, and asks how much it holds. */
static bool launch_load(struct launch *l, struct err *e)
{
    struct buf body;
    struct json v;
    str id;
    buf_init(&body, 65536);
    struct json_writer w = json_writer(&body);
    json_open_object(&w);
    json_key_z(&w, "model");
    json_put_text(&w, l->model);
    json_key_z(&w, "stream");
    json_put_bool(&w, false);
    json_close_object(&w);
    struct daemon_question load = {.method = "POST", .path = "/api/generate",
                                   .body = buf_view(&body), .timeout_ms = LAUNCH_LOAD_MS};
    const struct daemon_question status = {.method = "GET", .path = "/v1/status",
                                           .timeout_ms = LAUNCH_ASK_MS};
    bool ok = launch_ask(l, &load, &v, e) && launch_ask_name(l, &id, e) &&
              launch_ask(l, &status, &v, e);
    buf_deinit(&body);
    if (!ok)
        return false;
    for (struct json_walk m = json_walk(json_member(v, "models")); json_next(&m);) {
        str name = json_text(json_member(m.value, "name"), l->c->arena);
        if (str_eq(name, id))
            (void)json_i64(json_member(m.value, "context"), &l->context);
    }
    return l->context > 0 ||
           err_set(e, ERR_UPSTREAM, "launch: the server does not tell the model's context");
}

static bool launch_reach(struct launch *l, struct err *e)
{
    if (!daemon_find(l->c, &l->d, e))
        return false;
    if (str_starts(l->d.address, STR("unix:")))
        return err_set(e, ERR_USAGE, "launch: agents need HOST:PORT, not a unix socket");
    if (!daemon_is_there(&l->d)) {
        fprintf(stderr, "shoal: starting a server at %s\n", l->d.address.p);
        if (!daemon_start(l->c, &l->d, NULL, e))
            return false;
    }
    l->url = arena_printf(l->c->arena, "%s://%s",
                          l->d.is_tls ? "https" : "http", l->d.address.p);
    l->key = l->d.key.len ? l->d.key : STR("shoal");
    return l->url.p || err_set(e, ERR_MEMORY, "launch: no memory");
}

/* --- env, and the start ---------------------------------------------------------------------- */

static void launch_print_exports(const struct launch *l)
{
    for (size_t i = 0; i < l->vars_count; i++) {
        str value = l->vars[i].value;
        if (!value.p) {
            printf("unset %s\n", l->vars[i].name);
            continue;
        }
        printf("export %s='", l->vars[i].name);
        for (size_t k = 0; k < value.len; k++)
            if (value.p[k] == '\'')
                fputs("'\\''", stdout);
            else
                putchar(value.p[k]);
        puts("'");
    }
}

static bool launch_env(struct launch *l)
{
    launch_prepare_claude(l);
    launch_set_openai(l);
    launch_set(l, "OLLAMA_HOST", l->url);
    launch_print_exports(l);
    return true;
}

static bool launch_exec(struct launch *l, const struct launch_agent *agent, str program,
                        struct err *e)
{
    launch_add(l, program.p);
    agent->prepare(l);
    for (uint32_t i = 1; i < l->c->words_count; i++)
        launch_add(l, l->c->words[i].p);
    if (l->argc + 1 >= LAUNCH_ARGS_MAX)
        return err_set(e, ERR_USAGE, "launch: more than %d arguments", LAUNCH_ARGS_MAX - 40);
    for (size_t i = 0; i < l->vars_count; i++) {
        str value = l->vars[i].value;
        if ((value.p ? setenv(l->vars[i].name, value.p, 1) : unsetenv(l->vars[i].name)) != 0)
            return err_set_errno(e, errno, "launch: %s", l->vars[i].name);
    }
    fprintf(stderr, "shoal: %s on %s at %s, %lld tokens of context\n", agent->title, l->model.p,
            l->url.p, (long long)l->context);
    fflush(NULL);
    execv(program.p, (char *const *)(uintptr_t)l->argv);
    return err_set_errno(e, errno, "launch: %s", program.p);
}

static bool cmd_launch_run(struct cmd_context *c, struct err *e)
{
    struct launch l = {.c = c, .model = cmd_text(c, "model")};
    str name = c->words_count ? c->words[0] : (str){NULL, 0}, program = {NULL, 0};
    bool is_env = str_eq_z(name, "env");
    const struct launch_agent *agent = NULL;
    if (!is_env) {
        agent = name.len ? launch_find_agent(name) : launch_menu_agent(c, e);
        if (!agent)
            return name.len ? err_set(e, ERR_USAGE, "launch: unknown agent \"%.*s\": claude, "
                                      "codex, pi, hermes or env expected",
                                      STR_ARG(str_sub(name, 0, 40)))
                            : false;
        program = launch_program(c->arena, agent->program);
        if (!program.len)
            return err_set(e, ERR_NOT_FOUND, "launch: %s is not in PATH: %s", agent->program,
                           agent->get);
    }
    if (!l.model.len && !launch_is_interactive())
        return err_set(e, ERR_USAGE, "launch: -model missing");
    if (!launch_reach(&l, e) || (!l.model.len && !launch_menu_model(&l, e)) || !launch_load(&l, e))
        return false;
    return is_env ? launch_env(&l) : launch_exec(&l, agent, program, e);
}

static const struct cmd_flag cmd_launch_flags[] = {
    {.name = "model",
     .value = "MODEL",
     .spec = {.type = CONFIG_TYPE_TEXT},
     .help = "answers for every model that the agent names (a menu)"},
};

const struct cmd cmd_launch = {
    .name = "launch",
    .words = "[AGENT [-- ARGS...]]",
    .words_max = 200,
    .summary = "Start an agent that works with a model of this machine",
    .text = "AGENT is claude, codex, pi, hermes (best effort), or env, which prints shell "
            "exports.\nStarts a server if there is none, loads the model and tells the agent its "
            "true context.\nNo file is written; what stands behind -- goes to the agent.",
    .flags = cmd_launch_flags,
    .flags_count = countof(cmd_launch_flags),
    .takes_server = true,
    .flags_anywhere = true,
    .run = cmd_launch_run,
};
