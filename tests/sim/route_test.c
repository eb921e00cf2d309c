/* The second leg in simulated time: real router, breaker, health, deadline, transcript, sticky over
 * fake legs that hang, break off, lie, limit and come back, and a clock that jumps between events.
 *
 * Checked in every run: each request ends once; the text over all legs of one model equals the
 * uninterrupted reply, byte for byte, reasoning and arguments too; an open or cooling breaker gets
 * nothing; one trial at a time; a running cooldown is not shortened; nobody waits past its bound;
 * each leg at most once per request; counts return to zero.
 *
 * TEST_SEED=n replays one run, TEST_TIER chooses how many. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "route/deadline.h"
#include "route/router.h"
#include "route/sticky.h"
#include "route/transcript.h"

#define LEGS_MAX 5u
#define REQUESTS_MAX 40u
#define PIECES_MAX 60u
#define TEXT_MAX 4096u
#define ALL_OPEN_WAIT_MS 5000
#define ATTEMPTS_MAX 3u
#define RUN_MS (20 * 60 * 1000)
#define HASH_SHARED 77u

enum fault { FAULT_NONE, FAULT_CONNECT, FAULT_5XX, FAULT_429, FAULT_HANG_HEADER, FAULT_HANG_FIRST,
             FAULT_STALL, FAULT_CUT, FAULT_GARBAGE, FAULT_CRASH, FAULT_AUTH, FAULT_COUNT };

struct fake { /* a leg's weather: good and bad spells by turns */
    struct leg leg;
    enum fault fault;        /* in a bad spell */
    int64_t spell_ms[16];    /* borders: good until [0], bad until [1], ... */
    uint32_t trials;
    struct breaker seen;     /* for the cooldown's invariant */
};
struct piece { enum api_event_kind kind; char text[24]; };

enum state { STATE_COMING, STATE_RUNNING, STATE_WAITING, STATE_OVER };
struct client {
    struct api_request rq;
    struct leg_needs needs;
    struct piece pieces[PIECES_MAX]; /* the reply, alone */
    uint32_t pieces_count;
    char want[3][TEXT_MAX], got[3][TEXT_MAX]; /* reasoning, content, arguments */
    enum state state;
    int64_t arrives_ms, ended_ms, wait_ms, again_ms;
    uint64_t key;
    struct transcript script;
    bool tried[LEGS_MAX], is_retried;
    uint32_t order[ROUTER_LEGS_MAX];
    uint32_t attempts, ends;
    bool has_failed, is_mixed;
    /* the attempt at hand */
    int now;
    bool is_trial, is_engine, counts_trial;
    struct api_deadlines limits;
    struct deadline_clock clock;
    uint32_t next;        /* piece */
    uint32_t fault_at;    /* piece before which the fault happens */
    enum fault fault;
    int64_t next_ms, bound_ms;
    bool must_tell_ids;
    size_t cut;           /* bytes of pieces[next] that the client has already */
};

static struct world {
    uint64_t seed;
    struct chrono_rng rng;
    int64_t now;
    struct fake legs[LEGS_MAX];
    uint32_t legs_count;
    struct router_route route;
    str names[ROUTER_LEGS_MAX];
    struct client clients[REQUESTS_MAX];
    uint32_t clients_count;
    struct sticky sticky;
    bool is_one_model;
} w;

static struct totals { uint64_t runs, requests, failovers, resumed, failed, openings, trials; } sum;

/* --- helpers --------------------------------------------------------------------------------- */

static void fail(const char *what, int64_t a, int64_t b)
{
    printf("sim: seed %llu: %s (%lld, %lld) at %lld ms; run it again: TEST_SEED=%llu "
           "build/tests/sim/route_test\n",
           (unsigned long long)w.seed, what, (long long)a, (long long)b, (long long)w.now,
           (unsigned long long)w.seed);
    exit(1);
}
static void expect(bool ok, const char *what, int64_t a, int64_t b)
{
    if (!ok)
        fail(what, a, b);
}
static uint32_t below(uint32_t n) { return (uint32_t)chrono_rng_below(&w.rng, n); }
static bool chance(uint32_t percent) { return below(100) < percent; }

