// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A CPU's update of each number by itself, block by block, each thread some of the blocks.
#pragma once

#include "ops/common/kernels_isa.h"

/* Defines MICS_OP(NAME_update) from what an optimizer has of its own: NAME_factors_of(update,
 * decays), of where weight decay applies and where it does not, and
 *
 *     update_part(update, factors, begin, elems, rounds, narrow)
 *
 * inline, for elements [begin, begin + elems) of the shard. `rounds`, whether parameters are wanted
 * in the same pass, and `narrow`, whether gradients are mics_elem, are constants where it is
 * inlined.
 */
// As it stands: the formatter joins the pragma and the loop.
// clang-format off
#define MICS_OPTIMIZER_BY_BLOCKS(name)                                                             \
    static void update_block(const mics_optimizer_update *update, const name##_factors *by,        \
                             int64_t begin, int64_t elems)                                         \
    {                                                                                              \
        if (update->rounded_grads && update->params)                                               \
            update_part(update, by, begin, elems, true, true);                                     \
        else if (update->rounded_grads)                                                            \
            update_part(update, by, begin, elems, false, true);                                    \
        else if (update->params)                                                                   \
            update_part(update, by, begin, elems, true, false);                                    \
        else                                                                                       \
            update_part(update, by, begin, elems, false, false);                                   \
    }                                                                                              \
                                                                                                   \
    static void update_run(const mics_optimizer_update *update, bool decays, int64_t first,        \
                           int64_t end)                                                            \
    {                                                                                              \
        const name##_factors by = name##_factors_of(update, decays);                               \
        _Pragma("omp parallel for if (end - first >= MICS_OP_PARALLEL)")                           \
        for (int64_t begin = first; begin < end; begin += MICS_OP_BLOCK)                           \
            update_block(update, &by, begin,                                                       \
                         end - begin < MICS_OP_BLOCK ? end - begin : MICS_OP_BLOCK);               \
    }                                                                                              \
                                                                                                   \
    void MICS_OP(name##_update)(const mics_exec *at, const mics_optimizer_update *update)          \
    {                                                                                              \
        const int32_t count = update->flip_count;                                                  \
        (void)at;                                                                                  \
        for (int32_t run = 0; run <= count; run++)                                                 \
            update_run(update, update->decays != (run % 2 != 0),                                   \
                       run == 0 ? 0 : update->flips[run - 1],                                      \
                       run == count ? update->elems : update->flips[run]);                         \
    }
// clang-format on
