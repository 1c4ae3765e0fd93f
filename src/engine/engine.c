// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The engine's public calls: opening, initial values, a training step, an evaluation.
#include "base/clock.h"
#include "base/hash.h"
#include "engine/agree.h"
#include "engine/collectives.h"
#include "engine/complete.h"
#include "engine/compute_steps.h"
#include "engine/events.h"
#include "engine/host_copy.h"
#include "engine/islands.h"
#include "engine/replicas.h"
#include "engine/scrub.h"
#include "engine/state.h"
#include "engine/status.h"
#include "engine/streams.h"
#include "engine/verdict.h"
#include "engine/watch.h"
#include "mics/core/agreement.h"
#include "mics/core/heartbeat.h"
#include "mics/core/transport.h"
#include "mics/log.h"
#include <math.h>
#include <stdatomic.h>
#include <string.h>

// A device's numbers travel as they are held, but for a second hop, or changes, in bf16.
static mics_status check_steps(const mics_schedule *schedule)
{
    for (int phase = 0; phase < MICS_PHASES; phase++) {
        const mics_step_list *list = &schedule->lists[phase];
        for (int32_t i = 0; i < list->count; i++) {
            const mics_step *step = &list->steps[i];
            if (step->coded)
                return mics_fail(MICS_ERR_UNSUPPORTED,
                                 "run.comm_dtype.params \"delta\": this version codes parameter "
                                 "sync on CPUs only; leave it out, or set run.device to cpu");
            if (step->dtype.sent != step->dtype.held &&
                !((mics_step_is_second_hop(step) || mics_step_meets(step)) &&
                  step->dtype.sent == MICS_COMM_BF16))
                return mics_fail(
                    MICS_ERR_UNSUPPORTED,
                    "%s as %s: on a GPU numbers travel as they are held, but for a "
                    "second hop, and outer.dtype, in bf16; leave the rest of run.comm_dtype as it "
                    "is there, and see run.precision",
                    mics_step_text(step->kind, step->stage),
                    mics_comm_dtype_text(step->dtype.sent));
        }
    }
    return MICS_OK;
}

// Whether the device has memory of its own.
static bool is_remote(const mics_engine_spec *spec)
{
    return spec->device != NULL && !spec->device->is_host;
}

// The kernels of the spec, or else those of its device; NULL: the device has none.
static const mics_kernels *kernels_of(const mics_engine_spec *spec)
{
    if (spec->kernels != NULL)
        return spec->kernels;
    return is_remote(spec) ? mics_kernels_cuda() : mics_kernels_get(NULL);
}

static mics_status check_host(const mics_engine_spec *spec)
{
    const bool lacks = spec->dtype == MICS_DTYPE_FP16 ||
                       (spec->dtype == MICS_DTYPE_BF16 && kernels_of(spec)->bf16 == NULL);
    if (lacks)
        return mics_fail(MICS_ERR_UNSUPPORTED, "the CPU has no kernels in %s; fp32 and bf16 work",
                         mics_dtype_text(spec->dtype));
    return MICS_OK;
}

// Checks that the device has a kernel for every op of the model.
static mics_status check_ops(const mics_engine_spec *spec)
{
    const mics_model *model = spec->schedule->spec.model;
    const mics_kernels *kernels = kernels_of(spec);
    if (kernels == NULL)
        return mics_fail(MICS_ERR_UNSUPPORTED, "there are no kernels for the device; build the "
                                               "plugin again");
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t o = 0; o < model->units[u].op_count; o++) {
            const mics_op_kind kind = model->units[u].ops[o].kind;
            if (kernels->ops[kind]->forward == NULL && !mics_op_def_get(kind)->travels)
                return mics_fail(MICS_ERR_UNSUPPORTED,
                                 "unit %s: this version has %s on CPUs only; set run.device to cpu",
                                 model->units[u].name, mics_op_def_get(kind)->name);
        }
    }
    return MICS_OK;
}

