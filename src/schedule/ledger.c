// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The memory ledger and the traffic ledger, summed over a schedule.
#include "schedule/ledger.h"
#include "mics/log.h"
#include "mics/size.h"

size_t mics_precision_bytes(mics_precision precision, mics_memory_tag tag)
{
    const bool mixed = precision == MICS_PRECISION_MIXED;
    switch (tag) {
    case MICS_MEM_PARAMS:
    case MICS_MEM_GATHER:
    case MICS_MEM_REDUCE:
    case MICS_MEM_ACTIVATIONS:
        return mixed ? 2 : sizeof(float);
    default:
        return sizeof(float);
    }
}

// ---- memory ----

static void size_workspace(mics_schedule *schedule)
{
    const mics_model *model = schedule->spec.model;
    int64_t most = 0;
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t o = 0; o < model->units[u].op_count; o++) {
            mics_op_cost cost = mics_op_cost_get(model, &model->units[u], &model->units[u].ops[o],
                                                 schedule->spec.batch);
            int64_t need = cost.workspace_forward > cost.workspace_backward
                               ? cost.workspace_forward
                               : cost.workspace_backward;
            if (need > most)
                most = need;
        }
    }
    const int64_t line = MICS_ALIGNMENT / (int64_t)sizeof(float);
    const int64_t tokens = schedule->spec.batch.sequences * schedule->spec.batch.length;
    schedule->workspace_losses = mics_size_round_up(most, line);
    schedule->workspace_elems = schedule->workspace_losses + tokens;
    if (schedule->spec.accelerator) {
        schedule->workspace_sums = mics_size_round_up(schedule->workspace_elems, line);
        schedule->workspace_elems = schedule->workspace_sums + line;
    }
}

static size_t sum_elems(const int64_t *elems, int32_t count)
{
    size_t sum = 0;
    for (int32_t i = 0; i < count; i++)
        sum += (size_t)elems[i];
    return sum;
}

// What one packed collective keeps packed at a time: a block to send and one that comes, or the
// whole buffer where all blocks are gathered. Gathers pack into their slots.
static size_t packed_bytes(const mics_schedule *schedule, const mics_step *step)
{
    const size_t members = (size_t)mics_mesh_group(&schedule->spec.mesh, step->group, 0).size;
    if (step->direct) // what the other members send, at once
        return (members - 1) * step->block_bytes;
    if (!step->packed || step->kind == MICS_STEP_GATHER || step->kind == MICS_STEP_GATHER_ACROSS)
        return 0;
    if (schedule->spec.accelerator && mics_step_is_packed_sum(step)) // and what is sent
        return (2 * members - 1) * step->block_bytes;
    if (!mics_step_kind_sums(step->kind)) // publication, ALL_REDUCE_BACK
        return members * step->block_bytes;
    const size_t back = step->kind == MICS_STEP_ALL_REDUCE
                            ? members * mics_wire_bytes(step->back_wire, step->block_elems)
                            : 0;
    return 2 * step->block_bytes > back ? 2 * step->block_bytes : back;
}

static void take_larger(size_t bytes, size_t *most)
{
    bytes = (size_t)mics_size_round_up((int64_t)bytes, MICS_ALIGNMENT);
    if (bytes > *most)
        *most = bytes;
}

// The message that units share is put together as fp32.
static size_t joined_bytes(const mics_schedule *schedule, const mics_step *step)
{
    const size_t members = (size_t)mics_mesh_group(&schedule->spec.mesh, step->group, 0).size;
    return step->member_count > 0 ? members * (size_t)step->block_elems * sizeof(float) : 0;
}

static void size_packed(mics_schedule *schedule)
{
    size_t packed[MICS_STREAMS] = {0};
    for (int phase = 0; phase < MICS_PHASES; phase++) {
        for (int32_t i = 0; i < schedule->lists[phase].count; i++) {
            const mics_step *step = &schedule->lists[phase].steps[i];
            if (!mics_step_is_comm(step))
                continue;
            take_larger(packed_bytes(schedule, step), &packed[step->stream]);
            take_larger(joined_bytes(schedule, step), &schedule->join_bytes[step->stream]);
        }
    }
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        schedule->wire_bytes[stream] = packed[stream] + schedule->join_bytes[stream];
}

