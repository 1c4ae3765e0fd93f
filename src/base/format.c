// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Formatted text whose numbers have decimal points; and text without what is secret.
#include "base/text.h"
#include <locale.h>
#include <string.h>
#include <strings.h>

// Of the calling thread alone; making "C" allocates nothing, and cannot fail.
int mics_text_vformat(char *text, size_t capacity, const char *format, va_list args)
{
    const locale_t before = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
    const int count = vsnprintf(text, capacity, format, args);
    uselocale(before);
    return count;
}

int mics_text_format(char *text, size_t capacity, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int count = mics_text_vformat(text, capacity, format, args);
    va_end(args);
    return count;
}

void mics_text_hide_secrets(char *text)
{
    for (char *at = strstr(text, "://"); at != NULL; at = strstr(at, "://")) {
        const bool web = (at - text >= 4 && strncasecmp(at - 4, "http", 4) == 0) ||
                         (at - text >= 5 && strncasecmp(at - 5, "https", 5) == 0);
        at += 3;
        size_t user = web ? strcspn(at, "/?# \"'") : 0;
        while (user > 0 && at[user - 1] != '@')
            user--;
        memmove(at, at + user, strlen(at + user) + 1);
        char *query = at + (web ? strcspn(at, "? \"'") : 0);
        const size_t bytes = *query == '?' && web ? strcspn(query, " \"") : 0;
        memmove(query, query + bytes, strlen(query + bytes) + 1);
    }
}
