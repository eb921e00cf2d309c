/* cuda_driver - the few calls of NVIDIA's driver that we use, found at run time.
 *
 * Owns:      the handle of libcuda.so.1, one table of its functions, errors as sentences.
 * Not:       devices and memory in use (cuda_backend), kernels by name (cuda_kernels).
 * Invariant: the binary needs no CUDA package: without the library or a device every call says so
 *            with ERR_DEVICE, and nothing else happens. Types and numbers are those of the CUDA
 *            Driver API 12 and later (NVIDIA, "CUDA Driver API" reference).
 * Thread:    cuda_driver_open: any, once; the functions as the driver says.
 */
#ifndef SHOAL_CUDA_CUDA_DRIVER_H
#define SHOAL_CUDA_CUDA_DRIVER_H

#include "base/err.h"

typedef int cuda_result; /* 0 = success */
typedef int cuda_device_id;
typedef uint64_t cuda_ptr; /* device address */
typedef struct cuda_context_ *cuda_context;
typedef struct cuda_stream_ *cuda_stream;
typedef struct cuda_event_ *cuda_event;
typedef struct cuda_module_ *cuda_module;
typedef struct cuda_function_ *cuda_function;
typedef struct cuda_graph_ *cuda_graph;
typedef struct cuda_graph_exec_ *cuda_graph_exec;

enum { /* CUdevice_attribute */
       CUDA_ATTR_SM_COUNT = 16,
       CUDA_ATTR_SMEM_OPTIN = 97,
       CUDA_ATTR_MAJOR = 75,
       CUDA_ATTR_MINOR = 76,
};
enum { CUDA_FUNC_SMEM = 8 };        /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
enum { CUDA_LAUNCH_SERIALIZE = 6 }; /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */

struct cuda_launch_attr { /* CUlaunchAttribute */
    uint32_t id;
    uint32_t pad;
    union {
        char bytes[64];
        int value;
    } v;
};

struct cuda_launch { /* CUlaunchConfig */
    uint32_t grid[3], block[3], smem;
    cuda_stream stream;
    struct cuda_launch_attr *attrs;
    uint32_t attr_count;
};

/* name in the library, return type int, parameters */
#define CUDA_DRIVER_CALLS(X)                                                                       \
    X(init, cuInit, (unsigned))                                                                    \
    X(version, cuDriverGetVersion, (int *))                                                        \
    X(device_count, cuDeviceGetCount, (int *))                                                     \
    X(device_get, cuDeviceGet, (cuda_device_id *, int))                                            \
    X(device_name, cuDeviceGetName, (char *, int, cuda_device_id))                                 \
    X(device_attr, cuDeviceGetAttribute, (int *, int, cuda_device_id))                             \
    X(ctx_retain, cuDevicePrimaryCtxRetain, (cuda_context *, cuda_device_id))                      \
    X(ctx_release, cuDevicePrimaryCtxRelease_v2, (cuda_device_id))                                 \
    X(ctx_set, cuCtxSetCurrent, (cuda_context))                                                    \
    X(mem_info, cuMemGetInfo_v2, (size_t *, size_t *))                                             \
    X(mem_alloc, cuMemAlloc_v2, (cuda_ptr *, size_t))                                              \
    X(mem_free, cuMemFree_v2, (cuda_ptr))                                                          \
    X(host_alloc, cuMemHostAlloc, (void **, size_t, unsigned))                                     \
    X(host_free, cuMemFreeHost, (void *))                                                          \
    X(copy_in, cuMemcpyHtoDAsync_v2, (cuda_ptr, const void *, size_t, cuda_stream))                \
    X(copy_out, cuMemcpyDtoHAsync_v2, (void *, cuda_ptr, size_t, cuda_stream))                     \
    X(copy_on, cuMemcpyDtoDAsync_v2, (cuda_ptr, cuda_ptr, size_t, cuda_stream))                    \
    X(set_bytes, cuMemsetD8Async, (cuda_ptr, unsigned char, size_t, cuda_stream))                  \
    X(stream_new, cuStreamCreate, (cuda_stream *, unsigned))                                       \
    X(stream_free, cuStreamDestroy_v2, (cuda_stream))                                              \
    X(stream_wait, cuStreamSynchronize, (cuda_stream))                                             \
    X(event_new, cuEventCreate, (cuda_event *, unsigned))                                          \
    X(event_free, cuEventDestroy_v2, (cuda_event))                                                 \
    X(event_record, cuEventRecord, (cuda_event, cuda_stream))                                      \
    X(event_wait, cuEventSynchronize, (cuda_event))                                                \
    X(module_load, cuModuleLoadData, (cuda_module *, const void *))                                \
    X(module_free, cuModuleUnload, (cuda_module))                                                  \
    X(module_function, cuModuleGetFunction, (cuda_function *, cuda_module, const char *))          \
    X(function_set, cuFuncSetAttribute, (cuda_function, int, int))                                 \
    X(launch, cuLaunchKernelEx, (const struct cuda_launch *, cuda_function, void **, void **))     \
    X(capture_begin, cuStreamBeginCapture_v2, (cuda_stream, int))                                  \
    X(capture_end, cuStreamEndCapture, (cuda_stream, cuda_graph *))                                \
    X(graph_make, cuGraphInstantiateWithFlags, (cuda_graph_exec *, cuda_graph, uint64_t))          \
    X(graph_free, cuGraphDestroy, (cuda_graph))                                                    \
    X(graph_exec_free, cuGraphExecDestroy, (cuda_graph_exec))                                      \
    X(graph_launch, cuGraphLaunch, (cuda_graph_exec, cuda_stream))                                 \
    X(error_name, cuGetErrorName, (cuda_result, const char **))                                    \
    X(error_text, cuGetErrorString, (cuda_result, const char **))

struct cuda_driver {
#define X(name, symbol, args) cuda_result(*name) args;
    CUDA_DRIVER_CALLS(X)
#undef X
};

/* The table, loaded and initialised on the first call. ERR_DEVICE with the reason when there is no
 * driver, it lacks a call, or it finds no device. */
const struct cuda_driver *cuda_driver_open(struct err *e);

/* True on success; else ERR_DEVICE (ERR_MEMORY when out of memory): "cuda: WHAT: name, text". */
bool cuda_driver_check(const struct cuda_driver *d, cuda_result r, const char *what, struct err *e);

#endif