// What rounding to int8 lost of the gradients that a reduction of a unit's second hop sends, which is
// its first as int8. Of units that share a message that of all stands with the first.
static mics_status place_residuals(mics_schedule *schedule)
{
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    const int32_t units = schedule->spec.model->unit_count;
    void *block = NULL;
    MICS_TRY(mics_alloc(schedule->memory, MICS_MEM_HOST, (size_t)units * sizeof(int64_t), &block));
    schedule->residual_at = block;
    for (int32_t u = 0; u < units; u++)
        schedule->residual_at[u] = -1;
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        if (!mics_step_is_packed_sum(step) || step->wire != MICS_WIRE_INT8)
            continue;
        schedule->residual_at[step->unit] = schedule->residual_elems;
        schedule->residual_elems +=
            mics_mesh_group(&schedule->spec.mesh, step->group, 0).size * step->block_elems;
    }
    return MICS_OK;
}

static void sum_memory(mics_schedule *schedule)
{
    const mics_schedule_spec *spec = &schedule->spec;
    const size_t tokens = (size_t)(spec->batch.sequences * spec->batch.length);
    size_t *bytes = schedule->ledger.bytes;
    for (int32_t u = 0; u < spec->model->unit_count; u++) {
        const size_t elems = (size_t)schedule->padded_elems[u];
        const mics_sharding *s = &schedule->sharding[u];
        bytes[MICS_MEM_PARAMS] += elems / (size_t)s->params;
        if (spec->evaluation_only)
            continue;
        bytes[MICS_MEM_GRADS] += elems / (size_t)s->grads;
        bytes[MICS_MEM_OPTIMIZER] += elems / (size_t)s->optimizer;
    }
    bytes[MICS_MEM_GATHER] = sum_elems(schedule->param_slots, schedule->param_slot_count);
    bytes[MICS_MEM_REDUCE] = sum_elems(schedule->grad_slots, schedule->grad_slot_count);
    bytes[MICS_MEM_ACTIVATIONS] = (size_t)schedule->activation_elems;
    bytes[MICS_MEM_WORKSPACE] = (size_t)schedule->workspace_elems;
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++) // so far elements
        bytes[tag] *= tag == MICS_MEM_OPTIMIZER
                          ? (size_t)mics_optimizer_kept_bytes(
                                spec->optimizer, spec->precision == MICS_PRECISION_MIXED)
                          : mics_precision_bytes(spec->precision, (mics_memory_tag)tag);
    bytes[MICS_MEM_COMM] = spec->comm_staging_bytes;
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        bytes[MICS_MEM_WIRE] += schedule->wire_bytes[stream];
    bytes[MICS_MEM_WIRE] += (size_t)schedule->residual_elems * sizeof(float);
    bytes[MICS_MEM_DATA] =
        (size_t)spec->breadth * (spec->accelerator ? 3 : 2) * tokens * sizeof(int32_t);
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++) {
        if (bytes[tag] > 0)
            bytes[tag] = mics_memory_block_bytes(bytes[tag]);
        schedule->ledger.total += bytes[tag];
    }
}

// ---- traffic ----

static int64_t step_exchanges(const mics_schedule *schedule, const mics_step *step, int32_t rank)
{
    if (!mics_step_is_comm(step))
        return 0;
    if (step->library)
        return 1;
    const int32_t size = mics_mesh_group(&schedule->spec.mesh, step->group, rank).size;
    const int32_t rounds =
        step->kind == MICS_STEP_ALL_REDUCE ? 2 : 1; // reduce-scatter, then all-gather
    return rounds * (int64_t)(size - 1);
}

static void add_bytes(mics_bytes *sum, mics_bytes bytes)
{
    sum->intra += bytes.intra;
    sum->inter += bytes.inter;
}

static mics_bytes bytes_to(const mics_mesh *mesh, int32_t rank, int32_t to, int64_t bytes)
{
    const bool near = to / mesh->ranks_per_node == rank / mesh->ranks_per_node;
    return (mics_bytes){.intra = near ? bytes : 0, .inter = near ? 0 : bytes};
}

// Along the ring: all of it goes to the next member.
static mics_bytes ring_bytes(const mics_mesh *mesh, mics_group group, int32_t rank,
                             size_t block_bytes)
{
    const int32_t next = mics_group_rank(group, (group.index + 1) % group.size);
    return bytes_to(mesh, rank, next, (group.size - 1) * (int64_t)block_bytes);
}

