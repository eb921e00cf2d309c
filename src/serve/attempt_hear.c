#include "serve/attempt_state.h"

#include <stdio.h>

#include "base/json.h"
#include "base/log.h"
#include "dialect/dialect_client.h"
#include "route/health.h"

#define ATTEMPT_TRIAL_MS 10000 /* BEHAVIOUR 9.5: of tokens */
#define ATTEMPT_STICKY_MS 3600000 /* BEHAVIOUR 9.2, or as long as the cache asked for */
#define ATTEMPT_EVENTS_MORE 4u /* notes beside a leg's events */

/* --- what the client is told of it --------------------------------------------------------- */

void attempt_hear_share_end(struct attempt *a, const char *reason)
{
    uint32_t all = a->has_script ? transcript_tokens(&a->script) : 0;
    if (a->shares_count == countof(a->shares))
        return;
    struct attempt_share *s = &a->shares[a->shares_count++];
    s->leg = attempt_leg(a);
    s->tokens = all > a->tokens_before ? all - a->tokens_before : 0;
    snprintf(s->reason, sizeof s->reason, "%s", reason);
    a->tokens_before = all;
}

static void attempt_note(struct api_event *out, const char *code, str text)
{
    *out = (struct api_event){.kind = API_EVENT_NOTE, .note = {str_of(code), text}};
}

static str attempt_substitution(struct attempt *a, const char *from, const char *reason)
{
    return arena_printf(&a->scratch, "from=%s; to=%s; reason=%s", from, attempt_leg(a)->name,
                        reason);
}

static str attempt_failover(struct attempt *a, const struct attempt_share *last)
{
    return arena_printf(&a->scratch, "from=%s; to=%s; reason=%s; sent=%zu", last->leg->name,
                        attempt_leg(a)->name, last->reason, transcript_bytes(&a->script));
}

/* Legs whose tokens the reply holds; more than one: [{"leg","model","reason","output_tokens"}],
 * reason null of the one that ended it. Else "". */
static str attempt_legs_json(struct attempt *a)
{
    struct buf b;
    uint32_t count = 0;
    buf_init(&b, 16384);
    struct json_writer w = json_writer(&b);
    json_open_array(&w);
    for (uint32_t i = 0; i < a->shares_count; i++) {
        const struct attempt_share *s = &a->shares[i];
        if (!s->tokens)
            continue;
        count++;
        json_open_object(&w);
        json_key_z(&w, "leg");
        json_put_text_z(&w, s->leg->name);
        json_key_z(&w, "model");
        json_put_text_z(&w, s->leg->model);
        json_key_z(&w, "reason");
        if (s->reason[0])
            json_put_text_z(&w, s->reason);
        else
            json_put_null(&w);
        json_key_z(&w, "output_tokens");
        json_put_u64(&w, s->tokens);
        json_close_object(&w);
    }
    json_close_array(&w);
    str json = count > 1 ? arena_copy(&a->scratch, buf_view(&b)) : STR("");
    buf_deinit(&b);
    return json;
}

/* Something is heard again: how long did the client wait for it? */
static void attempt_tell_delay(struct attempt *a)
{
    if (a->is_struck && !a->is_delay_told)
        rehearsal_delay(legs_rehearsal(a->legs), loop_ms() - a->said_ms);
    a->is_delay_told = a->is_struck;
}

/* --- a leg answers ------------------------------------------------------------------------- */

struct attempt_out {
    struct api_event *events;
    uint32_t count;
};

/* The first token of the leg at hand. */
static void attempt_on_started(struct attempt *a, const struct api_event *ev,
                               struct attempt_out *out)
{
    struct legs_leg *at = attempt_leg(a);
    struct legs_failover f = {.to = str_of(at->name), .reason = a->why_class};
    uint32_t bucket = health_bucket(a->needs.prompt_tokens, a->rq->effort);
    a->token_ms = loop_ms();
    attempt_tell_delay(a);
    if (!a->is_resumed)
        legs_first_token(a->legs, at, bucket, a->token_ms - a->begun_ms);
    const struct attempt_share *last = a->shares_count ? &a->shares[a->shares_count - 1] : NULL;
    if (last && last->leg != at) {
        f.from = str_of(last->leg->name);
        f.is_after = a->is_started;
        legs_count_failover(a->legs, &f);
    }
    if (a->is_started) {
        must(last);
        if (last->leg == at)
            return;
        attempt_note(&out->events[out->count++], "failover",
                     attempt_failover(a, last));
        return;
    }
    if (a->now > 0)
        attempt_note(&out->events[out->count++], "substituted",
                     attempt_substitution(a, a->at[0]->name, a->first_reason));
    struct api_event *to = &out->events[out->count++];
    *to = *ev;
    to->started.leg = str_of(at->name);
    if (!to->started.model.len)
        to->started.model = a->models[a->now];
    a->is_started = true;
    a->prompt_tokens = to->started.prompt_tokens;
    int64_t cache_ms = (int64_t)a->rq->cache_s * 1000;
    int64_t sticky_ms = cache_ms > ATTEMPT_STICKY_MS ? cache_ms : ATTEMPT_STICKY_MS;
    sticky_put(legs_sticky(a->legs), a->key, str_of(at->name), a->token_ms + sticky_ms,
               a->token_ms);
    legs_changed(a->legs);
}

/* An engine counts the whole reply when it resumes one; an upstream only its own part, and what
 * was said before as part of its prompt. The last share is what makes the shares the whole: the
 * transcript does not have this batch yet, and counts of text are guesses. */
