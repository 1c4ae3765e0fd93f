// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rotary position embeddings, and the sines and cosines that they are made of.
#include "op_harness.h"
#include "ops/common/vector_math.h"
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

// ---- the op ----

typedef struct rotary {
    float *y, *dx;
    const float *x, *dy;
    int64_t B, T;
    mics_heads heads;
    mics_rotary_spec spec;
    bool add_dx;
    int64_t position; // of decoding
} rotary;

static void run_forward(const mics_kernels *k, int32_t threads, const void *args)
{
    const rotary *r = args;
    const mics_exec at = op_exec(threads, NULL);
    op_rotary_forward(k, &at, r->y, r->x, r->B, r->T, r->heads, &r->spec);
}

static void run_backward(const mics_kernels *k, int32_t threads, const void *args)
{
    const rotary *r = args;
    const mics_exec at = op_exec(threads, NULL);
    op_rotary_backward(k, &at, r->dx, r->dy, r->B, r->T, r->heads, &r->spec, r->add_dx);
}

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

typedef struct wide {
    double *x, *y, *y_sum, *dy;
    const rotary *of;
} wide;

// y = x turned by the position, or back; angles are fp32, as transformers computes them.
static void turn(const rotary *r, double *y, double *y_sum, const double *x, int64_t row,
                 int64_t position, bool back)
{
    const int64_t W = mics_heads_width(r->heads), D = r->heads.dim, half = r->spec.dims / 2;
    for (int64_t at = 0; at < W; ++at) {
        const int64_t head = at / D, d = at % D, i = row * W + at;
        y[i] = x[i];
        y_sum[i] = fabs(x[i]);
        if (head >= r->heads.query + r->heads.key_value || d >= 2 * half)
            continue;
        const float angle = (float)position * r->spec.frequencies[d % half];
        const double c = cos((double)angle) * (double)r->spec.scale;
        const double s = sin((double)angle) * (double)r->spec.scale * (back ? -1 : 1);
        const double other = d < half ? -x[i + half] : x[i - half];
        y[i] = x[i] * c + other * s;
        y_sum[i] = fabs(x[i] * c) + fabs(other * s);
    }
}

static void reference(const wide *w)
{
    for (int64_t n = 0; n < w->of->B * w->of->T; ++n)
        turn(w->of, w->y, w->y_sum, w->x, n, n % w->of->T, false);
}

static double objective(const void *ctx)
{
    const wide *w = ctx;
    reference(w);
    return op_dot(w->y, w->dy, w->of->B * w->of->T * mics_heads_width(w->of->heads));
}

static void begin(op_case *c, const char *pass, const rotary *r)
{
    op_begin(c, "rotary_%s B=%d T=%d heads=%d/%d D=%d dims=%d add %d", pass, (int)r->B, (int)r->T,
             (int)r->heads.query, (int)r->heads.key_value, (int)r->heads.dim, (int)r->spec.dims,
             r->add_dx);
}

static void forward_case(rotary r)
{
    const int64_t elems = r.B * r.T * mics_heads_width(r.heads);
    op_case c;
    begin(&c, "forward", &r);
    r.x = op_input(&c, "x", elems, 1.0);
    r.y = op_output(&c, "y", elems, false);
    const wide w = {op_widen(&c, r.x), op_doubles(&c, elems), op_doubles(&c, elems), NULL, &r};
    reference(&w);
    op_expect(&c, r.y, w.y, w.y_sum, OP_TOLERANCE);
    op_run(&c, run_forward, &r);
    op_end(&c);
}

static void backward_case(rotary r, bool alias)
{
    const int64_t elems = r.B * r.T * mics_heads_width(r.heads);
    op_case c;
    begin(&c, alias ? "backward in place" : "backward", &r);
    r.dx = alias ? op_inout(&c, "dx", elems, 1.0) : op_output(&c, "dx", elems, r.add_dx);
    r.dy = alias ? r.dx : op_input(&c, "dy", elems, 1.0);
    double *x = op_doubles(&c, elems), *dx = op_doubles(&c, elems), *sum = op_doubles(&c, elems);
    const wide w = {x, op_doubles(&c, elems), op_doubles(&c, elems), op_widen(&c, r.dy), &r};
    for (int64_t n = 0; n < r.B * r.T; ++n)
        turn(&r, dx, sum, w.dy, n, n % r.T, true);
    op_check_gradient(&c, "x", objective, &w, x, elems, dx, 20);
    for (int64_t i = 0; alias && r.add_dx && i < elems; ++i) {
        dx[i] += w.dy[i];
        sum[i] += fabs(w.dy[i]);
    }
    op_expect(&c, r.dx, dx, sum, OP_TOLERANCE);
    op_run(&c, run_backward, &r);
    op_end(&c);
}

// One row in the place that it has in a sequence.
static void decode_case(rotary r)
{
    const int64_t W = mics_heads_width(r.heads);
    op_case c;
    begin(&c, "decode", &r);
    r.x = op_input(&c, "x", W, 1.0);
    r.y = op_output(&c, "y", W, false);
    double *y = op_doubles(&c, W), *sum = op_doubles(&c, W);
    turn(&r, y, sum, op_widen(&c, r.x), 0, r.position, false);
    op_expect(&c, r.y, y, sum, OP_TOLERANCE);
    op_run(&c, run_decode, &r);
    op_end(&c);
}

static const rotary SHAPES[] = {
    {.B = 1, .T = 1, .heads = {1, 1, 2}, .spec = {.dims = 2, .scale = 1}},
    {.B = 2, .T = 5, .heads = {6, 2, 40}, .spec = {.dims = 40, .scale = 1}},
    {.B = 3, .T = 70, .heads = {5, 1, 40}, .spec = {.dims = 10, .scale = 1.25F}},
    {.B = 1, .T = 33, .heads = {3, 3, 17}, .spec = {.dims = 6, .scale = 0.5F}},
    {.B = 2, .T = 64, .heads = {4, 2, 64}, .spec = {.dims = 64, .scale = 1}},
    {.B = 1, .T = 9, .heads = {2, 1, 300}, .spec = {.dims = 270, .scale = 1}},
};
enum { SHAPE_COUNT = sizeof SHAPES / sizeof *SHAPES };

static void rotary_matches_reference(void **state)
{
    (void)state;
    float frequencies[256];
    for (int i = 0; i < 256; ++i)
        frequencies[i] = powf(10000.0F, -(float)i / 64);
    for (int i = 0; i < 4 * SHAPE_COUNT; ++i) {
        rotary r = SHAPES[i / 4];
        r.spec.frequencies = frequencies;
        r.add_dx = i % 2;
        forward_case(r);
        backward_case(r, i % 4 / 2);
    }
    for (int64_t T = 1; T <= 70; ++T)
        forward_case((rotary){.B = 2, .T = T, .heads = {2, 1, 6}, .spec = {4, frequencies, 1}});
    for (int i = 0; i < SHAPE_COUNT; ++i) {
        rotary r = SHAPES[i];
        r.spec.frequencies = frequencies;
        r.position = 7 + 100000 * i;
        decode_case(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sine_and_cosine_are_within_one_unit),
        cmocka_unit_test(rotary_matches_reference),
    };
    return op_run_tests(tests);
}
