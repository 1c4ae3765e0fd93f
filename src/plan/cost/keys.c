// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The keys of cluster files. Ranges exclude what no machine has: what lies beyond is a wrong unit.
#include "plan/cost/keys.h"
#include <string.h>

#define GIB 1073741824.0
#define FIELD(type, member) offsetof(type, member), sizeof(((type *)0)->member)
#define TOP(member) FIELD(mics_cluster, member)
#define ACC(member) FIELD(mics_accelerator, member)
#define KERNEL(kernel) ACC(attention_kernels[MICS_ATTENTION_##kernel])
#define PRICE(kind) TOP(prices[MICS_PRICE_##kind]), 1, 0, 1e5, COST_REAL, false, false
#define TIER(member) FIELD(mics_tier, member)

static const cost_key top_keys[] = {
    {"name", TOP(name), 1, 0, 0, COST_TEXT, false, false},
    {"note", TOP(note), 1, 0, 0, COST_TEXT, false, false},
    {"nodes", TOP(nodes), 1, 1, 1048576, COST_COUNT, false, false},
    {"cores", TOP(cores), 1, 0, 1048576, COST_COUNT, false, false},
    {"rings", TOP(rings), 1, 1, 1024, COST_COUNT, false, true},
    {"pipelined", TOP(pipelined), 1, 0, 1, COST_SWITCH, false, true},
    {"collective_us", TOP(collective_us), 1, 0, 1e6, COST_REAL, false, true},
    {"step_overhead_us", TOP(step_overhead_us), 1, 0, 1e9, COST_REAL, false, true},
    {"jitter", TOP(jitter), 1, 0, 1, COST_REAL, false, false},
    {"usd_per_node_hour", PRICE(ON_DEMAND)},
    {"reserved_usd_per_node_hour", PRICE(RESERVED)},
    {"marketplace_usd_per_node_hour", PRICE(MARKETPLACE)},
    {"failures_per_node_day", TOP(failures_per_node_day), 1, 0, 1e4, COST_REAL, false, false},
    {"restart_s", TOP(restart_s), 1, 0, 1e6, COST_REAL, false, false},
    {"checkpoint_gb_per_s", TOP(checkpoint_bytes_per_s), 1e9, 0, 1e5, COST_REAL, false, false},
    {"host_gb_per_s", TOP(host_bytes_per_s), 1e9, 0, 1e5, COST_REAL, false, false},
    {"spot_usd_per_node_hour", PRICE(SPOT)},
    {"preemptions_per_node_day", TOP(preemptions_per_node_day), 1, 0, 1e4, COST_REAL, false, false},
    {"preemption_notice_s", TOP(preemption_notice_s), 1, 0, 1e6, COST_REAL, false, false},
};

