#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/timex.h>

#include "base/chrono.h"
#include "base/json.h"
#include "base/machine.h"
#include "cli/config_legs.h"
#include "cli/daemon.h"
#include "cli/doctor.h"
#include "cli/serve_settings.h"
#include "cli/sizing.h"
#include "wire/http_server.h"
#include "wire/tls.h"

/* What an operator would look at, one line each. A check that cannot be made says so; nothing here
 * changes anything, and nothing asked of an upstream is billed. */

#define CMD_DOCTOR_WARNINGS 3 /* exit code */
#define CMD_DOCTOR_RAM_MIN ((uint64_t)2 << 30)
#define CMD_DOCTOR_DISK_MIN ((uint64_t)5 << 30)
#define CMD_DOCTOR_CHECK_MS 5000
#define CMD_DOCTOR_YEAR_2025_S ((int64_t)1735689600)
#define CMD_DOCTOR_OUT_MAX ((size_t)1 << 20)

struct cmd_doctor {
    struct cmd_context *c;
    struct buf out;
    struct json_writer w;
    bool is_json;
    uint32_t counts[3];
};

static void cmd_doctor_add(void *ctx, enum doctor_state s, str name, str detail)
{
    static const char *const words[] = {"ok", "warn", "fail"};
    struct cmd_doctor *d = ctx;
    d->counts[s]++;
    if (d->is_json) {
        json_open_object(&d->w);
        json_key_z(&d->w, "name");
        json_put_text(&d->w, name);
        json_key_z(&d->w, "state");
        json_put_text_z(&d->w, words[s]);
        json_key_z(&d->w, "detail");
        json_put_text(&d->w, detail);
        json_close_object(&d->w);
        return;
    }
    buf_clear(&d->out);
    buf_printf(&d->out, "%-4s  ", words[s]);
    buf_add_printable(&d->out, name);
    buf_add_z(&d->out, "  ");
    buf_add_printable(&d->out, detail);
    printf("%s\n", d->out.p);
    fflush(stdout);
}

static void cmd_doctor_say(struct cmd_doctor *d, enum doctor_state s, const char *name, str detail)
{
    cmd_doctor_add(d, s, str_of(name), detail);
}

static void cmd_doctor_size(struct buf *out, uint64_t bytes)
{
    buf_printf(out, "%.1f GB", (double)bytes / (double)((uint64_t)1 << 30));
}

/* --- configuration ------------------------------------------------------------------------- */

static void cmd_doctor_part(struct cmd_doctor *d, const char *name, bool is_good,
                            const struct err *e, str detail)
{
    cmd_doctor_say(d, is_good ? DOCTOR_STATE_OK : DOCTOR_STATE_FAIL, name,
                   is_good ? detail : str_of(e->text));
}

/* Each part by the reader that serve has for it, key files and their modes included. */
static bool cmd_doctor_config(struct cmd_doctor *d, struct legs_config *legs)
{
    struct cmd_context *c = d->c;
    struct server_options o = {.version = STR("{}")};
    struct models_leg_next models = {.aliases_count = 0};
    struct tls *tls = NULL;
    struct err e = {0};
    str line, problems = c->config_problems;
    str file = config_file(c->config);
    if (problems.len) {
        while (str_split(&problems, '\n', &line))
            if (line.len)
                cmd_doctor_say(d, DOCTOR_STATE_FAIL, "config", line);
        return false;
    }
    cmd_doctor_say(d, DOCTOR_STATE_OK, "config",
                   file.len ? file : STR("no file: every setting has its default"));
    bool has_keys = serve_settings_server(&o, c, c->config, c->arena, &e);
    cmd_doctor_part(d, "keys", has_keys, &e,
                    arena_printf(c->arena, "%u keys, files readable by their owner only",
                                 o.access.keys_count));
    e = (struct err){0};
    bool has_models = serve_settings_models(&models, c->config, c->arena, &e);
    cmd_doctor_part(d, "models", has_models, &e, STR("aliases and settings of models"));
    bool has_tls = serve_settings_tls(&tls, c->config, &e);
    cmd_doctor_part(d, "tls", has_tls, &e, tls ? STR("certificate and key fit") : STR("not used"));
    tls_close(tls);
    e = (struct err){0};
    bool has_legs = config_legs_load(legs, c->config, c->arena, &e);
    cmd_doctor_part(d, "legs", has_legs, &e,
                    arena_printf(c->arena, "%u legs, %u routes", legs->rows_count,
                                 legs->routes_count));
    return has_keys && has_models && has_tls && has_legs;
}

