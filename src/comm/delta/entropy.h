// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The measure of the coding, for its test and its bench alone.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

/* Entropy of the changes from `old` to `now` (elems; bf16), given the old exponent: bits a number. NAN without memory. */
static inline double delta_entropy(const uint16_t *old, const uint16_t *now, int64_t elems)
{
    enum { EXPONENTS = 256, CHANGES = 1 << 16 };
    uint32_t(*counts)[CHANGES] = calloc(EXPONENTS, sizeof *counts);
    double bits = 0;
    if (counts == NULL)
        return NAN;
    for (int64_t i = 0; i < elems; i++)
        counts[old[i] >> 7 & 255][(uint16_t)(now[i] - old[i])]++;
    for (int32_t exponent = 0; exponent < EXPONENTS; exponent++) {
        double total = 0;
        for (int32_t change = 0; change < CHANGES; change++)
            total += counts[exponent][change];
        for (int32_t change = 0; change < CHANGES; change++)
            if (counts[exponent][change] > 0)
                bits -= counts[exponent][change] * log2(counts[exponent][change] / total);
    }
    free(counts);
    return bits / (double)elems;
}
