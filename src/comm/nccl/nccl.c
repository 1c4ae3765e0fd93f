// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Collectives on GPU buffers by NCCL. A part of the plugin.
//
// A communicator for each group that the caller names; its ranks are the blocks in order, so that
// NCCL's in-place layout is the ownership order. All are non-blocking: a call that has to connect
// first returns at once and is waited for with a deadline, so a rank that never comes is an error
// here and not a hang.
//
// Buffers that are registered are so with every communicator of every rank: NCCL leaves open what
// a collective does for which some ranks have registered theirs and others have not.
//
// Two communicators may run at once, one a stream. Their kernels are launched in one order on all
// ranks, as the engine has one thread do so; CTAs are limited (base/nccl.h) so that both fit on the
// GPU together all the same, and so do those of all ranks that share it. NVLS, which cannot have
// two ranks on one GPU, NCCL leaves out itself where it finds them.
#include "base/clock.h"
#include "base/size.h"
#include "comm/internal.h"
#include "comm/nccl/library.h"
#include "mics/log.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { NCCL_MAX_GROUPS = 64 };

// One group's communicator. `mutex` guards every use of it but abort.
typedef struct nccl_group {
    mics_group group;
    int32_t own_block;
    uint64_t order; // hash of block_of
    int32_t channel;
    ncclComm_t comm;
    pthread_mutex_t mutex;
    bool used[MICS_COMM_CALLS];
    void *handles[MICS_COMM_MAX_BUFFERS]; // of registered buffers; an abort frees them itself
} nccl_group;

typedef struct nccl_comm {
    mics_comm base;
    mics_memory *memory;
    mics_device *device;
    const nccl_library *nccl;
    double timeout_s;
    comm_nccl_terms terms;
    double opened_bytes; // of the GPU's memory, that opening took, of all ranks that share it
    nccl_group groups[NCCL_MAX_GROUPS];
    int32_t group_count;
    _Atomic bool aborted;
    _Atomic bool told; // a failure was logged
} nccl_comm;

// ---- results ----

static mics_status fail(nccl_comm *self, ncclResult_t result, ncclComm_t comm, const char *what)
{
    if (self->aborted)
        return MICS_ERR_ABORTED;
    if (atomic_exchange(&self->told, true))
        return MICS_ERR_COMM;
    const char *more = comm != NULL ? self->nccl->GetLastError(comm) : NULL;
    return mics_fail(MICS_ERR_COMM, "%s: NCCL: %s%s%s", what, self->nccl->GetErrorString(result),
                     more != NULL && more[0] != '\0' ? ": " : "", more != NULL ? more : "");
}

// A call of a non-blocking communicator is made by a thread that NCCL starts for it, within tens of
// microseconds. A sleep of any length lasts the timer's slack of 50 us more, so the first of them
// would be most of what a collective costs its thread.
#define POLL_US 30.0

// Lets others run, which may be that thread; after POLL_US it sleeps.
static void wait_a_little(double begin_us)
{
    if (mics_clock_us() - begin_us < POLL_US)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000}, NULL);
}

// Waits for a call of a non-blocking communicator to have done what it does on the host.
static mics_status settle(nccl_comm *self, ncclComm_t comm, ncclResult_t result, const char *what)
{
    const double begin_us = mics_clock_us();
    mics_patience patience = mics_patience_begin(self->timeout_s);
    while (result == ncclInProgress) {
        if (self->aborted)
            return MICS_ERR_ABORTED;
        if (mics_patience_ends(&patience)) {
            if (!atomic_exchange(&self->told, true))
                mics_log(MICS_LOG_ERROR,
                         "%s: NCCL has not connected this rank with its group in %g s "
                         "(run.comm_timeout_s)",
                         what, self->timeout_s);
            return MICS_ERR_TIMEOUT;
        }
        const ncclResult_t asked = self->nccl->CommGetAsyncError(comm, &result);
        if (asked != ncclSuccess)
            result = asked;
        if (result == ncclInProgress)
            wait_a_little(begin_us);
    }
    return result == ncclSuccess ? MICS_OK : fail(self, result, comm, what);
}

