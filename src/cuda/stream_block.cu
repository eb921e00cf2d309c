/* Types with a scale per 32 inputs. */
#include "cuda/stream.cuh"

MATMULS(matmul_q4_0, CUDA_FORMAT_Q4_0)
MATMULS(matmul_q4_1, CUDA_FORMAT_Q4_1)
MATMULS(matmul_q5_0, CUDA_FORMAT_Q5_0)
MATMULS(matmul_q5_1, CUDA_FORMAT_Q5_1)
MATMULS(matmul_q8_0, CUDA_FORMAT_Q8_0)
MATMULS(matmul_mxfp4, CUDA_FORMAT_MXFP4)
