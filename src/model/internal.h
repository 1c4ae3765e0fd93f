// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the files that make a model share. Private to this module.
#pragma once

#include "mics/builder.h"
#include "mics/model.h"

enum { MODEL_PARAM_ALIGNMENT = MICS_ALIGNMENT / 4 }; // fp32 elements

// What of a model trains: the tensors that it takes. Errors name the key.
typedef struct model_choice {
    const char *key;
    bool (*takes)(void *ctx, const char *tensor);
    void *ctx;
} model_choice;

/* Freezes parameters, those of adapters excepted, that are not taken.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: a part of one is. */
mics_status model_mark_frozen(mics_model *model, const model_choice *choice);

/* Appends a parameter of a spec to a unit.
 * Returns: its index; -1, and model->status says why, on failure. */
int32_t model_append_param(mics_model *model, mics_unit *unit, const char *name,
                           const mics_param_spec *spec);

/* Appends a part to a parameter. */
void model_append_part(mics_model *model, mics_param *param, const mics_param_part *part);

/* Splits units that have frozen parameters and others, once all are marked, and marks units and
 * tensors.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: nothing trains, or only some parameters of experts;
 *          MICS_ERR_MEMORY.
 */
mics_status model_settle_frozen(mics_model *model);

/* Marks tensors that no trained parameter leads to. */
void model_mark_fixed(mics_model *model);

/* Appends a zeroed element to a counted array, doubling it.
 *
 * Returns: NULL, and model->status says why, on failure.     Owns: the model's.
 */
void *model_append(mics_model *model, void **array, int32_t *count, size_t elem_bytes);

/* Appends a unit without anything in it; NULL after a failure. */
mics_unit *model_append_unit(mics_model *model, const char *name);

/* That an op which names a parameter of a unit of experts names one of its first expert. */
mics_status model_check_expert(const mics_model *model, const mics_op_def *def, const mics_op *op,
                               mics_param_ref ref);

/* That the experts of such a unit are alike, and that it is not the last unit. */
mics_status model_check_experts(const mics_model *model, const mics_unit *unit);

/* The unit that ops are added to, and the one that parameters are; NULL before the first one, or
 * after a failure. */
mics_unit *model_newest(mics_model *model);
mics_unit *model_newest_params(mics_model *model);

/* Gives a parameter without parts one, itself, and checks that each of its rows is of one tensor.
 */
mics_status model_finish_parts(mics_model *model, mics_param *param);

/* Whether the rows of each of its tensors lie together, in whatever order. Needs finished parts. */
bool model_has_whole_tensors(const mics_param *param);

/* That no tensor is given by two parameters, or again by one after another tensor.
 *
 * Needs: every parameter's parts finished.
 */
mics_status model_check_tensors(const mics_model *model);
