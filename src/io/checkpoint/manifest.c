// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// manifest.json, written and read. 64-bit values that are no counts (hashes, the seed) are strings:
// a JSON number loses their low bits in most readers.
#include "io/checkpoint/manifest.h"
#include "base/file.h"
#include "io/checkpoint/store.h"
#include "mics/log.h"
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define FORMAT_NAME "mics-checkpoint"

enum { FORMAT_VERSION = 3, MAX_LIST = 1 << 20 };
static const size_t MAX_TEXT = (size_t)256 << 20;

// The end of the text, which the checksum does not cover: prefix, 16 hexadecimal digits, suffix.
#define TAIL_PREFIX "  \"xxh3\": \""
#define TAIL_SUFFIX "\"\n}\n"
enum { HEX_DIGITS = 16, TAIL_BYTES = sizeof TAIL_PREFIX - 1 + HEX_DIGITS + sizeof TAIL_SUFFIX - 1 };

// ---- writing ----

static void write_file(mics_text *text, const mics_manifest_file *file)
{
    mics_text_printf(text, "{\"name\": ");
    mics_text_quoted(text, file->name);
    mics_text_printf(text, ", \"bytes\": %" PRId64 ", \"xxh3\": \"%016" PRIx64 "\"}", file->bytes,
                     file->hash);
}

static void write_lists(const mics_manifest *manifest, mics_text *text)
{
    mics_text_printf(text, "  \"units\": [");
    for (int32_t i = 0; i < manifest->unit_count; i++) {
        mics_text_printf(text, "%s\n    {\"name\": ", i == 0 ? "" : ",");
        mics_text_quoted(text, manifest->units[i].name);
        mics_text_printf(text, ", \"elems\": %" PRId64 "}", manifest->units[i].elems);
    }
    mics_text_printf(text, "\n  ],\n  \"files\": [");
    for (int32_t i = 0; i < manifest->file_count; i++) {
        mics_text_printf(text, "%s\n    ", i == 0 ? "" : ",");
        write_file(text, &manifest->files[i]);
    }
    mics_text_printf(text, "\n  ],\n");
}

static void write_scaler(mics_text *text, const mics_checkpoint_scaler *scaler)
{
    mics_text_printf(
        text,
        "  \"loss_scale\": {\"scale\": %.17g, \"steps\": %" PRId64 ", \"since_overflow\": %" PRId64
        ", \"skipped\": %" PRId64 ", \"hysteresis\": %" PRId64 "},\n",
        scaler->scale, scaler->steps, scaler->since_overflow, scaler->skipped, scaler->hysteresis);
}

// 17 digits bring a double back bit for bit.
static void write_losses(mics_text *text, const mics_checkpoint_losses *recent)
{
    mics_text_printf(text, "  \"recent_losses\": [");
    for (int32_t i = 0; i < recent->count; i++)
        mics_text_printf(text, "%s%.17g", i == 0 ? "" : ", ", recent->list[i]);
    mics_text_printf(text, "],\n");
}

static void write_outer(mics_text *text, const mics_checkpoint_outer *outer)
{
    mics_text_printf(text,
                     "  \"outer\": {\"islands\": %d, \"every\": %d, \"fragments\": %d, "
                     "\"overlap_steps\": %d, \"met\": %" PRId64 ", \"agreed\": %s,\n"
                     "    \"counted\": [",
                     (int)outer->islands, (int)outer->every, (int)outer->fragments,
                     (int)outer->overlap_steps, outer->met,
                     mics_checkpoint_is_agreed(outer) ? "true" : "false");
    for (int32_t i = 0; i < outer->windows * outer->islands; i++)
        mics_text_printf(text, "%s%" PRId64, i == 0 ? "" : ", ", outer->counted[i]);
    mics_text_printf(text, "]},\n");
}

