// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the tests of GEMMs and attention on a GPU share: a device, numbers of any type on
// it, comparison with an fp64 reference. Inputs are rounded to the type first, so that the
// reference has the same ones. Everything belongs to a case and goes with it.
#pragma once

#include "gpu.h"
#include "op_calls.h"
#include "ops/kernels.h"
#include "test.h"

typedef struct gpu_case {
    char title[160];
    mics_exec at;
    void *blocks[64]; // of the device
    void *host[64];
    int block_count, host_count;
    uint64_t seed;
} gpu_case;

/* Opens and closes the device that all cases of a program use: cmocka's group set-up and end. */
int gpu_open(void **state);
int gpu_close(void **state);
mics_device *gpu_device(void);

/* A function of the plugin; the test fails when it is missing. */
void *gpu_symbol(const char *name);
#define GPU_FUNCTION(type, name) type name = (type)(uintptr_t)gpu_symbol("mics_cuda_" #name)

void gpu_begin(gpu_case *c, mics_dtype dtype, size_t workspace_bytes, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void gpu_end(gpu_case *c);

/* Numbers in (-spread, spread), rounded to the type. */
double *gpu_random(gpu_case *c, int64_t elems, double spread);
double *gpu_doubles(gpu_case *c, int64_t elems); // zeroed
/* On the device: rounded to the case's type, to fp32, or as integers. */
void *gpu_numbers(gpu_case *c, const double *values, int64_t elems);
float *gpu_floats(gpu_case *c, const double *values, int64_t elems);
int32_t *gpu_integers(gpu_case *c, const int32_t *values, int64_t elems);
/* On the device, every byte 0xff: NaN in all types. */
void *gpu_poisoned(gpu_case *c, size_t bytes);
/* The same block, poisoned again. */
void gpu_poison(gpu_case *c, void *block, size_t bytes);
/* All that was enqueued is done, and nothing failed. */
void gpu_wait(gpu_case *c);
/* A copy on the host that the case owns. */
void *gpu_bytes(gpu_case *c, const void *block, size_t bytes);

/* Half a unit in the last place of a type, relative. */
double gpu_unit(mics_dtype dtype);
size_t gpu_size(const gpu_case *c, int64_t elems); // bytes in the case's type

/* Waits, reads `elems` numbers of a type, and fails where one is further from `want` than
 * units * gpu_unit * |want| + tolerance * sum. */
void gpu_expect(gpu_case *c, const char *name, const void *block, mics_dtype dtype, int64_t elems,
                const double *want, const double *sum, double units, double tolerance);