/* --- the machine --------------------------------------------------------------------------- */

static void cmd_doctor_memory(struct cmd_doctor *d, const struct machine *m)
{
    uint64_t left = machine_ram_free(m);
    struct buf b;
    buf_init(&b, 1000);
    cmd_doctor_size(&b, left);
    buf_add_z(&b, " free of ");
    cmd_doctor_size(&b, m->ram_total);
    if (m->ram_limit) {
        buf_add_z(&b, ", cgroup limit ");
        cmd_doctor_size(&b, m->ram_limit);
    } else {
        buf_add_z(&b, ", no cgroup limit");
    }
    cmd_doctor_say(d, left && left < CMD_DOCTOR_RAM_MIN ? DOCTOR_STATE_WARN : DOCTOR_STATE_OK,
                   "memory", left ? buf_view(&b) : STR("unknown"));
    buf_deinit(&b);
}

static void cmd_doctor_machine(struct cmd_doctor *d)
{
    struct sizing s = {.vram = 0};
    struct arena *a = d->c->arena;
    sizing_read(&s);
    bool is_slow = s.machine.level == CPU_LEVEL_REF;
    cmd_doctor_say(d, is_slow ? DOCTOR_STATE_WARN : DOCTOR_STATE_OK, "cpu",
                   arena_printf(a, "%s, %u usable, level %s%s",
                                s.machine.model[0] ? s.machine.model : "unknown", s.machine.cpus,
                                machine_level_name(s.machine.level),
                                is_slow ? ": without AVX2 every token is slow" : ""));
    if (s.has_gpu)
        cmd_doctor_say(d, DOCTOR_STATE_OK, "gpu",
                       arena_printf(a, "%.1f GB free",
                                    (double)s.gpu.memory_free / (double)((uint64_t)1 << 30)));
    else
        cmd_doctor_say(d, DOCTOR_STATE_OK, "gpu",
                       s.no_gpu.text[0] ? arena_printf(a, "none: %s", s.no_gpu.text)
                                        : STR("none"));
    cmd_doctor_memory(d, &s.machine);
}

/* The nearest directory that exists: the store may still have to be made. */
static void cmd_doctor_disk(struct cmd_doctor *d, str store)
{
    struct statvfs fs = {.f_bsize = 0};
    struct buf b;
    char path[4096];
    snprintf(path, sizeof path, "%.*s", STR_ARG(store));
    while (statvfs(path, &fs) != 0 && strrchr(path, '/') && strrchr(path, '/') != path)
        *strrchr(path, '/') = 0;
    uint64_t left = (uint64_t)fs.f_bavail * fs.f_frsize;
    buf_init(&b, 8192);
    cmd_doctor_size(&b, left);
    buf_printf(&b, " free at %s", path);
    cmd_doctor_say(d, fs.f_bsize == 0                  ? DOCTOR_STATE_FAIL
                      : left < CMD_DOCTOR_DISK_MIN     ? DOCTOR_STATE_WARN
                      : fs.f_flag & ST_RDONLY          ? DOCTOR_STATE_WARN
                                                       : DOCTOR_STATE_OK,
                   "disk", buf_view(&b));
    buf_deinit(&b);
}

static void cmd_doctor_clock(struct cmd_doctor *d)
{
    struct timex t = {.modes = 0};
    int state = adjtimex(&t);
    bool is_old = chrono_unix_ms(&chrono_real) / 1000 < CMD_DOCTOR_YEAR_2025_S;
    cmd_doctor_say(d, is_old ? DOCTOR_STATE_FAIL : DOCTOR_STATE_OK, "clock",
                   is_old                ? STR("before 2025: certificates will not be valid")
                   : state < 0           ? STR("the kernel does not say whether it is kept")
                   : state == TIME_ERROR ? STR("not kept by a time service, as the kernel sees it")
                                         : STR("kept by a time service"));
}

