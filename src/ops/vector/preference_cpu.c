// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Losses of preference pairs, pair by pair.
#include "ops/common/kernels_isa.h"
#include "ops/vector/preference.h"

static mics_preference_answer answer_at(const mics_exec *at, const mics_preference_pairs *p,
                                        int64_t b)
{
    mics_preference_answer answer = {.reference = p->references_B[b]};
    MICS_ISA_OP(sum_losses)(at, &answer.loss, p->losses_BT + b * p->T, p->T);
    for (int64_t n = b * p->T; n < (b + 1) * p->T; n++)
        answer.counted += p->targets_BT[n] >= 0;
    return answer;
}

void MICS_ISA_OP(preference)(const mics_exec *at, const mics_preference_pairs *p)
{
    for (int64_t b = 0; b < p->B; b += 2) {
        const mics_preference_answer answers[2] = {answer_at(at, p, b), answer_at(at, p, b + 1)};
        float slopes[2];
        mics_preference_pair(p, answers, slopes);
        for (int64_t t = 0; p->scales_BT != NULL && t < 2 * p->T; t++)
            p->scales_BT[b * p->T + t] = slopes[t / p->T];
    }
}
