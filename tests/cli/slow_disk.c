// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Preloaded: a disk that takes MICS_TEST_DISK_S seconds for each rank file of a checkpoint.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int fsync(int fd);

int fsync(int fd)
{
    const char *seconds = getenv("MICS_TEST_DISK_S");
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t bytes = readlink(link, path, sizeof path - 1);
    if (seconds != NULL && bytes > 0 && strstr(path, "/checkpoints/") != NULL &&
        strstr(path, "rank-") != NULL) {
        const struct timespec length = {.tv_sec = strtol(seconds, NULL, 10)};
        nanosleep(&length, NULL);
    }
    return (int)syscall(SYS_fsync, fd);
}
