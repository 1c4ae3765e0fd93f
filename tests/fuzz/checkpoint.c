// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint.h"
#include "mics/core/checkpoint.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

// As docs/formats.md has it: the last line but one, over all the text before.
#define TAIL "  \"xxh3\": \"%016" PRIx64 "\"\n}\n"

enum { TAIL_BYTES = sizeof "  \"xxh3\": \"\"\n}\n" - 1 + 16 };

fuzz_part fuzz_seal_manifest(const uint8_t *data, size_t bytes)
{
    static const char begins[] = "  \"xxh3\": \"";
    fuzz_part part = {0};
    if (bytes > 0 && memchr(data, 0, bytes) != NULL)
        return part;
    const bool has =
        bytes >= TAIL_BYTES && memcmp(data + bytes - TAIL_BYTES, begins, sizeof begins - 1) == 0;
    const size_t kept = has ? bytes - TAIL_BYTES : bytes;
    part.text = malloc(kept + TAIL_BYTES + 1);
    fuzz_check(part.text != NULL, "no memory for a manifest");
    if (kept > 0)
        memcpy(part.text, data, kept);
    part.bytes = kept + TAIL_BYTES;
    snprintf(part.text + kept, TAIL_BYTES + 1, TAIL, (uint64_t)XXH3_64bits(part.text, kept));
    return part;
}

static void on_problem(void *ctx, const char *line)
{
    fuzz_check(line[0] != '\0', "a problem without words");
    for (const char *c = line; *c != '\0'; c++)
        fuzz_check((unsigned char)*c >= ' ', "a control character in a problem's line");
    ++*(int64_t *)ctx;
}

void fuzz_verify(mics_memory *memory, const char *path, bool opened)
{
    int64_t problems = 0;
    const mics_verify_listener listener = {on_problem, NULL, &problems};
    mics_checkpoint_verified found;
    fuzz_check(fuzz_good(mics_checkpoint_verify(memory, path, &listener, NULL, &found)),
               "verifying");
    fuzz_check(found.problems == problems, "the number of problems");
    fuzz_check(opened || problems > 0, "no problem is found in what cannot be opened");
}
