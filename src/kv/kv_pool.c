#include "kv/kv_pool.h"

bool kv_pool_init(struct kv_pool *p, const uint32_t *pages, uint32_t groups_count,
                  uint32_t copies_max, struct mem *m, struct err *e)
{
    must(groups_count <= KV_GROUPS_MAX);
    *p = (struct kv_pool){.groups_count = groups_count, .copies_max = copies_max};
    p->copies = mem_new_array(m, "pages", copies_max, sizeof *p->copies, e);
    if (!p->copies)
        return false;
    for (uint32_t g = 0; g < groups_count; g++) {
        struct kv_pool_group *group = &p->groups[g];
        group->refs = mem_new_array(m, "pages", pages[g], sizeof *group->refs, e);
        if (!group->refs)
            return false;
        group->free = mem_new_array(m, "pages", pages[g], sizeof *group->free, e);
        if (!group->free)
            return false;
        group->cached = mem_new_array(m, "pages", pages[g], sizeof *group->cached, e);
        if (!group->cached)
            return false;
        group->pages = group->free_count = pages[g];
        for (uint32_t i = 0; i < pages[g]; i++)
            group->free[i] = pages[g] - 1 - i;
    }
    return true;
}

static struct kv_pool_group *kv_pool_of(struct kv_pool *p, uint32_t group, uint32_t page)
{
    must(group < p->groups_count && page < p->groups[group].pages);
    return &p->groups[group];
}

uint32_t kv_pool_alloc(struct kv_pool *p, uint32_t group)
{
    must(group < p->groups_count);
    struct kv_pool_group *g = &p->groups[group];
    if (g->free_count == 0)
        return KV_PAGE_NONE;
    uint32_t page = g->free[--g->free_count];
    must(g->refs[page] == 0);
    g->refs[page] = 1;
    return page;
}

/* Every change of a page's two counts goes through here, so that spare_count stays exact. */
static void kv_pool_count(struct kv_pool_group *g, uint32_t page, int refs, int cached)
{
    g->spare_count -= g->cached[page] > 0 && g->refs[page] == g->cached[page];
    must(refs > 0 ? g->refs[page] < UINT32_MAX : g->refs[page] > 0);
    must(cached >= 0 || g->cached[page] > 0);
    g->refs[page] += (uint32_t)refs;
    g->cached[page] += (uint32_t)cached;
    must(g->cached[page] <= g->refs[page]);
    g->spare_count += g->cached[page] > 0 && g->refs[page] == g->cached[page];
}

void kv_pool_ref(struct kv_pool *p, uint32_t group, uint32_t page)
{
    struct kv_pool_group *g = kv_pool_of(p, group, page);
    must(g->refs[page] > 0);
    kv_pool_count(g, page, 1, 0);
}

void kv_pool_ref_cached(struct kv_pool *p, uint32_t group, uint32_t page)
{
    struct kv_pool_group *g = kv_pool_of(p, group, page);
    must(g->refs[page] > 0);
    kv_pool_count(g, page, 1, 1);
}

/* The source of the waiting copy that fills `page`, or KV_PAGE_NONE. Copies are those of one step,
 * so the list is short; the order of the others stays. */
static uint32_t kv_pool_take_copy_to(struct kv_pool *p, uint32_t group, uint32_t page)
{
    for (uint32_t i = 0; i < p->copies_count; i++)
        if (p->copies[i].group == group && p->copies[i].to == page) {
            uint32_t from = p->copies[i].from;
            p->copies_count--;
            for (uint32_t k = i; k < p->copies_count; k++)
                p->copies[k] = p->copies[k + 1];
            return from;
        }
    return KV_PAGE_NONE;
}

/* A page that nobody holds needs no copy any more, and that copy's source loses a holder. */
static void kv_pool_release(struct kv_pool *p, uint32_t group, uint32_t page)
{
    struct kv_pool_group *g = &p->groups[group];
    while (page != KV_PAGE_NONE && g->refs[page] == 0) {
        g->free[g->free_count++] = page;
        page = kv_pool_take_copy_to(p, group, page);
        if (page != KV_PAGE_NONE)
            kv_pool_count(g, page, -1, 0);
    }
}

void kv_pool_unref(struct kv_pool *p, uint32_t group, uint32_t page)
{
    kv_pool_count(kv_pool_of(p, group, page), page, -1, 0);
    kv_pool_release(p, group, page);
}

void kv_pool_unref_cached(struct kv_pool *p, uint32_t group, uint32_t page)
{
    kv_pool_count(kv_pool_of(p, group, page), page, -1, -1);
    kv_pool_release(p, group, page);
}

uint32_t kv_pool_copy(struct kv_pool *p, uint32_t group, uint32_t page)
{
    must(kv_pool_of(p, group, page)->refs[page] > 0);
    if (p->copies_count == p->copies_max)
        return KV_PAGE_NONE;
    uint32_t to = kv_pool_alloc(p, group);
    if (to == KV_PAGE_NONE)
        return KV_PAGE_NONE;
    kv_pool_ref(p, group, page);
    p->copies[p->copies_count++] = (struct kv_copy){.group = group, .from = page, .to = to};
    return to;
}

uint32_t kv_pool_own(struct kv_pool *p, uint32_t group, uint32_t page)
{
    if (kv_pool_of(p, group, page)->refs[page] == 1)
        return page;
    uint32_t to = kv_pool_copy(p, group, page);
    if (to != KV_PAGE_NONE)
        kv_pool_unref(p, group, page);
    return to;
}

void kv_pool_copied(struct kv_pool *p)
{
    while (p->copies_count) {
        struct kv_copy c = p->copies[--p->copies_count];
        kv_pool_unref(p, c.group, c.from);
    }
}
