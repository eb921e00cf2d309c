#include "cli/model_plan.h"

bool model_plan_open(struct model_plan **out, const char *path, str backend, struct arena *a,
                     struct err *e)
{
    struct model_plan *m = ARENA_NEW(a, struct model_plan);
    if (!m)
        return err_set(e, ERR_MEMORY, "no memory for the plan");
    m->backend = backend_table_pick(backend, e);
    if (!m->backend || !model_file_open(&m->file, path, e))
        return false;
    plan_init(&m->plan, a, PLAN_KIND_MAIN);
    bool ok = arch_read(&m->hp, m->file, e) &&
              m->hp.arch->build(&m->plan, PLAN_KIND_MAIN, &m->hp, e) &&
              plan_expand(&m->plan, m->backend->ops, e) && plan_finish(&m->plan, e) &&
              plan_kv_layout(&m->plan, KV_TYPE_F16, &m->layout, e) &&
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