// ---- opening ----

static double free_bytes(const nccl_comm *self)
{
    mics_device_info info = {.name = ""};
    self->device->ops->info(self->device->ctx, &info);
    return (double)info.memory_free_bytes;
}

// Ranks that share a GPU read what is free of it while none of them allocates.
static mics_status meet_sharers(const nccl_comm *self)
{
    return self->terms.sharers > 1 ? mics_comm_agree(self->base.inner, MICS_OK) : MICS_OK;
}

static mics_status read_free(const nccl_comm *self, double *bytes_out)
{
    MICS_TRY(meet_sharers(self));
    *bytes_out = free_bytes(self);
    return meet_sharers(self);
}

// The address of the owner of block 0 goes to all members.
static mics_status share_id(nccl_comm *self, const mics_comm_group *over, ncclUniqueId *id_out)
{
    const int32_t size = over->group.size, own = comm_block_of(over, over->group.index);
    ncclUniqueId *ids = NULL;
    MICS_TRY(MICS_NEW(self->memory, size, &ids));
    ncclResult_t result = own == 0 ? self->nccl->GetUniqueId(&ids[0]) : ncclSuccess;
    // A rank that has none fails after the exchange, in which others wait for it.
    const mics_comm_group on_host = {.group = over->group,
                                     .block_of = over->block_of,
                                     .channel = 0,
                                     .what = "addresses for NCCL"};
    mics_status status =
        mics_comm_all_gather(self->base.inner, &on_host, ids, sizeof(ncclUniqueId));
    *id_out = ids[0];
    mics_free(self->memory, ids);
    if (status == MICS_OK && result != ncclSuccess)
        status = fail(self, result, NULL, over->what);
    return status;
}

static mics_status open_group(nccl_comm *self, const mics_comm_group *over)
{
    nccl_group *own = &self->groups[self->group_count];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    config.blocking = 0;
    config.minCTAs = 1;
    config.maxCTAs = over->channel == 0 ? self->terms.ctas.intra : self->terms.ctas.inter;
    *own = (nccl_group){.group = over->group,
                        .own_block = comm_block_of(over, over->group.index),
                        .order = comm_order_hash(over),
                        .channel = over->channel};
    MICS_TRY(share_id(self, over, &id));
    if (pthread_mutex_init(&own->mutex, NULL) != 0)
        return mics_fail(MICS_ERR_MEMORY, "no mutex for a communicator of NCCL");
    self->group_count++;
    const ncclResult_t result =
        self->nccl->CommInitRankConfig(&own->comm, over->group.size, id, own->own_block, &config);
    return settle(self, own->comm, result, over->what);
}

// ---- collectives ----

static nccl_group *find_group(nccl_comm *self, const mics_comm_group *over)
{
    const uint64_t order = comm_order_hash(over);
    for (int32_t i = 0; i < self->group_count; i++) {
        nccl_group *own = &self->groups[i];
        if (own->group.first == over->group.first && own->group.stride == over->group.stride &&
            own->group.size == over->group.size && own->channel == over->channel &&
            own->order == order)
            return own;
    }
    return NULL;
}

static ncclDataType_t type_of(mics_dtype dtype)
{
    static const ncclDataType_t types[MICS_DTYPES] = {[MICS_DTYPE_FP32] = ncclFloat32,
                                                      [MICS_DTYPE_BF16] = ncclBfloat16,
                                                      [MICS_DTYPE_FP16] = ncclFloat16};
    return types[dtype];
}

// Whether a call has done, or will do, what it was asked for.
static bool goes_on(ncclResult_t result)
{
    return result == ncclSuccess || result == ncclInProgress;
}

// A block to one rank of the communicator, and another from one.
static ncclResult_t send_and_receive(const nccl_comm *self, const nccl_group *own,
                                     const mics_comm_call *call, int32_t to, int32_t from,
                                     void *incoming, cudaStream_t stream)
{
    const nccl_library *nccl = self->nccl;
    const size_t elems = (size_t)call->block_elems;
    const ncclDataType_t type = type_of(call->dtype);
    const ncclResult_t sent =
        nccl->Send(comm_outgoing(call, to), elems, type, to, own->comm, stream);
    return goes_on(sent) ? nccl->Recv(incoming, elems, type, from, own->comm, stream) : sent;
}

