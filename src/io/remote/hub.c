// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/remote/hub.h"
#include "base/file.h"
#include "base/json.h"
#include "io/remote/download.h"
#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COMMIT_DIGITS = 40, SHA256_DIGITS = 64, MAX_LISTING_BYTES = 64 << 20 };

typedef struct hub {
    mics_memory *memory;
    const char *url; // as the user gave it; it holds no secret
    remote_hub_name name;
    mics_remote_want want;
    char endpoint[REMOTE_NAME_BYTES]; // without a slash at its end
    char header[512];                 // "Authorization: Bearer ..."; "": there is no token
    char dir[REMOTE_PATH_BYTES];      // of the repository, in the cache
    char locks[REMOTE_PATH_BYTES];    // of that
    remote_http *http;                // NULL: offline
    mics_json *listing;               // of the commit's files
    const char *commit;               // of that
} hub;

// A file of the repository.
typedef struct hub_file {
    const char *name, *blob, *sha256; // sha256 NULL: the hub says none
    int64_t bytes;
    bool changes; // as the list of files does
} hub_file;

// ---- names ----

bool remote_path_is_safe(const char *path)
{
    const size_t bytes = strcspn(path, "/");
    const bool good = bytes > 0 && !(bytes <= 2 && strncmp(path, "..", bytes) == 0);
    return good && (path[bytes] == '\0' || remote_path_is_safe(path + bytes + 1));
}

