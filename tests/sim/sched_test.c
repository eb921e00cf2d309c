/* Real sched, seq, kv over a device that holds tokens instead of numbers, a clock that we move, and
 * faults drawn from a seed: cancels, readers that stall, a lost device, pools that are too small.
 * What every client reads must be what its request says alone. TEST_SEED=n replays one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/sched_drop.h"
#include "sim_backend.h"
#include "sim_disk.h"

#define VOCAB 60u
#define REQUESTS 40u /* of the fixed scenes; seeds have up to 24 */
#define TOKENS_MAX 1024u
#define CHOICES_MAX 3u

/* --- one client ---------------------------------------------------------------------------- */

struct sim_reply {
    int32_t ids[TOKENS_MAX];
    uint32_t ids_count;
    char text[TOKENS_MAX * 8];
    size_t text_len;
    enum api_done reason;
    bool is_done;
};

enum client_state { CLIENT_LATER, CLIENT_OPEN, CLIENT_DONE, CLIENT_CANCELLED };

struct client {
    struct api_request rq;
    struct api_message message;
    int32_t prompt[TOKENS_MAX];
    uint32_t prompt_count;
    struct api_input input;
    str stop[2];
    uint32_t context_max;
    enum client_state state;
    struct sim_reply replies[CHOICES_MAX], expected[CHOICES_MAX];
    struct api_order order;
    int64_t arrives_ms, cancels_ms;
    bool is_held, is_slow; /* is_slow: returns credit late */
    size_t owed;           /* weight not returned yet */
    bool is_resumed, was_refused; /* was_refused: its pin found no room */
    struct api_usage usage;
};

static struct world {
    uint64_t seed;
    struct chrono_rng rng, pin_rng, drop_rng; /* what is pinned, dropped: of numbers of its own */
    struct chrono_fake clock;
    struct vocab *vocab;
    struct mem mem;
    struct kv_layout layout;
    struct kv_pool pool;
    struct kv_trie trie;
    struct sched sched;
    struct device device;
    bool has_trie, has_tier, keeps_ram;
    uint32_t pin_permille;
    struct sim_disk disk;
    struct tier_disk files;
    struct kv_tier *tier;
    uint64_t tier_bytes;
    struct client clients[REQUESTS];
    uint32_t clients_count;
    int64_t credit;
    uint32_t reserve_tokens, idle_permille;
    uint64_t lost_at;
    uint32_t losses;
} w;

static void fail(const char *what, int64_t a, int64_t b)
{
    printf("sim: seed %llu: %s (%lld, %lld) at step %llu; run it again: TEST_SEED=%llu "
           "build/tests/sim/sched_test\n",
           (unsigned long long)w.seed, what, (long long)a, (long long)b,
           (unsigned long long)w.device.steps, (unsigned long long)w.seed);
    exit(1);
}
static void expect(bool ok, const char *what, int64_t a, int64_t b)
{
    if (!ok)
        fail(what, a, b);
}
static uint32_t below(uint32_t n) { return (uint32_t)chrono_rng_below(&w.rng, n); }
static bool chance(uint32_t percent) { return below(100) < percent; }
static bool pin_chance(uint32_t percent) { return chrono_rng_below(&w.pin_rng, 100) < percent; }
static bool drop_chance(uint32_t percent) { return chrono_rng_below(&w.drop_rng, 100) < percent; }
static int64_t now_ms(void) { return w.clock.ns / 1000000; }

/* --- what a request says alone --------------------------------------------------------------- */

static struct vocab *make_vocab(void)
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

static void compute_expected(struct client *c, uint32_t choice)
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
        int32_t id = sim_answer(&w.device, &q);
        ids[count++] = id;
        r->ids[r->ids_count++] = id;
        if (id == VOCAB - 1) {
            end_of(r, true, API_DONE_EOS);
        } else {
            str bytes = vocab_bytes(w.vocab, id);
            memcpy(r->text + r->text_len, bytes.p, bytes.len);
            r->text_len += bytes.len;
            end_of(r, find_stop(c, r), API_DONE_STOP_STRING);
        }
        end_of(r, c->rq.tokens_max && r->ids_count >= c->rq.tokens_max, API_DONE_MAX_TOKENS);
        end_of(r, count >= c->context_max, API_DONE_CONTEXT_FULL);
    }
}

