// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Writing safetensors, tensor by tensor. Shapes are known first, so every file's header is complete
// before its data, and data is only ever appended.
//
// shards[0 .. shard - 1] are on disk, not yet under their names; tensors before the current one are
// complete.
//
// Invariants, checked by is_consistent between appends and by is_whole:
//   1. shards[shard] is open exactly when it exists, and has the current tensor.
//   2. left_elems, the current tensor's missing elements, are at least 1 and at most its size.
//   3. A file has its planned bytes: offset, but for those that the buffer holds; all at its end.
#include "base/assert.h"
#include "base/file.h"
#include "base/free.h"
#include "base/text.h"
#include "io/checkpoint/safetensors_file.h"
#include "mics/core/checkpoint.h"
#include "mics/log.h"
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 1 << 20, // gathers small appends into large writes
    ROUNDED_ELEMS = 4096,   // converted at once, on the stack
    MAX_SHARDS = 99999,     // five digits in the names
    NAME_BYTES = 64,
};

// One file of the model.
typedef struct shard {
    int32_t first, count; // tensors
    int64_t data_bytes;
    char name[NAME_BYTES];
    char *path;            // where it will be
    mics_file_aside aside; // where it is written
    char *header;          // with the 8 bytes of its length
    size_t header_bytes;
} shard;

typedef struct planned {
    char *name;
    int64_t elems;
    const mics_safetensors_dtype *dtype;
} planned;

struct mics_safetensors_writer {
    mics_memory *memory;
    char *dir;
    const char *single; // what a single file is called
    int32_t made_dirs;  // the folder and its parents, of those that were not there
    planned *tensors;
    int32_t tensor_count;
    shard *shards;
    int32_t shard_count;
    char *index; // text of the index; NULL for a single file

    int32_t shard;
    int fd;
    int64_t offset; // of the next byte in the current file
    int32_t tensor; // the current one
    int64_t left_elems;
    mics_status failed; // of the first append that could not be written
    unsigned char *buffer;
    size_t buffered;
};

// ---- planning ----

