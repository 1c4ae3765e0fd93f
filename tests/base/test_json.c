// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// JSON documents: what is read, where errors are said to be, and what --set does.
#include "base/json.h"
#include "base/rng.h"
#include "base/watched.h"
#include "test.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/mics-json-XXXXXX";

static const char sample[] = "{\n"
                             "  \"model\": {\"config\": \"a\\\"}b\", \"layers\": 3},\n"
                             "  \"list\": [1, 2.5, {\"x\": null}, \"]\"],\n"
                             "  \"on\": true,\n"
                             "  \"optimizer\": {\n"
                             "    \"type\": \"AdamW\",\n"
                             "    \"params\": {\"lr\": 3e-4,\n"
                             "               \"betas\": [0.9, 0.95]}\n"
                             "  }\n"
                             "}\n";

static mics_json *parse(const char *text)
{
    mics_json *json = NULL;
    ASSERT_OK(mics_json_parse(memory, "run.json", text, strlen(text), &json));
    return json;
}

static void test_reads_values(void **state)
{
    (void)state;
    mics_json *json = parse(sample);
    const mics_json_value *root = mics_json_root(json);
    assert_int_equal(mics_json_type_of(root), MICS_JSON_OBJECT);
    assert_int_equal(mics_json_count(root), 4);
    assert_int_equal(mics_json_int(mics_json_at(json, "model.layers")), 3);
    assert_true(mics_json_real(mics_json_at(json, "model.layers")) == 3.0);
    assert_true(mics_json_real(mics_json_at(json, "optimizer.params.lr")) == 3e-4);
    assert_string_equal(mics_json_string(mics_json_at(json, "model.config")), "a\"}b");
    assert_int_equal(mics_json_string_bytes(mics_json_at(json, "model.config")), 4);
    assert_true(mics_json_bool(mics_json_at(json, "on")));
    const mics_json_value *list = mics_json_at(json, "list");
    assert_int_equal(mics_json_count(list), 4);
    assert_int_equal(mics_json_type_of(mics_json_element(list, 1)), MICS_JSON_REAL);
    assert_int_equal(mics_json_type_of(mics_json_get(mics_json_element(list, 2), "x")),
                     MICS_JSON_NULL);
    assert_null(mics_json_element(list, 4));
    assert_null(mics_json_at(json, "model.layers.deeper"));
    assert_null(mics_json_at(json, "modelx"));
    assert_null(mics_json_at(json, "mode"));
    assert_null(mics_json_at(json, ""));
    assert_null(mics_json_get(NULL, "x"));
    assert_string_equal(mics_json_text(json), sample);
    assert_string_equal(mics_json_name(json), "run.json");
    mics_json_close(json);
}

static void test_walks_members_in_order(void **state)
{
    (void)state;
    mics_json *json = parse("{\"b\": 0, \"a\": 1, \"\": 2, \"c\": 3}");
    static const char *const keys[] = {"b", "a", "", "c"};
    const char *key = NULL;
    for (int i = 0; i < 4; i++) {
        const mics_json_value *value = mics_json_next(mics_json_root(json), &key);
        assert_string_equal(key, keys[i]);
        assert_int_equal(mics_json_int(value), i);
    }
    assert_null(mics_json_next(mics_json_root(json), &key));
    assert_null(key);
    assert_null(mics_json_next(NULL, &key));
    mics_json_close(json);
}

static void test_finds_lines(void **state)
{
    (void)state;
    mics_json *json = parse(sample);
    assert_int_equal(mics_json_line(json, "model"), 2);
    assert_int_equal(mics_json_line(json, "model.layers"), 2);
    assert_int_equal(mics_json_line(json, "list"), 3);
    assert_int_equal(mics_json_line(json, "on"), 4);
    assert_int_equal(mics_json_line(json, "optimizer.params.lr"), 7);
    assert_int_equal(mics_json_line(json, "optimizer.params.betas"), 8);
    assert_int_equal(mics_json_line(json, "optimizer.params.eps"), 0);
    assert_int_equal(mics_json_line(json, "list.x"), 0);
    assert_int_equal(mics_json_line(json, "config"), 0);
    assert_int_equal(mics_json_line(json, ""), 0);
    mics_json_close(json);
}

