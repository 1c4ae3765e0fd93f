// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What there is of driver and GPUs. Opens none: a context takes memory, and it is not known yet
// which GPU is whose.
#include "device/cuda_internal.h"
#include "device/plugin.h"
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

const char mics_plugin_build[] = MICS_PLUGIN_BUILD;

// As the driver counts: 13000 is 13.0.
static void version_text(int version, char text[32])
{
    text[0] = '\0';
    if (version > 0)
        snprintf(text, 32, "%d.%d", version / 1000, version % 1000 / 10);
}

static void log_none_seen(char *why_not, size_t bytes)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible != NULL)
        snprintf(
            why_not, bytes,
            "the driver shows this process no GPU: CUDA_VISIBLE_DEVICES is \"%.60s\"; leave it "
            "out, or name GPUs that are there",
            visible);
    else
        snprintf(why_not, bytes,
                 "the driver shows this process no GPU; in a container it must be given them (as "
                 "with --gpus all), and a batch system must have granted them");
}

static void log_count_failed(cudaError_t error, const mics_cuda_findings *findings, char *why_not,
                             size_t bytes)
{
    if (findings->driver[0] == '\0')
        snprintf(why_not, bytes,
                 "no NVIDIA driver is found (libcuda.so.1); install one for CUDA %s or newer",
                 findings->runtime);
    else if (error == cudaErrorInsufficientDriver)
        snprintf(why_not, bytes,
                 "the NVIDIA driver is for CUDA %s, and %s is needed; install a newer driver",
                 findings->driver, findings->runtime);
    else if (error == cudaErrorNoDevice || error == cudaSuccess)
        log_none_seen(why_not, bytes);
    else
        snprintf(why_not, bytes, "the GPUs cannot be used: %s (%s); see nvidia-smi and dmesg",
                 cudaGetErrorString(error), cudaGetErrorName(error));
}

bool mics_cuda_is_usable(int32_t index, char *why_not, size_t bytes)
{
    int major = 0, minor = 0, mode = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, (int)index);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, (int)index);
    cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, (int)index);
    if (mode == cudaComputeModeProhibited)
        snprintf(
            why_not, bytes,
            "GPU %d is in prohibited compute mode; `nvidia-smi -i %d -c DEFAULT` as root opens "
            "it",
            (int)index, (int)index);
    else if (major < MICS_CUDA_MIN_MAJOR)
        snprintf(why_not, bytes,
                 "GPU %d has compute capability %d.%d, and %d.0 (Ampere) or newer is needed",
                 (int)index, major, minor, MICS_CUDA_MIN_MAJOR);
    else
        return true;
    return false;
}

void mics_plugin_find(mics_cuda_findings *findings)
{
    int driver = 0, runtime = 0, count = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    version_text(driver, findings->driver);
    version_text(runtime, findings->runtime);
    const cudaError_t error = cudaGetDeviceCount(&count);
    cudaGetLastError(); // told here, and not to whoever launches first
    if (error != cudaSuccess || count < 1) {
        log_count_failed(error, findings, findings->why_not, sizeof findings->why_not);
        return;
    }
    count = count < MICS_CUDA_MAX_DEVICES ? count : MICS_CUDA_MAX_DEVICES;
    // Ranks take GPUs by number, so one that cannot be used takes the rest with it.
    for (int32_t index = 0; index < count; index++)
        if (!mics_cuda_is_usable(index, findings->why_not, sizeof findings->why_not))
            return;
    findings->devices = count;
}

mics_status mics_plugin_device_info(int32_t index, mics_device_info *info_out)
{
    struct cudaDeviceProp properties;
    char driver_text[32], bus[32] = "?";
    int driver = 0;
    if (cudaGetDeviceProperties(&properties, (int)index) != cudaSuccess) {
        cudaGetLastError();
        return MICS_ERR_UNSUPPORTED;
    }
    cudaDriverGetVersion(&driver);
    version_text(driver, driver_text);
    cudaDeviceGetPCIBusId(bus, (int)sizeof bus, (int)index);
    *info_out = (mics_device_info){.memory_total_bytes = properties.totalGlobalMem};
    snprintf(info_out->name, sizeof info_out->name, "%.95s", properties.name);
    for (size_t i = 0; i < sizeof properties.uuid.bytes; i++)
        snprintf(info_out->id + 2 * i, sizeof info_out->id - 2 * i, "%02x",
                 (unsigned)(unsigned char)properties.uuid.bytes[i]);
    snprintf(info_out->detail, sizeof info_out->detail,
             "compute capability %d.%d, %d multiprocessors, driver for CUDA %s, PCI %s",
             properties.major, properties.minor, properties.multiProcessorCount, driver_text, bus);
    return MICS_OK;
}

mics_cuda_link_kind mics_plugin_link(int32_t a, int32_t b)
{
    int can = 0, atomics = 0;
    const bool known = cudaDeviceCanAccessPeer(&can, (int)a, (int)b) == cudaSuccess;
    if (known && can)
        cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, (int)a, (int)b);
    cudaGetLastError();
    if (!known || !can)
        return MICS_CUDA_LINK_HOST;
    return atomics ? MICS_CUDA_LINK_FAST : MICS_CUDA_LINK_PEER;
}
