// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/data/parquet/coding.h"
#include <snappy-c.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

// ---- compression ----

enum { NONE, SNAPPY, GZIP, LZO, BROTLI, LZ4, ZSTD, LZ4_RAW, CODECS };
enum { ANY_WINDOW = 15 + 32 }; // of zlib, which finds out whether it is gzip's or its own

static const struct {
    const char *refused;
    size_t ratio; // bytes that a packed one becomes at most, by the formats
} codecs[CODECS] = {[NONE] = {NULL, 1},       [SNAPPY] = {NULL, 32},     [GZIP] = {NULL, 1040},
                    [LZO] = {"LZO", 1},       [BROTLI] = {"BROTLI", 1},  [LZ4] = {"LZ4", 1},
                    [ZSTD] = {NULL, 1 << 16}, [LZ4_RAW] = {"LZ4_RAW", 1}};

const char *mics_parquet_codec_refused(int64_t codec)
{
    return codec >= 0 && codec < CODECS ? codecs[codec].refused : "an unknown codec";
}

bool mics_parquet_codec_can(int32_t codec, size_t packed, size_t bytes)
{
    return bytes / codecs[codec].ratio <= packed;
}

static bool inflate_page(const void *packed, size_t packed_bytes, void *to, size_t bytes)
{
    z_stream stream = {.next_in = (Bytef *)packed,
                       .avail_in = (uInt)packed_bytes,
                       .next_out = to,
                       .avail_out = (uInt)bytes};
    if (inflateInit2(&stream, ANY_WINDOW) != Z_OK)
        return false;
    const int result = inflate(&stream, Z_FINISH);
    inflateEnd(&stream);
    return result == Z_STREAM_END && stream.avail_out == 0;
}

bool mics_parquet_codec_unpack(int32_t codec, const void *packed, size_t packed_bytes, void *to,
                               size_t bytes)
{
    size_t length = bytes;
    if (bytes == 0)
        return true; // some writers pack nothing then, and others leave out even that
    if (codec == SNAPPY)
        return snappy_uncompressed_length(packed, packed_bytes, &length) == SNAPPY_OK &&
               length == bytes && snappy_uncompress(packed, packed_bytes, to, &length) == SNAPPY_OK;
    if (codec == GZIP)
        return inflate_page(packed, packed_bytes, to, bytes);
    if (codec == ZSTD)
        return ZSTD_decompress(to, bytes, packed, packed_bytes) == bytes;
    if (packed_bytes == bytes)
        memcpy(to, packed, bytes);
    return packed_bytes == bytes;
}

// ---- runs ----

enum { GROUP = 8 }; // bit-packed values; they take as many bytes as one has bits

mics_runs mics_runs_begin(const unsigned char *bytes, size_t count, int32_t bits)
{
    return (mics_runs){.at = bytes,
                       .end = bytes + count,
                       .bits = bits,
                       .left = bits == 0 && count == 0 ? UINT64_MAX : 0};
}

mics_runs mics_runs_packed(const unsigned char *bytes, size_t count, int32_t bits)
{
    return (mics_runs){.at = bytes + count, .packed = bytes, .bits = bits, .left = UINT64_MAX};
}

static bool begin_run(mics_runs *runs)
{
    uint64_t head = 0;
    uint8_t byte = 0x80;
    for (int shift = 0; byte >= 0x80; shift += 7) {
        if (runs->at == runs->end || shift > 28)
            return false;
        byte = *runs->at++;
        head |= (uint64_t)(byte & 0x7F) << shift;
    }
    const bool packed = (head & 1) != 0;
    const uint64_t space = (uint64_t)(runs->end - runs->at), count = head >> 1;
    uint64_t bytes = packed ? count * (uint64_t)runs->bits : (uint64_t)(runs->bits + 7) / 8;
    if (packed && bytes > space)
        bytes = space; // some writers cut the last group short
    if (bytes > space)
        return false;
    runs->left = packed ? count * GROUP : count;
    runs->packed = packed ? runs->at : NULL;
    runs->bit = runs->value = 0;
    for (uint64_t i = 0; i < bytes && !packed; i++) // in 8 bits there may be more than one has
        runs->value |= (uint32_t)runs->at[i] << 8 * i;
    runs->at += bytes;
    return true;
}

static bool unpack(mics_runs *runs, uint32_t *value_out)
{
    const uint64_t first = runs->bit / 8, end = (runs->bit + (uint64_t)runs->bits + 7) / 8;
    uint64_t word = 0;
    if (end > (uint64_t)(runs->at - runs->packed))
        return false;
    for (uint64_t i = first; i < end; i++)
        word |= (uint64_t)runs->packed[i] << 8 * (i - first);
    *value_out = (uint32_t)(word >> runs->bit % 8 & ((UINT64_C(1) << runs->bits) - 1));
    runs->bit += (uint64_t)runs->bits;
    return true;
}

bool mics_runs_next(mics_runs *runs, uint32_t *value_out)
{
    while (runs->left == 0) {
        if (!begin_run(runs))
            return false;
    }
    runs->left--;
    *value_out = runs->value;
    return runs->packed == NULL || unpack(runs, value_out);
}
