// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The end of a text that is written while it is drawn: held back as long as it may begin a text that
// ends it (mics_sampling.stops).
#pragma once

#include "mics/memory.h"
#include "mics/run.h"
#include "mics/status.h"
#include <stdio.h>

// Zeroed it holds nothing; end with run_stops_fini.
typedef struct run_stops {
    char *bytes;
    size_t count, capacity;
} run_stops;

/* Appends bytes of the text and writes what cannot belong to a stop. From the first stop on nothing
 * is written: *stopped_out is then true, and nothing is held.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY; MICS_ERR_IO, logged: the stream.
 */
mics_status run_stops_write(run_stops *held, mics_memory *memory, const mics_sampling *sampling,
                            const char *bytes, size_t count, FILE *out, bool *stopped_out);

/* Writes what is held, as the text has ended otherwise.      Returns: as run_stops_write. */
mics_status run_stops_end(run_stops *held, FILE *out);

void run_stops_fini(run_stops *held, mics_memory *memory);
