#include "engine/budget.h"

#include <inttypes.h>

#include "base/buf.h"

#define BUDGET_KEEP ((uint64_t)2 << 30) /* BEHAVIOUR 8.10: bytes left to the machine */

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
    if (in->batch && (in->batch < BUDGET_BATCH_MIN || in->batch > BUDGET_BATCH_MAX))
        return err_set(e, ERR_CONFIG, "batch: %u to %u rows expected, got %u", BUDGET_BATCH_MIN,
                       BUDGET_BATCH_MAX, in->batch);
    return true;
}

static uint64_t budget_spendable(const struct budget_in *in)
{
    uint64_t all = in->available, half = all / 2;
    uint64_t most = all > BUDGET_KEEP ? all - BUDGET_KEEP : 0;
    most = most > all / 4 ? most : all / 4; /* a small machine keeps three quarters instead */
    uint64_t spend = half < most ? half : most;
    return in->memory_max && in->memory_max < spend ? in->memory_max : spend;
}

/* Bytes that `slots` sequences of `tokens` take behind windows. */
static uint64_t budget_window_bytes(const struct kv_layout *l, uint32_t slots, uint64_t tokens,
                                    uint32_t rows_max)
{
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < l->groups_count; g++)
        if (l->window[g])
            bytes += (uint64_t)slots * budget_pages(l, g, tokens, rows_max) * l->page_size[g];
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

/* The longest context whose pages fit beside one sequence's windows. */
static uint32_t budget_context(const struct budget_in *in, uint64_t spend, uint32_t rows_max)
{
    const struct kv_layout *l = in->layout;
    uint64_t low = 0, high = budget_pages_of(in->n_ctx);
    while (low < high) { /* in pages; the need rises with the context */
        uint64_t mid = (low + high + 1) / 2, tokens = mid * KV_PAGE_TOKENS, need = 0;
        for (uint32_t g = 0; g < l->groups_count; g++)
            need += (uint64_t)budget_pages(l, g, tokens, rows_max) * l->page_size[g];
        if (need <= spend)
            low = mid;
        else
            high = mid - 1;
    }
    return (uint32_t)base_min(low * KV_PAGE_TOKENS, in->n_ctx);
}

/* As many sequences as find room for a page of each kind beside one whole conversation. */
static uint32_t budget_slots(const struct budget_in *in, const struct budget *b, uint64_t spend)
{
    const struct kv_layout *l = in->layout;
    uint64_t first = 0;
    for (uint32_t g = 0; g < l->groups_count; g++)
        first += (uint64_t)budget_pages(l, g, b->context_max, b->rows_max) * l->page_size[g];
    uint32_t slots = 1;
    while (slots < BUDGET_SLOTS_AUTO) {
        uint64_t more = budget_window_bytes(l, slots, b->context_max, b->rows_max) +
                        (uint64_t)slots * 8 * KV_PAGE_TOKENS * budget_token_size(l);
        if (first + more > spend)
            break;
        slots++;
    }
    return slots;
}

bool budget_make(const struct budget_in *in, struct budget *out, struct err *e)
{
    const struct kv_layout *l = in->layout;
    if (!budget_check(in, e))
        return false;
    uint64_t spend = budget_spendable(in), need = 0;
    *out = (struct budget){.batch = in->batch ? in->batch : BUDGET_BATCH_AUTO};
    uint32_t slots_most = in->slots ? in->slots : BUDGET_SLOTS_AUTO;
    out->rows_max = (uint32_t)base_max(out->batch, slots_most);
    out->context_max = in->context ? in->context : budget_context(in, spend, out->rows_max);
    uint32_t least = in->context ? in->context : KV_PAGE_TOKENS;
    for (uint32_t g = 0; g < l->groups_count; g++)
        need += (uint64_t)budget_pages(l, g, base_max(out->context_max, least), out->rows_max) *
                l->page_size[g];
    if (need > spend || out->context_max < 2)
        return budget_too_small(in, spend, need, (uint32_t)base_max(out->context_max, least), e);
    out->slots = in->slots ? in->slots : budget_slots(in, out, spend);
    uint64_t windows = budget_window_bytes(l, out->slots, out->context_max, out->rows_max);
    uint64_t token_size = budget_token_size(l), rest = spend > windows ? spend - windows : 0;
    for (uint32_t g = 0; g < l->groups_count; g++) {
        uint64_t pages = (uint64_t)budget_pages(l, g, out->context_max, out->rows_max);
        if (l->window[g])
            pages *= out->slots;
        else if (token_size)
            pages = base_max(pages, rest / (token_size * KV_PAGE_TOKENS));
        out->pages[g] = (uint32_t)base_min(pages, UINT32_MAX / 2);
        out->pages_max[g] = budget_pages_of(out->context_max);
        out->pool_bytes += (uint64_t)out->pages[g] * l->page_size[g];
    }
    return true;
}
