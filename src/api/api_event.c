#include "api/api_event.h"

#include <string.h>

static const char *const api_event_names[API_EVENT_COUNT_] = {
#define X(name, text) text,
    API_EVENTS(X)
#undef X
};
static const char *const api_done_names[API_DONE_COUNT_] = {
#define X(name, text) text,
    API_DONES(X)
#undef X
};

const char *api_event_name(enum api_event_kind kind)
{
    must((unsigned)kind < API_EVENT_COUNT_);
    return api_event_names[kind];
}

const char *api_event_done_name(enum api_done reason)
{
    must((unsigned)reason < API_DONE_COUNT_);
    return api_done_names[reason];
}

void api_event_print_caps(struct buf *out, uint32_t caps)
{
    static const char *const names[] = {"tools", "vision", "schema", "think", "logprobs", "embed",
                                        "insert", "n", "continue_text", "continue_tokens", "chat"};
    const char *comma = "";
    for (size_t i = 0; i < countof(names); i++)
        if (caps >> i & 1u) {
            buf_printf(out, "%s%s", comma, names[i]);
            comma = ",";
        }
}

static void api_event_print_call(struct buf *out, const struct api_event *ev)
{
    buf_printf(out, " index=%u", ev->call.index);
    if (ev->kind == API_EVENT_CALL_BEGIN)
        buf_printf(out, " id=%.*s name=%.*s", STR_ARG(ev->call.id), STR_ARG(ev->call.name));
    if (ev->kind == API_EVENT_CALL_ARGS)
        buf_printf(out, " bytes=%zu", ev->call.args.len);
}

static void api_event_print_usage(struct buf *out, const struct api_usage *u)
{
    buf_printf(out, " prompt=%u cached=%u output=%u reasoning=%u load_ms=%.1f queue_ms=%.1f"
               " prefill_ms=%.1f decode_ms=%.1f", u->prompt_tokens, u->cached_tokens,
               u->output_tokens, u->reasoning_tokens, (double)u->load_ns / 1e6,
               (double)u->queue_ns / 1e6, (double)u->prefill_ns / 1e6, (double)u->decode_ns / 1e6);
}

void api_event_print(struct buf *out, const struct api_event *ev)
{
    buf_add_z(out, api_event_name(ev->kind));
    switch (ev->kind) {
    case API_EVENT_QUEUED:
        buf_printf(out, " place=%u ahead=%llu prompt=%u cached=%u", ev->queued.place,
                   (unsigned long long)ev->queued.tokens_ahead, ev->queued.prompt_tokens,
                   ev->queued.cached_tokens);
        break;
    case API_EVENT_PROGRESS:
        buf_printf(out, " done=%u total=%u", ev->progress.tokens_done, ev->progress.tokens_total);
        break;
    case API_EVENT_PARKED:
        buf_add_z(out, ev->parked.on ? " on" : " off");
        break;
    case API_EVENT_STARTED:
        buf_printf(out, " model=%.*s hash=%016llx prompt=%u cached=%u", STR_ARG(ev->started.model),
                   (unsigned long long)ev->started.model_hash, ev->started.prompt_tokens,
                   ev->started.cached_tokens);
        break;
    case API_EVENT_NOTE:
        buf_printf(out, " code=%.*s", STR_ARG(ev->note.code));
        break;
    case API_EVENT_REASONING: case API_EVENT_CONTENT:
        buf_printf(out, " bytes=%zu logprobs=%u", ev->text.text.len, ev->text.logprobs_count);
        break;
    case API_EVENT_CALL_BEGIN: case API_EVENT_CALL_ARGS: case API_EVENT_CALL_END:
        api_event_print_call(out, ev);
        break;
    case API_EVENT_EMBEDDING:
        buf_printf(out, " index=%u floats=%u", ev->embedding.index, ev->embedding.floats_count);
        break;
    case API_EVENT_TOKENS:
        buf_printf(out, " index=%u count=%u", ev->tokens.index, ev->tokens.tokens_count);
        break;
    case API_EVENT_MODELS:
        buf_printf(out, " rows=%u", ev->models.rows_count);
        break;
    case API_EVENT_USAGE:
        api_event_print_usage(out, &ev->usage);
        break;
    case API_EVENT_DONE:
        buf_printf(out, " %s", api_event_done_name(ev->done.reason));
        break;
    case API_EVENT_ERROR:
        buf_printf(out, " code=%s text=%s", err_name(ev->error.err.code), ev->error.err.text);
        break;
    case API_EVENT_COUNT_:
        break;
    }
}

