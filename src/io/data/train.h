// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Training a tokenizer: byte-level BPE with GPT-2's pattern. Its merges are those of Hugging Face's
// tokenizers (BpeTrainer) for the same texts.
//
// Source: Sennrich et al., Neural Machine Translation of Rare Words with Subword Units, 2016,
// arXiv:1508.07909; tokenizers 0.23, models/bpe/trainer.rs, for ties and for what is merged twice.
#pragma once

#include "io/data/data.h"
#include "io/data/words.h"
#include "mics/log.h"

typedef struct mics_train_spec {
    mics_corpus_spec corpus;     // of texts alone; without tokenizer and cache
    const char *const *specials; // special tokens, the first ids
    int32_t special_count;
    int64_t min_frequency; // of a pair that is merged
    mics_work_listener work;
} mics_train_spec;

/* Trains a tokenizer of `corpus.vocab` tokens and writes its tokenizer.json, as Tokenizer.save does.
 * It has fewer, with a warning, where the texts have no more pairs.
 *
 * Needs:   min_frequency >= 1.
 * Returns: MICS_OK; MICS_ERR_INVALID (a vocabulary without space for bytes and special tokens, a
 *          special token that is empty or given twice; no text); as mics_train_count; MICS_ERR_IO.
 */
mics_status mics_train(mics_memory *memory, const mics_train_spec *spec, const char *path,
                       int32_t *vocab_out);

/* train_count.c: adds the words that GPT-2's pattern cuts texts into, in no certain order. Records
 * are texts, and lines of plain text are, with their ends, as in Tokenizer.train.
 *
 * Returns: MICS_OK; MICS_ERR_FORMAT (no UTF-8, by line and byte; a bad record); MICS_ERR_INVALID;
 *          MICS_ERR_IO; MICS_ERR_MEMORY. Logged.
 */
mics_status mics_train_count(mics_memory *memory, const mics_corpus_spec *spec, mics_words *words);
