// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Node memory as a tier: copies of the state, two slots written in turn.
//
// A copy is written in place of the one before the newest, by all ranks at once:
//   1. each rank: its part of its shards, as a file. All gather lengths and checksums, and learn
//      whether all could.
//   2. where a shard is on one node alone: each rank sends its file to its partner.
//   3. all agree; the first rank of each node writes the manifest, which makes the slot count.
// A node that dies before 3 leaves the other slot, which all nodes have: no rank begins the next copy
// before all have taken part in a step after this one.
//
// Between steps ranks gather over the communicator, in the middle of one by notes in files (notes.h),
// without 2.
#include "base/clock.h"
#include "base/file.h"
#include "base/free.h"
#include "base/size.h"
#include "exchange.h"
#include "mics/core/device.h"
#include "mics/core/ledger.h"
#include "mics/log.h"
#include "node_memory.h"
#include "notes.h"
#include "part.h"
#include <stdlib.h>
#include <string.h>

// Whether the rank is the first of its node.
static bool leads(const run_context *context)
{
    return context->rank->comm->rank % run_world_node_ranks(context->job->world) == 0;
}

static run_copy_report *own_report(const run_save *save)
{
    return &save->copy.reports[save->saver->context->rank->comm->rank];
}

// ---- staging and writing ----

// For a copy that the run makes to stop, which nothing has counted before: on this node, in its slot.
static mics_status check_stop_space(const run_save *save)
{
    const run_context *context = save->saver->context;
    const int32_t ranks = run_world_node_ranks(context->job->world);
    const int64_t needed = // of one slot
        (int64_t)mics_schedule_node_bytes(context->job->schedule) / MICS_NODE_SLOTS * ranks;
    run_node_space space;
    char all[32], there[32];
    MICS_TRY(run_node_space_read(save->copy.slot, true, &space));
    if (needed <= space.bytes)
        return MICS_OK;
    const bool muted = mics_log_mute(!leads(context)); // the node's other ranks find the same
    const mics_status status =
        mics_fail(MICS_ERR_MEMORY, "a copy of the state takes %s of a node's memory, %s has %s",
                  mics_size_text((double)needed, all, sizeof all),
                  space.of_machine ? "the machine" : mics_node_base(),
                  mics_size_text((double)space.bytes, there, sizeof there));
    mics_log_mute(muted);
    return status;
}

// Whether the others have committed this node's part in the middle of the step already.
static bool is_late(run_save *save)
{
    const run_context *context = save->saver->context;
    const int32_t node = context->rank->comm->rank / run_world_node_ranks(context->job->world);
    return save->by_saver && run_notes_writer(save, "node", node) >= 0;
}

static mics_status make_slot(run_save *save)
{
    const run_context *context = save->saver->context;
    const mics_job *job = context->job;
    const int32_t node = run_world_node_number(job->world, context->rank->comm->rank);
    if (is_late(save))
        return mics_node_slot(context->rank->memory, job->node.root, node, save->saver->slot,
                              &save->copy.slot);
    MICS_TRY(mics_node_make_root(job->node.root)); // somebody may have removed it
    MICS_TRY(mics_node_begin(context->rank->memory, job->node.root, node, save->saver->slot,
                             &save->copy.slot));
    return job->run->memory_checkpoint_every == 0 ? check_stop_space(save) : MICS_OK;
}

static void stage(run_save *save)
{
    save->copy.begin_us = mics_clock_us();
    if (save->status == MICS_OK)
        save->status = make_slot(save);
    if (save->status == MICS_OK && !save->by_saver && save->copy.keep.to >= 0 &&
        save->copy.staging == NULL)
        save->status = mics_alloc(save->saver->context->rank->memory, MICS_MEM_HOST,
                                  (size_t)2 * RUN_EXCHANGE_PIECE_BYTES, &save->copy.staging);
}

// A failure is told to the others by the commit.
static mics_status write_part(run_save *save)
{
    const run_context *context = save->saver->context;
    mics_node_file file = {0};
    if (save->status == MICS_OK)
        save->status = run_copy_write(save, &save->copy.keep, &file);
    if (!save->by_saver && !save->borrows)
        mics_engine_release(context->engine);
    *own_report(save) = (run_copy_report){file.bytes, file.hash, (int64_t)save->status};
    return MICS_OK;
}

// ---- the commit between steps ----