static int text_of(enum api_event_kind kind)
{
    return kind == API_EVENT_REASONING ? 0 : kind == API_EVENT_CONTENT ? 1 : 2;
}

/* --- breakers, with their invariants --------------------------------------------------------- */

static void tell(struct fake *f, struct breaker_event *ev)
{
    struct breaker was = f->leg.breaker;
    ev->jitter = chrono_rng_double(&w.rng);
    struct breaker is = breaker_next(was, &f->leg.breaking, ev, w.now);
    bool by_word = ev->kind == BREAKER_EVENT_FREE_OK;
    bool runs = was.state == BREAKER_STATE_OPEN && w.now < was.until_ms;
    expect(!runs || by_word || (is.state == BREAKER_STATE_OPEN && is.until_ms >= was.until_ms),
           "a running cooldown was shortened", was.until_ms, is.until_ms);
    expect(is.cooling_ms >= was.cooling_ms, "cooling was shortened", was.cooling_ms,
           is.cooling_ms);
    sum.openings += is.state == BREAKER_STATE_OPEN && was.state != BREAKER_STATE_OPEN;
    f->leg.breaker = is;
}

static bool is_bad(const struct fake *f)
{
    uint32_t i = 0;
    while (i < countof(f->spell_ms) && w.now >= f->spell_ms[i])
        i++;
    return i % 2 == 1;
}

/* --- one reply ------------------------------------------------------------------------------- */

static void make_reply(struct client *c)
{
    uint32_t reasoning = chance(40) ? 1 + below(10) : 0, call = chance(30) ? 1 + below(8) : 0;
    c->pieces_count = reasoning + 5 + below(30) + call;
    for (uint32_t i = 0; i < c->pieces_count; i++) {
        struct piece *p = &c->pieces[i];
        p->kind = i < reasoning                  ? API_EVENT_REASONING
                  : i < c->pieces_count - call   ? API_EVENT_CONTENT
                  : i == c->pieces_count - call  ? API_EVENT_CALL_BEGIN
                                                 : API_EVENT_CALL_ARGS;
        snprintf(p->text, sizeof p->text, "%c%u%s", 'a' + (int)below(3), i,
                 chance(30) ? " \n" : "");
        if (p->kind == API_EVENT_CALL_BEGIN)
            p->text[0] = 0;
        snprintf(c->want[text_of(p->kind)] + strlen(c->want[text_of(p->kind)]), sizeof p->text,
                 "%s", p->text);
    }
}

static void end(struct client *c, bool is_ok)
{
    c->ends++;
    c->state = STATE_OVER;
    c->ended_ms = w.now;
    c->has_failed = !is_ok;
    sum.failed += !is_ok;
    expect(c->ends == 1, "a request ended twice", c->ends, 0);
    for (int k = 0; is_ok && k < 3 && !c->is_mixed; k++) {
        bool is_equal = !strcmp(c->want[k], c->got[k]);
        if (!is_equal)
            printf("sim: want \"%s\"\n     got  \"%s\"\n", c->want[k], c->got[k]);
        expect(is_equal, "the text differs from the uninterrupted reply", k,
               (int64_t)strlen(c->got[k]));
    }
    for (int k = 0; !is_ok && k < 3 && !c->is_mixed; k++)
        expect(!strncmp(c->want[k], c->got[k], strlen(c->got[k])),
               "what came before the error is no beginning of the reply", k, 0);
}

