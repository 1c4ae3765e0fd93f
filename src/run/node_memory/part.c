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
                           keep->files, save->shards, run_share_units(context->job->model),
                           file_out);
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
    mics_node_file *files;
    bool *keeps;
} listing;

static mics_status fill_listing(const run_save *save, listing *lists)
{
    const run_context *context = save->saver->context;
    const mics_job *job = context->job;
    mics_memory *memory = context->rank->memory;
    const mics_mesh *mesh = &job->schedule->spec.mesh;
    const int32_t units = run_share_units(job->model), mine = context->rank->comm->rank,
                  node_ranks = run_world_node_ranks(job->world);
    MICS_TRY(MICS_NEW(memory, units, &lists->units));
    MICS_TRY(MICS_NEW(memory, save->copy.keep.files, &lists->files));
    MICS_TRY(MICS_NEW(memory, save->copy.keep.files, &lists->keeps));
    int32_t count = 0;
    for (int32_t u = 0; u < job->model->unit_count; u++) {
        const mics_unit *unit = &job->model->units[u];
        if (!unit->frozen)
            lists->units[count++] = (mics_manifest_unit){unit->name, unit->elems};
    }
    qsort(lists->units, (size_t)units, sizeof *lists->units, compare_units);
    for (int32_t rank = 0; rank < mesh->ranks; rank++) {
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
                                         .unit_count = run_share_units(context->job->model),
                                         .slot = save->saver->slot,
                                         .serial = context->job->node.serial};
    if (status == MICS_OK)
        status = mics_node_commit(memory, save->copy.slot, &manifest, lists.keeps);
    MICS_FREE_ALL(memory, lists.keeps, lists.files, lists.units);
    return status;
}
