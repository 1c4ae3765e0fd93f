// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The cache has huggingface_hub's layout: blobs by hash, snapshots of links to them, refs. Beside them
// the folder .mics keeps the hub's list of each commit's files: so a commit that is there needs no
// network, and what is missing is known. One lock a repository is held from the list to the last file.
#include "io/remote/hub.h"
#include "base/file.h"
#include "base/json.h"
#include "io/remote/download.h"
#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COMMIT_DIGITS = 40, SHA256_DIGITS = 64, MAX_LISTING_BYTES = 64 << 20 };

typedef struct hub {
    mics_memory *memory;
    const char *url; // as the user gave it; it holds no secret
    mics_remote_want want;
    int lock;
    remote_hub_name name;
    char endpoint[REMOTE_NAME_BYTES]; // without a slash at its end
    char header[512];                 // "Authorization: Bearer ..."; "": there is no token
    char dir[REMOTE_PATH_BYTES];      // of the repository, in the cache
    char commit[COMMIT_DIGITS + 1];   // "": unknown
    remote_http *http;
    mics_json *listing; // of the commit's files; NULL: unknown
} hub;

// A file of the repository.
typedef struct hub_file {
    const char *name, *blob, *sha256; // sha256 NULL: the hub says none
    int64_t bytes;
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

// By the revision itself or the cache's ref. *asked_out: not before this process began.
static mics_status find_commit(hub *self, bool *asked_out)
{
    char path[REMOTE_PATH_BYTES];
    struct stat found;
    *asked_out = is_hex(self->name.revision, COMMIT_DIGITS);
    snprintf(self->commit, sizeof self->commit, "%s", *asked_out ? self->name.revision : "");
    MICS_TRY(remote_path(path, "%s/refs/%s", self->dir, self->name.revision));
    FILE *from = *asked_out ? NULL : fopen(path, "re");
    if (from != NULL) {
        if (fgets(self->commit, sizeof self->commit, from) == NULL ||
            !is_hex(self->commit, COMMIT_DIGITS))
            self->commit[0] = '\0';
        *asked_out = fstat(fileno(from), &found) == 0 && !remote_http_is_older(found.st_mtim);
        fclose(from);
    }
    mics_json_close(self->listing);
    self->listing = NULL;
    MICS_TRY(remote_path(path, "%s/.mics/%s.json", self->dir, self->commit));
    return self->commit[0] != '\0' && mics_file_is_there(path)
               ? mics_json_load(self->memory, path, MAX_LISTING_BYTES, &self->listing)
               : MICS_OK;
}

static const mics_json_value *files_of(const hub *self)
{
    return mics_json_at(self->listing, "siblings");
}

// The hub's words are somebody else's, and become paths of ours.
static mics_status read_file(const hub *self, int32_t index, hub_file *file_out)
{
    const mics_json_value *file = mics_json_element(files_of(self), index);
    const char *name = mics_json_string(mics_json_get(file, "rfilename"));
    const char *sha256 = mics_json_string(mics_json_get(mics_json_get(file, "lfs"), "sha256"));
    const char *blob = sha256 != NULL ? sha256 : mics_json_string(mics_json_get(file, "blobId"));
    *file_out = (hub_file){name, blob, sha256, mics_json_int(mics_json_get(file, "size"))};
    if (name != NULL && remote_path_is_safe(name) && blob != NULL && file_out->bytes >= 0 &&
        is_hex(blob, sha256 != NULL ? SHA256_DIGITS : COMMIT_DIGITS))
        return MICS_OK;
    return mics_fail(MICS_ERR_FORMAT, "%s: %s lists a file (%s) without name, hash or size",
                     self->url, self->endpoint, name != NULL ? name : "");
}

static bool take_listing(void *ctx, const remote_response *response, const void *data, size_t bytes)
{
    mics_text *text = ctx;
    text->used = response->taken == 0 ? 0 : text->used;
    mics_text_append(text, data, bytes);
    return text->used <= MAX_LISTING_BYTES;
}

// The ref is for huggingface_hub, too, which looks there.
static mics_status keep_listing(hub *self, const mics_text *text)
{
    char path[REMOTE_PATH_BYTES], name[COMMIT_DIGITS + 8];
    mics_json_close(self->listing);
    self->listing = NULL;
    MICS_TRY(mics_json_parse(self->memory, self->url, text->bytes, text->used, &self->listing));
    const char *commit = mics_json_string(mics_json_at(self->listing, "sha"));
    if (commit == NULL || !is_hex(commit, COMMIT_DIGITS) || files_of(self) == NULL)
        return mics_fail(MICS_ERR_FORMAT, "%s: %s names no commit with files; is that a hub?",
                         self->url, self->endpoint);
    snprintf(self->commit, sizeof self->commit, "%s", commit);
    snprintf(name, sizeof name, "%s.json", commit);
    MICS_TRY(remote_path(path, "%s/.mics", self->dir));
    MICS_TRY(mics_file_make_dirs(self->memory, path, NULL));
    MICS_TRY(mics_file_replace(self->memory, path, name, text->bytes, text->used));
    if (is_hex(self->name.revision, COMMIT_DIGITS))
        return MICS_OK;
    MICS_TRY(remote_path(path, "%s/refs/%s", self->dir, self->name.revision));
    MICS_TRY(remote_make_folder_of(self->memory, path));
    char *last = strrchr(path, '/');
    *last = '\0';
    return mics_file_replace(self->memory, path, last + 1, commit, COMMIT_DIGITS);
}

static bool is_complete(const hub *self);

static mics_status ask(hub *self)
{
    mics_text url = {.memory = self->memory}, text = {.memory = self->memory};
    remote_response response;
    mics_text_printf(&url, "%s/api/%s/%s/revision/", self->endpoint,
                     self->name.dataset ? "datasets" : "models", self->name.repo);
    append_escaped(&url, self->name.revision, "-._~");
    mics_text_printf(&url, "?blobs=true");
    const remote_request request = {
        .url = url.bytes, .headers = {self->header}, .take = take_listing, .ctx = &text};
    mics_status status = mics_text_status(&url);
    const char *why = status == MICS_OK ? remote_http_send(self->http, &request, &response) : NULL;
    if (why != NULL && self->commit[0] != '\0' && is_complete(self))
        mics_log(MICS_LOG_WARNING, "%s: no answer came (%s); what was downloaded before is taken",
                 self->url, why);
    else if (why != NULL)
        status = mics_fail(MICS_ERR_COMM,
                           "%s: no answer came: %s; look at HF_ENDPOINT, the network and "
                           "https_proxy",
                           self->url, why);
    else if (status == MICS_OK && response.status / 100 != 2)
        status = refuse(self, self->url, &response);
    else if (status == MICS_OK && (status = mics_text_status(&text)) == MICS_OK)
        status = keep_listing(self, &text);
    mics_text_fini(&url);
    mics_text_fini(&text);
    return status;
}

// ---- what is wanted ----

// Weights, of which other forms than Transformers' (consolidated.safetensors) are nobody's here; and
// texts at the top.
static bool is_of_model(const char *name, mics_remote_want want)
{
    static const char *const endings[] = {".json", ".txt", ".model", ".jinja"};
    bool is = want == MICS_REMOTE_WEIGHTS && mics_text_ends(name, ".safetensors") &&
              (strncmp(name, "model", 5) == 0 || strncmp(name, "adapter_model", 13) == 0);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        is = is || mics_text_ends(name, endings[i]);
    return is &&
           (strchr(name, '/') == NULL || strncmp(name, "additional_chat_templates/", 26) == 0);
}

static bool is_wanted(const hub *self, const char *name)
{
    const char *path = self->name.path, *inside = name;
    const size_t bytes = strlen(path);
    if (bytes > 0) {
        if (strcmp(path, name) == 0)
            return true;
        const bool within = strncmp(path, name, bytes) == 0 && name[bytes] == '/';
        if (self->want == MICS_REMOTE_FILES)
            return within || fnmatch(path, name, FNM_PATHNAME | FNM_PERIOD) == 0;
        inside = within ? name + bytes + 1 : "/";
    }
    return self->want != MICS_REMOTE_FILES && is_of_model(inside, self->want);
}

static bool is_there(const hub *self, const char *name)
{
    char path[REMOTE_PATH_BYTES];
    return remote_path(path, "%s/snapshots/%s/%s", self->dir, self->commit, name) == MICS_OK &&
           access(path, F_OK) == 0;
}

// Whether all that is wanted is in the cache; as far as can be seen where huggingface_hub filled it.
static bool is_complete(const hub *self)
{
    char pattern[REMOTE_PATH_BYTES];
    hub_file file;
    bool all = true;
    glob_t found = {.gl_pathc = 0};
    for (int32_t i = 0; all && i < mics_json_count(files_of(self)); i++)
        all = read_file(self, i, &file) == MICS_OK &&
              (!is_wanted(self, file.name) || is_there(self, file.name));
    if (self->listing != NULL)
        return all;
    const char *what = self->want == MICS_REMOTE_WEIGHTS ? "/*.safetensors" : "";
    all = remote_path(pattern, "%s/snapshots/%s/%s%s", self->dir, self->commit, self->name.path,
                      what) == MICS_OK &&
          glob(pattern, GLOB_NOSORT, NULL, &found) == 0;
    globfree(&found);
    return all;
}

// ---- files ----

static mics_status link_blob(const hub *self, const hub_file *file)
{
    char path[REMOTE_PATH_BYTES], target[REMOTE_PATH_BYTES], up[REMOTE_PATH_BYTES] = "";
    size_t used = 0;
    MICS_TRY(remote_path(path, "%s/snapshots/%s/%s", self->dir, self->commit, file->name));
    for (const char *c = file->name; *c != '\0' && used + 4 < sizeof up; c++)
        if (*c == '/')
            used += (size_t)snprintf(up + used, sizeof up - used, "../");
    MICS_TRY(remote_path(target, "../../%sblobs/%s", up, file->blob));
    MICS_TRY(remote_make_folder_of(self->memory, path));
    if (symlink(target, path) == 0 || errno == EEXIST) // huggingface_hub's
        return MICS_OK;
    return mics_fail(mics_status_of_errno(errno), "%s: cannot make a link: %s", path,
                     strerror(errno));
}

static mics_status download(hub *self, const hub_file *file, const char *blob)
{
    char shown[REMOTE_PATH_BYTES];
    const char *kind = self->name.dataset ? "datasets/" : "";
    mics_text url = {.memory = self->memory};
    MICS_TRY(remote_path(shown, "hf://%s%s/%s", kind, self->name.repo, file->name));
    mics_text_printf(&url, "%s/%s%s/resolve/%s/", self->endpoint, kind, self->name.repo,
                     self->commit);
    append_escaped(&url, file->name, "-._~/");
    const remote_file wanted = {.url = url.bytes,
                                .shown = shown,
                                .headers = {self->header},
                                .bytes = file->bytes,
                                .sha256 = file->sha256,
                                .lock = self->lock,
                                .refuse = refuse,
                                .ctx = self};
    mics_status status = mics_text_status(&url);
    if (status == MICS_OK)
        status = remote_download(self->http, &wanted, blob);
    mics_text_fini(&url);
    return status == MICS_OK ? link_blob(self, file) : status;
}

// Sums up the files that are wanted, or downloads them.
static mics_status walk(hub *self, bool downloads, int64_t *missing, int32_t *count)
{
    *missing = *count = 0;
    for (int32_t i = 0; i < mics_json_count(files_of(self)); i++) {
        char blob[REMOTE_PATH_BYTES];
        hub_file file;
        MICS_TRY(read_file(self, i, &file));
        if (!is_wanted(self, file.name))
            continue;
        MICS_TRY(remote_path(blob, "%s/blobs/%s", self->dir, file.blob));
        const int64_t left = remote_missing_bytes(blob, file.bytes);
        *missing += left < INT64_MAX - *missing ? left : INT64_MAX - *missing;
        *count += 1;
        if (downloads && !is_there(self, file.name))
            MICS_TRY(download(self, &file, blob));
    }
    return MICS_OK;
}

static mics_status download_all(hub *self)
{
    char blobs[REMOTE_PATH_BYTES];
    int64_t missing = 0;
    int32_t count = 0;
    MICS_TRY(walk(self, false, &missing, &count));
    if (count == 0)
        return mics_fail(
            MICS_ERR_INVALID, "%s: %s; %s/%s%s/tree/%.12s lists what there is", self->url,
            self->name.path[0] != '\0' ? "there is no such file"
                                       : "is a whole repository; name files of it, as "
                                         "hf://datasets/ORG/NAME/FILE, or by a glob",
            self->endpoint, self->name.dataset ? "datasets/" : "", self->name.repo, self->commit);
    MICS_TRY(remote_path(blobs, "%s/blobs", self->dir));
    MICS_TRY(mics_file_make_dirs(self->memory, blobs, NULL));
    MICS_TRY(remote_check_disk(blobs, missing, self->url));
    return walk(self, true, &missing, &count);
}

static mics_status fetch_online(hub *self)
{
    char lock[REMOTE_PATH_BYTES];
    bool asked = false;
    MICS_TRY(remote_path(lock, "%s/.mics/lock", self->dir));
    MICS_TRY(remote_http_open(self->memory, &self->http));
    MICS_TRY(remote_lock(self->memory, lock, self->url, &self->lock));
    mics_status status = find_commit(self, &asked);
    if (status == MICS_OK && (!asked || self->listing == NULL))
        status = ask(self);
    if (status == MICS_OK && self->listing != NULL)
        status = download_all(self);
    close(self->lock);
    return status;
}

static mics_status fetch(hub *self)
{
    bool asked = false;
    MICS_TRY(find_commit(self, &asked));
    const bool offline = remote_http_is_offline(),
               fixed = is_hex(self->name.revision, COMMIT_DIGITS);
    if ((offline || fixed) && self->commit[0] != '\0' && is_complete(self))
        return MICS_OK;
    return !offline ? fetch_online(self)
                    : mics_fail(MICS_ERR_INVALID,
                                "%s: was not downloaded before (%s lacks it, or a part), and "
                                "--offline or HF_HUB_OFFLINE says to ask nobody; leave that out, "
                                "or download it where there is a network",
                                self->url, self->dir);
}

// ---- places ----

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
    char home[REMOTE_PATH_BYTES], cache[REMOTE_PATH_BYTES];
    const char *repo = self->name.repo, *said = env("HF_HOME", NULL);
    const char *endpoint = env("HF_ENDPOINT", "https://huggingface.co");
    const size_t org = strcspn(repo, "/"), bytes = strlen(endpoint);
    mics_text_format(self->endpoint, sizeof self->endpoint, "%.*s",
                     (int)(endpoint[bytes - 1] == '/' ? bytes - 1 : bytes), endpoint);
    MICS_TRY(said != NULL ? remote_path(home, "%s", said) : remote_cache_of("huggingface", home));
    read_token(self, home);
    said = env("HF_HUB_CACHE", NULL);
    MICS_TRY(said != NULL ? remote_path(cache, "%s", said) : remote_path(cache, "%s/hub", home));
    return remote_path(self->dir, "%s/%s--%.*s--%s", cache,
                       self->name.dataset ? "datasets" : "models", (int)org, repo, repo + org + 1);
}

