// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a terminal, or a shell that a line is copied to, would take for a command.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Whether a UTF-8 character of `bytes` bytes steers a terminal: below U+0020, and U+007F to U+009F. */
bool mics_terminal_is_control(const char *text, int32_t bytes);

/* A word as a shell takes it: in quotes where it needs them, $'...' where it steers a terminal. At
 * most `capacity` bytes with the NUL. Returns: `out`, or `text` where nothing need be done. */
const char *mics_terminal_word(const char *text, char *out, size_t capacity);

/* Standard output for the texts of models. On a terminal, bytes that steer it become points, but for
 * newlines and tabs; elsewhere it is stdout itself. Flush it before anything else is written there.
 *
 * Returns: never NULL.    Owns: close with mics_terminal_close.
 */
FILE *mics_terminal_open(void);
void mics_terminal_close(FILE *out);
