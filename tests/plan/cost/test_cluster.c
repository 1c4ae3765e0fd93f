// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cluster files: what is read, what follows from it, what is refused and how, and that writing and
// reading agree.
#include "clusters.h"
#include <math.h>
#include <stdio.h>

static void test_shortest_file(void **state)
{
    (void)state;
    mics_cluster c = parse_good("{" CHIP ", " TIERS "}");
    assert_string_equal(c.name, "c.json");
    assert_int_equal(c.tier_count, 2);
    assert_int_equal(c.node_tier, 0);
    assert_int_equal(mics_cluster_ranks_per_node(&c), 4);
    assert_close(c.tiers[1].bytes_per_s, 10e9, 1e-12);
    assert_close(c.tiers[1].rank_bytes_per_s, 10e9, 1e-12);
    assert_close(c.tiers[0].efficiency, 1.0, 0);
    // What follows: the reserve, other precisions, the update.
    assert_close(c.accelerator.reserve_bytes, 1073741824.0, 1e-12);
    assert_close(c.accelerator.flops_per_s[MICS_MATH_TF32], 10e12, 1e-12);
    assert_close(c.accelerator.flops_per_s[MICS_MATH_BF16], 10e12, 1e-12);
    assert_close(c.accelerator.update_bytes_per_s, 0.85 * 500e9, 1e-12);
    assert_true(c.accelerator.matmul_efficiency.count > 1);
    assert_int_equal(c.rings, 1);
    assert_false(c.pipelined);
}

static void test_precisions_follow(void **state)
{
    (void)state;
    mics_cluster c = parse_good("{\"accelerator\": {\"memory_gib\": 16, \"tflops_bf16\": 160, "
                                "\"memory_gb_per_s\": 500}, " TIERS "}");
    assert_close(c.accelerator.flops_per_s[MICS_MATH_FP16], 160e12, 1e-12);
    assert_close(c.accelerator.flops_per_s[MICS_MATH_FP32], 10e12, 1e-12);
    c = parse_good("{\"accelerator\": {\"memory_gib\": 16, \"tflops_fp16\": 125, \"tflops_fp32\": "
                   "15, \"memory_gb_per_s\": 500}, " TIERS "}");
    assert_close(c.accelerator.flops_per_s[MICS_MATH_BF16], 15e12, 1e-12);
}

static void test_base_and_overrides(void **state)
{
    (void)state;
    mics_cluster c = parse_good("{\"base\": \"p4d.24xlarge\", \"name\": \"mine\", \"nodes\": 8, "
                                "\"accelerator\": {\"memory_gib\": 39.5}, "
                                "\"tiers\": {\"network\": {\"efficiency\": 0.5, \"ramp\": null}}}");
    assert_string_equal(c.name, "mine");
    assert_int_equal(c.nodes, 8);
    assert_close(c.tiers[1].efficiency, 0.5, 1e-12);
    assert_close(c.tiers[1].bytes_per_s, 50e9, 1e-12);
    assert_close(c.tiers[1].rank_bytes_per_s, 12.5e9, 1e-12);
    assert_close(c.accelerator.memory_bytes, 39.5 * 1073741824.0, 1e-12);
    assert_string_equal(c.accelerator.name, "A100-SXM4-40GB");
    // A new line rate is not held back by the cards of the base.
    c = parse_good("{\"base\": \"p4d.24xlarge\", \"tiers\": {\"network\": {\"gbit_per_s\": 25}}}");
    assert_close(c.tiers[1].rank_bytes_per_s, 25e9 / 8, 1e-12);
    c = parse_good("{\"base\": \"p4d.24xlarge\", \"accelerator\": \"h100-sxm5-80gb\"}");
    assert_close(c.accelerator.flops_per_s[MICS_MATH_BF16], 989e12, 1e-12);
    c = parse_good("{\"accelerator\": {\"base\": \"A100-SXM4-80GB\", \"reserve_gib\": 0}, " TIERS
                   "}");
    assert_true(c.accelerator.reserve_bytes == 0.0);
    assert_close(c.accelerator.memory_bytes, 80 * 1073741824.0, 1e-12);
}

