/* Requests, cancels, readers that stall, a lost device, pools that are too small: drawn from a
 * seed. What every client reads must be what its request says alone. TEST_SEED=n replays one,
 * TEST_SEED=n-m all from one to the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sched_drop.h"
#include "sim_world.h"

static bool pin_chance(uint32_t percent)
{
    return chrono_rng_below(&sim.pin_rng, 100) < percent;
}
static bool drop_chance(uint32_t percent)
{
    return chrono_rng_below(&sim.drop_rng, 100) < percent;
}

/* --- making requests -------------------------------------------------------------------------- */

static void make_prompt(struct client *c, uint32_t id)
{
    /* Several systems, then turns: some requests go on from an earlier one's prompt. */
    uint32_t count = 0;
    if (id > 1 && chance(40)) {
        const struct client *other = &sim.clients[below(id - 1)];
        count = below(other->prompt_count + 1);
        memcpy(c->prompt, other->prompt, count * sizeof *c->prompt);
    } else {
        uint32_t system = below(3), len = below(3) ? 0 : 20 + below(300);
        for (; count < len; count++)
            c->prompt[count] = (int32_t)((system * 7 + count * count) % (VOCAB - 1));
    }
    if (count > c->context_max - 2)
        count = c->context_max - 2;
    uint32_t more = 1 + below(chance(20) ? 200 : 40);
    while (more-- && count < c->context_max - 1)
        c->prompt[count++] = (int32_t)below(VOCAB - 1);
    c->prompt_count = count;
}

static void make_client(struct client *c, uint32_t id, uint32_t context_max)
{
    struct api_request *rq = &c->rq;
    static const char *const scopes[] = {"", "", "alice", "bob"};
    static const char *const agents[] = {"a0", "a1", "a2"};
    static const char *const pins[] = {"", "1", "2", "3", "4"};
    static const char *const stops[] = {"a0", "b1 d", " d3", "e4", "zz"};
    api_request_init(rq);
    rq->id = id;
    rq->kind = chance(8) ? API_KIND_PREFILL : API_KIND_COMPLETE;
    rq->inputs = &c->input;
    rq->inputs_count = 1;
    rq->n = rq->kind == API_KIND_COMPLETE && chance(20) ? 1 + below(CHOICES_MAX) : 1;
    rq->seed = chrono_rng_u64(&sim.rng);
    rq->tokens_max = chance(60) ? 1 + below(chance(50) ? 50 : 400) : 0;
    rq->tokens_min = chance(10) ? below(10) : 0;
    rq->ignore_eos = chance(10) && rq->tokens_max;
    rq->logprobs = chance(20) ? 1 + below(5) : 0;
    rq->priority = (enum api_priority)below(API_PRIORITY_COUNT_);
    if (rq->kind != API_KIND_PREFILL && rq->priority == API_PRIORITY_IDLE)
        rq->priority = API_PRIORITY_NORMAL;
    rq->scope = str_of(scopes[below(4)]);
    rq->agent = str_of(agents[id % countof(agents)]);
    rq->cache = (enum api_cache)below(API_CACHE_PIN);
    if (rq->kind == API_KIND_PREFILL && pin_chance(60)) {
        rq->cache = API_CACHE_PIN;
        rq->priority = API_PRIORITY_NORMAL;
        rq->context = str_of(pins[chrono_rng_below(&sim.pin_rng, countof(pins))]);
    }
    if (chance(30)) {
        rq->repeat_penalty = 1.2f;
        rq->repeat_last = chance(30) ? API_REPEAT_ALL : below(80);
    }
    if (chance(20))
        rq->frequency_penalty = 0.5f;
    if (chance(40)) {
        rq->stop = c->stop;
        rq->stop_count = 1 + below(2);
        rq->keep_stop = chance(30);
        for (uint32_t i = 0; i < 2; i++)
            c->stop[i] = str_of(stops[below(countof(stops))]);
    }
    c->context_max = chance(20) ? 2 + below(context_max - 2) : context_max;
    make_prompt(c, id);
    c->arrives_ms = chance(50) ? below(2000) : 0;
    c->cancels_ms = chance(15) ? c->arrives_ms + below(3000) : INT64_MAX;
    c->is_slow = chance(20);
    api_order_init(&c->order, rq);
    for (uint32_t k = 0; k < rq->n && rq->kind == API_KIND_COMPLETE; k++)
        sim_expected(c, k);
    if (rq->kind == API_KIND_PREFILL) {
        c->expected[0].is_done = true;
        c->expected[0].reason = API_DONE_EOS;
    }
}

