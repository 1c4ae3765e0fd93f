// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Opening and reading checkpoints. Rank files are opened for each read, so a checkpoint of many
// files costs no descriptors, however many ranks of one process have it open.
//
// An open checkpoint is constant: any number of threads may read it.
#include "base/file.h"
#include "io/checkpoint/catalog.h"
#include "io/checkpoint/magnitude.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/store.h"
#include "io/remote/download.h"
#include "mics/core/checkpoint.h"
#include "mics/log.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

struct mics_checkpoint {
    mics_memory *memory;
    mics_manifest manifest;
    mics_catalog catalog;
    char *tokenizer_path; // NULL for "bytes"
    mics_checkpoint_meta meta;
};

// The manifest and the rank files must tell the same.
static mics_status compare_files(const mics_checkpoint *checkpoint)
{
    const mics_manifest *manifest = &checkpoint->manifest;
    for (int32_t i = 0; i < manifest->file_count; i++) {
        const mics_manifest_file *listed = &manifest->files[i];
        MICS_TRY(mics_rank_file_check_listed(&checkpoint->catalog.files[i], listed->bytes,
                                             listed->hash));
    }
    return MICS_OK;
}

static mics_status compare_units(const mics_checkpoint *checkpoint)
{
    const mics_manifest *manifest = &checkpoint->manifest;
    const mics_catalog *catalog = &checkpoint->catalog;
    const char *name = mics_json_name(manifest->json);
    if (manifest->unit_count != catalog->unit_count)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: %d units, the rank files hold %d; use an older checkpoint", name,
                         (int)manifest->unit_count, (int)catalog->unit_count);
    for (int32_t i = 0; i < catalog->unit_count; i++) {
        const mics_manifest_unit *listed = &manifest->units[i];
        const mics_catalog_unit *found = &catalog->units[i];
        if (strcmp(listed->name, found->name) != 0 || listed->elems != found->elems)
            return mics_fail(MICS_ERR_FORMAT,
                             "%s: unit %d is %s of %lld elements; in the rank files it is %s of "
                             "%lld; use an older checkpoint",
                             name, (int)i, listed->name, (long long)listed->elems, found->name,
                             (long long)found->elems);
    }
    return MICS_OK;
}

// Of a bucket: others read it by a path, so it is kept among the user's caches, under its hash.
static mics_status keep_tokenizer(mics_checkpoint *checkpoint, const char *text, size_t bytes)
{
    mics_memory *memory = checkpoint->memory;
    char dir[REMOTE_PATH_BYTES], cache[REMOTE_PATH_BYTES];
    MICS_TRY(remote_cache_of("mics", cache));
    MICS_TRY(remote_path(dir, "%s/%016" PRIx64, cache, checkpoint->manifest.tokenizer.hash));
    MICS_TRY(mics_file_make_dirs(memory, dir, NULL));
    MICS_TRY(mics_file_replace(memory, dir, "tokenizer.json", text, bytes));
    mics_free(memory, checkpoint->tokenizer_path);
    checkpoint->tokenizer_path = NULL;
    MICS_TRY(mics_file_join(memory, dir, "tokenizer.json", &checkpoint->tokenizer_path));
    checkpoint->meta.tokenizer = checkpoint->tokenizer_path;
    return MICS_OK;
}

static mics_status check_tokenizer(mics_checkpoint *checkpoint, const char *folder)
{
    const mics_manifest_file *file = &checkpoint->manifest.tokenizer;
    checkpoint->meta = checkpoint->manifest.meta;
    if (file->name == NULL)
        return MICS_OK;
    mics_memory *memory = checkpoint->memory;
    MICS_TRY(mics_file_join(memory, folder, file->name, &checkpoint->tokenizer_path));
    checkpoint->meta.tokenizer = checkpoint->tokenizer_path;
    char *text = NULL;
    size_t bytes = 0;
    MICS_TRY(mics_store_read_whole(memory, checkpoint->tokenizer_path, MICS_FILE_MAX_WHOLE, &text,
                                   &bytes));
    bool same = (int64_t)bytes == file->bytes && XXH3_64bits(text, bytes) == file->hash;
    mics_status status = MICS_OK;
    if (!same)
        status = mics_fail(MICS_ERR_FORMAT,
                           "%s: %zu bytes that differ from the checksum in the "
                           "manifest; the file is damaged or was edited",
                           checkpoint->tokenizer_path, bytes);
    else if (mics_remote_is_bucket(folder))
        status = keep_tokenizer(checkpoint, text, bytes);
    mics_free(memory, text);
    return status;
}

static mics_status open_folder(mics_checkpoint *checkpoint, const char *path)
{
    mics_memory *memory = checkpoint->memory;
    mics_manifest *manifest = &checkpoint->manifest;
    char *manifest_path = NULL;
    MICS_TRY(mics_file_join(memory, path, MICS_MANIFEST_NAME, &manifest_path));
    mics_status status = mics_manifest_load(memory, manifest_path, manifest);
    mics_free(memory, manifest_path);
    MICS_TRY(status);
    MICS_TRY(mics_catalog_load(memory, path, manifest, manifest->meta.step, &checkpoint->catalog));
    MICS_TRY(compare_files(checkpoint));
    MICS_TRY(compare_units(checkpoint));
    return check_tokenizer(checkpoint, path);
}

