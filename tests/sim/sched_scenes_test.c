/* Scenes that are written down: who comes when, what it may cost and how long it may take. */
#include <stdio.h>
#include <string.h>

#include "engine/sched_look.h"
#include "sim_world.h"

static void open_scene(uint32_t window, uint32_t rows_max, uint32_t pages)
{
    struct device *d = &sim.device;
    memset(&sim, 0, sizeof sim);
    chrono_rng_init(&sim.rng, 1);
    sim.vocab = sim_vocab();
    sim.layout.groups_count = window ? 2 : 1;
    sim.layout.window[1] = window;
    d->limits = (struct step_limits){.rows_max = rows_max, .seqs_max = 8, .outs_max = 8,
                                     .top_max = 20, .pages_max = {32, 32}};
    d->pages[0] = d->pages[1] = pages;
    d->layout = sim.layout;
    d->vocab = VOCAB;
    d->eos = VOCAB - 1;
    d->eos_rate = 1000000;
    d->on_broken = sim_fail;
    sim.has_trie = true;
    sim.reserve_tokens = SCHED_RESERVE_TOKENS;
    sim.clients_count = REQUESTS;
    sim_open();
}

static void ask(struct client *c, uint32_t id, uint32_t tokens_max)
{
    memset(c->replies, 0, sizeof c->replies);
    memset(c->expected, 0, sizeof c->expected);
    api_request_init(&c->rq);
    c->rq.id = id;
    c->rq.kind = API_KIND_COMPLETE;
    c->rq.inputs = &c->input;
    c->rq.inputs_count = 1;
    c->rq.tokens_max = tokens_max;
    c->context_max = 1000;
    c->cancels_ms = INT64_MAX;
    c->state = CLIENT_LATER;
    api_order_init(&c->order, &c->rq);
    sim_expected(c, 0);
}

static uint64_t run_scene(void)
{
    struct err e;
    uint64_t before = sim.device.rows;
    for (uint32_t i = 0; i < sim.clients_count; i++)
        sim_submit(&sim.clients[i]);
    while (!sim_all_over()) {
        expect(sched_step(&sim.sched, &e) == SCHED_RESULT_WORKED, "nothing can run", 0, 0);
        sim_check_pages();
        chrono_fake_add_ms(&sim.clock, 5);
    }
    for (uint32_t i = 0; i < sim.clients_count; i++)
        sim_check_reply(&sim.clients[i], 0);
    return sim.device.rows - before;
}

/* 40 agents over 8 sequences: one system text of 500 tokens, a turn of 10 each, then a second turn
 * that repeats everything. What is computed is what is new, and a cut page here and there. */
static void run_agents(uint32_t window)
{
    open_scene(window, 64, 1200);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct client *c = &sim.clients[i];
        for (uint32_t k = 0; k < 510; k++)
            c->prompt[k] = (int32_t)((k < 500 ? k * k : k + 3 * i) % (VOCAB - 1));
        c->prompt_count = 510;
        ask(c, i + 1, 20);
    }
    uint64_t rows = run_scene();
    expect(rows <= 500 + REQUESTS * (20 + 10 + 20), "the system text was computed again",
           (int64_t)rows, 0);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct client *c = &sim.clients[i];
        for (uint32_t k = 0; k < c->replies[0].ids_count; k++)
            c->prompt[c->prompt_count++] = c->replies[0].ids[k];
        c->prompt[c->prompt_count++] = (int32_t)(i % 7);
        ask(c, i + 1, 5);
    }
    rows = run_scene();
    expect(rows <= REQUESTS * (2 + 5), "a returning agent was computed again", (int64_t)rows, 0);
    for (uint32_t i = 0; i < REQUESTS; i++)
        expect(sim.clients[i].usage.cached_tokens >= sim.clients[i].prompt_count - 2,
               "cached tokens are not told", sim.clients[i].usage.cached_tokens,
               sim.clients[i].prompt_count);
    sim_close();
    vocab_free(sim.vocab);
}

/* One after the other, nobody beside it. */
static uint64_t run_alone(struct client *c)
{
    struct err e;
    uint64_t before = sim.device.rows;
    sim_submit(c);
    while (c->state == CLIENT_OPEN) {
        expect(sched_step(&sim.sched, &e) == SCHED_RESULT_WORKED, "nothing can run", 0, 0);
        sim_check_pages();
        chrono_fake_add_ms(&sim.clock, 5);
    }
    sim_check_reply(c, 0);
    return sim.device.rows - before;
}

