// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Group, stages and communication dtype of a collective.
//
// Stages. A group from degree `inner` to degree `outer` has several members on a node and several
// nodes where inner < ranks of a node < outer. The ownership order then makes a node's share of the
// buffer one contiguous block, of 1 / ranks of a node, so that a stage inside the node and one
// between equal local ranks are both in place.
#include "schedule/collectives.h"
#include "comm/delta/delta.h"
#include "mics/core/agreement.h"
#include "schedule/ledger.h"
#include "schedule/listing.h"
#include "schedule/rules.h"

// Whether the owner of a block adds what each other member sends it, in two bytes a number.
static bool sums_directly(const builder *b, mics_step_kind kind)
{
    const mics_schedule_spec *spec = &b->schedule->spec;
    return spec->precision == MICS_PRECISION_MIXED && !spec->sums_by_ring &&
           (kind == MICS_STEP_REDUCE || mics_schedule_rounds_sums(spec));
}

// ---- stages ----

// A node's ranks that keep the same of a unit's experts.
static int32_t per_node_of(const builder *b, int32_t unit)
{
    const int32_t k = b->schedule->spec.mesh.ranks_per_node, experts = b->schedule->experts[unit];
    return k > experts ? k / experts : 1;
}

void find_stages(const builder *b, int32_t unit, bool stages[MICS_STEP_KINDS])
{
    const mics_schedule_spec *spec = &b->schedule->spec;
    const mics_sharding *s = sharding_of(b, unit);
    const int32_t k = per_node_of(b, unit), ranks = mics_schedule_unit_ranks(b->schedule, unit);
    const bool boundary = spec->boundary == MICS_ALGORITHM_TWO_STAGE;
    stages[MICS_STEP_GATHER] = spec->gather == MICS_ALGORITHM_TWO_STAGE && 1 < k && k < s->params;
    stages[MICS_STEP_REDUCE] =
        (spec->reduce == MICS_ALGORITHM_TWO_STAGE || sums_directly(b, MICS_STEP_REDUCE)) && 1 < k &&
        k < s->grads;
    stages[MICS_STEP_SCATTER] = boundary && s->grads < k && k < s->optimizer;
    stages[MICS_STEP_REPLICA_SCATTER] = stages[MICS_STEP_REPLICA_GATHER] =
        boundary && s->optimizer < k && k < ranks;
    stages[MICS_STEP_PARAM_SYNC] = boundary && s->params < k && k < s->optimizer;
    stages[MICS_STEP_MEET_SPREAD] = stages[MICS_STEP_REPLICA_GATHER];
    // Compressed changes are rounded once.
    stages[MICS_STEP_MEET_SCATTER] = stages[MICS_STEP_MEET_GATHER] =
        boundary && spec->outer.dtype == MICS_COMM_FP32 && ranks < k &&
        k < ranks * spec->mesh.islands;
}

stage_list stages_of(const builder *b, mics_step_kind kind, int32_t unit)
{
    const stage_list whole = {{MICS_STAGE_WHOLE}, 1};
    const stage_list gather = {{MICS_STAGE_INTER, MICS_STAGE_INTRA}, 2};
    const stage_list sum = {{MICS_STAGE_INTRA, MICS_STAGE_INTER}, 2};
    if (!b->facts[unit].stages[kind])
        return whole;
    return mics_step_sums(&(mics_step){.kind = kind}) ? sum : gather;
}

// ---- groups ----

// Units that stay whole where the mesh's are cut begin at degree 1; those of experts at E.
mics_group_axis axis_of(const builder *b, mics_step_kind kind, int32_t unit)
{
    const mics_sharding *s = sharding_of(b, unit), mesh = mesh_sharding_of(b, unit);
    const bool spread = b->schedule->experts[unit] > 1;
    const mics_group_axis optimizer = spread ? MICS_AXIS_EXPERT_OPTIMIZER : MICS_AXIS_OPTIMIZER;
    switch (kind) {
    case MICS_STEP_GATHER:
        return spread ? MICS_AXIS_EXPERT_PARTITION : MICS_AXIS_PARTITION;
    case MICS_STEP_REDUCE:
        return spread ? MICS_AXIS_EXPERT_GRADIENT : MICS_AXIS_GRADIENT;
    case MICS_STEP_SCATTER:
        return s->grads != mesh.grads ? optimizer : MICS_AXIS_SCATTER;
    case MICS_STEP_REPLICA_SCATTER:
    case MICS_STEP_REPLICA_GATHER:
    case MICS_STEP_MEET_SPREAD:
        return MICS_AXIS_REPLICATION;
    case MICS_STEP_MEET_SCATTER:
    case MICS_STEP_MEET_GATHER:
        return MICS_AXIS_OUTER;
    case MICS_STEP_MOMENTUM_TO_OWNERS:
    case MICS_STEP_MOMENTUM_BACK:
        return optimizer;
    default: // PARAM_SYNC
        return s->params != mesh.params ? optimizer : MICS_AXIS_PARAM_SYNC;
    }
}

