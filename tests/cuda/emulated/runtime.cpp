// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Devices, versions, errors, limits of kernels.
#include "state.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

namespace mics_emulated
{

cudaError_t kept_failure();

static thread_local int device_of_thread = 0;
static thread_local cudaError_t newest_error = cudaSuccess;

#if defined(__AVX2__)
// Runs before all that the compiler may have made of such instructions.
__attribute__((constructor(101))) static void expect_cpu()
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return;
    fputs("emulated: built where the CPU has AVX2 and FMA, which this one lacks; configure anew\n",
          stderr);
    abort();
}
#endif

static long number_from(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text != nullptr && *text != '\0' ? strtol(text, nullptr, 10) : otherwise;
}

// "13.0" as 13000.
static int driver_from(const char *text)
{
    if (text == nullptr || *text == '\0')
        return CUDART_VERSION;
    char *rest = nullptr;
    const long major = strtol(text, &rest, 10);
    const long minor = *rest == '.' ? strtol(rest + 1, nullptr, 10) : 0;
    return (int)(major * 1000 + minor * 10);
}

static emulated_settings read_settings()
{
    const char *order = getenv("MICS_EMULATED_ORDER");
    emulated_settings read{};
    read.devices = (int)number_from("MICS_EMULATED_DEVICES", 1);
    read.driver = driver_from(getenv("MICS_EMULATED_DRIVER"));
    read.memory_bytes = (size_t)number_from("MICS_EMULATED_MEMORY", 2147483648);
    read.denied = number_from("MICS_EMULATED_DENIED", 0) == 1;
    read.prohibited = number_from("MICS_EMULATED_DENIED", 0) == 2;
    read.major = (int)number_from("MICS_EMULATED_CAPABILITY", 9);
    read.shared_bytes = (size_t)number_from("MICS_EMULATED_SHARED_KIB", 227) * 1024;
    if (read.shared_bytes > SHARED_MOST)
        defect_in("MICS_EMULATED_SHARED_KIB", "no chip has more than %zu", SHARED_MOST / 1024);
    read.eager = order != nullptr && std::strcmp(order, "eager") == 0;
    read.lazy = order != nullptr && std::strcmp(order, "lazy") == 0;
    read.seed = (unsigned)number_from("MICS_EMULATED_ORDER", 1);
    read.fail_at = number_from("MICS_EMULATED_FAIL", 0);
    read.threads = (int)number_from("MICS_EMULATED_THREADS", 0);
    return read;
}

const emulated_settings &settings()
{
    static const emulated_settings read = read_settings();
    return read;
}

int current_device()
{
    return device_of_thread;
}

static cudaError_t driver_error()
{
    if (settings().driver < CUDART_VERSION / 1000 * 1000)
        return cudaErrorInsufficientDriver;
    if (settings().devices < 1)
        return cudaErrorNoDevice;
    return cudaSuccess;
}

cudaError_t entry_error()
{
    if (cudaError_t error = kept_failure())
        return error;
    if (cudaError_t error = driver_error())
        return error;
    return settings().denied ? cudaErrorDevicesUnavailable : cudaSuccess;
}

cudaError_t note(cudaError_t error)
{
    if (error != cudaSuccess)
        newest_error = error;
    return error;
}

// ---- limits of kernels ----

static std::mutex limits_mutex;

// Of a device and a kernel: an attribute is set for the current device alone.
typedef std::pair<int, const void *> limit_key;

static std::map<limit_key, size_t> &limits()
{
    static auto *all = new std::map<limit_key, size_t>();
    return *all;
}

size_t shared_limit(const void *kernel)
{
    std::lock_guard<std::mutex> lock(limits_mutex);
    auto entry = limits().find({device_of_thread, kernel});
    return entry == limits().end() ? SHARED_UNASKED : std::max(entry->second, SHARED_UNASKED);
}

