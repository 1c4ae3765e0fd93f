// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda_op.h"
#include "base/rng.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTES = 256, GUARD = 0xa5, POISON = 0xff };
// Bytes of a workspace that hold NaN before each run. Behind them lies what earlier runs left, which differs between two runs.
enum { FILLED_AGAIN = 1 << 20 };

// ---- device ----

static mics_device *device;

// The memory of a workspace: as large as the largest so far, since a GEMM may ask for megabytes, and making them anew for each
// case would take longer than the case. A smaller one lies at its end: past that is a page that cannot be touched.
static cu_space spare;

static void free_space(const cu_space *space)
{
    if (space->block)
        device->ops->free(device->ctx, space->block);
    free(space->before);
    free(space->after);
}

static void close_device(void)
{
    free_space(&spare);
    mics_device_close(device);
    device = NULL;
}

mics_device *cu_device(void)
{
    if (device)
        return device;
    mics_status status = mics_device_cuda_open(0, 4, &device);
    if (status == MICS_ERR_UNSUPPORTED && !getenv("MICS_CUDA_PLUGIN"))
        skip();
    ASSERT_OK(status);
    atexit(close_device);
    return device;
}

void cu_symbol(const char *name, void *function_out)
{
    cu_device();
    void *symbol = mics_plugin_symbol(name);
    if (!symbol)
        fail_msg("the plugin has no %s", name);
    memcpy(function_out, &symbol, sizeof symbol);
}

static void copy(void *to, const void *from, size_t bytes)
{
    device->ops->copy(device->ctx, 0, to, from, bytes);
}

// ---- numbers ----

static size_t type_bytes(int type)
{
    if (type == CU_FP64)
        return sizeof(double);
    return type == CU_INT32 ? sizeof(int32_t) : mics_dtype_bytes((mics_dtype)type);
}

// Bits of the fraction, and the exponent of the smallest normal number.
static void type_shape(int type, int *fraction_out, int *lowest_out)
{
    *fraction_out = type == MICS_DTYPE_FP32 ? 23 : type == MICS_DTYPE_BF16 ? 7 : 10;
    *lowest_out = type == MICS_DTYPE_FP16 ? -14 : -126;
}

// The distance between numbers of a type about `value`.
static double type_step(int type, double value)
{
    int fraction, lowest;
    type_shape(type, &fraction, &lowest);
    const int exponent = value != 0 && isfinite(value) ? ilogb(value) : lowest;
    return ldexp(1.0, (exponent > lowest ? exponent : lowest) - fraction);
}

double cu_rounded(int type, double value)
{
    if (type >= MICS_DTYPES || !isfinite(value))
        return value;
    const double step = type_step(type, value), rounded = rint(value / step) * step;
    const double most = type == MICS_DTYPE_FP16   ? 65504.0
                        : type == MICS_DTYPE_BF16 ? ldexp(255.0, 120)
                                                  : 3.4028234663852886e38;
    return fabs(rounded) > most ? copysign((double)INFINITY, value) : rounded;
}

static uint16_t fp16_bits(double value)
{
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (!isfinite(value))
        return (uint16_t)(sign | (isnan(value) ? 0x7e00 : 0x7c00));
    const double magnitude = fabs(value);
    if (magnitude < ldexp(1.0, -14))
        return (uint16_t)(sign | (uint16_t)ldexp(magnitude, 24));
    const int exponent = ilogb(magnitude);
    return (uint16_t)(sign | ((exponent + 15) << 10) |
                      (int)(ldexp(magnitude, 10 - exponent) - 1024.0));
}

static double fp16_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent == 0   ? ldexp(fraction, -24)
                   : exponent < 31 ? ldexp(1024 + fraction, exponent - 25)
                   : fraction == 0 ? (double)INFINITY
                                   : (double)NAN;
    return bits & 0x8000 ? -value : value;
}

// `value` is one of the type.
static void put(int type, unsigned char *to, double value)
{
    const float single = (float)value;
    const int32_t integer = type == CU_INT32 ? (int32_t)value : 0;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    const uint16_t half = type == MICS_DTYPE_BF16 ? (uint16_t)(bits >> 16) : fp16_bits(value);
    if (type == CU_FP64)
        memcpy(to, &value, sizeof value);
    else if (type == CU_INT32)
        memcpy(to, &integer, sizeof integer);
    else if (type == MICS_DTYPE_FP32)
        memcpy(to, &single, sizeof single);
    else
        memcpy(to, &half, sizeof half);
}

