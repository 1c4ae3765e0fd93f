// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Headers of rank files, read and checked: first the header's own checksum, then what every
// .safetensors file must keep, then names and checksums of the tensors.
#include "base/free.h"
#include "io/checkpoint/rank_file.h"
#include "mics/log.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int64_t mics_rank_file_chunks(int64_t elems)
{
    return (elems + MICS_RANK_FILE_CHUNK / 4 - 1) / (MICS_RANK_FILE_CHUNK / 4);
}

void mics_rank_file_range_text(int64_t begin, int64_t end, int64_t elems,
                               char text[MICS_RANK_FILE_RANGE_BYTES])
{
    snprintf(text, MICS_RANK_FILE_RANGE_BYTES, "[%" PRId64 ":%" PRId64 " of %" PRId64 "]", begin,
             end, elems);
}

static mics_status malformed(const char *path, int64_t offset, const char *what)
{
    return mics_fail(MICS_ERR_FORMAT, "%s: offset %" PRId64 ": %s", path, offset, what);
}

static mics_status check_header(const char *path, const char *text, size_t bytes)
{
    enum { HASH_AT = MICS_RANK_FILE_HASH_AT - MICS_SAFETENSORS_PREFIX };
    enum { HASHED_AT = MICS_RANK_FILE_HASHED_AT - MICS_SAFETENSORS_PREFIX };
    char digits[MICS_RANK_FILE_HASH_DIGITS];
    if (bytes < HASHED_AT || memcmp(text, MICS_RANK_FILE_STEM, sizeof MICS_RANK_FILE_STEM - 1) != 0)
        return malformed(path, MICS_SAFETENSORS_PREFIX,
                         "does not begin as rank files do: not one, or not complete");
    if (memcmp(text, MICS_RANK_FILE_BEGIN, sizeof MICS_RANK_FILE_BEGIN - 1) != 0)
        return malformed(path, MICS_SAFETENSORS_PREFIX,
                         "is not of version 3, which this program reads");
    mics_rank_file_put_hash(digits, XXH3_64bits(text + HASHED_AT, bytes - HASHED_AT));
    if (memcmp(text + HASH_AT, digits, sizeof digits) != 0)
        return malformed(path, MICS_RANK_FILE_HASH_AT,
                         "the header differs from its checksum; the file is damaged");
    return MICS_OK;
}

// ---- metadata ----

// What a header is read from, and into.
typedef struct decoder {
    const mics_safetensors_file *tensors;
    mics_rank_file *file;
    char *next_name;
    uint64_t *next_hash;
} decoder;

static const char *metadata(const decoder *in, const char *key)
{
    return mics_json_string(mics_json_get(in->tensors->metadata, key));
}

void mics_rank_file_put_hash(char *digits_out, uint64_t hash)
{
    for (int i = MICS_RANK_FILE_HASH_DIGITS - 1; i >= 0; i--, hash >>= 4)
        digits_out[i] = "0123456789abcdef"[hash & 15];
}

static uint64_t hash_of(const char *digits)
{
    char text[MICS_RANK_FILE_HASH_DIGITS + 1] = "";
    memcpy(text, digits, MICS_RANK_FILE_HASH_DIGITS);
    return strtoull(text, NULL, 16);
}

static mics_status read_number(const decoder *in, const char *key, int64_t max, int64_t *number_out)
{
    char again[24];
    const char *text = metadata(in, key);
    const int64_t number = text != NULL ? strtoll(text, NULL, 10) : -1;
    snprintf(again, sizeof again, "%" PRId64, number);
    if (number < 0 || number > max || strcmp(text, again) != 0)
        return mics_fail(MICS_ERR_FORMAT, "%s: offset %d: \"%s\" is no number from 0 to %" PRId64,
                         in->tensors->path, MICS_SAFETENSORS_PREFIX, key, max);
    *number_out = number;
    return MICS_OK;
}

