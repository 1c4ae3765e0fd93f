// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Headers of rank files, read and checked. The format stands in rank_file.h.
//
// Version 1 differs in its records alone: a shard's holds the offsets of its three states, which
// have no names. What is decoded is the same for both.
#include "base/file.h"
#include "base/size.h"
#include "io/checkpoint/bytes.h"
#include "io/checkpoint/rank_file.h"
#include "mics/log.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { V1_SHARD_BYTES = 56, V1_STATES = 3, STEM_BYTES = sizeof MICS_RANK_FILE_MAGIC - 1 };

static const char *const v1_state_names[V1_STATES] = {MICS_STATE_PARAM, "exp_avg", "exp_avg_sq"};

static mics_status malformed(const char *path, int64_t offset, const char *what)
{
    return mics_fail(MICS_ERR_FORMAT, "%s: offset %lld: %s", path, (long long)offset, what);
}

// What decoding a header walks through.
typedef struct decoder {
    const char *path;
    int version;
    int64_t size; // of the file
    int64_t header_bytes;
    int64_t total_states;                 // of all shards, as the header says
    int64_t state_count;                  // decoded so far
    const unsigned char *shards, *states; // records; a file of version 1 has none of states
    const unsigned char *names;
    uint64_t names_bytes;
    const unsigned char *next_hash;
    const unsigned char *hashes_end;
    int64_t next_data;
} decoder;

// Place in the file of what lies in the header.
static int64_t offset_of(const mics_rank_file *file, const unsigned char *at)
{
    return MICS_RANK_FILE_PREFIX + (at - file->header);
}

static mics_status damaged(const decoder *in, const mics_rank_file *file, const unsigned char *at,
                           const char *what)
{
    return malformed(in->path, offset_of(file, at), what);
}

// ---- prefix ----

static mics_status read_version(const char *path, const unsigned char *magic, int *version_out)
{
    if (memcmp(magic, MICS_RANK_FILE_MAGIC, STEM_BYTES) != 0)
        return malformed(path, 0,
                         "does not begin with " MICS_RANK_FILE_MAGIC
                         ": not a rank file, or not complete");
    if (magic[STEM_BYTES] != '1' && magic[STEM_BYTES] != '2')
        return malformed(path, 0, "is not of version 1 or 2, which this program reads");
    *version_out = magic[STEM_BYTES] - '0';
    return MICS_OK;
}

// Reads prefix and header and checks the header's own hash.
static mics_status read_header(mics_memory *memory, int fd, decoder *in, mics_rank_file *file)
{
    unsigned char prefix[MICS_RANK_FILE_PREFIX];
    MICS_TRY(mics_file_read_at(fd, in->path, prefix, sizeof prefix, 0));
    MICS_TRY(read_version(in->path, prefix, &in->version));
    uint64_t bytes = get_u64(prefix + 8);
    if (bytes < MICS_RANK_FILE_FIXED || bytes > (uint64_t)(in->size - MICS_RANK_FILE_PREFIX) ||
        bytes > (uint64_t)MICS_RANK_FILE_MAX_HEADER)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: offset 8: a header of %llu bytes in a file of %lld bytes; the file "
                         "is damaged",
                         in->path, (unsigned long long)bytes, (long long)in->size);
    MICS_TRY(MICS_NEW(memory, bytes, &file->header));
    MICS_TRY(mics_file_read_at(fd, in->path, file->header, (size_t)bytes, MICS_RANK_FILE_PREFIX));
    file->header_hash = get_u64(prefix + 16);
    if (XXH3_64bits(file->header, (size_t)bytes) != file->header_hash)
        return malformed(in->path, 16, "the header differs from its checksum; the file is damaged");
    in->header_bytes = file->header_bytes = (int64_t)bytes;
    return MICS_OK;
}

// ---- the fixed part ----

// Lays out records, names and checksums, and refuses those that do not fit into the header.
static mics_status lay_out(decoder *in, mics_rank_file *file)
{
    const unsigned char *header = file->header;
    const int64_t at = MICS_RANK_FILE_PREFIX;
    const uint64_t shards = get_u32(header + 32);
    const uint64_t names_bytes = get_u32(header + 36);
    const uint64_t states = get_u32(header + 20);
    const bool first = in->version == 1;
    const uint64_t shard_bytes = shards * (first ? V1_SHARD_BYTES : MICS_RANK_FILE_SHARD_BYTES);
    const uint64_t state_bytes = first ? 0 : states * MICS_RANK_FILE_STATE_BYTES;
    if (first && states != V1_STATES)
        return malformed(in->path, at + 20, "not 3 states, which version 1 has");
    if (shards > INT32_MAX ||
        MICS_RANK_FILE_FIXED + shard_bytes + state_bytes + names_bytes > (uint64_t)in->header_bytes)
        return malformed(in->path, at + 32, "shards, states and names do not fit into the header");
    if (names_bytes % 8 != 0)
        return malformed(in->path, at + 36, "the names' length is no multiple of 8");
    in->total_states = (int64_t)(first ? shards * V1_STATES : states);
    in->shards = header + MICS_RANK_FILE_FIXED;
    in->states = in->shards + shard_bytes;
    in->names = in->states + state_bytes;
    in->names_bytes = names_bytes;
    in->next_hash = in->names + names_bytes;
    in->hashes_end = header + in->header_bytes;
    in->next_data =
        mics_size_round_up(MICS_RANK_FILE_PREFIX + in->header_bytes, MICS_RANK_FILE_ALIGN);
    file->count = (int32_t)shards;
    return MICS_OK;
}

