#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/daemon.h"
#include "cli/run_repl.h"

/* --- flags --------------------------------------------------------------------------------- */

static const struct cmd_flag cmd_run_flags[] = {
    {.name = "local", .spec = {.type = CONFIG_TYPE_BOOL}, .standard = "false",
     .help = "a private engine child instead of a server"},
    {.name = "system", .value = "TEXT", .spec = {.type = CONFIG_TYPE_TEXT},
     .help = "system text of the conversation"},
    {.name = "n", .value = "N", .spec = {.type = CONFIG_TYPE_INT, .max = INT32_MAX},
     .standard = "0", .help = "at most so many tokens of reply; 0: no limit"},
    {.name = "temp", .value = "T", .spec = {.type = CONFIG_TYPE_REAL, .max = 5},
     .help = "temperature; 0: always the likeliest token (the model's own, else 0.8)"},
    {.name = "seed", .value = "N", .spec = {.type = CONFIG_TYPE_INT, .min = 1, .max = INT64_MAX},
     .help = "of the draws: the same seed, the same reply (a new one for each reply)"},
    {.name = "format", .value = "json|@FILE", .spec = {.type = CONFIG_TYPE_TEXT},
     .help = "the reply is a JSON object, or fits the JSON Schema in FILE"},
    {.name = "think", .value = "LEVEL",
     .spec = {.type = CONFIG_TYPE_WORD, .words = "auto on off low medium high max"},
     .standard = "auto", .help = "reasoning: auto on off low medium high max"},
    {.name = "keepalive", .value = "DURATION", .spec = {.type = CONFIG_TYPE_TEXT},
     .help = "the server keeps the model so long (its own setting)"},
    {.name = "timings", .spec = {.type = CONFIG_TYPE_BOOL}, .standard = "false",
     .help = "a line of numbers after each reply"},
    {.name = "image", .value = "FILE", .spec = {.type = CONFIG_TYPE_PATH}, .is_repeatable = true,
     .is_later = true},
};

#define CMD_RUN_SCHEMA_MAX ((size_t)1 << 20)

/* -format json, or @FILE with a schema: the whole file is one JSON value. */
static bool cmd_run_format(const struct cmd_context *c, struct api_format *f, struct err *e)
{
    str word = cmd_text(c, "format");
    struct json schema;
    if (!word.len)
        return true;
    if (str_eq_z(word, "json")) {
        f->kind = API_FORMAT_JSON;
        return true;
    }
    if (word.p[0] != '@' || word.len == 1)
        return err_set(e, ERR_USAGE, "run: -format: \"%.*s\" is neither json nor @FILE",
                       STR_ARG(word));
    *f = (struct api_format){.kind = API_FORMAT_SCHEMA, .path = STR("format")};
    if (!file_read(&f->text, word.p + 1, CMD_RUN_SCHEMA_MAX, c->arena, e))
        return false;
    return json_parse(&schema, f->text, &(struct json_options){.depth_max = JSON_DEPTH_MAX},
                      c->arena, e) ||
           err_wrap(e, "run: -format: %s", word.p + 1);
}

static void cmd_run_think(const struct cmd_context *c, struct api_request *rq)
{
    str level = cmd_text(c, "think");
    if (str_eq_z(level, "off")) {
        rq->effort = API_EFFORT_NONE;
        rq->think = API_THINK_OFF;
        rq->given |= API_GIVEN(THINK) | API_GIVEN(EFFORT);
    } else if (str_eq_z(level, "on")) {
        rq->think = API_THINK_ON;
        rq->given |= API_GIVEN(THINK);
    } else if (api_request_effort_of(level, &rq->effort)) {
        rq->given |= API_GIVEN(EFFORT);
    }
}

/* BEHAVIOUR 7.1, column `run`. What the model's own file says goes before these: not given. */
static bool cmd_run_request(const struct cmd_context *c, struct run_local_options *o,
                            struct err *e)
{
    struct api_request *rq = &o->chat;
    api_request_init(rq);
    rq->temperature = 0.8f;
    rq->top_k = 40;
    rq->top_p = 0.9f;
    rq->repeat_penalty = 1.1f;
    rq->repeat_last = 64;
    rq->tokens_max = (uint32_t)cmd_number(c, "n");
    rq->priority = API_PRIORITY_HIGH;
    if (cmd_is_given(c, "temp")) {
        rq->temperature = (float)cmd_real(c, "temp");
        rq->given |= API_GIVEN(TEMPERATURE);
    }
    if (cmd_is_given(c, "seed")) {
        rq->seed = (uint64_t)cmd_number(c, "seed");
        rq->given |= API_GIVEN(SEED);
        o->has_seed = true;
    }
    cmd_run_think(c, rq);
    return cmd_run_format(c, &rq->format, e);
}

/* --- the prompt ---------------------------------------------------------------------------- */

