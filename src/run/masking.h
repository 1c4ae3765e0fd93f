// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Samples of masked language modelling (Devlin et al., 2019, arXiv:1810.04805): some tokens are
// hidden from the model, and are its targets.
//
// A sample is consecutive tokens of the corpus in the tokenizer's frame: [CLS] ... [SEP], or
// <s> ... </s>. Of those that are not special, 15 % are hidden, rounded, and at least one: eight of
// ten become the mask token, one another token, one stays. Which is a function of the seed and the
// sample's number in the run, so it is the same on any mesh, and another in each epoch (Liu et al.,
// 2019, arXiv:1907.11692).
#pragma once

#include "io/data/data.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct run_masking {
    mics_memory *memory;
    int32_t mask, vocab; // the mask token; of the tokenizer: another token is below it
    bool *special;       // (vocab) never hidden
    mics_token_frame frame;
} run_masking;

/* Of a tokenizer, which must outlive it; NULL: nobody knows the text of the data.
 *
 * where: what asks for it, for errors.
 * Returns: MICS_OK; MICS_ERR_INVALID: it has no mask token, or puts nothing around a text;
 *          MICS_ERR_UNSUPPORTED, as mics_tokenizer_frame; MICS_ERR_MEMORY.
 * Owns:    run_masking_fini, which takes a zeroed one too.
 */
mics_status run_masking_init(mics_memory *memory, const mics_tokenizer *tokenizer,
                             const char *where, run_masking *masking_out);
void run_masking_fini(run_masking *masking);

/* Tokens of a sample that the frame has; 0 for NULL: no masking. */
int64_t run_masking_frame_tokens(const run_masking *masking);

/* Makes a sample: `inputs` has `length` places, of which those between the frame's hold its tokens.
 * Targets are the hidden tokens, -1 elsewhere.
 *
 * Needs:   length > run_masking_frame_tokens.
 */
void run_masking_apply(const run_masking *masking, uint64_t seed, int64_t sample, int64_t length,
                       int32_t *inputs, int32_t *targets);
