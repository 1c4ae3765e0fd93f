// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Linears as one GEMM each, with what belongs to them in its epilogue: bias, the residual that is
// added next, GELU in its tanh form and its derivative, sums of rows. Where the library has no such epilogue for a shape or type, the
// GEMM runs bare and a kernel does the rest. Shapes: see mics/kernels.h.
//
// Floors: 2 N I O flops a GEMM, and each matrix read or written once. A kernel beside it reads
// and writes N O numbers more.
//
// Calls of a stream run in order, so a GEMM and the sums after it use the same workspace.
#include "ops/common/bias_cuda.h"
#include "ops/common/cuda_ops.h"
#include "ops/common/matmul_cuda.h"

static bool multiply(const mics_exec *at, const mics_cuda_gemm *gemm)
{
    return mics_cuda_matmul(at, gemm, at->workspace, at->workspace_bytes);
}

// y = x W, with a `residual` added, and what `epilogue` says. False: the library does not do that.
static bool forward_with(const mics_op_call *call, void *y_NO, mics_cuda_epilogue epilogue,
                         void *pre_NO, const void *residual_NO)
{
    const int64_t I = call->shape.in[0], O = call->shape.out;
    const bool out_in = call->shape.op->weight_out_in;
    mics_cuda_gemm gemm = {
        .a = call->in[0], .b = call->params[0], .residual = residual_NO, .c = y_NO};
    gemm.transpose_b = out_in;
    gemm.M = call->shape.N;
    gemm.N = O;
    gemm.K = I;
    gemm.lda = I;
    gemm.ldb = out_in ? I : O;
    gemm.ldc = O;
    gemm.epilogue = epilogue;
    if (epilogue != MICS_CUDA_EPILOGUE_NONE)
        gemm.vector = (void *)call->params[1]; // read only
    gemm.aux = pre_NO;
    return multiply(call->at, &gemm);
}

static void forward(const mics_op_call *call)
{
    const void *bias_O = call->params[1];
    if (bias_O && forward_with(call, call->out, MICS_CUDA_EPILOGUE_BIAS, NULL, NULL))
        return;
    forward_with(call, call->out, MICS_CUDA_EPILOGUE_NONE, NULL, NULL);
    if (bias_O)
        mics_cuda_bias_add(call->at, call->out, bias_O, call->shape.N, call->shape.out,
                           call->shape.out);
}

static void forward_gelu(const mics_op_call *call, const mics_op_call *gelu)
{
    const mics_cuda_epilogue epilogue =
        call->params[1] ? MICS_CUDA_EPILOGUE_BIAS_GELU : MICS_CUDA_EPILOGUE_GELU;
    if (!gelu->shape.op->exact && forward_with(call, gelu->out, epilogue, call->out, NULL))
        return;
    forward(call);
    mics_cuda_gelu_forward(gelu);
}

// Straight to where the adapter's output is.
static void forward_lora(const mics_op_call *call, const mics_op_call *lora)
{
    mics_op_call own = *call;
    own.out = lora->out;
    forward(&own);
    mics_cuda_lora_add(lora);
}

// One rounding of the whole sum, where two calls round what lies between them too.
static void forward_add(const mics_op_call *call, const mics_op_call *add)
{
    const void *residual = add->in[add->in[0] == call->out ? 1 : 0];
    const mics_cuda_epilogue epilogue =
        call->params[1] ? MICS_CUDA_EPILOGUE_BIAS : MICS_CUDA_EPILOGUE_NONE;
    if (forward_with(call, add->out, epilogue, NULL, residual))
        return;
    forward(call);
    mics_cuda_add(add->at, add->out, add->in[0], add->in[1], add->shape.N * add->shape.out);
}

// dx (+)= dy W^T, times gelu'(pre) when there is a `pre`. False: the library does not do that.
static bool backward_input(const mics_op_call *call, void *dx_NI, bool add, const void *pre_NI)
{
    const int64_t I = call->shape.in[0], O = call->shape.out;
    const bool in_out = !call->shape.op->weight_out_in;
    mics_cuda_gemm gemm = {.a = call->dout, .b = call->params[0], .c = dx_NI};
    gemm.transpose_b = in_out;
    gemm.M = call->shape.N;
    gemm.N = I;
    gemm.K = O;
    gemm.lda = O;
    gemm.ldb = in_out ? O : I;
    gemm.ldc = I;
    gemm.add = add;
    gemm.epilogue = pre_NI ? MICS_CUDA_EPILOGUE_DGELU : MICS_CUDA_EPILOGUE_NONE;
    gemm.aux = (void *)pre_NI; // read only
    return multiply(call->at, &gemm);
}

// dW (+)= x^T dy, or its transpose, with dbias = the sum of dy's rows when that is not NULL. False:
// the library does not do that.
static bool backward_weight(const mics_op_call *call, void *dbias_O)
{
    const int64_t I = call->shape.in[0], O = call->shape.out;
    const bool in_out = !call->shape.op->weight_out_in;
    mics_cuda_gemm gemm = {.c = call->dparams[0], .transpose_a = true, .K = call->shape.N};
    gemm.add = call->add_params[0];
    gemm.a = in_out ? call->in[0] : call->dout;
    gemm.b = in_out ? call->dout : call->in[0];
    gemm.M = gemm.lda = in_out ? I : O;
    gemm.N = gemm.ldb = gemm.ldc = in_out ? O : I;
    gemm.vector = dbias_O;
    if (dbias_O)
        gemm.epilogue = in_out ? MICS_CUDA_EPILOGUE_SUM_B : MICS_CUDA_EPILOGUE_SUM_A;
    return multiply(call->at, &gemm);
}

// The library overwrites the bias gradient, in the call's type. Where it is to be added to, a sum
// of its own keeps to one rounding.
static void backward_params(const mics_op_call *call)
{
    void *dbias_O = call->dparams[1];
    const bool add = call->add_params[1], wants_weight = call->dparams[0] != NULL;
    if (dbias_O && wants_weight && !add && backward_weight(call, dbias_O))
        return;
    if (wants_weight)
        backward_weight(call, NULL);
    if (dbias_O)
        mics_cuda_bias_backward(call->at, dbias_O, call->dout, call->shape.N, call->shape.out,
                                call->shape.out, add, call->at->workspace);
}

static void backward(const mics_op_call *call)
{
    if (call->din)
        backward_input(call, call->din, call->add_din, NULL);
    backward_params(call);
}

static void backward_gelu(const mics_op_call *call, const mics_op_call *gelu)
{
    const void *pre_NI = gelu->in[0];
    if (gelu->shape.op->exact || !backward_input(call, gelu->din, false, pre_NI)) {
        backward_input(call, gelu->din, false, NULL);
        mics_cuda_gelu_backward_in_place(gelu);
    }
    backward_params(call);
}

static const mics_op_pair pairs[] = {
    {.next = MICS_OP_GELU, .forward = forward_gelu, .backward = backward_gelu},
    {.next = MICS_OP_ADD, .forward = forward_add, .skips_between = true},
    {.next = MICS_OP_LORA, .forward = forward_lora, .skips_between = true},
    {.forward = NULL}};

const mics_op_kernels mics_cuda_linear_kernels = {
    .forward = forward, .backward = backward, .pairs = pairs};
