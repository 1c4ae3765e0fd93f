// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The harness of all kernel tests. A case owns its buffers, knows what each must hold afterwards,
// and runs a kernel of every table that this CPU can run, at 1, 2 and 3 threads:
//
// - each buffer ends at a page that may not be touched and begins behind guard bytes;
// - outputs and workspaces hold NaN before each run, so what a kernel does not write, or reads too
//   early, shows;
// - inputs must be bit-identical after it;
// - outputs must agree with an fp64 reference: |got - want| <= tolerance * magnitude, where the
//   magnitude is the sum of the absolute terms that make up the element;
// - unless a case says otherwise, outputs are bit-identical whatever the number of threads.
//
// All cases of a program run once more in bf16 (op_run_tests). Inputs are then numbers that bf16
// has, lie in the first half of their buffers, with guard bytes behind, and go to the tables' .bf16;
// outputs may be off by half a unit in the last place besides.
//
// Backward references are themselves checked, against central differences of the forward one.
#pragma once

#include "op_calls.h"
#include "ops/kernels.h"
#include "test.h"

// About 8 roundings of fp32.
#define OP_TOLERANCE 5e-7

enum { OP_BUFFERS = 20, OP_WIDES = 64, OP_MAX_THREADS = 3 };

typedef enum op_role { OP_INPUT, OP_OUTPUT, OP_SUM, OP_SPACE } op_role;

typedef struct op_buffer {
    const char *name;
    op_role role;
    float *data;  // what kernels get
    float *start; // not OP_SPACE, not a pure output: its contents before each run
    float *first; // contents after the first run with this table
    int64_t elems;
    bool fp32; // in bf16 cases, too
    void *map;
    size_t map_bytes;
    const double *want, *magnitude; // NULL: not compared
    double tolerance;
} op_buffer;

typedef struct op_case {
    char name[128];
    int buffers, wides;
    op_buffer buffer[OP_BUFFERS];
    void *wide[OP_WIDES];
    bool depends_on_threads; // set for matrix products of the library
    uint64_t stream;
} op_case;

// One call of the kernel under test.
typedef void (*op_run_fn)(const mics_kernels *kernels, int32_t threads, const void *args);

/* Opens and closes a case. The name is made by printf rules and should tell the shape. */
void op_begin(op_case *c, const char *format, ...);
void op_end(op_case *c);

/* A buffer of normal random numbers times `scale`. Owns: the case. */
float *op_input(op_case *c, const char *name, int64_t elems, double scale);
/* A buffer that the kernel overwrites, or, with `add`, adds to. */
float *op_output(op_case *c, const char *name, int64_t elems, bool add);
/* A random buffer that the kernel reads and then overwrites. */
float *op_inout(op_case *c, const char *name, int64_t elems, double scale);
/* A workspace. */
float *op_space(op_case *c, const char *name, int64_t elems);

/* A buffer that holds fp32 in bf16 cases, too: statistics, losses, masters. Returns: it. */
float *op_fp32(op_case *c, float *data);

/* After edits of an input's or inout's data, takes them as its contents before each run. */
void op_input_changed(op_case *c, const float *data);

/* Zeroed fp64 numbers, and an fp64 copy of a buffer. Owns: the case. */
double *op_doubles(op_case *c, int64_t elems);
double *op_widen(op_case *c, const float *data);
/* Zeroed integers. Owns: the case. */
int32_t *op_ints(op_case *c, int64_t elems);
/* Integers drawn from [0, range). */
int32_t *op_random_ints(op_case *c, int64_t elems, int64_t range);

/* What an output must hold (its contents before the run are added for one with `add`). */
void op_expect(op_case *c, const float *data, const double *want, const double *magnitude,
               double tolerance);

/* Whether this is a bf16 case; what is then added to a tolerance where kernels round inside. */
bool op_bf16(void);
double op_bf16_roundings(double count);

/* cmocka's tests, in fp32 and once more in bf16. Returns: what main returns. */
#define op_run_tests(tests) op_run_twice(tests, sizeof(tests) / sizeof(tests)[0])
int op_run_twice(const struct CMUnitTest *tests, size_t count);

/* Runs and checks. */
void op_run(op_case *c, op_run_fn run, const void *args);

/* Checks an fp64 gradient of `objective` against central differences at up to `samples` of the
 * elements of `at`, which is restored; in bf16 and under sanitizers at one. */
void op_check_gradient(const op_case *c, const char *name, double (*objective)(const void *ctx),
                       const void *ctx, double *at, int64_t elems, const double *gradient,
                       int64_t samples);

/* Sum of a[i] * b[i]. */
double op_dot(const double *a, const double *b, int64_t elems);