static void leave(struct client *c, enum health_class class_, int64_t retry_after_ms)
{
    struct fake *f = &w.legs[c->now];
    f->leg.inflight--;
    f->trials -= c->counts_trial;
    c->counts_trial = false;
    health_add(&f->leg.health, class_, STR("sim"), w.now);
    struct breaker_event ev = {
        .kind = BREAKER_EVENT_END, .class_ = class_, .is_trial = c->is_trial,
        .retry_after_ms = retry_after_ms,
        .window = health_window_of(&f->leg.health, f->leg.breaking.window_ms, w.now)};
    tell(f, &ev);
    c->now = -1;
}

static void next_leg(struct client *c, const struct router_candidate *all, uint32_t count);

static void ask(struct client *c);

static void fail_over(struct client *c, enum health_class class_, int64_t retry_after_ms)
{
    uint32_t at = (uint32_t)c->now;
    leave(c, class_, retry_after_ms);
    transcript_needs(&c->script, &c->needs);
    if (!health_class_fails_over(class_)) {
        end(c, false);
        return;
    }
    bool is_sole = w.legs_count == 1 && !c->is_retried && !c->script.is_visible &&
                   (class_ == HEALTH_CLASS_CONNECT || class_ == HEALTH_CLASS_HTTP_5XX);
    if (is_sole) {
        c->is_retried = true;
        c->tried[at] = false;
        c->state = STATE_WAITING;
        c->again_ms = w.now + 250;
        return;
    }
    ask(c);
}

/* --- an attempt ------------------------------------------------------------------------------ */

/* Where in the reply the client is: piece and bytes of it. */
static void find_place(struct client *c)
{
    size_t left[3] = {strlen(c->got[0]), strlen(c->got[1]), strlen(c->got[2])};
    c->next = 0;
    c->cut = 0;
    bool has_call = false;
    for (uint32_t k = 0; k < c->script.choices[0].parts_count; k++)
        has_call = has_call || c->script.choices[0].parts[k].kind == API_PART_CALL;
    while (c->next < c->pieces_count) {
        struct piece *p = &c->pieces[c->next];
        size_t len = strlen(p->text), *l = &left[text_of(p->kind)];
        if (p->kind == API_EVENT_CALL_BEGIN ? !has_call : *l < len) {
            c->cut = p->kind == API_EVENT_CALL_BEGIN ? 0 : *l;
            return;
        }
        *l -= p->kind == API_EVENT_CALL_BEGIN ? 0 : len;
        c->next++;
    }
}

static void check_partial(const struct client *c, const struct api_resume *r,
                          enum transcript_how how)
{
    char text[3][TEXT_MAX] = {"", "", ""};
    const struct api_message *m = &r->partials[0].message;
    expect(r->partials_count == 1, "one partial", r->partials_count, 1);
    for (uint32_t i = 0; i < m->parts_count; i++) {
        enum api_part_kind kind = m->parts[i].kind;
        int k = kind == API_PART_REASONING ? 0 : kind == API_PART_TEXT ? 1 : 2;
        snprintf(text[k] + strlen(text[k]), TEXT_MAX - strlen(text[k]), "%.*s",
                 STR_ARG(m->parts[i].text));
    }
    for (int k = 0; k < 3; k++)
        expect(!strcmp(text[k], c->got[k]), "the partial reply is not what the client has", k, 0);
    for (uint32_t i = 0; how == TRANSCRIPT_TOKENS && i < m->ids_count; i++)
        expect(m->ids[i] == (int32_t)i, "the ids of the partial reply are not its own", i,
               m->ids[i]);
}

