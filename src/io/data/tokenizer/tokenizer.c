// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Tokenizers by their table of functions, and the one whose tokens are bytes.
#include "io/data/tokenizer/tokenizer.h"
#include "base/file.h"
#include "io/data/text_window.h"
#include "mics/log.h"
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

// ---- bytes ----

static mics_status bytes_feed(mics_encoder *encoder, const char *text, size_t bytes, bool more,
                              mics_token_list *list, size_t *consumed_out)
{
    (void)encoder;
    (void)more; // a byte is a token, whatever follows
    int32_t tokens[1024];
    const size_t block = sizeof tokens / sizeof *tokens;
    for (size_t at = 0; at < bytes; at += block) {
        size_t count = bytes - at < block ? bytes - at : block;
        for (size_t i = 0; i < count; i++)
            tokens[i] = (unsigned char)text[at + i];
        MICS_TRY(mics_token_list_append(list, tokens, (int64_t)count));
    }
    *consumed_out = bytes;
    return MICS_OK;
}

static size_t bytes_text(const mics_tokenizer *tokenizer, int32_t token, bool head, char *to)
{
    (void)tokenizer, (void)head;
    if (to != NULL)
        *to = (char)(unsigned char)token;
    return 1;
}

static const mics_tokenizer_ops bytes_ops = {
    .name = "bytes",
    .any_bytes = true,
    .feed = bytes_feed,
    .text = bytes_text,
};

// ---- every kind ----

// A folder stands for its tokenizer.json, or where it has none its vocab.txt.
static mics_status open_path(mics_memory *memory, const char *path, mics_tokenizer *tokenizer_out)
{
    struct stat found;
    char *file = NULL, *older = NULL;
    if (stat(path, &found) != 0 || !S_ISDIR(found.st_mode))
        return mics_bpe_open(memory, path, tokenizer_out);
    mics_status status = mics_file_join(memory, path, "tokenizer.json", &file);
    if (status == MICS_OK)
        status = mics_file_join(memory, path, "vocab.txt", &older);
    if (status == MICS_OK) {
        const bool old = !mics_file_is_there(file) && mics_file_is_there(older);
        status = mics_bpe_open(memory, old ? older : file, tokenizer_out);
    }
    mics_free(memory, older);
    mics_free(memory, file);
    return status;
}

mics_status mics_tokenizer_open(mics_memory *memory, const char *name_or_path,
                                mics_tokenizer **tokenizer_out)
{
    mics_tokenizer *tokenizer = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &tokenizer));
    mics_status status = MICS_OK;
    if (strcmp(name_or_path, "bytes") == 0)
        *tokenizer = (mics_tokenizer){.ops = &bytes_ops, .vocab = 256, .separator = 0, .mask = -1};
    else
        status = open_path(memory, name_or_path, tokenizer);
    tokenizer->memory = memory;
    if (status != MICS_OK) {
        mics_free(memory, tokenizer);
        return status;
    }
    *tokenizer_out = tokenizer;
    return MICS_OK;
}

void mics_tokenizer_close(mics_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    if (tokenizer->ops->close != NULL)
        tokenizer->ops->close(tokenizer->ctx);
    mics_free(tokenizer->memory, tokenizer->file_text);
    mics_token_list_fini(&tokenizer->frame);
    mics_free(tokenizer->memory, tokenizer->frame_refused);
    mics_free(tokenizer->memory, tokenizer);
}

const char *mics_tokenizer_text(const mics_tokenizer *tokenizer, size_t *bytes_out)
{
    const char *text = tokenizer != NULL ? tokenizer->file_text : NULL;
    *bytes_out = text != NULL ? strlen(text) : 0;
    return text;
}

int32_t mics_tokenizer_vocab(const mics_tokenizer *tokenizer)
{
    return tokenizer->vocab;
}

int32_t mics_tokenizer_separator(const mics_tokenizer *tokenizer)
{
    return tokenizer->separator;
}

int32_t mics_tokenizer_mask(const mics_tokenizer *tokenizer)
{
    return tokenizer->mask;
}

void mics_tokenizer_specials(const mics_tokenizer *tokenizer, bool *special_out)
{
    memset(special_out, 0, (size_t)tokenizer->vocab * sizeof *special_out);
    if (tokenizer->ops->mark_specials != NULL)
        tokenizer->ops->mark_specials(tokenizer, special_out);
}

int32_t mics_tokenizer_next_special(const mics_tokenizer *tokenizer, const char *text, size_t bytes,
                                    size_t limit, size_t *at)
{
    if (tokenizer->ops->next_special != NULL)
        return tokenizer->ops->next_special(tokenizer, text, bytes, limit, at);
    *at = limit;
    return -1;
}

mics_status mics_encoder_open(const mics_tokenizer *tokenizer, bool specials,
                              mics_encoder *encoder_out)
{
    void *work = NULL;
    if (tokenizer->ops->work_open != NULL)
        MICS_TRY(tokenizer->ops->work_open(tokenizer, &work));
    *encoder_out = (mics_encoder){.tokenizer = tokenizer, .specials = specials, .work = work};
    return MICS_OK;
}

mics_status mics_encoder_feed(mics_encoder *encoder, const char *text, size_t bytes, bool more,
                              mics_token_list *list, size_t *consumed_out)
{
    return encoder->tokenizer->ops->feed(encoder, text, bytes, more, list, consumed_out);
}

mics_status mics_encoder_reset(mics_encoder *encoder)
{
    return encoder->work != NULL ? encoder->tokenizer->ops->work_reset(encoder->work) : MICS_OK;
}

