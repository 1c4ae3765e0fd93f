// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Copies of a run's state in the memory of its nodes, which outlive its processes: made between steps
// (run.memory_checkpoint_every), or to stop in time (run.grace_s), and taken in place of an older
// checkpoint at the next start.
//
// Each node keeps what its ranks hold, in files of the checkpoint's own format (io/checkpoint/node.h);
// mics_mesh_keep says which rank writes which, and where a partner node keeps a copy too.
//
// Which copies are whose. OUT/run-id holds an ID (identity.h) that the copies' folders have in their
// names. It is drawn anew whenever a run does not go on from its copies, so that none of an attempt
// that was given up is ever taken; what this node then has of the old ID is removed. Where OUT was
// copied, or its newest checkpoint is another run's, the copies are passed over, and stay.
//
// At a start (resume.c) processes tell one another which copies their nodes have and which files
// of those are undamaged, and take the newest that is whole. On each node a folder stands for it: the
// files that it has under second names, of the others the headers. To everything that reads
// checkpoints that is one. Before it is read, nodes get what their ranks need and they lack from
// nodes that have it. Older copies go only once ranks have read what they begin with: if a newer
// checkpoint on disk proves to be damaged, the copy is next.
#ifndef MICS_RUN_NODE_MEMORY_NODE_MEMORY_H
#define MICS_RUN_NODE_MEMORY_NODE_MEMORY_H

#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct mics_job mics_job;
typedef struct run_found_copy run_found_copy;

// A job's; zero before it is opened.
typedef struct run_node_memory {
    char id[33];           // of its copies; "": none yet
    char *root;            // their folder in this node's memory; NULL: not looked for
    run_found_copy *found; // what the run may go on from; NULL: none
    bool taken;            // it does
    bool passed;           // it turned out that it cannot
    int64_t serial;        // of the copies that this run makes
    int32_t slot;          // where the next goes
} run_node_memory;

/* Looks for a whole copy on the nodes that are here, unless `resume` is not "auto", and puts a
 * checkpoint folder together for the newest (run_node_memory_path). What is damaged is passed over
 * with a warning.
 *
 * Needs:   job->run, loaded; before run_job_find_checkpoint.
 * Returns: MICS_OK, also where there is none; MICS_ERR_MEMORY and what a collective returned.
 * Collective: over processes.
 */
mics_status run_node_memory_find(mics_job *job, const char *resume);

/* The same for a run that trains and has to go back: looks for its own copies.
 *
 * Needs:      nothing found before (run_node_forget_found); the comm's time limit is that of files.
 * Returns:    as run_node_memory_find.            Collective: over processes.
 */
mics_status run_node_memory_find_again(mics_job *job);

/* Step of the copy that was found; -1: none, or it was passed over. */
int64_t run_node_memory_step(const mics_job *job);

/* Says whether the run goes on from the copy that was found: the next ones are newer then. */
void run_node_memory_take(mics_job *job, bool takes);

/* The slot that the copy that was found does not lie in. */
int32_t run_node_memory_next_slot(const mics_job *job);

/* The checkpoint folder that stands for the copy; NULL: none was found. */
const char *run_node_memory_path(const mics_job *job);

/* Counts what the run's older copies take as available, in job->budget: new ones take their place. */
void run_node_memory_credit(mics_job *job);

/* Finds, before engines open, whether there is room for the copies to come.
 *
 * Needs:   the schedule.
 * Returns: MICS_OK; MICS_ERR_MEMORY: no room, with what is needed; MICS_ERR_IO. Logged.
 * Collective: over processes.
 */
mics_status run_node_memory_check(mics_job *job);

/* Once engines are filled: what was found is needed no more. Unless the run goes on from it, all older
 * copies are removed, and the ID drawn anew. Makes the folder for the copies to come, if any are due.
 *
 * Needs:   the output folder locked.
 * Returns: MICS_OK; MICS_ERR_IO, MICS_ERR_INVALID, logged.
 * Collective: over processes.
 */
mics_status run_node_memory_begin(mics_job *job);

/* Frees; removes the copies too where `saved`: the state is on disk. */
void run_node_memory_close(mics_job *job, bool saved);

// ---- resume.c, for node_memory.c and rewind.c ----

/* Frees what was found, and removes the folder that stands for it: once engines are filled. The copy
 * itself stays until newer ones replace it, or the state is on disk. */
void run_node_forget_found(mics_job *job);

// ---- notes.c, for node_memory.c ----

/* At a start: warns if the run was stopped with a later step in node memory than it goes on from, and
 * removes the notes that say so. By the first process. */
void run_notes_sweep(const mics_job *job);

/* Removes the notes, as the state is on disk. By the first process. */
void run_notes_clear(const mics_job *job);

// ---- node_memory.c, for copy.c ----

typedef struct run_node_space {
    int64_t bytes;   // for copies, with those that are there
    bool of_machine; // its memory is less than what the file system has free
} run_node_space;

/* What the file system of a folder has for copies, and the machine if it counts. Returns: MICS_OK;
 * MICS_ERR_IO. */
mics_status run_node_space_read(const char *path, bool counts_machine, run_node_space *space_out);

// ---- fetch.c, for restore.c and rewind.c ----

/* Gets from other nodes what this one needs of the copy that was found and lacks, before it is read.
 *
 * Needs:      as run_node_memory_find_again.
 * Returns:    MICS_OK; MICS_ERR_IO, MICS_ERR_FORMAT, MICS_ERR_MEMORY: not alike on all; as a
 *             collective.
 * Collective: over processes.
 */
mics_status run_node_fetch(mics_job *job);

#endif
