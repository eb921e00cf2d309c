/* ref_attn: blocks, merged in order, are softmax attention; grouping rows changes no bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/cpu_kernels.h"
#include "cpu/vmath.h"
#include "tensor/sample.h"

#define TOKENS 600u
#define PAGES ((TOKENS + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS)
#define DK 24u
#define DV 20u
#define KV_HEADS 2u
#define HEADS 6u
#define PER_HEAD (HEADS / KV_HEADS)
#define STATE (2u + DV)

static struct cpu_kernels kernels;

struct world {
    float k[TOKENS][KV_HEADS * DK], v[TOKENS][KV_HEADS * DV], q[TOKENS][HEADS * DK];
    int32_t pos[TOKENS];
    uint8_t *page[PAGES]; /* NULL: not there */
    uint8_t *row_page[TOKENS];
    uint8_t *scratch;
};

static float noise(uint32_t i) { return sample_uniform(21, i, 0) * 2.0f - 1.0f; }

#define K_SIZE kv_head_size(KV_TYPE_F16, DK) /* of one head in a page */
#define V_SIZE kv_head_size(KV_TYPE_F16, DV)

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    const struct op_kv kv = {KV_HEADS, DK, DV, 0};
    cpu_kernels_init(&kernels, CPU_LEVEL_REF, false);
    w->scratch = malloc(CPU_ATTN_SCRATCH);
    size_t page_size = KV_HEADS * (K_SIZE + V_SIZE);
    for (uint32_t i = 0; i < PAGES; i++)
        w->page[i] = calloc(1, page_size);
    for (uint32_t t = 0; t < TOKENS; t++) {
        w->pos[t] = (int32_t)t;
        w->row_page[t] = w->page[t / KV_PAGE_TOKENS];
        for (uint32_t i = 0; i < KV_HEADS * DK; i++)
            w->k[t][i] = 2.0f * noise(t * 1000 + i);
        for (uint32_t i = 0; i < KV_HEADS * DV; i++)
            w->v[t][i] = noise(t * 1000 + 500 + i);
        for (uint32_t i = 0; i < HEADS * DK; i++)
            w->q[t][i] = 2.0f * noise(1000000 + t * 1000 + i);
    }
    struct kv_write_args a = {.k = {w->k[0], KV_HEADS * DK, KV_HEADS * DK, KV_HEADS * DK, 1},
                              .v = {w->v[0], KV_HEADS * DV, KV_HEADS * DV, KV_HEADS * DV, 1},
                              .page = w->row_page, .pos = w->pos, .op = &kv, .rows = TOKENS};
    kernels.kv_write(&a);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    for (uint32_t i = 0; i < PAGES; i++)
        free(w->page[i]);
    free(w->scratch);
    free(w);
    return 0;
}

/* Rows [first, first + rows) and one K/V head, `group` rows per call. */
struct query {
    uint32_t first, rows, group, head;
    float sink; /* NAN: none */
};

