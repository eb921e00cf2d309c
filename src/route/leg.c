#include "route/leg.h"

#include <string.h>

#define LEG_BYTES_PER_TOKEN 3 /* BEHAVIOUR 9.2: where nobody has counted */

static const char *const leg_continue_names[] = {
#define X(name, text) text,
    LEG_CONTINUES(X)
#undef X
};

const char *leg_continue_name(enum leg_continue c)
{
    must((unsigned)c < LEG_CONTINUE_COUNT_);
    return leg_continue_names[c];
}

bool leg_continue_parse(str name, enum leg_continue *out)
{
    for (unsigned i = 0; i < LEG_CONTINUE_ENGINE; i++)
        if (str_eq_z(name, leg_continue_names[i])) {
            *out = (enum leg_continue)i;
            return true;
        }
    return false;
}

uint32_t leg_estimate_tokens(const struct api_request *rq)
{
    uint64_t bytes = 0, ids = 0;
    for (uint32_t i = 0; i < rq->messages_count; i++)
        for (uint32_t k = 0; k < rq->messages[i].parts_count; k++)
            if (rq->messages[i].parts[k].kind != API_PART_IMAGE)
                bytes += rq->messages[i].parts[k].text.len;
    for (uint32_t i = 0; i < rq->inputs_count; i++) {
        bytes += rq->inputs[i].text.len;
        ids += rq->inputs[i].ids_count;
    }
    for (uint32_t i = 0; i < rq->tools_count; i++)
        bytes += rq->tools[i].description.len + rq->tools[i].schema.len;
    uint64_t tokens = bytes / LEG_BYTES_PER_TOKEN + ids;
    return tokens < UINT32_MAX ? (uint32_t)tokens : UINT32_MAX;
}

static uint32_t leg_caps_of(const struct api_request *rq)
{
    uint32_t caps = rq->kind == API_KIND_EMBED ? API_CAP_EMBED : 0;
    for (uint32_t i = 0; i < rq->tools_count; i++)
        if (rq->tools[i].kind != API_TOOL_HOSTED && rq->tool_choice != API_TOOL_CHOICE_NONE)
            caps |= API_CAP_TOOLS;
    for (uint32_t i = 0; i < rq->messages_count; i++)
        for (uint32_t k = 0; k < rq->messages[i].parts_count; k++)
            if (rq->messages[i].parts[k].kind == API_PART_IMAGE)
                caps |= API_CAP_VISION;
    if (rq->format.kind != API_FORMAT_TEXT)
        caps |= API_CAP_SCHEMA;
    if (rq->logprobs)
        caps |= API_CAP_LOGPROBS;
    if (rq->n > 1)
        caps |= API_CAP_N;
    return caps;
}

struct leg_needs leg_needs_of(const struct api_request *rq, uint32_t prompt_tokens)
{
    return (struct leg_needs){.kind = rq->kind, .caps = leg_caps_of(rq),
                              .prompt_tokens = prompt_tokens, .dialect = rq->dialect,
                              .has_own_key = rq->client_key != NULL,
                              .is_pin = rq->cache == API_CACHE_PIN};
}

static bool leg_can_continue(const struct leg *l, const struct leg_needs *n)
{
    if (l->cannot_continue)
        return false;
    switch (l->goes_on) {
    case LEG_CONTINUE_ENGINE:
        return (n->model_hash && n->model_hash == l->model.model_hash) ||
               l->model.caps & API_CAP_CONTINUE_TEXT || !l->model.caps;
    case LEG_CONTINUE_SHOAL:
        return true;
    case LEG_CONTINUE_PREFILL: case LEG_CONTINUE_FINAL_MESSAGE:
        return !n->in_reasoning && !n->in_call;
    case LEG_CONTINUE_NONE: case LEG_CONTINUE_COUNT_:
        break;
    }
    return false;
}

const char *leg_lacks(const struct leg *l, const struct leg_needs *n)
{
    static const struct {
        uint32_t cap;
        const char *name;
    } rows[] = {
        {API_CAP_TOOLS, "tools"}, {API_CAP_VISION, "vision"}, {API_CAP_SCHEMA, "schema"},
        {API_CAP_LOGPROBS, "logprobs"}, {API_CAP_N, "n"}, {API_CAP_EMBED, "embed"},
    };
    /* An engine leg that was never loaded tells its own limits when it is asked. */
    bool is_known = l->kind == LEG_KIND_UPSTREAM || l->model.caps;
    if (l->model.context_max && n->prompt_tokens >= l->model.context_max)
        return "context";
    for (size_t i = 0; is_known && i < countof(rows); i++)
        if (n->caps & rows[i].cap & ~l->model.caps)
            return rows[i].name;
    if (n->is_pin && l->kind == LEG_KIND_UPSTREAM)
        return "pin";
    if (n->must_continue && !leg_can_continue(l, n))
        return "continue";
    if (n->vectors.len && !str_eq(n->vectors, l->vectors))
        return "vectors";
    if (l->is_passthrough && (!n->has_own_key || !str_eq(l->dialect, n->dialect)))
        return "credentials";
    return NULL;
}
