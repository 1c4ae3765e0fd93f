// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A Parquet file. What it gives is JSON, a line a row, and once more the same.
#include "base/json.h"
#include "fuzz.h"
#include "io/data/parquet/parquet.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGES = 8 << 20, TEXT = 1 << 18 };

// Whole rows. Names that come twice in an object, and what is nested too deep, are refused.
static void look_at(mics_memory *memory, const char *text, size_t bytes)
{
    for (const char *end; (end = memchr(text, '\n', bytes)) != NULL;) {
        mics_json *json = NULL;
        const size_t line = (size_t)(end - text) + 1;
        if (fuzz_good(mics_json_parse_foreign_line(memory, "a row", text, line, &json)))
            fuzz_check(mics_json_type_of(mics_json_root(json)) == MICS_JSON_OBJECT, "no object");
        mics_json_close(json);
        text += line;
        bytes -= line;
    }
}

static size_t read_rows(mics_parquet *parquet, char *text)
{
    size_t got = 0;
    mics_parquet_rewind(parquet);
    return fuzz_good(mics_parquet_read(parquet, text, TEXT, &got)) ? got : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mics_memory *memory = fuzz_begin();
    const char *path = fuzz_memory_file(data, bytes);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const mics_parquet_source source = {
        .path = path, .file = file, .bytes = (int64_t)bytes, .max_bytes = PAGES};
    mics_parquet *parquet = NULL;
    if (fuzz_good(mics_parquet_open(memory, &source, &parquet))) {
        char *first = malloc(TEXT), *again = malloc(TEXT);
        fuzz_check(first != NULL && again != NULL, "no memory for rows");
        const size_t got = read_rows(parquet, first);
        fuzz_check(read_rows(parquet, again) == got && memcmp(first, again, got) == 0,
                   "other rows the second time");
        look_at(memory, first, got);
        free(first);
        free(again);
    }
    mics_parquet_close(parquet);
    close(file);
    fuzz_end(memory);
    return 0;
}
