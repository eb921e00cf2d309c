/* Any bytes as a configuration file: values or problems, never both, and every problem is a line
 * that can be printed. */
#include <stdlib.h>

#include "cli/config.h"
#include "cli/config_keys.h"
#include "cli/config_legs.h"
#include "cli/config_models.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    struct buf problems;
    struct config *c;
    struct err e = {0};
    arena_init(&a, 8u << 20);
    buf_init(&problems, 1u << 20);
    bool ok = config_load_text(&c, "fuzz.yaml", str_view(data, size), &a, &problems, &e);
    if (ok != (problems.len == 0))
        abort();
    if (ok && config_number(c, "engine.ctx") < 0)
        abort();
    static const struct config_value no_files;
    struct config_keys keys;
    struct config_models models;
    uint32_t told = ok ? config_told(c) : 0;
    if (ok && !(config_keys_load(&keys, c, &no_files, &a, &e) &&
                config_models_load(&models, c, &a, &e)) && e.code == ERR_NONE)
        abort();
    if (ok && config_told(c) > told && e.code == ERR_NONE)
        abort();
    struct legs_config legs;
    bool is_routed = ok && config_legs_load(&legs, c, &a, &e);
    for (uint32_t i = 0; is_routed && i < legs.routes_count; i++)
        for (uint32_t k = 0; k < legs.routes[i].entries_count; k++)
            if (legs.routes[i].entries[k].leg >= legs.rows_count)
                abort();
    for (size_t i = 0; i < problems.len; i++)
        if ((unsigned char)problems.p[i] < 0x20 && problems.p[i] != '\n')
            abort();
    buf_deinit(&problems);
    arena_deinit(&a);
    return 0;
}