// MiB: 1536, and of NCCL 128, 64 + 24 x 12 + 24 x 8 x 2 + 7 x 16 x 12 in a node of 8, and
// 64 + 8 x 20 + 8 x 4 between nodes.
static void test_reserve_has_what_nccl_takes(void **state)
{
    static const struct {
        double memory_gib;
        const char *pipelined;
        double reserve_mib;
    } cases[] = {{80, "true", 4000}, {80, "false", 2048}, {40, "true", 2560}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{\"accelerator\": {\"memory_gib\": %g, \"tflops_bf16\": 312, "
                 "\"memory_gb_per_s\": 2000}, \"pipelined\": %s, \"tiers\": {\"node\": "
                 "{\"fan_out\": 8, \"gb_per_s\": 300}, \"network\": {\"gbit_per_s\": 400}}}",
                 cases[i].memory_gib, cases[i].pipelined);
        const mics_cluster c = parse_good(text);
        assert_close(c.accelerator.reserve_bytes, cases[i].reserve_mib * 1048576, 1e-12);
    }
}

static void test_deep_trees(void **state)
{
    (void)state;
    mics_cluster c = parse_good(
        "{" CHIP ", \"tiers\": {\"socket\": {\"fan_out\": 2, \"gb_per_s\": 50}, "
        "\"node\": {\"fan_out\": 4, \"gb_per_s\": 20}, \"rack\": {\"fan_out\": 3, \"gb_per_s\": "
        "10}, \"hall\": {\"fan_out\": 5, \"gb_per_s\": 15}}}");
    int32_t ranks = 0;
    assert_int_equal(c.node_tier, 1);
    assert_int_equal(mics_cluster_ranks_per_node(&c), 8);
    assert_int_equal(mics_cluster_child_ranks(&c, 0), 1);
    assert_int_equal(mics_cluster_child_ranks(&c, 2), 8);
    assert_int_equal(mics_cluster_child_ranks(&c, 3), 24);
    ASSERT_OK(mics_cluster_ranks(&c, 15, &ranks));
    assert_int_equal(ranks, 120);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_cluster_ranks(&c, 16, &ranks));
    ASSERT_SAID(&seen, "must have 1 to 15 nodes, not 16");
    assert_int_equal(ranks, 120);
    assert_int_equal(meeting_tier(&c, 5, 5), -1);
    assert_int_equal(meeting_tier(&c, 0, 1), 0);
    assert_int_equal(meeting_tier(&c, 1, 2), 1);
    assert_int_equal(meeting_tier(&c, 7, 8), 2);
    assert_int_equal(meeting_tier(&c, 23, 24), 3);
    // One node is all that a tree without a tier beyond the node has.
    c = parse_good("{" CHIP ", \"tiers\": {\"node\": {\"fan_out\": 2, \"gb_per_s\": 5}}}");
    ASSERT_OK(mics_cluster_ranks(&c, 1, &ranks));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_cluster_ranks(&c, 2, &ranks));
    ASSERT_SAID(&seen, "1 node is all");
}

