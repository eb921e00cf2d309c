#include "api/api_request.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum api_number_type { API_NUMBER_F32, API_NUMBER_U32 };
struct api_number {
    const char *name;
    enum api_number_type type;
    size_t offset;
    double low, high;
};
static const struct api_number api_numbers[] = {
#define X(NAME, field, type, low, high)                                                   \
    [API_FIELD_##NAME] = {#field, API_NUMBER_##type, offsetof(struct api_request, field), low,  \
                          high},
    API_NUMBERS(X)
#undef X
};

bool api_error_set(struct api_error *e, enum err_code code, const char *detail, str param,
                   const char *format, ...)
{
    char text[ERR_TEXT_MAX * 2];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    *e = (struct api_error){.code = str_of(detail), .param = param};
    return err_set(&e->err, code, "%s", text);
}

void api_request_init(struct api_request *rq)
{
    *rq = (struct api_request){
        .kind = API_KIND_CHAT,
        .parallel_tool_calls = true,
        .replay = true,
        .temperature = 1,
        .top_p = 1,
        .typical_p = 1,
        .repeat_penalty = 1,
        .repeat_last = 64,
        .n = 1,
        .think_tokens_max = API_THINK_ENDLESS,
        .priority = API_PRIORITY_NORMAL,
    };
}

static double api_number_value(const struct api_request *rq, const struct api_number *n)
{
    const char *at = (const char *)rq + n->offset;
    if (n->type == API_NUMBER_F32) {
        float f;
        memcpy(&f, at, sizeof f);
        return (double)f;
    }
    uint32_t u;
    memcpy(&u, at, sizeof u);
    return u;
}

/* A float holds 0.01 a little below it: the comparison is in the field's own precision. */
static bool api_number_fits(const struct api_number *n, double v)
{
    if (!isfinite(v))
        return false;
    if (n->type == API_NUMBER_F32)
        return (float)v >= (float)n->low && (float)v <= (float)n->high;
    return v >= n->low && v <= n->high && v == floor(v);
}

static bool api_number_refuse(struct api_error *e, str path, const struct api_number *n, double v)
{
    const char *what = n->type == API_NUMBER_F32 ? "number" : "integer";
    return api_error_set(e, ERR_REQUEST, NULL, path,
                         "%.*s: %s from %.10g to %.10g expected, got %.17g", STR_ARG(path), what,
                         n->low, n->high, v);
}

bool api_request_set(struct api_request *rq, enum api_field field, double value, str path,
                     struct api_error *e)
{
    must(field < countof(api_numbers));
    const struct api_number *n = &api_numbers[field];
    if (!api_number_fits(n, value))
        return api_number_refuse(e, path, n, value);
    char *at = (char *)rq + n->offset;
    if (n->type == API_NUMBER_F32) {
        float f = (float)value;
        memcpy(at, &f, sizeof f);
    } else {
        uint32_t u = (uint32_t)value;
        memcpy(at, &u, sizeof u);
    }
    rq->given |= UINT64_C(1) << field;
    return true;
}

uint32_t api_request_choices(const struct api_request *rq)
{
    switch (rq->kind) {
    case API_KIND_CHAT:
        return rq->n;
    case API_KIND_COMPLETE:
        return rq->n * rq->inputs_count;
    case API_KIND_EMBED: case API_KIND_COUNT: case API_KIND_ENCODE: case API_KIND_DECODE:
    case API_KIND_PREFILL: case API_KIND_LIST: case API_KIND_SHOW: case API_KIND_PS:
    case API_KIND_LOAD: case API_KIND_UNLOAD: case API_KIND_COUNT_:
        break;
    }
    return 1;
}

bool api_request_has_tools(const struct api_request *rq)
{
    for (uint32_t i = 0; i < rq->tools_count; i++)
        if (rq->tools[i].kind != API_TOOL_HOSTED)
            return true;
    return false;
}

bool api_request_goes_on(const struct api_request *rq, uint32_t choice)
{
    for (uint32_t i = 0; rq->resume && i < rq->resume->partials_count; i++)
        if (rq->resume->partials[i].choice == choice)
            return true;
    return rq->resume == NULL;
}

