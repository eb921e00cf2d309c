#include "cli/config_legs.h"

#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/config_keys.h"
#include "cli/config_yaml.h"
#include "route/deadline.h"

#define CONFIG_LEGS_INFLIGHT 64
#define CONFIG_LEGS_TOKENS_MAX (1 << 30)
#define AT(member) offsetof(struct legs_row, member)
#define MATCH(member) offsetof(struct router_match, member)
#define CONFIG_LEGS_DAY_MS ((int64_t)24 * 3600 * 1000)

struct config_legs_field;
/* What is being read. */
struct config_legs {
    const struct config *c;
    struct legs_config *out;
    struct legs_row *rows;
    struct router_route *routes;
    struct arena *a;
    struct legs_row *row;      /* the leg at hand */
    struct router_route *route;
    const struct config_legs_field *field; /* at hand */
    const char *path;                      /* of the map at hand: "legs.claude" */
    uint32_t told;                         /* problems */
    struct err *e;
};
struct config_legs_field {
    const char *name;
    enum config_yaml_kind kind;
    bool (*read)(struct config_legs *r, const struct config_yaml *n, struct err *e);
    size_t at;        /* for readers of several fields: where in the leg or the match */
    int64_t min, max; /* of a number */
};

/* --- fields of any section ----------------------------------------------------------------- */

static const char *config_legs_kind(enum config_yaml_kind kind)
{
    static const char *const names[] = {"text", "list", "map"};
    return names[kind];
}

static void config_legs_tell(struct config_legs *r, const struct config_yaml *n, const char *path,
                             const struct err *why)
{
    r->told++;
    config_tell(r->c, n, path, why, r->e);
}

/* "legs.claude" and the node's own key. */
static const char *config_legs_path(const struct config_legs *r, const struct config_yaml *n)
{
    str path = arena_printf(r->a, "%s.%.*s", r->path, STR_ARG(str_sub(n->key, 0, 48)));
    return path.p ? path.p : r->path;
}

static bool config_legs_field(struct config_legs *r, const struct config_yaml *n,
                              const struct config_legs_field *fields, size_t count, struct err *e)
{
    size_t i = 0;
    while (i < count && !str_eq_z(n->key, fields[i].name))
        i++;
    if (i == count)
        return err_set(e, ERR_CONFIG, "unknown field");
    if (n->kind != fields[i].kind || n->is_null)
        return err_set(e, ERR_CONFIG, "a %s expected", config_legs_kind(fields[i].kind));
    r->field = &fields[i];
    return fields[i].read(r, n, e);
}

/* Tells every problem of the map with its own place. */
static void config_legs_fields(struct config_legs *r, const struct config_yaml *map,
                               const struct config_legs_field *fields, size_t count)
{
    struct err why = {0};
    if (map->kind != CONFIG_YAML_MAP) {
        err_set(&why, ERR_CONFIG, "a map expected, got a %s", config_legs_kind(map->kind));
        config_legs_tell(r, map, r->path, &why);
        return;
    }
    for (const struct config_yaml *n = map->first; n; n = n->next)
        if (!config_legs_field(r, n, fields, count, &why))
            config_legs_tell(r, n, config_legs_path(r, n), &why);
}

/* A map in a map. True: what is wrong inside has been told. */
static bool config_legs_inner(struct config_legs *r, const struct config_yaml *map,
                              const struct config_legs_field *fields, size_t count)
{
    const char *outer = r->path;
    r->path = config_legs_path(r, map);
    config_legs_fields(r, map, fields, count);
    r->path = outer;
    return true;
}

static bool config_legs_value(struct config_legs *r, const struct config_yaml *n,
                              const struct config_spec *spec, struct config_value *v, struct err *e)
{
    *v = (struct config_value){.source = CONFIG_SOURCE_FILE};
    return config_spec_parse(spec, n->text, r->a, v, e);
}