static mics_status check_device(const mics_engine_spec *spec)
{
    const mics_schedule_spec *schedule = &spec->schedule->spec;
    const bool mixed = schedule->precision == MICS_PRECISION_MIXED;
    const bool on_host = !is_remote(spec);
    if (schedule->accelerator == on_host || mixed != (spec->dtype != MICS_DTYPE_FP32))
        return mics_fail(MICS_ERR_INVALID,
                         "a schedule in %s precision for %s does not fit %s in %s",
                         mics_precision_text(schedule->precision),
                         schedule->accelerator ? "accelerators" : "the CPU",
                         on_host ? "an engine on the CPU" : "a device that computes",
                         mics_dtype_text(spec->dtype));
    if (spec->graphs && (on_host || spec->device->ops->graph_begin == NULL))
        return mics_fail(MICS_ERR_UNSUPPORTED, "the device has no graphs; leave `graphs` false");
    if (mixed && schedule->sums_by_ring)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "bf16 and fp16 sums by rings can be planned, not run; leave "
                         "sums_by_ring false");
    if (schedule->all_reduces)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "all-reduces over replicas can be planned, not run; leave all_reduces "
                         "false");
    if (on_host)
        return check_host(spec);
    MICS_TRY(check_ops(spec));
    return check_steps(spec->schedule);
}

// How long nothing may move on a device, where the spec does not say.
static const double default_timeout_s = 300;

static mics_status check_islands(const mics_engine_spec *spec)
{
    if (spec->schedule->meetings == NULL)
        return MICS_OK;
    if (spec->dtype == MICS_DTYPE_FP16)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "islands would scale fp16's losses each by itself; train in bf16");
    if (!(spec->outer_lr > 0) || !isfinite(spec->outer_lr) || !(spec->outer_momentum >= 0) ||
        !(spec->outer_momentum < 1))
        return mics_fail(MICS_ERR_INVALID,
                         "outer.lr %g must be above 0, and outer.momentum %g from 0 to below 1",
                         (double)spec->outer_lr, (double)spec->outer_momentum);
    return MICS_OK;
}

static mics_status check_spec(const mics_engine_spec *spec)
{
    const mics_mesh *mesh = &spec->schedule->spec.mesh;
    if (!mics_comm_is_counting(spec->comm))
        return mics_fail(MICS_ERR_INVALID,
                         "the engine needs a communicator made by mics_comm_count_open_take");
    const int32_t world = mics_mesh_world(mesh);
    if (spec->comm->ranks != world || spec->comm->ranks_per_node != mesh->ranks_per_node)
        return mics_fail(
            MICS_ERR_INVALID,
            "the communicator has %d ranks, %d a node; the schedule is for %d, %d a node",
            (int)spec->comm->ranks, (int)spec->comm->ranks_per_node, (int)world,
            (int)mesh->ranks_per_node);
    if (spec->schedule->spec.optimizer != spec->optimizer.kind)
        return mics_fail(MICS_ERR_INVALID,
                         "the schedule counts the states of %s, the engine's are %s's",
                         mics_optimizer_def_get(spec->schedule->spec.optimizer)->name,
                         mics_optimizer_def_get(spec->optimizer.kind)->name);
    MICS_TRY(check_islands(spec));
    const bool rated = spec->other_rate != 0;
    if (rated && (spec->optimizer.kind != MICS_OPTIMIZER_MUON || !(spec->other_rate > 0) ||
                  !isfinite(spec->other_rate)))
        return mics_fail(MICS_ERR_INVALID,
                         "other_rate %g: must be 0, or more with an optimizer that takes matrices "
                         "whole (Muon)",
                         spec->other_rate);
    if (spec->schedule->spec.share_params && spec->comm->ranks_sharing % mesh->ranks_per_node != 0)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "the schedule shares parameters among %d ranks of a node, and the "
                         "communicator has memory in common for %d; set run.share_params to false",
                         (int)mesh->ranks_per_node, (int)spec->comm->ranks_sharing);
    return check_device(spec);
}