static bool cmd_run_read_stdin(struct buf *b, struct err *e)
{
    char bytes[65536];
    ssize_t n;
    while ((n = read(STDIN_FILENO, bytes, sizeof bytes)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set_errno(e, errno, "reading the prompt from stdin");
        if (!buf_add_bytes(b, bytes, (size_t)n))
            return err_set(e, ERR_LIMIT, "the prompt is longer than %zu bytes", b->size_max);
    }
    return true;
}

/* Words joined by blanks; what comes on stdin follows after a blank line. */
static bool cmd_run_prompt(const struct cmd_context *c, struct buf *b, struct err *e)
{
    for (uint32_t i = 1; i < c->words_count; i++) {
        if (i > 1)
            buf_add_byte(b, ' ');
        buf_add(b, c->words[i]);
    }
    if (isatty(STDIN_FILENO))
        return true;
    size_t words = b->len;
    if (words)
        buf_add_z(b, "\n\n");
    size_t before = b->len;
    if (!cmd_run_read_stdin(b, e))
        return false;
    if (b->len == before)
        b->len = words;
    if (str_utf8_valid(buf_view(b)) != b->len)
        return err_set(e, ERR_REQUEST, "the prompt is not valid UTF-8 at byte %zu",
                       str_utf8_valid(buf_view(b)));
    return true;
}

/* --- run ----------------------------------------------------------------------------------- */

static bool cmd_run_history(const struct cmd_context *c, str *path)
{
    str home = config_home(c->arena);
    if (!home.len)
        return false;
    str folder = arena_printf(c->arena, "%.*s/.shoal", STR_ARG(home));
    *path = arena_printf(c->arena, "%.*s/history", STR_ARG(folder));
    return folder.p && path->p && (mkdir(folder.p, 0700) == 0 || errno == EEXIST);
}

static bool cmd_run_talk(const struct cmd_context *c, struct run_local *r, struct err *e)
{
    struct buf prompt;
    str history = STR("");
    buf_init(&prompt, RUN_REPL_INPUT_MAX);
    bool ok = cmd_run_prompt(c, &prompt, e);
    if (ok && prompt.len == 0 && isatty(STDIN_FILENO)) {
        if (!cmd_run_history(c, &history))
            history = STR("");
        ok = run_repl(r, history.p, e);
    } else if (ok && prompt.len == 0) {
        ok = err_set(e, ERR_USAGE, "run: no prompt, neither as words nor on stdin");
    } else if (ok) {
        ok = run_local_ask(r, buf_view(&prompt), e);
    }
    buf_deinit(&prompt);
    return ok;
}

/* A server that we start gets what was said here about loading. */
static bool cmd_run_start(const struct cmd_context *c, const struct daemon *d, struct err *e)
{
    static const char *const keys[] = {"engine.ctx", "engine.ngl", "engine.backend", "engine.kv",
                                       "engine.activations"};
    const char *args[2 * countof(keys) + 3] = {NULL};
    size_t n = 0;
    for (size_t i = 0; i < countof(keys); i++) {
        const struct config_value *v = config_value(c->config, keys[i]);
        if (v->source != CONFIG_SOURCE_FLAG)
            continue;
        args[n++] = arena_printf(c->arena, "-%s", config_find_row(str_of(keys[i]))->flag).p;
        args[n++] = v->text.p;
    }
    if (cmd_is_given(c, "keepalive")) {
        args[n++] = "-keepalive";
        args[n++] = cmd_text(c, "keepalive").p;
    }
    return daemon_start(c, d, args, e);
}

/* The server's own name of the model: a path or the beginning of a name is for the command line.
 * One that is not known here may be known there. */
static str cmd_run_name(const struct cmd_context *c)
{
    struct library_entry model;
    struct err none;
    return cmd_models_find(c, c->words[0], &model, &none) ? model.name : c->words[0];
}

static bool cmd_run_remote(struct cmd_context *c, struct run_local_options *o, struct err *e)
{
    struct daemon d;
    struct run_local *r = NULL;
    if (!cmd_run_request(c, o, e))
        return false;
    o->chat.context_max = (uint32_t)config_number(c->config, "engine.ctx");
    o->keep_alive = cmd_text(c, "keepalive");
    if (!daemon_find(c, &d, e) || (!daemon_is_there(&d) && !cmd_run_start(c, &d, e)))
        return false;
    o->load.name = cmd_run_name(c);
    o->daemon = &d;
    if (!run_local_open(&r, o, e))
        return false;
    bool ok = cmd_run_talk(c, r, e);
    run_local_close(r);
    return ok;
}

static bool cmd_run_run(struct cmd_context *c, struct err *e)
{
    struct run_local_options o = {.system = cmd_text(c, "system"),
                                  .timings = cmd_bool(c, "timings")};
    struct run_local *r = NULL;
    struct library_entry model;
    /* A failure reaches the user as one sentence; lines of a log beside it would only hide that. */
    log_init(&(struct log_options){.level = LOG_LEVEL_WARN, .fd = -1, .name = "run"});
    if (!cmd_bool(c, "local"))
        return cmd_run_remote(c, &o, e);
    if (!cmd_models_find(c, c->words[0], &model, e))
        return false;
    if (model.broken.len)
        return err_set(e, ERR_FORMAT, "%.*s: %.*s", STR_ARG(model.name), STR_ARG(model.broken));
    if (model.is_safetensors)
        return err_set(e, ERR_UNSUPPORTED, "%.*s: safetensors models are not built yet",
                       STR_ARG(model.name));
    o.load = (struct api_load){.path = model.path, .name = model.name, .slots = 1};
    if (!run_local_load(c->config, &o.load, e))
        return false;
    if (!cmd_run_request(c, &o, e))
        return false;
    o.engine_stall_ms = config_number(c->config, "deadlines.engine_stall");
    o.load_stall_ms = config_number(c->config, "deadlines.load_stall");
    if (!run_local_open(&r, &o, e))
        return false;
    bool ok = cmd_run_talk(c, r, e);
    run_local_close(r);
    return ok;
}

const struct cmd cmd_run = {
    .name = "run",
    .words = "MODEL [PROMPT...]",
    .words_min = 1,
    .words_max = UINT16_MAX,
    .summary = "Talk to a model",
    .text = "Without a prompt on a terminal: a conversation; /help lists its commands.\n"
            "Else the prompt is the words, then what comes on stdin.",
    .flags = cmd_run_flags,
    .flags_count = countof(cmd_run_flags),
    .refuses_late_flags = true,
    .takes_server = true,
    .run = cmd_run_run,
};
