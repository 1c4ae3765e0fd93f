// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Notes that commit a copy in node memory in the middle of a step, when ranks do not communicate: for
// a save to disk that cannot end in time (run.grace_s). They are files of OUT/node-memory, of some
// bytes each, which all nodes see:
//   rank-00003  that rank has written its part: how long it is, and the hash of its header
//   node-00001  that node has all of its parts, and its slot counts
//   whole       all nodes have; from rank 0
// A note is of a step, and may say that its writer failed: no later one of that step says otherwise.
//
// Partner nodes get no copy: where a shard is on one node alone (O = n), losing that node loses this
// copy.
//
// Where a rank does not come, the others commit without it (survivors.c). A note has its writer's
// number for that.
//
// `whole` outlives the run. A start that resumes from another step says so.
#pragma once

#include "run/save/saver.h"

/* Writes the note of a copy: "rank", "node" with a number, or "whole". `bytes` -1: its writer failed.
 * Returns: MICS_OK; MICS_ERR_IO, MICS_ERR_MEMORY, logged. */
mics_status run_note_write(const run_save *copy, const char *what, int32_t number, int64_t bytes,
                           uint64_t hash);

/* Waits for the notes 0 to count - 1; of ranks, copy->copy.reports says what they hold.
 * Returns: MICS_OK; MICS_ERR_PEER: a writer failed; MICS_ERR_TIMEOUT: one has not come for as long as
 *          the others may take, or the rank waits for this. Neither is logged. */
mics_status run_notes_await(run_save *copy, const char *what, int32_t count);

/* Finds which rank has written a note, or the notes 0 to count - 1; -1: none yet, or it failed. Of
 * ranks, copy->copy.reports says what they hold. */
int32_t run_notes_writer(const run_save *copy, const char *what, int32_t number);
void run_notes_survey(const run_save *copy, const char *what, int32_t count, int32_t *writers_out);

/* Commits a copy without the ranks that do not come (survivors.c), once this rank's note is written.
 * Returns: MICS_OK: it counts; MICS_ERR_TIMEOUT: it does not; MICS_ERR_MEMORY. */
mics_status run_survivors_commit(run_save *save);

/* Removes the notes of a rank on a copy that is not to count. */
void run_notes_withdraw(const run_save *copy);
