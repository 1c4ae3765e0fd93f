// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics bench on GPUs: each rank opens its GPU and lets collectives take its buffers, as a run does.
// Whether it is GPUs that are measured is settled before, alike on all ranks: run.device, or --device.
#include "base/clock.h"
#include "measure/internal.h"
#include "mics/core/transport.h"
#include "mics/log.h"
#include <math.h>
#include <stdio.h>

enum {
    MAX_GROUPS = 5,
    STAGING_BYTES = 4 << 20, // as in runs
    COPIES = 5,
    COPY_STREAM = 1
};

static const double TIMEOUT_S = 120;
// Of what a GPU has, all ranks that share it together.
static const double MEMORY_SHARE = 0.25;
static const size_t MAX_BUFFER_BYTES = (size_t)512 << 20;
static const size_t MAX_COPY_BYTES = (size_t)64 << 20;
// ---- whether ----

// NULL where this process has a GPU that can be used, else why not.
static const char *find_why_not(void)
{
    const mics_cuda_findings *found = mics_cuda_find();
    if (found->devices == 0)
        return found->why_not;
    return mics_kernels_cuda() != NULL ? NULL : "the plugin has no kernels; build it again";
}

mics_status measure_gpu_choose(run_world *world, mics_run_device asked, bool *used_out)
{
    const char *why_not = asked == MICS_RUN_DEVICE_CPU ? "the CPU was asked for" : find_why_not();
    int64_t lacks = why_not != NULL;
    MICS_TRY(run_world_max(world, &lacks, 1));
    if (lacks && why_not == NULL)
        why_not = "another machine has none that can be used (see `mics doctor` there)";
    *used_out = !lacks;
    if (!lacks || asked != MICS_RUN_DEVICE_CUDA)
        return MICS_OK;
    return mics_fail(MICS_ERR_UNSUPPORTED,
                     "mics bench: the device is to be cuda, but: %s; --device "
                     "cpu measures what there is",
                     why_not);
}

size_t measure_gpu_budget(const run_world *world)
{
    const int32_t devices = mics_cuda_find()->devices;
    const int32_t sharers = (world->ranks_here + devices - 1) / devices;
    mics_device_info info = {.memory_total_bytes = 0};
    (void)mics_cuda_device_info(0, &info);
    return (size_t)((double)info.memory_total_bytes * MEMORY_SHARE) / (size_t)sharers;
}

int32_t measure_gpu_index(const run_rank *rank)
{
    return rank->comm->rank % rank->world->ranks_here % mics_cuda_find()->devices;
}

// ---- opening ----

static bool same_group(const mics_comm_group *a, const mics_comm_group *b)
{
    return a->channel == b->channel && a->group.first == b->group.first &&
           a->group.stride == b->group.stride && a->group.size == b->group.size;
}

// Each kind of group that is measured, once.
static int32_t list_groups(const measure_session *self, mics_comm_group groups[MAX_GROUPS])
{
    const struct {
        measure_scope scope;
        int32_t nodes;
    } kinds[MAX_GROUPS] = {{MEASURE_INTRA, 1},
                           {MEASURE_INTER, measure_pair(&self->place)},
                           {MEASURE_INTER, self->place.nodes},
                           {MEASURE_ALL, measure_pair(&self->place)},
                           {MEASURE_ALL, self->place.nodes}};
    int32_t count = 0;
    for (int i = 0; i < MAX_GROUPS; i++) {
        const measure_traffic traffic = measure_traffic_among(self, kinds[i].scope, kinds[i].nodes);
        const mics_comm_group group = {
            .group = traffic.group, .channel = traffic.channel, .what = traffic.what};
        int32_t known = 0;
        while (known < count && !same_group(&groups[known], &group))
            known++;
        if (known == count && group.group.size > 1)
            groups[count++] = group;
    }
    return count;
}

// Without collectives: the pair of a session of one rank is nobody.
static mics_status equip(measure_session *self)
{
    run_rank *rank = self->rank;
    mics_comm_group groups[MAX_GROUPS];
    mics_comm *equipped = NULL;
    const mics_device_comm_spec spec = {.device = rank->device,
                                        .transport = MICS_TRANSPORT_AUTO,
                                        .piece_bytes = STAGING_BYTES,
                                        .groups = groups,
                                        .group_count = list_groups(self, groups),
                                        .timeout_s = TIMEOUT_S};
    MICS_TRY(mics_comm_device_open_take(rank->memory, mics_comm_count_inner(rank->comm), &spec,
                                        &equipped));
    mics_comm_count_put_inner(rank->comm, equipped);
    snprintf(self->place.transport, sizeof self->place.transport, "%s", equipped->ops->name);
    return MICS_OK;
}

