#include "cli/model_plan.h"

/* As engine_open chooses. */
static enum kv_type model_plan_kv(const struct config *c)
{
    bool is_float = config_is(c, "engine.activations", "float");
    return config_is(c, "engine.kv", "int8") ? KV_TYPE_INT8
                                             : backend_kv_type(is_float ? ACT_F32 : ACT_AUTO);
}

bool model_plan_open(struct model_plan **out, const char *path, const struct config *config,
                     struct arena *a, struct err *e)
{
    struct model_plan *m = ARENA_NEW(a, struct model_plan);
    if (!m)
        return err_set(e, ERR_MEMORY, "no memory for the plan");
    m->backend = backend_table_pick(config_text(config, "engine.backend"), e);
    if (!m->backend || !model_file_open(&m->file, path, e))
        return false;
    plan_init(&m->plan, a, PLAN_KIND_MAIN);
    bool ok = arch_read(&m->hp, m->file, e) &&
              m->hp.arch->build(&m->plan, PLAN_KIND_MAIN, &m->hp, e) &&
              plan_expand(&m->plan, m->backend->ops, e) && plan_finish(&m->plan, e) &&
              plan_kv_layout(&m->plan, model_plan_kv(config), &m->layout, e) &&
              weights_bind(&m->weights, &m->plan, m->file, m->hp.arch->ignored, a, e);
    if (!ok) {
        model_plan_close(m);
        return false;
    }
    *out = m;
    return true;
}

void model_plan_close(struct model_plan *m)
{
    if (m)
        model_file_close(m->file);
}
