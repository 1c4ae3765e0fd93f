// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which group a collective runs over, in how many stages, and as what numbers travel.
//
// Stages. A group from degree `inner` to degree `outer` has several members on a node and several
// nodes where inner < ranks of a node < outer. The ownership order then makes a node's share of the
// buffer one contiguous block, of 1 / ranks of a node, so that a stage inside the node and one
// between equal local ranks are both in place.
#include "schedule/builder.h"

mics_algorithm algorithm_of(const builder *b, int32_t unit, mics_step_kind kind)
{
    const mics_schedule_spec *spec = &b->schedule->spec;
    const bool gather = kind == MICS_STEP_GATHER;
    const mics_wires wires = gather ? spec->gather_wires : spec->reduce_wires;
    const bool spans = b->spans_nodes[gather ? MICS_GROUP_PARAMS : MICS_GROUP_GRADS];
    const size_t bytes =
        mics_wire_bytes(spans ? wires.between : wires.inside, b->schedule->padded_elems[unit]);
    int32_t at = 0;
    while (at + 1 < spec->choice_count && spec->choices[at].most_bytes < bytes)
        at++;
    if (spec->choice_count == 0)
        return MICS_ALGORITHM_RING;
    return gather ? spec->choices[at].gather : spec->choices[at].reduce;
}

// Whether the owner of a block adds what each other member sends it directly, in two bytes a number.
static bool is_direct(const builder *b, mics_step_kind kind)
{
    const mics_schedule_spec *spec = &b->schedule->spec;
    return spec->accelerator && spec->precision == MICS_PRECISION_MIXED && !spec->sums_by_ring &&
           mics_step_kind_whole(kind) == MICS_STEP_REDUCE;
}

void find_stages(const builder *b, int32_t unit, bool stages[MICS_STEP_KINDS])
{
    const mics_mesh *mesh = &b->schedule->spec.mesh;
    const mics_sharding *s = sharding_of(b, unit);
    const int32_t k = mesh->ranks_per_node;
    const bool boundary = b->schedule->spec.boundary == MICS_ALGORITHM_TWO_STAGE;
    stages[MICS_STEP_GATHER] = 1 < k && k < s->params &&
                               algorithm_of(b, unit, MICS_STEP_GATHER) == MICS_ALGORITHM_TWO_STAGE;
    stages[MICS_STEP_REDUCE] =
        1 < k && k < s->grads &&
        (is_direct(b, MICS_STEP_REDUCE) ||
         algorithm_of(b, unit, MICS_STEP_REDUCE) == MICS_ALGORITHM_TWO_STAGE);
    stages[MICS_STEP_SCATTER] = boundary && s->grads < k && k < s->optimizer;
    stages[MICS_STEP_ALL_REDUCE] = boundary && s->optimizer < k && k < mesh->ranks;
    stages[MICS_STEP_PUBLISH] = boundary && s->params < k && k < s->optimizer;
}

// ---- groups ----

// Where a collective runs: its group, into how many blocks a unit is cut there, and the group of the
// stages inside the node.
typedef struct place {
    mics_group_kind group;
    int32_t blocks;
    mics_group_kind inside;
} place;

// Whether a unit stays whole where the mesh's are cut, and so has other groups.
static bool has_own_grads(const builder *b, int32_t unit)
{
    return sharding_of(b, unit)->grads != b->schedule->spec.mesh.sharding.grads;
}

static bool has_own_params(const builder *b, int32_t unit)
{
    return sharding_of(b, unit)->params != b->schedule->spec.mesh.sharding.params;
}

static place place_whole(const builder *b, mics_step_kind kind, int32_t unit)
{
    const mics_sharding *s = sharding_of(b, unit);
    switch (kind) {
    case MICS_STEP_GATHER:
        return (place){.group = MICS_GROUP_PARAMS, .blocks = s->params};
    case MICS_STEP_REDUCE:
        return (place){.group = MICS_GROUP_GRADS, .blocks = s->grads};
    case MICS_STEP_SCATTER:
        return (place){.group = has_own_grads(b, unit) ? MICS_GROUP_OPTIMIZER : MICS_GROUP_SCATTER,
                       .blocks = s->optimizer};
    case MICS_STEP_ALL_REDUCE: // the owned piece, cut once more over the replicas
        return (place){.group = MICS_GROUP_REPLICAS, .blocks = b->schedule->spec.mesh.ranks};
    default: // PUBLISH
        return (place){.group = has_own_params(b, unit) ? MICS_GROUP_OPTIMIZER : MICS_GROUP_PUBLISH,
                       .blocks = s->optimizer};
    }
}

static mics_group_kind group_inside(const builder *b, mics_step_kind whole, int32_t unit)
{
    switch (whole) {
    case MICS_STEP_SCATTER:
        return has_own_grads(b, unit) ? MICS_GROUP_NODE : MICS_GROUP_SCATTER_INSIDE;
    case MICS_STEP_ALL_REDUCE:
        return MICS_GROUP_REPLICAS_INSIDE;
    case MICS_STEP_PUBLISH:
        return has_own_params(b, unit) ? MICS_GROUP_NODE : MICS_GROUP_PUBLISH_INSIDE;
    default: // GATHER, REDUCE
        return MICS_GROUP_NODE;
    }
}

