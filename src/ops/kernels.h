// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Kernels: for each op its passes on a device, and functions over shards. They compute; they do not
// allocate, log or fail (a GPU keeps a failure: see mics_device_ops.check). On a GPU a call
// enqueues its work on a stream and returns; on the CPU it is done when it returns.
//
// Shapes: as in op.h, row-major. Flags `add*`: add to the destination instead of overwriting it;
// where a destination of 2 bytes is added to, the sum is rounded once. Any size >= 1 is allowed.
// Buffers do not overlap unless said. `void *` tensors hold numbers of the dtype of the call's
// mics_exec (the CPU's: that of the table) and begin on 16 bytes on a GPU, on a number on the CPU;
// `float *` ones are always fp32. Sums are fp32 or better inside. Results depend on nothing but the
// arguments, whatever the number of threads, save for GEMMs, where the library may choose by it.
#pragma once

#include "mics/core/device.h"
#include "mics/core/dtype.h"
#include "mics/core/optimizer.h"
#include "mics/core/preference.h"
#include "mics/op.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Where a call runs, and on what numbers.
typedef struct mics_exec {
    mics_device *device; // NULL on the CPU, whose kernels need none
    int32_t stream;
    mics_dtype dtype;
    int32_t threads; // of the CPU; no meaning on GPUs
    void *workspace; // on 256 bytes; as much as the op's descriptor says (mics_op_cost)
    size_t workspace_bytes;
} mics_exec;

// How the threads of a generation divide an op's work; the library's own.
typedef struct mics_shares mics_shares;

// One pass of one op. What an op lacks is NULL, and so is a gradient that is not wanted.
typedef struct mics_op_call {
    const mics_exec *at;
    mics_op_shape shape;
    const void *in[MICS_OP_INPUTS];     // (N, shape.in[i])
    void *out;                          // (N, shape.out); read in backward
    float *stats;                       // of each row; read in backward
    const float *routes;                // (N, stats of the router) that experts' rows follow
    const void *params[MICS_OP_PARAMS]; // as stored
    const mics_dropout_draw *draw;      // NULL: no random number (evaluation, generation)
    int64_t position;                   // of row 0 in its sequence
    int64_t
        first_head; // attention: query head 0 here is that one of the model, as masks number them
    bool training;  // and no evaluation or generation
    // backward
    const void *dout; // (N, shape.out)
    void *din;        // (N, shape.in[0]); may be dout where the descriptor says so
    void *din_second; // (N, shape.in[1]), where mics_op_def.backward_second; overwritten
    void *dparams[MICS_OP_PARAMS];            // as params; overwritten whole unless added to
    bool add_din, add_params[MICS_OP_PARAMS]; // the latter are alike where both are wanted
    // of the first and the last op of a model
    const int32_t *tokens; // (N), below shape.vocab
    // (N), of an op that reads them (mics_op.segments): tokens of a sequence that are of one
    // segment have one number. Any numbers work, and rows whose numbers do not fall are fastest.
    // NULL: all are of one.
    const int32_t *segments;
    const int32_t
        *order; // (N): 0 ... N - 1 sorted by token (mics_op_sort_tokens); a GPU's backward needs it
    const int32_t *targets; // (N); below 0: the row does not count, its loss and gradient are 0
    // (N), of a loss on a GPU: all rows, those that count first; and how many do, as the host knows.
    // NULL: they are not gathered, and GEMMs see all rows.
    const int32_t *counted;
    int64_t counted_rows;
    float *losses;       // (N), unscaled
    double *router_sums; // (MICS_ROUTER_SUMS): a router's backward adds to them; NULL: not wanted
    // (N), of a loss: each row's gradient is multiplied by its number, beside loss_scale; NULL: by 1
    const float *row_scales;
    float loss_scale;   // of every row's loss in the objective, loss scaling included
    bool pairs;         // it is of the loss of each pair of sequences (preference.h)
    int64_t chunk_rows; // of logits, held at once (>= 1): part of the result
    // generation, fp32 but for `weights`: tokens `position` to `position` + T - 1 of B sequences of
    // at most `capacity` tokens; B or T is 1
    mics_dtype weights; // of parameters of two dimensions: fp32 or bf16
    float *cache;       // (B, mics_op_decode.cache); keeps what earlier tokens left
    int64_t capacity;
    mics_shares *shares; // of the work, where mics_op_kernels.decode_divides
    float *token_logits; // (B, shape.vocab), of a loss: after the last token of each sequence
    void *logits;        // (N, shape.vocab), of a loss
} mics_op_call;

