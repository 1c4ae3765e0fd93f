// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Sampling of text.
#include "base/rng.h"
#include "mics/engine.h"
#include "mics/log.h"
#include "saved.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Names the stream of random numbers of sampling.
enum { SAMPLING_STREAM = 0x67656e };

typedef struct candidate {
    float logit;
    int32_t token;
} candidate;

typedef struct writer {
    const mics_saved *saved;
    const mics_sampling *sampling;
    FILE *out;
    mics_decoder *decoder;
    int32_t *prompt;
    int64_t prompt_tokens;
    mics_token_frame frame;
    int64_t capacity;      // tokens that the decoder holds
    int32_t *window;       // (capacity) what it was fed
    int64_t used, front;   // of them; at its begin, what the frame has before a text
    candidate *candidates; // (vocab)
    int32_t vocab;         // ids that the tokenizer knows and the model has
} writer;

// ---- drawing ----

// Most likely first; equal ones by id, so that the order is one.
static int compare_candidates(const void *a, const void *b)
{
    const candidate *left = a, *right = b;
    if (left->logit > right->logit)
        return -1;
    if (left->logit < right->logit)
        return 1;
    return left->token - right->token;
}

static int32_t draw(const writer *self, const float *logits, int64_t index)
{
    const mics_sampling *sampling = self->sampling;
    for (int32_t token = 0; token < self->vocab; token++)
        self->candidates[token] = (candidate){logits[token], token};
    qsort(self->candidates, (size_t)self->vocab, sizeof *self->candidates, compare_candidates);
    int32_t count = self->vocab;
    if (sampling->top_k > 0 && sampling->top_k < count)
        count = (int32_t)sampling->top_k;
    if (!(sampling->temperature > 0))
        return self->candidates[0].token;
    double sum = 0, best = (double)self->candidates[0].logit;
    for (int32_t i = 0; i < count; i++)
        sum += exp(((double)self->candidates[i].logit - best) / sampling->temperature);
    double left = sum * mics_rng_uniform(sampling->seed, SAMPLING_STREAM, (uint64_t)index);
    for (int32_t i = 0; i < count; i++) {
        left -= exp(((double)self->candidates[i].logit - best) / sampling->temperature);
        if (left < 0)
            return self->candidates[i].token;
    }
    return self->candidates[0].token;
}

// ---- feeding ----

// Makes place: what stands before the text stays there, and of the text its newer half.
static mics_status forget(writer *self, const float **logits_out)
{
    const int64_t kept = (self->capacity - self->front) / 2;
    memmove(self->window + self->front, self->window + (self->used - kept),
            (size_t)kept * sizeof(int32_t));
    self->used = self->front + kept;
    mics_decoder_reset(self->decoder);
    for (int64_t i = 0; i < self->used; i++)
        MICS_TRY(mics_decoder_feed(self->decoder, self->window[i], logits_out));
    return MICS_OK;
}

static mics_status feed(writer *self, int32_t token, const float **logits_out)
{
    if (self->used == self->capacity)
        MICS_TRY(forget(self, logits_out));
    self->window[self->used++] = token;
    return mics_decoder_feed(self->decoder, token, logits_out);
}

// One token at least.
static mics_status feed_all(writer *self, const int32_t *tokens, int64_t count,
                            const float **logits_out)
{
    int64_t i = 0;
    do {
        if (tokens[i] >= self->saved->model->vocab)
            return mics_fail(MICS_ERR_INVALID,
                             "%s: its tokenizer makes token %d of the prompt, but the model's "
                             "vocab_size is %lld; is it another model's tokenizer?",
                             self->saved->path, (int)tokens[i],
                             (long long)self->saved->model->vocab);
        MICS_TRY(feed(self, tokens[i], logits_out));
    } while (++i < count);
    return MICS_OK;
}

// The end of the prompt that fits, behind what stands before a text; nothing at all is the
// separator.
static mics_status feed_prompt(writer *self, const float **logits_out)
{
    int32_t separator = mics_tokenizer_separator(self->saved->tokenizer);
    const int64_t fit = self->capacity - self->front;
    const int64_t first = self->prompt_tokens > fit ? self->prompt_tokens - fit : 0;
    separator = separator >= 0 ? separator : 0;
    if (self->front > 0)
        MICS_TRY(feed_all(self, self->frame.before, self->front, logits_out));
    if (self->prompt_tokens > 0)
        return feed_all(self, self->prompt + first, self->prompt_tokens - first, logits_out);
    return self->front > 0 ? MICS_OK : feed_all(self, &separator, 1, logits_out);
}

static bool is_end(const mics_saved *saved, int32_t token)
{
    for (int32_t i = 0; i < saved->end_count; i++) {
        if (saved->ends[i] == token)
            return true;
    }
    return false;
}

static mics_status write_token(const writer *self, int32_t token)
{
    char *text = NULL;
    size_t bytes = 0;
    MICS_TRY(mics_tokenizer_decode_more(self->saved->tokenizer, &token, 1, &text, &bytes));
    bool good = fwrite(text, 1, bytes, self->out) == bytes && fflush(self->out) == 0;
    mics_free(self->saved->memory, text);
    return good ? MICS_OK : mics_fail(MICS_ERR_IO, "writing the text: %s", strerror(errno));
}

static mics_status write_all(writer *self)
{
    const float *logits = NULL;
    MICS_TRY(feed_prompt(self, &logits));
    for (int64_t i = 0; i < self->sampling->tokens; i++) {
        const int32_t token = draw(self, logits, i);
        if (is_end(self->saved, token))
            break;
        MICS_TRY(write_token(self, token));
        if (i + 1 < self->sampling->tokens)
            MICS_TRY(feed(self, token, &logits));
    }
    return MICS_OK;
}

// The decoder holds what will be fed, but no more than the positions that training used.
static int64_t needed(const writer *self)
{
    const int64_t sequence = self->saved->sequence;
    const int64_t prompt = self->frame.before_count + self->prompt_tokens;
    const int64_t tokens = self->sampling->tokens > 1 ? self->sampling->tokens : 1;
    return prompt < sequence && tokens < sequence - prompt ? prompt + tokens : sequence;
}

static mics_status open_writer(writer *self, const char *prompt)
{
    const mics_saved *saved = self->saved;
    const mics_model *model = saved->model;
    int32_t known = mics_tokenizer_vocab(saved->tokenizer);
    self->vocab = known < model->vocab ? known : (int32_t)model->vocab;
    MICS_TRY(mics_tokenizer_encode(saved->tokenizer, prompt, strlen(prompt),
                                   self->sampling->special_tokens, &self->prompt,
                                   &self->prompt_tokens));
    MICS_TRY(run_saved_frame(saved, &self->frame));
    self->capacity = needed(self);
    if (self->frame.before_count < self->capacity)
        self->front = self->frame.before_count;
    MICS_TRY(mics_decoder_open(saved->memory, model, (const float *const *)saved->params, NULL,
                               self->capacity, &self->decoder));
    MICS_TRY(MICS_NEW(saved->memory, self->capacity, &self->window));
    return MICS_NEW(saved->memory, self->vocab, &self->candidates);
}

mics_status mics_saved_generate(const mics_saved *saved, const char *prompt,
                                const mics_sampling *sampling, FILE *out)
{
    writer self = {.saved = saved, .sampling = sampling, .out = out};
    mics_status status = open_writer(&self, prompt);
    if (status == MICS_OK)
        status = write_all(&self);
    mics_decoder_close(self.decoder);
    mics_free(saved->memory, self.prompt);
    mics_free(saved->memory, self.candidates);
    mics_free(saved->memory, self.window);
    return status;
}
