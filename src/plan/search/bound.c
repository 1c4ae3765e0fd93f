// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Memory of a choice, and a time that it cannot fall below, without making its schedule.
//
// The bound. The boundary (norm, agreement, updates) follows everything else, one after the other.
// Before it, a step takes at least the longest of
//   computation   all passes, and what comes before the first and must follow the last; or what collectives
//                 cost computation beside them, which takes 1 + slowdown times: us x slowdown / (1 + slowdown)
//   each stream   the collectives that run on it, one after the other
//   each tier     the bytes through its busiest link
//   cores         the work of all ranks, where they share cores
// Collectives of packed numbers count nothing.
#include "mics/size.h"
#include "plan/search/internal.h"

// ---- what one collective costs ----

static void add_cost(comm_cost *sum, const comm_cost *cost, double times)
{
    sum->us += times * cost->us;
    sum->near_us += times * cost->near_us;
    sum->far_us += times * cost->far_us;
    sum->near_slow_us += times * cost->near_slow_us;
    sum->far_slow_us += times * cost->far_slow_us;
    sum->core_us += times * cost->core_us;
    for (int t = 0; t < MICS_CLUSTER_TIERS; t++)
        sum->busy_us[t] += times * cost->busy_us[t];
}

typedef struct pricing {
    const mics_planner *planner;
    mics_mesh mesh;
    mics_sharding unit; // of the class that is priced
    int64_t padded_elems;
} pricing;

// The groups that a collective runs over.
typedef struct span {
    mics_group_axis axis;
    mics_group_scope scope;
} span;

static bool spans_nodes(const pricing *p, span over)
{
    return mics_mesh_spans_nodes(&p->mesh, over.axis, over.scope);
}

static mics_cost_use faster(mics_cost_use a, mics_cost_use b)
{
    return b.us < a.us ? b : a;
}

static comm_cost as_cost(const pricing *p, span over, mics_cost_use use)
{
    const bool far = spans_nodes(p, over);
    const double slow_us = use.us * use.slowdown / (1 + use.slowdown);
    comm_cost cost = {.us = use.us,
                      .core_us = use.core_us,
                      .near_us = far ? 0 : use.us,
                      .far_us = far ? use.us : 0,
                      .near_slow_us = far ? 0 : slow_us,
                      .far_slow_us = far ? slow_us : 0};
    for (int t = 0; t < MICS_CLUSTER_TIERS; t++)
        cost.busy_us[t] = use.busy_us[t];
    return cost;
}

// A collective of the class on groups of a kind; `blocks` into which the unit is cut there.
static comm_cost price(const pricing *p, mics_collective_kind kind, span over, int32_t blocks,
                       mics_comm_dtype wire)
{
    const mics_planner *planner = p->planner;
    const mics_collective asked = {
        .kind = kind,
        .group = mics_mesh_group(&p->mesh, over.axis, over.scope, 0),
        .block_bytes = (double)mics_comm_dtype_bytes(wire, p->padded_elems / blocks)};
    mics_cost_use use = mics_cost_collective(&planner->request.cluster, planner->ranks, &asked);
    if (kind == MICS_COLLECTIVE_ALL_REDUCE && planner->simulate.trees) {
        mics_collective tree = asked;
        tree.kind = MICS_COLLECTIVE_ALL_REDUCE_TREE;
        use = faster(use, mics_cost_collective(&planner->request.cluster, planner->ranks, &tree));
    }
    return as_cost(p, over, use);
}

// Each member of a group sends every other its block.
static comm_cost price_direct(const pricing *p, span over, int32_t blocks)
{
    const mics_planner *planner = p->planner;
    const mics_collective asked = {
        .kind = MICS_COLLECTIVE_SEND,
        .group = mics_mesh_group(&p->mesh, over.axis, over.scope, 0),
        .block_bytes = (double)mics_comm_dtype_bytes(MICS_COMM_BF16, p->padded_elems / blocks)};
    return as_cost(p, over, mics_cost_direct(&planner->request.cluster, planner->ranks, &asked));
}

// ---- what a class' collectives cost ----

static bool is_mixed(const mics_planner *planner)
{
    return planner->request.precision == MICS_PRECISION_MIXED;
}

// As collectives of a group travel.
static mics_comm_dtype hop_of(const pricing *p, mics_comm_dtypes wires, span over)
{
    if (is_mixed(p->planner))
        return MICS_COMM_BF16;
    return spans_nodes(p, over) ? wires.inter : wires.intra;
}

static comm_cost price_gather_of(const pricing *p, span over, int32_t blocks)
{
    return price(p, MICS_COLLECTIVE_ALL_GATHER, over, blocks,
                 hop_of(p, p->planner->request.params_dtype, over));
}