static void attempt_on_usage(struct attempt *a, const struct api_event *ev,
                             struct attempt_out *out)
{
    bool is_part = a->is_resumed && attempt_leg(a)->leg.kind != LEG_KIND_ENGINE;
    uint32_t said = ev->usage.output_tokens, before = 0;
    for (uint32_t i = 0; i < a->shares_count; i++)
        before += a->shares[i].tokens;
    if (a->shares_count && a->shares_count < countof(a->shares)) {
        attempt_hear_share_end(a, "");
        struct attempt_share *last = &a->shares[a->shares_count - 1];
        if (is_part || said > before)
            last->tokens = is_part ? said : said - before;
    }
    str json = a->shares_count ? attempt_legs_json(a) : STR("");
    if (json.len)
        attempt_note(&out->events[out->count++], "legs", json);
    struct api_event *to = &out->events[out->count++];
    *to = *ev;
    if (!is_part)
        return;
    to->usage.output_tokens += before;
    if (a->prompt_tokens)
        to->usage.prompt_tokens = a->prompt_tokens;
}

static void attempt_on_event(struct attempt *a, const struct api_event *ev,
                             struct attempt_out *out)
{
    switch (ev->kind) {
    case API_EVENT_STARTED:
        attempt_on_started(a, ev, out);
        break;
    case API_EVENT_QUEUED: case API_EVENT_PROGRESS:
        a->is_heard = true;
        if (!a->is_started) /* afterwards they would be out of order */
            out->events[out->count++] = *ev;
        break;
    case API_EVENT_USAGE:
        attempt_on_usage(a, ev, out);
        break;
    case API_EVENT_DONE:
        out->events[out->count++] = *ev;
        a->choices_done++;
        break;
    case API_EVENT_NOTE:
        if (str_eq_z(ev->note.code, DIALECT_CLIENT_RESTARTED)) {
            log_warn("leg %s: it was asked to go on and began anew; it is not asked to again",
                     attempt_leg(a)->name);
            legs_cannot_continue(a->legs, attempt_leg(a));
        } else {
            out->events[out->count++] = *ev;
        }
        break;
    case API_EVENT_REASONING:
        legs_shows_thinking(a->legs, attempt_leg(a));
        out->events[out->count++] = *ev;
        break;
    case API_EVENT_EMBEDDING: case API_EVENT_TOKENS:
        a->has_told = true;
        out->events[out->count++] = *ev;
        break;
    case API_EVENT_CONTENT: case API_EVENT_CALL_BEGIN: case API_EVENT_CALL_ARGS:
    case API_EVENT_CALL_END: case API_EVENT_MODELS: case API_EVENT_PARKED:
        out->events[out->count++] = *ev;
        break;
    case API_EVENT_ERROR: case API_EVENT_COUNT_:
        break;
    }
}

/* What a leg says in the middle of a reply goes on as it is. */
static bool attempt_is_plain(const struct api_batch *b)
{
    bool plain = true;
    for (uint32_t i = 0; i < b->events_count; i++)
        plain = plain && (b->events[i].kind == API_EVENT_CONTENT ||
                          b->events[i].kind == API_EVENT_CALL_ARGS);
    return plain;
}

/* The events as the client shall get them, in scratch; NULL or where the leg's error stands. */
static const struct api_error *attempt_read(struct attempt *a, const struct api_batch *b,
                                            struct api_batch *up)
{
    const struct api_error *error = NULL;
    struct attempt_out out = {NULL, 0};
    arena_rewind(&a->scratch);
    out.events = ARENA_ARRAY(&a->scratch, struct api_event,
                             (size_t)b->events_count + ATTEMPT_EVENTS_MORE);
    for (uint32_t i = 0; out.events && i < b->events_count && !error; i++) {
        if (b->events[i].kind == API_EVENT_ERROR)
            error = &b->events[i].error;
        else
            attempt_on_event(a, &b->events[i], &out);
    }
    up->events = out.events;
    up->events_count = out.count;
    return error;
}

void attempt_hear_batch(void *ctx, const struct api_batch *b)
{
    struct attempt *a = ctx;
    struct legs_leg *at = attempt_leg(a);
    must(at && b->request_id == a->sub.id);
    a->provider.credit(a->provider.self, a->sub.id, (uint32_t)api_batch_weight(b));
    struct api_batch up = *b;
    const struct api_error *error = attempt_is_plain(b) ? NULL : attempt_read(a, b, &up);
    if (a->has_script)
        transcript_add(&a->script, &up);
    if (a->token_ms && !error && !a->is_struck && rehearsal_has_plan(legs_rehearsal(a->legs)))
        a->said_ms = loop_ms();
    if (a->is_trial && a->token_ms && loop_ms() - a->token_ms >= ATTEMPT_TRIAL_MS) {
        legs_trial_ok(a->legs, at);
        a->is_trial = false;
    }
    bool is_over = !error && a->choices_done == api_request_choices(a->rq);
    if (is_over) {
        attempt_count_struck(a, REHEARSAL_END_OVER);
        attempt_leave(a, HEALTH_CLASS_OK, NULL);
        if (at->remote && a->has_script)
            attempt_warm(a, &a->script);
        a->depth++;
        attempt_end(a);
        up.request_id = a->rq->id;
        a->sink.on_batch(a->sink.ctx, &up);
        a->depth--;
        attempt_free(a);
        return;
    }
    if ((up.events_count || b->ids_count) && !attempt_tell(a, &up))
        return;
    if (error)
        attempt_on_error(a, error);
}
