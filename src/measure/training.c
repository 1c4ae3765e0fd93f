// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Whole training steps on each rank for itself, and what they say of the ops that were timed alone.
//
// Steps of few and of many micro-steps are timed: their difference is passes of the model alone,
// what is left of the shorter is norm, update, and the step's own overhead. A pass is compared with
// what the simulator makes of the ops' rates; they are corrected by the ratio.
#include "base/clock.h"
#include "base/rng.h"
#include "measure/internal.h"
#include "mics/core/engine.h"
#include "mics/core/transport.h"
#include "mics/log.h"
#include "plan/simulate/simulate.h"
#include "run/ranks/precision.h"
#include <math.h>
#include <stdio.h>

static const double TIMEOUT_S = 60; // nobody is waited for

// Of the peak: what a cluster file takes; below, the machine was busy with something else.
static const double MIN_SHARE = 1e-6;

// HIDDEN_PERCENT of an encoder's tokens are targets, as in training (run/masking.c).
enum { FEW = 1, MANY = 3, MAX_STEPS = 64, STAGING_BYTES = 4 << 20, HIDDEN_PERCENT = 15 };

// One rank's model, engine and world of its own.
typedef struct trainer {
    measure_session *session;
    const measure_subject *subject;
    mics_memory *memory;
    mics_schedule *schedule;
    mics_thread_world *world;
    mics_comm *comm;
    mics_engine *engine;
    mics_device *device; // of its own, with the events of its engine; NULL: the CPU
    mics_dtype dtype;
    int64_t step;
} trainer;

static void close_trainer(trainer *self)
{
    mics_engine_close(self->engine);
    mics_comm_close(self->comm);
    mics_device_close(self->device);
    mics_thread_world_close(self->world);
    mics_schedule_close(self->schedule);
}

// Nothing is sent: the communicator only takes the device's buffers.
static mics_status open_device(trainer *self, mics_comm **inner)
{
    MICS_TRY(mics_device_cuda_open(measure_gpu_index(self->session->rank),
                                   mics_engine_events(self->schedule), &self->device));
    const mics_device_comm_spec spec = {.device = self->device,
                                        .transport = MICS_TRANSPORT_STAGED,
                                        .piece_bytes = STAGING_BYTES,
                                        .timeout_s = TIMEOUT_S};
    return mics_comm_device_open_take(self->memory, *inner, &spec, inner);
}

// Parameters are drawn: of zeros a router would send all tokens to the same experts.
static mics_status open_trainer(trainer *self, int32_t micro_steps)
{
    mics_comm *inner = NULL;
    MICS_TRY(measure_schedule_open(self->memory, self->subject, self->dtype, micro_steps,
                                   &self->schedule));
    MICS_TRY(mics_thread_world_open(self->memory, 1, TIMEOUT_S, &self->world));
    MICS_TRY(mics_comm_thread_open(self->memory, self->world, 0, &inner));
    mics_status status = MICS_OK;
    if (self->subject->gpu)
        status = open_device(self, &inner);
    if (status == MICS_OK)
        status = mics_comm_count_open_take(self->memory, inner, 1, &self->comm);
    if (status != MICS_OK)
        mics_comm_close(inner);
    MICS_TRY(status);
    const mics_engine_spec engine = {.memory = self->memory,
                                     .schedule = self->schedule,
                                     .comm = self->comm,
                                     .device = self->device,
                                     .kernels = self->device != NULL ? mics_kernels_cuda() : NULL,
                                     .timeout_s = TIMEOUT_S,
                                     .dtype = self->dtype,
                                     .optimizer = mics_optimizer_standard(MICS_OPTIMIZER_ADAMW),
                                     .clip = 1};
    MICS_TRY(mics_engine_open(&engine, &self->engine));
    MICS_TRY(mics_engine_init_random(self->engine, 1));
    return mics_engine_autotune(self->engine);
}

