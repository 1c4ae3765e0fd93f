// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Communication dtypes: every table that this CPU can run, bit for bit against plain loops.
//
// A buffer of a test has any number of bytes. It ends at a page that may not be touched, so its
// alignment is that of its size; what stands before it must stay as it was.
#include "base/rng.h"
#include "ops/kernels.h"
#include "test.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GUARD = 0xa5, POISON = 0xff, LOWERS = 7, UPPERS = 1 << 16 };

static const int64_t SIZES[] = {1,   2,   3,   7,   8,   15,  16,  17,  31,   33,   63,   64,   65,
                                127, 129, 255, 256, 257, 511, 512, 513, 1000, 4095, 4097, 20001};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES };

// ---- buffers ----

typedef struct buffer {
    unsigned char *map, *data;
    size_t map_bytes, bytes;
} buffer;

// Filled with POISON: as a float, a bf16 or a scale that is a NaN.
static buffer buffer_open(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE),
                 usable = (bytes + 64 + page - 1) / page * page;
    buffer b = {.map_bytes = usable + page, .bytes = bytes};
    void *map = mmap(NULL, b.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect((char *)map + usable, page, PROT_NONE) != 0)
        fail_msg("no memory for a test");
    b.map = map;
    b.data = b.map + usable - bytes;
    memset(b.map, GUARD, usable - bytes);
    memset(b.data, POISON, bytes);
    return b;
}

static buffer buffer_copy(const void *data, size_t bytes)
{
    buffer b = buffer_open(bytes);
    memcpy(b.data, data, bytes);
    return b;
}

static void buffer_close(buffer *b, const char *isa)
{
    for (const unsigned char *at = b->map; at < b->data; ++at)
        if (*at != GUARD)
            fail_msg("%s: wrote %zu bytes before a buffer of %zu", isa, (size_t)(b->data - at),
                     b->bytes);
    munmap(b->map, b->map_bytes);
}

static float *floats_of(buffer b)
{
    return (float *)(void *)b.data;
}

static uint16_t *halves_of(buffer b)
{
    return (uint16_t *)(void *)b.data;
}

// Closes a buffer that must hold exactly these bytes.
static void expect_bytes(buffer *b, const void *want, const char *what, const char *isa)
{
    const unsigned char *bytes = want;
    for (size_t i = 0; i < b->bytes; ++i)
        if (b->data[i] != bytes[i])
            fail_msg("%s, %s: byte %zu of %zu is %02x, expected %02x", what, isa, i, b->bytes,
                     b->data[i], bytes[i]);
    buffer_close(b, isa);
}

static void *allocated(int64_t elems, size_t size)
{
    void *block = calloc((size_t)elems, size);
    if (!block)
        fail_msg("no memory for a test");
    return block;
}

