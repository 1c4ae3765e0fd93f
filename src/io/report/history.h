// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a metrics.jsonl says, thinned out: each figure in buckets of equally many steps, with the
// smallest, the largest and the mean of each. So a file of any length takes the same memory, and a
// single value that is far from its neighbours stays seen.
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
    int32_t bucket_count, figure_count;
    int64_t first, last; // steps; -1: none yet
    int64_t width;       // steps of a bucket
    int64_t lines;       // that were read
    int64_t damaged;     // of them those that are none of ours
    bool stopped;        // the newest line says that the run ended early
    history_figure figures[HISTORY_MAX_FIGURES];
} history;

/* Reads the whole lines of a file, or of its last `tail_bytes`, if that is not 0.
 *
 * Needs:   bucket_count >= 1.
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_FORMAT: it has lines, and none is of a run's metrics;
 *          MICS_ERR_MEMORY; logged.
 * Owns:    close with history_close; NULL is allowed there.
 */
mics_status history_open(mics_memory *memory, const char *path, int32_t bucket_count,
                         int64_t tail_bytes, history **history_out);
void history_close(history *self);

/* The figure of that name; NULL: it has no value. */
const history_figure *history_find(const history *self, const char *name);

/* The step in the middle of a bucket. */
static inline double history_step(const history *self, int64_t bucket)
{
    return (double)self->first + ((double)bucket + 0.5) * (double)self->width - 0.5;
}
