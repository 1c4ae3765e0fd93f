// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Writes text with a model: feeds a prompt, then draws one token after the other.
#ifndef MICS_RUN_SAMPLER_H
#define MICS_RUN_SAMPLER_H

#include "load.h"
#include <stdio.h>

typedef struct run_sampling {
    int64_t tokens;     // to draw
    double temperature; // 0: always the most likely token
    int64_t top_k;      // draw among so many; 0: all
    uint64_t seed;
} run_sampling;

/* Writes the prompt's continuation to a stream, token by token.
 *
 * Text may grow past the positions that training used: when they are used up, the newer half of
 * what stands there is fed again from position 0, and generation goes on from that. A prompt that
 * is longer counts with its end alone, likewise. An empty prompt starts from the tokenizer's
 * separator. Needs:   the parameters read. Returns: MICS_OK; MICS_ERR_IO (the stream);
 * MICS_ERR_MEMORY.
 */
mics_status run_sample_text(const run_saved *saved, const char *prompt,
                            const run_sampling *sampling, FILE *out);

#endif
