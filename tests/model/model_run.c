#include "model/model_run.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/halves.h"

#define TINY_MAX 64u

static void fail(const char *what, const struct err *e)
{
    fprintf(stderr, "model_run: %s: %s\n", what, e->text);
    exit(1);
}

size_t model_run_tiny(const char *const **names)
{
    static char text[TINY_MAX][32];
    static const char *list[TINY_MAX];
    glob_t found;
    must(glob("tests/golden/tiny/*.bin", 0, NULL, &found) == 0 && found.gl_pathc <= TINY_MAX);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *name = strrchr(found.gl_pathv[i], '/') + 1;
        size_t len = strlen(name) - strlen(".bin");
        must(len < sizeof text[0]);
        memcpy(text[i], name, len);
        text[i][len] = 0;
        list[i] = text[i];
    }
    size_t count = found.gl_pathc;
    globfree(&found);
    *names = list;
    return count;
}

/* An odd factor over a power of two names each page once. */
static uint32_t own_page(uint32_t group, uint32_t seq, uint32_t i)
{
    uint32_t total = MODEL_RUN_SEQS * MODEL_RUN_PAGES;
    return ((seq * MODEL_RUN_PAGES + i) * 2654435761u + 77 * group) % total;
}

static uint32_t *row_of(const struct model_run *m, uint32_t group, uint32_t seq)
{
    return m->pages[group] + (size_t)seq * MODEL_RUN_PAGES;
}

void model_run_clear(struct model_run *m, uint32_t seq)
{
    m->len[seq] = 0;
    for (uint32_t g = 0; g < m->layout->groups_count; g++)
        for (uint32_t i = 0; i < MODEL_RUN_PAGES; i++)
            row_of(m, g, seq)[i] = own_page(g, seq, i);
}

void model_run_fork(struct model_run *m, uint32_t from, uint32_t to, uint32_t tokens)
{
    model_run_clear(m, to);
    must(tokens <= m->len[from]);
    m->len[to] = tokens;
    for (uint32_t g = 0; g < m->layout->groups_count; g++) {
        uint32_t whole = tokens / KV_PAGE_TOKENS;
        memcpy(row_of(m, g, to), row_of(m, g, from), whole * sizeof(uint32_t));
        if (tokens % KV_PAGE_TOKENS)
            m->copies[m->copies_count++] = (struct kv_copy){
                .group = g, .from = row_of(m, g, from)[whole], .to = row_of(m, g, to)[whole]};
    }
}

void model_run_restore(struct model_run *m, uint32_t from, uint32_t to, uint32_t tokens)
{
    struct err e;
    model_run_clear(m, to);
    must(tokens <= m->len[from]);
    m->len[to] = tokens;
    for (uint32_t g = 0; g < m->layout->groups_count; g++) {
        uint8_t *page = malloc(m->layout->page_size[g]);
        for (uint32_t i = 0; i * KV_PAGE_TOKENS < tokens; i++) {
            struct kv_ref src = {.group = g, .index = row_of(m, g, from)[i]};
            struct kv_ref dst = {.group = g, .index = row_of(m, g, to)[i]};
            if (!m->backend->kv_get(m->device, src, page, &e) ||
                !m->backend->kv_set(m->device, dst, page, &e))
                fail("pages", &e);
        }
        free(page);
    }
}

static void init_pages(struct model_run *m)
{
    uint32_t total[KV_GROUPS_MAX] = {0};
    struct err e;
    for (uint32_t g = 0; g < m->layout->groups_count; g++) {
        total[g] = MODEL_RUN_SEQS * MODEL_RUN_PAGES;
        m->pages[g] = calloc(total[g], sizeof(uint32_t));
    }
    for (uint32_t seq = 0; seq < MODEL_RUN_SEQS; seq++)
        model_run_clear(m, seq);
    if (!m->backend->kv_init(m->device, m->layout, total, 0, &e))
        fail("kv_init", &e);
}

/* The first layers always on the CPU. */
static void open_device(struct model_run *m, const struct model_run_options *o)
{
    struct err e;
    struct device_options d = {.level = o->level, .act = o->act,
                               .threads = o->threads ? o->threads : 1};
    struct halves_parts parts = {.lower = backend_table_find(STR("cpu")), .upper = m->backend,
                                .layers = o->upper};
    if (!m->backend->open(&m->device, &d, &e))
        fail("device", &e);
    if (!o->upper)
        return;
    parts.upper_device = m->device;
    m->backend = &halves_backend;
    if (!parts.lower->open(&parts.lower_device, &d, &e) || !halves_join(&m->device, &parts, &e))
        fail("halves", &e);
}