mics_status mics_checkpoint_open(mics_memory *memory, const char *path,
                                 mics_checkpoint **checkpoint_out)
{
    mics_checkpoint *checkpoint = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &checkpoint));
    checkpoint->memory = memory;
    const mics_status status = open_folder(checkpoint, path);
    if (status == MICS_OK)
        *checkpoint_out = checkpoint;
    else
        mics_checkpoint_close(checkpoint);
    return status;
}

void mics_checkpoint_close(mics_checkpoint *checkpoint)
{
    if (checkpoint == NULL)
        return;
    mics_memory *memory = checkpoint->memory;
    mics_free(memory, checkpoint->tokenizer_path);
    mics_catalog_fini(memory, &checkpoint->catalog);
    mics_manifest_fini(memory, &checkpoint->manifest);
    mics_free(memory, checkpoint);
}

const mics_checkpoint_meta *mics_checkpoint_meta_get(const mics_checkpoint *checkpoint)
{
    return &checkpoint->meta;
}

// The shard that holds element `at` of a unit: the last that begins at or before it.
static const mics_catalog_shard *shard_at(const mics_checkpoint *checkpoint,
                                          const mics_catalog_unit *unit, int64_t at)
{
    const mics_catalog_shard *shards = &checkpoint->catalog.shards[unit->first];
    int64_t low = 0;
    int64_t high = unit->count;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (shards[middle].shard->begin <= at)
            low = middle;
        else
            high = middle;
    }
    return &shards[low];
}

static mics_status lacks_state(const char *name, const mics_rank_shard *shard, const char *state)
{
    char names[256] = "";
    size_t used = 0;
    for (int32_t i = 0; i < shard->state_count && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "",
                                 shard->states[i].name);
    return mics_fail(
        MICS_ERR_INVALID,
        "%s: unit %s has no state %s, only %s; resume with the optimizer that saved it", name,
        shard->unit, state, names);
}

static mics_status check_range(const char *name, const mics_catalog_unit *unit, int64_t unit_elems,
                               int64_t begin, int64_t end)
{
    if (unit->elems != unit_elems)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: unit %s has %lld elements in the checkpoint, %lld in the model", name,
                         unit->name, (long long)unit->elems, (long long)unit_elems);
    if (begin < 0 || begin > end || end > unit_elems)
        return mics_fail(MICS_ERR_INVALID, "%s: elements %lld to %lld of unit %s, which has %lld",
                         name, (long long)begin, (long long)end, unit->name, (long long)unit_elems);
    return MICS_OK;
}

mics_status mics_checkpoint_read(const mics_checkpoint *checkpoint, const char *unit_name,
                                 int64_t unit_elems, const char *state, int64_t begin, int64_t end,
                                 float *data_out)
{
    const char *name = mics_json_name(checkpoint->manifest.json);
    const mics_catalog_unit *unit = mics_catalog_find(&checkpoint->catalog, unit_name);
    if (unit == NULL)
        return mics_fail(MICS_ERR_INVALID, "%s: the checkpoint has no unit %s", name, unit_name);
    MICS_TRY(check_range(name, unit, unit_elems, begin, end));
    while (begin < end) {
        const mics_catalog_shard *at = shard_at(checkpoint, unit, begin);
        const mics_rank_state *found = mics_rank_shard_find(at->shard, state);
        int64_t stop = at->shard->end < end ? at->shard->end : end;
        if (found == NULL)
            return lacks_state(name, at->shard, state);
        MICS_TRY(mics_rank_file_read(checkpoint->memory, checkpoint->catalog.files[at->file].path,
                                     at->shard, found, begin, stop, data_out));
        data_out += stop - begin;
        begin = stop;
    }
    return MICS_OK;
}

// ---- numbers that cannot be ----

mics_status mics_checkpoint_check_numbers(const mics_checkpoint *checkpoint, const char *unit_name,
                                          const char *state, int64_t begin, int64_t end,
                                          const float *data)
{
    float largest = 0;
    const int64_t bad =
        mics_magnitude_find(data, end - begin, mics_magnitude_limit(state, 0), &largest);
    if (bad < 0)
        return MICS_OK;
    const mics_catalog_unit *unit = mics_catalog_find(&checkpoint->catalog, unit_name);
    const mics_catalog_shard *at = shard_at(checkpoint, unit, begin + bad);
    const mics_rank_state *of = mics_rank_shard_find(at->shard, state);
    return mics_fail(MICS_ERR_NUMERIC,
                     "%s: offset %lld: element %lld of unit %s, state %s, is %g, %s",
                     checkpoint->catalog.files[at->file].path,
                     (long long)(of->data_offset + (begin + bad - at->shard->begin) * 4),
                     (long long)(begin + bad), unit_name, state, (double)data[bad],
                     mics_magnitude_text(data[bad]));
}
