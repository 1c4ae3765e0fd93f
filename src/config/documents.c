// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What keys change in a model: data.document_mask, run.residual_dtype.
#include "config/config.h"
#include "mics/builder.h"
#include <string.h>

mics_status mics_run_mask_documents(const mics_run *run, mics_model *model)
{
    if (run->rows && !model->masked) { // what is padding is of no segment
        mics_model_set_segments(model);
        mics_model_restart_positions(model);
        return MICS_OK;
    }
    if (mics_run_length(run, model->positions) % run->sequence != 0)
        mics_model_set_segments(model); // behind a sequence is padding, which is of no segment
    if (!run->document_mask)
        return MICS_OK;
    if (model->masked)
        return mics_json_fail(run->json, "data.document_mask", MICS_ERR_UNSUPPORTED,
                              "is for models that continue a text, and %s is an encoder; leave the "
                              "key out",
                              run->model_config);
    mics_model_set_segments(model);
    return MICS_OK;
}

mics_status mics_run_widen_residual(const mics_run *run, mics_model *model)
{
    return strcmp(run->residual_dtype, "fp32") == 0 ? mics_model_widen_residual(model) : MICS_OK;
}
