#include "cli/config.h"

#include <math.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file.h"
#include "cli/config_yaml.h"

#define CONFIG_LIST_MAX 4096 /* items of a list or map */
#define CONFIG_KEY_MAX 128

/* --- the table ---
 *
 * To add a setting, add a row. docs/BEHAVIOUR.md 3.3 says what each means. */

#define HOUR_MS ((int64_t)3600 * 1000)
#define YEAR_MS (365 * 24 * HOUR_MS)
#define WORDS(w) {.type = CONFIG_TYPE_WORD, .words = (w)}
#define BOOL {.type = CONFIG_TYPE_BOOL}
#define INT(low, high) {.type = CONFIG_TYPE_INT, .min = (low), .max = (high)}
#define INT_OR(w, low, high)                                                                       \
    {.type = CONFIG_TYPE_INT, .words = (w), .min = (low), .max = (high)}
#define REAL(low, high) {.type = CONFIG_TYPE_REAL, .min = (low), .max = (high)}
#define DURATION {.type = CONFIG_TYPE_DURATION, .max = YEAR_MS}
#define DURATION_OR(w) {.type = CONFIG_TYPE_DURATION, .words = (w), .max = YEAR_MS}
#define WAIT {.type = CONFIG_TYPE_DURATION, .min = 1, .max = HOUR_MS} /* always ends */
#define HEADER_SIZE {.type = CONFIG_TYPE_SIZE, .min = 1024, .max = 16 << 20}
#define PIECE_SIZE {.type = CONFIG_TYPE_SIZE, .min = 4096, .max = 1 << 30}
#define SIZE {.type = CONFIG_TYPE_SIZE, .max = INT64_MAX}
#define SIZE_OR(w) {.type = CONFIG_TYPE_SIZE, .words = (w), .max = INT64_MAX}
#define TEXT {.type = CONFIG_TYPE_TEXT}
#define PATH {.type = CONFIG_TYPE_PATH}
#define PATH_OR(w) {.type = CONFIG_TYPE_PATH, .words = (w)}
#define LIST {.type = CONFIG_TYPE_LIST}
#define SECTION {.type = CONFIG_TYPE_SECTION}
/* A key of a feature that is not built: only its default is taken, its flag is refused by name. The
 * day it is built it becomes a ROW or a FLAG with its help. */
#define LATER(key, spec, standard) {key, spec, standard, NULL, NULL, true, NULL},
#define LATER_FLAG(key, spec, standard, flag, commands)                                            \
    {key, spec, standard, flag, commands, true, NULL},
#define ROW(key, spec, standard, help) {key, spec, standard, NULL, NULL, false, help},
#define FLAG(key, spec, standard, flag, commands, help)                                            \
    {key, spec, standard, flag, commands, false, help},

