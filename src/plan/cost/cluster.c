// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Clusters: defaults, what follows from other figures, checks, and the size of the tree.
#include "base/nccl.h"
#include "base/text.h"
#include "mics/log.h"
#include "plan/cost/keys.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Defaults of docs/clusters.md.
#define DEFAULT_MEMORY_EFFICIENCY 0.85 // as the catalogue's accelerators
#define DEFAULT_LAUNCH_US 4.0          // a GPU's; NCCL and PyTorch measure 3 to 5 us
#define DEFAULT_FP32_SHARE 16.0        // of the fastest precision: A100 312 / 19.5
#define DEFAULT_RESERVE_BYTES 2147483648.0
#define BESIDE_NCCL_BYTES 1610612736.0 // context and libraries, where NCCL is counted (assumed)
#define DEFAULT_RESERVE_SHARE 16.0     // and at most 1 / 16 of the memory
#define NODE_LATENCY_US 3.4            // NCCL 2.11, src/graph/tuning.cc, 2021-09: ring, NVLink
#define NETWORK_LATENCY_US 9.6         // the same: ring, network
#define MAX_RANKS 16777216
// Of the rate of single GEMMs trainings keep KEPT_A_WATT x (watts / TFLOP/s)^(1/3): a chip that may
// draw less for each of its FLOPs lowers its clock, and power grows with the clock's cube. Fitted to
// bench/plan/throughput.jsonl, 2026-11.
#define KEPT_A_WATT 0.80

enum { PATH_BYTES = 3 * MICS_CLUSTER_NAME_BYTES };

// Share of the peak by the smallest dimension of a GEMM, of an accelerator that is not in the
// catalogue: the A100's.
static const mics_curve default_matmul = {
    .count = 8,
    .size = {128, 256, 512, 1024, 2048, 4096, 8192, 16384},
    .value = {0.15, 0.28, 0.45, 0.60, 0.72, 0.80, 0.84, 0.86}};

void mics_cluster_init(mics_cluster *cluster_out)
{
    *cluster_out = (mics_cluster){.rings = 1};
    cluster_out->accelerator.reserve_bytes = -1.0;
    cluster_out->accelerator.memory_efficiency = DEFAULT_MEMORY_EFFICIENCY;
    cluster_out->accelerator.launch_us = DEFAULT_LAUNCH_US;
    for (int32_t t = 0; t < MICS_CLUSTER_TIERS; t++) {
        cluster_out->tiers[t].efficiency = 1.0;
        cluster_out->tiers[t].latency_us = t == 0 ? NODE_LATENCY_US : NETWORK_LATENCY_US;
    }
}

// ---- prices ----

static const struct {
    const char *text, *key;
} prices[MICS_PRICES] = {
    [MICS_PRICE_ON_DEMAND] = {"on-demand", "usd_per_node_hour"},
    [MICS_PRICE_RESERVED] = {"reserved", "reserved_usd_per_node_hour"},
    [MICS_PRICE_MARKETPLACE] = {"marketplace", "marketplace_usd_per_node_hour"},
    [MICS_PRICE_SPOT] = {"spot", "spot_usd_per_node_hour"},
};

const char *mics_price_text(mics_price price)
{
    return prices[price].text;
}

const char *mics_price_key(mics_price price)
{
    return prices[price].key;
}

// ---- what follows ----

static void derive_precisions(mics_accelerator *accelerator)
{
    double *rate = accelerator->flops_per_s, max = 0.0;
    for (int32_t i = 0; i < MICS_MATH_FP8; i++)
        max = rate[i] > max ? rate[i] : max;
    if (rate[MICS_MATH_FP32] == 0.0)
        rate[MICS_MATH_FP32] = max / DEFAULT_FP32_SHARE;
    if (rate[MICS_MATH_TF32] == 0.0)
        rate[MICS_MATH_TF32] = rate[MICS_MATH_FP32];
    if (rate[MICS_MATH_FP16] == 0.0)
        rate[MICS_MATH_FP16] =
            rate[MICS_MATH_BF16] > 0.0 ? rate[MICS_MATH_BF16] : rate[MICS_MATH_FP32];
    if (rate[MICS_MATH_BF16] == 0.0)
        rate[MICS_MATH_BF16] = rate[MICS_MATH_FP32];
}

// Of a chip whose power is known; what else was measured keeps all.
static void derive_kept(mics_accelerator *accelerator)
{
    const double tflops = accelerator->flops_per_s[MICS_MATH_FP16] * 1e-12;
    if (accelerator->matmul_kept == 0.0 && accelerator->watts > 0.0)
        accelerator->matmul_kept = fmin(KEPT_A_WATT * cbrt(accelerator->watts / tflops), 1.0);
    if (accelerator->fp8_kept == 0.0)
        accelerator->fp8_kept = accelerator->matmul_kept;
    if (accelerator->attention_kept == 0.0)
        accelerator->attention_kept = accelerator->matmul_kept;
}

