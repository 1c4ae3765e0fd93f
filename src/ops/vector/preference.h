// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The loss of one preference pair, which CPU and GPU share; see mics/core/preference.h.
#pragma once

#include "ops/kernels.h"
#include <math.h>

// Kernels of a GPU call what is marked so.
#ifdef __CUDACC__
#define MICS_PREFERENCE_SHARED static inline __host__ __device__
#else
#define MICS_PREFERENCE_SHARED static inline
#endif

// An answer of the policy: the chosen one or the rejected one.
typedef struct mics_preference_answer {
    double loss;     // of its tokens
    int64_t counted; // of them
    float reference;
} mics_preference_answer;

/* log(1 + e^x) */
MICS_PREFERENCE_SHARED double mics_preference_softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

/* Adds a pair to the loss and the sums. slopes_out: d pair's loss / d loss of a token, of each answer.
 * A pair of which no token counts adds nothing, and its slopes are 0.
 */
MICS_PREFERENCE_SHARED void mics_preference_pair(const mics_preference_pairs *pairs,
                                                 const mics_preference_answer answers[2],
                                                 float slopes_out[2])
{
    const double beta = pairs->of.beta, s = pairs->of.label_smoothing;
    const bool ipo = pairs->of.kind == MICS_PREFERENCE_IPO;
    double logp[2], ratio[2], over[2];
    slopes_out[0] = slopes_out[1] = 0;
    if (answers[0].counted + answers[1].counted == 0)
        return;
    for (int i = 0; i < 2; ++i) {
        logp[i] = (double)-(float)answers[i].loss;
        ratio[i] = logp[i] - (double)answers[i].reference;
        over[i] = ipo && answers[i].counted > 1 ? (double)answers[i].counted : 1;
    }
    const double h = ratio[0] / over[0] - ratio[1] / over[1], off = h - 0.5 / beta;
    const double sigmoid = 1 / (1 + exp(-beta * h));
    const double slope = ipo ? 2 * off : beta * (sigmoid - (1 - s));
    *pairs->loss += ipo ? off * off
                        : (1 - s) * mics_preference_softplus(-beta * h) +
                              s * mics_preference_softplus(beta * h);
    pairs->sums[MICS_PREFERENCE_CHOSEN_REWARD] += beta * ratio[0];
    pairs->sums[MICS_PREFERENCE_REJECTED_REWARD] += beta * ratio[1];
    pairs->sums[MICS_PREFERENCE_ACCURATE] += ratio[0] > ratio[1] ? 1 : 0;
    pairs->sums[MICS_PREFERENCE_CHOSEN_LOGP] += logp[0];
    pairs->sums[MICS_PREFERENCE_REJECTED_LOGP] += logp[1];
    slopes_out[0] = (float)(-slope / over[0]);
    slopes_out[1] = (float)(slope / over[1]);
}
