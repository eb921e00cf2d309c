#include "kern/kern.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A sequence in pages that lie in any order: written by both, then attended block by block and
 * merged. Everything must be equal to ref's in its bits. */

struct problem {
    struct op_attn op;
    struct op_kv kv;
    uint32_t tokens, rows; /* stored; the last rows of them ask */
    enum kern_fill fill;
    enum kv_type type;
    size_t page_size;
    uint32_t pages;
    uint8_t *got, *want; /* pages, as the level and as ref wrote them */
    uint32_t *order;     /* page of positions 32 i .. */
    float *q;
    int32_t *pos;
};

static void describe(const struct problem *p, char *text, size_t size)
{
    snprintf(text, size,
             "attn %s, %u/%u heads, dk %u, dv %u, %u tokens, %u rows, window %u, %s%s%s",
             kv_type_name(p->type), p->op.heads, p->op.kv_heads, p->op.dk,
             p->op.dv, p->tokens, p->rows, p->op.window, kern_fill_name(p->fill),
             p->op.softcap > 0 ? ", softcap" : "", p->op.mask == OP_MASK_FULL ? ", full" : "");
}

static void write_pages(struct kern *t, struct problem *p)
{
    char what[160];
    size_t dk = p->op.dk * p->op.kv_heads, dv = p->op.dv * p->op.kv_heads;
    float *k = kern_new(p->tokens * (dk + 3) * 4, 4), *v = kern_new(p->tokens * dv * 4, 0);
    uint8_t **to = kern_new(p->tokens * sizeof(*to), 0);
    int32_t *pos = kern_new(p->tokens * 4, 0);
    kern_fill(k, p->tokens * (dk + 3), p->fill);
    kern_fill(v, p->tokens * dv, p->fill);
    struct kv_write_args a = {.k = {k, dk + 3, dk, (uint32_t)dk, 1},
                              .v = {v, dv, p->op.dv, p->op.dv, p->op.kv_heads},
                              .page = to, .pos = pos, .op = &p->kv, .rows = p->tokens,
                              .type = p->type};
    for (uint32_t i = 0; i < p->tokens; i++) {
        pos[i] = (int32_t)i;
        to[i] = p->got + p->order[i / KV_PAGE_TOKENS] * p->page_size;
    }
    t->k->kv_write(&a);
    for (uint32_t i = 0; i < p->tokens; i++)
        to[i] = p->want + p->order[i / KV_PAGE_TOKENS] * p->page_size;
    t->ref->kv_write(&a);
    describe(p, what, sizeof what);
    kern_case(t, memcmp(p->got, p->want, p->pages * p->page_size) == 0, "%s: other page bytes",
              what);
}

/* The states of `rows` rows from row `first` on, one K/V head; sinks where there is a score. */
static void attend(const struct cpu_kernels *k, const struct problem *p, const uint8_t *pages,
                   uint32_t first, uint32_t rows, float *state)
{
    uint32_t heads = p->op.heads / p->op.kv_heads;
    size_t width = cpu_kernels_state_width(p->op.dv), count = rows * heads;
    float *part = kern_new(count * width * 4, 4);
    void *scratch = kern_new(CPU_ATTN_SCRATCH, 0);
    size_t k_size = p->op.kv_heads * kv_head_size(p->type, p->op.dk);
    for (size_t i = 0; i < count; i++) {
        memset(state + i * width, 0, width * 4);
        state[i * width] = i % 3 ? -INFINITY : 0.5f;
        state[i * width + 1] = i % 3 ? 0.0f : 1.0f;
    }
    for (uint32_t block = 0; block < p->tokens; block += CPU_ATTN_BLOCK) {
        struct attn_args a = {.q = p->q + first * (p->op.heads * p->op.dk + 5),
                              .q_row = p->op.heads * p->op.dk + 5,
                              .q_head = p->op.dk,
                              .rows = rows,
                              .heads = heads,
                              .pos = p->pos + first,
                              .type = p->type,
                              .first = block,
                              .tokens = (uint32_t)base_min(CPU_ATTN_BLOCK, p->tokens - block),
                              .op = &p->op,
                              .state = part,
                              .scratch = scratch};
        for (uint32_t i = 0; i * KV_PAGE_TOKENS < a.tokens; i++) {
            uint32_t at = block / KV_PAGE_TOKENS + i;
            const uint8_t *page = pages + p->order[at] * p->page_size;
            bool is_gone = p->op.window && (at + 1) * KV_PAGE_TOKENS + p->op.window <=
                                               (uint32_t)p->pos[0];
            a.k[i] = is_gone ? NULL : page;
            a.v[i] = is_gone ? NULL : page + k_size;
        }
        k->attn_block(&a);
        struct attn_merge_args m = {state, part, (uint32_t)count, p->op.dv};
        k->attn_merge(&m);
    }
}