/* --- reading batches ----------------------------------------------------------------------- */

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
    if (ev->kind == API_EVENT_ERROR && c->rq.cache == API_CACHE_PIN) {
        bool is_full = str_eq_z(ev->error.code, "insufficient_storage");
        expect(w.has_trie ? is_full : ev->error.err.code == ERR_UNSUPPORTED, ev->error.err.text,
               (int64_t)c->rq.id, ev->error.err.code);
        c->was_refused = true;
    } else if (ev->kind == API_EVENT_ERROR &&
               (c->rq.priority != API_PRIORITY_IDLE || ev->error.err.code != ERR_CANCELLED))
        fail(ev->error.err.text, (int64_t)c->rq.id, ev->error.err.code);
}

static void on_batch(void *ctx, const struct api_batch *b)
{
    struct client *c = &w.clients[b->request_id - 1];
    struct sim_reply *r = &c->replies[b->choice];
    struct api_event events[64];
    struct api_batch copy = *b;
    struct err e;
    (void)ctx;
    expect(c->state == CLIENT_OPEN, "a batch for a request that is over", (int64_t)b->request_id,
           c->state);
    expect(!c->is_held || b->ids_count == 0, "a held sequence went on", (int64_t)b->request_id, 0);
    copy.events_count = 0;
    for (uint32_t i = 0; i < b->events_count; i++) /* as engine_leg does after a crash */
        if (!c->is_resumed || (b->events[i].kind != API_EVENT_STARTED &&
                               b->events[i].kind != API_EVENT_QUEUED &&
                               b->events[i].kind != API_EVENT_PROGRESS))
            events[copy.events_count++] = b->events[i];
    copy.events = events;
    if (!api_order_add(&c->order, &copy, &e))
        fail(e.text, (int64_t)b->request_id, b->choice);
    for (uint32_t i = 0; i < b->ids_count; i++)
        r->ids[r->ids_count++] = b->ids[i];
    for (uint32_t i = 0; i < copy.events_count; i++)
        read_event(c, r, &copy.events[i]);
    c->owed += api_batch_weight(b);
    if (c->order.is_over)
        c->state = r->is_done ? CLIENT_DONE : CLIENT_CANCELLED;
}

static void check_reply(const struct client *c, uint32_t choice)
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

/* Nobody finds more than what his own scope and the public one have said before: whatever holds
 * it, pool, RAM or disk. */
