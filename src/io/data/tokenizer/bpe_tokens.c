// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The tokens of a tokenizer.json: the model's words by id and by their text, and what stands for a
// character that is no token. Added tokens take their ids and texts here too.
#include "base/utf8.h"
#include "io/data/tokenizer/bpe.h"
#include "io/data/tokenizer/bpe_read.h"
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

// Far above any vocabulary in use (the largest have about 260 000), so that one wild id does not
// cost gigabytes.
enum { MAX_TOKENS = 1 << 22 };

// ---- byte-level letters ----

// GPT-2 spells every byte as a printable letter: bytes that are printable in Latin-1 as themselves,
// the others, in order, as the letters from U+0100 on.
// Source: Radford et al., gpt-2/src/encoder.py, bytes_to_unicode, 2019.
static bool is_printable(uint32_t byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) ||
           (byte >= 174 && byte <= 255);
}

static int32_t byte_of_letter(uint32_t letter)
{
    if (letter < 256)
        return is_printable(letter) ? (int32_t)letter : -1;
    uint32_t others = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        if (!is_printable(byte) && others++ == letter - 256)
            return (int32_t)byte;
    }
    return -1;
}

int64_t mics_bpe_unspell(const char *spelling, size_t bytes, char *out)
{
    int64_t count = 0;
    for (size_t at = 0; at < bytes;) {
        int32_t length = mics_utf8_char(spelling + at, bytes - at);
        int32_t byte = length > 0 ? byte_of_letter(mics_utf8_code(spelling + at, length)) : -1;
        if (byte < 0)
            return -1;
        out[count++] = (char)(unsigned char)byte;
        at += (size_t)length;
    }
    return count;
}

// ---- ids and texts ----

static mics_status check_id(const mics_json *json, const char *path, const char *text,
                            const mics_json_value *id)
{
    if (mics_json_type_of(id) != MICS_JSON_INT || mics_json_int(id) < 0 ||
        mics_json_int(id) >= MAX_TOKENS)
        return mics_json_fail(json, path, MICS_ERR_FORMAT,
                              "the id of \"%.60s\" is not an integer in [0, %d)", text, MAX_TOKENS);
    return MICS_OK;
}

// Finds how many ids and bytes there are, and refuses what is no table of tokens.
static mics_status measure(const mics_json *json, const mics_json_value *words,
                           const mics_json_value *added, int32_t *vocab_out, size_t *bytes_out)
{
    int64_t vocab = 0;
    size_t bytes = 0;
    const char *key = NULL;
    if (mics_json_type_of(words) != MICS_JSON_OBJECT)
        return mics_json_fail(json, "model.vocab", MICS_ERR_FORMAT, "missing or no object");
    for (const mics_json_value *id = mics_json_next(words, &key); id != NULL;
         id = mics_json_next(words, &key)) {
        MICS_TRY(check_id(json, "model.vocab", key, id));
        vocab = mics_json_int(id) >= vocab ? mics_json_int(id) + 1 : vocab;
        bytes += strlen(key);
    }
    for (int32_t i = 0; i < mics_json_count(added); i++) {
        const mics_json_value *entry = mics_json_element(added, i);
        const mics_json_value *content = mics_json_get(entry, "content");
        const mics_json_value *id = mics_json_get(entry, "id");
        if (mics_json_type_of(content) != MICS_JSON_STRING || mics_json_string_bytes(content) == 0)
            return mics_json_fail(json, "added_tokens", MICS_ERR_FORMAT,
                                  "entry %d has no text in \"content\"", (int)i);
        MICS_TRY(check_id(json, "added_tokens", mics_json_string(content), id));
        vocab = mics_json_int(id) >= vocab ? mics_json_int(id) + 1 : vocab;
        bytes += mics_json_string_bytes(content);
    }
    *vocab_out = (int32_t)vocab;
    *bytes_out = bytes;
    return MICS_OK;
}

// Puts the model's words into blob and spans; *used_out bytes of the blob are then taken.
static mics_status fill_words(const mics_json *json, const mics_json_value *words, mics_bpe *bpe,
                              size_t *used_out)
{
    size_t used = 0;
    const char *key = NULL;
    for (const mics_json_value *id = mics_json_next(words, &key); id != NULL;
         id = mics_json_next(words, &key)) {
        mics_bpe_span *span = &bpe->spans[mics_json_int(id)];
        if (span->bytes != 0)
            return mics_json_fail(json, "model.vocab", MICS_ERR_FORMAT,
                                  "id %lld belongs to two tokens, \"%.60s\" is the second",
                                  (long long)mics_json_int(id), key);
        size_t length = strlen(key);
        int64_t bytes = -1;
        if (bpe->byte_level)
            bytes = mics_bpe_unspell(key, length, bpe->blob + used);
        const bool word = bytes > 0 || (!bpe->byte_level && length > 0);
        if (bytes < 0)
            memcpy(bpe->blob + used, key, length);
        *span = (mics_bpe_span){.begin = (uint32_t)used,
                                .bytes = (uint32_t)(bytes < 0 ? (int64_t)length : bytes),
                                .word = word};
        used += span->bytes;
    }
    *used_out = used;
    return MICS_OK;
}

// ---- words by their bytes ----

