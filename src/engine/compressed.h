// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Collectives whose numbers travel in fewer bits than they are held in.
#pragma once

#include "engine/internal.h"

static inline bool is_compressed(const mics_step *step)
{
    return step->dtype.sent != step->dtype.held;
}

/* To bf16 and back, where the stream's memory is. */
void compress(const mics_engine *engine, const mics_step *step, void *compressed,
              const float *values, int64_t elems);
void decompress(const mics_engine *engine, const mics_step *step, float *values,
                const void *compressed, int64_t elems);

/* A direct sum of the blocks of `buffer`: into this rank's block, the others stay. */
mics_status sum_compressed(const mics_engine *engine, const mics_step *step,
                           const mics_comm_group *over, float *buffer);

/* Gathers compressed copies of the blocks of `buffer` and decompresses them into it; this rank's own
 * block only if `own_too`, which makes it as rounded as the others have it. */
mics_status gather_compressed(const mics_engine *engine, const mics_step *step,
                              const mics_comm_group *over, float *buffer, bool own_too);
