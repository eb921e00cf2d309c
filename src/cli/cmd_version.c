#include <stdio.h>

#include "base/json.h"
#include "base/machine.h"
#include "base/version.h"
#include "cli/cmd.h"
#include "cuda/cuda_kernels.h"

#define VERSION_OUT_MAX ((size_t)16 * 1024)

/* Version of NVIDIA's driver API, as 1000 * major + 10 * minor; 0: no driver or no device. */
static int cmd_version_driver(void)
{
    struct err ignored;
    int version = 0;
    const struct cuda_driver *d = cuda_fatbin_archs[0] ? cuda_driver_open(&ignored) : NULL;
    return d && d->version(&version) == 0 ? version : 0;
}

static void cmd_version_add_cuda(struct buf *out)
{
    int driver = cmd_version_driver();
    if (!cuda_fatbin_archs[0]) {
        buf_add_z(out, "not built");
        return;
    }
    if (driver)
        buf_printf(out, "driver %d.%d", driver / 1000, driver % 1000 / 10);
    else
        buf_add_z(out, "not found");
    buf_printf(out, " (built: %s)", cuda_fatbin_archs);
}

/* null: not built, or no driver. */
static void cmd_version_put_cuda(struct json_writer *w)
{
    int driver = cmd_version_driver();
    if (!driver) {
        json_put_null(w);
        return;
    }
    char text[32];
    snprintf(text, sizeof text, "%d.%d", driver / 1000, driver % 1000 / 10);
    json_open_object(w);
    json_key_z(w, "driver");
    json_put_text_z(w, text);
    json_key_z(w, "archs");
    json_open_array(w);
    for (str rest = str_of(cuda_fatbin_archs), arch; str_split(&rest, ' ', &arch);)
        json_put_text(w, arch);
    json_close_array(w);
    json_close_object(w);
}

static void cmd_version_add_text(struct buf *out, enum cpu_level level, bool has_bf16)
{
    buf_printf(out, "shoal %s (git %s, %s)\n", VERSION_TEXT, VERSION_GIT, VERSION_DATE);
    buf_printf(out, "isa        %s%s (built:", machine_level_name(level), has_bf16 ? " bf16" : "");
    for (unsigned i = 0; i < CPU_LEVEL_COUNT; i++)
        buf_printf(out, " %s", machine_level_name((enum cpu_level)i));
    buf_add_z(out, ")\ncuda       ");
    cmd_version_add_cuda(out);
    buf_add_z(out, "\nlibraries  " VERSION_LIBRARIES "\n");
}

/* "libevent 2.1.12-stable, pcre2 10.42" as members. */
static void cmd_version_put_libraries(struct json_writer *w)
{
    str rest = STR(VERSION_LIBRARIES), one, name;
    json_open_object(w);
    while (str_split(&rest, ',', &one)) {
        one = str_trim(one);
        if (str_split(&one, ' ', &name)) {
            json_key(w, name);
            json_put_text(w, one);
        }
    }
    json_close_object(w);
}

static void cmd_version_add_json(struct buf *out, enum cpu_level level, bool has_bf16)
{
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    json_key_z(&w, "version");
    json_put_text_z(&w, VERSION_TEXT);
    json_key_z(&w, "git");
    json_put_text_z(&w, VERSION_GIT);
    json_key_z(&w, "date");
    json_put_text_z(&w, VERSION_DATE);
    json_key_z(&w, "isa");
    json_put_text_z(&w, machine_level_name(level));
    json_key_z(&w, "bf16");
    json_put_bool(&w, has_bf16);
    json_key_z(&w, "isa_built");
    json_open_array(&w);
    for (unsigned i = 0; i < CPU_LEVEL_COUNT; i++)
        json_put_text_z(&w, machine_level_name((enum cpu_level)i));
    json_close_array(&w);
    json_key_z(&w, "cuda");
    cmd_version_put_cuda(&w);
    json_key_z(&w, "libraries");
    cmd_version_put_libraries(&w);
    json_close_object(&w);
    buf_add_byte(out, '\n');
}

void cmd_version_put(struct buf *out)
{
    bool has_bf16;
    enum cpu_level level = machine_level(&has_bf16);
    cmd_version_add_json(out, level, has_bf16);
}

static bool cmd_version_run(struct cmd_context *c, struct err *e)
{
    struct buf out;
    bool has_bf16, is_short = cmd_bool(c, "short"), as_json = cmd_bool(c, "json");
    if (is_short && as_json)
        return err_set(e, ERR_USAGE, "version: -short and -json exclude each other");
    buf_init(&out, VERSION_OUT_MAX);
    enum cpu_level level = machine_level(&has_bf16);
    if (is_short)
        buf_add_z(&out, VERSION_TEXT "\n");
    else if (as_json)
        cmd_version_add_json(&out, level, has_bf16);
    else
        cmd_version_add_text(&out, level, has_bf16);
    fwrite(out.p, 1, out.len, stdout);
    buf_deinit(&out);
    return true;
}

static const struct cmd_flag cmd_version_flags[] = {
    {.name = "short",
     .spec = {.type = CONFIG_TYPE_BOOL},
     .standard = "false",
     .help = "the version number alone"},
};

const struct cmd cmd_version = {
    .name = "version",
    .summary = "Which build this is and what it uses of this machine",
    .flags = cmd_version_flags,
    .flags_count = countof(cmd_version_flags),
    .has_json = true,
    .run = cmd_version_run,
};
