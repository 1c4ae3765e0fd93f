// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The catalogue: every entry is whole, has sources and dates, can be written and read again, and is
// documented.
#include "clusters.h"
#include "plan/cost/catalogue.h"
#include <stdio.h>
#include <stdlib.h>

static char docs[65536];

static int read_docs(void **state)
{
    (void)state;
    FILE *file = fopen(MICS_TEST_DOCS "/clusters.md", "r");
    if (file == NULL)
        return 1;
    docs[fread(docs, 1, sizeof docs - 1, file)] = '\0';
    return fclose(file);
}

static void check_figure(const char *name, const char *key, const mics_json_value *figure)
{
    const char *source = mics_json_string(mics_json_get(figure, "source"));
    const char *date = mics_json_string(mics_json_get(figure, "date"));
    const mics_json_value *value = mics_json_get(figure, "value");
    if (source == NULL || date == NULL || strlen(source) < 10)
        fail_msg("%s: %s has no source", name, key);
    char *end = NULL;
    const long year = strtol(date, &end, 10), month = *end == '-' ? strtol(end + 1, &end, 10) : 0;
    if (*end != '\0' || year < 2017 || year > 2030 || month < 1 || month > 12)
        fail_msg("%s: %s is dated %s", name, key, date);
    const mics_json_type type = mics_json_type_of(value);
    if (type != MICS_JSON_ARRAY && type != MICS_JSON_BOOL && !(mics_json_real(value) > 0.0))
        fail_msg("%s: %s is %g", name, key, mics_json_real(value));
}

// Every figure below `object` says where it comes from; how many there are.
static int32_t check_figures(const char *name, const mics_json_value *object)
{
    int32_t figures = 0;
    const char *key = NULL;
    const mics_json_value *value = NULL;
    while ((value = mics_json_next(object, &key)) != NULL) {
        const mics_json_type type = mics_json_type_of(value);
        if (type == MICS_JSON_STRING || strcmp(key, "aliases") == 0)
            continue;
        if (type != MICS_JSON_OBJECT)
            fail_msg("%s: %s has no source", name, key);
        if (mics_json_get(value, "value") == NULL) {
            figures += check_figures(name, value);
            continue;
        }
        check_figure(name, key, value);
        figures++;
    }
    return figures;
}

static mics_json *open_text(const char *name, const char *text)
{
    mics_json *json = NULL;
    ASSERT_OK(mics_json_parse(memory, name, text, strlen(text), &json));
    return json;
}

static const char *text_of(const char *name)
{
    for (int32_t i = 0; i < catalogue_machine_count; i++) {
        if (strcmp(catalogue_machines[i].names[0], name) == 0)
            return (const char *)catalogue_machines[i].text;
    }
    for (int32_t i = 0; i < catalogue_accelerator_count; i++) {
        if (strcmp(catalogue_accelerators[i].names[0], name) == 0)
            return (const char *)catalogue_accelerators[i].text;
    }
    fail_msg("%s is not in the catalogue", name);
    return NULL;
}

static void check_curve(const char *name, const mics_curve *curve, double most)
{
    for (int32_t i = 1; i < curve->count; i++) {
        if (curve->value[i] < curve->value[i - 1] || curve->value[i] > most)
            fail_msg("%s: a share of %g at %g", name, curve->value[i], curve->size[i]);
    }
}

static void check_entry(const char *name)
{
    mics_cluster c;
    int32_t ranks = 0;
    char *text = NULL;
    ASSERT_OK(mics_cluster_find(name, &c));
    assert_string_equal(c.name, name);
    assert_int_equal(c.tier_count, 2);
    assert_string_equal(c.tiers[0].name, "node");
    const int32_t gpus = mics_cluster_ranks_per_node(&c);
    assert_true(gpus == 8 || gpus == 16 || gpus == 72); // 72: a rack that is one node
    ASSERT_OK(mics_cluster_ranks(&c, 512, &ranks));
    check_curve(name, &c.accelerator.matmul_efficiency, 0.9);
    check_curve(name, &c.accelerator.attention_efficiency, 0.75);
    // One rank reaches no more than all cards; a node's links are faster than its share of them.
    assert_true(c.tiers[1].rank_bytes_per_s <= c.tiers[1].bytes_per_s);
    assert_true(c.tiers[0].bytes_per_s > c.tiers[1].rank_bytes_per_s);
    assert_true(c.tiers[0].latency_us < c.tiers[1].latency_us);
    assert_true(c.rings * c.tiers[1].rank_bytes_per_s >= c.tiers[1].bytes_per_s);
    ASSERT_OK(mics_cluster_text(memory, &c, &text));
    mics_cluster again = parse_good(text);
    char *twice = NULL;
    ASSERT_OK(mics_cluster_text(memory, &again, &twice));
    assert_string_equal(twice, text);
    mics_free(memory, text);
    mics_free(memory, twice);
}