// ---- refusals ----

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
        mics_status status;
    } cases[] = {
        {"[1]", "c.json: must be a JSON object, not an array", MICS_ERR_FORMAT},
        {"{", "c.json:1:", MICS_ERR_FORMAT},
        {"{\"acelerator\": {}}", "c.json:1: acelerator: unknown key; did you mean accelerator?",
         MICS_ERR_INVALID},
        {"{\n" CHIP ",\n\"tiers\": {\"node\":\n{\"fanout\": 4}}}",
         "c.json:4: tiers.node.fanout: unknown key; did you mean tiers.node.fan_out?",
         MICS_ERR_INVALID},
        {"{\"zzzzzzzz\": 1}", "unknown key; known here: name, note", MICS_ERR_INVALID},
        {"{\"a b\": 1}", "a key that is empty", MICS_ERR_INVALID},
        {"{\"tiers\": {\"n.o\": {}}}", "c.json:1: tiers: has a name that is empty",
         MICS_ERR_INVALID},
        {"{" TIERS "}", "accelerator.tflops_fp32: must be given", MICS_ERR_INVALID},
        {"{" CHIP "}", "tiers: must have 1 to 8 tiers", MICS_ERR_INVALID},
        {"{\"accelerator\": {\"tflops_bf16\": 10}, " TIERS "}",
         "c.json:1: accelerator.memory_gib: must be given", MICS_ERR_INVALID},
        {"{\"accelerator\": {\"tflops_bf16\": 10, \"memory_gib\": 4}, " TIERS "}",
         "accelerator.memory_gb_per_s: must be given", MICS_ERR_INVALID},
        {"{\"accelerator\": {\"memory_gib\": -16}}",
         "accelerator.memory_gib: must be 0.001 to 65536, not -16", MICS_ERR_INVALID},
        {"{\"accelerator\": {\"memory_gib\": 0}}", "must be 0.001 to 65536, not 0",
         MICS_ERR_INVALID},
        {"{\"accelerator\": {\"memory_gib\": 85899345920}}", "must be 0.001 to 65536",
         MICS_ERR_INVALID},
        {"{\"accelerator\": {\"memory_gib\": \"16\"}}", "must be a number, not a string",
         MICS_ERR_FORMAT},
        {"{\"accelerator\": {\"memory_gib\": 1, \"reserve_gib\": 1, \"tflops_fp32\": 1, "
         "\"memory_gb_per_s\": 1}, " TIERS "}",
         "reserve_gib: must be less than memory_gib", MICS_ERR_INVALID},
        {"{\"accelerator\": \"A100\", " TIERS "}",
         "accelerator: unknown accelerator \"A100\"; did you mean A100-SXM4-40GB or "
         "A100-SXM4-80GB",
         MICS_ERR_INVALID},
        {"{\"accelerator\": 7}", "must be an object, or the name of an accelerator",
         MICS_ERR_FORMAT},
        {"{\"base\": \"p4d\"}",
         "base: unknown cluster \"p4d\"; did you mean p4d.24xlarge or p4de.24xlarge",
         MICS_ERR_INVALID},
        {"{\"base\": 3}", "base: must be a string", MICS_ERR_FORMAT},
        {"{\"rings\": {\"source\": \"a guess\"}}", "rings.value: is missing", MICS_ERR_FORMAT},
        {"{\"rings\": {\"value\": 0}}", "rings: must be 1 to 1024, not 0", MICS_ERR_INVALID},
        {"{\"rings\": {\"value\": 2, \"sauce\": \"\"}}", "rings.value: may stand beside source",
         MICS_ERR_INVALID},
        {"{\"rings\": {\"value\": 2, \"date\": 2026}}", "rings.date: must be a string",
         MICS_ERR_FORMAT},
        {"{\"rings\": {\"value\": 2, \"assumed\": 1}}", "rings.assumed: must be true or false",
         MICS_ERR_FORMAT},
        {"{\"rings\": 1.5}", "rings: must be a whole number", MICS_ERR_INVALID},
        {"{\"rings\": 0}", "rings: must be 1 to 1024, not 0", MICS_ERR_INVALID},
        {"{\"pipelined\": 1}", "must be true or false", MICS_ERR_FORMAT},
        {"{\"name\": 1}", "name: must be a string, not an integer", MICS_ERR_FORMAT},
        {"{\"tiers\": []}", "must be an object of tiers by name", MICS_ERR_FORMAT},
        {"{\"tiers\": {\"node\": 1}}", "tiers.node: must be an object", MICS_ERR_FORMAT},
        {"{" CHIP ", \"tiers\": {\"node\": {\"fan_out\": 4}}}",
         "tiers.node.gb_per_s: must be given", MICS_ERR_INVALID},
        {"{" CHIP ", \"tiers\": {\"node\": {\"gb_per_s\": 4}}}",
         "tiers.node.fan_out: must be given: how many ranks a node has", MICS_ERR_INVALID},
        {"{" CHIP ", \"tiers\": {\"node\": {\"fan_out\": 4, \"gb_per_s\": 4}, \"rack\": "
         "{\"gb_per_s\": 4}, \"hall\": {\"gb_per_s\": 4}}}",
         "tiers.rack.fan_out: must be given: only the last tier, hall, may leave it out",
         MICS_ERR_INVALID},
        {"{\"tiers\": {\"node\": {\"gb_per_s\": 4, \"gbit_per_s\": 32}}}",
         "gbit_per_s: is given too, as gb_per_s", MICS_ERR_INVALID},
        {"{\"tiers\": {\"node\": {\"latency_us\": -1}}}",
         "latency_us: must be 0 to 1000000, not -1", MICS_ERR_INVALID},
        {"{\"tiers\": {\"node\": {\"efficiency\": 1.2}}}", "efficiency: must be 0.001 to 1",
         MICS_ERR_INVALID},
        {"{\"tiers\": {\"node\": {\"ramp\": 5}}}", "ramp: must be 1 to 32 pairs", MICS_ERR_FORMAT},
        {"{\"tiers\": {\"node\": {\"beside_us\": -1}}}", "beside_us: must be 0 to 1000000, not -1",
         MICS_ERR_INVALID},
        {"{\"tiers\": {\"node\": {\"ramp\": [[1, 2, 3]]}}}", "must hold pairs of numbers",
         MICS_ERR_FORMAT},
        {"{\"tiers\": {\"node\": {\"ramp\": [[1, \"2\"]]}}}", "must hold pairs of numbers",
         MICS_ERR_FORMAT},
        {"{\"tiers\": {\"node\": {\"ramp\": [[8, 1], [8, 2]]}}}", "ascending order",
         MICS_ERR_INVALID},
        {"{\"tiers\": {\"node\": {\"ramp\": [[-8, 1]]}}}", "a size that is not above 0",
         MICS_ERR_INVALID},
        {"{\"tiers\": {\"node\": {\"ramp\": [[8, -1]]}}}", "must have figures of",
         MICS_ERR_INVALID},
        {"{\"accelerator\": {\"matmul_efficiency\": 1.5}}", "must be 1e-06 to 1, not 1.5",
         MICS_ERR_INVALID},
        {"{\"base\": \"p4d.24xlarge\", \"tiers\": {\"node\": {\"fan_out\": 1048576}, \"x\": "
         "{\"fan_out\": 1048576, \"gb_per_s\": 1}, \"network\": {\"fan_out\": 1048576}}}",
         "multiply to more than", MICS_ERR_INVALID},
        {"{\"base\": \"p4d.24xlarge\", \"nodes\": 9, \"tiers\": {\"network\": {\"fan_out\": 8}}}",
         "must have 1 to 8 nodes, not 9", MICS_ERR_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_cluster cluster;
        memset(&cluster, 0x5a, sizeof cluster);
        const mics_cluster before = cluster;
        mics_status status = parse(cases[i].text, &cluster);
        if (status != cases[i].status)
            fail_msg("%s gave %s (%s)", cases[i].text, mics_status_name(status), seen.line);
        if (strstr(seen.line, cases[i].said) == NULL)
            fail_msg("%s said \"%s\", not \"%s\"", cases[i].text, seen.line, cases[i].said);
        ASSERT_SAID(&seen, "c");
        assert_memory_equal(&cluster, &before, sizeof cluster);
    }
}

