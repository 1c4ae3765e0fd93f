// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// SwiGLU on a GPU.
#include "cuda_op.h"
#include <math.h>

typedef struct swiglu {
    void *y, *dx;
    const void *x, *dy;
    int64_t N, I;
    bool add_dx;
    int32_t chosen; // rows of a token at its experts; 0: no experts
} swiglu;

// N rows.
static mics_op_shape shape_of(const swiglu *g)
{
    const int64_t rows = g->chosen > 0 ? g->chosen : 1;
    return (mics_op_shape){.N = g->N / rows, .in = {2 * g->I * rows}, .out = g->I * rows};
}

static mics_op op_of(const swiglu *g)
{
    return (mics_op){.kind = MICS_OP_SWIGLU,
                     .experts = {.count = g->chosen > 0 ? 7 : 0, .chosen = g->chosen}};
}

static void run_forward(const mics_exec *at, const void *args)
{
    const swiglu *g = args;
    op_forward(mics_kernels_cuda(), op_of(g),
               (mics_op_call){.at = at, .shape = shape_of(g), .in = {g->x}, .out = g->y});
}

static void run_backward(const mics_exec *at, const void *args)
{
    const swiglu *g = args;
    op_backward(mics_kernels_cuda(), op_of(g),
                (mics_op_call){.at = at,
                               .shape = shape_of(g),
                               .in = {g->x},
                               .dout = g->dy,
                               .din = g->dx,
                               .add_din = g->add_dx});
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double tolerance(mics_dtype dtype)
{
    return dtype == MICS_DTYPE_FP32 ? CU_TOLERANCE : CU_QUICK;
}

// Rounding of e^-g is an error of |g| units in the sigmoid where that is small.
static double rounding(double gate)
{
    return 3 + (gate < 0 ? -gate : 0);
}

// Beside random numbers, gates far out.
static cu_buffer *input(cu_case *c, mics_dtype dtype, int64_t N, int64_t I, int64_t offset)
{
    cu_buffer *x = cu_input(c, "x", (int)dtype, N * 2 * I, offset, 2.0);
    const double values[] = {0.0, 30.0, -30.0, 30000.0, -30000.0, 87.5, -87.5};
    for (int64_t i = 0; i < I && i < (int64_t)(sizeof values / sizeof *values); ++i)
        x->values[i] = values[i];
    cu_changed(x);
    return x;
}

static void forward_case(mics_dtype dtype, int64_t N, int64_t I, int64_t offset, int32_t chosen)
{
    cu_case c;
    cu_begin(&c, dtype, 0, "swiglu_forward N=%d I=%d at %d, %d a token", (int)N, (int)I,
             (int)offset, (int)chosen);
    cu_buffer *x = input(&c, dtype, N, I, offset);
    cu_buffer *y = cu_output(&c, "y", (int)dtype, N * I, offset);
    double *want = cu_doubles(&c, N * I), *sum = cu_doubles(&c, N * I);
    for (int64_t i = 0; i < N * I; ++i) {
        const double *row = x->values + i / I * 2 * I, gate = row[i % I];
        want[i] = gate * sigmoid(gate) * row[I + i % I];
        sum[i] = fabs(want[i]) * rounding(gate) + 1e-28;
    }
    cu_expect(y, want, sum, tolerance(dtype));
    const swiglu g = {.y = y->data, .x = x->data, .N = N, .I = I, .chosen = chosen};
    cu_run(&c, run_forward, &g);
    cu_end(&c);
}

static void backward_case(mics_dtype dtype, int64_t N, int64_t I, int64_t offset, bool add,
                          int32_t chosen)
{
    cu_case c;
    cu_begin(&c, dtype, 0, "swiglu_backward N=%d I=%d at %d add %d, %d a token", (int)N, (int)I,
             (int)offset, add, (int)chosen);
    cu_buffer *x = input(&c, dtype, N, I, offset);
    cu_buffer *dy = cu_input(&c, "dy", (int)dtype, N * I, offset, 1.0);
    cu_buffer *dx = cu_inout(&c, "dx", (int)dtype, N * 2 * I, offset, add);
    double *want = cu_doubles(&c, N * 2 * I), *sum = cu_doubles(&c, N * 2 * I);
    for (int64_t i = 0; i < N * I; ++i) {
        const int64_t at = i / I * 2 * I + i % I;
        const double gate = x->values[at], up = x->values[at + I], s = sigmoid(gate);
        const double d = dy->values[i], others = 1 / (1 + exp(gate)); // 1 - s
        want[at] = d * up * s * (1 + gate * others);
        want[at + I] = d * gate * s;
        sum[at] = fabs(d * up) * s * (1 + fabs(gate) * others) * rounding(gate) + 1e-28;
        sum[at + I] = fabs(want[at + I]) * rounding(gate) + 1e-28;
    }
    for (int64_t i = 0; add && i < N * 2 * I; ++i) {
        want[i] += dx->values[i];
        sum[i] += fabs(dx->values[i]);
    }
    cu_expect(dx, want, sum, tolerance(dtype));
    const swiglu g = {.dx = dx->data,
                      .dy = dy->data,
                      .x = x->data,
                      .N = N,
                      .I = I,
                      .add_dx = add,
                      .chosen = chosen};
    cu_run(&c, run_backward, &g);
    cu_end(&c);
}

static void swiglu_matches(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 0},   {3, 5, 0},    {17, 64, 0},  {33, 65, 1},
                                        {5, 128, 1}, {70, 96, 0},  {2, 2056, 0}, {9, 40, 0},
                                        {3, 300, 0}, {130, 16, 0}, {2, 4099, 0}};
    cu_device();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i)
        for (int dtype = 0; dtype < MICS_DTYPES; ++dtype) {
            forward_case((mics_dtype)dtype, shapes[i][0], shapes[i][1], shapes[i][2], 0);
            backward_case((mics_dtype)dtype, shapes[i][0], shapes[i][1], shapes[i][2],
                          (i + (size_t)dtype) % 2, 0);
        }
}

static void experts_have_rows_of_their_own(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < MICS_DTYPES; ++dtype)
        for (int32_t chosen = 1; chosen < 4; ++chosen) {
            forward_case((mics_dtype)dtype, 6, 5 + 11 * chosen, 0, chosen);
            backward_case((mics_dtype)dtype, 12, 16, 0, chosen == 2, chosen);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(swiglu_matches),
                                       cmocka_unit_test(experts_have_rows_of_their_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
