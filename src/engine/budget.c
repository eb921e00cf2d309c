#include "engine/budget.h"

#include <inttypes.h>

#include "base/buf.h"

#define BUDGET_SOME_TOKENS 256u /* BEHAVIOUR 8.1: what a sequence is admitted with at least */
#define BUDGET_KEEP ((uint64_t)2 << 30) /* BEHAVIOUR 8.10: bytes left to the machine */
#define BUDGET_KEEP_GPU ((uint64_t)512 << 20) /* the same: left to the driver and to graphs */

static uint32_t budget_pages_of(uint64_t tokens)
{
    return (uint32_t)((tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS);
}

uint32_t budget_pages(const struct kv_layout *l, uint32_t group, uint64_t tokens,
                      uint32_t rows_max)
{
    uint32_t pages = budget_pages_of(tokens);
    if (!l->window[group])
        return pages;
    /* Behind the window only cut pages at both ends and the rows of the step at hand remain. */
    uint64_t most = (uint64_t)budget_pages_of((uint64_t)l->window[group] + rows_max) + 2;
    return (uint32_t)base_min(pages, most);
}

uint64_t budget_token_size(const struct kv_layout *l)
{
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < l->groups_count; g++)
        bytes += l->window[g] ? 0 : l->page_size[g] / KV_PAGE_TOKENS;
    return bytes;
}

static bool budget_check(const struct budget_in *in, struct err *e)
{
    if (in->slots > BUDGET_SLOTS_MAX)
        return err_set(e, ERR_CONFIG, "slots: 1 to %u expected, got %u", BUDGET_SLOTS_MAX,
                       in->slots);
    if (in->context == 1)
        return err_set(e, ERR_CONFIG, "context: 2 tokens or more expected, got 1");
    if (in->batch && (in->batch < BUDGET_BATCH_MIN || in->batch > BUDGET_BATCH_MAX))
        return err_set(e, ERR_CONFIG, "batch: %u to %u rows expected, got %u", BUDGET_BATCH_MIN,
                       BUDGET_BATCH_MAX, in->batch);
    return true;
}

uint64_t budget_spendable(const struct budget_in *in)
{
    uint64_t all = in->available, half = all / 2;
    uint64_t most = all > BUDGET_KEEP ? all - BUDGET_KEEP : 0;
    most = most > all / 4 ? most : all / 4; /* a small machine keeps three quarters instead */
    uint64_t spend = half < most ? half : most;
    if (in->is_gpu)
        spend = all > BUDGET_KEEP_GPU ? (all - BUDGET_KEEP_GPU) / 10 * 9 : 0;
    return in->memory_max && in->memory_max < spend ? in->memory_max : spend;
}

/* Bytes that `slots` sequences need at least: each its windows, all together one conversation of so
 * many tokens. */
static uint64_t budget_need(const struct kv_layout *l, uint32_t slots, uint64_t tokens,
                            uint32_t rows_max)
{
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < l->groups_count; g++)
        bytes += (l->window[g] ? slots : 1u) * l->page_size[g] *
                 (uint64_t)budget_pages(l, g, tokens, rows_max);
    return bytes;
}

static bool budget_too_small(const struct budget_in *in, uint64_t spend, uint64_t need,
                             uint32_t context, struct err *e)
{
    struct buf b;
    buf_init(&b, ERR_TEXT_MAX);
    buf_printf(&b, "a context of %u tokens needs ", context);
    buf_add_size(&b, need);
    buf_add_z(&b, " of attention memory, but ");
    buf_add_size(&b, spend);
    buf_add_z(&b, " can be spent (");
    buf_add_size(&b, in->available);
    buf_add_z(&b, " are free)");
    err_set(e, ERR_MEMORY, "%s", b.p ? b.p : "no memory");
    buf_deinit(&b);
    return false;
}

/* The longest context that fits beside the windows of all sequences asked for. */
static uint32_t budget_context(const struct budget_in *in, uint64_t spend, uint32_t slots,
                               uint32_t rows_max)
{
    uint64_t low = 0, high = budget_pages_of(in->n_ctx);
    while (low < high) { /* in pages; the need rises with the context */
        uint64_t mid = (low + high + 1) / 2;
        if (budget_need(in->layout, slots, mid * KV_PAGE_TOKENS, rows_max) <= spend)
            low = mid;
        else
            high = mid - 1;
    }
    return (uint32_t)base_min(low * KV_PAGE_TOKENS, in->n_ctx);
}

/* As many sequences as find room for some pages each beside one whole conversation. */
static uint32_t budget_slots(const struct budget_in *in, const struct budget *b, uint64_t spend)
{
    uint64_t some = BUDGET_SOME_TOKENS * budget_token_size(in->layout);
    uint32_t slots = 1;
    while (slots < BUDGET_SLOTS_AUTO &&
           budget_need(in->layout, slots + 1, b->context_max, b->rows_max) + slots * some <= spend)
        slots++;
    return slots;
}

/* Groups with a window get what their sequences need, the others all that is left. */
static void budget_fill_pages(const struct budget_in *in, struct budget *out, uint64_t spend)
{
    const struct kv_layout *l = in->layout;
    uint64_t windows = 0, token_size = budget_token_size(l);
    for (uint32_t g = 0; g < l->groups_count; g++)
        if (l->window[g])
            windows += (uint64_t)out->slots * l->page_size[g] *
                       budget_pages(l, g, out->context_max, out->rows_max);
    for (uint32_t g = 0; g < l->groups_count; g++) {
        uint64_t pages = budget_pages(l, g, out->context_max, out->rows_max);
        if (l->window[g])
            pages *= out->slots;
        else if (token_size)
            pages = base_max(pages, (spend - windows) / (token_size * KV_PAGE_TOKENS));
        out->pages[g] = (uint32_t)base_min(pages, UINT32_MAX / 2);
        out->pages_max[g] = budget_pages_of(out->context_max);
        out->pool_bytes += (uint64_t)out->pages[g] * l->page_size[g];
    }
}

bool budget_make(const struct budget_in *in, struct budget *out, struct err *e)
{
    const struct kv_layout *l = in->layout;
    if (!budget_check(in, e))
        return false;
    uint64_t spend = budget_spendable(in);
    uint32_t slots = in->slots ? in->slots : 1;
    uint32_t batch = in->is_gpu ? BUDGET_BATCH_GPU : BUDGET_BATCH_AUTO;
    *out = (struct budget){.batch = in->batch ? in->batch : batch};
    out->rows_max = (uint32_t)base_max(out->batch, in->slots ? in->slots : BUDGET_SLOTS_AUTO);
    out->context_max = in->context ? in->context : budget_context(in, spend, slots, out->rows_max);
    uint32_t context = out->context_max ? out->context_max : KV_PAGE_TOKENS;
    uint64_t need = budget_need(l, slots, context, out->rows_max);
    if (need > spend || out->context_max < 2)
        return budget_too_small(in, spend, need, context, e);
    out->slots = in->slots ? in->slots : budget_slots(in, out, spend);
    budget_fill_pages(in, out, spend);
    return true;
}
