// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Flat arrays: GELU, sums, AdamW, and the exponential that vector code uses.
#include "op_harness.h"
#include "ops/common/vector_math.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t SIZES[] = {1, 2, 3, 5, 17, 63, 64, 65, 127, 130, 4095, 4097, 20000, 70001};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES };

// ---- exponential ----

static void exponential_is_within_two_units(void **state)
{
    (void)state;
    double worst = 0;
    for (int64_t i = -8733000; i <= 8837000; i += 7) {
        const float x = (float)i * 1e-5F;
        const double want = exp((double)x), got = (double)mics_exp(x);
        const double unit = (double)nextafterf((float)want, INFINITY) - (double)(float)want;
        const double units = fabs(got - want) / unit;
        worst = units > worst ? units : worst;
    }
    print_message("mics_exp: worst error %.2f units in the last place\n", worst);
    assert_true(worst <= 2.0);
}

static void exponential_at_the_edges(void **state)
{
    (void)state;
    assert_true(mics_exp(0.0F) == 1.0F);
    assert_true(mics_exp(-0.0F) == 1.0F);
    assert_true(mics_exp(-INFINITY) == 0.0F);
    assert_true(mics_exp(-88.0F) == 0.0F);
    assert_true(mics_exp(-3e38F) == 0.0F);
    assert_true(mics_exp(89.0F) == INFINITY);
    assert_true(mics_exp(3e38F) == INFINITY);
    assert_true(mics_exp(INFINITY) == INFINITY);
    assert_true(isnan(mics_exp(NAN)));
}

static void tail_of_the_normal_distribution(void **state)
{
    (void)state;
    double worst = 0;
    for (int64_t i = -900000; i <= 900000; i += 7) {
        const float x = (float)i * 1e-5F, e = (float)exp(-0.5 * (double)x * (double)x);
        const double want = 0.5 * erfc(fabs((double)x) / sqrt(2.0));
        worst = fmax(worst, fabs((double)mics_normal_tail(x, e) / want - 1));
    }
    print_message("mics_normal_tail: worst error %.3g of the value\n", worst);
    assert_true(worst <= 4 * 0x1p-23);
    assert_true(mics_normal_tail(INFINITY, 0.0F) == 0.0F);
    assert_true(isnan(mics_normal_tail(NAN, 0.5F)));
}

// ---- GELU ----

static void gelu_at_the_edges(void **state)
{
    (void)state;
    for (int32_t index = 0; index < mics_kernels_count(); ++index) {
        const mics_kernels *k = mics_kernels_at(index);
        if (!k)
            continue;
        const float x[] = {0, -0.0F, 20, -20, 1e30F, -1e30F, INFINITY, NAN};
        const float dy[] = {1, 1, 1, 1, 1, 1, 1, 1};
        float y[8], dx[8];
        const mics_exec at = op_exec(1, NULL);
        for (int exact = 1; exact >= 0; --exact) {
            op_gelu_forward(k, &at, y, x, 8, exact);
            op_gelu_backward(k, &at, dx, dy, x, 8, exact, false);
            assert_true(y[0] == 0.0F && y[1] == 0.0F && y[2] == 20.0F && y[3] == 0.0F);
            assert_true(y[4] == 1e30F && y[5] == 0.0F && y[6] == INFINITY && isnan(y[7]));
            assert_true(dx[0] == 0.5F && dx[1] == 0.5F && dx[2] == 1.0F && fabsf(dx[3]) < 1e-35F);
            assert_true(dx[4] == 1.0F && fabsf(dx[5]) < 1e-35F && dx[6] == 1.0F && isnan(dx[7]));
        }
    }
}

// ---- sums ----

typedef struct sums {
    float *y;
    const float *a, *b;
    int64_t elems;
    double *squares; // result of the last run
} sums;

static void run_add(const mics_kernels *k, int32_t threads, const void *args)
{
    const sums *s = args;
    const mics_exec at = op_exec(threads, NULL);
    op_add(k, &at, s->y, s->a, s->b, s->elems);
}

static void run_accumulate(const mics_kernels *k, int32_t threads, const void *args)
{
    const sums *s = args;
    const mics_exec at = op_exec(threads, NULL);
    k->accumulate(&at, s->y, s->b, s->elems);
}

