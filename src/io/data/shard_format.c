// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which kind of token shard a file is, and where its tokens lie.
//
// Megatron's index: "MMIDIDX\0\0", version 1 (uint64), the tokens' type (uint8), S sequences and
// D + 1 documents (uint64 each); then the length of each sequence in tokens (int32), where it
// begins in the .bin in bytes (int64), and the first sequence of each document, and S (int64).
// Source: github.com/NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py, 2024.
//
// nanoGPT's train.bin is uint16 tokens and nothing else.
// Source: github.com/karpathy/nanoGPT, data/openwebtext/prepare.py, 2023.
#include "base/file.h"
#include "io/data/shard.h"
#include "mics/log.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const mics_shard_kind mics_shard_kinds[2] = {{20240520, 1, MICS_TOKEN_U16, 2},
                                             {20240801, 7, MICS_TOKEN_U32, 4}};

static const struct {
    const char *name;
    int32_t bytes;
} types[MICS_TOKEN_TYPES] = {
    [MICS_TOKEN_U8] = {"uint8", 1},  [MICS_TOKEN_I8] = {"int8", 1},
    [MICS_TOKEN_I16] = {"int16", 2}, [MICS_TOKEN_U16] = {"uint16", 2},
    [MICS_TOKEN_I32] = {"int32", 4}, [MICS_TOKEN_U32] = {"uint32", 4},
    [MICS_TOKEN_I64] = {"int64", 8},
};

// ---- tokens ----

// The token at `from`, in an integer that holds them all.
static int64_t token_at(mics_token_type type, const char *from)
{
    uint64_t bits = 0; // little-endian, as this machine is (shard.c)
    memcpy(&bits, from, (size_t)types[type].bytes);
    switch (type) {
    case MICS_TOKEN_I8:
        return (int8_t)(uint8_t)bits;
    case MICS_TOKEN_I16:
        return (int16_t)(uint16_t)bits;
    case MICS_TOKEN_I32:
        return (int32_t)(uint32_t)bits;
    default:
        return (int64_t)bits;
    }
}

void mics_shard_widen(mics_token_type type, const char *from, int64_t count, int32_t *to)
{
    const int32_t bytes = types[type].bytes;
    if (type == MICS_TOKEN_I32 || type == MICS_TOKEN_U32) {
        memmove(to, from, (size_t)count * sizeof *to); // beyond int32_t: negative
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t token = token_at(type, from + i * bytes);
        to[i] = token < 0 || token > INT32_MAX ? -1 : (int32_t)token;
    }
}

static void set_type(mics_shard *shard, mics_token_type type)
{
    shard->type = type;
    shard->token_bytes = types[type].bytes;
}

// ---- llm.c ----

static const mics_shard_kind *kind_of(int32_t magic)
{
    return magic == mics_shard_kinds[0].magic   ? &mics_shard_kinds[0]
           : magic == mics_shard_kinds[1].magic ? &mics_shard_kinds[1]
                                                : NULL;
}

static mics_status read_llmc(const int32_t *head, const mics_shard_kind *kind, mics_shard *shard)
{
    const char *path = shard->path;
    const uint64_t bytes = (uint64_t)shard->stamp.bytes - MICS_SHARD_HEADER_BYTES;
    const uint64_t width = (uint64_t)kind->token_bytes;
    if (head[1] != kind->version)
        return mics_fail(MICS_ERR_FORMAT, "%s: the version at offset 4 is %d, expected %d", path,
                         (int)head[1], (int)kind->version);
    const uint64_t count = (uint32_t)head[2] | (uint64_t)(uint32_t)head[3] << 32;
    if (count != bytes / width || bytes % width != 0)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: the count at offset 8 is %" PRIu64 " tokens of %d bytes, but %" PRIu64
                         " bytes follow the header",
                         path, count, (int)kind->token_bytes, bytes);
    if (count == 0)
        return mics_fail(MICS_ERR_FORMAT, "%s: the count at offset 8 is 0: there are no tokens",
                         path);
    set_type(shard, kind->type);
    shard->begin = MICS_SHARD_HEADER_BYTES;
    shard->count = (int64_t)count;
    shard->has_hash = (uint32_t)head[4] == MICS_SHARD_HASH_FOLLOWS;
    shard->hash = (uint32_t)head[5] | (uint64_t)(uint32_t)head[6] << 32;
    return MICS_OK;
}

// ---- tokens alone ----

