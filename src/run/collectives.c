// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Settling a run's collectives, and the table that says how.
#include "collectives.h"
#include "job.h"
#include "mics/clock.h"
#include "mics/size.h"
#include <string.h>

static const mics_mesh *mesh_of(const mics_job *job)
{
    return &job->schedule->spec.mesh;
}

// ---- on every rank ----

// What rank 0 found in the output folder.
typedef struct found {
    mics_timings timings;
    bool read;
    char reason[RUN_REASON_BYTES];
} found;

// What ranks may use beside what their transport holds.
static size_t bytes_left(const run_budget *budget)
{
    return budget->limit_bytes > budget->staging_bytes ? budget->limit_bytes - budget->staging_bytes
                                                       : 0;
}

static mics_measure_spec spec_of(const mics_job *job, const run_rank *rank, bool library)
{
    return (mics_measure_spec){.memory = rank->memory,
                               .comm = rank->comm,
                               .schedule = job->schedule,
                               .library = library,
                               .reductions_too = job->run->collectives == MICS_COLLECTIVES_MEASURED,
                               .budget_s = MICS_MEASURE_S,
                               .limit_bytes = bytes_left(&job->budget)};
}

static mics_status measure(const mics_job *job, run_rank *rank, const run_collectives_key *key,
                           run_collectives *collectives)
{
    const mics_measure_spec spec = spec_of(job, rank, key->library);
    const double begin_us = mics_clock_us();
    MICS_TRY(mics_measure_run(&spec, &collectives->timings));
    collectives->took_s = (mics_clock_us() - begin_us) / 1e6;
    mics_memory_reset_peak(rank->memory); // training's own peak is to be seen
    if (rank->comm->rank == 0)
        run_collectives_write(rank->memory, job->run->out, key, &collectives->timings);
    return MICS_OK;
}

// Names of hosts say nothing of a link that was made slower or faster. Ranks that are threads have
// none.
static mics_status check_links(const mics_job *job, run_rank *rank, bool library, found *there)
{
    const mics_measure_spec spec = spec_of(job, rank, library);
    if (!there->read || !job->world->mpi)
        return MICS_OK;
    MICS_TRY(mics_measure_check(&spec, &there->timings, &there->read));
    mics_memory_reset_peak(rank->memory);
    if (!there->read)
        snprintf(there->reason, sizeof there->reason,
                 "other links (a unit takes less than half or more than twice as long)");
    return MICS_OK;
}

static mics_status read_or_measure(const mics_job *job, run_rank *rank,
                                   const run_collectives_key *key, run_collectives *collectives)
{
    found there = {.timings = collectives->timings};
    if (rank->comm->rank == 0)
        there.read =
            run_collectives_read(rank->memory, job->run->out, key, &there.timings, there.reason);
    MICS_TRY(mics_comm_broadcast(rank->comm, 0, &there, sizeof there));
    MICS_TRY(check_links(job, rank, key->library, &there));
    collectives->read = there.read;
    memcpy(collectives->reason, there.reason, sizeof there.reason);
    if (!there.read)
        return measure(job, rank, key, collectives);
    collectives->timings = there.timings;
    return MICS_OK;
}

// Where there is something to choose.
static mics_status settle_by_times(const mics_job *job, run_rank *rank, bool library,
                                   run_collectives *collectives)
{
    run_place place;
    const run_collectives_key key = {
        .schedule = job->schedule, .place = &place, .library = library};
    MICS_TRY(run_place_find(rank, mesh_of(job)->ranks_per_node, &place));
    return read_or_measure(job, rank, &key, collectives);
}

static mics_status settle_rank(void *ctx, run_rank *rank)
{
    mics_job *job = ctx;
    run_collectives collectives = {.read = false};
    bool library = false;
    MICS_TRY(mics_measure_library(rank->memory, rank->comm, mesh_of(job), &library));
    if (job->run->collectives == MICS_COLLECTIVES_LIBRARY)
        return run_rank_agree(
            rank, library ? MICS_OK
                          : mics_json_fail(job->run->json, "run.collectives", MICS_ERR_UNSUPPORTED,
                                           "this transport has no gathers of its own; take "
                                           "\"auto\", \"two-stage\" or \"ring\""));
    mics_measure_plan(job->schedule, library, &collectives.timings);
    if (collectives.timings.row_count > 0)
        MICS_TRY(settle_by_times(job, rank, library, &collectives));
    if (rank->comm->rank == job->world->first) // one a process
        job->collectives = collectives;
    return MICS_OK;
}

// ---- once a process ----

// The same schedule with the choices that were found.
static mics_status choose(mics_job *job)
{
    const mics_timings *timings = &job->collectives.timings;
    mics_schedule_spec spec = job->schedule->spec;
    mics_schedule *chosen = NULL;
    if (timings->row_count == 0)
        return MICS_OK;
    spec.choice_count = mics_measure_choose(
        timings, job->run->collectives == MICS_COLLECTIVES_MEASURED, spec.choices);
    MICS_TRY(mics_schedule_open(job->memory, &spec, &chosen));
    mics_schedule_close(job->schedule);
    job->schedule = chosen;
    return run_check_memory(job->memory, job->run, chosen, &job->budget);
}

static bool gathers_by_library(const mics_schedule *schedule)
{
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    for (int32_t i = 0; i < list->count; i++) {
        if (list->steps[i].algorithm == MICS_ALGORITHM_LIBRARY)
            return true;
    }
    return false;
}

