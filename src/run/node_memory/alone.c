// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A copy in node memory from the middle of a step.
#include "alone.h"
#include "base/file.h"
#include "mics/log.h"
#include "node_memory.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "node-memory"
#define WHOLE "whole"

// A file of that folder. The machines of a run have one byte order.
typedef struct alone_note {
    int64_t step, serial;
    int64_t bytes; // -1: it could not
    uint64_t hash;
} alone_note;

typedef struct note_name {
    char text[24];
} note_name;

static note_name name_of(const char *what, int32_t number)
{
    note_name name;
    snprintf(name.text, sizeof name.text, "%s-%05d", what, (int)number);
    return name;
}

// ---- notes ----

static mics_status folder_of(const mics_job *job, mics_memory *memory, char **folder_out)
{
    return mics_file_join(memory, job->run->out, FOLDER, folder_out);
}

static mics_status write_note(const run_alone *alone, const char *name, int64_t bytes,
                              uint64_t hash)
{
    const run_context *self = alone->copy.of->context;
    mics_memory *memory = self->rank->memory;
    const alone_note note = {alone->copy.step, self->job->node.serial, bytes, hash};
    char *folder = NULL;
    MICS_TRY(folder_of(self->job, memory, &folder));
    mics_status status = MICS_OK;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        status = mics_fail(mics_status_of_errno(errno), "%s: cannot make the folder: %s", folder,
                           strerror(errno));
    if (status == MICS_OK)
        status = mics_file_replace(memory, folder, name, (const char *)&note, sizeof note);
    mics_free(memory, folder);
    return status;
}

// Whether there is such a note.
static bool read_note(int folder, const char *name, alone_note *note_out)
{
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const bool whole = fd >= 0 && read(fd, note_out, sizeof *note_out) == sizeof *note_out;
    if (fd >= 0)
        close(fd);
    return whole;
}

// The same, of this copy.
static bool find_note(const run_alone *alone, int folder, const char *name, alone_note *note_out)
{
    return read_note(folder, name, note_out) && note_out->step == alone->copy.step &&
           note_out->serial == alone->copy.of->context->job->node.serial;
}

// Opened, a folder is read anew over a network. -1: there is none.
static int open_folder(const mics_job *job, mics_memory *memory)
{
    char *path = NULL;
    if (folder_of(job, memory, &path) != MICS_OK)
        return -1;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    mics_free(memory, path);
    return fd;
}

// ---- a copy ----

mics_status run_alone_begin(run_alone *alone, run_copies *copies, int64_t step)
{
    mics_node_file file = {0};
    *alone = (run_alone){.copy = {.of = copies, .step = step}};
    const bool before = mics_log_demote(true);
    mics_status status = run_copy_open(&alone->copy);
    if (status == MICS_OK) {
        const bool wrote = run_copy_write(&alone->copy, &file) == MICS_OK;
        status = write_note(alone, name_of("rank", copies->context->rank->comm->rank).text,
                            wrote ? file.bytes : -1, file.hash);
    }
    mics_log_demote(before);
    return status;
}

// The first rank of a node: waits for the parts of all ranks, as the manifest lists them.
static void look_for_ranks(run_alone *alone, int folder)
{
    const run_context *self = alone->copy.of->context;
    alone_note note;
    while (!alone->failed && alone->seen < self->rank->comm->ranks &&
           find_note(alone, folder, name_of("rank", alone->seen).text, &note)) {
        alone->copy.reports[alone->seen++] =
            (run_copy_report){.bytes = note.bytes, .hash = note.hash};
        alone->failed = note.bytes < 0;
    }
    if (!alone->failed && alone->seen < self->rank->comm->ranks)
        return;
    const bool before = mics_log_demote(true);
    if (!alone->failed)
        alone->failed = run_copy_commit(&alone->copy, false) != MICS_OK;
    const int32_t node = self->rank->comm->rank / run_world_node_ranks(self->job->world);
    // Where this fails, all wait until the step ends.
    (void)write_note(alone, name_of("node", node).text, alone->failed ? -1 : 0, 0);
    mics_log_demote(before);
    alone->told = true;
    alone->seen = 0;
}