// Nothing where the reduction is packed.
static comm_cost price_sum(const pricing *p, mics_collective_kind kind, span over, int32_t blocks,
                           mics_comm_dtypes wires, bool held_packed)
{
    const comm_cost none = {0};
    const mics_comm_dtype wire = held_packed            ? MICS_COMM_BF16
                                 : spans_nodes(p, over) ? wires.inter
                                                        : wires.intra;
    return held_packed || wire == MICS_COMM_FP32 ? price(p, kind, over, blocks, wire) : none;
}

static comm_cost price_gather(const pricing *p, bool two_stage)
{
    const mics_group_axis axis = MICS_AXIS_PARTITION;
    comm_cost cost = {0};
    if (p->unit.params == 1 || degree_shares(p->planner, p->unit.params)) // no bytes
        return cost;
    if (!two_stage || !degree_has_stages(p->planner, p->unit.params))
        return price_gather_of(p, (span){axis, MICS_SCOPE_WHOLE}, p->unit.params);
    const comm_cost intra =
        price_gather_of(p, (span){axis, MICS_SCOPE_INTRA}, p->planner->ranks_per_node);
    cost = price_gather_of(p, (span){axis, MICS_SCOPE_INTER}, p->unit.params);
    add_cost(&cost, &intra, 1);
    return cost;
}

static comm_cost price_direct_reduce(const pricing *p)
{
    const mics_group_axis axis = MICS_AXIS_GRADIENT;
    const mics_planner *planner = p->planner;
    if (!degree_has_stages(planner, p->unit.grads))
        return price_direct(p, (span){axis, MICS_SCOPE_WHOLE}, p->unit.grads);
    const comm_cost intra =
        price_direct(p, (span){axis, MICS_SCOPE_INTRA}, planner->ranks_per_node);
    comm_cost cost = price_direct(p, (span){axis, MICS_SCOPE_INTER}, p->unit.grads);
    add_cost(&cost, &intra, 1);
    return cost;
}

static comm_cost price_reduce(const pricing *p, const mics_plan_choice *choice)
{
    const mics_planner *planner = p->planner;
    const mics_comm_dtypes wires = planner->request.grads_dtype;
    const mics_collective_kind sum = MICS_COLLECTIVE_REDUCE_SCATTER;
    const mics_group_axis axis = MICS_AXIS_GRADIENT;
    const bool mixed = is_mixed(planner);
    comm_cost cost = {0};
    if (p->unit.grads == 1)
        return cost;
    if (sums_directly(planner, choice))
        return price_direct_reduce(p);
    if (!choice->reduce_two_stage || !degree_has_stages(planner, p->unit.grads))
        return price_sum(p, sum, (span){axis, MICS_SCOPE_WHOLE}, p->unit.grads, wires, mixed);
    const comm_cost intra =
        price_sum(p, sum, (span){axis, MICS_SCOPE_INTRA}, planner->ranks_per_node, wires, mixed);
    cost = price_sum(p, sum, (span){axis, MICS_SCOPE_INTER}, p->unit.grads, wires, mixed);
    add_cost(&cost, &intra, 1);
    return cost;
}

// Whether a group from one degree to another has several members a node and several nodes.
static bool has_stages(const pricing *p, bool two_stage, int32_t inner, int32_t outer)
{
    const int32_t per_node = p->planner->ranks_per_node;
    return two_stage && inner < per_node && per_node < outer;
}

static comm_cost price_scatter(const pricing *p, bool two_stage)
{
    const bool same = p->unit.grads == p->mesh.sharding.grads;
    const mics_group_axis axis = same ? MICS_AXIS_SCATTER : MICS_AXIS_OPTIMIZER;
    const mics_comm_dtypes wires = p->planner->request.boundary_dtype;
    const mics_collective_kind sum = MICS_COLLECTIVE_REDUCE_SCATTER;
    const int32_t degree = p->unit.optimizer, per_node = p->planner->ranks_per_node;
    comm_cost cost = {0};
    if (degree == p->unit.grads)
        return cost;
    if (!has_stages(p, two_stage, p->unit.grads, degree))
        return price_sum(p, sum, (span){axis, MICS_SCOPE_WHOLE}, degree, wires, false);
    const comm_cost intra =
        price_sum(p, sum, (span){axis, MICS_SCOPE_INTRA}, per_node, wires, false);
    cost = price_sum(p, sum, (span){axis, MICS_SCOPE_INTER}, degree, wires, false);
    add_cost(&cost, &intra, 1);
    return cost;
}

