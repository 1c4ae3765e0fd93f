// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The harness of the tests of kernels on a GPU, real or emulated. A case owns buffers of the
// device, knows what each must hold afterwards, and runs a kernel twice:
//
// - guard bytes lie around each buffer, which may begin at any element;
// - outputs and the first MiB of the workspace hold NaN before each run, so what a kernel does not
//   write, or reads too early, shows;
// - inputs must be bit-identical after it, and outputs after the second run the same as after the
//   first;
// - outputs must agree with an fp64 reference made of the rounded inputs:
//   |got - want| <= tolerance * magnitude + half a unit in the last place of the output's dtype,
//   where the magnitude is the sum of the absolute terms that make up the element. So a number is
//   rounded once.
#pragma once

#include "op_calls.h"
#include "ops/common/cuda_ops.h"
#include "test.h"

// About 8 roundings of fp32, and what the quick exponential and division of 2-byte kernels add.
#define CU_TOLERANCE 5e-7
#define CU_QUICK 4e-6

enum { CU_BUFFERS = 16, CU_KEPT = 64 };

// What a buffer holds: one of mics_dtype, or one of these.
enum { CU_INT32 = MICS_DTYPES, CU_FP64 };

typedef enum cu_role { CU_INPUT, CU_OUTPUT, CU_INOUT } cu_role;

typedef struct cu_buffer {
    const char *name;
    cu_role role;
    int type;
    int64_t elems;
    void *data;     // on the device: what kernels get
    double *values; // inputs: what it holds before each run, rounded to the type; outputs: after it
    const double *want,
        *magnitude; // NULL: not compared. A want that is NaN: this element is not written
    double tolerance;
    // of the harness
    void *block;           // on the device
    unsigned char *before; // the whole block before each run
    unsigned char *after, *first;
    size_t block_bytes, data_at;
    double *start; // an inout's values before the run
} cu_buffer;

/* Memory for a buffer with its guards. */
typedef struct cu_space {
    void *block; // on the device
    unsigned char *before, *after;
    size_t bytes;
} cu_space;

typedef struct cu_case {
    char name[192];
    mics_exec at;
    cu_space space; // of the workspace
    int buffers, kept;
    cu_buffer buffer[CU_BUFFERS];
    void *keep[CU_KEPT];
    uint64_t stream;
} cu_case;

typedef void (*cu_run_fn)(const mics_exec *at, const void *args);

/* The device, opened once a program; the test is skipped where there is none and no plugin was asked for. */
mics_device *cu_device(void);

/* The function that the plugin exports by this name, copied to *function_out. The test fails without it. */
void cu_symbol(const char *name, void *function_out);
#define CU_ENTRY(entry) cu_symbol("mics_cuda_" #entry, &entry)

/* Opens and closes a case. The name is made by printf rules and should tell the shape. */
void cu_begin(cu_case *c, mics_dtype dtype, size_t workspace_bytes, const char *format, ...);
void cu_end(cu_case *c);

/* Normal random numbers times `scale`, rounded to the type. `offset`: elements by which it begins off 256 bytes. */
cu_buffer *cu_input(cu_case *c, const char *name, int type, int64_t elems, int64_t offset,
                    double scale);
/* Integers drawn from [0, range). */
cu_buffer *cu_ints(cu_case *c, const char *name, int64_t elems, int64_t range);
/* What a kernel overwrites. */
cu_buffer *cu_output(cu_case *c, const char *name, int type, int64_t elems, int64_t offset);
/* What a kernel reads and overwrites, or adds to. `add` false gives an output. */
cu_buffer *cu_inout(cu_case *c, const char *name, int type, int64_t elems, int64_t offset,
                    bool add);
/* After edits of an input's values: rounds them and takes them as its contents. */
void cu_changed(cu_buffer *buffer);

/* Zeroed fp64 numbers. Owns: the case. */
double *cu_doubles(cu_case *c, int64_t elems);

/* What a buffer must hold after the run. */
void cu_expect(cu_buffer *buffer, const double *want, const double *magnitude, double tolerance);

/* Runs twice and checks. Afterwards `values` of outputs is what they hold. */
void cu_run(cu_case *c, cu_run_fn run, const void *args);

/* `value` rounded to a type: nearest, ties to even. */
double cu_rounded(int type, double value);
