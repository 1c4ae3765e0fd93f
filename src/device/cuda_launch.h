// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What launches of kernels need of the device, and tell it. Part of the plugin; see
// src/ops/common/launch.cuh.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Takes what the launch of `kernel` just gave, and keeps a failure of the thread's current device,
 * logged once. Also tells of the thread's earlier failures. */
void mics_cuda_launched(const char *kernel);

/* Keeps as a failure of the thread's current device that `what` is not done, and `why`. */
void mics_cuda_refused(const char *what, const char *why);

/* The most shared memory that a block may have on the thread's current device, in bytes; 0: CUDA
 * does not say, which is kept as the device's failure. */
size_t mics_cuda_shared_limit(void);

/* Takes the cudaError_t that CUDA gave when `kernel` asked for so much shared memory. False: it
 * refused, which is kept. */
bool mics_cuda_shared_allowed(const char *kernel, size_t bytes, int error);

// A kernel that some launch names.
typedef struct mics_cuda_kernel {
    const void *kernel;
    struct mics_cuda_kernel *next;
} mics_cuda_kernel;

/* Lists a kernel, for mics_cuda_load_kernels. While the plugin is loaded, by one thread. Borrows
 * the entry for good, and fills it. Returns: true. */
bool mics_cuda_list_kernel(mics_cuda_kernel *entry, const void *kernel);

/* Loads all listed kernels on the thread's current device. Left to the first launch, CUDA would
 * load a kernel between collectives, where it may wait for what waits for that kernel (CUDA C++
 * Programming Guide, "Lazy Loading").
 *
 * Returns: a cudaError_t. */
int mics_cuda_load_kernels(void);

#ifdef __cplusplus
}
#endif
