// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What AGREE sends to every rank: how a step went on each.
#ifndef MICS_AGREEMENT_H
#define MICS_AGREEMENT_H

#include "mics/core/preference.h"
#include "mics/op.h"
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mics_agreement {
    double loss;               // sum over the rank's tokens, or pairs
    double sum_squares;        // of its 1 / ranks of the gradients
    double updated_squares;    // of the gradients that the updates before this step's forward took
    int64_t counted;           // of them, those that have a part in the loss
    uint32_t told;             // what the rank tells all others
    float waited_us;           // its computation for others, in the training step before
    int64_t memory_peak_bytes; // of the rank, so far
    double router_sums[MICS_ROUTER_SUMS];         // over the rank's sequences and layers
    double preference_sums[MICS_PREFERENCE_SUMS]; // over the rank's pairs
} mics_agreement;

#ifdef __cplusplus
}
#endif
#endif
