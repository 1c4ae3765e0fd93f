// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows of the tables of tokens, positions and token types, and their gradients. Shapes: see
// mics/kernels.h.
//
// Forward: a block a row of y; bytes: the rows of wte that are used, wpe's T, y once: at most 2 s N
//          C + s T C.
//
// Backward, token table: positions come sorted by token, so the rows of one token are a run. Most
// runs are short: a warp stands at each sorted position, looks at the 31 after it, and adds the
// rows of a run that begins there. Runs of LONG_RUN and more get a block for each stripe of 32
// packs of columns, whose warps add the rows in turn, and the first warp adds their sums. Either
// way the tokens alone fix the order. Bytes: dy once, the rows with tokens once (read too when it
// adds), and V C of zeros unless it adds. Position table: a thread adds a pack of columns of one
// position over the sequences. Bytes: dy once more, P C. Table of
//          token types: all tokens have its first row, whose gradient is the sum of dy's rows, as
//          a bias has it. Bytes: dy once more, R C.
#include "ops/common/bias_cuda.h"
#include "ops/common/cuda_ops.h"
#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"
#include "ops/common/team.cuh"

enum {
    ROW_THREADS = 256,
    RUN_WARPS = 8,
    RUN_THREADS = RUN_WARPS * WARP,
    RUN_UNROLL = 4,
    LONG_RUN = WARP - 1, // a warp sees the position before a run and as many of the run
};

// The threads that a block needs for a row of `packs`.
static unsigned row_threads(int64_t packs)
{
    const int64_t whole = ceil_div(packs, WARP) * WARP;
    return static_cast<unsigned>(whole < ROW_THREADS ? whole : int64_t{ROW_THREADS});
}

// See cpu.c.
__device__ static int64_t position_of(const int32_t *segments_N, int64_t n, int64_t T_positions,
                                      int64_t begin)
{
    const int64_t t = begin + n % T_positions;
    if (segments_N == nullptr)
        return t;
    return segments_N[n] < 0 ? 0 : t - segments_N[n];
}

// ---- forward ----

template <typename T, int COUNT>
__global__ void __launch_bounds__(ROW_THREADS)
    embedding_kernel(T *y_NC, const int32_t *tokens_N, const T *wte_VC, const T *wpe_PC,
                     const T *type_C, const int32_t *segments_N, int64_t N, int64_t T_positions,
                     int64_t begin, int64_t C)
{
    for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
        const T *wte_C = wte_VC + tokens_N[n] * C;
        const T *wpe_C =
            wpe_PC ? wpe_PC + position_of(segments_N, n, T_positions, begin) * C : nullptr;
        for (int64_t c = threadIdx.x * COUNT; c < C;
             c += static_cast<int64_t>(blockDim.x) * COUNT) {
            mics_pack<T, COUNT> row = load_pack<COUNT>(wte_C + c);
            if (wpe_C) {
                const mics_pack<T, COUNT> position = load_pack<COUNT>(wpe_C + c);
#pragma unroll
                for (int k = 0; k < COUNT; ++k)
                    row.at[k] = from_float<T>(to_float(row.at[k]) + to_float(position.at[k]));
            }
            if (type_C) {
                const mics_pack<T, COUNT> type = load_pack<COUNT>(type_C + c);
#pragma unroll
                for (int k = 0; k < COUNT; ++k)
                    row.at[k] = from_float<T>(to_float(row.at[k]) + to_float(type.at[k]));
            }
            store_pack<COUNT>(y_NC + n * C + c, row);
        }
    }
}

// The arguments of embedding_forward.
struct forward_call {
    void *y;
    const int32_t *tokens, *segments;
    const void *wte, *wpe, *type; // wpe: from the row of a sequence's first token on
    int64_t N, T, C, begin;
};