static mics_status entry_elems(const mics_safetensors_entry *entry, int64_t *elems_out)
{
    if (entry->name == NULL || entry->name[0] == '\0' || strcmp(entry->name, "__metadata__") == 0)
        return mics_fail(MICS_ERR_INVALID, "safetensors: a tensor without a usable name");
    if (entry->dims < 0 || entry->dims > MICS_SAFETENSORS_DIMS)
        return mics_fail(MICS_ERR_INVALID, "safetensors: tensor %s has %d dimensions; at most %d",
                         entry->name, (int)entry->dims, MICS_SAFETENSORS_DIMS);
    int64_t elems = 1;
    for (int32_t i = 0; i < entry->dims; i++) {
        if (entry->shape[i] < 0 || __builtin_mul_overflow(elems, entry->shape[i], &elems) ||
            elems > INT64_MAX / 8)
            return mics_fail(MICS_ERR_INVALID, "safetensors: the shape of tensor %s is no size",
                             entry->name);
    }
    *elems_out = elems;
    return MICS_OK;
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static mics_status check_unique(mics_memory *memory, const mics_safetensors_entry *entries,
                                int32_t count)
{
    const char **names = NULL;
    MICS_TRY(MICS_NEW(memory, count, &names));
    for (int32_t i = 0; i < count; i++)
        names[i] = entries[i].name;
    qsort(names, (size_t)count, sizeof *names, compare_names);
    mics_status status = MICS_OK;
    for (int32_t i = 1; i < count && status == MICS_OK; i++) {
        if (strcmp(names[i - 1], names[i]) == 0)
            status =
                mics_fail(MICS_ERR_INVALID, "safetensors: two tensors are called %s", names[i]);
    }
    mics_free(memory, names);
    return status;
}

static mics_status measure(mics_safetensors_writer *writer, const mics_safetensors_entry *entries,
                           int32_t count)
{
    MICS_TRY(MICS_NEW(writer->memory, count, &writer->tensors));
    writer->tensor_count = count;
    int64_t total = 0;
    for (int32_t i = 0; i < count; i++) {
        planned *tensor = &writer->tensors[i];
        tensor->dtype = mics_safetensors_dtype_of(entries[i].dtype);
        MICS_TRY(entry_elems(&entries[i], &tensor->elems));
        MICS_TRY(mics_strdup(writer->memory, entries[i].name, &tensor->name));
        if (__builtin_add_overflow(total, tensor->elems, &total) || total > INT64_MAX / 8)
            return mics_fail(MICS_ERR_INVALID, "safetensors: the model's size is beyond 63 bits");
    }
    return check_unique(writer->memory, entries, count);
}

static int64_t bytes_of(const planned *tensor)
{
    return tensor->elems * (tensor->dtype->bits / 8);
}

// Cuts the tensors, in order, into files of at most max_bytes; a larger tensor has its own.
static mics_status cut_shards(mics_safetensors_writer *writer, int64_t max_bytes)
{
    MICS_TRY(MICS_NEW(writer->memory, writer->tensor_count + 1, &writer->shards));
    writer->shard_count = 1;
    shard *now = &writer->shards[0];
    for (int32_t i = 0; i < writer->tensor_count; i++) {
        const int64_t bytes = bytes_of(&writer->tensors[i]);
        if (max_bytes > 0 && now->count > 0 && now->data_bytes + bytes > max_bytes) {
            now++;
            writer->shard_count++;
            now->first = i;
        }
        now->count++;
        now->data_bytes += bytes;
    }
    if (writer->shard_count > MAX_SHARDS)
        return mics_fail(MICS_ERR_INVALID,
                         "safetensors: %d files of at most %lld bytes; at most %d files are made",
                         (int)writer->shard_count, (long long)max_bytes, MAX_SHARDS);
    return MICS_OK;
}

static mics_status name_shard(mics_safetensors_writer *writer, int32_t index)
{
    shard *now = &writer->shards[index];
    if (writer->shard_count == 1)
        snprintf(now->name, sizeof now->name, "%s", writer->single);
    else
        snprintf(now->name, sizeof now->name, "model-%05d-of-%05d.safetensors", (int)index + 1,
                 (int)writer->shard_count);
    return mics_file_join(writer->memory, writer->dir, now->name, &now->path);
}

// A file's header: 8 bytes of length, then JSON padded with spaces to a multiple of 8.
static mics_status compose_header(mics_safetensors_writer *writer,
                                  const mics_safetensors_entry *entries, shard *now)
{
    mics_text text = {.memory = writer->memory};
    mics_text_printf(&text, "%*s{\"__metadata__\":{\"format\":\"pt\"}", MICS_SAFETENSORS_PREFIX,
                     "");
    int64_t offset = 0;
    for (int32_t i = now->first; i < now->first + now->count; i++)
        mics_safetensors_write_tensor(&text, &entries[i], &offset);
    const mics_status status = mics_safetensors_end_header(&text, now->path, 8);
    if (status != MICS_OK) {
        mics_text_fini(&text);
        return status;
    }
    now->header = text.bytes;
    now->header_bytes = text.used;
    return MICS_OK;
}

static mics_status compose_index(mics_safetensors_writer *writer,
                                 const mics_safetensors_entry *entries)
{
    int64_t total = 0;
    for (int32_t i = 0; i < writer->shard_count; i++)
        total += writer->shards[i].data_bytes;
    mics_text text = {.memory = writer->memory};
    mics_text_printf(&text, "{\n  \"metadata\": {\"total_size\": %lld},\n  \"weight_map\": {",
                     (long long)total);
    for (int32_t i = 0; i < writer->shard_count; i++) {
        const shard *now = &writer->shards[i];
        for (int32_t t = now->first; t < now->first + now->count; t++) {
            mics_text_printf(&text, "%s\n    ", t == 0 ? "" : ",");
            mics_text_quoted(&text, entries[t].name);
            mics_text_printf(&text, ": \"%s\"", now->name);
        }
    }
    mics_text_printf(&text, "\n  }\n}\n");
    mics_status status = mics_text_status(&text);
    if (status != MICS_OK)
        mics_text_fini(&text);
    else
        writer->index = text.bytes;
    return status;
}

static mics_status plan(mics_safetensors_writer *writer, const mics_safetensors_entry *entries,
                        int32_t count, int64_t max_shard_bytes)
{
    MICS_TRY(measure(writer, entries, count));
    MICS_TRY(cut_shards(writer, max_shard_bytes));
    for (int32_t i = 0; i < writer->shard_count; i++) {
        MICS_TRY(name_shard(writer, i));
        MICS_TRY(compose_header(writer, entries, &writer->shards[i]));
    }
    if (writer->shard_count > 1)
        MICS_TRY(compose_index(writer, entries));
    return MICS_NEW(writer->memory, BUFFER_BYTES, &writer->buffer);
}

// True for the files that make a folder hold a model.
static bool is_model_file(const char *name)
{
    if (strcmp(name, MICS_SAFETENSORS_SINGLE) == 0 || strcmp(name, MICS_SAFETENSORS_INDEX) == 0 ||
        strcmp(name, MICS_SAFETENSORS_ADAPTER) == 0)
        return true;
    return strncmp(name, "model-", 6) == 0 && mics_text_ends(name, ".safetensors");
}

static mics_status check_folder(const mics_safetensors_writer *writer)
{
    DIR *folder = opendir(writer->dir);
    if (folder == NULL)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot list the folder: %s", writer->dir,
                         strerror(errno));
    mics_status status = MICS_OK;
    const struct dirent *entry = NULL;
    while (status == MICS_OK && (errno = 0, entry = readdir(folder)) != NULL) {
        if (is_model_file(entry->d_name))
            status = mics_fail(MICS_ERR_INVALID,
                               "%s/%s exists already; choose another folder, or remove it",
                               writer->dir, entry->d_name);
    }
    if (status == MICS_OK && errno != 0)
        status = mics_fail(mics_status_of_errno(errno), "%s: cannot list the folder: %s",
                           writer->dir, strerror(errno));
    closedir(folder);
    return status;
}

