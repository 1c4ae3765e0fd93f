// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Small things with paths and files.
#ifndef MICS_RUN_FILES_H
#define MICS_RUN_FILES_H

#include "mics/data.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>

/* Finds the checkpoint folder that PATH means: itself, or the newest in it or in its checkpoints/.
 * Returns: MICS_OK; MICS_ERR_IO, logged, when there is none. Owns: mics_free *folder_out. */
mics_status run_checkpoint_find(mics_memory *memory, const char *path, char **folder_out);

/* Whether a file is a token shard by its name. */
bool run_is_shard(const char *path);

/* Whether nobody can say what text a run's tokens are: all of its data are token shards
 * (`only_shards`), and no tokenizer.json was given for them. Then data.tokenizer's default has no
 * say. A model of exactly 256 tokens is taken to be one of bytes.
 */
bool run_tokens_unknown(const char *tokenizer, bool only_shards, int64_t vocab);

#endif
