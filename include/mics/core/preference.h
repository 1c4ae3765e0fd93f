// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Preference pairs: sequences 2i and 2i + 1 of a micro-batch are the chosen and the rejected answer of
// one pair. The loss is the mean over the global batch's pairs.
//
// With the log-probability of an answer (the sum over its tokens that count), and that of a
// reference, rounded to fp32 alike, h is the chosen answer's less its reference's, minus the same of
// the rejected one. A pair's loss is
//
//     DPO   -(1 - s) log sigmoid(beta h) - s log sigmoid(-beta h)
//           Rafailov et al., 2023, arXiv:2305.18290; s: Mitchell, 2023 (conservative DPO)
//     IPO   (h - 1 / (2 beta))^2, where each answer's difference is over its tokens
//           Azar et al., 2023, arXiv:2310.12036; over the tokens as TRL 1.16 has it
#ifndef MICS_PREFERENCE_H
#define MICS_PREFERENCE_H

typedef enum mics_preference_kind {
    MICS_PREFERENCE_NONE, // sequences are no pairs: the loss is the mean over tokens that count
    MICS_PREFERENCE_DPO,
    MICS_PREFERENCE_IPO,
    MICS_PREFERENCE_KINDS
} mics_preference_kind;

typedef struct mics_preference {
    mics_preference_kind kind;
    double beta;            // above 0
    double label_smoothing; // DPO, s: how often a pair's order is taken to be wrong; [0, 0.5)
} mics_preference;

// Sums over pairs in which any token counts, for metrics; a reward is beta times a log-probability
// less its reference's.
typedef enum mics_preference_sum {
    MICS_PREFERENCE_CHOSEN_REWARD,
    MICS_PREFERENCE_REJECTED_REWARD,
    MICS_PREFERENCE_ACCURATE, // pairs whose chosen reward is the larger one
    MICS_PREFERENCE_CHOSEN_LOGP,
    MICS_PREFERENCE_REJECTED_LOGP,
    MICS_PREFERENCE_SUMS
} mics_preference_sum;

#endif
