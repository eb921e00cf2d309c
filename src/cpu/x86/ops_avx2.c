/* Row ops of this level: row_ops.h compiled for it. */
#include "cpu/x86/row_ops.h"

void ops_avx2_add(struct cpu_kernels *k) { row_ops_add(k); }
