// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/remote/download.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/size.h"
#include "io/remote/digest.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WAIT_MS = 100, TELL_MS = 10000 };

// A download under way.
typedef struct download {
    const remote_file *file;
    const char *path; // of what is incomplete
    int fd;
    mics_status status;  // of `take`
    int64_t done, begun; // bytes; `begun`: of them by an earlier process
    double begun_us, told_us;
} download;

mics_status remote_path(char path[REMOTE_PATH_BYTES], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int bytes = vsnprintf(path, REMOTE_PATH_BYTES, format, args);
    va_end(args);
    return bytes >= 0 && bytes < REMOTE_PATH_BYTES
               ? MICS_OK
               : mics_fail(MICS_ERR_INVALID, "%.80s...: is longer than a path may be", path);
}

mics_status remote_cache_of(const char *name, char path[REMOTE_PATH_BYTES])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache != NULL && *cache != '\0')
        return remote_path(path, "%s/%s", cache, name);
    if (home != NULL && *home != '\0')
        return remote_path(path, "%s/.cache/%s", home, name);
    return mics_fail(MICS_ERR_INVALID, "HOME and XDG_CACHE_HOME are not set, so nobody knows where "
                                       "to keep what is downloaded; set one");
}

mics_status remote_make_folder_of(mics_memory *memory, const char *path)
{
    char folder[REMOTE_PATH_BYTES];
    MICS_TRY(remote_path(folder, "%.*s", (int)(strrchr(path, '/') - path), path));
    return mics_file_make_dirs(memory, folder, NULL);
}

// ---- several processes ----

// The one that downloads writes into the lock how far it is.
static void tell_other(int lock, const char *shown)
{
    char line[REMOTE_PATH_BYTES];
    const ssize_t bytes = pread(lock, line, sizeof line - 1, 0);
    if (bytes > 0)
        mics_log(MICS_LOG_INFO, "%.*s", (int)bytes, line);
    else
        mics_log(MICS_LOG_INFO, "%s: waits for another process, which downloads it", shown);
}

mics_status remote_lock(mics_memory *memory, const char *path, const char *shown, int *lock_out)
{
    int failed = 0;
    MICS_TRY(remote_make_folder_of(memory, path));
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    for (int ms = 0; fd >= 0 && (failed = flock(fd, LOCK_EX | LOCK_NB)) != 0; ms += WAIT_MS) {
        if (errno != EWOULDBLOCK)
            break;
        if (ms % TELL_MS == 0)
            tell_other(fd, shown);
        nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000}, NULL);
    }
    if (fd >= 0 && failed == 0 && (failed = ftruncate(fd, 0)) == 0) {
        *lock_out = fd;
        return MICS_OK;
    }
    const int cause = errno;
    if (fd >= 0)
        close(fd);
    return mics_fail(mics_status_of_errno(cause),
                     "%s: cannot lock it: %s; name a file system that can be written and has locks "
                     "in HF_HOME (hf://) or XDG_CACHE_HOME, or say --offline",
                     path, strerror(cause));
}

static void tell(download *self, int64_t all)
{
    char line[REMOTE_PATH_BYTES], done[32], whole[32], rate[32];
    const double now = mics_clock_us(), seconds = (now - self->begun_us) / 1e6;
    if (now - self->told_us < TELL_MS * 1e3)
        return;
    self->told_us = now;
    snprintf(line, sizeof line, "%.2000s: %s of %s, %s/s", self->file->shown,
             mics_size_text((double)self->done, done, sizeof done),
             all >= 0 ? mics_size_text((double)all, whole, sizeof whole) : "an unknown size",
             mics_size_text((double)(self->done - self->begun) / seconds, rate, sizeof rate));
    mics_log(MICS_LOG_INFO, "%s", line);
    if (ftruncate(self->file->lock, 0) == 0)
        (void)!pwrite(self->file->lock, line, strlen(line), 0);
}

// ---- disks ----

static int64_t bytes_of(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 ? (int64_t)found.st_size : -1;
}

int64_t remote_missing_bytes(const char *path, int64_t bytes)
{
    char part[REMOTE_PATH_BYTES];
    if (bytes_of(path) >= 0 || remote_path(part, "%s.incomplete", path) != MICS_OK)
        return 0;
    const int64_t there = bytes_of(part);
    return bytes - (there > 0 && there < bytes ? there : 0);
}

mics_status remote_check_disk(const char *folder, int64_t bytes, const char *shown)
{
    char needed[32], there[32];
    int64_t free_bytes = 0;
    if (!mics_file_free_bytes(folder, &free_bytes) || free_bytes >= bytes)
        return MICS_OK;
    return mics_fail(MICS_ERR_FULL,
                     "%s: %s are to come, and %s has %s free; name a larger disk in "
                     "HF_HOME (hf://) or XDG_CACHE_HOME",
                     shown, mics_size_text((double)bytes, needed, sizeof needed), folder,
                     mics_size_text((double)free_bytes, there, sizeof there));
}

