// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Every kernel file is compiled once an instruction set, with MICS_ISA (avx512, avx2, generic) and
// MICS_LANES (floats in a vector register) given by the build. Names get the set as a suffix. Those
// over activations and parameters are compiled once more for bf16 (elem.h), with a further suffix.
#pragma once

#include "ops/common/elem.h"
#include "ops/common/gemm.h"
#include "ops/kernels.h"

#define MICS_OP_JOIN_(name, isa) mics_##name##_##isa
#define MICS_OP_JOIN(name, isa) MICS_OP_JOIN_(name, isa)
// What is compiled once, whatever the dtype.
#define MICS_ISA_OP(name) MICS_OP_JOIN(name, MICS_ISA)
#ifdef MICS_ELEM_BF16
#define MICS_OP(name) MICS_ISA_OP(bf16_##name)
#else
#define MICS_OP(name) MICS_ISA_OP(name)
#endif

enum {
    // Loops over flat arrays are cut into blocks of so many elements, each computed by one thread.
    // The cuts are fixed, so that an element's place in its vector, and with it the last bit of its
    // result, does not depend on the number of threads.
    MICS_OP_BLOCK = 4096,
    // Below this many elements waking threads costs more than it saves (about 5 us, measured on a
    // Xeon of 2023 with libgomp).
    MICS_OP_PARALLEL = 4 * MICS_OP_BLOCK,
};

// Each op's folder defines mics_<op>_kernels_<isa>.
#define MICS_OP_DECLARE_(NAME, op) extern const mics_op_kernels MICS_OP(op##_kernels);
MICS_OPS(MICS_OP_DECLARE_)
#undef MICS_OP_DECLARE_

// And each optimizer's mics_<optimizer>_update_<isa>.
#define MICS_OP_DECLARE_(NAME, optimizer)                                                          \
    void MICS_OP(optimizer##_update)(const mics_exec *at, const mics_optimizer_update *update);
MICS_OPTIMIZERS(MICS_OP_DECLARE_)
#undef MICS_OP_DECLARE_

// y may be a or b.
void MICS_OP(add)(mics_elem *y, const mics_elem *a, const mics_elem *b, int64_t elems);
// Of fp32, whatever the dtype.
void MICS_ISA_OP(add)(float *y, const float *a, const float *b, int64_t elems);
void MICS_OP(accumulate)(const mics_exec *at, void *y, const void *x, int64_t elems);
void MICS_ISA_OP(sum_losses)(const mics_exec *at, double *sum, const float *loss_N, int64_t N);
void MICS_ISA_OP(preference)(const mics_exec *at, const mics_preference_pairs *pairs);
void MICS_ISA_OP(sum_squares)(const mics_exec *at, double *sum, const float *x, int64_t elems);
void MICS_ISA_OP(pack_state)(const mics_exec *at, const mics_state_part *part, const float *values,
                             const mics_state_draw *draw);
void MICS_ISA_OP(unpack_state)(const mics_exec *at, float *values, const mics_state_part *part);
void MICS_ISA_OP(sum_squares_bf16)(const mics_exec *at, double *sum, const void *x, int64_t elems);
void MICS_OP(sum_blocks)(const mics_exec *at, float *sum, const void *own, const void *blocks,
                         int32_t count, int64_t stride, int64_t elems, bool add);
void MICS_OP(sum_blocks_rounded)(const mics_exec *at, void *out, const void *own,
                                 const void *blocks, int32_t count, int64_t stride, int64_t elems);
void MICS_OP(round)(const mics_exec *at, void *out, const float *x, int64_t elems);
void MICS_OP(widen)(const mics_exec *at, float *out, const void *x, int64_t elems);
void MICS_ISA_OP(hash)(const mics_exec *at, uint64_t *hash_out, const void *x, size_t bytes);
void MICS_ISA_OP(meet_change)(const mics_exec *at, float *message, const float *anchor,
                              const float *held, float weight, int64_t elems);
void MICS_ISA_OP(meet_step)(const mics_exec *at, const mics_outer_step *step);
void MICS_ISA_OP(meet_adopt)(const mics_exec *at, float *held, float *anchor, const float *message,
                             int64_t elems);
void MICS_ISA_OP(meet_round)(const mics_exec *at, uint16_t *packed, const float *values,
                             float *residual, int64_t elems);
void MICS_ISA_OP(pack_bf16)(uint16_t *packed, const float *values, int64_t elems);
void MICS_ISA_OP(unpack_bf16)(float *values, const uint16_t *packed, int64_t elems);
void MICS_ISA_OP(add_bf16)(float *sum, const uint16_t *packed, int64_t elems);
void MICS_ISA_OP(pack_int8)(void *packed, const float *values, float *residual, int64_t elems);
void MICS_ISA_OP(unpack_int8)(float *values, const void *packed, int64_t elems);
void MICS_ISA_OP(add_int8)(float *sum, const void *packed, int64_t elems);
void MICS_ISA_OP(pack_int4)(void *packed, const float *values, float *residual, int64_t elems);
void MICS_ISA_OP(unpack_int4)(float *values, const void *packed, int64_t elems);
void MICS_ISA_OP(add_int4)(float *sum, const void *packed, int64_t elems);
void MICS_ISA_OP(draw_normal)(float *values, int64_t elems, uint64_t seed, uint64_t stream,
                              uint64_t first, double deviation);

/* A GEMM of numbers of the dtype. */
void MICS_OP(gemm)(const mics_exec *at, const mics_gemm_spec *gemm);

/* Adds an adapter to call->out, which holds what the linear made. */
void MICS_OP(lora_add)(const mics_op_call *call);

/* Has the linear's GEMM add it. Then the GEMM's space is another one.
 *
 * Returns: false where it cannot; `gemm` is unchanged then. */
bool MICS_OP(lora_join)(const mics_op_call *call, mics_gemm_spec *gemm);

/* dst_C = the column sums of rows_RC (R >= 1), in an order that depends on R alone: four rows are
 * added in pairs, then to the sum. One thread. */
void MICS_OP(sum_rows)(float *dst_C, const mics_elem *rows_RC, int64_t R, int64_t C);

/* dst_C (+)= the column sums of such sums, in the same order, rounded once. One thread. */
void MICS_OP(sum_parts)(mics_elem *dst_C, const float *parts_RC, int64_t R, int64_t C,
                        int64_t row_stride, bool add);
