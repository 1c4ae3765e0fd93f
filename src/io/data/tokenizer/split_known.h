// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Patterns of well-known tokenizers, matched by hand: several times as fast as by Oniguruma, and
// equal to it (tests/io/data/test_split.c).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Source: Radford et al., gpt-2/src/encoder.py, 2019.
#define MICS_SPLIT_GPT2                                                                            \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
// Source: the tokenizer.json of Llama 3 and of Qwen 2 and 3.
#define MICS_SPLIT_LLAMA3                                                                          \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"                      \
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define MICS_SPLIT_QWEN2                                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"                           \
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Bytes of the match at the head of a text; these patterns match everywhere. *open_out: the text's
 * end was looked at, so more text might change the match.
 *
 * Needs:   valid UTF-8, bytes >= 1; classes: those of mics_chars.
 */
typedef size_t mics_split_known(const uint8_t *classes, const char *text, size_t bytes,
                                bool *open_out);

/* The function for a pattern; NULL: none. */
mics_split_known *mics_split_known_find(const char *pattern);
