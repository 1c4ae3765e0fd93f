// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/data/reader.h"
#include "base/file.h"
#include "base/text.h"
#include "mics/log.h"
#include <string.h>
#include <unistd.h>

const char *mics_reader_packing(const char *path)
{
    return mics_text_ends(path, ".gz") ? ".gz" : mics_text_ends(path, ".zst") ? ".zst" : "";
}

bool mics_reader_ends(const char *path, const char *end)
{
    const size_t bytes = strlen(end), all = strlen(path) - strlen(mics_reader_packing(path));
    return all >= bytes && memcmp(path + all - bytes, end, bytes) == 0;
}

mics_status mics_reader_open(mics_memory *memory, const char *path, mics_reader *reader_out)
{
    *reader_out = (mics_reader){.memory = memory, .path = path, .file = -1};
    MICS_TRY(mics_file_open_read(path, &reader_out->file, &reader_out->bytes));
    reader_out->hash = XXH3_createState();
    if (reader_out->hash == NULL)
        return mics_fail(MICS_ERR_MEMORY, "%s: no memory for a hash", path);
    return mics_unpacker_open(memory, path, &reader_out->unpacker);
}

void mics_reader_close(mics_reader *reader)
{
    if (reader->file >= 0)
        close(reader->file);
    XXH3_freeState(reader->hash);
    mics_parquet_close(reader->parquet);
    mics_unpacker_close(reader->memory, reader->unpacker);
}

mics_status mics_reader_rewind(mics_reader *reader, uint64_t seed)
{
    reader->read = 0;
    if (XXH3_128bits_reset_withSeed(reader->hash, seed) != XXH_OK)
        return mics_fail(MICS_ERR_MEMORY, "%s: cannot start a hash", reader->path);
    if (reader->parquet != NULL)
        mics_parquet_rewind(reader->parquet);
    return reader->unpacker != NULL ? mics_unpacker_rewind(reader->unpacker, reader->path)
                                    : MICS_OK;
}

static mics_status read_raw(mics_reader *reader, void *to, size_t bytes, size_t *got_out)
{
    MICS_TRY(mics_file_read_up_to(reader->file, reader->path, to, bytes, reader->read, got_out));
    (void)XXH3_128bits_update(reader->hash, to, *got_out); // fails only without a state
    reader->read += (int64_t)*got_out;
    return MICS_OK;
}

static mics_status read_raw_rest(mics_reader *reader)
{
    char block[1 << 16];
    for (size_t got = sizeof block; got == sizeof block;)
        MICS_TRY(read_raw(reader, block, sizeof block, &got));
    return MICS_OK;
}

// Rows are read in another order than bytes lie on the disk, so these are hashed behind the last row.
static mics_status read_rows(mics_reader *reader, char *to, size_t bytes, size_t *got_out)
{
    MICS_TRY(mics_parquet_read(reader->parquet, to, bytes, got_out));
    reader->read = mics_parquet_at(reader->parquet);
    if (*got_out == bytes)
        return MICS_OK;
    reader->read = 0;
    return read_raw_rest(reader);
}

mics_status mics_reader_read(mics_reader *reader, char *to, size_t bytes, size_t *got_out)
{
    if (reader->parquet != NULL)
        return read_rows(reader, to, bytes, got_out);
    if (reader->unpacker != NULL)
        return mics_unpacker_read(reader->unpacker, read_raw, reader, to, bytes, got_out);
    return read_raw(reader, to, bytes, got_out);
}

mics_status mics_reader_hash(mics_reader *reader, uint64_t seed, XXH128_hash_t *hash_out)
{
    MICS_TRY(mics_reader_rewind(reader, seed));
    MICS_TRY(read_raw_rest(reader));
    *hash_out = mics_reader_digest(reader);
    return MICS_OK;
}

XXH128_hash_t mics_reader_digest(const mics_reader *reader)
{
    return XXH3_128bits_digest(reader->hash);
}