// How the run was resolved: what a later default must not change.
static void write_resolved(const mics_checkpoint_meta *meta, mics_text *text)
{
    mics_text_printf(text, "  \"precision\": ");
    mics_text_quoted(text, meta->precision);
    mics_text_printf(text, ",\n  \"optimizer\": ");
    mics_text_quoted(text, meta->optimizer);
    mics_text_printf(text,
                     ",\n  \"sharding\": {\"params\": %d, \"grads\": %d, \"optimizer\": %d},\n"
                     "  \"layered_micro_steps\": %d,\n",
                     (int)meta->sharding.params, (int)meta->sharding.grads,
                     (int)meta->sharding.optimizer, (int)meta->layered_micro_steps);
}

void mics_manifest_write(const mics_manifest *manifest, mics_text *text)
{
    const mics_checkpoint_meta *meta = &manifest->meta;
    size_t begin = text->used;
    mics_text_printf(text,
                     "{\n  \"format\": \"" FORMAT_NAME "\",\n  \"version\": %d,\n"
                     "  \"program\": \"" MICS_VERSION "\",\n"
                     "  \"generation\": %" PRId64 ",\n  \"serial\": %" PRId64 ",\n"
                     "  \"step\": %" PRId64 ",\n  \"samples\": %" PRId64 ",\n"
                     "  \"sample\": %" PRId64 ",\n  \"tokens\": %" PRId64 ",\n"
                     "  \"seed\": \"%016" PRIx64 "\",\n  \"corpus_hash\": \"%016" PRIx64 "\",\n",
                     FORMAT_VERSION, manifest->generation, manifest->serial, meta->step,
                     meta->samples, meta->sample, meta->tokens, meta->seed, meta->corpus_hash);
    write_resolved(meta, text);
    mics_text_printf(text, "  \"tokenizer\": ");
    if (manifest->tokenizer.name != NULL)
        write_file(text, &manifest->tokenizer);
    else
        mics_text_quoted(text, meta->tokenizer);
    mics_text_printf(text, ",\n  \"config\": ");
    mics_text_quoted(text, meta->model_json);
    mics_text_printf(text, ",\n  \"run\": ");
    if (meta->run_json != NULL)
        mics_text_quoted(text, meta->run_json);
    else
        mics_text_printf(text, "null");
    mics_text_printf(text, ",\n");
    if (meta->model_files != NULL) {
        mics_text_printf(text, "  \"model_files\": ");
        mics_text_quoted(text, meta->model_files);
        mics_text_printf(text, ",\n");
    }
    if (meta->base_hash != 0)
        mics_text_printf(text, "  \"base_hash\": \"%016" PRIx64 "\",\n", meta->base_hash);
    if (meta->validation_hash != 0)
        mics_text_printf(text, "  \"validation_hash\": \"%016" PRIx64 "\",\n",
                         meta->validation_hash);
    if (meta->run_id != NULL && *meta->run_id != '\0')
        mics_text_printf(text, "  \"run_id\": \"%s\",\n", meta->run_id);
    if (meta->scaler.scale > 0)
        write_scaler(text, &meta->scaler);
    if (meta->recent.count > 0)
        write_losses(text, &meta->recent);
    if (meta->outer.islands > 1)
        write_outer(text, &meta->outer);
    write_lists(manifest, text);
    if (mics_text_status(text) != MICS_OK)
        return;
    uint64_t hash = XXH3_64bits(text->bytes + begin, text->used - begin);
    mics_text_printf(text, TAIL_PREFIX "%016" PRIx64 TAIL_SUFFIX, hash);
}

// ---- reading ----

// Refuses a text that is not, byte for byte, what was written.
static mics_status check_tail(const char *path, const char *text)
{
    size_t bytes = strlen(text);
    if (bytes < TAIL_BYTES ||
        memcmp(text + bytes - TAIL_BYTES, TAIL_PREFIX, sizeof TAIL_PREFIX - 1) != 0)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: offset %zu: does not end in its checksum; the file is damaged or not "
                         "a checkpoint's manifest",
                         path, bytes);
    char tail[TAIL_BYTES + 1];
    snprintf(tail, sizeof tail, TAIL_PREFIX "%016" PRIx64 TAIL_SUFFIX,
             (uint64_t)XXH3_64bits(text, bytes - TAIL_BYTES));
    if (memcmp(text + bytes - TAIL_BYTES, tail, TAIL_BYTES) != 0)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: offset %zu: the text differs from its checksum; the file is damaged "
                         "or was edited",
                         path, bytes - TAIL_BYTES);
    return MICS_OK;
}