/* splitmix64's finaliser: neighbouring choices get unrelated seeds. */
uint64_t api_request_seed(const struct api_request *rq, uint32_t choice)
{
    if (choice == 0)
        return rq->seed;
    uint64_t z = rq->seed + choice * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* --- check --------------------------------------------------------------------------------- */

static bool api_check_numbers(const struct api_request *rq, struct api_error *e)
{
    for (size_t i = 0; i < countof(api_numbers); i++) {
        double v = api_number_value(rq, &api_numbers[i]);
        if (!api_number_fits(&api_numbers[i], v))
            return api_number_refuse(e, str_of(api_numbers[i].name), &api_numbers[i], v);
    }
    return true;
}

static bool api_check_enums(const struct api_request *rq, struct api_error *e)
{
    const struct { const char *name; unsigned value, count; } enums[] = {
        {"kind", rq->kind, API_KIND_COUNT_},
        {"tool_choice", rq->tool_choice, API_TOOL_CHOICE_COUNT_},
        {"format", rq->format.kind, API_FORMAT_COUNT_},
        {"think", rq->think, API_THINK_COUNT_},
        {"effort", rq->effort, API_EFFORT_COUNT_},
        {"cache", rq->cache, API_CACHE_COUNT_},
        {"priority", rq->priority, API_PRIORITY_COUNT_},
        {"truncate", rq->truncate, API_TRUNCATE_COUNT_},
    };
    for (size_t i = 0; i < countof(enums); i++)
        if (enums[i].value >= enums[i].count)
            return api_error_set(e, ERR_REQUEST, NULL, str_of(enums[i].name), "%s: no value %u",
                                 enums[i].name, enums[i].value);
    uint32_t weight = (uint32_t)base_max(rq->weight, rq->key_weight);
    if (weight > API_WEIGHT_MAX)
        return api_error_set(e, ERR_REQUEST, NULL, STR("weight"), "weight: at most %u expected, "
                             "got %u", API_WEIGHT_MAX, weight);
    if (rq->given >> API_FIELD_COUNT_)
        return api_error_set(e, ERR_REQUEST, NULL, STR("given"), "given: unknown bits %#llx",
                             (unsigned long long)rq->given);
    return true;
}

static bool api_check_text(str s, const char *name, struct api_error *e)
{
    size_t valid = str_utf8_valid(s);
    if (valid != s.len)
        return api_error_set(e, ERR_REQUEST, NULL, str_of(name), "%s: invalid UTF-8 at byte %zu",
                             name, valid);
    return true;
}

static bool api_check_names(const struct api_request *rq, struct api_error *e)
{
    const struct { const char *name; str text; size_t max; } names[] = {
        {"model", rq->model, API_NAME_LEN_MAX},     {"leg", rq->leg, API_NAME_LEN_MAX},
        {"agent", rq->agent, API_NAME_LEN_MAX},     {"session", rq->session, API_NAME_LEN_MAX},
        {"context", rq->context, API_NAME_LEN_MAX}, {"owner", rq->owner, API_NAME_LEN_MAX},
        {"scope", rq->scope, API_NAME_LEN_MAX},     {"suffix", rq->suffix, SIZE_MAX},
        {"prediction", rq->prediction, SIZE_MAX},   {"format", rq->format.text, SIZE_MAX},
        {"format.name", rq->format.name, SIZE_MAX}, {"template_args", rq->template_args, SIZE_MAX},
    };
    for (size_t i = 0; i < countof(names); i++) {
        if (names[i].text.len > names[i].max)
            return api_error_set(e, ERR_LIMIT, NULL, str_of(names[i].name),
                                 "%s: %zu bytes, at most %zu are allowed", names[i].name,
                                 names[i].text.len, names[i].max);
        if (!api_check_text(names[i].text, names[i].name, e))
            return false;
    }
    return true;
}

static bool api_check_counts(const struct api_request *rq, struct api_error *e)
{
    const struct { const char *name; const void *p; uint32_t count, max; } lists[] = {
        {"messages", rq->messages, rq->messages_count, API_MESSAGES_MAX},
        {"inputs", rq->inputs, rq->inputs_count, API_INPUTS_MAX},
        {"tools", rq->tools, rq->tools_count, API_TOOLS_MAX},
        {"logit_bias", rq->bias, rq->bias_count, API_BIAS_MAX},
        {"stop", rq->stop, rq->stop_count, API_STOP_MAX},
        {"stop_ids", rq->stop_ids, rq->stop_ids_count, API_STOP_MAX},
        {"notes", rq->notes, rq->notes_count, API_NOTES_MAX},
        {"headers", rq->headers, rq->headers_count, API_HEADERS_MAX},
    };
    for (size_t i = 0; i < countof(lists); i++) {
        must(lists[i].p || lists[i].count == 0);
        if (lists[i].count > lists[i].max)
            return api_error_set(e, ERR_LIMIT, NULL, str_of(lists[i].name),
                                 "%s: %u entries, at most %u are allowed", lists[i].name,
                                 lists[i].count, lists[i].max);
    }
    return true;
}

static bool api_check_ids(const int32_t *ids, uint32_t count, const char *name, struct api_error *e)
{
    must(ids || count == 0);
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] < 0)
            return api_error_set(e, ERR_REQUEST, NULL, str_of(name), "%s: token id %d is negative",
                                 name, ids[i]);
    return true;
}