static uint64_t word_slot(const mics_bpe *bpe, const char *text, size_t bytes)
{
    uint64_t slot = XXH3_64bits(text, bytes) & bpe->word_mask;
    while (bpe->words[slot] >= 0) {
        const mics_bpe_span *span = &bpe->spans[bpe->words[slot]];
        if (span->bytes == bytes && memcmp(bpe->blob + span->begin, text, bytes) == 0)
            break;
        slot = (slot + 1) & bpe->word_mask;
    }
    return slot;
}

int32_t mics_bpe_find_word(const mics_bpe *bpe, const char *text, size_t bytes)
{
    return bpe->words[word_slot(bpe, text, bytes)];
}

// Fills the index in. Of two words with one text, which JSON allows no vocabulary to have, the
// first counts.
static mics_status index_words(mics_bpe *bpe)
{
    size_t slots = 1024;
    while (slots < 2 * (size_t)bpe->vocab)
        slots *= 2;
    MICS_TRY(MICS_NEW(bpe->memory, slots, &bpe->words));
    bpe->word_mask = slots - 1;
    memset(bpe->words, 0xFF, slots * sizeof *bpe->words); // -1: empty
    for (int32_t token = 0; token < bpe->vocab; token++) {
        const mics_bpe_span *span = &bpe->spans[token];
        if (!span->word)
            continue;
        bpe->words[word_slot(bpe, bpe->blob + span->begin, span->bytes)] = token;
        if (span->bytes > bpe->longest_word)
            bpe->longest_word = span->bytes;
    }
    MICS_TRY(MICS_NEW(bpe->memory, bpe->longest_word + 1, &bpe->word_lengths));
    for (int32_t token = 0; token < bpe->vocab; token++) {
        if (bpe->spans[token].word)
            bpe->word_lengths[bpe->spans[token].bytes] = true;
    }
    return MICS_OK;
}

// ---- what stands for a byte or an unknown character ----

static int32_t hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int32_t mics_bpe_byte_of(const char *text, size_t bytes)
{
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    const int32_t high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high >= 0 && low >= 0 ? 16 * high + low : -1;
}

static mics_status find_bytes(const mics_json *json, mics_bpe *bpe)
{
    int32_t found = 0;
    for (int32_t byte = 0; byte < 256; byte++) {
        char text[8] = {(char)(unsigned char)byte};
        size_t bytes = 1;
        if (!bpe->byte_level)
            bytes = (size_t)snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        bpe->byte_token[byte] = mics_bpe_find_word(bpe, text, bytes);
        found += bpe->byte_token[byte] >= 0;
        if (bpe->byte_level && bpe->byte_token[byte] < 0)
            return mics_json_fail(json, "model.vocab", MICS_ERR_UNSUPPORTED,
                                  "no token for the byte 0x%02x; byte-level BPE needs all 256",
                                  (unsigned)byte);
    }
    if (bpe->byte_level || !bpe->has_bytes)
        return MICS_OK;
    bpe->has_bytes = found == 256;
    if (found != 0 && found != 256)
        return mics_json_fail(json, "model.byte_fallback", MICS_ERR_UNSUPPORTED,
                              "true, but model.vocab has only %d of the tokens <0x00> to <0xFF>",
                              (int)found);
    return MICS_OK;
}

static mics_status find_unknown(const mics_json *json, mics_bpe *bpe)
{
    const mics_json_value *model = mics_json_at(json, "model");
    const char *text = NULL;
    bpe->unknown = -1;
    MICS_TRY(mics_read_text(json, model, "model.unk_token", "unk_token",
                            bpe->wordpiece.prefix != NULL, &text));
    if (text == NULL || bpe->byte_level) // all bytes are known there
        return MICS_OK;
    const mics_json_value *id = mics_json_get(mics_json_get(model, "vocab"), text);
    if (id == NULL)
        return mics_json_fail(json, "model.unk_token", MICS_ERR_FORMAT,
                              "\"%.60s\" is no token of model.vocab", text);
    bpe->unknown = (int32_t)mics_json_int(id);
    return MICS_OK;
}

mics_status mics_bpe_load_tokens(const mics_json *json, mics_bpe *bpe)
{
    const mics_json_value *words = mics_json_at(json, "model.vocab");
    const mics_json_value *added = mics_json_at(json, "added_tokens");
    if (added != NULL && mics_json_type_of(added) != MICS_JSON_ARRAY)
        return mics_json_fail(json, "added_tokens", MICS_ERR_FORMAT, "is %s, expected an array",
                              mics_json_type_text(mics_json_type_of(added)));
    size_t bytes = 0, used = 0;
    MICS_TRY(measure(json, words, added, &bpe->vocab, &bytes));
    MICS_TRY(MICS_NEW(bpe->memory, bytes, &bpe->blob));
    MICS_TRY(MICS_NEW(bpe->memory, bpe->vocab, &bpe->spans));
    MICS_TRY(fill_words(json, words, bpe, &used));
    MICS_TRY(mics_bpe_load_added(json, bpe, bpe->blob + used));
    MICS_TRY(index_words(bpe));
    MICS_TRY(find_bytes(json, bpe));
    return find_unknown(json, bpe);
}
