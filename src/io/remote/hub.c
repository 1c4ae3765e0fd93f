// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The cache has huggingface_hub's layout: blobs by hash, snapshots of links to them, refs. Beside them
// the folder .mics keeps the hub's list of each commit's files: so a commit that is there needs no
// network, and what is missing is known. One lock a repository is held from the list to the last file.
#include "io/remote/hub.h"
#include "base/file.h"
#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COMMIT_DIGITS = REMOTE_COMMIT_DIGITS, SHA256_DIGITS = 64, MAX_LISTING_BYTES = 64 << 20 };

typedef remote_hub hub;
typedef remote_hub_file hub_file;

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

bool remote_hub_parse(const char *text, remote_hub_name *name_out)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./";
    const bool dataset = strncmp(text, "datasets/", 9) == 0;
    const char *repo = text + (dataset ? 9 : 0), *slash = strchr(repo, '/');
    const char *end = slash != NULL ? slash + 1 + strcspn(slash + 1, "/@") : repo;
    const char *revision = *end == '@' ? end + 1 : "main/";
    const size_t revision_bytes = strcspn(revision, "/");
    const char *path = *end == '@' ? revision + revision_bytes : end;
    path += *path == '/';
    size_t path_bytes = strlen(path);
    while (path_bytes > 0 && path[path_bytes - 1] == '/')
        path_bytes--; // of a folder
    *name_out = (remote_hub_name){.dataset = dataset};
    if (strlen(text) >= REMOTE_NAME_BYTES)
        return false;
    snprintf(name_out->repo, REMOTE_NAME_BYTES, "%.*s", (int)(end - repo), repo);
    snprintf(name_out->revision, REMOTE_NAME_BYTES, "%.*s", (int)revision_bytes, revision);
    snprintf(name_out->path, REMOTE_NAME_BYTES, "%.*s", (int)path_bytes, path);
    for (char *at = name_out->revision; (at = strstr(at, "%2F")) != NULL; *at = '/')
        memmove(at + 1, at + 3, strlen(at + 3) + 1);
    return name_out->repo[strspn(name_out->repo, letters)] == '\0' &&
           remote_path_is_safe(name_out->repo) && remote_path_is_safe(name_out->revision) &&
           (path_bytes == 0 || remote_path_is_safe(name_out->path));
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

static const char *kind_of(const hub *self)
{
    return self->name.dataset ? "datasets/" : "";
}

static mics_status refuse(void *ctx, const char *shown, const remote_response *response)
{
    const hub *self = ctx;
    const bool token = self->header[0] != '\0';
    const int status = (int)response->status;
    const char *what = status == 429 && !token ? "try later, or set HF_TOKEN" : "try later";
    if (status == 403 || strcmp(response->code, "GatedRepo") == 0)
        what = token ? "it is gated: ask for access, with a token that may read gated repositories"
                     : "it is gated: ask for access, and set HF_TOKEN";
    else if (strcmp(response->code, "RevisionNotFound") == 0)
        what = "there is no such revision";
    else if (status == 401 || status == 404)
        what = token ? "it has another name, or your token may not read it"
                     : "it has another name, or is private and HF_TOKEN is not set";
    return mics_fail(MICS_ERR_IO, "%s: the hub says %d: %s (%s/%s%s)", shown, status, what,
                     self->endpoint, kind_of(self), self->name.repo);
}

// ---- what is wanted ----

static const mics_json_value *files_of(const hub *self)
{
    return self->listing != NULL ? mics_json_at(self->listing, "siblings") : NULL;
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
        if (self->want <= MICS_REMOTE_FILES)
            return within || fnmatch(path, name, FNM_PATHNAME | FNM_PERIOD) == 0;
        inside = within ? name + bytes + 1 : "/";
    }
    return self->want > MICS_REMOTE_FILES && is_of_model(inside, self->want);
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

