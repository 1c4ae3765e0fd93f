// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How kernels are launched and get their dynamic shared memory, so that the same .cu file is compiled by nvcc for GPUs
// and, for tests on machines without one, by any C++ compiler against tests/cuda/emulated.
//
//   MICS_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...)
//       enqueues a kernel, and keeps a launch that is refused as the device's failure. A kernel whose template arguments hold a
//       comma stands in parentheses: MICS_LAUNCH((add<float, 4>), ...).
//   MICS_DYNAMIC_SHARED(float, tile);
//       in a kernel: `float *tile` is the dynamic shared memory, aligned to 16 bytes.
//   MICS_ALLOW_SHARED(kernel, bytes)
//       before the launch of a kernel that asks for more than 48 KiB: true, or false where CUDA
//       refuses it, which is kept as the device's failure. mics_cuda_shared_limit says how much it
//       grants.
#ifndef MICS_OP_LAUNCH_CUH
#define MICS_OP_LAUNCH_CUH

#include <cuda_runtime.h>
#include <stddef.h>

extern "C" {
/* The most shared memory that a block may have on the thread's current device, in bytes; 0: CUDA
 * does not say, which is kept as the device's failure. */
size_t mics_cuda_shared_limit(void);
/* Takes the cudaError_t that CUDA gave when `kernel` asked for so much shared memory. False: it
 * refused, which is kept. */
bool mics_cuda_shared_allowed(const char *kernel, size_t bytes, int error);
/* Keeps as a failure of the thread's current device that `what` is not done, and `why`. */
void mics_cuda_refused(const char *what, const char *why);
/* Takes what the launch of `kernel` just gave, and keeps a failure; logged once. Also tells of the thread's earlier failures. */
void mics_cuda_launched(const char *kernel);
}

#ifdef __CUDACC__
#define MICS_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    do {                                                                                           \
        kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__);                        \
        mics_cuda_launched(#kernel);                                                               \
    } while (0)
#define MICS_DYNAMIC_SHARED(type, name)                                                            \
    extern __shared__ __align__(16) unsigned char mics_dynamic_shared[];                           \
    type *name = reinterpret_cast<type *>(mics_dynamic_shared)
#else
#define MICS_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    do {                                                                                           \
        mics_emulated::launch(#kernel, (grid), (block), (shared_bytes), (stream), kernel,          \
                              __VA_ARGS__);                                                        \
        mics_cuda_launched(#kernel);                                                               \
    } while (0)
#define MICS_DYNAMIC_SHARED(type, name)                                                            \
    type *name = reinterpret_cast<type *>(mics_emulated::dynamic_shared())
#endif

#define MICS_ALLOW_SHARED(kernel, bytes)                                                           \
    mics_cuda_shared_allowed(                                                                      \
        #kernel, (bytes),                                                                          \
        cudaFuncSetAttribute((kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes)))

#endif
