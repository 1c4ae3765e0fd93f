// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Accelerators of the catalogue. Units are in the keys; every figure names its source.
#include "plan/cost/catalogue.h"

#define KEY(name) "accelerator." name

// ---- sources ----

static const catalogue_source v100_sheet = {
    "NVIDIA V100 data sheet: 125 TFLOP/s fp16, 15.7 fp32, 900 GB/s, 32 GB", "2020-01", false};
static const catalogue_source a100_sheet = {
    "NVIDIA A100 data sheet: 312 TFLOP/s bf16 and fp16, 156 tf32, 19.5 fp32, 40 GB at 1555 GB/s or "
    "80 GB at 2039 GB/s",
    "2021-06", false};
static const catalogue_source h100_sheet = {"NVIDIA H100 SXM data sheet, dense: 989 TFLOP/s bf16 "
                                            "and fp16, 495 tf32, 67 fp32, 80 GB at 3.35 "
                                            "TB/s",
                                            "2023-03", false};
static const catalogue_source h200_sheet = {
    "NVIDIA H200 SXM data sheet, dense: as H100, with 141 GB (143771 MiB) at 4.8 TB/s", "2024-01",
    false};
static const catalogue_source b200_sheet = {"NVIDIA HGX B200 data sheet, dense: 2250 TFLOP/s bf16 "
                                            "and fp16, 1125 tf32, 75 fp32, 180 GB at 8 "
                                            "TB/s",
                                            "2024-11", false};
static const catalogue_source b200_memory = {
    "of the 180 GB what the driver shows, about 183000 MiB: from memory, not looked up", "2026-11",
    true};
static const catalogue_source reserve = {
    "CUDA context 0.5 GiB, NCCL buffers 0.5 to 1 GiB, fragmentation of the rest: estimated",
    "2026-11", true};
static const catalogue_source elementwise = {"Calculon (SC23), systems/a100_80g.json: 0.75 of the "
                                             "peak at 10 MB, 0.90 at 100 MB; between them",
                                             "2023-11", true};
static const catalogue_source launches = {"asynchronous launches of small CUDA kernels: 3 to 5 us",
                                          "2022-06", true};
static const catalogue_source v100_matmul_source = {
    "cuBLAS fp16 at 8192: 101 of 112 TFLOP/s on V100 PCIe (NVIDIA developer forum 79781), 85 of "
    "125 in "
    "a framework (yaroslavvb/stuff); the mean there, and below by tiles of 128 x 256 on 80 cores",
    "2019-06", true};
static const catalogue_source a100_matmul_source = {
    "best bf16 product 271 of 312 TFLOP/s (stas00/ml-engineering); below by waves of 128 x 256 "
    "tiles on "
    "108 cores (NVIDIA, matrix multiplication background guide)",
    "2024-10", true};
static const catalogue_source h100_matmul_source = {
    "best bf16 product 795 of 989 TFLOP/s (stas00/ml-engineering), 780 at 4224 x 2048 x 8192 tuned "
    "(PyTorch, "
    "gist Chillee/2ec89696); below by waves of 128 x 256 tiles on 132 cores",
    "2024-10", true};
static const catalogue_source b200_matmul_source = {
    "best bf16 product 1745 of 2250 TFLOP/s (stas00/ml-engineering); below by waves of 256 x 256 "
    "tiles on "
    "148 cores",
    "2025-10", true};
static const catalogue_source v100_attention_source = {
    "FlashAttention reaches 25 to 40 % of the peak (arXiv:2307.08691, abstract)", "2023-07", true};
static const catalogue_source a100_attention_source = {
    "FlashAttention-2, causal, forward and backward, head dimension 128 (arXiv:2307.08691, figure "
    "4): read "
    "off the picture",
    "2023-07", true};
static const catalogue_source h100_attention_source = {
    "FlashAttention-3, causal, forward and backward (arXiv:2407.08608, figures 5 and 6): read off "
    "the "
    "pictures",
    "2024-07", true};
static const catalogue_source b200_attention_source = {"the H100's shares, less a fifth: estimated",
                                                       "2026-11", true};

// ---- shares of the peak ----

// By the smallest dimension of a product.
static const mics_curve v100_matmul = {.count = 7,
                                       .size = {128, 256, 512, 1024, 2048, 4096, 8192},
                                       .value = {0.18, 0.32, 0.48, 0.60, 0.69, 0.75, 0.79}};
static const mics_curve a100_matmul = {.count = 8,
                                       .size = {128, 256, 512, 1024, 2048, 4096, 8192, 16384},
                                       .value = {0.15, 0.28, 0.45, 0.60, 0.72, 0.80, 0.84, 0.86}};
