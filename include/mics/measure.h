// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which algorithm is the fastest for a run's gathers and reductions, by trying them on its links.
//
// A unit's gathers over the partition group can run in one ring, in two stages, or by the
// transport's own algorithm; its reductions over the gradient group in one ring or in two stages.
// What is the fastest depends on links and size, so each is timed as the engine runs it in steady
// state: units that follow each other, and where there are two stages, one unit's behind the
// other's of the next.
#ifndef MICS_MEASURE_H
#define MICS_MEASURE_H

#include "mics/comm.h"
#include "mics/memory.h"
#include "mics/schedule.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mics_measure_op {
    MICS_MEASURE_GATHER, // of parameters, over the partition group
    MICS_MEASURE_REDUCE, // of gradients, over the gradient group
    MICS_MEASURE_OPS
} mics_measure_op;

typedef struct mics_timing {
    bool wanted;       // some unit of the run has this size, and there is something to choose
    int32_t units;     // of the run that have it
    size_t unit_bytes; // the largest of them, on the wire: what is to be timed
    size_t bytes;      // of the whole units timed; another number than unit_bytes where these took
                       // too much time or memory: then the times follow from that size; 0: none
    double us[MICS_ALGORITHMS]; // a unit of `bytes`, on the slowest rank; 0: not timed
} mics_timing;

// Of units of at most `max_bytes` on the wire, a power of two, that are larger than the row's
// before.
typedef struct mics_timing_row {
    size_t max_bytes;
    mics_timing of[MICS_MEASURE_OPS];
} mics_timing_row;

typedef struct mics_timings {
    mics_timing_row rows[MICS_CHOICES]; // max_bytes ascending
    int32_t row_count;                  // 0: nothing to choose
} mics_timings;

// Seconds that the program gives it: less than a step on links that are slow enough to care; on
// others a fraction of them is enough.
enum { MICS_MEASURE_S = 8 };

typedef struct mics_measure_spec {
    mics_memory *memory;           // all are borrowed
    mics_comm *comm;               // of the schedule's mesh; no engine uses it
    const mics_schedule *schedule; // whose units' sizes, groups and wires are measured
    bool library;                  // what mics_measure_library found
    bool reductions_too;           // reductions go by the times; else gathers go first
    double budget_s;               // > 0
    size_t limit_bytes;            // a rank may allocate for it; the same on all ranks
} mics_measure_spec;

/* Prepares the transport's own gathers of the partition group, for measuring and for running them.
 *
 * Returns: MICS_OK, and whether the transport has any (*there_out, the same on all ranks); as
 *          mics_comm_library_open; MICS_ERR_MEMORY.
 * Collective: world.   Blocks: yes.
 */
mics_status mics_measure_library(mics_memory *memory, mics_comm *comm, const mics_mesh *mesh,
                                 bool *there_out);

/* Whether an algorithm is worth timing for a schedule. Two stages need a group of several nodes
 * with several ranks each: elsewhere they are a ring. The library's gathers need a group inside a
 * node: between nodes nobody knows what they send. Packed reductions that would send more between
 * nodes in one stage than whole numbers do are none. Pure.
 */
bool mics_measure_candidate(const mics_schedule *schedule, mics_measure_op op,
                            mics_algorithm algorithm, bool library);

/* What there is to time: one row for each power of two that a unit's size on the wire is rounded up
 * to; where there are more than MICS_CHOICES, the rows that are nearest are made one. Pure.
 *
 * Returns: in *plan_out rows without times; none when nothing is to be chosen.
 */
void mics_measure_plan(const mics_schedule *schedule, bool library, mics_timings *plan_out);

/* Times what *timings has planned, and fills it, alike on all ranks.
 *
 * Rows go in the order of the bytes that the run's units of a row have together, so that the time
 * is spent where a step spends its own. Each is timed on units as large as the run's, unless that
 * would take more than 0.6 of the time that is left, or more memory than there is: then on smaller
 * ones. What one pass over the candidates decides clearly is not repeated. At the end a row that
 * was not timed as it is gets the times of the nearest size that was.
 * One row of each operation that is to be chosen is timed in any case, on as little as 64 KiB.
 * Needs:   as mics_measure_spec says; a plan for the same schedule. Peaks of `memory` rise.
 * Returns: MICS_OK; MICS_ERR_MEMORY, of which the others hear as MICS_ERR_PEER; as
 *          mics_comm_exchange: then the world has ended, though a rank that needed nothing more may
 *          have MICS_OK.
 * Collective: world.   Blocks: yes, for about budget_s.
 */
mics_status mics_measure_run(const mics_measure_spec *spec, mics_timings *timings);

/* Whether links are still as times say that were measured before: the row whose units have the most
 * bytes is timed again by its fastest algorithm. Links count as others when that takes less than
 * half or more than twice as long as it did, each of three times. Times below 5 ms, and of groups
 * inside nodes, say little of links and count as the same.
 *
 * Needs:   as mics_measure_run; *timings the same on all ranks.
 * Returns: MICS_OK and *same_out, alike on all ranks; as mics_measure_run.
 * Collective: world.   Blocks: yes, for up to six such units.
 */
mics_status mics_measure_check(const mics_measure_spec *spec, const mics_timings *timings,
                               bool *same_out);

/* Whether a row's own units were timed; false: its times follow from units of `bytes`. Pure. */
bool mics_measure_is_timed(const mics_timing *timing);

/* The fastest of a timing; but two stages, or the ring where these are no candidate, unless another
 * is at least 3 % faster, so that choices do not depend on noise. TWO_STAGE when nothing was timed.
 * Pure.
 */
mics_algorithm mics_measure_fastest(const mics_timing *timing);

/* The choices that a schedule takes, by mics_measure_fastest; reductions in two stages if not
 * `reductions_too`. Pure.
 *
 * Returns: how many: timings->row_count.
 */
int32_t mics_measure_choose(const mics_timings *timings, bool reductions_too,
                            mics_collective_choice choices_out[MICS_CHOICES]);

/* Bytes that leave one node for others in an operation on a unit of `bytes` on the schedule's wire;
 * 0 when that is the library's secret, or the group lies inside nodes. Pure.
 *
 * Needs:   a candidate of the schedule.
 */
double mics_measure_node_bytes(const mics_schedule *schedule, mics_measure_op op,
                               mics_algorithm algorithm, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
