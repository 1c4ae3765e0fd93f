// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// YAML: what becomes of its words and shapes, on which lines, and what is refused where.
#include "base/json.h"
#include "base/watched.h"
#include "base/yaml.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static mics_status convert(const char *text, char **json_out)
{
    size_t bytes = 0;
    const mics_status status =
        mics_yaml_to_json(memory, "a.yaml", text, strlen(text), json_out, &bytes);
    if (status == MICS_OK)
        assert_int_equal(strlen(*json_out), bytes);
    return status;
}

static void check(const char *yaml, const char *json)
{
    char *text = NULL;
    ASSERT_OK(convert(yaml, &text));
    assert_string_equal(text, json);
    mics_free(memory, text);
}

static void test_plain_words(void **state)
{
    (void)state;
    // What PyYAML's safe_load gives, but for "1e-5", which it leaves a text.
    static const char *const words[][2] = {
        {"~", "null"},
        {"null", "null"},
        {"NULL", "null"},
        {"nul", "\"nul\""},
        {"true", "true"},
        {"Yes", "true"},
        {"on", "true"},
        {"no", "false"},
        {"Off", "false"},
        {"NO", "false"},
        {"'no'", "\"no\""},
        {"\"true\"", "\"true\""},
        {"yEs", "\"yEs\""},
        {"y", "\"y\""},
        {"0", "0"},
        {"-12", "-12"},
        {"+7", "7"},
        {"'7'", "\"7\""},
        {"1.5", "1.5"},
        {"-0.25", "-0.25"},
        {".5", "0.5"},
        {"-.5", "-0.5"},
        {"3.", "3.0"},
        {"007.50", "7.50"},
        {"1e-5", "1.0e-5"},
        {"2.5E+3", "2.5E+3"},
        {"5.0e-06", "5.0e-06"},
        {"010", "\"010\""},
        {"0x1F", "\"0x1F\""},
        {"1_000", "\"1_000\""},
        {"12:30", "\"12:30\""},
        {".inf", "\".inf\""},
        {".nan", "\".nan\""},
        {"1e", "\"1e\""},
        {"1e+", "\"1e+\""},
        {"e5", "\"e5\""},
        {"-", "[null]"},
        {"+", "\"+\""},
        {".", "\".\""},
        {"1.2.3", "\"1.2.3\""},
        {"1-2", "\"1-2\""},
        {"10.0.0.1", "\"10.0.0.1\""},
        {"a b", "\"a b\""},
        {"\"a\\tb\"", "\"a\\tb\""},
        {"", "null"},
        {"123456789012345678", "123456789012345678"},
        {"1234567890123456789", "\"1234567890123456789\""},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char yaml[64], json[80];
        snprintf(yaml, sizeof yaml, "k:\n  %s\n", words[i][0]);
        snprintf(json, sizeof json, "{\"k\": %s%s}", words[i][0][0] != '\0' ? "\n" : "",
                 words[i][1]);
        check(yaml, json);
    }
}

static void test_shapes(void **state)
{
    (void)state;
    check("a: 1\nb: [x, 2, {c: null}]\n", "{\"a\": 1,\n\"b\": [\"x\",2,{\"c\": null}]}");
    check("# head\n\na:\n- 1\n- 2\nb: {}\n", "\n\n{\"a\": \n[1,\n2],\n\"b\": {}}");
    check("[]", "[]");
    check("%YAML 1.1\n---\na: b\n...\n", "\n\n{\"a\": \"b\"}");
    check("a: |\n  two\n  lines\nb: >-\n  one\n  line\n",
          "{\"a\": \"two\\nlines\\n\",\n\n\n\"b\": \"one line\"}");
    check("1: x\ntrue: y\n", "{\"1\": \"x\",\n\"true\": \"y\"}");
    check("a: &here 3\n", "{\"a\": 3}");
    check("\xef\xbb\xbf"
          "a: \xc3\xa4\n",
          "{\"a\": \"\xc3\xa4\"}");
    check("a: \"x\ny\"\nb: 1\n", "{\"a\": \"x y\",\n\n\"b\": 1}");
}

