// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/store.h"
#include "base/file.h"
#include "base/free.h"
#include "mics/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WINDOW_BYTES = 8 << 20 };

// ---- reading ----

// Of an object. Past what is read in order, what is asked for alone comes.
static mics_status move_window(mics_store_file *file, int64_t offset, int64_t bytes)
{
    const int64_t in_order = file->last - offset;
    size_t got = 0;
    void *window = file->window;
    bytes = bytes > in_order ? bytes : in_order < WINDOW_BYTES ? in_order : WINDOW_BYTES;
    if (bytes > file->end - file->begin || window == NULL)
        MICS_TRY(mics_realloc(file->memory, MICS_MEM_HOST, (size_t)bytes, &window));
    file->window = window;
    file->begin = file->end = offset;
    MICS_TRY(remote_s3_read(file->path, offset, window, (size_t)bytes, &got, &file->bytes));
    file->end += (int64_t)got;
    return file->bytes >= 0 ? MICS_OK
                            : mics_fail(MICS_ERR_IO, "%s: there is no such object", file->path);
}

mics_status mics_store_open(mics_memory *memory, const char *path, int64_t begin, int64_t last,
                            mics_store_file *file_out)
{
    *file_out = (mics_store_file){.memory = memory, .path = path, .fd = -1, .last = last};
    if (!mics_remote_is_bucket(path))
        return mics_file_open_read(path, &file_out->fd, &file_out->bytes);
    const mics_status status = move_window(file_out, begin, 1);
    if (status != MICS_OK)
        mics_store_close(file_out);
    return status;
}

mics_status mics_store_read(mics_store_file *file, void *data, size_t bytes, int64_t offset)
{
    if (file->fd >= 0)
        return mics_file_read_at(file->fd, file->path, data, bytes, offset);
    for (char *to = data; bytes > 0;) {
        if (offset < file->begin || offset >= file->end)
            MICS_TRY(move_window(file, offset,
                                 (int64_t)bytes < WINDOW_BYTES ? (int64_t)bytes : WINDOW_BYTES));
        const int64_t there = file->end - offset;
        const size_t now = (int64_t)bytes < there ? bytes : (size_t)there;
        if (there <= 0)
            return mics_fail(MICS_ERR_FORMAT, "%s: offset %lld: the file ends there", file->path,
                             (long long)offset);
        memcpy(to, file->window + (offset - file->begin), now);
        to += now;
        offset += (int64_t)now;
        bytes -= now;
    }
    return MICS_OK;
}

void mics_store_close(mics_store_file *file)
{
    if (file->path != NULL && file->fd >= 0)
        close(file->fd);
    if (file->memory != NULL)
        mics_free(file->memory, file->window);
    *file = (mics_store_file){.fd = -1};
}

mics_status mics_store_read_whole(mics_memory *memory, const char *path, size_t max_bytes,
                                  char **text_out, size_t *bytes_out)
{
    mics_store_file file;
    char *text = NULL;
    if (!mics_remote_is_bucket(path))
        return mics_file_read_whole(memory, path, max_bytes, text_out, bytes_out);
    MICS_TRY(mics_store_open(memory, path, 0, (int64_t)max_bytes, &file));
    const size_t bytes = (size_t)file.bytes;
    mics_status status =
        bytes <= max_bytes
            ? MICS_NEW(memory, bytes + 1, &text)
            : mics_fail(MICS_ERR_FORMAT, "%s: is larger than %zu bytes", path, max_bytes);
    if (status == MICS_OK)
        status = mics_store_read(&file, text, bytes, 0);
    mics_store_close(&file);
    if (status != MICS_OK) {
        mics_free(memory, text);
        return status;
    }
    *text_out = text;
    *bytes_out = bytes;
    return MICS_OK;
}

// ---- what is there ----