static bool is_hex(const char *text, size_t digits)
{
    return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

// Copies `bytes`, with %2F as the slash that a revision may have.
static bool copy(const char *from, size_t bytes, char to[REMOTE_NAME_BYTES])
{
    size_t used = 0;
    for (size_t i = 0; i < bytes && used + 1 < REMOTE_NAME_BYTES; i++) {
        const bool slash = bytes - i >= 3 && strncasecmp(from + i, "%2F", 3) == 0;
        to[used++] = from[i];
        if (slash) {
            to[used - 1] = '/';
            i += 2;
        }
    }
    to[used] = '\0';
    return bytes < REMOTE_NAME_BYTES;
}

bool remote_hub_parse(const char *text, remote_hub_name *name_out)
{
    *name_out = (remote_hub_name){.dataset = strncmp(text, "datasets/", 9) == 0};
    const char *at = text + (name_out->dataset ? 9 : 0), *slash = strchr(at, '/');
    const size_t bytes = slash != NULL ? (size_t)(slash - at) + 1 + strcspn(slash + 1, "/@") : 0;
    const char *const letters =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./";
    if (!copy(at, bytes, name_out->repo) || strspn(name_out->repo, letters) != bytes ||
        !remote_path_is_safe(name_out->repo))
        return false;
    at += bytes;
    const size_t revision = *at == '@' ? strcspn(at + 1, "/") : 0;
    if (!copy(*at == '@' ? at + 1 : "main", *at == '@' ? revision : 4, name_out->revision) ||
        !remote_path_is_safe(name_out->revision))
        return false;
    at += *at == '@' ? revision + 1 : 0;
    at += *at == '/';
    size_t path = strlen(at);
    while (path > 0 && at[path - 1] == '/')
        path--; // of a folder
    return copy(at, path, name_out->path) && (path == 0 || remote_path_is_safe(name_out->path));
}

// All but letters, digits and a few signs as %XX.
static void append_escaped(mics_text *url, const char *text, const char *keep)
{
    for (const char *c = text; *c != '\0'; c++) {
        const bool plain = (unsigned char)*c < 0x80 && isalnum((unsigned char)*c);
        mics_text_printf(url, plain || strchr(keep, *c) != NULL ? "%c" : "%%%02X",
                         (unsigned char)*c);
    }
}

// ---- what the hub refuses ----

static mics_status refuse(void *ctx, const char *shown, const remote_response *response)
{
    const hub *self = ctx;
    const char *kind = self->name.dataset ? "datasets/" : "", *repo = self->name.repo;
    const bool token = self->header[0] != '\0';
    const int status = (int)response->status;
    if (status == 403 || strcmp(response->code, "GatedRepo") == 0)
        return mics_fail(MICS_ERR_IO,
                         "%s: is gated (%d): ask for access at %s/%s%s, with the account %s", shown,
                         status, self->endpoint, kind, repo,
                         token ? "of your token, which needs the right to read gated repositories"
                               : "whose token you set in HF_TOKEN, which is not set");
    if (strcmp(response->code, "RevisionNotFound") == 0)
        return mics_fail(MICS_ERR_IO, "%s: there is no revision %s (%d); see %s/%s%s/tree/main",
                         shown, self->name.revision, status, self->endpoint, kind, repo);
    if (status == 401 || status == 404)
        return mics_fail(MICS_ERR_IO,
                         "%s: the hub shows no such %s (%d): it has another name (see %s/%s%s), or "
                         "is private, and %s",
                         shown, self->name.dataset ? "data set" : "model", status, self->endpoint,
                         kind, repo,
                         token ? "your token may not read it"
                               : "HF_TOKEN is not set to a token that may read it");
    return mics_fail(MICS_ERR_IO, "%s: the hub says %d; try again later%s", shown, status,
                     status == 429 && !token ? ", or set HF_TOKEN" : "");
}

// ---- the commit, and its files ----

static const mics_json_value *files_of(const hub *self)
{
    return mics_json_at(self->listing, "siblings");
}

// The ref is for huggingface_hub, which looks there.
static mics_status write_ref(const hub *self)
{
    char path[REMOTE_PATH_BYTES];
    if (is_hex(self->name.revision, COMMIT_DIGITS))
        return MICS_OK;
    MICS_TRY(remote_path(path, "%s/refs/%s", self->dir, self->name.revision));
    MICS_TRY(remote_make_folder_of(self->memory, path));
    char *name = strrchr(path, '/');
    *name = '\0';
    return mics_file_replace(self->memory, path, name + 1, self->commit, COMMIT_DIGITS);
}

// `url` is taken.
static mics_status download(hub *self, mics_text *url, const char *shown, const hub_file *file,
                            const char *path)
{
    char lock[REMOTE_PATH_BYTES];
    mics_status status = remote_path(lock, "%s/%s.lock", self->locks, file->blob);
    const remote_file wanted = {.url = url->bytes,
                                .shown = shown,
                                .header = self->header[0] != '\0' ? self->header : NULL,
                                .lock = lock,
                                .bytes = file->bytes,
                                .sha256 = file->sha256,
                                .changes = file->changes,
                                .refuse = refuse,
                                .ctx = self};
    if (status == MICS_OK)
        status = mics_text_status(url);
    if (status == MICS_OK)
        status = remote_download(self->memory, self->http, &wanted, path);
    mics_text_fini(url);
    return status;
}

static mics_status open_listing(hub *self)
{
    char path[REMOTE_PATH_BYTES];
    mics_text url = {.memory = self->memory};
    const hub_file listing = {
        .blob = "mics", .bytes = -1, .changes = !is_hex(self->name.revision, COMMIT_DIGITS)};
    MICS_TRY(remote_path(path, "%s/.mics/%s.json", self->dir, self->name.revision));
    mics_text_printf(&url, "%s/api/%s/%s/revision/", self->endpoint,
                     self->name.dataset ? "datasets" : "models", self->name.repo);
    append_escaped(&url, self->name.revision, "-._~");
    mics_text_printf(&url, "?blobs=true");
    MICS_TRY(download(self, &url, self->url, &listing, path));
    MICS_TRY(mics_json_load(self->memory, path, MAX_LISTING_BYTES, &self->listing));
    self->commit = mics_json_string(mics_json_at(self->listing, "sha"));
    if (self->commit != NULL && is_hex(self->commit, COMMIT_DIGITS) && files_of(self) != NULL)
        return write_ref(self);
    (void)unlink(path);
    return mics_fail(MICS_ERR_FORMAT, "%s: %s names no commit with files; is that a hub?",
                     self->url, self->endpoint);
}

// The hub's words are somebody else's, and become paths of ours.
static mics_status read_file(const hub *self, int32_t index, hub_file *file_out)
{
    const mics_json_value *file = mics_json_element(files_of(self), index);
    const char *name = mics_json_string(mics_json_get(file, "rfilename"));
    const char *sha256 = mics_json_string(mics_json_get(mics_json_get(file, "lfs"), "sha256"));
    const char *blob = sha256 != NULL ? sha256 : mics_json_string(mics_json_get(file, "blobId"));
    *file_out = (hub_file){name, blob, sha256, mics_json_int(mics_json_get(file, "size")), false};
    if (name != NULL && remote_path_is_safe(name) && blob != NULL && file_out->bytes >= 0 &&
        is_hex(blob, sha256 != NULL ? SHA256_DIGITS : COMMIT_DIGITS))
        return MICS_OK;
    return mics_fail(MICS_ERR_FORMAT, "%s: %s lists a file (%s) without name, hash or size",
                     self->url, self->endpoint, name != NULL ? name : "");
}

// Weights, of which other forms than Transformers' (consolidated.safetensors) are nobody's here; and
// texts at the top.
static bool is_of_model(const char *name, mics_remote_want want)
{
    static const char *const endings[] = {".json", ".txt", ".model", ".jinja"};
    const char *ending = strstr(name, ".safetensors");
    bool is = false;
    if (ending != NULL)
        return want == MICS_REMOTE_WEIGHTS && strchr(name, '/') == NULL &&
               (strncmp(name, "model", 5) == 0 || strncmp(name, "adapter_model", 13) == 0);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        is = is || mics_text_ends(name, endings[i]);
    return is &&
           (strchr(name, '/') == NULL || strncmp(name, "additional_chat_templates/", 26) == 0);
}

static bool is_wanted(const hub *self, const char *name)
{
    const char *path = self->name.path;
    const size_t bytes = strlen(path);
    if (bytes == 0)
        return self->want != MICS_REMOTE_FILES && is_of_model(name, self->want);
    return fnmatch(path, name, FNM_PATHNAME | FNM_PERIOD) == 0 || strcmp(path, name) == 0 ||
           (strncmp(path, name, bytes) == 0 && name[bytes] == '/');
}

static mics_status fail_missing(const hub *self)
{
    return mics_fail(MICS_ERR_INVALID, "%s: %s; %s/%s%s/tree/%.12s lists what there is", self->url,
                     self->name.path[0] != '\0' ? "there is no such file"
                                                : "is a whole repository; name files of it, as "
                                                  "hf://datasets/ORG/NAME/FILE, or by a glob",
                     self->endpoint, self->name.dataset ? "datasets/" : "", self->name.repo,
                     self->commit);
}

// ---- files ----

static mics_status link_blob(const hub *self, const hub_file *file)
{
    char path[REMOTE_PATH_BYTES], target[REMOTE_PATH_BYTES], there[REMOTE_PATH_BYTES];
    char up[REMOTE_PATH_BYTES] = "../../";
    size_t used = strlen(up);
    MICS_TRY(remote_path(path, "%s/snapshots/%s/%s", self->dir, self->commit, file->name));
    for (const char *c = file->name; *c != '\0' && used + 4 < sizeof up; c++) {
        if (*c == '/')
            used += (size_t)snprintf(up + used, sizeof up - used, "../");
    }
    MICS_TRY(remote_path(target, "%sblobs/%s", up, file->blob));
    const ssize_t bytes = readlink(path, there, sizeof there - 1);
    there[bytes > 0 ? bytes : 0] = '\0';
    if (strcmp(there, target) == 0)
        return MICS_OK;
    MICS_TRY(remote_make_folder_of(self->memory, path));
    if (symlink(target, path) == 0 || errno == EEXIST) // by another rank or huggingface_hub
        return MICS_OK;
    return mics_fail(mics_status_of_errno(errno), "%s: cannot make a link: %s", path,
                     strerror(errno));
}

static mics_status fetch_file(hub *self, const hub_file *file)
{
    char blob[REMOTE_PATH_BYTES], shown[REMOTE_PATH_BYTES];
    const char *kind = self->name.dataset ? "datasets/" : "";
    mics_text url = {.memory = self->memory};
    MICS_TRY(remote_path(blob, "%s/blobs/%s", self->dir, file->blob));
    MICS_TRY(remote_path(shown, "hf://%s%s/%s", kind, self->name.repo, file->name));
    mics_text_printf(&url, "%s/%s%s/resolve/%s/", self->endpoint, kind, self->name.repo,
                     self->commit);
    append_escaped(&url, file->name, "-._~/");
    MICS_TRY(download(self, &url, shown, file, blob));
    return link_blob(self, file);
}

static mics_status fetch_files(hub *self)
{
    int32_t fetched = 0, weights = 0, pickles = 0;
    for (int32_t i = 0; i < mics_json_count(files_of(self)); i++) {
        hub_file file;
        MICS_TRY(read_file(self, i, &file));
        pickles += strncmp(file.name, "pytorch_model", 13) == 0;
        if (!is_wanted(self, file.name))
            continue;
        MICS_TRY(fetch_file(self, &file));
        fetched++;
        weights += mics_text_ends(file.name, ".safetensors");
    }
    if (fetched == 0)
        return fail_missing(self);
    if (self->name.path[0] == '\0' && self->want == MICS_REMOTE_WEIGHTS && weights == 0 &&
        pickles > 0)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "%s: has weights as pickles (.bin) alone, which are not read; "
                         "huggingface.co/spaces/safetensors/convert makes a revision with "
                         "safetensors, as @refs%%2Fpr%%2F1",
                         self->url);
    return MICS_OK;
}

