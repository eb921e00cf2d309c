/* Attention of this level: attn_block.h compiled for it. */
#include "cpu/x86/attn_block.h"

void attn_avx512_add(struct cpu_kernels *k) { attn_block_add(k); }