/* out[rows][heads][DV] */
static void attend(struct world *w, const struct op_attn *op, struct query x, float *out)
{
    uint32_t h = x.head;
    for (uint32_t r = x.first; r < x.first + x.rows; r += x.group) {
        uint32_t count = (uint32_t)base_min(x.group, x.first + x.rows - r);
        float total[16 * PER_HEAD * STATE] = {0}, block[16 * PER_HEAD * STATE];
        for (uint32_t i = 0; i < count * PER_HEAD; i++)
            total[i * STATE] = -INFINITY;
        for (uint32_t at = 0; at < TOKENS; at += CPU_ATTN_BLOCK) {
            struct attn_args a = {.q = &w->q[r][h * PER_HEAD * DK], .q_row = HEADS * DK,
                                  .q_head = DK, .rows = count, .heads = PER_HEAD,
                                  .pos = w->pos + r, .first = at, .op = op, .state = block,
                                  .tokens = (uint32_t)base_min(CPU_ATTN_BLOCK, TOKENS - at),
                                  .scratch = w->scratch};
            for (uint32_t i = 0; i < CPU_ATTN_PAGES && at / KV_PAGE_TOKENS + i < PAGES; i++) {
                const uint8_t *page = w->page[at / KV_PAGE_TOKENS + i];
                a.k[i] = page ? page + h * K_SIZE : NULL;
                a.v[i] = page ? page + KV_HEADS * K_SIZE +
                                    h * V_SIZE
                              : NULL;
            }
            kernels.attn_block(&a);
            struct attn_merge_args m = {total, block, count * PER_HEAD, DV};
            kernels.attn_merge(&m);
        }
        if (!isnan(x.sink)) {
            for (uint32_t i = 0; i < count * PER_HEAD; i++) {
                memset(block + i * STATE, 0, STATE * sizeof(float));
                block[i * STATE] = x.sink;
                block[i * STATE + 1] = 1.0f;
            }
            struct attn_merge_args m = {total, block, count * PER_HEAD, DV};
            kernels.attn_merge(&m);
        }
        struct attn_finish_args f = {total, out + (size_t)(r - x.first) * PER_HEAD * DV, DV,
                                     count * PER_HEAD, DV};
        kernels.attn_finish(&f);
    }
}

/* The definition in double, K and V rounded to f16 as they are stored. */
static void truth(const struct world *w, const struct op_attn *op, uint32_t row, uint32_t head,
                  float sink, double *out)
{
    static double score[TOKENS];
    double best = isnan(sink) ? -INFINITY : (double)sink, sum = 0;
    uint32_t h = head / PER_HEAD;
    for (uint32_t t = 0; t < TOKENS; t++) {
        bool is_seen = (op->mask == OP_MASK_FULL || t <= row) &&
                       (op->window == 0 || t + op->window > row) && w->page[t / KV_PAGE_TOKENS];
        score[t] = is_seen ? 0 : -INFINITY;
        for (uint32_t i = 0; is_seen && i < DK; i++)
            score[t] += (double)w->q[row][head * DK + i] *
                        (double)base_f16_to_f32(base_f32_to_f16(w->k[t][h * DK + i]));
        score[t] *= (double)op->scale;
        if (op->softcap > 0 && is_seen)
            score[t] = (double)op->softcap * tanh(score[t] / (double)op->softcap);
        best = fmax(best, score[t]);
    }
    sum = isnan(sink) ? 0 : exp((double)sink - best);
    memset(out, 0, DV * sizeof *out);
    for (uint32_t t = 0; t < TOKENS; t++) {
        double p = exp(score[t] - best);
        sum += p;
        for (uint32_t i = 0; i < DV; i++)
            out[i] += p * (double)base_f16_to_f32(base_f32_to_f16(w->v[t][h * DV + i]));
    }
    for (uint32_t i = 0; i < DV; i++)
        out[i] /= sum;
}

static const struct op_attn causal = {.heads = HEADS, .kv_heads = KV_HEADS, .dk = DK, .dv = DV,
                                      .scale = 0.3f};

static void check(struct world *w, const struct op_attn *op, float sink, const char *what)
{
    static const uint32_t rows[] = {0, 1, 31, 32, 254, 255, 256, 257, 400, 511, 512, 599};
    for (size_t i = 0; i < countof(rows); i++)
        for (uint32_t h = 0; h < KV_HEADS; h++) {
            float got[PER_HEAD * DV];
            attend(w, op, (struct query){rows[i], 1, 1, h, sink}, got);
            for (uint32_t j = 0; j < PER_HEAD; j++) {
                double want[DV];
                truth(w, op, rows[i], h * PER_HEAD + j, sink, want);
                for (uint32_t d = 0; d < DV; d++)
                    if (!(fabs((double)got[j * DV + d] - want[d]) < 2e-6))
                        fail_msg("%s: row %u head %u column %u: %g, not %g", what, rows[i],
                                 h * PER_HEAD + j, d, (double)got[j * DV + d], want[d]);
            }
        }
}

