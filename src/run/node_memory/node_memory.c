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
#include "node_memory.h"
#include "alone.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/size.h"
#include "io/checkpoint/node.h"
#include "mics/device.h"
#include "mics/log.h"
#include "run/job.h"
#include "run/trainer.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define ID_FILE "run-id"

enum { PIECE_BYTES = 4 << 20 }; // of a file, that travels at a time

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

// For copies every some steps. The file system, and on GPUs also the machine's memory: on CPUs the
// ledger has the copies.
static mics_status check_room(const mics_job *job)
{
    const int64_t of_rank = (int64_t)mics_schedule_node_bytes(job->schedule);
    const int64_t needed = of_rank * job->world->ranks_here;
    int64_t used = 0, left = 0;
    mics_machine machine;
    char all[32], each[32], there[32];
    MICS_TRY(mics_node_space(job->node.root, &used, &left));
    MICS_TRY(mics_machine_read(&machine));
    const bool of_machine =
        job->budget.accelerator.used && (int64_t)machine.memory_available_bytes < left;
    if (of_machine)
        left = (int64_t)machine.memory_available_bytes;
    if (needed <= used + left)
        return MICS_OK;
    return mics_fail(MICS_ERR_MEMORY,
                     "run.memory_checkpoint_every: copies of the state take %s of this machine (%d "
                     "ranks of %s), "
                     "%s has %s; what fits: %s, more nodes, or run.memory_checkpoint_every 0",
                     mics_size_text((double)needed, all, sizeof all), (int)job->world->ranks_here,
                     mics_size_text((double)of_rank, each, sizeof each),
                     of_machine ? "its memory" : mics_node_base(),
                     mics_size_text((double)(used + left), there, sizeof there),
                     of_machine ? "a larger optimizer sharding" : "MICS_SHM_DIR on a larger tmpfs");
}

// ---- the start ----

static mics_status write_id(const mics_job *job)
{
    char text[sizeof job->node.id + 1];
    const int bytes = snprintf(text, sizeof text, "%s\n", job->node.id);
    MICS_TRY(mics_file_replace(job->memory, job->run->out, ID_FILE, text, (size_t)bytes));
    return mics_file_sync_dir(job->run->out);
}

// What the run does not go on from must never be taken again.
static mics_status renew_id(mics_job *job)
{
    MICS_TRY(mics_node_draw_id(job->node.id));
    return write_id(job);
}

// All runs have an ID: any may have to leave a copy when it stops.
static mics_status share_id(mics_job *job)
{
    mics_status status = MICS_OK;
    if (job->world->first == 0)
        status = renew_id(job);
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
    return run_world_agree(job->world, keeps ? check_room(job) : MICS_OK);
}

mics_status run_node_memory_begin(mics_job *job)
{
    run_node_forget_found(job);
    if (!job->node.taken)
        MICS_TRY(begin_anew(job));
    run_node_alone_sweep(job);
    return run_world_agree(job->world, make_folder(job));
}

void run_node_memory_close(mics_job *job, bool saved)
{
    run_node_forget_found(job);
    if (saved && job->node.root != NULL) {
        mics_node_remove(job->node.root);
        run_node_alone_clear(job);
    }
    mics_free(job->memory, job->node.root);
    job->node.root = NULL;
}

mics_status run_node_memory_book(run_trainer *self)
{
    const size_t bytes = self->job->schedule->ledger.bytes[MICS_MEM_NODE];
    if (bytes == 0)
        return MICS_OK;
    MICS_TRY(mics_memory_book(self->rank->memory, MICS_MEM_NODE, bytes));
    self->memory_booked = true;
    return MICS_OK;
}

void run_node_memory_unbook(run_trainer *self)
{
    if (self->memory_booked)
        mics_memory_unbook(self->rank->memory, MICS_MEM_NODE,
                           self->job->schedule->ledger.bytes[MICS_MEM_NODE]);
    self->memory_booked = false;
}

// ---- a copy ----

// All learn what each has written, and MICS_OK only if each could.
static mics_status gather_reports(run_copying *copy, mics_status mine, const mics_node_file *file)
{
    mics_comm *comm = copy->self->rank->comm;
    const mics_comm_group all = {
        .group = {.first = 0, .stride = 1, .size = comm->ranks, .index = comm->rank},
        .what = "copies in node memory"};
    copy->reports[comm->rank] = (run_copy_report){file->bytes, file->hash, (int64_t)mine};
    MICS_TRY(mics_comm_all_gather(comm, &all, copy->reports, sizeof *copy->reports));
    return MICS_OK;
}

static bool all_wrote(const run_copying *copy)
{
    for (int32_t rank = 0; rank < copy->self->rank->comm->ranks; rank++) {
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
        MICS_TRY(mics_comm_exchange(copy->self->rank->comm, &exchange));
        if (*local_out == MICS_OK && kept > 0)
            *local_out = mics_file_write_at(in->fd, in->path, exchange.recv, (size_t)kept, at);
    }
    return MICS_OK;
}

