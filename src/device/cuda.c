// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One GPU as a device.
//
// 1. Streams are non-blocking: nothing meets on CUDA's default stream. Communication streams have
//    the higher priority, so that a collective's kernels start between those of computation.
// 2. CUDA counts the current device by thread, so every entry sets it; that is cheap when it is set
//    already.
// 3. `blocks` holds what alloc and alloc_host gave and nobody has freed, for close.
// 4. Event times are kept by the GPU, and known as fp32 milliseconds since another event.
//    `reference` is one whose time by mics_clock_us is known; it is renewed before fp32 becomes too
//    coarse.
#include "base/clock.h"
#include "device/cuda_internal.h"
#include "device/cuda_launch.h"
#include "device/plugin.h"
#include "mics/log.h"
#include <assert.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// fp32 milliseconds below 2^13 have steps of half a microsecond.
#define REFERENCE_MAX_MS 8000.0f
#define REFERENCE_QUICK_US 100.0

typedef struct block {
    struct block *next;
    void *memory;
    bool host;
} block;

typedef struct cuda_device {
    mics_device device; // first: what open hands out
    int index;
    int32_t event_count;
    cudaStream_t streams[MICS_DEVICE_STREAMS];
    cudaEvent_t *events;
    cudaStream_t clock_stream; // always idle
    cudaEvent_t reference;
    double reference_us;
    struct {
        void *object;
        void (*close)(void *object);
    } kept[MICS_DEVICE_KEEPERS];
    pthread_mutex_t mutex; // of blocks and the reference
    block *blocks;
} cuda_device;

static cuda_device *enter(void *ctx)
{
    cuda_device *self = ctx;
    cudaSetDevice(self->index);
    return self;
}

// What a call that enqueues or asks gave. Told once; see cuda_failure.c.
static mics_status told(const cuda_device *self, cudaError_t error, const char *what)
{
    if (error == cudaSuccess || error == cudaErrorNotReady)
        return mics_cuda_kept(self->index);
    return mics_cuda_keep(self->index, what, cudaGetErrorString(error));
}

// ---- memory ----

static mics_status remember(cuda_device *self, void *memory, bool host)
{
    block *entry = calloc(1, sizeof *entry);
    if (entry == NULL)
        return mics_fail(MICS_ERR_MEMORY, "no memory for a list of the GPU's blocks");
    *entry = (block){.memory = memory, .host = host};
    pthread_mutex_lock(&self->mutex);
    entry->next = self->blocks;
    self->blocks = entry;
    pthread_mutex_unlock(&self->mutex);
    return MICS_OK;
}

static void give(const block *entry)
{
    if (entry->host)
        cudaFreeHost(entry->memory);
    else
        cudaFree(entry->memory);
}

static void forget(cuda_device *self, void *memory)
{
    pthread_mutex_lock(&self->mutex);
    block **link = &self->blocks;
    while (*link != NULL && (*link)->memory != memory)
        link = &(*link)->next;
    block *entry = *link;
    if (entry != NULL)
        *link = entry->next;
    pthread_mutex_unlock(&self->mutex);
    assert(entry != NULL); // a block of this device, freed once
    if (entry != NULL)
        give(entry);
    free(entry);
}

static mics_status fail_memory(const cuda_device *self, size_t bytes, cudaError_t error)
{
    size_t free_bytes = 0, total_bytes = 0;
    cudaGetLastError();
    if (error != cudaErrorMemoryAllocation)
        return told(self, error, "cudaMalloc");
    cudaMemGetInfo(&free_bytes, &total_bytes);
    return mics_fail(MICS_ERR_MEMORY, "GPU %d: %zu bytes were asked for, and %zu of %zu are free",
                     self->index, bytes, free_bytes, total_bytes);
}

