#include "kern/kern.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A problem: a matrix in file layout, some columns of activations, and what ref makes of them, one
 * column at a time. A level packs both its own way and must give the same bits for integers; for
 * floats a value within 4e-6 of the sum of absolute products, and the same bits whatever the
 * columns. */

#define COLUMNS_MAX 100u
#define GAP 5u /* floats between the columns of the output, which must stay what they are */

struct problem {
    enum qtype type;
    enum act act;
    enum kern_fill fill;
    size_t rows, in, columns;
    uint8_t *file; /* [rows] in file layout */
    float *x;      /* [columns][in] */
    float *want;   /* [columns][rows], ref's */
    float *bias;   /* [rows] or NULL */
    float scale;
};

static size_t file_row(enum qtype t, size_t in)
{
    return in / quant_table[t].block_elems * quant_table[t].block_bytes;
}

/* Row forms of all columns, one after the other. */
static uint8_t *pack_rows(const struct cpu_form_ops *f, const struct problem *p)
{
    size_t size = f->row_size(p->in);
    uint8_t *rows = kern_new(size * p->columns, 0);
    for (size_t c = 0; c < p->columns; c++)
        f->pack_row(rows + c * size, p->x + c * p->in, p->in);
    return rows;
}

static void join_panels(const struct cpu_form_ops *f, const struct problem *p, const uint8_t *rows,
                        uint8_t *dst, size_t columns)
{
    size_t size = f->row_size(p->in), width = cpu_kernels_panel(f, columns);
    for (size_t c = 0; c < columns; c += width) {
        const void *row[COLUMNS_MAX];
        size_t count = base_min(width, columns - c);
        for (size_t i = 0; i < count; i++)
            row[i] = rows + (c + i) * size;
        f->join(dst + c * size, row, count, p->in);
    }
}

static void solve_by_ref(const struct kern *t, struct problem *p)
{
    const struct cpu_matmul *m = &t->ref->mm[p->act][p->type];
    const struct cpu_form_ops *f = &t->ref->form[m->form];
    uint8_t *rows = pack_rows(f, p);
    void *scratch = kern_new(CPU_MATMUL_SCRATCH, 0);
    for (size_t c = 0; c < p->columns; c++) {
        float *out = p->want + c * p->rows;
        struct matmul_args a = {.type = p->type,
                                .weight = p->file,
                                .act = rows + c * f->row_size(p->in),
                                .out = &out,
                                .bias = p->bias,
                                .scratch = scratch,
                                .rows = p->rows,
                                .in = p->in,
                                .columns = 1,
                                .row_last = p->rows,
                                .scale = p->scale};
        m->gemv(&a);
    }
}

static void fill_problem(const struct kern *t, struct problem *p)
{
    p->scale = 1.0f;
    p->file = kern_new(p->rows * file_row(p->type, p->in), 1); /* a file has any alignment */
    p->x = kern_new(p->columns * p->in * 4, 4);
    p->want = kern_new(p->columns * p->rows * 4, 0);
    kern_fill_blocks(p->file, p->type, p->rows * p->in);
    for (size_t c = 0; c < p->columns; c++)
        kern_fill(p->x + c * p->in, p->in, p->fill);
    if (kern_below(2)) {
        p->scale = 0.37f;
        p->bias = kern_new(p->rows * 4, 4);
        kern_fill(p->bias, p->rows, KERN_FILL_GAUSS);
    }
    solve_by_ref(t, p);
}

/* ---- a level's answer ---- */

struct answer {
    uint8_t *weight;
    uint8_t *rows, *panels;
    float *out; /* [columns][rows + GAP] */
    float *column[COLUMNS_MAX];
    void *scratch;
};

static struct answer make_answer(const struct kern *t, const struct problem *p)
{
    const struct cpu_matmul *m = &t->k->mm[p->act][p->type];
    const struct cpu_form_ops *f = &t->k->form[m->form];
    struct answer a = {.weight = kern_new(m->packed_size(p->type, p->rows, p->in), 0),
                       .rows = pack_rows(f, p),
                       .panels = kern_new(p->columns * f->row_size(p->in), 0),
                       .out = kern_new(p->columns * (p->rows + GAP) * 4, 4),
                       .scratch = kern_new(CPU_MATMUL_SCRATCH, 0)};
    size_t half = p->rows / 2 / CPU_ROWS * CPU_ROWS; /* in two pieces, as a load does */
    struct pack_args pack = {p->type, p->rows, p->in, 0, half};
    if (half)
        m->pack_weight(a.weight, p->file, &pack);
    pack.first = half;
    pack.count = p->rows - half;
    m->pack_weight(a.weight, p->file + half * file_row(p->type, p->in), &pack);
    return a;
}

