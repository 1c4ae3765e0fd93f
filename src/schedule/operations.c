// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The collectives of a schedule over units, alike ones together.
#include "mics/core/ledger.h"
#include "mics/core/schedule.h"
#include "schedule/rules.h"

const char *mics_step_algorithm_text(const mics_step *step)
{
    return mics_algorithm_text(step->stage == MICS_STAGE_WHOLE ? step->algorithm
                                                               : MICS_ALGORITHM_TWO_STAGE);
}

// The stage that stands for a collective: of a gather the last, of a sum the inter-node one.
static bool stands_for_all(const mics_step *step)
{
    return step->stage == MICS_STAGE_WHOLE ||
           step->stage == (mics_step_sums(step) ? MICS_STAGE_INTER : MICS_STAGE_INTRA);
}

static mics_operation row_of(const mics_schedule *schedule, const mics_step *step, int32_t unit)
{
    const int64_t elems = schedule->spec.model->units[unit].elems;
    return (mics_operation){.kind = step->kind,
                            .algorithm = mics_step_algorithm_text(step),
                            .dtype = step->dtype.sent,
                            .coded = step->kind == MICS_STEP_PARAM_SYNC &&
                                     mics_schedule_codes(schedule, unit),
                            .axis = step->axis,
                            .units = 1,
                            .min_elems = elems,
                            .max_elems = elems};
}

static void add_row(mics_operations *rows, const mics_operation *row)
{
    for (int32_t i = 0; i < rows->count; i++) {
        mics_operation *one = &rows->rows[i];
        // Algorithms are named by one text each.
        if (one->kind != row->kind || one->algorithm != row->algorithm ||
            one->dtype != row->dtype || one->coded != row->coded || one->axis != row->axis)
            continue;
        one->units++;
        one->min_elems = row->min_elems < one->min_elems ? row->min_elems : one->min_elems;
        one->max_elems = row->max_elems > one->max_elems ? row->max_elems : one->max_elems;
        return;
    }
    if (rows->count < MICS_MAX_OPERATIONS)
        rows->rows[rows->count++] = *row;
}

static void count_whole_units(const mics_schedule *schedule, mics_operations *rows)
{
    const mics_sharding *mesh = &schedule->spec.mesh.sharding;
    for (int32_t u = 0; u < schedule->spec.model->unit_count; u++) {
        const mics_sharding *s = &schedule->sharding[u];
        const int32_t experts = schedule->experts[u];
        if (s->params * experts == mesh->params && s->grads * experts == mesh->grads)
            continue;
        rows->whole_units++;
        rows->whole_elems += schedule->spec.model->units[u].elems;
    }
}

mics_status mics_schedule_operations(mics_memory *memory, const mics_schedule *schedule,
                                     mics_operations *operations_out)
{
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    mics_operations rows = {.count = 0};
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST,
                        (size_t)schedule->spec.model->unit_count * sizeof(uint32_t), &block));
    uint32_t *seen = block; // by unit: kinds, as bits
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        int32_t count = 0;
        const int32_t *units = mics_schedule_members(schedule, step, &count);
        if (!mics_step_is_comm(step) || !stands_for_all(step) || step->kind == MICS_STEP_SIZES)
            continue;
        for (int32_t u = 0; u < count; u++) {
            if ((seen[units[u]] >> step->kind & 1) != 0)
                continue;
            seen[units[u]] |= UINT32_C(1) << step->kind;
            const mics_operation row = row_of(schedule, step, units[u]);
            add_row(&rows, &row);
        }
    }
    mics_free(memory, block);
    count_whole_units(schedule, &rows);
    *operations_out = rows;
    return MICS_OK;
}
