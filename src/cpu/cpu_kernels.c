#include "cpu/cpu_kernels.h"

#include <string.h>

struct cpu_form_layout cpu_kernels_form_layout(enum cpu_form f, size_t in)
{
    struct cpu_form_layout l = {0, 0, 0, 0};
    switch (f) {
    case CPU_FORM_F32:
        l.size = base_align(in * 4, 64);
        return l;
    case CPU_FORM_INT8_32:
        l.d = base_align(in, 64);
        l.neg = base_align(l.d + in / 32 * 4, 64);
        l.sum = base_align(l.neg + in / 32 * 4, 64);
        l.size = base_align(l.sum + in / 32 * 4, 64);
        return l;
    case CPU_FORM_INT8_256:
        l.d = in;
        l.neg = base_align(l.d + in / 256 * 4, 64);
        l.sum = base_align(l.neg + in / 16 * 4, 64);
        l.size = base_align(l.sum + in / 32 * 2, 64);
        return l;
    case CPU_FORM_COUNT:
        break;
    }
    must(f < CPU_FORM_COUNT);
    return l;
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
    (void)level; /* integer products beat float ones at every step of the staircase */
    return quant_table[t].act_block == 0 ? ACT_F32 : ACT_INT8;
}
