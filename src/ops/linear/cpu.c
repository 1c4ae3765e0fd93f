// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GEMMs with a weight and its bias. Shapes: see mics/kernels.h. W^T of an OUT_IN weight is its
// transpose as stored.
#include "ops/common/decode.h"
#include "ops/common/kernels_isa.h"
#include "ops/linear/def.h"

// y (N, O) = x W + bias; with an adapter, straight to where its output is.
static void forward_with(const mics_op_call *call, const mics_op_call *lora)
{
    const int64_t N = call->shape.N, I = call->shape.in[0], O = call->shape.out;
    const bool out_in = call->shape.op->weight_out_in;
    mics_gemm_spec gemm = {.transpose_b = out_in,
                           .M = N,
                           .N = O,
                           .K = I,
                           .a = call->in[0],
                           .lda = I,
                           .b = call->params[0],
                           .ldb = out_in ? I : O,
                           .bias = call->params[1],
                           .c = lora != NULL ? lora->out : call->out,
                           .space = call->at->workspace,
                           .ldc = O};
    const bool joined = lora != NULL && MICS_OP(lora_join)(lora, &gemm);
    MICS_OP(gemm)(call->at, &gemm);
    if (lora != NULL && !joined)
        MICS_OP(lora_add)(lora);
}

static void forward(const mics_op_call *call)
{
    forward_with(call, NULL);
}

static void bias_backward(mics_elem *dbias_O, const mics_elem *dy_NO, int64_t N, int64_t O,
                          bool add, float *workspace)
{
    int64_t blocks = N < MICS_LINEAR_BLOCKS ? N : MICS_LINEAR_BLOCKS;
#pragma omp parallel for if (N * O >= MICS_OP_PARALLEL)
    for (int64_t block = 0; block < blocks; ++block) {
        int64_t begin = block * N / blocks, end = (block + 1) * N / blocks;
        MICS_OP(sum_rows)(workspace + block * O, dy_NO + begin * O, end - begin, O);
    }
    MICS_OP(sum_parts)(dbias_O, workspace, blocks, O, O, add);
}

// dx (N, I) (+)= dy W^T
static void input_gradient(const mics_op_call *call)
{
    const int64_t N = call->shape.N, I = call->shape.in[0], O = call->shape.out;
    const bool out_in = call->shape.op->weight_out_in;
    const mics_gemm_spec gemm = {.transpose_b = !out_in,
                                 .add = call->add_din,
                                 .M = N,
                                 .N = I,
                                 .K = O,
                                 .a = call->dout,
                                 .lda = O,
                                 .b = call->params[0],
                                 .ldb = out_in ? I : O,
                                 .c = call->din,
                                 .space = call->at->workspace,
                                 .ldc = I};
    MICS_OP(gemm)(call->at, &gemm);
}

// dW (+)= x^T dy, or its transpose.
static void weight_gradient(const mics_op_call *call)
{
    const int64_t N = call->shape.N, I = call->shape.in[0], O = call->shape.out;
    const bool out_in = call->shape.op->weight_out_in;
    const int64_t rows = out_in ? O : I, columns = out_in ? I : O;
    const mics_gemm_spec gemm = {.transpose_a = true,
                                 .add = call->add_params[0],
                                 .M = rows,
                                 .N = columns,
                                 .K = N,
                                 .a = out_in ? call->dout : call->in[0],
                                 .lda = rows,
                                 .b = out_in ? call->in[0] : call->dout,
                                 .ldb = columns,
                                 .c = call->dparams[0],
                                 .space = call->at->workspace,
                                 .ldc = columns};
    MICS_OP(gemm)(call->at, &gemm);
}

static void backward(const mics_op_call *call)
{
    if (call->din)
        input_gradient(call);
    if (call->dparams[0])
        weight_gradient(call);
    if (call->dparams[1])
        bias_backward(call->dparams[1], call->dout, call->shape.N, call->shape.out,
                      call->add_params[1], call->at->workspace);
}

static const mics_op_pair pairs[] = {
    {.next = MICS_OP_LORA, .forward = forward_with, .skips_between = true}, {.forward = NULL}};

const mics_op_kernels MICS_OP(linear_kernels) = {
    .forward = forward,
    .backward = backward,
    .pairs = pairs,
    .decode = MICS_ELEM_FP32 ? MICS_ISA_OP(linear_decode) : NULL,
    .decode_divides = true};