static mics_status decode_fixed(decoder *in, mics_rank_file *file)
{
    const unsigned char *header = file->header;
    const int64_t at = MICS_RANK_FILE_PREFIX;
    uint64_t step = get_u64(header);
    uint32_t rank = get_u32(header + 8);
    uint32_t writers = get_u32(header + 12);
    if (step > INT64_MAX)
        return malformed(in->path, at, "the step is negative");
    if (writers > INT32_MAX || rank >= writers)
        return malformed(in->path, at + 8, "the rank is not below the number of writers");
    if (get_u32(header + 16) != MICS_RANK_FILE_CHUNK)
        return malformed(in->path, at + 16, "chunks are not of 1048576 bytes");
    if (get_u64(header + 24) != (uint64_t)in->size)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: offset %lld: the file has %lld bytes, its header says %llu", in->path,
                         (long long)at + 24, (long long)in->size,
                         (unsigned long long)get_u64(header + 24));
    file->id = (mics_rank_file_id){(int64_t)step, (int32_t)rank, (int32_t)writers};
    file->file_bytes = in->size;
    return lay_out(in, file);
}

// ---- shards and their states ----

// A name that `record` describes: its place and length among the names.
static mics_status decode_name(const decoder *in, const mics_rank_file *file,
                               const unsigned char *record, const char **name_out)
{
    const uint64_t at = get_u32(record), bytes = get_u32(record + 4);
    if (bytes < 1 || bytes > MICS_RANK_FILE_MAX_NAME || at + bytes + 1 > in->names_bytes)
        return damaged(in, file, record, "a name lies outside the names");
    const unsigned char *name = in->names + at;
    if (memchr(name, '\0', bytes + 1) != name + bytes)
        return damaged(in, file, record, "a name does not end where it should");
    *name_out = (const char *)name;
    return MICS_OK;
}

// `record` holds the place of the state's data.
static mics_status take_state(decoder *in, mics_rank_file *file, const mics_rank_shard *shard,
                              const char *name, const unsigned char *record)
{
    const int64_t elems = shard->end - shard->begin;
    const int64_t hash_bytes = mics_rank_file_chunks(elems) * MICS_RANK_FILE_HASH_BYTES;
    if (get_u64(record) != (uint64_t)in->next_data)
        return damaged(in, file, record,
                       "the data does not lie where the lengths before it put it");
    if (in->hashes_end - in->next_hash < hash_bytes)
        return damaged(in, file, record, "the header holds too few checksums for this state");
    file->states[in->state_count++] = (mics_rank_state){name, in->next_data, in->next_hash};
    in->next_hash += hash_bytes;
    in->next_data += mics_size_round_up(elems * 4, MICS_RANK_FILE_ALIGN);
    if (in->next_data > in->size)
        return damaged(in, file, record, "the state's data runs past the end of the file");
    return MICS_OK;
}

static mics_status check_dtype(const decoder *in, const mics_rank_file *file, const char *name,
                               const unsigned char *record)
{
    const unsigned char *dtype = record + 16;
    char text[sizeof MICS_RANK_FILE_FP32 + 1] = "";
    if (memcmp(dtype, MICS_RANK_FILE_FP32, sizeof MICS_RANK_FILE_FP32) == 0)
        return MICS_OK;
    for (size_t i = 0; i < sizeof MICS_RANK_FILE_FP32 && dtype[i] != '\0'; i++)
        text[i] = dtype[i] >= '!' && dtype[i] <= '~' ? (char)dtype[i] : '?';
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: offset %" PRId64 ": state %s is of dtype \"%s\"; this program reads "
                     "\"" MICS_RANK_FILE_FP32 "\"",
                     in->path, offset_of(file, dtype), name, text);
}