// Fills in what the spec leaves open.
static mics_status open_device(mics_engine *engine)
{
    const mics_engine_spec *spec = &engine->spec;
    engine->device = spec->device;
    if (spec->device == NULL) {
        MICS_TRY(mics_device_cpu_open(mics_engine_events(engine->schedule), &engine->own_device));
        engine->device = engine->own_device;
    }
    engine->dtype = spec->dtype;
    engine->elem_bytes = mics_dtype_bytes(spec->dtype);
    engine->spec.kernels = kernels_of(spec);
    const bool bf16_on_host = !is_remote(spec) && spec->dtype == MICS_DTYPE_BF16;
    engine->ops = bf16_on_host ? engine->spec.kernels->bf16 : engine->spec.kernels;
    if (spec->timeout_s <= 0)
        engine->spec.timeout_s = default_timeout_s;
    if (spec->loss_scaling.window == 0 && spec->loss_scaling.fixed <= 0)
        engine->spec.loss_scaling = mics_loss_scaling_default();
    engine->scaler = mics_scaler_init(&engine->spec.loss_scaling);
    engine->limits = (mics_step_limits){.max_loss = INFINITY};
    return MICS_OK;
}

// All that needs no other rank.
static mics_status open_alone(const mics_engine_spec *spec, mics_engine **engine_out)
{
    mics_engine *engine = NULL;
    MICS_TRY(MICS_NEW(spec->memory, 1, &engine));
    engine->spec = *spec;
    engine->schedule = spec->schedule;
    engine->rank = spec->comm->rank;
    mics_engine_sync_whole(engine);
    mics_status status = open_device(engine);
    if (status == MICS_OK)
        status = state_open(engine);
    if (status == MICS_OK)
        status = islands_open(engine);
    if (status == MICS_OK)
        status = host_copy_open(engine);
    if (status == MICS_OK)
        status = replicas_open(engine);
    if (status == MICS_OK)
        status = scrub_open(engine);
    if (status == MICS_OK)
        status = worker_open(engine);
    if (status != MICS_OK) {
        mics_engine_close(engine);
        return status;
    }
    *engine_out = engine;
    return MICS_OK;
}

// Nobody waits for a rank that failed before.
static mics_status open_together(const mics_engine_spec *spec, mics_engine *engine,
                                 mics_status mine)
{
    MICS_TRY(mics_comm_agree(spec->comm, mine));
    if (spec->schedule->spec.share_params)
        MICS_TRY(state_share(engine));
    if (!is_remote(spec))
        return MICS_OK;
    MICS_TRY(state_register(engine));
    return collectives_warm_up(engine);
}

mics_status mics_engine_open(const mics_engine_spec *spec, mics_engine **engine_out)
{
    MICS_TRY(check_spec(spec));
    mics_engine *engine = NULL;
    mics_status status = open_alone(spec, &engine);
    if (spec->schedule->spec.share_params || is_remote(spec))
        status = open_together(spec, engine, status);
    if (status != MICS_OK) {
        mics_engine_close(engine);
        return status;
    }
    mics_comm_set_timeout_handler(spec->comm, watch_explain, engine);
    *engine_out = engine;
    return MICS_OK;
}

void mics_engine_close(mics_engine *engine)
{
    if (engine == NULL)
        return;
    worker_close(engine);
    replicas_close(engine);
    scrub_close(engine);
    islands_close(engine);
    mics_comm_set_timeout_handler(engine->spec.comm, NULL, NULL);
    state_close(engine);
    mics_free(engine->spec.memory, engine);
}

// ---- initial values ----

// Names a parameter's stream of random numbers.
static uint64_t name_hash(const char *name)
{
    return mics_fnv1a(MICS_FNV1A_BEGIN, name, strlen(name));
}

// Elements [begin, end) of a parameter, in the host's memory; values_out[0] is element `begin`.
static void draw(const mics_param *param, uint64_t seed, int64_t begin, int64_t end,
                 float *values_out)
{
    if (param->init == MICS_INIT_NORMAL) {
        mics_kernels_get(NULL)->draw_normal(values_out, end - begin, seed, name_hash(param->name),
                                            (uint64_t)begin, param->init_std);
        return;
    }
    for (int64_t i = 0; i < end - begin; i++)
        values_out[i] = param->init == MICS_INIT_ONES ? 1 : 0;
}

