// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a run compares of what several ranks hold alike, in words.
#include "cli.h"
#include "run/settings.h"
#include <stdio.h>

static const char *compared(const mics_replicas *replicas)
{
    if (replicas->compares_params && replicas->compares_optimizer)
        return "parameters, masters and moments are compared";
    if (replicas->compares_params)
        return "parameters are compared";
    return "masters and moments are compared";
}

static void write_when(const mics_run *run, char *text, size_t capacity)
{
    if (run->check_replicas_every == 1)
        snprintf(text, capacity, "after each step");
    else if (run->check_replicas_every > 0)
        snprintf(text, capacity, "every %lld steps and before each save",
                 (long long)run->check_replicas_every);
    else
        snprintf(text, capacity, "before each save");
}

// How masters and moments, which exist once, would be compared.
static const char *advice(const mics_job *job)
{
    const bool open = mics_job_run(job)->sharding_open;
    if (mics_job_schedule(job)->spec.mesh.ranks == 1)
        return "";
    return open ? "; run.min_replicas=2 would keep masters and moments twice and compare them"
                : "; an optimizer degree of half the ranks would keep masters and moments twice "
                  "and compare them";
}

char *cli_islands_text(const mics_job *job, char *text, size_t capacity)
{
    const mics_schedule_spec *spec = &mics_job_schedule(job)->spec;
    const mics_run *run = mics_job_run(job);
    const mics_outer *outer = &spec->outer;
    char moments[64] = "", over[48] = "in one step";
    if (outer->overlap_steps > 0)
        snprintf(over, sizeof over, "over %d step%s", (int)outer->overlap_steps,
                 outer->overlap_steps == 1 ? "" : "s");
    if (outer->moments_every > 0)
        snprintf(moments, sizeof moments, ", moments every %lld",
                 (long long)outer->every * outer->moments_every);
    snprintf(text, capacity,
             "%d islands of %d rank%s meet every %d steps%s, %s%s, in %s; outer lr %g, momentum %g",
             (int)spec->mesh.islands, (int)spec->mesh.ranks, spec->mesh.ranks == 1 ? "" : "s",
             (int)outer->every, moments, outer->fragments > 1 ? "by fragments, each " : "", over,
             mics_comm_dtype_text(outer->dtype), run->outer_lr, run->outer_momentum);
    return text;
}

char *cli_replicas_text(const mics_job *job, char *text, size_t capacity)
{
    const mics_replicas replicas = mics_mesh_replicas(&mics_job_schedule(job)->spec.mesh);
    const char *more = replicas.optimizer > 1 ? "" : advice(job);
    const char *hashed = replicas.optimizer > 1 || mics_job_run(job)->scrub_every == 0
                             ? ""
                             : "; masters and moments are hashed from update to update";
    char when[64];
    write_when(mics_job_run(job), when, sizeof when);
    if (replicas.compares_params || replicas.compares_optimizer)
        snprintf(text, capacity, "parameters %d times, gradients %d, optimizer %d; %s %s%s%s",
                 (int)replicas.params, (int)replicas.grads, (int)replicas.optimizer,
                 compared(&replicas), when, hashed, more);
    else
        snprintf(text, capacity, "none: every state exists once, so nothing can be compared%s%s",
                 hashed, more);
    return text;
}