/* The first `columns` columns, rows cut at multiples of `piece`. */
static void run(const struct kern *t, const struct problem *p, struct answer *a, size_t columns,
                size_t piece)
{
    const struct cpu_matmul *m = &t->k->mm[p->act][p->type];
    for (size_t i = 0; i < p->columns * (p->rows + GAP); i++)
        a->out[i] = -777.0f;
    for (size_t c = 0; c < columns; c++)
        a->column[c] = a->out + c * (p->rows + GAP);
    join_panels(&t->k->form[m->form], p, a->rows, a->panels, columns);
    for (size_t first = 0; first < p->rows; first += piece) {
        struct matmul_args args = {.type = p->type,
                                   .weight = a->weight,
                                   .act = a->panels,
                                   .out = a->column,
                                   .bias = p->bias,
                                   .scratch = a->scratch,
                                   .rows = p->rows,
                                   .in = p->in,
                                   .columns = columns,
                                   .row_first = first,
                                   .row_last = base_min(first + piece, p->rows),
                                   .scale = p->scale};
        if (columns == 1)
            m->gemv(&args);
        else
            m->gemm(&args);
    }
}

static bool gaps_are_whole(const struct problem *p, const struct answer *a)
{
    for (size_t c = 0; c < p->columns; c++)
        for (size_t i = 0; i < GAP; i++)
            if (a->out[c * (p->rows + GAP) + p->rows + i] != -777.0f)
                return false;
    return true;
}

/* ---- what must hold ---- */

static void describe(const struct problem *p, char *text, size_t size)
{
    static const char *const acts[] = {"float", "int8", "int16"};
    snprintf(text, size, "matmul %s %s %zu x %zu, %s%s", quant_name(p->type), acts[p->act],
             p->rows, p->in, kern_fill_name(p->fill), p->bias ? ", bias" : "");
}

static void check_exact(struct kern *t, const struct problem *p, const struct answer *a,
                        size_t columns)
{
    char what[128];
    size_t bad = 0, bad_column = 0;
    bool ok = true;
    for (size_t c = 0; c < columns && ok; c++) {
        bad = kern_differs(a->column[c], p->want + c * p->rows, p->rows);
        bad_column = c;
        ok = bad == p->rows;
    }
    describe(p, what, sizeof what);
    if (ok)
        kern_case(t, gaps_are_whole(p, a), "%s, %zu columns: wrote between columns", what, columns);
    else
        kern_case(t, false, "%s, %zu columns: row %zu of column %zu is %.9g, ref %.9g", what,
                  columns, bad, bad_column, (double)a->column[bad_column][bad],
                  (double)p->want[bad_column * p->rows + bad]);
}

/* A float sum against the exact one. */
static void check_near(struct kern *t, const struct problem *p, const struct answer *a)
{
    char what[128];
    float *w = kern_new(p->in * 4, 0);
    bool ok = true;
    double worst = 0, got = 0, want = 0;
    for (size_t r = 0; r < p->rows && ok; r++) {
        quant_table[p->type].dequant(w, p->file + r * file_row(p->type, p->in), p->in);
        for (size_t c = 0; c < p->columns && ok; c++) {
            double sum = 0, all = 0;
            for (size_t k = 0; k < p->in; k++) {
                double x = (double)w[k] * (double)p->x[c * p->in + k];
                sum += x;
                all += fabs(x);
            }
            double y = (double)p->scale * sum + (p->bias ? (double)p->bias[r] : 0);
            double limit = 4e-6 * (all * (double)p->scale) + 1e-6 * fabs(y) + 1e-36;
            double d = fabs((double)a->column[c][r] - y);
            if (isnan(y) || isinf(y) || all > 1e38)
                continue;
            ok = d <= limit;
            worst = d / limit;
            got = (double)a->column[c][r];
            want = y;
        }
    }
    describe(p, what, sizeof what);
    kern_case(t, ok, "%s: %.9g, exact %.9g, %.1f times the bound", what, got, want, worst);
}