static void begin(struct client *c, uint32_t at)
{
    struct fake *f = &w.legs[at];
    struct arena a;
    struct api_resume resume = {0};
    arena_init(&a, 1 << 20);
    expect(breaker_allows(&f->leg.breaker, w.now), "an open breaker got a request", at, 0);
    expect(!c->tried[at], "a leg was asked twice", at, 0);
    expect(f->leg.inflight < f->leg.inflight_max, "more than max_inflight", f->leg.inflight, 0);
    enum transcript_how how = transcript_resume(&c->script, &f->leg, &a, &resume);
    expect(how != TRANSCRIPT_NO, "a leg that cannot go on was picked", at, 0);
    if (how != TRANSCRIPT_FRESH)
        check_partial(c, &resume, how);
    sum.resumed += how != TRANSCRIPT_FRESH;
    sum.failovers += c->attempts > 0;
    c->is_trial = breaker_is_trial(&f->leg.breaker, w.now);
    f->trials += c->is_trial;
    sum.trials += c->is_trial;
    c->counts_trial = c->is_trial;
    expect(f->trials <= 1, "two trials at once", f->trials, at);
    struct breaker_event ev = {.kind = BREAKER_EVENT_BEGIN};
    tell(f, &ev);
    f->leg.inflight++;
    f->leg.health.used_ms = w.now;
    c->now = (int)at;
    c->tried[at] = true;
    c->attempts++;
    c->state = STATE_RUNNING;
    c->is_engine = f->leg.kind == LEG_KIND_ENGINE;
    c->is_mixed = c->is_mixed || (how != TRANSCRIPT_FRESH && !w.is_one_model);
    transcript_begin(&c->script, how, &f->leg);
    c->must_tell_ids = how == TRANSCRIPT_TEXT && c->is_engine;
    find_place(c);
    struct deadline_input in = {
        .asked = f->leg.deadline, .is_local = c->is_engine, .is_trial = c->is_trial,
        .prompt_tokens = c->needs.prompt_tokens, .think_tokens_max = API_THINK_ENDLESS,
        .samples = &f->leg.health.first[health_bucket(c->needs.prompt_tokens,
                                                      API_EFFORT_DEFAULT)]};
    c->limits = deadline_make(&in);
    c->clock = (struct deadline_clock){.begun_ms = w.now, .arrived_ms = c->arrives_ms};
    c->fault = is_bad(f) ? f->fault : FAULT_NONE;
    c->fault_at = c->next + below(c->pieces_count - c->next + 1);
    c->next_ms = w.now + 1 + below(400);
    arena_deinit(&a);
}

static void give(struct client *c, const struct api_event *events, uint32_t count,
                 const int32_t *ids, uint32_t ids_count)
{
    struct api_event out[4];
    struct api_batch b = {.events = out, .ids = ids, .ids_count = ids_count};
    for (uint32_t i = 0; i < count; i++)
        out[b.events_count++] = events[i];
    transcript_add(&c->script, &b);
    for (uint32_t i = 0; i < b.events_count; i++) {
        const struct api_event *ev = &out[i];
        if (ev->kind == API_EVENT_DONE || ev->kind == API_EVENT_STARTED)
            continue;
        char *to = c->got[text_of(ev->kind)];
        str text = ev->kind == API_EVENT_CALL_ARGS ? ev->call.args
                   : ev->kind == API_EVENT_CALL_BEGIN ? STR("")
                                                      : ev->text.text;
        snprintf(to + strlen(to), TEXT_MAX - strlen(to), "%.*s", STR_ARG(text));
    }
}

