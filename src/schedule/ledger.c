// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The memory ledger and the traffic ledger, summed over a schedule.
#include "schedule/ledger.h"
#include "base/size.h"
#include "mics/core/ledger.h"
#include "mics/log.h"
#include "schedule/rules.h"

size_t mics_precision_bytes(mics_precision precision, mics_memory_tag tag)
{
    const bool mixed = precision == MICS_PRECISION_MIXED;
    switch (tag) {
    case MICS_MEM_PARAMS:
    case MICS_MEM_GATHER:
    case MICS_MEM_REDUCE:
    case MICS_MEM_ACTIVATIONS:
    case MICS_MEM_OFFLOAD:
        return mixed ? 2 : sizeof(float);
    default:
        return sizeof(float);
    }
}

bool mics_schedule_rounds_sums(const mics_schedule_spec *spec)
{
    const bool alone = spec->mesh.ranks == 1;
    return spec->precision == MICS_PRECISION_MIXED && (alone || spec->mesh.sharding.grads == 1) &&
           ((alone && spec->micro_steps == 1) || spec->rounded_sums) &&
           mics_optimizer_def_get(spec->optimizer)->matrix_workspace == NULL;
}

size_t mics_schedule_sum_bytes(const mics_schedule_spec *spec)
{
    return mics_schedule_rounds_sums(spec) ? 2 : sizeof(float);
}

// ---- memory ----

// Floats that the largest matrix takes that is made orthogonal.
static int64_t matrix_workspace(const mics_schedule *schedule)
{
    int64_t most = 0;
    for (int32_t m = 0; m < schedule->matrix_at[schedule->spec.model->unit_count]; m++) {
        const mics_matrix *matrix = &schedule->matrices[m];
        const int64_t need =
            mics_optimizer_workspace(schedule->spec.optimizer, matrix->rows, matrix->columns);
        most = need > most ? need : most;
    }
    return most;
}

// Floats of the states that an update has in fp32 at a time, where they are held in fewer bits.
static int64_t state_workspace(const mics_schedule *schedule)
{
    const mics_schedule_spec *spec = &schedule->spec;
    const int64_t part = mics_state_part_elems(spec->accelerator);
    int64_t most = 0;
    if (spec->evaluation_only || spec->state_dtype == MICS_STATE_FP32)
        return 0;
    for (int32_t u = 0; u < spec->model->unit_count; u++) {
        const mics_unit *unit = &spec->model->units[u];
        most = !unit->frozen && unit->elems > most ? unit->elems : most;
    }
    most = mics_size_round_up(most, MICS_STATE_BLOCK);
    return mics_optimizer_def_get(spec->optimizer)->states * (most < part ? most : part);
}

// The largest of an op or a matrix, floats.
static int64_t op_workspace(const mics_schedule *schedule)
{
    const mics_model *model = schedule->spec.model;
    const int64_t states = state_workspace(schedule), matrices = matrix_workspace(schedule);
    int64_t most = states > matrices ? states : matrices;
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
    return most;
}

static int64_t momentum_elems(const mics_schedule *schedule)
{
    int64_t most = 0;
    for (int32_t u = 0; u < schedule->spec.model->unit_count; u++) {
        const int64_t need =
            mics_schedule_round_elems(schedule->padded_elems[u], schedule->sharding[u].optimizer);
        most = schedule->rounds[u].count > 0 && need > most ? need : most;
    }
    return most;
}

static bool has_pairs(const mics_schedule *schedule)
{
    return schedule->spec.preference.kind != MICS_PREFERENCE_NONE;
}

static void size_workspace(mics_schedule *schedule)
{
    const mics_schedule *like = schedule->spec.like;
    const int64_t line = MICS_ALIGNMENT / (int64_t)sizeof(float);
    const int64_t tokens = schedule->spec.batch.sequences * schedule->spec.batch.length;
    schedule->workspace_losses =
        like != NULL ? like->workspace_losses : mics_size_round_up(op_workspace(schedule), line);
    schedule->workspace_elems = schedule->workspace_losses + (has_pairs(schedule) ? 2 : 1) * tokens;
    schedule->momentum_elems = momentum_elems(schedule);
    if (schedule->spec.accelerator) {
        schedule->workspace_sums = mics_size_round_up(schedule->workspace_elems, line);
        schedule->workspace_elems = schedule->workspace_sums + 2 * line;
    }
}

