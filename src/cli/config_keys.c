#include "cli/config_keys.h"

#include <string.h>

#include "base/digest.h"
#include "base/file.h"
#include "cli/config_rules.h"
#include "cli/config_yaml.h"

/* --- where a key's text comes from --------------------------------------------------------- */

bool config_keys_read(str *out, const char *path, struct arena *a, struct err *e)
{
    struct file_info info;
    str text;
    if (!file_stat(&info, path, e) || !file_read(&text, path, CONFIG_KEYS_FILE_MAX, a, e))
        return false;
    if (info.mode & 077)
        return err_set(e, ERR_CONFIG, "key file %s: mode %03o lets others read it; 600 expected",
                       path, info.mode & 0777);
    *out = str_trim(str_sub(text, 0, str_find_byte(text, '\n')));
    return true;
}

/* One entry on its way to a key. */
struct config_keys_reading {
    const struct config *c;
    struct limits_key *key;
    struct arena *a;
    struct err *e; /* gets the first of what is told */
    const char *path; /* "keys[1]" */
    bool has_secret, is_bad;
};

/* n: the entry itself, or a field of it. */
static void config_keys_tell(struct config_keys_reading *r, const struct config_yaml *n,
                             const struct err *why)
{
    str path = str_of(r->path);
    if (n->key.p)
        path = arena_printf(r->a, "%s.%.*s", r->path, STR_ARG(str_sub(n->key, 0, 40)));
    r->is_bad = true;
    config_tell(r->c, n, path.p ? path.p : r->path, why, r->e);
}

static bool config_keys_digest(struct config_keys_reading *r, str text, struct err *e)
{
    if (r->has_secret)
        return err_set(e, ERR_CONFIG, "one of key_file, key_env, sha256 expected, got several");
    r->has_secret = true;
    return limits_digest(r->key->sha256, text, e);
}

static bool config_keys_file(struct config_keys_reading *r, const struct config_yaml *n,
                             struct err *e)
{
    str text, path = file_expand_home(r->a, n->text, config_home(r->a));
    return config_keys_read(&text, path.p, r->a, e) && config_keys_digest(r, text, e);
}

static bool config_keys_env(struct config_keys_reading *r, const struct config_yaml *n,
                            struct err *e)
{
    str text = config_secret(n->text, r->a);
    if (!text.len)
        return err_set(e, ERR_CONFIG, "%.*s is not set", STR_ARG(n->text));
    return config_keys_digest(r, text, e);
}

static bool config_keys_sha256(struct config_keys_reading *r, const struct config_yaml *n,
                               struct err *e)
{
    if (r->has_secret || !digest_unhex(r->key->sha256, 32, n->text))
        return err_set(e, ERR_CONFIG, "64 hex digits and no other key expected");
    r->has_secret = true;
    return true;
}

/* --- the other fields ---------------------------------------------------------------------- */

