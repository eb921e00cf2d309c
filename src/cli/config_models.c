#include "cli/config_models.h"

#include <string.h>

#include "base/file.h"
#include "chat/output_table.h"
#include "chat/render_builtin.h"
#include "cli/config_yaml.h"

/* One entry on its way to a setting. */
struct config_models_reading {
    const struct config *c;
    struct models_leg_setting *to;
    struct api_request *defaults;
    struct arena *a;
    str path;      /* of the map at hand: "models.NAME" */
    struct err *e; /* gets the first of what is told */
    bool is_bad;   /* something was told */
};

static void config_models_tell(struct config_models_reading *r, const struct config_yaml *n,
                               const struct err *why)
{
    str key = arena_printf(r->a, "%.*s.%.*s", STR_ARG(r->path), STR_ARG(str_sub(n->key, 0, 40)));
    r->is_bad = true;
    config_tell(r->c, n, key.p ? key.p : "models", why, r->e);
}

/* --- values -------------------------------------------------------------------------------- */

static bool config_models_value(struct config_models_reading *r, const struct config_yaml *n,
                                const struct config_spec *spec, struct config_value *out,
                                struct err *e)
{
    if (n->kind != CONFIG_YAML_SCALAR || n->is_null)
        return err_set(e, ERR_CONFIG, "one value expected");
    *out = (struct config_value){.source = CONFIG_SOURCE_FILE};
    return config_spec_parse(spec, n->text, r->a, out, e);
}

static bool config_models_texts(struct config_models_reading *r, const struct config_yaml *n,
                                const str **out, uint32_t *count, struct err *e)
{
    str *texts = ARENA_ARRAY(r->a, str, (size_t)n->count + 1);
    if (!texts)
        return err_set(e, ERR_MEMORY, "the configuration is too large");
    *count = 0;
    if (n->kind == CONFIG_YAML_SCALAR && !n->is_null)
        texts[(*count)++] = n->text;
    else if (n->kind != CONFIG_YAML_LIST)
        return err_set(e, ERR_CONFIG, "a list of texts expected");
    for (const struct config_yaml *i = n->first; i; i = i->next) {
        if (i->kind != CONFIG_YAML_SCALAR || i->is_null)
            return err_set(e, ERR_CONFIG, "a list of texts expected");
        texts[(*count)++] = i->text;
    }
    *out = texts;
    return true;
}

/* --- defaults of requests ------------------------------------------------------------------ */

static bool config_models_default(struct config_models_reading *r, const struct config_yaml *n,
                                  struct err *e)
{
    static const struct {
        const char *name;
        enum api_field field;
    } rows[] = {
        {"temperature", API_FIELD_TEMPERATURE}, {"top_p", API_FIELD_TOP_P},
        {"top_k", API_FIELD_TOP_K}, {"min_p", API_FIELD_MIN_P},
        {"typical_p", API_FIELD_TYPICAL_P}, {"repeat_penalty", API_FIELD_REPEAT_PENALTY},
        {"repeat_last_n", API_FIELD_REPEAT_LAST},
        {"presence_penalty", API_FIELD_PRESENCE_PENALTY},
        {"frequency_penalty", API_FIELD_FREQUENCY_PENALTY},
        {"max_tokens", API_FIELD_TOKENS_MAX},
    };
    struct api_error why = {0};
    double number;
    if (str_eq_z(n->key, "stop")) {
        r->defaults->given |= API_GIVEN(STOP);
        return config_models_texts(r, n, &r->defaults->stop, &r->defaults->stop_count, e);
    }
    for (size_t i = 0; i < countof(rows); i++) {
        if (!str_eq_z(n->key, rows[i].name))
            continue;
        if (n->kind != CONFIG_YAML_SCALAR || !str_to_double(n->text, &number))
            return err_set(e, ERR_CONFIG, "number expected");
        return api_request_set(r->defaults, rows[i].field, number, n->key, &why) ||
               err_set(e, ERR_CONFIG, "%s", why.err.text);
    }
    return err_set(e, ERR_CONFIG, "no such default");
}