static void test_fail_names_the_place(void **state)
{
    (void)state;
    mics_json *json = parse(sample);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_json_fail(json, "optimizer.params.betas", MICS_ERR_INVALID,
                                                   "%d too few", 1));
    ASSERT_SAID(&seen, "run.json:8: optimizer.params.betas: 1 too few");
    mics_json_fail(json, "optimizer.params.eps", MICS_ERR_INVALID, "missing");
    ASSERT_SAID(&seen, "run.json:7: optimizer.params.eps: missing");
    mics_json_fail(json, "data.train", MICS_ERR_INVALID, "missing");
    ASSERT_SAID(&seen, "run.json: data.train: missing");
    mics_json_fail(json, NULL, MICS_ERR_INVALID, "bad");
    ASSERT_SAID(&seen, "run.json: bad");
    ASSERT_OK(mics_json_set(json, "optimizer.params", "{\"lr\": 1}"));
    assert_int_equal(mics_json_line(json, "optimizer.params.lr"), 0);
    assert_int_equal(mics_json_line(json, "optimizer"), 5);
    mics_json_fail(json, "optimizer.params.lr", MICS_ERR_INVALID, "too high");
    ASSERT_SAID(&seen, "run.json, --set optimizer.params.lr: too high");
    mics_json_close(json);
}

static void test_set(void **state)
{
    (void)state;
    mics_json *json = parse(sample);
    ASSERT_OK(mics_json_set(json, "run.steps", "200"));
    assert_int_equal(mics_json_int(mics_json_at(json, "run.steps")), 200);
    ASSERT_OK(mics_json_set(json, "run.out", "runs/demo"));
    assert_string_equal(mics_json_string(mics_json_at(json, "run.out")), "runs/demo");
    ASSERT_OK(mics_json_set(json, "a.b.c.d", "[1, 2]"));
    assert_int_equal(mics_json_count(mics_json_at(json, "a.b.c.d")), 2);
    ASSERT_OK(mics_json_set(json, "on", "false"));
    assert_false(mics_json_bool(mics_json_at(json, "on")));
    ASSERT_OK(mics_json_set(json, "on", ""));
    assert_string_equal(mics_json_string(mics_json_at(json, "on")), "");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_json_set(json, "run.steps.x", "1"));
    ASSERT_SAID(&seen, "--set run.steps.x: \"x\" would lie in an integer");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_json_set(json, "run.steps.x.y", "1"));
    ASSERT_SAID(&seen, "--set run.steps.x.y");
    static const char *const bad[] = {"", ".", "a.", ".a", "a..b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ASSERT_STATUS(MICS_ERR_INVALID, mics_json_set(json, bad[i], "1"));
        ASSERT_SAID(&seen, "the path needs");
    }
    ASSERT_STATUS(MICS_ERR_INVALID, mics_json_set(json, "x", "\xff"));
    ASSERT_SAID(&seen, "UTF-8");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_json_set(json, "\xff", "1"));
    ASSERT_SAID(&seen, "UTF-8");
    mics_json_close(json);
    json = parse("[1]");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_json_set(json, "x", "1"));
    ASSERT_SAID(&seen, "an array");
    mics_json_close(json);
}

// Somebody else's field that nobody reads. Where a number is needed, it is none.
static void test_numbers_beyond_a_double(void **state)
{
    (void)state;
    mics_json *json =
        parse("{\"a\": 1e999, \"b\": [-12.5e400, 0.001e310], \"c\": \"1e999\", \"d\": 3}");
    assert_string_equal(mics_json_string(mics_json_at(json, "a")), "1e999");
    const mics_json_value *b = mics_json_at(json, "b");
    assert_string_equal(mics_json_string(mics_json_element(b, 0)), "-12.5e400");
    assert_true(mics_json_real(mics_json_element(b, 1)) == 0.001e310);
    assert_string_equal(mics_json_string(mics_json_at(json, "c")), "1e999");
    assert_int_equal(mics_json_int(mics_json_at(json, "d")), 3);
    mics_json_close(json);
}