// The curve of the kernel that is named, unless attention's own is given.
static void derive_attention(mics_accelerator *accelerator)
{
    for (int i = 0; i < MICS_ATTENTION_KERNELS; i++) {
        const char *kernel = mics_attention_kernel_text((mics_attention_kernel)i);
        if (accelerator->attention_efficiency.count == 0 &&
            strcmp(accelerator->attention, kernel) == 0)
            accelerator->attention_efficiency = accelerator->attention_kernels[i];
    }
    if (accelerator->attention_efficiency.count == 0)
        accelerator->attention_efficiency = accelerator->matmul_efficiency;
}

// NCCL's buffers too, where it runs the collectives.
static void derive_reserve(mics_cluster *cluster)
{
    mics_accelerator *accelerator = &cluster->accelerator;
    const int32_t beyond = cluster->node_tier + 1, here = mics_cluster_ranks_per_node(cluster);
    const bool several = beyond < cluster->tier_count;
    double bytes = DEFAULT_RESERVE_BYTES;
    if (accelerator->reserve_bytes >= 0.0)
        return;
    if (cluster->pipelined && here >= 1) {
        const mics_nccl_ctas ctas =
            mics_nccl_choose_ctas(1, several ? cluster->tiers[beyond].bytes_per_s : 0);
        bytes =
            BESIDE_NCCL_BYTES + (double)mics_nccl_reserve(several ? 2 * here : here, here, &ctas);
    }
    accelerator->reserve_bytes = fmin(bytes, accelerator->memory_bytes / DEFAULT_RESERVE_SHARE);
}

static void derive(mics_cluster *cluster)
{
    mics_accelerator *accelerator = &cluster->accelerator;
    derive_precisions(accelerator);
    if (accelerator->update_bytes_per_s == 0.0)
        accelerator->update_bytes_per_s =
            accelerator->memory_bytes_per_s * accelerator->memory_efficiency;
    if (accelerator->matmul_efficiency.count == 0)
        accelerator->matmul_efficiency = default_matmul;
    derive_attention(accelerator);
    derive_kept(accelerator);
    cluster->node_tier = 0;
    for (int32_t t = 0; t < cluster->tier_count; t++) {
        mics_tier *tier = &cluster->tiers[t];
        if (tier->rank_bytes_per_s == 0.0)
            tier->rank_bytes_per_s = tier->bytes_per_s;
        if (strcmp(tier->name, "node") == 0)
            cluster->node_tier = t;
    }
    derive_reserve(cluster);
}

// ---- checks ----

// With file and line where there is a document, else the cluster's name.
MICS_PRINTF(4, 5)
static mics_status refuse(const mics_json *json, const mics_cluster *cluster, const char *path,
                          const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    mics_text_vformat(what, sizeof what, format, args);
    va_end(args);
    if (json != NULL)
        return mics_json_fail(json, path, MICS_ERR_INVALID, "%s", what);
    return mics_fail(MICS_ERR_INVALID, "cluster %s: %s: %s",
                     cluster->name[0] != '\0' ? cluster->name : "without a name", path, what);
}

static mics_status check_real(const mics_json *json, const mics_cluster *cluster,
                              const cost_key *key, const char *path, double value)
{
    double shown = value / key->unit;
    // One part in 1e9 beyond an end is the rounding of a change of units.
    if (shown >= key->low * (1 - 1e-9) && shown <= key->high * (1 + 1e-9))
        return MICS_OK;
    if (value == 0.0)
        return refuse(json, cluster, path, "must be given");
    return refuse(json, cluster, path, "must be %.10g to %.10g, not %.10g", key->low, key->high,
                  shown);
}

static mics_status check_curve(const mics_json *json, const mics_cluster *cluster,
                               const cost_key *key, const char *path, const mics_curve *curve)
{
    const char *wrong = cost_curve_wrong(curve);
    if (wrong != NULL)
        return refuse(json, cluster, path, "%s", wrong);
    for (int32_t i = 0; i < curve->count; i++) {
        double shown = curve->value[i] / key->unit;
        if (!(shown >= key->low && shown <= key->high * (1 + 1e-9)))
            return refuse(json, cluster, path,
                          "must have figures of %.10g to %.10g, not %.10g (at %.10g)", key->low,
                          key->high, shown, curve->size[i]);
    }
    return MICS_OK;
}

