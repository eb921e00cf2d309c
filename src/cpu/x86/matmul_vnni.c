/* AVX-512 with VNNI: int8 products in one instruction per 64 of them. */
#include "cpu/x86/matmul_forms.h"

void matmul_vnni_add(struct cpu_kernels *k) { form_add(k); }
