// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where a rank of a run works: what its followers, and what they call, know of it. Borrowed.
#pragma once

#include "job.h"
#include "mics/core/checkpoint.h"
#include "mics/core/engine.h"
#include "progress.h"
#include "run/ranks/world.h"
#include "run/report/reports.h"
#include <stdatomic.h>

typedef struct run_saving run_saving;

typedef struct run_context {
    mics_job *job;
    run_rank *rank;
    mics_engine *engine;
    run_progress *progress;
    const mics_checkpoint_losses *recent; // a part of the state: saved and loaded with it
    run_reports *reports;                 // open on rank 0 alone
    run_saving *saving;                   // for states that go to quarantine
    // By shard that is saved: this rank's largest parameter in what it began with and has saved.
    _Atomic float *largest;
} run_context;

static inline bool run_is_rank_0(const run_context *context)
{
    return context->rank->comm->rank == 0;
}

/* The island that this rank is of. */
static inline int32_t run_island(const run_context *context)
{
    return context->rank->comm->rank / context->job->schedule->spec.mesh.ranks;
}

/* Whether this is the rank that speaks for its island. */
static inline bool run_is_first_of_island(const run_context *context)
{
    return context->rank->comm->rank % context->job->schedule->spec.mesh.ranks == 0;
}

/* Whether this is the rank that does what is its process'. */
static inline bool run_is_first_local(const run_context *context)
{
    return context->rank->comm->rank == context->rank->world->first;
}

/* Sets how long ranks wait for each other: as for files, or as for a collective again. */
static inline mics_status run_await_files(const run_context *context)
{
    return mics_comm_set_timeout(context->rank->comm, run_job_files_timeout_s(context->job));
}

static inline mics_status run_await_collectives(const run_context *context)
{
    return mics_comm_set_timeout(context->rank->comm, context->job->run->comm_timeout_s);
}
