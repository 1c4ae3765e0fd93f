// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The BPE tokenizer: from a text to added tokens and segments, from segments to pieces, from pieces
// to tokens.
//
// Text that is not UTF-8: each longest run of bytes that belong to no character is one piece, and
// what stands before and after it is split as a text of its own. So every text can be encoded, and
// decoding gives it back.
//
// Added tokens: of several that begin at one place the longest is taken, and the search goes on
// behind it. (Hugging Face's library looks for those marked "normalized" in a second pass; without
// a normalizer that differs only where one of them overlaps one that is not marked.)
#include "io/data/bpe.h"
#include "base/utf8.h"
#include <string.h>
#include <xxhash.h>

enum { MAX_FILE_BYTES = 256 << 20, IDENTITY_VERSION = 1 };

// One encoder's work.
typedef struct bpe_work {
    mics_memory *memory;
    mics_bpe_merger *merger;
    mics_split_work *split;
    mics_token_list *list; // of the feed in progress
    char *prefixed;        // a segment behind the space that add_prefix_space asks for
    size_t prefixed_bytes; // of its block
} bpe_work;

// ---- segments: text without added tokens ----

static mics_status take_piece(void *ctx, const char *text, size_t bytes)
{
    bpe_work *work = ctx;
    return mics_bpe_merge(work->merger, text, bytes, work->list);
}

// Bytes from the head of a text that belong to no character; whole = false when the text ends
// within or behind them, so that what follows could change it.
static size_t invalid_run(const char *text, size_t bytes, bool *whole_out)
{
    size_t at = 0;
    *whole_out = false;
    while (at < bytes) {
        int32_t length = mics_utf8_char(text + at, bytes - at);
        if (length > 0) {
            *whole_out = true;
            break;
        }
        at++;
    }
    return at;
}

static mics_status encode_segment(bpe_work *work, const char *text, size_t bytes, bool more,
                                  size_t *consumed_out)
{
    const mics_split_sink sink = {.piece = take_piece, .ctx = work};
    size_t at = 0;
    while (at < bytes) {
        size_t run = mics_utf8_valid(text + at, bytes - at);
        bool open = at + run == bytes || mics_utf8_char(text + at + run, bytes - at - run) < 0;
        size_t done = 0;
        MICS_TRY(mics_split_run(work->split, text + at, run, more && open, sink, &done));
        at += done;
        if (done < run || at == bytes)
            break;
        bool whole = false;
        run = invalid_run(text + at, bytes - at, &whole);
        if (more && !whole)
            break;
        MICS_TRY(take_piece(work, text + at, run));
        at += run;
    }
    *consumed_out = at;
    return MICS_OK;
}

static mics_status encode_prefixed(bpe_work *work, const char *text, size_t bytes, bool more,
                                   size_t *consumed_out)
{
    if (work->prefixed_bytes < bytes + 1) {
        mics_free(work->memory, work->prefixed);
        work->prefixed = NULL;
        work->prefixed_bytes = 0;
        MICS_TRY(MICS_NEW(work->memory, bytes + 1, &work->prefixed));
        work->prefixed_bytes = bytes + 1;
    }
    work->prefixed[0] = ' ';
    memcpy(work->prefixed + 1, text, bytes);
    size_t done = 0;
    MICS_TRY(encode_segment(work, work->prefixed, bytes + 1, more, &done));
    *consumed_out = done > 0 ? done - 1 : 0;
    return MICS_OK;
}

// ---- added tokens ----

static const mics_bpe_added *added_at(const mics_bpe *bpe, const char *text, size_t bytes,
                                      bool specials)
{
    unsigned char first = (unsigned char)text[0];
    for (int32_t i = bpe->added_first[first]; i < bpe->added_first[first + 1]; i++) {
        const mics_bpe_added *added = &bpe->added[i]; // the longest come first
        if ((specials || !added->special) && added->bytes <= bytes &&
            memcmp(added->text, text, added->bytes) == 0)
            return added;
    }
    return NULL;
}

