// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A cluster for plans without run.cluster. Which sharding is faster depends on how computation
// compares with links, so these are of the same year and class; what a step takes there is no
// prediction of what it takes here.
#include "run/usual.h"
#include "plan/cost/cluster.h"
#include "sizing.h"
#include <stdio.h>

// GPUs: the catalogue's eight H100 with one 100 Gb/s port. Fast links inside the node, slow ones
// between nodes, as rented machines have them.
static const char usual_gpus[] = "h100-sxm-8-100g";

// CPUs, a core: sgemm on a Sapphire Rapids core reaches 160 GFLOP/s (docs/architecture.md), bf16
// twice that; memory and links as mics bench measured them on EPYC nodes, 2026-11-22, and a network
// of 25 Gb/s. What small models lose and gain: a call of an op, alone and where threads sleep between
// calls; a cache of 2 MiB a core, four times as fast as memory (configs/gpt2-tiny.json by micro-batch
// on two cores of a Sapphire Rapids, 2026-11-28).
static const double core_flops_per_s = 160e9, core_memory_bytes_per_s = 16e9;
static const double alone_us = 3, woken_us = 20, core_cache_bytes = 2 << 20, cache_rate = 4;
static const double node_bytes_per_s = 6.5e9, network_bytes_per_s = 25e9 / 8;
static const double node_latency_us = 50, network_latency_us = 120;

#define MAX_MEMORY_BYTES 7e13 // that a cluster file may say

static void fill_cpus(int32_t threads, mics_cluster *cluster)
{
    mics_accelerator *cpu = &cluster->accelerator;
    mics_tier *node = &cluster->tiers[0], *network = &cluster->tiers[1];
    mics_cluster_init(cluster);
    snprintf(cluster->name, sizeof cluster->name, "usual CPUs");
    cpu->memory_bytes = MAX_MEMORY_BYTES; // the budget counts
    cpu->flops_per_s[MICS_MATH_FP32] = cpu->flops_per_s[MICS_MATH_TF32] =
        core_flops_per_s * threads;
    cpu->flops_per_s[MICS_MATH_BF16] = cpu->flops_per_s[MICS_MATH_FP16] =
        2 * core_flops_per_s * threads;
    cpu->memory_bytes_per_s = core_memory_bytes_per_s * threads;
    cpu->matmul_efficiency = mics_curve_constant(0.9);
    cpu->launch_us = 0.5;
    cpu->call_us = threads > 1 ? woken_us : alone_us;
    cpu->cache_bytes = core_cache_bytes * threads;
    cpu->cache_bytes_per_s = cache_rate * cpu->memory_bytes_per_s;
    snprintf(node->name, sizeof node->name, "node");
    node->bytes_per_s = node_bytes_per_s;
    node->latency_us = node_latency_us;
    snprintf(network->name, sizeof network->name, "network");
    network->bytes_per_s = network_bytes_per_s;
    network->latency_us = network_latency_us;
    cluster->tier_count = 2;
}

mics_status run_usual_cluster(const run_budget *budget, int32_t threads, mics_cluster *cluster_out)
{
    mics_cluster cluster;
    if (budget->accelerator.used)
        MICS_TRY(mics_cluster_find(usual_gpus, &cluster));
    else
        fill_cpus(threads, &cluster);
    cluster.tiers[0].fan_out = budget->ranks / budget->nodes;
    if (budget->auto_bytes == SIZE_MAX)
        cluster.accelerator.memory_bytes = MAX_MEMORY_BYTES; // nobody knows it: all fits
    MICS_TRY(mics_cluster_finish(&cluster));
    *cluster_out = cluster;
    return MICS_OK;
}