template <typename T, int COUNT>
static void forward_packs(const mics_exec *at, const forward_call &c)
{
    MICS_LAUNCH((embedding_kernel<T, COUNT>), grid_of(c.N, 1), row_threads(c.C / COUNT), 0,
                stream_of(at), static_cast<T *>(c.y), c.tokens, static_cast<const T *>(c.wte),
                static_cast<const T *>(c.wpe), static_cast<const T *>(c.type), c.segments, c.N, c.T,
                c.begin, c.C);
}

template <typename T> static void forward(const mics_exec *at, const forward_call &c)
{
    const int PACK = 16 / sizeof(T);
    if (packs_fit<T, PACK>(c.y, c.C) && packs_fit<T, PACK>(c.wte, c.C) &&
        packs_fit<T, PACK>(c.wpe, c.C) && packs_fit<T, PACK>(c.type, c.C))
        forward_packs<T, PACK>(at, c);
    else
        forward_packs<T, 1>(at, c);
}

static void run_forward(const mics_op_call *call)
{
    const int64_t elem_bytes = static_cast<int64_t>(mics_dtype_bytes(call->at->dtype));
    const int64_t first = call->shape.op->first_position * call->shape.out * elem_bytes;
    const void *wpe =
        call->params[1] ? static_cast<const char *>(call->params[1]) + first : nullptr;
    const forward_call c = {
        call->out,       call->tokens,  call->segments, call->params[0], wpe,
        call->params[2], call->shape.N, call->shape.T,  call->shape.out, call->position};
    MICS_BY_DTYPE(call->at->dtype, forward, call->at, c);
}

// ---- backward ----

template <typename T, int COUNT>
static __device__ __forceinline__ void add_pack(float (&sum)[COUNT], const T *from)
{
    const mics_pack<T, COUNT> pack = load_pack<COUNT>(from);
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
        sum[k] += to_float(pack.at[k]);
}

template <typename T, int COUNT>
static __device__ __forceinline__ void put_pack(T *to, const float (&sum)[COUNT], bool add)
{
    mics_pack<T, COUNT> pack;
    if (add)
        pack = load_pack<COUNT>(static_cast<const T *>(to));
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
        pack.at[k] = from_float<T>(add ? to_float(pack.at[k]) + sum[k] : sum[k]);
    store_pack<COUNT>(to, pack);
}

static __device__ __forceinline__ int32_t token_at(const int32_t *tokens_N, const int32_t *order_N,
                                                   int64_t position)
{
    return tokens_N[order_N[position]];
}

// Runs of less than LONG_RUN rows, a warp each.
template <typename T, int COUNT>
__global__ void __launch_bounds__(RUN_THREADS)
    short_runs_kernel(T *dwte_VC, const T *dy_NC, const int32_t *tokens_N, const int32_t *order_N,
                      int64_t N, int64_t C, bool add)
{
    const int lane = static_cast<int>(threadIdx.x) % WARP;
    const int64_t begin = grid_thread() / WARP, seen = begin - 1 + lane;
    if (begin >= N)
        return; // the whole warp
    // Lane 0 has the row before, lane 1 the first of the run, if one begins here.
    const bool there = seen >= 0 && seen < N;
    const int32_t row = there ? order_N[seen] : -1, token = there ? tokens_N[row] : -1;
    const int32_t mine = __shfl_sync(0xffffffffU, token, 1);
    const unsigned same = __ballot_sync(0xffffffffU, token == mine);
    const int length = __popc(same); // tokens are sorted, so these are neighbours
    if ((same & 1U) != 0 || length >= LONG_RUN)
        return;
    for (int64_t c = lane * COUNT; c - lane * COUNT < C; c += WARP * COUNT) {
        float sum[COUNT] = {};
#pragma unroll RUN_UNROLL
        for (int i = 0; i < length; ++i) {
            const int64_t from = __shfl_sync(0xffffffffU, row, i + 1);
            if (c < C)
                add_pack<T, COUNT>(sum, dy_NC + from * C + c);
        }
        if (c < C)
            put_pack<T, COUNT>(dwte_VC + mine * C + c, sum, add);
    }
}