// Any tokens will do: what they cost does not depend on which, but on how many are targets.
static mics_status read_tokens(void *ctx, int32_t micro_step, int32_t *inputs_out,
                               int32_t *targets_out)
{
    const trainer *self = ctx;
    const int64_t tokens = self->subject->batch.sequences * self->subject->batch.length;
    const mics_model *model = self->subject->model;
    const uint64_t vocab = (uint64_t)model->vocab;
    for (int64_t i = 0; i < tokens; i++) {
        inputs_out[i] = (int32_t)(mics_rng_bits(1, (uint64_t)micro_step, (uint64_t)i) % vocab);
        targets_out[i] = (int32_t)(mics_rng_bits(2, (uint64_t)micro_step, (uint64_t)i) % vocab);
        if (model->masked && i % 100 >= HIDDEN_PERCENT)
            targets_out[i] = -1;
    }
    return MICS_OK;
}

static mics_status train_step(trainer *self, double *us_out)
{
    const mics_batch_source source = {.read = read_tokens, .ctx = self};
    mics_step_result result;
    const double begin_us = measure_work_us(self->session);
    MICS_TRY(mics_engine_step(self->engine, ++self->step, 1e-5F, &source, &result));
    *us_out = measure_work_us(self->session) - begin_us;
    return MICS_OK;
}

// The median step of this rank, after one to warm up; at least one, whatever it takes.
static mics_status time_steps(trainer *self, double seconds, double *us_out, double *spread_out)
{
    double samples[MAX_STEPS];
    int32_t count = 0;
    const double begin_us = mics_clock_us();
    MICS_TRY(train_step(self, us_out));
    do
        MICS_TRY(train_step(self, &samples[count++]));
    while (count < MAX_STEPS && mics_clock_us() - begin_us < seconds * 1e6);
    *us_out = measure_median(samples, count);                  // which sorts them
    *spread_out = samples[count - 1] / fmax(samples[0], 1e-3); // the slowest to the fastest
    return MICS_OK;
}

// ---- what ops say ----

// Rates become what they are in training: times `factor` longer.
static mics_curve shares(const measure_rates *rates, double factor, double peak)
{
    mics_curve curve = {.count = rates->count};
    for (int32_t i = 0; i < rates->count; i++) {
        const double flops_per_s = rates->points[i].flops / rates->points[i].us * 1e6;
        curve.size[i] = rates->points[i].size;
        curve.value[i] = fmin(fmax(flops_per_s / factor / peak, MIN_SHARE), 1);
    }
    return curve;
}

static void take(const measure_ops *self, double factor, measure_compute *compute)
{
    compute->training_factor = factor;
    compute->flops_per_s = factor < 1 ? self->peak / factor : self->peak;
    compute->matmul_efficiency = shares(&self->gemms, factor, compute->flops_per_s);
    compute->attention_efficiency = shares(&self->attention, factor, compute->flops_per_s);
    compute->elementwise_bytes_per_s = self->elementwise_us > 0
                                           ? self->elementwise_bytes / self->elementwise_us * 1e6
                                           : self->stream_bytes_per_s;
    compute->elementwise_bytes_per_s /= factor;
    compute->stream_bytes_per_s = self->stream_bytes_per_s;
    compute->update_bytes_per_s = self->update_bytes_per_s;
    compute->launch_us = self->launch_us;
    // In training those of other precisions lose as much.
    for (int math = 0; math < MICS_MATHS; math++)
        compute->gpu_flops_per_s[math] = self->flops_by_math[math] / fmin(factor, 1);
    if (self->session->place.gpu)
        compute->gpu_flops_per_s[MICS_MATH_BF16] = compute->flops_per_s;
}

// ---- what the simulator says ----

typedef struct expectation {
    double pass_us, rest_us; // forward and backward of one micro-step; norm and update
} expectation;

// A cluster of one rank with what was measured.
static void make_cluster(const measure_compute *compute, mics_cluster *cluster)
{
    const measure_place place = {.per_node = 1};
    measure_file_begin(1, "one rank", cluster);
    measure_file_take_compute(&place, compute, cluster);
    cluster->step_overhead_us = 0;
}