static size_t sum_elems(const int64_t *elems, int32_t count)
{
    size_t sum = 0;
    for (int32_t i = 0; i < count; i++)
        sum += (size_t)elems[i];
    return sum;
}

static mics_group step_group(const mics_schedule *schedule, const mics_step *step, int32_t rank)
{
    return mics_mesh_group(&schedule->spec.mesh, step->axis, mics_step_scope(step), rank);
}

int64_t mics_schedule_sum_chunk(const mics_schedule_spec *spec, int64_t elems)
{
    const int64_t most = spec->sum_chunk_elems > 0 ? spec->sum_chunk_elems : (int64_t)1 << 26;
    return elems < most ? elems : most;
}

// Bytes of compressed numbers that one collective holds at a time: a block that it sends and one
// that it receives, or the whole buffer where it gathers all blocks. Gathers compress into their
// slots.
size_t step_compressed_bytes(const mics_schedule *schedule, const mics_step *step)
{
    const bool compressed = step->dtype.sent != step->dtype.held;
    const bool direct = step->algorithm == MICS_ALGORITHM_DIRECT;
    if (step->coded) // a change that is passed on, and the next one
        return 2 * step->block_bytes;
    if ((!compressed && !direct) || mics_step_exchanges(step))
        return 0;
    const size_t members = (size_t)step_group(schedule, step, 0).size;
    if (!compressed) // what the other members send, at once
        return (members - 1) *
               mics_comm_dtype_bytes(step->dtype.sent,
                                     mics_schedule_sum_chunk(&schedule->spec, step->block_elems));
    if (step->kind == MICS_STEP_GATHER)
        return 0;
    if (schedule->spec.accelerator && direct) // and what is sent
        return (2 * members - 1) * step->block_bytes;
    return (direct ? 2 : members) * step->block_bytes; // not direct: parameter sync, replica gather
}

static void take_larger(size_t bytes, size_t *most)
{
    bytes = (size_t)mics_size_round_up((int64_t)bytes, MICS_ALIGNMENT);
    if (bytes > *most)
        *most = bytes;
}

// The message that units share is put together as fp32.
size_t step_coalesced_bytes(const mics_schedule *schedule, const mics_step *step)
{
    if (step->member_count == 0)
        return 0;
    return (size_t)step_group(schedule, step, 0).size * (size_t)step->block_elems * sizeof(float);
}

static void size_messages(mics_schedule *schedule)
{
    size_t compressed[MICS_STREAMS] = {0};
    for (int phase = 0; phase < MICS_PHASES; phase++) {
        for (int32_t i = 0; i < schedule->lists[phase].count; i++) {
            const mics_step *step = &schedule->lists[phase].steps[i];
            if (!mics_step_is_comm(step))
                continue;
            take_larger(step_compressed_bytes(schedule, step), &compressed[step->stream]);
            take_larger(step_coalesced_bytes(schedule, step),
                        &schedule->coalesced_bytes[step->stream]);
        }
    }
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        schedule->message_bytes[stream] = compressed[stream] + schedule->coalesced_bytes[stream];
}

// Places the residuals of error feedback: what rounding to int8 lost of the gradients that the
// first reduction in int8 of a unit's second hop sends. The first unit of a shared message has the
// residuals of all its units.
static mics_status place_residuals(mics_schedule *schedule)
{
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    const int32_t units = schedule->spec.model->unit_count;
    MICS_TRY(MICS_NEW(schedule->memory, units, &schedule->residual_at));
    for (int32_t u = 0; u < units; u++)
        schedule->residual_at[u] = -1;
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        if (step->algorithm != MICS_ALGORITHM_DIRECT || step->dtype.sent != MICS_COMM_INT8 ||
            mics_step_meets(step))
            continue;
        schedule->residual_at[step->unit] = schedule->residual_elems;
        schedule->residual_elems += step_group(schedule, step, 0).size * step->block_elems;
    }
    return MICS_OK;
}

// Copies in node memory. Of a rank: two of its part of the state, one of which is whole at any time,
// and as much again where it keeps a part of another node's (mics_mesh_keep). Each state of a unit
// has a checksum a MiB, and stands on a boundary of its own; the rest of the files is some KiB
// (assumed: 64, names of 100 bytes).
static size_t node_copies(const mics_mesh *mesh)
{
    return mics_mesh_keep(mesh, 0).to >= 0 ? 4 : 2;
}