static bool api_check_part(const struct api_part *p, struct api_error *e)
{
    if ((unsigned)p->kind >= API_PART_COUNT_)
        return api_error_set(e, ERR_REQUEST, NULL, STR("messages"), "messages: no part kind %d",
                             (int)p->kind);
    if (p->kind == API_PART_CALL && p->name.len == 0)
        return api_error_set(e, ERR_REQUEST, NULL, STR("messages"),
                             "messages: a tool call without a name");
    return (p->kind == API_PART_IMAGE || api_check_text(p->text, "messages", e)) &&
           api_check_text(p->id, "messages", e) && api_check_text(p->name, "messages", e) &&
           api_check_text(p->name_space, "messages", e) &&
           api_check_text(p->media_type, "messages", e);
}

static bool api_check_message(const struct api_message *m, uint64_t *parts, struct api_error *e)
{
    must(m->parts || m->parts_count == 0);
    if ((unsigned)m->role >= API_ROLE_COUNT_)
        return api_error_set(e, ERR_REQUEST, NULL, STR("messages"), "messages: no role %d",
                             (int)m->role);
    *parts += m->parts_count;
    if (*parts > API_PARTS_MAX)
        return api_error_set(e, ERR_LIMIT, NULL, STR("messages"),
                             "messages: more than %u parts", API_PARTS_MAX);
    for (uint32_t i = 0; i < m->parts_count; i++)
        if (!api_check_part(&m->parts[i], e))
            return false;
    return api_check_text(m->name, "messages", e) &&
           api_check_ids(m->ids, m->ids_count, "messages", e);
}

static bool api_check_tools(const struct api_request *rq, struct api_error *e)
{
    uint32_t allowed = 0;
    for (uint32_t i = 0; i < rq->tools_count; i++) {
        const struct api_tool *t = &rq->tools[i];
        if ((unsigned)t->kind >= API_TOOL_COUNT_)
            return api_error_set(e, ERR_REQUEST, NULL, STR("tools"), "tools: no kind %d",
                                 (int)t->kind);
        if (t->name.len == 0 && t->kind != API_TOOL_HOSTED)
            return api_error_set(e, ERR_REQUEST, NULL, STR("tools"), "tools: tool %u has no name",
                                 i);
        if (!api_check_text(t->name, "tools", e) || !api_check_text(t->name_space, "tools", e) ||
            !api_check_text(t->description, "tools", e) || !api_check_text(t->schema, "tools", e))
            return false;
        allowed += t->allowed;
    }
    if (rq->tool_choice == API_TOOL_CHOICE_NAMED && allowed != 1)
        return api_error_set(e, ERR_REQUEST, NULL, STR("tool_choice"),
                             "tool_choice: one named tool expected, %u are allowed", allowed);
    if (rq->tool_choice == API_TOOL_CHOICE_REQUIRED && rq->tools_count == 0)
        return api_error_set(e, ERR_REQUEST, NULL, STR("tool_choice"),
                             "tool_choice: a call is required, but the request declares no tool");
    if (rq->tool_choice == API_TOOL_CHOICE_REQUIRED && allowed == 0)
        return api_error_set(e, ERR_REQUEST, NULL, STR("tool_choice"), "tool_choice: a call is "
                             "required, but allowed_tools names none of the %u declared",
                             rq->tools_count);
    return true;
}

