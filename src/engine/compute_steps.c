// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The computing steps of a schedule: units forward and backward, and the norm. The optimizer's are in
// update.c.
#include "engine/compute_steps.h"
#include "base/rng.h"
#include "engine/ballot.h"
#include "engine/fusion.h"
#include "engine/graphs.h"
#include "engine/matrices.h"
#include "engine/meeting.h"
#include "engine/run_op.h"
#include "engine/scrub.h"
#include "engine/state.h"
#include "engine/status.h"
#include "engine/update.h"
#include "engine/verdict.h"
#include <string.h>

static int64_t batch_tokens(const mics_engine *engine)
{
    return engine->schedule->spec.batch.sequences * engine->schedule->spec.batch.length;
}

// The numbers of all tokens, those that count first. Returns: how many do.
static int64_t put_counted_first(int32_t *order, const int32_t *targets, int64_t tokens)
{
    int64_t counted = 0, rest = tokens;
    for (int64_t t = 0; t < tokens; t++)
        order[targets[t] >= 0 ? counted++ : --rest] = (int32_t)t;
    return counted;
}

// Tokens of a micro-step go to a device through host memory of its own, which nobody touches until
// the step's agreement has waited for all that was enqueued.
static void upload_tokens(mics_engine *engine, const mics_step *step, int32_t *staged)
{
    const mics_device *device = engine->device;
    const int64_t tokens = batch_tokens(engine), vocab = engine->schedule->spec.model->vocab;
    mics_op_sort_tokens(staged + 2 * tokens, staged, tokens, vocab, engine->counts);
    engine->counted_rows[step->in_flight] =
        put_counted_first(staged + 3 * tokens, staged + tokens, tokens);
    device->ops->copy(device->ctx, MICS_STREAM_COMPUTE, in_flight_tokens(engine, step->in_flight),
                      staged, (size_t)engine->schedule->data_elems * sizeof(int32_t));
}

// Random streams of a run's seed that belong to dropout, one a step, as data/sample.c has those of
// the order of samples.
static const uint64_t dropout_stream = (uint64_t)0x5B << 56;

// What the micro-batch's masks are drawn from: the sequences of a micro-step of ranks that share them
// follow those of the ranks before, and those of the micro-steps before.
static void place_draw(const mics_engine *engine, int32_t micro_step, int32_t *data)
{
    const mics_schedule *schedule = engine->schedule;
    const mics_schedule_spec *spec = &schedule->spec;
    if (schedule->data_elems == schedule->data_draw)
        return;
    const uint64_t key = mics_rng_bits(engine->spec.seed, dropout_stream, (uint64_t)engine->step);
    const int64_t place =
        ((int64_t)micro_step * mics_mesh_world(&spec->mesh) + engine->rank) / spec->mesh.sequence;
    const mics_dropout_draw draw = {.key = {(uint32_t)key, (uint32_t)(key >> 32)},
                                    .sequence = (uint32_t)(place * spec->batch.sequences)};
    memcpy(data + schedule->data_draw, &draw, sizeof draw);
}

static int64_t count_targets(const int32_t *targets, int64_t tokens)
{
    int64_t counted = 0;
    for (int64_t t = 0; t < tokens; t++)
        counted += targets[t] >= 0;
    return counted;
}

// What the loss is the mean of: tokens, or pairs of which any token counts.
static int64_t count_items(const mics_engine *engine, const int32_t *targets)
{
    const int64_t tokens = batch_tokens(engine), pair = 2 * engine->schedule->spec.batch.length;
    int64_t pairs = 0;
    if (!has_pairs(engine))
        return count_targets(targets, tokens);
    for (int64_t t = 0; t < tokens; t += pair)
        pairs += count_targets(targets + t, pair) > 0;
    return pairs;
}

