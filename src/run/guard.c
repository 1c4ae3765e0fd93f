// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "guard.h"
#include <math.h>
#include <string.h>

enum {
    MAX_TRIES = 3, // a run goes back, or repairs, until it has come past where replicas differed
    LEAST_LOSSES = 20, // below so many a deviation says little
};

run_action run_guard_step(const run_rules *rules, const run_evidence *known)
{
    const mics_verdict verdict = known->verdict;
    const bool good = verdict == MICS_VERDICT_UPDATED || verdict == MICS_VERDICT_OVERFLOW ||
                      verdict == MICS_VERDICT_EMPTY;
    const bool stops = strcmp(rules->on_spike, "stop") == 0;
    const bool ends = known->impossible || (verdict == MICS_VERDICT_SPIKE && stops);
    if (verdict == MICS_VERDICT_HELD)
        return RUN_HOLD;
    if (rules->apart)
        return ends || verdict == MICS_VERDICT_DIVERGED || verdict == MICS_VERDICT_FLIPPED
                   ? RUN_GIVE_UP
                   : RUN_ACCEPT;
    if (verdict == MICS_VERDICT_FLIPPED) // whatever a second attempt gave
        return known->compared ? RUN_GO_BACK : RUN_COMPARE;
    if (good && !known->impossible)
        return RUN_ACCEPT;
    if (!known->again && !known->compared)
        return RUN_COMPARE;
    if (!known->again && known->differs)
        return RUN_GO_BACK;
    if (!known->again && verdict == MICS_VERDICT_DIVERGED)
        return rules->repeats && strcmp(rules->on_divergence, "stop") != 0 ? RUN_RETAKE
                                                                           : RUN_GO_BACK;
    if (!known->again && rules->recheck && rules->repeats)
        return RUN_RECHECK;
    return ends ? RUN_GIVE_UP : RUN_ACCEPT;
}

// Whether the same replicas differ again since the same state: then it is no accident.
static bool is_repeated(const run_divergences *before, int64_t agreed_step,
                        const mics_divergence *found)
{
    return before->count > 1 && before->rewound_step == agreed_step &&
           before->newest.rank == found->rank && before->newest.other == found->other &&
           before->newest.unit == found->unit && before->newest.state == found->state;
}

run_action run_guard_divergence(const run_rules *rules, const run_divergences *before,
                                int64_t agreed_step, const mics_divergence *found,
                                bool *repeated_out)
{
    const bool stops = strcmp(rules->on_divergence, "stop") == 0;
    *repeated_out =
        !stops && (before->count > MAX_TRIES || is_repeated(before, agreed_step, found));
    if (stops || *repeated_out)
        return RUN_GIVE_UP;
    return strcmp(rules->on_divergence, "repair") == 0 && found->majority &&
                   found->state != MICS_REPLICA_GRADS
               ? RUN_REPAIR
               : RUN_GO_BACK;
}

// ---- spikes ----

run_spread run_guard_spread(const mics_checkpoint_losses *recent)
{
    double sum = 0, squares = 0;
    for (int32_t i = 0; i < recent->count; i++)
        sum += recent->list[i];
    const double mean = recent->count > 0 ? sum / recent->count : 0;
    for (int32_t i = 0; i < recent->count; i++)
        squares += (recent->list[i] - mean) * (recent->list[i] - mean);
    return (run_spread){mean, recent->count > 0 ? sqrt(squares / recent->count) : 0};
}

double run_guard_spike_loss(const run_rules *rules, const mics_checkpoint_losses *recent)
{
    const run_spread spread = run_guard_spread(recent);
    if (rules->spike_zscore <= 0 || recent->count < LEAST_LOSSES || spread.deviation <= 0)
        return INFINITY;
    return spread.mean + rules->spike_zscore * spread.deviation;
}

void run_guard_add_loss(mics_checkpoint_losses *recent, double loss)
{
    if (recent->count == MICS_CHECKPOINT_LOSSES)
        memmove(recent->list, recent->list + 1, (size_t)--recent->count * sizeof *recent->list);
    recent->list[recent->count++] = loss;
}
