// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// JSON itself: a document, and behind NULs a path and a value for --set. What parses is walked
// through, and each of its keys has a line.
#include "base/json.h"
#include "fuzz.h"
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 64 + 2 };

// Reads every value by all readers; returns how many there are.
static int64_t walk(const mics_json_value *value, int32_t depth)
{
    int64_t values = 1;
    fuzz_check(depth <= DEPTH_MAX, "nested deeper than the limit");
    const mics_json_type type = mics_json_type_of(value);
    fuzz_check(mics_json_type_text(type) != NULL, "a type without a text");
    fuzz_check((mics_json_string(value) != NULL) == (type == MICS_JSON_STRING), "a string's type");
    (void)mics_json_bool(value);
    (void)mics_json_int(value);
    (void)mics_json_real(value);
    for (int32_t i = 0; type == MICS_JSON_ARRAY && i < mics_json_count(value); i++)
        values += walk(mics_json_element(value, i), depth + 1);
    const char *key = NULL;
    const mics_json_value *member = mics_json_next(value, &key);
    for (; member != NULL; member = mics_json_next(value, &key)) {
        fuzz_check(mics_json_get(value, key) == member, "a key that is not found");
        values += walk(member, depth + 1);
    }
    return values;
}

static void look_at_keys(const mics_json *json)
{
    const char *const names[] = {"optimizer", "params", "lr"};
    const char *key = NULL;
    while (mics_json_next(mics_json_root(json), &key) != NULL) {
        fuzz_check(mics_json_line(json, key) >= 0, "a line below 0");
        (void)mics_json_at(json, key);
        (void)mics_json_nearest(key, names, 3);
    }
}

static void parse(const uint8_t *data, size_t bytes, const char *path, const char *value)
{
    mics_memory *memory = fuzz_begin();
    mics_json *json = NULL;
    if (fuzz_good(mics_json_parse(memory, "input", (const char *)data, bytes, &json))) {
        fuzz_check(strlen(mics_json_text(json)) == bytes, "a document with a NUL in it");
        walk(mics_json_root(json), 1);
        look_at_keys(json);
        if (fuzz_good(mics_json_set(json, path, value)))
            fuzz_check(mics_json_at(json, path) != NULL, "what was set is not there");
        fuzz_check(!fuzz_good(mics_json_fail(json, path, MICS_ERR_FORMAT, "is bad")),
                   "a good failure");
    }
    mics_json_close(json);
    fuzz_end(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const uint8_t *whole = data;
    const size_t whole_bytes = bytes;
    fuzz_part text = fuzz_take(&data, &bytes);
    fuzz_part path = fuzz_take(&data, &bytes);
    fuzz_part value = fuzz_take(&data, &bytes);
    parse((const uint8_t *)text.text, text.bytes, path.text, value.text);
    if (text.bytes != whole_bytes)
        parse(whole, whole_bytes, path.text, value.text);
    free(text.text);
    free(path.text);
    free(value.text);
    return 0;
}
