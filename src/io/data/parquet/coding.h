// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How the bytes of a page are coded: its compression, and the hybrid of runs and bit-packed groups
// ("RLE") that holds levels, bools and indices.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Why a codec is not read, by its name; NULL: it is. */
const char *mics_parquet_codec_refused(int64_t codec);

/* Whether `packed` bytes can become `bytes`, by the most that a codec makes of any. */
bool mics_parquet_codec_can(int32_t codec, size_t packed, size_t bytes);

/* Unpacks a page. False: it is damaged, or does not become `bytes`. */
bool mics_parquet_codec_unpack(int32_t codec, const void *packed, size_t packed_bytes, void *to,
                               size_t bytes);

typedef struct mics_runs {
    const unsigned char *at, *end; // of what no run has taken
    int32_t bits;                  // of a value, at most 32
    uint64_t left;                 // values of the run
    uint32_t value;                // of a run of equal ones
    const unsigned char *packed;   // of a run of others, else NULL
    uint64_t bit;                  // of `packed`, the next one
} mics_runs;

/* Begins; values of no bits that lie in no bytes are 0. */
mics_runs mics_runs_begin(const unsigned char *bytes, size_t count, int32_t bits);

/* Begins with values that are bit-packed alone, as PLAIN has bools. */
mics_runs mics_runs_packed(const unsigned char *bytes, size_t count, int32_t bits);

/* The next value. False: the bytes end, or are malformed. */
bool mics_runs_next(mics_runs *runs, uint32_t *value_out);
