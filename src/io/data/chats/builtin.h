// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Chat templates by name, for tokenizers that come without one.
#pragma once

typedef struct mics_chat_builtin {
    const char *name;
    const char *text;
    const char *tokens[4]; // special tokens that it needs; ends with NULL
} mics_chat_builtin;

/* NULL: there is none of that name. */
const mics_chat_builtin *mics_chat_builtin_find(const char *name);
