// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// manifest.json, written and read. 64-bit values that are no counts (hashes, the seed) are strings:
// a JSON number loses their low bits in most readers.
#include "io/checkpoint/manifest.h"
#include "base/file.h"
#include "mics/log.h"
#include <float.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#define FORMAT_NAME "mics-checkpoint"

enum { FORMAT_VERSION = 2, LIST_MAX = 1 << 20 };
static const size_t TEXT_MAX = (size_t)256 << 20;

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
                     "  \"seed\": \"%016" PRIx64 "\",\n  \"corpus_hash\": \"%016" PRIx64 "\",\n",
                     FORMAT_VERSION, manifest->generation, manifest->serial, meta->step,
                     meta->samples, meta->seed, meta->corpus_hash);
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
    if (meta->scaler.scale > 0)
        write_scaler(text, &meta->scaler);
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

// A member of `object` with the type that it must have. `where` names the object in errors.
static mics_status member(const mics_json *json, const mics_json_value *object, const char *where,
                          const char *key, mics_json_type type, const mics_json_value **value_out)
{
    const mics_json_value *value = mics_json_get(object, key);
    if (value == NULL)
        return mics_fail(MICS_ERR_FORMAT, "%s: %s lacks \"%s\"", mics_json_name(json), where, key);
    if (mics_json_type_of(value) != type)
        return mics_fail(MICS_ERR_FORMAT, "%s: %s: \"%s\" is %s, not %s", mics_json_name(json),
                         where, key, mics_json_type_text(mics_json_type_of(value)),
                         mics_json_type_text(type));
    *value_out = value;
    return MICS_OK;
}

static mics_status member_count(const mics_json *json, const mics_json_value *object,
                                const char *where, const char *key, int64_t *count_out)
{
    const mics_json_value *value = NULL;
    MICS_TRY(member(json, object, where, key, MICS_JSON_INT, &value));
    if (mics_json_int(value) < 0)
        return mics_fail(MICS_ERR_FORMAT, "%s: %s: \"%s\" is negative", mics_json_name(json), where,
                         key);
    *count_out = mics_json_int(value);
    return MICS_OK;
}

static mics_status member_text(const mics_json *json, const mics_json_value *object,
                               const char *where, const char *key, const char **text_out)
{
    const mics_json_value *value = NULL;
    MICS_TRY(member(json, object, where, key, MICS_JSON_STRING, &value));
    *text_out = mics_json_string(value);
    return MICS_OK;
}

// 16 lower-case hexadecimal digits.
static mics_status member_hex(const mics_json *json, const mics_json_value *object,
                              const char *where, const char *key, uint64_t *value_out)
{
    const char *text = NULL;
    MICS_TRY(member_text(json, object, where, key, &text));
    if (strlen(text) != HEX_DIGITS || strspn(text, "0123456789abcdef") != HEX_DIGITS)
        return mics_fail(MICS_ERR_FORMAT, "%s: %s: \"%s\" is not 16 hexadecimal digits",
                         mics_json_name(json), where, key);
    uint64_t value = 0;
    for (int i = 0; i < HEX_DIGITS; i++)
        value = value << 4 | (uint64_t)(text[i] <= '9' ? text[i] - '0' : text[i] - 'a' + 10);
    *value_out = value;
    return MICS_OK;
}

static mics_status read_file(const mics_json *json, const mics_json_value *object,
                             const char *where, mics_manifest_file *file)
{
    MICS_TRY(member_text(json, object, where, "name", &file->name));
    if (!mics_file_plain_name(file->name))
        return mics_fail(MICS_ERR_FORMAT, "%s: %s: \"%s\" is not a plain file name",
                         mics_json_name(json), where, file->name);
    MICS_TRY(member_count(json, object, where, "bytes", &file->bytes));
    return member_hex(json, object, where, "xxh3", &file->hash);
}

static mics_status read_tokenizer(const mics_json *json, mics_manifest *manifest)
{
    const mics_json_value *value = mics_json_get(mics_json_root(json), "tokenizer");
    if (value != NULL && mics_json_type_of(value) == MICS_JSON_OBJECT) {
        MICS_TRY(read_file(json, value, "the tokenizer", &manifest->tokenizer));
        manifest->meta.tokenizer = manifest->tokenizer.name;
        return MICS_OK;
    }
    MICS_TRY(member_text(json, mics_json_root(json), "the manifest", "tokenizer",
                         &manifest->meta.tokenizer));
    if (strcmp(manifest->meta.tokenizer, "bytes") != 0)
        return mics_fail(MICS_ERR_FORMAT, "%s: the tokenizer is neither \"bytes\" nor a file",
                         mics_json_name(json));
    return MICS_OK;
}

