// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The verdict on a step, from the sums that the ranks agreed on.
#include "engine/verdict.h"
#include "engine/ballot.h"
#include "engine/islands.h"
#include "mics/core/agreement.h"
#include "mics/log.h"
#include <math.h>
#include <stdio.h>

// The loss and how many tokens or pairs of the list's batch it is the mean of, of all ranks. Returns:
// its sum.
static double settle_loss(mics_engine *engine)
{
    mics_step_result *result = &engine->result;
    double sum = 0;
    for (int32_t rank = 0; rank < engine->schedule->spec.mesh.ranks; rank++) {
        sum += engine->agreements[rank].loss;
        result->counted += engine->agreements[rank].counted;
        for (int of = 0; of < MICS_PREFERENCE_SUMS; of++)
            result->preference_sums[of] += engine->agreements[rank].preference_sums[of];
    }
    result->loss = result->counted > 0 ? sum / (double)result->counted : NAN;
    return sum;
}

// Gradients are of the sum of losses over all tokens or pairs of the step; those that count may be
// fewer, and no rank knows how many before the agreement. 1 where all count.
static double count_factor(const mics_engine *engine)
{
    const mics_schedule_spec *spec = &engine->schedule->spec;
    const double items = (double)batch_items(engine) * spec->micro_steps * spec->mesh.ranks;
    return engine->result.counted > 0 ? items / (double)engine->result.counted : 1;
}

// A sum of cross-entropies may be below 0 by what fp32 rounds; and no model is that much worse than
// a guess, as every token would have to be all but ruled out. A pair's loss has no such bound.
static bool is_possible(const mics_engine *engine, double loss)
{
    static const double ROUNDING = -1e-6;
    const double guess = log((double)engine->schedule->spec.model->vocab);
    return has_pairs(engine) || (loss >= ROUNDING && loss <= guess + MICS_MAX_LOSS_ABOVE_GUESS);
}

static mics_verdict verdict_of(const mics_engine *engine)
{
    const double loss = engine->result.loss, norm_all = engine->result.grad_norm;
    if ((engine->result.told & TOLD_HOLD) != 0) // whatever its numbers are, nobody uses them
        return MICS_VERDICT_HELD;
    if ((engine->result.told & TOLD_FLIPPED) != 0) // that explains every number
        return MICS_VERDICT_FLIPPED;
    if (mics_engine_compare_grads(engine).found)
        return MICS_VERDICT_DIVERGED;
    if (engine->result.counted == 0)
        return MICS_VERDICT_EMPTY;
    if (!isfinite(norm_all) && isfinite(loss) && engine->dtype == MICS_DTYPE_FP16)
        return MICS_VERDICT_OVERFLOW;
    if (!isfinite(norm_all) || !isfinite(loss))
        return MICS_VERDICT_NOT_FINITE;
    if (!is_possible(engine, loss))
        return MICS_VERDICT_IMPOSSIBLE;
    return loss > engine->limits.max_loss ? MICS_VERDICT_SPIKE : MICS_VERDICT_UPDATED;
}

// A step that leaves the parameters alone for another reason than an overflow is none of the
// scaler's.
static mics_status follow_verdict(mics_engine *engine)
{
    const mics_loss_scaling *scaling = &engine->spec.loss_scaling;
    const mics_verdict verdict = engine->result.verdict;
    const bool overflow = verdict == MICS_VERDICT_OVERFLOW;
    engine->result.skipped = overflow;
    if (verdict == MICS_VERDICT_NOT_FINITE || verdict == MICS_VERDICT_IMPOSSIBLE ||
        (overflow && mics_scaler_is_exhausted(scaling, &engine->scaler))) {
        engine->all_know = true;
        return MICS_ERR_NUMERIC;
    }
    if (overflow || verdict == MICS_VERDICT_UPDATED)
        mics_scaler_update(scaling, overflow, &engine->scaler);
    return MICS_OK;
}

static int32_t trained_units(const mics_schedule *schedule)
{
    int32_t count = 0;
    for (int32_t unit = 0; unit < schedule->spec.model->unit_count; unit++)
        count += mics_schedule_trains(schedule, unit);
    return count;
}

// Returns: MICS_ERR_ABORTED: the state is frozen.
static mics_status begin_update(mics_engine *engine, double factor)
{
    pthread_mutex_lock(&engine->mutex);
    const bool frozen = engine->frozen;
    engine->updated = frozen ? engine->updated : engine->step;
    if (!frozen)
        engine->pending = (pending_update){.left = trained_units(engine->schedule),
                                           .step = engine->step - engine->scaler.skipped,
                                           .lr = engine->lr,
                                           .grad_scale = (float)(factor / engine->loss_scale)};
    pthread_mutex_unlock(&engine->mutex);
    return frozen ? MICS_ERR_ABORTED : MICS_OK;
}

// Figures that steps report, and that nothing depends on.
static void settle_report(mics_engine *engine)
{
    mics_step_result *result = &engine->result;
    for (int32_t rank = 0; rank < engine->schedule->spec.mesh.ranks; rank++) {
        const mics_agreement *of = &engine->agreements[rank];
        if (of->memory_peak_bytes > result->memory_peak_bytes)
            result->memory_peak_bytes = of->memory_peak_bytes;
        for (int sum = 0; sum < MICS_ROUTER_SUMS; sum++)
            result->router_sums[sum] += of->router_sums[sum];
    }
}

