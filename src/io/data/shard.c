// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Token shards in llm.c's format: written aside and renamed, read where they are mapped.
#include "io/data/shard.h"
#include "base/file.h"
#include "mics/data.h"
#include "mics/log.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "shards are read as they lie on disk");

typedef struct shard_kind {
    int32_t magic, version, token_bytes;
} shard_kind;

static const shard_kind kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

// ---- writing ----

mics_shard_host mics_shard_host_get(void)
{
    mics_shard_host host = {.name = ""};
    if (gethostname(host.name, sizeof host.name - 1) != 0 || host.name[0] == '\0')
        strcpy(host.name, "here");
    // Only what means nothing in a path or in a pattern.
    for (char *c = host.name; *c != '\0'; c++) {
        if (!isalnum((unsigned char)*c) && *c != '-')
            *c = '_';
    }
    return host;
}

mics_status mics_shard_create(const char *path, int32_t vocab, mics_shard_writer *writer)
{
    enum { ATTEMPTS = 100 };
    writer->file = -1;
    writer->vocab = vocab;
    writer->token_bytes = vocab <= MICS_SHARD_VOCAB_U16 ? 2 : 4;
    writer->count = 0;
    // The header is written last; a block of zeros keeps its place.
    writer->used = MICS_SHARD_HEADER_BYTES;
    memset(writer->buffer, 0, writer->used);
    mics_shard_host host = mics_shard_host_get();
    if (snprintf(writer->path, sizeof writer->path, "%s", path) >=
        (int)(sizeof writer->path - sizeof host.name - 64))
        return mics_fail(MICS_ERR_INVALID, "%s: the path is too long", path);
    errno = EEXIST;
    for (int attempt = 0; writer->file < 0 && errno == EEXIST && attempt < ATTEMPTS; attempt++) {
        snprintf(writer->partial, sizeof writer->partial, "%.*s.%s-%ld-%ld-%d.partial",
                 (int)strlen(writer->path), writer->path, host.name, (long)getpid(), (long)gettid(),
                 attempt);
        writer->file = open(writer->partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    if (writer->file < 0)
        return mics_fail(MICS_ERR_IO, "%s: cannot create: %s", writer->partial, strerror(errno));
    return MICS_OK;
}

static mics_status write_at(const mics_shard_writer *writer, const void *data, size_t bytes,
                            int64_t offset)
{
    return mics_file_write_at(writer->file, writer->partial, data, bytes, offset);
}

// Where in the file the buffer's first byte belongs.
static int64_t buffer_offset(const mics_shard_writer *writer)
{
    return MICS_SHARD_HEADER_BYTES + writer->count * writer->token_bytes - (int64_t)writer->used;
}

static mics_status flush(mics_shard_writer *writer)
{
    MICS_TRY(write_at(writer, writer->buffer, writer->used, buffer_offset(writer)));
    writer->used = 0;
    return MICS_OK;
}

mics_status mics_shard_append(mics_shard_writer *writer, const int32_t *tokens, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= writer->vocab)
            return mics_fail(MICS_ERR_INVALID, "%s: token %d at index %lld is not in [0, %d)",
                             writer->path, (int)tokens[i], (long long)writer->count,
                             (int)writer->vocab);
        if (writer->used + (size_t)writer->token_bytes > sizeof writer->buffer)
            MICS_TRY(flush(writer));
        uint32_t token = (uint32_t)tokens[i];
        memcpy(writer->buffer + writer->used, &token, (size_t)writer->token_bytes);
        writer->used += (size_t)writer->token_bytes;
        writer->count++;
    }
    return MICS_OK;
}

static mics_status complete(mics_shard_writer *writer)
{
    const shard_kind *kind = &kinds[writer->token_bytes == 2 ? 0 : 1];
    if (writer->count == 0)
        return mics_fail(MICS_ERR_INVALID, "%s: a shard needs at least one token", writer->path);
    MICS_TRY(flush(writer));
    const uint64_t count = (uint64_t)writer->count;
    const uint32_t head[4] = {(uint32_t)kind->magic, (uint32_t)kind->version, (uint32_t)count,
                              (uint32_t)(count >> 32)};
    MICS_TRY(write_at(writer, head, sizeof head, 0));
    if (fsync(writer->file) != 0)
        return mics_fail(MICS_ERR_IO, "%s: cannot sync: %s", writer->partial, strerror(errno));
    MICS_TRY(mics_file_rename(writer->partial, writer->path));
    return mics_file_sync_dir_of(writer->path);
}

