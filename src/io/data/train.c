// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Pairs of tokens are merged, the most frequent first; of equally frequent ones the lower ids.
//
// A pair is queued with the words that it was met in since it was last queued. A count that has
// changed since is put right when its pair comes up. Two pairs may spell one token; then a pair that
// was merged can come up again, with what it counted before. As in tokenizers, its last merge
// counts.
#include "io/data/train.h"
#include "base/file.h"
#include "base/free.h"
#include "base/text.h"
#include "io/data/tokenizer/bpe.h"
#include <string.h>

// A word that has a pair, and the next place of the pair; 0: none.
typedef struct place {
    int32_t word, next;
} place;

typedef struct candidate {
    int64_t count;
    int32_t parts[2]; // tokens
    int32_t pair, places;
} candidate;

typedef struct training {
    mics_memory *memory;
    mics_words tokens; // by their spellings; a number is an id
    int32_t byte_token[256];
    mics_words words;
    int32_t *symbols; // tokens of words, where these begin, at first one a byte
    mics_words pairs; // by their two tokens; tag: places since it was last queued
    place *places;    // from number 1 on
    int32_t place_count;
    candidate *queue; // a heap of `queued`; behind it pairs that were met since, up to `met`
    int64_t queued, met, capacity;
    mics_token_list merges; // pairs
    mics_buffer spelling;
} training;

// ---- the queue ----

static bool is_before(const candidate *a, const candidate *b)
{
    if (a->count != b->count)
        return a->count > b->count;
    return a->parts[0] != b->parts[0] ? a->parts[0] < b->parts[0] : a->parts[1] < b->parts[1];
}

// Needs space for it.
static void push(training *self, candidate item)
{
    int64_t at = self->queued++;
    for (; at > 0 && is_before(&item, &self->queue[(at - 1) / 2]); at = (at - 1) / 2)
        self->queue[at] = self->queue[(at - 1) / 2];
    self->queue[at] = item;
}

static candidate pop(training *self)
{
    candidate *queue = self->queue;
    const candidate top = queue[0], last = queue[--self->queued];
    int64_t at = 0;
    for (int64_t child = 1; child < self->queued; child = 2 * at + 1) {
        child += child + 1 < self->queued && is_before(&queue[child + 1], &queue[child]);
        if (!is_before(&queue[child], &last))
            break;
        queue[at] = queue[child];
        at = child;
    }
    queue[at] = last;
    return top;
}

static void queue_met(training *self)
{
    for (int64_t i = self->queued; i < self->met; i++) {
        candidate item = self->queue[i];
        mics_word *pair = &self->pairs.items[item.pair];
        item.count = pair->count;
        item.places = pair->tag;
        pair->tag = 0;
        if (item.count > 0)
            push(self, item);
    }
    self->met = self->queued;
}

// ---- pairs ----

static mics_status change_pair(training *self, int32_t left, int32_t right, int64_t count,
                               mics_word **pair_out)
{
    const int32_t parts[] = {left, right};
    return mics_words_add(&self->pairs, (const char *)parts, sizeof parts, count, pair_out);
}

// Counts a pair that a word has.
static mics_status meet_pair(training *self, int32_t left, int32_t right, int32_t word)
{
    const candidate item = {.parts = {left, right}};
    mics_word *pair = NULL;
    MICS_TRY(change_pair(self, left, right, self->words.items[word].count, &pair));
    if (pair->tag != 0 && self->places[pair->tag].word == word)
        return MICS_OK;
    if (pair->tag == 0 && self->met == self->capacity) {
        void *queue = self->queue;
        self->capacity = 2 * self->capacity + 1024;
        MICS_TRY(mics_realloc(self->memory, MICS_MEM_HOST, (size_t)self->capacity * sizeof item,
                              &queue));
        self->queue = queue;
    }
    if (pair->tag == 0) {
        self->queue[self->met] = item;
        self->queue[self->met++].pair = (int32_t)(pair - self->pairs.items);
    }
    self->places[++self->place_count] = (place){.word = word, .next = pair->tag};
    pair->tag = self->place_count;
    return MICS_OK;
}

// ---- merging ----