// All sends and receives of one call are one group, so NCCL runs them at once.
static ncclResult_t all_to_all(const nccl_comm *self, const nccl_group *own,
                               const mics_comm_call *call, cudaStream_t stream)
{
    const mics_comm_group *over = call->over;
    const int32_t size = over->group.size, index = over->group.index;
    const size_t block_bytes = (size_t)call->block_elems * mics_dtype_bytes(call->dtype);
    ncclResult_t result = self->nccl->GroupStart();
    for (int32_t hop = 1; hop < size && goes_on(result); hop++) {
        const int32_t to = comm_block_of(over, (index + hop) % size);
        const int32_t from = comm_block_of(over, (index + size - hop) % size);
        result = send_and_receive(self, own, call, to, from,
                                  comm_incoming(call, hop, from, block_bytes), stream);
    }
    const ncclResult_t ended = self->nccl->GroupEnd();
    return goes_on(result) ? ended : result;
}

static ncclResult_t to_itself(const nccl_comm *self, const nccl_group *own,
                              const mics_comm_call *call, cudaStream_t stream)
{
    ncclResult_t result = self->nccl->GroupStart();
    if (goes_on(result))
        result = send_and_receive(self, own, call, own->own_block, own->own_block, call->incoming,
                                  stream);
    const ncclResult_t ended = self->nccl->GroupEnd();
    return goes_on(result) ? ended : result;
}

// Enqueues; in place, as rank r of the communicator owns block r.
static ncclResult_t enqueue(const nccl_comm *self, const nccl_group *own,
                            const mics_comm_call *call, cudaStream_t stream)
{
    const nccl_library *nccl = self->nccl;
    const size_t elems = (size_t)call->block_elems;
    const ncclDataType_t type = type_of(call->dtype);
    void *mine = comm_block(call->buffer, own->own_block, elems * mics_dtype_bytes(call->dtype));
    switch (call->kind) {
    case MICS_COMM_CALL_ALL_GATHER:
        return nccl->AllGather(mine, call->buffer, elems, type, own->comm, stream);
    case MICS_COMM_CALL_ALL_TO_ALL:
        return all_to_all(self, own, call, stream);
    case MICS_COMM_CALL_REDUCE_SCATTER:
        return nccl->ReduceScatter(call->buffer, mine, elems, type, ncclSum, own->comm, stream);
    default: // ALL_REDUCE
        return nccl->AllReduce(call->buffer, call->buffer, elems * (size_t)own->group.size, type,
                               ncclSum, own->comm, stream);
    }
}

typedef ncclResult_t (*enqueue_function)(const nccl_comm *self, const nccl_group *own,
                                         const mics_comm_call *call, cudaStream_t stream);

static mics_status run_call(nccl_comm *self, nccl_group *own, const mics_comm_call *call,
                            enqueue_function enqueue_call)
{
    cudaStream_t stream =
        self->device->ops->stream_handle(self->device->ctx, call->over->channel + 1);
    pthread_mutex_lock(&own->mutex);
    mics_status status = self->aborted ? MICS_ERR_ABORTED : MICS_OK;
    if (status == MICS_OK)
        status = settle(self, own->comm, enqueue_call(self, own, call, stream), call->over->what);
    pthread_mutex_unlock(&own->mutex);
    return status;
}

static mics_status no_group(const mics_comm_call *call)
{
    return mics_fail(MICS_ERR_INVALID, "%s: no communicator was opened for this group",
                     call->over->what);
}

// A group of one needs no communicator: its collectives in place leave all as it is.
static mics_status nccl_collective(void *ctx, const mics_comm_call *call)
{
    nccl_comm *self = ctx;
    if (call->block_elems == 0)
        return MICS_OK;
    nccl_group *own = find_group(self, call->over);
    if (own == NULL)
        return call->over->group.size == 1 ? MICS_OK : no_group(call);
    own->used[call->kind] = true;
    return run_call(self, own, call, enqueue);
}

