// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Invariants of a finished schedule, whatever it was made for. One walk over each list in
// order; over the training list one for each choice of meetings that are due in a training step.
//
// Step a precedes step b when both are on one stream and a is listed first, or when b, or a step
// before b on its stream, waits for a, for one behind a on a's stream, or for a step that a
// precedes: vector clocks, one entry a stream.
//
// Invariants, checked by mics_schedule_validate:
//   1. A step waits for earlier steps only, of other streams only, each named under its own stream.
//      So streams cannot wait for each other in a circle, and as all ranks have one list, they meet
//      collectives in one order.
//   2. A collective is on the stream of its group, which has several members, and has a stage that
//      its kind knows; whatever else a step is, it is computation, or the agreement of all.
//   3. Its block is each of its units' padded elements over the blocks into which its group cuts
//      them, in the bytes of what is sent; of shared parameters nothing.
//   4. A micro-step computes all units forward in order, the loss of a training only backward, then
//      all backward in reverse, as far down as something trains, in a place in flight that is its
//      own meanwhile.
//   5. What a computation reads is there: in a slot that is large enough, whose newest gather was
//      of that unit and precedes; or in the persistent buffer, behind the barrier of shared
//      parameters.
//   6. Who fills a slot anew comes behind all that used it before.
//   7. A collective's stages are complete, and each precedes the next.
//   8. A unit's gradient of a layered group lies in one slot and is reduced once, behind all that
//      write it; where G = 1 it lies in the accumulator, or goes there each micro-step. The first
//      that writes to a slot or an accumulator overwrites, the others add.
//   9. Each unit with parameters that train has its second hop once: scatter where O > G, then
//      replica scatter where O < ranks, behind its last gradient; then replica gather, with
//      all_reduces or where gathers are early.
//  10. Where updates are deferred, a training list has each unit's update once at its head: behind
//      the unit's replica gather, if that is not early, ahead of all that sends or reads the unit's
//      parameters or writes its accumulator. Parameter sync is once a training list where O > P,
//      and precedes all that reads the unit.
//  11. Norm behind all sums, agreement behind it and behind all that reads parameters; then, where
//      none is deferred, each unit's update: once each. An evaluation has the agreement alone,
//      behind its computations.
//      Of a round of units whose matrices are made orthogonal each one's momentum comes before,
//      behind what its update waits for; then, where O > 1, what goes to owners; then their
//      matrices; and, where O > 1, what comes back. One round's is held at a time, up to its last
//      update. Owners are as owners.c says.
//  12. The traffic ledger is the sum over steps, and what is compressed or coalesced has room on
//      its stream.
//  13. A computation is whole, or its parts follow each other, each behind the all-to-all that ends
//      the one before.
//  14. A copy is of a unit's whole block. STORE directly follows the unit's forward; FETCH is of what
//      its micro-step stored and has no place in the arena; backward, and that of the unit before,
//      waits for it.
//  15. Who takes a place in the arena, a forward or a fetch, comes behind all that used the block
//      which lay there, and behind its STORE if its backward is still to come.
//  16. An all-to-all has a block for each rank of its op's group, as long as all of what the op makes
//      over so many, and as the numbers are held.
//  17. What meets of a unit that trains, masters and maybe states, does so in one list. Each step of
//      it is due once, and precedes the next: change, sum over islands, outer step, gather over
//      islands, gather over the shard's replicas where R > O, adoption.
//  18. A change is behind the unit's deferred update, or ahead of any. Without overlap all that reads
//      or sends the unit is behind the adoption. With overlap the adoption is behind the agreement,
//      and ahead of an update that is not deferred.
//  19. Of several islands a training list has the agreement of all ranks once, ahead of each outer
//      step.
//  20. Anchors, momenta, residuals and the messages of one list lie apart, inside the arena.
//  21. SIZES goes to all ranks, directly ahead of the inter-node parameter sync of the same units, behind
//      all that this waits for. These send changes where the units are coded (mics_schedule_codes),
//      and no other step does.
// Those of what backward runs again are recompute.c's.
#include "schedule/validate.h"
#include "base/free.h"
#include "comm/delta/delta.h"
#include "mics/core/ledger.h"
#include "schedule/activations.h"
#include "schedule/ledger.h"
#include "schedule/owners.h"
#include "schedule/rules.h"
#include <string.h>

