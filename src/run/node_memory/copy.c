// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A rank's parts of a copy in node memory.
#include "copy.h"
#include "base/size.h"
#include "mics/core/device.h"
#include "mics/log.h"
#include "run/share.h"
#include <stdlib.h>
#include <string.h>

mics_status run_copy_open(run_copying *copy)
{
    const run_context *context = copy->of->context;
    const int32_t rank = context->rank->comm->rank;
    copy->keep = mics_mesh_keep(&context->job->schedule->spec.mesh, rank);
    return MICS_NEW(context->rank->memory, context->rank->comm->ranks, &copy->reports);
}

void run_copy_close(run_copying *copy)
{
    mics_memory *memory = copy->of->context->rank->memory;
    mics_free(memory, copy->slot);
    mics_free(memory, copy->pieces);
    mics_free(memory, copy->reports);
    copy->slot = NULL;
    copy->pieces = NULL;
    copy->reports = NULL;
}

// ---- writing ----

// For a copy that the run makes to stop, which nothing has counted before: on this node, in `slot`.
static mics_status check_stop_room(const run_copying *copy)
{
    const run_world *world = copy->of->context->job->world;
    const int32_t ranks = run_world_node_ranks(world);
    const int64_t needed = // of one slot
        (int64_t)mics_schedule_node_bytes(copy->of->context->job->schedule) / MICS_NODE_SLOTS *
        ranks;
    int64_t used = 0, left = 0;
    mics_machine machine;
    char all[32], there[32];
    MICS_TRY(mics_node_space(copy->slot, &used, &left));
    MICS_TRY(mics_machine_read(&machine));
    const bool of_machine = (int64_t)machine.memory_available_bytes < left;
    if (of_machine)
        left = (int64_t)machine.memory_available_bytes;
    if (needed <= used + left)
        return MICS_OK;
    // Its ranks find the same.
    const bool muted = mics_log_mute(copy->of->context->rank->comm->rank % ranks != 0);
    const mics_status status =
        mics_fail(MICS_ERR_MEMORY, "a copy of the state takes %s of a node's memory, %s has %s",
                  mics_size_text((double)needed, all, sizeof all),
                  of_machine ? "the machine" : mics_node_base(),
                  mics_size_text((double)(used + left), there, sizeof there));
    mics_log_mute(muted);
    return status;
}

// Of this rank's shards, the part that it keeps.
static void cut_shards(const run_copying *copy)
{
    const mics_keep *keep = &copy->keep;
    for (int32_t u = 0; u < copy->of->context->job->model->unit_count; u++) {
        mics_optimizer_shard *shard = &copy->of->shards[u];
        const int64_t elems = shard->end - shard->begin;
        const int64_t first = elems * keep->part / keep->parts;
        shard->end = shard->begin + elems * (keep->part + 1) / keep->parts;
        shard->begin += first;
        for (int32_t s = 0; s < shard->state_count && elems > 0; s++)
            shard->states[s].data = (const float *)shard->states[s].data + first;
    }
}

mics_status run_copy_write(run_copying *copy, mics_node_file *file_out)
{
    const run_context *context = copy->of->context;
    const mics_job *job = context->job;
    mics_memory *memory = context->rank->memory;
    const bool stops_only = job->run->memory_checkpoint_every == 0;
    run_share_fill(context, 0, 1, copy->of->shards);
    cut_shards(copy);
    MICS_TRY(run_share_check_finite(copy->of->shards, job->model->unit_count, copy->step));
    MICS_TRY(mics_node_make_root(job->node.root)); // somebody may have removed it
    MICS_TRY(mics_node_begin(memory, job->node.root,
                             run_world_node_number(job->world, context->rank->comm->rank),
                             copy->of->slot, &copy->slot));
    if (stops_only)
        MICS_TRY(check_stop_room(copy));
    return mics_node_write(memory, copy->slot, copy->step, copy->keep.file, copy->keep.files,
                           copy->of->shards, job->model->unit_count, file_out);
}

// ---- the commit ----

static int compare_units(const void *left, const void *right)
{
    return strcmp(((const mics_manifest_unit *)left)->name,
                  ((const mics_manifest_unit *)right)->name);
}

// What the manifest lists, in the order of file numbers; and which files this node keeps.
typedef struct listing {
    mics_manifest_unit *units;
    mics_node_file *files;
    bool *keeps;
} listing;

static mics_status fill_listing(const run_copying *copy, bool partners, listing *lists)
{
    const mics_job *job = copy->of->context->job;
    mics_memory *memory = copy->of->context->rank->memory;
    const mics_mesh *mesh = &job->schedule->spec.mesh;
    const int32_t units = job->model->unit_count, mine = copy->of->context->rank->comm->rank;
    MICS_TRY(MICS_NEW(memory, units, &lists->units));
    MICS_TRY(MICS_NEW(memory, copy->keep.files, &lists->files));
    MICS_TRY(MICS_NEW(memory, copy->keep.files, &lists->keeps));
    for (int32_t u = 0; u < units; u++)
        lists->units[u] =
            (mics_manifest_unit){job->model->units[u].name, job->model->units[u].elems};
    qsort(lists->units, (size_t)units, sizeof *lists->units, compare_units);
    for (int32_t rank = 0; rank < mesh->ranks; rank++) {
        const mics_keep keep = mics_mesh_keep(mesh, rank);
        const bool here =
            rank / run_world_node_ranks(job->world) == mine / run_world_node_ranks(job->world);
        lists->files[keep.file] =
            (mics_node_file){copy->reports[rank].bytes, copy->reports[rank].hash};
        if (!here)
            continue;
        lists->keeps[keep.file] = true;
        if (partners && keep.from >= 0)
            lists->keeps[mics_mesh_keep(mesh, keep.from).file] = true;
    }
    return MICS_OK;
}

mics_status run_copy_commit(const run_copying *copy, bool partners)
{
    const run_context *context = copy->of->context;
    const mics_job *job = context->job;
    mics_memory *memory = context->rank->memory;
    listing lists = {0};
    const mics_checkpoint_meta meta = run_share_meta(context, copy->step);
    mics_status status = fill_listing(copy, partners, &lists);
    const mics_node_manifest manifest = {.meta = &meta,
                                         .files = lists.files,
                                         .file_count = copy->keep.files,
                                         .units = lists.units,
                                         .unit_count = job->model->unit_count,
                                         .slot = copy->of->slot,
                                         .serial = job->node.serial};
    if (status == MICS_OK)
        status = mics_node_commit(memory, copy->slot, &manifest, lists.keeps);
    mics_free(memory, lists.keeps);
    mics_free(memory, lists.files);
    mics_free(memory, lists.units);
    return status;
}
