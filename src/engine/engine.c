#include "engine/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "base/digest.h"
#include "base/machine.h"
#include "tensor/halves.h"

#define ENGINE_COPIES_MAX 1024u /* copy-on-write pages of one step */
#define ENGINE_TRY_ROWS 8u
#define ENGINE_SMALL_MAX ((uint64_t)64 << 10) /* rounding and tables of the backend's pages */

/* --- what a file is ------------------------------------------------------------------------ */

/* llama_ftype of llama.h (MIT), the numbers behind general.file_type. */
static const char *const engine_file_types[] = {
    [0] = "F32", [1] = "F16", [2] = "Q4_0", [3] = "Q4_1", [7] = "Q8_0", [8] = "Q5_0", [9] = "Q5_1",
    [10] = "Q2_K", [11] = "Q3_K_S", [12] = "Q3_K_M", [13] = "Q3_K_L", [14] = "Q4_K_S",
    [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M", [18] = "Q6_K", [19] = "IQ2_XXS",
    [20] = "IQ2_XS", [21] = "Q2_K_S", [22] = "IQ3_XS", [23] = "IQ3_XXS", [24] = "IQ1_S",
    [25] = "IQ4_NL", [26] = "IQ3_S", [27] = "IQ3_M", [28] = "IQ2_S", [29] = "IQ2_M",
    [30] = "IQ4_XS", [31] = "IQ1_M", [32] = "BF16", [36] = "TQ1_0", [37] = "TQ2_0", [38] = "MXFP4",
};

/* By the file's own word, else the type that most bytes have. */
static str engine_quant(const struct model_file *f)
{
    uint32_t type;
    struct err ignored;
    if (model_file_has(f, "general.file_type") &&
        model_file_u32(f, "general.file_type", &type, &ignored) &&
        type < countof(engine_file_types) && engine_file_types[type])
        return str_of(engine_file_types[type]);
    uint64_t bytes[QTYPE_COUNT] = {0};
    enum qtype most = QTYPE_F32;
    for (size_t i = 0; i < model_file_tensor_count(f); i++) {
        const struct model_tensor *t = model_file_tensor_at(f, i);
        bytes[t->type] += t->size;
        if (bytes[t->type] > bytes[most])
            most = t->type;
    }
    return str_of(quant_name(most));
}

static uint64_t engine_parameters(const struct model_file *f)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < model_file_tensor_count(f); i++) {
        const struct model_tensor *t = model_file_tensor_at(f, i);
        sum += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
    }
    return sum;
}

static str engine_text(const struct model_file *f, const char *key)
{
    str s;
    struct err ignored;
    return model_file_str_or(f, key, STR(""), &s, &ignored) ? s : STR("");
}

/* The views in m last as long as the file. */
static void engine_fill_model(struct api_model *m, const struct model_file *f,
                              const struct hparams *hp, const struct render *r)
{
    uint32_t caps = r ? render_caps(r) : 0;
    *m = (struct api_model){
        .name = model_file_name(f),
        .context_max = hp->n_ctx,
        .type = STR("chat"),
        .chat_template = render_template(r),
        .family = model_file_arch(f),
        .parameters = engine_parameters(f),
        .quant = engine_quant(f),
        .license = engine_text(f, "general.license"),
        .caps = API_CAP_LOGPROBS | API_CAP_N | API_CAP_CONTINUE_TEXT | API_CAP_CONTINUE_TOKENS |
                API_CAP_SCHEMA,
    };
    if (r)
        m->caps |= API_CAP_CHAT;
    if (caps & RENDER_CAP_THINK)
        m->caps |= API_CAP_THINK;
    if (render_can_tools(r))
        m->caps |= API_CAP_TOOLS;
    for (uint32_t i = 0; i < model_file_shard_count(f); i++)
        m->bytes += model_file_shard_size(f, i);
}

static bool engine_has_token(void *ctx, str text)
{
    const struct vocab *v = ctx;
    int32_t id = vocab_find(v, text);
    return id != VOCAB_NONE && vocab_is_control(v, id);
}

static str engine_role_text(const struct vocab *v, enum vocab_role role)
{
    int32_t id = vocab_role(v, role);
    return id == VOCAB_NONE ? STR("") : vocab_text(v, id);
}

