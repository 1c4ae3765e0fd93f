// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How well the streams of a step overlapped, from how long each of its entries took.
#ifndef MICS_CLI_OVERLAP_H
#define MICS_CLI_OVERLAP_H

#include "mics/schedule.h"

// All in microseconds.
typedef struct cli_overlap {
    double busy[MICS_STREAMS]; // in entries of the stream
    // What nothing can hide: the collectives that the first computation waits for, one after the
    // other, and the reductions that depend on the last backward.
    double first_gather, last_reduce;
    double ideal; // the busiest stream, and both of these
} cli_overlap;

/* Sums up one run of a training list.
 *
 * Needs:   took_us[i]: how long entry i took; scratch: as many.       Pure.
 */
void cli_overlap_sum(const mics_step_list *list, const double *took_us, double *scratch,
                     cli_overlap *overlap_out);

// How long computation waited, in microseconds, by what it waited for.
typedef struct cli_exposed {
    double gather; // parameters: gathers and publication
    double reduce; // first hop
    double second_hop;
    double agree;
} cli_exposed;

/* Sums up mics_step_result.exposed_us.       Pure. */
cli_exposed cli_exposed_sum(const double exposed_us[MICS_STEP_KINDS]);

#endif