static const stream_clock at_the_start = {{-1, -1, -1, -1}};

static bool computes(const mics_step *step)
{
    return step->kind == MICS_STEP_FORWARD || step->kind == MICS_STEP_BACKWARD;
}

// ---- 1: waits ----

static void learn(stream_clock *knows, const stream_clock *other)
{
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        if (other->newest[stream] > knows->newest[stream])
            knows->newest[stream] = other->newest[stream];
    }
}

static mics_status check_waits(validator *v, const mics_step *step)
{
    stream_clock *knows = &v->known[v->index];
    const int32_t before = v->begun.newest[step->stream];
    *knows = before < 0 ? at_the_start : v->known[before];
    knows->newest[step->stream] = before;
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        const int32_t wait = step->wait[stream];
        if (wait < 0)
            continue;
        if (wait >= v->index)
            return validator_broken(v, 1, "it waits for a later step");
        if (stream == (int)step->stream || (int)v->list->steps[wait].stream != stream)
            return validator_broken(
                v, 1, "it waits for a step of its own stream, or of another than it says");
        if (!mics_step_is_due(step, v->number))
            continue;
        learn(knows, &v->known[wait]);
        if (wait > knows->newest[stream])
            knows->newest[stream] = wait;
    }
    v->begun.newest[step->stream] = v->index;
    return MICS_OK;
}

// ---- 2, 3: groups and blocks ----

static mics_group group_of(const validator *v, const mics_step *step)
{
    return mics_mesh_group(&v->schedule->spec.mesh, step->axis, mics_step_scope(step), 0);
}

static mics_status check_place(const validator *v, const mics_step *step)
{
    const bool copies = step->kind == MICS_STEP_STORE || step->kind == MICS_STEP_FETCH;
    const bool met = mics_step_meets(step) && !mics_step_kind_sends_meeting(step->kind);
    const bool comm = !copies && !computes(step) && !met && step->kind != MICS_STEP_NORM &&
                      step->kind != MICS_STEP_MOMENTUM && step->kind != MICS_STEP_ORTHOGONALISE &&
                      step->kind != MICS_STEP_UPDATE;
    if (comm != mics_step_is_comm(step) || copies != mics_step_is_copy(step))
        return validator_broken(v, 2, "its kind is not of its stream");
    if (!comm)
        return step->stage == MICS_STAGE_WHOLE ? MICS_OK
                                               : validator_broken(v, 2, "it has no stages");
    const bool spans =
        mics_mesh_spans_nodes(&v->schedule->spec.mesh, step->axis, mics_step_scope(step));
    if (spans != (step->stream == MICS_STREAM_INTER))
        return validator_broken(v, 2, "its group is not of its stream");
    if (step->kind == MICS_STEP_AGREE)
        return step->axis == MICS_AXIS_ISLAND && step->stage == MICS_STAGE_WHOLE
                   ? MICS_OK
                   : validator_broken(v, 2, "not all ranks agree");
    return group_of(v, step).size > 1 ? MICS_OK
                                      : validator_broken(v, 2, "its group has one member");
}

// Into how many blocks a collective cuts a unit: what its stage inside the node leaves, each of
// that.
static int64_t blocks_of(const validator *v, const mics_step *step, int32_t unit)
{
    const mics_sharding *s = sharding_of(v, unit);
    const int32_t per_node = v->schedule->spec.mesh.ranks_per_node,
                  experts = v->schedule->experts[unit];
    const int32_t degree =
        step->kind == MICS_STEP_GATHER   ? s->params
        : step->kind == MICS_STEP_REDUCE ? s->grads
        : step->axis == MICS_AXIS_OUTER
            ? mics_schedule_unit_ranks(v->schedule, unit) * v->schedule->spec.mesh.islands
        : step->axis == MICS_AXIS_REPLICATION ? mics_schedule_unit_ranks(v->schedule, unit)
                                              : s->optimizer;
    return mics_step_scope(step) == MICS_SCOPE_INTRA ? per_node / experts : degree;
}

