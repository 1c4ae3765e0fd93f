// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The part of a text that is in memory while it is tokenized: it slides over the file.
#pragma once

#include "io/data/reader.h"

enum { MICS_TEXT_WINDOW_BYTES = 1 << 20 }; // capacity, unless it was widened

typedef struct mics_text_window {
    mics_reader reader;
    char *bytes; // [0, filled) is known, of `capacity`
    size_t filled, capacity;
    bool ended;             // nothing follows what is known
    size_t checked;         // of these bytes are UTF-8; by mics_text_window_check
    int64_t dropped, lines; // bytes before `bytes`; line ends before bytes + checked
} mics_text_window;

/* Opens a file; mics_text_window_rewind begins it. Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_MEMORY.
 * Owns: mics_text_window_close, also after a failure. */
mics_status mics_text_window_open(mics_memory *memory, const char *path,
                                  mics_text_window *window_out);
void mics_text_window_close(mics_text_window *window);

/* Goes back to the file's begin; its hash then has this seed. */
mics_status mics_text_window_rewind(mics_text_window *window, uint64_t seed);

/* Passes over the first `bytes` of a file that was rewound. Needs them, at most 64. */
mics_status mics_text_window_pass(mics_text_window *window, size_t bytes);

/* Fills the window up. Returns: as mics_reader_read. */
mics_status mics_text_window_fill(mics_text_window *window);

/* Checks that what is known is UTF-8, but for a character that the next bytes may complete; `any`:
 * all bytes will do.
 *
 * Returns: MICS_OK; MICS_ERR_FORMAT: the line, the offset and the byte that is none. */
mics_status mics_text_window_check(mics_text_window *window, bool any);

/* The same of a whole text, which `name` says where it is. */
mics_status mics_text_check(const char *name, const char *text, size_t bytes);

/* Slides over the first `bytes` bytes. */
void mics_text_window_drop(mics_text_window *window, size_t bytes);

/* Doubles the capacity. */
mics_status mics_text_window_widen(mics_text_window *window);

/* Takes the capacity back to MICS_TEXT_WINDOW_BYTES, unless more is known. */
mics_status mics_text_window_narrow(mics_text_window *window);