// Two ops that follow each other, run as one.
typedef struct mics_op_pair {
    mics_op_kind next; // reads what the first one makes
    void (*forward)(const mics_op_call *first, const mics_op_call *next);
    // (optional) `first`'s input is what `next` made; first->din and next->dout are neither read nor
    // written.
    void (*backward)(const mics_op_call *first, const mics_op_call *next);
    // forward need not write what lies between them, and so runs only where nobody else reads it.
    bool skips_between;
} mics_op_pair;

typedef struct mics_op_kernels {
    void (*forward)(const mics_op_call *call);
    void (*backward)(const mics_op_call *call); // (optional) none where mics_op_def.backward_passes
    void (*logits)(const mics_op_call *call);   // of a loss alone
    const mics_op_pair *pairs;                  // (optional) up to one without `forward`
    // (optional) Makes what a library needs for calls of one shape, before the first of them. They
    // run by our own kernels until then, and where it gives a reason why not (the device's; not
    // logged).
    const char *(*prepare)(const mics_exec *at, const mics_op_shape *shape);
    void (*forget)(mics_device *device); // (with prepare) drops all of it
    // ---- generation, on the CPU ----
    // (optional) By default forward. Each row's result depends on its sequence alone: not on the
    // rows beside it, save that those of several tokens (T > 1) may be a GEMM.
    void (*decode)(const mics_op_call *call);
    // Several threads call decode at once, with a workspace each; each takes shares of the work
    // until none is left. Otherwise a call computes the rows that it is given alone, and the op has
    // no cache.
    bool decode_divides;
} mics_op_kernels;

// What a call of an optimizer does. An optimizer that orthogonalises takes three calls for a matrix
// of a hidden layer; the second is of its owner alone.
typedef enum mics_update_phase {
    MICS_UPDATE_ALL,      // the step of a part
    MICS_UPDATE_MOMENTUM, // a part's momentum; what is to be made orthogonal goes to `direction`
    // `direction` is the matrix, (rows, columns), made orthogonal in place. Takes
    // mics_optimizer_workspace floats of the workspace; of the rest only optimizer, rows, columns.
    MICS_UPDATE_ORTHOGONALISE,
    MICS_UPDATE_APPLY // moves a part along `direction`
} mics_update_phase;

enum { MICS_UPDATE_FLIPS = 16 };

// One step of an optimizer on a part of one parameter, or in ALL of neighbouring ones.
typedef struct mics_optimizer_update {
    const mics_optimizer *optimizer;
    float lr;
    float grad_scale; // gradients are multiplied by it first (clipping, loss scaling)
    bool decays;      // the optimizer's weight decay applies; after each flip the reverse
    int32_t flip_count;
    int64_t flips[MICS_UPDATE_FLIPS]; // elements of the part, ascending, above 0 and below elems
    int64_t step;                     // 1, 2, ...; skipped ones do not count
    // What lies in rows: of a vector one row.
    int64_t rows, columns; // of the whole parameter; of neighbouring ones as of a vector
    int64_t begin, elems;  // the part: elements [begin, begin + elems)
    void *params;          // (optional) of dtype: gets the masters, rounded; may not be the masters
    float *masters;
    float *states[MICS_OPTIMIZER_STATES]; // as the descriptor names them
    const float *grads;
    const void
        *rounded_grads; // (optional) of dtype, in place of `grads`; not where matrices are whole
    mics_update_phase phase;
    float *direction; // (elems), or a whole matrix; NULL in ALL
} mics_optimizer_update;

// What one state of a part of a shard is rounded at random with, or no state where it is held as
// 8BIT: element i has the 16 bits of number (first + i) % 8 in block (first + i) / 8 of random bits
// (Philox4x32-10) of `key` and `state`, low ones first.
typedef struct mics_state_draw {
    uint64_t key;
    int64_t first; // a multiple of 8
    uint32_t state;
} mics_state_draw;

// One state of a part of a shard as it is held (mics_state_dtype), BF16 or 8BIT. The part begins
// with a block.
typedef struct mics_state_part {
    mics_state_dtype dtype;
    bool squares;  // mics_optimizer_def.squares
    float *scales; // (blocks), of 8BIT
    void *held;    // (elems), on 16 bytes
    int64_t elems;
} mics_state_part;

// Pairs of sequences, from the losses of their tokens; see preference.h.
typedef struct mics_preference_pairs {
    mics_preference of;
    int64_t B, T;              // sequences, even, and tokens of each
    const int32_t *targets_BT; // below 0: the token does not count
    const float *losses_BT;    // 0 where it does not
    const float *references_B; // log-probabilities
    float *scales_BT; // d pair's loss / d token's loss (mics_op_call.row_scales); NULL: not wanted
    double *loss;     // += losses of pairs in which any token counts
    double *sums;     // (MICS_PREFERENCE_SUMS) += theirs
} mics_preference_pairs;