// An object of the manifest, and what errors call it.
typedef struct place {
    const mics_json *json;
    const mics_json_value *object;
    const char *name;
} place;

static mics_status bad_member(const place *in, const char *key, const char *what)
{
    return mics_fail(MICS_ERR_FORMAT, "%s: %s: \"%s\" %s", mics_json_name(in->json), in->name, key,
                     what);
}

// A member with the type that it must have.
static mics_status member(const place *in, const char *key, mics_json_type type,
                          const mics_json_value **value_out)
{
    const mics_json_value *value = mics_json_get(in->object, key);
    if (value == NULL)
        return mics_fail(MICS_ERR_FORMAT, "%s: %s lacks \"%s\"", mics_json_name(in->json), in->name,
                         key);
    if (mics_json_type_of(value) != type)
        return mics_fail(MICS_ERR_FORMAT, "%s: %s: \"%s\" is %s, not %s", mics_json_name(in->json),
                         in->name, key, mics_json_type_text(mics_json_type_of(value)),
                         mics_json_type_text(type));
    *value_out = value;
    return MICS_OK;
}

static mics_status member_count(const place *in, const char *key, int64_t *count_out)
{
    const mics_json_value *value = NULL;
    MICS_TRY(member(in, key, MICS_JSON_INT, &value));
    *count_out = mics_json_int(value);
    return *count_out < 0 ? bad_member(in, key, "is negative") : MICS_OK;
}

static mics_status member_text(const place *in, const char *key, const char **text_out)
{
    const mics_json_value *value = NULL;
    MICS_TRY(member(in, key, MICS_JSON_STRING, &value));
    *text_out = mics_json_string(value);
    return MICS_OK;
}

// 16 lower-case hexadecimal digits.
static mics_status member_hex(const place *in, const char *key, uint64_t *value_out)
{
    const char *text = NULL;
    MICS_TRY(member_text(in, key, &text));
    if (strlen(text) != HEX_DIGITS || strspn(text, "0123456789abcdef") != HEX_DIGITS)
        return bad_member(in, key, "is not 16 hexadecimal digits");
    *value_out = strtoull(text, NULL, 16);
    return MICS_OK;
}

static mics_status read_file(const place *in, mics_manifest_file *file)
{
    MICS_TRY(member_text(in, "name", &file->name));
    if (!mics_file_plain_name(file->name))
        return mics_fail(MICS_ERR_FORMAT, "%s: %s: \"%s\" is not a plain file name",
                         mics_json_name(in->json), in->name, file->name);
    MICS_TRY(member_count(in, "bytes", &file->bytes));
    return member_hex(in, "xxh3", &file->hash);
}

static mics_status read_tokenizer(const place *root, mics_manifest *manifest)
{
    const mics_json_value *value = mics_json_get(root->object, "tokenizer");
    if (value != NULL && mics_json_type_of(value) == MICS_JSON_OBJECT) {
        MICS_TRY(read_file(&(place){root->json, value, "the tokenizer"}, &manifest->tokenizer));
        manifest->meta.tokenizer = manifest->tokenizer.name;
        return MICS_OK;
    }
    MICS_TRY(member_text(root, "tokenizer", &manifest->meta.tokenizer));
    if (strcmp(manifest->meta.tokenizer, "bytes") != 0)
        return mics_fail(MICS_ERR_FORMAT, "%s: the tokenizer is neither \"bytes\" nor a file",
                         mics_json_name(root->json));
    return MICS_OK;
}