// What a process that was killed left of a model; no model is there.
static bool is_dead_model(const char *file, const char *name)
{
    char stem[64];
    const size_t bytes = mics_file_aside_stem(file);
    (void)name;
    if (bytes == 0 || bytes >= sizeof stem)
        return false;
    memcpy(stem, file, bytes);
    stem[bytes] = '\0';
    return is_model_file(stem);
}

// Makes the folder, or sees that it holds no model.
static mics_status prepare_folder(mics_safetensors_writer *writer)
{
    mics_status status = mics_file_make_dirs(writer->memory, writer->dir, &writer->made_dirs);
    if (status == MICS_OK)
        status = check_folder(writer);
    if (status == MICS_OK)
        mics_file_sweep_dead(writer->dir, is_dead_model, NULL);
    else
        mics_file_remove_dirs(writer->memory, writer->dir, writer->made_dirs);
    return status;
}

// ---- writing ----

static mics_status open_shard(mics_safetensors_writer *writer)
{
    shard *now = &writer->shards[writer->shard];
    MICS_TRY(mics_file_begin_aside(writer->memory, now->path,
                                   (int64_t)now->header_bytes + now->data_bytes, &now->aside,
                                   &writer->fd));
    writer->offset = (int64_t)now->header_bytes;
    return mics_file_write_at(writer->fd, now->aside.path, now->header, now->header_bytes, 0);
}

static mics_status flush(mics_safetensors_writer *writer)
{
    if (writer->buffered == 0)
        return MICS_OK;
    MICS_TRY(mics_file_write_at(writer->fd, writer->shards[writer->shard].aside.path,
                                writer->buffer, writer->buffered, writer->offset));
    writer->offset += (int64_t)writer->buffered;
    writer->buffered = 0;
    return MICS_OK;
}

// Appends bytes to the current file; large blocks go past the buffer.
static mics_status put(mics_safetensors_writer *writer, const void *data, size_t bytes)
{
    if (writer->buffered + bytes > BUFFER_BYTES)
        MICS_TRY(flush(writer));
    if (bytes >= BUFFER_BYTES) {
        MICS_TRY(mics_file_write_at(writer->fd, writer->shards[writer->shard].aside.path, data,
                                    bytes, writer->offset));
        writer->offset += (int64_t)bytes;
        return MICS_OK;
    }
    memcpy(writer->buffer + writer->buffered, data, bytes);
    writer->buffered += bytes;
    return MICS_OK;
}