static double get(int type, const unsigned char *from)
{
    double wide = 0;
    float single = 0;
    int32_t integer = 0;
    uint16_t half = 0;
    if (type == CU_FP64) {
        memcpy(&wide, from, sizeof wide);
        return wide;
    }
    if (type == CU_INT32) {
        memcpy(&integer, from, sizeof integer);
        return integer;
    }
    if (type == MICS_DTYPE_FP32) {
        memcpy(&single, from, sizeof single);
        return (double)single;
    }
    memcpy(&half, from, sizeof half);
    if (type == MICS_DTYPE_FP16)
        return fp16_value(half);
    const uint32_t bits = (uint32_t)half << 16;
    memcpy(&single, &bits, sizeof single);
    return (double)single;
}

// ---- cases ----

static void *zeroed(size_t count, size_t bytes)
{
    void *block = calloc(count + 1, bytes);
    if (!block)
        fail_msg("no memory for a test");
    return block;
}

static void *some(size_t bytes)
{
    void *block = malloc(bytes);
    if (!block)
        fail_msg("no memory for a test");
    return block;
}

static cu_space make_space(size_t bytes)
{
    cu_space space = {.bytes = bytes, .before = some(bytes), .after = some(bytes)};
    ASSERT_OK(device->ops->alloc(device->ctx, bytes, &space.block));
    return space;
}

static cu_buffer *next_buffer(cu_case *c, const char *name, int type, int64_t elems)
{
    assert_in_range(c->buffers, 0, CU_BUFFERS - 1);
    cu_buffer *buffer = &c->buffer[c->buffers++];
    *buffer = (cu_buffer){.name = name, .role = CU_OUTPUT, .type = type, .elems = elems};
    return buffer;
}

// Its blocks on the device and on the host, which lie `at` bytes from those of the space.
static void place(cu_buffer *buffer, const cu_space *space, size_t at)
{
    buffer->block = (char *)space->block + at;
    buffer->before = space->before + at;
    buffer->after = space->after + at;
    buffer->block_bytes = space->bytes - at;
    buffer->data = (char *)buffer->block + buffer->data_at;
}

static size_t end_of(const cu_buffer *b)
{
    return b->data_at + (size_t)b->elems * type_bytes(b->type);
}

// Without numbers on the host.
static cu_buffer *add_buffer(cu_case *c, const char *name, int type, int64_t elems, int64_t offset)
{
    cu_buffer *buffer = next_buffer(c, name, type, elems);
    const size_t bytes = (size_t)elems * type_bytes(type);
    buffer->data_at = GUARD_BYTES + (size_t)offset * type_bytes(type);
    const cu_space space = make_space(buffer->data_at + bytes + GUARD_BYTES);
    place(buffer, &space, 0);
    memset(buffer->before, GUARD, buffer->block_bytes);
    memset(buffer->before + buffer->data_at, POISON, bytes);
    return buffer;
}

static void add_workspace(cu_case *c, size_t wanted)
{
    cu_buffer *buffer = next_buffer(c, "the workspace", CU_INT32, (int64_t)(wanted + 3) / 4);
    const size_t bytes = (size_t)buffer->elems * sizeof(int32_t);
    buffer->data_at = GUARD_BYTES;
    const size_t block_bytes = GUARD_BYTES + bytes + GUARD_BYTES;
    if (block_bytes > spare.bytes) {
        free_space(&spare);
        spare = make_space(block_bytes);
        memset(spare.before, POISON, block_bytes);
        copy(spare.block, spare.before, block_bytes);
    }
    c->space = spare;
    spare = (cu_space){0};
    place(buffer, &c->space, (c->space.bytes - block_bytes) / GUARD_BYTES * GUARD_BYTES);
    memset(buffer->before, GUARD, GUARD_BYTES);
    memset(buffer->before + GUARD_BYTES + bytes, GUARD, buffer->block_bytes - GUARD_BYTES - bytes);
    c->at.workspace = buffer->data;
    c->at.workspace_bytes = wanted;
}