static bool is_settled(const mics_job *job)
{
    const mics_collectives wanted = job->run->collectives;
    mics_timings at_most;
    if (job->budget.accelerator.used) // what is measured is the processor's
        return true;
    if (wanted == MICS_COLLECTIVES_LIBRARY)
        return !gathers_by_library(job->schedule);
    mics_measure_plan(job->schedule, true, &at_most);
    return wanted == MICS_COLLECTIVES_RING || wanted == MICS_COLLECTIVES_TWO_STAGE ||
           at_most.row_count == 0;
}

mics_status run_collectives_settle(mics_job *job)
{
    if (is_settled(job))
        return MICS_OK;
    MICS_TRY(run_world_run(job->world, settle_rank, job));
    mics_log_hold(job->world->first != 0);
    return run_world_agree(job->world, choose(job));
}

// ---- the table ----

static double node_bytes_per_s(const mics_job *job, mics_measure_op op, mics_algorithm algorithm,
                               const mics_timing *timing)
{
    if (timing->us[algorithm] <= 0)
        return 0;
    return mics_measure_node_bytes(job->schedule, op, algorithm, timing->bytes) /
           (timing->us[algorithm] * 1e-6);
}

// The fastest that any algorithm was between nodes.
static double most_bytes_per_s(const mics_job *job)
{
    const mics_timings *timings = &job->collectives.timings;
    double most = 0;
    for (int32_t i = 0; i < timings->row_count; i++) {
        for (int op = 0; op < MICS_MEASURE_OPS; op++) {
            for (int a = 0; a < MICS_ALGORITHMS; a++) {
                const double rate = node_bytes_per_s(job, (mics_measure_op)op, (mics_algorithm)a,
                                                     &timings->rows[i].of[op]);
                most = rate > most ? rate : most;
            }
        }
    }
    return most;
}

// How the times of a row came about.
static void print_source(const mics_timing *timing, FILE *out)
{
    char size[32];
    if (timing->bytes == 0)
        fprintf(out, "  not timed");
    else if (mics_measure_is_timed(timing))
        fprintf(out, "  measured");
    else
        fprintf(out, "  follows from %s", mics_size_text((double)timing->bytes, size, sizeof size));
}

static void print_times(const mics_job *job, mics_measure_op op, int32_t at, double most, FILE *out)
{
    const mics_timing *timing = &job->collectives.timings.rows[at].of[op];
    const mics_collective_choice *choice = &job->schedule->spec.choices[at];
    mics_algorithm runs = op == MICS_MEASURE_GATHER ? choice->gather : choice->reduce;
    const mics_algorithm fastest = mics_measure_fastest(timing);
    char size[32];
    fprintf(out, "  %-7s %5d %10s", op == MICS_MEASURE_GATHER ? "gather" : "reduce",
            (int)timing->units, mics_size_text((double)timing->unit_bytes, size, sizeof size));
    for (int a = 0; a < MICS_ALGORITHMS; a++) {
        if (timing->us[a] > 0)
            fprintf(out, " %10.0f", timing->us[a]);
        else
            fprintf(out, " %10s", "-");
    }
    const double rate = node_bytes_per_s(job, op, runs, timing);
    if (rate > 0)
        fprintf(out, "  %7.3f GB/s %3.0f %%", rate / 1e9, 100 * rate / most);
    else
        fprintf(out, "  %18s", "-");
    fprintf(out, "  %-9s", mics_algorithm_text(runs));
    print_source(timing, out);
    if (runs != fastest)
        fprintf(out, " (\"measured\" would take %s)", mics_algorithm_text(fastest));
    fputc('\n', out);
}

static void print_title(const mics_job *job, FILE *out)
{
    const run_collectives *collectives = &job->collectives;
    const mics_mesh *mesh = mesh_of(job);
    fprintf(out, "collectives, us a unit on the slowest rank; ");
    if (collectives->read)
        fprintf(out, "from %s/collectives.json\n", job->run->out);
    else if (collectives->reason[0] != '\0')
        fprintf(out, "measured again in %.1f s, as collectives.json is of %s\n",
                collectives->took_s, collectives->reason);
    else
        fprintf(out, "measured in %.1f s\n", collectives->took_s);
    fprintf(out, "  gathers over %d ranks, reductions over %d, %d ranks a node\n",
            (int)mesh->sharding.params, (int)mesh->sharding.grads, (int)mesh->ranks_per_node);
    fprintf(out, "  %-7s %5s %10s", "", "units", "of up to");
    for (int a = 0; a < MICS_ALGORITHMS; a++)
        fprintf(out, " %10s", mics_algorithm_text((mics_algorithm)a));
    fprintf(out, "  %18s  runs\n", "leaves a node");
}

void run_collectives_print(const mics_job *job, FILE *out)
{
    const mics_timings *timings = &job->collectives.timings;
    bool follows = false;
    if (timings->row_count == 0)
        return;
    print_title(job, out);
    const double most = most_bytes_per_s(job);
    for (int op = 0; op < MICS_MEASURE_OPS; op++) {
        for (int32_t i = 0; i < timings->row_count; i++) {
            const mics_timing *timing = &timings->rows[i].of[op];
            if (!timing->wanted)
                continue;
            print_times(job, (mics_measure_op)op, i, most, out);
            follows = follows || !mics_measure_is_timed(timing);
        }
    }
    if (follows)
        fprintf(
            out,
            "  what is not measured would have taken more than %d s in all, or more memory than a "
            "rank has\n",
            (int)MICS_MEASURE_S);
}