static mics_status bpe_feed(mics_encoder *encoder, const char *text, size_t bytes, bool more,
                            mics_token_list *list, size_t *consumed_out)
{
    const mics_bpe *bpe = encoder->tokenizer->ctx;
    bpe_work *work = encoder->work;
    work->list = list;
    // What may begin an added token that ends beyond this text is left for later.
    size_t longest = bpe->added_longest[encoder->specials ? 1 : 0];
    size_t held = more && longest > 0 ? longest - 1 : 0;
    size_t limit = held < bytes ? bytes - held : 0;
    size_t at = 0;
    for (;;) {
        const mics_bpe_added *added = NULL;
        size_t end = at;
        while (end < limit && longest > 0 &&
               (added = added_at(bpe, text + end, bytes - end, encoder->specials)) == NULL)
            end++;
        if (added == NULL)
            end = limit;
        size_t done = 0;
        int64_t before = list->count;
        bool prefix = bpe->add_prefix_space && !encoder->inside && end > at && text[at] != ' ';
        MICS_TRY((prefix ? encode_prefixed : encode_segment)(work, text + at, end - at,
                                                             more && added == NULL, &done));
        encoder->inside = encoder->inside || list->count > before;
        at += done;
        if (added == NULL)
            break;
        MICS_TRY(mics_token_list_append(list, &added->token, 1));
        encoder->inside = false;
        at = end + added->bytes;
        limit = at > limit ? at : limit;
    }
    *consumed_out = at;
    return MICS_OK;
}

// ---- the table ----

static void bpe_work_close(void *ctx)
{
    bpe_work *work = ctx;
    mics_split_work_close(work->split);
    mics_bpe_merger_close(work->merger);
    mics_free(work->memory, work->prefixed);
    mics_free(work->memory, work);
}

static mics_status bpe_work_open(const mics_tokenizer *tokenizer, void **work_out)
{
    const mics_bpe *bpe = tokenizer->ctx;
    bpe_work *work = NULL;
    MICS_TRY(MICS_NEW(bpe->memory, 1, &work));
    work->memory = bpe->memory;
    mics_status status = mics_bpe_merger_open(bpe, &work->merger);
    if (status == MICS_OK)
        status = mics_split_work_open(bpe->split, &work->split);
    if (status != MICS_OK) {
        bpe_work_close(work);
        return status;
    }
    *work_out = work;
    return MICS_OK;
}

static size_t bpe_text(const mics_tokenizer *tokenizer, int32_t token, char *to)
{
    const mics_bpe *bpe = tokenizer->ctx;
    const mics_bpe_span *span = &bpe->spans[token]; // an id that no token has stands for nothing
    if (to != NULL)
        memcpy(to, bpe->blob + span->begin, span->bytes);
    return span->bytes;
}

static void bpe_close(void *ctx)
{
    mics_bpe_close(ctx);
}

static const mics_tokenizer_ops bpe_ops = {
    .name = "byte-level BPE",
    .feed = bpe_feed,
    .text = bpe_text,
    .work_open = bpe_work_open,
    .work_close = bpe_work_close,
    .close = bpe_close,
};

// ---- loading ----

void mics_bpe_close(mics_bpe *bpe)
{
    if (bpe == NULL)
        return;
    mics_split_close(bpe->split);
    mics_free(bpe->memory, bpe->blob);
    mics_free(bpe->memory, bpe->spans);
    mics_free(bpe->memory, bpe->pairs);
    mics_free(bpe->memory, bpe->words);
    mics_free(bpe->memory, bpe->added);
    mics_free(bpe->memory, bpe);
}

mics_status mics_bpe_load(mics_memory *memory, const mics_json *json, mics_bpe **bpe_out)
{
    mics_bpe *bpe = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &bpe));
    bpe->memory = memory;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_split_open(memory, &bpe->split));
    MICS_TRY_OUT(mics_bpe_load_rules(json, bpe));
    MICS_TRY_OUT(mics_bpe_load_tokens(json, bpe));
    MICS_TRY_OUT(mics_bpe_load_merges(json, bpe));
    *bpe_out = bpe;
    bpe = NULL;
out:
    mics_bpe_close(bpe);
    return status;
}

// The token that models of the GPT family set between documents, by the names it goes by.
static int32_t find_separator(const mics_bpe *bpe)
{
    static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t bytes = strlen(names[i]);
        const mics_bpe_added *added = added_at(bpe, names[i], bytes, true);
        if (added != NULL && added->bytes == bytes)
            return added->token;
    }
    return -1;
}

mics_status mics_bpe_open(mics_memory *memory, const char *path, mics_tokenizer *tokenizer_out)
{
    mics_json *json = NULL;
    mics_bpe *bpe = NULL;
    char *text = NULL;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_json_load(memory, path, MAX_FILE_BYTES, &json));
    MICS_TRY_OUT(mics_strdup(memory, mics_json_text(json), &text)); // JSON holds no NUL
    MICS_TRY_OUT(mics_bpe_load(memory, json, &bpe));
    *tokenizer_out = (mics_tokenizer){
        .ops = &bpe_ops,
        .ctx = bpe,
        .vocab = bpe->vocab,
        .separator = find_separator(bpe),
        .identity = XXH3_64bits_withSeed(text, strlen(text), IDENTITY_VERSION),
        .file_text = text,
    };
    text = NULL;
out:
    mics_free(memory, text);
    mics_json_close(json);
    return status;
}
