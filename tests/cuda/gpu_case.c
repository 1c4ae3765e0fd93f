// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mics_device *the_device;

int gpu_open(void **state)
{
    (void)state;
    return mics_device_cuda_open(0, 8, &the_device) == MICS_OK ? 0 : -1;
}

int gpu_close(void **state)
{
    (void)state;
    mics_device_close(the_device);
    the_device = NULL;
    return 0;
}

mics_device *gpu_device(void)
{
    return the_device;
}

void *gpu_symbol(const char *name)
{
    void *symbol = mics_plugin_symbol(name);
    if (!symbol)
        fail_msg("the plugin has no %s", name);
    return symbol;
}

static void *device_block(gpu_case *c, size_t bytes)
{
    assert_true(c->block_count < 64);
    void *block = NULL;
    ASSERT_OK(the_device->ops->alloc(the_device->ctx, bytes, &block));
    c->blocks[c->block_count++] = block;
    return block;
}

static void *host_block(gpu_case *c, size_t bytes)
{
    assert_true(c->host_count < 64);
    void *block = calloc(1, bytes ? bytes : 1);
    assert_non_null(block);
    c->host[c->host_count++] = block;
    return block;
}

static void *uploaded(gpu_case *c, const void *bytes, size_t count)
{
    void *block = device_block(c, count);
    the_device->ops->copy(the_device->ctx, c->at.stream, block, bytes, count);
    gpu_wait(c);
    return block;
}

void gpu_begin(gpu_case *c, mics_dtype dtype, size_t workspace_bytes, const char *format, ...)
{
    va_list args;
    memset(c, 0, sizeof *c);
    va_start(args, format);
    int length = vsnprintf(c->title, sizeof c->title, format, args);
    va_end(args);
    if (length >= 0 && (size_t)length < sizeof c->title)
        snprintf(c->title + length, sizeof c->title - (size_t)length, " %s",
                 mics_dtype_text(dtype));
    c->at.device = gpu_device();
    c->at.dtype = dtype;
    c->at.threads = 1;
    c->at.workspace_bytes = workspace_bytes;
    c->at.workspace = gpu_poisoned(c, workspace_bytes ? workspace_bytes : 1);
    c->seed = UINT64_C(0x9e3779b97f4a7c15);
}

void gpu_end(gpu_case *c)
{
    gpu_wait(c);
    for (int i = 0; i < c->block_count; ++i)
        the_device->ops->free(the_device->ctx, c->blocks[i]);
    for (int i = 0; i < c->host_count; ++i)
        free(c->host[i]);
    memset(c, 0, sizeof *c);
}

// ---- numbers ----

// Mantissa bits that are kept, the hidden one included, and the exponent of the smallest normal
// number.
static int bits_of(mics_dtype dtype)
{
    return dtype == MICS_DTYPE_FP32 ? 24 : (dtype == MICS_DTYPE_BF16 ? 8 : 11);
}

static double rounded(double x, mics_dtype dtype)
{
    int exponent;
    frexp(x, &exponent);
    const int smallest = dtype == MICS_DTYPE_FP16 ? -13 : -125;
    if (exponent < smallest)
        exponent = smallest;
    return ldexp(nearbyint(ldexp(x, bits_of(dtype) - exponent)), exponent - bits_of(dtype));
}

static uint16_t half_bits(double x, mics_dtype dtype)
{
    const float value = (float)x;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (dtype == MICS_DTYPE_BF16)
        return (uint16_t)(bits >> 16);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000U);
    const double magnitude = fabs(x);
    if (magnitude < 0x1p-14)
        return (uint16_t)(sign | (uint16_t)(magnitude * 0x1p24));
    return (uint16_t)(sign | (uint16_t)(((bits & 0x7fffffffU) - 0x38000000U) >> 13));
}

