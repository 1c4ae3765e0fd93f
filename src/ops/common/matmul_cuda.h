// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GEMMs on a GPU by cuBLASLt: row-major, sums in fp32, with the epilogues that training
// needs. What is prepared for a shape (descriptors, the algorithm) is kept beside the device and
// made when the shape is first met.
//
// Which algorithm. By default the first that cuBLASLt's heuristics name, which is a function of the
// shape and the chip: runs repeat bit by bit, and all replicas agree. mics_cuda_matmul_time has the
// candidates timed instead. What it chooses depends on the noise of a moment, so two runs, or two
// replicas, may sum in another order: that is why it is not the default, and why the result can be
// saved and given to all ranks.
#pragma once

#include "ops/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

// What happens to a GEMM P = op(A) op(B) on its way to C. Vectors are of C's type, and
// overwritten where they are results; `aux` has C's shape and rows of N elements.
typedef enum mics_cuda_epilogue {
    MICS_CUDA_EPILOGUE_NONE,
    MICS_CUDA_EPILOGUE_BIAS, // C = P + vector, N long, in every row
    MICS_CUDA_EPILOGUE_GELU, // aux = P; C = gelu(P), the tanh form of the sum before it is rounded
    MICS_CUDA_EPILOGUE_BIAS_GELU, // aux = P + vector; C = gelu(P + vector)
    MICS_CUDA_EPILOGUE_DGELU,     // C = P * gelu'(aux)
    MICS_CUDA_EPILOGUE_SUM_A,     // C = P; vector[m] = sum over k of op(A)[m][k]
    MICS_CUDA_EPILOGUE_SUM_B      // C = P; vector[n] = sum over k of op(B)[k][n]
} mics_cuda_epilogue;

// Row-major C (M, N) = op(A) op(B), or += with `add`; op(A) is (M, K), op(B) is (K, N). lda, ldb,
// ldc: elements between rows as stored.
typedef struct mics_cuda_gemm {
    const void *a, *b;
    const void *residual; // (optional) stored as C: C = op(A) op(B) + residual; may be C
    void *c;
    bool transpose_a, transpose_b, add;
    int64_t M, N, K, lda, ldb, ldc;
    bool wide;   // C (and vector, aux) is fp32, whatever the call's dtype, which is that of A and B
    float alpha; // P is multiplied by it; 0: by 1
    mics_cuda_epilogue epilogue;
    void *vector;
    void *aux;
} mics_cuda_gemm;

/* Enqueues a GEMM. `workspace` lies in the workspace of `at`, on 256 bytes; MICS_GEMM_BYTES of it
 * are used, and with less some algorithms are left out.
 *
 * Needs:   add and an epilogue other than NONE do not meet, but for SUM_A and SUM_B; a residual
 *          meets no `add`, and of epilogues NONE and BIAS alone.
 * Returns: false where the library has no algorithm for this shape, type and epilogue (nothing is
 *          enqueued; the same arguments always give the same answer, and NONE is always possible
 *          without a residual);
 *          true otherwise, also when the device failed, which its check tells.
 * Threads: any; one call at a time for each device gets past the search for its plan.
 */
bool mics_cuda_matmul(const mics_exec *at, const mics_cuda_gemm *gemm, void *workspace,
                      size_t workspace_bytes);

// How fp32 is multiplied on a device: in fp32, or with inputs rounded to TF32 (10 bits of
// mantissa), about 8 times as fast on a Hopper. Plans made before keep what they were made with, so
// it is set before the first GEMM.
void mics_cuda_matmul_allow_tf32(mics_device *device, bool allow);

/* Whether that was allowed: kernels of our own that multiply in fp32 do as GEMMs do. */
bool mics_cuda_matmul_has_tf32(mics_device *device);

/* From now on, for so many seconds, the first call of a shape times up to 16 algorithms, several
 * times each, before it computes, and takes the fastest for all later calls with such a shape; 0
 * ends that. A GEMM that adds does so more than once then. Not while others use the device.
 */
void mics_cuda_matmul_time(mics_device *device, double seconds);

/* The measured choices as bytes, to be kept or given to other ranks; a version of cuBLASLt and a
 * chip's name lie in front.
 *
 * Returns: bytes that there are; at most `capacity` of them are written.
 */
size_t mics_cuda_matmul_save(mics_device *device, void *bytes, size_t capacity);

/* Takes saved choices, for plans that are made from now on. Those that this chip's library does not
 * confirm are passed over.
 *
 * Returns: MICS_OK; MICS_ERR_FORMAT (not such bytes, or of another version or chip; nothing is
 *          taken, not logged);
 *          MICS_ERR_MEMORY.
 */
mics_status mics_cuda_matmul_load(mics_device *device, const void *bytes, size_t size);

/* Plans that a device has, and how many of them were measured. */
void mics_cuda_matmul_count(mics_device *device, int64_t *plans_out, int64_t *measured_out);

#ifdef __cplusplus
}
#endif