static void test_merged_blocks_are_softmax_attention(void **state)
{
    struct world *w = *state;
    struct op_attn op = causal;
    check(w, &op, NAN, "causal");
    check(w, &op, 1.5f, "sink");
    op.softcap = 5;
    check(w, &op, NAN, "softcap");
    op = causal;
    op.mask = OP_MASK_FULL;
    check(w, &op, NAN, "full");
    for (uint32_t window = 1; window < 400; window += 97) {
        op = causal;
        op.window = window;
        check(w, &op, NAN, "window");
        check(w, &op, -0.5f, "window, sink");
    }
}

static void test_pages_behind_a_window_may_be_gone(void **state)
{
    struct world *w = *state;
    struct op_attn op = causal;
    op.window = 40;
    float all[PER_HEAD * DV], some[PER_HEAD * DV];
    const struct query last = {599, 1, 1, 0, NAN};
    attend(w, &op, last, all);
    uint8_t *kept[PAGES];
    memcpy(kept, w->page, sizeof kept);
    for (uint32_t i = 0; i < (599 - 39) / KV_PAGE_TOKENS; i++)
        w->page[i] = NULL;
    attend(w, &op, last, some);
    memcpy(w->page, kept, sizeof kept);
    assert_memory_equal(all, some, sizeof all);
}

static void test_rows_together_give_the_bits_of_rows_alone(void **state)
{
    struct world *w = *state;
    enum { FIRST = 240, ROWS = 40 };
    struct op_attn op = causal;
    for (op.window = 0; op.window < 60; op.window += 50) {
        float alone[ROWS * PER_HEAD * DV], together[ROWS * PER_HEAD * DV];
        attend(w, &op, (struct query){FIRST, ROWS, 1, 1, NAN}, alone);
        for (uint32_t group = 2; group <= 16; group += 7) {
            attend(w, &op, (struct query){FIRST, ROWS, group, 1, NAN}, together);
            assert_memory_equal(alone, together, sizeof alone);
        }
    }
}

static void test_what_sees_nothing_is_zero_and_a_nan_stays_visible(void **state)
{
    struct world *w = *state;
    float out[PER_HEAD * DV];
    uint8_t *kept[PAGES];
    memcpy(kept, w->page, sizeof kept);
    memset(w->page, 0, sizeof w->page);
    attend(w, &causal, (struct query){10, 1, 1, 0, NAN}, out);
    for (size_t i = 0; i < countof(out); i++)
        assert_true(out[i] == 0.0f);
    memcpy(w->page, kept, sizeof kept);
    float q = w->q[10][0];
    w->q[10][0] = NAN;
    attend(w, &causal, (struct query){10, 1, 1, 0, NAN}, out);
    assert_true(out[0] != out[0] && out[DV] == out[DV]); /* head 0 is broken, head 1 is not */
    w->q[10][0] = q;
}

static void test_pages_of_f32_keep_every_bit(void **state)
{
    (void)state;
    const struct op_kv kv = {1, 2, 2, 0};
    const struct op_attn op = {.heads = 1, .kv_heads = 1, .dk = 2, .dv = 2, .scale = 1};
    float page[2 * (2 + 2) * KV_PAGE_TOKENS], block[2 + 2], scratch[CPU_ATTN_BLOCK];
    uint8_t *row_page = (uint8_t *)page;
    const float k[2] = {1e6f, 1.0f / 3}, v[2] = {-1e30f, 1.0f / 7}, q[2] = {1e-6f, 3};
    const int32_t pos = 0;
    struct kv_write_args w = {.k = {k, 2, 2, 2, 1}, .v = {v, 2, 2, 2, 1}, .page = &row_page,
                              .pos = &pos, .op = &kv, .rows = 1, .type = KV_TYPE_F32};
    kernels.kv_write(&w);
    struct attn_args a = {.q = q, .q_row = 2, .q_head = 2, .rows = 1, .heads = 1, .pos = &pos,
                          .type = KV_TYPE_F32, .k = {page}, .v = {page + 2 * KV_PAGE_TOKENS},
                          .tokens = 1, .op = &op, .state = block, .scratch = scratch};
    kernels.attn_block(&a);
    assert_true(block[0] == fmaf(q[1], k[1], q[0] * k[0]) && block[1] == 1.0f);
    assert_memory_equal(block + 2, v, sizeof v);
}

