// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/data/files.h"
#include "base/file.h"
#include "base/text.h"
#include "io/data/reader.h"
#include "mics/log.h"
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_DEPTH = 32 };

// Of a folder.
typedef struct walk {
    mics_files *files;
    const char *folder;
    int32_t number;
    mics_files about; // what tells of data rather than being it
    int64_t passed;   // files whose names end otherwise
    char first_passed[NAME_MAX + 1];
} walk;

void mics_files_fini(mics_files *files)
{
    for (int64_t i = 0; i < files->count; i++)
        mics_free(files->memory, files->items[i].path);
    mics_free(files->memory, files->items);
    *files = (mics_files){.memory = files->memory};
}

static mics_status add(mics_files *files, const char *path, int32_t number)
{
    if (files->count == files->capacity) {
        const int64_t capacity = files->capacity == 0 ? 16 : 2 * files->capacity;
        void *block = files->items;
        MICS_TRY(mics_realloc(files->memory, MICS_MEM_HOST, (size_t)capacity * sizeof *files->items,
                              &block));
        files->items = block;
        files->capacity = capacity;
    }
    mics_file_name *next = &files->items[files->count];
    *next = (mics_file_name){.pattern = number};
    MICS_TRY(mics_strdup(files->memory, path, &next->path));
    files->count++;
    return MICS_OK;
}

// Not by the locale, because the order of data must not depend on one.
static int by_bytes(const void *a, const void *b)
{
    return strcmp(((const mics_file_name *)a)->path, ((const mics_file_name *)b)->path);
}

static void sort_from(mics_files *files, int64_t first)
{
    if (files->count > first)
        qsort(files->items + first, (size_t)(files->count - first), sizeof *files->items, by_bytes);
}

// ---- folders ----

static bool is_data(const char *name)
{
    static const char *const endings[] = {".txt",    ".text", ".md", ".jsonl",
                                          ".ndjson", ".csv",  ".tsv"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (mics_reader_ends(name, endings[i]))
            return true;
    }
    // What is called .json beside data is mostly somebody's configuration.
    return mics_text_ends(name, ".bin") || mics_text_ends(name, ".parquet") ||
           (mics_reader_ends(name, ".json") && !mics_text_ends(name, ".json"));
}

// What lies beside a data set and tells of it, whatever it ends in.
static bool is_about_data(const char *name)
{
    static const char *const stems[] = {"README",    "LICENSE", "LICENCE",      "COPYING",
                                        "CHANGELOG", "NOTICE",  "CONTRIBUTING", "CITATION"};
    const size_t bytes = strcspn(name, ".");
    for (size_t i = 0; i < sizeof stems / sizeof *stems; i++) {
        if (strlen(stems[i]) == bytes && strncasecmp(name, stems[i], bytes) == 0)
            return mics_text_ends(name, ".md") || mics_text_ends(name, ".txt");
    }
    return false;
}

static void pass_over(walk *self, const char *name)
{
    if (self->passed++ == 0)
        snprintf(self->first_passed, sizeof self->first_passed, "%s", name);
}

static mics_status add_folder(walk *self, const char *folder, int depth);

static mics_status add_entry(walk *self, const char *folder, const char *name, int depth)
{
    char *path = NULL;
    struct stat facts;
    MICS_TRY(mics_file_join(self->files->memory, folder, name, &path));
    mics_status status = MICS_OK;
    if (stat(path, &facts) != 0)
        status = mics_fail(mics_status_of_errno(errno), "%s: cannot look at it: %s", path,
                           strerror(errno));
    else if (S_ISDIR(facts.st_mode))
        status = add_folder(self, path, depth + 1);
    else if (is_about_data(name))
        status = add(&self->about, path, self->number);
    else if (is_data(name))
        status = add(self->files, path, self->number);
    else if (!mics_text_ends(name, ".idx"))
        pass_over(self, name);
    mics_free(self->files->memory, path);
    return status;
}

