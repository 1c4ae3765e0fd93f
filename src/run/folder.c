// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Locking a run's folder. The system gives locks up when their holder ends, however it ends.
#include "folder.h"
#include "base/clock.h"
#include "base/file.h"
#include "mics/log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// Ranks whose launcher was killed notice it within seconds.
static const double WAIT_S = 10, LOG_S = 1;
static const char lock_title[] = "mics run ";

enum { POLL_NS = 100 * 1000 * 1000, LOCK_BYTES = 64 };

// ---- locks ----

// Both, or neither. A file system without locks is no reason not to train. Some have one of the two.
static bool try_locks(run_folder *out)
{
    struct flock byte = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    const bool whole = flock(out->folder, LOCK_EX | LOCK_NB) == 0;
    if (!whole && errno == EWOULDBLOCK)
        return false;
    const bool first = fcntl(out->lock_file, F_SETLK, &byte) == 0;
    if (!first && (errno == EACCES || errno == EAGAIN)) {
        (void)flock(out->folder, LOCK_UN);
        return false;
    }
    out->unlocked = !whole && !first;
    return true;
}

static mics_status await_locks(const char *path, run_folder *out)
{
    const double begin_us = mics_clock_us();
    bool said = false;
    while (!try_locks(out)) {
        const double waited_s = (mics_clock_us() - begin_us) / 1e6;
        if (waited_s > WAIT_S)
            return mics_fail(MICS_ERR_INVALID,
                             "%s: another run writes there now; use another --out", path);
        if (waited_s > LOG_S && !said) {
            mics_log(MICS_LOG_INFO, "%s: another run writes there; waits up to %.0f s for its end",
                     path, WAIT_S);
            said = true;
        }
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
    if (out->unlocked)
        mics_log(
            MICS_LOG_WARNING,
            "%s: its file system has no locks (%s), so nothing keeps a second run out; one that "
            "begins there ends this one at its next save",
            path, strerror(errno));
    return MICS_OK;
}

// ---- whose files they are ----

// A lock that was empty is an earlier version's.
static mics_status read_lock(const char *path, int file, char text[LOCK_BYTES])
{
    size_t got = 0;
    MICS_TRY(mics_file_read_up_to(file, path, text, LOCK_BYTES - 1, 0, &got));
    text[got] = '\0';
    if (got == 0 || strncmp(text, lock_title, strlen(lock_title)) == 0)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: was not written by a run, and is not overwritten; use another --out",
                     path);
}

// Whether OUT/metrics.jsonl begins as ours do.
static bool is_metrics(const char *path)
{
    static const char begins[] = "{\"step\": ";
    char text[sizeof begins] = "";
    struct stat found;
    FILE *file = stat(path, &found) == 0 && S_ISREG(found.st_mode) ? fopen(path, "re") : NULL;
    if (file == NULL)
        return false;
    const bool read = fread(text, 1, sizeof begins - 1, file) == sizeof begins - 1;
    (void)fclose(file);
    return read && strcmp(text, begins) == 0;
}

static mics_status check_name(mics_memory *memory, const char *out, const char *name)
{
    char *path = NULL;
    MICS_TRY(mics_file_join(memory, out, name, &path));
    mics_status status = MICS_OK;
    struct stat found;
    if (stat(path, &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode))
        status = mics_file_refuse_special(path);
    else if (stat(path, &found) == 0 && S_ISREG(found.st_mode))
        status = mics_fail(MICS_ERR_INVALID,
                           "%s: the run would overwrite it, and no run has written into that "
                           "folder before; move it away, or use another --out",
                           path);
    mics_free(memory, path);
    return status;
}

// In a folder without a lock, and without a run's checkpoints and metrics, what we would replace is
// somebody else's.
static mics_status check_foreign(mics_memory *memory, const char *out)
{
    static const char *const names[] = {"resolved.json",     "about.json", "run-id",
                                        "metrics.jsonl",     "trace.json", "products.bin",
                                        "checkpoints/latest"};
    char *metrics = NULL;
    MICS_TRY(mics_file_join(memory, out, "metrics.jsonl", &metrics));
    const bool ours = is_metrics(metrics);
    mics_free(memory, metrics);
    for (size_t i = 0; !ours && i < sizeof names / sizeof names[0]; i++)
        MICS_TRY(check_name(memory, out, names[i]));
    return MICS_OK;
}

// ---- opening ----

static mics_status write_mark(const char *path, run_folder *out)
{
    char text[LOCK_BYTES];
    if (getrandom(&out->mark, sizeof out->mark, 0) != (ssize_t)sizeof out->mark)
        return mics_fail(MICS_ERR_IO, "%s: no random number: %s", path, strerror(errno));
    const int bytes =
        snprintf(text, sizeof text, "%s%016llx\n", lock_title, (unsigned long long)out->mark);
    MICS_TRY(mics_file_write_at(out->lock_file, path, text, (size_t)bytes, 0));
    // Other nodes read it.
    return mics_file_sync(out->lock_file, path);
}