cudaError_t set_function_attribute(const void *kernel, cudaFuncAttribute attribute, int value)
{
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaSuccess;
    if (value < 0 || (size_t)value > settings().shared_bytes)
        return note(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> lock(limits_mutex);
    limits()[{device_of_thread, kernel}] = (size_t)value;
    return cudaSuccess;
}

// Kernels that a program has loaded on a device by asking for their attributes.
static std::set<limit_key> &loaded()
{
    static auto *all = new std::set<limit_key>();
    return *all;
}

void expect_loaded(const char *name, const void *kernel)
{
    std::lock_guard<std::mutex> lock(limits_mutex);
    const auto first = loaded().lower_bound({device_of_thread, nullptr});
    const bool any = first != loaded().end() && first->first == device_of_thread;
    if (any && loaded().count({device_of_thread, kernel}) == 0)
        defect_in(name, "is loaded by its first launch; others were loaded before");
}

} // namespace mics_emulated

using namespace mics_emulated;

extern "C" {

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel)
{
    if (cudaError_t error = entry_error())
        return note(error);
    *attributes = cudaFuncAttributes{};
    std::lock_guard<std::mutex> lock(limits_mutex);
    loaded().insert({device_of_thread, kernel});
    return cudaSuccess;
}

// ---- versions and devices ----

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = settings().driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    if (cudaError_t error = driver_error())
        return note(error);
    *count = settings().devices;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (cudaError_t error = entry_error())
        return note(error);
    if (device < 0 || device >= settings().devices)
        return note(cudaErrorInvalidDevice);
    device_of_thread = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = device_of_thread;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    if (cudaError_t error = driver_error())
        return note(error);
    if (device < 0 || device >= settings().devices)
        return note(cudaErrorInvalidDevice);
    *properties = cudaDeviceProp{};
    snprintf(properties->name, sizeof properties->name, "Emulated GPU");
    properties->totalGlobalMem = settings().memory_bytes;
    properties->sharedMemPerBlockOptin = settings().shared_bytes;
    properties->major = settings().major;
    properties->minor = 0;
    properties->multiProcessorCount = 4;
    properties->l2CacheSize = 52428800;
    properties->pciBusID = 16 + device;
    properties->uuid.bytes[15] = (char)device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    cudaDeviceProp properties;
    if (cudaError_t error = cudaGetDeviceProperties(&properties, device))
        return error;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = 1024;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = (int)SHARED_UNASKED;
        return cudaSuccess;
    case cudaDevAttrWarpSize:
        *value = 32;
        return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
        *value = properties.multiProcessorCount;
        return cudaSuccess;
    case cudaDevAttrComputeMode:
        *value = settings().prohibited ? cudaComputeModeProhibited : cudaComputeModeDefault;
        return cudaSuccess;
    case cudaDevAttrL2CacheSize:
        *value = properties.l2CacheSize;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value = properties.major;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = properties.minor;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = (int)properties.sharedMemPerBlockOptin + 1024;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)properties.sharedMemPerBlockOptin;
        return cudaSuccess;
    }
    return note(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
    if (device < 0 || device >= settings().devices)
        return note(cudaErrorInvalidDevice);
    snprintf(text, (size_t)bytes, "0000:%02x:00.0", (unsigned)(16 + device));
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    if (device < 0 || peer < 0 || device >= settings().devices || peer >= settings().devices)
        return note(cudaErrorInvalidDevice);
    *can = device != peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned)
{
    return peer >= 0 && peer < settings().devices && peer != device_of_thread
               ? cudaSuccess
               : note(cudaErrorInvalidDevice);
}

// Devices 2k and 2k + 1 have a fast link, others the bus.
cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int source,
                                      int destination)
{
    const bool fast = source / 2 == destination / 2;
    *value = attribute == cudaDevP2PAttrPerformanceRank   ? !fast
             : attribute == cudaDevP2PAttrAccessSupported ? 1
                                                          : fast;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

// ---- errors ----

cudaError_t cudaPeekAtLastError(void)
{
    const cudaError_t kept = kept_failure();
    return kept != cudaSuccess ? kept : newest_error;
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = cudaPeekAtLastError();
    newest_error = cudaSuccess;
    return error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
        return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorInsufficientDriver:
        return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
        return "cudaErrorNoDevice";
    case cudaErrorIllegalAddress:
        return "cudaErrorIllegalAddress";
    default:
        return "cudaError";
    }
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration argument";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorDevicesUnavailable:
        return "CUDA-capable device(s) is/are busy or unavailable";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    case cudaErrorNotReady:
        return "device not ready";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
        return "operation failed due to a previous error during capture";
    default:
        return "unknown error";
    }
}
}
