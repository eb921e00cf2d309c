#include "tensor/backend.h"

#include <string.h>

extern const struct backend cpu_backend;

const struct backend *const backend_table[] = {
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
