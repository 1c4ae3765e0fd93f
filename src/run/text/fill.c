// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What an encoder would put in place of a text's mask tokens.
#include "base/free.h"
#include "mics/log.h"
#include "run/masking.h"
#include "run/save/saved.h"
#include "run/save/saved_engine.h"
#include <math.h>
#include <string.h>

typedef struct filler {
    const mics_saved *saved;
    run_masking masking;
    int32_t *tokens; // (length), with the frame
    int64_t length;
    int32_t threads;
    float *logits; // (vocab)
} filler;

static mics_status read_text(void *ctx, int32_t micro_step, int32_t *inputs_out,
                             int32_t *targets_out)
{
    const filler *self = ctx;
    (void)micro_step;
    memcpy(inputs_out, self->tokens, (size_t)self->length * sizeof(int32_t));
    for (int64_t t = 0; t < self->length; t++)
        targets_out[t] = -1; // no loss is wanted
    return MICS_OK;
}

static mics_status check_tokens(const filler *self, int32_t *masks_out)
{
    const mics_saved *saved = self->saved;
    const mics_model *model = saved->model;
    int32_t masks = 0;
    if (self->length > saved->sequence)
        return mics_fail(MICS_ERR_INVALID,
                         "--fill: the text has %lld tokens with its special ones, and %s was "
                         "trained on %lld; shorten it",
                         (long long)self->length, saved->path, (long long)saved->sequence);
    for (int64_t t = 0; t < self->length; t++) {
        masks += self->tokens[t] == self->masking.mask;
        if (self->tokens[t] < 0 || self->tokens[t] >= model->vocab)
            return mics_fail(MICS_ERR_INVALID,
                             "%s: its tokenizer makes token %d of the text, but the model's "
                             "vocab_size is %lld; is it another model's tokenizer?",
                             saved->path, (int)self->tokens[t], (long long)model->vocab);
    }
    *masks_out = masks;
    return masks > 0 ? MICS_OK
                     : mics_fail(MICS_ERR_INVALID,
                                 "--fill: the text has no mask token; write [MASK] (BERT) or "
                                 "<mask> (RoBERTa) where a word is missing");
}

static mics_status encode(filler *self, const char *text)
{
    mics_memory *memory = self->saved->memory;
    const mics_token_frame *frame = &self->masking.frame;
    int32_t *own = NULL;
    int64_t count = 0;
    MICS_TRY(mics_tokenizer_check(self->saved->tokenizer, "--fill", text, strlen(text)));
    MICS_TRY(mics_tokenizer_encode(self->saved->tokenizer, text, strlen(text), 1, &own, &count));
    self->length = frame->before_count + count + frame->after_count;
    const mics_status status = MICS_NEW(memory, self->length, &self->tokens);
    for (int64_t t = 0; status == MICS_OK && t < self->length; t++) {
        const int64_t at = t - frame->before_count;
        self->tokens[t] = at < 0       ? frame->before[t]
                          : at < count ? own[at]
                                       : frame->after[at - count];
    }
    mics_free(memory, own);
    return status;
}

// The likeliest tokens that the tokenizer has, by repeated search: there are few.
static mics_status choose(const filler *self, mics_fill_choice *choices_out, int32_t count)
{
    const mics_tokenizer *tokenizer = self->saved->tokenizer;
    const int64_t vocab = self->saved->model->vocab;
    float highest = -INFINITY;
    double sum = 0;
    for (int64_t v = 0; v < vocab; v++)
        highest = self->logits[v] > highest ? self->logits[v] : highest;
    for (int64_t v = 0; v < vocab; v++)
        sum += exp((double)self->logits[v] - (double)highest);
    if (!isfinite(highest) || !isfinite(sum))
        return mics_fail(MICS_ERR_NUMERIC,
                         "%s: the model's logits are not finite; its parameters are not those of "
                         "a trained model",
                         self->saved->path);
    for (int32_t c = 0; c < count; c++) {
        int32_t best = 0;
        char *text = NULL;
        size_t bytes = 0;
        for (int32_t v = 1; v < self->masking.vocab && v < vocab; v++)
            best = self->logits[v] > self->logits[best] ? v : best;
        choices_out[c] = (mics_fill_choice){
            .token = best, .probability = exp((double)self->logits[best] - (double)highest) / sum};
        MICS_TRY(mics_tokenizer_decode(tokenizer, &best, 1, &text, &bytes));
        if (bytes >= sizeof choices_out[c].text)
            bytes = sizeof choices_out[c].text - 1;
        memcpy(choices_out[c].text, text, bytes);
        mics_free(self->saved->memory, text);
        self->logits[best] = -INFINITY;
    }
    return MICS_OK;
}

static mics_status fill_all(filler *self, int32_t count, mics_fill_choice *choices_out)
{
    run_saved_engine runs = {0};
    mics_step_result result;
    const mics_batch_source source = {.read = read_text, .ctx = self};
    mics_status status =
        run_saved_engine_open(self->saved, 1, self->length, 1, self->threads, "filling in", &runs);
    if (status == MICS_OK)
        status = mics_engine_eval(runs.engine, &source, &result);
    for (int64_t t = 0, mask = 0; status == MICS_OK && t < self->length; t++) {
        if (self->tokens[t] != self->masking.mask)
            continue;
        status = mics_engine_logits(runs.engine, t, 1, self->logits);
        if (status == MICS_OK)
            status = choose(self, choices_out + mask++ * count, count);
    }
    run_saved_engine_close(&runs);
    return status;
}

mics_status mics_saved_fill(const mics_saved *saved, const char *text, int32_t count,
                            int32_t threads, mics_fill_choice **choices_out, int32_t *masks_out)
{
    filler self = {.saved = saved, .threads = threads};
    mics_memory *memory = saved->memory;
    mics_fill_choice *choices = NULL;
    int32_t masks = 0;
    mics_status status = MICS_OK;
    if (!saved->model->masked)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: fills nothing in, as it is no encoder; give --prompt", saved->path);
    MICS_TRY_OUT(run_masking_init(memory, saved->tokenizer, saved->path, &self.masking));
    MICS_TRY_OUT(encode(&self, text));
    MICS_TRY_OUT(check_tokens(&self, &masks));
    MICS_TRY_OUT(MICS_NEW(memory, saved->model->vocab, &self.logits));
    MICS_TRY_OUT(MICS_NEW(memory, (int64_t)masks * count, &choices));
    MICS_TRY_OUT(fill_all(&self, count, choices));
    *choices_out = choices;
    *masks_out = masks;
    choices = NULL;
out:
    MICS_FREE_ALL(memory, choices, self.logits, self.tokens);
    run_masking_fini(&self.masking);
    return status;
}