static void test_long_texts(void **state)
{
    (void)state;
    char text[512], name[300];
    mics_cluster cluster;
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    snprintf(text, sizeof text, "{\"note\": \"%s\"}", name);
    ASSERT_STATUS(MICS_ERR_INVALID, parse(text, &cluster));
    ASSERT_SAID(&seen, "note: must have at most 255 bytes, not 299");
    snprintf(text, sizeof text, "{\"%s\": 1}", name);
    ASSERT_STATUS(MICS_ERR_INVALID, parse(text, &cluster));
    ASSERT_SAID(&seen, "longer than 63 bytes");
    snprintf(text, sizeof text, "{\"base\": \"%s\"}", name);
    ASSERT_STATUS(MICS_ERR_INVALID, parse(text, &cluster));
    ASSERT_SAID(&seen, "the catalogue has p3dn.24xlarge");
}

static void test_many_points(void **state)
{
    (void)state;
    char text[2048];
    mics_cluster cluster;
    size_t used = (size_t)snprintf(text, sizeof text, "{\"tiers\": {\"node\": {\"ramp\": [");
    for (int i = 0; i < 33; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s[%d, 1]", i == 0 ? "" : ",",
                                 i + 1);
    snprintf(text + used, sizeof text - used, "]}}}");
    ASSERT_STATUS(MICS_ERR_FORMAT, parse(text, &cluster));
    ASSERT_SAID(&seen, "1 to 32 pairs");
    used = (size_t)snprintf(text, sizeof text, "{" CHIP ", \"tiers\": {");
    for (int i = 0; i < 9; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used,
                             "%s\"t%d\": {\"fan_out\": 2, \"gb_per_s\": 1}", i == 0 ? "" : ",", i);
    snprintf(text + used, sizeof text - used, "}}");
    ASSERT_STATUS(MICS_ERR_INVALID, parse(text, &cluster));
    ASSERT_SAID(&seen, "must have at most 8 tiers");
}