size_t mics_schedule_node_file_bytes(const mics_mesh *mesh)
{
    static const size_t FILE_BYTES = 64 << 10;
    return node_copies(mesh) * FILE_BYTES;
}

static size_t node_state_bytes(int64_t padded_elems, size_t kept)
{
    static const size_t CHUNK = 1 << 20, HASH = 8;
    const size_t bytes = ((size_t)padded_elems + kept - 1) / kept * sizeof(float);
    return bytes + (bytes / CHUNK + 1) * HASH + 2 * (size_t)MICS_ALIGNMENT;
}

size_t mics_schedule_node_unit_bytes(const mics_mesh *mesh, mics_optimizer_kind optimizer,
                                     int64_t padded_elems, int32_t owners)
{
    static const size_t UNIT_BYTES = 256;
    const size_t states = 1 + (size_t)mics_optimizer_def_get(optimizer)->states;
    const size_t kept = (size_t)owners * (size_t)mics_mesh_keep(mesh, 0).parts;
    size_t bytes = UNIT_BYTES + states * node_state_bytes(padded_elems, kept);
    if (mesh->islands > 1) // the anchor and its momentum, of which no rank has what another has
        bytes += UNIT_BYTES + 2 * node_state_bytes(padded_elems, kept * (size_t)mesh->islands);
    return node_copies(mesh) * bytes;
}

size_t mics_schedule_node_bytes(const mics_schedule *schedule)
{
    const mics_schedule_spec *spec = &schedule->spec;
    size_t bytes = mics_schedule_node_file_bytes(&spec->mesh);
    for (int32_t u = 0; u < spec->model->unit_count; u++) {
        if (mics_schedule_trains(schedule, u))
            bytes += mics_schedule_node_unit_bytes(&spec->mesh, spec->optimizer,
                                                   schedule->padded_elems[u],
                                                   schedule->sharding[u].optimizer);
    }
    return bytes;
}

static void lay_out_data(mics_schedule *schedule)
{
    const mics_schedule_spec *spec = &schedule->spec;
    const int64_t tokens = spec->batch.sequences * spec->batch.length;
    schedule->data_segments = (spec->accelerator ? 4 : 2) * tokens;
    const int64_t segments = (spec->mesh.sequence > 1 ? 1 + spec->mesh.sequence : 1) * tokens;
    schedule->data_references =
        schedule->data_segments + (mics_model_reads_segments(spec->model) ? segments : 0);
    schedule->data_draw =
        schedule->data_references + (has_pairs(schedule) ? spec->batch.sequences : 0);
    schedule->data_elems = schedule->data_draw;
    if (spec->model->masks > 0)
        schedule->data_elems += (int64_t)(sizeof(mics_dropout_draw) / sizeof(int32_t));
}

