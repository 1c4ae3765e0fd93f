// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The accumulation boundary, once a step: second hop, norm, agreement, updates, parameter sync.
//
// Stages. Of consecutive units the stage inside the node runs beside the other's between nodes.
//
// Deferred updates (mics_schedule_defers). The list ends with the agreement. Replica gathers and
// updates are the head of the next list, unit by unit in the order in which forward reads them.
// Computation waits for a unit's replica gather in its update, which is therefore listed as late as
// can be: before the first pass that reads the unit, or one visit ahead if a collective sends what
// is updated. A replica gather is listed with the update. Where that collective goes between nodes,
// it is on the stream of the replica gathers and waits for computation. So the next visit's replica
// gathers are ahead of it, for links to have work meanwhile; more of them would keep the first
// forward waiting.
//
// Early replica gathers (spec.early_gathers). A replica gather brings back sums, so it needs no norm,
// and may directly follow its replica scatter. That takes it from the first forward to the last
// backward, which computes twice as long. It pays where links hold up the forward, and can cost where
// they hold up the backward: the planner times both. Bits are the same, unless the gather rounds, as
// the norm is of whole numbers: then it stays behind the norm (mics_schedule_may_gather_early).
// Where nobody says it (mics_schedule_early_by_rule), they are early where the last backward then has
// at most twice the first forward's bytes between nodes: a backward hides them wherever the forward
// hides its own. Let
// N be all nodes and M those of one optimizer shard's group; a node sends, of a unit's bytes,
//   scatter or reduction, and parameter sync   (M - 1) / M each
//   replica scatter, and replica gather        (N - M) / (N M) each
// so that (M - 1) / M + 2 (N - M) / (N M) <= 2 (M - 1) / M. If P spans nodes, if nothing is sent
// behind updates between nodes (M = 1), or if parameters travel in fewer bytes than sums, it does not
// hold.
//
// Small units share messages: those that follow each other, up to coalesce_below elements in all.
// They keep no slots at the boundary, so waiting for each other costs no memory but the message.
#include "schedule/boundary.h"
#include "schedule/collectives.h"
#include "schedule/listing.h"
#include "schedule/meeting_steps.h"
#include "schedule/owners.h"
#include "schedule/rules.h"

// Whether a unit may share a message.
static bool is_small(const builder *b, int32_t unit)
{
    return b->schedule->padded_elems[unit] < b->schedule->spec.coalesce_below;
}

static bool alike(const builder *b, int32_t unit, int32_t other)
{
    const mics_sharding *s = sharding_of(b, unit), *t = sharding_of(b, other);
    return b->schedule->experts[unit] == b->schedule->experts[other] && s->params == t->params &&
           s->grads == t->grads && s->optimizer == t->optimizer;
}

static bool has_gradients(const builder *b, int32_t unit)
{
    return unit_of(b, unit)->param_count > 0 && mics_schedule_trains(b->schedule, unit);
}

// Makes a step, which was made for all of `units`, name them.
static void name_members(const builder *b, const int32_t *units, int32_t count, mics_step *step)
{
    if (count < 2)
        return;
    step->member_at = (int32_t)(units - b->schedule->members);
    step->member_count = count;
}

// Puts units behind those that other steps name.
static int32_t *new_members(const builder *b)
{
    return b->schedule->members + b->schedule->member_count;
}

// Whether a replica gather directly follows its replica scatter.
static bool gathers_early(const builder *b)
{
    return b->schedule->spec.all_reduces || b->schedule->spec.early_gathers;
}

// ---- what the step before left: replica gathers, updates, parameter sync ----

// The unit, and if it is small those like it that are not listed yet, as many as share a message.
static int32_t gather_members(const builder *b, const int32_t *listed, int32_t unit,
                              int32_t *units_out)
{
    const int32_t units = b->schedule->spec.model->unit_count;
    int64_t elems = b->schedule->padded_elems[unit];
    int32_t count = 1;
    units_out[0] = unit;
    for (int32_t u = unit + 1; u < units && is_small(b, unit); u++) {
        const bool joins =
            is_small(b, u) && alike(b, unit, u) && listed[u] < 0 && has_gradients(b, u);
        if (!joins || elems + b->schedule->padded_elems[u] > b->schedule->spec.coalesce_below)
            continue;
        elems += b->schedule->padded_elems[u];
        units_out[count++] = u;
    }
    return count;
}

// A gather at the head of the list, of `unit` and those that share its message: `listed`, by unit,
// then says where it is. A parameter sync is behind their updates.
static mics_status list_at_head(builder *b, mics_step_kind kind, int32_t unit, int32_t *listed)
{
    int32_t *members = new_members(b), index = -1;
    const int32_t count = gather_members(b, listed, unit, members);
    const int32_t *units = count > 1 ? members : &unit;
    const stage_list stages = stages_of(b, kind, unit);
    b->schedule->member_count += count > 1 ? count : 0;
    for (int32_t i = 0; kind == MICS_STEP_PARAM_SYNC && i < count; i++)
        MICS_TRY(list_deferred_update(b, units[i]));
    for (int32_t at = 0; at < stages.count; at++) {
        mics_step step = comm_step(b, kind, stages.at[at], units, count, -1);
        name_members(b, units, count, &step);
        for (int32_t i = 0; kind == MICS_STEP_PARAM_SYNC && i < count; i++)
            wait_on(b, &step, b->updated[units[i]]);
        wait_on(b, &step, index);
        if (step.coded)
            MICS_TRY(add_step(b, sizes_step(&step), &index));
        MICS_TRY(add_step(b, step, &index));
    }
    for (int32_t i = 0; i < count; i++)
        listed[units[i]] = index;
    return MICS_OK;
}