static mics_status read_scaler(const mics_json *json, mics_checkpoint_scaler *scaler)
{
    const mics_json_value *object = mics_json_get(mics_json_root(json), "loss_scale");
    const char *where = "the loss scale";
    if (object == NULL)
        return MICS_OK;
    scaler->scale = mics_json_real(mics_json_get(object, "scale"));
    if (!(scaler->scale > 0) || scaler->scale > DBL_MAX)
        return mics_fail(MICS_ERR_FORMAT, "%s: %s is not a positive number", mics_json_name(json),
                         where);
    MICS_TRY(member_count(json, object, where, "steps", &scaler->steps));
    MICS_TRY(member_count(json, object, where, "since_overflow", &scaler->since_overflow));
    MICS_TRY(member_count(json, object, where, "skipped", &scaler->skipped));
    return member_count(json, object, where, "hysteresis", &scaler->hysteresis);
}

static mics_status member_degree(const mics_json *json, const mics_json_value *object,
                                 const char *where, const char *key, int32_t *degree_out)
{
    int64_t count = 0;
    MICS_TRY(member_count(json, object, where, key, &count));
    if (count < 1 || count > INT32_MAX)
        return mics_fail(MICS_ERR_FORMAT, "%s: %s: \"%s\" is %lld, not 1 to %d",
                         mics_json_name(json), where, key, (long long)count, INT32_MAX);
    *degree_out = (int32_t)count;
    return MICS_OK;
}

// Version 1 does not say any of this.
static mics_status read_resolved(const mics_json *json, mics_checkpoint_meta *meta)
{
    const mics_json_value *root = mics_json_root(json), *sharding = NULL;
    const char *where = "the manifest";
    mics_checkpoint_sharding *degrees = &meta->sharding;
    MICS_TRY(member_text(json, root, where, "program", &meta->program));
    MICS_TRY(member_text(json, root, where, "precision", &meta->precision));
    MICS_TRY(member_text(json, root, where, "optimizer", &meta->optimizer));
    MICS_TRY(member_degree(json, root, where, "layered_micro_steps", &meta->layered_micro_steps));
    MICS_TRY(member(json, root, where, "sharding", MICS_JSON_OBJECT, &sharding));
    MICS_TRY(member_degree(json, sharding, "the sharding", "params", &degrees->params));
    MICS_TRY(member_degree(json, sharding, "the sharding", "grads", &degrees->grads));
    return member_degree(json, sharding, "the sharding", "optimizer", &degrees->optimizer);
}

// Also before the checksum is looked at, which a newer version may keep elsewhere.
static mics_status read_version(const mics_json *json, int64_t *version_out)
{
    const mics_json_value *root = mics_json_root(json);
    const char *where = "the manifest", *format = NULL;
    MICS_TRY(member_text(json, root, where, "format", &format));
    MICS_TRY(member_count(json, root, where, "version", version_out));
    if (strcmp(format, FORMAT_NAME) != 0 || *version_out < 1)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: format \"%s\", version %lld; this program reads \"" FORMAT_NAME
                         "\", versions 1 to %d",
                         mics_json_name(json), format, (long long)*version_out, FORMAT_VERSION);
    if (*version_out <= FORMAT_VERSION)
        return MICS_OK;
    const char *program = mics_json_string(mics_json_get(root, "program"));
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: is of version %lld, and mics " MICS_VERSION
                     " reads versions 1 to %d; use mics %s, which saved it, or a later one",
                     mics_json_name(json), (long long)*version_out, FORMAT_VERSION,
                     program != NULL ? program : "(of an unknown version)");
}

static mics_status read_meta(const mics_json *json, int64_t version, mics_manifest *manifest)
{
    const mics_json_value *root = mics_json_root(json);
    const char *where = "the manifest";
    mics_checkpoint_meta *meta = &manifest->meta;
    if (version > 1)
        MICS_TRY(read_resolved(json, meta));
    MICS_TRY(member_count(json, root, where, "generation", &manifest->generation));
    MICS_TRY(member_count(json, root, where, "serial", &manifest->serial));
    MICS_TRY(member_count(json, root, where, "step", &meta->step));
    MICS_TRY(member_count(json, root, where, "samples", &meta->samples));
    MICS_TRY(member_hex(json, root, where, "seed", &meta->seed));
    MICS_TRY(member_hex(json, root, where, "corpus_hash", &meta->corpus_hash));
    MICS_TRY(read_tokenizer(json, manifest));
    MICS_TRY(member_text(json, root, where, "config", &meta->model_json));
    const mics_json_value *run = mics_json_get(root, "run");
    if (run != NULL && mics_json_type_of(run) == MICS_JSON_STRING)
        meta->run_json = mics_json_string(run);
    else if (run == NULL || mics_json_type_of(run) != MICS_JSON_NULL)
        return mics_fail(MICS_ERR_FORMAT, "%s: \"run\" is neither a string nor null",
                         mics_json_name(json));
    return read_scaler(json, &meta->scaler);
}

