/* Who gets a slot and which pages it holds: admission, prefix reuse, growth, preemption. */
#include <string.h>

#include "engine/sched.h"

#define SCHED_WAIT_TOKENS 256u /* BEHAVIOUR 8.1: so much in common with a prompt under way */
#define SCHED_MATCH_MIN 32u    /* BEHAVIOUR 8.11 */
#define SCHED_EVICT 8u         /* pages at once: the next growth needs one, too */
#define SCHED_EVICT_SHARE 8u

static uint32_t sched_pages_of(uint64_t tokens)
{
    return (uint32_t)((tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS);
}

/* --- slots and pages ----------------------------------------------------------------------- */

static bool sched_keeps(const struct sched *s, const struct seq *q)
{
    enum api_cache cache = q->job->rq.cache;
    return s->o.trie && (cache == API_CACHE_KEEP || cache == API_CACHE_PIN);
}

uint32_t sched_keep(struct sched *s, struct seq *q, bool is_whole)
{
    struct kv_pages p = {0};
    if (!sched_keeps(s, q) || (!is_whole && q->kv_count - q->kept_count < KV_PAGE_TOKENS))
        return KV_NODE_NONE;
    for (uint32_t g = 0; g < s->o.layout->groups_count; g++) {
        p.pages[g] = q->pages[g].pages;
        p.first[g] = q->pages[g].first;
    }
    uint32_t node = kv_trie_insert(s->o.trie, q->job->rq.scope, seq_ids(q), q->kv_count, &p,
                                   is_whole);
    struct kv_tags tags = {kv_trie_tag_of(q->job->rq.agent), kv_trie_tag_of(q->job->rq.session)};
    kv_trie_tag(s->o.trie, node, &tags);
    sched_tier_keep(&s->tier, node, is_whole);
    q->kept_count = q->kv_count - q->kv_count % KV_PAGE_TOKENS;
    return node;
}

void sched_release(struct sched *s, struct seq *q)
{
    if (q->slot == SEQ_SLOT_NONE)
        return;
    for (uint32_t g = 0; g < s->o.layout->groups_count; g++) {
        struct seq_pages *p = &q->pages[g];
        for (uint32_t i = p->first; i < p->count; i++)
            kv_pool_unref(s->o.pool, g, p->pages[i]);
        *p = (struct seq_pages){0};
    }
    s->adjust_reserved -= q->adjust_max;
    s->slots[q->slot] = NULL;
    s->stats.running--;
    q->slot = SEQ_SLOT_NONE;
    q->kv_count = q->kept_count = 0;
}

/* Behind a window only the window, the rows of a step and two cut pages remain. */
uint32_t sched_need(const struct sched *s, uint32_t group, uint32_t tokens)
{
    uint32_t window = s->o.layout->window[group], pages = sched_pages_of(tokens);
    if (!window)
        return pages;
    return (uint32_t)base_min(pages, sched_pages_of((uint64_t)window + s->o.limits.rows_max) + 2);
}

static uint32_t sched_tokens_wanted(const struct sched *s, const struct seq *q)
{
    uint32_t left = s->o.reserve_tokens, tokens_max = q->job->rq.tokens_max;
    if (tokens_max && tokens_max < left)
        left = tokens_max;
    return (uint32_t)base_min((size_t)seq_count(q) + left, q->context_max);
}

/* Tokens of the prompt that are there already; at least one row is always computed. */
static uint32_t sched_cached(const struct sched *s, const struct seq *q, uint32_t *spare)
{
    memset(spare, 0, KV_GROUPS_MAX * sizeof *spare);
    if (!s->o.trie || q->job->rq.cache == API_CACHE_OFF)
        return 0;
    uint32_t cached = kv_trie_length(s->o.trie, q->job->rq.scope, seq_ids(q), seq_count(q) - 1,
                                     spare);
    if (cached >= SCHED_MATCH_MIN)
        return cached;
    memset(spare, 0, KV_GROUPS_MAX * sizeof *spare);
    return 0;
}

/* Whether the pool has room beside what the running ones were promised. Cached pages that nobody
 * else holds count as room, except those that q itself would take. */
static bool sched_fits(const struct sched *s, const struct seq *q)
{
    uint32_t spare[KV_GROUPS_MAX], cached = sched_cached(s, q, spare);
    if (s->adjust_reserved + q->adjust_max > SCHED_ADJUST_MAX)
        return false;
    for (uint32_t g = 0; g < s->o.layout->groups_count; g++) {
        uint32_t need = sched_need(s, g, sched_tokens_wanted(s, q));
        uint32_t first = kv_trie_first_seen(s->o.layout, g, cached), last = cached / KV_PAGE_TOKENS;
        uint32_t whole = last > first ? last - first : 0;
        uint64_t promised = need > whole ? need - whole : 0;
        for (uint32_t i = 0; i < s->o.limits.seqs_max; i++) {
            const struct seq *r = s->slots[i];
            if (!r)
                continue;
            need = sched_need(s, g, sched_tokens_wanted(s, r));
            uint32_t held = r->pages[g].count - r->pages[g].first;
            promised += need > held ? need - held : 0;
        }
        if (promised + spare[g] > kv_pool_spare(s->o.pool, g))
            return false;
    }
    return true;
}

/* --- the waiting line ---------------------------------------------------------------------- */

void sched_wait(struct sched *s, struct seq *q)
{
    q->state = SEQ_STATE_QUEUED;
    list_push_last(&s->waiting, &q->link);
    s->stats.waiting++;
}

/* --- admission ----------------------------------------------------------------------------- */

static struct sched_waiting sched_view(const struct sched *s, const struct seq *q)
{
    return (struct sched_waiting){
        .priority = q->job->rq.priority,
        .waited_ms = (chrono_ns(&s->o.clock) - q->job->arrived_ns) / 1000000,
        .key_service = sched_share_key_service(s->shares, q->job->share),
        .service = sched_share_service(s->shares, q->job->share),
        .order = q->job->order,
        .was_preempted = q->preempted_count > 0,
    };
}

static uint32_t sched_free_slot(const struct sched *s)
{
    uint32_t slot = 0;
    while (slot < s->o.limits.seqs_max && s->slots[slot])
        slot++;
    return slot;
}

/* What is cached is taken over; the rest is computed. */
static void sched_adopt(struct sched *s, struct seq *q)
{
    struct kv_pages p;
    uint32_t spare[KV_GROUPS_MAX], cached = sched_cached(s, q, spare);
    if (!cached) {
        if (s->o.trie && q->job->rq.cache != API_CACHE_OFF)
            s->o.trie->stats.misses++;
        return;
    }
    for (uint32_t g = 0; g < s->o.layout->groups_count; g++)
        p.pages[g] = q->pages[g].pages;
    cached = kv_trie_match(s->o.trie, q->job->rq.scope, seq_ids(q), cached, &p);
    for (uint32_t g = 0; g < s->o.layout->groups_count; g++) {
        q->pages[g].first = p.first[g];
        q->pages[g].count = sched_pages_of(cached);
    }
    q->kv_count = cached;
    q->kept_count = cached - cached % KV_PAGE_TOKENS;
    /* A request's further choices find what its first one has just computed: no saving of it. */
    if (q->preempted_count == 0 && q->choice % q->job->rq.n == 0)
        q->job->cached_tokens += (uint32_t)base_min(cached, q->prompt_count);
}

/* Whether a prompt under way is about to compute what q lacks. Who began to wait does so for every
 * whole page. */
static bool sched_is_expected(const struct sched *s, struct seq *q)
{
    uint32_t spare[KV_GROUPS_MAX], cached = sched_cached(s, q, spare);
    cached -= cached % KV_PAGE_TOKENS;
    for (uint32_t i = 0; i < s->o.limits.seqs_max; i++) {
        const struct seq *r = s->slots[i];
        if (!r || r->state != SEQ_STATE_PREFILL || r->job->is_held || !sched_keeps(s, r) ||
            (r->job->rq.scope.len && !str_eq(r->job->rq.scope, q->job->rq.scope)))
            continue; /* what it computes will not be seen by q */
        bool is_mine = r->job == q->job || q->expects == s->admitted[i] + 1;
        uint32_t wanted = is_mine ? KV_PAGE_TOKENS : SCHED_WAIT_TOKENS;
        uint32_t both = (uint32_t)base_min(seq_count(r), seq_count(q) - 1);
        if (both < cached + wanted ||
            memcmp(seq_ids(r), seq_ids(q), (size_t)(cached + wanted) * sizeof(int32_t)))
            continue;
        q->expects = s->admitted[i] + 1;
        return true;
    }
    return false;
}

static void sched_admit_one(struct sched *s, struct seq *q, uint32_t slot)
{
    list_remove(&q->link);
    s->stats.waiting--;
    s->stats.running++;
    s->slots[slot] = q;
    s->admitted[slot] = s->admissions++;
    s->adjust_reserved += q->adjust_max;
    q->slot = slot;
    q->state = SEQ_STATE_PREFILL;
    for (uint32_t g = 0; g < s->o.layout->groups_count; g++)
        q->pages[g] = (struct seq_pages){.pages = s->slot_pages[slot * KV_GROUPS_MAX + g].pages};
    if (!q->job->admitted_ns)
        q->job->admitted_ns = chrono_ns(&s->o.clock);
    if (s->blocked == q)
        s->blocked = NULL;
    sched_park(s, q, false);
    sched_adopt(s, q);
    s->stats.admitted++;
    s->stats.prompt_tokens += seq_count(q);
    s->stats.reused_tokens += q->kv_count;
    if (q->preempted_count == 0) /* what is computed again was nobody's wish */
        sched_share_charge(s->shares, q->job->share, seq_rows_left(q));
}

/* The best of the line that was not tried yet in this round. */
static struct seq *sched_best(const struct sched *s, uint64_t tried_before)
{
    struct seq *best = NULL;
    struct sched_waiting best_view = {0};
    list_each (link, &s->waiting) {
        struct seq *q = list_item(link, struct seq, link);
        struct sched_waiting view = sched_view(s, q);
        if (q->tried == tried_before + 1 || q->job->is_held)
            continue;
        if (!best || sched_policy_before(&view, &best_view)) {
            best = q;
            best_view = view;
        }
    }
    return best;
}

static void sched_block(struct sched *s, const struct seq *head)
{
    if (s->blocked == head)
        return;
    s->blocked = head;
    s->blocked_ms = chrono_ns(&s->o.clock) / 1000000;
    s->bypassed = 0;
}

/* Fills free slots in the order of the policy. Behind a head that does not fit others are tried,
 * until they have passed it too often. */
void sched_admit(struct sched *s)
{
    uint64_t round = s->rounds++;
    bool is_head = true;
    for (uint32_t tries = 0; tries <= SCHED_POLICY_LOOKAHEAD; tries++) {
        uint32_t slot = sched_free_slot(s);
        struct seq *q = slot < s->o.limits.seqs_max ? sched_best(s, round) : NULL;
        if (!q)
            return;
        q->tried = round + 1;
        if (s->o.trie && q->job->rq.cache != API_CACHE_OFF && sched_is_expected(s, q))
            continue;
        if (sched_tier_waits(&s->tier, q, s->stats.prefill_tokens_per_s))
            continue;
        if (sched_fits(s, q)) {
            s->bypassed += !is_head;
            sched_admit_one(s, q, slot);
            continue;
        }
        if (is_head)
            sched_block(s, q);
        is_head = false;
        if (!sched_policy_may_pass(s->bypassed, chrono_ns(&s->o.clock) / 1000000 - s->blocked_ms))
            return;
    }
}

/* --- pages of a step ----------------------------------------------------------------------- */

/* Pages of a window are looked for through the whole tree: many at once, so that it is rare. */
static bool sched_evict(struct sched *s, uint32_t group)
{
    uint32_t wanted = SCHED_EVICT;
    if (s->o.layout->window[group])
        wanted += s->o.pool->groups[group].pages / SCHED_EVICT_SHARE;
    return s->o.trie && kv_trie_evict(s->o.trie, group, wanted) > 0;
}

static bool sched_evict_for_tier(void *ctx, uint32_t group) { return sched_evict(ctx, group); }

void sched_turn_tier(struct sched *s)
{
    struct sched_tier_turn turn = {.is_idle = s->stats.running == 0,
                                   .now_ns = chrono_ns(&s->o.clock),
                                   .evict = sched_evict_for_tier, .ctx = s};
    list_each (link, &s->waiting) {
        enum seq_tier tier = list_item(link, struct seq, link)->tier;
        turn.waiting += tier == SEQ_TIER_TURN || tier == SEQ_TIER_RESTORING;
    }
    sched_tier_turn(&s->tier, &turn);
}

static uint32_t sched_page(struct sched *s, uint32_t group)
{
    uint32_t page = kv_pool_alloc(s->o.pool, group);
    if (page == KV_PAGE_NONE && sched_evict(s, group))
        page = kv_pool_alloc(s->o.pool, group);
    return page;
}

static uint32_t sched_own(struct sched *s, uint32_t group, uint32_t page)
{
    uint32_t own = kv_pool_own(s->o.pool, group, page);
    if (own == KV_PAGE_NONE && sched_evict(s, group))
        own = kv_pool_own(s->o.pool, group, page);
    return own;
}

/* No page is left to copy the adopted, partly equal one to: its few tokens are computed instead. */
static void sched_disown(struct sched *s, struct seq *q)
{
    uint32_t whole = q->kv_count / KV_PAGE_TOKENS;
    q->kv_count = whole * KV_PAGE_TOKENS;
    for (uint32_t g = 0; g < s->o.layout->groups_count; g++)
        while (q->pages[g].count > whole)
            kv_pool_unref(s->o.pool, g, q->pages[g].pages[--q->pages[g].count]);
}

static bool sched_own_last(struct sched *s, struct seq *q)
{
    uint32_t at = q->kv_count / KV_PAGE_TOKENS;
    for (uint32_t g = 0; g < s->o.layout->groups_count; g++) {
        uint32_t page = at < q->pages[g].count ? sched_own(s, g, q->pages[g].pages[at]) : 0;
        if (page == KV_PAGE_NONE)
            return false;
        if (at < q->pages[g].count)
            q->pages[g].pages[at] = page;
    }
    return true;
}

/* Pages for `rows` more tokens, and the one being written to held alone. What was added stays on
 * failure: it is needed later anyway. */
static bool sched_grow(struct sched *s, struct seq *q, uint32_t rows)
{
    if (!sched_own_last(s, q))
        sched_disown(s, q);
    for (uint32_t g = 0; g < s->o.layout->groups_count; g++) {
        struct seq_pages *p = &q->pages[g];
        uint32_t need = sched_pages_of((uint64_t)q->kv_count + rows);
        must(need <= s->o.limits.pages_max[g]);
        while (p->count < need) {
            uint32_t page = sched_page(s, g);
            if (page == KV_PAGE_NONE)
                return false;
            p->pages[p->count++] = page;
        }
    }
    return true;
}

/* Rows that the pages at hand can take. */
static uint32_t sched_room(const struct sched *s, const struct seq *q)
{
    uint32_t room = UINT32_MAX;
    for (uint32_t g = 0; g < s->o.layout->groups_count; g++) {
        uint32_t tokens = q->pages[g].count * KV_PAGE_TOKENS;
        room = (uint32_t)base_min(room, tokens - q->kv_count);
    }
    return room;
}

static void sched_preempt(struct sched *s, struct seq *q)
{
    s->stats.preemptions++;
    s->stats.recomputed_tokens += q->kv_count;
    sched_keep(s, q, true); /* what nobody needs until then it finds again */
    sched_release(s, q);
    q->tier = SEQ_TIER_NEW;
    q->preempted_count++;
    sched_wait(s, q);
    sched_park(s, q, true);
}

/* Somebody gives way so that q can grow. False: nobody may, or q itself did. */
static bool sched_make_room(struct sched *s, struct seq *q, bool at_any_cost)
{
    struct seq **who = s->victim_seqs;
    uint32_t count = 0, needs = 0;
    for (uint32_t i = 0; i < s->o.limits.seqs_max; i++) {
        struct seq *r = s->slots[i];
        if (!r)
            continue;
        if (r == q)
            needs = count;
        s->victims[count] = (struct sched_victim){
            .priority = r->job->rq.priority, .recompute = r->kv_count,
            .admitted = s->admitted[i], .preempted_count = r->preempted_count};
        if (at_any_cost) { /* anyone but q, whatever its class and however often */
            s->victims[count].priority = API_PRIORITY_IDLE;
            s->victims[count].preempted_count = r == q ? SCHED_POLICY_PREEMPT_MAX : 0;
        }
        who[count++] = r;
    }
    uint32_t victim = sched_policy_victim(s->victims, count, needs);
    if (victim == count)
        return false;
    sched_preempt(s, who[victim]);
    return who[victim] != q;
}

/* Decoders first: each has a place in the step, and may make somebody give way. A prompt takes what
 * pages there are and waits for the rest. */
static uint32_t sched_give_most(struct sched *s)
{
    uint32_t sum = 0;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < s->o.limits.seqs_max; i++) {
            if (!s->slots[i] || !s->rows[i] || s->runners[i].is_decoder != (pass == 0))
                continue;
            struct seq *q = s->slots[i];
            bool ok = sched_grow(s, q, s->rows[i]);
            while (!ok && pass == 0 && sched_make_room(s, q, false))
                ok = sched_grow(s, q, s->rows[i]);
            if (s->slots[i] != q)
                continue; /* it gave way itself */
            if (!ok)
                s->rows[i] = (uint32_t)base_min(s->rows[i], sched_room(s, q));
        }
    for (uint32_t i = 0; i < s->o.limits.seqs_max; i++)
        sum += s->slots[i] ? s->rows[i] : 0;
    return sum;
}

