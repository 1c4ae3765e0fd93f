// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Units of experts: parameters alone, one expert's behind the other's.
#include "mics/builder.h"
#include "mics/log.h"
#include "model/internal.h"

int32_t mics_model_experts(mics_model *model, const char *name, int32_t count)
{
    if (model_newest(model) == NULL)
        return -1;
    if (count < 1) {
        model->status = mics_fail(MICS_ERR_INVALID, "unit %s: %d experts", name, (int)count);
        return -1;
    }
    mics_unit *unit = model_append_unit(model, name);
    if (unit == NULL)
        return -1;
    unit->experts = count;
    model->adds_experts = true;
    return model->unit_count - 1;
}

void mics_model_experts_end(mics_model *model)
{
    model->adds_experts = false;
}

// A unit of experts is used by the ops of the computing unit before it, which name the parameters of
// its first expert.
mics_status model_check_expert(const mics_model *model, const mics_op_def *def, const mics_op *op,
                               mics_param_ref ref)
{
    const mics_unit *unit = &model->units[ref.unit];
    if (unit->experts == 0)
        return MICS_OK;
    if (unit->experts != op->experts.count || unit->param_count % unit->experts != 0 ||
        ref.param >= mics_unit_expert_params(unit))
        return mics_fail(MICS_ERR_INVALID,
                         "%s: %s is no parameter of the first of %d experts, each of which has "
                         "the same ones",
                         def->name, unit->params[ref.param].name, (int)op->experts.count);
    return MICS_OK;
}

static bool are_alike(const mics_param *a, const mics_param *b)
{
    return a->dims == b->dims && a->shape[0] == b->shape[0] && a->shape[1] == b->shape[1] &&
           a->init == b->init && a->init_std == b->init_std && a->decay == b->decay;
}

mics_status model_check_experts(const mics_model *model, const mics_unit *unit)
{
    if (unit == &model->units[model->unit_count - 1])
        return mics_fail(MICS_ERR_INVALID,
                         "unit %s: the last unit may have no experts; let another one have the "
                         "loss",
                         unit->name);
    bool alike = unit->param_count > 0 && unit->param_count % unit->experts == 0;
    for (int32_t p = 0; alike && p < unit->param_count; p++)
        alike = are_alike(&unit->params[p], &unit->params[p % mics_unit_expert_params(unit)]);
    return alike ? MICS_OK
                 : mics_fail(MICS_ERR_INVALID,
                             "unit %s: its %d experts have other parameters than each other",
                             unit->name, (int)unit->experts);
}
