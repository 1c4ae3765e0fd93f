// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows by grouped GEMMs (experts/grouped.cuh); then each token adds up its own. In backward, as in
// cpu.c, a row of dx first is what the output's gradient gives behind the expert's weight: times x
// it is the gradient of the router's weight, and then it is multiplied by that weight. Where no dx is
// wanted, rows of what x gives take its place, times the output's gradient.
#include "ops/common/cuda_ops.h"
#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"
#include "ops/common/team.cuh"
#include "ops/experts/def.h"
#include "ops/experts/experts_cuda.h"

namespace
{

constexpr int WEIGH_THREADS = 256;

template <typename T> struct weigh_problem {
    const int32_t *tokens;
    const T *x, *dy; // (R, I), (N, O)
    T *dx, *dy_rows; // (R, I), NULL: not wanted; (R, O): dy times each row's weight
    const T *weights;
    T *dweights;
    const float *routes; // of the router's stats
    int64_t stride, R, I, O;
    int at, chosen; // where the rows of a token begin
};

// Which of its token's experts a row is of.
template <typename T>
__device__ __forceinline__ int place_of(const weigh_problem<T> &p, int64_t row)
{
    const float *rows = p.routes + p.tokens[row] * p.stride + p.at;
    int j = 0;
    while (j + 1 < p.chosen && __float_as_int(rows[j]) != row)
        ++j;
    return j;
}

// A block a row. COUNT numbers at a time.
template <typename T, int COUNT>
__global__ void __launch_bounds__(WEIGH_THREADS) weigh_rows(weigh_problem<T> p)
{
    __shared__ float shared[MAX_WARPS];
    for (int64_t row = blockIdx.x; row < p.R; row += gridDim.x) {
        const int64_t token = p.tokens[row], at = token * p.chosen + place_of(p, row);
        const float weight = to_float(p.weights[at]);
        const T *x = p.x + row * p.I, *dy = p.dy + token * p.O;
        T *dx = p.dx != nullptr ? p.dx + row * p.I : nullptr, *dy_row = p.dy_rows + row * p.O;
        float sum = 0;
        for (int64_t i = threadIdx.x * COUNT; p.dx != nullptr && i < p.I;
             i += (int64_t)WEIGH_THREADS * COUNT) {
            auto d = load_pack<COUNT>(static_cast<const T *>(dx) + i);
            const auto in = load_pack<COUNT>(x + i);
#pragma unroll
            for (int c = 0; c < COUNT; ++c) {
                sum += to_float(d.at[c]) * to_float(in.at[c]);
                d.at[c] = from_float<T>(to_float(d.at[c]) * weight);
            }
            store_pack<COUNT>(dx + i, d);
        }
        for (int64_t o = threadIdx.x * COUNT; o < p.O; o += (int64_t)WEIGH_THREADS * COUNT) {
            auto d = load_pack<COUNT>(dy + o);
            if (p.dx == nullptr && p.dweights != nullptr) {
                const auto own = load_pack<COUNT>(static_cast<const T *>(dy_row) + o);
#pragma unroll
                for (int c = 0; c < COUNT; ++c)
                    sum += to_float(d.at[c]) * to_float(own.at[c]);
            }
#pragma unroll
            for (int c = 0; c < COUNT; ++c)
                d.at[c] = from_float<T>(to_float(d.at[c]) * weight);
            store_pack<COUNT>(dy_row + o, d);
        }
        sum = team_sum<WEIGH_THREADS>(sum, shared);
        if (threadIdx.x == 0 && p.dweights != nullptr)
            p.dweights[at] = from_float<T>(sum);
    }
}

mics_cuda_experts_gemm gemm_of(const mics_op_call *call, const mics_cuda_routes *routes)
{
    const mics_experts e = call->shape.op->experts;
    return {call->at,
            routes,
            e.count,
            call->shape.N * e.chosen,
            call->shape.in[0] / e.chosen,
            call->shape.out,
            call->shape.expert_elems,
            call->params[0],
            0,
            0};
}

template <typename T, int COUNT>
void launch_weigh(const mics_op_call *call, const weigh_problem<T> &p)
{
    MICS_LAUNCH((weigh_rows<T, COUNT>), grid_of(p.R, 1), WEIGH_THREADS, 0, stream_of(call->at), p);
}

template <typename T> void weigh(const mics_op_call *call, const mics_cuda_experts_gemm *g)
{
    constexpr int COUNT = 16 / sizeof(T);
    const mics_experts e = call->shape.op->experts;
    const weigh_problem<T> p = {g->routes->tokens,
                                static_cast<const T *>(call->in[0]),
                                static_cast<const T *>(call->dout),
                                static_cast<T *>(call->din),
                                static_cast<T *>(g->routes->rows),
                                static_cast<const T *>(call->in[1]),
                                static_cast<T *>(call->din_second),
                                call->routes,
                                mics_route_floats(e),
                                g->rows,
                                g->I,
                                g->O,
                                e.count + 2 + e.chosen,
                                e.chosen};
    if (packs_fit<T, COUNT>(p.x, p.I) && packs_fit<T, COUNT>(p.dx, p.I) &&
        packs_fit<T, COUNT>(p.dy, p.O))
        launch_weigh<T, COUNT>(call, p);
    else
        launch_weigh<T, 1>(call, p);
}

void run_forward(const mics_op_call *call)
{
    const mics_cuda_routes routes = mics_cuda_experts_route(call);
    const mics_cuda_experts_gemm gemm = gemm_of(call, &routes);
    const mics_cuda_experts_rows rows = {call->in[0], false, routes.rows, 0};
    const mics_cuda_experts_sum sum = {call->out, routes.rows, call->in[1], gemm.O, false, nullptr,
                                       0};
    mics_cuda_experts_forward(&gemm, &rows);
    mics_cuda_experts_add_up(call, &sum);
}

void run_backward(const mics_op_call *call)
{
    const mics_cuda_routes routes = mics_cuda_experts_route(call);
    const mics_cuda_experts_gemm gemm = gemm_of(call, &routes);
    const mics_cuda_experts_rows rows = {call->dout, true, call->din, 0};
    const mics_cuda_experts_weights weights = {routes.rows, call->in[0], false, call->dparams[0],
                                               call->add_params[0]};
    const mics_cuda_experts_rows given = {call->in[0], false, routes.rows, 0};
    if (call->din != nullptr)
        mics_cuda_experts_input_gradient(&gemm, &rows);
    else if (call->din_second != nullptr)
        mics_cuda_experts_forward(&gemm, &given);
    MICS_BY_DTYPE(call->at->dtype, weigh, call, &gemm);
    if (call->dparams[0] != nullptr)
        mics_cuda_experts_weight_gradient(&gemm, &weights);
}

} // namespace

const mics_op_kernels mics_cuda_experts_out_kernels = {run_forward, run_backward, nullptr, nullptr,
                                                       nullptr,     nullptr,      nullptr, false};
