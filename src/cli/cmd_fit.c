#include <stdio.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/cmd.h"
#include "cli/model_plan.h"
#include "cli/sizing.h"

#define FIT_OUT_MAX ((size_t)1 << 20)
#define FIT_ARENA_MAX ((size_t)256 << 20)
#define FIT_PROBE ((uint64_t)512 << 20) /* bytes read for the bandwidth: far beyond any cache */
#define FIT_INSTALLED_MAX 200u
#define FIT_GIB_PER_BILLION 0.65 /* of Q4_K_M */

/* The ladder: shapes as published in each model's config.json; active: parameters that a token
 * reads, which for a mixture are few. */
struct fit_model {
    const char *name, *repo;
    double billions, active;
    uint32_t layers, kv_heads, head_dim;
};
static const struct fit_model fit_ladder[] = {
    {"Qwen2.5 0.5B", "Qwen/Qwen2.5-0.5B-Instruct-GGUF", 0.5, 0.5, 24, 2, 64},
    {"Qwen2.5 1.5B", "Qwen/Qwen2.5-1.5B-Instruct-GGUF", 1.5, 1.5, 28, 2, 128},
    {"Qwen2.5 3B", "Qwen/Qwen2.5-3B-Instruct-GGUF", 3, 3, 36, 2, 128},
    {"Qwen2.5 7B", "Qwen/Qwen2.5-7B-Instruct-GGUF", 7, 7, 28, 4, 128},
    {"Qwen2.5 14B", "Qwen/Qwen2.5-14B-Instruct-GGUF", 14, 14, 48, 8, 128},
    {"Qwen3 30B-A3B", "Qwen/Qwen3-30B-A3B-GGUF", 30, 3, 48, 4, 128},
    {"Qwen2.5 32B", "Qwen/Qwen2.5-32B-Instruct-GGUF", 32, 32, 64, 8, 128},
    {"Qwen2.5 72B", "Qwen/Qwen2.5-72B-Instruct-GGUF", 72, 72, 80, 8, 128},
};
static const struct { const char *name; double scale; } fit_quants[] = {
    {"Q8_0", 1.76}, {"Q6_K", 1.37}, {"Q5_K_M", 1.17}, {"Q4_K_M", 1.00}, {"Q3_K_M", 0.80},
};

struct fit_row {
    const struct fit_model *model;
    uint64_t weights, need; /* at Q4_K_M */
    enum sizing_verdict ram, vram, best;
    double tokens_s, prompt_s; /* that the measured rates allow; 0: not known */
};

struct fit_installed {
    str name;
    uint64_t weights, need;
    enum sizing_verdict ram, vram;
    double tokens_s, prompt_s;
    str why; /* it cannot be sized */
};

struct fit {
    struct cmd_context *c;
    struct sizing s;
    struct bench_probe probe;
    double int8_gops;
    bool has_probe; /* of both rates */
    struct err no_probe; /* why there is none */
    struct fit_row rows[countof(fit_ladder)];
    const struct fit_row *recommended;
    const char *better; /* a finer quant of it that is still comfortable, or NULL */
    struct fit_installed installed[FIT_INSTALLED_MAX];
    uint32_t installed_count;
    struct arena arena;
};

static double fit_rate(const struct fit *f, uint64_t bytes)
{
    return f->has_probe && bytes ? f->probe.gb_s * 1e9 / (double)bytes : 0;
}

/* Of a prompt; ops: multiplications and additions of a token. */
static double fit_prompt_rate(const struct fit *f, double ops)
{
    return f->has_probe && ops > 0 ? f->int8_gops * 1e9 / ops : 0;
}

static uint64_t fit_weights(double billions, double scale)
{
    return (uint64_t)(billions * FIT_GIB_PER_BILLION * scale * (double)((uint64_t)1 << 30));
}

static enum sizing_verdict fit_verdict(const struct fit *f, uint64_t need, bool in_gpu)
{
    if (in_gpu && !f->s.has_gpu)
        return SIZING_NONE;
    return sizing_judge(in_gpu ? f->s.vram : f->s.ram, need);
}

static bool fit_is_in(enum sizing_verdict v)
{
    return v == SIZING_COMFORTABLE || v == SIZING_TIGHT;
}

