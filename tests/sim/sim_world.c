#include "sim_world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_world sim;
struct sim_pins sim_pins;
struct sim_tiers sim_tiers;
uint64_t sim_parked;

_Noreturn void sim_fail(const char *what, int64_t a, int64_t b)
{
    printf("sim: %s (%lld, %lld) at step %llu", what, (long long)a, (long long)b,
           (unsigned long long)sim.device.steps);
    if (sim.seed)
        printf("; run it again: TEST_SEED=%llu build/tests/sim/sched_test",
               (unsigned long long)sim.seed);
    printf("\n");
    exit(1);
}

/* --- what a request says alone ---------------------------------------------------------------- */

struct vocab *sim_vocab(void)
{
    static char texts[VOCAB][8];
    str tokens[VOCAB];
    int32_t types[VOCAB];
    struct vocab_source s = vocab_source_empty;
    struct vocab *v = NULL;
    struct err e;
    for (uint32_t i = 0; i < VOCAB; i++) {
        snprintf(texts[i], sizeof texts[i], "%s%c%u", i % 3 ? "" : "\u0120",
                 'a' + (int)(i % 26), i % 10);
        tokens[i] = str_of(i + 1 == VOCAB ? "<end>" : texts[i]);
        types[i] = i + 1 == VOCAB ? VOCAB_TYPE_CONTROL : VOCAB_TYPE_NORMAL;
    }
    s.model = STR("gpt2");
    s.pre = STR("default");
    s.tokens = tokens;
    s.types = types;
    s.count = VOCAB;
    s.roles[VOCAB_ROLE_EOS] = VOCAB - 1;
    if (!vocab_new(&v, &s, &e)) {
        printf("sim: %s\n", e.text);
        exit(1);
    }
    return v;
}

/* Penalties and bans a second time, from the list of tokens. */
static uint64_t adjust_of(const struct client *c, const int32_t *ids, uint32_t count,
                          bool *eos_banned)
{
    const struct api_request *rq = &c->rq;
    uint32_t window[VOCAB] = {0}, reply[VOCAB] = {0};
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        window[ids[i]] += rq->repeat_penalty != 1 && count - i <= rq->repeat_last;
        reply[ids[i]] += i >= c->prompt_count;
    }
    *eos_banned = rq->ignore_eos || count - c->prompt_count < rq->tokens_min;
    if (*eos_banned)
        sum += sim_adjust_hash(VOCAB - 1, 1, -INFINITY);
    for (uint32_t i = 0; i < VOCAB; i++) {
        if (window[i])
            sum += sim_adjust_hash((int32_t)i, rq->repeat_penalty, 0);
        if (reply[i] && (rq->presence_penalty != 0 || rq->frequency_penalty != 0))
            sum += sim_adjust_hash((int32_t)i, 1, -(rq->presence_penalty +
                                                    rq->frequency_penalty * (float)reply[i]));
    }
    return sum;
}

static bool find_stop(const struct client *c, struct sim_reply *r)
{
    size_t best = SIZE_MAX, best_end = SIZE_MAX;
    for (uint32_t i = 0; i < c->rq.stop_count; i++) {
        size_t at = str_find(str_view(r->text, r->text_len), c->stop[i]);
        if (at != STR_NONE && at + c->stop[i].len < best_end) {
            best = at;
            best_end = at + c->stop[i].len;
        }
    }
    if (best == SIZE_MAX)
        return false;
    r->text_len = c->rq.keep_stop ? best_end : best;
    return true;
}

static void end_of(struct sim_reply *r, bool ends, enum api_done why)
{
    if (ends && !r->is_done) {
        r->is_done = true;
        r->reason = why;
    }
}

void sim_expected(struct client *c, uint32_t choice)
{
    struct sim_reply *r = &c->expected[choice];
    int32_t ids[TOKENS_MAX * 2];
    uint32_t count = c->prompt_count;
    memcpy(ids, c->prompt, count * sizeof *ids);
    while (!r->is_done) {
        struct sim_question q = {.tokens = ids, .count = count,
                                 .seed = api_request_seed(&c->rq, choice),
                                 .position = count - c->prompt_count};
        q.adjust = adjust_of(c, ids, count, &q.eos_banned);
        int32_t id = sim_answer(&sim.device, &q);
        ids[count++] = id;
        r->ids[r->ids_count++] = id;
        if (id == VOCAB - 1) {
            end_of(r, true, API_DONE_EOS);
        } else {
            str bytes = vocab_bytes(sim.vocab, id);
            memcpy(r->text + r->text_len, bytes.p, bytes.len);
            r->text_len += bytes.len;
            end_of(r, find_stop(c, r), API_DONE_STOP_STRING);
        }
        end_of(r, c->rq.tokens_max && r->ids_count >= c->rq.tokens_max, API_DONE_MAX_TOKENS);
        end_of(r, count >= c->context_max, API_DONE_CONTEXT_FULL);
    }
}

