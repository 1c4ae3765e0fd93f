// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"
#include "base/clock.h"
#include "base/size.h"
#include "job.h"
#include "mics/log.h"
#include "run/ranks/gpu.h"
#include <stdlib.h>
#include <time.h>

enum { REPEATS = 5, POLL_NS = 20000 };
static const int64_t MAX_ELEMS = 4 * 1024 * 1024;

// Two stages stay unless one ring takes at most so much of their time: less is noise.
static const double WORTH_A_RING = 0.95;

// A gather over the whole partition group, or a stage of it.
typedef struct way {
    mics_comm_group group;
    int32_t *block_of;
    int64_t block_elems;
    size_t at; // where its blocks begin in the buffer, bytes
    mics_dtype dtype;
    double us[REPEATS];
} way;

typedef struct timing {
    run_rank *rank;
    const mics_schedule *schedule;
    double timeout_s;
    int64_t elems; // of the unit
    way ways[MICS_SCOPES];
    char *buffer;
} timing;

// ---- what is timed ----

// Elements of the largest unit that is gathered in two stages; 0: none is.
static int64_t largest_elems(const mics_schedule *schedule)
{
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    int64_t largest = 0;
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        if (step->kind == MICS_STEP_GATHER && step->stage == MICS_STAGE_INTER &&
            schedule->padded_elems[step->unit] > largest)
            largest = schedule->padded_elems[step->unit];
    }
    return largest;
}

// Cut alike by all degrees, into aligned blocks.
static int64_t timed_elems(const mics_schedule *schedule)
{
    const int64_t largest = largest_elems(schedule);
    const int64_t part = (int64_t)MICS_ALIGNMENT * schedule->spec.mesh.sharding.params;
    return largest < MAX_ELEMS ? largest : MAX_ELEMS / part * part;
}

static mics_status open_way(timing *self, mics_group_scope scope)
{
    static const char *const whats[MICS_SCOPES] = {
        [MICS_SCOPE_WHOLE] = "timing of a gather in one ring",
        [MICS_SCOPE_INTRA] = "timing of a gather's intra-node stage",
        [MICS_SCOPE_INTER] = "timing of a gather's inter-node stage",
    };
    const mics_schedule_spec *spec = &self->schedule->spec;
    const mics_mesh *mesh = &spec->mesh;
    const mics_group_axis axis = MICS_AXIS_PARTITION;
    const int32_t rank = self->rank->comm->rank;
    const bool intra = scope == MICS_SCOPE_INTRA;
    const mics_comm_dtype sent = intra ? spec->params_dtype.intra : spec->params_dtype.inter;
    way *made = &self->ways[scope];
    made->group = (mics_comm_group){.group = mics_mesh_group(mesh, axis, scope, rank),
                                    .channel = intra ? 0 : 1,
                                    .what = whats[scope]};
    MICS_TRY(MICS_NEW(self->rank->memory, made->group.group.size, &made->block_of));
    made->group.block_of = made->block_of;
    for (int32_t m = 0; m < made->group.group.size; m++)
        made->block_of[m] =
            mics_mesh_block(mesh, axis, scope, mics_group_rank(made->group.group, m));
    made->dtype = sent == MICS_COMM_BF16 ? MICS_DTYPE_BF16 : MICS_DTYPE_FP32;
    made->block_elems = self->elems / (intra ? mesh->ranks_per_node : mesh->sharding.params);
    if (scope == MICS_SCOPE_INTER) // this rank's block of its node
        made->at = (size_t)(made->block_elems * made->group.group.size *
                            mics_mesh_block(mesh, axis, MICS_SCOPE_INTRA, rank)) *
                   mics_dtype_bytes(made->dtype);
    return MICS_OK;
}

static mics_status open_timing(timing *self)
{
    const size_t bytes = (size_t)self->elems * sizeof(float);
    const mics_device *device = self->rank->device;
    void *block = NULL;
    for (int scope = 0; scope < MICS_SCOPES; scope++)
        MICS_TRY(open_way(self, (mics_group_scope)scope));
    MICS_TRY(device == NULL ? mics_alloc(self->rank->memory, MICS_MEM_HOST, bytes, &block)
                            : device->ops->alloc(device->ctx, bytes, &block));
    self->buffer = block;
    return MICS_OK;
}

static void close_timing(timing *self)
{
    const mics_device *device = self->rank->device;
    if (device == NULL)
        mics_free(self->rank->memory, self->buffer);
    else
        device->ops->free(device->ctx, self->buffer);
    for (int scope = 0; scope < MICS_SCOPES; scope++)
        mics_free(self->rank->memory, self->ways[scope].block_of);
}

// ---- timing ----