// Normal numbers; every third is large, so that rounding carries and scales differ.
static float *random_floats(int64_t elems, uint64_t stream, double scale)
{
    float *data = allocated(elems, sizeof(float));
    for (int64_t i = 0; i < elems; ++i)
        data[i] = (float)(scale * mics_rng_normal(7, stream, (uint64_t)i) * (i % 3 ? 1 : 50));
    return data;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float widened(uint16_t bf16)
{
    return float_of((uint32_t)bf16 << 16);
}

// The tables to test, one after the other.
typedef void (*table_check)(const mics_kernels *k);

static void each_table(table_check check)
{
    for (int32_t index = 0; index < mics_kernels_count(); ++index)
        if (mics_kernels_at(index))
            check(mics_kernels_at(index));
}

// ---- names and sizes ----

static void names_and_sizes(void **state)
{
    (void)state;
    assert_string_equal(mics_comm_dtype_text(MICS_COMM_FP32), "fp32");
    assert_string_equal(mics_comm_dtype_text(MICS_COMM_BF16), "bf16");
    assert_string_equal(mics_comm_dtype_text(MICS_COMM_INT8), "int8");
    assert_string_equal(mics_comm_dtype_text(MICS_COMM_DTYPES), "unknown precision");
    assert_string_equal(mics_comm_dtype_text((mics_comm_dtype)-1), "unknown precision");
    assert_int_equal(mics_comm_dtype_bytes(MICS_COMM_FP32, 5), 20);
    assert_int_equal(mics_comm_dtype_bytes(MICS_COMM_BF16, 5), 10);
    assert_int_equal(mics_comm_dtype_bytes(MICS_COMM_INT8, 0), 0);
    assert_int_equal(mics_comm_dtype_bytes(MICS_COMM_INT8, 1), 64);
    assert_int_equal(mics_comm_dtype_bytes(MICS_COMM_INT8, 60), 64);
    assert_int_equal(mics_comm_dtype_bytes(MICS_COMM_INT8, 61), 128);
    assert_int_equal(mics_comm_dtype_bytes(MICS_COMM_INT8, 256), 320);
    assert_int_equal(mics_comm_dtype_bytes(MICS_COMM_INT8, 257), 320);
    assert_string_equal(mics_comm_dtype_text(MICS_COMM_INT4), "int4");
    assert_int_equal(mics_comm_dtype_bytes(MICS_COMM_INT4, 0), 0);
    assert_int_equal(mics_comm_dtype_bytes(MICS_COMM_INT4, 120), 64);
    assert_int_equal(mics_comm_dtype_bytes(MICS_COMM_INT4, 121), 128);
    assert_int_equal(mics_comm_dtype_bytes(MICS_COMM_INT4, 256), 192);
    assert_int_equal(mics_comm_dtype_bytes(MICS_COMM_INT4, 512), 320);
}

// ---- bf16 ----

// By choice between the two neighbours.
static uint16_t bf16_reference(float value)
{
    const uint32_t bits = bits_of(value);
    const uint16_t below = (uint16_t)(bits >> 16), lower = (uint16_t)bits;
    if (isnan(value))
        return below | 0x40;
    if (lower == 0x8000)
        return below & 1 ? below + 1 : below;
    return lower > 0x8000 ? below + 1 : below;
}

static float *every_upper_half(void)
{
    static const uint16_t lowers[LOWERS] = {0, 1, 0x4000, 0x7fff, 0x8000, 0x8001, 0xffff};
    float *values = allocated((int64_t)UPPERS * LOWERS, sizeof(float));
    for (uint32_t upper = 0; upper < UPPERS; ++upper)
        for (uint32_t l = 0; l < LOWERS; ++l)
            values[upper * LOWERS + l] = float_of(upper << 16 | lowers[l]);
    return values;
}

static void every_upper_half_packs(const mics_kernels *k)
{
    const int64_t elems = (int64_t)UPPERS * LOWERS;
    float *values = every_upper_half();
    buffer packed = buffer_open(2 * (size_t)elems);
    k->pack_bf16(halves_of(packed), values, elems);
    for (int64_t i = 0; i < elems; ++i) {
        const uint16_t got = halves_of(packed)[i], want = bf16_reference(values[i]);
        if (got != want)
            fail_msg("pack_bf16, %s: %08x gave %04x, expected %04x", k->name, bits_of(values[i]),
                     got, want);
        assert_int_equal(!isnan(values[i]), !isnan(widened(got)));
    }
    buffer_close(&packed, k->name);
    free(values);
}

static void every_bf16_unpacks_and_adds(const mics_kernels *k)
{
    buffer packed = buffer_open(2 * (size_t)UPPERS), values = buffer_open(4 * (size_t)UPPERS);
    float *sums = random_floats(UPPERS, 3, 1.0);
    buffer sum = buffer_copy(sums, 4 * (size_t)UPPERS);
    for (uint32_t i = 0; i < UPPERS; ++i)
        halves_of(packed)[i] = (uint16_t)i;
    k->unpack_bf16(floats_of(values), halves_of(packed), UPPERS);
    k->add_bf16(floats_of(sum), halves_of(packed), UPPERS);
    for (uint32_t i = 0; i < UPPERS; ++i) {
        const float got = floats_of(sum)[i], want = sums[i] + widened((uint16_t)i);
        assert_int_equal(halves_of(packed)[i], i);
        assert_int_equal(bits_of(floats_of(values)[i]), i << 16);
        if (bits_of(got) != bits_of(want) && !(isnan(got) && isnan(want)))
            fail_msg("add_bf16, %s: %04x to %.9g gave %.9g, expected %.9g", k->name, i,
                     (double)sums[i], (double)got, (double)want);
    }
    buffer_close(&packed, k->name);
    buffer_close(&values, k->name);
    buffer_close(&sum, k->name);
    free(sums);
}

static void pack_bf16_case(const mics_kernels *k, int64_t elems)
{
    const size_t whole = 4 * (size_t)elems, half = whole / 2;
    float *values = random_floats(elems, (uint64_t)elems, 1.0);
    uint16_t *want = allocated(2 * elems, sizeof *want);
    buffer in = buffer_copy(values, whole), packed = buffer_open(half);
    k->pack_bf16(halves_of(packed), floats_of(in), elems);
    expect_bytes(&in, values, "input of pack_bf16", k->name);
    in = buffer_copy(values, whole);
    k->pack_bf16(halves_of(in), floats_of(in), elems);
    memcpy(want, values, whole);
    for (int64_t i = 0; i < elems; ++i)
        want[i] = bf16_reference(values[i]);
    expect_bytes(&packed, want, "pack_bf16", k->name);
    expect_bytes(&in, want, "pack_bf16 in place", k->name);
    free(values);
    free(want);
}

// `at`: byte of values where the packed numbers begin.
static void unpack_bf16_in_place(const mics_kernels *k, const uint16_t *packed, const float *want,
                                 int64_t elems, size_t at)
{
    buffer both = buffer_open(4 * (size_t)elems);
    memcpy(both.data + at, packed, 2 * (size_t)elems);
    k->unpack_bf16(floats_of(both), (const uint16_t *)(const void *)(both.data + at), elems);
    expect_bytes(&both, want, "unpack_bf16 in place", k->name);
}

static void unpack_bf16_case(const mics_kernels *k, int64_t elems)
{
    const size_t whole = 4 * (size_t)elems, half = whole / 2;
    uint16_t *packed = allocated(elems, sizeof *packed);
    float *want = allocated(elems, sizeof *want), *sums = random_floats(elems, 5, 1.0);
    for (int64_t i = 0; i < elems; ++i) {
        packed[i] = (uint16_t)mics_rng_bits(9, (uint64_t)elems, (uint64_t)i) & 0xbfff; // finite
        want[i] = widened(packed[i]);
    }
    buffer in = buffer_copy(packed, half), out = buffer_open(whole), sum = buffer_copy(sums, whole);
    k->unpack_bf16(floats_of(out), halves_of(in), elems);
    expect_bytes(&out, want, "unpack_bf16", k->name);
    unpack_bf16_in_place(k, packed, want, elems, half);
    unpack_bf16_in_place(k, packed, want, elems, 4 * (size_t)(elems / 2));
    k->add_bf16(floats_of(sum), halves_of(in), elems);
    for (int64_t i = 0; i < elems; ++i)
        sums[i] += want[i];
    expect_bytes(&sum, sums, "add_bf16", k->name);
    expect_bytes(&in, packed, "input of unpack_bf16 and add_bf16", k->name);
    free(packed);
    free(want);
    free(sums);
}

static void bf16_of_any_size(const mics_kernels *k)
{
    for (int i = 0; i < SIZE_COUNT; ++i) {
        pack_bf16_case(k, SIZES[i]);
        unpack_bf16_case(k, SIZES[i]);
    }
    for (int64_t elems = 1; elems <= 130; ++elems) {
        pack_bf16_case(k, elems);
        unpack_bf16_case(k, elems);
    }
}

static void bf16_is_exact(void **state)
{
    (void)state;
    each_table(every_upper_half_packs);
    each_table(every_bf16_unpacks_and_adds);
}

static void bf16_in_place_and_apart(void **state)
{
    (void)state;
    each_table(bf16_of_any_size);
}

// ---- int8 ----

// Quotients by way of fp64, which rounds them to fp32 correctly.
static float quotient(float a, float b)
{
    return (float)((double)a / (double)b);
}

static float scale_reference(const float *values, int64_t elems, float most)
{
    float largest = 0;
    for (int64_t i = 0; i < elems; ++i) {
        if (!isfinite(values[i]))
            return NAN;
        largest = fmaxf(largest, fabsf(values[i]));
    }
    const float scale = quotient(largest, most);
    if (scale < FLT_MIN)
        return 0;
    int exponent = 0;
    const double fraction = frexp((double)scale, &exponent);
    return (float)ldexp(floor(ldexp(fraction, 17)), exponent - 17);
}

// What packed and residual must hold; values: what is packed, the residual included. residual may
// be NULL.
static void int8_reference(unsigned char *packed, float *residual, const float *values,
                           int64_t elems)
{
    const int64_t blocks = (elems + MICS_COMM_INT8_BLOCK - 1) / MICS_COMM_INT8_BLOCK;
    int8_t *q = (int8_t *)packed + 4 * blocks;
    memset(packed, 0, mics_comm_dtype_bytes(MICS_COMM_INT8, elems));
    for (int64_t block = 0; block < blocks; ++block) {
        const int64_t first = block * MICS_COMM_INT8_BLOCK, rest = elems - first;
        const int64_t size = rest < MICS_COMM_INT8_BLOCK ? rest : MICS_COMM_INT8_BLOCK;
        const float scale = scale_reference(values + first, size, 127);
        memcpy(packed + 4 * block, &scale, sizeof scale);
        for (int64_t i = first; i < first + size; ++i) {
            double nearest = scale > 0 ? rint((double)quotient(values[i], scale)) : 0;
            nearest = fmin(fmax(nearest, -127), 127);
            q[i] = (int8_t)nearest;
            const float unpacked = (float)nearest * scale;
            if (residual)
                residual[i] = isnan(scale) ? 0 : values[i] - unpacked;
        }
    }
}

// What stands in packed numbers.
static float int8_at(const unsigned char *packed, int64_t elems, int64_t i)
{
    const int64_t blocks = (elems + MICS_COMM_INT8_BLOCK - 1) / MICS_COMM_INT8_BLOCK;
    float scale;
    memcpy(&scale, packed + 4 * (i / MICS_COMM_INT8_BLOCK), sizeof scale);
    return (float)((const int8_t *)packed)[4 * blocks + i] * scale;
}

// Checks that packed numbers, at an address with no alignment, unpack and add.
static void unpack_int8_case(const mics_kernels *k, const unsigned char *packed, int64_t elems)
{
    const size_t bytes = mics_comm_dtype_bytes(MICS_COMM_INT8, elems), whole = 4 * (size_t)elems;
    float *sums = random_floats(elems, 11, 1.0), *want = allocated(elems, sizeof *want);
    buffer in = buffer_copy(packed, bytes), odd = buffer_open(bytes + 3);
    buffer out = buffer_open(whole), sum = buffer_copy(sums, whole);
    memcpy(odd.data, packed, bytes);
    k->unpack_int8(floats_of(out), in.data, elems);
    k->add_int8(floats_of(sum), odd.data, elems);
    expect_bytes(&in, packed, "input of unpack_int8", k->name);
    buffer_close(&odd, k->name);
    for (int64_t i = 0; i < elems; ++i) {
        want[i] = int8_at(packed, elems, i);
        sums[i] += want[i];
    }
    expect_bytes(&out, want, "unpack_int8", k->name);
    expect_bytes(&sum, sums, "add_int8", k->name);
    free(sums);
    free(want);
}

// Packs with a residual and, at an odd address, without one.
static void pack_int8_case(const mics_kernels *k, const float *values, const float *residual,
                           int64_t elems)
{
    const size_t bytes = mics_comm_dtype_bytes(MICS_COMM_INT8, elems), whole = 4 * (size_t)elems;
    unsigned char *want = allocated((int64_t)bytes + 3, 1);
    float *total = allocated(elems, sizeof *total), *left = allocated(elems, sizeof *left);
    for (int64_t i = 0; i < elems; ++i)
        total[i] = values[i] + residual[i];
    buffer in = buffer_copy(values, whole), kept = buffer_copy(residual, whole);
    buffer packed = buffer_open(bytes), odd = buffer_open(bytes + 3);
    k->pack_int8(packed.data, floats_of(in), floats_of(kept), elems);
    k->pack_int8(odd.data, floats_of(in), NULL, elems);
    int8_reference(want, left, total, elems);
    expect_bytes(&packed, want, "pack_int8", k->name);
    expect_bytes(&kept, left, "residual of pack_int8", k->name);
    expect_bytes(&in, values, "input of pack_int8", k->name);
    unpack_int8_case(k, want, elems);
    int8_reference(want, NULL, values, elems);
    memset(want + bytes, POISON, 3);
    expect_bytes(&odd, want, "pack_int8 without a residual", k->name);
    free(want);
    free(total);
    free(left);
}

static void int8_of_any_size(const mics_kernels *k)
{
    static const double magnitudes[] = {1.0, 3e-5, 1e30, 1e-34};
    for (int i = 0; i < SIZE_COUNT; ++i)
        for (size_t m = 0; m < sizeof magnitudes / sizeof *magnitudes; ++m) {
            float *values = random_floats(SIZES[i], (uint64_t)i, magnitudes[m]);
            float *residual = random_floats(SIZES[i], 100 + (uint64_t)i, 0.1 * magnitudes[m]);
            pack_int8_case(k, values, residual, SIZES[i]);
            free(values);
            free(residual);
        }
}

static void int8_matches_reference(void **state)
{
    (void)state;
    each_table(int8_of_any_size);
}

// Ties, both ends of the range, and integers, which the scale 1 represents.
static void int8_ties(const mics_kernels *k)
{
    enum { SIZE = 254 + 255 };
    float values[SIZE], residual[SIZE] = {0}, total[SIZE];
    for (int i = 0; i < 254; ++i)
        values[i] = (float)i - 126.5F; // largest 127 stands below
    values[253] = 127;
    for (int i = 0; i < 255; ++i)
        values[254 + i] = (float)(i - 127);
    values[256] = 127;
    pack_int8_case(k, values, residual, SIZE);
    unsigned char packed[576];
    k->pack_int8(packed, values, residual, SIZE);
    k->unpack_int8(total, packed, SIZE);
    for (int i = 0; i < SIZE; ++i) {
        assert_true(total[i] == rintf(values[i]));
        assert_true(residual[i] == values[i] - total[i]);
    }
}

// Zeros, numbers too small for a scale, the largest ones; NaN and infinities, also by overflow of
// the sum with the residual. Each in a block of its own, beside blocks that must not notice.
static void int8_edges(const mics_kernels *k)
{
    static const float edges[] = {0.0F,      -0.0F,   1e-45F,   -1e-38F,       1.4e-36F,
                                  1.5e-36F,  FLT_MAX, -FLT_MAX, 3e38F,         INFINITY,
                                  -INFINITY, NAN,     -NAN,     127 * FLT_MIN, FLT_MIN};
    enum {
        EDGES = sizeof edges / sizeof *edges,
        SIZE = (2 * EDGES + 1) * MICS_COMM_INT8_BLOCK - 100
    };
    float *values = random_floats(SIZE, 1, 1.0), *residual = random_floats(SIZE, 2, 0.1);
    for (int edge = 0; edge < EDGES; ++edge)
        for (int i = 0; i < MICS_COMM_INT8_BLOCK; ++i) {
            const int64_t at = (2 * edge + 1) * MICS_COMM_INT8_BLOCK + i;
            const bool alone = isfinite(edges[edge]); // else it comes among others
            values[at] = i == 77 ? edges[edge] : alone ? 0.1F * edges[edge] : values[at];
            residual[at] = alone ? 0.05F * edges[edge] : residual[at];
        }
    pack_int8_case(k, values, residual, SIZE);
    float *zero = allocated(SIZE, sizeof *zero);
    pack_int8_case(k, values, zero, SIZE);
    free(values);
    free(residual);
    free(zero);
}

// A block that is not finite is NaN to whoever receives it, and leaves nothing behind.
static void int8_not_finite(const mics_kernels *k)
{
    enum { SIZE = 3 * MICS_COMM_INT8_BLOCK };
    static const float bad[] = {INFINITY, -INFINITY, NAN, FLT_MAX};
    for (size_t b = 0; b < sizeof bad / sizeof *bad; ++b) {
        unsigned char packed[832];
        float values[SIZE], residual[SIZE], unpacked[SIZE], sum[SIZE];
        for (int i = 0; i < SIZE; ++i)
            values[i] = residual[i] = sum[i] = 1.0F;
        values[MICS_COMM_INT8_BLOCK + 5] = bad[b];
        residual[MICS_COMM_INT8_BLOCK + 5] = FLT_MAX;
        k->pack_int8(packed, values, residual, SIZE);
        k->unpack_int8(unpacked, packed, SIZE);
        k->add_int8(sum, packed, SIZE);
        for (int i = 0; i < SIZE; ++i) {
            const bool lost = i / MICS_COMM_INT8_BLOCK == 1;
            assert_int_equal(!isnan(unpacked[i]), !lost);
            assert_int_equal(!isnan(sum[i]), !lost);
            assert_true(lost ? residual[i] == 0.0F : fabsf(residual[i]) < 0.01F);
        }
    }
}

static void int8_at_the_edges(void **state)
{
    (void)state;
    each_table(int8_ties);
    each_table(int8_edges);
    each_table(int8_not_finite);
}

// Over many steps all that was put in comes out, but for one quantum: also what is far below a
// quantum in each step, and without a residual would be lost for ever.
static void int8_feeds_errors_back(const mics_kernels *k)
{
    enum { SIZE = 700, STEPS = 500 };
    unsigned char packed[768];
    float values[SIZE], residual[SIZE] = {0}, unpacked[SIZE], plain[SIZE] = {0};
    double in[SIZE] = {0}, out[SIZE] = {0}, largest_quantum = 0;
    for (int step = 0; step < STEPS; ++step) {
        for (int i = 0; i < SIZE; ++i) {
            const double noise = mics_rng_normal(5, (uint64_t)step, (uint64_t)i);
            values[i] = i % MICS_COMM_INT8_BLOCK == 0 ? 1.0F : i % 2 ? 1e-3F : (float)(0.1 * noise);
            in[i] += (double)values[i];
        }
        k->pack_int8(packed, values, NULL, SIZE);
        k->add_int8(plain, packed, SIZE);
        k->pack_int8(packed, values, residual, SIZE);
        k->unpack_int8(unpacked, packed, SIZE);
        for (int i = 0; i < SIZE; ++i)
            out[i] += (double)unpacked[i];
        for (int block = 0; block < 3; ++block) {
            float scale;
            memcpy(&scale, packed + 4 * block, sizeof scale);
            largest_quantum = fmax(largest_quantum, (double)scale);
        }
    }
    for (int i = 0; i < SIZE; ++i) {
        if (!(fabs(out[i] - in[i]) <= largest_quantum))
            fail_msg("%s: after %d steps element %d is %.9g, expected %.9g within %.3g", k->name,
                     STEPS, i, out[i], in[i], largest_quantum);
        if (i % MICS_COMM_INT8_BLOCK != 0 && i % 2)
            assert_true(plain[i] == 0.0F && out[i] > 0.4);
    }
}

static void int8_loses_nothing_over_steps(void **state)
{
    (void)state;
    each_table(int8_feeds_errors_back);
}

// ---- int4 ----

// Zeros are 8 in a byte's half; what holds no number is 0.
static void int4_reference(unsigned char *packed, float *residual, const float *values,
                           int64_t elems)
{
    const int64_t blocks = (elems + MICS_COMM_INT8_BLOCK - 1) / MICS_COMM_INT8_BLOCK;
    unsigned char *halves = packed + 4 * blocks;
    memset(packed, 0, mics_comm_dtype_bytes(MICS_COMM_INT4, elems));
    for (int64_t i = 0; i < elems; ++i) {
        const int64_t first = i - i % MICS_COMM_INT8_BLOCK, rest = elems - first;
        const float scale = scale_reference(
            values + first, rest < MICS_COMM_INT8_BLOCK ? rest : MICS_COMM_INT8_BLOCK, 7);
        double nearest = scale > 0 ? rint((double)quotient(values[i], scale)) : 0;
        nearest = fmin(fmax(nearest, -7), 7);
        memcpy(packed + 4 * (i / MICS_COMM_INT8_BLOCK), &scale, sizeof scale);
        halves[i / 2] = (unsigned char)(halves[i / 2] | ((int)nearest + 8) << 4 * (i % 2));
        residual[i] = isnan(scale) ? 0 : values[i] - (float)nearest * scale;
    }
}

static void int4_case(const mics_kernels *k, const float *values, const float *residual,
                      int64_t elems)
{
    const size_t bytes = mics_comm_dtype_bytes(MICS_COMM_INT4, elems), whole = 4 * (size_t)elems;
    unsigned char *want = allocated((int64_t)bytes, 1);
    float *total = allocated(elems, sizeof *total), *left = allocated(elems, sizeof *left);
    float *sums = random_floats(elems, 11, 1.0), *numbers = allocated(elems, sizeof *numbers);
    for (int64_t i = 0; i < elems; ++i)
        total[i] = values[i] + residual[i];
    int4_reference(want, left, total, elems);
    const int64_t blocks = (elems + MICS_COMM_INT8_BLOCK - 1) / MICS_COMM_INT8_BLOCK;
    for (int64_t i = 0; i < elems; ++i) {
        float scale;
        memcpy(&scale, want + 4 * (i / MICS_COMM_INT8_BLOCK), sizeof scale);
        numbers[i] = (float)((want[4 * blocks + i / 2] >> 4 * (i % 2) & 15) - 8) * scale;
    }
    buffer in = buffer_copy(values, whole), kept = buffer_copy(residual, whole);
    buffer packed = buffer_open(bytes), out = buffer_open(whole), sum = buffer_copy(sums, whole);
    k->pack_int4(packed.data, floats_of(in), floats_of(kept), elems);
    k->unpack_int4(floats_of(out), packed.data, elems);
    k->add_int4(floats_of(sum), packed.data, elems);
    for (int64_t i = 0; i < elems; ++i)
        sums[i] += numbers[i];
    expect_bytes(&packed, want, "pack_int4", k->name);
    expect_bytes(&kept, left, "residual of pack_int4", k->name);
    expect_bytes(&in, values, "input of pack_int4", k->name);
    expect_bytes(&out, numbers, "unpack_int4", k->name);
    expect_bytes(&sum, sums, "add_int4", k->name);
    free(want);
    free(total);
    free(left);
    free(sums);
    free(numbers);
}

static void int4_of_any_size(const mics_kernels *k)
{
    static const double magnitudes[] = {1.0, 3e-5, 1e30, 1e-36};
    for (int i = 0; i < SIZE_COUNT; ++i)
        for (size_t m = 0; m < sizeof magnitudes / sizeof *magnitudes; ++m) {
            float *values = random_floats(SIZES[i], (uint64_t)i, magnitudes[m]);
            float *residual = random_floats(SIZES[i], 100 + (uint64_t)i, 0.1 * magnitudes[m]);
            int4_case(k, values, residual, SIZES[i]);
            free(values);
            free(residual);
        }
}

// A block with an infinity beside one that must not notice.
static void int4_not_finite(const mics_kernels *k)
{
    enum { SIZE = 2 * MICS_COMM_INT8_BLOCK };
    float *values = random_floats(SIZE, 1, 1.0), *residual = random_floats(SIZE, 2, 0.1);
    unsigned char packed[320];
    values[3] = -INFINITY;
    k->pack_int4(packed, values, residual, SIZE);
    k->unpack_int4(values, packed, SIZE);
    for (int i = 0; i < MICS_COMM_INT8_BLOCK; ++i) {
        assert_true(isnan(values[i]) && residual[i] == 0);
        assert_true(isfinite(values[MICS_COMM_INT8_BLOCK + i]));
    }
    free(values);
    free(residual);
}

static void int4_matches_reference(void **state)
{
    (void)state;
    each_table(int4_of_any_size);
    each_table(int4_not_finite);
}

// ---- changes of meetings ----

static void changes_are_plain(const mics_kernels *k)
{
    enum { SIZE = 5003 };
    const mics_exec at = {.threads = 1};
    float *a = random_floats(SIZE, 21, 1.0), *h = random_floats(SIZE, 22, 1.0),
          *message = allocated(SIZE, sizeof *message), *momentum = random_floats(SIZE, 23, 1.0);
    k->meet_change(&at, message, a, h, 0.37F, SIZE);
    for (int i = 0; i < SIZE; ++i)
        assert_true(message[i] == 0.37F * (a[i] - h[i]));
    float *before = random_floats(SIZE, 23, 1.0), *sent = allocated(SIZE, sizeof *sent);
    memcpy(sent, message, SIZE * sizeof *sent);
    const mics_outer_step step = {message, momentum, SIZE, 1.7F, 0.7F, 0.9F};
    k->meet_step(&at, &step);
    for (int i = 0; i < SIZE; ++i) {
        const double g = (double)sent[i] / 1.7F, m = 0.9F * (double)before[i] + g;
        assert_true(fabs(momentum[i] - m) <= 1e-6 * (fabs(0.9 * before[i]) + fabs(g)));
        assert_true(fabs(message[i] + 0.7F * (g + 0.9F * m)) <=
                    1e-6 * (fabs(before[i]) + 2 * fabs(g)));
    }
    memcpy(sent, a, SIZE * sizeof *sent);
    k->meet_adopt(&at, h, a, message, SIZE);
    for (int i = 0; i < SIZE; ++i)
        assert_true(a[i] == sent[i] + message[i] && h[i] == a[i]);
    k->meet_change(&at, message, NULL, h, 0.37F, SIZE);
    for (int i = 0; i < SIZE; ++i)
        assert_true(message[i] == 0.37F * h[i]);
    free(a);
    free(h);
    free(message);
    free(momentum);
    free(before);
    free(sent);
}

// What is sent and what is kept make up the number.
static void changes_round(const mics_kernels *k)
{
    enum { SIZE = 5003 };
    const mics_exec at = {.threads = 1};
    float *values = random_floats(SIZE, 31, 1.0), *residual = random_floats(SIZE, 32, 0.01),
          *before = random_floats(SIZE, 32, 0.01);
    uint16_t *packed = allocated(SIZE, sizeof *packed);
    values[7] = INFINITY;
    k->meet_round(&at, packed, values, residual, SIZE);
    for (int i = 0; i < SIZE; ++i) {
        const float value = before[i] + values[i];
        assert_int_equal(packed[i], bf16_reference(value));
        assert_true(residual[i] == (i == 7 ? 0 : value - widened(packed[i])));
    }
    free(values);
    free(residual);
    free(before);
    free(packed);
}

static void changes(void **state)
{
    (void)state;
    each_table(changes_are_plain);
    each_table(changes_round);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sizes),         cmocka_unit_test(bf16_is_exact),
        cmocka_unit_test(bf16_in_place_and_apart), cmocka_unit_test(int8_matches_reference),
        cmocka_unit_test(int4_matches_reference),  cmocka_unit_test(changes),
        cmocka_unit_test(int8_at_the_edges),       cmocka_unit_test(int8_loses_nothing_over_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
