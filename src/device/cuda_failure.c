// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Launches of kernels, and failures of what was enqueued. Whoever finds one first keeps it for its
// device; all ranks that compute there learn of it by asking, since CUDA tells a refused launch to
// the thread that launched alone.
#include "device/cuda_internal.h"
#include "device/cuda_launch.h"
#include "mics/log.h"
#include <cuda_runtime.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_bool failed[MICS_CUDA_MAX_DEVICES];

mics_status mics_cuda_keep(int32_t index, const char *what, const char *why)
{
    bool before = false;
    if (atomic_compare_exchange_strong(&failed[index], &before, true))
        return mics_fail(MICS_ERR_DEVICE, "GPU %d: %s: %s", (int)index, what, why);
    return MICS_ERR_DEVICE;
}

mics_status mics_cuda_kept(int32_t index)
{
    return atomic_load(&failed[index]) ? MICS_ERR_DEVICE : MICS_OK;
}

void mics_cuda_forget(int32_t index)
{
    atomic_store(&failed[index], false);
}

void mics_cuda_refused(const char *what, const char *why)
{
    int index = 0;
    cudaGetDevice(&index);
    mics_cuda_keep(index, what, why);
}

size_t mics_cuda_shared_limit(void)
{
    int index = 0, bytes = 0;
    cudaError_t error = cudaGetDevice(&index);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, index);
    if (error == cudaSuccess)
        return (size_t)bytes;
    cudaGetLastError();
    mics_cuda_refused("its limit of shared memory", cudaGetErrorString(error));
    return 0;
}

bool mics_cuda_shared_allowed(const char *kernel, size_t bytes, int error)
{
    char why[128];
    if (error == cudaSuccess)
        return true;
    cudaGetLastError();
    snprintf(why, sizeof why, "%zu bytes of shared memory a block: %s", bytes,
             cudaGetErrorString((cudaError_t)error));
    mics_cuda_refused(kernel, why);
    return false;
}

void mics_cuda_launched(const char *kernel)
{
    const cudaError_t error = cudaGetLastError();
    int index = 0;
    // An event that was asked for too early is no failure. The CUDA C++ Programming Guide ("Error
    // Checking") says that it is not told here; it costs nothing not to rely on that.
    if (error == cudaSuccess || error == cudaErrorNotReady)
        return;
    cudaGetDevice(&index);
    mics_cuda_keep(index, kernel, cudaGetErrorString(error));
}

// ---- loading ----

static mics_cuda_kernel *listed; // written while the plugin is loaded

bool mics_cuda_list_kernel(mics_cuda_kernel *entry, const void *kernel)
{
    *entry = (mics_cuda_kernel){.kernel = kernel, .next = listed};
    listed = entry;
    return true;
}

int mics_cuda_load_kernels(void)
{
    struct cudaFuncAttributes unused;
    cudaError_t error = cudaSuccess;
    for (const mics_cuda_kernel *k = listed; k != NULL && error == cudaSuccess; k = k->next)
        error = cudaFuncGetAttributes(&unused, k->kernel);
    return (int)error;
}
