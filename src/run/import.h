// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where a run's first parameters come from: safetensors, or a checkpoint; each rank reads only the
// ranges that it holds.
#ifndef MICS_RUN_IMPORT_H
#define MICS_RUN_IMPORT_H

#include "mics/checkpoint.h"
#include "mics/engine.h"
#include "mics/model.h"
#include "mics/optimizer.h"
#include "mics/status.h"

/* Checks that a safetensors model has every parameter in the right shape and nothing else, but for
 * attention masks and a tied LM head, which are no parameters.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, naming the tensor.        Threads: any.
 */
mics_status run_import_check(const mics_model *model, const mics_safetensors *reader,
                             const char *path);

/* Fills this rank's parameter shards. Needs run_import_check to have passed. Returns: MICS_OK; what
 * reading returned. Threads: any, on one reader. Collective: no. */
mics_status run_import_fill(const mics_model *model, const mics_safetensors *reader,
                            mics_engine *engine);

/* Fills this rank's optimizer shards, moments included; then call mics_engine_param_sync. Returns:
 * MICS_OK; what reading returned; MICS_ERR_NUMERIC: a number is not finite. Threads: any, on one
 * checkpoint. Collective: no. */
mics_status run_resume_fill(const mics_model *model, const mics_optimizer *optimizer,
                            const mics_checkpoint *checkpoint, mics_engine *engine);

/* Fills this rank's parameter shards from a checkpoint, without the optimizer's state. Returns:
 * MICS_OK; what reading returned. Threads: any, on one checkpoint. Collective: no. */
mics_status run_params_fill(const mics_model *model, const mics_checkpoint *checkpoint,
                            mics_engine *engine);

#endif
