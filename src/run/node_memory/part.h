// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Parts of a copy in node memory, and the manifest that makes a node's parts count.
#pragma once

#include "run/save/saver.h"

/* Writes a part of this rank's shard into the copy's folder.
 * Returns: as mics_node_write; MICS_ERR_NUMERIC. Logged. */
mics_status run_copy_write(const run_save *save, const mics_keep *keep, mics_node_file *file_out);

/* Makes the copy of this rank's node count, with what save->copy.reports says is there.
 * Returns: MICS_OK; MICS_ERR_IO, MICS_ERR_MEMORY, logged. */
mics_status run_copy_write_manifest(const run_save *save);