static mics_status cuda_alloc(void *ctx, size_t bytes, void **block_out)
{
    cuda_device *self = enter(ctx);
    const size_t held = bytes > 0 ? bytes : 1;
    void *memory = NULL;
    cudaError_t error = cudaMalloc(&memory, held);
    if (error != cudaSuccess)
        return fail_memory(self, bytes, error);
    error = cudaMemsetAsync(memory, 0, held, self->clock_stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(self->clock_stream);
    mics_status status = told(self, error, "cudaMemsetAsync");
    if (status == MICS_OK)
        status = remember(self, memory, false);
    if (status != MICS_OK)
        cudaFree(memory);
    else
        *block_out = memory;
    return status;
}

static mics_status cuda_alloc_host(void *ctx, size_t bytes, void **block_out)
{
    cuda_device *self = enter(ctx);
    const size_t held = bytes > 0 ? bytes : 1;
    void *memory = NULL;
    const cudaError_t error = cudaHostAlloc(&memory, held, cudaHostAllocPortable);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return mics_fail(MICS_ERR_MEMORY,
                         "%zu bytes of page-locked memory cannot be had; see ulimit -l", bytes);
    }
    if (error != cudaSuccess)
        return told(self, error, "cudaHostAlloc");
    memset(memory, 0, held);
    const mics_status status = remember(self, memory, true);
    if (status != MICS_OK)
        cudaFreeHost(memory);
    else
        *block_out = memory;
    return status;
}

static void cuda_free(void *ctx, void *memory)
{
    if (memory != NULL)
        forget(enter(ctx), memory);
}

// ---- enqueued ----

static void cuda_copy(void *ctx, int32_t stream, void *to, const void *from, size_t bytes)
{
    cuda_device *self = enter(ctx);
    told(self, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, self->streams[stream]),
         "cudaMemcpyAsync");
}

static void cuda_zero(void *ctx, int32_t stream, void *to, size_t bytes)
{
    cuda_device *self = enter(ctx);
    told(self, cudaMemsetAsync(to, 0, bytes, self->streams[stream]), "cudaMemsetAsync");
}

static void cuda_record(void *ctx, int32_t stream, int32_t event)
{
    cuda_device *self = enter(ctx);
    assert(event >= 0 && event < self->event_count);
    told(self, cudaEventRecord(self->events[event], self->streams[stream]), "cudaEventRecord");
}

static void cuda_wait(void *ctx, int32_t stream, int32_t event)
{
    cuda_device *self = enter(ctx);
    assert(event >= 0 && event < self->event_count);
    told(self, cudaStreamWaitEvent(self->streams[stream], self->events[event], 0),
         "cudaStreamWaitEvent");
}

// ---- graphs ----

// Other threads may do what they like, NCCL's allocations for one: a capture concerns its own
// alone.
static void cuda_graph_begin(void *ctx, int32_t stream)
{
    cuda_device *self = enter(ctx);
    told(self, cudaStreamBeginCapture(self->streams[stream], cudaStreamCaptureModeThreadLocal),
         "cudaStreamBeginCapture");
}

static void *cuda_graph_end(void *ctx, int32_t stream)
{
    cuda_device *self = enter(ctx);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t instance = NULL;
    cudaError_t error = cudaStreamEndCapture(self->streams[stream], &graph);
    told(self, error, "cudaStreamEndCapture");
    if (error != cudaSuccess)
        return NULL;
    error = cudaGraphInstantiate(&instance, graph, 0);
    cudaGraphDestroy(graph);
    told(self, error, "cudaGraphInstantiate");
    return error == cudaSuccess ? (void *)instance : NULL;
}

static void cuda_graph_launch(void *ctx, int32_t stream, void *graph)
{
    cuda_device *self = enter(ctx);
    told(self, cudaGraphLaunch((cudaGraphExec_t)graph, self->streams[stream]), "cudaGraphLaunch");
}

static void cuda_graph_close(void *ctx, void *graph)
{
    enter(ctx);
    if (graph != NULL)
        cudaGraphExecDestroy((cudaGraphExec_t)graph);
}

// ---- from the host ----

static mics_status cuda_poll(void *ctx, int32_t event, bool *done_out)
{
    cuda_device *self = enter(ctx);
    assert(event >= 0 && event < self->event_count);
    const cudaError_t error = cudaEventQuery(self->events[event]);
    MICS_TRY(told(self, error, "work that was enqueued"));
    *done_out = error == cudaSuccess;
    return MICS_OK;
}

