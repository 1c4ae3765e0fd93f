// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "metrics.h"
#include "base/clock.h"
#include "mics/core/ledger.h"
#include "mics/log.h"
#include "run/report/overlap.h"
#include "schedule/rules.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

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

// What a rank sends in the meetings that are due in training step `number`; 0: of all units, once.
static mics_bytes met_by(const mics_schedule *schedule, int64_t number, int32_t rank)
{
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    mics_bytes sum = {0, 0};
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        if (mics_step_meets(step) &&
            (number > 0 ? mics_step_is_due(step, number) : step->state == 0))
            add_bytes(&sum, 1, mics_schedule_step_bytes(schedule, step, rank));
    }
    return sum;
}

// The meetings of a step: in its own list, and in what completed it.
typedef struct meetings {
    mics_bytes step, completed;
} meetings;

// Those of the list that follows may be done ahead of it (mics_engine_complete).
static meetings meetings_of(const run_metrics *self, const run_step *at, int32_t rank)
{
    const run_context *context = self->context;
    const mics_schedule *schedule = context->job->schedule;
    meetings met = {{0, 0}, {0, 0}};
    if (run_job_islands(context->job) == 1)
        return met;
    const int64_t done = *mics_engine_outer_state(context->engine).met;
    if (self->met < at->number)
        met.step = met_by(schedule, at->number, rank);
    if (done > at->number && schedule->spec.outer.overlap_steps == 0)
        met.completed = met_by(schedule, at->number + 1, rank);
    if (at->meets)
        add_bytes(&met.completed, 1, met_by(schedule, 0, rank));
    return met;
}

// What each completion sends.
static mics_bytes each_completion(const run_context *context,
                                  mics_bytes (*sent)(const run_context *context,
                                                     mics_step_kind kind))
{
    mics_bytes sum = sent(context, MICS_STEP_PARAM_SYNC);
    add_bytes(&sum, 1, sent(context, MICS_STEP_SIZES));
    add_bytes(&sum, 1, sent(context, MICS_STEP_AGREE_WORLD));
    return sum;
}

// What this rank sent must be what the schedule says it sends. Each rank checks its own share, so
// the schedule's total over all ranks is a measured one, without a message to gather it. A step
// that has nothing to complete sends none of what is left over.
static mics_status check_sent(const run_metrics *self, const run_step *at)
{
    const run_context *context = self->context;
    const mics_completions *done = &at->completions;
    const mics_bytes gathers = left_over(context, kind_sent);
    const meetings met = meetings_of(self, at, context->rank->comm->rank);
    mics_bytes completed = met.completed,
               step = mics_schedule_rank_bytes(context->job->schedule, MICS_PHASE_TRAIN,
                                               context->rank->comm->rank);
    add_bytes(&step, at->result.completes ? 0 : -1, gathers);
    add_bytes(&step, 1, met.step);
    add_bytes(&step, -1, at->result.unsent);
    add_bytes(&completed, done->updates, gathers);
    add_bytes(&completed, done->count, each_completion(context, kind_sent));
    add_bytes(&completed, -1, done->unsent);
    MICS_TRY(check_bytes("a step", at->result.sent, step));
    return check_bytes("completions of steps", done->sent, completed);
}

