// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The table of schemes; and files of plain URLs, of which the cache keeps a version for each ETag.
#include "io/remote/remote.h"
#include "base/file.h"
#include "base/text.h"
#include "io/remote/digest.h"
#include "io/remote/download.h"
#include "io/remote/hub.h"
#include "io/remote/s3_fetch.h"
#include <glob.h>
#include <string.h>
#include <unistd.h>

// ---- plain URLs ----

typedef struct plain {
    const char *url, *name;
    char shown[REMOTE_PATH_BYTES], dir[REMOTE_PATH_BYTES]; // without what is secret
    char path[REMOTE_PATH_BYTES];                          // of its version
    remote_response response;
} plain;

static mics_status refuse(void *ctx, const char *shown, const remote_response *response)
{
    const int status = (int)response->status;
    (void)ctx;
    return mics_fail(MICS_ERR_IO, "%s: the server says %d: %s", shown, status,
                     status == 404 || status == 410   ? "there is no such file"
                     : status == 401 || status == 403 ? "it may not be read so; sign the URL anew"
                                                      : "try again later");
}

// The version that was downloaded before, where nobody can be asked for the newest.
static mics_status find_version(plain *self, const char *why)
{
    char pattern[REMOTE_PATH_BYTES];
    glob_t found = {.gl_pathc = 0};
    MICS_TRY(remote_path(pattern, "%s/*/%s", self->dir, self->name));
    (void)glob(pattern, GLOB_NOSORT, NULL, &found);
    const mics_status status =
        found.gl_pathc == 1
            ? remote_path(self->path, "%s", found.gl_pathv[0])
            : mics_fail(MICS_ERR_COMM, "%s: no answer came: %s; %zu versions are in %s%s",
                        self->shown, why, found.gl_pathc, self->dir,
                        found.gl_pathc > 0 ? ": name the file of one" : "");
    globfree(&found);
    return status;
}

static bool take_none(void *ctx, const remote_response *response, const void *data, size_t bytes)
{
    (void)ctx, (void)response, (void)data, (void)bytes;
    return false;
}

// By the first byte, since a URL may be signed for GET alone.
static mics_status ask(plain *self, remote_http *http)
{
    const remote_request request = {
        .url = self->url, .shown = self->shown, .range = "0-0", .take = take_none};
    remote_response *response = &self->response;
    char digest[REMOTE_DIGEST_TEXT_BYTES];
    const char *why = remote_http_send(http, &request, response);
    if (why != NULL) {
        MICS_TRY(find_version(self, why));
        mics_log(MICS_LOG_WARNING, "%s: no answer came: %s; the version before is taken",
                 self->shown, why);
        return MICS_OK;
    }
    const bool empty = response->status == 416 && response->bytes == 0;
    if (response->status / 100 != 2 && !empty)
        return refuse(NULL, self->shown, response);
    const char *version = response->etag[0] != '\0' ? response->etag : response->modified;
    if (*version == '\0')
        return mics_fail(
            MICS_ERR_UNSUPPORTED,
            "%s: the server says neither ETag nor Last-Modified, so versions cannot be "
            "told apart; download it yourself",
            self->shown);
    MICS_TRY(remote_sha256(version, strlen(version), digest));
    return remote_path(self->path, "%s/%.16s/%s", self->dir, digest, self->name);
}

static mics_status download(mics_memory *memory, plain *self, remote_http *http)
{
    const remote_response *of = &self->response;
    remote_file file = {.url = self->url, .shown = self->shown, .refuse = refuse};
    char lock[REMOTE_PATH_BYTES];
    MICS_TRY(ask(self, http));
    if (access(self->path, F_OK) == 0)
        return MICS_OK;
    MICS_TRY(remote_path(lock, "%s.lock", self->path));
    MICS_TRY(remote_lock(memory, lock, self->shown, &file.lock));
    file.bytes = of->bytes;
    file.etag = of->etag;
    file.if_range = of->etag[0] == '"' ? of->etag : of->etag[0] == '\0' ? of->modified : NULL;
    mics_status status =
        remote_check_disk(self->dir, remote_missing_bytes(self->path, of->bytes), self->shown);
    if (status == MICS_OK)
        status = remote_download(http, &file, self->path);
    close(file.lock);
    return status;
}