static mics_status merge_word(training *self, int32_t number, const int32_t *parts, int32_t token)
{
    mics_word *word = &self->words.items[number], *pair = NULL;
    int32_t *at = self->symbols + word->begin;
    uint32_t to = 0;
    for (uint32_t i = 0; i < word->bytes; i++) {
        if (at[i] != parts[0] || i + 1 == word->bytes || at[i + 1] != parts[1]) {
            at[to++] = at[i];
            continue;
        }
        if (to > 0) {
            MICS_TRY(change_pair(self, at[to - 1], parts[0], -word->count, &pair));
            MICS_TRY(meet_pair(self, at[to - 1], token, number));
        }
        if (i + 2 < word->bytes) {
            MICS_TRY(change_pair(self, parts[1], at[i + 2], -word->count, &pair));
            MICS_TRY(meet_pair(self, token, at[i + 2], number));
        }
        at[to++] = token;
        i++;
    }
    word->bytes = to;
    return MICS_OK;
}

static mics_status add_token(training *self, const char *text, size_t bytes, int32_t *token_out)
{
    mics_word *word = NULL;
    MICS_TRY(mics_words_add(&self->tokens, text, bytes, 0, &word));
    *token_out = (int32_t)(word - self->tokens.items);
    return MICS_OK;
}

static mics_status merge(training *self, const candidate *best)
{
    int32_t token = 0;
    self->spelling.bytes = 0;
    for (int32_t i = 0; i < 2; i++) {
        const mics_word *part = &self->tokens.items[best->parts[i]];
        MICS_TRY(
            mics_buffer_append(&self->spelling, self->tokens.text.data + part->begin, part->bytes));
    }
    MICS_TRY(add_token(self, self->spelling.data, self->spelling.bytes, &token));
    MICS_TRY(mics_token_list_append(&self->merges, &best->pair, 1));
    self->met = self->queued;
    for (int32_t at = best->places; at != 0; at = self->places[at].next)
        MICS_TRY(merge_word(self, self->places[at].word, best->parts, token));
    queue_met(self);
    return MICS_OK;
}

static mics_status merge_all(training *self, const mics_train_spec *spec)
{
    const int32_t vocab = spec->corpus.vocab;
    while (self->tokens.count < vocab && self->queued > 0) {
        candidate best = pop(self);
        const int64_t count = self->pairs.items[best.pair].count;
        if (best.count != count) {
            best.count = count;
            push(self, best);
            continue;
        }
        if (count < spec->min_frequency)
            break;
        MICS_TRY(merge(self, &best));
        mics_work_tell(&spec->work, "merging pairs", self->tokens.count, vocab);
    }
    mics_work_tell(&spec->work, "merging pairs", vocab, vocab);
    return MICS_OK;
}

// ---- what there is to begin with ----

// The special tokens, then the letters that stand for bytes.
static mics_status add_tokens(training *self, const mics_train_spec *spec)
{
    enum { LETTERS = 256 + 68 };
    int32_t token = 0;
    char letter[4], byte = 0;
    for (int32_t i = 0; i < spec->special_count; i++) {
        const char *text = spec->specials[i];
        MICS_TRY(add_token(self, text, strlen(text), &token));
        if (text[0] == '\0' || token != i)
            return mics_fail(MICS_ERR_INVALID, "the special token \"%s\" is empty or given twice",
                             text);
    }
    for (uint32_t code = 0; code < LETTERS; code++) {
        const size_t bytes = mics_chars_write(code, letter);
        if (mics_bpe_unspell(letter, bytes, &byte) == 1)
            MICS_TRY(add_token(self, letter, bytes, &self->byte_token[(unsigned char)byte]));
    }
    if (spec->corpus.vocab >= self->tokens.count)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "a vocabulary of %d has no space for 256 bytes and %d special tokens; give "
                     "at least %d",
                     (int)spec->corpus.vocab, (int)spec->special_count, (int)self->tokens.count);
}

static mics_status add_words(training *self)
{
    const size_t bytes = self->words.text.bytes;
    if (bytes == 0)
        return mics_fail(MICS_ERR_INVALID, "the files have no text to train on");
    if (bytes > INT32_MAX / 3) // a merge takes a symbol away and adds two places at most
        return mics_fail(MICS_ERR_MEMORY, "the words of the texts have %zu bytes, beyond %d", bytes,
                         INT32_MAX / 3);
    MICS_TRY(MICS_NEW(self->memory, bytes, &self->symbols));
    MICS_TRY(MICS_NEW(self->memory, 3 * bytes, &self->places));
    for (size_t i = 0; i < bytes; i++)
        self->symbols[i] = self->byte_token[(unsigned char)self->words.text.data[i]];
    for (int32_t i = 0; i < self->words.count; i++) {
        const int32_t *at = self->symbols + self->words.items[i].begin;
        for (uint32_t k = 0; k + 1 < self->words.items[i].bytes; k++)
            MICS_TRY(meet_pair(self, at[k], at[k + 1], i));
    }
    queue_met(self);
    return MICS_OK;
}