/* --- reading batches -------------------------------------------------------------------------- */

static void read_event(struct client *c, struct sim_reply *r, const struct api_event *ev)
{
    if (ev->kind == API_EVENT_CONTENT) {
        expect(r->text_len + ev->text.text.len <= sizeof r->text, "text is too long", 0, 0);
        memcpy(r->text + r->text_len, ev->text.text.p, ev->text.text.len);
        r->text_len += ev->text.text.len;
    }
    if (ev->kind == API_EVENT_DONE) {
        r->is_done = true;
        r->reason = ev->done.reason;
    }
    if (ev->kind == API_EVENT_USAGE)
        c->usage = ev->usage;
    if (ev->kind == API_EVENT_PARKED) {
        expect(c->is_parked != ev->parked.on, "it is told what it knows", (int64_t)c->rq.id,
               ev->parked.on);
        c->is_parked = ev->parked.on;
        sim_parked += ev->parked.on;
    }
    if (ev->kind == API_EVENT_ERROR && c->rq.cache == API_CACHE_PIN) {
        bool is_full = str_eq_z(ev->error.code, "insufficient_storage");
        expect(sim.has_trie ? is_full : ev->error.err.code == ERR_UNSUPPORTED, ev->error.err.text,
               (int64_t)c->rq.id, ev->error.err.code);
        c->was_refused = true;
    } else if (ev->kind == API_EVENT_ERROR &&
               (c->rq.priority != API_PRIORITY_IDLE || ev->error.err.code != ERR_CANCELLED))
        sim_fail(ev->error.err.text, (int64_t)c->rq.id, ev->error.err.code);
}

static void on_batch(void *ctx, const struct api_batch *b)
{
    struct client *c = &sim.clients[b->request_id - 1];
    struct sim_reply *r = &c->replies[b->choice];
    struct api_event events[64];
    struct api_batch copy = *b;
    struct err e;
    (void)ctx;
    expect(c->state == CLIENT_OPEN, "a batch for a request that is over", (int64_t)b->request_id,
           c->state);
    expect(!c->is_held || b->ids_count == 0, "a held sequence went on", (int64_t)b->request_id, 0);
    expect(!c->is_parked || c->rq.n > 1 || b->ids_count == 0, "a parked sequence went on",
           (int64_t)b->request_id, 0);
    copy.events_count = 0;
    for (uint32_t i = 0; i < b->events_count; i++) /* as engine_leg does after a crash */
        if (!c->is_resumed || (b->events[i].kind != API_EVENT_STARTED &&
                               b->events[i].kind != API_EVENT_QUEUED &&
                               b->events[i].kind != API_EVENT_PROGRESS))
            events[copy.events_count++] = b->events[i];
    copy.events = events;
    if (!api_order_add(&c->order, &copy, &e))
        sim_fail(e.text, (int64_t)b->request_id, b->choice);
    for (uint32_t i = 0; i < b->ids_count; i++)
        r->ids[r->ids_count++] = b->ids[i];
    for (uint32_t i = 0; i < copy.events_count; i++)
        read_event(c, r, &copy.events[i]);
    c->owed += api_batch_weight(b);
    if (c->order.is_over)
        c->state = r->is_done ? CLIENT_DONE : CLIENT_CANCELLED;
}

void sim_check_reply(const struct client *c, uint32_t choice)
{
    const struct sim_reply *a = &c->replies[choice], *b = &c->expected[choice];
    if (c->was_refused)
        return;
    bool prefix = c->state == CLIENT_CANCELLED;
    expect(prefix ? a->ids_count <= b->ids_count : a->ids_count == b->ids_count,
           "number of tokens differs", a->ids_count, b->ids_count);
    for (uint32_t i = 0; i < a->ids_count; i++)
        expect(a->ids[i] == b->ids[i], "token differs", (int64_t)c->rq.id * 1000 + choice, i);
    expect(prefix ? a->text_len <= b->text_len : a->text_len == b->text_len, "text length differs",
           (int64_t)a->text_len, (int64_t)b->text_len);
    expect(!memcmp(a->text, b->text, a->text_len), "text differs", (int64_t)c->rq.id, choice);
    expect(prefix || a->reason == b->reason, "another reason of the end", a->reason, b->reason);
}

