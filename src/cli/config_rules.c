#include "cli/config_rules.h"

#include "cli/config_yaml.h"

/* The word's place in a spec's list, from 0. */
static uint32_t config_rules_index(const char *words, str text)
{
    str rest = str_of(words), word;
    uint32_t i = 0;
    while (str_split(&rest, ' ', &word) && !str_eq(word, text))
        i++;
    return i;
}

#define CONFIG_RULES_PRIORITIES "low normal high"
#define CONFIG_RULES_EFFORTS "none minimal low medium high xhigh max"
#define CONFIG_RULES_TRUNCATES "none rounds"
#define CONFIG_RULES_CACHES "keep drop off"
#define NUMBER(low, high) {.type = CONFIG_TYPE_INT, .min = (low), .max = (high)}
#define WORD(list) {.type = CONFIG_TYPE_WORD, .words = (list)}

enum config_rules_what {
    CONFIG_RULES_MAX_RUNNING, CONFIG_RULES_MAX_QUEUED, CONFIG_RULES_TOKENS_PER_HOUR,
    CONFIG_RULES_TOKENS_PER_DAY, CONFIG_RULES_MAX_CONTEXT, CONFIG_RULES_MAX_OUTPUT,
    CONFIG_RULES_PRIORITY, CONFIG_RULES_MAX_PRIORITY, CONFIG_RULES_EFFORT,
    CONFIG_RULES_TRUNCATE, CONFIG_RULES_CACHE, CONFIG_RULES_REPLAY, CONFIG_RULES_WEIGHT,
};

static const struct {
    const char *name;
    enum config_rules_what what;
    struct config_spec spec;
} config_rules_fields[] = {
    {"max_running", CONFIG_RULES_MAX_RUNNING, NUMBER(1, 65536)},
    {"max_queued", CONFIG_RULES_MAX_QUEUED, NUMBER(1, 65536)},
    {"tokens_per_hour", CONFIG_RULES_TOKENS_PER_HOUR, NUMBER(1, INT64_MAX / 2)},
    {"tokens_per_day", CONFIG_RULES_TOKENS_PER_DAY, NUMBER(1, INT64_MAX / 2)},
    {"max_context", CONFIG_RULES_MAX_CONTEXT, NUMBER(256, 1 << 24)},
    {"max_output", CONFIG_RULES_MAX_OUTPUT, NUMBER(1, 1 << 24)},
    {"priority", CONFIG_RULES_PRIORITY, WORD(CONFIG_RULES_PRIORITIES)},
    {"max_priority", CONFIG_RULES_MAX_PRIORITY, WORD(CONFIG_RULES_PRIORITIES)},
    {"effort", CONFIG_RULES_EFFORT, WORD(CONFIG_RULES_EFFORTS)},
    {"truncate", CONFIG_RULES_TRUNCATE, WORD(CONFIG_RULES_TRUNCATES)},
    {"cache", CONFIG_RULES_CACHE, WORD(CONFIG_RULES_CACHES)},
    {"replay", CONFIG_RULES_REPLAY, {.type = CONFIG_TYPE_BOOL}},
    {"weight", CONFIG_RULES_WEIGHT, NUMBER(1, 1000)},
};