/* Each wrong one is told at its own place. */
static bool config_models_defaults(struct config_models_reading *r, const struct config_yaml *n,
                                   struct err *e)
{
    struct err why = {0};
    str outer = r->path;
    if (n->kind != CONFIG_YAML_MAP)
        return err_set(e, ERR_CONFIG, "a map such as {temperature: 0.6} expected");
    r->path = arena_printf(r->a, "%.*s.defaults", STR_ARG(outer));
    for (const struct config_yaml *i = n->first; i; i = i->next)
        if (!config_models_default(r, i, &why))
            config_models_tell(r, i, &why);
    r->path = outer;
    return true;
}

/* --- the other fields ---------------------------------------------------------------------- */

static bool config_models_aliases(struct config_models_reading *r, const struct config_yaml *n,
                                  struct err *e)
{
    return config_models_texts(r, n, &r->to->aliases, &r->to->aliases_count, e);
}

static bool config_models_effort(struct config_models_reading *r, const struct config_yaml *n,
                                 struct err *e)
{
    static const struct config_spec spec = {.type = CONFIG_TYPE_WORD,
                                            .words = "none minimal low medium high xhigh max"};
    struct config_value v;
    if (!config_models_value(r, n, &spec, &v, e))
        return false;
    str rest = str_of(spec.words), word;
    r->defaults->effort = API_EFFORT_NONE;
    while (str_split(&rest, ' ', &word) && !str_eq(word, v.text))
        r->defaults->effort++;
    r->defaults->given |= API_GIVEN(EFFORT);
    return true;
}

static bool config_models_max_context(struct config_models_reading *r,
                                      const struct config_yaml *n, struct err *e)
{
    static const struct config_spec spec = {.type = CONFIG_TYPE_INT, .min = 256, .max = 1 << 24};
    struct config_value v;
    bool ok = config_models_value(r, n, &spec, &v, e);
    r->to->max_context = ok ? (uint32_t)v.number : 0;
    return ok;
}

static bool config_models_keep_alive(struct config_models_reading *r,
                                     const struct config_yaml *n, struct err *e)
{
    struct config_value v;
    if (!config_models_value(r, n, &config_find_row(STR("engine.keep_alive"))->spec, &v, e))
        return false;
    r->to->has_keep_alive = true;
    r->to->keep_alive_ms = v.number;
    return true;
}

static bool config_models_pin(struct config_models_reading *r, const struct config_yaml *n,
                              struct err *e)
{
    static const struct config_spec spec = {.type = CONFIG_TYPE_BOOL};
    struct config_value v;
    bool ok = config_models_value(r, n, &spec, &v, e);
    r->to->is_pinned = ok && v.number;
    return ok;
}

static bool config_models_template(struct config_models_reading *r, const struct config_yaml *n,
                                   struct err *e)
{
    if (n->kind != CONFIG_YAML_SCALAR || n->text.len == 0)
        return err_set(e, ERR_CONFIG, "the name of a built-in template, or its text, expected");
    if (str_find_byte(n->text, '{') == STR_NONE && !render_builtin_find(n->text))
        return err_set(e, ERR_CONFIG, "'%.*s' is no built-in template: chatml, llama3 or mistral",
                       STR_ARG(str_sub(n->text, 0, 60)));
    if (r->to->chat_template.len)
        return err_set(e, ERR_CONFIG, "one of template and template_file expected, got both");
    r->to->chat_template = n->text;
    return true;
}

static bool config_models_tool_format(struct config_models_reading *r,
                                      const struct config_yaml *n, struct err *e)
{
    if (n->kind != CONFIG_YAML_SCALAR || !output_table_find(n->text)) {
        struct buf names;
        buf_init(&names, 4096);
        for (uint32_t i = 0; i < output_table_count; i++)
            buf_printf(&names, " %.*s", STR_ARG(output_table_rows[i].name));
        err_set(e, ERR_CONFIG, "one of%.*s expected", STR_ARG(buf_view(&names)));
        buf_deinit(&names);
        return false;
    }
    r->to->tool_format = n->text;
    return true;
}