void sim_check_cached(const struct client *c)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < sim.clients_count; i++) {
        const struct client *o = &sim.clients[i];
        bool is_hidden = !str_eq(o->rq.scope, c->rq.scope) && o->rq.scope.len;
        if (is_hidden || (o == c && sim.losses == 0)) /* it may find what its last child wrote */
            continue;
        for (uint32_t k = 0; k < o->rq.n; k++) {
            uint32_t same = 0, all = o->prompt_count + o->replies[k].ids_count;
            while (same < all && same < c->prompt_count &&
                   c->prompt[same] == (same < o->prompt_count
                                           ? o->prompt[same]
                                           : o->replies[k].ids[same - o->prompt_count]))
                same++;
            most = same > most ? same : most;
        }
    }
    expect(c->usage.cached_tokens <= most, "a prefix of another scope was found",
           c->usage.cached_tokens, most);
}

/* --- the engine ------------------------------------------------------------------------------- */

void sim_submit(struct client *c)
{
    struct arena a;
    arena_init(&a, 4u << 20);
    struct job *j = prompt_job(&a, &c->rq);
    j->prompts = ARENA_ARRAY(&j->arena, struct prompt, 1);
    j->prompts[0] = (struct prompt){c->prompt, c->prompt_count};
    j->prompts_count = 1;
    j->context_max = c->context_max;
    if (c->is_resumed) {
        j->begun = ARENA_ARRAY(&j->arena, struct prompt_begun, c->rq.n);
        for (uint32_t i = 0; i < c->rq.n; i++) {
            const struct sim_reply *r = &c->replies[i];
            int32_t *ids = ARENA_ARRAY(&j->arena, int32_t, r->ids_count);
            if (r->is_done)
                continue;
            if (r->ids_count)
                memcpy(ids, r->ids, r->ids_count * sizeof *ids);
            j->begun[i] = (struct prompt_begun){ids, r->ids_count, r->ids_count, true, true};
        }
    }
    c->state = CLIENT_OPEN;
    c->owed = 0;
    sched_submit(&sim.sched, j);
    if (c->is_held && c->state == CLIENT_OPEN)
        sched_hold(&sim.sched, c->rq.id, true);
}

static void open_tier(void)
{
    struct err e;
    if (!sim.has_tier)
        return;
    sim.files = sim_disk_open(&sim.disk);
    struct kv_tier_options o = {.layout = &sim.layout, .ram_bytes = 1, .keeps_ram = sim.keeps_ram,
                                .disk = &sim.files, .disk_bytes = sim.tier_bytes, .owner = {{1, 2}},
                                .build = "sim", .model = "sim", .mem = &sim.mem,
                                .clock = chrono_fake_clock(&sim.clock)};
    if (!kv_tier_init(&sim.tier, &o, &e))
        sim_fail(e.text, 0, 0);
}

void sim_open(void)
{
    struct err e;
    struct device *d = &sim.device;
    mem_init(&sim.mem, 256u << 20);
    sim_device_init(d);
    open_tier();
    struct sched_options o = {
        .tier = sim.tier,
        .backend = &sim_backend, .device = d, .limits = d->limits, .layout = &sim.layout,
        .pool = &sim.pool, .trie = sim.has_trie ? &sim.trie : NULL, .vocab = sim.vocab,
        .mem = &sim.mem,
        .clock = chrono_fake_clock(&sim.clock), .sink = {on_batch, NULL}, .model = STR("sim"),
        .credit = sim.credit, .reserve_tokens = sim.reserve_tokens,
        .pin_permille = sim.pin_permille, .idle_permille = sim.idle_permille};
    if (!kv_pool_init(&sim.pool, d->pages, sim.layout.groups_count, 64, &sim.mem, &e) ||
        !kv_trie_init(&sim.trie, &sim.pool, &sim.layout, 8 + below(d->pages[0] + 8), &sim.mem,
                      &e) ||
        !sched_init(&sim.sched, &o, &e))
        sim_fail(e.text, 0, 0);
}