static bool is_whole(const mics_safetensors_writer *writer)
{
    const shard *now = &writer->shards[writer->shard];
    return writer->offset == (int64_t)now->header_bytes + now->data_bytes;
}

// Brings the current file to disk and opens the next, if there is one.
static mics_status close_shard(mics_safetensors_writer *writer)
{
    int fd = writer->fd;
    const mics_status flushed = flush(writer);
    MICS_ASSERT(flushed != MICS_OK || is_whole(writer));
    writer->fd = -1;
    MICS_TRY(mics_file_close_written(fd, writer->shards[writer->shard].aside.path, flushed));
    writer->shard++;
    return writer->shard < writer->shard_count ? open_shard(writer) : MICS_OK;
}

// Goes on from complete tensors, and from complete files, to where the next element belongs.
static mics_status advance(mics_safetensors_writer *writer)
{
    while (writer->left_elems == 0 && writer->tensor < writer->tensor_count) {
        writer->tensor++;
        const shard *now = &writer->shards[writer->shard];
        if (writer->tensor == now->first + now->count)
            MICS_TRY(close_shard(writer));
        if (writer->tensor < writer->tensor_count)
            writer->left_elems = writer->tensors[writer->tensor].elems;
    }
    return MICS_OK;
}

static bool is_consistent(const mics_safetensors_writer *writer)
{
    if (writer->shard == writer->shard_count)
        return writer->fd < 0 && writer->tensor == writer->tensor_count && writer->left_elems == 0;
    const shard *now = &writer->shards[writer->shard];
    const planned *tensor = &writer->tensors[writer->tensor];
    const int64_t end =
        writer->offset + (int64_t)writer->buffered + writer->left_elems * (tensor->dtype->bits / 8);
    return writer->fd >= 0 && writer->tensor >= now->first &&
           writer->tensor < now->first + now->count && writer->left_elems > 0 &&
           writer->left_elems <= tensor->elems && writer->buffered <= BUFFER_BYTES &&
           end <= (int64_t)now->header_bytes + now->data_bytes;
}

static mics_status begin(mics_safetensors_writer *writer)
{
    MICS_TRY(open_shard(writer));
    if (writer->tensor_count == 0)
        return close_shard(writer);
    writer->left_elems = writer->tensors[0].elems;
    return advance(writer);
}

static void free_writer(mics_safetensors_writer *writer)
{
    mics_memory *memory = writer->memory;
    for (int32_t i = 0; writer->shards != NULL && i < writer->shard_count; i++) {
        mics_free(memory, writer->shards[i].path);
        mics_free(memory, writer->shards[i].header);
    }
    for (int32_t i = 0; i < writer->tensor_count; i++)
        mics_free(memory, writer->tensors[i].name);
    MICS_FREE_ALL(memory, writer->shards, writer->tensors, writer->index, writer->buffer,
                  writer->dir, writer);
}

// Removes what was written, aside or renamed: the folder held no model before, so it can only be
// ours.
static void discard(mics_safetensors_writer *writer)
{
    if (writer->fd >= 0)
        close(writer->fd);
    char *index = NULL;
    if (writer->index != NULL &&
        mics_file_join(writer->memory, writer->dir, MICS_SAFETENSORS_INDEX, &index) == MICS_OK)
        unlink(index);
    mics_free(writer->memory, index);
    for (int32_t i = 0; i < writer->shard_count; i++) {
        mics_file_drop(writer->memory, &writer->shards[i].aside);
        unlink(writer->shards[i].path);
    }
    mics_file_remove_dirs(writer->memory, writer->dir, writer->made_dirs);
}

static mics_status create(mics_memory *memory, const char *dir, const char *single,
                          const mics_safetensors_entry *entries, int32_t count,
                          int64_t max_shard_bytes, mics_safetensors_writer **writer_out)
{
    if (count < 0 || (count > 0 && entries == NULL) || max_shard_bytes < 0)
        return mics_fail(MICS_ERR_INVALID, "safetensors: %d tensors in files of %lld bytes",
                         (int)count, (long long)max_shard_bytes);
    mics_safetensors_writer *writer = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &writer));
    writer->memory = memory;
    writer->fd = -1;
    writer->single = single;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_strdup(memory, dir, &writer->dir));
    MICS_TRY_OUT(plan(writer, entries, count, max_shard_bytes));
    MICS_TRY_OUT(prepare_folder(writer));
    status = begin(writer);
    if (status != MICS_OK)
        discard(writer);
    else
        *writer_out = writer;
    MICS_ASSERT(status != MICS_OK || is_consistent(writer));
