// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files of plain URLs.
#include "io/remote/download.h"
#include "io/remote/hub.h"
#include "io/remote/sha256.h"
#include <string.h>

// Without what may be secret: user and password, query and fragment.
static mics_status show(const char *url, char shown[REMOTE_PATH_BYTES])
{
    const char *host = strstr(url, "://") + 3, *begin = host;
    const size_t authority = strcspn(host, "/?#");
    for (size_t i = 0; i < authority; i++)
        begin = host[i] == '@' ? host + i + 1 : begin;
    return remote_path(shown, "%.*s%.*s", (int)(host - url), url, (int)strcspn(begin, "?#"), begin);
}

static mics_status refuse(void *ctx, const char *shown, const remote_response *response)
{
    const int status = (int)response->status;
    (void)ctx;
    return mics_fail(MICS_ERR_IO, "%s: the server says %d%s", shown, status,
                     status == 404 || status == 410   ? ": there is no such file"
                     : status == 401 || status == 403 ? ": it may not be read so; a signed URL may "
                                                        "have run out"
                                                      : "");
}

// Kept by the whole URL, as a query may choose the file, under the file's own name.
static mics_status fetch_url(mics_memory *memory, const char *url, char **path_out)
{
    char cache[REMOTE_PATH_BYTES], path[REMOTE_PATH_BYTES], lock[REMOTE_PATH_BYTES];
    char shown[REMOTE_PATH_BYTES], hash[SHA256_TEXT_BYTES];
    remote_http *http = NULL;
    remote_sha256 sha256;
    remote_sha256_begin(&sha256);
    remote_sha256_take(&sha256, url, strlen(url));
    remote_sha256_end(&sha256, hash);
    MICS_TRY(show(url, shown));
    const char *name = strrchr(shown, '/') + 1;
    if (name[-2] == '/' || *name == '\0' || !remote_path_is_safe(name))
        return mics_fail(MICS_ERR_INVALID, "%s: names no file", shown);
    MICS_TRY(remote_cache_of("mics", cache));
    MICS_TRY(remote_path(path, "%s/%.16s/%s", cache, hash, name));
    MICS_TRY(remote_path(lock, "%s/%.16s/lock", cache, hash));
    MICS_TRY(remote_http_open(memory, &http));
    const remote_file file = {
        .url = url, .shown = shown, .lock = lock, .bytes = -1, .changes = true, .refuse = refuse};
    const mics_status status = remote_download(memory, http, &file, path);
    remote_http_close(http);
    return status == MICS_OK ? mics_strdup(memory, path, path_out) : status;
}

// ---- all ----

bool mics_remote_is(const char *path)
{
    const size_t scheme = strspn(path, "abcdefghijklmnopqrstuvwxyz0123456789");
    return scheme > 0 && strncmp(path + scheme, "://", 3) == 0;
}

mics_status mics_remote_fetch(mics_memory *memory, const char *url, mics_remote_want want,
                              char **path_out)
{
    if (strncmp(url, "hf://", 5) == 0)
        return remote_hub_fetch(memory, url, want, path_out);
    if (strncmp(url, "https://", 8) == 0 || strncmp(url, "http://", 7) == 0)
        return fetch_url(memory, url, path_out);
    return mics_fail(MICS_ERR_UNSUPPORTED, "%.*s://: is not read; hf:// and https:// are",
                     (int)strcspn(url, ":"), url);
}