static mics_status check_kernels(const mics_json *json, const mics_cluster *cluster)
{
    const mics_accelerator *accelerator = &cluster->accelerator;
    const char *device = accelerator->device;
    if (device[0] != '\0' && strcmp(device, "cpu") != 0 && strcmp(device, "cuda") != 0)
        return refuse(json, cluster, "accelerator.device", "must be cpu or cuda, not %s", device);
    if (accelerator->kernels[0] == '\0' || mics_kernels_are(accelerator, "separate") ||
        mics_kernels_are(accelerator, "fused"))
        return MICS_OK;
    return refuse(json, cluster, "accelerator.kernels", "must be separate or fused, not %s",
                  accelerator->kernels);
}

static mics_status check_section(const mics_json *json, const mics_cluster *cluster,
                                 cost_section section, const char *prefix, const void *object)
{
    int32_t count = 0;
    const cost_key *keys = cost_keys(section, &count);
    for (int32_t i = 0; i < count; i++) {
        const cost_key *key = &keys[i];
        const char *field = (const char *)object + key->at;
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "%s%s", prefix, key->name);
        if (key->other)
            continue;
        if (key->type == COST_REAL) {
            MICS_TRY(check_real(json, cluster, key, path, *(const double *)(const void *)field));
        } else if (key->type == COST_COUNT) {
            int32_t value = *(const int32_t *)(const void *)field;
            if (value != 0) // 0: not said
                MICS_TRY(check_real(json, cluster, key, path, (double)value));
        } else if (key->type == COST_CURVE || key->type == COST_RAMP) {
            MICS_TRY(check_curve(json, cluster, key, path, (const void *)field));
        } else if (key->type == COST_TEXT && memchr(field, '\0', key->bytes) == NULL) {
            return refuse(json, cluster, path, "has no end");
        }
    }
    return MICS_OK;
}

// True for a name that can stand in a path: letters, digits, '_' and '-'.
static bool is_plain(const char *name)
{
    size_t bytes = strlen(name);
    return bytes > 0 && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                     "0123456789_-") == bytes;
}

static mics_status check_tier(const mics_json *json, const mics_cluster *cluster, int32_t index)
{
    const mics_tier *tier = &cluster->tiers[index];
    char prefix[PATH_BYTES];
    if (memchr(tier->name, '\0', sizeof tier->name) == NULL || !is_plain(tier->name))
        return refuse(json, cluster, "tiers",
                      "the name of tier %d must be made of letters, digits, '_' and '-'",
                      (int)index + 1);
    for (int32_t t = 0; t < index; t++) {
        if (strcmp(tier->name, cluster->tiers[t].name) == 0)
            return refuse(json, cluster, "tiers", "two are called %s", tier->name);
    }
    snprintf(prefix, sizeof prefix, "tiers.%s.", tier->name);
    MICS_TRY(check_section(json, cluster, COST_TIER, prefix, tier));
    snprintf(prefix, sizeof prefix, "tiers.%s.fan_out", tier->name);
    if (tier->fan_out == 0 && index + 1 < cluster->tier_count)
        return refuse(json, cluster, prefix,
                      "must be given: only the last tier, %s, may leave it out",
                      cluster->tiers[cluster->tier_count - 1].name);
    if (tier->fan_out == 0 && index <= cluster->node_tier)
        return refuse(json, cluster, prefix, "must be given: how many %s a %s has",
                      index == 0 ? "ranks" : cluster->tiers[index - 1].name, tier->name);
    return MICS_OK;
}

static mics_status check_given(const mics_json *json, const mics_cluster *cluster)
{
    const mics_accelerator *accelerator = &cluster->accelerator;
    bool given = false;
    for (int32_t i = 0; i < MICS_MATHS; i++)
        given = given || accelerator->flops_per_s[i] != 0.0;
    if (!given)
        return refuse(json, cluster, "accelerator.tflops_fp32",
                      "must be given, or tflops_bf16, tflops_fp16 or tflops_tf32; or name an "
                      "accelerator of the catalogue, as in \"accelerator\": \"A100-SXM4-80GB\"");
    if (cluster->tier_count < 1 || cluster->tier_count > MICS_CLUSTER_TIERS)
        return refuse(json, cluster, "tiers",
                      "must have 1 to %d tiers from the rank outwards, as in {\"node\": "
                      "{\"fan_out\": 8, \"gb_per_s\": 300}, \"network\": {\"gbit_per_s\": 400}}",
                      MICS_CLUSTER_TIERS);
    return MICS_OK;
}

