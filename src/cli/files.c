// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Small things with paths and files.
#include "files.h"
#include "mics/checkpoint.h"
#include "mics/log.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

mics_status cli_path_join(mics_memory *memory, const char *dir, const char *name, char **path_out)
{
    size_t length = strlen(dir), bytes = length + strlen(name) + 2;
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, bytes, &block));
    const char *slash = length > 0 && dir[length - 1] == '/' ? "" : "/";
    snprintf(block, bytes, "%s%s%s", dir, slash, name);
    *path_out = block;
    return MICS_OK;
}

mics_status cli_make_dirs(const char *path)
{
    char part[4096];
    size_t length = strlen(path);
    if (length >= sizeof part)
        return mics_fail(MICS_ERR_IO, "%.60s...: the path is too long", path);
    memcpy(part, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        char kept = part[i];
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return mics_fail(MICS_ERR_IO, "%s: cannot make the folder: %s", part, strerror(errno));
        part[i] = kept;
    }
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode))
        return mics_fail(MICS_ERR_IO, "%s: is no folder", path);
    return MICS_OK;
}

static mics_status write_and_close(FILE *file, const char *text)
{
    bool good = fputs(text, file) >= 0 && fflush(file) == 0 && fsync(fileno(file)) == 0;
    return fclose(file) == 0 && good ? MICS_OK : MICS_ERR_IO;
}

mics_status cli_write_file(mics_memory *memory, const char *path, const char *text)
{
    void *block = NULL;
    size_t bytes = strlen(path) + sizeof ".tmp";
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, bytes, &block));
    char *aside = block;
    snprintf(aside, bytes, "%s.tmp", path);
    FILE *file = fopen(aside, "we");
    mics_status status = file != NULL ? write_and_close(file, text) : MICS_ERR_IO;
    if (status == MICS_OK && rename(aside, path) != 0)
        status = MICS_ERR_IO;
    if (status != MICS_OK) {
        mics_fail(status, "%s: cannot be written: %s", path, strerror(errno));
        unlink(aside);
    }
    mics_free(memory, aside);
    return status;
}

static bool same_bytes(FILE *a, FILE *b)
{
    char part_a[4096], part_b[4096];
    for (;;) {
        size_t count_a = fread(part_a, 1, sizeof part_a, a);
        size_t count_b = fread(part_b, 1, sizeof part_b, b);
        if (count_a != count_b || memcmp(part_a, part_b, count_a) != 0)
            return false;
        if (count_a == 0)
            return !ferror(a) && !ferror(b);
    }
}

bool cli_same_files(const char *a, const char *b)
{
    FILE *file_a = fopen(a, "re"), *file_b = fopen(b, "re");
    bool same = file_a != NULL && file_b != NULL && same_bytes(file_a, file_b);
    if (file_a != NULL)
        fclose(file_a);
    if (file_b != NULL)
        fclose(file_b);
    return same;
}

// PATH/NAME is there?
static mics_status has(mics_memory *memory, const char *path, const char *name, bool *has_out)
{
    char *joined = NULL;
    MICS_TRY(cli_path_join(memory, path, name, &joined));
    *has_out = access(joined, F_OK) == 0;
    mics_free(memory, joined);
    return MICS_OK;
}

mics_status cli_checkpoint_find(mics_memory *memory, const char *path, char **folder_out)
{
    bool is_checkpoint = false, has_checkpoints = false;
    char *dir = NULL, *found = NULL;
    if (access(path, F_OK) != 0)
        return mics_fail(MICS_ERR_IO, "%s: %s", path, strerror(errno));
    MICS_TRY(has(memory, path, "manifest.json", &is_checkpoint));
    if (is_checkpoint)
        return mics_strdup(memory, path, folder_out);
    MICS_TRY(has(memory, path, "checkpoints", &has_checkpoints));
    MICS_TRY(cli_path_join(memory, path, has_checkpoints ? "checkpoints" : ".", &dir));
    mics_status status = mics_checkpoint_latest(memory, dir, &found);
    mics_free(memory, dir);
    MICS_TRY(status);
    if (found == NULL)
        return mics_fail(MICS_ERR_IO,
                         "%s: holds no complete checkpoint; give a step's folder, or that of a run",
                         path);
    *folder_out = found;
    return MICS_OK;
}

void cli_write_json_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20)
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

mics_status cli_temp_dir_init(cli_temp_dir *dir_out)
{
    const char *parent = getenv("TMPDIR");
    char path[sizeof dir_out->path];
    if (parent == NULL || parent[0] == '\0')
        parent = "/tmp";
    int length = snprintf(path, sizeof path, "%s/mics-XXXXXX", parent);
    if (length < 0 || (size_t)length >= sizeof path || mkdtemp(path) == NULL)
        return mics_fail(MICS_ERR_IO, "%s: no temporary folder: %s", parent, strerror(errno));
    memcpy(dir_out->path, path, sizeof path);
    return MICS_OK;
}

void cli_temp_dir_fini(cli_temp_dir *dir)
{
    DIR *entries = dir->path[0] != '\0' ? opendir(dir->path) : NULL;
    if (entries == NULL)
        return;
    const struct dirent *entry;
    while ((entry = readdir(entries)) != NULL)
        (void)unlinkat(dirfd(entries), entry->d_name, 0); // "." and ".." stay
    closedir(entries);
    rmdir(dir->path);
    dir->path[0] = '\0';
}
