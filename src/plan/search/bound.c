// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Memory of a choice, and a time that it cannot fall below, without making its schedule.
//
// The bound. The boundary (norm, agreement, updates) follows everything else, one after the other.
// Before it, a step takes at least the longest of
//   computation   all passes, and what comes before the first and must follow the last; or what
//                 collectives cost computation beside them, which takes 1 + slowdown times:
//                 us x slowdown / (1 + slowdown), of both streams together
//   gathers       that nothing is computed beside, as units are gathered when they are needed; and
//                 all passes
//   phases        one after the other: the first forward, which waits for replica gathers and
//                 parameter sync; the forwards and backwards of all layered groups, with the
//                 collectives inside each; the last backward, which the last reductions and the
//                 second hop follow
//   each stream   the collectives that run on it, one after the other
//   each tier     the bytes through its busiest link
//   cores         the work of all ranks, where they share cores
// Computation waits for all-to-alls, which stand between its parts. Collectives that compress count
// nothing.
#include "plan/search/bound.h"
#include "base/size.h"
#include "mics/core/ledger.h"
#include "plan/search/choice.h"
#include "plan/search/estimate.h"
#include "plan/search/planner.h"
#include "plan/search/probe.h"
#include "schedule/layered.h"
#include "schedule/rules.h"
#include <math.h>

// ---- what one collective costs ----

static void add_cost(comm_cost *sum, const comm_cost *cost, double times)
{
    sum->us += times * cost->us;
    sum->intra_us += times * cost->intra_us;
    sum->inter_us += times * cost->inter_us;
    sum->intra_slow_us += times * cost->intra_slow_us;
    sum->inter_slow_us += times * cost->inter_slow_us;
    sum->intra_slowdown = fmax(sum->intra_slowdown, cost->intra_slowdown);
    sum->inter_slowdown = fmax(sum->inter_slowdown, cost->inter_slowdown);
    sum->core_us += times * cost->core_us;
    for (int t = 0; t < MICS_CLUSTER_TIERS; t++)
        sum->busy_us[t] += times * cost->busy_us[t];
}

typedef struct pricing {
    const mics_planner *planner;
    mics_mesh mesh;
    // Of the class that is priced:
    mics_sharding unit;
    bool whole, experts;
    int32_t ranks, per_node; // that keep the same of it
    int64_t padded_elems;
} pricing;

// A collective of the class.
typedef struct asked {
    mics_collective_kind kind;
    mics_group_axis axis;
    int32_t blocks; // into which the whole group cuts the unit
    bool staged;    // in two stages
    bool direct;    // each member sends every other its block
    mics_comm_dtypes dtypes;
    bool compresses; // where a dtype is smaller than fp32: that counts nothing
    bool coded;      // inter-node, as changes; what coding takes counts nothing
} asked;

static mics_cost_use use_of(const mics_planner *planner, const mics_collective *c, bool direct)
{
    const mics_cluster *cluster = &planner->request.cluster;
    if (direct)
        return mics_cost_direct(cluster, planner->world, c);
    return mics_cost_collective(cluster, planner->world, c);
}

// What counts nothing, but runs beside others.
static comm_cost without_time(const comm_cost *cost)
{
    return (comm_cost){.intra_slowdown = cost->intra_slowdown,
                       .inter_slowdown = cost->inter_slowdown};
}

// SEND: each member sends every other its block.
static comm_cost price_bytes(const pricing *p, mics_collective_kind kind, mics_group_axis axis,
                             mics_group_scope scope, double block_bytes)
{
    const bool inter = mics_mesh_spans_nodes(&p->mesh, axis, scope);
    const mics_collective c = {.kind = kind,
                               .group = mics_mesh_group(&p->mesh, axis, scope, 0),
                               .block_bytes = block_bytes};
    const mics_cost_use use = use_of(p->planner, &c, kind == MICS_COLLECTIVE_SEND);
    comm_cost cost = {0};
    const double slow_us = use.us * use.slowdown / (1 + use.slowdown);
    cost.us = use.us;
    cost.core_us = use.core_us;
    *(inter ? &cost.inter_us : &cost.intra_us) = use.us;
    *(inter ? &cost.inter_slow_us : &cost.intra_slow_us) = slow_us;
    *(inter ? &cost.inter_slowdown : &cost.intra_slowdown) = use.slowdown;
    for (int t = 0; t < MICS_CLUSTER_TIERS; t++)
        cost.busy_us[t] = use.busy_us[t];
    return cost;
}

