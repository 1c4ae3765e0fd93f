// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "op_harness.h"
#include "base/rng.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const uint32_t GUARD = 0x7fde7fde; // a NaN that no arithmetic makes, and two of bf16

enum { GUARD_FLOATS = 32 };

// Which of the two runs of a program's tests this is.
static bool bf16_cases;

bool op_bf16(void)
{
    return bf16_cases;
}

double op_bf16_roundings(double count)
{
    return bf16_cases ? count * 0x1p-8 : 0;
}

// The nearest number that bf16 has, ties to even; NaNs stay.
static float rounded(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (!isnan(value))
        bits += 0x7fff + (bits >> 16 & 1);
    bits &= 0xffff0000U;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool holds_bf16(const op_buffer *buffer)
{
    return bf16_cases && !buffer->fp32 && buffer->role != OP_SPACE;
}

// A buffer's numbers to bf16, in its first half, with guard words behind; and back. Returns: false
// where those were written.
static void to_bf16(const op_buffer *buffer)
{
    uint16_t *halves = (uint16_t *)(void *)buffer->data;
    for (int64_t i = 0; i < buffer->elems; ++i) {
        uint32_t bits;
        memcpy(&bits, &buffer->data[i], sizeof bits);
        halves[i] = (uint16_t)(bits >> 16);
    }
    for (int64_t i = buffer->elems; i < 2 * buffer->elems; ++i)
        halves[i] = (uint16_t)GUARD;
}

static bool from_bf16(const op_buffer *buffer)
{
    const uint16_t *halves = (const uint16_t *)(const void *)buffer->data;
    bool kept = true;
    for (int64_t i = buffer->elems; i < 2 * buffer->elems; ++i)
        kept = kept && halves[i] == (uint16_t)GUARD;
    for (int64_t i = buffer->elems; i-- > 0;) {
        const uint32_t bits = (uint32_t)halves[i] << 16;
        memcpy(&buffer->data[i], &bits, sizeof bits);
    }
    return kept;
}

void op_begin(op_case *c, const char *format, ...)
{
    memset(c, 0, sizeof *c);
    va_list args;
    va_start(args, format);
    vsnprintf(c->name, sizeof c->name, format, args);
    va_end(args);
    for (const char *letter = c->name; *letter; ++letter)
        c->stream = c->stream * 131 + (unsigned char)*letter;
}

void op_end(op_case *c)
{
    for (int i = 0; i < c->buffers; ++i) {
        munmap(c->buffer[i].map, c->buffer[i].map_bytes);
        free(c->buffer[i].start);
        free(c->buffer[i].first);
    }
    for (int i = 0; i < c->wides; ++i)
        free(c->wide[i]);
}

static void *zeroed(int64_t elems, size_t size)
{
    void *block = calloc((size_t)elems + 1, size);
    if (!block)
        fail_msg("no memory for a test");
    return block;
}

static void fill_guard(uint32_t *words, int64_t count)
{
    for (int64_t i = 0; i < count; ++i)
        words[i] = GUARD;
}

static op_buffer *new_buffer(op_case *c, const char *name, op_role role, int64_t elems)
{
    assert_in_range(c->buffers, 0, OP_BUFFERS - 1);
    op_buffer *buffer = &c->buffer[c->buffers++];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t bytes = ((size_t)elems + GUARD_FLOATS) * sizeof(float);
    const size_t usable = (bytes + page - 1) / page * page;
    *buffer = (op_buffer){.name = name, .role = role, .elems = elems, .map_bytes = usable + page};
    buffer->map =
        mmap(NULL, buffer->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer->map == MAP_FAILED || mprotect((char *)buffer->map + usable, page, PROT_NONE) != 0)
        fail_msg("no memory for a test");
    buffer->data = (float *)((char *)buffer->map + usable) - elems;
    buffer->first = zeroed(elems, sizeof(float));
    return buffer;
}

static void fill_random(const op_case *c, float *data, int64_t elems, double scale)
{
    const uint64_t stream = c->stream + (uint64_t)c->buffers;
    for (int64_t i = 0; i < elems; ++i)
        data[i] = (float)(scale * mics_rng_normal(1, stream, (uint64_t)i));
    for (int64_t i = 0; bf16_cases && i < elems; ++i)
        data[i] = rounded(data[i]);
}

float *op_input(op_case *c, const char *name, int64_t elems, double scale)
{
    op_buffer *buffer = new_buffer(c, name, OP_INPUT, elems);
    fill_random(c, buffer->data, elems, scale);
    buffer->start = zeroed(elems, sizeof(float));
    memcpy(buffer->start, buffer->data, (size_t)elems * sizeof(float));
    return buffer->data;
}

float *op_inout(op_case *c, const char *name, int64_t elems, double scale)
{
    float *data = op_input(c, name, elems, scale);
    c->buffer[c->buffers - 1].role = OP_OUTPUT;
    return data;
}

float *op_output(op_case *c, const char *name, int64_t elems, bool add)
{
    op_buffer *buffer = new_buffer(c, name, add ? OP_SUM : OP_OUTPUT, elems);
    if (add) {
        buffer->start = zeroed(elems, sizeof(float));
        fill_random(c, buffer->start, elems, 1.0);
    }
    return buffer->data;
}

float *op_space(op_case *c, const char *name, int64_t elems)
{
    return new_buffer(c, name, OP_SPACE, elems)->data;
}

static op_buffer *find(op_case *c, const float *data)
{
    for (int i = 0; i < c->buffers; ++i)
        if (c->buffer[i].data == data)
            return &c->buffer[i];
    fail_msg("%s: not a buffer of this case", c->name);
    return NULL;
}

float *op_fp32(op_case *c, float *data)
{
    find(c, data)->fp32 = true;
    return data;
}

void op_input_changed(op_case *c, const float *data)
{
    op_buffer *buffer = find(c, data);
    for (int64_t i = 0; holds_bf16(buffer) && i < buffer->elems; ++i)
        buffer->data[i] = rounded(buffer->data[i]);
    memcpy(buffer->start, data, (size_t)buffer->elems * sizeof(float));
}

static void *keep(op_case *c, void *block)
{
    assert_in_range(c->wides, 0, OP_WIDES - 1);
    c->wide[c->wides++] = block;
    return block;
}

double *op_doubles(op_case *c, int64_t elems)
{
    return keep(c, zeroed(elems, sizeof(double)));
}

double *op_widen(op_case *c, const float *data)
{
    const op_buffer *buffer = find(c, data);
    double *wide = op_doubles(c, buffer->elems);
    for (int64_t i = 0; i < buffer->elems; ++i)
        wide[i] = (double)data[i];
    return wide;
}

int32_t *op_ints(op_case *c, int64_t elems)
{
    return keep(c, zeroed(elems, sizeof(int32_t)));
}

int32_t *op_random_ints(op_case *c, int64_t elems, int64_t range)
{
    int32_t *ints = op_ints(c, elems);
    for (int64_t i = 0; i < elems; ++i)
        ints[i] = (int32_t)(mics_rng_bits(2, c->stream, (uint64_t)i) % (uint64_t)range);
    return ints;
}

void op_expect(op_case *c, const float *data, const double *want, const double *magnitude,
               double tolerance)
{
    op_buffer *buffer = find(c, data);
    buffer->want = want;
    buffer->magnitude = magnitude;
    buffer->tolerance = tolerance;
}

static void prepare(op_buffer *buffer)
{
    int64_t words = (int64_t)(buffer->data - (float *)buffer->map) + buffer->elems;
    fill_guard(buffer->map, words);
    if (buffer->start)
        memcpy(buffer->data, buffer->start, (size_t)buffer->elems * sizeof(float));
    else
        for (int64_t i = 0; i < buffer->elems; ++i)
            buffer->data[i] = NAN;
    if (holds_bf16(buffer))
        to_bf16(buffer);
}

static void check_guard(const op_case *c, const op_buffer *buffer, const char *isa)
{
    const uint32_t *words = buffer->map;
    const int64_t count = buffer->data - (float *)buffer->map;
    for (int64_t i = 0; i < count; ++i)
        if (words[i] != GUARD)
            fail_msg("%s, %s: wrote %lld floats before %s", c->name, isa, (long long)(count - i),
                     buffer->name);
}

static void check_values(const op_case *c, const op_buffer *buffer, const char *isa)
{
    for (int64_t i = 0; buffer->want && i < buffer->elems; ++i) {
        const double start = buffer->role == OP_SUM ? (double)buffer->start[i] : 0.0;
        const double got = (double)buffer->data[i], want = start + buffer->want[i];
        // Kernels take exponentials below 1.2e-38 for 0.
        double room = buffer->tolerance * (fabs(start) + buffer->magnitude[i]) + 1e-36;
        if (holds_bf16(buffer)) // half a unit of what is rounded
            room += 0x1p-8 * (fabs(want) + room);
        if (!(fabs(got - want) <= room))
            fail_msg("%s, %s: %s[%lld] of %lld is %.9g, expected %.9g within %.3g", c->name, isa,
                     buffer->name, (long long)i, (long long)buffer->elems, got, want, room);
    }
}

static void check_buffer(const op_case *c, op_buffer *buffer, const char *isa, int32_t threads)
{
    const size_t bytes = (size_t)buffer->elems * sizeof(float);
    check_guard(c, buffer, isa);
    if (holds_bf16(buffer) && !from_bf16(buffer))
        fail_msg("%s, %s: wrote behind %s", c->name, isa, buffer->name);
    if (buffer->role == OP_SPACE)
        return;
    if (buffer->role == OP_INPUT) {
        if (memcmp(buffer->data, buffer->start, bytes) != 0)
            fail_msg("%s, %s: changed its input %s", c->name, isa, buffer->name);
        return;
    }
    check_values(c, buffer, isa);
    if (threads == 1)
        memcpy(buffer->first, buffer->data, bytes);
    else if (!c->depends_on_threads && memcmp(buffer->first, buffer->data, bytes) != 0)
        fail_msg("%s, %s: %s differs between 1 and %d threads", c->name, isa, buffer->name,
                 threads);
}

void op_run(op_case *c, op_run_fn run, const void *args)
{
    for (int32_t index = 0; index < mics_kernels_count(); ++index) {
        const mics_kernels *kernels = mics_kernels_at(index);
        if (kernels && bf16_cases)
            kernels = kernels->bf16;
        for (int32_t threads = 1; kernels && threads <= OP_MAX_THREADS; ++threads) {
            for (int i = 0; i < c->buffers; ++i)
                prepare(&c->buffer[i]);
            mics_op_set_threads(threads);
            run(kernels, threads, args);
            for (int i = 0; i < c->buffers; ++i)
                check_buffer(c, &c->buffer[i], kernels->name, threads);
        }
    }
}

int op_run_twice(const struct CMUnitTest *tests, size_t count)
{
    const int fp32 = runner_run("fp32", tests, count, NULL, NULL);
    bf16_cases = true;
    const int bf16 = runner_run("bf16", tests, count, NULL, NULL);
    return fp32 != 0 ? fp32 : bf16;
}

// Differences are of the reference alone, and take it 48 times for 12 samples: in bf16, whose
// reference is the same, and under sanitizers one sample does.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const int64_t MAX_SAMPLES = 1;
#else
static const int64_t MAX_SAMPLES = INT64_MAX;
#endif

void op_check_gradient(const op_case *c, const char *name, double (*objective)(const void *ctx),
                       const void *ctx, double *at, int64_t elems, const double *gradient,
                       int64_t samples)
{
    // Central differences with one Richardson step: the error falls with h^4.
    const double h = 1e-3;
    const int64_t most = bf16_cases ? 1 : MAX_SAMPLES;
    for (int64_t s = 0; s < samples && s < most && s < elems; ++s) {
        const int64_t i =
            samples >= elems
                ? s
                : (int64_t)(mics_rng_bits(3, c->stream, (uint64_t)s) % (uint64_t)elems);
        const double x = at[i];
        double slope[2];
        for (int half = 0; half < 2; ++half) {
            const double step = half ? h / 2 : h;
            at[i] = x + step;
            const double above = objective(ctx);
            at[i] = x - step;
            slope[half] = (above - objective(ctx)) / (2 * step);
        }
        at[i] = x;
        const double want = (4 * slope[1] - slope[0]) / 3;
        if (!(fabs(gradient[i] - want) <= 1e-7 * (1 + fabs(want))))
            fail_msg("%s: reference gradient of %s[%lld] is %.12g, differences give %.12g", c->name,
                     name, (long long)i, gradient[i], want);
    }
}

double op_dot(const double *a, const double *b, int64_t elems)
{
    double sum = 0;
    for (int64_t i = 0; i < elems; ++i)
        sum += a[i] * b[i];
    return sum;
}
