// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Decoders: read from the file, and applied once to the text of every token.
#include "io/data/bpe_decode.h"
#include "base/utf8.h"
#include "io/data/bpe.h"
#include "io/data/bpe_read.h"
#include <string.h>

static const char path[] = "decoder";

typedef struct reader {
    const mics_json *json;
    mics_bpe *bpe;
    mics_normal *replaces; // what is replaced in every token
    bool bytes;            // <0x0A> stands for a byte
    bool fused, stripped;
} reader;

static mics_status refuse(const reader *r, const char *type, const char *why)
{
    return mics_json_fail(r->json, path, MICS_ERR_UNSUPPORTED,
                          "decoder \"%.60s\" %s; known: ByteLevel for byte-level BPE; else "
                          "ByteFallback, Fuse, Metaspace, Replace, Sequence, Strip behind Fuse",
                          type, why);
}

static mics_status add_metaspace(reader *r, const mics_json_value *object)
{
    const char *text = NULL;
    mics_split_prepend prepend = MICS_SPLIT_PREPEND_ALWAYS;
    MICS_TRY(mics_read_char(r->json, object, path, "replacement", &text));
    MICS_TRY(mics_read_prepend(r->json, object, path, &prepend));
    r->bpe->decoder.drops_spaces = prepend != MICS_SPLIT_PREPEND_NEVER;
    return mics_normal_add(r->replaces, mics_json_name(r->json), MICS_NORMAL_REPLACE_TEXT, text,
                           " ");
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
    return mics_normal_add(r->replaces, mics_json_name(r->json),
                           regex || bytes == 0 ? MICS_NORMAL_REPLACE_PATTERN
                                               : MICS_NORMAL_REPLACE_TEXT,
                           text, content);
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

static mics_status decode_token(const reader *r, mics_normal_work *work, int32_t token,
                                mics_buffer *texts)
{
    const mics_bpe_span *span = &r->bpe->spans[token];
    const char *text = r->bpe->blob + span->begin;
    const int32_t byte = r->bytes ? mics_bpe_byte_of(text, span->bytes) : -1;
    const char letter = (char)(unsigned char)byte;
    if (byte >= 0)
        return mics_buffer_append(texts, &letter, 1);
    return mics_normal_feed(work, text, span->bytes, true, false, texts);
}

static mics_status decode_all(const reader *r)
{
    mics_bpe *bpe = r->bpe;
    mics_normal_work *work = NULL;
    mics_buffer texts = {.memory = bpe->memory};
    mics_status status = MICS_OK;
    MICS_TRY_OUT(MICS_NEW(bpe->memory, bpe->vocab + 1, &bpe->decoder.begin));
    MICS_TRY_OUT(mics_normal_work_open(r->replaces, &work));
    for (int32_t token = 0; token < bpe->vocab; token++) {
        MICS_TRY_OUT(decode_token(r, work, token, &texts));
        bpe->decoder.begin[token + 1] = texts.bytes;
    }
    MICS_TRY_OUT(mics_buffer_reserve(&texts, 1)); // so that there is a blob
    bpe->decoder.blob = texts.data;
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
    MICS_TRY(mics_normal_open(bpe->memory, &bpe->chars, &r.replaces));
    MICS_TRY_OUT(mics_read_sequence(json, path, "decoders", add_decoder, &r));
    if (!bpe->byte_level)
        status = decode_all(&r);
out:
    mics_normal_close(r.replaces);
    return status;
}

size_t mics_bpe_decode(const mics_bpe *bpe, int32_t token, bool head, char *to)
{
    const mics_bpe_decoder *decoder = &bpe->decoder;
    const mics_bpe_span *span = &bpe->spans[token]; // an id that no token has stands for nothing
    const char *text = bpe->blob + span->begin;
    size_t bytes = span->bytes;
    if (decoder->blob != NULL) {
        text = decoder->blob + decoder->begin[token];
        bytes = decoder->begin[token + 1] - decoder->begin[token];
    }
    if (!head || !decoder->drops_spaces) {
        if (to != NULL && bytes > 0)
            memcpy(to, text, bytes);
        return bytes;
    }
    size_t kept = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == ' ')
            continue;
        if (to != NULL)
            to[kept] = text[i];
        kept++;
    }
    return kept;
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
