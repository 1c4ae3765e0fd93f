// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "merge.h"
#include "base/free.h"

// The op that adds to what the linear of this weight makes.
static void find_op(const mics_model *model, mics_param_ref ref, run_merge *merge)
{
    const mics_param *weight = mics_model_param(model, ref);
    for (int32_t u = 0; u < model->unit_count; u++) {
        const mics_unit *unit = &model->units[u];
        for (int32_t o = 1; o < unit->op_count; o++) {
            if (unit->ops[o].kind == MICS_OP_LORA &&
                mics_model_param(model, unit->ops[o - 1].params[0]) == weight) {
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
    MICS_FREE_ALL(saved->memory, merge->a, merge->b);
    *merge = (run_merge){0};
}

// What the adapter adds from an input to an output; 0 of outputs without one.
static double added(const run_merge *merge, int64_t out, int64_t in, int64_t inputs)
{
    const mics_lora *lora = &merge->op->lora;
    const float *a = merge->a + in, *b = merge->b;
    double sum = 0;
    for (int32_t i = 0; i < lora->slices; i++) {
        const int64_t row = out - lora->first[i];
        for (int64_t k = 0; row >= 0 && row < lora->count[i] && k < lora->rank; k++)
            sum += (double)b[row * lora->rank + k] * (double)a[k * inputs];
        a += lora->rank * inputs;
        b += lora->rank * lora->count[i];
    }
    return (double)lora->scale * sum;
}

void run_merge_add(const run_merge *merge, const mics_param *param, int64_t begin, int64_t count,
                   float *data)
{
    const int64_t columns = param->shape[1], inputs = param->shape[merge->out_in ? 1 : 0];
    for (int64_t i = 0; merge->op != NULL && i < count; i++) {
        const int64_t row = (begin + i) / columns, column = (begin + i) % columns;
        data[i] = (float)((double)data[i] + added(merge, merge->out_in ? row : column,
                                                  merge->out_in ? column : row, inputs));
    }
}