bool engine_render(struct render **out, const struct model_file *f, const struct vocab *v,
                   const struct engine_chat *chat, struct arena *a, struct err *e)
{
    str own = engine_text(f, "tokenizer.chat_template"), given = chat->chat_template;
    bool is_name = given.len && str_find_byte(given, '{') == STR_NONE;
    struct render_source src = {
        .template_name = is_name ? str_trim(given) : STR(""),
        .chat_template = given.len ? given : own,
        .tool_template = given.len ? STR("") : engine_text(f, "tokenizer.chat_template.tool_use"),
        .tool_format = chat->tool_format,
        .bos = engine_role_text(v, VOCAB_ROLE_BOS),
        .eos = engine_role_text(v, VOCAB_ROLE_EOS),
        .arch = model_file_arch(f),
        .has_token = engine_has_token,
        .ctx = (void *)v,
    };
    bool is_own = !given.len && !chat->tool_format.len;
    return render_new(out, &src, a, e) || (is_own ? model_file_blame(f, e) : false);
}

static str engine_stem(str name)
{
    return str_ends(name, STR(".gguf")) ? str_sub(name, 0, name.len - 5) : name;
}

/* Copies every text of m into a. */
static bool engine_keep_texts(struct api_model *m, struct arena *a, struct err *e)
{
    str *const texts[] = {&m->name, &m->digest, &m->type, &m->chat_template, &m->family, &m->quant,
                          &m->license, &m->info};
    for (size_t i = 0; i < countof(texts); i++) {
        *texts[i] = arena_copy(a, *texts[i]);
        if (!texts[i]->p)
            return err_set(e, ERR_MEMORY, "model: its texts are longer than %zu bytes",
                           a->bytes_max);
    }
    return true;
}

static bool engine_path(str path, char *out, size_t size, struct err *e)
{
    if (path.len == 0 || path.len >= size || str_find_byte(path, 0) != STR_NONE)
        return err_set(e, ERR_REQUEST, "model: a path of 1 to %zu bytes expected, got %zu",
                       size - 1, path.len);
    memcpy(out, path.p, path.len);
    out[path.len] = 0;
    return true;
}

bool engine_describe(str path, struct arena *a, struct api_model *out, struct err *e)
{
    char z[4096];
    struct model_file *f = NULL;
    struct hparams *hp = NULL;
    struct vocab *v = NULL;
    struct render *r = NULL;
    struct arena scratch;
    bool ok = false;
    struct vocab_source source;
    const struct engine_chat own = {.tool_format = STR("")};
    arena_init(&scratch, ENGINE_ARENA_MAX);
    if (!engine_path(path, z, sizeof z, e) || !model_file_open(&f, z, e))
        goto done;
    hp = calloc(1, sizeof *hp);
    if (!hp) {
        err_set(e, ERR_MEMORY, "model: no memory");
        goto done;
    }
    if (!arch_read(hp, f, e) || !vocab_source_read(&source, f, &scratch, e) ||
        !vocab_new(&v, &source, e) || !engine_render(&r, f, v, &own, &scratch, e))
        goto done;
    engine_fill_model(out, f, hp, r);
    out->name = engine_stem(out->name);
    ok = engine_keep_texts(out, a, e);
done:
    arena_deinit(&scratch);
    vocab_free(v);
    free(hp);
    model_file_close(f);
    return ok;
}

/* --- load ---------------------------------------------------------------------------------- */

static const enum act engine_acts[API_ACTIVATIONS_COUNT_] = {
    [API_ACTIVATIONS_AUTO] = ACT_AUTO, [API_ACTIVATIONS_FLOAT] = ACT_F32,
    [API_ACTIVATIONS_INT8] = ACT_INT8, [API_ACTIVATIONS_INT16] = ACT_INT16};

static bool engine_open_file(struct engine *en, const struct api_load *l, struct err *e)
{
    char path[4096];
    return engine_path(l->path, path, sizeof path, e) && model_file_open(&en->file, path, e) &&
           arch_read(&en->hparams, en->file, e);
}

