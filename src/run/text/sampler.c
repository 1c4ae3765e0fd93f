// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Sampling of texts. They share a prompt, and stand at the same position at any time: one that has
// ended is fed on, and nothing of it is written.
#include "base/clock.h"
#include "base/free.h"
#include "draw.h"
#include "mics/core/device.h"
#include "mics/core/engine.h"
#include "mics/log.h"
#include "run/save/saved.h"
#include "stops.h"
#include <math.h>
#include <string.h>

typedef struct text {
    FILE *out;
    int32_t *window; // (capacity) what it was fed
    bool *seen;      // (vocab) tokens that it has; NULL: nobody asks
    run_stops held;
    bool ended;
} text;

typedef struct writer {
    const mics_saved *saved;
    const mics_sampling *sampling;
    mics_decoder *decoder;
    int32_t *prompt;
    int64_t prompt_tokens;
    mics_token_frame frame;
    int64_t capacity;    // tokens that the decoder holds of a text
    int64_t used, front; // of them; at a window's begin, what the frame has before a text
    int32_t count;
    text *texts;      // (count)
    int32_t *windows; // (count, capacity)
    int32_t *newest;  // (count) token of each text
    bool *seen;       // (count, vocab); NULL: no penalty asks
    run_drawer drawer;
    double began_us;
    mics_generated generated;
} writer;

// ---- feeding ----

// What stands in the windows of some texts from `position` on.
static mics_status feed_windows(const writer *self, int32_t first, int32_t texts, int64_t position,
                                const float **logits_out)
{
    for (int32_t t = first; t < first + texts; t++) {
        const mics_decoder_feed_spec feed = {.tokens = self->texts[t].window + position,
                                             .first = t,
                                             .sequences = 1,
                                             .count = self->used - position,
                                             .position = position};
        MICS_TRY(mics_decoder_feed(self->decoder, &feed, logits_out));
    }
    return MICS_OK;
}

// Makes place: what stands before the text stays there, and of the text its newer half.
static mics_status forget(writer *self)
{
    const int64_t kept = (self->capacity - self->front) / 2;
    const float *unused = NULL;
    for (int32_t t = 0; t < self->count; t++) {
        int32_t *window = self->texts[t].window;
        memmove(window + self->front, window + (self->used - kept), (size_t)kept * sizeof(int32_t));
    }
    self->used = self->front + kept;
    return self->used > 0 ? feed_windows(self, 0, self->count, 0, &unused) : MICS_OK;
}

static mics_status feed_newest(writer *self, const float **logits_out)
{
    if (self->used == self->capacity)
        MICS_TRY(forget(self));
    for (int32_t t = 0; t < self->count; t++)
        self->texts[t].window[self->used] = self->newest[t];
    const mics_decoder_feed_spec feed = {
        .tokens = self->newest, .sequences = self->count, .count = 1, .position = self->used};
    self->used++;
    return mics_decoder_feed(self->decoder, &feed, logits_out);
}

// Appends to all windows.
static mics_status take(writer *self, const int32_t *tokens, int64_t count)
{
    const int64_t vocab = self->saved->model->vocab;
    for (int64_t i = 0; i < count; i++) {
        if (tokens[i] >= vocab)
            return mics_fail(MICS_ERR_INVALID,
                             "%s: its tokenizer makes token %d of the prompt, but the model's "
                             "vocab_size is %lld; is it another model's tokenizer?",
                             self->saved->path, (int)tokens[i], (long long)vocab);
    }
    for (int32_t t = 0; t < self->count; t++)
        memcpy(self->texts[t].window + self->used, tokens, (size_t)count * sizeof *tokens);
    self->used += count;
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
    if (first > 0)
        mics_log(MICS_LOG_WARNING,
                 "the prompt has %lld tokens, and the model positions for %lld of them: its last "
                 "ones count",
                 (long long)self->prompt_tokens, (long long)fit);
    if (self->front > 0)
        MICS_TRY(take(self, self->frame.before, self->front));
    if (self->prompt_tokens > 0)
        MICS_TRY(take(self, self->prompt + first, self->prompt_tokens - first));
    else if (self->front == 0)
        MICS_TRY(take(self, &separator, 1));
    self->generated.prompt_tokens = self->used;
    MICS_TRY(feed_windows(self, 0, 1, 0, logits_out));
    mics_decoder_spread(self->decoder, self->used);
    return MICS_OK;
}

