// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Refuses models, batches and meshes that no schedule can be made for.
#include "schedule/check.h"
#include "mics/log.h"
#include "schedule/rules.h"
#include <math.h>

// Computations (a unit forward or backward) in one step: the list stays below about half a GiB.
static const int64_t max_passes = (int64_t)1 << 20;
// Numbers that one rank may hold, whatever they are.
static const int64_t max_elems = (int64_t)1 << 57;

// A step names at most MICS_STEP_USES units whose parameters it reads.
static mics_status check_uses(const mics_model *model, const mics_unit *unit)
{
    int32_t units[MICS_STEP_USES], count = 0;
    for (int32_t i = 0; i < unit->op_count * MICS_OP_PARAMS; i++) {
        const int32_t used = unit->ops[i / MICS_OP_PARAMS].params[i % MICS_OP_PARAMS].unit;
        bool known = used < 0;
        for (int32_t k = 0; k < count; k++)
            known = known || units[k] == used;
        if (!known && count == MICS_STEP_USES)
            return mics_fail(MICS_ERR_UNSUPPORTED,
                             "unit %s of %s uses the parameters of more than %d units", unit->name,
                             model->architecture, (int)MICS_STEP_USES);
        if (!known)
            units[count++] = used;
    }
    return MICS_OK;
}

// Rounded to fewer bits inside nodes than between them, a gather in two stages would save where it
// costs least. Mixed precision gathers what it holds.
static mics_status check_dtypes(const mics_schedule_spec *spec)
{
    const mics_comm_dtypes gather = spec->params_dtype, reduce = spec->grads_dtype,
                           hop = spec->boundary_dtype;
    const mics_comm_dtype two[] = {gather.intra, gather.inter, reduce.intra, reduce.inter};
    for (int i = 0; i < 4; i++) {
        if (two[i] != MICS_COMM_FP32 && two[i] != MICS_COMM_BF16)
            return mics_fail(MICS_ERR_INVALID, "%s as fp32 or bf16, not as %s",
                             i < 2 ? "parameters are gathered" : "gradients are reduced",
                             mics_comm_dtype_text(two[i]));
    }
    if (spec->precision == MICS_PRECISION_FP32 && gather.intra == MICS_COMM_BF16 &&
        gather.inter == MICS_COMM_FP32 && spec->mesh.sharding.params > spec->mesh.ranks_per_node)
        return mics_fail(MICS_ERR_INVALID,
                         "parameters are gathered as bf16 inside nodes and as fp32 between them; "
                         "over %d ranks, %d a node, take bf16 between nodes too",
                         (int)spec->mesh.sharding.params, (int)spec->mesh.ranks_per_node);
    if ((unsigned)hop.intra > MICS_COMM_INT8 || (unsigned)hop.inter > MICS_COMM_INT8)
        return mics_fail(MICS_ERR_INVALID, "the second hop goes as fp32, bf16 or int8");
    if ((unsigned)spec->precision >= MICS_PRECISIONS)
        return mics_fail(MICS_ERR_INVALID, "numbers are held as fp32 or mixed");
    return MICS_OK;
}

static mics_status check_algorithms(const mics_schedule_spec *spec)
{
    const mics_algorithm chosen[] = {spec->gather, spec->reduce, spec->boundary};
    for (int i = 0; i < 3; i++) {
        if ((unsigned)chosen[i] >= MICS_ALGORITHMS)
            return mics_fail(MICS_ERR_INVALID, "collectives run as ring or two-stage, not as %s",
                             mics_algorithm_text(chosen[i]));
    }
    return MICS_OK;
}

static mics_status check_thresholds(const mics_schedule_spec *spec)
{
    if (spec->param_persistence_threshold < 0)
        return mics_fail(MICS_ERR_INVALID, "units of fewer than %lld elements cannot stay whole",
                         (long long)spec->param_persistence_threshold);
    if (spec->coalesce_below < 0)
        return mics_fail(MICS_ERR_INVALID, "units of %lld elements cannot share messages",
                         (long long)spec->coalesce_below);
    return MICS_OK;
}

