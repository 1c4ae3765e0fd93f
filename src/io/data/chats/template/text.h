// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Strings as Python has them: counted in code points, with Unicode's letters and spaces.
#pragma once

#include "io/data/chats/template/work.h"

// What a character is, as bits.
enum {
    MICS_LETTER_ALPHA = 1,
    MICS_LETTER_DIGIT = 2,
    MICS_LETTER_UPPER = 4,
    MICS_LETTER_LOWER = 8,
    MICS_LETTER_SPACE = 16,
    MICS_LETTER_PRINTABLE = 32,
    MICS_LETTER_LINE_END = 64,
};

typedef enum mics_case {
    MICS_CASE_UPPER,
    MICS_CASE_LOWER,
    MICS_CASE_CAPITALIZE, // the first letter is upper, the rest lower
    MICS_CASE_TITLE,      // as Python's title(): so in each run of letters
    MICS_CASE_WORDS,      // as Jinja's filter `title`: behind spaces, - and opening brackets
} mics_case;

/* Bits of a character. */
int mics_letter(uint32_t code);
/* The character at the head of a text, and its bytes; what is no UTF-8 is one byte. Needs bytes >=
 * 1. */
uint32_t mics_text_code(const char *text, size_t bytes, size_t *length_out);
/* Characters of a text. */
int64_t mics_text_count(const char *text, size_t bytes);
/* Byte at which a character begins; `bytes` for one behind the end. */
size_t mics_text_at(const char *text, size_t bytes, int64_t index);
/* Byte at which `needle` stands first at or behind `from`, or SIZE_MAX. */
size_t mics_text_find(mics_value text, mics_value needle, size_t from);
/* The same for the last place before `end`. */
size_t mics_text_find_last(mics_value text, mics_value needle, size_t end);
/* Without the characters of `chars` (not a string: spaces) at its left or right end. */
mics_value mics_text_strip(mics_value text, mics_value chars, bool left, bool right);
/* Whether it has `part` at its head, or at its end. */
bool mics_text_begins(mics_value text, mics_value part);
bool mics_text_has_end(mics_value text, mics_value part);
/* Upper or lower case. Of some 100 characters the other case is several characters: they raise. */
mics_value mics_text_case(mics_work *work, mics_value text, mics_case to);
/* With each `from`, up to `most` (below 0: all), replaced. */
mics_value mics_text_replace(mics_work *work, mics_value text, mics_value from, mics_value to,
                             int64_t most);
/* Two texts as one. */
mics_value mics_text_concat(mics_work *work, mics_value a, mics_value b);
/* Lines without their ends, as a list. */
mics_value mics_text_lines(mics_work *work, mics_value text);
/* With &, <, >, ' and " as entities, and safe. */
mics_value mics_text_escape(mics_work *work, mics_value text);
