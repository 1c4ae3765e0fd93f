// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// States of optimizers in fewer bits: the code, the nearest of it, the same bytes again, what is
// lost, and bits that are alike on every instruction set and with any number of threads.
#include "base/rng.h"
#include "ops/kernels.h"
#include "ops/vector/state_code.h"
#include "test.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ELEMS = 20000, GUARD = 64 };
static const int64_t SIZES[] = {1, 2, 255, 256, 257, 1000, 4096, MAX_ELEMS};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES };

typedef struct packed {
    _Alignas(16) uint8_t bytes[2 * MAX_ELEMS + 4 * MAX_ELEMS / MICS_STATE_BLOCK + GUARD];
} packed;

static mics_state_part part_of(packed *in, mics_state_dtype dtype, bool squares, int64_t elems)
{
    const size_t scales = mics_state_scale_bytes(dtype, elems);
    assert_true(mics_state_bytes(dtype, elems) + GUARD <= sizeof in->bytes);
    return (mics_state_part){.dtype = dtype,
                             .squares = squares,
                             .scales = (float *)(void *)in->bytes,
                             .held = in->bytes + scales,
                             .elems = elems};
}

static void pack(const mics_kernels *k, packed *out, mics_state_dtype dtype, bool squares,
                 const float *values, int64_t elems, const mics_state_draw *draw)
{
    const mics_exec at = {.threads = 1};
    memset(out, 0xA5, sizeof *out);
    const mics_state_part part = part_of(out, dtype, squares, elems);
    k->pack_state(&at, &part, values, draw);
    for (size_t i = mics_state_bytes(dtype, elems); i < sizeof out->bytes; i++)
        assert_int_equal(out->bytes[i], 0xA5);
}

static void unpack(const mics_kernels *k, const packed *in, mics_state_dtype dtype, bool squares,
                   float *values, int64_t elems)
{
    static packed copy;
    const mics_exec at = {.threads = 1};
    copy = *in;
    const mics_state_part part = part_of(&copy, dtype, squares, elems);
    k->unpack_state(&at, values, &part);
    assert_memory_equal(&copy, in, sizeof copy);
}

// Magnitudes over 12 decades, some equal ones, some of both signs, blocks of zeros, and some that
// are below what a scale may be.
static void fill(float *values, int64_t elems, bool squares, uint64_t stream)
{
    for (int64_t i = 0; i < elems; i++) {
        const double size = pow(10, -12 * mics_rng_uniform(1, stream, (uint64_t)i));
        const double value = size * mics_rng_normal(2, stream, (uint64_t)i);
        const int64_t block = i / MICS_STATE_BLOCK;
        values[i] = (float)(squares ? value * value : value);
        if (block % 7 == 3)
            values[i] = 0;
        if (block % 7 == 4)
            values[i] *= 1e-34F;
        if (block % 7 == 5 && !squares)
            values[i] = i % 3 == 0 ? -2.5F : 2.5F;
        if (block % 7 == 6 && !squares)
            values[i] = -fabsf(values[i]);
    }
}

// Of bitsandbytes: the numbers that create_dynamic_map prints.
static void test_code(void **state)
{
    (void)state;
    const mics_state_code with_sign = mics_state_code_of(false), squares = mics_state_code_of(true);
    static const struct {
        int at;
        float with_sign, squares;
    } expected[] = {
        {0, -0.99296875F, 0},
        {1, -0.97890625F, 3.25e-7F},
        {126, -5.5e-7F, 0},
        {127, 0, 0},
        {128, 5.5e-7F, 0},
        {129, 3.25e-6F, 0},
        {254, 0.99296875F, 0.99648F},
        {255, 1, 1},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const float a = with_sign.values[expected[i].at], b = squares.values[expected[i].at];
        assert_true(fabsf(a - expected[i].with_sign) <= 1e-6F * fabsf(a));
        assert_true(expected[i].squares == 0 || fabsf(b - expected[i].squares) <= 1e-5F * b);
    }
    for (int i = 1; i < MICS_STATE_CODES; i++) {
        assert_true(with_sign.values[i] > with_sign.values[i - 1]);
        assert_true(squares.values[i] > squares.values[i - 1]);
    }
    assert_true(squares.values[0] == 0);
}