// One stage of it, or the whole, into `blocks` of the unit.
static comm_cost price(const pricing *p, const asked *a, mics_collective_kind kind,
                       mics_group_scope scope, int32_t blocks)
{
    const bool inter = mics_mesh_spans_nodes(&p->mesh, a->axis, scope);
    const mics_comm_dtype dtype = inter ? a->dtypes.inter : a->dtypes.intra;
    const bool counts = !a->compresses || dtype == MICS_COMM_FP32;
    const int64_t elems = p->padded_elems / blocks;
    const double bytes = a->coded && inter ? mics_simulate_delta_bytes(elems)
                                           : (double)mics_comm_dtype_bytes(dtype, elems);
    const comm_cost cost =
        price_bytes(p, a->direct ? MICS_COLLECTIVE_SEND : kind, a->axis, scope, bytes);
    return counts ? cost : without_time(&cost);
}

static comm_cost price_all(const pricing *p, const asked *a)
{
    if (!a->staged)
        return price(p, a, a->kind, MICS_SCOPE_WHOLE, a->blocks);
    comm_cost cost = price(p, a, a->kind, MICS_SCOPE_INTER, a->blocks);
    const comm_cost there = price(p, a, a->kind, MICS_SCOPE_INTRA, p->per_node);
    add_cost(&cost, &there, 1);
    return cost;
}

// ---- what a class' collectives cost ----

static const comm_cost nothing = {.us = 0};
static const mics_comm_dtypes both_bf16 = {MICS_COMM_BF16, MICS_COMM_BF16};

static bool is_mixed(const mics_planner *planner)
{
    return planner->request.precision == MICS_PRECISION_MIXED;
}

// Whether a group of the first `degree` ranks that share it has several in a node, and several nodes.
static bool is_staged(const pricing *p, int32_t degree)
{
    return 1 < p->per_node && p->per_node < degree;
}

static comm_cost price_gather(const pricing *p, bool two_stage)
{
    const mics_planner *planner = p->planner;
    const asked a = {.kind = MICS_COLLECTIVE_ALL_GATHER,
                     .axis = p->experts ? MICS_AXIS_EXPERT_PARTITION : MICS_AXIS_PARTITION,
                     .blocks = p->unit.params,
                     .staged = two_stage && is_staged(p, p->unit.params),
                     .dtypes = is_mixed(planner) ? both_bf16 : planner->request.params_dtype};
    if (p->unit.params == 1 || degree_shares(planner, p->mesh.sharding.params)) // no bytes
        return nothing;
    return price_all(p, &a);
}

static comm_cost price_reduce(const pricing *p, const mics_plan_choice *choice)
{
    const mics_planner *planner = p->planner;
    const bool direct = sums_directly(planner, choice), mixed = is_mixed(planner);
    const asked a = {.kind = MICS_COLLECTIVE_REDUCE_SCATTER,
                     .axis = p->experts ? MICS_AXIS_EXPERT_GRADIENT : MICS_AXIS_GRADIENT,
                     .blocks = p->unit.grads,
                     .staged = (direct || choice->reduce_two_stage) && is_staged(p, p->unit.grads),
                     .direct = direct,
                     .dtypes = mixed ? both_bf16 : planner->request.grads_dtype,
                     .compresses = !mixed};
    return p->unit.grads == 1 ? nothing : price_all(p, &a);
}

