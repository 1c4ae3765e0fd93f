// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Samples of chats: which train and which validate, and reading sequences of them.
#include "base/free.h"
#include "mics/log.h"
#include "samples.h"
#include <string.h>

// ---- dividing ----

// Some of a corpus' samples: `count` from `first` on.
typedef struct span {
    int64_t first, count;
} span;

static mics_status check_longest(const run_samples *samples, span of)
{
    const int64_t *begins = mics_corpus_begins(samples->corpus);
    int64_t longer = 0, longest = 0;
    for (int64_t i = of.first; i < of.first + of.count; i++) {
        const int64_t tokens = begins[i + 1] - begins[i];
        longer += tokens > samples->sequence;
        longest = tokens > longest ? tokens : longest;
    }
    if (longer == 0)
        return MICS_OK;
    return mics_fail(
        MICS_ERR_INVALID,
        "data.too_long: %lld of %lld samples are longer than a data.sequence_length of "
        "%lld, the longest has %lld tokens; make that longer, or take \"truncate\" or "
        "\"drop\"",
        (long long)longer, (long long)of.count, (long long)samples->sequence, (long long)longest);
}

// Packs a part: of a mixture, or all.
static mics_status open_part(mics_memory *memory, run_samples *samples, int32_t part, span of,
                             mics_run_too_long too_long)
{
    const mics_packing_spec spec = {.begins = mics_corpus_begins(samples->corpus) + of.first,
                                    .count = of.count / samples->each,
                                    .sequence = samples->sequence,
                                    .seed = samples->seed,
                                    .part = part,
                                    .packs = samples->packs,
                                    .pairs = samples->each > 1,
                                    .drops_long = too_long == MICS_RUN_DROP};
    if (too_long == MICS_RUN_TOO_LONG_ERROR)
        MICS_TRY(check_longest(samples, of));
    samples->firsts[part] = of.first;
    MICS_TRY(mics_packing_open(memory, &spec, &samples->packings[part]));
    const int64_t rows = mics_packing_facts_get(samples->packings[part]).rows;
    samples->windows += rows;
    if (samples->parts != NULL)
        samples->parts[part].windows = rows;
    return MICS_OK;
}

static mics_status open_space(mics_memory *memory, const mics_run *run, run_samples *samples)
{
    const bool mixes = run->train_weights != NULL && samples->packing_count > 1;
    MICS_TRY(MICS_NEW(memory, samples->packing_count, &samples->packings));
    MICS_TRY(MICS_NEW(memory, samples->packing_count, &samples->firsts));
    if (!mixes)
        return MICS_OK;
    MICS_TRY(MICS_NEW(memory, samples->packing_count, &samples->parts));
    samples->part_count = samples->packing_count;
    for (int32_t i = 0; i < samples->part_count; i++)
        samples->parts[i].weight = run->train_weights[i];
    return MICS_OK;
}

// The samples of a part; without weights all are one.
static span part_of(const run_samples *samples, const mics_corpus *corpus, int32_t part)
{
    if (samples->parts == NULL)
        return (span){0, mics_corpus_samples(corpus)};
    const mics_corpus_share share = mics_corpus_share_get(corpus, part);
    return (span){share.first, share.count};
}

static mics_status check_count(const mics_run *run, int32_t part, span of, bool hold_out)
{
    const int64_t needed = hold_out ? 2 : 1;
    of.count /= mics_run_sequences_each(run);
    if (of.count >= needed)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID, "data.train: %s has %lld %s, and at least %lld are needed%s",
                     run->train[part], (long long)of.count,
                     run->preference.kind != MICS_PREFERENCE_NONE ? "pairs" : "samples",
                     (long long)needed,
                     hold_out ? ", one of them for validation; \"run.validation_batches\": 0 holds "
                                "none out"
                              : "");
}

static mics_status divide_part(mics_memory *memory, const mics_run *run, int32_t part,
                               bool hold_out, run_samples *train, run_samples *held)
{
    span all = part_of(train, train->corpus, part), last = {0};
    MICS_TRY(check_count(run, part, all, hold_out));
    if (hold_out) {
        last.count = run_samples_held_of(all.count / train->each) * train->each;
        all.count -= last.count;
        last.first = all.first + all.count;
        const mics_status status = open_part(memory, held, part, last, run->too_long);
        if (status != MICS_OK)
            mics_log_add("these are the last twentieth, which is held out for validation");
        MICS_TRY(status);
    }
    return open_part(memory, train, part, all, run->too_long);
}

// Nothing would be learned.
static mics_status check_counted(const mics_run *run, const mics_corpus *corpus, int64_t sequence)
{
    int64_t counted = 0;
    for (int32_t i = 0; i < run->train_count; i++)
        counted += mics_corpus_share_get(corpus, i).counted;
    if (counted > 0)
        return MICS_OK;
    if (run->preference.kind != MICS_PREFERENCE_NONE)
        return mics_fail(MICS_ERR_INVALID,
                         "data.train: no answer of its %lld pairs begins in the first %lld tokens "
                         "(data.sequence_length); make it longer",
                         (long long)mics_corpus_samples(corpus) / 2, (long long)sequence);
    return mics_fail(MICS_ERR_INVALID,
                     "data.train: no token of its %lld samples counts, as none has a message of "
                     "\"assistant\" or a completion in the first %lld tokens "
                     "(data.sequence_length); data.loss_on \"all\" counts all tokens",
                     (long long)mics_corpus_samples(corpus), (long long)sequence);
}

