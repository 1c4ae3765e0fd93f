// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// YAML as JSON: what is converted has no NUL and no more lines than the input, and goes to the reader
// of JSON, which refuses keys that stand twice, and numbers that are too large.
#include "base/json.h"
#include "base/yaml.h"
#include "fuzz.h"
#include <string.h>

static size_t lines_of(const char *text, size_t bytes)
{
    size_t lines = 0;
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n' ? 1 : 0;
    return lines;
}

// Line ends as YAML knows them; UTF-16 has them too.
static size_t ends_of(const uint8_t *data, size_t bytes)
{
    size_t ends = 0;
    for (size_t i = 0; i < bytes; i++)
        ends += data[i] == '\n' || data[i] == '\r' || data[i] == 0x85 || data[i] == 0xa8 ||
                        data[i] == 0xa9 || data[i] == 0x28 || data[i] == 0x29
                    ? 1
                    : 0;
    return ends;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mics_memory *memory = fuzz_begin();
    mics_json *json = NULL;
    char *text = NULL;
    size_t text_bytes = 0;
    if (fuzz_good(
            mics_yaml_to_json(memory, "input", (const char *)data, bytes, &text, &text_bytes))) {
        fuzz_check(strlen(text) == text_bytes, "JSON with a NUL in it");
        // libyaml has the end of a text on a line of its own.
        fuzz_check(lines_of(text, text_bytes) <= ends_of(data, bytes) + 1,
                   "more lines than there are");
        (void)fuzz_good(mics_json_parse(memory, "input", text, text_bytes, &json));
    }
    mics_json_close(json);
    mics_free(memory, text);
    fuzz_end(memory);
    return 0;
}
