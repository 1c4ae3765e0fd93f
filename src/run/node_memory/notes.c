// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "notes.h"
#include "base/clock.h"
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

#define WHOLE "whole"

// A file of that folder. The machines of a run have one byte order.
typedef struct note {
    int64_t step, serial;
    int64_t bytes; // -1: its writer failed
    uint64_t hash;
    int64_t writer; // rank
} note;

typedef struct note_name {
    char text[24];
} note_name;

static note_name name_of(const char *what, int32_t number)
{
    note_name name;
    if (strcmp(what, WHOLE) == 0)
        snprintf(name.text, sizeof name.text, WHOLE);
    else
        snprintf(name.text, sizeof name.text, "%s-%05d", what, (int)number);
    return name;
}

static mics_status folder_of(const mics_job *job, mics_memory *memory, char **folder_out)
{
    return mics_file_join(memory, job->run->out, "node-memory", folder_out);
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

// Whether there is such a note.
static bool read_note(int folder, const char *name, note *note_out)
{
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const bool whole = fd >= 0 && read(fd, note_out, sizeof *note_out) == sizeof *note_out;
    if (fd >= 0)
        close(fd);
    return whole;
}

// ---- of a copy ----

mics_status run_note_write(const run_save *copy, const char *what, int32_t number, int64_t bytes,
                           uint64_t hash)
{
    const mics_job *job = copy->saver->context->job;
    mics_memory *memory = copy->saver->context->rank->memory;
    const note own = {copy->step, job->node.serial, bytes, hash,
                      copy->saver->context->rank->comm->rank};
    char *folder = NULL;
    MICS_TRY(folder_of(job, memory, &folder));
    mics_status status = MICS_OK;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        status = mics_fail(mics_status_of_errno(errno), "%s: cannot make the folder: %s", folder,
                           strerror(errno));
    if (status == MICS_OK)
        status = mics_file_replace(memory, folder, name_of(what, number).text, (const char *)&own,
                                   sizeof own);
    mics_free(memory, folder);
    return status;
}

// The copy's note, if it is there; and what it says of a rank's part.
static bool find_note(const run_save *copy, int folder, const char *what, int32_t number,
                      note *found)
{
    if (!read_note(folder, name_of(what, number).text, found) || found->step != copy->step ||
        found->serial != copy->saver->context->job->node.serial)
        return false;
    if (strcmp(what, "rank") == 0)
        copy->copy.reports[number] = (run_copy_report){.bytes = found->bytes, .hash = found->hash};
    return true;
}

// Reads the notes from *at on that are there; of ranks, that they have written themselves.
static mics_status read_notes(run_save *copy, const char *what, int32_t count, int32_t *at)
{
    const int folder = open_folder(copy->saver->context->job, copy->saver->context->rank->memory);
    mics_status status = MICS_OK;
    note found;
    while (folder >= 0 && status == MICS_OK && *at < count &&
           find_note(copy, folder, what, *at, &found) &&
           (strcmp(what, "rank") != 0 || found.writer == *at)) {
        status = found.bytes < 0 ? MICS_ERR_PEER : MICS_OK;
        (*at)++;
    }
    if (folder >= 0)
        close(folder);
    return status;
}

// A rank that was not asked to stop hears of it when the step ends, and takes part then. Others take
// about as long as this one to write their parts.
mics_status run_notes_await(run_save *copy, const char *what, int32_t count)
{
    static const double LEAST_US = 2e6, OUTLIVING_US = 0.2e6;
    const double begin_us = mics_clock_us(), took_us = begin_us - copy->copy.begin_us,
                 least_us = copy->outlives ? OUTLIVING_US : LEAST_US,
                 patience_us = took_us > least_us ? took_us : least_us;
    int32_t at = 0;
    for (int wait_ms = 1;; run_save_sleep(&wait_ms)) {
        MICS_TRY(read_notes(copy, what, count, &at));
        if (at == count)
            return MICS_OK;
        if (atomic_load(&copy->awaited) || atomic_load(&copy->given_up) ||
            mics_clock_us() - begin_us > patience_us)
            return MICS_ERR_TIMEOUT;
    }
}

static int32_t writer_of(const run_save *copy, int folder, const char *what, int32_t number)
{
    note found;
    return folder >= 0 && find_note(copy, folder, what, number, &found) && found.bytes >= 0
               ? (int32_t)found.writer
               : -1;
}

int32_t run_notes_writer(const run_save *copy, const char *what, int32_t number)
{
    const int folder = open_folder(copy->saver->context->job, copy->saver->context->rank->memory);
    const int32_t writer = writer_of(copy, folder, what, number);
    if (folder >= 0)
        close(folder);
    return writer;
}

void run_notes_survey(const run_save *copy, const char *what, int32_t count, int32_t *writers_out)
{
    const int folder = open_folder(copy->saver->context->job, copy->saver->context->rank->memory);
    for (int32_t i = 0; i < count; i++)
        writers_out[i] = writer_of(copy, folder, what, i);
    if (folder >= 0)
        close(folder);
}

void run_notes_withdraw(const run_save *copy)
{
    const run_context *context = copy->saver->context;
    const int32_t rank = context->rank->comm->rank,
                  ranks = run_world_node_ranks(context->job->world);
    const int folder = open_folder(context->job, context->rank->memory);
    if (folder < 0)
        return;
    unlinkat(folder, name_of("rank", rank).text, 0);
    if (rank % ranks == 0)
        unlinkat(folder, name_of("node", rank / ranks).text, 0);
    if (rank == 0)
        unlinkat(folder, WHOLE, 0);
    close(folder);
}

// ---- from run to run ----

// Or what a killed process left of one.
static bool is_note(const char *name)
{
    return strncmp(name, "rank-", 5) == 0 || strncmp(name, "node-", 5) == 0 ||
           strncmp(name, WHOLE, strlen(WHOLE)) == 0;
}

void run_notes_clear(const mics_job *job)
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
    rmdir(path); // it stays with the files that others have put there
    mics_free(job->memory, path);
}

void run_notes_sweep(const mics_job *job)
{
    note whole;
    if (job->world->first != 0)
        return;
    const int folder = open_folder(job, job->memory);
    if (folder < 0)
        return;
    if ((job->resumes_newest || job->node.taken) && read_note(folder, WHOLE, &whole) &&
        whole.bytes >= 0 && whole.step > job->start_step)
        mics_log(
            MICS_LOG_WARNING,
            "the run was stopped with step %lld in node memory, which these nodes do not have; "
            "it goes on from step %lld",
            (long long)whole.step, (long long)job->start_step);
    close(folder);
    run_notes_clear(job);
}
