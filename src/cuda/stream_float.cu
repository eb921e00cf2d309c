/* F32 and F16 weights: two parts of tf32 per input. */
#include "cuda/stream.cuh"

MATMUL(matmul_f32, CUDA_FORMAT_F32, 1, 1) MATMULS(matmul_f32, CUDA_FORMAT_F32)
MATMUL(matmul_f16, CUDA_FORMAT_F16, 1, 1) MATMULS(matmul_f16, CUDA_FORMAT_F16)
