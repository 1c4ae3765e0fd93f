// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where a run computes. Ranks of a machine take its GPUs in turn.
#include "gpu.h"
#include "base/clock.h"
#include "base/file.h"
#include "mics/core/transport.h"
#include "mics/log.h"
#include "precision.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Of page-locked memory, twice a channel, where collectives go through the host.
enum { STAGING_BYTES = 4 << 20 };

// Kinds of groups, each on one of the channels; and one behind the last, to compare with.
enum { MAX_GROUPS = MICS_AXES * MICS_SCOPES * MICS_CHANNELS + 1 };

// What gathers in one ring run over, which are timed before any schedule has them.
static const mics_step whole_gather = {
    .axis = MICS_AXIS_PARTITION, .stage = MICS_STAGE_WHOLE, .stream = MICS_STREAM_INTER};

static bool on_gpu(const mics_job *job)
{
    return job->budget.accelerator.used;
}

// ---- what the run file comes to ----

// NULL where this process has a GPU that can be used, else why not.
static const char *find_why_not(const mics_cuda_findings *found)
{
    if (found->devices == 0)
        return found->why_not;
    return mics_kernels_cuda() != NULL ? NULL : "the plugin has no kernels; build it again";
}

// The same for a run; GPUs are not looked for where it is for the CPU.
static const char *why_not_for(const mics_run *run)
{
    return run->device == MICS_RUN_DEVICE_CPU ? "run.device is cpu"
                                              : find_why_not(mics_cuda_find());
}

mics_status run_gpu_resolve_unseen(mics_run *run)
{
    const bool asked = run->device == MICS_RUN_DEVICE_CUDA;
    MICS_TRY(
        mics_run_resolve_device(run, asked ? NULL : why_not_for(run), run_precision_no_bf16()));
    return mics_run_resolve_attention(run, NULL, NULL);
}

// ---- cuDNN ----

// "9.19.0" as 91900; 0: there is none.
static int64_t cudnn_number(const char *version)
{
    char *end = NULL;
    int64_t number = strtol(version, &end, 10);
    for (int part = 0; part < 2; part++) {
        if (*end != '.')
            return 0;
        number = 100 * number + strtol(end + 1, &end, 10);
    }
    return number;
}

// A run that goes on by other kernels does not have the bits that it would have had.
static void log_other_kernels(const mics_run *run)
{
    if (run->kept_attention != MICS_RUN_ATTENTION_AUTO && run->kept_attention != run->attention)
        mics_log(
            MICS_LOG_INFO,
            "run.attention: %s from here on, and %s before: losses differ in their last digits",
            mics_run_attention_text(run->attention), mics_run_attention_text(run->kept_attention));
    else if (run->kept_attention == MICS_RUN_ATTENTION_CUDNN &&
             strcmp(run->kept_cudnn, run->cudnn) != 0)
        mics_log(MICS_LOG_INFO,
                 "run.attention: by cuDNN %s from here on, and %s before: losses differ in their "
                 "last digits",
                 run->cudnn, run->kept_cudnn);
}

// All machines take cuDNN of one version, or none does.
static mics_status resolve_attention(run_world *world, mics_run *run)
{
    const bool asked = run->attention != MICS_RUN_ATTENTION_OWN || run->attention_auto;
    const bool looks = asked && run->device == MICS_RUN_DEVICE_CUDA;
    const char *why_not = NULL, *found = looks ? mics_cuda_find_cudnn(&why_not) : "";
    const int64_t version = cudnn_number(found);
    int64_t all[] = {why_not != NULL, version, -version};
    MICS_TRY(run_world_max(world, all, 3));
    if (all[0] && why_not == NULL)
        why_not = "another machine of this run has none that can be used (see `mics doctor` there)";
    else if (!all[0] && all[1] != -all[2])
        why_not = "the machines of this run have several versions of it (see `mics doctor`); "
                  "install one on all";
    MICS_TRY(run_world_agree(world, mics_run_resolve_attention(run, found, why_not)));
    if (world->first == 0 && run->attention_auto && looks && why_not != NULL)
        mics_log(MICS_LOG_INFO, "run.attention: our own kernels, as cuDNN cannot be used: %s",
                 why_not);
    if (world->first == 0)
        log_other_kernels(run);
    return MICS_OK;
}

