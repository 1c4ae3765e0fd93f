// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "metrics.h"
#include "base/clock.h"
#include "mics/log.h"
#include "run/report/overlap.h"
#include <math.h>

// What this rank sends in all steps of a kind in the training list.
static mics_bytes kind_sent(const run_context *context, mics_step_kind kind)
{
    const mics_schedule *schedule = context->job->schedule;
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    mics_bytes sum = {0, 0};
    for (int32_t i = 0; i < list->count; i++) {
        if (list->steps[i].kind != kind)
            continue;
        const mics_bytes bytes =
            mics_schedule_step_bytes(schedule, &list->steps[i], context->rank->comm->rank);
        sum.intra += bytes.intra;
        sum.inter += bytes.inter;
    }
    return sum;
}

// The same of all ranks.
static mics_bytes kind_sent_by_all(const run_context *context, mics_step_kind kind)
{
    mics_bytes sum = {0, 0};
    for (int stage = 0; stage < MICS_STAGES; stage++) {
        const mics_bytes bytes = mics_schedule_kind_bytes(context->job->schedule, MICS_PHASE_TRAIN,
                                                          kind, (mics_step_stage)stage);
        sum.intra += bytes.intra;
        sum.inter += bytes.inter;
    }
    return sum;
}

static void add_bytes(mics_bytes *sum, int32_t times, mics_bytes bytes)
{
    sum->intra += times * bytes.intra;
    sum->inter += times * bytes.inter;
}

static mics_status check_bytes(const char *what, mics_bytes sent, mics_bytes expected)
{
    if (sent.intra == expected.intra && sent.inter == expected.inter)
        return MICS_OK;
    return mics_fail(MICS_ERR_COMM,
                     "sent %lld bytes intra-node and %lld inter-node in %s, but the schedule says "
                     "%lld and %lld; this is a defect of mics, please report it",
                     (long long)sent.intra, (long long)sent.inter, what, (long long)expected.intra,
                     (long long)expected.inter);
}

// What is sent of what the step before left (mics_schedule_is_left_over).
static mics_bytes left_over(const run_context *context,
                            mics_bytes (*sent)(const run_context *context, mics_step_kind kind))
{
    mics_bytes sum = {0, 0};
    for (int kind = 0; kind < MICS_STEP_KINDS; kind++) {
        if (mics_schedule_is_left_over(context->job->schedule, (mics_step_kind)kind))
            add_bytes(&sum, 1, sent(context, (mics_step_kind)kind));
    }
    return sum;
}

// What this rank sent must be what the schedule says it sends. Each rank checks its own share, so
// the schedule's total over all ranks is a measured one, without a message to gather it. A step
// that has nothing to complete sends none of what is left over.
static mics_status check_sent(const run_context *context, const run_step *at)
{
    const mics_completions *done = &at->completions;
    const mics_bytes gathers = left_over(context, kind_sent);
    mics_bytes completed = {0, 0},
               step = mics_schedule_rank_bytes(context->job->schedule, MICS_PHASE_TRAIN,
                                               context->rank->comm->rank);
    add_bytes(&step, at->result.completes ? 0 : -1, gathers);
    add_bytes(&step, -1, at->result.unsent);
    add_bytes(&completed, done->updates, gathers);
    add_bytes(&completed, done->count, kind_sent(context, MICS_STEP_SIZES));
    add_bytes(&completed, done->count, kind_sent(context, MICS_STEP_PARAM_SYNC));
    add_bytes(&completed, -1, done->unsent);
    MICS_TRY(check_bytes("a step", at->result.sent, step));
    return check_bytes("completions of steps", done->sent, completed);
}

// What all ranks sent in the step, and in completions since the one before.
static mics_bytes sent_by_all(const run_context *context, const run_step *at)
{
    const mics_completions *done = &at->completions;
    mics_bytes sum = mics_schedule_all_bytes(context->job->schedule, MICS_PHASE_TRAIN);
    add_bytes(&sum, (at->result.completes ? 0 : -1) + done->updates,
              left_over(context, kind_sent_by_all));
    add_bytes(&sum, done->count, kind_sent_by_all(context, MICS_STEP_SIZES));
    add_bytes(&sum, done->count, kind_sent_by_all(context, MICS_STEP_PARAM_SYNC));
    add_bytes(&sum, -1, at->result.unsent_by_all);
    add_bytes(&sum, -1, done->unsent_by_all);
    return sum;
}

// Model FLOPs utilisation, recomputation not counted; unknown unless the run file says what a
// rank's peak is.
static double utilisation(const run_context *context, double tokens_per_s)
{
    const double peak = context->job->run->peak_tflops * 1e12 * context->rank->comm->ranks;
    if (peak <= 0)
        return NAN;
    return mics_model_flops_per_token(context->job->model, run_job_sequence(context->job)) *
           tokens_per_s / peak;
}

