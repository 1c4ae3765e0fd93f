// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Optimizers as data: what each keeps of a parameter, what a step moves, and its settings, as one
// descriptor. Engine, ledgers, simulator and checkpoints ask it and never name a kind.
//
// The update itself is a kernel: mics_kernels.update (kernels.h).
#ifndef MICS_OPTIMIZER_H
#define MICS_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The registry, X(ENUMERATOR, folder): src/optim/<folder>/def.c has the descriptor, and the files
// beside it the kernels. The build reads this list too.
#define MICS_OPTIMIZERS(X)                                                                         \
    X(ADAMW, adamw)                                                                                \
    X(SGD, sgd)                                                                                    \
    X(LION, lion)                                                                                  \
    X(MUON, muon)

#define MICS_OPTIMIZER_KIND_(NAME, folder) MICS_OPTIMIZER_##NAME,
typedef enum mics_optimizer_kind {
    MICS_OPTIMIZERS(MICS_OPTIMIZER_KIND_) MICS_OPTIMIZER_KINDS
} mics_optimizer_kind;
#undef MICS_OPTIMIZER_KIND_

enum { MICS_OPTIMIZER_STATES = 2, MICS_OPTIMIZER_SETTINGS = 8 };

// A hyperparameter that does not change from step to step.
typedef struct mics_optimizer_setting {
    const char *name;   // as PyTorch has it
    double least, most; // of its values
    double standard;    // where nobody says
    bool is_switch;     // true or false, as 1 or 0
} mics_optimizer_setting;

typedef struct mics_optimizer_def {
    const char *name;
    int32_t states;                                 // numbers that it keeps of a parameter
    const char *state_names[MICS_OPTIMIZER_STATES]; // as PyTorch has them
    bool squares[MICS_OPTIMIZER_STATES];            // never below 0, and divided by
    // (optional, both or none) It makes the momentum of a hidden layer's matrix orthogonal, once a
    // step: floats of the workspace that this takes, and FLOPs. By default a number's step depends
    // on its own gradient alone.
    int64_t (*matrix_workspace)(int64_t rows, int64_t columns);
    double (*matrix_flops)(int64_t rows, int64_t columns);
    int32_t settings;
    mics_optimizer_setting setting[MICS_OPTIMIZER_SETTINGS];
} mics_optimizer_def;

// One with its settings, in the descriptor's order. All zeros: the first kind, with settings of 0.
typedef struct mics_optimizer {
    mics_optimizer_kind kind;
    double settings[MICS_OPTIMIZER_SETTINGS];
    double weight_decay; // of tensors that decay; as the optimizer's own source applies it
} mics_optimizer;

// What states are held in. An update computes in fp32, and checkpoints hold fp32.
typedef enum mics_state_dtype {
    MICS_STATE_FP32,
    // Rounded at random, so that the mean is right: to nearest, a second moment of bf16's 8 bits
    // would lose changes below 0.2 %, which those of beta2 = 0.999 are (Gupta et al., 2015,
    // arXiv:1502.02551).
    MICS_STATE_BF16,
    // Blocks of MICS_STATE_BLOCK elements, counted from the shard's beginning: one fp32 scale and a
    // byte each, of the dynamic code of Dettmers et al., 2022, arXiv:2110.02861. The scale is the
    // element of the largest magnitude with its sign, so that quantising what a block stands for
    // gives the same bytes. It is 0, and so are the elements, below 2^-100. What is above 0 stays
    // above 0 in squares.
    MICS_STATE_8BIT,
    MICS_STATE_DTYPES
} mics_state_dtype;

enum { MICS_STATE_BLOCK = 256 };

/* "fp32", "bf16", "8bit"; never NULL. */
const char *mics_state_dtype_text(mics_state_dtype dtype);

/* Bytes of one number of a state, without scales. */
size_t mics_state_elem_bytes(mics_state_dtype dtype);

/* Bytes of one state of a shard: scales first, then elements, each rounded up to 16 unless fp32.
 *
 * Needs:   elems >= 0.
 */
size_t mics_state_bytes(mics_state_dtype dtype, int64_t elems);

/* Of those, the scales'. Needs elems >= 0. */
size_t mics_state_scale_bytes(mics_state_dtype dtype, int64_t elems);

/* Elements of a shard whose states are in fp32 at a time during an update, where they are held in
 * fewer bits: what stays in a cache of the device (L2: 32 MiB of 40 or more on accelerators since
 * 2020; 512 KiB of a core's 1 MiB or more). A multiple of MICS_STATE_BLOCK.
 */
int64_t mics_state_part_elems(bool accelerator);

/* The descriptor of a kind.
 *
 * Needs:   a valid kind.     Returns: never NULL.     Owns: nothing; static.
 */
const mics_optimizer_def *mics_optimizer_def_get(mics_optimizer_kind kind);

/* An optimizer with the standard settings and no decay. */
mics_optimizer mics_optimizer_standard(mics_optimizer_kind kind);

/* Bytes that are kept of a shard: its states, and in mixed precision its fp32 masters.
 *
 * Needs:   elems >= 0.
 */
size_t mics_optimizer_kept_bytes(mics_optimizer_kind kind, mics_state_dtype dtype, bool mixed,
                                 int64_t elems);

/* What it takes of the workspace to make one matrix orthogonal; 0 where none is.
 *
 * Units:   floats.       Needs:   rows, columns >= 1.
 */
int64_t mics_optimizer_workspace(mics_optimizer_kind kind, int64_t rows, int64_t columns);

/* FLOPs that this takes, with the standard number of iterations; 0 where none is.
 *
 * Needs:   rows, columns >= 1.
 */
double mics_optimizer_matrix_flops(mics_optimizer_kind kind, int64_t rows, int64_t columns);

/* Bytes that a step reads and writes of a parameter: value, states and gradient, and in mixed
 * precision what forward reads, which is written beside the master. States of fewer bits are made
 * fp32 and rounded again in passes of their own. `grad_bytes`: of one number of the gradient.
 *
 * Needs:   a valid kind and dtype.
 */
int32_t mics_optimizer_moved_bytes(mics_optimizer_kind kind, mics_state_dtype dtype, bool mixed,
                                   size_t grad_bytes);

#ifdef __cplusplus
}
#endif
#endif