// One block to each other member.
static mics_bytes direct_bytes(const mics_mesh *mesh, mics_group group, int32_t rank,
                               size_t block_bytes)
{
    mics_bytes sum = {0, 0};
    for (int32_t member = 0; member < group.size; member++) {
        if (member != group.index)
            add_bytes(&sum,
                      bytes_to(mesh, rank, mics_group_rank(group, member), (int64_t)block_bytes));
    }
    return sum;
}

mics_bytes mics_schedule_step_bytes(const mics_schedule *schedule, const mics_step *step,
                                    int32_t rank)
{
    const mics_mesh *mesh = &schedule->spec.mesh;
    mics_bytes bytes = {0, 0};
    if (!mics_step_is_comm(step))
        return bytes;
    const mics_group group = mics_mesh_group(mesh, step->group, rank);
    bytes = mics_step_is_packed_sum(step) ? direct_bytes(mesh, group, rank, step->block_bytes)
                                          : ring_bytes(mesh, group, rank, step->block_bytes);
    if (step->kind == MICS_STEP_ALL_REDUCE)
        add_bytes(&bytes, ring_bytes(mesh, group, rank,
                                     mics_wire_bytes(step->back_wire, step->block_elems)));
    return bytes;
}

mics_bytes mics_schedule_rank_bytes(const mics_schedule *schedule, mics_phase phase, int32_t rank)
{
    mics_bytes sum = {0, 0};
    for (int32_t i = 0; i < schedule->lists[phase].count; i++)
        add_bytes(&sum, mics_schedule_step_bytes(schedule, &schedule->lists[phase].steps[i], rank));
    return sum;
}

// Of all ranks, pairs (rank, next member of its ring) and pairs (rank, other member), inside nodes
// and between them.
typedef struct group_links {
    int32_t size; // of one group
    mics_bytes ring, direct;
} group_links;

// Nodes are alike, as a group lies in one or takes whole ones: the first node's, times nodes.
static group_links count_links(const mics_mesh *mesh, mics_group_kind kind)
{
    const int32_t per_node = mesh->ranks_per_node;
    group_links links = {.size = mics_mesh_group(mesh, kind, 0).size};
    for (int32_t rank = 0; rank < per_node; rank++) {
        const mics_group group = mics_mesh_group(mesh, kind, rank);
        const int32_t next = mics_group_rank(group, (group.index + 1) % group.size);
        // Other members on the node: those before, and those behind that the node still holds.
        const int32_t last = mics_group_rank(group, group.size - 1);
        const int32_t end = per_node - 1 < last ? per_node - 1 : last;
        const int32_t near = group.index + (end - rank) / group.stride;
        add_bytes(&links.ring, bytes_to(mesh, rank, next, 1));
        add_bytes(&links.direct, (mics_bytes){near, group.size - 1 - near});
    }
    mics_bytes *const sums[] = {&links.ring, &links.direct};
    for (int i = 0; i < 2; i++) {
        sums[i]->intra *= mesh->ranks / per_node;
        sums[i]->inter *= mesh->ranks / per_node;
    }
    return links;
}

// `total` is what all kinds of a phase have so far: together they stay a number of 63 bits, and so does each.
static mics_status add_times(mics_bytes *sum, double *total, mics_bytes links, int64_t rounds,
                             size_t block_bytes)
{
    const double bytes = (double)rounds * (double)block_bytes;
    *total += ((double)links.intra + (double)links.inter) * bytes;
    if (*total >= 9e18)
        return mics_fail(
            MICS_ERR_INVALID,
            "a step over %lld links sends more than 9e18 bytes, which are not counted; "
            "use a smaller model, or fewer ranks or micro-steps",
            (long long)(links.intra + links.inter));
    sum->intra += links.intra * rounds * (int64_t)block_bytes;
    sum->inter += links.inter * rounds * (int64_t)block_bytes;
    return MICS_OK;
}

