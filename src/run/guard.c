// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Steps under guard. A step is suspicious if its loss or norm is not finite, if its loss is no
// cross-entropy, or a spike that must not train, or if replicas updated the step before with
// different gradients. The engine updates with none of its own gradients then, so there are three
// questions, in this order:
//   1. Do replicas hold the same? If not, that explains every number (rewind.c).
//   2. Does the step give the same numbers again (run.recheck)? If not, a machine is bad.
//   3. Else it is the data or the hyperparameters: the run ends, or goes on without the step.
#include "guard.h"
#include "mics/log.h"
#include "trainer.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

// Below so many losses a deviation says little.
enum { LEAST_LOSSES = 20, TEXT_BYTES = 1024 };

mics_status run_guard_open(run_trainer *self)
{
    run_guard *guard = &self->guard;
    *guard = (run_guard){.recent = guard->recent,
                         .scaler = mics_engine_scaler(self->engine),
                         .agreed_step = self->step,
                         .diverged_step = -1,
                         .rewound_step = -1};
    if (!self->job->run->recheck)
        return MICS_OK;
    return MICS_NEW(self->rank->memory, self->rank->comm->ranks, &guard->first);
}

void run_guard_close(run_trainer *self)
{
    mics_free(self->rank->memory, self->guard.first);
    self->guard.first = NULL;
}

static bool speaks(const run_trainer *self)
{
    return self->rank->comm->rank == 0;
}

// ---- spikes ----

typedef struct window {
    double mean, deviation;
} window;

// From the oldest on, so that a run which resumes sums in the same order.
static window window_of(const mics_checkpoint_losses *recent)
{
    double sum = 0, squares = 0;
    for (int32_t i = 0; i < recent->count; i++)
        sum += recent->list[i];
    const double mean = recent->count > 0 ? sum / recent->count : 0;
    for (int32_t i = 0; i < recent->count; i++)
        squares += (recent->list[i] - mean) * (recent->list[i] - mean);
    return (window){mean, recent->count > 0 ? sqrt(squares / recent->count) : 0};
}

static void add_loss(mics_checkpoint_losses *recent, double loss)
{
    if (recent->count == MICS_CHECKPOINT_LOSSES)
        memmove(recent->list, recent->list + 1, (size_t)--recent->count * sizeof *recent->list);
    recent->list[recent->count++] = loss;
}

// The loss from where on a step is a spike; infinity: none is.
static double spike_loss(const run_trainer *self)
{
    const double zscore = self->job->run->spike_zscore;
    const window recent = window_of(&self->guard.recent);
    if (zscore <= 0 || self->guard.recent.count < LEAST_LOSSES || recent.deviation <= 0)
        return INFINITY;
    return recent.mean + zscore * recent.deviation;
}

static void say_spike(const run_trainer *self, int64_t step, const char *then)
{
    const window recent = window_of(&self->guard.recent);
    if (speaks(self))
        mics_log(MICS_LOG_WARNING,
                 "step %lld: loss %g is %.1f standard deviations above the mean of the steps "
                 "before, %g (run.spike_zscore %g)%s",
                 (long long)step, self->newest.loss,
                 (self->newest.loss - recent.mean) / recent.deviation, recent.mean,
                 self->job->run->spike_zscore, then);
}

// ---- one attempt ----

// A step, and what it is held to.
typedef struct attempt {
    run_trainer *self;
    int64_t step;
    float lr;
    const mics_batch_source *source;
    double spike;           // loss from where on it is one
    char again[TEXT_BYTES]; // what running it again showed; "": it was not
} attempt;

static bool on_spike(const attempt *a, const char *what)
{
    return strcmp(a->self->job->run->on_spike, what) == 0;
}