static mics_status add_folder(walk *self, const char *folder, int depth)
{
    if (depth > MAX_DEPTH)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: is more than %d folders deep in %s; does a link lead back? Name the "
                         "folder that holds the files",
                         folder, MAX_DEPTH, self->folder);
    DIR *entries = opendir(folder);
    if (entries == NULL)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot open: %s", folder,
                         strerror(errno));
    mics_status status = MICS_OK;
    const struct dirent *entry = NULL;
    while (status == MICS_OK && (errno = 0, entry = readdir(entries)) != NULL) {
        if (entry->d_name[0] != '.')
            status = add_entry(self, folder, entry->d_name, depth);
    }
    if (status == MICS_OK && errno != 0) // which would be a shorter list
        status = mics_fail(mics_status_of_errno(errno), "%s: cannot list the folder: %s", folder,
                           strerror(errno));
    closedir(entries);
    return status;
}

// Where there is nothing else, it is the data.
static mics_status settle_about(walk *self, int64_t first)
{
    const bool alone = self->files->count == first;
    mics_status status = MICS_OK;
    sort_from(&self->about, 0);
    for (int64_t i = 0; i < self->about.count && status == MICS_OK; i++) {
        const char *path = self->about.items[i].path;
        if (alone)
            status = add(self->files, path, self->number);
        else
            pass_over(self, strrchr(path, '/') + 1);
    }
    mics_files_fini(&self->about);
    return status;
}

static mics_status add_whole_folder(mics_files *files, const char *folder, int32_t number)
{
    static const char taken[] = ".bin, .parquet, .txt, .text, .md, .jsonl, .ndjson, .csv and "
                                ".tsv, and all but the first two also with .gz or .zst, as .json "
                                "is then";
    walk self = {
        .files = files, .folder = folder, .number = number, .about = {.memory = files->memory}};
    const int64_t first = files->count;
    char passed[NAME_MAX + 160] = "";
    const mics_status walked = add_folder(&self, folder, 0);
    const mics_status settled = settle_about(&self, first);
    MICS_TRY(walked);
    MICS_TRY(settled);
    if (files->count == first)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: this folder has no file whose name ends in %s; name other files "
                         "themselves, or with a glob",
                         folder, taken);
    sort_from(files, first);
    if (self.passed > 0)
        snprintf(passed, sizeof passed, "; %lld others are passed over, as %s",
                 (long long)self.passed, self.first_passed);
    mics_log(MICS_LOG_INFO, "%s: %lld files, in the order of their paths%s", folder,
             (long long)(files->count - first), passed);
    return MICS_OK;
}

int64_t mics_files_bytes(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISREG(facts.st_mode) ? facts.st_size : 0;
}

// ---- patterns ----

static mics_status add_one(mics_files *files, const char *path, int32_t number)
{
    struct stat facts;
    if (stat(path, &facts) == 0 && S_ISDIR(facts.st_mode))
        return add_whole_folder(files, path, number);
    return add(files, path, number);
}

// Megatron's arguments leave ".bin" and ".idx" away.
static bool is_prefix(const char *path, char *shard, size_t capacity)
{
    return snprintf(shard, capacity, "%s.idx", path) < (int)capacity && access(shard, F_OK) == 0 &&
           snprintf(shard, capacity, "%s.bin", path) < (int)capacity && access(shard, F_OK) == 0;
}

// A folder that cannot be listed would make the list shorter. One that is not there matches nothing.
static int is_unlisted(const char *folder, int cause)
{
    if (cause == ENOENT)
        return 0;
    mics_fail(MICS_ERR_IO, "%s: cannot list the folder: %s", folder, strerror(cause));
    return 1;
}

mics_status mics_files_add(mics_files *files, const char *pattern, int32_t number)
{
    char shard[PATH_MAX];
    if (access(pattern, F_OK) == 0) // a name, even when it looks like a pattern
        return add_one(files, pattern, number);
    if (is_prefix(pattern, shard, sizeof shard))
        return add(files, shard, number);
    glob_t found = {0};
    const int failure = glob(pattern, GLOB_NOSORT, is_unlisted, &found);
    mics_status status = MICS_OK;
    if (failure == GLOB_ABORTED)
        status = MICS_ERR_IO; // said
    else if (failure == GLOB_NOSPACE)
        status = mics_fail(MICS_ERR_MEMORY, "%s: no memory for the names that match", pattern);
    else if (failure != 0)
        status = mics_fail(MICS_ERR_IO, "%s: no such file, and no file matches it", pattern);
    const int64_t first = files->count;
    for (size_t i = 0; status == MICS_OK && i < found.gl_pathc; i++)
        status = add_one(files, found.gl_pathv[i], number);
    sort_from(files, first);
    globfree(&found);
    return status;
}
