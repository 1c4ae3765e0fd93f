// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What tiles on tensor cores are made of, for bf16, fp16 and tf32 (compute capability 8.0 and
// later): products of fragments, loads of fragments from shared memory, copies into it that run
// beside computation. With a compiler for CPUs the same functions come from
// tests/cuda/emulated/include/emulated_mma.h.
//
// Fragments, of lane l with g = l / 4, t = l % 4 (PTX ISA 8.0, section 9.7.13.4.8, m16n8k16); each
// register holds two neighbours along k:
//   a (16 x 16, row, k): a[0] (g, 2t), a[1] (g + 8, 2t), a[2] (g, 2t + 8), a[3] (g + 8, 2t + 8)
//   b (16 x 8, k, column): b[0] (2t, g), b[1] (2t + 8, g)
//   c (16 x 8, fp32): c[0], c[1] (g, 2t and 2t + 1), c[2], c[3] (g + 8, the same)
// and of tf32 (section 9.7.13.4.7, m16n8k8), a number a register, c as above:
//   a (16 x 8): a[0] (g, t), a[1] (g + 8, t), a[2] (g, t + 4), a[3] (g + 8, t + 4)
//   b (8 x 8): b[0] (t, g), b[1] (t + 4, g)
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#ifdef MICS_CUDA_EMULATED
#include "emulated_mma.h"
#else

static __device__ __forceinline__ unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

// c += a b. The type of the inputs is that of the unused argument.
static __device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4],
                                                    uint32_t b0, uint32_t b1, __nv_bfloat16)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
static __device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4],
                                                    uint32_t b0, uint32_t b1, __half)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
static __device__ __forceinline__ void multiply_add_tf32(float (&c)[4], const uint32_t (&a)[4],
                                                         uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The bits of a number rounded to tf32, which keeps 10 of its fraction; ties away from 0.
static __device__ __forceinline__ uint32_t to_tf32(float x)
{
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

// Four 8 x 8 matrices of 2-byte numbers: lanes 8 i to 8 i + 7 name the rows of matrix i, 16 bytes
// each, on 16 bytes. Lane l gets elements 2 t and 2 t + 1 of row g of each; transposed, rows 2 t
// and 2 t + 1 of column g. Of 4-byte numbers, not transposed, matrices are 8 x 4: lane l gets
// element t of row g.
static __device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
static __device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Copies 16 bytes to shared memory, or zeros when not `valid` (`from` must be an address all the
// same). The copies that a thread has begun since its last copy_commit are one group.
static __device__ __forceinline__ void copy_begin(void *to, const void *from, bool valid)
{
    const int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes)
                 : "memory");
}
static __device__ __forceinline__ void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most PENDING of this thread's groups are under way. Others see the copies after a
// barrier.
template <int PENDING> static __device__ __forceinline__ void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// 2^x within 2 units in the last place; 2^-inf = 0.
static __device__ __forceinline__ float exp2_near(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif

// Two numbers rounded into one register, `low` in the lower half.
static __device__ __forceinline__ uint32_t pack_pair(float low, float high, __nv_bfloat16)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}
static __device__ __forceinline__ uint32_t pack_pair(float low, float high, __half)
{
    const __half2 pair = __floats2half2_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}