// Everything that is summed or allocated later stays below this, so no later product or sum can
// wrap: parameters four times (values, gradients, two moments) with gathered copies and a gradient
// a micro-batch in flight, activations with their gradients, and workspaces. Sums in double
// precision are within a part in 2^50 of exact, and the bound leaves a factor of 16 to int64_t in
// bytes.
static mics_status check_sizes(const mics_schedule_spec *spec)
{
    const mics_model *model = spec->model;
    const int32_t most = spec->layered_micro_steps < spec->micro_steps ? spec->layered_micro_steps
                                                                       : spec->micro_steps;
    const double in_flight_count = most > 1 ? most : 1;
    const double tokens =
        in_flight_count * (double)spec->batch.sequences * (double)spec->batch.length;
    double params = 0, width = 0, widest = 0;
    for (int32_t u = 0; u < model->unit_count; u++) {
        params += (double)model->units[u].elems + 32.0 * mics_mesh_world(&spec->mesh);
        for (int32_t t = 0; t < model->units[u].tensor_count; t++) {
            const mics_tensor *tensor = &model->units[u].tensors[t];
            const double own = (tensor->wide ? 2 : 1) * (double)tensor->width + 32;
            width += own;
            widest = own > widest ? own : widest;
        }
    }
    const double workspace = spec->batch.threads * 64.0 * (8 * widest + 256) +
                             3 * (double)model->vocab + 64e6 + 64 * widest;
    const double elems = (8 + in_flight_count) * params + 4 * tokens * width + workspace;
    if (elems > (double)max_elems)
        return mics_fail(MICS_ERR_INVALID,
                         "%.3g parameters and %.3g tokens at a time need about %.3g numbers; "
                         "the most that can be planned is %.3g",
                         params, tokens, elems, (double)max_elems);
    return MICS_OK;
}

static mics_status check_like(const mics_schedule_spec *spec)
{
    const mics_schedule *like = spec->like;
    const mics_model *model = like == NULL           ? NULL
                              : like->spread != NULL ? like->spread->base
                                                     : like->spec.model;
    if (like != NULL &&
        (model != spec->model || like->spec.mesh.experts != spec->mesh.experts ||
         like->spec.mesh.sequence != spec->mesh.sequence ||
         like->spec.optimizer != spec->optimizer || like->spec.state_dtype != spec->state_dtype ||
         like->spec.preference.kind != spec->preference.kind ||
         like->spec.evaluation_only != spec->evaluation_only))
        return mics_fail(MICS_ERR_INVALID, "a schedule is like one of the same model, experts, "
                                           "sequence, optimizer, objective and purpose only");
    return MICS_OK;
}

static mics_status check_states(const mics_schedule_spec *spec)
{
    const mics_optimizer_def *def = mics_optimizer_def_get(spec->optimizer);
    if (spec->state_dtype == MICS_STATE_FP32 || def->matrix_workspace == NULL)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID, "%s takes its states as fp32, not %s", def->name,
                     mics_state_dtype_text(spec->state_dtype));
}

static mics_status check_early(const mics_schedule_spec *spec)
{
    if (!spec->early_gathers || mics_schedule_may_gather_early(spec))
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "replica gathers can be early where the optimizer's %d of %d ranks leave "
                     "replicas and sums are sent as fp32, without all_reduces",
                     (int)spec->mesh.sharding.optimizer, (int)spec->mesh.ranks);
}

// Units that meet.
static int32_t trained_units(const mics_model *model)
{
    int32_t count = 0;
    for (int32_t u = 0; u < model->unit_count; u++)
        count += !model->units[u].frozen && model->units[u].param_count > 0;
    return count;
}

static mics_status check_outer(const mics_schedule_spec *spec)
{
    const mics_outer *outer = &spec->outer;
    const int32_t islands = spec->mesh.islands, units = trained_units(spec->model);
    if (outer->every < 0 || (outer->every > 0) != (islands > 1))
        return mics_fail(MICS_ERR_INVALID,
                         "%d islands of %d ranks that meet every %d steps: several islands meet at "
                         "least every so many steps, and one has nobody to meet (outer.every 0)",
                         (int)islands, (int)spec->mesh.ranks, (int)outer->every);
    if (outer->every == 0)
        return MICS_OK;
    const int32_t fragments = units < outer->every ? units : outer->every;
    const int32_t periods = INT32_MAX / outer->every;
    if (outer->fragments < 1 || outer->fragments > fragments || outer->overlap_steps < 0 ||
        outer->overlap_steps > outer->every || outer->moments_every < 0 ||
        outer->moments_every > periods || (unsigned)outer->dtype >= MICS_COMM_DTYPES)
        return mics_fail(
            MICS_ERR_INVALID,
            "outer: fragments %d of 1 to %d (units that train, steps between meetings), "
            "overlap_steps %d of 0 (forward waits) to %d, moments_every %d of 0 (never) "
            "to %d, dtype %s of fp32, bf16, int8 or int4",
            (int)outer->fragments, (int)fragments, (int)outer->overlap_steps, (int)outer->every,
            (int)outer->moments_every, (int)periods, mics_comm_dtype_text(outer->dtype));
    if (outer->moments_every > 0 && spec->state_dtype != MICS_STATE_FP32)
        return mics_fail(MICS_ERR_INVALID,
                         "outer.moments_every %d: states that meet are held as fp32, not %s; take "
                         "fp32, or 0, so that they never do",
                         (int)outer->moments_every, mics_state_dtype_text(spec->state_dtype));
    if (spec->all_reduces)
        return mics_fail(MICS_ERR_INVALID, "all_reduces is of systems that have no islands");
    if (spec->delta_sync)
        return mics_fail(MICS_ERR_INVALID, "delta_sync is not for islands, which rewrite "
                                           "parameters where they meet");
    return MICS_OK;
}