/* clang-format off */
const struct config_row config_rows[] = {
    FLAG("listen", LIST, NULL, "addr", "serve",
         "HOST:PORT or unix:/path; 127.0.0.1:11500 and [::1]:11500")
    FLAG("tls.cert", PATH, NULL, "tls-cert", "serve", "certificate with its chain (PEM): HTTPS on TCP listeners")
    FLAG("tls.key", PATH, NULL, "tls-key", "serve", "its key (PEM, mode 600)")
    ROW("allowed_hosts", LIST, NULL, "further names of this server in Host")
    ROW("allowed_origins", LIST, NULL, "web pages that may ask")
    ROW("ollama_version", TEXT, "0.13.0", "answer of /api/version; clients of Ollama look at it")
    ROW("store", PATH, "~/.shoal/models", "own store of models")
    ROW("sources.ollama", PATH_OR("auto off"), "auto", "Ollama's store, read only")
    ROW("sources.hf", PATH_OR("auto off"), "auto", "Hugging Face hub cache, read only")
    ROW("sources.lmstudio", PATH_OR("auto off"), "auto", "LM Studio's models, read only")
    ROW("sources.dirs", {.type = CONFIG_TYPE_PATHS}, "~/models", "further directories, read only")
    ROW("hub.endpoint", TEXT, "https://huggingface.co", "where models are pulled from")
    ROW("hub.mirrors", LIST, NULL, "hubs to try after it, in order")
    ROW("hub.token_file", PATH, NULL, "our token for the hub (else HF_TOKEN)")
    ROW("hub.ca_file", PATH, NULL, "PEM roots trusted besides the system's")
    ROW("hub.retry", WAIT, "1s", "first wait before a piece is asked for again; doubles")
    ROW("hub.idle", WAIT, "30s", "a connection without bytes for so long is given up")
    ROW("hub.piece", PIECE_SIZE, "32MiB", "a download's unit")
    ROW("hub.http_pull", BOOL, "false", "POST /api/pull and DELETE /api/delete work")
    ROW("hub.allow", LIST, "*", "repositories that may be pulled over HTTP, as globs")
    ROW("keys", SECTION, NULL, "who may ask, and for what")
    ROW("aliases", {.type = CONFIG_TYPE_MAP}, NULL, "name asked for (a glob) to local model")
    ROW("models", SECTION, NULL, "what one model is served with")
    ROW("legs", SECTION, NULL, "who can answer: engines and upstreams")
    ROW("routes", SECTION, NULL, "which legs answer whom, in which order")
    ROW("agents", SECTION, NULL, "limits of agents, by a glob of their names")
    ROW("engine.resident", INT(1, 16), "1", "models loaded beside each other")
    FLAG("engine.preload", LIST, NULL, "model", "serve", "model to load at start")
    FLAG("engine.ngl", INT_OR("auto", 0, 999), "auto", "ngl", "run plan serve",
         "layers on the GPU, the last so many: 0 none, auto all")
    LATER_FLAG("engine.host_experts", INT_OR("auto", 0, 999), "auto", "host-experts", "serve")
    FLAG("engine.ctx", INT(0, 1 << 24), "0", "ctx", "run plan serve", "context in tokens; 0: the model's")
    LATER_FLAG("engine.moe_cache", SIZE_OR("auto"), "auto", "moe-cache", "serve")
    FLAG("engine.slots", INT(0, 4096), "0", "slots", "plan serve", "sequences at once; 0: as memory allows")
    LATER_FLAG("engine.peers", LIST, NULL, "peers", "serve")
    FLAG("engine.threads", INT_OR("auto", 1, 256), "auto", "threads", "plan serve", "threads that compute")
    FLAG("engine.backend", WORDS("auto cpu cuda"), "auto", "backend", "run plan bench serve",
         "what computes: auto takes a GPU if there is one")
    LATER_FLAG("engine.gpus", LIST, "all", "gpu", "serve")
    FLAG("engine.batch", INT(0, 8192), "0", "batch", "plan serve", "prompt tokens of a step, 32 or more; 0: auto")
    FLAG("engine.keep_alive", {.type = CONFIG_TYPE_DURATION}, "5m", "keepalive", "serve", "an idle model stays so long; 0: unload at once, negative: stay")
    LATER_FLAG("engine.deterministic", BOOL, "false", "deterministic", "serve")
    FLAG("engine.kv", WORDS("f16 int8"), "f16", "kv", "run plan serve",
         "form of the KV cache: int8 takes half the memory of f16")
    LATER_FLAG("engine.draft", TEXT, "auto", "draft", "serve")
    ROW("engine.min_residency", DURATION, "20s", "a model keeps its place so long")
    ROW("engine.swap_wait", DURATION, "60s", "then another one waits at most so long for it")
    ROW("engine.step_target", DURATION_OR("auto"), "auto", "longest step beside running replies")
    FLAG("engine.activations", WORDS("auto float int8 int16"), "auto", "activations",
         "run plan bench serve",
         "inputs of quantised weights; int16 answers almost as float, slower")
    FLAG("cache.prefix", WORDS("auto off none no false 0"), "auto", "prefix", "serve", "reuse of prompts: auto off")
    ROW("cache.ram", SIZE_OR("auto"), "auto", "memory for pages that a GPU's pool has no room for; on a CPU: beside the pool")
    FLAG("cache.spill", PATH_OR("auto off"), "auto", "spill", "serve", "directory for prompts that survive a restart: auto off DIR")
    FLAG("cache.spill_size", SIZE_OR("auto"), "auto", "spill-size", "serve", "most that they take on the disk")
    ROW("cache.spill_floor", SIZE, "10GiB", "least that stays free on the disk beside them")
    ROW("cache.pin_quota", REAL(0, 1), "0.5", "share of a model's pool that pins may hold")
    ROW("cache.session_ttl", DURATION, "1h", "a session not used for so long is forgotten")
    ROW("cache.context_ttl", DURATION, "24h", "how long a saved context stays, if it does not say")
    ROW("cache.replay", BOOL, "true", "render past replies from the tokens that were sampled")
    ROW("cache.replay_size", SIZE, "64MiB", "memory of past replies")
    ROW("cache.replay_ttl", DURATION, "24h", "a past reply not used for so long is dropped")
    ROW("cache.normalise.client_header", BOOL, "true", "zero Claude Code's checksum per request")
    ROW("cache.normalise.clock", BOOL, "false", "round times of day in system texts to the day")
    ROW("cache.public", LIST, NULL, "files of prefixes that all keys share")
    ROW("cache.miss_ring", INT(0, 1 << 20), "1024", "records of prompts that were read again")
    ROW("cache.miss_excerpt", INT(0, 4096), "48", "bytes of text in such a record; 0: none")
    FLAG("limits.queue", INT(0, 65536), "1024", "queue", "serve", "waiting requests per model")
    ROW("limits.body", SIZE, "64MiB", "bytes of one request body")
    ROW("limits.ingress", SIZE, "512MiB", "bytes of all request bodies in memory")
    ROW("limits.connections", INT(1, 1 << 20), "4096", "connections at once")
    ROW("limits.headers", HEADER_SIZE, "64KiB", "bytes of a request's header")
    ROW("limits.header_time", WAIT, "10s", "for a whole request header")
    ROW("limits.upload_idle", WAIT, "30s", "a body without a byte for so long is given up")
    ROW("limits.reader_idle", WAIT, "120s", "a client that takes no byte for so long is gone")
    LATER("limits.json_depth", INT(1, 512), "128")
    ROW("limits.messages", INT(1, 1000000), "10000", "messages of a request")
    ROW("limits.tools", INT(0, 65536), "512", "tools of a request")
    ROW("limits.n", INT(1, 128), "8", "replies to one request")
    ROW("limits.stop", INT(0, 128), "16", "stop strings of a request")
    LATER("limits.images", INT(0, 1024), "32")
    LATER("limits.image_bytes", SIZE, "20MiB")
    ROW("limits.ping", DURATION, "5s", "silence in a stream after which it says what it waits for; 0: never")
    ROW("limits.defer_headers", DURATION, "10s", "a stream without a token so long begins with 200")
    ROW("limits.overlong_status", WORDS("auto 413 400"), "auto", "status of a prompt over the limit")
    ROW("limits.loop_tokens", INT(0, 1 << 24), "4096", "tokens of one repeated pattern that end a reply; 0: off")
    ROW("limits.grace", DURATION, "5s", "for running replies when the server stops")
    ROW("deadlines.connect", DURATION, "2s", "for a connection to an upstream; 0: none")
    ROW("deadlines.first_token", DURATION_OR("auto"), "auto", "for an upstream's first token; auto: by its history")
    ROW("deadlines.gap", DURATION, "20s", "between two tokens of an upstream; 0: none")
    ROW("deadlines.total", DURATION, "0", "for a whole reply; 0: none")
    FLAG("deadlines.max_wait", DURATION, "5m", "max-wait", "serve", "for a place; 0: none")
    FLAG("deadlines.max_gen", DURATION, "0", "max-gen", "serve", "for a reply from its first token on; 0: none")
    ROW("deadlines.all_open_wait", DURATION, "5s", "for a leg that may be asked again")
    ROW("deadlines.engine_stall", DURATION, "10s", "an engine child without progress for so long is replaced")
    ROW("deadlines.load_stall", DURATION, "30s", "a load that reads nothing for so long has failed")
    ROW("breaker.failures", INT(1, 1000), "5", "points in a row that open a leg's breaker")
    ROW("breaker.window", DURATION, "30s", "of the ratio")
    ROW("breaker.min_requests", INT(1, 100000), "10", "in the window before the ratio counts")
    ROW("breaker.ratio", REAL(0, 1), "0.5", "share of failures that opens it")
    ROW("breaker.cooldown", DURATION, "5s", "open so long, twice as long each time")
    ROW("breaker.cooldown_max", DURATION, "5m", "open at most so long")
    ROW("breaker.successes", INT(1, 1000), "2", "trials that close it")
    ROW("probes.free", BOOL, "true", "ask an upstream's model list when it is open or idle")
    ROW("probes.paid", BOOL, "false", "send a half-open leg without traffic a small billed request")
    ROW("probes.per_hour", INT(0, 60), "4", "billed requests of all legs in an hour")
    ROW("shadow.min_tokens", INT(0, 1 << 24), "2048", "prompts shorter than this are not warmed")
    ROW("shadow.share", REAL(0, 1), "0.25", "of an engine's time for warming; 0: none")
    LATER("fetch.allow", LIST, NULL)
    FLAG("logging.level", WORDS("error warn info debug trace"), "info", "log-level", "serve", "error warn info debug trace")
    ROW("logging.format", WORDS("text json"), "text", "form of the lines")
    ROW("logging.file", PATH, NULL, "where lines go; stderr")
    LATER("logging.content", BOOL, "false")
    LATER_FLAG("logging.record_dir", PATH, NULL, "record", "serve")
    ROW("metrics.agents", INT(0, 100000), "100", "agents with series of their own, the rest is \"other\"")
    {.key = NULL},
};
/* clang-format on */

