// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The parts of BERT's normalizer that no other has.
// Source: Hugging Face tokenizers, normalizers/bert.rs.
#include "base/utf8.h"
#include "io/data/tokenizer/normal.h"

enum { REPLACEMENT = 0xFFFD };

mics_status mics_normal_clean(const mics_chars *chars, const char *text, size_t bytes,
                              mics_buffer *out)
{
    size_t length = 0;
    for (size_t at = 0; at < bytes; at += length) {
        const uint8_t classes = mics_chars_at(chars, text + at, bytes - at, &length);
        const char c = text[at];
        if (c == '\t' || c == '\n' || c == '\r')
            MICS_TRY(mics_buffer_append(out, " ", 1));
        else if ((classes & MICS_CHAR_CONTROL) != 0 ||
                 mics_utf8_code(text + at, (int32_t)length) == REPLACEMENT)
            continue;
        else if ((classes & MICS_CHAR_SPACE) != 0)
            MICS_TRY(mics_buffer_append(out, " ", 1));
        else
            MICS_TRY(mics_buffer_append(out, text + at, length));
    }
    return MICS_OK;
}

static bool is_han(uint32_t code)
{
    static const uint32_t ranges[][2] = {
        {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
        {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if (code >= ranges[i][0] && code <= ranges[i][1])
            return true;
    }
    return false;
}

mics_status mics_normal_space_han(const char *text, size_t bytes, mics_buffer *out)
{
    for (size_t at = 0; at < bytes;) {
        const int32_t length = mics_utf8_char(text + at, bytes - at);
        const bool han = is_han(mics_utf8_code(text + at, length));
        if (han)
            MICS_TRY(mics_buffer_append(out, " ", 1));
        MICS_TRY(mics_buffer_append(out, text + at, (size_t)length));
        if (han)
            MICS_TRY(mics_buffer_append(out, " ", 1));
        at += (size_t)length;
    }
    return MICS_OK;
}