/* A number of the leg, by the field's range. */
static bool config_legs_read_count(struct config_legs *r, const struct config_yaml *n,
                                   struct err *e)
{
    const struct config_spec spec = {.type = CONFIG_TYPE_INT, .min = r->field->min,
                                     .max = r->field->max};
    struct config_value v;
    uint32_t *to = (uint32_t *)(void *)((char *)r->row + r->field->at);
    if (!config_legs_value(r, n, &spec, &v, e))
        return false;
    *to = (uint32_t)v.number;
    return true;
}

/* A text of the leg that may not be empty. */
static bool config_legs_read_text(struct config_legs *r, const struct config_yaml *n, struct err *e)
{
    *(str *)(void *)((char *)r->row + r->field->at) = n->text;
    return n->text.len > 0 || err_set(e, ERR_CONFIG, "a text expected");
}

static bool config_legs_take_duration(struct config_legs *r, const struct config_yaml *n,
                                      const char *words, struct err *e)
{
    const struct config_spec spec = {.type = CONFIG_TYPE_DURATION, .words = words,
                                     .max = CONFIG_LEGS_DAY_MS};
    struct config_value v;
    int64_t *to = (int64_t *)(void *)((char *)r->row + r->field->at);
    if (!config_legs_value(r, n, &spec, &v, e))
        return false;
    *to = v.is_word ? DEADLINE_AUTO : v.number;
    return true;
}

static bool config_legs_read_duration(struct config_legs *r, const struct config_yaml *n,
                                      struct err *e)
{
    return config_legs_take_duration(r, n, NULL, e);
}

static bool config_legs_read_auto(struct config_legs *r, const struct config_yaml *n, struct err *e)
{
    return config_legs_take_duration(r, n, "auto", e);
}

/* --- one leg ------------------------------------------------------------------------------- */

static bool config_legs_read_kind(struct config_legs *r, const struct config_yaml *n, struct err *e)
{
    const struct config_spec spec = {.type = CONFIG_TYPE_WORD, .words = "engine upstream"};
    struct config_value v;
    if (!config_legs_value(r, n, &spec, &v, e))
        return false;
    r->row->kind = str_eq_z(n->text, "engine") ? LEG_KIND_ENGINE : LEG_KIND_UPSTREAM;
    return true;
}

static bool config_legs_read_dialect(struct config_legs *r, const struct config_yaml *n,
                                     struct err *e)
{
    static const struct {
        const char *word, *name;
    } rows[] = {{"anthropic", "anthropic"}, {"openai", "openai_chat"},
                {"responses", "openai_responses"}, {"ollama", "ollama"}};
    for (size_t i = 0; i < countof(rows); i++)
        if (str_eq_z(n->text, rows[i].word))
            r->row->dialect = dialect_of(str_of(rows[i].name));
    return r->row->dialect ||
           err_set(e, ERR_CONFIG, "anthropic, openai, responses or ollama expected, got \"%.*s\"",
                   STR_ARG(str_sub(n->text, 0, 40)));
}

/* "host", "host:port", "[v6]:port": is there no port, or one from 1 to 65535? */
static bool config_legs_has_good_port(str host)
{
    size_t close = str_find_byte(host, ']'), colon;
    uint64_t port = 0;
    if (close != STR_NONE)
        host = str_from(host, close + 1);
    colon = str_find_byte(host, ':');
    if (colon == STR_NONE)
        return close == STR_NONE || host.len == 0;
    return str_to_u64(str_from(host, colon + 1), &port) && port >= 1 && port <= 65535;
}

