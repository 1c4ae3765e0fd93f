// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// OUT/run-id: whose files and whose copies in node memory are a run's. Lines of text:
//
//     0123456789abcdef0123456789abcdef   the ID, drawn anew whenever a run does not resume from
//                                        its copies in node memory, whose names have it
//     folder 1234567                     inode of OUT: another one is a copy of the folder
//     file ../../demo.json               run file, from OUT: so a project that is moved as a whole
//                                        stays the same
//     before fedc...                     earlier IDs, newest first
#ifndef MICS_RUN_IDENTITY_H
#define MICS_RUN_IDENTITY_H

#include "io/checkpoint/node.h"
#include "mics/memory.h"
#include "mics/status.h"

typedef struct mics_run mics_run;

enum { RUN_IDS_BEFORE = 256 };

typedef struct run_identity {
    char id[MICS_NODE_ID_BYTES]; // "": none
    uint64_t folder;             // 0: not known
    char file[4096];             // "": not known
    char before[RUN_IDS_BEFORE][MICS_NODE_ID_BYTES];
    int32_t before_count;
} run_identity;

/* Reads it. What is no ID is warned of, and counts as none.
 *
 * Returns: MICS_OK, also where OUT has none; MICS_ERR_IO; MICS_ERR_MEMORY.
 * Owns:    free with mics_free.
 */
mics_status run_identity_read(mics_memory *memory, const char *out, run_identity **identity_out);

/* Whether OUT was copied from the folder that the file was written in. */
bool run_identity_is_copied(const run_identity *identity, const char *out);

/* Whether an ID is that of the folder's run, or of one that it resumed; "" is of any. */
bool run_identity_has(const run_identity *identity, const char *id);

/* Draws another ID and writes the file; the one before joins the earlier ones, and so does that of
 * the checkpoint that the run resumes from, which may be another run's.
 *
 * from:    that checkpoint's ID; NULL: none.
 * Needs:   OUT locked.
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_MEMORY.
 */
mics_status run_identity_renew(mics_memory *memory, const mics_run *run, const char *from,
                               char id_out[MICS_NODE_ID_BYTES]);

/* Refuses to go on in a folder that is named after the run file, as another one of the same name
 * trained there.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, one line; as run_identity_read.
 */
mics_status run_identity_check_file(mics_memory *memory, const mics_run *run);

#endif
