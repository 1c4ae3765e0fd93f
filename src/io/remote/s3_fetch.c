// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A folder of a bucket is a repository of the cache (hub.h). What a URL names in it was listed at some time:
// that list is a commit, called by its hash, and a blob is called by the hash of an object's ETag and name.
#include "io/remote/s3_fetch.h"
#include "base/clock.h"
#include "base/file.h"
#include "io/remote/digest.h"
#include "io/remote/s3.h"
#include "io/remote/s3_call.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double RENEW_US = 300e6; // a signature holds for 15 minutes

// A download under way.
typedef struct s3_download {
    double signed_us;
    bool expired;
} s3_download;

// The first digits of a hash.
static mics_status hash_of(const char *text, size_t digits, char digest[REMOTE_DIGEST_TEXT_BYTES])
{
    MICS_TRY(remote_sha256(text, strlen(text), digest));
    digest[digits] = '\0';
    return MICS_OK;
}

static mics_status hash_blob(const char *tag, const char *name,
                             char digest[REMOTE_DIGEST_TEXT_BYTES])
{
    char text[REMOTE_PATH_BYTES];
    MICS_TRY(remote_path(text, "%s %s", tag, name));
    return hash_of(text, REMOTE_COMMIT_DIGITS, digest);
}

// ---- lists ----

// A status other than 200 and 404 is an error.
static mics_status ask_head(const char *url, remote_response *response_out)
{
    s3_call call = {.url = url, .method = "HEAD", .is_head = true};
    char byte;
    size_t got = 0;
    int64_t total = 0;
    MICS_TRY(s3_call_run(&call));
    *response_out = call.response;
    if (call.response.status == 404 ||
        (call.response.status == 200 && call.response.etag[0] != '\0' && call.response.bytes >= 0))
        return MICS_OK;
    if (call.response.status == 200)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "%s: the server says no ETag or no length, so versions cannot be told "
                         "apart; download it yourself",
                         url);
    MICS_TRY(remote_s3_read(url, 0, &byte, 1, &got, &total)); // whose answer says why
    return mics_fail(MICS_ERR_IO, "%s: HEAD: the server says %d", url, (int)call.response.status);
}

// A list that grows.
typedef struct s3_listing {
    const remote_hub *of;
    size_t base; // bytes of a key before its name
    mics_text siblings;
} s3_listing;

static mics_status add(void *ctx, const char *key, const char *tag, int64_t bytes)
{
    s3_listing *self = ctx;
    const char *name = key + self->base;
    char digest[REMOTE_DIGEST_TEXT_BYTES];
    if (!remote_path_is_safe(name)) {
        mics_log(MICS_LOG_WARNING, "%s%s: is left out, as no file can have its name",
                 self->of->endpoint, name);
        return MICS_OK;
    }
    MICS_TRY(hash_blob(tag, name, digest));
    mics_text_printf(&self->siblings, "%s{\"size\": %lld, \"blobId\": \"%s\", \"rfilename\": ",
                     self->siblings.used > 0 ? ",\n" : "", (long long)bytes, digest);
    mics_text_quoted(&self->siblings, name);
    mics_text_printf(&self->siblings, "}");
    return mics_text_status(&self->siblings);
}

// An object that is named, or all that lie in a folder or may match a glob.
static mics_status list(const remote_hub *self, s3_listing *listing)
{
    char url[REMOTE_PATH_BYTES], tag[REMOTE_ETAG_BYTES];
    const char *path = self->name.path, *key = strchr(self->endpoint + strlen("s3://"), '/') + 1;
    const size_t fixed = strcspn(path, "*?[");
    const bool one = *path != '\0' && path[fixed] == '\0';
    remote_response head = {.status = 404};
    listing->base = strlen(key);
    MICS_TRY(remote_path(url, "%s%.*s", self->endpoint, (int)fixed, path));
    if (one && !mics_text_ends(self->url, "/"))
        MICS_TRY(ask_head(url, &head));
    s3_read_tag(head.etag, tag);
    if (head.status == 200)
        return add(listing, url + (key - self->endpoint), tag, head.bytes);
    if (one)
        MICS_TRY(remote_path(url, "%s%s/", self->endpoint, path));
    return s3_list_objects(self->memory, url, add, listing);
}