/* The set of agents: BEHAVIOUR 5.2. */
static bool config_keys_word(str *out, const struct config_yaml *n, struct err *e)
{
    static const char set[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@/-";
    for (size_t i = 0; i < n->text.len; i++)
        if (!memchr(set, n->text.p[i], sizeof set - 1))
            return err_set(e, ERR_CONFIG, "letters, digits and ._:@/- expected");
    if (!n->text.len || n->text.len > 128)
        return err_set(e, ERR_CONFIG, "1 to 128 characters expected");
    *out = n->text;
    return true;
}

static bool config_keys_name(struct config_keys_reading *r, const struct config_yaml *n,
                             struct err *e)
{
    return config_keys_word(&r->key->name, n, e);
}

static bool config_keys_agent(struct config_keys_reading *r, const struct config_yaml *n,
                              struct err *e)
{
    return config_keys_word(&r->key->agent, n, e);
}

static bool config_keys_scope(struct config_keys_reading *r, const struct config_yaml *n,
                              struct err *e)
{
    return config_keys_word(&r->key->cache_scope, n, e);
}

static bool config_keys_scopes(struct config_keys_reading *r, const struct config_yaml *n,
                               struct err *e)
{
    for (const struct config_yaml *i = n->first; i; i = i->next) {
        uint32_t bit = str_eq_z(i->text, "infer")   ? LIMITS_SCOPE_INFER
                       : str_eq_z(i->text, "read")  ? LIMITS_SCOPE_READ
                       : str_eq_z(i->text, "admin") ? LIMITS_SCOPE_ADMIN
                                                    : 0;
        if (!bit)
            return err_set(e, ERR_CONFIG, "infer, read or admin expected, got \"%.*s\"",
                           STR_ARG(str_sub(i->text, 0, 40)));
        r->key->scopes |= bit;
    }
    return true;
}

static bool config_keys_globs(struct config_keys_reading *r, const struct config_yaml *n,
                              const str **out, uint32_t *count, struct err *e)
{
    str *globs = ARENA_ARRAY(r->a, str, (size_t)n->count + 1);
    if (!globs)
        return err_set(e, ERR_MEMORY, "the configuration is too large");
    for (const struct config_yaml *i = n->first; i; i = i->next)
        globs[(*count)++] = i->text;
    *out = globs;
    return true;
}

static bool config_keys_models(struct config_keys_reading *r, const struct config_yaml *n,
                               struct err *e)
{
    return config_keys_globs(r, n, &r->key->models, &r->key->models_count, e);
}

static bool config_keys_agents(struct config_keys_reading *r, const struct config_yaml *n,
                               struct err *e)
{
    return config_keys_globs(r, n, &r->key->agents, &r->key->agents_count, e);
}

static const struct {
    const char *name;
    enum config_yaml_kind kind;
    bool (*read)(struct config_keys_reading *r, const struct config_yaml *n, struct err *e);
} config_keys_fields[] = {
    {"name", CONFIG_YAML_SCALAR, config_keys_name},
    {"key_file", CONFIG_YAML_SCALAR, config_keys_file},
    {"key_env", CONFIG_YAML_SCALAR, config_keys_env},
    {"sha256", CONFIG_YAML_SCALAR, config_keys_sha256},
    {"scopes", CONFIG_YAML_LIST, config_keys_scopes},
    {"agent", CONFIG_YAML_SCALAR, config_keys_agent},
    {"cache_scope", CONFIG_YAML_SCALAR, config_keys_scope},
    {"models", CONFIG_YAML_LIST, config_keys_models},
    {"agents", CONFIG_YAML_LIST, config_keys_agents},
};

static bool config_keys_field(struct config_keys_reading *r, const struct config_yaml *n,
                              struct err *e)
{
    for (size_t i = 0; i < countof(config_keys_fields); i++) {
        if (!str_eq_z(n->key, config_keys_fields[i].name))
            continue;
        if (n->kind != config_keys_fields[i].kind || n->is_null)
            return err_set(e, ERR_CONFIG, "a %s expected",
                           config_keys_fields[i].kind == CONFIG_YAML_LIST ? "list" : "text");
        for (const struct config_yaml *k = n->first; k; k = k->next)
            if (k->kind != CONFIG_YAML_SCALAR || k->is_null)
                return err_set(e, ERR_CONFIG, "a list of texts expected");
        return config_keys_fields[i].read(r, n, e);
    }
    bool is_known;
    return config_rules_field(&r->key->rules, n, r->a, &is_known, e) &&
           (is_known || err_set(e, ERR_CONFIG, "unknown field"));
}

/* What an entry lacks as a whole; only where each of its fields is right. */
static bool config_keys_check(const struct config_keys_reading *r, struct err *e)
{
    if (!r->key->name.len)
        return err_set(e, ERR_CONFIG, "name: required");
    if (!r->has_secret)
        return err_set(e, ERR_CONFIG, "key_file, key_env or sha256: required");
    return r->key->scopes || err_set(e, ERR_CONFIG, "scopes: at least one expected");
}

static void config_keys_entry(struct config_keys_reading *r, const struct config_yaml *n)
{
    struct err why = {0};
    if (n->kind != CONFIG_YAML_MAP) {
        err_set(&why, ERR_CONFIG, "a map of name, key_file, scopes expected");
        config_keys_tell(r, n, &why);
        return;
    }
    for (const struct config_yaml *i = n->first; i; i = i->next)
        if (!config_keys_field(r, i, &why))
            config_keys_tell(r, i, &why);
    if (!r->is_bad && !config_keys_check(r, &why))
        config_keys_tell(r, n, &why);
}

/* Compares only with what is right itself. */
static bool config_keys_is_new(const struct limits_key *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (str_eq(keys[i].name, keys[count].name) ||
            !memcmp(keys[i].sha256, keys[count].sha256, sizeof keys[i].sha256))
            return false;
    return true;
}

/* The section's entries that are right; false: what is wrong with the others was told. */
static bool config_keys_section(struct config_keys *out, const struct config *c, struct arena *a,
                                struct err *e)
{
    const struct config_yaml *section = config_value(c, "keys")->section;
    struct err why = {0};
    bool ok = true;
    uint32_t n = 0;
    if (section && section->kind != CONFIG_YAML_LIST) {
        err_set(&why, ERR_CONFIG, "a list expected");
        config_tell(c, section, "keys", &why, e);
        return false;
    }
    for (const struct config_yaml *i = section ? section->first : NULL; i; i = i->next, n++) {
        struct config_keys_reading r = {.c = c, .key = &out->keys[out->count], .a = a, .e = e};
        *r.key = (struct limits_key){0};
        r.path = arena_printf(a, "keys[%u]", n).p;
        if (!r.path)
            return err_set(e, ERR_MEMORY, "the configuration is too large");
        config_keys_entry(&r, i);
        if (!r.is_bad && !config_keys_is_new(out->keys, out->count)) {
            err_set(&why, ERR_CONFIG, "name or key of another one");
            config_keys_tell(&r, i, &why);
        }
        out->count += !r.is_bad;
        ok = ok && !r.is_bad;
    }
    return ok;
}

static bool config_keys_files(struct config_keys *out, const struct config_value *files,
                              struct arena *a, struct err *e)
{
    for (uint32_t i = 0; i < files->items_count; i++) {
        struct limits_key *key = &out->keys[out->count];
        str text;
        *key = (struct limits_key){.name = arena_printf(a, "key-file-%u", i + 1),
                                   .scopes = LIMITS_SCOPE_INFER | LIMITS_SCOPE_READ};
        if (!config_keys_read(&text, files->items[i].p, a, e) ||
            !limits_digest(key->sha256, text, e))
            return err_wrap(e, "-key-file");
        if (!config_keys_is_new(out->keys, out->count))
            return err_set(e, ERR_CONFIG, "-key-file %.*s: key of another one",
                           STR_ARG(files->items[i]));
        out->count++;
    }
    return true;
}

bool config_keys_load(struct config_keys *out, const struct config *c,
                      const struct config_value *files, struct arena *a, struct err *e)
{
    const struct config_yaml *section = config_value(c, "keys")->section;
    uint32_t total = (section ? section->count : 0) + files->items_count;
    *out = (struct config_keys){0};
    if (total > LIMITS_KEYS_MAX)
        return err_set(e, ERR_CONFIG, "keys: %u of them, at most %d", total, LIMITS_KEYS_MAX);
    out->keys = ARENA_ARRAY(a, struct limits_key, (size_t)total + 1);
    if (!out->keys)
        return err_set(e, ERR_MEMORY, "the configuration is too large");
    return config_keys_section(out, c, a, e) && config_keys_files(out, files, a, e);
}