static mics_status check_block(const validator *v, const mics_step *step)
{
    int32_t count = 0;
    const int32_t *units = mics_schedule_members(v->schedule, step, &count);
    int64_t elems = 0;
    if (!mics_step_is_comm(step) || step->unit < 0 || step->kind == MICS_STEP_ALL_TO_ALL ||
        step->kind == MICS_STEP_SIZES)
        return MICS_OK;
    for (int32_t i = 0; step->algorithm != MICS_ALGORITHM_SHARED && i < count; i++)
        elems += v->schedule->padded_elems[units[i]] / blocks_of(v, step, units[i]);
    if (step->block_elems != elems ||
        step->block_bytes != (step->coded ? mics_delta_bound(elems)
                                          : mics_comm_dtype_bytes(step->dtype.sent, elems)))
        return validator_broken(v, 3, "its block has another length");
    return MICS_OK;
}

// ---- 4: passes ----

// The next part of the pass that is under way, behind its all-to-all.
static mics_status check_part(validator *v, const mics_step *step)
{
    const mics_step *before = v->pass >= 0 ? &v->list->steps[v->pass] : NULL;
    if (before == NULL || before->unit != step->unit || before->kind != step->kind ||
        before->micro_step != step->micro_step || mics_schedule_ends_pass(v->schedule, before) ||
        v->exchange < v->pass || !validator_precedes(v, v->exchange))
        return validator_broken(v, 13, "a part of a computation begins before its all-to-all");
    v->pass = v->index;
    return MICS_OK;
}

// The op that a part ends before: of those that run forward, or of the gradient calls.
static const mics_op *exchange_behind(const validator *v, const mics_step *part)
{
    const mics_unit_plan *plan = &v->schedule->units[part->unit];
    const mics_unit *unit = &v->schedule->spec.model->units[part->unit];
    int32_t op = part->part.op_end;
    while (part->kind == MICS_STEP_BACKWARD && op < unit->op_count && !plan->again[op])
        op++;
    return &unit->ops[op < unit->op_count ? op : plan->grads[part->part.call_end].op];
}

static mics_status check_exchanged(const validator *v, const mics_step *step, const mics_op *op)
{
    const mics_schedule_spec *spec = &v->schedule->spec;
    const bool shares = op->sequence_ranks > 0;
    const int32_t ranks = shares ? op->sequence_ranks : op->expert_ranks;
    const mics_tensor *made = &spec->model->units[step->unit].tensors[op->out];
    if (!mics_op_def_get(op->kind)->travels || group_of(v, step).size != ranks ||
        step->axis != (shares ? MICS_AXIS_SEQUENCE : MICS_AXIS_EXPERTS) || step->from < 0 ||
        step->to < 0 || step->dtype.held != step->dtype.sent ||
        step->block_elems * ranks != mics_schedule_tensor_elems(spec, made) ||
        step->block_bytes != mics_comm_dtype_bytes(step->dtype.sent, step->block_elems))
        return validator_broken(v, 16, "an all-to-all is not of what its op makes");
    return MICS_OK;
}

static mics_status check_all_to_all(validator *v, const mics_step *step)
{
    const mics_step *before = v->pass >= 0 ? &v->list->steps[v->pass] : NULL;
    if (before == NULL || before->unit != step->unit || before->micro_step != step->micro_step ||
        before->in_flight != step->in_flight || mics_schedule_ends_pass(v->schedule, before) ||
        !validator_precedes(v, v->pass) || v->exchange > v->pass)
        return validator_broken(v, 13, "an all-to-all belongs to no part of a computation");
    v->exchange = v->index;
    return check_exchanged(v, step, exchange_behind(v, before));
}

