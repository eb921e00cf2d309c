#include "cli/sizing.h"

#include "engine/budget.h"

static void sizing_read_gpu(struct sizing *s)
{
    struct device *d;
    const struct backend *b = backend_table_pick(STR("cuda"), &s->no_gpu);
    struct device_options o = {.act = ACT_AUTO, .threads = 1};
    if (!b || !b->open(&d, &o, &s->no_gpu))
        return;
    b->info(d, &s->gpu);
    b->close(d);
    s->has_gpu = s->gpu.memory_total > 0;
}

static uint64_t sizing_less(uint64_t bytes, uint64_t keep)
{
    return bytes > keep ? bytes - keep : 0;
}

void sizing_read(struct sizing *s)
{
    *s = (struct sizing){0};
    machine_read(&s->machine);
    sizing_read_gpu(s);
    s->ram = sizing_less(machine_ram_free(&s->machine), SIZING_RAM_KEEP);
    s->vram = s->has_gpu ? sizing_less(s->gpu.memory_free, SIZING_GPU_KEEP) : 0;
}

enum sizing_verdict sizing_judge(uint64_t budget, uint64_t need)
{
    if (!budget)
        return SIZING_UNKNOWN;
    if (need > budget)
        return SIZING_TOO_LARGE;
    return need <= budget / 10 * 7 ? SIZING_COMFORTABLE : SIZING_TIGHT;
}

const char *sizing_verdict_name(enum sizing_verdict v)
{
    static const char *const names[] = {"unknown", "comfortable", "tight", "too large", "none"};
    must((size_t)v < countof(names));
    return names[v];
}

uint64_t sizing_cache(const struct kv_layout *l, uint32_t sequences, uint32_t context)
{
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < l->groups_count; g++)
        bytes += (uint64_t)sequences * l->page_size[g] *
                 budget_pages(l, g, context, BUDGET_BATCH_AUTO);
    return bytes;
}

uint64_t sizing_cache_of(uint32_t layers, uint32_t kv_heads, uint32_t head_dim, uint32_t context)
{
    struct kv_layout l = {.type = KV_TYPE_F16, .groups_count = 1};
    l.page_size[0] = (size_t)KV_PAGE_TOKENS * layers * kv_heads * (head_dim + head_dim) * 2;
    return sizing_cache(&l, 1, context);
}

void sizing_add_cell(struct buf *out, str text, uint32_t width)
{
    uint32_t used = 0;
    size_t before = out->len;
    buf_add_printable(out, text);
    for (size_t i = before; i < out->len; i++)
        used += (out->p[i] & 0xc0) != 0x80;
    buf_printf(out, "%*s", used < width ? (int)(width - used) : 1, "");
}

void sizing_add_size_cell(struct buf *out, uint64_t bytes, uint32_t width)
{
    struct buf b;
    buf_init(&b, 64);
    buf_add_size(&b, bytes);
    sizing_add_cell(out, buf_view(&b), width);
    buf_deinit(&b);
}
