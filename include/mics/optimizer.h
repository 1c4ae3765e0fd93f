// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Optimizers as data: what each keeps of a parameter, what a step moves, and its settings, as one
// descriptor. Engine, ledgers, simulator and checkpoints ask it and never name a kind.
//
// The update itself is a kernel: mics_kernels.update (kernels.h).
#ifndef MICS_OPTIMIZER_H
#define MICS_OPTIMIZER_H

#include <stdbool.h>
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
    int32_t states;                                 // fp32 numbers that it keeps of a parameter
    const char *state_names[MICS_OPTIMIZER_STATES]; // as PyTorch has them
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

/* The descriptor of a kind.
 *
 * Needs:   a valid kind.     Returns: never NULL.     Owns: nothing; static.
 */
const mics_optimizer_def *mics_optimizer_def_get(mics_optimizer_kind kind);

/* An optimizer with the standard settings and no decay. */
mics_optimizer mics_optimizer_standard(mics_optimizer_kind kind);

/* Bytes that are kept of a parameter: its states, and in mixed precision its fp32 master. */
int32_t mics_optimizer_kept_bytes(mics_optimizer_kind kind, bool mixed);

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
 * precision what forward reads, which is written beside the master. */
int32_t mics_optimizer_moved_bytes(mics_optimizer_kind kind, bool mixed);

#ifdef __cplusplus
}
#endif
#endif