// All kernels for one device, or one instruction set of the CPU.
// Nesterov's step with the mean change as its gradient: g = message / weights, momentum = decay *
// momentum + g, message = -lr * (g + decay * momentum). Without a momentum message /= weights.
typedef struct mics_outer_step {
    float *message, *momentum;
    int64_t elems;
    float weights; // sum of the islands', above 0
    float lr, decay;
} mics_outer_step;

typedef struct mics_kernels {
    const char *name; // "cuda"; "avx512", "avx2", "generic"; those of bf16: "avx512 bf16" ...
    // (optional) On the CPU the kernels of the same instruction set whose `void *` tensors are
    // bf16, with BF16 in mics_exec.dtype; NULL in those themselves. Attention has no `decode`
    // there: generation computes in fp32.
    const struct mics_kernels *bf16;
    const mics_op_kernels *ops[MICS_OP_KINDS];

    // ---- over shards ----

    void (*accumulate)(const mics_exec *at, void *y, const void *x, int64_t elems); // y += x
    // *sum += the N losses, in fp64, in an order that depends on N alone.
    void (*sum_losses)(const mics_exec *at, double *sum, const float *loss_N, int64_t N);
    // In fp64, in an order that depends on B and T alone.
    void (*preference)(const mics_exec *at, const mics_preference_pairs *pairs);
    // *sum += squares of x, in fp64, in an order that depends on elems alone. Not finite where x is
    // not.
    void (*sum_squares)(const mics_exec *at, double *sum, const float *x, int64_t elems);
    // (optional) The same bits of the same numbers in dtype, where that has 2 bytes.
    void (*sum_squares_rounded)(const mics_exec *at, double *sum, const void *x, int64_t elems);
    // By mics_optimizer_kind.
    void (*update[MICS_OPTIMIZER_KINDS])(const mics_exec *at, const mics_optimizer_update *update);
    // To a state as it is held, from fp32 and back. BF16 rounds with the draw; without one, to
    // nearest, as 8BIT always does. `values`: on 16 bytes. What unpack gives, pack makes the same
    // bytes of, with any draw.
    void (*pack_state)(const mics_exec *at, const mics_state_part *part, const float *values,
                       const mics_state_draw *draw);
    void (*unpack_state)(const mics_exec *at, float *values, const mics_state_part *part);
    // sum[i] (+)= own[i] + blocks[0][i] + ... + blocks[count - 1][i], in that order, in fp32. The
    // blocks lie `stride` elements apart and, as own, hold numbers of dtype. Overwrites unless
    // `add`.
    void (*sum_blocks)(const mics_exec *at, float *sum, const void *own, const void *blocks,
                       int32_t count, int64_t stride, int64_t elems, bool add);
    // The same into numbers of dtype (rounded once); own may be out.
    void (*sum_blocks_rounded)(const mics_exec *at, void *out, const void *own, const void *blocks,
                               int32_t count, int64_t stride, int64_t elems);
    void (*round)(const mics_exec *at, void *out, const float *x,
                  int64_t elems); // fp32 to dtype
    void (*widen)(const mics_exec *at, float *out, const void *x,
                  int64_t elems); // dtype to fp32
    // *hash_out = a hash of the bytes, whatever their address; on a GPU it lies in the device's
    // memory. Two buffers that differ in one word of 4 bytes have different hashes on a GPU, and on
    // the CPU but for one pair in 2^64. Of one table, not alike on CPU and GPU. x is aligned to 4,
    // bytes even.
    void (*hash)(const mics_exec *at, uint64_t *hash_out, const void *x, size_t bytes);

    // ---- meetings of islands (schedule.h), on fp32 ----

    // message[i] = weight * (anchor[i] - held[i]); without an anchor weight * held[i].
    void (*meet_change)(const mics_exec *at, float *message, const float *anchor, const float *held,
                        float weight, int64_t elems);
    void (*meet_step)(const mics_exec *at, const mics_outer_step *step);
    // anchor[i] += message[i]; held[i] = anchor[i].
    void (*meet_adopt)(const mics_exec *at, float *held, float *anchor, const float *message,
                       int64_t elems);
    // As pack_int8 does with its residual, to bf16; of a residual that is not finite 0 stays.
    void (*meet_round)(const mics_exec *at, uint16_t *packed, const float *values, float *residual,
                       int64_t elems);

    // ---- communication dtypes (comm_dtype.h) ----
    // The CPU's alone: one thread, the same bits on every instruction set.

    // Nearest, ties to even; beyond the largest bf16, infinity. NaN stays NaN. `packed` (aligned to
    // 2) may begin where `values` does, whose bytes from 2 * elems on then stay as they are, or lie
    // apart.
    void (*pack_bf16)(uint16_t *packed, const float *values, int64_t elems);
    // Exact. `packed` may be the second half of `values`, or lie apart. Of an odd number the second
    // half may begin at values + elems / 2, or 2 bytes later: the last 2 * elems bytes.
    void (*unpack_bf16)(float *values, const uint16_t *packed, int64_t elems);
    // sum[i] += packed[i]. The buffers lie apart.
    void (*add_bf16)(float *sum, const uint16_t *packed, int64_t elems);
    // packed: mics_comm_dtype_bytes(MICS_COMM_INT8, elems), of any alignment; bytes that hold no
    // number are 0. Packs v = values + residual and leaves in residual what rounding lost, v less
    // what unpack_int8 gives (error feedback: Seide et al., Interspeech 2014; Karimireddy et al.,
    // 2019, arXiv:1901.09847); residual may be NULL. A block with a v that is not finite unpacks to
    // NaN, and its residual becomes 0. The buffers lie apart.
    void (*pack_int8)(void *packed, const float *values, float *residual, int64_t elems);
    void (*unpack_int8)(float *values, const void *packed, int64_t elems);
    // sum[i] += what unpack_int8 gives.
    void (*add_int8)(float *sum, const void *packed, int64_t elems);
    // The same of MICS_COMM_INT4.
    void (*pack_int4)(void *packed, const float *values, float *residual, int64_t elems);
    void (*unpack_int4)(float *values, const void *packed, int64_t elems);
    void (*add_int4)(float *sum, const void *packed, int64_t elems);

    // ---- initial weights ----
    // The CPU's alone; the same bits on every instruction set.

    // values[i] = the normal random number of (seed, stream, first + i) (base/rng.h), times
    // `deviation` in fp64, rounded.
    void (*draw_normal)(float *values, int64_t elems, uint64_t seed, uint64_t stream,
                        uint64_t first, double deviation);
} mics_kernels;

