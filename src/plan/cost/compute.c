// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Computation: a roofline whose ceilings depend on what is computed.
#include "plan/cost/cost.h"
#include <stddef.h>

// Share of a rate that is kept; 0: all.
static double kept_of(double kept)
{
    return kept > 0.0 ? kept : 1.0;
}

// In whole trainings. Where it is known what kernels move, they keep all.
static double memory_bytes_per_s(const mics_accelerator *accelerator)
{
    const double kept = accelerator->kernels[0] != '\0' ? 1.0 : kept_of(accelerator->memory_kept);
    return accelerator->memory_bytes_per_s * accelerator->memory_efficiency * kept;
}

// Of a rank that has a core of its own.
static double flops_per_s(const mics_accelerator *accelerator, const mics_cost_op *op)
{
    const mics_curve *curve = NULL;
    double size = 1.0, kept = 1.0;
    if (op->kind == MICS_COST_MATMUL) {
        int64_t least = op->m < op->n ? op->m : op->n;
        curve = &accelerator->matmul_efficiency;
        size = (double)(op->k < least ? op->k : least);
        kept =
            kept_of(op->math == MICS_MATH_FP8 ? accelerator->fp8_kept : accelerator->matmul_kept);
    } else if (op->kind == MICS_COST_ATTENTION) {
        curve = &accelerator->attention_efficiency;
        size = (double)op->m;
        kept = kept_of(accelerator->attention_kept);
    } else {
        return accelerator->flops_per_s[MICS_MATH_FP32]; // no GEMMs: the plain units
    }
    if (op->math == MICS_MATH_FP8) // a tile's loop takes half as long
        size /= 2;
    return accelerator->flops_per_s[op->math] * mics_curve_at(curve, size, 1.0) * kept;
}

// That GEMMs' operands of 8 bits cost: two bytes are read, and two written, one of them transposed,
// of each number. An operand serves two GEMMs.
static double casts_bytes(const mics_cost_op *op)
{
    const double m = (double)op->m, n = (double)op->n, k = (double)op->k;
    return op->kind == MICS_COST_MATMUL && op->math == MICS_MATH_FP8 ? 2 * (m * k + k * n) : 0;
}

double mics_cost_op_us(const mics_cluster *cluster, const mics_cost_op *op,
                       mics_cost_limit *limit_out)
{
    const mics_accelerator *accelerator = &cluster->accelerator;
    const double memory = op->kind == MICS_COST_UPDATE ? accelerator->update_bytes_per_s
                                                       : memory_bytes_per_s(accelerator);
    const double by_flops =
        op->flops / flops_per_s(accelerator, op) * 1e6 + casts_bytes(op) / memory * 1e6;
    const bool cached = op->kind != MICS_COST_UPDATE && op->bytes <= accelerator->cache_bytes &&
                        accelerator->cache_bytes_per_s > 0;
    const double by_memory = op->bytes / (cached ? accelerator->cache_bytes_per_s : memory) * 1e6;
    const double by_launch = accelerator->launch_us * (op->kernels > 1 ? op->kernels : 1);
    double us = by_launch;
    mics_cost_limit limit = MICS_COST_BY_LAUNCH;
    if (by_memory > us) {
        us = by_memory;
        limit = MICS_COST_BY_MEMORY;
    }
    if (by_flops > us) {
        us = by_flops;
        limit = MICS_COST_BY_FLOPS;
    }
    if (limit_out != NULL)
        *limit_out = limit;
    return us;
}

mics_cost_op mics_cost_matmul(int64_t m, int64_t n, int64_t k, int32_t elem_bytes, mics_math math)
{
    const double rows = (double)m, columns = (double)n, inner = (double)k;
    return (mics_cost_op){.kind = MICS_COST_MATMUL,
                          .math = math,
                          .flops = 2.0 * rows * columns * inner,
                          .bytes = elem_bytes * (rows * inner + inner * columns + rows * columns),
                          .m = m,
                          .n = n,
                          .k = k,
                          .kernels = 1};
}

mics_cost_op mics_cost_of_work(const mics_op_work *work, int32_t elem_bytes, mics_math math)
{
    switch (work->kind) {
    case MICS_WORK_GEMM:
        return mics_cost_matmul(work->m, work->n, work->k, elem_bytes, math);
    case MICS_WORK_ATTENTION:
        return (mics_cost_op){.kind = MICS_COST_ATTENTION,
                              .math = math == MICS_MATH_FP8 ? MICS_MATH_BF16 : math,
                              .flops = work->flops,
                              .bytes = work->bytes,
                              .m = work->m,
                              .n = work->n,
                              .k = work->k};
    default:
        return (mics_cost_op){.kind = MICS_COST_ELEMENTWISE,
                              .math = MICS_MATH_FP32,
                              .flops = work->flops,
                              .bytes = work->bytes};
    }
}

const char *mics_cost_limit_text(mics_cost_limit limit)
{
    static const char *const texts[] = {[MICS_COST_BY_FLOPS] = "FLOPs",
                                        [MICS_COST_BY_MEMORY] = "memory",
                                        [MICS_COST_BY_LAUNCH] = "latency",
                                        [MICS_COST_BY_LINK] = "link",
                                        [MICS_COST_BY_RANK] = "one rank's rate"};
    return (unsigned)limit < sizeof texts / sizeof *texts ? texts[limit] : "unknown";
}