static mics_status open_ends(const run_copying *copy, transfer_end *out, transfer_end *in)
{
    const run_trainer *self = copy->self;
    mics_memory *memory = self->rank->memory;
    const mics_mesh *mesh = &self->job->schedule->spec.mesh;
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
    mics_memory *memory = copy->self->rank->memory;
    const mics_comm *comm = copy->self->rank->comm;
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
static void tidy(const run_trainer *self)
{
    const mics_job *job = self->job;
    const int32_t nodes = job->world->ranks_here / run_world_node_ranks(job->world);
    if (self->rank->comm->rank % job->world->ranks_here == 0)
        mics_node_remove_from(job->node.root, nodes);
}

// ---- together ----

// *kept_out: the copy counts, on all nodes. What goes wrong on this rank alone is a warning by then.
static mics_status make_copy(run_copying *copy, bool *kept_out)
{
    mics_node_file file = {0};
    mics_status local = mics_engine_download(copy->self->engine);
    if (local == MICS_OK && copy->keep.to >= 0)
        local = mics_alloc(copy->self->rank->memory, MICS_MEM_HOST, (size_t)2 * PIECE_BYTES,
                           &copy->pieces);
    if (local == MICS_OK)
        local = run_copy_write(copy, &file);
    mics_engine_release(copy->self->engine);
    MICS_TRY(gather_reports(copy, local, &file));
    *kept_out = all_wrote(copy);
    if (!*kept_out)
        return MICS_OK;
    if (copy->keep.to >= 0)
        MICS_TRY(send_copies(copy, &local));
    MICS_TRY(gather_reports(copy, local, &file));
    *kept_out = all_wrote(copy);
    if (*kept_out && run_copy_leads(copy->self))
        local = run_copy_commit(copy, true);
    MICS_TRY(gather_reports(copy, local, &file));
    *kept_out = all_wrote(copy);
    return MICS_OK;
}

// Once: how much is copied, and what it costs.
static void tell_copied(run_trainer *self, int64_t step, int64_t bytes, double taken_us)
{
    char text[32];
    if (self->rank->comm->rank == 0 && !self->memory_told)
        run_job_note(self->job, "step %lld is kept in node memory: %s a rank, in %.3g s",
                     (long long)step, mics_size_text((double)bytes, text, sizeof text),
                     taken_us / 1e6);
    self->memory_told = true;
}

static mics_status copy_state(run_trainer *self, int64_t step, bool stops, bool *kept_out)
{
    const double begin_us = mics_clock_us();
    run_copying copy = {.self = self, .step = step};
    bool kept = false;
    MICS_TRY(run_copy_open(&copy));
    const bool before = mics_log_demote(true);
    mics_status status = make_copy(&copy, &kept);
    mics_log_demote(before);
    if (status == MICS_OK && kept) {
        tidy(self);
        tell_copied(self, step, copy.reports[self->rank->comm->rank].bytes,
                    mics_clock_us() - begin_us);
        self->memory_slot = (self->memory_slot + 1) % MICS_NODE_SLOTS;
        self->kept = true;
        self->kept_step = step;
        run_stop_kept(&self->job->stop, step);
    } else if (status == MICS_OK && self->rank->comm->rank == 0) {
        mics_log(MICS_LOG_WARNING, "step %lld is not kept in node memory; %s", (long long)step,
                 stops ? "it goes to disk until run.grace_s is over"
                       : "training goes on, and the copy before it counts");
    }
    run_copy_close(&copy);
    *kept_out = kept;
    return status;
}

void run_node_memory_outdate(const run_trainer *self, int64_t step)
{
    const mics_job *job = self->job;
    mics_memory *memory = self->rank->memory;
    char *slot = NULL;
    const int32_t older = (self->memory_slot + 1) % MICS_NODE_SLOTS;
    const bool newer = atomic_load(&job->stop.kept) && atomic_load(&job->stop.kept_step) > step;
    if (job->run->memory_checkpoint_every > 0 || newer || !run_copy_leads(self))
        return;
    if (mics_node_slot(memory, job->node.root,
                       run_world_node_number(job->world, self->rank->comm->rank), older,
                       &slot) == MICS_OK)
        mics_node_remove(slot);
    mics_free(memory, slot);
}

static mics_status copy_between_steps(run_trainer *self, int64_t step, bool stops, bool *kept_out)
{
    const mics_job *job = self->job;
    mics_comm *comm = self->rank->comm;
    MICS_TRY(mics_comm_set_timeout(comm, run_job_files_timeout_s(job)));
    MICS_TRY(copy_state(self, step, stops, kept_out));
    // A run that goes on from here has none either.
    mics_engine_forget_residual(self->engine);
    return mics_comm_set_timeout(comm, job->run->comm_timeout_s);
}

mics_status run_node_memory_stop(run_trainer *self, bool *kept_out)
{
    MICS_TRY(copy_between_steps(self, self->step, true, kept_out));
    if (*kept_out)
        run_alone_tell(self);
    return MICS_OK;
}

mics_status run_node_memory_follow(run_trainer *self, int64_t step)
{
    const int64_t every = self->job->run->memory_checkpoint_every;
    bool kept = false;
    return every > 0 && step % every == 0 ? copy_between_steps(self, step, false, &kept) : MICS_OK;
}
