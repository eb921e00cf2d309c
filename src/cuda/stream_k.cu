/* K types: records of 256 inputs. */
#include "cuda/stream.cuh"

MATMULS(matmul_q4_k, CUDA_FORMAT_Q4_K)
MATMULS(matmul_q5_k, CUDA_FORMAT_Q5_K)
MATMULS(matmul_q6_k, CUDA_FORMAT_Q6_K)
