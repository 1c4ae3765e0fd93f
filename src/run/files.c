// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Small things with paths and files.
#include "files.h"
#include "base/file.h"
#include "mics/checkpoint.h"
#include "mics/log.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// PATH/NAME is there?
static mics_status has(mics_memory *memory, const char *path, const char *name, bool *has_out)
{
    char *joined = NULL;
    MICS_TRY(mics_file_join(memory, path, name, &joined));
    *has_out = access(joined, F_OK) == 0;
    mics_free(memory, joined);
    return MICS_OK;
}

mics_status run_checkpoint_find(mics_memory *memory, const char *path, char **folder_out)
{
    bool is_checkpoint = false, has_checkpoints = false;
    char *dir = NULL, *found = NULL;
    if (access(path, F_OK) != 0)
        return mics_fail(MICS_ERR_IO, "%s: %s", path, strerror(errno));
    MICS_TRY(has(memory, path, "manifest.json", &is_checkpoint));
    if (is_checkpoint)
        return mics_strdup(memory, path, folder_out);
    MICS_TRY(has(memory, path, "checkpoints", &has_checkpoints));
    MICS_TRY(mics_file_join(memory, path, has_checkpoints ? "checkpoints" : ".", &dir));
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

void run_write_json_string(FILE *out, const char *text)
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

bool run_is_shard(const char *path)
{
    size_t length = strlen(path);
    return length >= 4 && strcmp(path + length - 4, ".bin") == 0;
}

bool run_tokens_unknown(const char *tokenizer, bool only_shards, int64_t vocab)
{
    enum { BYTES = 256 };
    return only_shards && strcmp(tokenizer, "bytes") == 0 && vocab != BYTES;
}

const char *run_tokenizer_text(const mics_tokenizer *tokenizer, size_t *bytes_out)
{
    *bytes_out = 0;
    return tokenizer != NULL ? mics_tokenizer_text(tokenizer, bytes_out) : NULL;
}

mics_status run_temp_dir_init(run_temp_dir *dir_out)
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

void run_temp_dir_fini(run_temp_dir *dir)
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