static bool config_models_tool_grammar(struct config_models_reading *r,
                                       const struct config_yaml *n, struct err *e)
{
    static const char *const names[API_TOOL_GRAMMAR_COUNT_] = {
        [API_TOOL_GRAMMAR_LAZY] = "lazy", [API_TOOL_GRAMMAR_STRICT] = "strict",
        [API_TOOL_GRAMMAR_OFF] = "off"};
    for (int i = 0; n->kind == CONFIG_YAML_SCALAR && i < API_TOOL_GRAMMAR_COUNT_; i++)
        if (str_eq_z(n->text, names[i])) {
            r->to->tool_grammar = (enum api_tool_grammar)i;
            return true;
        }
    return err_set(e, ERR_CONFIG, "lazy, strict or off expected");
}

static bool config_models_template_file(struct config_models_reading *r,
                                        const struct config_yaml *n, struct err *e)
{
    static const struct config_spec spec = {.type = CONFIG_TYPE_PATH};
    struct config_value v;
    str text;
    if (!config_models_value(r, n, &spec, &v, e) ||
        !file_read(&text, v.text.p, CONFIG_MODELS_TEMPLATE_MAX, r->a, e))
        return false;
    struct config_yaml as_text = *n;
    as_text.text = text;
    return config_models_template(r, &as_text, e);
}

static bool config_models_ngl(struct config_models_reading *r, const struct config_yaml *n,
                              struct err *e)
{
    struct config_value v;
    if (!config_models_value(r, n, &config_find_row(STR("engine.ngl"))->spec, &v, e))
        return false;
    if (v.is_word)
        return true;
    r->to->has_place = true; /* as engine.ngl: 0 the CPU, any other number a GPU */
    r->to->backend = v.number ? STR("cuda") : STR("cpu");
    r->to->layers = (uint32_t)v.number;
    return true;
}

static bool config_models_ctx(struct config_models_reading *r, const struct config_yaml *n,
                              struct err *e)
{
    struct config_value v;
    bool ok = config_models_value(r, n, &config_find_row(STR("engine.ctx"))->spec, &v, e);
    r->to->context = ok ? (uint32_t)v.number : 0;
    return ok;
}

static bool config_models_slots(struct config_models_reading *r, const struct config_yaml *n,
                                struct err *e)
{
    struct config_value v;
    bool ok = config_models_value(r, n, &config_find_row(STR("engine.slots"))->spec, &v, e);
    r->to->slots = ok ? (uint32_t)v.number : 0;
    return ok;
}

static bool config_models_kv(struct config_models_reading *r, const struct config_yaml *n,
                             struct err *e)
{
    struct config_value v;
    if (!config_models_value(r, n, &config_find_row(STR("engine.kv"))->spec, &v, e))
        return false;
    r->to->has_kv = true;
    r->to->kv = str_eq_z(v.text, "int8") ? API_KV_INT8 : API_KV_F16;
    return true;
}

static const struct {
    const char *name;
    bool (*read)(struct config_models_reading *r, const struct config_yaml *n, struct err *e);
} config_models_fields[] = {
    {"aliases", config_models_aliases},
    {"defaults", config_models_defaults},
    {"effort", config_models_effort},
    {"max_context", config_models_max_context},
    {"keep_alive", config_models_keep_alive},
    {"pin", config_models_pin},
    {"template", config_models_template},
    {"template_file", config_models_template_file},
    {"ngl", config_models_ngl},
    {"ctx", config_models_ctx},
    {"slots", config_models_slots},
    {"kv", config_models_kv},
    {"tool_format", config_models_tool_format},
    {"tool_grammar", config_models_tool_grammar},
    {"mmproj", NULL}, /* not built */
    {"draft", NULL},
};