static double value_of(const void *numbers, int64_t i, mics_dtype dtype)
{
    if (dtype == MICS_DTYPE_FP32)
        return (double)((const float *)numbers)[i];
    const uint16_t bits = ((const uint16_t *)numbers)[i];
    if (dtype == MICS_DTYPE_BF16) {
        const uint32_t wide = (uint32_t)bits << 16;
        float value;
        memcpy(&value, &wide, sizeof value);
        return (double)value;
    }
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double magnitude = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                       : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                      : ldexp(fraction, -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}

double *gpu_random(gpu_case *c, int64_t elems, double spread)
{
    double *values = gpu_doubles(c, elems);
    for (int64_t i = 0; i < elems; ++i) {
        c->seed = c->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        values[i] = rounded(((double)(c->seed >> 33) * 0x1p-30 - 1.0) * spread, c->at.dtype);
    }
    return values;
}

double *gpu_doubles(gpu_case *c, int64_t elems)
{
    return host_block(c, (size_t)elems * sizeof(double));
}

void *gpu_numbers(gpu_case *c, const double *values, int64_t elems)
{
    if (c->at.dtype == MICS_DTYPE_FP32)
        return gpu_floats(c, values, elems);
    uint16_t *bits = host_block(c, (size_t)elems * 2);
    for (int64_t i = 0; i < elems; ++i)
        bits[i] = half_bits(rounded(values[i], c->at.dtype), c->at.dtype);
    return uploaded(c, bits, (size_t)elems * 2);
}

float *gpu_floats(gpu_case *c, const double *values, int64_t elems)
{
    float *floats = host_block(c, (size_t)elems * sizeof(float));
    for (int64_t i = 0; i < elems; ++i)
        floats[i] = (float)values[i];
    return uploaded(c, floats, (size_t)elems * sizeof(float));
}

int32_t *gpu_integers(gpu_case *c, const int32_t *values, int64_t elems)
{
    return uploaded(c, values, (size_t)elems * sizeof *values);
}

void *gpu_poisoned(gpu_case *c, size_t bytes)
{
    void *block = device_block(c, bytes);
    gpu_poison(c, block, bytes);
    return block;
}

void gpu_poison(gpu_case *c, void *block, size_t bytes)
{
    void *poison = malloc(bytes);
    assert_non_null(poison);
    memset(poison, 0xff, bytes);
    the_device->ops->copy(the_device->ctx, c->at.stream, block, poison, bytes);
    gpu_wait(c);
    free(poison);
}

void gpu_wait(gpu_case *c)
{
    const mics_status status = the_device->ops->synchronize(the_device->ctx, c->at.stream);
    if (status != MICS_OK)
        fail_msg("%s: the device failed", c->title);
}

void *gpu_bytes(gpu_case *c, const void *block, size_t bytes)
{
    void *copy = host_block(c, bytes);
    the_device->ops->copy(the_device->ctx, c->at.stream, copy, block, bytes);
    gpu_wait(c);
    return copy;
}

double gpu_unit(mics_dtype dtype)
{
    return ldexp(1.0, -bits_of(dtype));
}

size_t gpu_size(const gpu_case *c, int64_t elems)
{
    return (size_t)elems * mics_dtype_bytes(c->at.dtype);
}

// Below 2^-14 fp16 has steps of 2^-24, and so have factors that are rounded to it on the way.
static double smallest_step(mics_dtype dtype)
{
    return dtype == MICS_DTYPE_FP16 ? 16 * 0x1p-24 : 1e-30;
}

void gpu_expect(gpu_case *c, const char *name, const void *block, mics_dtype dtype, int64_t elems,
                const double *want, const double *sum, double units, double tolerance)
{
    const void *numbers = gpu_bytes(c, block, (size_t)elems * mics_dtype_bytes(dtype));
    for (int64_t i = 0; i < elems; ++i) {
        const double got = value_of(numbers, i, dtype);
        const double allowed = units * gpu_unit(dtype) * fabs(want[i]) + tolerance * sum[i] +
                               smallest_step(c->at.dtype);
        if (!(fabs(got - want[i]) <= allowed))
            fail_msg("%s: %s[%lld of %lld] is %.9g, expected %.9g, allowed difference %.3g",
                     c->title, name, (long long)i, (long long)elems, got, want[i], allowed);
    }
}
