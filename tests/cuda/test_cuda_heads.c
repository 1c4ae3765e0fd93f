// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rotary position embeddings and norms of heads on a GPU.
#include "cuda_op.h"
#include <math.h>
#include <string.h>

static void copy_doubles(double *to, const double *from, int64_t count)
{
    memcpy(to, from, (size_t)count * sizeof *to);
}

// What an output is added to.
static void begin_with(const cu_buffer *buffer, bool add, double *want, double *sum)
{
    for (int64_t i = 0; add && i < buffer->elems; ++i) {
        want[i] += buffer->values[i];
        sum[i] += fabs(buffer->values[i]);
    }
}

// ---- rotary ----

typedef struct rotary {
    void *y, *dx;
    const void *x, *dy;
    int64_t B, T, offset;
    mics_heads heads;
    mics_rotary_spec spec;
    bool add_dx;
} rotary;

static void run_rotary_forward(const mics_exec *at, const void *args)
{
    const rotary *r = args;
    op_rotary_forward(mics_kernels_cuda(), at, r->y, r->x, r->B, r->T, r->heads, &r->spec);
}

static void run_rotary_backward(const mics_exec *at, const void *args)
{
    const rotary *r = args;
    op_rotary_backward(mics_kernels_cuda(), at, r->dx, r->dy, r->B, r->T, r->heads, &r->spec,
                       r->add_dx);
}

