// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Gives a manifest that a test has changed the checksum that it would have: a checkpoint of another
// version. Arguments: the manifest.
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static const char tail[] = "  \"xxh3\": \"0123456789abcdef\"\n}\n";

int main(int count, char **arguments)
{
    static char text[1 << 20];
    FILE *file = count == 2 ? fopen(arguments[1], "r+") : NULL;
    const size_t bytes = file != NULL ? fread(text, 1, sizeof text, file) : 0;
    if (bytes < sizeof tail || bytes == sizeof text)
        return 1;
    const size_t end = bytes - (sizeof tail - 1);
    const bool written = fseek(file, (long)end, SEEK_SET) == 0 &&
                         fprintf(file, "  \"xxh3\": \"%016" PRIx64 "\"\n}\n",
                                 (uint64_t)XXH3_64bits(text, end)) == (int)(sizeof tail - 1);
    return fclose(file) == 0 && written ? 0 : 1;
}