static bool api_check_stops(const struct api_request *rq, struct api_error *e)
{
    for (uint32_t i = 0; i < rq->stop_count; i++) {
        if (rq->stop[i].len == 0 || rq->stop[i].len > API_STOP_LEN_MAX)
            return api_error_set(e, ERR_REQUEST, NULL, STR("stop"),
                                 "stop: 1 to %u bytes expected, got %zu", API_STOP_LEN_MAX,
                                 rq->stop[i].len);
        if (!api_check_text(rq->stop[i], "stop", e))
            return false;
    }
    for (uint32_t i = 0; i < rq->bias_count; i++)
        if (rq->bias[i].id < 0 || !(fabsf(rq->bias[i].bias) <= 100))
            return api_error_set(e, ERR_REQUEST, NULL, STR("logit_bias"),
                                 "logit_bias: id %d with a bias from -100 to 100 expected, got %g",
                                 rq->bias[i].id, (double)rq->bias[i].bias);
    return api_check_ids(rq->stop_ids, rq->stop_ids_count, "stop_ids", e);
}

static bool api_check_resume(const struct api_request *rq, uint64_t *parts, struct api_error *e)
{
    const struct api_resume *r = rq->resume;
    if (!r)
        return true;
    must(r->partials || r->partials_count == 0);
    uint32_t choices = api_request_choices(rq);
    if (r->partials_count == 0 || r->partials_count > choices)
        return api_error_set(e, ERR_REQUEST, NULL, STR("resume"),
                             "resume: %u partial replies for %u choices", r->partials_count,
                             choices);
    for (uint32_t i = 0; i < r->partials_count; i++) {
        const struct api_partial *p = &r->partials[i];
        if (p->choice >= choices || (i && p->choice <= r->partials[i - 1].choice))
            return api_error_set(e, ERR_REQUEST, NULL, STR("resume"),
                                 "resume: choice %u is out of order or range", p->choice);
        if (!api_check_message(&p->message, parts, e))
            return false;
    }
    return true;
}

/* What each kind needs. */
static bool api_check_kind(const struct api_request *rq, struct api_error *e)
{
    switch (rq->kind) {
    case API_KIND_CHAT:
        if (rq->messages_count == 0)
            return api_error_set(e, ERR_REQUEST, NULL, STR("messages"),
                                 "messages: at least one message expected, got none");
        break;
    case API_KIND_COMPLETE: case API_KIND_EMBED: case API_KIND_DECODE:
        if (rq->inputs_count == 0)
            return api_error_set(e, ERR_REQUEST, NULL, STR("inputs"),
                                 "inputs: at least one input expected, got none");
        break;
    case API_KIND_COUNT: case API_KIND_ENCODE: case API_KIND_PREFILL:
        if (rq->inputs_count == 0 && rq->messages_count == 0)
            return api_error_set(e, ERR_REQUEST, NULL, STR("messages"),
                                 "messages: at least one message or input expected, got none");
        break;
    case API_KIND_LIST: case API_KIND_SHOW: case API_KIND_PS: case API_KIND_LOAD:
    case API_KIND_UNLOAD: case API_KIND_COUNT_:
        break;
    }
    if (rq->kind == API_KIND_COMPLETE && (uint64_t)rq->n * rq->inputs_count > API_CHOICES_MAX)
        return api_error_set(e, ERR_LIMIT, NULL, STR("n"),
                             "n: %u choices of %u prompts, at most %u", rq->n,
                             rq->inputs_count, API_CHOICES_MAX);
    if (rq->continue_last && (rq->messages_count == 0 ||
                              rq->messages[rq->messages_count - 1].role != API_ROLE_ASSISTANT))
        return api_error_set(e, ERR_REQUEST, NULL, STR("messages"),
                             "messages: only a last assistant turn can be continued");
    return true;
}

bool api_request_check(const struct api_request *rq, struct api_error *e)
{
    uint64_t parts = 0;
    if (!api_check_enums(rq, e) || !api_check_numbers(rq, e) || !api_check_names(rq, e) ||
        !api_check_counts(rq, e) || !api_check_kind(rq, e) || !api_check_tools(rq, e) ||
        !api_check_stops(rq, e) || !api_check_resume(rq, &parts, e))
        return false;
    for (uint32_t i = 0; i < rq->messages_count; i++)
        if (!api_check_message(&rq->messages[i], &parts, e))
            return false;
    for (uint32_t i = 0; i < rq->inputs_count; i++)
        if (!api_check_text(rq->inputs[i].text, "inputs", e) ||
            !api_check_ids(rq->inputs[i].ids, rq->inputs[i].ids_count, "inputs", e))
            return false;
    for (uint32_t i = 0; i < rq->notes_count; i++)
        if (!api_check_text(rq->notes[i].code, "notes", e) ||
            !api_check_text(rq->notes[i].text, "notes", e))
            return false;
    return true;
}

