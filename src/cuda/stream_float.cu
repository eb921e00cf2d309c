/* Float weights: two parts of tf32 per input. */
#include "cuda/stream.cuh"

MATMULS(matmul_f32, CUDA_FORMAT_F32)
MATMULS(matmul_f16, CUDA_FORMAT_F16)
MATMULS(matmul_bf16, CUDA_FORMAT_BF16)
