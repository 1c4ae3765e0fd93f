// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Clusters from texts, for tests.
#pragma once

#include "base/capture.h"
#include "plan/cost/cost.h"
#include "test.h"
#include <string.h>

#define CHIP "\"accelerator\": {\"memory_gib\": 16, \"tflops_fp32\": 10, \"memory_gb_per_s\": 500}"
#define TIERS                                                                                      \
    "\"tiers\": {\"node\": {\"fan_out\": 4, \"gb_per_s\": 100}, \"network\": {\"gbit_per_s\": "    \
    "80}}"

static mics_memory *memory;
static capture seen;

static inline mics_status parse(const char *text, mics_cluster *cluster_out)
{
    mics_json *json = NULL;
    mics_status status = mics_json_parse(memory, "c.json", text, strlen(text), &json);
    if (status == MICS_OK)
        status = mics_cluster_parse(json, cluster_out);
    mics_json_close(json);
    return status;
}

static inline mics_cluster parse_good(const char *text)
{
    mics_cluster cluster;
    mics_status status = parse(text, &cluster);
    if (status != MICS_OK)
        fail_msg("%s: %s: %s", text, mics_status_name(status), seen.line);
    return cluster;
}

static inline void assert_close(double value, double expected, double tolerance)
{
    double error = value - expected;
    if (!(error <= tolerance * expected && error >= -tolerance * expected))
        fail_msg("%.9g, expected %.9g", value, expected);
}

static inline int setup(void **state)
{
    (void)state;
    capture_begin(&seen);
    return mics_memory_open(&memory) == MICS_OK ? 0 : 1;
}

static inline int teardown(void **state)
{
    (void)state;
    capture_end();
    return mics_memory_close(memory) == 0 ? 0 : 1;
}

// The tier in which two ranks meet; -1 for the same rank.
static inline int32_t meeting_tier(const mics_cluster *cluster, int32_t a, int32_t b)
{
    if (a == b)
        return -1;
    int32_t tier = 0;
    while (tier + 1 < cluster->tier_count) {
        int64_t c = mics_cluster_child_ranks(cluster, tier + 1);
        if (a / c == b / c)
            break;
        tier++;
    }
    return tier;
}
