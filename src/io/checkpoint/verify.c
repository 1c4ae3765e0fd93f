// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Every byte of a checkpoint, read once: manifest, texts, headers and data.
//
// What the loaders of this folder refuse they say in an error line, which is kept back here and
// handed to the listener; then the next file is looked at.
#include "base/file.h"
#include "io/checkpoint/folder.h"
#include "io/checkpoint/magnitude.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/rank_file.h"
#include "io/checkpoint/store.h"
#include "mics/core/checkpoint.h"
#include "mics/log.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { LINE_BYTES = 2048 };

typedef struct verifier {
    mics_memory *memory;
    const char *folder;
    const mics_verify_listener *listener;
    mics_manifest manifest;
    mics_checkpoint_verified found;
    void *chunk;    // MICS_RANK_FILE_CHUNK bytes
    float *before;  // by unit of the manifest: its largest parameter in an older checkpoint, or 0
    float *largest; // in this one
} verifier;

static void tell(verifier *v, const char *line)
{
    v->found.problems++;
    v->listener->problem(v->listener->ctx, line);
}

// A loader's failure is a problem of the checkpoint, unless it is this process' own.
static mics_status heard(verifier *v, mics_status status)
{
    char line[LINE_BYTES];
    if (status == MICS_OK || status == MICS_ERR_MEMORY)
        return status;
    (void)mics_log_take(line, sizeof line);
    tell(v, line);
    return MICS_OK;
}

static void problem(verifier *v, const char *format, ...) MICS_PRINTF(2, 3);
static void problem(verifier *v, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    tell(v, line);
}

// ---- texts ----

// Reads dir/name and compares it with what it must be: by a checksum, or by the text itself.
static mics_status verify_text(verifier *v, const char *name, const char *text, int64_t bytes,
                               uint64_t hash)
{
    char *path = NULL, *read = NULL;
    size_t got = 0;
    MICS_TRY(mics_file_join(v->memory, v->folder, name, &path));
    mics_status status = mics_store_read_whole(v->memory, path, MICS_FILE_MAX_WHOLE, &read, &got);
    if (status == MICS_OK) {
        v->found.bytes += (int64_t)got;
        v->found.files++;
        const bool same = (int64_t)got == bytes && (text != NULL ? memcmp(text, read, got) == 0
                                                                 : XXH3_64bits(read, got) == hash);
        if (!same)
            problem(v, "%s: %zu bytes that are not the %lld that the manifest says", path, got,
                    (long long)bytes);
    }
    mics_free(v->memory, read);
    mics_free(v->memory, path);
    return heard(v, status);
}

static mics_status verify_texts(verifier *v)
{
    const mics_manifest *manifest = &v->manifest;
    const char *config = manifest->meta.model_json;
    if (manifest->tokenizer.name != NULL)
        MICS_TRY(verify_text(v, manifest->tokenizer.name, NULL, manifest->tokenizer.bytes,
                             manifest->tokenizer.hash));
    return verify_text(v, "config.json", config, (int64_t)strlen(config), 0);
}

// ---- data ----

// Place of a shard's unit in the manifest; its files may have others.
static int32_t unit_of(const verifier *v, const char *name)
{
    int32_t unit = 0;
    while (unit < v->manifest.unit_count && strcmp(v->manifest.units[unit].name, name) != 0)
        unit++;
    return unit;
}

// Chunks in a row that differ from their checksums are one problem.
typedef struct damage {
    int64_t chunks, first, end; // offsets in the file
} damage;

static void end_damage(verifier *v, const char *path, const mics_rank_shard *shard,
                       const mics_rank_state *state, damage *at)
{
    if (at->chunks > 0)
        problem(v,
                "%s: offset %" PRId64 ": %" PRId64 " bytes (%" PRId64 " checksum%s) of unit %s, "
                "state %s, differ from their checksum",
                path, at->first, at->end - at->first, at->chunks, at->chunks == 1 ? "" : "s",
                shard->unit, state->name);
    *at = (damage){0};
}

// One file that is being read.
typedef struct walk {
    const char *path;
    mics_store_file file;
} walk;

static void report_progress(const verifier *v, const walk *in, int64_t done)
{
    if (v->listener->progress != NULL)
        v->listener->progress(v->listener->ctx, in->path, done, in->file.bytes);
}

static mics_status verify_state(verifier *v, walk *in, const mics_rank_shard *shard,
                                const mics_rank_state *state)
{
    const int64_t elems = shard->end - shard->begin, step = MICS_RANK_FILE_CHUNK / 4;
    int64_t foreign = 0, first_foreign = 0;
    float foreign_value = 0;
    damage bad = {0};
    const bool is_param = strcmp(state->name, MICS_STATE_PARAM) == 0;
    float *largest = &v->largest[unit_of(v, shard->unit)], other = 0;
    const float limit = mics_magnitude_limit(state->name, v->before[unit_of(v, shard->unit)]);
    for (int64_t at = 0; at < elems; at += step) {
        const int64_t count = elems - at < step ? elems - at : step;
        const int64_t offset = state->data_offset + 4 * at;
        MICS_TRY(mics_store_read(&in->file, v->chunk, (size_t)count * 4, offset));
        if (XXH3_64bits(v->chunk, (size_t)count * 4) != state->hashes[at / step]) {
            bad.first = bad.chunks == 0 ? offset : bad.first;
            bad.end = offset + 4 * count;
            bad.chunks++;
            continue; // whether damaged numbers are finite does not matter
        }
        end_damage(v, in->path, shard, state, &bad);
        const int64_t found =
            mics_magnitude_find(v->chunk, count, limit, is_param ? largest : &other);
        if (found >= 0 && foreign++ == 0) {
            first_foreign = at + found;
            foreign_value = ((const float *)v->chunk)[found];
        }
        report_progress(v, in, offset + 4 * count);
    }
    end_damage(v, in->path, shard, state, &bad);
    if (foreign > 0)
        problem(v, "%s: offset %" PRId64 ": element %" PRId64 " of unit %s, state %s, is %g, %s",
                in->path, state->data_offset + 4 * first_foreign, shard->begin + first_foreign,
                shard->unit, state->name, (double)foreign_value,
                mics_magnitude_text(foreign_value));
    return MICS_OK;
}

