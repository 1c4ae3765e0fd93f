// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The merges of a tokenizer.json, as a table of pairs of tokens.
#include "io/data/tokenizer/bpe.h"
#include <string.h>

static uint64_t pair_slot(const mics_bpe *bpe, int32_t left, int32_t right)
{
    uint64_t mixed = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    mixed *= 0x9E3779B97F4A7C15u; // 2^64 / golden ratio: multiplicative hashing, Knuth, TAOCP 6.4
    uint64_t slot = (mixed ^ mixed >> 32) & bpe->pair_mask;
    while (bpe->pairs[slot].merged >= 0 &&
           (bpe->pairs[slot].left != left || bpe->pairs[slot].right != right))
        slot = (slot + 1) & bpe->pair_mask;
    return slot;
}

const mics_bpe_pair *mics_bpe_find_pair(const mics_bpe *bpe, int32_t left, int32_t right)
{
    const mics_bpe_pair *pair = &bpe->pairs[pair_slot(bpe, left, right)];
    return pair->merged >= 0 ? pair : NULL;
}

// The two spellings of a merge: "a b" or ["a", "b"].
static bool read_parts(const mics_json_value *merge, const char *parts[2], size_t bytes[2])
{
    const char *text = mics_json_string(merge);
    if (text != NULL) {
        const char *space = strchr(text, ' ');
        if (space == NULL || strchr(space + 1, ' ') != NULL)
            return false;
        parts[0] = text;
        bytes[0] = (size_t)(space - text);
        parts[1] = space + 1;
        bytes[1] = strlen(parts[1]);
        return true;
    }
    for (int32_t i = 0; i < 2; i++) {
        parts[i] = mics_json_string(mics_json_element(merge, i));
        bytes[i] = parts[i] != NULL ? strlen(parts[i]) : 0;
    }
    return mics_json_count(merge) == 2 && parts[0] != NULL && parts[1] != NULL;
}

// What reading the merges needs: space for two parts, each unspelled from at most twice `longest`.
typedef struct reader {
    const mics_json *json;
    mics_bpe *bpe;
    size_t longest; // bytes of the longest token
    char *scratch;  // (4 * longest)
} reader;

// The text of a part as the tokens have it.
static int64_t unspell(const mics_bpe *bpe, const char *part, size_t bytes, char *out)
{
    if (bpe->byte_level)
        return mics_bpe_unspell(part, bytes, out);
    memcpy(out, part, bytes);
    return (int64_t)bytes;
}

// Whether a text is that of a special token. Such a token is found in a text before it is split, or
// is to be no token there: what merges say of it never comes to pass.
static bool is_special(const mics_bpe *bpe, const char *text, size_t bytes)
{
    bool special = false;
    for (int i = 0; i < 2 && bytes > 0 && !special; i++) {
        const mics_bpe_added *added = mics_bpe_added_at(&bpe->added[i], text, bytes);
        special = added != NULL && added->special && added->bytes == bytes;
    }
    return special;
}

// *pair_out is of no use, with `merged` below 0, where a special token would be merged.
static mics_status read_merge(const reader *r, int32_t rank, const mics_json_value *merge,
                              mics_bpe_pair *pair_out)
{
    const char *parts[2] = {0};
    size_t spelled[2] = {0};
    if (!read_parts(merge, parts, spelled))
        return mics_json_fail(r->json, "model.merges", MICS_ERR_FORMAT,
                              "merge %d is neither \"a b\" nor [\"a\", \"b\"]", (int)rank);
    int32_t tokens[2] = {-1, -1};
    size_t bytes = 0;
    bool special = false;
    for (int i = 0; i < 2 && spelled[i] <= 2 * r->longest; i++) { // a letter has up to two bytes
        int64_t got = unspell(r->bpe, parts[i], spelled[i], r->scratch + bytes);
        if (got < 0)
            break;
        tokens[i] = mics_bpe_find_word(r->bpe, r->scratch + bytes, (size_t)got);
        special = special || is_special(r->bpe, r->scratch + bytes, (size_t)got);
        bytes += (size_t)got;
    }
    int32_t merged = tokens[1] >= 0 ? mics_bpe_find_word(r->bpe, r->scratch, bytes) : -1;
    *pair_out = (mics_bpe_pair){.merged = -1};
    if (special || is_special(r->bpe, r->scratch, bytes))
        return MICS_OK;
    if (tokens[0] < 0 || merged < 0)
        return mics_json_fail(r->json, "model.merges", MICS_ERR_FORMAT,
                              "merge %d, \"%.*s\" with \"%.*s\", has a part or a whole that is no "
                              "token of the model",
                              (int)rank, (int)(spelled[0] < 60 ? spelled[0] : 60), parts[0],
                              (int)(spelled[1] < 60 ? spelled[1] : 60), parts[1]);
    *pair_out =
        (mics_bpe_pair){.left = tokens[0], .right = tokens[1], .rank = rank, .merged = merged};
    return MICS_OK;
}

static mics_status alloc_pairs(mics_bpe *bpe, int32_t count)
{
    size_t slots = 1024;
    while (slots < 2 * (size_t)count)
        slots *= 2;
    MICS_TRY(MICS_NEW(bpe->memory, slots, &bpe->pairs));
    bpe->pair_mask = slots - 1;
    for (size_t i = 0; i < slots; i++)
        bpe->pairs[i].merged = -1;
    return MICS_OK;
}

mics_status mics_bpe_load_merges(const mics_json *json, mics_bpe *bpe)
{
    const mics_json_value *merges = mics_json_at(json, "model.merges");
    if (mics_json_type_of(merges) != MICS_JSON_ARRAY)
        return mics_json_fail(json, "model.merges", MICS_ERR_FORMAT, "missing or no array");
    reader r = {.json = json, .bpe = bpe, .longest = 1};
    for (int32_t token = 0; token < bpe->vocab; token++)
        r.longest = bpe->spans[token].bytes > r.longest ? bpe->spans[token].bytes : r.longest;
    int32_t count = mics_json_count(merges);
    MICS_TRY(alloc_pairs(bpe, count));
    MICS_TRY(MICS_NEW(bpe->memory, 4 * r.longest, &r.scratch));
    mics_status status = MICS_OK;
    for (int32_t rank = 0; status == MICS_OK && rank < count; rank++) {
        mics_bpe_pair pair = {0};
        status = read_merge(&r, rank, mics_json_element(merges, rank), &pair);
        if (status == MICS_OK &&
            pair.merged >= 0) // of two equal merges the later one counts, as in Hugging Face's
            bpe->pairs[pair_slot(bpe, pair.left, pair.right)] = pair;
    }
    mics_free(bpe->memory, r.scratch);
    return status;
}