mics_status cost_finish(const mics_json *json, mics_cluster *cluster)
{
    MICS_TRY(check_given(json, cluster));
    derive(cluster);
    if (cluster->rings == 0)
        cluster->rings = 1;
    cluster->usd_per_node_hour = cluster->prices[MICS_PRICE_ON_DEMAND]; // until one is chosen
    MICS_TRY(check_section(json, cluster, COST_TOP, "", cluster));
    MICS_TRY(check_section(json, cluster, COST_ACCELERATOR, "accelerator.", &cluster->accelerator));
    MICS_TRY(check_kernels(json, cluster));
    if (cluster->accelerator.reserve_bytes >= cluster->accelerator.memory_bytes)
        return refuse(json, cluster, "accelerator.reserve_gib", "must be less than memory_gib");
    int64_t ranks = 1;
    for (int32_t t = 0; t < cluster->tier_count; t++) {
        MICS_TRY(check_tier(json, cluster, t));
        ranks *= cluster->tiers[t].fan_out > 0 ? cluster->tiers[t].fan_out : 1;
        if (ranks > MAX_RANKS)
            return refuse(json, cluster, "tiers", "their fan-outs multiply to more than %d ranks",
                          MAX_RANKS);
    }
    int32_t counted = 0;
    return cluster->nodes == 0 ? MICS_OK : mics_cluster_ranks(cluster, cluster->nodes, &counted);
}

mics_status mics_cluster_finish(mics_cluster *cluster)
{
    return cost_finish(NULL, cluster);
}

// ---- the tree ----

int64_t mics_cluster_child_ranks(const mics_cluster *cluster, int32_t tier)
{
    int64_t ranks = 1;
    for (int32_t t = 0; t < tier; t++)
        ranks *= cluster->tiers[t].fan_out;
    return ranks;
}

int32_t mics_cluster_ranks_per_node(const mics_cluster *cluster)
{
    return (int32_t)mics_cluster_child_ranks(cluster, cluster->node_tier + 1);
}

mics_cluster mics_cluster_on_nodes(const mics_cluster *cluster, int32_t nodes)
{
    const double slower = 1.0 + cluster->jitter * sqrt(2.0 * log((double)nodes));
    mics_cluster seen = *cluster;
    double *const kept[] = {&seen.accelerator.matmul_kept, &seen.accelerator.fp8_kept,
                            &seen.accelerator.attention_kept, &seen.accelerator.memory_kept};
    for (int i = 0; i < 4; i++)
        *kept[i] = (*kept[i] > 0.0 ? *kept[i] : 1.0) / slower;
    seen.jitter = 0.0;
    return seen;
}

mics_status mics_cluster_ranks(const mics_cluster *cluster, int32_t nodes, int32_t *ranks_out)
{
    const mics_tier *last = &cluster->tiers[cluster->tier_count - 1];
    int64_t ranks_per_node = mics_cluster_ranks_per_node(cluster);
    if (ranks_per_node < 1)
        return mics_fail(MICS_ERR_INVALID,
                         "cluster %s: its node has no ranks; call mics_cluster_finish first",
                         cluster->name);
    int64_t max_nodes =
        (last->fan_out > 0 ? mics_cluster_child_ranks(cluster, cluster->tier_count) : MAX_RANKS) /
        ranks_per_node;
    if (nodes >= 1 && nodes <= max_nodes) {
        *ranks_out = (int32_t)(nodes * ranks_per_node);
        return MICS_OK;
    }
    if (nodes > max_nodes && cluster->node_tier + 1 == cluster->tier_count)
        return mics_fail(MICS_ERR_INVALID,
                         "cluster %s: has no tier beyond its node (%s), so 1 node is all, not %d; "
                         "add a tier \"network\"",
                         cluster->name, last->name, (int)nodes);
    return mics_fail(MICS_ERR_INVALID, "cluster %s: must have 1 to %lld nodes, not %d",
                     cluster->name, (long long)max_nodes, (int)nodes);
}

mics_status mics_cluster_split(const char *text, char *name_out, size_t capacity,
                               int32_t *nodes_out)
{
    const char *colon = strrchr(text, ':');
    bool counted =
        colon != NULL && colon[1] != '\0' && strspn(colon + 1, "0123456789") == strlen(colon + 1);
    size_t bytes = counted ? (size_t)(colon - text) : strlen(text);
    if (bytes == 0 || bytes >= capacity)
        return mics_fail(MICS_ERR_INVALID,
                         "cluster \"%.80s\": must be a name or a file, and may end in a number of "
                         "nodes, as in p4d.24xlarge:8",
                         text);
    long long nodes = counted ? strtoll(colon + 1, NULL, 10) : 0;
    if (counted && (nodes < 1 || nodes > 1048576))
        return mics_fail(MICS_ERR_INVALID, "cluster \"%.80s\": must have 1 to 1048576 nodes", text);
    memcpy(name_out, text, bytes);
    name_out[bytes] = '\0';
    *nodes_out = (int32_t)nodes;
    return MICS_OK;
}