// ---- from outside ----

static void close_hub(hub *self)
{
    mics_json_close(self->listing);
    remote_http_close(self->http);
}

mics_status remote_hub_fetch(mics_memory *memory, const char *url, mics_remote_want want,
                             char **path_out)
{
    hub self = {.memory = memory, .url = url, .want = want};
    char path[REMOTE_PATH_BYTES];
    if (!remote_hub_parse(url + strlen("hf://"), &self.name))
        return mics_fail(MICS_ERR_INVALID,
                         "%s: must be as hf://ORG/NAME, hf://ORG/NAME@REVISION/FILE or "
                         "hf://datasets/ORG/NAME/FILE",
                         url);
    MICS_TRY(find_places(&self));
    mics_status status = fetch(&self);
    if (status == MICS_OK)
        status = remote_path(path, "%s/snapshots/%s%s%s", self.dir, self.commit,
                             self.name.path[0] != '\0' ? "/" : "", self.name.path);
    close_hub(&self);
    return status == MICS_OK ? mics_strdup(memory, path, path_out) : status;
}

// "CACHE/models--ORG--NAME/snapshots/COMMIT[/PATH]". Returns: whether it is of the cache.
static bool open_path(hub *self, mics_memory *memory, const char *path, mics_remote_want want)
{
    const char *at = strstr(path, "/snapshots/"), *begin = at;
    char name[REMOTE_PATH_BYTES];
    bool asked = false;
    *self = (hub){.memory = memory, .url = path, .want = want};
    while (at != NULL && begin > path && begin[-1] != '/')
        begin--;
    if (at == NULL)
        return false;
    const bool dataset = strncmp(begin, "datasets--", 10) == 0;
    begin += dataset ? 10 : strncmp(begin, "models--", 8) == 0 ? 8 : 0;
    const char *middle = strstr(begin, "--"), *commit = at + strlen("/snapshots/");
    if (middle == NULL || middle > at)
        return false;
    const size_t digits = strcspn(commit, "/");
    snprintf(name, sizeof name, "%s%.*s/%.*s@%s", dataset ? "datasets/" : "", (int)(middle - begin),
             begin, (int)(at - middle) - 2, middle + 2, commit);
    return digits == COMMIT_DIGITS && remote_hub_parse(name, &self->name) &&
           find_places(self) == MICS_OK && strlen(self->dir) == (size_t)(at - path) &&
           strncmp(self->dir, path, strlen(self->dir)) == 0 && find_commit(self, &asked) == MICS_OK;
}

mics_status mics_remote_complete(mics_memory *memory, const char *path, mics_remote_want want)
{
    hub self;
    mics_status status = MICS_OK;
    if (open_path(&self, memory, path, want) && (self.listing != NULL || access(path, F_OK) != 0))
        status = fetch(&self);
    close_hub(&self);
    return status;
}

mics_status mics_remote_lists(mics_memory *memory, const char *folder, const char *name,
                              bool *lists_out)
{
    hub self;
    hub_file file;
    mics_status status = MICS_OK;
    *lists_out = false;
    if (open_path(&self, memory, folder, MICS_REMOTE_CONFIG)) {
        const size_t bytes = strlen(self.name.path);
        for (int32_t i = 0; status == MICS_OK && i < mics_json_count(files_of(&self)); i++) {
            status = read_file(&self, i, &file);
            *lists_out = *lists_out ||
                         (status == MICS_OK && strncmp(file.name, self.name.path, bytes) == 0 &&
                          strcmp(file.name + bytes + (bytes > 0), name) == 0);
        }
    }
    close_hub(&self);
    return status;
}
