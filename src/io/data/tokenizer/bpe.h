// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding: the tables of one tokenizer.json, and the merging of one piece.
//
// WordPiece (BERT; Wu et al., 2016, arXiv:1609.08144) has the same tables but for merges: each word
// is the longest token that it begins with, then the longest that what is left begins with.
//
// Two kinds of BPE: byte-level (GPT-2, Llama 3, Qwen, NeoX), whose smallest tokens are bytes, and
// by characters (Llama 2, Mistral), where bytes or an unknown token stand for a character that is
// no token.
//
// Invariants of an open mics_bpe, checked by is_consistent in bpe.c:
//   1. Byte-level: every byte has a token, so every text can be encoded.
//   2. Every id in the tables is in [0, vocab); -1: none.
//   3. A merge's token stands for the text of its two parts.
#pragma once

#include "base/json.h"
#include "io/data/tokenizer/bpe_decode.h"
#include "io/data/tokenizer/normal.h"
#include "io/data/tokenizer/split.h"
#include "io/data/tokenizer/tokenizer.h"

// What a token stands for: `bytes` bytes of the blob from `begin`.
typedef struct mics_bpe_span {
    uint32_t begin;
    uint32_t bytes;
    bool word; // byte pairs may merge into it: no special token, and of the model's kind
} mics_bpe_span;

// A slot of the table of merges: open addressing, linear probing, empty when merged < 0.
typedef struct mics_bpe_pair {
    int32_t left, right;
    int32_t rank; // lower merges first
    int32_t merged;
} mics_bpe_pair;

// A token that is found in a text before it is split.
typedef struct mics_bpe_added {
    const char *text; // as it is found: normalized where `normalized`
    size_t bytes;
    int32_t token;
    bool special; // found only when the caller wants specials
    bool normalized;
    bool single_word;    // found only between characters that are of no word
    bool lstrip, rstrip; // takes the white space before or behind it along
    int32_t place;       // in the file
    char *own;           // `text`, where it is not the blob's
} mics_bpe_added;

// Added tokens of one kind, by their bytes; what another begins with comes before it.
typedef struct mics_bpe_added_set {
    mics_bpe_added *items;
    int32_t count;
    int32_t first[257]; // the tokens that begin with byte b: [first[b], first[b + 1])
    size_t longest;     // bytes
    bool lstrip;        // some token does
} mics_bpe_added_set;

// A WordPiece model's own; `prefix` NULL: byte pairs are merged.
typedef struct mics_wordpiece {
    char *prefix;      // of tokens that go on with a word: "##"
    int64_t max_chars; // of a word; longer ones are unknown
} mics_wordpiece;

struct mics_bpe {
    mics_memory *memory;
    mics_chars chars;
    mics_normal *normal;
    mics_split *split;
    char *blob;           // the texts of all tokens
    mics_bpe_span *spans; // (vocab)
    int32_t vocab;
    bool byte_level;
    int32_t byte_token[256]; // by characters: all or none are -1
    bool has_bytes;          // every byte has a token
    int32_t unknown;         // stands for a character without one; -1: it is left out
    bool fuse_unknown;       // one unknown token for several characters
    mics_bpe_pair *pairs;    // (pair_mask + 1)
    uint64_t pair_mask;
    uint64_t *joints; // (joint_mask + 1) see bpe_cut.c
    uint64_t joint_mask;
    int32_t *words; // (word_mask + 1) token by its text, -1 when empty; open addressing as above
    uint64_t word_mask;
    size_t longest_word;
    bool *word_lengths;          // (longest_word + 1) whether a word has so many bytes
    mics_bpe_added_set added[2]; // [0] found in the raw text, [1] in the normalized one
    mics_wordpiece wordpiece;
    bool ignore_merges; // a piece that is a token stays whole, whatever the merges say
    mics_bpe_decoder decoder;
};
typedef struct mics_bpe mics_bpe;