/* Nine sessions take turns over a pool that holds them, while as many requests of one turn come and
 * go that would push them out by age: what was computed of a session is there when it is back. */
static void run_rotation(void)
{
    open_scene(0, 64, 100);
    for (uint32_t round = 0; round < 4; round++)
        for (uint32_t i = 0; i < 9; i++) {
            struct client *c = &sim.clients[i], *once = &sim.clients[20];
            for (uint32_t k = round ? c->prompt_count : 0; k < 200 + round; k++)
                c->prompt[k] = (int32_t)((k * k + 11 * i + round) % (VOCAB - 1));
            c->prompt_count = 200 + round;
            ask(c, i + 1, 5);
            c->rq.session = STR("of its own");
            uint64_t rows = run_alone(c);
            expect(!round || rows <= 40 + 5, "a session that is back was computed again",
                   (int64_t)rows, round);
            for (uint32_t k = 0; k < 150; k++)
                once->prompt[k] = (int32_t)((k + 7 * k * k + 13 * i + 5 * round) % (VOCAB - 1));
            once->prompt_count = 150;
            ask(once, 21, 5);
            run_alone(once);
        }
    sim_close();
    vocab_free(sim.vocab);
}

static void ask_for(struct client *c, uint32_t id, uint32_t prompt, uint32_t tokens_max)
{
    for (uint32_t k = 0; k < prompt; k++)
        c->prompt[k] = (int32_t)((k * k + 11 * id) % (VOCAB - 1));
    c->prompt_count = prompt;
    ask(c, id, tokens_max);
}

/* One step; what it took in ms. */
static int64_t step_ms(void)
{
    struct err e;
    int64_t before = now_ms();
    expect(sched_step(&sim.sched, &e) == SCHED_RESULT_WORKED, "nothing can run", 0, 0);
    sim_check_pages();
    return now_ms() - before;
}

/* E04: a long prompt beside two running replies. A step costs 10 ms and 0.2 ms a row, so decoding
 * alone takes 10.4 and 2.5 times that is 26. In one piece the prompt's rows would make it 61. */
static void test_E04_running_replies_go_on_beside_a_long_prompt(void)
{
    open_scene(0, 256, 1200);
    sim.device.clock = &sim.clock;
    sim.device.step_ns = 10000000;
    sim.device.row_ns = 200000;
    sim.clients_count = 3;
    ask_for(&sim.clients[0], 1, 300, 200);
    ask_for(&sim.clients[1], 2, 40, 200);
    ask_for(&sim.clients[2], 3, 900, 3);
    sim_submit(&sim.clients[0]);
    sim_submit(&sim.clients[1]);
    while (sim.clients[0].replies[0].ids_count < 20 || sim.clients[1].replies[0].ids_count < 20)
        step_ms();
    uint64_t steps = sim.device.steps;
    sim_submit(&sim.clients[2]);
    while (!sim.clients[2].replies[0].ids_count) {
        int64_t took_ms = step_ms();
        expect(took_ms <= 30, "a running reply waits for a prompt", took_ms, 30);
    }
    expect(sim.device.steps - steps <= 900 / 60, "a prompt starves beside running replies",
           (int64_t)(sim.device.steps - steps), 900 / 60);
    while (!sim_all_over())
        step_ms();
    ask_for(&sim.clients[0], 1, 900, 3); /* nobody decodes: whole steps */
    sim.clients[0].prompt[0] = 7;
    ask(&sim.clients[0], 1, 3);
    uint64_t rows = sim.device.rows;
    sim_submit(&sim.clients[0]);
    step_ms();
    expect(sim.device.rows - rows == 256, "a prompt alone does not fill the step",
           (int64_t)(sim.device.rows - rows), 256);
    while (!sim_all_over())
        step_ms();
    for (uint32_t i = 0; i < sim.clients_count; i++)
        sim_check_reply(&sim.clients[i], 0);
    sim_close();
    vocab_free(sim.vocab);
}

/* BEHAVIOUR 4.6: layers with a window cost a running sequence the window and one page, whatever
 * its length; beside a step's own rows while the prompt is computed. */