// Every rank has every rank's sums and draws the same conclusions from them, so nobody is left
// waiting.
mics_status settle_step(mics_engine *engine)
{
    const mics_mesh *mesh = &engine->schedule->spec.mesh;
    double sum = 0;
    for (int32_t rank = 0; rank < mesh->ranks; rank++)
        sum += engine->agreements[rank].sum_squares;
    const double loss = settle_loss(engine);
    settle_report(engine);
    const double counts = count_factor(engine), clip = engine->spec.clip;
    const double norm_all = sqrt(sum) / engine->loss_scale * counts;
    engine->result.grad_norm = norm_all;
    engine->result.loss_scale = engine->loss_scale;
    engine->result.told = engine->islands != NULL ? engine->islands->told : 0;
    for (int32_t rank = 0; rank < mesh->ranks; rank++)
        engine->result.told |= (uint32_t)engine->agreements[rank].told;
    // As torch.nn.utils.clip_grad_norm_ has it.
    const double factor = clip > 0 && clip < norm_all + 1e-6 ? clip / (norm_all + 1e-6) : 1;
    engine->result.verdict = verdict_of(engine);
    islands_note(engine, loss);
    if (engine->result.verdict == MICS_VERDICT_UPDATED)
        MICS_TRY(begin_update(engine, factor * counts));
    return follow_verdict(engine);
}

mics_status settle_evaluation(mics_engine *engine)
{
    (void)settle_loss(engine);
    const double loss = engine->result.loss;
    if (engine->result.counted == 0 || (isfinite(loss) && is_possible(engine, loss)))
        return MICS_OK;
    engine->all_know = true;
    if (engine->rank != engine->first)
        return MICS_ERR_NUMERIC;
    return mics_fail(MICS_ERR_NUMERIC,
                     "evaluation: the loss is %g, %s: the parameters are not those of a trained "
                     "model",
                     loss, isfinite(loss) ? "which no cross-entropy is" : "not finite");
}

static void explain_divergence(const mics_engine *engine, char *text, size_t capacity)
{
    const mics_divergence found = mics_engine_compare_grads(engine);
    if (found.other < 0)
        snprintf(text, capacity,
                 "step %lld: rank %d has other gradients after the second hop than the %d ranks "
                 "that own the same",
                 (long long)engine->step - 1, (int)found.rank, (int)found.replicas - 1);
    else
        snprintf(text, capacity,
                 "step %lld: ranks %d and %d own the same and have different gradients of it after "
                 "the second hop",
                 (long long)engine->step - 1, (int)found.rank, (int)found.other);
}

char *mics_engine_explain(const mics_engine *engine, char *text, size_t capacity)
{
    const mics_step_result *result = &engine->result;
    const long long step = (long long)engine->step;
    const double guess = log((double)engine->schedule->spec.model->vocab);
    snprintf(text, capacity, "%s", "");
    switch (result->verdict) {
    case MICS_VERDICT_UPDATED:
    case MICS_VERDICT_HELD:
        break;
    case MICS_VERDICT_OVERFLOW:
        snprintf(text, capacity,
                 "step %lld: gradients overflow fp16 at a loss scale of %g, which may not become "
                 "smaller; parameters are as after the step before; try bf16, or a smaller "
                 "learning rate",
                 step, result->loss_scale);
        break;
    case MICS_VERDICT_SPIKE:
        snprintf(text, capacity, "step %lld: loss %g, above %g", step, result->loss,
                 engine->limits.max_loss);
        break;
    case MICS_VERDICT_EMPTY:
        snprintf(text, capacity, "step %lld: no token of the global batch counts", step);
        break;
    case MICS_VERDICT_DIVERGED:
        explain_divergence(engine, text, capacity);
        break;
    case MICS_VERDICT_FLIPPED:
        snprintf(text, capacity,
                 "step %lld: masters or moments that exist once have changed since the update "
                 "before; parameters are as after the step before",
                 step);
        break;
    case MICS_VERDICT_NOT_FINITE:
        snprintf(text, capacity,
                 "step %lld: loss %g, gradient norm %g: not finite; parameters are as after the "
                 "step before; try a smaller learning rate or gradient_clipping",
                 step, result->loss, result->grad_norm);
        break;
    case MICS_VERDICT_IMPOSSIBLE:
        snprintf(text, capacity,
                 "step %lld: loss %g, which no cross-entropy is: it is at least 0, and %g for a "
                 "guess among %lld tokens, plus %d at most; parameters are as after the step "
                 "before; try a smaller learning rate, and look at the machine and the data",
                 step, result->loss, guess, (long long)engine->schedule->spec.model->vocab,
                 MICS_MAX_LOSS_ABOVE_GUESS);
        break;
    }
    return text;
}

mics_status fail_verdict(const mics_engine *engine)
{
    char text[512];
    if (engine->rank != engine->first || engine->limits.silent)
        return MICS_ERR_NUMERIC;
    return mics_fail(MICS_ERR_NUMERIC, "%s", mics_engine_explain(engine, text, sizeof text));
}