const struct config_row *config_find_row(str key)
{
    for (const struct config_row *r = config_rows; r->key; r++)
        if (str_eq_z(key, r->key))
            return r;
    return NULL;
}

/* --- loading --- */

struct config_problems {
    struct buf *text; /* the caller's: a line each */
    uint32_t count;
};
struct config {
    struct config_value values[countof(config_rows)];
    const char *name; /* of its file in messages */
    str file;         /* the file, empty if there is none */
    char sha256[65];  /* of its text */
    struct config_problems *problems;
};

struct config_loader {
    struct config *c;
    struct arena *arena;
    const char *name; /* of the file */
    struct err *e;
};

/* Keeps going, so that one run shows all problems; e gets the first. */
static void config_problems_add(struct config_problems *p, enum err_code code, const char *text,
                                struct err *e)
{
    if (e->code == ERR_NONE)
        err_set(e, code, "%s", text);
    p->count++;
    if (p->count > CONFIG_PROBLEMS_MAX)
        return;
    buf_add_printable(p->text, str_of(text));
    buf_add_byte(p->text, '\n');
}

static void config_problem(struct config_loader *l, enum err_code code, const char *format, ...)
    BASE_PRINTF(3, 4);
static void config_problem(struct config_loader *l, enum err_code code, const char *format, ...)
{
    char text[ERR_TEXT_MAX * 2];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    config_problems_add(l->c->problems, code, text, l->e);
}

