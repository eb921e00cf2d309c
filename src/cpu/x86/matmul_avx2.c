/* AVX2: two registers stand for one of 16 lanes. */
#include "cpu/x86/matmul_forms.h"

void matmul_avx2_add(struct cpu_kernels *k) { form_add(k); }