static mics_status read_segments(const mics_engine *engine, int32_t micro_step, int32_t *data)
{
    const mics_schedule *schedule = engine->schedule;
    const mics_batch *batch = &schedule->spec.batch;
    const int64_t S = schedule->spec.mesh.sequence, T = batch->length;
    int32_t *segments = data + schedule->data_segments;
    int32_t *whole = S > 1 ? segments + batch_tokens(engine) : segments;
    const mics_batch_source *source = engine->source;
    if (schedule->data_segments == schedule->data_references)
        return MICS_OK;
    memset(whole, 0, (size_t)(S * batch_tokens(engine)) * sizeof *whole);
    if (source->read_segments != NULL)
        MICS_TRY(source->read_segments(source->ctx, micro_step, data, whole));
    for (int64_t b = 0; S > 1 && b < batch->sequences; b++)
        memcpy(segments + b * T, whole + (b * S + sequence_member(engine)) * T,
               (size_t)T * sizeof *segments);
    return MICS_OK;
}

static mics_status read_references(const mics_engine *engine, int32_t micro_step, int32_t *data)
{
    float *references = (float *)(void *)(data + engine->schedule->data_references);
    const mics_batch_source *source = engine->source;
    const int64_t floats = engine->schedule->data_draw - engine->schedule->data_references;
    if (floats > 0 && source->read_references != NULL)
        return source->read_references(source->ctx, micro_step, references);
    memset(references, 0, (size_t)floats * sizeof *references);
    return MICS_OK;
}

// The first unit of a micro-step needs its tokens.
static mics_status read_tokens(mics_engine *engine, const mics_step *step)
{
    if (engine->micro_step_read[step->in_flight] == step->micro_step)
        return MICS_OK;
    const int64_t tokens = batch_tokens(engine);
    int32_t *staged = engine->staged_tokens; // NULL: they are read where they are used
    int32_t *inputs = staged != NULL ? staged + engine->schedule->data_elems * step->micro_step
                                     : in_flight_tokens(engine, step->in_flight);
    MICS_TRY(engine->source->read(engine->source->ctx, step->micro_step, inputs, inputs + tokens));
    MICS_TRY(read_segments(engine, step->micro_step, inputs));
    MICS_TRY(read_references(engine, step->micro_step, inputs));
    own_agreement(engine)->counted += count_items(engine, inputs + tokens);
    place_draw(engine, step->micro_step, inputs);
    if (staged != NULL)
        upload_tokens(engine, step, inputs);
    engine->micro_step_read[step->in_flight] = step->micro_step;
    return MICS_OK;
}

// Adds up the losses that the LM head left; of pairs theirs, for a backward with row_scales.
static void collect_losses(mics_engine *engine, const mics_step *step)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    const mics_schedule *schedule = engine->schedule;
    const int32_t *data = in_flight_tokens(engine, step->in_flight);
    const int64_t tokens = batch_tokens(engine);
    if (!has_pairs(engine)) {
        engine->ops->sum_losses(&at, &engine->sums->loss, engine->losses, tokens);
        return;
    }
    const mics_preference_pairs pairs = {
        .of = schedule->spec.preference,
        .B = schedule->spec.batch.sequences,
        .T = schedule->spec.batch.length,
        .targets_BT = data + tokens,
        .losses_BT = engine->losses,
        .references_B = (const float *)(const void *)(data + schedule->data_references),
        .scales_BT = step->kind == MICS_STEP_BACKWARD ? engine->losses + tokens : NULL,
        .loss = &engine->sums->loss,
        .sums = engine->sums->preference};
    engine->ops->preference(&at, &pairs);
}

// Sends a device's sums to where the agreement waits for them.
static void send_sums(mics_engine *engine)
{
    const mics_device *device = engine->device;
    if (engine->host_sums != engine->sums)
        device->ops->copy(device->ctx, MICS_STREAM_COMPUTE, engine->host_sums, engine->sums,
                          sizeof *engine->sums);
}

// A pair of ops that a step runs as one, from `op` on; NULL: none.
static const mics_op_pair *pair_at(const mics_engine *engine, const mics_step *step, int32_t op)
{
    return mics_schedule_runs(engine->schedule, step, op + 1)
               ? fused_forward(engine, step->unit, op)
               : NULL;
}