static bool engine_open_text(struct engine *en, const struct api_load *l, struct err *e)
{
    if (!engine_open_file(en, l, e) || !tok_open(&en->tok, en->file, e))
        return false;
    const struct engine_chat chat = {arena_copy(&en->arena, l->chat_template),
                                     arena_copy(&en->arena, l->tool_format)};
    if (!engine_render(&en->render, en->file, tok_vocab(en->tok), &chat, &en->arena, e))
        return false;
    en->prompt.tool_grammar = l->tool_grammar;
    en->constrain = constrain_new(tok_vocab(en->tok));
    if (!en->constrain)
        return err_set(e, ERR_MEMORY, "model: no memory");
    if (vocab_count(tok_vocab(en->tok)) > en->hparams.n_vocab)
        return err_set(e, ERR_FORMAT, "%.*s: %u tokens in the vocabulary, but %u rows of output",
                       STR_ARG(model_file_name(en->file)), vocab_count(tok_vocab(en->tok)),
                       en->hparams.n_vocab);
    engine_fill_model(&en->model, en->file, &en->hparams, en->render);
    en->model.name = l->name.len ? l->name : engine_stem(en->model.name);
    return engine_keep_texts(&en->model, &en->arena, e);
}

static bool engine_open_plan(struct engine *en, struct err *e)
{
    const struct arch *arch = en->hparams.arch;
    plan_init(&en->plan, &en->arena, PLAN_KIND_MAIN);
    return arch->build(&en->plan, PLAN_KIND_MAIN, &en->hparams, e) &&
           plan_expand(&en->plan, en->backend->ops, e) && plan_finish(&en->plan, e) &&
           plan_kv_layout(&en->plan, en->kv_type, &en->layout, e) &&
           weights_bind(&en->weights, &en->plan, en->file, arch->ignored, &en->arena, e) &&
           (!en->backend->expect || en->backend->expect(en->device, &en->plan, e));
}

/* The last `layers` stay on the device that is open, the first go to the backend that every machine
 * has, the last of the table. */
static bool engine_split(struct engine *en, uint32_t layers, const struct device_options *o,
                         struct err *e)
{
    size_t last = 0;
    while (backend_table[last + 1])
        last++;
    struct halves_parts p = {.lower = backend_table[last], .upper = en->backend,
                            .upper_device = en->device, .layers = layers,
                            .is_counting = o->is_counting};
    if (!p.lower->open(&p.lower_device, o, e))
        return false;
    en->device = NULL;
    en->backend = &halves_backend;
    if (!halves_join(&en->device, &p, e))
        return false;
    en->is_split = true;
    en->backend->info(en->device, &en->info);
    return true;
}

static bool engine_open_device(struct engine *en, const struct api_load *l, struct err *e)
{
    char level[16];
    if (l->level.len >= sizeof level)
        return err_set(e, ERR_CONFIG, "level: at most %zu bytes expected, got %zu",
                       sizeof level - 1, l->level.len);
    memcpy(level, l->level.len ? l->level.p : "", l->level.len);
    level[l->level.len] = 0;
    struct device_options o = {.level = l->level.len ? level : NULL,
                               .act = engine_acts[l->activations],
                               .threads = l->threads,
                               .memory_max = l->memory_bytes,
                               .is_counting = en->is_counted};
    en->kv_type = l->kv == API_KV_INT8 ? KV_TYPE_INT8 : backend_kv_type(o.act);
    en->backend = backend_table_pick(l->backend, e);
    if (!en->backend || !en->backend->open(&en->device, &o, e))
        return false;
    en->backend->info(en->device, &en->info);
    if (l->layers && l->layers < en->hparams.n_layer && en->info.memory_free)
        return engine_split(en, l->layers, &o, e);
    return true;
}

/* ledger_bytes: what the endpoint gives this child, 0: no limit. */
static bool engine_check_room(const struct engine *en, uint64_t free_bytes, uint64_t ledger_bytes,
                              struct err *e)
{
    bool is_ledger = ledger_bytes && (!free_bytes || ledger_bytes < free_bytes);
    uint64_t most = is_ledger ? ledger_bytes : free_bytes;
    if (!most || en->weights.bytes <= most)
        return true;
    bool is_gpu = en->info.memory_free != 0;
    struct buf b;
    buf_init(&b, ERR_TEXT_MAX);
    buf_add_z(&b, "the weights need ");
    buf_add_size(&b, en->weights.bytes);
    buf_add_z(&b, is_gpu ? " of GPU memory, but " : " of memory, but ");
    buf_add_size(&b, most);
    buf_add_z(&b, is_ledger ? " are left to it beside the other models"
                  : is_gpu  ? " are free; -ngl N puts the last N layers there, -backend cpu none"
                            : " are free");
    err_set(e, ERR_MEMORY, "%s", b.p ? b.p : "no memory");
    buf_deinit(&b);
    return false;
}