// The nearest of the code's numbers, tried one by one; in squares never 0 for what is above.
static void check_nearest(const mics_state_code *code, const float *values, const float *got,
                          int64_t elems)
{
    double largest = 0;
    for (int64_t i = 0; i < elems; i++)
        if (fabs((double)values[i]) > fabs(largest) ||
            (fabs((double)values[i]) == fabs(largest) && values[i] > 0))
            largest = (double)values[i];
    if (fabs(largest) < 0x1p-100)
        largest = 0;
    for (int64_t i = 0; i < elems; i++) {
        double best = INFINITY;
        for (int c = code->squares && values[i] > 0 ? 1 : 0; c < MICS_STATE_CODES; c++) {
            const double off = fabs((double)code->values[c] * largest - (double)values[i]);
            best = off < best ? off : best;
        }
        const double off = fabs((double)got[i] - (double)values[i]);
        assert_true(largest == 0 ||
                    off <= (code->squares ? 0.0036 : 0.0071) * fabs(largest)); // as in config.md
        if (largest == 0 ? got[i] != 0 || signbit(got[i]) : off > best + 1e-6 * fabs(largest))
            fail_msg("element %d is %.9g, became %.9g; scale %.9g", (int)i, (double)values[i],
                     (double)got[i], largest);
        if (fabs((double)values[i]) == fabs(largest) && (double)values[i] == largest)
            assert_true(got[i] == values[i]);
        if (code->squares && largest > 0)
            assert_true((got[i] > 0) == (values[i] > 0));
    }
}

static void test_nearest_in_8_bits(void **state)
{
    (void)state;
    static float values[MAX_ELEMS], got[MAX_ELEMS];
    static packed held;
    for (int squares = 0; squares < 2; squares++) {
        const mics_state_code code = mics_state_code_of(squares == 1);
        for (int i = 0; i < SIZE_COUNT; i++) {
            const mics_kernels *k = mics_kernels_get(NULL);
            fill(values, SIZES[i], squares == 1, (uint64_t)i);
            pack(k, &held, MICS_STATE_8BIT, squares == 1, values, SIZES[i], NULL);
            unpack(k, &held, MICS_STATE_8BIT, squares == 1, got, SIZES[i]);
            for (int64_t at = 0; at < SIZES[i]; at += MICS_STATE_BLOCK) {
                const int64_t rest = SIZES[i] - at;
                check_nearest(&code, values + at, got + at,
                              rest < MICS_STATE_BLOCK ? rest : MICS_STATE_BLOCK);
            }
        }
    }
}

// What a checkpoint holds comes back as the same bytes, drawn or not.
static void test_same_bytes_again(void **state)
{
    (void)state;
    static float values[MAX_ELEMS], wide[MAX_ELEMS];
    static packed held, again;
    const mics_state_draw draw = {.key = 5, .first = 512, .state = 1},
                          other = {.key = 6, .first = 8};
    for (int dtype = MICS_STATE_BF16; dtype < MICS_STATE_DTYPES; dtype++) {
        for (int i = 0; i < 4 * SIZE_COUNT; i++) {
            const int64_t elems = SIZES[i / 4];
            const bool squares = i % 2 == 1;
            const mics_kernels *k = mics_kernels_get(NULL);
            fill(values, elems, squares, (uint64_t)i);
            pack(k, &held, (mics_state_dtype)dtype, squares, values, elems, &draw);
            unpack(k, &held, (mics_state_dtype)dtype, squares, wide, elems);
            pack(k, &again, (mics_state_dtype)dtype, squares, wide, elems,
                 i % 4 < 2 ? NULL : &other);
            assert_memory_equal(&held, &again, sizeof held);
        }
    }
}

// Every byte with every scale's sign and many exponents comes back.
static void test_all_bytes(void **state)
{
    (void)state;
    float wide[MICS_STATE_BLOCK];
    static packed held, again;
    for (int squares = 0; squares < 2; squares++) {
        for (int exponent = -100; exponent < 128; exponent++) {
            const float scale = ldexpf(squares == 0 && exponent % 2 == 0 ? -1.7F : 1.3F, exponent);
            memset(&held, 0xA5, sizeof held);
            const mics_state_part part =
                part_of(&held, MICS_STATE_8BIT, squares == 1, MICS_STATE_BLOCK);
            part.scales[0] = scale;
            for (int i = 0; i < MICS_STATE_BLOCK; i++)
                ((uint8_t *)part.held)[i] = (uint8_t)i;
            unpack(mics_kernels_get(NULL), &held, MICS_STATE_8BIT, squares == 1, wide,
                   MICS_STATE_BLOCK);
            pack(mics_kernels_get(NULL), &again, MICS_STATE_8BIT, squares == 1, wide,
                 MICS_STATE_BLOCK, NULL);
            assert_memory_equal(&held, &again, sizeof held);
        }
    }
}

static void test_what_is_not_finite(void **state)
{
    (void)state;
    static packed held;
    for (int dtype = MICS_STATE_BF16; dtype < MICS_STATE_DTYPES; dtype++) {
        for (int i = 0; i < 4; i++) {
            float values[300], got[300];
            const mics_state_draw draw = {.key = 9};
            fill(values, 300, true, 3);
            values[17] = i % 2 == 0 ? INFINITY : NAN;
            pack(mics_kernels_get(NULL), &held, (mics_state_dtype)dtype, i < 2, values, 300,
                 i % 2 == 0 ? &draw : NULL);
            unpack(mics_kernels_get(NULL), &held, (mics_state_dtype)dtype, i < 2, got, 300);
            assert_true(isnan(got[17]) || isinf(got[17]));
            assert_true(got[299] >= 0 && got[299] < 1e30F); // of another block
        }
    }
}