static void test_refuses_malformed(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"", "run.json:1:"},
        {"{\n \"a\": 1,\n \"a\": 2}", "run.json:3:4: duplicate object key"},
        {"{\"a\": \"\xff\"}", "run.json:1:"},
        {"{\"a\": 1} x", "run.json:1:"},
        {"3", "expected near '3': it must be a JSON object or array"},
        {"{\"a\": 123456789012345678901234567890,\n \"b\": }", "run.json:2:7: unexpected token"},
        {"{\"a\": 1,\n}", "run.json:2:1: string or '}' expected near '}': JSON has no comma after"},
        {"{\"a\": [1, ]}", "JSON has no comma after the last one"},
        {"{\"a\": 1, // one\n}", "JSON has no comments"},
        {"{\"a\": 1 # one\n}", "JSON has no comments"},
        {"{\"a\": \"\\u0000\"}", "run.json:1:"},
    };
    mics_json *json = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ASSERT_STATUS(MICS_ERR_FORMAT, mics_json_parse(memory, "run.json", cases[i].text,
                                                       strlen(cases[i].text), &json));
        ASSERT_SAID(&seen, cases[i].said);
        bool is_other = cases[i].text[0] != '{'; // what is an object is not asked to be one
        assert_true((strstr(seen.line, "object or array") != NULL) == is_other);
        assert_null(json);
    }
    char deep[200];
    memset(deep, '[', 100);
    memset(deep + 100, ']', 100);
    ASSERT_STATUS(MICS_ERR_FORMAT, mics_json_parse(memory, "run.json", deep, 200, &json));
    ASSERT_SAID(&seen, "run.json:1:65: nested deeper than 64");
    ASSERT_OK(mics_json_parse(memory, "run.json", deep + 36, 128, &json));
    mics_json_close(json);
}

static void test_integers_beyond_int64(void **state)
{
    (void)state;
    mics_json *json =
        parse("{\"most\": [9223372036854775807, -9223372036854775808], "
              "\"more\": [9223372036854775808, -9223372036854775809, 18446744073709551615, "
              "1000000000000000019884624838656, 12345678901234567890.5, 12345678901234567890e2], "
              "\"\\\"99999999999999999999\": \"99999999999999999999\"}");
    static const double more[] = {9223372036854775808.0,  -9223372036854775809.0,
                                  18446744073709551615.0, 1e30,
                                  12345678901234567890.5, 12345678901234567890e2};
    const mics_json_value *list = mics_json_at(json, "most");
    assert_true(mics_json_int(mics_json_element(list, 0)) == INT64_MAX);
    assert_true(mics_json_int(mics_json_element(list, 1)) == INT64_MIN);
    list = mics_json_at(json, "more");
    for (int32_t i = 0; i < (int32_t)(sizeof more / sizeof *more); i++) {
        assert_int_equal(mics_json_type_of(mics_json_element(list, i)), MICS_JSON_REAL);
        assert_true(mics_json_real(mics_json_element(list, i)) == more[i]);
    }
    assert_string_equal(mics_json_string(mics_json_at(json, "\"99999999999999999999")),
                        "99999999999999999999");
    mics_json_close(json);
}

