// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What op_speed times: entries of a table of kernels at the shapes of a model.
#ifndef BENCH_GPU_OP_SUBJECTS_H
#define BENCH_GPU_OP_SUBJECTS_H

#include "ops/kernels.h"
#include "random_data.h"

enum { BUFFERS = 8, SUBJECTS = 48 };

typedef struct bench {
    int64_t N, T, C, H, V, shard, chunk_rows;
    mics_dtype dtype;
    bool tiny, json, on_cpu;
    bool library;     // attention by cuDNN
    const char *only; // names of subjects with commas between them; NULL: all
    mics_device *device;
    const mics_kernels *table;
    mics_exec at;
    int32_t *tokens, *order; // on the device
    double bytes_per_s, flops_per_s;
    random_source random;
} bench;

// Of a mixture whose ops are timed; Mixtral's.
static const mics_experts BENCH_EXPERTS = {.count = 8, .chosen = 2};

// One entry at one shape.
typedef struct subject subject;
typedef void (*subject_run)(const bench *b, const subject *s, void *const *p);
struct subject {
    const char *name;
    mics_dtype dtype;
    double bytes, flops;     // that a call has to move and to do
    int64_t buffer[BUFFERS]; // bytes of each, in the order that `run` takes them
    int64_t N, I, O;         // rows and columns, or N elements
    subject_run run;
};

// What a subject's buffers hold before: random numbers of the dtype, unless `holds` has a letter for
// each: x such numbers, f random numbers of fp32, + positive ones of fp32, 0 zeros. `prepare`, if
// there is one, is called once with each set of buffers.
typedef struct subject_content {
    subject_run run;
    const char *holds;
    subject_run prepare;
} subject_content;

/* Fills `subjects_out`, an array of SUBJECTS. Returns how many there are. */
int subjects_list(const bench *b, subject *subjects_out);
subject_content subject_content_of(const subject *s);

/* Those of a mixture, which are some of them; of other subjects content is the usual one. */
int subjects_list_experts(const bench *b, subject *subjects_out);
subject_content subject_content_of_experts(const subject *s);

// What the machine's own rates are measured by: a copy of fp32, and a GEMM.
void run_copy(const bench *b, const subject *s, void *const *p);
void run_linear_forward(const bench *b, const subject *s, void *const *p);

#endif
