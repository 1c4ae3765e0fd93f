// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Preloaded: a disk that takes MICS_TEST_DISK_S seconds for each rank file of a checkpoint. Of the
// file MICS_TEST_FILE, which is given as step-00000010/rank-00002.safetensors, it takes MICS_TEST_FOLDER_S
// seconds until its folder is on disk, or it loses it once it has its name (MICS_TEST_LOSES), or the
// process is killed before that (MICS_TEST_KILLS). Files whose path has MICS_TEST_SLOW in it take
// MICS_TEST_SLOW_S seconds to be opened, or removed, each, after a line on standard error.
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int fsync(int fd);
int rename(const char *from, const char *to);

static _Thread_local bool
    named; // the thread has given the file its name, and syncs its folder next

static void sleep_for(const char *variable)
{
    const char *seconds = getenv(variable);
    const struct timespec length = {.tv_sec = seconds != NULL ? strtol(seconds, NULL, 10) : 0};
    nanosleep(&length, NULL);
}

static void open_slowly(const char *path)
{
    const char *slow = getenv("MICS_TEST_SLOW");
    if (slow == NULL || strstr(path, slow) == NULL)
        return;
    fprintf(stderr, "slow: %s\n", path);
    sleep_for("MICS_TEST_SLOW_S");
}

int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const unsigned int mode = (flags & O_CREAT) != 0 ? va_arg(more, unsigned int) : 0;
    va_end(more);
    open_slowly(path);
    return openat(AT_FDCWD, path, flags, mode);
}

int fsync(int fd)
{
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t bytes = readlink(link, path, sizeof path - 1);
    if (bytes > 0 && strstr(path, "/checkpoints/") != NULL && strstr(path, "rank-") != NULL)
        sleep_for("MICS_TEST_DISK_S");
    if (named)
        sleep_for("MICS_TEST_FOLDER_S");
    named = false;
    return (int)syscall(SYS_fsync, fd);
}

static bool is_meant(const char *path)
{
    const char *file = getenv("MICS_TEST_FILE");
    const size_t bytes = file != NULL ? strlen(file) : 0, all = strlen(path);
    return bytes > 0 && bytes <= all && strcmp(path + all - bytes, file) == 0;
}

int rename(const char *from, const char *to)
{
    const bool meant = is_meant(to);
    if (meant && getenv("MICS_TEST_KILLS") != NULL)
        (void)raise(SIGKILL);
    const int result = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    named = named || meant;
    if (meant && getenv("MICS_TEST_LOSES") != NULL)
        (void)unlink(to);
    return result;
}