/* "http://host:port/base": without a slash at the end, and without /v1. */
static bool config_legs_read_url(struct config_legs *r, const struct config_yaml *n, struct err *e)
{
    str url = n->text;
    while (str_ends(url, STR("/")))
        url.len--;
    size_t at = str_starts(url, STR("https://")) ? strlen("https://")
                : str_starts(url, STR("http://")) ? strlen("http://")
                                                  : 0;
    str host = str_from(url, at);
    bool is_plain = str_find_byte(host, '@') == STR_NONE && str_find_byte(host, '?') == STR_NONE &&
                    str_find_byte(host, '#') == STR_NONE && str_find_byte(host, ' ') == STR_NONE;
    if (!at || host.len == 0 || host.p[0] == '/' || host.p[0] == ':' || !is_plain)
        return err_set(e, ERR_CONFIG, "http://HOST or https://HOST without user, query and "
                       "fragment expected, got \"%.*s\"", STR_ARG(str_sub(n->text, 0, 80)));
    if (!config_legs_has_good_port(str_sub(host, 0, str_find_byte(host, '/'))))
        return err_set(e, ERR_CONFIG, "a port 1..65535 expected behind the host, got \"%.*s\"",
                       STR_ARG(str_sub(n->text, 0, 80)));
    if (str_ends(url, STR("/v1")))
        return err_set(e, ERR_CONFIG, "the part before /v1 expected, got \"%.*s\"",
                       STR_ARG(str_sub(n->text, 0, 80)));
    r->row->url = arena_copy(r->a, url);
    return true;
}

static bool config_legs_read_ca(struct config_legs *r, const struct config_yaml *n, struct err *e)
{
    struct file_info info;
    r->row->ca_file = file_expand_home(r->a, n->text, config_home(r->a));
    return r->row->ca_file.p && file_stat(&info, r->row->ca_file.p, e);
}

static bool config_legs_has_no_key(const struct config_legs *r, struct err *e)
{
    return r->row->auth == REMOTE_LEG_AUTH_NONE ||
           err_set(e, ERR_CONFIG, "one of key_file, key_env, auth expected, got several");
}

static bool config_legs_read_key_file(struct config_legs *r, const struct config_yaml *n,
                                      struct err *e)
{
    str path = file_expand_home(r->a, n->text, config_home(r->a));
    if (!config_legs_has_no_key(r, e))
        return false;
    r->row->auth = REMOTE_LEG_AUTH_KEY;
    return config_keys_read(&r->row->key, path.p, r->a, e) &&
           (r->row->key.len || err_set(e, ERR_CONFIG, "%.*s: its first line is empty",
                                       STR_ARG(path)));
}

static bool config_legs_read_key_env(struct config_legs *r, const struct config_yaml *n,
                                     struct err *e)
{
    if (!config_legs_has_no_key(r, e))
        return false;
    r->row->auth = REMOTE_LEG_AUTH_KEY;
    r->row->key = config_secret(n->text, r->a);
    return r->row->key.len ||
           err_set(e, ERR_CONFIG, "%.*s is not set", STR_ARG(str_sub(n->text, 0, 80)));
}

static bool config_legs_read_auth(struct config_legs *r, const struct config_yaml *n, struct err *e)
{
    if (!config_legs_has_no_key(r, e))
        return false;
    r->row->auth = REMOTE_LEG_AUTH_PASSTHROUGH;
    return str_eq_z(n->text, "passthrough") ||
           err_set(e, ERR_CONFIG, "passthrough expected, got \"%.*s\"",
                   STR_ARG(str_sub(n->text, 0, 40)));
}

static bool config_legs_read_can(struct config_legs *r, const struct config_yaml *n, struct err *e)
{
    static const struct {
        const char *word;
        uint32_t cap;
    } rows[] = {{"tools", API_CAP_TOOLS}, {"vision", API_CAP_VISION}, {"schema", API_CAP_SCHEMA},
                {"thinking", API_CAP_THINK}, {"logprobs", API_CAP_LOGPROBS}, {"n", API_CAP_N},
                {"embed", API_CAP_EMBED}};
    r->row->caps = API_CAP_CHAT;
    for (const struct config_yaml *i = n->first; i; i = i->next) {
        size_t k = 0;
        while (k < countof(rows) && !str_eq_z(i->text, rows[k].word))
            k++;
        if (k == countof(rows))
            return err_set(e, ERR_CONFIG, "any of tools vision schema thinking logprobs n embed "
                           "expected, got \"%.*s\"", STR_ARG(str_sub(i->text, 0, 40)));
        r->row->caps |= rows[k].cap;
    }
    return true;
}