static void sum_memory(mics_schedule *schedule)
{
    const mics_schedule_spec *spec = &schedule->spec;
    size_t *bytes = schedule->ledger.bytes;
    for (int32_t u = 0; u < spec->model->unit_count; u++) {
        const size_t elems = (size_t)schedule->padded_elems[u];
        const mics_sharding *s = &schedule->sharding[u];
        bytes[MICS_MEM_PARAMS] += elems / (size_t)s->params;
        if (spec->evaluation_only || !mics_schedule_trains(schedule, u))
            continue;
        bytes[MICS_MEM_GRADS] += elems / (size_t)s->grads * mics_schedule_sum_bytes(spec);
        bytes[MICS_MEM_OPTIMIZER] += mics_optimizer_kept_bytes(
            spec->optimizer, spec->state_dtype, spec->precision == MICS_PRECISION_MIXED,
            schedule->padded_elems[u] / s->optimizer);
    }
    bytes[MICS_MEM_GATHER] = sum_elems(schedule->param_slots, schedule->param_slot_count);
    bytes[MICS_MEM_REDUCE] = sum_elems(schedule->grad_slots, schedule->grad_slot_count);
    bytes[MICS_MEM_ACTIVATIONS] = (size_t)schedule->activation_elems;
    bytes[MICS_MEM_OFFLOAD] = (size_t)(spec->layered_micro_steps * schedule->offload_elems);
    bytes[MICS_MEM_OUTER] = (size_t)schedule->outer_elems;
    bytes[MICS_MEM_WORKSPACE] = (size_t)schedule->workspace_elems;
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++) // so far elements
        bytes[tag] *= tag == MICS_MEM_OPTIMIZER || tag == MICS_MEM_GRADS
                          ? 1
                          : mics_precision_bytes(spec->precision, (mics_memory_tag)tag);
    bytes[MICS_MEM_COMM] = spec->comm_staging_bytes;
    // A GPU's memory holds none of it.
    if (spec->node_memory && !spec->accelerator && !spec->evaluation_only)
        bytes[MICS_MEM_NODE] = mics_schedule_node_bytes(schedule);
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        bytes[MICS_MEM_MESSAGES] += schedule->message_bytes[stream];
    bytes[MICS_MEM_MESSAGES] +=
        (size_t)(schedule->residual_elems + schedule->momentum_elems) * sizeof(float);
    bytes[MICS_MEM_DATA] =
        (size_t)(spec->layered_micro_steps * schedule->data_elems) * sizeof(int32_t);
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++) {
        if (bytes[tag] > 0)
            bytes[tag] = mics_memory_block_bytes(bytes[tag]);
        schedule->ledger.total += tag != MICS_MEM_OFFLOAD ? bytes[tag] : 0;
    }
}

// ---- traffic ----

static void add_bytes(mics_bytes *sum, mics_bytes bytes)
{
    sum->intra += bytes.intra;
    sum->inter += bytes.inter;
}

static mics_bytes bytes_to(const mics_mesh *mesh, int32_t rank, int32_t to, int64_t bytes)
{
    const bool intra = to / mesh->ranks_per_node == rank / mesh->ranks_per_node;
    return (mics_bytes){.intra = intra ? bytes : 0, .inter = intra ? 0 : bytes};
}

// Along the ring: all of it goes to the next member.
static mics_bytes ring_bytes(const mics_mesh *mesh, mics_group group, int32_t rank,
                             size_t block_bytes)
{
    const int32_t next = mics_group_rank(group, (group.index + 1) % group.size);
    return bytes_to(mesh, rank, next, (group.size - 1) * (int64_t)block_bytes);
}

// A direct sum sends one block to each other member.
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

// A message a round.
static mics_bytes doubling_bytes(const mics_mesh *mesh, mics_group group, int32_t rank,
                                 size_t block_bytes)
{
    mics_bytes sum = {0, 0};
    for (int32_t have = 1; have < group.size;) {
        const mics_doubling round = mics_group_doubling(group, mesh->ranks_per_node, have);
        add_bytes(&sum, bytes_to(mesh, rank, mics_group_rank(group, round.to),
                                 round.blocks * (int64_t)block_bytes));
        have += round.blocks;
    }
    return sum;
}

mics_bytes mics_schedule_step_bytes(const mics_schedule *schedule, const mics_step *step,
                                    int32_t rank)
{
    const mics_mesh *mesh = &schedule->spec.mesh;
    if (!mics_step_is_comm(step))
        return (mics_bytes){0, 0};
    const mics_group group = step_group(schedule, step, rank);
    switch (step->algorithm) {
    case MICS_ALGORITHM_DIRECT:
        return direct_bytes(mesh, group, rank, step->block_bytes);
    case MICS_ALGORITHM_DOUBLING:
        return doubling_bytes(mesh, group, rank, step->block_bytes);
    default:
        return ring_bytes(mesh, group, rank, step->block_bytes);
    }
}

static mics_bytes list_bytes(const mics_schedule *schedule, mics_phase phase, int32_t rank,
                             int64_t number)
{
    mics_bytes sum = {0, 0};
    for (int32_t i = 0; i < schedule->lists[phase].count; i++) {
        const mics_step *step = &schedule->lists[phase].steps[i];
        if (mics_step_is_due(step, number))
            add_bytes(&sum, mics_schedule_step_bytes(schedule, step, rank));
    }
    return sum;
}

// In the first training step nothing meets.
mics_bytes mics_schedule_rank_bytes(const mics_schedule *schedule, mics_phase phase, int32_t rank)
{
    return list_bytes(schedule, phase, rank, 1);
}

