// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A rank file: what one rank held, as a .safetensors file with a checksum for each MiB.
// docs/formats.md describes it: a tensor is a state of a shard, called UNIT.STATE[BEGIN:END of
// ELEMS], and the header's metadata holds checksums and who wrote it.
#pragma once

#include "base/text.h"
#include "io/checkpoint/safetensors_file.h"
#include "mics/core/checkpoint.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdint.h>

enum {
    MICS_RANK_FILE_CHUNK = 1 << 20, // bytes of data under one checksum
    MICS_RANK_FILE_MAX_NAME = 4096  // bytes of a name that is written
};

// A unit of 2^55 elements is beyond any machine, and its bytes and offsets still fit in 63 bits.
#define MICS_RANK_FILE_MAX_ELEMS ((int64_t)1 << 55)

// Every header begins so, then come the 16 digits of the checksum of the bytes behind them.
#define MICS_RANK_FILE_STEM "{\"__metadata__\":{\"format\":\"mics-rank-file\",\"version\":\""
#define MICS_RANK_FILE_BEGIN MICS_RANK_FILE_STEM "3\",\"xxh3\":\""

enum {
    MICS_RANK_FILE_HASH_DIGITS = 16,
    MICS_RANK_FILE_HASH_AT = MICS_SAFETENSORS_PREFIX + sizeof MICS_RANK_FILE_BEGIN - 1,
    MICS_RANK_FILE_HASHED_AT = MICS_RANK_FILE_HASH_AT + MICS_RANK_FILE_HASH_DIGITS,
    MICS_RANK_FILE_RANGE_BYTES = 80 // of a name's end
};

// Who wrote a rank file, and when.
typedef struct mics_rank_file_id {
    int64_t step;
    int32_t rank;
    int32_t writers;
} mics_rank_file_id;

// One state of a shard, fp32.
typedef struct mics_rank_state {
    const char *name;       // inside the file's names
    int64_t data_offset;    // bytes from the file's start
    const uint64_t *hashes; // one a chunk, inside the file's
} mics_rank_state;

typedef struct mics_rank_shard {
    const char *unit; // inside the file's names
    int64_t unit_elems;
    int64_t begin, end;
    int32_t state_count;           // 1 to MICS_MAX_SHARD_STATES, with different names
    const mics_rank_state *states; // inside the file's
} mics_rank_shard;

// A file's header as read. Zero it before; free it with mics_rank_file_fini.
typedef struct mics_rank_file {
    char *path;
    char *names;
    uint64_t *hashes;
    mics_rank_shard *shards;
    mics_rank_state *states; // of all shards
    int32_t count;           // shards
    mics_rank_file_id id;
    int64_t file_bytes;
    uint64_t header_hash;
} mics_rank_file;

/* Checks shards before anything is written. Returns: MICS_OK; MICS_ERR_INVALID (which shard, and
 * why); MICS_ERR_UNSUPPORTED (its state's dtype). */
mics_status mics_rank_file_check(const mics_optimizer_shard *shards, int32_t count);

/* Writes a file and brings it to disk, one chunk at a time straight from the shards. A file that
 * could not be completed is removed. The listener (NULL: none) hears the bytes now and then.
 * Needs: shards that mics_rank_file_check passed. */
mics_status mics_rank_file_write(mics_memory *memory, const char *path, mics_rank_file_id id,
                                 const mics_optimizer_shard *shards, int32_t count,
                                 const mics_work_listener *listener);

/* The same over what an open file holds, whose memory is used again; nothing is brought to disk.
 * `path` is for errors.
 *
 * bytes_out: of the file; hash_out: of its header.
 */
mics_status mics_rank_file_write_over(mics_memory *memory, int fd, const char *path,
                                      mics_rank_file_id id, const mics_optimizer_shard *shards,
                                      int32_t count, int64_t *bytes_out, uint64_t *hash_out);

/* Reads and checks a file's header; the data is not touched.
 *
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_FORMAT (file, offset, what); MICS_ERR_MEMORY.
 * Owns:    free with mics_rank_file_fini.
 */
mics_status mics_rank_file_load(mics_memory *memory, const char *path, mics_rank_file *file_out);

void mics_rank_file_fini(mics_memory *memory, mics_rank_file *file);

/* Whether a file is that of `id`. Returns: MICS_OK; MICS_ERR_FORMAT. */
mics_status mics_rank_file_check_id(const mics_rank_file *file, mics_rank_file_id id);

/* Whether a file has the length and the header that its manifest lists. Returns: MICS_OK;
 * MICS_ERR_FORMAT. */
mics_status mics_rank_file_check_listed(const mics_rank_file *file, int64_t bytes, uint64_t hash);

/* Appends the name that a unit has in files: "h.0", of an island's own state "h.0@1". */
void mics_rank_file_put_unit(mics_text *text, const char *unit, int32_t of_island);

/* Chunks of `elems` fp32. */
int64_t mics_rank_file_chunks(int64_t elems);

/* Writes the digits of a checksum, without a NUL. */
void mics_rank_file_put_hash(char *digits_out, uint64_t hash);

/* The end of a tensor's name: "[BEGIN:END of ELEMS]". */
void mics_rank_file_range_text(int64_t begin, int64_t end, int64_t elems,
                               char text[MICS_RANK_FILE_RANGE_BYTES]);

/* The state called `name`, or NULL. */
const mics_rank_state *mics_rank_shard_find(const mics_rank_shard *shard, const char *name);

/* Reads elements [begin, end) of a shard's state, counted from the unit's start, and checks every
 * chunk that holds one of them. `path` is the shard's file.
 *
 * Needs:   shard->begin <= begin <= end <= shard->end; a state of the shard.
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_FORMAT; MICS_ERR_MEMORY.      Threads: any.
 */
mics_status mics_rank_file_read(mics_memory *memory, const char *path, const mics_rank_shard *shard,
                                const mics_rank_state *state, int64_t begin, int64_t end,
                                float *data_out);
