// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a metrics.jsonl says, thinned out: each figure in buckets of equally many steps, with the
// smallest, the largest and the mean of each. So a file of any length takes the same memory, and a
// single value that is far from its neighbours stays seen.
//
// The file is read as it grows, on a disk that other machines write to, too: each read opens it anew
// and takes the lines that are whole.
#pragma once

#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

enum { HISTORY_MAX_FIGURES = 64, HISTORY_NAME_BYTES = 48 };

typedef struct history_bucket {
    int64_t count; // of values; 0: none
    double min, max, sum;
} history_bucket;

typedef struct history_figure {
    char name[HISTORY_NAME_BYTES];
    double newest;           // value; NaN: there is none yet
    int64_t nulls;           // values that were not finite
    history_bucket *buckets; // (bucket_count)
} history_figure;

typedef struct history {
    mics_memory *memory;
    char *path;
    int32_t bucket_count, figure_count;
    int64_t first, last; // steps; -1: none yet
    int64_t width;       // steps of a bucket
    int64_t lines;       // that were read
    int64_t damaged;     // of them those that are none of ours
    bool stopped;        // the newest line says that the run ended early
    history_figure figures[HISTORY_MAX_FIGURES];
    // Where the next read begins, and of which file.
    int64_t offset, tail_bytes;
    uint64_t inode;
} history;

/* Begins with no line. Of a file's end alone: with `tail_bytes`; 0 is all of it.
 *
 * Needs:   bucket_count >= 1.
 * Returns: MICS_OK; MICS_ERR_MEMORY.     Owns: close with history_close.
 */
mics_status history_open(mics_memory *memory, const char *path, int32_t bucket_count,
                         int64_t tail_bytes, history **history_out);
void history_close(history *self);

/* Reads what was appended since; all of it again where another file stands there, as after a resume.
 *
 * Returns: MICS_OK; MICS_ERR_IO (also: there is no file); MICS_ERR_MEMORY; logged.
 */
mics_status history_read(history *self);

/* The figure of that name; NULL: it has no value. */
const history_figure *history_find(const history *self, const char *name);

/* The step in the middle of a bucket. */
static inline double history_step(const history *self, int64_t bucket)
{
    return (double)self->first + ((double)bucket + 0.5) * (double)self->width - 0.5;
}
