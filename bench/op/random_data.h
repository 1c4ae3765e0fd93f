// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Random numbers for kernels that are timed. On zeros a chip switches fewer transistors, draws less
// power and keeps a higher clock: it looks faster than it is on any real tensor.
#pragma once

#include "mics/core/device.h"
#include "ops/kernels.h"

// A prime, so that numbers do not repeat row by row. 64 MiB of a 2-byte type.
enum { RANDOM_ELEMS = 33554393 };

typedef enum random_kind {
    RANDOM_DTYPE,    // of the dtype, uniform in (-1, 1)
    RANDOM_FP32,     // the same in fp32
    RANDOM_POSITIVE, // fp32, uniform in (0, 1)
    RANDOM_KINDS
} random_kind;

// A block of each kind on the device, which fills copy from; zeroed: none.
typedef struct random_source {
    mics_device *device;
    char *blocks[RANDOM_KINDS];
    int64_t elem_bytes[RANDOM_KINDS];
    int64_t elems; // of a block
    int64_t next;  // element that the next fill begins at, so that two tensors differ
} random_source;

/* Makes `elems` numbers of each kind.
 *
 * Needs:   source zeroed; elems >= 1 (RANDOM_ELEMS, or fewer for an emulated GPU); the device and
 *          the table outlive it.
 * Returns: MICS_OK; MICS_ERR_MEMORY, or what the device says. Close it either way.
 */
mics_status random_source_open(mics_device *device, const mics_kernels *table, mics_dtype dtype,
                               int64_t elems, random_source *source);

/* Enqueues on stream 0 what fills `bytes` of the device's memory at `to`; a kind's numbers repeat after `elems`. */
void random_source_fill(random_source *source, random_kind kind, void *to, int64_t bytes);

void random_source_close(random_source *source);