static void config_problem_at(struct config_loader *l, const struct config_yaml *n, const char *key,
                              const struct err *why)
{
    uint32_t line = n->key.p ? n->key_line : n->line, column = n->key.p ? n->key_column : n->column;
    config_problem(l, why->code, "%s:%u:%u: %s: %s", l->name, line, column, key, why->text);
}

/* As much of a row's key as has so many points more than none: "limits" of "limits.queue". */
static str config_head(str key, uint32_t points)
{
    size_t len = 0;
    while (len < key.len && (key.p[len] != '.' || points-- > 0))
        len++;
    return str_sub(key, 0, len);
}

/* The key or section on that level whose name is nearest, else the nearest key of any. */
static str config_nearest(str key)
{
    uint32_t best = 3, points = 0;
    str name = {NULL, 0};
    for (size_t i = 0; i < key.len; i++)
        points += key.p[i] == '.';
    for (const struct config_row *r = config_rows; r->key; r++) {
        const str names[] = {config_head(str_of(r->key), points), str_of(r->key)};
        for (size_t i = 0; i < countof(names); i++) {
            uint32_t d = str_distance(key, names[i], best);
            if (d < best || (d == best && !name.p)) {
                best = d;
                name = names[i];
            }
        }
    }
    return name;
}

static struct config_value *config_slot(struct config *c, const struct config_row *r)
{
    return &c->values[r - config_rows];
}