// On a device a collective is done later than its call.
static mics_status wait(const timing *self, const way *of, double begin_us)
{
    const mics_device *device = self->rank->device;
    bool done = device == NULL;
    if (device != NULL)
        device->ops->record(device->ctx, of->group.channel + 1, 0);
    while (!done) {
        MICS_TRY(device->ops->check(device->ctx));
        MICS_TRY(mics_comm_check(self->rank->comm));
        MICS_TRY(device->ops->poll(device->ctx, 0, &done));
        if (!done && mics_clock_us() - begin_us > self->timeout_s * 1e6)
            return mics_fail(MICS_ERR_TIMEOUT,
                             "%s: not done within %g s; see what the other ranks do, or raise "
                             "run.comm_timeout_s",
                             of->group.what, self->timeout_s);
        if (!done)
            nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
    return MICS_OK;
}

// All ranks begin together.
static mics_status time_once(timing *self, way *of, double *us_out)
{
    mics_comm *comm = self->rank->comm;
    const mics_comm_call call = {.kind = MICS_COMM_CALL_ALL_GATHER,
                                 .over = &of->group,
                                 .buffer = self->buffer + of->at,
                                 .block_elems = of->block_elems,
                                 .dtype = of->dtype};
    MICS_TRY(mics_comm_agree(comm, MICS_OK));
    const double begin_us = mics_clock_us();
    MICS_TRY(mics_comm_collective(comm, &call));
    MICS_TRY(wait(self, of, begin_us));
    *us_out = mics_clock_us() - begin_us;
    return MICS_OK;
}

// In turns, so that what else the machines do meets all alike. The first of each, which may open
// connections, does not count.
static mics_status time_all(timing *self)
{
    for (int repeat = -1; repeat < REPEATS; repeat++) {
        for (int scope = 0; scope < MICS_SCOPES; scope++) {
            way *of = &self->ways[scope];
            MICS_TRY(time_once(self, of, &of->us[repeat < 0 ? 0 : repeat]));
        }
    }
    return MICS_OK;
}

static int compare_us(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int64_t median_ns(way *of)
{
    qsort(of->us, REPEATS, sizeof *of->us, compare_us);
    return (int64_t)(of->us[REPEATS / 2] * 1e3);
}

static mics_status agree_on_times(timing *self, run_gather_times *times)
{
    int64_t ns[MICS_SCOPES];
    for (int scope = 0; scope < MICS_SCOPES; scope++)
        ns[scope] = median_ns(&self->ways[scope]);
    MICS_TRY(run_rank_max(self->rank, ns, MICS_SCOPES));
    const int64_t intra = ns[MICS_SCOPE_INTRA], inter = ns[MICS_SCOPE_INTER];
    times->ring_us = (double)ns[MICS_SCOPE_WHOLE] / 1e3;
    times->two_stage_us = (double)(intra > inter ? intra : inter) / 1e3;
    return MICS_OK;
}

mics_status run_gathers_time(run_rank *rank, const mics_schedule *schedule, double timeout_s,
                             run_gather_times *times_out)
{
    timing self = {
        .rank = rank, .schedule = schedule, .timeout_s = timeout_s, .elems = timed_elems(schedule)};
    const double begin_us = mics_clock_us();
    run_gather_times times = {
        .bytes = mics_comm_dtype_bytes(schedule->spec.params_dtype.inter, self.elems)};
    mics_status status = run_rank_agree(rank, open_timing(&self));
    if (status == MICS_OK)
        status = time_all(&self);
    if (status == MICS_OK)
        status = agree_on_times(&self, &times);
    close_timing(&self);
    times.took_s = (mics_clock_us() - begin_us) / 1e6;
    if (status == MICS_OK)
        *times_out = times;
    return status;
}

bool run_gathers_prefer_ring(const run_gather_times *times)
{
    return times->ring_us < WORTH_A_RING * times->two_stage_us;
}

// ---- settling ----

bool run_collectives_is_open(const mics_job *job)
{
    return job->run->collectives == MICS_COLLECTIVES_AUTO && largest_elems(job->schedule) > 0;
}

static void say(const run_gather_times *times)
{
    char size[32];
    mics_log(MICS_LOG_INFO,
             "run.collectives: gathers in %s: %s take %.3g ms in one ring, %.3g ms in two stages "
             "(timed in %.1f s)",
             run_gathers_prefer_ring(times) ? "one ring" : "two stages",
             mics_size_text((double)times->bytes, size, sizeof size), times->ring_us / 1e3,
             times->two_stage_us / 1e3, times->took_s);
}

static mics_status settle_rank(void *ctx, run_rank *rank)
{
    mics_job *job = ctx;
    run_gather_times times;
    MICS_TRY(run_gpu_open(job, rank));
    MICS_TRY(run_gathers_time(rank, job->schedule, job->run->comm_timeout_s, &times));
    if (rank->comm->rank == job->world->first) // one a process
        job->gather_times = times;
    return MICS_OK;
}

mics_status run_collectives_take_rings(mics_job *job)
{
    mics_schedule_spec spec = job->schedule->spec;
    mics_schedule *schedule = NULL;
    spec.model = job->model; // the schedule's own may be spread, and goes with it
    spec.gather = MICS_ALGORITHM_RING;
    MICS_TRY(mics_schedule_open(job->memory, &spec, &schedule));
    mics_schedule_close(job->schedule);
    job->schedule = schedule;
    return run_check_memory(job->memory, job->run, schedule, &job->budget);
}

static mics_status choose(mics_job *job)
{
    const bool ring = run_gathers_prefer_ring(&job->gather_times);
    mics_run_resolve_collectives(job->run,
                                 ring ? MICS_COLLECTIVES_RING_GATHERS : MICS_COLLECTIVES_TWO_STAGE);
    if (job->world->first == 0)
        say(&job->gather_times);
    if (ring)
        MICS_TRY(run_collectives_take_rings(job));
    return run_job_write_resolved(job);
}

mics_status run_collectives_settle(mics_job *job)
{
    job->times_gathers = run_collectives_is_open(job);
    if (!job->times_gathers)
        return MICS_OK;
    MICS_TRY(run_world_run(job->world, settle_rank, job));
    mics_log_hold(job->world->first != 0);
    return run_world_agree(job->world, choose(job));
}
