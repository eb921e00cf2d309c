#include "engine/sched_drop.h"

struct sched_dropping {
    struct sched *s;
    struct api_dropped *out;
    bool from_ram, from_disk;
};

/* Its copies go with it. */
static void sched_drop_on_node(void *ctx, uint32_t node)
{
    struct sched_dropping *d = ctx;
    struct sched *s = d->s;
    if (!s->o.tier || s->o.trie->nodes[node].count != KV_PAGE_TOKENS)
        return; /* the tier has whole pages */
    for (uint32_t g = 0; g < s->o.layout->groups_count; g++) {
        uint64_t bytes = kv_tier_forget(s->o.tier, kv_trie_key(s->o.trie, node), g, d->from_ram,
                                        d->from_disk);
        d->out->bytes += bytes;
        d->out->pages += bytes > 0;
    }
}

static uint64_t sched_drop_free_pages(const struct sched *s, uint64_t *bytes)
{
    uint64_t pages = 0;
    *bytes = 0;
    for (uint32_t g = 0; g < s->o.layout->groups_count; g++) {
        pages += kv_pool_free(s->o.pool, g);
        *bytes += kv_pool_free(s->o.pool, g) * (uint64_t)s->o.layout->page_size[g];
    }
    return pages;
}

/* A pinned page stays wherever it lies: after a restart its pin is read, not computed. */
static void sched_drop_spare_pinned(struct sched *s)
{
    const struct kv_node *nodes = s->o.trie->nodes;
    for (uint32_t i = s->o.trie->oldest; i != KV_NODE_NONE; i = nodes[i].newer)
        for (uint32_t g = 0; g < s->o.layout->groups_count; g++)
            if (nodes[i].pinned[g] && nodes[i].count == KV_PAGE_TOKENS)
                kv_tier_spare(s->o.tier, kv_trie_key(s->o.trie, i), g);
}

void sched_drop(struct sched *s, const struct api_drop *d, struct api_dropped *out)
{
    struct sched_dropping dropping = {.s = s, .out = out, .from_ram = d->from & API_DROP_RAM,
                                      .from_disk = d->from & API_DROP_SSD};
    bool is_all = !d->agent.len && !d->session.len && !d->has_scope;
    bool has_tier = s->o.tier && (dropping.from_ram || dropping.from_disk);
    struct kv_trie_which which = {
        .tags = {d->agent.len ? kv_trie_tag_of(d->agent) : 0,
                 d->session.len ? kv_trie_tag_of(d->session) : 0},
        .scope = d->scope, .any_scope = !d->has_scope, .is_look = !(d->from & API_DROP_DEVICE),
        .on_node = has_tier && !is_all ? sched_drop_on_node : NULL, .ctx = &dropping};
    uint64_t bytes_before, bytes_after;
    *out = (struct api_dropped){0};
    if (!s->o.trie)
        return;
    uint64_t before = sched_drop_free_pages(s, &bytes_before);
    kv_trie_drop(s->o.trie, &which);
    out->pages += sched_drop_free_pages(s, &bytes_after) - before;
    out->bytes += bytes_after - bytes_before;
    if (!has_tier || !is_all)
        return;
    sched_drop_spare_pinned(s);
    out->bytes += kv_tier_forget_all(s->o.tier, dropping.from_ram, dropping.from_disk,
                                     &out->pages);
}