// Calls `visit` with each op that a library's kernels are asked for.
static mics_status visit_library_ops(const mics_job *job, void *ctx,
                                     mics_status (*visit)(void *ctx, const mics_op_shape *shape))
{
    const mics_schedule_spec *spec = &job->schedule->spec;
    for (int32_t u = 0; u < spec->model->unit_count; u++) {
        const mics_unit *unit = &spec->model->units[u];
        for (int32_t o = 0; o < unit->op_count; o++) {
            const mics_op_shape shape =
                mics_op_shape_get(spec->model, unit, &unit->ops[o], spec->batch);
            if (shape.library && mics_op_def_get(unit->ops[o].kind)->library_lacks != NULL)
                MICS_TRY(visit(ctx, &shape));
        }
    }
    return MICS_OK;
}

// What is told of the ops of a run, or once of a reason.
typedef struct library_check {
    const mics_job *job;
    const char *said;
} library_check;

static mics_status check_op(void *ctx, const mics_op_shape *shape)
{
    library_check *check = ctx;
    const char *lacks = mics_op_def_get(shape->op->kind)->library_lacks(shape);
    if (lacks == NULL || lacks == check->said)
        return MICS_OK;
    if (!check->job->run->attention_auto)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "run.attention is \"cudnn\", but in unit %s %s; \"auto\" takes our own "
                         "kernels there",
                         shape->unit, lacks);
    check->said = lacks;
    if (check->job->world == NULL || check->job->world->first == 0)
        mics_log(MICS_LOG_INFO, "run.attention: our own kernels from unit %s on, as %s",
                 shape->unit, lacks);
    return MICS_OK;
}

mics_status run_gpu_check_library(const mics_job *job)
{
    library_check check = {.job = job};
    return visit_library_ops(job, &check, check_op);
}

mics_status run_gpu_resolve_all(run_world *world, mics_run *run, const char **no_bf16_out)
{
    const char *why_not = why_not_for(run), *no_bf16 = run_precision_no_bf16();
    int64_t lacks[] = {why_not != NULL, no_bf16 != NULL};
    MICS_TRY(run_world_max(world, lacks, 2));
    if (lacks[0] && why_not == NULL)
        why_not = "another machine of this run has none that can be used (see `mics doctor` there)";
    if (lacks[1] && no_bf16 == NULL)
        no_bf16 = "a machine of this run has neither AVX512_BF16 nor AMX";
    *no_bf16_out = no_bf16;
    MICS_TRY(run_world_agree(world, mics_run_resolve_device(run, why_not, no_bf16)));
    return resolve_attention(world, run);
}

run_accelerator run_gpu_accelerator(const mics_run *run)
{
    if (run->device != MICS_RUN_DEVICE_CUDA)
        return (run_accelerator){.used = false};
    return (run_accelerator){
        .used = true,
        .kernels = mics_kernels_cuda(),
        .devices = mics_cuda_find()->devices,
    };
}

// ---- what a rank opens ----

// A function of the plugin: ISO C has no cast from an object's address to a function's.
static bool find(const char *name, void *function_out)
{
    void *address = mics_plugin_symbol(name);
    memcpy(function_out, &address, sizeof address);
    return address != NULL;
}

static mics_status open_device(const mics_job *job, run_rank *rank)
{
    const int32_t local = rank->comm->rank % job->budget.ranks_here;
    MICS_TRY(mics_device_cuda_open(local % job->budget.accelerator.devices,
                                   mics_engine_events(job->schedule), &rank->device));
    if (job->run->precision != MICS_RUN_PRECISION_TF32)
        return MICS_OK;
    void (*allow_tf32)(mics_device * device, bool allow) = NULL;
    if (!find("mics_cuda_matmul_allow_tf32", &allow_tf32))
        return mics_fail(MICS_ERR_UNSUPPORTED, "the plugin has no tf32; use run.precision fp32");
    allow_tf32(rank->device, true);
    return MICS_OK;
}

