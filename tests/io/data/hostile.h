// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Hostile texts: hostile() of tools/make_tokenizer_families.py once more, which says what they are.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { HOSTILE_TEXTS = 4096, HOSTILE_BYTES = 1024 };

static const uint32_t hostile_ranges[][2] = {
    {0x0, 0x1F},        {0x20, 0x7E},       {0x7F, 0x9F},       {0xA0, 0xFF},
    {0x100, 0x17F},     {0x180, 0x24F},     {0x250, 0x2AF},     {0x300, 0x34E},
    {0x391, 0x3A1},     {0x3A3, 0x3CE},     {0x400, 0x481},     {0x5B0, 0x5BD},
    {0x5D0, 0x5EA},     {0x621, 0x64A},     {0x64B, 0x652},     {0x660, 0x669},
    {0x905, 0x939},     {0x93E, 0x94D},     {0xE01, 0xE3A},     {0x1100, 0x1112},
    {0x1161, 0x1175},   {0x11A8, 0x11C2},   {0x1E00, 0x1EFF},   {0x2000, 0x200F},
    {0x2010, 0x2027},   {0x2028, 0x202F},   {0x2030, 0x205E},   {0x2080, 0x208E},
    {0x20A0, 0x20B9},   {0x2100, 0x214F},   {0x2150, 0x2188},   {0x2190, 0x22FF},
    {0x2460, 0x24FF},   {0x2500, 0x259F},   {0x2600, 0x26FF},   {0x2701, 0x27BE},
    {0x3000, 0x303E},   {0x3041, 0x3096},   {0x3099, 0x309F},   {0x30A0, 0x30FF},
    {0x4E00, 0x9FA5},   {0xAC00, 0xD7A3},   {0xE000, 0xE00F},   {0xF900, 0xFA0D},
    {0xFB00, 0xFB06},   {0xFE00, 0xFE0F},   {0xFE70, 0xFE74},   {0xFF01, 0xFF5E},
    {0xFF65, 0xFF9F},   {0xFFFC, 0xFFFD},   {0x1D400, 0x1D454}, {0x1F1E6, 0x1F1FF},
    {0x1F300, 0x1F5FF}, {0x1F600, 0x1F64F}, {0x20000, 0x20050}, {0xE0020, 0xE007F},
};

// Each with its length, because one is a NUL.
static const struct {
    const char *text;
    size_t bytes;
} hostile_fragments[] = {
    {"the", 3},
    {" the", 4},
    {" and", 4},
    {"ing", 3},
    {" of", 3},
    {"'s", 2},
    {"'S", 2},
    {"'t", 2},
    {"'re", 3},
    {"'VE", 3},
    {"'m", 2},
    {"'ll", 3},
    {"'d", 2},
    {"\xe2\x80\x99s", 4},
    {"'\xc5\xbf", 3},
    {" ", 1},
    {"  ", 2},
    {"   ", 3},
    {"\x0a", 1},
    {"\x0d\x0a", 2},
    {"\x0d", 1},
    {"\x0a\x0a", 2},
    {"\x09", 1},
    {" \x0a ", 3},
    {"0", 1},
    {"42", 2},
    {" 1999", 5},
    {"3.14", 4},
    {"1,000", 5},
    {"!", 1},
    {"?!", 2},
    {"...", 3},
    {" -- ", 4},
    {"(", 1},
    {")", 1},
    {"_", 1},
    {"snake_case", 10},
    {"CamelCase", 9},
    {"http://a.b/c?d=e", 16},
    {"<s>", 3},
    {"</s>", 4},
    {"<|endoftext|>", 13},
    {"<|im_start|>", 12},
    {"<unk>", 5},
    {"<0x0A>", 6},
    {"e\xcc\x81", 3},
    {"A\xcc\x8a", 3},
    {"\xc4\xb0", 2},
    {"\xc4\xb1", 2},
    {"\xef\xac\x81", 3},
    {"\xc3\x9f", 2},
    {"\xe1\xba\x9e", 3},
    {"\xce\xa3\xcf\x82", 4},
    {"\xc2\xbd", 2},
    {"\xe2\x85\xa7", 3},
    {"\xe2\x96\x81", 3},
    {"\xe2\x96\x81\xe2\x96\x81", 6},
    {"\xe4\xbd\xa0\xe5\xa5\xbd", 6},
    {"\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e", 9},
    {"\xed\x95\x9c\xea\xb5\xad\xec\x96\xb4", 9},
    {"\xd9\x85\xd8\xb1\xd8\xad\xd8\xa8\xd8\xa7", 10},
    {"\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d", 8},
    {"\xe2\x80\x8f\xe2\x80\xae", 6},
    {"\xe0\xa4\xb9\xe0\xa4\xbf\xe0\xa4\xa8\xe0\xa5\x8d\xe0\xa4\xa6\xe0\xa5\x80", 18},
    {"\xe0\xb9\x84\xe0\xb8\x97\xe0\xb8\xa2", 9},
    {"\xf0\x9f\x98\x80", 4},
    {"\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7", 18},
    {"\xf0\x9f\x87\xa9\xf0\x9f\x87\xaa", 8},
    {"\xe2\x9d\xa4\xef\xb8\x8f", 6},
    {"\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd", 8},
    {"a\xcc\xa3\xcc\x87", 5},
    {"a\xcc\x87\xcc\xa3", 5},
    {"\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", 9},
    {"\xea\xb0\x80\xe1\x86\xa8", 6},
    {"\xcd\x84", 2},
    {"\xe2\x84\xa6", 3},
    {"\xef\xb7\xba", 3},
    {"\xe3\x80\x80", 3},
    {"\xc2\xa0", 2},
    {"\xe2\x80\xa8", 3},
    {"\xc2\x85", 2},
    {"\xef\xbb\xbf", 3},
    {"\x00", 1},
    {"\x1b[0m", 4},
    {"Yesterday", 9},
    {"yesterday", 9},
    {" [mask] ", 8},
    {"[mask]", 6},
    {"day", 3},
    {"{{", 2},
    {"}}", 2},
};

