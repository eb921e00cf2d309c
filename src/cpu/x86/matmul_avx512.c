/* AVX-512 without VNNI: int8 products by way of 16-bit pair sums. */
#include "cpu/x86/matmul_forms.h"

void matmul_avx512_add(struct cpu_kernels *k) { form_add(k); }