// All groups of a kind have the same size, so a step's bytes are one rank's times the links.
static mics_status sum_traffic(mics_schedule *schedule)
{
    group_links links[MICS_GROUP_KINDS];
    for (int kind = 0; kind < MICS_GROUP_KINDS; kind++)
        links[kind] = count_links(&schedule->spec.mesh, (mics_group_kind)kind);
    for (int phase = 0; phase < MICS_PHASES; phase++) {
        double total = 0;
        for (int32_t i = 0; i < schedule->lists[phase].count; i++) {
            const mics_step *step = &schedule->lists[phase].steps[i];
            if (!mics_step_is_comm(step))
                continue;
            const int64_t rounds = links[step->group].size - 1;
            mics_bytes *sum = &schedule->kind_bytes[phase][step->kind];
            if (mics_step_is_packed_sum(step))
                MICS_TRY(add_times(sum, &total, links[step->group].direct, 1, step->block_bytes));
            else
                MICS_TRY(
                    add_times(sum, &total, links[step->group].ring, rounds, step->block_bytes));
            if (step->kind == MICS_STEP_ALL_REDUCE)
                MICS_TRY(add_times(sum, &total, links[step->group].ring, rounds,
                                   mics_wire_bytes(step->back_wire, step->block_elems)));
        }
    }
    return MICS_OK;
}

mics_bytes mics_schedule_kind_bytes(const mics_schedule *schedule, mics_phase phase,
                                    mics_step_kind kind)
{
    return schedule->kind_bytes[phase][kind];
}

mics_bytes mics_schedule_all_bytes(const mics_schedule *schedule, mics_phase phase)
{
    mics_bytes sum = {0, 0};
    for (int kind = 0; kind < MICS_STEP_KINDS; kind++)
        add_bytes(&sum, schedule->kind_bytes[phase][kind]);
    return sum;
}

const int32_t *mics_schedule_members(const mics_schedule *schedule, const mics_step *step,
                                     int32_t *count_out)
{
    *count_out = step->member_count > 0 ? step->member_count : step->unit >= 0 ? 1 : 0;
    return step->member_count > 0 ? schedule->members + step->member_at : &step->unit;
}

int64_t mics_schedule_rank_exchanges(const mics_schedule *schedule, mics_phase phase, int32_t rank)
{
    int64_t exchanges = 0;
    for (int32_t i = 0; i < schedule->lists[phase].count; i++)
        exchanges += step_exchanges(schedule, &schedule->lists[phase].steps[i], rank);
    return exchanges;
}

double mics_schedule_flops(const mics_schedule *schedule, mics_phase phase)
{
    double flops = 0;
    for (int32_t i = 0; i < schedule->lists[phase].count; i++)
        flops += schedule->lists[phase].steps[i].flops;
    return flops;
}

// A packed sum is sent to each member directly. Where a group has several members a node, that can
// be more between nodes than a ring of whole numbers; nobody who asks for fewer bytes wants that.
static mics_status check_packed(const mics_schedule *schedule)
{
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    const mics_step *packed[MICS_STEP_KINDS] = {NULL};
    double packed_bytes[MICS_STEP_KINDS] = {0}, whole_bytes[MICS_STEP_KINDS] = {0};
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        mics_step whole = *step;
        if (!mics_step_is_packed_sum(step))
            continue;
        whole.packed = whole.direct = false;
        whole.wire = whole.back_wire = MICS_WIRE_FP32;
        whole.block_bytes = mics_wire_bytes(MICS_WIRE_FP32, whole.block_elems);
        packed[step->kind] = step;
        for (int32_t rank = 0; rank < schedule->spec.mesh.ranks_per_node; rank++) {
            packed_bytes[step->kind] +=
                (double)mics_schedule_step_bytes(schedule, step, rank).inter;
            whole_bytes[step->kind] +=
                (double)mics_schedule_step_bytes(schedule, &whole, rank).inter;
        }
    }
    for (int kind = 0; kind < MICS_STEP_KINDS; kind++) {
        if (packed[kind] != NULL && packed_bytes[kind] > whole_bytes[kind])
            return mics_fail(
                MICS_ERR_INVALID,
                "%s as %s would send %.2f times fp32's bytes between nodes: its %s has "
                "several members a node, and each sends to every other one; take two stages, "
                "fp32 there, or shard over whole nodes (%d)",
                mics_step_kind_text((mics_step_kind)kind), mics_wire_text(packed[kind]->wire),
                packed_bytes[kind] / whole_bytes[kind], mics_group_kind_text(packed[kind]->group),
                (int)schedule->spec.mesh.ranks_per_node);
    }
    return MICS_OK;
}

mics_status fill_ledger(mics_schedule *schedule)
{
    size_workspace(schedule);
    size_packed(schedule);
    MICS_TRY(place_residuals(schedule));
    sum_memory(schedule);
    MICS_TRY(sum_traffic(schedule));
    return check_packed(schedule);
}
