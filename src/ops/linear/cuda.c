// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Linears as one product each, with what belongs to them in its epilogue: bias, GELU and its
// derivative, sums of rows. Where the library has no such epilogue for a shape or type, the product
// runs bare and a kernel does the rest. Shapes: see mics/kernels.h.
//
// Floors: 2 N I O flops a product, and each matrix read or written once. A kernel beside it reads
// and writes N O numbers more.
//
// Calls of a stream run in order, so a product and the sums after it use the same workspace.
#include "ops/common/bias_cuda.h"
#include "ops/common/cuda_ops.h"
#include "ops/common/matmul_cuda.h"

size_t mics_cuda_linear_workspace_bytes(mics_dtype dtype, int64_t N, int64_t widest)
{
    (void)dtype;
    const size_t sums = mics_cuda_bias_workspace_bytes(N, widest);
    return sums > MICS_CUDA_MATMUL_WORKSPACE_BYTES ? sums : MICS_CUDA_MATMUL_WORKSPACE_BYTES;
}

static bool multiply(const mics_op_place *at, const mics_cuda_product *product)
{
    return mics_cuda_matmul(at, product, at->workspace, at->workspace_bytes);
}

// y = x W, and what `epilogue` says. False: the library does not do that.
static bool forward(const mics_op_place *at, void *y_NO, const void *x_NI, const void *weight,
                    mics_weight_order order, const int64_t NIO[3], mics_cuda_epilogue epilogue,
                    const void *bias_O, void *pre_NO)
{
    const int64_t I = NIO[1], O = NIO[2];
    const bool out_in = order == MICS_WEIGHT_OUT_IN;
    mics_cuda_product product = {.a = x_NI, .b = weight, .c = y_NO, .transpose_b = out_in};
    product.M = NIO[0];
    product.N = O;
    product.K = I;
    product.lda = I;
    product.ldb = out_in ? I : O;
    product.ldc = O;
    product.epilogue = epilogue;
    product.vector = (void *)bias_O; // read only
    product.aux = pre_NO;
    return multiply(at, &product);
}

void mics_cuda_linear_forward(const mics_op_place *at, void *y_NO, const void *x_NI,
                              const void *weight, const void *bias_O, mics_weight_order order,
                              int64_t N, int64_t I, int64_t O)
{
    const int64_t NIO[3] = {N, I, O};
    if (bias_O &&
        forward(at, y_NO, x_NI, weight, order, NIO, MICS_CUDA_EPILOGUE_BIAS, bias_O, NULL))
        return;
    forward(at, y_NO, x_NI, weight, order, NIO, MICS_CUDA_EPILOGUE_NONE, NULL, NULL);
    if (bias_O)
        mics_cuda_bias_add(at, y_NO, bias_O, N, O);
}

void mics_cuda_linear_gelu_forward(const mics_op_place *at, void *y_NO, void *pre_NO,
                                   const void *x_NI, const void *weight, const void *bias_O,
                                   mics_weight_order order, int64_t N, int64_t I, int64_t O)
{
    const int64_t NIO[3] = {N, I, O};
    if (forward(at, y_NO, x_NI, weight, order, NIO,
                bias_O ? MICS_CUDA_EPILOGUE_BIAS_GELU : MICS_CUDA_EPILOGUE_GELU, bias_O, pre_NO))
        return;
    mics_cuda_linear_forward(at, pre_NO, x_NI, weight, bias_O, order, N, I, O);
    mics_cuda_gelu_forward(at, y_NO, pre_NO, N * O);
}

// dx (+)= dy W^T, times gelu'(pre) when there is a `pre`. False: the library does not do that.
static bool backward_input(const mics_op_place *at, void *dx_NI, const void *dy_NO,
                           const void *weight, mics_weight_order order, const int64_t NIO[3],
                           bool add, const void *pre_NI)
{
    const int64_t I = NIO[1], O = NIO[2];
    const bool in_out = order == MICS_WEIGHT_IN_OUT;
    mics_cuda_product product = {.a = dy_NO, .b = weight, .c = dx_NI, .transpose_b = in_out};
    product.M = NIO[0];
    product.N = I;
    product.K = O;
    product.lda = O;
    product.ldb = in_out ? O : I;
    product.ldc = I;
    product.add = add;
    product.epilogue = pre_NI ? MICS_CUDA_EPILOGUE_DGELU : MICS_CUDA_EPILOGUE_NONE;
    product.aux = (void *)pre_NI; // read only
    return multiply(at, &product);
}

// dW (+)= x^T dy, or its transpose, with dbias = the sum of dy's rows when that is not NULL. False:
// the library does not do that.
static bool backward_weight(const mics_op_place *at, void *dweight, void *dbias_O,
                            const void *dy_NO, const void *x_NI, mics_weight_order order,
                            const int64_t NIO[3], bool add)
{
    const int64_t I = NIO[1], O = NIO[2];
    const bool in_out = order == MICS_WEIGHT_IN_OUT;
    mics_cuda_product product = {.c = dweight, .transpose_a = true, .K = NIO[0], .add = add};
    product.a = in_out ? x_NI : dy_NO;
    product.b = in_out ? dy_NO : x_NI;
    product.M = product.lda = in_out ? I : O;
    product.N = product.ldb = product.ldc = in_out ? O : I;
    product.vector = dbias_O;
    if (dbias_O)
        product.epilogue = in_out ? MICS_CUDA_EPILOGUE_SUM_B : MICS_CUDA_EPILOGUE_SUM_A;
    return multiply(at, &product);
}

// The library overwrites the bias gradient, in the place's type. Where it is to be added to, a sum
// of its own keeps to one rounding.
static void backward_params(const mics_op_place *at, void *dweight, void *dbias_O,
                            const void *dy_NO, const void *x_NI, mics_weight_order order,
                            const int64_t NIO[3], bool add)
{
    if (dbias_O && !add && backward_weight(at, dweight, dbias_O, dy_NO, x_NI, order, NIO, add))
        return;
    backward_weight(at, dweight, NULL, dy_NO, x_NI, order, NIO, add);
    if (dbias_O)
        mics_cuda_bias_backward(at, dbias_O, dy_NO, NIO[0], NIO[2], add, at->workspace);
}

void mics_cuda_linear_backward(const mics_op_place *at, void *dx_NI, void *dweight, void *dbias_O,
                               const void *dy_NO, const void *x_NI, const void *weight,
                               mics_weight_order order, int64_t N, int64_t I, int64_t O,
                               bool add_dx, bool add_params)
{
    const int64_t NIO[3] = {N, I, O};
    if (dx_NI)
        backward_input(at, dx_NI, dy_NO, weight, order, NIO, add_dx, NULL);
    backward_params(at, dweight, dbias_O, dy_NO, x_NI, order, NIO, add_params);
}

void mics_cuda_linear_gelu_backward(const mics_op_place *at, void *dpre_NI, void *dweight,
                                    void *dbias_O, const void *dy_NO, const void *x_NI,
                                    const void *pre_NI, const void *weight, mics_weight_order order,
                                    int64_t N, int64_t I, int64_t O, bool add_params)
{
    const int64_t NIO[3] = {N, I, O};
    if (!backward_input(at, dpre_NI, dy_NO, weight, order, NIO, false, pre_NI)) {
        backward_input(at, dpre_NI, dy_NO, weight, order, NIO, false, NULL);
        mics_cuda_gelu_backward(at, dpre_NI, dpre_NI, pre_NI, N * I, false);
    }
    backward_params(at, dweight, dbias_O, dy_NO, x_NI, order, NIO, add_params);
}