static bool config_models_field(struct config_models_reading *r, const struct config_yaml *n,
                                struct err *e)
{
    for (size_t i = 0; i < countof(config_models_fields); i++) {
        if (!str_eq_z(n->key, config_models_fields[i].name))
            continue;
        if (!config_models_fields[i].read)
            return err_set(e, ERR_UNSUPPORTED, "not built yet");
        return config_models_fields[i].read(r, n, e);
    }
    return err_set(e, ERR_CONFIG, "unknown field");
}

/* --- the section --------------------------------------------------------------------------- */

/* False: all that is wrong with it was told. */
static bool config_models_entry(struct config_models *out, const struct config *c,
                                const struct config_yaml *n, struct arena *a, struct err *e)
{
    struct models_leg_setting *to = &out->settings[out->count++];
    struct config_models_reading r = {.c = c, .to = to, .a = a, .e = e,
                                      .defaults = ARENA_NEW(a, struct api_request)};
    struct err why = {0};
    r.path = arena_printf(a, "models.%.*s", STR_ARG(str_sub(n->key, 0, 200)));
    if (!r.defaults || !r.path.p)
        return err_set(e, ERR_MEMORY, "the configuration is too large");
    api_request_init(r.defaults);
    *to = (struct models_leg_setting){.name = n->key, .defaults = r.defaults};
    if (n->kind != CONFIG_YAML_MAP) {
        err_set(&why, ERR_CONFIG, "a map such as {keep_alive: 30m} expected");
        config_tell(c, n, r.path.p, &why, e);
        return false;
    }
    for (const struct config_yaml *i = n->first; i; i = i->next)
        if (!config_models_field(&r, i, &why))
            config_models_tell(&r, i, &why);
    return !r.is_bad;
}

/* What the table of aliases says goes first: it is the same for all. */
static bool config_models_join(struct config_models *out, const struct config_value *table,
                               struct arena *a, struct err *e)
{
    uint32_t count = table->items_count;
    for (uint32_t i = 0; i < out->count; i++)
        count += 2 * out->settings[i].aliases_count;
    str *all = ARENA_ARRAY(a, str, (size_t)count + 1);
    if (!all)
        return err_set(e, ERR_MEMORY, "the configuration is too large");
    if (table->items_count)
        memcpy(all, table->items, table->items_count * sizeof *all);
    uint32_t at = table->items_count;
    for (uint32_t i = 0; i < out->count; i++)
        for (uint32_t k = 0; k < out->settings[i].aliases_count; k++) {
            all[at++] = out->settings[i].aliases[k];
            all[at++] = out->settings[i].name;
        }
    out->aliases = all;
    out->aliases_count = at;
    return true;
}

bool config_models_load(struct config_models *out, const struct config *c, struct arena *a,
                        struct err *e)
{
    const struct config_yaml *section = config_value(c, "models")->section;
    struct err why = {0};
    bool ok = true;
    *out = (struct config_models){0};
    if (section && section->kind != CONFIG_YAML_MAP)
        ok = err_set(&why, ERR_CONFIG, "a map of models expected");
    else if (section && section->count > CONFIG_MODELS_MAX)
        ok = err_set(&why, ERR_CONFIG, "%u models, at most %u", section->count,
                     CONFIG_MODELS_MAX);
    if (!ok) {
        config_tell(c, section, "models", &why, e);
        return false;
    }
    out->settings = ARENA_ARRAY(a, struct models_leg_setting,
                                (size_t)(section ? section->count : 0) + 1);
    if (!out->settings)
        return err_set(e, ERR_MEMORY, "the configuration is too large");
    for (const struct config_yaml *n = section ? section->first : NULL; n; n = n->next)
        ok = config_models_entry(out, c, n, a, e) && ok;
    return ok && config_models_join(out, config_value(c, "aliases"), a, e);
}