static void fit_walk_ladder(struct fit *f)
{
    const struct fit_row *largest = NULL;
    for (size_t i = 0; i < countof(fit_ladder); i++) {
        struct fit_row *r = &f->rows[i];
        const struct fit_model *m = r->model = &fit_ladder[i];
        r->weights = fit_weights(m->billions, 1);
        r->need = r->weights + sizing_cache_of(m->layers, m->kv_heads, m->head_dim, SIZING_TOKENS);
        r->ram = fit_verdict(f, r->need, false);
        r->vram = fit_verdict(f, r->need, true);
        r->best = f->s.has_gpu ? r->vram : r->ram;
        r->tokens_s = fit_rate(f, fit_weights(m->active, 1));
        r->prompt_s = fit_prompt_rate(f, 2e9 * m->active);
        if (r->best == SIZING_COMFORTABLE)
            f->recommended = r;
        if (fit_is_in(r->best))
            largest = r;
    }
    f->recommended = f->recommended ? f->recommended : largest;
    for (size_t i = 0; f->recommended && i < 3 && !f->better; i++) {
        const struct fit_model *m = f->recommended->model;
        uint64_t more = fit_weights(m->billions, fit_quants[i].scale) - f->recommended->weights;
        if (fit_verdict(f, f->recommended->need + more, f->s.has_gpu) == SIZING_COMFORTABLE)
            f->better = fit_quants[i].name;
    }
}

/* --- what is here --- */

static void fit_size_installed(struct fit *f, const struct library_entry *m)
{
    struct fit_installed *x = &f->installed[f->installed_count++];
    struct arena arena;
    struct model_plan *plan = NULL;
    struct err why = {0};
    *x = (struct fit_installed){.name = arena_copy(&f->arena, m->name)};
    if (m->broken.len || m->is_safetensors) {
        x->why = m->broken.len ? arena_copy(&f->arena, m->broken)
                               : STR("safetensors are not served yet");
        return;
    }
    arena_init(&arena, FIT_ARENA_MAX);
    if (model_plan_open(&plan, m->path.p, f->c->config, &arena, &why)) {
        struct step_limits limits = {.rows_max = 512, .seqs_max = 64, .outs_max = 64};
        uint32_t context = plan->hp.n_ctx < SIZING_TOKENS ? plan->hp.n_ctx : SIZING_TOKENS;
        x->weights = plan->weights.bytes;
        x->need = x->weights + sizing_cache(&plan->layout, 1, context) +
                  plan_scratch_size(&plan->plan, &limits);
        x->ram = fit_verdict(f, x->need, false);
        x->vram = fit_verdict(f, x->need, true);
        x->tokens_s = fit_rate(f, x->weights);
        x->prompt_s = fit_prompt_rate(f, bench_run_prompt_ops(plan));
    } else {
        x->why = arena_copy(&f->arena, str_of(why.text));
    }
    model_plan_close(plan);
    arena_deinit(&arena);
}

static bool fit_read_installed(struct fit *f, struct err *e)
{
    struct library *l;
    if (!cmd_models_open(f->c, false, true, &l, e))
        return false;
    for (uint32_t i = 0; i < library_count(l) && f->installed_count < FIT_INSTALLED_MAX; i++)
        fit_size_installed(f, library_at(l, i));
    library_close(l);
    return true;
}

/* --- text --- */

static void fit_add_machine(struct buf *out, const struct fit *f)
{
    const struct machine *m = &f->s.machine;
    buf_printf(out, "Machine\n  CPU         %s, %u usable of %u, %s%s\n",
               m->model[0] ? m->model : "unknown", m->cpus, m->cpus_online,
               machine_level_name(m->level), m->has_bf16 ? " with bf16" : "");
    buf_printf(out, "  NUMA nodes  %u\n  RAM         ", m->nodes ? m->nodes : 1);
    if (m->ram_total) {
        buf_add_size(out, m->ram_total);
        buf_add_z(out, ", available ");
        buf_add_size(out, m->ram_available);
        buf_add_z(out, ", limit ");
        if (m->ram_limit)
            buf_add_size(out, m->ram_limit);
        else
            buf_add_z(out, "none");
    } else {
        buf_add_z(out, "unknown");
    }
    if (f->has_probe)
        buf_printf(out, "\n  bandwidth   %.1f GB/s, measured\n  int8        %.0f GOPS, measured",
                   f->probe.gb_s, f->int8_gops);
    buf_add_z(out, "\n  GPU         ");
    if (f->s.has_gpu) {
        buf_printf(out, "%s, ", f->s.gpu.name);
        buf_add_size(out, f->s.gpu.memory_total);
        buf_add_z(out, ", free ");
        buf_add_size(out, f->s.gpu.memory_free);
    } else {
        buf_printf(out, "none (%s)", f->s.no_gpu.text);
    }
    buf_add_byte(out, '\n');
}