// It has the prices of its own file alone, each with its month.
static void check_prices(const char *name, const mics_json *json)
{
    mics_cluster c;
    ASSERT_OK(mics_cluster_find(name, &c));
    for (int i = 0; i < MICS_PRICES; i++) {
        const char *key = mics_price_key((mics_price)i);
        char path[96];
        snprintf(path, sizeof path, "%s.value", key);
        const double own = mics_json_real(mics_json_at(json, path));
        snprintf(path, sizeof path, "%s.date", key);
        const char *date = mics_json_string(mics_json_at(json, path));
        if (c.prices[i] != own || strcmp(c.price_dates[i], date != NULL ? date : "") != 0)
            fail_msg("%s: %s is %g of %s", name, key, c.prices[i], c.price_dates[i]);
    }
}

static void test_entries(void **state)
{
    (void)state;
    assert_true(mics_catalogue_count() >= 34);
    for (int32_t i = 0; i < mics_catalogue_count(); i++) {
        const char *name = mics_catalogue_name(i);
        check_entry(name);
        mics_json *json = open_text(name, mics_catalogue_text(i));
        const char *base = mics_json_string(mics_json_at(json, "base"));
        assert_true(check_figures(name, mics_json_root(json)) >= (base != NULL ? 1 : 15));
        // What it takes figures from is a whole one, and has no price, as that is of another machine.
        assert_true(base == NULL || strstr(text_of(base), "\"base\"") == NULL);
        assert_true(base == NULL || strstr(mics_catalogue_text(i), "usd_per_node_hour") != NULL ||
                    strstr(text_of(base), "usd_per_node_hour") == NULL);
        check_prices(name, json);
        mics_json_close(json);
        // It is a cluster file like any other.
        mics_cluster c = parse_good(mics_catalogue_text(i));
        assert_string_equal(c.name, name);
    }
    for (int32_t i = 0; i < catalogue_accelerator_count; i++) {
        const char *name = catalogue_accelerators[i].names[0];
        mics_json *json = open_text(name, (const char *)catalogue_accelerators[i].text);
        const bool whole = mics_json_at(json, "base") == NULL;
        assert_true(check_figures(name, mics_json_root(json)) >= (whole ? 9 : 1));
        mics_json_close(json);
    }
}

// The figures that the public tables give: bytes of memory, TFLOP/s, Gb/s between nodes, price.
static void test_known_figures(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double gib, tflops, intra_gb_per_s, inter_gbit_per_s, usd;
    } known[] = {
        {"p3dn.24xlarge", 32, 125, 150, 100, 31.21},
        {"p4d.24xlarge", 40, 312, 300, 400, 21.96},
        {"p4de.24xlarge", 80, 312, 300, 400, 27.45},
        {"p5.48xlarge", 79.6, 989, 450, 3200, 55.04},
        {"p5en.48xlarge", 140.4, 989, 450, 3200, 63.30},
        {"p6-b200.48xlarge", 179, 2250, 900, 3200, 113.93},
        {"a2-highgpu-8g", 40, 312, 300, 100, 29.39},
        {"a3-highgpu-8g", 79.6, 989, 450, 800, 87.83},
        {"nd-a100-v4", 40, 312, 300, 1600, 27.20},
        {"nd-h100-v5", 79.6, 989, 450, 3200, 98.32},
        {"nd-h200-v5", 140.4, 989, 450, 3200, 110.24},
        {"p6-b300.48xlarge", 268, 2250, 900, 6400, 0},
        {"dgx-gb200", 185, 2500, 900, 28800, 0},
        {"runpod-h100-8", 79.6, 989, 450, 0.1, 31.92},
        {"g6e.48xlarge", 45, 362, 32, 400, 30.13},
        {"selene", 80, 312, 300, 1600, 0},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        mics_cluster c;
        ASSERT_OK(mics_cluster_find(known[i].name, &c));
        assert_close(c.accelerator.memory_bytes, known[i].gib * 1073741824.0, 1e-9);
        assert_close(c.accelerator.flops_per_s[MICS_MATH_FP16], known[i].tflops * 1e12, 1e-9);
        assert_close(c.tiers[0].bytes_per_s, known[i].intra_gb_per_s * 1e9, 1e-9);
        assert_close(c.tiers[1].bytes_per_s, known[i].inter_gbit_per_s / 8 * 1e9, 1e-9);
        assert_close(c.prices[MICS_PRICE_ON_DEMAND], known[i].usd, 1e-9);
    }
}

