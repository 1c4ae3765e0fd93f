// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Causal attention against the plain one with all T x T scores.
#include "op_harness.h"
#include "ops/attention/def.h"
#include <math.h>
#include <string.h>

typedef struct attention {
    float *y, *new_lse, *dqkv, *workspace;
    const float *qkv, *dy, *old_y, *lse;
    int64_t B, T, H, D;
} attention;

static void run_forward(const mics_kernels *k, int32_t threads, const void *args)
{
    const attention *a = args;
    const mics_exec at = op_exec(threads, a->workspace);
    op_attention_forward(k, &at, a->y, a->new_lse, a->qkv, a->B, a->T, op_heads(a->H, a->D), 0);
}

static void run_backward(const mics_kernels *k, int32_t threads, const void *args)
{
    const attention *a = args;
    const mics_exec at = op_exec(threads, a->workspace);
    op_attention_backward(k, &at, a->dqkv, a->dy, a->old_y, a->lse, a->qkv, a->B, a->T,
                          op_heads(a->H, a->D), 0);
}

// All in fp64. `doubt`: absolute terms of the largest score of a query, in which the error of its
// exponentials is measured.
typedef struct attention_wide {
    double *qkv, *y, *y_sum, *lse, *lse_sum, *p, *doubt, *dy;
    int64_t B, T, H, D;
} attention_wide;

// Row of one head: part 0 query, 1 key, 2 value.
static double *part(const attention_wide *w, double *qkv, int64_t b, int64_t t, int64_t h,
                    int which)
{
    return qkv + ((b * w->T + t) * 3 + which) * w->H * w->D + h * w->D;
}

static double *probabilities(const attention_wide *w, int64_t b, int64_t h, int64_t t)
{
    return w->p + ((b * w->H + h) * w->T + t) * w->T;
}

static void reference_row(const attention_wide *w, int64_t b, int64_t h, int64_t t)
{
    const int64_t row = (b * w->T + t) * w->H + h;
    const double *q = part(w, w->qkv, b, t, h, 0), scale = 1 / sqrt((double)w->D);
    double *p = probabilities(w, b, h, t), highest = -INFINITY, sum = 0;
    w->doubt[row] = 0;
    for (int64_t s = 0; s <= t; ++s) {
        const double *k = part(w, w->qkv, b, s, h, 1);
        double terms = 0;
        for (int64_t d = 0; d < w->D; ++d)
            terms += fabs(q[d] * k[d]) * scale;
        p[s] = op_dot(q, k, w->D) * scale;
        highest = fmax(highest, p[s]);
        w->doubt[row] = fmax(w->doubt[row], terms);
    }
    for (int64_t s = 0; s <= t; ++s)
        sum += exp(p[s] - highest);
    w->lse[row] = highest + log(sum);
    w->lse_sum[row] = 1 + 2 * w->doubt[row];
    for (int64_t d = 0; d < w->D; ++d)
        w->y[row * w->D + d] = w->y_sum[row * w->D + d] = 0;
    for (int64_t s = 0; s <= t; ++s) {
        const double *v = part(w, w->qkv, b, s, h, 2);
        p[s] = exp(p[s] - w->lse[row]);
        for (int64_t d = 0; d < w->D; ++d) {
            w->y[row * w->D + d] += p[s] * v[d];
            w->y_sum[row * w->D + d] += p[s] * fabs(v[d]) * (1 + 2 * w->doubt[row]);
        }
    }
}

static void reference(const attention_wide *w)
{
    for (int64_t b = 0; b < w->B; ++b)
        for (int64_t h = 0; h < w->H; ++h)
            for (int64_t t = 0; t < w->T; ++t)
                reference_row(w, b, h, t);
}

static double objective(const void *ctx)
{
    const attention_wide *w = ctx;
    reference(w);
    return op_dot(w->y, w->dy, w->B * w->T * w->H * w->D);
}