static bool config_legs_read_continue(struct config_legs *r, const struct config_yaml *n,
                                      struct err *e)
{
    return leg_continue_parse(n->text, &r->row->goes_on) ||
           err_set(e, ERR_CONFIG, "none, prefill, final_message or shoal expected, got \"%.*s\"",
                   STR_ARG(str_sub(n->text, 0, 40)));
}

static bool config_legs_read_health(struct config_legs *r, const struct config_yaml *n,
                                    struct err *e)
{
    r->row->health_path = n->text;
    return str_starts(n->text, STR("/")) || err_set(e, ERR_CONFIG, "a path expected: /health");
}

/* --- deadlines and breaker of a leg -------------------------------------------------------- */

static bool config_legs_read_ratio(struct config_legs *r, const struct config_yaml *n,
                                   struct err *e)
{
    const struct config_spec spec = {.type = CONFIG_TYPE_REAL, .max = 1};
    struct config_value v;
    if (!config_legs_value(r, n, &spec, &v, e))
        return false;
    r->row->breaking.ratio = v.real;
    return true;
}

static bool config_legs_read_deadlines(struct config_legs *r, const struct config_yaml *n,
                                       struct err *e)
{
    static const struct config_legs_field fields[] = {
        {"connect", CONFIG_YAML_SCALAR, config_legs_read_duration, AT(deadline.connect_ms), 0, 0},
        {"first_token", CONFIG_YAML_SCALAR, config_legs_read_auto, AT(deadline.first_ms), 0, 0},
        {"gap", CONFIG_YAML_SCALAR, config_legs_read_duration, AT(deadline.gap_ms), 0, 0},
        {"total", CONFIG_YAML_SCALAR, config_legs_read_duration, AT(deadline.total_ms), 0, 0},
    };
    (void)e;
    return config_legs_inner(r, n, fields, countof(fields));
}

static bool config_legs_read_breaker(struct config_legs *r, const struct config_yaml *n,
                                     struct err *e)
{
    static const struct config_legs_field fields[] = {
        {"failures", CONFIG_YAML_SCALAR, config_legs_read_count, AT(breaking.failures), 1, 1000},
        {"window", CONFIG_YAML_SCALAR, config_legs_read_duration, AT(breaking.window_ms), 0, 0},
        {"min_requests", CONFIG_YAML_SCALAR, config_legs_read_count, AT(breaking.min_requests), 1,
         100000},
        {"ratio", CONFIG_YAML_SCALAR, config_legs_read_ratio, 0, 0, 0},
        {"cooldown", CONFIG_YAML_SCALAR, config_legs_read_duration, AT(breaking.cooldown_ms), 0, 0},
        {"cooldown_max", CONFIG_YAML_SCALAR, config_legs_read_duration,
         AT(breaking.cooldown_max_ms), 0, 0},
        {"successes", CONFIG_YAML_SCALAR, config_legs_read_count, AT(breaking.successes), 1, 1000},
    };
    (void)e;
    return config_legs_inner(r, n, fields, countof(fields));
}

static const struct config_legs_field config_legs_leg_fields[] = {
    {"kind", CONFIG_YAML_SCALAR, config_legs_read_kind, 0, 0, 0},
    {"model", CONFIG_YAML_SCALAR, config_legs_read_text, AT(model), 0, 0},
    {"dialect", CONFIG_YAML_SCALAR, config_legs_read_dialect, 0, 0, 0},
    {"url", CONFIG_YAML_SCALAR, config_legs_read_url, 0, 0, 0},
    {"ca_file", CONFIG_YAML_SCALAR, config_legs_read_ca, 0, 0, 0},
    {"key_file", CONFIG_YAML_SCALAR, config_legs_read_key_file, 0, 0, 0},
    {"key_env", CONFIG_YAML_SCALAR, config_legs_read_key_env, 0, 0, 0},
    {"auth", CONFIG_YAML_SCALAR, config_legs_read_auth, 0, 0, 0},
    {"context", CONFIG_YAML_SCALAR, config_legs_read_count, AT(context_max), 0,
     CONFIG_LEGS_TOKENS_MAX},
    {"max_output", CONFIG_YAML_SCALAR, config_legs_read_count, AT(output_max), 0,
     CONFIG_LEGS_TOKENS_MAX},
    {"max_inflight", CONFIG_YAML_SCALAR, config_legs_read_count, AT(inflight_max), 1, 4096},
    {"can", CONFIG_YAML_LIST, config_legs_read_can, 0, 0, 0},
    {"continue", CONFIG_YAML_SCALAR, config_legs_read_continue, 0, 0, 0},
    {"health", CONFIG_YAML_SCALAR, config_legs_read_health, 0, 0, 0},
    {"vectors", CONFIG_YAML_SCALAR, config_legs_read_text, AT(vectors), 0, 0},
    {"deadlines", CONFIG_YAML_MAP, config_legs_read_deadlines, 0, 0, 0},
    {"breaker", CONFIG_YAML_MAP, config_legs_read_breaker, 0, 0, 0},
};

