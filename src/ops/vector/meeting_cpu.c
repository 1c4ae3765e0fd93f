// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Meetings of islands, element by element. Each reads and writes its arrays once, by one thread: its
// numbers come from memory.
#include "ops/common/kernels_isa.h"
#include <math.h>

void MICS_ISA_OP(meet_change)(const mics_exec *at, float *message, const float *anchor,
                              const float *held, float weight, int64_t elems)
{
    (void)at;
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i)
        message[i] = weight * (anchor != NULL ? anchor[i] - held[i] : held[i]);
}

void MICS_ISA_OP(meet_step)(const mics_exec *at, const mics_outer_step *step)
{
    float *message = step->message, *momentum = step->momentum;
    (void)at;
#pragma omp simd
    for (int64_t i = 0; i < step->elems; ++i) {
        const float g = message[i] / step->weights;
        if (momentum != NULL) {
            momentum[i] = step->decay * momentum[i] + g;
            message[i] = -step->lr * (g + step->decay * momentum[i]);
        } else {
            message[i] = g;
        }
    }
}

void MICS_ISA_OP(meet_adopt)(const mics_exec *at, float *held, float *anchor, const float *message,
                             int64_t elems)
{
    (void)at;
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i) {
        anchor[i] += message[i];
        held[i] = anchor[i];
    }
}

void MICS_ISA_OP(meet_round)(const mics_exec *at, uint16_t *packed, const float *values,
                             float *residual, int64_t elems)
{
    (void)at;
    for (int64_t first = 0; first < elems; first += MICS_OP_BLOCK) {
        const int64_t rest = elems - first, count = rest < MICS_OP_BLOCK ? rest : MICS_OP_BLOCK;
        float *kept = residual + first, sent[MICS_OP_BLOCK];
        MICS_ISA_OP(add)(kept, kept, values + first, count);
        MICS_ISA_OP(pack_bf16)(packed + first, kept, count);
        MICS_ISA_OP(unpack_bf16)(sent, packed + first, count);
        for (int64_t i = 0; i < count; ++i) {
            const float lost = kept[i] - sent[i];
            kept[i] = isfinite(lost) ? lost : 0;
        }
    }
}