mics_status list_param_sync(builder *b, int32_t unit)
{
    const mics_sharding *s = sharding_of(b, unit);
    if (!is_training(b) || s->optimizer == s->params || b->synced[unit] >= 0)
        return MICS_OK;
    MICS_TRY(list_at_head(b, MICS_STEP_PARAM_SYNC, unit, b->synced));
    for (int32_t u = 0; u < b->schedule->spec.model->unit_count; u++) {
        if (b->ready[u] < 0)
            b->ready[u] = b->synced[u];
    }
    return MICS_OK;
}

bool mics_schedule_may_gather_early(const mics_schedule_spec *spec)
{
    return !spec->all_reduces && spec->mesh.sharding.optimizer < spec->mesh.ranks &&
           spec->boundary_dtype.intra == MICS_COMM_FP32 &&
           spec->boundary_dtype.inter == MICS_COMM_FP32;
}

bool mics_schedule_early_by_rule(const mics_schedule_spec *spec)
{
    const mics_mesh *mesh = &spec->mesh;
    const mics_sharding *s = &mesh->sharding;
    const int64_t per_node = mesh->ranks_per_node, nodes = mics_mesh_nodes(mesh),
                  of_shard = s->optimizer / per_node;
    const bool rounds =
        spec->precision != MICS_PRECISION_FP32 || spec->params_dtype.inter != MICS_COMM_FP32;
    return !rounds && mics_schedule_may_gather_early(spec) && s->params <= per_node &&
           2 * (nodes - of_shard) <= nodes * (of_shard - 1);
}

bool defers_updates(const builder *b)
{
    return is_training(b) && mics_schedule_defers(b->schedule);
}

mics_status list_replica_gather(builder *b, int32_t unit)
{
    const bool listed = b->brought_back[unit] >= 0 || !has_gradients(b, unit);
    return !defers_updates(b) || gathers_early(b) || listed
               ? MICS_OK
               : list_at_head(b, MICS_STEP_REPLICA_GATHER, unit, b->brought_back);
}

bool sends_far(const builder *b)
{
    return defers_updates(b) && b->spans_nodes[MICS_AXIS_OPTIMIZER][MICS_SCOPE_WHOLE];
}

bool is_sent_when_updated(const builder *b, int32_t unit)
{
    const mics_sharding *s = sharding_of(b, unit);
    return s->optimizer > s->params || (s->params > 1 && !mics_schedule_shares(b->schedule, unit));
}

// A round's momentum, made orthogonal, behind `before` (-1: nothing) and the units' gradients. It has
// one place, which the updates behind it free: computation is in order.
static mics_status list_round(builder *b, const int32_t *units, int32_t count, int32_t before,
                              int32_t *last_out)
{
    const bool sends = sharding_of(b, units[0])->optimizer > 1;
    for (int32_t i = 0; i < count; i++) {
        mics_step momentum = blank_step(MICS_STEP_MOMENTUM, units[i], -1);
        wait_on(b, &momentum, before);
        wait_on(b, &momentum, b->brought_back[units[i]]);
        MICS_TRY(add_step(b, momentum, last_out));
    }
    for (int kind = MICS_STEP_MOMENTUM_TO_OWNERS; kind <= MICS_STEP_MOMENTUM_BACK; kind++) {
        const bool computes = kind == MICS_STEP_ORTHOGONALISE;
        if (!computes && !sends)
            continue;
        mics_step step = computes
                             ? blank_step(MICS_STEP_ORTHOGONALISE, units[0], -1)
                             : comm_step(b, (mics_step_kind)kind, MICS_STAGE_WHOLE, units, 1, -1);
        if (computes)
            step.flops = owner_flops(b->schedule, units[0], b->schedule->rounds[units[0]].busiest);
        wait_on(b, &step, *last_out);
        MICS_TRY(add_step(b, step, last_out));
    }
    return MICS_OK;
}

// The updates of a unit and of all others of its round, behind `before` (-1: nothing). Deferred ones
// are followed by what the units' meetings have to do there.
static mics_status list_updates(builder *b, int32_t unit, int32_t before)
{
    const mics_round round = b->schedule->rounds[unit];
    const int32_t *units = round.count > 0 ? b->schedule->members + round.at : &unit;
    const int32_t count = round.count > 0 ? round.count : 1;
    int32_t orthogonal = -1;
    for (int32_t i = 0; i < count; i++)
        MICS_TRY(list_replica_gather(b, units[i]));
    if (round.count > 0)
        MICS_TRY(list_round(b, units, count, before, &orthogonal));
    for (int32_t i = 0; i < count; i++) {
        mics_step update = blank_step(MICS_STEP_UPDATE, units[i], -1);
        wait_on(b, &update, before);
        wait_on(b, &update, b->brought_back[units[i]]);
        wait_on(b, &update, orthogonal);
        MICS_TRY(add_step(b, update, &b->updated[units[i]]));
    }
    return defers_updates(b) ? list_meetings(b, units, count) : MICS_OK;
}

