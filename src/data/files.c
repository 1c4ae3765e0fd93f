// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "data/files.h"
#include "mics/log.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

mics_status mics_file_open(const char *path, int *file_out, size_t *bytes_out)
{
    struct stat facts;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a FIFO must not block us
    if (file < 0)
        return mics_fail(MICS_ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    const char *wrong = NULL;
    if (fstat(file, &facts) != 0)
        wrong = strerror(errno);
    else if (S_ISDIR(facts.st_mode))
        wrong = "is a folder; name files, or a pattern such as FOLDER/*.txt";
    else if (!S_ISREG(facts.st_mode))
        wrong = "is not a regular file";
    if (wrong != NULL) {
        close(file);
        return mics_fail(MICS_ERR_IO, "%s: %s", path, wrong);
    }
    *file_out = file;
    *bytes_out = (size_t)facts.st_size;
    return MICS_OK;
}

mics_status mics_file_read(const char *path, int file, void *data, size_t bytes, size_t *got_out)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = read(file, (char *)data + done, bytes - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mics_fail(MICS_ERR_IO, "%s: cannot read: %s", path, strerror(errno));
        if (got == 0)
            break;
        done += (size_t)got;
    }
    *got_out = done;
    return MICS_OK;
}

mics_status mics_file_make_folders(const char *path)
{
    char head[PATH_MAX];
    if (snprintf(head, sizeof head, "%s", path) >= (int)sizeof head)
        return mics_fail(MICS_ERR_INVALID, "%s: the path is too long", path);
    for (char *at = head; *at != '\0';) {
        at += strspn(at, "/");
        at += strcspn(at, "/");
        char kept = *at;
        *at = '\0';
        if (mkdir(head, 0777) != 0 && errno != EEXIST)
            return mics_fail(MICS_ERR_IO, "%s: cannot make the folder: %s", head, strerror(errno));
        *at = kept;
    }
    return MICS_OK;
}

mics_status mics_file_sync_folder_of(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t bytes = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    snprintf(folder, sizeof folder, "%.*s", (int)bytes, path);
    int file = open(bytes == 0 ? "." : folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // Some file systems cannot sync a folder (EINVAL); their renames are as safe as they get.
    int wrong = file < 0 || (fsync(file) != 0 && errno != EINVAL) ? errno : 0;
    if (file >= 0)
        close(file);
    if (wrong != 0)
        return mics_fail(MICS_ERR_IO, "%s: cannot sync its folder: %s", path, strerror(wrong));
    return MICS_OK;
}
