// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One kernel for everything that computes element i of its outputs from element i of its inputs. An
// operation is a structure that holds the pointers:
//
//   struct negate {
//       static const int PACK = 8, UNROLL = 2; // of a pack; loaded before one is stored
//       T *y; const T *x;
//       template <int COUNT> struct input { mics_pack<T, COUNT> x; };
//       template <int COUNT> __device__ input<COUNT> load(int64_t i) const;
//       template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const;
//       bool fits(int64_t i) const; // host: whether all pointers fit packs of PACK at element i
//   };
//
// Shards begin anywhere: the first elements, up to where all pointers are aligned, and the last
// ones go one by one, in the same launch. Where the pointers are never aligned together, all do:
// neighbouring threads still read neighbouring numbers, so that costs instructions, not traffic. A
// thread loads UNROLL packs before it stores any, so that enough bytes are on their way for the
// memory's latency. An output may be an input: a thread writes only what it alone has read.
#pragma once

#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"

enum { MAP_THREADS = 256 };

template <typename Op, int COUNT>
__global__ void __launch_bounds__(MAP_THREADS)
    map_kernel(Op op, int64_t head, int64_t packs, int64_t elems)
{
    const int64_t thread = grid_thread(), threads = grid_threads();
    for (int64_t first = thread; first < packs; first += threads * Op::UNROLL) {
        typename Op::template input<COUNT> in[Op::UNROLL];
#pragma unroll
        for (int u = 0; u < Op::UNROLL; ++u)
            if (first + u * threads < packs)
                in[u] = op.template load<COUNT>(head + (first + u * threads) * COUNT);
#pragma unroll
        for (int u = 0; u < Op::UNROLL; ++u)
            if (first + u * threads < packs)
                op.template store<COUNT>(head + (first + u * threads) * COUNT, in[u]);
    }
    if constexpr (COUNT > 1) {
        // Fewer than COUNT at each end; a grid has more threads than that.
        if (thread < head)
            op.template store<1>(thread, op.template load<1>(thread));
        const int64_t last = head + packs * COUNT + thread;
        if (last < elems)
            op.template store<1>(last, op.template load<1>(last));
    }
}

template <typename Op> static void map(const mics_exec *at, const Op &op, int64_t elems)
{
    int64_t head = 0;
    while (head < Op::PACK && !op.fits(head))
        ++head;
    const cudaStream_t stream = stream_of(at);
    if (head < Op::PACK && head < elems) {
        const int64_t packs = (elems - head) / Op::PACK;
        MICS_LAUNCH((map_kernel<Op, Op::PACK>), grid_of(ceil_div(packs, Op::UNROLL), MAP_THREADS),
                    MAP_THREADS, 0, stream, op, head, packs, elems);
    } else {
        MICS_LAUNCH((map_kernel<Op, 1>), grid_of(ceil_div(elems, Op::UNROLL), MAP_THREADS),
                    MAP_THREADS, 0, stream, op, int64_t{0}, elems, elems);
    }
}
