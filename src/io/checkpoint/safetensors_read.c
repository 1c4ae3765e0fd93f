// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Reading safetensors: one file, or those that an index names, as one set of tensors.
//
// An open reader is constant: any number of threads may read it.
//
// Invariant, checked by is_sorted: names of `slots` ascend, no two equal.
#include "base/assert.h"
#include "base/file.h"
#include "base/free.h"
#include "base/json.h"
#include "base/text.h"
#include "io/checkpoint/safetensors_file.h"
#include "mics/core/checkpoint.h"
#include "mics/log.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    CONVERT_BYTES = 16384, // converted at once, on the stack
};
static const size_t MAX_INDEX = (size_t)256 << 20; // bytes of an index

struct mics_safetensors {
    mics_memory *memory;
    mics_safetensors_file *files;
    int32_t file_count;
    mics_safetensors_slot *slots;
    int32_t count;
};

// ---- opening ----

static mics_status open_single(mics_safetensors *reader, const char *path)
{
    MICS_TRY(MICS_NEW(reader->memory, 1, &reader->files));
    MICS_TRY(mics_safetensors_file_open(reader->memory, path, 0, NULL, &reader->files[0]));
    reader->file_count = 1;
    MICS_TRY(MICS_NEW(reader->memory, reader->files[0].count, &reader->slots));
    reader->count = reader->files[0].count;
    if (reader->count > 0)
        memcpy(reader->slots, reader->files[0].slots,
               (size_t)reader->count * sizeof *reader->slots);
    return MICS_OK;
}

// A tensor that an index promises, and the file that it names for it.
typedef struct promise {
    const char *file;
    const char *tensor;
} promise;

static int compare_promises(const void *left, const void *right)
{
    const promise *a = left;
    const promise *b = right;
    int files = strcmp(a->file, b->file);
    return files != 0 ? files : strcmp(a->tensor, b->tensor);
}

// The promises of an index, by file and tensor. The caller frees *promises_out.
static mics_status read_promises(mics_memory *memory, const mics_json *index,
                                 promise **promises_out, int32_t *count_out)
{
    const mics_json_value *map = mics_json_get(mics_json_root(index), "weight_map");
    if (map == NULL || mics_json_type_of(map) != MICS_JSON_OBJECT)
        return mics_fail(MICS_ERR_FORMAT, "%s: no \"weight_map\" that is an object",
                         mics_json_name(index));
    int32_t count = mics_json_count(map);
    promise *promises = NULL;
    MICS_TRY(MICS_NEW(memory, count, &promises));
    const char *tensor = NULL;
    const mics_json_value *file;
    for (int32_t i = 0; (file = mics_json_next(map, &tensor)) != NULL; i++) {
        bool good = mics_json_type_of(file) == MICS_JSON_STRING &&
                    mics_file_plain_name(mics_json_string(file));
        if (!good) {
            mics_free(memory, promises);
            return mics_fail(MICS_ERR_FORMAT,
                             "%s: weight_map: the file of tensor \"%.200s\" is no plain file name",
                             mics_json_name(index), tensor);
        }
        promises[i] = (promise){mics_json_string(file), tensor};
    }
    qsort(promises, (size_t)count, sizeof *promises, compare_promises);
    *promises_out = promises;
    *count_out = count;
    return MICS_OK;
}

static int compare_slot_names(const void *left, const void *right)
{
    return strcmp(((const mics_safetensors_slot *)left)->info.name,
                  ((const mics_safetensors_slot *)right)->info.name);
}

// Takes the tensors that an index promises of a file: both are in order of names.
static mics_status take_promised(mics_safetensors *reader, const char *index,
                                 const mics_safetensors_file *file, const promise *promises,
                                 int32_t count)
{
    qsort(file->slots, (size_t)file->count, sizeof *file->slots, compare_slot_names);
    int32_t next = 0;
    for (int32_t i = 0; i < count; i++) {
        while (next < file->count && strcmp(file->slots[next].info.name, promises[i].tensor) < 0)
            next++;
        if (next == file->count || strcmp(file->slots[next].info.name, promises[i].tensor) != 0)
            return mics_fail(MICS_ERR_FORMAT, "%s: lacks tensor \"%.200s\", which %s says is there",
                             file->path, promises[i].tensor, index);
        reader->slots[reader->count++] = file->slots[next];
    }
    return MICS_OK;
}