/* Of the memory in which weights and pages lie. RAM that nobody has touched, a step's scratch,
 * still counts as free; a GPU's does not. */
static uint64_t engine_room(struct engine *en)
{
    en->backend->info(en->device, &en->info);
    bool is_gpu = en->info.memory_free != 0;
    uint64_t taken = is_gpu ? en->info.memory_used : en->sizes.weights;
    if (en->is_counted && !en->is_split) /* the halves know their own rooms */
        return en->counted_room > taken ? en->counted_room - taken : 0;
    if (is_gpu)
        return en->info.memory_free;
    struct machine m;
    machine_read(&m);
    return machine_ram_free(&m);
}

/* What is left for pages beside the weights, which are in, and a step's scratch; used: of the
 * child's budget, both together. */
static bool engine_budget(struct engine *en, const struct api_load *l, uint64_t scratch,
                          uint64_t used, struct err *e)
{
    uint64_t available = engine_room(en);
    bool is_gpu = en->info.memory_free != 0;
    struct budget_in in = {.n_ctx = en->hparams.n_ctx, .context = l->context, .slots = l->slots,
                           .batch = l->batch, .layout = &en->layout, .is_gpu = is_gpu};
    in.available = available > scratch ? available - scratch : 0;
    en->sizes.available = in.available;
    used += ENGINE_SMALL_MAX;
    if (l->memory_bytes)
        in.memory_max = l->memory_bytes > used ? l->memory_bytes - used : 1;
    if (l->context > en->hparams.n_ctx)
        return err_set(e, ERR_CONFIG, "ctx: %u tokens, but the model was trained with %u",
                       l->context, en->hparams.n_ctx);
    return budget_make(&in, &en->budget, e);
}

/* Of a step, before it is known for which rows and sequences. */
static void engine_guess_sizes(struct engine *en)
{
    en->backend->info(en->device, &en->info);
    bool is_gpu = en->info.memory_free != 0;
    struct step_limits guess = {.rows_max = is_gpu ? BUDGET_BATCH_GPU : BUDGET_BATCH_AUTO,
                                .seqs_max = BUDGET_SLOTS_AUTO, .outs_max = BUDGET_SLOTS_AUTO};
    en->sizes = (struct engine_sizes){.weights = en->info.memory_used,
                                      .scratch = plan_scratch_size(&en->plan, &guess)};
}

/* Scratch is known once the plan is prepared, for which sequences, rows and context must be: first
 * with a guess, then pages from what is really left. The second answer is never the larger one. */
static bool engine_prepare(struct engine *en, const struct api_load *l, struct err *e)
{
    bool is_gpu = en->info.memory_free != 0;
    const struct budget *b = &en->budget;
    engine_guess_sizes(en);
    uint64_t scratch = en->sizes.scratch, weights = en->sizes.weights;
    if (!engine_budget(en, l, scratch, weights + scratch, e))
        return false;
    en->limits = (struct step_limits){.rows_max = b->rows_max, .seqs_max = b->slots,
                                      .outs_max = b->slots, .top_max = API_TOP_LOGPROBS_MAX,
                                      .layout = &en->layout};
    memcpy(en->limits.pages_max, b->pages_max, sizeof en->limits.pages_max);
    if (!en->backend->prepare(en->device, &en->plan, en->weights.items, &en->limits,
                              &en->prepared, e))
        return false;
    en->backend->info(en->device, &en->info);
    struct budget first = *b;
    en->sizes.scratch = en->info.memory_used - weights;
    scratch = is_gpu ? 0 : en->sizes.scratch; /* as engine_room sees it */
    if (!engine_budget(en, l, scratch, en->info.memory_used, e))
        return false;
    en->budget.context_max = (uint32_t)base_min(b->context_max, first.context_max);
    en->budget.slots = (uint32_t)base_min(b->slots, first.slots);
    for (uint32_t g = 0; g < en->layout.groups_count; g++)
        en->budget.pages_max[g] = (uint32_t)base_min(b->pages_max[g], first.pages_max[g]);
    en->limits.seqs_max = en->limits.outs_max = b->slots;
    memcpy(en->limits.pages_max, b->pages_max, sizeof en->limits.pages_max);
    return true;
}