static mics_status check_pass(validator *v, const mics_step *step)
{
    const bool first = step->part.op == 0 && step->part.call == 0;
    const int32_t units = v->computing, micro = step->micro_step;
    const int32_t micro_steps = is_training(v) ? v->schedule->spec.micro_steps : 1;
    if (micro < 0 || micro >= micro_steps || step->in_flight < 0 ||
        step->in_flight >= v->schedule->spec.layered_micro_steps)
        return validator_broken(v, 4, "there is no such micro-step or place in flight");
    const int32_t forwards = is_training(v) ? units - 1 : units, at = v->passes[micro];
    const bool backward = at >= forwards;
    if (!first)
        return check_part(v, step);
    if (v->pass >= 0 && !mics_schedule_ends_pass(v->schedule, &v->list->steps[v->pass]))
        return validator_broken(v, 13, "the computation before it has parts that are missing");
    v->pass = v->index;
    const int32_t unit = v->order[backward ? forwards + units - 1 - at : at];
    if (at == 0 && v->in_flight[step->in_flight] < 0)
        v->in_flight[step->in_flight] = micro;
    if (v->in_flight[step->in_flight] != micro)
        return validator_broken(v, 4, "its place in flight is another micro-step's");
    if (step->unit != unit || (step->kind == MICS_STEP_BACKWARD) != backward)
        return validator_broken(v, 4, "it is out of order");
    v->passes[micro]++;
    if (at + 1 == forwards + v->backwards)
        v->in_flight[step->in_flight] = -1;
    return MICS_OK;
}

// ---- 12: ledgers ----

// Nodes are alike: the first one's ranks send what those of any other do.
static mics_status check_traffic(const validator *v)
{
    const mics_mesh *mesh = &v->schedule->spec.mesh;
    mics_bytes sums[MICS_STEP_KINDS][MICS_STAGES] = {{{0, 0}}};
    for (int32_t i = 0; i < v->list->count; i++) {
        const mics_step *step = &v->list->steps[i];
        mics_bytes *sum = &sums[step->kind][step->stage];
        const int64_t times =
            step->period > 0 ? mics_schedule_period(v->schedule) / step->period : 1;
        for (int32_t rank = 0; rank < mesh->ranks_per_node; rank++) {
            const mics_bytes sent = mics_schedule_step_bytes(v->schedule, step, rank);
            sum->intra += times * sent.intra;
            sum->inter += times * sent.inter;
        }
    }
    const int64_t nodes = mics_mesh_world(mesh) / mesh->ranks_per_node;
    for (int i = 0; i < MICS_STEP_KINDS * MICS_STAGES; i++) {
        const mics_bytes *sum = &sums[i / MICS_STAGES][i % MICS_STAGES];
        const mics_bytes *told =
            &v->schedule->kind_bytes[v->phase][i / MICS_STAGES][i % MICS_STAGES];
        if (told->intra != nodes * sum->intra || told->inter != nodes * sum->inter)
            return validator_broken(v, 12, "the ledger has other bytes than its steps send");
    }
    return MICS_OK;
}

static mics_status check_room(const validator *v, const mics_step *step)
{
    const mics_schedule *schedule = v->schedule;
    if (!mics_step_is_comm(step))
        return MICS_OK;
    const size_t coalesced = step_coalesced_bytes(schedule, step);
    if (coalesced > schedule->coalesced_bytes[step->stream] ||
        step_compressed_bytes(schedule, step) + schedule->coalesced_bytes[step->stream] >
            schedule->message_bytes[step->stream])
        return validator_broken(v, 12, "what it compresses or coalesces has no room");
    return MICS_OK;
}

// ---- 21: changes ----

static mics_status check_coded(const validator *v, const mics_step *step)
{
    const bool inter = step->kind == MICS_STEP_PARAM_SYNC && step->stream == MICS_STREAM_INTER;
    const bool tells = step->kind == MICS_STEP_SIZES;
    if ((inter && mics_schedule_codes(v->schedule, step->unit)) != step->coded)
        return validator_broken(v, 21, "changes are sent where numbers are, or the reverse");
    if (!tells && !step->coded)
        return MICS_OK;
    if (v->index + tells < 1 || v->index + tells >= v->list->count)
        return validator_broken(v, 21, "sizes and parameter sync are no pair");
    const mics_step *sync = step + tells, *sizes = sync - 1;
    if (sizes->kind != MICS_STEP_SIZES || !sync->coded || sizes->axis != MICS_AXIS_ISLAND ||
        sizes->unit != sync->unit || sizes->member_at != sync->member_at ||
        sizes->member_count != sync->member_count || sizes->stream != sync->stream ||
        memcmp(sizes->wait, sync->wait, sizeof sync->wait) != 0)
        return validator_broken(v, 21, "sizes are not those of the parameter sync behind them");
    return MICS_OK;
}