static mics_status check_preference(const mics_schedule_spec *spec)
{
    const mics_preference *of = &spec->preference;
    const double s = of->label_smoothing;
    if (of->kind == MICS_PREFERENCE_NONE)
        return MICS_OK;
    if (spec->mesh.sequence > 1)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "sharding.sequence = %d: the losses of preference pairs are of whole "
                         "sequences; make it 1",
                         (int)spec->mesh.sequence);
    if (spec->batch.sequences % 2 != 0)
        return mics_fail(MICS_ERR_INVALID,
                         "a micro-batch of %lld sequences holds no whole preference pairs; take an "
                         "even number",
                         (long long)spec->batch.sequences);
    if ((unsigned)of->kind >= MICS_PREFERENCE_KINDS || !(of->beta > 0) || !isfinite(of->beta) ||
        !(s >= 0 && s < 0.5) || (s > 0 && of->kind != MICS_PREFERENCE_DPO))
        return mics_fail(MICS_ERR_INVALID,
                         "preference pairs of kind %d, beta %g, label smoothing %g: DPO or IPO, "
                         "beta above 0, and smoothing of DPO alone, from 0 to below 0.5",
                         (int)of->kind, of->beta, s);
    return MICS_OK;
}

mics_status check_schedule_spec(const mics_schedule_spec *spec)
{
    MICS_TRY(check_preference(spec));
    MICS_TRY(check_like(spec));
    MICS_TRY(check_states(spec));
    for (int32_t u = 0; u < spec->model->unit_count; u++)
        MICS_TRY(check_uses(spec->model, &spec->model->units[u]));
    const mics_batch *batch = &spec->batch;
    if (batch->sequences < 1 || batch->length < 1 || batch->threads < 1 || spec->micro_steps < 1 ||
        spec->prefetch < 0 || spec->layered_micro_steps < 0 || spec->offload_units < 0)
        return mics_fail(MICS_ERR_INVALID,
                         "micro-batch %lld x %lld tokens, %d micro-steps, %d threads, prefetch %d, "
                         "layered_micro_steps %d, offload_units %d: each must be at least 1 "
                         "(the last three 0)",
                         (long long)batch->sequences, (long long)batch->length,
                         (int)spec->micro_steps, (int)batch->threads, (int)spec->prefetch,
                         (int)spec->layered_micro_steps, (int)spec->offload_units);
    const int32_t layers = mics_model_computing_units(spec->model) - 2,
                  whole = spec->recompute.units;
    if (whole < 0 || (whole > layers && whole != MICS_RECOMPUTE_ALL))
        return mics_fail(MICS_ERR_INVALID,
                         "run.recompute: %d layers, and the model has %d: 1 to %d work, or true, "
                         "which recomputes every unit",
                         (int)whole, (int)layers, (int)layers);
    const int64_t length = batch->length * spec->mesh.sequence;
    if (length > spec->model->positions)
        return mics_fail(MICS_ERR_INVALID,
                         "sequence_length %lld is longer than the model's %lld positions",
                         (long long)length, (long long)spec->model->positions);
    if (batch->sequences > ((int64_t)1 << 40) / batch->length)
        return mics_fail(MICS_ERR_INVALID, "a micro-batch of %lld x %lld tokens is too large",
                         (long long)batch->sequences, (long long)batch->length);
    const int64_t passes = 2 * (int64_t)mics_model_computing_units(spec->model) * spec->micro_steps;
    if (passes > max_passes)
        return mics_fail(MICS_ERR_INVALID,
                         "%d micro-steps of %d units are %lld computations a step, more than %lld; "
                         "use larger micro-batches",
                         (int)spec->micro_steps, (int)mics_model_computing_units(spec->model),
                         (long long)passes, (long long)max_passes);
    MICS_TRY(check_dtypes(spec));
    MICS_TRY(check_algorithms(spec));
    MICS_TRY(check_thresholds(spec));
    MICS_TRY(check_early(spec));
    MICS_TRY(check_outer(spec));
    return check_sizes(spec);
}