static mics_status read_scaler(const place *root, mics_checkpoint_scaler *scaler)
{
    const place in = {root->json, mics_json_get(root->object, "loss_scale"), "the loss scale"};
    if (in.object == NULL)
        return MICS_OK;
    scaler->scale = mics_json_real(mics_json_get(in.object, "scale"));
    if (!(scaler->scale > 0) || scaler->scale > DBL_MAX)
        return mics_fail(MICS_ERR_FORMAT, "%s: %s is not a positive number",
                         mics_json_name(in.json), in.name);
    MICS_TRY(member_count(&in, "steps", &scaler->steps));
    MICS_TRY(member_count(&in, "since_overflow", &scaler->since_overflow));
    MICS_TRY(member_count(&in, "skipped", &scaler->skipped));
    return member_count(&in, "hysteresis", &scaler->hysteresis);
}

// Absent where there are none.
static mics_status read_losses(const place *root, mics_checkpoint_losses *recent)
{
    const mics_json_value *array = NULL;
    if (mics_json_get(root->object, "recent_losses") == NULL)
        return MICS_OK;
    MICS_TRY(member(root, "recent_losses", MICS_JSON_ARRAY, &array));
    if (mics_json_count(array) > MICS_CHECKPOINT_LOSSES)
        return bad_member(root, "recent_losses", "has more than 100 elements");
    for (int32_t i = 0; i < mics_json_count(array); i++) {
        const mics_json_value *loss = mics_json_element(array, i);
        if (!mics_json_is_number(loss) || !isfinite(mics_json_real(loss)))
            return bad_member(root, "recent_losses", "has an element that is no finite number");
        recent->list[i] = mics_json_real(loss);
    }
    recent->count = mics_json_count(array);
    return MICS_OK;
}

static mics_status member_degree(const place *in, const char *key, int32_t *degree_out)
{
    int64_t count = 0;
    MICS_TRY(member_count(in, key, &count));
    if (count < 1 || count > INT32_MAX)
        return mics_fail(MICS_ERR_FORMAT, "%s: %s: \"%s\" is %lld, not 1 to %d",
                         mics_json_name(in->json), in->name, key, (long long)count, INT32_MAX);
    *degree_out = (int32_t)count;
    return MICS_OK;
}

static mics_status read_counted(mics_memory *memory, const place *in, mics_manifest *manifest)
{
    mics_checkpoint_outer *outer = &manifest->meta.outer;
    const mics_json_value *array = NULL;
    MICS_TRY(member(in, "counted", MICS_JSON_ARRAY, &array));
    const int32_t count = mics_json_count(array);
    if (count == 0 || count % outer->islands != 0)
        return bad_member(in, "counted", "is not a row of numbers for each window");
    MICS_TRY(MICS_NEW(memory, count, &manifest->counted));
    for (int32_t i = 0; i < count; i++) {
        const mics_json_value *tokens = mics_json_element(array, i);
        manifest->counted[i] = mics_json_int(tokens);
        if (mics_json_type_of(tokens) != MICS_JSON_INT || manifest->counted[i] < 0)
            return bad_member(in, "counted", "has an element that is no number of tokens");
    }
    outer->counted = manifest->counted;
    outer->windows = count / outer->islands;
    return MICS_OK;
}

// Absent where there is one island.
static mics_status read_outer(mics_memory *memory, const place *root, mics_manifest *manifest)
{
    mics_checkpoint_outer *outer = &manifest->meta.outer;
    const mics_json_value *agreed = NULL;
    int64_t overlap = 0;
    place in = {root->json, NULL, "what islands agreed on"};
    if (mics_json_get(root->object, "outer") == NULL)
        return MICS_OK;
    MICS_TRY(member(root, "outer", MICS_JSON_OBJECT, &in.object));
    MICS_TRY(member_degree(&in, "islands", &outer->islands));
    MICS_TRY(member_degree(&in, "every", &outer->every));
    MICS_TRY(member_degree(&in, "fragments", &outer->fragments));
    MICS_TRY(member_count(&in, "overlap_steps", &overlap));
    MICS_TRY(member_count(&in, "met", &outer->met));
    MICS_TRY(member(&in, "agreed", MICS_JSON_BOOL, &agreed));
    if (outer->islands < 2)
        return bad_member(&in, "islands", "is below 2");
    if (overlap > outer->every)
        return bad_member(&in, "overlap_steps", "is above \"every\"");
    outer->overlap_steps = (int32_t)overlap;
    MICS_TRY(read_counted(memory, &in, manifest));
    return mics_json_bool(agreed) == mics_checkpoint_is_agreed(outer)
               ? MICS_OK
               : bad_member(&in, "agreed", "is not what \"counted\" says");
}

