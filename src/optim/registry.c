// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The descriptors, by kind, and what follows from each.
#include "mics/core/optimizer.h"
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

const char *mics_state_dtype_text(mics_state_dtype dtype)
{
    static const char *const texts[MICS_STATE_DTYPES] = {"fp32", "bf16", "8bit"};
    return texts[dtype];
}

size_t mics_state_elem_bytes(mics_state_dtype dtype)
{
    static const size_t bytes[MICS_STATE_DTYPES] = {sizeof(float), 2, 1};
    return bytes[dtype];
}

static size_t round_up(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

size_t mics_state_scale_bytes(mics_state_dtype dtype, int64_t elems)
{
    const size_t blocks = ((size_t)elems + MICS_STATE_BLOCK - 1) / MICS_STATE_BLOCK;
    return dtype == MICS_STATE_8BIT ? round_up(blocks * sizeof(float)) : 0;
}

size_t mics_state_bytes(mics_state_dtype dtype, int64_t elems)
{
    const size_t bytes = (size_t)elems * mics_state_elem_bytes(dtype);
    return dtype == MICS_STATE_FP32 ? bytes
                                    : mics_state_scale_bytes(dtype, elems) + round_up(bytes);
}

int64_t mics_state_part_elems(bool accelerator)
{
    return accelerator ? 1 << 22 : 1 << 16;
}

size_t mics_optimizer_kept_bytes(mics_optimizer_kind kind, mics_state_dtype dtype, bool mixed,
                                 int64_t elems)
{
    return (size_t)defs[kind]->states * mics_state_bytes(dtype, elems) +
           (mixed ? (size_t)elems * sizeof(float) : 0);
}

int64_t mics_optimizer_workspace(mics_optimizer_kind kind, int64_t rows, int64_t columns)
{
    return defs[kind]->matrix_workspace != NULL ? defs[kind]->matrix_workspace(rows, columns) : 0;
}

double mics_optimizer_matrix_flops(mics_optimizer_kind kind, int64_t rows, int64_t columns)
{
    return defs[kind]->matrix_flops != NULL ? defs[kind]->matrix_flops(rows, columns) : 0;
}

int32_t mics_optimizer_moved_bytes(mics_optimizer_kind kind, mics_state_dtype dtype, bool mixed,
                                   size_t grad_bytes)
{
    const int32_t whole = sizeof(float), gradient = (int32_t)grad_bytes, rounded = mixed ? 2 : 0;
    const int32_t held = (int32_t)mics_state_elem_bytes(dtype),
                  passes = dtype == MICS_STATE_FP32 ? 0 : 2 * (held + whole);
    return 2 * whole + defs[kind]->states * (2 * whole + passes) + gradient + rounded;
}
