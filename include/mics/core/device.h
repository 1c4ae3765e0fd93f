// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the machine has for this process: cores and memory, after affinity and control groups have
// taken their share; and the devices that ranks compute on.
#ifndef MICS_DEVICE_H
#define MICS_DEVICE_H

#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mics_machine {
    int32_t cores;       // this process may use: affinity, and the control group's quota rounded up
    int32_t quota_cores; // that quota, for all processes of the group; INT32_MAX: none
    size_t memory_total_bytes;     // of the machine, or the control group's limit if that is less
    size_t memory_available_bytes; // that can be allocated now without swapping
    char cpu_name[96];             // "Intel(R) Xeon(R) ...", or "unknown"
    char isa[96]; // vector extensions that matter here: "avx2 fma avx512f"; may be empty
} mics_machine;

/* Reads what Linux says of machine and process: /proc, sched_getaffinity, control groups v1 and v2.
 *
 * Returns: MICS_OK; MICS_ERR_IO (no /proc/meminfo, or it says nothing of memory; machine_out
 *          untouched).
 * Threads: any.
 */
mics_status mics_machine_read(mics_machine *machine_out);

// ---- devices ----
//
// A device is where one rank computes: the CPU, or one GPU. It has MICS_DEVICE_STREAMS
// streams, numbered as a schedule numbers its own (computation first). What is enqueued on a stream
// runs in order; streams wait for each other through events. On the CPU each call finishes its work
// before it returns, and an event holds the time at which it was recorded. Calls of one stream come
// from one thread at a time; different streams may be used by different threads at once.
//
// A failure of enqueued work is kept and told by `check`, `poll` and `synchronize`, on which the
// world has to end: what the device holds is of no use then.

enum { MICS_DEVICE_STREAMS = 4 };

typedef struct mics_device_info {
    char name[96];             // "NVIDIA H200"
    char id[48];               // of this very device in the world: its UUID
    size_t memory_total_bytes; // of the device
    size_t memory_free_bytes;  // when it was asked
    char detail[160];          // "compute capability 9.0, driver 13.0, PCI 0000:1b:00.0"
} mics_device_info;

// Who keeps something beside a device.
typedef enum mics_device_keeper {
    MICS_DEVICE_GEMMS,
    MICS_DEVICE_ATTENTION,
    MICS_DEVICE_KEEPERS
} mics_device_keeper;

typedef struct mics_device_ops {
    const char *name; // "cpu", "cuda"

    // ---- memory: blocks on 256 bytes, zeroed ----
    // MICS_ERR_MEMORY is logged, with the bytes and what is free. NULL may be freed.
    mics_status (*alloc)(void *ctx, size_t bytes, void **block_out);
    void (*free)(void *ctx, void *block);
    // Memory of the host that `copy` reads and writes beside computation (page-locked for a GPU).
    mics_status (*alloc_host)(void *ctx, size_t bytes, void **block_out);
    void (*free_host)(void *ctx, void *block);

    // ---- enqueued on a stream ----
    // Between any two of: this device's memory, memory of alloc_host, other memory of the host
    // (which must stay as it is until the copy is done, and makes the call wait for it).
    void (*copy)(void *ctx, int32_t stream, void *to, const void *from, size_t bytes);
    void (*zero)(void *ctx, int32_t stream, void *to, size_t bytes);
    // Event number `event`, 0 <= event < the `events` that the device was opened with: it is where
    // the stream is now.
    void (*record)(void *ctx, int32_t stream, int32_t event);
    // What is enqueued on `stream` from now on waits for the newest record of `event`; one that was
    // never recorded is not waited for.
    void (*wait)(void *ctx, int32_t stream, int32_t event);

    // ---- graphs (optional, all or none) ----
    // What this thread enqueues on a stream from now on is kept and not run, until graph_end.
    // Meanwhile it records no events, waits for none, allocates nothing and asks nothing of the
    // device; nor does anybody else of this stream.
    void (*graph_begin)(void *ctx, int32_t stream);
    // Makes a graph of what was kept. NULL: that failed; `check` and the like report it.
    void *(*graph_end)(void *ctx, int32_t stream);
    // Enqueues all of it, in order and with the same arguments, for less than each call alone.
    void (*graph_launch)(void *ctx, int32_t stream, void *graph);
    // NULL is allowed. What was launched has been waited for.
    void (*graph_close)(void *ctx, void *graph);

    // ---- from the host ----
    // Whether the newest record of an event has been reached. Does not wait.
    // Returns: MICS_OK; MICS_ERR_DEVICE (the device failed; logged once).
    mics_status (*poll)(void *ctx, int32_t event, bool *done_out);
    // When a reached event was, in microseconds of CLOCK_MONOTONIC.
    double (*event_us)(void *ctx, int32_t event);
    // Waits for all that is on a stream. Returns as poll.
    mics_status (*synchronize)(void *ctx, int32_t stream);
    // The first failure of what was enqueued so far, as far as it is known without waiting. Returns
    // as poll.
    mics_status (*check)(void *ctx);
    // Marks a range of this thread's calls in a profiler's timeline (NVTX); name is copied.
    void (*range_begin)(void *ctx, const char *name);
    void (*range_end)(void *ctx);
    // What foreign libraries need of a stream: a cudaStream_t. NULL on the CPU.
    void *(*stream_handle)(void *ctx, int32_t stream);
    // Keeps a failure of a foreign library's call that was to enqueue something ("cublasLtMatmul:
    // not supported"), logs it once, and tells it from then on as a failure of enqueued work. NULL
    // on the CPU.
    void (*fail)(void *ctx, const char *what);
    // What kernels keep beside a device (a library's handle, its plans): NULL until it is set.
    // The device's own close calls `close`, after all streams have ended and before ctx goes. Any
    // thread, one at a time; NULL on the CPU.
    void *(*kept)(void *ctx, mics_device_keeper keeper);
    void (*keep)(void *ctx, mics_device_keeper keeper, void *object, void (*close)(void *object));
    void (*info)(void *ctx, mics_device_info *info_out);
    // Waits for all streams; frees what is left, ctx and the mics_device that holds it.
    void (*close)(void *ctx);
} mics_device_ops;

