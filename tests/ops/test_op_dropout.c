// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Dropout against masks of the plain generator, and what such masks are like.
#include "masks.h"
#include "op_harness.h"
#include <math.h>
#include <string.h>

typedef struct dropout {
    float *y, *dx;
    const float *x, *dy;
    int64_t B, T, C;
    op_dropout by;
    bool add_dx;
} dropout;

static void run_forward(const mics_kernels *k, int32_t threads, const void *args)
{
    const dropout *d = args;
    const mics_exec at = op_exec(threads, NULL);
    op_dropout_forward(k, &at, d->y, d->x, d->B, d->T, d->C, d->by);
}

static void run_backward(const mics_kernels *k, int32_t threads, const void *args)
{
    const dropout *d = args;
    const mics_exec at = op_exec(threads, NULL);
    op_dropout_backward(k, &at, d->dx, d->dy, d->B, d->T, d->C, d->by, d->add_dx);
}

// `to` = `from` where it is kept, times the scale.
static void reference(const dropout *d, double *to, const double *from)
{
    for (int64_t i = 0; i < d->B * d->T * d->C; ++i) {
        const int64_t n = i / d->C;
        to[i] = from[i] * mask_factor(d->by.draw, d->by.probability, d->by.mask, n / d->T, n % d->T,
                                      i % d->C);
    }
}

typedef struct wide {
    const dropout *of;
    double *x, *y, *dy;
} wide;

static double objective(const void *ctx)
{
    const wide *w = ctx;
    reference(w->of, w->y, w->x);
    return op_dot(w->y, w->dy, w->of->B * w->of->T * w->of->C);
}

static double *magnitudes(op_case *c, const double *of, int64_t elems)
{
    double *sum = op_doubles(c, elems);
    for (int64_t i = 0; i < elems; ++i)
        sum[i] = fabs(of[i]);
    return sum;
}

static void forward_case(dropout d)
{
    const int64_t elems = d.B * d.T * d.C;
    op_case c;
    op_begin(&c, "dropout_forward B=%d T=%d C=%d p=%g", (int)d.B, (int)d.T, (int)d.C,
             (double)d.by.probability);
    d.x = op_input(&c, "x", elems, 1.0);
    d.y = op_output(&c, "y", elems, false);
    double *x = op_widen(&c, d.x), *y = op_doubles(&c, elems);
    reference(&d, y, x);
    op_expect(&c, d.y, y, magnitudes(&c, y, elems), OP_TOLERANCE);
    op_run(&c, run_forward, &d);
    op_end(&c);
}

static void backward_case(dropout d, bool in_place)
{
    const int64_t elems = d.B * d.T * d.C;
    op_case c;
    op_begin(&c, "dropout_backward B=%d T=%d C=%d p=%g add %d in place %d", (int)d.B, (int)d.T,
             (int)d.C, (double)d.by.probability, d.add_dx, in_place);
    float *dy = in_place ? op_inout(&c, "dy", elems, 1.0) : op_input(&c, "dy", elems, 1.0);
    d.dy = dy;
    d.dx = in_place ? dy : op_output(&c, "dx", elems, d.add_dx);
    double *dx = op_doubles(&c, elems);
    const wide w = {&d, op_doubles(&c, elems), op_doubles(&c, elems), op_widen(&c, d.dy)};
    reference(&d, dx, w.dy);
    op_check_gradient(&c, "x", objective, &w, w.x, elems, dx, 20);
    op_expect(&c, d.dx, dx, magnitudes(&c, dx, elems), OP_TOLERANCE);
    op_run(&c, run_backward, &d);
    op_end(&c);
}

static void dropout_matches_reference(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1},  {2, 3, 7},   {3, 5, 8},    {1, 17, 12},
                                        {2, 2, 64}, {4, 9, 129}, {2, 11, 768}, {1, 2, 2050}};
    static const float probabilities[] = {0.1F, 0.5F, 0.9F, 1e-6F, 0.999999F};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i)
        for (size_t j = 0; j < sizeof probabilities / sizeof *probabilities; ++j) {
            const mics_dropout_draw draw = mask_draw(mics_rng_bits(1, i, j), (uint32_t)(100 * j));
            dropout d = {.B = shapes[i][0],
                         .T = shapes[i][1],
                         .C = shapes[i][2],
                         .by = {probabilities[j], (uint32_t)(7 * i), &draw},
                         .add_dx = (i + j) % 2};
            forward_case(d);
            backward_case(d, false);
            d.add_dx = false;
            backward_case(d, true);
            d.by.draw = NULL; // an evaluation
            forward_case(d);
        }
}

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
        cmocka_unit_test(dropout_matches_reference),
        cmocka_unit_test(masks_have_their_rate),
        cmocka_unit_test(numbers_of_a_mask_are_independent),
        cmocka_unit_test(masks_are_independent),
    };
    return op_run_tests(tests);
}
