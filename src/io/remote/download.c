// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/remote/download.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/quiet.h"
#include "base/size.h"
#include "io/remote/sha256.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PART_BYTES = 1 << 20, ATTEMPTS = 5 };
#define PROGRESS_US 10e6 // between lines that say how far it is

// A download under way.
typedef struct download {
    const remote_file *file;
    remote_response response;
    char path[REMOTE_PATH_BYTES], etag_path[REMOTE_PATH_BYTES]; // of what is incomplete
    int fd;
    char etag[REMOTE_ETAG_BYTES]; // of what is incomplete; "": unknown
    int64_t done, begun;          // bytes; `begun`: of them by an earlier process
    bool begins;                  // no byte of the response has come yet
    remote_sha256 hash;
    double begun_us, told_us;
    mics_status status; // of `take`
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

// ---- bytes ----

static void tell(download *self)
{
    char done[32], all[32], rate[32];
    const double now = mics_clock_us(), seconds = (now - self->begun_us) / 1e6;
    if (now - self->told_us < PROGRESS_US)
        return;
    const bool quiet = mics_log_is_quiet(); // of several ranks the one that downloads speaks
    self->told_us = now;
    mics_log_set_quiet(false);
    mics_log(MICS_LOG_INFO, "%s: %s of %s, %s/s", self->file->shown,
             mics_size_text((double)self->done, done, sizeof done),
             self->response.bytes >= 0
                 ? mics_size_text((double)self->response.bytes, all, sizeof all)
                 : "an unknown size",
             mics_size_text((double)(self->done - self->begun) / seconds, rate, sizeof rate));
    mics_log_set_quiet(quiet);
}

static mics_status begin_at(download *self, int64_t at)
{
    self->done = self->begun = at;
    remote_sha256_begin(&self->hash);
    return mics_file_resize(self->fd, self->path, at);
}

static mics_status check_disk(const download *self)
{
    char folder[REMOTE_PATH_BYTES], needed[32], there[32];
    int64_t free_bytes = 0;
    const int64_t promised = self->file->bytes;
    const int64_t left = (promised >= 0 ? promised : self->response.bytes) - self->done;
    MICS_TRY(remote_path(folder, "%.*s", (int)(strrchr(self->path, '/') - self->path), self->path));
    if (!mics_file_free_bytes(folder, &free_bytes) || free_bytes >= left)
        return MICS_OK;
    return mics_fail(MICS_ERR_FULL,
                     "%s: %s are to come, and %s has %s free; name a larger disk in "
                     "HF_HOME (hf://) or XDG_CACHE_HOME",
                     self->file->shown, mics_size_text((double)left, needed, sizeof needed), folder,
                     mics_size_text((double)free_bytes, there, sizeof there));
}

// Before the first bytes of a response.
static mics_status begin_body(download *self)
{
    const remote_response *response = &self->response;
    self->begins = false;
    if (response->status == 200)
        MICS_TRY(begin_at(self, 0)); // all of it comes again
    else if (response->begin != self->done)
        return mics_fail(MICS_ERR_FORMAT, "%s: byte %lld was asked for, and byte %lld came",
                         self->file->shown, (long long)self->done, (long long)response->begin);
    MICS_TRY(check_disk(self));
    if (self->file->bytes >= 0 && response->bytes >= 0 && response->bytes != self->file->bytes)
        return mics_fail(MICS_ERR_FORMAT, "%s: has %lld bytes, and %lld were promised",
                         self->file->shown, (long long)response->bytes,
                         (long long)self->file->bytes);
    if (self->file->changes) {
        snprintf(self->etag, sizeof self->etag, "%s", response->etag);
        MICS_TRY(mics_file_write_whole(self->etag_path, self->etag, strlen(self->etag)));
    }
    return MICS_OK;
}

static mics_status take_part(download *self, const void *data, size_t bytes)
{
    if (self->begins)
        MICS_TRY(begin_body(self));
    MICS_TRY(mics_file_write_at(self->fd, self->path, data, bytes, self->done));
    if (self->file->sha256 != NULL)
        remote_sha256_take(&self->hash, data, bytes);
    self->done += (int64_t)bytes;
    tell(self);
    return MICS_OK;
}

static bool take(void *ctx, const void *data, size_t bytes)
{
    download *self = ctx;
    self->status = take_part(self, data, bytes);
    return self->status == MICS_OK;
}

// Goes on with what an earlier process left, which is hashed, too.
static mics_status take_begun(download *self, mics_memory *memory)
{
    char *part = NULL;
    const off_t end = lseek(self->fd, 0, SEEK_END);
    const bool good = self->file->changes ? self->etag[0] == '"' : end <= self->file->bytes;
    MICS_TRY(begin_at(self, good && end > 0 ? end : 0));
    if (self->file->sha256 == NULL || self->done == 0)
        return MICS_OK;
    mics_status status = MICS_NEW(memory, PART_BYTES, &part);
    for (int64_t at = 0; status == MICS_OK && at < end; at += PART_BYTES) {
        const size_t bytes = end - at < PART_BYTES ? (size_t)(end - at) : PART_BYTES;
        status = mics_file_read_at(self->fd, self->path, part, bytes, at);
        if (status == MICS_OK)
            remote_sha256_take(&self->hash, part, bytes);
    }
    mics_free(memory, part);
    return status;
}

// ---- requests ----

static const char *request_rest(remote_http *http, download *self, const char *known)
{
    char range[64], tag[REMOTE_ETAG_BYTES + 32] = "";
    remote_request request = {.url = self->file->url, .take = take, .ctx = self};
    int count = 0;
    if (self->file->header != NULL)
        request.headers[count++] = self->file->header;
    snprintf(range, sizeof range, "Range: bytes=%lld-", (long long)self->done);
    if (self->done > 0)
        request.headers[count++] = range;
    if (self->done > 0 && self->file->changes)
        snprintf(tag, sizeof tag, "If-Range: %s", self->etag);
    else if (self->done == 0 && *known != '\0')
        snprintf(tag, sizeof tag, "If-None-Match: %s", known);
    if (tag[0] != '\0')
        request.headers[count] = tag;
    self->begins = true;
    return remote_http_get(http, &request, &self->response);
}

// A server that is busy, or a connection that broke: asked again, behind ever longer waits.
static bool waits_again(const download *self, const char *why, int attempt)
{
    const int32_t code = self->response.status;
    const bool broke = why != NULL && code != 0;
    const bool busy = code == 429 || code == 500 || (code >= 502 && code <= 504);
    if ((!broke && !busy) || attempt + 1 >= ATTEMPTS)
        return false;
    nanosleep(&(struct timespec){.tv_sec = (1 << attempt) / 2, .tv_nsec = 200000000}, NULL);
    return true;
}

static mics_status check(download *self)
{
    char text[SHA256_TEXT_BYTES];
    const remote_file *file = self->file;
    const int64_t all = file->bytes >= 0 ? file->bytes : self->response.bytes;
    if (all >= 0 && self->done != all)
        return mics_fail(MICS_ERR_FORMAT, "%s: %lld bytes came of %lld", file->shown,
                         (long long)self->done, (long long)all);
    if (file->sha256 == NULL)
        return MICS_OK;
    remote_sha256_end(&self->hash, text);
    if (strcmp(text, file->sha256) == 0)
        return MICS_OK;
    (void)unlink(self->path); // or the next call would go on with it
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: what came has the SHA-256 %s, and not %s, so it is removed; try again, "
                     "and look for a proxy that changes files",
                     file->shown, text, file->sha256);
}

