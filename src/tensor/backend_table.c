#include "tensor/backend.h"

#include <string.h>

extern const struct backend cpu_backend, cuda_backend;

const struct backend *const backend_table[] = {
    &cuda_backend,
    &cpu_backend,
    NULL,
};

const struct backend *backend_table_find(str name)
{
    for (size_t i = 0; backend_table[i]; i++)
        if (str_eq_z(name, backend_table[i]->name))
            return backend_table[i];
    return NULL;
}

static bool backend_table_can_run(const struct backend *b, struct err *e)
{
    return !b->probe || b->probe(e);
}

const struct backend *backend_table_pick(str name, struct err *e)
{
    struct err ignored;
    if (name.len && !str_eq_z(name, "auto")) {
        const struct backend *b = backend_table_find(name);
        if (!b) {
            err_set(e, ERR_CONFIG, "backend: auto, cpu or cuda expected, got \"%.*s\"",
                    STR_ARG(str_sub(name, 0, 40)));
            return NULL;
        }
        return backend_table_can_run(b, e) ? b : NULL;
    }
    for (size_t i = 0; backend_table[i]; i++)
        if (backend_table_can_run(backend_table[i], &ignored))
            return backend_table[i];
    err_set(e, ERR_UNSUPPORTED, "no backend of this binary runs on this machine");
    return NULL;
}
