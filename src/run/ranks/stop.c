// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Stopping a run before its end.
#include "stop.h"
#include "base/clock.h"
#include "mics/log.h"
#include "run/job.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const double look_every_us = 0.3e6;

void run_stop_ask(run_stop *stop, run_stop_reason reason)
{
    int none = RUN_STOP_NONE;
    if (run_stop_is_asked(stop))
        return;
    atomic_store(&stop->asked_us, mics_clock_us());
    atomic_compare_exchange_strong(&stop->reason, &none, (int)reason);
}

bool run_stop_is_asked(const run_stop *stop)
{
    return atomic_load(&stop->reason) != RUN_STOP_NONE;
}

void run_stop_writes(run_stop *stop, bool begins)
{
    atomic_fetch_add(&stop->writing, begins ? 1 : -1);
}

// The save must end before the limit, and so must a step on the way to it.
static bool is_out_of_time(const mics_job *job)
{
    const run_stop *stop = &job->stop;
    const double limit_s = job->run->max_hours * 3600,
                 needed_s = 1.5 * atomic_load(&stop->save_s) + atomic_load(&stop->step_s);
    return limit_s > 0 && (mics_clock_us() - stop->opened_us) / 1e6 + needed_s >= limit_s;
}

// The file is removed when it is seen: the next start is to go on.
static bool takes_file(const mics_job *job)
{
    char path[RUN_PATH_BYTES];
    snprintf(path, sizeof path, "%s/stop", job->run->out);
    struct stat found;
    if (lstat(path, &found) != 0) // also a link to nowhere
        return false;
    if (unlink(path) != 0)
        mics_log(MICS_LOG_WARNING, "%s: cannot be removed, and would stop the next start too: %s",
                 path, strerror(errno));
    return true;
}

void run_stop_look(mics_job *job, double *looked_us)
{
    const double now_us = mics_clock_us();
    if (run_stop_is_asked(&job->stop) || now_us - *looked_us < look_every_us)
        return;
    *looked_us = now_us;
    if (is_out_of_time(job))
        run_stop_ask(&job->stop, RUN_STOP_HOURS);
    else if (takes_file(job))
        run_stop_ask(&job->stop, RUN_STOP_FILE);
}

void mics_job_stop(mics_job *job)
{
    run_stop_ask(&job->stop, RUN_STOP_PROGRAM);
}

mics_job_standing mics_job_standing_get(const mics_job *job)
{
    const run_stop *stop = &job->stop;
    const int64_t saved = atomic_load(&job->standing.saved),
                  kept = atomic_load(&job->standing.kept);
    return (mics_job_standing){
        .rank = job->world->mpi ? job->world->first : -1,
        .step = atomic_load(&job->standing.step),
        .saved = saved != RUN_NO_STEP,
        .saved_step = saved != RUN_NO_STEP ? saved : 0,
        .kept = kept != RUN_NO_STEP,
        .kept_step = kept != RUN_NO_STEP ? kept : 0,
        .writing = atomic_load(&stop->writing) > 0,
        .save_s = atomic_load(&stop->save_s),
        .asked_by_run = atomic_load(&stop->reason) == RUN_STOP_FILE    ? "the file stop"
                        : atomic_load(&stop->reason) == RUN_STOP_HOURS ? "run.max_hours"
                                                                       : NULL,
    };
}
