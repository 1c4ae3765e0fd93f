// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics explain shows of a schedule's collectives, in both of its forms.
#include "explain.h"
#include "mics/memory.h"

const char *cli_step_algorithm(const mics_step *step)
{
    if (step->staged)
        return mics_algorithm_text(MICS_ALGORITHM_TWO_STAGE);
    if (step->library)
        return mics_algorithm_text(MICS_ALGORITHM_LIBRARY);
    if (step->kind == MICS_STEP_GATHER && step->block_bytes == 0)
        return "shared";
    return mics_step_is_packed_sum(step) ? "direct" : mics_algorithm_text(MICS_ALGORITHM_RING);
}

// The group that the stages of a collective together are over.
static mics_group_kind whole_group(const mics_schedule *schedule, const mics_step *step,
                                   int32_t unit)
{
    const mics_sharding *s = &schedule->sharding[unit], *mesh = &schedule->spec.mesh.sharding;
    if (!step->staged)
        return step->group;
    switch (step->kind) {
    case MICS_STEP_GATHER:
        return MICS_GROUP_PARAMS;
    case MICS_STEP_REDUCE:
        return MICS_GROUP_GRADS;
    case MICS_STEP_ALL_REDUCE:
        return MICS_GROUP_REPLICAS;
    case MICS_STEP_SCATTER:
        return s->grads == mesh->grads ? MICS_GROUP_SCATTER : MICS_GROUP_OPTIMIZER;
    default: // PUBLISH
        return s->params == mesh->params ? MICS_GROUP_PUBLISH : MICS_GROUP_OPTIMIZER;
    }
}

static cli_operation row_of(const mics_schedule *schedule, const mics_step *step, int32_t unit)
{
    const int64_t elems = schedule->spec.model->units[unit].elems;
    return (cli_operation){.kind = step->kind,
                           .algorithm = cli_step_algorithm(step),
                           .wire = step->wire,
                           .back_wire =
                               step->kind == MICS_STEP_ALL_REDUCE ? step->back_wire : step->wire,
                           .group = whole_group(schedule, step, unit),
                           .units = 1,
                           .least_elems = elems,
                           .most_elems = elems};
}

static void add_row(cli_operations *rows, const cli_operation *row)
{
    for (int32_t i = 0; i < rows->count; i++) {
        cli_operation *one = &rows->rows[i];
        // Algorithms are named by one text each.
        if (one->kind != row->kind || one->algorithm != row->algorithm || one->wire != row->wire ||
            one->group != row->group)
            continue;
        one->units++;
        one->least_elems =
            row->least_elems < one->least_elems ? row->least_elems : one->least_elems;
        one->most_elems = row->most_elems > one->most_elems ? row->most_elems : one->most_elems;
        return;
    }
    if (rows->count < CLI_OPERATIONS)
        rows->rows[rows->count++] = *row;
}

static void count_whole_units(const mics_schedule *schedule, cli_operations *rows)
{
    const mics_sharding *mesh = &schedule->spec.mesh.sharding;
    for (int32_t u = 0; u < schedule->spec.model->unit_count; u++) {
        const mics_sharding *s = &schedule->sharding[u];
        if (s->params == mesh->params && s->grads == mesh->grads)
            continue;
        rows->whole_units++;
        rows->whole_elems += schedule->spec.model->units[u].elems;
    }
}

mics_status cli_operations_list(mics_memory *memory, const mics_schedule *schedule,
                                cli_operations *rows_out)
{
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    cli_operations rows = {.count = 0};
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST,
                        (size_t)schedule->spec.model->unit_count * sizeof(uint32_t), &block));
    uint32_t *seen = block; // by unit: kinds, as bits
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        int32_t count = 0;
        const int32_t *units = mics_schedule_members(schedule, step, &count);
        if (!mics_step_is_comm(step) || mics_step_kind_whole(step->kind) != step->kind)
            continue;
        for (int32_t u = 0; u < count; u++) {
            if ((seen[units[u]] >> step->kind & 1) != 0)
                continue;
            seen[units[u]] |= UINT32_C(1) << step->kind;
            const cli_operation row = row_of(schedule, step, units[u]);
            add_row(&rows, &row);
        }
    }
    mics_free(memory, block);
    count_whole_units(schedule, &rows);
    *rows_out = rows;
    return MICS_OK;
}
