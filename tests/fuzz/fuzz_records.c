// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Records of a text: the first byte chooses their kind. They are all of the text, one after another;
// where each ends does not depend on how much of the text behind it is known; and reading one gives
// the same text twice.
#include "fuzz.h"
#include "io/data/records.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_PREFIXES = 200 };

// A copy with nothing behind it, so that a sanitizer sees a byte too far.
static char *copy_of(const char *text, size_t bytes)
{
    char *copy = malloc(bytes > 0 ? bytes : 1);
    fuzz_check(copy != NULL, "no memory for a copy");
    return memcpy(copy, text, bytes);
}

// A record is 0 bytes long as long as its end is not known, and then as long as of all.
static void check_prefixes(const mics_records *records, const char *text, size_t bytes)
{
    const size_t whole = mics_records_next(records, text, bytes, false);
    const size_t stride = bytes / MAX_PREFIXES + 1;
    for (size_t known = 1; known < bytes; known += stride) {
        char *part = copy_of(text, known);
        const size_t cut = mics_records_next(records, part, known, false);
        fuzz_check(cut == 0 || cut == whole, "a record ends elsewhere where less is known");
        fuzz_check(cut <= known, "a record ends behind what is known");
        free(part);
    }
}

static bool read_twice(const mics_records *records, const char *text, size_t bytes, int64_t line,
                       bool first)
{
    mics_buffer spaces[2] = {{.memory = records->memory}, {.memory = records->memory}};
    mics_record read[2];
    char *copy = copy_of(text, bytes);
    bool good = true;
    for (int i = 0; i < 2; i++)
        good = fuzz_good(mics_record_read(records, copy, bytes, line, first, &spaces[i], &read[i]));
    if (good) {
        fuzz_check((read[0].text == NULL) == (read[1].text == NULL), "a text once");
        fuzz_check(read[0].bytes == read[1].bytes, "another text the second time");
        fuzz_check(read[0].text == NULL || memcmp(read[0].text, read[1].text, read[0].bytes) == 0,
                   "another text the second time");
        // Escapes of JSON are no shorter than what they stand for, and so are quotes that are doubled.
        fuzz_check(read[0].bytes <= bytes, "a text longer than its record");
    }
    for (int i = 0; i < 2; i++) {
        mics_record_fini(&read[i]);
        mics_buffer_fini(&spaces[i]);
    }
    free(copy);
    return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const mics_text_kind kinds[] = {MICS_TEXT_LINES, MICS_TEXT_ARRAY, MICS_TEXT_CSV,
                                           MICS_TEXT_TSV};
    if (bytes == 0)
        return 0;
    mics_memory *memory = fuzz_begin();
    mics_records records = {
        .memory = memory, .path = "records", .field = "text", .kind = kinds[data[0] % 4]};
    const char *text = (const char *)data + 1;
    const bool table = records.kind == MICS_TEXT_CSV || records.kind == MICS_TEXT_TSV;
    size_t at = 0;
    int64_t lines = 1;
    bool good = true;
    bytes--;
    for (int64_t number = 0; good && at < bytes; number++) {
        check_prefixes(&records, text + at, bytes - at);
        const size_t length = mics_records_next(&records, text + at, bytes - at, true);
        fuzz_check(length > 0 && length <= bytes - at, "a record of no bytes, or of too many");
        if (table && number == 0)
            good = fuzz_good(mics_records_read_header(&records, text, length));
        else
            good = read_twice(&records, text + at, length, lines, number == (table ? 1 : 0));
        lines += mics_records_lines(text + at, length);
        at += length;
    }
    fuzz_check(!good || at == bytes, "a rest of the text");
    fuzz_check(!good || lines == 1 + mics_records_lines(text, bytes), "other lines");
    fuzz_end(memory);
    return 0;
}
