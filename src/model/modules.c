// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Modules that families share, with torch's names of their parameters.
#include "mics/builder.h"
#include "model/builders.h"
#include <stdio.h>

enum { MODULE_BYTES = 2 * MICS_NAME_BYTES }; // a longer name is refused where it is added

mics_param_ref model_vector(mics_model *model, const char *module, const char *name, int64_t elems,
                            mics_init_kind init)
{
    char full[MODULE_BYTES];
    snprintf(full, sizeof full, "%s.%s", module, name);
    return mics_model_add_param(model, full,
                                &(mics_param_spec){.dims = 1, .shape = {elems}, .init = init});
}

mics_param_ref model_matrix(mics_model *model, const char *module, int64_t rows, int64_t cols,
                            double std)
{
    char full[MODULE_BYTES];
    snprintf(full, sizeof full, "%s.weight", module);
    return mics_model_add_param(model, full,
                                &(mics_param_spec){.dims = 2,
                                                   .shape = {rows, cols},
                                                   .init = MICS_INIT_NORMAL,
                                                   .init_std = std,
                                                   .decay = true});
}

int32_t model_layernorm(mics_model *model, const char *layer, const char *name, int32_t in,
                        int64_t width, double eps)
{
    char module[MODULE_BYTES];
    snprintf(module, sizeof module, "%s.%s", layer, name);
    mics_param_ref weight = model_vector(model, module, "weight", width, MICS_INIT_ONES);
    mics_param_ref bias = model_vector(model, module, "bias", width, MICS_INIT_ZEROS);
    return mics_op_layernorm(model, in, weight, bias, (float)eps);
}

int32_t model_dropout(mics_model *model, int32_t in, float dropout)
{
    return dropout > 0 ? mics_op_dropout(model, in, dropout) : in;
}

int32_t model_linear(mics_model *model, const char *layer, const char *name, int32_t in,
                     const model_linear_spec *spec)
{
    char module[MODULE_BYTES];
    const int64_t rows = spec->weight_out_in ? spec->outputs : spec->inputs;
    const int64_t cols = spec->weight_out_in ? spec->inputs : spec->outputs;
    snprintf(module, sizeof module, "%s.%s", layer, name);
    mics_param_ref weight = model_matrix(model, module, rows, cols, spec->std);
    mics_param_ref bias = mics_param_none();
    if (spec->bias)
        bias = model_vector(model, module, "bias", spec->outputs, MICS_INIT_ZEROS);
    return mics_op_linear(model, in, weight, bias, spec->weight_out_in);
}