// All learn what each has written. Returns: MICS_ERR_PEER: some rank could not, on all ranks.
static mics_status gather_reports(run_save *save)
{
    mics_comm *comm = save->saver->context->rank->comm;
    run_copy_report *reports = save->copy.reports;
    const mics_comm_group all = {
        .group = {.first = 0, .stride = 1, .size = comm->ranks, .index = comm->rank},
        .what = "copies in node memory"};
    own_report(save)->status = (int64_t)save->status;
    MICS_TRY(mics_comm_all_gather(comm, &all, reports, sizeof *reports));
    for (int32_t rank = 0; rank < comm->ranks; rank++) {
        if (reports[rank].status != MICS_OK)
            return MICS_ERR_PEER;
    }
    return MICS_OK;
}

static mics_status open_ends(const run_save *save, run_exchange *over)
{
    const run_context *context = save->saver->context;
    mics_memory *memory = context->rank->memory;
    const run_copy *copy = &save->copy;
    const mics_keep theirs = mics_mesh_keep(&context->job->schedule->spec.mesh, copy->keep.from);
    run_exchange_end *out = &over->out, *in = &over->in;
    MICS_TRY(mics_node_open_file(memory, copy->slot, copy->keep.file, false, &out->fd, &out->path));
    MICS_TRY(mics_node_open_file(memory, copy->slot, theirs.file, true, &in->fd, &in->path));
    MICS_TRY(mics_file_reserve(in->fd, in->path, in->bytes));
    return mics_file_resize(in->fd, in->path, in->bytes);
}

// Every rank has as much to send, to within what the ends of units make.
static mics_status send_to_partner(run_save *save)
{
    const run_context *context = save->saver->context;
    const run_copy *copy = &save->copy;
    int64_t most = 0;
    run_exchange over = {.comm = context->rank->comm,
                         .pieces = copy->staging,
                         .exchange = {.to = copy->keep.to,
                                      .from = copy->keep.from,
                                      .what = "a partner's copy in node memory"},
                         .out = {.fd = -1, .bytes = own_report(save)->bytes},
                         .in = {.fd = -1, .bytes = copy->reports[copy->keep.from].bytes}};
    for (int32_t rank = 0; rank < context->rank->comm->ranks; rank++)
        most = copy->reports[rank].bytes > most ? copy->reports[rank].bytes : most;
    over.local = open_ends(save, &over);
    const mics_status status = run_exchange_files(&over, most);
    save->status = over.local;
    run_exchange_close_ends(context->rank->memory, &over);
    return status;
}

// Folders of nodes that this machine no longer has, of a start with others, hold nothing that the
// newest copy lacks.
static void tidy(const run_context *context)
{
    const mics_job *job = context->job;
    if (run_is_first_local(context))
        mics_node_remove_from(job->node.root,
                              job->world->ranks_here / run_world_node_ranks(job->world));
}

// Islands have losses of their own, and a copy has the same manifest on all nodes.
static mics_status commit_between_steps(run_save *save)
{
    mics_checkpoint_losses *recent = &save->meta.recent;
    MICS_TRY(gather_reports(save));
    if (save->meta.outer.islands > 1)
        MICS_TRY(mics_comm_broadcast(save->saver->context->rank->comm, 0, recent, sizeof *recent));
    if (save->copy.keep.to >= 0) {
        MICS_TRY(send_to_partner(save));
        MICS_TRY(gather_reports(save));
    }
    run_save_enter(save, RUN_SAVE_COMMITTING);
    if (leads(save->saver->context))
        save->status = run_copy_write_manifest(save);
    MICS_TRY(gather_reports(save));
    tidy(save->saver->context);
    if (save->to_stop && run_is_rank_0(save->saver->context))
        (void)run_note_write(save, "whole", 0, 0, 0);
    return MICS_OK;
}

// ---- the commit in the middle of a step ----

// The first rank of a node has all parts written, or knows that there will be none.
static mics_status commit_node(run_save *save)
{
    const run_context *context = save->saver->context;
    const int32_t ranks = context->rank->comm->ranks, rank = context->rank->comm->rank,
                  node_ranks = run_world_node_ranks(context->job->world);
    mics_status status = run_notes_await(save, "rank", ranks);
    if (status == MICS_ERR_TIMEOUT)
        return status;
    run_save_enter(save, RUN_SAVE_COMMITTING);
    if (status == MICS_OK)
        status = run_copy_write_manifest(save);
    // Where a note cannot be written, all wait until the step ends.
    (void)run_note_write(save, "node", rank / node_ranks, status == MICS_OK ? 0 : -1, 0);
    if (rank != 0)
        return MICS_OK;
    status = run_notes_await(save, "node", ranks / node_ranks);
    if (status != MICS_ERR_TIMEOUT)
        (void)run_note_write(save, "whole", 0, status == MICS_OK ? 0 : -1, 0);
    return status == MICS_ERR_TIMEOUT ? status : MICS_OK;
}