static uint32_t config_legs_number(const struct config *c, const char *key)
{
    return (uint32_t)config_number(c, key);
}

/* What a leg does not say itself. */
static void config_legs_defaults(const struct config *c, struct legs_row *row)
{
    *row = (struct legs_row){
        .kind = LEG_KIND_UPSTREAM, .caps = API_CAP_CHAT | API_CAP_TOOLS,
        .inflight_max = CONFIG_LEGS_INFLIGHT,
        .deadline = {.connect_ms = config_number(c, "deadlines.connect"),
                     .first_ms = config_is(c, "deadlines.first_token", "auto")
                                     ? DEADLINE_AUTO
                                     : config_number(c, "deadlines.first_token"),
                     .gap_ms = config_number(c, "deadlines.gap")},
        .breaking = {.failures = config_legs_number(c, "breaker.failures"),
                     .window_ms = config_number(c, "breaker.window"),
                     .min_requests = config_legs_number(c, "breaker.min_requests"),
                     .ratio = config_value(c, "breaker.ratio")->real,
                     .cooldown_ms = config_number(c, "breaker.cooldown"),
                     .cooldown_max_ms = config_number(c, "breaker.cooldown_max"),
                     .successes = config_legs_number(c, "breaker.successes")}};
}

static bool config_legs_check_engine(struct legs_row *row, struct err *e)
{
    if (row->dialect || row->url.len || row->auth != REMOTE_LEG_AUTH_NONE || row->ca_file.len)
        return err_set(e, ERR_CONFIG, "an engine leg has no dialect, url, key and ca_file");
    if (!row->model.len)
        return err_set(e, ERR_CONFIG, "model: required, the name of a local model");
    if (row->deadline.total_ms)
        return err_set(e, ERR_CONFIG, "deadlines.total: only an upstream has one, an engine's "
                       "progress is watched");
    row->caps = 0; /* the model's own */
    row->inflight_max = 0;
    row->deadline = (struct api_deadlines){.first_ms = DEADLINE_AUTO};
    return true;
}

static bool config_legs_check_upstream(const struct legs_row *row, struct err *e)
{
    if (!row->dialect || !row->url.len)
        return err_set(e, ERR_CONFIG, "%s: required", row->dialect ? "url" : "dialect");
    if (row->dialect->client == NULL)
        return err_set(e, ERR_UNSUPPORTED, "dialect: not built for upstreams yet");
    bool is_anthropic = str_eq_z(str_of(row->dialect->name), "anthropic");
    bool is_chat = str_eq_z(str_of(row->dialect->name), "openai_chat");
    if ((row->goes_on == LEG_CONTINUE_PREFILL && !is_anthropic) ||
        (row->goes_on == LEG_CONTINUE_FINAL_MESSAGE && !is_chat))
        return err_set(e, ERR_CONFIG, "continue: this dialect has no %s",
                       leg_continue_name(row->goes_on));
    if (row->auth == REMOTE_LEG_AUTH_KEY && str_starts(row->url, STR("http://")) &&
        !str_starts(row->url, STR("http://127.")) && !str_starts(row->url, STR("http://10.")) &&
        !str_starts(row->url, STR("http://192.168.")) &&
        !str_starts(row->url, STR("http://localhost")) && !str_starts(row->url, STR("http://[")))
        log_warn("leg %.*s: its key goes over the network as it is; no TLS", STR_ARG(row->name));
    return true;
}

