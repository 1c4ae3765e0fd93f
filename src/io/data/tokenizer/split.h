// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cuts a text into the pieces that byte pairs are merged in: the pre-tokenizers of a
// tokenizer.json, as steps that are applied one inside the pieces of the other.
//
// A text may come in parts. The splitter keeps what later text could change, up to MICS_SPLIT_HELD
// bytes, so that parts give the pieces of the whole.
#pragma once

#include "io/data/tokenizer/chars.h"
#include <stdbool.h>

enum {
    MICS_SPLIT_STEPS = 8,
    MICS_SPLIT_HELD = 4 << 20, // a piece of this length takes 176 MiB to merge
};

// What becomes of a match. Source: Hugging Face tokenizers, SplitDelimiterBehavior.
typedef enum mics_split_behavior {
    MICS_SPLIT_ISOLATED,
    MICS_SPLIT_REMOVED,
    MICS_SPLIT_CONTIGUOUS, // matches without anything between them are one piece
    MICS_SPLIT_MERGED_WITH_PREVIOUS,
    MICS_SPLIT_MERGED_WITH_NEXT,
} mics_split_behavior;

// When a step puts its text before another.
typedef enum mics_split_prepend {
    MICS_SPLIT_PREPEND_NEVER,
    MICS_SPLIT_PREPEND_FIRST, // only where the whole text begins
    MICS_SPLIT_PREPEND_ALWAYS,
} mics_split_prepend;

typedef struct mics_split mics_split;
// What one thread needs to run a splitter.
typedef struct mics_split_work mics_split_work;

/* Opens a splitter without steps: every text is one piece. `chars` must outlive it.
 * Owns: mics_split_close. */
mics_status mics_split_open(mics_memory *memory, const mics_chars *chars, mics_split **split_out);
void mics_split_close(mics_split *split);

/* Add a step, to be applied inside the pieces of those before it. `where` names it in errors.
 *
 * by a regular expression; by a text (bytes >= 1); by single characters of any of the `classes`; by
 * \w+|[^\w\s]+, without what lies between. The last replaces spaces by `text` (" ": none), and puts
 * it before what does not begin with it; it does not split.
 * Returns: MICS_OK; MICS_ERR_FORMAT (does not compile); MICS_ERR_UNSUPPORTED (looks behind, or is
 *          one too many); MICS_ERR_MEMORY.
 */
mics_status mics_split_add_pattern(mics_split *split, const char *where, const char *pattern,
                                   mics_split_behavior behavior, bool invert);
mics_status mics_split_add_text(mics_split *split, const char *where, const char *text,
                                mics_split_behavior behavior, bool invert);
mics_status mics_split_add_chars(mics_split *split, const char *where, uint8_t classes,
                                 mics_split_behavior behavior);
mics_status mics_split_add_words(mics_split *split, const char *where);
mics_status mics_split_add_space(mics_split *split, const char *where, const char *text,
                                 mics_split_prepend prepend);

mics_status mics_split_work_open(const mics_split *split, mics_split_work **work_out);
void mics_split_work_close(mics_split_work *work);

// Receives the pieces in order; an error ends the splitting.
typedef struct mics_split_sink {
    mics_status (*piece)(void *ctx, const char *text, size_t bytes);
    // (optional) A place behind which a splitter without steps may cut a piece; 0: none.
    size_t (*cut)(void *ctx, const char *text, size_t bytes);
    void *ctx;
} mics_split_sink;

// A part of a text.
typedef struct mics_split_part {
    const char *text; // valid UTF-8
    size_t bytes;
    bool head;  // it begins here, or behind an added token
    bool first; // it begins here
    bool more;  // it goes on
} mics_split_part;

/* Splits.
 *
 * Finding is bounded as mics_matcher_start says; a text is what is held with this part.
 * Returns: MICS_OK; MICS_ERR_FORMAT (a pattern that needs more: which, where); the sink's status;
 * MICS_ERR_MEMORY.
 */
mics_status mics_split_feed(mics_split_work *work, const mics_split_part *part,
                            mics_split_sink sink);
