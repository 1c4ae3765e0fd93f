// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// From an op of a model to the sizes that its descriptor answers for.
#include "mics/model.h"

mics_op_shape mics_op_shape_get(const mics_model *model, const mics_unit *unit, const mics_op *op,
                                mics_batch batch)
{
    const mics_op_def *def = mics_op_def_get(op->kind);
    const int32_t ranks = def->whole_sequences && op->sequence_ranks > 0 ? op->sequence_ranks : 1;
    mics_op_shape shape = {.op = op,
                           .unit = unit->name,
                           .B = batch.sequences,
                           .T = ranks * batch.length,
                           .N = ranks * batch.sequences * batch.length,
                           .out = op->out >= 0 ? unit->tensors[op->out].width / ranks : 0,
                           .heads = op->heads,
                           .rotary = op->rotary >= 0 && op->rotary < model->rotary_count
                                         ? &model->rotaries[op->rotary]
                                         : NULL,
                           .vocab = model->vocab,
                           .positions = model->positions,
                           .threads = batch.threads,
                           .accelerator_bytes = batch.accelerator_bytes,
                           .cpu_bf16 = batch.cpu_bf16,
                           .library = batch.library && batch.accelerator_bytes > 0};
    for (int i = 0; i < MICS_OP_INPUTS; i++) {
        shape.in[i] = op->in[i] >= 0 ? unit->tensors[op->in[i]].width / ranks : 0;
        shape.in_fixed[i] = op->in[i] >= 0 && unit->tensors[op->in[i]].fixed;
    }
    shape.routes = op->routes >= 0 && op->expert_ranks > 0 ? unit->tensors[op->routes].width : 0;
    for (int p = 0; p < MICS_OP_PARAMS; p++) {
        if (op->params[p].unit < 0)
            continue;
        const mics_param *param = mics_model_param(model, op->params[p]);
        shape.params_fixed[p] = param->frozen;
        shape.params[p][0] = param->shape[0];
        shape.params[p][1] = param->dims > 1 ? param->shape[1] : 0;
    }
    const int32_t first = op->params[0].unit;
    if (first >= 0 && model->units[first].experts > 0)
        shape.expert_elems = mics_unit_expert_elems(&model->units[first]);
    return shape;
}

mics_op_cost mics_op_cost_get(const mics_model *model, const mics_unit *unit, const mics_op *op,
                              mics_batch batch)
{
    const mics_op_shape shape = mics_op_shape_get(model, unit, op, batch);
    return mics_op_def_get(op->kind)->cost(&shape);
}
