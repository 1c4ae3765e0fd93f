// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The state before a step that could not be trained, saved where no checkpoint is looked for.
#include "guard.h"
#include "mics/log.h"
#include "trainer.h"
#include <stdio.h>

static bool all_finite(const float *values, int64_t count)
{
    // 0 times what is not finite is not a number, and stays one in a sum.
    float sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += values[i] * 0;
    return sum == 0;
}

// Of what this rank owns, as run_share_fill has found it.
static bool is_finite(const run_trainer *self)
{
    bool finite = true;
    for (int32_t unit = 0; unit < self->job->model->unit_count; unit++) {
        const mics_optimizer_shard *shard = &self->shards[unit];
        for (int32_t state = 0; state < shard->state_count; state++)
            finite = finite && all_finite(shard->states[state].data, shard->end - shard->begin);
    }
    return finite;
}

static mics_status agree_to_save(void *ctx, mics_status mine)
{
    return mics_engine_agree(ctx, mine);
}

static mics_status save_in(run_trainer *self, const char *dir, int64_t step)
{
    const mics_job *job = self->job;
    const int32_t rank = self->rank->comm->rank, writers = job->run->sharding.optimizer;
    const mics_checkpoint_writer writer = {
        .dir = dir,
        .rank = rank,
        .writers = writers,
        .agree = agree_to_save,
        .agree_ctx = self->engine,
    };
    const mics_checkpoint_meta meta = run_share_meta(self, step);
    return mics_checkpoint_save(self->rank->memory, &writer, &meta, self->shards,
                                rank < writers ? job->model->unit_count : 0);
}

// What a rank finds not finite, all hear of.
static mics_status save_if_finite(run_trainer *self, const char *dir, int64_t step)
{
    mics_status status = mics_engine_download(self->engine);
    if (status == MICS_OK)
        run_share_fill(self, 0, 1, self->shards);
    if (status == MICS_OK && !is_finite(self))
        status = MICS_ERR_NUMERIC;
    MICS_TRY(mics_engine_agree(self->engine, status));
    return save_in(self, dir, step);
}

static void save_waiting(run_trainer *self, int64_t step, char *text, size_t capacity)
{
    char dir[RUN_PATH_BYTES];
    snprintf(dir, sizeof dir, "%s/aside", self->job->run->out);
    const bool before = mics_log_demote(true);
    const mics_status status = save_if_finite(self, dir, step);
    mics_log_demote(before);
    mics_engine_release(self->engine);
    if (status == MICS_OK)
        snprintf(text, capacity,
                 "the state of step %lld is saved: --resume %s/step-%08lld goes on from it",
                 (long long)step, dir, (long long)step);
    else
        snprintf(text, capacity, "the state of step %lld is not saved%s", (long long)step,
                 status == MICS_ERR_NUMERIC ? ", as it is not finite itself" : "");
}

mics_status run_guard_save_aside(run_trainer *self, int64_t step, char *text, size_t capacity)
{
    mics_divergence found;
    text[0] = '\0';
    run_guard_source newest;
    if (run_guard_newest_saved(self, 0, &newest) && newest.step == step && newest.path[0] != '\0') {
        snprintf(text, capacity, "the state of step %lld is in %s", (long long)step, newest.path);
        return MICS_OK;
    }
    MICS_TRY(mics_engine_compare(self->engine, &found));
    if (found.found) {
        snprintf(text, capacity, "the state of step %lld is not saved, as replicas differ",
                 (long long)step);
        return MICS_OK;
    }
    MICS_TRY(mics_comm_set_timeout(self->rank->comm, run_job_files_timeout_s(self->job)));
    save_waiting(self, step, text, capacity);
    return mics_comm_set_timeout(self->rank->comm, self->job->run->comm_timeout_s);
}