// ---- bytes ----

// Before the first bytes of a response.
static mics_status begin_body(download *self, const remote_response *response)
{
    const remote_file *file = self->file;
    if (response->status != 206) { // all of it comes again
        self->done = self->begun = 0;
        MICS_TRY(mics_file_resize(self->fd, self->path, 0));
    } else if (response->begin != self->done) {
        return mics_fail(MICS_ERR_FORMAT, "%s: byte %lld was asked for, and byte %lld came",
                         file->shown, (long long)self->done, (long long)response->begin);
    }
    if (file->etag != NULL && strcmp(file->etag, response->etag) != 0)
        return mics_fail(MICS_ERR_FORMAT, "%s: has changed while it was downloaded; try again",
                         file->shown);
    if (file->bytes >= 0 && response->bytes >= 0 && response->bytes != file->bytes)
        return mics_fail(MICS_ERR_FORMAT, "%s: has %lld bytes, and %lld were promised", file->shown,
                         (long long)response->bytes, (long long)file->bytes);
    return MICS_OK;
}

static bool take(void *ctx, const remote_response *response, const void *data, size_t bytes)
{
    download *self = ctx;
    if (response->taken == 0)
        self->status = begin_body(self, response);
    if (self->status == MICS_OK)
        self->status = mics_file_write_at(self->fd, self->path, data, bytes, self->done);
    self->done += (int64_t)bytes;
    tell(self, response->bytes);
    return self->status == MICS_OK;
}

static mics_status check(const download *self)
{
    const remote_file *file = self->file;
    const size_t bytes = (size_t)self->done;
    char text[REMOTE_DIGEST_TEXT_BYTES];
    if (file->bytes >= 0 && self->done != file->bytes)
        return mics_fail(MICS_ERR_FORMAT, "%s: %lld bytes came of %lld", file->shown,
                         (long long)self->done, (long long)file->bytes);
    if (file->sha256 == NULL)
        return MICS_OK;
    void *data = bytes > 0 ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, self->fd, 0) : NULL;
    if (data == MAP_FAILED)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot map it: %s", self->path,
                         strerror(errno));
    const mics_status status = remote_sha256(data, bytes, text);
    if (data != NULL)
        munmap(data, bytes);
    MICS_TRY(status);
    return strcmp(text, file->sha256) == 0
               ? MICS_OK
               : mics_fail(MICS_ERR_FORMAT,
                           "%s: what came has the SHA-256 %s, and not %s, so it is removed; try "
                           "again, and look for a proxy that changes files",
                           file->shown, text, file->sha256);
}

static mics_status request_rest(remote_http *http, download *self)
{
    const remote_file *file = self->file;
    remote_request request = {.url = file->url,
                              .done = &self->done,
                              .if_range = file->if_range,
                              .take = take,
                              .ctx = self};
    remote_response response;
    memcpy(request.headers, file->headers, sizeof request.headers);
    if (self->done == file->bytes)
        return check(self);
    const char *why = remote_http_send(http, &request, &response);
    MICS_TRY(self->status);
    if (why != NULL)
        return mics_fail(MICS_ERR_COMM, "%s: no answer came%s: %s; %s", file->shown,
                         self->done > 0 ? " to the end" : "", why,
                         self->done > 0 ? "the next call goes on there"
                                        : "look at the address, the network and https_proxy");
    return response.status / 100 == 2 ? check(self)
                                      : file->refuse(file->ctx, file->shown, &response);
}

mics_status remote_download(remote_http *http, const remote_file *file, const char *path)
{
    char part[REMOTE_PATH_BYTES];
    download self = {.file = file, .path = part, .begun_us = mics_clock_us()};
    if (access(path, F_OK) == 0)
        return MICS_OK;
    self.told_us = self.begun_us;
    MICS_TRY(remote_path(part, "%s.incomplete", path));
    self.fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (self.fd < 0)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot create: %s", part,
                         strerror(errno));
    const int64_t there = bytes_of(part);
    const bool known = file->sha256 != NULL || file->if_range != NULL;
    self.done = self.begun = known && there <= file->bytes ? there : 0;
    mics_status status = mics_file_resize(self.fd, part, self.done);
    if (status == MICS_OK)
        status = request_rest(http, &self);
    status = mics_file_close_written(self.fd, part, status);
    if (status == MICS_ERR_FORMAT || (status != MICS_OK && self.done == 0))
        (void)unlink(part);
    return status == MICS_OK ? mics_file_rename(part, path) : status;
}
