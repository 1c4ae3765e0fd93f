// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Copies of the state in node memory, made while a run trains.
//
// A copy is written in place of the one before the newest, by all ranks at once:
//   1. each rank: its part of its shards, as a file. All gather lengths and checksums, and learn
//      whether all could.
//   2. where a shard is on one node alone: each rank sends its file to its partner.
//   3. all agree; the first rank of each node writes the manifest, which makes the slot count.
// A node that dies before 3 leaves the other slot, which all nodes have: no rank begins the next copy
// before all have taken part in a step after this one.
#include "copies.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/size.h"
#include "io/checkpoint/node.h"
#include "mics/log.h"
#include "run/node_memory/alone.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { PIECE_BYTES = 4 << 20 }; // of a file, that travels at a time

// ---- a copy ----

// All learn what each has written, and MICS_OK only if each could.
static mics_status gather_reports(run_copying *copy, mics_status mine, const mics_node_file *file)
{
    mics_comm *comm = copy->of->context->rank->comm;
    const mics_comm_group all = {
        .group = {.first = 0, .stride = 1, .size = comm->ranks, .index = comm->rank},
        .what = "copies in node memory"};
    copy->reports[comm->rank] = (run_copy_report){file->bytes, file->hash, (int64_t)mine};
    MICS_TRY(mics_comm_all_gather(comm, &all, copy->reports, sizeof *copy->reports));
    return MICS_OK;
}

static bool all_wrote(const run_copying *copy)
{
    for (int32_t rank = 0; rank < copy->of->context->rank->comm->ranks; rank++) {
        if (copy->reports[rank].status != MICS_OK)
            return false;
    }
    return true;
}

// ---- the partner's copy ----

// An end of a transfer: a file, of which `bytes` travel.
typedef struct transfer_end {
    int fd;
    char *path;
    int64_t bytes;
} transfer_end;

// Sends one file and receives another, piece by piece; both sides pass the larger one's length. A
// failure to read or write does not stop it: the partner waits. *local_out is the first.
static mics_status transfer(run_copying *copy, const transfer_end *out, const transfer_end *in,
                            int64_t bytes, mics_status *local_out)
{
    mics_exchange exchange = {.to = copy->keep.to,
                              .from = copy->keep.from,
                              .send = copy->pieces,
                              .recv = (char *)copy->pieces + PIECE_BYTES,
                              .what = "a partner's copy in node memory"};
    for (int64_t at = 0; at < bytes; at += PIECE_BYTES) {
        const int64_t end = bytes - at < PIECE_BYTES ? bytes : at + PIECE_BYTES;
        const int64_t sent = (end < out->bytes ? end : out->bytes) - at;
        const int64_t kept = (end < in->bytes ? end : in->bytes) - at;
        if (*local_out == MICS_OK && sent > 0)
            *local_out = mics_file_read_at(out->fd, out->path, copy->pieces, (size_t)sent, at);
        exchange.bytes = (size_t)(end - at);
        MICS_TRY(mics_comm_exchange(copy->of->context->rank->comm, &exchange));
        if (*local_out == MICS_OK && kept > 0)
            *local_out = mics_file_write_at(in->fd, in->path, exchange.recv, (size_t)kept, at);
    }
    return MICS_OK;
}

static mics_status open_ends(const run_copying *copy, transfer_end *out, transfer_end *in)
{
    const run_context *context = copy->of->context;
    mics_memory *memory = context->rank->memory;
    const mics_mesh *mesh = &context->job->schedule->spec.mesh;
    const mics_keep theirs = mics_mesh_keep(mesh, copy->keep.from);
    MICS_TRY(mics_node_open_file(memory, copy->slot, copy->keep.file, false, &out->fd, &out->path));
    MICS_TRY(mics_node_open_file(memory, copy->slot, theirs.file, true, &in->fd, &in->path));
    MICS_TRY(mics_file_reserve(in->fd, in->path, in->bytes));
    if (ftruncate(in->fd, in->bytes) != 0)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot make it %lld bytes long: %s",
                         in->path, (long long)in->bytes, strerror(errno));
    return MICS_OK;
}