// dv += p dy; ds = p (dy . v - dy . y) scale; dq += ds k; dk += ds q. `sum` takes absolute terms.
static void gradients_row(const attention_wide *w, double *grad, double *sum, int64_t b, int64_t h,
                          int64_t t)
{
    const int64_t row = (b * w->T + t) * w->H + h, D = w->D;
    const double *dy = w->dy + row * D, *p = probabilities(w, b, h, t);
    const double *q = part(w, w->qkv, b, t, h, 0), scale = 1 / sqrt((double)D);
    const double doubt = 2 + 2 * w->doubt[row], delta = op_dot(dy, w->y + row * D, D);
    double delta_sum = 0;
    for (int64_t d = 0; d < D; ++d)
        delta_sum += fabs(dy[d]) * w->y_sum[row * D + d];
    for (int64_t s = 0; s <= t; ++s) {
        const double *k = part(w, w->qkv, b, s, h, 1), *v = part(w, w->qkv, b, s, h, 2);
        double dp_sum = delta_sum;
        for (int64_t d = 0; d < D; ++d)
            dp_sum += fabs(dy[d] * v[d]);
        const double ds = p[s] * (op_dot(dy, v, D) - delta) * scale;
        const double ds_sum = p[s] * dp_sum * scale * doubt;
        for (int64_t d = 0; d < D; ++d) {
            part(w, grad, b, t, h, 0)[d] += ds * k[d];
            part(w, sum, b, t, h, 0)[d] += ds_sum * fabs(k[d]);
            part(w, grad, b, s, h, 1)[d] += ds * q[d];
            part(w, sum, b, s, h, 1)[d] += ds_sum * fabs(q[d]);
            part(w, grad, b, s, h, 2)[d] += p[s] * dy[d];
            part(w, sum, b, s, h, 2)[d] += p[s] * fabs(dy[d]) * doubt;
        }
    }
}

static attention_wide widen(op_case *c, const attention *a)
{
    const int64_t rows = a->B * a->T * a->H;
    attention_wide w = {.B = a->B, .T = a->T, .H = a->H, .D = a->D};
    w.qkv = op_widen(c, a->qkv);
    w.y = op_doubles(c, rows * a->D);
    w.y_sum = op_doubles(c, rows * a->D);
    w.lse = op_doubles(c, rows);
    w.lse_sum = op_doubles(c, rows);
    w.doubt = op_doubles(c, rows);
    w.p = op_doubles(c, rows * a->T);
    return w;
}

static void forward_case(int64_t B, int64_t T, int64_t H, int64_t D, double spread)
{
    op_case c;
    op_begin(&c, "attention_forward B=%d T=%d H=%d D=%d spread %g", (int)B, (int)T, (int)H, (int)D,
             spread);
    attention a = {.B = B, .T = T, .H = H, .D = D};
    a.qkv = op_input(&c, "qkv", B * T * 3 * H * D, spread);
    a.y = op_output(&c, "y", B * T * H * D, false);
    a.new_lse = op_output(&c, "lse", B * T * H, false);
    a.workspace = op_space(&c, "workspace", OP_MAX_THREADS * mics_attention_workspace(D));
    const attention_wide w = widen(&c, &a);
    reference(&w);
    op_expect(&c, a.y, w.y, w.y_sum, OP_TOLERANCE);
    op_expect(&c, a.new_lse, w.lse, w.lse_sum, OP_TOLERANCE);
    op_run(&c, run_forward, &a);
    op_end(&c);
}

static void narrow(op_case *c, float *to, const double *from, int64_t elems)
{
    for (int64_t i = 0; i < elems; ++i)
        to[i] = (float)from[i];
    op_input_changed(c, to);
}

static void backward_case(int64_t B, int64_t T, int64_t H, int64_t D, double spread)
{
    op_case c;
    op_begin(&c, "attention_backward B=%d T=%d H=%d D=%d spread %g", (int)B, (int)T, (int)H, (int)D,
             spread);
    attention a = {.B = B, .T = T, .H = H, .D = D};
    const int64_t rows = B * T * H;
    a.qkv = op_input(&c, "qkv", rows * 3 * D, spread);
    a.dy = op_input(&c, "dy", rows * D, 1.0);
    float *old_y = op_input(&c, "y", rows * D, 1.0), *lse = op_input(&c, "lse", rows, 1.0);
    a.old_y = old_y;
    a.lse = lse;
    a.dqkv = op_output(&c, "dqkv", rows * 3 * D, false);
    a.workspace = op_space(&c, "workspace", OP_MAX_THREADS * mics_attention_workspace(D));
    attention_wide w = widen(&c, &a);
    w.dy = op_widen(&c, a.dy);
    reference(&w);
    narrow(&c, old_y, w.y, rows * D);
    narrow(&c, lse, w.lse, rows);
    double *grad = op_doubles(&c, rows * 3 * D), *sum = op_doubles(&c, rows * 3 * D);
    for (int64_t i = 0; i < rows; ++i)
        gradients_row(&w, grad, sum, i / H / T, i % H, i / H % T);
    if (spread < 3) // the derivatives of sharper scores are too large for differences
        op_check_gradient(&c, "qkv", objective, &w, w.qkv, rows * 3 * D, grad, 12);
    op_expect(&c, a.dqkv, grad, sum, OP_TOLERANCE);
    op_run(&c, run_backward, &a);
    op_end(&c);
}

