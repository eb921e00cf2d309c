#include "dialect/dialect_field.h"

bool dialect_field_seed(struct dialect_read *r, struct json v)
{
    int64_t seed;
    if (!dialect_read_int(r, v, INT64_MIN, INT64_MAX, &seed))
        return false;
    r->rq->seed = (uint64_t)seed;
    r->rq->given |= API_GIVEN(SEED);
    return true;
}

bool dialect_field_n(struct dialect_read *r, struct json v)
{
    int64_t n;
    return dialect_read_int(r, v, 1, r->in->limits->n_max, &n) &&
           dialect_read_number(r, v, API_FIELD_N);
}

/* vLLM writes -1 for off. */
bool dialect_field_top_k(struct dialect_read *r, struct json v)
{
    int64_t n;
    if (!dialect_read_int(r, v, -1, INT32_MAX, &n))
        return false;
    return n < 0 ? api_request_set(r->rq, API_FIELD_TOP_K, 0, STR("top_k"), r->e)
                 : dialect_read_number(r, v, API_FIELD_TOP_K);
}

static bool read_bias_entry(struct dialect_read *r, struct json key, struct json v,
                            struct api_bias *out)
{
    int64_t id;
    double bias;
    str name = json_text(key, r->a);
    if (name.p == NULL || !str_to_i64(name, &id) || id < 0 || id > INT32_MAX)
        return dialect_read_fail(r, ERR_REQUEST, v, "a token id from 0 to %d expected as key",
                                 INT32_MAX);
    if (json_kind(v) != JSON_KIND_NUMBER)
        return dialect_read_wrong(r, v, "number");
    if (!json_double(v, &bias) || bias < -100 || bias > 100)
        return dialect_read_fail(r, ERR_REQUEST, v, "number from -100 to 100 expected");
    *out = (struct api_bias){(int32_t)id, (float)bias};
    return true;
}

bool dialect_field_bias(struct dialect_read *r, struct json v)
{
    uint32_t count = json_count(v), n = 0;
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    if (count > r->in->limits->logit_bias_max)
        return dialect_read_fail(r, ERR_REQUEST, v, "at most %u entries expected, got %u",
                                 r->in->limits->logit_bias_max, count);
    struct api_bias *bias = dialect_read_array(r, count, sizeof *bias);
    for (struct json_walk w = json_walk(v); bias && json_next(&w);)
        if (!read_bias_entry(r, w.key, w.value, &bias[n++]))
            return false;
    r->rq->bias = bias;
    r->rq->bias_count = count;
    return bias != NULL;
}

bool dialect_field_ids(struct dialect_read *r, struct json v, uint32_t max, const int32_t **ids,
                       uint32_t *count)
{
    uint32_t n = 0;
    int64_t id;
    *count = json_count(v);
    if (json_kind(v) != JSON_KIND_ARRAY)
        return dialect_read_wrong(r, v, "array");
    if (*count > max)
        return dialect_read_fail(r, ERR_REQUEST, v, "at most %u ids expected, got %u", max, *count);
    int32_t *out = dialect_read_array(r, *count, sizeof *out);
    for (struct json_walk w = json_walk(v); out && json_next(&w);) {
        if (!dialect_read_int(r, w.value, 0, INT32_MAX, &id))
            return false;
        out[n++] = (int32_t)id;
    }
    *ids = out;
    return out != NULL;
}

bool dialect_field_stop_ids(struct dialect_read *r, struct json v)
{
    return dialect_field_ids(r, v, API_STOP_MAX, &r->rq->stop_ids, &r->rq->stop_ids_count);
}

bool dialect_field_service_tier(struct dialect_read *r, struct json v)
{
    str tier;
    if (!dialect_read_text(r, v, &tier))
        return false;
    r->rq->priority = str_eq_z(tier, "flex") ? API_PRIORITY_LOW
                      : str_eq_z(tier, "priority") ? API_PRIORITY_HIGH : r->rq->priority;
    return true;
}

bool dialect_field_priority(struct dialect_read *r, struct json v)
{
    int64_t n;
    if (!dialect_read_int(r, v, INT32_MIN, INT32_MAX, &n))
        return false;
    r->rq->priority = n < 0 ? API_PRIORITY_HIGH : n > 0 ? API_PRIORITY_LOW : API_PRIORITY_NORMAL;
    r->rq->given |= API_GIVEN(PRIORITY);
    return true;
}

bool dialect_field_context_max(struct dialect_read *r, struct json v)
{
    int64_t n;
    return dialect_read_int(r, v, 256, INT32_MAX, &n) &&
           dialect_read_number(r, v, API_FIELD_CONTEXT_MAX);
}

bool dialect_field_skip_special(struct dialect_read *r, struct json v)
{
    bool skip;
    return dialect_read_bool(r, v, &skip) &&
           (skip || dialect_read_fail(r, ERR_REQUEST, v, "false is not supported"));
}