static comm_cost price_all_reduce(const pricing *p, bool two_stage)
{
    const mics_group_axis axis = MICS_AXIS_REPLICATION;
    const int32_t ranks = p->planner->ranks, per_node = p->planner->ranks_per_node;
    const mics_comm_dtypes wires = p->planner->request.boundary_dtype;
    const mics_collective_kind all = MICS_COLLECTIVE_ALL_REDUCE;
    const span intra = {axis, MICS_SCOPE_INTRA};
    comm_cost cost = {0};
    if (ranks == p->unit.optimizer)
        return cost;
    if (!has_stages(p, two_stage, p->unit.optimizer, ranks))
        return price_sum(p, all, (span){axis, MICS_SCOPE_WHOLE}, ranks, wires, false);
    const comm_cost there =
        price_sum(p, MICS_COLLECTIVE_REDUCE_SCATTER, intra, per_node, wires, false);
    const comm_cost back = price_sum(p, MICS_COLLECTIVE_ALL_GATHER, intra, per_node, wires, false);
    cost = price_sum(p, all, (span){axis, MICS_SCOPE_INTER}, ranks, wires, false);
    add_cost(&cost, &there, 1);
    add_cost(&cost, &back, 1);
    return cost;
}

static comm_cost price_sync_of(const pricing *p, span over, int32_t blocks)
{
    const mics_comm_dtype whole = is_mixed(p->planner) ? MICS_COMM_BF16 : MICS_COMM_FP32;
    const mics_comm_dtypes wires = p->planner->request.params_dtype;
    const bool rounds =
        p->unit.params > 1 &&
        hop_of(p, wires, (span){MICS_AXIS_PARTITION, MICS_SCOPE_WHOLE}) != MICS_COMM_FP32;
    return price(p, MICS_COLLECTIVE_ALL_GATHER, over, blocks,
                 rounds ? hop_of(p, wires, over) : whole);
}

static comm_cost price_param_sync(const pricing *p, bool two_stage)
{
    const bool same = p->unit.params == p->mesh.sharding.params;
    const mics_group_axis axis = same ? MICS_AXIS_PARAM_SYNC : MICS_AXIS_OPTIMIZER;
    comm_cost cost = {0};
    if (p->unit.optimizer == p->unit.params)
        return cost;
    if (!has_stages(p, two_stage, p->unit.params, p->unit.optimizer))
        return price_sync_of(p, (span){axis, MICS_SCOPE_WHOLE}, p->unit.optimizer);
    const comm_cost intra =
        price_sync_of(p, (span){axis, MICS_SCOPE_INTRA}, p->planner->ranks_per_node);
    cost = price_sync_of(p, (span){axis, MICS_SCOPE_INTER}, p->unit.optimizer);
    add_cost(&cost, &intra, 1);
    return cost;
}

// Units that may share a message count nothing: what each of them adds to it nobody waits for
// alone.
static comm_cost price_once(const pricing *p, bool two_stage)
{
    comm_cost cost = {0};
    if (p->padded_elems < p->planner->request.coalesce_below)
        return cost;
    const comm_cost parts[] = {price_scatter(p, two_stage), price_all_reduce(p, two_stage),
                               price_param_sync(p, two_stage)};
    for (int i = 0; i < 3; i++)
        add_cost(&cost, &parts[i], 1);
    return cost;
}

mics_status price_sharding(const mics_planner *planner, const mics_plan_choice *choice,
                           class_cost *classes)
{
    pricing p = {.planner = planner};
    MICS_TRY(mics_mesh_init(planner->ranks, planner->request.nodes, choice->sharding, &p.mesh));
    for (int32_t c = 0; c < planner->class_count; c++) {
        p.unit = choice->sharding;
        if (planner->classes[c].whole)
            p.unit.params = p.unit.grads = 1;
        p.padded_elems = planner->classes[c].padded_elems;
        classes[c] = (class_cost){.gather = price_gather(&p, choice->gather_two_stage),
                                  .reduce = price_reduce(&p, choice),
                                  .once = price_once(&p, choice->boundary_two_stage)};
    }
    return MICS_OK;
}

// ---- time ----