/* Reads a tokenizer.json.   Owns: mics_bpe_close, which takes NULL too. */
mics_status mics_bpe_load(mics_memory *memory, const mics_json *json, mics_bpe **bpe_out);
void mics_bpe_close(mics_bpe *bpe);

/* The parts of mics_bpe_load: the model's settings; normalizers; pre-tokenizers, which tell whether
 * it is byte-level; tokens, and among them added ones, whose texts go to `space`, in the blob;
 * merges; decoders. Each logs its errors at the place in the file. */
mics_status mics_bpe_load_model(const mics_json *json, mics_bpe *bpe);
mics_status mics_bpe_load_normalizer(const mics_json *json, mics_bpe *bpe);
mics_status mics_bpe_load_pre_tokenizer(const mics_json *json, mics_bpe *bpe);
mics_status mics_bpe_load_tokens(const mics_json *json, mics_bpe *bpe);
mics_status mics_bpe_load_added(const mics_json *json, mics_bpe *bpe, char *space);
mics_status mics_bpe_load_merges(const mics_json *json, mics_bpe *bpe);
mics_status mics_bpe_load_decoder(const mics_json *json, mics_bpe *bpe);

/* The post-processor: appends the tokens that it puts around a text (-1: the text), nothing where
 * there is none, or says in *refused_out (NULL before) why it is not supported.
 * Owns: the caller frees *refused_out. */
mics_status mics_bpe_load_template(mics_memory *memory, const mics_json *json, int32_t vocab,
                                   mics_token_list *template_out, char **refused_out);

void mics_bpe_added_fini(mics_bpe *bpe);

/* The longest added token at the head of a text, or NULL. Needs bytes >= 1. */
const mics_bpe_added *mics_bpe_added_at(const mics_bpe_added_set *set, const char *text,
                                        size_t bytes);

/* As mics_tokenizer_next_special; without what normalizing and the tokens' flags would change. */
int32_t mics_bpe_next_special(const mics_bpe *bpe, const char *text, size_t bytes, size_t limit,
                              size_t *at);

/* Bytes that a token stands for, from its spelling in GPT-2's byte-level letters. Writes at most
 * `bytes` bytes to `out`. Returns how many, or -1 when a letter is none of the 256. */
int64_t mics_bpe_unspell(const char *spelling, size_t bytes, char *out);

/* The byte of a token's text "<0x0A>", or -1. */
int32_t mics_bpe_byte_of(const char *text, size_t bytes);

/* The merge of two tokens, or NULL. */
const mics_bpe_pair *mics_bpe_find_pair(const mics_bpe *bpe, int32_t left, int32_t right);

/* The word of the model that stands for these bytes, or -1. */
int32_t mics_bpe_find_word(const mics_bpe *bpe, const char *text, size_t bytes);

/* Finds out, from the merges, where texts may be cut. */
mics_status mics_bpe_load_joints(mics_bpe *bpe);

/* Whether no token reaches over a place in a text, so that what is before it and what is behind it
 * can be encoded apart. False when that is not known. Needs 0 < at < bytes. */
bool mics_bpe_is_cut(const mics_bpe *bpe, const char *text, size_t bytes, size_t at);

/* Appends the tokens of a word by a WordPiece model, or its unknown token. `space` has the bytes of
 * mics_wordpiece_space. */
mics_status mics_wordpiece_cut(const mics_bpe *bpe, const char *word, size_t bytes, char *space,
                               mics_token_list *list);
size_t mics_wordpiece_space(const mics_bpe *bpe);

// What merging needs besides the tables; one thread at a time.
typedef struct mics_bpe_merger mics_bpe_merger;

mics_status mics_bpe_merger_open(const mics_bpe *bpe, mics_bpe_merger **merger_out);
void mics_bpe_merger_close(mics_bpe_merger *merger);

/* Appends the tokens of one piece, any bytes. Returns: MICS_OK; MICS_ERR_INVALID (a piece over
 * 512 MiB); MICS_ERR_MEMORY. */
mics_status mics_bpe_merge(mics_bpe_merger *merger, const char *piece, size_t bytes,
                           mics_token_list *list);