static mics_status ask(remote_hub *self, const char *asked)
{
    s3_listing listing = {.of = self, .siblings = {.memory = self->memory}};
    mics_text json = {.memory = self->memory};
    char digest[REMOTE_DIGEST_TEXT_BYTES];
    mics_status status = MICS_OK;
    MICS_TRY_OUT(list(self, &listing));
    mics_text_printf(&listing.siblings, "]");
    MICS_TRY_OUT(mics_text_status(&listing.siblings));
    MICS_TRY_OUT(hash_of(listing.siblings.bytes, REMOTE_COMMIT_DIGITS, digest));
    mics_text_printf(&json, "{\"sha\": \"%s\", \"base\": ", digest);
    mics_text_quoted(&json, self->endpoint);
    mics_text_printf(&json, ", \"siblings\": [%s}\n", listing.siblings.bytes);
    MICS_TRY_OUT(mics_text_status(&json));
    status = mics_file_write_whole(asked, json.bytes, json.used);
out:
    mics_text_fini(&listing.siblings);
    mics_text_fini(&json);
    return status;
}

static mics_status fail_missing(const remote_hub *self)
{
    mics_text names = {.memory = self->memory};
    const bool muted = mics_log_mute(true);
    (void)remote_s3_list(self->memory, self->endpoint, &names);
    mics_log_mute(muted);
    for (size_t i = 0; i < names.used; i++)
        names.bytes[i] = names.bytes[i] == '\n' ? ' ' : names.bytes[i];
    const mics_status status =
        mics_fail(MICS_ERR_INVALID, "%s: there is no such %s; %s holds: %.400s", self->url,
                  self->want > MICS_REMOTE_FILES ? "object, and no model below it" : "object",
                  self->endpoint, names.used > 0 ? names.bytes : "nothing");
    mics_text_fini(&names);
    return status;
}

// ---- objects ----

static mics_status refuse(void *ctx, const char *shown, const remote_response *response)
{
    s3_download *self = ctx;
    const int status = (int)response->status;
    self->expired = status == 403 && mics_clock_us() - self->signed_us > RENEW_US;
    return self->expired
               ? MICS_ERR_COMM
               : mics_fail(MICS_ERR_IO, "%s: the server says %d: %s", shown, status,
                           status == 403   ? "look at the credentials, and their right to get"
                           : status == 404 ? "it was removed meanwhile"
                                           : "try again later");
}

static mics_status download(remote_hub *self, const remote_hub_file *wanted, const char *blob)
{
    char url[REMOTE_PATH_BYTES], tag[REMOTE_ETAG_BYTES], digest[REMOTE_DIGEST_TEXT_BYTES];
    remote_response head;
    s3_get get;
    s3_download now = {.expired = false};
    mics_status status = MICS_OK;
    if (access(blob, F_OK) == 0)
        return MICS_OK;
    MICS_TRY(remote_path(url, "%s%s", self->endpoint, wanted->name));
    MICS_TRY(ask_head(url, &head));
    s3_read_tag(head.etag, tag);
    MICS_TRY(hash_blob(tag, wanted->name, digest));
    if (head.status == 404 || strcmp(digest, wanted->blob) != 0)
        return mics_fail(MICS_ERR_FORMAT, "%s: has changed since it was listed; try again", url);
    remote_file file = {.url = get.url,
                        .shown = url,
                        .bytes = wanted->bytes,
                        .checksum = head.checksum,
                        .etag = head.etag,
                        .if_range = head.etag,
                        .is_signed = true,
                        .lock = self->lock,
                        .refuse = refuse,
                        .ctx = &now};
    do {
        now = (s3_download){.signed_us = mics_clock_us()};
        MICS_TRY(s3_get_sign(url, &get));
        memcpy(file.headers, get.headers, sizeof file.headers);
        status = remote_download(self->http, &file, blob);
    } while (now.expired);
    return status;
}

// ---- all ----

static const remote_hub_source of_bucket = {
    .ask = ask, .download = download, .fail_missing = fail_missing};

