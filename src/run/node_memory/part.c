// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "part.h"
#include "base/free.h"
#include "mics/core/device.h"
#include "run/share.h"
#include <stdlib.h>
#include <string.h>

mics_status run_copy_write(const run_save *save, const mics_keep *keep, mics_node_file *file_out)
{
    const run_context *context = save->saver->context;
    run_share_fill(context, keep->part, keep->parts, save->shards);
    MICS_TRY(run_share_check_numbers(context, save->shards, save->step));
    return mics_node_write(context->rank->memory, save->copy.slot, save->step, keep->file,
                           keep->files, save->shards, run_share_count(context->job), file_out);
}

// ---- the manifest ----

static int compare_units(const void *left, const void *right)
{
    return strcmp(((const mics_manifest_unit *)left)->name,
                  ((const mics_manifest_unit *)right)->name);
}

// What the manifest lists, in the order of file numbers; and which files this node keeps.
typedef struct listing {
    mics_manifest_unit *units;
    int32_t unit_count;
    char **names; // of units of islands; NULL among them: none
    mics_node_file *files;
    bool *keeps;
} listing;

static mics_status list_units(const run_save *save, listing *lists)
{
    const mics_job *job = save->saver->context->job;
    mics_memory *memory = save->saver->context->rank->memory;
    const int32_t islands = run_job_islands(job), own = islands > 1 ? islands : 0;
    const int32_t most = (1 + own) * job->model->unit_count;
    MICS_TRY(MICS_NEW(memory, most, &lists->units));
    MICS_TRY(MICS_NEW(memory, most, &lists->names));
    for (int32_t u = 0; u < job->model->unit_count; u++) {
        const mics_unit *unit = &job->model->units[u];
        if (unit->frozen)
            continue;
        lists->units[lists->unit_count++] = (mics_manifest_unit){unit->name, unit->elems};
        for (int32_t island = 0; island < own; island++) {
            char **name = &lists->names[lists->unit_count];
            MICS_TRY(mics_checkpoint_island_unit(memory, unit->name, island, name));
            lists->units[lists->unit_count++] = (mics_manifest_unit){*name, unit->elems};
        }
    }
    qsort(lists->units, (size_t)lists->unit_count, sizeof *lists->units, compare_units);
    return MICS_OK;
}

static mics_status fill_listing(const run_save *save, listing *lists)
{
    const run_context *context = save->saver->context;
    const mics_job *job = context->job;
    mics_memory *memory = context->rank->memory;
    const mics_mesh *mesh = &job->schedule->spec.mesh;
    const int32_t mine = context->rank->comm->rank, node_ranks = run_world_node_ranks(job->world);
    MICS_TRY(list_units(save, lists));
    MICS_TRY(MICS_NEW(memory, save->copy.keep.files, &lists->files));
    MICS_TRY(MICS_NEW(memory, save->copy.keep.files, &lists->keeps));
    for (int32_t rank = 0; rank < mics_mesh_world(mesh); rank++) {
        const mics_keep keep = mics_mesh_keep(mesh, rank);
        const run_copy_report *report = &save->copy.reports[rank];
        if (report->bytes == 0) // a rank that has not come
            continue;
        lists->files[keep.file] = (mics_node_file){report->bytes, report->hash};
        if (rank / node_ranks != mine / node_ranks)
            continue;
        lists->keeps[keep.file] = true;
        if (!save->by_saver && keep.from >= 0)
            lists->keeps[mics_mesh_keep(mesh, keep.from).file] = true;
    }
    return MICS_OK;
}

mics_status run_copy_write_manifest(const run_save *save)
{
    const run_context *context = save->saver->context;
    mics_memory *memory = context->rank->memory;
    listing lists = {0};
    mics_status status = fill_listing(save, &lists);
    const mics_node_manifest manifest = {.meta = &save->meta,
                                         .files = lists.files,
                                         .file_count = save->copy.keep.files,
                                         .units = lists.units,
                                         .unit_count = lists.unit_count,
                                         .slot = save->saver->slot,
                                         .serial = context->job->node.serial};
    if (status == MICS_OK)
        status = mics_node_commit(memory, save->copy.slot, &manifest, lists.keeps);
    for (int32_t i = 0; lists.names != NULL && i < lists.unit_count; i++)
        mics_free(memory, lists.names[i]);
    MICS_FREE_ALL(memory, lists.keeps, lists.files, lists.units, lists.names);
    return status;
}