mics_status measure_gpu_open(measure_session *self)
{
    measure_place *place = &self->place;
    mics_device_info info;
    const mics_status status =
        mics_device_cuda_open(measure_gpu_index(self->rank), MEASURE_EVENTS, &self->rank->device);
    MICS_TRY(run_rank_agree(self->rank, status));
    const mics_device *device = self->rank->device;
    device->ops->info(device->ctx, &info);
    snprintf(place->chip, sizeof place->chip, "%.60s", info.name);
    place->memory_bytes = (double)info.memory_total_bytes;
    double mine = -(double)measure_gpu_budget(self->rank->world);
    MICS_TRY(measure_share(self, &mine, 1));
    double least = mine; // they are negative
    for (int32_t rank = 0; rank < place->ranks; rank++)
        least = fmax(least, self->all[(int64_t)rank * MEASURE_FIGURES]);
    place->buffer_bytes = -least < (double)MAX_BUFFER_BYTES ? (size_t)-least : MAX_BUFFER_BYTES;
    place->shared = false; // GPUs compute, and not cores
    return equip(self);
}

// ---- copies ----

static mics_status time_copies(const measure_session *self, void *host, void *block, size_t bytes,
                               double *us_out)
{
    const mics_device *device = self->rank->device;
    double samples[COPIES];
    for (int i = -1; i < COPIES; i++) { // the first warms up
        const double begin_us = mics_clock_us();
        device->ops->copy(device->ctx, COPY_STREAM, host, block, bytes);
        MICS_TRY(measure_wait(self, COPY_STREAM));
        samples[i < 0 ? 0 : i] = mics_clock_us() - begin_us;
    }
    *us_out = measure_median(samples, COPIES);
    return MICS_OK;
}

mics_status measure_copies_run(measure_session *self, double *bytes_per_s_out)
{
    const mics_device *device = self->rank->device;
    const size_t bytes =
        self->place.buffer_bytes < MAX_COPY_BYTES ? self->place.buffer_bytes : MAX_COPY_BYTES;
    void *host = NULL, *block = NULL;
    double mine = 0;
    measure_say(self, "copies to the host");
    mics_status status = device->ops->alloc_host(device->ctx, bytes, &host);
    if (status == MICS_OK)
        status = device->ops->alloc(device->ctx, bytes, &block);
    MICS_TRY_OUT(run_rank_agree(self->rank, status));
    MICS_TRY_OUT(measure_share(self, &mine, 1)); // all at once
    MICS_TRY_OUT(time_copies(self, host, block, bytes, &mine));
    MICS_TRY_OUT(measure_share(self, &mine, 1));
    *bytes_per_s_out = (double)bytes / measure_mean(self, 0) * 1e6;
out:
    device->ops->free(device->ctx, block);
    device->ops->free_host(device->ctx, host);
    return status;
}

// ---- one GEMM on a stream ----

// C (m, n) = A (m, k) B (k, n) as a linear op has it: forward, or of a weight's gradient (A
// transposed) backward.
mics_op_shape measure_gemm_shape(const measure_gemm *gemm, mics_dtype dtype, mics_op *op)
{
    const bool gradient = gemm->transpose_a;
    const int64_t inputs = gradient ? gemm->m : gemm->k;
    *op = (mics_op){.kind = MICS_OP_LINEAR, .weight_out_in = gemm->transpose_b && !gradient};
    return (mics_op_shape){
        .op = op,
        .unit = "bench",
        .B = 1,
        .T = gradient ? gemm->k : gemm->m,
        .N = gradient ? gemm->k : gemm->m,
        .in = {inputs},
        .out = gemm->n,
        .params = {{op->weight_out_in ? gemm->n : inputs, op->weight_out_in ? inputs : gemm->n}},
        .accelerator_bytes = (int32_t)mics_dtype_bytes(dtype)};
}

void measure_gemm_enqueue(const measure_gemm *gemm, const mics_exec *at)
{
    mics_op op;
    mics_op_call call = {.at = at, .shape = measure_gemm_shape(gemm, at->dtype, &op)};
    const mics_op_kernels *kernels = mics_kernels_cuda()->ops[MICS_OP_LINEAR];
    if (gemm->transpose_a) {
        call.in[0] = gemm->a;
        call.params[0] = gemm->c; // not read: no gradient of the input is wanted
        call.dout = gemm->b;
        call.dparams[0] = gemm->c;
        kernels->backward(&call);
        return;
    }
    call.in[0] = gemm->a;
    call.params[0] = gemm->b;
    call.out = gemm->c;
    kernels->forward(&call);
}