// As Python's json writes them: kept as strings, so that nobody takes one for a number.
static void test_nonfinite(void **state)
{
    (void)state;
    static const char text[] =
        "{\"limits\": [0.0, Infinity, -Infinity, NaN,99999999999999999999],\n"
        "\"\\\"NaN\": \"Infinity, \\\\\",\n\"last\":NaN}";
    mics_json *json = parse(text);
    static const char *const words[] = {"Infinity", "-Infinity", "NaN"};
    const mics_json_value *list = mics_json_at(json, "limits");
    assert_int_equal(mics_json_count(list), 5);
    for (int32_t i = 0; i < 3; i++)
        assert_string_equal(mics_json_string(mics_json_element(list, i + 1)), words[i]);
    assert_true(mics_json_real(mics_json_element(list, 4)) == 1e20);
    assert_string_equal(mics_json_string(mics_json_at(json, "\"NaN")), "Infinity, \\");
    assert_string_equal(mics_json_string(mics_json_at(json, "last")), "NaN");
    assert_int_equal(mics_json_line(json, "last"), 3);
    assert_string_equal(mics_json_text(json), text);
    mics_json_close(json);
    static const char *const bad[] = {"{NaN: 1}", "[Infinity,]",      "[Infinit]", "[-Inf]",
                                      "[NaNNaN]", "[1, Infinity, x]", "NaN",       "[-]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json = NULL;
        ASSERT_STATUS(MICS_ERR_FORMAT,
                      mics_json_parse(memory, "run.json", bad[i], strlen(bad[i]), &json));
        assert_null(json);
    }
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void test_load(void **state)
{
    (void)state;
    char path[64];
    mics_json *json = NULL;
    snprintf(path, sizeof path, "%s/run.json", folder);
    write_file(path, sample);
    ASSERT_OK(mics_json_load(memory, path, sizeof sample - 1, &json));
    assert_string_equal(mics_json_text(json), sample);
    mics_json_close(json);
    json = NULL;
    ASSERT_STATUS(MICS_ERR_FORMAT, mics_json_load(memory, path, sizeof sample - 2, &json));
    ASSERT_SAID(&seen, "more than");
    unlink(path);
    ASSERT_STATUS(MICS_ERR_IO, mics_json_load(memory, path, 1000, &json));
    ASSERT_SAID(&seen, "No such file");
    assert_int_equal(mkfifo(path, 0600), 0);
    ASSERT_STATUS(MICS_ERR_IO, mics_json_load(memory, path, 1000, &json));
    ASSERT_SAID(&seen, "not a regular file");
    unlink(path);
    ASSERT_STATUS(MICS_ERR_IO, mics_json_load(memory, folder, 1000, &json));
    ASSERT_SAID(&seen, "is a folder");
    write_file(path, "\xef\xbb\xbf{\"a\": 7}"); // a byte order mark
    ASSERT_OK(mics_json_load(memory, path, 1000, &json));
    assert_int_equal(mics_json_int(mics_json_at(json, "a")), 7);
    assert_string_equal(mics_json_text(json), "{\"a\": 7}");
    mics_json_close(json);
    json = NULL;
    write_file(path, "\xef\xbb\xbf");
    ASSERT_STATUS(MICS_ERR_FORMAT, mics_json_load(memory, path, 1000, &json));
    unlink(path);
    assert_null(json);
}

static void test_nearest(void **state)
{
    (void)state;
    static const char *const names[] = {"optimizer", "scheduler", "gradient_clipping", "AdamW"};
    assert_string_equal(mics_json_nearest("optimiser", names, 4), "optimizer");
    assert_string_equal(mics_json_nearest("gradient_cliping", names, 4), "gradient_clipping");
    assert_string_equal(mics_json_nearest("adamw", names, 4), "AdamW");
    static const char *const steps[] = {"seed", "steps", "stop"};
    assert_string_equal(mics_json_nearest("stpes", steps, 3), "steps");
    assert_string_equal(mics_json_nearest("tseps", steps, 3), "steps");
    assert_null(mics_json_nearest("steps", names, 4));
    assert_null(mics_json_nearest("", names, 4));
    assert_null(mics_json_nearest("x", names, 0));
}

static mics_status everything(void)
{
    mics_json *json = NULL;
    char path[64];
    snprintf(path, sizeof path, "%s/all.json", folder);
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_json_load(memory, path, 10000, &json));
    MICS_TRY_OUT(mics_json_set(json, "a.b", "1"));
out:
    mics_json_close(json);
    return status;
}

static void test_allocation_failures(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "%s/all.json", folder);
    write_file(path, sample);
    int64_t failed = 0;
    for (int64_t n = 1;; n++) {
        mics_memory_fail_after(memory, n);
        mics_status status = everything();
        mics_memory_fail_after(memory, 0);
        if (status == MICS_OK)
            break;
        assert_int_equal(status, MICS_ERR_MEMORY);
        failed++;
    }
    assert_true(failed >= 3);
    unlink(path);
}

// Mutated and truncated texts give a status, whatever it is; the line scanner survives what parses.
static void test_random_texts(void **state)
{
    (void)state;
    char text[sizeof sample];
    static const char bytes[] = "{}[]\",:\\ \n1a\xff";
    for (uint64_t round = 0; round < 20000; round++) {
        memcpy(text, sample, sizeof sample);
        size_t length = sizeof sample - 1;
        if (round % 2 == 0)
            length = (size_t)(mics_rng_bits(1, round, 9) % sizeof sample);
        for (uint64_t i = 0; i <= round % 3; i++)
            text[mics_rng_bits(1, round, i) % (sizeof sample - 1)] =
                bytes[mics_rng_bits(1, round, i + 3) % (sizeof bytes - 1)];
        mics_json *json = NULL;
        if (mics_json_parse(memory, "fuzz", text, length, &json) == MICS_OK) {
            mics_json_line(json, "optimizer.params.betas");
            mics_json_at(json, "optimizer.params.betas");
        }
        mics_json_close(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reads_values, setup, teardown),
        cmocka_unit_test_setup_teardown(test_walks_members_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_finds_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fail_names_the_place, setup, teardown),
        cmocka_unit_test_setup_teardown(test_set, setup, teardown),
        cmocka_unit_test_setup_teardown(test_numbers_beyond_a_double, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refuses_malformed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_integers_beyond_int64, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nonfinite, setup, teardown),
        cmocka_unit_test_setup_teardown(test_load, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nearest, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocation_failures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_random_texts, setup, teardown),
    };
    if (mkdtemp(folder) == NULL)
        return 1;
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failures;
}
