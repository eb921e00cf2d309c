#include <stdio.h>

#include "base/json.h"
#include "base/machine.h"
#include "cli/cmd.h"
#include "cli/config_models.h"
#include "cli/run_local.h"
#include "cli/sizing.h"
#include "engine/engine.h"
#include "tensor/halves.h"

#define PLAN_OUT_MAX ((size_t)1 << 20)
#define PLAN_CONTEXT_MIN 512u
#define PLAN_CONTEXT_MAX (1u << 20)

static const uint32_t cmd_plan_sequences[] = {1, 2, 4, 8, 16, 32};

struct plan_row {
    uint32_t sequences, context; /* context 0: not even the smallest fits */
    bool is_trained;             /* capped at what the model was trained with */
};

struct plan_report {
    struct engine *engine; /* counted for the machine at hand */
    uint64_t ram, left, spend; /* bytes; left 0: the weights do not fit */
    struct plan_row rows[countof(cmd_plan_sequences)];
    const char *backend;
    bool is_gpu;
    struct err no_choice; /* ERR_NONE: there is one */
};

static struct plan_row cmd_plan_row(const struct plan_report *r, uint32_t sequences)
{
    struct plan_row row = {.sequences = sequences};
    uint32_t trained = r->engine->hparams.n_ctx;
    for (uint32_t context = PLAN_CONTEXT_MIN; context <= PLAN_CONTEXT_MAX; context *= 2) {
        uint32_t capped = context < trained ? context : trained;
        if (sizing_cache(&r->engine->layout, sequences, capped) > r->spend)
            break;
        row.context = capped;
        row.is_trained = capped == trained;
        if (row.is_trained)
            break;
    }
    return row;
}

static void cmd_plan_fill(struct plan_report *r)
{
    const struct engine_sizes *s = &r->engine->sizes;
    uint64_t taken = s->weights + s->scratch;
    if (r->engine->is_split) /* as much of both memories as the fuller one allows */
        r->ram = s->available ? s->available + taken : 0;
    r->left = r->ram > taken ? r->ram - taken : 0;
    struct budget_in in = {.available = r->left, .is_gpu = r->is_gpu};
    r->spend = budget_spendable(&in);
    for (size_t i = 0; i < countof(r->rows); i++)
        r->rows[i] = cmd_plan_row(r, cmd_plan_sequences[i]);
}

/* --- printing --- */

static void cmd_plan_add_memory(struct buf *out, const struct plan_report *r)
{
    buf_add_z(out, "model       ");
    buf_add_printable(out, model_file_arch(r->engine->file));
    buf_printf(out, ", context %u as trained, cache ", r->engine->hparams.n_ctx);
    buf_add_size(out, budget_token_size(&r->engine->layout));
    buf_printf(out, " a token (%s)\nmemory      ", kv_type_name(r->engine->layout.type));
    if (r->ram)
        buf_add_size(out, r->ram);
    else
        buf_add_z(out, "unknown");
    buf_add_z(out, ", weights ");
    buf_add_size(out, r->engine->sizes.weights);
    buf_add_z(out, ", scratch ");
    buf_add_size(out, r->engine->sizes.scratch);
    if (!r->left) {
        buf_add_z(out, ": does not fit\n");
        return;
    }
    buf_add_z(out, ", left ");
    buf_add_size(out, r->left);
    buf_add_z(out, ", for the cache ");
    buf_add_size(out, r->spend);
    buf_add_byte(out, '\n');
}

static void cmd_plan_add_budget(struct buf *out, const struct plan_report *r)
{
    if (r->no_choice.code == ERR_NONE) {
        buf_printf(out, "%u tokens a conversation, up to %u sequences, pool ",
                   r->engine->budget.context_max, r->engine->budget.slots);
        buf_add_size(out, r->engine->budget.pool_bytes);
    } else {
        buf_add_printable(out, str_of(r->no_choice.text));
    }
}

static void cmd_plan_add_place(struct buf *out, const struct plan_report *r)
{
    if (r->engine->is_split) {
        uint32_t first = halves_first(r->engine->device), layers = r->engine->hparams.n_layer;
        buf_printf(out, "layers 0 to %u in RAM, computed on the CPU; %u to %u and the output on "
                   "the GPU", first - 1, first, layers - 1);
        return;
    }
    buf_printf(out, "all weights %s, computed on %s", r->is_gpu ? "on the GPU" : "in RAM",
               r->backend);
}

