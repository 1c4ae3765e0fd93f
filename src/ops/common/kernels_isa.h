// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Every kernel file is compiled once an instruction set, with MICS_ISA (avx512, avx2, generic) and
// MICS_LANES (floats in a vector register) given by the build. Names get the set as a suffix.
#ifndef MICS_OP_KERNELS_ISA_H
#define MICS_OP_KERNELS_ISA_H

#include "mics/kernels.h"

#define MICS_OP_JOIN_(name, isa) mics_##name##_##isa
#define MICS_OP_JOIN(name, isa) MICS_OP_JOIN_(name, isa)
#define MICS_OP(name) MICS_OP_JOIN(name, MICS_ISA)

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

void MICS_OP(add)(float *y, const float *a, const float *b, int64_t elems); // y may be a or b
void MICS_OP(accumulate)(const mics_exec *at, void *y, const void *x, int64_t elems);
void MICS_OP(sum_losses)(const mics_exec *at, double *sum, const float *loss_N, int64_t N);
void MICS_OP(sum_squares)(const mics_exec *at, double *sum, const float *x, int64_t elems);
void MICS_OP(sum_blocks)(const mics_exec *at, float *sum, const void *own, const void *blocks,
                         int32_t count, int64_t stride, int64_t elems, bool add);
void MICS_OP(sum_blocks_rounded)(const mics_exec *at, void *out, const void *own,
                                 const void *blocks, int32_t count, int64_t stride, int64_t elems);
void MICS_OP(copy_fp32)(const mics_exec *at, void *out, const float *x, int64_t elems);
void MICS_OP(copy_wide)(const mics_exec *at, float *out, const void *x, int64_t elems);
void MICS_OP(hash)(const mics_exec *at, uint64_t *hash_out, const void *x, size_t bytes);
void MICS_OP(pack_bf16)(uint16_t *packed, const float *values, int64_t elems);
void MICS_OP(unpack_bf16)(float *values, const uint16_t *packed, int64_t elems);
void MICS_OP(add_bf16)(float *sum, const uint16_t *packed, int64_t elems);
void MICS_OP(pack_int8)(void *packed, const float *values, float *residual, int64_t elems);
void MICS_OP(unpack_int8)(float *values, const void *packed, int64_t elems);
void MICS_OP(add_int8)(float *sum, const void *packed, int64_t elems);

/* dst_C (+)= the column sums of rows_RC (R >= 1), in an order that depends on R alone: four rows
 * are added in pairs, then to the sum. One thread. */
void MICS_OP(sum_rows)(float *dst_C, const float *rows_RC, int64_t R, int64_t C, int64_t row_stride,
                       bool add);

/* C (+)= A B by the calling thread, for the small tiles of attention: c (M, N), A (M, K) with any
 * strides, b (K, N). N and ldb are multiples of MICS_LANES; c has room for whole vectors. */
void MICS_OP(tile_product)(float *c, int64_t ldc, const float *a, int64_t a_row, int64_t a_column,
                           const float *b, int64_t ldb, int64_t M, int64_t N, int64_t K, bool add);

#endif