// `url` is taken.
static mics_status download(hub *self, mics_text *url, const char *shown, const hub_file *file,
                            const char *path)
{
    const remote_file wanted = {.url = url->bytes,
                                .shown = shown,
                                .headers = {self->header},
                                .bytes = file->bytes,
                                .sha256 = file->sha256,
                                .lock = self->lock,
                                .refuse = refuse,
                                .ctx = self};
    mics_status status = mics_text_status(url);
    if (status == MICS_OK)
        status = remote_download(self->http, &wanted, path);
    mics_text_fini(url);
    return status;
}

static mics_status download_file(hub *self, const hub_file *file, const char *blob)
{
    char shown[REMOTE_PATH_BYTES];
    mics_text url = {.memory = self->memory};
    MICS_TRY(remote_path(shown, "hf://%s%s/%s", kind_of(self), self->name.repo, file->name));
    mics_text_printf(&url, "%s/%s%s/resolve/%s/", self->endpoint, kind_of(self), self->name.repo,
                     self->commit);
    append_escaped(&url, file->name, "-._~/");
    return download(self, &url, shown, file, blob);
}

// Sums up what is wanted and missing, or fetches it.
static mics_status walk(hub *self, bool fetches)
{
    self->missing = self->count = 0;
    for (int32_t i = 0; i < mics_json_count(files_of(self)); i++) {
        char blob[REMOTE_PATH_BYTES], path[REMOTE_PATH_BYTES];
        hub_file file;
        MICS_TRY(read_file(self, i, &file));
        if (!is_wanted(self, file.name))
            continue;
        self->count++;
        MICS_TRY(remote_path(blob, "%s/blobs/%s", self->dir, file.blob));
        MICS_TRY(remote_path(path, "%s/snapshots/%s/%s", self->dir, self->commit, file.name));
        if (access(path, F_OK) == 0)
            continue;
        const int64_t left = remote_missing_bytes(blob, file.bytes) + 1; // and a link
        self->missing += left < INT64_MAX - self->missing ? left : INT64_MAX - self->missing;
        if (!fetches)
            continue;
        MICS_TRY(self->source->download(self, &file, blob));
        MICS_TRY(link_blob(self, &file));
    }
    return MICS_OK;
}

// Whether all that is wanted is in the cache; as far as can be seen where huggingface_hub filled it.
static bool is_complete(hub *self)
{
    char pattern[REMOTE_PATH_BYTES];
    glob_t found = {.gl_pathc = 0};
    if (self->commit[0] == '\0' || self->listing != NULL)
        return self->commit[0] != '\0' && walk(self, false) == MICS_OK && self->count > 0 &&
               (self->missing == 0 || self->want == MICS_REMOTE_NAMES);
    const bool any =
        remote_path(pattern, "%s/snapshots/%s/%s%s", self->dir, self->commit, self->name.path,
                    self->want == MICS_REMOTE_WEIGHTS ? "/*.safetensors" : "") == MICS_OK &&
        glob(pattern, GLOB_NOSORT, NULL, &found) == 0;
    globfree(&found);
    return any;
}

static mics_status fail_missing(const hub *self)
{
    return mics_fail(MICS_ERR_INVALID, "%s: %s; %s/%s%s/tree/%.12s lists what there is", self->url,
                     self->name.path[0] != '\0' ? "there is no such file"
                                                : "is a whole repository; name files of it, as "
                                                  "hf://datasets/ORG/NAME/FILE, or by a glob",
                     self->endpoint, kind_of(self), self->name.repo, self->commit);
}

static mics_status fetch_all(hub *self)
{
    char blobs[REMOTE_PATH_BYTES];
    MICS_TRY(walk(self, false));
    if (self->count == 0)
        return self->source->fail_missing(self);
    if (self->want == MICS_REMOTE_NAMES)
        return MICS_OK;
    MICS_TRY(remote_path(blobs, "%s/blobs", self->dir));
    MICS_TRY(mics_file_make_dirs(self->memory, blobs, NULL));
    MICS_TRY(remote_check_disk(blobs, self->missing, self->url));
    return walk(self, true);
}

// ---- the commit ----