// ---- writing ----

static bool is_end(const mics_saved *saved, int32_t token)
{
    for (int32_t i = 0; i < saved->end_count; i++) {
        if (saved->ends[i] == token)
            return true;
    }
    return false;
}

// Ends the text where a stop does.
static mics_status write_token(const writer *self, text *of, int32_t token)
{
    char *bytes = NULL;
    size_t count = 0;
    mics_memory *memory = self->saved->memory;
    MICS_TRY(mics_tokenizer_decode_more(self->saved->tokenizer, &token, 1, &bytes, &count));
    const mics_status status =
        run_stops_write(&of->held, memory, self->sampling, bytes, count, of->out, &of->ended);
    mics_free(memory, bytes);
    return status;
}

// Parameters that are not finite, as a diverged run leaves them, make logits that are not.
static mics_status check_logits(const writer *self, const float *logits)
{
    for (int32_t token = 0; token < self->drawer.vocab; token++) {
        if (!isfinite(logits[token]))
            return mics_fail(MICS_ERR_NUMERIC,
                             "%s: the model's logits are not finite, so no text can be drawn; its "
                             "parameters are not those of a trained model",
                             self->saved->path);
    }
    return MICS_OK;
}

// Token number `index` of each text that has not ended. After the prompt all have the same logits.
static mics_status draw_all(writer *self, const float *logits, int64_t index, bool *going_out)
{
    const int64_t stride = index > 0 ? self->saved->model->vocab : 0;
    *going_out = false;
    for (int32_t t = 0; t < self->count; t++) {
        text *of = &self->texts[t];
        if (of->ended)
            continue;
        MICS_TRY(check_logits(self, logits + t * stride));
        const int32_t token = run_draw(&self->drawer, logits + t * stride, of->seen,
                                       self->sampling->seed + (uint64_t)t, index);
        self->newest[t] = token;
        self->generated.tokens++;
        if (of->seen != NULL)
            of->seen[token] = true;
        of->ended = is_end(self->saved, token);
        if (!of->ended)
            MICS_TRY(write_token(self, of, token));
        *going_out = *going_out || !of->ended;
    }
    return MICS_OK;
}

static double passed_s(const writer *self)
{
    return (mics_clock_us() - self->began_us) * 1e-6;
}

static mics_status write_all(writer *self)
{
    const float *logits = NULL;
    bool going = self->sampling->tokens > 0;
    if (going)
        MICS_TRY(feed_prompt(self, &logits));
    for (int64_t i = 0; going; i++) {
        MICS_TRY(draw_all(self, logits, i, &going));
        if (i == 0)
            self->generated.first_s = passed_s(self);
        going = going && i + 1 < self->sampling->tokens;
        if (going)
            MICS_TRY(feed_newest(self, &logits));
    }
    self->generated.rest_s = passed_s(self) - self->generated.first_s;
    for (int32_t t = 0; t < self->count; t++)
        MICS_TRY(run_stops_end(&self->texts[t].held, self->texts[t].out));
    return MICS_OK;
}

// ---- the whole ----

// The decoder holds what will be fed, but no more than the positions that training used.
static int64_t needed(const writer *self)
{
    const int64_t sequence = self->saved->sequence;
    const int64_t prompt = self->frame.before_count + self->prompt_tokens;
    const int64_t tokens = self->sampling->tokens > 1 ? self->sampling->tokens : 1;
    return prompt < sequence && tokens < sequence - prompt ? prompt + tokens : sequence;
}

static mics_status open_decoder(writer *self)
{
    const mics_saved *saved = self->saved;
    mics_decoder_spec spec = {.model = saved->model,
                              .params = (const void *const *)saved->params,
                              .dtype = saved->dtype,
                              .sequences = self->count,
                              .capacity = self->capacity,
                              .threads = self->sampling->threads};
    if (spec.threads == 0) {
        mics_machine machine;
        MICS_TRY(mics_machine_read(&machine));
        spec.threads = machine.cores;
    }
    return mics_decoder_open(saved->memory, &spec, &self->decoder);
}