// Positions of one token from `begin` on. All threads of the block call together and get the same.
static __device__ int64_t run_length(const int32_t *tokens_N, const int32_t *order_N, int64_t begin,
                                     int32_t token, int64_t N)
{
    for (int64_t length = 0;; length += RUN_THREADS) {
        const int64_t at = begin + length + threadIdx.x;
        const int same = __syncthreads_count(at < N && token_at(tokens_N, order_N, at) == token);
        if (same < RUN_THREADS)
            return length + same;
    }
}

// Runs of LONG_RUN rows and more, a block each. Every such run has a position that LONG_RUN
// divides; the block at the first of these goes back to the run's beginning.
template <typename T, int COUNT>
__global__ void __launch_bounds__(RUN_THREADS)
    long_runs_kernel(T *dwte_VC, const T *dy_NC, const int32_t *tokens_N, const int32_t *order_N,
                     int64_t N, int64_t C, bool add)
{
    __shared__ float shared[RUN_WARPS][WARP * COUNT];
    const int warp = static_cast<int>(threadIdx.x) / WARP;
    const int lane = static_cast<int>(threadIdx.x) % WARP;
    const int64_t middle = static_cast<int64_t>(blockIdx.x) * LONG_RUN;
    const int64_t c = (static_cast<int64_t>(blockIdx.y) * WARP + lane) * COUNT;
    const int32_t token = token_at(tokens_N, order_N, middle);
    if (middle > 0 && token_at(tokens_N, order_N, middle - LONG_RUN) == token)
        return;                               // the whole block
    const int64_t before = middle - 1 - lane; // fewer than LONG_RUN of the run lie before
    const int64_t begin =
        middle - __popc(__ballot_sync(0xffffffffU,
                                      before >= 0 && token_at(tokens_N, order_N, before) == token));
    const int64_t length = run_length(tokens_N, order_N, begin, token, N);
    if (length < LONG_RUN)
        return;
    float sum[COUNT] = {};
#pragma unroll RUN_UNROLL
    for (int64_t i = warp; i < length; i += RUN_WARPS)
        if (c < C)
            add_pack<T, COUNT>(sum, dy_NC + order_N[begin + i] * C + c);
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
        shared[warp][k * WARP + lane] = sum[k];
    __syncthreads();
    for (int other = 1; warp == 0 && other < RUN_WARPS; ++other)
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            sum[k] += shared[other][k * WARP + lane];
    if (warp == 0 && c < C)
        put_pack<T, COUNT>(dwte_VC + token * C + c, sum, add);
}

template <typename T, int COUNT>
__global__ void __launch_bounds__(ROW_THREADS)
    positions_backward_kernel(T *dwpe_PC, const T *dy_NC, const int32_t *segments_N, int64_t N,
                              int64_t T_positions, int64_t C, int64_t first, int64_t begin,
                              bool add)
{
    const int64_t row = blockIdx.x, position = row - first;
    const int64_t c = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * COUNT;
    const int64_t t = position - begin; // of a row that has it, where positions do not restart
    const bool used = position >= 0 && t < T_positions && (t >= 0 || segments_N != nullptr);
    if (c >= C || (!used && add))
        return;
    float sum[COUNT] = {};
#pragma unroll RUN_UNROLL
    for (int64_t n = used && segments_N == nullptr ? t : N; n < N; n += T_positions)
        add_pack<T, COUNT>(sum, dy_NC + n * C + c);
    for (int64_t n = 0; used && segments_N != nullptr && n < N; ++n) {
        if (position_of(segments_N, n, T_positions, begin) == position)
            add_pack<T, COUNT>(sum, dy_NC + n * C + c);
    }
    put_pack<T, COUNT>(dwpe_PC + row * C + c, sum, add);
}