/* A list's or map's texts; only scalars may be inside. */
static bool config_take_items(struct config_loader *l, const struct config_row *r,
                              const struct config_yaml *n, struct err *e)
{
    bool is_map = r->spec.type == CONFIG_TYPE_MAP;
    struct config_value *v = config_slot(l->c, r);
    if (n->count > CONFIG_LIST_MAX)
        return err_set(e, ERR_CONFIG, "has %u items, at most %d are read", n->count,
                       CONFIG_LIST_MAX);
    str *items = ARENA_ARRAY(l->arena, str, (size_t)n->count * (is_map ? 2 : 1) + 1);
    if (!items)
        return err_set(e, ERR_MEMORY, "the configuration is too large");
    *v = (struct config_value){.is_set = true, .source = CONFIG_SOURCE_FILE, .items = items,
                               .section = n};
    for (const struct config_yaml *i = n->first; i; i = i->next) {
        if (i->kind != CONFIG_YAML_SCALAR || i->is_null)
            return config_spec_refuse(&r->spec, "something else inside", (str){NULL, 0}, e);
        if (is_map)
            items[v->items_count++] = i->key;
        bool is_path = r->spec.type == CONFIG_TYPE_PATHS;
        str text = i->text;
        if (is_path && !config_spec_path(&text, i->text, l->arena, e))
            return false;
        items[v->items_count++] = text;
    }
    return true;
}

/* The default of what is not built changes nothing, so a file that lists every key stays valid. */
static bool config_is_neutral(const struct config_row *r, str text)
{
    return r->standard ? str_eq_z(text, r->standard) : text.len == 0;
}

static bool config_take_later(const struct config_row *r, const struct config_yaml *n,
                              struct err *e)
{
    const struct config_yaml *only = n->kind == CONFIG_YAML_LIST && n->count == 1 ? n->first : n;
    str text = only->kind == CONFIG_YAML_SCALAR ? only->text : STR("");
    bool is_read = only->kind == CONFIG_YAML_SCALAR || n->count == 0;
    return (is_read && config_is_neutral(r, text)) ||
           err_set(e, ERR_UNSUPPORTED, "not built yet");
}

static bool config_take_node(struct config_loader *l, const struct config_row *r,
                             const struct config_yaml *n, struct err *e)
{
    bool wants_map = r->spec.type == CONFIG_TYPE_MAP;
    bool takes_list = r->spec.type == CONFIG_TYPE_LIST || r->spec.type == CONFIG_TYPE_PATHS;
    if (r->is_later)
        return config_take_later(r, n, e);
    if (r->spec.type == CONFIG_TYPE_SECTION) {
        if (n->kind == CONFIG_YAML_SCALAR)
            return config_spec_refuse(&r->spec, "a text", (str){NULL, 0}, e);
        *config_slot(l->c, r) = (struct config_value){.is_set = true, .section = n,
                                                      .source = CONFIG_SOURCE_FILE};
        return true;
    }
    if (wants_map ? n->kind == CONFIG_YAML_MAP : takes_list && n->kind == CONFIG_YAML_LIST)
        return config_take_items(l, r, n, e);
    if (n->kind != CONFIG_YAML_SCALAR)
        return config_spec_refuse(&r->spec, n->kind == CONFIG_YAML_MAP ? "a map" : "a list",
                             (str){NULL, 0}, e);
    if (n->is_null)
        return config_spec_refuse(&r->spec, "nothing", (str){NULL, 0}, e);
    struct config_value v = {.source = CONFIG_SOURCE_FILE};
    if (!config_spec_parse(&r->spec, n->text, l->arena, &v, e))
        return false;
    *config_slot(l->c, r) = v;
    return true;
}

static bool config_is_prefix(const char *prefix)
{
    size_t len = strlen(prefix);
    for (const struct config_row *r = config_rows; r->key; r++)
        if (!strncmp(r->key, prefix, len) && r->key[len] == '.')
            return true;
    return false;
}

