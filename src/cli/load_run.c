#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/load.h"

#define LOAD_RUN_STEP_MS 20
#define LOAD_RUN_ARRIVAL_MS 250.0 /* mean of the gaps of "random" */
#define LOAD_RUN_QUESTION_WORDS 24
#define LOAD_RUN_PROBE_SHORT 64
#define LOAD_RUN_PROBE_LONG 320
#define LOAD_RUN_NEWS_MS 10000
#define LOAD_RUN_ANSWER_MAX ((size_t)4 << 20)

struct load_agent {
    struct load_run *run;
    struct load_call call;
    struct buf texts[2 * LOAD_TURNS_MAX]; /* question, reply, question ... */
    struct load_turn turns[LOAD_TURNS_MAX];
    struct chrono_rng rng;
    struct loop_timer start;
    uint32_t turn; /* to ask next, or asked now */
    uint32_t out;
    bool is_done;
};

/* One round at one target. */
struct load_run {
    struct load *l;
    struct loop *loop;
    struct http_client *client;
    struct loop_signal on_int;
    struct load_agent *agents;
    struct load_target *target;
    struct buf system;
    int64_t start_ns, last_start_ns, news_ms;
    uint64_t tokens, replies; /* of the round */
    uint32_t waiting;         /* agents that have not done what this phase asks of them */
    uint32_t turns;           /* of this phase */
    struct err why;           /* of a call that could not start */
    bool is_interrupted, has_failed;
};

const char *load_run_scenario_name(enum load_scenario s)
{
    static const char *const names[] = {
#define X(name, text) text,
        LOAD_SCENARIOS(X)
#undef X
    };
    return names[s];
}

/* --- numbers ---------------------------------------------------------------------------------- */

static void load_run_add(struct load_samples *s, double v)
{
    if (s->count == s->size) {
        uint32_t size = s->size ? 2 * s->size : 1024;
        float *longer = s->size < LOAD_SAMPLES_MAX ? realloc(s->items, size * sizeof *longer)
                                                   : NULL;
        must(longer); /* at most 64 MB: cmd_bench bounds what the options multiply to */
        s->items = longer;
        s->size = size;
    }
    s->items[s->count++] = (float)v;
}

static int load_run_compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double load_run_quantile(struct load_samples *s, double share)
{
    if (!s->count)
        return NAN;
    qsort(s->items, s->count, sizeof *s->items, load_run_compare);
    uint32_t at = (uint32_t)ceil(share * s->count);
    return (double)s->items[at ? at - 1 : 0];
}