static mics_status nccl_check(void *ctx)
{
    nccl_comm *self = ctx;
    if (self->aborted)
        return MICS_ERR_ABORTED;
    for (int32_t i = 0; i < self->group_count; i++) {
        nccl_group *own = &self->groups[i];
        ncclResult_t result = ncclSuccess;
        if (pthread_mutex_trylock(&own->mutex) != 0)
            continue; // who holds it asks
        if (self->aborted) {
            pthread_mutex_unlock(&own->mutex);
            return MICS_ERR_ABORTED;
        }
        const ncclResult_t asked = self->nccl->CommGetAsyncError(own->comm, &result);
        if (asked != ncclSuccess)
            result = asked;
        const mics_status status =
            goes_on(result) ? MICS_OK : fail(self, result, own->comm, "a collective");
        pthread_mutex_unlock(&own->mutex);
        MICS_TRY(status);
    }
    return mics_comm_check(self->base.inner);
}

// ---- registered buffers ----

static void deregister(const nccl_comm *self, nccl_group *own)
{
    for (int32_t b = 0; b < MICS_COMM_MAX_BUFFERS; b++) {
        if (own->comm != NULL && own->handles[b] != NULL)
            self->nccl->CommDeregister(own->comm, own->handles[b]);
        own->handles[b] = NULL;
    }
}

static void nccl_unregister(void *ctx)
{
    nccl_comm *self = ctx;
    for (int32_t i = 0; i < self->group_count; i++) {
        pthread_mutex_lock(&self->groups[i].mutex);
        deregister(self, &self->groups[i]);
        pthread_mutex_unlock(&self->groups[i].mutex);
    }
}

// NCCL refuses by an error or, where it does not register at all (NCCL_LOCAL_REGISTER), by no
// handle; then `result` stays ncclSuccess.
static bool takes(nccl_comm *self, const mics_comm_buffer *buffers, int32_t count,
                  ncclResult_t *result_out)
{
    bool all = true;
    for (int32_t i = 0; i < self->group_count && all; i++) {
        nccl_group *own = &self->groups[i];
        pthread_mutex_lock(&own->mutex);
        for (int32_t b = 0; b < count && all; b++) {
            if (own->comm != NULL)
                *result_out = self->nccl->CommRegister(own->comm, buffers[b].memory,
                                                       buffers[b].bytes, &own->handles[b]);
            all = *result_out == ncclSuccess && own->handles[b] != NULL;
        }
        pthread_mutex_unlock(&own->mutex);
    }
    return all;
}

// One rank that refuses is enough. The agreement allocates nothing, so that no rank can miss it.
static mics_status nccl_register(void *ctx, const mics_comm_buffer *buffers, int32_t count)
{
    nccl_comm *self = ctx;
    ncclResult_t result = ncclSuccess;
    self->device->ops->stream_handle(self->device->ctx, 0); // NCCL looks at the thread's GPU
    const bool taken = takes(self, buffers, count, &result);
    const mics_status agreed =
        mics_comm_agree(self->base.inner, taken ? MICS_OK : MICS_ERR_UNSUPPORTED);
    if (agreed == MICS_OK)
        return MICS_OK;
    nccl_unregister(self);
    if (agreed != MICS_ERR_UNSUPPORTED && agreed != MICS_ERR_PEER)
        return agreed;
    if (self->base.rank == 0)
        mics_log(MICS_LOG_INFO,
                 "NCCL registers no buffers (%s), so between nodes all ranks copy through its own",
                 taken                   ? "another rank cannot"
                 : result == ncclSuccess ? "NCCL_LOCAL_REGISTER=1 allows it"
                                         : self->nccl->GetErrorString(result));
    return MICS_OK;
}

// ---- memory ----

#define LEAST_FREE_BYTES ((double)((size_t)256 << 20))

static int32_t ranks_here(const nccl_comm *self, const mics_group *group)
{
    const int32_t per_node = self->base.ranks_per_node;
    int32_t here = 0;
    for (int32_t member = 0; member < group->size; member++)
        here += mics_group_rank(*group, member) / per_node == self->base.rank / per_node;
    return here;
}

