// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The descriptors, by kind, and what follows from each.
#include "mics/optimizer.h"
#include <stddef.h>

#define DECLARE(NAME, folder) extern const mics_optimizer_def mics_optimizer_def_##folder;
MICS_OPTIMIZERS(DECLARE)

#define ROW(NAME, folder) [MICS_OPTIMIZER_##NAME] = &mics_optimizer_def_##folder,
static const mics_optimizer_def *const defs[MICS_OPTIMIZER_KINDS] = {MICS_OPTIMIZERS(ROW)};

const mics_optimizer_def *mics_optimizer_def_get(mics_optimizer_kind kind)
{
    return defs[kind];
}

mics_optimizer mics_optimizer_standard(mics_optimizer_kind kind)
{
    mics_optimizer optimizer = {.kind = kind};
    for (int32_t i = 0; i < defs[kind]->settings; i++)
        optimizer.settings[i] = defs[kind]->setting[i].standard;
    return optimizer;
}

int32_t mics_optimizer_kept_bytes(mics_optimizer_kind kind, bool mixed)
{
    return (defs[kind]->states + (mixed ? 1 : 0)) * (int32_t)sizeof(float);
}

int64_t mics_optimizer_workspace(mics_optimizer_kind kind, int64_t rows, int64_t columns)
{
    return defs[kind]->matrix_workspace != NULL ? defs[kind]->matrix_workspace(rows, columns) : 0;
}

double mics_optimizer_matrix_flops(mics_optimizer_kind kind, int64_t rows, int64_t columns)
{
    return defs[kind]->matrix_flops != NULL ? defs[kind]->matrix_flops(rows, columns) : 0;
}

int32_t mics_optimizer_moved_bytes(mics_optimizer_kind kind, bool mixed)
{
    const int32_t gradient = sizeof(float), rounded = mixed ? 2 : 0;
    return 2 * (1 + defs[kind]->states) * (int32_t)sizeof(float) + gradient + rounded;
}
