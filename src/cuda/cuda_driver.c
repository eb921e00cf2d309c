#include "cuda/cuda_driver.h"

#include <dlfcn.h>

#define CUDA_ERROR_OUT_OF_MEMORY 2

/* POSIX lets a data pointer from dlsym be called; ISO C has no cast for it. */
static bool cuda_driver_find(void *lib, const char *symbol, void *function, struct err *e)
{
    void *found = dlsym(lib, symbol);
    if (!found)
        return err_set(e, ERR_DEVICE, "cuda: the driver library has no %s: it is too old", symbol);
    *(void **)function = found;
    return true;
}

static bool cuda_driver_load(struct cuda_driver *d, struct err *e)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return err_set(e, ERR_DEVICE, "cuda: no driver: %s", dlerror());
#define X(name, symbol, args)                                                                      \
    if (!cuda_driver_find(lib, #symbol, &d->name, e))                                              \
        return false;
    CUDA_DRIVER_CALLS(X)
#undef X
    int count = 0;
    if (!cuda_driver_check(d, d->init(0), "start", e) ||
        !cuda_driver_check(d, d->device_count(&count), "count devices", e))
        return false;
    return count > 0 || err_set(e, ERR_DEVICE, "cuda: the driver finds no device");
}

const struct cuda_driver *cuda_driver_open(struct err *e)
{
    static struct cuda_driver driver;
    static bool is_loaded;
    if (!is_loaded)
        is_loaded = cuda_driver_load(&driver, e);
    return is_loaded ? &driver : NULL;
}

bool cuda_driver_check(const struct cuda_driver *d, cuda_result r, const char *what, struct err *e)
{
    if (r == 0)
        return true;
    const char *name = NULL, *text = NULL;
    d->error_name(r, &name);
    d->error_text(r, &text);
    return err_set(e, r == CUDA_ERROR_OUT_OF_MEMORY ? ERR_MEMORY : ERR_DEVICE, "cuda: %s: %s, %s",
                   what, name ? name : "unknown error", text ? text : "no text");
}
