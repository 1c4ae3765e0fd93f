// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What foreign texts must not do: steer a terminal, say one thing to one reader and another to the
// next, take more memory than their bytes are worth.
#include "base/json.h"
#include "base/json_text.h"
#include "base/watched.h"
#include "mics/memory.h"
#include "test.h"
#include <malloc.h>
#include <stdlib.h>

static void test_log_controls(void **state)
{
    (void)state;
    assert_int_equal(mics_fail(MICS_ERR_FORMAT, "%s", "a\033[2J\tb\177\nc \xc2\x9b \xc3\xa9"),
                     MICS_ERR_FORMAT);
    assert_string_equal(seen.line, "a?[2J?b? c ?? \xc3\xa9");
}

// `count` times `unit` in brackets, with `last` behind them.
static char *repeat(const char *unit, size_t count, const char *last, size_t *bytes_out)
{
    const size_t bytes = strlen(unit);
    char *text = malloc(bytes * count + strlen(last) + 2);
    assert_non_null(text);
    text[0] = last[strlen(last) - 1] == '}' ? '{' : '[';
    for (size_t i = 0; i < count; i++)
        memcpy(text + 1 + i * bytes, unit, bytes);
    strcpy(text + 1 + bytes * count, last);
    *bytes_out = strlen(text);
    return text;
}

static void test_nul(void **state)
{
    (void)state;
    static const char text[] = "{\n \"a\": 1\0, \"b\": 2}";
    mics_json *json = NULL;
    assert_int_equal(mics_json_parse(memory, "f", text, sizeof text - 1, &json), MICS_ERR_FORMAT);
    ASSERT_SAID(&seen, "f:2:8: a NUL");
}

// A file of 12 MB whose values take 550 MB; a string of that length is good.
static void test_tree_limit(void **state)
{
    (void)state;
    mics_json *json = NULL;
    size_t bytes = 0;
    char *text = repeat("[],", 4000000, "[]]", &bytes);
    assert_int_equal(mics_json_parse(memory, "big.json", text, bytes, &json), MICS_ERR_FORMAT);
    ASSERT_SAID(&seen, "big.json: its values would take");
    assert_non_null(strstr(seen.line, "may take 512 MiB"));
    memset(text + 2, 'x', bytes - 4);
    text[1] = text[bytes - 2] = '"';
    ASSERT_OK(mics_json_parse(memory, "big.json", text, bytes, &json));
    mics_json_close(json);
    free(text);
}

static size_t heap_bytes(void)
{
    const struct mallinfo2 now = mallinfo2();
    return now.uordblks + now.hblkhd;
}

// The tree takes what is expected of it, and not much less. (None is told under sanitizers, which have
// another malloc.)
static void test_tree_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *unit, *last;
    } texts[] = {
        {"[],", "[]]"},           {"{},", "{}]"},         {"0,", "0]"},
        {"-1.5e3,", "7]"},        {"true,", "null]"},     {"\"\",", "\"\"]"},
        {"[1,2],", "[]]"},        {"\"abc def\",", "1]"}, {"{\"a\":\"b\"},", "{}]"},
        {"[\"h\",\"e\"],", "1]"}, {"[[[]]],", "1]"},      {"{\"a\":1,\"b\":[0,1]},", "1]"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        mics_json *json = NULL;
        size_t bytes = 0;
        char *text = repeat(texts[i].unit, 20000, texts[i].last, &bytes);
        const size_t before = heap_bytes();
        ASSERT_OK(mics_json_parse(memory, "f", text, bytes, &json));
        const size_t took = heap_bytes() - before;
        const uint64_t expected = mics_json_text_tree_bytes(text, bytes);
        // The document keeps the text as well.
        if (took > 0 && (took > expected + bytes + 4096 || 3 * took < expected))
            fail_msg("%s: %zu bytes, %llu expected", texts[i].unit, took,
                     (unsigned long long)expected);
        mics_json_close(json);
        free(text);
    }
}

// As above, for the members of one object, whose keys differ.
static void test_members_bytes(void **state)
{
    (void)state;
    enum { MEMBERS = 20000, MEMBER_BYTES = 16 };
    char *text = malloc(MEMBERS * MEMBER_BYTES + 2);
    mics_json *json = NULL;
    size_t used = 0;
    assert_non_null(text);
    for (int i = 0; i < MEMBERS; i++)
        used += (size_t)sprintf(text + used, "%s\"k%05d\": %d", i == 0 ? "{" : ",", i, i % 10);
    used += (size_t)sprintf(text + used, "}");
    const size_t before = heap_bytes();
    ASSERT_OK(mics_json_parse(memory, "f", text, used, &json));
    const size_t took = heap_bytes() - before;
    const uint64_t expected = mics_json_text_tree_bytes(text, used);
    if (took > 0 && (took > expected + used + 4096 || 3 * took < expected))
        fail_msg("%zu bytes, %llu expected", took, (unsigned long long)expected);
    mics_json_close(json);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_log_controls, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nul, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tree_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tree_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_members_bytes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
