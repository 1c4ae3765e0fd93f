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

// CAPITALIZE: the first letter is upper, the rest lower. TITLE: so in each run of letters. WORDS, of
// Jinja's filter `title`: so behind spaces, - and opening brackets.
typedef enum mics_case {
    MICS_CASE_UPPER,
    MICS_CASE_LOWER,
    MICS_CASE_CAPITALIZE,
    MICS_CASE_TITLE,
    MICS_CASE_WORDS,
} mics_case;

/* Bits of the character at the head of a text, and its bytes. Needs bytes >= 1. */
int mics_letter(const char *text, size_t bytes, size_t *length_out);
/* The character itself; what is no UTF-8 is one byte and U+FFFD. */
uint32_t mics_text_code(const char *text, size_t bytes, size_t *length_out);
/* Characters of a text. */
int64_t mics_text_count(mics_value text);
/* Byte at which a character begins; all bytes for one behind the end. */
size_t mics_text_at(mics_value text, int64_t index);
/* From one byte to another. */
mics_value mics_text_part(mics_value text, size_t begin, size_t end);
/* Byte at which `needle` stands first at or behind `from`; SIZE_MAX: nowhere. */
size_t mics_text_find(mics_value text, mics_value needle, size_t from);
/* Whether it has `part` at its head, or at its end. */
bool mics_text_begins(mics_value text, mics_value part);
bool mics_text_has_end(mics_value text, mics_value part);
/* Without the characters of `chars` (not a string: spaces) at its left or right end. */
mics_value mics_text_strip(mics_value text, mics_value chars, bool left, bool right);
/* In another case. Of some 100 characters that is several characters: they raise. */
mics_value mics_text_case(mics_work *work, mics_value text, mics_case to);
/* With each `from`, up to `most` (below 0: all), replaced. */
mics_value mics_text_replace(mics_work *work, mics_value text, mics_value from, mics_value to,
                             int64_t most);
/* Lines without their ends, as a list. */
mics_value mics_text_lines(mics_work *work, mics_value text);
/* With &, <, >, ' and " as entities, and safe. */
mics_value mics_text_escape(mics_work *work, mics_value text);
