// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Samples of training and validation.
#include "samples.h"
#include "base/free.h"
#include "mics/log.h"
#include <string.h>
#include <xxhash.h>

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

// Makes a part of each source: the last of its windows are held out.
static mics_status divide_sources(const run_sources *sources, bool hold_out, run_samples *train,
                                  run_samples *held)
{
    const int64_t sequence = train->sequence, needed = hold_out ? 2 : 1;
    train->windows = held->windows = 0;
    for (int32_t i = 0; i < sources->count; i++) {
        mics_mixture_part *part = &train->parts[i];
        int64_t tokens = 0;
        mics_corpus_source(train->corpus, i, &part->begin, &tokens);
        const int64_t windows = mics_sample_count(tokens, sequence);
        if (windows < needed)
            return mics_fail(MICS_ERR_INVALID,
                             "data.train: the %lld tokens of %s are too few for a "
                             "data.sequence_length of %lld: at least %lld are needed; add text, "
                             "shorten the sequence or take it out of the mixture",
                             (long long)tokens, sources->paths[i], (long long)sequence,
                             (long long)(needed * sequence + 1));
        const int64_t last = hold_out ? run_samples_held_of(windows) : 0;
        part->weight = sources->weights[i];
        part->windows = windows - last;
        if (hold_out)
            held->parts[i] = (mics_mixture_part){.begin = part->begin + part->windows * sequence,
                                                 .windows = last,
                                                 .weight = part->weight};
        train->windows += part->windows;
        held->windows += last;
    }
    return MICS_OK;
}

static mics_status divide_mixture(mics_memory *memory, const run_sources *sources, bool hold_out,
                                  run_samples *train, run_samples *validation)
{
    MICS_TRY(MICS_NEW(memory, sources->count, &train->parts));
    train->part_count = sources->count;
    if (hold_out) {
        MICS_TRY(MICS_NEW(memory, sources->count, &validation->parts));
        validation->part_count = sources->count;
    }
    run_samples nothing = {0};
    return divide_sources(sources, hold_out, train, hold_out ? validation : &nothing);
}

mics_status run_samples_divide(mics_memory *memory, const run_sources *sources,
                               const mics_corpus *train, const mics_corpus *validation,
                               const run_masking *masking, uint64_t seed, int64_t sequence,
                               bool hold_out, run_samples *train_out, run_samples *validation_out)
{
    if (sequence <= run_masking_frame_tokens(masking))
        return mics_fail(MICS_ERR_INVALID,
                         "data.sequence_length: %lld tokens hold nothing but the tokenizer's "
                         "special tokens around a text; make it longer",
                         (long long)sequence);
    sequence -= run_masking_frame_tokens(masking);
    hold_out = hold_out && validation == NULL;
    int64_t windows = mics_sample_count(mics_corpus_tokens(train), sequence);
    MICS_TRY(check_windows("data.train", train, sequence, windows, hold_out ? 2 : 1));
    const int64_t held = hold_out ? run_samples_held_of(windows) : 0;
    run_samples other = {.corpus = train,
                         .masking = masking,
                         .seed = run_samples_validation_seed(seed),
                         .sequence = sequence,
                         .each = 1,
                         .first_window = windows - held,
                         .windows = held};
    if (validation != NULL) {
        other.corpus = validation;
        other.first_window = 0;
        other.windows = mics_sample_count(mics_corpus_tokens(validation), sequence);
        MICS_TRY(check_windows("data.validation", validation, sequence, other.windows, 1));
    }
    *train_out = (run_samples){.corpus = train,
                               .masking = masking,
                               .seed = seed,
                               .sequence = sequence,
                               .each = 1,
                               .windows = windows - held};
    *validation_out = other;
    return sources->weights != NULL
               ? divide_mixture(memory, sources, hold_out, train_out, validation_out)
               : MICS_OK;
}

void run_samples_fini(mics_memory *memory, run_samples *samples)
{
    for (int32_t i = 0; samples->packings != NULL && i < samples->packing_count; i++)
        mics_packing_close(samples->packings[i]);
    MICS_FREE_ALL(memory, samples->parts, samples->packings, samples->firsts);
    *samples = (run_samples){0};
}

double run_samples_share(const run_samples *samples, int32_t part)
{
    double weights = 0;
    for (int32_t i = 0; i < samples->part_count; i++)
        weights += samples->parts[i].weight;
    return samples->parts[part].weight / weights;
}

uint64_t run_samples_hash(const run_samples *samples)
{
    uint64_t hash = mics_corpus_hash(samples->corpus);
    const uint64_t how[] = {samples->packs, samples->drops_long};
    if (samples->packings != NULL)
        hash = XXH3_64bits_withSeed(how, sizeof how, hash);
    for (int32_t i = 0; i < samples->part_count; i++) {
        const double share = run_samples_share(samples, i);
        hash = XXH3_64bits_withSeed(&share, sizeof share, hash);
        hash = XXH3_64bits_withSeed(&samples->parts[i].begin, sizeof samples->parts[i].begin, hash);
    }
    return hash;
}

// First token of a sample.
static int64_t begin_of(const run_samples *samples, int64_t sample)
{
    const int64_t length = samples->sequence;
    if (samples->parts != NULL)
        return mics_mixture_begin(samples->seed, samples->parts, samples->part_count, length,
                                  sample);
    return samples->first_window * length +
           mics_sample_begin(samples->seed, samples->windows, length, sample);
}

mics_status run_scratch_init(mics_memory *memory, int64_t sequence, run_scratch *scratch_out)
{
    *scratch_out = (run_scratch){0};
    MICS_TRY(MICS_NEW(memory, sequence + 1, &scratch_out->row));
    return MICS_NEW(memory, sequence, &scratch_out->items);
}

void run_scratch_fini(mics_memory *memory, run_scratch *scratch)
{
    MICS_FREE_ALL(memory, scratch->row, scratch->items);
    *scratch = (run_scratch){0};
}

mics_status run_samples_read(const run_samples *samples, int64_t first, int64_t count,
                             run_scratch *scratch, int32_t *inputs_out, int32_t *targets_out)
{
    if (samples->packings != NULL)
        return run_samples_read_chats(samples, first, count, scratch, inputs_out, targets_out);
    const run_masking *masking = samples->masking;
    int32_t *row = scratch->row;
    const int64_t length = samples->sequence;
    const int64_t whole = length + run_masking_frame_tokens(masking);
    const size_t bytes = (size_t)length * sizeof(int32_t);
    for (int64_t i = 0; i < count && masking != NULL; i++) {
        int32_t *inputs = inputs_out + i * whole;
        MICS_TRY(mics_corpus_read(samples->corpus, begin_of(samples, first + i), length,
                                  inputs + masking->frame.before_count));
        run_masking_apply(masking, samples->seed, first + i, whole, inputs,
                          targets_out + i * whole);
    }
    for (int64_t i = 0; i < count && masking == NULL; i++) {
        MICS_TRY(mics_corpus_read(samples->corpus, begin_of(samples, first + i), length + 1, row));
        memcpy(inputs_out + i * length, row, bytes);
        memcpy(targets_out + i * length, row + 1, bytes);
    }
    return MICS_OK;
}

void run_samples_number(int32_t begin, const int32_t *tokens, int64_t rows, int64_t length,
                        int32_t *documents_out)
{
    for (int64_t row = 0; row < rows; row++) {
        int32_t document = 0;
        for (int64_t t = 0; t < length; t++) {
            document += t > 0 && tokens[row * length + t] == begin;
            documents_out[row * length + t] = document;
        }
    }
}