void cu_begin(cu_case *c, mics_dtype dtype, size_t workspace_bytes, const char *format, ...)
{
    memset(c, 0, sizeof *c);
    const int length = snprintf(c->name, sizeof c->name, "%s ", mics_dtype_text(dtype));
    va_list args;
    va_start(args, format);
    vsnprintf(c->name + length, sizeof c->name - (size_t)length, format, args);
    va_end(args);
    for (const char *letter = c->name; *letter; ++letter)
        c->stream = c->stream * 131 + (unsigned char)*letter;
    c->at = (mics_exec){.device = cu_device(), .dtype = dtype, .threads = 1};
    if (workspace_bytes > 0)
        add_workspace(c, workspace_bytes);
}

void cu_end(cu_case *c)
{
    for (int i = 0; i < c->buffers; ++i) {
        cu_buffer *b = &c->buffer[i];
        if (b->data == c->at.workspace) {
            memset(b->before, POISON, GUARD_BYTES);
            memset(b->before + end_of(b), POISON, b->block_bytes - end_of(b));
            free_space(&spare);
            spare = c->space;
            continue;
        }
        free_space(&(cu_space){b->block, b->before, b->after, b->block_bytes});
        free(b->first);
        free(b->values);
        free(b->start);
    }
    for (int i = 0; i < c->kept; ++i)
        free(c->keep[i]);
}

double *cu_doubles(cu_case *c, int64_t elems)
{
    assert_in_range(c->kept, 0, CU_KEPT - 1);
    return c->keep[c->kept++] = zeroed((size_t)elems, sizeof(double));
}

cu_buffer *cu_output(cu_case *c, const char *name, int type, int64_t elems, int64_t offset)
{
    cu_buffer *buffer = add_buffer(c, name, type, elems, offset);
    buffer->first = zeroed(buffer->block_bytes, 1);
    buffer->values = zeroed((size_t)elems, sizeof(double));
    buffer->start = zeroed((size_t)elems, sizeof(double));
    return buffer;
}

void cu_changed(cu_buffer *buffer)
{
    for (int64_t i = 0; i < buffer->elems; ++i) {
        buffer->values[i] = buffer->start[i] = cu_rounded(buffer->type, buffer->values[i]);
        put(buffer->type, buffer->before + buffer->data_at + (size_t)i * type_bytes(buffer->type),
            buffer->values[i]);
    }
}

cu_buffer *cu_input(cu_case *c, const char *name, int type, int64_t elems, int64_t offset,
                    double scale)
{
    cu_buffer *buffer = cu_output(c, name, type, elems, offset);
    buffer->role = CU_INPUT;
    const uint64_t stream = c->stream + (uint64_t)c->buffers;
    for (int64_t i = 0; i < elems; ++i)
        buffer->values[i] = scale * mics_rng_normal(1, stream, (uint64_t)i);
    cu_changed(buffer);
    return buffer;
}

cu_buffer *cu_ints(cu_case *c, const char *name, int64_t elems, int64_t range)
{
    cu_buffer *buffer = cu_output(c, name, CU_INT32, elems, 0);
    buffer->role = CU_INPUT;
    for (int64_t i = 0; i < elems; ++i)
        buffer->values[i] = (double)(mics_rng_bits(2, c->stream, (uint64_t)i) % (uint64_t)range);
    cu_changed(buffer);
    return buffer;
}

cu_buffer *cu_inout(cu_case *c, const char *name, int type, int64_t elems, int64_t offset, bool add)
{
    if (!add)
        return cu_output(c, name, type, elems, offset);
    cu_buffer *buffer = cu_input(c, name, type, elems, offset, 1.0);
    buffer->role = CU_INOUT;
    return buffer;
}

void cu_expect(cu_buffer *buffer, const double *want, const double *magnitude, double tolerance)
{
    buffer->want = want;
    buffer->magnitude = magnitude;
    buffer->tolerance = tolerance;
}

// ---- checks ----

// A workspace may have as many megabytes as a GEMM asks for: of it only the guards are fetched.
static void fetch(const cu_case *c, const cu_buffer *b)
{
    const size_t end = end_of(b);
    if (b->data == c->at.workspace) {
        copy(b->after, b->block, b->data_at);
        copy(b->after + end, (char *)b->block + end, b->block_bytes - end);
    } else {
        copy(b->after, b->block, b->block_bytes);
    }
}