// The arguments of embedding_backward.
struct backward_call {
    void *dwte, *dwpe, *dtypes;
    const void *dy;
    const int32_t *tokens, *order, *segments;
    int64_t N, T, C, V, P, R, first, begin;
    bool add_dwte, add_dwpe, add_dtypes;
};

template <typename T, int COUNT>
static void backward_packs(const mics_exec *at, const backward_call &c)
{
    const cudaStream_t stream = stream_of(at);
    const T *dy = static_cast<const T *>(c.dy);
    const int64_t packs = c.C / COUNT;
    T *dwte = static_cast<T *>(c.dwte);
    if (dwte != nullptr)
        MICS_LAUNCH((short_runs_kernel<T, COUNT>), static_cast<unsigned>(ceil_div(c.N, RUN_WARPS)),
                    RUN_THREADS, 0, stream, dwte, dy, c.tokens, c.order, c.N, c.C, c.add_dwte);
    const dim3 runs(static_cast<unsigned>(ceil_div(c.N, LONG_RUN)),
                    static_cast<unsigned>(ceil_div(packs, WARP)));
    if (dwte != nullptr && c.N >= LONG_RUN)
        MICS_LAUNCH((long_runs_kernel<T, COUNT>), runs, RUN_THREADS, 0, stream, dwte, dy, c.tokens,
                    c.order, c.N, c.C, c.add_dwte);
    const unsigned threads = row_threads(packs);
    if (!c.dwpe)
        return;
    const dim3 rows(static_cast<unsigned>(c.P), static_cast<unsigned>(ceil_div(packs, threads)));
    MICS_LAUNCH((positions_backward_kernel<T, COUNT>), rows, threads, 0, stream,
                static_cast<T *>(c.dwpe), dy, c.segments, c.N, c.T, c.C, c.first, c.begin,
                c.add_dwpe);
}

static void types_backward(const mics_exec *at, const backward_call &c)
{
    const size_t row = static_cast<size_t>(c.C) * mics_dtype_bytes(at->dtype);
    mics_cuda_bias_backward(at, c.dtypes, c.dy, c.N, c.C, c.C, c.add_dtypes, at->workspace);
    if (!c.add_dtypes && c.R > 1)
        at->device->ops->zero(at->device->ctx, at->stream, static_cast<char *>(c.dtypes) + row,
                              static_cast<size_t>(c.R - 1) * row);
}

template <typename T> static void backward(const mics_exec *at, const backward_call &c)
{
    if (c.dwte != nullptr && !c.add_dwte)
        at->device->ops->zero(at->device->ctx, at->stream, c.dwte,
                              static_cast<size_t>(c.V * c.C) * sizeof(T));
    const int PACK = 16 / sizeof(T);
    if (packs_fit<T, PACK>(c.dwte, c.C) && packs_fit<T, PACK>(c.dwpe, c.C) &&
        packs_fit<T, PACK>(c.dy, c.C))
        backward_packs<T, PACK>(at, c);
    else
        backward_packs<T, 1>(at, c);
}

static void run_backward(const mics_op_call *call)
{
    const mics_op_shape &s = call->shape;
    const backward_call c = {call->dparams[0],
                             call->dparams[1],
                             call->dparams[2],
                             call->dout,
                             call->tokens,
                             call->order,
                             call->segments,
                             s.N,
                             s.T,
                             s.out,
                             s.params[0][0],
                             s.params[1][0],
                             s.params[2][0],
                             s.op->first_position,
                             call->position,
                             call->add_params[0],
                             call->add_params[1],
                             call->add_params[2]};
    MICS_BY_DTYPE(call->at->dtype, backward, call->at, c);
    if (c.dtypes)
        types_backward(call->at, c);
}

const mics_op_kernels mics_cuda_embedding_kernels = {run_forward, run_backward, nullptr, nullptr,
                                                     nullptr,     nullptr,      nullptr, false};