static mics_status expect(const trainer *self, const measure_compute *compute,
                          expectation *expected_out)
{
    const mics_simulate_options options = {.math = self->dtype == MICS_DTYPE_BF16 ? MICS_MATH_BF16
                                                                                  : MICS_MATH_FP32};
    mics_cluster cluster;
    mics_simulation *simulation = NULL;
    make_cluster(compute, &cluster);
    MICS_TRY(mics_cluster_finish(&cluster));
    MICS_TRY(mics_simulate(self->memory, self->schedule, &cluster, &options, &simulation));
    mics_simulated_kind(*kinds)[MICS_STAGES] = simulation->kinds;
    *expected_out = (expectation){.pass_us = (kinds[MICS_STEP_FORWARD][MICS_STAGE_WHOLE].busy_us +
                                              kinds[MICS_STEP_BACKWARD][MICS_STAGE_WHOLE].busy_us) /
                                             self->schedule->spec.micro_steps,
                                  .rest_us = kinds[MICS_STEP_NORM][MICS_STAGE_WHOLE].busy_us +
                                             kinds[MICS_STEP_UPDATE][MICS_STAGE_WHOLE].busy_us};
    mics_simulation_close(simulation);
    return MICS_OK;
}

// ---- all ranks at once ----

// Steps of so many micro-steps; the mean over all ranks.
static mics_status measure(measure_session *b, const measure_subject *subject, mics_dtype dtype,
                           int32_t micro_steps, double seconds, double *us_out, double *spread_out)
{
    trainer self = {.session = b, .subject = subject, .memory = b->rank->memory, .dtype = dtype};
    double mine[2] = {0, 0};
    mics_status status = run_rank_agree(b->rank, open_trainer(&self, micro_steps));
    if (status == MICS_OK)
        status = time_steps(&self, seconds, &mine[0], &mine[1]);
    close_trainer(&self);
    MICS_TRY(status);
    MICS_TRY(measure_share(b, mine, 2));
    *us_out = measure_mean(b, 0);
    *spread_out = measure_max(b, 1);
    return MICS_OK;
}

static mics_status expect_now(measure_session *b, const measure_subject *subject, mics_dtype dtype,
                              const measure_compute *compute, expectation *expected_out)
{
    trainer self = {.session = b, .subject = subject, .memory = b->rank->memory, .dtype = dtype};
    mics_status status = measure_schedule_open(self.memory, subject, dtype, FEW, &self.schedule);
    if (status == MICS_OK)
        status = expect(&self, compute, expected_out);
    close_trainer(&self);
    return run_rank_agree(b->rank, status);
}

// Steps of few and of many micro-steps.
typedef struct steps {
    double few_us, many_us;
    double pass_us; // of one micro-step
} steps;

static mics_status measure_steps(measure_session *b, const measure_subject *subject,
                                 mics_dtype dtype, double seconds, steps *steps_out)
{
    double few_us = 0, many_us = 0, spread = 0;
    MICS_TRY(measure(b, subject, dtype, FEW, seconds * FEW / (FEW + MANY), &few_us, &spread));
    MICS_TRY(measure(b, subject, dtype, MANY, seconds * MANY / (FEW + MANY), &many_us, &spread));
    *steps_out = (steps){.few_us = few_us,
                         .many_us = many_us,
                         .pass_us = fmax((many_us - few_us) / (MANY - FEW), few_us / MANY)};
    return MICS_OK;
}

// The rate of GEMMs in bf16 with which the simulator's pass takes what training in bf16 took: the
// pass is a part that does not depend on the rate, and a part that is its inverse. Two rates say
// what they are.
static mics_status find_bf16(measure_session *b, const measure_subject *subject, double pass_us,
                             measure_compute *compute)
{
    static const double FASTER = 4, MAX_FASTER = 32; // AMX, over AVX-512: 16
    const double fp32 = compute->flops_per_s;
    expectation slow = {0}, fast = {0};
    compute->bf16_flops_per_s = fp32;
    MICS_TRY(expect_now(b, subject, MICS_DTYPE_BF16, compute, &slow));
    compute->bf16_flops_per_s = FASTER * fp32;
    MICS_TRY(expect_now(b, subject, MICS_DTYPE_BF16, compute, &fast));
    const double gemms_us = (slow.pass_us - fast.pass_us) / (1 - 1 / FASTER);
    const double left_us = pass_us - (slow.pass_us - gemms_us);
    compute->bf16_flops_per_s =
        fp32 * (left_us > gemms_us / MAX_FASTER ? gemms_us / left_us : MAX_FASTER);
    return MICS_OK;
}