// Into how many blocks a step cuts a unit.
static int32_t blocks_of(const builder *b, const mics_step *step)
{
    const mics_sharding *s = sharding_of(b, step->unit);
    if (mics_step_scope(step) == MICS_SCOPE_INTRA)
        return per_node_of(b, step->unit);
    switch (step->kind) {
    case MICS_STEP_GATHER:
        return s->params;
    case MICS_STEP_REDUCE:
        return s->grads;
    case MICS_STEP_REPLICA_SCATTER: // the optimizer shard, cut once more over the replicas
    case MICS_STEP_REPLICA_GATHER:
    case MICS_STEP_MEET_SPREAD:
        return mics_schedule_unit_ranks(b->schedule, step->unit);
    case MICS_STEP_MEET_SCATTER: // and once more over islands
    case MICS_STEP_MEET_GATHER:
        return mics_schedule_unit_ranks(b->schedule, step->unit) * b->schedule->spec.mesh.islands;
    default: // SCATTER, PARAM_SYNC, MOMENTUM_TO_OWNERS, MOMENTUM_BACK
        return s->optimizer;
    }
}

// ---- numbers ----

static bool spans_nodes(const builder *b, const mics_step *step)
{
    return b->spans_nodes[step->axis][mics_step_scope(step)];
}

static mics_comm_dtype hop_of(const builder *b, const mics_step *step, mics_comm_dtypes dtypes)
{
    return spans_nodes(b, step) ? dtypes.inter : dtypes.intra;
}

// The dtype in which a collective's buffers are held.
static mics_comm_dtype held_as(const builder *b, const mics_step *step)
{
    const mics_schedule_spec *spec = &b->schedule->spec;
    const bool wide = mics_step_exchanges(step) || mics_step_meets(step) ||
                      (mics_step_is_second_hop(step) && !mics_schedule_rounds_sums(spec));
    return spec->precision == MICS_PRECISION_MIXED && !wide ? MICS_COMM_BF16 : MICS_COMM_FP32;
}

// Whether whoever gathers a unit sees rounded values, the same ones everywhere.
static bool gathers_round(const builder *b, int32_t unit)
{
    const mics_comm_dtypes dtypes = b->schedule->spec.params_dtype;
    if (sharding_of(b, unit)->params == 1)
        return false;
    return (b->spans_nodes[axis_of(b, MICS_STEP_GATHER, unit)][MICS_SCOPE_WHOLE]
                ? dtypes.inter
                : dtypes.intra) != MICS_COMM_FP32;
}

// INT8 goes to the slowest hop alone, and to its first reduction, whose input has error feedback:
// inside nodes numbers are whole where the hop also goes between them. What comes back of it is
// BF16.
static mics_comm_dtype second_hop_sends(const builder *b, const mics_step *step)
{
    const mics_sharding *s = sharding_of(b, step->unit);
    const bool nodes = b->spans_nodes[MICS_AXIS_ISLAND][MICS_SCOPE_WHOLE];
    const mics_comm_dtype dtype = hop_of(b, step, b->schedule->spec.boundary_dtype);
    if (dtype != MICS_COMM_INT8)
        return dtype;
    if (nodes && !spans_nodes(b, step))
        return MICS_COMM_FP32;
    if (step->kind == MICS_STEP_REPLICA_GATHER)
        return MICS_COMM_BF16;
    const bool scattered = step->kind == MICS_STEP_REPLICA_SCATTER && s->optimizer > s->grads &&
                           (!nodes || s->optimizer > per_node_of(b, step->unit));
    return scattered ? MICS_COMM_BF16 : MICS_COMM_INT8;
}

static mics_comm_dtype sent_as(const builder *b, const mics_step *step)
{
    const mics_schedule_spec *spec = &b->schedule->spec;
    switch (step->kind) {
    case MICS_STEP_GATHER:
        return hop_of(b, step, spec->params_dtype);
    case MICS_STEP_PARAM_SYNC: // what nobody rounds when he gathers stays as it is
        return gathers_round(b, step->unit) ? hop_of(b, step, spec->params_dtype)
                                            : held_as(b, step);
    case MICS_STEP_REDUCE:
        return hop_of(b, step, spec->grads_dtype);
    case MICS_STEP_MOMENTUM_TO_OWNERS:
    case MICS_STEP_MOMENTUM_BACK:
    case MICS_STEP_MEET_SPREAD:
        return MICS_COMM_FP32;
    case MICS_STEP_MEET_SCATTER:
    case MICS_STEP_MEET_GATHER:
        return step->state == 0 ? spec->outer.dtype : MICS_COMM_FP32;
    default: // the second hop
        return mics_schedule_rounds_sums(spec) ? held_as(b, step) : second_hop_sends(b, step);
    }
}