mics_bytes mics_schedule_rank_bytes_in(const mics_schedule *schedule, int32_t rank, int64_t number)
{
    return list_bytes(schedule, MICS_PHASE_TRAIN, rank, number);
}

// Of all ranks, inside nodes and between them: pairs (rank, next member of its ring), pairs (rank,
// other member), and blocks sent by doubling.
typedef struct group_links {
    int32_t size; // of one group
    mics_bytes ring, direct, doubling;
} group_links;

// A group lies in a node or takes whole ones, with as many members on each: the last member of a node
// goes on to another one, and ranks are alike otherwise.
static group_links count_links(const mics_mesh *mesh, mics_group_axis axis, mics_group_scope scope)
{
    const mics_group group = mics_mesh_group(mesh, axis, scope, 0);
    const int64_t ranks = mics_mesh_world(mesh),
                  on_node = mics_group_on_node(group, mesh->ranks_per_node);
    const int64_t leaving = group.size > on_node ? ranks / on_node : 0;
    const int64_t nodes = group.size / on_node;
    return (group_links){
        .size = group.size,
        .ring = {.intra = ranks - leaving, .inter = leaving},
        .direct = {.intra = ranks * (on_node - 1), .inter = ranks * (group.size - on_node)},
        .doubling = {.intra = ranks * (group.size - nodes), .inter = ranks * (nodes - 1)}};
}

// `total` is what all kinds of a phase have so far: together they stay a number of 63 bits, and so
// does each.
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

static mics_status add_step_bytes(mics_schedule *schedule, mics_phase phase, const mics_step *step,
                                  const group_links *links, double *total)
{
    mics_bytes *sum = &schedule->kind_bytes[phase][step->kind][step->stage];
    const int64_t times = step->period > 0 ? mics_schedule_period(schedule) / step->period : 1;
    switch (step->algorithm) {
    case MICS_ALGORITHM_DIRECT:
        return add_times(sum, total, links->direct, times, step->block_bytes);
    case MICS_ALGORITHM_DOUBLING:
        return add_times(sum, total, links->doubling, times, step->block_bytes);
    default:
        return add_times(sum, total, links->ring, times * (links->size - 1), step->block_bytes);
    }
}

// All groups of a kind have the same size, so a step's bytes are one rank's times the links.
static mics_status sum_traffic(mics_schedule *schedule)
{
    group_links links[MICS_AXES][MICS_SCOPES];
    for (int axis = 0; axis < MICS_AXES; axis++) {
        for (int scope = 0; scope < MICS_SCOPES; scope++)
            links[axis][scope] =
                count_links(&schedule->spec.mesh, (mics_group_axis)axis, (mics_group_scope)scope);
    }
    for (int phase = 0; phase < MICS_PHASES; phase++) {
        double total = 0;
        for (int32_t i = 0; i < schedule->lists[phase].count; i++) {
            const mics_step *step = &schedule->lists[phase].steps[i];
            if (mics_step_is_comm(step))
                MICS_TRY(add_step_bytes(schedule, (mics_phase)phase, step,
                                        &links[step->axis][mics_step_scope(step)], &total));
        }
    }
    return MICS_OK;
}

mics_bytes mics_schedule_kind_bytes(const mics_schedule *schedule, mics_phase phase,
                                    mics_step_kind kind, mics_step_stage stage)
{
    return schedule->kind_bytes[phase][kind][stage];
}

static mics_bytes kinds_bytes(const mics_schedule *schedule, mics_phase phase, bool meet)
{
    mics_bytes sum = {0, 0};
    for (int kind = 0; kind < MICS_STEP_KINDS; kind++) {
        const bool meets = mics_step_meets(&(mics_step){.kind = (mics_step_kind)kind});
        for (int stage = 0; stage < MICS_STAGES && meets == meet; stage++)
            add_bytes(&sum, schedule->kind_bytes[phase][kind][stage]);
    }
    return sum;
}

mics_bytes mics_schedule_all_bytes(const mics_schedule *schedule, mics_phase phase)
{
    return kinds_bytes(schedule, phase, false);
}

mics_bytes mics_schedule_meeting_bytes(const mics_schedule *schedule)
{
    return kinds_bytes(schedule, MICS_PHASE_TRAIN, true);
}