// A price of a file takes the place of its base's; one of spot nodes stands beside them.
static void test_prices(void **state)
{
    (void)state;
    mics_cluster c =
        parse_good("{\"base\": \"p5en.48xlarge\", \"reserved_usd_per_node_hour\": 40}");
    assert_close(c.prices[MICS_PRICE_RESERVED], 40, 1e-9);
    assert_true(c.prices[MICS_PRICE_ON_DEMAND] == 0 && c.prices[MICS_PRICE_SPOT] == 0);
    assert_string_equal(c.price_dates[MICS_PRICE_RESERVED], "");
    c = parse_good("{\"base\": \"p4d.24xlarge\", \"spot_usd_per_node_hour\": "
                   "{\"value\": 7, \"date\": \"2026-10-03\"}}");
    assert_close(c.prices[MICS_PRICE_SPOT], 7, 1e-9);
    assert_true(c.prices[MICS_PRICE_ON_DEMAND] > 0);
    assert_string_equal(c.price_dates[MICS_PRICE_SPOT], "2026-10");
    assert_true(c.price_dates[MICS_PRICE_ON_DEMAND][0] != '\0');
}

// Chips without a way to run on them say why, and keep it where a file changes their figures.
static void test_unsupported(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool runs;
    } cases[] = {{"nd-mi300x-v5", false}, {"mi325x-8", false},   {"p3dn.24xlarge", false},
                 {"p4d.24xlarge", true},  {"g5.48xlarge", true}, {"dgx-gb300", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_cluster c;
        ASSERT_OK(mics_cluster_find(cases[i].name, &c));
        assert_int_equal(c.accelerator.unsupported[0] == '\0', cases[i].runs);
    }
    const mics_cluster c = parse_good("{\"base\": \"mi325x-8\", \"accelerator\": {\"base\": "
                                      "\"MI325X-256GB\", \"reserve_gib\": 3}}");
    assert_non_null(strstr(c.accelerator.unsupported, "AMD"));
}

// Figures that nobody looked up say so; what the sellers publish does not.
static void test_assumed_figures_say_so(void **state)
{
    (void)state;
    static const struct {
        const char *machine, *key;
        bool assumed;
    } cases[] = {{"a2-megagpu-16g", "usd_per_node_hour", true},
                 {"Standard_ND96amsr_A100_v4", "usd_per_node_hour", true},
                 {"p4d.24xlarge", "usd_per_node_hour", false},
                 {"p4d.24xlarge", "tiers.node.half_kib", true},
                 {"B200-SXM6-180GB", "memory_gib", true},
                 {"H100-SXM5-80GB", "memory_gib", true},
                 {"H100-SXM5-80GB", "memory_gb_per_s", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[96];
        mics_json *json = open_text(cases[i].machine, text_of(cases[i].machine));
        snprintf(path, sizeof path, "%s.value", cases[i].key);
        assert_non_null(mics_json_at(json, path));
        snprintf(path, sizeof path, "%s.assumed", cases[i].key);
        assert_int_equal(mics_json_bool(mics_json_at(json, path)), cases[i].assumed);
        mics_json_close(json);
    }
}

static void test_names(void **state)
{
    (void)state;
    mics_cluster c;
    ASSERT_OK(mics_cluster_find("P4D.24XLARGE", &c));
    assert_string_equal(c.name, "p4d.24xlarge");
    ASSERT_OK(mics_cluster_find("nd96asr_v4", &c));
    assert_string_equal(c.name, "Standard_ND96asr_v4");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_cluster_find("p4d", &c));
    ASSERT_SAID(&seen, "unknown cluster \"p4d\"; did you mean p4d.24xlarge or p4de.24xlarge");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_cluster_find("p5.48xlrge", &c));
    ASSERT_SAID(&seen, "did you mean p5.48xlarge or");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_cluster_find("", &c));
    ASSERT_SAID(&seen, "unknown cluster \"\"; the catalogue has p3dn.24xlarge, p4d.24xlarge");
    assert_string_equal(c.name, "Standard_ND96asr_v4"); // untouched
}

