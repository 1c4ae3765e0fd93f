// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A run's model: one that a config.json describes, or one that the program builds by itself.
#include "run/model.h"
#include "job.h"
#include "mics/builder.h"
#include "mics/log.h"
#include "model/from_config.h"
#include "run/hf_metadata.h"
#include <string.h>

mics_status run_model_build(mics_memory *memory, const mics_model_builder *builder,
                            const mics_json *config, bool ignore_dropout, mics_model **model_out)
{
    mics_model *model = NULL;
    if (builder == NULL || builder->build == NULL)
        return mics_model_from_config(memory, config, ignore_dropout, model_out);
    MICS_TRY(builder->build(builder->ctx, memory, config, &model));
    if (model == NULL)
        return mics_fail(MICS_ERR_INVALID, "%s: the builder returned MICS_OK and no model",
                         mics_json_name(config));
    const mics_status status = mics_model_finish(model);
    if (status == MICS_OK)
        *model_out = model;
    else
        mics_model_close(model);
    return status;
}

mics_status run_job_take_builder(mics_job *job, const mics_job_spec *spec)
{
    static const char name[] = "mics_job_spec.description";
    if (spec->builder.build == NULL)
        return MICS_OK;
    if (spec->description == NULL)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: missing; a model that a program builds needs one, "
                         "such as {\"model_type\": \"mine\"}",
                         name);
    job->builder = spec->builder;
    MICS_TRY(mics_json_parse(job->memory, name, spec->description, strlen(spec->description),
                             &job->config));
    if (mics_json_type_of(mics_json_root(job->config)) != MICS_JSON_OBJECT)
        return mics_fail(MICS_ERR_INVALID, "%s: must be an object", name);
    return MICS_OK;
}

mics_status run_job_build_model(mics_job *job)
{
    const mics_run *run = job->run;
    if (job->builder.build == NULL) {
        if (strcmp(run->model_config, MICS_MODEL_OF_PROGRAM) == 0)
            return mics_json_fail(run->json, "model.config", MICS_ERR_UNSUPPORTED,
                                  "the model was built by a program's own code "
                                  "(mics_job_spec.builder); only that program can train it");
        MICS_TRY(mics_json_load(job->memory, run->model_config, MICS_MODEL_CONFIG_MAX_BYTES,
                                &job->config));
        MICS_TRY(run_hf_metadata_check_reals(job->config));
    }
    MICS_TRY(
        run_model_build(job->memory, &job->builder, job->config, run->ignore_dropout, &job->model));
    MICS_TRY(mics_run_adapt(run, job->model));
    if (run->precision == MICS_RUN_PRECISION_BF16 || run->precision == MICS_RUN_PRECISION_FP16)
        MICS_TRY(mics_run_widen_residual(run, job->model));
    return mics_run_mask_documents(run, job->model);
}