void model_run_open(struct model_run *m, const char *path, const struct model_run_options *o)
{
    struct err e;
    *m = (struct model_run){.hp = malloc(sizeof(struct hparams)),
                            .layout = malloc(sizeof(struct kv_layout))};
    arena_init(&m->arena, (size_t)64 << 20);
    plan_init(&m->plan, &m->arena, PLAN_KIND_MAIN);
    const char *backend = o->backend ? o->backend : getenv("TEST_BACKEND");
    m->backend = backend_table_pick(str_of(backend ? backend : "cpu"), &e);
    if (!m->backend)
        fail("backend", &e);
    open_device(m, o);
    struct step_limits limits = {.rows_max = MODEL_RUN_ROWS, .seqs_max = MODEL_RUN_SEQS,
                                 .outs_max = MODEL_RUN_ROWS, .top_max = 32};
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++)
        limits.pages_max[g] = MODEL_RUN_PAGES;
    if (!model_file_open(&m->file, path, &e) || !arch_read(m->hp, m->file, &e))
        fail(path, &e);
    if (!m->hp->arch->build(&m->plan, PLAN_KIND_MAIN, m->hp, &e) ||
        !plan_expand(&m->plan, m->backend->ops, &e) || !plan_finish(&m->plan, &e) ||
        !plan_kv_layout(&m->plan, o->is_kv_int8 ? KV_TYPE_INT8 : backend_kv_type(o->act), m->layout,
                        &e))
        fail("plan", &e);
    if (!weights_bind(&m->weights, &m->plan, m->file, m->hp->arch->ignored, &m->arena, &e) ||
        (m->backend->expect && !m->backend->expect(m->device, &m->plan, &e)) ||
        !weights_load(&m->weights, m->backend, m->device, NULL, &e))
        fail("weights", &e);
    init_pages(m);
    if (!m->backend->prepare(m->device, &m->plan, m->weights.items, &limits, &m->prepared, &e))
        fail("prepare", &e);
    m->backend->info(m->device, &m->info);
}

void model_run_close(struct model_run *m)
{
    weights_free(&m->weights, m->backend, m->device);
    m->backend->close(m->device);
    model_file_close(m->file);
    arena_deinit(&m->arena);
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++)
        free(m->pages[g]);
    free(m->hp);
    free(m->layout);
}

struct rows {
    int32_t ids[MODEL_RUN_ROWS], pos[MODEL_RUN_ROWS];
    uint16_t seq[MODEL_RUN_ROWS];
    uint32_t out_rows[MODEL_RUN_ROWS];
    struct sample_row sample[MODEL_RUN_ROWS];
    uint32_t len[MODEL_RUN_SEQS];
    uint32_t *pages[KV_GROUPS_MAX];
};

/* The sequence's rows of pages, those behind the window of its first new token taken away. */
static void put_pages(const struct model_run *m, struct rows *r, uint32_t s, uint32_t seq)
{
    for (uint32_t g = 0; g < m->layout->groups_count; g++) {
        uint32_t *dst = r->pages[g] + (size_t)s * MODEL_RUN_PAGES;
        uint32_t window = m->layout->window[g];
        uint32_t first = window && m->len[seq] >= window ? m->len[seq] - window + 1 : 0;
        for (uint32_t i = 0; i < MODEL_RUN_PAGES; i++)
            dst[i] = (i + 1) * KV_PAGE_TOKENS <= first
                         ? KV_PAGE_NONE
                         : row_of(m, g, seq)[i];
    }
}

static void add_piece(struct model_run *m, struct rows *r, struct step *s,
                      const struct model_run_piece *p)
{
    must(m->len[p->seq] + p->count <= MODEL_RUN_TOKENS && s->rows + p->count <= MODEL_RUN_ROWS);
    put_pages(m, r, s->seqs, p->seq);
    for (uint32_t i = 0; i < p->count; i++) {
        r->ids[s->rows] = p->ids[i];
        r->pos[s->rows] = (int32_t)(m->len[p->seq] + i);
        r->seq[s->rows] = (uint16_t)s->seqs;
        if (i >= p->count - p->outs) {
            uint32_t out = i - (p->count - p->outs);
            r->sample[s->outs] = p->pick ? p->pick[out]
                                         : (struct sample_row){.typical_p = 1, .top_p = 1};
            r->out_rows[s->outs++] = s->rows;
        }
        s->rows++;
    }
    m->len[p->seq] += p->count;
    r->len[s->seqs++] = m->len[p->seq];
}

static void take_answers(struct model_run *m, const struct model_run_piece *p, uint32_t *out,
                         const struct step_out *o)
{
    struct err e;
    for (uint32_t i = 0; i < p->outs; i++, (*out)++) {
        float *dst = p->logits ? p->logits + (size_t)i * m->plan.vocab : NULL;
        if (dst && !m->backend->logits_row(m->device, m->prepared, *out, dst, &e))
            fail("logits_row", &e);
        if (p->picked)
            p->picked[i] = o->ids[*out];
    }
}

void model_run_step(struct model_run *m, const struct model_run_piece *pieces, uint32_t count)
{
    struct rows *r = calloc(1, sizeof *r);
    struct step s = {.ids = r->ids, .pos = r->pos, .seq = r->seq, .out_rows = r->out_rows,
                     .sample = r->sample, .copies = m->copies,
                     .copies_count = m->copies_count};
    for (uint32_t g = 0; g < m->layout->groups_count; g++) {
        r->pages[g] = calloc((size_t)MODEL_RUN_SEQS * MODEL_RUN_PAGES, sizeof(uint32_t));
        s.kv.pages[g] = r->pages[g];
        s.kv.pages_max[g] = MODEL_RUN_PAGES;
    }
    s.kv.len = r->len;
    for (uint32_t i = 0; i < count; i++)
        add_piece(m, r, &s, &pieces[i]);
    struct step_out o;
    struct err e;
    if (!m->backend->submit(m->device, m->prepared, &s, &e) ||
        !m->backend->wait(m->device, m->prepared, &o, &e))
        fail("step", &e);
    m->copies_count = 0;
    uint32_t out = 0;
    for (uint32_t i = 0; i < count; i++)
        take_answers(m, &pieces[i], &out, &o);
    for (uint32_t g = 0; g < m->layout->groups_count; g++)
        free(r->pages[g]);
    free(r);
}

uint32_t model_run_argmax(const float *logits, uint32_t vocab)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}