static mics_status fetch(hub *self, char **path_out)
{
    char path[REMOTE_PATH_BYTES];
    MICS_TRY(open_listing(self));
    MICS_TRY(fetch_files(self));
    MICS_TRY(remote_path(path, "%s/snapshots/%s%s%s", self->dir, self->commit,
                         self->name.path[0] != '\0' ? "/" : "", self->name.path));
    return mics_strdup(self->memory, path, path_out);
}

static const char *env(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : otherwise;
}

// HF_TOKEN's, or that of the file which `hf auth login` leaves.
static void read_token(hub *self, const char *home)
{
    char path[REMOTE_PATH_BYTES], line[400] = "";
    const char *token = env("HF_TOKEN", line);
    FILE *from =
        token == line && remote_path(path, "%s/token", home) == MICS_OK ? fopen(path, "re") : NULL;
    if (from != NULL && fgets(line, sizeof line, from) == NULL)
        line[0] = '\0';
    if (from != NULL)
        fclose(from);
    size_t bytes = 0;
    while (isgraph((unsigned char)token[bytes]))
        bytes++; // no further line of a header
    if (bytes > 0)
        mics_text_format(self->header, sizeof self->header, "Authorization: Bearer %.*s",
                         (int)bytes, token);
}

// "models--org--name"
static mics_status find_places(hub *self)
{
    char home[REMOTE_PATH_BYTES], cache[REMOTE_PATH_BYTES], name[REMOTE_NAME_BYTES];
    const char *kind = self->name.dataset ? "datasets" : "models", *repo = self->name.repo;
    const char *endpoint = env("HF_ENDPOINT", "https://huggingface.co"),
               *said = env("HF_HOME", NULL);
    const size_t org = strcspn(repo, "/"), bytes = strlen(endpoint);
    mics_text_format(self->endpoint, sizeof self->endpoint, "%.*s",
                     (int)(endpoint[bytes - 1] == '/' ? bytes - 1 : bytes), endpoint);
    snprintf(name, sizeof name, "%.*s--%s", (int)org, repo, repo + org + 1);
    MICS_TRY(said != NULL ? remote_path(home, "%s", said) : remote_cache_of("huggingface", home));
    read_token(self, home);
    said = env("HF_HUB_CACHE", NULL);
    MICS_TRY(said != NULL ? remote_path(cache, "%s", said) : remote_path(cache, "%s/hub", home));
    MICS_TRY(remote_path(self->dir, "%s/%s--%s", cache, kind, name));
    return remote_path(self->locks, "%s/.locks/%s--%s", cache, kind, name);
}

mics_status remote_hub_fetch(mics_memory *memory, const char *url, mics_remote_want want,
                             char **path_out)
{
    hub self = {.memory = memory, .url = url, .want = want};
    if (!remote_hub_parse(url + strlen("hf://"), &self.name))
        return mics_fail(MICS_ERR_INVALID,
                         "%s: must be as hf://ORG/NAME, hf://ORG/NAME@REVISION/FILE or "
                         "hf://datasets/ORG/NAME/FILE",
                         url);
    MICS_TRY(find_places(&self));
    MICS_TRY(remote_http_open(memory, &self.http));
    const mics_status status = fetch(&self, path_out);
    mics_json_close(self.listing);
    remote_http_close(self.http);
    return status;
}