/* Depth is limited by the YAML reader, and by the rows' keys. */
static void config_take_map(struct config_loader *l, const char *prefix,
                            const struct config_yaml *map)
{
    for (const struct config_yaml *n = map->first; n; n = n->next) {
        char key[CONFIG_KEY_MAX];
        struct err why = {0};
        snprintf(key, sizeof key, "%s%s%.*s", prefix, *prefix ? "." : "", STR_ARG(n->key));
        const struct config_row *r = config_find_row(str_of(key));
        if (r) { /* "a: {b: 1}" and "a.b: 1" are one key */
            bool is_new = config_slot(l->c, r)->source != CONFIG_SOURCE_FILE ||
                          err_set(&why, ERR_CONFIG, "stands twice");
            if (!is_new || !config_take_node(l, r, n, &why))
                config_problem_at(l, n, key, &why);
        } else if (config_is_prefix(key) && n->kind == CONFIG_YAML_MAP) {
            config_take_map(l, key, n);
        } else if (config_is_prefix(key)) {
            err_set(&why, ERR_CONFIG, "a map of settings expected");
            config_problem_at(l, n, key, &why);
        } else {
            str near = config_nearest(str_of(key));
            err_set(&why, ERR_CONFIG, "unknown key%s%.*s%s", near.p ? "; did you mean " : "",
                    STR_ARG(near), near.p ? "?" : "");
            config_problem_at(l, n, key, &why);
        }
    }
}

static void config_take_yaml(struct config_loader *l, str text)
{
    struct config_yaml *root;
    struct err why = {0};
    if (!config_yaml_parse(&root, text, l->arena, &why))
        config_problem(l, ERR_CONFIG, "%s:%s", l->name, why.text);
    else if (root && root->kind == CONFIG_YAML_MAP)
        config_take_map(l, "", root);
    else if (root && !root->is_null)
        config_problem(l, ERR_CONFIG, "%s:%u:%u: a map of settings expected", l->name, root->line,
                       root->column);
}

static void config_take_env(struct config_loader *l)
{
    for (const struct config_row *r = config_rows; r->key; r++) {
        char name[CONFIG_KEY_MAX] = "SHOAL_";
        struct err why = {0};
        if (r->spec.type >= CONFIG_TYPE_LIST)
            continue;
        for (size_t i = 0; r->key[i]; i++) {
            char c = r->key[i];
            name[6 + i] = c == '.' ? '_' : c >= 'a' && c <= 'z' ? (char)(c - 32) : c;
        }
        const char *text = getenv(name);
        if (!text)
            continue;
        struct config_value v = {.source = CONFIG_SOURCE_ENV};
        if (r->is_later && config_is_neutral(r, str_of(text)))
            continue;
        if (r->is_later)
            config_problem(l, ERR_UNSUPPORTED, "%s: not built yet", name);
        else if (config_spec_parse(&r->spec, str_of(text), l->arena, &v, &why))
            *config_slot(l->c, r) = v;
        else
            config_problem(l, why.code, "%s: %s", name, why.text);
    }
}

/* The last one wins; of a list each is an item. */
static void config_take_flag(struct config_loader *l, struct config_value *to,
                             const struct config_value *v)
{
    if (to->source != CONFIG_SOURCE_FLAG || !v->items) {
        *to = *v;
        return;
    }
    str *items = ARENA_ARRAY(l->arena, str, (size_t)to->items_count + 1);
    if (!items)
        return; /* the arena says so at the end */
    for (uint32_t i = 0; i < to->items_count; i++)
        items[i] = to->items[i];
    items[to->items_count] = v->items[0];
    to->items = items;
    to->items_count++;
}

static void config_take_flags(struct config_loader *l, const struct config_input *in)
{
    for (uint32_t i = 0; i < in->flags_count; i++) {
        const struct config_row *r = in->flags[i].row;
        struct err why = {0};
        struct config_value v = {.source = CONFIG_SOURCE_FLAG};
        if (config_spec_parse(&r->spec, in->flags[i].text, l->arena, &v, &why))
            config_take_flag(l, config_slot(l->c, r), &v);
        else
            config_problem(l, ERR_USAGE, "-%s: %s", r->flag, why.text);
    }
}