// "s3://BUCKET[/FOLDER]/NAME": what stands before NAME is the repository, and a glob is part of NAME.
static mics_status open_url(remote_hub *self)
{
    char cache[REMOTE_PATH_BYTES], text[REMOTE_PATH_BYTES], digest[REMOTE_DIGEST_TEXT_BYTES];
    const char *url = self->url, *key = strchr(url + strlen("s3://"), '/');
    size_t end = strlen(url), base = strcspn(url, "*?[");
    s3_account account;
    while (key != NULL && end > (size_t)(key - url) + 1 && url[end - 1] == '/')
        end--; // of a folder
    base = base < end ? base : end;
    while (key != NULL && url[base - 1] != '/')
        base--;
    if (end - base >= sizeof self->name.path || base + 2 >= sizeof self->endpoint ||
        url[5] == '/' || base <= strlen("s3://") || strpbrk(url, "\r\n") != NULL ||
        (key == NULL && base < end) || (end == base && self->want <= MICS_REMOTE_FILES))
        return mics_fail(MICS_ERR_INVALID,
                         "%s: must be as s3://BUCKET/KEY, or name a folder or a glob", url);
    snprintf(self->endpoint, sizeof self->endpoint, "%.*s%s", (int)base, url,
             key == NULL ? "/" : "");
    snprintf(self->name.path, sizeof self->name.path, "%.*s", (int)(end - base), url + base);
    if (end > base && !remote_path_is_safe(self->name.path))
        return mics_fail(MICS_ERR_INVALID, "%s: no file can have that name", url);
    s3_account_read(&account);
    MICS_TRY(remote_path(text, "%s %s", account.endpoint, self->endpoint));
    MICS_TRY(hash_of(text, 16, digest));
    MICS_TRY(remote_cache_of("mics", cache));
    MICS_TRY(remote_path(self->dir, "%s/s3--%s", cache, digest));
    MICS_TRY(hash_of(self->name.path, 16, digest));
    snprintf(self->name.revision, sizeof self->name.revision, "%s", digest);
    return MICS_OK;
}

mics_status remote_s3_fetch(mics_memory *memory, const char *url, mics_remote_want want,
                            char **path_out)
{
    remote_hub self = {.source = &of_bucket, .memory = memory, .url = url, .want = want};
    MICS_TRY(open_url(&self));
    return remote_hub_get_path(&self, path_out);
}

// "CACHE/s3--HASH/snapshots/COMMIT[/NAME]".
bool remote_s3_open_path(remote_hub *self, mics_memory *memory, const char *path,
                         mics_remote_want want)
{
    const char *at = strstr(path, "/snapshots/"), *name = at != NULL ? at + 11 : path;
    const size_t commit = strcspn(name, "/");
    *self = (remote_hub){.source = &of_bucket, .memory = memory, .url = path, .want = want};
    if (at == NULL || at - path < 22 || strncmp(at - 21, "/s3--", 5) != 0 ||
        commit != REMOTE_COMMIT_DIGITS || strlen(name) >= sizeof self->name.path ||
        remote_path(self->dir, "%.*s", (int)(at - path), path) != MICS_OK)
        return false;
    snprintf(self->name.revision, sizeof self->name.revision, "%.*s", (int)commit, name);
    snprintf(self->name.path, sizeof self->name.path, "%s", name + commit + (name[commit] == '/'));
    if (remote_hub_load(self) != MICS_OK || self->listing == NULL)
        return false;
    const char *base = mics_json_string(mics_json_at(self->listing, "base"));
    mics_text_format(self->endpoint, sizeof self->endpoint, "%s", base != NULL ? base : "");
    return base != NULL && strncmp(base, "s3://", 5) == 0 && strchr(base + 5, '/') != NULL;
}

mics_status mics_remote_holds_model(mics_memory *memory, const char *url, bool *is_out)
{
    mics_text names = {.memory = memory};
    *is_out = !mics_remote_is_bucket(url);
    if (*is_out)
        return MICS_OK;
    mics_text_printf(&names, "\n");
    const bool before = mics_log_demote(true);
    mics_status status =
        remote_http_is_offline() ? MICS_ERR_COMM : remote_s3_list(memory, url, &names);
    mics_log_demote(before);
    if (status == MICS_ERR_COMM) { // what was downloaded may be taken
        *is_out = true;
        status = MICS_OK;
    } else if (status == MICS_OK)
        *is_out = strstr(names.bytes, "\nmanifest.json\n") == NULL &&
                  (strstr(names.bytes, "\nconfig.json\n") != NULL ||
                   strstr(names.bytes, "\nadapter_config.json\n") != NULL);
    mics_text_fini(&names);
    return status;
}
