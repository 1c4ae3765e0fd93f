// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The table of software.
#include "plan/cost/software.h"
#include "base/text.h"
#include <stdio.h>
#include <string.h>

#define UNFUSED MICS_ATTENTION_UNFUSED
#define FLASH1 MICS_ATTENTION_FLASH1
#define FLASH2 MICS_ATTENTION_FLASH2
#define FLASH3 MICS_ATTENTION_FLASH3
#define CUDNN MICS_ATTENTION_CUDNN

// kernels, attention, era, shards_params, half_grads
static const mics_software table[] = {
    {.name = "mics"},
    {"torchtitan-2024", "fused", FLASH2, MICS_MEGATRON_2023, true, false},
    {"torchtitan-2025", "fused", FLASH2, MICS_MEGATRON_2023, true, false},
    {"torchtitan-2026", "fused", FLASH2, MICS_MEGATRON_2023, true, false},
    {"megatron-2021", "fused", UNFUSED, MICS_MEGATRON_2021, false, false},
    {"megatron-2022", "fused", UNFUSED, MICS_MEGATRON_2023, false, false},
    {"megatron-2023", "fused", UNFUSED, MICS_MEGATRON_2023, false, false},
    {"megatron-2024", "fused", CUDNN, MICS_MEGATRON_NOW, false, false},
    {"megatron-2025", "fused", CUDNN, MICS_MEGATRON_NOW, false, true},
    {"megatron-2026", "fused", CUDNN, MICS_MEGATRON_NOW, false, true},
    {"llm-foundry-2023", "", FLASH1, MICS_MEGATRON_2023, true, false},
    {"hf-2023", "separate", FLASH2, MICS_MEGATRON_2023, true, false},
    {"deepseek-2024", "fused", FLASH3, MICS_MEGATRON_NOW, false, false},
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
    while (kernel > MICS_ATTENTION_UNFUSED && chip->attention_kernels[kernel].count == 0)
        kernel--;
    if (chip->attention_kernels[kernel].count > 0)
        chip->attention_efficiency = chip->attention_kernels[kernel];
}