// Bytes that this rank's communicators may take on the GPU, by the calls that they have made.
static double counted_bytes(const nccl_comm *self)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < self->group_count; i++) {
        const nccl_group *own = &self->groups[i];
        const mics_nccl_use use = {.ranks = own->group.size,
                                   .ranks_here = ranks_here(self, &own->group),
                                   .ctas = own->channel == 0 ? self->terms.ctas.intra
                                                             : self->terms.ctas.inter,
                                   .message_ctas = self->terms.ctas.messages,
                                   .rings = own->used[MICS_COMM_CALL_ALL_GATHER] ||
                                            own->used[MICS_COMM_CALL_REDUCE_SCATTER] ||
                                            own->used[MICS_COMM_CALL_ALL_REDUCE],
                                   .messages = own->used[MICS_COMM_CALL_ALL_TO_ALL]};
        bytes += mics_nccl_bytes(&use);
    }
    return (double)(bytes + MICS_NCCL_PROCESS_BYTES) * self->terms.sharers;
}

// Compares the GPU's memory at the end with the ledger; ranks that share a GPU see the same.
static mics_status check_memory(const nccl_comm *self, double held, double left)
{
    const double counted = counted_bytes(self);
    char texts[3][32];
    if (held <= counted && left >= LEAST_FREE_BYTES)
        return MICS_OK;
    mics_size_text(held, texts[0], sizeof texts[0]);
    mics_size_text(counted, texts[1], sizeof texts[1]);
    mics_size_text(left, texts[2], sizeof texts[2]);
    if (held > counted)
        return mics_fail(MICS_ERR_MEMORY,
                         "rank %d: after the warm-up NCCL holds %s of its GPU, and %s were counted "
                         "for it; fewer CTAs (NCCL_MAX_CTAS, NCCL_MAX_P2P_NCHANNELS) or "
                         "NCCL_PAT_ENABLE=0 would help",
                         (int)self->base.rank, texts[0], texts[1]);
    return mics_fail(MICS_ERR_MEMORY,
                     "rank %d: after the warm-up %s of its GPU are free, and 256 MiB are needed; "
                     "NCCL holds %s, and %s were counted for it; a lower run.memory_limit would "
                     "help",
                     (int)self->base.rank, texts[2], texts[0], texts[1]);
}

// A rank whose run fails leaves at once: its caller ends the world.
static mics_status nccl_warm_up(void *ctx, mics_comm_warm_up_run run, void *run_ctx)
{
    const nccl_comm *self = ctx;
    double before = 0, after = 0;
    MICS_TRY(read_free(self, &before));
    MICS_TRY(run(run_ctx));
    MICS_TRY(read_free(self, &after));
    if (self->group_count == 0)
        return mics_comm_agree(self->base.inner, MICS_OK);
    return mics_comm_agree(self->base.inner,
                           check_memory(self, self->opened_bytes + before - after, after));
}

// ---- ends ----

// Kernels that wait for other ranks end, and with them whoever waits for this device. What belongs
// to one communicator is freed when the whole GPU is idle, so all of them must be told before: in a
// group (github.com/NVIDIA/nccl/issues/1013).
static void abort_groups(nccl_comm *self)
{
    for (int32_t i = 0; i < self->group_count; i++) // who holds it sees `aborted`, and leaves
        pthread_mutex_lock(&self->groups[i].mutex);
    self->nccl->GroupStart();
    for (int32_t i = 0; i < self->group_count; i++) {
        if (self->groups[i].comm != NULL)
            self->nccl->CommAbort(self->groups[i].comm);
        self->groups[i].comm = NULL;
        memset(self->groups[i].handles, 0, sizeof self->groups[i].handles);
    }
    self->nccl->GroupEnd();
    for (int32_t i = 0; i < self->group_count; i++)
        pthread_mutex_unlock(&self->groups[i].mutex);
}

