// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The inside of a tokenizer: a table of functions for each kind, and an encoder that takes a text
// in parts.
#pragma once

#include "io/data/buffer.h"
#include "io/data/data.h"
#include <stdbool.h>

// A growing array of tokens. Zeroed but for `memory` it is empty; mics_token_list_fini ends it.
typedef struct mics_token_list {
    mics_memory *memory;
    int32_t *tokens;
    int64_t count, capacity;
} mics_token_list;

mics_status mics_token_list_append(mics_token_list *list, const int32_t *tokens, int64_t count);
void mics_token_list_fini(mics_token_list *list);

// What a text is cut into before anything is merged. Zeroed but for the two `memory` it is empty.
typedef struct mics_pieces {
    mics_buffer text; // of all pieces, one behind the other
    mics_token_list
        parts; // in order: >= 0, a piece's bytes; < 0, ~token of a token found in the text
} mics_pieces;

mics_status mics_pieces_add(mics_pieces *pieces, const char *piece, size_t bytes);
void mics_pieces_fini(mics_pieces *pieces);

// A tokenizer at work on one text; one thread at a time.
typedef struct mics_encoder {
    const mics_tokenizer *tokenizer;
    bool specials;
    mics_pieces *pieces; // feeding gives pieces in place of tokens; NULL: it gives tokens
    void *work;          // the kind's own
} mics_encoder;

typedef struct mics_tokenizer_ops {
    const char *name;
    bool any_bytes; // (optional) texts of a corpus need not be UTF-8
    // Tokenizes the head of `text` and says how much of it. With `more`, text will follow, and only
    // what it cannot change is consumed; without, everything is.
    mics_status (*feed)(mics_encoder *encoder, const char *text, size_t bytes, bool more,
                        mics_token_list *list, size_t *consumed_out);
    // (optional) Appends the tokens of pieces. Pieces do not depend on each other.
    mics_status (*merge)(mics_encoder *encoder, const mics_pieces *pieces, mics_token_list *list);
    // Copies what a token in [0, vocab) stands for, unless `to` is NULL; `head`: it is the first of
    // a text. Returns its bytes.
    size_t (*text)(const mics_tokenizer *tokenizer, int32_t token, bool head, char *to);
    // (optional) Takes from both ends of a whole text what is not of it: what is left begins at
    // *begin_out.
    void (*trim)(const mics_tokenizer *tokenizer, const char *text, size_t *bytes,
                 size_t *begin_out);
    // (optional) Sets what is special of (vocab) zeroed ones; by default nothing is.
    void (*mark_specials)(const mics_tokenizer *tokenizer, bool *special_out);
    // (optional) As mics_tokenizer_next_special; by default there is none.
    int32_t (*next_special)(const mics_tokenizer *tokenizer, const char *text, size_t bytes,
                            size_t limit, size_t *at);
    mics_status (*work_open)(const mics_tokenizer *tokenizer, void **work_out); // (optional)
    mics_status (*work_reset)(void *work);                                      // with work_open
    void (*work_close)(void *work);                                             // (optional)
    void (*close)(void *ctx);                                                   // (optional)
} mics_tokenizer_ops;

struct mics_tokenizer {
    mics_memory *memory;
    const mics_tokenizer_ops *ops;
    void *ctx;
    int32_t vocab;
    int32_t separator;     // -1: none
    int32_t mask;          // -1: none
    uint64_t identity;     // equal for tokenizers that make equal tokens of a text in a corpus
    char *file_text;       // of the tokenizer.json; NULL for bytes
    mics_token_list frame; // what a run may ask to have around a text, -1: the text; empty: nothing
    char *frame_refused;   // why there is none; NULL: there is
    bool frames_texts;     // texts of a corpus stand in it, in place of the separator
};

mics_status mics_encoder_open(const mics_tokenizer *tokenizer, bool specials,
                              mics_encoder *encoder_out);
mics_status mics_encoder_feed(mics_encoder *encoder, const char *text, size_t bytes, bool more,
                              mics_token_list *list, size_t *consumed_out);
/* Begins another text; what the encoder knows of words stays. An encoder whose last text failed may
 * be reset too. */
mics_status mics_encoder_reset(mics_encoder *encoder);
/* Whether a text can be cut into pieces first. */
bool mics_encoder_cuts(const mics_tokenizer *tokenizer);
/* Appends the tokens of pieces. Needs mics_encoder_cuts. */
mics_status mics_encoder_merge(mics_encoder *encoder, const mics_pieces *pieces,
                               mics_token_list *list);
void mics_encoder_fini(mics_encoder *encoder);

/* Fills in a tokenizer from a tokenizer.json. `tokenizer_out` is then closed with its ops. */
mics_status mics_bpe_open(mics_memory *memory, const char *path, mics_tokenizer *tokenizer_out);