/* Each column alone gives the bits it has among the others. */
static void check_columns(struct kern *t, struct problem *p, struct answer *a, size_t columns)
{
    char what[128];
    float *all = kern_new(columns * p->rows * 4, 0);
    for (size_t c = 0; c < columns; c++)
        memcpy(all + c * p->rows, a->column[c], p->rows * 4);
    struct problem one = *p;
    one.columns = 1;
    describe(p, what, sizeof what);
    for (size_t c = 0; c < columns; c++) {
        struct answer b = *a;
        const struct cpu_form_ops *f = &t->k->form[t->k->mm[p->act][p->type].form];
        b.rows = a->rows + c * f->row_size(p->in);
        one.x = p->x + c * p->in;
        run(t, &one, &b, 1, p->rows);
        size_t bad = kern_differs(b.column[0], all + c * p->rows, p->rows);
        kern_case(t, bad == p->rows, "%s: column %zu of %zu differs from itself alone, row %zu",
                  what, c, columns, bad);
    }
}

static void check_problem(struct kern *t, struct problem *p)
{
    struct answer a = make_answer(t, p);
    bool is_exact = t->k->mm[p->act][p->type].form != CPU_FORM_F32;
    for (size_t n = 1; n <= p->columns; n = n < 13 ? n + 1 : n + 7) {
        run(t, p, &a, n, p->rows);
        if (is_exact)
            check_exact(t, p, &a, n);
    }
    run(t, p, &a, p->columns, p->rows);
    if (!is_exact) {
        check_near(t, p, &a);
        check_columns(t, p, &a, p->columns);
        run(t, p, &a, p->columns, p->rows);
    }
    float *whole = kern_new(p->columns * (p->rows + GAP) * 4, 0);
    memcpy(whole, a.out, p->columns * (p->rows + GAP) * 4);
    run(t, p, &a, p->columns, CPU_ROWS * (1 + kern_below(3)));
    char what[128];
    describe(p, what, sizeof what);
    kern_case(t, kern_differs(whole, a.out, p->columns * (p->rows + GAP)) ==
                     p->columns * (p->rows + GAP),
              "%s: other bits when the rows are cut", what);
    kern_case(t, kern_free_all(), "%s: wrote outside its memory", what);
}

/* Inputs per row: at tile edges, and past one part of the panel. */
static size_t in_of(enum qtype type, size_t i)
{
    static const size_t blocks_32[] = {1, 2, 17, 33}, blocks_256[] = {1, 2, 3, 5};
    size_t block = quant_table[type].block_elems;
    if (block == 256)
        return 256 * blocks_256[i];
    if (block > 1)
        return base_align(32 * blocks_32[i], block);
    return blocks_32[i] * 37 + i; /* float types take any number */
}

/* Columns of shape i: past every tile's edge where `is_chosen`, which over the types meets every
 * shape with every fill. In the full tier the other pairs run too, over fewer columns, except at
 * ref, which has no tiles. The long tier has the whole product. */
static size_t columns_of(const struct kern *t, size_t i, bool is_chosen)
{
    if (t->is_long || (t->is_full && is_chosen && !t->is_ref))
        return i == 3 ? 61 : 33;
    return i == 3 ? 15 : 7;
}

static void check_type(struct kern *t, enum act act, enum qtype type)
{
    static const size_t rows[] = {1, 17, 47, 77};
    for (size_t i = 0; i < 4; i++)
        for (unsigned f = 0; f < KERN_FILL_COUNT; f++) {
            bool is_spread = f == KERN_FILL_OUTLIER && quant_table[type].act_block == 256;
            bool is_chosen = f == (i * 2 + (unsigned)type + (unsigned)act) % KERN_FILL_COUNT;
            bool is_all = t->is_long || (t->is_full && !t->is_ref); /* ref is its own truth */
            if (!is_all && !is_spread && !is_chosen)
                continue;
            struct problem p = {.type = type, .act = act, .fill = (enum kern_fill)f,
                                .rows = rows[i], .in = in_of(type, i),
                                .columns = columns_of(t, i, is_chosen)};
            fill_problem(t, &p);
            check_problem(t, &p);
        }
}

