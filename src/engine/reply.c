#include "engine/reply.h"

#include <string.h>

#include "engine/prompt.h"

#define REPLY_MARKER_MAX 256

/* --- where the prompt leaves the reply ------------------------------------------------------ */

/* Only what the template itself wrote at the very end counts: a user's "<think>" is text. */
static str reply_tail(const struct render_result *p)
{
    size_t from = p->spans_count > 1 ? p->spans[p->spans_count - 2].end : 0;
    bool is_ours = p->spans_count && p->spans[p->spans_count - 1].origin == RENDER_TEMPLATE;
    return is_ours ? str_trim(str_from(p->text, from)) : STR("");
}

static enum output_begin reply_begin(const struct output_format *f, const struct api_request *rq,
                                     const struct render_result *p)
{
    str tail = reply_tail(p);
    if (f->calls && f->calls->shape == OUTPUT_SHAPE_CHANNEL) {
        if (str_ends(tail, STR("analysis<|message|>")))
            return OUTPUT_BEGIN_THINKING;
        return rq->continue_last || str_ends(tail, STR("<|message|>")) ? OUTPUT_BEGIN_ANSWER
                                                                       : OUTPUT_BEGIN_FRESH;
    }
    if (f->think && str_ends(tail, str_trim(f->think->open)))
        return OUTPUT_BEGIN_THINKING;
    if (rq->continue_last || (f->think && str_ends(tail, str_trim(f->think->close))))
        return OUTPUT_BEGIN_ANSWER;
    return OUTPUT_BEGIN_FRESH;
}

/* --- the budget of thinking ----------------------------------------------------------------- */

/* BEHAVIOUR 6.3: what an effort means to a template that has no variable for it. */
static uint32_t reply_budget(const struct api_request *rq, uint32_t caps)
{
    bool off = rq->think == API_THINK_OFF || rq->effort == API_EFFORT_NONE;
    if (api_request_is_given(rq, API_FIELD_THINK_TOKENS_MAX) ||
        rq->think_tokens_max != API_THINK_ENDLESS)
        return rq->think_tokens_max;
    if (off)
        return caps & RENDER_CAP_SWITCH ? API_THINK_ENDLESS : 0;
    if (caps & RENDER_CAP_EFFORT)
        return API_THINK_ENDLESS;
    return api_request_effort_tokens(rq->effort);
}

/* The closer as the model writes it; harmony goes on to the channel of the answer, or to a call. */
static str reply_closer(const struct output_format *f, bool is_forced)
{
    if (f->think)
        return f->think->close;
    if (!f->calls || f->calls->shape != OUTPUT_SHAPE_CHANNEL)
        return STR("");
    return is_forced ? STR("<|end|><|start|>assistant")
                     : STR("<|end|><|start|>assistant<|channel|>final<|message|>");
}

static bool reply_close_ids(struct reply *r, const struct prompt_model *m, bool is_forced,
                            struct arena *a, struct api_error *e)
{
    struct tok_ids ids;
    struct err why;
    str closer = reply_closer(&r->format, is_forced);
    if (r->think_tokens_max == API_THINK_ENDLESS || closer.len == 0)
        return true;
    tok_ids_init(&ids, REPLY_MARKER_MAX);
    bool ok = tok_encode_str(m->tok, closer, true, false, &ids, &why);
    size_t count = tok_ids_count(&ids);
    int32_t *copy = ok ? ARENA_ARRAY(a, int32_t, count) : NULL;
    if (copy)
        memcpy(copy, tok_ids_data(&ids), count * sizeof *copy);
    tok_ids_deinit(&ids);
    r->close_ids = copy;
    r->close_count = copy ? (uint32_t)count : 0;
    if (!ok)
        return api_error_set(e, why.code, NULL, STR("think_tokens_max"), "%s", why.text);
    return copy ? true : api_error_set(e, ERR_LIMIT, NULL, STR(""), "request: out of its memory");
}

