// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// data.document_mask
#include "config/config.h"

mics_status mics_run_mask_documents(const mics_run *run, mics_model *model)
{
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
