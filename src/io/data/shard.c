// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Token shards in llm.c's format: written to a temporary file and renamed, and read by offset.
//
// Shards are not mapped: a map of a file that somebody cuts short ends the process (SIGBUS) without
// a word, and shows what somebody else writes into it. After each read the file's stamp must be
// that of its opening, so what changes under a run is an error before a step is made of it.
#include "io/data/shard.h"
#include "base/file.h"
#include "io/data/data.h"
#include "mics/log.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "shards are read as they lie on disk");

enum { NOTES_AT = 32 }; // in the header

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

// What the two ways of beginning share.
static mics_status begin(const char *path, int32_t vocab, mics_shard_writer *writer)
{
    writer->file = -1;
    writer->vocab = vocab;
    writer->token_bytes = vocab <= MICS_SHARD_VOCAB_U16 ? 2 : 4;
    writer->count = 0;
    writer->notes = (mics_shard_notes){0};
    // The header is written last; a block of zeros keeps its place.
    writer->used = MICS_SHARD_HEADER_BYTES;
    memset(writer->buffer, 0, writer->used);
    if (snprintf(writer->path, sizeof writer->path, "%s", path) >=
        (int)(sizeof writer->path - sizeof(mics_shard_host) - 64))
        return mics_fail(MICS_ERR_INVALID, "%s: the path is too long", path);
    writer->hash = XXH3_createState();
    if (writer->hash == NULL || XXH3_64bits_reset(writer->hash) != XXH_OK) {
        XXH3_freeState(writer->hash);
        return mics_fail(MICS_ERR_MEMORY, "%s: no memory for a hash", path);
    }
    return MICS_OK;
}

// NAME.HOST-<16 hexadecimal digits>.partial: of this machine, where its locks hold.
static bool is_partial_of(const char *file, const char *name)
{
    const mics_shard_host host = mics_shard_host_get();
    const size_t stem = strlen(name), digits = 16;
    char rest[sizeof host.name + 32];
    if (strncmp(file, name, stem) != 0)
        return false;
    snprintf(rest, sizeof rest, ".%s-", host.name);
    file += stem;
    if (strncmp(file, rest, strlen(rest)) != 0)
        return false;
    file += strlen(rest);
    return strspn(file, "0123456789abcdef") == digits && strcmp(file + digits, ".partial") == 0;
}

