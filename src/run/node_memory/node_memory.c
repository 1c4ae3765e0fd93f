// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Copies of a run's state in the memory of its nodes: room for them, and the start.
#include "node_memory.h"
#include "base/file.h"
#include "base/size.h"
#include "io/checkpoint/node.h"
#include "mics/core/device.h"
#include "mics/core/ledger.h"
#include "mics/log.h"
#include "run/identity.h"
#include "run/job.h"
#include <unistd.h>

// ---- room ----

void run_node_memory_credit(mics_job *job)
{
    run_budget *budget = &job->budget;
    int64_t used = 0, left = 0;
    if (job->node.root == NULL || budget->accelerator.used ||
        job->run->memory_checkpoint_every == 0)
        return;
    const bool muted = mics_log_mute(true);
    if (mics_node_space(job->node.root, &used, &left) != MICS_OK)
        used = 0;
    mics_log_mute(muted);
    budget->available_bytes += (size_t)used;
    if (!budget->limit_is_set)
        budget->limit_bytes += (size_t)used / (size_t)budget->ranks_here;
}

mics_status run_node_space_read(const char *path, bool counts_machine, run_node_space *space_out)
{
    int64_t used = 0, left = 0;
    mics_machine machine;
    MICS_TRY(mics_node_space(path, &used, &left));
    MICS_TRY(mics_machine_read(&machine));
    const int64_t available = (int64_t)machine.memory_available_bytes;
    const bool of_machine = counts_machine && available < left;
    *space_out = (run_node_space){used + (of_machine ? available : left), of_machine};
    return MICS_OK;
}

// For copies every some steps. The file system, and on GPUs also the machine's memory: on CPUs the
// ledger has the copies.
static mics_status check_space(const mics_job *job)
{
    const int64_t of_rank = (int64_t)mics_schedule_node_bytes(job->schedule);
    const int64_t needed = of_rank * job->world->ranks_here;
    run_node_space space;
    char all[32], each[32], there[32];
    MICS_TRY(run_node_space_read(job->node.root, job->budget.accelerator.used, &space));
    if (needed <= space.bytes)
        return MICS_OK;
    return mics_fail(MICS_ERR_MEMORY,
                     "run.memory_checkpoint_every: copies of the state take %s of this machine (%d "
                     "ranks of %s), "
                     "%s has %s; what fits: %s, more nodes, or run.memory_checkpoint_every 0",
                     mics_size_text((double)needed, all, sizeof all), (int)job->world->ranks_here,
                     mics_size_text((double)of_rank, each, sizeof each),
                     space.of_machine ? "its memory" : mics_node_base(),
                     mics_size_text((double)space.bytes, there, sizeof there),
                     space.of_machine ? "a larger optimizer sharding"
                                      : "MICS_SHM_DIR on a larger tmpfs");
}

// ---- the start ----

// All runs have an ID: any may have to leave a copy when it stops. What the run does not resume
// from must never be taken again.
static mics_status share_id(mics_job *job)
{
    const char *from =
        job->checkpoint != NULL ? mics_checkpoint_meta_get(job->checkpoint)->run_id : NULL;
    mics_status status = MICS_OK;
    if (job->world->first == 0)
        status = run_identity_renew(job->memory, job->run, from, job->node.id);
    MICS_TRY(run_world_agree(job->world, status));
    return job->world->mpi ? mics_comm_broadcast(job->world->here[0].rank.comm, 0, job->node.id,
                                                 sizeof job->node.id)
                           : MICS_OK;
}

static mics_status begin_anew(mics_job *job)
{
    run_node_memory *node = &job->node;
    if (node->root != NULL)
        mics_node_remove(node->root);
    mics_free(job->memory, node->root);
    node->root = NULL;
    node->serial = 1;
    node->slot = 0;
    return share_id(job);
}

static mics_status make_folder(mics_job *job)
{
    run_node_memory *node = &job->node;
    if (node->root == NULL)
        MICS_TRY(mics_node_root(job->memory, node->id, &node->root));
    return job->run->memory_checkpoint_every > 0 ? mics_node_make_root(node->root) : MICS_OK;
}

mics_status run_node_memory_check(mics_job *job)
{
    const bool keeps = job->run->memory_checkpoint_every > 0;
    return run_world_agree(job->world, keeps ? check_space(job) : MICS_OK);
}

mics_status run_node_memory_begin(mics_job *job)
{
    run_node_forget_found(job);
    if (!job->node.taken)
        MICS_TRY(begin_anew(job));
    run_notes_sweep(job);
    return run_world_agree(job->world, make_folder(job));
}

void run_node_memory_close(mics_job *job, bool saved)
{
    run_node_forget_found(job);
    if (saved && job->node.root != NULL) {
        mics_node_remove(job->node.root);
        run_notes_clear(job);
    }
    mics_free(job->memory, job->node.root);
    job->node.root = NULL;
}
