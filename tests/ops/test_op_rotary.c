// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Sines and cosines of rotary position embeddings, and their decoding.
#include "op_harness.h"
#include "ops/common/vector_math.h"
#include "ops/rotary/cases.h"
#include <math.h>
#include <string.h>

// ---- sine and cosine ----

static double units_off(float got, double want)
{
    const double unit =
        (double)nextafterf(fabsf((float)want), INFINITY) - fabs((double)(float)want);
    return fabs((double)got - want) / unit;
}

static void sine_and_cosine_are_within_one_unit(void **state)
{
    (void)state;
    double worst = 0, worst_far = 0;
    for (int64_t i = 0; i < 2000000; ++i) {
        // Small and large arguments, of both signs: 2^-20 to 2^31.
        const float x = ldexpf((float)(i % 8191 - 4095) / 4096, (int)(i % 53) - 20 - (int)(i % 2));
        float sine, cosine;
        mics_sincos(x, &sine, &cosine);
        worst_far = fmax(worst_far, fabs((double)sine - sin((double)x)));
        worst_far = fmax(worst_far, fabs((double)cosine - cos((double)x)));
        if (fabsf(x) >= 0x1p20F)
            continue;
        worst = fmax(worst, units_off(sine, sin((double)x)));
        worst = fmax(worst, units_off(cosine, cos((double)x)));
    }
    print_message("mics_sincos: worst error %.3f units in the last place, far out %.3g\n", worst,
                  worst_far);
    assert_true(worst <= 1.0 && worst_far <= 4e-7);
    float sine, cosine;
    mics_sincos(0, &sine, &cosine);
    assert_true(sine == 0.0F && cosine == 1.0F);
    mics_sincos(NAN, &sine, &cosine);
    assert_true(isnan(sine) && isnan(cosine));
}

// ---- decoding ----

typedef struct rotary {
    float *y;
    const float *x;
    mics_heads heads;
    mics_rotary_spec spec;
    int64_t position;
} rotary;

static void run_decode(const mics_kernels *k, int32_t threads, const void *args)
{
    const rotary *r = args;
    const mics_exec at = op_exec(threads, NULL);
    const mics_op op = {.kind = MICS_OP_ROTARY, .heads = r->heads};
    mics_op_call call = {.at = &at,
                         .shape = op_heads_shape(1, 1, r->heads),
                         .in = {r->x},
                         .out = r->y,
                         .position = r->position};
    call.shape.op = &op;
    call.shape.rotary = &r->spec;
    k->ops[op.kind]->decode(&call);
}

// One row in the place that it has in a sequence.
static void decode_case(rotary r)
{
    const int64_t W = mics_heads_width(r.heads);
    op_case c;
    op_begin(&c, "rotary_decode heads=%d/%d D=%d dims=%d", (int)r.heads.query,
             (int)r.heads.key_value, (int)r.heads.dim, (int)r.spec.dims);
    r.x = op_input(&c, "x", W, 1.0);
    r.y = op_output(&c, "y", W, false);
    const mics_case_numbers y = {op_doubles(&c, W), op_doubles(&c, W), OP_TOLERANCE, W};
    const mics_op_case of = {.shape = {.out = W, .heads = r.heads, .rotary = &r.spec}};
    const mics_case_values v = {.of = &of};
    rotary_turn_row(&v, &y, op_widen(&c, r.x), 0, r.position, 1);
    op_expect(&c, r.y, y.at, y.sum, y.tolerance);
    op_run(&c, run_decode, &r);
    op_end(&c);
}

static void rotary_decodes_at_a_position(void **state)
{
    (void)state;
    static const rotary shapes[] = {
        {.heads = {1, 1, 2}, .spec = {.dims = 2, .scale = 1}},
        {.heads = {6, 2, 40}, .spec = {.dims = 40, .scale = 1}},
        {.heads = {5, 1, 40}, .spec = {.dims = 10, .scale = 1.25F}},
        {.heads = {3, 3, 17}, .spec = {.dims = 6, .scale = 0.5F}},
        {.heads = {4, 2, 64}, .spec = {.dims = 64, .scale = 1}},
        {.heads = {2, 1, 300}, .spec = {.dims = 270, .scale = 1}},
    };
    float frequencies[ROTARY_FREQUENCIES];
    rotary_frequencies(frequencies);
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); ++i) {
        rotary r = shapes[i];
        r.spec.frequencies = frequencies;
        r.position = 7 + 100000 * i;
        decode_case(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sine_and_cosine_are_within_one_unit),
        cmocka_unit_test(rotary_decodes_at_a_position),
    };
    return op_run_tests(tests);
}