// What all ranks sent in the step, and in completions since the one before; *met_out: of that in
// meetings.
static mics_bytes sent_by_all(const run_metrics *self, const run_step *at, mics_bytes *met_out)
{
    const run_context *context = self->context;
    const mics_completions *done = &at->completions;
    mics_bytes sum = mics_schedule_all_bytes(context->job->schedule, MICS_PHASE_TRAIN);
    *met_out = (mics_bytes){0, 0};
    for (int32_t rank = 0; rank < context->rank->comm->ranks; rank++) {
        if (rank > 0 && met_out->intra + met_out->inter == 0)
            break; // no unit met
        const meetings met = meetings_of(self, at, rank);
        add_bytes(met_out, 1, met.step);
        add_bytes(met_out, 1, met.completed);
    }
    add_bytes(&sum, 1, *met_out);
    add_bytes(&sum, (at->result.completes ? 0 : -1) + done->updates,
              left_over(context, kind_sent_by_all));
    add_bytes(&sum, done->count, each_completion(context, kind_sent_by_all));
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
// update is due as the parameter sync that it is; of several islands as theirs.
static void fill_exposed(const run_step *at, const mics_schedule *schedule, mics_metrics *metrics)
{
    const run_exposed exposed = run_exposed_sum(at->result.exposed_us);
    const bool several = schedule->spec.mesh.islands > 1;
    const bool defers = !several && mics_schedule_defers(schedule);
    metrics->exposed_comm_ms = (at->result.exposed_comm_us + at->complete_us) / 1e3;
    metrics->exposed_gather_ms = (exposed.gather + (defers || several ? 0 : at->complete_us)) / 1e3;
    metrics->exposed_reduce_ms = exposed.reduce / 1e3;
    metrics->exposed_second_hop_ms = (exposed.second_hop + (defers ? at->complete_us : 0)) / 1e3;
    metrics->exposed_agree_ms = exposed.agree / 1e3;
    metrics->exposed_copy_ms = exposed.copy / 1e3;
    metrics->islands.exposed_meeting_ms = (exposed.meeting + (several ? at->complete_us : 0)) / 1e3;
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

// Completes a row and writes it.
static void write_row(const run_context *context, const mics_world_result *world,
                      mics_metrics *metrics)
{
    const mics_job *job = context->job;
    metrics->loss = world->loss;
    metrics->grad_norm = world->grad_norm;
    metrics->memory_peak_bytes = world->memory_peak_bytes;
    metrics->islands.updated = world->updated;
    fill_router(world->router_sums, &metrics->router);
    run_metrics_fill_pairs(job->run, world->preference_sums, (double)world->counted,
                           &metrics->preference);
    run_reports_step(context->reports, metrics);
    if (job->callbacks.step != NULL)
        job->callbacks.step(job->callbacks.ctx, metrics);
    if (metrics->islands.updated < metrics->islands.islands)
        run_job_note(job,
                     "step %lld is left out in %d of %d islands: no token counts, or its loss "
                     "is a spike",
                     (long long)metrics->step, (int)(metrics->islands.islands - world->updated),
                     (int)metrics->islands.islands);
}

static void note_left_out(const run_context *context, const run_step *at)
{
    const mics_job *job = context->job;
    if (at->result.skipped)
        run_job_note(job, "step %lld is left out: gradients overflowed fp16 at loss scale %g",
                     (long long)at->number, at->result.loss_scale);
    if (at->result.verdict == MICS_VERDICT_EMPTY)
        run_job_note(job, "step %lld is left out: no token of its batch counts",
                     (long long)at->number);
}

// The row of the step before, as soon as its numbers are those of all islands.
static void write_waiting(run_metrics *self)
{
    const mics_world_result *world = mics_engine_world(self->context->engine);
    if (!self->waits || world->step != self->row.step)
        return;
    write_row(self->context, world, &self->row);
    self->waits = false;
}

// But for what all islands know alone.
static mics_metrics row_of(const run_metrics *self, const run_step *at)
{
    const run_context *context = self->context;
    const mics_job *job = context->job;
    const mics_run *run = job->run;
    const int64_t tokens = run->global_batch * mics_run_sequences_each(run) * run_job_sequence(job);
    mics_bytes met;
    const mics_bytes sent = sent_by_all(self, at, &met);
    mics_metrics metrics = {
        .step = at->number,
        .steps = run->steps,
        .phase = run->phase_count > 0 ? run->phase + 1 : 0,
        .lr = at->lr,
        .tokens = run_job_position(job, at->number).tokens,
        .tokens_per_s = (double)tokens * 1e6 / at->taken_us,
        .step_ms = at->taken_us / 1e3,
        .mfu = utilisation(context, (double)tokens * 1e6 / at->taken_us),
        .sent_intra_bytes = sent.intra,
        .sent_inter_bytes = sent.inter,
        .save_ms = (at->save_us + at->copy_us) / 1e3,
        .slowest_rank = self->slowest.rank,
        .slowest_wait_ms = self->slowest.part * self->slowest.step_ms,
    };
    if (run_job_islands(job) > 1)
        metrics.islands = (mics_island_metrics){.islands = run_job_islands(job),
                                                .meeting_intra_bytes = met.intra,
                                                .meeting_inter_bytes = met.inter};
    fill_exposed(at, job->schedule, &metrics);
    return metrics;
}

// One island knows all of its step, and several do where it is completed.
static void report(run_metrics *self, const run_step *at)
{
    self->row = row_of(self, at);
    self->waits = true;
    write_waiting(self);
    if (run_job_islands(self->context->job) == 1)
        note_left_out(self->context, at);
}

// The rank that is waited for says it, as it alone knows its host.
static void follow_slowest(run_metrics *self, const run_step *at)
{
    const run_context *context = self->context;
    run_slowest *slowest = &self->slowest;
    const int32_t ranks = context->job->schedule->spec.mesh.ranks;
    const int32_t rank = context->rank->comm->rank;
    char host[MICS_HOST_BYTES] = "";
    run_slowest_add(slowest, mics_engine_agreements(context->engine), ranks, at->taken_us);
    if (!run_slowest_tells(slowest, rank % ranks, context->job->run->straggler_warn))
        return;
    (void)gethostname(host, sizeof host - 1);
    mics_log(
        MICS_LOG_WARNING,
        "step %lld: the others wait %.0f ms a step (%.0f %%, mean of %d) for rank %d on %s; "
        "look there for %sother processes (top), a slow disk or network; run.trace_step shows what "
        "it does (run.straggler_warn %g)",
        (long long)at->number, slowest->part * slowest->step_ms, 100 * slowest->part,
        RUN_SLOWEST_STEPS, (int)rank, host,
        context->job->run->device == MICS_RUN_DEVICE_CUDA
            ? "clocks and heat (nvidia-smi -q -d PERFORMANCE), "
            : "",
        context->job->run->straggler_warn);
}

// ---- the follower ----

static size_t bytes_of_metrics(const mics_job *job)
{
    return (size_t)job->schedule->spec.mesh.ranks * sizeof(double);
}

// Rank 0 keeps what the reports hold of steps up to the first.
static mics_status open_metrics(void *state, const run_context *context, void *memory)
{
    run_metrics *self = state;
    self->context = context;
    self->slowest = (run_slowest){.rank = -1, .waits = memory};
    memset(memory, 0, bytes_of_metrics(context->job));
    return run_is_rank_0(context) ? run_reports_open(context->rank->memory, context->job->run,
                                                     context->progress->step, context->reports)
                                  : MICS_OK;
}

static void before_step(void *state)
{
    run_metrics *self = state;
    const mics_outer_state outer = mics_engine_outer_state(self->context->engine);
    self->met = outer.met != NULL ? *outer.met : 0;
}

// Also where the step is held or fails, and the run ends with the one before.
static mics_status end_step(void *state, const run_step *step, mics_status status)
{
    (void)step;
    write_waiting(state);
    return status;
}

static mics_status after_step(void *state, run_step *step)
{
    run_metrics *self = state;
    const run_context *context = self->context;
    const double begin_us = mics_clock_us();
    if (step->begins)
        return MICS_OK;
    MICS_TRY(check_sent(self, step));
    follow_slowest(self, step);
    if (run_reports_opened(context->reports))
        report(self, step);
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
                                           .bytes = bytes_of_metrics,
                                           .open = open_metrics,
                                           .before_step = before_step,
                                           .end_step = end_step,
                                           .after_step = after_step,
                                           .rewind = rewind_metrics,
                                           .close = close_metrics};