// Rank 0.
static void look_for_nodes(run_alone *alone, int folder)
{
    const run_context *self = alone->copy.of->context;
    const int32_t nodes = self->rank->comm->ranks / run_world_node_ranks(self->job->world);
    alone_note note;
    if (alone->seen > nodes)
        return;
    while (!alone->failed && alone->seen < nodes &&
           find_note(alone, folder, name_of("node", alone->seen).text, &note)) {
        alone->seen++;
        alone->failed = note.bytes < 0;
    }
    if (!alone->failed && alone->seen < nodes)
        return;
    const bool before = mics_log_demote(true);
    (void)write_note(alone, WHOLE, alone->failed ? -1 : 0, 0);
    mics_log_demote(before);
    alone->seen = nodes + 1;
}

run_alone_state run_alone_look(run_alone *alone)
{
    const run_context *self = alone->copy.of->context;
    const int folder = open_folder(self->job, self->rank->memory);
    alone_note note;
    run_alone_state state = RUN_ALONE_WAITS;
    if (folder < 0)
        return state;
    if (run_copy_leads(self) && !alone->told)
        look_for_ranks(alone, folder);
    if (self->rank->comm->rank == 0 && alone->told)
        look_for_nodes(alone, folder);
    if (find_note(alone, folder, WHOLE, &note))
        state = note.bytes < 0 ? RUN_ALONE_FAILED : RUN_ALONE_KEPT;
    close(folder);
    return state;
}

void run_alone_end(run_alone *alone)
{
    if (alone->copy.of != NULL)
        run_copy_close(&alone->copy);
    *alone = (run_alone){0};
}

void run_alone_send(run_copies *copies)
{
    const run_context *context = copies->context;
    const run_alone alone = {.copy = {.of = copies, .step = context->progress->step}};
    const bool before = mics_log_demote(true);
    if (run_is_rank_0(context))
        (void)write_note(&alone, WHOLE, 0, 0);
    mics_log_demote(before);
}

// ---- giving up ----

void run_alone_drop(const run_copies *copies)
{
    const run_context *context = copies->context;
    const mics_job *job = context->job;
    const int32_t rank = context->rank->comm->rank, ranks = run_world_node_ranks(job->world);
    mics_memory *memory = context->rank->memory;
    char *slot = NULL;
    if (run_copy_leads(context) &&
        mics_node_slot(memory, job->node.root, run_world_node_number(job->world, rank),
                       copies->slot, &slot) == MICS_OK)
        mics_node_remove(slot);
    mics_free(memory, slot);
    const int folder = open_folder(job, memory);
    if (folder < 0)
        return;
    unlinkat(folder, name_of("rank", rank).text, 0);
    if (run_copy_leads(context))
        unlinkat(folder, name_of("node", rank / ranks).text, 0);
    if (rank == 0)
        unlinkat(folder, WHOLE, 0);
    close(folder);
}

// ---- from run to run ----

// Or what a killed process left of one.
static bool is_note(const char *name)
{
    static const char *const begins[] = {"rank-", "node-", WHOLE};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        if (strncmp(name, begins[i], strlen(begins[i])) == 0)
            return true;
    }
    return false;
}

void run_node_alone_clear(const mics_job *job)
{
    char *path = NULL;
    if (job->world->first != 0 || folder_of(job, job->memory, &path) != MICS_OK)
        return;
    DIR *folder = opendir(path);
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (is_note(entry->d_name))
            unlinkat(dirfd(folder), entry->d_name, 0);
    }
    if (folder != NULL)
        closedir(folder);
    rmdir(path); // with what others have put there it stays
    mics_free(job->memory, path);
}

void run_node_alone_sweep(const mics_job *job)
{
    alone_note note;
    if (job->world->first != 0)
        return;
    const int folder = open_folder(job, job->memory);
    if (folder < 0)
        return;
    if ((job->resumes_newest || job->node.taken) && read_note(folder, WHOLE, &note) &&
        note.bytes >= 0 && note.step > job->start_step)
        mics_log(
            MICS_LOG_WARNING,
            "the run was stopped with step %lld in node memory, which these nodes do not have; "
            "it goes on from step %lld",
            (long long)note.step, (long long)job->start_step);
    close(folder);
    run_node_alone_clear(job);
}
