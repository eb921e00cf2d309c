/* Float weights: two parts of tf32 per input, BF16: inputs as bf16. */
#include "cuda/stream.cuh"

MATMUL(matmul_f32, CUDA_FORMAT_F32, 1, 1) MATMULS(matmul_f32, CUDA_FORMAT_F32)
MATMUL(matmul_f16, CUDA_FORMAT_F16, 1, 1) MATMULS(matmul_f16, CUDA_FORMAT_F16)
MATMUL(matmul_bf16, CUDA_FORMAT_BF16, 1, 1) MATMULS(matmul_bf16, CUDA_FORMAT_BF16)
