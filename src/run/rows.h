// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Data of rows: chats, or prompts with completions, whose samples have lengths of their own.
#pragma once

#include "config/config.h"
#include "io/data/chats.h"
#include "mics/memory.h"
#include "mics/status.h"

/* Finds out by the first file whether a run's data are such rows, and settles data.packing,
 * data.template_date and the field of texts by it. What cannot be read is found again by whoever opens
 * the data.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID (data.template_date is no date; data.packing without chats);
 *          MICS_ERR_MEMORY. */
mics_status run_rows_settle(mics_memory *memory, mics_run *run);

/* Fields that its rows may have. */
mics_chat_columns run_rows_columns(const mics_run *run);

/* Opens what rows become tokens by; *chats_out NULL: the data are texts.
 *
 * Needs:   a run that is settled; the tokenizer, which is borrowed, and may be NULL for shards.
 * Returns: as mics_chats_open. Owns: mics_chats_close. */
mics_status run_rows_open(mics_memory *memory, const mics_run *run, const mics_tokenizer *tokenizer,
                          mics_chats **chats_out);