void kern_matmul(struct kern *t)
{
    for (unsigned type = 0; type < QTYPE_WEIGHT_COUNT; type++)
        for (unsigned act = ACT_F32; act < ACT_COUNT; act++)
            check_type(t, (enum act)act, (enum qtype)type);
}

/* ---- forms, weights read back ---- */

static void check_form(struct kern *t, enum cpu_form form, size_t in, enum kern_fill fill)
{
    const struct cpu_form_ops *f = &t->k->form[form], *r = &t->ref->form[form];
    size_t size = f->row_size(in);
    float *x = kern_new(in * 4, 4);
    kern_fill(x, in, fill);
    uint8_t *a = kern_new(size, 0), *b = kern_new(size, 0);
    f->pack_row(a, x, in);
    r->pack_row(b, x, in);
    bool is_same = form != CPU_FORM_F32 || fill != KERN_FILL_POISON;
    kern_case(t, memcmp(a, b, size) == 0 || !is_same,
              "form %d, %zu inputs, %s: other bytes than ref", (int)form, in,
              kern_fill_name(fill));
    for (size_t n = 1; n <= base_max(f->whole, f->panel); n++) {
        const void *rows[64];
        uint8_t *many = kern_new(size * n, 0), *panel = kern_new(size * n, 0);
        bool ok = true;
        for (size_t c = 0; c < n; c++) {
            kern_fill(x, in, fill);
            f->pack_row(many + c * size, x, in);
            rows[c] = many + c * size;
        }
        f->join(panel, rows, n, in);
        struct cpu_form_layout l = cpu_kernels_form_layout(form, in);
        const size_t ends[] = {0, l.d, l.neg, l.sum, l.factor, l.size};
        for (size_t s = 0; s < 5; s++)
            for (size_t i = 0; ends[s + 1] > ends[s] && i < (ends[s + 1] - ends[s]) / 4; i++)
                for (size_t c = 0; c < n; c++)
                    ok &= memcmp(panel + ends[s] * n + (i * n + c) * 4,
                                 many + c * size + ends[s] + i * 4, 4) == 0;
        kern_case(t, ok, "form %d, %zu inputs: a panel of %zu is not its rows", (int)form, in, n);
    }
    kern_case(t, kern_free_all(), "form %d, %zu inputs: wrote outside", (int)form, in);
}

/* Packed weights give quant's values back. */
static void check_unpack(struct kern *t, enum act act, enum qtype type)
{
    const struct cpu_matmul *m = &t->k->mm[act][type];
    size_t in = in_of(type, 2), rows = 21;
    uint8_t *file = kern_new(rows * file_row(type, in), 1);
    uint8_t *packed = kern_new(m->packed_size(type, rows, in), 0);
    float *a = kern_new(in * 4, 0), *b = kern_new(in * 4, 0);
    struct pack_args pack = {type, rows, in, 0, rows};
    bool ok = true;
    kern_fill_blocks(file, type, rows * in);
    m->pack_weight(packed, file, &pack);
    for (size_t r = 0; r < rows; r++) {
        m->unpack_row(type, a, packed, r, rows, in);
        quant_table[type].dequant(b, file + r * file_row(type, in), in);
        for (size_t i = 0; i < in; i++)
            ok &= a[i] == b[i]; /* zeros of either sign are equal */
    }
    kern_case(t, ok, "unpack %s: other values than quant", quant_name(type));
    kern_case(t, kern_free_all(), "unpack %s: wrote outside", quant_name(type));
}

void kern_forms(struct kern *t)
{
    static const size_t blocks[] = {1, 3, 18};
    for (unsigned form = 0; form < CPU_FORM_COUNT; form++)
        for (size_t i = 0; i < countof(blocks); i++)
            for (unsigned f = 0; f < KERN_FILL_COUNT; f++) {
                size_t block = t->k->form[form].block;
                size_t in = block * blocks[i] + (block == 1 ? i : 0);
                check_form(t, (enum cpu_form)form, in, (enum kern_fill)f);
            }
    for (unsigned type = 0; type < QTYPE_WEIGHT_COUNT; type++)
        for (unsigned act = ACT_F32; act < ACT_COUNT; act++)
            check_unpack(t, (enum act)act, (enum qtype)type);
}
