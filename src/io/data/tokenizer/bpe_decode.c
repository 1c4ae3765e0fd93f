// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Decoders: read from the file, and applied once to the text of every token.
#include "io/data/tokenizer/bpe_decode.h"
#include "base/utf8.h"
#include "io/data/tokenizer/bpe.h"
#include "io/data/tokenizer/bpe_read.h"
#include <string.h>

static const char path[] = "decoder";

typedef struct reader {
    const mics_json *json;
    mics_bpe *bpe;
    mics_normal *replaces; // what is replaced in every token
    mics_normal *heads;    // in a text's first one
    bool differs;          // the two do
    bool bytes;            // <0x0A> stands for a byte
    const char *prefix;    // of WordPiece's tokens that go on with a word; NULL: another decoder
    bool fused, stripped;
} reader;

static mics_status refuse(const reader *r, const char *type, const char *why)
{
    return mics_json_fail(r->json, path, MICS_ERR_UNSUPPORTED,
                          "decoder \"%.60s\" %s; known: ByteLevel for byte-level BPE; else "
                          "ByteFallback, Fuse, Metaspace, Replace, Sequence, Strip behind Fuse; "
                          "or WordPiece alone",
                          type, why);
}

static mics_status replace(const reader *r, mics_normal_kind kind, const char *text,
                           const char *content, const char *head_content)
{
    const char *where = mics_json_name(r->json);
    MICS_TRY(mics_normal_add(r->replaces, where, kind, text, content));
    return mics_normal_add(r->heads, where, kind, text, head_content);
}

static mics_status add_metaspace(reader *r, const mics_json_value *object)
{
    const char *text = NULL;
    mics_split_prepend prepend = MICS_SPLIT_PREPEND_ALWAYS;
    MICS_TRY(mics_read_char(r->json, object, path, "replacement", &text));
    MICS_TRY(mics_read_prepend(r->json, object, path, &prepend));
    r->differs = r->differs || prepend != MICS_SPLIT_PREPEND_NEVER;
    return replace(r, MICS_NORMAL_REPLACE_TEXT, text, " ",
                   prepend != MICS_SPLIT_PREPEND_NEVER ? "" : " ");
}

static mics_status add_replace(reader *r, const mics_json_value *object)
{
    const char *text = NULL, *content = NULL;
    bool regex = false;
    MICS_TRY(mics_read_pattern(r->json, object, path, &text, &regex));
    MICS_TRY(mics_read_text(r->json, object, path, "content", true, &content));
    const size_t bytes = strlen(text);
    const bool single = !regex && bytes > 0 && (size_t)mics_utf8_char(text, bytes) == bytes;
    if (r->stripped || (r->fused && !single))
        return refuse(r, "Replace", "over several tokens is not supported");
    return replace(r, regex || bytes == 0 ? MICS_NORMAL_REPLACE_PATTERN : MICS_NORMAL_REPLACE_TEXT,
                   text, content, content);
}

static mics_status read_count(const reader *r, const mics_json_value *object, const char *key,
                              int64_t *count_out)
{
    const mics_json_value *count = mics_json_get(object, key);
    if (mics_json_type_of(count) != MICS_JSON_INT || mics_json_int(count) < 0)
        return mics_json_fail(r->json, path, MICS_ERR_FORMAT, "\"%s\" is no number of characters",
                              key);
    *count_out = mics_json_int(count);
    return MICS_OK;
}

static mics_status add_strip(reader *r, const mics_json_value *object)
{
    mics_bpe_decoder *decoder = &r->bpe->decoder;
    const char *content = NULL;
    if (!r->fused || r->stripped)
        return refuse(r, "Strip",
                      r->fused ? "twice is not supported" : "of every token is not supported");
    MICS_TRY(mics_read_char(r->json, object, path, "content", &content));
    MICS_TRY(read_count(r, object, "start", &decoder->left));
    memcpy(decoder->strip, content, strlen(content) + 1);
    r->stripped = true;
    return read_count(r, object, "stop", &decoder->right);
}