bool dialect_field_stream_options(struct dialect_read *r, struct json v)
{
    struct json usage = json_member(v, "include_usage");
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    return json_kind(usage) <= JSON_KIND_NULL || dialect_read_bool(r, usage, &r->st->include_usage);
}

/* --- structured output --------------------------------------------------------------------- */

bool dialect_field_set_format(struct dialect_read *r, struct json v, enum api_format_kind kind,
                              str text)
{
    if (r->rq->format.kind != API_FORMAT_TEXT)
        return dialect_read_fail(r, ERR_REQUEST, v, "only one format for a reply expected");
    r->rq->format = (struct api_format){.kind = kind, .text = text, .strict = true,
                                        .path = dialect_read_path(r, v)};
    return true;
}

bool dialect_field_format(struct dialect_read *r, struct json v, const char *wrap)
{
    static const char *const types[] = {"text", "json_object", "json_schema"};
    struct json in = wrap ? json_member(v, wrap) : v, schema = json_member(in, "schema");
    struct json strict = json_member(in, "strict");
    struct api_format *f = &r->rq->format;
    size_t type;
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    if (json_kind(json_member(v, "type")) == JSON_KIND_ABSENT)
        return dialect_read_member(r, v, "type", "required");
    if (!dialect_read_choice(r, json_member(v, "type"), types, countof(types), &type))
        return false;
    if (type == API_FORMAT_TEXT)
        return true;
    if (type == API_FORMAT_JSON)
        return dialect_field_set_format(r, v, API_FORMAT_JSON, STR(""));
    if (json_kind(schema) != JSON_KIND_OBJECT && json_kind(schema) != JSON_KIND_BOOL)
        return dialect_read_member(r, v, wrap ? "json_schema.schema" : "schema", "object expected");
    return dialect_field_set_format(r, schema, API_FORMAT_SCHEMA, json_raw(schema)) &&
           (json_kind(strict) <= JSON_KIND_NULL || dialect_read_bool(r, strict, &f->strict)) &&
           dialect_read_text_or_none(r, json_member(in, "name"), &f->name);
}

/* vLLM's: one of them sets the format. */
bool dialect_field_guided_json(struct dialect_read *r, struct json v)
{
    str text = json_raw(v);
    if (json_kind(v) == JSON_KIND_STRING && !dialect_read_text(r, v, &text))
        return false;
    if (json_kind(v) != JSON_KIND_STRING && json_kind(v) != JSON_KIND_OBJECT &&
        json_kind(v) != JSON_KIND_BOOL)
        return dialect_read_wrong(r, v, "a schema, as an object or as text,");
    return dialect_field_set_format(r, v, API_FORMAT_SCHEMA, text);
}

bool dialect_field_guided_regex(struct dialect_read *r, struct json v)
{
    str text;
    return dialect_read_text(r, v, &text) && dialect_field_set_format(r, v, API_FORMAT_REGEX, text);
}

bool dialect_field_guided_choice(struct dialect_read *r, struct json v)
{
    struct json_walk w = json_walk(v);
    if (json_kind(v) != JSON_KIND_ARRAY || json_count(v) == 0)
        return dialect_read_wrong(r, v, "array of texts");
    while (json_next(&w))
        if (json_kind(w.value) != JSON_KIND_STRING)
            return dialect_read_wrong(r, w.value, "text");
    return dialect_field_set_format(r, v, API_FORMAT_CHOICE, json_raw(v));
}

static bool field_json_object(struct dialect_read *r, struct json v)
{
    bool on;
    return dialect_read_bool(r, v, &on) &&
           (!on || dialect_field_set_format(r, v, API_FORMAT_JSON, STR("")));
}

bool dialect_field_structured(struct dialect_read *r, struct json v)
{
    static const struct dialect_field fields[] = {
        {"json", DIALECT_KIND_READ, 0, dialect_field_guided_json},
        {"regex", DIALECT_KIND_READ, 0, dialect_field_guided_regex},
        {"choice", DIALECT_KIND_READ, 0, dialect_field_guided_choice},
        {"json_object", DIALECT_KIND_READ, 0, field_json_object},
        {"grammar", DIALECT_KIND_REFUSED, 0, NULL},
        {"structural_tag", DIALECT_KIND_REFUSED, 0, NULL},
        {"whitespace_pattern", DIALECT_KIND_IGNORED, 0, NULL},
        {"disable_any_whitespace", DIALECT_KIND_SKIPPED, 0, NULL},
        {"disable_fallback", DIALECT_KIND_SKIPPED, 0, NULL},
        {"disable_additional_properties", DIALECT_KIND_IGNORED, 0, NULL},
    };
    return dialect_read_object(r, v, fields, countof(fields));
}
