#include "cuda/cuda_kernels.h"

/* The Makefile names the folder of the fatbins that nvcc made; without nvcc there are none. */
#ifdef CUDA_FATBIN_DIR
#define X(unit)                                                                                    \
    __asm__(".section .rodata\n.balign 64\ncuda_fatbin_" #unit ":\n"                               \
            ".incbin \"" CUDA_FATBIN_DIR #unit ".fatbin\"\n.balign 64\n.previous\n");              \
    extern const unsigned char cuda_fatbin_##unit[];
CUDA_UNITS(X)
#undef X
const struct cuda_fatbin cuda_fatbin_units[] = {
#define X(unit) {#unit, cuda_fatbin_##unit},
    CUDA_UNITS(X)
#undef X
        {NULL, NULL},
};
const char cuda_fatbin_archs[] = CUDA_ARCHS;
#else
const struct cuda_fatbin cuda_fatbin_units[] = {{NULL, NULL}};
const char cuda_fatbin_archs[] = "";
#endif
