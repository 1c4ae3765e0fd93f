// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/report/terminal.h"
#include "base/utf8.h"
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

bool mics_terminal_is_control(const char *text, int32_t bytes)
{
    const unsigned char *c = (const unsigned char *)text;
    return bytes == 1 ? c[0] < 0x20 || c[0] == 0x7f : c[0] == 0xc2 && c[1] < 0xa0;
}

// ---- words for a shell ----

static bool has_control(const char *text)
{
    bool found = false;
    for (size_t at = 0, bytes = strlen(text); at < bytes;) {
        const int32_t length = mics_utf8_char(text + at, bytes - at);
        found = found || length <= 0 || mics_terminal_is_control(text + at, length);
        at += length > 0 ? (size_t)length : 1;
    }
    return found;
}

const char *mics_terminal_word(const char *text, char *out, size_t capacity)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./-+=:,@%";
    const bool escaped = has_control(text);
    if (*text != '\0' && text[strspn(text, plain)] == '\0')
        return text;
    size_t used = (size_t)snprintf(out, capacity, escaped ? "$'" : "'");
    for (const char *at = text; *at != '\0' && used + 8 < capacity; at++) {
        const unsigned char c = (unsigned char)*at;
        if (escaped && (c < 0x20 || c >= 0x7f || c == '\'' || c == '\\'))
            used += (size_t)snprintf(out + used, capacity - used, "\\x%02x", c);
        else if (c == '\'')
            used += (size_t)snprintf(out + used, capacity - used, "'\\''");
        else
            out[used++] = *at;
    }
    snprintf(out + used, capacity - used, "'");
    return out;
}

// ---- texts ----

// Characters may come in parts: of C1 controls, whose first byte is 0xc2, the second becomes a point.
static ssize_t write_text(void *cookie, const char *text, size_t bytes)
{
    bool *begun = cookie;
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)text[i];
        const bool steers = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
        const bool second = *begun && c < 0xa0 && c >= 0x80;
        if (*begun && !second)
            (void)fputc(0xc2, stdout);
        *begun = c == 0xc2;
        if (!*begun)
            (void)fputc(steers || second ? '.' : c, stdout);
    }
    return fflush(stdout) == 0 ? (ssize_t)bytes : 0;
}

FILE *mics_terminal_open(void)
{
    static bool begun;
    FILE *out = NULL;
    if (isatty(STDOUT_FILENO) != 0)
        out = fopencookie(&begun, "w", (cookie_io_functions_t){.write = write_text});
    begun = false;
    return out != NULL ? out : stdout;
}

void mics_terminal_close(FILE *out)
{
    if (out != stdout)
        (void)fclose(out);
}