// ---- the walk ----

static mics_status check_kind(validator *v, const mics_step *step)
{
    switch (step->kind) {
    case MICS_STEP_REPLICA_GATHER:
        return check_replica_gather(v, step);
    case MICS_STEP_SIZES:
        return MICS_OK;
    case MICS_STEP_PARAM_SYNC:
        return check_sync(v, step);
    case MICS_STEP_GATHER:
        return check_gather(v, step);
    case MICS_STEP_FORWARD:
    case MICS_STEP_BACKWARD:
        MICS_TRY(check_pass(v, step));
        MICS_TRY(check_blocks(v, step));
        return check_uses(v, step);
    case MICS_STEP_REDUCE:
        return check_reduce(v, step);
    case MICS_STEP_ALL_TO_ALL:
        return check_all_to_all(v, step);
    case MICS_STEP_SCATTER:
    case MICS_STEP_REPLICA_SCATTER:
        return check_hop(v, step);
    case MICS_STEP_NORM:
        return check_norm(v);
    case MICS_STEP_AGREE:
        return check_agree(v);
    case MICS_STEP_MOMENTUM:
        return check_momentum(v, step);
    case MICS_STEP_MOMENTUM_TO_OWNERS:
    case MICS_STEP_ORTHOGONALISE:
    case MICS_STEP_MOMENTUM_BACK:
        return check_round_step(v, step);
    case MICS_STEP_STORE:
    case MICS_STEP_FETCH:
        return check_copy(v, step);
    case MICS_STEP_AGREE_WORLD:
        return check_world_agreement(v, step);
    case MICS_STEP_UPDATE:
        return check_update(v, step);
    default:
        return check_meeting(v, step);
    }
}

static mics_status check_step(validator *v)
{
    const mics_step *step = &v->list->steps[v->index];
    const bool agrees = step->kind == MICS_STEP_NORM || step->kind == MICS_STEP_AGREE ||
                        step->kind == MICS_STEP_AGREE_WORLD;
    if (!agrees && (step->unit < 0 || step->unit >= units_of(v)))
        return validator_broken(v, 2, "there is no such unit");
    MICS_TRY(check_waits(v, step));
    MICS_TRY(check_place(v, step));
    MICS_TRY(check_block(v, step));
    MICS_TRY(check_room(v, step));
    if (!mics_step_is_due(step, v->number))
        return MICS_OK;
    MICS_TRY(check_coded(v, step));
    MICS_TRY(check_adopted(v, step));
    MICS_TRY(check_kind(v, step));
    if (step->kind == MICS_STEP_GATHER || computes(step))
        v->readers.newest[step->stream] = v->index;
    return MICS_OK;
}

// The error: which invariant does not hold, and where.
static mics_status check_end(validator *v)
{
    const int32_t micro_steps = is_training(v) ? v->schedule->spec.micro_steps : 1;
    const int32_t passes = is_training(v) ? v->computing - 1 + v->backwards : v->computing;
    v->index = v->list->count - 1;
    for (int32_t micro = 0; micro < micro_steps; micro++) {
        if (v->passes[micro] != passes)
            return validator_broken(v, 4, "a micro-step before it is not complete");
    }
    if (v->pass >= 0 && !mics_schedule_ends_pass(v->schedule, &v->list->steps[v->pass]))
        return validator_broken(v, 13, "the last computation has parts that are missing");
    if (v->agreement < 0)
        return validator_broken(v, 11, "ranks never agree");
    for (int32_t u = 0; is_training(v) && u < units_of(v); u++) {
        if (v->units[u].updated < 0 && mics_schedule_trains(v->schedule, u))
            return validator_broken(v, 11, "a unit is never updated");
    }
    MICS_TRY(check_meetings_end(v));
    return check_traffic(v);
}