static void cmd_plan_add_text(struct buf *out, const struct plan_report *r)
{
    cmd_plan_add_memory(out, r);
    if (!r->left)
        return;
    buf_printf(out, "\n%10s %10s %12s\n", "CONCURRENT", "CONTEXT", "TOKENS");
    for (size_t i = 0; i < countof(r->rows); i++) {
        const struct plan_row *row = &r->rows[i];
        if (row->context)
            buf_printf(out, "%10u %10u %12llu%s\n", row->sequences, row->context,
                       (unsigned long long)row->sequences * row->context,
                       row->is_trained ? "  (as trained)" : "");
        else
            buf_printf(out, "%10u %10s\n", row->sequences, "none");
    }
    buf_add_z(out, "\nchoice      ");
    cmd_plan_add_budget(out, r);
    buf_add_z(out, "\nplacement   ");
    cmd_plan_add_place(out, r);
    buf_add_z(out, "\ncaveat      what is free when the model loads decides\n");
}

static void cmd_plan_put_rows(struct json_writer *w, const struct plan_report *r)
{
    json_key_z(w, "contexts");
    json_open_array(w);
    for (size_t i = 0; i < countof(r->rows); i++) {
        json_open_object(w);
        json_key_z(w, "concurrent");
        json_put_u64(w, r->rows[i].sequences);
        json_key_z(w, "context");
        json_put_u64(w, r->rows[i].context);
        json_key_z(w, "tokens");
        json_put_u64(w, (uint64_t)r->rows[i].sequences * r->rows[i].context);
        json_key_z(w, "as_trained");
        json_put_bool(w, r->rows[i].is_trained);
        json_close_object(w);
    }
    json_close_array(w);
}

static void cmd_plan_put(struct buf *out, const struct plan_report *r)
{
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    json_key_z(&w, "architecture");
    json_put_text(&w, model_file_arch(r->engine->file));
    json_key_z(&w, "trained_context");
    json_put_u64(&w, r->engine->hparams.n_ctx);
    json_key_z(&w, "kv_per_token");
    json_put_u64(&w, budget_token_size(&r->engine->layout));
    json_key_z(&w, "kv");
    json_put_text_z(&w, kv_type_name(r->engine->layout.type));
    json_key_z(&w, "ram");
    json_put_u64(&w, r->ram);
    json_key_z(&w, "weights");
    json_put_u64(&w, r->engine->sizes.weights);
    json_key_z(&w, "scratch");
    json_put_u64(&w, r->engine->sizes.scratch);
    json_key_z(&w, "pool");
    json_put_u64(&w, r->engine->sizes.pool);
    json_key_z(&w, "left");
    json_put_u64(&w, r->left);
    json_key_z(&w, "spendable");
    json_put_u64(&w, r->spend);
    json_key_z(&w, "fits");
    json_put_bool(&w, r->no_choice.code == ERR_NONE);
    cmd_plan_put_rows(&w, r);
    json_key_z(&w, "choice");
    if (r->no_choice.code == ERR_NONE) {
        json_open_object(&w);
        json_key_z(&w, "context");
        json_put_u64(&w, r->engine->budget.context_max);
        json_key_z(&w, "slots");
        json_put_u64(&w, r->engine->budget.slots);
        json_key_z(&w, "tokens");
        json_put_u64(&w, r->engine->model.kv_tokens);
        json_key_z(&w, "pool");
        json_put_u64(&w, r->engine->budget.pool_bytes);
        json_close_object(&w);
    } else {
        json_put_null(&w);
    }
    json_key_z(&w, "device");
    json_put_text_z(&w, r->backend);
    json_key_z(&w, "layers_in_ram");
    json_put_u64(&w, r->engine->is_split ? halves_first(r->engine->device)
                     : r->is_gpu         ? 0
                                         : r->engine->hparams.n_layer);
    json_close_object(&w);
    buf_add_byte(out, '\n');
}

/* Memory of the machine, or of its GPU when that computes. */
static bool cmd_plan_room(struct plan_report *r, const struct api_load *l, struct err *e)
{
    const struct backend *k = backend_table_pick(l->backend, e);
    struct device *d;
    struct device_info info;
    struct machine m;
    struct device_options o = {.act = ACT_AUTO, .threads = 1, .is_counting = true};
    if (!k || !k->open(&d, &o, e))
        return false;
    k->info(d, &info);
    k->close(d);
    r->backend = k->name;
    r->is_gpu = info.memory_free != 0;
    machine_read(&m);
    r->ram = r->is_gpu ? info.memory_free + info.memory_used : machine_ram_free(&m);
    return true;
}

/* Other memory than there is: -ram, -gpu-mem. */
static bool cmd_plan_asked_room(struct plan_report *r, const struct cmd_context *c, struct err *e)
{
    if (cmd_is_given(c, "ram") && r->is_gpu)
        return err_set(e, ERR_USAGE, "plan: -ram counts where the CPU computes; add -backend cpu");
    if (cmd_is_given(c, "gpu-mem") && !r->is_gpu)
        return err_set(e, ERR_USAGE, "plan: -gpu-mem counts where a GPU computes; here it is %s",
                       r->backend);
    if (cmd_is_given(c, "gpu-mem"))
        r->ram = (uint64_t)cmd_number(c, "gpu-mem");
    if (cmd_is_given(c, "ram"))
        r->ram = (uint64_t)cmd_number(c, "ram");
    return true;
}

