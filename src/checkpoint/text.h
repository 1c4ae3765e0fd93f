// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A text that grows while it is written, and JSON strings in it. A failed allocation sticks: later
// calls do nothing, and mics_ckpt_text_status tells it once at the end.
#ifndef MICS_CHECKPOINT_TEXT_H
#define MICS_CHECKPOINT_TEXT_H

#include "mics/log.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stddef.h>

// Begin with {.memory = ...}; end with mics_ckpt_text_fini. `bytes` is NUL-terminated once used.
typedef struct mics_ckpt_text {
    mics_memory *memory;
    char *bytes;
    size_t used; // without the NUL
    size_t capacity;
    mics_status status;
} mics_ckpt_text;

/* Appends formatted text. */
void mics_ckpt_text_printf(mics_ckpt_text *text, const char *format, ...) MICS_PRINTF(2, 3);

/* Appends `string` as a JSON string with its quotes. Bytes from 0x80 on are taken as UTF-8. */
void mics_ckpt_text_quoted(mics_ckpt_text *text, const char *string);

/* MICS_OK, or the first failure (already logged). */
mics_status mics_ckpt_text_status(const mics_ckpt_text *text);

void mics_ckpt_text_fini(mics_ckpt_text *text);

#endif