static mics_status open_files(const char *path, const char *lock, bool *new_out, run_folder *out)
{
    out->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    out->lock_file = open(lock, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    *new_out = out->lock_file >= 0;
    if (out->lock_file < 0 && errno == EEXIST)
        out->lock_file = open(lock, O_RDWR | O_CLOEXEC);
    if (out->lock_file < 0 || out->folder < 0)
        return mics_fail(mics_status_of_errno(errno), "%s: %s; give an --out that can be written",
                         lock, strerror(errno));
    return MICS_OK;
}

static mics_status lock_it(mics_memory *memory, const char *path, const char *lock, bool marks,
                           bool holds_run, run_folder *out)
{
    char text[LOCK_BYTES];
    bool is_new = false;
    MICS_TRY(mics_file_make_dirs(memory, path, &out->made_folders));
    MICS_TRY(open_files(path, lock, &is_new, out));
    MICS_TRY(await_locks(path, out));
    MICS_TRY(read_lock(lock, out->lock_file, text));
    mics_status status = MICS_OK;
    if (is_new && !holds_run)
        status = check_foreign(memory, path);
    out->made = is_new && status == MICS_OK; // else what is there may be somebody else's
    if (status != MICS_OK)
        (void)unlink(lock); // lest the folder count as a run's next time
    return status == MICS_OK && (is_new || marks || out->unlocked) ? write_mark(lock, out) : status;
}

static mics_status find_lock(const char *lock, run_folder *out)
{
    char text[LOCK_BYTES];
    out->lock_file = open(lock, O_RDONLY | O_CLOEXEC);
    if (out->lock_file < 0)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: %s; run.out must be one folder that all ranks see, and rank 0 has "
                         "locked it",
                         lock, strerror(errno));
    MICS_TRY(read_lock(lock, out->lock_file, text));
    out->mark = strtoull(text + (*text != '\0' ? strlen(lock_title) : 0), NULL, 16);
    return MICS_OK;
}

mics_status run_folder_lock(mics_memory *memory, const char *path, run_folder_role role,
                            bool holds_run, run_folder *out)
{
    char *lock = NULL;
    MICS_TRY(mics_file_join(memory, path, "lock", &lock));
    const mics_status status =
        role == RUN_FOLDER_OTHER
            ? find_lock(lock, out)
            : lock_it(memory, path, lock, role == RUN_FOLDER_FIRST, holds_run, out);
    mics_free(memory, lock);
    return status;
}

static bool has_name(mics_memory *memory, const char *folder, const char *name)
{
    char *path = NULL;
    const bool there =
        mics_file_join(memory, folder, name, &path) != MICS_OK || access(path, F_OK) == 0;
    mics_free(memory, path);
    return there;
}

void run_folder_forget(mics_memory *memory, const char *path, const run_folder *out)
{
    static const char *const names[] = {"run-id", "metrics.jsonl", "trace.json", "checkpoints"};
    static const char *const ours[] = {"resolved.json", "about.json", "lock"};
    char *name = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (has_name(memory, path, names[i]))
            return;
    }
    for (size_t i = 0; out->made && i < sizeof ours / sizeof ours[0]; i++) {
        if (mics_file_join(memory, path, ours[i], &name) == MICS_OK)
            (void)unlink(name);
        mics_free(memory, name);
        name = NULL;
    }
    mics_file_remove_dirs(memory, path, out->made_folders);
}

mics_status run_folder_check_mark(const char *path, const run_folder *out)
{
    char lock[4096], text[LOCK_BYTES] = "";
    if (!out->unlocked)
        return MICS_OK;
    snprintf(lock, sizeof lock, "%s/lock", path);
    const int file = open(lock, O_RDONLY | O_CLOEXEC); // by its name: it may be another one now
    const ssize_t got = file >= 0 ? read(file, text, sizeof text - 1) : 0;
    if (file >= 0)
        close(file);
    if (got <= (ssize_t)strlen(lock_title) || strncmp(text, lock_title, strlen(lock_title)) != 0 ||
        strtoull(text + strlen(lock_title), NULL, 16) == out->mark)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: another run has begun there, which its file system's locks did not keep "
                     "out; nothing more is saved there; start again with another --out",
                     path);
}

void run_folder_unlock(run_folder *out)
{
    if (out->lock_file >= 0)
        close(out->lock_file);
    if (out->folder >= 0)
        close(out->folder);
    *out = RUN_FOLDER_NONE;
}
