// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A text goes through a window that slides: the encoder consumes what later text cannot change, the
// rest moves to the front, and the file fills the window up again.
#include "base/clock.h"
#include "base/file.h"
#include "base/size.h"
#include "io/data/shard.h"
#include "io/data/tokenizer.h"
#include "mics/log.h"
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    WINDOW_BYTES = 1 << 20,
    MAX_WINDOW = 4 << 20, // a piece of this length takes 176 MiB to merge
    PROGRESS_EVERY_US = 5000000
};

// One text being read, hashed on the way.
typedef struct source {
    mics_memory *memory;
    const char *path;
    int file;
    int64_t bytes; // when it was opened
    int64_t read;
    XXH3_state_t *hash;
    char *window; // [0, filled) is known, of `capacity` bytes
    size_t filled, capacity;
    bool ended;
} source;

static mics_status source_rewind(source *s, uint64_t seed)
{
    s->read = 0;
    s->filled = 0;
    s->ended = false;
    if (XXH3_128bits_reset_withSeed(s->hash, seed) != XXH_OK)
        return mics_fail(MICS_ERR_MEMORY, "%s: cannot start a hash", s->path);
    return MICS_OK;
}

static void source_close(source *s)
{
    if (s->file >= 0)
        close(s->file);
    XXH3_freeState(s->hash);
    mics_free(s->memory, s->window);
}

static mics_status source_open(mics_memory *memory, const char *path, source *s)
{
    *s = (source){.memory = memory, .path = path, .file = -1, .capacity = WINDOW_BYTES};
    MICS_TRY(mics_file_open_read(path, &s->file, &s->bytes));
    MICS_TRY(MICS_NEW(memory, WINDOW_BYTES, &s->window));
    s->hash = XXH3_createState();
    if (s->hash == NULL)
        return mics_fail(MICS_ERR_MEMORY, "%s: no memory for a hash", path);
    return MICS_OK;
}

// Fills the window up.
static mics_status source_fill(source *s)
{
    size_t got = 0, space = s->capacity - s->filled;
    MICS_TRY(mics_file_read_up_to(s->file, s->path, s->window + s->filled, space, s->read, &got));
    (void)XXH3_128bits_update(s->hash, s->window + s->filled, got); // fails only without a state
    s->filled += got;
    s->read += (int64_t)got;
    s->ended = got < space;
    return MICS_OK;
}

static void source_drop(source *s, size_t bytes)
{
    memmove(s->window, s->window + bytes, s->filled - bytes);
    s->filled -= bytes;
}

static mics_status source_widen(source *s)
{
    void *window = s->window;
    MICS_TRY(mics_realloc(s->memory, MICS_MEM_HOST, 2 * s->capacity, &window));
    s->window = window;
    s->capacity *= 2;
    return MICS_OK;
}

static mics_status hash_whole(source *s, uint64_t seed, XXH128_hash_t *hash_out)
{
    MICS_TRY(source_rewind(s, seed));
    while (!s->ended) {
        MICS_TRY(source_fill(s));
        source_drop(s, s->filled);
    }
    *hash_out = XXH3_128bits_digest(s->hash);
    return MICS_OK;
}

// ---- tokenizing ----

static void show_progress(const source *s, double start_us, double *shown_us)
{
    double now_us = mics_clock_us();
    if (now_us - *shown_us < PROGRESS_EVERY_US)
        return;
    char done[32], all[32];
    double per_us = (double)s->read / (now_us - start_us);
    double left_s = s->bytes > s->read ? (double)(s->bytes - s->read) / per_us * 1e-6 : 0;
    mics_log(MICS_LOG_INFO, "tokenizing %s: %s of %s, %.1f MB/s, %.0f s left", s->path,
             mics_size_text((double)s->read, done, sizeof done),
             mics_size_text((double)s->bytes, all, sizeof all), per_us, left_s);
    *shown_us = now_us;
}

// One round: fill the window, tokenize what is certain, write its tokens.
static mics_status advance(source *s, mics_encoder *encoder, mics_token_list *list,
                           mics_shard_writer *writer)
{
    size_t consumed = 0;
    MICS_TRY(source_fill(s));
    list->count = 0;
    MICS_TRY(mics_encoder_feed(encoder, s->window, s->filled, !s->ended, list, &consumed));
    if (consumed == 0 && !s->ended && s->capacity < MAX_WINDOW)
        MICS_TRY(source_widen(s));
    else if (consumed == 0 && !s->ended)
        MICS_TRY(mics_encoder_feed(encoder, s->window, s->filled, false, list, &consumed));
    source_drop(s, consumed);
    return mics_shard_append(writer, list->tokens, list->count);
}

// What stands before the tokens of a text, and behind them.
static mics_status surroundings(const mics_tokenizer *tokenizer, mics_token_frame *frame_out)
{
    if (tokenizer->frames_texts)
        return mics_tokenizer_frame(tokenizer, frame_out);
    *frame_out = (mics_token_frame){.before = &tokenizer->separator,
                                    .before_count = tokenizer->separator >= 0 ? 1 : 0};
    return MICS_OK;
}

static mics_status tokenize(source *s, const mics_tokenizer *tokenizer, mics_shard_writer *writer)
{
    mics_encoder encoder = {0};
    mics_token_list list = {.memory = s->memory};
    mics_token_frame around;
    mics_status status = MICS_OK;
    double start_us = mics_clock_us(), shown_us = start_us;
    MICS_TRY_OUT(surroundings(tokenizer, &around));
    MICS_TRY_OUT(mics_shard_append(writer, around.before, around.before_count));
    MICS_TRY_OUT(mics_encoder_open(tokenizer, false, &encoder));
    while (!s->ended) {
        MICS_TRY_OUT(advance(s, &encoder, &list, writer));
        show_progress(s, start_us, &shown_us);
    }
    MICS_TRY_OUT(mics_shard_append(writer, around.after, around.after_count));
out:
    mics_encoder_fini(&encoder);
    mics_token_list_fini(&list);
    return status;
}