// Opens the file of promises[0] in `dir` and takes what is promised of it; *taken_out says how many
// promises that were.
static mics_status open_promised(mics_safetensors *reader, const char *index, const char *dir,
                                 const promise *promises, int32_t count, int32_t *taken_out)
{
    int32_t taken = 1;
    while (taken < count && strcmp(promises[taken].file, promises[0].file) == 0)
        taken++;
    char *path = NULL;
    MICS_TRY(mics_file_join(reader->memory, dir, promises[0].file, &path));
    int32_t number = reader->file_count;
    mics_status status =
        mics_safetensors_file_open(reader->memory, path, number, NULL, &reader->files[number]);
    mics_free(reader->memory, path);
    MICS_TRY(status);
    reader->file_count++;
    *taken_out = taken;
    return take_promised(reader, index, &reader->files[number], promises, taken);
}

static mics_status open_promises(mics_safetensors *reader, const char *index, const char *dir,
                                 const promise *promises, int32_t count)
{
    int32_t files = 0;
    for (int32_t i = 0; i < count; i++)
        files += i == 0 || strcmp(promises[i - 1].file, promises[i].file) != 0;
    MICS_TRY(MICS_NEW(reader->memory, files, &reader->files));
    MICS_TRY(MICS_NEW(reader->memory, count, &reader->slots));
    for (int32_t first = 0; first < count;) {
        int32_t taken = 0;
        MICS_TRY(open_promised(reader, index, dir, promises + first, count - first, &taken));
        first += taken;
    }
    return MICS_OK;
}

static mics_status open_index(mics_safetensors *reader, const char *path)
{
    mics_memory *memory = reader->memory;
    mics_json *index = NULL;
    promise *promises = NULL;
    char *dir = NULL;
    int32_t count = 0;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_json_load(memory, path, MAX_INDEX, &index));
    MICS_TRY_OUT(read_promises(memory, index, &promises, &count));
    MICS_TRY_OUT(mics_strdup(memory, path, &dir));
    char *slash = strrchr(dir, '/');
    if (slash != NULL)
        slash[slash == dir ? 1 : 0] = '\0';
    status = open_promises(reader, path, slash != NULL ? dir : ".", promises, count);
out:
    mics_free(memory, dir);
    mics_free(memory, promises);
    mics_json_close(index);
    return status;
}

static mics_status open_folder(mics_safetensors *reader, const char *path)
{
    char *index = NULL, *single = NULL;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_file_join(reader->memory, path, MICS_SAFETENSORS_INDEX, &index));
    MICS_TRY_OUT(mics_file_join(reader->memory, path, MICS_SAFETENSORS_SINGLE, &single));
    const bool both = mics_file_is_there(index) && mics_file_is_there(single);
    if (both)
        mics_log(MICS_LOG_WARNING,
                 "%s: holds " MICS_SAFETENSORS_SINGLE " and " MICS_SAFETENSORS_INDEX
                 "; the first is read, as transformers does, and the second with its files is "
                 "passed over; remove what is old",
                 path);
    if (both || mics_file_is_there(single))
        status = open_single(reader, single);
    else if (mics_file_is_there(index))
        status = open_index(reader, index);
    else
        status = mics_fail(
            MICS_ERR_IO,
            "%s: holds neither " MICS_SAFETENSORS_INDEX " nor " MICS_SAFETENSORS_SINGLE, path);
out:
    mics_free(reader->memory, single);
    mics_free(reader->memory, index);
    return status;
}

static bool is_sorted(const mics_safetensors *reader)
{
    for (int32_t i = 1; i < reader->count; i++) {
        if (strcmp(reader->slots[i - 1].info.name, reader->slots[i].info.name) >= 0)
            return false;
    }
    return true;
}

