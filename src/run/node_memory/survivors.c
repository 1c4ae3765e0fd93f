// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Copies of ranks that others have left: one was killed, or its node is gone. Where O < n each shard
// is on several ranks, so those that are left may have all of the state, and they keep the step that
// was done last before they end: the next start loses only the step that ran.
//
// Each rank writes its part and its note, as for any copy in the middle of a step (notes.h). When some
// notes do not come:
//   1. A part that nobody has is written by the first rank that holds its shard on the lost one's node,
//      with a note in that one's name.
//   2. When each file is somewhere, the first rank of each node writes the manifest, and the node's
//      note.
//   3. The copy counts when nodes that have committed have all files.
// Nobody knows who is lost: a rank that is late finds the copy made, or takes part.
#include "base/clock.h"
#include "base/free.h"
#include "mics/log.h"
#include "notes.h"
#include "part.h"
#include <string.h>

// What is known of the others. Of a rank, and of a node, who has written its note; -1: nobody.
typedef struct survey {
    int32_t *ranks, *nodes;
    bool *there;     // by file: some rank has it
    bool *committed; // the same, of nodes that have committed
    int32_t node_ranks, rank_count, node_count, file_count;
} survey;

static mics_status open_survey(const run_save *save, survey *self)
{
    const run_context *context = save->saver->context;
    mics_memory *memory = context->rank->memory;
    self->rank_count = context->rank->comm->ranks;
    self->node_ranks = run_world_node_ranks(context->job->world);
    self->node_count = self->rank_count / self->node_ranks;
    self->file_count = save->copy.keep.files;
    MICS_TRY(MICS_NEW(memory, self->rank_count, &self->ranks));
    MICS_TRY(MICS_NEW(memory, self->node_count, &self->nodes));
    MICS_TRY(MICS_NEW(memory, self->file_count, &self->there));
    return MICS_NEW(memory, self->file_count, &self->committed);
}

static void close_survey(const run_save *save, survey *self)
{
    MICS_FREE_ALL(save->saver->context->rank->memory, self->committed, self->there, self->nodes,
                  self->ranks);
}

static int32_t own_rank(const run_save *save)
{
    return save->saver->context->rank->comm->rank;
}

static mics_keep keep_of(const run_save *save, int32_t rank)
{
    return mics_mesh_keep(&save->saver->context->job->schedule->spec.mesh, rank);
}

static void look(run_save *save, survey *self)
{
    run_notes_survey(save, "rank", self->rank_count, self->ranks);
    run_notes_survey(save, "node", self->node_count, self->nodes);
    memset(self->there, 0, (size_t)self->file_count * sizeof *self->there);
    memset(self->committed, 0, (size_t)self->file_count * sizeof *self->committed);
    for (int32_t rank = 0; rank < self->rank_count; rank++) {
        const int32_t file = keep_of(save, rank).file;
        if (self->ranks[rank] < 0)
            continue;
        self->there[file] = true;
        if (self->nodes[rank / self->node_ranks] >= 0)
            self->committed[file] = true;
    }
}

static bool all(const bool *list, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        if (!list[i])
            return false;
    }
    return true;
}

// The first rank from `first` on, among so many, that has written its own note; -1: none. Of those that
// hold the shard of a file, if it is not -1.
static int32_t first_left(const run_save *save, const survey *self, int32_t first, int32_t count,
                          int32_t file)
{
    for (int32_t rank = first; rank < first + count; rank++) {
        const mics_keep keep = keep_of(save, rank);
        if (self->ranks[rank] == rank && (file < 0 || keep.file / keep.parts == file / keep.parts))
            return rank;
    }
    return -1;
}

// Writes what is missing on this node, where this rank is to.
static void inherit(run_save *save, survey *self)
{
    const int32_t mine = own_rank(save), first = mine - mine % self->node_ranks;
    for (int32_t rank = first; rank < first + self->node_ranks; rank++) {
        const mics_keep keep = keep_of(save, rank);
        mics_node_file file = {0};
        if (self->ranks[rank] >= 0 || self->there[keep.file] ||
            first_left(save, self, first, self->node_ranks, keep.file) != mine)
            continue;
        const mics_status status = run_copy_write(save, &keep, &file);
        (void)run_note_write(save, "rank", rank, status == MICS_OK ? file.bytes : -1, file.hash);
    }
}

// Where a note cannot be written, the copy does not come to count, which is said.
static void commit_node(run_save *save, const survey *self)
{
    const int32_t mine = own_rank(save), node = mine / self->node_ranks;
    if (self->nodes[node] >= 0 ||
        first_left(save, self, node * self->node_ranks, self->node_ranks, -1) != mine)
        return;
    const mics_status status = run_copy_write_manifest(save);
    (void)run_note_write(save, "node", node, status == MICS_OK ? 0 : -1, 0);
}

// By the first of those that are left.
static void log_outcome(const run_save *save, const survey *self, bool counts)
{
    int32_t left = 0, missing = 0;
    for (int32_t rank = 0; rank < self->rank_count; rank++)
        left += self->ranks[rank] == rank;
    for (int32_t file = 0; file < self->file_count; file++)
        missing += !self->there[file];
    if (first_left(save, self, 0, self->rank_count, -1) != own_rank(save))
        return;
    if (counts)
        mics_log(MICS_LOG_WARNING,
                 "step %lld is in node memory: %d of %d ranks have not come, and the others hold "
                 "all of the state; --resume auto resumes from there",
                 (long long)save->step, (int)(self->rank_count - left), (int)self->rank_count);
    else
        mics_log(MICS_LOG_WARNING,
                 "step %lld is not kept in node memory: %d of %d ranks have not come%s",
                 (long long)save->step, (int)(self->rank_count - left), (int)self->rank_count,
                 missing > 0 ? ", and nobody else holds what they do" : "");
}

// Whether the copy counts, as far as can be told now.
static bool advance(run_save *save, survey *self)
{
    look(save, self);
    if (run_notes_writer(save, "whole", 0) >= 0 || all(self->committed, self->file_count))
        return true;
    if (all(self->there, self->file_count))
        commit_node(save, self);
    else
        inherit(save, self);
    return false;
}

mics_status run_survivors_commit(run_save *save)
{
    static const double LIMIT_US = 10e6;
    const double begin_us = mics_clock_us();
    survey seen = {0};
    bool counts = false, over = false;
    mics_status status = open_survey(save, &seen);
    for (int wait_ms = 1; status == MICS_OK && !counts && !over; run_save_sleep(&wait_ms)) {
        over = atomic_load(&save->awaited) || atomic_load(&save->given_up) ||
               mics_clock_us() - begin_us > LIMIT_US;
        counts = advance(save, &seen);
    }
    if (status == MICS_OK && !atomic_load(&save->awaited))
        log_outcome(save, &seen, counts);
    if (counts && first_left(save, &seen, 0, seen.rank_count, -1) == own_rank(save))
        (void)run_note_write(save, "whole", 0, 0, 0);
    close_survey(save, &seen);
    return status != MICS_OK || counts ? status : MICS_ERR_TIMEOUT;
}
