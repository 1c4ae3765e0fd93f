// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A regular expression of a tokenizer.json: Oniguruma's, with bounds on what a text may cost, and
// with an answer to how far ahead it looks.
//
// Patterns that look behind (\b, ^, (?<=...)) are refused: what matches depends on what follows a
// place alone, so a text may be cut behind any match. Oniguruma takes its memory from malloc.
#pragma once

#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mics_pattern mics_pattern;
// What one thread needs to match.
typedef struct mics_matcher mics_matcher;

// Oniguruma's compiled pattern.
struct re_pattern_buffer;

/* Compiles. `where` names the pattern in errors.
 *
 * Returns: MICS_OK; MICS_ERR_FORMAT (does not compile); MICS_ERR_UNSUPPORTED (looks behind, is
 *          too long, or has [:punct:]); MICS_ERR_MEMORY.
 * Owns:    mics_pattern_close, which takes NULL too.     Threads: any, on one pattern at once.
 */
mics_status mics_pattern_open(mics_memory *memory, const char *where, const char *text,
                              mics_pattern **pattern_out);
void mics_pattern_close(mics_pattern *pattern);

mics_status mics_matcher_open(mics_memory *memory, mics_matcher **matcher_out);
void mics_matcher_close(mics_matcher *matcher);

/* Begins a text of `bytes`: finding may take 1 s of CPU time and 4 us for each byte, up to twice as
 * much where what is done between finds hides it. It is read before each place where a match may
 * begin, and there while retries are doubled; a match has 16 million, and some 80 MiB of stack.
 * One whose last retries are dearer than those before may take longer by their number. */
void mics_matcher_start(mics_matcher *matcher, size_t bytes);

// How a text is looked at: through a window that Oniguruma takes for the whole.
typedef struct mics_pattern_window {
    size_t end; // of the window
    // A match that begins before `starts` and ends at or before `ends` is one of the text as well.
    size_t starts, ends;
    size_t last_starts, last_ends; // the same for the text, when more of it follows
} mics_pattern_window;

/* Begins a text. `more`: it goes on, so only matches count that what follows cannot change.
 *
 * Needs:   valid UTF-8.
 */
void mics_pattern_window_init(const mics_pattern *pattern, const char *text, size_t bytes,
                              bool more, mics_pattern_window *window_out);

/* The first match that begins at `at` or behind it.
 *
 * Needs:   the text of the window, `at` <= bytes at a character.
 * Returns: MICS_OK (*begin_out and *end_out only with *found_out); MICS_ERR_FORMAT (a pattern that
 *          needs more retries, stack or time than a text may take: which, where); MICS_ERR_MEMORY.
 */
mics_status mics_matcher_find(mics_matcher *matcher, const mics_pattern *pattern,
                              mics_pattern_window *window, const char *text, size_t bytes,
                              size_t at, bool *found_out, size_t *begin_out, size_t *end_out);

// ---- how far a pattern looks ahead: pattern_reach.c ----

// See note "Reach" there.
typedef struct mics_pattern_reach {
    bool behind;                     // it looks behind
    bool far;                        // nothing is known of how far it looks
    int32_t rounds;                  // items that a way through the pattern has at most
    int32_t count;                   // of runs
    struct re_pattern_buffer **runs; // (count) each takes all characters that an item repeats over
} mics_pattern_reach;

/* Reads a pattern that Oniguruma has compiled.   Owns: mics_pattern_reach_fini. */
mics_status mics_pattern_reach_init(mics_memory *memory, const char *text,
                                    mics_pattern_reach *reach_out);
void mics_pattern_reach_fini(mics_memory *memory, mics_pattern_reach *reach);

/* A place behind everything that a match from `at` may look at; `bytes` when that is unknown. */
size_t mics_pattern_reach_end(const mics_pattern_reach *reach, const char *text, size_t bytes,
                              size_t at);