void sim_check_pages(void)
{
    for (uint32_t g = 0; g < sim.layout.groups_count; g++) {
        static uint32_t refs[4096];
        memset(refs, 0, sizeof refs);
        for (uint32_t i = 0; i < sim.sched.o.limits.seqs_max; i++) {
            const struct seq *q = sim.sched.slots[i];
            for (uint32_t k = q ? q->pages[g].first : 0; q && k < q->pages[g].count; k++)
                refs[q->pages[g].pages[k]]++;
        }
        for (uint32_t i = sim.trie.oldest; i != KV_NODE_NONE; i = sim.trie.nodes[i].newer)
            if (sim.trie.nodes[i].pages[g] != KV_PAGE_NONE)
                refs[sim.trie.nodes[i].pages[g]] += sim.trie.nodes[i].pinned[g] ? 2 : 1;
        for (uint32_t i = 0; i < sim.pool.copies_count; i++)
            if (sim.pool.copies[i].group == g)
                refs[sim.pool.copies[i].from]++;
        for (uint32_t page = 0; page < sim.device.pages[g]; page++)
            expect(refs[page] == kv_pool_refs(&sim.pool, g, page), "references of a page differ",
                   kv_pool_refs(&sim.pool, g, page), refs[page]);
    }
}

void sim_check_pins(void)
{
    struct kv_trie_pins seen = {0};
    const struct sched_pins *p = &sim.sched.pins;
    if (!sim.has_trie)
        return;
    for (uint32_t i = sim.trie.oldest; i != KV_NODE_NONE; i = sim.trie.nodes[i].newer) {
        const struct kv_node *n = &sim.trie.nodes[i];
        seen.nodes += n->pins > 0;
        for (uint32_t g = 0; g < sim.layout.groups_count; g++) {
            seen.pages[g] += n->pinned[g] > 0;
            expect(!n->pinned[g] || n->pages[g] != KV_PAGE_NONE, "a pinned page is gone", i, g);
            expect(!n->pinned[g] || n->pins, "a page is pinned and its node is not", i, g);
        }
        expect(!n->pins || n->parent == KV_NODE_NONE || sim.trie.nodes[n->parent].pins,
               "the path to a pin has a hole", i, n->parent);
    }
    for (uint32_t g = 0; g < sim.layout.groups_count; g++) {
        expect(seen.pages[g] == sim.trie.stats.pinned.pages[g], "pinned pages are miscounted",
               seen.pages[g], sim.trie.stats.pinned.pages[g]);
        expect(seen.pages[g] + p->promised.pages[g] <= p->most.pages[g], "pins hold too much",
               seen.pages[g], p->most.pages[g]);
        sim_pins.most = base_max(sim_pins.most, seen.pages[g]);
    }
    expect(seen.nodes == sim.trie.stats.pinned.nodes, "pinned nodes are miscounted", seen.nodes,
           sim.trie.stats.pinned.nodes);
    sim_pins.named += p->by_name.count;
}

void sim_check_idle(void)
{
    uint32_t idle = 0, others = 0;
    for (uint32_t i = 0; i < sim.clients_count; i++) {
        const struct client *c = &sim.clients[i];
        if (c->state == CLIENT_OPEN)
            *(c->rq.priority == API_PRIORITY_IDLE ? &idle : &others) += 1;
    }
    expect(!idle || !others, "class idle beside others", idle, others);
}

static void count_tier(void)
{
    struct kv_tier_stats stats;
    if (!sim.tier)
        return;
    kv_tier_stats(sim.tier, &stats);
    sim_tiers.restored += sim.sched.tier.stats.restored_tokens;
    sim_tiers.lost += sim.sched.tier.stats.lost;
    sim_tiers.bad_sums += stats.bad_sums;
    sim_tiers.off += stats.is_off;
    sim_tiers.evictions += stats.evictions;
}

void sim_close(void)
{
    sched_deinit(&sim.sched);
    expect(list_is_empty(&sim.sched.jobs) && list_is_empty(&sim.sched.waiting), "jobs are left", 0,
           0);
    expect(sim.sched.stats.running == 0 && sim.sched.stats.waiting == 0 &&
               sim.sched.adjust_reserved == 0,
           "counters do not return to zero", sim.sched.stats.running, sim.sched.stats.waiting);
    expect(sim.sched.pins.promised.nodes == 0, "a promise is left",
           sim.sched.pins.promised.nodes, 0);
    sim_check_pages();
    count_tier();
    sim_disk_kill(&sim.disk);
    kv_tier_free(sim.tier);
    sim.tier = NULL;
    kv_trie_deinit(&sim.trie);
    for (uint32_t g = 0; g < sim.layout.groups_count; g++)
        expect(kv_pool_used(&sim.pool, g) == 0, "pages are left", g, kv_pool_used(&sim.pool, g));
    sim_device_deinit(&sim.device);
    mem_deinit(&sim.mem);
}

bool sim_all_over(void)
{
    for (uint32_t i = 0; i < sim.clients_count; i++)
        if (sim.clients[i].state == CLIENT_LATER || sim.clients[i].state == CLIENT_OPEN)
            return false;
    return true;
}
