// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// UTF-8 as RFC 3629 allows it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Bytes of the character at the head of a text: 1 to 4; 0 when its first byte begins none; -1 when
 * the text ends inside what may become one. Needs bytes >= 1. */
int32_t mics_utf8_char(const char *text, size_t bytes);

/* Bytes of the longest head of a text that is whole characters. */
size_t mics_utf8_valid(const char *text, size_t bytes);

/* The character at `text`, which mics_utf8_char found to have `length` bytes. */
uint32_t mics_utf8_code(const char *text, int32_t length);
