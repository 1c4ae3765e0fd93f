// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What was due behind the step that a run goes on from, and that it left out when it was stopped or
// killed. Its reports tell. Where they cannot be read nothing counts as left out.
#include "base/file.h"
#include "mics/log.h"
#include "mics/report.h"
#include "run/job.h"

// The largest step of OUT/name's lines with `key`; -1: none has. False: there is no such file.
static bool newest_of(const mics_job *job, const char *name, const char *key, int64_t *step_out)
{
    char *path = NULL;
    const bool muted = mics_log_mute(true);
    mics_status status = mics_file_join(job->memory, job->run->out, name, &path);
    if (status == MICS_OK)
        status = mics_metrics_newest(job->memory, path, key, step_out);
    mics_log_mute(muted);
    mics_free(job->memory, path);
    return status == MICS_OK;
}

bool run_left_out_validation(const mics_job *job)
{
    int64_t newest = -1;
    return job->run->validation_batches > 0 &&
           newest_of(job, "metrics.jsonl", "validation_loss", &newest) && newest < job->start_step;
}

bool run_left_out_text(const mics_job *job, int64_t step)
{
    const int64_t every = job->run->sample_every;
    int64_t newest = -1;
    if (every == 0 || step == 0 || step % every != 0 || job->tokenizer == NULL ||
        !newest_of(job, "samples.jsonl", "text", &newest))
        return false;
    return newest < step;
}

// A text that cannot be drawn is tried once more with each start, but no finished run is opened for
// one that was never drawn.
static bool lacks_last_text(const mics_job *job)
{
    const int64_t step = job->start_step;
    int64_t newest = -1;
    return job->resumes_newest && run_left_out_text(job, step) &&
           newest_of(job, "samples.jsonl", "text", &newest) && newest > 0 &&
           newest == step - job->run->sample_every;
}

mics_status run_job_settle_finished(mics_job *job)
{
    int64_t lacks = job->finished && job->world->first == 0 &&
                    (run_left_out_validation(job) || lacks_last_text(job));
    MICS_TRY(run_world_max(job->world, &lacks, 1));
    job->finished = job->finished && lacks == 0;
    return MICS_OK;
}