mics_status mics_store_length(const char *path, int64_t *bytes_out)
{
    struct stat facts;
    char byte;
    size_t got = 0;
    if (mics_remote_is_bucket(path))
        return remote_s3_read(path, 0, &byte, 1, &got, bytes_out);
    *bytes_out = -1;
    if (stat(path, &facts) == 0)
        *bytes_out = facts.st_size;
    else if (errno != ENOENT && errno != ENOTDIR)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot look at it: %s", path,
                         strerror(errno));
    return MICS_OK;
}

bool mics_store_is_there(const char *path)
{
    int64_t bytes = -1;
    return mics_remote_is_bucket(path) ? mics_store_length(path, &bytes) != MICS_OK || bytes >= 0
                                       : mics_file_is_there(path);
}

static mics_status list_folder(const char *dir, mics_text *names)
{
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    if (folder == NULL && errno == ENOENT)
        return MICS_OK;
    if (folder == NULL)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot list the folder: %s", dir,
                         strerror(errno));
    while ((entry = readdir(folder)) != NULL)
        if (strchr(entry->d_name, '\n') == NULL && mics_file_plain_name(entry->d_name))
            mics_text_printf(names, "%s\n", entry->d_name);
    closedir(folder);
    return mics_text_status(names);
}

mics_status mics_store_list(mics_memory *memory, const char *dir, mics_store_names *names_out)
{
    mics_text text = {.memory = memory};
    mics_store_names names = {.count = 0};
    mics_status status =
        mics_remote_is_bucket(dir) ? remote_s3_list(memory, dir, &text) : list_folder(dir, &text);
    size_t lines = 0;
    for (size_t i = 0; i < text.used; i++)
        lines += text.bytes[i] == '\n';
    if (status == MICS_OK)
        status = MICS_NEW(memory, lines, &names.list);
    for (char *at = text.bytes; status == MICS_OK && at != NULL && (size_t)names.count < lines;) {
        const size_t bytes = strcspn(at, "\n");
        const bool folder = bytes > 0 && at[bytes - 1] == '/'; // of a bucket
        names.list[names.count++] = at;
        at[folder ? bytes - 1 : bytes] = '\0';
        at += bytes + 1;
    }
    names.text = text.bytes;
    if (status == MICS_OK)
        *names_out = names;
    else
        mics_text_fini(&text);
    return status;
}

void mics_store_names_fini(mics_memory *memory, mics_store_names *names)
{
    mics_free(memory, names->list);
    mics_free(memory, names->text);
    *names = (mics_store_names){.count = 0};
}

// ---- changing it ----

mics_status mics_store_replace(mics_memory *memory, const char *dir, const char *name,
                               const char *text, size_t bytes)
{
    char *path = NULL;
    if (!mics_remote_is_bucket(dir))
        return mics_file_replace(memory, dir, name, text, bytes);
    MICS_TRY(mics_file_join(memory, dir, name, &path));
    const mics_status status = remote_s3_put(path, text, bytes);
    mics_free(memory, path);
    return status;
}

mics_status mics_store_write_whole(const char *path, const void *data, size_t bytes)
{
    return mics_remote_is_bucket(path) ? remote_s3_put(path, data, bytes)
                                       : mics_file_write_whole(path, data, bytes);
}

mics_status mics_store_make_dirs(mics_memory *memory, const char *path)
{
    return mics_remote_is_bucket(path) ? MICS_OK : mics_file_make_dirs(memory, path, NULL);
}

mics_status mics_store_sync_dir(const char *path)
{
    return mics_remote_is_bucket(path) ? MICS_OK : mics_file_sync_dir(path);
}

mics_status mics_store_remove(const char *path)
{
    if (mics_remote_is_bucket(path))
        return remote_s3_remove(path, NULL);
    return unlink(path) == 0 || errno == ENOENT || errno == ENOTDIR
               ? MICS_OK
               : mics_fail(mics_status_of_errno(errno), "%s: cannot remove: %s", path,
                           strerror(errno));
}