bool mics_encoder_cuts(const mics_tokenizer *tokenizer)
{
    return tokenizer->ops->merge != NULL;
}

mics_status mics_encoder_merge(mics_encoder *encoder, const mics_pieces *pieces,
                               mics_token_list *list)
{
    return encoder->tokenizer->ops->merge(encoder, pieces, list);
}

void mics_encoder_fini(mics_encoder *encoder)
{
    if (encoder->work != NULL && encoder->tokenizer->ops->work_close != NULL)
        encoder->tokenizer->ops->work_close(encoder->work);
    encoder->work = NULL;
}

mics_status mics_tokenizer_encode(const mics_tokenizer *tokenizer, const char *text, size_t bytes,
                                  int specials, int32_t **tokens_out, int64_t *count_out)
{
    mics_status status = MICS_OK;
    mics_encoder encoder = {0};
    mics_token_list list = {.memory = tokenizer->memory};
    size_t consumed = 0;
    MICS_TRY_OUT(mics_encoder_open(tokenizer, specials != 0, &encoder));
    MICS_TRY_OUT(mics_encoder_feed(&encoder, text, bytes, false, &list, &consumed));
    if (list.tokens == NULL) // no tokens are still an array that can be freed
        MICS_TRY_OUT(MICS_NEW(tokenizer->memory, 0, &list.tokens));
    *tokens_out = list.tokens;
    *count_out = list.count;
    list = (mics_token_list){.memory = tokenizer->memory};
out:
    mics_encoder_fini(&encoder);
    mics_token_list_fini(&list);
    return status;
}

mics_status mics_tokenizer_check(const mics_tokenizer *tokenizer, const char *name,
                                 const char *text, size_t bytes)
{
    return tokenizer->ops->any_bytes ? MICS_OK : mics_text_check(name, text, bytes);
}

// The text of tokens before it is trimmed; `head`: they begin it.
static mics_status join(const mics_tokenizer *tokenizer, const int32_t *tokens, int64_t count,
                        bool head, char **text_out, size_t *bytes_out)
{
    size_t total = 0;
    for (int64_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= tokenizer->vocab)
            return mics_fail(MICS_ERR_INVALID, "token %d at index %lld is not in [0, %d)",
                             (int)tokens[i], (long long)i, (int)tokenizer->vocab);
        const size_t bytes = tokenizer->ops->text(tokenizer, tokens[i], head && i == 0, NULL);
        if (bytes > SIZE_MAX - 1 - total)
            return mics_fail(MICS_ERR_MEMORY, "%lld tokens make a text beyond all memory",
                             (long long)count);
        total += bytes;
    }
    char *text = NULL;
    MICS_TRY(MICS_NEW(tokenizer->memory, total + 1, &text));
    char *at = text;
    for (int64_t i = 0; i < count; i++)
        at += tokenizer->ops->text(tokenizer, tokens[i], head && i == 0, at);
    *text_out = text;
    *bytes_out = total;
    return MICS_OK;
}

mics_status mics_tokenizer_decode(const mics_tokenizer *tokenizer, const int32_t *tokens,
                                  int64_t count, char **text_out, size_t *bytes_out)
{
    size_t begin = 0;
    MICS_TRY(join(tokenizer, tokens, count, true, text_out, bytes_out));
    if (tokenizer->ops->trim == NULL)
        return MICS_OK;
    tokenizer->ops->trim(tokenizer, *text_out, bytes_out, &begin);
    memmove(*text_out, *text_out + begin, *bytes_out);
    (*text_out)[*bytes_out] = '\0';
    return MICS_OK;
}

mics_status mics_tokenizer_decode_more(const mics_tokenizer *tokenizer, const int32_t *tokens,
                                       int64_t count, char **text_out, size_t *bytes_out)
{
    return join(tokenizer, tokens, count, false, text_out, bytes_out);
}

mics_status mics_tokenizer_frame(const mics_tokenizer *tokenizer, mics_token_frame *frame_out)
{
    const mics_token_list *list = &tokenizer->frame;
    int64_t before = 0;
    if (tokenizer->frame_refused != NULL)
        return mics_fail(MICS_ERR_UNSUPPORTED, "%s", tokenizer->frame_refused);
    *frame_out = (mics_token_frame){0};
    if (list->count == 0)
        return MICS_OK;
    while (list->tokens[before] >= 0)
        before++;
    *frame_out = (mics_token_frame){.before = list->tokens,
                                    .before_count = before,
                                    .after = list->tokens + before + 1,
                                    .after_count = list->count - before - 1};
    return MICS_OK;
}

mics_status mics_tokenizer_frame_texts(mics_tokenizer *tokenizer, const char *asked_by)
{
    mics_token_frame frame;
    MICS_TRY(mics_tokenizer_frame(tokenizer, &frame));
    if (frame.before_count + frame.after_count == 0)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: this tokenizer puts no special tokens around a text: its "
                         "\"post_processor\" has no TemplateProcessing; without %s the separator "
                         "stands before each",
                         asked_by, asked_by);
    if (!tokenizer->frames_texts)
        tokenizer->identity = XXH3_64bits(&tokenizer->identity, sizeof tokenizer->identity);
    tokenizer->frames_texts = true;
    return MICS_OK;
}

int32_t mics_tokenizer_document(const mics_tokenizer *tokenizer)
{
    mics_token_frame frame = {0};
    if (!tokenizer->frames_texts)
        return tokenizer->separator;
    if (mics_tokenizer_frame(tokenizer, &frame) != MICS_OK)
        return -1;
    if (frame.before_count > 0)
        return frame.before[0];
    return frame.after_count > 0 ? frame.after[frame.after_count - 1] : -1;
}
