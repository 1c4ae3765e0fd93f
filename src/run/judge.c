// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "judge.h"
#include "mics/core/agreement.h"
#include "mics/log.h"
#include "quarantine.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = RUN_JUDGE_TEXT_BYTES };

mics_status run_judge_open(run_judge *judge, const run_context *context)
{
    const mics_run *run = context->job->run;
    judge->context = context;
    judge->rules = (run_rules){
        .on_spike = run->on_spike,
        .on_divergence = run->on_divergence,
        .spike_zscore = run->spike_zscore,
        .recheck = run->recheck,
        // What int8 lost of gradients changes with each step.
        .repeats = context->job->schedule->residual_elems == 0,
        .apart = run_job_islands(context->job) > 1,
    };
    if (!run->recheck)
        return MICS_OK;
    return MICS_NEW(context->rank->memory, context->rank->comm->ranks, &judge->first);
}

void run_judge_close(run_judge *judge)
{
    if (judge->context != NULL)
        mics_free(judge->context->rank->memory, judge->first);
    judge->first = NULL;
}

mics_step_limits run_judge_limits(const run_judge *judge)
{
    const run_rules *rules = &judge->rules;
    const bool trains_spikes =
        strcmp(rules->on_spike, "warn") == 0 && (!rules->recheck || judge->known.again);
    return (mics_step_limits){
        .max_loss = trains_spikes ? INFINITY : run_guard_spike_loss(rules, &judge->recent),
        .silent = true};
}

static void warn_spike(const run_judge *judge, int64_t step, double loss, const char *then)
{
    const run_spread spread = run_guard_spread(&judge->recent);
    if (run_is_first_of_island(judge->context))
        mics_log(MICS_LOG_WARNING,
                 "step %lld: loss %g is %.1f standard deviations above the mean of the steps "
                 "before, %g (run.spike_zscore %g)%s",
                 (long long)step, loss, (loss - spread.mean) / spread.deviation, spread.mean,
                 judge->rules.spike_zscore, then);
}

// ---- a second attempt ----

static bool same_bits(double a, double b)
{
    uint64_t of_a, of_b;
    memcpy(&of_a, &a, sizeof of_a);
    memcpy(&of_b, &b, sizeof of_b);
    return of_a == of_b;
}

// Of both attempts, the number of a rank that is compared.
static bool is_same(const run_judge *judge, const mics_agreement *second, int32_t rank,
                    bool by_loss)
{
    const mics_agreement *first = &judge->first[rank];
    return by_loss ? same_bits(first->loss, second[rank].loss)
                   : same_bits(first->sum_squares, second[rank].sum_squares);
}

// Names the ranks whose own losses differ from what they were, or else whose gradients do, which
// hold other ranks' too.
static mics_status name_changed(const run_judge *judge, const mics_agreement *second, bool by_loss,
                                char text[TEXT_BYTES])
{
    const run_context *context = judge->context;
    char(*hosts)[MICS_HOST_BYTES] = NULL;
    size_t used = (size_t)snprintf(text, TEXT_BYTES,
                                   "; run again, it gives other numbers, so not the data but a "
                                   "machine is to blame; other %s are those of",
                                   by_loss ? "losses" : "sums of gradients");
    MICS_TRY(MICS_NEW(context->rank->memory, context->rank->comm->ranks, &hosts));
    const mics_status status = mics_engine_hosts(context->engine, hosts);
    for (int32_t rank = 0; rank < context->rank->comm->ranks && status == MICS_OK; rank++) {
        if (!is_same(judge, second, rank, by_loss) && used < TEXT_BYTES)
            used += (size_t)snprintf(text + used, TEXT_BYTES - used, " rank %d (%s)", (int)rank,
                                     hosts[rank]);
    }
    mics_free(context->rank->memory, hosts);
    return status;
}

static mics_status compare_attempts(const run_judge *judge, char text[TEXT_BYTES])
{
    const mics_agreement *second = mics_engine_agreements(judge->context->engine);
    bool same_losses = true, same_sums = true;
    for (int32_t rank = 0; rank < judge->context->rank->comm->ranks; rank++) {
        same_losses = same_losses && is_same(judge, second, rank, true);
        same_sums = same_sums && is_same(judge, second, rank, false);
    }
    if (!same_losses || !same_sums)
        return name_changed(judge, second, !same_losses, text);
    snprintf(text, TEXT_BYTES,
             "; run again, it gives the same numbers, so no machine is to blame but data or "
             "hyperparameters");
    return MICS_OK;
}