static void test_stored_numbers_are_cut_to_the_range_of_f16(void **state)
{
    (void)state;
    const struct op_kv kv = {1, 2, 2, 0};
    uint16_t page[2 * (2 + 2) * KV_PAGE_TOKENS];
    uint8_t *row_page = (uint8_t *)page;
    const float k[2] = {1e6f, -INFINITY}, v[2] = {NAN, 65519.0f};
    const int32_t pos = 37; /* slot 5 */
    struct kv_write_args a = {.k = {k, 2, 2, 2, 1}, .v = {v, 2, 2, 2, 1}, .page = &row_page,
                              .pos = &pos, .op = &kv, .rows = 1};
    kernels.kv_write(&a);
    assert_int_equal(page[5], 0x7bff);
    assert_int_equal(page[KV_PAGE_TOKENS + 5], 0xfbff);
    const uint16_t *values = page + 2 * KV_PAGE_TOKENS + 5 * 2;
    assert_true((values[0] & 0x7fff) > 0x7c00 && values[1] == 0x7bff);
}

/* By hand: a scale is f16(max / 127), a code the nearest; a score is K's scale times q . codes, a
 * value exp times V's scale times the code. */
static void test_pages_of_int8_keep_codes_and_a_scale_per_token(void **state)
{
    (void)state;
    enum { D = 3, HEAD = KV_PAGE_TOKENS * (D + 2) };
    const struct op_kv kv = {1, D, D, 0};
    const struct op_attn op = {.heads = 1, .kv_heads = 1, .dk = D, .dv = D, .scale = 1};
    float block[2 + D], scratch[CPU_ATTN_BLOCK + D];
    _Alignas(64) uint8_t page[2 * HEAD] = {0};
    uint8_t *row_page = page;
    const float k[D] = {127, -63.6f, 0.4f}, v[D] = {-254, 1.1f, 254}, q[D] = {0.5f, 2, 100};
    assert_int_equal(cpu_kernels_kv_piece(D), 1); /* three columns are not rotated */
    const int32_t pos = 33; /* slot 1 */
    struct kv_write_args w = {.k = {k, D, D, D, 1}, .v = {v, D, D, D, 1}, .page = &row_page,
                              .pos = &pos, .op = &kv, .rows = 1, .type = KV_TYPE_INT8};
    kernels.kv_write(&w);
    const int8_t *codes = (const int8_t *)page, *values = (const int8_t *)page + HEAD + D;
    assert_true(codes[1] == 127 && codes[33] == -64 && codes[65] == 0);
    assert_true(values[0] == -127 && values[1] == 1 && values[2] == 127);
    assert_int_equal(cpu_kernels_kv_scales(page, D)[1], base_f32_to_f16(1));
    assert_int_equal(cpu_kernels_kv_scales(page + HEAD, D)[1], base_f32_to_f16(2));
    struct attn_args a = {.q = q, .q_row = D, .q_head = D, .rows = 1, .heads = 1, .pos = &pos,
                          .type = KV_TYPE_INT8, .k = {NULL}, .v = {NULL}, .first = 0,
                          .tokens = 34, .op = &op, .state = block, .scratch = scratch};
    a.k[1] = page;
    a.v[1] = page + HEAD;
    struct op_attn window = op;
    window.window = 1; /* slot 0 holds nothing of this sequence */
    a.op = &window;
    kernels.attn_block(&a);
    assert_true(block[0] == 0.5f * 127 - 2 * 64 && block[1] == 1.0f);
    assert_true(block[2] == -254 && block[3] == 2 && block[4] == 254);
}