const int32_t *mics_schedule_members(const mics_schedule *schedule, const mics_step *step,
                                     int32_t *count_out)
{
    *count_out = step->member_count > 0 ? step->member_count : step->unit >= 0 ? 1 : 0;
    return step->member_count > 0 ? schedule->members + step->member_at : &step->unit;
}

double mics_schedule_flops(const mics_schedule *schedule, mics_phase phase)
{
    double flops = 0;
    for (int32_t i = 0; i < schedule->lists[phase].count; i++)
        flops += schedule->lists[phase].steps[i].flops;
    return flops;
}

// Inter-node bytes of steps that sum directly, and of rings of fp32 in their place. Gathers of such
// sums count with them.
typedef struct direct_sums {
    const mics_step *step; // the newest that sums; NULL: none
    double direct_bytes, ring_bytes;
} direct_sums;

// Of a node's ranks.
static double inter_bytes(const mics_schedule *schedule, const mics_step *step)
{
    const mics_mesh *mesh = &schedule->spec.mesh;
    const group_links links = count_links(mesh, step->axis, mics_step_scope(step));
    const int64_t blocks = step->algorithm == MICS_ALGORITHM_DIRECT
                               ? links.direct.inter
                               : links.ring.inter * (links.size - 1);
    const int64_t of_node = blocks / (mics_mesh_world(mesh) / mesh->ranks_per_node);
    return (double)of_node * (double)step->block_bytes;
}

// Of one kind and stage.
static void add_direct(const mics_schedule *schedule, const mics_step *step, direct_sums *sums)
{
    mics_step ring = *step;
    if (mics_step_sums(step))
        sums->step = step;
    ring.algorithm = MICS_ALGORITHM_RING;
    ring.dtype = (mics_step_dtypes){MICS_COMM_FP32, MICS_COMM_FP32};
    ring.block_bytes = mics_comm_dtype_bytes(MICS_COMM_FP32, ring.block_elems);
    sums->direct_bytes += inter_bytes(schedule, step);
    sums->ring_bytes += inter_bytes(schedule, &ring);
}

// Where a group has several members a node, a direct sum can be more between nodes than a ring of
// whole numbers; nobody who asks for fewer bytes wants that.
static mics_status check_direct(const mics_schedule *schedule)
{
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    direct_sums all[MICS_STEP_KINDS][MICS_STAGES] = {{{.step = NULL}}};
    for (int32_t i = 0; i < list->count && !schedule->spec.any_rounding; i++) {
        const mics_step *step = &list->steps[i];
        if (step->kind == MICS_STEP_REPLICA_GATHER)
            add_direct(schedule, step, &all[MICS_STEP_REPLICA_SCATTER][step->stage]);
        else if (step->kind == MICS_STEP_MEET_GATHER && step->dtype.sent != step->dtype.held)
            add_direct(schedule, step, &all[MICS_STEP_MEET_SCATTER][step->stage]);
        else if (step->algorithm == MICS_ALGORITHM_DIRECT && mics_step_sums(step))
            add_direct(schedule, step, &all[step->kind][step->stage]);
    }
    for (int i = 0; i < MICS_STEP_KINDS * MICS_STAGES; i++) {
        const direct_sums *sums = &all[i / MICS_STAGES][i % MICS_STAGES];
        const mics_step *step = sums->step;
        if (step != NULL && sums->direct_bytes > sums->ring_bytes)
            return mics_fail(
                MICS_ERR_INVALID,
                "%s as %s would send %.2f times fp32's bytes between nodes: its %s has "
                "several members a node, and each sends to every other one; take two stages, "
                "fp32 there, or shard over whole nodes (%d)",
                mics_step_text(step->kind, step->stage), mics_comm_dtype_text(step->dtype.sent),
                sums->direct_bytes / sums->ring_bytes,
                mics_group_text(step->axis, mics_step_scope(step)),
                (int)schedule->spec.mesh.ranks_per_node);
    }
    return MICS_OK;
}

mics_status fill_ledger(mics_schedule *schedule)
{
    size_workspace(schedule);
    size_messages(schedule);
    MICS_TRY(place_residuals(schedule));
    lay_out_data(schedule);
    sum_memory(schedule);
    MICS_TRY(sum_traffic(schedule));
    return check_direct(schedule);
}