static void keep_attempt(run_judge *judge)
{
    const run_context *context = judge->context;
    mics_engine_explain(context->engine, judge->first_says, sizeof judge->first_says);
    memcpy(judge->first, mics_engine_agreements(context->engine),
           (size_t)context->rank->comm->ranks * sizeof *judge->first);
    judge->known.again = true;
}

// ---- verdicts ----

static void accept(run_judge *judge, int64_t step, const mics_step_result *result)
{
    const bool left_out = result->verdict == MICS_VERDICT_SPIKE;
    if (result->loss > run_guard_spike_loss(&judge->rules, &judge->recent))
        warn_spike(judge, step, result->loss, left_out ? "; the step is left out" : "");
    if (!left_out && isfinite(result->loss))
        run_guard_add_loss(&judge->recent, result->loss);
}

// The step is not to be trained, and nobody knows a machine that is to blame.
static mics_status give_up(run_judge *judge, int64_t step, const mics_step_result *result,
                           const char *again)
{
    const bool spike = result->verdict == MICS_VERDICT_SPIKE;
    char what[TEXT_BYTES], where[TEXT_BYTES] = "";
    mics_engine_explain(judge->context->engine, what, sizeof what);
    if (spike)
        warn_spike(judge, step, result->loss, "");
    if (!judge->rules.apart)
        MICS_TRY(run_quarantine_save(judge->context, step - 1, where, sizeof where));
    if (!run_is_first_of_island(judge->context))
        return MICS_ERR_NUMERIC;
    if (judge->rules.apart)
        again = "; an island cannot go back by itself: --resume auto resumes from the newest "
                "checkpoint";
    if (judge->rules.recheck && !judge->known.again)
        again = "; it cannot be run again, as int8 (run.comm_dtype) keeps what it lost";
    return mics_fail(MICS_ERR_NUMERIC, "%s%s%s%s%s", what,
                     spike ? " (run.on_spike is \"stop\")" : "", again,
                     where[0] != '\0' ? "; " : "", where);
}

// Replicas hold the same, although they updated with different gradients. What was lost is lost
// alike, so the step is taken again; nothing is left to update then.
static void warn_retake(const run_judge *judge)
{
    char what[TEXT_BYTES];
    if (run_is_rank_0(judge->context))
        mics_log(MICS_LOG_WARNING, "%s; parameters are as after the step before; it is run again",
                 mics_engine_explain(judge->context->engine, what, sizeof what));
}

static mics_status find_out(run_judge *judge, run_action *action_out)
{
    mics_engine *engine = judge->context->engine;
    *action_out = run_guard_step(&judge->rules, &judge->known);
    if (*action_out == RUN_COMPARE) {
        MICS_TRY(mics_engine_compare(engine, &judge->found));
        judge->known.compared = true;
        judge->known.differs = judge->found.found;
        *action_out = run_guard_step(&judge->rules, &judge->known);
    }
    if (*action_out == RUN_GO_BACK && !judge->known.differs)
        judge->found = mics_engine_compare_grads(engine);
    return MICS_OK;
}

mics_status run_judge_step(run_judge *judge, int64_t step, const mics_step_result *result,
                           bool impossible, run_action *action_out)
{
    char again[TEXT_BYTES] = "";
    judge->known.verdict = result->verdict;
    judge->known.impossible = impossible;
    if (judge->known.again && result->verdict != MICS_VERDICT_HELD) {
        MICS_TRY(compare_attempts(judge, again));
        if (!impossible && run_is_rank_0(judge->context))
            mics_log(MICS_LOG_WARNING, "%s%s", judge->first_says, again);
    }
    MICS_TRY(find_out(judge, action_out));
    if (*action_out == RUN_GIVE_UP)
        return give_up(judge, step, result, again);
    if (*action_out == RUN_RECHECK) {
        keep_attempt(judge);
        return MICS_OK;
    }
    if (*action_out == RUN_ACCEPT)
        accept(judge, step, result);
    else if (*action_out == RUN_RETAKE)
        warn_retake(judge);
    judge->known = (run_evidence){.again = false};
    return MICS_OK;
}