static mics_step_dtypes dtypes_of(const builder *b, const mics_step *step)
{
    return (mics_step_dtypes){.held = held_as(b, step), .sent = sent_as(b, step)};
}

// ---- steps ----

static mics_algorithm algorithm_of(const builder *b, const mics_step *step)
{
    if (mics_step_sums(step))
        return step->dtype.sent != step->dtype.held ||
                       (!mics_step_meets(step) && sums_directly(b, step->kind))
                   ? MICS_ALGORITHM_DIRECT
                   : MICS_ALGORITHM_RING;
    if (mics_step_exchanges(step))
        return MICS_ALGORITHM_DIRECT;
    return step->kind == MICS_STEP_GATHER && mics_schedule_shares(b->schedule, step->unit)
               ? MICS_ALGORITHM_SHARED
               : MICS_ALGORITHM_RING;
}

static void place_units(const builder *b, const int32_t *units, int32_t count, mics_step *step)
{
    step->axis = axis_of(b, step->kind, units[0]);
    step->dtype = dtypes_of(b, step);
    step->algorithm = algorithm_of(b, step);
    const int32_t blocks = blocks_of(b, step);
    for (int32_t i = 0; step->algorithm != MICS_ALGORITHM_SHARED && i < count; i++)
        step->block_elems += b->schedule->padded_elems[units[i]] / blocks;
    step->coded =
        step->kind == MICS_STEP_PARAM_SYNC && b->schedule->spec.delta_sync && spans_nodes(b, step);
    step->block_bytes = step->coded ? mics_delta_bound(step->block_elems)
                                    : mics_comm_dtype_bytes(step->dtype.sent, step->block_elems);
    step->stream = spans_nodes(b, step) ? MICS_STREAM_INTER : MICS_STREAM_INTRA;
    step->uses[0] = (mics_step_use){.unit = units[0], .param_slot = -1, .grad_slot = -1};
    step->use_count = 1;
}

mics_step all_to_all_step(const builder *b, pass p, const mics_op *op, int64_t from, int64_t to,
                          int64_t elems)
{
    const bool mixed = b->schedule->spec.precision == MICS_PRECISION_MIXED;
    const mics_comm_dtype dtype = mixed ? MICS_COMM_BF16 : MICS_COMM_FP32;
    mics_step step = blank_step(MICS_STEP_ALL_TO_ALL, p.unit, p.micro_step);
    step.in_flight = p.in_flight;
    step.stage = MICS_STAGE_WHOLE;
    step.axis = op->sequence_ranks > 0 ? MICS_AXIS_SEQUENCE : MICS_AXIS_EXPERTS;
    step.algorithm = MICS_ALGORITHM_DIRECT;
    step.dtype = (mics_step_dtypes){dtype, dtype};
    step.from = from;
    step.to = to;
    step.block_elems =
        elems / (op->sequence_ranks > 0 ? op->sequence_ranks : b->schedule->spec.mesh.experts);
    step.block_bytes = mics_comm_dtype_bytes(dtype, step.block_elems);
    step.stream = spans_nodes(b, &step) ? MICS_STREAM_INTER : MICS_STREAM_INTRA;
    return step;
}

mics_step sizes_step(const mics_step *sync)
{
    mics_step step = *sync;
    step.kind = MICS_STEP_SIZES;
    step.stage = MICS_STAGE_WHOLE;
    step.axis = MICS_AXIS_ISLAND;
    step.algorithm = MICS_ALGORITHM_DOUBLING;
    step.coded = false;
    step.block_elems = 0;
    step.block_bytes = sizeof(int64_t);
    return step;
}

mics_step meeting_step(const builder *b, mics_step_kind kind, mics_step_stage stage, int32_t unit,
                       int32_t state)
{
    mics_step step = blank_step(kind, unit, -1);
    step.stage = stage;
    step.state = state;
    place_units(b, &unit, 1, &step);
    return step;
}

mics_step comm_step(const builder *b, mics_step_kind kind, mics_step_stage stage,
                    const int32_t *units, int32_t count, int32_t micro_step)
{
    mics_step step = blank_step(kind, count > 0 ? units[0] : -1, micro_step);
    step.stage = stage;
    if (count > 0) {
        place_units(b, units, count, &step);
    } else {
        step.axis = kind == MICS_STEP_AGREE_WORLD ? MICS_AXIS_WORLD : MICS_AXIS_ISLAND;
        step.algorithm = MICS_ALGORITHM_DOUBLING;
        step.block_bytes = sizeof(mics_agreement);
        step.stream = spans_nodes(b, &step) ? MICS_STREAM_INTER : MICS_STREAM_INTRA;
    }
    return step;
}
