// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What bench/op_speed.c and its parts share: a problem, and the table that it fills.
#pragma once

#include "ops/kernels.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct bench {
    int64_t B, T, C, H, V, layers, N, D, rows; // rows: of logits at a time
    int32_t threads;
    double seconds; // time spent on each kernel
    bool processor; // measure CPU time of one thread
    bool bf16;      // activations and parameters, in the first half of what holds them
    const mics_kernels *k;
    mics_exec at;
    float *big[4];           // V * C: weight of the LM head and what AdamW updates
    float *a, *b, *c, *wide; // N * 4C each
    float *stats, *workspace, *loss;
    void *packed; // V * C numbers in a communication dtype
    int32_t *tokens;
} bench;

typedef void (*bench_fn)(const bench *s);

typedef struct totals {
    double kernels_ms, products_ms, library_ms;
} totals;

/* A row of the table: times `run`, and the matrix library alone unless `library` is NULL. `calls` of
 * it make up a step (0: shown, not counted); flops of its products, bytes that it must move at
 * least. */
void row(const bench *s, totals *t, const char *name, double calls, bench_fn run, bench_fn library,
         double flops, double bytes);

/* Rows of packing and unpacking for collectives: shown, not counted. */
void comm_dtype_rows(const bench *s, totals *t);
