// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// UTF-8 by the table of well-formed sequences of the Unicode standard.
#include "base/utf8.h"
#include <string.h>

int32_t mics_utf8_char(const char *text, size_t bytes)
{
    const unsigned char *u = (const unsigned char *)text;
    if (u[0] < 0x80)
        return 1;
    if (u[0] < 0xC2 || u[0] > 0xF4)
        return 0;
    int32_t length = u[0] < 0xE0 ? 2 : u[0] < 0xF0 ? 3 : 4;
    // RFC 3629, section 4: four first bytes narrow what may follow them.
    unsigned low = u[0] == 0xE0 ? 0xA0 : u[0] == 0xF0 ? 0x90 : 0x80;
    unsigned high = u[0] == 0xED ? 0x9F : u[0] == 0xF4 ? 0x8F : 0xBF;
    for (int32_t i = 1; i < length; i++) {
        if ((size_t)i == bytes)
            return -1;
        if (u[i] < low || u[i] > high)
            return 0;
        low = 0x80;
        high = 0xBF;
    }
    return length;
}

size_t mics_utf8_valid(const char *text, size_t bytes)
{
    static const uint64_t high = UINT64_C(0x8080808080808080);
    size_t at = 0;
    while (at < bytes) {
        uint64_t eight = high;
        if (bytes - at >= sizeof eight)
            memcpy(&eight, text + at, sizeof eight);
        if ((eight & high) == 0) {
            at += sizeof eight;
            continue;
        }
        int32_t length = mics_utf8_char(text + at, bytes - at);
        if (length <= 0)
            break;
        at += (size_t)length;
    }
    return at;
}

uint32_t mics_utf8_code(const char *text, int32_t length)
{
    static const unsigned char masks[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t code = (unsigned char)text[0] & masks[length];
    for (int32_t i = 1; i < length; i++)
        code = code << 6 | ((unsigned char)text[i] & 0x3Fu);
    return code;
}
