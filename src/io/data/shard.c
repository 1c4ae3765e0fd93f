// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Token shards in llm.c's format: written aside and renamed, and read by offset.
//
// Shards are not mapped: a map of a file that somebody cuts short ends the process (SIGBUS) without
// a word, and shows what somebody else writes into it. After each read the file's stamp must be
// that of its opening, so what changes under a run is an error before a step is made of it.
#include "io/data/shard.h"
#include "base/file.h"
#include "mics/data.h"
#include "mics/log.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "shards are read as they lie on disk");

enum { HEAD_WORDS = 7 }; // of the header that mean something

typedef struct shard_kind {
    int32_t magic, version, token_bytes;
} shard_kind;

static const uint32_t hash_follows = 0x33485858; // "XXH3"

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
    mics_file_secret secret;
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
    MICS_TRY(mics_file_secret_get(&secret));
    writer->hash = XXH3_createState();
    if (writer->hash == NULL || XXH3_64bits_reset(writer->hash) != XXH_OK) {
        XXH3_freeState(writer->hash);
        return mics_fail(MICS_ERR_MEMORY, "%s: no memory for a hash", path);
    }
    snprintf(writer->partial, sizeof writer->partial, "%.*s.%s-%s.partial",
             (int)strlen(writer->path), writer->path, host.name, secret.text);
    mics_file_list(&writer->listed, writer->partial);
    writer->file =
        open(writer->partial, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (writer->file >= 0)
        return MICS_OK;
    const int cause = errno;
    mics_file_unlist(&writer->listed);
    XXH3_freeState(writer->hash);
    return mics_fail(MICS_ERR_IO, "%s: cannot create: %s", writer->partial, strerror(cause));
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
    (void)XXH3_64bits_update(writer->hash, tokens, (size_t)count * sizeof *tokens);
    return MICS_OK;
}

static mics_status complete(mics_shard_writer *writer)
{
    const shard_kind *kind = &kinds[writer->token_bytes == 2 ? 0 : 1];
    if (writer->count == 0)
        return mics_fail(MICS_ERR_INVALID, "%s: a shard needs at least one token", writer->path);
    MICS_TRY(flush(writer));
    const uint64_t count = (uint64_t)writer->count;
    const uint64_t hash = XXH3_64bits_digest(writer->hash);
    const uint32_t head[HEAD_WORDS] = {(uint32_t)kind->magic, (uint32_t)kind->version,
                                       (uint32_t)count,       (uint32_t)(count >> 32),
                                       hash_follows,          (uint32_t)hash,
                                       (uint32_t)(hash >> 32)};
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
    mics_file_unlist(&writer->listed);
    XXH3_freeState(writer->hash);
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

static mics_status read_stamp(int file, const char *path, mics_shard_stamp *stamp_out)
{
    struct stat info;
    if (fstat(file, &info) != 0)
        return mics_fail(MICS_ERR_IO, "%s: cannot look at it: %s", path, strerror(errno));
    *stamp_out = (mics_shard_stamp){
        .device = (uint64_t)info.st_dev,
        .inode = (uint64_t)info.st_ino,
        .bytes = info.st_size,
        .written_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec,
    };
    return MICS_OK;
}

static bool same_stamp(const mics_shard_stamp *a, const mics_shard_stamp *b)
{
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes &&
           a->written_ns == b->written_ns;
}

static mics_status check_stamp(const mics_shard *shard, int file)
{
    mics_shard_stamp now = {0};
    MICS_TRY(read_stamp(file, shard->path, &now));
    if (same_stamp(&now, &shard->stamp))
        return MICS_OK;
    return mics_fail(MICS_ERR_IO,
                     "%s: was changed after it was opened: it had %lld bytes and has %lld%s; "
                     "restore it, and start again",
                     shard->path, (long long)shard->stamp.bytes, (long long)now.bytes,
                     now.bytes == shard->stamp.bytes ? ", written later" : "");
}

// Checks the header against the file's size and fills in width and count.
static mics_status read_header(const char *path, int file, size_t bytes, mics_shard *shard_out)
{
    int32_t head[HEAD_WORDS] = {0};
    if (bytes < MICS_SHARD_HEADER_BYTES)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: ends at offset %zu, inside the header of %d bytes that a token shard "
                         "has",
                         path, bytes, MICS_SHARD_HEADER_BYTES);
    MICS_TRY(mics_file_read_at(file, path, head, sizeof head, 0));
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
    shard_out->has_hash = (uint32_t)head[4] == hash_follows;
    shard_out->hash = (uint32_t)head[5] | (uint64_t)(uint32_t)head[6] << 32;
    return MICS_OK;
}

mics_status mics_shard_open(mics_memory *memory, const char *path, mics_shard *shard_out)
{
    mics_status status = MICS_OK;
    mics_shard shard = {.file = -1};
    int file = -1;
    int64_t bytes = 0;
    MICS_TRY(mics_file_open_read(path, &file, &bytes));
    MICS_TRY_OUT(read_stamp(file, path, &shard.stamp));
    MICS_TRY_OUT(read_header(path, file, (size_t)shard.stamp.bytes, &shard));
    MICS_TRY_OUT(mics_strdup(memory, path, &shard.path));
    shard.file = file;
    *shard_out = shard;
    file = -1;
out:
    if (file >= 0)
        close(file);
    return status;
}

void mics_shard_let_go(mics_shard *shard)
{
    if (shard->file >= 0)
        close(shard->file);
    shard->file = -1;
}

void mics_shard_close(mics_memory *memory, mics_shard *shard)
{
    mics_shard_let_go(shard);
    mics_free(memory, shard->path);
    *shard = (mics_shard){.file = -1};
}

// Tokens of two bytes are read into the upper half of `tokens_out` and widened from there on, each
// before the place of the next is written to.
static mics_status read_tokens(const mics_shard *shard, int file, int64_t begin, int64_t count,
                               int32_t *tokens_out)
{
    const size_t bytes = (size_t)(count * shard->token_bytes);
    const int64_t offset = MICS_SHARD_HEADER_BYTES + begin * shard->token_bytes;
    char *to = (char *)tokens_out + ((size_t)count * sizeof *tokens_out - bytes);
    size_t got = 0;
    MICS_TRY(mics_file_read_up_to(file, shard->path, to, bytes, offset, &got));
    MICS_TRY(check_stamp(shard, file)); // says more than that the file ends too early
    if (got < bytes)
        return mics_fail(MICS_ERR_IO, "%s: offset %lld: ends there; restore it, and start again",
                         shard->path, (long long)(offset + (int64_t)got));
    for (int64_t i = 0; i < count && shard->token_bytes == 2; i++) {
        uint16_t narrow;
        memcpy(&narrow, to + 2 * i, sizeof narrow);
        tokens_out[i] = narrow;
    }
    return MICS_OK;
}

mics_status mics_shard_read(const mics_shard *shard, int64_t begin, int64_t count,
                            int32_t *tokens_out)
{
    int64_t bytes = 0;
    int file = shard->file;
    if (file < 0)
        MICS_TRY(mics_file_open_read(shard->path, &file, &bytes));
    const mics_status status = read_tokens(shard, file, begin, count, tokens_out);
    if (shard->file < 0)
        close(file);
    return status;
}