static bool same_group(const mics_comm_group *a, const mics_comm_group *b)
{
    return a->channel == b->channel && a->group.first == b->group.first &&
           a->group.stride == b->group.stride && a->group.size == b->group.size &&
           memcmp(a->block_of, b->block_of, (size_t)a->group.size * sizeof(int32_t)) == 0;
}

static mics_comm_group group_of(const mics_mesh *mesh, const mics_step *step, int32_t rank,
                                int32_t *block_of)
{
    const mics_group_scope scope = mics_step_scope(step);
    const mics_group group = mics_mesh_group(mesh, step->axis, scope, rank);
    for (int32_t member = 0; member < group.size; member++)
        block_of[member] = mics_mesh_block(mesh, step->axis, scope, mics_group_rank(group, member));
    return (mics_comm_group){.group = group,
                             .block_of = block_of,
                             .channel = step->stream == MICS_STREAM_INTER ? 1 : 0,
                             .what = mics_group_text(step->axis, scope)};
}

// Each group that the schedule has collectives of, once a channel; agreements are the host's.
// `blocks` holds MAX_GROUPS times the world's ranks.
static int32_t list_groups(const mics_job *job, int32_t rank, mics_comm_group groups[MAX_GROUPS],
                           int32_t *blocks)
{
    const mics_mesh *mesh = &job->schedule->spec.mesh;
    const int32_t world = mics_mesh_world(mesh);
    int32_t count = 0;
    for (int phase = 0; phase < MICS_PHASES; phase++) {
        const mics_step_list *list = &job->schedule->lists[phase];
        for (int32_t i = 0; i < list->count; i++) {
            const mics_step *step = &list->steps[i];
            if (!mics_step_is_comm(step) || step->kind == MICS_STEP_AGREE ||
                step->kind == MICS_STEP_AGREE_WORLD)
                continue;
            groups[count] = group_of(mesh, step, rank, blocks + count * world);
            int32_t known = 0;
            while (!same_group(&groups[known], &groups[count]))
                known++;
            count += known == count;
        }
    }
    if (job->times_gathers) {
        groups[count] = group_of(mesh, &whole_gather, rank, blocks + count * world);
        count++;
    }
    return count;
}

// Puts the collectives of the device between what the rank counts by and its transport; who has the
// rank's comm keeps it.
static mics_status equip_comm(const mics_job *job, run_rank *rank, int32_t *blocks)
{
    mics_comm_group groups[MAX_GROUPS];
    mics_comm *equipped = NULL;
    const mics_device_comm_spec spec = {
        .device = rank->device,
        .transport = MICS_TRANSPORT_AUTO,
        .piece_bytes = STAGING_BYTES,
        .groups = groups,
        .group_count = list_groups(job, rank->comm->rank, groups, blocks),
        .timeout_s = job->run->comm_timeout_s,
    };
    MICS_TRY(mics_comm_device_open_take(rank->memory, mics_comm_count_inner(rank->comm), &spec,
                                        &equipped));
    mics_comm_count_put_inner(rank->comm, equipped);
    return MICS_OK;
}

// The plans of a rank's library.
typedef struct library_plans {
    mics_exec at;
    const mics_kernels *kernels;
    const char *why_not; // of the first that there is none for
} library_plans;

static mics_status prepare_op(void *ctx, const mics_op_shape *shape)
{
    library_plans *plans = ctx;
    const mics_op_kernels *kernels = plans->kernels->ops[shape->op->kind];
    if (plans->why_not == NULL && mics_op_def_get(shape->op->kind)->library_lacks(shape) == NULL)
        plans->why_not = kernels->prepare(&plans->at, shape);
    return MICS_OK;
}

static mics_status forget_op(void *ctx, const mics_op_shape *shape)
{
    const library_plans *plans = ctx;
    plans->kernels->ops[shape->op->kind]->forget(plans->at.device);
    return MICS_OK;
}