static void cmd_doctor_port(struct cmd_doctor *d)
{
    struct daemon at;
    struct http_server *probe = NULL;
    struct loop *l = NULL;
    struct err e;
    if (!daemon_find(d->c, &at, &e)) {
        cmd_doctor_say(d, DOCTOR_STATE_FAIL, "port", str_of(e.text));
        return;
    }
    if (daemon_is_there(&at)) {
        cmd_doctor_say(d, DOCTOR_STATE_OK, "port",
                       arena_printf(d->c->arena, "%.*s: a shoal server answers",
                                    STR_ARG(at.address)));
        return;
    }
    bool ok = loop_open(&l, &e);
    struct http_server_options o = {.base = ok ? loop_base(l) : NULL, .connections_max = 1};
    ok = ok && http_server_open(&probe, &o, &e) && http_server_listen(probe, at.address, &e);
    cmd_doctor_say(d, ok ? DOCTOR_STATE_OK : DOCTOR_STATE_FAIL, "port",
                   ok ? arena_printf(d->c->arena, "%.*s is free", STR_ARG(at.address))
                      : str_of(e.text));
    if (probe)
        http_server_close(probe);
    loop_close(l);
}

/* --- models -------------------------------------------------------------------------------- */

static void cmd_doctor_store(struct cmd_doctor *d)
{
    struct library *l;
    struct err e;
    uint32_t broken = 0, partial = 0;
    if (!cmd_models_open(d->c, false, true, &l, &e)) {
        cmd_doctor_say(d, DOCTOR_STATE_FAIL, "store", str_of(e.text));
        return;
    }
    for (uint32_t i = 0; i < library_count(l); i++) {
        const struct library_entry *m = library_at(l, i);
        partial += m->is_partial;
        if (!m->broken.len || m->is_partial)
            continue;
        broken++;
        cmd_doctor_say(d, DOCTOR_STATE_WARN, "model",
                       arena_printf(d->c->arena, "%.*s: %.*s", STR_ARG(m->name),
                                    STR_ARG(m->broken)));
    }
    for (uint32_t i = 0; i < library_note_count(l); i++)
        cmd_doctor_say(d, DOCTOR_STATE_WARN, "store", library_note(l, i));
    cmd_doctor_say(d, DOCTOR_STATE_OK, "store",
                   arena_printf(d->c->arena, "%u models opened, %u broken, %u unfinished downloads",
                                library_count(l) - partial, broken, partial));
    library_close(l);
}

/* --- upstreams ----------------------------------------------------------------------------- */

struct cmd_doctor_asked {
    struct remote_leg_check check;
    char text[300];
    bool is_over;
};

static void cmd_doctor_on_check(void *ctx, const struct remote_leg_check *k)
{
    struct cmd_doctor_asked *a = ctx;
    a->check = *k;
    a->is_over = true;
    snprintf(a->text, sizeof a->text, "%.*s", STR_ARG(k->text));
}

static bool cmd_doctor_ask(struct cmd_doctor *d, const struct legs_row *r, struct loop *l,
                           struct http_client *client, struct err *e)
{
    struct cmd_doctor_asked a = {.is_over = false};
    struct remote_leg *leg;
    const struct remote_leg_options o = {
        .loop = l, .client = client, .name = r->name, .dialect = r->dialect, .url = r->url,
        .ca_file = r->ca_file, .auth = r->auth, .key = r->key,
        .upstream = {.model = STR(""), .caps = r->caps}, .requests_max = 1,
        .health_path = r->health_path, .check_ms = 1};
    if (!remote_leg_open(&leg, &o, e))
        return false;
    int64_t end = loop_ms() + CMD_DOCTOR_CHECK_MS;
    if (remote_leg_ask(leg, cmd_doctor_on_check, &a))
        while (!a.is_over && loop_ms() < end)
            loop_step(l, 50);
    remote_leg_close(leg);
    str name = arena_printf(d->c->arena, "leg %.*s", STR_ARG(r->name));
    bool is_fine = a.is_over && a.check.fault == API_FAULT_NONE;
    cmd_doctor_add(d, is_fine ? DOCTOR_STATE_OK
                      : a.check.fault == API_FAULT_AUTH ? DOCTOR_STATE_FAIL : DOCTOR_STATE_WARN,
                   name, is_fine ? arena_printf(d->c->arena, "answers in %lld ms",
                                                (long long)a.check.took_ms)
                         : a.is_over ? arena_copy(d->c->arena, str_of(a.text))
                                     : STR("no answer within 5 s"));
    return true;
}

