// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a rank writes into checkpoints: its share of the state, and what is said with it.
#include "share.h"
#include "base/clock.h"
#include "base/size.h"
#include "io/checkpoint/magnitude.h"
#include "io/checkpoint/store.h"
#include "mics/log.h"
#include "schedule/layered.h"
#include <float.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Element where part `part` of `parts` of so many elements begins: whole cache lines.
static int64_t cut(int64_t elems, int64_t parts, int64_t part)
{
    const int64_t each = mics_size_round_up((elems + parts - 1) / parts, 16);
    return each * part < elems ? each * part : elems;
}

size_t run_share_copy_bytes(const mics_schedule *schedule, int32_t states)
{
    const mics_mesh *mesh = &schedule->spec.mesh;
    const int64_t replicas = mesh->ranks / mesh->sharding.optimizer;
    int64_t elems = 0, met = 0;
    for (int32_t u = 0; u < schedule->spec.model->unit_count; u++) {
        if (!mics_schedule_trains(schedule, u))
            continue;
        elems += cut(schedule->padded_elems[u] / schedule->sharding[u].optimizer, replicas, 1);
        met += schedule->padded_elems[u] / (mics_schedule_unit_ranks(schedule, u) * mesh->islands);
    }
    return (size_t)(elems * (1 + states) + (mesh->islands > 1 ? 2 * met : 0)) * sizeof(float);
}

static void add_state(mics_optimizer_shard *shard, const char *name, const float *data)
{
    shard->states[shard->state_count++] =
        (mics_shard_state){.name = name, .dtype = MICS_DTYPE_FP32, .data = data};
}

int32_t run_share_count(const mics_job *job)
{
    int32_t count = 0;
    for (int32_t unit = 0; unit < job->model->unit_count; unit++)
        count += !job->model->units[unit].frozen;
    return run_job_islands(job) > 1 ? 2 * count : count;
}

// Of all islands each rank has 1 / n of what they agreed on, in order: so it is written once.
static void add_agreed(const run_context *context, mics_optimizer_shard *shards)
{
    const mics_model *model = context->job->model;
    for (int32_t unit = 0; unit < model->unit_count; unit++) {
        if (model->units[unit].frozen)
            continue;
        const mics_engine_outer_shard met = mics_engine_outer_shard_get(context->engine, unit);
        mics_optimizer_shard *shard = shards++;
        *shard = (mics_optimizer_shard){.unit = model->units[unit].name,
                                        .unit_elems = model->units[unit].elems,
                                        .begin = met.met.begin,
                                        .end = met.met.end};
        add_state(shard, MICS_STATE_PARAM, met.anchor + (met.met.begin - met.range.begin));
        add_state(shard, MICS_STATE_OUTER_MOMENTUM, met.momentum);
    }
}

void run_share_fill(const run_context *context, int64_t part, int64_t parts,
                    mics_optimizer_shard *shards)
{
    const mics_model *model = context->job->model;
    const mics_optimizer_def *def = mics_optimizer_def_get(context->job->run->optimizer.kind);
    const bool several = run_job_islands(context->job) > 1;
    const int32_t island = run_island(context);
    int32_t count = 0;
    for (int32_t unit = 0; unit < model->unit_count; unit++) {
        if (model->units[unit].frozen)
            continue;
        const mics_engine_optimizer_shard owned =
            mics_engine_optimizer_shard_get(context->engine, unit);
        const int64_t elems = owned.range.end - owned.range.begin;
        const int64_t from = cut(elems, parts, part);
        mics_optimizer_shard *shard = &shards[count++];
        *shard = (mics_optimizer_shard){.unit = model->units[unit].name,
                                        .of_island = several ? 1 + island : 0,
                                        .unit_elems = model->units[unit].elems,
                                        .begin = owned.range.begin + from,
                                        .end = owned.range.begin + cut(elems, parts, part + 1)};
        add_state(shard, MICS_STATE_PARAM, owned.params + from);
        for (int32_t state = 0; state < def->states; state++)
            add_state(shard, def->state_names[state], owned.states[state] + from);
    }
    if (several)
        add_agreed(context, shards + count);
}