// Whether a group from one degree to another has several members a node and several nodes.
static bool has_stages(const pricing *p, bool two_stage, int32_t inner, int32_t outer)
{
    return two_stage && inner < p->per_node && p->per_node < outer;
}

// From one degree up to a larger one, at the boundary.
static comm_cost price_boundary(const pricing *p, bool two_stage, int32_t inner, asked a)
{
    a.staged = has_stages(p, two_stage, inner, a.blocks);
    return inner == a.blocks ? nothing : price_all(p, &a);
}

// Between a unit's own degree and O: units that stay whole where others are cut begin at the first.
static mics_group_axis boundary_axis(const pricing *p, int32_t mesh_degree, mics_group_axis same)
{
    const bool differs = p->whole && mesh_degree > (p->experts ? p->mesh.experts : 1);
    if (!differs)
        return same;
    return p->experts ? MICS_AXIS_EXPERT_OPTIMIZER : MICS_AXIS_OPTIMIZER;
}

static comm_cost price_scatter(const pricing *p, bool two_stage)
{
    const mics_group_axis axis = boundary_axis(p, p->mesh.sharding.grads, MICS_AXIS_SCATTER);
    return price_boundary(p, two_stage, p->unit.grads,
                          (asked){.kind = MICS_COLLECTIVE_REDUCE_SCATTER,
                                  .axis = axis,
                                  .blocks = p->unit.optimizer,
                                  .dtypes = p->planner->request.boundary_dtype,
                                  .compresses = true});
}

// Over the replicas of the optimizer state: a reduce-scatter, or the gather that brings it back.
static comm_cost price_replicas(const pricing *p, bool two_stage, mics_collective_kind kind)
{
    return price_boundary(p, two_stage, p->unit.optimizer,
                          (asked){.kind = kind,
                                  .axis = MICS_AXIS_REPLICATION,
                                  .blocks = p->ranks,
                                  .dtypes = p->planner->request.boundary_dtype,
                                  .compresses = true});
}

// As parameters are gathered, where that rounds them; else whole.
static comm_cost price_param_sync(const pricing *p, bool two_stage)
{
    const mics_group_axis axis = boundary_axis(p, p->mesh.sharding.params, MICS_AXIS_PARAM_SYNC);
    const mics_group_axis gather_axis =
        p->experts ? MICS_AXIS_EXPERT_PARTITION : MICS_AXIS_PARTITION;
    const mics_comm_dtypes whole = {MICS_COMM_FP32, MICS_COMM_FP32};
    const mics_comm_dtypes gathers = p->planner->request.params_dtype;
    const bool inter = mics_mesh_spans_nodes(&p->mesh, gather_axis, MICS_SCOPE_WHOLE);
    const bool rounds =
        p->unit.params > 1 && (inter ? gathers.inter : gathers.intra) != MICS_COMM_FP32;
    return price_boundary(p, two_stage, p->unit.params,
                          (asked){.kind = MICS_COLLECTIVE_ALL_GATHER,
                                  .axis = axis,
                                  .blocks = p->unit.optimizer,
                                  .coded = is_mixed(p->planner) && p->planner->request.delta_sync,
                                  .dtypes = is_mixed(p->planner) ? both_bf16
                                            : rounds             ? gathers
                                                                 : whole});
}

// Units that may share a message count nothing: what each of them adds to it nobody waits for
// alone.
static void price_once(const pricing *p, const mics_plan_choice *choice, class_cost *class)
{
    const bool two_stage = choice->boundary_two_stage;
    const bool trees = choice->all_reduces && p->planner->simulate.trees;
    const bool shares = p->padded_elems < p->planner->request.coalesce_below;
    class->head = price_param_sync(p, two_stage);
    class->tail = price_scatter(p, two_stage);
    const comm_cost there = price_replicas(p, two_stage, MICS_COLLECTIVE_REDUCE_SCATTER);
    const comm_cost back = price_replicas(p, two_stage, MICS_COLLECTIVE_ALL_GATHER);
    const bool behind = choice->all_reduces || choice->early_gathers; // the last backward
    add_cost(&class->tail, &there, !trees);
    add_cost(behind ? &class->tail : &class->head, &back, !trees);
    if (!shares)
        return;
    class->head = without_time(&class->head);
    class->tail = without_time(&class->tail);
}