static void check_cached(const struct client *c)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < w.clients_count; i++) {
        const struct client *o = &w.clients[i];
        bool is_hidden = !str_eq(o->rq.scope, c->rq.scope) && o->rq.scope.len;
        if (is_hidden || (o == c && w.losses == 0)) /* it may find what its last child wrote */
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

/* --- making requests ----------------------------------------------------------------------- */

static void make_prompt(struct client *c, uint32_t id)
{
    /* Several systems, then turns: some requests go on from an earlier one's prompt. */
    uint32_t count = 0;
    if (id > 1 && chance(40)) {
        const struct client *other = &w.clients[below(id - 1)];
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
    rq->seed = chrono_rng_u64(&w.rng);
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
        rq->context = str_of(pins[chrono_rng_below(&w.pin_rng, countof(pins))]);
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
        compute_expected(c, k);
    if (rq->kind == API_KIND_PREFILL) {
        c->expected[0].is_done = true;
        c->expected[0].reason = API_DONE_EOS;
    }
}

/* The job as prompt_make would have made it, resumed from what the client has. */
static void submit(struct client *c)
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
    sched_submit(&w.sched, j);
    if (c->is_held && c->state == CLIENT_OPEN)
        sched_hold(&w.sched, c->rq.id, true);
}

/* --- the world ----------------------------------------------------------------------------- */

static void open_tier(void)
{
    struct err e;
    if (!w.has_tier)
        return;
    w.files = sim_disk_open(&w.disk);
    struct kv_tier_options o = {.layout = &w.layout, .ram_bytes = 1, .keeps_ram = w.keeps_ram,
                                .disk = &w.files, .disk_bytes = w.tier_bytes, .owner = {{1, 2}},
                                .build = "sim", .model = "sim", .mem = &w.mem,
                                .clock = chrono_fake_clock(&w.clock)};
    if (!kv_tier_init(&w.tier, &o, &e))
        fail(e.text, 0, 0);
}

static void open_engine(void)
{
    struct err e;
    struct device *d = &w.device;
    mem_init(&w.mem, 256u << 20);
    sim_device_init(d);
    open_tier();
    struct sched_options o = {
        .tier = w.tier,
        .backend = &sim_backend, .device = d, .limits = d->limits, .layout = &w.layout,
        .pool = &w.pool, .trie = w.has_trie ? &w.trie : NULL, .vocab = w.vocab, .mem = &w.mem,
        .clock = chrono_fake_clock(&w.clock), .sink = {on_batch, NULL}, .model = STR("sim"),
        .credit = w.credit, .reserve_tokens = w.reserve_tokens,
        .pin_permille = w.pin_permille, .idle_permille = w.idle_permille};
    if (!kv_pool_init(&w.pool, d->pages, w.layout.groups_count, 64, &w.mem, &e) ||
        !kv_trie_init(&w.trie, &w.pool, &w.layout, 8 + below(d->pages[0] + 8), &w.mem, &e) ||
        !sched_init(&w.sched, &o, &e))
        fail(e.text, 0, 0);
}

/* Every reference has its holder, and the other way round. */
static void check_pages(void)
{
    for (uint32_t g = 0; g < w.layout.groups_count; g++) {
        static uint32_t refs[4096];
        memset(refs, 0, sizeof refs);
        for (uint32_t i = 0; i < w.sched.o.limits.seqs_max; i++) {
            const struct seq *q = w.sched.slots[i];
            for (uint32_t k = q ? q->pages[g].first : 0; q && k < q->pages[g].count; k++)
                refs[q->pages[g].pages[k]]++;
        }
        for (uint32_t i = w.trie.oldest; i != KV_NODE_NONE; i = w.trie.nodes[i].newer)
            if (w.trie.nodes[i].pages[g] != KV_PAGE_NONE)
                refs[w.trie.nodes[i].pages[g]] += w.trie.nodes[i].pinned[g] ? 2 : 1;
        for (uint32_t i = 0; i < w.pool.copies_count; i++)
            if (w.pool.copies[i].group == g)
                refs[w.pool.copies[i].from]++;
        for (uint32_t page = 0; page < w.device.pages[g]; page++)
            expect(refs[page] == kv_pool_refs(&w.pool, g, page), "references of a page differ",
                   kv_pool_refs(&w.pool, g, page), refs[page]);
    }
}

static struct { uint64_t named, most; } pins; /* over all seeds */

/* Whatever was evicted meanwhile: the path to a pin is there, with all that its next token sees,
 * and all pins together hold what they may and no more. */
static void check_pins(void)
{
    struct kv_trie_pins seen = {0};
    const struct sched_pins *p = &w.sched.pins;
    if (!w.has_trie)
        return;
    for (uint32_t i = w.trie.oldest; i != KV_NODE_NONE; i = w.trie.nodes[i].newer) {
        const struct kv_node *n = &w.trie.nodes[i];
        seen.nodes += n->pins > 0;
        for (uint32_t g = 0; g < w.layout.groups_count; g++) {
            seen.pages[g] += n->pinned[g] > 0;
            expect(!n->pinned[g] || n->pages[g] != KV_PAGE_NONE, "a pinned page is gone", i, g);
            expect(!n->pinned[g] || n->pins, "a page is pinned and its node is not", i, g);
        }
        expect(!n->pins || n->parent == KV_NODE_NONE || w.trie.nodes[n->parent].pins,
               "the path to a pin has a hole", i, n->parent);
    }
    for (uint32_t g = 0; g < w.layout.groups_count; g++) {
        expect(seen.pages[g] == w.trie.stats.pinned.pages[g], "pinned pages are miscounted",
               seen.pages[g], w.trie.stats.pinned.pages[g]);
        expect(seen.pages[g] + p->promised.pages[g] <= p->most.pages[g], "pins hold too much",
               seen.pages[g], p->most.pages[g]);
        pins.most = base_max(pins.most, seen.pages[g]);
    }
    expect(seen.nodes == w.trie.stats.pinned.nodes, "pinned nodes are miscounted", seen.nodes,
           w.trie.stats.pinned.nodes);
    pins.named += p->by_name.count;
}

static struct { uint64_t restored, lost, bad_sums, off, evictions; } tiers; /* over all seeds */

static void count_tier(void)
{
    struct kv_tier_stats stats;
    if (!w.tier)
        return;
    kv_tier_stats(w.tier, &stats);
    tiers.restored += w.sched.tier.stats.restored_tokens;
    tiers.lost += w.sched.tier.stats.lost;
    tiers.bad_sums += stats.bad_sums;
    tiers.off += stats.is_off;
    tiers.evictions += stats.evictions;
}

static void close_engine(void)
{
    sched_deinit(&w.sched);
    expect(list_is_empty(&w.sched.jobs) && list_is_empty(&w.sched.waiting), "jobs are left", 0, 0);
    expect(w.sched.stats.running == 0 && w.sched.stats.waiting == 0 && w.sched.adjust_reserved == 0,
           "counters do not return to zero", w.sched.stats.running, w.sched.stats.waiting);
    expect(w.sched.pins.promised.nodes == 0, "a promise is left", w.sched.pins.promised.nodes, 0);
    check_pages();
    count_tier();
    sim_disk_kill(&w.disk);
    kv_tier_free(w.tier);
    w.tier = NULL;
    kv_trie_deinit(&w.trie);
    for (uint32_t g = 0; g < w.layout.groups_count; g++)
        expect(kv_pool_used(&w.pool, g) == 0, "pages are left", g, kv_pool_used(&w.pool, g));
    sim_device_deinit(&w.device);
    mem_deinit(&w.mem);
}

/* Half of the disks do what they should. */
static void open_disk(uint64_t seed)
{
    sim_disk_init(&w.disk, &w.clock, seed + 1);
    w.has_tier = w.has_trie && w.layout.window[0] == 0 && chance(70);
    w.keeps_ram = chance(30);
    w.tier_bytes = 5000 * (6 + below(200)); /* below, no file of two groups fits */
    if (chance(70)) { /* computing takes time, so that reading can be faster */
        w.device.clock = &w.clock;
        w.device.row_ns = 200000 + below(1000000);
    }
    w.device.page_ns = (int64_t)(seed % 5) * 300000; /* beside running ones the tier rests */
    if (chance(50))
        return;
    struct sim_disk_faults *f = &w.disk.faults;
    uint32_t *const rates[] = {&f->read_error, &f->write_error, &f->full, &f->flip, &f->slow,
                               &f->gone};
    for (size_t i = 0; i < countof(rates); i++)
        if (chance(30))
            *rates[i] = below(i == 3 ? 2000 : 300);
}

static void open_world(uint64_t seed)
{
    struct device *d = &w.device;
    memset(&w, 0, sizeof w);
    w.seed = seed;
    chrono_rng_init(&w.rng, seed);
    chrono_rng_init(&w.pin_rng, seed ^ 0x70696e73);
    chrono_rng_init(&w.drop_rng, seed ^ 0x64726f70);
    w.vocab = make_vocab();
    uint32_t context_max = 64 + below(chance(30) ? 900 : 400), slots = 1 + below(6);
    w.layout.groups_count = chance(40) ? 2 : 1;
    w.layout.window[1] = 8 + below(120);
    w.layout.page_size[0] = w.layout.page_size[1] = SIM_PAGE_SIZE;
    if (w.layout.groups_count == 2 && chance(20)) { /* all layers have a window */
        w.layout.groups_count = 1;
        w.layout.window[0] = w.layout.window[1];
    }
    d->limits = (struct step_limits){.rows_max = 8 + below(60), .seqs_max = slots,
                                     .outs_max = slots, .top_max = 20};
    for (uint32_t g = 0; g < w.layout.groups_count; g++) {
        uint32_t whole = (context_max + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
        d->limits.pages_max[g] = whole;
        d->pages[g] = whole + below(chance(50) ? 4 : whole * slots + 20);
    }
    d->layout = w.layout;
    d->vocab = VOCAB;
    d->eos = VOCAB - 1;
    d->eos_rate = chance(50) ? 37 : 300;
    d->on_broken = fail;
    w.has_trie = chance(85);
    w.pin_permille = 100 * (uint32_t)chrono_rng_below(&w.pin_rng, 11);
    open_disk(seed);
    w.reserve_tokens = chance(70) ? below(40) : SCHED_RESERVE_TOKENS;
    w.credit = chance(50) ? 400 + below(4000) : 0;
    w.idle_permille = seed % 5 ? 1 + (uint32_t)(seed * 37 % 1000) : 0;
    w.lost_at = chance(25) ? 1 + below(200) : UINT64_MAX;
    w.clients_count = 1 + below(24);
    for (uint32_t i = 0; i < w.clients_count; i++)
        make_client(&w.clients[i], i + 1, context_max);
    open_engine();
}

/* --- time ---------------------------------------------------------------------------------- */

static void client_acts(struct client *c)
{
    if (c->state == CLIENT_LATER && now_ms() >= c->arrives_ms) {
        if (now_ms() >= c->cancels_ms)
            c->state = CLIENT_CANCELLED;
        else
            submit(c);
    }
    if (c->state != CLIENT_OPEN)
        return;
    if (now_ms() >= c->cancels_ms) {
        sched_cancel(&w.sched, c->rq.id);
        c->state = CLIENT_CANCELLED;
        return;
    }
    if (c->owed && chance(c->is_slow ? 5 : 60)) {
        sched_credit(&w.sched, c->rq.id, (uint32_t)c->owed);
        c->owed = 0;
    }
    if (chance(c->is_held ? 20 : 1)) {
        c->is_held = !c->is_held;
        sched_hold(&w.sched, c->rq.id, c->is_held);
    }
}

static struct { uint64_t pages, drops; } dropped; /* over all seeds */

static void drop_some(void)
{
    static const char *const agents[] = {"", "a0", "a1", "a2"}, *const scopes[] = {"", "alice"};
    struct api_drop d = {.agent = str_of(agents[chrono_rng_below(&w.drop_rng, 4)]),
                         .scope = str_of(scopes[chrono_rng_below(&w.drop_rng, 2)]),
                         .has_scope = drop_chance(50),
                         .from = 1 + (uint32_t)chrono_rng_below(&w.drop_rng, API_DROP_ALL)};
    struct api_dropped out;
    sched_drop(&w.sched, &d, &out);
    dropped.pages += out.pages;
    dropped.drops++;
}

/* The device is lost: a new child gets what is open. */
static void respawn(void)
{
    w.losses++;
    w.device.is_lost = false;
    close_engine();
    open_engine();
    for (uint32_t i = 0; i < w.clients_count; i++) {
        struct client *c = &w.clients[i];
        if (c->state != CLIENT_OPEN)
            continue;
        c->is_resumed = c->order.is_started;
        submit(c);
    }
}

/* Class idle is alone or not there. */
static void check_idle(void)
{
    uint32_t idle = 0, others = 0;
    for (uint32_t i = 0; i < w.clients_count; i++) {
        const struct client *c = &w.clients[i];
        if (c->state == CLIENT_OPEN)
            *(c->rq.priority == API_PRIORITY_IDLE ? &idle : &others) += 1;
    }
    expect(!idle || !others, "class idle beside others", idle, others);
}

static bool all_over(void)
{
    for (uint32_t i = 0; i < w.clients_count; i++)
        if (w.clients[i].state == CLIENT_LATER || w.clients[i].state == CLIENT_OPEN)
            return false;
    return true;
}

static void run(uint64_t seed)
{
    struct err e;
    open_world(seed);
    uint64_t turns = 0;
    while (!all_over()) {
        turns++;
        expect(turns < 60000, "somebody starves", (int64_t)turns, w.sched.stats.waiting);
        for (uint32_t i = 0; i < w.clients_count; i++)
            client_acts(&w.clients[i]);
        w.device.is_lost = w.device.steps >= w.lost_at && w.losses == 0;
        enum sched_result r = sched_step(&w.sched, &e);
        if (r == SCHED_RESULT_LOST)
            respawn();
        if (pin_chance(3))
            sched_unpin(&w.sched, pin_chance(50) ? STR("1") : STR("2"));
        if (drop_chance(3))
            drop_some();
        check_pages();
        check_pins();
        check_idle();
        chrono_fake_add_ms(&w.clock, 1 + below(r == SCHED_RESULT_IDLE ? 100 : 30));
    }
    for (uint32_t i = 0; i < w.clients_count; i++)
        for (uint32_t k = 0; k < w.clients[i].rq.n; k++)
            check_reply(&w.clients[i], k);
    for (uint32_t i = 0; i < w.clients_count; i++)
        check_cached(&w.clients[i]);
    if (chance(30))
        sched_tier_flush(&w.sched.tier, 500);
    close_engine();
    sim_disk_deinit(&w.disk);
    vocab_free(w.vocab);
}

/* --- fixed scenes: a prefix is computed once ------------------------------------------------- */

static void open_scene(uint32_t window, uint32_t rows_max, uint32_t pages)
{
    struct device *d = &w.device;
    memset(&w, 0, sizeof w);
    chrono_rng_init(&w.rng, 1);
    w.vocab = make_vocab();
    w.layout.groups_count = window ? 2 : 1;
    w.layout.window[1] = window;
    d->limits = (struct step_limits){.rows_max = rows_max, .seqs_max = 8, .outs_max = 8,
                                     .top_max = 20, .pages_max = {32, 32}};
    d->pages[0] = d->pages[1] = pages;
    d->layout = w.layout;
    d->vocab = VOCAB;
    d->eos = VOCAB - 1;
    d->eos_rate = 1000000;
    d->on_broken = fail;
    w.has_trie = true;
    w.reserve_tokens = SCHED_RESERVE_TOKENS;
    w.clients_count = REQUESTS;
    open_engine();
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
    compute_expected(c, 0);
}

static uint64_t run_scene(void)
{
    struct err e;
    uint64_t before = w.device.rows;
    for (uint32_t i = 0; i < w.clients_count; i++)
        submit(&w.clients[i]);
    while (!all_over()) {
        expect(sched_step(&w.sched, &e) == SCHED_RESULT_WORKED, "nothing can run", 0, 0);
        check_pages();
        chrono_fake_add_ms(&w.clock, 5);
    }
    for (uint32_t i = 0; i < w.clients_count; i++)
        check_reply(&w.clients[i], 0);
    return w.device.rows - before;
}

/* 40 agents over 8 sequences: one system text of 500 tokens, a turn of 10 each, then a second turn
 * that repeats everything. What is computed is what is new, and a cut page here and there. */
static void run_agents(uint32_t window)
{
    open_scene(window, 64, 1200);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct client *c = &w.clients[i];
        for (uint32_t k = 0; k < 510; k++)
            c->prompt[k] = (int32_t)((k < 500 ? k * k : k + 3 * i) % (VOCAB - 1));
        c->prompt_count = 510;
        ask(c, i + 1, 20);
    }
    uint64_t rows = run_scene();
    expect(rows <= 500 + REQUESTS * (20 + 10 + 20), "the system text was computed again",
           (int64_t)rows, 0);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct client *c = &w.clients[i];
        for (uint32_t k = 0; k < c->replies[0].ids_count; k++)
            c->prompt[c->prompt_count++] = c->replies[0].ids[k];
        c->prompt[c->prompt_count++] = (int32_t)(i % 7);
        ask(c, i + 1, 5);
    }
    rows = run_scene();
    expect(rows <= REQUESTS * (2 + 5), "a returning agent was computed again", (int64_t)rows, 0);
    for (uint32_t i = 0; i < REQUESTS; i++)
        expect(w.clients[i].usage.cached_tokens >= w.clients[i].prompt_count - 2,
               "cached tokens are not told", w.clients[i].usage.cached_tokens,
               w.clients[i].prompt_count);
    close_engine();
    vocab_free(w.vocab);
}

