// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cuts a text into the pieces that byte pairs are merged in, by regular expressions (PCRE2).
//
// A splitter holds one or more patterns, applied one inside the pieces of the other. A piece is a
// match, or what lies between two (Hugging Face: behaviour "Isolated"). Patterns that look behind
// are refused, so where a piece ends depends only on what follows its beginning: a text may then be
// cut after any piece and go on from there.
#ifndef MICS_DATA_SPLIT_H
#define MICS_DATA_SPLIT_H

#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>

// GPT-2's pattern with \s spelled out, because PCRE2 also counts U+180E as a space.
// Source: Radford et al., gpt-2/src/encoder.py, 2019; Unicode's White_Space property.
#define MICS_SPLIT_SPACES                                                                          \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define MICS_SPLIT_GPT2                                                                            \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" MICS_SPLIT_SPACES "\\p{L}\\p{N}]+|"         \
    "[" MICS_SPLIT_SPACES "]+(?![^" MICS_SPLIT_SPACES "])|[" MICS_SPLIT_SPACES "]+"

enum { MICS_SPLIT_PATTERNS = 8 };

typedef struct mics_split mics_split;
// What one thread needs to run a splitter.
typedef struct mics_split_work mics_split_work;

/* Opens a splitter without patterns: every text is one piece.   Owns: mics_split_close. */
mics_status mics_split_open(mics_memory *memory, mics_split **split_out);
void mics_split_close(mics_split *split);

/* Adds a pattern, to be applied inside the pieces of those before it. `where` names it in errors.
 *
 * Returns: MICS_OK; MICS_ERR_FORMAT (does not compile); MICS_ERR_UNSUPPORTED (looks behind, or is
 *          one too many); MICS_ERR_MEMORY.
 */
mics_status mics_split_add(mics_split *split, const char *where, const char *pattern);

mics_status mics_split_work_open(const mics_split *split, mics_split_work **work_out);
void mics_split_work_close(mics_split_work *work);

// Receives the pieces in order; an error ends the splitting.
typedef struct mics_split_sink {
    mics_status (*piece)(void *ctx, const char *text, size_t bytes);
    void *ctx;
} mics_split_sink;

/* Splits valid UTF-8.
 *
 * With `more`, text will follow that is not known yet: only pieces that it cannot change are given.
 * Without, *consumed_out = bytes.
 * A text has 0.1 s of CPU time, and 4 us for each byte; a match 64 MiB of memory.
 * Returns: MICS_OK; MICS_ERR_FORMAT (a pattern that needs more: which, where); the sink's status;
 * MICS_ERR_MEMORY.
 */
mics_status mics_split_run(mics_split_work *work, const char *text, size_t bytes, bool more,
                           mics_split_sink sink, size_t *consumed_out);

#endif
