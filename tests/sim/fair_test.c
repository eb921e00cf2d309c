/* Keys and agents of all weights send requests of all sizes to an engine with few slots, in the
 * order of sched_policy with the accounts of sched_share, as sched admits them. One key attacks: it
 * fills the line, each request under an agent's name that was never seen. Two bounds hold in every
 * step: a key that comes and owes nothing is passed at most once by each other key, and an agent by
 * each other agent of its key; and a key that always waits is never further from another such key,
 * by weight, than a request of each per slot, nor is an agent from another of its key.
 * TEST_SEED=n replays one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "engine/sched_policy.h"
#include "engine/sched_share.h"

#define KEYS_MAX 4u
#define AGENTS_MAX 12u
#define ATTACK_LINE 24u /* connections of the attacker */
#define LINE_MAX 256u
#define SLOTS_MAX 6u
#define TOKENS_MAX 400u

struct request {
    uint32_t agent, account, prompt, reply;
    bool fresh, fresh_key; /* it had nothing open, and no more than the others before */
    uint64_t order;
    uint32_t passed[AGENTS_MAX], passed_key[KEYS_MAX]; /* by their requests, while it waited */
};

static struct fair_world {
    uint64_t seed;
    struct chrono_rng rng;
    struct sched_share shares;
    uint32_t keys_count, agents_count, slots_count, line_count, names;
    uint32_t weights[AGENTS_MAX], open[AGENTS_MAX], key[AGENTS_MAX];
    uint32_t key_weights[KEYS_MAX], key_open[KEYS_MAX];
    bool is_greedy[AGENTS_MAX]; /* always has a request in the line */
    double had[AGENTS_MAX], key_had[KEYS_MAX]; /* tokens / weight */
    struct request line[LINE_MAX], slots[SLOTS_MAX];
    bool is_busy[SLOTS_MAX];
    uint64_t orders;
} w;

static void fail(const char *what, uint32_t a, uint32_t b, double value)
{
    printf("sim: seed %llu: %s (%u, %u: %f); run it again: TEST_SEED=%llu "
           "build/tests/sim/fair_test\n", (unsigned long long)w.seed, what, a, b, value,
           (unsigned long long)w.seed);
    exit(1);
}

static uint32_t draw(uint32_t low, uint32_t high)
{
    return low + (uint32_t)chrono_rng_below(&w.rng, high - low + 1);
}

/* The last agent is all of the last key: the attacker. */
static bool attacks(uint32_t agent) { return agent == w.agents_count - 1; }

static void send(uint32_t agent)
{
    char key[16], name[32];
    uint32_t k = w.key[agent];
    if (w.line_count == LINE_MAX)
        return;
    snprintf(key, sizeof key, "key%u", k);
    snprintf(name, sizeof name, "agent%u.%u", agent, attacks(agent) ? w.names++ : 0);
    struct request *r = &w.line[w.line_count++];
    *r = (struct request){.agent = agent, .prompt = draw(1, TOKENS_MAX / 2),
                          .reply = draw(1, TOKENS_MAX / 2), .order = w.orders++};
    r->account = sched_share_enter(
        &w.shares, &(struct sched_share_who){str_of(key), str_of(name), w.key_weights[k],
                                             w.weights[agent]});
    r->fresh_key = w.key_open[k]++ == 0 &&
                   sched_share_key_service(&w.shares, r->account) <= w.shares.time;
    r->fresh = w.open[agent]++ == 0 && sched_share_service(&w.shares, r->account) <=
                                           sched_share_key_time(&w.shares, r->account);
}