// Nothing hides what is completed behind the step: that counts as the second hop's, or where no
// update is due as the parameter sync that it is.
static void fill_exposed(const run_step *at, bool defers, mics_metrics *metrics)
{
    const run_exposed exposed = run_exposed_sum(at->result.exposed_us);
    metrics->exposed_comm_ms = (at->result.exposed_comm_us + at->complete_us) / 1e3;
    metrics->exposed_gather_ms = (exposed.gather + (defers ? 0 : at->complete_us)) / 1e3;
    metrics->exposed_reduce_ms = exposed.reduce / 1e3;
    metrics->exposed_second_hop_ms = (exposed.second_hop + (defers ? at->complete_us : 0)) / 1e3;
    metrics->exposed_agree_ms = exposed.agree / 1e3;
    metrics->exposed_copy_ms = exposed.copy / 1e3;
}

static void fill_router(const double sums[MICS_ROUTER_SUMS], mics_router_metrics *router)
{
    const double sequences = sums[MICS_ROUTER_SEQUENCES];
    if (sequences > 0)
        *router = (mics_router_metrics){.any = true,
                                        .entropy = sums[MICS_ROUTER_ENTROPY] / sequences,
                                        .fullest = sums[MICS_ROUTER_FULLEST] / sequences,
                                        .balance = sums[MICS_ROUTER_BALANCE] / sequences,
                                        .dropped = sums[MICS_ROUTER_DROPPED] / sequences};
}

void run_metrics_fill_pairs(const mics_run *run, const double sums[MICS_PREFERENCE_SUMS],
                            double pairs, mics_preference_metrics *means_out)
{
    *means_out =
        (mics_preference_metrics){.any = run->preference.kind != MICS_PREFERENCE_NONE,
                                  .chosen = sums[MICS_PREFERENCE_CHOSEN_REWARD] / pairs,
                                  .rejected = sums[MICS_PREFERENCE_REJECTED_REWARD] / pairs,
                                  .accuracies = sums[MICS_PREFERENCE_ACCURATE] / pairs,
                                  .logps_chosen = sums[MICS_PREFERENCE_CHOSEN_LOGP] / pairs,
                                  .logps_rejected = sums[MICS_PREFERENCE_REJECTED_LOGP] / pairs};
}

static void report(const run_context *context, const run_step *at)
{
    const mics_job *job = context->job;
    const mics_run *run = job->run;
    const mics_step_result *result = &at->result;
    const int64_t tokens = run->global_batch * mics_run_sequences_each(run) * run_job_sequence(job);
    const mics_bytes sent = sent_by_all(context, at);
    mics_metrics metrics = {
        .step = at->number,
        .steps = run->steps,
        .phase = run->phase_count > 0 ? run->phase + 1 : 0,
        .loss = result->loss,
        .lr = at->lr,
        .grad_norm = result->grad_norm,
        .tokens = run_job_position(job, at->number).tokens,
        .tokens_per_s = (double)tokens * 1e6 / at->taken_us,
        .step_ms = at->taken_us / 1e3,
        .mfu = utilisation(context, (double)tokens * 1e6 / at->taken_us),
        .memory_peak_bytes = result->memory_peak_bytes,
        .sent_intra_bytes = sent.intra,
        .sent_inter_bytes = sent.inter,
        .save_ms = (at->save_us + at->copy_us) / 1e3,
    };
    fill_exposed(at, mics_schedule_defers(job->schedule), &metrics);
    fill_router(result->router_sums, &metrics.router);
    run_metrics_fill_pairs(run, result->preference_sums, (double)result->counted,
                           &metrics.preference);
    run_reports_step(context->reports, &metrics);
    if (job->callbacks.step != NULL)
        job->callbacks.step(job->callbacks.ctx, &metrics);
    if (result->skipped)
        run_job_note(job, "step %lld is left out: gradients overflowed fp16 at loss scale %g",
                     (long long)at->number, result->loss_scale);
    if (result->verdict == MICS_VERDICT_EMPTY)
        run_job_note(job, "step %lld is left out: no token of its batch counts",
                     (long long)at->number);
}

// ---- the follower ----

// Rank 0 keeps what the reports hold of steps up to the first.
static mics_status open_metrics(void *state, const run_context *context, void *memory)
{
    run_metrics *self = state;
    (void)memory;
    self->context = context;
    return run_is_rank_0(context) ? run_reports_open(context->rank->memory, context->job->run,
                                                     context->progress->step, context->reports)
                                  : MICS_OK;
}

static mics_status after_step(void *state, run_step *step)
{
    const run_context *context = ((run_metrics *)state)->context;
    const double begin_us = mics_clock_us();
    if (step->begins)
        return MICS_OK;
    MICS_TRY(check_sent(context, step));
    if (run_reports_opened(context->reports))
        report(context, step);
    step->reported_us = mics_clock_us() - begin_us;
    return MICS_OK;
}

static mics_status rewind_metrics(void *state, const run_source *source)
{
    const bool before = mics_log_demote(true); // a line that is lost ends no run
    (void)run_reports_cut(((run_metrics *)state)->context->reports, source->step);
    mics_log_demote(before);
    return MICS_OK;
}

static mics_status close_metrics(void *state)
{
    const run_metrics *self = state;
    return self->context != NULL ? run_reports_close(self->context->reports) : MICS_OK;
}

const run_follower run_metrics_follower = {.name = "metrics",
                                           .open = open_metrics,
                                           .after_step = after_step,
                                           .rewind = rewind_metrics,
                                           .close = close_metrics};