// `path`: of the whole file, `known` its ETag. *new_out: what is incomplete is to become it.
static mics_status request_all(remote_http *http, download *self, const char *path,
                               const char *known, bool *new_out)
{
    const char *why = NULL;
    int attempt = 0;
    *new_out = true;
    if (self->file->bytes >= 0 && self->done == self->file->bytes)
        return check(self);
    do {
        why = request_rest(http, self, known);
        if (self->response.status == 416) // what was begun is of another file
            MICS_TRY(begin_at(self, 0));
    } while (self->status == MICS_OK &&
             (waits_again(self, why, attempt) || self->response.status == 416) &&
             ++attempt < ATTEMPTS);
    MICS_TRY(self->status);
    const int32_t code = self->response.status;
    if (why == NULL && code == 200 && self->begins) // an empty file
        MICS_TRY(begin_body(self));
    const bool kept = self->file->changes && access(path, F_OK) == 0;
    *new_out = why == NULL && code != 304;
    if (code == 304 && kept)
        return MICS_OK;
    if (why != NULL && kept) {
        mics_log(MICS_LOG_WARNING, "%s: no answer came (%s); what was downloaded before is taken",
                 self->file->shown, why);
        return MICS_OK;
    }
    if (why != NULL)
        return mics_fail(MICS_ERR_COMM, "%s: no answer came%s: %s; %s", self->file->shown,
                         self->done > 0 ? " to the end" : "", why,
                         self->done > 0 ? "the next call goes on there"
                                        : "look at the address, the network and https_proxy");
    return code == 200 || code == 206
               ? check(self)
               : self->file->refuse(self->file->ctx, self->file->shown, &self->response);
}