// A space before each token but those that go on with a word, and none before some marks.
// Source: Hugging Face tokenizers, decoders/wordpiece.rs.
static mics_status add_wordpiece(reader *r, const mics_json_value *object)
{
    static const char *const cleaned[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    bool cleanup = true;
    if (r->differs || r->fused || r->bytes || !mics_normal_is_empty(r->replaces))
        return refuse(r, "WordPiece", "beside others is not supported");
    MICS_TRY(mics_read_text(r->json, object, path, "prefix", true, &r->prefix));
    MICS_TRY(mics_read_bool(r->json, object, path, "cleanup", &cleanup));
    r->differs = true;
    for (size_t i = 0; cleanup && i < sizeof cleaned / sizeof *cleaned; i++)
        MICS_TRY(replace(r, MICS_NORMAL_REPLACE_TEXT, cleaned[i][0], cleaned[i][1], cleaned[i][1]));
    return MICS_OK;
}

static mics_status add_decoder(void *ctx, const mics_json_value *object, const char *type)
{
    reader *r = ctx;
    if (strcmp(type, "Fuse") == 0) {
        r->fused = true;
        return MICS_OK;
    }
    if ((strcmp(type, "ByteLevel") == 0) != r->bpe->byte_level)
        return refuse(r, type,
                      r->bpe->byte_level ? "is not supported for byte-level BPE"
                                         : "is not supported without the pre-tokenizer");
    if (r->bpe->byte_level)
        return MICS_OK;
    if (r->prefix != NULL)
        return refuse(r, type, "behind WordPiece is not supported");
    if (strcmp(type, "WordPiece") == 0)
        return add_wordpiece(r, object);
    if (strcmp(type, "Replace") == 0)
        return add_replace(r, object);
    if (strcmp(type, "Strip") == 0)
        return add_strip(r, object);
    if (r->fused)
        return refuse(r, type, "behind Fuse is not supported");
    if (strcmp(type, "Metaspace") == 0)
        return add_metaspace(r, object);
    if (strcmp(type, "ByteFallback") != 0)
        return refuse(r, type, "is not supported");
    r->bytes = true;
    return MICS_OK;
}

// A token behind another, by WordPiece.
static mics_status decode_more(const reader *r, mics_normal_work *work, const char *text,
                               size_t bytes, mics_buffer *texts)
{
    const size_t prefix = strlen(r->prefix);
    if (bytes >= prefix && memcmp(text, r->prefix, prefix) == 0)
        return mics_normal_feed(work, text + prefix, bytes - prefix, true, false, texts);
    MICS_TRY(mics_normal_feed(work, " ", 1, true, true, texts));
    return mics_normal_feed(work, text, bytes, false, false, texts);
}

static mics_status decode_token(const reader *r, bool head, mics_normal_work *work, int32_t token,
                                mics_buffer *texts)
{
    const mics_bpe_span *span = &r->bpe->spans[token];
    const char *text = r->bpe->blob + span->begin;
    const int32_t byte = r->bytes ? mics_bpe_byte_of(text, span->bytes) : -1;
    const char letter = (char)(unsigned char)byte;
    if (byte >= 0)
        return mics_buffer_append(texts, &letter, 1);
    if (r->prefix != NULL && !head)
        return decode_more(r, work, text, span->bytes, texts);
    return mics_normal_feed(work, text, span->bytes, true, false, texts);
}

static mics_status decode_all(const reader *r, bool head, mics_bpe_texts *texts_out)
{
    const mics_normal *replaces = head ? r->heads : r->replaces;
    mics_bpe *bpe = r->bpe;
    mics_normal_work *work = NULL;
    mics_buffer texts = {.memory = bpe->memory};
    mics_status status = MICS_OK;
    MICS_TRY_OUT(MICS_NEW(bpe->memory, bpe->vocab + 1, &texts_out->begin));
    MICS_TRY_OUT(mics_normal_work_open(replaces, &work));
    for (int32_t token = 0; token < bpe->vocab; token++) {
        MICS_TRY_OUT(decode_token(r, head, work, token, &texts));
        texts_out->begin[token + 1] = texts.bytes;
    }
    MICS_TRY_OUT(mics_buffer_reserve(&texts, 1)); // so that there is a blob
    texts_out->blob = texts.data;
    texts.data = NULL;
out:
    mics_normal_work_close(work);
    mics_buffer_fini(&texts);
    return status;
}

mics_status mics_bpe_load_decoder(const mics_json *json, mics_bpe *bpe)
{
    reader r = {.json = json, .bpe = bpe};
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_normal_open(bpe->memory, &bpe->chars, &r.replaces));
    MICS_TRY_OUT(mics_normal_open(bpe->memory, &bpe->chars, &r.heads));
    MICS_TRY_OUT(mics_read_sequence(json, path, "decoders", add_decoder, &r));
    if (!bpe->byte_level)
        MICS_TRY_OUT(decode_all(&r, false, &bpe->decoder.texts));
    if (!bpe->byte_level && r.differs)
        MICS_TRY_OUT(decode_all(&r, true, &bpe->decoder.head));
out:
    mics_normal_close(r.replaces);
    mics_normal_close(r.heads);
    return status;
}

size_t mics_bpe_decode(const mics_bpe *bpe, int32_t token, bool head, char *to)
{
    const mics_bpe_decoder *decoder = &bpe->decoder;
    const mics_bpe_texts *texts =
        head && decoder->head.blob != NULL ? &decoder->head : &decoder->texts;
    const mics_bpe_span *span = &bpe->spans[token]; // an id that no token has stands for nothing
    const char *text = bpe->blob + span->begin;
    size_t bytes = span->bytes;
    if (texts->blob != NULL) {
        text = texts->blob + texts->begin[token];
        bytes = texts->begin[token + 1] - texts->begin[token];
    }
    if (to != NULL && bytes > 0)
        memcpy(to, text, bytes);
    return bytes;
}

void mics_bpe_trim(const mics_bpe_decoder *decoder, const char *text, size_t *bytes,
                   size_t *begin_out)
{
    const size_t length = strlen(decoder->strip);
    size_t begin = 0, end = *bytes;
    for (int64_t i = 0; i < decoder->left && end - begin >= length; i++) {
        if (memcmp(text + begin, decoder->strip, length) != 0)
            break;
        begin += length;
    }
    for (int64_t i = 0; i < decoder->right && end - begin >= length; i++) {
        if (memcmp(text + end - length, decoder->strip, length) != 0)
            break;
        end -= length;
    }
    *begin_out = begin;
    *bytes = end - begin;
}
