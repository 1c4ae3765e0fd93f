// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "merge.h"

static bool is_same(mics_param_ref a, mics_param_ref b)
{
    return a.unit == b.unit && a.param == b.param;
}

// The op that adds to what the linear of this weight makes.
static void find_op(const mics_model *model, mics_param_ref ref, run_merge *merge)
{
    for (int32_t u = 0; u < model->unit_count; u++) {
        const mics_unit *unit = &model->units[u];
        for (int32_t o = 1; o < unit->op_count; o++) {
            if (unit->ops[o].kind == MICS_OP_LORA && is_same(unit->ops[o - 1].params[0], ref)) {
                merge->op = &unit->ops[o];
                merge->out_in = unit->ops[o - 1].weight_out_in;
            }
        }
    }
}

static mics_status read_matrix(const mics_saved *saved, mics_param_ref ref, float **data_out)
{
    const mics_param *param = mics_model_param(saved->model, ref);
    MICS_TRY(MICS_NEW(saved->memory, param->elems, data_out));
    return run_saved_read(saved, ref.unit,
                          (mics_range){param->offset, param->offset + param->elems}, *data_out);
}

mics_status run_merge_init(const mics_saved *saved, mics_param_ref ref, run_merge *merge_out)
{
    *merge_out = (run_merge){0};
    find_op(saved->model, ref, merge_out);
    if (merge_out->op == NULL)
        return MICS_OK;
    MICS_TRY(read_matrix(saved, merge_out->op->params[0], &merge_out->a));
    return read_matrix(saved, merge_out->op->params[1], &merge_out->b);
}

void run_merge_fini(const mics_saved *saved, run_merge *merge)
{
    mics_free(saved->memory, merge->a);
    mics_free(saved->memory, merge->b);
    *merge = (run_merge){0};
}

// Row of B that an output has, and the slice that it is of; -1: none.
static int64_t row_of(const mics_lora *lora, int64_t out, int32_t *slice_out)
{
    int64_t before = 0;
    for (int32_t i = 0; i < lora->slices; i++) {
        *slice_out = i;
        if (out >= lora->first[i] && out < lora->first[i] + lora->count[i])
            return before + out - lora->first[i];
        before += lora->count[i];
    }
    return -1;
}

void run_merge_add(const run_merge *merge, const mics_param *param, int64_t begin, int64_t count,
                   float *data)
{
    if (merge->op == NULL)
        return;
    const mics_lora *lora = &merge->op->lora;
    const int64_t columns = param->shape[1], inputs = param->shape[merge->out_in ? 1 : 0];
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = (begin + i) / columns, column = (begin + i) % columns;
        const int64_t in = merge->out_in ? column : row;
        int32_t slice = 0;
        const int64_t of_b = row_of(lora, merge->out_in ? row : column, &slice);
        if (of_b < 0)
            continue;
        const float *a = merge->a + slice * lora->rank * inputs + in;
        const float *b = merge->b + of_b * lora->rank;
        double sum = 0;
        for (int64_t k = 0; k < lora->rank; k++)
            sum += (double)b[k] * (double)a[k * inputs];
        data[i] = (float)((double)data[i] + (double)lora->scale * sum);
    }
}
