// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A rank file: what one rank held, with a checksum for each MiB. Written is version 2, read are 1
// and 2; docs/formats.md describes them.
//
// Every offset follows from the lengths before it, and a reader refuses any other. Version 1
// ("MICSCKP1") has 3 states a shard, which stand in the shards' records: unit_elems, begin, end,
// data_offset[3] (8 bytes each), name_at, name_bytes (4 each). `states` is 3.
#ifndef MICS_CHECKPOINT_RANK_FILE_H
#define MICS_CHECKPOINT_RANK_FILE_H

#include "mics/checkpoint.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdint.h>

enum {
    MICS_RANK_FILE_PREFIX = 24,
    MICS_RANK_FILE_FIXED = 40,       // bytes of the header before its shards
    MICS_RANK_FILE_SHARD_BYTES = 40, // a shard's, of version 2
    MICS_RANK_FILE_STATE_BYTES = 24, // a state's
    MICS_RANK_FILE_HASH_BYTES = 8,
    MICS_RANK_FILE_ALIGN = 64,      // of data
    MICS_RANK_FILE_CHUNK = 1 << 20, // bytes of data under one checksum
    MICS_RANK_FILE_MAX_NAME = 4096  // bytes of a name
};

#define MICS_RANK_FILE_MAGIC "MICSCKP" // before one character that is the version's
#define MICS_RANK_FILE_FP32 "F32"      // as safetensors calls it

// The header of 1 TB of data has 8 MB. A file that claims more than this asks for memory, not to be
// read.
#define MICS_RANK_FILE_MAX_HEADER ((int64_t)1 << 30)

// A unit of 2^55 elements is beyond any machine, and its bytes and offsets still fit in 63 bits.
#define MICS_RANK_FILE_MAX_ELEMS ((int64_t)1 << 55)

// Who wrote a rank file, and when.
typedef struct mics_rank_file_id {
    int64_t step;
    int32_t rank;
    int32_t writers;
} mics_rank_file_id;

// One state of a shard, fp32.
typedef struct mics_rank_state {
    const char *name;            // inside the file's header, or constant
    int64_t data_offset;         // bytes from the file's start
    const unsigned char *hashes; // one little-endian u64 a chunk, inside the header
} mics_rank_state;

typedef struct mics_rank_shard {
    const char *unit; // inside the file's header
    int64_t unit_elems;
    int64_t begin, end;
    int32_t state_count;           // 1 to MICS_MAX_SHARD_STATES, with different names
    const mics_rank_state *states; // inside the file's
} mics_rank_shard;

// A file's header as read. Zero it before; free it with mics_rank_file_fini.
typedef struct mics_rank_file {
    char *path;
    unsigned char *header;
    mics_rank_shard *shards;
    mics_rank_state *states; // of all shards
    int32_t count;           // shards
    mics_rank_file_id id;
    int64_t header_bytes;
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

/* Reads and checks a file's header, of version 1 or 2; the data is not touched.
 *
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_FORMAT (file, offset, what); MICS_ERR_MEMORY.
 * Owns:    free with mics_rank_file_fini.
 */
mics_status mics_rank_file_load(mics_memory *memory, const char *path, mics_rank_file *file_out);

void mics_rank_file_fini(mics_memory *memory, mics_rank_file *file);

/* Chunks of `elems` fp32. */
int64_t mics_rank_file_chunks(int64_t elems);

/* Index of the first number that is not finite; -1: none. */
int64_t mics_rank_file_find_not_finite(const float *data, int64_t elems);

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

#endif
