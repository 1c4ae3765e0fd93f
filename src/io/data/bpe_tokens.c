// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The tokens of a tokenizer.json: the model's words and the added ones, by id and by their bytes.
#include "base/utf8.h"
#include "io/data/bpe.h"
#include <stdlib.h>
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
        int64_t bytes = mics_bpe_unspell(key, length, bpe->blob + used);
        if (bytes < 0)
            memcpy(bpe->blob + used, key, length);
        *span = (mics_bpe_span){.begin = (uint32_t)used,
                                .bytes = (uint32_t)(bytes < 0 ? (int64_t)length : bytes),
                                .word = bytes > 0};
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

static mics_status index_words(const mics_json *json, mics_bpe *bpe)
{
    size_t slots = 1024;
    while (slots < 2 * (size_t)bpe->vocab)
        slots *= 2;
    MICS_TRY(MICS_NEW(bpe->memory, slots, &bpe->words));
    bpe->word_mask = slots - 1;
    memset(bpe->words, 0xFF, slots * sizeof *bpe->words); // -1: empty
    for (int32_t token = 0; token < bpe->vocab; token++) {
        const mics_bpe_span *span = &bpe->spans[token];
        if (span->word)
            bpe->words[word_slot(bpe, bpe->blob + span->begin, span->bytes)] = token;
    }
    for (int32_t byte = 0; byte < 256; byte++) {
        char text = (char)(unsigned char)byte;
        bpe->byte_token[byte] = mics_bpe_find_word(bpe, &text, 1);
        if (bpe->byte_token[byte] < 0)
            return mics_json_fail(json, "model.vocab", MICS_ERR_UNSUPPORTED,
                                  "no token for the byte 0x%02x; byte-level BPE needs all 256",
                                  (unsigned)byte);
    }
    return MICS_OK;
}

// ---- added tokens ----

static int by_first_byte_then_longest(const void *a, const void *b)
{
    const mics_bpe_added *x = a, *y = b;
    int first = (unsigned char)x->text[0] - (unsigned char)y->text[0];
    if (first != 0)
        return first;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return memcmp(x->text, y->text, x->bytes);
}

// Reads what HF calls flags; those that take neighbouring spaces along are not supported.
static mics_status read_flags(const mics_json *json, const mics_json_value *entry,
                              mics_bpe_added *added)
{
    static const char *const refused[] = {"single_word", "lstrip", "rstrip"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (mics_json_bool(mics_json_get(entry, refused[i])))
            return mics_json_fail(json, "added_tokens", MICS_ERR_UNSUPPORTED,
                                  "\"%s\" of \"%.60s\" is not supported", refused[i], added->text);
    }
    added->special = mics_json_bool(mics_json_get(entry, "special"));
    return MICS_OK;
}

// Refuses an added token whose id and text the model gives to two different words.
static mics_status check_added(const mics_json *json, const mics_bpe *bpe,
                               const mics_bpe_added *added, const mics_json_value *word)
{
    bool taken = bpe->spans[added->token].bytes != 0;
    if (word != NULL ? mics_json_int(word) != added->token : taken)
        return mics_json_fail(json, "added_tokens", MICS_ERR_FORMAT,
                              "\"%.60s\" has the id %d, which contradicts model.vocab or another "
                              "added token",
                              added->text, (int)added->token);
    return MICS_OK;
}

static mics_status fill_added(const mics_json *json, const mics_json_value *words,
                              const mics_json_value *list, mics_bpe *bpe, size_t used)
{
    for (int32_t i = 0; i < bpe->added_count; i++) {
        const mics_json_value *entry = mics_json_element(list, i);
        const mics_json_value *content = mics_json_get(entry, "content");
        const char *text = mics_json_string(content);
        mics_bpe_added *added = &bpe->added[i];
        *added = (mics_bpe_added){.text = text,
                                  .bytes = mics_json_string_bytes(content),
                                  .token = (int32_t)mics_json_int(mics_json_get(entry, "id"))};
        MICS_TRY(read_flags(json, entry, added));
        MICS_TRY(check_added(json, bpe, added, mics_json_get(words, text)));
        added->text = memcpy(bpe->blob + used, text, added->bytes);
        mics_bpe_span *span = &bpe->spans[added->token];
        // A word of the model stays one when it is not special and stands for the same bytes.
        bool same =
            span->bytes == added->bytes && memcmp(bpe->blob + span->begin, text, added->bytes) == 0;
        *span = (mics_bpe_span){.begin = (uint32_t)used,
                                .bytes = (uint32_t)added->bytes,
                                .word = span->word && same && !added->special};
        used += added->bytes;
    }
    return MICS_OK;
}

static mics_status index_added(const mics_json *json, mics_bpe *bpe)
{
    if (bpe->added_count > 0)
        qsort(bpe->added, (size_t)bpe->added_count, sizeof *bpe->added, by_first_byte_then_longest);
    int32_t at = 0;
    for (int32_t byte = 0; byte < 256; byte++) {
        while (at < bpe->added_count && (unsigned char)bpe->added[at].text[0] < byte)
            at++;
        bpe->added_first[byte] = at;
    }
    bpe->added_first[256] = bpe->added_count;
    for (int32_t i = 0; i < bpe->added_count; i++) {
        const mics_bpe_added *added = &bpe->added[i];
        if (i > 0 && by_first_byte_then_longest(added - 1, added) == 0)
            return mics_json_fail(json, "added_tokens", MICS_ERR_FORMAT, "\"%.*s\" is there twice",
                                  (int)(added->bytes < 60 ? added->bytes : 60), added->text);
        for (int kind = added->special ? 1 : 0; kind < 2; kind++) {
            if (added->bytes > bpe->added_longest[kind])
                bpe->added_longest[kind] = added->bytes;
        }
    }
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
    bpe->added_count = mics_json_count(added);
    MICS_TRY(MICS_NEW(bpe->memory, bpe->added_count, &bpe->added));
    MICS_TRY(fill_words(json, words, bpe, &used));
    MICS_TRY(fill_added(json, words, added, bpe, used));
    MICS_TRY(index_added(json, bpe));
    return index_words(json, bpe);
}