static mics_status read_id(const decoder *in)
{
    int64_t rank = 0, writers = 0;
    mics_rank_file_id *id = &in->file->id;
    MICS_TRY(read_number(in, "step", INT64_MAX, &id->step));
    MICS_TRY(read_number(in, "writers", INT32_MAX, &writers));
    MICS_TRY(read_number(in, "rank", writers - 1, &rank));
    id->rank = (int32_t)rank;
    id->writers = (int32_t)writers;
    in->file->header_hash = hash_of(metadata(in, "xxh3")); // as check_header has seen it
    return MICS_OK;
}

// ---- tensors ----

static mics_status bad_tensor(const decoder *in, const char *name, const char *what)
{
    return mics_fail(MICS_ERR_FORMAT, "%s: offset %d: tensor \"%.200s\": %s", in->tensors->path,
                     MICS_SAFETENSORS_PREFIX, name, what);
}

// "[BEGIN:END of ELEMS]", and nothing else that reads as these numbers.
static bool parse_range(const char *text, mics_rank_shard *shard)
{
    char again[MICS_RANK_FILE_RANGE_BYTES];
    char *at = NULL;
    shard->begin = strtoll(text + 1, &at, 10);
    shard->end = *at == ':' ? strtoll(at + 1, &at, 10) : -1;
    shard->unit_elems = strncmp(at, " of ", 4) == 0 ? strtoll(at + 4, &at, 10) : -1;
    mics_rank_file_range_text(shard->begin, shard->end, shard->unit_elems, again);
    return strcmp(text, again) == 0 && 0 <= shard->begin && shard->begin <= shard->end &&
           shard->end <= shard->unit_elems && shard->unit_elems >= 1 &&
           shard->unit_elems <= MICS_RANK_FILE_MAX_ELEMS;
}

// Cuts a copy of a tensor's name into unit and state. Returns: false when it is no such name.
static bool parse_name(char *name, mics_rank_shard *shard, mics_rank_state *state)
{
    char *range = strrchr(name, '[');
    char *dot = range != NULL ? memrchr(name, '.', (size_t)(range - name)) : NULL;
    if (dot == NULL || dot == name || dot + 1 == range || !parse_range(range, shard))
        return false;
    *dot = *range = '\0';
    shard->unit = name;
    state->name = dot + 1;
    return true;
}

static bool is_same_shard(const mics_rank_shard *a, const mics_rank_shard *b)
{
    return a->begin == b->begin && a->end == b->end && a->unit_elems == b->unit_elems &&
           strcmp(a->unit, b->unit) == 0;
}

// Takes the checksums of a tensor's chunks. Returns: false when there are not as many.
static bool take_hashes(decoder *in, const mics_tensor_info *info, mics_rank_state *state)
{
    const int64_t chunks = mics_rank_file_chunks(info->elems);
    const size_t bytes = (size_t)chunks * MICS_RANK_FILE_HASH_DIGITS;
    const char *digits = metadata(in, info->name);
    if (digits == NULL || strlen(digits) != bytes || strspn(digits, "0123456789abcdef") != bytes)
        return false;
    state->hashes = in->next_hash;
    for (int64_t i = 0; i < chunks; i++)
        *in->next_hash++ = hash_of(digits + i * MICS_RANK_FILE_HASH_DIGITS);
    return true;
}

// Takes a tensor as the next state of the last shard, or as the first of a new one.
static mics_status take_tensor(decoder *in, const mics_safetensors_slot *slot,
                               mics_rank_state *state)
{
    const mics_tensor_info *info = &slot->info;
    mics_rank_file *file = in->file;
    mics_rank_shard shard = {.states = state};
    char *name = in->next_name;
    in->next_name = stpcpy(name, info->name) + 1;
    if (!parse_name(name, &shard, state))
        return bad_tensor(in, info->name, "its name is not UNIT.STATE[BEGIN:END of ELEMS]");
    if (slot->dtype != mics_safetensors_dtype_of(MICS_DTYPE_FP32))
        return bad_tensor(in, info->name, "is not of dtype F32, which this program reads");
    if (info->dims != 1 || info->elems != shard.end - shard.begin)
        return bad_tensor(in, info->name, "has not the shape that its name says");
    if (!take_hashes(in, info, state))
        return bad_tensor(in, info->name, "the metadata has not 16 digits for each of its MiB");
    state->data_offset = slot->offset;
    if (file->count == 0 || !is_same_shard(&file->shards[file->count - 1], &shard))
        file->shards[file->count++] = shard;
    if (++file->shards[file->count - 1].state_count > MICS_MAX_SHARD_STATES)
        return bad_tensor(in, info->name, "its shard has more than 8 states");
    return MICS_OK;
}

