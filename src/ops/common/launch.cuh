// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How kernels are launched and get their dynamic shared memory, so that the same .cu file is
// compiled by nvcc for GPUs and, for tests on machines without one, by any C++ compiler against
// tests/cuda/emulated.
//
//   MICS_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...)
//       enqueues a kernel, which was loaded when the device was opened, and keeps a launch that is
//       refused as the device's failure. A kernel whose template arguments hold a comma stands in
//       parentheses: MICS_LAUNCH((add<float, 4>), ...).
//   MICS_DYNAMIC_SHARED(float, tile);
//       in a kernel: `float *tile` is the dynamic shared memory, aligned to 16 bytes.
//   MICS_ALLOW_SHARED(kernel, bytes)
//       before the launch of a kernel that asks for more than 48 KiB: true, or false where CUDA
//       refuses it, which is kept as the device's failure. mics_cuda_shared_limit says how much it
//       grants.
#pragma once

#include "device/cuda_launch.h"
#include <cuda_runtime.h>

// Lists KERNEL when the plugin is loaded, since every launch names this.
template <auto KERNEL> struct mics_listed {
    static mics_cuda_kernel entry;
    static const bool done;
};
template <auto KERNEL> mics_cuda_kernel mics_listed<KERNEL>::entry;
template <auto KERNEL>
const bool mics_listed<KERNEL>::done =
    mics_cuda_list_kernel(&entry, reinterpret_cast<const void *>(KERNEL));

#ifdef __CUDACC__
#define MICS_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    do {                                                                                           \
        (void)&mics_listed<(kernel)>::done;                                                        \
        kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__);                        \
        mics_cuda_launched(#kernel);                                                               \
    } while (0)
#define MICS_DYNAMIC_SHARED(type, name)                                                            \
    extern __shared__ __align__(16) unsigned char mics_dynamic_shared[];                           \
    type *name = reinterpret_cast<type *>(mics_dynamic_shared)
#else
#define MICS_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    do {                                                                                           \
        (void)&mics_listed<(kernel)>::done;                                                        \
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