// An event's time lies between the two that were read around it; a quick one is known well.
static cudaError_t renew_reference(cuda_device *self)
{
    double took_us = REFERENCE_QUICK_US + 1;
    cudaError_t error = cudaSuccess;
    for (int i = 0; error == cudaSuccess && took_us > REFERENCE_QUICK_US && i < 10; i++) {
        const double before_us = mics_clock_us();
        error = cudaEventRecord(self->reference, self->clock_stream);
        if (error == cudaSuccess)
            error = cudaEventSynchronize(self->reference);
        took_us = mics_clock_us() - before_us;
        self->reference_us = before_us + took_us / 2;
    }
    return error;
}

static double cuda_event_us(void *ctx, int32_t event)
{
    cuda_device *self = enter(ctx);
    float ms = 0;
    assert(event >= 0 && event < self->event_count);
    pthread_mutex_lock(&self->mutex);
    cudaError_t error = cudaEventElapsedTime(&ms, self->reference, self->events[event]);
    if (error == cudaSuccess && (ms > REFERENCE_MAX_MS || ms < -REFERENCE_MAX_MS)) {
        error = renew_reference(self);
        if (error == cudaSuccess)
            error = cudaEventElapsedTime(&ms, self->reference, self->events[event]);
    }
    const double us = self->reference_us + 1e3 * (double)ms;
    pthread_mutex_unlock(&self->mutex);
    told(self, error, "cudaEventElapsedTime");
    return us;
}

static mics_status cuda_synchronize(void *ctx, int32_t stream)
{
    cuda_device *self = enter(ctx);
    return told(self, cudaStreamSynchronize(self->streams[stream]), "work that was enqueued");
}

static mics_status cuda_check(void *ctx)
{
    cuda_device *self = enter(ctx);
    for (int stream = 0; stream < MICS_DEVICE_STREAMS; stream++)
        MICS_TRY(told(self, cudaStreamQuery(self->streams[stream]), "work that was enqueued"));
    return MICS_OK;
}

static void cuda_range_begin(void *ctx, const char *name)
{
    (void)ctx;
    nvtxRangePushA(name);
}

static void cuda_range_end(void *ctx)
{
    (void)ctx;
    nvtxRangePop();
}

// ---- for modules ----

// Sets the device too: who asks is about to launch on that stream.
static void *cuda_stream_handle(void *ctx, int32_t stream)
{
    const cuda_device *self = enter(ctx);
    return (void *)self->streams[stream];
}

static void cuda_fail(void *ctx, const char *what)
{
    const cuda_device *self = ctx;
    mics_cuda_keep(self->index, "a library's call failed", what);
}

static void *cuda_kept(void *ctx, mics_device_keeper keeper)
{
    const cuda_device *self = ctx;
    return self->kept[keeper].object;
}

static void cuda_keep(void *ctx, mics_device_keeper keeper, void *object,
                      void (*close)(void *object))
{
    cuda_device *self = ctx;
    self->kept[keeper].object = object;
    self->kept[keeper].close = close;
}

static void cuda_info(void *ctx, mics_device_info *info_out)
{
    const cuda_device *self = enter(ctx);
    size_t free_bytes = 0, total_bytes = 0;
    if (mics_plugin_device_info(self->index, info_out) != MICS_OK)
        *info_out = (mics_device_info){.name = "unknown"};
    if (cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess)
        info_out->memory_free_bytes = free_bytes;
}

// ---- opening and closing ----

static void close_streams(cuda_device *self)
{
    for (int32_t event = 0; self->events != NULL && event < self->event_count; event++)
        if (self->events[event] != NULL)
            cudaEventDestroy(self->events[event]);
    if (self->reference != NULL)
        cudaEventDestroy(self->reference);
    if (self->clock_stream != NULL)
        cudaStreamDestroy(self->clock_stream);
    for (int stream = 0; stream < MICS_DEVICE_STREAMS; stream++)
        if (self->streams[stream] != NULL)
            cudaStreamDestroy(self->streams[stream]);
}