/* By the reader, or by the grammar of a form that is not JSON. */
static bool reply_needs_types(const struct output_row *row)
{
    return row->shape == OUTPUT_SHAPE_TAGS || row->shape == OUTPUT_SHAPE_LITERAL;
}

static bool reply_check_names(const struct output_row *row, const struct output_tools *tools,
                              struct api_error *e)
{
    for (uint32_t i = 0; i < tools->rows_count; i++)
        if (!output_table_can_name(row, tools->rows[i].name))
            return api_error_set(e, ERR_REQUEST, NULL, STR("tools"), "tools: the name '%.*s' cannot"
                                 " be said in this model's form of calls (%.*s), which ends a name"
                                 " at blanks, quotes and brackets",
                                 STR_ARG(str_sub(tools->rows[i].name, 0, 64)), STR_ARG(row->name));
    return true;
}

/* --- making it ------------------------------------------------------------------------------ */

bool reply_make(struct reply *out, const struct prompt_model *m, const struct api_request *rq,
                const struct render_result *prompt, struct arena *a, struct api_error *e)
{
    struct err why;
    *out = (struct reply){.format = *render_format(m->render)};
    out->one_call = !rq->parallel_tool_calls;
    out->begin = reply_begin(&out->format, rq, prompt);
    out->think_tokens_max = reply_budget(rq, render_caps(m->render));
    if (rq->tool_choice == API_TOOL_CHOICE_REQUIRED && !api_request_has_tools(rq))
        return api_error_set(e, ERR_REQUEST, NULL, STR("tool_choice"),
                             "tool_choice: a call is required, but hosted tools do not run here");
    if (api_request_has_tools(rq) && rq->tool_choice != API_TOOL_CHOICE_NONE) {
        if (!out->format.calls)
            return api_error_set(e, ERR_REQUEST, "tools_unsupported", STR("tools"), "tools: it is "
                                 "not known how this model writes calls");
        struct output_tools *tools = ARENA_NEW(a, struct output_tools);
        if (!tools)
            return api_error_set(e, ERR_LIMIT, NULL, STR("tools"), "request: out of its memory");
        bool ok = reply_needs_types(out->format.calls) ? output_tools_make(tools, rq, a, &why)
                                                       : output_tools_names(tools, rq, a, &why);
        if (!ok)
            return api_error_set(e, why.code, NULL, STR("tools"), "%s", why.text);
        if (!reply_check_names(out->format.calls, tools, e))
            return false;
        out->tools = tools;
    }
    return reply_close_ids(out, m, rq->tool_choice >= API_TOOL_CHOICE_REQUIRED, a, e);
}

/* The reply goes on behind a call, which may not be whole. */
static bool reply_resumes_call(const struct api_request *rq, uint32_t choice)
{
    for (uint32_t i = 0; rq->resume && i < rq->resume->partials_count; i++) {
        const struct api_partial *p = &rq->resume->partials[i];
        uint32_t count = p->message.parts_count;
        if (p->choice == choice && count && p->message.parts[count - 1].kind == API_PART_CALL)
            return true;
    }
    return false;
}

struct output_options reply_output(const struct reply *r, const struct api_request *rq,
                                   uint32_t choice, const int32_t *ids, uint32_t count)
{
    return (struct output_options){
        .format = r->format, .tools = r->tools, .begin = r->begin, .one_call = r->one_call,
        .has_format = rq->format.kind != API_FORMAT_TEXT,
        .is_forced = rq->tool_choice >= API_TOOL_CHOICE_REQUIRED || r->goes_on_call ||
                     reply_resumes_call(rq, choice),
        .stops = rq->stop, .stops_count = rq->stop_count, .keep_stop = rq->keep_stop,
        .id_seed = digest_xxh3_128(str_view(ids, count * sizeof *ids),
                                   api_request_seed(rq, choice))};
}
