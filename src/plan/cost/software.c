// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The table of software.
#include "plan/cost/software.h"
#include <stdio.h>
#include <string.h>

#define UNFUSED MICS_ATTENTION_UNFUSED
#define FLASH1 MICS_ATTENTION_FLASH1
#define FLASH2 MICS_ATTENTION_FLASH2
#define FLASH3 MICS_ATTENTION_FLASH3
#define CUDNN MICS_ATTENTION_CUDNN
#define ERA_2021 MICS_MEGATRON_2021
#define ERA_2023 MICS_MEGATRON_2023
#define ERA_NOW MICS_MEGATRON_NOW

// Kernels and attention are as of the year. The rest was fitted to bench/plan/throughput.jsonl and
// throughput2.jsonl, 2026-11: fp8 to 9 rows of torchtitan, figures of experts to 19 of Megatron in
// 2025 and 2026; other software's are taken from these.
// Megatron Core overlaps all-to-alls of experts with passes of other micro-batches
// (overlap_moe_expert_parallel_comm) where chunks are interleaved; most of Megatron-Bridge's recipes
// leave it off otherwise. Those of 2026 capture the router, or whole steps, in CUDA graphs (its
// perf_recipes, read 2026-11). DualPipe needs no chunks.
// kernels, attention, era, shards_params, half_grads, interleaved_alone, sends_once,
// recomputed, fp8, routing_us, imbalance, exchange_hidden
static const mics_software table[] = {
    {"mics", "", FLASH2, ERA_NOW, false, false, false, false, 0, 0, 0, 1, 0},
    {"torchtitan-2024", "fused", FLASH2, ERA_2023, true, false, false, false, 0.4, 0.92, 2000, 1.2,
     0},
    {"torchtitan-2025", "fused", FLASH2, ERA_2023, true, false, false, false, 0.4, 0.92, 2000, 1.2,
     0},
    {"torchtitan-2026", "fused", CUDNN, ERA_2023, true, false, false, false, 1, 0.92, 2000, 1.2, 0},
    {"megatron-2021", "fused", UNFUSED, ERA_2021, false, false, false, false, 0, 0, 2000, 1.2, 0},
    {"megatron-2022", "fused", UNFUSED, ERA_2023, false, false, false, false, 0, 0, 2000, 1.2, 0},
    {"megatron-2023", "fused", UNFUSED, ERA_2023, false, false, false, false, 0, 0, 2000, 1.2, 0},
    {"megatron-2024", "fused", CUDNN, ERA_NOW, false, false, false, false, 0, 0, 2000, 1.2, 0},
    {"megatron-2025", "fused", CUDNN, ERA_NOW, false, true, true, true, 0, 0, 2000, 1.2, 0.85},
    {"megatron-2026", "fused", CUDNN, ERA_NOW, false, true, true, true, 0, 0, 500, 1.2, 0.95},
    {"llm-foundry-2023", "", FLASH1, ERA_2023, true, false, false, false, 0, 0, 2000, 1.2, 0},
    {"hf-2023", "separate", FLASH2, ERA_2023, true, false, false, false, 1, 0, 2000, 1.2, 0},
    {"deepseek-2024", "fused", FLASH3, ERA_NOW, false, true, false, true, 0, 0, 1500, 1.2, 0.95},
};

enum { COUNT = sizeof table / sizeof *table };

const mics_software *mics_software_find(const char *name)
{
    for (int i = 0; i < COUNT; i++) {
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    }
    return NULL;
}

const char *mics_software_names(char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < COUNT && used < bytes; i++)
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%s", i == 0 ? "" : ", ", table[i].name);
    return text;
}

void mics_software_apply(const mics_software *software, mics_cluster *cluster)
{
    mics_accelerator *chip = &cluster->accelerator;
    int kernel = software->attention;
    if (software == &table[0])
        return;
    snprintf(chip->kernels, sizeof chip->kernels, "%s", software->kernels);
    if (software->fp8 > 0)
        chip->fp8_kept *= software->fp8;
    while (kernel > MICS_ATTENTION_UNFUSED && chip->attention_kernels[kernel].count == 0)
        kernel--;
    if (chip->attention_kernels[kernel].count > 0)
        chip->attention_efficiency = chip->attention_kernels[kernel];
}