typedef struct mics_device {
    const mics_device_ops *ops;
    void *ctx;
    bool is_host; // its memory is the host's: everyone may read and write it
} mics_device;

/* The CPU as a device. `events`: how many events there are.
 *
 * Needs:   events >= 0.
 * Returns: MICS_OK; MICS_ERR_MEMORY.      Owns: close with mics_device_close.
 */
mics_status mics_device_cpu_open(int32_t events, mics_device **device_out);

/* GPU number `index` of those that this process sees, through the plugin. `events`: how many events
 * there are.
 *
 * Needs:   index >= 0, events >= 0.
 * Returns: MICS_OK; MICS_ERR_UNSUPPORTED (no plugin, driver or such GPU: one logged line says what
 *          is missing and what would work); MICS_ERR_MEMORY; MICS_ERR_DEVICE.
 * Owns:    close with mics_device_close.
 */
mics_status mics_device_cuda_open(int32_t index, int32_t events, mics_device **device_out);

/* Closes; NULL is allowed. */
void mics_device_close(mics_device *device);

// ---- the plugin ----

// What was found of GPUs on this machine.
typedef struct mics_cuda_findings {
    bool plugin; // libmics_cuda.so was opened and is of this build's version
    char plugin_path[256];
    int32_t devices;   // that can be used; 0 when anything is missing
    char driver[32];   // "13.0"; empty when there is none
    char runtime[32];  // CUDA runtime that the plugin was built with
    char nccl[32];     // "2.28.9"; empty when it is missing
    char why_not[256]; // why `devices` is 0, in one line with what would help; else empty
} mics_cuda_findings;

/* Looks for the plugin ($MICS_CUDA_PLUGIN, "none" for none; else beside libmics or the program, in
 * ../lib of it, in the loader's path), the driver and GPUs. Never fails, never logs. Looks once a
 * process.
 *
 * Threads: any.
 * Returns: never NULL; the findings are the library's.
 */
const mics_cuda_findings *mics_cuda_find(void);

/* The version of cuDNN on this machine, "9.19.0"; "" where there is none. Opens its library, at the
 * first call of a process.
 *
 * *why_not_out: why it cannot be used, in one line; NULL where it can.
 * Threads: any.     Owns: both texts are the library's.
 * Returns: never NULL.
 */
const char *mics_cuda_find_cudnn(const char **why_not_out);

/* What is known of a GPU without opening it.
 *
 * Needs:   0 <= index < mics_cuda_find()->devices; else MICS_ERR_UNSUPPORTED.
 * Returns: MICS_OK; MICS_ERR_UNSUPPORTED (not logged).
 */
mics_status mics_cuda_device_info(int32_t index, mics_device_info *info_out);

// How two GPUs of this machine reach each other.
typedef enum mics_cuda_link_kind {
    MICS_CUDA_LINK_HOST, // through the host's memory
    MICS_CUDA_LINK_PEER, // directly, over PCIe
    MICS_CUDA_LINK_FAST  // directly, over NVLink (links with atomics of their own)
} mics_cuda_link_kind;

/* The link between GPUs `a` and `b`; HOST where nothing better is known.
 *
 * Needs:   GPUs that mics_cuda_find counts.
 */
mics_cuda_link_kind mics_cuda_link(int32_t a, int32_t b);

/* Address of a function that the plugin exports, for modules that have a part in it; NULL when
 * there is no plugin, or it lacks the function. */
void *mics_plugin_symbol(const char *name);

#ifdef __cplusplus
}
#endif
#endif