static mics_status find_array(const mics_json *json, const char *key,
                              const mics_json_value **array_out)
{
    MICS_TRY(member(json, mics_json_root(json), "the manifest", key, MICS_JSON_ARRAY, array_out));
    if (mics_json_count(*array_out) > LIST_MAX)
        return mics_fail(MICS_ERR_FORMAT, "%s: more than %d %s", mics_json_name(json), LIST_MAX,
                         key);
    return MICS_OK;
}

static mics_status read_files(mics_memory *memory, mics_manifest *manifest)
{
    const mics_json_value *array = NULL;
    MICS_TRY(find_array(manifest->json, "files", &array));
    MICS_TRY(MICS_NEW(memory, mics_json_count(array), &manifest->files));
    manifest->file_count = mics_json_count(array);
    for (int32_t i = 0; i < manifest->file_count; i++) {
        char where[32];
        snprintf(where, sizeof where, "file %d", (int)i);
        MICS_TRY(
            read_file(manifest->json, mics_json_element(array, i), where, &manifest->files[i]));
    }
    if (manifest->file_count == 0)
        return mics_fail(MICS_ERR_FORMAT, "%s: no files", mics_json_name(manifest->json));
    return MICS_OK;
}

static mics_status read_units(mics_memory *memory, mics_manifest *manifest)
{
    const mics_json_value *array = NULL;
    MICS_TRY(find_array(manifest->json, "units", &array));
    MICS_TRY(MICS_NEW(memory, mics_json_count(array), &manifest->units));
    manifest->unit_count = mics_json_count(array);
    for (int32_t i = 0; i < manifest->unit_count; i++) {
        mics_manifest_unit *unit = &manifest->units[i];
        const mics_json_value *object = mics_json_element(array, i);
        char where[32];
        snprintf(where, sizeof where, "unit %d", (int)i);
        MICS_TRY(member_text(manifest->json, object, where, "name", &unit->name));
        MICS_TRY(member_count(manifest->json, object, where, "elems", &unit->elems));
        if (i > 0 && strcmp(manifest->units[i - 1].name, unit->name) >= 0)
            return mics_fail(MICS_ERR_FORMAT, "%s: unit %d: %s is not in order, or there twice",
                             mics_json_name(manifest->json), (int)i, unit->name);
    }
    return MICS_OK;
}

mics_status mics_manifest_load(mics_memory *memory, const char *path, mics_manifest *manifest_out)
{
    mics_manifest manifest = {0};
    int64_t version = 0;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_json_load(memory, path, TEXT_MAX, &manifest.json));
    MICS_TRY_OUT(read_version(manifest.json, &version));
    MICS_TRY_OUT(check_tail(path, mics_json_text(manifest.json)));
    MICS_TRY_OUT(read_meta(manifest.json, version, &manifest));
    MICS_TRY_OUT(read_files(memory, &manifest));
    MICS_TRY_OUT(read_units(memory, &manifest));
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
    mics_json_close(manifest->json);
    *manifest = (mics_manifest){0};
}

mics_status mics_manifest_paths(mics_memory *memory, const char *folder,
                                const mics_manifest *manifest, char ***paths_out)
{
    char **paths = NULL;
    MICS_TRY(MICS_NEW(memory, manifest->file_count, &paths));
    for (int32_t i = 0; i < manifest->file_count; i++) {
        mics_status status = mics_file_join(memory, folder, manifest->files[i].name, &paths[i]);
        if (status != MICS_OK) {
            mics_manifest_paths_free(memory, paths, manifest->file_count);
            return status;
        }
    }
    *paths_out = paths;
    return MICS_OK;
}

void mics_manifest_paths_free(mics_memory *memory, char **paths, int32_t count)
{
    for (int32_t i = 0; paths != NULL && i < count; i++)
        mics_free(memory, paths[i]);
    mics_free(memory, paths);
}