static void config_take_defaults(struct config_loader *l)
{
    for (const struct config_row *r = config_rows; r->key; r++) {
        struct config_value v = {.source = CONFIG_SOURCE_DEFAULT};
        struct err why = {0};
        bool is_nowhere = r->standard && r->standard[0] == '~' && !config_home(l->arena).len;
        if (is_nowhere)
            v.text = STR(""); /* who needs it says so */
        else if (r->standard && !r->is_later)
            must(config_spec_parse(&r->spec, str_of(r->standard), l->arena, &v, &why));
        *config_slot(l->c, r) = v;
    }
}

/* From each alias its target is followed as a name asked for; more steps than aliases: a loop. */
static void config_check_aliases(struct config_loader *l)
{
    const struct config_value *v = config_value(l->c, "aliases");
    uint32_t count = v->items_count / 2;
    for (uint32_t start = 0; start < count; start++) {
        str name = v->items[2 * start + 1];
        bool goes_on = true;
        uint32_t steps = 0;
        for (; goes_on && steps <= count; steps++) {
            goes_on = false;
            for (uint32_t i = 0; i < count && !goes_on; i++)
                if (str_glob(v->items[2 * i], name)) {
                    goes_on = !str_eq(name, v->items[2 * i + 1]);
                    name = v->items[2 * i + 1];
                    break;
                }
        }
        if (steps > count) {
            struct err why = {0};
            const struct config_yaml *n = v->section->first;
            while (start-- > 0)
                n = n->next;
            err_set(&why, ERR_CONFIG, "%.*s leads back to itself",
                    STR_ARG(str_sub(n->key, 0, 80)));
            config_problem_at(l, n, "aliases", &why);
            return;
        }
    }
}

void config_problems_end(const struct config *c)
{
    if (c->problems->count > CONFIG_PROBLEMS_MAX)
        buf_printf(c->problems->text, "and %u more\n",
                   c->problems->count - CONFIG_PROBLEMS_MAX);
}

static bool config_finish(struct config_loader *l, struct config **out)
{
    if (l->arena->is_full)
        config_problem(l, ERR_MEMORY, "the configuration is too large");
    else
        config_check_aliases(l);
    config_problems_end(l->c);
    l->c->name = l->name;
    *out = l->c;
    return l->c->problems->count == 0;
}

static bool config_begin(struct config_loader *l, struct arena *a, struct buf *problems,
                         struct err *e)
{
    *l = (struct config_loader){.arena = a, .name = "config.yaml", .e = e};
    *e = (struct err){0};
    l->c = ARENA_NEW(a, struct config);
    struct config_problems *p = ARENA_NEW(a, struct config_problems);
    if (!l->c || !p)
        return err_set(e, ERR_MEMORY, "no memory for the configuration");
    p->text = problems;
    l->c->problems = p;
    config_take_defaults(l);
    return true;
}

bool config_load_text(struct config **out, const char *name, str yaml, struct arena *a,
                      struct buf *problems, struct err *e)
{
    struct config_loader l;
    if (!config_begin(&l, a, problems, e))
        return false;
    l.name = name;
    config_take_yaml(&l, yaml);
    config_take_env(&l);
    return config_finish(&l, out);
}

/* The file's path; false: none is asked for and there is no usual one. */
static bool config_find_file(const struct config_input *in, struct arena *a, const char **path)
{
    struct file_info info;
    struct err none;
    const char *env = getenv("SHOAL_CONFIG");
    *path = in->path ? in->path : env && *env ? env : NULL;
    if (*path)
        return true;
    *path = file_expand_home(a, STR("~/.shoal/config.yaml"), config_home(a)).p;
    return *path && (file_stat(&info, *path, &none) || none.code != ERR_NOT_FOUND);
}

static bool config_note_file(struct config_loader *l, str text, struct err *e)
{
    struct digest_sha256 d;
    uint8_t sum[32];
    digest_sha256_init(&d);
    digest_sha256_add(&d, text);
    if (!digest_sha256_end(&d, sum, e))
        return false;
    digest_hex(l->c->sha256, sum, sizeof sum);
    l->c->file = arena_copy(l->arena, str_of(l->name));
    return true;
}

