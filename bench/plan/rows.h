// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Published throughputs and what plans say of them: one row a line of a file, in one of two forms.
// throughput.jsonl has shapes, a sharding and micro-steps; throughput2.jsonl a model's name (a file
// of configs/), a batch, a precision and degrees.
#pragma once

#include "plan/cost/cost.h"
#include "plan/search/plan.h"
#include "sources.h"

enum { MAX_ROWS = 1024, MAX_SETS = 32, NAME_BYTES = 64, TRIED = 18 };

// Constants of the catalogue, and others to try: shares of the catalogue's GEMM rate, and what memory
// keeps.
typedef struct constants {
    double matmul, memory; // 0: the catalogue's
} constants;

extern const constants tried[TRIED];

typedef struct row {
    char id[NAME_BYTES], group[NAME_BYTES], source[NAME_BYTES], chip[NAME_BYTES];
    char software[NAME_BYTES];
    char kind[NAME_BYTES];      // chip, precision, parallelism
    int64_t shape[4];           // layers, hidden size, sequence, vocabulary
    double measured, predicted; // tokens/s of a GPU
    double with[TRIED];         // predicted with other constants
} row;

typedef struct rows {
    mics_memory *memory;
    source_rules rules;
    const char *configs;
    const char *sets[MAX_SETS];
    int32_t set_count;
    bool fits; // with other constants too
    row items[MAX_ROWS];
    int32_t count;
} rows;

/* Reads and plans a file's rows, behind those that are there.
 * Fails at the first
 * that cannot be planned. */
mics_status rows_read(rows *all, const char *path);