static mics_status take_tensors(mics_memory *memory, decoder *in)
{
    const mics_safetensors_file *tensors = in->tensors;
    mics_rank_file *file = in->file;
    size_t bytes = 0, chunks = 0; // as the header has them: a file may be a large hole
    for (int32_t i = 0; i < tensors->count; i++) {
        bytes += strlen(tensors->slots[i].info.name) + 1;
        const char *digits = metadata(in, tensors->slots[i].info.name);
        chunks += digits != NULL ? strlen(digits) / MICS_RANK_FILE_HASH_DIGITS : 0;
    }
    MICS_TRY(MICS_NEW(memory, bytes, &file->names));
    MICS_TRY(MICS_NEW(memory, chunks, &file->hashes));
    MICS_TRY(MICS_NEW(memory, tensors->count, &file->shards));
    MICS_TRY(MICS_NEW(memory, tensors->count, &file->states));
    in->next_name = file->names;
    in->next_hash = file->hashes;
    for (int32_t i = 0; i < tensors->count; i++)
        MICS_TRY(take_tensor(in, &tensors->slots[i], &file->states[i]));
    return MICS_OK;
}

mics_status mics_rank_file_load(mics_memory *memory, const char *path, mics_rank_file *file_out)
{
    mics_safetensors_file tensors = {0};
    mics_rank_file file = {0};
    decoder in = {.tensors = &tensors, .file = &file};
    mics_status status = MICS_OK;
    MICS_TRY(mics_safetensors_file_open(memory, path, 0, check_header, &tensors));
    MICS_TRY_OUT(mics_strdup(memory, path, &file.path));
    file.file_bytes = tensors.bytes;
    MICS_TRY_OUT(read_id(&in));
    MICS_TRY_OUT(take_tensors(memory, &in));
    *file_out = file;
    file = (mics_rank_file){0};
out:
    mics_safetensors_file_fini(memory, &tensors);
    mics_rank_file_fini(memory, &file);
    return status;
}

void mics_rank_file_fini(mics_memory *memory, mics_rank_file *file)
{
    MICS_FREE_ALL(memory, file->states, file->shards, file->hashes, file->names, file->path);
    *file = (mics_rank_file){0};
}

// ---- what a file is asked ----

mics_status mics_rank_file_check_id(const mics_rank_file *file, mics_rank_file_id id)
{
    const mics_rank_file_id by = file->id;
    if (by.step == id.step && by.rank == id.rank && by.writers == id.writers)
        return MICS_OK;
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: offset %d: written by rank %d of %d at step %" PRId64
                     "; expected rank %d of %d at step %" PRId64,
                     file->path, MICS_SAFETENSORS_PREFIX, (int)by.rank, (int)by.writers, by.step,
                     (int)id.rank, (int)id.writers, id.step);
}

mics_status mics_rank_file_check_listed(const mics_rank_file *file, int64_t bytes, uint64_t hash)
{
    if (file->file_bytes != bytes)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: %" PRId64 " bytes, the manifest says %" PRId64
                         "; restore the file, or use an older checkpoint",
                         file->path, file->file_bytes, bytes);
    if (file->header_hash != hash)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: offset %d: the header's checksum is not the one in the manifest; the "
                         "file belongs to another save: restore it, or use an older checkpoint",
                         file->path, (int)MICS_RANK_FILE_HASH_AT);
    return MICS_OK;
}

const mics_rank_state *mics_rank_shard_find(const mics_rank_shard *shard, const char *name)
{
    for (int32_t i = 0; i < shard->state_count; i++) {
        if (strcmp(shard->states[i].name, name) == 0)
            return &shard->states[i];
    }
    return NULL;
}
