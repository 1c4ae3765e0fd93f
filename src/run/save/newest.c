// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The newest state that is good, as far as manifest and headers tell; newest.h says the rest.
#include "newest.h"
#include "mics/log.h"
#include "tier.h"

bool run_newest_is_damage(const mics_job *job, mics_status status)
{
    return status == MICS_ERR_FORMAT || status == MICS_ERR_NUMERIC ||
           (mics_status_is_io(status) && job->node.taken); // then there is still the disk
}

int64_t run_newest_step(const mics_job *job)
{
    return job->node.taken ? run_node_memory_step(job) : run_step_of(job->checkpoint_path);
}

// ---- agreement ----

void run_newest_send(const mics_job *job, mics_status mine, int32_t me, int32_t members,
                     bool says_step, int64_t *values_out)
{
    const bool damaged = mine != MICS_OK && run_newest_is_damage(job, mine);
    values_out[RUN_SAYS_DAMAGED] = damaged ? members - me : 0; // the lowest one's is largest
    values_out[RUN_SAYS_FAILED] = mine != MICS_OK && !damaged;
    values_out[RUN_SAYS_STEP] = says_step ? run_newest_step(job) : INT64_MIN;
    values_out[RUN_SAYS_MINUS_STEP] = says_step ? -run_newest_step(job) : INT64_MIN;
}

static run_outcome outcome_of(const int64_t *values)
{
    if (values[RUN_SAYS_FAILED] > 0)
        return RUN_FAILED;
    return values[RUN_SAYS_DAMAGED] > 0 ? RUN_DAMAGED : RUN_GOOD;
}

static mics_status check_step(const mics_job *job, const int64_t *values)
{
    const int64_t newest = values[RUN_SAYS_STEP], oldest = -values[RUN_SAYS_MINUS_STEP];
    if (newest == oldest)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: some ranks find step %lld there to resume from, others step %lld; all "
                     "nodes must share that folder (start again if they do)",
                     job->checkpoints_dir, (long long)newest, (long long)oldest);
}

mics_status run_newest_recv(const mics_job *job, const int64_t *values, mics_comm *comm,
                            run_outcome *outcome_out, char *why_out)
{
    *outcome_out = outcome_of(values);
    if (*outcome_out == RUN_FAILED)
        return MICS_OK;
    MICS_TRY(check_step(job, values));
    if (*outcome_out == RUN_GOOD)
        return MICS_OK;
    (void)mics_log_take(why_out, RUN_WHY_BYTES);
    return comm != NULL
               ? mics_comm_broadcast(comm, (int32_t)(comm->ranks - values[RUN_SAYS_DAMAGED]),
                                     why_out, RUN_WHY_BYTES)
               : MICS_OK;
}

// ---- the candidates ----

// Of two tiers with the same step the later one is taken: nothing need be read from disk then.
static mics_status find_next(const mics_job *job, const run_tier **tier_out, char **path_out)
{
    enum { TIERS = 2 };
    static const run_tier *const tiers[TIERS] = {&run_disk_tier, &run_memory_tier};
    int64_t newest = -1;
    for (int i = 0; i < TIERS; i++) {
        int64_t step = -1;
        char *path = NULL;
        const mics_status status = tiers[i]->find(job, &step, &path);
        if (status == MICS_OK && (path == NULL || step < newest)) {
            mics_free(job->memory, path);
            continue;
        }
        mics_free(job->memory, *path_out);
        *path_out = path;
        MICS_TRY(status);
        *tier_out = tiers[i];
        newest = step;
    }
    return MICS_OK;
}

static bool has_passed(const mics_job *job)
{
    return job->passed_count > 0 || job->node.passed;
}

mics_status run_newest_open_next(mics_job *job)
{
    char *path = NULL;
    const run_tier *tier = NULL;
    mics_checkpoint *checkpoint = NULL;
    MICS_TRY(find_next(job, &tier, &path));
    if (path == NULL && has_passed(job))
        return mics_fail(MICS_ERR_INVALID,
                         "%s: none of its checkpoints can be resumed from, as the warnings say; "
                         "restore one, or begin anew in another folder",
                         job->checkpoints_dir);
    mics_checkpoint_close(job->checkpoint);
    mics_free(job->memory, job->checkpoint_path);
    job->checkpoint = NULL;
    job->checkpoint_path = path;
    run_node_memory_take(job, tier == &run_memory_tier);
    if (path == NULL)
        return MICS_OK;
    MICS_TRY(mics_checkpoint_open(job->memory, path, &checkpoint));
    job->checkpoint = checkpoint;
    return MICS_OK;
}

static mics_status note_passed(mics_job *job, const char *why)
{
    void *steps = job->passed, *whys = job->passed_why;
    const size_t count = (size_t)job->passed_count;
    MICS_TRY(mics_realloc(job->memory, MICS_MEM_HOST, (count + 1) * sizeof *job->passed, &steps));
    job->passed = steps;
    MICS_TRY(
        mics_realloc(job->memory, MICS_MEM_HOST, (count + 1) * sizeof *job->passed_why, &whys));
    job->passed_why = whys;
    MICS_TRY(mics_strdup(job->memory, why, &job->passed_why[count]));
    job->passed[count] = run_newest_step(job);
    job->passed_count++;
    return MICS_OK;
}

mics_status run_newest_pass_over(mics_job *job, const char *why)
{
    const int64_t step = run_newest_step(job);
    if (!has_passed(job))
        job->passed_first = step;
    if (job->world->first == 0)
        mics_log(MICS_LOG_WARNING, "%s; step %lld%s is passed over, and the next older %s is tried",
                 why, (long long)step, job->node.taken ? " in node memory" : "",
                 job->node.taken ? "state" : "checkpoint");
    if (!job->node.taken)
        return note_passed(job, why);
    job->node.passed = true;
    return MICS_OK;
}

void run_newest_log_instead(const mics_job *job)
{
    if (has_passed(job))
        mics_log(MICS_LOG_WARNING, "resumes from %s instead of step %lld",
                 job->node.taken ? "node memory" : job->checkpoint_path,
                 (long long)job->passed_first);
}

// ---- setup: one member a process ----

static mics_status settle_processes(mics_job *job, mics_status mine, run_outcome *outcome_out,
                                    char *why_out)
{
    run_world *world = job->world;
    int64_t values[RUN_SAYS];
    run_newest_send(job, mine, world->first, world->ranks, true, values);
    MICS_TRY(run_world_max(world, values, RUN_SAYS));
    return run_newest_recv(job, values, world->mpi ? world->here[0].rank.comm : NULL, outcome_out,
                           why_out);
}

mics_status run_job_open_newest(mics_job *job)
{
    run_outcome found = RUN_GOOD;
    char why[RUN_WHY_BYTES] = "";
    mics_status mine = MICS_OK;
    MICS_TRY(run_world_agree(
        job->world, mics_checkpoint_latest(job->memory, job->checkpoints_dir, &job->newest_path)));
    job->resumes_newest = true;
    do {
        mine = found == RUN_DAMAGED ? run_newest_pass_over(job, why) : MICS_OK;
        if (mine == MICS_OK)
            mine = run_newest_open_next(job);
        MICS_TRY(settle_processes(job, mine, &found, why));
    } while (found == RUN_DAMAGED);
    if (found == RUN_GOOD && job->world->first == 0)
        run_newest_log_instead(job);
    return mine;
}