out:
    if (status != MICS_OK)
        free_writer(writer);
    return status;
}

mics_status mics_safetensors_create(mics_memory *memory, const char *dir,
                                    const mics_safetensors_entry *entries, int32_t count,
                                    int64_t max_shard_bytes, mics_safetensors_writer **writer_out)
{
    return create(memory, dir, MICS_SAFETENSORS_SINGLE, entries, count, max_shard_bytes,
                  writer_out);
}

mics_status mics_safetensors_create_adapter(mics_memory *memory, const char *dir,
                                            const mics_safetensors_entry *entries, int32_t count,
                                            mics_safetensors_writer **writer_out)
{
    return create(memory, dir, MICS_SAFETENSORS_ADAPTER, entries, count, 0, writer_out);
}

static mics_status put_elems(mics_safetensors_writer *writer, const float *data, int64_t count)
{
    uint16_t rounded[ROUNDED_ELEMS];
    const mics_safetensors_dtype *dtype = writer->tensors[writer->tensor].dtype;
    if (dtype->round == NULL)
        return put(writer, data, (size_t)count * sizeof(float));
    for (int64_t at = 0; at < count; at += ROUNDED_ELEMS) {
        const int64_t now = count - at < ROUNDED_ELEMS ? count - at : ROUNDED_ELEMS;
        if (!dtype->round(data + at, now, rounded))
            return mics_fail(MICS_ERR_INVALID,
                             "%s: an element of tensor \"%s\" is too large for %s; write %s",
                             writer->dir, writer->tensors[writer->tensor].name, dtype->name,
                             strcmp(dtype->name, "BF16") == 0 ? "fp32" : "bf16 or fp32");
        MICS_TRY(put(writer, rounded, (size_t)now * sizeof rounded[0]));
    }
    return MICS_OK;
}

mics_status mics_safetensors_append(mics_safetensors_writer *writer, const float *data,
                                    int64_t count)
{
    if (count < 0 || count > writer->left_elems)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: %lld elements appended to tensor %d of %d, which lacks %lld",
                         writer->dir, (long long)count, (int)writer->tensor,
                         (int)writer->tensor_count, (long long)writer->left_elems);
    if (count == 0 || writer->failed != MICS_OK)
        return writer->failed;
    mics_status status = put_elems(writer, data, count);
    if (status == MICS_OK) {
        writer->left_elems -= count;
        status = advance(writer);
    }
    writer->failed = status;
    MICS_ASSERT(status != MICS_OK || is_consistent(writer));
    return status;
}

// Renames the files into place, the index last: a model in several files counts from then on.
static mics_status rename_files(mics_safetensors_writer *writer)
{
    for (int32_t i = 0; i < writer->shard_count; i++)
        MICS_TRY(mics_file_place(writer->memory, &writer->shards[i].aside, writer->shards[i].path));
    MICS_TRY(mics_file_sync_dir(writer->dir));
    if (writer->index == NULL)
        return MICS_OK;
    MICS_TRY(mics_file_replace(writer->memory, writer->dir, MICS_SAFETENSORS_INDEX, writer->index,
                               strlen(writer->index)));
    return mics_file_sync_dir(writer->dir);
}

mics_status mics_safetensors_finish(mics_safetensors_writer *writer, mics_status status)
{
    if (writer == NULL)
        return status;
    if (status == MICS_OK)
        status = writer->failed;
    if (status == MICS_OK && writer->tensor < writer->tensor_count)
        status = mics_fail(MICS_ERR_INVALID, "%s: tensor %d of %d lacks %lld elements", writer->dir,
                           (int)writer->tensor, (int)writer->tensor_count,
                           (long long)writer->left_elems);
    if (status == MICS_OK)
        status = rename_files(writer);
    if (status != MICS_OK)
        discard(writer);
    free_writer(writer);
    return status;
}
