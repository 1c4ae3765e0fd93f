// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A file that is read from its begin to its end, unpacked on the way where its name ends in .gz or
// .zst, and hashed as it lies on the disk. A Parquet file is read as JSON Lines.
#pragma once

#include "io/data/parquet/parquet.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <xxhash.h>

typedef struct mics_unpacker mics_unpacker;

typedef enum mics_text_kind {
    MICS_TEXT_PLAIN, // one text
    MICS_TEXT_LINES, // JSON Lines: an object a line
    MICS_TEXT_ARRAY, // one JSON array of objects
    MICS_TEXT_CSV,   // rows of a table, with commas
    MICS_TEXT_TSV    // the same with tabs
} mics_text_kind;

#define MICS_MARK "\xef\xbb\xbf" // byte order mark of UTF-8, which is passed over
enum { MICS_MARK_BYTES = 3 };

typedef struct mics_content {
    mics_text_kind kind;
    bool marked; // begins with a byte order mark
    bool crlf;   // one text, whose first line ends in CR LF
} mics_content;

typedef struct mics_reader {
    mics_memory *memory;
    const char *path; // the caller's
    int file;
    int64_t bytes; // of the file, when it was opened
    int64_t read;  // of these
    XXH3_state_t *hash;
    mics_unpacker *unpacker; // NULL: the file is what it says
    mics_content content;    // by mics_reader_find_content
    mics_parquet *parquet;   // by the same; NULL: it is none
} mics_reader;

/* Offset of the first byte from `at` on that is no white space of JSON; `bytes`: there is none. */
static inline size_t mics_reader_skip_white(const char *text, size_t bytes, size_t at)
{
    while (at < bytes &&
           (text[at] == ' ' || text[at] == '\t' || text[at] == '\r' || text[at] == '\n'))
        at++;
    return at;
}

/* Whether a name ends so, before .gz or .zst if it has one. */
bool mics_reader_ends(const char *path, const char *end);

/* How a name says that a file is packed: ".gz", ".zst" or "". */
const char *mics_reader_packing(const char *path);

/* Opens a file; mics_reader_rewind begins it. Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_MEMORY.
 * Owns: mics_reader_close, also after a failure. */
mics_status mics_reader_open(mics_memory *memory, const char *path, mics_reader *reader_out);
void mics_reader_close(mics_reader *reader);

/* Goes back to the begin; the hash has this seed. */
mics_status mics_reader_rewind(mics_reader *reader, uint64_t seed);

/* Reads `bytes`, or what is left: less than `bytes` only at the end.
 *
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_FORMAT: packed data is damaged or cut short; MICS_ERR_MEMORY
 */
mics_status mics_reader_read(mics_reader *reader, char *to, size_t bytes, size_t *got_out);

/* The hash of the whole file as it lies on the disk; the reader is at its begin or end then. */
mics_status mics_reader_hash(mics_reader *reader, uint64_t seed, XXH128_hash_t *hash_out);

/* The hash of what was read since it was rewound. */
XXH128_hash_t mics_reader_digest(const mics_reader *reader);

// ---- content.c ----

/* Finds what a file is, unpacked; mics_reader_rewind begins it again. What begins as archives,
 * programs and other files without text do, or as UTF-16, or has a NUL in its first 64 KiB, is
 * refused. `columns`: of Parquet those that are read, as in mics_parquet_source.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged; as mics_reader_read, mics_parquet_open. */
mics_status mics_reader_find_content(mics_reader *reader, const char *const *columns);

// ---- unpack.c ----

/* Makes what unpacks a file by its name; *out NULL: nothing needs to. */
mics_status mics_unpacker_open(mics_memory *memory, const char *path, mics_unpacker **out);
void mics_unpacker_close(mics_memory *memory, mics_unpacker *unpacker);
mics_status mics_unpacker_rewind(mics_unpacker *unpacker, const char *path);

// Reads packed bytes, as mics_reader_read does.
typedef mics_status mics_unpacker_fetch(mics_reader *reader, void *to, size_t bytes,
                                        size_t *got_out);

/* As mics_reader_read. */
mics_status mics_unpacker_read(mics_unpacker *unpacker, mics_unpacker_fetch *fetch,
                               mics_reader *reader, char *to, size_t bytes, size_t *got_out);