static void take_class(pricing *p, const unit_class *class)
{
    const mics_planner *planner = p->planner;
    const int32_t experts = class->experts ? planner->experts : 1, k = planner->ranks_per_node;
    p->unit = class_sharding(planner, class, p->mesh.sharding);
    p->whole = class->whole;
    p->experts = class->experts;
    p->ranks = planner->ranks / experts;
    p->per_node = k > experts ? k / experts : 1;
    p->padded_elems = class->padded_elems;
}

// Of a schedule of one micro-step.
static comm_cost price_all_to_alls(const mics_planner *planner, const mics_schedule *schedule)
{
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    const pricing p = {.planner = planner, .mesh = schedule->spec.mesh};
    comm_cost sum = {0};
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        if (step->kind != MICS_STEP_ALL_TO_ALL)
            continue;
        const comm_cost cost = price_bytes(&p, MICS_COLLECTIVE_SEND, step->axis, MICS_SCOPE_WHOLE,
                                           (double)step->block_bytes);
        add_cost(&sum, &cost, 1);
    }
    return sum;
}

// Of one micro-step of a batch that is probed, priced once; all 0 where E and S are 1.
static comm_cost all_to_alls_of(mics_planner *planner, int64_t micro_batch, mics_recompute form)
{
    batch_probe *batch = find_batch(planner, micro_batch, form);
    if ((planner->experts > 1 || planner->sequence > 1) && !batch->has_all_to_alls) {
        batch->all_to_alls = price_all_to_alls(planner, batch->schedule);
        batch->has_all_to_alls = true;
    }
    return batch->all_to_alls;
}

mics_status price_sharding(const mics_planner *planner, const mics_plan_choice *choice,
                           class_cost *classes)
{
    pricing p = {.planner = planner};
    MICS_TRY(choice_mesh(planner, choice->sharding, &p.mesh));
    for (int32_t c = 0; c < planner->class_count; c++) {
        take_class(&p, &planner->classes[c]);
        classes[c] = (class_cost){.gather = price_gather(&p, choice->gather_two_stage)};
        if (planner->classes[c].frozen)
            continue;
        classes[c].reduce = price_reduce(&p, choice);
        price_once(&p, choice, &classes[c]);
    }
    return MICS_OK;
}

// Prices a sharding, and what its units send once a step, one after the other.
static mics_status price_ends(const mics_planner *planner, mics_plan_choice choice, bool two_stage,
                              class_cost *classes, double *us_out)
{
    choice.boundary_two_stage = two_stage;
    MICS_TRY(price_sharding(planner, &choice, classes));
    *us_out = 0;
    for (int32_t c = 0; c < planner->class_count; c++)
        *us_out += planner->classes[c].units * (classes[c].head.us + classes[c].tail.us);
    return MICS_OK;
}

mics_status price_collectives(const mics_planner *planner, const mics_plan_space *space,
                              const mics_plan_choice *choice, class_cost *classes, bool *helps_out)
{
    double staged_us = INFINITY, us = 0;
    if (!choice->boundary_two_stage && !space->collectives_given)
        MICS_TRY(price_ends(planner, *choice, true, classes, &staged_us));
    MICS_TRY(price_ends(planner, *choice, choice->boundary_two_stage, classes, &us));
    *helps_out = us < staged_us;
    return MICS_OK;
}

// ---- time ----