static void test_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"", "a.yaml: holds no document"},
        {"# only a remark\n", "a.yaml: holds no document"},
        {"a: 1\n  b: 2\n", "a.yaml:2:4: mapping values are not allowed"},
        {"a: [1, 2\n", "a.yaml:2:1: did not find expected ',' or ']'"},
        {"a:\n\tb: 2\n", "a.yaml:2:1: found character that cannot start any token"},
        {"a: &x {b: 1}\nc: *x\n", "a.yaml:2:4: an alias (*) is not read"},
        {"a: &x 1\n*x : 2\n", "a.yaml:2:1: an alias (*) is not read"},
        {"a: 1\nb: !!python/object:os.system x\n", "a.yaml:2:4: a tag (!) is not read"},
        {"a: !!map {}\n", "a.yaml:1:4: a tag (!) is not read"},
        {"a: !x []\n", "a.yaml:1:4: a tag (!) is not read"},
        {"? [a]\n: 1\n", "a.yaml:1:3: a key must be one word"},
        {"a: 1\n---\nb: 2\n", "a.yaml:2:1: a second document begins"},
        {"a: \"\\0\"\n", "a.yaml:1:4: a NUL in a text"},
        {"a: \xff\n", "a.yaml: offset 3: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *json = NULL;
        ASSERT_STATUS(MICS_ERR_FORMAT, convert(cases[i].text, &json));
        ASSERT_SAID(&seen, cases[i].said);
        assert_null(json);
    }
    char deep[130], *json = NULL;
    memset(deep, '[', 65);
    memset(deep + 65, ']', 65);
    deep[129] = '\0';
    ASSERT_STATUS(MICS_ERR_FORMAT, convert(deep, &json));
    ASSERT_SAID(&seen, "a.yaml:1:65: nested deeper than 64 levels");
    memmove(deep, deep + 1, 128);
    deep[128] = '\0';
    check(deep, deep);
}

// A file's name says what it is, and errors speak of its own lines.
static void test_loads_by_name(void **state)
{
    (void)state;
    static const char text[] = "# accelerate's\nfsdp_config:\n  a: 1\n\n  b: [x]\n  a: 2\n";
    const char *const names[] = {"test.yaml", "test.yml"};
    char folder[] = "/tmp/mics-yaml-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 2; i++) {
        mics_json *json = NULL;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        FILE *file = fopen(path, "w");
        fputs(text, file);
        fclose(file);
        ASSERT_STATUS(MICS_ERR_FORMAT, mics_json_load(memory, path, 1000, &json));
        ASSERT_SAID(&seen, "duplicate object key");
        assert_non_null(strstr(seen.line, i == 0 ? "test.yaml:6:5" : "test.yml:6:5"));
        file = fopen(path, "w");
        fwrite(text, 1, strlen(text) - 7, file);
        fclose(file);
        ASSERT_OK(mics_json_load(memory, path, 1000, &json));
        assert_int_equal(mics_json_line(json, "fsdp_config"), 2);
        assert_int_equal(mics_json_line(json, "fsdp_config.b"), 5);
        assert_int_equal(mics_json_int(mics_json_at(json, "fsdp_config.a")), 1);
        mics_json_close(json);
        unlink(path);
    }
    assert_int_equal(rmdir(folder), 0);
}

static void test_failing_allocations(void **state)
{
    (void)state;
    mics_status status = MICS_ERR_MEMORY;
    for (int64_t n = 0; status == MICS_ERR_MEMORY; n++) {
        char *json = NULL;
        mics_memory_fail_after(memory, n);
        status = convert("a: [1, b, {c: d}]\n", &json);
        mics_memory_fail_after(memory, -1);
        mics_free(memory, json);
        assert_true(n < 100);
    }
    assert_int_equal(status, MICS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_plain_words, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shapes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_loads_by_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failing_allocations, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
