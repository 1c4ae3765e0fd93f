// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Reading files: whole ones, and parts by offset.
#include "base/file.h"
#include "mics/log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// A clone without git-lfs, or a snapshot of one, has a few lines of text in place of each large file.
// Source: github.com/git-lfs/git-lfs, docs/spec.md: below 1024 bytes, "version" first; version 1,
// of 2014, and its predecessor's address.
static mics_status check_pointer(int fd, const char *path, int64_t bytes)
{
    static const char *const heads[] = {"version https://git-lfs.", "version http://git-lfs.",
                                        "version https://hawser."};
    enum { MAX_POINTER = 1024 };
    char text[MAX_POINTER + 1];
    if (bytes >= MAX_POINTER)
        return MICS_OK;
    const ssize_t got = pread(fd, text, (size_t)bytes, 0);
    text[got > 0 ? got : 0] = '\0';
    const char *size = strstr(text, "\nsize ");
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        if (strncmp(text, heads[i], strlen(heads[i])) == 0)
            return mics_fail(MICS_ERR_FORMAT,
                             "%s: is a pointer of git-lfs, and not the file, which has %lld bytes; "
                             "fetch it by git lfs pull, or by hf download",
                             path, size != NULL ? strtoll(size + 6, NULL, 10) : 0LL);
    }
    return MICS_OK;
}

static const char *special_text(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a pipe, which would wait for a reader"
                            : "a device or the like";
}

mics_status mics_file_refuse_special(const char *path)
{
    struct stat found;
    if (stat(path, &found) != 0 || S_ISREG(found.st_mode))
        return MICS_OK;
    return mics_fail(MICS_ERR_IO, "%s: is %s, not a regular file; move it away", path,
                     special_text(found.st_mode));
}

mics_status mics_file_open_read(const char *path, int *fd_out, int64_t *bytes_out)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot open: %s", path, strerror(errno));
    struct stat info;
    int cause = fstat(fd, &info) == 0 ? 0 : errno;
    if (cause == 0 && S_ISREG(info.st_mode)) {
        const mics_status status = check_pointer(fd, path, info.st_size);
        if (status != MICS_OK) {
            close(fd);
            return status;
        }
        *fd_out = fd;
        *bytes_out = info.st_size;
        return MICS_OK;
    }
    close(fd);
    if (cause != 0)
        return mics_fail(mics_status_of_errno(cause), "%s: cannot look at it: %s", path,
                         strerror(cause));
    return mics_fail(MICS_ERR_IO, "%s: is %s, not a regular file", path,
                     special_text(info.st_mode));
}

mics_status mics_file_read_up_to(int fd, const char *path, void *data, size_t bytes, int64_t offset,
                                 size_t *got_out)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = pread(fd, (char *)data + done, bytes - done, offset + (int64_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mics_fail(mics_status_of_errno(errno),
                             "%s: offset %lld: cannot read %zu bytes: %s", path,
                             (long long)(offset + (int64_t)done), bytes - done, strerror(errno));
        if (got == 0)
            break;
        done += (size_t)got;
    }
    *got_out = done;
    return MICS_OK;
}

mics_status mics_file_read_at(int fd, const char *path, void *data, size_t bytes, int64_t offset)
{
    size_t got = 0;
    MICS_TRY(mics_file_read_up_to(fd, path, data, bytes, offset, &got));
    if (got < bytes)
        return mics_fail(MICS_ERR_FORMAT, "%s: offset %lld: the file ends %zu bytes too early",
                         path, (long long)(offset + (int64_t)got), bytes - got);
    return MICS_OK;
}

mics_status mics_file_read_whole(mics_memory *memory, const char *path, size_t max_bytes,
                                 char **text_out, size_t *bytes_out)
{
    int fd = -1;
    int64_t bytes = 0;
    char *text = NULL;
    mics_status status = MICS_OK;
    MICS_TRY(mics_file_open_read(path, &fd, &bytes));
    if ((uint64_t)bytes > max_bytes)
        MICS_TRY_OUT(mics_fail(MICS_ERR_FORMAT,
                               "%s: has %lld bytes, more than the %zu expected of it", path,
                               (long long)bytes, max_bytes));
    MICS_TRY_OUT(MICS_NEW(memory, bytes + 1, &text));
    MICS_TRY_OUT(mics_file_read_at(fd, path, text, (size_t)bytes, 0));
    *text_out = text;
    *bytes_out = (size_t)bytes;
    text = NULL;
out:
    mics_free(memory, text);
    close(fd);
    return status;
}
