// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Dropout masks as mics_dropout_draw (op.h) defines them, by the plain generator: what kernels are
// compared with.
#pragma once

#include "base/rng.h"
#include "mics/op.h"
#include <stddef.h>

/* The draw of a step of a run. */
static inline mics_dropout_draw mask_draw(uint64_t key, uint32_t sequence)
{
    return (mics_dropout_draw){.key = {(uint32_t)key, (uint32_t)(key >> 32)}, .sequence = sequence};
}

/* The 16 random bits of an element. */
static inline uint32_t mask_bits(const mics_dropout_draw *draw, uint32_t mask, int64_t sequence,
                                 int64_t token, int64_t element)
{
    const uint32_t counter[4] = {(uint32_t)(element / 8), (uint32_t)token, mask,
                                 draw->sequence + (uint32_t)sequence};
    uint32_t block[4];
    mics_rng_philox((uint64_t)draw->key[1] << 32 | draw->key[0], counter, block);
    return block[element % 8 / 2] >> (16 * (element % 2)) & 0xffff;
}

/* What dropout multiplies an element by. `sequence`: of the micro-batch. */
static inline double mask_factor(const mics_dropout_draw *draw, float probability, uint32_t mask,
                                 int64_t sequence, int64_t token, int64_t element)
{
    const double rounded = (double)probability * 65536 + 0.5;
    const uint32_t dropped = rounded < 65535 ? (uint32_t)rounded : 65535;
    if (draw == NULL || mask_bits(draw, mask, sequence, token, element) < dropped)
        return draw == NULL ? 1 : 0;
    return 65536 / (65536 - (double)dropped);
}