void mics_engine_draw(const mics_unit *unit, uint64_t seed, bool adapters_alone, mics_range range,
                      float *values_out)
{
    for (int32_t p = 0; p < unit->param_count; p++) {
        const mics_param *param = &unit->params[p];
        int64_t begin = param->offset > range.begin ? param->offset : range.begin;
        int64_t end = param->offset + param->elems;
        end = end < range.end ? end : range.end;
        if (begin < end && (param->adapter || !adapters_alone))
            draw(param, seed, begin - param->offset, end - param->offset,
                 values_out + (begin - range.begin));
    }
}

static void draw_all(mics_engine *engine, uint64_t seed, bool adapters_alone)
{
    const mics_model *model = engine->schedule->spec.model;
    mics_op_set_threads(engine->schedule->spec.batch.threads);
    for (int32_t u = 0; u < model->unit_count; u++) {
        const mics_engine_optimizer_shard held = mics_engine_optimizer_shard_get(engine, u);
        mics_engine_draw(&model->units[u], seed, adapters_alone, held.shard, held.shard_params);
    }
}

mics_status mics_engine_init_random(mics_engine *engine, uint64_t seed)
{
    draw_all(engine, seed, false);
    MICS_TRY(mics_engine_upload(engine));
    return mics_engine_set_anchors(engine);
}

void mics_engine_init_adapters(mics_engine *engine, uint64_t seed)
{
    draw_all(engine, seed, true);
}

// ---- runs of a list ----

static void forget_tokens(mics_engine *engine)
{
    for (int32_t in_flight = 0; in_flight < engine->schedule->spec.layered_micro_steps; in_flight++)
        engine->micro_step_read[in_flight] = -1;
}

static void begin_list(mics_engine *engine, mics_phase phase, const mics_batch_source *source)
{
    begin_streams(engine, phase);
    engine->source = source;
    forget_tokens(engine);
    engine->result = (mics_step_result){.completes = engine->brings_back};
    *own_agreement(engine) = (mics_agreement){.waited_us = (float)engine->waited_us};
    engine->own_sums = (step_sums){0};
    engine->loss_scale = engine->dtype == MICS_DTYPE_FP16 ? engine->scaler.scale : 1;
    engine->begin_us = mics_clock_us();
    status_call(engine, ENGINE_LIST);
}

static mics_traffic sent_so_far(const mics_engine *engine)
{
    mics_traffic sent;
    mics_comm_count_get(engine->spec.comm, &sent);
    return sent;
}

// The figures of a list that has run; `before`: what was sent until it began. Returns: `status`.
static mics_status end_list(mics_engine *engine, mics_traffic before, mics_status status)
{
    mics_step_result *result = &engine->result;
    status_call(engine, ENGINE_IDLE);
    const mics_traffic after = sent_so_far(engine);
    if (status == MICS_OK)
        device_read_exposed(engine);
    result->step_us = mics_clock_us() - engine->begin_us;
    result->sent.intra = after.intra_bytes - before.intra_bytes;
    result->sent.inter = after.inter_bytes - before.inter_bytes;
    result->unsent = engine->unsent;
    result->unsent_by_all = engine->unsent_by_all;
    for (int kind = 0; kind < MICS_STEP_KINDS; kind++)
        result->exposed_comm_us +=
            kind == MICS_STEP_STORE || kind == MICS_STEP_FETCH ? 0 : result->exposed_us[kind];
    if (engine->phase == MICS_PHASE_TRAIN)
        engine->waited_us = result->exposed_comm_us;
    return status;
}

mics_status mics_engine_autotune(mics_engine *engine)
{
    if (engine->device->is_host)
        return MICS_OK;
    engine->loss_scale = 1;
    forget_tokens(engine);
    autotune_gemms(engine);
    return engine->device->ops->synchronize(engine->device->ctx, MICS_STREAM_COMPUTE);
}

