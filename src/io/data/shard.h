// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Token shards on disk, in llm.c's format: 256 int32 of header (magic, version, count), then the
// tokens, little-endian. Magic 20240520 with version 1 has uint16 tokens, magic 20240801 with
// version 7 uint32 ones. Beyond 2^31 - 1 tokens the upper half of the count stands in word 3, which
// llm.c leaves 0; its reader then refuses the file, as it must.
// Source: github.com/karpathy/llm.c, dev/data/data_common.py and llmc/dataloader.h, 2024.
#ifndef MICS_DATA_SHARD_H
#define MICS_DATA_SHARD_H

#include "mics/data.h"
#include "mics/status.h"
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MICS_SHARD_HEADER_WORDS = 256,
    MICS_SHARD_HEADER_BYTES = 4 * MICS_SHARD_HEADER_WORDS,
    MICS_SHARD_VOCAB_U16 = 65536, // the largest vocabulary whose tokens are written as uint16
    MICS_SHARD_BUFFER_BYTES = 1 << 16
};

// A shard being written, under a name of its own until it is complete.
typedef struct mics_shard_writer {
    char path[PATH_MAX];
    char partial[PATH_MAX];
    int file;
    int32_t vocab;
    int32_t token_bytes; // 2 or 4
    int64_t count;
    size_t used; // of buffer
    unsigned char buffer[MICS_SHARD_BUFFER_BYTES];
} mics_shard_writer;

// The machine's name, in letters that mean nothing in paths and patterns.
typedef struct mics_shard_host {
    char name[65];
} mics_shard_host;

mics_shard_host mics_shard_host_get(void);

/* Begins PATH.<machine>-<process>-<thread>-<n>.partial. End it with mics_shard_finish. */
mics_status mics_shard_create(const char *path, int32_t vocab, mics_shard_writer *writer_out);

/* Returns MICS_OK; MICS_ERR_INVALID (a token outside [0, vocab)); MICS_ERR_IO. */
mics_status mics_shard_append(mics_shard_writer *writer, const int32_t *tokens, int64_t count);

/* Renames the shard into place when `status` is MICS_OK and it holds tokens; else removes it.
 * Returns: `status` if it is an error; MICS_ERR_INVALID (no tokens); MICS_ERR_IO; MICS_OK. */
mics_status mics_shard_finish(mics_shard_writer *writer, mics_status status);

// A shard mapped into memory. Whoever shortens the file while it is mapped ends the process
// (SIGBUS); shards are replaced by rename, never changed.
typedef struct mics_shard {
    const void *map;
    size_t map_bytes;
    int32_t token_bytes;
    int64_t count;
} mics_shard;

/* Returns MICS_OK; MICS_ERR_IO; MICS_ERR_FORMAT (file, offset, what). Tokens are not looked at. */
mics_status mics_shard_open(const char *path, mics_shard *shard_out);
void mics_shard_close(mics_shard *shard);

/* Copies tokens [begin, begin + count); one beyond int32_t becomes negative. */
void mics_shard_read(const mics_shard *shard, int64_t begin, int64_t count, int32_t *tokens_out);

// ---- text_shard.c ----

/* Finds or makes the shard of one text: the separator, if the tokenizer has one, then its tokens.
 *
 * The shard is CACHE_DIR/<hash of contents and tokenizer>.bin. Several processes may ask at once:
 * one tokenizes while the others wait for its lock. Where locks do not work, each tokenizes, and
 * the renames put equal files in place. Memory does not grow with the text. The tokens are those of
 * the whole text at once, unless a piece without a place to cut exceeds 4 MiB: it is cut there.
 * Returns: MICS_OK, with *shard_path_out = NULL for an empty text (mics_free it otherwise);
 *          MICS_ERR_IO; MICS_ERR_FORMAT; MICS_ERR_MEMORY.
 */
mics_status mics_text_shard(mics_memory *memory, const char *path, const mics_tokenizer *tokenizer,
                            const char *cache_dir, char **shard_path_out);

#endif