static uint32_t best(void)
{
    uint32_t at = 0;
    struct sched_waiting first = {0};
    for (uint32_t i = 0; i < w.line_count; i++) {
        struct sched_waiting v = {.priority = API_PRIORITY_NORMAL, .order = w.line[i].order,
                                  .key_service = sched_share_key_service(&w.shares,
                                                                         w.line[i].account),
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
    w.key_had[w.key[agent]] += (double)tokens / w.key_weights[w.key[agent]];
}

static void admit(uint32_t slot)
{
    uint32_t at = best();
    struct request r = w.line[at];
    w.line[at] = w.line[--w.line_count];
    for (uint32_t i = 0; i < w.line_count; i++) {
        struct request *late = &w.line[i];
        uint32_t key = w.key[late->agent], by = w.key[r.agent];
        late->passed[r.agent]++;
        late->passed_key[by]++;
        if (late->fresh_key && key != by && late->passed_key[by] > 1)
            fail("a new key was passed more than once by a key", key, by, late->passed_key[by]);
        if (late->fresh && key == by && late->agent != r.agent && late->passed[r.agent] > 1)
            fail("a new agent was passed more than once by an agent of its key", late->agent,
                 r.agent, late->passed[r.agent]);
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
            w.key_open[w.key[r->agent]]--;
            sched_share_leave(&w.shares, r->account);
        }
    }
    for (uint32_t a = 0; a < w.agents_count; a++) {
        uint32_t waiting = 0, least = attacks(a) ? ATTACK_LINE : 1;
        for (uint32_t i = 0; i < w.line_count; i++)
            waiting += w.line[i].agent == a;
        for (; w.is_greedy[a] && waiting < least; waiting++)
            send(a);
        if (!w.is_greedy[a] && draw(0, 99) == 0)
            send(a);
    }
    for (uint32_t i = 0; i < w.slots_count && w.line_count; i++)
        if (!w.is_busy[i])
            admit(i);
}

/* Each may be ahead by what runs of it: a request per slot, its reply not yet told. */
static double lead_max(uint32_t weight)
{
    return (double)TOKENS_MAX * (w.slots_count + 1) / weight;
}

static void check_shares(const double *before, const double *key_before)
{
    for (uint32_t a = 0; a < w.agents_count; a++)
        for (uint32_t b = 0; b < w.agents_count; b++) {
            uint32_t ka = w.key[a], kb = w.key[b];
            if (!w.is_greedy[a] || !w.is_greedy[b])
                continue;
            double off = w.had[a] - before[a] - (w.had[b] - before[b]);
            if (ka == kb && off > lead_max(w.weights[a]) + lead_max(w.weights[b]))
                fail("shares of agents drift apart", a, b, off);
            off = w.key_had[ka] - key_before[ka] - (w.key_had[kb] - key_before[kb]);
            if (off > lead_max(w.key_weights[ka]) + lead_max(w.key_weights[kb]))
                fail("shares of keys drift apart", ka, kb, off);
        }
}

static void run(uint64_t seed)
{
    double before[AGENTS_MAX] = {0}, key_before[KEYS_MAX] = {0};
    memset(&w, 0, sizeof w);
    w.seed = seed;
    chrono_rng_init(&w.rng, seed);
    w.keys_count = draw(2, KEYS_MAX);
    w.agents_count = draw(w.keys_count, AGENTS_MAX);
    w.slots_count = draw(1, SLOTS_MAX);
    for (uint32_t a = 0; a < w.agents_count; a++) {
        w.weights[a] = draw(1, 8);
        w.key[a] = attacks(a) ? w.keys_count - 1 : a % (w.keys_count - 1);
        w.is_greedy[a] = attacks(a) || draw(0, 1);
    }
    for (uint32_t k = 0; k < w.keys_count; k++)
        w.key_weights[k] = draw(1, 8);
    for (uint32_t i = 0; i < 200; i++) /* a flood of one, before anybody else is there */
        if (i < 40)
            send(0);
        else
            step();
    memcpy(before, w.had, sizeof before);
    memcpy(key_before, w.key_had, sizeof key_before);
    for (uint32_t i = 0; i < 3000; i++)
        step();
    check_shares(before, key_before);
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