mics_status mics_shard_finish(mics_shard_writer *writer, mics_status status)
{
    if (writer->file < 0)
        return status;
    if (status == MICS_OK)
        status = complete(writer);
    if (status != MICS_OK)
        unlink(writer->partial); // gone already when only the folder's sync failed
    close(writer->file);
    writer->file = -1;
    return status;
}

mics_status mics_shard_write(const char *path, const int32_t *tokens, int64_t count, int32_t vocab)
{
    mics_shard_writer writer;
    mics_status status = mics_shard_create(path, vocab, &writer);
    if (status == MICS_OK)
        status = mics_shard_append(&writer, tokens, count);
    return mics_shard_finish(&writer, status);
}

// ---- reading ----

// Checks the header against the file's size and fills in all but the map.
static mics_status read_header(const char *path, int file, size_t bytes, mics_shard *shard_out)
{
    int32_t head[4] = {0};
    if (bytes < MICS_SHARD_HEADER_BYTES)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: ends at offset %zu, inside the header of %d bytes that a token shard "
                         "has",
                         path, bytes, MICS_SHARD_HEADER_BYTES);
    ssize_t got = pread(file, head, sizeof head, 0);
    if (got != (ssize_t)sizeof head)
        return mics_fail(MICS_ERR_IO, "%s: cannot read the header: %s", path,
                         got < 0 ? strerror(errno) : "it ended early");
    const shard_kind *kind = head[0] == kinds[0].magic   ? &kinds[0]
                             : head[0] == kinds[1].magic ? &kinds[1]
                                                         : NULL;
    if (kind == NULL)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: no token shard: the magic at offset 0 is %d, expected %d or %d", path,
                         (int)head[0], (int)kinds[0].magic, (int)kinds[1].magic);
    if (head[1] != kind->version)
        return mics_fail(MICS_ERR_FORMAT, "%s: the version at offset 4 is %d, expected %d", path,
                         (int)head[1], (int)kind->version);
    uint64_t count = (uint32_t)head[2] | (uint64_t)(uint32_t)head[3] << 32;
    uint64_t fits = (bytes - MICS_SHARD_HEADER_BYTES) / (size_t)kind->token_bytes;
    if (count != fits || (bytes - MICS_SHARD_HEADER_BYTES) % (size_t)kind->token_bytes != 0)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: the count at offset 8 is %llu tokens of %d bytes, but %zu bytes "
                         "follow the header",
                         path, (unsigned long long)count, (int)kind->token_bytes,
                         bytes - MICS_SHARD_HEADER_BYTES);
    if (count == 0)
        return mics_fail(MICS_ERR_FORMAT, "%s: the count at offset 8 is 0: there are no tokens",
                         path);
    shard_out->token_bytes = kind->token_bytes;
    shard_out->count = (int64_t)count;
    return MICS_OK;
}

mics_status mics_shard_open(const char *path, mics_shard *shard_out)
{
    mics_status status = MICS_OK;
    mics_shard shard = {0};
    int file = -1;
    int64_t bytes = 0;
    MICS_TRY(mics_file_open_read(path, &file, &bytes));
    shard.map_bytes = (size_t)bytes;
    MICS_TRY_OUT(read_header(path, file, shard.map_bytes, &shard));
    void *map = mmap(NULL, shard.map_bytes, PROT_READ, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) {
        status = mics_fail(MICS_ERR_IO, "%s: cannot map %zu bytes: %s", path, shard.map_bytes,
                           strerror(errno));
        goto out;
    }
    shard.map = map;
    *shard_out = shard;
out:
    close(file);
    return status;
}

void mics_shard_close(mics_shard *shard)
{
    if (shard->map != NULL)
        munmap((void *)shard->map, shard->map_bytes);
    *shard = (mics_shard){0};
}

void mics_shard_read(const mics_shard *shard, int64_t begin, int64_t count, int32_t *tokens_out)
{
    const char *tokens = (const char *)shard->map + MICS_SHARD_HEADER_BYTES;
    if (shard->token_bytes == 4) {
        memcpy(tokens_out, tokens + begin * 4, (size_t)count * 4);
        return;
    }
    const uint16_t *narrow = (const uint16_t *)(const void *)tokens + begin;
    for (int64_t i = 0; i < count; i++)
        tokens_out[i] = narrow[i];
}