static mics_status open_array(const validator *v, int64_t count, size_t bytes, void **array_out)
{
    return mics_alloc(v->schedule->memory, MICS_MEM_HOST, (size_t)count * bytes, array_out);
}

static mics_status open_validator(validator *v)
{
    const mics_schedule *s = v->schedule;
    const int32_t slots = s->param_slot_count + s->grad_slot_count;
    const chain_state none = {.last = -1};
    void *block = NULL;
    v->begun = v->readers = at_the_start;
    v->norm = v->agreement = v->world_agreement = v->round = v->pass = v->exchange = -1;
    MICS_TRY(open_array(v, v->list->count, sizeof *v->known, &block));
    v->known = block;
    MICS_TRY(open_array(v, slots + 1, sizeof *v->params, &block));
    v->params = block;
    v->grads = v->params + s->param_slot_count;
    for (int32_t i = 0; i < slots; i++)
        v->params[i] = (slot_state){.unit = -1, .filled = -1, .used = at_the_start};
    MICS_TRY(open_array(v, units_of(v), sizeof *v->units, &block));
    v->units = block;
    for (int32_t u = 0; u < units_of(v); u++)
        v->units[u] = (unit_state){none, none, none, none, none, 0, -1, -1, {none, none, none}};
    MICS_TRY(open_array(v, units_of(v), sizeof *v->order, &block));
    v->order = block;
    for (int32_t u = 0; u < units_of(v); u++) {
        if (mics_unit_computes(unit_of(v, u)))
            v->order[v->computing++] = u;
        v->backwards += mics_schedule_has_backward(s, u);
    }
    const int32_t blocks = units_of(v) * s->spec.layered_micro_steps;
    MICS_TRY(open_array(v, blocks, sizeof *v->blocks, &block));
    v->blocks = block;
    for (int32_t i = 0; i < blocks; i++)
        v->blocks[i] = (block_state){false, false, -1, -1, -1};
    MICS_TRY(open_array(v, s->spec.micro_steps, sizeof *v->passes, &block));
    v->passes = block;
    MICS_TRY(open_array(v, s->spec.layered_micro_steps, sizeof *v->in_flight, &block));
    v->in_flight = block;
    for (int32_t in_flight = 0; in_flight < s->spec.layered_micro_steps; in_flight++)
        v->in_flight[in_flight] = -1;
    return MICS_OK;
}

// As training step `number` runs it.
static mics_status check_list(const mics_schedule *schedule, mics_phase phase, int64_t number)
{
    validator v = {
        .schedule = schedule, .list = &schedule->lists[phase], .phase = phase, .number = number};
    mics_status status = open_validator(&v);
    for (; status == MICS_OK && v.index < v.list->count; v.index++)
        status = check_step(&v);
    if (status == MICS_OK)
        status = check_end(&v);
    MICS_FREE_ALL(schedule->memory, v.known, v.params, v.units, v.order, v.passes, v.in_flight,
                  v.blocks);
    return status;
}

// Lists in which the units of a window meet, without their states and with them.
static mics_status check_window(const mics_schedule *schedule, int32_t window)
{
    const mics_meeting *meeting = schedule->meetings;
    while (meeting->window != window)
        meeting++;
    const int64_t every = schedule->spec.outer.every;
    const int64_t number = 1 + (meeting->offset > 0 ? meeting->offset : every);
    const int32_t periods = schedule->spec.outer.moments_every;
    MICS_TRY(check_list(schedule, MICS_PHASE_TRAIN, number));
    return periods > 1 ? check_list(schedule, MICS_PHASE_TRAIN, number + (periods - 1) * every)
                       : MICS_OK;
}

mics_status mics_schedule_validate(const mics_schedule *schedule)
{
    MICS_TRY(check_owners(schedule));
    MICS_TRY(check_again(schedule));
    MICS_TRY(check_places(schedule));
    if (!schedule->spec.evaluation_only)
        MICS_TRY(check_list(schedule, MICS_PHASE_TRAIN, 1));
    for (int32_t window = 0; window < mics_schedule_windows(schedule); window++)
        MICS_TRY(check_window(schedule, window));
    return check_list(schedule, MICS_PHASE_EVAL, 1);
}