/* The next piece, or the end, of a leg that works. */
static void speak(struct client *c)
{
    struct fake *f = &w.legs[c->now];
    struct api_event ev[2];
    int32_t ids[PIECES_MAX];
    uint32_t count = 0, ids_count = 0;
    if (!c->clock.token_ms) {
        ev[count++] = (struct api_event){
            .kind = API_EVENT_STARTED, .started = {.model_hash = f->leg.model.model_hash}};
        health_add_first(&f->leg.health, health_bucket(c->needs.prompt_tokens, API_EFFORT_DEFAULT),
                         w.now - c->clock.begun_ms);
        sticky_put(&w.sticky, c->key, f->leg.name, w.now + 3600000, w.now);
    }
    c->clock.token_ms = w.now;
    if (c->is_trial && c->next == c->pieces_count)
        c->is_trial = true;
    if (c->next == c->pieces_count) {
        ev[count++] = (struct api_event){.kind = API_EVENT_DONE};
        give(c, ev, count, NULL, 0);
        leave(c, HEALTH_CLASS_OK, 0);
        end(c, true);
        return;
    }
    struct piece *p = &c->pieces[c->next];
    str text = str_from(str_of(p->text), c->cut);
    c->cut = 0;
    ev[count] = (struct api_event){.kind = p->kind};
    if (p->kind == API_EVENT_CALL_ARGS)
        ev[count].call.args = text;
    else if (p->kind != API_EVENT_CALL_BEGIN)
        ev[count].text.text = text;
    count++;
    for (uint32_t i = c->must_tell_ids ? 0 : c->next; c->is_engine && i <= c->next; i++)
        ids[ids_count++] = (int32_t)i;
    c->must_tell_ids = false;
    c->next++;
    give(c, ev, count, ids, ids_count);
}

/* What happens at next_ms of an attempt. */
static void happen(struct client *c)
{
    struct fake *f = &w.legs[c->now];
    enum fault fault = c->fault;
    bool is_first = !c->clock.header_ms;
    c->clock.connected_ms = w.now;
    if (is_first && fault == FAULT_CONNECT) {
        fail_over(c, HEALTH_CLASS_CONNECT, 0);
        return;
    }
    if (is_first && (fault == FAULT_5XX || fault == FAULT_429 || fault == FAULT_AUTH)) {
        fail_over(c, fault == FAULT_5XX ? HEALTH_CLASS_HTTP_5XX
                     : fault == FAULT_AUTH ? HEALTH_CLASS_AUTH : HEALTH_CLASS_RATE_LIMIT,
                  chance(50) ? 100 + below(20000) : 0);
        return;
    }
    c->next_ms = INT64_MAX; /* silence */
    if (is_first && fault == FAULT_HANG_HEADER)
        return;
    if (is_first) {
        c->clock.header_ms = w.now;
        c->next_ms = fault == FAULT_HANG_FIRST ? INT64_MAX : w.now + 1 + below(3000);
        return;
    }
    bool is_due = c->next >= c->fault_at;
    if (is_due && fault == FAULT_STALL)
        return;
    if (is_due && (fault == FAULT_CUT || fault == FAULT_GARBAGE || fault == FAULT_CRASH)) {
        fail_over(c, fault == FAULT_CUT       ? HEALTH_CLASS_CUT
                     : fault == FAULT_GARBAGE ? HEALTH_CLASS_GARBAGE
                                              : HEALTH_CLASS_ENGINE_CRASH, 0);
        return;
    }
    (void)f;
    c->next_ms = w.now + 1 + below(300);
    speak(c);
}

/* --- choosing -------------------------------------------------------------------------------- */

static void next_leg(struct client *c, const struct router_candidate *all, uint32_t count)
{
    struct router_reason why;
    int i = router_pick(all, count, &c->needs, w.now, &why);
    if (i >= 0 && c->attempts < ATTEMPTS_MAX) {
        begin(c, c->order[i]);
        return;
    }
    int64_t again = why.any_busy && why.again_ms > w.now + 50 ? w.now + 50 : why.again_ms;
    if (!c->wait_ms)
        c->wait_ms = w.now;
    if (c->attempts >= ATTEMPTS_MAX || why.all_incapable ||
        again > c->wait_ms + ALL_OPEN_WAIT_MS) {
        end(c, false);
        return;
    }
    c->state = STATE_WAITING;
    c->again_ms = again > w.now ? again : w.now + 1;
}

static void ask(struct client *c)
{
    struct router_candidate all[LEGS_MAX];
    struct breaker_event time = {.kind = BREAKER_EVENT_TIME};
    for (uint32_t i = 0; i < w.legs_count; i++) {
        struct fake *f = &w.legs[c->order[i]];
        tell(f, &time);
        all[i] = (struct router_candidate){.leg = &f->leg, .is_tried = c->tried[c->order[i]]};
    }
    next_leg(c, all, w.legs_count);
}