bool config_load(struct config **out, const struct config_input *in, struct arena *a,
                 struct buf *problems, struct err *e)
{
    struct config_loader l;
    struct err why = {0};
    str text;
    if (!config_begin(&l, a, problems, e))
        return false;
    if (config_find_file(in, a, &l.name)) {
        if (!file_read(&text, l.name, CONFIG_FILE_MAX, a, &why) ||
            !config_note_file(&l, text, &why))
            return err_set(e, why.code, "%s", why.text); /* told as any other error */
        config_take_yaml(&l, text);
    }
    config_take_env(&l);
    config_take_flags(&l, in);
    return config_finish(&l, out);
}

/* --- reading --- */

const struct config_value *config_value(const struct config *c, const char *key)
{
    const struct config_row *r = config_find_row(str_of(key));
    must(r && !r->is_later);
    return &c->values[r - config_rows];
}

int64_t config_number(const struct config *c, const char *key)
{
    return config_value(c, key)->number;
}

bool config_bool(const struct config *c, const char *key) { return config_number(c, key) != 0; }
str config_text(const struct config *c, const char *key) { return config_value(c, key)->text; }

bool config_is(const struct config *c, const char *key, const char *word)
{
    const struct config_value *v = config_value(c, key);
    return v->is_word && str_eq_z(v->text, word);
}

void config_tell(const struct config *c, const struct config_yaml *n, const char *key,
                 const struct err *why, struct err *e)
{
    char text[ERR_TEXT_MAX * 2];
    if (n)
        snprintf(text, sizeof text, "%s:%u:%u: %s: %s", c->name,
                 n->key.p ? n->key_line : n->line, n->key.p ? n->key_column : n->column, key,
                 why->text);
    else
        snprintf(text, sizeof text, "%s", why->text);
    config_problems_add(c->problems, why->code, text, e);
}

uint32_t config_told(const struct config *c) { return c->problems->count; }

static bool config_is_same_yaml(const struct config_yaml *a, const struct config_yaml *b)
{
    if (!a || !b)
        return a == b;
    if (a->kind != b->kind || a->is_null != b->is_null || a->count != b->count ||
        !str_eq(a->text, b->text) || !str_eq(a->key, b->key))
        return false;
    const struct config_yaml *i = a->first, *k = b->first;
    for (; i && k; i = i->next, k = k->next)
        if (!config_is_same_yaml(i, k)) /* CONFIG_YAML_DEPTH bounds it */
            return false;
    return i == k;
}

bool config_is_same(const struct config *a, const struct config *b, const struct config_row *r)
{
    const struct config_value *x = &a->values[r - config_rows], *y = &b->values[r - config_rows];
    if (x->is_set != y->is_set || !str_eq(x->text, y->text) || x->items_count != y->items_count)
        return false;
    for (uint32_t i = 0; i < x->items_count; i++)
        if (!str_eq(x->items[i], y->items[i]))
            return false;
    return config_is_same_yaml(x->section, y->section);
}

str config_file(const struct config *c) { return c->file; }
str config_file_sha256(const struct config *c) { return str_of(c->sha256); }

str config_env(const char *name)
{
    static const char *const names[] = {
        "COLUMNS", "HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HF_TOKEN", "HOME", "HTTPS_PROXY",
        "HTTP_PROXY", "NO_PROXY", "OLLAMA_MODELS", "PATH", "SHOAL_ADDR", "SHOAL_DEBUG_SCHED",
        "SHOAL_HUB", "SHOAL_KEY", "SUDO_USER", "TERM", "USER", "XDG_CONFIG_HOME",
    };
    size_t i = 0;
    while (i < countof(names) && strcmp(names[i], name) != 0)
        i++;
    must(i < countof(names));
    return str_of(getenv(name));
}

str config_secret(str name, struct arena *a)
{
    str z = arena_copy(a, name);
    return z.p ? str_of(getenv(z.p)) : z;
}

str config_home(struct arena *a)
{
    str home = config_env("HOME");
    if (home.len)
        return home;
    struct passwd entry, *found = NULL;
    char text[4096];
    if (getpwuid_r(getuid(), &entry, text, sizeof text, &found) != 0 || !found)
        return (str){NULL, 0};
    return arena_copy(a, str_of(found->pw_dir));
}
