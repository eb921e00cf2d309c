#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

static void (*base_crash_hook)(void);

void base_set_crash_hook(void (*hook)(void)) { base_crash_hook = hook; }

void base_must_failed(const char *file, int line, const char *what)
{
    fprintf(stderr, "shoal: %s:%d: must(%s) failed\n", file, line, what);
    void (*hook)(void) = base_crash_hook;
    base_crash_hook = NULL; /* a hook that fails itself must not loop */
    if (hook)
        hook();
    abort();
}