static bool config_legs_is_double(const struct legs_row *a, const struct legs_row *b)
{
    if (a->kind != b->kind || a->dialect != b->dialect || !str_eq(a->model, b->model))
        return false;
    return a->kind == LEG_KIND_ENGINE || (str_eq_nocase(a->url, b->url) && str_eq(a->key, b->key));
}

/* Two legs that are one would count as two when it fails. */
static bool config_legs_check_doubles(const struct config_legs *r, struct err *e)
{
    for (const struct legs_row *other = r->rows; other < r->row; other++)
        if (config_legs_is_double(other, r->row))
            return err_set(e, ERR_CONFIG, "the same %s and model as leg %.*s",
                           r->row->kind == LEG_KIND_ENGINE ? "engine" : "url, protocol, key",
                           STR_ARG(other->name));
    return true;
}

static bool config_legs_check_name(str name, struct err *e)
{
    static const char set[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    for (size_t i = 0; i < name.len; i++)
        if (!memchr(set, name.p[i], sizeof set - 1))
            return err_set(e, ERR_CONFIG, "a name of letters, digits and ._- expected");
    return (name.len > 0 && name.len < 48) ||
           err_set(e, ERR_CONFIG, "a name of 1 to 47 characters expected");
}

/* A leg that is this server would ask itself without end. */
static bool config_legs_check_cycle(const struct config_legs *r, struct err *e)
{
    static const str standard[] = {STR_INIT("127.0.0.1:11500"), STR_INIT("[::1]:11500")};
    const struct config_value *v = config_value(r->c, "listen");
    const str *listen = v->items_count ? v->items : standard;
    uint32_t count = v->items_count ? v->items_count : (uint32_t)countof(standard);
    str url = r->row->url;
    size_t at = str_find(url, STR("://"));
    str host = at == STR_NONE ? url : str_from(url, at + 3);
    host = str_sub(host, 0, str_find_byte(host, '/'));
    for (uint32_t k = 0; k < count; k++)
        if (host.len && str_eq_nocase(host, listen[k]) && !str_ends(host, STR(":0")))
            return err_set(e, ERR_CONFIG, "url: %.*s is this server: a cycle", STR_ARG(host));
    return true;
}

/* It keeps its row whatever is wrong with it, so that no route misses it. */
static void config_legs_leg(struct config_legs *r, const struct config_yaml *n)
{
    struct err why = {0};
    uint32_t before = r->told;
    str path = arena_printf(r->a, "legs.%.*s", STR_ARG(str_sub(n->key, 0, 48)));
    r->path = path.p ? path.p : "legs";
    r->row = &r->rows[r->out->rows_count];
    config_legs_defaults(r->c, r->row);
    r->row->name = n->key;
    if (!config_legs_check_name(n->key, &why))
        config_legs_tell(r, n, r->path, &why);
    config_legs_fields(r, n, config_legs_leg_fields, countof(config_legs_leg_fields));
    if (r->told == before) {
        bool ok = r->row->kind == LEG_KIND_ENGINE ? config_legs_check_engine(r->row, &why)
                                                  : config_legs_check_upstream(r->row, &why);
        if (!ok || !config_legs_check_doubles(r, &why) || !config_legs_check_cycle(r, &why))
            config_legs_tell(r, n, r->path, &why);
    }
    r->out->rows_count++;
}

/* --- routes -------------------------------------------------------------------------------- */

static bool config_legs_read_glob(struct config_legs *r, const struct config_yaml *n, struct err *e)
{
    *(str *)(void *)((char *)&r->route->match + r->field->at) = n->text;
    return n->text.len > 0 || err_set(e, ERR_CONFIG, "a glob expected");
}

static bool config_legs_read_match(struct config_legs *r, const struct config_yaml *n,
                                   struct err *e)
{
    static const struct config_legs_field fields[] = {
        {"model", CONFIG_YAML_SCALAR, config_legs_read_glob, MATCH(model), 0, 0},
        {"agent", CONFIG_YAML_SCALAR, config_legs_read_glob, MATCH(agent), 0, 0},
        {"dialect", CONFIG_YAML_SCALAR, config_legs_read_glob, MATCH(dialect), 0, 0},
        {"key", CONFIG_YAML_SCALAR, config_legs_read_glob, MATCH(key), 0, 0},
    };
    (void)e;
    return config_legs_inner(r, n, fields, countof(fields));
}

/* local:NAME is a leg without being configured. */
static bool config_legs_implicit(struct config_legs *r, str name, uint32_t *leg, struct err *e)
{
    if (!str_starts(name, STR("local:")) || name.len == strlen("local:"))
        return err_set(e, ERR_CONFIG, "there is no leg \"%.*s\"", STR_ARG(str_sub(name, 0, 60)));
    if (r->out->rows_count == LEGS_MAX)
        return err_set(e, ERR_CONFIG, "more than %u legs", LEGS_MAX);
    struct legs_row *row = &r->rows[r->out->rows_count];
    config_legs_defaults(r->c, row);
    row->kind = LEG_KIND_ENGINE;
    row->name = name;
    row->model = str_from(name, strlen("local:"));
    *leg = r->out->rows_count++;
    return config_legs_check_engine(row, e);
}

static bool config_legs_find(struct config_legs *r, str name, uint32_t *leg, struct err *e)
{
    for (uint32_t i = 0; i < r->out->rows_count; i++)
        if (str_eq(name, r->rows[i].name)) {
            *leg = i;
            return true;
        }
    return config_legs_implicit(r, name, leg, e);
}

/* A name, or {leg: NAME, model: M}. */
static bool config_legs_entry(struct config_legs *r, const struct config_yaml *n, uint32_t rank,
                              struct err *e)
{
    str name = n->text, model = {NULL, 0};
    for (const struct config_yaml *i = n->first; i; i = i->next) {
        bool is_leg = str_eq_z(i->key, "leg"), is_model = str_eq_z(i->key, "model");
        if (n->kind != CONFIG_YAML_MAP || i->kind != CONFIG_YAML_SCALAR || (!is_leg && !is_model))
            return err_set(e, ERR_CONFIG, "a leg or {leg: NAME, model: M} expected");
        *(is_leg ? &name : &model) = i->text;
    }
    struct router_entry *to = &r->route->entries[r->route->entries_count];
    if (r->route->entries_count == ROUTER_LEGS_MAX)
        return err_set(e, ERR_CONFIG, "more than %u legs", ROUTER_LEGS_MAX);
    *to = (struct router_entry){.model = model, .rank = rank};
    if (!config_legs_find(r, name, &to->leg, e))
        return false;
    for (uint32_t i = 0; i < r->route->entries_count; i++)
        if (r->route->entries[i].leg == to->leg && str_eq(r->route->entries[i].model, model))
            return err_set(e, ERR_CONFIG, "\"%.*s\" stands twice", STR_ARG(name));
    r->route->entries_count++;
    return true;
}

/* Each wrong entry is told at its own place. */
static bool config_legs_read_legs(struct config_legs *r, const struct config_yaml *n, struct err *e)
{
    const char *path = config_legs_path(r, n);
    uint32_t rank = 0;
    struct err why = {0};
    for (const struct config_yaml *i = n->first; i; i = i->next, rank++) {
        bool is_list = i->kind == CONFIG_YAML_LIST;
        for (const struct config_yaml *k = is_list ? i->first : i; k; k = is_list ? k->next : NULL)
            if (k->kind == CONFIG_YAML_LIST) {
                err_set(&why, ERR_CONFIG, "a list of equal legs holds no further list");
                config_legs_tell(r, k, path, &why);
            } else if (!config_legs_entry(r, k, rank, &why)) {
                config_legs_tell(r, k, path, &why);
            }
    }
    return n->first || err_set(e, ERR_CONFIG, "at least one leg expected");
}

static bool config_legs_read_shadow(struct config_legs *r, const struct config_yaml *n,
                                    struct err *e)
{
    uint32_t leg = 0;
    if (!config_legs_find(r, n->text, &leg, e))
        return false;
    if (r->rows[leg].kind != LEG_KIND_ENGINE)
        return err_set(e, ERR_CONFIG, "%.*s is an upstream: an engine leg can be kept warm",
                       STR_ARG(str_sub(n->text, 0, 60)));
    r->route->shadow = (int32_t)leg;
    return true;
}

static const struct config_legs_field config_legs_route_fields[] = {
    {"match", CONFIG_YAML_MAP, config_legs_read_match, 0, 0, 0},
    {"legs", CONFIG_YAML_LIST, config_legs_read_legs, 0, 0, 0},
    {"shadow", CONFIG_YAML_SCALAR, config_legs_read_shadow, 0, 0, 0},
};

static void config_legs_route(struct config_legs *r, const struct config_yaml *n)
{
    struct err why = {0};
    uint32_t before = r->told;
    str path = arena_printf(r->a, "routes[%u]", r->out->routes_count);
    r->path = path.p ? path.p : "routes";
    r->route = &r->routes[r->out->routes_count++];
    *r->route = (struct router_route){.shadow = -1};
    config_legs_fields(r, n, config_legs_route_fields, countof(config_legs_route_fields));
    if (r->told == before && r->route->entries_count == 0) {
        err_set(&why, ERR_CONFIG, "legs: required");
        config_legs_tell(r, n, r->path, &why);
    }
}

/* --- all of it ----------------------------------------------------------------------------- */

/* NULL: absent, or told to be wrong as a whole. */
static const struct config_yaml *config_legs_section(struct config_legs *r, const char *key,
                                                     uint32_t max, enum config_yaml_kind kind)
{
    struct err why = {0};
    const struct config_yaml *section = config_value(r->c, key)->section;
    bool ok = true;
    if (section && section->kind != kind)
        ok = err_set(&why, ERR_CONFIG, "a %s expected", config_legs_kind(kind));
    else if (section && section->count > max)
        ok = err_set(&why, ERR_CONFIG, "%u of them, at most %u", section->count, max);
    if (!ok)
        config_legs_tell(r, section, key, &why);
    return ok ? section : NULL;
}

bool config_legs_load(struct legs_config *out, const struct config *c, struct arena *a,
                      struct err *e)
{
    struct config_legs r = {.c = c, .out = out, .a = a, .e = e};
    const struct config_yaml *legs = config_legs_section(&r, "legs", LEGS_MAX, CONFIG_YAML_MAP);
    const struct config_yaml *routes =
        config_legs_section(&r, "routes", LEGS_ROUTES_MAX, CONFIG_YAML_LIST);
    r.rows = ARENA_ARRAY(a, struct legs_row, LEGS_MAX + 1);
    r.routes = ARENA_ARRAY(a, struct router_route, LEGS_ROUTES_MAX + 1);
    if (!r.rows || !r.routes)
        return err_set(e, ERR_MEMORY, "the configuration is too large");
    *out = (struct legs_config){
        .rows = r.rows, .routes = r.routes,
        .all_open_wait_ms = config_number(c, "deadlines.all_open_wait"),
        .probes_free = config_bool(c, "probes.free"),
        .probes_paid = config_bool(c, "probes.paid"),
        .probes_per_hour = (uint32_t)config_number(c, "probes.per_hour"),
        .shadow_min_tokens = (uint32_t)config_number(c, "shadow.min_tokens")};
    for (const struct config_yaml *n = legs ? legs->first : NULL; n; n = n->next)
        config_legs_leg(&r, n);
    for (const struct config_yaml *n = routes ? routes->first : NULL; n; n = n->next)
        config_legs_route(&r, n);
    return r.told == 0;
}
