// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The computing steps of a schedule: units forward and backward, the norm, clipping and the
// optimizer.
#include "engine/engine_internal.h"
#include "mics/log.h"
#include <math.h>
#include <string.h>

static int64_t batch_tokens(const mics_engine *engine)
{
    return engine->schedule->spec.batch.sequences * engine->schedule->spec.batch.length;
}

// The first unit of a micro-step needs its tokens.
static mics_status read_tokens(mics_engine *engine, int32_t micro_step)
{
    if (engine->micro_step_read == micro_step)
        return MICS_OK;
    MICS_TRY(
        engine->source->read(engine->source->ctx, micro_step, engine->inputs, engine->targets));
    engine->micro_step_read = micro_step;
    return MICS_OK;
}

// Adds up the losses that the classifier left; in token order, so the bits do not depend on
// threads.
static void collect_losses(mics_engine *engine)
{
    const float *losses = engine->workspace + engine->schedule->workspace_losses;
    double sum = 0;
    for (int64_t token = 0; token < batch_tokens(engine); token++)
        sum += (double)losses[token];
    engine->agreements[engine->rank].loss += sum;
}

double mean_loss(const mics_engine *engine)
{
    const mics_schedule_spec *spec = &engine->schedule->spec;
    double sum = 0;
    for (int32_t rank = 0; rank < spec->mesh.ranks; rank++)
        sum += engine->agreements[rank].loss;
    const int32_t micro_steps = engine->phase == MICS_PHASE_TRAIN ? spec->micro_steps : 1;
    return sum / ((double)batch_tokens(engine) * micro_steps * spec->mesh.ranks);
}

static mics_status forward(mics_engine *engine, const mics_step *step)
{
    const mics_unit *unit = &engine->schedule->spec.model->units[step->unit];
    MICS_TRY(read_tokens(engine, step->micro_step));
    for (int32_t op = 0; op < unit->op_count; op++)
        run_op_forward(engine, step, op);
    if (engine->schedule->units[step->unit].loss)
        collect_losses(engine);
    return MICS_OK;
}

// Alignment gaps between tensors, and the padding behind the last one, take part in reductions and
// norms: they are 0.
static void zero_gaps(const mics_engine *engine, int32_t unit_index, float *grads)
{
    const mics_unit *unit = &engine->schedule->spec.model->units[unit_index];
    for (int32_t p = 0; p < unit->param_count; p++) {
        int64_t end = unit->params[p].offset + unit->params[p].elems;
        int64_t next = p + 1 < unit->param_count ? unit->params[p + 1].offset
                                                 : engine->schedule->padded_elems[unit_index];
        memset(grads + end, 0, (size_t)(next - end) * sizeof(float));
    }
}

static mics_status backward(mics_engine *engine, const mics_step *step)
{
    const mics_unit_plan *plan = &engine->schedule->units[step->unit];
    for (int32_t op = 0; op < plan->forward_again; op++)
        run_op_forward(engine, step, op);
    for (int32_t i = 0; i < step->use_count; i++) {
        float *grads = used_grads(engine, step, step->uses[i].unit);
        if (grads != NULL)
            zero_gaps(engine, step->uses[i].unit, grads);
    }
    for (int32_t i = 0; i < plan->grad_count; i++)
        run_grad_call(engine, step, &plan->grads[i]);
    if (engine->schedule->units[step->unit].loss)
        collect_losses(engine);
    return MICS_OK;
}

// Squares of the owned elements: over one optimizer group each element of the model is counted
// once.
static void norm(mics_engine *engine)
{
    double sum = 0;
    for (int32_t unit = 0; unit < engine->schedule->spec.model->unit_count; unit++) {
        int64_t elems =
            engine->schedule->padded_elems[unit] / engine->schedule->spec.mesh.sharding.optimizer;
        sum += engine->spec.kernels->sum_squares(owned_grads(engine, unit), elems);
    }
    engine->agreements[engine->rank].sum_squares = sum;
    engine->agreements[engine->rank].stop = atomic_load(&engine->stop_asked) ? 1 : 0;
}