// The sum goes into y's place as two floats' worth of bits, so that the harness compares it.
static void run_sum_squares(const mics_kernels *k, int32_t threads, const void *args)
{
    const sums *s = args;
    const mics_exec at = op_exec(threads, NULL);
    *s->squares = 0;
    k->sum_squares(&at, s->squares, s->a, s->elems);
    memcpy(s->y, s->squares, sizeof(double));
}

static void add_case(int64_t elems, int alias)
{
    op_case c;
    op_begin(&c, "add elems=%d alias %d", (int)elems, alias);
    sums s = {.elems = elems};
    s.y = alias ? op_inout(&c, "y", elems, 1.0) : op_output(&c, "y", elems, false);
    s.a = alias == 1 || alias == 3 ? s.y : op_input(&c, "a", elems, 1.0);
    s.b = alias == 2 ? s.y : op_input(&c, "b", elems, 1.0);
    double *want = op_doubles(&c, elems), *magnitude = op_doubles(&c, elems);
    for (int64_t i = 0; i < elems; ++i) {
        want[i] = (double)(s.a[i] + s.b[i]);
        magnitude[i] = 0;
    }
    op_expect(&c, s.y, want, magnitude, 0);
    op_run(&c, alias == 3 ? run_accumulate : run_add, &s);
    op_end(&c);
}

static void add_is_exact(void **state)
{
    (void)state;
    for (int i = 0; i < SIZE_COUNT; ++i)
        for (int alias = 0; alias < 4; ++alias)
            add_case(SIZES[i], alias);
}

static void sum_squares_is_double(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 17, 4095, 4096, 4097, 70001, 4096 * 1024 + 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
        op_case c;
        op_begin(&c, "sum_squares elems=%d", (int)sizes[i]);
        double got = 0;
        long double want = 0;
        sums s = {.elems = sizes[i], .squares = &got};
        s.a = op_fp32(&c, op_input(&c, "a", s.elems, 3.0));
        s.y = op_fp32(&c, op_output(&c, "sum", 2, false));
        op_run(&c, run_sum_squares, &s);
        for (int64_t j = 0; j < s.elems; ++j)
            want += (long double)s.a[j] * (long double)s.a[j];
        assert_true(fabs(got - (double)want) <= 1e-14 * (double)want);
        op_end(&c);
    }
}

// ---- hashes ----

// The same on every instruction set, with any number of threads and at any address.
static void check_hash_everywhere(char *x, size_t bytes, uint64_t want)
{
    for (int32_t index = 0; index < mics_kernels_count(); ++index) {
        const mics_kernels *k = mics_kernels_at(index);
        for (int32_t threads = 1; k && threads <= 3; ++threads) {
            uint64_t hash = 0;
            mics_op_set_threads(threads);
            memmove(x + 4, x, bytes);
            k->hash(NULL, &hash, x + 4, bytes);
            memmove(x, x + 4, bytes);
            assert_true(hash == want);
        }
    }
    mics_op_set_threads(1);
}

static void hash_is_of_every_bit(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 2, 4, 4096, 262144, 262146, 700000};
    const mics_kernels *k = mics_kernels_get(NULL);
    char *x = calloc(1, 700008);
    assert_non_null(x);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
        const size_t bytes = sizes[i];
        uint64_t want = 0, hash = 0;
        k->hash(NULL, &want, x, bytes);
        check_hash_everywhere(x, bytes, want);
        k->hash(NULL, &hash, x, bytes + 2); // of zeroes, and still another
        assert_true(hash != want);
        for (size_t at = 0; at < bytes; at += 1 + bytes / 13) {
            x[at] ^= (char)(1 << at % 8);
            k->hash(NULL, &hash, x, bytes);
            assert_true(hash != want);
            x[at] ^= (char)(1 << at % 8);
        }
    }
    free(x);
}

// ---- AdamW ----

typedef struct adamw {
    float *params, *masters, *moment1, *moment2;
    const float *grads;
    int64_t elems;
    op_adamw settings;
} adamw;

static void run_adamw(const mics_kernels *k, int32_t threads, const void *args)
{
    const adamw *a = args;
    const mics_exec at = op_exec(threads, NULL);
    op_adamw_update(k, &at, a->params, a->masters, a->moment1, a->moment2, a->grads, a->elems,
                    &a->settings);
}

