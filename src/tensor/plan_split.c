#include "tensor/plan.h"

/* A plan in two. Both halves keep the numbers of values and weights; each finds lifetimes and slots
 * for its own ops, so neither has scratch for the other's values. */

#define PLAN_SPLIT_NOT_WRITTEN UINT32_MAX

/* The first op that reads a weight of the layer. */
static uint32_t plan_split_border(const struct plan *p, uint32_t layer)
{
    for (uint32_t i = 0; i < p->ops_count; i++)
        for (uint32_t k = 0; k < OP_WEIGHT_MAX; k++)
            if (p->ops[i].weight[k] != TENSOR_NONE &&
                p->weights[p->ops[i].weight[k]].layer == layer)
                return i;
    return p->ops_count;
}

static bool plan_split_check(const struct plan *p, uint32_t layer, uint32_t border, struct err *e)
{
    if (border == 0 || border == p->ops_count)
        return err_set(e, ERR_INTERNAL, "plan: it cannot be cut before layer %u", layer);
    for (uint32_t i = 0; i < p->ops_count; i++)
        for (uint32_t k = 0; k < OP_WEIGHT_MAX; k++) {
            uint16_t w = p->ops[i].weight[k];
            if (w == TENSOR_NONE || p->weights[w].layer == TENSOR_NONE)
                continue;
            if ((p->weights[w].layer >= layer) != (i >= border))
                return err_set(e, ERR_UNSUPPORTED,
                               "plan: '%s' is read on the wrong side of layer %u",
                               p->weights[w].name.p, layer);
        }
    return true;
}

/* Ops [first, end) of p, with values of its own. */
static bool plan_split_take(const struct plan *p, uint32_t first, uint32_t end, struct plan *to,
                            struct err *e)
{
    to->ops = p->ops + first;
    to->ops_count = end - first;
    to->weights = p->weights;
    to->weights_count = p->weights_count;
    to->values_count = p->values_count;
    to->values = ARENA_ARRAY(to->arena, struct plan_value, p->values_count);
    if (!to->values)
        return err_set(e, ERR_LIMIT, "plan: more than %zu bytes of memory", to->arena->bytes_max);
    for (uint32_t i = 0; i < p->values_count; i++) {
        to->values[i] = p->values[i];
        to->values[i].op_first = PLAN_SPLIT_NOT_WRITTEN;
        to->values[i].slot = TENSOR_NONE;
    }
    for (uint32_t i = 0; i < to->ops_count; i++)
        for (uint32_t k = 0; k < op_table[to->ops[i].kind].outs; k++)
            to->values[to->ops[i].out[k]].op_first = i;
    return true;
}

bool plan_split(const struct plan *p, uint32_t layer, struct plan *lower, struct plan *upper,
                struct err *e)
{
    must(p->is_finished);
    uint32_t border = plan_split_border(p, layer);
    if (!plan_split_check(p, layer, border, e) || !plan_split_take(p, 0, border, lower, e) ||
        !plan_split_take(p, border, p->ops_count, upper, e))
        return false;
    for (uint32_t i = 0; i < p->values_count; i++) {
        const struct plan_value *v = &p->values[i];
        if (v->op_first >= border || v->op_last < border)
            continue;
        if (v->rows != PLAN_ROWS_N || lower->leave_count == PLAN_BORDER_MAX)
            return err_set(e, ERR_UNSUPPORTED,
                           "plan: v%u crosses the border before layer %u: at most %u values of a "
                           "row per token can", i, layer, PLAN_BORDER_MAX);
        lower->leave[lower->leave_count++] = (uint16_t)i;
        upper->enter[upper->enter_count++] = (uint16_t)i;
    }
    upper->logits = p->logits;
    upper->pooled = p->pooled;
    upper->vocab = p->vocab;
    return plan_finish(lower, e) && plan_finish(upper, e);
}
