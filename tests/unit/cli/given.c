#include "unit/cli/given.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

struct given given;

int given_begin(void **state)
{
    (void)state;
    arena_init(&given.arena, 16u << 20);
    buf_init(&given.problems, 1u << 20);
    setenv("HOME", "/home/of/test", 1);
    unsetenv("SHOAL_CONFIG");
    return 0;
}

int given_end(void **state)
{
    (void)state;
    arena_deinit(&given.arena);
    buf_deinit(&given.problems);
    return 0;
}

struct config *given_config(const char *yaml)
{
    struct config *c = NULL;
    struct err e = {0};
    buf_clear(&given.problems);
    if (!config_load_text(&c, "config.yaml", str_of(yaml), &given.arena,
                          &given.problems, &e))
        fail_msg("%s", given.problems.p);
    return c;
}