static mics_status read_bare(const char *dtype, mics_shard *shard)
{
    const int64_t bytes = shard->stamp.bytes;
    int32_t type = 0;
    while (type < MICS_TOKEN_TYPES && strcmp(types[type].name, dtype) != 0)
        type++;
    if (type == MICS_TOKEN_TYPES)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: tokens cannot be \"%s\"; data.dtype is uint8, uint16, uint32, int8, "
                         "int16, int32 or int64",
                         shard->path, dtype);
    set_type(shard, (mics_token_type)type);
    if (bytes == 0 || bytes % shard->token_bytes != 0)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: its %" PRId64 " bytes are no whole number of %s tokens, of %d bytes "
                         "each; is data.dtype another, or the file cut short?",
                         shard->path, bytes, dtype, (int)shard->token_bytes);
    shard->begin = 0;
    shard->count = bytes / shard->token_bytes;
    return MICS_OK;
}

// ---- Megatron ----

enum { INDEX_HEAD = 34, INDEX_BLOCK = 4096 };

typedef struct token_index {
    char path[PATH_MAX];
    int file;
    int64_t bytes, sequences, documents;
    uint8_t code;
} token_index;

static mics_status read_index_head(token_index *index)
{
    unsigned char head[INDEX_HEAD];
    uint64_t version = 0, counts[2];
    if (index->bytes < INDEX_HEAD)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: ends at offset %" PRId64 ", inside the header of %d bytes of a "
                         "Megatron index",
                         index->path, index->bytes, INDEX_HEAD);
    MICS_TRY(mics_file_read_at(index->file, index->path, head, sizeof head, 0));
    if (memcmp(head, "MMIDIDX\0\0", 9) != 0)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: no Megatron index: it does not begin with MMIDIDX; where the .bin "
                         "has nothing to do with it, name one of them otherwise",
                         index->path);
    memcpy(&version, head + 9, sizeof version);
    memcpy(counts, head + 18, sizeof counts);
    index->code = head[17];
    if (version != 1)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "%s: the version at offset 9 is %" PRIu64 ", only 1 is known", index->path,
                         version);
    const uint64_t room = (uint64_t)(index->bytes - INDEX_HEAD);
    if (counts[0] > room / 12 || counts[1] > room / 8 || counts[0] * 12 + counts[1] * 8 != room)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: the header says %" PRIu64 " sequences (offset 18) and %" PRIu64
                         " documents (offset 26), but %" PRIu64 " bytes follow it%s",
                         index->path, counts[0], counts[1], room,
                         counts[0] * 12 + counts[1] * 8 + counts[0] == room
                             ? ": it is multimodal, which is not supported"
                             : "");
    index->sequences = (int64_t)counts[0];
    index->documents = (int64_t)counts[1];
    return MICS_OK;
}

static mics_status set_index_type(const token_index *index, mics_shard *shard)
{
    static const mics_token_type codes[] = {
        [1] = MICS_TOKEN_U8,  [2] = MICS_TOKEN_I8,  [3] = MICS_TOKEN_I16,
        [4] = MICS_TOKEN_I32, [5] = MICS_TOKEN_I64, [8] = MICS_TOKEN_U16,
    };
    if (index->code == 6 || index->code == 7)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "%s: the type at offset 17 is %d, a floating-point one: these are no "
                         "tokens",
                         index->path, (int)index->code);
    if (index->code == 0 || index->code > 8)
        return mics_fail(MICS_ERR_FORMAT, "%s: the type at offset 17 is %d, expected 1 to 5 or 8",
                         index->path, (int)index->code);
    set_type(shard, codes[index->code]);
    return MICS_OK;
}