static mics_group_kind group_across(mics_step_kind whole)
{
    switch (whole) {
    case MICS_STEP_GATHER:
        return MICS_GROUP_PARAMS_ACROSS;
    case MICS_STEP_REDUCE:
        return MICS_GROUP_GRADS_ACROSS;
    case MICS_STEP_ALL_REDUCE:
        return MICS_GROUP_REPLICAS_ACROSS;
    default: // SCATTER, PUBLISH
        return MICS_GROUP_OPTIMIZER_ACROSS;
    }
}

static bool is_across(mics_step_kind kind)
{
    return kind == MICS_STEP_GATHER_ACROSS || kind == MICS_STEP_PUBLISH_ACROSS ||
           kind == MICS_STEP_REDUCE || kind == MICS_STEP_SCATTER || kind == MICS_STEP_ALL_REDUCE;
}

static place place_of(const builder *b, mics_step_kind kind, int32_t unit)
{
    const mics_step_kind whole = mics_step_kind_whole(kind);
    place at = place_whole(b, whole, unit);
    if (!in_stages(b, unit, whole))
        return at;
    at.inside = group_inside(b, whole, unit);
    at.group = group_across(whole);
    if (!is_across(kind)) {
        at.group = at.inside;
        at.blocks = b->schedule->spec.mesh.ranks_per_node;
    }
    return at;
}

// ---- wires ----

// What the numbers of a collective are held in.
static mics_wire held_as(const builder *b, mics_step_kind kind)
{
    const bool mixed = b->schedule->spec.precision == MICS_PRECISION_MIXED;
    return mixed && !mics_step_kind_is_second_hop(kind) ? MICS_WIRE_BF16 : MICS_WIRE_FP32;
}

static mics_wire hop_of(const builder *b, mics_wires wires, mics_group_kind group)
{
    return b->spans_nodes[group] ? wires.between : wires.inside;
}

// Whether whoever gathers a unit sees rounded values, the same ones everywhere.
static bool gathers_round(const builder *b, int32_t unit)
{
    const mics_wires wires = b->schedule->spec.gather_wires;
    if (sharding_of(b, unit)->params == 1)
        return false;
    return hop_of(b, wires, MICS_GROUP_PARAMS) != MICS_WIRE_FP32;
}

// INT8 goes to the slowest hop alone, and to its first reduction, whose input has error feedback:
// inside nodes numbers are whole where the hop also goes between them.
static mics_wire second_hop_wire(const builder *b, mics_step_kind kind, int32_t unit,
                                 mics_group_kind group)
{
    const mics_sharding *s = sharding_of(b, unit);
    const bool nodes = b->spans_nodes[MICS_GROUP_WORLD];
    const mics_wire wire = hop_of(b, b->schedule->spec.second_hop_wires, group);
    if (wire != MICS_WIRE_INT8)
        return wire;
    if (nodes && !b->spans_nodes[group])
        return MICS_WIRE_FP32;
    const bool scattered = kind == MICS_STEP_ALL_REDUCE && s->optimizer > s->grads &&
                           (!nodes || s->optimizer > b->schedule->spec.mesh.ranks_per_node);
    return scattered ? MICS_WIRE_BF16 : MICS_WIRE_INT8;
}

static mics_wire wire_of(const builder *b, mics_step_kind kind, int32_t unit, mics_group_kind group)
{
    const mics_schedule_spec *spec = &b->schedule->spec;
    switch (mics_step_kind_whole(kind)) {
    case MICS_STEP_GATHER:
        return hop_of(b, spec->gather_wires, group);
    case MICS_STEP_PUBLISH: // what nobody rounds when he gathers stays as it is
        return gathers_round(b, unit) ? hop_of(b, spec->gather_wires, group) : held_as(b, kind);
    case MICS_STEP_REDUCE:
        return hop_of(b, spec->reduce_wires, group);
    default: // the second hop
        return second_hop_wire(b, kind, unit, group);
    }
}

// ---- steps ----

mics_step comm_step(const builder *b, mics_step_kind kind, const int32_t *units, int32_t count,
                    int32_t micro_step)
{
    mics_step step = blank_step(kind, count > 0 ? units[0] : -1, micro_step);
    if (count == 0) {
        step.group = MICS_GROUP_WORLD;
        step.block_bytes = sizeof(mics_agreement);
    } else {
        const place at = place_of(b, kind, units[0]);
        step.group = at.group;
        step.inside = at.inside;
        step.staged = in_stages(b, units[0], mics_step_kind_whole(kind));
        step.wire = wire_of(b, kind, units[0], at.group);
        step.packed = step.wire != held_as(b, kind);
        step.direct = is_direct(b, kind);
        step.back_wire = step.wire == MICS_WIRE_INT8 ? MICS_WIRE_BF16 : step.wire;
        for (int32_t i = 0; i < count; i++)
            step.block_elems += b->schedule->padded_elems[units[i]] / at.blocks;
        step.block_bytes = mics_wire_bytes(step.wire, step.block_elems);
        step.uses[0] = (mics_step_use){.unit = units[0], .param_slot = -1, .grad_slot = -1};
        step.use_count = 1;
    }
    step.stream = b->spans_nodes[step.group] ? MICS_STREAM_FAR : MICS_STREAM_NEAR;
    return step;
}