static mics_checkpoint_outer outer_of(const run_context *context, int64_t *counted_out)
{
    const mics_outer_state state = mics_engine_outer_state(context->engine);
    const mics_outer *outer = &context->job->schedule->spec.outer;
    if (state.islands == 1)
        return (mics_checkpoint_outer){.islands = 0};
    for (int32_t i = 0; i < state.windows * state.islands; i++)
        counted_out[i] = state.counted[i];
    return (mics_checkpoint_outer){.islands = state.islands,
                                   .every = outer->every,
                                   .fragments = outer->fragments,
                                   .overlap_steps = outer->overlap_steps,
                                   .met = *state.met,
                                   .counted = counted_out,
                                   .windows = state.windows};
}

static mics_checkpoint_scaler scaler_of(const mics_engine *engine)
{
    const mics_scaler scaler = mics_engine_scaler(engine);
    return (mics_checkpoint_scaler){.scale = scaler.scale,
                                    .steps = scaler.steps,
                                    .since_overflow = scaler.steps - scaler.last_overflow,
                                    .skipped = scaler.skipped,
                                    .hysteresis = scaler.hysteresis};
}

mics_checkpoint_meta run_share_meta(const run_context *context, int64_t step, int64_t *counted)
{
    const mics_job *job = context->job;
    const mics_run *run = job->run;
    const run_position at = run_job_position(job, step);
    mics_checkpoint_meta meta = {
        .step = step,
        .samples = at.samples,
        .sample = at.sample,
        .tokens = at.tokens,
        .seed = run->seed,
        .corpus_hash = run_samples_hash(&job->train_samples),
        .validation_hash = job->validation != NULL ? mics_corpus_hash(job->validation) : 0,
        .model_json = mics_json_text(job->config),
        .tokenizer = run->tokenizer,
        .run_json = job->run_json,
        .run_id = job->node.id,
        .base_hash = context->rank->base_hash,
        .precision = mics_run_precision_text(run->precision),
        .optimizer = mics_optimizer_def_get(run->optimizer.kind)->name,
        .sharding = {run->sharding.params, run->sharding.grads, run->sharding.optimizer},
        .layered_micro_steps =
            mics_schedule_layered_micro_steps(run->micro_steps, run->layered_micro_steps),
        .recent = *context->recent,
        .outer = outer_of(context, counted),
    };
    if (job->run->precision == MICS_RUN_PRECISION_FP16)
        meta.scaler = scaler_of(context->engine);
    meta.model_files = job->model_files;
    if (meta.model_files == NULL && job->checkpoint != NULL)
        meta.model_files = mics_checkpoint_meta_get(job->checkpoint)->model_files;
    meta.tokenizer_text = mics_tokenizer_text(job->tokenizer, &meta.tokenizer_bytes);
    return meta;
}

// ---- numbers that cannot be ----

mics_status run_share_open(const run_context *context, _Atomic float **largest_out)
{
    const int32_t count = run_share_count(context->job);
    mics_memory *memory = context->rank->memory;
    mics_optimizer_shard *shards = NULL;
    MICS_TRY(MICS_NEW(memory, count, largest_out));
    MICS_TRY(MICS_NEW(memory, count, &shards));
    run_share_fill(context, 0, 1, shards);
    for (int32_t i = 0; i < count; i++) {
        float largest = 0;
        (void)mics_magnitude_find(shards[i].states[0].data, shards[i].end - shards[i].begin,
                                  FLT_MAX, &largest);
        atomic_store(&(*largest_out)[i], largest);
    }
    mics_free(memory, shards);
    return MICS_OK;
}

static mics_status check_state(const mics_optimizer_shard *shard, int32_t index, float before,
                               int64_t step, float *largest_inout)
{
    const mics_shard_state *state = &shard->states[index];
    const float *data = state->data, limit = mics_magnitude_limit(state->name, before);
    const int64_t found =
        mics_magnitude_find(data, shard->end - shard->begin, limit, largest_inout);
    if (found < 0)
        return MICS_OK;
    return mics_fail(MICS_ERR_NUMERIC,
                     "step %lld is not saved: element %lld of unit %s, state %s, is %g, %s; resume "
                     "from an older step",
                     (long long)step, (long long)(shard->begin + found), shard->unit, state->name,
                     (double)data[found], mics_magnitude_text(data[found]));
}