static mics_status verify_data(verifier *v, const mics_rank_file *file)
{
    walk in = {.path = file->path};
    mics_status status = MICS_OK;
    const int64_t begin = file->count > 0 ? file->states[0].data_offset : 0;
    MICS_TRY(mics_store_open(v->memory, file->path, begin, file->file_bytes, &in.file));
    for (int32_t i = 0; i < file->count; i++) {
        const mics_rank_shard *shard = &file->shards[i];
        for (int32_t s = 0; s < shard->state_count; s++)
            MICS_TRY_OUT(verify_state(v, &in, shard, &shard->states[s]));
    }
out:
    mics_store_close(&in.file);
    return status;
}

// ---- rank files ----

static mics_status verify_file(verifier *v, int32_t index)
{
    const mics_manifest_file *listed = &v->manifest.files[index];
    const mics_rank_file_id id = {v->manifest.meta.step, index, v->manifest.file_count};
    char *path = NULL;
    mics_rank_file file = {0};
    MICS_TRY(mics_file_join(v->memory, v->folder, listed->name, &path));
    mics_status status = mics_rank_file_load(v->memory, path, &file);
    if (status == MICS_OK) {
        v->found.files++;
        v->found.bytes += file.file_bytes;
        status = mics_rank_file_check_id(&file, id);
    }
    if (status == MICS_OK)
        status = mics_rank_file_check_listed(&file, listed->bytes, listed->hash);
    if (status == MICS_OK)
        status = verify_data(v, &file);
    mics_rank_file_fini(v->memory, &file);
    mics_free(v->memory, path);
    return heard(v, status);
}

// Units, and that the shards of all files tile them.
static mics_status verify_whole(verifier *v)
{
    mics_checkpoint *checkpoint = NULL;
    const mics_status status = mics_checkpoint_open(v->memory, v->folder, &checkpoint);
    mics_checkpoint_close(checkpoint);
    return heard(v, status);
}

static mics_status verify_manifest(verifier *v, bool *good_out)
{
    char *path = NULL;
    MICS_TRY(mics_file_join(v->memory, v->folder, MICS_MANIFEST_NAME, &path));
    const mics_status status = mics_manifest_load(v->memory, path, &v->manifest);
    *good_out = status == MICS_OK;
    mics_free(v->memory, path);
    MICS_TRY(heard(v, status));
    if (!*good_out)
        return MICS_OK;
    v->found.files++;
    v->found.bytes += (int64_t)strlen(mics_json_text(v->manifest.json));
    v->found.step = v->manifest.meta.step;
    const char *slash = strrchr(v->folder, '/'), *name = slash != NULL ? slash + 1 : v->folder;
    if (strncmp(name, "step-", 5) == 0 &&
        strcmp(name, mics_ckpt_step_name(v->found.step).text) != 0)
        problem(v, "%s: its manifest is of step %lld", v->folder, (long long)v->found.step);
    return MICS_OK;
}

// Sizes of other units than an older checkpoint had say nothing.
static mics_status open_largest(verifier *v, const mics_checkpoint_largest *largest)
{
    const int32_t units = v->manifest.unit_count;
    MICS_TRY(MICS_NEW(v->memory, units + 1, &v->before));
    MICS_TRY(MICS_NEW(v->memory, units + 1, &v->largest));
    if (largest != NULL && largest->units == units)
        memcpy(v->before, largest->of, (size_t)units * sizeof *v->before);
    return MICS_OK;
}

static void keep_largest(const verifier *v, mics_checkpoint_largest *largest)
{
    const int32_t units = v->manifest.unit_count;
    if (largest == NULL || v->found.problems > 0 || units > MICS_MAX_LARGEST)
        return;
    largest->units = units;
    memcpy(largest->of, v->largest, (size_t)units * sizeof *v->largest);
}

static mics_status verify_all(verifier *v, mics_checkpoint_largest *largest)
{
    bool good = false;
    MICS_TRY(verify_manifest(v, &good));
    if (!good)
        return MICS_OK;
    MICS_TRY(mics_alloc(v->memory, MICS_MEM_HOST, MICS_RANK_FILE_CHUNK, &v->chunk));
    MICS_TRY(open_largest(v, largest));
    MICS_TRY(verify_texts(v));
    for (int32_t i = 0; i < v->manifest.file_count; i++)
        MICS_TRY(verify_file(v, i));
    if (v->found.problems == 0)
        MICS_TRY(verify_whole(v));
    keep_largest(v, largest);
    return MICS_OK;
}

mics_status mics_checkpoint_verify(mics_memory *memory, const char *path,
                                   const mics_verify_listener *listener,
                                   mics_checkpoint_largest *largest,
                                   mics_checkpoint_verified *found_out)
{
    verifier v = {.memory = memory, .folder = path, .listener = listener, .found = {.step = -1}};
    mics_log_hold(false);
    const mics_status status = verify_all(&v, largest);
    mics_log_release(status != MICS_OK, -1);
    mics_manifest_fini(memory, &v.manifest);
    mics_free(memory, v.chunk);
    mics_free(memory, v.before);
    mics_free(memory, v.largest);
    if (status == MICS_OK)
        *found_out = v.found;
    return status;
}
