// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Space for checkpoints.
#include "disk_space.h"
#include "base/file.h"
#include "base/size.h"
#include "io/remote/remote.h"
#include "mics/log.h"
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int64_t run_disk_space_needed(const mics_job *job)
{
    enum { HEADER_BYTES = 4096, MANIFEST_BYTES = 16384 };
    const int32_t states = mics_optimizer_def_get(job->run->optimizer.kind)->states,
                  units = job->model->unit_count;
    const int64_t files = job->world->ranks;
    int64_t elems = 0;
    for (int32_t unit = 0; unit < units; unit++)
        elems += job->model->units[unit].frozen ? 0 : job->model->units[unit].elems;
    return elems * (1 + states) * (int64_t)sizeof(float) + files * HEADER_BYTES + MANIFEST_BYTES;
}

// ---- what is there ----

// What the files of a folder take of the disk; 0: there is no such folder.
static int64_t used_by(int parent, const char *name)
{
    const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    struct stat info;
    int64_t bytes = 0;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode))
            bytes += (int64_t)info.st_blocks * 512;
    }
    if (folder != NULL)
        closedir(folder);
    else if (fd >= 0)
        close(fd);
    return bytes;
}

// Checkpoints that are there, and what they take.
static int64_t find_kept(const char *dir, int64_t *bytes_out)
{
    DIR *folder = opendir(dir);
    const struct dirent *entry;
    int64_t count = 0;
    *bytes_out = 0;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (strncmp(entry->d_name, "step-", 5) != 0)
            continue;
        *bytes_out += used_by(dirfd(folder), entry->d_name);
        count++;
    }
    if (folder != NULL)
        closedir(folder);
    return count;
}

// ---- the start ----

// Checkpoints that are on disk at once; the oldest goes once the newest is good.
static int64_t planned(const mics_job *job, int64_t kept)
{
    const mics_run *run = job->run;
    const int64_t every = run->checkpoint_every, first = job->start_step, last = run->steps;
    const int64_t due = every > 0 ? last / every - first / every + (last % every != 0) : 1;
    const int64_t most = run->keep_checkpoints + 1;
    return run->keep_checkpoints > 0 && most < kept + due ? most : kept + due;
}

void run_disk_space_warn(const mics_job *job)
{
    const mics_run *run = job->run;
    char each[32], all[32], there[32], advice[96] = "";
    int64_t kept_bytes = 0, free_bytes = 0;
    if (job->world->first != 0 || mics_remote_is_bucket(job->checkpoints_dir) ||
        !mics_file_free_bytes(run->out, &free_bytes))
        return;
    const int64_t kept = find_kept(job->checkpoints_dir, &kept_bytes), count = planned(job, kept),
                  of_one = run_disk_space_needed(job), fits = (free_bytes + kept_bytes) / of_one;
    if (fits >= count)
        return;
    if (run->keep_checkpoints > 1 && fits > 1)
        snprintf(advice, sizeof advice, ", set run.keep_checkpoints %lld", (long long)fits - 1);
    mics_log(MICS_LOG_WARNING,
             "%s: its file system has %s for checkpoints, and run.keep_checkpoints %lld takes %s "
             "for %lld of %s; a save that finds no space %s; free space there%s, or use another "
             "--out",
             run->out, mics_size_text((double)(free_bytes + kept_bytes), there, sizeof there),
             (long long)run->keep_checkpoints,
             mics_size_text((double)(count * of_one), all, sizeof all), (long long)count,
             mics_size_text((double)of_one, each, sizeof each),
             run->keep_checkpoints > 0 && fits > 1 ? "removes the oldest, or stays in node memory"
                                                   : "stays in node memory",
             advice);
}

// ---- a save ----

// What is left to write of a checkpoint, with what other ranks have written.
static bool has_space(const run_save *save)
{
    char name[64];
    int64_t free_bytes = 0;
    const int dir = open(save->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(name, sizeof name, "step-%08lld", (long long)save->step);
    const int64_t written = dir >= 0 ? used_by(dir, name) : 0;
    if (dir >= 0)
        close(dir);
    return mics_file_free_bytes(save->dir, &free_bytes) &&
           free_bytes + written >= run_disk_space_needed(save->saver->context->job);
}

enum { MAX_TRIES = 5 };

bool run_disk_space_make(const run_save *save, run_disk_space *tried)
{
    const run_context *context = save->saver->context;
    const int64_t good = atomic_load(&save->saver->good);
    int64_t removed = RUN_NO_STEP;
    if (!tried->waited && has_space(save)) {
        tried->waited = true;
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000000L}, NULL);
        return true;
    }
    tried->waited = false;
    if (context->job->run->keep_checkpoints == 0 || good == RUN_NO_STEP ||
        mics_checkpoint_remove_oldest(context->rank->memory, save->dir, good, &removed) != MICS_OK)
        return false;
    if (removed == RUN_NO_STEP) // another rank may have removed it just now
        return tried->tries++ < MAX_TRIES && has_space(save);
    mics_log(MICS_LOG_WARNING, "%s: has no space for step %lld; step %lld, the oldest, is removed",
             save->dir, (long long)save->step, (long long)removed);
    return true;
}
