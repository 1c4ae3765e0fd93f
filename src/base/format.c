// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Formatted text whose numbers have decimal points.
#include "base/text.h"
#include <locale.h>

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
