/* Agents of all weights send requests of all sizes to an engine with few slots, in the order of
 * sched_policy with the accounts of sched_share, as sched admits them. Two bounds hold in every
 * step: who comes and owes nothing is passed at most once by each other agent; and who always
 * waits is never further from another such agent, by weight, than a request of each per slot.
 * TEST_SEED=n replays one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "engine/sched_policy.h"
#include "engine/sched_share.h"

#define AGENTS_MAX 12u
#define LINE_MAX 256u
#define SLOTS_MAX 6u
#define TOKENS_MAX 400u

struct request {
    uint32_t agent, account, prompt, reply;
    bool fresh; /* its agent had nothing open, and nothing more than the others before */
    uint64_t order;
    uint32_t passed[AGENTS_MAX]; /* by requests of each agent, while it waited */
};

static struct fair_world {
    uint64_t seed;
    struct chrono_rng rng;
    struct sched_share shares;
    uint32_t agents_count, slots_count, line_count;
    uint32_t weights[AGENTS_MAX], open[AGENTS_MAX];
    bool is_greedy[AGENTS_MAX]; /* always has a request in the line */
    double had[AGENTS_MAX];     /* tokens / weight */
    struct request line[LINE_MAX], slots[SLOTS_MAX];
    bool is_busy[SLOTS_MAX];
    uint64_t orders;
} w;

static void fail(const char *what, uint32_t a, uint32_t b, double value)
{
    printf("sim: seed %llu: %s (agents %u, %u: %f); run it again: TEST_SEED=%llu "
           "build/tests/sim/fair_test\n", (unsigned long long)w.seed, what, a, b, value,
           (unsigned long long)w.seed);
    exit(1);
}

static uint32_t draw(uint32_t low, uint32_t high)
{
    return low + (uint32_t)chrono_rng_below(&w.rng, high - low + 1);
}

static void send(uint32_t agent)
{
    char name[16];
    if (w.line_count == LINE_MAX)
        return;
    snprintf(name, sizeof name, "agent%u", agent);
    struct request *r = &w.line[w.line_count++];
    *r = (struct request){.agent = agent, .prompt = draw(1, TOKENS_MAX / 2),
                          .reply = draw(1, TOKENS_MAX / 2), .order = w.orders++};
    r->account = sched_share_enter(&w.shares, STR("key"), str_of(name), w.weights[agent]);
    r->fresh = w.open[agent]++ == 0 &&
               sched_share_service(&w.shares, r->account) <= w.shares.time;
}

static uint32_t best(void)
{
    uint32_t at = 0;
    struct sched_waiting first = {0};
    for (uint32_t i = 0; i < w.line_count; i++) {
        struct sched_waiting v = {.priority = API_PRIORITY_NORMAL, .order = w.line[i].order,
                                  .service = sched_share_service(&w.shares, w.line[i].account)};
        if (i == 0 || sched_policy_before(&v, &first)) {
            at = i;
            first = v;
        }
    }
    return at;
}

static void serve(uint32_t agent, uint32_t account, uint32_t tokens)
{
    sched_share_charge(&w.shares, account, tokens);
    w.had[agent] += (double)tokens / w.weights[agent];
}

static void admit(uint32_t slot)
{
    uint32_t at = best();
    struct request r = w.line[at];
    w.line[at] = w.line[--w.line_count];
    for (uint32_t i = 0; i < w.line_count; i++) {
        struct request *late = &w.line[i];
        late->passed[r.agent]++;
        if (late->fresh && late->agent != r.agent && late->passed[r.agent] > 1)
            fail("a newcomer was passed more than once", late->agent, r.agent,
                 late->passed[r.agent]);
    }
    w.is_busy[slot] = true;
    w.slots[slot] = r;
    serve(r.agent, r.account, r.prompt);
}

static void step(void)
{
    for (uint32_t i = 0; i < w.slots_count; i++) {
        struct request *r = &w.slots[i];
        if (!w.is_busy[i])
            continue;
        serve(r->agent, r->account, 1);
        if (--r->reply == 0) {
            w.is_busy[i] = false;
            w.open[r->agent]--;
            sched_share_leave(&w.shares, r->account);
        }
    }
    for (uint32_t a = 0; a < w.agents_count; a++) {
        bool waits = false;
        for (uint32_t i = 0; i < w.line_count; i++)
            waits = waits || w.line[i].agent == a;
        if (w.is_greedy[a] ? !waits : draw(0, 99) == 0)
            send(a);
    }
    for (uint32_t i = 0; i < w.slots_count && w.line_count; i++)
        if (!w.is_busy[i])
            admit(i);
}

/* Each may be ahead by what runs of it: a request per slot, its reply not yet told. */
static void check_shares(const double *before)
{
    for (uint32_t a = 0; a < w.agents_count; a++)
        for (uint32_t b = 0; b < w.agents_count; b++) {
            double most = (double)TOKENS_MAX * (w.slots_count + 1) / w.weights[a] +
                          (double)TOKENS_MAX * (w.slots_count + 1) / w.weights[b];
            double off = w.had[a] - before[a] - (w.had[b] - before[b]);
            if (w.is_greedy[a] && w.is_greedy[b] && off > most)
                fail("shares drift apart", a, b, off);
        }
}

static void run(uint64_t seed)
{
    double before[AGENTS_MAX] = {0};
    memset(&w, 0, sizeof w);
    w.seed = seed;
    chrono_rng_init(&w.rng, seed);
    w.agents_count = draw(2, AGENTS_MAX);
    w.slots_count = draw(1, SLOTS_MAX);
    for (uint32_t a = 0; a < w.agents_count; a++) {
        w.weights[a] = draw(1, 8);
        w.is_greedy[a] = draw(0, 1);
    }
    for (uint32_t i = 0; i < 200; i++) /* a flood of one, before anybody else is there */
        if (i < 40)
            send(0);
        else
            step();
    memcpy(before, w.had, sizeof before);
    for (uint32_t i = 0; i < 3000; i++)
        step();
    check_shares(before);
}

int main(void)
{
    const char *one = getenv("TEST_SEED"), *tier = getenv("TEST_TIER");
    uint64_t seeds = tier && !strcmp(tier, "long") ? 100000 : tier && !strcmp(tier, "full") ? 10000
                                                                                           : 200;
    if (one)
        run(strtoull(one, NULL, 10));
    for (uint64_t seed = 1; !one && seed <= seeds; seed++)
        run(seed);
    printf("%llu passed, 0 failed\n", (unsigned long long)(one ? 1 : seeds));
    return 0;
}