static bool config_rules_set(struct quota_rules *r, enum config_rules_what what,
                             const struct config_value *v, struct err *e)
{
    switch (what) {
    case CONFIG_RULES_MAX_RUNNING:
        r->max_running = (uint32_t)v->number;
        return true;
    case CONFIG_RULES_MAX_QUEUED:
        r->max_queued = (uint32_t)v->number;
        return true;
    case CONFIG_RULES_TOKENS_PER_HOUR:
        r->tokens_per_hour = (uint64_t)v->number;
        return true;
    case CONFIG_RULES_TOKENS_PER_DAY:
        r->tokens_per_day = (uint64_t)v->number;
        return true;
    case CONFIG_RULES_MAX_CONTEXT:
        r->max_context = (uint32_t)v->number;
        return true;
    case CONFIG_RULES_MAX_OUTPUT:
        r->max_output = (uint32_t)v->number;
        return true;
    case CONFIG_RULES_PRIORITY:
        r->priority = API_PRIORITY_LOW + config_rules_index(CONFIG_RULES_PRIORITIES, v->text);
        r->given |= API_GIVEN(PRIORITY);
        return true;
    case CONFIG_RULES_MAX_PRIORITY:
        r->max_priority = API_PRIORITY_LOW + config_rules_index(CONFIG_RULES_PRIORITIES, v->text);
        r->has_max_priority = true;
        return true;
    case CONFIG_RULES_EFFORT:
        r->effort = API_EFFORT_NONE + config_rules_index(CONFIG_RULES_EFFORTS, v->text);
        r->given |= API_GIVEN(EFFORT);
        return true;
    case CONFIG_RULES_TRUNCATE:
        r->truncate = API_TRUNCATE_NONE + config_rules_index(CONFIG_RULES_TRUNCATES, v->text);
        r->given |= API_GIVEN(TRUNCATE);
        return true;
    case CONFIG_RULES_CACHE:
        r->cache = API_CACHE_KEEP + config_rules_index(CONFIG_RULES_CACHES, v->text);
        r->given |= API_GIVEN(CACHE);
        return true;
    case CONFIG_RULES_REPLAY:
        r->replay = v->number != 0;
        r->given |= API_GIVEN(REPLAY);
        return true;
    case CONFIG_RULES_WEIGHT:
        r->weight = (uint32_t)v->number;
        return true;
    }
    return err_set(e, ERR_INTERNAL, "no such rule");
}

bool config_rules_field(struct quota_rules *r, const struct config_yaml *n, struct arena *a,
                        bool *is_known, struct err *e)
{
    *is_known = false;
    for (size_t i = 0; i < countof(config_rules_fields) && !*is_known; i++) {
        struct config_value v = {.source = CONFIG_SOURCE_FILE};
        if (!str_eq_z(n->key, config_rules_fields[i].name))
            continue;
        *is_known = true;
        if (n->kind != CONFIG_YAML_SCALAR || n->is_null)
            return err_set(e, ERR_CONFIG, "one value expected");
        return config_spec_parse(&config_rules_fields[i].spec, n->text, a, &v, e) &&
               config_rules_set(r, config_rules_fields[i].what, &v, e);
    }
    return true;
}

/* --- the section --------------------------------------------------------------------------- */

/* Tells all that is wrong with one; e gets the first. */
static bool config_rules_agent(struct limits_agents *to, const struct config *c,
                               const struct config_yaml *n, struct arena *a, struct err *e)
{
    struct err why = {0};
    bool ok = true;
    str key = arena_printf(a, "agents.%.*s", STR_ARG(str_sub(n->key, 0, 130)));
    to->glob = n->key;
    if (!key.p)
        return err_set(e, ERR_MEMORY, "the configuration is too large");
    if (n->kind != CONFIG_YAML_MAP) {
        ok = err_set(&why, ERR_CONFIG, "a map such as {priority: low} expected");
        config_tell(c, n, key.p, &why, e);
        return ok;
    }
    for (const struct config_yaml *i = n->first; i; i = i->next) {
        bool is_known;
        str field = arena_printf(a, "%.*s.%.*s", STR_ARG(key), STR_ARG(str_sub(i->key, 0, 40)));
        if (config_rules_field(&to->rules, i, a, &is_known, &why) &&
            (is_known || err_set(&why, ERR_CONFIG, "unknown field")))
            continue;
        config_tell(c, i, field.p ? field.p : key.p, &why, e);
        ok = false;
    }
    return ok;
}

bool config_rules_agents(struct config_agents *out, const struct config *c, struct arena *a,
                         struct err *e)
{
    const struct config_yaml *section = config_value(c, "agents")->section;
    *out = (struct config_agents){0};
    struct err why = {0};
    bool ok = true;
    if (!section)
        return true;
    if (section->kind != CONFIG_YAML_MAP || section->count > CONFIG_RULES_AGENTS_MAX) {
        ok = err_set(&why, ERR_CONFIG, "a map of at most %u agents expected",
                     CONFIG_RULES_AGENTS_MAX);
        config_tell(c, section, "agents", &why, e);
        return ok;
    }
    out->agents = ARENA_ARRAY(a, struct limits_agents, (size_t)section->count + 1);
    if (!out->agents)
        return err_set(e, ERR_MEMORY, "the configuration is too large");
    for (const struct config_yaml *n = section->first; n; n = n->next)
        ok = config_rules_agent(&out->agents[out->count++], c, n, a, e) && ok;
    return ok;
}