mics_status list_deferred_update(builder *b, int32_t unit)
{
    const bool due = defers_updates(b) && b->updated[unit] < 0;
    return due && mics_schedule_trains(b->schedule, unit) ? list_updates(b, unit, -1) : MICS_OK;
}

// ---- second hop ----

// Waits for the gradient of a unit to be whole inside the gradient group.
static void wait_on_gradient(const builder *b, mics_step *step, int32_t unit)
{
    wait_on(b, step,
            sharding_of(b, unit)->grads > 1 ? b->last_reduced[unit] : b->last_writer[unit]);
}

// One collective of the second hop in all its stages. *before_io is the last step of the hop so
// far, -1: it begins here.
static mics_status list_hop_part(builder *b, mics_step_kind kind, const int32_t *units,
                                 int32_t count, int32_t *before_io)
{
    const stage_list stages = stages_of(b, kind, units[0]);
    for (int32_t at = 0; at < stages.count; at++) {
        mics_step step = comm_step(b, kind, stages.at[at], units, count, -1);
        name_members(b, units, count, &step);
        for (int32_t u = 0; *before_io < 0 && u < count; u++)
            wait_on_gradient(b, &step, units[u]);
        wait_on(b, &step, *before_io);
        MICS_TRY(add_step(b, step, before_io));
    }
    return MICS_OK;
}

static mics_status list_hop(builder *b, const int32_t *units, int32_t count)
{
    const mics_sharding *s = sharding_of(b, units[0]);
    const bool replicas = mics_schedule_unit_ranks(b->schedule, units[0]) > s->optimizer;
    int32_t before = -1;
    if (s->optimizer > s->grads)
        MICS_TRY(list_hop_part(b, MICS_STEP_SCATTER, units, count, &before));
    if (replicas)
        MICS_TRY(list_hop_part(b, MICS_STEP_REPLICA_SCATTER, units, count, &before));
    if (replicas && gathers_early(b))
        MICS_TRY(list_hop_part(b, MICS_STEP_REPLICA_GATHER, units, count, &before));
    return MICS_OK;
}

// Lists the second hop of units that wait for each other.
static mics_status list_coalesced(builder *b, coalesce_queue *queue)
{
    const int32_t count = queue->count;
    int32_t *units = new_members(b);
    if (count == 0)
        return MICS_OK;
    for (int32_t i = 0; i < count; i++)
        units[i] = queue->units[i];
    b->schedule->member_count += count > 1 ? count : 0;
    queue->count = 0;
    queue->elems = 0;
    return list_hop(b, units, count);
}

mics_status list_second_hop(builder *b, int32_t unit)
{
    const mics_sharding *s = sharding_of(b, unit), mesh = mesh_sharding_of(b, unit);
    const int64_t elems = b->schedule->padded_elems[unit];
    const bool whole = s->params != mesh.params || s->grads != mesh.grads;
    coalesce_queue *queue = &b->coalescing[whole + 2 * (b->schedule->experts[unit] > 1)];
    if (!is_small(b, unit))
        return list_hop(b, &unit, 1);
    if (queue->elems + elems > b->schedule->spec.coalesce_below)
        MICS_TRY(list_coalesced(b, queue));
    queue->units[queue->count++] = unit;
    queue->elems += elems;
    return MICS_OK;
}

// ---- the end ----

mics_status list_agreement(builder *b, int32_t *agree_out)
{
    mics_step step = comm_step(b, MICS_STEP_AGREE, MICS_STAGE_WHOLE, NULL, 0, -1);
    wait_on(b, &step, b->newest[MICS_STREAM_COMPUTE]);
    return add_step(b, step, agree_out);
}

// Updated parameters are synchronised at the beginning of the next list. Deferred updates run there
// too, just before their sync.
mics_status list_boundary(builder *b)
{
    int32_t agree = 0, index = 0;
    mics_step norm = blank_step(MICS_STEP_NORM, -1, -1);
    for (size_t i = 0; i < sizeof b->coalescing / sizeof b->coalescing[0]; i++)
        MICS_TRY(list_coalesced(b, &b->coalescing[i]));
    MICS_TRY(list_meetings_beside(b, b->pass_count));
    wait_on_all(b, &norm, b->newest);
    MICS_TRY(add_step(b, norm, &index));
    MICS_TRY(list_agreement(b, &agree));
    MICS_TRY(list_adoptions(b, agree));
    for (int32_t unit = 0; unit < b->schedule->spec.model->unit_count; unit++) {
        if (!defers_updates(b) && b->updated[unit] < agree &&
            mics_schedule_trains(b->schedule, unit))
            MICS_TRY(list_updates(b, unit, agree));
    }
    return MICS_OK;
}