static void close_end(mics_memory *memory, transfer_end *end)
{
    if (end->fd >= 0)
        close(end->fd);
    mics_free(memory, end->path);
}

// Every rank has as much to send, to within what the ends of units make.
static mics_status send_copies(run_copying *copy, mics_status *local_out)
{
    mics_memory *memory = copy->of->context->rank->memory;
    const mics_comm *comm = copy->of->context->rank->comm;
    transfer_end out = {.fd = -1, .bytes = copy->reports[comm->rank].bytes};
    transfer_end in = {.fd = -1, .bytes = copy->reports[copy->keep.from].bytes};
    int64_t most = 0;
    for (int32_t rank = 0; rank < comm->ranks; rank++)
        most = copy->reports[rank].bytes > most ? copy->reports[rank].bytes : most;
    *local_out = open_ends(copy, &out, &in);
    const mics_status status = transfer(copy, &out, &in, most, local_out);
    close_end(memory, &out);
    close_end(memory, &in);
    return status;
}

// Folders of nodes that this machine no longer has, of a start with others, hold nothing any more
// that the copy just made does not.
static void tidy(const run_context *context)
{
    const mics_job *job = context->job;
    const int32_t nodes = job->world->ranks_here / run_world_node_ranks(job->world);
    if (context->rank->comm->rank % job->world->ranks_here == 0)
        mics_node_remove_from(job->node.root, nodes);
}

// ---- together ----

// *kept_out: the copy counts, on all nodes. What goes wrong on this rank alone is a warning by then.
static mics_status make_copy(run_copying *copy, bool *kept_out)
{
    mics_node_file file = {0};
    mics_status local = mics_engine_download(copy->of->context->engine);
    if (local == MICS_OK && copy->keep.to >= 0)
        local = mics_alloc(copy->of->context->rank->memory, MICS_MEM_HOST, (size_t)2 * PIECE_BYTES,
                           &copy->pieces);
    if (local == MICS_OK)
        local = run_copy_write(copy, &file);
    mics_engine_release(copy->of->context->engine);
    MICS_TRY(gather_reports(copy, local, &file));
    *kept_out = all_wrote(copy);
    if (!*kept_out)
        return MICS_OK;
    if (copy->keep.to >= 0)
        MICS_TRY(send_copies(copy, &local));
    MICS_TRY(gather_reports(copy, local, &file));
    *kept_out = all_wrote(copy);
    if (*kept_out && run_copy_leads(copy->of->context))
        local = run_copy_commit(copy, true);
    MICS_TRY(gather_reports(copy, local, &file));
    *kept_out = all_wrote(copy);
    return MICS_OK;
}

// Once: how much is copied, and what it costs.
static void note_copied(run_copies *self, int64_t step, int64_t bytes, double taken_us)
{
    char text[32];
    if (run_is_rank_0(self->context) && !self->told)
        run_job_note(self->context->job, "step %lld is kept in node memory: %s a rank, in %.3g s",
                     (long long)step, mics_size_text((double)bytes, text, sizeof text),
                     taken_us / 1e6);
    self->told = true;
}

static mics_status copy_state(run_copies *self, bool stops, bool *kept_out)
{
    const run_context *context = self->context;
    const int64_t step = context->progress->step;
    const double begin_us = mics_clock_us();
    run_copying copy = {.of = self, .step = step};
    bool kept = false;
    MICS_TRY(run_copy_open(&copy));
    const bool before = mics_log_demote(true);
    mics_status status = make_copy(&copy, &kept);
    mics_log_demote(before);
    if (status == MICS_OK && kept) {
        tidy(context);
        note_copied(self, step, copy.reports[context->rank->comm->rank].bytes,
                    mics_clock_us() - begin_us);
        run_copies_keep(self);
    } else if (status == MICS_OK && run_is_rank_0(context)) {
        mics_log(MICS_LOG_WARNING, "step %lld is not kept in node memory; %s", (long long)step,
                 stops ? "it goes to disk until run.grace_s is over"
                       : "training goes on, and the copy before it counts");
    }
    run_copy_close(&copy);
    *kept_out = kept;
    return status;
}

