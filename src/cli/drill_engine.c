#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/drill.h"
#include "cli/run_local.h"
#include "cli/tiny_model.h"
#include "route/residency.h"

#define DRILL_ENGINE_RESIDENT 16u /* two for each protocol's pair of cells, and some that go */
#define DRILL_ENGINE_KEEP_MS 30000
#define DRILL_ENGINE_PATH_MAX 128

bool drill_engine_open(struct drill_engine *d, struct loop *loop, const struct cmd_context *c,
                       struct err *e)
{
    static const char *const argv[] = {"shoal", "engine", NULL};
    struct library_options *library = ARENA_NEW(c->arena, struct library_options);
    struct models_leg_options o = {.loop = loop, .build_id = run_local_build_id(c->arena),
                                   .argv = argv, .library = library,
                                   .resident_max = DRILL_ENGINE_RESIDENT, .waiting_max = 64,
                                   .keep_alive_ms = DRILL_ENGINE_KEEP_MS,
                                   .engine_stall_ms = DRILL_ENGINE_STALL_MS,
                                   .load_stall_ms = 30000};
    if (!library)
        return err_set(e, ERR_MEMORY, "drill: no memory");
    snprintf(d->dir, sizeof d->dir, "/tmp/shoal_drill_XXXXXX");
    if (!mkdtemp(d->dir)) {
        d->dir[0] = 0;
        return err_set_errno(e, errno, "drill: a directory in /tmp");
    }
    snprintf(d->path, sizeof d->path, "%s/drill.gguf", d->dir);
    *library = (struct library_options){.own = str_of(d->dir), .own_only = true,
                                        .home = str_of(d->dir), .tag = "drill"};
    if (!run_local_load(c->config, &o.load, e) || !tiny_model_write(d->path, e))
        return false;
    o.load.backend = STR("cpu"); /* what is rehearsed is its end, not its speed */
    o.load.context = TINY_MODEL_CONTEXT;
    o.load.slots = 1;
    o.load.threads = 1;
    return models_leg_open(&d->models, &o, e);
}

static bool drill_engine_on_file(void *ctx, const struct file_entry *entry)
{
    (void)ctx;
    unlink(entry->path);
    return false;
}

void drill_engine_close(struct drill_engine *d)
{
    const struct file_walk walk = {.entries_max = 1000, .on_entry = drill_engine_on_file};
    struct err ignored;
    models_leg_close(d->models, 0);
    if (d->dir[0] && file_walk(d->dir, &walk, &ignored))
        rmdir(d->dir);
}

bool drill_engine_start(struct drill_engine *d, str name, struct err *e)
{
    char path[DRILL_ENGINE_PATH_MAX];
    snprintf(path, sizeof path, "%s/%.*s.gguf", d->dir, STR_ARG(name));
    if (link(d->path, path) != 0 && errno != EEXIST) /* one path is one model, by any name */
        return err_set_errno(e, errno, "drill: a link to its model");
    const struct library_entry entry = {.name = name, .path = str_of(path),
                                        .file_name = STR("drill.gguf"), .broken = STR(""),
                                        .projector = STR(""), .draft = STR(""),
                                        .params = STR(""), .system = STR("")};
    if (!models_leg_add(d->models, &entry, e))
        return false;
    models_leg_preload(d->models, name);
    return true;
}

bool drill_engine_is_ready(const struct drill_engine *d, str name)
{
    struct models_leg_resident rows[RESIDENCY_MODELS_MAX];
    size_t count = base_min(models_leg_residents(d->models, rows, countof(rows)), countof(rows));
    for (size_t i = 0; i < count; i++)
        if (str_eq(rows[i].name, name))
            return rows[i].health.state == API_HEALTH_READY;
    return false;
}

bool drill_engine_strike(const struct drill_engine *d, str name, int signal_number)
{
    int pid = models_leg_child(d->models, name);
    return pid > 0 && kill((pid_t)pid, signal_number) == 0;
}
