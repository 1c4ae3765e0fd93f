// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// gzip by zlib and Zstandard by libzstd. A file may have several members or frames, one behind the
// other, as `cat` and parallel compressors make them.
#include "base/text.h"
#include "io/data/reader.h"
#include "mics/log.h"
#include <limits.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

enum { PACKED_BYTES = 1 << 17 };

// A window of zlib's largest size, of a gzip member.
enum { GZIP_WINDOW = 15 + 16 };

// The window is memory, which a frame's first bytes ask for. Of `zstd --long=31`, the largest of
// 64-bit machines; of a file too short to need it, what zstd allows without the option.
enum { MAX_WINDOW_LOG = sizeof(void *) > 4 ? 31 : 30, USUAL_WINDOW_LOG = 27 };
enum { SHORT_FILE_BYTES = 1 << 16 };

static int max_window_log(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && S_ISREG(found.st_mode) && found.st_size < SHORT_FILE_BYTES
               ? USUAL_WINDOW_LOG
               : MAX_WINDOW_LOG;
}

struct mics_unpacker {
    z_stream gzip;
    ZSTD_DStream *zstd; // NULL: it is gzip
    bool ended;         // of the file
    bool inside;        // of a member or frame
    size_t at, filled;  // of `packed`
    unsigned char packed[PACKED_BYTES];
};

mics_status mics_unpacker_open(mics_memory *memory, const char *path, mics_unpacker **out)
{
    const bool zstd = mics_text_ends(path, ".zst");
    mics_unpacker *made = NULL;
    bool good;
    *out = NULL;
    if (!zstd && !mics_text_ends(path, ".gz"))
        return MICS_OK;
    MICS_TRY(MICS_NEW(memory, 1, &made));
    if (zstd) {
        made->zstd = ZSTD_createDStream();
        good = made->zstd != NULL && !ZSTD_isError(ZSTD_DCtx_setParameter(
                                         made->zstd, ZSTD_d_windowLogMax, max_window_log(path)));
    } else
        good = inflateInit2(&made->gzip, GZIP_WINDOW) == Z_OK;
    if (!good) {
        if (made->zstd != NULL)
            (void)ZSTD_freeDStream(made->zstd);
        mics_free(memory, made);
        return mics_fail(MICS_ERR_MEMORY, "%s: no memory to unpack it", path);
    }
    *out = made;
    return MICS_OK;
}

void mics_unpacker_close(mics_memory *memory, mics_unpacker *unpacker)
{
    if (unpacker == NULL)
        return;
    if (unpacker->zstd != NULL)
        (void)ZSTD_freeDStream(unpacker->zstd);
    else
        (void)inflateEnd(&unpacker->gzip);
    mics_free(memory, unpacker);
}

mics_status mics_unpacker_rewind(mics_unpacker *unpacker, const char *path)
{
    unpacker->ended = unpacker->inside = false;
    unpacker->at = unpacker->filled = 0;
    const bool good = unpacker->zstd != NULL ? !ZSTD_isError(ZSTD_initDStream(unpacker->zstd))
                                             : inflateReset(&unpacker->gzip) == Z_OK;
    return good ? MICS_OK : mics_fail(MICS_ERR_MEMORY, "%s: cannot be unpacked again", path);
}

static mics_status damaged(const mics_unpacker *unpacker, const mics_reader *reader,
                           const char *what)
{
    return mics_fail(MICS_ERR_FORMAT, "%s: damaged near offset %lld: %s", reader->path,
                     (long long)(reader->read - (int64_t)(unpacker->filled - unpacker->at)), what);
}

// Unpacks into [to, to + bytes) what there is of packed bytes; *got_out of it came out.
static mics_status inflate_some(mics_unpacker *u, const mics_reader *reader, char *to, size_t bytes,
                                size_t *got_out)
{
    const uInt space = bytes < UINT_MAX ? (uInt)bytes : UINT_MAX;
    // What pads a file to whole blocks is no member.
    while (!u->inside && u->at < u->filled && u->packed[u->at] == 0)
        u->at++;
    *got_out = 0;
    if (u->at == u->filled)
        return MICS_OK;
    u->gzip.next_in = u->packed + u->at;
    u->gzip.avail_in = (uInt)(u->filled - u->at);
    u->gzip.next_out = (Bytef *)to;
    u->gzip.avail_out = space;
    const int result = inflate(&u->gzip, Z_NO_FLUSH);
    u->at = u->filled - u->gzip.avail_in;
    *got_out = space - u->gzip.avail_out;
    u->inside = result != Z_STREAM_END;
    if (result == Z_MEM_ERROR)
        return mics_fail(MICS_ERR_MEMORY, "%s: no memory to unpack it", reader->path);
    if (result == Z_STREAM_END)
        return inflateReset(&u->gzip) == Z_OK ? MICS_OK : damaged(u, reader, "cannot go on");
    if (result != Z_OK && result != Z_BUF_ERROR)
        return damaged(u, reader, u->gzip.msg != NULL ? u->gzip.msg : "no gzip data");
    return MICS_OK;
}

static mics_status decompress_some(mics_unpacker *u, const mics_reader *reader, char *to,
                                   size_t bytes, size_t *got_out)
{
    ZSTD_inBuffer in = {u->packed, u->filled, u->at};
    ZSTD_outBuffer out = {to, bytes, 0};
    const size_t result = ZSTD_decompressStream(u->zstd, &out, &in);
    u->at = in.pos;
    *got_out = out.pos;
    if (ZSTD_isError(result))
        return damaged(u, reader, ZSTD_getErrorName(result));
    u->inside = result != 0;
    return MICS_OK;
}

static mics_status fill(mics_unpacker *u, mics_unpacker_fetch *fetch, mics_reader *reader)
{
    u->at = 0;
    MICS_TRY(fetch(reader, u->packed, PACKED_BYTES, &u->filled));
    u->ended = u->filled < PACKED_BYTES;
    return MICS_OK;
}

mics_status mics_unpacker_read(mics_unpacker *u, mics_unpacker_fetch *fetch, mics_reader *reader,
                               char *to, size_t bytes, size_t *got_out)
{
    size_t done = 0;
    while (done < bytes) {
        size_t got = 0;
        if (u->at == u->filled && !u->ended)
            MICS_TRY(fill(u, fetch, reader));
        const bool empty = u->at == u->filled && u->ended;
        if (empty && !u->inside)
            break;
        const size_t before = u->at;
        MICS_TRY(u->zstd != NULL ? decompress_some(u, reader, to + done, bytes - done, &got)
                                 : inflate_some(u, reader, to + done, bytes - done, &got));
        done += got;
        if (empty && got == 0 && u->inside) // what was held inside has come out, too
            return mics_fail(MICS_ERR_FORMAT,
                             "%s: is cut short: its packed data ends in the middle, at offset %lld",
                             reader->path, (long long)reader->read);
        if (!empty && got == 0 && u->at == before && u->inside)
            return damaged(u, reader, "it goes no further");
    }
    *got_out = done;
    return MICS_OK;
}