static void cuda_close(void *ctx)
{
    cuda_device *self = enter(ctx);
    for (int stream = 0; stream < MICS_DEVICE_STREAMS; stream++)
        if (self->streams[stream] != NULL)
            cudaStreamSynchronize(self->streams[stream]);
    for (int keeper = 0; keeper < MICS_DEVICE_KEEPERS; keeper++)
        if (self->kept[keeper].object != NULL)
            self->kept[keeper].close(self->kept[keeper].object);
    while (self->blocks != NULL) {
        block *entry = self->blocks;
        self->blocks = entry->next;
        give(entry);
        free(entry);
    }
    close_streams(self);
    cudaGetLastError(); // whoever opens next has nothing to do with it
    pthread_mutex_destroy(&self->mutex);
    free(self->events);
    free(self);
}

static const mics_device_ops cuda_ops = {
    .name = "cuda",
    .alloc = cuda_alloc,
    .free = cuda_free,
    .alloc_host = cuda_alloc_host,
    .free_host = cuda_free,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .record = cuda_record,
    .wait = cuda_wait,
    .graph_begin = cuda_graph_begin,
    .graph_end = cuda_graph_end,
    .graph_launch = cuda_graph_launch,
    .graph_close = cuda_graph_close,
    .poll = cuda_poll,
    .event_us = cuda_event_us,
    .synchronize = cuda_synchronize,
    .check = cuda_check,
    .range_begin = cuda_range_begin,
    .range_end = cuda_range_end,
    .stream_handle = cuda_stream_handle,
    .fail = cuda_fail,
    .kept = cuda_kept,
    .keep = cuda_keep,
    .info = cuda_info,
    .close = cuda_close,
};

static cudaError_t open_streams(cuda_device *self)
{
    int least = 0, greatest = 0;
    cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    for (int stream = 0; error == cudaSuccess && stream < MICS_DEVICE_STREAMS; stream++)
        error = cudaStreamCreateWithPriority(&self->streams[stream], cudaStreamNonBlocking,
                                             stream == 0 ? least : greatest);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&self->clock_stream, cudaStreamNonBlocking);
    for (int32_t event = 0; error == cudaSuccess && event < self->event_count; event++)
        error = cudaEventCreateWithFlags(&self->events[event], cudaEventDefault);
    if (error == cudaSuccess)
        error = cudaEventCreateWithFlags(&self->reference, cudaEventDefault);
    return error == cudaSuccess ? renew_reference(self) : error;
}

static mics_status fail_open(int32_t index, cudaError_t error)
{
    cudaGetLastError();
    if (error == cudaErrorMemoryAllocation)
        return mics_fail(MICS_ERR_MEMORY,
                         "GPU %d has no memory left for another process; see "
                         "nvidia-smi for who uses it",
                         (int)index);
    if (error == cudaErrorDevicesUnavailable || error == cudaErrorNotPermitted ||
        error == cudaErrorSystemNotReady)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "GPU %d may not be used by this process (%s): it is another's alone, or a "
                         "part of it (MIG) that was not granted; CUDA_VISIBLE_DEVICES chooses "
                         "another",
                         (int)index, cudaGetErrorString(error));
    return mics_fail(MICS_ERR_DEVICE, "GPU %d cannot be opened: %s (%s)", (int)index,
                     cudaGetErrorString(error), cudaGetErrorName(error));
}

mics_status mics_plugin_device_open(int32_t index, int32_t events, mics_device **device_out)
{
    assert(events >= 0);
    cuda_device *self = calloc(1, sizeof *self);
    void **list = calloc((size_t)events + 1, sizeof(cudaEvent_t));
    if (self == NULL || list == NULL || pthread_mutex_init(&self->mutex, NULL) != 0) {
        free(self);
        free(list);
        return mics_fail(MICS_ERR_MEMORY, "no memory for a device of %d events", (int)events);
    }
    self->device = (mics_device){.ops = &cuda_ops, .ctx = self};
    self->index = (int)index;
    self->event_count = events;
    self->events = (cudaEvent_t *)(void *)list;
    mics_cuda_forget(index);
    cudaError_t error = cudaSetDevice(self->index); // makes the context
    if (error == cudaSuccess)
        error = open_streams(self);
    if (error == cudaSuccess)
        error = (cudaError_t)mics_cuda_load_kernels();
    if (error != cudaSuccess) {
        const mics_status status = fail_open(index, error);
        cuda_close(self);
        return status;
    }
    *device_out = &self->device;
    return MICS_OK;
}
