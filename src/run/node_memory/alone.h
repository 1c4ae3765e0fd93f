// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A copy in node memory that is made in the middle of a step, when ranks have no words for one
// another: for a save to disk that cannot end in time (run.grace_s).
//
// What ranks would say lies in files of OUT/node-memory, of some bytes each, which all nodes see:
//   rank-00003  that rank has written its part: how long it is, and the hash of its header
//   node-00001  that node has all of its parts, and its slot counts
//   whole       all nodes have; from rank 0
// Each says of which step, or that there will be none: then no later file says otherwise.
//
// Partner nodes get no copy: where a shard is on one node alone (O = n), losing that node loses this
// copy.
//
// `whole` outlives the run. A start that does not go on from that step says so.
#ifndef MICS_RUN_NODE_MEMORY_ALONE_H
#define MICS_RUN_NODE_MEMORY_ALONE_H

#include "copy.h"

typedef enum run_alone_state {
    RUN_ALONE_WAITS,
    RUN_ALONE_KEPT,  // whole on all nodes
    RUN_ALONE_FAILED // some rank or node could not
} run_alone_state;

// One rank's; zero before it begins.
typedef struct run_alone {
    run_copying copy;
    int32_t seen; // ranks, and of rank 0 then nodes, whose files were read
    bool failed;  // one of them could not
    bool told;    // the first rank of a node: of its node
} run_alone;

/* Writes this rank's part of the step that was done last, and its file for the others.
 *
 * Needs:   as run_copy_write.     Owns: end with run_alone_end.
 * Returns: MICS_OK, also where the part could not be written, which the others learn and a warning
 *          says; else nobody learns anything: MICS_ERR_IO, MICS_ERR_MEMORY, logged as a warning.
 */
mics_status run_alone_begin(run_alone *alone, run_copies *copies, int64_t step);

/* Does what this rank can do now, without waiting, and says what has become of the copy. */
run_alone_state run_alone_look(run_alone *alone);

/* Frees. */
void run_alone_end(run_alone *alone);

/* For a copy that the ranks made together to stop, which counts: says so in the same place. */
void run_alone_send(run_copies *copies);

/* Gives a copy up that is not to count, kept or not: this rank's share in that. */
void run_alone_drop(const run_copies *copies);

#endif