static mics_status end_step(mics_engine *engine, mics_status status)
{
    pthread_mutex_lock(&engine->mutex);
    if (status == MICS_OK && engine->result.verdict == MICS_VERDICT_HELD)
        engine->holding = false;
    pthread_mutex_unlock(&engine->mutex);
    return status;
}

mics_status mics_engine_step(mics_engine *engine, int64_t step, float lr,
                             const mics_batch_source *source, mics_step_result *result_out)
{
    if (engine->schedule->spec.evaluation_only)
        return mics_fail(MICS_ERR_INVALID,
                         "the schedule is for evaluation only; it has no training step");
    if (engine->islands != NULL && engine->islands->swapped)
        return mics_fail(MICS_ERR_INVALID,
                         "anchors and masters are swapped; call mics_engine_swap_agreed again");
    mics_engine_next_ballot(engine);
    engine->step = step;
    engine->lr = lr;
    const mics_traffic before = sent_so_far(engine);
    begin_list(engine, MICS_PHASE_TRAIN, source);
    islands_begin(engine, step);
    mics_status status = end_world_unless_ok(engine, scrub_begin(engine));
    if (status == MICS_OK)
        status = end_list(engine, before, run_streams(engine));
    if (status == MICS_OK && mics_schedule_defers(engine->schedule))
        status = end_world_unless_ok(engine, settle_step(engine));
    scrub_pace(engine, engine->result.step_us);
    status = end_step(engine, status);
    if (status != MICS_OK && !(status == MICS_ERR_NUMERIC && engine->all_know))
        return status;
    islands_end(engine);
    engine->stale = true;
    *result_out = engine->result;
    return status == MICS_OK ? MICS_OK : fail_verdict(engine);
}

void mics_engine_set_limits(mics_engine *engine, const mics_step_limits *limits)
{
    engine->limits = *limits;
}

const mics_agreement *mics_engine_agreements(const mics_engine *engine)
{
    return engine->agreements;
}

mics_status mics_engine_eval(mics_engine *engine, const mics_batch_source *source,
                             mics_step_result *result_out)
{
    if (engine->stale)
        MICS_TRY(mics_engine_complete(engine));
    const mics_traffic before = sent_so_far(engine);
    begin_list(engine, MICS_PHASE_EVAL, source);
    MICS_TRY(end_list(engine, before, run_streams(engine)));
    MICS_TRY(settle_evaluation(engine));
    *result_out = engine->result;
    return MICS_OK;
}

// Of the newest evaluation; in the same order as mics_kernels.preference on the CPU.
static mics_status sum_rows(mics_engine *engine, float *log_probs_out)
{
    const mics_batch *batch = &engine->schedule->spec.batch;
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    const mics_device *device = engine->device;
    double *sum = &engine->sums->loss;
    for (int64_t b = 0; b < batch->sequences; b++) {
        device->ops->zero(device->ctx, MICS_STREAM_COMPUTE, sum, sizeof *sum);
        engine->ops->sum_losses(&at, sum, engine->losses + b * batch->length, batch->length);
        if (engine->host_sums != engine->sums)
            device->ops->copy(device->ctx, MICS_STREAM_COMPUTE, engine->host_sums, engine->sums,
                              sizeof *engine->sums);
        MICS_TRY(device->ops->synchronize(device->ctx, MICS_STREAM_COMPUTE));
        log_probs_out[b] = -(float)engine->host_sums->loss;
    }
    return MICS_OK;
}

mics_status mics_engine_log_probs(mics_engine *engine, const mics_batch_source *source,
                                  float *log_probs_out)
{
    mics_batch_source alone = *source; // references may be what is computed here
    mics_step_result result;
    alone.read_references = NULL;
    MICS_TRY(mics_engine_eval(engine, &alone, &result));
    return sum_rows(engine, log_probs_out);
}

const mics_step_time *mics_engine_times(const mics_engine *engine)
{
    device_read_times(engine);
    return engine->times;
}

mics_scaler mics_engine_scaler(const mics_engine *engine)
{
    return engine->scaler;
}

void mics_engine_set_scaler(mics_engine *engine, const mics_scaler *state)
{
    engine->scaler = *state;
}