// Every prefix of a good file is refused in one line, and none is read past its end.
static void test_truncated(void **state)
{
    (void)state;
    static const char text[] =
        "{" CHIP ", " TIERS ", \"note\": \"x\", \"rings\": 2, \"pipelined\": true}";
    for (size_t bytes = 0; bytes + 1 < sizeof text; bytes++) {
        mics_json *json = NULL;
        seen.errors = 0;
        ASSERT_STATUS(MICS_ERR_FORMAT, mics_json_parse(memory, "c.json", text, bytes, &json));
        assert_int_equal(seen.errors, 1);
    }
    seen.errors = 0;
    parse_good(text);
}

static void check_program(mics_cluster *cluster, const char *said)
{
    char *text = NULL;
    ASSERT_STATUS(MICS_ERR_INVALID, mics_cluster_text(memory, cluster, &text));
    assert_null(text);
    ASSERT_SAID(&seen, said);
}

// What a program fills in is checked like a file, by the keys of files.
static void test_refused_from_programs(void **state)
{
    (void)state;
    mics_cluster good, c;
    mics_cluster_init(&good);
    check_program(&good, "cluster without a name: accelerator.tflops_fp32: must be given");
    good = parse_good("{\"name\": \"us\", " CHIP ", " TIERS "}");
    c = good;
    c.accelerator.memory_bytes_per_s = (double)NAN;
    check_program(&c, "cluster us: accelerator.memory_gb_per_s: must be 0.01 to 1000000, not nan");
    c = good;
    c.tiers[1].latency_us = (double)INFINITY;
    check_program(&c, "cluster us: tiers.network.latency_us: must be 0 to 1000000, not inf");
    c = good;
    c.tiers[0].ramp = mics_curve_constant(-1.0);
    check_program(&c, "tiers.node.ramp: must have figures");
    c = good;
    c.tiers[0].ramp.count = 99;
    check_program(&c, "more points than");
    c = good;
    c.tier_count = 9;
    check_program(&c, "must have 1 to 8 tiers");
    c = good;
    memcpy(c.tiers[1].name, "node", 5);
    check_program(&c, "two are called node");
    c = good;
    memset(c.tiers[1].name, 'x', sizeof c.tiers[1].name);
    check_program(&c, "the name of tier 2");
    c = good;
    memset(c.note, 'x', sizeof c.note);
    check_program(&c, "note: has no end");
    c = good;
    c.rings = -3;
    check_program(&c, "rings: must be 1 to 1024, not -3");
}

// ---- writing ----