mics_status mics_shard_create(const char *path, int32_t vocab, mics_shard_writer *writer)
{
    mics_file_secret secret;
    const mics_shard_host host = mics_shard_host_get();
    writer->kept = false;
    MICS_TRY(begin(path, vocab, writer));
    const mics_status status = mics_file_secret_get(&secret);
    if (status != MICS_OK) {
        XXH3_freeState(writer->hash);
        return status;
    }
    mics_file_sweep_dead_beside(writer->path, is_partial_of); // of killed processes
    snprintf(writer->partial, sizeof writer->partial, "%.*s.%s-%s.partial",
             (int)strlen(writer->path), writer->path, host.name, secret.text);
    mics_file_list(&writer->listed, writer->partial);
    writer->file =
        open(writer->partial, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (writer->file >= 0 && mics_file_hold(writer->file))
        return MICS_OK;
    const int cause = writer->file < 0 ? errno : EAGAIN; // another one took it for a dead one's
    if (writer->file >= 0)
        close(writer->file);
    mics_file_unlist(&writer->listed);
    XXH3_freeState(writer->hash);
    return mics_fail(mics_status_of_errno(cause), "%s: cannot create: %s", writer->partial,
                     strerror(cause));
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
    if (count > 0)
        (void)XXH3_64bits_update(writer->hash, tokens, (size_t)count * sizeof *tokens);
    return MICS_OK;
}

void mics_shard_notes_add(mics_shard_notes *notes, const mics_shard_notes *more)
{
    notes->skipped += more->skipped;
    notes->named += more->named;
    notes->lossy += more->lossy;
    notes->parted += more->parted;
    notes->same += more->same;
    notes->empty += more->empty;
    notes->references += more->references;
    for (int32_t i = 0; i < MICS_SHARD_SPLIT && more->split[i].count > 0; i++) {
        int32_t at = 0;
        while (at < MICS_SHARD_SPLIT - 1 && notes->split[at].count > 0 &&
               notes->split[at].token != more->split[i].token)
            at++;
        notes->split[at].token = more->split[i].token;
        notes->split[at].count += more->split[i].count;
    }
}

static mics_status complete(mics_shard_writer *writer)
{
    const mics_shard_kind *kind = &mics_shard_kinds[writer->token_bytes == 2 ? 0 : 1];
    if (writer->count == 0)
        return mics_fail(MICS_ERR_INVALID, "%s: a shard needs at least one token", writer->path);
    MICS_TRY(flush(writer));
    const uint64_t count = (uint64_t)writer->count;
    const uint64_t hash = XXH3_64bits_digest(writer->hash);
    const uint32_t head[MICS_SHARD_HEAD_WORDS] = {(uint32_t)kind->magic,   (uint32_t)kind->version,
                                                  (uint32_t)count,         (uint32_t)(count >> 32),
                                                  MICS_SHARD_HASH_FOLLOWS, (uint32_t)hash,
                                                  (uint32_t)(hash >> 32)};
    MICS_TRY(write_at(writer, head, sizeof head, 0));
    MICS_TRY(write_at(writer, &writer->notes, sizeof writer->notes, NOTES_AT));
    MICS_TRY(mics_file_sync(writer->file, writer->partial));
    MICS_TRY(mics_file_rename(writer->partial, writer->path));
    return mics_file_sync_dir_of(writer->path);
}

// ---- shards that are gone on with ----

// The file beside one that was begun. A power failure may lose what stands before the mark: then
// the tokens have another hash.
typedef struct mark_file {
    char magic[8];
    uint64_t batches, texts, tokens, tokens_hash;
    mics_shard_notes notes;
    uint64_t hash; // of what stands before it
} mark_file;

static const char mark_magic[] = "MICSBGN4"; // changes with what a batch is

typedef struct mark_path {
    char text[PATH_MAX + 16];
} mark_path;

static mark_path mark_path_of(const mics_shard_writer *writer, const char *suffix)
{
    mark_path path;
    snprintf(path.text, sizeof path.text, "%s.at%s", writer->partial, suffix);
    return path;
}

static uint64_t mark_hash(const mark_file *mark)
{
    return XXH3_64bits(mark, offsetof(mark_file, hash));
}

void mics_shard_set_mark(mics_shard_writer *writer, mics_shard_mark mark)
{
    const mark_path path = mark_path_of(writer, ""), aside = mark_path_of(writer, ".new");
    mark_file at = {.batches = mark.batches,
                    .texts = mark.texts,
                    .tokens = (uint64_t)writer->count,
                    .tokens_hash = XXH3_64bits_digest(writer->hash),
                    .notes = writer->notes};
    memcpy(at.magic, mark_magic, sizeof at.magic);
    at.hash = mark_hash(&at);
    const bool muted = mics_log_mute(true);
    const int file =
        flush(writer) == MICS_OK
            ? open(aside.text, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666)
            : -1;
    if (file >= 0) {
        const bool written = mics_file_write_at(file, aside.text, &at, sizeof at, 0) == MICS_OK;
        close(file);
        if (!written || rename(aside.text, path.text) != 0)
            unlink(aside.text);
    }
    mics_log_mute(muted);
}

static bool read_mark(const mics_shard_writer *writer, mark_file *mark_out)
{
    const mark_path path = mark_path_of(writer, "");
    const int file = open(path.text, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return false;
    const ssize_t got = read(file, mark_out, sizeof *mark_out);
    close(file);
    return got == (ssize_t)sizeof *mark_out &&
           memcmp(mark_out->magic, mark_magic, sizeof mark_out->magic) == 0 &&
           mark_out->hash == mark_hash(mark_out) && mark_out->tokens < (uint64_t)1 << 60;
}

// Takes over the tokens in front of a mark; false when they are not those that were written.
static bool take_over(mics_shard_writer *writer, const mark_file *mark)
{
    int32_t tokens[16384];
    const uint64_t block = sizeof tokens / sizeof *tokens;
    const size_t width = (size_t)writer->token_bytes;
    for (uint64_t at = 0; at < mark->tokens; at += block) {
        const uint64_t count = mark->tokens - at < block ? mark->tokens - at : block;
        char *to = (char *)tokens + count * (sizeof *tokens - width);
        size_t got = 0;
        if (mics_file_read_up_to(writer->file, writer->partial, to, count * width,
                                 (int64_t)(MICS_SHARD_HEADER_BYTES + at * width),
                                 &got) != MICS_OK ||
            got < count * width)
            return false;
        mics_shard_widen(mics_shard_kinds[width == 2 ? 0 : 1].type, to, (int64_t)count, tokens);
        (void)XXH3_64bits_update(writer->hash, tokens, count * sizeof *tokens);
    }
    return XXH3_64bits_digest(writer->hash) == mark->tokens_hash;
}

// Whether what was begun is whole up to its mark. Else the writer is at the begin.
static bool find_begun(mics_shard_writer *writer, mics_shard_mark *mark_out)
{
    mark_file mark;
    const bool muted = mics_log_mute(true);
    const bool whole = read_mark(writer, &mark) && take_over(writer, &mark);
    mics_log_mute(muted);
    if (!whole) {
        (void)XXH3_64bits_reset(writer->hash);
        return false;
    }
    writer->count = (int64_t)mark.tokens;
    writer->notes = mark.notes;
    writer->used = 0;
    *mark_out = (mics_shard_mark){.batches = mark.batches, .texts = mark.texts};
    return true;
}

mics_status mics_shard_go_on(const char *path, int32_t vocab, mics_shard_writer *writer,
                             mics_shard_mark *mark_out)
{
    const mics_shard_host host = mics_shard_host_get();
    *mark_out = (mics_shard_mark){0};
    writer->kept = true;
    MICS_TRY(begin(path, vocab, writer));
    snprintf(writer->partial, sizeof writer->partial, "%.*s.%s.begun", (int)strlen(writer->path),
             writer->path, host.name);
    writer->file = open(writer->partial, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (writer->file < 0) {
        const int cause = errno;
        XXH3_freeState(writer->hash);
        return mics_fail(mics_status_of_errno(cause), "%s: cannot create: %s", writer->partial,
                         strerror(cause));
    }
    const int64_t keep = find_begun(writer, mark_out)
                             ? MICS_SHARD_HEADER_BYTES + writer->count * writer->token_bytes
                             : 0;
    const mics_status status = mics_file_resize(writer->file, writer->partial, keep);
    return status == MICS_OK ? MICS_OK : mics_shard_finish(writer, status);
}

// ---- the end ----

mics_status mics_shard_finish(mics_shard_writer *writer, mics_status status)
{
    if (writer->file < 0)
        return status;
    if (status == MICS_OK)
        status = complete(writer);
    if (status != MICS_OK)
        unlink(writer->partial); // gone already when only the folder's sync failed
    if (writer->kept)
        unlink(mark_path_of(writer, "").text);
    else
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
        return mics_fail(mics_status_of_errno(errno), "%s: cannot look at it: %s", path,
                         strerror(errno));
    *stamp_out = (mics_shard_stamp){
        .device = (uint64_t)info.st_dev,
        .inode = (uint64_t)info.st_ino,
        .bytes = info.st_size,
        .written_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec,
        .changed_ns = (int64_t)info.st_ctim.tv_sec * 1000000000 + info.st_ctim.tv_nsec,
    };
    return MICS_OK;
}

bool mics_shard_same_stamp(const mics_shard_stamp *a, const mics_shard_stamp *b)
{
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes &&
           a->written_ns == b->written_ns && a->changed_ns == b->changed_ns;
}

// Times alone may be others: by touch, or by a write.
static mics_status check_stamp(const mics_shard *shard, const mics_shard_stamp *now)
{
    const mics_shard_stamp *then = &shard->stamp;
    if (now->device == then->device && now->inode == then->inode && now->bytes == then->bytes)
        return MICS_OK;
    return mics_fail(MICS_ERR_IO,
                     "%s: was changed after it was opened: it had %lld bytes and has %lld%s; "
                     "restore it, and start again",
                     shard->path, (long long)then->bytes, (long long)now->bytes,
                     now->bytes == then->bytes ? ", in another file" : "");
}

mics_status mics_shard_open(mics_memory *memory, const char *path, const char *dtype,
                            mics_shard *shard_out)
{
    mics_status status = MICS_OK;
    mics_shard shard = {.file = -1};
    int file = -1;
    int64_t bytes = 0;
    MICS_TRY(mics_file_open_read(path, &file, &bytes));
    shard.file = file;
    MICS_TRY_OUT(mics_strdup(memory, path, &shard.path));
    MICS_TRY_OUT(read_stamp(file, path, &shard.stamp));
    MICS_TRY_OUT(mics_shard_read_format(dtype, &shard));
    *shard_out = shard;
    shard = (mics_shard){.file = -1};
out:
    mics_shard_close(memory, &shard);
    return status;
}

mics_status mics_shard_read_notes(const mics_shard *shard, mics_shard_notes *notes_out)
{
    *notes_out = (mics_shard_notes){0};
    return shard->has_hash
               ? mics_file_read_at(shard->file, shard->path, notes_out, sizeof *notes_out, NOTES_AT)
               : MICS_OK;
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

static mics_status read_tokens(const mics_shard *shard, int file, int64_t begin, int64_t count,
                               char *to, mics_shard_stamp *stamp_out)
{
    const size_t bytes = (size_t)(count * shard->token_bytes);
    const int64_t offset = mics_shard_offset(shard, begin);
    size_t got = 0;
    MICS_TRY(mics_file_read_up_to(file, shard->path, to, bytes, offset, &got));
    MICS_TRY(read_stamp(file, shard->path, stamp_out));
    MICS_TRY(check_stamp(shard, stamp_out)); // says more than that the file ends too early
    if (got < bytes)
        return mics_fail(MICS_ERR_IO, "%s: offset %lld: ends there; restore it, and start again",
                         shard->path, (long long)(offset + (int64_t)got));
    return MICS_OK;
}

// Tokens of at most four bytes are read to the end of `tokens_out` and widened there.
static mics_status read_widened(const mics_shard *shard, int file, int64_t begin, int64_t count,
                                int32_t *tokens_out, mics_shard_stamp *stamp_out)
{
    int64_t wide[512];
    const int64_t most = (int64_t)(sizeof wide / sizeof *wide);
    if (shard->token_bytes <= 4) {
        char *to = (char *)tokens_out + count * (4 - shard->token_bytes);
        MICS_TRY(read_tokens(shard, file, begin, count, to, stamp_out));
        mics_shard_widen(shard->type, to, count, tokens_out);
        return MICS_OK;
    }
    for (int64_t at = 0; at < count; at += most) {
        const int64_t some = count - at < most ? count - at : most;
        MICS_TRY(read_tokens(shard, file, begin + at, some, (char *)wide, stamp_out));
        mics_shard_widen(shard->type, (const char *)wide, some, tokens_out + at);
    }
    return MICS_OK;
}

mics_status mics_shard_read(const mics_shard *shard, int64_t begin, int64_t count,
                            int32_t *tokens_out, mics_shard_stamp *stamp_out)
{
    int64_t bytes = 0;
    int file = shard->file;
    if (file < 0)
        MICS_TRY(mics_file_open_read(shard->path, &file, &bytes));
    const mics_status status = read_widened(shard, file, begin, count, tokens_out, stamp_out);
    if (shard->file < 0)
        close(file);
    return status;
}

static mics_status hash_tokens(const mics_shard *shard, const atomic_bool *ends,
                               XXH3_state_t *state, mics_shard_stamp *stamp_out)
{
    int32_t tokens[16384];
    const int64_t block = (int64_t)(sizeof tokens / sizeof *tokens);
    for (int64_t at = 0; at < shard->count; at += block) {
        const int64_t left = shard->count - at, count = left < block ? left : block;
        if (ends != NULL && atomic_load(ends))
            return MICS_ERR_INTERRUPTED;
        MICS_TRY(mics_shard_read(shard, at, count, tokens, stamp_out));
        (void)XXH3_64bits_update(state, tokens, (size_t)count * sizeof *tokens);
    }
    return MICS_OK;
}

mics_status mics_shard_hash(const mics_shard *shard, const atomic_bool *ends, uint64_t *hash_out,
                            mics_shard_stamp *stamp_out)
{
    XXH3_state_t *state = XXH3_createState();
    mics_status status = MICS_OK;
    if (state == NULL || XXH3_64bits_reset(state) != XXH_OK)
        status = mics_fail(MICS_ERR_MEMORY, "no memory for a hash");
    else
        status = hash_tokens(shard, ends, state, stamp_out);
    if (status == MICS_OK)
        *hash_out = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return status;
}