/* --- the world -------------------------------------------------------------------------------- */

/* Half of the disks do what they should. */
static void open_disk(uint64_t seed)
{
    sim_disk_init(&sim.disk, &sim.clock, seed + 1);
    sim.has_tier = sim.has_trie && sim.layout.window[0] == 0 && chance(70);
    sim.keeps_ram = chance(30);
    sim.tier_bytes = 5000 * (6 + below(200)); /* below, no file of two groups fits */
    if (chance(70)) { /* computing takes time, so that reading can be faster */
        sim.device.clock = &sim.clock;
        sim.device.row_ns = 200000 + below(1000000);
    }
    sim.device.page_ns = (int64_t)(seed % 5) * 300000; /* beside running ones the tier rests */
    if (chance(50))
        return;
    struct sim_disk_faults *f = &sim.disk.faults;
    uint32_t *const rates[] = {&f->read_error, &f->write_error, &f->full, &f->flip, &f->slow,
                               &f->gone};
    for (size_t i = 0; i < countof(rates); i++)
        if (chance(30))
            *rates[i] = below(i == 3 ? 2000 : 300);
}

static void open_world(uint64_t seed)
{
    struct device *d = &sim.device;
    memset(&sim, 0, sizeof sim);
    sim.seed = seed;
    chrono_rng_init(&sim.rng, seed);
    chrono_rng_init(&sim.pin_rng, seed ^ 0x70696e73);
    chrono_rng_init(&sim.drop_rng, seed ^ 0x64726f70);
    sim.vocab = sim_vocab();
    uint32_t context_max = 64 + below(chance(30) ? 900 : 400), slots = 1 + below(6);
    sim.layout.groups_count = chance(40) ? 2 : 1;
    sim.layout.window[1] = 8 + below(120);
    sim.layout.page_size[0] = sim.layout.page_size[1] = SIM_PAGE_SIZE;
    if (sim.layout.groups_count == 2 && chance(20)) { /* all layers have a window */
        sim.layout.groups_count = 1;
        sim.layout.window[0] = sim.layout.window[1];
    }
    d->limits = (struct step_limits){.rows_max = 8 + below(60), .seqs_max = slots,
                                     .outs_max = slots, .top_max = 20};
    for (uint32_t g = 0; g < sim.layout.groups_count; g++) {
        uint32_t whole = (context_max + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
        d->limits.pages_max[g] = whole;
        d->pages[g] = whole + below(chance(50) ? 4 : whole * slots + 20);
    }
    d->layout = sim.layout;
    d->vocab = VOCAB;
    d->eos = VOCAB - 1;
    d->eos_rate = chance(50) ? 37 : 300;
    d->on_broken = sim_fail;
    sim.has_trie = chance(85);
    sim.pin_permille = 100 * (uint32_t)chrono_rng_below(&sim.pin_rng, 11);
    open_disk(seed);
    sim.reserve_tokens = chance(70) ? below(40) : SCHED_RESERVE_TOKENS;
    sim.credit = chance(50) ? 400 + below(4000) : 0;
    sim.idle_permille = seed % 5 ? 1 + (uint32_t)(seed * 37 % 1000) : 0;
    sim.lost_at = chance(25) ? 1 + below(200) : UINT64_MAX;
    sim.clients_count = 1 + below(24);
    for (uint32_t i = 0; i < sim.clients_count; i++)
        make_client(&sim.clients[i], i + 1, context_max);
    sim_open();
}

/* --- time ------------------------------------------------------------------------------------- */

static void client_acts(struct client *c)
{
    if (c->state == CLIENT_LATER && now_ms() >= c->arrives_ms) {
        if (now_ms() >= c->cancels_ms)
            c->state = CLIENT_CANCELLED;
        else
            sim_submit(c);
    }
    if (c->state != CLIENT_OPEN)
        return;
    if (now_ms() >= c->cancels_ms) {
        sched_cancel(&sim.sched, c->rq.id);
        c->state = CLIENT_CANCELLED;
        return;
    }
    if (c->owed && chance(c->is_slow ? 5 : 60)) {
        sched_credit(&sim.sched, c->rq.id, (uint32_t)c->owed);
        c->owed = 0;
    }
    if (chance(c->is_held ? 20 : 1)) {
        c->is_held = !c->is_held;
        sched_hold(&sim.sched, c->rq.id, c->is_held);
    }
}

static struct { uint64_t pages, drops; } dropped; /* over all seeds */

static void drop_some(void)
{
    static const char *const agents[] = {"", "a0", "a1", "a2"}, *const scopes[] = {"", "alice"};
    struct api_drop d = {.agent = str_of(agents[chrono_rng_below(&sim.drop_rng, 4)]),
                         .scope = str_of(scopes[chrono_rng_below(&sim.drop_rng, 2)]),
                         .has_scope = drop_chance(50),
                         .from = 1 + (uint32_t)chrono_rng_below(&sim.drop_rng, API_DROP_ALL)};
    struct api_dropped out;
    sched_drop(&sim.sched, &d, &out);
    dropped.pages += out.pages;
    dropped.drops++;
}

/* The device is lost: a new child gets what is open. */
static void respawn(void)
{
    sim.losses++;
    sim.device.is_lost = false;
    sim_close();
    sim_open();
    for (uint32_t i = 0; i < sim.clients_count; i++) {
        struct client *c = &sim.clients[i];
        if (c->state != CLIENT_OPEN)
            continue;
        c->is_resumed = c->order.is_started;
        c->is_parked = false; /* the new child's line is another */
        sim_submit(c);
    }
}

static void run(uint64_t seed)
{
    struct err e;
    open_world(seed);
    uint64_t turns = 0;
    while (!sim_all_over()) {
        turns++;
        expect(turns < 60000, "somebody starves", (int64_t)turns, sim.sched.stats.waiting);
        for (uint32_t i = 0; i < sim.clients_count; i++)
            client_acts(&sim.clients[i]);
        sim.device.is_lost = sim.device.steps >= sim.lost_at && sim.losses == 0;
        enum sched_result r = sched_step(&sim.sched, &e);
        if (r == SCHED_RESULT_LOST)
            respawn();
        if (pin_chance(3))
            sched_unpin(&sim.sched, pin_chance(50) ? STR("1") : STR("2"));
        if (drop_chance(3))
            drop_some();
        sim_check_pages();
        sim_check_pins();
        sim_check_idle();
        chrono_fake_add_ms(&sim.clock, 1 + below(r == SCHED_RESULT_IDLE ? 100 : 30));
    }
    for (uint32_t i = 0; i < sim.clients_count; i++)
        for (uint32_t k = 0; k < sim.clients[i].rq.n; k++)
            sim_check_reply(&sim.clients[i], k);
    for (uint32_t i = 0; i < sim.clients_count; i++)
        sim_check_cached(&sim.clients[i]);
    if (chance(30))
        sched_tier_flush(&sim.sched.tier, 500);
    sim_close();
    sim_disk_deinit(&sim.disk);
    vocab_free(sim.vocab);
}

static void say_seed(void)
{
    printf("sim: run it again: TEST_SEED=%llu build/tests/sim/sched_test\n",
           (unsigned long long)sim.seed);
    fflush(stdout);
}

int main(void)
{
    base_set_crash_hook(say_seed);
    const char *one = getenv("TEST_SEED"), *tier = getenv("TEST_TIER");
    uint64_t seeds = 200;
    if (tier && !strcmp(tier, "full"))
        seeds = 10000;
    if (tier && !strcmp(tier, "long"))
        seeds = 100000;
    uint64_t first = 1, last = seeds;
    if (one) {
        char *end;
        first = last = strtoull(one, &end, 10);
        if (*end == '-')
            last = strtoull(end + 1, NULL, 10);
    }
    for (uint64_t seed = first; seed <= last; seed++)
        run(seed);
    if (!one && (!sim_tiers.restored || !sim_tiers.lost || !sim_tiers.bad_sums || !sim_tiers.off ||
                 !sim_tiers.evictions)) {
        printf("sim: the tier was not tried: %llu tokens restored, %llu lost, %llu bad sums, "
               "%llu off, %llu evictions\n", (unsigned long long)sim_tiers.restored,
               (unsigned long long)sim_tiers.lost, (unsigned long long)sim_tiers.bad_sums,
               (unsigned long long)sim_tiers.off, (unsigned long long)sim_tiers.evictions);
        return 1;
    }
    if (!one && (!sim_pins.named || sim_pins.most < 8)) {
        printf("sim: pins were not tried: %llu, %llu pages\n", (unsigned long long)sim_pins.named,
               (unsigned long long)sim_pins.most);
        return 1;
    }
    if (!one && !sim_parked) {
        printf("sim: nobody was told that it made way\n");
        return 1;
    }
    if (!one && !dropped.pages) {
        printf("sim: %llu drops, and no page went\n", (unsigned long long)dropped.drops);
        return 1;
    }
    printf("%llu passed, 0 failed\n", (unsigned long long)(last - first + 1));
    return 0;
}
