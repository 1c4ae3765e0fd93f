// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the targets of checkpoints share.
#pragma once

#include "fuzz.h"

/* A manifest with the checksum that its text has, in place of its last line if that is one.
 *
 * Returns: text NULL for an input with a NUL in it.
 * Owns:    free(part.text).
 */
fuzz_part fuzz_seal_manifest(const uint8_t *data, size_t bytes);

/* Verifies a checkpoint folder: nothing is logged, each problem is a line, and one without a problem
 * is one that can be opened (`opened`). */
void fuzz_verify(mics_memory *memory, const char *path, bool opened);