double load_run_median(const double *values, uint32_t count)
{
    double sorted[LOAD_ROUNDS_MAX];
    must(count > 0 && count <= LOAD_ROUNDS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > values[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = values[i];
    }
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

static void load_run_count_kind(struct load_target *t, const struct load_call *call)
{
    uint32_t i = 0;
    while (i < t->kinds_count && strcmp(t->kinds[i].name, call->kind) != 0)
        i++;
    if (i == LOAD_KINDS_MAX)
        i--; /* the last one gathers the rest */
    if (i == t->kinds_count) {
        snprintf(t->kinds[i].name, sizeof t->kinds[i].name, "%s", call->kind);
        t->kinds_count++;
    }
    t->kinds[i].count++;
    if (!t->failed++)
        snprintf(t->why, sizeof t->why, "%s", call->why);
}

static bool load_run_is_object(str text)
{
    static const struct json_options options = {.depth_max = 64};
    struct json v;
    struct err e;
    struct arena a;
    arena_init(&a, 4 * text.len + ((size_t)1 << 20));
    bool ok = json_parse(&v, str_trim(text), &options, &a, &e) && json_kind(v) == JSON_KIND_OBJECT;
    arena_deinit(&a);
    return ok;
}

static void load_run_count(struct load_agent *a, const struct load_call *call)
{
    struct load_run *r = a->run;
    struct load_target *t = r->target;
    t->requests++;
    t->events += call->events;
    if (call->first_ns) {
        load_run_add(a->turn ? &t->again : &t->first,
                     (double)(call->first_ns - call->start_ns) * 1e-6);
        if (call->first_ns > r->last_start_ns && a->turn == 0)
            r->last_start_ns = call->first_ns;
    }
    if (call->kind[0]) {
        load_run_count_kind(t, call);
        return;
    }
    r->replies++;
    r->tokens += call->output_tokens;
    t->output_tokens += call->output_tokens;
    t->prompt_tokens += call->prompt_tokens;
    t->cached_tokens += call->cached_tokens;
    t->has_usage = t->has_usage || call->has_usage;
    t->has_cached = t->has_cached || call->has_cached;
    t->valid_json += load_run_is_object(buf_view(&call->text));
}

/* --- texts ------------------------------------------------------------------------------------ */

static uint32_t load_run_words(const struct load *l, uint32_t tokens)
{
    double words = ((double)tokens - l->prompt_extra) / l->tokens_per_word;
    return words < 1 ? 1 : (uint32_t)words;
}

static void load_run_question(struct load_agent *a, uint32_t turn, uint32_t words)
{
    const struct load *l = a->run->l;
    struct buf *b = &a->texts[2 * turn];
    buf_clear(b);
    if (l->options.scenario == LOAD_SCENARIO_JSON)
        buf_add_z(b, "Answer with a JSON object with topic, words and count about:");
    load_call_add_words(b, &a->rng, words);
    a->turns[turn] = (struct load_turn){.user = buf_view(b)};
}

/* The same texts for each target: all that is drawn comes from seed, round and agent. */
static void load_run_prepare(struct load_agent *a, uint32_t round, uint32_t number)
{
    const struct load_options *o = &a->run->l->options;
    uint32_t tokens = o->prompt_tokens;
    chrono_rng_init(&a->rng, o->seed * 1000003 + round * 10007 + number + 1);
    a->turn = 0;
    a->is_done = false;
    a->out = o->out;
    if (o->scenario == LOAD_SCENARIO_RANDOM) {
        tokens -= (uint32_t)chrono_rng_below(&a->rng, tokens * 3 / 4 + 1);
        a->out -= (uint32_t)chrono_rng_below(&a->rng, o->out * 3 / 4 + 1);
    }
    bool is_short = o->scenario == LOAD_SCENARIO_FORKED;
    load_run_question(a, 0, is_short ? LOAD_RUN_QUESTION_WORDS : load_run_words(a->run->l, tokens));
}

static void load_run_prepare_system(struct load_run *r, uint32_t round)
{
    struct chrono_rng rng;
    buf_clear(&r->system);
    if (r->l->options.scenario != LOAD_SCENARIO_FORKED)
        return;
    chrono_rng_init(&rng, r->l->options.seed * 1000003 + round * 10007);
    load_call_add_words(&r->system, &rng, load_run_words(r->l, r->l->options.prompt_tokens));
}

/* --- one agent -------------------------------------------------------------------------------- */

static void load_run_fail(struct load_run *r, const struct err *e)
{
    r->has_failed = true;
    r->why = *e;
}

static void load_agent_on_gap(void *ctx, double ms)
{
    struct load_agent *a = ctx;
    load_run_add(&a->run->target->gaps, ms);
}

static void load_agent_start(void *ctx);

static void load_agent_on_end(void *ctx, struct load_call *call)
{
    struct load_agent *a = ctx;
    struct load_run *r = a->run;
    struct buf *reply = &a->texts[2 * a->turn + 1];
    bool is_good = !call->kind[0];
    load_run_count(a, call);
    buf_clear(reply);
    buf_add(reply, buf_view(&call->text));
    a->turns[a->turn].reply = buf_view(reply);
    a->turn++;
    if (!is_good || a->turn == r->turns) {
        a->is_done = !is_good;
        r->waiting--;
        return;
    }
    /* A call may not start from within its own end: it is taken down first. */
    load_run_question(a, a->turn, LOAD_RUN_QUESTION_WORDS);
    loop_timer_set(&a->start, 0);
}

static void load_agent_start(void *ctx)
{
    struct load_agent *a = ctx;
    struct load_run *r = a->run;
    const struct load_options *o = &r->l->options;
    struct err e;
    load_call_deinit(&a->call);
    a->call = (struct load_call){.dialect = o->dialect, .key = r->target->key,
                                 .on_gap = load_agent_on_gap, .on_end = load_agent_on_end,
                                 .ctx = a};
    struct load_body body = {
        .model = r->target->model, .system = buf_view(&r->system), .turns = a->turns,
        .turns_count = a->turn + 1, .out = a->out,
        .context = (o->prompt_tokens + LOAD_TURNS_MAX * (o->out + 64) + 1023) / 1024 * 1024,
        .wants_json = o->scenario == LOAD_SCENARIO_JSON};
    if (!load_call_start(&a->call, r->client, r->target->url, &body, &e))
        load_run_fail(r, &e);
}

/* --- a round ---------------------------------------------------------------------------------- */

static void load_run_news(struct load_run *r, const char *what)
{
    if (loop_ms() - r->news_ms < LOAD_RUN_NEWS_MS)
        return;
    r->news_ms = loop_ms();
    fprintf(stderr, "bench: %.*s: %s: %llu of %llu replies failed\n", STR_ARG(r->target->url),
            what, (unsigned long long)r->target->failed, (unsigned long long)r->target->requests);
}

static bool load_run_wait(struct load_run *r, struct err *e)
{
    while (r->waiting && !r->is_interrupted && !r->has_failed) {
        loop_step(r->loop, LOAD_RUN_STEP_MS);
        load_run_news(r, load_run_scenario_name(r->l->options.scenario));
    }
    if (r->has_failed)
        *e = r->why;
    return !r->has_failed &&
           (!r->is_interrupted || err_set(e, ERR_CANCELLED, "bench: interrupted"));
}

/* All agents that are still in the game do turns until they have had `turns` of them. */
static bool load_run_phase(struct load_run *r, uint32_t turns, struct err *e)
{
    const struct load_options *o = &r->l->options;
    double at_ms = 0;
    r->turns = turns;
    r->waiting = 0;
    for (uint32_t i = 0; i < o->agents; i++) {
        struct load_agent *a = &r->agents[i];
        if (a->is_done)
            continue;
        if (a->turn)
            load_run_question(a, a->turn, LOAD_RUN_QUESTION_WORDS);
        if (o->scenario == LOAD_SCENARIO_RANDOM)
            at_ms -= LOAD_RUN_ARRIVAL_MS * log(1 - chrono_rng_double(&a->rng));
        loop_timer_set(&a->start, (int64_t)at_ms);
        r->waiting++;
    }
    return load_run_wait(r, e);
}

static bool load_run_round(struct load_run *r, uint32_t round, struct err *e)
{
    const struct load_options *o = &r->l->options;
    struct load_target *t = r->target;
    bool is_several = o->scenario == LOAD_SCENARIO_TURNS;
    load_run_prepare_system(r, round);
    for (uint32_t i = 0; i < o->agents; i++)
        load_run_prepare(&r->agents[i], round, i);
    r->tokens = r->replies = 0;
    r->start_ns = r->last_start_ns = chrono_ns(&chrono_real);
    bool ok = load_run_phase(r, is_several ? LOAD_TURNS_MAX : 1, e) &&
              (o->scenario != LOAD_SCENARIO_RETURNING || load_run_phase(r, 2, e));
    t->wall_s[round] = (double)(chrono_ns(&chrono_real) - r->start_ns) * 1e-9;
    t->last_start_s[round] = (double)(r->last_start_ns - r->start_ns) * 1e-9;
    t->tokens_s[round] = (double)r->tokens / t->wall_s[round];
    t->turns_min[round] = (double)r->replies / t->wall_s[round] * 60;
    for (uint32_t i = 0; i < o->agents; i++)
        load_call_deinit(&r->agents[i].call);
    return ok;
}

/* --- before the rounds ------------------------------------------------------------------------ */

struct load_question {
    struct buf answer;
    struct err why;
    int status;
    bool is_done, has_failed;
};

static void load_question_on_head(void *ctx, int status)
{
    ((struct load_question *)ctx)->status = status;
}

static void load_question_on_bytes(void *ctx, str bytes)
{
    buf_add(&((struct load_question *)ctx)->answer, bytes);
}

static void load_question_on_end(void *ctx, const struct err *why)
{
    struct load_question *q = ctx;
    q->is_done = true;
    q->has_failed = why != NULL;
    if (why)
        q->why = *why;
}

static bool load_run_find_model(struct load_run *r, struct load_target *t, struct arena *arena,
                                struct err *e)
{
    static const struct json_options options = {.depth_max = 32};
    const struct load_dialect *d = r->l->options.dialect;
    struct load_question q = {0};
    struct http_call *call;
    struct json answer;
    const char *headers[LOAD_HEADERS_MAX + 1];
    struct buf bearer;
    buf_init(&bearer, 2048);
    load_call_headers(d, t->key, &bearer, headers);
    str url = arena_printf(arena, "%.*s%s", STR_ARG(t->url), d->models_path);
    struct http_call_options o = {
        .url = url, .headers = headers, .connect_ms = 10000, .total_ms = 60000,
        .handlers = {&q, load_question_on_head, load_question_on_bytes, load_question_on_end}};
    buf_init(&q.answer, LOAD_RUN_ANSWER_MAX);
    bool ok = http_client_start(r->client, &call, &o, e);
    buf_deinit(&bearer);
    while (ok && !q.is_done)
        loop_step(r->loop, LOAD_RUN_STEP_MS);
    if (ok && q.has_failed) {
        *e = q.why;
        ok = err_wrap(e, "%.*s", STR_ARG(url));
    } else if (ok && q.status != 200) {
        ok = err_set(e, ERR_UPSTREAM, "%.*s: status %d", STR_ARG(url), q.status);
    }
    ok = ok && json_parse(&answer, buf_view(&q.answer), &options, arena, e);
    if (ok)
        t->model = arena_copy(arena, d->model(answer, arena));
    buf_deinit(&q.answer);
    return ok && (t->model.len || err_set(e, ERR_UPSTREAM, "%.*s: names no model", STR_ARG(url)));
}

static void load_probe_on_end(void *ctx, struct load_call *call)
{
    (void)call;
    *(bool *)ctx = true;
}

/* Asks with so many words and returns the tokens that the target counted; it is warm then. */
static bool load_run_probe(struct load_run *r, uint32_t words, double *tokens, struct err *e)
{
    struct chrono_rng rng;
    struct buf text;
    bool is_done = false;
    struct load_call call = {.dialect = r->l->options.dialect, .key = r->target->key,
                             .on_end = load_probe_on_end, .ctx = &is_done};
    buf_init(&text, LOAD_TEXT_MAX);
    chrono_rng_init(&rng, ~r->l->options.seed + words);
    load_call_add_words(&text, &rng, words);
    struct load_turn turn = {.user = buf_view(&text)};
    struct load_body body = {.model = r->target->model, .turns = &turn, .turns_count = 1,
                             .out = 4, .context = 2048};
    bool ok = load_call_start(&call, r->client, r->target->url, &body, e);
    while (ok && !is_done && !r->is_interrupted)
        loop_step(r->loop, LOAD_RUN_STEP_MS);
    if (r->is_interrupted)
        ok = err_set(e, ERR_CANCELLED, "bench: interrupted");
    else if (ok && call.kind[0])
        ok = err_set(e, ERR_UPSTREAM, "%.*s: %s: %.120s", STR_ARG(r->target->url), call.kind,
                     call.why);
    *tokens = call.has_usage ? (double)call.prompt_tokens : 0;
    load_call_deinit(&call);
    buf_deinit(&text);
    return ok;
}

/* The first target that counts decides how many words a prompt has; all get the same ones. */
static bool load_run_measure(struct load_run *r, struct err *e)
{
    struct load *l = r->l;
    double few, many;
    for (uint32_t i = 0; i < l->targets_count; i++) {
        r->target = &l->targets[i];
        if (!load_run_probe(r, LOAD_RUN_PROBE_SHORT, &few, e) ||
            !load_run_probe(r, LOAD_RUN_PROBE_LONG, &many, e))
            return false;
        if (l->tokens_per_word > 0 || many <= few)
            continue;
        l->tokens_per_word = (many - few) / (LOAD_RUN_PROBE_LONG - LOAD_RUN_PROBE_SHORT);
        l->prompt_extra = few - l->tokens_per_word * LOAD_RUN_PROBE_SHORT;
    }
    if (l->tokens_per_word <= 0)
        l->tokens_per_word = 1;
    return true;
}

/* --- all -------------------------------------------------------------------------------------- */

static void load_run_on_int(void *ctx) { ((struct load_run *)ctx)->is_interrupted = true; }

static bool load_run_open(struct load_run *r, struct err *e)
{
    struct load *l = r->l;
    r->agents = calloc(l->options.agents, sizeof *r->agents);
    buf_init(&r->system, LOAD_TEXT_MAX);
    if (!r->agents)
        return err_set(e, ERR_MEMORY, "bench: no memory for %u agents", l->options.agents);
    if (!loop_open(&r->loop, e) ||
        !loop_signal_open(&r->on_int, r->loop, SIGINT, load_run_on_int, r, e) ||
        !http_client_open(&r->client, r->loop, l->options.agents + 1, e))
        return false;
    for (uint32_t i = 0; i < l->options.agents; i++) {
        struct load_agent *a = &r->agents[i];
        a->run = r;
        for (uint32_t k = 0; k < countof(a->texts); k++)
            buf_init(&a->texts[k], LOAD_TEXT_MAX);
        if (!loop_timer_open(&a->start, r->loop, load_agent_start, a, e))
            return false;
    }
    return true;
}

static void load_run_close(struct load_run *r)
{
    for (uint32_t i = 0; r->agents && i < r->l->options.agents; i++) {
        struct load_agent *a = &r->agents[i];
        load_call_deinit(&a->call);
        loop_timer_close(&a->start);
        for (uint32_t k = 0; k < countof(a->texts); k++)
            buf_deinit(&a->texts[k]);
    }
    http_client_close(r->client);
    loop_signal_close(&r->on_int);
    loop_close(r->loop);
    buf_deinit(&r->system);
    free(r->agents);
}

bool load_run_all(struct load *l, struct arena *arena, struct err *e)
{
    struct load_run r = {.l = l, .news_ms = loop_ms()};
    bool ok = load_run_open(&r, e);
    for (uint32_t i = 0; ok && i < l->targets_count; i++)
        ok = l->targets[i].model.len || load_run_find_model(&r, &l->targets[i], arena, e);
    ok = ok && load_run_measure(&r, e);
    for (uint32_t round = 0; ok && round < l->options.rounds; round++)
        for (uint32_t i = 0; ok && i < l->targets_count; i++) {
            bool is_reversed = round % 2;
            r.target = &l->targets[is_reversed ? l->targets_count - 1 - i : i];
            ok = load_run_round(&r, round, e);
        }
    load_run_close(&r);
    return ok;
}

void load_run_deinit(struct load *l)
{
    for (uint32_t i = 0; i < l->targets_count; i++) {
        free(l->targets[i].first.items);
        free(l->targets[i].again.items);
        free(l->targets[i].gaps.items);
    }
}
