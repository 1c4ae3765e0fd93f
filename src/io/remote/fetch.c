// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where remote files are kept, and those of plain URLs.
#include "base/text.h"
#include "io/remote/hub.h"
#include "io/remote/places.h"
#include "io/remote/sha256.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- places ----

const char *remote_env(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : otherwise;
}

bool remote_is_offline(void)
{
    return mics_text_is_among(remote_env("HF_HUB_OFFLINE", NULL), "1|ON|YES|TRUE|on|yes|true|True");
}

static mics_status cache_of(const char *name, char path[REMOTE_PATH_BYTES])
{
    const char *cache = remote_env("XDG_CACHE_HOME", NULL), *home = remote_env("HOME", NULL);
    if (cache == NULL && home == NULL)
        return mics_fail(MICS_ERR_INVALID,
                         "HOME, XDG_CACHE_HOME and HF_HOME are not set, so nobody "
                         "knows where to keep what is downloaded; set one");
    return remote_path(path, "%s%s/%s", cache != NULL ? cache : home,
                       cache != NULL ? "" : "/.cache", name);
}

mics_status remote_cache_of_mics(char path[REMOTE_PATH_BYTES])
{
    return cache_of("mics", path);
}

mics_status remote_cache_of_hub(char path[REMOTE_PATH_BYTES])
{
    const char *cache = remote_env("HF_HUB_CACHE", NULL), *home = remote_env("HF_HOME", NULL);
    if (cache != NULL)
        return remote_path(path, "%s", cache);
    return home != NULL ? remote_path(path, "%s/hub", home) : cache_of("huggingface/hub", path);
}

void remote_hub_token(char *header, size_t capacity)
{
    char path[REMOTE_PATH_BYTES], line[400] = "";
    const char *home = remote_env("HF_HOME", NULL), *token = remote_env("HF_TOKEN", NULL);
    const bool known = home != NULL ? remote_path(path, "%s/token", home) == MICS_OK
                                    : cache_of("huggingface/token", path) == MICS_OK;
    FILE *from = token == NULL && known ? fopen(path, "re") : NULL;
    if (from != NULL && fgets(line, sizeof line, from) == NULL)
        line[0] = '\0';
    if (from != NULL)
        fclose(from);
    token = token != NULL ? token : line;
    size_t bytes = 0;
    while (isgraph((unsigned char)token[bytes]))
        bytes++; // no line of a header more
    mics_text_format(header, capacity, bytes > 0 ? "Authorization: Bearer %.*s" : "", (int)bytes,
                     token);
}

// ---- plain URLs ----

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
    MICS_TRY(remote_cache_of_mics(cache));
    MICS_TRY(remote_path(path, "%s/%.16s/%s", cache, hash, name));
    MICS_TRY(remote_path(lock, "%s/%.16s/lock", cache, hash));
    if (!remote_is_offline())
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