// The step's ops of its unit. In training the loss is of the backward, which runs its forward first
// for pairs.
static void forward(mics_engine *engine, const mics_step *step)
{
    const int32_t end = step->part.op_end;
    for (int32_t op = step->part.op; op < end; op++) {
        if (!mics_schedule_runs(engine->schedule, step, op))
            continue;
        const mics_op_pair *pair = pair_at(engine, step, op);
        if (pair != NULL)
            run_fused_forward(engine, step, op++, pair);
        else
            run_op_forward(engine, step, op);
    }
    const bool ends = end == engine->schedule->spec.model->units[step->unit].op_count;
    if (!engine->schedule->units[step->unit].loss || !ends || step->part.op == end)
        return;
    collect_losses(engine, step);
    if (engine->phase == MICS_PHASE_EVAL)
        send_sums(engine);
}

// Alignment gaps between tensors, and the padding behind the last one, take part in reductions and
// norms: they are 0.
static void zero_gaps(const mics_engine *engine, int32_t unit_index, void *grads)
{
    const mics_device *device = engine->device;
    const mics_unit *unit = &engine->schedule->spec.model->units[unit_index];
    const mics_range params = mics_schedule_unit_params(engine->schedule, unit_index, engine->rank);
    const int64_t base = mics_schedule_unit_block(engine->schedule, unit_index, engine->rank).begin;
    for (int64_t p = params.begin; p < params.end; p++) {
        int64_t end = unit->params[p].offset + unit->params[p].elems - base;
        int64_t next = p + 1 < params.end ? unit->params[p + 1].offset - base
                                          : engine->schedule->padded_elems[unit_index];
        if (end < next)
            device->ops->zero(device->ctx, MICS_STREAM_COMPUTE, elem_at(engine, grads, end),
                              (size_t)(next - end) * engine->elem_bytes);
    }
}

// Gradients of a micro-step that nobody reduces are added to their accumulator.
static void fold_grads(mics_engine *engine, const mics_step *step)
{
    const mics_exec at = exec_on(engine, MICS_STREAM_COMPUTE);
    for (int32_t i = 0; i < step->use_count; i++) {
        const mics_step_use *use = &step->uses[i];
        if (use->fold)
            engine->ops->sum_blocks(&at, engine->grads + engine->map.grads[use->unit],
                                    used_grads(engine, step, use->unit), NULL, 0, 0,
                                    engine->schedule->padded_elems[use->unit], use->accumulate);
    }
}

static void backward(mics_engine *engine, const mics_step *step)
{
    const mics_unit_plan *plan = &engine->schedule->units[step->unit];
    forward(engine, step);
    for (int32_t i = 0; i < step->use_count; i++) {
        void *grads = used_grads(engine, step, step->uses[i].unit);
        if (grads != NULL)
            zero_gaps(engine, step->uses[i].unit, grads);
    }
    for (int32_t i = step->part.call; i < step->part.call_end; i++) {
        const mics_op_pair *pair = fused_backward(engine, step->unit, i);
        if (pair != NULL)
            run_fused_backward(engine, step, i++, pair);
        else
            run_grad_call(engine, step, &plan->grads[i]);
    }
    fold_grads(engine, step);
    if (plan->loss && !has_pairs(engine) && mics_schedule_ends_pass(engine->schedule, step))
        collect_losses(engine, step);
}

// Over all ranks each element of the model is counted once.
static void norm(mics_engine *engine)
{
    for (int32_t unit = 0; unit < engine->schedule->spec.model->unit_count; unit++) {
        const int32_t ranks = mics_schedule_unit_ranks(engine->schedule, unit);
        if (mics_schedule_trains(engine->schedule, unit))
            add_squares(engine, unit, ranks, &engine->sums->sum_squares);
    }
    if (engine->islands == NULL)
        own_agreement(engine)->told = cast_ballot(engine);
    scrub_check_all(engine);
    send_sums(engine);
}

