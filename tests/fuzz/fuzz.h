// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets share. A target is one fuzz_NAME.c with LLVMFuzzerTestOneInput, which hands
// its input to one parser. libFuzzer drives it in `make fuzz`; replay.c in the tests.
//
// What must hold for every input, whatever it is: a call that fails has logged one error line and
// one that succeeds none; lines hold no control characters; no block of memory stays, and the blocks
// never came to more than FUZZ_MEMORY_MAX. A target adds what it knows of its parser.
#pragma once

#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Counted memory that an input may take. A tokenizer with the highest id that is allowed takes 84 MB.
enum { FUZZ_MEMORY_MAX = 128 << 20 };

/* The target. Returns: 0; what must hold and does not ends the process. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Opens an allocator for one input, and begins to count error lines.   Owns: fuzz_end ends it. */
mics_memory *fuzz_begin(void);
/* Checks that everything was given back, and the peak. */
void fuzz_end(mics_memory *memory);

/* Ends the process, as a finding, unless `holds`. */
void fuzz_check(bool holds, const char *what);

/* Checks the error lines since the last call: one if `status` is an error, else none.
 *
 * Returns: whether `status` is MICS_OK.
 */
bool fuzz_good(mics_status status);

// A part of an input, copied, with a NUL behind it.
typedef struct fuzz_part {
    char *text;
    size_t bytes;
} fuzz_part;

/* Takes what stands before the next NUL off the front of an input; all of it where there is none.
 *
 * Owns:    free(part.text).
 */
fuzz_part fuzz_take(const uint8_t **data, size_t *bytes);

/* Path of a file in memory with these contents; the next call changes them. */
const char *fuzz_memory_file(const void *data, size_t bytes);

/* Path of a temporary folder with a name in it: of the folder itself if `name` is NULL. The folder
 * and its files go when the process ends. The path holds until the fourth call after this one.
 */
const char *fuzz_path(const char *name);
/* Makes a folder in there, or finds it. */
void fuzz_make_dir(const char *name);
/* Writes a file there. */
void fuzz_write(const char *name, const void *data, size_t bytes);
/* Removes the files of a folder in there. */
void fuzz_clear(const char *name);
/* Reads a file of the tests' data (tests/golden).   Owns: free(part.text). */
fuzz_part fuzz_data(const char *name);
