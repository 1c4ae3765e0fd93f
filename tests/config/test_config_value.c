// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Single values: whole numbers, sizes, what counts as off, and how values are written.
#include "base/text.h"
#include "config/value.h"
#include "test.h"
#include <stdio.h>
#include <string.h>

static mics_memory *memory;

static void test_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes; // -1: none
    } cases[] = {
        {"0", 0},
        {"4096", 4096},
        {"8GiB", INT64_C(8) << 30},
        {"8 gib", INT64_C(8) << 30},
        {"8G", INT64_C(8) << 30},
        {"1.5GB", 1500000000},
        {"0.5KiB", 512},
        {"3TB", INT64_C(3000000000000)},
        {"12B", 12},
        {"", -1},
        {"GiB", -1},
        {"-1GiB", -1},
        {"1e3", -1},
        {"8GiBs", -1},
        {"8 Gi B", -1},
        {"8GiB ", -1},
        {"1.2.3G", -1},
        {"0x10", -1},
        {"nan", -1},
        {"inf", -1},
        {"9000000TiB", -1},
        {"99999999999999999999999999999999999999999999999999999999999999", -1},
        {"8\xc3\xa4", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t bytes = -1;
        bool good = mics_config_bytes_parse(cases[i].text, &bytes);
        if (bytes != cases[i].bytes || good != (cases[i].bytes >= 0))
            fail_msg("\"%s\" gave %lld, expected %lld", cases[i].text, (long long)bytes,
                     (long long)cases[i].bytes);
    }
}

// Parses {"x": TEXT} and hands out x.
static mics_json *parse(const char *text, const mics_json_value **value_out)
{
    char whole[512];
    mics_json *json = NULL;
    snprintf(whole, sizeof whole, "{\"x\": %s}", text);
    ASSERT_OK(mics_json_parse(memory, "x", whole, strlen(whole), &json));
    *value_out = mics_json_at(json, "x");
    return json;
}

static void test_whole_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool whole;
        int64_t number;
    } cases[] = {{"5", true, 5},      {"5e8", true, 500000000},
                 {"-2.0", true, -2},  {"9223372036854775807", true, INT64_MAX},
                 {"0.5", false, 0},   {"1e300", false, 0},
                 {"\"5\"", false, 0}, {"true", false, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const mics_json_value *value = NULL;
        mics_json *json = parse(cases[i].text, &value);
        int64_t number = 0;
        assert_int_equal(mics_config_value_int(value, &number), cases[i].whole);
        assert_int_equal(number, cases[i].number);
        mics_json_close(json);
    }
}

static void test_off(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool off;
    } cases[] = {{"null", true},
                 {"false", true},
                 {"0", true},
                 {"0.0", true},
                 {"\"none\"", true},
                 {"{}", true},
                 {"[]", true},
                 {"{\"enabled\": false, \"level\": 3}", true},
                 {"{\"device\": \"none\", \"pin_memory\": true}", true},
                 {"{\"a\": false, \"b\": {\"c\": 0}}", true},
                 {"true", false},
                 {"1", false},
                 {"\"cpu\"", false},
                 {"[false, 1]", false},
                 {"{\"enabled\": true}", false},
                 {"{\"device\": \"cpu\"}", false},
                 {"{\"a\": false, \"b\": {\"c\": 1}}", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const mics_json_value *value = NULL;
        mics_json *json = parse(cases[i].text, &value);
        if (mics_config_value_off(value) != cases[i].off)
            fail_msg("%s is %s", cases[i].text, cases[i].off ? "off" : "not off");
        mics_json_close(json);
    }
}

static void test_writes(void **state)
{
    (void)state;
    static const char *const texts[] = {"null",
                                        "true",
                                        "-3",
                                        "0.0003",
                                        "1e-08",
                                        "0.1",
                                        "\"a\"",
                                        "[]",
                                        "[1, \"b\", [2.5]]",
                                        "\"q\\\"\\\\\"",
                                        "\"\\u0007\"",
                                        "\"\xc3\xa4\"",
                                        "{}",
                                        "{\"a\": {\"b\": [0]}, \"c\": null}"};
    char text[64];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const mics_json_value *value = NULL;
        mics_json *json = parse(texts[i], &value);
        assert_string_equal(mics_config_value_text(value, text, sizeof text), texts[i]);
        mics_json_close(json);
    }
    assert_string_equal(mics_text_real(1.0 / 3.0, text, sizeof text), "0.3333333333333333");
}

// Whatever the room, the text ends inside it, and says when it was cut.
static void test_writes_into_little_room(void **state)
{
    (void)state;
    static const char *const words[] = {"one", "\xc3\xa4\xc3\xa4\xc3\xa4", "\x01\x02", "four"};
    char whole[128];
    mics_config_strings_text(words, 4, whole, sizeof whole);
    size_t needed = strlen(whole) + 1;
    for (size_t capacity = 1; capacity <= needed + 4; capacity++) {
        char room[128];
        memset(room, '!', sizeof room);
        mics_config_strings_text(words, 4, room, capacity);
        assert_true(strlen(room) < capacity);
        assert_true(room[capacity] == '!');
        if (strcmp(room, whole) != 0 && capacity >= 4)
            assert_string_equal(room + strlen(room) - 3, "...");
    }
}

static int setup(void **state)
{
    (void)state;
    return mics_memory_open(&memory) == MICS_OK ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    return mics_memory_close(memory) == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_whole_numbers),
        cmocka_unit_test(test_off),
        cmocka_unit_test(test_writes),
        cmocka_unit_test(test_writes_into_little_room),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