// All ranks have the library's plans, or none has.
static mics_status prepare_library(const mics_job *job, run_rank *rank)
{
    library_plans plans = {.at = {.device = rank->device,
                                  .dtype = job->run->precision == MICS_RUN_PRECISION_BF16
                                               ? MICS_DTYPE_BF16
                                               : MICS_DTYPE_FP16},
                           .kernels = job->budget.accelerator.kernels};
    if (job->run->attention == MICS_RUN_ATTENTION_OWN)
        return MICS_OK;
    mics_status status = visit_library_ops(job, &plans, prepare_op);
    if (plans.why_not != NULL && !job->run->attention_auto)
        status = mics_fail(MICS_ERR_UNSUPPORTED,
                           "run.attention is \"cudnn\": %s; \"own\" works, and \"auto\" where "
                           "it must",
                           plans.why_not);
    int64_t lacks[] = {plans.why_not != NULL};
    MICS_TRY(run_rank_agree(rank, status));
    MICS_TRY(run_rank_max(rank, lacks, 1));
    if (!lacks[0])
        return MICS_OK;
    if (rank->comm->rank == 0)
        mics_log(MICS_LOG_WARNING, "run.attention: our own kernels, as %s",
                 plans.why_not != NULL ? plans.why_not : "cuDNN has no plan on another rank");
    return visit_library_ops(job, &plans, forget_op);
}

mics_status run_gpu_open(const mics_job *job, run_rank *rank)
{
    if (!on_gpu(job) || rank->device != NULL)
        return MICS_OK;
    MICS_TRY(run_rank_agree(rank, open_device(job, rank)));
    MICS_TRY(prepare_library(job, rank));
    int32_t *blocks = NULL;
    MICS_TRY(MICS_NEW(rank->memory, (int64_t)MAX_GROUPS * rank->comm->ranks, &blocks));
    const mics_status status = equip_comm(job, rank, blocks);
    mics_free(rank->memory, blocks);
    return status;
}

// ---- how GEMMs are computed ----

static const char algorithms_name[] = "products.bin";
static const double MAX_TIMING_S = 30;

// What the plugin has for it.
typedef struct tuner {
    void (*time)(mics_device *device, double seconds);
    size_t (*save)(mics_device *device, void *bytes, size_t capacity);
    mics_status (*load)(mics_device *device, const void *bytes, size_t size);
    void (*count)(mics_device *device, int64_t *plans_out, int64_t *measured_out);
} tuner;

static bool find_tuner(tuner *to)
{
    return find("mics_cuda_matmul_time", &to->time) && find("mics_cuda_matmul_save", &to->save) &&
           find("mics_cuda_matmul_load", &to->load) && find("mics_cuda_matmul_count", &to->count);
}

// Whether OUT has choices that this rank's GPU takes.
static mics_status load_algorithms(const tuner *with, run_rank *rank, const char *path,
                                   bool *taken_out)
{
    char *bytes = NULL;
    size_t size = 0;
    *taken_out = false;
    if (access(path, R_OK) != 0)
        return MICS_OK;
    MICS_TRY(mics_file_read_whole(rank->memory, path, MICS_FILE_MAX_WHOLE, &bytes, &size));
    *taken_out = with->load(rank->device, bytes, size) == MICS_OK;
    mics_free(rank->memory, bytes);
    return MICS_OK;
}

static mics_status save_algorithms(const tuner *with, const mics_job *job, run_rank *rank)
{
    const size_t size = with->save(rank->device, NULL, 0);
    char *bytes = NULL;
    MICS_TRY(MICS_NEW(rank->memory, size, &bytes));
    with->save(rank->device, bytes, size);
    const mics_status status =
        mics_file_replace(rank->memory, job->run->out, algorithms_name, bytes, size);
    mics_free(rank->memory, bytes);
    return status;
}

static mics_status time_gemms(const tuner *with, const mics_job *job, run_rank *rank,
                              mics_engine *engine)
{
    const double begin_us = mics_clock_us();
    int64_t plans = 0, measured = 0;
    with->time(rank->device, MAX_TIMING_S);
    const mics_status status = mics_engine_autotune(engine);
    with->time(rank->device, 0);
    MICS_TRY(status);
    with->count(rank->device, &plans, &measured);
    MICS_TRY(save_algorithms(with, job, rank));
    mics_log(MICS_LOG_INFO, "%lld of %lld GEMMs timed in %.1f s, kept in %s/%s",
             (long long)measured, (long long)plans, (mics_clock_us() - begin_us) * 1e-6,
             job->run->out, algorithms_name);
    return MICS_OK;
}

