#include "base/json.h"
#include "cli/inspect.h"
#include "cli/model_plan.h"
#include "engine/budget.h"

static uint64_t inspect_plan_scratch(const struct model_plan *m)
{
    struct step_limits limits = {.rows_max = BUDGET_BATCH_AUTO, .seqs_max = 1, .outs_max = 1};
    return plan_scratch_size(&m->plan, &limits);
}

static void inspect_plan_add_shape(struct buf *out, const struct weight *w)
{
    if (w->mats > 1)
        buf_printf(out, "%u x ", w->mats);
    if (w->kind == WEIGHT_KIND_MATRIX)
        buf_printf(out, "%u x %u", w->rows, w->cols);
    else
        buf_printf(out, "%u", w->cols);
}

static void inspect_plan_add_text(struct buf *out, const struct model_plan *m)
{
    struct buf cell;
    buf_init(&cell, 256);
    buf_printf(out, "model    %s, %u layers, width %u, vocabulary %u, context %u\n",
               m->hp.arch->name, m->hp.n_layer, m->hp.n_embd, m->hp.n_vocab, m->hp.n_ctx);
    buf_printf(out, "plan     %u ops on %s, %u values in %u slots, scratch ", m->plan.ops_count,
               m->backend->name, m->plan.values_count, m->plan.slots_count);
    buf_add_size(out, inspect_plan_scratch(m));
    buf_printf(out, " at %u rows\nkv       ", BUDGET_BATCH_AUTO);
    buf_add_size(out, budget_token_size(&m->layout));
    buf_printf(out, " a token (%s), %u page groups", kv_type_name(m->layout.type),
               m->layout.groups_count);
    for (uint32_t g = 0; g < m->layout.groups_count; g++)
        if (m->layout.window[g])
            buf_printf(out, ", window %u", m->layout.window[g]);
    buf_add_z(out, "\nweights  ");
    buf_add_size(out, m->weights.bytes);
    buf_printf(out, " in %u\n\n", m->weights.count);
    plan_dump(&m->plan, out);
    buf_printf(out, "\n  %-36s %-8s %-20s %10s  %s\n", "WEIGHT", "TYPE", "SHAPE", "SIZE", "DEVICE");
    for (uint32_t i = 0; i < m->weights.count; i++) {
        const struct weight *w = &m->weights.items[i];
        buf_printf(out, "  %-36.*s %-8s ", STR_ARG(w->name), quant_table[w->type].name);
        buf_clear(&cell);
        inspect_plan_add_shape(&cell, w);
        buf_printf(out, "%-20s ", cell.p);
        buf_clear(&cell);
        buf_add_size(&cell, w->tensor->size);
        buf_printf(out, "%10s  %s\n", cell.p, m->backend->name);
    }
    buf_deinit(&cell);
}

static void inspect_plan_put_weights(struct json_writer *w, const struct model_plan *m)
{
    json_key_z(w, "weights");
    json_open_array(w);
    for (uint32_t i = 0; i < m->weights.count; i++) {
        const struct weight *t = &m->weights.items[i];
        json_open_object(w);
        json_key_z(w, "name");
        json_put_text(w, t->name);
        json_key_z(w, "type");
        json_put_text_z(w, quant_table[t->type].name);
        json_key_z(w, "mats");
        json_put_u64(w, t->mats);
        json_key_z(w, "rows");
        json_put_u64(w, t->rows);
        json_key_z(w, "cols");
        json_put_u64(w, t->cols);
        json_key_z(w, "size");
        json_put_u64(w, t->tensor->size);
        json_key_z(w, "device");
        json_put_text_z(w, m->backend->name);
        json_close_object(w);
    }
    json_close_array(w);
}

static void inspect_plan_put(struct buf *out, const struct model_plan *m)
{
    struct buf dump;
    struct json_writer w = json_writer(out);
    buf_init(&dump, INSPECT_OUT_MAX);
    plan_dump(&m->plan, &dump);
    json_open_object(&w);
    json_key_z(&w, "family");
    json_put_text_z(&w, m->hp.arch->name);
    json_key_z(&w, "layers");
    json_put_u64(&w, m->hp.n_layer);
    json_key_z(&w, "width");
    json_put_u64(&w, m->hp.n_embd);
    json_key_z(&w, "vocabulary");
    json_put_u64(&w, m->hp.n_vocab);
    json_key_z(&w, "context");
    json_put_u64(&w, m->hp.n_ctx);
    json_key_z(&w, "backend");
    json_put_text_z(&w, m->backend->name);
    json_key_z(&w, "scratch");
    json_put_u64(&w, inspect_plan_scratch(m));
    json_key_z(&w, "kv_per_token");
    json_put_u64(&w, budget_token_size(&m->layout));
    json_key_z(&w, "weight_bytes");
    json_put_u64(&w, m->weights.bytes);
    json_key_z(&w, "ops");
    json_open_array(&w);
    for (str rest = buf_view(&dump), line; str_split(&rest, '\n', &line);)
        json_put_text(&w, str_trim(line));
    json_close_array(&w);
    inspect_plan_put_weights(&w, m);
    json_close_object(&w);
    buf_add_byte(out, '\n');
    buf_deinit(&dump);
}

bool inspect_plan(struct inspect *in, struct err *e)
{
    struct model_plan *m;
    if (!model_plan_open(&m, in->model.path.p, in->c->config, in->c->arena, e))
        return false;
    if (in->as_json)
        inspect_plan_put(&in->out, m);
    else
        inspect_plan_add_text(&in->out, m);
    model_plan_close(m);
    return true;
}