// What a buffer holds before a run. Of a workspace the guards and the first bytes are filled again: what follows is as earlier
// runs left it.
static void fill(const cu_case *c, const cu_buffer *b)
{
    const size_t begin = b->data_at + FILLED_AGAIN, end = end_of(b);
    if (b->data == c->at.workspace && begin < end) {
        copy(b->block, b->before, begin);
        copy((char *)b->block + end, b->before + end, b->block_bytes - end);
    } else {
        copy(b->block, b->before, b->block_bytes);
    }
}

static void check_guards(const cu_case *c, const cu_buffer *b)
{
    const size_t end = end_of(b);
    for (size_t i = 0; i < b->block_bytes; i = i + 1 == b->data_at ? end : i + 1)
        if (b->after[i] != GUARD)
            fail_msg("%s: wrote %zu bytes %s %s", c->name, i < end ? b->data_at - i : i - end + 1,
                     i < end ? "before" : "past", b->name);
}

static bool same(double got, double want)
{
    return (isnan(got) && isnan(want)) || got == want;
}

static void check_element(const cu_case *c, const cu_buffer *b, int64_t i)
{
    const size_t bytes = type_bytes(b->type), at = b->data_at + (size_t)i * bytes;
    const double got = b->values[i], want = b->want[i];
    if (isnan(want) && b->magnitude[i] == 0) {
        if (memcmp(b->after + at, b->before + at, bytes) != 0)
            fail_msg("%s: wrote %s[%lld], which is not to be written", c->name, b->name,
                     (long long)i);
        return;
    }
    if (!isfinite(want) || !isfinite(cu_rounded(b->type, want))) {
        if (!same(got, cu_rounded(b->type, want)))
            fail_msg("%s: %s[%lld] is %.9g, expected %.9g", c->name, b->name, (long long)i, got,
                     want);
        return;
    }
    double room = b->tolerance * b->magnitude[i] + 1e-37;
    if (b->type < MICS_DTYPES)
        room += 0.5 * type_step(b->type, fabs(want) + room);
    if (!(fabs(got - want) <= room))
        fail_msg("%s: %s[%lld] of %lld is %.9g, expected %.9g within %.3g", c->name, b->name,
                 (long long)i, (long long)b->elems, got, want, room);
}

static void check_buffer(const cu_case *c, cu_buffer *b, bool again)
{
    check_guards(c, b);
    if (b->data == c->at.workspace)
        return;
    if (b->role == CU_INPUT) {
        if (memcmp(b->after, b->before, b->block_bytes) != 0)
            fail_msg("%s: changed its input %s", c->name, b->name);
        return;
    }
    if (again && memcmp(b->after, b->first, b->block_bytes) != 0)
        fail_msg("%s: %s differs between two runs", c->name, b->name);
    memcpy(b->first, b->after, b->block_bytes);
    for (int64_t i = 0; i < b->elems; ++i) {
        b->values[i] = get(b->type, b->after + b->data_at + (size_t)i * type_bytes(b->type));
        if (b->want)
            check_element(c, b, i);
    }
}

// cmocka goes on with the next test after a crash. An emulated kernel crashes on a thread of its
// own, from which there is no way back: then the program has to end.
static void end_at_crash(void)
{
    static const int signals[] = {SIGFPE, SIGILL, SIGSEGV, SIGBUS};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; ++i)
        signal(signals[i], SIG_DFL);
}

void cu_run(cu_case *c, cu_run_fn run, const void *args)
{
    end_at_crash();
    for (int turn = 0; turn < 2; ++turn) {
        for (int i = 0; i < c->buffers; ++i)
            fill(c, &c->buffer[i]);
        run(&c->at, args);
        for (int i = 0; i < c->buffers; ++i)
            fetch(c, &c->buffer[i]);
        if (device->ops->synchronize(device->ctx, 0) != MICS_OK)
            fail_msg("%s: the device failed", c->name);
        for (int i = 0; i < c->buffers; ++i)
            check_buffer(c, &c->buffer[i], turn > 0);
    }
}
