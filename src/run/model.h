// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The model of a run.
#pragma once

#include "run/job.h"

/* Builds the model that a configuration describes: by the builder, or one of ours where that is
 * NULL or has no function.
 *
 * Returns: MICS_OK; as mics_model_from_config, mics_model_finish and the builder.
 * Owns:    close with mics_model_close.
 */
mics_status run_model_build(mics_memory *memory, const mics_model_builder *builder,
                            const mics_json *config, bool ignore_dropout, mics_model **model_out);

/* Reads job->config, from the file that the run names where the program has not described its own
 * model, and builds job->model. Returns: as run_model_build, mics_run_mask_documents; MICS_ERR_IO,
 * MICS_ERR_FORMAT. */
mics_status run_job_build_model(mics_job *job);

/* Keeps the builder of a program's own model, and parses its description. Returns: MICS_OK;
 * MICS_ERR_FORMAT, MICS_ERR_INVALID: it is no object; MICS_ERR_MEMORY. */
mics_status run_job_take_builder(mics_job *job, const mics_job_spec *spec);