// The first step behind the agreement, where updates are not deferred.
static bool begins_updates(const mics_engine *engine, const mics_step *step)
{
    int32_t unit = 0; // the first that is updated
    while (!mics_schedule_trains(engine->schedule, unit))
        unit++;
    const bool first =
        step->kind == MICS_STEP_MOMENTUM || engine->schedule->rounds[unit].count == 0;
    return first && step->unit == unit && !mics_schedule_defers(engine->schedule);
}

mics_status run_compute_step(mics_engine *engine, const mics_step *step)
{
    const bool graphs = engine->graphs[engine->phase] != NULL;
    switch (step->kind) {
    case MICS_STEP_FORWARD:
        MICS_TRY(read_tokens(engine, step));
        if (graphs)
            graphs_run(engine, step, forward);
        else
            forward(engine, step);
        return MICS_OK;
    case MICS_STEP_BACKWARD:
        if (graphs)
            graphs_run(engine, step, backward);
        else
            backward(engine, step);
        return MICS_OK;
    case MICS_STEP_NORM:
        norm(engine);
        return MICS_OK;
    case MICS_STEP_ORTHOGONALISE:
        if (engine->pending.left > 0)
            orthogonalise(engine, step->unit);
        return MICS_OK;
    case MICS_STEP_MEET_CHANGE:
    case MICS_STEP_MEET_UPDATE:
    case MICS_STEP_MEET_ADOPT:
        run_meeting(engine, step);
        return MICS_OK;
    default: // MOMENTUM, UPDATE
        if (begins_updates(engine, step))
            MICS_TRY(settle_step(engine));
        if (step->kind == MICS_STEP_MOMENTUM)
            run_momentum(engine, step->unit);
        else
            run_update(engine, step->unit);
        return MICS_OK;
    }
}

// ---- autotuning ----

// Ops that a library computes. Experts have kernels of their own, and no routes here.
static bool is_librarys(const mics_engine *engine, const mics_unit *unit, int32_t op)
{
    const mics_op_def *def = mics_op_def_get(unit->ops[op].kind);
    const bool asked = engine->schedule->spec.batch.library && def->library_lacks != NULL;
    return (def->multiplies && unit->ops[op].routes < 0) || asked;
}

static void autotune_forward(mics_engine *engine, const mics_step *step)
{
    const mics_unit *unit = &engine->schedule->spec.model->units[step->unit];
    const int32_t end = step->part.op_end;
    for (int32_t op = step->part.op; op < end; op++) {
        if (!mics_schedule_runs(engine->schedule, step, op))
            continue;
        const mics_op_pair *pair = pair_at(engine, step, op);
        if (pair != NULL)
            run_fused_forward(engine, step, op++, pair);
        else if (is_librarys(engine, unit, op))
            run_op_forward(engine, step, op);
    }
}

static void autotune_backward(mics_engine *engine, const mics_step *step)
{
    const mics_unit *unit = &engine->schedule->spec.model->units[step->unit];
    const mics_unit_plan *plan = &engine->schedule->units[step->unit];
    autotune_forward(engine, step);
    for (int32_t i = step->part.call; i < step->part.call_end; i++) {
        const mics_grad_call *call = &plan->grads[i];
        const mics_op_pair *pair = fused_backward(engine, step->unit, i);
        if (pair != NULL)
            run_fused_backward(engine, step, i++, pair);
        else if (call->kind == MICS_GRAD_OP && is_librarys(engine, unit, call->op))
            run_grad_call(engine, step, call);
    }
}

void autotune_gemms(mics_engine *engine)
{
    for (int phase = 0; phase < MICS_PHASES; phase++) {
        const mics_step_list *list = &engine->schedule->lists[phase];
        for (int32_t i = 0; i < list->count; i++) {
            const mics_step *step = &list->steps[i];
            if (step->micro_step > 1) // as the second
                continue;
            if (step->kind == MICS_STEP_FORWARD)
                autotune_forward(engine, step);
            else if (step->kind == MICS_STEP_BACKWARD)
                autotune_backward(engine, step);
        }
    }
}