// Over many draws the mean of what bf16 holds is the number; one draw is one of its two neighbours.
static void test_mean_of_draws(void **state)
{
    (void)state;
    enum { DRAWS = 4096, COUNT = 16 };
    static packed held;
    float values[COUNT], got[COUNT];
    double sum[COUNT] = {0};
    for (int i = 0; i < COUNT; i++)
        values[i] = (i % 2 == 0 ? 1.0F : -1.0F) * (1.0F + (float)i / (COUNT * 128.0F));
    for (int d = 0; d < DRAWS; d++) {
        const mics_state_draw draw = {.key = (uint64_t)d, .first = 8, .state = 1};
        pack(mics_kernels_get(NULL), &held, MICS_STATE_BF16, true, values, COUNT, &draw);
        unpack(mics_kernels_get(NULL), &held, MICS_STATE_BF16, true, got, COUNT);
        for (int i = 0; i < COUNT; i++) {
            assert_true(fabsf(got[i]) == 1.0F || fabsf(got[i]) == 1.0F + 1.0F / 128);
            sum[i] += (double)got[i];
        }
    }
    for (int i = 0; i < COUNT; i++) { // five standard deviations of a coin
        const double off = fabs(sum[i] / DRAWS - (double)values[i]);
        assert_true(off <= 5 * 0.5 / 128 / sqrt(DRAWS));
    }
}

// A number's draw depends on its place in the unit, not on the part that is rounded with it.
static void test_draws_of_parts(void **state)
{
    (void)state;
    static packed whole, part;
    static float values[2048];
    const mics_state_draw draw = {.key = 77, .first = 1024, .state = 1},
                          behind = {.key = 77, .first = 1536, .state = 1},
                          other = {.key = 77, .first = 1536, .state = 0};
    fill(values, 2048, true, 5);
    pack(mics_kernels_get(NULL), &whole, MICS_STATE_BF16, true, values, 2048, &draw);
    pack(mics_kernels_get(NULL), &part, MICS_STATE_BF16, true, values + 512, 300, &behind);
    assert_memory_equal(whole.bytes + 2 * 512, part.bytes, 2 * 300);
    pack(mics_kernels_get(NULL), &part, MICS_STATE_BF16, true, values + 512, 300, &other);
    assert_memory_not_equal(whole.bytes + 2 * 512, part.bytes, 2 * 300);
}

static void test_same_bits_everywhere(void **state)
{
    (void)state;
    static float values[MAX_ELEMS], wide[2][MAX_ELEMS];
    static packed held[2];
    const mics_state_draw draw = {.key = 5, .first = 512, .state = 1};
    for (int i = 0; i < 4; i++) {
        const mics_state_dtype dtype = i < 2 ? MICS_STATE_BF16 : MICS_STATE_8BIT;
        const bool squares = i % 2 == 1;
        fill(values, MAX_ELEMS, squares, (uint64_t)i);
        mics_op_set_threads(1);
        pack(mics_kernels_get("generic"), &held[0], dtype, squares, values, MAX_ELEMS, &draw);
        unpack(mics_kernels_get("generic"), &held[0], dtype, squares, wide[0], MAX_ELEMS);
        for (int32_t k = 0; k < mics_kernels_count(); k++) {
            if (mics_kernels_at(k) == NULL)
                continue;
            mics_op_set_threads(3);
            pack(mics_kernels_at(k), &held[1], dtype, squares, values, MAX_ELEMS, &draw);
            unpack(mics_kernels_at(k), &held[1], dtype, squares, wide[1], MAX_ELEMS);
            assert_memory_equal(&held[0], &held[1], sizeof held[0]);
            assert_memory_equal(wide[0], wide[1], sizeof wide[0]);
        }
    }
}

static void test_bytes(void **state)
{
    (void)state;
    assert_int_equal(mics_state_bytes(MICS_STATE_FP32, 257), 4 * 257);
    assert_int_equal(mics_state_bytes(MICS_STATE_BF16, 257), 2 * 264);
    assert_int_equal(mics_state_bytes(MICS_STATE_8BIT, 257), 16 + 272);
    assert_int_equal(mics_state_bytes(MICS_STATE_8BIT, 1 << 20), (1 << 20) + (1 << 14));
    assert_int_equal(mics_optimizer_kept_bytes(MICS_OPTIMIZER_ADAMW, MICS_STATE_8BIT, true, 4096),
                     2 * (4096 + 64) + 4 * 4096);
    assert_int_equal(mics_optimizer_kept_bytes(MICS_OPTIMIZER_LION, MICS_STATE_FP32, false, 100),
                     400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_code),
        cmocka_unit_test(test_nearest_in_8_bits),
        cmocka_unit_test(test_same_bytes_again),
        cmocka_unit_test(test_all_bytes),
        cmocka_unit_test(test_what_is_not_finite),
        cmocka_unit_test(test_mean_of_draws),
        cmocka_unit_test(test_draws_of_parts),
        cmocka_unit_test(test_same_bits_everywhere),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