mics_status run_samples_divide_chats(mics_memory *memory, const mics_run *run,
                                     const mics_corpus *train, const mics_corpus *validation,
                                     int64_t sequence, bool hold_out, run_samples *train_out,
                                     run_samples *validation_out)
{
    const run_samples usual = {.corpus = train,
                               .seed = run->seed,
                               .sequence = sequence,
                               .each = (int32_t)mics_run_sequences_each(run),
                               .packs = run->packing,
                               .drops_long = run->too_long == MICS_RUN_DROP};
    *train_out = *validation_out = usual;
    train_out->packing_count = run->train_weights != NULL ? run->train_count : 1;
    validation_out->seed = run_samples_validation_seed(run->seed);
    hold_out = hold_out && validation == NULL;
    MICS_TRY(check_counted(run, train, sequence));
    MICS_TRY(open_space(memory, run, train_out));
    validation_out->packing_count = hold_out ? train_out->packing_count : 1;
    validation_out->corpus = validation != NULL ? validation : train;
    if (hold_out || validation != NULL)
        MICS_TRY(open_space(memory, run, validation_out));
    for (int32_t i = 0; i < train_out->packing_count; i++)
        MICS_TRY(divide_part(memory, run, i, hold_out, train_out, validation_out));
    if (validation == NULL)
        return MICS_OK;
    const span all = {0, mics_corpus_samples(validation)};
    return open_part(memory, validation_out, 0, all, run->too_long);
}

// ---- reading ----

// The samples of sequence `number`, as the corpus counts them: of a pair's two each has one.
static mics_status find_items(const run_samples *samples, int64_t number, int64_t *items_out,
                              int64_t *count_out)
{
    const int64_t each = samples->each, side = number % each;
    int32_t part = 0;
    number /= each;
    if (samples->listed != NULL) {
        *items_out = samples->listed[number] + side;
        *count_out = 1;
        return MICS_OK;
    }
    if (samples->parts != NULL) {
        const mics_mixture_sample at =
            mics_mixture_find(samples->seed, samples->parts, samples->part_count, number);
        part = at.part;
        number = at.index;
    }
    MICS_TRY(mics_packing_row(samples->packings[part], number, items_out, count_out));
    for (int64_t i = 0; i < *count_out; i++)
        items_out[i] = samples->firsts[part] + items_out[i] * each + side;
    return MICS_OK;
}

// Tokens of a sample that a sequence has.
static int64_t tokens_of(const run_samples *samples, int64_t item)
{
    const int64_t *begins = mics_corpus_begins(samples->corpus);
    const int64_t tokens = begins[item + 1] - begins[item];
    return tokens < samples->sequence ? tokens : samples->sequence;
}

// A sample's tokens, each with the next one as its target, where that counts.
static mics_status read_item(const run_samples *samples, int64_t item, int64_t tokens, int32_t *row,
                             int32_t *inputs_out, int32_t *targets_out)
{
    const int64_t *begins = mics_corpus_begins(samples->corpus);
    MICS_TRY(mics_corpus_read(samples->corpus, begins[item], tokens, row));
    for (int64_t t = 0; t < tokens; t++) {
        const bool counts = t + 1 < tokens && (row[t + 1] & MICS_SAMPLE_COUNTS) != 0;
        inputs_out[t] = row[t] >> MICS_SAMPLE_SHIFT;
        targets_out[t] = counts ? row[t + 1] >> MICS_SAMPLE_SHIFT : -1;
    }
    return MICS_OK;
}

mics_status run_samples_read_chats(const run_samples *samples, int64_t first, int64_t count,
                                   run_scratch *scratch, int32_t *inputs_out, int32_t *targets_out)
{
    const int64_t length = samples->sequence;
    for (int64_t i = 0; i < count; i++) {
        int32_t *inputs = inputs_out + i * length, *targets = targets_out + i * length;
        int64_t items = 0, at = 0;
        MICS_TRY(find_items(samples, first + i, scratch->items, &items));
        for (int64_t s = 0; s < items; s++) {
            const int64_t tokens = tokens_of(samples, scratch->items[s]);
            MICS_TRY(read_item(samples, scratch->items[s], tokens, scratch->row, inputs + at,
                               targets + at));
            at += tokens;
        }
        for (; at < length; at++) { // padding
            inputs[at] = 0;
            targets[at] = -1;
        }
    }
    return MICS_OK;
}

mics_status run_samples_item(const run_samples *samples, int64_t number, run_scratch *scratch,
                             int64_t *item_out)
{
    int64_t items = 0;
    MICS_TRY(find_items(samples, number, scratch->items, &items));
    *item_out = scratch->items[0];
    return MICS_OK;
}

mics_status run_samples_references(const run_samples *samples, int64_t first, int64_t count,
                                   run_scratch *scratch, float *references_out)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t item = 0;
        MICS_TRY(run_samples_item(samples, first + i, scratch, &item));
        references_out[i] = samples->references[item];
    }
    return MICS_OK;
}

mics_status run_samples_segments(const run_samples *samples, int64_t first, int64_t count,
                                 run_scratch *scratch, int32_t *segments_out)
{
    const int64_t length = samples->sequence;
    for (int64_t i = 0; i < count; i++) {
        int32_t *segments = segments_out + i * length;
        int64_t items = 0, at = 0;
        MICS_TRY(find_items(samples, first + i, scratch->items, &items));
        for (int64_t s = 0; s < items; s++) {
            const int64_t begin = at, end = at + tokens_of(samples, scratch->items[s]);
            for (; at < end; at++)
                segments[at] = (int32_t)begin;
        }
        for (; at < length; at++)
            segments[at] = -1;
    }
    return MICS_OK;
}
