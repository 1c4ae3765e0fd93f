// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Kernels over flat arrays and shards, element by element: sums of two, conversions, AdamW. Shards begin and
// end anywhere.
#include "flat.h"
#include <math.h>

// ---- the entries ----

static void run_add(const mics_exec *at, const void *args)
{
    const flat_args *f = args;
    op_add(table(), at, f->y, f->a, f->b, f->elems);
}

static void run_accumulate(const mics_exec *at, const void *args)
{
    const flat_args *f = args;
    table()->accumulate(at, f->y, f->a, f->elems);
}

static void run_round(const mics_exec *at, const void *args)
{
    const flat_args *f = args;
    table()->round(at, f->y, f->a, f->elems);
}

static void run_widen(const mics_exec *at, const void *args)
{
    const flat_args *f = args;
    table()->widen(at, f->y, f->a, f->elems);
}

static void run_adamw(const mics_exec *at, const void *args)
{
    const flat_args *f = args;
    op_adamw_update(table(), at, f->y, f->masters, f->moment1, f->moment2, f->a, f->elems,
                    &f->adamw);
}

// ---- sums of two ----

// alias: 0 none, 1 y is a, 2 y is b.
static void add_case(const shape *s, int alias)
{
    cu_case c;
    cu_begin(&c, s->dtype, 0, "add %lld at %lld %lld %lld alias %d", (long long)s->elems,
             (long long)s->offset[0], (long long)s->offset[1], (long long)s->offset[2], alias);
    cu_buffer *a = cu_input(&c, "a", (int)s->dtype, s->elems, s->offset[1], 1.0);
    cu_buffer *b = cu_input(&c, "b", (int)s->dtype, s->elems, s->offset[2], 3.0);
    cu_buffer *y = alias == 1   ? a
                   : alias == 2 ? b
                                : cu_output(&c, "y", (int)s->dtype, s->elems, s->offset[0]);
    y->role = alias ? CU_INOUT : CU_OUTPUT;
    double *want = cu_doubles(&c, s->elems), *magnitude = cu_doubles(&c, s->elems);
    for (int64_t i = 0; i < s->elems; ++i) {
        want[i] = a->values[i] + b->values[i];
        magnitude[i] = fabs(a->values[i]) + fabs(b->values[i]);
    }
    cu_expect(y, want, magnitude, CU_TOLERANCE);
    const flat_args f = {.y = y->data, .a = a->data, .b = b->data, .elems = s->elems};
    cu_run(&c, run_add, &f);
    cu_end(&c);
}

static void accumulate_case(const shape *s)
{
    cu_case c;
    cu_begin(&c, s->dtype, 0, "accumulate %lld", (long long)s->elems);
    cu_buffer *y = cu_inout(&c, "y", (int)s->dtype, s->elems, s->offset[0], true);
    cu_buffer *x = cu_input(&c, "x", (int)s->dtype, s->elems, s->offset[1], 1.0);
    double *want = cu_doubles(&c, s->elems), *magnitude = cu_doubles(&c, s->elems);
    for (int64_t i = 0; i < s->elems; ++i) {
        want[i] = y->values[i] + x->values[i];
        magnitude[i] = fabs(y->values[i]) + fabs(x->values[i]);
    }
    cu_expect(y, want, magnitude, CU_TOLERANCE);
    const flat_args f = {.y = y->data, .a = x->data, .elems = s->elems};
    cu_run(&c, run_accumulate, &f);
    cu_end(&c);
}

static void test_add(const shape *s)
{
    add_case(s, 0);
    add_case(s, 1 + (int)(s->elems % 2));
    accumulate_case(s);
}

static void sums_of_two(void **state)
{
    (void)state;
    over_shapes(test_add);
}

// ---- conversions ----

// Values where rounding is delicate: ties, what overflows, what is tiny, and what is no number.
static void delicate(cu_buffer *x, int type)
{
    const double ulp = type == MICS_DTYPE_FP16 ? ldexp(1, -10) : ldexp(1, -7);
    const double values[] = {0.0,
                             -0.0,
                             1.0 + ulp / 2,
                             1.0 + 3 * ulp / 2,
                             -1.0 - ulp / 2,
                             1.0 + ulp / 2 + ldexp(1, -23),
                             65504.0,
                             65519.9,
                             65520.0,
                             -65536.0,
                             3.38e38,
                             3.3961e38,
                             -3.4e38,
                             6.1e-5,
                             5.9e-8,
                             2.98e-8,
                             2.9802322387695312e-8,
                             -4.47e-8,
                             1.2e-38,
                             1e-40,
                             (double)INFINITY,
                             -(double)INFINITY,
                             (double)NAN};
    for (int64_t i = 0; i < x->elems && i < (int64_t)(sizeof values / sizeof *values); ++i)
        x->values[i] = values[i];
    cu_changed(x);
}

static void round_case(const shape *s)
{
    cu_case c;
    cu_begin(&c, s->dtype, 0, "round %lld", (long long)s->elems);
    cu_buffer *x = cu_input(&c, "x", MICS_DTYPE_FP32, s->elems, s->offset[1], 1.0);
    delicate(x, (int)s->dtype);
    cu_buffer *out = cu_output(&c, "out", (int)s->dtype, s->elems, s->offset[0]);
    const flat_args f = {.y = out->data, .a = x->data, .elems = s->elems};
    cu_run(&c, run_round, &f);
    for (int64_t i = 0; i < s->elems; ++i) {
        const double want = cu_rounded((int)s->dtype, x->values[i]), got = out->values[i];
        if (!(isnan(want) && isnan(got)) && got != want)
            fail_msg("%s: %.9g became %.9g, not %.9g", c.name, x->values[i], got, want);
    }
    cu_end(&c);
}