static comm_cost sum_costs(const mics_planner *planner, const mics_plan_choice *choice,
                           const structures *s, const class_cost *classes)
{
    comm_cost sum = {0};
    for (int32_t c = 0; c < planner->class_count; c++) {
        const double units = planner->classes[c].units;
        add_cost(&sum, &classes[c].gather, structure_gathers(s, c, choice_turns(choice)));
        add_cost(&sum, &classes[c].reduce, units * choice->micro_steps);
        add_cost(&sum, &classes[c].once, units);
    }
    return sum;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

mics_status choice_bound(mics_planner *planner, const mics_plan_choice *choice,
                         const class_cost *classes, double *us_out)
{
    const mics_cluster *cluster = &planner->request.cluster;
    const structures *s = NULL;
    const batch_probe *batch = NULL;
    double boundary_us = 0;
    MICS_TRY(probe_structure(planner, choice, &s));
    MICS_TRY(probe_batch(planner, choice, &batch));
    MICS_TRY(probe_boundary(planner, choice->sharding.optimizer, &boundary_us));
    const comm_cost sum = sum_costs(planner, choice, s, classes);
    const class_cost *first = &classes[planner->first_class];
    const double compute_us = batch->compute_us * choice->micro_steps;
    // No computation runs before the first pass and behind the last. What runs there instead slows
    // none, so either of the two counts, not both.
    const double ends_us = first->gather.us + first->reduce.us + first->once.us;
    double us = compute_us + larger(ends_us, larger(sum.near_slow_us, sum.far_slow_us));
    us = larger(us, larger(sum.near_us, sum.far_us));
    for (int t = 0; t < cluster->tier_count; t++)
        us = larger(us, sum.busy_us[t]);
    if (cluster->cores > 0)
        us = larger(us, planner->ranks * (compute_us * planner->request.threads + sum.core_us) /
                            cluster->cores);
    *us_out = us + boundary_us + cluster->step_overhead_us;
    return MICS_OK;
}

mics_status mics_planner_bound(mics_planner *planner, const mics_plan_choice *choice,
                               double *us_out)
{
    void *block = NULL;
    MICS_TRY(check_choice(planner, choice));
    MICS_TRY(mics_alloc(planner->memory, MICS_MEM_HOST,
                        (size_t)planner->class_count * sizeof(class_cost), &block));
    mics_status status = price_sharding(planner, choice, block);
    if (status == MICS_OK)
        status = choice_bound(planner, choice, block, us_out);
    mics_free(planner->memory, block);
    return status;
}

// ---- memory ----

static size_t counted(size_t bytes)
{
    return bytes > 0 ? mics_memory_block_bytes(bytes) : 0;
}

// What members of a group send of a class at once, into `most`.
static void hold_direct(const unit_class *class, int64_t members, int64_t blocks, size_t *most)
{
    const size_t block_bytes = mics_comm_dtype_bytes(MICS_COMM_BF16, class->padded_elems / blocks);
    const size_t bytes =
        (size_t)mics_size_round_up((members - 1) * (int64_t)block_bytes, MICS_ALIGNMENT);
    *most = bytes > *most ? bytes : *most;
}

// What comes for the owner of a block before it is added, on each stream.
static size_t direct_bytes(const mics_planner *planner, const mics_plan_choice *choice)
{
    const int64_t grads = choice->sharding.grads, per_node = planner->ranks_per_node;
    const bool stages = degree_has_stages(planner, choice->sharding.grads);
    size_t near = 0, far = 0;
    if (!sums_directly(planner, choice) || grads == 1)
        return 0;
    for (int32_t c = 0; c < planner->class_count; c++) {
        const unit_class *class = &planner->classes[c];
        if (class->whole)
            continue;
        if (stages) {
            hold_direct(class, per_node, per_node, &near);
            hold_direct(class, grads / per_node, grads, &far);
        } else {
            hold_direct(class, grads, grads, grads > per_node ? &far : &near);
        }
    }
    return near + far;
}

mics_status choice_memory(mics_planner *planner, const mics_plan_choice *choice, double *bytes_out)
{
    const mics_precision precision = planner->request.precision;
    const structures *s = NULL;
    const batch_probe *batch = NULL;
    size_t params = 0, grads = 0, optimizer = 0;
    MICS_TRY(probe_structure(planner, choice, &s));
    MICS_TRY(probe_batch(planner, choice, &batch));
    for (int32_t c = 0; c < planner->class_count; c++) {
        const unit_class *class = &planner->classes[c];
        const size_t elems = (size_t) class->padded_elems, units = (size_t) class->units;
        params += units * (elems / (size_t)(class->whole ? 1 : choice->sharding.params));
        grads += units * (elems / (size_t)(class->whole ? 1 : choice->sharding.grads));
        optimizer += units * (elems / (size_t)choice->sharding.optimizer);
    }
    const structure *slots = structure_at(s, choice_turns(choice));
    const size_t lanes =
        (size_t)mics_schedule_layered_micro_steps(choice->micro_steps, choice->layered_micro_steps);
    *bytes_out =
        (double)(counted(params * mics_precision_bytes(precision, MICS_MEM_PARAMS)) +
                 counted(grads * mics_precision_bytes(precision, MICS_MEM_GRADS)) +
                 counted(optimizer * kept_bytes(precision)) + slots->gather_bytes +
                 slots->reduce_bytes +
                 counted(batch->activation_bytes + (lanes - 1) * batch->lane_bytes) +
                 batch->workspace_bytes + counted(lanes * batch->token_bytes) +
                 counted(direct_bytes(planner, choice)) + counted(planner->request.staging_bytes));
    return MICS_OK;
}

mics_status mics_planner_memory(mics_planner *planner, const mics_plan_choice *choice,
                                double *bytes_out)
{
    MICS_TRY(check_choice(planner, choice));
    return choice_memory(planner, choice, bytes_out);
}
