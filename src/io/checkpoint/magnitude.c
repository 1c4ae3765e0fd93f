// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/magnitude.h"
#include "mics/core/checkpoint.h"
#include <math.h>
#include <string.h>

static const float MAX_PARAM = 1e6F, MAX_MOMENT = 1e12F, MAX_GROWTH = 1000;

float mics_magnitude_limit(const char *state, float before)
{
    if (strcmp(state, MICS_STATE_PARAM) != 0)
        return MAX_MOMENT;
    const float grown = before > 0 ? fmaxf(MAX_GROWTH * before, 1) : MAX_PARAM;
    return fminf(grown, MAX_PARAM);
}

// Without their sign, the bits of numbers are in the order of magnitudes, infinity and NaN last.
static int32_t bits_of(float value)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits & INT32_MAX;
}

// The largest of a block is found first, which compilers make vectors of.
int64_t mics_magnitude_find(const float *data, int64_t elems, float limit, float *largest_inout)
{
    enum { BLOCK = 4096 };
    int32_t largest = bits_of(*largest_inout);
    for (int64_t begin = 0; begin < elems; begin += BLOCK) {
        const int64_t end = elems - begin < BLOCK ? elems : begin + BLOCK;
        int32_t of_block = 0;
        for (int64_t i = begin; i < end; i++) {
            const int32_t bits = bits_of(data[i]);
            of_block = bits > of_block ? bits : of_block;
        }
        for (int64_t i = begin; of_block > bits_of(limit) && i < end; i++) {
            if (bits_of(data[i]) > bits_of(limit))
                return i;
        }
        largest = of_block > largest ? of_block : largest;
        memcpy(largest_inout, &largest, sizeof largest);
    }
    return -1;
}

const char *mics_magnitude_text(float value)
{
    return isfinite(value) ? "larger than it can be: a bit flipped, or the run had diverged"
                           : "not finite: the run had diverged";
}