static void check_attend(struct kern *t, struct problem *p)
{
    char what[160];
    uint32_t heads = p->op.heads / p->op.kv_heads;
    size_t width = cpu_kernels_state_width(p->op.dv), n = p->rows * heads * width;
    float *got = kern_new(n * 4, 4), *want = kern_new(n * 4, 4), *alone = kern_new(n * 4, 4);
    describe(p, what, sizeof what);
    attend(t->ref, p, p->want, 0, p->rows, want);
    attend(t->k, p, p->want, 0, p->rows, got);
    size_t bad = kern_differs(got, want, n);
    kern_case(t, bad == n, "%s: state %zu, number %zu is %.9g, ref %.9g", what, bad / width,
              bad % width, (double)got[bad < n ? bad : 0], (double)want[bad < n ? bad : 0]);
    for (uint32_t r = 0; r < p->rows; r++) { /* row by row: the same bits */
        float *one = alone + r * heads * width;
        attend(t->k, p, p->want, r, 1, one);
        for (uint32_t h = 0; h < heads; h++) /* the sinks of this test follow the index */
            if ((r * heads + h) % 3 == h % 3)
                kern_case(t, kern_differs(one + h * width, got + (r * heads + h) * width, width) ==
                                 width,
                          "%s: row %u differs from itself alone", what, r);
    }
    float *out = kern_new(p->rows * heads * (p->op.dv + 3) * 4, 4);
    float *ref_out = kern_new(p->rows * heads * (p->op.dv + 3) * 4, 4);
    memset(out, 0, p->rows * heads * (p->op.dv + 3) * 4);
    memset(ref_out, 0, p->rows * heads * (p->op.dv + 3) * 4);
    struct attn_finish_args f = {want, out, p->op.dv + 3, p->rows * heads, p->op.dv};
    t->k->attn_finish(&f);
    f.out = ref_out;
    t->ref->attn_finish(&f);
    n = p->rows * heads * (p->op.dv + 3);
    kern_case(t, kern_differs(out, ref_out, n) == n, "%s: finish", what);
}

static void check_type(struct kern *t, enum kv_type type, struct op_attn op, uint32_t tokens,
                       uint32_t rows, enum kern_fill fill)
{
    struct problem p = {.op = op, .tokens = tokens, .rows = rows, .fill = fill, .type = type};
    p.kv = (struct op_kv){op.kv_heads, op.dk, op.dv, op.window};
    p.pages = (tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    p.page_size = op.kv_heads * (kv_head_size(type, op.dk) + kv_head_size(type, op.dv));
    p.got = kern_new(p.pages * p.page_size, 0);
    p.want = kern_new(p.pages * p.page_size, 0);
    p.order = kern_new(p.pages * 4, 0);
    p.q = kern_new(rows * (op.heads * op.dk + 5) * 4, 4);
    p.pos = kern_new(rows * 4, 0);
    memset(p.got, 0, p.pages * p.page_size);
    memset(p.want, 0, p.pages * p.page_size);
    enum kern_fill q_fill = fill == KERN_FILL_POISON ? KERN_FILL_GAUSS : fill;
    kern_fill(p.q, rows * (op.heads * op.dk + 5), q_fill);
    for (uint32_t i = 0; i < p.pages; i++)
        p.order[i] = i;
    for (uint32_t i = p.pages; i > 1; i--) { /* pages in any order */
        uint32_t j = kern_below(i), x = p.order[i - 1];
        p.order[i - 1] = p.order[j];
        p.order[j] = x;
    }
    for (uint32_t r = 0; r < rows; r++)
        p.pos[r] = (int32_t)(tokens - rows + r);
    write_pages(t, &p);
    check_attend(t, &p);
    char what[160];
    describe(&p, what, sizeof what);
    kern_case(t, kern_free_all(), "%s: wrote outside", what);
}

static void check(struct kern *t, struct op_attn op, uint32_t tokens, uint32_t rows,
                  enum kern_fill fill)
{
    for (unsigned type = 0; type < KV_TYPE_COUNT; type++)
        check_type(t, (enum kv_type)type, op, tokens, rows, fill);
}

void kern_attn(struct kern *t)
{
    static const struct {
        uint32_t heads, kv_heads, dk, dv;
    } kinds[] = {{1, 1, 8, 8}, {3, 1, 64, 64}, {4, 2, 80, 40}, {7, 1, 64, 64}, {2, 2, 128, 256}};
    static const uint32_t tokens[] = {1, 31, 33, 256, 257, 600};
    static const uint32_t rows[] = {1, 2, 5, 16};
    for (size_t i = 0; i < countof(kinds); i++)
        for (size_t n = 0; n < countof(tokens); n++)
            for (size_t r = 0; r < countof(rows); r++) {
                if (rows[r] > tokens[n] || (!t->is_full && (i + n + r) % 3))
                    continue;
                enum kern_fill f = (enum kern_fill)((i + n + r) % KERN_FILL_COUNT);
                struct op_attn op = {.heads = kinds[i].heads, .kv_heads = kinds[i].kv_heads,
                                     .dk = kinds[i].dk, .dv = kinds[i].dv, .scale = 0.17f};
                check(t, op, tokens[n], rows[r], f);
                op.window = 40;
                check(t, op, tokens[n], rows[r], KERN_FILL_GAUSS);
                op.window = 0;
                op.softcap = 30.0f;
                check(t, op, tokens[n], rows[r], f);
                op.mask = OP_MASK_FULL;
                check(t, op, tokens[n], rows[r], KERN_FILL_GAUSS);
            }
}
