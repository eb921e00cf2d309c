#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/cmd.h"
#include "cli/model_plan.h"
#include "cli/sizing.h"
#include "store/hub_net.h"
#include "store/hub_pick.h"
#include "store/hub_ref.h"
#include "store/library_scan.h"

#define CAN_RUN_ARENA_MAX ((size_t)512 << 20)
#define CAN_RUN_OUT_MAX ((size_t)4 << 20)
#define CAN_RUN_FIRST ((uint64_t)1 << 20) /* of a header; with a large vocabulary more is read */
#define CAN_RUN_MOST ((uint64_t)64 << 20)
#define CAN_RUN_SHARDS_MAX 64u

enum can_run_answer { CAN_RUN_UNKNOWN, CAN_RUN_YES, CAN_RUN_NO };

struct can_run {
    struct cmd_context *c;
    struct arena arena;
    struct hub_net *net;
    struct hub_ref ref;
    struct hub_repo repo;
    struct hub_models models;
    struct sizing machine;
    char dir[64]; /* the headers, as sparse files of the true size; empty: none */
    struct model_plan *plan;
    enum can_run_answer answer;
    str architecture;
    struct err why; /* not supported, or not known */
    uint64_t beside; /* bytes that are no weights: cache of SIZING_TOKENS, scratch */
    const str *found; /* repositories with conversions */
    uint32_t found_count;
};

/* --- headers, by range --- */

static struct hub_net_query can_run_query(const struct can_run *r, str path, uint64_t size)
{
    return (struct hub_net_query){
        .kind = HUB_NET_FILE, .origin = r->ref.origin, .repo = r->ref.repo,
        .revision = r->repo.commit.len ? r->repo.commit : r->ref.revision, .path = path,
        .size = size, .size_max = CAN_RUN_MOST};
}

