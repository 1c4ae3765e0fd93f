// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which tokens of a sample are hidden, and how.
#include "masking.h"
#include "base/rng.h"
#include "mics/log.h"

// Of each hundred tokens hidden; of each hundred of those.
enum { HIDDEN_PERCENT = 15, MASKED_PERCENT = 80, REPLACED_PERCENT = 10 };

// Streams of random numbers for: which tokens, how, by what.
static const uint64_t choice_stream = (uint64_t)0x6D << 56, kind_stream = (uint64_t)0x6E << 56,
                      token_stream = (uint64_t)0x6F << 56;

mics_status run_masking_init(mics_memory *memory, const mics_tokenizer *tokenizer,
                             const char *where, run_masking *masking_out)
{
    run_masking masking = {.memory = memory};
    masking.mask = tokenizer != NULL ? mics_tokenizer_mask(tokenizer) : -1;
    if (masking.mask < 0)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: an encoder is trained on hidden tokens, and this tokenizer has no "
                         "token for them; give a tokenizer.json with [MASK] or <mask> among its "
                         "added_tokens",
                         where);
    MICS_TRY(mics_tokenizer_frame(tokenizer, &masking.frame));
    if (masking.frame.before_count + masking.frame.after_count == 0)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: an encoder's samples begin with [CLS] and end with [SEP], and this "
                         "tokenizer puts nothing around a text: its \"post_processor\" needs "
                         "TemplateProcessing, BertProcessing or RobertaProcessing",
                         where);
    masking.vocab = mics_tokenizer_vocab(tokenizer);
    MICS_TRY(MICS_NEW(memory, masking.vocab, &masking.special));
    mics_tokenizer_specials(tokenizer, masking.special);
    *masking_out = masking;
    return MICS_OK;
}

void run_masking_fini(run_masking *masking)
{
    mics_free(masking->memory, masking->special);
    masking->special = NULL;
}

int64_t run_masking_frame_tokens(const run_masking *masking)
{
    return masking != NULL ? masking->frame.before_count + masking->frame.after_count : 0;
}

// A number below `count`.
static int64_t draw(uint64_t bits, int64_t count)
{
    return (int64_t)((bits >> 32) * (uint64_t)count >> 32);
}

// What the model sees of a hidden token.
static int32_t shown_as(const run_masking *masking, uint64_t seed, uint64_t place, int32_t token)
{
    const int64_t kind = draw(mics_rng_bits(seed, kind_stream, place), 100);
    if (kind < MASKED_PERCENT)
        return masking->mask;
    if (kind < MASKED_PERCENT + REPLACED_PERCENT)
        return (int32_t)draw(mics_rng_bits(seed, token_stream, place), masking->vocab);
    return token;
}

static bool may_hide(const run_masking *masking, int32_t token)
{
    return token < masking->vocab && !masking->special[token];
}

// Each of the tokens that are left is hidden as likely as the others (Knuth, algorithm 3.4.2 S).
static void hide(const run_masking *masking, uint64_t seed, uint64_t first_place, int64_t begin,
                 int64_t end, int32_t *inputs, int32_t *targets)
{
    int64_t left = 0;
    for (int64_t t = begin; t < end; t++)
        left += may_hide(masking, inputs[t]);
    int64_t wanted = (left * HIDDEN_PERCENT + 50) / 100;
    wanted = wanted > 0 ? wanted : 1;
    for (int64_t t = begin; t < end; t++) {
        const uint64_t place = first_place + (uint64_t)t;
        if (!may_hide(masking, inputs[t]))
            continue;
        if (draw(mics_rng_bits(seed, choice_stream, place), left--) >= wanted)
            continue;
        wanted--;
        targets[t] = inputs[t];
        inputs[t] = shown_as(masking, seed, place, inputs[t]);
    }
}

void run_masking_apply(const run_masking *masking, uint64_t seed, int64_t sample, int64_t length,
                       int32_t *inputs, int32_t *targets)
{
    const mics_token_frame *frame = &masking->frame;
    const int64_t begin = frame->before_count, end = length - frame->after_count;
    for (int64_t t = 0; t < begin; t++)
        inputs[t] = frame->before[t];
    for (int64_t t = end; t < length; t++)
        inputs[t] = frame->after[t - end];
    for (int64_t t = 0; t < length; t++)
        targets[t] = -1;
    hide(masking, seed, (uint64_t)sample * (uint64_t)length, begin, end, inputs, targets);
}
