// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The newest checkpoint that is good, as far as manifest and headers tell; newest.h says the rest.
#include "newest.h"
#include "mics/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool run_newest_is_damage(mics_status status)
{
    return status == MICS_ERR_FORMAT || status == MICS_ERR_NUMERIC;
}

int64_t run_newest_step(const char *path)
{
    const char *name = path != NULL ? strrchr(path, '-') : NULL;
    return name != NULL ? strtoll(name + 1, NULL, 10) : -1;
}

// ---- agreement ----

void run_newest_say(mics_status mine, int32_t me, int32_t members, int64_t step,
                    int64_t *values_out)
{
    values_out[RUN_SAYS_DAMAGED] =
        run_newest_is_damage(mine) ? members - me : 0; // the lowest one's is largest
    values_out[RUN_SAYS_FAILED] = mine != MICS_OK && !run_newest_is_damage(mine);
    values_out[RUN_SAYS_STEP] = step;
    values_out[RUN_SAYS_MINUS_STEP] = -step;
}

run_outcome run_newest_outcome(const int64_t *values)
{
    if (values[RUN_SAYS_FAILED] > 0)
        return RUN_FAILED;
    return values[RUN_SAYS_DAMAGED] > 0 ? RUN_DAMAGED : RUN_GOOD;
}

mics_status run_newest_check_step(const mics_job *job, const int64_t *values)
{
    const int64_t newest = values[RUN_SAYS_STEP], oldest = -values[RUN_SAYS_MINUS_STEP];
    if (newest == oldest)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: some ranks find step %lld there to resume from, others step %lld; all "
                     "nodes must share that folder (start again if they do)",
                     job->checkpoints_dir, (long long)newest, (long long)oldest);
}

// ---- the candidates ----

mics_status run_newest_open_next(mics_job *job)
{
    char *path = NULL;
    mics_checkpoint *checkpoint = NULL;
    if (job->passed_count == 0)
        MICS_TRY(job->newest_path != NULL ? mics_strdup(job->memory, job->newest_path, &path)
                                          : MICS_OK);
    else
        MICS_TRY(mics_checkpoint_other(job->memory, job->checkpoints_dir, job->passed,
                                       job->passed_count, &path));
    if (path == NULL && job->passed_count > 0)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: none of its checkpoints can be resumed from, as the warnings say; "
                         "restore one, or begin anew in another folder",
                         job->checkpoints_dir);
    mics_checkpoint_close(job->checkpoint);
    mics_free(job->memory, job->checkpoint_path);
    job->checkpoint = NULL;
    job->checkpoint_path = path;
    if (path == NULL)
        return MICS_OK;
    MICS_TRY(mics_checkpoint_open(job->memory, path, &checkpoint));
    job->checkpoint = checkpoint;
    return MICS_OK;
}

mics_status run_newest_pass_over(mics_job *job, const char *why)
{
    void *steps = job->passed, *whys = job->passed_why;
    const size_t count = (size_t)job->passed_count;
    MICS_TRY(mics_realloc(job->memory, MICS_MEM_HOST, (count + 1) * sizeof *job->passed, &steps));
    job->passed = steps;
    MICS_TRY(
        mics_realloc(job->memory, MICS_MEM_HOST, (count + 1) * sizeof *job->passed_why, &whys));
    job->passed_why = whys;
    MICS_TRY(mics_strdup(job->memory, why, &job->passed_why[count]));
    job->passed[count] = run_newest_step(job->checkpoint_path);
    job->passed_count++;
    if (job->world->first == 0)
        mics_log(MICS_LOG_WARNING,
                 "%s; step %lld is passed over, and the next older checkpoint is tried", why,
                 (long long)job->passed[count]);
    return MICS_OK;
}

void run_newest_say_instead(const mics_job *job)
{
    if (job->passed_count > 0)
        mics_log(MICS_LOG_WARNING, "resumes from %s instead of step %lld", job->checkpoint_path,
                 (long long)job->passed[0]);
}

// ---- setup: one member a process ----

static mics_status settle_processes(mics_job *job, mics_status mine, run_outcome *outcome_out,
                                    char *why_out)
{
    run_world *world = job->world;
    int64_t values[RUN_SAYS];
    run_newest_say(mine, world->first, world->ranks, run_newest_step(job->checkpoint_path), values);
    MICS_TRY(run_world_max(world, values, RUN_SAYS));
    *outcome_out = run_newest_outcome(values);
    if (*outcome_out == RUN_FAILED)
        return MICS_OK;
    MICS_TRY(run_newest_check_step(job, values));
    if (*outcome_out == RUN_GOOD)
        return MICS_OK;
    (void)mics_log_take(why_out, RUN_WHY_BYTES);
    return world->mpi ? mics_comm_broadcast(world->here[0].rank.comm,
                                            (int32_t)(world->ranks - values[RUN_SAYS_DAMAGED]),
                                            why_out, RUN_WHY_BYTES)
                      : MICS_OK;
}

static mics_status open_at(mics_job *job, const char *path)
{
    MICS_TRY(mics_strdup(job->memory, path, &job->checkpoint_path));
    return mics_checkpoint_open(job->memory, path, &job->checkpoint);
}

mics_status run_job_open_newest(mics_job *job)
{
    run_outcome found = RUN_GOOD;
    char why[RUN_WHY_BYTES] = "";
    mics_status mine = MICS_OK;
    MICS_TRY(run_world_agree(
        job->world, mics_checkpoint_latest(job->memory, job->checkpoints_dir, &job->newest_path)));
    if (run_node_memory_wins(job, job->newest_path)) // what is damaged there was left out already
        return open_at(job, run_node_memory_path(job));
    job->resumes_newest = true;
    do {
        mine = found == RUN_DAMAGED ? run_newest_pass_over(job, why) : MICS_OK;
        if (mine == MICS_OK)
            mine = run_newest_open_next(job);
        MICS_TRY(settle_processes(job, mine, &found, why));
    } while (found == RUN_DAMAGED);
    if (found == RUN_GOOD && job->world->first == 0)
        run_newest_say_instead(job);
    return mine;
}