static const char full[] =
    "{\"name\": \"a \\\"b\\\"\", \"note\": \"measured\\non a day\", \"nodes\": 3, \"cores\": 2, "
    "\"rings\": 4, \"pipelined\": true, \"collective_us\": 1.25, \"step_overhead_us\": 333.3, "
    "\"usd_per_node_hour\": 31.21, \"accelerator\": {\"name\": \"cpu\", \"memory_gib\": 3.7, "
    "\"reserve_gib\": 0, \"tflops_fp32\": 0.123456789012, \"memory_gb_per_s\": 17.7, "
    "\"update_gb_per_s\": 9.1, \"reduce_gb_per_s\": 5.3, \"launch_us\": 0.1, "
    "\"call_us\": 20, \"cache_mib\": 1.5, \"cache_gb_per_s\": 99, "
    "\"matmul_efficiency\": [[16, 0.1], [300, 0.777]], \"attention_efficiency\": 0.4}, "
    "\"tiers\": {\"socket\": {\"fan_out\": 2, \"gb_per_s\": 3.3333333333333, \"half_kib\": 7}, "
    "\"node\": {\"fan_out\": 2, \"gb_per_s\": 1.1, \"slowdown\": 0.5, \"core_us_per_mb\": 101.3}, "
    "\"network\": {\"gbit_per_s\": 1, \"rank_gbit_per_s\": 0.7, \"efficiency\": 0.97, "
    "\"latency_us\": 77, \"ramp\": [[8, 0.0001], [65536, 0.05], [1048576, 0.1]], \"reduce_ramp\": "
    "[[8, 0.00005], [1048576, 0.04]], "
    "\"beside_us\": [[1, 40], [2, 900]], \"beside_us_per_mb\": 310}}}";

static char *text_of(const mics_cluster *cluster)
{
    char *text = NULL;
    ASSERT_OK(mics_cluster_text(memory, cluster, &text));
    return text;
}

static void test_round_trip(void **state)
{
    (void)state;
    mics_cluster once = parse_good(full);
    char *text = text_of(&once);
    mics_cluster twice = parse_good(text);
    assert_string_equal(twice.name, "a \"b\"");
    assert_string_equal(twice.note, "measured\non a day");
    assert_int_equal(twice.nodes, 3);
    assert_int_equal(twice.cores, 2);
    assert_int_equal(twice.rings, 4);
    assert_true(twice.pipelined);
    assert_int_equal(twice.node_tier, 1);
    assert_close(twice.prices[MICS_PRICE_ON_DEMAND], 31.21, 1e-11);
    assert_true(twice.accelerator.reserve_bytes == 0.0);
    assert_close(twice.accelerator.flops_per_s[MICS_MATH_FP32], 0.123456789012e12, 1e-11);
    assert_close(twice.accelerator.reduce_bytes_per_s, 5.3e9, 1e-11);
    assert_close(mics_curve_at(&twice.accelerator.matmul_efficiency, 300, 0), 0.777, 1e-11);
    assert_close(mics_curve_at(&twice.accelerator.attention_efficiency, 9, 0), 0.4, 1e-11);
    assert_close(twice.tiers[0].half_bytes, 7168, 1e-11);
    assert_close(twice.tiers[1].core_us_per_byte, 101.3e-6, 1e-11);
    assert_close(twice.tiers[2].rank_bytes_per_s, 0.7e9 / 8, 1e-11);
    assert_close(mics_curve_at(&twice.tiers[2].ramp, 65536, 0), 0.05e9, 1e-11);
    assert_close(mics_curve_at(&twice.tiers[2].reduce_ramp, 1048576, 0), 0.04e9, 1e-11);
    assert_close(mics_curve_at(&twice.tiers[2].beside_us, 2, 0), 900, 1e-11);
    assert_close(mics_curve_at(&twice.tiers[2].beside_us_per_byte, 4, 0), 310e-6, 1e-11);
    char *again = text_of(&twice);
    assert_string_equal(again, text);
    mics_free(memory, text);
    mics_free(memory, again);
}

