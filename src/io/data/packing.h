// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Samples of any lengths in rows of one length. Row number n is a pure function of the spec and n.
//
// An epoch visits every sample once, in an order of its own. Without packing each row is one
// sample. With it, so many samples at a time as a window has are put into rows, the longest first,
// each into the row that it fills best (best fit decreasing; Johnson et al., 1974); the rows of a
// window come in an order that the seed gives.
#pragma once

#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct mics_packing mics_packing;

enum { MICS_PACKING_WINDOW = 4096 }; // samples

typedef struct mics_packing_spec {
    const int64_t
        *begins;      // (count + 1), borrowed: where each sample begins in the stream, and the end
    int64_t count;    // samples; >= 1
    int64_t sequence; // tokens of a row
    uint64_t seed;
    int32_t part;    // of a mixture; each has orders of its own
    bool packs;      // else a row is one sample
    bool pairs;      // not packed: begins 2i and 2i + 1 are those of sample i, and it has two rows
    bool drops_long; // samples longer than a row are left out; else a row has their first tokens
} mics_packing_spec;

// What an epoch's rows hold.
typedef struct mics_packing_facts {
    int64_t samples, rows; // of the first epoch; samples: that are not left out
    int64_t tokens;        // in the rows
    int64_t cut, left_out; // samples longer than a row, by drops_long
} mics_packing_facts;

/* Returns: MICS_OK; MICS_ERR_INVALID (all samples are left out); MICS_ERR_MEMORY.
 * Owns:    mics_packing_close. */
mics_status mics_packing_open(mics_memory *memory, const mics_packing_spec *spec,
                              mics_packing **packing_out);
void mics_packing_close(mics_packing *packing);

mics_packing_facts mics_packing_facts_get(const mics_packing *packing);

/* The samples of row `number`, counted from 0 over all epochs, in their order. Of each the row has the
 * first `sequence` tokens at most. The epochs before it are packed once, to know where its own begins.
 *
 * Shapes:  samples_out: (sequence), of which *count_out are filled in.
 * Needs:   number >= 0.
 * Returns: MICS_OK; MICS_ERR_MEMORY.     Threads: any. */
mics_status mics_packing_row(mics_packing *packing, int64_t number, int64_t *samples_out,
                             int64_t *count_out);
