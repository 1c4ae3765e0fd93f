// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// From a file of text, or of texts, to tokens.
#ifndef MICS_DATA_TOKENIZE_H
#define MICS_DATA_TOKENIZE_H

#include "io/data/shard.h"
#include "io/data/text_window.h"
#include "mics/data.h"

/* What a file's tokens depend on besides its contents: the tokenizer, how its name says that it is
 * packed, and of files with several texts the field that has them. */
uint64_t mics_tokenize_identity(const mics_corpus_spec *spec, const char *path);

/* Appends the tokens of a file that was rewound. A text file is one text; of JSON Lines each line's
 * field is one. Each stands behind the separator, if the tokenizer has one, or in its frame.
 *
 * Memory does not grow with a text file, and with JSON Lines as the longest line does. The tokens
 * are those of the whole text at once, unless a piece without a place to cut exceeds 4 MiB in a
 * text file: it is cut there.
 * *empty_out: there was no text.
 * Returns: MICS_OK; as mics_text_window_fill, mics_shard_append; MICS_ERR_FORMAT, MICS_ERR_INVALID:
 *          a line, by its number. Logged.
 */
mics_status mics_tokenize(mics_text_window *window, const mics_corpus_spec *spec,
                          mics_shard_writer *writer, bool *empty_out);

#endif