static void widen_case(const shape *s)
{
    cu_case c;
    cu_begin(&c, s->dtype, 0, "widen %lld", (long long)s->elems);
    cu_buffer *x = cu_input(&c, "x", (int)s->dtype, s->elems, s->offset[1], 1.0);
    delicate(x, (int)s->dtype);
    cu_buffer *out = cu_output(&c, "out", MICS_DTYPE_FP32, s->elems, s->offset[0]);
    const flat_args f = {.y = out->data, .a = x->data, .elems = s->elems};
    cu_run(&c, run_widen, &f);
    for (int64_t i = 0; i < s->elems; ++i)
        if (!(isnan(x->values[i]) && isnan(out->values[i])) && out->values[i] != x->values[i])
            fail_msg("%s: %.9g became %.9g", c.name, x->values[i], out->values[i]);
    cu_end(&c);
}

static void conversions(void **state)
{
    (void)state;
    over_shapes(round_case);
    over_shapes(widen_case);
}

// ---- AdamW ----

static void adamw_case(const shape *s, bool with_params, bool at_zero)
{
    cu_case c;
    cu_begin(&c, s->dtype, 0, "adamw %lld at %lld %lld params %d zero %d", (long long)s->elems,
             (long long)s->offset[0], (long long)s->offset[1], with_params, at_zero);
    const int64_t elems = s->elems;
    const op_adamw by = {.lr = 3e-3F,
                         .beta1 = 0.9F,
                         .beta2 = 0.95F,
                         .eps = 1e-6F,
                         .weight_decay = 0.1F,
                         .step = at_zero ? 1 : 3,
                         .grad_scale = 0.37F};
    const double bias1 = 1 - pow((double)by.beta1, (double)by.step);
    const double bias2 = 1 - pow((double)by.beta2, (double)by.step);
    cu_buffer *p = cu_inout(&c, "masters", MICS_DTYPE_FP32, elems, s->offset[1], true);
    cu_buffer *m = cu_inout(&c, "moment1", MICS_DTYPE_FP32, elems, s->offset[2], true);
    cu_buffer *v = cu_inout(&c, "moment2", MICS_DTYPE_FP32, elems, s->offset[3], true);
    cu_buffer *g = cu_input(&c, "grads", MICS_DTYPE_FP32, elems, s->offset[4], 2.0);
    for (int64_t i = 0; i < elems; ++i) {
        m->values[i] = at_zero ? 0 : m->values[i];
        v->values[i] = at_zero ? 0 : fabs(v->values[i]);
        if (at_zero && i % 3 == 0)
            g->values[i] = 0;
    }
    cu_changed(m);
    cu_changed(v);
    cu_changed(g);
    cu_buffer *params =
        with_params ? cu_output(&c, "params", (int)s->dtype, elems, s->offset[0]) : NULL;
    double *want[3], *magnitude[3];
    for (int k = 0; k < 3; ++k) {
        want[k] = cu_doubles(&c, elems);
        magnitude[k] = cu_doubles(&c, elems);
    }
    for (int64_t i = 0; i < elems; ++i) {
        const double grad = g->values[i] * (double)by.grad_scale;
        const double keep1 = (double)(1.0F - by.beta1), keep2 = (double)(1.0F - by.beta2);
        want[1][i] = (double)by.beta1 * m->values[i] + keep1 * grad;
        magnitude[1][i] = fabs((double)by.beta1 * m->values[i]) + fabs(keep1 * grad);
        want[2][i] = (double)by.beta2 * v->values[i] + keep2 * grad * grad;
        magnitude[2][i] = want[2][i];
        const double root = sqrt(want[2][i] / bias2) + (double)by.eps;
        const double step = (double)by.lr / bias1 / root;
        const double decay = (double)by.lr * (double)by.weight_decay * p->values[i];
        want[0][i] = p->values[i] - step * want[1][i] - decay;
        magnitude[0][i] = fabs(p->values[i]) + step * magnitude[1][i] + fabs(decay);
    }
    cu_expect(p, want[0], magnitude[0], CU_TOLERANCE);
    cu_expect(m, want[1], magnitude[1], CU_TOLERANCE);
    cu_expect(v, want[2], magnitude[2], CU_TOLERANCE);
    const flat_args f = {.y = params ? params->data : NULL,
                         .a = g->data,
                         .masters = p->data,
                         .moment1 = m->data,
                         .moment2 = v->data,
                         .elems = elems,
                         .adamw = by};
    cu_run(&c, run_adamw, &f);
    for (int64_t i = 0; params && i < elems; ++i)
        if (params->values[i] != cu_rounded((int)s->dtype, p->values[i]))
            fail_msg("%s: parameter %lld is %.9g, its master %.9g", c.name, (long long)i,
                     params->values[i], p->values[i]);
    cu_end(&c);
}

static void test_adamw(const shape *s)
{
    adamw_case(s, true, false);
    adamw_case(s, s->elems % 2, true);
    if (s->dtype == MICS_DTYPE_BF16)
        adamw_case(s, false, false);
}

static void adamw_on_shards(void **state)
{
    (void)state;
    over_shapes(test_adamw);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_two),
        cmocka_unit_test(conversions),
        cmocka_unit_test(adamw_on_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