static comm_cost sum_costs(const mics_planner *planner, const mics_plan_choice *choice,
                           const structures *s, const class_cost *classes)
{
    comm_cost sum = {0};
    for (int32_t c = 0; c < planner->class_count; c++) {
        const double units = planner->classes[c].units;
        add_cost(&sum, &classes[c].gather,
                 structure_count(s, COUNT_GATHERS, c, choice_groups(choice)));
        add_cost(&sum, &classes[c].reduce, units * choice_groups(choice));
        add_cost(&sum, &classes[c].head, units);
        add_cost(&sum, &classes[c].tail, units);
    }
    return sum;
}

static double bare_us(const mics_planner *planner, const mics_plan_choice *choice,
                      const structures *s, const class_cost *classes)
{
    double us = 0;
    if ((planner->experts > 1 || planner->sequence > 1) && recomputes_some(choice->recompute))
        return 0; // where parts of passes come between is not counted
    for (int32_t c = 0; c < planner->class_count; c++)
        us += structure_count(s, COUNT_BARE, c, choice_groups(choice)) * classes[c].gather.us;
    return us;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

// What computation loses beside collectives of both streams, where each stream's have the other's
// beside them for `beside_us` less: slowdowns are added, so beside the other a stream's costs
// 1 / (1 + the other's slowdown) of what it costs alone, at least.
static double slow_us(const comm_cost *cost, double unslowed_us)
{
    const double intra = cost->intra_slowdown, inter = cost->inter_slowdown;
    const double intra_us = cost->intra_slow_us - unslowed_us * intra / (1 + intra);
    const double inter_us = cost->inter_slow_us - unslowed_us * inter / (1 + inter);
    return larger(0, intra_us) / (1 + inter) + larger(0, inter_us) / (1 + intra);
}

// What computation and the collectives beside it take.
static double beside_us(double compute_us, const comm_cost *cost)
{
    return larger(compute_us + slow_us(cost, 0), larger(cost->intra_us, cost->inter_us));
}

// The first forward with all that it waits for, the last backward with all that follows it, and
// between them the forwards and the backwards with what is inside them.
static double phases_us(const mics_planner *planner, const mics_plan_choice *choice,
                        const structures *s, const batch_probe *batch, const class_cost *classes,
                        const comm_cost *all)
{
    const int32_t groups = choice_groups(choice);
    const double each = (double)choice->micro_steps / groups;
    const double forward_us = each * batch->forward_us, backward_us = each * batch->backward_us;
    const comm_cost any = without_time(all);
    comm_cost head = any, tail = any, forward = any, backward = any;
    for (int32_t c = 0; c < planner->class_count && !s->uneven; c++) {
        const unit_class *class = &planner->classes[c];
        const class_cost *cost = &classes[c];
        add_cost(&head, &cost->head, class->forwarded);
        add_cost(&tail, &cost->tail, class->units);
        add_cost(&tail, &cost->reduce, class->units);
        add_cost(&forward, &cost->gather, structure_count(s, COUNT_FORWARD_GATHER, c, groups));
        add_cost(&backward, &cost->gather, structure_count(s, COUNT_BACKWARD_GATHER, c, groups));
        add_cost(&backward, &cost->reduce, structure_count(s, COUNT_BACKWARD_REDUCE, c, groups));
    }
    return beside_us(forward_us, &head) + beside_us((groups - 1) * forward_us, &forward) +
           beside_us((groups - 1) * backward_us, &backward) + beside_us(backward_us, &tail);
}

mics_status choice_bound(mics_planner *planner, const mics_plan_choice *choice,
                         const class_cost *classes, double *us_out)
{
    const mics_cluster *cluster = &planner->request.cluster;
    const structures *s = NULL;
    batch_probe batch;
    double boundary_us = 0, update_us = 0;
    MICS_TRY(probe_structure(planner, choice, &s));
    MICS_TRY(batch_of(planner, choice, &batch));
    MICS_TRY(probe_boundary(planner, choice->sharding.optimizer, choice->all_reduces, &boundary_us,
                            &update_us));
    comm_cost sum = sum_costs(planner, choice, s, classes);
    const comm_cost all_to_alls = all_to_alls_of(planner, choice->micro_batch, batch.recompute);
    add_cost(&sum, &all_to_alls, choice->micro_steps);
    for (int t = 0; t < cluster->tier_count && batch.schedule->momentum_elems > 0; t++) {
        const double slowdown = cluster->tiers[t].slowdown; // of momentum that is exchanged
        const comm_cost momentum = {.intra_slowdown = slowdown, .inter_slowdown = slowdown};
        add_cost(&sum, &momentum, 0);
    }
    const class_cost *first = &classes[planner->first_class];
    const class_cost *last = &classes[planner->last_class];
    // Deferred updates run beside collectives; others behind all.
    const bool defers = choice->sharding.optimizer < planner->ranks && !choice->all_reduces;
    const double compute_us =
        (batch.forward_us + batch.backward_us) * choice->micro_steps + (defers ? update_us : 0);
    boundary_us += defers ? 0 : update_us;
    // No computation runs before the first pass, behind the last and beside all-to-alls. What runs
    // there instead slows none. Gathers of frozen units wait
    // for no update, so updates may run beside the first; and where no update waits for sums, those
    // of later units may.
    const bool beside = planner->classes[planner->first_class].frozen || choice->early_gathers;
    const double beside_first_us =
        beside && defers ? fmin(first->gather.us + first->head.us, update_us) : 0;
    const double first_us = first->gather.us + last->reduce.us + first->head.us + last->tail.us +
                            choice->micro_steps * all_to_alls.us - beside_first_us;
    double us = compute_us + larger(slow_us(&sum, 0), first_us + slow_us(&sum, first_us));
    us = larger(us, compute_us + bare_us(planner, choice, s, classes));
    us = larger(us, phases_us(planner, choice, s, &batch, classes, &sum));
    us = larger(us, larger(sum.intra_us, sum.inter_us));
    for (int t = 0; t < cluster->tier_count; t++)
        us = larger(us, sum.busy_us[t]);
    if (cluster->cores > 0)
        us = larger(us, planner->world * (compute_us * planner->request.threads + sum.core_us) /
                            cluster->cores);
    *us_out = us + boundary_us + cluster->step_overhead_us;
    return MICS_OK;
}

mics_status mics_planner_bound(mics_planner *planner, const mics_plan_choice *choice,
                               double *us_out)
{
    void *block = NULL;
    MICS_TRY(planner_of(planner, choice->experts, choice->sequence, &planner));
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

// What members of a group send of a class at once, into `max_bytes`.
static void hold_direct(const unit_class *class, int64_t members, int64_t blocks, size_t *max_bytes)
{
    const mics_schedule_spec spec = {.sum_chunk_elems = 0};
    const size_t block_bytes = mics_comm_dtype_bytes(
        MICS_COMM_BF16, mics_schedule_sum_chunk(&spec, class->padded_elems / blocks));
    const size_t bytes =
        (size_t)mics_size_round_up((members - 1) * (int64_t)block_bytes, MICS_ALIGNMENT);
    *max_bytes = bytes > *max_bytes ? bytes : *max_bytes;
}

// What comes for the owner of a block before it is added, on each stream.
static size_t direct_bytes(const mics_planner *planner, const mics_plan_choice *choice)
{
    const bool spans = choice->sharding.grads > planner->ranks_per_node;
    pricing p = {.planner = planner, .mesh = {.sharding = choice->sharding}};
    size_t intra = 0, inter = 0;
    if (!sums_directly(planner, choice))
        return 0;
    for (int32_t c = 0; c < planner->class_count; c++) {
        const unit_class *class = &planner->classes[c];
        take_class(&p, class);
        const int64_t grads = p.unit.grads, per_node = p.per_node;
        if (grads == 1 || class->frozen)
            continue;
        if (is_staged(&p, p.unit.grads)) {
            hold_direct(class, per_node, per_node, &intra);
            hold_direct(class, grads / per_node, grads, &inter);
        } else {
            hold_direct(class, grads, grads, spans ? &inter : &intra);
        }
    }
    return intra + inter;
}

size_t choice_state_bytes(const mics_planner *planner, const mics_plan_choice *choice)
{
    const mics_precision precision = planner->request.precision;
    size_t params = 0, grads = 0, optimizer = 0;
    for (int32_t c = 0; c < planner->class_count; c++) {
        const unit_class *class = &planner->classes[c];
        const size_t elems = (size_t) class->padded_elems, units = (size_t) class->units;
        const mics_sharding s = class_sharding(planner, class, choice->sharding);
        params += units * (elems / (size_t)s.params);
        if (class->frozen)
            continue;
        grads += units * (elems / (size_t)s.grads);
        optimizer += units * kept_bytes(&planner->request, class->padded_elems / s.optimizer);
    }
    return counted(params * mics_precision_bytes(precision, MICS_MEM_PARAMS)) +
           counted(grads * (rounds_sums(planner, choice) ? 2 : sizeof(float))) + counted(optimizer);
}

// Copies of the state, where ranks have no other memory.
static mics_status node_bytes(const mics_planner *planner, const mics_plan_choice *choice,
                              size_t *bytes_out)
{
    const mics_plan_request *request = &planner->request;
    mics_mesh mesh;
    *bytes_out = 0;
    if (!request->node_memory || request->accelerator)
        return MICS_OK;
    MICS_TRY(choice_mesh(planner, choice->sharding, &mesh));
    *bytes_out = mics_schedule_node_file_bytes(&mesh);
    for (int32_t c = 0; c < planner->class_count; c++) {
        const unit_class *class = &planner->classes[c];
        const int32_t owners = class_sharding(planner, class, choice->sharding).optimizer;
        if (class->frozen)
            continue;
        *bytes_out +=
            (size_t) class->units *
            mics_schedule_node_unit_bytes(&mesh, request->optimizer, class->padded_elems, owners);
    }
    return MICS_OK;
}

// The largest round's momentum. Which units have rounds any schedule of the model says.
static size_t momentum_bytes(const mics_planner *planner, const mics_plan_choice *choice,
                             const mics_schedule *schedule)
{
    int64_t most = 0;
    for (int32_t u = 0; u < planner->request.model->unit_count; u++) {
        const unit_class *class = &planner->classes[planner->class_of[u]];
        const int64_t elems = mics_schedule_round_elems(
            class->padded_elems, class_sharding(planner, class, choice->sharding).optimizer);
        most = schedule->rounds[u].count > 0 && elems > most ? elems : most;
    }
    return (size_t)most * sizeof(float);
}

mics_status choice_memory(mics_planner *planner, const mics_plan_choice *choice, double *bytes_out)
{
    size_t copies = 0;
    const structures *s = NULL;
    batch_probe batch;
    MICS_TRY(probe_structure(planner, choice, &s));
    MICS_TRY(batch_of(planner, choice, &batch));
    MICS_TRY(node_bytes(planner, choice, &copies));
    const structure *slots = structure_at(s, choice_groups(choice));
    const size_t in_flight =
        (size_t)mics_schedule_layered_micro_steps(choice->micro_steps, choice->layered_micro_steps);
    *bytes_out = (double)(choice_state_bytes(planner, choice) + slots->gather_bytes +
                          slots->reduce_bytes + counted(activation_bytes(&batch, in_flight)) +
                          batch.workspace_bytes + counted(in_flight * batch.token_bytes) +
                          counted(direct_bytes(planner, choice) +
                                  momentum_bytes(planner, choice, batch.schedule)) +
                          counted(planner->request.staging_bytes) + counted(copies));
    return MICS_OK;
}

mics_status mics_planner_memory(mics_planner *planner, const mics_plan_choice *choice,
                                double *bytes_out)
{
    MICS_TRY(planner_of(planner, choice->experts, choice->sequence, &planner));
    MICS_TRY(check_choice(planner, choice));
    return choice_memory(planner, choice, bytes_out);
}
