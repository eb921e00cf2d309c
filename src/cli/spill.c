#include "cli/spill.h"

#include <sys/statvfs.h>

#include "base/file.h"

#define SPILL_STANDARD "~/.shoal/cache"
#define SPILL_SHARE 10u

static bool spill_is_word(const struct config *c)
{
    return config_is(c, "cache.spill", "auto") || config_is(c, "cache.spill", "off");
}

str spill_dir(const struct config *c, struct arena *a)
{
    return spill_is_word(c) ? file_expand_home(a, STR(SPILL_STANDARD), config_home(a))
                            : config_text(c, "cache.spill");
}

/* Of the disk that dir is or will be on: of the nearest directory above that is there. */
static uint64_t spill_free_bytes(str dir, struct arena *a)
{
    while (dir.len) {
        struct statvfs v;
        str z = arena_copy(a, dir);
        if (z.p && statvfs(z.p, &v) == 0)
            return (uint64_t)v.f_bavail * v.f_frsize;
        str up = file_dir_name(dir);
        if (!z.p || up.len == dir.len)
            break;
        dir = up;
    }
    return 0;
}

void spill_load(const struct config *c, struct arena *a, struct api_load *l)
{
    bool is_auto = config_is(c, "cache.spill", "auto");
    bool is_sized = !config_is(c, "cache.spill_size", "auto");
    l->ram_bytes = config_is(c, "cache.ram", "auto") ? 0 : (uint64_t)config_number(c, "cache.ram");
    l->spill = STR("");
    if (config_is(c, "cache.spill", "off"))
        return;
    str dir = spill_dir(c, a);
    if (!dir.len) /* auto, without a home directory */
        return;
    uint64_t free_bytes = spill_free_bytes(dir, a);
    if (is_auto && free_bytes < SPILL_FREE_MIN)
        return;
    l->spill = dir;
    l->spill_floor = (uint64_t)config_number(c, "cache.spill_floor");
    l->spill_bytes = is_sized ? (uint64_t)config_number(c, "cache.spill_size")
                              : base_min(free_bytes / SPILL_SHARE, SPILL_SIZE_MAX);
}
