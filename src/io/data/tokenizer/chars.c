// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The classes of all characters, from Oniguruma's ranges.
#include "io/data/tokenizer/chars.h"
#include "base/utf8.h"
#include "mics/log.h"
#include <oniguruma.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>
#include <xxhash.h>

static mics_status add_property(mics_chars *chars, const char *name, uint8_t bits)
{
    OnigEncoding utf8 = ONIG_ENCODING_UTF8;
    OnigUChar text[32];
    const size_t bytes = strlen(name);
    const OnigCodePoint *ranges = NULL;
    OnigCodePoint single_bytes = 0;
    memcpy(text, name, bytes + 1);
    const int type = ONIGENC_PROPERTY_NAME_TO_CTYPE(utf8, text, text + bytes);
    if (type < 0 ||
        ONIGENC_GET_CTYPE_CODE_RANGE(utf8, (OnigCtype)type, &single_bytes, &ranges) != 0)
        return mics_fail(MICS_ERR_UNSUPPORTED, "Oniguruma %s does not know the characters of %s",
                         onig_version(), name);
    for (OnigCodePoint i = 0; i < ranges[0]; i++) {
        const OnigCodePoint last = ranges[2 * i + 2];
        for (OnigCodePoint code = ranges[2 * i + 1]; code <= last && code < MICS_CHAR_CODES; code++)
            chars->classes[code] |= bits;
    }
    return MICS_OK;
}

mics_status mics_chars_init(mics_memory *memory, mics_chars *chars)
{
    static const struct {
        const char *name;
        uint8_t bits;
    } properties[] = {
        {"l", MICS_CHAR_LETTER},
        {"n", MICS_CHAR_NUMBER},
        {"whitespace", MICS_CHAR_SPACE},
        {"p", MICS_CHAR_PUNCTUATION},
        {"m", MICS_CHAR_MARK | MICS_CHAR_WORD},
        {"mn", MICS_CHAR_NONSPACING},
        {"cc", MICS_CHAR_CONTROL},
        {"cf", MICS_CHAR_CONTROL},
        {"co", MICS_CHAR_CONTROL},
        {"alphabetic", MICS_CHAR_WORD},
        {"nd", MICS_CHAR_WORD},
        {"pc", MICS_CHAR_WORD},
        {"joincontrol", MICS_CHAR_WORD},
    };
    mics_chars filled = {.memory = memory};
    MICS_TRY(MICS_NEW(memory, MICS_CHAR_CODES, &filled.classes));
    mics_status status = MICS_OK;
    for (size_t i = 0; i < sizeof properties / sizeof *properties && status == MICS_OK; i++)
        status = add_property(&filled, properties[i].name, properties[i].bits);
    if (status != MICS_OK) {
        mics_chars_fini(&filled);
        return status;
    }
    static const char symbols[] = "$+<=>^`|~"; // of ASCII, and not in \p{P}
    for (const char *symbol = symbols; *symbol != '\0'; symbol++)
        filled.classes[(unsigned char)*symbol] |= MICS_CHAR_PUNCTUATION;
    *chars = filled;
    return MICS_OK;
}

void mics_chars_fini(mics_chars *chars)
{
    mics_free(chars->memory, chars->classes);
    chars->classes = NULL;
}

uint8_t mics_chars_at(const mics_chars *chars, const char *text, size_t bytes, size_t *length_out)
{
    *length_out = 1;
    if ((unsigned char)text[0] < 0x80)
        return chars->classes[(unsigned char)text[0]];
    const int32_t length = mics_utf8_char(text, bytes);
    if (length <= 0)
        return 0;
    *length_out = (size_t)length;
    return chars->classes[mics_utf8_code(text, length)];
}

uint8_t mics_chars_before(const mics_chars *chars, const char *text, size_t bytes,
                          size_t *length_out)
{
    size_t length = 1;
    while (length < 4 && length < bytes && ((unsigned char)text[bytes - length] & 0xC0) == 0x80)
        length++;
    const uint8_t classes = mics_chars_at(chars, text + bytes - length, length, length_out);
    if (*length_out == length)
        return classes;
    *length_out = 1; // bytes that are no UTF-8
    return 0;
}

size_t mics_chars_write(uint32_t code, char *to)
{
    utf8proc_uint8_t bytes[4];
    const utf8proc_ssize_t length = utf8proc_encode_char((utf8proc_int32_t)code, bytes);
    memcpy(to, bytes, (size_t)length);
    return (size_t)length;
}

uint64_t mics_chars_version(void)
{
    char text[128];
    const int bytes = snprintf(text, sizeof text, "oniguruma %s utf8proc %s unicode %s",
                               onig_version(), utf8proc_version(), utf8proc_unicode_version());
    return XXH3_64bits(text, (size_t)bytes);
}