// y = x turned by the position, or back.
static void turn(const rotary *r, double *y, double *y_sum, const double *x, bool back)
{
    const int64_t W = mics_heads_width(r->heads), D = r->heads.dim, half = r->spec.dims / 2;
    for (int64_t i = 0; i < r->B * r->T * W; ++i) {
        const int64_t head = i % W / D, d = i % W % D, position = i / W % r->T;
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

static void begin_rotary(cu_case *c, mics_dtype dtype, const char *pass, const rotary *r)
{
    cu_begin(c, dtype, 0, "rotary_%s B=%d T=%d heads=%d/%d D=%d dims=%d at %d add %d", pass,
             (int)r->B, (int)r->T, (int)r->heads.query, (int)r->heads.key_value, (int)r->heads.dim,
             (int)r->spec.dims, (int)r->offset, r->add_dx);
}

static void rotary_forward_case(mics_dtype dtype, rotary r)
{
    const int64_t elems = r.B * r.T * mics_heads_width(r.heads);
    cu_case c;
    begin_rotary(&c, dtype, "forward", &r);
    cu_buffer *x = cu_input(&c, "x", (int)dtype, elems, r.offset, 1.0);
    cu_buffer *y = cu_output(&c, "y", (int)dtype, elems, r.offset);
    double *want = cu_doubles(&c, elems), *sum = cu_doubles(&c, elems);
    turn(&r, want, sum, x->values, false);
    cu_expect(y, want, sum, CU_TOLERANCE);
    r.x = x->data;
    r.y = y->data;
    cu_run(&c, run_rotary_forward, &r);
    cu_end(&c);
}

static void rotary_backward_case(mics_dtype dtype, rotary r, bool alias)
{
    const int64_t elems = r.B * r.T * mics_heads_width(r.heads);
    cu_case c;
    begin_rotary(&c, dtype, alias ? "backward in place" : "backward", &r);
    cu_buffer *dy = cu_input(&c, "dy", (int)dtype, elems, r.offset, 1.0);
    cu_buffer *dx = alias ? dy : cu_inout(&c, "dx", (int)dtype, elems, r.offset, r.add_dx);
    dx->role = alias ? CU_INOUT : dx->role;
    double *want = cu_doubles(&c, elems), *sum = cu_doubles(&c, elems);
    turn(&r, want, sum, dy->values, true);
    begin_with(dx, r.add_dx, want, sum);
    cu_expect(dx, want, sum, CU_TOLERANCE);
    r.dy = dy->data;
    r.dx = dx->data;
    cu_run(&c, run_rotary_backward, &r);
    cu_end(&c);
}

// Whole packs and not, heads that turn in part, and more pairs than a launch takes.
static const rotary ROTARIES[] = {
    {.B = 1, .T = 1, .heads = {1, 1, 2}, .spec = {.dims = 2, .scale = 1}},
    {.B = 2, .T = 5, .heads = {6, 2, 40}, .spec = {.dims = 40, .scale = 1}},
    {.B = 2, .T = 33, .heads = {5, 1, 64}, .spec = {.dims = 16, .scale = 1.25F}},
    {.B = 1, .T = 9, .heads = {3, 3, 17}, .spec = {.dims = 6, .scale = 0.5F}},
    {.B = 2, .T = 7, .heads = {4, 2, 64}, .spec = {.dims = 64, .scale = 1}, .offset = 1},
    {.B = 1, .T = 70, .heads = {2, 1, 128}, .spec = {.dims = 128, .scale = 1}},
    {.B = 1, .T = 3, .heads = {2, 1, 300}, .spec = {.dims = 288, .scale = 1}},
};

static void rotary_and_gradient(void **state)
{
    (void)state;
    float frequencies[256];
    for (int i = 0; i < 256; ++i)
        frequencies[i] = powf(10000.0F, -(float)i / 64);
    cu_device();
    for (size_t i = 0; i < sizeof ROTARIES / sizeof *ROTARIES; ++i)
        for (int k = 0; k < 4 * MICS_DTYPES; ++k) {
            const mics_dtype dtype = (mics_dtype)(k / 4);
            rotary r = ROTARIES[i];
            r.spec.frequencies = frequencies;
            r.add_dx = k % 2;
            if (k % 4 == 0)
                rotary_forward_case(dtype, r);
            rotary_backward_case(dtype, r, k % 4 / 2);
        }
}

// ---- norms of heads ----

static const double EPS = 1e-6;

typedef struct norm {
    void *y, *dx, *dweights[2];
    float *scales;
    const void *x, *dy, *weights[2];
    int64_t N, offset;
    mics_heads heads;
    bool add_dx, add_weights;
} norm;

static void run_norm_forward(const mics_exec *at, const void *args)
{
    const norm *a = args;
    op_head_norm_forward(mics_kernels_cuda(), at, a->y, a->scales, a->x, a->weights[0],
                         a->weights[1], (float)EPS, a->N, a->heads);
}

static void run_norm_backward(const mics_exec *at, const void *args)
{
    const norm *a = args;
    op_head_norm_backward(mics_kernels_cuda(), at, a->dx, a->dweights, a->dy, a->x, a->scales,
                          a->weights, a->N, a->heads, a->add_dx, a->add_weights);
}

static int64_t normed(const norm *a)
{
    return a->heads.query + a->heads.key_value;
}

// Where a head of all begins, and whether it is a key's.
static int64_t head_at(const norm *a, int64_t index)
{
    return index / normed(a) * mics_heads_width(a->heads) + index % normed(a) * a->heads.dim;
}
static int is_key(const norm *a, int64_t index)
{
    return index % normed(a) < a->heads.query ? 0 : 1;
}

static double scale_of(const double *x_D, int64_t D)
{
    double squares = 0;
    for (int64_t d = 0; d < D; ++d)
        squares += x_D[d] * x_D[d];
    return 1 / sqrt(squares / (double)D + (double)(float)EPS);
}

static size_t workspace_of(mics_dtype dtype, const norm *a)
{
    return op_workspace_bytes(dtype, MICS_OP_HEAD_NORM, op_heads_shape(1, a->N, a->heads));
}

static void begin_norm(cu_case *c, mics_dtype dtype, size_t workspace, const char *pass,
                       const norm *a)
{
    cu_begin(c, dtype, workspace, "head_norm_%s N=%d heads=%d/%d D=%d at %d add %d %d", pass,
             (int)a->N, (int)a->heads.query, (int)a->heads.key_value, (int)a->heads.dim,
             (int)a->offset, a->add_dx, a->add_weights);
}

static void norm_forward_case(mics_dtype dtype, norm a)
{
    const int64_t elems = a.N * mics_heads_width(a.heads), D = a.heads.dim, all = a.N * normed(&a);
    cu_case c;
    begin_norm(&c, dtype, 0, "forward", &a);
    cu_buffer *x = cu_input(&c, "x", (int)dtype, elems, a.offset, 2.0);
    cu_buffer *weights[2] = {cu_input(&c, "query weight", (int)dtype, D, a.offset, 1.0),
                             cu_input(&c, "key weight", (int)dtype, D, a.offset, 1.0)};
    cu_buffer *y = cu_output(&c, "y", (int)dtype, elems, a.offset);
    cu_buffer *scales = cu_output(&c, "scales", MICS_DTYPE_FP32, all, 0);
    double *want = cu_doubles(&c, elems), *sum = cu_doubles(&c, elems);
    double *of_heads = cu_doubles(&c, all);
    copy_doubles(want, x->values, elems);
    for (int64_t i = 0; i < all; ++i) {
        const int64_t at = head_at(&a, i);
        of_heads[i] = scale_of(x->values + at, D);
        for (int64_t d = 0; d < D; ++d)
            want[at + d] *= of_heads[i] * weights[is_key(&a, i)]->values[d];
    }
    for (int64_t i = 0; i < elems; ++i)
        sum[i] = fabs(want[i]);
    cu_expect(y, want, sum, 2 * CU_TOLERANCE);
    cu_expect(scales, of_heads, of_heads, 2 * CU_TOLERANCE);
    a.x = x->data;
    a.y = y->data;
    a.scales = scales->data;
    a.weights[0] = weights[0]->data;
    a.weights[1] = weights[1]->data;
    cu_run(&c, run_norm_forward, &a);
    cu_end(&c);
}

// dx and dweights, and the sums of their absolute terms.
typedef struct gradients {
    double *dx, *dx_sum, *dweights[2], *dweight_sums[2];
} gradients;

static void add_head(const gradients *g, const double *x, const double *dy, const double *weight,
                     int key, int64_t at, int64_t D)
{
    const double scale = scale_of(x + at, D);
    double sum = 0, abs_sum = 0;
    for (int64_t d = 0; d < D; ++d) {
        const double term = dy[at + d] * x[at + d] * scale;
        sum += term * weight[d];
        abs_sum += fabs(term * weight[d]);
        g->dweights[key][d] += term;
        g->dweight_sums[key][d] += fabs(term);
    }
    for (int64_t d = 0; d < D; ++d) {
        const double own = dy[at + d] * weight[d], normal = x[at + d] * scale;
        g->dx[at + d] = scale * (own - normal * sum / (double)D);
        g->dx_sum[at + d] = scale * (fabs(own) + fabs(normal) * abs_sum / (double)D);
    }
}

static void norm_backward_case(mics_dtype dtype, norm a, bool alias)
{
    const int64_t elems = a.N * mics_heads_width(a.heads), D = a.heads.dim, all = a.N * normed(&a);
    cu_case c;
    begin_norm(&c, dtype, workspace_of(dtype, &a), alias ? "backward in place" : "backward", &a);
    cu_buffer *x = cu_input(&c, "x", (int)dtype, elems, a.offset, 2.0);
    cu_buffer *scales = cu_input(&c, "scales", MICS_DTYPE_FP32, all, 0, 1.0);
    cu_buffer *dy = cu_input(&c, "dy", (int)dtype, elems, a.offset, 1.0);
    cu_buffer *dx = alias ? dy : cu_inout(&c, "dx", (int)dtype, elems, a.offset, a.add_dx);
    dx->role = alias ? CU_INOUT : dx->role;
    const gradients g = {cu_doubles(&c, elems),
                         cu_doubles(&c, elems),
                         {cu_doubles(&c, D), cu_doubles(&c, D)},
                         {cu_doubles(&c, D), cu_doubles(&c, D)}};
    cu_buffer *weights[2], *dweights[2];
    for (int p = 0; p < 2; ++p) {
        weights[p] = cu_input(&c, p ? "key weight" : "query weight", (int)dtype, D, a.offset, 1.0);
        dweights[p] = cu_inout(&c, p ? "dweight of keys" : "dweight of queries", (int)dtype, D,
                               a.offset, a.add_weights);
        a.weights[p] = weights[p]->data;
        a.dweights[p] = dweights[p]->data;
    }
    for (int64_t i = 0; i < elems; ++i) { // values pass
        g.dx[i] = dy->values[i];
        g.dx_sum[i] = fabs(dy->values[i]);
    }
    for (int64_t i = 0; i < all; ++i) {
        const int64_t at = head_at(&a, i);
        const int key = is_key(&a, i);
        scales->values[i] = scale_of(x->values + at, D);
        add_head(&g, x->values, dy->values, weights[key]->values, key, at, D);
    }
    cu_changed(scales);
    begin_with(dx, a.add_dx, g.dx, g.dx_sum);
    cu_expect(dx, g.dx, g.dx_sum, 2 * CU_TOLERANCE);
    for (int p = 0; p < 2; ++p) {
        begin_with(dweights[p], a.add_weights, g.dweights[p], g.dweight_sums[p]);
        cu_expect(dweights[p], g.dweights[p], g.dweight_sums[p], 2 * CU_TOLERANCE);
    }
    a.x = x->data;
    a.dy = dy->data;
    a.dx = dx->data;
    a.scales = scales->data;
    cu_run(&c, run_norm_backward, &a);
    cu_end(&c);
}

static void head_norm_and_gradient(void **state)
{
    (void)state;
    static const norm shapes[] = {
        {.N = 1, .heads = {1, 1, 1}},   {.N = 3, .heads = {6, 2, 40}},
        {.N = 17, .heads = {5, 1, 64}}, {.N = 33, .heads = {3, 3, 17}, .offset = 1},
        {.N = 9, .heads = {2, 1, 128}}, {.N = 5, .heads = {2, 1, 300}},
        {.N = 700, .heads = {4, 2, 8}},
    };
    cu_device();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i)
        for (int k = 0; k < 4 * MICS_DTYPES; ++k) {
            const mics_dtype dtype = (mics_dtype)(k / 4);
            norm a = shapes[i];
            a.add_dx = k & 1;
            a.add_weights = (k + (int)i) & 1;
            if (k % 4 == 0)
                norm_forward_case(dtype, a);
            norm_backward_case(dtype, a, k & 2);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotary_and_gradient),
        cmocka_unit_test(head_norm_and_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