/* --- printing ------------------------------------------------------------------------------ */

static const char *const api_kind_names[API_KIND_COUNT_] = {
    "chat", "complete", "embed", "count", "encode", "decode", "prefill",
    "list", "show", "ps", "load", "unload",
};
static const char *const api_role_names[API_ROLE_COUNT_] = {
    "system", "developer", "user", "assistant", "tool",
};
static const char *const api_effort_names[API_EFFORT_COUNT_] = {
    "default", "none", "minimal", "low", "medium", "high", "xhigh", "max",
};

const char *api_request_kind_name(enum api_kind kind)
{
    must((unsigned)kind < API_KIND_COUNT_);
    return api_kind_names[kind];
}

const char *api_request_role_name(enum api_role role)
{
    must((unsigned)role < API_ROLE_COUNT_);
    return api_role_names[role];
}

const char *api_request_fault_name(enum api_fault fault)
{
    static const char *const names[] = {
#define X(name, text) text,
        API_FAULTS(X)
#undef X
    };
    must((unsigned)fault < API_FAULT_COUNT_);
    return names[fault];
}

const char *api_request_effort_name(enum api_effort effort)
{
    must((unsigned)effort < API_EFFORT_COUNT_);
    return api_effort_names[effort];
}

bool api_request_effort_of(str name, enum api_effort *out)
{
    for (size_t i = API_EFFORT_NONE; i < countof(api_effort_names); i++)
        if (str_eq_z(name, api_effort_names[i])) {
            *out = (enum api_effort)i;
            return true;
        }
    return false;
}

uint32_t api_request_effort_tokens(enum api_effort effort)
{
    switch (effort) {
    case API_EFFORT_NONE:
        return 0;
    case API_EFFORT_MINIMAL:
        return 512;
    case API_EFFORT_LOW:
        return 2048;
    case API_EFFORT_MEDIUM:
        return 8192;
    case API_EFFORT_HIGH:
        return 32768;
    case API_EFFORT_DEFAULT: case API_EFFORT_XHIGH: case API_EFFORT_MAX: case API_EFFORT_COUNT_:
        break;
    }
    return API_THINK_ENDLESS;
}

static size_t api_request_text_bytes(const struct api_request *rq)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < rq->messages_count; i++)
        for (uint32_t k = 0; k < rq->messages[i].parts_count; k++)
            bytes += rq->messages[i].parts[k].text.len;
    for (uint32_t i = 0; i < rq->inputs_count; i++)
        bytes += rq->inputs[i].text.len;
    return bytes;
}

void api_request_print(struct buf *out, const struct api_request *rq)
{
    struct api_request neutral;
    api_request_init(&neutral);
    buf_printf(out, "%s id=%llu model=%.*s", api_request_kind_name(rq->kind),
               (unsigned long long)rq->id, STR_ARG(rq->model));
    const struct { const char *name; uint32_t count; } lists[] = {
        {"messages", rq->messages_count}, {"inputs", rq->inputs_count}, {"tools", rq->tools_count},
        {"stop", rq->stop_count}, {"bias", rq->bias_count}, {"notes", rq->notes_count},
    };
    for (size_t i = 0; i < countof(lists); i++)
        if (lists[i].count)
            buf_printf(out, " %s=%u", lists[i].name, lists[i].count);
    buf_printf(out, " text=%zu", api_request_text_bytes(rq));
    for (size_t i = 0; i < countof(api_numbers); i++) {
        double v = api_number_value(rq, &api_numbers[i]);
        if (v != api_number_value(&neutral, &api_numbers[i]))
            buf_printf(out, " %s=%.7g", api_numbers[i].name, v);
    }
    buf_printf(out, " seed=%llu", (unsigned long long)rq->seed);
    if (rq->effort != API_EFFORT_DEFAULT)
        buf_printf(out, " effort=%s", api_request_effort_name(rq->effort));
    if (rq->think != API_THINK_DEFAULT)
        buf_printf(out, " think=%s", rq->think == API_THINK_ON ? "on" : "off");
    if (rq->stream)
        buf_add_z(out, " stream");
    if (rq->resume)
        buf_printf(out, " resume=%u", rq->resume->partials_count);
}
