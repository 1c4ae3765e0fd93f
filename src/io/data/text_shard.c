// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The cache of texts' tokens: each file is tokenized once, by one process.
#include "base/file.h"
#include "io/data/chats/chat.h"
#include "io/data/shard.h"
#include "io/data/text_window.h"
#include "io/data/tokenize.h"
#include "io/data/tokenizer/tokenizer.h"
#include "mics/log.h"
#include <dirent.h>
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

typedef struct text_files {
    const mics_corpus_spec *spec;
    mics_tokenize_progress *progress;
} text_files;

// ---- tokenizing ----

// Tokens of samples carry flags.
static int32_t vocab_of(const mics_corpus_spec *spec)
{
    return spec->chats != NULL ? spec->tokenizer->vocab << MICS_SAMPLE_SHIFT
                               : spec->tokenizer->vocab;
}

// `locked`: nobody else of this machine makes it.
static mics_status open_writer(const mics_text_window *window, const mics_corpus_spec *spec,
                               const char *shard_path, bool locked, mics_shard_writer *writer,
                               mics_shard_mark *mark_out)
{
    *mark_out = (mics_shard_mark){0};
    if (!locked)
        return mics_shard_create(shard_path, vocab_of(spec), writer);
    MICS_TRY(mics_shard_go_on(shard_path, vocab_of(spec), writer, mark_out));
    if (mark_out->batches > 0)
        mics_log(MICS_LOG_INFO, "tokenizing %s: resumes after %lld tokens that were made before",
                 window->reader.path, (long long)writer->count);
    return MICS_OK;
}

static mics_status make_shard(mics_text_window *window, const text_files *files, XXH128_hash_t hash,
                              const char *shard_path, bool locked, bool *empty_out)
{
    const mics_corpus_spec *spec = files->spec;
    mics_shard_writer *writer = NULL;
    mics_shard_mark mark;
    mics_status status = MICS_OK;
    MICS_TRY(MICS_NEW(window->reader.memory, 1, &writer));
    writer->file = -1;
    MICS_TRY_OUT(mics_text_window_rewind(window, mics_tokenize_identity(spec, &window->reader)));
    MICS_TRY_OUT(open_writer(window, spec, shard_path, locked, writer, &mark));
    MICS_TRY_OUT(mics_tokenize(window, spec, writer, mark, files->progress, empty_out));
    if (!XXH128_isEqual(hash, mics_reader_digest(&window->reader)))
        status = mics_fail(MICS_ERR_IO, "%s: changed while it was tokenized; try again",
                           window->reader.path);
out:
    if (status == MICS_OK && *empty_out)
        (void)mics_shard_finish(writer, MICS_ERR_INVALID); // which removes it
    else
        status = mics_shard_finish(writer, status);
    mics_free(window->reader.memory, writer);
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
static mics_status make_once(mics_text_window *window, const text_files *files, XXH128_hash_t hash,
                             const char *shard_path, bool *empty_out)
{
    char lock_path[PATH_MAX];
    if (snprintf(lock_path, sizeof lock_path, "%s.lock", shard_path) >= (int)sizeof lock_path)
        return mics_fail(MICS_ERR_INVALID, "%s: the path is too long", shard_path);
    int locked = lock(lock_path);
    mics_status status = MICS_OK;
    if (access(shard_path, F_OK) != 0) {
        if (locked >= 0)
            remove_partials(shard_path);
        status = make_shard(window, files, hash, shard_path, locked >= 0, empty_out);
        unlink(lock_path); // whoever waits for it finds the shard, or tries in its turn
    }
    if (locked >= 0)
        close(locked);
    return status;
}

static mics_status find_or_make(mics_text_window *window, const text_files *files, char *shard_path,
                                size_t capacity, bool *empty_out)
{
    const mics_corpus_spec *spec = files->spec;
    XXH128_hash_t hash;
    MICS_TRY(
        mics_reader_hash(&window->reader, mics_tokenize_identity(spec, &window->reader), &hash));
    int length = snprintf(shard_path, capacity, "%s/%016llx%016llx.bin", spec->cache_dir,
                          (unsigned long long)hash.high64, (unsigned long long)hash.low64);
    if (length < 0 || (size_t)length >= capacity)
        return mics_fail(MICS_ERR_INVALID, "%s: the path is too long", spec->cache_dir);
    if (access(shard_path, F_OK) == 0)
        return MICS_OK;
    int32_t made = 0;
    mics_status status = mics_file_make_dirs(window->reader.memory, spec->cache_dir, &made);
    if (status == MICS_OK)
        status = make_once(window, files, hash, shard_path, empty_out);
    if (status != MICS_OK) // unless what is done so far is kept there
        mics_file_remove_dirs(window->reader.memory, spec->cache_dir, made);
    return status;
}

mics_status mics_text_shard(mics_memory *memory, const mics_corpus_spec *spec, const char *path,
                            mics_tokenize_progress *progress, char **shard_path_out)
{
    const text_files files = {.spec = spec, .progress = progress};
    const char *const text[] = {spec->text_field != NULL ? spec->text_field : "text", NULL};
    const mics_chat_columns rows = spec->chats != NULL
                                       ? mics_chats_columns(mics_chats_spec_of(spec->chats))
                                       : (mics_chat_columns){0};
    mics_text_window window;
    mics_status status = MICS_OK;
    char shard_path[PATH_MAX], *copy = NULL;
    MICS_TRY_OUT(mics_text_window_open(memory, path, &window));
    bool empty = window.reader.bytes == 0;
    if (!empty)
        MICS_TRY_OUT(
            mics_reader_find_content(&window.reader, spec->chats != NULL ? rows.names : text));
    progress->crlf += !empty && window.reader.content.crlf;
    if (!empty)
        MICS_TRY_OUT(find_or_make(&window, &files, shard_path, sizeof shard_path, &empty));
    if (!empty)
        MICS_TRY_OUT(mics_strdup(memory, shard_path, &copy));
    *shard_path_out = copy;
out:
    mics_text_window_close(&window);
    return status;
}

// Whether a file is called as ours are: a hash, and what follows it.
static bool is_of_cache(const char *name)
{
    enum { DIGITS = 32 };
    return strspn(name, "0123456789abcdef") == DIGITS && strncmp(name + DIGITS, ".bin", 4) == 0;
}

void mics_corpus_remove_cache(const char *cache_dir)
{
    DIR *entries = opendir(cache_dir);
    const struct dirent *entry;
    if (entries == NULL)
        return;
    while ((entry = readdir(entries)) != NULL) {
        if (is_of_cache(entry->d_name))
            (void)unlinkat(dirfd(entries), entry->d_name, 0);
    }
    closedir(entries);
    (void)rmdir(cache_dir);
}