/* A node holds a page of every group: as many as the largest group has pages. */
static bool engine_open_trie(struct engine *en, struct err *e)
{
    uint32_t nodes = 0;
    for (uint32_t g = 0; g < en->layout.groups_count; g++)
        nodes = (uint32_t)base_max(nodes, en->budget.pages[g]);
    return kv_trie_init(&en->trie, &en->pool, &en->layout, nodes, &en->mem, e);
}

static bool engine_open_pages(struct engine *en, struct err *e)
{
    uint64_t before = en->info.memory_used;
    if (!en->backend->kv_init(en->device, &en->layout, en->budget.pages, 0, e))
        return false;
    en->backend->info(en->device, &en->info);
    en->sizes.pool = en->info.memory_used - before;
    for (uint32_t g = 0; g < en->layout.groups_count; g++)
        if (!en->layout.window[g] || en->layout.groups_count == 1)
            en->model.kv_tokens = en->budget.pages[g] * KV_PAGE_TOKENS;
    return true;
}

static bool engine_open_pool(struct engine *en, bool has_trie, struct err *e)
{
    const struct budget *b = &en->budget;
    en->has_trie = has_trie;
    return engine_open_pages(en, e) &&
           kv_pool_init(&en->pool, b->pages, en->layout.groups_count, ENGINE_COPIES_MAX, &en->mem,
                        e) &&
           (!has_trie || engine_open_trie(en, e));
}

/* One short prompt: touches every kernel of the plan once, and finds weights that are no numbers
 * (a damaged file whose sizes are right). */
static bool engine_try(struct engine *en, struct err *e)
{
    int32_t ids[ENGINE_TRY_ROWS], pos[ENGINE_TRY_ROWS];
    uint16_t seq[ENGINE_TRY_ROWS] = {0};
    uint32_t rows = (uint32_t)base_min(ENGINE_TRY_ROWS, en->budget.context_max);
    uint32_t out_row = rows - 1, page[KV_GROUPS_MAX];
    struct sample_row sample = {.typical_p = 1, .top_p = 1, .raw_k = 1};
    struct step_out out;
    for (uint32_t i = 0; i < rows; i++) {
        ids[i] = (int32_t)(i % en->hparams.n_vocab);
        pos[i] = (int32_t)i;
    }
    struct step s = {.rows = rows, .seqs = 1, .outs = 1, .ids = ids, .pos = pos, .seq = seq,
                     .out_rows = &out_row, .sample = &sample, .kv = {.len = &rows}};
    for (uint32_t g = 0; g < en->layout.groups_count; g++) {
        page[g] = kv_pool_alloc(&en->pool, g);
        s.kv.pages[g] = &page[g];
        s.kv.pages_max[g] = 1;
    }
    bool ok = en->backend->submit(en->device, en->prepared, &s, e) &&
              en->backend->wait(en->device, en->prepared, &out, e);
    for (uint32_t g = 0; g < en->layout.groups_count; g++)
        kv_pool_unref(&en->pool, g, page[g]);
    if (ok && (!isfinite(out.logprob[0]) || out.ids[0] < 0))
        return err_set(e, ERR_FORMAT,
                       "%.*s: its first step gives no numbers; the weights hold NaN or infinity",
                       STR_ARG(model_file_name(en->file)));
    return ok;
}

/* The model's own sampling values (general.sampling.*); out of range: left out. */
static void engine_defaults(struct engine *en)
{
    static const struct { const char *key; enum api_field field; bool is_int; } rows[] = {
        {"general.sampling.temp", API_FIELD_TEMPERATURE, false},
        {"general.sampling.top_k", API_FIELD_TOP_K, true},
        {"general.sampling.top_p", API_FIELD_TOP_P, false},
        {"general.sampling.min_p", API_FIELD_MIN_P, false},
        {"general.sampling.penalty_repeat", API_FIELD_REPEAT_PENALTY, false},
        {"general.sampling.penalty_last_n", API_FIELD_REPEAT_LAST, true},
    };
    struct api_request *rq = &en->prompt.defaults;
    api_request_init(rq);
    for (size_t i = 0; i < countof(rows); i++) {
        float f = 0;
        uint32_t u = 0;
        struct err ignored;
        struct api_error out_of_range;
        if (!model_file_has(en->file, rows[i].key))
            continue;
        bool ok = rows[i].is_int ? model_file_u32(en->file, rows[i].key, &u, &ignored)
                                 : model_file_f32(en->file, rows[i].key, &f, &ignored);
        ok = ok && api_request_set(rq, rows[i].field, rows[i].is_int ? u : (double)f,
                                   str_of(rows[i].key), &out_of_range);
        (void)ok;
    }
}

