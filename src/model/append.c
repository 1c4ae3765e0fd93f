// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Growing a model while it is made.
#include "mics/memory.h"
#include "model/internal.h"
#include <stdio.h>

void *model_append(mics_model *model, void **array, int32_t *count, size_t elem_bytes)
{
    if (model->status != MICS_OK)
        return NULL;
    bool full =
        (*count & (*count - 1)) == 0; // 0, 1, 2, 4, 8 ...: capacity is the next power of two
    if (full) {
        size_t capacity = *count == 0 ? 1 : 2 * (size_t)*count;
        model->status = mics_realloc(model->memory, MICS_MEM_HOST, capacity * elem_bytes, array);
        if (model->status != MICS_OK)
            return NULL;
    }
    return (char *)*array + (size_t)(*count)++ * elem_bytes;
}

mics_unit *model_newest(mics_model *model)
{
    int32_t at = model->unit_count - 1;
    while (at >= 0 && !mics_unit_computes(&model->units[at]))
        at--;
    return model->status == MICS_OK && at >= 0 ? &model->units[at] : NULL;
}

mics_unit *model_newest_params(mics_model *model)
{
    mics_unit *unit = model_newest(model);
    return unit != NULL && model->adds_experts ? &model->units[model->unit_count - 1] : unit;
}

mics_unit *model_append_unit(mics_model *model, const char *name)
{
    void *array = model->units;
    mics_unit *unit = model_append(model, &array, &model->unit_count, sizeof *unit);
    model->units = array;
    if (unit == NULL)
        return NULL;
    snprintf(unit->name, sizeof unit->name, "%s", name);
    unit->out = -1;
    return unit;
}