static const char *const hostile_invalid[] = {
    "\x80",    "\xff", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xed\xa0\x80", "\xf4\x90\x80\x80",
    "\xc0\xaf"};

// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
static inline uint64_t hostile_below(uint64_t *state, uint64_t count)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (z ^ z >> 31) % count;
}

static inline size_t hostile_char(uint64_t *state, uint64_t range, char *out)
{
    const uint32_t low = hostile_ranges[range][0], high = hostile_ranges[range][1];
    const uint32_t code = low + (uint32_t)hostile_below(state, high - low + 1);
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    const size_t bytes = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned heads[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = bytes; i-- > 0;)
        out[i] = (char)(unsigned char)((i == 0 ? heads[bytes] : 0x80u) |
                                       (code >> 6 * (bytes - 1 - i) & 0x3Fu));
    return bytes;
}

// What a text gets next. Returns its bytes.
static inline size_t hostile_part(uint64_t *state, uint64_t index, char *out)
{
    const uint64_t ranges = sizeof hostile_ranges / sizeof *hostile_ranges;
    const uint64_t kind = hostile_below(state, 8);
    size_t bytes = 0;
    if (kind <= 3) {
        const uint64_t fragments = sizeof hostile_fragments / sizeof *hostile_fragments;
        const uint64_t at = hostile_below(state, fragments);
        memcpy(out, hostile_fragments[at].text, hostile_fragments[at].bytes);
        return hostile_fragments[at].bytes;
    }
    if (kind == 4)
        return hostile_char(state, hostile_below(state, ranges), out);
    if (kind == 5) {
        const uint64_t count = 1 + hostile_below(state, 8);
        while (bytes < count)
            out[bytes++] = (char)('a' + hostile_below(state, 26));
    } else if (kind == 6) {
        const uint64_t range = hostile_below(state, ranges), count = 1 + hostile_below(state, 6);
        for (uint64_t i = 0; i < count; i++)
            bytes += hostile_char(state, range, out + bytes);
    } else if (index % 4 == 3) {
        const uint64_t count = sizeof hostile_invalid / sizeof *hostile_invalid;
        const char *invalid = hostile_invalid[hostile_below(state, count)];
        bytes = strlen(invalid);
        memcpy(out, invalid, bytes);
    } else {
        bytes = (size_t)hostile_below(state, 5);
        memset(out, ' ', bytes);
    }
    return bytes;
}

// Text number `index`, of up to HOSTILE_BYTES. Returns its bytes.
static inline size_t hostile_text(uint64_t index, char *text)
{
    static const char yesterday[] = "yesterday";
    uint64_t state = index;
    const size_t length = 32 + (size_t)hostile_below(&state, 480);
    size_t bytes = 0;
    while (bytes < length)
        bytes += hostile_part(&state, index, text + bytes);
    for (size_t i = 0; i < bytes && index % 4 == 3; i++) {
        if (text[i] == '<' || text[i] == '[')
            text[i] = '(';
        if (bytes - i >= sizeof yesterday - 1 && memcmp(text + i, yesterday, 9) == 0) {
            memcpy(text + i, "today", 5);
            memmove(text + i + 5, text + i + 9, bytes - i - 9);
            bytes -= 4;
        }
    }
    return bytes;
}

// FNV-1a of tokens, as the golden hashes are made.
static inline uint32_t hostile_hash(const int32_t *tokens, int64_t count)
{
    uint32_t hash = 0x811C9DC5u;
    for (int64_t i = 0; i < 4 * count; i++) {
        const uint32_t byte = (uint32_t)tokens[i / 4] >> 8 * (i % 4) & 0xFF;
        hash = (hash ^ byte) * 0x01000193u;
    }
    return hash;
}