static uint64_t engine_hash(const struct engine *en)
{
    uint64_t h = digest_xxh3(str_of(en->info.numerics), en->file_hash);
    h = digest_xxh3(en->model.chat_template, h);
    h = digest_xxh3(vocab_model(tok_vocab(en->tok)), h);
    return h ? h : 1; /* 0 means not known */
}

static void engine_finish(struct engine *en, int64_t begin_ns)
{
    en->backend->info(en->device, &en->info);
    en->load_ns = chrono_ns(&chrono_real) - begin_ns;
    en->model.context_max = en->budget.context_max;
    en->file_hash = digest_xxh3(str_view(&en->weights.hash, sizeof en->weights.hash),
                                model_file_header_hash(en->file));
    en->model.model_hash = engine_hash(en);
    en->model.state = API_MODEL_LOADED;
    en->model.device_bytes = en->info.memory_used;
    en->model.gpu_bytes =
        en->info.memory_free ? en->info.memory_used - en->info.memory_host : 0;
    en->model.slots = en->budget.slots;
    en->prompt.tok = en->tok;
    en->prompt.vocab = tok_vocab(en->tok);
    en->prompt.render = en->render;
    en->prompt.constrain = en->constrain;
    en->prompt.context_max = en->budget.context_max;
    en->prompt.model_hash = en->model.model_hash;
    engine_defaults(en);
}

static struct engine *engine_new(struct err *e)
{
    struct engine *en = calloc(1, sizeof *en);
    if (!en) {
        err_set(e, ERR_MEMORY, "model: no memory");
        return NULL;
    }
    arena_init(&en->arena, ENGINE_ARENA_MAX);
    mem_init(&en->mem, SIZE_MAX);
    return en;
}

bool engine_open(struct engine **out, const struct api_load *l,
                 const struct engine_progress *progress, struct err *e)
{
    int64_t begin_ns = chrono_ns(&chrono_real);
    struct engine *en = engine_new(e);
    if (!en)
        return false;
    struct weights_progress bytes = {0};
    if (progress)
        bytes = (struct weights_progress){progress->on_bytes, progress->ctx};
    bool ok = engine_open_text(en, l, e) && engine_open_device(en, l, e) &&
              engine_open_plan(en, e) &&
              engine_check_room(en, engine_room(en), l->memory_bytes, e) &&
              weights_load(&en->weights, en->backend, en->device, progress ? &bytes : NULL, e) &&
              engine_prepare(en, l, e) && engine_open_pool(en, !l->no_prefix, e) &&
              engine_try(en, e);
    if (!ok) {
        engine_close(en);
        return false;
    }
    engine_finish(en, begin_ns);
    *out = en;
    return true;
}

bool engine_size(struct engine **out, const struct api_load *l, uint64_t room, struct err *why,
                 struct err *e)
{
    struct engine *en = engine_new(e);
    *why = (struct err){0};
    if (!en)
        return false;
    en->is_counted = true;
    en->counted_room = room;
    bool ok = engine_open_file(en, l, e) && engine_open_device(en, l, e) &&
              engine_open_plan(en, e) && weights_reserve(&en->weights, en->backend, en->device, e);
    if (ok)
        engine_guess_sizes(en);
    bool fits = ok && (en->is_split || engine_check_room(en, room, l->memory_bytes, why)) &&
                engine_prepare(en, l, why) && engine_open_pages(en, why);
    if (ok && !fits && why->code != ERR_MEMORY) {
        *e = *why;
        ok = false;
    }
    if (!ok) {
        engine_close(en);
        return false;
    }
    if (!fits)
        en->budget = (struct budget){0};
    *out = en;
    return true;
}

void engine_close(struct engine *en)
{
    if (!en)
        return;
    if (en->device)
        en->backend->close(en->device);
    if (en->trie.nodes)
        kv_trie_deinit(&en->trie);
    mem_deinit(&en->mem);
    constrain_free(en->constrain);
    tok_close(en->tok);
    model_file_close(en->file);
    arena_deinit(&en->arena);
    free(en);
}
