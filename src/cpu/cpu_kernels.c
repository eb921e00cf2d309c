#include "cpu/cpu_kernels.h"

#include <string.h>

struct cpu_form_layout cpu_kernels_form_layout(enum cpu_form f, size_t in)
{
    struct cpu_form_layout l = {0, 0, 0, 0, 0};
    switch (f) {
    case CPU_FORM_F32:
        l.size = base_align(in * 4, 64);
        return l;
    case CPU_FORM_INT8_32:
        l.d = base_align(in, 64);
        l.neg = base_align(l.d + in / 32 * 4, 64);
        l.sum = base_align(l.neg + in / 32 * 4, 64);
        l.size = l.factor = base_align(l.sum + in / 32 * 4, 64);
        return l;
    case CPU_FORM_INT8_256:
        l.d = in;
        l.neg = base_align(l.d + in / 256 * 4, 64);
        l.sum = base_align(l.neg + in / 16 * 4, 64);
        l.factor = base_align(l.sum + in / 32 * 2, 64);
        l.size = base_align(l.factor + (in / 256 + in / 32) * 4, 64);
        return l;
    case CPU_FORM_INT16:
        l.d = base_align(2 * in, 64);
        l.neg = base_align(l.d + in / 32 * 4, 64);
        l.sum = base_align(l.neg + in / 16 * 4, 64);
        l.size = l.factor = base_align(l.sum + in / 32 * 4, 64);
        return l;
    case CPU_FORM_COUNT:
        break;
    }
    must(f < CPU_FORM_COUNT);
    return l;
}

#define TINY 0x0d800000u /* 2^-100: a smaller block is zero */
#define SPREAD_GAIN 2.0f

/* ceil(8 x / amax), 1 to 8. */
static int32_t factor_of(float x, float up)
{
    float y = x * up;
    int32_t f = (int32_t)y;
    f += (float)f < y;
    return f < 1 ? 1 : f > 8 ? 8 : f;
}

static bool has_codes(float amax)
{
    return base_bits_of(amax) >= TINY && base_bits_of(amax) < 0x7f800000u;
}

/* Squares of eight factors, of 512 without; most: the block's largest magnitude. */
static int32_t set_factors(int32_t f[8], float most)
{
    int32_t squares = 0;
    for (size_t i = 0; i < 8; i++) {
        f[i] = factor_of(base_float_of((uint32_t)f[i]), 8.0f / most);
        squares += f[i] * f[i];
    }
    return squares;
}

void cpu_kernels_factors(int32_t *spread, int32_t *factor, float *amax, size_t in)
{
    size_t blocks = in / 256;
    float sum = 0.0f;
    for (size_t b = 0; b < blocks; b++) {
        int32_t most = 0;
        for (size_t i = 8 * b; i < 8 * b + 8; i++)
            most = factor[i] > most ? factor[i] : most;
        amax[b] = base_float_of((uint32_t)most);
        sum += amax[b] * amax[b];
    }
    float bound = SPREAD_GAIN * sum / (float)blocks;
    for (size_t b = 0; b < blocks; b++) {
        float error = amax[b] * amax[b];
        int32_t *f = factor + 8 * b;
        spread[b] = error > bound && has_codes(amax[b]) &&
                    error * ((float)(512 - set_factors(f, amax[b])) / 512.0f) > bound;
        for (size_t i = 0; i < 8 && !spread[b]; i++)
            f[i] = 1;
    }
}

struct cpu_block cpu_kernels_block(float amax, bool is_spread)
{
    float steps = is_spread ? 1016.0f : 127.0f;
    return (struct cpu_block){base_bits_of(amax) < TINY ? 0.0f : amax / steps,
                              has_codes(amax) ? steps / amax : 0.0f};
}

void cpu_kernels_init(struct cpu_kernels *k, enum cpu_level max, bool has_bf16)
{
    memset(k, 0, sizeof(*k));
    k->level = max;
    k->has_bf16 = has_bf16 && max >= CPU_LEVEL_VNNI;
    ref_ops_add(k);
    ref_matmul_add(k);
    ref_attn_add(k);
    ref_sample_add(k);
#if defined(__x86_64__)
    if (max >= CPU_LEVEL_AVX2) {
        ops_avx2_add(k);
        attn_avx2_add(k);
        matmul_avx2_add(k);
    }
    if (max >= CPU_LEVEL_AVX512) {
        ops_avx512_add(k);
        attn_avx512_add(k);
        matmul_avx512_add(k);
    }
    if (max >= CPU_LEVEL_VNNI)
        matmul_vnni_add(k);
#endif
}

enum act cpu_kernels_act(enum cpu_level level, enum qtype t)
{
    /* Integer products beat float ones at every step of the staircase. Of 16 bits they are twice as
     * many and cost a third of prefill for every type (NUMBERS 2026-11-30); a mode holds for all
     * batches, and may cost 5 %. */
    (void)level;
    return quant_table[t].act_block == 0 ? ACT_F32 : ACT_INT8;
}