static void arrive(struct client *c)
{
    int pinned = -1;
    str pin = sticky_find(&w.sticky, c->key, w.now);
    for (uint32_t i = 0; i < w.legs_count; i++)
        if (pin.len && str_eq(pin, w.names[i]))
            pinned = (int)i;
    router_order(&w.route, w.names, c->key, pinned, c->order);
    for (uint32_t i = 0; i + 1 < w.legs_count; i++)
        expect(w.route.entries[c->order[i]].rank <= w.route.entries[c->order[i + 1]].rank,
               "ranks out of order", i, 0);
    ask(c);
}

/* --- a run ----------------------------------------------------------------------------------- */

static void make_leg(uint32_t i)
{
    static char names[LEGS_MAX][8];
    struct fake *f = &w.legs[i];
    bool is_engine = chance(40);
    snprintf(names[i], sizeof names[i], "leg%u", i);
    *f = (struct fake){.leg = {
        .name = str_of(names[i]), .kind = is_engine ? LEG_KIND_ENGINE : LEG_KIND_UPSTREAM,
        .state = API_HEALTH_READY, .inflight_max = 1 + below(30),
        .goes_on = is_engine ? LEG_CONTINUE_ENGINE : (enum leg_continue)below(4),
        .model = {.model_hash = !is_engine ? 0 : w.is_one_model ? HASH_SHARED : i + 1,
                  .caps = API_CAP_TOOLS | API_CAP_CONTINUE_TEXT | API_CAP_CONTINUE_TOKENS},
        .deadline = {.connect_ms = 2000, .first_ms = chance(50) ? DEADLINE_AUTO : 5000,
                     .gap_ms = 2000},
        .breaking = breaker_options_default}};
    do
        f->fault = (enum fault)(1 + below(FAULT_COUNT - 1));
    while (is_engine && f->fault != FAULT_CRASH && f->fault != FAULT_CUT);
    int64_t at = 0;
    for (uint32_t k = 0; k < countof(f->spell_ms); k++)
        f->spell_ms[k] = at += 1000 + below(40000);
    w.names[i] = f->leg.name;
    w.route.entries[i] = (struct router_entry){.leg = i, .rank = i ? w.route.entries[i - 1].rank +
                                                                    below(2) : 0};
}

static void make_client(uint32_t i)
{
    struct client *c = &w.clients[i];
    static char sessions[REQUESTS_MAX][8];
    struct api_error e = {0};
    memset(c, 0, sizeof *c);
    snprintf(sessions[i], sizeof sessions[i], "s%u", below(10));
    api_request_init(&c->rq);
    c->now = -1;
    c->arrives_ms = 1 + below(120000);
    c->needs = leg_needs_of(&c->rq, below(3000));
    c->key = router_key(str_of(sessions[i]), &c->rq);
    make_reply(c);
    if (!transcript_init(&c->script, 1, 1 << 20, &e))
        fail("no memory", 0, 0);
}

static void make_world(uint64_t seed)
{
    struct sticky_row *rows = w.sticky.rows;
    memset(rows, 0, STICKY_ROWS * sizeof *rows);
    memset(&w, 0, sizeof w);
    w.sticky.rows = rows;
    w.seed = seed;
    chrono_rng_init(&w.rng, seed);
    w.is_one_model = chance(70);
    w.legs_count = 1 + below(LEGS_MAX);
    w.route.entries_count = w.legs_count;
    for (uint32_t i = 0; i < w.legs_count; i++)
        make_leg(i);
    w.clients_count = 1 + below(REQUESTS_MAX);
    for (uint32_t i = 0; i < w.clients_count; i++)
        make_client(i);
}