static mics_status copy_between_steps(run_copies *self, bool stops, bool *kept_out)
{
    MICS_TRY(run_await_files(self->context));
    MICS_TRY(copy_state(self, stops, kept_out));
    // A run that goes on from here has none either.
    mics_engine_forget_residual(self->context->engine);
    return run_await_collectives(self->context);
}

void run_copies_keep(run_copies *self)
{
    self->slot = (self->slot + 1) % MICS_NODE_SLOTS;
    run_progress_keep(self->context->progress);
}

mics_status run_copies_stop(run_copies *self, bool *kept_out)
{
    MICS_TRY(copy_between_steps(self, true, kept_out));
    if (*kept_out)
        run_alone_send(self);
    return MICS_OK;
}

// ---- what a checkpoint on disk makes of them ----

// Where copies are made only to stop, one that is no newer than a checkpoint is outdated, and its
// memory is given back.
static void saved(void *state, int64_t step)
{
    const run_copies *self = state;
    const run_context *context = self->context;
    const mics_job *job = context->job;
    const int32_t older = (self->slot + 1) % MICS_NODE_SLOTS;
    char *slot = NULL;
    if (job->run->memory_checkpoint_every > 0 || atomic_load(&job->standing.kept) > step ||
        !run_copy_leads(context))
        return;
    if (mics_node_slot(context->rank->memory, job->node.root,
                       run_world_node_number(job->world, context->rank->comm->rank), older,
                       &slot) == MICS_OK)
        mics_node_remove(slot);
    mics_free(context->rank->memory, slot);
}

// ---- the follower ----

static mics_status open_copies(void *state, const run_context *context, void *memory)
{
    run_copies *self = state;
    const size_t bytes = context->job->schedule->ledger.bytes[MICS_MEM_NODE];
    (void)memory;
    *self = (run_copies){.context = context, .slot = context->job->node.slot};
    MICS_TRY(MICS_NEW(context->rank->memory, context->job->model->unit_count, &self->shards));
    if (bytes > 0)
        MICS_TRY(mics_memory_book(context->rank->memory, MICS_MEM_NODE, bytes));
    self->booked = bytes > 0;
    return MICS_OK;
}

static bool is_due(const run_copies *self, const run_step *step)
{
    return run_is_due(self->context->job->run->memory_checkpoint_every, step->number) &&
           !step->begins;
}

// A copy that is due is a reason to compare replicas, also where the disk gets the step.
static run_need needs(void *state, const run_step *step)
{
    return is_due(state, step) ? RUN_NEEDS_AGREED : RUN_NEEDS_NOTHING;
}

static mics_status after_step(void *state, run_step *step)
{
    bool kept = false;
    return is_due(state, step) && !step->last && !step->stops
               ? copy_between_steps(state, false, &kept)
               : MICS_OK;
}

// The copy that the run went back to: the next one must not take its place.
static mics_status rewind_copies(void *state, const run_source *source)
{
    if (source->in_memory)
        ((run_copies *)state)->slot = source->next_slot;
    return MICS_OK;
}

static mics_status close_copies(void *state)
{
    run_copies *self = state;
    if (self->context == NULL)
        return MICS_OK;
    if (self->booked)
        mics_memory_unbook(self->context->rank->memory, MICS_MEM_NODE,
                           self->context->job->schedule->ledger.bytes[MICS_MEM_NODE]);
    mics_free(self->context->rank->memory, self->shards);
    *self = (run_copies){0};
    return MICS_OK;
}

const run_follower run_copies_follower = {.name = "copies",
                                          .open = open_copies,
                                          .needs = needs,
                                          .after_step = after_step,
                                          .saved = saved,
                                          .rewind = rewind_copies,
                                          .close = close_copies};