// Where nobody learns of this rank's part, the ranks try again together.
static mics_status commit_in_step(run_save *save)
{
    const run_context *context = save->saver->context;
    const run_copy_report own = *own_report(save);
    memset(save->copy.reports, 0,
           (size_t)context->rank->comm->ranks * sizeof *save->copy.reports); // of an older copy
    if (run_note_write(save, "rank", context->rank->comm->rank,
                       save->status == MICS_OK ? own.bytes : -1, own.hash) != MICS_OK)
        return MICS_ERR_TIMEOUT;
    mics_status status = leads(context) ? commit_node(save) : MICS_OK;
    if (status == MICS_OK)
        status = run_notes_await(save, "whole", 1);
    if (status == MICS_ERR_TIMEOUT)
        status = run_survivors_commit(save);
    MICS_TRY(status);
    run_standing_keep(&context->job->standing, save->step);
    return MICS_OK;
}

// What the program hears on rank 0; once, how much is copied, and what it costs.
static void log_outcome(const run_save *save, mics_status status)
{
    run_saver *saver = save->saver;
    const long long step = (long long)save->step;
    char text[32];
    if (status == MICS_OK && !save->by_saver && !saver->noted) {
        run_job_note(saver->context->job, "step %lld is kept in node memory: %s a rank, in %.3g s",
                     step, mics_size_text((double)own_report(save)->bytes, text, sizeof text),
                     (mics_clock_us() - save->copy.begin_us) / 1e6);
        saver->noted = true;
    }
    if (status == MICS_OK && save->to_stop)
        mics_log(MICS_LOG_INFO, "step %lld is in node memory", step);
    if (status == MICS_ERR_PEER)
        mics_log(MICS_LOG_WARNING, "step %lld is not kept in node memory; %s", step,
                 save->to_stop ? "it goes to disk until run.grace_s is over"
                               : "training goes on, and the copy before it counts");
}

static mics_status commit(run_save *save)
{
    const run_context *context = save->saver->context;
    run_stop_writes(&context->job->stop, true);
    const mics_status status = save->by_saver ? commit_in_step(save) : commit_between_steps(save);
    run_stop_writes(&context->job->stop, false);
    if (run_is_rank_0(context))
        log_outcome(save, status);
    mics_free(context->rank->memory, save->copy.staging);
    mics_free(context->rank->memory, save->copy.slot);
    save->copy.staging = NULL;
    save->copy.slot = NULL;
    return status;
}

// ---- finding and removing ----

// Of the same step as on disk, the copy in memory is taken: nothing need be read from disk then.
// A run whose last step is on disk is finished.
static mics_status find(const mics_job *job, int64_t *step_out, char **path_out)
{
    *step_out = run_node_memory_step(job);
    if (*step_out == job->run->steps && job->passed_count == 0 &&
        run_step_of(job->newest_path) == *step_out)
        *step_out = -1;
    return *step_out >= 0 ? mics_strdup(job->memory, run_node_memory_path(job), path_out) : MICS_OK;
}

static void remove_slot(const run_saver *saver, int32_t number)
{
    const run_context *context = saver->context;
    const mics_job *job = context->job;
    char *slot = NULL;
    if (leads(context) &&
        mics_node_slot(context->rank->memory, job->node.root,
                       run_world_node_number(job->world, context->rank->comm->rank), number,
                       &slot) == MICS_OK)
        mics_node_remove(slot);
    mics_free(context->rank->memory, slot);
}

// But for the slot that a copy is being written to.
static void remove_slots(run_saver *saver)
{
    const bool writes = run_saver_state(&saver->saves[RUN_COPY]) != RUN_SAVE_IDLE;
    for (int32_t slot = 0; slot < MICS_NODE_SLOTS; slot++) {
        if (!writes || slot != saver->slot)
            remove_slot(saver, slot);
    }
}

// Where copies are made only to stop, or for want of space on disk, one that is no newer than a checkpoint is outdated, and its
// memory is given back.
static void prune(run_saver *saver, int64_t step)
{
    const mics_job *job = saver->context->job;
    if (job->run->memory_checkpoint_every == 0 && atomic_load(&job->standing.kept) <= step)
        remove_slots(saver);
}

void run_copy_withdraw(run_save *save)
{
    run_standing_keep(&save->saver->context->job->standing, RUN_NO_STEP);
    remove_slot(save->saver, save->saver->slot);
    run_notes_withdraw(save);
}

const run_tier run_memory_tier = {.name = "node memory",
                                  .stage = stage,
                                  .write = write_part,
                                  .commit = commit,
                                  .find = find,
                                  .prune = prune};
