// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// From a file of text, or of texts, to tokens.
#pragma once

#include "io/data/data.h"
#include "io/data/shard.h"
#include "io/data/text_window.h"

/* What a file's tokens depend on besides its contents: the tokenizer, what becomes of special tokens
 * in the text, how its name says that it is packed, and of files with several texts what they are,
 * the field that has them, and whether bad ones are passed over. Needs mics_reader_find_content. */
uint64_t mics_tokenize_identity(const mics_corpus_spec *spec, const mics_reader *reader);

// How far all files of a corpus have come that are tokenized.
typedef struct mics_tokenize_progress {
    int64_t files, bytes; // of those that are not in the cache, as far as that is known
    int64_t file, before; // number of the file in work, from 1; bytes of those before it
    double begun_us;      // when the first batch was written; 0: none was
    int64_t begun_bytes;  // read until then
    double shown_us;      // when it was last logged
    uint64_t skipped;     // bad lines of the files before this one
    uint64_t crlf;        // texts whose lines end in CR LF
} mics_tokenize_progress;

/* Appends the tokens of a file that was rewound, and whose content is known. A text file is one text;
 * of JSON Lines and tables each record's field is one. A byte order mark is passed over. Each stands behind the separator, if the tokenizer has one, or in its frame.
 *
 * Memory does not grow with a text file but with the threads, and with records as the longest
 * do, while they are in work. The tokens are those of the whole text at once, unless a piece
 * without a place to cut exceeds 4 MiB in a text file: it is cut there.
 * spec->threads make them, of batches of the file; what comes out does not depend on how many.
 * `mark` is what of the file is in the shard already; it is passed over. A shard that is kept is
 * marked every few seconds, and progress logged.
 * *empty_out: there was no text.
 * Returns: MICS_OK; as mics_text_window_fill, mics_shard_append; MICS_ERR_FORMAT, MICS_ERR_INVALID:
 *          a line, by its number. Logged.
 */
mics_status mics_tokenize(mics_text_window *window, const mics_corpus_spec *spec,
                          mics_shard_writer *writer, mics_shard_mark mark,
                          mics_tokenize_progress *progress, bool *empty_out);

// ---- text_shard.c: the cache ----

/* Finds or makes the shard of a file of text or texts.
 *
 * The shard is CACHE_DIR/<hash of contents and tokenizer>.bin. Several processes may ask at once:
 * one tokenizes while the others wait for its lock. A
 * process that is ended leaves what it has done to the next one, on the same machine. Where locks do not work, each tokenizes, and
 * the renames put equal files in place.
 * Returns: MICS_OK, with *shard_path_out = NULL for a file without text (mics_free it
 *          otherwise);
 *          MICS_ERR_IO; MICS_ERR_FORMAT; MICS_ERR_INVALID; MICS_ERR_MEMORY.
 */
mics_status mics_text_shard(mics_memory *memory, const mics_corpus_spec *spec, const char *path,
                            mics_tokenize_progress *progress, char **shard_path_out);