// The states of a shard of version 2, whose record says how many there are.
static mics_status decode_states(decoder *in, mics_rank_file *file, const unsigned char *record,
                                 mics_rank_shard *shard)
{
    const uint32_t count = get_u32(record + 32);
    if (count < 1 || count > MICS_MAX_SHARD_STATES || get_u32(record + 36) != 0)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: offset %" PRId64 ": a shard with %u states; 1 to %d can be read",
                         in->path, offset_of(file, record + 32), count, (int)MICS_MAX_SHARD_STATES);
    for (uint32_t i = 0; i < count; i++) {
        const unsigned char *state = in->states + in->state_count * MICS_RANK_FILE_STATE_BYTES;
        const char *name = NULL;
        if (in->state_count >= in->total_states)
            return damaged(in, file, record + 32,
                           "the shards have more states than the header says");
        MICS_TRY(decode_name(in, file, state + 8, &name));
        MICS_TRY(check_dtype(in, file, name, state));
        if (get_u32(state + 20) != 0)
            return damaged(in, file, state + 20, "a state's record ends in no 0");
        if (mics_rank_shard_find(shard, name) != NULL)
            return damaged(in, file, state + 8, "a state has the name of another of its shard");
        MICS_TRY(take_state(in, file, shard, name, state));
        shard->state_count++;
    }
    return MICS_OK;
}

static mics_status decode_states_1(decoder *in, mics_rank_file *file, const unsigned char *record,
                                   mics_rank_shard *shard)
{
    for (int i = 0; i < V1_STATES; i++)
        MICS_TRY(take_state(in, file, shard, v1_state_names[i], record + 24 + (ptrdiff_t)8 * i));
    shard->state_count = V1_STATES;
    return MICS_OK;
}

static mics_status decode_shard(decoder *in, mics_rank_file *file, const unsigned char *record,
                                mics_rank_shard *shard)
{
    const bool first = in->version == 1;
    uint64_t unit_elems = get_u64(record);
    uint64_t begin = get_u64(record + 8);
    uint64_t end = get_u64(record + 16);
    if (unit_elems < 1 || unit_elems > (uint64_t)MICS_RANK_FILE_MAX_ELEMS || begin > end ||
        end > unit_elems)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: offset %lld: elements %llu to %llu of a unit of %llu", in->path,
                         (long long)offset_of(file, record), (unsigned long long)begin,
                         (unsigned long long)end, (unsigned long long)unit_elems);
    MICS_TRY(decode_name(in, file, record + (first ? 48 : 24), &shard->unit));
    shard->unit_elems = (int64_t)unit_elems;
    shard->begin = (int64_t)begin;
    shard->end = (int64_t)end;
    shard->states = file->states + in->state_count;
    return first ? decode_states_1(in, file, record, shard)
                 : decode_states(in, file, record, shard);
}

static mics_status decode_shards(decoder *in, mics_rank_file *file)
{
    const ptrdiff_t bytes = in->version == 1 ? V1_SHARD_BYTES : MICS_RANK_FILE_SHARD_BYTES;
    for (int32_t i = 0; i < file->count; i++)
        MICS_TRY(decode_shard(in, file, in->shards + i * bytes, &file->shards[i]));
    if (in->state_count != in->total_states)
        return malformed(in->path, MICS_RANK_FILE_PREFIX + 20,
                         "the header says more states than the shards have");
    if (in->next_hash != in->hashes_end)
        return malformed(in->path, MICS_RANK_FILE_PREFIX, "the header is longer than what it says");
    if (in->next_data != in->size)
        return malformed(in->path, in->next_data, "the file goes on after its last shard");
    return MICS_OK;
}

mics_status mics_rank_file_load(mics_memory *memory, const char *path, mics_rank_file *file_out)
{
    int fd = -1;
    decoder in = {.path = path};
    mics_rank_file file = {0};
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_strdup(memory, path, &file.path));
    MICS_TRY_OUT(mics_file_open_read(path, &fd, &in.size));
    MICS_TRY_OUT(read_header(memory, fd, &in, &file));
    MICS_TRY_OUT(decode_fixed(&in, &file));
    MICS_TRY_OUT(MICS_NEW(memory, file.count, &file.shards));
    MICS_TRY_OUT(MICS_NEW(memory, in.total_states, &file.states));
    MICS_TRY_OUT(decode_shards(&in, &file));
    *file_out = file;
    file = (mics_rank_file){0};
out:
    if (fd >= 0)
        close(fd);
    mics_rank_file_fini(memory, &file);
    return status;
}

void mics_rank_file_fini(mics_memory *memory, mics_rank_file *file)
{
    mics_free(memory, file->states);
    mics_free(memory, file->shards);
    mics_free(memory, file->header);
    mics_free(memory, file->path);
    *file = (mics_rank_file){0};
}

const mics_rank_state *mics_rank_shard_find(const mics_rank_shard *shard, const char *name)
{
    for (int32_t i = 0; i < shard->state_count; i++) {
        if (strcmp(shard->states[i].name, name) == 0)
            return &shard->states[i];
    }
    return NULL;
}