// The inner comm goes first: where ranks are processes it ends this one, whatever NCCL, whose own
// abort may wait for ranks that are gone, would make of it.
static void nccl_abort(void *ctx)
{
    nccl_comm *self = ctx;
    const bool first = !atomic_exchange(&self->aborted, true);
    mics_comm_abort(self->base.inner, NULL);
    if (first)
        abort_groups(self);
}

// After an error others may never come to finalise.
static void close_groups(nccl_comm *self)
{
    for (int32_t i = 0; i < self->group_count; i++) {
        nccl_group *own = &self->groups[i];
        if (own->comm == NULL)
            continue;
        deregister(self, own);
        if (self->told ||
            settle(self, own->comm, self->nccl->CommFinalize(own->comm), "closing NCCL") != MICS_OK)
            continue;
        self->nccl->CommDestroy(own->comm);
        own->comm = NULL;
    }
    abort_groups(self); // those that are left
    for (int32_t i = 0; i < self->group_count; i++)
        pthread_mutex_destroy(&self->groups[i].mutex);
}

static void nccl_close(void *ctx)
{
    nccl_comm *self = ctx;
    close_groups(self);
    mics_comm_close(self->base.inner);
    mics_free(self->memory, self);
}

static const mics_comm_ops nccl_ops = {
    .name = "nccl",
    .abort = nccl_abort,
    .close = nccl_close,
    .collective = nccl_collective,
    .check = nccl_check,
    .register_buffers = nccl_register,
    .unregister_buffers = nccl_unregister,
    .warm_up = nccl_warm_up,
};

/* The plugin's entries: internal.h, MICS_CUDA_COMM_OPEN, _WHY_NOT and _TO_ITSELF. */
mics_status mics_cuda_comm_open_take(mics_memory *memory, mics_comm *inner,
                                     const mics_device_comm_spec *spec,
                                     const comm_nccl_terms *terms, mics_comm **comm_out);
const char *mics_cuda_comm_why_not(void);
mics_status mics_cuda_comm_to_itself(mics_comm *comm, const mics_comm_call *call);

const char *mics_cuda_comm_why_not(void)
{
    return nccl_get() != NULL ? NULL : nccl_why_not();
}

static mics_status open_groups(nccl_comm *self, const mics_device_comm_spec *spec)
{
    double before = 0, after = 0;
    MICS_TRY(read_free(self, &before));
    for (int32_t i = 0; i < spec->group_count; i++)
        MICS_TRY(open_group(self, &spec->groups[i]));
    MICS_TRY(read_free(self, &after));
    self->opened_bytes = before - after;
    return MICS_OK;
}

mics_status mics_cuda_comm_open_take(mics_memory *memory, mics_comm *inner,
                                     const mics_device_comm_spec *spec,
                                     const comm_nccl_terms *terms, mics_comm **comm_out)
{
    const nccl_library *nccl = nccl_get();
    if (nccl == NULL)
        return mics_fail(MICS_ERR_UNSUPPORTED, "NCCL: %s", nccl_why_not());
    if (spec->group_count > NCCL_MAX_GROUPS)
        return mics_fail(MICS_ERR_INVALID, "NCCL: %d groups; at most %d", (int)spec->group_count,
                         NCCL_MAX_GROUPS);
    nccl_comm *self = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &self));
    self->memory = memory;
    self->device = spec->device;
    self->nccl = nccl;
    self->timeout_s = spec->timeout_s;
    self->terms = *terms;
    self->base = *inner;
    self->base.inner = inner;
    self->base.ops = &nccl_ops;
    self->base.ctx = self;
    self->base.ranks_sharing = 1;
    const mics_status status = open_groups(self, spec);
    if (status != MICS_OK) {
        self->told = true;
        close_groups(self);
        mics_free(memory, self);
        return status;
    }
    *comm_out = &self->base;
    return MICS_OK;
}

mics_status mics_cuda_comm_to_itself(mics_comm *comm, const mics_comm_call *call)
{
    nccl_comm *self = comm->ctx;
    nccl_group *own = find_group(self, call->over);
    return own != NULL ? run_call(self, own, call, to_itself) : no_group(call);
}