static void fit_add_rate(struct buf *out, const struct fit *f, double rate, double prompt)
{
    if (rate > 0 && prompt > 0 && !f->s.has_gpu)
        buf_printf(out, "  at most %.1f tokens/s, prompts %.0f", rate, prompt);
}

static void fit_add_recommended(struct buf *out, const struct fit *f)
{
    buf_add_z(out, "\nRecommended\n");
    const struct fit_row *r = f->recommended;
    if (!f->s.ram && !f->s.vram) {
        buf_add_z(out, "  nothing: how much memory is free is not known\n");
        return;
    }
    if (!r) {
        buf_add_z(out, "  nothing of the ladder fits\n");
        return;
    }
    buf_printf(out, "  %s, %s", r->model->name, sizing_verdict_name(r->best));
    fit_add_rate(out, f, r->tokens_s, r->prompt_s);
    buf_printf(out, "\n  shoal pull %s:Q4_K_M\n", r->model->repo);
    buf_add_z(out, "\nAlso fits\n");
    for (size_t i = 0; i < countof(f->rows); i++) {
        const struct fit_row *k = &f->rows[i];
        if (k == r || !fit_is_in(k->best))
            continue;
        buf_printf(out, "  %-16s", k->model->name);
        sizing_add_size_cell(out, k->need, 11);
        buf_add_z(out, sizing_verdict_name(k->best));
        fit_add_rate(out, f, k->tokens_s, k->prompt_s);
        buf_add_byte(out, '\n');
    }
}

static void fit_add_installed(struct buf *out, const struct fit *f)
{
    buf_printf(out, "\nInstalled\n");
    for (uint32_t i = 0; i < f->installed_count; i++) {
        const struct fit_installed *x = &f->installed[i];
        buf_add_z(out, "  ");
        sizing_add_cell(out, x->name, 40);
        if (x->why.len) {
            buf_add_printable(out, x->why);
        } else {
            sizing_add_size_cell(out, x->need, 11);
            buf_printf(out, "RAM %s", sizing_verdict_name(x->ram));
            if (f->s.has_gpu)
                buf_printf(out, ", VRAM %s", sizing_verdict_name(x->vram));
            fit_add_rate(out, f, x->tokens_s, x->prompt_s);
        }
        buf_add_byte(out, '\n');
    }
    if (!f->installed_count)
        buf_add_z(out, "  nothing\n");
}

static void fit_add_text(struct buf *out, const struct fit *f)
{
    fit_add_machine(out, f);
    fit_add_recommended(out, f);
    buf_printf(out, "\nBackend\n  %s\n", f->s.has_gpu ? "cuda" : "cpu");
    fit_add_installed(out, f);
    buf_add_z(out, "\nNotes\n");
    if (f->better)
        buf_printf(out, "  %s at %s is comfortable too, and closer to the original\n",
                   f->recommended->model->name, f->better);
    if (f->no_probe.code != ERR_NONE)
        buf_printf(out, "  nothing was measured: %s\n", f->no_probe.text);
    buf_add_z(out, "  sizes are weights and a cache of 8192 tokens; comfortable: at most 70 % of "
                   "what is free\n");
}

/* --- JSON --- */

/* null: not measured. */
static void fit_key_rate(struct json_writer *w, const char *key, double v)
{
    json_key_z(w, key);
    if (v > 0)
        json_put_double(w, v);
    else
        json_put_null(w);
}

static void fit_key_text(struct json_writer *w, const char *key, const char *v)
{
    json_key_z(w, key);
    json_put_text_z(w, v);
}

static void fit_put_machine(struct json_writer *w, const struct fit *f)
{
    const struct machine *m = &f->s.machine;
    json_key_z(w, "machine");
    json_open_object(w);
    fit_key_text(w, "cpu", m->model);
    json_put_key_u64(w, "cpus", m->cpus);
    json_put_key_u64(w, "cpus_online", m->cpus_online);
    fit_key_text(w, "level", machine_level_name(m->level));
    json_put_key_u64(w, "numa_nodes", m->nodes);
    json_put_key_u64(w, "ram_total", m->ram_total);
    json_put_key_u64(w, "ram_available", m->ram_available);
    json_put_key_u64(w, "ram_limit", m->ram_limit);
    json_put_key_u64(w, "ram_budget", f->s.ram);
    json_put_key_u64(w, "vram_budget", f->s.vram);
    fit_key_rate(w, "bandwidth_gb_s", f->has_probe ? f->probe.gb_s : 0);
    fit_key_rate(w, "int8_gops", f->has_probe ? f->int8_gops : 0);
    json_key_z(w, "gpu");
    if (f->s.has_gpu)
        json_put_text_z(w, f->s.gpu.name);
    else
        json_put_null(w);
    json_put_key_u64(w, "vram_total", f->s.gpu.memory_total);
    json_put_key_u64(w, "vram_free", f->s.gpu.memory_free);
    json_close_object(w);
}

