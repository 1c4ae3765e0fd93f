// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// RMSNorm on a GPU. Shapes: see mics/op.h.
#include "cuda_op.h"
#include <math.h>
#include <string.h>

static const double EPS = 1e-5;

static double row_tolerance(int64_t C)
{
    return CU_TOLERANCE * (1 + sqrt((double)C) / 16);
}

static void run_forward(const mics_exec *at, const void *args)
{
    mics_op_call call = *(const mics_op_call *)args;
    call.at = at;
    mics_kernels_cuda()->ops[MICS_OP_RMSNORM]->forward(&call);
}

static void run_backward(const mics_exec *at, const void *args)
{
    mics_op_call call = *(const mics_op_call *)args;
    call.at = at;
    mics_kernels_cuda()->ops[MICS_OP_RMSNORM]->backward(&call);
}

static double scale_of(const double *x_C, int64_t C)
{
    double squares = 0;
    for (int64_t i = 0; i < C; ++i)
        squares += x_C[i] * x_C[i];
    return 1 / sqrt(squares / (double)C + (double)(float)EPS);
}

static void forward_case(mics_dtype dtype, int64_t N, int64_t C, int64_t offset)
{
    cu_case c;
    cu_begin(&c, dtype, 0, "rmsnorm_forward N=%d C=%d at %d", (int)N, (int)C, (int)offset);
    cu_buffer *x = cu_input(&c, "x", (int)dtype, N * C, offset, 2.0);
    cu_buffer *weight = cu_input(&c, "weight", (int)dtype, C, offset, 1.0);
    cu_buffer *y = cu_output(&c, "y", (int)dtype, N * C, offset);
    cu_buffer *scale = cu_output(&c, "scale", MICS_DTYPE_FP32, N, 0);
    double *want = cu_doubles(&c, N * C), *sum = cu_doubles(&c, N * C), *scales = cu_doubles(&c, N);
    for (int64_t i = 0; i < N * C; ++i) {
        scales[i / C] = scale_of(x->values + i / C * C, C);
        want[i] = x->values[i] * scales[i / C] * weight->values[i % C];
        sum[i] = fabs(want[i]);
    }
    cu_expect(y, want, sum, row_tolerance(C));
    cu_expect(scale, scales, scales, row_tolerance(C));
    const mics_op op = {.kind = MICS_OP_RMSNORM, .eps = (float)EPS};
    const mics_op_call call = {.shape = {.op = &op, .N = N, .in = {C}, .out = C},
                               .in = {x->data},
                               .out = y->data,
                               .stats = scale->data,
                               .params = {weight->data}};
    cu_run(&c, run_forward, &call);
    cu_end(&c);
}

// dx, dweight and the sums of their absolute terms, beside what they are added to.
typedef struct gradients {
    double *dx, *dx_sum, *dweight, *dweight_sum;
} gradients;

static void add_row(const gradients *g, const double *x, const double *dy, const double *weight,
                    int64_t n, int64_t C)
{
    const double scale = scale_of(x + n * C, C);
    double sum = 0, abs_sum = 0;
    for (int64_t i = 0; i < C; ++i) {
        const double term = dy[n * C + i] * x[n * C + i] * scale;
        sum += term * weight[i];
        abs_sum += fabs(term * weight[i]);
        g->dweight[i] += term;
        g->dweight_sum[i] += fabs(term);
    }
    for (int64_t i = 0; i < C; ++i) {
        const double own = dy[n * C + i] * weight[i], normal = x[n * C + i] * scale;
        g->dx[n * C + i] += scale * (own - normal * sum / (double)C);
        g->dx_sum[n * C + i] += scale * (fabs(own) + fabs(normal) * abs_sum / (double)C);
    }
}

static void begin_with(const cu_buffer *buffer, bool add, double *want, double *sum)
{
    for (int64_t i = 0; add && i < buffer->elems; ++i) {
        want[i] = buffer->values[i];
        sum[i] = fabs(buffer->values[i]);
    }
}

static void backward_case(mics_dtype dtype, int64_t N, int64_t C, int64_t offset, int flags)
{
    const bool add_dx = flags & 1, add_weight = flags & 2, alias = flags & 4;
    const mics_op op = {.kind = MICS_OP_RMSNORM, .eps = (float)EPS};
    const mics_op_shape shape = {.op = &op, .N = N, .in = {C}, .out = C};
    cu_case c;
    cu_begin(&c, dtype, op_workspace_bytes(dtype, op.kind, shape),
             "rmsnorm_backward N=%d C=%d at %d add %d %d alias %d", (int)N, (int)C, (int)offset,
             add_dx, add_weight, alias);
    cu_buffer *x = cu_input(&c, "x", (int)dtype, N * C, offset, 2.0);
    cu_buffer *weight = cu_input(&c, "weight", (int)dtype, C, offset, 1.0);
    cu_buffer *stats = cu_input(&c, "scale", MICS_DTYPE_FP32, N, 0, 1.0);
    cu_buffer *dy = cu_input(&c, "dy", (int)dtype, N * C, offset, 1.0);
    cu_buffer *dx = alias ? dy : cu_inout(&c, "dx", (int)dtype, N * C, offset, add_dx);
    dx->role = alias ? CU_INOUT : dx->role;
    cu_buffer *dweight = cu_inout(&c, "dweight", (int)dtype, C, offset, add_weight);
    double *dy_values = cu_doubles(&c, N * C); // dx may come to lie over them
    memcpy(dy_values, dy->values, (size_t)(N * C) * sizeof *dy_values);
    for (int64_t n = 0; n < N; ++n)
        stats->values[n] = scale_of(x->values + n * C, C);
    cu_changed(stats);
    const gradients g = {cu_doubles(&c, N * C), cu_doubles(&c, N * C), cu_doubles(&c, C),
                         cu_doubles(&c, C)};
    begin_with(dx, add_dx, g.dx, g.dx_sum);
    begin_with(dweight, add_weight, g.dweight, g.dweight_sum);
    for (int64_t n = 0; n < N; ++n)
        add_row(&g, x->values, dy_values, weight->values, n, C);
    cu_expect(dx, g.dx, g.dx_sum, row_tolerance(C));
    cu_expect(dweight, g.dweight, g.dweight_sum, row_tolerance(C));
    const mics_op_call call = {.shape = shape,
                               .in = {x->data},
                               .stats = stats->data,
                               .params = {weight->data},
                               .dout = dy->data,
                               .din = dx->data,
                               .dparams = {dweight->data},
                               .add_din = add_dx,
                               .add_params = {add_weight}};
    cu_run(&c, run_backward, &call);
    cu_end(&c);
}

static void rmsnorm_matches(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 0},    {3, 5, 0},    {17, 64, 0},  {33, 65, 1},
                                        {5, 768, 0},  {300, 24, 0}, {2, 1030, 3}, {1100, 132, 0},
                                        {3, 2056, 0}, {2, 4104, 0}, {2, 8200, 0}, {2, 16392, 0}};
    cu_device();
    for (int dtype = 0; dtype < MICS_DTYPES; ++dtype)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
            const int64_t *s = shapes[i];
            forward_case((mics_dtype)dtype, s[0], s[1], s[2]);
            for (int flags = (int)i % 2; flags < 8; flags += s[0] * s[1] < 10000 ? 2 : 5)
                backward_case((mics_dtype)dtype, s[0], s[1], s[2], flags);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rmsnorm_matches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