static void mark_seen(const writer *self, const int32_t *tokens, int64_t count, bool *seen)
{
    for (int64_t i = 0; i < count; i++) {
        if (tokens[i] < self->saved->model->vocab)
            seen[tokens[i]] = true;
    }
}

// The whole prompt counts, also what of it does not fit.
static mics_status open_seen(writer *self)
{
    const int64_t vocab = self->saved->model->vocab;
    MICS_TRY(MICS_NEW(self->saved->memory, self->count * vocab, &self->seen));
    for (int32_t t = 0; t < self->count; t++) {
        self->texts[t].seen = self->seen + t * vocab;
        mark_seen(self, self->prompt, self->prompt_tokens, self->texts[t].seen);
        mark_seen(self, self->frame.before, self->front, self->texts[t].seen);
    }
    return MICS_OK;
}

static void warn_of_specials(const writer *self, const char *prompt)
{
    const size_t bytes = strlen(prompt);
    size_t at = 0;
    if (!self->sampling->special_tokens &&
        mics_tokenizer_next_special(self->saved->tokenizer, prompt, bytes, bytes, &at) >= 0)
        mics_log(MICS_LOG_WARNING,
                 "the prompt names special tokens, which are plain text in it; --special-tokens "
                 "takes them as tokens");
}

static mics_status open_writer(writer *self, const char *prompt, FILE *const *outs)
{
    const mics_saved *saved = self->saved;
    const int32_t known = mics_tokenizer_vocab(saved->tokenizer);
    warn_of_specials(self, prompt);
    MICS_TRY(mics_tokenizer_encode(saved->tokenizer, prompt, strlen(prompt),
                                   self->sampling->special_tokens, &self->prompt,
                                   &self->prompt_tokens));
    MICS_TRY(run_saved_frame(saved, &self->frame));
    self->capacity = needed(self);
    if (self->frame.before_count < self->capacity)
        self->front = self->frame.before_count;
    MICS_TRY(MICS_NEW(saved->memory, self->count, &self->texts));
    MICS_TRY(MICS_NEW(saved->memory, self->count, &self->newest));
    MICS_TRY(MICS_NEW(saved->memory, self->count * self->capacity, &self->windows));
    for (int32_t t = 0; t < self->count; t++)
        self->texts[t] = (text){.out = outs[t], .window = self->windows + t * self->capacity};
    if (self->sampling->repetition_penalty > 0)
        MICS_TRY(open_seen(self));
    MICS_TRY(open_decoder(self));
    return run_drawer_init(&self->drawer, saved->memory, self->sampling,
                           known < saved->model->vocab ? known : (int32_t)saved->model->vocab);
}

mics_status mics_saved_generate_many(const mics_saved *saved, const char *prompt,
                                     const mics_sampling *sampling, int32_t texts,
                                     FILE *const *outs, mics_generated *generated_out)
{
    writer self = {
        .saved = saved, .sampling = sampling, .count = texts, .began_us = mics_clock_us()};
    mics_status status = open_writer(&self, prompt, outs);
    if (status == MICS_OK)
        status = write_all(&self);
    if (status == MICS_OK && generated_out != NULL)
        *generated_out = self.generated;
    mics_decoder_close(self.decoder);
    run_drawer_fini(&self.drawer, saved->memory);
    mics_free(saved->memory, self.prompt);
    for (int32_t t = 0; self.texts != NULL && t < texts; t++)
        run_stops_fini(&self.texts[t].held, saved->memory);
    MICS_FREE_ALL(saved->memory, self.seen, self.texts, self.newest, self.windows);
    return status;
}

mics_status mics_saved_generate(const mics_saved *saved, const char *prompt,
                                const mics_sampling *sampling, FILE *out)
{
    return mics_saved_generate_many(saved, prompt, sampling, 1, &out, NULL);
}
