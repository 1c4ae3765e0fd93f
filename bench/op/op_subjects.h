// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What op_speed times: ops at the shapes of a model, by their cases and descriptors, and kernels over
// shards.
#ifndef BENCH_GPU_OP_SUBJECTS_H
#define BENCH_GPU_OP_SUBJECTS_H

#include "measure/internal.h"
#include "ops/common/cases.h"
#include "random_data.h"

enum { SUBJECTS = 64, BUFFERS = 5, NAME_BYTES = 32 };

typedef struct bench {
    int64_t N, T, C, H, V, shard;
    mics_dtype dtype;
    bool tiny, json, on_cpu;
    bool library;     // attention by cuDNN
    const char *only; // names of subjects with commas between them; NULL: all
    mics_device *device;
    const mics_kernels *table;
    mics_exec at;
    int32_t *tokens, *order; // on the device, and so is all that follows
    float *routes;           // stats of a router, which experts follow
    mics_rotary_spec rotary;
    double bytes_per_s, flops_per_s;
    random_source random;
} bench;

// A kernel over shards. `holds` has a letter for each buffer: x numbers of the dtype, f of fp32, +
// positive ones of fp32, b as many blocks of the dtype as are summed, d one sum in fp64, which begins
// as 0. `moves`: how often each is moved.
typedef struct shard_kernel {
    const char *name, *holds, *moves;
    enum { OF_SHARD, OF_ROWS, OF_TOKENS } elems; // its size in the list
    void (*run)(const bench *b, int64_t elems, void *const *p);
} shard_kernel;

// One pass of an op, or a kernel over shards.
typedef struct subject {
    char name[NAME_BYTES];
    const shard_kernel *shards; // NULL: an op's
    mics_op_case of;
    bool backward;
    const mics_op_pair *pair; // (optional) with the op before it in the pass, which is `with`
    mics_op_case with;
    int64_t N, I, O;     // rows, and widths of inputs and outputs; or N elements
    double bytes, flops; // that a call has to move and to do
} subject;

/* Fills `subjects_out`, an array of SUBJECTS. Returns how many there are. */
int subjects_list(const bench *b, subject *subjects_out);

/* What the machine's own rates are measured by: a copy of fp32, and a GEMM. */
subject subject_copy(const bench *b, int64_t elems);
subject subject_gemm(const bench *b, int64_t side);

/* Routes for the experts of the list; needs the workspace. */
mics_status subject_routes(bench *b);

/* Lays a subject's buffers out, and runs it there; where the layout lies nowhere it does not. First:
 * runs what leaves the numbers that it reads, or fills them in. */
mics_status subject_run(bench *b, const subject *s, measure_layout *layout, bool first);

#endif