// Sequences must lie one behind the other, as Megatron's builder writes them: then the .bin is the
// stream of the documents' tokens.
static mics_status check_sequences(const token_index *index, const mics_shard *shard)
{
    int32_t lengths[INDEX_BLOCK];
    int64_t pointers[INDEX_BLOCK], end = 0;
    for (int64_t at = 0; at < index->sequences; at += INDEX_BLOCK) {
        const int64_t left = index->sequences - at, count = left < INDEX_BLOCK ? left : INDEX_BLOCK;
        const int64_t lengths_at = INDEX_HEAD + 4 * at;
        const int64_t pointers_at = INDEX_HEAD + 4 * index->sequences + 8 * at;
        MICS_TRY(
            mics_file_read_at(index->file, index->path, lengths, (size_t)count * 4, lengths_at));
        MICS_TRY(
            mics_file_read_at(index->file, index->path, pointers, (size_t)count * 8, pointers_at));
        for (int64_t i = 0; i < count; i++) {
            if (lengths[i] < 0)
                return mics_fail(MICS_ERR_FORMAT, "%s: offset %" PRId64 ": a sequence of %d tokens",
                                 index->path, lengths_at + 4 * i, (int)lengths[i]);
            if (pointers[i] != end)
                return mics_fail(MICS_ERR_FORMAT,
                                 "%s: offset %" PRId64 ": sequence %" PRId64
                                 " begins at byte %" PRId64
                                 " of the .bin, where the one before it ends at %" PRId64
                                 "; merge_datasets.py writes them one behind the other",
                                 index->path, pointers_at + 8 * i, at + i, pointers[i], end);
            end += (int64_t)lengths[i] * shard->token_bytes;
        }
    }
    if (end == shard->stamp.bytes)
        return MICS_OK;
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: has %" PRId64 " bytes, but its index %s knows %" PRId64
                     "; they are of different data sets, or one is cut short",
                     shard->path, shard->stamp.bytes, index->path, end);
}

static mics_status check_documents(const token_index *index)
{
    int64_t firsts[INDEX_BLOCK], before = 0;
    const int64_t begin = INDEX_HEAD + 12 * index->sequences;
    for (int64_t at = 0; at < index->documents; at += INDEX_BLOCK) {
        const int64_t left = index->documents - at, count = left < INDEX_BLOCK ? left : INDEX_BLOCK;
        MICS_TRY(
            mics_file_read_at(index->file, index->path, firsts, (size_t)count * 8, begin + 8 * at));
        for (int64_t i = 0; i < count; i++) {
            if (firsts[i] < before || firsts[i] > index->sequences)
                return mics_fail(
                    MICS_ERR_FORMAT,
                    "%s: offset %" PRId64 ": document %" PRId64 " begins with sequence %" PRId64
                    ", of %" PRId64 ", the one before it with %" PRId64,
                    index->path, begin + 8 * (at + i), at + i, firsts[i], index->sequences, before);
            before = firsts[i];
        }
    }
    return MICS_OK;
}

static mics_status read_index(token_index *index, mics_shard *shard)
{
    MICS_TRY(read_index_head(index));
    MICS_TRY(set_index_type(index, shard));
    MICS_TRY(check_sequences(index, shard));
    MICS_TRY(check_documents(index));
    shard->begin = 0;
    shard->count = shard->stamp.bytes / shard->token_bytes;
    if (shard->count == 0)
        return mics_fail(MICS_ERR_FORMAT, "%s: there are no tokens", shard->path);
    return MICS_OK;
}

// Where the index of a shard would lie.
static bool name_index(const char *shard_path, char *path, size_t capacity)
{
    const size_t stem = strlen(shard_path) - 4; // of ".bin"
    return snprintf(path, capacity, "%.*s.idx", (int)stem, shard_path) < (int)capacity &&
           mics_file_is_there(path);
}

// ---- all ----

mics_status mics_shard_read_format(const char *dtype, mics_shard *shard)
{
    token_index index = {.file = -1};
    int32_t head[MICS_SHARD_HEAD_WORDS] = {0};
    const bool whole = shard->stamp.bytes >= MICS_SHARD_HEADER_BYTES;
    if (whole)
        MICS_TRY(mics_file_read_at(shard->file, shard->path, head, sizeof head, 0));
    if (whole && kind_of(head[0]) != NULL)
        return read_llmc(head, kind_of(head[0]), shard);
    if (strlen(shard->path) > 4 && name_index(shard->path, index.path, sizeof index.path)) {
        MICS_TRY(mics_file_open_read(index.path, &index.file, &index.bytes));
        const mics_status status = read_index(&index, shard);
        close(index.file);
        return status;
    }
    if (dtype != NULL)
        return read_bare(dtype, shard);
    if (!whole)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: ends at offset %" PRId64 ", inside the header of %d bytes that a "
                         "token shard has; for tokens alone, as nanoGPT's, set data.dtype to "
                         "\"uint16\"",
                         shard->path, shard->stamp.bytes, MICS_SHARD_HEADER_BYTES);
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: no token shard: the magic at offset 0 is %d, expected %d or %d, and no "
                     "Megatron .idx lies beside it; for tokens alone, as nanoGPT's, set data.dtype "
                     "to \"uint16\"",
                     shard->path, (int)head[0], (int)mics_shard_kinds[0].magic,
                     (int)mics_shard_kinds[1].magic);
}