// A save that is refused ends the run, and a run that goes on does so from a smaller state.
mics_status run_share_check_numbers(const run_context *context, const mics_optimizer_shard *shards,
                                    int64_t step)
{
    for (int32_t u = 0; u < run_share_count(context->job); u++) {
        const float before = atomic_load(&context->largest[u]);
        float largest = before, other = 0;
        for (int32_t s = 0; s < shards[u].state_count; s++)
            MICS_TRY(check_state(&shards[u], s, before, step, s == 0 ? &largest : &other));
        atomic_store(&context->largest[u], largest);
    }
    return MICS_OK;
}

// ---- how long it takes ----

// Bytes a second of one write to an empty file, until they are on disk; 0: it failed.
static double time_write(const char *path, const void *block, size_t bytes)
{
    const double begin_us = mics_clock_us();
    const mics_status status = mics_store_write_whole(path, block, bytes);
    const double taken_us = mics_clock_us() - begin_us;
    (void)mics_store_remove(path);
    return status == MICS_OK && taken_us > 0 ? (double)bytes * 1e6 / taken_us : 0;
}

// What short writes to the run's folder say of the disk, larger ones as long as they take no time
// that a save would lack.
static double probe_rate(const run_context *context)
{
    static const size_t LEAST_BYTES = 256 << 10, MAX_BYTES = 8 << 20;
    static const double SHORT_S = 0.25;
    char path[RUN_PATH_BYTES];
    void *block = NULL;
    double rate = 0;
    const char *bucket = context->job->checkpoints_dir;
    snprintf(path, sizeof path, "%s/speed-%d.tmp",
             mics_remote_is_bucket(bucket) ? bucket : context->job->run->out,
             (int)context->rank->comm->rank);
    const bool muted = mics_log_mute(true); // whoever saves finds the same mistakes
    if (mics_alloc(context->rank->memory, MICS_MEM_HOST, MAX_BYTES, &block) == MICS_OK) {
        for (size_t bytes = LEAST_BYTES; bytes <= MAX_BYTES; bytes *= 2) {
            rate = time_write(path, block, bytes);
            if (rate <= 0 || (double)bytes / rate > SHORT_S)
                break;
        }
    }
    mics_log_mute(muted);
    mics_free(context->rank->memory, block);
    return rate;
}

// Until the step that was done last is on disk: also of an older save that is still under way.
static double bytes_to_write(const run_context *context, bool writes_older)
{
    const int32_t states = mics_optimizer_def_get(context->job->run->optimizer.kind)->states;
    return (double)run_share_copy_bytes(context->job->schedule, states) * (writes_older ? 2 : 1);
}

// Of seconds that are compared: 0.4 s are too many where 0.3 s are left.
static int decimals(double seconds)
{
    return seconds >= 10 ? 0 : seconds >= 1 ? 1 : 2;
}

static bool is_missed(const run_context *context, double rate, bool writes_older, double asked_us)
{
    const int64_t step = context->progress->step;
    const double bytes = bytes_to_write(context, writes_older);
    char text[32];
    if (rate <= 0)
        rate = probe_rate(context);
    const double asked_s = (mics_clock_us() - asked_us) / 1e6,
                 left_s = context->job->run->grace_s - asked_s, needed_s = bytes / rate;
    if (rate <= 0 || needed_s <= left_s)
        return false;
    if (context->rank->comm->rank == 0)
        mics_log(MICS_LOG_WARNING,
                 "saving step %lld to disk takes some %.*f s, as each rank has %s to write, and "
                 "%.*f s of run.grace_s are left; it goes to node memory first",
                 (long long)step, decimals(needed_s), needed_s,
                 mics_size_text(bytes, text, sizeof text), decimals(left_s),
                 left_s > 0 ? left_s : 0);
    return true;
}

bool run_share_misses_deadline(const run_context *context, double rate, bool writes_older,
                               run_deadline *deadline)
{
    const run_stop *stop = &context->job->stop;
    const double asked_us = atomic_load(&stop->asked_us);
    if (atomic_load(&stop->reason) != RUN_STOP_PROGRAM)
        return false;
    if (deadline->asked_us < asked_us)
        deadline->missed = is_missed(context, rate, writes_older, asked_us);
    deadline->asked_us = asked_us;
    return deadline->missed;
}