static int64_t due_of(const struct client *c)
{
    if (c->state == STATE_COMING)
        return c->arrives_ms;
    if (c->state == STATE_WAITING)
        return c->again_ms;
    if (c->state == STATE_OVER)
        return INT64_MAX;
    int64_t late = deadline_next_ms(&c->limits, &c->clock);
    return late < c->next_ms ? late : c->next_ms;
}

static void step(struct client *c)
{
    if (c->state == STATE_COMING) {
        arrive(c);
        return;
    }
    if (c->state == STATE_WAITING) {
        expect(w.now <= c->wait_ms + ALL_OPEN_WAIT_MS + 400 || c->is_retried, "waited too long",
               w.now, c->wait_ms);
        ask(c);
        return;
    }
    enum deadline_kind late = deadline_late(&c->limits, &c->clock, w.now);
    if (late != DEADLINE_NONE && w.now < c->next_ms) {
        fail_over(c, deadline_class(late), 0);
        return;
    }
    expect(w.now >= c->next_ms, "a wait that is due and not late", w.now, c->next_ms);
    happen(c);
}

static void check_end(void)
{
    for (uint32_t i = 0; i < w.clients_count; i++) {
        struct client *c = &w.clients[i];
        expect(c->ends == 1, "a request did not end", i, c->state);
        expect(c->attempts <= ATTEMPTS_MAX + c->is_retried, "too many attempts", c->attempts, i);
        /* Each attempt: first token 120 s, then at most 60 gaps of 2 s; and waiting. */
        expect(c->ended_ms - c->arrives_ms <= 3 * 260000 + ALL_OPEN_WAIT_MS + 1000,
               "a request took longer than its bounds", c->ended_ms - c->arrives_ms, i);
        transcript_deinit(&c->script);
    }
    for (uint32_t i = 0; i < w.legs_count; i++)
        expect(w.legs[i].leg.inflight == 0 && w.legs[i].trials == 0, "counts left over",
               w.legs[i].leg.inflight, i);
    sum.requests += w.clients_count;
    sum.runs++;
}

static void run(uint64_t seed)
{
    make_world(seed);
    for (uint64_t steps = 0;; steps++) {
        struct client *first = NULL;
        int64_t due = INT64_MAX;
        for (uint32_t i = 0; i < w.clients_count; i++)
            if (due_of(&w.clients[i]) < due) {
                first = &w.clients[i];
                due = due_of(first);
            }
        if (!first)
            break;
        expect(steps < 1000000 && due < RUN_MS, "the run does not end", (int64_t)steps, due);
        w.now = due > w.now ? due : w.now;
        step(first);
    }
    check_end();
}

int main(void)
{
    const char *one = getenv("TEST_SEED"), *tier = getenv("TEST_TIER");
    bool is_long = tier && !strcmp(tier, "long"), is_full = tier && !strcmp(tier, "full");
    uint64_t runs = is_long ? 100000 : is_full ? 10000 : 200, seed = 1;
    w.sticky.rows = calloc(STICKY_ROWS, sizeof *w.sticky.rows);
    if (one) {
        if (!str_to_u64(str_of(one), &seed))
            return 2;
        runs = 1;
    }
    for (uint64_t i = 0; i < runs; i++)
        run(seed + i);
    /* A simulation in which nothing happens proves nothing. */
    if (!one && (!sum.failovers || !sum.resumed || !sum.openings || !sum.trials || !sum.failed ||
                 sum.failed * 2 > sum.requests)) {
        printf("sim: %llu failovers, %llu resumed, %llu openings, %llu trials, %llu of %llu "
               "failed: not a fair mix\n0 passed, 1 failed\n",
               (unsigned long long)sum.failovers, (unsigned long long)sum.resumed,
               (unsigned long long)sum.openings, (unsigned long long)sum.trials,
               (unsigned long long)sum.failed, (unsigned long long)sum.requests);
        return 1;
    }
    free(w.sticky.rows);
    printf("%llu passed, 0 failed\n", (unsigned long long)sum.runs);
    return 0;
}
