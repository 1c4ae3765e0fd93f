// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Ops alone and in training: what bench_compute.c and bench_train.c share.
#ifndef MICS_CLI_BENCH_COMPUTE_H
#define MICS_CLI_BENCH_COMPUTE_H

#include "bench.h"
#include "mics/kernels.h"

enum { BENCH_CALLS = 96 };

typedef enum bench_call_kind {
    BENCH_PRODUCT, // (m, k) x (k, n)
    BENCH_OP,      // forward and backward of an op
    BENCH_UPDATE,  // of m parameters
    BENCH_CALL_KINDS
} bench_call_kind;

typedef struct bench_call {
    bench_call_kind kind;
    int64_t m, n, k;
    mics_op_shape shape; // OP
    bool transpose_a, transpose_b;
    double weight; // how often it counts among those of its size
} bench_call;

// Calls by size, summed up.
typedef struct bench_rates {
    int32_t count;
    double size[MICS_CURVE_POINTS], flops[MICS_CURVE_POINTS], us[MICS_CURVE_POINTS];
} bench_rates;

typedef struct bench_ops {
    bench *bench;
    const mics_kernels *kernels;
    int32_t threads;
    float *arena; // operands: the first half is read, the second written
    int64_t arena_elems, at[2];
    float *workspace;
    int32_t calls_made; // by the newest timing
    bench_rates products, attention;
    double peak; // FLOP/s
    double elementwise_bytes, elementwise_us;
    double stream_bytes_per_s, update_bytes_per_s, launch_us;
} bench_ops;

/* What was measured, with products, attention and elementwise ops `factor` times as long. */
void bench_ops_take(const bench_ops *self, double factor, bench_compute *compute);

/* Trains the model on each rank for itself, and corrects *compute by what that took.
 * Collective: world. */
mics_status bench_train(bench_ops *self, const bench_subject *subject, double seconds,
                        bench_compute *compute);

#endif