size_t api_batch_weight(const struct api_batch *b)
{
    size_t weight = 32 + b->ids_count * sizeof *b->ids;
    for (uint32_t i = 0; i < b->events_count; i++) {
        const struct api_event *ev = &b->events[i];
        weight += 32;
        if (ev->kind == API_EVENT_CONTENT || ev->kind == API_EVENT_REASONING)
            weight += ev->text.text.len + ev->text.logprobs_count * sizeof(struct api_logprob);
        if (ev->kind == API_EVENT_CALL_ARGS)
            weight += ev->call.args.len;
    }
    return weight;
}

/* --- order --------------------------------------------------------------------------------- */

void api_order_init(struct api_order *o, const struct api_request *rq)
{
    *o = (struct api_order){.kind = rq->kind, .choices = api_request_choices(rq)};
    must(o->choices <= API_CHOICES_MAX);
    for (uint32_t c = 0; rq->resume && c < o->choices; c++) {
        if (api_request_goes_on(rq, c))
            continue;
        o->done[c / 8] |= (uint8_t)(1u << c % 8);
        o->choices_done++;
    }
}

static bool api_order_is_text(enum api_kind kind)
{
    return kind == API_KIND_CHAT || kind == API_KIND_COMPLETE;
}

/* Which kinds of request may see an event at all. */
static bool api_order_fits(enum api_kind kind, enum api_event_kind ev)
{
    switch (ev) {
    case API_EVENT_QUEUED: case API_EVENT_PROGRESS: case API_EVENT_NOTE: case API_EVENT_DONE:
    case API_EVENT_ERROR:
        return true;
    case API_EVENT_STARTED: case API_EVENT_REASONING: case API_EVENT_CONTENT:
    case API_EVENT_CALL_BEGIN: case API_EVENT_CALL_ARGS: case API_EVENT_CALL_END:
        return api_order_is_text(kind);
    case API_EVENT_EMBEDDING:
        return kind == API_KIND_EMBED;
    case API_EVENT_TOKENS:
        return kind == API_KIND_COUNT || kind == API_KIND_ENCODE || kind == API_KIND_DECODE;
    case API_EVENT_MODELS:
        return kind >= API_KIND_LIST;
    case API_EVENT_USAGE: case API_EVENT_PARKED:
        return kind < API_KIND_LIST;
    case API_EVENT_COUNT_:
        break;
    }
    return false;
}

static bool api_order_done(struct api_order *o, uint32_t choice)
{
    uint8_t bit = (uint8_t)(1u << choice % 8);
    if (o->done[choice / 8] & bit)
        return false;
    o->done[choice / 8] |= bit;
    o->choices_done++;
    if (o->choices_done < o->choices)
        return true;
    o->is_over = true;
    return o->has_usage || o->kind >= API_KIND_LIST;
}

static bool api_order_event(struct api_order *o, uint32_t choice, enum api_event_kind ev)
{
    bool is_done = o->done[choice / 8] >> choice % 8 & 1u;
    if (o->is_over || !api_order_fits(o->kind, ev))
        return false;
    switch (ev) {
    case API_EVENT_QUEUED: case API_EVENT_PROGRESS:
        return !o->is_started;
    case API_EVENT_STARTED:
        if (o->is_started)
            return false;
        o->is_started = true;
        return true;
    case API_EVENT_REASONING: case API_EVENT_CONTENT: case API_EVENT_CALL_BEGIN:
    case API_EVENT_CALL_ARGS: case API_EVENT_CALL_END:
        return o->is_started && !is_done && !o->has_usage;
    case API_EVENT_USAGE: {
        bool is_first = !o->has_usage && o->choices_done + 1 == o->choices;
        o->has_usage = true;
        return is_first;
    }
    case API_EVENT_DONE:
        return api_order_done(o, choice);
    case API_EVENT_ERROR:
        o->is_over = true;
        return true;
    case API_EVENT_NOTE: case API_EVENT_EMBEDDING: case API_EVENT_TOKENS: case API_EVENT_MODELS:
    case API_EVENT_PARKED: case API_EVENT_COUNT_:
        break;
    }
    return true;
}

bool api_order_add(struct api_order *o, const struct api_batch *b, struct err *e)
{
    if (b->choice >= o->choices)
        return err_set(e, ERR_ENGINE, "reply: choice %u of %u", b->choice, o->choices);
    if (b->ids_count && !api_order_is_text(o->kind))
        return err_set(e, ERR_ENGINE, "reply: sampled ids for a request of kind %s",
                       api_request_kind_name(o->kind));
    for (uint32_t i = 0; i < b->events_count; i++)
        if (!api_order_event(o, b->choice, b->events[i].kind))
            return err_set(e, ERR_ENGINE, "reply: event %s out of order for choice %u",
                           api_event_name(b->events[i].kind), b->choice);
    return true;
}
