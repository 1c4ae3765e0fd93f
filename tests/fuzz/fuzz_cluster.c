// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A cluster file. What is read and written again is the same when it is read and written again.
#include "base/json.h"
#include "fuzz.h"
#include "plan/cost/cluster.h"
#include <stdlib.h>
#include <string.h>

static bool parse(mics_memory *memory, const char *text, size_t bytes, mics_cluster *cluster_out)
{
    mics_json *json = NULL;
    bool good = fuzz_good(mics_json_parse(memory, "cluster.json", text, bytes, &json));
    good = good && fuzz_good(mics_cluster_parse(json, cluster_out));
    mics_json_close(json);
    return good;
}

static void look_at(const mics_cluster *cluster)
{
    int32_t ranks = 0;
    fuzz_check(mics_cluster_ranks_per_node(cluster) >= 1, "a node without ranks");
    for (int32_t tier = 0; tier < cluster->tier_count; tier++) {
        fuzz_check(mics_cluster_child_ranks(cluster, tier) >= 1, "a tier without ranks");
        for (double size = 1; size < 1e12; size *= 64)
            (void)mics_curve_at(&cluster->tiers[tier].ramp, size, 1);
    }
    for (int32_t nodes = 1; nodes < 1 << 20; nodes *= 8)
        (void)fuzz_good(mics_cluster_ranks(cluster, nodes, &ranks));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mics_memory *memory = fuzz_begin();
    mics_cluster cluster, again;
    char *first = NULL, *second = NULL;
    if (parse(memory, (const char *)data, bytes, &cluster)) {
        look_at(&cluster);
        fuzz_check(fuzz_good(mics_cluster_text(memory, &cluster, &first)), "a text");
        fuzz_check(parse(memory, first, strlen(first), &again), "what was written is not read");
        fuzz_check(fuzz_good(mics_cluster_text(memory, &again, &second)), "a second text");
        fuzz_check(strcmp(first, second) == 0, "what was written is read as something else");
    }
    mics_free(memory, first);
    mics_free(memory, second);
    fuzz_end(memory);
    return 0;
}