// A program that measures starts from the defaults and gives what it found.
static void test_measured(void **state)
{
    (void)state;
    mics_cluster c;
    mics_cluster_init(&c);
    c.accelerator.memory_bytes = 4e9;
    c.accelerator.flops_per_s[MICS_MATH_FP32] = 1.6e11;
    c.accelerator.memory_bytes_per_s = 1.5e10;
    c.tier_count = 1;
    snprintf(c.tiers[0].name, sizeof c.tiers[0].name, "node");
    c.tiers[0].fan_out = 2;
    c.tiers[0].bytes_per_s = 3e9;
    char *text = text_of(&c);
    mics_cluster read = parse_good(text);
    assert_close(read.tiers[0].rank_bytes_per_s, 3e9, 1e-11);
    assert_close(read.accelerator.reserve_bytes, 2.5e8, 1e-11);
    mics_free(memory, text);
}

static void test_allocation_failures(void **state)
{
    (void)state;
    mics_cluster cluster = parse_good(full);
    bool passed = false;
    for (int64_t n = 1; n < 20 && !passed; n++) {
        char *text = NULL;
        mics_memory_fail_after(memory, n);
        mics_status status = mics_cluster_text(memory, &cluster, &text);
        mics_memory_fail_after(memory, 0);
        passed = status == MICS_OK;
        if (!passed) {
            assert_int_equal(status, MICS_ERR_MEMORY);
            assert_null(text);
        }
        mics_free(memory, text);
    }
    assert_true(passed);
}

// ---- names with nodes ----

static void test_split(void **state)
{
    (void)state;
    char name[16];
    int32_t nodes = -1;
    ASSERT_OK(mics_cluster_split("p4d.24xlarge:8", name, sizeof name, &nodes));
    assert_string_equal(name, "p4d.24xlarge");
    assert_int_equal(nodes, 8);
    ASSERT_OK(mics_cluster_split("c.json", name, sizeof name, &nodes));
    assert_string_equal(name, "c.json");
    assert_int_equal(nodes, 0);
    ASSERT_OK(mics_cluster_split("a:b:2x", name, sizeof name, &nodes));
    assert_string_equal(name, "a:b:2x");
    ASSERT_OK(mics_cluster_split("a:", name, sizeof name, &nodes));
    assert_string_equal(name, "a:");
    static const char *const bad[] = {"",    ":8",        "abcdefghijklmnop",
                                      "p:0", "p:1048577", "p:99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        nodes = 7;
        ASSERT_STATUS(MICS_ERR_INVALID, mics_cluster_split(bad[i], name, sizeof name, &nodes));
        ASSERT_SAID(&seen, "cluster \"");
        assert_int_equal(nodes, 7);
    }
}

// ---- curves ----

static void test_curves(void **state)
{
    (void)state;
    const mics_curve none = {0}, one = mics_curve_constant(0.5);
    const mics_curve c = {.count = 3, .size = {100, 1000, 10000}, .value = {0.1, 0.5, 0.4}};
    assert_close(mics_curve_at(&none, 7, 0.3), 0.3, 0);
    assert_close(mics_curve_at(&one, 1e9, 0.3), 0.5, 0);
    assert_close(mics_curve_at(&one, 0, 0.3), 0.5, 0);
    assert_close(mics_curve_at(&c, 1, 0), 0.1, 0);
    assert_close(mics_curve_at(&c, 100, 0), 0.1, 0);
    assert_close(mics_curve_at(&c, 1000, 0), 0.5, 0);
    assert_close(mics_curve_at(&c, 316.227766, 0), 0.3, 1e-6); // half-way on the logarithm
    assert_close(mics_curve_at(&c, 3162.27766, 0), 0.45, 1e-6);
    assert_close(mics_curve_at(&c, 1e30, 0), 0.4, 0);
    assert_close(mics_curve_at(&c, (double)NAN, 0), 0.1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_shortest_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_precisions_follow, setup, teardown),
        cmocka_unit_test_setup_teardown(test_base_and_overrides, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reserve_has_what_nccl_takes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deep_trees, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_texts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_points, setup, teardown),
        cmocka_unit_test_setup_teardown(test_truncated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused_from_programs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_measured, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocation_failures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_split, setup, teardown),
        cmocka_unit_test_setup_teardown(test_curves, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
