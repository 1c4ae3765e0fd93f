// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The memory ledger and the traffic ledger, summed over a schedule.
#include "schedule/ledger.h"
#include "mics/size.h"

static const size_t elem_bytes = sizeof(float);

const char *mics_step_kind_text(mics_step_kind kind)
{
    static const char *const texts[MICS_STEP_KINDS] = {
        [MICS_STEP_GATHER_ACROSS] = "gather across",
        [MICS_STEP_REDUCE_INSIDE] = "reduce inside",
        [MICS_STEP_GATHER] = "gather",
        [MICS_STEP_FORWARD] = "forward",
        [MICS_STEP_BACKWARD] = "backward",
        [MICS_STEP_REDUCE] = "reduce",
        [MICS_STEP_SCATTER] = "scatter",
        [MICS_STEP_ALL_REDUCE] = "all-reduce",
        [MICS_STEP_NORM] = "norm",
        [MICS_STEP_AGREE] = "agree",
        [MICS_STEP_UPDATE] = "update",
        [MICS_STEP_PUBLISH] = "publish",
    };
    return (unsigned)kind < MICS_STEP_KINDS ? texts[kind] : "unknown step";
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
    schedule->workspace_losses = mics_size_round_up(most, MICS_ALIGNMENT / (int64_t)elem_bytes);
    schedule->workspace_elems =
        schedule->workspace_losses + schedule->spec.batch.sequences * schedule->spec.batch.length;
}

static size_t sum_bytes(const int64_t *elems, int32_t count)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < count; i++)
        bytes += (size_t)elems[i] * elem_bytes;
    return bytes;
}

static void sum_memory(mics_schedule *schedule)
{
    const mics_schedule_spec *spec = &schedule->spec;
    const mics_sharding *s = &spec->mesh.sharding;
    const size_t model_bytes = sum_bytes(schedule->padded_elems, spec->model->unit_count);
    const size_t tokens = (size_t)(spec->batch.sequences * spec->batch.length);
    size_t *bytes = schedule->ledger.bytes;
    bytes[MICS_MEM_PARAMS] = model_bytes / (size_t)s->params;
    if (!spec->evaluation_only) {
        bytes[MICS_MEM_GRADS] = model_bytes / (size_t)s->grads;
        bytes[MICS_MEM_OPTIMIZER] = 2 * (model_bytes / (size_t)s->optimizer);
    }
    bytes[MICS_MEM_GATHER] = sum_bytes(schedule->param_slots, schedule->param_slot_count);
    bytes[MICS_MEM_REDUCE] = sum_bytes(schedule->grad_slots, schedule->grad_slot_count);
    bytes[MICS_MEM_ACTIVATIONS] = (size_t)schedule->activation_elems * elem_bytes;
    bytes[MICS_MEM_WORKSPACE] = (size_t)schedule->workspace_elems * elem_bytes;
    bytes[MICS_MEM_COMM] = spec->comm_staging_bytes;
    bytes[MICS_MEM_DATA] = 2 * tokens * sizeof(int32_t);
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++) {
        if (bytes[tag] > 0)
            bytes[tag] = mics_memory_block_bytes(bytes[tag]);
        schedule->ledger.total += bytes[tag];
    }
}

// ---- traffic ----

static int64_t step_exchanges(const mics_schedule *schedule, const mics_step *step, int32_t rank)
{
    if (step->stream != MICS_STREAM_COMM)
        return 0;
    const int32_t size = mics_mesh_group(&schedule->spec.mesh, step->group, rank).size;
    const int32_t rounds =
        step->kind == MICS_STEP_ALL_REDUCE ? 2 : 1; // reduce-scatter, then all-gather
    return rounds * (int64_t)(size - 1);
}

mics_bytes mics_schedule_step_bytes(const mics_schedule *schedule, const mics_step *step,
                                    int32_t rank)
{
    mics_bytes bytes = {0, 0};
    if (step->stream != MICS_STREAM_COMM)
        return bytes;
    const mics_mesh *mesh = &schedule->spec.mesh;
    const mics_group group = mics_mesh_group(mesh, step->group, rank);
    const int32_t next = mics_group_rank(group, (group.index + 1) % group.size);
    const int64_t sent = step_exchanges(schedule, step, rank) * (int64_t)step->block_bytes;
    if (next / mesh->ranks_per_node == rank / mesh->ranks_per_node)
        bytes.intra = sent;
    else
        bytes.inter = sent;
    return bytes;
}

static void add_bytes(mics_bytes *sum, mics_bytes bytes)
{
    sum->intra += bytes.intra;
    sum->inter += bytes.inter;
}

mics_bytes mics_schedule_rank_bytes(const mics_schedule *schedule, mics_phase phase, int32_t rank)
{
    mics_bytes sum = {0, 0};
    for (int32_t i = 0; i < schedule->lists[phase].count; i++)
        add_bytes(&sum, mics_schedule_step_bytes(schedule, &schedule->lists[phase].steps[i], rank));
    return sum;
}

// Ranks whose ring neighbour in the groups of one kind is on their own node, and on another.
typedef struct ring_links {
    int64_t intra, inter;
} ring_links;

static ring_links count_links(const mics_mesh *mesh, mics_group_kind kind)
{
    ring_links links = {0, 0};
    for (int32_t rank = 0; rank < mesh->ranks; rank++) {
        const mics_group group = mics_mesh_group(mesh, kind, rank);
        const int32_t next = mics_group_rank(group, (group.index + 1) % group.size);
        if (next / mesh->ranks_per_node == rank / mesh->ranks_per_node)
            links.intra++;
        else
            links.inter++;
    }
    return links;
}

// All groups of a kind have the same size, so a step's bytes are one rank's times the links.
static void sum_traffic(mics_schedule *schedule)
{
    ring_links links[MICS_GROUP_KINDS];
    for (int kind = 0; kind < MICS_GROUP_KINDS; kind++)
        links[kind] = count_links(&schedule->spec.mesh, (mics_group_kind)kind);
    for (int phase = 0; phase < MICS_PHASES; phase++) {
        for (int32_t i = 0; i < schedule->lists[phase].count; i++) {
            const mics_step *step = &schedule->lists[phase].steps[i];
            const int64_t sent = step_exchanges(schedule, step, 0) * (int64_t)step->block_bytes;
            mics_bytes *sum = &schedule->kind_bytes[phase][step->kind];
            sum->intra += sent * links[step->group].intra;
            sum->inter += sent * links[step->group].inter;
        }
    }
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

void fill_ledger(mics_schedule *schedule)
{
    size_workspace(schedule);
    sum_memory(schedule);
    sum_traffic(schedule);
}
