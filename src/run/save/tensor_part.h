// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows of a tensor in files, and where they lie in a unit's flat buffer.
#pragma once

#include "mics/core/checkpoint.h"
#include "mics/core/mesh.h"
#include "mics/model.h"

/* What of `range` of the unit's buffer is one part of a parameter; empty where nothing is. */
mics_range run_part_in(const mics_param *param, const mics_param_part *part, mics_range range);

/* The element of the tensor that stands at `at` of the unit's buffer. */
static inline int64_t run_part_elem(const mics_param *param, const mics_param_part *part,
                                    int64_t at)
{
    return (part->tensor_row - part->row) * mics_param_row_elems(param) + at - param->offset;
}

/* Reads what of `range` is the part, from the tensor that the reader calls `name`.
 *
 * Shapes:  data_out: (range.end - range.begin).
 * Returns: MICS_OK; what reading returned.
 */
mics_status run_part_read(const mics_param *param, const mics_param_part *part,
                          const mics_safetensors *reader, const char *name, mics_range range,
                          float *data_out);