static bool cmd_plan_has_flag(const struct cmd_context *c, const char *key)
{
    return config_value(c->config, key)->source == CONFIG_SOURCE_FLAG;
}

/* What `models` says of this one; a flag asks for another plan. */
static bool cmd_plan_own(struct api_load *load, const struct cmd_context *c, str name,
                         struct err *e)
{
    struct config_models models;
    if (!config_models_load(&models, c->config, c->arena, e))
        return false;
    const struct models_leg_setting *s =
        models_leg_setting_find(models.settings, models.count, name);
    if (!s)
        return true;
    struct models_leg_setting own = *s;
    own.context = cmd_plan_has_flag(c, "engine.ctx") ? 0 : own.context;
    own.slots = cmd_plan_has_flag(c, "engine.slots") ? 0 : own.slots;
    own.has_kv = own.has_kv && !cmd_plan_has_flag(c, "engine.kv");
    own.has_place = own.has_place && !cmd_plan_has_flag(c, "engine.ngl") &&
                    !cmd_plan_has_flag(c, "engine.backend");
    models_leg_setting_apply(&own, load);
    return true;
}

/* As serve loads it. is_plan: the command is `plan`, whose flags name other memory. */
static bool cmd_plan_count(struct plan_report *r, const struct cmd_context *c, bool is_plan,
                           const struct library_entry *m, struct err *e)
{
    struct api_load load = {.path = m->path,
                            .slots = (uint32_t)config_number(c->config, "engine.slots"),
                            .batch = (uint32_t)config_number(c->config, "engine.batch")};
    if (!run_local_load(c->config, &load, e) || !cmd_plan_own(&load, c, m->name, e) ||
        !cmd_plan_room(r, &load, e) ||
        (is_plan && !cmd_plan_asked_room(r, c, e)) ||
        !engine_size(&r->engine, &load, r->ram, &r->no_choice, e))
        return false;
    if (is_plan && r->engine->is_split && (cmd_is_given(c, "ram") || cmd_is_given(c, "gpu-mem")))
        return err_set(e, ERR_USAGE, "plan: -ram and -gpu-mem count where all layers are on one "
                       "device; -ngl %u puts %u on the CPU", load.layers,
                       halves_first(r->engine->device));
    cmd_plan_fill(r);
    return true;
}

bool cmd_plan_add_choice(struct buf *out, const struct cmd_context *c,
                         const struct library_entry *m, struct err *e)
{
    struct plan_report report = {0};
    bool ok = cmd_plan_count(&report, c, false, m, e);
    if (ok && !report.left) {
        buf_add_z(out, "does not fit");
    } else if (ok) {
        cmd_plan_add_budget(out, &report);
        buf_add_z(out, "; ");
        cmd_plan_add_place(out, &report);
    }
    engine_close(report.engine);
    return ok;
}

static bool cmd_plan_run(struct cmd_context *c, struct err *e)
{
    struct library_entry found;
    struct plan_report report = {0};
    struct buf out;
    if (!cmd_models_find(c, c->words[0], &found, e))
        return false;
    buf_init(&out, PLAN_OUT_MAX);
    bool ok = cmd_plan_count(&report, c, true, &found, e);
    if (ok) {
        if (cmd_bool(c, "json"))
            cmd_plan_put(&out, &report);
        else
            cmd_plan_add_text(&out, &report);
        fwrite(out.p, 1, out.len, stdout);
    }
    engine_close(report.engine);
    buf_deinit(&out);
    return ok;
}

static const struct cmd_flag cmd_plan_flags[] = {
    {.name = "ram",
     .value = "SIZE",
     .spec = {.type = CONFIG_TYPE_SIZE, .min = 1, .max = INT64_MAX},
     .help = "plan for so much memory (what is free now)"},
    {.name = "gpu-mem",
     .value = "SIZE",
     .spec = {.type = CONFIG_TYPE_SIZE, .min = 1, .max = INT64_MAX},
     .help = "plan for so much memory of the GPU (what is free now)"},
    {.name = "peers", .value = "LIST", .spec = {.type = CONFIG_TYPE_TEXT}, .is_later = true},
};

const struct cmd cmd_plan = {
    .name = "plan",
    .words = "MODEL",
    .words_min = 1,
    .words_max = 1,
    .summary = "What a model needs and how much context fits, without loading it",
    .flags = cmd_plan_flags,
    .flags_count = countof(cmd_plan_flags),
    .has_json = true,
    .flags_anywhere = true,
    .run = cmd_plan_run,
};