static const mics_curve h100_matmul = {.count = 8,
                                       .size = {128, 256, 512, 1024, 2048, 4096, 8192, 16384},
                                       .value = {0.08, 0.17, 0.32, 0.49, 0.63, 0.72, 0.77, 0.80}};
static const mics_curve b200_matmul = {.count = 8,
                                       .size = {128, 256, 512, 1024, 2048, 4096, 8192, 16384},
                                       .value = {0.05, 0.11, 0.22, 0.39, 0.55, 0.67, 0.75, 0.78}};
// By the length of the sequence.
static const mics_curve v100_attention = {
    .count = 3, .size = {512, 1024, 2048}, .value = {0.25, 0.30, 0.35}};
static const mics_curve a100_attention = {.count = 6,
                                          .size = {512, 1024, 2048, 4096, 8192, 16384},
                                          .value = {0.30, 0.42, 0.50, 0.56, 0.59, 0.60}};
static const mics_curve h100_attention = {.count = 6,
                                          .size = {512, 1024, 2048, 4096, 8192, 16384},
                                          .value = {0.20, 0.30, 0.40, 0.48, 0.54, 0.57}};
static const mics_curve b200_attention = {.count = 6,
                                          .size = {512, 1024, 2048, 4096, 8192, 16384},
                                          .value = {0.16, 0.24, 0.32, 0.38, 0.43, 0.46}};

#define MATMUL(chip)                                                                               \
    {                                                                                              \
        KEY("matmul_efficiency"), 0, &chip##_matmul, &chip##_matmul_source                         \
    }
#define ATTENTION(chip)                                                                            \
    {                                                                                              \
        KEY("attention_efficiency"), 0, &chip##_attention, &chip##_attention_source                \
    }
// What all of them share.
#define COMMON                                                                                     \
    {KEY("reserve_gib"), 2, NULL, &reserve}, {KEY("memory_efficiency"), 0.85, NULL, &elementwise}, \
    {                                                                                              \
        KEY("launch_us"), 4, NULL, &launches                                                       \
    }

#define A100(gib, gb_per_s)                                                                        \
    {KEY("memory_gib"), gib, NULL, &a100_sheet},                                                   \
        {KEY("memory_gb_per_s"), gb_per_s, NULL, &a100_sheet},                                     \
        {KEY("tflops_fp32"), 19.5, NULL, &a100_sheet},                                             \
        {KEY("tflops_tf32"), 156, NULL, &a100_sheet},                                              \
        {KEY("tflops_bf16"), 312, NULL, &a100_sheet},                                              \
        {KEY("tflops_fp16"), 312, NULL, &a100_sheet}, MATMUL(a100), ATTENTION(a100), COMMON

#define H100(gib, gb_per_s, sheet)                                                                 \
    {KEY("memory_gib"), gib, NULL, sheet}, {KEY("memory_gb_per_s"), gb_per_s, NULL, sheet},        \
        {KEY("tflops_fp32"), 67, NULL, sheet}, {KEY("tflops_tf32"), 495, NULL, sheet},             \
        {KEY("tflops_bf16"), 989, NULL, sheet}, {KEY("tflops_fp16"), 989, NULL, sheet},            \
        MATMUL(h100), ATTENTION(h100), COMMON

static const catalogue_accelerator accelerators[] = {
    {"V100-SXM2-32GB",
     {{KEY("memory_gib"), 32, NULL, &v100_sheet},
      {KEY("memory_gb_per_s"), 900, NULL, &v100_sheet},
      {KEY("tflops_fp32"), 15.7, NULL, &v100_sheet},
      {KEY("tflops_fp16"), 125, NULL, &v100_sheet},
      MATMUL(v100),
      ATTENTION(v100),
      COMMON}},
    {"A100-SXM4-40GB", {A100(40, 1555)}},
    {"A100-SXM4-80GB", {A100(80, 2039)}},
    {"H100-SXM5-80GB", {H100(80, 3350, &h100_sheet)}},
    {"H200-SXM5-141GB", {H100(140.4, 4800, &h200_sheet)}},
    {"B200-SXM6-180GB",
     {{KEY("memory_gib"), 179, NULL, &b200_memory},
      {KEY("memory_gb_per_s"), 8000, NULL, &b200_sheet},
      {KEY("tflops_fp32"), 75, NULL, &b200_sheet},
      {KEY("tflops_tf32"), 1125, NULL, &b200_sheet},
      {KEY("tflops_bf16"), 2250, NULL, &b200_sheet},
      {KEY("tflops_fp16"), 2250, NULL, &b200_sheet},
      MATMUL(b200),
      ATTENTION(b200),
      COMMON}},
};

const catalogue_accelerator *catalogue_accelerators(int32_t *count_out)
{
    *count_out = (int32_t)(sizeof accelerators / sizeof *accelerators);
    return accelerators;
}