static mics_status choose_algorithms(const tuner *with, const mics_job *job, run_rank *rank,
                                     mics_engine *engine, const char *path)
{
    const bool first = rank->comm->rank == 0;
    bool taken = false;
    mics_status status = MICS_OK;
    if (first)
        status = load_algorithms(with, rank, path, &taken);
    if (first && status == MICS_OK && !taken)
        status = time_gemms(with, job, rank, engine);
    MICS_TRY(run_rank_agree(rank, status));
    if (first)
        return run_rank_agree(rank, MICS_OK);
    status = load_algorithms(with, rank, path, &taken);
    if (status == MICS_OK && !taken)
        mics_log(
            MICS_LOG_WARNING,
            "%s is not for the GPU and cuBLASLt of rank %d, which takes what the library names "
            "first; run on GPUs of one kind, and keep OUT on a disk that all ranks see",
            path, (int)rank->comm->rank);
    return run_rank_agree(rank, status);
}

mics_status run_gpu_autotune(const mics_job *job, run_rank *rank, mics_engine *engine)
{
    tuner with = {.time = NULL};
    char *path = NULL;
    mics_status status = MICS_OK;
    if (!on_gpu(job))
        return MICS_OK;
    if (!job->run->gemm_autotune)
        return run_rank_agree(rank, mics_engine_autotune(engine));
    if (!find_tuner(&with))
        status = mics_fail(MICS_ERR_UNSUPPORTED,
                           "the plugin cannot time GEMMs; set run.gemm_autotune false");
    if (status == MICS_OK)
        status = mics_file_join(rank->memory, job->run->out, algorithms_name, &path);
    status = run_rank_agree(rank, status);
    if (status == MICS_OK && path != NULL)
        status = choose_algorithms(&with, job, rank, engine, path);
    mics_free(rank->memory, path);
    MICS_TRY(status);
    return run_rank_agree(rank, mics_engine_autotune(engine));
}

void run_gpu_fill(const mics_job *job, const run_rank *rank, mics_engine_spec *spec)
{
    const mics_loss_scale *scale = &job->run->loss_scale;
    if (!on_gpu(job))
        return;
    spec->device = rank->device;
    spec->kernels = job->budget.accelerator.kernels;
    spec->graphs = job->run->graphs;
    spec->timeout_s = job->run->comm_timeout_s;
    spec->loss_scaling = (mics_loss_scaling){
        .fixed = scale->dynamic ? 0 : scale->initial,
        .initial = scale->initial,
        .window = scale->window,
        .hysteresis = (int32_t)scale->hysteresis,
        .consecutive_hysteresis = scale->consecutive_hysteresis,
        .min = scale->least,
    };
}

// ---- what it says ----

const char *run_gpu_numbers(mics_run_precision precision)
{
    static const char *const texts[] = {
        [MICS_RUN_PRECISION_AUTO] = "fp32",
        [MICS_RUN_PRECISION_FP32] = "fp32",
        [MICS_RUN_PRECISION_TF32] = "fp32, GEMMs of tf32",
        [MICS_RUN_PRECISION_BF16] = "bf16 with fp32 masters",
        [MICS_RUN_PRECISION_FP16] = "fp16 with fp32 masters and loss scaling",
    };
    return texts[precision];
}

void run_gpu_why(mics_job *job)
{
    const mics_run *run = job->run;
    const size_t bytes = sizeof job->device_why;
    const char *asked = run->device_auto ? "auto" : mics_run_device_text(run->device);
    const mics_cuda_findings *found = mics_cuda_find();
    mics_device_info info = {.name = "GPU"};
    if (run->device == MICS_RUN_DEVICE_CPU && !run->device_auto) {
        snprintf(job->device_why, bytes, "run.device is \"cpu\"");
    } else if (find_why_not(found) != NULL) {
        snprintf(job->device_why, bytes, "run.device is \"%s\", %s here: %s", asked,
                 run->device_auto ? "and no GPU can be used" : "though none can be used",
                 find_why_not(found));
    } else {
        mics_cuda_device_info(0, &info);
        snprintf(job->device_why, bytes, "run.device is \"%s\", and %d GPU%s here: %s", asked,
                 (int)found->devices, found->devices == 1 ? " is" : "s are", info.name);
    }
}