// Bf16 where a run would have it.
static mics_status measure_bf16(measure_session *b, const measure_subject *subject, double seconds,
                                measure_compute *compute)
{
    double slow = run_precision_no_bf16() != NULL;
    steps taken = {0};
    MICS_TRY(measure_share(b, &slow, 1));
    if (measure_mean(b, 0) > 0)
        return MICS_OK;
    measure_say(b, "steps in bf16");
    MICS_TRY(measure_steps(b, subject, MICS_DTYPE_BF16, seconds, &taken));
    return find_bf16(b, subject, taken.pass_us, compute);
}

mics_status measure_training_run(measure_ops *self, const measure_subject *subject, double seconds,
                                 measure_compute *compute)
{
    static const double OF_FP32 = 0.6;
    measure_session *b = self->session;
    const bool gpu = subject->gpu;
    const mics_dtype dtype = gpu ? MICS_DTYPE_BF16 : MICS_DTYPE_FP32;
    steps taken = {0};
    expectation expected = {0};
    measure_say(b, "steps of the model: %d units, %.1f million parameters, %lld x %lld tokens",
                (int)subject->model->unit_count,
                (double)mics_model_param_count(subject->model) / 1e6,
                (long long)subject->batch.sequences, (long long)subject->batch.length);
    take(self, 1, compute);
    MICS_TRY(measure_steps(b, subject, dtype, (gpu ? 1 : OF_FP32) * seconds, &taken));
    MICS_TRY(expect_now(b, subject, dtype, compute, &expected));
    compute->pass_us = taken.pass_us;
    take(self, compute->pass_us / expected.pass_us, compute);
    MICS_TRY(expect_now(b, subject, dtype, compute, &expected));
    compute->step_overhead_us = fmax(taken.few_us - FEW * taken.pass_us - expected.rest_us, 0);
    return gpu ? MICS_OK : measure_bf16(b, subject, (1 - OF_FP32) * seconds, compute);
}

// ---- whether the file is right ----

mics_status measure_training_check(measure_session *self, const measure_subject *subject,
                                   double seconds, measure_compute *compute)
{
    const mics_dtype dtype = subject->gpu ? MICS_DTYPE_BF16 : MICS_DTYPE_FP32;
    expectation expected = {0};
    MICS_TRY(
        measure(self, subject, dtype, FEW, seconds, &compute->check_us, &compute->check_spread));
    MICS_TRY(expect_now(self, subject, dtype, compute, &expected));
    compute->check_predicted_us =
        FEW * expected.pass_us + expected.rest_us + compute->step_overhead_us;
    return MICS_OK;
}

mics_status measure_training_judge(const measure_compute *compute, double load, int32_t cores,
                                   bool force)
{
    static const double MAX_RATIO = 2, STEADY = 1.5;
    const double us = compute->check_us, predicted_us = compute->check_predicted_us;
    char disturbed[160] = "";
    if (us <= MAX_RATIO * predicted_us && predicted_us <= MAX_RATIO * us)
        return MICS_OK;
    if (load > cores)
        snprintf(disturbed, sizeof disturbed, "something else runs here (load %.1f on %d core%s)",
                 load, (int)cores, cores == 1 ? "" : "s");
    else if (compute->check_spread > STEADY)
        snprintf(disturbed, sizeof disturbed,
                 "the machine is not steady (the slowest step took %.1f times the fastest)",
                 compute->check_spread);
    else
        snprintf(disturbed, sizeof disturbed, "something ran beside what was measured before");
    if (force) {
        mics_log(
            MICS_LOG_WARNING,
            "a step takes %.3g ms, and the figures predict %.3g ms: %s; the file is written, as "
            "--force asks",
            us / 1e3, predicted_us / 1e3, disturbed);
        return MICS_OK;
    }
    return mics_fail(MICS_ERR_FORMAT,
                     "mics bench: a step takes %.3g ms, and the figures predict %.3g ms: %s; no "
                     "file was written; run it again on an idle machine, with more --seconds, or "
                     "with --force",
                     us / 1e3, predicted_us / 1e3, disturbed);
}