/* Everyone waits for a page that another one holds: the oldest goes on, the others make room. */
static uint32_t sched_break_tie(struct sched *s)
{
    struct seq *oldest = NULL;
    for (uint32_t i = 0; i < s->o.limits.seqs_max; i++)
        if (s->slots[i] && !s->runners[i].is_held && s->runners[i].rows_left &&
            (!oldest || s->admitted[i] < s->admitted[oldest->slot]))
            oldest = s->slots[i];
    if (!oldest)
        return 0;
    bool ok = sched_grow(s, oldest, 1);
    while (!ok && sched_make_room(s, oldest, true))
        ok = sched_grow(s, oldest, 1);
    must(ok); /* budget: one sequence always fits the pool alone */
    s->rows[oldest->slot] = 1;
    return 1;
}

/* Pages that no later row can see any more. */
void sched_drop_behind(struct sched *s, struct seq *q)
{
    for (uint32_t g = 0; g < s->o.layout->groups_count; g++) {
        uint32_t window = s->o.layout->window[g];
        struct seq_pages *p = &q->pages[g];
        while (window && p->first < p->count &&
               (uint64_t)(p->first + 1) * KV_PAGE_TOKENS + window <= (uint64_t)q->kv_count + 1) {
            kv_pool_unref(s->o.pool, g, p->pages[p->first]);
            p->pages[p->first++] = KV_PAGE_NONE;
        }
    }
}

uint32_t sched_give_pages(struct sched *s)
{
    uint32_t rows = sched_give_most(s);
    return rows ? rows : sched_break_tie(s);
}