// Of the base's accelerator nothing stays where the file names another.
static void test_other_accelerator(void **state)
{
    (void)state;
    mics_cluster a100, h100;
    ASSERT_OK(mics_cluster_find("p4d.24xlarge", &a100));
    ASSERT_OK(mics_cluster_find("p5.48xlarge", &h100));
    const mics_cluster c =
        parse_good("{\"base\": \"p5.48xlarge\", \"accelerator\": \"A100-SXM4-40GB\"}");
    assert_memory_equal(&c.accelerator, &a100.accelerator, sizeof c.accelerator);
    assert_memory_equal(&c.tiers, &h100.tiers, sizeof c.tiers);
}

// Its example is a cluster file.
static void test_example(void **state)
{
    (void)state;
    const char *begin = strstr(docs, "```json\n"), *end = NULL;
    assert_non_null(begin);
    begin += strlen("```json\n");
    end = strstr(begin, "```");
    assert_non_null(end);
    char text[4096];
    snprintf(text, sizeof text, "%.*s", (int)(end - begin), begin);
    mics_cluster c = parse_good(text);
    assert_int_equal(c.tier_count, 3);
    assert_int_equal(mics_cluster_ranks_per_node(&c), 8);
}

// A file that `mics bench` wrote before figures could have sources: read, and written the same.
static void test_earlier_file(void **state)
{
    (void)state;
    mics_json *json = NULL;
    mics_cluster c;
    char *text = NULL;
    ASSERT_OK(mics_json_load(memory, MICS_TEST_DATA "/cluster/bench.json", 65536, &json));
    ASSERT_OK(mics_cluster_parse(json, &c));
    ASSERT_OK(mics_cluster_text(memory, &c, &text));
    assert_string_equal(text, mics_json_text(json));
    mics_free(memory, text);
    mics_json_close(json);
}

// docs/clusters.md names every entry, its accelerator, and every key.
static void test_documented(void **state)
{
    (void)state;
    const char *text = docs;
    for (int32_t i = 0; i < mics_catalogue_count(); i++) {
        if (strstr(text, mics_catalogue_name(i)) == NULL)
            fail_msg("%s is not in docs/clusters.md", mics_catalogue_name(i));
        mics_cluster c;
        ASSERT_OK(mics_cluster_find(mics_catalogue_name(i), &c));
        if (strstr(text, c.accelerator.name) == NULL)
            fail_msg("%s is not in docs/clusters.md", c.accelerator.name);
    }
    for (int section = 0; section < COST_SECTIONS; section++) {
        int32_t count = 0;
        const cost_key *keys = cost_keys((cost_section)section, &count);
        for (int32_t i = 0; i < count; i++) {
            char quoted[80];
            snprintf(quoted, sizeof quoted, "| `%s` |", keys[i].name);
            if (strstr(text, quoted) == NULL)
                fail_msg("key %s is not in docs/clusters.md", keys[i].name);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_entries, setup, teardown),
        cmocka_unit_test_setup_teardown(test_known_figures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_assumed_figures_say_so, setup, teardown),
        cmocka_unit_test_setup_teardown(test_prices, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unsupported, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_accelerator, setup, teardown),
        cmocka_unit_test_setup_teardown(test_example, setup, teardown),
        cmocka_unit_test_setup_teardown(test_earlier_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_documented, setup, teardown),
    };
    return cmocka_run_group_tests(tests, read_docs, NULL);
}
