// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Small things with paths and files.
#include "files.h"
#include "base/file.h"
#include "base/text.h"
#include "mics/checkpoint.h"
#include "mics/log.h"
#include <errno.h>
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

bool run_is_shard(const char *path)
{
    return mics_text_ends(path, ".bin");
}

bool run_tokens_unknown(const char *tokenizer, bool only_shards, int64_t vocab)
{
    enum { BYTES = 256 };
    return only_shards && strcmp(tokenizer, "bytes") == 0 && vocab != BYTES;
}
