// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Samples of training and validation.
#include "samples.h"
#include "mics/log.h"
#include <string.h>

enum { HOLD_OUT_SHARE = 20 };

// Far from the small numbers that people choose as seeds.
static const uint64_t VALIDATION_SEED = UINT64_C(0x76616c6964617465);

static mics_status check_windows(const char *what, const mics_corpus *corpus, int64_t sequence,
                                 int64_t windows, int64_t needed)
{
    if (windows >= needed)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: %lld tokens are too few for a data.sequence_length of %lld: at least "
                     "%lld are needed; add text or shorten the sequence",
                     what, (long long)mics_corpus_tokens(corpus), (long long)sequence,
                     (long long)(needed * sequence + 1));
}

mics_status run_samples_divide(const mics_corpus *train, const mics_corpus *validation,
                               uint64_t seed, int64_t sequence, bool hold_out,
                               run_samples *train_out, run_samples *validation_out)
{
    hold_out = hold_out && validation == NULL;
    int64_t windows = mics_sample_count(mics_corpus_tokens(train), sequence);
    MICS_TRY(check_windows("data.train", train, sequence, windows, hold_out ? 2 : 1));
    int64_t held = hold_out ? windows / HOLD_OUT_SHARE : 0;
    if (hold_out && held == 0)
        held = 1;
    run_samples other = {.corpus = train,
                         .seed = seed ^ VALIDATION_SEED,
                         .sequence = sequence,
                         .first_window = windows - held,
                         .windows = held};
    if (validation != NULL) {
        other.corpus = validation;
        other.first_window = 0;
        other.windows = mics_sample_count(mics_corpus_tokens(validation), sequence);
        MICS_TRY(check_windows("data.validation", validation, sequence, other.windows, 1));
    }
    *train_out = (run_samples){
        .corpus = train, .seed = seed, .sequence = sequence, .windows = windows - held};
    *validation_out = other;
    return MICS_OK;
}

mics_status run_samples_read(const run_samples *samples, int64_t first, int64_t count, int32_t *row,
                             int32_t *inputs_out, int32_t *targets_out)
{
    int64_t length = samples->sequence;
    size_t bytes = (size_t)length * sizeof(int32_t);
    for (int64_t i = 0; i < count; i++) {
        int64_t begin = samples->first_window * length +
                        mics_sample_begin(samples->seed, samples->windows, length, first + i);
        MICS_TRY(mics_corpus_read(samples->corpus, begin, length + 1, row));
        memcpy(inputs_out + i * length, row, bytes);
        memcpy(targets_out + i * length, row + 1, bytes);
    }
    return MICS_OK;
}
