// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding over bytes: the tables of one tokenizer.json, and the merging of one piece.
//
// Invariants of an open mics_bpe:
//   1. Every byte has a token, so every text can be encoded.
//   2. Every id in the tables is in [0, vocab).
//   3. A merge's token stands for the bytes of its two parts.
#ifndef MICS_DATA_BPE_H
#define MICS_DATA_BPE_H

#include "io/data/split.h"
#include "io/data/tokenizer.h"
#include "mics/json.h"

// What a token stands for: `bytes` bytes of the blob from `begin`.
typedef struct mics_bpe_span {
    uint32_t begin;
    uint32_t bytes;
    bool word; // byte pairs may merge into it: no special token, and spelled in byte-level letters
} mics_bpe_span;

// A slot of the table of merges: open addressing, linear probing, empty when merged < 0.
typedef struct mics_bpe_pair {
    int32_t left, right;
    int32_t rank; // lower merges first
    int32_t merged;
} mics_bpe_pair;

// A token that is found in a text before it is split.
typedef struct mics_bpe_added {
    const char *text;
    size_t bytes;
    int32_t token;
    bool special; // found only when the caller wants specials
} mics_bpe_added;

typedef struct mics_bpe {
    mics_memory *memory;
    mics_split *split;
    char *blob;           // the bytes of all tokens
    mics_bpe_span *spans; // (vocab)
    int32_t vocab;
    int32_t byte_token[256];
    mics_bpe_pair *pairs; // (pair_mask + 1)
    uint64_t pair_mask;
    int32_t *words; // (word_mask + 1) token by its bytes, -1 when empty; open addressing as above
    uint64_t word_mask;
    mics_bpe_added *added; // (added_count) by first byte, then longest first
    int32_t added_count;
    int32_t added_first[257]; // the added tokens that begin with byte b: [first[b], first[b + 1])
    size_t added_longest[2];  // bytes, among those that are [0] not special, [1] any
    bool add_prefix_space;    // a text, and what follows an added token, begins with a space
    bool ignore_merges;       // a piece that is a token stays whole, whatever the merges say
} mics_bpe;

/* Reads a tokenizer.json.   Owns: mics_bpe_close, which takes NULL too. */
mics_status mics_bpe_load(mics_memory *memory, const mics_json *json, mics_bpe **bpe_out);
void mics_bpe_close(mics_bpe *bpe);

/* The parts of mics_bpe_load: what the splitter does, and what is not supported at all; tokens and
 * added tokens; merges. Each logs its errors at the place in the file. */
mics_status mics_bpe_load_rules(const mics_json *json, mics_bpe *bpe);
mics_status mics_bpe_load_tokens(const mics_json *json, mics_bpe *bpe);
mics_status mics_bpe_load_merges(const mics_json *json, mics_bpe *bpe);

/* Bytes that a token stands for, from its spelling in GPT-2's byte-level letters. Writes at most
 * `bytes` bytes to `out`. Returns how many, or -1 when a letter is none of the 256. */
int64_t mics_bpe_unspell(const char *spelling, size_t bytes, char *out);

/* The merge of two tokens, or NULL. */
const mics_bpe_pair *mics_bpe_find_pair(const mics_bpe *bpe, int32_t left, int32_t right);

/* The word of the model that stands for these bytes, or -1. */
int32_t mics_bpe_find_word(const mics_bpe *bpe, const char *text, size_t bytes);

// What merging needs besides the tables; one thread at a time.
typedef struct mics_bpe_merger mics_bpe_merger;

mics_status mics_bpe_merger_open(const mics_bpe *bpe, mics_bpe_merger **merger_out);
void mics_bpe_merger_close(mics_bpe_merger *merger);

/* Appends the tokens of one piece, any bytes. Returns: MICS_OK; MICS_ERR_INVALID (a piece over 1
 * GiB); MICS_ERR_MEMORY. */
mics_status mics_bpe_merge(mics_bpe_merger *merger, const char *piece, size_t bytes,
                           mics_token_list *list);

#endif
