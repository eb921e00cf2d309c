#include "engine/engine_stats.h"

_Static_assert(KV_PAGE_TOKENS == API_PAGE_TOKENS, "pages are counted in one unit everywhere");

struct row {
    const char *key;
    uint64_t number;
};

static void put_rows(struct json_writer *w, const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        json_key_z(w, rows[i].key);
        json_put_u64(w, rows[i].number);
    }
}

static void put_tier(struct json_writer *w, const struct engine_tier *tier)
{
    struct kv_tier_stats t = {.ram_bytes = 0};
    if (tier->tier)
        kv_tier_stats(tier->tier, &t);
    const struct row ram[] = {{"bytes", t.ram_bytes}, {"limit", t.ram_limit}};
    const struct row ssd[] = {{"bytes", t.disk_bytes}, {"limit", t.disk_limit}, {"files", t.files},
                              {"pages", t.entries}, {"reads", t.reads}, {"writes", t.writes},
                              {"read_bytes", t.bytes_read}, {"written_bytes", t.bytes_written},
                              {"read_bytes_per_s", (uint64_t)t.read_bytes_per_s},
                              {"checksum_failures", t.bad_sums}, {"files_refused", t.bad_files},
                              {"errors", t.errors}, {"evictions", t.evictions},
                              {"refused", t.refused}};
    json_key_z(w, "ram");
    json_open_object(w);
    put_rows(w, ram, countof(ram));
    json_close_object(w);
    json_key_z(w, "ssd");
    json_open_object(w);
    put_rows(w, ssd, countof(ssd));
    json_key_z(w, "off"); /* why nothing is written: "" where that was asked for, or all is well */
    json_put_text(w, str_of(t.is_off ? t.why : tier->why));
    json_close_object(w);
}

void engine_stats_tier(const struct engine_tier *tier, struct api_tier *out)
{
    struct kv_tier_stats t = {.ram_bytes = 0};
    if (tier->tier)
        kv_tier_stats(tier->tier, &t);
    *out = (struct api_tier){.ram_bytes = t.ram_bytes, .ssd_bytes = t.disk_bytes,
                             .read_bytes = t.bytes_read, .written_bytes = t.bytes_written,
                             .bad_sums = t.bad_sums, .is_broken = t.is_off || tier->is_broken};
}

void engine_stats_pages(const struct sched *s, uint64_t pages[API_PAGES_COUNT_])
{
    const struct kv_pool_group *g = &s->o.pool->groups[0];
    pages[API_PAGES_FREE] = g->free_count;
    pages[API_PAGES_USED] = g->pages - g->free_count - g->spare_count;
    pages[API_PAGES_CACHED] = g->spare_count;
    pages[API_PAGES_PINNED] = s->o.trie ? s->o.trie->stats.pinned.pages[0] : 0;
    pages[API_PAGES_PIN_LIMIT] = s->pins.most.pages[0];
}

void engine_stats_write(struct json_writer *w, const struct sched *s,
                        const struct engine_tier *tier)
{
    static const struct kv_trie none;
    const struct kv_trie *t = s->o.trie ? s->o.trie : &none;
    uint64_t n[API_PAGES_COUNT_];
    engine_stats_pages(s, n);
    const struct row pages[] = {{"total", s->o.pool->groups[0].pages},
                                {"free", n[API_PAGES_FREE]},
                                {"used", n[API_PAGES_USED]},
                                {"cached", n[API_PAGES_CACHED]},
                                {"pinned", n[API_PAGES_PINNED]},
                                {"pin_limit", n[API_PAGES_PIN_LIMIT]}};
    const struct row rows[] = {{"nodes", t->stats.nodes},
                               {"hits", t->stats.hits},
                               {"misses", t->stats.misses},
                               {"tokens_cached", t->stats.tokens_cached},
                               {"tokens_computed", s->stats.tokens_done},
                               {"evictions", t->stats.evictions},
                               {"preemptions", s->stats.preemptions},
                               {"recomputed_tokens", s->stats.recomputed_tokens},
                               {"restored_tokens", s->tier.stats.restored_tokens},
                               {"restores", s->tier.stats.restores},
                               {"restores_lost", s->tier.stats.lost},
                               {"restores_skipped", s->tier.stats.skipped}};
    json_open_object(w);
    json_key_z(w, "page_tokens");
    json_put_u64(w, KV_PAGE_TOKENS);
    json_key_z(w, "pages");
    json_open_object(w);
    put_rows(w, pages, countof(pages));
    json_close_object(w);
    put_rows(w, rows, countof(rows));
    put_tier(w, tier);
    json_close_object(w);
}