// *status_out: MICS_OK; MICS_ERR_NUMERIC by the step's verdict.    Returns: any other failure.
static mics_status run(const attempt *a, double max_loss, mics_status *status_out)
{
    run_trainer *self = a->self;
    const uint32_t told = self->newest.told;
    mics_engine_set_limits(self->engine, &(mics_step_limits){.max_loss = max_loss, .silent = true});
    run_saving_enter_step(self);
    const mics_status status =
        mics_engine_step(self->engine, a->step, a->lr, a->source, &self->newest);
    self->newest.told |= told;
    *status_out = status;
    return run_saving_leave_step(self, status == MICS_ERR_NUMERIC ? MICS_OK : status);
}

static bool is_held(const run_trainer *self)
{
    return self->newest.verdict == MICS_VERDICT_HELD;
}

static mics_status accept(const attempt *a)
{
    run_trainer *self = a->self;
    const bool spike = self->newest.loss > a->spike;
    if (spike && self->newest.verdict == MICS_VERDICT_SPIKE)
        say_spike(self, a->step, "; the step is left out");
    else if (spike)
        say_spike(self, a->step, "");
    if (self->newest.verdict != MICS_VERDICT_SPIKE && isfinite(self->newest.loss))
        add_loss(&self->guard.recent, self->newest.loss);
    self->step = a->step;
    return MICS_OK;
}

// The step is not to be trained, and nobody knows a machine that is to blame.
static mics_status give_up(const attempt *a)
{
    run_trainer *self = a->self;
    char what[TEXT_BYTES], where[TEXT_BYTES] = "";
    mics_engine_explain(self->engine, what, sizeof what);
    if (self->newest.verdict == MICS_VERDICT_SPIKE)
        say_spike(self, a->step, "");
    MICS_TRY(run_guard_save_aside(self, a->step - 1, where, sizeof where));
    if (!speaks(self))
        return MICS_ERR_NUMERIC;
    return mics_fail(MICS_ERR_NUMERIC, "%s%s%s%s%s", what,
                     self->newest.verdict == MICS_VERDICT_SPIKE ? " (run.on_spike is \"stop\")"
                                                                : "",
                     a->again, where[0] != '\0' ? "; " : "", where);
}

static mics_status conclude(const attempt *a, mics_status status)
{
    const bool spike = a->self->newest.verdict == MICS_VERDICT_SPIKE;
    return status == MICS_OK && !(spike && on_spike(a, "stop")) ? accept(a) : give_up(a);
}

// ---- a second attempt ----

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static bool same_bits(double a, double b)
{
    return bits_of(a) == bits_of(b);
}

// Names the ranks whose own losses differ from what they were, or else whose gradients do, which
// hold other ranks' too.
static mics_status name_changed(attempt *a, bool by_loss)
{
    run_trainer *self = a->self;
    const mics_agreement *first = self->guard.first, *second = mics_engine_agreements(self->engine);
    const int32_t ranks = self->rank->comm->ranks;
    char(*hosts)[MICS_HOST_BYTES] = NULL;
    size_t used = (size_t)snprintf(a->again, sizeof a->again,
                                   "; run again, it gives other numbers, so not the data but a "
                                   "machine is to blame; other %s are those of",
                                   by_loss ? "losses" : "sums of gradients");
    MICS_TRY(MICS_NEW(self->rank->memory, ranks, &hosts));
    const mics_status status = mics_engine_hosts(self->engine, hosts);
    for (int32_t rank = 0; rank < ranks && status == MICS_OK; rank++) {
        const bool same = by_loss ? same_bits(first[rank].loss, second[rank].loss)
                                  : same_bits(first[rank].sum_squares, second[rank].sum_squares);
        if (!same && used < sizeof a->again)
            used += (size_t)snprintf(a->again + used, sizeof a->again - used, " rank %d (%s)",
                                     (int)rank, hosts[rank]);
    }
    mics_free(self->rank->memory, hosts);
    return status;
}

static mics_status compare_attempts(attempt *a)
{
    const run_trainer *self = a->self;
    const mics_agreement *first = self->guard.first, *second = mics_engine_agreements(self->engine);
    bool same_losses = true, same_sums = true;
    for (int32_t rank = 0; rank < self->rank->comm->ranks; rank++) {
        same_losses = same_losses && same_bits(first[rank].loss, second[rank].loss);
        same_sums = same_sums && same_bits(first[rank].sum_squares, second[rank].sum_squares);
    }
    if (!same_losses || !same_sums)
        return name_changed(a, !same_losses);
    snprintf(a->again, sizeof a->again,
             "; run again, it gives the same numbers, so no machine is to blame but data or "
             "hyperparameters");
    return MICS_OK;
}

