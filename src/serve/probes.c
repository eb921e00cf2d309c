#include "serve/probes.h"

#include "route/deadline.h"
#include "serve/legs.h"

#define PROBES_PROMPT_TOKENS 16u /* of its few words in any template; decides the bucket */

void probes_init(struct probes *p, struct legs *l) { *p = (struct probes){.legs = l}; }

void probes_close(struct probes *p)
{
    legs_unref(p->g);
    p->g = NULL;
}

static void probes_on_check(void *ctx, const struct remote_leg_check *c)
{
    struct probes *p = ctx;
    struct legs_generation *g = p->g;
    const struct api_error why = {.fault = c->fault, .upstream_status = c->status,
                                  .err = {.code = ERR_UPSTREAM}};
    bool is_ok = c->fault == API_FAULT_NONE;
    struct legs_outcome o = {.class_ = is_ok ? HEALTH_CLASS_OK : health_class_of(&why),
                             .is_trial = p->is_trial, .retry_after_ms = c->retry_after_ms,
                             .text = c->text};
    p->tokens += c->tokens;
    p->g = NULL;
    legs_count_probe(p->legs, p->at, LEGS_PROBE_PAID, is_ok);
    legs_end(p->legs, p->at, &o);
    legs_unref(g); /* may close the leg, which allows it */
}

/* As an agent's trial: half the wait for a first token. */
static struct api_deadlines probes_deadlines(const struct leg *l)
{
    uint32_t bucket = health_bucket(PROBES_PROMPT_TOKENS, API_EFFORT_DEFAULT);
    const struct deadline_input in = {
        .asked = l->deadline, .is_trial = true, .prompt_tokens = PROBES_PROMPT_TOKENS,
        .is_silent_thinker = l->model.caps & API_CAP_THINK && !l->health.shows_thinking,
        .samples = &l->health.first[bucket]};
    return deadline_make(&in);
}

static void probes_send(struct probes *p, struct legs_leg *at, int64_t now_ms)
{
    const struct api_deadlines wait = probes_deadlines(&at->leg);
    p->g = legs_ref(p->legs);
    p->at = at;
    p->is_trial = legs_begin(p->legs, at);
    if (remote_leg_probe(at->remote, str_of(at->model), &wait, probes_on_check, p)) {
        paid_add(&p->paid, now_ms);
        legs_changed(p->legs); /* the ledger */
        return;
    }
    const struct legs_outcome none = {.class_ = HEALTH_CLASS_CLIENT_GONE, .text = STR(""),
                                      .is_trial = p->is_trial};
    legs_end(p->legs, at, &none);
    legs_unref(p->g);
    p->g = NULL;
}

void probes_tick(struct probes *p, const struct paid_view *v, int64_t now_ms)
{
    if (p->g || !v->per_hour)
        return;
    for (struct legs_leg *at = legs_first(p->legs); at; at = legs_next(p->legs, at))
        if (at->remote && paid_may(&p->paid, v, &at->leg, now_ms)) {
            probes_send(p, at, now_ms);
            return;
        }
}