static mics_status read_resolved(const place *root, mics_checkpoint_meta *meta)
{
    place sharding = {root->json, NULL, "the sharding"};
    MICS_TRY(member_text(root, "program", &meta->program));
    MICS_TRY(member_text(root, "precision", &meta->precision));
    MICS_TRY(member_text(root, "optimizer", &meta->optimizer));
    MICS_TRY(member_degree(root, "layered_micro_steps", &meta->layered_micro_steps));
    MICS_TRY(member(root, "sharding", MICS_JSON_OBJECT, &sharding.object));
    MICS_TRY(member_degree(&sharding, "params", &meta->sharding.params));
    MICS_TRY(member_degree(&sharding, "grads", &meta->sharding.grads));
    return member_degree(&sharding, "optimizer", &meta->sharding.optimizer);
}

// Also before the checksum is looked at, which another version may keep elsewhere.
static mics_status check_version(const place *root)
{
    const char *name = mics_json_name(root->json), *format = NULL;
    int64_t version = 0;
    MICS_TRY(member_text(root, "format", &format));
    MICS_TRY(member_count(root, "version", &version));
    if (strcmp(format, FORMAT_NAME) == 0 && version == FORMAT_VERSION)
        return MICS_OK;
    if (strcmp(format, FORMAT_NAME) != 0 || version < FORMAT_VERSION)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: format \"%s\", version %lld; this program reads \"" FORMAT_NAME
                         "\", version %d",
                         name, format, (long long)version, FORMAT_VERSION);
    const char *program = mics_json_string(mics_json_get(root->object, "program"));
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: is of version %lld, and mics " MICS_VERSION
                     " reads version %d; use mics %s, which saved it, or a later one",
                     name, (long long)version, FORMAT_VERSION,
                     program != NULL ? program : "(of an unknown version)");
}

static mics_status read_meta(const place *root, mics_manifest *manifest)
{
    mics_checkpoint_meta *meta = &manifest->meta;
    MICS_TRY(read_resolved(root, meta));
    MICS_TRY(member_count(root, "generation", &manifest->generation));
    MICS_TRY(member_count(root, "serial", &manifest->serial));
    MICS_TRY(member_count(root, "step", &meta->step));
    MICS_TRY(member_count(root, "samples", &meta->samples));
    meta->sample = meta->samples;
    if (mics_json_get(root->object, "sample") != NULL) {
        MICS_TRY(member_count(root, "sample", &meta->sample));
        MICS_TRY(member_count(root, "tokens", &meta->tokens));
    }
    MICS_TRY(member_hex(root, "seed", &meta->seed));
    MICS_TRY(member_hex(root, "corpus_hash", &meta->corpus_hash));
    MICS_TRY(read_tokenizer(root, manifest));
    MICS_TRY(member_text(root, "config", &meta->model_json));
    const mics_json_value *run = mics_json_get(root->object, "run");
    if (run != NULL && mics_json_type_of(run) == MICS_JSON_STRING)
        meta->run_json = mics_json_string(run);
    else if (run == NULL || mics_json_type_of(run) != MICS_JSON_NULL)
        return mics_fail(MICS_ERR_FORMAT, "%s: \"run\" is neither a string nor null",
                         mics_json_name(root->json));
    if (mics_json_get(root->object, "base_hash") != NULL)
        MICS_TRY(member_hex(root, "base_hash", &meta->base_hash));
    if (mics_json_get(root->object, "validation_hash") != NULL)
        MICS_TRY(member_hex(root, "validation_hash", &meta->validation_hash));
    meta->model_files = mics_json_string(mics_json_get(root->object, "model_files"));
    meta->run_id = mics_json_string(mics_json_get(root->object, "run_id"));
    if (meta->run_id == NULL) // of somebody's own loop, or of before it was written
        meta->run_id = "";
    MICS_TRY(read_scaler(root, &meta->scaler));
    return read_losses(root, &meta->recent);
}

