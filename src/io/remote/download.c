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

enum { WAIT_MS = 100, PROGRESS_MS = 10000, LINE_BYTES = 1024 };

// A download under way.
typedef struct download {
    const remote_file *file;
    const char *path; // of what is incomplete
    int fd;
    mics_status status; // of `take`
    int64_t done;       // bytes
    double logged_us;
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
    return mics_fail(MICS_ERR_INVALID, "nobody says where to keep downloads; set HOME");
}

mics_status remote_make_folder_of(mics_memory *memory, const char *path)
{
    char folder[REMOTE_PATH_BYTES];
    MICS_TRY(remote_path(folder, "%.*s", (int)(strrchr(path, '/') - path), path));
    return mics_file_make_dirs(memory, folder, NULL);
}

// ---- several processes ----

// The one that downloads writes into the lock how far it is.
mics_status remote_lock(mics_memory *memory, const char *path, const char *shown, int *lock_out)
{
    char line[LINE_BYTES];
    int cause = 0;
    MICS_TRY(remote_make_folder_of(memory, path));
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    for (int ms = 0; fd >= 0 && (cause = flock(fd, LOCK_EX | LOCK_NB)) != 0; ms += WAIT_MS) {
        if (errno != EWOULDBLOCK)
            break;
        const ssize_t bytes = ms % PROGRESS_MS == 0 ? pread(fd, line, sizeof line, 0) : -1;
        if (bytes >= 0)
            mics_log(MICS_LOG_INFO, "%s: waits for another process, which downloads it%.*s", shown,
                     (int)bytes, line);
        nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000}, NULL);
    }
    if (fd >= 0 && cause == 0 && ftruncate(fd, 0) == 0) {
        *lock_out = fd;
        return MICS_OK;
    }
    cause = errno;
    if (fd >= 0)
        close(fd);
    return mics_fail(mics_status_of_errno(cause),
                     "%s: cannot lock it: %s; name another file system in HF_HOME (hf://) or "
                     "XDG_CACHE_HOME, or say --offline",
                     path, strerror(cause));
}

static void log_progress(download *self, int64_t all)
{
    char line[LINE_BYTES], done[32], whole[32] = "an unknown size";
    const double now = mics_clock_us();
    if (now - self->logged_us < PROGRESS_MS * 1e3)
        return;
    self->logged_us = now;
    if (all >= 0)
        mics_size_text((double)all, whole, sizeof whole);
    snprintf(line, sizeof line, ": %s of %s", mics_size_text((double)self->done, done, sizeof done),
             whole);
    mics_log(MICS_LOG_INFO, "%s%s", self->file->shown, line);
    if (ftruncate(self->file->lock, 0) == 0)
        (void)!pwrite(self->file->lock, line, strlen(line), 0);
}

// ---- disks ----

int64_t remote_missing_bytes(const char *path, int64_t bytes)
{
    char part[REMOTE_PATH_BYTES];
    struct stat found = {.st_size = 0};
    if (access(path, F_OK) == 0 || remote_path(part, "%s.incomplete", path) != MICS_OK)
        return 0;
    (void)stat(part, &found);
    return bytes - (found.st_size < bytes ? found.st_size : 0);
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
        self->done = 0;
        MICS_TRY(mics_file_resize(self->fd, self->path, 0));
    }
    if ((response->status == 206 && response->begin != self->done) ||
        (file->etag != NULL && strcmp(file->etag, response->etag) != 0) ||
        (file->bytes >= 0 && response->bytes >= 0 && response->bytes != file->bytes))
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: %lld bytes came from byte %lld on, and %lld were promised; it has "
                         "changed meanwhile: try again",
                         file->shown, (long long)response->bytes, (long long)self->done,
                         (long long)file->bytes);
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
    log_progress(self, response->bytes);
    return self->status == MICS_OK;
}

static mics_status check(const download *self)
{
    const remote_file *file = self->file;
    const size_t bytes = (size_t)self->done;
    char text[REMOTE_CHECKSUM_BYTES];
    if (file->bytes >= 0 && self->done != file->bytes)
        return mics_fail(MICS_ERR_FORMAT, "%s: %lld bytes came of %lld", file->shown,
                         (long long)self->done, (long long)file->bytes);
    const bool by_s3 = file->checksum != NULL && file->checksum[0] != '\0';
    const char *promised = by_s3 ? file->checksum : file->sha256;
    if (promised == NULL || bytes == 0)
        return MICS_OK;
    void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, self->fd, 0);
    if (data == MAP_FAILED)
        return mics_fail(mics_status_of_errno(errno), "%s: %s", self->path, strerror(errno));
    const mics_status status =
        by_s3 ? remote_checksum(promised, data, bytes, text) : remote_sha256(data, bytes, text);
    munmap(data, bytes);
    MICS_TRY(status);
    return strcmp(text, promised) == 0
               ? MICS_OK
               : mics_fail(MICS_ERR_FORMAT,
                           "%s: what came has the %s%s, and not %s, so it is removed; try "
                           "again, and look for a proxy that changes files",
                           file->shown, by_s3 ? "" : "SHA-256 ", text, promised);
}

static mics_status request_rest(remote_http *http, download *self)
{
    const remote_file *file = self->file;
    remote_request request = {.url = file->url,
                              .done = &self->done,
                              .if_range = file->if_range,
                              .is_signed = file->is_signed,
                              .shown = file->shown,
                              .take = take,
                              .ctx = self};
    remote_response response;
    memcpy(request.headers, file->headers, sizeof request.headers);
    MICS_TRY(mics_file_resize(self->fd, self->path, self->done));
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
    struct stat found;
    download self = {.file = file, .path = part, .logged_us = mics_clock_us()};
    if (access(path, F_OK) == 0)
        return MICS_OK;
    MICS_TRY(remote_path(part, "%s.incomplete", path));
    self.fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (self.fd < 0 || fstat(self.fd, &found) != 0)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot create: %s", part,
                         strerror(errno));
    const bool known = file->sha256 != NULL || file->if_range != NULL;
    self.done = known && found.st_size <= file->bytes ? found.st_size : 0;
    const mics_status status = mics_file_close_written(self.fd, part, request_rest(http, &self));
    if (status == MICS_ERR_FORMAT || (status != MICS_OK && self.done == 0))
        (void)unlink(part);
    return status == MICS_OK ? mics_file_rename(part, path) : status;
}