static mics_status make_shard(source *s, const mics_tokenizer *tokenizer, XXH128_hash_t hash,
                              const char *shard_path)
{
    mics_shard_writer *writer = NULL;
    mics_status status = MICS_OK;
    MICS_TRY(MICS_NEW(s->memory, 1, &writer));
    writer->file = -1;
    MICS_TRY_OUT(source_rewind(s, tokenizer->identity));
    MICS_TRY_OUT(mics_shard_create(shard_path, tokenizer->vocab, writer));
    MICS_TRY_OUT(tokenize(s, tokenizer, writer));
    if (!XXH128_isEqual(hash, XXH3_128bits_digest(s->hash)))
        status = mics_fail(MICS_ERR_IO, "%s: changed while it was tokenized; try again", s->path);
out:
    status = mics_shard_finish(writer, status);
    mics_free(s->memory, writer);
    return status;
}

// ---- the cache ----

// Waits for the lock of an open file; false where that cannot be had.
static bool wait_for_lock(int file)
{
    while (flock(file, LOCK_EX) != 0) {
        if (errno != EINTR)
            return false;
    }
    return true;
}

// True when `path` still names the open file: whoever had the lock before may have removed it.
static bool is_at(int file, const char *path)
{
    struct stat here, there;
    if (fstat(file, &here) != 0 || stat(path, &there) != 0)
        return false;
    return here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

// Takes the lock beside a shard's place. Returns -1 where that cannot be had: it only saves work.
static int lock(const char *path)
{
    enum { ATTEMPTS = 1000 };
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        int file = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (file < 0)
            return -1;
        bool locked = wait_for_lock(file);
        if (locked && is_at(file, path))
            return file;
        close(file);
        if (!locked)
            return -1;
    }
    return -1;
}

// A path as a pattern that matches nothing else. Returns whether it fits.
static bool escape_pattern(const char *path, char *pattern, size_t capacity)
{
    size_t used = 0;
    for (; *path != '\0' && used + 2 < capacity; path++) {
        if (strchr("*?[\\", *path) != NULL)
            pattern[used++] = '\\';
        pattern[used++] = *path;
    }
    pattern[used] = '\0';
    return *path == '\0';
}

// Removes what processes of this machine that were killed left behind. Needs the lock, which holds
// on this machine at least; what another one has begun may be alive.
static void remove_partials(const char *shard_path)
{
    char pattern[PATH_MAX], escaped[PATH_MAX];
    mics_shard_host host = mics_shard_host_get();
    glob_t found = {0};
    if (!escape_pattern(shard_path, escaped, sizeof escaped) ||
        snprintf(pattern, sizeof pattern, "%s.%s-*.partial", escaped, host.name) >=
            (int)sizeof pattern)
        return;
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++)
            unlink(found.gl_pathv[i]);
    }
    globfree(&found);
}

// Makes the shard unless another process does so first.
static mics_status make_once(source *s, const mics_tokenizer *tokenizer, XXH128_hash_t hash,
                             const char *shard_path)
{
    char lock_path[PATH_MAX];
    if (snprintf(lock_path, sizeof lock_path, "%s.lock", shard_path) >= (int)sizeof lock_path)
        return mics_fail(MICS_ERR_INVALID, "%s: the path is too long", shard_path);
    int locked = lock(lock_path);
    mics_status status = MICS_OK;
    if (access(shard_path, F_OK) != 0) {
        if (locked >= 0)
            remove_partials(shard_path);
        status = make_shard(s, tokenizer, hash, shard_path);
        unlink(lock_path); // whoever waits for it finds the shard, or tries in its turn
    }
    if (locked >= 0)
        close(locked);
    return status;
}

static mics_status find_or_make(source *s, const mics_tokenizer *tokenizer, const char *cache_dir,
                                char *shard_path, size_t capacity)
{
    XXH128_hash_t hash;
    MICS_TRY(hash_whole(s, tokenizer->identity, &hash));
    int length = snprintf(shard_path, capacity, "%s/%016llx%016llx.bin", cache_dir,
                          (unsigned long long)hash.high64, (unsigned long long)hash.low64);
    if (length < 0 || (size_t)length >= capacity)
        return mics_fail(MICS_ERR_INVALID, "%s: the path is too long", cache_dir);
    if (access(shard_path, F_OK) == 0)
        return MICS_OK;
    MICS_TRY(mics_file_make_dirs(s->memory, cache_dir));
    return make_once(s, tokenizer, hash, shard_path);
}

mics_status mics_text_shard(mics_memory *memory, const char *path, const mics_tokenizer *tokenizer,
                            const char *cache_dir, char **shard_path_out)
{
    source s;
    mics_status status = MICS_OK;
    char shard_path[PATH_MAX], *copy = NULL;
    MICS_TRY_OUT(source_open(memory, path, &s));
    if (s.bytes > 0) {
        MICS_TRY_OUT(find_or_make(&s, tokenizer, cache_dir, shard_path, sizeof shard_path));
        MICS_TRY_OUT(mics_strdup(memory, shard_path, &copy));
    }
    *shard_path_out = copy;
out:
    source_close(&s);
    return status;
}