static mics_status find_array(const place *root, const char *key, const mics_json_value **array_out)
{
    MICS_TRY(member(root, key, MICS_JSON_ARRAY, array_out));
    if (mics_json_count(*array_out) > MAX_LIST)
        return mics_fail(MICS_ERR_FORMAT, "%s: more than %d %s", mics_json_name(root->json),
                         MAX_LIST, key);
    return MICS_OK;
}

static mics_status read_files(mics_memory *memory, const place *root, mics_manifest *manifest)
{
    const mics_json_value *array = NULL;
    MICS_TRY(find_array(root, "files", &array));
    MICS_TRY(MICS_NEW(memory, mics_json_count(array), &manifest->files));
    manifest->file_count = mics_json_count(array);
    for (int32_t i = 0; i < manifest->file_count; i++) {
        char name[32];
        snprintf(name, sizeof name, "file %d", (int)i);
        MICS_TRY(read_file(&(place){root->json, mics_json_element(array, i), name},
                           &manifest->files[i]));
    }
    if (manifest->file_count == 0)
        return mics_fail(MICS_ERR_FORMAT, "%s: no files", mics_json_name(root->json));
    return MICS_OK;
}

static mics_status read_units(mics_memory *memory, const place *root, mics_manifest *manifest)
{
    const mics_json_value *array = NULL;
    MICS_TRY(find_array(root, "units", &array));
    MICS_TRY(MICS_NEW(memory, mics_json_count(array), &manifest->units));
    manifest->unit_count = mics_json_count(array);
    for (int32_t i = 0; i < manifest->unit_count; i++) {
        mics_manifest_unit *unit = &manifest->units[i];
        char name[32];
        const place in = {root->json, mics_json_element(array, i), name};
        snprintf(name, sizeof name, "unit %d", (int)i);
        MICS_TRY(member_text(&in, "name", &unit->name));
        MICS_TRY(member_count(&in, "elems", &unit->elems));
        if (i > 0 && strcmp(manifest->units[i - 1].name, unit->name) >= 0)
            return mics_fail(MICS_ERR_FORMAT, "%s: %s: %s is not in order, or there twice",
                             mics_json_name(root->json), name, unit->name);
    }
    return MICS_OK;
}

mics_status mics_manifest_load(mics_memory *memory, const char *path, mics_manifest *manifest_out)
{
    mics_manifest manifest = {0};
    char *text = NULL;
    size_t bytes = 0;
    MICS_TRY(mics_store_read_whole(memory, path, MAX_TEXT, &text, &bytes));
    mics_status status = mics_json_parse(memory, path, text, bytes, &manifest.json);
    mics_free(memory, text);
    MICS_TRY(status);
    const place root = {manifest.json, mics_json_root(manifest.json), "the manifest"};
    MICS_TRY_OUT(check_version(&root));
    MICS_TRY_OUT(check_tail(path, mics_json_text(manifest.json)));
    MICS_TRY_OUT(read_meta(&root, &manifest));
    MICS_TRY_OUT(read_outer(memory, &root, &manifest));
    MICS_TRY_OUT(read_files(memory, &root, &manifest));
    MICS_TRY_OUT(read_units(memory, &root, &manifest));
    *manifest_out = manifest;
    return MICS_OK;
out:
    mics_manifest_fini(memory, &manifest);
    return status;
}

mics_status mics_manifest_try_load(mics_memory *memory, const char *path,
                                   mics_manifest *manifest_out)
{
    bool before = mics_log_demote(true);
    mics_status status = mics_manifest_load(memory, path, manifest_out);
    mics_log_demote(before);
    if (status == MICS_OK || status == MICS_ERR_FORMAT)
        return status;
    return mics_fail(status, "%s: cannot be read: %s", path, mics_status_text(status));
}

void mics_manifest_fini(mics_memory *memory, mics_manifest *manifest)
{
    mics_free(memory, manifest->files);
    mics_free(memory, manifest->units);
    mics_free(memory, manifest->counted);
    mics_json_close(manifest->json);
    *manifest = (mics_manifest){0};
}