// B, T, H, D: each head dimension and each T around the borders of tiles and vectors.
static const int64_t SHAPES[][4] = {
    {1, 1, 1, 1},    {2, 1, 3, 8},    {1, 2, 2, 3},   {3, 3, 1, 1},    {2, 5, 3, 40},
    {1, 17, 2, 64},  {1, 63, 1, 3},   {2, 64, 2, 8},  {1, 65, 3, 1},   {1, 127, 2, 40},
    {2, 128, 1, 17}, {1, 130, 2, 80}, {1, 66, 1, 64}, {1, 70, 1, 128}, {1, 200, 2, 64},
    {1, 257, 1, 5},  {3, 33, 2, 16}};
enum { SHAPE_COUNT = sizeof SHAPES / sizeof *SHAPES };

static void forward_matches_reference(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPE_COUNT; ++i)
        forward_case(SHAPES[i][0], SHAPES[i][1], SHAPES[i][2], SHAPES[i][3], 1.0);
    forward_case(1, 130, 1, 16, 20.0); // scores in the hundreds: maxima move between tiles
}

static void backward_matches_reference(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPE_COUNT; ++i)
        backward_case(SHAPES[i][0], SHAPES[i][1], SHAPES[i][2], SHAPES[i][3], 1.0);
    backward_case(1, 130, 1, 16, 5.0);
}

typedef struct decode {
    float *y, *workspace, *cache;
    const float *row;
    int64_t length, H, D;
} decode;

static void run_decode(const mics_kernels *k, int32_t threads, const void *args)
{
    const decode *d = args;
    const mics_exec at = op_exec(threads, d->workspace);
    const mics_op op = {.kind = MICS_OP_ATTENTION, .heads = op_heads(d->H, d->D)};
    mics_op_call call = {.at = &at,
                         .shape = op_attention_shape(1, 1, op.heads),
                         .in = {d->row},
                         .out = d->y,
                         .cache = d->cache,
                         .position = d->length - 1,
                         .capacity = d->length};
    call.shape.op = &op;
    k->ops[MICS_OP_ATTENTION]->decode(&call);
}

// Decoding is the last row of the plain attention.
static void decode_case(int64_t length, int64_t H, int64_t D, double spread)
{
    op_case c;
    op_begin(&c, "attention_decode length=%d H=%d D=%d", (int)length, (int)H, (int)D);
    decode d = {.length = length, .H = H, .D = D};
    const int64_t C = H * D;
    d.row = op_input(&c, "row", 3 * C, spread);
    d.cache = op_inout(&c, "cache", 2 * length * C, spread);
    d.y = op_output(&c, "y", C, false);
    d.workspace = op_space(&c, "workspace", H * length);
    float *qkv = op_input(&c, "qkv", length * 3 * C, 1.0);
    for (int64_t t = 0; t < length; ++t) {
        memcpy(qkv + (t * 3 + 1) * C, d.cache + t * C, (size_t)C * sizeof *qkv);
        memcpy(qkv + (t * 3 + 2) * C, d.cache + (length + t) * C, (size_t)C * sizeof *qkv);
    }
    memcpy(qkv + (length - 1) * 3 * C, d.row, (size_t)(3 * C) * sizeof *qkv);
    op_input_changed(&c, qkv);
    const attention a = {.qkv = qkv, .B = 1, .T = length, .H = H, .D = D};
    const attention_wide w = widen(&c, &a);
    for (int64_t h = 0; h < H; ++h)
        reference_row(&w, 0, h, length - 1);
    op_expect(&c, d.y, w.y + (length - 1) * C, w.y_sum + (length - 1) * C, OP_TOLERANCE);
    op_run(&c, run_decode, &d);
    op_end(&c);
}

static void decode_matches_reference(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 3, 17, 64, 65, 130, 300};
    static const int64_t dims[] = {1, 3, 8, 40, 64, 80, 128};
    for (int i = 0; i < 8; ++i)
        for (int j = 0; j < 7; ++j)
            decode_case(lengths[i], 1 + (i + j) % 3, dims[j], 1.0);
    decode_case(65, 2, 16, 20.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_matches_reference),
        cmocka_unit_test(backward_matches_reference),
        cmocka_unit_test(decode_matches_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