/* One after the other, nobody beside it. */
static uint64_t run_alone(struct client *c)
{
    struct err e;
    uint64_t before = w.device.rows;
    submit(c);
    while (c->state == CLIENT_OPEN) {
        expect(sched_step(&w.sched, &e) == SCHED_RESULT_WORKED, "nothing can run", 0, 0);
        check_pages();
        chrono_fake_add_ms(&w.clock, 5);
    }
    check_reply(c, 0);
    return w.device.rows - before;
}

/* Nine sessions take turns over a pool that holds them, while as many requests of one turn come and
 * go that would push them out by age: what was computed of a session is there when it is back. */
static void run_rotation(void)
{
    open_scene(0, 64, 100);
    for (uint32_t round = 0; round < 4; round++)
        for (uint32_t i = 0; i < 9; i++) {
            struct client *c = &w.clients[i], *once = &w.clients[20];
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
    close_engine();
    vocab_free(w.vocab);
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
    expect(sched_step(&w.sched, &e) == SCHED_RESULT_WORKED, "nothing can run", 0, 0);
    check_pages();
    return now_ms() - before;
}

/* E04: a long prompt beside two running replies. A step costs 10 ms and 0.2 ms a row, so decoding
 * alone takes 10.4 and 2.5 times that is 26. In one piece the prompt's rows would make it 61. */
static void run_E04_pace(void)
{
    open_scene(0, 256, 1200);
    w.device.clock = &w.clock;
    w.device.step_ns = 10000000;
    w.device.row_ns = 200000;
    w.clients_count = 3;
    ask_for(&w.clients[0], 1, 300, 200);
    ask_for(&w.clients[1], 2, 40, 200);
    ask_for(&w.clients[2], 3, 900, 3);
    submit(&w.clients[0]);
    submit(&w.clients[1]);
    while (w.clients[0].replies[0].ids_count < 20 || w.clients[1].replies[0].ids_count < 20)
        step_ms();
    uint64_t steps = w.device.steps;
    submit(&w.clients[2]);
    while (!w.clients[2].replies[0].ids_count) {
        int64_t took_ms = step_ms();
        expect(took_ms <= 30, "a running reply waits for a prompt", took_ms, 30);
    }
    expect(w.device.steps - steps <= 900 / 60, "a prompt starves beside running replies",
           (int64_t)(w.device.steps - steps), 900 / 60);
    while (!all_over())
        step_ms();
    ask_for(&w.clients[0], 1, 900, 3); /* nobody decodes: whole steps */
    w.clients[0].prompt[0] = 7;
    ask(&w.clients[0], 1, 3);
    uint64_t rows = w.device.rows;
    submit(&w.clients[0]);
    step_ms();
    expect(w.device.rows - rows == 256, "a prompt alone does not fill the step",
           (int64_t)(w.device.rows - rows), 256);
    while (!all_over())
        step_ms();
    for (uint32_t i = 0; i < w.clients_count; i++)
        check_reply(&w.clients[i], 0);
    close_engine();
    vocab_free(w.vocab);
}

/* BEHAVIOUR 4.6: layers with a window cost a running sequence the window and one page, whatever
 * its length; beside a step's own rows while the prompt is computed. */
static void run_window(void)
{
    const uint32_t window = 100, whole = (window + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    open_scene(window, 64, 1200);
    w.clients_count = 1;
    ask_for(&w.clients[0], 1, 900, 60);
    w.clients[0].rq.cache = API_CACHE_OFF;
    submit(&w.clients[0]);
    while (!all_over()) {
        bool is_prompt = !w.clients[0].replies[0].ids_count;
        step_ms();
        uint32_t most = whole + 1 + (is_prompt ? 64 / KV_PAGE_TOKENS : 0);
        expect(kv_pool_used(&w.pool, 1) <= most, "pages behind the window are held",
               kv_pool_used(&w.pool, 1), most);
    }
    check_reply(&w.clients[0], 0);
    close_engine();
    vocab_free(w.vocab);
}

/* E01: four replies of 500 tokens over a pool of 1,024: each ends as it would alone. */
static void run_E01_tight_pool(void)
{
    open_scene(0, 64, 1024 / KV_PAGE_TOKENS);
    w.clients_count = 4;
    for (uint32_t i = 0; i < w.clients_count; i++)
        ask_for(&w.clients[i], i + 1, 300, 200);
    run_scene();
    close_engine();
    vocab_free(w.vocab);
}

/* E26: one that needs nearly the whole pool, twenty that need little: the small ones are done while
 * the large one waits or runs, and it is done too. */
static void run_E26_large_among_small(void)
{
    open_scene(0, 64, 1024 / KV_PAGE_TOKENS);
    w.clients_count = 21;
    ask_for(&w.clients[0], 1, 60, 200); /* holds pages, so that the large one does not fit yet */
    ask_for(&w.clients[1], 2, 900, 40);
    for (uint32_t i = 2; i < w.clients_count; i++)
        ask_for(&w.clients[i], i + 1, 60, 10);
    for (uint32_t i = 0; i < w.clients_count; i++)
        submit(&w.clients[i]);
    uint32_t small = 0;
    while (!all_over()) {
        bool was_over = w.clients[1].state == CLIENT_DONE;
        step_ms();
        if (was_over || w.clients[1].state != CLIENT_DONE)
            continue;
        for (uint32_t i = 2; i < w.clients_count; i++)
            small += w.clients[i].state == CLIENT_DONE;
    }
    expect(small == w.clients_count - 2, "small requests waited for a large one", small,
           w.clients_count - 2);
    for (uint32_t i = 0; i < w.clients_count; i++)
        check_reply(&w.clients[i], 0);
    close_engine();
    vocab_free(w.vocab);
}

/* Pages go to the disk beside a running reply: after each burst of copies the tier leaves the
 * thread alone for 19 times as long, and it gets everything written all the same. */
static void run_tier_rests(void)
{
    struct err e;
    int64_t rest_until_ns = 0;
    uint32_t bursts = 0;
    open_scene(0, 64, 1200);
    close_engine();
    w.has_tier = true;
    w.layout.page_size[0] = SIM_PAGE_SIZE;
    w.tier_bytes = 5000 * 200;
    sim_disk_init(&w.disk, &w.clock, 1);
    open_engine();
    w.device.clock = &w.clock;
    w.device.step_ns = 10000000;
    w.device.page_ns = 500000;
    w.clients_count = 4;
    for (uint32_t i = 0; i < w.clients_count; i++) {
        ask_for(&w.clients[i], i + 1, i ? 600 : 40, i ? 3 : 200);
        submit(&w.clients[i]);
    }
    while (w.clients[0].state != CLIENT_DONE) {
        int64_t begin_ns = w.clock.ns, before = w.device.pages_ns;
        expect(sched_step(&w.sched, &e) == SCHED_RESULT_WORKED, "nothing can run", 0, 0);
        int64_t took_ns = w.device.pages_ns - before;
        if (!took_ns)
            continue;
        expect(begin_ns >= rest_until_ns, "the tier does not rest", begin_ns, rest_until_ns);
        int64_t rest_ns = 19 * took_ns < 200000000 ? 19 * took_ns : 200000000;
        rest_until_ns = begin_ns + took_ns + rest_ns;
        bursts++;
    }
    expect(bursts >= 5, "pages are not written beside a reply", bursts, 5);
    expect(w.device.pages_ns >= 3 * 18 * w.device.page_ns, "pages are left", w.device.pages_ns,
           3 * 18 * w.device.page_ns);
    close_engine();
    sim_disk_deinit(&w.disk);
    vocab_free(w.vocab);
}

/* Class idle: a step costs 2 ms and 0.2 ms a row. It takes its share of the time and no more, in
 * steps that nobody notices; who comes waits for at most one of them, and finds what they did. */
static void run_idle(void)
{
    struct err e;
    int64_t worked_ms = 0, longest_ms = 0;
    open_scene(0, 256, 1200);
    w.sched.o.idle_permille = 250;
    w.device.clock = &w.clock;
    w.device.step_ns = 2000000;
    w.device.row_ns = 200000;
    w.clients_count = 2;
    ask_for(&w.clients[0], 1, 900, 1);
    w.clients[0].rq.kind = API_KIND_PREFILL;
    w.clients[0].rq.priority = API_PRIORITY_IDLE;
    memcpy(w.clients[1].prompt, w.clients[0].prompt, sizeof w.clients[0].prompt);
    w.clients[1].prompt_count = 900;
    ask(&w.clients[1], 2, 3);
    int64_t began_ms = now_ms();
    submit(&w.clients[0]);
    while (w.device.rows < 600) {
        int64_t before_ms = now_ms();
        enum sched_result r = sched_step(&w.sched, &e);
        int64_t took_ms = now_ms() - before_ms;
        worked_ms += took_ms;
        longest_ms = took_ms > longest_ms ? took_ms : longest_ms;
        if (r == SCHED_RESULT_IDLE) {
            expect(sched_rest_ms(&w.sched) > 0, "idle, and nothing wakes it", 0, 0);
            chrono_fake_add_ms(&w.clock, sched_rest_ms(&w.sched));
        }
    }
    int64_t all_ms = now_ms() - began_ms;
    expect(worked_ms * 4 <= all_ms + 4 * longest_ms, "class idle takes too much", worked_ms,
           all_ms);
    expect(worked_ms * 5 >= all_ms, "class idle takes less than its share", worked_ms, all_ms);
    expect(longest_ms <= SCHED_POLICY_IDLE_MS + 2, "a step of class idle is long", longest_ms, 0);
    submit(&w.clients[1]);
    expect(w.clients[0].state == CLIENT_CANCELLED, "class idle stays beside others", 0, 0);
    uint64_t rows = w.device.rows;
    while (!all_over())
        step_ms();
    expect(w.device.rows - rows <= 900 - 600 + KV_PAGE_TOKENS + 3, "what class idle did is lost",
           (int64_t)(w.device.rows - rows), 0);
    check_reply(&w.clients[1], 0);
    close_engine();
    vocab_free(w.vocab);
}

static void say_seed(void)
{
    printf("sim: run it again: TEST_SEED=%llu build/tests/sim/sched_test\n",
           (unsigned long long)w.seed);
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
    if (one) {
        run(strtoull(one, NULL, 10));
        seeds = 0;
    }
    run_agents(0);
    run_agents(100);
    run_rotation();
    run_E04_pace();
    run_window();
    run_idle();
    run_E01_tight_pool();
    run_E26_large_among_small();
    run_tier_rests();
    for (uint64_t seed = 1; seed <= seeds; seed++)
        run(seed);
    if (!one && (!tiers.restored || !tiers.lost || !tiers.bad_sums || !tiers.off ||
                 !tiers.evictions)) {
        printf("sim: the tier was not tried: %llu tokens restored, %llu lost, %llu bad sums, "
               "%llu off, %llu evictions\n", (unsigned long long)tiers.restored,
               (unsigned long long)tiers.lost, (unsigned long long)tiers.bad_sums,
               (unsigned long long)tiers.off, (unsigned long long)tiers.evictions);
        return 1;
    }
    if (!one && (!pins.named || pins.most < 8)) {
        printf("sim: pins were not tried: %llu, %llu pages\n", (unsigned long long)pins.named,
               (unsigned long long)pins.most);
        return 1;
    }
    printf("%llu passed, 0 failed\n", (unsigned long long)(one ? 1 : seeds) + 7);
    return 0;
}