// By the revision itself or the cache's ref. *asked_out: not before this process began.
static mics_status find_commit(hub *self, bool *asked_out)
{
    char path[REMOTE_PATH_BYTES];
    struct stat found;
    *asked_out = is_hex(self->name.revision, COMMIT_DIGITS);
    snprintf(self->commit, sizeof self->commit, "%.*s", *asked_out ? COMMIT_DIGITS : 0,
             self->name.revision);
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

// The ref is for huggingface_hub, too, which looks there.
static mics_status keep_listing(hub *self, const char *asked)
{
    char path[REMOTE_PATH_BYTES];
    mics_json_close(self->listing);
    self->listing = NULL;
    MICS_TRY(mics_json_load(self->memory, asked, MAX_LISTING_BYTES, &self->listing));
    const char *commit = mics_json_string(mics_json_at(self->listing, "sha"));
    if (commit == NULL || !is_hex(commit, COMMIT_DIGITS) || files_of(self) == NULL)
        return mics_fail(MICS_ERR_FORMAT, "%s: %s names no commit with files; is that a hub?",
                         self->url, self->endpoint);
    snprintf(self->commit, sizeof self->commit, "%s", commit);
    MICS_TRY(remote_path(path, "%s/.mics/%s.json", self->dir, commit));
    MICS_TRY(mics_file_rename(asked, path));
    if (is_hex(self->name.revision, COMMIT_DIGITS))
        return MICS_OK;
    MICS_TRY(remote_path(path, "%s/refs/%s", self->dir, self->name.revision));
    MICS_TRY(remote_make_folder_of(self->memory, path));
    char *name = strrchr(path, '/');
    *name = '\0';
    return mics_file_replace(self->memory, path, name + 1, commit, COMMIT_DIGITS);
}

static mics_status download_listing(hub *self, const char *asked)
{
    const hub_file listing = {.bytes = -1};
    mics_text url = {.memory = self->memory};
    mics_text_printf(&url, "%s/api/%s/%s/revision/", self->endpoint,
                     self->name.dataset ? "datasets" : "models", self->name.repo);
    append_escaped(&url, self->name.revision, "-._~");
    mics_text_printf(&url, "?blobs=true");
    return download(self, &url, self->url, &listing, asked);
}

static mics_status ask(hub *self)
{
    char asked[REMOTE_PATH_BYTES];
    MICS_TRY(remote_path(asked, "%s/.mics/asked", self->dir));
    (void)unlink(asked);
    const bool known = is_complete(self), before = mics_log_demote(known);
    const mics_status status = self->source->ask(self, asked);
    mics_log_demote(before);
    if (status != MICS_OK && known) {
        mics_log(MICS_LOG_WARNING, "%s: what was downloaded before is taken", self->url);
        return MICS_OK;
    }
    return status == MICS_OK ? keep_listing(self, asked) : status;
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
        status = fetch_all(self);
    close(self->lock);
    return status;
}

mics_status remote_hub_get(remote_hub *self)
{
    const bool offline = remote_http_is_offline();
    bool asked = false;
    MICS_TRY(find_commit(self, &asked));
    if ((offline || (asked && self->listing != NULL)) && is_complete(self))
        return MICS_OK;
    return !offline ? fetch_online(self)
                    : mics_fail(MICS_ERR_INVALID,
                                "%s: was not downloaded before (%s lacks a part), and --offline or "
                                "HF_HUB_OFFLINE says to ask nobody; leave that out, or download it "
                                "where there is a network",
                                self->url, self->dir);
}

// ---- from outside ----

static const char *env(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : otherwise;
}

// HF_TOKEN's, or that of the file which `hf auth login` leaves.
static void read_token(hub *self, const char *home)
{
    char path[REMOTE_PATH_BYTES], token[400] = "";
    const char *said = env("HF_TOKEN", NULL);
    FILE *from =
        said == NULL && remote_path(path, "%s/token", home) == MICS_OK ? fopen(path, "re") : NULL;
    if (from != NULL && fgets(token, sizeof token, from) == NULL)
        token[0] = '\0';
    if (from != NULL)
        fclose(from);
    if (said != NULL)
        snprintf(token, sizeof token, "%s", said);
    token[strcspn(token, " \t\r\n")] = '\0'; // no further line of a header
    if (*token != '\0')
        mics_text_format(self->header, sizeof self->header, "Authorization: Bearer %s", token);
}

static const remote_hub_source of_hub = {
    .ask = download_listing, .download = download_file, .fail_missing = fail_missing};

// `name` is what stands behind hf://. Returns: whether it is such a name.
static bool open_hub(hub *self, const char *name)
{
    char home[REMOTE_PATH_BYTES], cache[REMOTE_PATH_BYTES];
    const char *repo = self->name.repo, *endpoint = env("HF_ENDPOINT", "https://huggingface.co");
    const char *said_home = env("HF_HOME", NULL), *said = env("HF_HUB_CACHE", NULL);
    const size_t bytes = strlen(endpoint);
    if (!remote_hub_parse(name, &self->name))
        return false;
    mics_text_format(self->endpoint, sizeof self->endpoint, "%.*s",
                     (int)(endpoint[bytes - 1] == '/' ? bytes - 1 : bytes), endpoint);
    if ((said_home != NULL ? remote_path(home, "%s", said_home)
                           : remote_cache_of("huggingface", home)) != MICS_OK ||
        (said != NULL ? remote_path(cache, "%s", said) : remote_path(cache, "%s/hub", home)) !=
            MICS_OK)
        return false;
    read_token(self, home);
    const size_t org = strcspn(repo, "/");
    return remote_path(self->dir, "%s/%s--%.*s--%s", cache,
                       self->name.dataset ? "datasets" : "models", (int)org, repo,
                       repo + org + 1) == MICS_OK;
}

void remote_hub_close(remote_hub *self)
{
    mics_json_close(self->listing);
    remote_http_close(self->http);
}

mics_status remote_hub_load(remote_hub *self)
{
    bool asked = false;
    return find_commit(self, &asked);
}

bool remote_hub_has(remote_hub *self)
{
    return self->listing != NULL && walk(self, false) == MICS_OK && self->count > 0;
}

mics_status remote_hub_get_path(remote_hub *self, char **path_out)
{
    char path[REMOTE_PATH_BYTES];
    mics_status status = remote_hub_get(self);
    if (status == MICS_OK)
        status = remote_path(path, "%s/snapshots/%s%s%s", self->dir, self->commit,
                             self->name.path[0] != '\0' ? "/" : "", self->name.path);
    remote_hub_close(self);
    return status == MICS_OK ? mics_strdup(self->memory, path, path_out) : status;
}

mics_status remote_hub_fetch(mics_memory *memory, const char *url, mics_remote_want want,
                             char **path_out)
{
    hub self = {.source = &of_hub, .memory = memory, .url = url, .want = want};
    if (!open_hub(&self, url + strlen("hf://")))
        return mics_fail(MICS_ERR_INVALID,
                         "%s: must be as hf://ORG/NAME, hf://ORG/NAME@REVISION/FILE or "
                         "hf://datasets/ORG/NAME/FILE",
                         url);
    return remote_hub_get_path(&self, path_out);
}

// "CACHE/models--ORG--NAME/snapshots/COMMIT[/PATH]".
bool remote_hub_open_path(remote_hub *self, mics_memory *memory, const char *path,
                          mics_remote_want want)
{
    char name[REMOTE_PATH_BYTES];
    const char *at = strstr(path, "/snapshots/"), *begin = at;
    *self = (hub){.source = &of_hub, .memory = memory, .url = path, .want = want};
    while (at != NULL && begin > path && begin[-1] != '/')
        begin--;
    const char *org = at != NULL ? strstr(begin, "--") : NULL;
    const char *middle = org != NULL ? strstr(org + 2, "--") : NULL;
    if (middle == NULL || middle > at)
        return false;
    snprintf(name, sizeof name, "%s%.*s/%.*s@%s", *begin == 'd' ? "datasets/" : "",
             (int)(middle - org) - 2, org + 2, (int)(at - middle) - 2, middle + 2,
             at + strlen("/snapshots/"));
    return open_hub(self, name) && is_hex(self->name.revision, COMMIT_DIGITS) &&
           remote_path(self->dir, "%.*s", (int)(at - path), path) == MICS_OK &&
           remote_hub_load(self) == MICS_OK;
}