/* A file that has the true size and the true beginning: all that a reader of headers looks at. */
static bool can_run_fetch(struct can_run *r, const struct hub_file *f, uint64_t size, str base,
                          struct err *e)
{
    struct buf body;
    struct hub_net_query q = can_run_query(r, f->path, size);
    str path = arena_printf(&r->arena, "%s/%.*s", r->dir, STR_ARG(base));
    int fd = -1;
    buf_init(&body, CAN_RUN_MOST);
    bool ok = path.p && hub_net_ask(r->net, &q, &body, e);
    if (ok) {
        fd = open(path.p, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        ok = fd >= 0 && file_write_all(fd, buf_view(&body), e) &&
             ftruncate(fd, (off_t)f->size) == 0;
        if (!ok)
            err_set_errno(e, errno, "%.*s", STR_ARG(path));
    }
    if (fd >= 0)
        close(fd);
    buf_deinit(&body);
    return ok;
}

/* Headers of a model's shards: so many bytes of each. */
static bool can_run_fetch_all(struct can_run *r, const struct hub_model *m, uint64_t size,
                              str *first, struct err *e)
{
    for (uint32_t i = 0; i < m->shards; i++) {
        const struct hub_file *f = &r->repo.files[r->models.order[m->first + i]];
        str base;
        if (f->size == HUB_SIZE_UNKNOWN || f->size > INT64_MAX / 2)
            return err_set(e, ERR_FORMAT, "hub: no size is listed for %.*s", STR_ARG(f->path));
        if (!hub_ref_base(&base, f->path, e) ||
            !can_run_fetch(r, f, f->size < size ? f->size : size, base, e))
            return false;
        if (i == 0)
            *first = arena_printf(&r->arena, "%s/%.*s", r->dir, STR_ARG(base));
    }
    return true;
}

static const struct hub_model *can_run_smallest(const struct can_run *r)
{
    const struct hub_model *best = NULL;
    for (uint32_t i = 0; i < r->models.count; i++) {
        const struct hub_model *m = &r->models.models[i];
        bool is_simple = m->shards == 1 && m->shards_total == 1;
        bool best_is_simple = best && best->shards == 1;
        if (m->shards != m->shards_total || m->shards > CAN_RUN_SHARDS_MAX)
            continue;
        if (!best || (is_simple && !best_is_simple) ||
            (is_simple == best_is_simple && m->size < best->size))
            best = m;
    }
    return best;
}

/* Reads more of the header until it is whole; what is wrong with it then is wrong. */
static void can_run_read_model(struct can_run *r, const struct hub_model *m)
{
    str first = {NULL, 0};
    bool is_done = false;
    for (uint64_t size = CAN_RUN_FIRST; size <= CAN_RUN_MOST && !is_done; size *= 4) {
        r->why = (struct err){0};
        if (!can_run_fetch_all(r, m, size, &first, &r->why))
            return;
        is_done = model_plan_open(&r->plan, first.p, r->c->config, &r->arena, &r->why) ||
                  r->why.code == ERR_UNSUPPORTED || size >= m->size;
    }
    if (r->plan) {
        struct step_limits limits = {.rows_max = 512, .seqs_max = 64, .outs_max = 64};
        r->answer = CAN_RUN_YES;
        r->architecture = arena_copy(&r->arena, model_file_arch(r->plan->file));
        r->beside = sizing_cache(&r->plan->layout, 1,
                                 r->plan->hp.n_ctx < SIZING_TOKENS ? r->plan->hp.n_ctx
                                                                   : SIZING_TOKENS) +
                    plan_scratch_size(&r->plan->plan, &limits);
    } else if (r->why.code == ERR_UNSUPPORTED) {
        r->answer = CAN_RUN_NO;
    }
}

/* --- repositories without GGUF --- */

static void can_run_search(struct can_run *r)
{
    struct buf body;
    struct hub_net_query q = {.kind = HUB_NET_SEARCH, .origin = r->ref.origin,
                              .path = file_base_name(r->ref.repo), .size_max = HUB_ANSWER_MAX};
    struct err ignored;
    buf_init(&body, HUB_ANSWER_MAX);
    if (hub_net_ask(r->net, &q, &body, &ignored)) {
        str text = arena_copy(&r->arena, buf_view(&body));
        if (text.p && !hub_table[0]->read_search(&r->found, &r->found_count, text, &r->arena,
                                                 &ignored))
            r->found_count = 0;
    }
    buf_deinit(&body);
}

static void can_run_judge_parts(struct can_run *r)
{
    bool is_known = r->repo.model_type.len > 0;
    r->architecture = r->repo.model_type;
    r->answer = CAN_RUN_NO;
    err_set(&r->why, ERR_UNSUPPORTED, "no GGUF files; safetensors%s%.*s are not served yet",
            is_known ? " of model type " : "", STR_ARG(str_sub(r->architecture, 0, 60)));
    can_run_search(r);
}

/* --- printing --- */

static const char *can_run_answer_name(enum can_run_answer a)
{
    return a == CAN_RUN_YES ? "yes" : a == CAN_RUN_NO ? "no" : "unknown";
}

static enum sizing_verdict can_run_verdict(const struct can_run *r, const struct hub_model *m,
                                           bool in_gpu)
{
    uint64_t budget = in_gpu ? r->machine.vram : r->machine.ram;
    if (in_gpu && !r->machine.has_gpu)
        return SIZING_NONE;
    return m->size == HUB_SIZE_UNKNOWN ? SIZING_UNKNOWN
                                       : sizing_judge(budget, m->size + r->beside);
}

static bool can_run_fits(const struct can_run *r, const struct hub_model *m)
{
    for (int gpu = 0; gpu < 2; gpu++) {
        enum sizing_verdict v = can_run_verdict(r, m, gpu);
        if (v == SIZING_COMFORTABLE || v == SIZING_TIGHT)
            return true;
    }
    return false;
}

/* The largest comfortable one, else the smallest that fits at all. */
static const struct hub_model *can_run_best(const struct can_run *r)
{
    const struct hub_model *best = NULL, *least = NULL;
    for (uint32_t i = 0; i < r->models.count; i++) {
        const struct hub_model *m = &r->models.models[i];
        if (m->shards != m->shards_total || !can_run_fits(r, m))
            continue;
        bool is_easy = can_run_verdict(r, m, true) == SIZING_COMFORTABLE ||
                       (!r->machine.has_gpu &&
                        can_run_verdict(r, m, false) == SIZING_COMFORTABLE);
        if (is_easy && (!best || m->size > best->size))
            best = m;
        if (!least || m->size < least->size)
            least = m;
    }
    return best ? best : least;
}

static void can_run_add_pull(struct buf *out, const struct can_run *r, const struct hub_model *m)
{
    buf_printf(out, "shoal pull %.*s", STR_ARG(r->ref.repo));
    if (!str_eq_z(r->ref.revision, "main"))
        buf_printf(out, "@%.*s", STR_ARG(r->ref.revision));
    buf_add_byte(out, ':');
    buf_add_printable(out, file_base_name(m->name));
}

static void can_run_add_models(struct buf *out, const struct can_run *r)
{
    bool all = cmd_bool(r->c, "all");
    uint32_t hidden = 0;
    buf_printf(out, "\n%-44s %-10s %-12s %s\n", "FILE", "SIZE", "IN RAM", "IN VRAM");
    for (uint32_t i = 0; i < r->models.count; i++) {
        const struct hub_model *m = &r->models.models[i];
        if (!all && !can_run_fits(r, m)) {
            hidden++;
            continue;
        }
        sizing_add_cell(out, file_base_name(m->name), 45);
        sizing_add_size_cell(out, m->size, 11);
        sizing_add_cell(out, str_of(sizing_verdict_name(can_run_verdict(r, m, false))), 13);
        buf_printf(out, "%s\n", sizing_verdict_name(can_run_verdict(r, m, true)));
    }
    if (hidden)
        buf_printf(out, "%u more do not fit; -all shows them\n", hidden);
    const struct hub_model *best = can_run_best(r);
    buf_add_byte(out, '\n');
    if (best)
        can_run_add_pull(out, r, best);
    else
        buf_add_z(out, "none of them fits this machine");
    buf_add_byte(out, '\n');
}

static void can_run_add_text(struct buf *out, const struct can_run *r)
{
    buf_printf(out, "repository   %.*s@%.*s\narchitecture ", STR_ARG(r->ref.repo),
               STR_ARG(r->ref.revision));
    buf_add_printable(out, r->architecture.len ? r->architecture : STR("not known"));
    buf_printf(out, "\nsupported    %s", can_run_answer_name(r->answer));
    if (r->answer != CAN_RUN_YES && r->why.text[0]) {
        buf_add_z(out, ": ");
        buf_add_printable(out, str_of(r->why.text));
    }
    buf_add_byte(out, '\n');
    if (r->answer != CAN_RUN_NO && r->models.count)
        can_run_add_models(out, r);
    for (uint32_t i = 0; i < r->found_count; i++) {
        buf_add_z(out, i ? "" : "\nconversions on the hub:\n");
        buf_add_z(out, "  shoal can-run ");
        buf_add_printable(out, r->found[i]);
        buf_add_byte(out, '\n');
    }
}

static void can_run_put_model(struct json_writer *w, const struct can_run *r,
                              const struct hub_model *m)
{
    json_open_object(w);
    json_key_z(w, "file");
    json_put_text(w, m->name);
    json_key_z(w, "size");
    if (m->size == HUB_SIZE_UNKNOWN)
        json_put_null(w);
    else
        json_put_u64(w, m->size);
    json_key_z(w, "shards");
    json_put_u64(w, m->shards);
    json_key_z(w, "in_ram");
    json_put_text_z(w, sizing_verdict_name(can_run_verdict(r, m, false)));
    json_key_z(w, "in_vram");
    json_put_text_z(w, sizing_verdict_name(can_run_verdict(r, m, true)));
    json_close_object(w);
}

static void can_run_put(struct buf *out, const struct can_run *r)
{
    struct json_writer w = json_writer(out);
    const struct hub_model *best = r->answer == CAN_RUN_NO ? NULL : can_run_best(r);
    json_open_object(&w);
    json_key_z(&w, "repository");
    json_put_text(&w, r->ref.repo);
    json_key_z(&w, "revision");
    json_put_text(&w, r->ref.revision);
    json_key_z(&w, "architecture");
    json_put_text(&w, r->architecture);
    json_key_z(&w, "supported");
    json_put_text_z(&w, can_run_answer_name(r->answer));
    json_key_z(&w, "reason");
    json_put_text_z(&w, r->answer == CAN_RUN_YES ? "" : r->why.text);
    json_key_z(&w, "beside_weights");
    json_put_u64(&w, r->beside);
    json_key_z(&w, "models");
    json_open_array(&w);
    for (uint32_t i = 0; i < r->models.count; i++)
        if (cmd_bool(r->c, "all") || can_run_fits(r, &r->models.models[i]))
            can_run_put_model(&w, r, &r->models.models[i]);
    json_close_array(&w);
    json_key_z(&w, "best");
    if (best)
        json_put_text(&w, best->name);
    else
        json_put_null(&w);
    json_key_z(&w, "conversions");
    json_open_array(&w);
    for (uint32_t i = 0; i < r->found_count; i++)
        json_put_text(&w, r->found[i]);
    json_close_array(&w);
    json_close_object(&w);
    buf_add_byte(out, '\n');
}

/* --- the command --- */

static bool can_run_remove(void *ctx, const struct file_entry *entry)
{
    (void)ctx;
    unlink(entry->path);
    return false;
}

static void can_run_tidy_up(struct can_run *r)
{
    struct err ignored;
    struct file_walk w = {0, 1000, can_run_remove, r};
    model_plan_close(r->plan);
    if (r->dir[0] && file_walk(r->dir, &w, &ignored))
        rmdir(r->dir);
    hub_net_close(r->net);
    arena_deinit(&r->arena);
}

static bool can_run_ask(struct can_run *r, struct err *e)
{
    struct buf body;
    struct hub_net_query q = {.kind = HUB_NET_LIST, .origin = r->ref.origin, .repo = r->ref.repo,
                              .revision = r->ref.revision, .size_max = HUB_ANSWER_MAX};
    buf_init(&body, HUB_ANSWER_MAX);
    bool ok = hub_net_ask(r->net, &q, &body, e);
    str text = ok ? arena_copy(&r->arena, buf_view(&body)) : (str){NULL, 0};
    buf_deinit(&body);
    if (ok && !text.p)
        ok = err_set(e, ERR_MEMORY, "can-run: no memory for the hub's answer");
    return ok && hub_table[0]->read_list(&r->repo, text, &r->arena, e) &&
           (!r->repo.commit.len || hub_ref_is_revision(r->repo.commit) ||
            err_set(e, ERR_FORMAT, "hub: a commit of strange form")) &&
           hub_pick_models(&r->models, &r->repo, &r->arena, e);
}

static bool can_run_do(struct can_run *r, struct err *e)
{
    if (!can_run_ask(r, e))
        return false;
    sizing_read(&r->machine);
    if (!r->models.count) {
        can_run_judge_parts(r);
        return true;
    }
    const struct hub_model *m = can_run_smallest(r);
    if (!m)
        return err_set(&r->why, ERR_NOT_FOUND, "no model of it is complete") || true;
    snprintf(r->dir, sizeof r->dir, "/tmp/shoal_can_run_XXXXXX");
    if (!mkdtemp(r->dir)) {
        r->dir[0] = 0;
        return err_set_errno(e, errno, "can-run: a directory in /tmp");
    }
    can_run_read_model(r, m);
    return true;
}

static bool cmd_can_run_run(struct cmd_context *c, struct err *e)
{
    struct can_run r = {.c = c};
    struct hub_net_options net;
    struct buf out;
    arena_init(&r.arena, CAN_RUN_ARENA_MAX);
    buf_init(&out, CAN_RUN_OUT_MAX);
    bool ok = hub_ref_parse(&r.ref, c->words[0], e) && cmd_pull_hub(c, &net, e) &&
              hub_net_open(&r.net, &net, e) && can_run_do(&r, e);
    if (ok) {
        if (cmd_bool(c, "json"))
            can_run_put(&out, &r);
        else
            can_run_add_text(&out, &r);
        fwrite(out.p, 1, out.len, stdout);
    }
    can_run_tidy_up(&r);
    buf_deinit(&out);
    return ok;
}

static const struct cmd_flag cmd_can_run_flags[] = {
    {.name = "all",
     .spec = {.type = CONFIG_TYPE_BOOL},
     .standard = "false",
     .help = "also files that do not fit"},
};

const struct cmd cmd_can_run = {
    .name = "can-run",
    .words = "REPO",
    .words_min = 1,
    .words_max = 1,
    .summary = "Whether a repository of a hub holds what runs here, without downloading it",
    .text = "Reads headers by range and counts weights, cache of 8192 tokens and scratch as the "
            "engine does.\nThat nothing fits is an answer too: exit 0.",
    .flags = cmd_can_run_flags,
    .flags_count = countof(cmd_can_run_flags),
    .has_json = true,
    .flags_anywhere = true,
    .run = cmd_can_run_run,
};