static void fit_put_ladder(struct json_writer *w, const struct fit *f)
{
    json_key_z(w, "ladder");
    json_open_array(w);
    for (size_t i = 0; i < countof(f->rows); i++) {
        const struct fit_row *r = &f->rows[i];
        json_open_object(w);
        fit_key_text(w, "name", r->model->name);
        fit_key_text(w, "repo", r->model->repo);
        json_put_key_u64(w, "weights", r->weights);
        json_put_key_u64(w, "need", r->need);
        fit_key_text(w, "in_ram", sizing_verdict_name(r->ram));
        fit_key_text(w, "in_vram", sizing_verdict_name(r->vram));
        fit_key_rate(w, "tokens_s", r->tokens_s);
        fit_key_rate(w, "prompt_tokens_s", r->prompt_s);
        json_close_object(w);
    }
    json_close_array(w);
    json_key_z(w, "recommended");
    if (f->recommended)
        json_put_text_z(w, f->recommended->model->repo);
    else
        json_put_null(w);
}

static void fit_put(struct buf *out, const struct fit *f)
{
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    fit_put_machine(&w, f);
    fit_put_ladder(&w, f);
    fit_key_text(&w, "backend", f->s.has_gpu ? "cuda" : "cpu");
    json_key_z(&w, "installed");
    json_open_array(&w);
    for (uint32_t i = 0; i < f->installed_count; i++) {
        const struct fit_installed *x = &f->installed[i];
        json_open_object(&w);
        json_key_z(&w, "name");
        json_put_text(&w, x->name);
        json_put_key_u64(&w, "weights", x->weights);
        json_put_key_u64(&w, "need", x->need);
        fit_key_text(&w, "in_ram", sizing_verdict_name(x->ram));
        fit_key_text(&w, "in_vram", sizing_verdict_name(x->vram));
        fit_key_rate(&w, "tokens_s", x->tokens_s);
        fit_key_rate(&w, "prompt_tokens_s", x->prompt_s);
        json_key_z(&w, "why");
        json_put_text(&w, x->why);
        json_close_object(&w);
    }
    json_close_array(&w);
    json_close_object(&w);
    buf_add_byte(out, '\n');
}

static bool fit_probe(struct fit *f, struct err *e)
{
    uint32_t threads = f->s.machine.cpus;
    if (f->s.ram <= 2 * FIT_PROBE)
        return err_set(e, ERR_MEMORY, "less than %llu MB can be spent",
                       (unsigned long long)(2 * FIT_PROBE >> 20));
    return bench_probe_read(&f->probe, FIT_PROBE, threads, e) &&
           bench_probe_int8(&f->int8_gops, threads, e);
}

static bool cmd_fit_run(struct cmd_context *c, struct err *e)
{
    static struct fit f; /* large */
    struct buf out;
    f.c = c;
    arena_init(&f.arena, FIT_ARENA_MAX);
    buf_init(&out, FIT_OUT_MAX);
    sizing_read(&f.s);
    if (cmd_bool(c, "probe"))
        f.has_probe = fit_probe(&f, &f.no_probe);
    fit_walk_ladder(&f);
    bool ok = fit_read_installed(&f, e);
    if (ok) {
        if (cmd_bool(c, "json"))
            fit_put(&out, &f);
        else
            fit_add_text(&out, &f);
        fwrite(out.p, 1, out.len, stdout);
    }
    buf_deinit(&out);
    arena_deinit(&f.arena);
    return ok;
}

static const struct cmd_flag cmd_fit_flags[] = {
    {.name = "probe",
     .spec = {.type = CONFIG_TYPE_BOOL},
     .standard = "true",
     .help = "measure the memory's bandwidth and the rate of int8 products"},
};

const struct cmd cmd_fit = {
    .name = "fit",
    .summary = "What this machine can run",
    .text = "Counts weights and a cache of 8192 tokens against the memory that is free, for a "
            "ladder of models\nand for those that are here; on a CPU with the tokens/s that the "
            "memory's bandwidth allows,\nand those of a prompt that the rate of int8 products "
            "allows.",
    .flags = cmd_fit_flags,
    .flags_count = countof(cmd_fit_flags),
    .has_json = true,
    .run = cmd_fit_run,
};
