// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Texts as token shards, kept in a cache folder.
#ifndef MICS_DATA_TEXT_SHARD_H
#define MICS_DATA_TEXT_SHARD_H

#include "mics/data.h"

/* Finds or makes the shard of one text: the separator, if the tokenizer has one, then its tokens.
 *
 * The shard is CACHE_DIR/<hash of contents and tokenizer>.bin. Several processes may ask at once:
 * one tokenizes while the others wait for its lock. Where locks do not work, or not between
 * machines, each tokenizes, and the renames put equal files in place. Memory does not grow with the text. The tokens are those of
 * the whole text at once, unless a piece without a place to cut exceeds 4 MiB: it is cut there.
 * Returns: MICS_OK, with *shard_path_out = NULL for an empty text (mics_free it otherwise);
 *          MICS_ERR_IO; MICS_ERR_FORMAT; MICS_ERR_MEMORY.
 */
mics_status mics_text_shard(mics_memory *memory, const char *path, const mics_tokenizer *tokenizer,
                            const char *cache_dir, char **shard_path_out);

#endif