static void cmd_doctor_upstreams(struct cmd_doctor *d, const struct legs_config *legs)
{
    struct loop *l = NULL;
    struct http_client *client = NULL;
    struct err e;
    bool ok = loop_open(&l, &e);
    for (uint32_t i = 0; ok && i < legs->rows_count; i++) {
        if (legs->rows[i].kind != LEG_KIND_UPSTREAM)
            continue;
        ok = (client || http_client_open(&client, l, 4, &e)) &&
             cmd_doctor_ask(d, &legs->rows[i], l, client, &e);
    }
    if (!ok)
        cmd_doctor_say(d, DOCTOR_STATE_FAIL, "upstreams", str_of(e.text));
    http_client_close(client);
    loop_close(l);
}

/* --- the command --------------------------------------------------------------------------- */

static bool cmd_doctor_checks(struct cmd_doctor *d, struct err *e)
{
    struct legs_config legs = {.rows_count = 0};
    const struct doctor_report report = {cmd_doctor_add, d};
    struct library_options store;
    bool is_sound = cmd_doctor_config(d, &legs);
    if (cmd_bool(d->c, "config-only"))
        return true;
    cmd_doctor_machine(d);
    cmd_models_options(d->c, &store);
    cmd_doctor_disk(d, store.own);
    cmd_doctor_clock(d);
    cmd_doctor_port(d);
    cmd_doctor_store(d);
    if (is_sound && cmd_bool(d->c, "online"))
        cmd_doctor_upstreams(d, &legs);
    if (doctor_replay(d->c, cmd_text(d->c, "replay"), &report, e))
        return true;
    if (is_sound)
        return false;
    cmd_doctor_say(d, DOCTOR_STATE_FAIL, "clients", str_of(e->text));
    return true;
}

static bool cmd_doctor_run(struct cmd_context *c, struct err *e)
{
    struct cmd_doctor d = {.c = c, .is_json = cmd_bool(c, "json")};
    static const char *const words[] = {"ok", "warn", "fail"};
    buf_init(&d.out, CMD_DOCTOR_OUT_MAX);
    d.w = json_writer(&d.out);
    if (d.is_json) {
        json_open_object(&d.w);
        json_key_z(&d.w, "checks");
        json_open_array(&d.w);
    }
    bool ok = cmd_doctor_checks(&d, e);
    if (ok && d.is_json) {
        json_close_array(&d.w);
        for (int i = 0; i < 3; i++) {
            json_key_z(&d.w, words[i]);
            json_put_u64(&d.w, d.counts[i]);
        }
        json_close_object(&d.w);
        printf("%s\n", d.out.p);
    }
    buf_deinit(&d.out);
    c->exit_code = d.counts[DOCTOR_STATE_FAIL]   ? CMD_EXIT_ERROR
                   : d.counts[DOCTOR_STATE_WARN] ? CMD_DOCTOR_WARNINGS
                                                 : CMD_EXIT_DONE;
    return ok;
}

static const struct cmd_flag cmd_doctor_flags[] = {
    {.name = "replay", .value = "DIR", .spec = {.type = CONFIG_TYPE_PATH},
     .help = "recordings of your own: files {\"path\",\"body\"} ending in .json"},
    {.name = "online", .spec = {.type = CONFIG_TYPE_BOOL}, .standard = "true",
     .help = "ask the upstreams' free endpoints"},
    {.name = "config-only", .spec = {.type = CONFIG_TYPE_BOOL}, .standard = "false",
     .help = "only the configuration and its key files"},
};

const struct cmd cmd_doctor = {
    .name = "doctor",
    .summary = "Is everything as it should be? Configuration, machine, models, upstreams, clients",
    .text = "One line per check: ok, warn or fail. Then recorded requests of Claude Code, Codex\n"
            "and the libraries of OpenAI and Ollama are answered by an endpoint in this process,\n"
            "and each reply is held against its protocol. Exit code 0; 1: something fails; 3:\n"
            "warnings.",
    .flags = cmd_doctor_flags,
    .flags_count = countof(cmd_doctor_flags),
    .has_json = true,
    .takes_server = true,
    .judges_config = true,
    .run = cmd_doctor_run,
};