/* The best kernels that this CPU runs, or those called `isa` when it is not NULL.
 *
 * Returns: NULL when `isa` is unknown or this CPU lacks it.     Owns: nothing; static.
 */
const mics_kernels *mics_kernels_get(const char *isa);

/* Number of instruction sets that this build has kernels for. */
int32_t mics_kernels_count(void);

/* The kernels of number `index`, best first.
 *
 * Needs:   0 <= index < mics_kernels_count().
 * Returns: NULL when this CPU cannot run them.     Owns: nothing; static.
 */
const mics_kernels *mics_kernels_at(int32_t index);

/* The plugin's kernels; NULL when there is no plugin.     Owns: nothing; static. */
const mics_kernels *mics_kernels_cuda(void);

/* Positions 0 ... N - 1 sorted by token, equal tokens by position: a counting sort on the host.
 *
 * Shapes:  order_N, tokens_N: N; counts_V: V + 1, scratch.
 * Needs:   N >= 0, tokens in [0, V).
 */
void mics_op_sort_tokens(int32_t *order_N, const int32_t *tokens_N, int64_t N, int64_t V,
                         int32_t *counts_V);

/* Row-major C = alpha * op(A) op(B) + beta * C, by the matrix library; M x K times K x N.
 * When the library fails, plain loops give the result, many times slower; the first time in a
 * process is a warning in the log.
 * Shapes:  op(A) M x K, op(B) K x N, C M x N.
 * Units:   lda, ldb, ldc: floats between rows as stored.
 * Needs:   M, N, K >= 1; C apart from A and B.
 */
void mics_gemm(bool transpose_a, bool transpose_b, int64_t M, int64_t N, int64_t K, float alpha,
               const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
               int64_t ldc);

/* Name and version of the matrix library, and the instruction set that it chose: "oneDNN 2.6.3,
 * AVX-512".
 *
 * Returns: never NULL.     Owns: nothing; static.
 */
const char *mics_gemm_library(void);

/* Keeps the matrix library to the instructions that some kernels are compiled for, so that machines
 * which have more compute the same bits.
 *
 * Needs:   before anything else of the library is called in this process.
 * Returns: MICS_OK; MICS_ERR_UNSUPPORTED, logged: it was called before.
 */
mics_status mics_gemm_limit(const mics_kernels *kernels);

/* Threads that kernels called from this thread use (OpenMP). Needs threads >= 1. */
void mics_op_set_threads(int32_t threads);

/* What mics_op_set_threads set for the calling thread, or OpenMP's default.     Returns: >= 1. */
int32_t mics_op_threads(void);

#ifdef __cplusplus
}
#endif