// ---- the file ----

static void put_token(const training *self, mics_text *text, int32_t token)
{
    const mics_word *word = &self->tokens.items[token];
    mics_text_quoted_bytes(text, self->tokens.text.data + word->begin, word->bytes);
}

// Needs: the tags of merged pairs are their last merges.
static void put_file(const training *self, int32_t specials, mics_text *text)
{
    mics_text_printf(text, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"
                           "\"added_tokens\":[");
    for (int32_t i = 0; i < specials; i++) {
        mics_text_printf(text, "%s{\"id\":%d,\"content\":", i > 0 ? "," : "", (int)i);
        put_token(self, text, i);
        mics_text_printf(text, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                               "\"normalized\":false,\"special\":true}");
    }
    mics_text_printf(text, "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","
                           "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},"
                           "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\","
                           "\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
                           "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                           "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                           "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,"
                           "\"vocab\":{");
    for (int32_t i = 0; i < self->tokens.count; i++) {
        put_token(self, text, i);
        mics_text_printf(text, ":%d%s", (int)i,
                         i + 1 < self->tokens.count ? "," : "},\"merges\":[");
    }
    const char *before = "[";
    for (int32_t i = 0; i < self->merges.count; i++) {
        const mics_word *pair = &self->pairs.items[self->merges.tokens[i]];
        int32_t parts[2];
        memcpy(parts, self->pairs.text.data + pair->begin, sizeof parts);
        if (pair->tag != i)
            continue;
        mics_text_append(text, before, strlen(before));
        put_token(self, text, parts[0]);
        mics_text_append(text, ",", 1);
        put_token(self, text, parts[1]);
        before = "],[";
    }
    mics_text_printf(text, "%s]}}", self->merges.count > 0 ? "]" : "");
}

static mics_status write_file(training *self, const char *path, int32_t specials)
{
    mics_text text = {.memory = self->memory};
    mics_file_aside file = {0};
    int fd = -1;
    mics_status status = MICS_OK;
    for (int32_t i = 0; i < self->merges.count; i++)
        self->pairs.items[self->merges.tokens[i]].tag = i;
    put_file(self, specials, &text);
    MICS_TRY_OUT(mics_text_status(&text));
    MICS_TRY_OUT(mics_file_begin_aside(self->memory, path, (int64_t)text.used, &file, &fd));
    status = mics_file_write_at(fd, file.path, text.bytes, text.used, 0);
    MICS_TRY_OUT(mics_file_close_written(fd, file.path, status));
    MICS_TRY_OUT(mics_file_place(self->memory, &file, path));
out:
    mics_file_drop(self->memory, &file);
    mics_text_fini(&text);
    return status;
}

mics_status mics_train(mics_memory *memory, const mics_train_spec *spec, const char *path,
                       int32_t *vocab_out)
{
    training self = {.memory = memory,
                     .tokens.text.memory = memory,
                     .words.text.memory = memory,
                     .pairs.text.memory = memory,
                     .merges.memory = memory,
                     .spelling.memory = memory};
    mics_status status = MICS_OK;
    MICS_TRY_OUT(add_tokens(&self, spec));
    MICS_TRY_OUT(mics_train_count(memory, &spec->corpus, &self.words));
    MICS_TRY_OUT(add_words(&self));
    MICS_TRY_OUT(merge_all(&self, spec));
    *vocab_out = (int32_t)self.tokens.count;
    if (*vocab_out < spec->corpus.vocab)
        mics_log(MICS_LOG_WARNING,
                 "the vocabulary is %d and not %d: no pair is left that the texts have %lld times",
                 (int)*vocab_out, (int)spec->corpus.vocab, (long long)spec->min_frequency);
    status = write_file(&self, path, spec->special_count);
out:
    mics_words_fini(&self.tokens);
    mics_words_fini(&self.words);
    mics_words_fini(&self.pairs);
    mics_token_list_fini(&self.merges);
    mics_buffer_fini(&self.spelling);
    MICS_FREE_ALL(memory, self.symbols, self.places, self.queue);
    return status;
}