static void update(mics_engine *engine, int32_t unit_index)
{
    const mics_unit *unit = &engine->schedule->spec.model->units[unit_index];
    const mics_engine_piece piece = mics_engine_piece_get(engine, unit_index);
    const float *grads = owned_grads(engine, unit_index);
    mics_adamw adamw = {
        .lr = engine->lr,
        .beta1 = engine->spec.beta1,
        .beta2 = engine->spec.beta2,
        .eps = engine->spec.eps,
        .bias1 = (float)(1 - pow((double)engine->spec.beta1, (double)engine->step)),
        .bias2 = (float)(1 - pow((double)engine->spec.beta2, (double)engine->step)),
        .grad_scale = engine->grad_scale,
    };
    for (int32_t p = 0; p < unit->param_count; p++) { // decay differs by tensor
        const mics_param *param = &unit->params[p];
        int64_t begin = param->offset > piece.range.begin ? param->offset : piece.range.begin;
        int64_t end = param->offset + param->elems < piece.range.end ? param->offset + param->elems
                                                                     : piece.range.end;
        if (begin >= end)
            continue;
        int64_t at = begin - piece.range.begin;
        adamw.weight_decay = param->decay ? engine->spec.weight_decay : 0;
        engine->spec.kernels->adamw_update(piece.params + at, piece.moment1 + at,
                                           piece.moment2 + at, grads + at, end - begin, &adamw);
    }
}

// Every rank has every rank's sums and draws the same conclusions from them, so nobody is left
// waiting.
static mics_status settle(mics_engine *engine)
{
    const mics_mesh *mesh = &engine->schedule->spec.mesh;
    double sum = 0;
    for (int32_t rank = 0; rank < mesh->sharding.optimizer; rank++)
        sum += engine->agreements[rank].sum_squares;
    const double norm_all = sqrt(sum), clip = engine->spec.clip;
    engine->result.grad_norm = norm_all;
    for (int32_t rank = 0; rank < mesh->ranks; rank++)
        engine->result.stop = engine->result.stop || engine->agreements[rank].stop > 0;
    // As torch.nn.utils.clip_grad_norm_ has it.
    engine->grad_scale =
        clip > 0 && clip < norm_all + 1e-6 ? (float)(clip / (norm_all + 1e-6)) : 1.0f;
    return settle_loss(engine);
}

mics_status settle_loss(mics_engine *engine)
{
    const double loss = mean_loss(engine), norm_all = engine->result.grad_norm;
    engine->result.loss = loss;
    if (isfinite(norm_all) && isfinite(loss))
        return MICS_OK;
    engine->all_know = true;
    if (engine->rank != 0)
        return MICS_ERR_NUMERIC;
    if (engine->phase == MICS_PHASE_EVAL)
        return mics_fail(MICS_ERR_NUMERIC,
                         "evaluation: the loss is %g, not finite: the parameters are not those of "
                         "a trained model",
                         loss);
    return mics_fail(MICS_ERR_NUMERIC,
                     "step %lld: loss %g, gradient norm %g: not finite; parameters are as after "
                     "the step before; try a "
                     "smaller learning rate or gradient_clipping",
                     (long long)engine->step, loss, norm_all);
}

mics_status run_compute_step(mics_engine *engine, const mics_step *step)
{
    switch (step->kind) {
    case MICS_STEP_FORWARD:
        return forward(engine, step);
    case MICS_STEP_BACKWARD:
        return backward(engine, step);
    case MICS_STEP_NORM:
        norm(engine);
        return MICS_OK;
    default: // UPDATE
        if (step->unit == 0)
            MICS_TRY(settle(engine));
        update(engine, step->unit);
        return MICS_OK;
    }
}
