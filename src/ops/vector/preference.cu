// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Losses of preference pairs: one block, pair by pair, so that sums have one order. Bytes a token: 8
// read, 4 written.
#include "ops/common/cuda_ops.h"
#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"
#include "ops/common/team.cuh"
#include "ops/vector/preference.h"

enum { PREFERENCE_THREADS = 512 };

// All threads of the block, each with the same result.
static __device__ mics_preference_answer answer_at(const mics_preference_pairs &p, int64_t b,
                                                   double *shared)
{
    double loss = 0, counted = 0;
    for (int64_t n = b * p.T + threadIdx.x; n < (b + 1) * p.T; n += PREFERENCE_THREADS) {
        loss += static_cast<double>(p.losses_BT[n]);
        counted += p.targets_BT[n] >= 0 ? 1 : 0;
    }
    loss = team_sum<PREFERENCE_THREADS>(loss, shared);
    counted = team_sum<PREFERENCE_THREADS>(counted, shared);
    return {loss, static_cast<int64_t>(counted), p.references_B[b]};
}

__global__ void __launch_bounds__(PREFERENCE_THREADS) preference_kernel(mics_preference_pairs p)
{
    __shared__ double shared[MAX_WARPS];
    __shared__ float slopes[2];
    for (int64_t b = 0; b < p.B; b += 2) {
        const mics_preference_answer answers[2] = {answer_at(p, b, shared),
                                                   answer_at(p, b + 1, shared)};
        if (threadIdx.x == 0)
            mics_preference_pair(&p, answers, slopes);
        __syncthreads();
        for (int64_t t = threadIdx.x; p.scales_BT != nullptr && t < 2 * p.T;
             t += PREFERENCE_THREADS)
            p.scales_BT[b * p.T + t] = slopes[t / p.T];
        __syncthreads();
    }
}

void mics_cuda_preference(const mics_exec *at, const mics_preference_pairs *pairs)
{
    MICS_LAUNCH(preference_kernel, 1, PREFERENCE_THREADS, 0, stream_of(at), *pairs);
}