static mics_status fetch_plain(mics_memory *memory, const char *url, mics_remote_want want,
                               char **path_out)
{
    plain self = {.url = url};
    char digest[REMOTE_DIGEST_TEXT_BYTES], cache[REMOTE_PATH_BYTES];
    remote_http *http = NULL;
    mics_status status = MICS_OK;
    (void)want;
    MICS_TRY(remote_path(self.shown, "%s", url));
    mics_text_hide_secrets(self.shown);
    self.name = strrchr(self.shown, '/') + 1;
    if (self.name[-2] == '/' || !remote_path_is_safe(self.name))
        return mics_fail(MICS_ERR_INVALID, "%s: names no file", self.shown);
    MICS_TRY(remote_sha256(self.shown, strlen(self.shown), digest));
    MICS_TRY(remote_cache_of("mics", cache));
    MICS_TRY(remote_path(self.dir, "%s/%.16s", cache, digest));
    if (remote_http_is_offline()) {
        MICS_TRY(find_version(&self, "--offline or HF_HUB_OFFLINE says to ask nobody"));
    } else {
        MICS_TRY(remote_http_open(memory, &http));
        status = download(memory, &self, http);
        remote_http_close(http);
    }
    return status == MICS_OK ? mics_strdup(memory, self.path, path_out) : status;
}

// ---- all ----

static const struct {
    const char *name;
    mics_status (*fetch)(mics_memory *memory, const char *url, mics_remote_want want,
                         char **path_out);
} schemes[] = {{"hf", remote_hub_fetch},
               {"s3", remote_s3_fetch},
               {"https", fetch_plain},
               {"http", fetch_plain}};

bool mics_remote_is(const char *path)
{
    const size_t scheme = strspn(path, "abcdefghijklmnopqrstuvwxyz0123456789");
    return scheme > 0 && strncmp(path + scheme, "://", 3) == 0;
}

mics_status mics_remote_fetch(mics_memory *memory, const char *url, mics_remote_want want,
                              char **path_out)
{
    const size_t bytes = strcspn(url, ":");
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (strlen(schemes[i].name) == bytes && strncmp(url, schemes[i].name, bytes) == 0)
            return schemes[i].fetch(memory, url, want, path_out);
    return mics_fail(MICS_ERR_UNSUPPORTED, "%.*s://: is not read; hf://, s3:// and https:// are",
                     (int)bytes, url);
}

// One that a path of mics_remote_fetch names.
static bool open_path(remote_hub *self, mics_memory *memory, const char *path,
                      mics_remote_want want)
{
    if (remote_hub_open_path(self, memory, path, want))
        return true;
    remote_hub_close(self);
    return remote_s3_open_path(self, memory, path, want);
}

mics_status mics_remote_complete(mics_memory *memory, const char *path, mics_remote_want want)
{
    remote_hub self;
    mics_status status = MICS_OK;
    char cache[REMOTE_PATH_BYTES];
    const bool there = access(path, F_OK) == 0;
    if (open_path(&self, memory, path, want)) {
        if (self.listing != NULL || !there)
            status = remote_hub_get(&self);
    } else if (strstr(path, "/mics/") != NULL && !there &&
               remote_cache_of("mics", cache) == MICS_OK &&
               strncmp(path, cache, strlen(cache)) == 0) {
        status = mics_fail(MICS_ERR_INVALID,
                           "%s: is gone, and its URL is not kept, since it may be signed; name the "
                           "URL again",
                           path);
    }
    remote_hub_close(&self);
    return status;
}

bool mics_remote_awaits(mics_memory *memory, const char *folder, const char *name)
{
    remote_hub self = {.count = 0};
    char path[REMOTE_PATH_BYTES];
    const bool awaits = remote_path(path, "%s/%s", folder, name) == MICS_OK &&
                        open_path(&self, memory, path, MICS_REMOTE_NAMES) && remote_hub_has(&self);
    remote_hub_close(&self);
    return awaits;
}