static void run_window(void)
{
    const uint32_t window = 100, whole = (window + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    open_scene(window, 64, 1200);
    sim.clients_count = 1;
    ask_for(&sim.clients[0], 1, 900, 60);
    sim.clients[0].rq.cache = API_CACHE_OFF;
    sim_submit(&sim.clients[0]);
    while (!sim_all_over()) {
        bool is_prompt = !sim.clients[0].replies[0].ids_count;
        step_ms();
        uint32_t most = whole + 1 + (is_prompt ? 64 / KV_PAGE_TOKENS : 0);
        expect(kv_pool_used(&sim.pool, 1) <= most, "pages behind the window are held",
               kv_pool_used(&sim.pool, 1), most);
    }
    sim_check_reply(&sim.clients[0], 0);
    sim_close();
    vocab_free(sim.vocab);
}

/* E01: four replies of 500 tokens over a pool of 1,024: each ends as it would alone. */
static void test_E01_each_reply_ends_over_a_pool_that_is_too_small(void)
{
    open_scene(0, 64, 1024 / KV_PAGE_TOKENS);
    sim.clients_count = 4;
    for (uint32_t i = 0; i < sim.clients_count; i++)
        ask_for(&sim.clients[i], i + 1, 300, 200);
    run_scene();
    sim_close();
    vocab_free(sim.vocab);
}

/* E26: one that needs nearly the whole pool, twenty that need little: the small ones are done while
 * the large one waits or runs, and it is done too. */
static void test_E26_small_requests_do_not_wait_for_a_large_one(void)
{
    open_scene(0, 64, 1024 / KV_PAGE_TOKENS);
    sim.clients_count = 21;
    ask_for(&sim.clients[0], 1, 60, 200); /* holds pages, so that the large one does not fit yet */
    ask_for(&sim.clients[1], 2, 900, 40);
    for (uint32_t i = 2; i < sim.clients_count; i++)
        ask_for(&sim.clients[i], i + 1, 60, 10);
    for (uint32_t i = 0; i < sim.clients_count; i++)
        sim_submit(&sim.clients[i]);
    uint32_t small = 0;
    while (!sim_all_over()) {
        bool was_over = sim.clients[1].state == CLIENT_DONE;
        step_ms();
        if (was_over || sim.clients[1].state != CLIENT_DONE)
            continue;
        for (uint32_t i = 2; i < sim.clients_count; i++)
            small += sim.clients[i].state == CLIENT_DONE;
    }
    expect(small == sim.clients_count - 2, "small requests waited for a large one", small,
           sim.clients_count - 2);
    for (uint32_t i = 0; i < sim.clients_count; i++)
        sim_check_reply(&sim.clients[i], 0);
    sim_close();
    vocab_free(sim.vocab);
}

/* With a tier of so many pages, and steps of 10 ms. */
static void open_tier_scene(uint64_t pages)
{
    open_scene(0, 64, 1200);
    sim_close();
    sim.has_tier = true;
    sim.layout.page_size[0] = SIM_PAGE_SIZE;
    sim.tier_bytes = 5000 * pages;
    sim_disk_init(&sim.disk, &sim.clock, 1);
    sim_open();
    sim.device.clock = &sim.clock;
    sim.device.step_ns = 10000000;
}

static void close_tier_scene(void)
{
    sim_close();
    sim_disk_deinit(&sim.disk);
    vocab_free(sim.vocab);
}

/* Pages go to the disk beside a running reply: after each burst of copies the tier leaves the
 * thread alone for 19 times as long, and it gets everything written all the same. */
static void run_tier_rests(void)
{
    struct err e;
    int64_t rest_until_ns = 0;
    uint32_t bursts = 0;
    open_tier_scene(200);
    sim.device.page_ns = 500000;
    sim.clients_count = 4;
    for (uint32_t i = 0; i < sim.clients_count; i++) {
        ask_for(&sim.clients[i], i + 1, i ? 600 : 40, i ? 3 : 200);
        sim_submit(&sim.clients[i]);
    }
    while (sim.clients[0].state != CLIENT_DONE) {
        int64_t begin_ns = sim.clock.ns, before = sim.device.pages_ns;
        expect(sched_step(&sim.sched, &e) == SCHED_RESULT_WORKED, "nothing can run", 0, 0);
        int64_t took_ns = sim.device.pages_ns - before;
        if (!took_ns)
            continue;
        expect(begin_ns >= rest_until_ns, "the tier does not rest", begin_ns, rest_until_ns);
        int64_t rest_ns = 19 * took_ns < 200000000 ? 19 * took_ns : 200000000;
        rest_until_ns = begin_ns + took_ns + rest_ns;
        bursts++;
    }
    expect(bursts >= 5, "pages are not written beside a reply", bursts, 5);
    expect(sim.device.pages_ns >= 3 * 18 * sim.device.page_ns, "pages are left",
           sim.device.pages_ns, 3 * 18 * sim.device.page_ns);
    close_tier_scene();
}

static void until_done(uint32_t first, int64_t *copied_ns, int64_t *all_ns)
{
    struct err e;
    int64_t begin_ns = sim.clock.ns, before_ns = sim.device.pages_ns;
    uint32_t i = first;
    while (i < sim.clients_count) {
        expect(sched_step(&sim.sched, &e) == SCHED_RESULT_WORKED, "nothing can run", i, 0);
        while (i < sim.clients_count && sim.clients[i].state == CLIENT_DONE)
            i++;
    }
    *copied_ns = sim.device.pages_ns - before_ns;
    *all_ns = sim.clock.ns - begin_ns;
}

/* `others` agents come back after a restart while one replies: permille of the time that copies of
 * their pages take until all have their token. */
static int64_t share_of_restores(uint32_t others)
{
    int64_t copied_ns, all_ns;
    open_tier_scene(600);
    sim.clients_count = others + 1;
    for (uint32_t i = 0; i <= others; i++)
        ask_for(&sim.clients[i], i + 1, i ? 640 : 40, i ? 1 : 600);
    for (uint32_t i = 1; i <= others; i++)
        sim_submit(&sim.clients[i]);
    until_done(1, &copied_ns, &all_ns);
    sched_tier_flush(&sim.sched.tier, 5000);
    sim_close();
    sim_open();
    sim.device.page_ns = 500000;
    sim_submit(&sim.clients[0]);
    for (uint32_t i = 1; i <= others; i++) {
        ask(&sim.clients[i], i + 1, 1);
        sim_submit(&sim.clients[i]);
    }
    until_done(1, &copied_ns, &all_ns);
    expect(sim.clients[0].state == CLIENT_OPEN, "nobody replied beside them", all_ns, copied_ns);
    expect(copied_ns >= others * 15 * sim.device.page_ns, "pages were not restored", copied_ns, 0);
    while (!sim_all_over())
        step_ms();
    for (uint32_t i = 0; i <= others; i++)
        sim_check_reply(&sim.clients[i], 0);
    close_tier_scene();
    return copied_ns * 1000 / all_ns;
}

/* The more wait for their pages the more the tier takes of the thread, as far as their prompts
 * would have taken. */
static void run_tier_hurries(void)
{
    int64_t one = share_of_restores(1), twelve = share_of_restores(12);
    expect(one <= 60, "one who waits takes more than 1/20", one, 60);
    expect(twelve >= 2 * one && twelve <= 600, "permille for twelve who wait", twelve, one);
}

/* Class idle: a step costs 2 ms and 0.2 ms a row. It takes its share of the time and no more, in
 * steps that nobody notices; who comes waits for at most one of them, and finds what they did. */
static void run_idle(void)
{
    struct err e;
    int64_t worked_ms = 0, longest_ms = 0;
    open_scene(0, 256, 1200);
    sim.sched.o.idle_permille = 250;
    sim.device.clock = &sim.clock;
    sim.device.step_ns = 2000000;
    sim.device.row_ns = 200000;
    sim.clients_count = 2;
    ask_for(&sim.clients[0], 1, 900, 1);
    sim.clients[0].rq.kind = API_KIND_PREFILL;
    sim.clients[0].rq.priority = API_PRIORITY_IDLE;
    memcpy(sim.clients[1].prompt, sim.clients[0].prompt, sizeof sim.clients[0].prompt);
    sim.clients[1].prompt_count = 900;
    ask(&sim.clients[1], 2, 3);
    int64_t began_ms = now_ms();
    sim_submit(&sim.clients[0]);
    while (sim.device.rows < 600) {
        int64_t before_ms = now_ms();
        enum sched_result r = sched_step(&sim.sched, &e);
        int64_t took_ms = now_ms() - before_ms;
        worked_ms += took_ms;
        longest_ms = took_ms > longest_ms ? took_ms : longest_ms;
        if (r == SCHED_RESULT_IDLE) {
            expect(sched_rest_ms(&sim.sched) > 0, "idle, and nothing wakes it", 0, 0);
            chrono_fake_add_ms(&sim.clock, sched_rest_ms(&sim.sched));
        }
    }
    int64_t all_ms = now_ms() - began_ms;
    expect(worked_ms * 4 <= all_ms + 4 * longest_ms, "class idle takes too much", worked_ms,
           all_ms);
    expect(worked_ms * 5 >= all_ms, "class idle takes less than its share", worked_ms, all_ms);
    expect(longest_ms <= SCHED_POLICY_IDLE_MS + 2, "a step of class idle is long", longest_ms, 0);
    sim_submit(&sim.clients[1]);
    expect(sim.clients[0].state == CLIENT_CANCELLED, "class idle stays beside others", 0, 0);
    uint64_t rows = sim.device.rows;
    while (!sim_all_over())
        step_ms();
    expect(sim.device.rows - rows <= 900 - 600 + KV_PAGE_TOKENS + 3, "what class idle did is lost",
           (int64_t)(sim.device.rows - rows), 0);
    sim_check_reply(&sim.clients[1], 0);
    sim_close();
    vocab_free(sim.vocab);
}

/* Where a prefix lies is told to who has its key and its length. A length that a file made up leads
 * nowhere: not to another place, not past the root. */
static void run_look_of(uint32_t window)
{
    struct api_prefix asked[7];
    struct arena a;
    str places = STR("");
    open_scene(window, 64, 1200);
    sim.clients_count = 1;
    ask_for(&sim.clients[0], 1, 200, 1);
    sim.clients[0].rq.kind = API_KIND_PREFILL;
    sim_submit(&sim.clients[0]);
    while (!sim_all_over())
        step_ms();
    const struct api_prefix own = sim.clients[0].usage.prefix;
    expect(own.pages == 200 / KV_PAGE_TOKENS, "pages that are told", own.pages, 0);
    const uint32_t pages[countof(asked)] = {own.pages, own.pages + 1, own.pages - 1, 32, 33, 0,
                                            own.pages};
    for (uint32_t i = 0; i < countof(asked); i++) {
        asked[i] = own;
        asked[i].pages = pages[i];
    }
    asked[6].key[0] ^= 1;
    arena_init(&a, 1u << 20);
    expect(sched_look(&sim.sched, asked, countof(asked), &a, &places), "no memory", 0, 0);
    expect(places.len == countof(asked), "places", (int64_t)places.len, 0);
    for (uint32_t i = 0; i < countof(asked); i++)
        expect(places.p[i] == (i ? API_PLACE_NOWHERE : API_PLACE_DEVICE), "place of row", i,
               places.p[i]);
    arena_deinit(&a);
    sim_close();
    vocab_free(sim.vocab);
}

static void run_look(void)
{
    run_look_of(0);
    run_look_of(100);
}

/* 40 agents whose later layers see 100 tokens. */
static void run_agents_of_a_window(void) { run_agents(100); }
static void run_agents_of_whole_layers(void) { run_agents(0); }

int main(void)
{
    static const struct { const char *name; void (*run)(void); } scenes[] = {
        {"40 agents share one prefix", run_agents_of_whole_layers},
        {"40 agents share one prefix, with a window", run_agents_of_a_window},
        {"sessions that take turns stay", run_rotation},
        {"E04: a long prompt beside running replies",
         test_E04_running_replies_go_on_beside_a_long_prompt},
        {"pages behind a window are given back", run_window},
        {"class idle takes its share", run_idle},
        {"E01: replies over a pool that is too small",
         test_E01_each_reply_ends_over_a_pool_that_is_too_small},
        {"E26: a large request among small ones",
         test_E26_small_requests_do_not_wait_for_a_large_one},
        {"the tier rests beside a reply", run_tier_rests},
        {"the tier hurries for many who wait", run_tier_hurries},
        {"a prefix is found under its key and length", run_look},
    };
    for (size_t i = 0; i < countof(scenes); i++) {
        printf("%s\n", scenes[i].name); /* before: a failure names it */
        scenes[i].run();
    }
    printf("%zu passed, 0 failed\n", countof(scenes));
    return 0;
}