// What int8 lost of gradients has changed in between, so no second attempt can give the same bits.
static bool repeats(const run_trainer *self)
{
    return self->job->schedule->residual_elems == 0;
}

static mics_status recheck(attempt *a)
{
    run_trainer *self = a->self;
    char what[TEXT_BYTES];
    mics_engine_explain(self->engine, what, sizeof what);
    memcpy(self->guard.first, mics_engine_agreements(self->engine),
           (size_t)self->rank->comm->ranks * sizeof *self->guard.first);
    mics_status status = MICS_OK;
    MICS_TRY(run(a, on_spike(a, "warn") ? INFINITY : a->spike, &status));
    if (is_held(self))
        return MICS_OK;
    MICS_TRY(compare_attempts(a));
    if (status == MICS_OK && speaks(self))
        mics_log(MICS_LOG_WARNING, "%s%s", what, a->again);
    return conclude(a, status);
}

// ---- doubts ----

// Replicas hold the same, although they updated with different gradients. What was lost is lost
// alike, so the step is run again; nothing is left to update then.
static mics_status run_again(const attempt *a)
{
    run_trainer *self = a->self;
    const mics_divergence found = mics_engine_compare_grads(self->engine);
    char what[TEXT_BYTES];
    if (!repeats(self) || strcmp(self->job->run->on_divergence, "stop") == 0)
        return run_guard_diverged(self, a->step - 1, &found);
    if (speaks(self))
        mics_log(MICS_LOG_WARNING, "%s; parameters are as after the step before; it is run again",
                 mics_engine_explain(self->engine, what, sizeof what));
    return MICS_OK; // self->step is that of the step before
}

static mics_status doubt(attempt *a, mics_status status)
{
    run_trainer *self = a->self;
    mics_divergence found;
    MICS_TRY(mics_engine_compare(self->engine, &found));
    if (found.found)
        return run_guard_diverged(self, a->step - 1, &found);
    if (self->newest.verdict == MICS_VERDICT_DIVERGED)
        return run_again(a);
    if (self->job->run->recheck && repeats(self))
        return recheck(a);
    if (self->job->run->recheck)
        snprintf(a->again, sizeof a->again,
                 "; it cannot be run again, as int8 (run.comm_dtype) keeps what it lost");
    return conclude(a, status);
}

mics_status run_guard_step(run_trainer *self, int64_t step, float lr,
                           const mics_batch_source *source)
{
    attempt a = {.self = self, .step = step, .lr = lr, .source = source, .spike = spike_loss(self)};
    const bool trains_spikes = on_spike(&a, "warn") && !self->job->run->recheck;
    self->newest.told = 0;
    mics_status status = MICS_OK;
    MICS_TRY(run(&a, trains_spikes ? INFINITY : a.spike, &status));
    if (is_held(self))
        return MICS_OK;
    const bool good = self->newest.verdict == MICS_VERDICT_UPDATED ||
                      self->newest.verdict == MICS_VERDICT_OVERFLOW ||
                      self->newest.verdict == MICS_VERDICT_EMPTY;
    return status == MICS_OK && good ? accept(&a) : doubt(&a, status);
}

// ---- between steps ----

mics_status run_guard_check(run_trainer *self, int64_t step, bool saves)
{
    const int64_t every = self->job->run->check_replicas_every;
    run_guard *guard = &self->guard;
    mics_divergence found;
    if (!saves && (every == 0 || step % every != 0))
        return MICS_OK;
    MICS_TRY(mics_engine_compare(self->engine, &found));
    if (found.found)
        return run_guard_diverged(self, step, &found);
    guard->agreed_step = step;
    if (step >= guard->diverged_step)
        guard->tries = 0;
    return MICS_OK;
}
