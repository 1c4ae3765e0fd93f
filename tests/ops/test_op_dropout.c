// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rates and independence of dropout masks.
#include "op_harness.h"
#include "ops/common/cases_masks.h"
#include <math.h>
#include <string.h>

// ---- what masks are like ----

enum { MASK_B = 2, MASK_T = 64, MASK_C = 512, MASK_ELEMS = MASK_B * MASK_T * MASK_C };

// 1 where it is kept, else 0, by the best kernels.
static void draw_mask(float *kept, float probability, uint32_t mask, mics_dropout_draw draw)
{
    static float ones[MASK_ELEMS];
    const mics_kernels *k = mics_kernels_get(NULL);
    const mics_exec at = op_exec(1, NULL);
    for (int64_t i = 0; i < MASK_ELEMS; ++i)
        ones[i] = 1.0F;
    op_dropout_forward(k, &at, kept, ones, MASK_B, MASK_T, MASK_C,
                       (op_dropout){probability, mask, &draw});
    for (int64_t i = 0; i < MASK_ELEMS; ++i)
        kept[i] = kept[i] > 0 ? 1.0F : 0.0F;
}

// Correlation of a[i] with b[i + lag] in standard deviations of its error, which is 1 / sqrt(count)
// where they are independent.
static double correlation(const float *a, const float *b, int64_t count, int64_t lag, double mean)
{
    double sum = 0;
    for (int64_t i = 0; i + lag < count; ++i)
        sum += ((double)a[i] - mean) * ((double)b[i + lag] - mean);
    return sum / (mean * (1 - mean)) / sqrt((double)(count - lag));
}

// Five standard deviations: a test with right masks, which are always the same ones, passes.
enum { DEVIATIONS = 5 };

static void masks_have_their_rate(void **state)
{
    (void)state;
    static float kept[MASK_ELEMS];
    static const float probabilities[] = {0.01F, 0.1F, 0.25F, 0.5F, 0.9F};
    for (int i = 0; i < 5; ++i) {
        const double want = 1 - (double)probabilities[i];
        draw_mask(kept, probabilities[i], 3, mask_draw(mics_rng_bits(1, 2, 3), 0));
        double sum = 0;
        for (int64_t j = 0; j < MASK_ELEMS; ++j)
            sum += (double)kept[j];
        const double deviation = sqrt(want * (1 - want) / MASK_ELEMS);
        if (fabs(sum / MASK_ELEMS - want) > DEVIATIONS * deviation)
            fail_msg("of p = %g %g are kept", (double)probabilities[i], sum / MASK_ELEMS);
        for (int64_t row = 0; row < MASK_B * MASK_T; ++row) { // and every row
            double of_row = 0;
            for (int64_t c = 0; c < MASK_C; ++c)
                of_row += (double)kept[row * MASK_C + c];
            assert_true(fabs(of_row / MASK_C - want) <=
                        DEVIATIONS * sqrt(want * (1 - want) / MASK_C));
        }
    }
}

// Along a row, from row to row, from sequence to sequence.
static void numbers_of_a_mask_are_independent(void **state)
{
    (void)state;
    static float kept[MASK_ELEMS];
    static const int64_t lags[] = {1,          2,      3,          4,          7,
                                   8,          9,      16,         63,         64,
                                   MASK_C - 1, MASK_C, MASK_C + 1, 2 * MASK_C, MASK_T * MASK_C};
    draw_mask(kept, 0.1F, 5, mask_draw(mics_rng_bits(1, 2, 4), 0));
    for (size_t i = 0; i < sizeof lags / sizeof *lags; ++i) {
        const double r = correlation(kept, kept, MASK_ELEMS, lags[i], 0.9);
        if (fabs(r) > DEVIATIONS)
            fail_msg("numbers %d apart: %g deviations", (int)lags[i], r);
    }
}

// Of the next op, the next step, the next sequence, another seed.
static void masks_are_independent(void **state)
{
    (void)state;
    static float kept[MASK_ELEMS], other[MASK_ELEMS];
    const mics_dropout_draw draw = mask_draw(mics_rng_bits(1, 2, 5), 8);
    const mics_dropout_draw draws[] = {draw, mask_draw(mics_rng_bits(1, 2, 6), 8),
                                       mask_draw(mics_rng_bits(1, 2, 5), 8 + MASK_B),
                                       mask_draw(mics_rng_bits(2, 2, 5), 8)};
    draw_mask(kept, 0.1F, 5, draw);
    for (uint32_t i = 0; i < 4; ++i) {
        draw_mask(other, 0.1F, i == 0 ? 6 : 5, draws[i]);
        const double r = correlation(kept, other, MASK_ELEMS, 0, 0.9);
        if (fabs(r) > DEVIATIONS)
            fail_msg("mask %d: %g deviations", (int)i, r);
    }
    // A micro-batch that begins a sequence later has the others' masks.
    draw_mask(other, 0.1F, 5, mask_draw(mics_rng_bits(1, 2, 5), 9));
    assert_memory_equal(other, kept + MASK_T * MASK_C, sizeof kept / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_have_their_rate),
        cmocka_unit_test(numbers_of_a_mask_are_independent),
        cmocka_unit_test(masks_are_independent),
    };
    return op_run_tests(tests);
}
