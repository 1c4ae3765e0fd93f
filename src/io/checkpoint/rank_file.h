// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A rank file: what one rank held, with a checksum for each MiB.
//
// All numbers are little-endian. H is header_bytes, P pieces.
//
//   at  bytes  prefix
//    0      8  "MICSCKP1"
//    8      8  header_bytes: length of the header, which begins at 24
//   16      8  XXH3-64 of the header
//
//   at  bytes  header (offsets from 24)
//    0      8  step
//    8      4  rank
//   12      4  writers: rank files of this checkpoint
//   16      4  chunk_bytes: 1048576
//   20      4  states: 3 (parameters, first moment, second moment)
//   24      8  file_bytes: length of the whole file
//   32      4  pieces
//   36      4  names_bytes: length of the names, a multiple of 8
//   40   56 P  pieces: unit_elems, begin, end (8 each), data_offset[3] (8 each), name_at,
//   name_bytes
//              (4 each; name_at counts from the names' start; name_bytes without the NUL)
//         ...  names, each ending in a NUL; zeros up to a multiple of 8
//         ...  XXH3-64 of every chunk, 8 bytes each: for each piece, for each state, for each chunk
//
// Data: for each piece, for each state, end - begin fp32. Each begins on the next multiple of 64,
// and the file ends on one; the gaps are zeros. A state's last chunk may be short. So every
// offset follows from the lengths, and a reader refuses any other.
#ifndef MICS_CHECKPOINT_RANK_FILE_H
#define MICS_CHECKPOINT_RANK_FILE_H

#include "mics/checkpoint.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdint.h>

enum {
    MICS_RANK_FILE_PREFIX = 24,
    MICS_RANK_FILE_CHUNK = 1 << 20, // bytes of data under one checksum
    MICS_RANK_FILE_NAME_MAX = 4096  // bytes of a unit's name
};

// Who wrote a rank file, and when.
typedef struct mics_rank_file_id {
    int64_t step;
    int32_t rank;
    int32_t writers;
} mics_rank_file_id;

typedef struct mics_rank_piece {
    const char *unit; // inside the file's header
    int64_t unit_elems;
    int64_t begin, end;
    int64_t data_offset[MICS_STATES];         // bytes from the file's start
    const unsigned char *hashes[MICS_STATES]; // one little-endian u64 a chunk, inside the header
} mics_rank_piece;

// A file's header as read. Zero it before; free it with mics_rank_file_fini.
typedef struct mics_rank_file {
    unsigned char *header;
    mics_rank_piece *pieces;
    int32_t count;
    mics_rank_file_id id;
    int64_t file_bytes;
    uint64_t header_hash;
} mics_rank_file;

/* Checks pieces before anything is written.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID (which piece, and why).
 */
mics_status mics_rank_file_check(const mics_piece *pieces, int32_t count);

/* Writes a file and brings it to disk, one chunk at a time straight from the pieces. A file that
 * could not be completed is removed.
 *
 * Needs:   pieces that mics_rank_file_check passed.
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_MEMORY.
 */
mics_status mics_rank_file_write(mics_memory *memory, const char *path, mics_rank_file_id id,
                                 const mics_piece *pieces, int32_t count);

/* Reads and checks a file's header; the data is not touched.
 *
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_FORMAT (file, offset, what); MICS_ERR_MEMORY.
 */
mics_status mics_rank_file_load(mics_memory *memory, const char *path, mics_rank_file *file_out);

void mics_rank_file_fini(mics_memory *memory, mics_rank_file *file);

/* Chunks of `elems` fp32. */
int64_t mics_rank_file_chunks(int64_t elems);

/* Reads elements [begin, end) of a piece's state, counted from the unit's start, and checks every
 * chunk that holds one of them. `path` is the piece's file.
 *
 * Needs:   piece->begin <= begin <= end <= piece->end.
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_FORMAT; MICS_ERR_MEMORY.      Threads: any.
 */
mics_status mics_rank_file_read(mics_memory *memory, const char *path, const mics_rank_piece *piece,
                                mics_state state, int64_t begin, int64_t end, float *data_out);

#endif