/* One large column of four: rotated, all four are as large, and q . K is what it was. */
static void test_int8_keys_spread_a_large_column(void **state)
{
    (void)state;
    enum { D = 4, HEAD = KV_PAGE_TOKENS * (D + 2) };
    const struct op_kv kv = {1, D, D, 0};
    const struct op_attn op = {.heads = 1, .kv_heads = 1, .dk = D, .dv = D, .scale = 1};
    float block[2 + D], scratch[CPU_ATTN_BLOCK + D];
    _Alignas(64) uint8_t page[2 * HEAD] = {0};
    uint8_t *row_page = page;
    const float k[D] = {0, 0, 127, 0}, q[D] = {5, 6, 7, 8};
    const int32_t pos = 0;
    struct kv_write_args w = {.k = {k, D, D, D, 1}, .v = {k, D, D, D, 1}, .page = &row_page,
                              .pos = &pos, .op = &kv, .rows = 1, .type = KV_TYPE_INT8};
    kernels.kv_write(&w);
    const int8_t *codes = (const int8_t *)page;
    assert_true(codes[0] == 127 && codes[32] == 127 && codes[64] == -127 && codes[96] == -127);
    struct attn_args a = {.q = q, .q_row = D, .q_head = D, .rows = 1, .heads = 1, .pos = &pos,
                          .type = KV_TYPE_INT8, .k = {page}, .v = {page + HEAD}, .tokens = 1,
                          .op = &op, .state = block, .scratch = scratch};
    kernels.attn_block(&a);
    assert_true(block[0] == 7 * 127);
}

static void test_pages_of_int8_take_any_number(void **state)
{
    (void)state;
    enum { D = 3, HEAD = KV_PAGE_TOKENS * (D + 2) };
    static const struct {
        float x[D];
        int8_t codes[D];
        uint16_t scale;
    } rows[] = {
        {{0, -0.0f, 0}, {0, 0, 0}, 0},
        {{1e-9f, -1e-9f, 0}, {0, 0, 0}, 0}, /* below the smallest scale */
        {{INFINITY, -1, 0}, {127, 0, 0}, 0x7bff},
        {{-INFINITY, 65504.0f, 0}, {-127, 1, 0}, 0x7bff},
        {{NAN, 5, 0}, {0, 0, 0}, 0x7e00},
    };
    const struct op_kv kv = {1, D, D, 0};
    for (size_t i = 0; i < countof(rows); i++) {
        _Alignas(64) uint8_t page[2 * HEAD] = {0};
        uint8_t *row_page = page;
        const int32_t pos = 0;
        struct kv_write_args w = {.k = {rows[i].x, D, D, D, 1}, .v = {rows[i].x, D, D, D, 1},
                                  .page = &row_page, .pos = &pos, .op = &kv, .rows = 1,
                                  .type = KV_TYPE_INT8};
        kernels.kv_write(&w);
        assert_memory_equal(page + HEAD, rows[i].codes, D);
        assert_int_equal(cpu_kernels_kv_scales(page, D)[0], rows[i].scale);
        assert_int_equal((int8_t)page[KV_PAGE_TOKENS], rows[i].codes[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merged_blocks_are_softmax_attention),
        cmocka_unit_test(test_pages_behind_a_window_may_be_gone),
        cmocka_unit_test(test_rows_together_give_the_bits_of_rows_alone),
        cmocka_unit_test(test_what_sees_nothing_is_zero_and_a_nan_stays_visible),
        cmocka_unit_test(test_pages_of_f32_keep_every_bit),
        cmocka_unit_test(test_pages_of_int8_keep_codes_and_a_scale_per_token),
        cmocka_unit_test(test_int8_keys_spread_a_large_column),
        cmocka_unit_test(test_pages_of_int8_take_any_number),
        cmocka_unit_test(test_stored_numbers_are_cut_to_the_range_of_f16),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