static mics_status open_path(mics_safetensors *reader, const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot open: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        MICS_TRY(open_folder(reader, path));
    else if (mics_text_ends(path, ".json"))
        MICS_TRY(open_index(reader, path));
    else
        MICS_TRY(open_single(reader, path));
    // JSON refuses a key that comes twice, so names differ within a file and within an index.
    qsort(reader->slots, (size_t)reader->count, sizeof *reader->slots, compare_slot_names);
    MICS_ASSERT(is_sorted(reader));
    return MICS_OK;
}

mics_status mics_safetensors_open(mics_memory *memory, const char *path,
                                  mics_safetensors **reader_out)
{
    mics_safetensors *reader = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &reader));
    reader->memory = memory;
    const mics_status status = open_path(reader, path);
    if (status == MICS_OK)
        *reader_out = reader;
    else
        mics_safetensors_close(reader);
    return status;
}

void mics_safetensors_close(mics_safetensors *reader)
{
    if (reader == NULL)
        return;
    mics_memory *memory = reader->memory;
    for (int32_t i = 0; i < reader->file_count; i++)
        mics_safetensors_file_fini(memory, &reader->files[i]);
    MICS_FREE_ALL(memory, reader->files, reader->slots, reader);
}

int32_t mics_safetensors_count(const mics_safetensors *reader)
{
    return reader->count;
}

const mics_tensor_info *mics_safetensors_at(const mics_safetensors *reader, int32_t index)
{
    if (index < 0 || index >= reader->count)
        return NULL;
    return &reader->slots[index].info;
}

static const mics_safetensors_slot *find_slot(const mics_safetensors *reader, const char *name)
{
    const mics_safetensors_slot key = {.info = {.name = name}};
    return reader->count == 0 ? NULL
                              : bsearch(&key, reader->slots, (size_t)reader->count,
                                        sizeof *reader->slots, compare_slot_names);
}

const mics_tensor_info *mics_safetensors_find(const mics_safetensors *reader, const char *name)
{
    const mics_safetensors_slot *slot = find_slot(reader, name);
    return slot != NULL ? &slot->info : NULL;
}

// ---- reading ----

static mics_status read_converted(const mics_safetensors_file *file,
                                  const mics_safetensors_dtype *dtype, int64_t offset,
                                  int64_t count, float *data_out)
{
    const int64_t elem_bytes = dtype->bits / 8;
    if (dtype->convert == NULL)
        return mics_file_read_at(file->fd, file->path, data_out, (size_t)count * 4, offset);
    unsigned char raw[CONVERT_BYTES];
    int64_t max = CONVERT_BYTES / elem_bytes;
    while (count > 0) {
        int64_t now = count < max ? count : max;
        MICS_TRY(mics_file_read_at(file->fd, file->path, raw, (size_t)(now * elem_bytes), offset));
        dtype->convert(raw, now, data_out);
        data_out += now;
        offset += now * elem_bytes;
        count -= now;
    }
    return MICS_OK;
}

mics_status mics_safetensors_read(const mics_safetensors *reader, const char *name, int64_t begin,
                                  int64_t count, float *data_out)
{
    const mics_safetensors_slot *slot = find_slot(reader, name);
    const char *first_path = reader->file_count > 0 ? reader->files[0].path : "safetensors";
    if (slot == NULL)
        return mics_fail(MICS_ERR_INVALID, "%s: no tensor \"%.200s\"%s", first_path, name,
                         reader->file_count > 1 ? " there or in the files beside it" : "");
    const mics_safetensors_file *file = &reader->files[slot->file];
    if (begin < 0 || count < 0 || begin > slot->info.elems || count > slot->info.elems - begin)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: elements %lld and the %lld from there on of tensor \"%.200s\", which "
                         "has %lld",
                         file->path, (long long)begin, (long long)count, name,
                         (long long)slot->info.elems);
    if (!slot->dtype->readable)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "%s: tensor \"%.200s\" is %s; only F32, F16, BF16 and F64 are read",
                         file->path, name, slot->info.dtype);
    return read_converted(file, slot->dtype, slot->offset + begin * (slot->dtype->bits / 8), count,
                          data_out);
}
