// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What Unicode says about characters, as the tables of Oniguruma know it: so what is done here by
// hand and what its patterns do agree.
#pragma once

#include "mics/memory.h"
#include "mics/status.h"
#include <stddef.h>
#include <stdint.h>

// The classes of a character, as bits.
enum {
    MICS_CHAR_LETTER = 1,       // \p{L}
    MICS_CHAR_NUMBER = 2,       // \p{N}
    MICS_CHAR_SPACE = 4,        // White_Space
    MICS_CHAR_PUNCTUATION = 8,  // \p{P}, and the punctuation and symbols of ASCII
    MICS_CHAR_MARK = 16,        // \p{M}
    MICS_CHAR_WORD = 32,        // UTS 18's \w: Alphabetic, M, Nd, Pc, Join_Control
    MICS_CHAR_NONSPACING = 64,  // \p{Mn}
    MICS_CHAR_CONTROL = 128,    // \p{Cc}, \p{Cf} and \p{Co}
    MICS_CHAR_CODES = 0x110000, // there are so many characters
};

typedef struct mics_chars {
    mics_memory *memory;
    uint8_t *classes; // (MICS_CHAR_CODES)
} mics_chars;

/* Fills the table in.   Owns: mics_chars_fini, which takes a zeroed one too. */
mics_status mics_chars_init(mics_memory *memory, mics_chars *chars);
void mics_chars_fini(mics_chars *chars);

/* Classes of the character at the head of a text, and its bytes; bytes that are no UTF-8 are
 * characters of one byte without a class. Needs bytes >= 1. */
uint8_t mics_chars_at(const mics_chars *chars, const char *text, size_t bytes, size_t *length_out);

/* Classes of the character that ends where a text ends. Needs bytes >= 1. */
uint8_t mics_chars_before(const mics_chars *chars, const char *text, size_t bytes,
                          size_t *length_out);

/* Writes a character as UTF-8 (up to 4 bytes). Returns how many. */
size_t mics_chars_write(uint32_t code, char *to);

/* A number that is another one when a library that knows Unicode is of another version. */
uint64_t mics_chars_version(void);
