// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Weights with what an adapter adds to them.
#pragma once

#include "saved.h"

// The adapter of one weight.
typedef struct run_merge {
    const mics_op *op; // NULL: it has none
    bool out_in;       // rows of the weight are its outputs
    float *a, *b;      // both matrices
} run_merge;

/* Reads the adapter of a parameter, if it has one.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY; as run_saved_read.
 * Owns:    run_merge_fini, also after a failure.
 */
mics_status run_merge_init(const mics_saved *saved, mics_param_ref ref, run_merge *merge_out);
void run_merge_fini(const mics_saved *saved, run_merge *merge);

/* Adds scale x B A to elements [begin, begin + count) of the parameter, in double precision, rounded once.
 *
 * Shapes:  data: (count).
 */
void run_merge_add(const run_merge *merge, const mics_param *param, int64_t begin, int64_t count,
                   float *data);
