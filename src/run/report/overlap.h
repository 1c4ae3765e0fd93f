// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How well the streams of a step overlapped, from how long each of its entries took.
#pragma once

#include "mics/core/schedule.h"

// All in microseconds.
typedef struct run_overlap {
    double busy[MICS_STREAMS]; // in entries of the stream
    // What nothing can hide: the collectives that the first computation waits for (the longest
    // chain, or those of one stream), and the longest chain of reductions that depend on the last
    // backward.
    double first_gather, last_reduce;
    // What the entries would take at least, however collectives were ordered, each waiting for what
    // it waits for: the longest chain, or the work of a stream from some entry on, and what must be
    // before and behind it.
    double ideal;
} run_overlap;

// Of one entry. Filled by run_overlap_sum.
typedef struct run_chain {
    double earliest, behind; // when it can begin; the longest chain of what waits for its end
    int32_t needed_by; // of a collective: the first computation that cannot be before it; or none
    // Of a computation: by stream, the collectives that it is the first to need, and when one of
    // them can begin.
    double work[MICS_STREAMS], from[MICS_STREAMS];
} run_chain;

/* Sums up one run of a training list. Needs: took_us[i]: how long entry i took; scratch: as many.
 * Pure. */
void run_overlap_sum(const mics_step_list *list, const double *took_us, run_chain *scratch,
                     run_overlap *overlap_out);

// How long computation waited, in microseconds, by what it waited for.
typedef struct run_exposed {
    double gather; // parameters: gathers and parameter sync
    double reduce; // first hop
    double second_hop;
    double agree;
    double meeting; // of islands, and their agreement
    double copy;    // of activations, from and to host memory: no communication
} run_exposed;

/* Sums up mics_step_result.exposed_us.       Pure. */
run_exposed run_exposed_sum(const double exposed_us[MICS_STEP_KINDS]);