static void adamw_case(int64_t elems, int step, float decay, float grad_scale)
{
    op_case c;
    op_begin(&c, "adamw elems=%d step=%d decay=%g", (int)elems, step, (double)decay);
    adamw a = {.elems = elems};
    a.settings = (op_adamw){.lr = 3e-2F, .beta1 = 0.9F, .beta2 = 0.95F, .eps = 1e-8F};
    const op_adamw *s = &a.settings;
    a.settings.weight_decay = decay;
    a.settings.grad_scale = grad_scale;
    a.settings.step = step;
    const double bias1 = 1 - pow((double)s->beta1, step), bias2 = 1 - pow((double)s->beta2, step);
    a.params = op_output(&c, "params", elems, false);
    a.masters = op_fp32(&c, op_inout(&c, "masters", elems, 1.0));
    a.moment1 = op_fp32(&c, op_inout(&c, "moment1", elems, 0.1));
    a.moment2 = op_fp32(&c, op_inout(&c, "moment2", elems, 0.1));
    a.grads = op_fp32(&c, op_input(&c, "grads", elems, 1.0));
    for (int64_t i = 0; i < elems; ++i)
        a.moment2[i] = a.moment2[i] * a.moment2[i];
    op_input_changed(&c, a.moment2);
    double *want[3], *magnitude[3];
    for (int t = 0; t < 3; ++t) {
        want[t] = op_doubles(&c, elems);
        magnitude[t] = op_doubles(&c, elems);
    }
    for (int64_t i = 0; i < elems; ++i) {
        const double g = (double)a.grads[i] * (double)grad_scale, p = (double)a.masters[i];
        const double old1 = (double)s->beta1 * (double)a.moment1[i], b1 = (double)s->beta1;
        const double old2 = (double)s->beta2 * (double)a.moment2[i], b2 = (double)s->beta2;
        const double m = old1 + (1 - b1) * g, v = old2 + (1 - b2) * g * g;
        const double below = sqrt(v / bias2) + (double)s->eps;
        const double lr = (double)s->lr;
        want[0][i] = p - lr * (m / bias1 / below + (double)decay * p);
        want[1][i] = m;
        want[2][i] = v;
        magnitude[1][i] = fabs(old1) + fabs((1 - b1) * g);
        magnitude[2][i] = v;
        magnitude[0][i] = fabs(p) + lr * (2 * magnitude[1][i] / bias1 / below);
    }
    op_expect(&c, a.params, want[0], magnitude[0], OP_TOLERANCE);
    op_expect(&c, a.masters, want[0], magnitude[0], OP_TOLERANCE);
    op_expect(&c, a.moment1, want[1], magnitude[1], OP_TOLERANCE);
    op_expect(&c, a.moment2, want[2], magnitude[2], OP_TOLERANCE);
    op_run(&c, run_adamw, &a);
    op_end(&c);
}

static void adamw_matches_reference(void **state)
{
    (void)state;
    for (int i = 0; i < SIZE_COUNT; ++i) {
        adamw_case(SIZES[i], 1, 0.1F, 1.0F);
        adamw_case(SIZES[i], 1000, 0.0F, 0.37F);
    }
}

// A parameter that never had a gradient must stay finite and still decay.
static void adamw_without_gradient(void **state)
{
    (void)state;
    const op_adamw settings = {.lr = 0.5F,
                               .beta1 = 0.9F,
                               .beta2 = 0.999F,
                               .eps = 1e-8F,
                               .weight_decay = 0.5F,
                               .step = 1,
                               .grad_scale = 1.0F};
    for (int32_t index = 0; index < mics_kernels_count(); ++index) {
        float p = 4, m = 0, v = 0, g = 0;
        if (mics_kernels_at(index))
            op_adamw_update(mics_kernels_at(index), NULL, NULL, &p, &m, &v, &g, 1, &settings);
        assert_true(!mics_kernels_at(index) || (p == 3.0F && m == 0.0F && v == 0.0F));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exponential_is_within_two_units),
        cmocka_unit_test(exponential_at_the_edges),
        cmocka_unit_test(tail_of_the_normal_distribution),
        cmocka_unit_test(gelu_at_the_edges),
        cmocka_unit_test(add_is_exact),
        cmocka_unit_test(sum_squares_is_double),
        cmocka_unit_test(hash_is_of_every_bit),
        cmocka_unit_test(adamw_matches_reference),
        cmocka_unit_test(adamw_without_gradient),
    };
    return op_run_tests(tests);
}