// ---- the file ----

static mics_status take_lock(mics_memory *memory, const remote_file *file, int *fd_out)
{
    int failed = 0;
    MICS_TRY(remote_make_folder_of(memory, file->lock));
    const int fd = open(file->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot open: %s", file->lock,
                         strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        mics_log(MICS_LOG_INFO, "%s: waits for another process, which downloads it", file->shown);
    while ((failed = flock(fd, LOCK_EX)) != 0 && errno == EINTR)
        continue;
    *fd_out = fd;
    if (failed == 0)
        return MICS_OK;
    const int cause = errno;
    close(fd);
    return mics_fail(MICS_ERR_IO,
                     "%s: cannot lock it: %s; name a file system with locks in HF_HOME (hf://) or "
                     "XDG_CACHE_HOME",
                     file->lock, strerror(cause));
}

// Whether nobody needs to ask for it.
static bool is_settled(const remote_file *file, const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && (!file->changes || !remote_http_is_older(found.st_mtim));
}

static void read_etag(const char *path, char etag[REMOTE_ETAG_BYTES])
{
    FILE *from = fopen(path, "re");
    if (from == NULL || fgets(etag, REMOTE_ETAG_BYTES, from) == NULL)
        etag[0] = '\0';
    if (from != NULL)
        fclose(from);
}

static mics_status download_locked(mics_memory *memory, remote_http *http, const remote_file *file,
                                   const char *path)
{
    char known_path[REMOTE_PATH_BYTES], known[REMOTE_ETAG_BYTES] = "";
    bool new = false;
    download self = {.file = file, .begun_us = mics_clock_us(), .fd = -1};
    self.told_us = self.begun_us;
    MICS_TRY(remote_path(self.path, "%s.incomplete", path));
    MICS_TRY(remote_path(self.etag_path, "%s.incomplete.etag", path));
    MICS_TRY(remote_path(known_path, "%s.etag", path));
    MICS_TRY(remote_make_folder_of(memory, path));
    if (file->changes)
        read_etag(self.etag_path, self.etag);
    if (file->changes && access(path, F_OK) == 0)
        read_etag(known_path, known);
    self.fd = open(self.path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (self.fd < 0)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot create: %s", self.path,
                         strerror(errno));
    mics_status status = take_begun(&self, memory);
    if (status == MICS_OK)
        status = request_all(http, &self, path, known, &new);
    status = mics_file_close_written(self.fd, self.path, status);
    if (status == MICS_OK ? !new : self.done == 0)
        (void)unlink(self.path);
    if (status == MICS_OK && !new)
        (void)utimensat(AT_FDCWD, path, NULL, 0); // it was looked at
    if (status != MICS_OK || !new)
        return status;
    if (file->changes) {
        (void)unlink(known_path); // a version without its ETag is downloaded again
        MICS_TRY(mics_file_rename(self.path, path));
        return mics_file_rename(self.etag_path, known_path);
    }
    return mics_file_rename(self.path, path);
}

mics_status remote_download(mics_memory *memory, remote_http *http, const remote_file *file,
                            const char *path)
{
    int held = -1;
    if (is_settled(file, path) || (http == NULL && access(path, F_OK) == 0))
        return MICS_OK;
    if (http == NULL)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: was not downloaded before (%s is not there), and --offline or "
                         "HF_HUB_OFFLINE says to ask nobody; leave that out, or download it where "
                         "there is a network",
                         file->shown, path);
    MICS_TRY(take_lock(memory, file, &held));
    const mics_status status =
        is_settled(file, path) ? MICS_OK : download_locked(memory, http, file, path);
    close(held);
    return status;
}