static const cost_key accelerator_keys[] = {
    {"name", ACC(name), 1, 0, 0, COST_TEXT, false, false},
    {"memory_gib", ACC(memory_bytes), GIB, 1e-3, 65536, COST_REAL, false, true},
    {"reserve_gib", ACC(reserve_bytes), GIB, 0, 65536, COST_REAL, false, true},
    {"tflops_fp32", ACC(flops_per_s[MICS_MATH_FP32]), 1e12, 1e-6, 1e5, COST_REAL, false, false},
    {"tflops_tf32", ACC(flops_per_s[MICS_MATH_TF32]), 1e12, 1e-6, 1e5, COST_REAL, false, false},
    {"tflops_bf16", ACC(flops_per_s[MICS_MATH_BF16]), 1e12, 1e-6, 1e5, COST_REAL, false, false},
    {"tflops_fp16", ACC(flops_per_s[MICS_MATH_FP16]), 1e12, 1e-6, 1e5, COST_REAL, false, false},
    {"tflops_fp8", ACC(flops_per_s[MICS_MATH_FP8]), 1e12, 0, 1e5, COST_REAL, false, false},
    {"host_gb_per_s", ACC(host_bytes_per_s), 1e9, 0, 1e5, COST_REAL, false, false},
    {"host_memory_gib", ACC(host_memory_bytes), GIB, 0, 1e6, COST_REAL, false, false},
    {"memory_gb_per_s", ACC(memory_bytes_per_s), 1e9, 1e-2, 1e6, COST_REAL, false, true},
    {"memory_efficiency", ACC(memory_efficiency), 1, 1e-3, 1, COST_REAL, false, true},
    {"update_gb_per_s", ACC(update_bytes_per_s), 1e9, 1e-3, 1e6, COST_REAL, false, false},
    {"reduce_gb_per_s", ACC(reduce_bytes_per_s), 1e9, 0, 1e6, COST_REAL, false, false},
    {"launch_us", ACC(launch_us), 1, 0, 1e5, COST_REAL, false, true},
    {"call_us", ACC(call_us), 1, 0, 1e5, COST_REAL, false, false},
    {"cache_mib", ACC(cache_bytes), 1048576, 0, 1e5, COST_REAL, false, false},
    {"cache_gb_per_s", ACC(cache_bytes_per_s), 1e9, 0, 1e6, COST_REAL, false, false},
    {"matmul_efficiency", ACC(matmul_efficiency), 1, 1e-6, 1, COST_CURVE, false, false},
    {"attention_efficiency", ACC(attention_efficiency), 1, 1e-6, 1, COST_CURVE, false, false},
    {"attention", ACC(attention), 1, 0, 0, COST_TEXT, false, false},
    {"attention_unfused", KERNEL(UNFUSED), 1, 1e-6, 1, COST_CURVE, false, false},
    {"attention_flash1", KERNEL(FLASH1), 1, 1e-6, 1, COST_CURVE, false, false},
    {"attention_flash2", KERNEL(FLASH2), 1, 1e-6, 1, COST_CURVE, false, false},
    {"attention_flash3", KERNEL(FLASH3), 1, 1e-6, 1, COST_CURVE, false, false},
    {"attention_cudnn", KERNEL(CUDNN), 1, 1e-6, 1, COST_CURVE, false, false},
    {"watts", ACC(watts), 1, 0, 1e5, COST_REAL, false, false},
    {"matmul_kept", ACC(matmul_kept), 1, 0, 1, COST_REAL, false, false},
    {"fp8_kept", ACC(fp8_kept), 1, 0, 1, COST_REAL, false, false},
    {"attention_kept", ACC(attention_kept), 1, 0, 1, COST_REAL, false, false},
    {"memory_kept", ACC(memory_kept), 1, 0, 1, COST_REAL, false, false},
    {"kernels", ACC(kernels), 1, 0, 0, COST_TEXT, false, false},
    {"unsupported", ACC(unsupported), 1, 0, 0, COST_TEXT, false, false},
    {"device", ACC(device), 1, 0, 0, COST_TEXT, false, false},
    {"failures_per_day", ACC(failures_per_day), 1, 0, 1e4, COST_REAL, false, false},
    {"step_low", ACC(step_low), 1, 0, 1, COST_REAL, false, false},
    {"step_high", ACC(step_high), 1, 0, 10, COST_REAL, false, false},
};

static const cost_key tier_keys[] = {
    {"fan_out", TIER(fan_out), 1, 1, 1048576, COST_COUNT, false, false},
    {"gb_per_s", TIER(bytes_per_s), 1e9, 1e-6, 1e5, COST_REAL, false, true},
    {"gbit_per_s", TIER(bytes_per_s), 1e9 / 8, 8e-6, 8e5, COST_REAL, true, false},
    {"efficiency", TIER(efficiency), 1, 1e-3, 1, COST_REAL, false, true},
    {"rank_gb_per_s", TIER(rank_bytes_per_s), 1e9, 1e-6, 1e5, COST_REAL, false, false},
    {"rank_gbit_per_s", TIER(rank_bytes_per_s), 1e9 / 8, 8e-6, 8e5, COST_REAL, true, false},
    {"latency_us", TIER(latency_us), 1, 0, 1e6, COST_REAL, false, true},
    {"half_kib", TIER(half_bytes), 1024, 0, 1048576, COST_REAL, false, false},
    {"ramp", TIER(ramp), 1e9, 1e-9, 1e5, COST_RAMP, false, false},
    {"reduce_ramp", TIER(reduce_ramp), 1e9, 1e-9, 1e5, COST_RAMP, false, false},
    {"beside_us", TIER(beside_us), 1, 0, 1e6, COST_CURVE, false, false},
    {"beside_us_per_mb", TIER(beside_us_per_byte), 1e-6, 0, 1e6, COST_CURVE, false, false},
    {"slowdown", TIER(slowdown), 1, 0, 10, COST_REAL, false, true},
    {"core_us_per_mb", TIER(core_us_per_byte), 1e-6, 0, 1e6, COST_REAL, false, false},
};

const cost_key *cost_keys(cost_section section, int32_t *count_out)
{
    static const struct {
        const cost_key *keys;
        size_t count;
    } sections[COST_SECTIONS] = {
        [COST_TOP] = {top_keys, sizeof top_keys / sizeof *top_keys},
        [COST_ACCELERATOR] = {accelerator_keys, sizeof accelerator_keys / sizeof *accelerator_keys},
        [COST_TIER] = {tier_keys, sizeof tier_keys / sizeof *tier_keys},
    };
    *count_out = (int32_t)sections[section].count;
    return sections[section].keys;
}

const cost_key *cost_key_find(cost_section section, const char *name)
{
    int32_t count = 0;
    const cost_key *keys = cost_keys(section, &count);
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(keys[i].name, name) == 0)
            return &keys[i];
    }
    return NULL;
}
