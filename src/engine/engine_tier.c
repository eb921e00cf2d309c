#include "engine/engine_tier.h"

#include <string.h>

#include "base/digest.h"
#include "base/log.h"
#include "base/machine.h"
#include "kv/tier_parts.h"

#define RAM_SHARE 4u        /* BEHAVIOUR 3.3: a quarter of what is free */
#define OTHERS_SHARE 2u     /* of the files' limit, for other models */
#define PATH_SIZE 4096u

/* All that decides a page's bytes. */
static struct tier_owner engine_tier_owner(const struct engine *en, str build_id)
{
    const struct kv_layout *l = &en->layout;
    struct buf b;
    buf_init(&b, 1u << 20);
    bool ok = buf_add(&b, build_id) && buf_add_z(&b, en->backend->name) &&
              buf_add_bytes(&b, en->info.numerics, strlen(en->info.numerics) + 1) &&
              buf_add_bytes(&b, &en->file_hash, sizeof en->file_hash) &&
              buf_add_bytes(&b, &l->type, sizeof l->type) &&
              buf_add_bytes(&b, l->window, sizeof l->window) &&
              buf_add_bytes(&b, l->page_size, sizeof l->page_size);
    for (uint32_t i = 0; ok && i < l->layers_count; i++) {
        const struct kv_layer *y = &l->layers[i];
        const uint64_t numbers[] = {y->layer, y->group, y->index, y->heads, y->dk, y->dv,
                                    y->offset};
        ok = buf_add_bytes(&b, numbers, sizeof numbers);
    }
    struct tier_owner owner = {digest_xxh3_128(buf_view(&b), 0)};
    if (!ok) /* nobody's: what is written is not found again */
        digest_random(&owner, sizeof owner);
    buf_deinit(&b);
    return owner;
}

static uint64_t engine_tier_ram(const struct engine *en, const struct api_load *l)
{
    bool is_device = en->info.memory_free != 0;
    if (l->ram_bytes || !is_device)
        return l->ram_bytes ? l->ram_bytes : ENGINE_TIER_BUFFERS;
    struct machine m;
    machine_read(&m);
    return machine_ram_free(&m) / RAM_SHARE;
}

static bool engine_tier_open_disk(struct engine_tier *t, const struct engine_tier_options *o,
                                  struct kv_tier_options *k, struct err *e)
{
    char dir[PATH_SIZE];
    const struct api_load *l = o->load;
    if (l->spill.len >= sizeof dir)
        return err_set(e, ERR_CONFIG, "cache.spill: a path of at most %zu bytes expected, got %zu",
                       sizeof dir - 1, l->spill.len);
    memcpy(dir, l->spill.p, l->spill.len);
    dir[l->spill.len] = 0;
    struct tier_disk_options d = {.dir = dir, .owner = k->owner, .wake = o->wake, .ctx = o->ctx};
    if (!tier_disk_open(&t->disk, &d, e))
        return false;
    t->has_disk = true;
    uint64_t others = tier_parts_trim(dir, &k->owner, l->spill_bytes / OTHERS_SHARE);
    k->disk = &t->disk;
    k->disk_bytes = l->spill_bytes > others ? l->spill_bytes - others : 0;
    k->floor_bytes = l->spill_floor;
    return true;
}

static bool engine_tier_try(struct engine_tier *t, struct engine *en,
                            const struct engine_tier_options *o, struct err *e)
{
    memcpy(t->build, o->build_id.p, base_min(o->build_id.len, sizeof t->build - 1));
    memcpy(t->model, en->model.name.p, base_min(en->model.name.len, sizeof t->model - 1));
    struct kv_tier_options k = {.layout = &en->layout,
                                .ram_bytes = engine_tier_ram(en, o->load),
                                .keeps_ram = en->info.memory_free != 0 || o->load->ram_bytes,
                                .owner = engine_tier_owner(en, o->build_id), .build = t->build,
                                .model = t->model, .mem = &en->mem, .clock = chrono_real};
    struct err why;
    if (o->load->spill.len && !engine_tier_open_disk(t, o, &k, &why)) {
        memcpy(t->why, why.text, sizeof t->why);
        t->is_broken = why.code == ERR_IO || why.code == ERR_NOT_FOUND;
    }
    if (!k.disk && !k.keeps_ram)
        return true; /* buffers on the way to nowhere */
    return kv_tier_init(&t->tier, &k, e);
}

/* Without layers that see everything a prefix has no page that stands for it. */
static bool engine_tier_can(const struct engine *en)
{
    for (uint32_t g = 0; g < en->layout.groups_count; g++)
        if (en->layout.window[g] == 0)
            return true;
    return false;
}

void engine_tier_open(struct engine_tier *t, struct engine *en,
                      const struct engine_tier_options *o)
{
    struct err e;
    *t = (struct engine_tier){.tier = NULL};
    if (!en->has_trie || (!o->load->spill.len && !o->load->ram_bytes && !en->info.memory_free))
        return;
    if (!engine_tier_can(en)) {
        err_set(&e, ERR_UNSUPPORTED, "cache.spill: all layers of %.*s have a window; its pages are "
                "kept in the pool alone", STR_ARG(en->model.name));
        memcpy(t->why, e.text, sizeof t->why);
    } else if (!engine_tier_try(t, en, o, &e)) {
        engine_tier_close(t);
        memcpy(t->why, e.text, sizeof t->why);
    }
    if (t->why[0])
        log_warn("cache: %s", t->why);
}

void engine_tier_close(struct engine_tier *t)
{
    if (t->has_disk)
        tier_disk_close(&t->disk);
    kv_tier_free(t->tier);
    t->tier = NULL;
    t->has_disk = false;
}
